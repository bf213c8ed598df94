"""Work in threads, one for each core.

XLA shares one small operation out among all cores; for the small blocks of this library that costs more than it gains
(synthesis took 60 % longer on two cores than on one). Whole blocks, one to a core, keep all cores busy.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import jax
import jax.numpy as jnp

Item = TypeVar("Item")
Result = TypeVar("Result")


def n_threads() -> int:
    """The cores that this process may use; one where an accelerator computes."""
    if jax.default_backend() != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Results of `function` in the order of `items`, which are taken only as results are.

    So at most one item more than there are threads is in memory. The precision of the calling thread holds.

    Examples
    --------
    >>> list(map_in_threads(lambda x: x * x, range(4)))
    [0, 1, 4, 9]
    """
    double = jnp.result_type(float) == jnp.float64

    def call(item: Item) -> Result:
        # JAX keeps this setting by thread.
        with jax.enable_x64(double):
            return function(item)

    pending: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(n_threads()) as pool:
        try:
            for item in items:
                pending.append(pool.submit(call, item))
                if len(pending) > n_threads():
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
