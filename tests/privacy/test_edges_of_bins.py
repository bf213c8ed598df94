"""Verifiers at the edges of bins, against a double loop: what a compiler does to the last digits changes no verdict."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.privacy import plausible_users as tested
from ppmtf_jax.privacy.plausible_users import SLACK, Verifiers, count_plausible_users, in_bin, own_log_likelihoods
from ppmtf_jax.trace_models.likelihoods import step_log_probabilities
from ppmtf_jax.trace_models.metropolis_hastings import MetropolisHastings
from tests.privacy.examples import use_small_blocks

USERS, RANK, SLOTS, TRACES, PLACES, INSTANTS = 24, 4, 2, 50, 9, 6
ROUNDING = 1e-13
"""Relative, of all programs: a thousand units in the last place, for sums of a hundred numbers of one sign."""
pytestmark = pytest.mark.usefixtures("float64")


@pytest.fixture(scope="module")
def model() -> MetropolisHastings:
    """Every second user equals the user before, or nearly: half of them differ from the other by 1e-7."""
    rng = np.random.default_rng(0)
    user, visit_user = (rng.normal(0.3, 0.4, (USERS, RANK)) for _ in range(2))
    for factor in (user, visit_user):
        change = 1e-7 * rng.normal(size=(USERS // 2, 1)) * rng.integers(2, size=(USERS // 2, 1))
        factor[1::2] = factor[::2] * (1 + change)
    place, next_place, visit_place = (rng.normal(0.3, 0.4, (PLACES, RANK)) for _ in range(3))
    slot, slots = rng.normal(0.3, 0.4, (SLOTS, RANK)), rng.integers(SLOTS, size=INSTANTS).astype(np.int32)
    with jax.enable_x64(True):
        return MetropolisHastings(*map(jnp.asarray, (user, place, next_place, visit_user, visit_place, slot, slots)))


@pytest.fixture(scope="module")
def drawn(model) -> tuple[np.ndarray, np.ndarray]:
    """Input users and places of traces, drawn from the model, so that they are probable for several users."""
    users = np.random.default_rng(1).integers(USERS, size=TRACES)
    with jax.enable_x64(True):
        draw = jax.jit(jax.vmap(lambda key, user: model.sample_trace(key, user, INSTANTS)))
        return users, np.asarray(draw(jax.random.split(jax.random.key(2), TRACES), users))


@pytest.fixture(scope="module")
def exact(model, drawn) -> np.ndarray:
    """Log-likelihood of each trace under each user."""
    trace, user = (each.ravel() for each in np.indices((TRACES, USERS)))
    with jax.enable_x64(True):
        return own_log_likelihoods(model, user, drawn[1][trace]).reshape(TRACES, USERS)


def edges(exact: np.ndarray, users: np.ndarray) -> list[float]:
    """Widths of bins that put a verifier at the edge of the input user's bin, or one unit in the last place beside it.

    The verifier is the one who makes the trace more probable than the input user, by as little as possible.
    """
    found = []
    for trace in range(0, TRACES, 7):
        more = exact[trace] - exact[trace, users[trace]]
        if (more > 1e-3).any():
            edge = float(-exact[trace, np.where(more > 1e-3, more, np.inf).argmin()] / 2)
            found += [edge, np.nextafter(edge, 0), np.nextafter(edge, 9), edge * (1 - 1e-14), edge * (1 + 1e-14)]
    return found


def counted(model: MetropolisHastings, drawn: tuple[np.ndarray, np.ndarray], own: np.ndarray, eta: float) -> np.ndarray:
    verifiers = Verifiers.of(model, np.arange(USERS), USERS)
    return count_plausible_users(model, verifiers, *drawn, own, eta)[0]


def least_and_most(exact: np.ndarray, users: np.ndarray, eta: float, margin: float) -> list[np.ndarray]:
    """Number of users in the bin of the input user, without and with those nearer to an edge than a margin."""
    bins = np.floor(-exact[np.arange(TRACES), users] / eta)[:, None]
    below, above = ((-exact + sign * margin * (1 + np.abs(exact))) / eta for sign in (-1, 1))
    both = (np.floor(below) == bins) & (np.floor(above) == bins), (np.floor(below) <= bins) & (np.floor(above) >= bins)
    equal = exact == exact[np.arange(TRACES), users][:, None]  # they count whatever the bin
    return [(each | equal).sum(axis=1) for each in both]


def too_many(model: MetropolisHastings, drawn: tuple[np.ndarray, np.ndarray], exact: np.ndarray) -> int:
    """How many traces, at all edges, count a verifier who is outside by what other programs may compute."""
    wrong, own = 0, exact[np.arange(TRACES), drawn[0]]
    for eta in edges(exact, drawn[0]):
        found = counted(model, drawn, own, eta)
        wrong += int((found > least_and_most(exact, drawn[0], eta, ROUNDING)[0]).sum())
    return wrong


def test_a_verifier_at_an_edge_does_not_count(model, drawn, exact):
    assert not too_many(model, drawn, exact)


def test_without_slack_a_verifier_at_an_edge_counts(model, drawn, exact, monkeypatch):
    monkeypatch.setattr(tested, "SLACK", dict.fromkeys(SLACK, 0.0))
    # A new function, so that JAX compiles the bug.
    monkeypatch.setattr(tested, "_compare_batch", jax.jit(partial(tested._compare_batch.__wrapped__)))
    assert too_many(model, drawn, exact)


@pytest.mark.parametrize("eta", [1.0, 0.01, 1e-6])
def test_all_others_count(model, drawn, exact, eta, monkeypatch):
    use_small_blocks(monkeypatch)
    found = counted(model, drawn, exact[np.arange(TRACES), drawn[0]], eta)
    least, most = least_and_most(exact, drawn[0], eta, 2 * SLACK["float64"])
    assert ((least <= found) & (found <= most)).all()
    assert (least == most).mean() > 0.9


def test_who_makes_a_trace_for_certain_is_at_no_edge():
    assert in_bin(np.array([0.0, -1e-12]), np.zeros(2), 1.0).all()


def test_programs_of_other_sizes_differ_by_less_than_a_hundredth_of_the_slack(model, drawn, exact):
    """What the verdicts assume of the compiler, for the versions that are installed."""
    users, places = drawn
    alone = [own_log_likelihoods(model, users[i : i + 1], places[i : i + 1])[0] for i in range(0, TRACES, 10)]
    together = exact[np.arange(TRACES), users]
    np.testing.assert_allclose(alone, together[::10], rtol=ROUNDING)
    plain = jax.vmap(model.log_own_steps, (None, 0, 0))  # not as one program
    cache = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), model.user_cache(jnp.arange(USERS)))
    steps = plain(cache, jnp.asarray(users)[:, None], jnp.asarray(places)[:, None])
    np.testing.assert_allclose(np.asarray(steps)[:, 0].sum(axis=1), together, rtol=ROUNDING)
    assert SLACK["float64"] > 100 * ROUNDING


def test_the_order_of_the_verifiers_changes_no_verdict(model, drawn, exact, monkeypatch):
    use_small_blocks(monkeypatch)
    users, places = drawn
    own, stop_at = exact[np.arange(TRACES), users], np.full(TRACES, 4)
    verifiers = Verifiers.of(model, np.arange(USERS), USERS)
    first, _ = count_plausible_users(model, verifiers, users, places, own, 1.0, stop_at)
    # The same users under other numbers.
    order = np.random.default_rng(3).permutation(USERS)
    other = jax.tree.map(lambda leaf: leaf[order] if leaf.shape[:1] == (USERS,) else leaf, model)
    verifiers = Verifiers.of(other, np.arange(USERS), USERS)
    found, _ = count_plausible_users(other, verifiers, np.argsort(order)[users], places, own, 1.0, stop_at)
    np.testing.assert_array_equal(found, first)
    assert 1 < len(set(first)) < TRACES


def test_the_likelihoods_are_sums_of_steps(model, drawn, exact):
    users, places = drawn
    steps = step_log_probabilities(model, users, places)
    np.testing.assert_allclose(steps.sum(axis=1), exact[np.arange(TRACES), users], rtol=ROUNDING)
