#!/usr/bin/env python3
"""scripts/plot_attention.py and plot_cache_study.py: what they draw from, and what they say when they cannot.

usage: plots_test.py PROGRAM
"""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = sys.argv[1]
ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = ROOT / "scripts"


def run(script, *arguments):
    """Exit status and lines of standard error."""
    done = subprocess.run([sys.executable, SCRIPTS / script, *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr.splitlines()


def refused(script, expected, *arguments):
    status, lines = run(script, *arguments)
    assert (status, len(lines)) == (2, 1) and lines[0].startswith(script) and expected in lines[0], (status, lines)


def drawn(script, output, *arguments):
    status, lines = run(script, *arguments, "-o", output)
    assert status == 0 and output.stat().st_size > 0, lines


def driftless(*arguments):
    done = subprocess.run([PROGRAM, *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def test_without_matplotlib():
    for script in ("plot_attention.py", "plot_cache_study.py", "plot_bench.py"):
        code = f"""import runpy, sys
sys.modules["matplotlib"] = None
sys.argv = [{script!r}]
sys.path.insert(0, {str(SCRIPTS)!r})
runpy.run_path({str(SCRIPTS / script)!r}, None, "__main__")"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        lines = done.stderr.splitlines()
        assert (done.returncode, len(lines)) == (2, 1) and lines[0].startswith(script) and "pip install" in lines[0], lines


def test_attention(scratch):
    directory = scratch / "run"
    driftless("capture", "The prince asked", "-o", directory, "--point", "*.hook_pattern")
    for name in ("a.svg", "a.png"):
        drawn("plot_attention.py", scratch / name, directory)
    refused("plot_attention.py", "nowhere", directory, "-o", scratch / "nowhere" / "a.svg")
    refused("plot_attention.py", "xyz", directory, "-o", scratch / "a.xyz")
    refused("plot_attention.py", "tokens.json", scratch, "-o", scratch / "b.svg")
    # What is left of another run is not drawn.
    driftless("capture", "The king", "-o", directory, "--point", "logits", "--overwrite")
    refused("plot_attention.py", "expected the point blocks.0.attn.hook_pattern", directory, "-o", scratch / "b.svg")


def test_cache_study(scratch):
    file = scratch / "study.json"
    text = ROOT / "fixtures/tales-gpt2/goldens/tale.txt"
    file.write_text(driftless("cache-study", "--text", text, "--policy", "window,f16", "--budget", "0.5", "--json"))
    drawn("plot_cache_study.py", scratch / "study.svg", file)
    assert run("plot_cache_study.py", file)[0] == 2, "expected -o to be required"
    refused("plot_cache_study.py", "xyz", file, "-o", scratch / "study.xyz")
    refused("plot_cache_study.py", "none.json", scratch / "none.json", "-o", scratch / "study.svg")


def main():
    test_without_matplotlib()
    if any(importlib.util.find_spec(name) is None for name in ("matplotlib", "numpy")):
        print("[skipped] Python has no NumPy or no matplotlib")
        return
    with tempfile.TemporaryDirectory() as scratch:
        test_attention(Path(scratch))
        test_cache_study(Path(scratch))


main()
