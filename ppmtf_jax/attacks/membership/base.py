"""Membership attacks: the registry, the function that runs them, and their scores with rates and intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from ppmtf_jax.attacks.roc import Roc, bar_of_chance, bootstrap_interval, rate_interval, roc_by_weights
from ppmtf_jax.data.comparable import check_disjoint_users, check_same_places
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.privacy.limits import EXPECTED_BY_CHANCE, EXPOSED, FOUND, Judgement, shows_leak
from ppmtf_jax.registry import Registry
from ppmtf_jax.settings import chosen_settings
from ppmtf_jax.streams import Stage, numpy_stream

N_SPLITS = 100
"""Number of random splits for the advantage by chance: the error of its mean is then about 5 %."""
SPLIT_SEED = 0


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval over users."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class MembershipSummary:
    """The result of an attack in plain numbers.

    There are `n_members` attacked training users, `n_others` other users and `n_numbers` trace numbers. The resolution
    of the false positive rate is 1 / n_others. The advantage is a maximum and therefore biased upwards, in bootstrap
    resamples even more: its interval may lie above it. The true positive rate is that at a false positive rate of at
    most 1 %. With fewer than 100 others, this means no false positive at all, so the reported rate is too low. The ids
    `exposed` are those of `MembershipScores.exposed`; whether anybody is exposed is known only if `has_bar`. The
    strongest of `n_attacks` attacks counts.
    """

    attack: str
    n_members: int
    n_others: int
    n_numbers: int
    auc: Estimate
    advantage: Estimate
    chance: float
    tpr_at_1_percent: Estimate
    exposed: tuple[Any, ...]
    has_bar: bool
    n_attacks: int

    def to_dict(self) -> dict[str, Any]:
        """All numbers for JSON."""
        return asdict(self)

    def judgements(self) -> list[Judgement]:
        """Judge the people found and the people exposed by the first two of `FINDING_LIMITS`."""
        people, found, n = (self.n_members, self.n_others), self.tpr_at_1_percent, self.n_attacks
        is_leak = shows_leak(self.auc.value, people, (self.auc.low, self.auc.high), n)
        judged = FOUND.judge(found.value, people, (found.low, found.high), n_attacks=n, is_leak=is_leak)
        return [judged, EXPOSED.judge(len(self.exposed) if self.has_bar else math.nan, people)]


@dataclass(frozen=True, eq=False)
class MembershipScores:
    """Scores of an attack: the higher, the more likely the user is a training user.

    `one_tail`: whether the highest scores of the other users tell what chance gives a training user. The likelihood
    ratio and the nearest trace of a single person who repeats a move that nobody else makes are far above all others,
    in any release.

    Examples
    --------
    >>> scores = MembershipScores(np.array([[3.0, 1.0]]), np.array([[2.0, 0.0]]), np.array([7, 8]), np.array([5, 6]))
    >>> scores.roc.auc, scores.exposed()
    (0.75, ())
    """

    members: Float[np.ndarray, "number member"] = field(repr=False)
    others: Float[np.ndarray, "number other"] = field(repr=False)
    member_ids: np.ndarray = field(repr=False)
    other_ids: np.ndarray = field(repr=False)
    attack: str = ""
    one_tail: bool = True

    @cached_property
    def roc(self) -> Roc:
        """The ROC curve of all scores, with one threshold for all trace numbers."""
        return self._curve(np.ones(self.members.size + self.others.size))

    @cached_property
    def _curve(self) -> Callable[[Float[np.ndarray, " score"]], Roc]:
        return roc_by_weights(self.members, self.others)

    def estimate(self, statistic: Callable[[Roc], float], *, seed: int = 0) -> Estimate:
        """Estimate a statistic of the ROC curve, with its bootstrap interval over users (not over traces)."""
        n_members = len(self.member_ids)

        def of_resample(weight: Float[np.ndarray, " user"]) -> float:
            kinds = weight[:n_members], weight[n_members:]
            of_scores = [np.tile(kind, len(self.members)) for kind in kinds]
            return statistic(self._curve(np.concatenate(of_scores)))

        low, high = bootstrap_interval(of_resample, n_members + len(self.other_ids), seed=seed)
        return Estimate(float(statistic(self.roc)), low, high)

    def true_positive_rate(self, false_positive_rate: float) -> Estimate:
        """True positive rate at this false positive rate, with its 95 % interval over users, see `rate_interval`.

        A bootstrap interval would be too narrow: at 1 % of 100 others, or 0.1 % of 1,000, it misses the truth in up to
        a third of cases. All scores of a user count as one observation. With fewer than 368 others at 1 % (ten times as
        many at 0.1 %), possibly none of the others is above the true threshold, so the lower end is 0.
        """
        rate_at = self.roc.true_positive_rate_at
        n_others, n_members = len(self.other_ids), len(self.member_ids)
        interval = rate_interval(rate_at, false_positive_rate, n_others, n_members)
        return Estimate(rate_at(false_positive_rate), *interval)

    def exposed(self, n_attacks: int = 1) -> tuple[Any, ...]:
        """Ids of the training users who score higher than chance explains, the highest first; see `bar_of_chance`.

        `n_attacks` share the people found by chance. Nobody, if the scores do not have `one_tail`.
        """
        if not self.one_tail:
            return ()
        members = self.members.max(axis=0)
        falling = np.argsort(-members, kind="stable")
        return tuple(self.member_ids[falling[members[falling] > self._bar(n_attacks)]].tolist())

    def _bar(self, n_attacks: int) -> float:
        """Score above which a training user is exposed; infinite if the scores cannot tell."""
        return bar_of_chance(self.others.max(axis=0), self.members.shape[1], EXPECTED_BY_CHANCE / n_attacks)

    def summary(self, *, seed: int = 0, n_attacks: int = 1) -> MembershipSummary:
        """All numbers; `seed` is the seed of the bootstrap, and the strongest of `n_attacks` attacks counts."""
        return MembershipSummary(
            self.attack,
            len(self.member_ids),
            len(self.other_ids),
            len(self.members),
            self.estimate(lambda roc: roc.auc, seed=seed),
            self.estimate(lambda roc: roc.advantage, seed=seed),
            membership_chance(self.members, self.others),
            self.true_positive_rate(0.01),
            self.exposed(n_attacks),
            not self.one_tail or math.isfinite(self._bar(n_attacks)),
            n_attacks,
        )


def membership_advantage(members: np.ndarray, others: np.ndarray) -> float:
    """Greatest true minus false positive rate over all thresholds, from 0 (a random guess) to 1.

    There is one threshold for all trace numbers.

    Examples
    --------
    >>> membership_advantage(np.array([3.0, 2.0, 1.0, 0.0]), np.array([1.5, 0.0, 0.0, 0.0]))
    0.5
    """
    return Roc.of(members, others).advantage


def membership_chance(members: np.ndarray, others: np.ndarray) -> float:
    """Expected advantage if the scores are independent of membership: its mean over random splits of the users.

    By chance alone, a maximum over thresholds is above 0; it is larger with fewer users and trace numbers. All users
    are shuffled and split into as many members and others as in the data. Each user keeps the scores of all trace
    numbers, because these scores depend on each other. If membership has no effect, the real split and a shuffled split
    are equally probable. So the mean is the expected advantage for any numbers of users, any ties, and any dependence
    between trace numbers. If membership has an effect, the shuffled scores mix members and others; with one trace
    number the mean is the same even then, because only ranks count.

    `members` and `others` are as `membership_scores` gives them.
    """
    n_members, n_others = members.shape[1], others.shape[1]
    scores = np.concatenate([members, others], axis=1)
    n_numbers, n_users = scores.shape
    descending = np.argsort(-scores, axis=None)
    user = descending % n_users
    ordered = scores.ravel()[descending]
    # A threshold separates only different scores.
    ends = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), len(ordered) - 1)
    rng = numpy_stream(SPLIT_SEED, Stage.SHUFFLED_SCORES)
    weight = np.repeat([1 / n_members, -1 / n_others], [n_members, n_others]) / n_numbers
    greatest = [np.cumsum(rng.permutation(weight)[user])[ends].max() for _ in range(N_SPLITS)]
    return float(np.mean(np.maximum(greatest, 0.0)))


Infer = Callable[..., MembershipScores]


@dataclass(frozen=True)
class MembershipAttack:
    """An entry of the registry of membership attacks.

    `infer` computes `MembershipScores` from released, training and test traces, settings, a seed, and whether to show
    progress. `title` says in one line what the attack is.
    """

    name: str
    title: str
    settings: type
    infer: Infer


MEMBERSHIP_ATTACKS: Registry[MembershipAttack] = Registry(
    "membership attack",
    "ppmtf_jax.attacks.membership",
    first=("likelihood_ratio", "density_ratio", "nearest", "shadow_models"),
)


def membership_attack(name: str, title: str, settings: type) -> Callable[[Infer], Infer]:
    """Register a function as a membership attack; see `MembershipAttack`."""

    def register(infer: Infer) -> Infer:
        MEMBERSHIP_ATTACKS.register(MembershipAttack(name, title, settings, infer))
        return infer

    return register


def infer_membership(
    released: Traces,
    train: Traces,
    test: Traces,
    attack: str = "density_ratio",
    settings: Any = None,
    *,
    seed: int = 0,
    progress: bool = False,
    **named_settings: Any,
) -> MembershipScores:
    """Score users: a higher score means that the user's data were more probably used for the released traces.

    Raises `InputError`: the attack or a setting is unknown, the place tables differ, users are in both real sets, or
    the attack cannot be run on these traces.

    Parameters
    ----------
    released : Traces
        What the attacker sees.
    train, test : Traces
        Real traces of users whose data were used (`train`) or not (`test`). What the attacker knows of these traces
        depends on the attack.
    attack : str
        A name in `MEMBERSHIP_ATTACKS`.
    settings : the attack's settings, such as `DensityRatioSettings`; None for its defaults
    **named_settings
        Settings by name, in place of `settings`.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=60, n_days=1, seed=0).traces.split_users(0.5, seed=0)
    >>> scores = infer_membership(train, train, test, density="kernel")
    >>> scores.roc.auc > 0.9
    True
    """
    entry = MEMBERSHIP_ATTACKS[attack]
    chosen = chosen_settings(entry.settings, settings, named_settings, attack)
    check_same_places(released=released, train=train, test=test)
    check_disjoint_users(train, test)
    return entry.infer(released, train, test, chosen, seed, progress)
