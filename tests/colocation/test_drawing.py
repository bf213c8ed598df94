"""Meetings of synthetic friends: consistent whatever is drawn, and as probable as they should be."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ppmtf_jax.colocation import drawing
from ppmtf_jax.colocation.drawing import MeetingProbabilities, draw_meetings
from ppmtf_jax.colocation.friends import FriendGraph
from ppmtf_jax.errors import InputError
from tests.colocation.examples import random_friends

ABSENT = -1
# A statistical test fails by chance with this probability; a planted bug has to fall far below it.
BY_CHANCE = 1e-4


def random_probabilities(seed: int, n_instants: int, n_places: int) -> MeetingProbabilities:
    return MeetingProbabilities.of_counts(np.random.default_rng(seed).gamma(0.5, size=(n_instants, n_places)))


def couples(n: int) -> FriendGraph:
    """Everybody has one friend, so that no meeting depends on another."""
    return FriendGraph.from_pairs(np.arange(2 * n), np.arange(2 * n).reshape(n, 2))


def path(n: int) -> FriendGraph:
    return FriendGraph.from_pairs(np.arange(n), np.stack([np.arange(n - 1), np.arange(1, n)], axis=1))


def uniform(n_instants: int, n_places: int) -> MeetingProbabilities:
    return MeetingProbabilities.of_counts(np.ones((n_instants, n_places)))


# Probabilities


@pytest.mark.parametrize("seed", range(5))
def test_the_nearest_possible_counts(seed):
    """Those of the form max(count - t, 0) with the right sum, which is the condition for the nearest."""
    counts = np.random.default_rng(seed).normal(1, 3, (4, 6))
    made = MeetingProbabilities.of_counts(counts)
    total = np.maximum(counts.sum(axis=1), 0)
    assert made.instant == pytest.approx(total / total.sum())
    for row, share, whole in zip(counts, made.place, total, strict=True):
        if whole == 0:
            assert share == pytest.approx(np.full(6, 1 / 6))
            continue
        taken_off = row - share * whole
        there = share > 0
        assert np.ptp(taken_off[there]) == pytest.approx(0, abs=1e-9)
        assert (row[~there] <= taken_off[there].mean() + 1e-9).all()


def test_counts_without_noise_are_kept():
    counts = np.array([[3, 0, 1], [0, 0, 0], [0, 2, 2]])
    made = MeetingProbabilities.of_counts(counts.astype(float))
    assert made.instant.tolist() == [0.5, 0, 0.5]
    assert made.place == pytest.approx(np.array([[3 / 4, 0, 1 / 4], [1 / 3] * 3, [0, 1 / 2, 1 / 2]]))


def test_nothing_but_noise_below_zero_leaves_all_equally_probable():
    made = MeetingProbabilities.of_counts(np.full((2, 4), -1.0))
    assert made.instant.tolist() == [0.5, 0.5]
    assert made.place.tolist() == [[0.25] * 4] * 2


def test_shifted_as_published():
    made = MeetingProbabilities.as_published(np.array([[4.0, -1.0, 0.0], [1.0, 2.0, 1.0]]))
    assert made.instant.tolist() == [0.5, 0.5]
    assert made.place == pytest.approx(np.array([[5 / 6, 0, 1 / 6], [1 / 4, 2 / 4, 1 / 4]]))


# Consistency


@pytest.mark.parametrize("joining_probability", [0.0, 0.5])
@pytest.mark.parametrize("seed", range(5))
def test_who_meets_is_at_one_place_and_nobody_is_anywhere_else(seed, joining_probability):
    graph = random_friends(seed, n_users=12)
    n_wanted = graph.n_pairs
    drawn = draw_meetings(
        graph, random_probabilities(seed, 4, 5), n_wanted, joining_probability=joining_probability, seed=seed
    )
    assert len(set(zip(drawn.pair.tolist(), drawn.instant.tolist(), strict=True))) == n_wanted
    one, other = drawn.known[graph.pairs[drawn.pair].T, drawn.instant]
    assert (one == other).all()
    assert (one != ABSENT).all()
    meets = np.zeros(drawn.known.shape, bool)
    meets[graph.pairs[drawn.pair].T, drawn.instant] = True
    assert (meets == (drawn.known != ABSENT)).all()


def test_all_there_is_room_for_can_be_drawn():
    drawn = draw_meetings(couples(50), uniform(6, 7), 50 * 6, seed=0)
    assert (drawn.known != ABSENT).all()
    assert (drawn.known[::2] == drawn.known[1::2]).all()


def test_impossible_places_and_instants_are_never_drawn():
    counts = np.zeros((4, 6))
    counts[1, [0, 3]], counts[2, 5] = 1, 2
    drawn = draw_meetings(couples(100), MeetingProbabilities.of_counts(counts), 150, seed=1)
    assert set(drawn.instant.tolist()) == {1, 2}
    assert set(drawn.known[:, 1].tolist()) == {ABSENT, 0, 3}
    assert set(drawn.known[:, 2].tolist()) == {ABSENT, 5}


def test_the_same_seed_draws_the_same():
    made = [draw_meetings(path(30), uniform(3, 9), 40, joining_probability=0.3, seed=s).known for s in (1, 1, 2)]
    assert (made[0] == made[1]).all()
    assert (made[0] != made[2]).any()


# Probabilities of what is drawn


def place_p_values(probabilities: MeetingProbabilities, seed: int) -> np.ndarray:
    """One for each instant, of couples who meet at every instant: their places are independent."""
    n_instants = len(probabilities.instant)
    known = draw_meetings(couples(400), probabilities, 400 * n_instants, seed=seed).known[::2]
    return np.array(
        [
            stats.chisquare(np.bincount(known[:, t], minlength=4), 400 * probabilities.place[t]).pvalue
            for t in range(n_instants)
        ]
    )


SKEWED = MeetingProbabilities(np.full(3, 1 / 3), np.array([[4, 3, 2, 1], [1, 2, 3, 4], [1, 4, 4, 1]]) / 10)


def test_places_have_the_probabilities_of_their_instant():
    assert place_p_values(SKEWED, seed=3).min() > BY_CHANCE


def test_places_of_another_instant_are_found(monkeypatch):
    right = drawing._draw_places
    monkeypatch.setattr(drawing, "_draw_places", lambda of_place, instant, rng: right(of_place, instant * 0, rng))
    assert place_p_values(SKEWED, seed=3)[1:].max() < 1e-9


def instant_p_value(probabilities: MeetingProbabilities, expected: np.ndarray) -> float:
    """Of 300 meetings among 5,000 couples, so few that what was drawn before hardly matters."""
    drawn = draw_meetings(couples(5000), probabilities, 300, seed=5)
    return float(stats.chisquare(np.bincount(drawn.instant, minlength=4), 300 * expected).pvalue)


def test_instants_have_their_probabilities():
    counts = np.array([[1.0], [2.0], [3.0], [4.0]])
    assert instant_p_value(MeetingProbabilities.of_counts(counts), np.array([0.1, 0.2, 0.3, 0.4])) > BY_CHANCE
    assert instant_p_value(MeetingProbabilities.as_published(counts), np.full(4, 0.25)) > BY_CHANCE
    assert instant_p_value(MeetingProbabilities.as_published(counts), np.array([0.1, 0.2, 0.3, 0.4])) < 1e-9


@pytest.mark.parametrize("n_wanted", [400, 4500 * 4 - 10])
def test_friends_meet_in_proportion_to_their_level(n_wanted):
    """Of 6,000 couples, a quarter each of level 0, 1, 2 and 5; also where nearly all of those who may meet do so."""
    level = np.tile([0, 1, 2, 5], 1500)
    drawn = draw_meetings(couples(6000), uniform(4, 3), n_wanted, level=level, seed=7)
    n_drawn = np.bincount(level[drawn.pair], minlength=6)[[0, 1, 2, 5]]
    assert n_drawn[0] == 0
    if n_wanted == 400:
        assert stats.chisquare(n_drawn[1:], n_wanted * np.array([1, 2, 5]) / 8).pvalue > BY_CHANCE
        assert stats.chisquare(n_drawn[1:], np.full(3, n_wanted / 3)).pvalue < 1e-9
    with pytest.raises(InputError, match="from 1 to 18000 co-locations"):
        draw_meetings(couples(6000), uniform(4, 3), 18_001, level=level, seed=7)


def test_friends_of_level_0_are_not_asked_along():
    """Everybody is everybody's friend: of three friendships, two have level 0."""
    graph = random_friends(0, n_users=30, probability=1.0)
    level = (np.arange(graph.n_pairs) % 3 == 0).astype(int)
    drawn = draw_meetings(graph, uniform(24, 500), 300, joining_probability=0.5, level=level, seed=0)
    assert (level[drawn.pair] == 1).all()


TWO_PLACES = MeetingProbabilities(np.ones(1), np.array([[0.7, 0.3]]))


def five_sigma(probability: float, n: int) -> float:
    return 5 * np.sqrt(probability * (1 - probability) / n)


def test_two_meetings_on_a_path_against_enumeration():
    """Of a, b, c, d, each two of the three pairs are as probable; where ab and bc meet, all three are together."""
    n = 200
    made = [draw_meetings(path(4), TWO_PLACES, 2, seed=seed) for seed in range(n)]
    pairs = [tuple(drawn.pair.tolist()) for drawn in made]
    for both in ((0, 1), (0, 2), (1, 2)):
        assert abs(pairs.count(both) / n - 1 / 3) < five_sigma(1 / 3, n)
    for drawn, both in zip(made, pairs, strict=True):
        assert len(set(drawn.known[:, 0].tolist()) - {ABSENT}) == 1 or both == (0, 2)
    # ab and cd are at two places with probability 2 * 0.7 * 0.3.
    apart = [
        len(set(drawn.known[:, 0].tolist())) == 2 for drawn, both in zip(made, pairs, strict=True) if both == (0, 2)
    ]
    assert abs(np.mean(apart) - 0.42) < five_sigma(0.42, len(apart))


def test_who_is_elsewhere_does_not_meet():
    """ab and cd come before bc with probability 1/3, and are then apart with 0.42: no room for the third."""
    n, refusals = 200, []
    for seed in range(n):
        try:
            draw_meetings(path(4), TWO_PLACES, 3, seed=seed)
        except InputError as error:
            refusals.append(str(error))
            assert len(draw_meetings(path(4), TWO_PLACES, 3, seed=seed, allow_fewer=True).pair) == 2
    assert all("2 could be placed" in refusal for refusal in refusals)
    assert abs(len(refusals) / n - 0.14) < five_sigma(0.14, n)


def test_as_many_as_there_are_pairs_and_instants_at_most():
    with pytest.raises(InputError, match="from 1 to 3 co-locations"):
        draw_meetings(path(4), TWO_PLACES, 4, seed=0)
    assert len(draw_meetings(path(4), TWO_PLACES, 4, seed=0, allow_fewer=True).pair) in (2, 3)
    with pytest.raises(InputError, match="at least one friendship"):
        draw_meetings(
            FriendGraph.from_pairs(np.arange(2), np.zeros((0, 2), int)), TWO_PLACES, 4, seed=0, allow_fewer=True
        )


def test_friends_who_are_asked_along_make_larger_groups():
    graph = path(2000)

    def mean_group(joining_probability: float) -> float:
        drawn = draw_meetings(graph, uniform(24, 10_000), 1000, joining_probability=joining_probability, seed=0)
        user, instant = np.nonzero(drawn.known != ABSENT)
        return len(user) / len(np.unique(drawn.known[user, instant] * 24 + instant))

    # With none asked, nearly all are two: 1000 of 48,000 pairs and instants are seldom neighbours.
    assert mean_group(0.0) < 2.1
    # One more is asked on the average; half of those who are asked are the other of the two.
    assert mean_group(0.5) > 2.2


# Bad input


@pytest.mark.parametrize(
    ("graph", "n", "joining", "message"),
    [
        (path(1), 1, 0.0, "at least one friendship"),
        (path(3), 0, 0.0, "from 1 to 4 co-locations"),
        (path(3), 5, 0.0, "from 1 to 4 co-locations"),
        (path(3), 1, 1.0, "joining probability"),
        (path(3), 1, float("nan"), "joining probability"),
    ],
)
def test_what_cannot_be_drawn_is_refused(graph, n, joining, message):
    with pytest.raises(InputError, match=message):
        draw_meetings(graph, uniform(2, 3), n, joining_probability=joining, seed=0)
