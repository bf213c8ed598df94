"""Scores of attacked traces against sums over all hidden places, and genuine scores against impostors."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.attacks.estimators.base import estimate_transitions
from ppmtf_jax.attacks.trace_scores import TraceScores, score_traces, verification
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from ppmtf_jax.trace_models.population import stationary_distribution

PLACES = PlaceTable(np.arange(3), np.zeros(3), np.zeros(3))
GRID = TimeGrid.each_instant("2024-01-01T00:00:00", 3600, 8)


def traces_of(*walks: tuple[str, dict[int, int]]) -> Traces:
    """Traces of users, given as place by instant."""
    rows = [
        {"user": user, "trace": number, "instant": instant, "place": place}
        for number, (user, walk) in enumerate(walks)
        for instant, place in walk.items()
    ]
    return Traces.from_frame(pd.DataFrame(rows), PLACES, GRID)


TRAIN = traces_of(
    ("ann", {0: 0, 1: 1, 2: 0, 3: 0, 4: 2, 5: 1}), ("bob", {0: 1, 1: 2, 2: 2, 3: 1}), ("cleo", {0: 2, 1: 0, 2: 0, 3: 2})
)
ATTACKED = traces_of(
    ("bob", {0: 1, 1: 2, 2: 1}), ("dan", {0: 0, 3: 2, 4: 2, 6: 1}), ("ann", {2: 0}), ("ann", {0: 0, 1: 2, 7: 1})
)


def by_hand(matrix: np.ndarray, walk: dict[int, int]) -> float:
    """Probability of what is seen of a walk, summed over every place of every instant without an event."""
    first, last = min(walk), max(walk)
    hidden = [instant for instant in range(first, last) if instant not in walk]
    values, vectors = np.linalg.eig(matrix.T)
    stationary = np.real(vectors[:, np.argmax(np.real(values))])
    stationary /= stationary.sum()
    total = 0.0
    for guess in itertools.product(range(3), repeat=len(hidden)):
        whole = walk | dict(zip(hidden, guess, strict=True))
        steps = [matrix[whole[t], whole[t + 1]] for t in range(first, last)]
        total += stationary[walk[first]] * np.prod(steps)
    return float(np.log(total))


@pytest.mark.parametrize(("floor", "rows"), [(1e-8, 1), (1e-2, 1), (1e-2, 64)])
def test_scores_sum_over_deleted_places(floor: float, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `rows` of 1, only the rows of powers are computed where a step of this gap or a longer one begins."""
    monkeypatch.setattr("ppmtf_jax.attacks.trace_scores.ROWS", rows)
    matrices = estimate_transitions(TRAIN, "ml", floor=floor)
    own = np.asarray(matrices.of_users(np.arange(3)), np.float64)
    others = (own.sum(axis=0) - own) / 2
    scores = score_traces(ATTACKED, matrices)
    walks = {("bob", 0): {0: 1, 1: 2, 2: 1}, ("dan", 1): {0: 0, 3: 2, 4: 2, 6: 1}}
    walks |= {("ann", 2): {2: 0}, ("ann", 3): {0: 0, 1: 2, 7: 1}}
    for row, key in enumerate(zip(scores.user_ids.tolist(), scores.number.tolist(), strict=True)):
        # Matrices by hand are in single precision.
        assert scores.own[row] == pytest.approx([by_hand(own[n], walks[key]) for n in range(3)], rel=1e-4)
        assert scores.others[row] == pytest.approx([by_hand(others[n], walks[key]) for n in range(3)], rel=1e-4)
    assert scores.truth.tolist() == [0, 0, 1, -1]


def test_beyond_the_longest_gap_a_trace_begins_anew() -> None:
    matrices = estimate_transitions(TRAIN)
    cut = score_traces(traces_of(("ann", {0: 0, 4: 1})), matrices, max_gap=3)
    apart = score_traces(traces_of(("ann", {0: 0}), ("ann", {0: 1})), matrices)
    assert cut.own[0] == pytest.approx(apart.own.sum(axis=0))
    linked = score_traces(traces_of(("ann", {0: 0, 4: 1})), matrices, max_gap=4)
    assert not np.allclose(linked.own, cut.own)


def test_uniform_first_places_leave_only_transitions() -> None:
    matrices = estimate_transitions(TRAIN)
    own = np.asarray(matrices.of_users(np.arange(3)))
    scores = score_traces(traces_of(("bob", {0: 1, 1: 2})), matrices, first_place="uniform")
    assert scores.own[0] == pytest.approx(np.log(own[:, 1, 2] / 3), rel=1e-6)


def test_combined_traces_add_up_and_batches_of_users_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    matrices = estimate_transitions(TRAIN)
    scores = score_traces(ATTACKED, matrices)
    combined = scores.combined()
    assert combined.user_ids.tolist() == ["ann", "bob", "dan"]
    assert combined.log_ratio[0] == pytest.approx(scores.log_ratio[scores.user_ids == "ann"].sum(axis=0))
    monkeypatch.setattr("ppmtf_jax.attacks.trace_scores.BATCH_ENTRIES", 1)
    assert score_traces(ATTACKED, matrices).log_ratio == pytest.approx(scores.log_ratio, rel=1e-12)


def test_a_stationary_distribution_stays_though_a_chain_hardly_mixes() -> None:
    found = stationary_distribution(np.array([[1 - 1e-8, 1e-8], [3e-8, 1 - 3e-8]]))
    assert found == pytest.approx([0.75, 0.25], rel=1e-6)


def test_what_cannot_be_scored_is_refused() -> None:
    one = traces_of(("ann", {0: 0, 1: 1}))
    with pytest.raises(InputError, match="training traces of at least 2 users"):
        score_traces(one, estimate_transitions(one))
    with pytest.raises(InputError, match="max_gap of at least 1"):
        score_traces(one, estimate_transitions(TRAIN), max_gap=0)
    with pytest.raises(InputError, match="at least one transition"):
        estimate_transitions(traces_of(("ann", {0: 0}), ("bob", {0: 1})))


def test_people_are_found_who_are_named_right_with_better_odds_than_the_wrong_ones() -> None:
    """Two traces of each of 200 targets; two people may be named wrongly, for one of 100."""
    truth = np.repeat(np.arange(200), 2)
    scores, row = np.zeros((400, 200)), np.arange(400)
    scores[row, truth] = np.where(row % 2, 1.0, 4.0)
    # Three people are named wrongly with high odds: the third of them is the bar.
    for wrong, (trace, odds) in enumerate(((0, 9.0), (2, 8.0), (4, 3.0))):
        scores[trace] = 0.0
        scores[trace, 150 + wrong] = odds
    found = TraceScores(scores, np.full((400, 200), -99.0), truth, np.arange(400), np.arange(200))
    # The other traces of all but three have better odds than the third.
    assert found.found() == 197 / 200
    # If nobody may be named wrongly, nobody is named.
    assert found.found(0.0) == 0
    # If all may be, all are found by one of their traces.
    assert found.found(0.02) == 1
    # If all traces are alike, all get one name.
    assert TraceScores(0 * scores, found.others, truth, np.arange(400), np.arange(200)).found() == 1 / 200


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


def test_rules_are_those_of_counting_and_independent_scores_do_as_expected() -> None:
    """Section III-C and III-D: 6 targets, 4,000 traces of theirs and 4,000 of strangers."""
    rng = np.random.default_rng(0)
    n, targets = 6, [f"t{number}" for number in range(6)]
    users = [*(targets * 4000)[:4000], *["stranger"] * 4000]
    ratio = rng.normal(size=(8000, n))
    own = np.arange(4000) % n
    ratio[np.arange(4000), own] += 1.5
    scores = scores_of(ratio, users, targets)
    for few in (scores, scores.of_targets(np.array([0, 4]))):
        rules = few.open_world(0.2)
        here = few.log_ratio >= rules.threshold
        is_target = few.truth >= 0
        best = few.log_ratio.argmax(axis=1)
        named = np.where(here.any(axis=1), best, -1)
        np.testing.assert_array_equal(few.candidates(rules.threshold), here)
        np.testing.assert_array_equal(few.named(rules.threshold), named)
        assert rules.pair_false <= 0.2 < (few.log_ratio[~is_target] >= rules.threshold - 1e-3).mean()
        assert rules.n_targets == here.shape[1]
        assert rules.named_right == np.mean(named[is_target] == few.truth[is_target])
        assert rules.named_wrong == pytest.approx(np.mean((named != few.truth)[is_target & (named >= 0)]) *
                                                  np.mean(named[is_target] >= 0))  # fmt: skip
        assert rules.pair_true == pytest.approx(here[is_target, few.truth[is_target]].mean())
        # (7) and (10), within five standard deviations of shares of a thousand traces and more.
        n_strangers = (~is_target).sum()
        assert abs(rules.false_alarms - rules.expected_false_alarms) < 5 * (0.25 / n_strangers) ** 0.5
        assert abs(rules.n_candidates - rules.expected_candidates) < 5 * (rules.n_targets / 4 / is_target.sum()) ** 0.5
        assert rules.false_alarms > 1.5 * rules.pair_false
    assert np.isnan(scores_of(ratio[:4000], users[:4000], targets).open_world(0.2).false_alarms)
    # Scores of pairs that depend on each other give fewer alarms than (7) expects: a planted violation is seen.
    alike = scores_of(np.concatenate([ratio[:4000], ratio[4000:, :1].repeat(n, axis=1)]), users, targets)
    rules = alike.open_world(0.2)
    assert rules.false_alarms < rules.expected_false_alarms - 5 * (0.25 / 4000) ** 0.5


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
