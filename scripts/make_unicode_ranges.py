#!/usr/bin/env python3
"""Prints include/driftless/detail/unicode_ranges.hpp, from the Unicode data that comes with Python.

    scripts/make_unicode_ranges.py > include/driftless/detail/unicode_ranges.hpp

The Unicode version is that of the Python which runs this. Token ids depend on it only for text in those characters that
were added or classed anew since.
"""

import sys
import unicodedata

HEAD = """#pragma once

namespace driftless::detail {

// Written by scripts/make_unicode_ranges.py from Unicode %s. Do not edit.

/// The characters first ... last, both included.
struct CodePointRange {
  char32_t first;
  char32_t last;
};

// clang-format off
"""

TAIL = """// clang-format on

}  // namespace driftless::detail
"""


def is_letter(character):
    return unicodedata.category(character)[0] == "L"


def is_number(character):
    return unicodedata.category(character)[0] == "N"


def is_space(character):
    """White_Space: the separators, and those control characters that break lines or tabulate."""
    return unicodedata.category(character)[0] == "Z" or character in "\t\n\v\f\r\x85"


def ranges(belongs):
    found = []
    for code in range(sys.maxunicode + 1):
        if not belongs(chr(code)):
            continue
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def table(name, property_name, belongs):
    entries = ["{0x%X, 0x%X}" % (first, last) for first, last in ranges(belongs)]
    lines, line = [], " "
    for entry in entries:
        if len(line) + len(entry) + 2 > 120:
            lines.append(line)
            line = " "
        line += " %s," % entry
    lines.append(line)
    return "/// %s, in ascending order.\ninline constexpr CodePointRange %s[] = {\n%s\n};\n\n" % (
        property_name, name, "\n".join(lines))


print(HEAD % unicodedata.unidata_version)
print(table("kLetterRanges", r"\p{L}", is_letter), end="")
print(table("kNumberRanges", r"\p{N}", is_number), end="")
print(table("kSpaceRanges", r"\p{White_Space}", is_space), end="")
print(TAIL, end="")
