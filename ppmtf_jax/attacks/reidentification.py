"""Bayesian re-identification: whose trace was this synthetic trace made from? (Murakami et al. 2021, App. D)."""

from __future__ import annotations

import math

import numpy as np
from scipy import sparse

from ppmtf_jax.attacks.registry import NO_TRANSITIONS, register_attack
from ppmtf_jax.attacks.scoring import (
    FLOOR,
    AttackedTraces,
    attacked_traces,
    looks_over_gaps,
    ml_transitions,
    products_in_blocks,
)
from ppmtf_jax.data.comparable import check_same_places, training_user_of
from ppmtf_jax.data.measurement import Comparison, Interpretation, MetricInfo, NoSettings
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.privacy.limits import NAMED

TIE = 1e-9
"""Log-likelihoods that differ by less are ties: summing the same logarithms in another order changes them by less."""


def reidentify(released: Traces, train: Traces, *, pool_traces: bool = False) -> np.ndarray:
    """Guess, for each released trace, the training user whose transitions make it most likely.

    The attacker knows all training traces; the prior over users is uniform. A transition that a user never made has
    probability 1e-8. In a tie, the first user is guessed. Transitions are steps to the next instant; if the released
    traces have gaps, also steps over several instants, in the released and the training traces.

    `pool_traces`: attack all traces of a user as one; for real data, where trace numbers only mark breaks. The result
    has the index of the guessed training user for each row of `released.trace_table()`, or with `pool_traces` for each
    user. Raises `InputError`: the place tables differ.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train = toy_city(n_users=20, seed=0).traces
    >>> reidentify(train, train, pool_traces=True)[:3].tolist()
    [0, 1, 2]
    """
    check_same_places(released=released, train=train)
    known = ml_transitions(train, looks_over_gaps(released, pool_traces))
    return guesses(attacked_traces(released, pool_traces=pool_traces), known)


def guesses(attacked: AttackedTraces, estimates: sparse.csr_array) -> np.ndarray:
    """For each trace, the first user with the greatest log-likelihood, up to a tie."""
    known = attacked.known_to(estimates)
    gains = sparse.csr_array((np.log(known.data) - np.log(FLOOR), known.coords), shape=known.shape)
    guess, n_users = np.zeros(len(attacked.user), np.int64), len(estimates.indptr) - 1
    for rows, product in products_in_blocks(attacked.counts, gains):
        # Stored gains are positive, all others 0. A trace without any is that of the first user. `reduceat` takes each
        # segment up to the next start, so rows without entries must be left out.
        entries = np.diff(product.indptr)
        filled = np.flatnonzero(entries)
        if len(filled):
            start = product.indptr[filled]
            greatest = np.repeat(np.maximum.reduceat(product.data, start), entries[filled])
            column = np.where(product.data >= greatest - TIE, product.indices, n_users)
            guess[rows.start + filled] = np.minimum.reduceat(column, start)
    return guess


def _check(comparison: Comparison) -> None:
    if not comparison.traces.of_nobody:
        comparison.statistic(training_user_of, comparison.traces, comparison.train)


def _measure(comparison: Comparison, settings: NoSettings) -> list[float]:
    released, train = comparison.traces, comparison.train
    over_gaps = comparison.statistic(looks_over_gaps, released, comparison.pool_traces)
    can_attack = all(comparison.statistic(Traces.has_transitions, traces, over_gaps) for traces in (released, train))
    if released.of_nobody or not can_attack:
        return [math.nan]
    attacked = comparison.statistic(attacked_traces, released, comparison.pool_traces)
    truth = comparison.statistic(training_user_of, released, train)[attacked.user]
    return [float(np.mean(guesses(attacked, comparison.statistic(ml_transitions, train, over_gaps)) == truth))]


def _read(comparison: Comparison, settings: NoSettings) -> list[Interpretation]:
    n_users = comparison.train.n_users
    return [Interpretation(alarm=NAMED.alarm(n_users, guess=1 / n_users))]


register_attack(
    "reidentification",
    MetricInfo(
        "reid_rate",
        "Re-identification rate",
        "Share of the synthetic traces whose user is guessed right. The attacker knows all training traces.",
        "share of traces",
        "lower",
        "near Uniform",
        f"{NO_TRANSITIONS}, or synthetic users who stand for nobody, so that nobody can be found",
    ),
    measure=_measure,
    reading=_read,
    check=_check,
)
