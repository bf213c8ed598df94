"""How much chance changes the numbers of real people: standard errors from random parts of the users."""

from __future__ import annotations

import math

import numpy as np

from ppmtf_jax.data.measurement import Comparison
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation.settings import EvaluationSettings
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.streams import Stage, numpy_stream

N_PARTS = 10
MOST_USERS = 2000
"""Largest number of users of a part: more users take longer and make no standard error better."""
LEAST_USERS = 4
SEED = 0
PARTS = 9
"""Random-stream number: metrics use smaller ones."""


def standard_errors(train: Traces, test: Traces, n_instants: int, *, progress: bool = False) -> dict[str, float]:
    """Standard errors of the training users' numbers in an evaluation, by metric.

    Each number is computed again from some random parts of the training users and of the test users, half of each or
    less. The variance of a statistic of a share f of the users, drawn without replacement, is (1 - f) / f times the
    variance of the statistic of all users (Shao and Wu 1989: the delete-d jackknife).

    Parameters
    ----------
    train, test : Traces
        The real traces of the evaluation.
    n_instants : int
        How many instants a synthetic trace covers.
    progress : bool
        Show a progress bar where there is a terminal.

    Returns
    -------
    dict of str to float
        NaN for a number that is undefined for a part; empty if a set has fewer than four users.

    References
    ----------
    Shao and Wu 1989, A general theory for jackknife variance estimation, The Annals of Statistics 17.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=40, seed=0).traces.split_users(0.5, seed=0)
    >>> few, many = (standard_errors(train.select_users(np.arange(n)), test, 24)["tp_tv"] for n in (4, 20))
    >>> 0 < many < few < 0.1
    True
    """
    if min(train.n_users, test.n_users) < LEAST_USERS:
        return {}
    share = min(0.5, MOST_USERS / max(train.n_users, test.n_users))
    found: dict[str, list[float]] = {}
    with progress_bar("measuring chance", N_PARTS, show=progress, waits_for="") as advance:
        for number in range(N_PARTS):
            stream = numpy_stream(SEED, Stage.METRICS, PARTS, number)
            parts = (each.select_users(_draw(stream, each.n_users, share)) for each in (train, test))
            for name, value in _numbers(*parts, n_instants).items():
                found.setdefault(name, []).append(value)
            advance(1)
    scale = math.sqrt(share / (1 - share))
    return {name: scale * float(np.std(values, ddof=1)) for name, values in found.items()}


def _draw(stream: np.random.Generator, n_users: int, share: float) -> np.ndarray:
    return stream.permutation(n_users)[: max(round(share * n_users), 2)]


def _numbers(train: Traces, test: Traces, n_instants: int) -> dict[str, float]:
    """The numbers of some training users, without attacks; NaN where they cannot be computed."""
    comparison = Comparison(train, train, test, n_instants, pool_traces=True)
    found: dict[str, float] = {}
    for each in EvaluationSettings(attacks=False).measurements():
        if not each.applies(comparison):
            continue
        try:
            found |= each.by_name(each.measurement.measure, comparison)
        except InputError:
            found |= dict.fromkeys((quantity.name for quantity in each.quantities), math.nan)
    return found
