"""Curves against counting, and how often intervals cover the truth."""

import numpy as np
import pytest

from ppmtf_jax.attacks.roc import Roc, bootstrap_interval, roc_by_weights
from ppmtf_jax.errors import InputError


def test_curves_with_ties_and_weights_are_those_of_counting() -> None:
    rng = np.random.default_rng(0)
    positive, negative = rng.integers(0, 9, 50) + 2.0, rng.integers(0, 9, 70).astype(float)
    for weight in (np.ones(120), rng.integers(1, 4, 120).astype(float)):
        of_positive, of_negative = weight[:50], weight[50:]
        roc = roc_by_weights(positive, negative)(weight)
        assert roc.threshold.tolist() == [np.inf, *range(10, -1, -1)]
        rates = [
            [of_kind[kind >= threshold].sum() / of_kind.sum() for threshold in roc.threshold]
            for kind, of_kind in ((positive, of_positive), (negative, of_negative))
        ]
        assert [roc.true_positive_rate, roc.false_positive_rate] == pytest.approx(np.array(rates))
        higher = (positive[:, None] > negative) + 0.5 * (positive[:, None] == negative)
        assert roc.auc == pytest.approx(np.average(higher, weights=of_positive[:, None] * of_negative))
        assert roc.advantage == pytest.approx(np.max(np.subtract(rates[0], rates[1])))


def test_the_rate_at_few_false_positives_is_not_interpolated() -> None:
    roc = Roc.of(np.arange(10.0) + 95, np.arange(100.0))
    assert [roc.true_positive_rate_at(rate) for rate in (0.01, 0.0)] == [0.6, 0.5]


def test_scores_of_one_kind_or_without_a_value_are_refused() -> None:
    for positive, negative in (([], [1.0]), ([1.0], []), ([np.nan], [1.0]), ([1.0], [np.inf])):
        with pytest.raises(InputError, match="finite scores of positives and of negatives"):
            Roc.of(np.array(positive), np.array(negative))


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    # 95 % of 100 intervals: 95, and 5 standard errors are 11; a bootstrap of 60 users is itself 1 % short.
    covered = 0
    for seed in range(100):
        values = np.random.default_rng(seed).normal(size=60)
        low, high = bootstrap_interval(lambda weight, x=values: float(np.average(x, weights=weight)), 60, seed=seed)
        covered += low < 0 < high
    assert 83 <= covered <= 100
