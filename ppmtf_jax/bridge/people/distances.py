"""Bins of distance between places."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from ppmtf_jax.bridge.space import Space

QUANTILES = np.append(np.arange(1, 12) / 12, [0.94, 0.96, 0.98, 0.99])
"""Upper edges of the bins, as quantiles of the distances of pairs; the rare long distances have several bins."""


def distance_bins(n_pairs: Int[np.ndarray, "cell cell"], space: Space) -> Int[np.ndarray, "cell cell"]:
    """Bin of distance of each pair of cells: 0, 1, ... from near to far; the quantiles are those of the given pairs.

    `n_pairs`: how many pairs of places lie in each pair of cells.
    """
    order = np.argsort(space.km, axis=None, kind="stable")
    reached = np.cumsum(n_pairs.ravel()[order])
    # The smallest distance that at least this share of the pairs does not exceed.
    at = order[np.searchsorted(reached, QUANTILES * reached[-1])] if reached[-1] else []
    edges = space.km.ravel()[at]
    # Many pairs can have exactly the distance of an edge. Such pairs belong to the lower bin.
    return np.unique(np.searchsorted(np.unique(edges), space.km), return_inverse=True)[1].reshape(space.km.shape)
