"""When people check in: classes of pace, and the odds of an event at an instant.

For a window of pace c, the log-odds of an event at an instant are the sum of alpha_c and of effects of: the hour of the
day (others at weekends), the day of the week, the time since the last event, and the habit. Each pace also has its own
effects of the time since the last event and of the hour. EM alternates between the probabilities of the paces of each
window and the log-odds, which are learned by maximum likelihood with weak normal priors. The number of paces is chosen
by the likelihood of held-out training users.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.sparse import csr_array, vstack
from scipy.special import softmax

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
from ppmtf_jax.bridge.checkins.maximization import MOST_LOG, maximize, padding
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
MOST_ROUNDS, FIRST_STEPS, STEPS = 30, 40, 10
# EM stops when a round raises the log-likelihood by less than this, in nats per window. With ten times this number,
# held-out windows in New York are less probable, and those of Gowalla a little more: see `benchmarks/held_out.py`.
LEAST_GAIN = 0.001
# Number of pseudo-windows of each cluster; they are distributed over paces like all windows.
PACE_MASS = 10.0
# Precisions of the normal priors: of the effects that all paces share, and of the effects of one pace.
SHARED_PRECISION, PACE_PRECISION = 0.1, 4.0
INSTANTS_AT_A_TIME = 2**20
TINY = 1e-12


class Paces(NamedTuple):
    """Classes of windows by pace; `log_odds` and `share` are those of `CheckinBridge`."""

    log_odds: Float[np.ndarray, "pace time since habit"]
    share: Float[np.ndarray, "cluster pace"]
    of_window: Float[np.ndarray, "window pace"]  # probability of each pace given the times of a window


class TimeCells(NamedTuple):
    """Numbers of instants and of events of each window, by weekday, hour, time since the last event, and habit."""

    instants: csr_array
    events: csr_array
    # Code of each column: ((weekday * 24 + hour) * N_SINCE + since) * N_HABITS + habit.
    code: Int[np.ndarray, " cell"]

    @classmethod
    def of(cls, windows: ObservedWindows) -> TimeCells:
        """Count in blocks of windows, so that no table of all windows x instants is made."""
        instants, events = [], []
        at_a_time = max(1, INSTANTS_AT_A_TIME // windows.grid.n_instants)
        begin = np.searchsorted(windows.window, np.arange(windows.n_windows + 1))
        for first in range(0, windows.n_windows, at_a_time):
            last = min(first + at_a_time, windows.n_windows)
            own = slice(begin[first], begin[last])
            code = _codes(windows.window[own] - first, windows.instant[own], last - first, windows.grid)
            instants.append(_counts(np.repeat(np.arange(last - first), code.shape[1]), code.ravel(), last - first))
            row = windows.window[own] - first
            events.append(_counts(row, code[row, windows.instant[own]], last - first))
        # Most codes do not occur; their columns are left out. Some empty columns are appended; see `padding`.
        used = np.unique(np.concatenate([each.indices for each in instants]))
        counts = [csr_array(vstack(parts, format="csr"))[:, used] for parts in (instants, events)]
        code = np.append(used, np.zeros(padding(len(used)), used.dtype))
        for each in counts:
            each.resize(each.shape[0], len(code))
        return cls(counts[0], counts[1], code)


def fit_paces(
    windows: ObservedWindows,
    weight: Float[np.ndarray, " window"],
    cluster: Int[np.ndarray, " window"],
    n_clusters: int,
    random: np.random.Generator,
    n_paces: int | None = None,
) -> Paces:
    """Find the classes of pace by EM, which starts from classes of windows with similar numbers of events.

    `weight`: weight of each window, see `ObservedWindows.weights`. `cluster`: cluster of the user of each window.
    `n_paces`: number of classes; by default it is chosen.
    """
    cells = TimeCells.of(windows)
    size = np.bincount(windows.window, minlength=windows.n_windows)
    observed = _Observed(cells, size, windows.user, weight, cluster, n_clusters, windows.grid)
    with jax.enable_x64(True):
        effects, share, joint = _fit(observed, n_paces or _choose_number(observed, random))
        log_any = np.asarray(_log_any(effects, _Fields.of(_codes_before_first(windows.grid))))
    # So far, these are shares among windows with an event; now they become shares among all windows.
    share = share / np.exp(log_any)
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
        cells = self.cells._replace(instants=self.cells.instants[kept], events=self.cells.events[kept])
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
        scores.append(predicted.weight @ np.logaddexp.reduce(_log_joint(predicted, effects, share), axis=1))
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
    at, before_first = _Fields.of(windows.cells.code), _Fields.of(_codes_before_first(windows.grid))
    effects, before = _Effects.start(rate), -np.inf
    for number in range(MOST_ROUNDS):
        weighted = of_window * windows.weight[:, None]
        instants, events = ((counts.T @ weighted).T for counts in (windows.cells.instants, windows.cells.events))
        data = _Weighted(at, instants, events, before_first, weighted.sum(axis=0))
        effects = maximize(_log_posterior, effects, data, STEPS if number else FIRST_STEPS)
        share = _shares(weighted, windows.user, windows.cluster, windows.n_clusters)
        joint = _log_joint(windows, effects, share)
        total = windows.weight @ np.logaddexp.reduce(joint, axis=1)
        of_window = softmax(joint, axis=1)
        if total - before < windows.weight.sum() * LEAST_GAIN:
            break
        before = total
    return effects, share, joint


def _log_joint(
    windows: _Observed, effects: _Effects, share: Float[np.ndarray, "cluster pace"]
) -> Float[np.ndarray, "window pace"]:
    """Joint log-probability of the times of a window and of its pace, given that the window has an event."""
    log_odds = np.asarray(effects.log_odds(_Fields.of(windows.cells.code)))
    log_any = np.asarray(_log_any(effects, _Fields.of(_codes_before_first(windows.grid))))
    return _log_likelihoods(windows.cells, log_odds) - log_any + np.log(share)[windows.cluster]


def _codes(
    window: Int[np.ndarray, " event"], instant: Int[np.ndarray, " event"], n_windows: int, grid: TimeGrid
) -> Int[np.ndarray, "window instant"]:
    """Code of each instant of each window, see `TimeCells.code`."""
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


def _codes_before_first(grid: TimeGrid) -> Int[np.ndarray, " instant"]:
    """Code of each instant of a window without events."""
    nothing = np.zeros(0, np.int64)
    return _codes(nothing, nothing, 1, grid)[0]


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


class _Fields(NamedTuple):
    """Indices of the effects of each cell; `hour` is the hour of the day, and 24 plus the hour at weekends."""

    hour: Int[np.ndarray, " cell"]
    weekday: Int[np.ndarray, " cell"]
    since: Int[np.ndarray, " cell"]
    habit: Int[np.ndarray, " cell"]

    @classmethod
    def of(cls, code: Int[np.ndarray, " cell"]) -> _Fields:
        rest, habit = np.divmod(code, N_HABITS)
        hour_of_week, since = np.divmod(rest, N_SINCE)
        weekday, hour = np.divmod(hour_of_week, HOURS_A_DAY)
        return cls(hour + HOURS_A_DAY * (weekday >= SATURDAY), weekday, since, habit)


class _Effects(NamedTuple):
    """Effects whose sum is the log-odds."""

    pace: Float[Array, " pace"]
    hour: Float[Array, " hour"]
    weekday: Float[Array, " weekday"]
    since: Float[Array, " since"]
    habit: Float[Array, " habit"]
    since_of_pace: Float[Array, "pace since"]
    hour_of_pace: Float[Array, "pace hour"]

    @classmethod
    def start(cls, log_odds: Float[np.ndarray, " pace"]) -> _Effects:
        """Start with paces that differ only in their rate of events."""
        n, hours = len(log_odds), 2 * HOURS_A_DAY
        zeros = [jnp.zeros(shape) for shape in (hours, DAYS_A_WEEK, N_SINCE, N_HABITS, (n, N_SINCE), (n, hours))]
        return cls(jnp.asarray(log_odds), *zeros)

    def log_odds(self, at: _Fields) -> Float[Array | np.ndarray, "pace cell"]:
        """Log-odds of an event in each cell."""
        shared = self.hour[at.hour] + self.weekday[at.weekday] + self.since[at.since] + self.habit[at.habit]
        return self.pace[:, None] + shared + self.since_of_pace[:, at.since] + self.hour_of_pace[:, at.hour]


class _Weighted(NamedTuple):
    """Sums over all windows that the likelihood needs; each window is weighted by the probabilities of its paces."""

    at: _Fields  # of each cell
    instants: Float[np.ndarray, "pace cell"]
    events: Float[np.ndarray, "pace cell"]
    before_first: _Fields  # of each instant of a window without events
    windows: Float[np.ndarray, " pace"]


@jax.jit
def _log_any(effects: _Effects, before_first: _Fields) -> Float[Array, " pace"]:
    """Log-probability that a window has at least one event."""
    log_none = -jnp.logaddexp(0, effects.log_odds(before_first)).sum(axis=1)
    return jnp.log(-jnp.expm1(log_none))


def _log_posterior(effects: _Effects, data: _Weighted) -> Float[Array, ""]:
    """Log-likelihood of windows given that each has an event, plus the log-densities of the normal priors."""
    log_odds = effects.log_odds(data.at)
    likelihood = (data.events * log_odds - data.instants * jnp.logaddexp(0, log_odds)).sum()
    likelihood -= data.windows @ _log_any(effects, data.before_first)
    shared = sum(jnp.sum(each**2) for each in (effects.hour, effects.weekday, effects.since, effects.habit))
    of_pace = sum(jnp.sum(each**2) for each in (effects.since_of_pace, effects.hour_of_pace))
    return likelihood - 0.5 * (SHARED_PRECISION * shared + PACE_PRECISION * of_pace)


def _log_likelihoods(cells: TimeCells, log_odds: Float[np.ndarray, "pace cell"]) -> Float[np.ndarray, "window pace"]:
    return cells.events @ log_odds.T - cells.instants @ np.logaddexp(0, log_odds).T


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
    cell = np.arange(N_SINCE * N_HABITS)
    code = _hour_of_week(grid)[:n_instants, None] * len(cell) + cell
    table = np.asarray(effects.log_odds(_Fields.of(code.ravel())))
    return np.clip(table, -MOST_LOG, MOST_LOG).reshape(-1, n_instants, N_SINCE, N_HABITS)


def _counts(row: Int[np.ndarray, " entry"], code: Int[np.ndarray, " entry"], n_rows: int) -> csr_array:
    """Sparse table of the numbers of entries of each row and code."""
    n_codes = DAYS_A_WEEK * HOURS_A_DAY * N_SINCE * N_HABITS
    counts = csr_array((np.ones(len(row)), (row, code)), shape=(n_rows, n_codes))
    counts.sum_duplicates()
    return counts
