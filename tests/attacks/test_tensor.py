"""Factorization of transition counts, against the whole tensor, and the matrices that it predicts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from ppmtf_jax.attacks.estimators.base import estimate_transitions
from ppmtf_jax.attacks.estimators.group_norms import group_minimizer
from ppmtf_jax.attacks.estimators.tensor import (
    UPDATES,
    FactorizedCounts,
    Factors,
    Penalty,
    SparseTransitions,
    fit_factors,
    objective,
    start_factors,
)
from ppmtf_jax.data.runs import Transitions
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from tests.support import minutes, places_in_line, to_traces

N_USERS, N_PLACES, RANK = 5, 7, 3
GROUP = jnp.array([0, 0, 0, 1, 1, 2, 2])
PENALTIES = {"ridge": Penalty(0.3, 0.2), "group norm": Penalty(0.3, 0.0, 0.8, GROUP)}
PENALTIES["any norm"] = PENALTIES["group norm"]._replace(q=3.0)
N_SWEEPS = 2  # of most fits, so that they share a program
minimize_groups = jax.jit(group_minimizer, static_argnames="n_steps")
STEP = [jax.jit(update) for update in UPDATES]
VALUE = jax.jit(objective)
pytestmark = pytest.mark.usefixtures("float64")


def random_steps(seed: int = 0, n: int = 60) -> Transitions:
    """The last place is never left and the one before never entered; the last user makes no transition."""
    rng = np.random.default_rng(seed)
    place, next_place = rng.integers(N_PLACES - 1, size=n), rng.choice([0, 1, 2, 3, 4, 6], size=n)
    return Transitions(np.arange(n), np.sort(rng.integers(N_USERS - 1, size=n)), place, next_place)


STEPS = random_steps()


def transitions_of(steps: Transitions = STEPS) -> SparseTransitions:
    return SparseTransitions.of_steps(steps, N_USERS, N_PLACES)


def random_factors(seed: int = 0) -> Factors:
    rng = np.random.default_rng(seed)
    sizes = (N_PLACES, N_PLACES, N_USERS, N_PLACES, N_USERS, N_PLACES)
    return Factors(*(jnp.asarray(rng.uniform(0, 0.6, (n, RANK))) for n in sizes))


def dense_objective(factors: Factors, steps: Transitions, penalty: Penalty) -> float:
    """(15) or (18), with the tensor."""
    tensor = np.zeros((N_USERS, N_PLACES, N_PLACES))
    np.add.at(tensor, (steps.user, steps.place, steps.next_place), 1)
    place_a, next_a, user_b, next_b, user_c, place_c = (np.asarray(factor) for factor in factors)
    predicted = place_a @ next_a.T + (user_b @ next_b.T)[:, None] + (user_c @ place_c.T)[:, :, None]
    total = ((tensor - predicted)[tensor.sum(axis=2) >= 1] ** 2).sum()
    total += penalty.user_ridge * ((user_b**2).sum() + (user_c**2).sum())
    for matrix in (place_a, next_a, next_b, place_c):
        total += penalty.place_ridge * (matrix**2).sum()
        for group in range(3 if penalty.group is not None else 0):
            q = 2 if penalty.q is None else float(penalty.q)
            total += penalty.group_norm * np.linalg.norm(matrix[np.asarray(GROUP) == group], q, axis=0).sum()
    return float(total)


@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
def test_the_objective_is_that_of_the_whole_tensor(penalty: Penalty) -> None:
    factors = random_factors()
    assert float(VALUE(factors, transitions_of(), penalty)) == pytest.approx(
        dense_objective(factors, STEPS, penalty), rel=1e-12
    )


@pytest.mark.parametrize("q", [1.3, 2.0, 3.0, np.inf])
def test_the_minimum_with_any_norm_is_that_of_a_general_method(q: float) -> None:
    rng = np.random.default_rng(0)
    gradient, curvature = rng.normal(0.5, 1, size=(20, N_PLACES)), rng.uniform(0.1, 3, size=(20, N_PLACES))
    curvature[:10, 3], gradient[:10, 3] = 0, -0.1
    n_zero = 0
    for g, c in zip(gradient, curvature, strict=True):
        found = np.asarray(minimize_groups(g, c, 1.2, GROUP, jnp.asarray(q)))
        if q == 2:
            np.testing.assert_allclose(found, minimize_groups(g, c, 1.2, GROUP), atol=1e-7)
        for group in range(3):
            at = np.asarray(GROUP) == group

            def value(v: np.ndarray, c: np.ndarray = c[at], g: np.ndarray = g[at]) -> float:
                return float(c @ v**2 - 2 * g @ v + 1.2 * np.linalg.norm(v, q))

            # The dual: the minimum is - sum (g - u)+^2 / c, at the best u of a dual norm of at most 0.6. Here, moves
            # along and between the axes do not improve what was found, from small to large.
            n_zero += not found[at].any()
            best = value(found[at])
            for size in (1e-3, 1e-2, 0.1, 1.0):
                moved = np.maximum(0, found[at] + size * rng.normal(size=(200, at.sum())))
                assert best <= min(map(value, moved)) + 1e-12
            starts = (np.full(at.sum(), 0.3), found[at] + 0.01)
            ends = [minimize(value, s, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}) for s in starts]
            assert best <= min(value(np.maximum(0, end.x)) for end in ends) + 1e-9
    assert 3 < n_zero < 50


def test_a_norm_of_tiny_or_large_weight_neither_overflows_nor_moves_the_minimum() -> None:
    gradient, curvature = np.full(N_PLACES, 2.0), np.ones(N_PLACES)
    for q in (1.01, 2.5, np.inf):
        small = minimize_groups(gradient, curvature, 1e-9, GROUP, jnp.asarray(q))
        np.testing.assert_allclose(small, 2.0, rtol=1e-6)
        assert not np.asarray(minimize_groups(gradient, curvature, 1e9, GROUP, jnp.asarray(q))).any()
        # Just beyond the bound of the dual norm, all of a group are above 0; just within it, none is.
        dual, size = 1 / (1 - 1 / q), np.bincount(GROUP)[np.asarray(GROUP)]
        for norm in (1.02, 0.98):
            at = 0.6 * norm * size ** (-1 / dual)
            assert (np.asarray(minimize_groups(at, curvature, 1.2, GROUP, jnp.asarray(q))) > 0).all() == (norm > 1)


def minimized(factors: Factors, block: int, steps: Transitions, penalty: Penalty) -> float:
    """The least objective over the first column, all others being 0, by a general method from several starts."""

    def value(column: np.ndarray) -> float:
        return dense_objective(factors._replace(**{Factors._fields[block]: column[:, None]}), steps, penalty)

    n = len(factors[block])
    bounds = [(0, None)] * n
    starts = [np.full(n, 0.1), np.asarray(factors[block][:, 0])]
    found = [minimize(value, start, method="L-BFGS-B", bounds=bounds, options={"maxiter": 300}) for start in starts]
    return min(float(each.fun) for each in found)


@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
@pytest.mark.parametrize("block", range(6))
def test_each_update_is_the_minimum_over_a_column(block: int, penalty: Penalty) -> None:
    # Of rank 1, but for columns of zeros, for the same program as in other tests.
    factors = Factors(*(factor.at[:, 1:].set(0.0) for factor in random_factors(block)))
    updated = STEP[block](factors, transitions_of(), penalty)
    assert [number for number in range(6) if not np.array_equal(updated[number], factors[number])] == [block]
    assert (np.asarray(updated[block]) >= 0).all()
    assert not np.asarray(updated[block])[:, 1:].any()
    reached = dense_objective(updated, STEPS, penalty)
    # The general method stops a little above the minimum.
    first = Factors(*(factor[:, :1] for factor in map(np.asarray, factors)))
    assert reached <= minimized(first, block, STEPS, penalty) + 1e-9


def rises(penalty: Penalty, of_update: Penalty | None = None) -> list[float]:
    """By how much each update of a matrix changes the objective, over 30 sweeps."""
    factors, transitions = random_factors(), transitions_of()
    values = [float(VALUE(factors, transitions, penalty))]
    for _ in range(30):
        for update in STEP:
            factors = update(factors, transitions, of_update or penalty)
            values.append(float(VALUE(factors, transitions, penalty)))
    return np.diff(values).tolist()


@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
def test_no_update_raises_the_objective(penalty: Penalty) -> None:
    # Sums of some 300 squares below 10, in double precision.
    assert max(rises(penalty)) < 300 * 10 * 2.0**-52 * 10


@pytest.mark.parametrize(
    ("penalty", "wrong"),
    [
        (PENALTIES["ridge"], Penalty(0.3, 0.1)),
        (PENALTIES["ridge"], Penalty(0.15, 0.2)),
        (PENALTIES["group norm"], PENALTIES["group norm"]._replace(group_norm=1.6)),
        (PENALTIES["group norm"], PENALTIES["group norm"]._replace(group=GROUP[::-1])),
    ],
    ids=["half a ridge", "half a user ridge", "twice a norm", "wrong groups"],
)
def test_updates_of_another_objective_raise_it(penalty: Penalty, wrong: Penalty) -> None:
    assert max(rises(penalty, wrong)) > 1e-6


def test_a_sweep_is_the_updates_in_order() -> None:
    penalty, transitions = PENALTIES["group norm"], transitions_of()
    expected = start = random_factors()
    for update in STEP * N_SWEEPS:
        expected = update(expected, transitions, penalty)
    factors, objectives = fit_factors(start, transitions, penalty, N_SWEEPS)
    for factor, other in zip(factors, expected, strict=True):
        assert np.allclose(factor, other, rtol=1e-10, atol=1e-12)
    assert float(objectives[-1]) == pytest.approx(dense_objective(factors, STEPS, penalty))


def test_padding_changes_nothing() -> None:
    transitions, penalty = transitions_of(), PENALTIES["group norm"]
    fill = (N_USERS, N_PLACES, 0, N_USERS, N_PLACES, N_PLACES, 0)
    longer = SparseTransitions(
        *(
            jnp.asarray(np.pad(column, (0, 37), constant_values=value))
            for column, value in zip(transitions, fill, strict=True)
        )
    )
    one, other = (fit_factors(random_factors(), each, penalty, N_SWEEPS)[0] for each in (transitions, longer))
    assert all(np.allclose(a, b, rtol=1e-12) for a, b in zip(one, other, strict=True))
    starts = (start_factors(each, np.arange(N_USERS), N_PLACES, RANK, 0) for each in (transitions, longer))
    assert all(np.array_equal(a, b) for a, b in zip(*starts, strict=True))


def test_who_never_moved_and_what_nobody_left_have_no_factors() -> None:
    small = Factors(*(0.3 * factor for factor in random_factors()))
    factors, _ = fit_factors(small, transitions_of(), PENALTIES["group norm"], N_SWEEPS)
    found = Factors(*map(np.asarray, factors))
    for part in (found.user_b[-1], found.user_c[-1], found.place_a[-1], found.place_c[-1]):
        assert not part.any()
    assert found.user_b[:-1].any()
    assert found.place_a[:-1].any()


@pytest.mark.parametrize("spread", [0, 2, 6])
@pytest.mark.parametrize("group_norm", [1e-12, 0.1, 3.0, 50.0])
def test_group_minimum(spread: int, group_norm: float) -> None:
    """Its conditions hold: see the docstring of what is tested; curvatures differ by `spread` powers of ten."""
    rng = np.random.default_rng(spread)
    n_places = 200
    group = np.sort(rng.integers(40, size=n_places))
    curvature = 10 ** rng.uniform(-spread / 2, spread / 2, n_places)
    gradient = rng.normal(size=n_places) * 10 ** rng.uniform(-1, 1, n_places)
    found = minimize_groups(jnp.asarray(gradient), jnp.asarray(curvature), group_norm, jnp.asarray(group))
    for number in np.unique(group):
        inside = group == number
        v, c, g = np.asarray(found)[inside], curvature[inside], gradient[inside]
        if np.linalg.norm(np.maximum(g, 0)) <= group_norm / 2:
            assert not v.any()
            continue
        slope = c * v - g + group_norm / 2 * v / np.linalg.norm(v)
        assert np.abs(slope[v > 0]).max() < 1e-8 * np.abs(g).max()
        assert (v[g <= 0] == 0).all()
        assert (v[g > 0] > 0).all()


def test_curvatures_that_differ_need_newton() -> None:
    gradient, curvature = jnp.array([1.0, 2.0]), jnp.array([1.0, 5.0])
    group = jnp.array([0, 0])
    exact = minimize_groups(gradient, curvature, 1.0, group)
    assert not np.allclose(minimize_groups(gradient, curvature, 1.0, group, n_steps=0), exact, rtol=1e-2)
    even = minimize_groups(gradient, jnp.array([2.0, 2.0]), 1.0, group)
    assert np.allclose(minimize_groups(gradient, jnp.array([2.0, 2.0]), 1.0, group, n_steps=0), even, rtol=1e-12)


def toy_train() -> Traces:
    return toy_city(n_users=60, n_places=100, seed=0).traces


def survivors(start: Factors, transitions: SparseTransitions) -> int:
    """How many of the six matrices are not all zero after a fit."""
    factors, _ = fit_factors(start, transitions, Penalty(1e-3, 1e-3), 3)
    return sum(bool((np.asarray(factor) > 0).any()) for factor in factors)


def test_the_start_predicts_as_many_as_there_are_and_kills_no_matrix() -> None:
    train = toy_train()
    transitions = SparseTransitions.of_steps(train.transitions(), train.n_users, train.n_places)
    start = start_factors(transitions, train.user_ids, train.n_places, 16, seed=0)
    row = np.asarray(transitions.row_total) > 0
    user, place = np.asarray(transitions.row_user)[row], np.asarray(transitions.row_place)[row]
    place_a, next_a, user_b, next_b, user_c, place_c = map(np.asarray, start)
    predicted = place_a[place] @ next_a.T + user_b[user] @ next_b.T
    predicted += (user_c[user] * place_c[place]).sum(axis=1, keepdims=True)
    assert float(predicted.sum()) == pytest.approx(len(train.transitions().event))
    assert survivors(start, transitions) == 6
    # The start of the paper, in [0, 1).
    literal = Factors(*(jnp.asarray(factor / factor.max()) for factor in map(np.asarray, start)))
    assert survivors(literal, transitions) < 6


def test_a_start_depends_on_the_own_id() -> None:
    rng = np.random.default_rng(0)
    ids = np.array(["a", "b", "c", "d", "e"])
    order = rng.permutation(N_USERS)
    renamed = np.argsort(order)[STEPS.user]
    one = start_factors(transitions_of(), ids, N_PLACES, RANK, 0)
    other = start_factors(transitions_of(STEPS._replace(user=renamed)), ids[order], N_PLACES, RANK, 0)
    for factor, same in zip(one, other, strict=True):
        expected = np.asarray(factor)[order] if len(factor) == N_USERS else factor
        assert np.allclose(expected, same, rtol=1e-12)
    assert not np.allclose(one.user_b, start_factors(transitions_of(), ids, N_PLACES, RANK, 1).user_b)


def factorized(train: Traces, estimator: str, **settings: Any) -> FactorizedCounts:
    counts = estimate_transitions(train, estimator, **settings).counts
    assert isinstance(counts, FactorizedCounts)
    return counts


def test_predictions_are_sums_of_three_products() -> None:
    rng = np.random.default_rng(0)
    factors = Factors(*(jnp.asarray(rng.uniform(size=(n, 2)), jnp.float32) for n in (4, 4, 3, 4, 3, 4)))
    counts = FactorizedCounts(factors, np.zeros(1))
    predicted = np.asarray(counts.of_users(np.array([2, 0])))
    factors = Factors(*map(np.asarray, factors))
    for row, n in enumerate((2, 0)):
        for i in range(4):
            for j in range(4):
                expected = factors.place_a[i] @ factors.next_place_a[j] + factors.user_b[n] @ factors.next_place_b[j]
                expected += factors.user_c[n] @ factors.place_c[i]
                assert float(predicted[row, i, j]) == pytest.approx(float(expected), rel=1e-5)


SMALL: dict[str, dict[str, Any]] = {
    "tf": {"rank": 3, "n_sweeps": 20},
    "gstf": {"rank": 3, "n_sweeps": 20, "beta": 1e-3},
}


def test_one_user() -> None:
    alone = to_traces([(0, 0, instant, instant % 3) for instant in range(9)], places_in_line(5), minutes(10))
    matrix = np.asarray(estimate_transitions(alone, "tf", **SMALL["tf"]).of_users(np.array([0])))[0]
    assert matrix.sum(axis=1) == pytest.approx(np.ones(5), rel=1e-5)
    assert matrix[[0, 1, 2], [1, 2, 0]].min() > 0.8


def test_one_place() -> None:
    stays = to_traces([(user, 0, instant, 0) for user in (0, 1) for instant in (0, 1)], places_in_line(1), minutes(2))
    assert estimate_transitions(stays, "gstf", **SMALL["gstf"]).of_users(np.arange(2)).tolist() == [[[1.0]]] * 2


@pytest.mark.parametrize("estimator", SMALL)
def test_of_a_user_without_transitions_the_common_moves_are_predicted(estimator: str) -> None:
    moves = [(user, 0, instant, instant % 3) for user in range(5) for instant in range(9)]
    with_lost = to_traces([*moves, (5, 0, 0, 0), (5, 0, 2, 1)], places_in_line(4), minutes(10))
    counts = factorized(with_lost, estimator, **SMALL[estimator])
    factors, lost = counts.factors, np.asarray(counts.of_users(np.array([5])))[0]
    assert lost == pytest.approx(np.asarray(factors.place_a) @ np.asarray(factors.next_place_a).T, abs=1e-5)
