"""The observed cells of count tensors, laid out so that a sweep reads them in order.

For each mode of a tensor, the cells are sorted by the index of that mode and cut into tiles. A tile contains cells of
only one row and is padded to a fixed width, so that the statistics of a row are sums of small matrix products. A padded
cell has a design vector of zeros and value 0, so it adds nothing.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.gibbs.draws import rows_at_a_time
from ppmtf_jax.gibbs.tensors import ZERO_STAGES, CountTensors, sample_zeros, zero_weights
from ppmtf_jax.runtime.devices import round_up

N_MODES = 3
# Number of parts for places and slots. Statistics are summed within each part, and then over the parts in a fixed
# order, so that the sum does not depend on the number of devices.
N_PARTS = 8
MIN_TILE, MAX_TILE = 8, 320
WIDTHS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, *range(128, MAX_TILE + 1, 16))
# Fixed cost of a tile, in cells: adding its matrix product to the statistics of the row.
TILE_COST = 16


class Tiles(NamedTuple):
    """Cells of one tensor, grouped by one mode.

    The parts are spread over the devices; each part is processed chunk by chunk.

    For users (mode 0) a part contains some rows with all their cells, so these rows can be drawn from the part alone.
    The other modes have few rows, which may be long: there all parts have equal numbers of tiles, and the statistics of
    the parts are summed.
    """

    # Rows of this mode's factor for which a part may have statistics; padded with the number of rows.
    rows: Int[Array, "part part_row"]
    n_chunks: Int[Array, " part"]  # number of chunks of each part that contain cells
    row: Int[Array, "part chunk tile"]  # for each tile, the position of its row in the part's `rows`
    # `left`, `right`: rows of the factors of the other two modes, in the order of the modes. For a padded cell, `right`
    # is the index after the last row, where zeros are read.
    left: Int[Array, "part chunk tile width"]
    right: Int[Array, "part chunk tile width"]
    value: Float[Array, "part chunk tile width"]


class ObservedCells(NamedTuple):
    """The observed cells of one tensor."""

    by_mode: tuple[Tiles, Tiles, Tiles]  # the stored cells grouped by user, by place, and by next place or slot
    # Weight w of *every* cell of a user as a zero; a stored cell then has the weight 1 - w. None if zeros are stored.
    zero_weight: Float[Array, " user"] | None
    square_sum: Float[Array, ""]  # weighted sum of squared values, for the reconstruction error
    total_weight: Float[Array, ""]  # sum of the weights of all cells


def observe(
    counts: CountTensors,
    zeros: Literal["sampled", "weighted"],
    n_zeros: int,
    *,
    seed: int,
    hidden: dict[str, np.ndarray] | None = None,
) -> dict[str, ObservedCells]:
    """Lay out the cells of both tensors, zeros included.

    `sampled` stores `n_zeros` random zero cells of each user, as published. `weighted` stores no zero cells. All zero
    cells of a user are observed, with equal weights that sum to `n_zeros`: a power likelihood, whose log is the
    expected log-likelihood of `sampled`. So the cost of a sweep depends only on the positive cells.

    `hidden` lists the cells of each tensor, shape (cells, 3), that must not be drawn as zeros. With `weighted`, hidden
    cells are observed too, because all cells count as zeros.
    """
    if zeros not in ("sampled", "weighted"):
        raise InputError("zeros", [Problem("'sampled' or 'weighted'", repr(zeros))])
    if n_zeros < 1:
        raise InputError("zeros", [Problem("n_zeros of at least 1", repr(n_zeros))])
    cells = {}
    for name, tensor in counts._asdict().items():
        index, value, zero_weight = tensor.cell_index, tensor.count.astype(np.float32), None
        if zeros == "weighted":
            zero_weight = zero_weights(tensor, n_zeros)
        else:
            stage, unseen = ZERO_STAGES[name], (hidden or {}).get(name)
            drawn = sample_zeros(tensor, n_zeros, seed=seed, stage=stage, hidden=unseen)
            index, value = np.concatenate([index, drawn]), np.pad(value, (0, len(drawn)))
        cells[name] = lay_out_cells(index, value, tensor.shape, zero_weight)
    return cells


def lay_out_cells(
    index: np.ndarray, value: np.ndarray, shape: tuple[int, int, int], zero_weight: np.ndarray | None = None
) -> ObservedCells:
    """Tile the stored cells, index (cells, 3), along each mode of a tensor of shape (users, places, others).

    `zero_weight` (shape (users,)): the weight, at most 1, of a user's cells that are not stored; stored ones have 1.
    """
    total = float(len(value))
    if zero_weight is not None:
        stored = np.bincount(index[:, 0], minlength=shape[0])
        total += float(zero_weight @ (shape[1] * shape[2] - stored))
    return ObservedCells(
        tuple(_tile(index, value, mode, shape) for mode in range(N_MODES)),  # type: ignore[arg-type]
        None if zero_weight is None else zero_weight.astype(np.float32),
        np.float32(np.sum(np.square(value, dtype=np.float64))),  # type: ignore[arg-type]
        np.float32(total),  # type: ignore[arg-type]
    )


def pad_parts(cells: dict[str, ObservedCells], multiple: int) -> dict[str, ObservedCells]:
    """Add empty parts until the number of parts is a multiple of the number of devices, `multiple`."""

    def pad(tiles: Tiles) -> Tiles:
        n_more, n_rows = -len(tiles.n_chunks) % multiple, int(tiles.rows.max()) + 1
        # Chunks of an empty part are never read.
        padded = (np.pad(leaf, [(0, n_more)] + [(0, 0)] * (np.ndim(leaf) - 1)) for leaf in tiles[1:])
        return Tiles(np.pad(tiles.rows, [(0, n_more), (0, 0)], constant_values=n_rows), *padded)  # type: ignore[arg-type]

    return {name: own._replace(by_mode=tuple(map(pad, own.by_mode))) for name, own in cells.items()}


def _tile(index: np.ndarray, value: np.ndarray, mode: int, shape: tuple[int, int, int]) -> Tiles:
    n_rows = shape[mode]
    order = np.argsort(index[:, mode], kind="stable")
    row = index[order, mode]
    per_row = np.bincount(row, minlength=n_rows)
    width = tile_width(per_row)
    tiles_of_row = -(-per_row // width)
    first_tile = np.concatenate([[0], np.cumsum(tiles_of_row)])
    row_of_tile = np.repeat(np.arange(n_rows), tiles_of_row)

    part_rows, part_of_tile = _split(row_of_tile, n_rows, owns_rows=mode == 0)
    tiles_of_part = np.bincount(part_of_tile, minlength=len(part_rows))
    most = max(1, int(tiles_of_part.max(initial=0)))
    per_chunk = min(max(1, cells_at_a_time() // width), round_up(most))
    n_chunks = round_up(-(-most // per_chunk), steps=4)
    place_of_tile = np.arange(len(row_of_tile)) - np.concatenate([[0], np.cumsum(tiles_of_part)])[part_of_tile]
    place_of_tile += part_of_tile * n_chunks * per_chunk

    within = np.arange(len(row)) - np.concatenate([[0], np.cumsum(per_row)])[row]
    place_of_cell = place_of_tile[first_tile[row] + within // width] * width + within % width
    chunks = (len(part_rows), n_chunks, per_chunk)

    def fill(shape: tuple[int, ...], place: np.ndarray, content: np.ndarray, empty: int, dtype: type) -> np.ndarray:
        filled = np.full(int(np.prod(shape)), empty, dtype)
        filled[place] = content
        return filled.reshape(shape)

    left, right = (other for other in range(N_MODES) if other != mode)
    return Tiles(
        part_rows,
        (-(-tiles_of_part // per_chunk)).astype(np.int32),
        fill(chunks, place_of_tile, row_of_tile - part_rows[part_of_tile, 0], 0, np.int32),
        fill((*chunks, width), place_of_cell, index[order, left], 0, np.int32),
        fill((*chunks, width), place_of_cell, index[order, right], shape[right], np.int32),
        fill((*chunks, width), place_of_cell, value[order], 0, np.float32),
    )  # type: ignore[arg-type]


def _split(row_of_tile: np.ndarray, n_rows: int, *, owns_rows: bool) -> tuple[np.ndarray, np.ndarray]:
    """The rows of each part, and the part that each tile belongs to."""
    if owns_rows:
        size = min(rows_at_a_time(), n_rows)
        n_parts = -(-n_rows // size)
        rows = np.minimum(np.arange(n_parts * size), n_rows).reshape(n_parts, size)
        return rows.astype(np.int32), row_of_tile // size
    part_of_tile = np.arange(len(row_of_tile)) * N_PARTS // max(1, len(row_of_tile))
    first, last = np.full(N_PARTS, n_rows), np.full(N_PARTS, n_rows)
    first[part_of_tile[::-1]] = row_of_tile[::-1]
    last[part_of_tile] = row_of_tile
    rows = first[:, None] + np.arange(round_up(int((last - first).max()) + 1, steps=4))
    return np.minimum(rows, n_rows).astype(np.int32), part_of_tile


def cells_at_a_time() -> int:
    """Number of cells whose design (64 bytes each at rank 16) fits a CPU's L2 cache, or fills an accelerator."""
    return 2**12 if jax.default_backend() == "cpu" else 2**20


def tile_width(per_row: np.ndarray) -> int:
    """Tile width of least total cost for rows with `per_row` cells: little padding, few tiles.

    There are few possible widths, so that similar data use the same program.
    """
    length, rows = np.unique(per_row, return_counts=True)
    widths = np.array([width for width in WIDTHS if MIN_TILE <= width <= MAX_TILE] or [MAX_TILE])
    n_tiles = -(-length // widths[:, None]) @ rows
    return int(widths[np.argmin(n_tiles * (widths + TILE_COST))])
