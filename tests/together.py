"""Several processes that work together, in the threads of one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import pytest

from ppmtf_jax.runtime import devices


class Together:
    """Runs a function in several threads, each of which takes itself for one of so many processes."""

    def __init__(self, n_processes: int, monkeypatch: pytest.MonkeyPatch):
        self.n_processes = n_processes
        self.own = threading.local()
        self.barrier = threading.Barrier(n_processes, timeout=60)
        self.given: list[Any] = [None] * n_processes
        monkeypatch.setattr(jax, "process_count", lambda: n_processes)
        monkeypatch.setattr(jax, "process_index", lambda: self.own.process)
        monkeypatch.setattr(devices, "of_each_process", self.exchange)
        monkeypatch.setattr(devices, "to_each_process", lambda rows: self.exchange(rows)[:, self.own.process])

    def exchange(self, array: np.ndarray) -> np.ndarray:
        self.given[self.own.process] = array
        self.barrier.wait()
        result = np.stack(self.given)
        self.barrier.wait()
        return result

    def run(self, function: Callable[[], Any]) -> list[Any]:
        def call(process: int) -> Any:
            self.own.process = process
            return function()

        with ThreadPoolExecutor(self.n_processes) as pool:
            return list(pool.map(call, range(self.n_processes)))
