"""The sweep as a NumPyro kernel: NumPyro's driver can run it, collect draws and pass them to ArviZ."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpyro.infer.mcmc import MCMCKernel

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.gibbs.cells import ObservedCells
from ppmtf_jax.gibbs.conditionals import FactorPrior
from ppmtf_jax.gibbs.kernel import Coupling, GibbsSettings, GibbsState, init_state, step


class MTFGibbsState(NamedTuple):
    """State of a chain; any field can be collected by NumPyro's `extra_fields`."""

    factors: dict[str, Array]  # the draw; always collected; shape (rows, rank)
    priors: dict[str, FactorPrior]  # mean and precision of each factor's rows that the last sweep drew
    sweep: Int[Array, "*chain"]  # sweeps done
    # Log density of the tensors, the factors and their priors. Always collected. NaN before the first sweep.
    log_joint: Float[Array, "*chain"]
    # Weighted root mean square error over the observed cells of each tensor. NaN before the first sweep.
    rmse: dict[str, Float[Array, "*chain"]]
    # Whether all factors are finite. Always collected.
    finite: Bool[Array, "*chain"]
    rng_key: Array  # key of the whole chain; each sweep folds its number in


class MTFGibbs(MCMCKernel):
    """Gibbs sampler of the hierarchical model for `numpyro.infer.MCMC`: one draw is one sweep.

    `MCMC.run` takes the observed cells of each tensor. A draw is a dict of factors, named as in the coupling and as in
    `models/mtf_numpyro.py`. `extra_fields` may name any field of `MTFGibbsState`, such as "rmse" or "priors.user".
    "~factors.user" leaves out the user factor, which is the largest.

    The draws equal those of `run_gibbs` (up to rounding), which runs chain c with `jax.random.fold_in(key, c)`. Give
    `MCMC.run` that key, or an array of such keys for several chains: NumPyro splits a single key in another way.

    Pass `jit_model_args=True` to `MCMC`, otherwise each run compiles a new program; with its progress bar (the
    default), NumPyro compiles once for all runs. All chain methods work. Unlike `run_gibbs`, NumPyro does not stop when
    a factor is no longer finite: look at the field `finite`.

    Parameters
    ----------
    n_rows : dict
        Number of rows of each factor.

    Examples
    --------
    >>> from numpyro.infer import MCMC
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> from ppmtf_jax.gibbs.cells import observe
    >>> from ppmtf_jax.gibbs.kernel import SHARED
    >>> from ppmtf_jax.gibbs.tensors import count_tensors
    >>> counts = count_tensors(toy_city(n_users=5, seed=0).traces, seed=0)
    >>> users, places, slots = counts.visits.shape
    >>> n_rows = {"user": users, "place": places, "next_place": places, "slot": slots}
    >>> kernel = MTFGibbs(SHARED, GibbsSettings(rank=2), n_rows)
    >>> mcmc = MCMC(kernel, num_warmup=1, num_samples=4, progress_bar=False, jit_model_args=True)
    >>> mcmc.run(jax.random.key(0), observe(counts, "weighted", 100, seed=0), extra_fields=["rmse"])  # doctest: +SKIP
    >>> mcmc.get_samples()["user"].shape, mcmc.get_extra_fields()["rmse"]["visits"].shape  # doctest: +SKIP
    ((4, 5, 2), (4,))
    """

    # ArviZ reads this attribute; these draws do not come from a NumPyro program.
    model = None

    def __init__(self, coupling: Coupling, settings: GibbsSettings, n_rows: dict[str, int]) -> None:
        missing = [name for name in coupling.factors if name not in n_rows]
        if missing:
            raise InputError(
                "n_rows", [Problem("rows of every factor of the coupling", f"none of {', '.join(missing)}")]
            )
        self.coupling, self.settings, self.n_rows = coupling, settings, n_rows

    @property
    def sample_field(self) -> str:
        return "factors"

    @property
    def default_fields(self) -> tuple[str, ...]:
        return ("factors", "log_joint", "finite")

    def get_diagnostics_str(self, state: MTFGibbsState) -> str:
        """Reconstruction errors for the progress bar, or a warning that a factor is not finite."""
        if not state.finite:
            return "a factor is no longer finite"
        return "rmse " + ", ".join(f"{name} {float(value):.3g}" for name, value in state.rmse.items())

    def init(
        self,
        rng_key: Array,
        num_warmup: int,
        init_params: dict[str, Array] | None,
        model_args: tuple[Any, ...],
        model_kwargs: dict[str, Any],
    ) -> MTFGibbsState:
        """State before the first sweep, of one chain or, for an array of keys, of several chains.

        `num_warmup`: ignored, because nothing is adapted. `init_params`: initial factors in place of uniform ones, each
        (rows, rank), with a leading chain axis for several chains. `model_args`: only the observed cells.
        """
        self._check_cells(model_args, model_kwargs)
        keys = _typed(rng_key)
        init_one = jax.vmap(self._init_chain) if keys.ndim else self._init_chain
        state = init_one(keys)._replace(rng_key=rng_key)
        if init_params is None:
            return state
        found = {name: np.shape(rows) for name, rows in init_params.items()}
        expected = {name: rows.shape for name, rows in state.factors.items()}
        if found != expected:
            raise InputError("init_params", [Problem(f"factors of shapes {expected}", str(found))])
        factors = {name: jnp.asarray(init_params[name], rows.dtype) for name, rows in state.factors.items()}
        return state._replace(factors=factors)

    def sample(
        self, state: MTFGibbsState, model_args: tuple[dict[str, ObservedCells]], model_kwargs: dict[str, Any]
    ) -> MTFGibbsState:
        """One sweep of one chain, or of every chain at once."""
        (cells,) = model_args
        keys = _typed(state.rng_key)
        gibbs_state = GibbsState(state.factors, state.priors, state.sweep)
        sweep = partial(step, coupling=self.coupling, settings=self.settings)
        after, info = (jax.vmap(sweep, (0, 0, None)) if keys.ndim else sweep)(keys, gibbs_state, cells)
        rmse = {
            name: jnp.sqrt(jnp.maximum(error, 0) / cells[name].total_weight)
            for name, error in info.square_error.items()
        }
        return MTFGibbsState(*after, info.log_joint, rmse, info.finite.all(axis=-1), state.rng_key)

    def _init_chain(self, key: Array) -> MTFGibbsState:
        start = init_state(key, self.n_rows, self.coupling, self.settings)
        unknown = jnp.full((), jnp.nan, jnp.float32)
        rmse = {name: unknown for name, _ in self.coupling.tensors}
        return MTFGibbsState(*start, unknown, rmse, jnp.ones((), bool), key)

    def _check_cells(self, model_args: tuple[Any, ...], model_kwargs: dict[str, Any]) -> None:
        tensors = [name for name, _ in self.coupling.tensors]
        way_out = "Call run(key, cells) with the cells that gibbs.cells.observe gives"
        if len(model_args) != 1 or model_kwargs or not isinstance(model_args[0], dict):
            found = f"{len(model_args)} positional and {len(model_kwargs or {})} named arguments"
            raise InputError("cells", [Problem("one dict of observed cells", found, way_out=way_out)])
        if not set(tensors) <= set(model_args[0]):
            found = f"those of {', '.join(model_args[0]) or 'none'}"
            raise InputError("cells", [Problem(f"cells of {', '.join(tensors)}", found, way_out=way_out)])


def _typed(key: Array) -> Array:
    """A typed key: NumPyro also takes keys that are plain integers."""
    return key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)
