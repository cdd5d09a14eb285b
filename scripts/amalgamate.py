#!/usr/bin/env python3
"""Writes the whole library as one header: scripts/amalgamate.py driftless.hpp"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include"
UMBRELLA = "driftless/driftless.hpp"
# What a public header ends with; one header always has the bodies.
BODIES = re.compile(r'#ifndef DRIFTLESS_COMPILED\n((?:#include "[^"]+"\n)+)#endif\n')

CONDITION = re.compile(r"\s*#\s*(if|endif)")  # also #ifdef and #ifndef
OWN_INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')
FOREIGN_INCLUDE = re.compile(r"\s*#\s*include\s*<([^>]+)>")


class Amalgamation:
    def __init__(self):
        self.lines = []
        self.own = set()
        self.foreign = set()

    def add(self, name):
        """Appends a header of the library where it is first included; the others it includes come before its text."""
        if name in self.own:
            return
        self.own.add(name)
        depth = 0  # of the conditions around a line
        text = BODIES.sub(r"\1", (INCLUDE / name).read_text(encoding="utf-8"))
        for line in text.splitlines():
            if condition := CONDITION.match(line):
                depth += 1 if condition[1] == "if" else -1
            if included := OWN_INCLUDE.match(line):
                if depth:
                    sys.exit(f"{name}: cannot inline {included[1]}, whose inclusion depends on a condition")
                self.add(included[1])
            elif line != "#pragma once" and (depth or self.is_new(line)):
                self.lines.append(line)

    def is_new(self, line):
        """False for the second inclusion of a foreign header; those under a condition do not count."""
        included = FOREIGN_INCLUDE.match(line)
        if not included:
            return True
        known = included[1] in self.foreign
        self.foreign.add(included[1])
        return not known


def text_of(lines):
    # One blank line where inlined and known headers leave several.
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines) + "\n")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8").splitlines()
    amalgamation = Amalgamation()
    amalgamation.add(UMBRELLA)
    headers = {path.relative_to(INCLUDE).as_posix() for path in INCLUDE.rglob("*.hpp")}
    if left_out := headers - amalgamation.own:
        sys.exit(f"{UMBRELLA} does not include {', '.join(sorted(left_out))}")

    head = ["// driftless in one header, made by scripts/amalgamate.py.", "//"]
    head += [f"// {line}".rstrip() for line in licence]
    Path(sys.argv[1]).write_text(text_of([*head, "", "#pragma once", "", *amalgamation.lines]), encoding="utf-8")


if __name__ == "__main__":
    main()
