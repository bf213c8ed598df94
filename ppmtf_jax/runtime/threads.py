"""Work in threads, one for each core or device.

XLA shares one small operation out among all cores; for the small blocks of this library that costs more than it gains
(synthesis took 60 % longer on two cores than on one). Whole blocks, one to a core, keep all cores busy; and so do whole
blocks on several devices, which need nothing of each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from queue import SimpleQueue
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from ppmtf_jax.runtime.devices import n_cores

Item = TypeVar("Item")
Result = TypeVar("Result")
Tree = TypeVar("Tree")


def n_threads() -> int:
    """One for each device of this process; on a CPU at least one for each core that it may use."""
    n_devices = jax.local_device_count()
    if jax.default_backend() != "cpu":
        return n_devices
    return max(n_devices, n_cores())


def on_each_device(tree: Tree) -> Callable[[], Tree]:
    """Put what all threads read on every device of this process, once: a function that gives the copy of its caller.

    Otherwise every call would copy it anew from the device where it is.

    Examples
    --------
    >>> local_copy = on_each_device(jnp.arange(3))
    >>> [int(total) for total in map_in_threads(lambda x: x * local_copy().sum(), range(3))]
    [0, 3, 6]
    """
    copies = {device: jax.device_put(tree, device) for device in jax.local_devices()}
    return lambda: copies[jnp.zeros(()).device]


def map_in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Results of `function` in the order of `items`, which are taken only as results are.

    So at most one item more than there are threads is in memory. A single item needs no thread. What a thread computes
    it computes on a device of its own where there are several. The precision of the calling thread holds.

    Examples
    --------
    >>> list(map_in_threads(lambda x: x * x, range(4)))
    [0, 1, 4, 9]
    """
    double = jnp.result_type(float) == jnp.float64
    devices = jax.local_devices()
    free: SimpleQueue[Any] = SimpleQueue()
    for number in range(n_threads()):
        free.put(devices[number % len(devices)])

    def call(item: Item) -> Result:
        device = free.get()
        try:
            # JAX keeps these settings by thread.
            with jax.enable_x64(double), jax.default_device(device):
                return function(item)
        finally:
            free.put(device)

    items = iter(items)
    few = list(islice(items, 2))
    if len(few) < 2:
        # To start a thread takes longer than many a single item.
        yield from map(call, few)
        return
    pending: deque[Future[Result]] = deque()
    n_at_once = n_threads()
    with ThreadPoolExecutor(n_at_once) as pool:
        try:
            for item in chain(few, items):
                pending.append(pool.submit(call, item))
                if len(pending) > n_at_once:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
