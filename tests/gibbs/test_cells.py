"""The layout of observed cells: every cell is there once for each mode, and padding counts nothing."""

from __future__ import annotations

import math

import hypothesis
import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppmtf_jax.errors import InputError
from ppmtf_jax.gibbs import cells
from ppmtf_jax.gibbs.cells import (
    MAX_TILE,
    MIN_TILE,
    N_PARTS,
    TILE_COST,
    WIDTHS,
    Tiles,
    lay_out_cells,
    observe,
    pad_parts,
)
from ppmtf_jax.gibbs.tensors import ZERO_STAGES, CountTensors, sample_zeros, zero_weights
from ppmtf_jax.streams import Stage, UserStreams
from tests.tensors import sparse

SHAPE = (5, 4, 6)


def random_dense(seed: int, shape: tuple[int, int, int] = SHAPE) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.poisson(2.0, shape) * (rng.random(shape) < 0.3)


def held_cells(tiles: Tiles, mode: int, shape: tuple[int, int, int] = SHAPE) -> list[tuple[list[int], float]]:
    """Index and value of every cell that the chunks in use hold; a padded cell points past the last row."""
    found = []
    right = shape[2] if mode < 2 else shape[1]
    for rows, n_chunks, *chunks in zip(*tiles, strict=True):
        for row, lefts, rights, values in zip(*(leaf[:n_chunks] for leaf in chunks), strict=True):
            for tile, lane in zip(*np.nonzero(rights < right), strict=True):
                index = [int(lefts[tile, lane]), int(rights[tile, lane])]
                index.insert(mode, int(rows[row[tile]]))
                found.append((index, float(values[tile, lane])))
            assert (values[rights >= right] == 0).all()
    return sorted(found)


@hypothesis.settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    min_tile=st.sampled_from([1, 4, 8]),
    at_a_time=st.sampled_from([1, 16, 2**14]),
    rows_at_a_time=st.sampled_from([1, 2, 128]),
    n_devices=st.sampled_from([1, 3, 5]),
    n_cells=st.integers(0, 60),
)
def test_tiles_hold_every_cell_once_for_each_mode(seed, min_tile, at_a_time, rows_at_a_time, n_devices, n_cells):
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(int(np.prod(SHAPE)))[:n_cells]
    index = np.stack(np.unravel_index(chosen, SHAPE), axis=1).astype(np.int32)
    value = rng.random(n_cells).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "MIN_TILE", min_tile)
        patch.setattr(cells, "cells_at_a_time", lambda: at_a_time)
        patch.setattr(cells, "rows_at_a_time", lambda: rows_at_a_time)
        observed = pad_parts({"own": lay_out_cells(index, value, SHAPE)}, n_devices)["own"]
    wanted = sorted(zip(index.tolist(), value.tolist(), strict=True))
    for mode, tiles in enumerate(observed.by_mode):
        assert len({len(leaf) for leaf in tiles}) == 1
        assert len(tiles.rows) % n_devices == 0
        width = tiles.value.shape[-1]
        assert min_tile <= width <= MAX_TILE
        assert tiles.value.shape[2] * width <= max(at_a_time, width)
        assert held_cells(tiles, mode) == wanted
    users = observed.by_mode[0].rows
    assert users[users < SHAPE[0]].tolist() == list(range(SHAPE[0]))
    for tiles, right in zip(observed.by_mode[1:], (SHAPE[2], SHAPE[1]), strict=True):
        assert not tiles.n_chunks[N_PARTS:].any()
        tiles_of_part = np.count_nonzero((tiles.right[:N_PARTS] < right).any(axis=-1), axis=(1, 2))
        assert np.ptp(tiles_of_part) <= 1


def dense_objective(dense: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    return float((weight * dense.astype(float) ** 2).sum()), float(weight.sum())


def test_sampled_zeros_are_stored_beside_the_counts():
    counts = CountTensors(sparse(random_dense(0)), sparse(random_dense(1, (5, 4, 3))))
    observed = observe(counts, "sampled", 7, seed=0)
    for name, tensor in zip(("transitions", "visits"), counts, strict=True):
        own = observed[name]
        tiles = own.by_mode[0]
        assert own.zero_weight is None
        zeros = [index[0] for index, value in held_cells(tiles, 0, tensor.shape) if value == 0]
        per_user = np.bincount(zeros, minlength=5)
        np.testing.assert_array_equal(per_user, np.minimum(7, tensor.cells_per_user - tensor.positive_per_user()))
        assert float(own.square_sum) == (tensor.count**2).sum()
        assert float(own.total_weight) == len(tensor.user) + per_user.sum()


def test_weighted_zeros_are_not_stored():
    dense = random_dense(2)
    counts = CountTensors(sparse(dense), sparse(dense))
    own = observe(counts, "weighted", 7, seed=0)["transitions"]
    stored = own.by_mode[0]
    weights = zero_weights(counts.transitions, 7)
    np.testing.assert_allclose(own.zero_weight, weights, rtol=1e-7)
    assert held_cells(stored, 0) == [([int(i) for i in cell], float(dense[tuple(cell)])) for cell in np.argwhere(dense)]
    full = np.where(dense > 0, 1.0, weights[:, None, None])
    squares, total = dense_objective(dense, full)
    np.testing.assert_allclose([own.square_sum, own.total_weight], [squares, total], rtol=1e-6)


def test_zeros_of_the_two_tensors_and_trimming_are_of_streams_of_their_own():
    """No user's stream is used twice. Of an equal tensor the zeros would else be the same."""
    stages = [*ZERO_STAGES.values(), Stage.TRIMMED_TRANSITIONS, Stage.TRIMMED_VISITS]
    numbers = [UserStreams.of(5, stage, np.arange(3)).numbers(np.arange(3), 0, 4) for stage in stages]
    assert len(np.unique(numbers)) == 4 * 3 * 4
    counts = CountTensors(sparse(random_dense(3)), sparse(random_dense(3)))
    for name, tensor in counts._asdict().items():
        zeros = sample_zeros(tensor, 5, seed=5, stage=ZERO_STAGES[name])
        seen = held_cells(observe(counts, "sampled", 5, seed=5)[name].by_mode[0], 0)
        assert [index for index, value in seen if value == 0] == zeros.tolist()


def test_hidden_cells_are_observed_in_no_tensor():
    counts = CountTensors(sparse(random_dense(0)), sparse(random_dense(1)))
    hidden = {
        name: sample_zeros(tensor, 6, seed=1, stage=Stage.UNOBSERVED) for name, tensor in counts._asdict().items()
    }
    observed = observe(counts, "sampled", 1000, seed=0, hidden=hidden)
    for name, tensor in counts._asdict().items():
        seen = [index for index, _ in held_cells(observed[name].by_mode[0], 0)]
        everything = np.argwhere(np.ones(tensor.shape)).tolist()
        assert seen == [cell for cell in everything if cell not in hidden[name].tolist()]


def test_at_least_one_zero():
    counts = CountTensors(sparse(random_dense(0)), sparse(random_dense(1)))
    with pytest.raises(InputError, match="n_zeros"):
        observe(counts, "sampled", 0, seed=0)


@pytest.mark.parametrize("lengths", [[0, 0], [1, 3, 5], [16], [100, 120, 7], [10**6], [40] * 30 + [2000]])
def test_tiles_have_the_cheapest_width(lengths):
    widths = [width for width in WIDTHS if MIN_TILE <= width <= MAX_TILE]
    cost = {w: sum(math.ceil(length / w) for length in lengths) * (w + TILE_COST) for w in widths}
    assert cost[cells.tile_width(np.array(lengths))] == min(cost.values())


def test_other_zeros_have_the_same_shapes():
    """Otherwise every seed would compile the sampler anew. Of data as small as a few thousand cells it may."""
    rng = np.random.default_rng(0)
    dense = (rng.random((250, 100, 100)) < 0.02).astype(np.int8)
    counts = CountTensors(sparse(dense), sparse(dense[..., :6]))
    shapes = {
        tuple(np.shape(leaf) for leaf in jax.tree.leaves(observe(counts, "sampled", 500, seed=seed)))
        for seed in range(2)
    }
    assert len(shapes) == 1
