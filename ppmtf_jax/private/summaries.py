"""Summaries of users: tables of each user's counts, scaled to the same Euclidean norm, in whole numbers.

A summary counts what one user did: her events, steps, pairs of moves, windows or anchors. If c are a user's counts and
|c| is their Euclidean norm, her vector is 1024 c / |c|, rounded down to whole numbers. `vector_sum` adds up the vectors
of all users. A user's vector is a function of her own data, and its norm is at most 1024. So if a user is added or
removed, the sum changes by at most 1024 in the Euclidean norm.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from ppmtf_jax.bridge.counts import VisitCounts
from ppmtf_jax.bridge.people.anchors import NOWHERE, Anchors
from ppmtf_jax.bridge.people.law import ELSEWHERE, SECOND
from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import NumericalError
from ppmtf_jax.private.domain import N_TYPES, Domain

SCALE = 1024
"""Norm of a user's vector before it is rounded."""
SCALE_BITS = 10
MAX_COUNT = 2**21
"""A user's larger counts are reduced to this number. Then their squares times `SCALE` squared fit into 64 bits."""
MOVES_PERCENT = (0, 12, 25, 40, 60)
"""Upper bound of each class of mobility, as percentage of moves among steps; one more class has larger shares."""
STEPS_QUARTERS = (1, 3)
"""Upper bound of each class of completeness, in quarters of a complete window's steps; one more class has more."""
DENSE_WINDOWS = 3
"""A window is dense if it has events at half of its instants or more. A user with this number of dense windows, or
more, is dense: her home is known well."""
N_LAYERS = 3
"""Number of layers: at home, at the second place, elsewhere."""


class Rows(NamedTuple):
    """What a summary counts, such as events or steps, sorted by user: the user and the cell of the table for each."""

    user: Int[np.ndarray, " row"]
    cell: Int[np.ndarray, " row"]


def shapes(domain: Domain) -> dict[str, tuple[int, ...]]:
    """The shape of the table of each summary, by name.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=5, n_places=20, n_days=2, seed=0).traces
    >>> shapes(Domain.of(traces.places, traces.time_grid))["mobility"]
    (3, 6)
    """
    groupings = domain.population_tables() | domain.anchor_tables()
    tables: dict[str, tuple[int, ...]] = {name: table.shape for name, table in groupings.items()}
    tables |= {
        "mobility": (len(STEPS_QUARTERS) + 1, len(MOVES_PERCENT) + 1),
        "slot x stay or move": (domain.n_slots, 2),
        "back or not": (2,),
    }
    if domain.anchored:
        tables |= {
            "type": (N_TYPES,),
            "type x slot x layer": (N_TYPES, domain.n_slots, N_LAYERS),
            "slot x layer x layer": (2, domain.n_slots, N_LAYERS, N_LAYERS),
        }
    if domain.space.has_distances:
        distances = (int(domain.distance_bin.max()) + 1,)
        tables |= {"distance": distances} | ({"home to second": distances} if domain.anchored else {})
    return tables


def rows(traces: Traces, domain: Domain) -> Iterator[tuple[str, Rows]]:
    """What each summary counts, by name.

    A window is one period of one trace. A step leads from an event to the event at the next instant of the same window.
    A step is a stay (second index 0) or a move (1), and belongs to the slot of its later event. "mobility" counts
    windows that have a step, by the number of their steps and by the share of moves among these, see `STEPS_QUARTERS`
    and `MOVES_PERCENT`. "back or not" counts pairs of moves, one directly after the other. The second move ends at the
    place where the first move began (1), or at another place (0).

    If the domain is anchored, "slot x stay or move" and "mobility" count only steps between places elsewhere (neither
    home nor second place), and "distance" counts only moves to places elsewhere. A user's anchors are a function of her
    own events, see `bridge.people.anchors.Anchors`.
    """
    user, place, cell, bins = traces.user, traces.place, domain.space.cell, domain.distance_bin
    slot = domain.time_grid.slot_of_instant[traces.instant % domain.time_grid.period]
    for name, table in domain.population_tables().items():
        yield name, Rows(user, table.cell(slot, place))
    window, phase, _ = traces.periods()
    is_step = ~run_begins(window) & (np.diff(phase, prepend=0) == 1)
    is_move = is_step & (np.diff(place, prepend=0) != 0)
    later = np.flatnonzero(is_step)
    second = later[is_move[later] & is_move[later - 1]]
    yield "back or not", Rows(user[second], (place[second] == place[second - 2]).astype(np.int64))
    layer = np.full(len(user), ELSEWHERE)
    if domain.anchored:
        anchors = Anchors.of(VisitCounts.of(traces))
        layer = anchors.layer(user, place)
        type_of = _types(user, slot, layer == SECOND, traces.n_users, domain)
        yield from _anchor_rows(anchors, type_of, domain)
        yield "type x slot x layer", Rows(user, (type_of[user] * domain.n_slots + slot) * N_LAYERS + layer)
        group = (type_of[user[later]] > 0) * domain.n_slots + slot[later]
        step = (group * N_LAYERS + layer[later - 1]) * N_LAYERS + layer[later]
        yield "slot x layer x layer", Rows(user[later], step)
    later = later[layer[later] == ELSEWHERE]
    moves = later[is_move[later]]
    if domain.space.has_distances:
        yield "distance", Rows(user[moves], bins[cell[place[moves - 1]], cell[place[moves]]])
    later = later[layer[later - 1] == ELSEWHERE]
    yield "slot x stay or move", Rows(user[later], slot[later] * 2 + is_move[later])
    yield "mobility", _mobility(user[later], window[later], is_move[later], domain.time_grid.n_instants - 1)


def _types(
    user: Int[np.ndarray, " event"],
    slot: Int[np.ndarray, " event"],
    is_second: Bool[np.ndarray, " event"],
    n_users: int,
    domain: Domain,
) -> Int[np.ndarray, " user"]:
    """Type of each user, see `N_TYPES`; if two quarters of the slots have equally many events, the first one counts."""
    n_parts = N_TYPES - 1
    part = user[is_second].astype(np.int64) * n_parts + domain.quarter[slot[is_second]]
    n_events = np.bincount(part, minlength=n_users * n_parts).reshape(n_users, n_parts)
    return np.where(n_events.any(axis=1), 1 + n_events.argmax(axis=1), 0)


def _anchor_rows(anchors: Anchors, type_of: Int[np.ndarray, " user"], domain: Domain) -> Iterator[tuple[str, Rows]]:
    """What the summaries of homes and second places count."""
    with_home = np.flatnonzero(anchors.home != NOWHERE)
    yield "type", Rows(with_home, type_of[with_home])
    user, number = np.nonzero(np.stack([anchors.home != NOWHERE, anchors.second != NOWHERE], axis=1))
    place, row = np.stack(anchors)[number, user], number * (N_TYPES - 1) + type_of[user]
    for name, table in domain.anchor_tables().items():
        yield name, Rows(user, table.cell(row, place))
    if domain.space.has_distances:
        both, cell = np.flatnonzero(anchors.second != NOWHERE), domain.space.cell
        distance = domain.distance_bin[cell[anchors.home[both]], cell[anchors.second[both]]]
        yield "home to second", Rows(both, distance)


def _mobility(
    user: Int[np.ndarray, " step"], window: Int[np.ndarray, " step"], moves: Bool[np.ndarray, " step"], most_steps: int
) -> Rows:
    """Class of each window that has a step, by its number of steps and by the share of moves among these."""
    first = run_begins(window)
    number = np.cumsum(first) - 1
    n_steps, n_moves = np.bincount(number), np.bincount(number, moves)
    steps = (4 * n_steps > np.multiply.outer(STEPS_QUARTERS, np.full_like(n_steps, most_steps))).sum(axis=0)
    share = (100 * n_moves > np.multiply.outer(MOVES_PERCENT, n_steps)).sum(axis=0)
    return Rows(user[first], steps * (len(MOVES_PERCENT) + 1) + share)


def density(traces: Traces) -> Rows:
    """For each user with events: whether she has at least `DENSE_WINDOWS` dense windows (cell 1) or not (cell 0)."""
    window, _, first = traces.periods()
    period, user = traces.time_grid.period, traces.user[first]
    n_events = np.bincount(window, minlength=len(first))
    n_dense = np.bincount(user, 2 * n_events >= period, traces.n_users)
    present = np.unique(user)
    return Rows(present, (n_dense[present] >= DENSE_WINDOWS).astype(np.int64))


def vector_sum(counted: Rows, n_cells: int) -> Int[np.ndarray, " cell"]:
    """Sum over users of 1024 c / |c|, rounded down, where c are a user's numbers of rows in each cell.

    Raises `NumericalError`: a vector is longer than 1024, which cannot happen.

    Examples
    --------
    User 3 has counts (3, 4, 0), of norm 5; user 8 has counts (0, 0, 2).

    >>> counted = Rows(np.array([3] * 7 + [8] * 2), np.array([0] * 3 + [1] * 4 + [2] * 2))
    >>> vector_sum(counted, n_cells=3).tolist()
    [614, 819, 1024]
    """
    key, count = np.unique(counted.user.astype(np.int64) * n_cells + counted.cell, return_counts=True)
    user, cell = np.divmod(key, n_cells)
    begins = run_begins(user)
    first, owner = np.flatnonzero(begins), np.cumsum(begins) - 1
    squares = np.minimum(count, MAX_COUNT) ** 2
    # Exactly floor(1024 c / |c|): the rounded square root of a whole number up to 2^20 never reaches the next integer.
    vector = np.sqrt((squares << 2 * SCALE_BITS) // np.add.reduceat(squares, first)[owner]).astype(np.int64)
    if (np.add.reduceat(vector**2, first) > SCALE**2).any():
        raise NumericalError("a user's vector is longer than the noise covers; this sum is not released")
    # Floats add whole numbers up to 2^53 exactly.
    return np.bincount(cell, vector, n_cells).astype(np.int64)
