"""When people check in: activity levels, and the odds of an event at an instant.

An activity level is a class of windows. For a window of level c, the log-odds of an event at an instant are the sum of
alpha_c and of effects of: the hour of the day (others at weekends), the day of the week, the time since the last event,
and the habit. Each level also has its own effects of the time since the last event and of the hour. All effects are
learned with weak normal priors by EM: in each round, the probabilities of the levels of the windows are given, and
steps of L-BFGS raise the likelihood. The number of levels is chosen by the likelihood of held-out training users.

Without limits, the most active people would be a class of their own, and its effects would show their clock. So in the
windows of a level, and in the events of each effect, no user weighs more than the second heaviest user. If u users have
such events, the precision of the prior of the effect is divided by s = (u - 4) / u, which multiplies the difference
between the observed and the expected number of events by s; with fewer than five users, there is no such effect. An
effect that makes events rarer is learned from users without events, so for this effect u counts all users of the level.

A round learns from sums over windows, so its program does not depend on their number.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.sparse import csr_array
from scipy.special import logsumexp, softmax

from ppmtf_jax.data.time_grid import DAY_S
from ppmtf_jax.people.bins import DAYS_A_WEEK, HOURS_A_DAY, N_HABITS, N_SINCE
from ppmtf_jax.people.fitting import MAX_LOG, maximize
from ppmtf_jax.people.selection import HELD_OUT_OF, random_folds
from ppmtf_jax.people.user_bounds import STEP_USERS, bounded, bounded_columns, sums, used_share
from ppmtf_jax.people.windows import N_CODES, ObservedWindows, TimeCells, hour_of_week

SATURDAY = 5
# Candidates for the number of activity levels.
N_LEVELS = (6, 16)
# Minimum mean number of windows per level; with few windows, there are fewer levels.
LEVEL_WINDOWS = 50
# Rounds, and steps of L-BFGS in each round.
MAX_ROUNDS, STEPS = 20, 30
# The rounds stop when a round changes the log-likelihood by less than this, in nats per window.
MIN_GAIN = 0.001
# Number of pseudo-windows of each cluster; they are distributed over levels like all windows.
LEVEL_MASS = 10.0
# Precisions of the normal priors: of the effects that all levels share and of alpha, and of the effects of one level.
SHARED_PRECISION, LEVEL_PRECISION = 0.1, 4.0
TINY = 1e-12
LARGE = 1e6
IS_WEEKEND = (np.arange(DAYS_A_WEEK) >= SATURDAY).astype(int)
# Columns of tables of events by effect: hours of working days and of weekends, weekdays, `since`, `habit`, all events.
COLUMN_ENDS = np.cumsum([2 * HOURS_A_DAY, DAYS_A_WEEK, N_SINCE, N_HABITS])


class ActivityLevels(NamedTuple):
    """Activity levels of windows; `log_odds` and `share` are those of `CheckinBridge`."""

    log_odds: Float[np.ndarray, "level time since habit"]
    share: Float[np.ndarray, "cluster level"]
    of_window: Float[np.ndarray, "window level"]  # probability of each level given the times of a window
    # Positive weight of each window, such that in no level a user weighs more than the second heaviest user.
    weight: Float[np.ndarray, " window"]
    used: Float[np.ndarray, " level"]  # `user_bounds.used_share` of the users of each level


def fit_activity_levels(
    windows: ObservedWindows, n_clusters: int, random: np.random.Generator, n_levels: int | None = None
) -> ActivityLevels:
    """Find the activity levels, starting from classes of windows with similar numbers of events.

    `n_levels`: number of levels; by default it is chosen.
    """
    cells = TimeCells.of(windows)
    observed = _Observed.of(windows, cells, n_clusters)
    effects, share, joint = _fit(observed, n_levels or _choose_number(observed, random))
    # So far, these are shares among windows with an event; now they become shares among all windows.
    share = share / _Odds.of(effects, cells.without).any
    of_window = softmax(joint, axis=1)
    weighted, users = observed.bounded(of_window)
    # Log-odds for each bin of `since` and `habit`, at each instant of the first week of a window.
    hours = hour_of_week(windows.grid)[: DAYS_A_WEEK * DAY_S // windows.grid.step_s]
    table = np.clip(effects.log_odds(), -MAX_LOG, MAX_LOG).reshape(-1, N_SINCE, N_HABITS, len(effects.level))
    table, used = np.moveaxis(table[hours], -1, 0), used_share(users, STEP_USERS)
    weight = np.maximum(weighted.sum(axis=1), TINY)
    return ActivityLevels(table, share / share.sum(axis=1, keepdims=True), of_window, weight, used)


class _Observed(NamedTuple):
    """Windows from which levels are learned."""

    cells: TimeCells
    events: Float[np.ndarray, "window column"]  # by effect, see `COLUMN_ENDS`
    size: Int[np.ndarray, " window"]  # number of events
    user: Int[np.ndarray, " window"]
    weight: Float[np.ndarray, " window"]
    cluster: Int[np.ndarray, " window"]
    n_clusters: int

    @classmethod
    def of(cls, windows: ObservedWindows, cells: TimeCells, n_clusters: int) -> _Observed:
        size, events = np.bincount(windows.window, minlength=windows.n_windows), cells.events @ _effects_of_codes()
        return cls(cells, events, size, windows.user, windows.weight, windows.cluster, n_clusters)

    def bounded(
        self, of_window: Float[np.ndarray, "window level"]
    ) -> tuple[Float[np.ndarray, "window level"], Float[np.ndarray, " level"]]:
        """Weights of windows in each level, in which no user weighs more than the second heaviest; users of a level.

        A user with less than one window of a level counts as this part of a user.
        """
        weighted = of_window * self.weight[:, None]
        of_user = self.of_user @ weighted
        bounded_of_user, users = bounded_columns(of_user)
        return weighted * (bounded_of_user / np.maximum(of_user, TINY))[self.user], users

    @property
    def of_user(self) -> csr_array:
        """Which windows each user has, as a table of zeros and ones; its product with windows gives sums of users."""
        n = len(self.user)
        return csr_array((np.ones(n), (self.user, np.arange(n))))

    def select(self, kept: Bool[np.ndarray, " window"]) -> _Observed:
        """Some of the windows."""
        cells = TimeCells(self.cells.instants[kept], self.cells.events[kept], self.cells.without)
        return _Observed._make([cells, *(column[kept] for column in self[1:-1]), self.n_clusters])


def _choose_number(windows: _Observed, random: np.random.Generator) -> int:
    """The number of activity levels with the greatest likelihood of held-out users."""
    numbers = sorted({int(np.clip(len(windows.user) // LEVEL_WINDOWS, 1, most)) for most in N_LEVELS})
    if len(numbers) == 1:
        return numbers[0]
    users = np.unique(windows.user)
    held_out = np.isin(windows.user, users[next(random_folds(len(users), HELD_OUT_OF, random))[1]])
    learned, predicted = windows.select(~held_out), windows.select(held_out)
    scores = []
    for number in numbers:
        effects, share, _ = _fit(learned, number)
        joint = _Odds.of(effects, predicted.cells.without).log_joint(predicted, share)
        scores.append((predicted.weight * logsumexp(joint, axis=1)).sum())
    return numbers[int(np.argmax(scores))]


def _fit(
    windows: _Observed, n_levels: int
) -> tuple[_Effects, Float[np.ndarray, "cluster level"], Float[np.ndarray, "window level"]]:
    """Effects, shares of the levels among the windows of a cluster, and joint log-probability of window and level."""
    level, rate = _levels(windows.size, windows.user, n_levels)
    n_levels = len(rate)
    of_window = 0.9 * np.eye(n_levels)[level] + 0.1 / n_levels
    start, before = _Effects.start(np.log(rate / windows.cells.without.sum())), -np.inf
    effects = start
    for _ in range(MAX_ROUNDS):
        share = _shares(windows, of_window)
        effects = _Step.of(windows, of_window, start).improve(effects)
        joint = _Odds.of(effects, windows.cells.without).log_joint(windows, share)
        total = (windows.weight * logsumexp(joint, axis=1)).sum()
        of_window = softmax(joint, axis=1)
        if abs(total - before) < windows.weight.sum() * MIN_GAIN:
            break
        before = total
    return effects, share, joint


def _levels(
    size: Int[np.ndarray, " window"], user: Int[np.ndarray, " window"], n_levels: int
) -> tuple[Int[np.ndarray, " window"], Float[np.ndarray, " level"]]:
    """Level of each window by its number of events, and a typical number of events of each level.

    The levels are ranges that are equal on a log scale; the top is the most active window of the second most active
    user. A level with windows of fewer than `STEP_USERS` users is joined with its neighbour.
    """
    most = np.zeros(int(user.max()) + 2)
    np.maximum.at(most, user, size)
    edges = np.geomspace(1, max(1, np.partition(most, -2)[-2]), n_levels + 1)
    own = np.searchsorted(edges[1:-1], size, side="right")
    level = own.copy()

    def has_few(number: int) -> bool:
        return len(np.unique(user[level == number])) < STEP_USERS

    for number in range(n_levels - 1, 0, -1):
        if has_few(number):
            level[level == number] = number - 1
    if has_few(0) and (level > 0).any():
        level[level == 0] = level[level > 0].min()
    level = np.unique(level, return_inverse=True)[1]
    return level, np.bincount(level, np.sqrt(edges[:-1] * edges[1:])[own]) / np.bincount(level)


def _effects_of_codes() -> Float[np.ndarray, "code column"]:
    """Table of zeros and ones: the columns of each code; see `COLUMN_ENDS`."""
    codes = np.arange(N_CODES)
    weekday, hour, since, habit = np.unravel_index(codes, (DAYS_A_WEEK, HOURS_A_DAY, N_SINCE, N_HABITS))
    of_code = (IS_WEEKEND[weekday] * HOURS_A_DAY + hour, weekday, since, habit, 0 * codes)
    column = np.stack([own + begin for own, begin in zip(of_code, (0, *COLUMN_ENDS), strict=True)], axis=1)
    table = np.zeros((N_CODES, COLUMN_ENDS[-1] + 1))
    np.put_along_axis(table, column, 1, axis=1)
    return table


class _Effects(NamedTuple):
    """Effects whose sum is the log-odds."""

    level: Float[np.ndarray, " level"]
    hour: Float[np.ndarray, "weekend hour"]
    weekday: Float[np.ndarray, " weekday"]
    since: Float[np.ndarray, " since"]
    habit: Float[np.ndarray, " habit"]
    since_of_level: Float[np.ndarray, "since level"]
    hour_of_level: Float[np.ndarray, "weekend hour level"]

    @classmethod
    def start(cls, log_odds: Float[np.ndarray, " level"]) -> _Effects:
        """Start with levels that differ only in their rate of events."""
        n, hours = len(log_odds), (2, HOURS_A_DAY)
        return cls(log_odds, *map(np.zeros, (hours, DAYS_A_WEEK, N_SINCE, N_HABITS, (N_SINCE, n), (*hours, n))))

    def log_odds(self) -> Any:
        """Log-odds of an event for each code of `TimeCells`, (code, level): an array of NumPy or of JAX."""
        hour = self.hour[IS_WEEKEND] + self.weekday[:, None]
        of_hour = hour[:, :, None] + self.hour_of_level[IS_WEEKEND] + self.level
        of_since = self.since[:, None] + self.since_of_level
        log_odds = of_hour[:, :, None, None] + (of_since[:, None] + self.habit[:, None])
        return log_odds.reshape(N_CODES, -1)

    @classmethod
    def of_columns(cls, shared: Float[np.ndarray, " column"], of_level: Float[np.ndarray, "column level"]) -> _Effects:
        """Numbers of the effects from the columns of `COLUMN_ENDS`: of all levels together, and of each level."""
        hour, weekday, since, habit, _ = np.split(shared, COLUMN_ENDS)
        hour_of_level, _, since_of_level, _, level = np.split(of_level, COLUMN_ENDS)
        hours = (2, HOURS_A_DAY)
        return cls(
            level[0], hour.reshape(hours), weekday, since, habit, since_of_level, hour_of_level.reshape(*hours, -1)
        )


PRECISIONS = _Effects(*[SHARED_PRECISION] * 5, LEVEL_PRECISION, LEVEL_PRECISION)  # type: ignore[arg-type]


class _Odds(NamedTuple):
    """Log-odds of an event, and probability that a window has any."""

    log: Float[np.ndarray, "code level"]
    softplus: Float[np.ndarray, "code level"]  # minus the log-probability of no event
    any: Float[np.ndarray, " level"]

    @classmethod
    def of(cls, effects: _Effects, without: Float[np.ndarray, " code"]) -> _Odds:
        """`without`: as in `TimeCells`."""
        log = effects.log_odds()
        # `np.logaddexp` takes several times as long.
        softplus = np.maximum(log, 0) + np.log1p(np.exp(-np.abs(log)))
        # Not a product of matrices, whose last digits would depend on the number of cores.
        log_none = -np.einsum("c,cp->p", without, softplus)
        return cls(log, softplus, np.maximum(-np.expm1(log_none), TINY))

    def log_joint(
        self, windows: _Observed, share: Float[np.ndarray, "cluster level"]
    ) -> Float[np.ndarray, "window level"]:
        """Joint log-probability of the times of a window and of its level, given that the window has an event."""
        return self.log_likelihoods(windows.cells) + (np.log(share)[windows.cluster] - np.log(self.any))

    def log_likelihoods(self, cells: TimeCells) -> Float[np.ndarray, "window level"]:
        """Log-probability of the times of a window for each level."""
        log, softplus = (each.astype(cells.events.dtype) for each in (self.log, self.softplus))
        return (cells.events @ log - cells.instants @ softplus).astype(np.float64)


class _Step(NamedTuple):
    """What a round learns from, given the probabilities of the levels of the windows."""

    instants: Float[np.ndarray, "code level"]
    windows: Float[np.ndarray, " level"]
    without: Float[np.ndarray, " code"]  # see `TimeCells`
    start: _Effects  # mean of the prior
    events: _Effects  # number of events of each effect
    # Precisions of the prior of effects above the mean and below it; infinite for effects that there are not.
    above: _Effects
    below: _Effects

    @classmethod
    def of(cls, windows: _Observed, of_window: Float[np.ndarray, "window level"], start: _Effects) -> _Step:
        weighted, users = windows.bounded(of_window)
        of_user, cells = windows.of_user, windows.cells

        def count(weight: Float[np.ndarray, " window"]) -> Float[np.ndarray, "user column"]:
            return of_user @ (windows.events * weight[:, None])

        # First no user weighs more than the second heaviest in all levels together, then in each level.
        everywhere = count(weighted.sum(axis=1))
        used, with_events = bounded_columns(everywhere)
        part = used / np.maximum(everywhere, TINY)
        of_level = [bounded_columns(count(weight) * part) for weight in weighted.T]
        events = np.stack([_with_equal_totals(own.sum(axis=0)) for own, _ in of_level], axis=1)
        above = _Effects.of_columns(with_events, np.stack([who for _, who in of_level], axis=1))._replace(level=users)
        all_users = bounded_columns(of_user @ weighted.sum(axis=1, keepdims=True))[1]
        below = start._make(map(np.broadcast_to, (users, *[all_users] * 4, users, users), (x.shape for x in start)))
        with np.errstate(divide="ignore"):
            above, below = (
                _Effects._make(own / used_share(n, STEP_USERS) for own, n in zip(PRECISIONS, each, strict=True))
                for each in (above, below)
            )
        events = _Effects.of_columns(events.sum(axis=1), events)
        instants = (cells.instants.T @ weighted.astype(cells.events.dtype)).astype(np.float64)
        return cls(instants, weighted.sum(axis=0), cells.without, start, events, above, below)

    def improve(self, effects: _Effects) -> _Effects:
        """The effects after some steps of L-BFGS."""
        # In these units, the curvature along each effect is about 1, so that L-BFGS needs few steps.
        odds = _Odds.of(effects, self.without)
        happens = np.exp(odds.log - odds.softplus)
        with jax.enable_x64(True):
            of_codes = jax.vjp(_Effects.log_odds, effects)[1](self.instants * happens * (1 - happens))[0]
            curvature = jax.tree.map(np.asarray, of_codes)
        weakest = jax.tree.map(lambda above, below: np.minimum(above, below), self.above, self.below)
        unit = jax.tree.map(lambda own, prior: 1 / np.sqrt(own + np.minimum(prior, LARGE)), curvature, weakest)
        limits = (
            jax.tree.map(lambda precision, far=far: np.where(np.isinf(precision), 0, far), each)
            for far, each in ((-np.inf, self.below), (np.inf, self.above))
        )
        x = jax.tree.map(lambda effect, start, unit: (effect - start) / unit, effects, self.start, unit)
        x = maximize(_log_posterior, x, (self, unit), STEPS, tuple(limits))
        return jax.tree.map(lambda x, start, unit: np.asarray(start + x * unit), x, self.start, unit)


def _log_posterior(x: _Effects, given: tuple[_Step, _Effects]) -> Float[Array, ""]:
    """Log-likelihood of windows that have an event, plus log-densities of priors; `x` is in units from the start."""
    step, unit = given
    apart = jax.tree.map(lambda x, unit: x * unit, x, unit)
    effects = jax.tree.map(lambda start, apart: start + apart, step.start, apart)
    none = jnp.logaddexp(0, effects.log_odds())
    seen = jnp.log(jnp.maximum(-jnp.expm1(-step.without @ none), TINY))

    def prior(apart: Any, above: Any, below: Any) -> Array:
        precision = jnp.where(apart > 0, above, below)
        return (jnp.where(jnp.isinf(precision), 0, precision) * apart**2).sum() / 2

    total = jax.tree.map(lambda events, effect: (events * effect).sum(), step.events, effects)
    penalty = jax.tree.map(prior, apart, step.above, step.below)
    return sum(total) - sum(penalty) - (step.instants * none).sum() - step.windows @ seen


def _with_equal_totals(events: Float[np.ndarray, " column"]) -> Float[np.ndarray, " column"]:
    """The columns, such that each group of `COLUMN_ENDS` has as many events as the last column.

    The bounds take more events from one group than from another. Without equal totals, no finite effects would be the
    likeliest.
    """
    hour, weekday, since, habit, (total,) = np.split(events + TINY, COLUMN_ENDS)
    weekday, since, habit = (total * each / each.sum() for each in (weekday, since, habit))
    of_days, hour = np.bincount(IS_WEEKEND, weekday), hour.reshape(2, HOURS_A_DAY)
    hour = of_days[:, None] * hour / hour.sum(axis=1, keepdims=True)
    return np.concatenate([hour.ravel(), weekday, since, habit, [total]])


def _shares(windows: _Observed, of_window: Float[np.ndarray, "window level"]) -> Float[np.ndarray, "cluster level"]:
    """Shares of the levels in each cluster, shrunk to the shares of all windows.

    The windows that the rules take from a level count for the next lower level, and some for the next higher. In the
    number of windows of a level in a cluster, no user weighs more than the second heaviest user there. The windows that
    this bound removes are spread over all clusters. Otherwise levels with few users would lose most of their windows.
    """
    n_levels, n_clusters, cluster = of_window.shape[1], windows.n_clusters, windows.cluster
    weighted, users = windows.bounded(of_window)
    used = used_share(users, STEP_USERS)
    beyond = np.maximum(windows.weight @ of_window - weighted.sum(axis=0), 0)
    few = weighted.sum(axis=0) * (1 - used)
    # A probability can be rounded to 0.
    weighted = np.maximum(weighted * used, TINY)
    # Half of what few users have counts as higher, so that people do not check in more rarely on average. What is
    # beyond the second heaviest user never does.
    higher = np.append(few[:-1] / 2 * (used[1:] > 0), 0)
    lower = beyond + few - higher
    total = weighted.sum(axis=0) + np.append(lower[1:], 0) + np.append(0, higher[:-1])
    total[0] += lower[0]
    group = cluster[:, None] * n_levels + np.arange(n_levels)
    weight = bounded(np.repeat(windows.user, n_levels), group.ravel(), n_clusters * n_levels, weighted.ravel())[0]
    counts = sums(group.ravel(), weight, n_clusters * n_levels).reshape(n_clusters, n_levels)
    of_cluster = sums(cluster, weighted.sum(axis=1), n_clusters)
    counts += of_cluster[:, None] / of_cluster.sum() * np.maximum(total - counts.sum(axis=0), 0)
    shares = counts + LEVEL_MASS * total / total.sum()
    return shares / shares.sum(axis=1, keepdims=True)
