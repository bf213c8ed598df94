"""Counting, trimming and zero cells against plain loops and the official tensors."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ppmtf_jax.data import tensors
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.tensors import SparseCounts, Trimming, count_tensors, sample_zeros, zero_weights
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.people_flow import read_people_flow, read_tensor
from ppmtf_jax.errors import InputError

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


def sparse(dense: np.ndarray) -> SparseCounts:
    user, place, other = np.nonzero(dense)
    count = dense[user, place, other]
    return SparseCounts(*(a.astype(np.int32) for a in (user, place, other, count)), dense.shape)


def as_dict(counts: SparseCounts) -> dict[tuple[int, int, int], int]:
    cells = zip(counts.user.tolist(), counts.place.tolist(), counts.other.tolist(), strict=True)
    return dict(zip(cells, counts.count.tolist(), strict=True))


def cell_numbers(counts: SparseCounts, index: np.ndarray) -> np.ndarray:
    return (index[:, 0].astype(np.int64) * counts.shape[1] + index[:, 1]) * counts.shape[2] + index[:, 2]


def positive_numbers(counts: SparseCounts) -> np.ndarray:
    return cell_numbers(counts, np.stack([counts.user, counts.place, counts.other], axis=1))


# Counting


@pytest.mark.parametrize("trimming", [UNTRIMMED, Trimming(2, 3, 1), Trimming(8, None, 10)])
def test_blocks_of_users_change_nothing(monkeypatch, trimming):
    """Neither the counts nor which cells stay: only some users of Trimming(8, ...) have more than that."""
    traces = random_traces(0, n_users=20)
    whole = count_tensors(traces, trimming, seed=1)
    for size in (1, 7, 30):
        monkeypatch.setattr("ppmtf_jax.data.traces.PIECE_EVENTS", size)
        for found, expected in zip(count_tensors(traces, trimming, seed=1), whole, strict=True):
            for column, wanted in zip(found[:-1], expected[:-1], strict=True):
                np.testing.assert_array_equal(column, wanted, strict=True)
            assert found.shape == expected.shape
    n_cells = whole.transitions.positive_per_user()
    assert trimming is UNTRIMMED or n_cells.max() == trimming.max_transitions


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

    counts = count_tensors(traces, UNTRIMMED)

    assert as_dict(counts.transitions) == transitions
    assert as_dict(counts.visits) == visits
    assert counts.transitions.shape == (traces.n_users, 3, 3)
    assert counts.visits.shape == (traces.n_users, 3, 2)
    for tensor in counts:
        assert (np.diff(positive_numbers(tensor)) > 0).all()
        assert tensor.count.min(initial=1) >= 1
        assert tensor.positive_per_user().sum() == len(tensor.user)


def test_transitions_do_not_cross_traces_or_gaps():
    frame = pd.DataFrame({"user": 0, "trace": [0, 0, 1, 1], "instant": [0, 2, 3, 4], "place": [0, 1, 2, 0]})
    places = PlaceTable(np.arange(3), np.arange(3.0), np.arange(3.0))
    traces = Traces.from_frame(frame, places, TimeGrid.each_instant("2024-01-01T00:00:00", 60, 6))
    counts = count_tensors(traces, UNTRIMMED)
    assert as_dict(counts.transitions) == {(0, 2, 0): 1}
    assert as_dict(counts.visits) == {(0, 0, 0): 1, (0, 1, 2): 1, (0, 2, 3): 1, (0, 0, 4): 1}


def test_official_count_tensors_are_equal(people_flow):
    train, _ = read_people_flow(people_flow)
    # The official files hold whole counts, cut only while training; no user has more than 100 positive cells.
    counts = count_tensors(train, Trimming(max_count=None))
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
    whole = count_tensors(full_traces, UNTRIMMED)
    trimmed = count_tensors(full_traces, Trimming(max_transitions=4, max_visits=7, max_count=1), seed=3)
    for before, after, limit in zip(whole, trimmed, (4, 7), strict=True):
        assert (before.positive_per_user() > limit).any()
        np.testing.assert_array_equal(after.positive_per_user(), np.minimum(before.positive_per_user(), limit))
        assert (np.diff(positive_numbers(after)) > 0).all()
        cells = as_dict(before)
        assert max(cells.values()) > 1
        assert as_dict(after) == {cell: min(cells[cell], 1) for cell in as_dict(after)}


def test_default_trimming_is_the_published_one():
    assert Trimming() == Trimming(max_transitions=100, max_visits=100, max_count=10)


def test_trimming_is_seeded_and_chooses_every_cell_equally(full_traces):
    one_user = full_traces.select_users(np.array([0]))
    whole = count_tensors(one_user, UNTRIMMED).transitions
    kept = Counter()
    n_seeds, limit = 2000, 4
    for seed in range(n_seeds):
        trimmed = count_tensors(one_user, Trimming(max_transitions=limit), seed=seed).transitions
        kept.update(as_dict(trimmed).keys())
    again = count_tensors(one_user, Trimming(max_transitions=limit), seed=n_seeds - 1).transitions
    assert as_dict(again) == as_dict(trimmed)

    observed = np.array([kept[cell] for cell in as_dict(whole)])
    assert len(observed) > limit
    assert chi_square_of_subsets(observed, n_seeds, limit) < stats.chi2.isf(FALSE_ALARM, len(observed) - 1)


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
@pytest.mark.parametrize("value", [0, -1])
def test_trimming_refuses_limits_below_one(name, value):
    with pytest.raises(InputError, match=name):
        Trimming(**{name: value})


# Zero cells


def many_zeros(n_users: int = 6) -> SparseCounts:
    """Few positive cells of many: zeros are drawn by rejection."""
    rng = np.random.default_rng(0)
    dense = np.zeros((n_users, 12, 10), int)
    dense[rng.random(dense.shape) < 0.1] = 1
    dense[0] = 0
    dense[1, 0, 0] = dense[1, -1, -1] = 1
    return sparse(dense)


def few_zeros() -> SparseCounts:
    """Users with all, most, few and no cells positive: zeros are drawn by permutation."""
    dense = np.zeros((5, 4, 5), int)
    dense[1] = 1
    dense[2].flat[3:] = 2
    dense[3].flat[:17] = 1
    dense[4, 1, 2] = 3
    return sparse(dense)


@pytest.fixture
def paths_taken(monkeypatch):
    """Names of the ways in which ranks were drawn."""
    taken = set()
    for name in ("_distinct_by_permutation", "_distinct_by_rejection"):
        original = getattr(tensors, name)
        monkeypatch.setattr(tensors, name, lambda *a, n=name, o=original: taken.add(n) or o(*a))
    return taken


@pytest.mark.parametrize(
    ("counts", "n_zeros", "path"),
    [
        (many_zeros(), 20, "_distinct_by_rejection"),
        (many_zeros(), 1, "_distinct_by_rejection"),
        (many_zeros(), 60, "_distinct_by_permutation"),
        (few_zeros(), 2, "_distinct_by_permutation"),
        (few_zeros(), 3, "_distinct_by_permutation"),
        (few_zeros(), 1000, "_distinct_by_permutation"),
    ],
)
@pytest.mark.parametrize("users_at_a_time", [4096, 2])
def test_zeros_are_distinct_zero_cells_and_as_many_as_wanted(
    monkeypatch, paths_taken, counts, n_zeros, path, users_at_a_time
):
    monkeypatch.setattr(tensors, "USERS_AT_A_TIME", users_at_a_time)
    for seed in range(20):
        zeros = sample_zeros(counts, n_zeros, seed=seed)
        assert zeros.dtype == np.int32
        assert ((zeros >= 0) & (zeros < np.array(counts.shape))).all()
        numbers = cell_numbers(counts, zeros)
        assert len(np.unique(numbers)) == len(numbers)
        assert not np.isin(numbers, positive_numbers(counts)).any()
        available = counts.cells_per_user - counts.positive_per_user()
        np.testing.assert_array_equal(
            np.bincount(zeros[:, 0], minlength=counts.shape[0]), np.minimum(available, n_zeros)
        )
    assert paths_taken == {path}


def test_a_user_with_fewer_zeros_gets_all_of_them():
    counts = few_zeros()
    everything = np.setdiff1d(np.arange(np.prod(counts.shape)), positive_numbers(counts))
    np.testing.assert_array_equal(np.sort(cell_numbers(counts, sample_zeros(counts, 1000, seed=0))), everything)


def test_cells_of_many_users_are_numbered_beyond_32_bits():
    """Every user's first cell is positive, so the zero of rank r is cell r + 1: of the last user as of the first."""
    n_users = 3000
    user, zero = np.arange(n_users, dtype=np.int32), np.zeros(n_users, np.int32)
    counts = SparseCounts(user, zero, zero, zero + 1, (n_users, 1000, 1000))
    assert n_users * counts.cells_per_user > np.iinfo(np.int32).max
    rank = np.random.default_rng(0).integers(0, counts.cells_per_user - 1, (n_users, 2))
    np.testing.assert_array_equal(tensors._nth_zero_cell(counts, 0, rank), rank + 1)


def test_zeros_are_seeded():
    counts = many_zeros()
    np.testing.assert_array_equal(sample_zeros(counts, 5, seed=1), sample_zeros(counts, 5, seed=1))
    assert not np.array_equal(sample_zeros(counts, 5, seed=1), sample_zeros(counts, 5, seed=2))


def worst_chi_square(counts: SparseCounts, n_zeros: int, n_draws: int) -> float:
    """Largest chi-square of how often each zero cell of a user was drawn, in units of its threshold.

    The threshold is a quantile at `FALSE_ALARM` shared among the users (Bonferroni).
    """
    drawn = np.zeros(np.prod(counts.shape), int)
    for seed in range(n_draws):
        drawn[cell_numbers(counts, sample_zeros(counts, n_zeros, seed=seed))] += 1
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


UNIFORM_CASES = [(many_zeros(3), 25, 3000), (few_zeros(), 2, 3000)]


@pytest.mark.parametrize(("counts", "n_zeros", "n_draws"), UNIFORM_CASES, ids=["rejection", "permutation"])
def test_every_zero_cell_is_equally_probable(counts, n_zeros, n_draws):
    assert worst_chi_square(counts, n_zeros, n_draws) < 1


@pytest.mark.parametrize(("counts", "n_zeros", "n_draws"), UNIFORM_CASES, ids=["rejection", "permutation"])
def test_planted_bug_positive_cells_not_skipped_is_caught(monkeypatch, counts, n_zeros, n_draws):
    monkeypatch.setattr(tensors, "_nth_zero_cell", lambda counts, first, zero_rank: zero_rank)
    assert worst_chi_square(counts, n_zeros, n_draws) > 1


def test_planted_bug_draws_with_replacement_is_caught(monkeypatch):
    """Duplicates dropped afterwards leave the cells exchangeable but too few: the count test sees it."""

    def with_replacement(bound, n, rng):
        return (rng.random((len(bound), n)) * bound[:, None]).astype(np.int64)

    monkeypatch.setattr(tensors, "_distinct_by_rejection", with_replacement)
    counts = many_zeros()
    numbers = cell_numbers(counts, sample_zeros(counts, 25, seed=0))
    assert len(np.unique(numbers)) < len(numbers)


def test_planted_bug_rejection_that_prefers_small_ranks_is_caught(monkeypatch):
    """The smallest distinct ranks of a long enough sequence instead of its first."""

    def smallest(bound, n, rng):
        drawn = (rng.random((len(bound), 2 * n)) * bound[:, None]).astype(np.int64)
        return np.stack([np.unique(np.concatenate([row, np.arange(n)]))[:n] for row in drawn])

    monkeypatch.setattr(tensors, "_distinct_by_rejection", smallest)
    assert worst_chi_square(many_zeros(3), 25, 500) > 1


def test_zero_weights_make_all_zeros_weigh_what_the_sampled_ones_do():
    counts = few_zeros()
    # Users with 20, 0, 3, 3 and 19 zero cells; no weight is above 1.
    np.testing.assert_allclose(zero_weights(counts, 10), [10 / 20, 1, 1, 1, 10 / 19])
    np.testing.assert_allclose(zero_weights(counts, 2), [2 / 20, 1, 2 / 3, 2 / 3, 2 / 19])


def test_zero_weights_match_the_inclusion_probability_of_sampled_zeros():
    counts = many_zeros()
    zeros = sample_zeros(counts, 40, seed=0)
    available = counts.cells_per_user - counts.positive_per_user()
    np.testing.assert_allclose(zero_weights(counts, 40) * available, np.bincount(zeros[:, 0]))
