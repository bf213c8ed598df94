"""Sparse transition matrices and block products against plain loops."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy import sparse

from ppmtf_jax.attacks import scoring
from ppmtf_jax.attacks.estimators.ml import ml_transitions
from ppmtf_jax.attacks.scoring import attacked_traces, products_in_blocks
from ppmtf_jax.data.traces import Traces
from tests.support import minutes, places_in_line, random_traces, to_traces, transitions_by_loop


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
