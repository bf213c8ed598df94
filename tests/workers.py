"""Workers of an engine in the same process: tasks and results are pickled, as if they went to another one."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import cloudpickle
import pytest


def stand_in(tasks: Iterable[Any], _: Any) -> Iterator[Any]:
    """For `engine._in_processes`."""
    for task in tasks:
        yield pickle.loads(pickle.dumps(pickle.loads(cloudpickle.dumps(task))()))


@pytest.fixture
def workers(monkeypatch) -> Iterator[list[Any]]:
    """Let stand-ins for workers do the work on parts; gives the list of the sizes of all tasks so far, in bytes."""
    # Imported late, so that the checks of annotated calls are installed first.
    from ppmtf_jax.runtime import engine

    sizes: list[Any] = []

    def counted(tasks: Iterable[Any], chosen: Any) -> Iterator[Any]:
        tasks = list(tasks)
        sizes.extend(len(cloudpickle.dumps(task)) for task in tasks)
        return stand_in(tasks, chosen)

    monkeypatch.setattr(engine, "_in_processes", counted)
    with engine.use_engine("processes:2"):
        yield sizes
