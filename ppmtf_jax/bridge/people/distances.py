"""Bins of distance between places."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from ppmtf_jax.bridge.space import Space

QUANTILES = np.append(np.arange(1, 12) / 12, [0.94, 0.96, 0.98, 0.99])
"""Upper edges of the bins, as quantiles of the distances of pairs; the rare long distances have several bins."""


def distance_bins(
    place: Int[np.ndarray, " pair"], other: Int[np.ndarray, " pair"], space: Space
) -> Int[np.ndarray, "cell cell"]:
    """Bin of distance of each pair of cells: 0, 1, ... from near to far; the quantiles are those of the given pairs."""
    km = space.km[space.cell[place], space.cell[other]]
    edges = np.quantile(km, QUANTILES, method="inverted_cdf") if len(km) else []
    # Many pairs can have exactly the distance of an edge. Such pairs belong to the lower bin.
    return np.unique(np.searchsorted(np.unique(edges), space.km), return_inverse=True)[1].reshape(space.km.shape)
