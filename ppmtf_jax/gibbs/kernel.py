"""One Gibbs sweep over all blocks of the model, Appendix H of Murakami et al. 2021.

A *coupling* says which factors each tensor is the product of; tensors that name the same factor share it. The kernel
knows nothing else about the model, so PPMTF (user and place shared) and ITF (nothing shared) are two couplings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.gibbs.cells import N_MODES, ObservedCells, Tiles
from ppmtf_jax.gibbs.conditionals import (
    CellStatistics,
    FactorPrior,
    HyperPrior,
    cell_statistics,
    dense_gram,
    hyper_conditional,
    log_density_of_prior,
    log_density_of_rows,
    row_conditional,
)
from ppmtf_jax.gibbs.draws import sample_factor_prior, sample_rows
from ppmtf_jax.tensors import CountTensors

Factors = dict[str, Array]


@dataclass(frozen=True)
class Coupling:
    """Which factors each tensor is the product of.

    Parameters
    ----------
    tensors : tuple of (tensor name, (factor of mode 0, of mode 1, of mode 2))
        Mode 0 is the users. A factor may appear in several tensors, always with the same number of rows.
    """

    tensors: tuple[tuple[str, tuple[str, str, str]], ...]

    @property
    def factors(self) -> tuple[str, ...]:
        """Names of all factors in the order in which a sweep updates them: mode by mode."""
        names = [modes[mode] for mode in range(N_MODES) for _, modes in self.tensors]
        return tuple(dict.fromkeys(names))


SHARED = Coupling((("transitions", ("user", "place", "next_place")), ("visits", ("user", "place", "slot"))))


@dataclass(frozen=True)
class GibbsSettings:
    """Settings of the model that the sampler draws from.

    Parameters
    ----------
    rank : int
        Columns of every factor (z).
    noise_precision : float
        alpha, precision of a cell about its reconstruction.
    hyper : HyperPrior
    """

    rank: int = 16
    noise_precision: float = 200.0
    hyper: HyperPrior = HyperPrior()

    def __post_init__(self) -> None:
        problems = []
        if not (isinstance(self.rank, int) and self.rank >= 1):
            problems.append(Problem("rank of at least 1", repr(self.rank)))
        if not 0 < self.noise_precision < float("inf"):
            problems.append(Problem("a positive, finite noise_precision", repr(self.noise_precision)))
        if problems:
            raise InputError("settings", problems)


class GibbsState(NamedTuple):
    """All that the next sweep needs, and the priors that the last one drew."""

    factors: Factors
    priors: dict[str, FactorPrior]
    sweep: Int[Array, ""]


class SweepInfo(NamedTuple):
    """Diagnostics of one sweep.

    Attributes
    ----------
    square_error : dict of scalars
        Weighted sum of squared errors over the observed cells of each tensor.
    log_joint : float scalar
        Log density of the tensors, the factors and their priors together.
    square_size : dict of scalars
        Mean square of each factor's entries (the trace of its Gram matrix over their number).
    finite : bool, shape (factors,)
        Whether each factor, in the coupling's order, is finite.
    """

    square_error: dict[str, Float[Array, ""]]
    log_joint: Float[Array, ""]
    square_size: dict[str, Float[Array, ""]]
    finite: Bool[Array, " factor"]


def rows_of_factors(coupling: Coupling, counts: CountTensors) -> dict[str, int]:
    """How many rows each factor has."""
    shapes = counts._asdict()
    return {
        name: rows for tensor, modes in coupling.tensors for name, rows in zip(modes, shapes[tensor].shape, strict=True)
    }


def init_state(
    key: Key[Array, ""],
    n_rows: dict[str, int],
    coupling: Coupling,
    settings: GibbsSettings,
    dtype: jnp.dtype = jnp.float32,
) -> GibbsState:
    """Factors uniform in [0, 1], as published (section 3.3)."""
    factors, priors = {}, {}
    init_key, _ = jax.random.split(key)
    for number, name in enumerate(coupling.factors):
        factors[name] = jax.random.uniform(jax.random.fold_in(init_key, number), (n_rows[name], settings.rank), dtype)
        priors[name] = FactorPrior(jnp.zeros(settings.rank, dtype), jnp.eye(settings.rank, dtype=dtype))
    return GibbsState(factors, priors, jnp.zeros((), jnp.int32))


def step(
    key: Key[Array, ""],
    state: GibbsState,
    cells: dict[str, ObservedCells],
    coupling: Coupling,
    settings: GibbsSettings,
) -> tuple[GibbsState, SweepInfo]:
    """One sweep: every factor's prior given the factor, eqs. (14)-(17), then every factor in turn, eqs. (18)-(21).

    Parameters
    ----------
    key : typed key of the whole run; the sweep's own key is folded in from `state.sweep`, so a resumed run goes on
        exactly as an unbroken one
    state : GibbsState
    cells : `ObservedCells` of each tensor of the coupling

    Returns
    -------
    state, info
    """
    _, sweeps_key = jax.random.split(key)
    key = jax.random.fold_in(sweeps_key, state.sweep)
    keys = {name: jax.random.split(jax.random.fold_in(key, i)) for i, name in enumerate(coupling.factors)}
    # All factors have the same rank: one batched draw compiles four times as fast as four of them.
    posteriors = [hyper_conditional(state.factors[name], settings.hyper) for name in coupling.factors]
    prior_keys = jnp.stack([keys[name][0] for name in coupling.factors])
    drawn = jax.vmap(sample_factor_prior)(prior_keys, jax.tree.map(lambda *parts: jnp.stack(parts), *posteriors))
    priors = {name: jax.tree.map(lambda x, i=i: x[i], drawn) for i, name in enumerate(coupling.factors)}
    factors = dict(state.factors)
    square_error = {}
    for name in coupling.factors:
        by_tensor = {
            tensor: _row_statistics(cells[tensor], modes, modes.index(name), factors)
            for tensor, modes in coupling.tensors
            if name in modes
        }
        total = jax.tree.map(lambda *parts: sum(parts), *by_tensor.values())
        conditional = jax.vmap(row_conditional, (None, 0, None))(priors[name], total, settings.noise_precision)
        factors[name] = sample_rows(keys[name][1], conditional)
        for tensor, modes in coupling.tensors:
            if name == modes[-1]:
                square_error[tensor] = _square_error(cells[tensor], factors[name], by_tensor[tensor])
    info = SweepInfo(
        square_error,
        _log_joint(factors, priors, square_error, cells, settings),
        {name: jnp.mean(jnp.square(factors[name])) for name in coupling.factors},
        jnp.stack([jnp.isfinite(factors[name]).all() for name in coupling.factors]),
    )
    return GibbsState(factors, priors, state.sweep + 1), info


def _row_statistics(cells: ObservedCells, modes: tuple[str, str, str], mode: int, factors: Factors) -> CellStatistics:
    """Statistics of every row of one mode from one tensor, with a leading row axis."""
    left, right = (factors[name] for other, name in enumerate(modes) if other != mode)
    statistics = _stored_statistics(cells.by_mode[mode], left, right, factors[modes[mode]].shape[0])
    if cells.zero_weight is None:
        return statistics
    if mode == 0:
        dense = cells.zero_weight[:, None, None] * dense_gram(left, right)
    else:
        # `left` is the user factor: it is the first of the remaining modes.
        dense = dense_gram(left, right, cells.zero_weight.astype(left.dtype))
    return CellStatistics(statistics.gram + dense, statistics.moment)


def _stored_statistics(
    tiles: Tiles, left: Float[Array, "left rank"], right: Float[Array, "right rank"], n_rows: int
) -> CellStatistics:
    rank = left.shape[1]
    dtype = left.dtype

    def add_chunk(total: CellStatistics, chunk: Tiles) -> tuple[CellStatistics, None]:
        design = left[chunk.left] * right[chunk.right]
        part = cell_statistics(design, chunk.value.astype(dtype), chunk.weight.astype(dtype))
        added = jax.tree.map(lambda t, p: t.at[chunk.row].add(p), total, part)
        return added, None

    zero = CellStatistics(jnp.zeros((n_rows, rank, rank), dtype), jnp.zeros((n_rows, rank), dtype))
    return lax.scan(add_chunk, zero, tiles)[0]


def _log_joint(
    factors: Factors,
    priors: dict[str, FactorPrior],
    square_error: dict[str, Float[Array, ""]],
    cells: dict[str, ObservedCells],
    settings: GibbsSettings,
) -> Float[Array, ""]:
    """Log of eqs. (3), (4) and the factors' normal densities; a weighted cell counts with its weight."""
    alpha = settings.noise_precision
    terms = [
        0.5 * (cells[tensor].total_weight * math.log(alpha / (2 * math.pi)) - alpha * error)
        for tensor, error in square_error.items()
    ]
    terms += [log_density_of_rows(factor, priors[name]) for name, factor in factors.items()]
    terms += [log_density_of_prior(prior, settings.hyper) for prior in priors.values()]
    return jnp.sum(jnp.stack(terms))


def _square_error(
    cells: ObservedCells, factor: Float[Array, "row rank"], statistics: CellStatistics
) -> Float[Array, ""]:
    """Sum of w (r - x d)^2 over the tensor from the statistics of its last mode, whose factor was just drawn."""
    explained = 2 * jnp.sum(factor * statistics.moment)
    fitted = jnp.sum(factor * jnp.einsum("nzy,ny->nz", statistics.gram, factor))
    return cells.square_sum.astype(factor.dtype) - explained + fitted
