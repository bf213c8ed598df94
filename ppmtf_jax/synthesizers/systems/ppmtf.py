"""PPMTF: both count tensors factorized together by Gibbs sampling (Murakami et al. 2021, section 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Lt
from jaxtyping import Array, Float

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import Problem
from ppmtf_jax.gibbs.cells import observe
from ppmtf_jax.gibbs.conditionals import FactorPrior
from ppmtf_jax.gibbs.kernel import SHARED, Coupling, Factors, GibbsSettings, rows_of_factors
from ppmtf_jax.gibbs.memory import bytes_to_fit, require_memory_to_fit
from ppmtf_jax.gibbs.run import Checkpoints, run_gibbs
from ppmtf_jax.gibbs.selection import GRID, choose_settings, count_some_users, hide, log_score
from ppmtf_jax.gibbs.tensors import CountTensors, SparseCounts, Trimming, count_tensors
from ppmtf_jax.noise.mechanisms import add_laplace
from ppmtf_jax.runtime.memory import require_memory
from ppmtf_jax.runtime.progress import spinner
from ppmtf_jax.settings import Count, Positive, Probability, Settings
from ppmtf_jax.streams import Stage, jax_stream
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Claims, Synthesizer
from ppmtf_jax.trace_models.metropolis_hastings import CHOSEN, FLOOR, GUIDES, SMALLEST_FLOOR, MetropolisHastings
from ppmtf_jax.trace_models.population import one_step_more

# Bytes per matrix entry while the matrix is computed. With noise, entries are temporarily Python numbers.
POPULATION_BYTES, PRIVATE_POPULATION_BYTES = 24, 90

# R-hat compares the halves of each chain.
MIN_DRAWS = 4
HOW_FOUND = {
    "delta": "a point of high posterior density, and no draw",
    "normal": "a draw from independent normals near the posterior, and not from the posterior",
}
"""What the factors of variational inference are, by guide."""

TITLE = "Both count tensors factorized together, one Markov chain per user (Murakami et al. 2021)"


@dataclass(frozen=True)
class PPMTFSettings(Settings):
    """Settings of PPMTF; the defaults are the published ones.

    With "auto", `rank`, `noise_precision` and `n_zeros` are chosen by held-out cells, see `gibbs.selection`.

    Parameters
    ----------
    rank : int or "auto"
        Columns of every factor (z).
    noise_precision : float or "auto"
        alpha: precision with which the factors reproduce each count. Published: 1e-6 to 1e3; below 0.4 utility is low.
    n_sweeps : int
        Gibbs sweeps, or draws of each chain of `nuts`; the last draw is the model.
    zeros : "sampled" or "weighted"
        `sampled`: `n_zeros` random zero cells per user and tensor are observed, as published. `weighted`: all zero
        cells are observed, with a weight that makes them count as `n_zeros`; much faster for many users.
    n_zeros : int or "auto"
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
    inference : "gibbs", "svi" or "nuts"
        How the factors are found. `gibbs`: the last draw of a Gibbs sampler, as published. `svi` (variational
        inference) and `nuts` (for small data) run the NumPyro program of the model, see `models.inference`.
    guide : "auto", "delta" or "normal"
        With `svi`: a point of high density, or a draw from independent normals. `auto` takes the one that predicts
        held-out cells better.
    n_steps : int
        Steps of `svi`.
    batch_cells : int
        Cells of each tensor in a step of `svi`.
    """

    rank: Count | Literal["auto"] = 16
    noise_precision: Positive | Literal["auto"] = 200.0
    n_sweeps: Count = 100
    zeros: Literal["sampled", "weighted"] = "sampled"
    n_zeros: Count | Literal["auto"] = 1000
    max_transitions: Count | None = 100
    max_visits: Count | None = 100
    max_count: Count | None = 10
    floor: Annotated[float, Ge(SMALLEST_FLOOR), Lt(1)] = FLOOR
    proposal_mix: Probability = 0.0
    population_epsilon: Positive | None = None
    inference: Literal["gibbs", "svi", "nuts"] = "gibbs"
    guide: Literal["auto", "delta", "normal"] = "auto"
    n_steps: Count = 1500
    batch_cells: Annotated[int, Ge(2)] = 2**14

    def problems(self) -> list[Problem | str]:
        """Problems: too few draws, and settings that are missing for a differentially private proposal."""
        problems: list[Problem | str] = []
        if self.inference == "nuts" and self.n_sweeps < MIN_DRAWS:
            problems.append(Problem(f"an n_sweeps of at least {MIN_DRAWS} with inference=nuts", f"{self.n_sweeps}"))
        if self.population_epsilon is None:
            return problems
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
    """Count events and transitions, factorize the coupled tensors, and use the factors as the model."""
    population = None
    with spinner("counting", show=progress):
        counts = count_tensors(train, settings.trimming(), seed=seed)
        if settings.proposal_mix:
            epsilon = settings.population_epsilon
            require_memory_for_population(train.n_places, private=epsilon is not None)
            population = population_transitions(counts.transitions, settings.trimming(), epsilon=epsilon)
    if settings.inference == "nuts":
        from ppmtf_jax.models.inference import require_few_unknowns  # type: ignore[attr-defined]

        rank = min(GRID["rank"]) if settings.rank == "auto" else settings.rank
        require_few_unknowns(rows_of_factors(coupling, counts), coupling, rank)
    told: dict[str, Array] = {}
    if "auto" in (settings.rank, settings.noise_precision, settings.n_zeros):
        chosen, gain = choose_settings(train, settings.trimming(), coupling, vars(settings), seed, progress=progress)
        told["chosen"] = jnp.array([*(chosen.get(name, 0) for name in CHOSEN), gain], jnp.float32)
        settings = replace(settings, **chosen)
    factors, priors, how_found = find_factors(coupling, train, counts, settings, seed, progress, checkpoints)
    names = [name for _, modes in coupling.tensors for name in modes]
    return MetropolisHastings(
        *(factors[name] for name in names),
        slot_of_instant=jnp.asarray(train.time_grid.one_period().slot_of_instant),
        floor=settings.floor,
        population=None if population is None else jnp.asarray(population, jnp.float32),
        proposal_mix=settings.proposal_mix,
        prior_mean=jnp.stack([priors[name].mean for name in names]),
        prior_precision=jnp.stack([priors[name].precision for name in names]),
        **told,
        **how_found,
    )


def find_factors(
    coupling: Coupling,
    train: Traces,
    counts: CountTensors,
    settings: PPMTFSettings,
    seed: int,
    progress: bool,
    checkpoints: Checkpoints | None,
) -> tuple[Factors, dict[str, FactorPrior], dict[str, Array]]:
    """The factors, (rows, rank) each, the priors of their rows, and what `MetropolisHastings` keeps of how it was done.

    With several guides, each is fitted to some users' cells without the held-out ones, and the better one to all cells.
    """
    require_memory_to_fit(counts, settings.zeros, settings.n_zeros, settings.rank)
    key, n_rows, known = jax_stream(seed, Stage.FIT), rows_of_factors(coupling, counts), (coupling, settings.gibbs())
    zeros = settings.zeros, settings.n_zeros
    if settings.inference == "gibbs":
        with spinner("counting", show=progress):
            cells = observe(counts, *zeros, seed=seed)
        how = {"n_sweeps": settings.n_sweeps, "checkpoints": checkpoints, "progress": progress}
        result = run_gibbs(key, cells, n_rows, *known, **how)
        priors = {name: FactorPrior(*(array[0] for array in prior)) for name, prior in result.state.priors.items()}
        return {name: jnp.asarray(draws[0, -1]) for name, draws in result.draws.items()}, priors, {}
    # NumPyro's inference takes a second to load. In a checkout, type checkers do not find what is in `models`.
    from ppmtf_jax.models import inference  # type: ignore[attr-defined]
    from ppmtf_jax.models.mtf_numpyro import expected_cells, list_cells  # type: ignore[import-not-found]

    how = {"n_steps": settings.n_steps, "batch_cells": settings.batch_cells, "progress": progress}
    guide, told = settings.guide, {}
    if settings.inference == "svi" and guide == "auto":
        some = count_some_users(train, settings.trimming(), seed)
        needed = bytes_to_fit(some, "sampled", settings.n_zeros, settings.rank)
        require_memory("comparing guides", needed, "Set guide=delta or guide=normal")
        shown, hidden = hide(some, seed)
        index, scores = {name: each.index for name, each in hidden.items()}, []
        # Held-out cells cannot be hidden among weighted zeros.
        cells = list_cells(shown, "sampled", settings.n_zeros, seed=seed, hidden=index)
        for each in GUIDES:
            sites = inference.run_svi(key, cells, rows_of_factors(coupling, some), *known, guide=each, **how)
            found = {z: expected_cells(sites, modes, index[z])[None] for z, modes in coupling.tensors}
            scores.append(log_score(found, hidden, some, settings.noise_precision))
        guide, told = GUIDES[int(np.argmax(scores))], {"guide_score": jnp.array(scores, jnp.float32)}
    with spinner("counting", show=progress):
        cells = list_cells(counts, *zeros, seed=seed)
    if settings.inference == "nuts":
        draws = inference.run_nuts(key, cells, n_rows, *known, n_draws=settings.n_sweeps, progress=progress)
        sites = {name: site[0, -1] for name, site in draws.sites.items()}
        told = {"chains": jnp.array([draws.r_hat, draws.n_divergent], jnp.float32)}
    else:
        sites = inference.run_svi(key, cells, n_rows, *known, guide=guide, **how)
    roots = {name: sites[f"{name}_precision_root"] for name in coupling.factors}
    priors = {name: FactorPrior(sites[f"{name}_mean"], root @ root.T) for name, root in roots.items()}
    return {name: sites[name] for name in coupling.factors}, priors, told


def population_transitions(
    transitions: SparseCounts, trimming: Trimming = Trimming(), *, epsilon: float | None = None
) -> Float[np.ndarray, "place next_place"]:
    """Transition matrix of all users together, every entry positive.

    P(a, b) = (N(a, b) + v(b)) / (N(a) + 1), where N are the counts of all users and v(b) = (N(., b) + 1) / (N + places)
    is the smoothed share of the steps that go to b. Each place thus gets one additional step, distributed like all
    steps. If nobody left a place, its next place is distributed like all steps. If few people left a place, its row
    follows these people: without `epsilon` it reveals them. The plausible-deniability test does not detect this,
    because it compares users, and the matrix affects the traces of all users.

    `transitions`: counts that `count_tensors` has trimmed with `trimming`. `epsilon`: privacy budget of the matrix;
    needs max_transitions and max_count in `trimming`. Without it there is no noise.

    Notes
    -----
    With `epsilon` the matrix is epsilon-differentially private at the level of users.

    Neighbours: two data sets that differ by one additional user with all their traces; places are public.

    Mechanism: discrete Laplace noise of scale max_transitions * max_count / epsilon on each of the places x places
    counts N, see `add_laplace`, which has no seed. Noisy counts that noise alone could have produced are then set to
    zero, and the rest is smoothed; both use the noisy counts only.

    Sensitivity of N: max_transitions * max_count in L1. Proof: N is the sum over users of their trimmed counts. The
    choice of a user's kept cells is a function of the seed, their id and their own traces (`count_tensors` uses a
    random stream of their own). So for every seed, the trimmed counts of all other users are the same with and without
    them, and N changes only by their own counts: at most max_transitions cells of at most max_count each. As this holds
    for every seed, the seed may be known.

    Privacy: noise of that scale on a vector of that sensitivity is epsilon-differentially private, and so is everything
    computed from it. This covers the matrix, not the factors of the users.
    """
    n_places = transitions.shape[1]
    cell = transitions.place.astype(np.int64) * n_places + transitions.other
    count = np.bincount(cell, transitions.count, minlength=n_places**2).astype(np.int64)
    if epsilon is not None:
        sensitivity = (trimming.max_transitions or 0) * (trimming.max_count or 0)
        noisy = add_laplace(count, sensitivity, epsilon)
        # The probability that any of n Laplace variables exceeds this is below 1 in 200.
        largest = sensitivity / epsilon * np.log(100 * len(noisy))
        count = np.where(noisy > largest, noisy, 0)
    return one_step_more(count.reshape(n_places, n_places))


def require_memory_for_population(n_places: int, *, private: bool) -> None:
    """Refuse a transition matrix of the population that needs too much memory."""
    needed = (PRIVATE_POPULATION_BYTES if private else POPULATION_BYTES) * n_places**2
    require_memory("the population's transitions", needed, "Set proposal_mix=0, or take fewer places")


def claims(model: MetropolisHastings, settings: PPMTFSettings) -> Claims:
    """Claims of a release of these traces."""
    limits = "max_transitions", "max_visits", "max_count"
    in_words = {name: "no limit" for name in limits if getattr(settings, name) is None}
    found, unproved = model.settings_found, ()
    in_words |= {name: f"{value}, chosen by held-out cells" for name, value in found.items()}
    if model.chains is not None:
        in_words["inference"] = "nuts: the last draw. R-hat {:.2f}, {:.0f} divergent draws".format(*model.chains)
    if model.prior_mean is None:
        in_words["inference"] = "not said: the factors are of another program with settings of its own"
        unproved = (
            "anybody by the argument of posterior sampling (App. G). The model does not say how its factors were found",
        )
    elif settings.inference == "svi":
        how_found = HOW_FOUND[found.get("guide", settings.guide)]
        in_words["inference"] = f"svi: {how_found}"
        unproved = (f"anybody by the argument of posterior sampling (App. G). The factors are {how_found}",)
    if model.population is None:
        return Claims(not_protected=unproved, settings=in_words | {"population_epsilon": "not used"})
    if settings.population_epsilon is None:
        in_words["population_epsilon"] = "none: no noise"
        shared = (
            "what the traces of all users have in common. They move, in part, by the transitions of all training users "
            "together. The privacy test does not cover these, because it compares users"
        )
        return Claims(not_protected=(shared, *unproved), settings=in_words)
    factors = (
        "the factors of single users. Traces move, in part, by the transitions of all training users together. These "
        f"transitions are {settings.population_epsilon:g}-differentially private by discrete Laplace noise. "
        "Neighbours are two data sets that differ by one additional user with all their traces; places are public. "
        "Each trace also moves by the factors, which are not differentially private"
    )
    return Claims(not_protected=(factors, *unproved), settings=in_words)


SYNTHESIZERS.register(
    Synthesizer(
        "ppmtf", TITLE, PPMTFSettings, partial(fit_chains, SHARED), MetropolisHastings, claims, on_all_devices=True
    )
)
