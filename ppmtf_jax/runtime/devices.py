"""Which devices share the work, and how arrays lie on them.

Work is split over users, or over other rows that do not need each other, along one mesh axis. On a CPU, JAX sees one
device however many cores there are, and one device makes little use of more than one core here: `use_all_cores` gives
it a device for each.

Several processes run the same program. What all devices compute together, as in a fit, is spread over a mesh. Where no
row needs another, each process computes `own_share` of the rows by itself, and `gather_rows` brings them together.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Shaped

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.runtime.memory import CONTROL_GROUP, told
from ppmtf_jax.streams import SEED_BITS, Seed

AXIS = "devices"
SAME = PartitionSpec()
SPLIT = PartitionSpec(AXIS)


def n_cores() -> int:
    """Cores that this process may use: those of the machine, of its own share of them, and of its container's time.

    A container that may use a core and a half of the time has two.
    """
    n_own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([n_own, *(max(1, math.ceil(share)) for share in cores_of_group())])


@cache
def cores_of_group() -> list[float]:
    """Of the control group, as a container sees its own, in the newer or older form; none where it has no limit."""
    newer = told(CONTROL_GROUP / "cpu.max").split()
    older = [told(CONTROL_GROUP / "cpu" / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    # No limit is "max" in the newer form, and -1 in the older one.
    limits = [each for each in (newer, older) if len(each) == 2 and all(number.isdecimal() for number in each)]
    return [int(quota) / int(period) for quota, period in limits if int(quota) and int(period)]


def use_all_cores() -> None:
    """Let JAX see every core that this process may use as a device of its own; about twice as fast on two cores.

    Call it before anything else of JAX. The command line does. A number of CPU devices that was already chosen, by
    `jax_num_cpu_devices` or the flag `--xla_force_host_platform_device_count`, is left as it is.

    Raises
    ------
    InputError
        JAX has already been used, so that its devices can no longer be changed.

    Examples
    --------
    >>> use_all_cores()  # doctest: +SKIP
    >>> jax.device_count()  # doctest: +SKIP
    2
    """
    chosen = jax.config.values["jax_num_cpu_devices"] != -1 or "host_platform_device_count" in os.environ.get(
        "XLA_FLAGS", ""
    )
    if chosen:
        return
    try:
        jax.config.update("jax_num_cpu_devices", n_cores())
    except RuntimeError as error:
        problem = Problem("a call before JAX is used", "devices in use", way_out="Call it first in the program")
        raise InputError("use_all_cores", [problem]) from error


def join_processes(coordinator: str, n_processes: int, process: int) -> None:
    """Work together with the same program in other processes, on this machine or others: see `jax.distributed`.

    Call it before anything else of JAX but `use_all_cores`, with the same data, settings and seed in every process.
    `fit`, `synthesize` and `plausible_deniability_test` then share their work, and return the same in every process.
    One of them, see `is_first_process`, should write it.

    Parameters
    ----------
    coordinator : str
        HOST:PORT at which process 0 can be reached.
    n_processes, process : how many there are, and which of them, from 0, this one is

    Raises
    ------
    InputError
        The numbers do not fit, JAX has already been used, or the others were not reached.

    Examples
    --------
    >>> join_processes("localhost:9900", n_processes=2, process=0)  # doctest: +SKIP
    """
    if not 0 <= process < n_processes:
        found = f"process {process} of {n_processes}"
        raise InputError("processes", [Problem("a number from 0 to one less than there are processes", found)])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # with it a process ignores SIGTERM
    try:
        jax.distributed.initialize(coordinator, n_processes, process)
        # Processes connect when they first exchange something. Later, one that is 30 s behind would be given up.
        for mesh in (mesh_of(), _first_devices()):
            _on_every_device(put(np.zeros(mesh.size, np.uint8), SPLIT, mesh), mesh)
    except (RuntimeError, ValueError) as error:
        way_out = "Start every process with the same --coordinator and --processes, one of them as process 0"
        raise InputError("processes", [Problem("all processes", str(error), way_out=way_out)]) from error


def mesh_of(devices: Sequence[Any] | None = None) -> Mesh:
    """A mesh of one axis over some JAX devices; by default all, of every process where there are several."""
    return Mesh(np.array(jax.devices() if devices is None else devices), (AXIS,))


def put(tree: Any, specs: Any, mesh: Mesh) -> Any:
    """Place host arrays on the devices of a mesh; of several processes each one gives what its own devices hold.

    Parameters
    ----------
    tree : pytree of arrays, the same in every process
    specs : pytree of `PartitionSpec` of the same structure
    """

    def put_leaf(leaf: np.ndarray | np.generic | Array, spec: PartitionSpec) -> Array:
        return jax.make_array_from_callback(np.shape(leaf), NamedSharding(mesh, spec), lambda i: np.asarray(leaf)[i])

    return jax.tree.map(put_leaf, tree, specs)


def is_first_process() -> bool:
    """Whether this process writes what all processes have found together."""
    return jax.process_index() == 0


def own_share(n_rows: int, block: int = 1) -> slice:
    """The rows that this process works on, all of them where it is the only one.

    Shares are contiguous and begin with a whole block of rows. All but the last are equal, and none is empty: with more
    processes than blocks, the last block is in several shares.

    Examples
    --------
    >>> own_share(5)
    slice(0, 5, None)
    """
    size = _share_size(n_rows, block)
    first = min(jax.process_index() * size, (n_rows - 1) // block * block)
    return slice(first, min(first + size, n_rows))


def gather_rows(share: Shaped[np.ndarray, "share ..."], n_rows: int, block: int = 1) -> Shaped[np.ndarray, "row ..."]:
    """All rows, in every process, from the shares that `own_share` gave them; to be called in each of them.

    Every bit stays as it is.

    Examples
    --------
    >>> gather_rows(np.arange(5)[own_share(5)] ** 2, 5)
    array([ 0,  1,  4,  9, 16])
    """
    if jax.process_count() == 1:
        return share
    padded = np.resize(share, (_share_size(n_rows, block), *share.shape[1:]))
    return of_each_process(padded).reshape(-1, *share.shape[1:])[:n_rows]


def of_first_process(array: Shaped[np.ndarray, "..."]) -> Shaped[np.ndarray, "..."]:
    """The first process's array, in every process, for what differs, as noise does; to be called in each of them."""
    return array if jax.process_count() == 1 else of_each_process(array)[0]


def seed_of_first_process(seed: Seed) -> Seed:
    """The first process's seed, in every process: one that was drawn differs from process to process."""
    if jax.process_count() == 1:
        return seed
    content = seed.value.to_bytes(SEED_BITS // 8, "little") + bytes([seed.given])
    *value, given = of_first_process(np.frombuffer(content, np.uint8)).tobytes()
    return Seed(int.from_bytes(bytes(value), "little"), bool(given))


def wait_for_processes() -> None:
    """Wait until every process has come here, the first too, which may have to write; to be called before the end.

    JAX itself waits, but gives up after five minutes, and ends processes that still work.
    """
    if jax.distributed.is_initialized():
        of_each_process(np.zeros(1))


def leave_processes(exit_code: int) -> None:
    """After an error: end this process if it is one of several, without waiting for the others, so that they end too.

    Otherwise they would wait for its part of the work, and it for their end.
    """
    if jax.distributed.is_initialized():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)


def _share_size(n_rows: int, block: int) -> int:
    return -(-n_rows // (block * jax.process_count())) * block


def _first_devices() -> Mesh:
    """A mesh of one device of each process, in the order of processes."""
    first = {device.process_index: device for device in reversed(jax.devices())}
    return mesh_of([first[process] for process in sorted(first)])


def _on_every_device(array: Array, mesh: Mesh) -> Array:
    return jax.block_until_ready(jax.device_put(array, NamedSharding(mesh, SAME)))


def of_each_process(array: np.ndarray) -> np.ndarray:
    """The arrays of all processes, one after another along a new first axis."""
    mesh = _first_devices()
    # As bytes, since JAX would narrow numbers of 64 bits.
    row = np.ascontiguousarray(array).view(np.uint8).reshape(1, -1)
    rows = jax.make_array_from_process_local_data(NamedSharding(mesh, SPLIT), row, (mesh.size, row.shape[1]))
    return np.array(_on_every_device(rows, mesh)).view(array.dtype).reshape(mesh.size, *array.shape)
