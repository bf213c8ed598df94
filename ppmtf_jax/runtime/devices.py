"""The devices that share the work, and how arrays are placed on them.

On a CPU, JAX has a single device, which here makes little use of more than one core; `use_all_cores` makes a device of
each core.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from ppmtf_jax.errors import InputError, Problem

AXIS = "devices"
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


def mesh_of(devices: Sequence[Any] | None = None) -> Mesh:
    """A mesh of one axis over some JAX devices; by default all devices of all processes."""
    return Mesh(np.array(jax.devices() if devices is None else devices), (AXIS,))


def put(tree: Any, specs: Any, mesh: Mesh) -> Any:
    """Place host arrays, equal in all processes, on a mesh; `specs` is a tree of `PartitionSpec` of the same form."""

    def put_leaf(leaf: np.ndarray | np.generic | Array, spec: PartitionSpec) -> Array:
        return jax.make_array_from_callback(np.shape(leaf), NamedSharding(mesh, spec), lambda i: np.asarray(leaf)[i])

    return jax.tree.map(put_leaf, tree, specs)


def round_up(n: int, steps: int = 8) -> int:
    """Round up to one of `steps` sizes between powers of two, so that data of similar size share a compiled program.

    Examples
    --------
    >>> [round_up(n, steps=2) for n in (4, 5, 7, 9, 12, 13)]
    [4, 6, 8, 12, 12, 16]
    """
    step = max(1, (1 << n.bit_length()) // (2 * steps))
    return -(-n // step) * step
