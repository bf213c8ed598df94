"""Receiver operating characteristic (ROC) curves of attack scores, and bootstrap intervals over users."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.streams import Stage, numpy_stream

LEVEL = 0.95
N_RESAMPLES = 200
"""Number of bootstrap resamples. The error of the ends of a 95 % interval is then about a tenth of its width."""


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
