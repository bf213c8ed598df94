"""Bounds in single precision against log-probabilities in double precision, where single precision is bad."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.privacy.plausible_users import SLACK
from ppmtf_jax.trace_models import metropolis_hastings_bounds as tested
from ppmtf_jax.trace_models.base import Bounds
from ppmtf_jax.trace_models.metropolis_hastings import MetropolisHastings

# Not a whole number of blocks of places.
USERS, PLACES, SLOTS, RANK = 6, 21, 3, 8
SLOT_OF_INSTANT = np.array([1, 0, 2, 1], np.int32)
Factors = dict[str, np.ndarray]
pytestmark = pytest.mark.usefixtures("float64")


def usual(rng: np.random.Generator) -> Factors:
    sizes = {"user": USERS, "place": PLACES, "next_place": PLACES}
    factors = {name: rng.normal(0.2, 0.4, (n, RANK)) for name, n in sizes.items()}
    sizes = {"visit_user": USERS, "visit_place": PLACES, "slot": SLOTS}
    return factors | {name: rng.normal(0.2, 0.4, (n, RANK)) for name, n in sizes.items()}


def cancelling(rng: np.random.Generator) -> Factors:
    """Transitions that are differences of numbers a million times as large, near the floor on both sides."""
    factors = usual(rng)
    factors["user"] = np.tile(rng.uniform(50, 100, (USERS, RANK // 2)), 2)
    noise = rng.choice([0, 1e-9, 1e-7, 1e-5], (PLACES, RANK // 2)) * rng.normal(size=(PLACES, RANK // 2))
    half = rng.uniform(0.5, 1, (PLACES, RANK // 2))
    factors["place"] = np.hstack([half, half + noise])
    next_half = rng.uniform(0.5, 1, (PLACES, RANK // 2))
    factors["next_place"] = np.hstack([next_half, -next_half])
    return factors


def unequal_visits(rng: np.random.Generator) -> Factors:
    """Visits from the floor to a million, and transitions of very different size."""
    factors = usual(rng)
    factors["visit_place"] *= 10.0 ** rng.integers(-6, 6, (PLACES, 1))
    factors["next_place"] *= 10.0 ** rng.integers(-5, 3, (PLACES, 1))
    return factors


def tiny_visits(rng: np.random.Generator) -> Factors:
    """Visits of user 0 that single precision cannot represent, and those of the others small."""
    factors = usual(rng)
    factors["visit_user"] = np.abs(factors["visit_user"])
    factors["visit_place"], factors["slot"] = np.abs(factors["visit_place"]), np.abs(factors["slot"])
    factors["visit_user"] *= 1e-20
    factors["visit_user"][0] *= 1e-20
    return factors


KINDS = (usual, cancelling, unequal_visits, tiny_visits)
POPULATION = np.random.default_rng(5).dirichlet(np.full(PLACES, 0.5), size=PLACES)


def chains(factors: Factors, floor: float, mix: float) -> MetropolisHastings:
    arrays = {name: jnp.asarray(values) for name, values in factors.items()}
    model = MetropolisHastings(**arrays, slot_of_instant=jnp.asarray(SLOT_OF_INSTANT), floor=floor, proposal_mix=mix)
    return replace(model, population=jnp.asarray(POPULATION)) if mix else model


@cache
def every_step() -> list[tuple[np.ndarray, ...]]:
    """All moves, and all stays sorted by place."""
    place, instant, next_place = (
        each.ravel() for each in np.meshgrid(range(PLACES), [1, 2, 3], range(PLACES), indexing="ij")
    )
    moves, stays = place != next_place, place == next_place
    return [(instant[moves], place[moves], next_place[moves]), (instant[stays], place[stays])]


def scores(model, moves, stays):
    cached = model.user_cache(jnp.arange(USERS))
    firsts = jax.vmap(jax.vmap(model.log_first, (-1, None)), (None, 0))(cached, jnp.arange(PLACES))

    def moves_of_one(cached):
        alone = model.log_moves(jax.tree.map(lambda leaf: leaf[..., None], cached), *moves)
        return jax.tree.map(lambda leaf: leaf[..., 0], alone)

    alone = jax.vmap(moves_of_one, -1, -1)(cached)
    return firsts, model.log_moves(cached, *moves), alone, model.log_stays(cached, *stays)


SCORES = jax.jit(scores)


def violations(model: MetropolisHastings, scores: Callable = SCORES) -> tuple[int, list[np.ndarray]]:
    """How many exact log-probabilities are outside of their bounds; and the widths of the bounds."""
    outside, widths = 0, []
    bounds, steps = model.bounds(), every_step()
    assert bounds is not None
    found = scores(bounds, *steps)
    # Infinite bounds of her first place make all sums of a user infinite, whatever the bounds of the other steps.
    known = np.isfinite(found[0].upper[0])
    for bound, exact in zip(found, SCORES(model, *steps), strict=True):
        assert bound.lower.dtype == bound.upper.dtype == jnp.float32
        assert not np.isnan(bound.upper).any()
        outside += int((known & ~((bound.lower <= exact) & (exact <= bound.upper))).sum())
        with np.errstate(invalid="ignore"):
            widths.append(np.asarray(bound.upper, float) - np.asarray(bound.lower, float))
    return outside, widths


@pytest.mark.parametrize(("floor", "mix"), [pytest.param(1e-8, 0.0, marks=pytest.mark.slow), (1e-12, 0.0), (1e-2, 0.3)])
def test_exact_log_probabilities_are_inside(floor, mix):
    for kind in KINDS:
        for seed in range(3):
            outside, widths = violations(chains(kind(np.random.default_rng(seed)), floor, mix))
            assert not outside, kind.__name__
            if kind is usual:
                # The bounds are narrow, so they say something.
                assert np.quantile(np.concatenate([each.ravel() for each in widths]), 0.9) < 1e-3


def own_steps_of(model):
    """Log-probabilities of traces of all users, one user at a time; every step to every place is in some trace."""
    tables = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), model.user_cache(jnp.arange(USERS)))
    there_and_back = np.tile([(a, b) for a in range(PLACES) for b in range(PLACES)], (USERS, 2))
    which = jnp.repeat(jnp.arange(USERS), PLACES**2)
    return model.log_own_steps(tables, which, jnp.asarray(there_and_back, jnp.int32))


OWN_STEPS = jax.jit(own_steps_of)


def own_violations(model: MetropolisHastings) -> int:
    """How many exact log-probabilities are outside of the bounds for one user at a time."""
    exact, bounds = (np.asarray(OWN_STEPS(each)) for each in (model, model.own_bounds()))
    slack = SLACK * (1 + np.abs(exact))
    return int((~((bounds[0] - slack <= exact) & (exact <= bounds[1] + slack))).sum())


@pytest.mark.parametrize(("floor", "mix"), [(1e-12, 0.0), (1e-2, 0.3)])
def test_exact_log_probabilities_are_inside_of_the_bounds_of_one_user(floor, mix):
    for kind in KINDS:
        for seed in range(3):
            assert not own_violations(chains(kind(np.random.default_rng(seed)), floor, mix)), kind.__name__


@pytest.mark.parametrize("factor", [0.0, 1e-3])
def test_row_sums_with_errors_that_are_too_small_are_caught(factor, monkeypatch):
    right = tested.MetropolisHastingsBounds.row_sums

    def wrong(self, users):
        found, error, _ = right(self, users)
        return found, error, Bounds(found * (1 - factor * error), found * (1 + factor * error))

    monkeypatch.setattr(tested.MetropolisHastingsBounds, "row_sums", wrong)
    # Another function, so that JAX compiles the bug.
    monkeypatch.setitem(globals(), "OWN_STEPS", jax.jit(partial(own_steps_of)))
    assert own_violations(chains(usual(np.random.default_rng(0)), 1e-8, 0.0))


def without_transition_errors() -> mock._patch:
    return mock.patch.object(tested.MetropolisHastingsBounds, "_rounding", 0.0)


def rounded_row() -> mock._patch:
    """In the bounds of one user, who is assumed to have the row in double precision."""
    right = tested.MetropolisHastingsBounds.user_cache

    def wrong(self, users):
        cached = right(self, users)
        return cached._replace(exact_row=cached.tables.transition_row.astype(jnp.float64))

    return mock.patch.object(tested.MetropolisHastingsBounds, "user_cache", wrong)


def too_tight() -> mock._patch:
    """By a thousandth."""
    right = tested._widened

    def wrong(lower, upper):
        lower, upper = right(lower, upper)
        return Bounds(lower + 1e-3, upper - 1e-3)

    return mock.patch.object(tested, "_widened", wrong)


@pytest.mark.parametrize("bug", [without_transition_errors, rounded_row, too_tight])
def test_planted_bugs_are_caught(bug):
    found = {}
    for kind in (usual, cancelling):
        # A new function, so that JAX compiles the bug.
        with bug():
            found[kind], _ = violations(chains(kind(np.random.default_rng(0)), 1e-8, 0.0), jax.jit(partial(scores)))
    assert any(found.values())


def test_logarithms_are_as_exact_as_the_bounds_assume():
    """All sizes from the smallest normal number to 1, and numbers just below 1."""
    exponents = np.random.default_rng(0).uniform(-126, 0, 200_000)
    near_one = 1 - np.arange(1, 50_000) * tested.UNIT
    numbers = np.concatenate([2**exponents, near_one]).astype(np.float32)
    exact = np.log(numbers.astype(float))
    ours = np.asarray(jax.jit(jnp.log)(jnp.asarray(numbers)), float)
    assert (np.abs(ours - exact) <= tested.LOG_ERROR * np.abs(exact) + tested.UNIT).all()


def test_of_visits_outside_of_single_precision_nothing_is_known():
    model = chains(tiny_visits(np.random.default_rng(0)), 1e-8, 0.0)
    first = SCORES(model.bounds(), *every_step())[0]
    np.testing.assert_array_equal(np.isinf(first.upper).all(axis=0), np.arange(USERS) == 0)
    np.testing.assert_array_equal(np.isinf(first.lower).all(axis=0), np.arange(USERS) == 0)


def test_a_model_in_single_precision_has_no_bounds():
    model = chains(usual(np.random.default_rng(0)), 1e-8, 0.0)
    bounds = model.bounds()
    assert bounds is not None
    assert bounds.single.bounds() is None
