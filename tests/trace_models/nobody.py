"""A tiny model of nobody: where people mostly are, from noisy counts, and a system that learns it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.noise.accountant import ZCDPAccountant, rho_of
from ppmtf_jax.noise.mechanisms import SecureNoise, SeededNoise
from ppmtf_jax.settings import Positive, Settings
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Claims, Synthesizer
from ppmtf_jax.trace_models.base import ScoredTraceModel, StoredArray, stored
from ppmtf_jax.trace_models.sampling import sample_index

NOBODY = "nobody"
RELATION = "one user with all their traces is added or removed"


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class NewPeople(ScoredTraceModel):
    """At each instant, a person is at a place drawn from one distribution for everybody."""

    of_nobody: ClassVar[bool] = True

    share: jax.Array = stored(lambda n: StoredArray((n.places,), low=0, high=1))
    epsilon: float = stored(lambda n: StoredArray(()), static=True)
    delta: float = stored(lambda n: StoredArray(()), static=True)
    is_private: int = stored(lambda n: StoredArray((), "int", 0, 1), static=True)

    def sample_first(self, key, user):
        return sample_index(jax.random.uniform(key), self.share)

    def sample_next(self, key, user, instant, place):
        return self.sample_first(key, user)

    def user_cache(self, users):
        return jnp.zeros((0, len(users)))

    def log_first(self, cache, place):
        return jnp.log(self.share[place])

    def log_next(self, cache, instant, place, next_place):
        return self.log_first(cache, next_place)

    def ledger(self) -> dict[str, Any]:
        amounts = {"epsilon": self.epsilon, "delta": self.delta, "rho": rho_of(self.epsilon, self.delta)}
        lines = [{"mechanism": "top place", "sensitivity": 1, "rho": amounts["rho"]}]
        of_relation = {"relation": RELATION, "budget": amounts, "spent": amounts, "mechanisms": lines}
        return {"private": bool(self.is_private), "relations": [of_relation]}


@dataclass(frozen=True)
class NewPeopleSettings(Settings):
    epsilon: Positive = 1.0
    delta: Positive = 1e-6
    noise: Literal["secure", "seeded"] = "secure"
    public: Path | None = None  # a file that is read, and not used


def top_places(train: Traces) -> np.ndarray:
    """How many users are mostly at each place, shape (places,): a user changes one number by one."""
    visits = np.bincount(train.user * train.n_places + train.place, minlength=train.n_users * train.n_places)
    return np.bincount(visits.reshape(train.n_users, -1).argmax(axis=1), minlength=train.n_places)


def learn(train: Traces, settings: NewPeopleSettings, seed: int, *_: object) -> NewPeople:
    if settings.public is not None and not settings.public.is_file():
        raise InputError(str(settings.public), [Problem("a file to read", "no such file")])
    noise = SecureNoise() if settings.noise == "secure" else SeededNoise(seed)
    accountant = ZCDPAccountant(RELATION, settings.epsilon, settings.delta, noise)
    noisy = np.maximum(accountant.add_gaussian(top_places(train), 1, accountant.remaining.rho, "top place"), 0) + 1
    share = jnp.asarray(noisy / noisy.sum(), jnp.float32)
    return NewPeople(share, settings.epsilon, settings.delta, int(noise.is_private))


def claims(model: NewPeople, settings: NewPeopleSettings) -> Claims:
    del settings
    if not model.is_private:
        return Claims(not_protected=("anybody: NOT PRIVATE. The noise comes from a seed, for experiments only",))
    return Claims(("each user with all their traces",), is_private=True)


@contextmanager
def registered_nobody() -> Iterator[None]:
    """The system "nobody", which learns this model."""
    SYNTHESIZERS.register(Synthesizer(NOBODY, "New people", NewPeopleSettings, learn, NewPeople, claims))
    try:
        yield
    finally:
        SYNTHESIZERS.remove(NOBODY)
