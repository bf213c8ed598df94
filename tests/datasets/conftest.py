"""Imports of small tables share one instance of DuckDB, which takes longer to start than such an import takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import pytest


@pytest.fixture(scope="session")
def instance() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"autoinstall_known_extensions": False}) as found:
        yield found


@pytest.fixture(autouse=True)
def small_imports(shared_instance) -> None:
    """The tests of a file that overrides this fixture start an instance for each import, as programs do."""


@pytest.fixture
def shared_instance(instance, monkeypatch) -> None:
    """Each import has a connection and an empty database of its own, as with an instance of its own."""
    connect, in_use = duckdb.connect, []

    @contextmanager
    def connected(config: dict[str, Any]) -> Iterator[duckdb.DuckDBPyConnection]:
        if in_use:  # by an import that another one is part of
            with connect(config=config) as connection:
                yield connection
            return
        with instance.cursor() as connection:
            in_use.append(connection)
            try:
                yield connection
            finally:
                in_use.clear()
                connection.execute("USE memory; DETACH DATABASE IF EXISTS import")

    monkeypatch.setattr(duckdb, "connect", connected)
