#!/usr/bin/env python3
"""Prints include/driftless/detail/text/unicode_ranges.hpp, from the Unicode data that comes with Python.

    scripts/make_unicode_ranges.py > include/driftless/detail/text/unicode_ranges.hpp

The Unicode version is that of the Python which runs this. Token ids depend on it only for text in those characters that
were added or classed anew since.
"""

import sys
import textwrap
import unicodedata

HEAD = """#pragma once

#include "driftless/detail/abi.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

// Written by scripts/make_unicode_ranges.py from Unicode %s. Do not edit.
// Each table has the lengths of runs of code points, from U+0000 on: in turn, of those without the property and of
// those with it.

// clang-format off
"""

TAIL = """// clang-format on

}}}  // namespace driftless::DRIFTLESS_ABI::detail
"""


def is_letter(character):
    return unicodedata.category(character)[0] == "L"


def is_number(character):
    return unicodedata.category(character)[0] == "N"


def is_space(character):
    """White_Space: the separators, and those control characters that break lines or tabulate."""
    return unicodedata.category(character)[0] == "Z" or character in "\t\n\v\f\r\x85"


def run_lengths(belongs):
    lengths, inside = [0], False
    for code in range(sys.maxunicode + 1):
        if belongs(chr(code)) != inside:
            inside = not inside
            lengths.append(0)
        lengths[-1] += 1
    return lengths[:-1]  # nothing comes after the last run with the property


def table(name, property_name, belongs):
    numbers = ", ".join(str(length) for length in run_lengths(belongs))
    lines = textwrap.wrap(numbers, 120, initial_indent="  ", subsequent_indent="  ")
    return "/// %s\ninline constexpr char32_t %s[] = {\n%s};\n\n" % (property_name, name, "\n".join(lines))


print(HEAD % unicodedata.unidata_version)
print(table("kLetterRuns", r"\p{L}", is_letter), end="")
print(table("kNumberRuns", r"\p{N}", is_number), end="")
print(table("kSpaceRuns", r"\p{White_Space}", is_space), end="")
print(TAIL, end="")
