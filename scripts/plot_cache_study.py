#!/usr/bin/env python3
"""Draws what `driftless cache-study --json` has measured: budget against perplexity, and against the divergence from the
full cache.

    build/release/driftless cache-study --text FILE --json > study.json
    scripts/plot_cache_study.py study.json -o study.svg

Needs matplotlib (scripts/requirements-compare.txt). The same file gives the same bytes.
"""

import argparse
import json
import sys
from pathlib import Path

from plot_bench import DASHES, INK, MUTED, STYLE, plt, save

COLOURS = ("#0b6bcb", "#c2410c", "#15803d", "#7c3aed", "#b45309", "#0e7490", "#be185d", "#6b7280", "#4d7c0f", "#1e3a8a")
MARKERS = "osD^vPXphd"


def by_policy(rows):
    """{policy: rows} of those with a budget, by budget."""
    policies = {}
    for row in sorted((row for row in rows if row["budget"] is not None), key=lambda row: row["budget"]):
        policies.setdefault(row["policy"], []).append(row)
    return policies


def draw(axes, rows, key):
    """Lines of policies and stars of stored types, whose rows it returns. What is 0 has no place on a log scale."""
    shown = [row for row in rows if row[key] > 0]
    for i, (policy, points) in enumerate(by_policy(shown).items()):
        budgets, values = [row["budget"] for row in points], [row[key] for row in points]
        style = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
        axes.plot(budgets, values, label=policy, linewidth=1.6, markersize=5, **style)
    stars = [row for row in shown if row["budget"] is None and row["policy"] != "full"]
    axes.plot([row["bytes_share"] for row in stars], [row[key] for row in stars], "*", color=INK, markersize=9)
    axes.set_xlabel("share of the positions kept (stars: of the bytes)")
    axes.set_xlim(0, 1.05)
    axes.set_yscale("log")
    return stars


def draw_study(study):
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5.2))
    figure.subplots_adjust(left=0.06, right=0.98, top=0.83, bottom=0.2, wspace=0.16)
    figure.text(0.012, 0.94, "What a smaller cache costs", fontsize=14, weight="bold")
    setting = f"{Path(study['model']).name} · {study['tokens']} tokens in windows of {study['window']}"
    figure.text(0.012, 0.03, f"{setting} · {study['weights']} weights, {study['cache']} cache", fontsize=9, color=MUTED)
    draw(left, study["rows"], "perplexity")
    left.set_title("perplexity, log scale", loc="left", fontsize=11, pad=10)
    left.yaxis.set_major_formatter("{x:g}")
    left.yaxis.set_minor_formatter("{x:g}")
    full = next(row for row in study["rows"] if row["policy"] == "full")
    left.axhline(full["perplexity"], color=MUTED, linestyle=DASHES, linewidth=1.2, label="full")
    for row in draw(right, study["rows"], "kl"):
        place = {"xytext": (6, -4), "textcoords": "offset points", "fontsize": 9}
        right.annotate(row["policy"], (row["bytes_share"], row["kl"]), color=INK, **place)
    right.set_title("KL divergence from the full cache, nats, log scale", loc="left", fontsize=11, pad=10)
    left.legend(loc="upper right")
    return figure


def main():
    parser = argparse.ArgumentParser(description="Draw a picture from what driftless cache-study --json measured.")
    parser.add_argument("file", type=Path, metavar="FILE", help="output of driftless cache-study --json")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="the picture, .svg")
    arguments = parser.parse_args()
    plt.rcParams.update(STYLE)
    try:
        save(draw_study(json.loads(arguments.file.read_text())), arguments.output)
    except (OSError, ValueError) as error:
        print(f"plot_cache_study.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
