"""Which attack tells best whose traces these are: all estimators on the same traces, with intervals over users."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ppmtf_jax.attacks.estimators.base import ESTIMATORS, TransitionMatrices, estimate_transitions
from ppmtf_jax.attacks.obfuscation import random_deletions, worst_deletions
from ppmtf_jax.attacks.open_world import NOBODY, Verification, verification
from ppmtf_jax.attacks.roc import Roc, bootstrap_interval
from ppmtf_jax.attacks.trace_scores import MAX_GAP, TraceScores, score_traces
from ppmtf_jax.data.comparable import index_of_ids
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.privacy.limits import IDENTITY_LIMITS, Judgement
from ppmtf_jax.settings import Count, CountOrZero, Settings, chosen_settings, parse_choice

FALSE_POSITIVE_RATES = (0.001, 0.01, 0.1)
"""At which true positive rates are told: an attacker who accuses needs few false alarms."""


@dataclass(frozen=True)
class ReidentificationSettings(Settings, subject="re-identification"):
    """How the attack is made.

    Parameters
    ----------
    n_deleted : int
        Places deleted from each trace before it is handed out.
    deletion : "worst" or "random"
        Of target users' traces: those whose absence hurts the attacker most, or any. Strangers' are always any.
    first_place : "stationary" or "uniform"
        Probability of the first place of a trace: that in which the chain would settle, or none in particular.
    max_gap : int
        Events with more instants between are not linked.

    Raises
    ------
    InputError
        Listing every setting that is impossible.
    """

    n_deleted: CountOrZero = 0
    deletion: Literal["worst", "random"] = "worst"
    first_place: Literal["stationary", "uniform"] = "stationary"
    max_gap: Count = MAX_GAP


@dataclass(frozen=True, eq=False)
class Linkage:
    """How well traces are linked to target users.

    Parameters
    ----------
    n_traces : int
        Of target users and of strangers.
    n_targets : int
    n_known : int
        Target users of whom there are traces.
    against : "strangers" or "targets"
        Whose traces are the false ones.
    auc : float
        How often a target user's own trace scores higher than somebody else's; 0.5 is a guess.
    auc_interval : pair of floats
        95 %, over users drawn again.
    true_positive_rate : dict of float to float
        By false positive rate.
    accuracy : float
        Share of target users' traces whose user is guessed right among all targets; chance is 1 / n_targets.
    roc : Roc
    """

    n_traces: int
    n_targets: int
    n_known: int
    against: str
    auc: float
    auc_interval: tuple[float, float]
    true_positive_rate: dict[float, float]
    accuracy: float
    roc: Roc = field(repr=False)

    @classmethod
    def of(cls, scores: TraceScores, *, seed: int) -> Linkage:
        """What scores amount to.

        Examples
        --------
        >>> from ppmtf_jax.datasets.toy_city import toy_city
        >>> traces = toy_city(n_users=10, n_places=20, seed=0).traces
        >>> linkage = Linkage.of(score_traces(traces, estimate_transitions(traces)), seed=0)
        >>> linkage.against, linkage.auc > 0.9, linkage.accuracy > 0.9
        ('targets', True, True)
        """
        checked = verification(scores)
        roc, auc_by_users = checked.roc(), checked.auc_by_users()
        known = scores.truth != NOBODY
        right = scores.own[known].argmax(axis=1) == scores.truth[known]
        n_targets, n_impostors = len(scores.target_ids), int(checked.impostor_user.max()) + 1

        def auc(weight: np.ndarray) -> float:
            return auc_by_users(*_user_weights(checked, weight, n_targets))

        n_users = n_targets + (n_impostors if checked.against == "strangers" else 0)
        rates = {rate: roc.true_positive_rate_at(rate) for rate in FALSE_POSITIVE_RATES}
        interval = bootstrap_interval(auc, n_users, seed=seed)
        n_known = len(np.unique(scores.truth[known]))
        return cls(len(known), n_targets, n_known, checked.against, roc.auc, interval, rates, float(right.mean()), roc)

    def judgements(self) -> list[Judgement]:
        """What the limits say of each of `IDENTITY_LIMITS`."""
        found = (self.accuracy, self.true_positive_rate[0.01], self.true_positive_rate[0.001])
        guesses = (1 / self.n_targets, None, None)
        numbers = zip(IDENTITY_LIMITS, found, guesses, strict=True)
        return [limit.judge(value, self.n_known, guess=guess) for limit, value, guess in numbers]

    def numbers(self) -> dict[str, Any]:
        """All but the curve, for a file."""
        found = {name: value for name, value in vars(self).items() if name != "roc"}
        return found | {"true_positive_rate": {str(rate): each for rate, each in self.true_positive_rate.items()}}


@dataclass(frozen=True, eq=False)
class Reidentified:
    """What one estimator achieves.

    Parameters
    ----------
    estimator : str
        Its name, with settings that were given.
    title : str
    each : Linkage
        Where every trace has a pseudonym of its own.
    combined : Linkage
        Where all traces of a user have the same one.
    seconds : float
    """

    estimator: str
    title: str
    each: Linkage
    combined: Linkage
    seconds: float

    def numbers(self) -> dict[str, Any]:
        """All but the curves, for a file."""
        linkages = {"each": self.each.numbers(), "combined": self.combined.numbers()}
        return {"estimator": self.estimator, **linkages, "seconds": round(self.seconds, 1)}


def reidentification_attacks(
    known: Traces,
    anonymized: Traces,
    estimators: Sequence[str] | None = None,
    settings: ReidentificationSettings | None = None,
    *,
    seed: int = 0,
    progress: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> list[Reidentified]:
    """Attack traces with every estimator, the strongest first.

    Parameters
    ----------
    known : Traces
        What the attacker knows of the target users.
    anonymized : Traces
        What is handed out. User ids tell whose the traces are; only the verdict on the attack uses them.
    estimators : sequence of str, optional
        Each its name, and settings if wanted as name=value with spaces between. By default all there are.
    settings : ReidentificationSettings, optional
    seed : int
        Of random starts, deletions and intervals.
    progress : bool
        Show a progress bar where there is a terminal.
    say : callable
        Is told what is done.

    Returns
    -------
    list of Reidentified
        In falling order of the AUC of single traces. The first is the strongest *on these traces*: it was chosen by
        what is measured, as an auditor must, who looks for the worst case.

    Raises
    ------
    InputError
        What the estimators, `score_traces` or `verification` refuse.

    Examples
    --------
    >>> from ppmtf_jax.attacks.splits import RehearsalSettings, rehearse
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=20, n_places=20, n_days=4, seed=0).traces
    >>> made = rehearse(traces, RehearsalSettings(), seed=0)
    >>> [attack] = reidentification_attacks(made.known, made.anonymized, ["ml floor=1e-3"])
    >>> attack.each.against, attack.each.auc > 0.6
    ('strangers', True)
    """
    chosen = chosen_settings(ReidentificationSettings, settings, {}, "re-identification")
    asked = list(ESTIMATORS) if estimators is None else list(dict.fromkeys(estimators))
    if not asked:
        raise InputError("estimators", [Problem(f"some of {', '.join(ESTIMATORS)}", "none")])
    # Refuse an unknown name before the work of the others is done.
    parsed = {text: parse_choice(text, ESTIMATORS) for text in asked}
    found = []
    for number, (name, (entry, given)) in enumerate(parsed.items()):
        say(f"{name}: learning transition matrices of {known.n_users} users")
        began = time.perf_counter()
        try:
            matrices = estimate_transitions(known, entry.name, given, seed=seed, progress=progress)
        except InputError as error:
            # Of those that nobody asked for, one may not suit the data, as where coordinates are missing.
            if estimators is not None or (number == len(parsed) - 1 and not found):
                raise
            say(f"{name} was left out: {error}")
            continue
        left = anonymized.select_events(_left_after_deletion(anonymized, matrices, chosen, seed))
        scores = score_traces(left, matrices, first_place=chosen.first_place, max_gap=chosen.max_gap, progress=progress)
        each, combined = Linkage.of(scores, seed=seed), Linkage.of(scores.combined(), seed=seed)
        found.append(Reidentified(name, entry.title, each, combined, time.perf_counter() - began))
    return sorted(found, key=lambda attack: -attack.each.auc)


def _left_after_deletion(
    traces: Traces, matrices: TransitionMatrices, settings: ReidentificationSettings, seed: int
) -> np.ndarray:
    at_random = random_deletions(traces, settings.n_deleted, seed=seed)
    if settings.deletion == "random" or not settings.n_deleted:
        return at_random
    worst = worst_deletions(
        traces, matrices, settings.n_deleted, first_place=settings.first_place, max_gap=settings.max_gap
    )
    is_target = index_of_ids(traces.user_ids, matrices.user_ids) != NOBODY
    return np.where(is_target[traces.user], worst, at_random)


def _user_weights(checked: Verification, weight: np.ndarray, n_targets: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights of the target users, and of the users the false traces are of, who may be the same."""
    return weight[:n_targets], weight[n_targets:] if checked.against == "strangers" else weight
