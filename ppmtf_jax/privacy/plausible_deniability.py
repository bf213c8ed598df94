"""The plausible-deniability test: could a synthetic trace as well come from k - 1 other users.

Mechanism: Privacy Test 1 of Murakami et al. 2021 (section 3.5), after Bindschaedler et al. 2017, deterministic. It
protects the link between a trace and its input user. It is *not* differential privacy: the model's factors, the outcome
of the test itself (which traces are withheld) and several traces of the same user are not covered.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from ppmtf_jax.errors import InputError, NumericalError, Problem
from ppmtf_jax.progress import progress_bar
from ppmtf_jax.synthesizers.base import (
    FittedModel,
    TraceModel,
    complete_places,
    pairwise_log_likelihood,
    step_log_probabilities,
    user_tables,
)
from ppmtf_jax.traces import Traces

VERIFIERS_AT_A_TIME = 32
TRACES_AT_A_TIME = 128


@dataclass(frozen=True, eq=False)
class PlausibleDeniability:
    """Outcome of the test.

    Parameters
    ----------
    k, eta, n_verifiers : the test's parameters; verifiers beside each trace's input user
    log_likelihood : float array, shape (traces,)
        Of each trace under its input user.
    plausible_users : int array, shape (traces,)
        k': users, the input user among them, for whom the trace is as probable as (7). Where counting stopped at k it
        says k, unless all were counted.
    table : DataFrame
        Columns user, trace, log_likelihood, plausible_users, passed; one row for each trace.
    """

    k: int
    eta: float
    n_verifiers: int
    log_likelihood: np.ndarray
    plausible_users: np.ndarray
    table: pd.DataFrame

    @property
    def passed(self) -> np.ndarray:
        """Whether each trace may be released, shape (traces,), in the order of `Traces.trace_table`."""
        return self.plausible_users >= self.k


def plausible_deniability_test(
    model: FittedModel,
    synthetic: Traces,
    *,
    k: int = 10,
    eta: float = 1.0,
    n_verifiers: int | None = None,
    seed: int = 0,
    count_all: bool = False,
    precision: Literal["float32", "float64"] = "float64",
    progress: bool = False,
) -> PlausibleDeniability:
    """Test every trace for (k, eta)-plausible deniability.

    A trace with likelihood p under its input user lies in the bin i with e^-(i+1)eta < p <= e^-i eta, eq. (6); it
    passes if at least k users, itself among them, put it into the same bin, eq. (7).

    Parameters
    ----------
    synthetic : Traces
        As `synthesize` makes them.
    k, eta : privacy parameters; larger k and smaller eta protect better
    n_verifiers : int, optional
        Size of the random subset of users that are asked (U*); None asks all. The input user always counts.
    seed : int
        Of the subset.
    count_all : bool
        Count on after k was reached; otherwise a trace leaves the test as soon as it has passed.
    precision : "float64" or "float32"
        Of the likelihoods. A float32 likelihood can lie in the wrong bin (see benchmarks), so float64 is the default.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> from ppmtf_jax.synthesizers.base import fit, synthesize
    >>> model = fit(toy_city(n_users=20, seed=0).traces, "uniform")
    >>> plausible_deniability_test(model, synthesize(model, seed=1), k=20).passed.all()
    np.True_
    """
    _check_parameters(k, eta, n_verifiers, model.n_users, precision)
    users, places = complete_places(model, synthetic)
    n_verifiers = model.n_users if n_verifiers is None else n_verifiers
    verifiers = np.sort(np.random.default_rng(seed).permutation(model.n_users)[:n_verifiers])
    with jax.enable_x64(True) if precision == "float64" else nullcontext():
        trace_model = _in_precision(model.trace_model, precision)
        own = step_log_probabilities(trace_model, users, places).sum(axis=1)
        if not np.isfinite(own).all():
            raise NumericalError(f"{int((~np.isfinite(own)).sum())} traces are impossible under their own input user")
        stop_at = None if count_all else k
        plausible = _count_plausible_users(trace_model, verifiers, users, places, own, eta, stop_at, progress)
    index, trace = synthetic.trace_table()
    columns = {"user": synthetic.user_ids[index], "trace": trace, "log_likelihood": own, "plausible_users": plausible}
    table = pd.DataFrame(columns).assign(passed=plausible >= k)
    return PlausibleDeniability(k, eta, n_verifiers, own, plausible, table)


def _count_plausible_users(
    model: TraceModel,
    verifiers: np.ndarray,
    users: np.ndarray,
    places: np.ndarray,
    own: np.ndarray,
    eta: float,
    stop_at: int | None,
    progress: bool,
) -> np.ndarray:
    count = np.ones(len(users), np.int64)
    own_bin = _bin(own, eta)
    active = np.arange(len(users))
    with progress_bar("testing plausible deniability", len(verifiers), show=progress) as advance:
        for first in range(0, len(verifiers), VERIFIERS_AT_A_TIME):
            block = verifiers[first : first + VERIFIERS_AT_A_TIME]
            if not len(active):
                break
            tables = user_tables(model, jnp.asarray(np.resize(block, VERIFIERS_AT_A_TIME)))
            for rows in np.split(active, np.arange(TRACES_AT_A_TIME, len(active), TRACES_AT_A_TIME)):
                tile = jnp.asarray(places[np.resize(rows, TRACES_AT_A_TIME)])
                log_likelihood = np.asarray(pairwise_log_likelihood(model, tables, tile))[: len(rows), : len(block)]
                same_bin = _bin(log_likelihood, eta) == own_bin[rows, None]
                same_bin &= block != users[rows, None]
                count[rows] += same_bin.sum(axis=1)
            if stop_at is not None:
                active = active[count[active] < stop_at]
            advance(len(block))
    return count if stop_at is None else np.minimum(count, stop_at)


def _bin(log_likelihood: np.ndarray, eta: float) -> np.ndarray:
    """i with e^-(i+1)eta < p <= e^-i eta, for p = exp(log_likelihood)."""
    return np.floor(-log_likelihood / eta)


def _in_precision(model: TraceModel, precision: str) -> TraceModel:
    def cast(leaf: jax.Array) -> jax.Array:
        return jnp.asarray(np.asarray(leaf), precision) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(cast, model)


def _check_parameters(k: int, eta: float, n_verifiers: int | None, n_users: int, precision: str) -> None:
    problems = []
    if k < 1:
        problems.append(Problem("k of at least 1", repr(k)))
    if not 0 < eta < np.inf:
        problems.append(Problem("a positive eta", repr(eta)))
    if n_verifiers is not None and not 1 <= n_verifiers <= n_users:
        problems.append(Problem(f"n_verifiers from 1 to {n_users}, the number of users", repr(n_verifiers)))
    if precision not in ("float32", "float64"):
        problems.append(Problem("precision 'float32' or 'float64'", repr(precision)))
    if problems:
        raise InputError("plausible-deniability test", problems)
