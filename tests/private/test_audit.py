"""Attackers who know all but one user, and see many releases or one, find no more than was promised; bugs are exposed.

For many releases, sums are computed once for each of two neighbours, and noise is drawn many times. This attacker uses
the likelihood ratio, which no attack can beat. The noise has a seed, so that no test fails by chance.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom, norm

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.noise.accountant import ZCDPAccountant, epsilon_of, rho_of
from ppmtf_jax.noise.mechanisms import SeededNoise
from ppmtf_jax.privacy.limits import share_interval
from ppmtf_jax.private.releases import RELATION, release
from tests.private.least_epsilon import least_epsilon
from tests.private.worlds import (
    DELTA,
    EPSILON,
    asked_of,
    city,
    domain_of,
    half_the_noise,
    less_noise,
    normalized_per_day,
    not_normalized,
    with_user,
)

RUNS = 20_000
RHO = rho_of(EPSILON, DELTA)
CLAIM = {delta: epsilon_of(RHO, delta) for delta in (DELTA, 1e-3, 1e-2)}
"""What the budget promises: not only epsilon at its delta, but an epsilon at every delta."""


def scores(without: Traces, with_user: Traces, *, anchored: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """The logarithm of the likelihood ratio, but for a constant, in runs without and with the user."""
    domain, noise = domain_of(without, anchored=anchored), SeededNoise(0)
    found = np.zeros((2, RUNS))
    for pair in zip(*(asked_of(each, domain).values() for each in (without, with_user)), strict=True):
        first, second = (draw.values.ravel() for draw in pair)
        changed = np.flatnonzero(first != second)  # other numbers tell nothing
        for score, draw in zip(found, pair, strict=True):
            many = np.tile(draw.values.ravel()[changed], (RUNS, 1))
            noisy = noise.add_gaussian(many, draw.sensitivity, draw.epsilon) - first[changed]
            score += noisy @ (second - first)[changed] * 2 * pair[0].epsilon / pair[0].sensitivity ** 2
    return found[0], found[1]


def least_mu(without: np.ndarray, with_user: np.ndarray) -> float:
    """Lower bound of the length of a neighbour's change in standard deviations, if the noise is Gaussian."""
    threshold = np.median(np.concatenate([without[::2], with_user[::2]]))
    low = share_interval((with_user[1::2] > threshold).mean(), RUNS // 2)[0]
    high = share_interval((without[1::2] > threshold).mean(), RUNS // 2)[1]
    return float(norm.ppf(low) - norm.ppf(high))


@pytest.fixture(scope="module")
def neighbours() -> tuple[Traces, Traces]:
    """A city without and with a user who never moves: they weigh most on single numbers."""
    traces = city("both")
    every = np.arange(traces.time_grid.n_instants)
    return traces, with_user(traces, every, np.full(len(every), 5))


@pytest.mark.parametrize("anchored", [False, True])
def test_many_runs_find_no_more_than_was_promised(neighbours, anchored):
    found = scores(*neighbours, anchored=anchored)
    assert 0.5 * np.sqrt(2 * RHO) < least_mu(*found) < np.sqrt(2 * RHO)
    assert all(least_epsilon(*found, delta) < claim for delta, claim in CLAIM.items())
    assert least_epsilon(*found, 1e-2) > 0.05  # the attack is no straw man


Bug = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize(
    ("bug", "deltas"),
    [
        (not_normalized, [DELTA, 1e-3, 1e-2]),
        (normalized_per_day, [DELTA, 1e-3, 1e-2]),
        (half_the_noise, [1e-3, 1e-2]),
        (less_noise, []),
    ],
)
def test_many_runs_expose_planted_bugs(monkeypatch, neighbours, bug: Bug, deltas: list[float]):
    """Three times the change or half the noise break what is promised at these deltas; a factor of sqrt(2), mu."""
    bug(monkeypatch)
    found = scores(*neighbours)
    assert least_mu(*found) > np.sqrt(2 * RHO)
    assert all(least_epsilon(*found, delta) > CLAIM[delta] for delta in deltas)


N_CANARIES, N_DAYS = 1000, 14


def accuracy_in_one_run(seed: int) -> tuple[int, int]:
    """Right guesses, and all guesses, of who takes part in one release.

    Each of many planted users has a place of their own, and takes part with probability 1/2. The attacker guesses that
    those whose places have the largest numbers took part, and those with the smallest numbers did not.
    """
    rng = np.random.default_rng(seed)
    nowhere = np.full(N_CANARIES, np.nan)
    grid = TimeGrid.cyclic("2024-01-01T00:00:00", 7200, 12 * N_DAYS, slot_s=7200)
    takes_part = rng.random(N_CANARIES) < 0.5
    place = np.repeat(np.flatnonzero(takes_part), grid.n_instants).astype(np.int32)
    user = np.repeat(np.arange(takes_part.sum()), grid.n_instants).astype(np.int32)
    instant = np.tile(np.arange(grid.n_instants), takes_part.sum()).astype(np.int32)
    places = PlaceTable(np.arange(N_CANARIES), nowhere, nowhere)
    traces = Traces(user, 0 * user, instant, place, np.arange(takes_part.sum()), places, grid)
    accountant = ZCDPAccountant(RELATION, EPSILON, DELTA, SeededNoise(seed))
    made = release(traces, domain_of(traces), accountant)
    score = made["place"].value[0] / made["place"].sigma ** 2
    score += made["slot x place"].value.sum(axis=0) / np.sqrt(12) / made["slot x place"].sigma ** 2
    order, n = np.argsort(score), N_CANARIES // 10
    return int(takes_part[order[-n:]].sum() + (~takes_part[order[:n]]).sum()), 2 * n


def is_possible(right: int, n: int) -> bool:
    """Whether an accuracy is possible under the claim, but for a probability of 1 %.

    At most so many guesses are right as with independent coins of the probability e^epsilon / (1 + e^epsilon), but for
    a probability of 2 N_CANARIES delta (Steinke, Nasr and Jagielski 2023, theorem 5.2).
    """
    chance = binom.sf(right - 1, n, np.exp(EPSILON) / (1 + np.exp(EPSILON)))
    return bool(chance + 2 * N_CANARIES * DELTA > 0.01)


def test_one_run_finds_no_more_than_was_promised():
    right, n = accuracy_in_one_run(0)
    assert is_possible(right, n)
    assert right > 0.55 * n  # the attack is no straw man


@pytest.mark.parametrize("bug", [not_normalized, normalized_per_day])
def test_one_run_exposes_planted_bugs(monkeypatch, bug: Bug):
    bug(monkeypatch)
    assert not is_possible(*accuracy_in_one_run(0))
