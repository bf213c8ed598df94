"""A small model, random traces, and what a double loop says of them."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.privacy import plausible_users
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.trace_models.metropolis_hastings import MetropolisHastings

USERS, PLACES, SLOTS, RANK, INSTANTS, NUMBER = 7, 4, 2, 2, 3, 3
SLOT_OF_INSTANT = np.array([0, 1, 1], np.int32)
FLOOR = 0.01
GRID = TimeGrid("2024-01-01T00:00:00", 60, SLOT_OF_INSTANT)
TABLE = PlaceTable(np.arange(PLACES), np.linspace(35, 36, PLACES), np.linspace(139, 140, PLACES))
IDS = np.arange(100, 100 + USERS)


def use_small_blocks(patch: pytest.MonkeyPatch) -> None:
    """Several blocks of classes and of traces, and groups of traces, the last of them not full."""
    patch.setattr(plausible_users, "EVENTS_TESTED_TOGETHER", 9 * INSTANTS + 1)
    patch.setattr(plausible_users, "CLASSES_AT_A_TIME", {"float32": 2, "float64": 2})
    patch.setattr(plausible_users, "CLASSES_IN_A_ROUND", 3)
    patch.setattr(plausible_users, "TRACES_AT_A_TIME", 8)
    patch.setattr(plausible_users, "TILES_OF_A_TABLE", 2)


def random_factors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    sizes = {"user": USERS, "place": PLACES, "next_place": PLACES, "slot": SLOTS}
    return {name: rng.normal(0.4, 0.4, (n, RANK)).astype(np.float32) for name, n in sizes.items()}


def random_model() -> FittedModel:
    a, b, c, d = (jnp.asarray(factor) for factor in random_factors().values())
    chains = MetropolisHastings(a, b, c, a, b, d, jnp.asarray(SLOT_OF_INSTANT), FLOOR)
    return FittedModel("ppmtf", {}, 0, IDS, TABLE, GRID, chains)


def random_traces(model: FittedModel) -> Traces:
    """Places at random: every trace is possible, thanks to the floor."""
    user, trace, instant = (index.ravel() for index in np.indices((USERS, NUMBER, INSTANTS)))
    place = np.random.default_rng(1).integers(PLACES, size=len(user))
    frame = pd.DataFrame({"user": IDS[user], "trace": trace, "instant": instant, "place": place})
    return model.claim(Traces.from_frame(frame, TABLE, GRID))


def naive_log_likelihood(factors: dict[str, np.ndarray], user: int, places: list[int]) -> float:
    """From the whole Metropolis-Hastings matrix of each instant, eq. (5), entry by entry."""
    a, b, c, d = (factor.astype(float) for factor in factors.values())
    transitions = np.maximum([[sum(a[user] * b[x] * c[y]) for y in range(PLACES)] for x in range(PLACES)], FLOOR)
    proposal = transitions / transitions.sum(axis=1, keepdims=True)
    log_likelihood = 0.0
    for instant, place in enumerate(places):
        target = np.array([sum(a[user] * b[x] * d[SLOT_OF_INSTANT[instant]]) for x in range(PLACES)])
        target = np.where(target > 0, target, FLOOR)
        if instant == 0:
            log_likelihood += math.log(target[place] / target.sum())
            continue
        before = places[instant - 1]
        leave = {
            y: min(proposal[before, y], proposal[y, before] * target[y] / target[before])
            for y in range(PLACES)
            if y != before
        }
        log_likelihood += math.log(leave.get(place, 1 - sum(leave.values())))
    return log_likelihood


def naive_likelihoods(synthetic: Traces) -> np.ndarray:
    """Of every trace under every user, shape (traces, users)."""
    factors, places = random_factors(), synthetic.place.reshape(-1, INSTANTS).tolist()
    return np.array([[naive_log_likelihood(factors, user, trace) for user in range(USERS)] for trace in places])


def brute_force_count(log_likelihoods: np.ndarray, users: np.ndarray, verifiers: set[int], eta: float) -> list[int]:
    """Users, the input user and the verifiers, whose likelihood lies in the input user's interval, eqs. (6)-(7)."""
    counts = []
    for own, row in zip(users.tolist(), log_likelihoods, strict=True):
        i = next(i for i in range(10_000) if math.exp(-(i + 1) * eta) < math.exp(row[own]) <= math.exp(-i * eta))
        asked = verifiers | {own}
        counts.append(sum(math.exp(-(i + 1) * eta) < math.exp(row[user]) <= math.exp(-i * eta) for user in asked))
    return counts
