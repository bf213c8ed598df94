"""Chains against proportional fitting of whole joint distributions, and against what they promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.people import chain as module
from ppmtf_jax.people.attraction import Movement
from ppmtf_jax.people.chain import TOLERANCE, Chains, ClusterBridge, fit_chain, fit_chains, held_out
from ppmtf_jax.people.clusters import Clusters, ClusterSmoothing
from ppmtf_jax.people.counts import Stays
from ppmtf_jax.people.selection import Selection
from ppmtf_jax.people.space import Space, space_of
from tests.people.examples import (
    GRID,
    MOVES,
    N_PLACES,
    PERIOD,
    POPULATION,
    movement_of,
    people,
)
from tests.trace_models.agreement import log_rows

N_CLUSTERS = 3
SLOTS = GRID.slot_of_instant[:PERIOD]


@pytest.fixture(scope="module")
def train():
    return people()


@pytest.fixture(scope="module")
def movement(train) -> Movement:
    return movement_of(train)


@pytest.fixture(scope="module")
def marginals(movement) -> np.ndarray:
    """Of clusters that differ, and add up to the population."""
    rng = np.random.default_rng(5)
    weight = rng.gamma(2.0, size=(N_CLUSTERS, 1, N_PLACES))
    parts = movement.counts.population * weight / weight.sum(axis=0)
    return parts / parts.sum(axis=2, keepdims=True)


@pytest.fixture(scope="module")
def share() -> np.ndarray:
    return np.array([0.5, 0.3, 0.2])


@pytest.fixture(scope="module")
def chains(marginals, share, movement) -> Chains:
    return fit_chains(marginals, share, movement, SLOTS)


def probabilities(chains: Chains, movement: Movement, pair: int) -> np.ndarray:
    """P_k(b | a) of one pair of slots, shape (clusters, places, places), from the parts that are stored."""
    after = chains.slots[pair, 1]
    cell, seen = movement.counts.space.cell, movement.counts.seen
    weight = (
        chains.attraction.leaving[after][:, None]
        * chains.attraction.between[cell][:, cell]
        * chains.attraction.arriving[after]
    )
    weight[seen.place, seen.next_place] += chains.attraction.seen[after]
    np.fill_diagonal(weight, chains.stay[pair])
    weight = weight * chains.scaling[pair][:, None]
    np.testing.assert_allclose(np.log(weight.sum(axis=2)), chains.log_total[pair], rtol=1e-3, atol=1e-4)
    return weight / weight.sum(axis=2, keepdims=True)


def test_every_step_arrives_at_the_next_marginal(chains, movement, marginals):
    assert chains.slots.tolist() == [[0, 0], [0, 1], [1, 1], [1, 2], [2, 2]]
    assert chains.marginal_error < 1e-3
    for pair, (before, after) in enumerate(chains.slots):
        step = probabilities(chains, movement, pair)
        arrived = np.einsum("ka,kab->kb", marginals[:, before], step)
        apart = np.abs(arrived - marginals[:, after]).sum(axis=1) / 2
        assert apart.max() < 1e-3


def test_stays_and_distances_are_those_of_people(chains, movement, marginals, share):
    covered = np.zeros(len(movement.counts.covered))
    for pair, (before, after) in enumerate(chains.slots):
        joint = np.einsum("k,ka,kab->ab", share, marginals[:, before], probabilities(chains, movement, pair))
        assert np.trace(joint) == pytest.approx(movement.stays.in_slot[after], abs=0.02)
        np.fill_diagonal(joint, 0)
        covered += np.bincount(movement.counts.bin.ravel(), joint.ravel(), len(covered))
    np.testing.assert_allclose(covered / covered.sum(), movement.counts.covered, atol=0.01)


def test_no_joint_distribution_with_these_marginals_is_nearer_to_the_kernel(chains, movement, marginals):
    """Proportional fitting in double precision of the whole table ends at the same joint distribution."""
    after_slot = chains.slots[:, 1]
    for pair, (before, after) in enumerate(chains.slots):
        step = probabilities(chains, movement, pair)
        kernel = step / chains.scaling[pair][:, None]
        # Rows of K are known up to factors, which proportional fitting takes in.
        for cluster in range(N_CLUSTERS):
            joint = kernel[cluster].astype(np.float64)
            for _ in range(2000):
                joint *= (marginals[cluster, before] / joint.sum(axis=1))[:, None]
                joint *= marginals[cluster, after] / joint.sum(axis=0)
            found = marginals[cluster, before][:, None] * step[cluster]
            assert np.abs(joint - found).sum() / 2 < 2e-3
    assert len(after_slot)


def test_cells_of_one_place_each_give_what_the_whole_table_gives(marginals, share, movement, chains, monkeypatch):
    monkeypatch.setattr(Space, "is_exact", False)
    by_cells = fit_chains(marginals, share, movement, SLOTS)
    for pair in range(len(chains.slots)):
        expected, found = (probabilities(each, movement, pair) for each in (chains, by_cells))
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_coarse_cells_keep_the_marginals(train, marginals, share):
    """Distances are then between cells, and all else is as before."""
    coarse = movement_of(train, space_of(train.places, max_cells=4))
    chains = fit_chains(marginals, share, coarse, SLOTS)
    assert chains.attraction.between.shape == (4, 4)
    assert chains.marginal_error < 1e-3
    for pair, (before, after) in enumerate(chains.slots):
        arrived = np.einsum("ka,kab->kb", marginals[:, before], probabilities(chains, coarse, pair))
        assert np.abs(arrived - marginals[:, after]).sum(axis=1).max() / 2 < 2e-3


def test_a_city_is_fitted_to_the_end():
    """Three hundred plain scalings left 0.06 % of the people at wrong places."""
    train = toy_city(n_users=60, seed=0).traces
    movement, grid = movement_of(train), train.time_grid
    rng = np.random.default_rng(5)
    weight = rng.gamma(0.3, size=(N_CLUSTERS, 1, train.n_places)) + 0.01
    parts = movement.counts.population * weight / weight.sum(axis=0)
    chains = fit_chains(
        parts / parts.sum(axis=2, keepdims=True), np.ones(3) / 3, movement, grid.one_period().slot_of_instant
    )
    assert chains.marginal_error <= 1.01 * TOLERANCE


@pytest.mark.parametrize("bug", [False, True], ids=["", "planted bug"])
def test_people_who_hardly_ever_move_stay_as_often_as_they_do(marginals, share, movement, bug, monkeypatch):
    """At rates near 1 a ratio of rates changes next to nothing, where that of the odds does."""
    if bug:
        monkeypatch.setattr(module, "_odds", lambda share: share)
    rate = np.full(GRID.n_slots, 0.98)
    at_place = np.full((GRID.n_slots, N_PLACES), 0.8)
    rarely = replace(movement, stays=Stays(rate, at_place))
    # Where people hardly move, clusters are where they were before.
    still = np.repeat(marginals.mean(axis=1, keepdims=True), GRID.n_slots, axis=1)
    chains = fit_chains(still, share, rarely, SLOTS)
    apart = []
    for pair, (before, _) in enumerate(chains.slots):
        stays = np.einsum("k,ka,kaa->", share, still[:, before], probabilities(chains, rarely, pair))
        apart.append(abs(stays - 0.98))
    assert (max(apart) < 0.005) != bug


# The score of held-out users with gaps, against loops

CLUSTERS = ClusterSmoothing(2, 0.0, 3.0, 1.0)


class Scored(NamedTuple):
    """A chain of two clusters, traces with gaps, and the transition matrices of each cluster by phase."""

    chain: ClusterBridge
    clusters: Clusters
    traces: Traces
    steps: np.ndarray


@pytest.fixture(scope="module")
def scored() -> Scored:
    train = people()
    of_user = np.arange(train.n_users, dtype=np.int32) % 2
    chain, clusters = fit_chain(train, of_user, Selection(POPULATION, MOVES, CLUSTERS))
    steps = [np.exp(log_rows(chain, jnp.asarray(user), PERIOD, N_PLACES)[1]) for user in (0, 1)]
    first = np.ones((2, 1, N_PLACES, N_PLACES))  # no step leads to the first instant
    return Scored(chain, clusters, people(8, seed=4).cut_into_periods(), np.concatenate([first, np.stack(steps)], 1))


def by_a_loop(scored: Scored, after_gap: Callable[..., float]) -> np.ndarray:
    """Score of each user; `after_gap(cluster, phases of the gap, place before, place, share of the place)`."""
    traces, visits = scored.traces, scored.clusters.visits
    log = np.zeros((traces.n_users, 2))
    for cluster in range(2):
        before, last = (-1, -1), (-1, -1)
        for user, trace, instant, place in zip(traces.user, traces.trace, traces.instant, traces.place, strict=True):
            period, phase = divmod(int(instant), PERIOD)
            share = visits[cluster, GRID.slot_of_instant[instant], place]
            if before != (user, trace, period):
                log[user, cluster] += np.log(share)
            elif last[0] == phase - 1:
                log[user, cluster] += np.log(scored.steps[cluster, phase, last[1], place])
            else:
                log[user, cluster] += np.log(after_gap(cluster, range(last[0] + 1, phase + 1), last[1], place, share))
            before, last = (user, trace, period), (phase, place)
    return logsumexp(log + np.log(scored.clusters.share), axis=1)


@pytest.mark.parametrize("steps_at_a_time", [7, 4096])
def test_the_score_of_a_chain_equals_a_loop(scored, monkeypatch, steps_at_a_time):
    monkeypatch.setattr(module, "STEPS_AT_A_TIME", steps_at_a_time)

    def stays_or_not(cluster: int, gap: range, last: int, place: int, share: float) -> float:
        stays = np.prod([scored.steps[cluster, phase, last, last] for phase in gap])
        return stays * (last == place) + (1 - stays) * share

    found = held_out(*scored[:3])
    np.testing.assert_allclose(found, by_a_loop(scored, stays_or_not), rtol=1e-5)
    # The planted bug: the score of the cluster's visits alone.
    assert np.abs(found - by_a_loop(scored, lambda *given: given[-1])).max() > 0.1
