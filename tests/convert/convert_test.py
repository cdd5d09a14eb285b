"""scripts/convert.py and what driftless makes of its directories: tests/convert/convert_test.py PROGRAM

The checkpoints of fixtures/convert were written by the programs whose formats they have, or by a transcription, and the
logits are theirs (scripts/make_convert_fixtures.py).
"""

import contextlib
import importlib.util
import io
import json
import os
import pickle
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import zipfile
from pathlib import Path

try:
    import numpy as np
except ImportError:
    print("[skipped] all: NumPy is not installed")
    sys.exit(0)
try:
    import torch
except ImportError:
    torch = None

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "scripts" / "convert.py"
FIXTURES = ROOT / "fixtures" / "convert"
LOGITS = json.loads((FIXTURES / "logits.json").read_text())
NEEDS_NUMPY = ("llm.c-f32", "llm.c-bf16", "tensorflow", "gguf-f32", "gguf-f16", "gguf-q8_0")
needs_torch = unittest.skipUnless(torch, "PyTorch is not installed")

spec = importlib.util.spec_from_file_location("convert", SCRIPT)
convert = importlib.util.module_from_spec(spec)
sys.modules["convert"] = convert
spec.loader.exec_module(convert)


def source_of(name):
    """The file of a fixture that the command line names."""
    for path in sorted((FIXTURES / name).iterdir()):
        if path.suffix in (".bin", ".pt", ".gguf", ".index"):
            return path


def run(*arguments):
    """In this process, which has NumPy and PyTorch already: status, output and errors."""
    output, errors = io.StringIO(), io.StringIO()
    sys.argv = ["convert.py", *map(str, arguments)]
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            status = convert.main()
        except SystemExit as exit:
            status = exit.code
    return status, output.getvalue(), errors.getvalue()


def log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


class ConvertTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        self.out = self.directory / "out"

    def copied(self, name):
        """A fixture's directory, to be spoilt."""
        path = self.directory / f"copy of {name}"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(FIXTURES / name, path)
        return path / source_of(name).name

    def converted(self, source, *options):
        shutil.rmtree(self.out, ignore_errors=True)
        status, output, errors = run(source, self.out, *options)
        self.assertEqual((status, errors), (0, ""))
        return output

    def refused(self, source, expected, *options):
        """With one line that says so, and nothing left behind."""
        shutil.rmtree(self.out, ignore_errors=True)
        before = sorted(self.directory.iterdir())
        status, output, errors = run(source, self.out, *options)
        self.assertEqual((status, output), (2, ""), errors)
        self.assertRegex(errors, r"\Aconvert\.py: [^\n\x00-\x1f]*\n\Z")
        self.assertIn(expected, errors)
        self.assertEqual(sorted(self.directory.iterdir()), before)

    def program(self, *arguments):
        done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def log_probabilities(self, ids, vocab_size):
        """What driftless gives for every token in the place of each but the first."""
        ids = ",".join(map(str, ids))
        result = json.loads(self.program("score", "-m", self.out, "--ids", ids, "--json", "--top", vocab_size))
        rows = np.full((len(result["top"]), vocab_size), np.nan)
        for row, tokens in zip(rows, result["top"]):
            for token in tokens:
                row[token["id"]] = token["log_probability"]
        return rows

    def check_logits(self, name, logits, tolerance):
        expected = log_softmax(np.array(logits))[:-1]
        found = self.log_probabilities(LOGITS[name]["ids"], expected.shape[1])
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance, err_msg=name)


class Logits(ConvertTest):
    """driftless, of the converted directory, against the program that wrote the checkpoint."""

    def test_formats(self):
        for name, case in LOGITS.items():
            if name not in NEEDS_NUMPY and not torch:
                continue
            with self.subTest(name):
                self.converted(source_of(name), *case["options"])
                self.check_logits(name, case["logits"], 1e-5)
                if "llama_cpp" in case:
                    # It rounds: GELU's results to half precision, and what meets Q8_0 to 8 bits.
                    self.check_logits(name, case["llama_cpp"], 0.3 if name == "gguf-q8_0" else 5e-3)

    def test_the_tolerance_tells_gelus_apart(self):
        self.converted(source_of("llm.c-f32"), "--activation", "gelu")
        with self.assertRaises(AssertionError):
            self.check_logits("llm.c-f32", LOGITS["llm.c-f32"]["logits"], 1e-5)

    def test_values_are_not_touched(self):
        """bfloat16 and half precision stay as they are; what is float stays float."""
        for name, dtypes in {
            "llm.c-bf16": {"BF16"},
            "gguf-f16": {"F16", "F32"},
            "gguf-q8_0": {"F32"},
            "tensorflow": {"F32"},
        }.items():
            with self.subTest(name):
                self.converted(source_of(name))
                self.assertEqual({tensor["dtype"] for tensor in self.header().values()}, dtypes)

    def header(self):
        data = (self.out / "model.safetensors").read_bytes()
        header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
        del header["__metadata__"]
        return header

    def test_the_command_line(self):
        """As a program of its own, from a directory, and by TensorFlow's name of a checkpoint."""
        for name in ("tensorflow", "gguf-f32"):
            done = subprocess.run([sys.executable, SCRIPT, FIXTURES / name, self.out / name], capture_output=True)
            self.assertEqual(done.returncode, 2, "the parent directory is not there")
            expected = f"convert.py: {self.out}: expected a directory, for {name} to be made in, found none\n"
            self.assertEqual(done.stderr.decode(), expected)
            self.out.mkdir(exist_ok=True)
            done = subprocess.run([sys.executable, SCRIPT, FIXTURES / name, self.out / name], capture_output=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(b"n_layer = 2", done.stdout)
            shutil.rmtree(self.out)
        self.converted(FIXTURES / "tensorflow" / "model.ckpt")
        self.converted(FIXTURES / "tensorflow" / "model.ckpt.data-00000-of-00001")

    def test_without_numpy(self):
        run_without = f"import runpy, sys; sys.modules['numpy'] = None; runpy.run_path({str(SCRIPT)!r}, None, '__main__')"
        done = subprocess.run([sys.executable, "-c", run_without], capture_output=True)
        expected = b"convert.py: expected NumPy, found none: pip install numpy\n"
        self.assertEqual((done.returncode, done.stderr), (2, expected))

    def test_a_directory_is_as_others_are(self):
        self.converted(source_of("llm.c-f32"))
        umask = os.umask(0)
        os.umask(umask)
        self.assertEqual(self.out.stat().st_mode & 0o777, 0o777 & ~umask)
        config = (self.out / "config.json").read_text()
        status, _, errors = run(source_of("gguf-f32"), self.out)
        self.assertEqual(status, 2)
        self.assertIn("expected the name of a directory to be made, found what is there", errors)
        self.assertEqual((self.out / "config.json").read_text(), config)

    def test_driftless_names_the_command(self):
        for name in LOGITS:
            with self.subTest(name):
                for path in (source_of(name), FIXTURES / name):
                    done = subprocess.run([PROGRAM, "info", "-m", path], capture_output=True, text=True)
                    self.assertEqual(done.returncode, 2)
                    is_known = path.is_file() or any(sorted(path.glob(pattern)) for pattern in convert.KNOWN_FILES)
                    self.assertEqual(f"scripts/convert.py {path} DIR" in done.stderr, is_known, done.stderr)


class Vocabularies(ConvertTest):
    def test_gguf(self):
        """The ids are those that byte pairs give by hand."""
        self.converted(source_of("gguf-f16"))
        self.assertEqual(
            self.program("tokenize", "-m", self.out, "hello hé").strip().split(","), self.ids("hel", "lo h", "Ã©")
        )
        config = json.loads((self.out / "config.json").read_text())
        self.assertEqual((config["eos_token_id"], config["vocab_size"]), (258, 260))
        self.assertNotIn("[PAD259]", json.loads((self.out / "vocab.json").read_text()))
        self.assertIn("vocabulary", self.converted(source_of("gguf-f32")))
        self.assertFalse((self.out / "vocab.json").exists())

    def ids(self, merged, letters, others):
        """Of a token of the fixture, then of single bytes: letters, and those above 127 by GPT-2's letters for them."""
        tokens = json.loads((self.out / "vocab.json").read_text())
        singles = [tokens["Ġ" if letter == " " else letter] for letter in letters + others]
        return [str(id) for id in [tokens[merged], *singles]]

    def test_files_beside_the_source(self):
        source = self.copied("tensorflow")
        tales = ROOT / "fixtures" / "tales-gpt2"
        shutil.copy(tales / "vocab.json", source.parent / "encoder.json")
        shutil.copy(tales / "merges.txt", source.parent / "vocab.bpe")
        self.converted(source)
        ids = self.program("tokenize", "-m", self.out, "Once upon a time")
        self.assertEqual(ids, self.program("tokenize", "-m", tales, "Once upon a time"))
        if torch:
            source = self.copied("pytorch-base")
            for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
                shutil.copy(tales / name, source.parent)
            self.converted(source)
            self.assertEqual(ids, self.program("tokenize", "-m", self.out, "Once upon a time"))
            self.assertTrue((self.out / "generation_config.json").exists())


class Refusals(ConvertTest):
    def test_other_files(self):
        for content, expected in (
            (b"", "found an empty file"),
            (b"GG", "begins with b'GG'"),
            (b"\x80\x04}q\x00.", "begins with"),
            (b"PK\x03\x04", "PyTorch" if torch is None else "expected a file of torch.save"),
            (struct.pack("<i", 20240326), "expected 4 bytes at 4, found 0"),
            (b"GGUF", "expected 4 bytes at 4, found 0"),
            (struct.pack("<Q", convert.TABLE_MAGIC), "file.index: expected a file, found none"),
        ):
            with self.subTest(content):
                (self.directory / "file").write_bytes(content)
                self.refused(self.directory / "file", expected)
        (self.directory / "a.index").write_bytes(struct.pack("<Q", convert.TABLE_MAGIC))
        self.refused(self.directory / "a.index", "expected 48 bytes at 0, found a file of 8")
        self.refused(self.directory / "none", "expected a file, found none")
        self.refused(self.directory, "expected one of pytorch_model.bin")
        os.mkfifo(self.directory / "pipe")
        self.refused(self.directory / "pipe", "expected a file, found something else")

    def test_formats_that_are_not_there(self):
        self.refused(source_of("gguf-f32"), "expected llm.c, as --format says, found gguf", "--format", "llm.c")
        self.converted(source_of("gguf-f32"), "--format", "gguf")

    def test_the_number_of_heads(self):
        source = self.copied("tensorflow")
        self.refused(source, "n_head: expected 4, as --n-head says, found 2", "--n-head", "4")
        (source.parent / "hparams.json").unlink()
        self.refused(source, "give --n-head")
        self.refused(source, "expected a divisor of n_embd, 8, found 3", "--n-head", "3")
        self.refused(source, "expected a whole number from 1 to 8, found", "--n-head", "-1")
        self.converted(source, "--n-head", "2")
        for text, expected in (
            ("[]", "expected an object"),
            ("{", "expected JSON"),
            ("[" * 100_000, "expected JSON"),
            ('{"n_head": "2"}', "n_head: expected a whole number"),
            ('{"n_head": 2, "n_layer": 3}', "n_layer: expected 2, as the tensors' shapes say, found 3"),
            ('{"n_head": true}', "n_head: expected a whole number"),
        ):
            (source.parent / "hparams.json").write_text(text)
            self.refused(source, expected)

    def test_llm_c(self):
        source = self.copied("llm.c-f32")
        data = source.read_bytes()

        def header(index, word):
            source.write_bytes(data[: 4 * index] + struct.pack("<i", word) + data[4 * index + 4 :])

        for index, word, expected in (
            (1, 2, "version 3 (float32) or 5 (bfloat16), found 20240326 and 2"),
            (1, 5, "bytes, by the sizes in its header, found"),
            (2, 0, "n_positions: expected a whole number"),
            (3, 129, "padded vocab_size: expected 129 or more, found 128"),
            (4, 3, "bytes at"),
            (4, 2**31 - 1, "n_layer: expected a whole number from 1 to 4096"),
            (5, 3, "expected a divisor of n_embd"),
            (6, 2**20, "bytes at"),
            (7, -1, "padded vocab_size: expected a whole number"),
        ):
            with self.subTest(expected):
                header(index, word)
                self.refused(source, expected)
        source.write_bytes(data + b"\0")
        self.refused(source, "expected 12416 bytes, by the sizes in its header, found 12417")

    def test_tensorflow_checksums(self):
        """RFC 3720's examples, and each byte of the files."""
        self.assertEqual(convert.crc32c(b"123456789"), 0xE3069283)
        self.assertEqual(convert.crc32c(bytes(32)), 0x8A9136AA)
        self.assertEqual(convert.crc32c(bytes([255] * 32)), 0x62A8AB43)
        self.assertEqual(convert.crc32c(b""), 0)
        long = random.Random(1).randbytes(2 * 1024 * 1024 + 3077)
        self.assertEqual(convert.crc32c(long), plain_crc(long))
        source = self.copied("tensorflow")
        index = source.read_bytes()
        for place in range(len(index) - 48):
            if place % 7 == 0:
                source.write_bytes(index[:place] + bytes([index[place] ^ 1]) + index[place + 1 :])
                self.assertEqual(run(source, self.out)[0] == 2 or not self.used(source, index), True)
                shutil.rmtree(self.out, ignore_errors=True)
        source.write_bytes(index)
        data_path = source.with_name("model.ckpt.data-00000-of-00001")
        data = bytearray(data_path.read_bytes())
        data[-100] ^= 16
        data_path.write_bytes(data)
        self.refused(source, "the file is damaged")
        data_path.write_bytes(data[:-1000])
        self.refused(source, "bytes at")
        data_path.unlink()
        self.refused(source, "model.ckpt.data-00000-of-00001: expected a file, found none")

    def used(self, source, index):
        """Whether the byte that differs stands in a block that is read: the metaindex is none."""
        changed = next(i for i, (a, b) in enumerate(zip(source.read_bytes(), index)) if a != b)
        footer = convert.Cursor(index[-48:], source)
        begin, size = convert.varint(footer), convert.varint(footer)
        return not begin <= changed < begin + size + 5

    def test_tensorflow_compression(self):
        source = self.copied("tensorflow")
        index = bytearray(source.read_bytes())
        footer = convert.Cursor(bytes(index[-48:]), source)
        _, _, begin, size = (convert.varint(footer) for _ in range(4))
        index[begin + size] = 1
        index[begin + size + 1 : begin + size + 5] = masked_crc(bytes(index[begin : begin + size + 1]))
        source.write_bytes(index)
        self.refused(source, "expected an index without compression, as TensorFlow writes it, found Snappy")

    def test_gguf(self):
        source = self.copied("gguf-q8_0")
        data = source.read_bytes()

        def replaced(old, new, expected):
            self.assertIn(old, data)
            with self.subTest(expected):
                source.write_bytes(data.replace(old, new, 1))
                self.refused(source, expected)

        replaced(
            b"\4\0\0\0\0\0\0\0gpt2", b"\4\0\0\0\0\0\0\0lama", 'general.architecture: expected "gpt2", found "lama"'
        )
        replaced(b"GGUF\3\0\0\0", b"GGUF\1\0\0\0", "expected GGUF of version 2 or 3")
        replaced(b"GGUF\3\0\0\0", b"GGUF\0\0\0\3", "expected GGUF of version 2 or 3")
        name = b"blk.0.attn_output.weight"
        old = name + struct.pack("<IQQI", 2, 32, 32, 8)
        for kind, shown in ((2, "Q4_0"), (30, "BF16"), (12, "Q4_K"), (4, "type 4"), (2**32 - 1, "type 4294967295")):
            replaced(
                old, old[:-4] + struct.pack("<I", kind), f'"{name.decode()}": expected F32, F16 or Q8_0, found {shown}'
            )
        replaced(old, name + struct.pack("<IQQI", 2, 2**63, 2**63, 8), "bytes at")
        replaced(old, name + struct.pack("<IQQI", 2, 16, 64, 8), "expected rows of blocks of 32")
        replaced(old, name + struct.pack("<IQQI", 2**31, 32, 32, 8), "with 4 dimensions at most")
        replaced(name, b"blk.0.attn_outplt.weight", "expected the name of a tensor of GPT-2")
        replaced(name, b"blk.1.attn_output.weight", "gpt2.block_count: expected 2, as the")
        replaced(b"blk.0.ffn_up.weight", b"blk.0.ffn_up.\xff\xff\xff\xff\xff\xff", "expected UTF-8")
        replaced(b"gpt2.block_count\4\0\0\0\1", b"gpt2.block_count\4\0\0\0\2", "gpt2.block_count: expected 1, as the")
        replaced(b"gpt2.block_count\4", b"gpt2.block_count\6", "gpt2.block_count: expected a whole number")
        replaced(data[8:16], struct.pack("<Q", 2**64 - 1), "expected")
        replaced(data[16:24], struct.pack("<Q", 2**64 - 1), "expected")
        source.write_bytes(data[:-1])
        self.refused(source, "bytes at")

    def test_hostile_bytes(self):
        """Whatever byte is another one: an answer or a refusal, never a traceback. Attackers get checksums right."""
        choose = random.Random(3)
        checksums = unittest.mock.patch.object(convert, "check_crc")
        checksums.start()
        self.addCleanup(checksums.stop)
        for name in NEEDS_NUMPY:
            source = self.copied(name)
            data = source.read_bytes()
            head = min(len(data), 4000)
            for trial in range(100):
                spoilt = bytearray(data)
                for _ in range(choose.randint(1, 3)):
                    spoilt[choose.randrange(head)] = choose.choice([0, 1, 127, 128, 255, choose.randrange(256)])
                source.write_bytes(spoilt[: choose.choice([len(spoilt), choose.randrange(1, len(spoilt))])])
                with self.subTest(name, trial=trial):
                    status, _, errors = run(source, self.out)
                    self.assertIn(status, (0, 2), errors)
                    self.assertEqual(status == 0, self.out.exists())
                shutil.rmtree(self.out, ignore_errors=True)
            self.assertEqual(sorted(path.name for path in self.directory.iterdir()), [source.parent.name])
            shutil.rmtree(source.parent)


def plain_crc(data):
    """Byte by byte."""
    register = 0xFFFFFFFF
    table = [int(entry) for entry in convert.OCTET_TABLE]
    for octet in data:
        register = table[(register ^ octet) & 255] ^ register >> 8
    return register ^ 0xFFFFFFFF


def masked_crc(data):
    crc = convert.crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


class Evil:
    """Unpickled as code, it creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@needs_torch
class PyTorch(ConvertTest):
    def state(self, name):
        content = torch.load(source_of(name), weights_only=True)
        return content["model"] if "model" in content else content

    def saved(self, name, content, **options):
        """The fixture's directory with another content in its file."""
        source = self.copied(name)
        torch.save(content, source, **options)
        return source

    def test_no_code_is_run(self):
        trap = self.directory / "trap"
        for is_archive in (True, False):
            for content in ({"wte.weight": Evil(trap)}, Evil(trap), {"model": {}, "model_args": Evil(trap)}):
                path = self.directory / "evil.pt"
                torch.save(content, path, _use_new_zipfile_serialization=is_archive)
                self.refused(path, "expected tensors and plain values alone, found what PyTorch refuses: ")
                self.assertFalse(trap.exists())
                # The trap does work.
                torch.load(path, weights_only=False)
                self.assertTrue(trap.exists())
                trap.unlink()
        (self.directory / "evil.pt").write_bytes(pickle.dumps(Evil(trap), protocol=2))
        self.refused(self.directory / "evil.pt", "begins with")
        self.assertFalse(trap.exists())

    def test_what_is_compressed_is_refused(self):
        path = self.directory / "compressed.pt"
        with zipfile.ZipFile(source_of("mingpt")) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
            for member in old.infolist():
                new.writestr(member.filename, old.read(member))
        self.refused(path, "expected no compression", "--n-head", "2")

    def test_a_huge_tensor_of_a_few_bytes(self):
        state = self.state("mingpt")
        state["transformer.wte.weight"] = torch.zeros(1).expand(2**23, 8)
        source = self.saved("mingpt", state)
        self.assertLess(source.stat().st_size, 50_000)
        self.refused(source, "expected as many bytes as shape [8388608, 8] needs, found fewer", "--n-head", "2")

    def test_tensors_of_other_kinds(self):
        for tensor, expected in (
            (torch.zeros(8, dtype=torch.int32), "expected a dense tensor of float64, float32, float16 or bfloat16"),
            (torch.zeros(8).to_sparse(), "expected a dense tensor"),
            (torch.zeros(8, device="meta"), "expected a dense tensor"),
            (torch.zeros(9), 'ln_f.bias": expected shape [8], found [9]'),
            (torch.zeros(8, 1), "expected shape [8], found [8, 1]"),
            (3, "expected a tensor, found int"),
        ):
            with self.subTest(expected):
                source = self.saved("mingpt", self.state("mingpt") | {"transformer.ln_f.bias": tensor})
                self.refused(source, expected, "--n-head", "2")
        state = self.state("mingpt")
        del state["transformer.h.1.mlp.c_fc.bias"]
        source = self.saved("mingpt", state)
        self.refused(source, "expected a tensor for h.1.mlp.c_fc.bias of shape [32], found none", "--n-head", "2")
        source = self.saved("mingpt", self.state("mingpt") | {"score.weight": torch.zeros(8)})
        self.refused(source, '"score.weight": expected the tensors of a GPT-2 alone', "--n-head", "2")
        source = self.saved("mingpt", self.state("mingpt") | {"wte.weight": torch.zeros(29, 8)})
        self.refused(source, "expected wte.weight once, found it again", "--n-head", "2")
        source = self.saved("mingpt", [1, 2])
        self.refused(source, "expected a state dict, of names and tensors, found list")
        source = self.saved("mingpt", {"model": {}, "\n\x1b[31m": 1})
        self.refused(source, r'found "model", "\n\u001b[31m"')

    def test_options(self):
        self.refused(source_of("mingpt"), "give --n-head")
        source = source_of("nanogpt")
        self.refused(source, "n_head: expected 4, as --n-head says, found 2", "--n-head", "4")
        self.refused(source, "expected mingpt, as --format says, found nanogpt", "--format", "mingpt")
        self.assertIn("note: its activation is taken to be gelu", self.converted(source))
        self.assertNotIn("note", self.converted(source, "--activation", "gelu_new"))
        self.assertEqual(json.loads((self.out / "config.json").read_text())["activation_function"], "gelu_new")
        # nanoGPT's state dict alone.
        source = self.saved("nanogpt", self.state("nanogpt"))
        self.converted(source, "--n-head", "2", "--format", "nanogpt")
        self.check_logits("nanogpt", LOGITS["nanogpt"]["logits"], 1e-5)

    def test_config_json(self):
        source = self.copied("pytorch-lm-head")
        path = source.parent / "config.json"
        config = json.loads(path.read_text())
        for changes, expected in (
            ({"n_layer": 3}, "n_layer: expected 2, as the tensors' shapes say, found 3"),
            ({"n_inner": 32}, "n_inner: expected 12, as the tensors' shapes say, found 32"),
            ({"model_type": "llama"}, 'model_type: expected "gpt2", found "llama"'),
            ({"n_head": 3}, "expected a divisor of n_embd"),
            ({"tie_word_embeddings": False}, "expected output weights that are other than the embedding"),
        ):
            with self.subTest(expected):
                path.write_text(json.dumps(config | changes))
                self.refused(source, expected)
        path.write_text(json.dumps(config))
        self.refused(source, "--activation is for files that do not", "--activation", "gelu")
        self.converted(source)
        self.assertEqual(json.loads((self.out / "config.json").read_text()), config)
        path.unlink()
        self.refused(source, "config.json: expected a file, found none")

    def test_untied_output_weights(self):
        state = self.state("pytorch-lm-head") | {"lm_head.weight": torch.ones(29, 8)}
        source = self.saved("pytorch-lm-head", state)
        self.refused(source, "expected output weights that are those of the embedding")
        path = source.parent / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"tie_word_embeddings": False}))
        self.converted(source)
        self.assertIn("lm_head.weight", (self.out / "model.safetensors").read_bytes().decode(errors="replace"))

    def test_shards(self):
        source = self.copied("pytorch-lm-head")
        state = self.state("pytorch-lm-head")
        names = list(state)
        shards = {"pytorch_model-00001-of-00002.bin": names[:9], "pytorch_model-00002-of-00002.bin": names[9:]}
        for shard, part in shards.items():
            torch.save({name: state[name].clone() for name in part}, source.parent / shard)
        source.unlink()
        index = source.parent / "pytorch_model.bin.index.json"
        weight_map = {name: shard for shard, part in shards.items() for name in part}
        index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
        self.converted(source.parent)
        self.check_logits("pytorch-lm-head", LOGITS["pytorch-lm-head"]["logits"], 1e-5)
        index.write_text(json.dumps({"weight_map": weight_map | {"x": "../pytorch_model.bin"}}))
        self.refused(index, 'expected names of .bin files beside it, found "../pytorch_model.bin"')
        index.write_text(json.dumps({"weight_map": []}))
        self.refused(index, "expected an object weight_map")

    def test_transformer_lens_output_bias(self):
        """Any bias of the output has its place in GPT-2's form."""
        for name in ("hooked-transformer", "hooked-transformer-processed"):
            case, state = LOGITS[name], self.state(name)
            bias = torch.linspace(-3, 2, 29)
            source = self.saved(name, state | {"unembed.b_U": state["unembed.b_U"] + bias})
            self.converted(source)
            self.check_logits(name, np.array(case["logits"]) + bias.numpy(), 1e-5)
        source = self.saved(name, state | {"unembed.b_U": torch.ones(30)})
        self.refused(source, "expected shape [29], found [30]")
        state = self.state("hooked-transformer") | {"unembed.b_U": torch.ones(29), "ln_final.w": torch.zeros(8)}
        self.refused(self.saved("hooked-transformer", state), "expected no zeros")

    def test_transformer_lens_that_is_no_gpt2(self):
        state = self.state("hooked-transformer")
        for changes, expected in (
            ({"blocks.0.attn.rotary_sin": torch.zeros(8, 4)}, "expected the tensors of a GPT-2 alone"),
            ({"blocks.0.mlp.W_gate": torch.zeros(8, 32)}, "expected the tensors of a GPT-2 alone"),
            ({"blocks.0.attn.W_K": torch.zeros(4, 8, 2)}, "expected shape [n_head, n_embd, d_head] as of q, k and v"),
            ({"blocks.0.attn.W_Q": torch.zeros(8, 8)}, "as of q, k and v, found [8, 8]"),
            ({"blocks.0.attn.b_V": torch.zeros(8)}, "expected shape [n_head, d_head] as of q, k and v, found [8]"),
            ({"blocks.0.attn.W_K": torch.zeros(2, 8, 4).double()}, "expected F32 of shape"),
        ):
            with self.subTest(expected):
                self.refused(self.saved("hooked-transformer", state | changes), expected)
        heads = tuple(f"attn.{name}" for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"))
        small = {key: value[:1] if key.endswith(heads) else value for key, value in state.items()}
        self.refused(self.saved("hooked-transformer", small), "expected shape [8, 24], found [8, 12]")
        without_mlp = {key: value for key, value in state.items() if ".mlp." not in key}
        self.refused(self.saved("hooked-transformer", without_mlp), "expected a tensor for h.0.mlp.c_fc.weight")

    def test_hostile_bytes(self):
        choose = random.Random(4)
        for name in ("mingpt", "mingpt-old"):
            source = self.copied(name)
            data = source.read_bytes()
            for trial in range(100):
                spoilt = bytearray(data)
                for _ in range(choose.randint(1, 3)):
                    spoilt[choose.choice([choose.randrange(3000), choose.randrange(len(data))])] = choose.randrange(256)
                source.write_bytes(spoilt[: choose.choice([len(spoilt), choose.randrange(1, len(spoilt))])])
                with self.subTest(name, trial=trial):
                    status, _, errors = run(source, self.out, "--n-head", "2")
                    self.assertIn(status, (0, 2), errors)
                    self.assertEqual(status == 0, self.out.exists())
                shutil.rmtree(self.out, ignore_errors=True)


if __name__ == "__main__":
    PROGRAM = Path(sys.argv.pop(1)).resolve()
    if torch is None:
        print("PyTorch is not installed: its formats are not tried")
    unittest.main(verbosity=2)
