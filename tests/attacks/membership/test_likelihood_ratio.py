"""Membership inference against a plain loop, on copied traces, and on traces of neither members nor others."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppmtf_jax.attacks import membership_advantage, membership_chance, membership_scores
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation import evaluate
from tests.attacks.published_numbers import mia_advantage
from tests.support import minutes, places_in_line, random_traces, transitions_by_loop


def traces_of(seed: int, users: range, n_traces: int = 1, *, n_places: int = 4, keep: float = 1.0) -> Traces:
    return random_traces(seed, users, places_in_line(n_places), minutes(8), n_traces=n_traces, keep=keep)


def scores_by_loops(
    released: Traces, train: Traces, test: Traces, *, leave_out: bool = True
) -> dict[tuple[int, int], float]:
    """Score by (trace number, user), test users after the training users."""
    over_gaps = released.n_events < len(released.trace_table()[0]) * 8
    of_train, of_test, released_steps = (transitions_by_loop(t, over_gaps=over_gaps) for t in (train, test, released))
    steps = of_train + [(train.n_users + u, t, a, b) for u, t, a, b in of_test]
    count = Counter((u, a, b) for u, _, a, b in steps)
    total = Counter((u, a) for u, _, a, _ in steps)
    own = {(u, a, b): n / total[u, a] for (u, a, b), n in count.items()}
    n_all = train.n_users + test.n_users
    scores = {}
    for n in range(n_all):
        for user, number in zip(*released.trace_table(), strict=True):
            ratio = 0.0
            for u, t, a, b in released_steps:
                if (u, t) != (user, number):
                    continue
                others = sum(own.get((m, a, b), 0.0) for m in range(n_all) if m != n or not leave_out) / (n_all - 1)
                ratio += math.log(own.get((n, a, b), 1e-8)) - math.log(others or 1e-8)
            key = int(number), n
            scores[key] = max(scores.get(key, -math.inf), ratio)
    return scores


@pytest.mark.parametrize(("seed", "keep"), [(0, 1.0), (1, 0.7)])
def test_scores_equal_those_of_loops(seed: int, keep: float) -> None:
    train = traces_of(seed, range(4), 2, keep=0.6)
    test = traces_of(50 + seed, range(4, 7), 2, keep=0.6)
    released = traces_of(100 + seed, range(4), 3, keep=keep)
    found = np.concatenate(membership_scores(released, train, test), axis=1)
    as_dict = {(t, n): found[t, n] for t in range(3) for n in range(7)}
    assert as_dict == pytest.approx(scores_by_loops(released, train, test), abs=1e-9)
    # The comparison notices a user's own matrix in the population.
    assert as_dict != pytest.approx(scores_by_loops(released, train, test, leave_out=False), abs=1e-2)


def test_a_transition_that_only_one_user_makes() -> None:
    """By hand: user 0 alone goes from 3 to 3; the others' probability is then the floor."""
    train, test = traces_of(0, range(3), n_places=3), traces_of(1, range(3, 5), n_places=3)
    frame = train.to_frame()
    places = places_in_line(4)
    frame.loc[frame.user == 0, "place"] = 3
    train, test = (Traces.from_frame(f, places, train.time_grid) for f in (frame, test.to_frame()))
    only = train.select_users(np.array([0]))
    members, others = membership_scores(only, train, test)
    assert members[0] == pytest.approx([7 * math.log(1 / 1e-8)] + 2 * [7 * math.log(1e-8 / (1 / 4))])
    assert others[0] == pytest.approx(2 * [7 * math.log(1e-8 / (1 / 4))])


@given(
    st.lists(st.integers(-3, 3), min_size=1, max_size=12),
    st.lists(st.integers(-3, 3), min_size=1, max_size=12),
)
def test_advantage_is_the_best_over_all_thresholds(members: list[int], others: list[int]) -> None:
    thresholds = [value + shift for value in range(-4, 5) for shift in (-0.5, 0.5)]
    rates = [np.mean(np.array(members) > t) - np.mean(np.array(others) > t) for t in thresholds]
    found = membership_advantage(np.array([members], float), np.array([others], float))
    assert found == pytest.approx(max(rates), abs=1e-12)
    assert 0 <= found <= 1


def test_copies_give_members_away_and_strangers_nothing() -> None:
    """With strangers, members and others are exchangeable: the advantage is the one-sided Smirnov statistic.

    It exceeds x with probability about exp(-2 x^2 n m / (n + m)); the tolerance is x at a probability of 1e-6.
    """
    n_members, n_others = 200, 150
    train, test = traces_of(0, range(n_members), n_places=8), traces_of(1, range(200, 200 + n_others), n_places=8)
    strangers = traces_of(2, range(1000, 1100), n_places=8)
    tolerance = math.sqrt(math.log(1e6) * (n_members + n_others) / (2 * n_members * n_others))
    assert mia_advantage(strangers, train, test) < tolerance
    # Half of the members' own traces among them are noticed, and copies if labels are exchanged.
    leaked = replace(strangers, place=train.place[:800])
    assert mia_advantage(leaked, train, test) > tolerance
    members, others = membership_scores(train, train, test)
    assert membership_advantage(members, others) > 0.9
    assert membership_advantage(others, members) < 0.1


# What is so by chance

N_SPLITS = 100


@pytest.mark.parametrize(("n_members", "n_others", "n_numbers"), [(3, 4, 2), (5, 2, 1), (7, 1, 3), (1, 6, 1)])
def test_chance_is_the_mean_over_all_splits_of_the_users(n_members: int, n_others: int, n_numbers: int) -> None:
    rng = np.random.default_rng(n_members)
    scores = rng.integers(4, size=(n_numbers, n_members + n_others)).astype(float)
    users = range(n_members + n_others)
    splits = [np.isin(users, chosen) for chosen in combinations(users, n_members)]
    advantages = [membership_advantage(scores[:, split], scores[:, ~split]) for split in splits]
    tolerance = 5 * np.std(advantages) / math.sqrt(N_SPLITS)
    found = membership_chance(scores[:, :n_members], scores[:, n_members:])
    assert found == pytest.approx(np.mean(advantages), abs=tolerance)
    assert membership_chance(np.zeros((2, 7)), np.zeros((2, 3))) == pytest.approx(0, abs=1e-12)


def test_scores_of_a_user_are_alike_and_stay_together() -> None:
    """Five numbers of which each user scores nearly the same give as much by chance as one number does."""
    n_experiments, n_numbers, n_members, n_others = 60, 5, 60, 40
    rng = np.random.default_rng(0)
    found = []
    for _ in range(n_experiments):
        usual = rng.normal(size=n_members + n_others)
        scores = usual + 0.1 * rng.normal(size=(n_numbers, n_members + n_others))
        split = np.split(scores, [n_members], axis=1)
        apart = np.split(rng.permuted(scores, axis=1), [n_members], axis=1)
        found.append([membership_advantage(*split), membership_chance(*split), membership_chance(*apart)])
    advantage, chance, apart = np.mean(found, axis=0)
    tolerance = 5 * math.hypot(*(np.std(found, axis=0, ddof=1)[:2] / math.sqrt(n_experiments)))
    assert advantage == pytest.approx(chance, abs=tolerance)
    # The same scores of which each number's are shuffled by themselves.
    assert advantage - apart > tolerance


def test_the_table_has_the_advantage_by_chance_and_the_number_of_traces() -> None:
    train, test = traces_of(0, range(30), n_places=8), traces_of(1, range(30, 50), n_places=8)
    synthetic = traces_of(2, range(30), 3, n_places=8)
    few = synthetic.select_traces(synthetic.trace_table()[1] == 0)
    evaluation = evaluate({"few": few, "all": synthetic}, train, test)
    attacked = {column: evaluation.value("n_attacked", column) for column in evaluation.columns}
    assert attacked == {"few": 30, "all": 90, "training": 30, "uniform": 90}
    for column, traces, pool in (("few", few, False), ("all", synthetic, False), ("training", train, True)):
        scores = membership_scores(traces, train, test, pool_traces=pool)
        assert evaluation.value("mia_advantage", column) == membership_advantage(*scores)
        assert evaluation.value("mia_chance", column) == membership_chance(*scores)
    assert 0 < evaluation.value("mia_chance", "uniform") < 1


def test_a_number_with_few_traces_counts_like_the_others() -> None:
    """After a privacy test some numbers keep only some of their traces."""
    train, test = traces_of(0, range(5)), traces_of(1, range(5, 10))
    released = traces_of(2, range(5), 3)
    kept = released.select_traces(np.arange(15) % 3 != 1)
    members, others = membership_scores(kept, train, test)
    all_members, all_others = membership_scores(released, train, test)
    assert np.array_equal(members, all_members[[0, 2]])
    assert np.array_equal(others, all_others[[0, 2]])


def test_without_transitions_the_advantage_is_undefined_and_users_in_both_sets_are_an_error() -> None:
    train, test = traces_of(0, range(3)), traces_of(1, range(3, 6))
    still = Traces.from_frame(train.to_frame().query("instant == 0"), train.places, train.time_grid)
    assert math.isnan(mia_advantage(still, train, test))
    assert math.isnan(mia_advantage(train, still, test))
    with pytest.raises(InputError, match="3 of 3 test users"):
        mia_advantage(train, train, train)
