"""How well scores tell apart: receiver operating characteristic, and intervals over users."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from scipy.stats import beta

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.streams import Stage, numpy_stream

N_RESAMPLES = 200
"""Of a bootstrap: the ends of a 95 % interval are then known to about a tenth of its width."""


@dataclass(frozen=True, eq=False)
class Roc:
    """True against false positive rate over all thresholds.

    Parameters
    ----------
    false_positive_rate, true_positive_rate : float arrays, shape (thresholds,)
        Rising, from (0, 0) to (1, 1).
    threshold : float array, shape (thresholds,)
        Falling from infinity; a score at least as great is called positive.

    Examples
    --------
    >>> roc = Roc.of(positive=np.array([3.0, 2.0, 1.0]), negative=np.array([2.0, 0.0]))
    >>> roc.true_positive_rate.round(2).tolist(), roc.false_positive_rate.tolist()
    ([0.0, 0.33, 0.67, 1.0, 1.0], [0.0, 0.0, 0.5, 0.5, 1.0])
    >>> round(roc.auc, 6) == round((1 + 0.75 + 0.5) / 3, 6)
    True
    """

    false_positive_rate: np.ndarray = field(repr=False)
    true_positive_rate: np.ndarray = field(repr=False)
    threshold: np.ndarray = field(repr=False)

    @classmethod
    def of(cls, positive: np.ndarray, negative: np.ndarray, weight: np.ndarray | None = None) -> Roc:
        """From the scores of what should be called positive, and of what should not.

        Parameters
        ----------
        positive, negative : float arrays
            Of any shape.
        weight : float array, shape (positives + negatives,), optional
            How much each counts, as in a bootstrap.

        Raises
        ------
        InputError
            One of the two has no score, or a score is NaN.
        """
        scores = np.concatenate([np.ravel(positive), np.ravel(negative)])
        if not np.size(positive) or not np.size(negative) or np.isnan(scores).any():
            found = f"{np.size(positive)} and {np.size(negative)}, {int(np.isnan(scores).sum())} of them NaN"
            raise InputError("scores", [Problem("numbers of both kinds, positive and negative", found)])
        order = np.argsort(-scores, kind="stable")
        is_positive = order < np.size(positive)
        counted = np.ones(len(scores)) if weight is None else weight[order]
        # Of equal scores, none can be called positive alone.
        last = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
        false_rate, true_rate = (
            _rates(np.where(kind, counted, 0.0))[np.append(0, last + 1)] for kind in (~is_positive, is_positive)
        )
        return cls(false_rate, true_rate, np.append(np.inf, scores[order][last]))

    @property
    def auc(self) -> float:
        """Area under the curve: how often a positive scores higher than a negative, ties counting half."""
        return float(np.trapezoid(self.true_positive_rate, self.false_positive_rate))

    @property
    def advantage(self) -> float:
        """Greatest difference of true and false positive rate, from 0 to 1."""
        return float(np.max(self.true_positive_rate - self.false_positive_rate))

    def true_positive_rate_at(self, false_positive_rate: float) -> float:
        """Greatest true positive rate of a threshold with at most that false positive rate; no interpolation.

        Examples
        --------
        >>> roc = Roc.of(np.arange(10.0) + 95, np.arange(100.0))
        >>> roc.true_positive_rate_at(0.01), roc.true_positive_rate_at(0.0)
        (0.6, 0.5)
        """
        allowed = self.false_positive_rate <= false_positive_rate * (1 + 1e-12)
        return float(self.true_positive_rate[allowed].max())

    def threshold_at(self, true_positive_rate: float) -> float:
        """The greatest threshold with at least that true positive rate."""
        return float(self.threshold[np.argmax(self.true_positive_rate >= true_positive_rate * (1 - 1e-12))])


def auc_by_weights(
    positive: Float[np.ndarray, " positive"], negative: Float[np.ndarray, " negative"]
) -> Callable[[np.ndarray, np.ndarray], float]:
    """A function that gives the area under the curve for weights of the positives and of the negatives.

    For many resamples of many negatives: what their order decides is found once.

    Examples
    --------
    >>> auc = auc_by_weights(np.array([3.0, 1.0]), np.array([2.0, 1.0]))
    >>> auc(np.ones(2), np.ones(2)), auc(np.array([3.0, 1.0]), np.array([1.0, 0.0]))
    (0.625, 0.75)
    """
    distinct, at = np.unique(positive, return_inverse=True)
    # 2 i for a negative between distinct positives i - 1 and i, 2 i + 1 for one that equals positive i.
    code = np.searchsorted(distinct, negative) + np.searchsorted(distinct, negative, side="right")

    def auc(of_positive: np.ndarray, of_negative: np.ndarray) -> float:
        total = of_positive.sum() * of_negative.sum()
        weight = np.bincount(code, of_negative, 2 * len(distinct) + 1)
        below = np.cumsum(weight)[0:-1:2] + weight[1::2] / 2
        return float(of_positive @ below[at] / total) if total else float("nan")

    return auc


def _rates(weight: Float[np.ndarray, " score"]) -> Float[np.ndarray, " passed"]:
    """Share of the weight in the first 0, 1, ... scores; NaN if there is none, as in a resample without a positive."""
    passed = np.concatenate([[0.0], np.cumsum(weight)])
    return passed / passed[-1] if passed[-1] else np.full(len(passed), np.nan)


def bootstrap_interval(
    statistic: Callable[[Float[np.ndarray, " user"]], float], n_users: int, *, seed: int, level: float = 0.95
) -> tuple[float, float]:
    """Interval of a statistic over users: each resample weighs every user by how often it was drawn.

    A user's traces and scores depend on each other, so that users, not traces, are drawn.

    Parameters
    ----------
    statistic : callable
        From a weight of each user to a number.
    n_users : int
    seed : int
    level : float

    Examples
    --------
    >>> heights = np.random.default_rng(0).normal(size=100)
    >>> low, high = bootstrap_interval(lambda weight: float(np.average(heights, weights=weight)), 100, seed=0)
    >>> low < heights.mean() < high and 0.3 < high - low < 0.5
    True
    """
    rng = numpy_stream(seed, Stage.BOOTSTRAP)
    weights = rng.multinomial(n_users, np.full(n_users, 1 / n_users), size=N_RESAMPLES).astype(float)
    drawn = np.array([statistic(weight) for weight in weights])
    tail = (1 - level) / 2
    low, high = np.nanquantile(drawn, [tail, 1 - tail])
    return float(low), float(high)


def share_interval(share: float, n: int, tail: float = 0.025) -> tuple[float, float]:
    """Interval of a share of `n` independent people (Clopper and Pearson 1934); none of few is not none of all.

    Each end is wrong with probability `tail` at most.

    Examples
    --------
    >>> low, high = share_interval(0.0, 10)
    >>> low, round(high, 3) == round(1 - 0.025 ** (1 / 10), 3)
    (0.0, True)
    """
    found = share * n
    low = float(beta.ppf(tail, found, n - found + 1)) if share > 0 else 0.0
    high = float(beta.ppf(1 - tail, found + 1, n - found)) if share < 1 else 1.0
    return low, high
