"""The layout of observed cells: every cell is there once for each mode, and padding counts nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.gibbs import cells
from ppmtf_jax.gibbs.cells import CELLS_AT_A_TIME, MAX_TILE, MIN_TILE, TILE_COST, lay_out_cells, observe
from ppmtf_jax.tensors import CountTensors, SparseCounts, Trimming, count_tensors, zero_weights

SHAPE = (5, 4, 6)


def random_dense(seed: int, shape: tuple[int, int, int] = SHAPE) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.poisson(2.0, shape) * (rng.random(shape) < 0.3)


def sparse(dense: np.ndarray) -> SparseCounts:
    user, place, other = np.nonzero(dense)
    return SparseCounts(*(a.astype(np.int32) for a in (user, place, other, dense[user, place, other])), dense.shape)


@given(
    seed=st.integers(0, 10**6),
    min_tile=st.sampled_from([1, 4, 8]),
    at_a_time=st.sampled_from([1, 16, CELLS_AT_A_TIME]),
    n_cells=st.integers(0, 60),
)
def test_tiles_hold_every_cell_once_for_each_mode(seed, min_tile, at_a_time, n_cells):
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(int(np.prod(SHAPE)))[:n_cells]
    index = np.stack(np.unravel_index(chosen, SHAPE), axis=1).astype(np.int32)
    value, weight = rng.random((2, n_cells)).astype(np.float32) + np.float32(0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "MIN_TILE", min_tile)
        patch.setattr(cells, "CELLS_AT_A_TIME", at_a_time)
        observed = lay_out_cells(index, value, weight, SHAPE)
    wanted = sorted(zip(index.tolist(), value.tolist(), weight.tolist(), strict=True))
    for mode, tiles in enumerate(observed.by_mode):
        assert tiles.left.shape == tiles.right.shape == tiles.value.shape == tiles.weight.shape
        assert tiles.row.shape == tiles.value.shape[:2]
        width = tiles.value.shape[2]
        assert min_tile <= width <= MAX_TILE
        assert tiles.value.shape[1] * width <= max(at_a_time, width)
        # Weights are at least 0.5 here, so a weight of 0 marks padding.
        real = tiles.weight > 0
        assert (tiles.value[~real] == 0).all()
        row = np.broadcast_to(tiles.row[..., None], real.shape)[real]
        place = np.stack([tiles.left[real], tiles.right[real]], axis=1)
        found = np.insert(place, mode, row, axis=1)
        assert (
            sorted(zip(found.tolist(), tiles.value[real].tolist(), tiles.weight[real].tolist(), strict=True)) == wanted
        )


def dense_objective(dense: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    return float((weight * dense.astype(float) ** 2).sum()), float(weight.sum())


def test_sampled_zeros_are_stored_beside_the_counts():
    counts = CountTensors(sparse(random_dense(0)), sparse(random_dense(1, (5, 4, 3))))
    observed = observe(counts, "sampled", 7, seed=0)
    for name, tensor in zip(("transitions", "visits"), counts, strict=True):
        own = observed[name]
        tiles = own.by_mode[0]
        assert own.zero_weight is None
        zero = (tiles.weight == 1) & (tiles.value == 0)
        per_user = np.zeros(5, int)
        np.add.at(per_user, tiles.row, zero.sum(axis=-1))
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
    assert (stored.value > 0).sum() == (dense > 0).sum()
    # A cell of positive count weighs 1 in all, its stored part and its share in the dense part.
    held = stored.value > 0
    user = np.broadcast_to(stored.row[..., None], held.shape)[held]
    np.testing.assert_allclose(stored.weight[held] + weights[user], 1, rtol=1e-6)
    full = np.where(dense > 0, 1.0, weights[:, None, None])
    squares, total = dense_objective(dense, full)
    np.testing.assert_allclose([own.square_sum, own.total_weight], [squares, total], rtol=1e-6)


def test_a_user_whose_every_cell_is_positive():
    dense = np.ones(SHAPE, int)
    own = observe(CountTensors(sparse(dense), sparse(dense)), "weighted", 7, seed=0)["visits"]
    assert float(own.total_weight) == dense.size
    sampled = observe(CountTensors(sparse(dense), sparse(dense)), "sampled", 7, seed=0)["visits"]
    assert float(sampled.total_weight) == dense.size


def test_zeros_are_seeded_and_differ_between_the_tensors():
    counts = CountTensors(sparse(random_dense(3)), sparse(random_dense(3)))

    def users_of_zeros(seed: int, name: str) -> bytes:
        return b"".join(
            np.asarray(leaf).tobytes() for leaf in observe(counts, "sampled", 5, seed=seed)[name].by_mode[0]
        )

    assert users_of_zeros(1, "transitions") == users_of_zeros(1, "transitions")
    assert users_of_zeros(1, "transitions") != users_of_zeros(2, "transitions")
    assert users_of_zeros(1, "transitions") != users_of_zeros(1, "visits")


def test_trimming_and_zeros_of_one_seed_are_independent(monkeypatch):
    """No stream of random numbers is used twice. NumPy gives the seed (5, 0) the very stream of 5."""
    original, streams = np.random.default_rng, []

    def recorded(seed):
        streams.append(original(seed).bytes(16))
        return original(seed)

    traces = toy_city(n_users=5, seed=0).traces
    monkeypatch.setattr(np.random, "default_rng", recorded)
    observe(count_tensors(traces, Trimming(max_transitions=2), seed=5), "sampled", 3, seed=5)
    assert len(streams) == 3
    assert len(set(streams)) == 3


def test_at_least_one_zero():
    counts = CountTensors(sparse(random_dense(0)), sparse(random_dense(1)))
    with pytest.raises(InputError, match="n_zeros"):
        observe(counts, "sampled", 0, seed=0)


@pytest.mark.parametrize("lengths", [[0, 0], [1, 3, 5], [16], [100, 120, 7], [10**6], [40] * 30 + [2000]])
def test_tiles_have_the_cheapest_width(lengths):
    widths = range(MIN_TILE, MAX_TILE + 1, 8)
    cost = {w: sum(math.ceil(length / w) for length in lengths) * (w + TILE_COST) for w in widths}
    assert cost[cells._tile_width(np.array(lengths))] == min(cost.values())
