"""Seconds and peak memory of making, reading and counting large trace sets, and of laying their cells out.

    python benchmarks/trace_sets.py --sizes 100000x7 1000000x1 --csv benchmarks/trace_sets.csv

One row of CSV for each stage of each size (users x days) of the toy city with 1,000 places. Making is `ppmtf import`;
the other stages follow each other in a process of their own. Memory is the peak of the process so far, interpreter and
libraries (about 230 MB) included.

    python benchmarks/trace_sets.py --parts 100000 1000000 --processes 1 2 --csv benchmarks/trace_sets_parts.csv

Cities of one day, written in parts of 10,000 users. `ppmtf fit` learns the bridge, `ppmtf synthesize` makes a trace of
each user, `ppmtf test` tests them, and `ppmtf release` releases them, each with the given numbers of processes. A row
has the seconds of all processes together, the CPU seconds and the peak memory of each process, and a checksum of the
files, which must be the same for all numbers of processes. `--places` gives another number of places than 1,000. With
`--work`, the folders are kept, and an existing city is used again. With `--checkins`, people check in now and then in
two weeks, and only the fit is measured.

    python benchmarks/trace_sets.py --work FOLDER --copies 50 --processes 1 2

Copies the traces of such a folder 50 times, for new users of the same clusters; then tests and releases them. This is
the cheapest way to a large set.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from common import Clock, Row, command_line, in_a_process, machine, measured, peak_mb, record

FIELDS = ("users", "days", "stage", "events", "seconds", "peak_memory_mb")
N_PLACES = 1000
# Places of one training user are released too.
ONE = "--min-users-per-place=1"


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


def write_parts(out: str, n_users: int, n_places: int, checkins: bool) -> list[Row]:
    """Write a city part by part."""
    from ppmtf_jax.data.stored_traces import save_in_parts
    from ppmtf_jax.datasets.toy_city import toy_city_pieces

    when = {"n_days": 14, "missing": 0.92} if checkins else {"n_days": 1}
    pieces = toy_city_pieces(n_users, n_places=n_places, seed=0, **when)
    return [stage("write", lambda: save_in_parts((piece.traces for piece in pieces), out))[1]]


def together(command: list[str], n_processes: int) -> Row:
    """Run a command of `ppmtf` in several processes, measured from outside."""
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    clock, running = Clock(), []
    for number in range(n_processes):
        own = [sys.executable, "-m", "ppmtf_jax.cli.app", *command]
        if n_processes > 1:
            own += ["--coordinator", f"localhost:{port}", "--processes", str(n_processes), "--process", str(number)]
        running.append(subprocess.Popen(own, stdout=subprocess.DEVNULL))
    ended = [os.wait4(process.pid, 0) for process in running]
    if any(status for _, status, _ in ended):
        raise SystemExit(f"{command[0]} failed")
    cpu = " ".join(f"{usage.ru_utime + usage.ru_stime:.0f}" for _, _, usage in ended)
    peaks = " ".join(str(usage.ru_maxrss // 1024) for _, _, usage in ended)
    compiled = "before" if "JAX_COMPILATION_CACHE_DIR" in os.environ else "now"
    return {"seconds": clock.row()["seconds"], "cpu_seconds": cpu, "peak_mb": peaks, "compiled": compiled}


def rows_of_parts(
    sizes: list[int], n_places: int, numbers: list[int], work: Path | None, checkins: bool
) -> Iterator[Row]:
    from ppmtf_jax.runtime.folders import checksum

    for n_users in sizes:
        with nullcontext(str(work)) if work else tempfile.TemporaryDirectory() as folder:
            city, model, made, verdicts, released = (
                f"{folder}/{name}" for name in ("city", "model", "synthetic", "verdicts", "released")
            )
            if not Path(city).exists():
                (written,) = in_a_process(write_parts, city, n_users, n_places, checkins)
                about = {"users": n_users, "places": n_places, "processes": 1, "stage": "write"}
                about |= {"seconds": written["seconds"], "cpu_seconds": "", "peak_mb": written["peak_memory_mb"]}
                yield about | {"compiled": "", "writes": "", "files": "", **machine()}
            for n_processes in numbers:
                commands = {
                    "fit": [city, "--out", model],
                    "synthesize": [model, "--out", made],
                    "test": [model, made, "--out", verdicts],
                    "release": [made, verdicts, "--out", released, "--key", f"{folder}/key", ONE],
                }
                if checkins:
                    commands = {"fit": [*commands["fit"], "--set", "gaps=as-observed"]}
                for name, arguments in commands.items():
                    took = together([name, *arguments, "--seed", "0", "--overwrite"], n_processes)
                    # The marker has the checksums of all other files.
                    out = Path(arguments[arguments.index("--out") + 1])
                    files = checksum(out / "ppmtf.json")[:12]
                    about = {"users": n_users, "places": n_places, "processes": n_processes, "stage": name}
                    yield about | took | {"writes": "each", "files": files, **machine()}


def write_copies(folder: str, n_copies: str) -> list[Row]:
    """A model and synthetic traces of `n_copies` times as many users, who are copies of those in the folder."""
    from dataclasses import replace

    import numpy as np

    from ppmtf_jax.data.stored_traces import save_in_parts
    from ppmtf_jax.data.traces import Traces
    from ppmtf_jax.synthesizers.fitted_model import FittedModel

    one, traces, n = FittedModel.load(f"{folder}/model"), Traces.load(f"{folder}/synthetic"), int(n_copies)
    many = replace(one.trace_model, cluster=np.tile(np.asarray(one.trace_model.cluster), n))
    model = replace(one, user_ids=np.arange(n * one.n_users), trace_model=many)
    model.save(f"{folder}/model-x{n}", overwrite=True)
    ids = np.arange(traces.n_users)
    claimed = model.claim(traces)
    parts = (replace(claimed, user_ids=ids + copy * len(ids)) for copy in range(n))
    return [stage("copy", lambda: save_in_parts(parts, f"{folder}/synthetic-x{n}", overwrite=True))[1]]


def rows_of_copies(folder: str, n_copies: int, numbers: list[int]) -> Iterator[Row]:
    from ppmtf_jax.runtime.folders import checksum

    if not Path(f"{folder}/synthetic-x{n_copies}").exists():
        in_a_process(write_copies, str(folder), str(n_copies))
    model, made, verdicts, released = (
        f"{folder}/{name}-x{n_copies}" for name in ("model", "synthetic", "verdicts", "released")
    )
    runs = [(number, ["test", model, made], verdicts) for number in numbers]
    runs += [(number, ["release", made, verdicts, "--key", f"{released}-key", ONE], released) for number in numbers]
    for n_together, command, out in runs:
        took = together([*command, "--out", out, "--seed", "0", "--overwrite"], n_together)
        about = {"copies": n_copies, "processes": n_together, "stage": command[0]}
        yield about | took | {"files": checksum(Path(out) / "ppmtf.json")[:12], **machine()}


def main() -> None:
    """Measure each size, and print and store the figures."""
    parser = command_line(__doc__)
    parser.add_argument("--sizes", nargs="+", default=["100000x7", "1000000x1"], help="users x days")
    parser.add_argument("--parts", nargs="+", type=int, default=[], help="numbers of users")
    parser.add_argument("--places", type=int, default=N_PLACES, help="of the cities of --parts")
    parser.add_argument("--checkins", action="store_true", help="sparse check-ins of two weeks; fit only")
    parser.add_argument("--processes", nargs="+", type=int, default=[1])
    parser.add_argument("--work", type=Path, help="folder for all output of --parts")
    parser.add_argument("--copies", type=int, help="how many copies of the users in --work")
    arguments = parser.parse_args()
    if arguments.copies:
        record(rows_of_copies(arguments.work, arguments.copies, arguments.processes), arguments.csv)
    elif arguments.parts:
        given = (getattr(arguments, name) for name in ("parts", "places", "processes", "work", "checkins"))
        record(rows_of_parts(*given), arguments.csv)
    else:
        record(rows(arguments.sizes), arguments.csv, FIELDS)


if __name__ == "__main__":
    main()
