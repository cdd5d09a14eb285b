#!/usr/bin/env bash
# scripts/test.sh [--all] [OPTION...]: builds and runs the tests; fails if one fails or if none ran. Without --all, those
# labelled costly are left out, which compile the library many times over. Options are those of ctest, and what -L or -R
# names is run, costly or not: `scripts/test.sh -L greedy-decode` runs one stage, `scripts/test.sh -L headers` what the
# headers promise.

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
all=no
command=(ctest --preset "$preset")
for option in "$@"; do
  case $option in --all | -L | -R | --label-regex | --tests-regex | --rerun-failed) all=yes ;; esac
  if [ "$option" != --all ]; then command+=("$option"); fi
done
if [ "$all" = no ]; then command+=(-LE '^costly$'); fi
build_targets all
cd "$root"
exec "${command[@]}"
