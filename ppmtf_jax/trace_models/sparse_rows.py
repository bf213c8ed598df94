"""Lookup in a sparse matrix on a device, stored row after row with sorted columns."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int

from ppmtf_jax.runtime.devices import round_up
from ppmtf_jax.trace_models.base import ROUNDED


def longest_row(begin: Int[np.ndarray, " row1"], n_entries: int) -> int:
    """At least the number of entries of any row, rounded up so that similar models share programs.

    Examples
    --------
    >>> longest_row(np.array([0, 2, 7, 8]), n_entries=9)
    6
    """
    return min(round_up(max(1, int(np.diff(begin).max())), ROUNDED), n_entries)


def find_in_row(
    column: Int[Array, " entry"], begin: Int[Array, ""], end: Int[Array, ""], wanted: Int[Array, ""]
) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """The first entry in [begin, end) whose column is at least `wanted`, and whether its column equals `wanted`.

    If there is no such entry, the index of any existing entry is returned.

    Examples
    --------
    >>> column = jnp.array([1, 4, 7, 0, 9])
    >>> [int(x) for x in find_in_row(column, jnp.array(0), jnp.array(3), jnp.array(4))]
    [1, 1]
    """

    def halve(_: Int[Array, ""], bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) // 2
        below = (low < high) & (column[middle] < wanted)
        return jnp.where(below, middle + 1, low), jnp.where(below, high, jnp.minimum(middle, high))

    at = lax.fori_loop(0, len(column).bit_length(), halve, (begin, end))[0]
    last = jnp.minimum(at, len(column) - 1)
    return last, (at < end) & (column[last] == wanted)
