"""The database in which tables of any size are imported: it streams, uses all cores and spills to disk."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.runtime.files import removed_if_stopped
from ppmtf_jax.runtime.memory import available_bytes

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection as Connection
else:
    Connection = Any
FOLDER_START, OLD_S = "ppmtf-import-", 60
# Beyond this memory DuckDB writes to disk; Arrow, NumPy and the result need as much again.
MAX_BYTES, SHARE = 1_000_000_000, 4
COORDINATES = ("latitude", "longitude", "end_latitude", "end_longitude")
# The row of the end of a trip is that of its start plus `END_ROWS`.
END_ROWS = 2**40
IS_BEGINNING = f"row < {END_ROWS}"


@contextmanager
def database() -> Iterator[Connection]:
    """An empty database in a temporary folder, which also takes what does not fit into the memory.

    The folder is removed at the end. It is made where `tempfile` makes its files, so the variable TMPDIR moves it. If
    a process is killed, an import that begins at least `OLD_S` seconds later removes its folder.
    """
    # Imported late: beside JAX, DuckDB 2.0.0 complains of leaks at the end of a program, even of one without a table.
    import duckdb
    from filelock import lock_descriptor

    place = Path(tempfile.gettempdir())
    for left in place.glob(f"{FOLDER_START}*/lock"):
        with suppress(OSError):
            lock = os.open(left, os.O_RDWR)
            is_free = lock_descriptor(lock, blocking=False)
            os.close(lock)
            # A new folder may not be locked yet.
            if is_free and time.time() - left.stat().st_mtime > OLD_S:
                shutil.rmtree(left.parent)
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_START, dir=place))
    most = min(MAX_BYTES, (available_bytes() or SHARE * MAX_BYTES) // SHARE)
    # An import of secrets needs nothing from the network.
    settings = {
        "temp_directory": str(folder),
        "autoinstall_known_extensions": False,
        "memory_limit": f"{most >> 20}MiB",
    }
    with removed_if_stopped(folder):
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        lock_descriptor(lock, blocking=True)
        try:
            with duckdb.connect(config=settings) as connection:
                # In a file, tables are compressed, which takes longer than to read a text file. What the memory does
                # not hold goes to the folder.
                where = f"SET VARIABLE import_folder = {text(str(folder))}"
                connection.execute(f"ATTACH ':memory:' AS import; USE import; {where}")
                # In `python -c` and in notebooks, DuckDB would print its own progress to standard output. In a notebook
                # without ipywidgets it prints nothing, and refuses the setting.
                with suppress(duckdb.InvalidInputException):
                    connection.execute("SET enable_progress_bar = false")
                yield connection
        except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
            way_out = "Set the variable TMPDIR to a folder on a disk with more room"
            problem = Problem("memory and disk for the rows", str(error), way_out=way_out)
            raise InputError("import", [problem]) from error
        finally:
            os.close(lock)


def floored(value: str, step: int) -> str:
    """SQL of a whole number divided by a step and rounded down, also below 0."""
    return f"CAST(floor(({value}) / {step}) AS BIGINT)"


def number(value: float | int) -> str:
    """SQL of a number; a bare decimal number would not be a floating-point one."""
    return f"CAST('{float(value)!r}' AS DOUBLE)"


def text(value: str) -> str:
    """SQL of a text."""
    return "'" + value.replace("'", "''") + "'"


def columns_of(connection: Connection, query: str) -> list[Any]:
    """The columns that a query gives, as arrays."""
    return list(connection.sql(query).fetchnumpy().values())
