"""Membership scores calibrated on shadow models (LiRA, Carlini et al. 2022).

The steps: (1) For each user and statistic, shadow models trained with and without the user's data give two sets of
values. The two means and the spread (standard deviation) around them are computed. (2) The value for the attacked
traces is expressed as its distance from the midpoint of the two means, in spreads. (3) Statistics differ in how much
they reveal, depending on the synthesizer; so their weights are learned by logistic regression on the shadow models,
whose training users are known. For this, each shadow model is scored with all other shadow models, except the model
that was trained on the other half of the users. Nothing is learned from the target.

If no shadow model was trained with the attacked users' data, because others stood in for them, there is one mean only:
the value is expressed as its distance from the mean without the user. The weights are learned from those who stood in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int

from ppmtf_jax.errors import InputError, Problem

USUAL_MODELS = 4
"""Weight of the mean spread over users, in models: with few models, one user's own spread is a poor estimate."""
LEAST_SHADOWS = 6
"""Two models are left out at a time. For a spread, two models with each user and two without must remain."""


@dataclass(frozen=True, eq=False)
class Shadows:
    """Statistics of users on the traces of shadow models, and whether each model was trained on each user's data.

    Model 2 i was trained with one half of these users, model 2 i + 1 with the other half. If no model was trained with
    the attacked users, others stood in for them; `stood_in` has these others' statistics.
    """

    statistics: Float[np.ndarray, "shadow statistic user"] = field(repr=False)
    is_in: Bool[np.ndarray, "shadow stood_in"] = field(repr=False)
    stood_in: Float[np.ndarray, "shadow statistic stood_in"] | None = field(default=None, repr=False)

    def score(self, seen: Float[np.ndarray, "statistic user"]) -> Float[np.ndarray, " user"]:
        """Log-odds that a user's data were used, given the statistics of the attacked traces.

        Raises `InputError` if there are fewer than `LEAST_SHADOWS` models.
        """
        if len(self.is_in) < LEAST_SHADOWS:
            raise InputError("shadow models", [Problem(f"at least {LEAST_SHADOWS} models", str(len(self.is_in)))])
        features, number = [], np.arange(len(self.is_in))
        known, described = (
            (self.statistics, features_of) if self.stood_in is None else (self.stood_in, features_without)
        )
        for pair in number.reshape(-1, 2):
            others = np.setdiff1d(number, pair)
            features += [described(each, Shadows(known[others], self.is_in[others])) for each in known[pair]]
        weigh = learned(np.array(features), self.is_in)
        if self.stood_in is None:
            return weigh(features_of(seen, self))
        never = np.zeros((len(self.is_in), seen.shape[1]), bool)
        return weigh(features_without(seen, Shadows(self.statistics, never)))


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
    spread = _spread(((statistics - np.where(inside, mean_in, mean_out)) ** 2).sum(axis=0), n_free, statistics)
    # 2. Distance of the attacked traces' value from the midpoint of the two means.
    away = (seen - (mean_in + mean_out) / 2) / spread
    return np.concatenate([away, away * (mean_in - mean_out) / spread])


def features_without(seen: Float[np.ndarray, "statistic user"], shadows: Shadows) -> Float[np.ndarray, "feature user"]:
    """One feature of each statistic: its distance from the mean of the models without the user, in spreads."""
    outside = ~shadows.is_in[:, None]
    n_outside = outside.sum(axis=0)
    mean = np.where(outside, shadows.statistics, 0).sum(axis=0) / n_outside
    squares = np.where(outside, (shadows.statistics - mean) ** 2, 0).sum(axis=0)
    return (seen - mean) / _spread(squares, n_outside - 1, shadows.statistics)


def _spread(
    squares: Float[np.ndarray, "statistic user"],
    n_free: int | Int[np.ndarray, "1 user"],
    statistics: Float[np.ndarray, "shadow statistic user"],
) -> Float[np.ndarray, "statistic user"]:
    """The spread of sums of squares with some degrees of freedom, shrunk towards the mean over users."""
    usual = (squares / n_free).mean(axis=1, keepdims=True)
    spread = np.sqrt((squares + USUAL_MODELS * usual) / (n_free + USUAL_MODELS))
    # A statistic that is the same for all models (up to rounding) is uninformative: its features become 0.
    rounding = len(statistics) * np.finfo(float).eps * (1 + np.abs(statistics).max(axis=(0, 2)))[:, None]
    spread[np.broadcast_to(usual <= rounding**2, spread.shape)] = np.inf
    return spread


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
