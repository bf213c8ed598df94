"""Curves against counting, and the false alarms of intervals."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

from ppmtf_jax.attacks.roc import Roc, auc_by_weights, bootstrap_interval
from ppmtf_jax.errors import InputError


def test_curves_with_ties_and_weights_agree_with_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    positive, negative = rng.integers(0, 9, 50) + 2.0, rng.integers(0, 9, 70).astype(float)
    weight = rng.integers(0, 4, 120).astype(float)
    labels, scores = np.repeat([1, 0], [50, 70]), np.concatenate([positive, negative])
    roc = Roc.of(positive, negative, weight)
    false_rate, true_rate, _ = roc_curve(labels, scores, sample_weight=weight, drop_intermediate=False)
    assert roc.false_positive_rate == pytest.approx(false_rate)
    assert roc.true_positive_rate == pytest.approx(true_rate)
    assert roc.auc == pytest.approx(roc_auc_score(labels, scores, sample_weight=weight))
    assert auc_by_weights(positive, negative)(*np.split(weight, [50])) == pytest.approx(roc.auc)
    assert roc.advantage == pytest.approx((true_rate - false_rate).max())


def test_thresholds_give_the_rates_they_stand_beside() -> None:
    rng = np.random.default_rng(1)
    positive, negative = rng.normal(1, 1, 40), rng.normal(0, 1, 60)
    roc = Roc.of(positive, negative)
    for threshold, true_rate, false_rate in zip(
        roc.threshold, roc.true_positive_rate, roc.false_positive_rate, strict=True
    ):
        assert (positive >= threshold).mean() == pytest.approx(true_rate)
        assert (negative >= threshold).mean() == pytest.approx(false_rate)
    half = roc.threshold_at(0.5)
    assert (positive >= half).mean() == 0.5
    assert roc.true_positive_rate_at(0.1) == (positive > np.sort(negative)[-7]).mean()


def test_scores_of_one_kind_or_without_a_value_are_refused() -> None:
    for positive, negative in (([], [1.0]), ([1.0], []), ([np.nan], [1.0])):
        with pytest.raises(InputError, match="both kinds"):
            Roc.of(np.array(positive), np.array(negative))


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    # 95 % of 200 intervals: 190, and 5 standard errors are 15; a bootstrap of 60 users is itself 1 % short.
    covered = 0
    for seed in range(200):
        values = np.random.default_rng(seed).normal(size=60)
        low, high = bootstrap_interval(lambda weight, x=values: float(np.average(x, weights=weight)), 60, seed=seed)
        covered += low < 0 < high
    assert 173 <= covered <= 200
