"""Faults of the machine, made to happen."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
from pyarrow import parquet


@contextmanager
def parquet_fails(error: BaseException | None = None, name: str | None = None) -> Iterator[None]:
    """Writing a Parquet file, or only those of a name, breaks off half-way."""

    def failing(write: Callable[..., None]) -> Callable[..., None]:
        def write_half(of: object, where: object, *arguments: object, **options: object) -> None:
            path = getattr(where, "name", where)  # of an open file, if that is what is given
            if not isinstance(path, str | os.PathLike) or name not in (None, Path(path).name):
                write(of, where, *arguments, **options)
                return
            Path(path).write_bytes(b"half of a fi")
            raise error or OSError(errno.ENOSPC, "No space left on device", str(path))

        return write_half

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pd.DataFrame, "to_parquet", failing(pd.DataFrame.to_parquet))
        patch.setattr(parquet.ParquetWriter, "__init__", failing(parquet.ParquetWriter.__init__))
        yield


@contextmanager
def files_of_at_most(n_bytes: int) -> Iterator[None]:
    """The system itself refuses to write more into a file, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
