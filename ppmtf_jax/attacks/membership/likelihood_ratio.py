"""Membership inference by likelihood ratio: were a user's data used to make the traces? (App. D)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from ppmtf_jax.attacks.membership.base import (
    MembershipScores,
    membership_advantage,
    membership_attack,
    membership_chance,
)
from ppmtf_jax.attacks.registry import NO_TRANSITIONS, register_attack
from ppmtf_jax.attacks.scoring import (
    FLOOR,
    AttackedTraces,
    attacked_traces,
    looks_over_gaps,
    ml_transitions,
    products_in_blocks,
)
from ppmtf_jax.data.comparable import check_disjoint_users, check_same_places
from ppmtf_jax.data.measurement import Comparison, Interpretation, MetricInfo, NoSettings
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.privacy.limits import ADVANTAGE, people_of_both
from ppmtf_jax.settings import Settings


@dataclass(frozen=True)
class LikelihoodRatioSettings(Settings, subject="likelihood-ratio attack"):
    """Settings of the likelihood-ratio attack.

    Parameters
    ----------
    pool_traces : bool
        Attack all traces of a user as one; for real data, where trace numbers only mark breaks.
    """

    pool_traces: bool = False


def membership_scores(
    released: Traces, train: Traces, test: Traces, *, pool_traces: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Score training and test users by how much better their transitions explain a trace than all other users' do.

    The attacker knows the real traces of all these users. For each trace number, the score of a user is the greatest
    log-likelihood ratio over the released traces with this number. The ratio is the likelihood under the user's
    transition matrix, divided by the likelihood under the mean matrix of all other users. A transition that does not
    occur in a matrix has probability 1e-8. Transitions are steps to the next instant; if the released traces have gaps,
    also steps over several instants, in all sets.

    No user is in both `train` and `test`. `pool_traces`: attack all traces of a user as one; for real data, where trace
    numbers only mark breaks. Raises `InputError`: the place tables differ, or users are in both sets.

    Returns
    -------
    members : float array, shape (trace numbers, training users)
    others : float array, shape (trace numbers, test users)

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=20, seed=0).traces.split_users(0.5, seed=0)
    >>> members, others = membership_scores(train, train, test, pool_traces=True)
    >>> members.shape, others.shape
    ((1, 10), (1, 10))
    """
    check_same_places(released=released, train=train, test=test)
    check_disjoint_users(train, test)
    known = (ml_transitions(each, looks_over_gaps(released, pool_traces)) for each in (train, test))
    return _scores(attacked_traces(released, pool_traces=pool_traces), *known)


def _still(released: Traces, train: Traces, pool_traces: bool) -> list[str]:
    """Names of the sets without a transition."""
    over_gaps = looks_over_gaps(released, pool_traces)
    return [name for name, each in (("released", released), ("train", train)) if not each.has_transitions(over_gaps)]


def _scores(attacked: AttackedTraces, train: sparse.csr_array, test: sparse.csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Greatest score of each user over the traces with each trace number, shape (numbers, users), of both sets."""
    n_train, n_users, n_pairs = len(train.indptr) - 1, len(train.indptr) + len(test.indptr) - 2, len(attacked.pairs)
    known = attacked.known_to(sparse.vstack([train, test], format="csr"))
    # 1. Log-likelihood ratio of each pair for users without this pair, and how much more users with it get.
    pair, n_others = known.row, n_users - 1
    total = np.bincount(pair, weights=known.data, minlength=n_pairs)
    n_makers = np.bincount(pair, minlength=n_pairs)
    of_pair = np.log(FLOOR) - np.log(np.where(n_makers > 0, total / n_others, FLOOR))
    # If nobody else makes the transition, the difference would be rounding noise.
    without_user = np.where(n_makers[pair] > 1, (total[pair] - known.data) / n_others, FLOOR)
    gain = np.log(known.data) - np.log(without_user) - of_pair[pair]
    gains = sparse.csr_array((gain, known.coords), shape=known.shape)
    # 2. Gains are not negative, so a user's score is at least the greatest baseline of the traces.
    baseline = attacked.counts @ of_pair
    _, number = np.unique(attacked.number, return_inverse=True)
    greatest = np.full(number.max() + 1, -np.inf)
    np.maximum.at(greatest, number, baseline)
    scores = np.repeat(greatest, n_users)
    for rows, product in products_in_blocks(attacked.counts, gains):
        entries = np.diff(product.indptr)
        # `maximum.at` is fast on flat indices only.
        cell = np.repeat(number[rows] * n_users, entries) + product.indices
        np.maximum.at(scores, cell, product.data + np.repeat(baseline[rows], entries))
    members, others = np.split(scores.reshape(-1, n_users), [n_train], axis=1)
    return members, others


@membership_attack(
    "likelihood_ratio",
    "Likelihood of each trace under a user's transitions, divided by that under all other users' transitions",
    LikelihoodRatioSettings,
)
def _infer(
    released: Traces, train: Traces, test: Traces, settings: LikelihoodRatioSettings, seed: int, progress: bool
) -> MembershipScores:
    del seed, progress
    if still := _still(released, train, settings.pool_traces):
        found = f"none in {', '.join(still)}"
        raise InputError("likelihood-ratio attack", [Problem("two events at consecutive instants in each set", found)])
    scores = membership_scores(released, train, test, pool_traces=settings.pool_traces)
    return MembershipScores(*scores, train.user_ids, test.user_ids, "likelihood_ratio", one_tail=False)


def _measure(comparison: Comparison, settings: NoSettings) -> list[float]:
    released, train, test = comparison.traces, comparison.train, comparison.test
    n_attacked = float(released.n_users if comparison.pool_traces else len(released.trace_table()[0]))
    over_gaps = comparison.statistic(looks_over_gaps, released, comparison.pool_traces)
    if not all(comparison.statistic(Traces.has_transitions, traces, over_gaps) for traces in (released, train)):
        return [math.nan, math.nan, n_attacked]
    attacked = comparison.statistic(attacked_traces, released, comparison.pool_traces)
    known = (comparison.statistic(ml_transitions, traces, over_gaps) for traces in (train, test))
    scores = _scores(attacked, *known)
    return [membership_advantage(*scores), membership_chance(*scores), n_attacked]


def _read(comparison: Comparison, settings: NoSettings) -> list[Interpretation]:
    alarm = ADVANTAGE.alarm(people_of_both(comparison.train.n_users, comparison.test.n_users))
    return [Interpretation(alarm=alarm), Interpretation(), Interpretation()]


register_attack(
    "membership",
    MetricInfo(
        "mia_advantage",
        "Membership advantage",
        "True minus false positive rate of the likelihood-ratio attack on membership in the training set, at the "
        "best threshold. The attacker knows all real traces.",
        "true minus false positive rate",
        "lower",
        "near chance",
        NO_TRANSITIONS,
    ),
    MetricInfo(
        "mia_chance",
        "Membership advantage by chance",
        "Expected advantage if membership has no effect: the mean over random splits of the users.",
        "true minus false positive rate",
        "none",
        "-",
        NO_TRANSITIONS,
    ),
    MetricInfo(
        "n_attacked",
        "Traces attacked",
        "Number of attacked traces. The membership advantage depends on it.",
        "traces",
        "none",
        "-",
    ),
    measure=_measure,
    reading=_read,
    check=lambda comparison: check_disjoint_users(comparison.train, comparison.test),
)
