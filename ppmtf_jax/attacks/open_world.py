"""Re-identification where most traces are of people the attacker knows nothing of.

Section III of Murakami et al., TIFS 2017. The attacker knows some traces of the target users, and that one of them, or
some of them, are among those who gave the anonymized traces; the traces of all others she cannot tell apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ppmtf_jax.attacks.roc import Roc, auc_by_weights
from ppmtf_jax.attacks.trace_scores import TraceScores
from ppmtf_jax.errors import InputError, Problem

NOBODY = -1
"""In place of the index of a target user: someone else."""


class Verification(NamedTuple):
    """Scores of the attack "is this trace of this target user?", for all traces and targets.

    Attributes
    ----------
    genuine : float64 array, shape (genuine,)
        Of the traces of each target user for herself.
    genuine_target : int array, shape (genuine,)
        Index of that target user.
    impostor : float64 array, shape (impostors, targets)
        Of the traces of somebody else for each target user. NaN for the user whose trace it is.
    impostor_user : int array, shape (impostors,)
        Number of the user each is of; index among the target users where it is one of them.
    against : str
        Who the somebody else is: "strangers", whom the attacker knows nothing of, or "targets", where there is none.
    """

    genuine: np.ndarray
    genuine_target: np.ndarray
    impostor: np.ndarray
    impostor_user: np.ndarray
    against: str

    def roc(self) -> Roc:
        """The curve of all scores."""
        return Roc.of(self.genuine, self._impostors())

    def auc_by_users(self) -> Callable[[np.ndarray, np.ndarray], float]:
        """The area under the curve for weights of the targets and of the users of impostor traces, for a bootstrap."""
        auc = auc_by_weights(self.genuine, self._impostors())
        is_impostor = ~np.isnan(self.impostor)

        def of_users(of_target: np.ndarray, of_impostor: np.ndarray) -> float:
            of_pair = of_impostor[self.impostor_user][:, None] * of_target
            return auc(of_target[self.genuine_target], of_pair.ravel() if is_impostor.all() else of_pair[is_impostor])

        return of_users

    def _impostors(self) -> Float[np.ndarray, " impostor"]:
        scores = self.impostor.ravel()
        return scores[~np.isnan(scores)]


class Rates(NamedTuple):
    """How well the classification into N' target users and "someone else" does (section III-D).

    Attributes
    ----------
    true_positive : float
        Share of target users' traces of which the right user is among the candidates.
    false_positive : float
        Share of strangers' traces that have a candidate.
    n_candidates : float
        Mean number of candidates of a target user's trace.
    """

    true_positive: float
    false_positive: float
    n_candidates: float


def verification(scores: TraceScores) -> Verification:
    """Put the scores of all pairs of a trace and a target user into genuine and impostor ones.

    Impostors are traces of strangers where there are any, as in section VI; else those of other target users.

    Raises
    ------
    InputError
        No trace is of a target user, or all are of one.

    Examples
    --------
    >>> from ppmtf_jax.attacks.estimators.base import estimate_transitions
    >>> from ppmtf_jax.attacks.trace_scores import score_traces
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=10, n_places=20, seed=0).traces
    >>> targets = traces.select_users(np.arange(5))
    >>> checked = verification(score_traces(traces, estimate_transitions(targets)).combined())
    >>> checked.genuine.shape, checked.impostor.shape, checked.roc().auc > 0.9
    ((5,), (5, 5), True)
    """
    truth, ratio = scores.truth, scores.log_ratio
    known = np.flatnonzero(truth != NOBODY)
    if not len(known):
        way_out = "Both must use the same user ids; read a release with its key"
        raise InputError("traces to attack", [Problem("some of users in the training traces", "none", way_out=way_out)])
    strangers = np.flatnonzero(truth == NOBODY)
    others = strangers if len(strangers) else known
    impostor = ratio[others].copy()
    own = truth[others] != NOBODY
    impostor[own, truth[others][own]] = np.nan
    against = "strangers" if len(strangers) else "targets"
    number = np.unique(scores.user_ids[others], return_inverse=True)[1] if len(strangers) else truth[others]
    return Verification(ratio[known, truth[known]], truth[known], impostor, number, against)


def best_candidate(log_ratio: Float[np.ndarray, "trace target"], log_threshold: float) -> Int[np.ndarray, " trace"]:
    """The max-score rule: the target user with the greatest score, or `NOBODY` if that is below the threshold.

    Examples
    --------
    >>> best_candidate(np.array([[1.0, 3.0], [-2.0, -1.0]]), 0.0).tolist()
    [1, -1]
    """
    best = log_ratio.argmax(axis=1)
    return np.where(log_ratio.max(axis=1) >= log_threshold, best, NOBODY)


def candidates(log_ratio: Float[np.ndarray, "trace target"], log_threshold: float) -> Bool[np.ndarray, "trace target"]:
    """The threshold rule: all target users whose score reaches the threshold; someone else where none does.

    Examples
    --------
    >>> candidates(np.array([[1.0, 3.0], [-2.0, -1.0]]), 0.0).tolist()
    [[True, True], [False, False]]
    """
    return log_ratio >= log_threshold


def threshold_rule_rates(scores: TraceScores, log_threshold: float, known: Int[np.ndarray, " known"]) -> Rates:
    """Rates of the threshold rule where some target users are known to have given traces.

    Only their traces and those of strangers count.

    Parameters
    ----------
    scores : TraceScores
    log_threshold : float
    known : int array, shape (N',)
        Indices of target users.

    Examples
    --------
    >>> scores = TraceScores(
    ...     np.array([[2.0, 1.0], [0.0, -1.0]]), np.zeros((2, 2)), np.array([0, 9]), np.zeros(2, int), np.array([0, 1])
    ... )
    >>> threshold_rule_rates(scores, 0.5, np.array([0, 1]))
    Rates(true_positive=1.0, false_positive=0.0, n_candidates=2.0)
    """
    chosen = candidates(scores.log_ratio[:, known], log_threshold)
    position = np.full(len(scores.target_ids) + 1, NOBODY)
    position[known] = np.arange(len(known))
    # Index -1, of somebody else, is the last position, which stays nobody's.
    own = position[scores.truth]
    of_known, of_strangers = own != NOBODY, scores.truth == NOBODY
    right = chosen[of_known, own[of_known]]
    n_candidates = chosen[of_known].sum(axis=1)
    return Rates(_mean(right), _mean(chosen[of_strangers].any(axis=1)), _mean(n_candidates))


def max_score_rates(scores: TraceScores, log_threshold: float, known: Int[np.ndarray, " known"]) -> Rates:
    """Rates of the max-score rule, as `threshold_rule_rates`; there is at most one candidate.

    Examples
    --------
    >>> scores = TraceScores(
    ...     np.array([[2.0, 1.0], [0.0, -1.0]]), np.zeros((2, 2)), np.array([0, 9]), np.zeros(2, int), np.array([0, 1])
    ... )
    >>> max_score_rates(scores, 0.5, np.array([0, 1]))
    Rates(true_positive=1.0, false_positive=0.0, n_candidates=1.0)
    """
    best = best_candidate(scores.log_ratio[:, known], log_threshold)
    guess = np.where(best == NOBODY, NOBODY, known[best])
    of_known = np.isin(scores.truth, known)
    right = guess[of_known] == scores.truth[of_known]
    named = guess != NOBODY
    return Rates(_mean(right), _mean(named[scores.truth == NOBODY]), _mean(named[of_known]))


def expected_rates(true_positive: float, false_positive: float, n_known: int) -> Rates:
    """Rates of the threshold rule with N' users if scores are independent: equations (6), (7) and (10).

    Parameters
    ----------
    true_positive, false_positive : float
        Of one user, N' = 1.
    n_known : int
        N'.

    Examples
    --------
    >>> expected_rates(0.75, 0.5, 2)
    Rates(true_positive=0.75, false_positive=0.75, n_candidates=1.25)
    """
    return Rates(true_positive, 1 - (1 - false_positive) ** n_known, true_positive + (n_known - 1) * false_positive)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else float("nan")
