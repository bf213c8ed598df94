"""The devices and processes that share the work, and how arrays are placed on them.

The work is split over users, or over other rows that do not depend on each other. On a CPU, JAX has a single device,
which here makes little use of more than one core; `use_all_cores` makes a device of each core.

Several processes can run the same program together, see `join_processes`. What their devices compute together, as in a
fit, is spread over a mesh of all devices. Where rows do not depend on each other, each process computes its `own_share`
of the rows, and `gather_rows` collects the rows of all processes.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import socket
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from ipaddress import ip_address
from threading import Thread
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int, Shaped, UInt64

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.runtime.files import remove_unfinished
from ppmtf_jax.streams import SEED_BITS, Seed

AXIS = "devices"
# A machine that is silent for so long has failed; then the processes on the other machines end.
SILENCE_S = 20
# A process receives about as much in one exchange of arrays that may be large.
EXCHANGED_BYTES = 2**26
OTHER_ENDED = "another process ended before the work was done; read its messages"
# The connections over which processes learn that another one has ended: those of process 0 with each other process.
_connections: list[socket.socket] = []
SAME = PartitionSpec()
SPLIT = PartitionSpec(AXIS)
WRONG_SUMS = ("0.10.2", "0.11.")
"""Beginnings of versions of jaxlib that may add up large arrays wrongly on a CPU, without an error."""


def warn_of_wrong_sums(of_jaxlib: str) -> None:
    """Warn if this version of jaxlib is one of `WRONG_SUMS`; pip does not install these, but they may be there."""
    if of_jaxlib.startswith(WRONG_SUMS):
        cure = "pip install 'jaxlib!=0.10.2,!=0.11.*'"
        warnings.warn(f"jaxlib {of_jaxlib} may add up large arrays wrongly on a CPU; use another: {cure}", stacklevel=2)


warn_of_wrong_sums(version("jaxlib"))


@cache
def n_cores() -> int:
    """Number of cores that this process may use.

    It is the minimum of three numbers: the cores of the machine, the cores that the process is bound to, and the limit
    of the container. A limit of 1.5 cores counts as two cores.
    """
    # Imported late: joblib takes as long to import as the whole package.
    from joblib import cpu_count

    return cpu_count()


def use_all_cores() -> None:
    """Let JAX use every core that this process may use as a separate device: about twice as fast on two cores.

    Call it before any other use of JAX; the command line does so. If the number of CPU devices was already chosen, by
    `jax_num_cpu_devices` or the flag `--xla_force_host_platform_device_count`, it stays. Raises `InputError`: JAX has
    already been used, so its devices can no longer be changed.

    Examples
    --------
    >>> use_all_cores()  # doctest: +SKIP
    >>> jax.device_count()  # doctest: +SKIP
    2
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if jax.config.values["jax_num_cpu_devices"] != -1 or "host_platform_device_count" in flags:
        return
    try:
        jax.config.update("jax_num_cpu_devices", n_cores())
    except RuntimeError as error:
        problem = Problem("a call before JAX is used", "devices in use", way_out="Call it first in the program")
        raise InputError("use_all_cores", [problem]) from error


def require_devices() -> None:
    """Raise `InputError` if JAX finds no device of the kind that the environment variable `JAX_PLATFORMS` asks for."""
    try:
        jax.devices()
    except (AssertionError, RuntimeError) as error:  # JAX raises either, with or without words
        found = f"none for JAX_PLATFORMS={jax.config.values['jax_platforms']}"
        way_out = "Leave JAX_PLATFORMS out, or set it to cpu; for a GPU, install JAX with its support for CUDA"
        raise InputError("JAX", [Problem("a device of this machine", found, way_out=way_out)]) from error


def join_processes(coordinator: str, n_processes: int, process: int) -> None:
    """Work together with the same program in other processes, on this machine or others: see `jax.distributed`.

    Call it before any other use of JAX except `use_all_cores`, with the same data, settings and seed in every process.
    `fit`, `synthesize` and `plausible_deniability_test` then share their work and return the same in every process.
    Only the first process should write the results; see `is_first_process`. There is an exception: if `is_share` of
    verdicts or of a release is true, each process has only its share, and every process has to write. Raises
    `InputError`: the numbers do not fit, JAX has already been used, or the other processes were not reached.

    Parameters
    ----------
    coordinator : str
        HOST:PORT of process 0. Nobody who connects is authenticated. With a loopback address, such as localhost,
        process 0 listens on this address only; with another one, it listens on all interfaces of its machine.
    n_processes, process : int
        The number of processes, and the number of this one, from 0.

    Examples
    --------
    >>> join_processes("localhost:9900", n_processes=2, process=0)  # doctest: +SKIP
    """
    if not 0 <= process < n_processes:
        found = f"process {process} of {n_processes}"
        raise InputError("processes", [Problem("a number from 0 to one less than there are processes", found)])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # with this service, a process ignores SIGTERM
    host, _, port = coordinator.rpartition(":")
    host = host.strip("[]")
    try:
        bound = loopback_address(host)
        # JAX listens on all interfaces unless it is given an address.
        own = None if bound is None else f"[{bound}]:{port}" if ":" in bound else f"{bound}:{port}"
        how = {"heartbeat_timeout_seconds": SILENCE_S, "coordinator_bind_address": own}
        jax.distributed.initialize(coordinator, n_processes, process, **how)
        # Processes connect at their first exchange. At a later exchange, JAX would give up a process that is 30 s late.
        for mesh in (mesh_of(), _first_devices()):
            _on_every_device(put(np.zeros(mesh.size, np.uint8), SPLIT, mesh), mesh)
        _watch_others(host, bound, n_processes, process)
        if jax.default_backend() == "cpu":
            # The processes are connected, so JAX's own service is no longer needed. If process 0 ended, this service
            # would abort the other processes, and they would not remove their unfinished files.
            jax.distributed.shutdown()
    except (RuntimeError, ValueError, OSError) as error:
        way_out = "Start every process with the same --coordinator and --processes, one of them as process 0"
        raise InputError("processes", [Problem("all processes", str(error), way_out=way_out)]) from error


def loopback_address(host: str) -> str | None:
    """The loopback address that a host stands for; None if it is not one that only this machine can reach.

    Examples
    --------
    >>> loopback_address("127.0.0.2"), loopback_address("0.0.0.0")
    ('127.0.0.2', None)
    """
    addresses = [str(each[4][0]) for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    return addresses[0] if all(ip_address(each).is_loopback for each in addresses) else None


def _watch_others(host: str, bound: str | None, n_processes: int, process: int) -> None:
    """End this process as soon as another one ends before its work is done.

    The system closes the connections of a process, however it ends. So process 0 notices when any process ends, and the
    others notice when process 0 ends.
    """
    if process == 0:
        dual = bound is None and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual or ":" in (bound or "") else socket.AF_INET
        with socket.create_server((bound or "", 0), family=family, backlog=n_processes, dualstack_ipv6=dual) as server:
            server.settimeout(SILENCE_S)
            of_first_process(np.array(server.getsockname()[1]))
            others = [server.accept()[0] for _ in range(n_processes - 1)]
    else:
        others = [socket.create_connection((host, int(of_first_process(np.array(0)))), timeout=SILENCE_S)]
    _connections.extend(others)
    atexit.register(_say_goodbye)
    for other in others:
        other.settimeout(None)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", SILENCE_S // 2), ("TCP_KEEPINTVL", SILENCE_S // 4), ("TCP_KEEPCNT", 2)):
            if hasattr(socket, name):  # not on every system
                other.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        Thread(target=_end_with, args=[other], daemon=True).start()


def _end_with(other: socket.socket) -> None:
    """Wait for a message of another process; end this process if the other ends without a message that it is done."""
    with suppress(OSError):
        if other.recv(1):
            return
    sys.stderr.write(f"Error: {OTHER_ENDED}.\n")
    remove_unfinished()
    leave_processes(1)


def _say_goodbye() -> None:
    for other in _connections:
        with suppress(OSError):
            other.send(b".")


def mesh_of(devices: Sequence[Any] | None = None) -> Mesh:
    """A mesh of one axis over some JAX devices; by default all devices of all processes."""
    return Mesh(np.array(jax.devices() if devices is None else devices), (AXIS,))


def put(tree: Any, specs: Any, mesh: Mesh) -> Any:
    """Place host arrays, equal in all processes, on a mesh; `specs` is a tree of `PartitionSpec` of the same form."""

    def put_leaf(leaf: np.ndarray | np.generic | Array, spec: PartitionSpec) -> Array:
        return jax.make_array_from_callback(np.shape(leaf), NamedSharding(mesh, spec), lambda i: np.asarray(leaf)[i])

    return jax.tree.map(put_leaf, tree, specs)


def is_first_process() -> bool:
    """Whether this process writes what all processes computed together."""
    return jax.process_index() == 0


def own_share(n_rows: int) -> slice:
    """The rows that this process works on; all rows if there is one process.

    No share is empty: if there are too few rows for all processes, several processes have the last row.
    """
    size = -(-n_rows // jax.process_count())
    first = min(jax.process_index() * size, n_rows - 1)
    return slice(first, min(first + size, n_rows))


def own_items(n: int, process: int | None = None) -> range:
    """The numbers of a process's share of `n` items; if there are fewer items than processes, every process has all.

    `process`: by default this process.

    Examples
    --------
    >>> own_items(3)
    range(0, 3)
    """
    n_processes = jax.process_count()
    if n < n_processes:
        return range(n)
    process = jax.process_index() if process is None else process
    return range(n * process // n_processes, n * (process + 1) // n_processes)


def gather_rows(share: Shaped[np.ndarray, "share ..."], n_rows: int) -> Shaped[np.ndarray, "row ..."]:
    """All rows, bit for bit, from the shares of `own_share`; every process must call it.

    Examples
    --------
    >>> gather_rows(np.arange(5)[own_share(5)] ** 2, 5)
    array([ 0,  1,  4,  9, 16])
    """
    if jax.process_count() == 1:
        return share
    padded = np.resize(share, (-(-n_rows // jax.process_count()), *share.shape[1:]))
    return of_each_process(padded).reshape(-1, *share.shape[1:])[:n_rows]


def sum_over_processes(array: Shaped[np.ndarray, "..."]) -> Shaped[np.ndarray, "..."]:
    """Sum of the arrays of all processes, in the order of processes; every process must call it.

    Each process adds up one part of the arrays, so that no process receives the whole arrays of all others.
    """
    array, n_processes = np.asarray(array), jax.process_count()
    parts = np.zeros((n_processes, -(-array.size // n_processes)), array.dtype)
    parts.reshape(-1)[: array.size] = array.reshape(-1)
    total = of_each_process(to_each_process(parts).sum(axis=0))
    return total.reshape(-1)[: array.size].reshape(array.shape)


def joined_over_processes(own: Shaped[np.ndarray, "own ..."]) -> Shaped[np.ndarray, "row ..."]:
    """The arrays of all processes, one after another; every process must call it, also with no rows.

    They are exchanged in pieces, so that memory holds little more than the result.
    """
    lengths = of_each_process(np.array([len(own)]))[:, 0]
    joined = np.empty((lengths.sum(), *own.shape[1:]), own.dtype)
    of_each = np.split(joined, np.cumsum(lengths)[:-1])
    size = max(1, EXCHANGED_BYTES // (len(lengths) * own.dtype.itemsize * max(1, math.prod(own.shape[1:]))))
    for first in range(0, int(lengths.max()), size):
        piece = np.zeros((min(size, int(lengths.max()) - first), *own.shape[1:]), own.dtype)
        rows = own[first : first + size]
        piece[: len(rows)] = rows
        for part, array in zip(of_each, of_each_process(piece), strict=True):
            part[first : first + size] = array[: max(0, len(part) - first)]
    return joined


def number_before(own: int) -> int:
    """Sum of a number of all processes before this one; every process must call it."""
    return sum(of_all_processes(own)[: jax.process_index()])


def from_all_processes(rows: Sequence[Shaped[np.ndarray, "_ ..."]]) -> list[Shaped[np.ndarray, "_ ..."]]:
    """The rows that each process sends to this process; it sends `rows[j]` to process j.

    Every process must call it, also with no rows. No process receives rows that are for another process.
    """
    if len(rows) == 1:
        return list(rows)
    lengths = of_each_process(np.array([len(each) for each in rows]))
    padded = np.zeros((len(rows), lengths.max(), *rows[0].shape[1:]), rows[0].dtype)
    for part, own in zip(padded, rows, strict=True):
        part[: len(own)] = own
    received = zip(to_each_process(padded), lengths[:, jax.process_index()], strict=True)
    return [part[:length] for part, length in received]


def ranks_among_all(keys: UInt64[np.ndarray, " own"], *, shared: bool) -> Int[np.ndarray, " own"]:
    """Rank of each key of this process among the keys of all processes, or among its own, unless `shared`.

    Equal keys are in the order of processes and rows. Each process ranks the keys of a range. The ranges are equally
    wide, so the keys must be random numbers of 64 bits.

    Examples
    --------
    >>> ranks_among_all(np.array([7, 2**63, 5, 7], np.uint64), shared=False)
    array([1, 3, 0, 2])
    """
    n_ranges = jax.process_count() if shared else 1
    order = np.argsort(keys, kind="stable")
    ends = np.array([number * 2**64 // n_ranges for number in range(1, n_ranges)], np.uint64)
    ascending = keys[order]
    received = from_all_processes(np.split(ascending, np.searchsorted(ascending, ends)))
    of_range = np.argsort(np.concatenate(received), kind="stable")
    ranks = np.empty(len(of_range), np.int64)
    ranks[of_range] = np.arange(len(of_range)) + (number_before(len(of_range)) if shared else 0)
    back = from_all_processes(np.split(ranks, np.cumsum([len(each) for each in received])[:-1]))
    own = np.empty(len(keys), np.int64)
    own[order] = np.concatenate(back)
    return own


def of_all_processes(own: Any) -> list[Any]:
    """The JSON values of all processes, in the order of processes; every process must call it."""
    if jax.process_count() == 1:
        return [own]
    line = np.frombuffer((json.dumps(own) + "\n").encode(), np.uint8)
    return [json.loads(each) for each in joined_over_processes(line).tobytes().splitlines()]


def of_first_process(array: Shaped[np.ndarray, "..."]) -> Shaped[np.ndarray, "..."]:
    """The first process's array, for values that differ between processes, such as noise; every process calls it."""
    return array if jax.process_count() == 1 else of_each_process(array)[0]


def seed_of_first_process(seed: Seed) -> Seed:
    """The seed of the first process, because a drawn seed differs from process to process."""
    if jax.process_count() == 1:
        return seed
    content = seed.value.to_bytes(SEED_BITS // 8, "little") + bytes([seed.given])
    *value, given = of_first_process(np.frombuffer(content, np.uint8)).tobytes()
    return Seed(int.from_bytes(bytes(value), "little"), bool(given))


def wait_for_processes() -> None:
    """Wait until every process calls this, at the end of the program; the first process may still have to write."""
    if _connections:
        _say_goodbye()
        of_each_process(np.zeros(1))


def leave_processes(exit_code: int) -> None:
    """End this process after an error without waiting for the others, which would wait for its share of the work."""
    if _connections:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)


def of_each_process(array: np.ndarray) -> np.ndarray:
    """The arrays of all processes, one after another along a new first axis."""
    mesh = _first_devices()
    arrays = np.array(_on_every_device(_of_processes(array, mesh), mesh))
    return arrays.view(array.dtype).reshape(mesh.size, *array.shape)


def to_each_process(rows: Shaped[np.ndarray, "process ..."]) -> Shaped[np.ndarray, "process ..."]:
    """The rows that all processes send to this process; each process sends its row j to process j."""
    mesh = _first_devices()
    for_processes = NamedSharding(mesh, PartitionSpec(None, AXIS))
    (own,) = jax.device_put(_of_processes(rows, mesh, rows.shape[:1]), for_processes).addressable_shards
    return np.asarray(own.data).view(rows.dtype).reshape(rows.shape)


def _of_processes(array: np.ndarray, mesh: Mesh, shape: tuple[int, ...] = ()) -> Array:
    """One array of the arrays of all processes; of bytes, because JAX would narrow numbers of 64 bits."""
    own = np.ascontiguousarray(array).view(np.uint8).reshape(1, *shape, -1)
    return jax.make_array_from_process_local_data(NamedSharding(mesh, SPLIT), own, (mesh.size, *own.shape[1:]))


def _first_devices() -> Mesh:
    """A mesh of one device of each process, in the order of processes."""
    first = {device.process_index: device for device in reversed(jax.devices())}
    return mesh_of([first[process] for process in sorted(first)])


def _on_every_device(array: Array, mesh: Mesh) -> Array:
    return jax.block_until_ready(jax.device_put(array, NamedSharding(mesh, SAME)))
