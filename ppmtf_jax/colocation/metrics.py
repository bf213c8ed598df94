"""Statistics of the friends and their meetings in one data set."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import scipy  # loads `scipy.stats`, which takes half a second, when it is first used
from scipy import sparse

from ppmtf_jax.colocation.friends import FriendGraph, sorted_distinct
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem

HOURS = 24
Counts = sparse.csr_array | np.ndarray
"""Numbers of co-locations, shape (instants, places)."""


def category_counts(counts: Counts, places: PlaceTable) -> tuple[list[str], np.ndarray]:
    """Counts by category: the sorted categories, and an array of shape (instants, categories).

    Places without a category are grouped under "".

    Raises `InputError`: no category is known, or there is not one count for each place.
    """
    if places.category is None:
        way_out = "Give the table of places a column category"
        raise InputError("places", [Problem("a category of each place", "none known", way_out=way_out)])
    if _shape(counts)[1:] != (len(places),):
        raise InputError("counts", [Problem(f"shape (instants, {len(places)})", f"shape {counts.shape}")])
    categories, of_place = np.unique(places.category.astype(str), return_inverse=True)
    is_in = sparse.csr_array((np.ones(len(places), np.int64), (np.arange(len(places)), of_place)))
    return categories.tolist(), sparse.csr_array(sparse.csr_array(counts) @ is_in).toarray()


def meetings_by_category(counts: Counts, places: PlaceTable) -> dict[str, float]:
    """Share of the co-locations at places of each category, as of `category_counts`; NaN if there is no co-location."""
    categories, by_category = category_counts(counts, places)
    return dict(zip(categories, _shares(by_category.sum(axis=0)).tolist(), strict=True))


def meetings_by_hour(counts: Counts, time_grid: TimeGrid) -> np.ndarray:
    """Share of the co-locations in each hour of the day, shape (24,); NaN if there is no co-location.

    Raises `InputError`: there is not one row of counts for each instant of the grid.
    """
    if len(_shape(counts)) != 2 or _shape(counts)[0] != time_grid.n_instants:
        raise InputError("counts", [Problem(f"shape ({time_grid.n_instants}, places)", f"shape {counts.shape}")])
    hour = time_grid.since_midnight_s() // 3600 % HOURS
    return _shares(np.bincount(hour, np.asarray(counts.sum(axis=1)).ravel(), HOURS))


def at_one_place(traces: Traces) -> Traces:
    """The same traces with all places merged into one, so that all users with events at the same instant meet."""
    return replace(traces, place=np.zeros_like(traces.place))


def pairs_together(traces: Traces) -> np.ndarray:
    """Number of pairs of users, friends or not, who are at one place at each instant, shape (instants,).

    Pairs are not enumerated.
    """
    n_instants, n_places = traces.time_grid.n_instants, traces.n_places
    code = (traces.user.astype(np.int64) * n_instants + traces.instant) * n_places + traces.place
    cell, n_there = np.unique(sorted_distinct(code) % (n_instants * n_places), return_counts=True)
    n_pairs = np.zeros(n_instants, np.int64)
    np.add.at(n_pairs, cell // n_places, n_there * (n_there - 1) // 2)
    return n_pairs


def degree_distribution(graph: FriendGraph) -> np.ndarray:
    """Share of the users who have 0, 1, ... friends, up to the largest number, shape (degrees,)."""
    return _shares(np.bincount(graph.degrees()))


def degrees_in_part(graph: FriendGraph, n_users: int) -> np.ndarray:
    """Expected degree distribution in a random subset of `n_users` users, shape (degrees,).

    The number of friends who remain to a user with d friends is hypergeometric. So graphs with different numbers of
    users can be compared.

    Raises `InputError`: `n_users` is not from 1 to the number of users of the graph.

    Examples
    --------
    Two of three users are drawn; in one third of the draws they are the two friends:

    >>> graph = FriendGraph.from_pairs(np.arange(3), np.array([[0, 1]]))
    >>> degrees_in_part(graph, 2).round(6).tolist(), degrees_in_part(graph, 3).round(6).tolist()
    ([0.666667, 0.333333], [0.333333, 0.666667])
    """
    if not 1 <= n_users <= graph.n_users:
        raise InputError("friendships", [Problem(f"from 1 to {graph.n_users} users", repr(n_users))])
    shares = degree_distribution(graph)
    degree = np.flatnonzero(shares)
    kept = np.arange(min(len(shares), n_users))
    return scipy.stats.hypergeom.pmf(kept[:, None], graph.n_users - 1, degree, n_users - 1) @ shares[degree]


def clustering_coefficient(graph: FriendGraph) -> float:
    """Probability that two friends of the same user are friends of each other; NaN if nobody has two friends.

    This is the global clustering coefficient (transitivity): three times the number of triangles, divided by the number
    of paths of two friendships.
    """
    degrees = graph.degrees()
    # Each friendship points to the user with more friends, so that all rows are short, even of users with many friends.
    rank = np.argsort(np.argsort(degrees, kind="stable"))
    low, high = np.sort(rank[graph.pairs], axis=1).T
    ones = np.ones(len(low), np.int64)
    points_to = sparse.csr_array(sparse.coo_array((ones, (low, high)), shape=(graph.n_users, graph.n_users)))
    n_triangles = ((points_to @ points_to) * points_to).sum()
    n_paths = int((degrees * (degrees - 1) // 2).sum())
    return 3 * int(n_triangles) / n_paths if n_paths else math.nan


def _shape(counts: Counts) -> tuple[int, ...]:
    return tuple(counts.shape)  # type: ignore[arg-type]  # to SciPy's stubs, it may be None


def _shares(counts: np.ndarray) -> np.ndarray:
    total = counts.sum()
    return counts / total if total else np.full(counts.shape, np.nan)
