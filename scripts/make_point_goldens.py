#!/usr/bin/env python3
"""Writes fixtures/points.json: the values at all points of a step (driftless::Point), by NumPy in float64.

    scripts/make_point_goldens.py            write it
    scripts/make_point_goldens.py --check    recompute it and print what differs from the committed file, and how far
                                             Hugging Face's transformers is from it (needs torch and transformers)

The numbers are those of make_goldens.py's model. With --check, transformers computes them too, in float64: its hidden
states, attentions and logits, and what its modules take and return.
"""

import argparse
import sys

import numpy as np
from make_goldens import FIXTURES, Model, Tokenizer, committed, differences, rounded, write

PATH = FIXTURES / "points.json"
LIMIT = 1e-10  # of a difference from transformers, relative to the largest number at a point

# In the order of driftless::Point, by TransformerLens's names.
IN_LAYER = {
    "resid_pre": "hook_resid_pre",
    "ln1": "ln1.hook_normalized",
    "q": "attn.hook_q",
    "k": "attn.hook_k",
    "v": "attn.hook_v",
    "attn_scores": "attn.hook_attn_scores",
    "pattern": "attn.hook_pattern",
    "z": "attn.hook_z",
    "result": "attn.hook_result",
    "attn_out": "hook_attn_out",
    "resid_mid": "hook_resid_mid",
    "ln2": "ln2.hook_normalized",
    "mlp_pre": "mlp.hook_pre",
    "mlp_post": "mlp.hook_post",
    "mlp_out": "hook_mlp_out",
    "resid_post": "hook_resid_post",
}
OF_HEADS = ("q", "k", "v", "z")

NOTE = (
    "Values at the points of a step, each under TransformerLens's name with its layer and head, from float64 NumPy; "
    "F32 and F16 weights are upcast; numbers to 10 significant digits. A row for each position in `rows`, of which "
    "`values` has every `column_step`-th number; attn_scores and pattern have all of the position + 1 numbers over the "
    "keys. ln1, ln2 and ln_final are outputs, weight and bias included. `make_point_goldens.py --check` compares all "
    "of it with transformers, but attn_scores and result, of which only pattern and attn_out are compared"
)


def points(model, ids):
    """{(point, layer, head): array [T, ...]} of the whole model."""
    trace = model.trace(ids)
    values = {(name, 0, 0): trace[name] for name in ("embed", "pos_embed", "ln_final")}
    values["logits", 0, 0] = np.stack([model.unembed(row) for row in trace["ln_final"]])
    for layer, at in enumerate(trace["layers"]):
        c_proj = model.weights[f"h.{layer}.attn.c_proj.weight"]
        for head, columns in enumerate(model.head_columns()):
            for name in OF_HEADS:
                values[name, layer, head] = at[name][:, columns]
            for name in ("attn_scores", "pattern"):
                values[name, layer, head] = at[name][head]
            values["result", layer, head] = at["z"][:, columns] @ c_proj[columns]
        for name in IN_LAYER:
            if (name, layer, 0) not in values:
                values[name, layer, 0] = at[name]
    return values


def transformers_points(name, head_columns, ids):
    """What transformers has of the same."""
    import torch
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel.from_pretrained(FIXTURES / name, dtype=torch.float64, attn_implementation="eager").eval()
    seen = {}

    def keep(module, point, layer=0, of_inputs=False):
        def hook(_, inputs, output):
            seen[point, layer, 0] = (inputs if of_inputs else output if isinstance(output, tuple) else (output,))[0]

        module.register_forward_hook(hook)

    keep(model.transformer.wte, "embed")
    keep(model.transformer.wpe, "pos_embed")
    for layer, block in enumerate(model.transformer.h):
        keep(block.ln_1, "ln1", layer)
        keep(block.attn.c_attn, "qkv", layer)
        keep(block.attn.c_proj, "z", layer, of_inputs=True)
        keep(block.attn, "attn_out", layer)
        keep(block.ln_2, "resid_mid", layer, of_inputs=True)
        keep(block.ln_2, "ln2", layer)
        keep(block.mlp.c_fc, "mlp_pre", layer)
        keep(block.mlp.c_proj, "mlp_post", layer, of_inputs=True)
        keep(block.mlp, "mlp_out", layer)
        keep(block, "resid_post", layer)
    with torch.no_grad():
        output = model(torch.tensor([ids]), output_hidden_states=True, output_attentions=True)
    seen["logits", 0, 0] = output.logits
    seen["ln_final", 0, 0] = output.hidden_states[-1]
    for layer, (x, pattern) in enumerate(zip(output.hidden_states, output.attentions)):
        seen["resid_pre", layer, 0] = x
        qkv, z = seen.pop(("qkv", layer, 0)), seen["z", layer, 0]
        for head, columns in enumerate(head_columns):
            for point, tensor in zip(("q", "k", "v"), qkv.chunk(3, -1)):
                seen[point, layer, head] = tensor[..., columns]
            seen["z", layer, head] = z[..., columns]
            seen["pattern", layer, head] = pattern[:, head]
    return {key: tensor[0].numpy() for key, tensor in seen.items()}


def model_name(point, layer):
    if point in IN_LAYER:
        return f"blocks.{layer}.{IN_LAYER[point]}"
    return {"ln_final": "ln_final.hook_normalized", "logits": "logits"}.get(point, "hook_" + point)


def case(name, ids, layers, heads, rows, column_step):
    """What the file has of one model, and its values at all points."""
    model = Model.load(FIXTURES / name)
    values = points(model, ids)
    shown = []
    for (point, layer, head), array in values.items():
        if (point in IN_LAYER and layer not in layers) or head not in (0, *heads):
            continue
        if point in ("attn_scores", "pattern"):
            numbers = [rounded(array[row, : row + 1]) for row in rows]
        else:
            numbers = rounded(array[rows, ::column_step])
        shown.append({"name": model_name(point, layer), "layer": layer, "head": head, "values": numbers})
    golden = {"model": name, "ids": ids, "rows": rows, "column_step": column_step, "points": shown}
    return golden, values, model.head_columns()


def compare(name, values, others):
    """Prints how far transformers is from NumPy; whether it is near enough."""
    by_point = {}
    for key, other in others.items():
        assert other.shape == values[key].shape, (key, other.shape, values[key].shape)
        share = np.abs(other - values[key]).max() / np.abs(values[key]).max()
        by_point[key[0]] = max(by_point.get(key[0], 0.0), share)
    left = sorted({point for point, _, _ in values} - by_point.keys())
    print(f"{name}: largest relative differences from transformers:")
    print("  " + ", ".join(f"{point} {share:.1e}" for point, share in by_point.items()))
    print(f"  not compared: {', '.join(left)}")
    return max(by_point.values()) < LIMIT


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if anything differs")
    check = parser.parse_args().check
    sentence = Tokenizer(FIXTURES / "tales-gpt2").encode("The prince asked the old woman, and she said")
    cases = [
        case("odd-gpt2", [200, 3, 200], range(3), range(5), [0, 1, 2], 1),
        case("odd-gpt2-untied", [7, 101, 0], range(3), range(5), [0, 1, 2], 1),
        case("odd-gpt2-ties", [5, 133, 5, 256, 9], [2], [4], [4], 3),
        case("tales-gpt2", sentence, [0, 5, 11], [3], [1, len(sentence) - 1], 7),
    ]
    golden = {"note": NOTE, "models": [shown for shown, _, _ in cases]}
    if not check:
        write(PATH, golden)
        return 0
    found = list(differences(committed(PATH), golden, PATH.name))
    print("\n".join(found) or f"{PATH.name}: as committed")
    are_near = [
        compare(shown["model"], values, transformers_points(shown["model"], columns, shown["ids"]))
        for shown, values, columns in cases
    ]
    return 1 if found or not all(are_near) else 0


if __name__ == "__main__":
    sys.exit(main())
