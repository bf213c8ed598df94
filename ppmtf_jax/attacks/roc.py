"""ROC curves of attack scores, intervals, and how many people score higher than chance explains.

If nothing leaks, training users and others are exchangeable: whatever people have in common, each split of them is as
probable as the real one. Friends who check in together, or one person with two accounts, score far above everybody
else in any release of real people, but they are as often among the others as among the training users.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import scipy  # loads `scipy.stats`, which takes half a second, when it is first used
from jaxtyping import Float

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.privacy.limits import EXPECTED_BY_CHANCE, TAIL, share_interval
from ppmtf_jax.streams import Stage, numpy_stream

LEVEL = 0.95
N_RESAMPLES = 200
"""Number of bootstrap resamples. The error of the ends of a 95 % interval is then about a tenth of its width."""
TAIL_SCORES, TAIL_SHARE = 10, 0.05
"""The tail of the scores by chance is learned from the 10 highest scores and from the highest 5 %; the higher bar
counts, because a tail of few scores is uncertain and a tail of many may be bent."""
MAX_ALONE = 40
"""Maximum number of people who are counted one by one."""
FIRST_RANK, HIGHEST_SHARE = 6, 0.02
"""Members are counted among the 6, 12, 24, ... highest scores, up to 2 % of all. If half of the people are members, all
of the 6 highest are members by chance in one of 64 cases, which is too often: 6 counts only where fewer are members.
Further down, training users score a little higher than others also where a model reproduces what they have in common,
and copies nobody."""


@dataclass(frozen=True, eq=False)
class Roc:
    """True against false positive rate over all thresholds, which fall from infinity; ties count as one threshold."""

    false_positive_rate: Float[np.ndarray, " threshold"] = field(repr=False)
    true_positive_rate: Float[np.ndarray, " threshold"] = field(repr=False)
    threshold: Float[np.ndarray, " threshold"] = field(repr=False)

    @classmethod
    def of(cls, positive: np.ndarray, negative: np.ndarray) -> Roc:
        """Compute the curve; raises `InputError` as `roc_by_weights` does."""
        return roc_by_weights(positive, negative)(np.ones(np.size(positive) + np.size(negative)))

    @property
    def auc(self) -> float:
        """Area under the curve: probability that a positive scores higher than a negative; ties count half."""
        return float(np.trapezoid(self.true_positive_rate, self.false_positive_rate))

    @property
    def advantage(self) -> float:
        """Greatest difference between the true and the false positive rate, from 0 to 1."""
        return float(np.max(self.true_positive_rate - self.false_positive_rate))

    def true_positive_rate_at(self, false_positive_rate: float) -> float:
        """Greatest true positive rate at which the false positive rate is at most the given one; no interpolation."""
        allowed = self.false_positive_rate <= false_positive_rate * (1 + 1e-12)
        return float(self.true_positive_rate[allowed].max())


def roc_by_weights(positive: np.ndarray, negative: np.ndarray) -> Callable[[Float[np.ndarray, " score"]], Roc]:
    """Return a function from weights of the scores, positives first, to the curve.

    This makes bootstraps fast: the scores are sorted once, not in each resample. The rates are NaN if all positives or
    all negatives have weight 0. Raises `InputError` without positives or negatives, or if a score is not finite.
    """
    scores = np.concatenate([np.ravel(positive), np.ravel(negative)])
    n_positive, n_negative = np.size(positive), np.size(negative)
    n_wrong = int((~np.isfinite(scores)).sum())
    if not n_positive or not n_negative or n_wrong:
        found = f"{n_positive} and {n_negative}, {n_wrong} of them NaN or infinite"
        raise InputError("scores", [Problem("finite scores of positives and of negatives", found)])
    falling, rank = np.unique(-scores, return_inverse=True)
    threshold = np.append(np.inf, -falling)

    def rates(rank: np.ndarray, weight: np.ndarray) -> Float[np.ndarray, " threshold"]:
        total = np.cumsum(np.bincount(rank + 1, weight, len(threshold)))
        return total / (total[-1] or np.nan)

    def roc(weight: Float[np.ndarray, " score"]) -> Roc:
        of_negative = rates(rank[n_positive:], weight[n_positive:])
        return Roc(of_negative, rates(rank[:n_positive], weight[:n_positive]), threshold)

    return roc


def bootstrap_interval(
    statistic: Callable[[Float[np.ndarray, " user"]], float], n_users: int, *, seed: int
) -> tuple[float, float]:
    """95 % bootstrap interval of a statistic.

    `statistic` is a function of how often each user was drawn. Users are resampled, not traces, because the
    traces and scores of a user depend on each other.
    """
    rng = numpy_stream(seed, Stage.BOOTSTRAP)
    weights = rng.multinomial(n_users, np.full(n_users, 1 / n_users), size=N_RESAMPLES).astype(float)
    drawn = np.array([statistic(weight) for weight in weights])
    tail = (1 - LEVEL) / 2
    low, high = np.nanquantile(drawn, [tail, 1 - tail])
    return float(low), float(high)


def rate_interval(
    rate_at: Callable[[float], float], false_rate: float, n_others: int, n_people: int
) -> tuple[float, float]:
    """95 % interval of the rate of people who are found at a false rate, as a function `rate_at` of the false rate.

    Two things are uncertain. (1) The threshold depends on the few of `n_others` with the highest scores: the number of
    others above the true threshold is binomial. (2) The `n_people` who may be found are a sample (interval of Clopper
    and Pearson): even if nobody of a small sample is found, the true rate may be above 0. The interval combines both:
    the squared distances of their ends from the rate are added (Newcombe 1998).
    """
    found = rate_at(false_rate)
    fewest, most = scipy.stats.binom.ppf([TAIL, 1 - TAIL], n_others, false_rate)
    by_threshold = rate_at((fewest - 1) / n_others) if fewest else 0.0, rate_at(most / n_others)
    of_people = share_interval(found, n_people)
    low, high = (math.hypot(found - a, found - b) for a, b in zip(by_threshold, of_people, strict=True))
    return max(found - low, 0.0), min(found + high, 1.0)


def bar_of_chance(others: Float[np.ndarray, " other"], n_people: int, expected: float = EXPECTED_BY_CHANCE) -> float:
    """Score that `expected` of `n_people` people exceed if nothing leaks; infinite if the scores cannot tell.

    `others` are scores of people, or of pairs of people, for whom nothing can leak. If there are many more of them than
    people, the bar is one of these scores. Otherwise it is at least the highest of them, and the tail is extrapolated
    as exponential. Let k scores be s higher than the next score on average, and let a share p of all scores be as high.
    A further score exceeds the next score by more than x with probability p (1 + x / (k s))^-k: the spread of the tail
    is estimated too, so this is Lomax's distribution.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> found = [(rng.exponential(size=500) > bar_of_chance(rng.exponential(size=500), 500)).sum() for _ in range(400)]
    >>> bool(0.02 < np.mean(found) < 0.05)
    True
    """
    falling = np.sort(others, axis=None)[::-1]
    n_others = len(falling)
    rank = math.floor(expected * n_others / n_people)
    if rank > TAIL_SCORES:
        return float(falling[rank - 1])
    bar = -math.inf
    for k in (TAIL_SCORES, max(math.ceil(TAIL_SHARE * min(n_others, n_people)), TAIL_SCORES)):
        spread = float(np.mean(falling[:k] - falling[k])) if n_others > k else 0.0
        # Tied scores have no tail.
        if spread <= 0:
            return math.inf
        odds = n_people * k / (n_others * expected)
        bar = max(bar, float(falling[0]), float(falling[k] + spread * k * (odds ** (1 / k) - 1)))
    return bar


def people_beyond_chance(
    members: Float[np.ndarray, " member"], others: Float[np.ndarray, " other"], least: float = -math.inf
) -> int:
    """At least how many members score higher than chance explains, the greater of two numbers.

    One by one: the j highest members count if each of them is above the bar of chance of all other people, members and
    others. A bar from the others alone would be too low where only few people have something in common with a stranger:
    by luck none of these may be among the others. `least` is the lowest score that can count. If the scores of the
    other people are tied and have no tail, it is the bar of a person who is above all of them.

    In number: among the k highest scores of all, there may be more members than an exchange of members and others
    explains (hypergeometric tail). The number is the least one without whom chance would explain the rest, for k = 6,
    12, 24 and so on up to 2 % of all, or of few people up to a k at which members alone are no chance. By chance, it is
    above 0 with probability `TAIL` / 2 at most. If it is above 0, k goes on up to half of all, to count all members:
    small differences among usual scores alone count nobody. If more of the highest scores are tied than any of these k
    has, the first k counts that has all of them.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> members, others = rng.exponential(size=(2, 500))
    >>> people_beyond_chance(members, others), people_beyond_chance(np.append(members, [40.0, 90.0]), others)
    (0, 2)
    """
    if not (len(members) and len(others)):
        return 0
    highest = np.sort(members)[::-1]
    return max(_alone(highest, others, least), _in_number(highest, others))


def _alone(highest: np.ndarray, others: np.ndarray, least: float) -> int:
    """The number one by one; `highest` are the scores of members, falling."""
    found = 0
    for j, score in enumerate(highest[:MAX_ALONE], 1):
        if score <= least:
            break
        rest = np.concatenate([highest[j:], others])
        bar = bar_of_chance(rest, len(highest))
        if math.isinf(bar) and math.isfinite(least):
            bar = max(float(rest.max(initial=least)), least)
        if score > bar:
            found = j
    return found


def _in_number(highest: np.ndarray, others: np.ndarray) -> int:
    """The number among the highest scores of all; `highest` are the scores of members, falling."""
    falling = np.sort(np.concatenate([highest, others]))[::-1]
    n, n_members, found, is_tried = len(falling), len(highest), 0, False
    ranks = FIRST_RANK * 2 ** np.arange(max(int(math.log2(max(n / 2 / FIRST_RANK, 1))), 0) + 1)
    # Half as many members alone at the top are no chance. In small sets, this is more than the share.
    needed = 2 * math.log(TAIL / 2 / len(ranks)) / math.log(n_members / n)
    n_tried = max(int((ranks <= max(HIGHEST_SHARE * n, needed)).sum()), 1)
    for number, rank in enumerate(ranks):
        if number >= n_tried and is_tried and not found:
            break
        # Tied scores are all among the highest, or none of them.
        lowest = falling[min(rank, n) - 1]
        k, mine = (int((each >= lowest).sum()) for each in (falling, highest))
        if k > 2 * rank:
            continue
        is_tried = True
        left_out = np.arange(mine + 1)
        by_chance = scipy.stats.hypergeom.sf(mine - left_out - 1, n - left_out, n_members - left_out, k - left_out)
        found = max(found, int(np.argmax(by_chance > TAIL / 2 / n_tried)))
    return found
