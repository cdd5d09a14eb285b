#!/usr/bin/env bash
# grade_test.sh BUILD DIRECTORY: checks what scripts/grade.sh says and returns, on a copy of examples/learner in
# DIRECTORY, with the stages that BUILD has compiled.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$here/../..
learner=$2/learner
export DRIFTLESS_BUILD_DIR=$1 DRIFTLESS_GRADE_DIR=$2/graded
unset DRIFTLESS_GPT2_DIR

fail() {
  printf '%s\n' "$@" >&2
  exit 1
}

# expect STATUS TEXT OPTION...: runs grade.sh, which must end with STATUS and print TEXT.
expect() {
  local wanted=$1 text=$2 status=0 output
  shift 2
  output=$("$root/scripts/grade.sh" "$@" 2>&1) || status=$?
  [ "$status" -eq "$wanted" ] || fail "grade.sh $*: expected exit status $wanted, got $status:" "$output"
  [[ $output == *"$text"* ]] || fail "grade.sh $*: expected \"$text\" in:" "$output"
  if [ "$wanted" -eq 2 ] && [[ $output == *$'\n'* ]]; then fail "grade.sh $*: expected one line, got:" "$output"; fi
}

rm -rf "$2"
mkdir -p "$learner"
cp "$root"/examples/learner/*.[ch]pp "$learner"

expect 2 "unknown stage greedy; expected one of: causal-mask full-forward" --stage greedy
expect 2 "expected a .cpp file or a directory of them: $learner/none.cpp" --adapters "$learner/none.cpp"
expect 2 "expected a .cpp file or a directory of them: $learner/given.hpp" --adapters "$learner/given.hpp"
expect 2 "expected a .cpp file or a directory of them: $2" --adapters "$2"
expect 2 "--stage needs a value" --stage
expect 2 "unknown option --help" --help
expect 2 "cannot grade generate-cli" --stage generate-cli --adapters "$learner"
expect 2 "cannot grade gpt2-124m: DRIFTLESS_GPT2_DIR is not set" --stage gpt2-124m

# A file may define some functions only.
cat >"$2/alone.cpp" <<'END'
#include "adapters.hpp"
int adapters::runArgmax(const RowVector<float>& logits) {
  Index best = 0;
  logits.maxCoeff(&best);
  return static_cast<int>(best);
}
END
expect 1 "greedy-decode: red, 1 of 5" --stage greedy-decode --adapters "$2/alone.cpp"
expect 1 "adapters::buildCausalMask is not defined" --stage causal-mask --adapters "$2/alone.cpp"

mask=(--stage causal-mask --adapters "$learner")
expect 1 "to do: buildCausalMask: return a [T, T] matrix" "${mask[@]}"

watched=$2/watched
# wait_for TEXT: until the watcher has printed it.
wait_for() {
  for _ in {1..600}; do
    if grep -q "$1" "$watched"; then return; fi
    sleep 0.2
  done
  fail "grade.sh --watch: expected \"$1\" in:" "$(cat "$watched")"
}
: >"$watched"
"$root/scripts/grade.sh" "${mask[@]}" --watch >"$watched" 2>&1 &
watcher=$!
trap 'kill "$watcher"' EXIT
wait_for "Waiting for a change"
grep -q "^causal-mask: red, 0 of 1 test cases pass" "$watched" || fail "expected red first, got:" "$(cat "$watched")"
cp "$here/solution/recompute.cpp" "$learner"
wait_for "^causal-mask: green, 1 of 1 test cases pass"
trap - EXIT
kill "$watcher"
wait "$watcher" || true # or it would build what is graded below, too

expect 0 "causal-mask: green" "${mask[@]}"
expect 1 "to do: attnStep: append" --stage attn-step --adapters "$learner"

# A file that does not compile takes with it only the stages that need it, and is seen again when a header changes.
echo "int unfinished = ;" >"$learner/unfinished.hpp"
echo '#include "unfinished.hpp"' >>"$learner/cached.cpp"
expect 0 "causal-mask: green" "${mask[@]}"
expect 1 "attn-step: does not compile" --stage attn-step --adapters "$learner"
expect 1 "int unfinished = ;" --stage attn-step --adapters "$learner"
expect 1 "done    greedy-recompute   green, 3 of 3 test cases pass
to do   attn-step          does not compile" --adapters "$learner"
echo "int unfinished = 0;" >"$learner/unfinished.hpp"
expect 1 "to do: attnStep: append" --stage attn-step --adapters "$learner"
echo "int unfinished = 1 +;" >"$learner/unfinished.hpp"
expect 1 "attn-step: does not compile" --stage attn-step --adapters "$learner"
cp "$here/solution/cached.cpp" "$learner"
expect 0 "attn-step: green" --stage attn-step --adapters "$learner"

# expect_of TEXT STAGE SCRIPT: grades the stage on the solution as sed changes it by SCRIPT.
expect_of() {
  sed "$3" "$here/solution/cached.cpp" >"$learner/cached.cpp"
  cmp -s "$here/solution/cached.cpp" "$learner/cached.cpp" && fail "nothing to change by $3"
  expect 1 "$1" --stage "$2" --adapters "$learner"
}
after_prefill='s/  Row logits = prefill(.*/&\n  LINE/'
before_attending='s/    mixed.row(t) =$/    LINE\n&/'
twice='logits = decodeStep(prompt.back(), cache.length(), model, cache);'
expect_of "diagnosis: decode_before_first_argmax. " greedy-decode "${after_prefill/LINE/$twice}"
expect_of "diagnosis: decode_before_first_argmax_in_place. " greedy-decode \
  "${after_prefill/LINE/${twice/length()/length() - 1}}"
expect_of "diagnosis: own_position_unseen_after_first. " attn-step \
  's/cache, cache.length(), model/cache, std::max<Index>(1, cache.length() - 1), model/'
expect_of "the row sees no position, not even its own" attn-step 's/cache, cache.length(), model/cache, 0, model/'
expect_of "in: odd-gpt2, prompt of 16 tokens, layer 0, at position 0" attn-step \
  's/cache, cache.length(), model/cache, 0, model/'
expect_of "diagnosis: left_over_from_earlier_call. " greedy-decode 's/  ModelCache cache(model.config);/  static&/'

# What throws, crashes, goes on for ever or ends the program is told too, and where.
expect_of "Eigen asserts in " attn-step 's/qkv.row(t).head(C)/qkv.row(t + 1).head(C)/'
crash='if (cache.length() == 6) *static_cast<volatile int*>(nullptr) = 1;'
expect_of "CRASHED: SIGSEGV" attn-step "${before_attending/LINE/$crash}"
expect_of "in: odd-gpt2, prompt of 16 tokens, layer 0, at position 5" attn-step "${before_attending/LINE/$crash}"
expect_of "in: odd-gpt2, prompt of 5 tokens, at position 5" greedy-decode "${before_attending/LINE/$crash}"
export DRIFTLESS_GRADE_SECONDS=3
expect_of "stopped after 3 s" attn-step "${before_attending/LINE/for (volatile int i = 0; i >= 0; i = 0) {\}}"
unset DRIFTLESS_GRADE_SECONDS
expect_of "does something call exit?" attn-step "${before_attending/LINE/std::exit(0);}"
cp "$here/solution/cached.cpp" "$learner"

sed -i 's/key = query + 1;/key = query;/' "$learner/recompute.cpp"
expect 1 "diagnosis: mask_hides_own_position" "${mask[@]}"
expect 1 "no diagnosis: the results are not numbers (NaN)" --stage full-forward --adapters "$learner"

echo "int unfinished = ;" >>"$learner/recompute.cpp"
expect 1 "causal-mask: does not compile" "${mask[@]}"
expect 1 "int unfinished = ;" "${mask[@]}"
expect 1 "does not compile" --stage greedy-decode --adapters "$learner" # it needs argmax of recompute.cpp
