"""Transition matrices by tensor factorization."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.attacks.estimators.base import ESTIMATORS, estimate_transitions
from ppmtf_jax.attacks.estimators.tensor import FactorizedCounts
from ppmtf_jax.attacks.pairwise_factorization import Factors
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from tests.support import minutes, places_in_line, to_traces


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


def test_impossible_settings() -> None:
    wrong = {"floor": 0.0, "rank": 0, "alpha": 0.0, "n_sweeps": 0}
    with pytest.raises(InputError, match="(?s)" + ".*".join(f"{name} as" for name in wrong)):
        ESTIMATORS["tf"].settings(**wrong)


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


def test_another_seed_is_another_start() -> None:
    # As many users and places as above, for one program.
    train = to_traces([(u, 0, i, (u + i) % 4) for u in range(6) for i in range(6)], places_in_line(4), minutes(6))
    one, same, other = (factorized(train, "tf", **SMALL["tf"], seed=seed).factors for seed in (0, 0, 1))
    assert (one.user_b == same.user_b).all()
    assert not (one.user_b == other.user_b).all()
