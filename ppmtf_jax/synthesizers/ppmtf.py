"""PPMTF: both count tensors factorized together by Gibbs sampling (Murakami et al. 2021, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.gibbs.cells import observe
from ppmtf_jax.gibbs.kernel import SHARED, GibbsSettings
from ppmtf_jax.gibbs.run import Checkpoints, run_gibbs
from ppmtf_jax.synthesizers.base import Synthesizer, register
from ppmtf_jax.synthesizers.metropolis_hastings import FLOOR, MetropolisHastings
from ppmtf_jax.tensors import Trimming, count_tensors
from ppmtf_jax.traces import Traces


@dataclass(frozen=True)
class PPMTFSettings:
    """Settings of PPMTF; the defaults are the published ones.

    Parameters
    ----------
    rank : int
        Columns of every factor (z).
    noise_precision : float
        alpha: how closely the factors reproduce each count. Published range 1e-6 to 1e3; utility is lost below 0.4.
    n_sweeps : int
        Gibbs sweeps; the last draw is the model.
    zeros : "sampled" or "weighted"
        `sampled`: `n_zeros` random zero cells per user and tensor are observed, as published. `weighted`: all are, at
        a weight that makes them count as `n_zeros`; much faster for many users.
    n_zeros : int
        rho.
    max_transitions, max_visits : int or None
        Positive cells kept per user (lambda).
    max_count : int or None
        Counts are cut to it (r_max).
    floor : float
        phi, see `MetropolisHastings`.
    """

    rank: int = 16
    noise_precision: float = 200.0
    n_sweeps: int = 100
    zeros: Literal["sampled", "weighted"] = "sampled"
    n_zeros: int = 1000
    max_transitions: int | None = 100
    max_visits: int | None = 100
    max_count: int | None = 10
    floor: float = FLOOR

    def __post_init__(self) -> None:
        if not 0 < self.floor < 1:
            raise InputError("settings", [Problem("a floor between 0 and 1", repr(self.floor))])
        if self.n_sweeps < 1:
            raise InputError("settings", [Problem("at least one sweep", repr(self.n_sweeps))])
        # Built here so that bad values are refused before any work is done.
        self.trimming()
        self.gibbs()

    def trimming(self) -> Trimming:
        """How counts are bounded."""
        return Trimming(self.max_transitions, self.max_visits, self.max_count)

    def gibbs(self) -> GibbsSettings:
        """What the sampler needs to know."""
        return GibbsSettings(self.rank, self.noise_precision)


def fit_trace_model(
    train: Traces, settings: PPMTFSettings, seed: int, progress: bool = False, checkpoints: Checkpoints | None = None
) -> MetropolisHastings:
    """Count, factorize, and take the last draw as the model. See `synthesizers.base.fit`."""
    counts = count_tensors(train, settings.trimming(), seed=seed)
    cells = observe(counts, settings.zeros, settings.n_zeros, seed=seed)
    n_places = train.n_places
    n_rows = {"user": train.n_users, "place": n_places, "next_place": n_places, "slot": train.time_grid.n_slots}
    result = run_gibbs(
        jax.random.key(seed),
        cells,
        n_rows,
        SHARED,
        settings.gibbs(),
        n_sweeps=settings.n_sweeps,
        checkpoints=checkpoints,
        progress=progress,
    )
    factors = {name: jnp.asarray(draws[0, -1]) for name, draws in result.draws.items()}
    return MetropolisHastings(
        factors["user"],
        factors["place"],
        factors["next_place"],
        factors["user"],
        factors["place"],
        factors["slot"],
        jnp.asarray(train.time_grid.one_period().slot_of_instant),
        settings.floor,
    )


register("ppmtf", Synthesizer(PPMTFSettings, fit_trace_model, MetropolisHastings))
