"""How much a user's statistics look as if hers had been used, calibrated on shadow models (LiRA, Carlini et al. 2022).

For each user and statistic, the shadow models give its values with her data and without: two means, and a spread. The
value for the attacked traces is then measured in spreads from the middle of the two means. How much this tells differs
by statistic and synthesizer. So weights are learned by logistic regression on the shadow models, because it is known
who is in their data. Each shadow model is scored by all others except the one that has the other half of the users.
Nothing is learned on the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.linear_model import LogisticRegression

USUAL_MODELS = 4
"""The usual spread among users has the weight of so many shadow models, because few models show a user's own spread."""
LEAST_SHADOWS = 6
"""If two of them are left out, two with each user and two without remain; a spread needs so many."""


@dataclass(frozen=True, eq=False)
class Shadows:
    """Statistics of users beside what shadow models made.

    Parameters
    ----------
    statistics : float array, shape (shadow models, statistics, users)
    is_in : bool array, shape (shadow models, users)
        Whether the user's data was used. Model 2 i has one half of the users, and model 2 i + 1 has the other.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> is_in = np.repeat(rng.random((4, 1, 100)) < 0.5, 2, axis=1)
    >>> is_in[:, 1] = ~is_in[:, 0]
    >>> is_in = is_in.reshape(8, 100)
    >>> shadows = Shadows(rng.normal(size=(8, 1, 100)) + 3 * is_in[:, None], is_in)
    >>> score = shadows.score(np.full((1, 100), 3.0))
    >>> bool(score.mean() > 1)
    True
    """

    statistics: Float[np.ndarray, "shadow statistic user"] = field(repr=False)
    is_in: Bool[np.ndarray, "shadow user"] = field(repr=False)

    def score(self, seen: Float[np.ndarray, "statistic user"]) -> Float[np.ndarray, " user"]:
        """Log-odds that a user's data was used to make what her statistics were seen beside."""
        features = []
        for pair, others in self._pairs():
            known = Shadows(self.statistics[others], self.is_in[others])
            features += [features_of(each, known) for each in self.statistics[pair]]
        weigh = learned(np.array(features), self.is_in)
        return weigh(features_of(seen, self))

    def held_out_scores(self) -> Float[np.ndarray, "shadow user"]:
        """The same of the users beside each shadow model, by all others but the one of the other half.

        What the attack finds on average, known better than by one target; it needs two shadow models more. The others
        learn their weights without it too: weights that have seen who is in it find something where nothing is.
        """
        scores = np.empty(self.is_in.shape)
        for pair, others in self._pairs():
            known = Shadows(self.statistics[others], self.is_in[others])
            scores[pair] = [known.score(seen) for seen in self.statistics[pair]]
        return scores

    def _pairs(self) -> Iterator[tuple[Int[np.ndarray, " 2"], Int[np.ndarray, " others"]]]:
        """Two models that have each one half of the users, and all others."""
        number = np.arange(len(self.is_in))
        for pair in number.reshape(-1, 2):
            yield pair, np.setdiff1d(number, pair)


def features_of(seen: Float[np.ndarray, "statistic user"], shadows: Shadows) -> Float[np.ndarray, "feature user"]:
    """Of each statistic, spreads from the middle; and that times how far models with the user are from those without.

    The second is the log-likelihood ratio of two Gaussians. By few models that distance is known badly, and one that is
    the same for all users, the first, may do better: the weights decide.
    """
    statistics, is_in = shadows.statistics, shadows.is_in
    inside = is_in[:, None]
    n_inside = inside.sum(axis=0)
    with_her = np.where(inside, statistics, 0).sum(axis=0) / n_inside
    without = np.where(inside, 0, statistics).sum(axis=0) / (len(is_in) - n_inside)
    # Each of the two means takes one model.
    n_free = len(is_in) - 2
    variance = ((statistics - np.where(inside, with_her, without)) ** 2).sum(axis=0) / n_free
    usual = variance.mean(axis=1, keepdims=True)
    spread = np.sqrt((n_free * variance + USUAL_MODELS * usual) / (n_free + USUAL_MODELS))
    # A statistic that no model changes says nothing.
    rounding = len(is_in) * np.finfo(float).eps * (1 + np.abs(statistics).max(axis=(0, 2)))[:, None]
    spread[np.broadcast_to(usual <= rounding**2, spread.shape)] = np.inf
    away = (seen - (with_her + without) / 2) / spread
    return np.concatenate([away, away * (with_her - without) / spread])


Weigh = Callable[[Float[np.ndarray, "feature user"]], Float[np.ndarray, " user"]]


def learned(features: Float[np.ndarray, "shadow feature user"], is_in: Bool[np.ndarray, "shadow user"]) -> Weigh:
    """A function from features to log-odds, learned where it is known who is in."""
    rows = features.transpose(0, 2, 1).reshape(-1, features.shape[1])
    size = rows.std(axis=0)
    size[size == 0] = np.inf
    model = LogisticRegression(solver="liblinear", fit_intercept=False).fit(rows / size, is_in.ravel())
    return lambda given: model.decision_function(given.T / size)
