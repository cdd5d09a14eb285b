"""scale/batch.py writes the lines of `driftless batch`: tests/scale/batch_test.py PROGRAM"""

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent.parent / "scale" / "batch.py"
PROGRAM = Path(sys.argv[-1]).resolve()
WORDS = "Once upon a time there was an old king who had three sons and one golden bird".split()


def requests(count, seed):
    """Some have an id, which may be a number that a line has, the others none. Lines end in each way there is."""
    choose = random.Random(seed)
    for index in range(count):
        request = {"prompt": " ".join(choose.choices(WORDS, k=choose.randint(1, 9)))}
        if index % 3 == 0:
            request = {"id": choose.choice([f"{seed}-{index} \u00fc", choose.randint(-3, 2 * count)])} | request
        if index % 5 == 0:
            request |= {"temperature": 0.8, "seed": index, "n": 2, "logprobs": 1}
        yield json.dumps(request).encode() + choose.choice([b"\n", b"\r\n", b"\n\n", b" \n \t\n"])


BAD = b"\n".join(
    [
        b'{"id": 1, "prompt": "a"',
        b'{"id": 9, "prompt": NaN}',
        b'{"id": null, "prompt": "a"}',
        b'{"id": [4], "prompt": "a"}',
        b'{"id": 7}',
        b'{"id": 8, "id": 8, "prompt": "a"}',
        b'{"id": "\xff", "prompt": "a"}',
        b'{"id": 3, "prompt": [[[[[[[[[[1]]]]]]]]]]}',
        b"[2]",
        b'"\\u0000"',
        b"\x00",
        b'{"prompt": "a", "top_p": 2}',
        b'{"id": 1.5, "ids": []}',
        b'{"prompt": "a", "kind": 1}',
        b'{"id": -0, "ids": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]}',
        b'{"ids": [1]}',
    ]
)


class Batch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import ray

        # As many CPUs as the tests name, however many there are.
        ray.init(num_cpus=5, include_dashboard=False, log_to_driver=False)
        cls.address = ray.get_runtime_context().gcs_address
        cls.addClassCleanup(ray.shutdown)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.program = cls.folder / "driftless"  # tells the processes of this test from others
        cls.program.symlink_to(PROGRAM)
        cls.files = [cls.folder / f"requests {index}.jsonl" for index in range(4)]
        for index, file in enumerate(cls.files[:3]):
            file.write_bytes(b"\xef\xbb\xbf" * (index == 1) + BAD + b"\n" + b"".join(requests(700, index)) + BAD)
        cls.files[3].write_bytes(b"\n")  # no requests

    def start(self, files, workers, *options, flags=()):
        self.output = Path(tempfile.mkdtemp(dir=self.folder)) / "results"
        command = [sys.executable, SCRIPT, "--address", self.address, "--input", *files, "--output", self.output]
        command += ["--workers", str(workers), "--program", self.program, *flags, "--", *options]
        return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def end(self, job, status=0):
        text = job.communicate()[0]
        self.assertEqual(job.returncode, status, text)
        return text

    def lines(self):
        return sorted(line for file in self.output.iterdir() for line in file.read_bytes().splitlines(keepends=True))

    def expected(self, files, *options):
        lines = []
        for file in files:
            done = subprocess.run([PROGRAM, "batch", file, "-o", "-", *options], capture_output=True)
            self.assertIn(done.returncode, (0, 1), done.stderr)
            lines += done.stdout.splitlines(keepends=True)
        return sorted(lines)

    def processes(self):
        """{id of each process of the program: its parent's}"""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if (folder / "cmdline").read_bytes().startswith(os.fsencode(self.program) + b"\0"):
                    found[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                pass  # it has ended
        return found

    def test_any_number_of_workers(self):
        expected = self.expected(self.files, "-n", "3")
        self.assertEqual(len(expected), 3 * (700 + 2 * BAD.count(b"\n") + 2))
        for workers in (1, 2, 4):
            with self.subTest(workers=workers):
                self.end(self.start(self.files, workers, "-n", "3"))
                self.assertEqual(self.lines(), expected)

    def test_ids_that_are_numbers_of_other_lines(self):
        file = self.folder / "numbers.jsonl"
        file.write_text("\n" + "".join(f'{{"id": {number}, "ids": [0]}}\n' for number in range(1, 100)))
        self.end(self.start([file], 1, "-n", "1"))
        self.assertEqual(self.lines(), self.expected([file], "-n", "1"))

    def test_killed(self):
        options = ("-n", "40", "--threads", "1")
        expected = self.expected(self.files, *options)
        for victim in ("process", "actor"):
            with self.subTest(victim=victim):
                job = self.start(self.files, 2, *options[:2])
                seen = set()
                killed = 0
                while job.poll() is None and killed < 3:
                    time.sleep(1)
                    for process, parent in self.processes().items():
                        if process not in seen and killed < 3:
                            os.kill(process if victim == "process" else parent, signal.SIGKILL)
                            killed += 1
                        seen.add(process)
                self.end(job)
                self.assertEqual(killed, 3)
                self.assertEqual(self.lines(), expected)

    def test_killed_each_time(self):
        job = self.start(self.files[:1], 1, "-n", "100")
        killed = set()
        while job.poll() is None:
            time.sleep(0.2)
            for process in self.processes().keys() - killed:
                os.kill(process, signal.SIGKILL)
                killed.add(process)
        self.assertIn("driftless was killed by signal 9", self.end(job, status=1))

    def test_parquet(self):
        import pyarrow as pa
        import pyarrow.parquet as parquet

        rows = [
            {"id": "a", "prompt": "Once", "seed": 1, "temperature": 0.5, "stop": ["time", "."]},
            {"id": "biased", "prompt": "Once", "logit_bias": {"11": -1.5}},
            {"id": "\u00fc\n", "ids": [1, 2], "top_p": 0.5},
            {"id": "bad", "logit_bias": {"300": 1.0}},
            {"id": "nan", "prompt": "Once", "temperature": float("nan")},
        ]
        rows += [{"id": str(index), "prompt": "Once upon", "seed": index, "temperature": 1.0} for index in range(600)]
        columns = {"id": pa.string(), "prompt": pa.string(), "ids": pa.list_(pa.int64()), "seed": pa.int32()}
        columns |= {"temperature": pa.float64(), "top_p": pa.float64(), "stop": pa.list_(pa.string())}
        columns |= {"logit_bias": pa.struct({"11": pa.float64(), "300": pa.float64()})}
        file = self.folder / "requests.parquet"
        parquet.write_table(pa.Table.from_pylist(rows, pa.schema(columns)), file)
        as_lines = self.folder / "rows.jsonl"
        as_lines.write_text("".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows))
        expected = [line.decode().rstrip("\n") for line in self.expected([as_lines], "-n", "3")]
        # Only its line is wrong, not its id.
        expected = sorted(line.replace('{"id":5,', '{"id":"nan",') for line in expected)

        self.end(self.start([file], 2, "-n", "3", flags=("--parquet",)))
        table = parquet.read_table(self.output).sort_by("result")
        self.assertEqual(table["result"].to_pylist(), expected)
        results = [json.loads(line) for line in expected]
        for name in ("id", "text", "ids", "finish_reason", "error"):
            self.assertEqual(table[name].to_pylist(), [result.get(name) for result in results], name)
        for name in ("prompt_tokens", "completion_tokens"):
            self.assertEqual(table[name].to_pylist(), [result.get("usage", {}).get(name) for result in results], name)

        self.end(self.start([file], 1, "-n", "3"))
        self.assertEqual(self.lines(), sorted(line.encode() + b"\n" for line in expected))

    def test_parquet_without_ids(self):
        import pyarrow as pa
        import pyarrow.parquet as parquet

        file = self.folder / "no ids.parquet"
        for ids, found in ([None], "None"), ([0.5], "0.5"):
            parquet.write_table(pa.table({"prompt": ["a"], "id": ids}), file)
            text = self.end(self.start([file], 1), status=1)
            self.assertIn(f"expected an id, a string or a whole number, in every row; found {found}", text)

    def test_refusals(self):
        text = self.end(self.start(self.files, 1, "--model", "nowhere"), status=1)
        self.assertIn("exit status 2: driftless: nowhere: expected a model", text)
        text = self.end(self.start(self.files, 2, flags=("--threads", "3")), status=1)
        self.assertIn("--threads 3: expected 7 CPUs in the cluster of Ray, one of which is for files; found 5", text)
        text = self.end(self.start(self.files, 1, "--unordered"), status=2)
        self.assertIn("--unordered: a result is known by its place", text)


if __name__ == "__main__":
    if importlib.util.find_spec("ray") is None:
        print(f"[skipped] {sys.executable} has no Ray; CMake's Python3_EXECUTABLE says which Python is meant")
    else:
        unittest.main(argv=sys.argv[:-1], verbosity=2)
