"""What the attack with shadow models measures, and how it scores users (LiRA, Carlini et al. 2022).

Statistics compare a user's traces with synthetic ones: one number for each user and each statistic. Synthesizers reveal
users in different ways: through the places at each hour if populations are exact, or through whole traces if some are
copied. So the attacker uses several, and learns from shadow models how much each reveals.

Steps of a score: (1) For each user and statistic, shadow models trained with and without the user's data give two sets
of values. The two means and the spread (standard deviation) around them are computed. (2) The value for the attacked
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
from functools import partial

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from ppmtf_jax.attacks.membership.density_ratio import count_of, log_density_per_event
from ppmtf_jax.attacks.scoring import products_in_blocks
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.errors import InputError, Problem

REACH = 1
"""Number of instants before and after an instant whose visits are added to it."""
PSEUDO_COUNT = 0.02
"""Events added to each count, so that moves that occur in no trace have a positive probability."""
SMOOTH_CONCENTRATION = 100.0
"""Concentration of a second chain. It shows how usual a user's traces are; the first one shows absent steps."""
COMPARED_WINDOWS = 2**28
"""Maximum number of pairs of user windows and synthetic windows; above it, fewer synthetic windows are used."""
USUAL_MODELS = 4
"""Weight of the mean spread over users, in models: with few models, one user's own spread is a poor estimate."""
MIN_SHADOWS = 6
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

        Raises `InputError` if there are fewer than `MIN_SHADOWS` models.
        """
        if len(self.is_in) < MIN_SHADOWS:
            raise InputError("shadow models", [Problem(f"at least {MIN_SHADOWS} models", str(len(self.is_in)))])
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


def statistics_of(users: Windows, made: Windows) -> Float[np.ndarray, "statistic user"]:
    """All statistics of each user's windows compared with synthetic windows, in the order of `STATISTICS`.

    Each user has at least one window. Both sets have the same places and grids with the same period. A statistic that
    is undefined for a user, such as moves of a user who never moves, is 0 for any synthetic traces.
    """
    return np.stack([statistic(users, made) for statistic in STATISTICS.values()])


def _visits(users: Windows, made: Windows) -> Float[np.ndarray, " user"]:
    """Mean log of the share of synthetic events at the user's places, at the same and neighbouring instants."""
    n_places, n_instants = len(users.places), users.time_grid.n_instants
    shifts = range(-REACH, REACH + 1)
    # Instants begin at REACH, so that the neighbours before the first have numbers of at least 0.
    known = np.concatenate([made.phase.astype(np.int64) + REACH + shift for shift in shifts])
    asked = users.phase.astype(np.int64) + REACH
    count = count_of(known * n_places + np.tile(made.place, len(shifts)), asked * n_places + users.place)
    total = np.bincount(known, minlength=n_instants + 2 * REACH)[asked]
    return _mean_log_share(users, users.window, count, total)


def _moves(users: Windows, made: Windows) -> Float[np.ndarray, " user"]:
    """Mean log of the share of synthetic steps from a place that go where the user moved from this place."""
    n_places = len(users.places)
    (place, following), steps = users.steps(), made.steps()
    known, asked = (each[0].astype(np.int64) * n_places + each[1] for each in (steps, (place, following)))
    total = np.bincount(steps[0], minlength=n_places)[place]
    moved = place != following
    window = users.window[users.is_step()]
    return _mean_log_share(users, window[moved], count_of(known, asked)[moved], total[moved])


def _pairs(users: Windows, made: Windows) -> Float[np.ndarray, " user"]:
    """Mean log of the number of synthetic windows that visit both places of a pair, over a user's pairs."""
    at, at_made = (_places_of(each) for each in (users, made))
    both = sparse.csr_array(at_made.T @ at_made)
    both.setdiag(0)
    both.data = np.log1p(np.asarray(both.data, float) / PSEUDO_COUNT)
    gain = np.zeros(users.n_windows)
    for rows, product in products_in_blocks(at, both):
        gain[rows] = product.multiply(at[rows]).sum(axis=1)
    n_places = np.diff(at.indptr)
    n_pairs = np.bincount(users.user, n_places * (n_places - 1))
    return np.bincount(users.user, gain) / np.maximum(n_pairs, 1)


def _kernel(users: Windows, made: Windows) -> Float[np.ndarray, " user"]:
    """Kernel density: how similar whole synthetic windows are to the user's windows."""
    step = -(-made.n_windows * users.n_windows // COMPARED_WINDOWS)
    some = made if step == 1 else made.select(np.arange(made.n_windows) % step == 0)
    return log_density_per_event(users, some, "kernel")


STATISTICS: dict[str, Callable[[Windows, Windows], Float[np.ndarray, " user"]]] = {
    "visits": _visits,
    "moves": _moves,
    "pairs": _pairs,
    "kernel": _kernel,
    "chain": partial(log_density_per_event, density="chain"),
    "smooth chain": partial(log_density_per_event, density="chain", concentration=SMOOTH_CONCENTRATION),
}
"""Functions of user windows and synthetic windows that return a number for each user, by name."""


def _mean_log_share(
    users: Windows,
    window: Int[np.ndarray, " event"],
    count: Int[np.ndarray, " event"],
    total: Int[np.ndarray, " event"],
) -> Float[np.ndarray, " user"]:
    """Mean logarithm of count / total over the events of each user; 0 if there are none."""
    log_share = np.log((count + PSEUDO_COUNT) / (total + PSEUDO_COUNT * len(users.places)))
    user, n_users = users.user[window], int(users.user.max()) + 1
    return np.bincount(user, log_share, n_users) / np.maximum(np.bincount(user, minlength=n_users), 1)


def _places_of(windows: Windows) -> sparse.csr_array:
    """Matrix with 1 where a window visits a place."""
    visits = windows.visits()
    shape = (windows.n_windows, len(windows.places))
    return sparse.csr_array((np.ones(len(visits.place)), (visits.window, visits.place)), shape=shape)
