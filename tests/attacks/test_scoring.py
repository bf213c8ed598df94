"""Sparse transition matrices and block products against plain loops."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from ppmtf_jax.attacks import scoring as transition_estimators
from ppmtf_jax.attacks.estimators.ml import ml_transitions
from ppmtf_jax.attacks.scoring import attacked_traces, products_in_blocks
from ppmtf_jax.data.comparable import check_disjoint_users, check_same_places, training_user_of
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError


def make_places(n_places: int) -> PlaceTable:
    return PlaceTable(np.arange(n_places), np.linspace(35, 36, n_places), np.linspace(139, 140, n_places))


def random_traces(seed: int, *, users: list[int], n_traces: int = 3, n_instants: int = 8, n_places: int = 4) -> Traces:
    """Traces with missing events, traces and users."""
    rng = np.random.default_rng(seed)
    rows = [(u, t, i, rng.integers(n_places)) for u in users for t in range(n_traces) for i in range(n_instants)]
    frame = pd.DataFrame([row for row in rows if rng.random() < 0.7], columns=["user", "trace", "instant", "place"])
    return Traces.from_frame(frame, make_places(n_places), TimeGrid.each_instant("2024-01-01T00:00:00", 60, n_instants))


def transitions(traces: Traces) -> list[tuple[int, int, int, int]]:
    """(user, trace number, place, next place) of every transition."""
    events = list(zip(traces.user, traces.trace, traces.instant, traces.place, strict=True))
    at = {(int(u), int(t), int(i)): int(p) for u, t, i, p in events}
    return [(u, t, p, at[u, t, i + 1]) for (u, t, i), p in at.items() if (u, t, i + 1) in at]


@pytest.mark.parametrize("seed", range(3))
def test_ml_transitions_are_counts_over_row_sums(seed: int) -> None:
    traces = random_traces(seed, users=[3, 5, 9])
    count = Counter((u, a, b) for u, _, a, b in transitions(traces))
    total = Counter((u, a) for u, _, a, _ in transitions(traces))
    expected = {(u, a * 4 + b): n / total[u, a] for (u, a, b), n in count.items()}
    found = ml_transitions(traces)
    entries = zip(found.user.tolist(), found.pair.tolist(), found.probability.tolist(), strict=True)
    assert {(u, pair): p for u, pair, p in entries} == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("pool", [False, True])
def test_attacked_traces_count_every_transition(pool: bool) -> None:
    traces = random_traces(1, users=[3, 5, 9])
    expected = Counter((u, 0 if pool else t, a * 4 + b) for u, t, a, b in transitions(traces))
    found = attacked_traces(traces, pool_traces=pool)
    counts = found.counts.tocoo()
    where = zip(found.user[counts.row], found.number[counts.row], found.pairs[counts.col], strict=True)
    assert dict(zip([tuple(map(int, w)) for w in where], counts.data, strict=True)) == expected


def test_a_break_between_traces_is_no_transition_when_they_are_pooled() -> None:
    frame = pd.DataFrame({"user": 0, "trace": [0, 0, 1, 1], "instant": [0, 1, 2, 3], "place": [0, 1, 2, 3]})
    traces = Traces.from_frame(frame, make_places(4), TimeGrid.each_instant("2024-01-01T00:00:00", 60, 4))
    assert attacked_traces(traces, pool_traces=True).pairs.tolist() == [0 * 4 + 1, 2 * 4 + 3]


@pytest.mark.parametrize("at_a_time", [1, 7, 2**23])
def test_blocks_make_up_the_whole_product(monkeypatch: pytest.MonkeyPatch, at_a_time: int) -> None:
    monkeypatch.setattr(transition_estimators, "PRODUCTS_AT_A_TIME", at_a_time)
    rng = np.random.default_rng(0)
    dense, values = (rng.integers(0, 3, shape) * (rng.random(shape) < 0.3) for shape in ((11, 6), (6, 5)))
    blocks = list(products_in_blocks(sparse.csr_array(dense * 1.0), sparse.csr_array(values * 1.0)))
    assert [rows.start for rows, _ in blocks[1:]] == [rows.stop for rows, _ in blocks[:-1]]
    assert np.array_equal(np.concatenate([product.toarray() for _, product in blocks]), dense @ values)
    assert len(blocks) > 1 or at_a_time == 2**23


def test_pairs_that_nobody_made_and_pairs_nobody_asked_for() -> None:
    estimates = ml_transitions(random_traces(0, users=[1, 2]))
    row, kept = estimates.at_pairs(np.array([estimates.pair[0], 10**6]))
    assert set(kept.pair) == {estimates.pair[0]}
    assert set(row) == {0}


def test_different_places_are_named() -> None:
    first, second = random_traces(0, users=[1]), random_traces(0, users=[1], n_places=5)
    with pytest.raises(InputError, match="4 in train, 5 in test"):
        check_same_places(train=first, test=second)
    other = Traces.from_frame(first.to_frame().assign(place="x"), _renamed(first.places), first.time_grid)
    with pytest.raises(InputError, match=r"different ids or another order \(4 rows\)"):
        check_same_places(train=first, test=other)


def _renamed(places: PlaceTable) -> PlaceTable:
    return PlaceTable(np.array(["x", "y", "z", "w"], object), places.latitude, places.longitude)


def test_users_who_are_not_training_users_are_named() -> None:
    train = random_traces(0, users=[1, 2])
    assert training_user_of(random_traces(0, users=[2]), train).tolist() == [1]
    with pytest.raises(InputError, match="first: 77"):
        training_user_of(random_traces(0, users=[2, 77]), train)


def test_users_in_both_sets_are_named() -> None:
    train = random_traces(0, users=[1, 2])
    check_disjoint_users(train, random_traces(0, users=[3]))
    with pytest.raises(InputError, match=r"1 of 2 test users in the training set, first: 2"):
        check_disjoint_users(train, random_traces(0, users=[2, 3]))
