"""Counting by bounds against a double loop over exact likelihoods, where bounds are bad or bins are hard to tell."""

from __future__ import annotations

from functools import partial
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.privacy import plausible_users as tested
from ppmtf_jax.privacy.plausible_users import Verifiers, count_plausible_users, own_log_likelihoods
from ppmtf_jax.trace_models import likelihoods, metropolis_hastings_bounds
from ppmtf_jax.trace_models.base import Bounds
from ppmtf_jax.trace_models.likelihoods import step_log_probabilities
from ppmtf_jax.trace_models.metropolis_hastings import MetropolisHastings
from tests.privacy.examples import use_small_blocks

USERS, RANK, SLOTS, TRACES = 24, 4, 2, 50
pytestmark = pytest.mark.usefixtures("float64")


def chains(rng: np.random.Generator, n_places: int, n_instants: int, shared: bool) -> MetropolisHastings:
    """Every second user equals the user before her, or nearly."""
    user, visit_user = (rng.normal(0.3, 0.4, (USERS, RANK)) for _ in range(2))
    for factor in (user, visit_user):
        factor[1::2] = factor[::2] * (
            1 + 1e-7 * rng.normal(size=(USERS // 2, 1)) * rng.integers(2, size=(USERS // 2, 1))
        )
    place, next_place, visit_place = (rng.normal(0.3, 0.4, (n_places, RANK)) for _ in range(3))
    of_visits = (user, place) if shared else (visit_user, visit_place)
    slot, slots = rng.normal(0.3, 0.4, (SLOTS, RANK)), rng.integers(SLOTS, size=n_instants).astype(np.int32)
    arrays = (
        *map(jnp.asarray, (user, place, next_place)),
        *map(jnp.asarray, of_visits),
        *map(jnp.asarray, (slot, slots)),
    )
    return MetropolisHastings(*arrays)


def traces(rng: np.random.Generator, model: MetropolisHastings, n_instants: int) -> tuple[np.ndarray, np.ndarray]:
    """Drawn from the model, so that they are probable for several users."""
    users = rng.integers(USERS, size=TRACES)
    draw = jax.jit(jax.vmap(lambda key, user: model.sample_trace(key, user, n_instants)))
    return users, np.asarray(draw(jax.random.split(jax.random.key(int(rng.integers(99))), TRACES), users))


def everybody(model: MetropolisHastings) -> Verifiers:
    return Verifiers.of(model, np.arange(USERS), USERS)


def double_loop(model: MetropolisHastings, users: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Exact log-likelihood of each trace under each user."""
    trace, user = (each.ravel() for each in np.indices((len(places), USERS)))
    return np.cumsum(step_log_probabilities(model, user, places[trace]), axis=1)[:, -1].reshape(len(places), USERS)


def counts(exact: np.ndarray, users: np.ndarray, eta: float) -> np.ndarray:
    bins = np.floor(-exact / eta)
    return (bins == bins[np.arange(len(users)), users][:, None]).sum(axis=1)


def check_counts(model: MetropolisHastings, users: np.ndarray, places: np.ndarray, etas: list[float]) -> None:
    """`etas` and two more, with which verifiers are at an edge of a bin, or next to it."""
    exact = double_loop(model, users, places)
    own = exact[np.arange(TRACES), users]
    for eta in (*etas, -exact[0, 3] / 7, -exact[1, 8] / 5 * (1 + 1e-9)):
        # A trace of one event at the only place has the probability 1.
        eta = float(eta) or 1.0
        found, asked = count_plausible_users(model, everybody(model), users, places, own, eta)
        np.testing.assert_array_equal(found, counts(exact, users, eta))
        assert (asked == USERS).all()
    expected, stop_at = counts(exact, users, 1.0), np.arange(TRACES) % 5
    found, asked = count_plausible_users(model, everybody(model), users, places, own, 1.0, stop_at)
    np.testing.assert_array_equal(found, np.minimum(expected, np.maximum(stop_at, 1)))


@pytest.fixture(scope="module")
def unshared() -> tuple[MetropolisHastings, np.ndarray, np.ndarray]:
    """Half of the users are equal or nearly equal to others, so some of their pairs must be open."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        model = chains(rng, 9, 6, shared=False)
        return model, *traces(rng, model, 6)


@pytest.mark.slow
def test_counts_are_those_of_a_double_loop_where_all_pairs_are_computed(unshared, monkeypatch):
    use_small_blocks(monkeypatch)
    # Groups of 16 traces: smaller groups take many times as long.
    monkeypatch.setattr(tested, "EVENTS_TESTED_TOGETHER", 16 * 6)
    monkeypatch.setattr(tested, "DENSE", 0)
    check_counts(*unshared, [])


def test_counts_are_those_of_a_double_loop_and_few_pairs_are_open(unshared, monkeypatch):
    use_small_blocks(monkeypatch)
    monkeypatch.setattr(tested, "EVENTS_TESTED_TOGETHER", 16 * 6)
    monkeypatch.setattr(tested, "DENSE", 1)
    computed = mock.Mock(side_effect=step_log_probabilities)
    monkeypatch.setattr(tested, "step_log_probabilities", computed)
    check_counts(*unshared, [1.0])
    n_open = sum(len(call.args[1]) for call in computed.mock_calls)
    assert 0 < n_open < 4 * 0.1 * TRACES * USERS


@pytest.mark.slow
@pytest.mark.parametrize(("n_places", "n_instants"), [(9, 6), (1, 6), (2, 1), (5, 400)])
def test_counts_of_shared_factors(n_places, n_instants, monkeypatch):
    use_small_blocks(monkeypatch)
    monkeypatch.setattr(tested, "CLASSES_AT_A_TIME", {"float32": 5})
    monkeypatch.setattr(tested, "DENSE", 0.3)
    rng = np.random.default_rng(n_places * n_instants)
    model = chains(rng, n_places, n_instants, shared=True)
    users, places = traces(rng, model, n_instants)
    check_counts(model, users, places, [1.0, 0.01, 1e-6])


@pytest.mark.slow
def test_the_order_of_the_verifiers_changes_no_verdict(monkeypatch):
    use_small_blocks(monkeypatch)
    rng = np.random.default_rng(3)
    model = chains(rng, 9, 6, shared=True)
    users, places = traces(rng, model, 6)
    own = double_loop(model, users, places)[np.arange(TRACES), users]
    stop_at = np.full(TRACES, 4)
    first, _ = count_plausible_users(model, everybody(model), users, places, own, 1.0, stop_at)
    # The same users under other numbers.
    order = rng.permutation(USERS)
    other = jax.tree.map(lambda leaf: leaf[order] if leaf.shape[:1] == (USERS,) else leaf, model)
    found, _ = count_plausible_users(other, everybody(other), np.argsort(order)[users], places, own, 1.0, stop_at)
    np.testing.assert_array_equal(found, first)
    assert 1 < len(set(first)) < TRACES


def wrong_bins(model: MetropolisHastings, users: np.ndarray, places: np.ndarray) -> int:
    """Number of log-likelihoods in a wrong bin, over many eta that each put one log-likelihood at or near an edge."""
    exact, wrong = double_loop(model, users, places)[np.arange(TRACES), users], 0
    for trace in range(0, TRACES, 3):
        edge = float(-exact[trace] / 5)
        # At the edge, one unit in the last place beside it, and beside it by less than the error of single precision.
        for eta in (edge, np.nextafter(edge, 0), np.nextafter(edge, 9), edge * (1 - 1e-9), edge * (1 + 1e-9)):
            found = own_log_likelihoods(model, users, places, eta)
            np.testing.assert_allclose(found, exact, rtol=0, atol=tested.OWN_ERROR)
            # Where the edge is far, the bounds are enough.
            assert (found != exact).mean() > 0.5
            wrong += int((np.floor(-found / eta) != np.floor(-exact / eta)).sum())
    return wrong


def test_own_log_likelihoods_at_the_edge_of_a_bin_are_in_the_right_bin(unshared):
    assert not wrong_bins(*unshared)


@pytest.mark.parametrize("factor", [1e-2, 1e-3])
def test_bounds_of_row_sums_that_are_too_narrow_are_caught(factor, unshared, monkeypatch):
    right = metropolis_hastings_bounds.MetropolisHastingsBounds.row_sums

    def wrong(self, users):
        found, error, _ = right(self, users)
        return found, error, Bounds(found * (1 - factor * error), found * (1 + factor * error))

    monkeypatch.setattr(metropolis_hastings_bounds.MetropolisHastingsBounds, "row_sums", wrong)
    # A new function, so that JAX compiles the bug.
    monkeypatch.setattr(likelihoods, "_own_steps", jax.jit(partial(likelihoods._own_steps.__wrapped__)))
    assert wrong_bins(*unshared)


def tight_bounds(patch: pytest.MonkeyPatch) -> None:
    """By a thousandth: pairs of equal users are then outside of narrow bins."""
    right = metropolis_hastings_bounds._widened

    def wrong(lower, upper):
        lower, upper = right(lower, upper)
        return Bounds(lower + 1e-3, upper - 1e-3)

    patch.setattr(metropolis_hastings_bounds, "_widened", wrong)


def rounded_sums(patch: pytest.MonkeyPatch) -> None:
    """A table that rounds more than half precision does."""
    right = tested.sum_of_rows
    patch.setattr(tested, "sum_of_rows", lambda table, rows: right(table, rows) * (1 + 2.0**-9))


@pytest.mark.parametrize(("bug", "n_places"), [(None, 6), (tight_bounds, 7), (rounded_sums, 8)])
def test_pairs_of_equal_users_count_in_narrow_bins_unless_a_bound_is_too_tight(bug, n_places, monkeypatch):
    if bug:
        bug(monkeypatch)
    # Other sizes than in all other tests, so that JAX compiles the bug.
    rng = np.random.default_rng(5)
    model = chains(rng, n_places, 5, True)
    users, places = traces(rng, model, 5)
    exact = double_loop(model, users, places)
    own = exact[np.arange(TRACES), users]
    found, _ = count_plausible_users(model, everybody(model), users, places, own, 1e-3)
    assert (found < counts(exact, users, 1e-3)).any() == bool(bug)
    assert (found <= counts(exact, users, 1e-3)).all()
