"""The trace-set folder: what is in it, written and read in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
from pyarrow import parquet

from ppmtf_jax.data.events import EVENT_COLUMNS, PIECE_EVENTS
from ppmtf_jax.errors import InputError, Problem


def read_parquet(path: Path) -> pd.DataFrame:
    """Read a Parquet file; what cannot be read is an `InputError`."""
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise InputError(str(path), [Problem("a readable Parquet file", str(error))]) from error


@contextmanager
def _opened(path: Path) -> Iterator[parquet.ParquetFile]:
    """A Parquet file to read from; what cannot be read, at once or later, is an `InputError`."""
    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(str(path), [Problem("a readable Parquet file", str(error))]) from error


def _pieces_of(file: parquet.ParquetFile, advance: Callable[[int], None]) -> Iterator[pd.DataFrame]:
    columns = [name for name in EVENT_COLUMNS if name in file.schema_arrow.names]
    for batch in file.iter_batches(PIECE_EVENTS, columns=columns):
        yield batch.to_pandas(ignore_metadata=True)
        advance(len(batch))
