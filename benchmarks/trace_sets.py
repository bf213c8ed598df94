"""Seconds and peak memory of making, reading and counting large trace sets, and of laying their cells out.

    python benchmarks/trace_sets.py --sizes 100000x7 1000000x1 --csv benchmarks/trace_sets.csv

One row of CSV for each stage of each size (users x days) of the toy city with 1,000 places. Making is `ppmtf import`;
the other stages follow each other in a process of their own. Memory is the peak of the process so far, interpreter and
libraries (about 230 MB) included.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from common import Row, command_line, in_a_process, measured, peak_mb, record

FIELDS = ("users", "days", "stage", "events", "seconds", "peak_memory_mb")
N_PLACES = 1000


def make(out: str, n_users: str, n_days: str) -> list[Row]:
    """Simulate a city and write it, split into training and test users."""
    from ppmtf_jax.cli.app import app

    size = ["--users", n_users, "--places", str(N_PLACES), "--days", n_days]
    return [stage("make", lambda: app(["import", "toy-city", *size, "--out", out], standalone_mode=False))[1]]


def use(out: str) -> list[Row]:
    """Read the training set, count it, and lay out its cells with weighted zeros."""
    from ppmtf_jax.data.tensors import count_tensors
    from ppmtf_jax.data.traces import Traces
    from ppmtf_jax.gibbs.cells import observe

    traces, reading = stage("read", lambda: Traces.load(Path(out) / "train"))
    events = {"events": traces.n_events}
    counts, counting = stage("count", partial(count_tensors, traces, seed=0))
    del traces
    laying_out = stage("lay out", lambda: observe(counts, "weighted", 1000, seed=0))[1]
    return [row | events for row in (reading, counting, laying_out)]


def stage(name: str, action: Callable[[], Any]) -> tuple[Any, Row]:
    result, took = measured(action)
    return result, {"stage": name, "seconds": round(took["seconds"], 1), "peak_memory_mb": peak_mb()}


def rows(sizes: list[str]) -> Iterator[Row]:
    for size in sizes:
        n_users, n_days = size.split("x")
        with tempfile.TemporaryDirectory() as folder:
            out = f"{folder}/city"
            for row in in_a_process(make, out, n_users, n_days) + in_a_process(use, out):
                yield {"users": n_users, "days": n_days} | row


def main() -> None:
    """Measure each size, and print and store the figures."""
    parser = command_line(__doc__)
    parser.add_argument("--sizes", nargs="+", default=["100000x7", "1000000x1"], help="users x days")
    arguments = parser.parse_args()
    record(rows(arguments.sizes), arguments.csv, FIELDS)


if __name__ == "__main__":
    main()
