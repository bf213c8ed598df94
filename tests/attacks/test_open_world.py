"""Genuine scores and impostors, on scores made by hand."""

import numpy as np
import pytest

from ppmtf_jax.attacks.open_world import verification
from ppmtf_jax.attacks.trace_scores import TraceScores
from ppmtf_jax.errors import InputError


def scores_of(log_ratio: np.ndarray, user_ids: list[str], target_ids: list[str]) -> TraceScores:
    number = np.zeros(len(user_ids), int)
    return TraceScores(log_ratio, np.zeros_like(log_ratio), np.array(user_ids), number, np.array(target_ids))


HAND = scores_of(
    np.array([[5.0, 1.0], [2.0, 3.0], [0.0, -1.0], [4.0, 6.0]]), ["ann", "bob", "dan", "ann"], ["ann", "bob"]
)
TARGETS_ALONE = scores_of(HAND.log_ratio[[0, 1, 3]], ["ann", "bob", "ann"], ["ann", "bob"])


def test_impostors_are_strangers_or_else_other_targets() -> None:
    checked = verification(HAND)
    assert checked.genuine.tolist() == [5, 3, 4]
    assert checked.genuine_target.tolist() == [0, 1, 0]
    assert checked.impostor.tolist() == [[0, -1]]
    assert (checked.against, checked.n_users, checked.roc().auc) == ("strangers", 3, 1)
    checked = verification(TARGETS_ALONE)
    assert (checked.against, checked.n_users) == ("targets", 2)
    assert np.array_equal(checked.impostor, [[np.nan, 1], [2, np.nan], [np.nan, 6]], equal_nan=True)
    # Ann's 5 and 4 and Bob's 3 against 1, 2, 6: two of three each.
    assert checked.roc().auc == pytest.approx(2 / 3)


def test_weights_count_users_not_traces() -> None:
    # Ann's 5 and 4 and Bob's 3 against -1 and 0 of Dan: all higher.
    assert verification(HAND).auc_by_users()(np.array([2.0, 3.0, 5.0])) == 1
    auc = verification(TARGETS_ALONE).auc_by_users()
    # Genuine: Ann's 5 and 4 with weight 2 each, Bob's 3 with 3. Impostors, each of two users: 1, 2 and 6, 2 x 3 each.
    assert auc(np.array([2.0, 3.0])) == pytest.approx(2 / 3)
    # Without Bob there is nobody to be mistaken for.
    assert np.isnan(auc(np.array([1.0, 0.0])))


@pytest.mark.parametrize("n_strangers", [0, 3])
def test_areas_by_users_are_those_of_counting_pairs(n_strangers: int) -> None:
    """Whole numbers as scores, so that many are ties."""
    rng, targets = np.random.default_rng(n_strangers), list("abcde")
    users = [*targets * 2, *list("xyz")[:n_strangers]]
    checked = verification(scores_of(rng.integers(0, 6, (len(users), 5)).astype(float), users, targets))
    for weight in (np.ones(checked.n_users), rng.integers(0, 4, checked.n_users).astype(float)):
        won = total = 0.0
        for score, target in zip(checked.genuine, checked.genuine_target, strict=True):
            for impostor, user in zip(checked.impostor, checked.impostor_user, strict=True):
                of_impostor = weight[user + (len(targets) if n_strangers else 0)]
                for each, other in zip(impostor, weight[:5], strict=True):
                    if not np.isnan(each):
                        pair = weight[target] * of_impostor * other
                        won, total = won + pair * ((score > each) + 0.5 * (score == each)), total + pair
        assert checked.auc_by_users()(weight) == pytest.approx(won / total)
    assert checked.auc_by_users()(np.ones(checked.n_users)) == pytest.approx(checked.roc().auc)


def test_traces_of_strangers_alone_are_refused() -> None:
    with pytest.raises(InputError, match="some of users in the training traces"):
        verification(scores_of(np.zeros((1, 2)), ["dan"], ["ann", "bob"]))
