"""PPMTF: both count tensors factorized together by Gibbs sampling (Murakami et al. 2021, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import jax.numpy as jnp
from annotated_types import Ge, Lt

from ppmtf_jax.data.tensors import Trimming, count_tensors
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import Problem
from ppmtf_jax.gibbs.cells import observe
from ppmtf_jax.gibbs.kernel import SHARED, Coupling, GibbsSettings, rows_of_factors
from ppmtf_jax.gibbs.memory import require_memory_to_fit
from ppmtf_jax.gibbs.run import Checkpoints, run_gibbs
from ppmtf_jax.runtime.progress import spinner
from ppmtf_jax.settings import Count, Positive, Probability, Settings
from ppmtf_jax.streams import Stage, jax_stream
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Claims, Synthesizer
from ppmtf_jax.trace_models.metropolis_hastings import FLOOR, SMALLEST_FLOOR, MetropolisHastings
from ppmtf_jax.trace_models.population import population_transitions, require_memory_for_population

TITLE = "Both count tensors factorized together, one Markov chain per user (Murakami et al. 2021)"


@dataclass(frozen=True)
class PPMTFSettings(Settings):
    """Settings of PPMTF; the defaults are the published ones.

    Parameters
    ----------
    rank : int
        Columns of every factor (z).
    noise_precision : float
        alpha: precision with which the factors reproduce each count. Published: 1e-6 to 1e3; below 0.4 utility is low.
    n_sweeps : int
        Gibbs sweeps; the last draw is the model.
    zeros : "sampled" or "weighted"
        `sampled`: `n_zeros` random zero cells per user and tensor are observed, as published. `weighted`: all zero
        cells are observed, with a weight that makes them count as `n_zeros`; much faster for many users.
    n_zeros : int
        Number of observed zero cells, see `zeros` (rho).
    max_transitions, max_visits : int or None
        Maximum number of positive cells that are kept per user (lambda).
    max_count : int or None
        Larger counts are reduced to it (r_max).
    floor : float
        phi, see `MetropolisHastings`; at least 1e-12.
    proposal_mix : float
        Mixture of proposals: 0 uses the user's own transitions, as published, and 1 uses the population's transitions.
        With the population's transitions, more traces pass the privacy test, and transitions in dense data are
        reproduced better. But traces stay longer at a place, and in sparse data the population's transitions come from
        single users, so they reveal who was in the data.
    population_epsilon : float, optional
        Epsilon for differentially private population transitions, see `population_transitions`. The noise has no seed.
    """

    rank: Count = 16
    noise_precision: Positive = 200.0
    n_sweeps: Count = 100
    zeros: Literal["sampled", "weighted"] = "sampled"
    n_zeros: Count = 1000
    max_transitions: Count | None = 100
    max_visits: Count | None = 100
    max_count: Count | None = 10
    floor: Annotated[float, Ge(SMALLEST_FLOOR), Lt(1)] = FLOOR
    proposal_mix: Probability = 0.0
    population_epsilon: Positive | None = None

    def problems(self) -> list[Problem | str]:
        """Problems: settings that are missing for a differentially private proposal."""
        if self.population_epsilon is None:
            return []
        problems: list[Problem | str] = []
        if not self.proposal_mix:
            way_out = "Else the population's transitions are not used, and nothing is private"
            problems.append(Problem("a proposal_mix above 0 with population_epsilon", "0", way_out=way_out))
        if self.max_transitions is None or self.max_count is None:
            expected = "max_transitions and max_count with population_epsilon, since they bound a user's part"
            problems.append(Problem(expected, "none"))
        return problems

    def trimming(self) -> Trimming:
        """Bounds of the counts."""
        return Trimming(self.max_transitions, self.max_visits, self.max_count)

    def gibbs(self) -> GibbsSettings:
        """Settings of the sampler."""
        return GibbsSettings(self.rank, self.noise_precision)


def fit_chains(
    coupling: Coupling,
    train: Traces,
    settings: PPMTFSettings,
    seed: int,
    progress: bool = False,
    checkpoints: Checkpoints | None = None,
) -> MetropolisHastings:
    """Count events and transitions, factorize the coupled tensors, and use the last draw as the model."""
    population = None
    with spinner("counting", show=progress):
        counts = count_tensors(train, settings.trimming(), seed=seed)
        require_memory_to_fit(counts, settings.zeros, settings.n_zeros, settings.rank)
        cells = observe(counts, settings.zeros, settings.n_zeros, seed=seed)
        if settings.proposal_mix:
            epsilon = settings.population_epsilon
            require_memory_for_population(train.n_places, private=epsilon is not None)
            population = population_transitions(counts.transitions, settings.trimming(), epsilon=epsilon)
    result = run_gibbs(
        jax_stream(seed, Stage.FIT),
        cells,
        rows_of_factors(coupling, counts),
        coupling,
        settings.gibbs(),
        n_sweeps=settings.n_sweeps,
        checkpoints=checkpoints,
        progress=progress,
    )
    factors = {name: jnp.asarray(draws[0, -1]) for name, draws in result.draws.items()}
    (_, transition_modes), (_, visit_modes) = coupling.tensors
    return MetropolisHastings(
        *(factors[name] for name in (*transition_modes, *visit_modes)),
        slot_of_instant=jnp.asarray(train.time_grid.one_period().slot_of_instant),
        floor=settings.floor,
        population=None if population is None else jnp.asarray(population, jnp.float32),
        proposal_mix=settings.proposal_mix,
    )


def claims(model: MetropolisHastings, settings: PPMTFSettings) -> Claims:
    """Claims of a release of these traces."""
    limits = {"max_transitions": settings.max_transitions, "max_visits": settings.max_visits}
    limits |= {"max_count": settings.max_count}
    in_words = {name: "no limit" for name, limit in limits.items() if limit is None}
    if model.population is None:
        return Claims(settings=in_words | {"population_epsilon": "not used"})
    if settings.population_epsilon is None:
        in_words["population_epsilon"] = "none: no noise"
        shared = (
            "what the traces of all users have in common. They move, in part, by the transitions of all training users "
            "together. The privacy test does not cover these, because it compares users"
        )
        return Claims(not_protected=(shared,), settings=in_words)
    factors = (
        "the factors of single users. Traces move, in part, by the transitions of all training users together. These "
        f"transitions are {settings.population_epsilon:g}-differentially private by discrete Laplace noise. "
        "Neighbours are two data sets that differ by one additional user with all their traces; places are public. "
        "Each trace also moves by the factors, which are not differentially private"
    )
    return Claims(not_protected=(factors,), settings=in_words)


SYNTHESIZERS.register(
    Synthesizer(
        "ppmtf", TITLE, PPMTFSettings, partial(fit_chains, SHARED), MetropolisHastings, claims, on_all_devices=True
    )
)
