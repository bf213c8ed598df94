"""Tiny models of persons, whose traces have gaps or last several periods, with probabilities that a loop can repeat."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.settings import Settings
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Synthesizer
from ppmtf_jax.trace_models.base import ABSENT, PersonModel, StoredArray, stored
from tests.trace_models.examples import GRID, IDS, PLACES, TABLE, USERS


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class HomeLovers(PersonModel):
    """A person draws a home; when seen, they are there, or at a random other place; they are seen at least once.

    If they were not seen before the last instant, they are seen then.
    """

    cluster: jax.Array = stored(lambda n: StoredArray((n.users,), "int", 0))
    home: jax.Array = stored(lambda n: StoredArray(("clusters", n.places), low=0, high=1))
    seen: jax.Array = stored(lambda n: StoredArray(("clusters",), low=0, high=1))
    at_home: jax.Array = stored(lambda n: StoredArray((), low=0, high=1))

    def sample_trace(self, key, user, n_instants):
        keys, of_user = jax.random.split(key, 4), self.cluster[user]
        n_places = self.home.shape[1]
        home = jax.random.choice(keys[0], n_places, p=self.home[of_user])
        is_seen = jax.random.uniform(keys[1], n_instants) < self.seen[of_user]
        is_seen = is_seen.at[-1].set(is_seen[-1] | ~is_seen[:-1].any())
        is_home = jax.random.uniform(keys[2], n_instants) < self.at_home
        other = (home + jax.random.randint(keys[3], n_instants, 1, n_places)) % n_places
        return jnp.where(is_seen, jnp.where(is_home, home, other), ABSENT).astype(jnp.int32)

    def log_traces(self, places, classes, *, progress=False):
        home, seen = (np.asarray(array, np.float64)[classes] for array in (self.home, self.seen))
        at_home, is_seen = float(self.at_home), places != ABSENT
        at = places[:, :, None] == np.arange(home.shape[1])
        of_event = np.where(at, at_home, (1 - at_home) / (home.shape[1] - 1))
        of_homes = np.where(is_seen[:, :, None], of_event, 1).prod(axis=1) @ home.T
        of_instants = np.where(is_seen[:, :, None], seen, 1 - seen)
        of_instants[~is_seen[:, :-1].any(axis=1), -1] = 1
        of_instants[~is_seen.any(axis=1)] = 0
        with np.errstate(divide="ignore"):
            return np.log(of_homes * of_instants.prod(axis=1))


class Travellers(HomeLovers):
    """The same for traces of any number of periods."""

    goes_on: ClassVar[bool] = True


class Fortnight(HomeLovers):
    """The same for traces of two periods."""

    @classmethod
    def grid_of_trace(cls, grid):
        return grid.of_periods(2)


for each in (Travellers, Fortnight):
    jax.tree_util.register_dataclass(each, ["cluster", "home", "seen", "at_home"], [])


def random_persons(
    kind: type[HomeLovers] = HomeLovers,
    n_users: int = USERS,
    n_places: int = PLACES,
    *,
    seen: float | None = None,
    n_clusters: int = 3,
) -> HomeLovers:
    """Clusters of users in turn; `seen` is drawn for each cluster if not given."""
    rng = np.random.default_rng(2)
    homes = rng.dirichlet(np.ones(n_places), n_clusters)
    often = rng.uniform(0.2, 0.6, n_clusters) if seen is None else np.full(n_clusters, seen)
    cluster = jnp.arange(n_users, dtype=jnp.int32) % n_clusters
    return kind(cluster, jnp.asarray(homes, jnp.float32), jnp.asarray(often, jnp.float32), jnp.float32(0.7))


def fitted_persons(trace_model: HomeLovers, grid: TimeGrid = GRID) -> FittedModel:
    """As if learned from traces on `grid`."""
    return FittedModel("persons", {}, 7, IDS, TABLE, trace_model.grid_of_trace(grid), trace_model)


@dataclass(frozen=True)
class PersonSettings(Settings):
    kind: Literal["HomeLovers", "Travellers", "Fortnight"] = "HomeLovers"
    seen: float | None = None


@contextmanager
def registered_persons() -> Iterator[None]:
    """The system "persons", which learns the numbers of users and places alone."""

    def learn(train: Traces, settings: PersonSettings, *_: object) -> HomeLovers:
        kind = SYNTHESIZERS["persons"].models[settings.kind]
        return random_persons(kind, train.n_users, train.n_places, seen=settings.seen)

    others = (Travellers, Fortnight)
    SYNTHESIZERS.register(
        Synthesizer("persons", "Persons with a home", PersonSettings, learn, HomeLovers, other_models=others)
    )
    try:
        yield
    finally:
        SYNTHESIZERS.remove("persons")


def every_trace(n_places: int, n_instants: int) -> np.ndarray:
    """All traces, with and without gaps, shape (traces, instants)."""
    return np.array(list(product(range(ABSENT, n_places), repeat=n_instants)), np.int32)


def log_probability_by_loop(model: HomeLovers, places: list[int], cluster: int) -> float:
    """Of one trace, event by event, for each home."""
    home, seen, at_home = (np.asarray(each, float) for each in (model.home, model.seen, model.at_home))
    total = 0.0
    for own, probability in enumerate(home[cluster].tolist()):
        was_seen = False
        for instant, place in enumerate(places):
            must = instant == len(places) - 1 and not was_seen
            often = 1.0 if must else float(seen[cluster])
            if place == ABSENT:
                probability *= 1 - often
            else:
                was_seen = True
                probability *= often * (at_home if place == own else (1 - at_home) / (home.shape[1] - 1))
        total += probability
    return math.log(total) if total else -math.inf
