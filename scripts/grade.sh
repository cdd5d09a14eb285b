#!/usr/bin/env bash
# scripts/grade.sh [--stage STAGE] [--adapters HEADER] [--watch]: grades a stage of the course and shows what is wrong
# first; all stages, in a table, where none is named. What is graded is this library, or your own functions, which HEADER
# joins to the stages as tests/adapters.hpp says; examples/learner is a starting point. With --watch, grades again
# whenever a source file in HEADER's directory, tests/ or include/ changes. Exit status: 0 where all is green, 1 where
# something is red or does not compile, 2 where nothing could be graded.

DRIFTLESS_PRESET=grade
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
build=${DRIFTLESS_GRADE_DIR:-$build}
read -r -d '' -a stages <"$root/tests/stages.txt" || true

fail() {
  say "grade.sh: $*"
  exit 2
}

stage='' adapters='' watch=no
while [ "$#" -gt 0 ]; do
  case $1 in
    --stage | --adapters)
      [ "$#" -ge 2 ] || fail "$1 needs a value"
      if [ "$1" = --stage ]; then stage=$2; else adapters=$2; fi
      shift 2
      ;;
    --watch) watch=yes && shift ;;
    *) fail "unknown option $1; expected --stage STAGE, --adapters HEADER or --watch" ;;
  esac
done
if [ -n "$stage" ]; then
  [[ " ${stages[*]} " == *" $stage "* ]] || fail "unknown stage $stage; expected one of: ${stages[*]}"
fi
sources=("$root/include" "$root/tests")
if [ -n "$adapters" ]; then
  [ -f "$adapters" ] || fail "no such adapters file: $adapters"
  adapters=$(cd "$(dirname "$adapters")" && pwd)/$(basename "$adapters")
  sources+=("$(dirname "$adapters")")
fi

# why_not STAGE: why it can't be graded; nothing if it can.
why_not() {
  if [ "$1" = generate-cli ] && [ -n "$adapters" ]; then
    echo "it grades the program driftless, which takes no adapters"
  elif [ "$1" = gpt2-124m ] && [ -z "${DRIFTLESS_GPT2_DIR:-}" ]; then
    echo "DRIFTLESS_GPT2_DIR is not set; scripts/download_gpt2.sh downloads the model"
  fi
}

# Configures the build, unless that has been done for these adapters.
prepare() {
  local configured=$build/.configured
  if [ -f "$configured" ] && [ "$(cat "$configured")" = "$adapters" ]; then return; fi
  configure "-DDRIFTLESS_ADAPTERS=$adapters" || fail "could not configure $build"
  printf %s "$adapters" >"$configured"
  say "Building what is to be graded: this can take a minute the first time"
}

# first_failure REPORT: the first test case that failed, up to its second failure, and the mistake that explains it.
first_failure() {
  awk '/^TEST CASE:/ { inside = 1 }
       inside && /^====/ { exit }
       inside && /ERROR: / && failures++ { exit }
       inside' "$1"
  sed -n 's/.*MESSAGE: \(diagnosis: \)/\1/p' "$1" | head -n 1
}

# Longer than any stage takes, so that a loop without an end has one.
time_limit=300

build_target() { cmake --build "$build" --parallel "$(nproc)" --target "$1" </dev/null 2>&1; }

# run STAGE [if-changed]: builds and runs it, unless it need not be run again; fails unless it is green. Sets `verdict`,
# and `details` to what is wrong first.
run() {
  local program=$build/graded/$1 report=$build/graded/$1.report log=$build/graded/$1.log counts
  mkdir -p "$build/graded"
  if ! build_target "driftless_graded_$1" >"$log"; then
    verdict="does not compile"
    details=$(grep -vE '^(\[|make|gmake|ninja)' "$log" | head -n 40)
    return 1
  fi
  if [ "${2:-}" != if-changed ] || [ "$1" = gpt2-124m ] || [ ! "$report" -nt "$program" ]; then
    # The report goes to a file, so that what the graded functions print is seen as it is; not so bash's word of a crash.
    { timeout "$time_limit" "$program" --test-suite="$1" --no-skip --out="$report.new" </dev/null 2>&3 || true; } 3>&2 2>/dev/null
    mv "$report.new" "$report"
  fi
  counts=$(sed -n 's/.*test cases: *\([1-9][0-9]*\) *| *\([0-9]*\) passed.*/\2 of \1 test cases pass/p' "$report")
  verdict="green, $counts" details=''
  if [ -n "$counts" ] && grep -q 'Status: SUCCESS!' "$report"; then return; fi
  verdict="red, ${counts:-no test case has run to its end}"
  details=$(first_failure "$report")
  return 1
}

grade_stage() {
  local status=0
  run "$stage" || status=1
  echo "$stage: $verdict"
  if [ -n "$details" ]; then printf '%s\n' "$details"; fi
  return "$status"
}

grade_all() {
  local name next='' next_details
  build_target driftless_graded >/dev/null || true # side by side; what fails is built again, to show why
  for name in "${stages[@]}"; do
    if [ -n "$(why_not "$name")" ]; then
      printf '%-7s %-18s %s\n' - "$name" "$(why_not "$name")"
    elif run "$name" if-changed; then
      printf '%-7s %-18s %s\n' "done" "$name" "$verdict"
    else
      printf '%-7s %-18s %s\n' "to do" "$name" "$verdict"
      if [ -z "$next" ]; then next=$name next_details=$details; fi
    fi
  done
  if [ -n "$next" ]; then printf '\nNext is %s:\n%s\n' "$next" "$next_details" && return 1; fi
}

grade() { if [ -n "$stage" ]; then grade_stage; else grade_all; fi; }

if [ -n "$stage" ] && [ -n "$(why_not "$stage")" ]; then fail "cannot grade $stage: $(why_not "$stage")"; fi
prepare
if [ "$watch" = no ]; then
  grade || exit 1
  exit 0
fi
stamp=$(mktemp)
trap 'rm -f "$stamp"' EXIT
while true; do
  touch "$stamp"
  grade || true
  say "Waiting for a change"
  until [ -n "$(find "${sources[@]}" -name '*.[chi]*' -newer "$stamp" -print -quit)" ]; do sleep 0.5; done
done
