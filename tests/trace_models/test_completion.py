"""Completions against all completions there are, by brute force."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.errors import InputError, NumericalError
from ppmtf_jax.trace_models import completion
from ppmtf_jax.trace_models.base import ScoredTraceModel
from ppmtf_jax.trace_models.completion import most_probable_places, sample_places
from ppmtf_jax.trace_models.likelihoods import representatives, step_log_probabilities
from tests.trace_models.agreement import FALSE_ALARM, chi_square_ratio
from tests.trace_models.examples import (
    INSTANTS,
    PLACES,
    USERS,
    ChainOfEach,
    random_chains,
    random_class_model,
)

EVERY_TRACE = np.array(list(itertools.product(range(PLACES), repeat=INSTANTS)))
N_DRAWS = 6000


def joint(model: ScoredTraceModel, user: int) -> np.ndarray:
    """Probability of every trace there is, shape (traces,)."""
    users = representatives(model, USERS)[np.full(len(EVERY_TRACE), user)]
    return np.exp(step_log_probabilities(model, users, EVERY_TRACE).sum(axis=1))


def agrees(known: np.ndarray) -> np.ndarray:
    return ((known == -1) | (known == EVERY_TRACE)).all(axis=1)


def gaps_everywhere() -> np.ndarray:
    """Each pattern of gaps, in one trace."""
    trace = np.random.default_rng(3).integers(PLACES, size=INSTANTS)
    missing = np.array(list(itertools.product([False, True], repeat=INSTANTS)))
    return np.where(missing, -1, trace).astype(np.int32)


def in_double(model: ScoredTraceModel) -> ScoredTraceModel:
    return jax.tree.map(lambda leaf: leaf.astype(float) if jnp.issubdtype(leaf.dtype, float) else leaf, model)


def chains_of(kind: str) -> ScoredTraceModel:
    rng = np.random.default_rng(0)
    if kind == "factors":
        return random_chains()
    if kind == "classes":
        return random_class_model(rng, rng.permutation(np.arange(USERS) % 3), PLACES)
    first = rng.dirichlet(np.ones(PLACES), USERS).T
    return ChainOfEach(
        jnp.asarray(first), jnp.asarray(np.moveaxis(rng.dirichlet(np.ones(PLACES), (USERS, PLACES)), 0, -1))
    )


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("kind", "traces_at_a_time"), [("factors", 7), ("classes", 1024), ("each", 7)])
def test_no_completion_is_more_probable(kind, traces_at_a_time, monkeypatch):
    monkeypatch.setattr(completion, "TRACES_AT_A_TIME", traces_at_a_time)
    model, known = in_double(chains_of(kind)), gaps_everywhere()
    users = np.random.default_rng(1).integers(USERS, size=len(known))
    places, impossible_at = most_probable_places(model, users, known, PLACES)
    assert (impossible_at == -1).all()
    assert ((known == -1) | (known == places)).all()
    ours = np.exp(step_log_probabilities(model, representatives(model, USERS)[users], places).sum(axis=1))
    of_user = {user: joint(model, user) for user in set(users.tolist())}
    best = [of_user[user][agrees(row)].max() for user, row in zip(users.tolist(), known, strict=True)]
    np.testing.assert_allclose(ours, best, rtol=1e-10)


def draws(model: ScoredTraceModel, user: int, known: np.ndarray) -> np.ndarray:
    """Number, among all traces, of many random completions."""
    keys = jax.random.split(jax.random.key(7), N_DRAWS)
    places = sample_places(keys, model, np.full(N_DRAWS, user), np.tile(known, (N_DRAWS, 1)), PLACES).places
    return places @ PLACES ** np.arange(INSTANTS)[::-1]


GAPS = [np.array(row) for row in ([-1, 2, -1, -1], [1, -1, -1, 4], [-1, -1, -1, -1], [-1, -1, 3, 0])]


def disagreements(model: ScoredTraceModel, gaps: list[np.ndarray]) -> list[float]:
    """Pearson's statistic of random completions of each pattern of gaps, in units of its quantile."""
    every, found = joint(model, 5), []
    for known in gaps:
        probability = np.where(agrees(known), every, 0)
        found.append(chi_square_ratio(draws(model, 5, known), probability / probability.sum(), FALSE_ALARM))
    return found


@pytest.mark.parametrize("kind", ["factors", "classes", "each"])
def test_random_completions_have_the_distribution_of_all_that_agree(kind):
    assert max(disagreements(chains_of(kind), GAPS)) < 1


def test_sampling_that_forgets_what_comes_later_is_found(monkeypatch):
    # Places are filtered, but not weighed by the step to the place after them.
    monkeypatch.setattr(completion, "_steps_into", lambda *_: jnp.zeros(PLACES))
    completion._complete_rows.clear_cache()
    found = disagreements(chains_of("each"), GAPS[:2])
    monkeypatch.undo()
    completion._complete_rows.clear_cache()
    assert min(found) > 1


def certain(moves: list[tuple[int, int]], n_places: int, n_users: int = 1) -> ChainOfEach:
    """From each place some others are equally probable, the rest impossible."""
    step = np.zeros((n_places, n_places))
    step[tuple(np.array(moves).T)] = 1
    step /= np.maximum(step.sum(axis=1, keepdims=True), 1)
    first = np.full((n_places, n_users), 1 / n_places)
    return ChainOfEach(jnp.asarray(first), jnp.asarray(np.repeat(step[..., None], n_users, axis=2)))


def both_ways(model: ScoredTraceModel, known: np.ndarray, n_places: int):
    users, keys = np.zeros(len(known), int), jax.random.split(jax.random.key(0), len(known))
    return most_probable_places(model, users, known, n_places), sample_places(keys, model, users, known, n_places)


def test_what_is_impossible_is_said_and_not_made_up():
    """Round in a circle of three: 0, 1, 2, 0, ...; nothing else can be."""
    circle = certain([(0, 1), (1, 2), (2, 0)], 3)
    known = np.array([[0, -1, -1, 0], [0, -1, 1, -1], [0, 0, 0, 0], [-1, -1, -1, 2], [2, -1, 1, 1]])
    # As many traces of as many instants and places as in the next two tests, for one program.
    for places, impossible_at in both_ways(circle, np.tile(known, (4, 1)), 3):
        assert impossible_at.tolist() == [-1, 2, 1, -1, 3] * 4
        assert places[[0, 3]].tolist() == [[0, 1, 2, 0], [2, 0, 1, 2]]
        assert (places[impossible_at >= 0] == -1).all()


def test_a_place_that_is_a_dead_end_is_avoided_beforehand():
    """0 goes to 1 or 2, and 1 goes nowhere: who is at 0 and seen two instants later was at 2."""
    fork = certain([(0, 1), (0, 2), (2, 0)], 3)
    for places, _ in both_ways(fork, np.tile([0, -1, -1, -1], (20, 1)), 3):
        assert (places[:, 1] == 2).all()


def test_small_and_whole_cases():
    one_place = certain([(0, 0)], 1)
    for known in ([[-1]], [[0]], [[-1, 0, -1]]):
        for places, _ in both_ways(one_place, np.array(known), 1):
            assert not places.any()
    for places, impossible_at in both_ways(one_place, np.zeros((0, 4), int), 1):
        assert places.shape == (0, 4)
        assert impossible_at.shape == (0,)
    best, _ = most_probable_places(chains_of("each"), np.zeros(1, int), np.array([[-1]]), PLACES)
    assert best[0, 0] == joint(chains_of("each"), 0).reshape(PLACES, -1).sum(axis=1).argmax()


def test_a_trace_is_completed_the_same_whatever_the_others():
    model, known = chains_of("classes"), np.repeat(gaps_everywhere(), 5, axis=0)
    users, keys = np.arange(len(known)) % USERS, jax.random.split(jax.random.key(1), len(known))
    places, impossible_at = sample_places(keys, model, users, known, PLACES)
    # Without a gap, with some, and with nothing known.
    assert (impossible_at == -1).all()
    assert np.where(known == -1, places, known).tolist() == places.tolist()
    some = np.random.default_rng(0).permutation(len(known))[:7]
    alone = sample_places(keys[some], model, users[some], known[some], PLACES).places
    np.testing.assert_array_equal(alone, places[some])


def test_long_traces_keep_their_digits():
    """Half of the log-probability of ten thousand steps, 7,000, leaves steps of 0.0005 in single precision."""
    slightly = np.array([-5e-5, 5e-5])
    model = ChainOfEach(jnp.full((2, 1), 0.5), jnp.asarray(np.tile(0.5 + slightly, (2, 1))[..., None]))
    known = np.full((1, 10_000), -1)
    known[0, -1] = 0
    best, _ = most_probable_places(model, np.zeros(1, int), known, 2)
    assert best[0, 1:-1].all()


def test_what_is_too_improbable_for_a_number_is_possible():
    """From 0 to 1 and from 1 to 2 with 1e-30 each: 1e-60 is 0 in single precision, but there is no other way."""
    step = np.eye(3)
    step[[0, 1], [1, 2]] = 1e-30
    model = ChainOfEach(jnp.asarray(np.full((3, 1), 1 / 3)), jnp.asarray(step[..., None]))
    for places, impossible_at in both_ways(model, np.tile([0, -1, 2, 2], (20, 1)), 3):
        assert (impossible_at == -1).all()
        assert (places == [0, 1, 2, 2]).all()


@pytest.mark.parametrize("wrong", [-2, 6])
def test_places_that_do_not_exist_are_refused(wrong):
    with pytest.raises(InputError, match="places 0 to 5"):
        both_ways(chains_of("each"), np.array([[0, wrong, 0, 0]]), PLACES)


def test_a_model_that_gives_no_numbers_is_refused():
    model = certain([(0, 0)], 1)
    broken = ChainOfEach(model.first, model.next * jnp.nan)
    with pytest.raises(NumericalError, match="not numbers for 1 trace"):
        both_ways(broken, np.array([[0, -1, -1]]), 1)


def test_what_would_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr("ppmtf_jax.runtime.memory.available_bytes", lambda: completion.bytes_to_complete(1, 4, 6) - 1)
    with pytest.raises(InputError, match="Take fewer places"):
        most_probable_places(chains_of("each"), np.zeros(1, int), np.full((1, 4), -1), PLACES)
