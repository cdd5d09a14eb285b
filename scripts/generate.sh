#!/usr/bin/env bash
# scripts/generate.sh PROMPT [OPTION...]: continues the prompt, building what that takes. Arguments and options are those
# of `driftless generate`; standard output is the continuation and nothing else.

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
build_targets driftless_cli
exec "$build/driftless" generate "$@"
