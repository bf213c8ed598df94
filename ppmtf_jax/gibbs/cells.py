"""The observed cells of count tensors, laid out so that a sweep reads them in order.

For each mode of a tensor its cells are sorted by that mode's index and cut into tiles: each tile holds cells of one row
only and is padded to a fixed width, so that a row's statistics are sums of small matrix products. A padded cell has
weight 0 and value 0, hence counts nothing.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.tensors import CountTensors, SparseCounts, sample_zeros, zero_weights

# A chunk's design (64 bytes a cell at rank 16) should stay in the level-2 cache.
CELLS_AT_A_TIME = 2**15
MIN_TILE, MAX_TILE = 8, 320
# What a tile costs beside its cells, in cells: its product's result is added to the row.
TILE_COST = 16
N_MODES = 3


class Tiles(NamedTuple):
    """Cells of one tensor grouped by one of its modes, in chunks that are processed one after another.

    Attributes
    ----------
    row : int32, shape (chunks, tiles)
        Row of this mode's factor that each tile belongs to.
    left, right : int32, shape (chunks, tiles, width)
        Rows of the other two modes' factors, in the order of the modes.
    value : float32, shape (chunks, tiles, width)
    weight : float32, shape (chunks, tiles, width)
    """

    row: Int[Array, "chunk tile"]
    left: Int[Array, "chunk tile width"]
    right: Int[Array, "chunk tile width"]
    value: Float[Array, "chunk tile width"]
    weight: Float[Array, "chunk tile width"]


class ObservedCells(NamedTuple):
    """What the sampler sees of one tensor.

    Attributes
    ----------
    by_mode : three `Tiles`
        The stored cells grouped by user, by place, and by next place or slot.
    zero_weight : float32, shape (users,), or None
        Weight at which *every* cell of a user counts as a zero beside the stored cells; None where zeros are stored.
    square_sum : float32 scalar
        Weighted sum of squared values, for the reconstruction error.
    total_weight : float32 scalar
        Sum of the weights of all cells.
    """

    by_mode: tuple[Tiles, Tiles, Tiles]
    zero_weight: Float[Array, " user"] | None
    square_sum: Float[Array, ""]
    total_weight: Float[Array, ""]


def observe(
    counts: CountTensors, zeros: Literal["sampled", "weighted"], n_zeros: int, *, seed: int
) -> dict[str, ObservedCells]:
    """Lay out both tensors with their zeros.

    `sampled` stores `n_zeros` zero cells of each user, drawn at random, as published. `weighted` stores none: all zero
    cells of a user count, with a weight that makes them weigh `n_zeros` in all (a power likelihood, the expectation of
    the former), so the cost of a sweep is that of the positive cells.

    Returns
    -------
    dict
        `ObservedCells` under "transitions" and "visits".
    """
    if zeros not in ("sampled", "weighted"):
        raise InputError("zeros", [Problem("'sampled' or 'weighted'", repr(zeros))])
    if n_zeros < 1:
        raise InputError("zeros", [Problem("n_zeros of at least 1", repr(n_zeros))])
    lay_out = _with_sampled_zeros if zeros == "sampled" else _with_weighted_zeros
    return {
        name: lay_out(tensor, n_zeros, (seed, number))
        # NumPy pads a seed with zeros: (seed, 0) would repeat the stream of `seed`, which trimming uses.
        for number, (name, tensor) in enumerate(zip(("transitions", "visits"), counts, strict=True), start=1)
    }


def _with_sampled_zeros(counts: SparseCounts, n_zeros: int, seed: tuple[int, int]) -> ObservedCells:
    zeros = sample_zeros(counts, n_zeros, seed=seed)
    index = np.concatenate([_positive_index(counts), zeros])
    value = np.concatenate([counts.count, np.zeros(len(zeros), np.int32)]).astype(np.float32)
    return lay_out_cells(index, value, np.ones_like(value), counts.shape)


def _with_weighted_zeros(counts: SparseCounts, n_zeros: int, seed: tuple[int, int]) -> ObservedCells:
    del seed  # nothing is random here
    zero_weight = zero_weights(counts, n_zeros)
    # Every cell, positive ones too, counts as a zero of this weight in the dense part; the stored part makes up for it.
    stored_weight = (1 - zero_weight[counts.user]).astype(np.float32)
    return lay_out_cells(
        _positive_index(counts), counts.count.astype(np.float32), stored_weight, counts.shape, zero_weight
    )


def lay_out_cells(
    index: np.ndarray,
    value: np.ndarray,
    weight: np.ndarray,
    shape: tuple[int, int, int],
    zero_weight: np.ndarray | None = None,
) -> ObservedCells:
    """Tile stored cells along each mode.

    Parameters
    ----------
    index : int array, shape (cells, 3)
    value, weight : float arrays, shape (cells,)
        A cell with a value other than 0 must weigh 1 in all, `weight` and `zero_weight` together.
    shape : (users, places, others)
    zero_weight : float array, shape (users,), optional
        See `ObservedCells`; cells with a positive value then weigh `weight + zero_weight` in all.
    """
    total = float(weight.sum())
    # With a dense part, a stored cell's residual is counted at weights w and 1 - w: the square of its value at 1.
    squares = float(np.sum(np.square(value, dtype=np.float64) * (weight if zero_weight is None else 1)))
    if zero_weight is not None:
        total += float(zero_weight.sum()) * shape[1] * shape[2]
    return ObservedCells(
        tuple(_tile(index, value, weight, mode, shape[mode]) for mode in range(N_MODES)),  # type: ignore[arg-type]
        None if zero_weight is None else zero_weight.astype(np.float32),
        np.float32(squares),  # type: ignore[arg-type]
        np.float32(total),  # type: ignore[arg-type]
    )


def _positive_index(counts: SparseCounts) -> np.ndarray:
    return np.stack([counts.user, counts.place, counts.other], axis=1)


def _tile(index: np.ndarray, value: np.ndarray, weight: np.ndarray, mode: int, n_rows: int) -> Tiles:
    order = np.argsort(index[:, mode], kind="stable")
    row = index[order, mode]
    per_row = np.bincount(row, minlength=n_rows)
    width = _tile_width(per_row)
    tiles_per_row = -(-per_row // width)
    first_tile = np.concatenate([[0], np.cumsum(tiles_per_row)])
    within = np.arange(len(row)) - np.concatenate([[0], np.cumsum(per_row)])[row]
    tile, lane = first_tile[row] + within // width, within % width

    per_chunk = max(1, CELLS_AT_A_TIME // width)
    n_tiles = int(first_tile[-1])
    n_chunks = max(1, -(-n_tiles // per_chunk))
    per_chunk = max(1, -(-n_tiles // n_chunks))
    left, right = (index[order, other] for other in range(N_MODES) if other != mode)

    def fill(content: np.ndarray, dtype: type) -> np.ndarray:
        padded = np.zeros((n_chunks * per_chunk, width), dtype)
        padded[tile, lane] = content
        return padded.reshape(n_chunks, per_chunk, width)

    row_of_tile = np.zeros(n_chunks * per_chunk, np.int32)
    row_of_tile[:n_tiles] = np.repeat(np.arange(n_rows, dtype=np.int32), tiles_per_row)
    return Tiles(
        row_of_tile.reshape(n_chunks, per_chunk),
        fill(left, np.int32),
        fill(right, np.int32),
        fill(value[order], np.float32),
        fill(weight[order], np.float32),
    )  # type: ignore[arg-type]


def _tile_width(per_row: np.ndarray) -> int:
    """The width that makes all tiles together cheapest: little padding, not too many tiles."""
    length, rows = np.unique(per_row, return_counts=True)
    widths = np.arange(MIN_TILE, MAX_TILE + 1, 8)
    n_tiles = -(-length // widths[:, None]) @ rows
    return int(widths[np.argmin(n_tiles * (widths + TILE_COST))])
