"""Stationary distribution of a Markov chain."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def stationary_distribution(transition: Float[np.ndarray, "place next_place"]) -> Float[np.ndarray, " place"]:
    """The distribution that a step of a chain with positive transition probabilities preserves.

    Examples
    --------
    >>> stationary_distribution(np.array([[0.9, 0.1], [0.3, 0.7]])).round(12).tolist()
    [0.75, 0.25]
    """
    # p (I - P) = 0 has one solution up to a factor. Adding sum(p) = 1 to each equation makes the system regular.
    n_places = len(transition)
    found = np.linalg.solve(np.eye(n_places) - transition.T + 1, np.ones(n_places))
    return np.maximum(found, 0) / np.maximum(found, 0).sum()
