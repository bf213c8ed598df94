"""Work in threads, one for each core or device.

XLA splits one small operation over all cores; for the small blocks of this library that costs more than it gains
(synthesis took 60 % longer on two cores than on one). Whole blocks, one per core or device, keep all of them busy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from itertools import chain, cycle, islice
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from threadpoolctl import ThreadpoolController

from ppmtf_jax.runtime.devices import n_cores, require_devices

Item = TypeVar("Item")
Result = TypeVar("Result")
Tree = TypeVar("Tree")
Arguments = ParamSpec("Arguments")
_single: ContextVar[bool] = ContextVar("single", default=False)


@contextmanager
def in_a_single_thread() -> Iterator[None]:
    """Do the work of the block in the calling thread, because other processes use the other cores."""
    token = _single.set(True)
    try:
        yield
    finally:
        _single.reset(token)


def n_threads() -> int:
    """Number of threads: one for each device; on a CPU, at least one for each core that the process may use."""
    if _single.get():
        return 1
    n_devices = jax.local_device_count()
    return max(n_devices, n_cores()) if jax.default_backend() == "cpu" else n_devices


def _devices() -> list[Any]:
    """The devices that threads compute on.

    On a CPU, all threads use the first device. Other devices of a CPU have the same cores, but JAX would compile every
    program again for each of them, and needs a copy of the data on each.
    """
    devices = jax.local_devices()
    return devices[:1] if devices[0].platform == "cpu" else devices


def one_thread() -> AbstractContextManager:
    """Limit NumPy and scikit-learn to one thread.

    With more threads, products would round differently, and many small products or equations would take longer.
    """
    return _thread_pools().limit(limits=1)


@cache
def _thread_pools() -> ThreadpoolController:
    # The search is cached, since it takes longer than a small clustering. It finds only imported libraries.
    import sklearn.cluster  # noqa: F401

    return ThreadpoolController()


def in_single_precision(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Let JAX compute a function in single precision, also where the program chose double (`jax_enable_x64`).

    Whoever fits and draws models calls functions with this decorator, so a seed gives the same traces in both. What
    needs double precision asks for it itself, inside. Raises `InputError` if JAX has no device to compute on.

    Examples
    --------
    >>> with jax.enable_x64(True):
    ...     in_single_precision(lambda: jnp.zeros(1).dtype)(), jnp.zeros(1).dtype
    (dtype('float32'), dtype('float64'))
    """

    @wraps(function)
    def call(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        require_devices()
        with jax.enable_x64(False):
            return function(*arguments, **options)

    return call


def on_each_device(tree: Tree) -> Callable[[], Tree]:
    """Copy data that all threads read to their devices; returns a function that gives the copy on the caller's device.

    Examples
    --------
    >>> local_copy = on_each_device(jnp.arange(3))
    >>> [int(total) for total in map_in_threads(lambda x: x * local_copy().sum(), range(3))]
    [0, 3, 6]
    """
    copies = {device: jax.device_put(tree, device) for device in _devices()}
    return lambda: copies[jnp.zeros(()).device]


def map_in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], *, most_at_once: int | None = None
) -> Iterator[Result]:
    """Results of `function` in the order of `items`; the next item is taken only when a result is read.

    So memory holds at most one item more than there are threads. If there are several accelerators, each thread uses
    one of its own. The precision is that of the calling thread.
    """
    double = jnp.result_type(float) == jnp.float64
    n_at_once = min(n_threads(), most_at_once or n_threads())
    free: SimpleQueue[Any] = SimpleQueue()
    # None is the first device. If it were set by name, JAX would compile again what the caller's thread compiled.
    for device in islice(cycle([None, *_devices()[1:]]), n_at_once):
        free.put(device)

    def call(item: Item) -> Result:
        device = free.get()
        try:
            # JAX keeps these settings per thread.
            with jax.enable_x64(double), jax.default_device(device):
                return function(item)
        finally:
            free.put(device)

    yield from in_order(call, items, n_at_once)


def in_order(function: Callable[[Item], Result], items: Iterable[Item], n_at_once: int) -> Iterator[Result]:
    """The same as `map_in_threads`, in a given number of threads, for functions that do not use JAX."""
    items = iter(items)
    few = list(islice(items, 2))
    if len(few) < 2 or n_at_once == 1 or _single.get():
        # The start of a thread often takes longer than a single item.
        yield from map(function, chain(few, items))
        return
    pending: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(n_at_once) as pool:
        try:
            for item in chain(few, items):
                pending.append(pool.submit(function, item))
                if len(pending) > n_at_once:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
