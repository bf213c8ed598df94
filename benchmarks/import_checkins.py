"""Seconds and peak memory of importing a large made-up table of check-ins.

    python benchmarks/import_checkins.py --rows 5000000 --csv import.csv

One row of CSV for each number of rows and file format. The import runs in a process of its own, so that making the file
does not count; memory is the peak of that process, interpreter and libraries included. Processor seconds are those of
all threads. The digest of the traces tells whether two versions give the same events.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
from common import Row, command_line, in_a_process, measured, peak_mb, record
from pyarrow import csv as arrow_csv
from pyarrow import parquet

FORMATS = ("csv", "csv.gz", "parquet")
SECONDS_OF_A_YEAR = 365 * 86_400
N_PLACES, ROWS_AT_A_TIME = 100_000, 5_000_000


def sample_checkins(n_rows: int, seed: int) -> Iterator[pa.Table]:
    """25 check-ins per user at 100,000 places, a few of them popular, over a year; in no order."""
    city = np.random.default_rng(seed)
    latitude, longitude = city.uniform(40.5, 40.9, N_PLACES), city.uniform(-74.3, -73.7, N_PLACES)
    place_ids = pa.array([f"venue{number:06d}" for number in range(N_PLACES)])
    for begin in range(0, n_rows, ROWS_AT_A_TIME):
        generator, n = np.random.default_rng([seed, begin]), min(ROWS_AT_A_TIME, n_rows - begin)
        place = np.minimum(generator.pareto(0.8, n) * 5, N_PLACES - 1).astype(np.int64)
        seconds = np.datetime64("2012-04-01") + generator.integers(0, SECONDS_OF_A_YEAR, n).astype("timedelta64[s]")
        yield pa.table(
            {
                "user": generator.integers(0, max(n_rows // 25, 1), n),
                "time": pa.array(seconds, pa.timestamp("s", "UTC")),
                "latitude": latitude[place].round(6),
                "longitude": longitude[place].round(6),
                "place": place_ids.take(pa.array(place)),
            }
        )


def write(n_rows: int, seed: int, path: Path) -> None:
    """Write a table in the format that the name of the file asks for."""
    with ExitStack() as stack:
        writer = None
        for table in sample_checkins(n_rows, seed):
            if writer is None and path.name.endswith(".parquet"):
                writer = stack.enter_context(parquet.ParquetWriter(path, table.schema))
            elif writer is None:
                compression = "gzip" if path.name.endswith(".gz") else None
                stream = stack.enter_context(pa.output_stream(path, compression=compression))
                writer = stack.enter_context(arrow_csv.CSVWriter(stream, table.schema))
            writer.write_table(table)


def import_file(path: str) -> Row:
    """Import one file in this process and say what it took."""
    from ppmtf_jax.datasets.checkins import read_checkins
    from ppmtf_jax.datasets.discretization import Discretization

    every_place = Discretization(min_users_per_place=1)
    began = time.process_time()
    (traces, report), took = measured(read_checkins, path, time_zone="America/New_York", discretization=every_place)
    return {
        "seconds": round(took["seconds"], 1),
        "processor_seconds": round(time.process_time() - began, 1),
        "peak_memory_mb": peak_mb(),
        "users": report.n_users,
        "events": report.n_events,
        "transitions": report.n_transitions,
        "digest": traces.digest[:12],
    }


def rows(numbers: list[int], formats: list[str], seed: int) -> Iterator[Row]:
    """Make the files, and import each in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        for n_rows in numbers:
            for name in formats:
                path = Path(folder) / f"checkins.{name}"
                write(n_rows, seed, path)
                about = {"format": name, "rows": n_rows, "file_mb": round(path.stat().st_size / 2**20)}
                yield about | in_a_process(import_file, str(path))
                path.unlink()


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[5_000_000])
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=FORMATS)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    record(rows(arguments.rows, arguments.formats, arguments.seed), arguments.csv)


if __name__ == "__main__":
    main()
