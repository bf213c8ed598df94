"""What the benchmarks share: command line, data, clocks, processes of their own, and the files of figures.

No large module is imported at the top, because the peak memory of a process begins at that of its parent process.
"""

from __future__ import annotations

import argparse
import csv
import inspect
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ppmtf_jax import Traces

Row = dict[str, Any]
FOLDER = Path(__file__).resolve().parent
SHARED = FOLDER.parents[1] / "shared"


def command_line(text: str, *, sections: Iterable[str] = (), shared: bool = False) -> argparse.ArgumentParser:
    """A parser with the option --csv and, if asked for, with a section and the folder of the data."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    if sections:
        parser.add_argument("section", choices=sections)
    if shared:
        parser.add_argument("shared", type=Path, nargs="?", default=SHARED, help="folder of the data")
    parser.add_argument("--csv", type=Path, help="file for the figures")
    return parser


def people_flow(shared: Path) -> tuple[Traces, Traces]:
    """Training and test users of the published experiments."""
    from ppmtf_jax.datasets.people_flow import read_people_flow

    return read_people_flow(shared / "reference" / "people_flow")


def new_york(shared: Path) -> Traces:
    """Foursquare's check-ins in New York, as published: also at places that only one person visits."""
    from ppmtf_jax.datasets.discretize import Discretization
    from ppmtf_jax.datasets.published import read_foursquare

    every_place = Discretization(min_users_per_place=1)
    return read_foursquare(shared / "data" / "foursquare-tsmc2014-nyc", discretization=every_place)[0]


def new_york_2019(shared: Path, *, category_names: bool = False, **options: Any) -> Traces:
    """Check-ins in New York with friendships, of WWW 2019, written as the files of the whole world and read from them.

    Local times are those of the derived table; categories are the indices there, or their names.
    """
    import pandas as pd

    from ppmtf_jax.datasets import read_foursquare_www

    folder = shared / "data" / "foursquare-www2019-lbsn2vec"
    table = pd.read_csv(folder / "nyc_checkins.csv.gz")
    local = pd.Timestamp("2012-04-02") + pd.to_timedelta(168 * table["week"] + table["hour_of_week"] - 1, unit="h")
    utc = local.dt.tz_localize("America/New_York", ambiguous=True, nonexistent="shift_forward").dt.tz_convert("UTC")
    minutes = (local - utc.dt.tz_localize(None)) // pd.Timedelta("1min")
    label = table["category_index"].astype(str)
    if category_names:
        names = pd.read_csv(folder / "nyc_category_names.csv").set_index("category_index")["category_name"]
        label = table["category_index"].map(names).fillna(label)
    # The most frequent label of a venue, the first of several.
    counts = table.assign(label=label).dropna(subset="lat").groupby(["venue_id", "lat", "lon", "label"]).size()
    venues = counts.rename("n").reset_index().sort_values(["venue_id", "n", "label"], ascending=[True, False, True])
    venues = venues.drop_duplicates("venue_id").drop(columns="n").assign(country="US")
    checkins = table[["user", "venue_id"]].assign(time=utc.dt.strftime("%a %b %d %X +0000 %Y"), minutes=minutes)
    how: Row = {"sep": "\t", "header": False, "index": False}
    with tempfile.TemporaryDirectory() as world:
        checkins.to_csv(Path(world, "raw_Checkins_anonymized.txt"), **how)
        venues.to_csv(Path(world, "raw_POIs.txt"), **how)
        pairs = pd.read_csv(folder / "nyc_friendship_new.csv.gz")
        pairs.to_csv(Path(world, "friendship_after_new.txt"), **how)
        return read_foursquare_www(world, city="new-york", **options)[0]


def record(
    rows: Iterable[Row], path: Path | None = None, columns: Sequence[str] = (), *, append: bool = False
) -> list[Row]:
    """Print each row as soon as it is there, and store it in a file.

    Parameters
    ----------
    columns : names
        Columns of the file; by default those of the first row.
    append : bool
        Append the rows to the file, which must have the same columns.
    """
    found = []
    for row in rows:
        print(", ".join(f"{name}={_text(value)}" for name, value in row.items()), flush=True)
        if path is not None:
            _store(path, row, columns or list(row), new=not (append or found))
        found.append(row)
    return found


def _store(path: Path, row: Row, columns: Sequence[str], *, new: bool) -> None:
    new = new or not path.exists()
    if not new and path.read_text().partition("\n")[0].rstrip("\r").split(",") != list(columns):
        raise SystemExit(f"{path} has other columns: give another name")
    with path.open("w" if new else "a", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow({name: _text(value) for name, value in row.items()})


def _text(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


class Clock:
    """Seconds since this object was made: by the clock, and CPU seconds of all threads."""

    def __init__(self) -> None:
        self.begin = time.perf_counter(), time.process_time()

    def both(self) -> tuple[float, float]:
        return time.perf_counter() - self.begin[0], time.process_time() - self.begin[1]

    def row(self, digits: int = 1) -> Row:
        seconds, cpu_seconds = self.both()
        return {"seconds": round(seconds, digits), "cpu_seconds": round(cpu_seconds, digits)}


def measured(function: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, Row]:
    """The result of a function, and the seconds and CPU seconds of the call."""
    clock = Clock()
    result = function(*arguments, **options)
    return result, clock.row(2)


def machine() -> Row:
    """Number of cores, and the load of the machine."""
    return {"cores": len(os.sched_getaffinity(0)), "load": round(os.getloadavg()[0], 1)}


def peak_mb() -> int:
    """Peak memory of this process so far, interpreter and libraries included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def in_a_process(
    function: Callable[..., Any], *arguments: Any, n_cores: int | None = None, keep_error: bool = False
) -> Any:
    """Call a function of a benchmark in a process of its own on `n_cores` cores, and return its result.

    The result must fit into JSON. An error ends the benchmark or, with `keep_error`, becomes a row.
    """
    module = Path(inspect.getfile(function)).stem
    code = f"import os, sys, json; sys.path.insert(0, {str(FOLDER)!r}); "
    if n_cores is not None:
        code += f"os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:{n_cores}]); "
    code += f"import {module}; print(json.dumps({module}.{function.__name__}(*{arguments!r})))"
    environment = os.environ | ({} if n_cores is None else {"OMP_NUM_THREADS": str(n_cores)})
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    if not done.returncode:
        return json.loads(done.stdout.splitlines()[-1])
    error = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}"
    if not keep_error:
        raise SystemExit(f"{function.__name__}{arguments}: {error}")
    return {"error": error}
