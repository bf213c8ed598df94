"""Distance to the closest record (DCR): how much of a window one single training window contains."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from ppmtf_jax.attacks.scoring import events_by_point, products_in_blocks
from ppmtf_jax.data.windows import Windows


def nearest_shares(windows: Windows, train: Windows) -> Float[np.ndarray, " window"]:
    """Share of the events of each window that its closest training window has too: 1 - DCR.

    The distance is the share of a window's events that the training window does not have, at the same place and the
    same instant of the period (Hamming distance). Both sets have the same places and grids with the same period.
    """
    nearest = np.zeros(windows.n_windows)
    for rows, product in products_in_blocks(events_by_point(windows), events_by_point(train).T.tocsr()):
        nearest[rows] = product.max(axis=1).toarray().ravel()
    return nearest / windows.events_per_window()
