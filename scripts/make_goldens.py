#!/usr/bin/env python3
"""Regenerates every golden under fixtures/ with a float64 NumPy GPT-2 that shares nothing with the C++ code.

    scripts/make_goldens.py            write the goldens, and the odd-shape models with theirs
    scripts/make_goldens.py --check    recompute them and print what differs from the committed files

fixtures/tales-gpt2/goldens: the inputs of a case (its prompt or text, the number of tokens, the id to feed next) are
read from the committed golden, everything else in it is computed anew from the model's files. So an input stands in one
place only, and a case is added by writing its inputs into the file and running this script.

fixtures/odd-gpt2*: small models of awkward shapes, weights and goldens both made here from a seed.
"""

import argparse
import json
import math
import os
import struct
import sys
import unicodedata
from pathlib import Path

# The matrices are so small that the threads of a BLAS would mostly wait for one another.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"


# ---- safetensors ----

DTYPES = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "U8": np.dtype("u1"), "BOOL": np.dtype("bool")}


def parse_safetensors(raw):
    """Bytes of a file -> {name: array}, under the names and types of the file."""
    (header_size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + header_size])
    header.pop("__metadata__", None)
    body = raw[8 + header_size :]
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(body[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    assert sum(t.nbytes for t in tensors.values()) == len(body)
    return tensors


def serialize_safetensors(tensors):
    """{name: array} -> bytes of a file, the header padded with spaces to a multiple of 8 bytes."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    header, offset = {}, 0
    for name, tensor in tensors.items():
        header[name] = {
            "dtype": names[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.nbytes],
        }
        offset += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(t.tobytes() for t in tensors.values())


# ---- the model ----


def gelu_new(x):
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


def gelu(x):
    return 0.5 * x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0)))


ACTIVATIONS = {"gelu_new": gelu_new, "gelu": gelu}


class Model:
    """GPT-2 in float64, everything recomputed at every step: no cache, no batch. T rows, C width, V vocabulary."""

    def __init__(self, config, tensors):
        self.config = config
        self.weights = {name.removeprefix("transformer."): t.astype(np.float64) for name, t in tensors.items()}
        self.head = self.weights["wte.weight" if config["tie_word_embeddings"] else "lm_head.weight"]
        self.activation = ACTIVATIONS[config["activation_function"]]

    @classmethod
    def load(cls, folder):
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return cls(config, parse_safetensors((folder / "model.safetensors").read_bytes()))

    def norm(self, x, name):
        centred = x - x.mean(axis=1, keepdims=True)
        variance = (centred * centred).mean(axis=1, keepdims=True)
        scaled = centred / np.sqrt(variance + self.config["layer_norm_epsilon"])
        return scaled * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def linear(self, x, name):
        return x @ self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def score_scale(self, layer, head_size):
        scale = 1.0 / math.sqrt(head_size) if self.config["scale_attn_weights"] else 1.0
        return scale / (layer + 1) if self.config["scale_attn_by_inverse_layer_idx"] else scale

    def head_columns(self):
        """The columns of each head, where heads are concatenated."""
        size = self.config["n_embd"] // self.config["n_head"]
        return [slice(begin, begin + size) for begin in range(0, self.config["n_embd"], size)]

    def attention(self, q, k, v, layer):
        """softmax(mask(q k' scale)) v for q, k, v [T, C], heads concatenated, before c_proj: the scores and the
        softmax [H, T, T], and what is made of v [T, C]."""
        scale = self.score_scale(layer, self.config["n_embd"] // self.config["n_head"])
        scores = np.stack([(q[:, head] @ k[:, head].T) * scale for head in self.head_columns()])
        scores[:, *np.triu_indices(len(q), 1)] = -np.inf
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        pattern = weights / weights.sum(axis=2, keepdims=True)
        return scores, pattern, np.hstack([p @ v[:, head] for p, head in zip(pattern, self.head_columns())])

    def trace(self, ids):
        """Every activation for ids at positions 0, 1, ... by the names of driftless::Point; one entry of "layers" a
        block. Arrays [T, ...], those of heads concatenated, but scores and pattern [H, T, T]."""
        assert 1 <= len(ids) <= self.config["n_positions"]
        trace = {"embed": self.weights["wte.weight"][ids], "pos_embed": self.weights["wpe.weight"][: len(ids)]}
        x = trace["embed"] + trace["pos_embed"]
        trace["layers"] = []
        for layer in range(self.config["n_layer"]):
            block = f"h.{layer}."
            at = {"resid_pre": x, "ln1": self.norm(x, block + "ln_1")}
            at["q"], at["k"], at["v"] = np.split(self.linear(at["ln1"], block + "attn.c_attn"), 3, axis=1)
            at["attn_scores"], at["pattern"], at["z"] = self.attention(at["q"], at["k"], at["v"], layer)
            at["attn_out"] = self.linear(at["z"], block + "attn.c_proj")
            at["resid_mid"] = x + at["attn_out"]
            at["ln2"] = self.norm(at["resid_mid"], block + "ln_2")
            at["mlp_pre"] = self.linear(at["ln2"], block + "mlp.c_fc")
            at["mlp_post"] = self.activation(at["mlp_pre"])
            at["mlp_out"] = self.linear(at["mlp_post"], block + "mlp.c_proj")
            at["resid_post"] = x = at["resid_mid"] + at["mlp_out"]
            trace["layers"].append(at)
        trace["ln_final"] = self.norm(x, "ln_f")
        return trace

    def unembed(self, row):
        """Logits [V] of one row [C]. A product and a sum for each token, in the same order for all of them, so that
        equal rows of the head give exactly equal logits; a BLAS product does not promise that."""
        return (self.head * row).sum(axis=1)

    def logits(self, ids):
        """Logits [V] of the last position."""
        return self.unembed(self.trace(ids)["ln_final"][-1])

    def all_logits(self, ids):
        """Logits [T, V] of every position."""
        return np.stack([self.unembed(row) for row in self.trace(ids)["ln_final"]])

    def greedy(self, ids, max_tokens):
        """The continuation by argmax (first index on ties) and the smallest distance met between the largest logit and
        the largest one that is not equal to it."""
        output, min_gap = [], math.inf
        for _ in range(max_tokens):
            logits = self.logits(ids + output)
            output.append(int(np.argmax(logits)))
            largest = logits.max()
            min_gap = min(min_gap, float(largest - logits[logits < largest].max()))
        return output, min_gap


# ---- the tokenizer ----


class Tokenizer:
    """GPT-2's byte-level BPE: a scanner written by hand (no regular expression) and the plain merge loop."""

    SPECIAL = "<|endoftext|>"
    CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")
    SPACES = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))

    def __init__(self, folder):
        self.vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        version, *merges = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
        assert version.startswith("#version")
        self.ranks = {tuple(line.split(" ")): rank for rank, line in enumerate(filter(None, merges))}
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [byte for byte in range(256) if byte not in printable]
        self.symbols = {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}
        self.bytes = {symbol: byte for byte, symbol in self.symbols.items()}
        self.tokens = {i: token for token, i in self.vocab.items()}

    def kind(self, char):
        if char in self.SPACES:
            return "space"
        category = unicodedata.category(char)[0]
        return category if category in "LN" else "other"

    def run_end(self, text, begin):
        """The end of the run of characters of one kind that begins there."""
        end = begin + 1
        while end < len(text) and self.kind(text[end]) == self.kind(text[begin]):
            end += 1
        return end

    def word_end(self, text, begin):
        r"""The end of the word that begins there, by GPT-2's pattern
        's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
        for contraction in self.CONTRACTIONS:
            if text.startswith(contraction, begin):
                return begin + len(contraction)
        if self.kind(text[begin]) != "space":
            return self.run_end(text, begin)
        if text[begin] == " " and begin + 1 < len(text) and self.kind(text[begin + 1]) != "space":
            return self.run_end(text, begin + 1)
        end = self.run_end(text, begin)
        return end - 1 if end < len(text) and end - begin > 1 else end

    def merge(self, word):
        """Tokens of one word, lowest-ranked pair first, all its occurrences from the left at once."""
        parts = [self.symbols[byte] for byte in word.encode("utf-8")]
        while len(parts) > 1:
            pair = min(zip(parts, parts[1:]), key=lambda p: self.ranks.get(p, math.inf))
            if pair not in self.ranks:
                break
            merged, i = [], 0
            while i < len(parts):
                size = 2 if tuple(parts[i : i + 2]) == pair else 1
                merged.append("".join(parts[i : i + size]))
                i += size
            parts = merged
        return parts

    def encode(self, text, special=True):
        """Ids of a text; with `special`, <|endoftext|> in it is one token."""
        ids = []
        for n, part in enumerate(text.split(self.SPECIAL) if special else [text]):
            if n > 0:
                ids.append(self.vocab[self.SPECIAL])
            begin = 0
            while begin < len(part):
                end = self.word_end(part, begin)
                ids += [self.vocab[token] for token in self.merge(part[begin:end])]
                begin = end
        return ids

    def decode(self, ids):
        """Bytes of a list of ids."""
        tokens = [self.tokens[i] for i in ids]
        return b"".join(t.encode() if t == self.SPECIAL else bytes(self.bytes[c] for c in t) for t in tokens)


# ---- the goldens of tales-gpt2 ----


def rounded(values):
    """An array as nested lists of numbers with 10 significant digits."""
    if np.ndim(values) == 0:
        return float(f"{values:.10g}")
    return [rounded(value) for value in values]


def greedy_case(case, model, tokenizer):
    ids = tokenizer.encode(case["prompt"])
    output, gap = model.greedy(ids, case["max_tokens"])
    text = tokenizer.decode(output)
    return {
        "name": case["name"],
        "prompt": case["prompt"],
        "prompt_ids": ids,
        "max_tokens": case["max_tokens"],
        "output_ids": output,
        "output_text": text.decode("utf-8", "replace"),
        "output_hex": text.hex(),
        "min_top2_gap": gap,
    }


def logits_case(case, model, tokenizer):
    ids = tokenizer.encode(case["prompt"])
    return {
        "name": case["name"],
        "prompt": case["prompt"],
        "prompt_ids": ids,
        "next_id": case["next_id"],
        "prefill_logits": rounded(model.logits(ids)),
        "decode_logits": rounded(model.logits(ids + [case["next_id"]])),
    }


def tokenizer_case(case, tokenizer):
    return {"text": case["text"], "special": case["special"], "ids": tokenizer.encode(case["text"], case["special"])}


def layers_golden(golden, model, tokenizer):
    ids = tokenizer.encode(golden["prompt"])
    trace = model.trace(ids)
    layers = trace["layers"]
    return {
        "note": golden["note"],
        "prompt": golden["prompt"],
        "ids": ids,
        "embedding": rounded(layers[0]["resid_pre"]),
        "layers": {i: {"k": rounded(layers[int(i)]["k"]), "v": rounded(layers[int(i)]["v"])} for i in golden["layers"]},
        "attn_heads_layer0": rounded(layers[0]["z"]),
        "attn_out_layer0": rounded(layers[0]["attn_out"]),
        "hidden_after_block": rounded([layer["resid_post"][-1] for layer in layers]),
        "hidden_after_block0_all": rounded(layers[0]["resid_post"]),
        "ln_f_last": rounded(trace["ln_final"][-1]),
        "ln_f": rounded(trace["ln_final"]),
        "logits_last": rounded(model.unembed(trace["ln_final"][-1])),
    }


def perplexity_golden(golden, model, tokenizer):
    ids = tokenizer.encode(golden["text"])
    logits = model.all_logits(ids[:-1])
    peak = logits.max(axis=1)
    log_sums = peak + np.log(np.exp(logits - peak[:, None]).sum(axis=1))
    nll = log_sums - logits[np.arange(len(ids) - 1), ids[1:]]
    mean = float(nll.mean())
    return {
        "note": golden["note"],
        "text": golden["text"],
        "ids": ids,
        "count": len(nll),
        "mean_nll": mean,
        "perplexity": math.exp(mean),
        "nll": rounded(nll),
    }


def tales_files():
    """(path, content) of every golden of the embedded model."""
    folder = FIXTURES / "tales-gpt2"
    model, tokenizer = Model.load(folder), Tokenizer(folder)
    case_makers = {
        "tokenizer": lambda case: tokenizer_case(case, tokenizer),
        "logits": lambda case: logits_case(case, model, tokenizer),
        "greedy": lambda case: greedy_case(case, model, tokenizer),
    }
    golden_makers = {"layers": layers_golden, "perplexity": perplexity_golden}
    for name in [*case_makers, *golden_makers]:
        path = folder / "goldens" / f"{name}.json"
        golden = json.loads(path.read_text(encoding="utf-8"))
        if name in case_makers:
            yield path, {"note": golden["note"], "cases": [case_makers[name](case) for case in golden["cases"]]}
        else:
            yield path, golden_makers[name](golden, model, tokenizer)


# ---- the odd-shape models and their goldens ----

ODD_CONFIG = {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "bos_token_id": 258,
    "eos_token_id": 258,
    "layer_norm_epsilon": 1e-5,
    "model_type": "gpt2",
    "n_ctx": 16,
    "n_embd": 20,
    "n_head": 5,
    "n_inner": 12,
    "n_layer": 3,
    "n_positions": 16,
    "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "vocab_size": 259,
}
UNTIED_CONFIG = ODD_CONFIG | {
    "activation_function": "gelu",
    "layer_norm_epsilon": 1e-3,
    "scale_attn_by_inverse_layer_idx": True,
    "tie_word_embeddings": False,
}
ODD_NOTE = (
    "cases: prefill_logits at the last prompt position, decode_logits after feeding next_id at position "
    "len(prompt_ids); a prompt of n_positions tokens leaves no position to decode at, there next_id and decode_logits "
    "are null. "
    "rows: the logits of every position, and every layer's keys and values as rows [position][n_embd], heads "
    "concatenated, bias included, before any scaling. "
    "greedy: exact continuation, first index on ties; the last id may be the one that no position is left for; "
    "min_top2_gap: smallest distance between the largest logit and the largest one not equal to it. "
    "F32 weights upcast to float64; numbers to 10 significant digits"
)


def random_tensors(config, rng, embedding_spread):
    """Weights under their checkpoint names. Uniform numbers, since those are the same bits from every NumPy and libm.
    The spreads give attention scores and logits of several units, and MLP inputs near -3, where the two forms of GELU
    differ by a tenth of their value: taking one for the other moves the logits by more than any tolerance."""

    def draw(*shape, spread, centre=0.0):
        return rng.uniform(centre - spread, centre + spread, shape).astype("<f4")

    def norm(name):
        return {
            f"{name}.weight": draw(width, spread=0.5, centre=1.0),
            f"{name}.bias": draw(width, spread=0.3),
        }

    def linear(name, inputs, outputs, spread=0.9, bias_centre=0.0):
        return {
            f"{name}.weight": draw(inputs, outputs, spread=spread),
            f"{name}.bias": draw(outputs, spread=0.3, centre=bias_centre),
        }

    width, inner = config["n_embd"], config["n_inner"]
    tensors = {
        "wte.weight": draw(config["vocab_size"], width, spread=embedding_spread),
        "wpe.weight": draw(config["n_positions"], width, spread=embedding_spread),
    }
    for layer in range(config["n_layer"]):
        block = f"h.{layer}"
        tensors |= norm(f"{block}.ln_1")
        tensors |= linear(f"{block}.attn.c_attn", width, 3 * width)
        tensors |= linear(f"{block}.attn.c_proj", width, width)
        tensors |= norm(f"{block}.ln_2")
        tensors |= linear(f"{block}.mlp.c_fc", width, inner, spread=0.3, bias_centre=-3.0)
        tensors |= linear(f"{block}.mlp.c_proj", inner, width, spread=9.0)
    tensors |= norm("ln_f")
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = draw(config["vocab_size"], width, spread=1.0)
    return tensors


def with_tokens_twice(tensors):
    """The embedding with row i + 128 equal to row i for the first 128: equal logits for two tokens. The three rows behind
    whole blocks have no twin: matrix products may sum them in another order, which would make equal logits unequal."""
    wte = tensors["wte.weight"]
    return tensors | {"wte.weight": np.concatenate([wte[:128], wte[:128], wte[256:]])}


def with_prefix_and_buffers(tensors):
    """The names of a whole GPT2LMHeadModel, with the mask buffers of old checkpoints, in every type they have had."""
    size = len(tensors["wpe.weight"])
    mask = np.tril(np.ones((1, 1, size, size)))
    buffers = {}
    for layer, dtype in enumerate(["<f4", "u1", "bool"]):
        buffers[f"h.{layer}.attn.bias"] = mask.astype(dtype)
        buffers[f"h.{layer}.attn.masked_bias"] = np.array(-1e4, "<f4")
    named = {f"transformer.{name}": t for name, t in (tensors | buffers).items() if name != "lm_head.weight"}
    return named | {"lm_head.weight": tensors["lm_head.weight"]}


def odd_case(model, prompt, next_id):
    return {
        "prompt_ids": prompt,
        "next_id": next_id,
        "prefill_logits": rounded(model.logits(prompt)),
        "decode_logits": None if next_id is None else rounded(model.logits(prompt + [next_id])),
    }


def odd_greedy(model, prompt, max_tokens):
    output, gap = model.greedy(prompt, max_tokens)
    return {"prompt_ids": prompt, "max_tokens": max_tokens, "output_ids": output, "min_top2_gap": rounded(gap)}


def odd_rows(model, ids):
    trace = model.trace(ids)
    return {
        "ids": ids,
        "logits": rounded(model.all_logits(ids)),
        "layers": [{"k": rounded(layer["k"]), "v": rounded(layer["v"])} for layer in trace["layers"]],
    }


def odd_golden(model, rng):
    vocab, positions = model.config["vocab_size"], model.config["n_positions"]
    prompts = {length: rng.randint(vocab, size=length).tolist() for length in (1, 5, 12, 15, positions)}
    next_ids = {length: int(rng.randint(vocab)) if length < positions else None for length in prompts}
    return {
        "note": ODD_NOTE,
        "cases": [odd_case(model, prompts[length], next_ids[length]) for length in prompts],
        "rows": odd_rows(model, prompts[12]),
        "greedy": [odd_greedy(model, prompts[length], n) for length, n in ((1, 16), (5, 8), (12, 5), (positions, 1))],
    }


def odd_model_files(name, config, seed, embedding_spread, finish):
    """(path, content) of one model: its config, its weights passed through `finish`, and its goldens."""
    rng = np.random.RandomState(seed)
    file = serialize_safetensors(finish(random_tensors(config, rng, embedding_spread)))
    yield FIXTURES / name / "config.json", config
    yield FIXTURES / name / "model.safetensors", file
    yield FIXTURES / name / "goldens.json", odd_golden(Model(config, parse_safetensors(file)), rng)


def odd_files():
    """(path, content) of the odd-shape models. The seeds are those, of a thousand, whose greedy text is varied and
    never closer than 0.06 to another choice."""
    yield from odd_model_files("odd-gpt2", ODD_CONFIG, 177, 1.0, lambda tensors: tensors)
    # Embeddings so small that the variance of the first rows is not far above layer_norm_epsilon.
    yield from odd_model_files("odd-gpt2-untied", UNTIED_CONFIG, 152, 0.1, with_prefix_and_buffers)
    # At every step of its greedy text, two tokens have the largest logit.
    yield from odd_model_files("odd-gpt2-ties", ODD_CONFIG, 946, 1.0, with_tokens_twice)


# ---- sampling ----


class MersenneTwister64:
    """mt19937_64 (Nishimura and Matsumoto 2004), which the C++ standard fixes to the bit."""

    def __init__(self, seed):
        self.state = [seed]
        for i in range(1, 312):
            last = self.state[-1]
            self.state.append((6364136223846793005 * (last ^ last >> 62) + i) % 2**64)
        self.index = 312

    def __call__(self):
        if self.index == 312:
            for i in range(312):
                joined = self.state[i] & 0xFFFFFFFF80000000 | self.state[(i + 1) % 312] & 0x7FFFFFFF
                twist = 0xB5026F5AA96619E9 if joined & 1 else 0
                self.state[i] = self.state[(i + 156) % 312] ^ joined >> 1 ^ twist
            self.index = 0
        x = self.state[self.index]
        self.index += 1
        x ^= x >> 29 & 0x5555555555555555
        x ^= x << 17 & 0x71D67FFFEDA60000
        x ^= x << 37 & 0xFFF7EEE000000000
        return x ^ x >> 43


def sampled(logits, temperature, top_k, top_p, seed, count):
    """`count` ids drawn by temperature, then top_k, then top_p; equal logits in the order of ids."""
    weights = {i: math.exp((logit - max(logits)) / temperature) for i, logit in enumerate(logits)}
    kept = sorted(weights, key=lambda i: (-logits[i], i))[: top_k or len(logits)]
    if top_p < 1:
        enough, reached, size = top_p * sum(weights[i] for i in kept), 0.0, 0
        while reached < enough:
            reached, size = reached + weights[kept[size]], size + 1
        kept = kept[:size]
    elif not top_k:
        kept = sorted(kept)
    draw, ids = MersenneTwister64(seed), []
    for _ in range(count):
        target, reached = (draw() >> 11) * 2.0**-53 * sum(weights[i] for i in kept), 0.0
        for i in kept:
            reached += weights[i]
            if target < reached:
                ids.append(i)
                break
    return ids


def sampling_files():
    twister = MersenneTwister64(5489)
    assert [twister() for _ in range(10000)][-1] == 9981545732273789042  # the C++ standard, [rand.predef]
    logits = (np.random.RandomState(1).randint(-24, 25, 60) / 8).tolist()
    settings = [(1.0, 0, 1.0, 0), (0.7, 0, 1.0, 1), (1.0, 10, 1.0, 2), (1.5, 0, 0.8, 3), (0.9, 40, 0.9, 2**63 + 5)]
    cases = [
        dict(zip(("temperature", "top_k", "top_p", "seed"), setting), ids=sampled(logits, *setting, 40))
        for setting in settings
    ]
    yield FIXTURES / "sampling.json", {
        "note": "ids drawn one after the other from the same logits by mt19937_64 seeded once a case, 53 bits a "
        "number; top_k 0 and top_p 1 mean no restriction",
        "logits": logits,
        "cases": cases,
    }


# ---- writing and checking ----


def differences(old, new, where):
    """Lines that say where two contents differ: numbers by more than the last of their 10 digits, all else at all."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        for key in new:
            yield from differences(old[key], new[key], f"{where}/{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, pair in enumerate(zip(old, new)):
            yield from differences(*pair, f"{where}/{i}")
    elif isinstance(old, float) and isinstance(new, float):
        if not math.isclose(old, new, rel_tol=1e-9, abs_tol=1e-12):
            yield f"{where}: {old!r} is committed, {new!r} computed"
    elif old != new:
        yield f"{where}: {str(old)[:60]} is committed, {str(new)[:60]} computed"


def committed(path):
    """The content of a file, None if there is none."""
    if not path.exists():
        return None
    return json.loads(path.read_text(encoding="utf-8")) if path.suffix == ".json" else path.read_bytes()


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".json":
        content = (json.dumps(content, ensure_ascii=False) + "\n").encode()
    path.write_bytes(content)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if anything differs")
    check = parser.parse_args().check
    failed = False
    for make_files in (sampling_files, odd_files, tales_files):
        for path, content in make_files():
            name = path.relative_to(FIXTURES)
            found = list(differences(committed(path), content, name))
            if check:
                print("\n".join(found) or f"{name}: as committed")
                failed = failed or bool(found)
            elif found:
                # A file that agrees to its printed digits is left alone: the digits beyond depend on the BLAS in use.
                write(path, content)
                print(f"{name}: written")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
