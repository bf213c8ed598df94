"""Releases of user-level differential privacy: noisy sums of users' vectors, and a ledger of what they cost.

A table counts what users did: their events, steps, pairs of moves, windows or anchors. If c are the counts of one user
and |c| is their Euclidean norm, the user's vector is 1024 c / |c|, rounded down to whole numbers.

**Proof.** Two sets of traces are neighbours if one of them is the other plus one user, with all their traces. For each
table, every user has a vector of whole numbers, and the vectors of all users are added up. A user's vector is a
function of their own events and of the domain, and its Euclidean norm is at most 1024. So the sums of neighbours are at
most 1024 apart. Discrete Gaussian noise for this sensitivity makes each release (rho s)-zCDP (zero-concentrated
differentially private), where rho is the budget, and s is the release's share of it. All shares together are at most 1,
so all releases together are rho-zCDP. The first release may decide whether the domain is anchored, and so which sums
follow (see `has_dense_users`). The bound still holds, because the losses of adaptively chosen mechanisms add up.
Rho-zCDP implies epsilon and delta of the budget (`noise.accountant`). Everything else is computed from the releases,
the domain and public inputs. In particular, the number of users is not used.

**What the proof does not cover.** A user is an id in the column of users: a person with two ids is two users. Groups of
people are protected less: rho grows with the square of their number. If several models are fitted to the same people,
the rho of all fits add up. The proof is about the given traces, not about the data from which they were made. If a
random split chose the training users, one more user in the data may change who is a training user. If a filter dropped
events at places of few users, one more user may change the traces of others. The places and the whole time grid of the
traces, with its length, must be public (see `Domain`). Only one error depends on the events of valid traces: a prior is
refused if it is the training traces, or was synthesized from them (see `estimation.read_prior`). The time and the
memory of a run depend on the events. Whoever can measure them learns something about the events.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import prod, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.trace_set import GRID_FILE, PLACES_FILE, read_parquet, write_table
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import NumericalError
from ppmtf_jax.noise.accountant import ZCDPAccountant
from ppmtf_jax.people.bins import OTHER, SECOND
from ppmtf_jax.people.counts import VisitCounts
from ppmtf_jax.people.roles import NOWHERE, Anchors
from ppmtf_jax.people.user_bounds import Rows
from ppmtf_jax.private.domain import N_TYPES, Domain
from ppmtf_jax.runtime.files import PathLike, write_text
from ppmtf_jax.runtime.folders import marked, output_folder, read_arrays

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
more, is dense: their home is known well."""
N_ROLES = 3
"""Number of roles: home, second place, other."""

KIND, SUMS_FILE, LEDGER_FILE = "releases", "sums.npz", "ledger.json"
RELATION = "one user with all their traces is added or removed"

POPULATION_PARTS = 75
"""Parts of the budget, of 100, for the tables of where people are; `SHARES_OF_POPULATION` divides these parts."""
SHARES_OF_POPULATION = {
    "place and category": {"place": 30, "slot x place": 30, "block x cell": 13, "cell": 12, "slot x category": 15},
    "place": {"place": 30, "slot x place": 30, "block x cell": 25, "cell": 15},
    "category": {"place": 25, "slot x place": 55, "slot x category": 20},
    "neither": {"place": 30, "slot x place": 70},
}
"""Parts of each table. The keys say what is known of places: coordinates ("place"), categories, both, or neither."""
MOVEMENT_PARTS = {"mobility": 8, "slot x stay or move": 5, "distance": 8, "back or not": 4}
"""Parts of the budget for how people move."""
ANCHOR_PARTS = {
    "anchor x place": 24,
    "anchor x cell": 10,
    "type x middle cell": 5,
    "type x category": 7,
    "type": 1,
    "home to second": 3,
    "type x slot x role": 25,
    "slot x role x role": 5,
}
"""Parts of the budget for homes and second places, in addition to the 100 parts of the other releases."""
DENSITY, DENSITY_SHARE = "dense users", Fraction(1, 100)
"""Name of the release that decides whether people have anchors, and its share of the budget."""
MECHANISMS = (DENSITY, *max(SHARES_OF_POPULATION.values(), key=len), *MOVEMENT_PARTS, *ANCHOR_PARTS)
"""Names of all releases."""


class Noisy(NamedTuple):
    """A noisy sum of users' vectors, and the standard deviation of its noise; both in users."""

    value: Float[np.ndarray, "..."]
    sigma: float


@dataclass(frozen=True, eq=False)
class Releases:
    """All that a model learns from the data: noisy sums by name, in units of 1/1024 of a user, and a ledger of them.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=200, n_places=20, n_days=2, seed=0).traces
    >>> domain = Domain.of(traces.places, traces.time_grid)
    >>> releases = release(traces, domain, ZCDPAccountant(RELATION, epsilon=1, delta=1e-6))
    >>> releases["back or not"].value.shape, round(releases["back or not"].sigma, 1)
    ((2,), 22.7)
    """

    domain: Domain
    sums: dict[str, Int[np.ndarray, "..."]]
    ledger: dict[str, Any]  # as `ZCDPAccountant.ledger` states it

    def __getitem__(self, name: str) -> Noisy:
        """One release, in users."""
        return Noisy(self.sums[name] / SCALE, 1 / sqrt(2 * self.rho(name)))

    def rho(self, name: str) -> float:
        """What one release cost; 0 if it was not made."""
        return sum((line["rho"] for line in self._lines if line["mechanism"] == name), 0.0)

    def __repr__(self) -> str:
        spent = self.ledger["relations"][0]["spent"]
        guarantee = f"epsilon {spent['epsilon']:g} and delta {spent['delta']:g}, if {RELATION}"
        private = guarantee if self.ledger["private"] else "NOT PRIVATE, the noise comes from a seed"
        return f"Releases: {private}; {', '.join(self.sums)}"

    def save(self, folder: PathLike, *, overwrite: bool = False) -> None:
        """Write a folder; models can be fitted to it without the data, at no further cost in privacy."""
        with output_folder(folder, KIND, overwrite=overwrite) as partial:
            write_table(partial / PLACES_FILE, self.domain.places.to_frame())
            write_text(partial / GRID_FILE, self.domain.time_grid.to_json())
            np.savez(partial / SUMS_FILE, **self.sums)  # pyright: ignore[reportArgumentType]
            write_text(partial / LEDGER_FILE, json.dumps(self.ledger, indent=1) + "\n")

    @classmethod
    def load(cls, folder: PathLike) -> Releases:
        """Read what `save` wrote; raises `InputError` if a file was changed since."""
        marked(folder, KIND, way_out="Make the releases again")
        path = Path(folder)
        places = PlaceTable.from_frame(read_parquet(path / PLACES_FILE), may_lack_coordinates=True)
        ledger = json.loads((path / LEDGER_FILE).read_text())
        anchored = any(line["mechanism"] in ANCHOR_PARTS for line in ledger["relations"][0]["mechanisms"])
        domain = Domain(places, TimeGrid.load(path / GRID_FILE), anchored)
        return cls(domain, read_arrays(path / SUMS_FILE, shapes(domain)), ledger)

    @property
    def _lines(self) -> list[dict[str, Any]]:
        return self.ledger["relations"][0]["mechanisms"]


def shapes(domain: Domain) -> dict[str, tuple[int, ...]]:
    """The shape of each table, by name."""
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
            "type x slot x role": (N_TYPES, domain.n_slots, N_ROLES),
            "slot x role x role": (2, domain.n_slots, N_ROLES, N_ROLES),
        }
    if domain.space.has_distances:
        distances = (int(domain.distance_bin.max()) + 1,)
        tables |= {"distance": distances} | ({"home to second": distances} if domain.anchored else {})
    return tables


def rows(traces: Traces, domain: Domain) -> Iterator[tuple[str, Rows]]:
    """What each table counts, by name.

    A window is one period of one trace. A step leads from an event to the event at the next instant of the same window.
    A step is a stay (second index 0) or a move (1), and belongs to the slot of its later event. "mobility" counts
    windows that have a step, by the number of their steps and by the share of moves among these, see `STEPS_QUARTERS`
    and `MOVES_PERCENT`. "back or not" counts pairs of moves, one directly after the other. The second move ends at the
    place where the first move began (1), or at another place (0).

    If the domain is anchored, "slot x stay or move" and "mobility" count only steps between other places (neither
    home nor second place), and "distance" counts only moves to other places. A user's anchors are a function of
    their own events, see `people.roles.Anchors`.
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
    role = np.full(len(user), OTHER)
    if domain.anchored:
        anchors = Anchors.of(VisitCounts.of(traces))
        role = anchors.role(user, place)
        type_of = _types(user, slot, role == SECOND, traces.n_users, domain)
        yield from _anchor_rows(anchors, type_of, domain)
        yield "type x slot x role", Rows(user, (type_of[user] * domain.n_slots + slot) * N_ROLES + role)
        group = (type_of[user[later]] > 0) * domain.n_slots + slot[later]
        step = (group * N_ROLES + role[later - 1]) * N_ROLES + role[later]
        yield "slot x role x role", Rows(user[later], step)
    later = later[role[later] == OTHER]
    moves = later[is_move[later]]
    if domain.space.has_distances:
        yield "distance", Rows(user[moves], bins[cell[place[moves - 1]], cell[place[moves]]])
    later = later[role[later - 1] == OTHER]
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
    """For each user with events: whether they have at least `DENSE_WINDOWS` dense windows (cell 1) or not (cell 0)."""
    window, _, first = traces.periods()
    period, user = traces.time_grid.period, traces.user[first]
    n_events = np.bincount(window, minlength=len(first))
    n_dense = np.bincount(user, 2 * n_events >= period, traces.n_users)
    present = np.unique(user)
    return Rows(present, (n_dense[present] >= DENSE_WINDOWS).astype(np.int64))


def vector_sum(counted: Rows, n_cells: int) -> Int[np.ndarray, " cell"]:
    """Sum over users of 1024 c / |c|, rounded down, where c are a user's numbers of rows in each cell (group).

    Raises `NumericalError`: a vector is longer than 1024, which cannot happen.

    Examples
    --------
    User 3 has counts (3, 4, 0), of norm 5; user 8 has counts (0, 0, 2).

    >>> counted = Rows(np.array([3] * 7 + [8] * 2), np.array([0] * 3 + [1] * 4 + [2] * 2))
    >>> vector_sum(counted, n_cells=3).tolist()
    [614, 819, 1024]
    """
    key, count = np.unique(counted.user.astype(np.int64) * n_cells + counted.group, return_counts=True)
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


def shares(domain: Domain) -> dict[str, Fraction]:
    """Each release's share of the remaining budget, by name; the shares add up to 1.

    If the domain lacks a table, the other tables get its parts.
    """
    known = ["place"] * domain.space.has_distances + ["category"] * (domain.category is not None)
    tables, present = SHARES_OF_POPULATION[" and ".join(known) or "neither"], shapes(domain)
    tables = {name: parts for name, parts in tables.items() if name in present}
    parts = {name: Fraction(POPULATION_PARTS * own, sum(tables.values())) for name, own in tables.items()}
    parts |= {name: Fraction(own) for name, own in (MOVEMENT_PARTS | ANCHOR_PARTS).items() if name in present}
    return {name: own / sum(parts.values()) for name, own in parts.items()}


def has_dense_users(traces: Traces, accountant: ZCDPAccountant) -> bool:
    """Whether most users have dense traces of several periods, by two noisy counts that spend `DENSITY_SHARE`.

    If the time grid has too few periods, the answer is no, and nothing is spent: the length of the grid is public.
    """
    if traces.time_grid.n_instants < DENSE_WINDOWS * traces.time_grid.period:
        return False
    total = traces.blocks.map(lambda block: vector_sum(density(block), 2)).total()
    noisy = accountant.add_gaussian(total, SCALE, accountant.budget.rho * DENSITY_SHARE, DENSITY)
    return bool(noisy[1] > noisy[0])


def release(traces: Traces, domain: Domain, accountant: ZCDPAccountant) -> Releases:
    """Add up the vectors of all users, and add noise to each sum; this spends the whole remaining budget.

    The domain must be public: see `Domain`. The accountant is one for `RELATION`. Raises `InputError`: see
    `Domain.check`.
    """
    domain.check(traces)
    tables = shapes(domain)

    def sums_of(block: Traces) -> tuple[Int[np.ndarray, " cell"], ...]:
        found = {name: vector_sum(counted, prod(tables[name])) for name, counted in rows(block, domain)}
        return tuple(found[name] for name in tables)

    sums = dict(zip(tables, traces.blocks.map(sums_of).total(), strict=True))
    budget = accountant.remaining.rho
    noisy = {
        name: accountant.add_gaussian(sums[name].reshape(tables[name]), SCALE, budget * share, name)
        for name, share in shares(domain).items()
    }
    return Releases(domain, noisy, accountant.ledger())


def with_guess(noisy: Noisy, shares: np.ndarray, weight: float) -> np.ndarray:
    """Noisy sums, negative ones set to 0, plus a guess of shares times `weight` standard deviations of the noise."""
    return np.maximum(noisy.value, 0) + weight * noisy.sigma * np.broadcast_to(shares, noisy.value.shape)


def shrunk(noisy: Noisy, guess: np.ndarray) -> np.ndarray:
    """Noisy sums, shrunk towards a guess, and less so if they differ from it by more than their noise."""
    by_noise = noisy.sigma**2 * (1 + np.sqrt(2 / guess.size))  # mean square of the noise, plus one standard error
    spread = max(float(((noisy.value - guess) ** 2).mean()) - by_noise, 0)
    drawn = spread / (spread + noisy.sigma**2)
    return np.maximum(guess + drawn * (noisy.value - guess), 1e-9)
