"""Seconds of the commands around a job: the start of the program, a report, and exports.

    python benchmarks/reports.py ../shared --csv benchmarks/reports.csv

"start": a new process imports the library, or shows the help. "report": `ppmtf report` after a job with the default
system and seed 0, on people flow and on check-ins in New York, in a process of its own; a row for each section that
takes at least a second, one for the shadow models and the attack on identity, which runs beside them, and one for the
whole report. "export": every format, on the day of 1,000 people of a toy city. Without a persistent cache of JAX,
programs are compiled anew.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from common import Clock, Row, command_line, in_a_process, machine, measured, peak_mb, record

PARTS = ("start", "report", "export")
JOBS = {
    "people flow": {"source": "people-flow", "path": "reference/people_flow"},
    "New York": {"source": "foursquare", "path": "data/foursquare-tsmc2014-nyc/dataset_TSMC2014_NYC_ge10.txt.gz"},
}
COLUMNS = ["part", "what", "seconds", "cpu_seconds", "peak_mb", "cores", "load"]
N_STARTS = 5
LEAST_S = 1.0


def main() -> None:
    parser = command_line(__doc__, shared=True)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=tuple(JOBS))
    parser.add_argument("--keep", type=Path, help="folder of the jobs; finished jobs are not run again")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = str(arguments.keep or made)
        record(rows(arguments.parts, arguments.jobs, str(arguments.shared.resolve()), folder), arguments.csv, COLUMNS)


def rows(parts: list[str], jobs: list[str], shared: str, folder: str) -> Iterator[Row]:
    found = []
    if "start" in parts:
        found += [("start", (command,), starts) for command in ("import ppmtf_jax", "ppmtf --help")]
    if "report" in parts:
        found += [("report", (name, shared, folder), report_of) for name in jobs]
    if "export" in parts:
        found.append(("export", (), exports))
    for part, given, function in found:
        for row in in_a_process(function, *given):
            yield {"part": part, **row, **machine()}


def starts(command: str) -> list[Row]:
    """The fastest of several new processes."""
    import resource
    import subprocess

    code = ["-c", command] if command.startswith("import") else ["-m", "ppmtf_jax", "--help"]
    found = []
    for _ in range(N_STARTS):
        clock, before = Clock(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *code], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        found.append({"what": command, "seconds": round(clock.both()[0], 2), "cpu_seconds": round(cpu_seconds, 2)})
    return [min(found, key=lambda row: row["cpu_seconds"])]


def report_of(name: str, shared: str, folder: str) -> list[Row]:
    """Run the job in another process, then write the report in this one."""
    in_a_process(run_job, name, shared, folder)
    from ppmtf_jax.jobs.report import report_run

    found, whole = [], Clock()
    now, clock = "loading", Clock()

    def say(text: str) -> None:
        nonlocal now, clock
        row = {"what": f"{name}: {now}", **clock.row()}
        if row["seconds"] >= LEAST_S:
            found.append(row)
        # Shadow models say how far they are; all of it is one row.
        if not text.startswith("shadow models:"):
            now, clock = text.split(",")[0].removesuffix(" ..."), Clock()

    job = Path(folder) / name
    (job / "private" / "shadows.npz").unlink(missing_ok=True)
    report_run(job, overwrite=True, say=say)
    say("")
    rows = {row["what"]: row for row in found}
    return [*rows.values(), {"what": f"{name}: all", **whole.row(), "peak_mb": peak_mb()}]


def run_job(name: str, shared: str, folder: str) -> None:
    from ppmtf_jax.jobs.config import JobConfig
    from ppmtf_jax.jobs.runner import run

    source = JOBS[name] | {"path": f"{shared}/{JOBS[name]['path']}"}
    job = {"out": f"{folder}/{name}", "seed": 0, "import": source, "release": {"min_users_per_place": 1}}
    run(JobConfig.from_mapping(job, Path(), default_out=name, subject=name))


def exports() -> list[Row]:
    """Layers of the same people in every format."""
    from ppmtf_jax import toy_city
    from ppmtf_jax.exports import EXPORT_FORMATS, trace_layer, write_layer

    traces = toy_city(n_users=1000, n_places=500, n_days=1, seed=0).traces
    layer, found = trace_layer(traces), []
    with tempfile.TemporaryDirectory() as folder:
        for name, entry in EXPORT_FORMATS.items():
            row = measured(write_layer, layer, Path(folder) / f"{name}{entry.suffixes[0]}", name)[1]
            found.append({"what": f"{name}, {traces.n_events:,} events", **row})
    return found


if __name__ == "__main__":
    main()
