"""Seconds and peak memory of making, reading and counting large trace sets, and of laying their cells out.

    python benchmarks/trace_sets.py --sizes 100000x7 1000000x1 --csv benchmarks/trace_sets.csv

One row of CSV for each stage of each size (users x days) of the toy city with 1,000 places. Making is `ppmtf import`;
the other stages follow each other in a process of their own. Memory is the peak of the process so far, interpreter and
libraries (about 230 MB) included.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FIELDS = ("users", "days", "stage", "events", "seconds", "peak_memory_mb")
N_PLACES = 1000


def make(out: Path, n_users: int, n_days: int) -> list[dict[str, Any]]:
    """Simulate a city and write it, split into training and test users."""
    from ppmtf_jax.cli.app import app

    size = ["--users", str(n_users), "--places", str(N_PLACES), "--days", str(n_days)]
    return [_measured("make", lambda: app(["import", "toy-city", *size, "--out", str(out)], standalone_mode=False))[1]]


def use(out: Path) -> list[dict[str, Any]]:
    """Read the training set, count it, and lay out its cells with weighted zeros."""
    from ppmtf_jax.data.tensors import count_tensors
    from ppmtf_jax.data.traces import Traces
    from ppmtf_jax.gibbs.cells import observe

    traces, reading = _measured("read", lambda: Traces.load(out / "train"))
    events = {"events": traces.n_events}
    counts, counting = _measured("count", lambda: count_tensors(traces, seed=0))
    del traces
    laying_out = _measured("lay out", lambda: observe(counts, "weighted", 1000, seed=0))[1]
    return [row | events for row in (reading, counting, laying_out)]


def _measured(stage: str, action: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
    begin = time.perf_counter()
    result = action()
    seconds = round(time.perf_counter() - begin, 1)
    peak_memory_mb = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return result, {"stage": stage, "seconds": seconds, "peak_memory_mb": peak_memory_mb}


def _in_own_process(*arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, os.fspath(Path(__file__).resolve()), *arguments]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output.splitlines()[-1])


def main() -> None:
    """Measure each size, and print and store the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["100000x7", "1000000x1"], help="users x days")
    parser.add_argument("--csv", type=Path, help="file for the figures")
    parser.add_argument("--make", nargs=3, metavar=("FOLDER", "USERS", "DAYS"), help=argparse.SUPPRESS)
    parser.add_argument("--use", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.make:
        folder, n_users, n_days = arguments.make
        print(json.dumps(make(Path(folder), int(n_users), int(n_days))))
        return
    if arguments.use:
        print(json.dumps(use(arguments.use)))
        return
    rows = []
    for size in arguments.sizes:
        n_users, n_days = size.split("x")
        with tempfile.TemporaryDirectory() as folder:
            out = f"{folder}/city"
            measured = _in_own_process("--make", out, n_users, n_days) + _in_own_process("--use", out)
        rows += [{"users": n_users, "days": n_days} | row for row in measured]
    for stream in [sys.stdout, *([arguments.csv.open("w", newline="")] if arguments.csv else [])]:
        writer = csv.DictWriter(stream, FIELDS)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
