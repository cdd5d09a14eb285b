"""What both tests of the page use."""

import json
import re
import subprocess
import sys

PROGRAM = sys.argv[1]
MODEL = sys.argv[2]
TEXT = "The old fox went into the forest. The little bear saw the old"


def run(*arguments, stdin=b""):
    return subprocess.run([PROGRAM, *arguments], input=stdin, capture_output=True, check=False)


def output(*arguments):
    result = run(*arguments)
    expect(f"exit status of {arguments}: {result.stderr}", result.returncode, 0)
    return result.stdout


def explain(path, *arguments):
    output("explain", "-o", str(path), *arguments)
    with open(path, encoding="ascii") as file:
        return file.read()


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S).group(1))


def expect(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: expected {expected!r}, found {found!r}")


def expect_near(what, found, expected, tolerance):
    if not abs(found - expected) <= tolerance:
        sys.exit(f"{what}: expected {expected} within {tolerance}, found {found}")
