"""Releases of user-level differential privacy: noisy sums of users' summaries, and a ledger of what they cost.

**Proof.** Two sets of traces are neighbours if one of them is the other plus one user, with all her traces. For each
summary, every user has a vector of whole numbers, and the vectors of all users are added up. A user's vector is a
function of her own events and of the domain, and its Euclidean norm is at most 1024 (see `summaries`). So the sums of
neighbours are at most 1024 apart. Discrete Gaussian noise for this sensitivity makes each release (rho s)-zCDP
(zero-concentrated differentially private), where rho is the budget, and s is the release's share of it. All shares
together are at most 1, so all releases together are rho-zCDP. The first release may decide whether the domain is
anchored, and so which sums follow (see `has_dense_users`). The bound still holds, because the losses of adaptively
chosen mechanisms add up. Rho-zCDP implies the epsilon and delta of the budget (see `noise.zcdp`). Everything else is
computed from the releases, the domain and public inputs. In particular, the number of users is not used.

**What the proof does not cover.** A user is an id in the column of users: a person with two ids is two users. Groups of
people are protected less: rho grows with the square of their number. If several models are fitted to the same people,
the rho of all fits add up. The proof is about the given traces, not about the data from which they were made. If a
random split chose the training users, one more user in the data may change who is a training user. If a filter dropped
events at places of few users, one more user may change the traces of others. The places and the whole time grid of the
traces, with its length, must be public (see `Domain`). Only one error depends on the events of valid traces: a prior is
refused if it is the training traces, or was synthesized from them (see `prior.read_prior`). The time and the memory of
a run depend on the events. Whoever can measure them learns something about the events.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from math import prod, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.trace_set import GRID_FILE, PLACES_FILE, read_parquet, write_table
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.noise.zcdp import ZCDPAccountant
from ppmtf_jax.private.domain import Domain
from ppmtf_jax.private.summaries import DENSE_WINDOWS, SCALE, density, rows, shapes, vector_sum
from ppmtf_jax.runtime.files import PathLike, read_arrays, write_text
from ppmtf_jax.runtime.folders import marked, output_folder

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
    "type x slot x layer": 25,
    "slot x layer x layer": 5,
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
        """The guarantee first."""
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


def shares(domain: Domain) -> dict[str, Fraction]:
    """Each release's share of the remaining budget, by name; the shares add up to 1.

    If the domain lacks a summary, the other summaries get its parts.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=5, n_places=100, n_days=2, seed=0).traces
    >>> {name: float(share) for name, share in shares(Domain.of(traces.places, traces.time_grid)).items()}
    {'place': 0.225, 'slot x place': 0.225, 'block x cell': 0.0975, 'cell': 0.09, 'slot x category': 0.1125,
     'mobility': 0.08, 'slot x stay or move': 0.05, 'distance': 0.08, 'back or not': 0.04}
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
    """Add up the summaries of all users, and add noise to each sum; this spends the whole remaining budget.

    The summaries are computed for one block of users at a time, so that the memory does not grow with users x places.
    The domain must be public: see `Domain`. The accountant is one for the relation "one user with all their traces is
    added or removed". Raises `InputError`: the traces have other places or slots than the domain, or their events are
    not in the order of users.
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
