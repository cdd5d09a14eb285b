#!/usr/bin/env python3
"""Draws the attention of every layer and head from what `driftless capture` wrote.

    driftless capture "The prince asked the old woman, and she said" -o run
    scripts/plot_attention.py run -o docs/attention.svg

A square for each layer (left to right) and head (top to bottom), in which the row of a token shows how much it attends
to each token before it and to itself. The same files give the same bytes. In a notebook, `draw("run")` is the figure.
"""

import argparse
import json
import sys
from pathlib import Path

try:
    import matplotlib.pyplot as plt
    import numpy as np
    from matplotlib.colors import LinearSegmentedColormap
except ImportError as error:
    if __name__ != "__main__":
        raise
    print(f"plot_attention.py: expected NumPy and matplotlib, found no {error.name}: pip install numpy matplotlib",
          file=sys.stderr)
    sys.exit(2)

INK, MUTED, GRID = "#1f2328", "#59636e", "#d0d7de"
COLOURS = LinearSegmentedColormap.from_list("attention", ["#ffffff", "#7ab3e8", "#0b6bcb", "#07407c", "#04223f"])
STYLE = {"font.family": "sans-serif", "svg.fonttype": "none", "svg.hashsalt": "driftless", "text.color": INK}


def texts(run):
    """The tokens, or their ids where they have no text of their own."""
    shown = [str(i) if text is None else text for text, i in zip(run["texts"], run["ids"])]
    return [text.replace("\n", "\\n").replace("$", r"\$") for text in shown]


def patterns(directory, run):
    """[layers, heads, tokens, tokens]: the weights of each token's row over the keys. Only of points that tokens.json
    names: files of an earlier run can lie beside them."""
    layers = []
    while (name := f"blocks.{len(layers)}.attn.hook_pattern") in run["points"]:
        layers.append(np.load(Path(directory) / f"{name}.npy"))
    if not layers:
        raise ValueError(f"{directory}: tokens.json: expected the point blocks.0.attn.hook_pattern, found none")
    return np.stack(layers)


def draw(directory):
    run = json.loads((Path(directory) / "tokens.json").read_text(encoding="utf-8"))
    pattern, tokens = patterns(directory, run), texts(run)
    layers, heads = pattern.shape[:2]
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(heads, layers, figsize=(1.1 * layers + 1, 1.1 * heads + 0.5), squeeze=False)
        left, top = 0.8 / figure.get_figwidth(), 1 - 0.35 / figure.get_figheight()
        figure.subplots_adjust(left=left, right=0.995, top=top, bottom=0.03, wspace=0.08, hspace=0.08)
        for head in range(heads):
            for layer in range(layers):
                axes = grid[head, layer]
                axes.imshow(pattern[layer, head], cmap=COLOURS, vmin=0, vmax=1, interpolation="nearest")
                axes.set_xticks([])
                axes.set_yticks(range(len(tokens)) if layer == 0 and len(tokens) <= 20 else [])
                axes.set_yticklabels(tokens if axes.get_yticks().size else [], fontsize=6, color=MUTED)
                axes.tick_params(length=0, pad=2)
                for spine in axes.spines.values():
                    spine.set_color(GRID)
                if head == 0:
                    axes.set_title(f"layer {layer}" if layer == 0 else str(layer), fontsize=9)
                if layer == layers - 1:
                    axes.text(0.95, 0.93, f"head {head}", fontsize=7, color=MUTED, ha="right", va="top",
                              transform=axes.transAxes)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", help="what capture wrote")
    parser.add_argument("-o", "--output", required=True, help="the picture, .svg or .png")
    arguments = parser.parse_args()
    metadata = {"Date": None} if arguments.output.endswith(".svg") else {}
    try:
        with plt.rc_context(STYLE):
            draw(arguments.directory).savefig(arguments.output, metadata=metadata, dpi=120)
    except (OSError, ValueError) as error:
        print(f"plot_attention.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
