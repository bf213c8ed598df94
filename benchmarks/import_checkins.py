"""Seconds and peak memory of importing a large made-up table of check-ins.

    python benchmarks/import_checkins.py --rows 5000000 --csv import.csv

One row of CSV for each file format. The import runs in a process of its own, so that making the file does not count;
memory is the peak of that process, interpreter and libraries included.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from common import Row, command_line, in_a_process, measured, peak_mb, record
from pyarrow import compute, parquet
from pyarrow import csv as arrow_csv

FORMATS = ("csv", "csv.gz", "parquet")
SECONDS_OF_A_YEAR = 365 * 86_400


def sample_checkins(n_rows: int, seed: int) -> pa.Table:
    """25 check-ins per user at 100,000 places, a few of them popular, over a year; in no order."""
    generator = np.random.default_rng(seed)
    n_users, n_places = max(n_rows // 25, 1), 100_000
    place = np.minimum(generator.pareto(0.8, n_rows) * 5, n_places - 1).astype(np.int64)
    latitude, longitude = generator.uniform(40.5, 40.9, n_places), generator.uniform(-74.3, -73.7, n_places)
    seconds = np.datetime64("2012-04-01") + generator.integers(0, SECONDS_OF_A_YEAR, n_rows).astype("timedelta64[s]")
    place_ids = pa.array([f"venue{number:06d}" for number in range(n_places)])
    return pa.table(
        {
            "user": generator.integers(0, n_users, n_rows),
            "time": compute.strftime(pa.array(seconds), "%Y-%m-%dT%H:%M:%SZ"),
            "latitude": latitude[place].round(6),
            "longitude": longitude[place].round(6),
            "place": place_ids.take(pa.array(place)),
        }
    )


def write(table: pa.Table, path: Path) -> None:
    """Write a table in the format that the name of the file asks for."""
    if path.name.endswith(".parquet"):
        parquet.write_table(table, path)
        return
    with pa.output_stream(path, compression="gzip" if path.name.endswith(".gz") else None) as stream:
        arrow_csv.write_csv(table, stream)


def import_file(path: str) -> Row:
    """Import one file in this process and say what it took."""
    from ppmtf_jax.datasets.checkins import read_checkins
    from ppmtf_jax.datasets.discretization import Discretization

    every_place = Discretization(min_users_per_place=1)
    (_, report), took = measured(read_checkins, path, time_zone="America/New_York", discretization=every_place)
    return {
        "seconds": round(took["seconds"], 1),
        "peak_memory_mb": peak_mb(),
        "users": report.n_users,
        "events": report.n_events,
        "transitions": report.n_transitions,
    }


def rows(n_rows: int, formats: list[str], seed: int) -> Iterator[Row]:
    """Make the files, and import each in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        table = sample_checkins(n_rows, seed)
        for name in formats:
            path = Path(folder) / f"checkins.{name}"
            write(table, path)
            about = {"format": name, "rows": n_rows, "file_mb": round(path.stat().st_size / 2**20)}
            yield about | in_a_process(import_file, str(path))
            path.unlink()


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=FORMATS)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    record(rows(arguments.rows, arguments.formats, arguments.seed), arguments.csv)


if __name__ == "__main__":
    main()
