"""Verification and identification, on scores made by hand and drawn from known chains."""

import itertools

import numpy as np
import pytest

from ppmtf_jax.attacks.open_world import (
    NOBODY,
    best_candidate,
    expected_rates,
    max_score_rates,
    threshold_rule_rates,
    verification,
)
from ppmtf_jax.attacks.trace_scores import TraceScores
from ppmtf_jax.errors import InputError


def scores_of(log_ratio: np.ndarray, user_ids: list[str], target_ids: list[str]) -> TraceScores:
    """Scores with that log-ratio."""
    number = np.zeros(len(user_ids), int)
    return TraceScores(log_ratio, np.zeros_like(log_ratio), np.array(user_ids), number, np.array(target_ids))


HAND = scores_of(
    np.array([[5.0, 1.0], [2.0, 3.0], [0.0, -1.0], [4.0, 6.0]]), ["ann", "bob", "dan", "ann"], ["ann", "bob"]
)


def test_genuine_scores_are_users_own_and_impostors_are_strangers() -> None:
    checked = verification(HAND)
    assert checked.genuine.tolist() == [5, 3, 4]
    assert checked.genuine_target.tolist() == [0, 1, 0]
    assert checked.impostor.tolist() == [[0, -1]]
    assert checked.against == "strangers"
    assert checked.roc().auc == 1


def test_without_strangers_the_other_targets_are_impostors() -> None:
    known = np.array([0, 1, 3])
    checked = verification(scores_of(HAND.log_ratio[known], ["ann", "bob", "ann"], ["ann", "bob"]))
    assert checked.against == "targets"
    assert np.array_equal(checked.impostor, [[np.nan, 1], [2, np.nan], [np.nan, 6]], equal_nan=True)
    # Ann's 5 and 4 and Bob's 3 against 1, 2, 6: two of three each.
    assert checked.roc().auc == pytest.approx(2 / 3)


def test_weights_count_users_not_traces() -> None:
    auc = verification(HAND).auc_by_users()
    # Ann's 5 and 4 and Bob's 3 against -1 and 0 of Dan: all higher.
    assert auc(np.array([2.0, 3.0]), np.array([5.0])) == 1
    known = np.array([0, 1, 3])
    auc = verification(scores_of(HAND.log_ratio[known], ["ann", "bob", "ann"], ["ann", "bob"])).auc_by_users()
    # Genuine: Ann's 5 and 4 with weight 2 each, Bob's 3 with 3. Impostors, each of two users: 1, 2 and 6, 2 x 3 each.
    assert auc(np.array([2.0, 3.0]), np.array([2.0, 3.0])) == pytest.approx(2 / 3)
    # Without Bob there is nobody to be mistaken for.
    assert np.isnan(auc(np.array([1.0, 0.0]), np.array([1.0, 0.0])))


def test_rules_name_the_best_or_all_above_a_threshold() -> None:
    assert best_candidate(HAND.log_ratio, 3.5).tolist() == [0, NOBODY, NOBODY, 1]
    both = np.array([0, 1])
    # Ann's two traces and Bob's: 5 and 4 reach 3.5 for their own user, 3 does not; candidates 1, 0 and 2.
    assert threshold_rule_rates(HAND, 3.5, both) == (2 / 3, 0.0, 1.0)
    assert max_score_rates(HAND, 3.5, both) == (1 / 3, 0.0, 2 / 3)
    # With Ann alone, Bob's trace, whose 2 for her reaches 1, is not looked at: he is no stranger, as Dan is.
    assert threshold_rule_rates(HAND, 1.0, np.array([0])) == (1.0, 0.0, 1.0)
    assert max_score_rates(HAND, 1.0, np.array([0])) == (1.0, 0.0, 1.0)


def test_expected_rates_are_those_of_all_outcomes() -> None:
    """Every way in which three independent users reach the threshold or not, by its probability."""
    true_positive, false_positive = 0.7, 0.1
    candidates = candidate = 0.0
    for own, *others in itertools.product([0, 1], repeat=3):
        probability = np.prod([false_positive if other else 1 - false_positive for other in others])
        candidates += probability * (true_positive if own else 1 - true_positive) * (own + sum(others))
        of_stranger = probability * (false_positive if own else 1 - false_positive)
        candidate += of_stranger * (own or any(others))
    expected = (true_positive, candidate, candidates)
    assert expected_rates(true_positive, false_positive, 3) == pytest.approx(expected)


def test_rates_of_many_users_are_those_expected_of_one_if_scores_are_independent() -> None:
    rng = np.random.default_rng(0)
    n_targets, n_strangers, threshold = 10, 20_000, 2.0
    ids = [f"target {n}" for n in range(n_targets)]
    truth = np.repeat(np.arange(n_targets + 1), [*[2_000] * n_targets, n_strangers])
    own = np.arange(n_targets) == truth[:, None]
    scores = scores_of(rng.normal(np.where(own, 2.5, 0.0)), [[*ids, "stranger"][n] for n in truth], ids)
    one = threshold_rule_rates(scores, threshold, np.array([0]))
    found = threshold_rule_rates(scores, threshold, np.arange(n_targets))
    expected = expected_rates(0.6914624612740131, 0.02275013194817921, n_targets)
    # 5 standard errors of a share of 20,000 traces, and of a mean of up to 10 candidates.
    assert one.false_positive == pytest.approx(0.02275, abs=5 * 0.00106)
    assert found.true_positive == pytest.approx(expected.true_positive, abs=5 * 0.0033)
    assert found.false_positive == pytest.approx(expected.false_positive, abs=5 * 0.0029)
    assert found.n_candidates == pytest.approx(expected.n_candidates, abs=5 * 0.0046)


def test_scores_that_depend_on_each_other_break_the_formula() -> None:
    rng = np.random.default_rng(0)
    ids = [f"target {n}" for n in range(10)]
    scores = scores_of(np.tile(rng.normal(size=(20_000, 1)), 10), ["stranger"] * 20_000, ids)
    found = threshold_rule_rates(scores, 2.0, np.arange(10))
    assert abs(found.false_positive - expected_rates(0.0, 0.02275, 10).false_positive) > 0.15


def test_traces_of_strangers_alone_are_refused() -> None:
    with pytest.raises(InputError, match="some of users in the training traces"):
        verification(scores_of(np.zeros((1, 2)), ["dan"], ["ann", "bob"]))
