"""A small model of random factors, and the traces' users, places and grid that it is for."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.trace_models.base import ScoredTraceModel, TraceModel
from ppmtf_jax.trace_models.metropolis_hastings import MetropolisHastings

# More than one tile of users, and not a whole number of them.
USERS, PLACES, INSTANTS = 70, 6, 4
GRID = TimeGrid("2024-01-01T00:00:00", 60, np.array([0, 1, 1, 2]))
TABLE = PlaceTable(np.array(list("abcdef"), object), np.linspace(35, 36, PLACES), np.linspace(139, 140, PLACES))
IDS = np.array([f"user {n:03d}" for n in range(USERS)], object)


def random_training() -> Traces:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"user": np.repeat(IDS, INSTANTS), "trace": 0, "instant": np.tile(np.arange(INSTANTS), USERS)})
    frame["place"] = TABLE.ids[rng.integers(PLACES, size=len(frame))]
    return Traces.from_frame(frame, TABLE, GRID)


def random_chains(shared: bool = True) -> MetropolisHastings:
    rng = np.random.default_rng(1)

    def factor(n_rows: int) -> jax.Array:
        return jnp.asarray(rng.normal(0.5, 0.5, (n_rows, 3)), jnp.float32)

    user, place = factor(USERS), factor(PLACES)
    visit_user, visit_place = (user, place) if shared else (factor(USERS), factor(PLACES))
    slot_of_instant = jnp.asarray(GRID.slot_of_instant)
    return MetropolisHastings(user, place, factor(PLACES), visit_user, visit_place, factor(3), slot_of_instant, 1e-3)


def fitted(system: str, trace_model: TraceModel) -> FittedModel:
    return FittedModel(system, {"rank": 3}, 7, IDS, TABLE, GRID, trace_model)


class ScoredOnly(ScoredTraceModel):
    """A model that is not sampled."""

    def sample_first(self, key, user):
        raise NotImplementedError

    def sample_next(self, key, user, instant, place):
        raise NotImplementedError


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class ChainOfEach(ScoredOnly):
    """Probabilities of first places, shape (places, users), and of next places, shape (places, places, users)."""

    first: jax.Array
    next: jax.Array

    def user_cache(self, users):
        return self.first[:, users], self.next[..., users]

    def log_first(self, cache, place):
        return jnp.log(cache[0][place])

    def log_next(self, cache, instant, place, next_place):
        return jnp.log(cache[1][place, next_place])


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class ChainOfEachClass(ChainOfEach):
    """The same, with classes in the place of users; a class's first user alone knows it, so no other can be asked."""

    class_of_user: jax.Array

    def user_classes(self, n_users):
        return np.asarray(self.class_of_user[:n_users])

    def user_cache(self, users):
        numbers = self.class_of_user[users]
        first_user = jnp.argmax(self.class_of_user == numbers[:, None], axis=1)
        return jax.tree.map(lambda table: jnp.where(users == first_user, table, jnp.nan), super().user_cache(numbers))


def random_class_model(rng: np.random.Generator, class_of_user: np.ndarray, n_places: int) -> ChainOfEachClass:
    first = rng.dirichlet(np.ones(n_places), len(class_of_user)).T
    following = np.moveaxis(rng.dirichlet(np.ones(n_places), (len(class_of_user), n_places)), 0, -1)
    return ChainOfEachClass(jnp.asarray(first), jnp.asarray(following), jnp.asarray(class_of_user))
