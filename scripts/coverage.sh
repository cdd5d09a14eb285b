#!/usr/bin/env bash
# scripts/coverage.sh: the lines of include/ that the unit tests run, a file a line, and the numbers of those they don't.
# Needs g++ and its gcov.
#
# Why the preset has -fprofile-update=atomic: without it, g++ may let a loop run by the counter of its rounds, which all
# threads share, so that loops go wrong on several of them.

DRIFTLESS_PRESET=coverage
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
build_targets driftless_unit
cd "$build"
find . -name '*.gcda' -delete
quietly tests/driftless_unit
rm -rf gcov && mkdir gcov && cd gcov
quietly find .. -name '*.gcda' -exec gcov --relative-only --source-prefix "$root" --preserve-paths {} +
# A line of a template, or one that several files compile, has several counts: it was run if any of them says so.
awk -F: '
  FNR == 1 { file = FILENAME; sub(/\.gcov$/, "", file); gsub(/#/, "/", file); files[++file_count] = file }
  { count = $1; line = $2 + 0; gsub(/ /, "", count) }
  line == 0 || count == "-" || count == "" { next }
  !((file, line) in ran) { ran[file, line] = 0; ++lines[file]; if (line > last[file]) last[file] = line }
  count !~ /[#=]/ { ran[file, line] = 1 }
  END {
    for (i = 1; i <= file_count; ++i) {
      file = files[i]; missed = ""; hits = 0
      for (line = 1; line <= last[file]; ++line)
        if ((file, line) in ran) { if (ran[file, line]) ++hits; else missed = missed " " line }
      printf "%5.1f %%  %s%s\n", lines[file] ? 100 * hits / lines[file] : 100, file, missed == "" ? "" : ", not run:" missed
      all_hits += hits; all_lines += lines[file]
    }
    printf "%5.1f %%  of the %d lines of include/\n", 100 * all_hits / all_lines, all_lines
  }' include*.gcov
