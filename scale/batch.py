#!/usr/bin/env python3
"""Runs files of requests through `driftless batch` on Ray Data: on this machine, or on all those of a cluster.

    pip install -r scale/requirements.txt
    scale/batch.py --input requests-*.jsonl --output results --workers 2 -- --max-tokens 64
    scale/batch.py --input requests.parquet --output results --parquet --workers 16 --threads 4 --address auto

Each worker is an actor of Ray with a process of its own, `driftless batch - -o -`, which has the model loaded; what
follows -- are options of that command. Ray hands out the requests, and those of a worker or a process that has died
once more.

The lines that are written are those of `driftless batch FILE` for each of the files, byte for byte, in another order:
whatever the number of workers, and whichever of them died. A request without an id has the number of its line in its
file. Rows of Parquet files have no such number and must have an id; their other columns are the keys of a request, and
null is none. With --parquet, the files that are written are Parquet as well: `result` is the line, the other columns
are what is in it.
"""

import argparse
import io
import json
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy, DataContext, SaveMode
from ray.data.datasource import BlockBasedFileDatasink, FileBasedDatasource

ROOT = Path(__file__).resolve().parent.parent

# Requests that a worker is given at a time: at the end of each lot some of its sequences have nothing to do, at the end
# of the job some workers.
LOT_ROWS = 512
READ_BYTES = 1 << 20
# How often a lot is tried once more whose process was killed: that of a request which needs more memory than there is
# would be killed each time.
MAX_RETRIES = 3
KILLED = "driftless was killed"

# `request` is a line, `id` the JSON text of the id in its result if the program finds none in the line.
REQUESTS = pa.schema({"id": pa.string(), "request": pa.large_binary()})
RESULTS = pa.schema({"result": pa.large_string()})
COLUMNS = pa.schema(
    {
        "id": pa.string(),
        "text": pa.large_string(),
        "ids": pa.list_(pa.int32()),
        "finish_reason": pa.string(),
        "prompt_tokens": pa.int64(),
        "completion_tokens": pa.int64(),
        "error": pa.string(),
        "result": pa.large_string(),
    }
)


# ---- requests ----


class JsonLines(FileBasedDatasource):
    """The lines that are requests. Ray's readers of text and of JSON keep neither their numbers nor their bytes."""

    def _read_stream(self, file, path):
        number = 0
        with io.BufferedReader(file) as reader:
            while lines := reader.readlines(READ_BYTES):
                requests = []
                for line in lines:
                    number += 1
                    line = line.removeprefix(b"\xef\xbb\xbf" if number == 1 else b"").rstrip(b"\r\n")
                    if line.strip(b" \t\r"):
                        requests.append({"id": str(number), "request": line})
                yield pa.Table.from_pylist(requests, REQUESTS)


def json_text(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def without_nulls(value):
    """Every row of a struct has all of its keys."""
    if not isinstance(value, dict):
        return value
    return {key: without_nulls(one) for key, one in value.items() if one is not None}


def row_requests(table):
    """Rows of a Parquet file as requests."""
    requests = []
    for row in map(without_nulls, table.to_pylist(maps_as_pydicts="strict")):
        if not isinstance(row.get("id"), (str, int)):
            raise ValueError(f"expected an id, a string or a whole number, in every row; found {row.get('id')}")
        requests.append({"id": json_text(row["id"]), "request": json_text(row).encode()})
    return pa.Table.from_pylist(requests, REQUESTS)


# ---- the program ----


class Worker:
    """A process with the model, kept from one lot of requests to the next."""

    def __init__(self, command):
        self.command = command
        self.start()

    def start(self):
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors
        )
        self.number = 0  # of the line that the process was sent last

    def __call__(self, table):
        if self.process.poll() is not None:
            self.start()
        try:
            results = self.exchange(table["request"].to_pylist(), table["id"].to_pylist())
        except BaseException:
            self.process.kill()  # results of this lot must not be taken for those of the next
            raise
        return pa.table({"result": results}, RESULTS)

    def exchange(self, requests, ids):
        """The result of each request. Where the program finds no id, a result has the number of the line that it was
        sent; that of `ids` takes its place. So that it is not taken for an id that the request does have, it must not
        be in the request: empty lines are sent, which count, until it is not.
        """
        sent = bytearray()
        numbers = []
        for request in requests:
            self.number += 1
            while str(self.number).encode() in request:
                sent += b"\n"
                self.number += 1
            sent += request + b"\n"
            numbers.append(self.number)
        # The process stops reading when nobody takes its results.
        sender = threading.Thread(target=self.send, args=(sent,))
        sender.start()
        results = []
        for number, own in zip(numbers, ids):
            line = self.process.stdout.readline()
            if not line.endswith(b"\n"):
                raise self.failure()
            line = line.decode().removesuffix("\n")
            start = f'{{"id":{number},'
            if line.startswith(start):
                line = f'{{"id":{own},' + line.removeprefix(start)
            results.append(line)
        sender.join()
        return results

    def send(self, lines):
        try:
            self.process.stdin.write(lines)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # whoever reads the results will see that they end

    def failure(self):
        status = self.process.wait()
        if status < 0:
            return RuntimeError(f"{KILLED} by signal {-status}")
        self.errors.seek(0)
        return RuntimeError(f"{' '.join(self.command)}: exit status {status}: {self.errors.read().decode().strip()}")


# ---- results ----


class ResultLines(BlockBasedFileDatasink):
    """Writes the lines as they are; Ray's own writer of JSON would write objects in its own way."""

    def __init__(self, path):
        super().__init__(path, file_format="jsonl", mode=SaveMode.ERROR)

    def write_block_to_file(self, block, file):
        for line in block.to_arrow()["result"]:
            file.write(line.as_py().encode() + b"\n")


def result_columns(table):
    rows = []
    for line in table["result"].to_pylist():
        result = json.loads(line)
        row = {name: result.get(name) for name in COLUMNS.names}
        row |= result.get("usage", {}) | {"result": line}
        if not isinstance(result["id"], str):
            row["id"] = json_text(result["id"])
        rows.append(row)
    return pa.Table.from_pylist(rows, COLUMNS)


# ---- the job ----


def start_ray(address, workers, threads):
    # Workers keep their CPUs. Cutting files into lots needs one, and without it the job would wait for ever.
    needed = workers * threads + 1
    if address or "RAY_ADDRESS" in os.environ:
        ray.init(address=address)
        found = ray.cluster_resources().get("CPU", 0)
        if found < needed:
            raise ValueError(
                f"--workers {workers}, --threads {threads}: expected {needed} CPUs in the cluster of Ray, one of which "
                f"is for files; found {found:g}"
            )
    else:
        ray.init(num_cpus=needed)


def run(args):
    start_ray(args.address, args.workers, args.threads)
    context = DataContext.get_current()
    context.retried_map_errors = [KILLED]
    context.max_map_retries = MAX_RETRIES
    files = {"num_cpus": 0, "concurrency": args.workers}
    tables = {"batch_format": "pyarrow", "batch_size": None}
    command = [args.program, "batch", "-", "-o", "-", "--threads", str(args.threads), *args.options]

    if any(file.endswith(".parquet") for file in args.input):
        requests = ray.data.read_parquet(args.input, **files).map_batches(row_requests, **tables, **files)
    else:
        requests = ray.data.read_datasource(JsonLines(args.input), **files)
    results = requests.repartition(target_num_rows_per_block=LOT_ROWS).map_batches(
        Worker,
        fn_constructor_args=(command,),
        compute=ActorPoolStrategy(size=args.workers),
        num_cpus=args.threads,
        **tables,
    )
    writing = {"ray_remote_args": {"num_cpus": 0}, "concurrency": args.workers}
    if args.parquet:
        results = results.map_batches(result_columns, **tables, **files)
        results.write_parquet(args.output, mode=SaveMode.ERROR, **writing)
    else:
        results.write_datasink(ResultLines(args.output), **writing)


def default_program():
    built = ROOT / "build" / "release" / "driftless"
    return str(built) if built.exists() else shutil.which("driftless") or "driftless"


def parse_arguments():
    summary, _, details = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--input", nargs="+", required=True, help="JSON Lines, or .parquet; paths or URIs")
    parser.add_argument("--output", required=True, help="the folder to write, which must not be there yet")
    parser.add_argument("--parquet", action="store_true", help="write Parquet")
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1, help="of each worker, which Ray finds as many CPUs for")
    parser.add_argument("--address", help="of a cluster of Ray; without it and RAY_ADDRESS, one is started here")
    parser.add_argument("--program", default=default_program(), help="driftless, on every machine of the cluster")
    parser.add_argument("options", nargs="*", help="after --: of `driftless batch`")
    args = parser.parse_args()
    if "--unordered" in args.options:
        parser.error("--unordered: a result is known by its place; Ray does not keep the order of the lines anyway")
    return args


if __name__ == "__main__":
    run(parse_arguments())
