"""How well scores tell training users from others: rates, what is so by chance, and who is most exposed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import binom

from ppmtf_jax.attacks.roc import Roc, bootstrap_interval
from ppmtf_jax.privacy.limits import MEMBERSHIP_LIMITS, Judgement, people_of_both, share_interval

N_SPLITS = 100
"""Of the users, to find what the advantage is by chance: its mean is then known to a twentieth."""
SPLIT_SEED = 0
EXPOSED_SHARE = 0.1
TAIL = 0.025
"""Probability of each end of an interval to be wrong."""


@dataclass(frozen=True)
class Estimate:
    """A number, and the ends of its 95 % interval over users."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ExposedUsers:
    """The tenth of the training users whom an attack is most sure of.

    Parameters
    ----------
    user_ids : tuple
        The highest score first.
    score : tuple of float
        Mean over the trace numbers, in the attack's own unit.
    false_positive_rate : tuple of float
        Share of the others who score at least as high: how many are wrongly accused by one who finds this user.
    excess : float
        Mean score of these users, less that of the tenth of the others with the highest scores: about 0 by chance.
    """

    user_ids: tuple[Any, ...]
    score: tuple[float, ...]
    false_positive_rate: tuple[float, ...]
    excess: float


@dataclass(frozen=True)
class MembershipSummary:
    """What an attack found, in plain numbers.

    Parameters
    ----------
    attack : str
    n_members, n_others, n_numbers : int
        Training users and others attacked, and trace numbers of each. No rate is known finer than 1 / n_others.
    auc : Estimate
        How often a training user scores higher than another; 0.5 by chance.
    advantage : Estimate
        Greatest difference of true and false positive rate. A maximum is too high on average, in resamples even more
        so: its interval may lie above it.
    chance : float
        The advantage that is to be expected if membership had no effect.
    tpr_at_1_percent, tpr_at_01_percent : Estimate
        True positive rate where at most 1 % and 0.1 % of the others are taken for training users. With fewer than 100
        and 1,000 others none may be, and the rate is that of a stricter attack.
    exposed : ExposedUsers
    """

    attack: str
    n_members: int
    n_others: int
    n_numbers: int
    auc: Estimate
    advantage: Estimate
    chance: float
    tpr_at_1_percent: Estimate
    tpr_at_01_percent: Estimate
    exposed: ExposedUsers

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def judgements(self) -> list[Judgement]:
        """What the limits say of each of `MEMBERSHIP_LIMITS`."""
        people = people_of_both(self.n_members, self.n_others)
        found = (self.auc, self.tpr_at_1_percent, self.tpr_at_01_percent)
        return [
            limit.judge(each.value, people, (each.low, each.high))
            for limit, each in zip(MEMBERSHIP_LIMITS, found, strict=True)
        ]


@dataclass(frozen=True, eq=False)
class MembershipScores:
    """What an attack gives: the higher a user's score, the more it takes her for a training user.

    Parameters
    ----------
    members : float array, shape (trace numbers, training users)
    others : float array, shape (trace numbers, other users)
    member_ids, other_ids : arrays, shape (users,)
        Whose the scores are.
    attack : str
        Its name.

    Examples
    --------
    >>> scores = MembershipScores(np.array([[3.0, 1.0]]), np.array([[2.0, 0.0]]), np.array([7, 8]), np.array([5, 6]))
    >>> scores.roc.auc, scores.exposed().user_ids, scores.exposed().excess
    (0.75, (7,), 1.0)
    """

    members: Float[np.ndarray, "number member"] = field(repr=False)
    others: Float[np.ndarray, "number other"] = field(repr=False)
    member_ids: np.ndarray = field(repr=False)
    other_ids: np.ndarray = field(repr=False)
    attack: str = ""

    @cached_property
    def roc(self) -> Roc:
        """Of all scores: one threshold serves all trace numbers."""
        return Roc.of(self.members, self.others)

    @property
    def chance(self) -> float:
        """Advantage to be expected if membership had no effect, see `membership_chance`."""
        return membership_chance(self.members, self.others)

    def estimate(self, statistic: Callable[[Roc], float], *, seed: int = 0) -> Estimate:
        """A number of the curve, with its interval over users: these, not their traces, are resampled.

        Examples
        --------
        >>> rng, ids = np.random.default_rng(0), np.arange(100)
        >>> scores = MembershipScores(rng.normal(1, 1, (3, 100)), rng.normal(0, 1, (3, 100)), ids, ids + 100)
        >>> auc = scores.estimate(lambda roc: roc.auc)
        >>> auc.low < auc.value < auc.high
        True
        """
        n_members = len(self.member_ids)

        def of_resample(weight: Float[np.ndarray, " user"]) -> float:
            kinds = weight[:n_members], weight[n_members:]
            if not all(kind.any() for kind in kinds):
                return math.nan
            of_scores = [np.tile(kind, len(self.members)) for kind in kinds]
            return statistic(Roc.of(self.members, self.others, np.concatenate(of_scores)))

        low, high = bootstrap_interval(of_resample, n_members + len(self.other_ids), seed=seed)
        return Estimate(float(statistic(self.roc)), low, high)

    def true_positive_rate(self, false_positive_rate: float) -> Estimate:
        """Share of the training users found with at most so many false alarms, with its 95 % interval over users.

        Two things are not known. The threshold hangs on a few others: at the one that all others would give, their
        number above it is binomial. And the training users are a sample (Clopper and Pearson): none found of few is not
        none of all. The distances of both intervals from the share are added as squares (Newcombe 1998). A bootstrap
        would be too sure: at 1 % of 100 others, or 0.1 % of 1,000, its interval misses the truth in up to a third of
        cases. All scores of a user count as one. With fewer than 368 others at 1 %, and ten times as many at 0.1 %,
        none of them may be above the threshold, and the lower end is 0.

        Examples
        --------
        >>> scores = MembershipScores(np.zeros((1, 20)), np.ones((1, 500)), np.arange(20), np.arange(20, 520))
        >>> rate = scores.true_positive_rate(0.01)
        >>> rate.value, rate.low, round(rate.high, 2)
        (0.0, 0.0, 0.17)
        """
        n_others, rate_at = len(self.other_ids), self.roc.true_positive_rate_at
        found = rate_at(false_positive_rate)
        fewest, most = binom.ppf([TAIL, 1 - TAIL], n_others, false_positive_rate)
        by_threshold = rate_at((fewest - 1) / n_others) if fewest else 0.0, rate_at(most / n_others)
        of_members = share_interval(found, len(self.member_ids), TAIL)
        low, high = (math.hypot(found - a, found - b) for a, b in zip(by_threshold, of_members, strict=True))
        return Estimate(found, max(found - low, 0.0), min(found + high, 1.0))

    def exposed(self) -> ExposedUsers:
        """The tenth of the training users with the highest scores."""
        member, other = self.members.mean(axis=0), np.sort(self.others.mean(axis=0))[::-1]
        highest = np.argsort(-member, kind="stable")[: math.ceil(EXPOSED_SHARE * len(member))]
        n_as_high = np.searchsorted(-other, -member[highest], side="right")
        excess = member[highest].mean() - other[: math.ceil(EXPOSED_SHARE * len(other))].mean()
        return ExposedUsers(
            tuple(self.member_ids[highest].tolist()),
            tuple(member[highest].tolist()),
            tuple((n_as_high / len(other)).tolist()),
            float(excess),
        )

    def summary(self, *, seed: int = 0) -> MembershipSummary:
        """All numbers at once; the seed is that of the resamples.

        Examples
        --------
        >>> scores = MembershipScores(np.array([[3.0, 1.0]]), np.array([[2.0, 0.0]]), np.arange(2), np.arange(2, 4))
        >>> scores.summary().to_dict()["auc"]["value"]
        0.75
        """
        return MembershipSummary(
            self.attack,
            len(self.member_ids),
            len(self.other_ids),
            len(self.members),
            self.estimate(lambda roc: roc.auc, seed=seed),
            self.estimate(lambda roc: roc.advantage, seed=seed),
            self.chance,
            self.true_positive_rate(0.01),
            self.true_positive_rate(0.001),
            self.exposed(),
        )


def membership_advantage(members: np.ndarray, others: np.ndarray) -> float:
    """Greatest difference of true and false positive rate over all thresholds, from 0 (a random guess) to 1.

    One threshold serves all trace numbers. The maximum is taken over every threshold, so it is never below 0 and never
    below what any finite set of thresholds gives.

    Examples
    --------
    >>> membership_advantage(np.array([3.0, 2.0, 1.0, 0.0]), np.array([1.5, 0.0, 0.0, 0.0]))
    0.5
    """
    members, others = np.sort(members, axis=None), np.sort(others, axis=None)
    thresholds = np.unique(np.concatenate([members, others]))
    true_rate = 1 - np.searchsorted(members, thresholds) / len(members)
    false_rate = 1 - np.searchsorted(others, thresholds) / len(others)
    return float(np.max(true_rate - false_rate))


def membership_chance(members: np.ndarray, others: np.ndarray) -> float:
    """Advantage to be expected if the scores had nothing to do with membership: its mean over random splits of users.

    A maximum over thresholds is above 0 by chance, the more so the fewer users and trace numbers there are. All users
    are shuffled and split into as many members and others as there are, each user with her scores of all trace numbers,
    which are alike. If membership has no effect, real and shuffled split are equally probable, so this is the
    expected advantage whatever the numbers of users, ties, and likeness. If it has one, scores of both kinds are
    mixed; of one trace number this changes nothing, for ranks are all that counts.

    Parameters
    ----------
    members, others : float arrays, shape (trace numbers, users)
        Of `membership_scores`.

    Examples
    --------
    >>> members, others = np.arange(64.0)[None] + 32, np.arange(64.0)[None]
    >>> membership_advantage(members, others)
    0.5
    >>> 0.08 < membership_chance(members, others) < 0.14
    True
    """
    n_members, n_others = members.shape[1], others.shape[1]
    scores = np.concatenate([members, others], axis=1)
    n_numbers, n_users = scores.shape
    descending = np.argsort(-scores, axis=None)
    user = descending % n_users
    ordered = scores.ravel()[descending]
    # A threshold lies between different scores only.
    ends = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), len(ordered) - 1)
    rng = np.random.default_rng(SPLIT_SEED)
    weight = np.repeat([1 / n_members, -1 / n_others], [n_members, n_others]) / n_numbers
    greatest = [np.cumsum(rng.permutation(weight)[user])[ends].max() for _ in range(N_SPLITS)]
    return float(np.mean(np.maximum(greatest, 0.0)))
