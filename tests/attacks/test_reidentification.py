"""Sparse counts and re-identification against loops, on traces that must be recognized, and that cannot be."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from ppmtf_jax.attacks import reidentify, scoring
from ppmtf_jax.attacks.scoring import attacked_traces, ml_transitions, products_in_blocks
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from tests.attacks.published_numbers import reid_rate
from tests.support import minutes, places_in_line, random_traces, to_traces, transitions_by_loop

PLACES, GRID = places_in_line(5), minutes(10)


def traces_of(seed: int, n_users: int, n_traces: int, *, keep: float = 1.0) -> Traces:
    return random_traces(seed, range(n_users), PLACES, GRID, n_traces=n_traces, keep=keep)


def guesses_by_loops(released: Traces, train: Traces) -> list[int]:
    over_gaps = released.n_events < len(released.trace_table()[0]) * GRID.n_instants
    of_train = transitions_by_loop(train, over_gaps=over_gaps)
    count, total = Counter((u, a, b) for u, _, a, b in of_train), Counter((u, a) for u, _, a, _ in of_train)
    steps = transitions_by_loop(released, over_gaps=over_gaps)
    guesses = []
    for user, number in zip(*released.trace_table(), strict=True):
        best, best_value = 0, -math.inf
        for n in range(train.n_users):
            value = 0.0
            for u, t, a, b in steps:
                if (u, t) == (user, number):
                    value += math.log(count[n, a, b] / total[n, a]) if (n, a, b) in count else math.log(1e-8)
            if value > best_value + 1e-9:
                best, best_value = n, value
        guesses.append(best)
    return guesses


@pytest.mark.parametrize("keep", [1.0, 0.7])
def test_guesses_equal_those_of_loops(keep) -> None:
    for seed in range(3):
        train = traces_of(seed, n_users=7, n_traces=2, keep=0.8)
        released = traces_of(100 + seed, n_users=7, n_traces=3, keep=keep)
        expected = guesses_by_loops(released, train)
        assert len(set(expected)) > 2
        assert reidentify(released, train).tolist() == expected


def test_the_first_user_wins_a_tie() -> None:
    rows = [(u, 0, i, p) for u, trace in enumerate([(0, 0), (1, 2), (1, 2)]) for i, p in enumerate(trace)]
    train = to_traces(rows, PLACES, GRID)
    assert reidentify(train, train).tolist() == [0, 1, 1]
    unknown = to_traces([(2, 0, 0, 4), (2, 0, 1, 3)], PLACES, GRID)
    assert reidentify(unknown, train).tolist() == [0]


def test_a_copied_trace_is_recognized_and_a_shift_of_labels_is_noticed() -> None:
    train = traces_of(0, n_users=60, n_traces=1)
    copied = to_traces(
        [(u, 0, i, p) for u, i, p in zip(train.user, train.instant, train.place, strict=True)], PLACES, GRID
    )
    # A user whose transitions contain all of another's, with greater probabilities, may win; nine in ten do not.
    assert reid_rate(copied, train) > 0.9
    shifted = replace(copied, user_ids=np.roll(copied.user_ids, 1))
    assert reid_rate(shifted, train) < 0.1


def test_independent_traces_are_recognized_at_chance() -> None:
    """Hits are independent; their probabilities add up to traces / users, so their variance is at most binomial.

    Five standard deviations of the binomial: a false alarm in about two million seeds.
    """
    n_users, n_traces = 40, 100
    train = traces_of(1, n_users=n_users, n_traces=1)
    released = traces_of(2, n_users=n_users, n_traces=n_traces)
    chance = 1 / n_users
    tolerance = 5 * math.sqrt(chance * (1 - chance) / (n_users * n_traces))
    assert abs(reid_rate(released, train) - chance) < tolerance
    # The same tolerance sees one copied trace in ten.
    copied = train.place.reshape(n_users, 10)
    partly = replace(released, place=released.place.copy())
    partly.place.reshape(n_users, n_traces, 10)[:, ::10] = copied[:, None]
    assert abs(reid_rate(partly, train) - chance) > tolerance


def test_released_users_may_be_a_subset_and_pooled_traces_are_one_guess_a_user() -> None:
    train = traces_of(0, n_users=30, n_traces=1)
    some = train.select_users(np.array([3, 17, 29]))
    assert reidentify(some, train).tolist() == [3, 17, 29]
    assert reid_rate(some, train) == 1.0
    many = traces_of(0, n_users=10, n_traces=4, keep=0.8)
    assert reidentify(many, many, pool_traces=True).tolist() == list(range(10))
    assert reid_rate(many, many, pool_traces=True) == 1.0


def test_without_transitions_the_rate_is_undefined_and_strangers_are_an_error() -> None:
    train = traces_of(0, n_users=3, n_traces=1)
    still = to_traces([(0, 0, 0, 1), (1, 0, 4, 2)], PLACES, GRID)
    assert math.isnan(reid_rate(still, train))
    assert math.isnan(reid_rate(still, still))
    assert reidentify(still, train).tolist() == [0, 0]
    with pytest.raises(InputError, match="users of the training set"):
        reid_rate(traces_of(0, n_users=4, n_traces=1), train)


def some_traces(seed: int, *users: int) -> Traces:
    """Traces with missing events, traces and users."""
    return random_traces(seed, users, places_in_line(4), minutes(8), n_traces=3, keep=0.7)


def test_ml_transitions_are_counts_over_row_sums() -> None:
    traces = some_traces(0, 3, 5, 9)
    count = Counter((u, a, b) for u, _, a, b in transitions_by_loop(traces))
    total = Counter((u, a) for u, _, a, _ in transitions_by_loop(traces))
    expected = {(u, a * 4 + b): n / total[u, a] for (u, a, b), n in count.items()}
    found = ml_transitions(traces).tocoo()
    assert dict(zip(zip(*found.coords, strict=True), found.data, strict=True)) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("pool", [False, True])
def test_attacked_traces_count_every_transition(pool: bool) -> None:
    """Over gaps, unless the traces are real ones."""
    traces = some_traces(1, 3, 5, 9)
    steps = transitions_by_loop(traces, over_gaps=not pool)
    expected = Counter((u, 0 if pool else t, a * 4 + b) for u, t, a, b in steps)
    found = attacked_traces(traces, pool_traces=pool)
    counts = found.counts.tocoo()
    where = zip(found.user[counts.row], found.number[counts.row], found.pairs[counts.col], strict=True)
    assert dict(zip([tuple(map(int, w)) for w in where], counts.data, strict=True)) == expected


def test_a_break_between_traces_is_no_transition_when_they_are_pooled() -> None:
    traces = to_traces([(0, 0, 0, 0), (0, 0, 1, 1), (0, 1, 2, 2), (0, 1, 3, 3)], places_in_line(4), minutes(4))
    assert attacked_traces(traces, pool_traces=True).pairs.tolist() == [0 * 4 + 1, 2 * 4 + 3]


@pytest.mark.parametrize("at_a_time", [1, 7, 2**23])
def test_blocks_make_up_the_whole_product(monkeypatch: pytest.MonkeyPatch, at_a_time: int) -> None:
    monkeypatch.setattr(scoring, "PRODUCTS_AT_A_TIME", at_a_time)
    rng = np.random.default_rng(0)
    dense, values = (rng.integers(0, 3, shape) * (rng.random(shape) < 0.3) for shape in ((11, 6), (6, 5)))
    blocks = list(products_in_blocks(sparse.csr_array(dense * 1.0), sparse.csr_array(values * 1.0)))
    assert [rows.start for rows, _ in blocks[1:]] == [rows.stop for rows, _ in blocks[:-1]]
    assert np.array_equal(np.concatenate([product.toarray() for _, product in blocks]), dense @ values)
    assert len(blocks) > 1 or at_a_time == 2**23


def test_pairs_that_nobody_made_and_pairs_nobody_asked_for() -> None:
    attacked, estimates = attacked_traces(some_traces(1, 3)), ml_transitions(some_traces(0, 1, 2))
    known = attacked.known_to(estimates).toarray()
    assert known.any()
    assert not known.all()
    assert np.array_equal(known, estimates.toarray().T[attacked.pairs])
