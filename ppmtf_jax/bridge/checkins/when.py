"""When people check in: classes of pace, and the odds of an event at an instant.

For a window of pace c, the log-odds of an event at an instant are the sum of alpha_c and of effects of: the hour of the
day (others at weekends), the day of the week, the time since the last event, and the habit. Each pace also has its own
effects of the time since the last event and of the hour. All effects are learned by maximum likelihood with weak
normal priors, in rounds: steps of L-BFGS with given shares of the paces, then new shares. The number of paces is chosen
by the likelihood of held-out training users.

Everything here is in NumPy: the arrays are small, and no program has to be compiled for each number of windows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array, vstack
from scipy.special import logsumexp, softmax

from ppmtf_jax.bridge.checkins.law import (
    HOURS_A_DAY,
    N_HABITS,
    N_SINCE,
    NONE_YET,
    NONE_YET_LATER,
    SINCE_FROM_H,
    bins_of_instants,
    habit_bin,
    hour_of_instants,
)
from ppmtf_jax.bridge.checkins.maximization import MOST_LOG, lowest
from ppmtf_jax.bridge.checkins.observed_windows import ObservedWindows
from ppmtf_jax.bridge.contributions import bounded, sums
from ppmtf_jax.bridge.tuning import HELD_OUT_OF, random_folds
from ppmtf_jax.data.time_grid import DAY_S, TimeGrid
from ppmtf_jax.runtime.devices import of_first_process

DAYS_A_WEEK, SATURDAY = 7, 5
# Candidates for the number of paces.
N_PACES = (6, 16)
# Minimum mean number of windows per pace; with few windows, there are fewer paces.
PACE_WINDOWS = 50
# Rounds, and steps of L-BFGS in the first round and in each later one. In the first round, the paces of the windows are
# given.
MOST_ROUNDS, FIRST_STEPS, STEPS = 8, 10, 5
# The rounds stop when a round raises the log-likelihood by less than this, in nats per window.
LEAST_GAIN = 0.001
# Number of pseudo-windows of each cluster; they are distributed over paces like all windows.
PACE_MASS = 10.0
# Precisions of the normal priors: of the effects that all paces share, and of the effects of one pace.
SHARED_PRECISION, PACE_PRECISION = 0.1, 4.0
LEAST_CURVATURE = 1.0
INSTANTS_AT_A_TIME = 2**20
TINY = 1e-12
N_CODES = DAYS_A_WEEK * HOURS_A_DAY * N_SINCE * N_HABITS
IS_WEEKEND = (np.arange(DAYS_A_WEEK) >= SATURDAY).astype(int)


class Paces(NamedTuple):
    """Classes of windows by pace; `log_odds` and `share` are those of `CheckinBridge`."""

    log_odds: Float[np.ndarray, "pace time since habit"]
    share: Float[np.ndarray, "cluster pace"]
    of_window: Float[np.ndarray, "window pace"]  # probability of each pace given the times of a window


class TimeCells(NamedTuple):
    """Numbers of instants and of events, by ((weekday * 24 + hour) * N_SINCE + since) * N_HABITS + habit: the code.

    They are in single precision, since products with them take most of the time of a fit.
    """

    instants: csr_array  # (window, code)
    events: csr_array  # (window, code)
    without: Float[np.ndarray, " code"]  # instants of a window without events

    @classmethod
    def of(cls, windows: ObservedWindows) -> TimeCells:
        """Count in blocks of windows, so that no table of all windows x instants is made."""
        instants, events = [], []
        at_a_time = max(1, INSTANTS_AT_A_TIME // windows.grid.n_instants)
        begin = np.searchsorted(windows.window, np.arange(windows.n_windows + 1))
        for first in range(0, windows.n_windows, at_a_time):
            last = min(first + at_a_time, windows.n_windows)
            own = slice(begin[first], begin[last])
            row = windows.window[own] - first
            code = _codes(row, windows.instant[own], last - first, windows.grid)
            instants.append(_counts(np.arange(last - first)[:, None], code, last - first))
            events.append(_counts(row, code[row, windows.instant[own]], last - first))
        nothing = np.zeros(0, np.int64)
        without = np.bincount(_codes(nothing, nothing, 1, windows.grid)[0], minlength=N_CODES).astype(np.float64)
        both = (csr_array(vstack(parts, format="csr")) for parts in (instants, events))
        return cls(*both, without=without)


def fit_paces(
    windows: ObservedWindows,
    weight: Float[np.ndarray, " window"],
    cluster: Int[np.ndarray, " window"],
    n_clusters: int,
    random: np.random.Generator,
    n_paces: int | None = None,
) -> Paces:
    """Find the classes of pace, starting from classes of windows with similar numbers of events.

    `weight`: weight of each window, see `ObservedWindows.weights`. `cluster`: cluster of the user of each window.
    `n_paces`: number of classes; by default it is chosen.
    """
    cells = TimeCells.of(windows)
    size = np.bincount(windows.window, minlength=windows.n_windows)
    observed = _Observed(cells, size, windows.user, weight, cluster, n_clusters, windows.grid)
    effects, share, joint = _fit(observed, n_paces or _choose_number(observed, random))
    # So far, these are shares among windows with an event; now they become shares among all windows.
    share = share / _Odds.of(effects, cells.without).any
    return Paces(_table(effects, windows.grid), share / share.sum(axis=1, keepdims=True), softmax(joint, axis=1))


class _Observed(NamedTuple):
    """Windows from which paces are learned."""

    cells: TimeCells
    size: Int[np.ndarray, " window"]  # number of events
    user: Int[np.ndarray, " window"]
    weight: Float[np.ndarray, " window"]
    cluster: Int[np.ndarray, " window"]
    n_clusters: int
    grid: TimeGrid

    def select(self, kept: Bool[np.ndarray, " window"]) -> _Observed:
        """Some of the windows."""
        cells = TimeCells(self.cells.instants[kept], self.cells.events[kept], self.cells.without)
        of_window = {name: getattr(self, name)[kept] for name in ("size", "user", "weight", "cluster")}
        return self._replace(cells=cells, **of_window)


def _choose_number(windows: _Observed, random: np.random.Generator) -> int:
    """The number of paces with the greatest likelihood of held-out users."""
    numbers = sorted({int(np.clip(len(windows.user) // PACE_WINDOWS, 1, most)) for most in N_PACES})
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
    # Other processors may round differently, so all use the choice of the first process.
    return numbers[int(of_first_process(np.array(np.argmax(scores))))]


def _fit(
    windows: _Observed, n_paces: int
) -> tuple[_Effects, Float[np.ndarray, "cluster pace"], Float[np.ndarray, "window pace"]]:
    """Effects, shares of the paces among the windows of each cluster, and joint log-probability of window and pace."""
    # Each class starts with the windows whose number of events is in one range; the ranges are equal on a log scale.
    level = np.searchsorted(np.geomspace(1, windows.size.max() + 1, n_paces + 1)[1:-1], windows.size, side="right")
    level = np.unique(level, return_inverse=True)[1]
    n_paces = int(level.max()) + 1
    of_window = 0.9 * np.eye(n_paces)[level] + 0.1 / n_paces
    rate = np.log(np.bincount(level, windows.size) / np.bincount(level) / windows.grid.n_instants)
    effects, before = _Effects.start(rate), -np.inf
    for number in range(MOST_ROUNDS):
        weighted = of_window * windows.weight[:, None]
        share = _shares(weighted, windows.user, windows.cluster, windows.n_clusters)
        sums = _Sums.of(windows, weighted)
        if number:
            effects = _improved(effects, sums, partial(_log_posterior, windows=windows, share=share), STEPS)
        else:
            effects = _improved(effects, sums, sums.log_posterior, FIRST_STEPS)
        joint = _Odds.of(effects, windows.cells.without).log_joint(windows, share)
        total = (windows.weight * logsumexp(joint, axis=1)).sum()
        of_window = softmax(joint, axis=1)
        if total - before < windows.weight.sum() * LEAST_GAIN:
            break
        before = total
    return effects, share, joint


def _improved(
    effects: _Effects, sums: _Sums, log_posterior: Callable[[_Effects], tuple[float, _Effects]], n_steps: int
) -> _Effects:
    """The effects after some steps of L-BFGS; `log_posterior` returns a value and its gradient."""
    # In these units, the curvature along each effect is about 1, so that L-BFGS needs few steps. Effects of the paces
    # have no prior; the least curvature keeps steps finite for a pace that no window has.
    happens = _Odds.of(effects, sums.without).happens
    curvature = _Effects.sums(sums.instants * happens * (1 - happens))
    least = [max(each, LEAST_CURVATURE) for each in PRECISIONS]
    unit = 1 / np.sqrt(_Effects._make(map(np.add, curvature, least)).flat())

    def descend(x: Float[np.ndarray, " effect"]) -> tuple[float, Float[np.ndarray, " effect"]]:
        value, gradient = log_posterior(effects.like(x * unit))
        return -value, -gradient.flat() * unit

    return effects.like(lowest(descend, effects.flat() / unit, n_steps) * unit)


def _codes(
    window: Int[np.ndarray, " event"], instant: Int[np.ndarray, " event"], n_windows: int, grid: TimeGrid
) -> Int[np.ndarray, "window instant"]:
    """Code of each instant of each window, see `TimeCells`."""
    n_instants, per_day = grid.n_instants, DAY_S // grid.step_s
    happens = np.zeros((n_windows, n_instants), bool)
    happens[window, instant] = True
    at = np.arange(n_instants)
    last = np.maximum.accumulate(np.where(happens, at, -1), axis=1)
    last = np.concatenate([np.full((n_windows, 1), -1), last[:, :-1]], axis=1)
    none_yet = np.where(at < per_day, NONE_YET, NONE_YET_LATER)
    since = np.where(last < 0, none_yet, bins_of_instants(SINCE_FROM_H, per_day, n_instants + 1)[at - last])
    before = np.cumsum(happens, axis=1) - happens
    near = _near_on_days_before(window, instant, n_windows, grid)[
        :, at // per_day, hour_of_instants(per_day, n_instants)
    ]
    return (_hour_of_week(grid) * N_SINCE + since) * N_HABITS + np.asarray(habit_bin(near, before))


def _near_on_days_before(
    window: Int[np.ndarray, " event"], instant: Int[np.ndarray, " event"], n_windows: int, grid: TimeGrid
) -> Int[np.ndarray, "window day hour"]:
    """Number of events on earlier days at this hour, the hour before and the hour after."""
    per_day = DAY_S // grid.step_s
    n_days = grid.n_instants // per_day
    happens = np.zeros((n_windows, n_days, HOURS_A_DAY), np.int32)
    np.add.at(happens, (window, instant // per_day, hour_of_instants(per_day, grid.n_instants)[instant]), 1)
    earlier = np.cumsum(happens, axis=1) - happens
    return earlier + np.roll(earlier, 1, axis=2) + np.roll(earlier, -1, axis=2)


def _hour_of_week(grid: TimeGrid) -> Int[np.ndarray, " instant"]:
    """Weekday x 24 + hour of the day of each instant of a window; Monday is 0."""
    per_day = DAY_S // grid.step_s
    weekday = (np.arange(grid.n_instants) // per_day + grid.time_of(0).weekday()) % DAYS_A_WEEK
    return weekday * HOURS_A_DAY + hour_of_instants(per_day, grid.n_instants)


class _Effects(NamedTuple):
    """Effects whose sum is the log-odds."""

    pace: Float[np.ndarray, " pace"]
    hour: Float[np.ndarray, "weekend hour"]
    weekday: Float[np.ndarray, " weekday"]
    since: Float[np.ndarray, " since"]
    habit: Float[np.ndarray, " habit"]
    since_of_pace: Float[np.ndarray, "since pace"]
    hour_of_pace: Float[np.ndarray, "weekend hour pace"]

    @classmethod
    def start(cls, log_odds: Float[np.ndarray, " pace"]) -> _Effects:
        """Start with paces that differ only in their rate of events."""
        n, hours = len(log_odds), (2, HOURS_A_DAY)
        return cls(log_odds, *map(np.zeros, (hours, DAYS_A_WEEK, N_SINCE, N_HABITS, (N_SINCE, n), (*hours, n))))

    def log_odds(self) -> Float[np.ndarray, "code pace"]:
        """Log-odds of an event for each code of `TimeCells`."""
        hour = self.hour[IS_WEEKEND] + self.weekday[:, None]
        of_hour = hour[:, :, None] + self.hour_of_pace[IS_WEEKEND] + self.pace
        of_since = self.since[:, None] + self.since_of_pace
        log_odds = of_hour[:, :, None, None] + (of_since[:, None] + self.habit[:, None])
        return log_odds.reshape(N_CODES, -1)

    @classmethod
    def sums(cls, of_code: Float[np.ndarray, "code pace"]) -> _Effects:
        """For each effect, the sum over the codes and paces whose log-odds it is part of."""
        table = of_code.reshape(DAYS_A_WEEK, HOURS_A_DAY, N_SINCE, N_HABITS, -1)
        without_habit = table.sum(axis=3)
        day_and_hour, since = without_habit.sum(axis=2), without_habit.sum(axis=(0, 1))
        hour = np.stack([day_and_hour[each == IS_WEEKEND].sum(axis=0) for each in (0, 1)])
        habit, weekday = table.sum(axis=(0, 1, 2, 4)), day_and_hour.sum(axis=(1, 2))
        return cls(since.sum(axis=0), hour.sum(axis=2), weekday, since.sum(axis=1), habit, since, hour)

    def flat(self) -> Float[np.ndarray, " effect"]:
        return np.concatenate([each.ravel() for each in self])

    def like(self, flat: Float[np.ndarray, " effect"]) -> _Effects:
        """The effects of which `flat` returned these numbers; `self` has their shapes."""
        parts = np.split(flat, np.cumsum([each.size for each in self])[:-1])
        return _Effects._make(part.reshape(each.shape) for part, each in zip(parts, self, strict=True))


# Precisions of the normal priors; the paces have none.
PRECISIONS = _Effects(0, *[SHARED_PRECISION] * 4, PACE_PRECISION, PACE_PRECISION)  # type: ignore[arg-type]


class _Odds(NamedTuple):
    """Log-odds of an event, and probability that a window has any."""

    log: Float[np.ndarray, "code pace"]
    softplus: Float[np.ndarray, "code pace"]  # minus the log-probability of no event
    none: Float[np.ndarray, " pace"]
    any: Float[np.ndarray, " pace"]

    @classmethod
    def of(cls, effects: _Effects, without: Float[np.ndarray, " code"]) -> _Odds:
        """`without`: as in `TimeCells`."""
        log = effects.log_odds()
        # `np.logaddexp` takes several times as long.
        softplus = np.maximum(log, 0) + np.log1p(np.exp(-np.abs(log)))
        # Not a product of matrices, whose last digits would depend on the number of cores.
        log_none = -np.einsum("c,cp->p", without, softplus)
        return cls(log, softplus, np.exp(log_none), np.maximum(-np.expm1(log_none), TINY))

    @property
    def happens(self) -> Float[np.ndarray, "code pace"]:
        """Probability of an event."""
        return np.exp(self.log - self.softplus)

    def log_joint(
        self, windows: _Observed, share: Float[np.ndarray, "cluster pace"]
    ) -> Float[np.ndarray, "window pace"]:
        """Joint log-probability of the times of a window and of its pace, given that the window has an event."""
        return self.log_likelihoods(windows.cells) + (np.log(share)[windows.cluster] - np.log(self.any))

    def log_likelihoods(self, cells: TimeCells) -> Float[np.ndarray, "window pace"]:
        """Log-probability of the times of a window for each pace."""
        log, softplus = (each.astype(cells.events.dtype) for each in (self.log, self.softplus))
        return (cells.events @ log - cells.instants @ softplus).astype(np.float64)


class _Sums(NamedTuple):
    """Sums over all windows, each weighted by the probabilities of its paces."""

    instants: Float[np.ndarray, "code pace"]
    events: Float[np.ndarray, "code pace"]
    windows: Float[np.ndarray, " pace"]
    without: Float[np.ndarray, " code"]  # see `TimeCells`

    @classmethod
    def of(cls, windows: _Observed, weighted: Float[np.ndarray, "window pace"]) -> _Sums:
        cells = windows.cells
        narrow = weighted.astype(cells.events.dtype)
        instants, events = ((each.T @ narrow).astype(np.float64) for each in (cells.instants, cells.events))
        return cls(instants, events, weighted.sum(axis=0), cells.without)

    def log_posterior(self, effects: _Effects) -> tuple[float, _Effects]:
        """As `_log_posterior`, if the paces of the windows have these probabilities whatever the effects are."""
        odds = _Odds.of(effects, self.without)
        value = (self.events * odds.log - self.instants * odds.softplus).sum() - (self.windows * np.log(odds.any)).sum()
        return value + _log_prior(effects), self.gradient(effects, odds)

    def gradient(self, effects: _Effects, odds: _Odds) -> _Effects:
        """Gradient of the value of `log_posterior`; `odds` are those of the effects."""
        # If windows without events were seen too, there would be this many.
        unseen = self.windows * odds.none / odds.any
        slope = _Effects.sums(self.events - (self.instants + self.without[:, None] * unseen) * odds.happens)
        return _Effects._make(map(np.subtract, slope, map(np.multiply, PRECISIONS, effects)))


def _log_posterior(
    effects: _Effects, windows: _Observed, share: Float[np.ndarray, "cluster pace"]
) -> tuple[float, _Effects]:
    """Log-likelihood of windows given that each has an event, plus log-densities of the priors; and the gradient."""
    odds = _Odds.of(effects, windows.cells.without)
    joint = odds.log_joint(windows, share)
    value = (windows.weight * logsumexp(joint, axis=1)).sum() + _log_prior(effects)
    # The gradient of a mixture is that for the probabilities of the paces given the windows (Fisher's identity).
    sums = _Sums.of(windows, softmax(joint, axis=1) * windows.weight[:, None])
    return value, sums.gradient(effects, odds)


def _log_prior(effects: _Effects) -> float:
    return -0.5 * sum(precision * (each**2).sum() for precision, each in zip(PRECISIONS, effects, strict=True))


def _shares(
    weighted: Float[np.ndarray, "window pace"],
    user: Int[np.ndarray, " window"],
    cluster: Int[np.ndarray, " window"],
    n_clusters: int,
) -> Float[np.ndarray, "cluster pace"]:
    """Shares of the paces in each cluster, shrunk to the shares of all windows.

    In the number of windows of a pace in a cluster, no user weighs more than the second heaviest user. The windows
    that this bound removes are spread over all clusters. Otherwise paces with few users, such as the fastest one, would
    lose windows.
    """
    n_paces = weighted.shape[1]
    group = cluster[:, None] * n_paces + np.arange(n_paces)
    # A probability can be rounded to 0.
    weight = np.maximum(weighted.ravel(), TINY)
    weight = bounded(np.repeat(user, n_paces), group.ravel(), n_clusters * n_paces, weight)[0]
    counts = sums(group.ravel(), weight, n_clusters * n_paces).reshape(n_clusters, n_paces)
    total = weighted.sum(axis=0)
    of_cluster = sums(cluster, weighted.sum(axis=1), n_clusters)
    counts += of_cluster[:, None] / of_cluster.sum() * np.maximum(total - counts.sum(axis=0), 0)
    shares = counts + PACE_MASS * total / total.sum()
    return shares / shares.sum(axis=1, keepdims=True)


def _table(effects: _Effects, grid: TimeGrid) -> Float[np.ndarray, "pace time since habit"]:
    """Log-odds for each bin of `since` and `habit`, at each instant of the first week of a window."""
    n_instants = min(grid.n_instants, DAYS_A_WEEK * DAY_S // grid.step_s)
    table = np.clip(effects.log_odds(), -MOST_LOG, MOST_LOG).reshape(-1, N_SINCE, N_HABITS, len(effects.pace))
    return np.moveaxis(table[_hour_of_week(grid)[:n_instants]], -1, 0)


def _counts(row: Int[np.ndarray, "..."], code: Int[np.ndarray, "..."], n_rows: int) -> csr_array:
    """Sparse table of the numbers of entries of each row and code."""
    which, count = np.unique(row * N_CODES + code, return_counts=True)
    of_row, of_code = np.divmod(which, N_CODES)
    begin = np.searchsorted(of_row, np.arange(n_rows + 1))
    # Also indices of 32 bits, because products with the table take as long as reading it.
    parts = count.astype(np.float32), of_code.astype(np.int32), begin.astype(np.int32)
    return csr_array(parts, shape=(n_rows, N_CODES))
