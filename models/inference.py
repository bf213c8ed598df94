"""Inference for the NumPyro program `mtf_numpyro.mtf`, or a changed one: SVI with optax on mini-batches, and NUTS.

Both take the arguments of the program. Only NUTS draws from the posterior, in the limit of many draws.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO, init_to_uniform
from numpyro.infer.autoguide import AutoDelta, AutoNormal
from ppmtf_jax.models.mtf_numpyro import Cells, expected_cells, mtf

from ppmtf_jax.errors import InputError, NumericalError, Problem
from ppmtf_jax.gibbs.diagnostics import summarize
from ppmtf_jax.gibbs.kernel import SHARED, Coupling, GibbsSettings
from ppmtf_jax.gibbs.run import Quantity
from ppmtf_jax.runtime.progress import progress_bar, spinner

# Adam's step size falls from this to 0 along a cosine.
STEP_SIZE = 0.03
# Values begin uniform between -START and START: from larger ones, the factors reach worse optima.
START, START_SCALE = 0.3, 0.02
STEPS_PER_CALL = 50
# NUTS computes the density of all cells hundreds of times for each draw.
MAX_UNKNOWNS = 20_000
N_CHAINS, N_PREDICTED = 2, 50
# Of chains that never moved.
MAX_R_HAT = 1e6


def draw_batch(key: jax.Array, cells: Cells, kinds: tuple[int, int], n_cells: int) -> Cells:
    """Draw `n_cells` (2 or more), or take all if they are fewer; weights keep all expected sums those over all cells.

    `kinds`: numbers of positive cells, which come first, and of others. Half of the batch is drawn from either kind, as
    far as there are enough.
    """
    if sum(kinds) <= n_cells:
        return cells
    n_others = min(kinds[1], max(n_cells // 2, n_cells - kinds[0]))
    parts = [(0, kinds[0], n_cells - n_others), (kinds[0], kinds[1], n_others)]
    keys = jax.random.split(key)
    some = [first + jax.random.randint(k, (n,), 0, max(1, m)) for k, (first, m, n) in zip(keys, parts, strict=True)]
    chosen = jnp.concatenate(some)
    scale = jnp.concatenate([jnp.full(n, m / max(1, n), jnp.float32) for _, m, n in parts])
    index, value, weight = (None if each is None else each[chosen] for each in cells[:3])
    return Cells(index, value, scale if weight is None else scale * weight, cells.zero_weight)


def run_svi(
    key: jax.Array,
    cells: dict[str, Cells],
    n_rows: dict[str, int],
    coupling: Coupling = SHARED,
    settings: GibbsSettings = GibbsSettings(),
    *,
    program: Callable[..., None] = mtf,
    guide: Literal["delta", "normal"] = "delta",
    n_steps: int = 1500,
    batch_cells: int = 2**14,
    progress: bool = False,
) -> dict[str, jax.Array]:
    """Fit a program by stochastic variational inference (Hoffman et al., JMLR 2013), and give a value of each site.

    Each step of Adam draws `batch_cells` cells of each tensor, see `draw_batch`; zeros by `Cells.zero_weight` are exact
    in every step. The guide `delta` gives a point of high density; `normal` gives a draw from independent normals. The
    key and the other arguments determine the result. Raises `NumericalError`: the loss is not finite.

    Examples
    --------
    >>> cells = {name: Cells(np.zeros((1, 3), int), np.ones(1)) for name in ("transitions", "visits")}
    >>> found = run_svi(jax.random.key(0), cells, dict.fromkeys(SHARED.factors, 1), settings=GibbsSettings(rank=2))
    >>> round(float(expected_cells(found, ("user", "place", "slot"), cells["visits"].index)[0]), 1)
    1.0
    """
    init_key, cells_key, draw_key = jax.random.split(key, 3)
    content, kinds = {}, {}
    for z, (*listed, zero_weight) in cells.items():
        is_other = np.asarray(listed[1]) <= 0
        kinds[z] = int((~is_other).sum()), int(is_other.sum())
        order = np.argsort(is_other, kind="stable")
        content[z] = Cells(*(None if each is None else jnp.asarray(each)[order] for each in listed), zero_weight)
    start = init_to_uniform(radius=START)
    how = {} if guide == "delta" else {"init_scale": START_SCALE}
    approximation = {"delta": AutoDelta, "normal": AutoNormal}[guide](program, init_loc_fn=start, **how)
    svi = SVI(program, approximation, optax.adam(optax.cosine_decay_schedule(STEP_SIZE, n_steps)), Trace_ELBO())
    known = n_rows, coupling, settings

    def batch(step: int | jax.Array, content: dict[str, Cells]) -> dict[str, Cells]:
        keys = jax.random.split(jax.random.fold_in(cells_key, step), len(content))
        return {z: draw_batch(k, content[z], kinds[z], max(2, batch_cells)) for k, z in zip(keys, content, strict=True)}

    @partial(jax.jit, donate_argnums=0)
    def run(state: Any, content: dict[str, Cells], first: jax.Array) -> tuple[Any, jax.Array]:
        # After the last step the step size is 0, so the steps that fill the last call change nothing.
        def advance(state: Any, step: jax.Array) -> tuple[Any, jax.Array]:
            return svi.update(state, batch(step, content), *known)

        return lax.scan(advance, state, first + jnp.arange(STEPS_PER_CALL))

    state = svi.init(init_key, batch(0, content), *known)
    with progress_bar(f"steps of SVI, {guide} guide", n_steps, show=progress) as show:
        for first in range(0, n_steps, STEPS_PER_CALL):
            state, losses = run(state, content, jnp.asarray(first))
            n = min(STEPS_PER_CALL, n_steps - first)
            if not np.isfinite(losses[:n]).all():
                raise NumericalError(f"the loss of SVI is not finite by step {first + n}: lower noise_precision")
            show(n)
    params = svi.get_params(state)
    if guide == "delta":
        return approximation.median(params)
    return approximation.sample_posterior(draw_key, params, batch(0, content), *known)


def require_few_unknowns(n_rows: dict[str, int], coupling: Coupling, rank: int) -> None:
    """Refuse more entries of factors and of their priors than NUTS ends with in hours."""
    factors = coupling.factors
    n_unknowns = sum(n_rows[name] + 1 for name in factors) * rank + len(factors) * rank * (rank + 1) // 2
    if n_unknowns > MAX_UNKNOWNS:
        way_out = "Take fewer users or places or a lower rank, or set inference=svi or inference=gibbs"
        raise InputError("nuts", [Problem(f"at most {MAX_UNKNOWNS:,} unknowns", f"{n_unknowns:,}", way_out=way_out)])


class PosteriorDraws(NamedTuple):
    """Draws of NUTS: `sites` have shapes (chains, draws, ...)."""

    sites: dict[str, jax.Array]
    # Largest R-hat of the log density and of the expected counts of some cells, which do not depend on the order and
    # the signs of the columns; 1e6 if a chain never moved.
    r_hat: float
    n_divergent: int  # draws after which the sampler left its path


def run_nuts(
    key: jax.Array,
    cells: dict[str, Cells],
    n_rows: dict[str, int],
    coupling: Coupling = SHARED,
    settings: GibbsSettings = GibbsSettings(),
    *,
    program: Callable[..., None] = mtf,
    n_draws: int = 500,
    progress: bool = False,
) -> PosteriorDraws:
    """Draw from the posterior of a program by NUTS (Hoffman and Gelman, JMLR 2014): two chains, as many draws before.

    Raises `InputError`: more than 20,000 unknowns. Raises `NumericalError`: a draw is not finite.
    """
    require_few_unknowns(n_rows, coupling, settings.rank)
    # As a closure, so that NumPyro compiles one program for all chains.
    kernel = NUTS(partial(program, cells, n_rows, coupling, settings))
    how = {"num_chains": N_CHAINS, "chain_method": "sequential", "progress_bar": False}
    mcmc = MCMC(kernel, num_warmup=n_draws, num_samples=n_draws, **how)
    with spinner(f"NUTS, {N_CHAINS} chains of {2 * n_draws} draws", show=progress):
        mcmc.run(key, extra_fields=("potential_energy", "diverging"))
    sites, fields = mcmc.get_samples(group_by_chain=True), mcmc.get_extra_fields(group_by_chain=True)
    trace = {Quantity("log_joint"): -np.asarray(fields["potential_energy"])}
    if not np.isfinite(trace[Quantity("log_joint")]).all():
        raise NumericalError("a draw of NUTS is not finite: lower noise_precision")
    for tensor, modes in coupling.tensors:
        index = np.asarray(cells[tensor].index)
        found = expected_cells(sites, modes, index[:: max(1, len(index) // N_PREDICTED)])
        trace |= {Quantity("cell", tensor, number): found[..., number] for number in range(found.shape[-1])}
    r_hat = np.nan_to_num(summarize(trace)["r_hat"].max(), nan=MAX_R_HAT, posinf=MAX_R_HAT)
    return PosteriorDraws(sites, float(r_hat), int(np.asarray(fields["diverging"]).sum()))
