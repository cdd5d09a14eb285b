#!/usr/bin/env python3
"""data_test.py PROGRAM MODEL: the data in the page that `driftless explain` writes."""

import json
import math
import os
import re
import shutil
import struct
import tempfile

from checks import MODEL, TEXT, data_of, expect, expect_near, explain, output, run

CONTINUED = 46


class Model:
    """As much of the model as plain Python can compute in a moment: embeddings, LayerNorms, one layer's attention."""

    def __init__(self):
        with open(os.path.join(MODEL, "config.json"), encoding="utf-8") as file:
            self.config = json.load(file)
        with open(os.path.join(MODEL, "model.safetensors"), "rb") as file:
            self.file = file.read()
        self.begin = 8 + struct.unpack("<Q", self.file[:8])[0]
        self.header = json.loads(self.file[8:self.begin])

    def rows(self, name):
        tensor = self.header[name]
        expect("type of " + name, tensor["dtype"], "F16")
        begin, end = tensor["data_offsets"]
        numbers = struct.unpack(f"<{(end - begin) // 2}e", self.file[self.begin + begin:self.begin + end])
        columns = tensor["shape"][-1]
        return [numbers[at:at + columns] for at in range(0, len(numbers), columns)]

    def norm(self, row, name):
        weight, bias = self.rows(name + ".weight")[0], self.rows(name + ".bias")[0]
        mean = sum(row) / len(row)
        scale = 1 / math.sqrt(sum((x - mean) ** 2 for x in row) / len(row) + self.config["layer_norm_epsilon"])
        return [(x - mean) * scale * w + b for x, w, b in zip(row, weight, bias)]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def softmax(numbers):
    largest = max(numbers)
    powers = [math.exp(number - largest) for number in numbers]
    total = sum(powers)
    return [power / total for power in powers]


def check_against_other_commands(page, data):
    ids, given = data["ids"], data["prompt_tokens"]
    expect("tokens", len(ids), 60)
    if len(page) >= 3_000_000:
        raise SystemExit(f"expected a page below 3 MB, found {len(page)} bytes")
    expect("ids of the text", ids[:given], [int(id) for id in output("tokenize", TEXT).decode().replace(",", " ").split()])
    generated = json.loads(output("generate", "-n", str(CONTINUED), "--output", "json", TEXT))
    expect("ids generated", ids[given:], generated["output_ids"])
    joined = ",".join(map(str, ids))
    expect("the next id", str(data["next"]), output("generate", "--ids", joined, "-n", "1", "--output", "ids").decode().strip())
    score = json.loads(output("score", "--json", "--top", "5", "--ids", joined))
    expect("log-probabilities", data["log_probabilities"], [None, *score["log_probabilities"]])
    text = "".join(data["tokens"][str(id)] for id in ids)
    expect("text", text, TEXT + generated["text"])

    last = data["lens"][-1]
    for t, top in enumerate(score["top"]):
        expect(f"likeliest after position {t}", last[t]["top"],
               [[one["id"], round(10000 * math.exp(one["log_probability"]))] for one in top])
        rank, share = last[t]["next"]
        expect(f"share of the token after position {t}", share, round(10000 * math.exp(score["log_probabilities"][t])))
        order = [one["id"] for one in top]
        expect(f"rank of the token after position {t}", rank if rank <= 5 else None,
               order.index(ids[t + 1]) + 1 if ids[t + 1] in order else None)
    expect("next of the last token", last[-1]["next"], None)

    info = output("info").decode()
    expect("bytes of a position", data["cache"]["position_bytes"] * data["model"]["n_layer"],
           int(re.search(r"cache for a token +(\d+) bytes", info).group(1)))
    for key in ("n_layer", "n_head", "n_embd", "n_inner", "n_positions", "vocab_size"):
        expect(key, str(data["model"][key]), re.search(rf"  {key} +(\d+)", info).group(1))


def check_against_python(data, model):
    ids, T = data["ids"], len(data["ids"])
    C, H, V = model.config["n_embd"], model.config["n_head"], model.config["vocab_size"]
    D = C // H
    wte, wpe = model.rows("wte.weight"), model.rows("wpe.weight")
    x = [[a + b for a, b in zip(wte[id], wpe[t])] for t, id in enumerate(ids)]

    for t in (0, 7, T - 2):
        normed = model.norm(x[t], "ln_f")
        logits = [dot(normed, row) for row in wte]
        shares = softmax(logits)
        found = data["lens"][0][t]
        order = sorted(range(V), key=lambda id: -logits[id])
        expect(f"likeliest by the embedding at {t}", [id for id, _ in found["top"]], order[:5])
        for id, share in found["top"]:
            expect_near(f"share of {id} by the embedding at {t}", share, 10000 * shares[id], 1)
        expect(f"rank by the embedding at {t}", found["next"][0], order.index(ids[t + 1]) + 1)

    columns = list(zip(*model.rows("h.0.attn.c_attn.weight")))
    bias = model.rows("h.0.attn.c_attn.bias")[0]
    normed = [model.norm(row, "h.0.ln_1") for row in x]
    for head in range(H):
        wanted = [*range(head * D, (head + 1) * D), *range(C + head * D, C + (head + 1) * D)]
        qk = [[dot(row, columns[c]) + bias[c] for c in wanted] for row in normed]
        weights = data["attention"][0][head]
        expect("weights of a head", len(weights), T * (T + 1) // 2)
        for t in range(T):
            pattern = softmax([dot(qk[t][:D], qk[s][D:]) / math.sqrt(D) for s in range(t + 1)])
            for s, share in enumerate(pattern):
                expect_near(f"head {head} of layer 0, {t} to {s}", weights[t * (t + 1) // 2 + s], 1000 * share, 0.51)

    first = {(one["point"], one["head"]): one["first"] for one in data["walk"]}
    last = T - 1
    expect("row of wte", first["hook_embed", None], list(map(nearest_float, wte[ids[-1]][:6])))
    expect("row of wpe", first["hook_pos_embed", None], list(map(nearest_float, wpe[last][:6])))
    for found, expected in zip(first["blocks.0.hook_resid_pre", None], x[last]):
        expect_near("the residual stream before layer 0", found, expected, 1e-6)
    for found, expected in zip(first["blocks.0.ln1.hook_normalized", None], normed[last]):
        expect_near("ln_1 of layer 0", found, expected, 1e-5)
    for layer in range(model.config["n_layer"]):
        for head in range(H):
            row = data["attention"][layer][head][last * (last + 1) // 2:]
            expect(f"sum of a row of layer {layer}, head {head}", abs(sum(row) - 1000) <= T / 2, True)
            for found, expected in zip(first[f"blocks.{layer}.attn.hook_pattern", head], row):
                expect_near(f"pattern of layer {layer}, head {head}", 1000 * found, expected, 0.51)


def nearest_float(number):
    """As the program writes it: the shortest decimal number that is the same float."""
    as_float = struct.unpack("<f", struct.pack("<f", number))[0]
    return next(shorter for shorter in (float(f"{as_float:.{digits}g}") for digits in range(1, 10))
                if struct.pack("<f", shorter) == struct.pack("<f", as_float))


def check_shapes(data, model):
    C, H, L = model.config["n_embd"], model.config["n_head"], model.config["n_layer"]
    T, V = len(data["ids"]), model.config["vocab_size"]
    of_model = {"hook_embed": C, "hook_pos_embed": C, "ln_final.hook_normalized": C, "logits": V}
    of_layer = {"hook_resid_pre": C, "ln1.hook_normalized": C, "hook_attn_out": C, "hook_resid_mid": C,
                "ln2.hook_normalized": C, "mlp.hook_pre": 4 * C, "mlp.hook_post": 4 * C, "hook_mlp_out": C,
                "hook_resid_post": C}
    of_head = {"attn.hook_q": C // H, "attn.hook_k": C // H, "attn.hook_v": C // H, "attn.hook_attn_scores": T,
               "attn.hook_pattern": T, "attn.hook_z": C // H, "attn.hook_result": C}
    expected = {(name, None, None): width for name, width in of_model.items()}
    for layer in range(L):
        expected |= {(f"blocks.{layer}.{name}", layer, None): width for name, width in of_layer.items()}
        expected |= {(f"blocks.{layer}.{name}", layer, head): width for name, width in of_head.items() for head in range(H)}
    expect("points", {(one["point"], one["layer"], one["head"]): one["shape"][1] for one in data["walk"]}, expected)
    expect("number of points", len(data["walk"]), len(expected))
    for one in data["walk"]:
        expect("rows of " + one["point"], one["shape"][0], 1)
        expect("numbers of " + one["point"], len(one["first"]), min(6, one["shape"][1]))


def check_cache(scratch, model):
    """Over several pages: bytes by hand, for 64 positions of keys and values in each."""
    C = model.config["n_embd"]
    data = data_of(explain(os.path.join(scratch, "pages.html"), TEXT, "-n", "130"))
    given, T = data["prompt_tokens"], len(data["ids"])
    steps = [(0, given)] + [(t, 1) for t in range(given, T - 1)]
    expect("steps", data["cache"]["steps"], [
        {"first": first, "tokens": tokens, "layer_bytes": math.ceil((first + tokens) / 64) * 64 * 2 * C * 4}
        for first, tokens in steps])
    int8 = data_of(explain(os.path.join(scratch, "int8.html"), TEXT, "-n", "2", "--cache", "int8"))
    expect("bytes of a position as int8", int8["cache"]["position_bytes"], 2 * C + 2 * 4 * model.config["n_head"])
    expect("the cache's type", int8["model"]["cache"], "int8")


def check_strange_text(scratch):
    """Whatever a text holds, the data is JSON, and the script that holds it ends where it should."""
    text = b"a\x01\x7f\xff\xc2</script><!-- <script>\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xae\xf0\x9f\x90\xbb\r\n\t&amp;\\"
    path = os.path.join(scratch, "strange.html")
    result = run("explain", "-", "-o", path, "-n", "0", stdin=text)
    expect("exit status", result.returncode, 0)
    with open(path, encoding="ascii") as file:
        page = file.read()
    expect("ends of scripts", page.count("</script"), 2)
    expect("comments", page.count("<!--"), 0)
    data = data_of(page)
    tokens = [data["tokens"][str(id)] for id in data["ids"]]
    expect("bytes", b"".join(bytes(token) if isinstance(token, list) else token.encode() for token in tokens), text)
    # A model without a tokenizer: the same page, with numbers for tokens.
    for name in ("config.json", "model.safetensors"):
        shutil.copy(os.path.join(MODEL, name), scratch)
    data = data_of(explain(os.path.join(scratch, "ids.html"), "--ids", "1,2,3", "-m", scratch))
    expect("tokens without a tokenizer", set(data["tokens"].values()), {None})


def check_output(scratch):
    path = os.path.join(scratch, "page.html")
    with open(path, "w", encoding="ascii") as file:
        file.write("before")
    for arguments in (("hello", "-n", "256"), ("",), ("hello", "--ids", "1"), ("hello", "-m", "/nowhere")):
        result = run("explain", *arguments, "-o", path)
        expect(f"exit status of {arguments}", (result.returncode, result.stderr.count(b"\n")), (2, 1))
    with open(path, encoding="ascii") as file:
        expect("the file after errors", file.read(), "before")
    result = run("explain", "hello", "-n", "256", "-o", path)
    expect("message for too many tokens", result.stderr.decode(),
           "driftless: expected at most 256 tokens on a page, got 3 and --max-tokens 256\n")
    result = run("explain", "hello", "-o", os.path.join(scratch, "nowhere", "page.html"))
    expect("exit status without a directory", (result.returncode, b"cannot be written" in result.stderr), (2, True))
    page = explain(path, "hello", "-n", "1")
    expect("standard output", output("explain", "hello", "-n", "1", "-o", "-").decode(), page)
    expect("further files", [name for name in os.listdir(scratch) if name.endswith(".tmp")], [])
    # A context of 16: the last token needs a position as well.
    odd = os.path.join(os.path.dirname(os.path.abspath(MODEL)), "odd-gpt2")
    full = data_of(explain(path, "--ids", "1,2,3,4,5", "-n", "30", "-m", odd))
    expect("as many tokens as there are positions", len(full["ids"]), 16)


def main():
    with tempfile.TemporaryDirectory() as scratch:
        page = explain(os.path.join(scratch, "text.html"), TEXT, "-n", str(CONTINUED))
        data = data_of(page)
        model = Model()
        check_against_other_commands(page, data)
        check_against_python(data, model)
        check_shapes(data, model)
        check_cache(scratch, model)
        check_strange_text(scratch)
        check_output(scratch)


main()
