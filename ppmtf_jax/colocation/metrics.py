"""What is kept of friends and their meetings: each function describes one data set, or compares counts with true ones.

Errors of the friendship probability and of counts by category are those of section 5.2 of the co-location paper (Narita
et al., "Synthesizing Privacy-Preserving Location Traces Including Co-locations"). The rest is what that paper lacks: a
number or a distribution of real data, to be held against that of synthetic data.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.stats import hypergeom

from ppmtf_jax.colocation.counts import Colocations, find_colocations
from ppmtf_jax.colocation.friend_graph import FriendGraph
from ppmtf_jax.colocation.friendship import friendship_probability
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem

HOURS = 24
Counts = sparse.csr_array | np.ndarray


class CountErrors(NamedTuple):
    """Mean absolute and mean square error of counts by instant and category."""

    mae: float
    mse: float


class ColocationRates(NamedTuple):
    """Co-locations of two users for each instant at which both are seen; NaN where there is no such instant.

    Attributes
    ----------
    friends, strangers : float
        Of pairs of friends, and of all other pairs.
    """

    friends: float
    strangers: float


def friendship_probability_error(graph: FriendGraph, noisy_probability: float) -> float:
    """|p - p'| of section 5.2.

    Examples
    --------
    >>> graph = FriendGraph.from_pairs(np.arange(5), np.array([[0, 1], [1, 2]]))
    >>> round(friendship_probability_error(graph, 0.25), 12)
    0.05
    """
    return abs(friendship_probability(graph) - noisy_probability)


def category_counts(counts: Counts, places: PlaceTable) -> tuple[list[str], np.ndarray]:
    """Counts of places added up by category.

    Parameters
    ----------
    counts : sparse or dense array, shape (instants, places)
        As `Colocations.counts` gives them, or noisy ones.
    places : PlaceTable
        Places without a category are together under "".

    Returns
    -------
    categories : list of str
        Sorted.
    array, shape (instants, categories)

    Raises
    ------
    InputError
        No category is known, or there is not one count for each place.

    Examples
    --------
    >>> places = PlaceTable(np.arange(3), np.zeros(3), np.zeros(3), np.array(["bar", "", "bar"], object))
    >>> categories, by_category = category_counts(np.array([[1, 2, 4]]), places)
    >>> categories, by_category.tolist()
    (['', 'bar'], [[2, 5]])
    """
    if places.category is None:
        way_out = "Give the table of places a column category"
        raise InputError("places", [Problem("a category of each place", "none known", way_out=way_out)])
    if _shape(counts)[1:] != (len(places),):
        raise InputError("counts", [Problem(f"shape (instants, {len(places)})", f"shape {counts.shape}")])
    categories, of_place = np.unique(places.category.astype(str), return_inverse=True)
    stored = sparse.coo_array(counts)
    instant, place = stored.coords
    total = np.zeros((_shape(counts)[0], len(categories)), stored.dtype)
    np.add.at(total, (instant, of_place[place]), stored.data)
    return categories.tolist(), total


def category_count_errors(counts: Counts, true_counts: Counts, places: PlaceTable) -> CountErrors:
    """MAE and MSE of counts by instant and category: the errors of Q' of section 5.2.

    Parameters
    ----------
    counts : sparse or dense array, shape (instants, places)
        Trimmed, noisy or both.
    true_counts : sparse or dense array, shape (instants, places)
        Of all co-locations, neither trimmed nor noisy.
    places : PlaceTable

    Raises
    ------
    InputError
        The two have different shapes, or what `category_counts` refuses.

    Examples
    --------
    >>> places = PlaceTable(np.arange(2), np.zeros(2), np.zeros(2), np.array(["bar", "home"], object))
    >>> category_count_errors(np.array([[1, 5]]), np.array([[2, 2]]), places)
    CountErrors(mae=2.0, mse=5.0)
    """
    if counts.shape != true_counts.shape:
        raise InputError("counts", [Problem(f"shape {true_counts.shape}, like the true ones", f"shape {counts.shape}")])
    error = category_counts(counts, places)[1] - category_counts(true_counts, places)[1].astype(float)
    return CountErrors(float(np.abs(error).mean()), float((error**2).mean()))


def meetings_by_category(counts: Counts, places: PlaceTable) -> dict[str, float]:
    """Share of the co-locations at places of each category; NaN where there is no co-location.

    Raises
    ------
    InputError
        What `category_counts` refuses.

    Examples
    --------
    >>> places = PlaceTable(np.arange(2), np.zeros(2), np.zeros(2), np.array(["bar", "home"], object))
    >>> meetings_by_category(np.array([[1, 0], [2, 1]]), places)
    {'bar': 0.75, 'home': 0.25}
    """
    categories, by_category = category_counts(counts, places)
    return dict(zip(categories, _shares(by_category.sum(axis=0)).tolist(), strict=True))


def meetings_by_hour(counts: Counts, time_grid: TimeGrid) -> np.ndarray:
    """Share of the co-locations in each hour of the day, shape (24,); NaN where there is no co-location.

    Parameters
    ----------
    counts : sparse or dense array, shape (instants, places)
        Of all instants of the grid.
    time_grid : TimeGrid
        Says at which time of the day each instant begins.

    Raises
    ------
    InputError
        There is not one row for each instant.

    Examples
    --------
    >>> grid = TimeGrid.each_instant("2024-01-01T22:30:00", 1800, 4)
    >>> meetings_by_hour(np.array([[1], [2], [1], [0]]), grid)[[22, 23, 0]].tolist()
    [0.25, 0.75, 0.0]
    """
    if len(_shape(counts)) != 2 or _shape(counts)[0] != time_grid.n_instants:
        raise InputError("counts", [Problem(f"shape ({time_grid.n_instants}, places)", f"shape {counts.shape}")])
    first = time_grid.time_of(0)
    second = first.hour * 3600 + first.minute * 60 + first.second + time_grid.step_s * np.arange(time_grid.n_instants)
    return _shares(np.bincount(second // 3600 % HOURS, np.asarray(counts.sum(axis=1)).ravel(), HOURS))


def colocation_rates(traces: Traces, graph: FriendGraph) -> ColocationRates:
    """How often two friends are at one place when both are seen, and how often two strangers are.

    Of all pairs, without going through them: n users at a place are n (n - 1) / 2 pairs.

    Raises
    ------
    InputError
        What `find_colocations` refuses.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=200, seed=0).traces
    >>> rates = colocation_rates(traces, FriendGraph.of(traces))
    >>> rates.friends > 2 * rates.strangers
    True
    """
    anywhere = at_one_place(traces)
    of_friends = len(find_colocations(traces, graph)), len(find_colocations(anywhere, graph))
    of_all = int(pairs_together(traces).sum()), int(pairs_together(anywhere).sum())
    strangers = (whole - part for whole, part in zip(of_all, of_friends, strict=True))
    return ColocationRates(_ratio(*of_friends), _ratio(*strangers))


def at_one_place(traces: Traces) -> Traces:
    """The same traces as if all places were one: there, whoever is seen at the same time meets.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> int(at_one_place(toy_city(n_users=5, seed=0).traces).place.max())
    0
    """
    return replace(traces, place=np.zeros_like(traces.place))


def pairs_together(traces: Traces) -> np.ndarray:
    """How many pairs of users, friends or not, are at one place at each instant, shape (instants,).

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=5, n_days=1, missing=0.0, seed=0).traces
    >>> pairs_together(at_one_place(traces))[:3].tolist()
    [10, 10, 10]
    """
    n_instants, n_places = traces.time_grid.n_instants, traces.n_places
    code = (traces.user.astype(np.int64) * n_instants + traces.instant) * n_places + traces.place
    # Nearly in order already: sorting is many times faster than hashing, which `unique` does.
    code.sort(kind="stable")
    once = np.append(True, code[1:] != code[:-1])
    cell, n_there = np.unique(code[once] % (n_instants * n_places), return_counts=True)
    n_pairs = np.zeros(n_instants, np.int64)
    np.add.at(n_pairs, cell // n_places, n_there * (n_there - 1) // 2)
    return n_pairs


def colocations_per_friendship(colocations: Colocations, graph: FriendGraph) -> np.ndarray:
    """How often each pair of friends met, 0 included, shape (pairs,).

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=30, seed=0).traces
    >>> graph = FriendGraph.of(traces)
    >>> colocations = find_colocations(traces, graph)
    >>> int(colocations_per_friendship(colocations, graph).sum()) == len(colocations)
    True
    """
    return np.bincount(colocations.pair, minlength=graph.n_pairs)


def degree_distribution(graph: FriendGraph) -> np.ndarray:
    """Share of the users who have 0, 1, ... friends, up to the most that somebody has, shape (degrees,).

    Examples
    --------
    >>> degree_distribution(FriendGraph.from_pairs(np.arange(4), np.array([[0, 1], [1, 2]]))).tolist()
    [0.25, 0.5, 0.25]
    """
    return _shares(np.bincount(graph.degrees()))


def degrees_in_part(graph: FriendGraph, n_users: int) -> np.ndarray:
    """Degree distribution that is to be expected among so many of the users, drawn at random, shape (degrees,).

    Who is left out takes her friendships along, so that the fewer users there are the fewer friends each has: of d
    friends, a hypergeometric number is drawn. Graphs of different numbers of users compare only when this is made up
    for.

    Parameters
    ----------
    graph : FriendGraph
    n_users : int
        From 1 to as many as the graph has: then the distribution is its own.

    Raises
    ------
    InputError
        It is another number.

    Examples
    --------
    Two of three users are drawn; in one of three draws they are the two friends:

    >>> graph = FriendGraph.from_pairs(np.arange(3), np.array([[0, 1]]))
    >>> degrees_in_part(graph, 2).round(6).tolist(), degrees_in_part(graph, 3).round(6).tolist()
    ([0.666667, 0.333333], [0.333333, 0.666667])
    """
    if not 1 <= n_users <= graph.n_users:
        raise InputError("friendships", [Problem(f"from 1 to {graph.n_users} users", repr(n_users))])
    shares = degree_distribution(graph)
    degree = np.flatnonzero(shares)
    kept = np.arange(min(len(shares), n_users))
    return hypergeom.pmf(kept[:, None], graph.n_users - 1, degree, n_users - 1) @ shares[degree]


def clustering_coefficient(graph: FriendGraph) -> float:
    """Share of two friends of the same user who are friends themselves; NaN where nobody has two friends.

    The global one (transitivity): three times the number of triangles over the number of paths of two friendships.

    Examples
    --------
    A triangle and one friend more of one of the three: 3 of the 3 + 2 pairs of friends' friends.

    >>> clustering_coefficient(FriendGraph.from_pairs(np.arange(4), np.array([[0, 1], [1, 2], [0, 2], [2, 3]])))
    0.6
    """
    degrees = graph.degrees()
    # Each friendship leads to who has more friends, so that nobody leads to many: hubs cost little.
    rank = np.argsort(np.argsort(degrees, kind="stable"))
    low, high = np.sort(rank[graph.pairs], axis=1).T
    ones = np.ones(len(low), np.int64)
    leads = sparse.csr_array(sparse.coo_array((ones, (low, high)), shape=(graph.n_users, graph.n_users)))
    n_triangles = ((leads @ leads) * leads).sum()
    return _ratio(3 * int(n_triangles), int((degrees * (degrees - 1) // 2).sum()))


def _shape(counts: Counts) -> tuple[int, ...]:
    return tuple(counts.shape)  # type: ignore[arg-type]  # to SciPy's stubs, it may be None


def _shares(counts: np.ndarray) -> np.ndarray:
    total = counts.sum()
    return counts / total if total else np.full(counts.shape, np.nan)


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else math.nan
