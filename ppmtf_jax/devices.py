"""Which devices share the work, and how arrays lie on them.

Work is split over users, or over other rows that do not need each other, along one mesh axis. On a CPU, JAX sees one
device however many cores there are, and one device makes little use of more than one core here: `use_all_cores` gives
it a device for each.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from ppmtf_jax.errors import InputError, Problem

AXIS = "devices"
SAME = PartitionSpec()
SPLIT = PartitionSpec(AXIS)


def n_cores() -> int:
    """Cores that this process may use; all, where the system does not say which."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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

    Call it before anything else of JAX, with the same data, settings and seed in every process.

    Parameters
    ----------
    coordinator : str
        HOST:PORT at which process 0 can be reached.
    n_processes, process : how many there are, and which of them, from 0, this one is

    Raises
    ------
    InputError
        The numbers do not fit, JAX has already been used, or the others were not reached.
    """
    if not 0 <= process < n_processes:
        found = f"process {process} of {n_processes}"
        raise InputError("processes", [Problem("a number from 0 to one less than there are processes", found)])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(coordinator, n_processes, process)
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
