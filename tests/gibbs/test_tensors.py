"""Counting, trimming and zero cells against plain loops and the official tensors."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.people_flow import read_people_flow, read_tensor
from ppmtf_jax.errors import InputError
from ppmtf_jax.gibbs import tensors
from ppmtf_jax.gibbs.tensors import (
    SparseCounts,
    Trimming,
    count_tensors,
    distinct_ranks,
    nth_zero_cell,
    sample_zeros,
    zero_weights,
)
from ppmtf_jax.streams import Stage, UserStreams
from tests.tensors import sparse

UNTRIMMED = Trimming(None, None, None)
# A correct sampler fails a test at this level once in a million seeds; the seeds are fixed.
FALSE_ALARM = 1e-6


def random_traces(seed: int, *, n_users: int = 5, n_places: int = 3, keep: float = 0.7) -> Traces:
    """Three traces each over six instants in two cyclic slots; about `keep` of the events are there."""
    rng = np.random.default_rng(seed)
    rows = [(u, t, i, int(rng.integers(n_places))) for u in range(n_users) for t in range(3) for i in range(6)]
    frame = pd.DataFrame(rows, columns=["user", "trace", "instant", "place"])
    frame = frame[rng.random(len(frame)) < keep].sample(frac=1, random_state=seed)
    places = PlaceTable(np.arange(n_places), np.linspace(35, 36, n_places), np.linspace(139, 140, n_places))
    return Traces.from_frame(frame, places, TimeGrid("2024-01-01T00:00:00", 60, np.array([0, 1, 1, 0, 1, 1])))


def as_dict(counts: SparseCounts) -> dict[tuple[int, int, int], int]:
    cells = zip(counts.user.tolist(), counts.place.tolist(), counts.other.tolist(), strict=True)
    return dict(zip(cells, counts.count.tolist(), strict=True))


def cell_numbers(counts: SparseCounts, index: np.ndarray) -> np.ndarray:
    return (index[:, 0].astype(np.int64) * counts.shape[1] + index[:, 1]) * counts.shape[2] + index[:, 2]


def positive_numbers(counts: SparseCounts) -> np.ndarray:
    return cell_numbers(counts, np.stack([counts.user, counts.place, counts.other], axis=1))


# Counting


@pytest.mark.parametrize("trimming", [UNTRIMMED, Trimming(8, 3, 10)])
def test_blocks_of_users_change_nothing(monkeypatch, trimming):
    """Neither the counts nor which cells stay: only some users of Trimming(8, ...) have more than that."""
    traces = random_traces(0, n_users=20)
    whole = count_tensors(traces, trimming, seed=1)
    for size in (1, 7):
        monkeypatch.setattr("ppmtf_jax.data.traces.BLOCK_USERS", size)
        for found, expected in zip(count_tensors(traces, trimming, seed=1), whole, strict=True):
            for column, wanted in zip(found[:4], expected[:4], strict=True):
                np.testing.assert_array_equal(column, wanted, strict=True)
            assert found.shape == expected.shape
    n_cells = whole.transitions.positive_per_user()
    assert trimming is UNTRIMMED or n_cells.max() == trimming.max_transitions


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), keep=st.sampled_from([0.2, 0.7, 1.0]))
def test_counts_equal_those_of_a_loop(seed, keep):
    traces = random_traces(seed, keep=keep)
    place_at = {(u, t, i): p for u, t, i, p in traces.to_frame().itertuples(index=False, name=None)}
    index = {user: number for number, user in enumerate(traces.user_ids)}
    slot = traces.time_grid.slot_of_instant
    visits, transitions = Counter(), Counter()
    for (user, trace, instant), place in place_at.items():
        visits[index[user], place, slot[instant]] += 1
        following = place_at.get((user, trace, instant + 1))
        if following is not None:
            transitions[index[user], place, following] += 1

    counts = count_tensors(traces, UNTRIMMED, seed=0)

    assert as_dict(counts.transitions) == transitions
    assert as_dict(counts.visits) == visits
    assert counts.transitions.shape == (traces.n_users, 3, 3)
    assert counts.visits.shape == (traces.n_users, 3, 2)
    for tensor in counts:
        assert (np.diff(positive_numbers(tensor)) > 0).all()
        assert tensor.count.min(initial=1) >= 1
        assert tensor.positive_per_user().sum() == len(tensor.user)


def test_official_count_tensors_are_equal(people_flow):
    train, _ = read_people_flow(people_flow)
    # The official files hold whole counts, cut only while training; no user has more than 100 positive cells.
    counts = count_tensors(train, Trimming(max_count=None), seed=0)
    for ours, file in zip(
        counts, ("traintranstensor_TK_mnt100.csv.gz", "trainvisittensor_TK_mnv100.csv.gz"), strict=True
    ):
        official = read_tensor(people_flow / file)
        other = "next_place" if "next_place" in official else "slot"
        official = official.sort_values(["user", "place", other])
        for mine, column in zip(ours[:4], ("user", "place", other, "count"), strict=True):
            np.testing.assert_array_equal(mine, official[column])


# Trimming


@pytest.fixture(scope="module")
def full_traces():
    return random_traces(1, n_users=20, n_places=6, keep=1.0)


def test_trimming_keeps_exactly_so_many_cells_and_cuts_counts(full_traces):
    whole = count_tensors(full_traces, UNTRIMMED, seed=0)
    trimmed = count_tensors(full_traces, Trimming(max_transitions=4, max_visits=7, max_count=1), seed=3)
    for before, after, limit in zip(whole, trimmed, (4, 7), strict=True):
        assert (before.positive_per_user() > limit).any()
        np.testing.assert_array_equal(after.positive_per_user(), np.minimum(before.positive_per_user(), limit))
        assert (np.diff(positive_numbers(after)) > 0).all()
        cells = as_dict(before)
        assert max(cells.values()) > 1
        assert as_dict(after) == {cell: min(cells[cell], 1) for cell in as_dict(after)}


N_BUSY = 24


def busy_city() -> Traces:
    """Users each with far more different transitions than are kept."""
    traces = random_traces(2, n_users=N_BUSY, n_places=30, keep=1.0)
    return replace(traces, user_ids=np.array([f"user {number}" for number in range(N_BUSY)], object))


def total(transitions: SparseCounts) -> np.ndarray:
    """Counts of all users together."""
    counts = np.zeros(transitions.shape[1:], int)
    np.add.at(counts, (transitions.place, transitions.other), transitions.count)
    return counts


def largest_change(count_transitions, traces: Traces) -> int:
    """How much one user less changes the counts of all, in L1, at most: by leaving out each of them."""
    whole = total(count_transitions(traces))
    others = (np.delete(np.arange(traces.n_users), user) for user in range(traces.n_users))
    return max(int(np.abs(whole - total(count_transitions(traces.select_users(rest)))).sum()) for rest in others)


def test_one_user_less_changes_the_counts_of_all_by_no_more_than_theirs():
    """From traces to the sum, since what the others keep must not depend on who is there."""
    traces, trimming = busy_city(), Trimming(max_transitions=5, max_count=2)
    assert count_tensors(traces, UNTRIMMED, seed=0).transitions.positive_per_user().min() > 5
    assert 5 <= largest_change(lambda some: count_tensors(some, trimming, seed=0).transitions, traces) <= 5 * 2

    def trimmed_by_one_stream(some: Traces) -> SparseCounts:
        """Planted: users draw from a common stream, one after another."""
        whole = count_tensors(some, UNTRIMMED, seed=0).transitions
        drawn = np.random.default_rng(0).random(len(whole.user))
        order = np.lexsort((drawn, whole.user))
        number = np.arange(len(order)) - np.searchsorted(whole.user, whole.user)
        keep = np.empty(len(order), bool)
        keep[order] = number < 5
        kept = whole.select(keep)
        return kept._replace(count=np.minimum(kept.count, 2))

    assert largest_change(trimmed_by_one_stream, traces) > 10 * 5 * 2


def test_one_user_less_changes_no_others_counts():
    traces, trimming = busy_city(), Trimming(max_transitions=5, max_visits=6, max_count=2)
    whole = count_tensors(traces, trimming, seed=0)
    others = np.delete(np.arange(N_BUSY), 17)
    for found, expected in zip(count_tensors(traces.select_users(others), trimming, seed=0), whole, strict=True):
        expected = expected.select(expected.user != 17)
        np.testing.assert_array_equal(others[found.user], expected.user)
        for column in ("place", "other", "count"):
            np.testing.assert_array_equal(getattr(found, column), getattr(expected, column))


def test_trimming_is_seeded_and_chooses_every_cell_equally(full_traces):
    one_user = full_traces.select_users(np.array([0]))
    whole = count_tensors(one_user, UNTRIMMED, seed=0).transitions
    n_users, limit = 400, 4
    # Users who did the same: each draws from a stream of their own.
    frame = one_user.to_frame()
    alike = frame.loc[np.tile(frame.index, n_users)].assign(user=np.repeat(np.arange(n_users), len(frame)))
    alike = Traces.from_frame(alike, full_traces.places, full_traces.time_grid)
    trimmed, again, other = (
        count_tensors(alike, Trimming(max_transitions=limit), seed=seed).transitions for seed in (0, 0, 1)
    )
    assert as_dict(again) == as_dict(trimmed) != as_dict(other)

    kept = Counter(zip(trimmed.place.tolist(), trimmed.other.tolist(), strict=True))
    observed = np.array([kept[place, after] for _, place, after in as_dict(whole)])
    assert len(observed) > limit
    assert observed.sum() == n_users * limit
    assert chi_square_of_subsets(observed, n_users, limit) < stats.chi2.isf(FALSE_ALARM, len(observed) - 1)


def chi_square_of_subsets(observed: np.ndarray, n_draws: int, size: int) -> float:
    """Statistic of how often each of n cells was in a uniform subset of given size: chi-square with n - 1 degrees.

    The indicators of one draw have covariance p (1 - p) n / (n - 1) times the projection that removes the mean
    (p = size / n, sampling without replacement).
    """
    n = len(observed)
    p = size / n
    variance = n_draws * p * (1 - p) * n / (n - 1)
    return float(np.square(observed - n_draws * p).sum() / variance)


@pytest.mark.parametrize("name", ["max_transitions", "max_visits", "max_count"])
def test_trimming_refuses_limits_below_one(name):
    with pytest.raises(InputError, match=name):
        Trimming(**{name: 0})


# Zero cells


def many_zeros(n_users: int = 6) -> SparseCounts:
    """Few positive cells of many: few of a user's numbers are alike."""
    rng = np.random.default_rng(0)
    dense = np.zeros((n_users, 12, 10), int)
    dense[rng.random(dense.shape) < 0.1] = 1
    dense[0] = 0
    dense[1, 0, 0] = dense[1, -1, -1] = 1
    return sparse(dense)


def few_zeros() -> SparseCounts:
    """Users with all, most, few and no cells positive: some get all their zeros."""
    dense = np.zeros((5, 4, 5), int)
    dense[1] = 1
    dense[2].flat[3:] = 2
    dense[3].flat[:17] = 1
    dense[4, 1, 2] = 3
    return sparse(dense)


def zeros_of(counts: SparseCounts, n_zeros: int | np.ndarray, seed: int, **options) -> np.ndarray:
    return sample_zeros(counts, n_zeros, seed=seed, stage=Stage.ZERO_VISITS, **options)


ALL_BUT_ONE = np.array([119, 105, 100, 1, 0, 104])


@pytest.mark.parametrize(
    ("counts", "n_zeros"),
    [
        (many_zeros(), 20),
        (many_zeros(), ALL_BUT_ONE),
        (few_zeros(), 3),
        (few_zeros(), 1000),
        (few_zeros(), np.array([19, 3, 0, 2, 18])),
    ],
)
@pytest.mark.parametrize("numbers_at_a_time", [2**21, 300])
def test_zeros_are_distinct_zero_cells_and_as_many_as_wanted(monkeypatch, counts, n_zeros, numbers_at_a_time):
    """Also where almost all numbers of a user are alike, and whatever is held at a time."""
    wanted = {seed: zeros_of(counts, n_zeros, seed) for seed in range(2)}
    monkeypatch.setattr(tensors, "NUMBERS_AT_A_TIME", numbers_at_a_time)
    for seed in range(2):
        zeros = zeros_of(counts, n_zeros, seed)
        assert zeros.dtype == np.int32
        assert ((zeros >= 0) & (zeros < np.array(counts.shape))).all()
        numbers = cell_numbers(counts, zeros)
        assert (np.diff(numbers) > 0).all()
        assert not np.isin(numbers, positive_numbers(counts)).any()
        available = counts.cells_per_user - counts.positive_per_user()
        np.testing.assert_array_equal(
            np.bincount(zeros[:, 0], minlength=counts.shape[0]), np.minimum(available, n_zeros)
        )
        np.testing.assert_array_equal(zeros, wanted[seed])


def test_cells_of_many_users_are_numbered_beyond_32_bits():
    """Every user's first cell is positive, so the zero of rank r is cell r + 1: of the last user as of the first."""
    n_users = 3000
    user, zero = np.arange(n_users, dtype=np.int32), np.zeros(n_users, np.int32)
    counts = SparseCounts(user, zero, zero, zero + 1, (n_users, 1000, 1000), user)
    assert n_users * counts.cells_per_user > np.iinfo(np.int32).max
    rank = np.random.default_rng(0).integers(0, counts.cells_per_user - 1, 2 * n_users)
    np.testing.assert_array_equal(nth_zero_cell(counts, np.repeat(user, 2), rank), rank + 1)


@pytest.mark.parametrize("counts", [many_zeros(), few_zeros()])
@pytest.mark.parametrize("n_zeros", [25, np.array([7, 0, 30, 3, 1, 9])])
def test_one_user_less_changes_no_others_zeros(counts, n_zeros):
    """Users at other places of the tensor, with other neighbours, have the same zeros: only their ids count."""
    n_users = counts.shape[0]
    n_zeros = np.broadcast_to(n_zeros, 6)[:n_users]
    whole = zeros_of(counts, n_zeros, 0)
    for left_out in range(n_users):
        others = np.delete(np.arange(n_users), left_out)
        user = np.searchsorted(others, counts.user)
        renumbered = counts._replace(
            user=user.astype(np.int32), shape=(n_users - 1, *counts.shape[1:]), user_ids=counts.user_ids[others]
        )
        without = renumbered.select(counts.user != left_out)
        found = zeros_of(without, n_zeros[others], 0)
        found[:, 0] = others[found[:, 0]]
        np.testing.assert_array_equal(found, whole[whole[:, 0] != left_out])


def copies_of(counts: SparseCounts, n: int) -> SparseCounts:
    """A tensor of `n` users for each one, all with the same cells."""
    n_users = counts.shape[0]
    user = (n_users * np.arange(n)[:, None] + counts.user).ravel().astype(np.int32)
    place, other, count = (np.tile(column, n) for column in (counts.place, counts.other, counts.count))
    return SparseCounts(user, place, other, count, (n * n_users, *counts.shape[1:]), np.arange(n * n_users))


def worst_chi_square(counts: SparseCounts, n_zeros: int, n_draws: int) -> float:
    """Largest chi-square of how often each zero cell of a user was drawn, in units of its threshold.

    The threshold is a quantile at `FALSE_ALARM` shared among the users (Bonferroni).
    """
    zeros = zeros_of(copies_of(counts, n_draws), n_zeros, 0)
    # Each copy of a user draws from a stream of its own.
    zeros[:, 0] %= counts.shape[0]
    drawn = np.bincount(cell_numbers(counts, zeros), minlength=np.prod(counts.shape))
    positive = positive_numbers(counts)
    ratios = []
    for user in range(counts.shape[0]):
        cells = np.arange(counts.cells_per_user) + user * counts.cells_per_user
        zero = cells[~np.isin(cells, positive)]
        size = min(n_zeros, len(zero))
        if 0 < size < len(zero):
            threshold = stats.chi2.isf(FALSE_ALARM / counts.shape[0], len(zero) - 1)
            ratios.append(chi_square_of_subsets(drawn[zero], n_draws, size) / threshold)
    return max(ratios)


# The second has a user for whom most numbers are alike.
UNIFORM_CASES = [(many_zeros(3), 25, 500), (few_zeros(), 2, 500), (many_zeros(3), 100, 200)]


@pytest.mark.parametrize(("counts", "n_zeros", "n_draws"), UNIFORM_CASES)
def test_every_zero_cell_is_equally_probable(counts, n_zeros, n_draws):
    assert worst_chi_square(counts, n_zeros, n_draws) < 1


@pytest.mark.parametrize(("counts", "n_zeros", "n_draws"), UNIFORM_CASES[1:2])
def test_planted_bug_positive_cells_not_skipped_is_caught(monkeypatch, counts, n_zeros, n_draws):
    monkeypatch.setattr(tensors, "nth_zero_cell", lambda counts, user, zero_rank: zero_rank)
    assert worst_chi_square(counts, n_zeros, n_draws) > 1


def test_planted_bug_ranks_that_prefer_small_ones_are_caught(monkeypatch):
    """The smallest distinct numbers of a long enough sequence instead of the first."""

    def smallest(streams, users, bound, wanted):
        ranks = [
            np.unique(np.concatenate([(row * n).astype(int), np.arange(k)]))[:k]
            for row, n, k in zip(streams.numbers(users, 0, 128), bound, wanted, strict=True)
        ]
        return np.repeat(users, wanted), np.concatenate(ranks)

    monkeypatch.setattr(tensors, "distinct_ranks", smallest)
    assert worst_chi_square(many_zeros(3), 25, 500) > 1


def test_distinct_ranks_are_the_first_different_numbers_of_each_users_sequence():
    """By a loop; with bounds for which one block is more than enough, just not enough, and by far not enough."""
    streams = UserStreams.of(0, Stage.ZERO_VISITS, np.arange(5))
    users, bound, wanted = np.array([0, 1, 3, 4]), np.array([10**6, 150, 130, 7]), np.array([20, 100, 129, 7])
    user, rank = distinct_ranks(streams, users, bound, wanted)
    for each, n, k in zip(users, bound, wanted, strict=True):
        blocks = [streams.numbers(np.array([each]), block, tensors.BLOCK)[0] for block in range(40)]
        first = list(dict.fromkeys((np.concatenate(blocks) * n).astype(int).tolist()))[:k]
        assert rank[user == each].tolist() == sorted(first)
    assert user.tolist() == np.repeat(users, wanted).tolist()


def test_zero_weights_make_all_zeros_weigh_what_the_sampled_ones_do():
    counts = few_zeros()
    # Users with 20, 0, 3, 3 and 19 zero cells; no weight is above 1.
    np.testing.assert_allclose(zero_weights(counts, 10), [10 / 20, 1, 1, 1, 10 / 19])
    np.testing.assert_allclose(zero_weights(counts, 2), [2 / 20, 1, 2 / 3, 2 / 3, 2 / 19])
