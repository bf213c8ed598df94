"""Initial clusters of users, by k-means on the regions that they visit in each quarter of the slots."""

from __future__ import annotations

import warnings

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from ppmtf_jax.bridge.products import indicator
from ppmtf_jax.bridge.space import Space
from ppmtf_jax.bridge.visits import VisitCounts
from ppmtf_jax.runtime.threads import one_thread

# Maximum number of users for learning the centres: more users change the clusters less than another seed does.
MAX_USERS = 4_000
N_REGIONS, N_PARTS = 256, 4
# Smaller Gaussian weights become 0, because denormal numbers are slow.
SMALLEST_WEIGHT = 1e-12


def starting_clusters(
    visits: VisitCounts, space: Space, blur_km: float, n_clusters: int, random: np.random.Generator
) -> Int[np.ndarray, " user"]:
    """Cluster of each user by k-means.

    Features are square roots of the blurred shares of a user's visits in 256 regions, for each quarter of the slots.
    """
    # This import takes seconds.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    features = _features(visits, space, blur_km)
    some = np.arange(visits.n_users)
    if visits.n_users > MAX_USERS:
        some = np.sort(random.choice(visits.n_users, MAX_USERS, replace=False))
    means = KMeans(n_clusters, n_init=2, max_iter=30, random_state=int(random.integers(2**31)))
    with one_thread(), warnings.catch_warnings():
        # If there are fewer distinct users than clusters, some clusters stay empty.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(means.fit(features[some]).predict(features))


def _features(visits: VisitCounts, space: Space, blur_km: float) -> Float[np.ndarray, "user feature"]:
    n_cells = len(space.km)
    cell = space.cell[visits.place]
    region = _regions(np.bincount(cell, visits.count, n_cells), space.km)
    blur = indicator(region, int(region.max()) + 1).toarray()
    if blur_km > 0:
        kernel = space_kernel(space, blur_km)
        blur = kernel / kernel.sum(axis=1, keepdims=True) @ blur
    part = visits.slot * N_PARTS // visits.n_slots
    features = []
    for number in range(N_PARTS):
        own = part == number
        entries = (visits.count[own], (visits.user[own], cell[own]))
        counts = sparse.csr_array(entries, shape=(visits.n_users, n_cells)) @ blur
        # A user without visits in this part gets equal shares of all regions.
        counts += np.float32(1e-9)
        features.append(np.sqrt(counts / counts.sum(axis=1, keepdims=True)))
    return np.concatenate(features, axis=1)


def _regions(count: Float[np.ndarray, " cell"], km: Float[np.ndarray, "cell cell"]) -> Int[np.ndarray, " cell"]:
    """For each cell, the nearest of the most visited cells; among equally near ones, the least visited."""
    centres = np.argsort(-count, kind="stable")[:N_REGIONS]
    region = len(centres) - 1 - km[:, centres[::-1]].argmin(axis=1)
    region[centres] = np.arange(len(centres))
    return region


def space_kernel(space: Space, blur_km: float) -> Float[np.ndarray, "cell cell"]:
    """Gaussian weights between cells, 1 on the diagonal."""
    weights = np.exp(-0.5 * (space.km.astype(np.float32) / np.float32(blur_km)) ** 2)
    weights[weights < SMALLEST_WEIGHT] = 0
    # In an empty region, places of one cell may be far apart; the cell still keeps its own visits.
    np.fill_diagonal(weights, 1)
    return weights
