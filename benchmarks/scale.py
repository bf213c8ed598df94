"""Any number of users by the command line, as anybody would: seconds, CPU seconds and peak memory of each command.

    python benchmarks/scale.py --work million --csv benchmarks/scale.csv
    python benchmarks/scale.py --users 20000 --system "ppmtf zeros=weighted" --verifiers 512 --work rehearsal
    python benchmarks/scale.py --steps help table --rows 5000000 --work tables

`help` starts the program. `table` imports a made-up table of check-ins, 25 of each user at 100,000 places, in no order.
The other steps follow each other: `city` imports a toy city of one day, and `fit`, `synthesize` (one trace of each
user), `test` and `release` do what their names say. `--users` is the number of training users; the city has a quarter
more, because the import puts a fifth of them aside as test users.

Each command is a process of its own, measured from outside: peak memory includes interpreter and libraries. A row is
stored as soon as its command is finished. Steps whose output exists are skipped, so a stopped run continues when it is
called again; a stopped fit continues from its last checkpoint, and its row then measures only the rest.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

# Nothing large is imported here: a child's peak would begin at that of its parent.
from common import Clock, Row, command_line, machine, record

COLUMNS = ["step", "system", "users", "places", "rows", "verifiers", "precision", "cores", "load", "seconds"]
COLUMNS += ["cpu_seconds", "peak_mb", "output_mb", "exit", "said"]
# Of each step, what its row says beside the machine.
CITY = ["users", "places"]
OPTIONS = {
    "help": [],
    "table": ["rows"],
    "city": CITY,
    "fit": ["system", *CITY],
    "synthesize": ["system", *CITY],
    "test": ["system", *CITY, "verifiers", "precision"],
    "release": ["system", *CITY],
}


def commands(given: argparse.Namespace) -> dict[str, tuple[list[str], Path | None]]:
    """The command and the output of each step."""
    at = {name: given.work / name for name in (*OPTIONS, "key", "checkins.csv")}
    system, *settings = given.system.split()
    chosen = [word for setting in settings for word in ("--set", setting)]
    size = ["--users", str(given.users * 5 // 4), "--places", str(given.places), "--days", "1"]
    table = [str(at["checkins.csv"]), "--time-zone", "America/New_York", "--min-users-per-place", "1"]
    testing = ["--precision", given.precision, *(["--verifiers", str(given.verifiers)] if given.verifiers else [])]
    return {
        "help": (["--help"], None),
        "table": (["import", "checkins", *table], at["table"]),
        "city": (["import", "toy-city", *size], at["city"]),
        "fit": (["fit", str(at["city"] / "train"), "--system", system, *chosen], at["fit"]),
        "synthesize": (["synthesize", str(at["fit"])], at["synthesize"]),
        "test": (["test", str(at["fit"]), str(at["synthesize"]), *testing], at["test"]),
        "release": (["release", str(at["synthesize"]), str(at["test"]), "--key", str(at["key"])], at["release"]),
    }


def write_checkins(path: Path, n_rows: int) -> None:
    """A table of check-ins over a year; a few of the places are popular."""
    import numpy as np
    import pandas as pd

    n_places, rng = 100_000, np.random.default_rng(0)
    latitude, longitude = rng.uniform(40.5, 40.9, n_places).round(6), rng.uniform(-74.3, -73.7, n_places).round(6)
    for begin in range(0, n_rows, 1_000_000):
        n = min(1_000_000, n_rows - begin)
        place = np.minimum(rng.pareto(0.8, n) * 5, n_places - 1).astype(int)
        second = np.datetime64("2012-04-01") + rng.integers(365 * 86_400, size=n).astype("timedelta64[s]")
        columns = {"user": rng.integers(max(n_rows // 25, 1), size=n), "time": second, "place": place}
        table = pd.DataFrame(columns | {"latitude": latitude[place], "longitude": longitude[place]})
        table.to_csv(path, mode="a", index=False, header=not begin, date_format="%Y-%m-%dT%H:%M:%SZ")


def measure(command: list[str]) -> Row:
    """Run one command of `ppmtf`; the bars of a terminal are shown."""
    clock = Clock()
    with subprocess.Popen([sys.executable, "-m", "ppmtf_jax", *command], stdout=subprocess.PIPE, text=True) as process:
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "seconds": clock.row()["seconds"],
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_mb": usage.ru_maxrss // 1024,
        "exit": process.returncode,
        "said": "" if command == ["--help"] else " / ".join(said.split("\n")[:-1]),
    }


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--places", type=int, default=1_000)
    parser.add_argument("--rows", type=int, default=5_000_000, help="of the table of check-ins")
    parser.add_argument("--system", default="bridge", help='a system and its settings: "ppmtf zeros=weighted"')
    parser.add_argument("--verifiers", type=int, help="by default all")
    parser.add_argument("--precision", choices=["float64", "float32"], default="float64")
    parser.add_argument("--steps", nargs="+", choices=list(OPTIONS), default=list(OPTIONS))
    parser.add_argument("--work", type=Path, required=True, help="folder for all output")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    for step, (command, output) in commands(given).items():
        if step not in given.steps or (output is not None and output.exists()):
            continue
        if step == "table" and not (given.work / "checkins.csv").exists():
            write_checkins(given.work / "checkins.csv", given.rows)
        row = {"step": step} | machine() | {name: getattr(given, name) for name in OPTIONS[step]}
        row |= measure(command if output is None else [*command, "--out", str(output)])
        files = [] if output is None else [file for file in output.rglob("*") if file.is_file()]
        row |= {"output_mb": round(sum(file.stat().st_size for file in files) / 2**20, 1)}
        record([row | {"said": row["said"].replace(f"{given.work}{os.sep}", "")}], given.csv, COLUMNS, append=True)
        if row["exit"]:
            raise SystemExit(f"{step} failed: nothing after it can be measured")


if __name__ == "__main__":
    main()
