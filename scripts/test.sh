#!/usr/bin/env bash
# scripts/test.sh [OPTION...]: builds and runs the tests; fails if one fails or if none ran. Options are those of ctest:
# `scripts/test.sh -L greedy-decode` runs one stage.

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
build_targets all
cd "$root"
exec ctest --preset "$preset" "$@"
