#!/usr/bin/env bash
# grade_test.sh DIRECTORY: checks what scripts/grade.sh says and returns, on a copy of examples/learner in DIRECTORY.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$here/../..
learner=$1/learner
adapters=$learner/adapters.hpp
export DRIFTLESS_GRADE_DIR=$1/build
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

mkdir -p "$learner"
cp "$root"/examples/learner/*.hpp "$learner"

expect 2 "unknown stage greedy; expected one of: causal-mask full-forward" --stage greedy
expect 2 "no such adapters file: $learner/none.hpp" --stage causal-mask --adapters "$learner/none.hpp"
expect 2 "--stage needs a value" --stage
expect 2 "unknown option --help" --help
expect 2 "cannot grade generate-cli" --stage generate-cli --adapters "$adapters"
expect 2 "cannot grade gpt2-124m: DRIFTLESS_GPT2_DIR is not set" --stage gpt2-124m

graded=(--stage causal-mask --adapters "$adapters")
expect 1 "to do: buildCausalMask: return a [T, T] matrix" "${graded[@]}"

watched=$1/watched
# wait_for TEXT: until the watcher has printed it.
wait_for() {
  for _ in {1..600}; do
    if grep -q "$1" "$watched"; then return; fi
    sleep 0.2
  done
  fail "grade.sh --watch: expected \"$1\" in:" "$(cat "$watched")"
}
: >"$watched"
"$root/scripts/grade.sh" "${graded[@]}" --watch >"$watched" 2>&1 &
watcher=$!
trap 'kill "$watcher"' EXIT
wait_for "Waiting for a change"
grep -q "^causal-mask: red, 0 of 1 test cases pass" "$watched" || fail "expected red first, got:" "$(cat "$watched")"
cp "$here/solution/recompute.hpp" "$learner"
wait_for "^causal-mask: green, 1 of 1 test cases pass"
trap - EXIT
kill "$watcher"
wait "$watcher" || true # or it would build what is graded below, too

expect 0 "causal-mask: green" "${graded[@]}"

sed -i 's/key = query + 1;/key = query;/' "$learner/recompute.hpp"
expect 1 "diagnosis: mask_hides_own_position" "${graded[@]}"

echo "int unfinished = ;" >>"$learner/recompute.hpp"
expect 1 "does not compile" "${graded[@]}"
expect 1 "int unfinished = ;" "${graded[@]}"
