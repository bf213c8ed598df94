"""How parameters are found: the maximum of a smooth function by L-BFGS, matching of shares, and raking."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from scipy.optimize import Bounds, minimize

from ppmtf_jax.errors import NumericalError
from ppmtf_jax.runtime.devices import round_up
from ppmtf_jax.runtime.threads import map_in_threads

MAX_LOG = 30.0
"""Bound of the logarithms that the trace model stores, so that float32 can represent exponentials of some sums."""
TINY = 1e-30
RAKED, MAX_RAKINGS = 1e-5, 100
"""Raking ends at this total variation from the population in each slot, or after this number of rounds; most data need
fewer than twenty."""


def maximize(
    value: Callable[[Any, Any], jax.Array],
    start: Any,
    data: Any,
    most_steps: int = 1000,
    limits: tuple[Any, Any] | None = None,
) -> Any:
    """Where L-BFGS finds the greatest `value(parameters, data)` in at most `most_steps` steps, as float64 NumPy arrays.

    The gradients are JAX's own. `value`: a module-level function, so that its program is compiled only once for all
    data of the same shapes; see `padding`. `limits`: lower and upper limits, each of the structure of `start`.

    Raises `NumericalError`: the value is not finite.

    Examples
    --------
    >>> def falls(x, peak):
    ...     return -((x - peak) ** 2).sum()
    >>> maximize(falls, np.zeros(2), np.array([1.0, 3.0]), limits=(np.zeros(2), np.full(2, 2.0))).round(6).tolist()
    [1.0, 2.0]
    """
    # In NumPy: `jax.flatten_util.ravel_pytree` would compile programs of its own for every new shape.
    leaves, structure = jax.tree.flatten(start)
    shapes = [np.shape(leaf) for leaf in leaves]
    ends = np.cumsum([np.size(leaf) for leaf in leaves])

    def unflatten(x: np.ndarray) -> Any:
        parts = np.split(x, ends[:-1])
        return structure.unflatten([part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)])

    def flatten(tree: Any) -> np.ndarray:
        return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)])

    def descend(x: np.ndarray) -> tuple[float, np.ndarray]:
        loss, gradient = _loss_and_gradient(value)(unflatten(x), data)
        return float(loss), flatten(gradient)

    bounds = None if limits is None else Bounds(*map(flatten, limits))
    with jax.enable_x64(True):
        data = jax.device_put(data)
        found = minimize(
            descend, flatten(start), jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": most_steps}
        )
    if not np.isfinite(found.fun):
        raise NumericalError("the likelihood is not finite: a parameter has no bound, or the counts are damaged")
    return unflatten(found.x)


@cache
def _loss_and_gradient(value: Callable[[Any, Any], jax.Array]) -> Callable[[Any, Any], tuple[jax.Array, Any]]:
    return jax.jit(jax.value_and_grad(lambda parameters, data: -value(parameters, data)))


def padding(n: int) -> int:
    """How many rows without weight to append to `n` rows, at least one, so that similar data share a program."""
    return round_up(n + 1, steps=4) - n


def padded(rows: np.ndarray, n: int, value: Any) -> np.ndarray:
    """The rows, and `n` more rows with this value."""
    return np.concatenate([rows, np.full((n, *rows.shape[1:]), value, rows.dtype)])


def pad(table: Any, *axes: dict[str, Any]) -> Any:
    """Rows without weight are appended to the columns of a NamedTuple; see `padding`.

    `axes`: for each axis, the names of its columns, each with the value of an appended row.
    """
    found = {}
    for ends in axes:
        n_more = padding(len(getattr(table, next(iter(ends)))))
        found |= {name: padded(getattr(table, name), n_more, value) for name, value in ends.items()}
    return table._replace(**found)


def matching(wanted: Any, found: Any, most_change: float, power: float = 1.0) -> Any:
    """What a round multiplies weights with, so that shares `found` come near the shares `wanted`.

    The factor is at most `most_change`, and at least its reciprocal: the marginals may make a share impossible.

    Examples
    --------
    >>> matching(np.array([0.5, 0.3, 0.2]), np.array([0.25, 0.3, 0.0]), most_change=5.0).round(6).tolist()
    [2.0, 1.0, 5.0]
    """
    return np.clip((wanted / np.maximum(found, TINY)) ** power, 1 / most_change, most_change)


def rake(
    distributions: Float[np.ndarray, "cluster slot place"],
    share: Float[np.ndarray, " cluster"],
    population: Float[np.ndarray, "slot place"],
) -> Float[np.ndarray, "cluster slot place"]:
    """Scale distributions so that sum_k share_k theta_k is the population, up to a total variation of 1e-5 per slot.

    Iterative proportional fitting, at most 100 rounds: scale places to the population, then clusters to sum 1.
    """

    def rake_slot(slot: int) -> Float[np.ndarray, "cluster place"]:
        theta = distributions[:, slot].astype(np.float64)
        for _ in range(MAX_RAKINGS):
            mixture = share @ theta
            if np.abs(mixture - population[slot]).sum() / 2 < RAKED:
                break
            theta *= population[slot] / mixture
            theta /= theta.sum(axis=1, keepdims=True)
        return theta.astype(np.float32)

    return np.stack(list(map_in_threads(rake_slot, range(distributions.shape[1]))), axis=1)
