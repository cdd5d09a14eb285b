#!/usr/bin/env python3
"""Turns a GPT-2 checkpoint of another program into a Hugging Face directory, which driftless reads.

    pip install -r scripts/requirements-convert.txt
    scripts/convert.py pytorch_model.bin DIR               transformers, with its config.json beside it
    scripts/convert.py out/ckpt.pt DIR                     nanoGPT
    scripts/convert.py model.pt DIR --n-head 6             minGPT
    scripts/convert.py gpt2_124M.bin DIR                   llm.c
    scripts/convert.py models/124M/model.ckpt DIR          OpenAI's TensorFlow checkpoint
    scripts/convert.py state_dict.pt DIR                   TransformerLens
    scripts/convert.py model.gguf DIR                      GGUF

The format is told by the contents. Files of PyTorch need PyTorch, the others NumPy alone. Values are written as they
are, in the type in which they are stored; int8 of GGUF becomes float. Weights are data: no pickled code is run. One
tensor at a time is in memory, as far as the source can be mapped. DIR must not exist; it appears when it is whole.

Exit status 2, and one line on standard error, for a file that cannot be converted.
"""

import argparse
import json
import math
import mmap
import os
import re
import shutil
import struct
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

try:
    import numpy as np
except ImportError:
    print("convert.py: expected NumPy, found none: pip install numpy", file=sys.stderr)
    sys.exit(2)

# Those of driftless: what is larger is refused before lists of names are made from it.
MOST = {"vocab_size": 1 << 24, "n_positions": 1 << 20, "n_embd": 1 << 20, "n_layer": 1 << 12, "n_inner": 1 << 22}
ACTIVATIONS = ("gelu_new", "gelu", "relu", "silu", "tanh")
MATRICES = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")

# How safetensors' types are held in memory. NumPy has no bfloat16; its bits are moved as they are.
DTYPES = {"F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}

# What is copied from beside a source, and as what. The later of two for one place wins.
BESIDE = {
    "encoder.json": "vocab.json",
    "vocab.bpe": "merges.txt",
    "vocab.json": "vocab.json",
    "merges.txt": "merges.txt",
    "tokenizer.json": "tokenizer.json",
    "tokenizer_config.json": "tokenizer_config.json",
    "added_tokens.json": "added_tokens.json",
    "special_tokens_map.json": "special_tokens_map.json",
    "generation_config.json": "generation_config.json",
}


class Refused(Exception):
    """A source that cannot be converted; the text names the file, the key or tensor, what was expected and found."""


def quoted(name):
    """A text from a file, for an error message: on one line, and not longer than a line can bear."""
    text = json.dumps(str(name))
    return text if len(text) <= 200 else text[:200] + '..."'


def whole_number(value, place, most):
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise Refused(f"{place}: expected a whole number from 1 to {most}, found {quoted(value)}")
    return value


# ---- tensors, which stay in the source's file until they are written ----


@dataclass(frozen=True)
class Tensor:
    """`read` gives an array of this shape, of the type that `dtype` has in DTYPES. `place` is for error messages."""

    place: str
    dtype: str
    shape: tuple
    read: Callable

    def transposed(self, *axes):
        axes = axes or tuple(reversed(range(len(self.shape))))
        shape = tuple(self.shape[axis] for axis in axes)
        return Tensor(self.place, self.dtype, shape, lambda: self.read().transpose(axes))

    def reshaped(self, *shape):
        return Tensor(self.place, self.dtype, shape, lambda: self.read().reshape(shape))

    def rows(self, count):
        return Tensor(self.place, self.dtype, (count, *self.shape[1:]), lambda: self.read()[:count])

    def floats(self):
        """The values in float64."""
        array = self.read()
        return (
            (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
            if self.dtype == "BF16"
            else array.astype(np.float64)
        )


def constant(place, value, *shape):
    return Tensor(place, "F32", shape, lambda: np.full(shape, value, np.float32))


def array_tensor(place, array):
    return Tensor(place, "F32", array.shape, lambda: array)


def joined(tensors):
    """Along the last axis."""
    first = tensors[0]
    for tensor in tensors:
        if (tensor.dtype, tensor.shape) != (first.dtype, first.shape):
            raise Refused(
                f"{tensor.place}: expected {first.dtype} of shape {list(first.shape)}, as of {first.place}, "
                f"found {tensor.dtype} of shape {list(tensor.shape)}"
            )
    shape = (*first.shape[:-1], len(tensors) * first.shape[-1])
    return Tensor(first.place, first.dtype, shape, lambda: np.concatenate([tensor.read() for tensor in tensors], -1))


@dataclass
class Model:
    """What a source holds. Tensors have the names of GPT2Model, and lm_head.weight; matrices are [in, out]."""

    path: Path
    format: str
    tensors: dict
    n_head: int
    activation: str = "gelu_new"
    epsilon: float = 1e-5
    config: dict = field(default_factory=dict)  # further keys for config.json, or all of them
    sizes: dict = field(default_factory=dict)  # {key of config.json: (what the source says, where)}
    files: dict = field(default_factory=dict)  # {name: text} to be written beside the weights
    notes: list = field(default_factory=list)


# ---- files ----


def opened(path):
    """A file's bytes, mapped."""
    if not path.is_file():  # a named pipe would wait for its writer
        raise Refused(f"{path}: expected a file, found " + ("something else" if path.exists() else "none"))
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise Refused(f"{path}: expected a checkpoint, found an empty file")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def tensor_in(data, place, dtype, shape, offset):
    """Values that stand in a mapped file as they are."""
    count = math.prod(shape)
    check_range(data, place, offset, count * DTYPES[dtype].itemsize)
    return Tensor(place, dtype, tuple(shape), lambda: np.frombuffer(data, DTYPES[dtype], count, offset).reshape(shape))


def check_range(data, place, offset, size):
    if not 0 <= offset <= len(data) or not 0 <= size <= len(data) - offset:
        raise Refused(f"{place}: expected {size} bytes at {offset}, found a file of {len(data)}")


def read_json(path):
    """An object from a JSON file."""
    data = opened(path)
    try:
        value = json.loads(data[:].decode())
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path}: expected JSON: {error}") from None
    if not isinstance(value, dict):
        raise Refused(f"{path}: expected an object")
    return value


class Cursor:
    """Reads a mapped file from its beginning; never past its end."""

    def __init__(self, data, place):
        self.data, self.place, self.offset = data, place, 0

    def take(self, size):
        if not 0 <= size <= len(self.data) - self.offset:
            raise Refused(f"{self.place}: expected {size} bytes at {self.offset}, found {len(self.data) - self.offset}")
        self.offset += size
        return self.data[self.offset - size : self.offset]

    def number(self, form):
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0]


# ---- llm.c ----

LLM_C_MAGIC = 20240326


def read_llm_c(path, options):
    """train_gpt2.py's write_model: 256 int32, then each kind of tensor for all layers. Matrices are [out, in], and the
    vocabulary has rows of padding, which llm.c does not use either."""
    data = opened(path)
    header = Cursor(data, path)
    words = [header.number("i") for _ in range(256)]
    if words[0] != LLM_C_MAGIC or words[1] not in (3, 5):
        raise Refused(
            f"{path}: expected magic {LLM_C_MAGIC} and version 3 (float32) or 5 (bfloat16), "
            f"found {words[0]} and {words[1]}"
        )
    dtype = "F32" if words[1] == 3 else "BF16"
    keys = ("n_positions", "vocab_size", "n_layer", "n_head", "n_embd", "padded vocab_size")
    limits = {"n_head": MOST["n_embd"], "padded vocab_size": MOST["vocab_size"]} | MOST
    sizes = {key: whole_number(word, f"{path}: {key}", limits[key]) for key, word in zip(keys, words[2:])}
    rows, width = sizes["padded vocab_size"], sizes["n_embd"]
    if rows < sizes["vocab_size"]:
        raise Refused(f"{path}: padded vocab_size: expected {sizes['vocab_size']} or more, found {rows}")
    layer_kinds = {
        "ln_1.weight": (width,),
        "ln_1.bias": (width,),
        "attn.c_attn.weight": (3 * width, width),
        "attn.c_attn.bias": (3 * width,),
        "attn.c_proj.weight": (width, width),
        "attn.c_proj.bias": (width,),
        "ln_2.weight": (width,),
        "ln_2.bias": (width,),
        "mlp.c_fc.weight": (4 * width, width),
        "mlp.c_fc.bias": (4 * width,),
        "mlp.c_proj.weight": (width, 4 * width),
        "mlp.c_proj.bias": (width,),
    }
    shapes = {"wte.weight": (rows, width), "wpe.weight": (sizes["n_positions"], width)}
    for kind, shape in layer_kinds.items():
        shapes |= {f"h.{layer}.{kind}": shape for layer in range(sizes["n_layer"])}
    shapes |= {"ln_f.weight": (width,), "ln_f.bias": (width,)}

    tensors, offset = {}, header.offset
    for name, shape in shapes.items():
        tensor = tensor_in(data, f"{path}: tensor {name}", dtype, shape, offset)
        offset += math.prod(shape) * DTYPES[dtype].itemsize
        tensors[name] = tensor.transposed() if name.endswith(MATRICES) else tensor
    if offset != len(data):
        raise Refused(f"{path}: expected {offset} bytes, by the sizes in its header, found {len(data)}")
    tensors["wte.weight"] = tensors["wte.weight"].rows(sizes["vocab_size"])
    return Model(path, "llm.c", tensors, sizes["n_head"])


# ---- OpenAI's TensorFlow checkpoint: a tensor bundle, whose index is a table of LevelDB ----

TABLE_MAGIC = 0xDB4775248B80FB57
TENSORFLOW_TYPES = {1: "F32", 2: "F64", 14: "BF16", 19: "F16"}
LANE = 1024


def crc_table(bits):
    """What the low bits of a CRC-32C register become while they are shifted out."""
    table = np.arange(1 << bits, dtype=np.uint32)
    for _ in range(bits):
        table = (table >> 1) ^ np.where(table & 1, np.uint32(0x82F63B78), np.uint32(0))
    return table


OCTET_TABLE, PAIR_TABLE = crc_table(8), crc_table(16)


def crc_step(registers, pairs):
    """Registers after two more bytes each."""
    return PAIR_TABLE.take((registers ^ pairs) & 0xFFFF) ^ (registers >> 16)


def lane_shift():
    """[4, 256]: what each byte of a register has become after a lane of zeros."""
    registers = np.arange(256, dtype=np.uint32)[None, :] << np.array([[0], [8], [16], [24]], np.uint32)
    for _ in range(LANE // 2):
        registers = crc_step(registers, np.uint32(0))
    return registers.tolist()


def crc32c(data):
    """CRC-32C of bytes, some thousand lanes of them at a time: it is linear, so that lanes can be put together."""
    octets = np.frombuffer(data, np.uint8)
    whole = len(octets) // LANE * LANE
    register, shift = 0xFFFFFFFF, lane_shift() if whole else None
    for begin in range(0, whole, 2048 * LANE):
        lanes = octets[begin : min(begin + 2048 * LANE, whole)].view("<u2").reshape(-1, LANE // 2).T.astype(np.uint32)
        registers = np.zeros(lanes.shape[1], np.uint32)
        for column in lanes:
            registers = crc_step(registers, column)
        for lane in registers.tolist():
            moved = [shift[place][register >> 8 * place & 255] for place in range(4)]
            register = lane ^ moved[0] ^ moved[1] ^ moved[2] ^ moved[3]
    for octet in octets[whole:].tolist():
        register = int(OCTET_TABLE[(register ^ octet) & 255]) ^ register >> 8
    return register ^ 0xFFFFFFFF


def check_crc(data, masked, place):
    """TensorFlow and LevelDB store a CRC rotated and with a number added."""
    crc = crc32c(data)
    found = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    if found != masked:
        raise Refused(f"{place}: expected the checksum {masked:#010x}, found {found:#010x}: the file is damaged")


def varint(cursor):
    number = 0
    for shift in range(0, 70, 7):
        octet = cursor.take(1)[0]
        number |= (octet & 127) << shift
        if octet < 128:
            return number & (1 << 64) - 1
    raise Refused(f"{cursor.place}: expected a number of 10 bytes at most at {cursor.offset}")


def read_block(data, place, offset, size):
    """{key: value} of a block of the table."""
    check_range(data, place, offset, size + 5)
    content, compression = data[offset : offset + size], data[offset + size]
    (masked,) = struct.unpack_from("<I", data, offset + size + 1)
    check_crc(data[offset : offset + size + 1], masked, f"{place}: the block at {offset}")
    if compression != 0:
        kind = "Snappy" if compression == 1 else f"kind {compression}"
        raise Refused(f"{place}: expected an index without compression, as TensorFlow writes it, found {kind}")
    restarts = Cursor(content[-4:], place).number("I")
    if 4 * restarts + 4 > size:
        raise Refused(f"{place}: the block at {offset}: expected at most {size // 4} restarts, found {restarts}")
    cursor, entries, key = Cursor(content[: size - 4 - 4 * restarts], place), {}, b""
    while cursor.offset < len(cursor.data):
        shared, unshared, length = (varint(cursor) for _ in range(3))
        if shared > len(key):
            raise Refused(f"{place}: the block at {offset}: expected at most {len(key)} shared bytes, found {shared}")
        key = key[:shared] + cursor.take(unshared)
        entries[key] = cursor.take(length)
    return entries


def read_table(path):
    """All entries of a table, in the order of their keys."""
    data = opened(path)
    check_range(data, path, max(len(data) - 48, 0), 48)
    footer = Cursor(data[-48:], path)
    if struct.unpack("<Q", data[-8:])[0] != TABLE_MAGIC:
        raise Refused(f"{path}: expected the index of a TensorFlow checkpoint, found another file")
    _, _, offset, size = (varint(footer) for _ in range(4))
    entries = {}
    for handle in read_block(data, path, offset, size).values():
        cursor = Cursor(handle, path)
        entries |= read_block(data, path, varint(cursor), varint(cursor))
    return entries


def read_message(data, place):
    """{field: [values]} of a Protocol Buffers message. What a field's number means is for the caller to say."""
    cursor, fields = Cursor(data, place), {}
    while cursor.offset < len(data):
        tag = varint(cursor)
        kinds = {
            0: lambda: varint(cursor),
            1: lambda: cursor.number("Q"),
            2: lambda: cursor.take(varint(cursor)),
            5: lambda: cursor.number("I"),
        }
        if tag & 7 not in kinds:
            raise Refused(f"{place}: expected a Protocol Buffers message, found a field of kind {tag & 7}")
        fields.setdefault(tag >> 3, []).append(kinds[tag & 7]())
    return fields


def last(fields, number, kind, place):
    """A field's value, of which the last counts; zero or empty if it is absent."""
    value = fields.get(number, [kind()])[-1]
    if not isinstance(value, kind):
        raise Refused(f"{place}: expected another kind of value in field {number} of its entry")
    return value


def read_tensorflow(path, options):
    prefix = tensorflow_prefix(path)
    index = Path(f"{prefix}.index")
    entries = read_table(index)
    header = read_message(entries.pop(b"", b""), index)
    shards, big_endian = last(header, 1, int, index), last(header, 2, int, index)
    if not 1 <= shards <= 99999 or big_endian:
        raise Refused(f"{index}: expected a header with 1 to 99999 shards, little-endian")
    shard_data, tensors = {}, {}
    for key, value in entries.items():
        name = key.decode(errors="replace")
        place = f"{index}: tensor {quoted(name)}"
        if is_training_state(name):
            continue
        entry = read_message(value, place)
        dtype = TENSORFLOW_TYPES.get(last(entry, 1, int, place))
        if dtype is None or 7 in entry:
            raise Refused(f"{place}: expected a whole tensor of float, double, half or bfloat16")
        shard = last(entry, 3, int, place)
        if shard >= shards:
            raise Refused(f"{place}: expected a shard from 0 to {shards - 1}, found {shard}")
        if shard not in shard_data:
            shard_data[shard] = opened(Path(f"{prefix}.data-{shard:05d}-of-{shards:05d}"))
        shape = [
            last(read_message(dimension, place), 1, int, place)
            for dimension in read_message(last(entry, 2, bytes, place), place).get(2, [])
        ]
        offset, size = last(entry, 4, int, place), last(entry, 5, int, place)
        tensor = tensor_in(shard_data[shard], place, dtype, shape, offset)
        if size != math.prod(shape) * DTYPES[dtype].itemsize:
            raise Refused(f"{place}: expected {size} bytes, as its entry says, found {dtype} of shape {shape}")
        checked = checked_tensor(tensor, shard_data[shard], offset, size, last(entry, 6, int, place))
        add(tensors, place, *tensorflow_name(checked, name, place))

    hparams_path, n_head, sizes = prefix.parent / "hparams.json", options.n_head, {}
    if hparams_path.is_file():
        hparams = read_json(hparams_path)
        keys = {"n_vocab": "vocab_size", "n_ctx": "n_positions", "n_embd": "n_embd", "n_layer": "n_layer"}
        sizes = {keys[key]: (hparams[key], f"{hparams_path}: {key}") for key in keys if key in hparams}
        n_head = head_count(options.n_head, hparams.get("n_head"), f"{hparams_path}: n_head")
    return Model(prefix, "OpenAI's TensorFlow checkpoint", tensors, n_head, sizes=sizes)


def tensorflow_prefix(path):
    """`model.ckpt` for each of the files that a checkpoint has."""
    return Path(re.sub(r"\.(index|meta|data-\d{5}-of-\d{5})$", "", str(path)))


def is_training_state(name):
    """What optimisers and savers put beside a model's variables."""
    last_part = name.rsplit("/", 1)[-1]
    others = ("global_step", "beta1_power", "beta2_power", "_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter")
    return last_part in ("Adam", "Adam_1", "Momentum") or last_part in others


def checked_tensor(tensor, data, offset, size, masked):
    def read():
        check_crc(memoryview(data)[offset : offset + size], masked, tensor.place)
        return tensor.read()

    return Tensor(tensor.place, tensor.dtype, tensor.shape, read)


def tensorflow_name(tensor, name, place):
    """model/h0/attn/c_attn/w -> h.0.attn.c_attn.weight; convolutions of width 1 have a first axis of 1."""
    match = re.fullmatch(r"model/(?:h(\d{1,4})/)?(.+)", name)
    if not match:
        raise Refused(f'{place}: expected the name of a tensor of GPT-2, such as "model/wte"')
    layer, rest = match.groups()
    for short, long in (("/w", ".weight"), ("/g", ".weight"), ("/b", ".bias")):
        rest = rest.removesuffix(short) + long if rest.endswith(short) else rest
    if name in ("model/wte", "model/wpe"):
        rest += ".weight"
    if len(tensor.shape) == 3 and tensor.shape[0] == 1:
        tensor = tensor.reshaped(*tensor.shape[1:])
    return ("" if layer is None else f"h.{int(layer)}.") + rest.replace("/", "."), tensor


# ---- GGUF ----

GGUF_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
GGUF_STRING, GGUF_ARRAY = 8, 9
GGUF_TYPES = (
    "F32 F16 Q4_0 Q4_1 ? ? Q5_0 Q5_1 Q8_0 Q8_1 Q2_K Q3_K Q4_K Q5_K Q6_K Q8_K IQ2_XXS IQ2_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S "
    "IQ2_S IQ4_XS I8 I16 I32 I64 F64 IQ1_M BF16 ? ? ? TQ1_0 TQ2_0 ? ? ? MXFP4"
).split()
GGUF_NAMES = {
    "token_embd": "wte",
    "position_embd": "wpe",
    "output_norm": "ln_f",
    "output": "lm_head",
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
UNUSED_TOKEN = 5


def gguf_string(cursor):
    try:
        return cursor.take(cursor.number("Q")).decode()
    except UnicodeDecodeError:
        raise Refused(f"{cursor.place}: expected UTF-8 before byte {cursor.offset}") from None


def gguf_value(cursor, kind):
    if kind in GGUF_SCALARS:
        return cursor.number(GGUF_SCALARS[kind])
    if kind == GGUF_STRING:
        return gguf_string(cursor)
    if kind != GGUF_ARRAY:
        raise Refused(f"{cursor.place}: expected a value of kind 0 to 12 at {cursor.offset}, found {kind}")
    kind, count = cursor.number("I"), cursor.number("Q")
    if kind in GGUF_SCALARS:
        form = np.dtype("<" + GGUF_SCALARS[kind])
        return np.frombuffer(cursor.take(count * form.itemsize), form)
    if kind != GGUF_STRING or 8 * count > len(cursor.data):
        raise Refused(f"{cursor.place}: expected an array of numbers or strings, found {count} of kind {kind}")
    return [gguf_string(cursor) for _ in range(count)]


def read_gguf(path, options):
    data = opened(path)
    cursor = Cursor(data, path)
    magic, version = cursor.take(4), cursor.number("I")
    if magic != b"GGUF" or version not in (2, 3):
        raise Refused(f"{path}: expected GGUF of version 2 or 3, little-endian, found {quoted(magic)}, {version}")
    tensor_count, value_count = cursor.number("Q"), cursor.number("Q")
    values = {}
    for _ in range(value_count):
        key = gguf_string(cursor)
        values[key] = gguf_value(cursor, cursor.number("I"))
    if values.get("general.architecture") != "gpt2":
        found = quoted(values.get("general.architecture"))
        raise Refused(f'{path}: general.architecture: expected "gpt2", found {found}')

    descriptions = {}
    for _ in range(tensor_count):
        name, dimensions = gguf_string(cursor), cursor.number("I")
        if dimensions > 4 or name in descriptions:
            raise Refused(f"{path}: tensor {quoted(name)}: expected once, with 4 dimensions at most")
        shape = [cursor.number("Q") for _ in range(dimensions)]
        descriptions[name] = shape[::-1], cursor.number("I"), cursor.number("Q")
    alignment = whole_number(values.get("general.alignment", 32), f"{path}: general.alignment", 1 << 16)
    start = -(-cursor.offset // alignment) * alignment
    tensors = {}
    for name, (shape, kind, offset) in descriptions.items():
        place = f"{path}: tensor {quoted(name)}"
        add(tensors, place, *gguf_name(gguf_tensor(data, place, shape, kind, start + offset), name, place))

    def value(key, default=None):
        if "gpt2." + key not in values and default is None:
            raise Refused(f"{path}: gpt2.{key}: expected a number, found none")
        return values.get("gpt2." + key, default)

    keys = {"context_length": "n_positions", "embedding_length": "n_embd", "block_count": "n_layer"}
    keys |= {"feed_forward_length": "n_inner"}
    sizes = {keys[key]: (value(key), f"{path}: gpt2.{key}") for key in keys}
    n_head = head_count(options.n_head, value("attention.head_count"), f"{path}: gpt2.attention.head_count")
    model = Model(path, "GGUF", tensors, n_head, sizes=sizes, epsilon=value("attention.layer_norm_epsilon", 1e-5))
    add_gguf_vocabulary(model, values)
    return model


def gguf_tensor(data, place, shape, kind, offset):
    name = GGUF_TYPES[kind] if kind < len(GGUF_TYPES) else "?"
    if name in ("F32", "F16"):
        return tensor_in(data, place, name, shape, offset)
    if name != "Q8_0":
        shown = f"type {kind}" if name == "?" else name
        raise Refused(
            f"{place}: expected F32, F16 or Q8_0, found {shown}: llama-quantize --allow-requantize makes F16 of it"
        )
    if not shape or shape[-1] % 32:
        raise Refused(f"{place}: expected rows of blocks of 32, as Q8_0 has them, found shape {shape}")
    blocks = math.prod(shape) // 32
    check_range(data, place, offset, 34 * blocks)

    def read():
        """A block is a scale in half precision and 32 whole numbers; their product is exact in a float."""
        octets = np.frombuffer(data, np.uint8, 34 * blocks, offset).reshape(blocks, 34)
        scales = octets[:, :2].copy().view("<f2").astype(np.float32)
        return (octets[:, 2:].view(np.int8) * scales).reshape(shape)

    return Tensor(place, "F32", tuple(shape), read)


def gguf_name(tensor, name, place):
    """blk.0.ffn_up.weight -> h.0.mlp.c_fc.weight. Matrices of layers are [out, in]."""
    match = re.fullmatch(r"(?:blk\.(\d{1,4})\.)?(\w+)\.(weight|bias)", name)
    layer, part, kind = match.groups() if match else (None, None, None)
    if part not in GGUF_NAMES:
        raise Refused(f"{place}: expected the name of a tensor of GPT-2")
    if layer is None:
        return f"{GGUF_NAMES[part]}.{kind}", tensor
    renamed = f"h.{int(layer)}.{GGUF_NAMES[part]}.{kind}"
    return renamed, tensor.transposed() if renamed.endswith(MATRICES) else tensor


def add_gguf_vocabulary(model, values):
    """vocab.json and merges.txt, if the vocabulary is GPT-2's byte pairs."""
    tokens, merges = values.get("tokenizer.ggml.tokens"), values.get("tokenizer.ggml.merges")
    kinds = values.get("tokenizer.ggml.token_type")
    split = values.get("tokenizer.ggml.pre", "default")
    is_simple = (
        values.get("tokenizer.ggml.model") == "gpt2"
        and split in ("default", "gpt-2")
        and all(isinstance(texts, list) for texts in (tokens, merges))
        and len(set(tokens)) == len(tokens)
        and not any("\n" in merge for merge in merges)
        and (kinds is None or len(kinds) == len(tokens))
    )
    if not is_simple:
        model.notes.append("its vocabulary is not GPT-2's byte pairs: copy the tokenizer's files into the directory")
        return
    used = range(len(tokens)) if kinds is None else np.flatnonzero(np.asarray(kinds) != UNUSED_TOKEN).tolist()
    model.files["vocab.json"] = json.dumps({tokens[token]: token for token in used}, ensure_ascii=False)
    model.files["merges.txt"] = "#version: 0.2\n" + "".join(merge + "\n" for merge in merges)
    for key in ("bos_token_id", "eos_token_id"):
        token = values.get(f"tokenizer.ggml.{key}")
        if isinstance(token, int) and 0 <= token < len(tokens):
            model.config[key] = token


# ---- PyTorch's files ----

# The first pickle of a file from before PyTorch 1.6, a number. Later ones are zip archives.
TORCH_MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."


def load_torch(path):
    """What torch.save wrote, as far as it is tensors and plain values; tensors stay in the file if it is an archive."""
    try:
        import torch
    except ImportError as error:
        raise Refused(
            f"{path}: PyTorch is needed to read it: pip install -r scripts/requirements-convert.txt ({error})"
        )
    # Before 2.6, weights_only let through what it should not have: CVE-2025-32434.
    if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < (2, 6):
        raise Refused(f"{path}: PyTorch 2.6 or later is needed to read it safely, found {torch.__version__}")
    is_archive = opened(path)[:4] == b"PK\x03\x04"
    if is_archive:
        check_archive(path)
    warnings.simplefilter("ignore")  # PyTorch's are about how it checks, not about the file
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=is_archive)
    # A hostile file can raise anything; the message has hints on many lines about how to run its code after all.
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        reason = next((line for line in lines if "Unsupported" in line), lines[0]).split(". ")[0]
        raise Refused(
            f"{path}: expected tensors and plain values alone, found what PyTorch refuses: {reason}"
        ) from None


def check_archive(path):
    """Nothing in it may be compressed, so that it holds no more than its own size. torch.save compresses nothing."""
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
                    raise Refused(f"{path}: {quoted(member.filename)}: expected no compression, found some")
            if sum(member.file_size for member in archive.infolist()) > path.stat().st_size:
                raise Refused(f"{path}: expected members that lie beside one another, found larger ones")
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise Refused(f"{path}: expected a file of torch.save: {error}") from None


def state_tensors(state, path):
    """{name: Tensor} of a state dict, without the prefixes of wrappers."""
    import torch

    names = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
    if not isinstance(state, dict) or not any(isinstance(value, torch.Tensor) for value in state.values()):
        shown = ", ".join(quoted(key) for key in list(state)[:5]) if isinstance(state, dict) else type(state).__name__
        raise Refused(f"{path}: expected a state dict, of names and tensors, found {shown}")
    tensors = {}
    for key, value in state.items():
        place = f"{path}: tensor {quoted(key)}"
        if not isinstance(key, str) or not isinstance(value, torch.Tensor):
            raise Refused(f"{place}: expected a tensor, found {type(value).__name__}")
        name = re.sub(r"^(_orig_mod\.|module\.)+", "", key)
        if re.search(r"\.attn\.(bias|masked_bias|mask|IGNORE)$", name):  # buffers of masks
            continue
        is_plain = (
            value.device.type == "cpu" and value.layout == torch.strided and value.dtype in names and not value.is_neg()
        )
        if not is_plain:
            raise Refused(f"{place}: expected a dense tensor of float64, float32, float16 or bfloat16")
        # Strides of zero make a huge tensor of a few bytes.
        if value.numel() * value.element_size() > value.untyped_storage().nbytes():
            raise Refused(f"{place}: expected as many bytes as shape {list(value.shape)} needs, found fewer")
        add(tensors, place, name, Tensor(place, names[value.dtype], tuple(value.shape), torch_reader(value)))
    return tensors


def torch_reader(value):
    import torch

    def read():
        dense = value.detach().contiguous()
        return (dense.view(torch.uint16) if dense.dtype == torch.bfloat16 else dense).numpy()

    return read


def read_torch(path, options):
    """Whichever program's file it is, by what it holds."""
    content = load_torch(path)
    is_nanogpt = isinstance(content, dict) and isinstance(content.get("model_args"), dict) and "model" in content
    model_args = content["model_args"] if is_nanogpt else {}
    tensors = state_tensors(content["model"] if is_nanogpt else content, path)
    if is_nanogpt:
        found = "nanogpt"
    elif any(re.search(r"^blocks\.\d+\.attn\.(W_Q|q\.weight)$", name) for name in tensors):
        found = "transformer-lens"
    elif any(is_linear(name, tensor) or name == "tok_emb.weight" for name, tensor in tensors.items()):
        # nanoGPT's state dict alone cannot be told from minGPT's.
        found = "nanogpt" if options.format == "nanogpt" else "mingpt"
    else:
        found = "pytorch"
    check_format(path, options, found)
    if found == "pytorch":
        return pytorch_model(path, options, tensors, path.parent)
    if found == "nanogpt":
        return nanogpt_model(path, options, tensors, model_args)
    return {"mingpt": mingpt_model, "transformer-lens": transformer_lens_model}[found](path, options, tensors)


def is_linear(name, tensor):
    """Whether it is c_attn's matrix as nn.Linear has it, [3C, C]."""
    return name.endswith("attn.c_attn.weight") and len(tensor.shape) == 2 and tensor.shape[0] == 3 * tensor.shape[1]


def check_format(path, options, found):
    if options.format not in (None, found):
        raise Refused(f"{path}: expected {options.format}, as --format says, found {found}")


# ---- pytorch_model.bin ----


def pytorch_model(path, options, tensors, directory):
    """transformers' own layout, except for the file that the tensors are in."""
    config_path = directory / "config.json"
    config = read_json(config_path)
    if config.get("model_type", "gpt2") != "gpt2":
        raise Refused(f'{config_path}: model_type: expected "gpt2", found {quoted(config["model_type"])}')
    if options.activation:
        raise Refused(f"{config_path} says the activation: --activation is for files that do not")
    aliases = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_positions": "max_position_embeddings"}

    def said(key, alias=None):
        return config.get(key, config.get(alias)), f"{config_path}: {key}"

    sizes = {key: said(key, aliases.get(key)) for key in MOST}
    n_head = head_count(options.n_head, *said("n_head", "num_attention_heads"))
    renamed = {}
    for name, tensor in tensors.items():
        add(renamed, tensor.place, name.removeprefix("transformer."), tensor)
    sizes = {key: size for key, size in sizes.items() if size[0] is not None}
    return Model(path, "pytorch_model.bin", renamed, n_head, sizes=sizes, config=config)


def read_torch_index(path, options):
    """pytorch_model.bin in several files, and an index of which holds what."""
    check_format(path, options, "pytorch")
    weight_map = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict):
        raise Refused(f"{path}: expected an object weight_map")
    tensors = {}
    for shard in sorted({str(shard) for shard in weight_map.values()}):
        if not re.fullmatch(r"[\w.-]+\.bin", shard):
            raise Refused(f"{path}: weight_map: expected names of .bin files beside it, found {quoted(shard)}")
        for name, tensor in state_tensors(load_torch(path.parent / shard), path.parent / shard).items():
            add(tensors, tensor.place, name, tensor)
    return pytorch_model(path, options, tensors, path.parent)


# ---- nanoGPT and minGPT ----


def from_linear(tensors):
    """Names of GPT2LMHeadModel, with nn.Linear's matrices, [out, in]."""
    renamed = {}
    for name, tensor in tensors.items():
        name = name.removeprefix("transformer.")
        is_turned = name.startswith("h.") and name.endswith(MATRICES)
        add(renamed, tensor.place, name, tensor.transposed() if is_turned else tensor)
    return renamed


def nanogpt_model(path, options, tensors, model_args):
    tensors = from_linear(tensors)
    keys = {"vocab_size": "vocab_size", "block_size": "n_positions", "n_embd": "n_embd", "n_layer": "n_layer"}
    sizes = {keys[key]: (model_args[key], f"{path}: model_args: {key}") for key in keys if key in model_args}
    n_head = head_count(options.n_head, model_args.get("n_head"), f"{path}: model_args: n_head")
    model = Model(path, "nanoGPT", tensors, n_head, "gelu", sizes=sizes)
    if not any(name.endswith(".bias") for name in tensors):
        # bias=False: adding zeros is the same.
        for name, shape in shapes_of(sizes_in(model)).items():
            if name.endswith(".bias"):
                tensors[name] = constant(f"{path}: tensor {name}", 0, *shape)
    if not options.activation:
        model.notes.append(
            "its activation is taken to be gelu, nanoGPT's since June 2023; --activation gelu_new before"
        )
    return model


def mingpt_model(path, options, tensors):
    if "tok_emb.weight" in tensors:
        tensors = old_mingpt(tensors)
        activation = "gelu"
    else:
        tensors = from_linear(tensors)
        activation = "gelu_new"
    return Model(path, "minGPT", tensors, options.n_head, activation)


def old_mingpt(tensors):
    """minGPT of 2020 to 2022: names of its own, and matrices of their own for q, k and v."""
    parts = {"ln1": "ln_1", "ln2": "ln_2", "attn.proj": "attn.c_proj", "mlp.0": "mlp.c_fc", "mlp.2": "mlp.c_proj"}
    outside = {"tok_emb.weight": "wte.weight", "pos_emb": "wpe.weight", "head.weight": "lm_head.weight"}
    renamed = {}
    for name, tensor in tensors.items():
        match = re.fullmatch(r"blocks\.(\d{1,4})\.(.+)\.(weight|bias)", name)
        layer, part, kind = match.groups() if match else (None, None, None)
        if part in ("attn.key", "attn.value") and f"blocks.{layer}.attn.query.{kind}" in tensors:
            continue
        if part == "attn.query":
            three = [tensors.get(f"blocks.{layer}.attn.{which}.{kind}") for which in ("query", "key", "value")]
            if None in three:
                raise Refused(f"{tensor.place}: expected a key and a value beside it")
            add(
                renamed,
                tensor.place,
                f"h.{int(layer)}.attn.c_attn.{kind}",
                joined([each.transposed() for each in three]),
            )
        elif part in parts:
            turned = tensor.transposed() if kind == "weight" else tensor
            add(renamed, tensor.place, f"h.{int(layer)}.{parts[part]}.{kind}", turned)
        elif name == "pos_emb" and len(tensor.shape) == 3 and tensor.shape[0] == 1:
            add(renamed, tensor.place, "wpe.weight", tensor.reshaped(*tensor.shape[1:]))
        else:
            add(renamed, tensor.place, outside.get(name, name), tensor)
    return renamed


# ---- TransformerLens ----

LENS_OUTSIDE = {
    "embed.W_E": "wte.weight",
    "pos_embed.W_pos": "wpe.weight",
    "ln_final.w": "ln_f.weight",
    "ln_final.b": "ln_f.bias",
    "embed.weight": "wte.weight",
    "pos_embed.weight": "wpe.weight",
    "ln_final.weight": "ln_f.weight",
    "ln_final.bias": "ln_f.bias",
    "unembed.weight": "lm_head.weight",
}
LENS_PARTS = {"ln1": "ln_1", "ln2": "ln_2", "attn.o": "attn.c_proj", "mlp.in": "mlp.c_fc", "mlp.out": "mlp.c_proj"}
LENS_LETTERS = {
    "ln1.w": "ln_1.weight",
    "ln1.b": "ln_1.bias",
    "ln2.w": "ln_2.weight",
    "ln2.b": "ln_2.bias",
    "attn.W_O": "attn.c_proj.weight",
    "attn.b_O": "attn.c_proj.bias",
    "mlp.W_in": "mlp.c_fc.weight",
    "mlp.b_in": "mlp.c_fc.bias",
    "mlp.W_out": "mlp.c_proj.weight",
    "mlp.b_out": "mlp.c_proj.bias",
}


def transformer_lens_model(path, options, tensors):
    """The state dict of a HookedTransformer, with heads on axes of their own, or of a TransformerBridge, which has a
    weight and a bias of each part. What weights are after fold_ln, center_writing_weights, center_unembed,
    fold_value_biases or refactor_factored_attn_matrices has a form of GPT-2 too, with the same logits."""
    renamed, n_head, unembed_bias = {}, options.n_head, None
    for name, tensor in tensors.items():
        match = re.fullmatch(r"blocks\.(\d{1,4})\.(.+)", name)
        layer, part = (f"h.{int(match[1])}.", match[2]) if match else ("", name)
        if query := re.fullmatch(r"attn\.(?:(W|b)_Q|q\.(weight|bias))", part):
            kind = query[2] or {"W": "weight", "b": "bias"}[query[1]]
            three = lens_attention(tensors, name.removesuffix(part), query)
            add(renamed, tensor.place, f"{layer}attn.c_attn.{kind}", joined(three))
            if query[1] == "W":
                n_head = head_count(options.n_head, tensor.shape[0], tensor.place)
        elif re.fullmatch(r"attn\.([Wb]_[KV]|[kv]\.(weight|bias))", part):
            continue  # they came with q's
        elif name in ("unembed.b_U", "unembed.bias"):
            unembed_bias = tensor
        elif name == "unembed.W_U":
            add(renamed, tensor.place, "lm_head.weight", tensor.transposed())
        elif part == "attn.W_O" and len(tensor.shape) == 3:
            heads, size, width = tensor.shape
            add(renamed, tensor.place, f"{layer}attn.c_proj.weight", tensor.reshaped(heads * size, width))
        elif match and part in LENS_LETTERS:
            add(renamed, tensor.place, layer + LENS_LETTERS[part], tensor)
        elif match and part.rpartition(".")[0] in LENS_PARTS:
            stem, _, kind = part.rpartition(".")
            add(renamed, tensor.place, f"{layer}{LENS_PARTS[stem]}.{kind}", tensor)
        else:
            add(renamed, tensor.place, LENS_OUTSIDE.get(name, name), tensor)
    model = Model(path, "TransformerLens", renamed, n_head)
    unfold_norms(model)
    if unembed_bias is not None:
        remove_unembed_bias(model, unembed_bias)
    return model


def lens_attention(tensors, block, query):
    """The weights [C, C] or biases [C] of q, k and v; `query` is the match of the name of q's after the block's."""
    letter, kind = query.groups()
    names = [f"{block}attn.{letter}_{which}" if letter else f"{block}attn.{which.lower()}.{kind}" for which in "QKV"]
    three = [tensors.get(name) for name in names]
    if None in three:
        raise Refused(f"{tensors[names[0]].place}: expected the same of k and v beside it")
    for tensor in three:
        if letter and (tensor.shape != three[0].shape or len(tensor.shape) != (3 if letter == "W" else 2)):
            expected = "[n_head, n_embd, d_head]" if letter == "W" else "[n_head, d_head]"
            raise Refused(f"{tensor.place}: expected shape {expected} as of q, k and v, found {list(tensor.shape)}")
    if letter == "W":
        heads, width, size = three[0].shape
        return [tensor.transposed(1, 0, 2).reshaped(width, heads * size) for tensor in three]
    if letter == "b":
        return [tensor.reshaped(math.prod(tensor.shape)) for tensor in three]
    return [tensor.transposed() for tensor in three]


def unfold_norms(model):
    """fold_ln leaves out the norms' weights and biases, which have become 1 and 0."""
    width = need(model, "wte.weight").shape[1]
    norms = ["ln_f"] + [f"h.{layer}.{norm}" for layer in range(sizes_in(model)["n_layer"]) for norm in ("ln_1", "ln_2")]
    parts = [f"{norm}.{kind}" for norm in norms for kind in ("weight", "bias")]
    missing = [part for part in parts if part not in model.tensors]
    if len(missing) == len(parts):
        model.notes.append(
            "it has no weights of norms: they are taken to be folded (fold_ln), not to be no norms at all"
        )
        for part in parts:
            model.tensors[part] = constant(f"{model.path}: tensor {part}", float(part.endswith("weight")), width)


def remove_unembed_bias(model, bias):
    """GPT-2's output has no bias b. With the last norm's weight w and its bias, what goes into the output weights W is
    w n + bias, where n, a row less its mean, adds up to zero. So the columns of W may each be added r / w_i for any r:
    that changes nothing but r times the sum of bias_i / w_i, which is made to be b."""
    wanted = bias.floats()
    if not wanted.any():
        return
    head, weight, shift = (need(model, name) for name in ("lm_head.weight", "ln_f.weight", "ln_f.bias"))
    if wanted.shape != head.shape[:1] or not weight.shape == shift.shape == head.shape[1:]:
        raise Refused(f"{bias.place}: expected shape {list(head.shape[:1])}, found {list(bias.shape)}")
    matrix, weights, shifts = head.floats(), weight.floats(), shift.floats()
    if not weights.all():
        raise Refused(f"{weight.place}: expected no zeros, for the output has a bias, which GPT-2's has not")
    # The norm's bias grows by its weight, in the direction that keeps the sum away from zero.
    grown = np.copysign(weights, (shifts / weights).sum())
    total = ((shifts + grown) / weights).sum()
    matrix += np.outer((wanted - matrix @ grown) / total, 1 / weights)
    for name, values in (("lm_head.weight", matrix), ("ln_f.bias", shifts + grown)):
        model.tensors[name] = array_tensor(model.tensors[name].place, values.astype(np.float32))


# ---- from any of them to a directory ----


def add(tensors, place, name, tensor):
    if name in tensors:
        raise Refused(f"{place}: expected {name} once, found it again")
    tensors[name] = tensor


def head_count(given, said, place):
    """The number of heads: --n-head, or what the source says of it."""
    if said is None:
        return given
    if whole_number(said, place, MOST["n_embd"]) != given and given is not None:
        raise Refused(f"{place}: expected {given}, as --n-head says, found {said}")
    return said


def need(model, name):
    tensor = model.tensors.get(name)
    if tensor is None or len(tensor.shape) != (1 if "ln_" in name else 2):
        raise Refused(f"{model.path}: expected a tensor for {name}, found none of that name")
    return tensor


def sizes_in(model):
    """The sizes that the tensors' shapes tell."""
    (vocab_size, n_embd), (n_positions, _) = need(model, "wte.weight").shape, need(model, "wpe.weight").shape
    layers = [int(match[1]) for match in (re.match(r"h\.(\d{1,4})\.", name) for name in model.tensors) if match]
    n_inner = need(model, "h.0.mlp.c_fc.weight").shape[1]
    sizes = {"vocab_size": vocab_size, "n_positions": n_positions, "n_embd": n_embd, "n_inner": n_inner}
    sizes["n_layer"] = 1 + max(layers, default=-1)
    for key, size in sizes.items():
        whole_number(size, f"{model.path}: {key}, by the tensors' shapes", MOST[key])
    return sizes


def shapes_of(sizes):
    """{name: shape} of GPT2Model."""
    width, inner = sizes["n_embd"], sizes["n_inner"]
    shapes = {"wte.weight": (sizes["vocab_size"], width), "wpe.weight": (sizes["n_positions"], width)}
    for layer in range(sizes["n_layer"]):
        for norm in ("ln_1", "ln_2"):
            shapes |= {f"h.{layer}.{norm}.weight": (width,), f"h.{layer}.{norm}.bias": (width,)}
        for name, rows, columns in (
            ("attn.c_attn", width, 3 * width),
            ("attn.c_proj", width, width),
            ("mlp.c_fc", width, inner),
            ("mlp.c_proj", inner, width),
        ):
            shapes |= {f"h.{layer}.{name}.weight": (rows, columns), f"h.{layer}.{name}.bias": (columns,)}
    return shapes | {"ln_f.weight": (width,), "ln_f.bias": (width,)}


def check(model):
    """Every tensor of a GPT-2 with the sizes that the source says, and no other. Gives the sizes."""
    sizes = sizes_in(model)
    for key, (said, place) in model.sizes.items():
        if whole_number(said, place, MOST[key]) != sizes[key]:
            raise Refused(f"{place}: expected {sizes[key]}, as the tensors' shapes say, found {said}")
    if model.n_head is None:
        raise Refused(
            f"{model.path}: expected the number of heads, found none in a file of {model.format}: give --n-head"
        )
    whole_number(model.n_head, f"{model.path}: n_head", sizes["n_embd"])
    if sizes["n_embd"] % model.n_head:
        raise Refused(f"{model.path}: n_head: expected a divisor of n_embd, {sizes['n_embd']}, found {model.n_head}")
    if not isinstance(model.epsilon, float) or not 0 < model.epsilon < 1:
        raise Refused(f"{model.path}: layer_norm_epsilon: expected a number from 0 to 1, found {quoted(model.epsilon)}")
    shapes = shapes_of(sizes)
    for name, shape in shapes.items():
        if name not in model.tensors:
            raise Refused(f"{model.path}: expected a tensor for {name} of shape {list(shape)}, found none")
        if model.tensors[name].shape != shape:
            found = f"{list(model.tensors[name].shape)} as {name}"
            raise Refused(f"{model.tensors[name].place}: expected shape {list(shape)}, found {found}")
    lm_head = model.tensors.get("lm_head.weight")
    if lm_head and lm_head.shape != shapes["wte.weight"]:
        raise Refused(f"{lm_head.place}: expected shape {list(shapes['wte.weight'])}, found {list(lm_head.shape)}")
    for name in model.tensors.keys() - shapes.keys() - {"lm_head.weight"}:
        raise Refused(f"{model.tensors[name].place}: expected the tensors of a GPT-2 alone, found this one as well")
    return sizes


def settle_lm_head(model):
    """Whether output weights are the embedding's; a copy of it is left out."""
    lm_head, wte = model.tensors.get("lm_head.weight"), model.tensors["wte.weight"]
    if lm_head is None:
        return True
    if lm_head.dtype == wte.dtype and np.array_equal(lm_head.read().view(bits(wte)), wte.read().view(bits(wte))):
        del model.tensors["lm_head.weight"]
        return True
    return False


def bits(tensor):
    return f"u{DTYPES[tensor.dtype].itemsize}"


def config_of(model, sizes, is_tied):
    if model.format == "pytorch_model.bin":
        # transformers ties them unless it is told not to, whatever the file holds.
        if is_tied == (model.config.get("tie_word_embeddings") is False):
            raise Refused(
                f"{model.path}: expected output weights that are "
                f"{'other than' if is_tied else 'those of'} the embedding, as tie_word_embeddings in config.json says"
            )
        return model.config
    end_of_text = 50256 if 50257 <= sizes["vocab_size"] <= 50304 else None  # GPT-2's vocabulary, perhaps padded
    return {
        "activation_function": model.activation,
        "architectures": ["GPT2LMHeadModel"],
        "bos_token_id": end_of_text,
        "dtype": next(name for dtype, name in WIDEST if any(t.dtype == dtype for t in model.tensors.values())),
        "eos_token_id": end_of_text,
        "layer_norm_epsilon": float(str(np.float32(model.epsilon))),
        "model_type": "gpt2",
        "n_head": model.n_head,
        "tie_word_embeddings": is_tied,
        **sizes,
        **model.config,
    }


WIDEST = (("F64", "float64"), ("F32", "float32"), ("F16", "float16"), ("BF16", "bfloat16"))


def write_safetensors(path, tensors):
    """The package safetensors would need all tensors in memory at once."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        end = offset + math.prod(tensor.shape) * DTYPES[tensor.dtype].itemsize
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor.read(), DTYPES[tensor.dtype]))


def write_directory(model, sizes, out):
    """Under another name until it is whole."""
    is_tied = settle_lm_head(model)
    names = [*shapes_of(sizes), *([] if is_tied else ["lm_head.weight"])]
    partial = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        (partial / "config.json").write_text(json.dumps(config_of(model, sizes, is_tied), indent=2) + "\n")
        prefixed = {name if name == "lm_head.weight" else f"transformer.{name}": model.tensors[name] for name in names}
        write_safetensors(partial / "model.safetensors", prefixed)
        for source, name in BESIDE.items():
            if (model.path.parent / source).is_file():
                shutil.copyfile(model.path.parent / source, partial / name)
        for name, text in model.files.items():
            (partial / name).write_text(text, encoding="utf-8")
        umask = os.umask(0)
        os.umask(umask)
        partial.chmod(0o777 & ~umask)
        partial.rename(out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


# What a directory is looked through for.
KNOWN_FILES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "ckpt.pt", "model.pt", "model.ckpt.index", "*.gguf")
FORMATS = ("pytorch", "nanogpt", "mingpt", "llm.c", "tensorflow", "transformer-lens", "gguf")


def source_in(directory):
    found = [path for pattern in KNOWN_FILES for path in sorted(directory.glob(pattern))]
    if len(found) != 1:
        shown = ", ".join(path.name for path in found) or "none"
        raise Refused(f"{directory}: expected one of {', '.join(KNOWN_FILES)}, found {shown}")
    return found[0]


def read_model(path, options):
    if path.is_dir():
        path = source_in(path)
    if not path.exists() and Path(f"{path}.index").exists():
        path = Path(f"{path}.index")
    if path.name.endswith(".index.json"):
        return read_torch_index(path, options)
    if tensorflow_prefix(path) != path:
        path = Path(f"{tensorflow_prefix(path)}.index")
    data = opened(path)
    begin, end = data[:16], data[-8:]
    if begin.startswith((b"PK\x03\x04", TORCH_MAGIC)):
        return read_torch(path, options)
    if begin.startswith(b"GGUF"):
        found, read = "gguf", read_gguf
    elif begin.startswith(struct.pack("<i", LLM_C_MAGIC)):
        found, read = "llm.c", read_llm_c
    elif end == struct.pack("<Q", TABLE_MAGIC):
        found, read = "tensorflow", read_tensorflow
    else:
        raise Refused(f"{path}: expected a checkpoint of {', '.join(FORMATS)}, found a file that begins with {begin!r}")
    check_format(path, options, found)
    return read(path, options)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, metavar="SOURCE", help="a checkpoint, or a directory that has one")
    parser.add_argument("out", type=Path, metavar="DIR", help="the directory to make")
    parser.add_argument("--format", choices=FORMATS, help="what SOURCE must be (default: whatever it holds)")
    parser.add_argument("--n-head", type=int, metavar="H", help="the number of heads, if SOURCE does not say")
    parser.add_argument("--activation", choices=ACTIVATIONS, help="of the MLP (default: what the format's program has)")
    return parser.parse_args()


def main():
    options = parse_arguments()
    try:
        if options.out.exists() or not options.out.name:
            raise Refused(f"{options.out}: expected the name of a directory to be made, found what is there")
        if not options.out.parent.is_dir():
            raise Refused(f"{options.out.parent}: expected a directory, for {options.out.name} to be made in, found none")
        model = read_model(options.source, options)
        model.activation = options.activation or model.activation
        sizes = check(model)
        write_directory(model, sizes, options.out)
    except (Refused, OSError) as error:
        print(f"convert.py: {error}", file=sys.stderr)
        return 2
    except MemoryError:
        print(f"convert.py: {options.source}: there is not enough memory for its largest tensor", file=sys.stderr)
        return 2
    size = (options.out / "model.safetensors").stat().st_size
    shown = ", ".join(f"{key} = {value}" for key, value in (sizes | {"n_head": model.n_head}).items())
    print(f"{options.out}: from {model.format}: {shown}; {size} bytes")
    for note in model.notes:
        print(f"note: {note}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
