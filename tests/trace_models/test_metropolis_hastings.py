"""Metropolis-Hastings chains against the whole matrix of eq. (5), built naively."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.datasets.people_flow import read_official_factors, read_people_flow, read_synthetic
from ppmtf_jax.trace_models.likelihoods import step_log_probabilities
from ppmtf_jax.trace_models.metropolis_hastings import (
    STAYS_AT_A_TIME,
    MetropolisHastings,
    proposal_matrices,
    transition_matrices,
    visit_distributions,
)
from ppmtf_jax.trace_models.sampling import sample_index
from tests.trace_models.agreement import FALSE_ALARM, chi_square_ratio
from tests.trace_models.examples import random_chains

USERS, PLACES, SLOTS, RANK = 3, 7, 2, 3
SLOT_OF_INSTANT = np.array([1, 0, 0, 1], np.int32)
FLOOR = 0.03


def random_factors(seed: int = 0) -> dict[str, np.ndarray]:
    """Factors with negative products, so that both floors are at work."""
    rng = np.random.default_rng(seed)
    sizes = {
        "user": USERS,
        "place": PLACES,
        "next_place": PLACES,
        "visit_user": USERS,
        "visit_place": PLACES,
        "slot": SLOTS,
    }
    return {name: rng.normal(0.5, 0.7, (n, RANK)) for name, n in sizes.items()}


POPULATION = np.random.default_rng(5).dirichlet(np.full(PLACES, 0.5), size=PLACES)
MIXES = (0.0, 0.3, 1.0)


def make_model(factors: dict[str, np.ndarray], model=MetropolisHastings, mix: float = 0.0) -> MetropolisHastings:
    arrays = {name: jnp.asarray(values) for name, values in factors.items()}
    if mix:
        arrays["population"] = jnp.asarray(POPULATION)
    return model(**arrays, slot_of_instant=jnp.asarray(SLOT_OF_INSTANT), floor=FLOOR, proposal_mix=mix)


def naive_chain(
    factors: dict[str, np.ndarray], user: int, slot: int, mix: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Target and transition matrix of one user and slot, entry by entry (section 3.4 and eq. (5))."""
    target, proposal = np.empty(PLACES), np.empty((PLACES, PLACES))
    for a in range(PLACES):
        visits = sum(factors["visit_user"][user] * factors["visit_place"][a] * factors["slot"][slot])
        target[a] = visits if visits > 0 else FLOOR
        for b in range(PLACES):
            proposal[a, b] = max(sum(factors["user"][user] * factors["place"][a] * factors["next_place"][b]), FLOOR)
    target /= target.sum()
    for a in range(PLACES):
        proposal[a] = (1 - mix) * proposal[a] / proposal[a].sum() + mix * POPULATION[a]
    chain = np.zeros((PLACES, PLACES))
    for a in range(PLACES):
        for b in range(PLACES):
            if a != b:
                ratio = target[b] * proposal[b, a] / (target[a] * proposal[a, b])
                chain[a, b] = proposal[a, b] * min(1.0, ratio)
        chain[a, a] = 1 - chain[a].sum()
    return target, chain


@pytest.fixture(scope="module")
def factors():
    return random_factors()


def test_the_factors_test_both_floors(factors):
    for user in range(USERS):
        transitions = np.einsum("r,pr,qr->pq", factors["user"][user], factors["place"], factors["next_place"])
        visits = np.einsum("r,pr,sr->sp", factors["visit_user"][user], factors["visit_place"], factors["slot"])
        assert (transitions < 0).any()
        assert ((transitions > 0) & (transitions < FLOOR)).any() or user
        assert (transitions > FLOOR).any()
        assert (visits < 0).any()
        assert (visits > FLOOR).any()


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("mix", MIXES)
def test_the_matrices_that_a_reader_looks_for_are_those_of_the_loop(factors, mix):
    model, users, slots = make_model(factors, mix=mix), jnp.arange(USERS), jnp.arange(USERS) % SLOTS
    targets, chains = visit_distributions(model, users, slots), transition_matrices(model, users, slots)
    for user in range(USERS):
        target, chain = naive_chain(factors, user, user % SLOTS, mix)
        np.testing.assert_allclose(targets[user], target, rtol=1e-12)
        np.testing.assert_allclose(chains[user], chain, rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(proposal_matrices(model, users).sum(axis=-1), 1, rtol=1e-12)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("mix", MIXES)
def test_log_probabilities_are_those_of_the_whole_matrix(factors, mix):
    """One by one; many traces, each of its own user; and many steps of many users, of which not all places stay."""
    model = make_model(factors, mix=mix)
    cache = jax.jit(model.user_cache)(jnp.arange(USERS))
    every = jnp.arange(PLACES)
    first = jax.jit(jax.vmap(jax.vmap(model.log_first, (None, 0)), (-1, None)))(cache, every)
    over_places = jax.vmap(jax.vmap(model.log_next, (None, None, None, 0)), (None, None, 0, None))
    over_all = jax.jit(jax.vmap(jax.vmap(over_places, (None, 0, None, None)), (-1, None, None, None)))
    step = over_all(cache, jnp.arange(1, 4), every, every)
    assert step.dtype == first.dtype == jnp.float64
    # Traces there and back: every step is in some of them. The stays are not a whole number of groups.
    traces = np.tile([(a, b) for a in range(PLACES) for b in range(PLACES)], (USERS, 2)).astype(np.int32)
    which = np.repeat(np.arange(USERS, dtype=np.int32), PLACES**2)
    assert (traces[:, :-1] == traces[:, 1:]).sum() % STAYS_AT_A_TIME
    assert len(which) > STAYS_AT_A_TIME
    users_first = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), cache)
    own = jax.jit(model.log_own_steps)(users_first, jnp.asarray(which), jnp.asarray(traces))
    np.testing.assert_allclose(own[:, 0], first[which, traces[:, 0]], rtol=1e-10)
    of_one_instant = model.log_own_steps(users_first, jnp.asarray(which), jnp.asarray(traces[:, :1]))
    np.testing.assert_allclose(of_one_instant, own[:, :1], rtol=1e-12)
    each = which[:, None], np.arange(3), traces[:, :-1], traces[:, 1:]
    np.testing.assert_allclose(own[:, 1:], np.asarray(step)[each], rtol=1e-9)
    for user in range(USERS):
        target, _ = naive_chain(factors, user, SLOT_OF_INSTANT[0], mix)
        np.testing.assert_allclose(np.exp(first[user]), target, rtol=1e-10)
        for instant in (1, 2, 3):
            target, chain = naive_chain(factors, user, SLOT_OF_INSTANT[instant], mix)
            ours = np.exp(step[user, instant - 1])
            np.testing.assert_allclose(ours, chain, rtol=1e-9, atol=1e-15)
            np.testing.assert_allclose(ours.sum(axis=1), 1, rtol=1e-12)
            # The target is stationary, and in detailed balance.
            np.testing.assert_allclose(target @ ours, target, rtol=1e-9)
            np.testing.assert_allclose(target[:, None] * ours, (target[:, None] * ours).T, rtol=1e-9, atol=1e-15)
    instants, places, next_places = (i.ravel() for i in np.meshgrid([1, 3], np.arange(PLACES), np.arange(PLACES)))
    moves = tuple(x[places != next_places] for x in (instants, places, next_places))
    stays = np.array([1, 3, 3, 1, 3]), np.array([0, 0, 2, 6, 6])
    for steps, many in ((moves, model.log_moves), (stays, model.log_stays)):
        ours = jax.jit(many)(cache, *map(jnp.asarray, steps))
        one = np.asarray(step)[:, steps[0] - 1, steps[1], steps[-1]]
        np.testing.assert_allclose(ours, one.T, rtol=1e-11)


def test_staying_has_a_probability_in_single_precision_too():
    """Where nearly every proposal leaves and is accepted, 1 - sum cancels; the probability of staying must not.

    Uniform visits and equal transitions: staying has probability 1e-8 / 1 at place 0, all of it from the proposal.
    """
    n = 5
    place = np.eye(n)
    next_place = np.ones((n, n)) - np.eye(n)
    factors = {
        "user": np.ones((1, n)),
        "place": place,
        "next_place": next_place,
        "visit_user": np.ones((1, n)),
        "visit_place": np.ones((n, n)) / n,
        "slot": np.ones((1, n)),
    }
    zero = jnp.zeros((), jnp.int32)
    model = MetropolisHastings(
        **{name: jnp.asarray(x, jnp.float32) for name, x in factors.items()}, slot_of_instant=jnp.zeros(2, jnp.int32)
    )
    cache = jax.jit(model.user_cache)(jnp.zeros(1, jnp.int32))
    stays = jax.jit(model.log_stays)(cache, jnp.zeros(1, jnp.int32), jnp.zeros(1, jnp.int32))
    cache = jax.tree.map(lambda leaf: leaf[..., 0], cache)
    log_next = jax.jit(model.log_next)(cache, zero, zero, zero)
    np.testing.assert_allclose(jnp.exp(log_next), 1e-8 / (n - 1), rtol=1e-5)
    np.testing.assert_allclose(jnp.exp(stays), 1e-8 / (n - 1), rtol=1e-5)


# Sampling


N_DRAWS = 20_000


def worst_row(model: MetropolisHastings, factors: dict[str, np.ndarray], instant: int = 2, mix: float = 0.0) -> float:
    """Draws from every row of one user's chain against the exact row."""
    user = 1
    keys = jax.random.split(jax.random.key(0), N_DRAWS)
    over_keys = jax.vmap(model.sample_next, (0, None, None, None))
    drawn = jax.jit(jax.vmap(over_keys, (None, None, None, 0)))(keys, user, instant, jnp.arange(PLACES))
    _, chain = naive_chain(factors, user, SLOT_OF_INSTANT[instant], mix)
    level = FALSE_ALARM / PLACES
    return max(chi_square_ratio(np.asarray(d), row, level) for d, row in zip(drawn, chain, strict=True))


@pytest.mark.parametrize("mix", MIXES)
def test_next_places_have_the_exact_distribution(factors, mix):
    assert worst_row(make_model(factors, mix=mix), factors, mix=mix) < 1


N_GRID = 64


def largest_total_variation(model: MetropolisHastings, factors: dict[str, np.ndarray], mix: float = 0.0) -> float:
    """Between the rows of the step, enumerated over a grid of both its random numbers, and those of the whole matrix.

    Midpoints of n intervals give the length of an interval to within 1 / n. So each proposal has its probability to
    within 1 / n, and each acceptance to within 1 / (2 n): a right step differs by at most (PLACES + 1) / n.
    """
    middle = (jnp.arange(N_GRID) + 0.5) / N_GRID
    pairs = jnp.stack(jnp.meshgrid(middle, middle), axis=-1).reshape(-1, 2)
    over_pairs = jax.vmap(model.move, (0, None, None, None))
    step = jax.jit(jax.vmap(jax.vmap(over_pairs, (None, None, None, 0)), (None, 0, None, None)))
    worst = 0.0
    for slot in range(SLOTS):
        moved = np.asarray(step(pairs, jnp.arange(USERS), jnp.asarray(slot), jnp.arange(PLACES)))
        for user in range(USERS):
            _, chain = naive_chain(factors, user, slot, mix)
            ours = np.stack([np.bincount(row, minlength=PLACES) for row in moved[user]]) / N_GRID**2
            worst = max(worst, np.abs(ours - chain).sum(axis=1).max() / 2)
    return worst


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("mix", MIXES)
def test_the_enumerated_step_is_the_row_of_the_whole_matrix(factors, mix):
    assert largest_total_variation(make_model(factors, mix=mix), factors, mix) <= (PLACES + 1) / N_GRID


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class WithoutRowSums(MetropolisHastings):
    """Accepts as if the proposal were normalized already."""

    def move(self, uniform, user, slot, place):
        row = self._proposal_from(self.user[user], place)
        proposed = sample_index(uniform[0], row)
        here, there = self._visits(user, slot, jnp.stack([place, proposed]))
        forth, back = here * row[proposed], there * self._proposal_from(self.user[user], proposed)[place]
        return jnp.where(uniform[1] * forth < back, proposed, place)


@pytest.mark.usefixtures("float64")
def test_a_step_without_row_sums_is_caught(factors):
    assert largest_total_variation(make_model(factors, WithoutRowSums), factors) > (PLACES + 1) / N_GRID


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class WithoutProposalRatio(MetropolisHastings):
    """Accepts by the target alone."""

    def sample_next(self, key, user, instant, place):
        uniform = jax.random.uniform(key, (2,))
        proposed = sample_index(uniform[0], self._proposal_from(self.user[user], place))
        here, there = self._visits(user, self.slot_of_instant[instant], jnp.stack([place, proposed]))
        return jnp.where(uniform[1] * here < there, proposed, place)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class OneRandomNumber(MetropolisHastings):
    """Proposes and accepts with the same number."""

    def sample_next(self, key, user, instant, place):
        with pytest.MonkeyPatch.context() as patch:
            once = jax.random.uniform(key)
            patch.setattr(jax.random, "uniform", lambda *args, **kwargs: jnp.stack([once, once]))
            return super().sample_next(key, user, instant, place)


@pytest.mark.parametrize("bug", [WithoutProposalRatio, OneRandomNumber, WithoutRowSums])
def test_planted_bugs_in_the_step_are_caught(factors, bug):
    assert worst_row(make_model(factors, bug), factors) > 1


def test_first_places_have_the_exact_distribution(factors):
    model = make_model(factors)
    keys = jax.random.split(jax.random.key(1), N_DRAWS)
    drawn = jax.jit(jax.vmap(jax.vmap(model.sample_first, (0, None)), (None, 0)))(keys, jnp.arange(USERS))
    for user in range(USERS):
        target, _ = naive_chain(factors, user, SLOT_OF_INSTANT[0])
        assert chi_square_ratio(np.asarray(drawn[user]), target, FALSE_ALARM / USERS) < 1


# Storing


def test_arrays_that_two_tensors_share_are_stored_once_however_the_model_came_about():
    """A copy, such as a jitted function returns, has arrays of its own; either factor alone may be shared."""
    model = random_chains()
    for same in (model, jax.tree.map(jnp.copy, model)):
        assert not same.to_arrays().keys() & {"visit_user", "visit_place"}
    for name, shared in (("visit_user", "user"), ("visit_place", "place")):
        stored = replace(model, **{name: getattr(model, shared) + 1}).to_arrays()
        assert stored.keys() & {"visit_user", "visit_place"} == {name}
        again = MetropolisHastings.from_arrays(stored)
        np.testing.assert_array_equal(getattr(again, name), getattr(model, shared) + 1)


# Official results


def test_official_likelihoods(people_flow, float64):
    """The running log-likelihood of every official trace of 100 users under the official factors."""
    train, _ = read_people_flow(people_flow)
    folder = people_flow / "ppmtf_alpha200"
    a, b, c, d = (jnp.asarray(factor) for factor in read_official_factors(folder).values())
    model = MetropolisHastings(a, b, c, a, b, d, jnp.arange(30))
    synthetic = read_synthetic(folder / "synthetic_traces.csv.gz", train)
    official = pd.read_csv(folder / "synthetic_traces.csv.gz", usecols=[6]).to_numpy().reshape(-1, 30)
    users = synthetic.trace_table()[0]
    chosen = np.flatnonzero(users % 5 == 0)
    assert len(chosen) == 1000
    ours = np.cumsum(step_log_probabilities(model, users[chosen], synthetic.place.reshape(-1, 30)[chosen]), axis=1)
    np.testing.assert_allclose(ours, official[chosen], rtol=0, atol=1e-5)
