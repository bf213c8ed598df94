"""A million users by the command line, as anybody would: seconds and peak memory of each command.

    python benchmarks/million.py --work million --csv benchmarks/million.csv
    python benchmarks/million.py --users 20000 --sweeps 10 --verifiers 512 --work rehearsal

The data are a toy city of 1,000 places, observed for a day. The commands are `ppmtf import`, `fit` with weighted zeros,
`synthesize` (one trace of each user) and `test`. `--users` is the number of training users, each of whom has one
synthetic trace. The city has a quarter more users, because the import puts a fifth of them aside as test users.

Each command is a process of its own, measured from outside: seconds by the clock, CPU seconds of all its threads, and
its peak memory, interpreter and libraries included. A row is stored as soon as its command is finished. Commands whose
output exists are skipped, so a stopped run continues when it is called again. A stopped fit continues from its last
checkpoint; its row then measures only the rest of the fit.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

# Nothing large is imported here: a child's peak would begin at that of its parent.
from common import Clock, command_line, machine, record

COLUMNS = ["step", "users", "places", "cores", "load", "sweeps", "verifiers", "precision", "seconds", "cpu_seconds"]
COLUMNS += ["peak_mb", "output_mb", "exit", "said"]
# Of each step, what its row says beside the size of the city.
OPTIONS = {"import": [], "fit": ["sweeps"], "synthesize": [], "test": ["verifiers", "precision"], "release": []}


def commands(arguments: argparse.Namespace) -> dict[str, tuple[list[str], Path]]:
    """The command and the output of each step."""
    work = arguments.work
    city, model, synthetic, verdicts, released = (
        work / name for name in ("city", "model", "synthetic", "verdicts", "released")
    )
    size = ["--users", str(arguments.users * 5 // 4), "--places", str(arguments.places), "--days", "1"]
    settings = ["--set", "zeros=weighted", "--set", f"n_sweeps={arguments.sweeps}"]
    testing = ["--verifiers", str(arguments.verifiers), "--precision", arguments.precision]
    return {
        "import": (["import", "toy-city", *size], city),
        "fit": (["fit", str(city / "train"), "--system", "ppmtf", *settings], model),
        "synthesize": (["synthesize", str(model)], synthetic),
        "test": (["test", str(model), str(synthetic), *testing], verdicts),
        "release": (["release", str(synthetic), str(verdicts), "--key", str(work / "released-key")], released),
    }


def measure(command: list[str]) -> dict[str, Any]:
    """Run one command of `ppmtf`; the bars of a terminal are shown."""
    clock = Clock()
    command = [sys.executable, "-m", "ppmtf_jax.cli.app", *command]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "seconds": clock.row()["seconds"],
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_mb": usage.ru_maxrss // 1024,
        "exit": process.returncode,
        "said": " / ".join(said.split("\n")[:-1]),
    }


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--places", type=int, default=1_000)
    parser.add_argument("--sweeps", type=int, default=100)
    parser.add_argument("--verifiers", type=int, default=8_000)
    parser.add_argument("--precision", choices=["float64", "float32"], default="float64")
    parser.add_argument("--steps", nargs="+", choices=list(OPTIONS), help="by default all")
    parser.add_argument("--again", action="store_true", help="repeat steps whose output exists")
    parser.add_argument("--work", type=Path, required=True, help="folder for all output")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    for step, (command, output) in commands(arguments).items():
        if arguments.steps and step not in arguments.steps:
            continue
        if output.exists() and not arguments.again:
            print(f"{step}: {output} is there already", flush=True)
            continue
        row = {"step": step} | machine()
        row |= {name: getattr(arguments, name) for name in ("users", "places", *OPTIONS[step])}
        row |= measure([*command, "--out", str(output), "--overwrite"])
        size = sum(file.stat().st_size for file in output.rglob("*") if file.is_file())
        row["output_mb"] = round(size / 2**20, 1)
        row["said"] = row["said"].replace(f"{arguments.work}{os.sep}", "")
        record([row], arguments.csv, COLUMNS, append=True)
        if row["exit"]:
            raise SystemExit(f"{step} failed: nothing after it can be measured")


if __name__ == "__main__":
    main()
