"""A lower bound of epsilon from an attack: what audits of private mechanisms hold against the promise."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from ppmtf_jax.privacy.limits import TAIL, share_interval


def least_epsilon(
    without: Float[np.ndarray, " run"], with_user: Float[np.ndarray, " run"], delta: float, tail: float = TAIL
) -> float:
    """Lower bound of epsilon at `delta` from the scores of an attack on independent runs without and with one user.

    There must be at least two runs of each kind. For every threshold, the probability of a higher score with them is at
    most exp(epsilon) times the probability without them, plus delta. The same holds for lower scores, and for the two
    kinds of runs exchanged. Half of the runs choose the threshold, and one of these four inequalities, with the best
    bound. In the other half, the intervals of the two shares of scores give the bound that is returned. It holds with
    a probability of at least 1 - 2 `tail` (Jagielski, Ullman and Oprea 2020). It is 0 if nothing was found.
    """
    pairs = [(without, with_user), (with_user, without), (-without, -with_user), (-with_user, -without)]

    def bound(rare: np.ndarray, frequent: np.ndarray, threshold: float) -> float:
        low = share_interval((frequent > threshold).mean(), len(frequent), tail)[0]
        high = share_interval((rare > threshold).mean(), len(rare), tail)[1]
        return math.log(max((low - delta) / high, 1.0))

    halves = [[(one[part::2], other[part::2]) for one, other in pairs] for part in (0, 1)]
    chosen = max(
        (bound(rare, frequent, threshold), number, threshold)
        for number, (rare, frequent) in enumerate(halves[0])
        for threshold in np.quantile(np.concatenate([rare, frequent]), np.linspace(0, 1, 101))
    )
    return bound(*halves[1][chosen[1]], chosen[2])
