"""Alarms: simple signs that synthetic traces are too much like real ones, each beside the same of held-out users.

They prove nothing, and silence proves nothing either; but traces that are nearer to the training set than those of
strangers are, may be copied in part. Everything is measured on windows, periods of the grid such as days, see
`data.windows`. In the table of an evaluation synthetic windows are first thinned to the instants at which windows of
test users, drawn at random with a fixed seed, have events: so both have the same gaps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Num
from scipy import sparse

from ppmtf_jax.attacks.registry import ATTACKS
from ppmtf_jax.attacks.scoring import products_in_blocks
from ppmtf_jax.data.comparable import check_same_places
from ppmtf_jax.data.measurement import Comparison, Measurement, NoSettings, Quantity, Reading
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows, same_period
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.privacy.limits import COPIED, Judgement
from ppmtf_jax.streams import Stage, numpy_stream

MAX_POINTS = 5
N_REPEATS = 10
N_LOOKED_AT = 2000
"""Windows that are looked at, at random where there are more: a share is then known to about 0.01."""
N_KNOWN = 500
"""Users whose points are drawn in a repetition of unicity, at random where there are more."""
MIN_EVENTS = 2
FAR_QUANTILE = 0.95
SEED = 0
# Of the stage's streams.
POINTS, THINNING, LOOKED_AT = range(3)
TABLE_POINTS = 4
TEST_USERS, NEAR_TEST_USERS, CHANCE = "test users", "near test users", "at most 0.05"
FOUND_WHOLE = "Test windows are found whole in the training set: none can be nearer, and this alarm keeps silent"
NO_WINDOWS = f"no window of {MIN_EVENTS} events in one of the sets, or periods of their grids that differ"


# Unicity


def unicity(
    traces: Traces | Windows,
    *,
    max_points: int = MAX_POINTS,
    n_repeats: int = N_REPEATS,
    n_users: int | None = None,
    seed: int = SEED,
) -> Float[np.ndarray, " points"]:
    """Share of users who alone were at 1, 2, ... points of their own (de Montjoye et al. 2013).

    A point is a place and an instant of the period. Of each user one window is drawn, and points of it at random, one
    after the other; whoever has fewer is known by all of hers. She is alone if of nobody else the drawn window goes
    through all of them. This is repeated and averaged. One window each, so that who was watched longer is not known by
    more.

    Parameters
    ----------
    traces : Traces or Windows
    max_points : int
    n_repeats : int
    n_users : int, optional
        Size of the crowd in which a user is alone: in each repetition so many are drawn at random, all by default. Only
        numbers of equal crowds can be compared, for it is easier to be alone among few.
    seed : int

    Returns
    -------
    float array, shape (max_points,); NaN where there are fewer users than `n_users`

    Raises
    ------
    InputError
        There is no point to know, no repetition, or no crowd.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> shares = unicity(toy_city(100, seed=0).traces)
    >>> shares.shape, bool(shares[0] < shares[4])
    ((5,), True)
    """
    problems = [
        Problem(f"{name} of at least 1", repr(value))
        for name, value in (("max_points", max_points), ("n_repeats", n_repeats), ("n_users", n_users))
        if value is not None and value < 1
    ]
    if problems:
        raise InputError("unicity", problems)
    windows = traces if isinstance(traces, Windows) else Windows.of(traces)
    n_there = len(np.unique(windows.user))
    crowd = n_there if n_users is None else n_users
    if crowd > n_there:
        return np.full(max_points, np.nan)
    rng = numpy_stream(seed, Stage.ALARMS, POINTS)
    return np.mean([_unicity_of_draw(windows, max_points, crowd, rng) for _ in range(n_repeats)], axis=0)


def _unicity_of_draw(
    windows: Windows, max_points: int, n_users: int, rng: np.random.Generator
) -> Float[np.ndarray, " points"]:
    one_each = _one_window_each(windows, rng)
    if n_users < one_each.n_windows:
        one_each = one_each.select(_some(one_each.n_windows, n_users, rng))
    crowd = _by_point(one_each).T.tocsr()
    known = np.flatnonzero(_some(one_each.n_windows, N_KNOWN, rng))
    event = np.flatnonzero(np.isin(one_each.window, known))
    order = np.lexsort((rng.random(len(event)), one_each.window[event]))
    event, row = event[order], np.searchsorted(known, one_each.window[event[order]])
    n_before = np.arange(len(row)) - np.searchsorted(row, row)
    alone = np.empty(max_points)
    for n_points in range(1, max_points + 1):
        chosen = n_before < n_points
        queries = _rows_by_point(one_each, row[chosen], event[chosen], len(known))
        wanted = np.bincount(row[chosen], minlength=len(known))
        blocks = products_in_blocks(queries, crowd)
        n_through = np.concatenate([_n_entries_equal(product, wanted[rows]) for rows, product in blocks])
        alone[n_points - 1] = np.mean(n_through == 1)
    return alone


def _one_window_each(windows: Windows, rng: np.random.Generator) -> Windows:
    """A window of each user, at random."""
    order = np.lexsort((rng.random(windows.n_windows), windows.user))
    first = np.flatnonzero(np.diff(windows.user[order], prepend=-1))
    return windows.select(np.isin(np.arange(windows.n_windows), order[first]))


def _n_entries_equal(product: sparse.csr_array, wanted: Int[np.ndarray, " row"]) -> Int[np.ndarray, " row"]:
    """How many stored entries of each row are the wanted number."""
    row = np.repeat(np.arange(len(wanted)), np.diff(product.indptr))
    return np.bincount(row, product.data == wanted[row], minlength=len(wanted)).astype(np.int64)


# Nearest training window


def nearest_shares(windows: Windows, train: Windows) -> Float[np.ndarray, " window"]:
    """Greatest share of a window's events that one training window has too: same instant of the period, same place.

    Parameters
    ----------
    windows, train : Windows
        Of grids with the same period, and the same places.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = (Windows.of(each) for each in toy_city(80, seed=0).traces.split_users(0.5, seed=0))
    >>> float(nearest_shares(train, train).min()), bool(nearest_shares(test, train).mean() < 0.9)
    (1.0, True)
    """
    nearest = np.zeros(windows.n_windows)
    for rows, product in products_in_blocks(_by_point(windows), _by_point(train).T.tocsr()):
        nearest[rows] = product.max(axis=1).toarray().ravel()
    return nearest / windows.events_per_window()


# Longest copied run


def longest_copied_runs(windows: Windows, train: Windows) -> Int[np.ndarray, " window"]:
    """Length in events of the longest run of each window that is also in some training window, at whatever instants.

    A run is of events at consecutive instants of a window; it is copied where the places are the same one after the
    other, even if shifted in time. Long stays at a place where many stay are copied by chance: hold it against what
    traces of strangers give.

    Runs of all windows are sorted by prefix doubling, as in a suffix array; a run's longest match with training runs is
    one with the next of them before or after it. Work is n log n in the number of events, and nothing is hashed.

    Parameters
    ----------
    windows, train : Windows
        On the same places.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = (Windows.of(each) for each in toy_city(80, missing=0.0, seed=0).traces.split_users(0.5, seed=0))
    >>> int(longest_copied_runs(train, train).min()), bool(longest_copied_runs(test, train).mean() < 20)
    (24, True)
    """
    n_own = len(windows.window)
    runs = _Runs.of(np.concatenate([windows.place, train.place]), np.concatenate([windows.is_step(), train.is_step()]))
    is_train = np.arange(len(runs.left)) >= n_own
    order = np.argsort(runs.names[-1], kind="stable")
    longest = np.zeros(len(order), np.int64)
    for sequence in (order, order[::-1]):
        last = np.maximum.accumulate(np.where(is_train[sequence], np.arange(len(sequence)), -1))
        event, match = sequence[last >= 0], sequence[last[last >= 0]]
        longest[event] = np.maximum(longest[event], runs.common_length(event, match))
    found = np.zeros(windows.n_windows, np.int64)
    np.maximum.at(found, windows.window, longest[:n_own])
    return found


class _Runs(NamedTuple):
    """Ranks of the runs that begin at each event.

    Attributes
    ----------
    names : list of int arrays, shape (events,)
        Entry k: the rank, in lexicographic order, of the next 2^k events, or of as many as are left.
    left : int array, shape (events,)
        Events from this one to the end of its run.
    """

    names: list[Int[np.ndarray, " event"]]
    left: Int[np.ndarray, " event"]

    @classmethod
    def of(cls, place: Int[np.ndarray, " event"], is_step: Bool[np.ndarray, " event"]) -> _Runs:
        end = np.append(np.flatnonzero(~is_step)[1:], len(place))
        left = np.repeat(end, np.diff(end, prepend=0)) - np.arange(len(place))
        names = [place.astype(np.int64)]
        while (length := 2 ** (len(names) - 1)) < left.max():
            # An end comes before every place.
            after = np.append(names[-1][length:], np.full(length, -1))[: len(place)]
            pair = names[-1] * (len(place) + names[0].max() + 2) + np.where(left > length, after, -1) + 1
            names.append(np.unique(pair, return_inverse=True)[1])
        return cls(names, left)

    def common_length(self, event: Int[np.ndarray, " pair"], other: Int[np.ndarray, " pair"]) -> np.ndarray:
        """How many places two runs have in common from their beginnings on."""
        most = np.minimum(self.left[event], self.left[other])
        common = np.zeros(len(event), np.int64)
        for power in range(len(self.names) - 1, -1, -1):
            name, inside = self.names[power], common < most
            # Beyond an end nothing is read.
            offset = np.where(inside, common, 0)
            common += inside * (name[event + offset] == name[other + offset]) * 2**power
        return np.minimum(common, most)


# Windows as matrices


def _by_point(windows: Windows) -> sparse.csr_array:
    """1 where a window has an event, windows by instants of the period and places."""
    return _rows_by_point(windows, windows.window, np.arange(len(windows.window)), windows.n_windows)


def _rows_by_point(windows: Windows, row: np.ndarray, event: np.ndarray, n_rows: int) -> sparse.csr_array:
    n_places = len(windows.places)
    point = windows.phase[event].astype(np.int64) * n_places + windows.place[event]
    shape = (n_rows, windows.time_grid.n_instants * n_places)
    return sparse.csr_array((np.ones(len(event)), (row, point)), shape=shape)


def _some(n: int, at_most: int, rng: np.random.Generator) -> Bool[np.ndarray, " all"]:
    """Whether each of `n` is looked at: all, or `at_most` of them at random."""
    return rng.permutation(n) < at_most


# All together


@dataclass(frozen=True, eq=False)
class BesideHeldOut:
    """A number of each synthetic window, beside that of each held-out one.

    Parameters
    ----------
    synthetic, held_out : arrays of numbers, shape (windows,)
    n_users : int
        Whose windows they are: of both sets, the smaller number. Windows of one user are alike.
    greatest : float
        No number can be greater; where test users reach it, nothing can be above them.

    Examples
    --------
    >>> beside = BesideHeldOut(np.array([9, 9, 1, 10]), np.arange(10), n_users=4)
    >>> beside.mean, beside.held_out_mean, beside.share_far, beside.judgement().status.word
    (7.25, 4.5, 0.25, 'Not known')
    """

    synthetic: Num[np.ndarray, " window"]
    held_out: Num[np.ndarray, " held_out"]
    n_users: int
    greatest: float = math.inf

    @property
    def mean(self) -> float:
        """Of the synthetic windows."""
        return float(self.synthetic.mean())

    @property
    def held_out_mean(self) -> float:
        """Of the held-out windows."""
        return float(self.held_out.mean())

    @property
    def share_far(self) -> float:
        """Share of the synthetic windows above the 95 % quantile of the held-out ones: at most about 0.05 by chance."""
        return self._share_far(self.synthetic)

    @property
    def held_out_share_far(self) -> float:
        """The same of the held-out windows themselves: 0.05, or less where many have the same number."""
        return self._share_far(self.held_out)

    @property
    def is_mute(self) -> bool:
        """Whether nothing can be above 95 % of the held-out windows, copied or not."""
        return bool(np.quantile(self.held_out, FAR_QUANTILE, method="higher") >= self.greatest)

    def judgement(self) -> Judgement:
        """By the limit of copies; not known where it is mute."""
        return COPIED.judge(math.nan if self.is_mute else self.share_far, self.n_users)

    def to_dict(self) -> dict[str, float]:
        """For JSON."""
        names = ("mean", "held_out_mean", "share_far", "held_out_share_far")
        return {name: getattr(self, name) for name in names}

    def _share_far(self, value: Num[np.ndarray, " window"]) -> float:
        return float(np.mean(value > np.quantile(self.held_out, FAR_QUANTILE, method="higher")))


@dataclass(frozen=True, eq=False)
class Alarms:
    """What `find_alarms` found.

    Parameters
    ----------
    unicity, training_unicity : float arrays, shape (points,)
        See `unicity`, of the synthetic windows and of the training users, in crowds of `crowd`.
    crowd : int
        As many users as there are of both.
    copied_run : BesideHeldOut
        See `longest_copied_runs`; in events.
    nearest_share : BesideHeldOut
        See `nearest_shares`.
    """

    unicity: Float[np.ndarray, " points"]
    training_unicity: Float[np.ndarray, " points"]
    copied_run: BesideHeldOut
    nearest_share: BesideHeldOut
    crowd: int

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "unicity": self.unicity.tolist(),
            "training_unicity": self.training_unicity.tolist(),
            "crowd": self.crowd,
            "copied_run": self.copied_run.to_dict(),
            "nearest_share": self.nearest_share.to_dict(),
        }


def find_alarms(released: Traces, train: Traces, test: Traces, *, seed: int = SEED) -> Alarms:
    """Look for signs that released traces are copies of training traces, beside the same of test users' traces.

    Released windows are thinned to the instants of test windows, and windows of one event left out. At most 2,000 of
    them, and as many of test users, are looked at, drawn at random.

    Parameters
    ----------
    released : Traces
    train, test : Traces
        Real traces of users who were, and were not, used to make the released ones.
    seed : int

    Raises
    ------
    InputError
        The place tables or the periods of the grids differ, or a set has no window of two events.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=100, n_days=1, missing=0.0, seed=0).traces.split_users(0.5, seed=0)
    >>> alarms = find_alarms(train, train, test)
    >>> alarms.nearest_share.mean, alarms.copied_run.mean
    (1.0, 24.0)
    """
    check_same_places(released=released, train=train, test=test)
    comparison = Comparison(released, train, test, released.time_grid.period)
    if (found := _alarms(comparison, seed, as_many_as_released=True)) is None:
        raise InputError("alarms", [Problem("windows of two events in each set, on grids of one period", "none")])
    return found


class _Nearness(NamedTuple):
    """How near windows are to training windows."""

    copied_run: np.ndarray
    nearest_share: np.ndarray

    @classmethod
    def of(cls, windows: Windows, train: Windows, seed: int) -> _Nearness:
        some = windows.select(_some(windows.n_windows, N_LOOKED_AT, numpy_stream(seed, Stage.ALARMS, LOOKED_AT)))
        return cls(longest_copied_runs(some, train), nearest_shares(some, train))


def _alarms(comparison: Comparison, seed: int, *, as_many_as_released: bool = False) -> Alarms | None:
    """None where there is nothing to compare.

    The columns of a table need one crowd, which only the real sets can give; of released traces alone it may be theirs.
    """
    train, test = (comparison.statistic(_windows, each) for each in (comparison.train, comparison.test))
    grid = comparison.train.time_grid
    same = all(same_period(grid, each.time_grid) for each in (comparison.traces, comparison.test))
    if not (same and train.n_windows and test.n_windows):
        return None
    windows = train if comparison.traces is comparison.train else _thinned(comparison.traces, test, seed)
    if not windows.n_windows:
        return None
    n_users, n_train, n_test = (len(np.unique(each.user)) for each in (windows, train, test))
    crowd = min(n_users if as_many_as_released else n_test, n_train)
    near = _Nearness.of(windows, train, seed)
    held_out = comparison.statistic(_nearness_of_test, comparison.test, comparison.train, seed)
    looked_at = min(n_users, n_test)
    return Alarms(
        unicity(windows, n_users=crowd, seed=seed),
        comparison.statistic(_unicity_of_real, comparison.train, crowd, seed),
        BesideHeldOut(near.copied_run, held_out.copied_run, looked_at),
        BesideHeldOut(near.nearest_share, held_out.nearest_share, looked_at, greatest=1.0),
        crowd,
    )


def _windows(traces: Traces) -> Windows:
    return Windows.of(traces).with_events(MIN_EVENTS)


def _thinned(traces: Traces, test: Windows, seed: int) -> Windows:
    """The windows of synthetic traces, each as one of the test users would have been seen in it."""
    windows = Windows.of(traces)
    drawn = numpy_stream(seed, Stage.ALARMS, THINNING).integers(test.n_windows, size=windows.n_windows)
    return windows.thinned(test, drawn).with_events(MIN_EVENTS)


def _nearness_of_test(test: Traces, train: Traces, seed: int) -> _Nearness:
    return _Nearness.of(_windows(test), _windows(train), seed)


def _unicity_of_real(traces: Traces, n_users: int, seed: int) -> np.ndarray:
    return unicity(_windows(traces), n_users=n_users, seed=seed)


# Measured


def _measure(comparison: Comparison, settings: NoSettings) -> list[float]:
    found = _alarms(comparison, SEED)
    if found is None:
        return [math.nan] * 5
    run, nearest = found.copied_run, found.nearest_share
    return [found.unicity[TABLE_POINTS - 1], run.mean, run.share_far, nearest.mean, nearest.share_far]


def _read(comparison: Comparison, settings: NoSettings) -> list[Reading]:
    found = _alarms(comparison, SEED)
    if found is None:
        return [Reading()] * 5
    of_near = []
    for each in (found.copied_run, found.nearest_share):
        far, caveat = {TEST_USERS: each.held_out_share_far}, FOUND_WHOLE if each.is_mute else ""
        alarm = math.inf if each.is_mute else COPIED.alarm(each.n_users)
        of_near += [Reading({TEST_USERS: each.held_out_mean}), Reading(far, caveat, alarm)]
    return [Reading(), *of_near]


ATTACKS.register(
    Measurement(
        "alarms",
        "privacy",
        (
            Quantity(
                "unicity",
                f"Unicity, {TABLE_POINTS} points",
                f"Share of users who alone were at {TABLE_POINTS} points of their own traces, a place and a time each. "
                "One period of each user is looked at, in crowds of as many users as there are test users.",
                "share of users",
                "none",
                "-",
                f"fewer users than test users, or {NO_WINDOWS}",
            ),
            Quantity(
                "copied_run",
                "Copied run",
                "Mean length of the longest run of a trace that is also in a training trace, at whatever times.",
                "events",
                "lower",
                NEAR_TEST_USERS,
                NO_WINDOWS,
            ),
            Quantity(
                "copied_run_far",
                "Copied run, far",
                "Share of traces whose copied run is longer than that of 95 % of the test users' traces.",
                "share of traces",
                "lower",
                CHANCE,
                NO_WINDOWS,
            ),
            Quantity(
                "nearest_share",
                "Nearest trace",
                "Mean share of a trace's events that the nearest training trace has too, same place and same time.",
                "share of events",
                "lower",
                NEAR_TEST_USERS,
                NO_WINDOWS,
            ),
            Quantity(
                "nearest_share_far",
                "Nearest trace, far",
                "Share of traces that are nearer to a training trace than 95 % of the test users' traces.",
                "share of traces",
                "lower",
                CHANCE,
                NO_WINDOWS,
            ),
        ),
        _measure,
        reading=_read,
    )
)
