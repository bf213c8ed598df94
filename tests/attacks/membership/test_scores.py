"""What is said of scores: rates, intervals over users, and who is exposed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from ppmtf_jax.attacks.membership import MembershipScores, membership_advantage, membership_chance
from ppmtf_jax.attacks.roc import bar_of_chance
from ppmtf_jax.privacy.limits import Status, share_interval
from tests.attacks.loops import error_of_auc


def scores_of(members: np.ndarray, others: np.ndarray) -> MembershipScores:
    n_members, n_others = members.shape[1], others.shape[1]
    return MembershipScores(members, others, np.arange(n_members), 1000 + np.arange(n_others), "some")


def drawn(n_members: int, n_others: int, *, shift: float = 1.0, n_numbers: int = 1) -> MembershipScores:
    rng = np.random.default_rng(0)
    shape = (n_numbers, n_members)
    return scores_of(rng.normal(size=shape) + shift, rng.normal(size=(n_numbers, n_others)))


def test_numbers_are_those_of_the_curve() -> None:
    scores = drawn(40, 30, n_numbers=3)
    found = scores.summary()
    assert (found.attack, found.n_members, found.n_others, found.n_numbers) == ("some", 40, 30, 3)
    higher = scores.members.ravel()[:, None] > scores.others.ravel()
    assert found.auc.value == pytest.approx(higher.mean())
    assert found.advantage.value == pytest.approx(membership_advantage(scores.members, scores.others))
    assert found.chance == membership_chance(scores.members, scores.others)
    # None of 90 is below 1 %.
    strictest = np.mean(scores.members > scores.others.max())
    assert found.tpr_at_1_percent.value == pytest.approx(strictest)
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert set(content["auc"]) == {"value", "low", "high"}
    assert content["exposed"] == list(found.exposed)


def test_intervals_are_over_users_and_not_over_their_traces() -> None:
    """Nine traces that say the same as one make nobody more certain; as users of their own they would seem to."""
    one = drawn(60, 60)
    nine = scores_of(np.repeat(one.members, 9, axis=0), np.repeat(one.others, 9, axis=0))
    apart = scores_of(np.tile(one.members, 9), np.tile(one.others, 9))
    widths = [each.high - each.low for each in (s.estimate(lambda roc: roc.auc) for s in (one, nine, apart))]
    assert widths[1] == pytest.approx(widths[0])
    assert widths[2] == pytest.approx(widths[0] / 3, rel=0.3)


def test_the_interval_is_as_wide_as_theory_says() -> None:
    """For an AUC of one half, 2 x 1.96 standard errors; 200 resamples know the ends to about a tenth."""
    auc = drawn(200, 150, shift=0.0).estimate(lambda roc: roc.auc)
    error = error_of_auc(200, 150)
    assert auc.high - auc.low == pytest.approx(2 * 1.96 * error, rel=0.3)
    assert abs(auc.value - 0.5) < 5 * error


def test_one_user_of_each_kind_has_an_interval() -> None:
    found = scores_of(np.array([[1.0]]), np.array([[0.0]])).summary()
    assert (found.auc.value, found.auc.low, found.auc.high) == (1.0, 1.0, 1.0)
    assert found.exposed == ()


def test_the_exposed_users_score_above_all_that_chance_explains() -> None:
    """The highest of several trace numbers counts; more attacks need more evidence."""
    rng = np.random.default_rng(0)
    members, others = rng.normal(size=(2, 2, 200))
    members[0, 7], members[1, 3] = 50, 40
    found = scores_of(members, others)
    assert found.exposed() == found.summary(n_attacks=4).exposed == (7, 3)
    bar = bar_of_chance(others.max(axis=0), 200)
    members[0, 3], members[1, 3] = bar * 1.001, 0
    assert scores_of(members, others).exposed() == (7, 3)
    assert scores_of(members, others).exposed(n_attacks=4) == (7,)
    # Where one odd person is far above all others in any release, a single high score says nothing.
    assert replace(scores_of(members, others), one_tail=False).exposed() == ()


def test_tied_scores_cannot_tell_who_is_exposed() -> None:
    """Most scores of the others are tied, so they have no tail."""
    members = np.where(np.arange(200) < 3, 9.0, 0.0)[None]
    for others, status in ((np.zeros((1, 200)), Status.UNKNOWN), (np.linspace(0, 1, 200)[None], Status.POOR)):
        assert scores_of(members, others).summary().judgements()[1].status is status


def test_intervals_of_rates_hold_what_is_true_as_often_as_they_say() -> None:
    """Of members one standard deviation above others, of whom 9.2 % are above 99 % of these.

    An interval of 95 % misses the truth in 10 of 200 experiments on average; the tolerance is five standard deviations,
    10 + 5 sqrt(200 x .05 x .95) = 25.4. That of the members alone, which takes the threshold for known, misses more.
    """
    rng, true_rate = np.random.default_rng(0), float(norm.sf(norm.isf(0.01) - 1))
    missed = np.zeros(2)
    for _ in range(200):
        scores = scores_of(rng.normal(size=(1, 300)) + 1, rng.normal(size=(1, 500)))
        found = scores.true_positive_rate(0.01)
        assert found.low <= found.value <= found.high
        alone = share_interval(found.value, 300)
        missed += [not low <= true_rate <= high for low, high in ((found.low, found.high), alone)]
    assert missed[0] <= 25 < missed[1], missed


def test_none_found_of_few_is_not_none_of_all() -> None:
    """Of ten members below all others: up to 1 - .025^(1/10) may be found, by hand; resamples say none."""
    rate = scores_of(np.zeros((1, 10)), np.ones((1, 500))).true_positive_rate(0.01)
    assert (rate.value, rate.low) == (0.0, 0.0)
    assert rate.high == pytest.approx(1 - 0.025**0.1)
    every = scores_of(np.ones((1, 10)), np.zeros((1, 500))).true_positive_rate(0.01)
    assert (every.value, every.high) == (1.0, 1.0)
    assert every.low == pytest.approx(0.025**0.1)


def test_few_others_do_not_know_the_threshold() -> None:
    """That none of 436 is above 1 % has a probability of .99^367 = .02501, and of 368 one of .02476 < .025."""
    ends = [scores_of(np.ones((1, 50)), np.zeros((1, n))).true_positive_rate(0.01).low for n in (367, 368)]
    assert ends[0] == 0 < ends[1]
