#!/usr/bin/env python3
"""Writes the tiny checkpoints of fixtures/convert, each by the program whose format it is, with that program's logits.

    scripts/make_convert_fixtures.py [NAME...]      those that this Python has the packages for, or these alone

No package has all of them at once. What is in fixtures/convert came from three environments of Python 3.11:

    transformers==5.24.0 torch==2.15.0 gguf==0.19.0 llama-cpp-python==0.3.36 transformer-lens==4.3.0
    transformer-lens==2.18.0 torch==2.15.0          HookedTransformer, which later versions have no more
    tensorflow==2.21.0

nanoGPT, minGPT and llm.c are in no package. What stands here for them was written from their sources, with the same
modules and names: nn.Linear's layout, tied or untied output weights, their GELUs, and llm.c's file, byte for byte.

fixtures/convert/logits.json has for each the ids, the logits after each of them, who computed these and in what type.
Nothing of driftless, and nothing of scripts/convert.py, has a part in it.
"""

import argparse
import functools
import json
import logging
import math
import struct
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

OUT = Path(__file__).resolve().parent.parent / "fixtures" / "convert"
LOGITS = OUT / "logits.json"
V, N, C, L, H = 29, 8, 8, 2, 2
IDS = [3, 28, 0, 7, 7, 19]


def draw(generator, name, shape):
    """Weights so large that a wrong GELU, epsilon or layout shows."""
    values = 0.4 * generator.standard_normal(shape)
    is_gain = name.endswith((".g", "/g", ".w", "ln_f.weight", "ln_1.weight", "ln_2.weight", "ln1.weight", "ln2.weight"))
    return (values + is_gain).astype(np.float32)


def fill(model, seed):
    """All parameters of a torch module, at random."""
    import torch

    generator = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.tensor(draw(generator, name, tuple(parameter.shape))))
    return model.eval()


def torch_logits(model, ids=IDS):
    """In float64, of weights that stay float32."""
    import torch

    with torch.no_grad():
        output = model.double()(torch.tensor([ids]))
    model.float()
    return (output.logits if hasattr(output, "logits") else output)[0].numpy()


def record(logits, made_by, options=(), ids=IDS, **more):
    shown = [[float(f"{value:.8g}") for value in row] for row in np.asarray(logits)]
    return {"made_by": made_by, "options": list(options), "ids": list(ids), "logits": shown} | more


def folder(name):
    path = OUT / name
    path.mkdir(parents=True, exist_ok=True)
    return path


# ---- transformers ----


def gpt2_config(**changes):
    from transformers import GPT2Config

    sizes = {"vocab_size": V, "n_positions": N, "n_embd": C, "n_layer": L, "n_head": H}
    return GPT2Config(**sizes | {"bos_token_id": None, "eos_token_id": None} | changes)


def by_transformers():
    return f"transformers {version('transformers')}, float64"


def pytorch_lm_head():
    """GPT2LMHeadModel, whose names have a prefix; the archive that torch.save writes."""
    import torch
    from transformers import GPT2LMHeadModel

    model = fill(GPT2LMHeadModel(gpt2_config(n_inner=12, layer_norm_epsilon=1e-3)), 1)
    path = folder("pytorch-lm-head")
    model.config.to_json_file(path / "config.json")
    torch.save(model.state_dict(), path / "pytorch_model.bin")
    return record(torch_logits(model), by_transformers())


def pytorch_base():
    """GPT2Model, whose names have none; half precision; in the form from before PyTorch 1.6."""
    import torch
    from transformers import GPT2LMHeadModel

    model = fill(GPT2LMHeadModel(gpt2_config(activation_function="relu")), 2).half().float()
    path = folder("pytorch-base")
    model.config.to_json_file(path / "config.json")
    state = {name: tensor.half() for name, tensor in model.transformer.state_dict().items()}
    state |= {f"h.{layer}.attn.bias": torch.ones(1, 1, N, N).tril().bool() for layer in range(L)}  # it once had them
    torch.save(state, path / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    return record(torch_logits(model), by_transformers())


# ---- nanoGPT, minGPT and llm.c ----


@functools.cache
def linear_gpt():
    """What the three have in common, with the modules' names that are in their state dicts."""
    import torch
    from torch import nn
    from torch.nn import functional

    def new_gelu(x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    class Norm(nn.Module):
        def __init__(self, bias):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(C))
            self.bias = nn.Parameter(torch.zeros(C)) if bias else None

        def forward(self, x):
            return functional.layer_norm(x, (C,), self.weight, self.bias, 1e-5)

    class Attention(nn.Module):
        def __init__(self, bias):
            super().__init__()
            self.c_attn, self.c_proj = nn.Linear(C, 3 * C, bias=bias), nn.Linear(C, C, bias=bias)
            self.register_buffer("bias", torch.ones(N, N).tril().view(1, 1, N, N))

        def forward(self, x):
            return self.c_proj(attend(*self.c_attn(x).split(C, dim=-1)))

    class Mlp(nn.Module):
        def __init__(self, bias, gelu):
            super().__init__()
            self.c_fc, self.c_proj, self.gelu = nn.Linear(C, 4 * C, bias=bias), nn.Linear(4 * C, C, bias=bias), gelu

        def forward(self, x):
            return self.c_proj(self.gelu(self.c_fc(x)))

    class Block(nn.Module):
        def __init__(self, bias, gelu):
            super().__init__()
            self.ln_1, self.attn, self.ln_2, self.mlp = Norm(bias), Attention(bias), Norm(bias), Mlp(bias, gelu)

        def forward(self, x):
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    class Gpt(nn.Module):
        def __init__(self, bias, gelu, is_tied, vocab_size=V):
            super().__init__()
            blocks = nn.ModuleList([Block(bias, gelu) for _ in range(L)])
            wte, wpe = nn.Embedding(vocab_size, C), nn.Embedding(N, C)
            self.transformer = nn.ModuleDict({"wte": wte, "wpe": wpe, "h": blocks, "ln_f": Norm(bias)})
            self.lm_head = nn.Linear(C, vocab_size, bias=False)
            if is_tied:
                self.lm_head.weight = wte.weight

        def forward(self, ids):
            x = self.transformer.wte(ids) + self.transformer.wpe(torch.arange(ids.shape[1]))
            for block in self.transformer.h:
                x = block(x)
            return self.lm_head(self.transformer.ln_f(x))

    return Gpt, new_gelu


def attend(q, k, v):
    """[1, T, C] each; H heads side by side."""
    import torch

    q, k, v = (part.view(1, -1, H, C // H).transpose(1, 2) for part in (q, k, v))
    scores = q @ k.transpose(-2, -1) / math.sqrt(C // H)
    scores = scores.masked_fill(torch.ones(scores.shape[-2:]).tril() == 0, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2).reshape(1, -1, C)


def by_transcription(program):
    return f"{program}'s model, transcribed, torch {version('torch')}, float64"


def nanogpt(name, seed, bias, prefix):
    """What train.py saves."""
    import torch

    Gpt, _ = linear_gpt()
    model = fill(Gpt(bias, torch.nn.GELU(), is_tied=True), seed)
    state = {prefix + key: tensor for key, tensor in model.state_dict().items()}
    args = {"n_layer": L, "n_head": H, "n_embd": C, "block_size": N, "bias": bias, "vocab_size": V, "dropout": 0.0}
    checkpoint = {
        "model": state,
        "optimizer": torch.optim.AdamW(model.parameters()).state_dict(),
        "model_args": args,
        "iter_num": 2000,
        "best_val_loss": torch.tensor(1.25),
        "config": {"out_dir": "out", "init_from": "scratch", "compile": True},
    }
    torch.save(checkpoint, folder(name) / "ckpt.pt")
    return record(torch_logits(model), by_transcription("nanoGPT"))


def mingpt():
    """projects/chargpt saves the state dict alone. Output weights are not tied."""
    import torch

    Gpt, new_gelu = linear_gpt()
    model = fill(Gpt(True, new_gelu, is_tied=False), 5)
    torch.save(model.state_dict(), folder("mingpt") / "model.pt")
    return record(torch_logits(model), by_transcription("minGPT"), ["--n-head", str(H)])


def mingpt_old():
    """minGPT of 2020 to 2022."""
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.key, self.query, self.value, self.proj = (nn.Linear(C, C) for _ in range(4))
            self.register_buffer("mask", torch.ones(N, N).tril().view(1, 1, N, N))

        def forward(self, x):
            return self.proj(attend(self.query(x), self.key(x), self.value(x)))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2, self.attn = nn.LayerNorm(C), nn.LayerNorm(C), Attention()
            self.mlp = nn.Sequential(nn.Linear(C, 4 * C), nn.GELU(), nn.Linear(4 * C, C), nn.Dropout(0.1))

        def forward(self, x):
            x = x + self.attn(self.ln1(x))
            return x + self.mlp(self.ln2(x))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tok_emb, self.pos_emb = nn.Embedding(V, C), nn.Parameter(torch.zeros(1, N, C))
            self.blocks, self.ln_f = nn.Sequential(*[Block() for _ in range(L)]), nn.LayerNorm(C)
            self.head = nn.Linear(C, V, bias=False)

        def forward(self, ids):
            return self.head(self.ln_f(self.blocks(self.tok_emb(ids) + self.pos_emb[:, : ids.shape[1]])))

    model = fill(Gpt(), 6)
    torch.save(model.state_dict(), folder("mingpt-old") / "model.pt", _use_new_zipfile_serialization=False)
    return record(torch_logits(model), by_transcription("minGPT"), ["--n-head", str(H)])


LLM_C_KINDS = (
    *(f"ln_1.{kind}" for kind in ("weight", "bias")),
    *(f"attn.{part}.{kind}" for part in ("c_attn", "c_proj") for kind in ("weight", "bias")),
    *(f"ln_2.{kind}" for kind in ("weight", "bias")),
    *(f"mlp.{part}.{kind}" for part in ("c_fc", "c_proj") for kind in ("weight", "bias")),
)


def llm_c(name, seed, dtype):
    """write_model of train_gpt2.py: 3 is float32, 5 is bfloat16. Rows of padding are what training left in them."""
    import torch

    Gpt, new_gelu = linear_gpt()
    model = fill(Gpt(True, new_gelu, is_tied=True), seed).to(dtype).float()
    state = model.state_dict()
    padding = torch.tensor(draw(np.random.default_rng(seed + 100), "padding", (128 - V, C)))
    ordered = [torch.cat([state["transformer.wte.weight"], padding]), state["transformer.wpe.weight"]]
    ordered += [state[f"transformer.h.{layer}.{kind}"] for kind in LLM_C_KINDS for layer in range(L)]
    ordered += [state["transformer.ln_f.weight"], state["transformer.ln_f.bias"]]
    version = 3 if dtype == torch.float32 else 5
    header = [20240326, version, N, V, L, H, C, 128] + [0] * 248
    with open(folder(name) / "model.bin", "wb") as file:
        file.write(struct.pack("<256i", *header))
        for tensor in ordered:
            file.write(tensor.to(dtype).view(torch.int16 if version == 5 else torch.int32).numpy().tobytes())
    return record(torch_logits(model), by_transcription("llm.c"))


# ---- TensorFlow ----


def tensorflow():
    """OpenAI's graph, with its variables' names, saved by the Saver of TensorFlow 1. Adam's slots are there, as after
    training on."""
    import tensorflow as tf

    tf1 = tf.compat.v1
    generator = np.random.default_rng(9)
    with tf.Graph().as_default(), tf1.Session() as session:

        def variable(name, shape):
            return tf1.get_variable(name, initializer=draw(generator, name, shape))

        def norm(x, scope):
            g, b = variable(f"{scope}/g", [C]), variable(f"{scope}/b", [C])
            mean = tf.reduce_mean(x, axis=-1, keepdims=True)
            variance = tf.reduce_mean(tf.square(x - mean), axis=-1, keepdims=True)
            return (x - mean) * tf.math.rsqrt(variance + 1e-5) * g + b

        def conv1d(x, scope, columns):
            w, b = variable(f"{scope}/w", [1, x.shape[-1], columns]), variable(f"{scope}/b", [columns])
            return tf.matmul(x, tf.reshape(w, [-1, columns])) + b

        def gelu(x):
            return 0.5 * x * (1 + tf.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * tf.pow(x, 3))))

        def attention(x, scope):
            heads = [
                tf.transpose(tf.reshape(part, [-1, H, C // H]), [1, 0, 2])
                for part in tf.split(conv1d(x, f"{scope}/c_attn", 3 * C), 3, axis=1)
            ]
            scores = tf.matmul(heads[0], heads[1], transpose_b=True) * tf.math.rsqrt(tf.cast(C // H, tf.float32))
            visible = tf.linalg.band_part(tf.ones_like(scores), -1, 0)
            mixed = tf.matmul(tf.nn.softmax(scores * visible - 1e10 * (1 - visible)), heads[2])
            return conv1d(tf.reshape(tf.transpose(mixed, [1, 0, 2]), [-1, C]), f"{scope}/c_proj", C)

        with tf1.variable_scope("model"):
            wpe, wte = variable("wpe", [N, C]), variable("wte", [V, C])
            x = tf.gather(wte, IDS) + tf.gather(wpe, np.arange(len(IDS)))
            for layer in range(L):
                x += attention(norm(x, f"h{layer}/ln_1"), f"h{layer}/attn")
                x += conv1d(
                    gelu(conv1d(norm(x, f"h{layer}/ln_2"), f"h{layer}/mlp/c_fc", 4 * C)), f"h{layer}/mlp/c_proj", C
                )
            logits = tf.matmul(norm(x, "ln_f"), wte, transpose_b=True)
        tf1.train.AdamOptimizer().minimize(tf.reduce_sum(logits), var_list=[wpe])
        session.run(tf1.global_variables_initializer())
        path = folder("tensorflow")
        tf1.train.Saver().save(session, str(path / "model.ckpt"), write_meta_graph=False, write_state=False)
        result = session.run(logits)
    hparams = {"n_vocab": V, "n_ctx": N, "n_embd": C, "n_head": H, "n_layer": L}
    (path / "hparams.json").write_text(json.dumps(hparams) + "\n")
    return record(result, f"TensorFlow {tf.__version__}, float32")


# ---- TransformerLens ----


def hooked_transformer(name, seed, **processing):
    """A HookedTransformer's state dict, as it is trained or after what its options do to weights."""
    import torch
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    sizes = {"n_layers": L, "d_model": C, "n_ctx": N, "d_head": C // H, "n_heads": H, "d_vocab": V}
    config = HookedTransformerConfig(**sizes, act_fn="gelu_new", normalization_type="LN", device="cpu")
    model = fill(HookedTransformer(config), seed)
    with torch.no_grad():
        model.unembed.b_U.zero_()
        if processing:
            model.load_and_process_state_dict(model.state_dict(), **processing)
    path = folder(name) / "state_dict.pt"
    torch.save(model.state_dict(), path, _use_new_zipfile_serialization=bool(processing))
    model.cfg.dtype = torch.float64
    return record(torch_logits(model), f"transformer-lens {version('transformer-lens')}, float64")


def transformer_bridge(name, seed, is_processed):
    """A TransformerBridge's, of version 3 and later."""
    import torch
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import GPT2LMHeadModel

    tokenizer = OUT.parent / "tales-gpt2"
    with tempfile.TemporaryDirectory() as directory:
        fill(GPT2LMHeadModel(gpt2_config()), seed).save_pretrained(directory)
        for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
            (Path(directory) / file).write_bytes((tokenizer / file).read_bytes())
        model = TransformerBridge.boot_transformers(directory, dtype=torch.float32)
    if is_processed:
        model.enable_compatibility_mode()
    torch.save(model.state_dict(), folder(name) / "state_dict.pt")
    with torch.no_grad():
        logits = model(torch.tensor([IDS]))[0].numpy()
    return record(logits, f"transformer-lens {version('transformer-lens')}, float32", ["--n-head", str(H)])


# ---- GGUF ----


def byte_tokens():
    """GPT-2's letters for the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain} | {byte: chr(256 + index) for index, byte in enumerate(others)}
    return [letters[byte] for byte in range(256)]


def gguf(name, seed, stored, width=C, has_vocabulary=False):
    """The names and layouts of llama.cpp's converter, by gguf-py, which quantises as well. Logits are transformers',
    which reads GGUF itself, and llama.cpp's, which rounds activations."""
    import gguf
    import torch
    from transformers import GPT2LMHeadModel

    tokens = (
        byte_tokens() + ["he", "hel", "<|endoftext|>", "[PAD259]"] if has_vocabulary else [str(i) for i in range(V)]
    )
    config = gpt2_config(n_embd=width, vocab_size=len(tokens), n_layer=1 if width > C else L)
    model = fill(GPT2LMHeadModel(config), seed)
    path = folder(name) / "model.gguf"
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_block_count(config.n_layer)
    writer.add_context_length(N)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(4 * width)
    writer.add_head_count(H)
    writer.add_layer_norm_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type({"F32": 0, "F16": 1, "Q8_0": 7}[stored])
    if has_vocabulary:
        kinds = [gguf.TokenType.NORMAL] * 258 + [gguf.TokenType.CONTROL, gguf.TokenType.UNUSED]
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(tokens)
        writer.add_token_types(kinds)
        writer.add_token_merges(["h e", "he l"])
        writer.add_bos_token_id(258)
        writer.add_eos_token_id(258)
    else:
        writer.add_tokenizer_model("no_vocab")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GPT2, config.n_layer)
    state = model.state_dict()
    with torch.no_grad():
        for key in list(state):
            if key == "lm_head.weight":
                continue
            is_matrix = state[key].ndim == 2 and "wpe" not in key
            kind = gguf.GGMLQuantizationType[stored if is_matrix else "F32"]
            values = state[key].T if ".h." in key and is_matrix else state[key]
            data = gguf.quants.quantize(np.ascontiguousarray(values.numpy()), kind)
            writer.add_tensor(names.get_name(key, (".weight", ".bias")), data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    ids = [257, 258, 32] if has_vocabulary else IDS
    more = {
        "llama_cpp": llama_cpp_logits(path, ids).tolist(),
        "llama_cpp_made_by": f"llama-cpp-python {version('llama-cpp-python')}",
    }
    # transformers reads GGUF only with a vocabulary; without one gguf-py reads the weights.
    with torch.no_grad():
        for tensor in gguf.GGUFReader(path).tensors:
            key = next(key for key in state if names.get_name(key, (".weight", ".bias")) == tensor.name)
            values = torch.tensor(gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
            state[key].copy_(values.T if ".h." in key and values.ndim == 2 else values)
    made_by = f"gguf {version('gguf')} to read, {by_transformers()}"
    return record(torch_logits(model, ids), made_by, ids=ids, **more)


def llama_cpp_logits(path, ids):
    import llama_cpp

    logging.getLogger("llama-cpp-python").setLevel(logging.ERROR)
    model_options = llama_cpp.llama_model_default_params()
    model_options.use_extra_bufts = False
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), model_options)
    options = llama_cpp.llama_context_default_params()
    options.n_ctx = options.n_batch = options.n_ubatch = len(ids)
    options.type_k = options.type_v = llama_cpp.GGML_TYPE_F32
    options.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = llama_cpp.llama_init_from_model(model, options)
    count = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    rows = []
    for id in ids:
        assert not llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one((llama_cpp.llama_token * 1)(id), 1))
        rows.append(np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, -1), (count,)).copy())
    return np.array(rows, np.float64).round(4)


PROCESSING = {"fold_ln": True, "center_writing_weights": True, "center_unembed": True, "fold_value_biases": True}
FIXTURES = {
    "pytorch-lm-head": pytorch_lm_head,
    "pytorch-base": pytorch_base,
    "nanogpt": lambda: nanogpt("nanogpt", 3, True, "_orig_mod."),
    "nanogpt-no-bias": lambda: nanogpt("nanogpt-no-bias", 4, False, ""),
    "mingpt": mingpt,
    "mingpt-old": mingpt_old,
    "llm.c-f32": lambda: llm_c("llm.c-f32", 7, __import__("torch").float32),
    "llm.c-bf16": lambda: llm_c("llm.c-bf16", 8, __import__("torch").bfloat16),
    "tensorflow": tensorflow,
    "hooked-transformer": lambda: hooked_transformer("hooked-transformer", 10),
    "hooked-transformer-processed": lambda: hooked_transformer("hooked-transformer-processed", 11, **PROCESSING),
    "transformer-bridge": lambda: transformer_bridge("transformer-bridge", 12, False),
    "transformer-bridge-processed": lambda: transformer_bridge("transformer-bridge-processed", 13, True),
    "gguf-f32": lambda: gguf("gguf-f32", 14, "F32"),
    "gguf-f16": lambda: gguf("gguf-f16", 15, "F16", has_vocabulary=True),
    "gguf-q8_0": lambda: gguf("gguf-q8_0", 16, "Q8_0", width=32),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FIXTURES))
    names = parser.parse_args().names
    records = json.loads(LOGITS.read_text()) if LOGITS.exists() else {}
    for name in names or FIXTURES:
        try:
            records[name] = FIXTURES[name]()
            print(f"{name}: {records[name]['made_by']}")
            lines = [f"{json.dumps(name)}: {json.dumps(records[name])}" for name in FIXTURES if name in records]
            LOGITS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        except ImportError as error:
            print(f"{name}: left as it is: {error}")
            if names:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
