#!/usr/bin/env python3
"""Runs examples/probe_data and has NumPy read what it writes: shapes, numbers, and a probe that learns from them.

usage: probe_data_test.py PROGRAM
"""

import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
except ImportError:
    print("[skipped] Python has no NumPy")
    sys.exit(0)

ROOT = Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / "fixtures/tales-gpt2"
sys.path.insert(0, str(ROOT / "scripts"))
from make_goldens import Model, Tokenizer

TOKENS, STORIES, WIDTH, LAYER, PROMPT = 1830, 6, 128, 11, "Once upon a time"


def accuracy(rows, labels, weights):
    return np.mean((rows @ weights > 0) == (labels > 0.5))


with tempfile.TemporaryDirectory() as directory:
    subprocess.run([sys.argv[1], MODEL, directory], check=True)
    files = [Path(directory) / f"{name}.npy" for name in ("activations", "labels", "stories")]
    activations, labels, stories = (np.load(file) for file in files)

assert activations.shape == (TOKENS, WIDTH) and labels.shape == stories.shape == (TOKENS,)
assert activations.dtype == labels.dtype == stories.dtype == np.float32
assert set(labels) == {0, 1} and set(stories) == set(range(STORIES))

# Every story begins with the same words, of which the plain model of make_goldens.py has the same values.
ids = Tokenizer(MODEL).encode(PROMPT)
expected = Model.load(MODEL).trace(ids)["layers"][LAYER]["resid_post"]
for story in range(STORIES):
    begin = np.flatnonzero(stories == story)[0]
    assert np.allclose(activations[begin : begin + len(ids)], expected, rtol=1e-2, atol=1e-3)

rows = np.hstack([activations, np.ones((TOKENS, 1))])
seen = stories < 4
probe = np.linalg.lstsq(rows[seen], 2 * labels[seen] - 1, rcond=None)[0]
learnt, constant = accuracy(rows[~seen], labels[~seen], probe), max(labels[~seen].mean(), 1 - labels[~seen].mean())
print(f"of stories that it has not seen, the probe knows {learnt:.1%} of the tokens, a guess {constant:.1%}")
assert learnt > constant + 0.05
