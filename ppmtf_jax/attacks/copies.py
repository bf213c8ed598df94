"""Signs that synthetic traces are copies of training traces, compared with the same numbers for held-out users.

The signs are the distance to the closest record (DCR) and the longest copied run; unicity is reported too. Neither
these signs nor their absence prove anything. But traces that are closer to the training set than held-out users' traces
may be partly copied. Everything is measured on windows: periods of the grid, such as days, or windows as long as the
synthetic traces if these last several periods. Windows of complete synthetic traces are first thinned: each keeps only
the instants at which a randomly drawn window of a test user has events. So synthetic and real windows have similar
gaps. Synthetic traces with gaps of their own are compared as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Num

from ppmtf_jax.attacks.copied_runs import longest_copied_runs
from ppmtf_jax.attacks.registry import register_attack
from ppmtf_jax.attacks.scoring import events_by_point, products_in_blocks
from ppmtf_jax.attacks.unicity import at_most, unicity
from ppmtf_jax.data.comparable import check_same_places
from ppmtf_jax.data.measurement import Comparison, Interpretation, MetricInfo, NoSettings, caveat_if
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import MIN_WINDOW_EVENTS, NO_WINDOWS, Windows, is_complete, same_period
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.privacy.limits import COPIED, Judgement
from ppmtf_jax.streams import Stage, numpy_stream

MAX_WINDOWS = 2000
"""Maximum number of measured windows, drawn at random; the standard error of a share is then about 0.01."""
FAR_QUANTILE = 0.95
SEED = 0
THINNING_STREAM, WINDOWS_STREAM = 1, 2
"""Random-stream numbers of the stage; unicity.py uses 0."""
TABLE_POINTS = 4
COPY_TITLES = {
    "copied_run": "Longest run of events that a training trace has too",
    "nearest_share": "Share of events that the nearest training trace has too",
}
"""What the comparisons of a `CopyCheck` compare."""
TEST_USERS, NEAR_TEST_USERS, CHANCE = "test users", "near test users", "at most 0.05"
SATURATED = "Training windows contain whole test windows: no window can be closer, so this number cannot alarm"


@dataclass(frozen=True, eq=False)
class HeldOutComparison:
    """One number for each synthetic window and for each held-out window.

    `n_users` is the number of users in the set with fewer users. `share_far` is the share of the synthetic windows
    above the 95 % quantile of the held-out windows: at most about 0.05 by chance. `held_out_share_far` is the share of
    the held-out windows above their own 95 % quantile: 0.05, or less if there are ties. The comparison is saturated if
    no window, copied or not, can be above 95 % of the held-out windows.
    """

    synthetic: Num[np.ndarray, " window"]
    held_out: Num[np.ndarray, " held_out"]
    n_users: int
    mean: float
    held_out_mean: float
    share_far: float
    held_out_share_far: float
    is_saturated: bool

    @classmethod
    def of(
        cls, synthetic: np.ndarray, held_out: np.ndarray, n_users: int, greatest: float = math.inf
    ) -> HeldOutComparison:
        """Compare numbers, none of which can be above `greatest`."""
        far = float(np.quantile(held_out, FAR_QUANTILE, method="higher"))
        means = (float(number) for number in (synthetic.mean(), held_out.mean()))
        shares = (float(np.mean(numbers > far)) for numbers in (synthetic, held_out))
        return cls(synthetic, held_out, n_users, *means, *shares, is_saturated=far >= greatest)

    def judgement(self) -> Judgement:
        """Judge the share by the limit of copies; "not known" if saturated."""
        return COPIED.judge(math.nan if self.is_saturated else self.share_far, self.n_users)

    def to_dict(self) -> dict[str, float]:
        """All numbers for JSON."""
        names = ("mean", "held_out_mean", "share_far", "held_out_share_far")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, eq=False)
class CopyCheck:
    """Result of `check_copies`.

    `unicity` is that of the synthetic windows, `training_unicity` that of the training users, both among `crowd` users.
    See `longest_copied_runs` for `copied_run`, in events, and `nearest_shares` for `nearest_share`.
    """

    unicity: Float[np.ndarray, " points"]
    training_unicity: Float[np.ndarray, " points"]
    copied_run: HeldOutComparison
    nearest_share: HeldOutComparison
    crowd: int

    def to_dict(self) -> dict[str, Any]:
        """All numbers for JSON."""
        return {
            "unicity": self.unicity.tolist(),
            "training_unicity": self.training_unicity.tolist(),
            "crowd": self.crowd,
            "copied_run": self.copied_run.to_dict(),
            "nearest_share": self.nearest_share.to_dict(),
        }


def check_copies(released: Traces, train: Traces, test: Traces, *, seed: int = SEED) -> CopyCheck:
    """Measure signs of copying in released traces, compared with the same numbers for test users.

    Windows of complete released traces are thinned to the instants of test windows; windows with one event are left
    out. At most 2,000 windows of each set are measured, drawn at random. `train` and `test` are real traces of users
    who were, and were not, used to make the released traces. Raises `InputError`: the place tables or the periods of
    the grids differ, or a set has no window with two events.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=100, n_days=1, missing=0.0, seed=0).traces.split_users(0.5, seed=0)
    >>> check = check_copies(train, train, test)
    >>> check.nearest_share.mean, check.copied_run.mean
    (1.0, 24.0)
    """
    check_same_places(released=released, train=train, test=test)
    comparison = Comparison(released, train, test, released.time_grid.n_instants)
    if (found := _check(comparison, seed, crowd_of_released=True)) is None:
        raise InputError("copies", [Problem("windows of two events in each set, on grids of one period", "none")])
    return found


def _check(comparison: Comparison, seed: int, *, crowd_of_released: bool = False) -> CopyCheck | None:
    """Compare windows; None if there is nothing to compare.

    Unicity depends on the number of users (the crowd). In a table of several systems all columns need the same crowd,
    so the real sets determine it. With `crowd_of_released`, the number of released users counts, not of test users.
    """
    length = comparison.window_length
    train, test = (comparison.statistic(_windows, each, length) for each in (comparison.train, comparison.test))
    grid = comparison.train.time_grid
    same = all(same_period(grid, each.time_grid) for each in (comparison.traces, comparison.test))
    long_enough = comparison.traces.time_grid.n_instants >= length
    if not (same and long_enough and train.n_windows and test.n_windows):
        return None
    windows = comparison.statistic(_windows, comparison.traces, length)
    if comparison.traces is not comparison.train and comparison.statistic(is_complete, comparison.traces):
        windows = _thinned(Windows.of(comparison.traces, length), test, seed)
    if not windows.n_windows:
        return None
    n_users, n_train, n_test = (len(np.unique(each.user)) for each in (windows, train, test))
    crowd = min(n_users if crowd_of_released else n_test, n_train)
    runs, shares = _closeness(windows, train, seed)
    test_runs, test_shares = comparison.statistic(_closeness_of_test, comparison.test, comparison.train, length, seed)
    n_compared = min(n_users, n_test)
    return CopyCheck(
        unicity(windows, n_users=crowd, seed=seed),
        comparison.statistic(_unicity_of_real, comparison.train, length, crowd, seed),
        HeldOutComparison.of(runs, test_runs, n_compared),
        HeldOutComparison.of(shares, test_shares, n_compared, greatest=1.0),
        crowd,
    )


def nearest_shares(windows: Windows, train: Windows) -> Float[np.ndarray, " window"]:
    """Share of each window's events that its closest training window also contains: 1 - DCR.

    The distance is the share of a window's events that the training window does not contain at the same place and the
    same instant of the period (Hamming distance). Both sets have the same places and grids with the same period.
    """
    nearest = np.zeros(windows.n_windows)
    for rows, product in products_in_blocks(events_by_point(windows), events_by_point(train).T.tocsr()):
        nearest[rows] = product.max(axis=1).toarray().ravel()
    return nearest / windows.events_per_window()


def _windows(traces: Traces, length: int) -> Windows:
    return Windows.of(traces, length).with_events(MIN_WINDOW_EVENTS)


def _thinned(windows: Windows, test: Windows, seed: int) -> Windows:
    drawn = numpy_stream(seed, Stage.ALARMS, THINNING_STREAM).integers(test.n_windows, size=windows.n_windows)
    return windows.thinned(test, drawn).with_events(MIN_WINDOW_EVENTS)


def _closeness(windows: Windows, train: Windows, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Longest copied run and nearest share of each window."""
    rng = numpy_stream(seed, Stage.ALARMS, WINDOWS_STREAM)
    some = windows.select(at_most(windows.n_windows, MAX_WINDOWS, rng))
    # Nobody who checks in now and then has events at consecutive instants for long.
    several_periods = windows.time_grid.n_instants > windows.time_grid.period
    return longest_copied_runs(some, train, over_gaps=several_periods), nearest_shares(some, train)


def _closeness_of_test(test: Traces, train: Traces, length: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    return _closeness(_windows(test, length), _windows(train, length), seed)


def _unicity_of_real(traces: Traces, length: int, n_users: int, seed: int) -> np.ndarray:
    return unicity(_windows(traces, length), n_users=n_users, seed=seed)


def _measure(comparison: Comparison, settings: NoSettings) -> list[float]:
    found = _check(comparison, SEED)
    if found is None:
        return [math.nan] * 5
    run, nearest = found.copied_run, found.nearest_share
    return [found.unicity[TABLE_POINTS - 1], run.mean, run.share_far, nearest.mean, nearest.share_far]


def _read(comparison: Comparison, settings: NoSettings) -> list[Interpretation]:
    found = _check(comparison, SEED)
    if found is None:
        return [Interpretation()] * 5
    readings = [Interpretation()]
    for each in (found.copied_run, found.nearest_share):
        far, caveats = {TEST_USERS: each.held_out_share_far}, caveat_if(each.is_saturated, "saturated", SATURATED)
        alarm = math.inf if each.is_saturated else COPIED.alarm(each.n_users)
        readings += [Interpretation({TEST_USERS: each.held_out_mean}), Interpretation(far, caveats, alarm)]
    return readings


register_attack(
    "copies",
    MetricInfo(
        "unicity",
        f"Unicity, {TABLE_POINTS} points",
        f"Share of users who are identified uniquely by {TABLE_POINTS} points (place and time) of their own traces. "
        "One period of each user is used. The number of users is that of the test users for all systems.",
        "share of users",
        "none",
        "-",
        f"fewer users than test users, or {NO_WINDOWS}",
    ),
    MetricInfo(
        "copied_run",
        "Copied run",
        "Mean length of the longest sequence of places of a trace that also occurs in a training trace, at any time.",
        "events",
        "lower",
        NEAR_TEST_USERS,
        NO_WINDOWS,
    ),
    MetricInfo(
        "copied_run_far",
        "Copied run, far",
        "Share of traces whose copied run is longer than the copied runs of 95 % of the test users' traces.",
        "share of traces",
        "lower",
        CHANCE,
        NO_WINDOWS,
    ),
    MetricInfo(
        "nearest_share",
        "Nearest trace",
        "Mean share of a trace's events that the closest training trace also has, at the same place and time: "
        "1 - distance to the closest record (DCR).",
        "share of events",
        "lower",
        NEAR_TEST_USERS,
        NO_WINDOWS,
    ),
    MetricInfo(
        "nearest_share_far",
        "Nearest trace, far",
        "Share of traces that are closer to a training trace than 95 % of the test users' traces.",
        "share of traces",
        "lower",
        CHANCE,
        NO_WINDOWS,
    ),
    measure=_measure,
    reading=_read,
)
