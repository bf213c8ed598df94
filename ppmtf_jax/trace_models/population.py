"""Transition matrices of counts of all users, and the stationary distribution of a chain."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

# With at least this many places, GMRES finds a stationary distribution faster than elimination.
ITERATED_PLACES = 256


def one_step_more(count: Int[np.ndarray, "place next_place"]) -> Float[np.ndarray, "place next_place"]:
    """Transition matrix of counts, with one additional step from each place, distributed like all steps."""
    share = (count.sum(axis=0) + 1) / (count.sum() + len(count))
    return (count + share) / (count.sum(axis=1, keepdims=True) + 1)


def stationary_distribution(
    transition: Float[np.ndarray, "*chain place next_place"],
) -> Float[np.ndarray, "*chain place"]:
    """Stationary distribution of each chain, all of whose transition probabilities are positive.

    Solves pi (I - P + E) = 1, where all entries of E are 1. Then pi E = 1 and pi P = pi, and the solution is unique. It
    is computed by NumPy and SciPy: XLA can wait for ever where several threads call LAPACK.

    Examples
    --------
    >>> stationary_distribution(np.array([[0.9, 0.1], [0.3, 0.7]])).round(12).tolist()
    [0.75, 0.25]
    """
    n_places = transition.shape[-1]
    if n_places >= ITERATED_PLACES:
        chains = transition.reshape(-1, n_places, n_places)
        return np.stack([_by_iterations(each) for each in chains]).reshape(transition.shape[:-1])
    return _by_elimination(transition)


def _by_iterations(transition: Float[np.ndarray, "place next_place"]) -> Float[np.ndarray, " place"]:
    """Stationary distribution of one chain by GMRES; it needs few products if the rows of most places are similar."""
    # Imported only here, because this import takes long.
    from scipy.sparse.linalg import LinearOperator, gmres

    n_places = len(transition)
    system = LinearOperator(transition.shape, lambda x: x - x @ transition + x.sum())
    start = np.full(n_places, 1 / n_places)
    found, failed = gmres(system, np.ones(n_places), start, rtol=1e-13, restart=100, maxiter=1)
    if failed:
        return _by_elimination(transition)
    # One more step of the chain also makes the relative errors of small probabilities small.
    after = np.maximum(found, 0) @ transition
    return after / after.sum()


def _by_elimination(transition: Float[np.ndarray, "*chain place next_place"]) -> Float[np.ndarray, "*chain place"]:
    system = np.eye(transition.shape[-1]) - np.swapaxes(transition, -1, -2) + 1
    solved = np.linalg.solve(system, np.ones((*transition.shape[:-1], 1)))[..., 0]
    positive = np.maximum(solved, np.finfo(solved.dtype).tiny)
    return positive / positive.sum(axis=-1, keepdims=True)
