#!/usr/bin/env python3
"""Measures what it costs to build with driftless, as multiples of the yardstick: the user seconds that the same compiler
takes, with -O2, for one file that parses a JSON file with nlohmann/json and multiplies two Eigen matrices.

All is measured in every round, one after the other, so that a busy or throttled machine is so for everything; what is
printed are medians. It takes the headers of Eigen and nlohmann/json from where Debian's packages put them.
"""

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# By name: what is measured, and what is to be reached in multiples of the yardstick.
TARGETS = {
    "hello": ("hello.cpp, headers only, -O2", 1.3),
    "umbrella": ("the umbrella header alone, -O0", 0.45),
    "hello-compiled": ("hello.cpp against driftless::compiled, -O2", 0.35),
    "program": ("the command line from nothing", 6),
    "stage": ("grade.sh, one stage after one edit", 0.4),
    "table": ("grade.sh, the whole table after one edit, wall", 1),
}
YARDSTICK = """
#include <Eigen/Dense>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

int main(int, char** argv) {
  std::ifstream file(argv[1]);
  const auto json = nlohmann::json::parse(file);
  const Eigen::Index size = json.at("size").get<Eigen::Index>();
  const Eigen::MatrixXf a = Eigen::MatrixXf::Random(size, size), b = Eigen::MatrixXf::Random(size, size);
  std::cout << a * b << '\\n';
}
"""


def run(*command, **options):
    """Runs a command silently; what it printed is shown if it fails."""
    result = subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))}:\n{result.stdout}")


def configure(compiler, build):
    run("cmake", "--preset", "release", "-B", build, f"-DCMAKE_CXX_COMPILER={compiler}", cwd=ROOT)


class Measured:
    clock = "user"

    def set_up(self):
        pass

    def before_round(self, number):
        pass


class Compilation(Measured):
    """One source file to an object file."""

    def __init__(self, compiler, work, source, *flags):
        include = [f"-I{ROOT / 'include'}", "-isystem/usr/include/eigen3"]
        self.command = [compiler, "-std=c++20", *flags, *include, "-c", source, "-o", work / "object.o"]

    def measure(self):
        run(*self.command)


class Program(Measured):
    """The command line program and the library that it links, as scripts/generate.sh builds them, one file at a time."""

    def __init__(self, compiler, work):
        self.compiler = compiler
        self.build = work / "program"

    def set_up(self):
        configure(self.compiler, self.build)

    def before_round(self, number):
        run("cmake", "--build", self.build, "--target", "clean")

    def measure(self):
        run("cmake", "--build", self.build, "--target", "driftless_cli")


class Grading(Measured):
    """scripts/grade.sh after an edit of cached.cpp, by a learner who has written everything."""

    def __init__(self, compiler, work, clock, *options):
        self.compiler = compiler
        self.clock = clock
        self.build = work / "grading"
        self.learner = work / "learner"
        self.command = [ROOT / "scripts/grade.sh", "--adapters", self.learner]
        self.options = options
        self.environment = {**os.environ, "DRIFTLESS_BUILD_DIR": str(self.build)}

    def set_up(self):
        configure(self.compiler, self.build)
        for part in ("examples/learner", "tests/learner/solution"):
            shutil.copytree(ROOT / part, self.learner, dirs_exist_ok=True)
        run(*self.command, env=self.environment)

    def before_round(self, number):
        with open(self.learner / "cached.cpp", "a", encoding="utf-8") as file:
            file.write(f"// edit {number}\n")

    def measure(self):
        run(*self.command, *self.options, env=self.environment)


def seconds(measured, number):
    measured.before_round(number)
    wall = time.monotonic()
    user = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    measured.measure()
    if measured.clock == "wall":
        return time.monotonic() - wall
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - user


def everything(compiler, work):
    """How the yardstick and each of TARGETS is measured."""
    yardstick, umbrella = work / "yardstick.cpp", work / "umbrella.cpp"
    yardstick.write_text(YARDSTICK, encoding="utf-8")
    umbrella.write_text("#include <driftless/driftless.hpp>\n", encoding="utf-8")
    hello = ROOT / "examples/hello.cpp"
    return {
        "yardstick": Compilation(compiler, work, yardstick, "-O2"),
        "hello": Compilation(compiler, work, hello, "-O2"),
        "umbrella": Compilation(compiler, work, umbrella, "-O0"),
        "hello-compiled": Compilation(compiler, work, hello, "-O2", "-DDRIFTLESS_COMPILED"),
        "program": Program(compiler, work),
        "stage": Grading(compiler, work, "user", "--stage", "attn-step"),
        "table": Grading(compiler, work, "wall"),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", choices=TARGETS, help="measure this alone; may be repeated")
    options = parser.parse_args()
    names = options.only or list(TARGETS)

    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        measured = everything(options.compiler, work)
        measured = {name: measured[name] for name in ["yardstick", *names]}
        for how in measured.values():
            how.set_up()
        taken = {name: [] for name in measured}
        for number in range(options.rounds):
            for name, how in measured.items():
                taken[name].append(seconds(how, number))
                print(f"round {number + 1}: {name} {taken[name][-1]:.2f} s", file=sys.stderr)

    yardstick = statistics.median(taken["yardstick"])
    print(f"{options.compiler}, medians of {options.rounds} rounds; the yardstick took {yardstick:.2f} user seconds\n")
    print("| | seconds | yardsticks | to reach |")
    print("|---|---|---|---|")
    for name in names:
        what, target = TARGETS[name]
        median = statistics.median(taken[name])
        print(f"| {what} | {median:.2f} | {median / yardstick:.2f} | <= {target} |")


if __name__ == "__main__":
    main()
