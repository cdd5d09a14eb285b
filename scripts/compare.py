#!/usr/bin/env python3
"""Runs the same weights and prompt through driftless and its peers, and prints their speeds side by side.

    pip install -r scripts/requirements-compare.txt
    scripts/compare.py                                     the embedded model, float weights, one thread
    scripts/compare.py --preset gpt2 --threads 2           random weights of GPT-2's 124M shape
    scripts/compare.py --preset gpt2 --weights int8 --json FILE
    scripts/compare.py --preset gpt2 --weights int4

Every run is a process of its own, and the peers take turns, round after round, so that a busy machine slows all of them
alike. Each generates once to warm up before it is timed. A peer that is missing, or has no such weights, is a row that
says so. Converted models stay in build/compare/ for the next time. Ratios are of driftless, its faster row if there are
two, over the peer.

Prefill ends with the choice of the first token; decode is the tokens after it, one sequence, greedily. Activations are
float and so are keys and values, except where a peer has one type for everything (transformers). The type of the
weights is that of all matrices, the output weights among them. int8 and int4 stand for each peer's own:

    driftless     int8: a scale for every output channel; int4: a scale for every 32 weights. Activations are float in
                  the first row, rounded to 8 bits in the second (--compute int8).
    llama.cpp     a scale for every 32 weights, in f16: Q8_0 and Q4_0, embeddings as well. Activations are rounded to
                  8 bits.
    CTranslate2, ONNX Runtime
                  int8: a scale for every output channel; activations are rounded to 8 bits.
    OpenVINO      int8: a scale for every output channel; int4: a scale for every 32 weights, in f16. Activations are
                  rounded to 8 bits, a scale for every 128 and every 32. Weights in f16 or bf16 it widens to float when
                  it loads.
"""

import argparse
import functools
import json
import logging
import multiprocessing
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from datetime import date
from importlib.metadata import version
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / "build" / "compare"
SEED = 0

GPT2 = {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "bos_token_id": 50256,
    "eos_token_id": 50256,
    "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2",
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "tie_word_embeddings": True,
    "vocab_size": 50257,
}


@dataclass(frozen=True)
class Job:
    """What every peer is to do."""

    model: Path
    driftless: Path
    weights: str
    threads: int
    prompt: tuple
    max_tokens: int


@dataclass(frozen=True)
class Run:
    ids: list
    prefill_seconds: float
    decode_seconds: float


class Unavailable(Exception):
    """A peer cannot do a job; the text says why."""


# ---- checkpoints ----


def read_checkpoint(model):
    """A Hugging Face directory -> its config, {name without the prefix `transformer.`: float array}."""
    from safetensors.numpy import load_file

    config = json.loads((model / "config.json").read_text())
    tensors = load_file(model / "model.safetensors")
    return config, {name.removeprefix("transformer."): tensor.astype(np.float32) for name, tensor in tensors.items()}


def head_of(tensors):
    """The output weights [V, C]."""
    return tensors.get("lm_head.weight", tensors["wte.weight"])


def layer_shapes(width):
    """{name: shape} of one layer; matrices are [in, out]."""
    vectors = {"ln_1.weight": width, "ln_1.bias": width, "ln_2.weight": width, "ln_2.bias": width}
    shapes = {name: (size,) for name, size in vectors.items()}
    for name, rows, columns in (
        ("attn.c_attn", width, 3 * width),
        ("attn.c_proj", width, width),
        ("mlp.c_fc", width, 4 * width),
        ("mlp.c_proj", 4 * width, width),
    ):
        shapes[name + ".weight"] = (rows, columns)
        shapes[name + ".bias"] = (columns,)
    return shapes


def random_tensors(config):
    """Weights drawn as GPT-2's are before training, and norms near the identity."""
    width = config["n_embd"]
    shapes = {"wte.weight": (config["vocab_size"], width), "wpe.weight": (config["n_positions"], width)}
    for layer in range(config["n_layer"]):
        shapes |= {f"h.{layer}.{name}": shape for name, shape in layer_shapes(width).items()}
    shapes |= {"ln_f.weight": (width,), "ln_f.bias": (width,)}
    generator = np.random.default_rng(SEED)
    draw = {name: 0.02 * generator.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    return {name: tensor + ("ln_" in name and name.endswith("weight")) for name, tensor in draw.items()}


def write_checkpoint(config, directory):
    from safetensors.numpy import save_file

    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(random_tensors(config), directory / "model.safetensors", metadata={"format": "pt"})


def made_once(path, sources, write):
    """`path`, after `write(path)` unless it is there and newer than the sources. Never left half written."""
    if path.exists() and all(path.stat().st_mtime > source.stat().st_mtime for source in sources):
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name("partial-" + path.name)
    for old in (partial, path):
        shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
    write(partial)
    partial.rename(path)
    return path


def converted(job, name, write):
    """The job's model in a peer's own format: `write(config, tensors, path)` where it was not converted yet."""
    source = job.model / "model.safetensors"
    path = CACHE / job.model.name / name
    return made_once(path, [source, Path(__file__)], lambda partial: write(*read_checkpoint(job.model), partial))


# ---- timing ----


def run_stepwise(step, job):
    """`step(ids)` feeds ids after those before and gives the likeliest next one."""
    start = time.perf_counter()
    ids = [step(job.prompt)]
    first = time.perf_counter()
    while len(ids) < job.max_tokens:
        ids.append(step(ids[-1:]))
    return Run(ids, first - start, time.perf_counter() - first)


# ---- peers: each opens a job's model and gives a function that generates ----


def open_driftless(job, options=()):
    """Each run is a process, which generates twice from the prompt. Its times count from the start of the first."""
    command = [job.driftless, "generate", "--model", job.model, "--weights", job.weights, "--threads", str(job.threads)]
    command += options
    command += ["--prompts", "-", "--batch", "1", "--max-tokens", str(job.max_tokens)]
    line = json.dumps({"ids": job.prompt}) + "\n"

    def generate(job):
        done = subprocess.run(command, input=2 * line, capture_output=True, text=True)
        if done.returncode:
            raise Unavailable(done.stderr.strip().splitlines()[-1])
        warm_up, timed = map(json.loads, done.stdout.splitlines())
        start = warm_up["prefill_seconds"] + warm_up["decode_seconds"]
        return Run(timed["output_ids"], timed["prefill_seconds"] - start, timed["decode_seconds"])

    return generate


def open_transformers(job):
    import torch
    import transformers

    torch.set_num_threads(job.threads)
    transformers.utils.logging.disable_progress_bar()
    dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[job.weights]
    model = transformers.AutoModelForCausalLM.from_pretrained(job.model, dtype=dtype).eval()

    def generate(job):
        cache = None

        def step(ids):
            nonlocal cache
            output = model(torch.tensor([ids]), cache=cache, use_cache=True, logits_to_keep=1)
            cache = output.cache
            return int(output.logits[0, -1].argmax())

        with torch.inference_mode():
            return run_stepwise(step, job)

    return generate


def open_ctranslate2(job):
    import ctranslate2

    def write(config, tensors, path):
        ctranslate2_converter(config, tensors).convert(str(path), quantization=compute_type)

    compute_type = {"f32": "float32", "int8": "int8_float32"}[job.weights]
    path = converted(job, f"ctranslate2-{job.weights}", write)
    model = ctranslate2.Generator(str(path), compute_type=compute_type, intra_threads=job.threads)

    def generate(job):
        ids, times = [], [time.perf_counter()]

        def on_token(result):
            ids.append(result.token_id)
            times.append(time.perf_counter())
            return False

        prompt = [str(token) for token in job.prompt]
        options = {"max_length": job.max_tokens, "end_token": [NO_TOKEN], "include_prompt_in_result": False}
        model.generate_batch([prompt], callback=on_token, **options)
        return Run(ids, times[1] - times[0], times[-1] - times[1])

    return generate


NO_TOKEN = 2**31 - 1  # an id that no vocabulary has, where CTranslate2 wants one that ends a generation


def ctranslate2_converter(config, tensors):
    """Its own converter from transformers needs tokenizer files, so this one fills its GPT-2 from arrays."""
    from ctranslate2.converters.converter import Converter
    from ctranslate2.specs import TransformerDecoderModelSpec
    from ctranslate2.specs.common_spec import Activation

    def set_norm(spec, name):
        spec.gamma, spec.beta = tensors[name + ".weight"], tensors[name + ".bias"]

    def set_linear(spec, name):
        spec.weight, spec.bias = np.ascontiguousarray(tensors[name + ".weight"].T), tensors[name + ".bias"]

    def set_layer(spec, prefix):
        set_norm(spec.self_attention.layer_norm, prefix + "ln_1")
        set_linear(spec.self_attention.linear[0], prefix + "attn.c_attn")
        set_linear(spec.self_attention.linear[1], prefix + "attn.c_proj")
        set_norm(spec.ffn.layer_norm, prefix + "ln_2")
        set_linear(spec.ffn.linear_0, prefix + "mlp.c_fc")
        set_linear(spec.ffn.linear_1, prefix + "mlp.c_proj")

    class FromArrays(Converter):
        def _load(self):
            model = TransformerDecoderModelSpec.from_config(
                config["n_layer"], config["n_head"], activation=Activation.GELUTanh
            )
            decoder = model.decoder
            decoder.scale_embeddings = False
            decoder.embeddings.weight = tensors["wte.weight"]
            decoder.position_encodings.encodings = tensors["wpe.weight"]
            for layer, spec in enumerate(decoder.layer):
                set_layer(spec, f"h.{layer}.")
            set_norm(decoder.layer_norm, "ln_f")
            decoder.projection.weight = head_of(tensors)
            model.config.layer_norm_epsilon = config["layer_norm_epsilon"]
            model.register_vocabulary([str(token) for token in range(config["vocab_size"])])
            return model

    return FromArrays()


def open_onnxruntime(job):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job.threads
    options.log_severity_level = 3
    path = onnx_model(job)
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [node.name for node in session.get_inputs() if node.name.startswith("past")]
    heads, width = (session.get_inputs()[-1].shape[axis] for axis in (1, 3))
    shape = (1, heads, len(job.prompt) + job.max_tokens, width)

    def generate(job):
        # Keys and values are written in place: the same buffers go in and come out.
        buffers = [onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32)) for _ in names]
        binding = session.io_binding()
        for name, buffer in zip(names, buffers):
            binding.bind_ortvalue_input(name, buffer)
            binding.bind_ortvalue_output(name.replace("past", "present"), buffer)
        length = 0

        def step(ids):
            nonlocal length
            positions = np.arange(length, length + len(ids))
            length += len(ids)
            binding.bind_cpu_input("ids", np.array(ids))
            binding.bind_cpu_input("positions", positions)
            binding.bind_cpu_input("last_key", np.array([length - 1], np.int32))
            binding.bind_cpu_input("keys", np.array(length, np.int32))
            binding.bind_output("logits")
            session.run_with_iobinding(binding)
            return int(binding.get_outputs()[-1].numpy().argmax())

        return run_stepwise(step, job)

    return generate


def onnx_model(job):
    def write(config, tensors, path):
        import onnx

        path.mkdir()
        model = onnx_graph(config, tensors)
        onnx.save(model, path / "model.onnx", save_as_external_data=True, location="weights", size_threshold=1024)

    def quantize(config, tensors, path):
        from onnx import TensorProto
        from onnxruntime.quantization import quantize_dynamic

        path.mkdir()
        quantize_dynamic(
            converted(job, "onnx-f32", write) / "model.onnx",
            path / "model.onnx",
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            use_external_data_format=True,
            extra_options={"DefaultTensorType": TensorProto.FLOAT},  # that of what its own operators put out
        )

    directory = converted(job, f"onnx-{job.weights}", write if job.weights == "f32" else quantize)
    return directory / "model.onnx"


def onnx_graph(config, tensors):
    """GPT-2 over one sequence's rows [T, C], with the operators that ONNX Runtime's own generative models use."""
    from onnx import TensorProto, helper, numpy_helper

    width, heads = config["n_embd"], config["n_head"]
    nodes, inputs, outputs = [], [], []
    constants = dict(tensors) | {"lm_head.weight": np.ascontiguousarray(head_of(tensors).T)}
    constants |= {"qkv_shape": np.array([1, -1, 3 * width]), "rows_shape": np.array([-1, width])}

    def add(operator, *arguments, outputs=1, domain="", **attributes):
        names = [f"{operator}_{len(nodes)}_{output}" for output in range(outputs)]
        nodes.append(helper.make_node(operator, arguments, names, names[0], domain=domain, **attributes))
        return names if outputs > 1 else names[0]

    def norm(rows, name):
        epsilon = config["layer_norm_epsilon"]
        return add("LayerNormalization", rows, name + ".weight", name + ".bias", epsilon=epsilon)

    def linear(rows, name):
        return add("Gemm", rows, name + ".weight", name + ".bias")

    def attend(rows, layer):
        past = [f"past_{kind}_{layer}" for kind in ("key", "value")]
        present = [name.replace("past", "present") for name in past]
        for names, ports in ((past, inputs), (present, outputs)):
            shape = (1, heads, "positions_kept", width // heads)
            ports.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in names)
        qkv = add("Reshape", rows, "qkv_shape")
        mixed = f"attention_{layer}"
        nodes.append(
            helper.make_node(
                "GroupQueryAttention",
                [qkv, "", "", *past, "last_key", "keys"],
                [mixed, *present],
                domain="com.microsoft",
                num_heads=heads,
                kv_num_heads=heads,
            )
        )
        return add("Reshape", mixed, "rows_shape")

    rows = add("Add", add("Gather", "wte.weight", "ids"), add("Gather", "wpe.weight", "positions"))
    for layer in range(config["n_layer"]):
        prefix = f"h.{layer}."
        mixed = attend(linear(norm(rows, prefix + "ln_1"), prefix + "attn.c_attn"), layer)
        rows = add("Add", rows, linear(mixed, prefix + "attn.c_proj"))
        hidden = add("Gelu", linear(norm(rows, prefix + "ln_2"), prefix + "mlp.c_fc"), approximate="tanh")
        rows = add("Add", rows, linear(hidden, prefix + "mlp.c_proj"))
    constants["last_row"] = np.array([-1])
    nodes.append(
        helper.make_node("MatMul", [norm(add("Gather", rows, "last_row"), "ln_f"), "lm_head.weight"], ["logits"])
    )

    ids = [helper.make_tensor_value_info(name, TensorProto.INT64, ("rows",)) for name in ("ids", "positions")]
    lengths = [
        helper.make_tensor_value_info("last_key", TensorProto.INT32, (1,)),
        helper.make_tensor_value_info("keys", TensorProto.INT32, ()),
    ]
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, (1, config["vocab_size"]))
    initializers = [numpy_helper.from_array(tensor, name) for name, tensor in constants.items()]
    graph = helper.make_graph(nodes, "gpt2", ids + lengths + inputs, outputs + [logits], initializers)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def open_openvino(job):
    import openvino

    path = converted(job, f"openvino-{job.weights}", lambda *checkpoint: write_openvino(*checkpoint, job.weights))
    options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": job.threads}
    # On its own it takes what it likes for arithmetic, and 8 bits for keys and values.
    options |= {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
    # Prefill of int8 gains an eighth by more than its 32; weights in groups of 32 would then meet floats.
    options |= {"DYNAMIC_QUANTIZATION_GROUP_SIZE": 128 if job.weights == "int8" else 32}
    request = openvino.Core().compile_model(path / "model.xml", "CPU", options).create_infer_request()

    def generate(job):
        request.reset_state()
        length = 0

        def step(ids):
            nonlocal length
            positions = np.arange(length, length + len(ids))
            length += len(ids)
            mask = np.where(np.arange(length) <= positions[:, None], np.float32(0), np.float32(-np.inf))
            request.infer([np.array([ids]), positions[None], mask[None, None], np.zeros(1, np.int32)])
            return int(request.get_output_tensor().data.argmax())

        return run_stepwise(step, job)

    return generate


def write_openvino(config, tensors, path, weights):
    import openvino

    path.mkdir()
    openvino.save_model(openvino_model(config, tensors, weights), path / "model.xml", compress_to_fp16=False)


def openvino_model(config, tensors, weights):
    """GPT-2 over rows [1, T, C]; keys and values are state, in the form that its CPU plugin fuses with attention."""
    import openvino
    from openvino import opset13
    from openvino.op.util import Variable, VariableInfo

    heads, size = config["n_head"], config["n_embd"] // config["n_head"]
    inputs = [opset13.parameter([1, -1], np.int64, name) for name in ("ids", "positions")]
    inputs += [opset13.parameter([1, 1, -1, -1], np.float32, "mask"), opset13.parameter([1], np.int32, "sequence")]
    ids, positions, mask, sequence = inputs
    first, last = (opset13.constant(np.array(index)) for index in (0, [-1]))
    swapped, split = opset13.constant(np.array([0, 2, 1, 3])), opset13.constant(np.array([0, 0, heads, size]))
    joined = opset13.constant(np.array([0, 0, heads * size]))
    states = []

    def norm(rows, name):
        scaled = opset13.mvn(rows, last, True, config["layer_norm_epsilon"], "inside_sqrt")
        return opset13.add(opset13.multiply(scaled, tensors[name + ".weight"]), tensors[name + ".bias"])

    def multiply(rows, matrix):
        return opset13.matmul(rows, openvino_matrix(matrix, weights), False, True)

    def linear(rows, name):
        return opset13.add(multiply(rows, tensors[name + ".weight"].T), tensors[name + ".bias"])

    def remembered(rows, name):
        """Those of earlier steps and these."""
        info = VariableInfo()
        info.variable_id, info.data_type = name, openvino.Type.f32
        info.data_shape = openvino.PartialShape([-1, heads, -1, size])
        variable = Variable(info)
        before = opset13.read_value(opset13.constant(np.zeros((1, heads, 0, size), np.float32)), variable)
        rows = opset13.concat([opset13.gather(before, sequence, first), rows], 2)
        states.append(opset13.assign(rows, variable))
        return rows

    def attend(rows, layer):
        parts = opset13.split(rows, opset13.constant(np.array(2)), 3).outputs()
        q, k, v = (opset13.transpose(opset13.reshape(part, split, True), swapped) for part in parts)
        k, v = (remembered(part, f"{name}_{layer}") for name, part in (("key", k), ("value", v)))
        mixed = opset13.scaled_dot_product_attention(q, k, v, mask)
        return opset13.reshape(opset13.transpose(mixed, swapped), joined, True)

    rows = [opset13.gather(tensors[f"{n}.weight"], i, first) for n, i in (("wte", ids), ("wpe", positions))]
    rows = opset13.add(*rows)
    for layer in range(config["n_layer"]):
        prefix = f"h.{layer}."
        mixed = attend(linear(norm(rows, prefix + "ln_1"), prefix + "attn.c_attn"), layer)
        rows = opset13.add(rows, linear(mixed, prefix + "attn.c_proj"))
        hidden = opset13.gelu(linear(norm(rows, prefix + "ln_2"), prefix + "mlp.c_fc"), "tanh")
        rows = opset13.add(rows, linear(hidden, prefix + "mlp.c_proj"))
    row = opset13.gather(rows, last, opset13.constant(np.array(1)))
    return openvino.Model([opset13.result(multiply(norm(row, "ln_f"), head_of(tensors)))], states, inputs, "gpt2")


def openvino_matrix(matrix, weights):
    """[out, in], as whole numbers times scales for int8 and int4."""
    import openvino
    from openvino import opset13

    matrix = np.ascontiguousarray(matrix)
    if weights == "f32":
        return opset13.constant(matrix)
    groups = matrix if weights == "int8" else matrix.reshape(len(matrix), -1, 32)
    scales = np.abs(groups).max(axis=-1, keepdims=True) / {"int8": 127, "int4": 7}[weights]
    whole = np.rint(groups / np.where(scales, scales, 1)).astype(np.int8)
    if weights == "int4":
        low, high = (whole.view(np.uint8).reshape(-1, 2) & 15).T
        packed = low | high << 4
        whole = openvino.Tensor(packed, list(whole.shape), openvino.Type.i4)
    whole = opset13.constant(whole, shared_memory=False)
    matrix_again = opset13.multiply(opset13.convert(whole, "f16"), opset13.constant(scales.astype(np.float16)))
    shaped = opset13.reshape(matrix_again, opset13.constant(np.array(matrix.shape)), False)
    return opset13.convert(shaped if weights == "int4" else matrix_again, "f32")


def open_llama_cpp(job):
    import llama_cpp

    logging.getLogger("llama-cpp-python").setLevel(logging.ERROR)
    path = converted(job, f"{job.weights}.gguf", lambda *checkpoint: write_gguf(*checkpoint, job.weights))
    model, context = open_gguf(path, job)
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))

    def step(ids):
        tokens = (llama_cpp.llama_token * len(ids))(*ids)
        if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(tokens, len(ids))):
            raise Unavailable("llama_decode failed")
        logits = llama_cpp.llama_get_logits_ith(context, -1)
        return int(np.ctypeslib.as_array(logits, (vocabulary,)).argmax())

    def generate(job):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        return run_stepwise(step, job)

    return generate


def open_gguf(path, job):
    """llama.cpp's model and context, with room for the whole job in one batch."""
    import llama_cpp

    options = llama_cpp.llama_model_default_params()
    # Its AMX kernels, which only 8-bit weights use here, end the process on some virtual machines.
    options.use_extra_bufts = False
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), options)
    if not model:
        raise Unavailable(f"llama.cpp does not load {path.name}")
    options = llama_cpp.llama_context_default_params()
    options.n_ctx = options.n_batch = options.n_ubatch = len(job.prompt) + job.max_tokens
    options.n_threads = options.n_threads_batch = job.threads
    options.type_k = options.type_v = llama_cpp.GGML_TYPE_F32
    # Flash attention with float keys and values: prefill gains a fifth, decode loses a third.
    options.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = llama_cpp.llama_init_from_model(model, options)
    if not context:
        raise Unavailable("llama.cpp makes no context")
    return model, context


def write_gguf(config, tensors, path, weights):
    import gguf

    stored = {"f32": "F32", "f16": "F16", "bf16": "BF16", "int8": "Q8_0", "int4": "Q4_0"}[weights]
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_feed_forward_length(4 * config["n_embd"])
    writer.add_block_count(config["n_layer"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GPT2, config["n_layer"])
    for name, tensor in tensors.items():
        is_matrix = tensor.ndim == 2 and name != "wpe.weight"
        kind = gguf.GGMLQuantizationType[stored if is_matrix else "F32"]
        laid_out = tensor.T if name.startswith("h.") else tensor
        data = gguf.quants.quantize(np.ascontiguousarray(laid_out), kind)
        prefix = "" if name.startswith("lm_head") else "transformer."
        writer.add_tensor(names.get_name(prefix + name, (".weight", ".bias")), data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@dataclass(frozen=True)
class Peer:
    open: object
    weights: tuple
    packages: tuple = ()


TYPES = ("f32", "f16", "bf16", "int8", "int4")
OWN = {
    "driftless": Peer(open_driftless, TYPES),
    "driftless, 8-bit activations": Peer(
        functools.partial(open_driftless, options=("--compute", "int8")), ("int8", "int4")
    ),
}
PEERS = OWN | {
    "transformers": Peer(open_transformers, ("f32", "f16", "bf16"), ("transformers", "torch")),
    "llama.cpp": Peer(open_llama_cpp, TYPES, ("llama-cpp-python",)),
    "CTranslate2": Peer(open_ctranslate2, ("f32", "int8"), ("ctranslate2",)),
    "ONNX Runtime": Peer(open_onnxruntime, ("f32", "int8"), ("onnxruntime",)),
    "OpenVINO": Peer(open_openvino, ("f32", "int8", "int4"), ("openvino",)),
}


def measure(name, job):
    """Runs in a process of its own. Gives a Run, or the reason why there is none."""
    try:
        generate = PEERS[name].open(job)
        if name not in OWN:
            generate(replace(job, max_tokens=min(4, job.max_tokens)))
        return generate(job)
    except ImportError as error:
        return f"not installed: {error}"
    except Unavailable as error:
        return f"failed: {error}"
    except Exception as error:
        return f"failed: {type(error).__name__}: {error}"


def measure_alone(name, job):
    if job.weights not in PEERS[name].weights:
        return f"has no {job.weights} weights on a CPU, or none that this script knows to make"
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            return pool.submit(measure, name, job).result()
    except BrokenProcessPool:
        return "failed: its process ended"


# ---- the table ----


def measure_rounds(job, rounds):
    """{peer: its runs, or the reason why there are none}, the peers taking turns."""
    results = {name: [] for name in PEERS if name not in OWN or job.weights in OWN[name].weights}
    for turn in range(rounds):
        for name in results:
            if isinstance(results[name], str):
                continue
            print(f"round {turn + 1} of {rounds}: {name}", file=sys.stderr)
            run = measure_alone(name, job)
            results[name] = run if isinstance(run, str) else results[name] + [run]
    return results


def versions_of(name, job):
    """{package: version}"""
    if name in OWN:
        return dict([subprocess.run([job.driftless, "--version"], capture_output=True, text=True).stdout.split()])
    return {package: version(package) for package in PEERS[name].packages}


def summary(name, runs, job, expected_ids):
    """One row, as JSON holds it."""
    if isinstance(runs, str):
        return {"peer": name, "missing": runs}
    prefill = [len(job.prompt) / run.prefill_seconds for run in runs]
    decode = [(job.max_tokens - 1) / run.decode_seconds for run in runs]
    return {
        "peer": name,
        "versions": versions_of(name, job),
        "prefill_tokens_per_s": spread(prefill),
        "decode_tokens_per_s": spread(decode),
        "first_difference": first_difference(runs[0].ids, expected_ids),
        "output_ids": runs[0].ids,
    }


def spread(figures):
    return {"median": statistics.median(figures), "min": min(figures), "max": max(figures)}


def first_difference(ids, expected):
    """The index of the first token that differs; None for none."""
    pairs = list(zip(ids, expected, strict=True))
    return next((index for index, (a, b) in enumerate(pairs) if a != b), None)


def summaries(results, job):
    """Rows of the table; same ids are those of the first row that has any."""
    ids = next((runs[0].ids for runs in results.values() if not isinstance(runs, str)), [])
    rows = [summary(name, runs, job, ids) for name, runs in results.items()]
    measured = [row for row in rows if "missing" not in row]
    if not any(row["peer"] in OWN for row in measured):
        raise SystemExit("\n".join(f"{row['peer']}: {row['missing']}" for row in rows if row["peer"] in OWN))
    for figure in FIGURES:
        own = [speed(row, figure) for row in measured if row["peer"] in OWN]
        for row in measured:
            row[f"{figure}_driftless_over_peer"] = max(own) / speed(row, figure)
    return rows


FIGURES = ("prefill", "decode")


def speed(row, figure):
    return row[figure + "_tokens_per_s"]["median"]


def lowest(rows):
    """The smallest ratio to a peer; None if there is none."""
    keys = {figure: f"{figure}_driftless_over_peer" for figure in FIGURES}
    ratios = [
        {"ratio": row[key], "figure": figure, "peer": row["peer"]}
        for row in rows
        for figure, key in keys.items()
        if row["peer"] not in OWN and key in row
    ]
    return min(ratios, key=lambda entry: entry["ratio"], default=None)


def cells(row):
    if "missing" in row:
        return [row["peer"], row["missing"]]
    line = [row["peer"]]
    for figure in FIGURES:
        ratio = row.get(f"{figure}_driftless_over_peer")
        line += [f"{speed(row, figure):,.1f}", f"{ratio:.2f} x" if ratio else ""]
    difference = row["first_difference"]
    return line + ["yes" if difference is None else f"token {difference} differs"]


def print_table(rows):
    heads = ["", "prefill tokens/s", "driftless over it", "decode tokens/s", "driftless over it", "same ids"]
    table = [heads] + [cells(row) for row in rows]
    widths = [max(len(line[column]) for line in table if len(line) == len(heads)) for column in range(len(heads))]
    widths[0] = max(len(line[0]) for line in table)
    for line in table:
        aligned = [f"{cell:>{width}}" for cell, width in zip(line[1:], widths[1:])]
        print("  ".join([f"{line[0]:<{widths[0]}}", *(aligned if len(line) == len(heads) else line[1:])]))
    versions = {package: number for row in rows for package, number in row.get("versions", {}).items()}
    print(", ".join(f"{package} {number}" for package, number in versions.items()))
    if least := lowest(rows):
        print(f"lowest: {least['ratio']:.2f} ({least['figure']} over {least['peer']})")


# ---- the command ----


def parse_arguments():
    parser = argparse.ArgumentParser(description="Compare driftless with its peers: same weights, prompt and threads.")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--model", type=Path, default=ROOT / "fixtures" / "tales-gpt2", help="a Hugging Face directory")
    source.add_argument("--preset", choices=["gpt2"], help="random weights of this shape instead")
    parser.add_argument("--driftless", type=Path, default=ROOT / "build" / "release" / "driftless", help="the command")
    parser.add_argument("--weights", choices=TYPES, default="f32", help="stored type")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompt-tokens", type=int, default=384, help="random ids (default: %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=64, help="tokens to generate (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each peer (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures and ids there as well")
    arguments = parser.parse_args()
    if min(arguments.threads, arguments.prompt_tokens, arguments.max_tokens - 1, arguments.rounds) < 1:
        parser.error("expected at least 1 thread, prompt token and round, and 2 tokens to generate")
    return arguments


def make_job(arguments):
    model = arguments.model.resolve()
    if arguments.preset:
        model = made_once(CACHE / f"random-{arguments.preset}", [], lambda path: write_checkpoint(GPT2, path))
    config = json.loads((model / "config.json").read_text())
    needed = arguments.prompt_tokens + arguments.max_tokens
    if needed > config["n_positions"]:
        raise SystemExit(f"the model has {config['n_positions']} positions, {needed} were asked for")
    prompt = np.random.default_rng(SEED).integers(config["vocab_size"], size=arguments.prompt_tokens)
    return Job(
        model=model,
        driftless=arguments.driftless.resolve(),
        weights=arguments.weights,
        threads=arguments.threads,
        prompt=tuple(prompt.tolist()),
        max_tokens=arguments.max_tokens,
    )


def set_environment(threads):
    """For the child processes, which read it when they import their libraries."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"


def processor():
    """The processor's name where Linux tells it, else the architecture."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main():
    arguments = parse_arguments()
    set_environment(arguments.threads)
    job = make_job(arguments)
    rows = summaries(measure_rounds(job, arguments.rounds), job)
    threads = f"{job.threads} thread{'s' if job.threads > 1 else ''}"
    print(f"{job.model.name}, {job.weights} weights, {threads}, {len(job.prompt)} prompt tokens, ", end="")
    print(f"{job.max_tokens} generated; medians of {arguments.rounds} rounds")
    print_table(rows)
    if arguments.json:
        setting = {"model": job.model.name, "weights": job.weights, "threads": job.threads, "rounds": arguments.rounds}
        setting |= {"prompt_tokens": len(job.prompt), "max_tokens": job.max_tokens}
        report = {"date": date.today().isoformat(), "machine": processor(), **setting, "peers": rows}
        report["lowest"] = lowest(rows)
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
