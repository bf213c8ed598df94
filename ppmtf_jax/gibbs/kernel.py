"""One Gibbs sweep over all blocks of the model, Appendix H of Murakami et al. 2021: `step`.

A *coupling* names the factors of each tensor; two tensors share a factor if both name it. Models differ only in their
couplings: PPMTF shares the user and place factors, ITF shares no factors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from ppmtf_jax.errors import Problem
from ppmtf_jax.gibbs.cells import N_MODES, ObservedCells, Tiles
from ppmtf_jax.gibbs.conditionals import (
    FactorPrior,
    HyperPrior,
    cell_statistics,
    dense_gram,
    hyper_conditional,
    log_density_of_prior,
    log_density_of_rows,
    row_conditional,
    with_row,
)
from ppmtf_jax.gibbs.draws import row_noise, sample_factor_prior, sample_rows
from ppmtf_jax.gibbs.tensors import CountTensors
from ppmtf_jax.settings import Count, Positive, Settings

Factors = dict[str, Array]
# Of each row: a Gram matrix and, as a further row, a moment; see `conditionals.with_row`.
Statistics = Float[Array, "row rank_and_row rank"]

MIN_WEIGHT = 2.0**-60


@dataclass(frozen=True)
class Coupling:
    """The factors of each tensor."""

    # Mode 0 is the users. A factor may appear in several tensors, always with the same number of rows.
    tensors: tuple[tuple[str, tuple[str, str, str]], ...]

    @property
    def factors(self) -> tuple[str, ...]:
        """Names of all factors, in the order in which a sweep updates them: mode by mode."""
        return tuple(dict.fromkeys(modes[mode] for mode in range(N_MODES) for _, modes in self.tensors))


SHARED = Coupling((("transitions", ("user", "place", "next_place")), ("visits", ("user", "place", "slot"))))


@dataclass(frozen=True)
class GibbsSettings(Settings):
    """Settings of the model that the sampler draws from.

    Parameters
    ----------
    rank : int
        Columns of every factor (z).
    noise_precision : float
        alpha, precision of a cell about its reconstruction.
    hyper : HyperPrior
    """

    rank: Count = 16
    noise_precision: Positive = 200.0
    hyper: HyperPrior = HyperPrior()

    def problems(self) -> list[Problem | str]:
        """Problem: too few degrees of freedom for the rank."""
        degrees = self.hyper.degrees_of_freedom
        if degrees is None or degrees > self.rank - 1:
            return []
        return [Problem(f"degrees_of_freedom of more than rank - 1 = {self.rank - 1}", repr(degrees))]


class GibbsState(NamedTuple):
    """The state that the next sweep needs, and the priors that the last sweep drew."""

    factors: Factors
    priors: dict[str, FactorPrior]
    sweep: Int[Array, ""]


class SweepInfo(NamedTuple):
    """Diagnostics of one sweep."""

    # Weighted sum of squared errors over the observed cells of each tensor. It should fall, then fluctuate.
    square_error: dict[str, Float[Array, ""]]
    # Log density of the tensors, the factors and their priors together. It should rise, then fluctuate.
    log_joint: Float[Array, ""]
    square_size: dict[str, Float[Array, ""]]  # mean square of the entries of each factor
    # Whether each factor is finite, in the coupling's order. Otherwise its precision matrix is not positive definite.
    finite: Bool[Array, " factor"]


def rows_of_factors(coupling: Coupling, counts: CountTensors) -> dict[str, int]:
    """Number of rows of each factor."""
    shapes = counts._asdict()
    return {z: rows for tensor, modes in coupling.tensors for z, rows in zip(modes, shapes[tensor].shape, strict=True)}


def init_state(
    key: Key[Array, ""],
    n_rows: dict[str, int],
    coupling: Coupling,
    settings: GibbsSettings,
    dtype: jnp.dtype = jnp.float32,
) -> GibbsState:
    """Factors uniform in [0, 1], as published (section 3.3)."""
    factors, rank = {}, settings.rank
    init_key, _ = jax.random.split(key)
    for number, z in enumerate(coupling.factors):
        factors[z] = jax.random.uniform(jax.random.fold_in(init_key, number), (n_rows[z], rank), dtype)
    priors = {z: FactorPrior(jnp.zeros(rank, dtype), jnp.eye(rank, dtype=dtype)) for z in factors}
    return GibbsState(factors, priors, jnp.zeros((), jnp.int32))


def step(
    key: Key[Array, ""],
    state: GibbsState,
    cells: dict[str, ObservedCells],
    coupling: Coupling,
    settings: GibbsSettings,
    axis: str | None = None,
    noise_precision: float | Float[Array, ""] | None = None,
) -> tuple[GibbsState, SweepInfo]:
    """One sweep: draw every factor's prior given the factor, then every factor given its prior and the others.

    `key`: key of the chain; `state.sweep` is folded in, so a resumed run equals an uninterrupted run. `cells`:
    `ObservedCells` of each tensor of the coupling. `axis`: inside `jax.shard_map`, the mesh axis over which the parts
    of the cells are split; everything else is the same on all devices. `noise_precision`: replaces that of `settings`,
    so that one compiled program serves all values.
    """
    alpha = settings.noise_precision if noise_precision is None else noise_precision
    factors, square_error = dict(state.factors), {}
    prior_keys, row_keys = _keys_of_factors(key, state.sweep, coupling)
    # Eqs. (14)-(17), (22)-(28): every factor's prior given the factor. One batched draw compiles four times as fast.
    posteriors = [hyper_conditional(factors[z], settings.hyper) for z in coupling.factors]
    drawn, log_determinants = jax.vmap(sample_factor_prior)(prior_keys, jax.tree.map(_stacked, *posteriors))
    priors = {z: jax.tree.map(lambda x, i=i: x[i], drawn) for i, z in enumerate(coupling.factors)}
    noise = _noise_of_factors(row_keys, cells, coupling, factors)
    # Eqs. (18)-(21), (29)-(40): every factor given its prior and the others.
    for z in coupling.factors:

        def sample(statistics: Statistics, noise: Array, z: str = z) -> Array:
            return sample_rows(row_conditional(priors[z], statistics, alpha), noise)

        factors[z], statistics = _sample_given_cells(sample, noise[z], cells, coupling, factors, z, axis)
        for tensor, modes in coupling.tensors:
            if z == modes[-1]:
                square_error[tensor] = _square_error(cells[tensor], factors[z], statistics[tensor])
    info = SweepInfo(
        square_error,
        _log_joint(factors, priors, log_determinants, square_error, cells, alpha, settings.hyper),
        {z: jnp.mean(jnp.square(factors[z])) for z in coupling.factors},
        jnp.stack([jnp.isfinite(factors[z]).all() for z in coupling.factors]),
    )
    return GibbsState(factors, priors, state.sweep + 1), info


def _stacked(*parts: Array) -> Array:
    return jnp.stack(parts)


def _keys_of_factors(key: Key[Array, ""], sweep: Int[Array, ""], coupling: Coupling) -> Key[Array, "two factor"]:
    """In this sweep, the key of each factor's prior, and that of its rows."""
    _, sweeps_key = jax.random.split(key)
    of_factors = jax.vmap(jax.random.fold_in, (None, 0))(
        jax.random.fold_in(sweeps_key, sweep), jnp.arange(len(coupling.factors))
    )
    return jnp.moveaxis(jax.vmap(jax.random.split)(of_factors), 1, 0)


def _noise_of_factors(
    keys: Key[Array, " factor"], cells: dict[str, ObservedCells], coupling: Coupling, factors: Factors
) -> dict[str, Array]:
    """Standard normal numbers for the rows of all factors; those of users by parts, as their rows are drawn."""
    parts = {modes[0]: cells[tensor].by_mode[0].rows for tensor, modes in coupling.tensors}
    rows = [parts.get(z, jnp.arange(len(factors[z]))) for z in coupling.factors]
    first = factors[coupling.factors[0]]
    return dict(zip(coupling.factors, row_noise(keys, rows, first.shape[1], first.dtype), strict=True))


def _sample_given_cells(
    sample: Callable[[Statistics, Array], Array],
    noise: Float[Array, "..."],
    cells: dict[str, ObservedCells],
    coupling: Coupling,
    factors: Factors,
    z: str,
    axis: str | None,
) -> tuple[Float[Array, "row rank"], dict[str, Statistics]]:
    """Draw factor `z` by `sample` from the statistics of its rows in all tensors, and give these of each tensor.

    Users are drawn part by part, so that the statistics of only one part are in memory, and none are given.
    """
    own = [(tensor, modes) for tensor, modes in coupling.tensors if z in modes]
    designs = [Design.of(cells[tensor], modes, modes.index(z), factors) for tensor, modes in own]
    n_rows = len(factors[z])
    if any(z == modes[0] for _, modes in own):

        def sample_part(part: tuple[list[Tiles], Array]) -> Array:
            return sample(_part_statistics(part[0], designs), part[1])

        drawn = lax.map(sample_part, ([design.tiles for design in designs], noise))
        return _gathered(drawn, axis).reshape(-1, drawn.shape[-1])[:n_rows], {}
    by_tensor = {
        tensor: total_statistics(design, n_rows, axis) for (tensor, _), design in zip(own, designs, strict=True)
    }
    return sample(sum(by_tensor.values()), noise), by_tensor


class Design(NamedTuple):
    """Regression of each row of a factor on products of the other two factors, for one mode of a tensor."""

    tiles: Tiles
    # `left`, `right`: the factors of the other two modes.
    left: Float[Array, "left rank"]
    right: Float[Array, "right rank"]
    # `zero_weight`: the weight of a zero in each user's cells. `stored_root`: the root of the further weight of the
    # user's stored cells. Both are None if zeros are stored as cells.
    zero_weight: Float[Array, " user"] | None
    stored_root: Float[Array, " user"] | None
    # Statistics of all cells of one row as zeros. In the modes after the first, cells have their users' zero weights.
    dense: Float[Array, "rank_and_row rank"] | None
    of_users: bool

    @classmethod
    def of(cls, cells: ObservedCells, modes: tuple[str, str, str], mode: int, factors: Factors) -> Design:
        """The design of one mode of a tensor."""
        left, right = (factors[z] for other, z in enumerate(modes) if other != mode)
        if cells.zero_weight is None:
            return cls(cells.by_mode[mode], left, right, None, None, None, mode == 0)
        zero_weight = cells.zero_weight.astype(left.dtype)
        # Values are divided by the root, so it is never 0; the least weight disappears beside a zero weight of 1.
        stored_root = jnp.sqrt(jnp.maximum(1 - zero_weight, MIN_WEIGHT))
        # For the modes after the first, `left` is the user factor.
        gram = dense_gram(left, right, None if mode == 0 else zero_weight)
        dense = with_row(gram, jnp.zeros_like(gram[0]))
        return cls(cells.by_mode[mode], left, right, zero_weight, stored_root, dense, mode == 0)

    def no_statistics(self, n_rows: int) -> Statistics:
        """Zeros for some rows."""
        rank = self.left.shape[1]
        return jnp.zeros((n_rows, rank + 1, rank), self.left.dtype)


def total_statistics(design: Design, n_rows: int, axis: str | None) -> Statistics:
    """Statistics of every row of the mode of `design`, with a leading row axis; `axis` as for `step`."""
    parts = lax.map(lambda tiles: _part_statistics([tiles], [design]), design.tiles)
    # Gather the parts before summing them, so that the sum is the same on any number of devices.
    rows, parts = _gathered(design.tiles.rows, axis), _gathered(parts, axis)
    total = design.no_statistics(n_rows)
    if design.dense is not None and not design.of_users:
        total += design.dense
    return total.at[rows].add(parts, mode="drop")


def _gathered(parts: Array, axis: str | None) -> Array:
    return parts if axis is None else lax.all_gather(parts, axis, tiled=True)


def _part_statistics(tiles: list[Tiles], designs: list[Design]) -> Statistics:
    """Statistics of the rows of one part, with a leading row axis, from the cells of that part in each tensor."""
    rows = tiles[0].rows
    total = designs[0].no_statistics(len(rows))
    for design in designs:
        if design.of_users and design.zero_weight is not None and design.dense is not None:
            weight = design.zero_weight[jnp.minimum(rows, len(design.zero_weight) - 1)]
            total += weight[:, None, None] * design.dense
    # One sum for all tensors, because a pass over the statistics takes as long as computing many cells.
    for own, design in zip(tiles, designs, strict=True):
        total = lax.fori_loop(0, own.n_chunks, partial(_add_chunk, own, design), total)
    return total


def _add_chunk(tiles: Tiles, design: Design, chunk: Array, total: Statistics) -> Statistics:
    """Add the statistics of one chunk of the cells of a part."""
    row, left, right, value = (lax.dynamic_index_in_dim(x, chunk, keepdims=False) for x in tiles[2:])
    # Padded cells read this additional row of zeros.
    padded = jnp.concatenate([design.right, jnp.zeros_like(design.right[:1])])
    products, value = _read(design.left, left) * _read(padded, right), value.astype(design.left.dtype)
    if design.stored_root is not None:
        # With r / v and v d in place of r and d, moments stay as they are and Gram matrices get the weight v^2.
        root = _read(design.stored_root, tiles.rows[row][:, None] if design.of_users else left)
        products, value = products * root[..., None], value / root
    gram, moment = cell_statistics(products, value)
    return total.at[row, :-1].add(gram).at[row, -1].add(moment)


def _read(rows: Float[Array, "row *rank"], index: Int[Array, "*cell"]) -> Float[Array, "*cell *rank"]:
    """Rows by index; the indices from `cells` are in bounds, and checking them would cost as much as reading."""
    return rows.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _log_joint(
    factors: Factors,
    priors: dict[str, FactorPrior],
    log_determinants: Float[Array, " factor"],
    square_error: dict[str, Float[Array, ""]],
    cells: dict[str, ObservedCells],
    alpha: float | Float[Array, ""],
    hyper: HyperPrior,
) -> Float[Array, ""]:
    """Log of eqs. (3) and (4) plus log-densities of the factors; each cell counts with its weight."""
    terms = [
        0.5 * (cells[tensor].total_weight * jnp.log(alpha / (2 * math.pi)) - alpha * error)
        for tensor, error in square_error.items()
    ]
    for (z, prior), determinant in zip(priors.items(), log_determinants, strict=True):
        terms += [log_density_of_rows(factors[z], prior, determinant), log_density_of_prior(prior, hyper, determinant)]
    return jnp.sum(jnp.stack(terms))


def _square_error(cells: ObservedCells, factor: Float[Array, "row rank"], statistics: Statistics) -> Float[Array, ""]:
    """Sum of w (r - x d)^2 over a tensor, from the statistics of its last mode, whose factor was just drawn."""
    explained = 2 * jnp.sum(factor * statistics[:, -1])
    fitted = jnp.sum(factor * jnp.einsum("nzy,ny->nz", statistics[:, :-1], factor))
    return cells.square_sum.astype(factor.dtype) - explained + fitted
