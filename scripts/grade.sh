#!/usr/bin/env bash
# scripts/grade.sh [--stage STAGE] [--adapters PATH] [--watch]: grades a stage of the course and shows what is wrong
# first; all stages, in a table, if none is named. It grades this library, or your own functions: PATH is a directory
# whose .cpp files define what tests/adapters.hpp declares, or a single such file. examples/learner is a starting point.
# With --watch, it grades again whenever a source file changes, yours or one of this repository. Exit status: 0 if all is
# green, 1 if something is red or does not compile, 2 if nothing could be graded. Environment: DRIFTLESS_PRESET, a preset
# of CMakePresets.json; DRIFTLESS_BUILD_DIR, instead of it a build that is configured already; DRIFTLESS_GRADE_DIR, the
# directory in which your files are compiled; DRIFTLESS_GRADE_SECONDS, after which a stage is stopped, 120 if not set.

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
if [ -n "${DRIFTLESS_BUILD_DIR:-}" ]; then
  build=$DRIFTLESS_BUILD_DIR
  touch "$build/.configured"
fi
graded=${DRIFTLESS_GRADE_DIR:-$build/graded}
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
    *) fail "unknown option $1; expected --stage STAGE, --adapters PATH or --watch" ;;
  esac
done
if [ -n "$stage" ]; then
  [[ " ${stages[*]} " == *" $stage "* ]] || fail "unknown stage $stage; expected one of: ${stages[*]}"
fi
watched=("$root/include" "$root/src" "$root/tests") files=()
if [ -n "$adapters" ]; then
  if [ -d "$adapters" ]; then files=("$adapters"/*.cpp); else files=("$adapters"); fi
  [[ -f ${files[0]} && ${files[0]} == *.cpp ]] || fail "expected a .cpp file or a directory of them: $adapters"
  adapters=$(cd "$(dirname "${files[0]}")" && pwd)
  for i in "${!files[@]}"; do files[i]=$adapters/${files[i]##*/}; done
  watched+=("$adapters")
fi

# why_not STAGE: sets `reason` to why it cannot be graded, to nothing if it can.
why_not() {
  reason=''
  if [ "$1" = generate-cli ] && [ -n "$adapters" ]; then
    reason="it grades the program driftless, which takes no adapters"
  elif [ "$1" = gpt2-124m ] && [ -z "${DRIFTLESS_GPT2_DIR:-}" ]; then
    reason="DRIFTLESS_GPT2_DIR is not set; scripts/download_gpt2.sh downloads the model"
  fi
}

# is_current FILE INGREDIENT...: whether it is there and no ingredient is missing or has changed since.
is_current() {
  local file=$1 ingredient
  for ingredient in "$@"; do
    if [[ ! -f $ingredient || $ingredient -nt $file ]]; then return 1; fi
  done
}

# compile SOURCE OBJECT: unless it is current. An object is as old as the moment when grading began, so that an edit
# made meanwhile is not missed. If there is none in the end, OBJECT.log says why.
compile() {
  local ingredients=()
  if [ -f "$2.d" ]; then read -d '' -a ingredients <"$2.d" || true; fi # not -r: the backslashes are make's
  if [ "${ingredients[1]:-}" = "$1" ] && is_current "$2" "${linked[0]}" "${ingredients[@]:1}"; then return; fi
  rm -f "$2"
  if "${compiler[@]}" -MMD -MF "$2.d" -o "$2.new" -c "$1" >"$2.log" 2>&1; then
    touch -r "$graded/began" "$2.new"
    mv "$2.new" "$2"
  fi
}

# Compiles the learner's files, each by itself, and links those that compile with the stages. Sets `errors` to what was
# wrong, if anything; without a program, nothing can run.
build_learner() {
  local file object objects=() command
  build_targets driftless_grading || fail "could not build the stages"
  touch "$graded/began"
  # The first of these is compiled as a learner's file is, and stands in for what none of them defines.
  mapfile -t linked <"$build/tests/learner/linked"
  command=$(sed -n 's/^ *"command": "\(.*\) -o [^ ]*missing_adapters.*/\1/p' "$build/compile_commands.json")
  eval "compiler=(${command//\\\"/\"})"
  for file in "${files[@]}"; do compile "$file" "$graded/${file##*/}.o" & done
  wait
  for file in "${files[@]}"; do
    object=$graded/${file##*/}.o
    if [ -f "$object" ]; then objects+=("$object"); else errors+=$(<"$object.log")$'\n'; fi
  done
  if [ "${objects[*]}" = "$(cat "$program.objects" 2>/dev/null)" ] &&
    is_current "$program" "${objects[@]}" "${linked[@]}"; then return; fi
  rm -f "$program"
  printf %s "${objects[*]}" >"$program.objects"
  "${compiler[@]}" -o "$program" "${objects[@]}" "${linked[@]}" -pthread "-Wl,-rpath,${linked[-1]%/*}" \
    >"$program.log" 2>&1 || errors+=$(<"$program.log")
}

# Sets `program`, and `errors` to what does not compile; the library's errors go to standard error.
build_program() {
  errors=''
  mkdir -p "$graded"
  if [ -n "$adapters" ]; then
    program=$graded/stages
    build_learner
  else
    program=$build/tests/stages/driftless_stages
    build_targets driftless_stages || program=''
  fi
}

# In seconds. Longer than any stage takes, so that a loop without an end has one.
time_limit=${DRIFTLESS_GRADE_SECONDS:-120}

# run STAGE: writes its report, to a file, so that what the graded functions print is seen as it is; not so bash's word
# of a crash.
run() {
  rm -f "$graded/$1.report"
  [ -f "$program" ] || return 0
  { timeout "$time_limit" "$program" --test-suite="$1" --no-skip --out="$graded/$1.report" </dev/null 2>&3 || true; } \
    3>&2 2>/dev/null
}

# first_failure REPORT: the first test case that failed, up to its second failure, and the first mistake that is named;
# if none is, why.
first_failure() {
  awk '/^TEST CASE:/ { inside = 1 }
       inside && /^====/ { exit }
       inside && /ERROR: / && failures++ { exit }
       inside' "$1"
  local diagnoses
  diagnoses=$(sed -n 's/.*MESSAGE: \(\(no \)\?diagnosis: \)/\1/p' "$1")
  { grep '^diagnosis: ' <<<"$diagnoses" | grep -v '^diagnosis: none,' || printf '%s\n' "$diagnoses"; } | head -n 1
}

# judge STAGE: after its run. Sets `verdict`, and `details` to what is wrong first; fails unless it is green.
judge() {
  local report=$graded/$1.report counts
  if [ ! -f "$program" ] || { [ -n "$errors" ] && grep -qs "adapters::[A-Za-z]* is not defined" "$report"; }; then
    verdict="does not compile" details=$(head -n 40 <<<"$errors")
    return 1
  fi
  counts=$(sed -n 's/.*test cases: *\([1-9][0-9]*\) *| *\([0-9]*\) passed.*/\2 of \1 test cases pass/p' "$report")
  verdict="green, $counts" details=''
  if [ -n "$counts" ] && grep -q 'Status: SUCCESS!' "$report"; then return; fi
  verdict="red, ${counts:-no test case has run to its end}"
  details=$(if [ -f "$report" ]; then first_failure "$report"; fi)
  if grep -qs "CRASHED: SIGTERM" "$report"; then
    details+=$'\n'"It was stopped after $time_limit s: is there a loop without an end?"
  elif [ -z "$details" ]; then
    details="The program ended before the stage did, without a word: does something call exit?"
  fi
  return 1
}

grade_stage() {
  local status=0
  run "$stage"
  judge "$stage" || status=1
  echo "$stage: $verdict"
  if [ -n "$details" ]; then printf '%s\n' "$details"; fi
  return "$status"
}

grade_all() {
  local name next='' next_details
  for name in "${stages[@]}"; do
    why_not "$name"
    if [ -z "$reason" ]; then run "$name" & fi
  done
  wait
  for name in "${stages[@]}"; do
    why_not "$name"
    if [ -n "$reason" ]; then
      printf '%-7s %-18s %s\n' - "$name" "$reason"
    elif judge "$name"; then
      printf '%-7s %-18s %s\n' "done" "$name" "$verdict"
    else
      printf '%-7s %-18s %s\n' "to do" "$name" "$verdict"
      if [ -z "$next" ]; then next=$name next_details=$details; fi
    fi
  done
  if [ -n "$next" ]; then printf '\nNext is %s:\n%s\n' "$next" "$next_details" && return 1; fi
}

grade() {
  build_program
  if [ -n "$stage" ]; then grade_stage; else grade_all; fi
}

if [ -n "$stage" ]; then
  why_not "$stage"
  [ -z "$reason" ] || fail "cannot grade $stage: $reason"
fi
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
  until [ -n "$(find "${watched[@]}" -name '*.[chi]*' -newer "$stamp" -print -quit)" ]; do sleep 0.5; done
done
