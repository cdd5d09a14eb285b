#!/usr/bin/env python3
"""Draws the README's pictures from what `driftless bench --json` measured.

    driftless bench --preset gpt2 --weights f32 --threads 1 --curve --json > f32-1.json
    driftless bench --preset gpt2 --weights int8 --threads 2 --json > int8-2.json
    driftless bench --preset gpt2 --weights int8 --compute int8 --threads 2 --json > int8-int8-2.json      and so on
    scripts/plot_bench.py f32-1.json int8-2.json ...

docs/cost-per-token.svg: time per token against position, cached and recomputed, from the first file with a curve.
docs/tokens-per-second.svg: decoded tokens per second by weight type, type of the activations and threads, from all
files with one sequence, against the speed at which this machine can read the bytes of a step.

The same files give the same bytes.
"""

import argparse
import json
import sys
from pathlib import Path

try:
    import matplotlib

    matplotlib.use("svg")

    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch
    from matplotlib.ticker import FuncFormatter, NullLocator
except ImportError as error:  # plot_cache_study.py has the same needs, by way of this file
    program = Path(sys.argv[0]).name
    print(f"{program}: expected matplotlib, found no {error.name}: pip install matplotlib", file=sys.stderr)
    sys.exit(2)

DOCS = Path(__file__).resolve().parent.parent / "docs"
WEIGHT_TYPES = ("f32", "f16", "bf16", "int8", "int4")
COMPUTE_TYPES = ("f32", "int8")
INK, MUTED, GRID = "#1f2328", "#59636e", "#e4e7eb"
CACHED, RECOMPUTED = "#0b6bcb", "#c2410c"
THREAD_COLOURS = ("#7ab3e8", "#0b6bcb", "#07407c", "#04223f")
DASHES = (0, (3, 2))

STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "white",
    "font.family": "sans-serif",
    "font.size": 11,
    "grid.color": GRID,
    "legend.framealpha": 1,
    "legend.edgecolor": "white",
    "svg.fonttype": "none",
    "svg.hashsalt": "driftless",
    "text.color": INK,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
}


def plural(count, noun):
    return f"{count} {noun}" + ("" if count == 1 else "s")


def new_figure(title, unit, caption):
    figure, axes = plt.subplots(figsize=(8, 4.8))
    figure.subplots_adjust(left=0.09, right=0.97, top=0.83, bottom=0.225)
    figure.text(0.015, 0.935, title, fontsize=14, weight="bold")
    figure.text(0.015, 0.025, caption, fontsize=9, color=MUTED, linespacing=1.5)
    axes.set_title(unit, loc="left", fontsize=11, pad=10)
    return figure, axes


def caption(bench, *parts):
    """The model and the parts; below them the machine and the date, where the measurement names them."""
    where = [bench[key] for key in ("machine", "date") if bench.get(key)]
    return " · ".join([bench["model"], *parts]) + "\n" + " · ".join(where)


def save(figure, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    print(path)


# ---- cost per token ----


def milliseconds_text(value, _position=None):
    return f"{value:g} ms" if value < 1000 else f"{value / 1000:g} s"


def draw_cost_per_token(bench):
    points = sorted(bench["positions"], key=lambda point: point["position"])
    positions = [point["position"] for point in points]
    cached = [1000 * point["cached_seconds"] for point in points]
    recomputed = [1000 * point["recomputed_seconds"] for point in points]
    setting = caption(bench, bench["weights"] + " weights", plural(bench["threads"], "thread"))
    figure, axes = new_figure("What one more token costs", "time per token, log scale", setting)
    draw_line(axes, positions, recomputed, RECOMPUTED, "recomputing everything")
    draw_line(axes, positions, cached, CACHED, "with the cache")
    draw_ratio(axes, positions[-1], cached[-1], recomputed[-1])
    axes.set_yscale("log")
    axes.set_ylim(min(cached) / 2, max(recomputed) * 2.5)
    axes.yaxis.set_major_formatter(FuncFormatter(milliseconds_text))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlim(0, positions[-1] * 1.12)
    axes.set_xlabel("position (tokens before this one)")
    return figure


def draw_line(axes, positions, costs, colour, label):
    axes.plot(positions, costs, color=colour, linewidth=2.2, marker="o", markersize=4)
    text = f"{label}: {milliseconds_text(float(f'{costs[-1]:.3g}'))}"
    place = {"xytext": (0, 10), "textcoords": "offset points", "ha": "right"}
    axes.annotate(text, (positions[-1], costs[-1]), color=colour, weight="bold", **place)


def draw_ratio(axes, position, cached, recomputed):
    beside = 1.03 * position
    arrow = {"arrowstyle": "<->", "color": MUTED, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (beside, cached), (beside, recomputed), arrowprops=arrow)
    middle = (cached * recomputed) ** 0.5
    place = {"xytext": (-6, 0), "textcoords": "offset points", "ha": "right", "va": "center"}
    axes.annotate(f"{recomputed / cached:.0f} ×", (beside, middle), fontsize=13, weight="bold", **place)


# ---- tokens per second ----


def read_limit(bench):
    """Tokens per second if a step took only the time to read its bytes."""
    return 1e9 * bench["read_bandwidth_gb_per_s"]["median"] / bench["bytes_per_decode_step"]


def draw_tokens_per_second(benches):
    """Of {(weights, compute, threads): bench}."""
    kinds = [(w, c) for w in WEIGHT_TYPES for c in COMPUTE_TYPES if any(key[:2] == (w, c) for key in benches)]
    threads = sorted({key[2] for key in benches})
    unit = "tokens per second, by stored type of the weights"
    figure, axes = new_figure("Decoding, beside what the memory allows", unit, speed_caption(benches))
    width = 0.8 / len(threads)
    for (*kind, count), bench in benches.items():
        place = kinds.index(tuple(kind)) + (threads.index(count) - (len(threads) - 1) / 2) * width
        draw_speed(axes, place, 0.9 * width, bench, THREAD_COLOURS[threads.index(count) % len(THREAD_COLOURS)])
    axes.set_xticks(range(len(kinds)), [w if c == "f32" else f"{w}, 8-bit\nactivations" for w, c in kinds])
    axes.tick_params(axis="x", length=0)
    axes.set_ylim(0, 1.17 * max(max(read_limit(bench), speed(bench)) for bench in benches.values()))
    axes.legend(handles=legend_entries(threads), loc="upper left", borderaxespad=0, bbox_to_anchor=(0.01, 1))
    return figure


def speed(bench):
    return bench["decode_tokens_per_s"]["median"]


def draw_speed(axes, place, width, bench, colour):
    limit, height = read_limit(bench), speed(bench)
    axes.bar(place, height, width, color=colour)
    axes.bar(place, limit, width, facecolor="none", edgecolor=MUTED, linestyle=DASHES)
    text = {"textcoords": "offset points", "ha": "center", "va": "bottom", "fontsize": 8.5}
    axes.annotate(f"{height:.0f}\nof {limit:.0f}", (place, max(limit, height)), xytext=(0, 4), **text)
    ink = INK if colour == THREAD_COLOURS[0] else "white"
    axes.annotate(f"{height / limit:.0%}", (place, 0), xytext=(0, 4), color=ink, **text)


def legend_entries(threads):
    entries = [Patch(color=colour, label=plural(count, "thread")) for count, colour in zip(threads, THREAD_COLOURS)]
    limit = "limit: read bandwidth / bytes of a step"
    return entries + [Patch(facecolor="none", edgecolor=MUTED, linestyle=DASHES, label=limit)]


def speed_caption(benches):
    bandwidths = {}
    for (*_, threads), bench in benches.items():
        bandwidths.setdefault(threads, []).append(bench["read_bandwidth_gb_per_s"]["median"])
    texts = [f"{max(bandwidths[threads]):.1f} GB/s on {plural(threads, 'thread')}" for threads in sorted(bandwidths)]
    bench = next(iter(benches.values()))
    first = bench["prompt_tokens"]
    last = first + bench["max_tokens"]
    return caption(bench, f"positions {first} to {last}", "reads " + ", ".join(texts))


# ---- the command ----


def by_types_and_threads(benches):
    """{(weights, compute, threads): bench} of those that decode one sequence; of the same three, the last. Programs
    that compute in f32 only do not name it."""
    kept = [bench for bench in benches if bench["batch"] == 1]
    return {(bench["weights"], bench.get("compute", "f32"), bench["threads"]): bench for bench in kept}


def main():
    parser = argparse.ArgumentParser(description="Draw pictures from what driftless bench --json measured.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="output of driftless bench --json")
    parser.add_argument("--output", type=Path, default=DOCS, metavar="DIR", help="default: docs/")
    arguments = parser.parse_args()
    plt.rcParams.update(STYLE)
    benches = [json.loads(path.read_text()) for path in arguments.files]
    curve = next((bench for bench in benches if bench.get("positions")), None)
    if curve:
        save(draw_cost_per_token(curve), arguments.output / "cost-per-token.svg")
    speeds = by_types_and_threads(benches)
    if speeds:
        save(draw_tokens_per_second(speeds), arguments.output / "tokens-per-second.svg")


if __name__ == "__main__":
    main()
