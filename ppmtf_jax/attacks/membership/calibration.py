"""Membership scores calibrated on shadow models (LiRA, Carlini et al. 2022).

The steps: (1) For each user and statistic, shadow models trained with and without the user's data give two sets of
values. The two means and the spread (standard deviation) around them are computed. (2) The value for the attacked
traces is expressed as its distance from the midpoint of the two means, in spreads. (3) Statistics differ in how much
they reveal, depending on the synthesizer; so their weights are learned by logistic regression on the shadow models,
whose training users are known. For this, each shadow model is scored with all other shadow models, except the model
that was trained on the other half of the users. Nothing is learned from the target.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float

from ppmtf_jax.errors import InputError, Problem

USUAL_MODELS = 4
"""Weight of the mean spread over users, in models: with few models, one user's own spread is a poor estimate."""
LEAST_SHADOWS = 6
"""Two models are left out at a time. For a spread, two models with each user and two without must remain."""


@dataclass(frozen=True, eq=False)
class Shadows:
    """Statistics of users on the traces of shadow models, and whether each model was trained on each user's data.

    Model 2 i was trained with one half of these users, model 2 i + 1 with the other half.
    """

    statistics: Float[np.ndarray, "shadow statistic user"] = field(repr=False)
    is_in: Bool[np.ndarray, "shadow user"] = field(repr=False)

    def score(self, seen: Float[np.ndarray, "statistic user"]) -> Float[np.ndarray, " user"]:
        """Log-odds that a user's data were used, given the statistics of the attacked traces.

        Raises `InputError` if there are fewer than `LEAST_SHADOWS` models.
        """
        if len(self.is_in) < LEAST_SHADOWS:
            raise InputError("shadow models", [Problem(f"at least {LEAST_SHADOWS} models", str(len(self.is_in)))])
        features, number = [], np.arange(len(self.is_in))
        for pair in number.reshape(-1, 2):
            others = np.setdiff1d(number, pair)
            known = Shadows(self.statistics[others], self.is_in[others])
            features += [features_of(each, known) for each in self.statistics[pair]]
        weigh = learned(np.array(features), self.is_in)
        return weigh(features_of(seen, self))


def features_of(seen: Float[np.ndarray, "statistic user"], shadows: Shadows) -> Float[np.ndarray, "feature user"]:
    """Two features of each statistic: its distance from the midpoint in spreads, and its log-likelihood ratio.

    The second feature is the first one times the distance of the two means in spreads: the log-likelihood ratio of two
    Gaussians. With few models, the estimate of this distance is poor. Then the first feature, which assumes the same
    distance for all users, may be better. The learned weights decide.
    """
    # 1. Means with and without the user, and the spread around them.
    statistics, is_in = shadows.statistics, shadows.is_in
    inside = is_in[:, None]
    n_inside = inside.sum(axis=0)
    mean_in = np.where(inside, statistics, 0).sum(axis=0) / n_inside
    mean_out = np.where(inside, 0, statistics).sum(axis=0) / (len(is_in) - n_inside)
    # Each of the two means takes one degree of freedom.
    n_free = len(is_in) - 2
    variance = ((statistics - np.where(inside, mean_in, mean_out)) ** 2).sum(axis=0) / n_free
    usual = variance.mean(axis=1, keepdims=True)
    spread = np.sqrt((n_free * variance + USUAL_MODELS * usual) / (n_free + USUAL_MODELS))
    # A statistic that is the same for all models (up to rounding) is uninformative: its features become 0.
    rounding = len(is_in) * np.finfo(float).eps * (1 + np.abs(statistics).max(axis=(0, 2)))[:, None]
    spread[np.broadcast_to(usual <= rounding**2, spread.shape)] = np.inf
    # 2. Distance of the attacked traces' value from the midpoint of the two means.
    away = (seen - (mean_in + mean_out) / 2) / spread
    return np.concatenate([away, away * (mean_in - mean_out) / spread])


def learned(
    features: Float[np.ndarray, "shadow feature user"], is_in: Bool[np.ndarray, "shadow user"]
) -> Callable[[Float[np.ndarray, "feature user"]], Float[np.ndarray, " user"]]:
    """Learn a function from features to log-odds, by logistic regression without intercept."""
    from sklearn.linear_model import LogisticRegression

    rows = features.transpose(0, 2, 1).reshape(-1, features.shape[1])
    size = rows.std(axis=0)
    size[size == 0] = np.inf
    model = LogisticRegression(solver="liblinear", fit_intercept=False).fit(rows / size, is_in.ravel())
    return lambda given: model.decision_function(given.T / size)
