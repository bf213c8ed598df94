"""Curves and intervals against counting; people beyond chance are rarely found where nothing leaks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ppmtf_jax.attacks.roc import Roc, bar_of_chance, bootstrap_interval, people_beyond_chance, roc_by_weights
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


N = 500
DRAWS = {
    "exponential": lambda rng: rng.exponential(size=(2, N)),
    "normal": lambda rng: rng.normal(size=(2, N)),
    "uniform": lambda rng: rng.random((2, N)),
    "ties": lambda rng: rng.poisson(1.0, size=(2, N)).astype(float),
}


def friends(rng: np.random.Generator) -> np.ndarray:
    """Scores of two sets of people; some of them know somebody of the release, so they score far higher."""
    return rng.exponential(size=(2, N)) + (rng.random((2, N)) < 0.015) * (4 + 6 * rng.exponential(size=(2, N)))


def n_above_bar(members: np.ndarray, others: np.ndarray) -> int:
    """The planted bug: the others alone tell what chance gives."""
    return int((members > bar_of_chance(others, N)).sum())


@pytest.mark.parametrize("name", [*DRAWS, "friends"])
def test_hardly_anybody_is_found_by_chance(name: str) -> None:
    """Of 300 releases without a leak, 15 have a person at most; a bar that ignores the tail has 150.

    With 15 expected, more than 30 have a probability below 0.0002. Two people: 7.5 by Markov's inequality, so above 18
    has one below 0.0005.
    """
    draw = DRAWS.get(name, friends)
    pairs = [draw(np.random.default_rng(seed)) for seed in range(300)]
    found = np.array([people_beyond_chance(*pair) for pair in pairs])
    assert (found > 0).sum() <= 30
    assert (found > 1).sum() <= 18
    assert sum(members.max() > others.max() for members, others in pairs) > 60
    alone = np.array([n_above_bar(*pair) for pair in pairs])
    assert ((alone > 0).sum() > 30) == (name == "friends")


def test_one_person_far_above_and_many_who_are_a_little_higher_are_found() -> None:
    members, others = DRAWS["exponential"](np.random.default_rng(0))
    assert people_beyond_chance(members, others) == 0
    for n_far in (1, 2, 3):
        assert people_beyond_chance(np.append(members, 40.0 * np.arange(1, n_far + 1)), others) == n_far
    moved = members + np.where(np.arange(N) < 40, 4.0, 0.0)
    assert 10 < people_beyond_chance(moved, others) <= 40
    # All are counted if all are far above the others.
    assert people_beyond_chance(members + 100, others) > 0.7 * N
    assert people_beyond_chance(members, others + 100) == 0
    # The lowest score that can count is a bar for single people alone.
    assert people_beyond_chance(np.append(members, 40.0), others, least=50.0) == 0


def test_sets_of_different_sizes_and_of_few_people_are_compared() -> None:
    rng = np.random.default_rng(0)
    few = [people_beyond_chance(rng.exponential(size=800), rng.exponential(size=60)) for _ in range(200)]
    # At most 12.5 are expected.
    assert sum(each > 0 for each in few) <= 25
    assert people_beyond_chance(np.array([9.0]), np.array([1.0])) == 0


def test_a_bar_is_read_off_where_there_are_many_scores() -> None:
    assert bar_of_chance(np.arange(10_000.0), 10, 0.05) == 10_000 - 50
    assert bar_of_chance(np.zeros(100), 10, 0.05) == bar_of_chance(np.arange(10.0), 10, 0.05) == math.inf


def test_tied_scores_hide_nobody() -> None:
    """Many members tied far above all others are counted, and a few where the scores of the others have no tail."""
    members, others = DRAWS["exponential"](np.random.default_rng(0))
    for n_tied in (3, 50, 200):
        tied = np.where(np.arange(N) < n_tied, 90.0, members)
        assert people_beyond_chance(tied, others, least=15.0) > 0.8 * n_tied - 2, n_tied
    few = np.where(np.arange(N) < 3, 50.0, 0.0)
    assert people_beyond_chance(few, np.zeros(N), least=15.0) == 3
    assert people_beyond_chance(few, np.zeros(N), least=60.0) == people_beyond_chance(few, np.zeros(N)) == 0
    # Others who are tied as high are as probable among the members.
    assert people_beyond_chance(few, few, least=15.0) == 0
    both = np.where(np.arange(N) < 50, 90.0, members)
    assert people_beyond_chance(both, np.where(np.arange(N) < 50, 90.0, others), least=15.0) == 0


def test_nobody_is_counted_without_members_or_without_others() -> None:
    assert people_beyond_chance(np.zeros(0), np.arange(20.0)) == 0
    assert people_beyond_chance(np.arange(20.0), np.zeros(0)) == 0
