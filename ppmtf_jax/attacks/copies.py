"""Signs that synthetic traces are copies of training traces, compared with the same numbers for test users.

Each user's real traces are searched for in the synthetic traces, in two ways: as a whole (`nearest`) and in
runs of places at any time (`heaviest_copied_runs`). What is found is weighed by how surprising it is: the weight of an
arrival at a place is -log of the share of the other people who go there from the same place. So a day at home weighs
little, and a day that nobody else has weighs much. The greater of both weights counts. If nothing is copied, training
users and test users find equally much. Everything is measured on windows: periods of the grid, such as days, or windows
as long as the synthetic traces if these last several periods. Neither these signs nor their absence prove anything.

Unicity is reported too. For it, windows of complete synthetic traces are thinned: each keeps only the instants at which
a randomly drawn window of a test user has events, so that synthetic and real windows have similar gaps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ppmtf_jax.attacks.registry import register_attack
from ppmtf_jax.attacks.roc import people_beyond_chance
from ppmtf_jax.attacks.scoring import events_by_point, joined, products_in_blocks
from ppmtf_jax.data.comparable import check_same_places
from ppmtf_jax.data.measurement import Comparison, Interpretation, MetricInfo, NoSettings, caveat_if
from ppmtf_jax.data.runs import least_of_each, rank_in_run, run_begins
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import MIN_WINDOW_EVENTS, NO_WINDOWS, Windows, is_complete, same_period
from ppmtf_jax.errors import InputError, Problem, raise_any
from ppmtf_jax.privacy.limits import COPIED, EXPECTED_BY_CHANCE, Judgement
from ppmtf_jax.streams import Stage, numpy_stream

MAX_WINDOWS = 4000
"""Maximum number of windows of training users, and of test users; the users are drawn at random."""
REACH = 1
"""Instants by which a copied event may be earlier or later."""
FAR_QUANTILE = 0.95
SEED = 0
POINTS_STREAM, WINDOWS_STREAM, THINNING_STREAM, TRIALS_STREAM = 0, 1, 2, 3
"""Random-stream numbers of the stage."""
MAX_POINTS, TABLE_POINTS = 5, 4
N_REPEATS = 10
N_KNOWN = 500
"""Maximum number of users whose points are drawn in a repetition of unicity; these users are drawn at random."""
N_OF_FEWEST = 5
SATURATED = "Hardly anybody has a trace so unusual that a copy would be noticed, so this number cannot alarm"
SHARES = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1)
"""Shares of the people of whom it is tried whether their copies would be noticed."""
GOOD_SHARE, FAIR_SHARE = 0.03, 0.1
"""The light is good at most if copies of so many people would be noticed, and fair at most, or else it is not known."""
N_TRIALS = 20
"""Copies are noticed if they are in all of these random trials but one."""


@dataclass(frozen=True, eq=False)
class CopyCheck:
    """Result of `check_copies`.

    `unicity` is that of the synthetic windows, `training_unicity` that of the training users, both among `crowd` users.
    `training` and `test` are how much of a trace of theirs users find in a synthetic trace, in nats, and `most` is what
    each training user would find if all of a trace was copied. Chance gives e^-`least` of the people so much in one of
    all pairs of a training and a synthetic trace.
    """

    unicity: Float[np.ndarray, " points"]
    training_unicity: Float[np.ndarray, " points"]
    training: Float[np.ndarray, " user"]
    test: Float[np.ndarray, " other"]
    most: Float[np.ndarray, " user"]
    least: float
    crowd: int

    @property
    def share_far(self) -> float:
        """Share of the training users above 95 % of the test users: 0.05 by chance, or less if there are ties."""
        return float(np.mean(self.training > np.quantile(self.test, FAR_QUANTILE, method="higher")))

    @cached_property
    def n_copied(self) -> int:
        """At least how many training users find more of a trace of theirs than chance explains."""
        return people_beyond_chance(self.training, self.test, self.least)

    @cached_property
    def noticed_share(self) -> float:
        """The least of `SHARES` of the people whose copies would be noticed; 1 if those of a tenth would not be.

        Nobody can copy less than one person, so it is at least one of the training users.
        """
        return next((max(share, 1 / len(self.training)) for share in SHARES if self.is_noticed(share)), 1.0)

    def is_noticed(self, share: float) -> bool:
        """Whether more people would be counted if traces of so many training users, drawn at random, were copied."""
        rng, n_missed = numpy_stream(SEED, Stage.ALARMS, TRIALS_STREAM), 0
        for _ in range(N_TRIALS):
            copied = rng.permutation(len(self.training)) < share * len(self.training)
            scores = np.where(copied, np.maximum(self.training, self.most), self.training)
            n_missed += people_beyond_chance(scores, self.test, self.least) <= self.n_copied
            if n_missed > 1:
                return False
        return True

    def judgement(self) -> Judgement:
        """Judge the number of people copied; "not known" if copies of many people would not be noticed."""
        may_be_more = next(
            (n for n, share in enumerate((GOOD_SHARE, FAIR_SHARE)) if self.noticed_share <= share), math.inf
        )
        low, high = max(self.n_copied - 1, 0), self.n_copied + may_be_more
        status = COPIED.status(low, high, COPIED.guess)
        return Judgement(COPIED, status, self.n_copied, low, high, COPIED.guess, len(self.training))

    def to_dict(self) -> dict[str, Any]:
        """All numbers for JSON, none of them of a single user."""
        return {
            "unicity": self.unicity.tolist(),
            "training_unicity": self.training_unicity.tolist(),
            "crowd": self.crowd,
            "mean": float(self.training.mean()),
            "held_out_mean": float(self.test.mean()),
            "share_far": self.share_far,
            "n_copied": self.n_copied,
            "noticed_share": self.noticed_share,
            "n_users": len(self.training),
        }


def check_copies(released: Traces, train: Traces, test: Traces, *, seed: int = SEED) -> CopyCheck:
    """Measure signs of copying in released traces, compared with the same numbers for test users.

    Windows with one event are left out. At most 4,000 windows of training users, and of test users, are looked for.
    `train` and `test` are real traces of users who were, and were not, used to make the released traces. Raises
    `InputError`: the place tables or the periods of the grids differ, or a set has no window with two events, or no
    training user has one with events that `weighed` counts.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=400, n_days=7, seed=0).traces.split_users(0.5, seed=0)
    >>> check = check_copies(train, train, test)
    >>> check.share_far > 0.4, check.n_copied > 100, check.judgement().status.word
    (True, True, 'Poor')
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
    sets = comparison.traces, comparison.train, comparison.test
    same = all(same_period(comparison.train.time_grid, each.time_grid) for each in sets)
    if not same or comparison.traces.time_grid.n_instants < length:
        return None
    windows, train, test = (comparison.statistic(_windows, each, length) for each in sets)
    if not (windows.n_windows and train.n_windows and test.n_windows):
        return None
    thinned = windows
    if comparison.traces is not comparison.train and comparison.statistic(is_complete, comparison.traces):
        drawn = numpy_stream(seed, Stage.ALARMS, THINNING_STREAM).integers(test.n_windows, size=windows.n_windows)
        thinned = windows.thinned(test, drawn).with_events(MIN_WINDOW_EVENTS)
    n_users, n_train, n_test = (len(np.unique(each.user)) for each in (thinned, train, test))
    crowd = min(n_users if crowd_of_released else n_test, n_train)
    some_train, some_test = (
        comparison.statistic(windows_of_some, each, length, seed) for each in (comparison.train, comparison.test)
    )
    unique = unicity(thinned, n_users=crowd, seed=seed)
    unique_real = comparison.statistic(_unicity_of_real, comparison.train, length, crowd, seed)
    real, weight = weighed(comparison.train, some_train, some_test)
    users, user = np.unique(real.user, return_inverse=True)
    is_test = users > some_train.user.max()
    if is_test.all():
        return None
    found, most = np.zeros((2, len(users)))
    for each in (nearest(real, windows, weight).weight, heaviest_copied_runs(real, windows.arrivals(), weight)):
        np.maximum.at(found, user, each)
    np.maximum.at(most, user, np.bincount(real.window, weight, real.n_windows))
    least = math.log(some_train.n_windows * windows.n_windows / EXPECTED_BY_CHANCE)
    return CopyCheck(unique, unique_real, found[~is_test], found[is_test], most[~is_test], least, crowd)


def weighed(train: Traces, of_train: Windows, of_test: Windows) -> tuple[Windows, Float[np.ndarray, " event"]]:
    """Join the arrivals of windows of training and test users, and weigh each arrival by its `surprise`.

    Often, places are kept if enough training users visit them. Then the training users' own visits are at kept places
    more often than those of other people, even if nothing leaks. So a visit of a training user counts only if its place
    would have been kept without this user as well. Where places were chosen so, several have just enough users: if at
    least `N_OF_FEWEST` places have the fewest training users, a training user's arrivals there weigh nothing, and their
    windows without enough other events are left out.
    """
    real, n_users = joined(of_train.arrivals(), of_test.arrivals()), train.users_per_place()
    weight, has_fewest = surprise(real), n_users == n_users.min()
    if has_fewest.sum() < N_OF_FEWEST:
        return real, weight
    is_own = (real.window < of_train.n_windows) & has_fewest[real.place]
    n_counted = np.bincount(of_train.window, ~has_fewest[of_train.place], of_train.n_windows)
    kept = np.append(n_counted >= MIN_WINDOW_EVENTS, np.ones(of_test.n_windows, bool))
    return real.select(kept), np.where(is_own, 0.0, weight)[kept[real.window]]


def surprise(windows: Windows) -> Float[np.ndarray, " event"]:
    """How surprising each arrival is, in nats, given the place before it: the other people decide, not the user.

    `windows` have only arrivals; the first one of a window comes from nowhere. The probability of a place is the share
    of the other people at the place before who also went from there to this place. Its prior is the share of all people
    who visit this place; it weighs as many people as places are known where somebody went next (Witten and Bell 1991).
    """
    n_places, user = len(windows.places), windows.user[windows.window].astype(np.int64)
    place = windows.place.astype(np.int64)
    before = np.where(run_begins(windows.window), n_places, np.roll(place, 1))
    move = before * n_places + place
    of_place, of_before, of_move = (_n_different(user, each) for each in (place, before, move))
    prior, n_next = of_place / len(np.unique(user)), _n_different(place, before)
    return -np.log((of_move - 1 + n_next * prior) / (of_before - 1 + n_next))


def _n_different(value: Int[np.ndarray, " event"], code: Int[np.ndarray, " event"]) -> Int[np.ndarray, " event"]:
    """How many different values the events with the code of each event have."""
    pairs = np.unique(np.stack([code, value]), axis=1)
    codes, n_values = np.unique(pairs[0], return_counts=True)
    return n_values[np.searchsorted(codes, code)]


class Nearest(NamedTuple):
    """The nearest released window of each window, and the weight of what both share; 0 if they share nothing."""

    weight: Float[np.ndarray, " window"]
    released: Int[np.ndarray, " window"]


def nearest(windows: Windows, released: Windows, weight: Float[np.ndarray, " event"]) -> Nearest:
    """Find the released window that shares most with each window: events at most an instant apart.

    `weight` is that of each event of `windows`, at least 0. Both sets have the same places and grids with the same
    period.
    """
    shifted = []
    for shift in range(-REACH, REACH + 1):
        phase = released.phase + shift
        event = np.flatnonzero((phase >= 0) & (phase < released.time_grid.n_instants))
        moved, row = replace(released, phase=phase), released.window[event]
        shifted.append(events_by_point(moved, event=event, row=row, n_rows=released.n_windows))
    points = sum(shifted[1:], shifted[0])
    points.data[:] = 1
    found = Nearest(np.zeros(windows.n_windows), np.zeros(windows.n_windows, np.int64))
    for rows, product in products_in_blocks(events_by_point(windows, weight), points.T.tocsr()):
        found.released[rows] = np.ravel(product.argmax(axis=1))
        found.weight[rows] = product.max(axis=1).toarray().ravel()
    return found


def heaviest_copied_runs(
    windows: Windows, released: Windows, weight: Float[np.ndarray, " event"]
) -> Float[np.ndarray, " window"]:
    """Greatest weight of a run of each window that also occurs in a released window, at any time; 0 if there is none.

    A run is a sequence of successive events of a window, whatever the gaps between them. It is copied if a released
    window has the same sequence of places. `weight` is that of each event of `windows`, at least 0. Both sets of
    windows have the same places.
    """
    n_own = len(windows.window)
    # 1. Sort the runs that begin at each event of both sets.
    goes_on = [~run_begins(each.window) for each in (windows, released)]
    runs = _Runs.of(np.concatenate([windows.place, released.place]), np.concatenate(goes_on))
    is_released = np.arange(len(runs.left)) >= n_own
    order = np.argsort(runs.ranks[-1], kind="stable")
    # 2. The longest match of a run is with the nearest released run before or after it in this order.
    longest = np.zeros(len(order), np.int64)
    for sequence in (order, order[::-1]):
        last = np.maximum.accumulate(np.where(is_released[sequence], np.arange(len(sequence)), -1))
        event, match = sequence[last >= 0], sequence[last[last >= 0]]
        longest[event] = np.maximum(longest[event], runs.common_length(event, match))
    # 3. Take the heaviest of the longest matches of a window's events: a shorter match is never heavier.
    total = np.concatenate([[0.0], np.cumsum(weight)])
    first = np.arange(n_own)
    found = np.zeros(windows.n_windows)
    np.maximum.at(found, windows.window, total[first + longest[:n_own]] - total[first])
    return found


class _Runs(NamedTuple):
    """The runs that begin at each event, sorted by prefix doubling as in a suffix array."""

    # Entry k: rank in lexicographic order of the next 2^k events, or of fewer if the run ends earlier.
    ranks: list[Int[np.ndarray, " event"]]
    left: Int[np.ndarray, " event"]  # number of events from this one to the end of its run

    @classmethod
    def of(cls, place: Int[np.ndarray, " event"], is_step: Bool[np.ndarray, " event"]) -> _Runs:
        end = np.append(np.flatnonzero(~is_step)[1:], len(place))
        left = np.repeat(end, np.diff(end, prepend=0)) - np.arange(len(place))
        ranks = [place.astype(np.int64)]
        while (length := 2 ** (len(ranks) - 1)) < left.max():
            # The end of a run sorts before every place.
            after = np.append(ranks[-1][length:], np.full(length, -1))[: len(place)]
            pair = ranks[-1] * (len(place) + ranks[0].max() + 2) + np.where(left > length, after, -1) + 1
            ranks.append(np.unique(pair, return_inverse=True)[1])
        return cls(ranks, left)

    def common_length(self, event: Int[np.ndarray, " pair"], other: Int[np.ndarray, " pair"]) -> np.ndarray:
        """Length of the common prefix of the runs that begin at two events."""
        most = np.minimum(self.left[event], self.left[other])
        common = np.zeros(len(event), np.int64)
        for power in range(len(self.ranks) - 1, -1, -1):
            rank, inside = self.ranks[power], common < most
            # Read nothing beyond the end of a run.
            offset = np.where(inside, common, 0)
            common += inside * (rank[event + offset] == rank[other + offset]) * 2**power
        return np.minimum(common, most)


def _windows(traces: Traces, length: int) -> Windows:
    return Windows.of(traces, length).with_events(MIN_WINDOW_EVENTS)


def windows_of_some(traces: Traces, length: int, seed: int) -> Windows:
    """All windows of two events of some users, drawn at random until they have `MAX_WINDOWS` windows."""
    windows = _windows(traces, length)
    users = numpy_stream(seed, Stage.ALARMS, WINDOWS_STREAM).permutation(traces.n_users)
    n_windows = np.cumsum(np.bincount(windows.user, minlength=traces.n_users)[users])
    chosen = users[: max(1, np.searchsorted(n_windows, MAX_WINDOWS, side="right"))]
    return windows.select(np.isin(windows.user, chosen))


def _unicity_of_real(traces: Traces, length: int, n_users: int, seed: int) -> np.ndarray:
    return unicity(_windows(traces, length), n_users=n_users, seed=seed)


def unicity(
    traces: Traces | Windows,
    *,
    max_points: int = MAX_POINTS,
    n_repeats: int = N_REPEATS,
    n_users: int | None = None,
    seed: int = 0,
) -> Float[np.ndarray, " points"]:
    """Unicity: share of users who are unique at 1, 2, ... points of their own (de Montjoye et al. 2013).

    A point is a place and an instant of the period. In each repetition, one window (one period) of each user is drawn,
    and then points of this window at random. If a user has fewer points, all of them are used. The user is unique if no
    other user's drawn window contains all drawn points. Shares are averaged over the repetitions. Only one window per
    user is used, so that users with longer traces do not have more points.

    `n_users`: size of the crowd, the number of users drawn at random in each repetition; all by default. Compare only
    shares with the same crowd size, because more users are unique in a small crowd. With fewer users than that, all
    shares are NaN. Raises `InputError`: `max_points`, `n_repeats` or `n_users` is below 1.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> shares = unicity(toy_city(100, seed=0).traces)
    >>> shares.shape, bool(shares[0] < shares[4])
    ((5,), True)
    """
    given = {"max_points": max_points, "n_repeats": n_repeats, "n_users": n_users}
    wrong = {name: value for name, value in given.items() if value is not None and value < 1}
    raise_any("unicity", [Problem(f"{name} of at least 1", repr(value)) for name, value in wrong.items()])
    windows = traces if isinstance(traces, Windows) else Windows.of(traces)
    n_there = len(np.unique(windows.user))
    crowd = n_users or n_there
    if crowd > n_there:
        return np.full(max_points, np.nan)
    rng = numpy_stream(seed, Stage.ALARMS, POINTS_STREAM)
    return np.mean([_unicity_of_draw(windows, max_points, crowd, rng) for _ in range(n_repeats)], axis=0)


def _unicity_of_draw(
    windows: Windows, max_points: int, n_users: int, rng: np.random.Generator
) -> Float[np.ndarray, " points"]:
    one_of_user = least_of_each(windows.user, rng.random(windows.n_windows), most=1)
    one_each = windows.select(np.isin(np.arange(windows.n_windows), one_of_user))
    if n_users < one_each.n_windows:
        one_each = one_each.select(rng.permutation(one_each.n_windows) < n_users)
    crowd = events_by_point(one_each).T.tocsr()
    known = np.flatnonzero(rng.permutation(one_each.n_windows) < N_KNOWN)
    # The points of each selected user, in random order.
    event = np.flatnonzero(np.isin(one_each.window, known))
    order = np.lexsort((rng.random(len(event)), one_each.window[event]))
    event, row = event[order], np.searchsorted(known, one_each.window[event[order]])
    # One query row for each number of points and each selected user.
    number, chosen = np.nonzero(rank_in_run(row) <= np.arange(max_points)[:, None])
    row, n_rows = number * len(known) + row[chosen], max_points * len(known)
    queries = events_by_point(one_each, event=event[chosen], row=row, n_rows=n_rows)
    wanted = np.bincount(row, minlength=n_rows)
    n_matches = np.empty(n_rows)
    for rows, product in products_in_blocks(queries, crowd):
        n_entries = np.diff(product.indptr)
        has_all = product.data == np.repeat(wanted[rows], n_entries)
        n_matches[rows] = np.bincount(np.repeat(np.arange(len(n_entries)), n_entries), has_all, len(n_entries))
    return np.mean(n_matches.reshape(max_points, -1) == 1, axis=1)


def _measure(comparison: Comparison, settings: NoSettings) -> list[float]:
    found = _check(comparison, SEED)
    if found is None:
        return [math.nan] * 3
    return [found.unicity[TABLE_POINTS - 1], found.share_far, float(found.n_copied)]


def _read(comparison: Comparison, settings: NoSettings) -> list[Interpretation]:
    found = _check(comparison, SEED)
    if found is None:
        return [Interpretation()] * 3
    is_saturated = not found.n_copied and found.noticed_share > FAIR_SHARE
    caveats = caveat_if(is_saturated, "saturated", SATURATED)
    return [Interpretation(), Interpretation(), Interpretation(caveats=caveats, alarm=COPIED.fair)]


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
        "copied_far",
        "Copied, far",
        "Share of the training users who find more of a trace of theirs in a synthetic trace than 95 % of the test "
        "users do: as a whole, up to an instant earlier or later, or in a run of places at any time.",
        "share of training users",
        "lower",
        "at most 0.05",
        NO_WINDOWS,
    ),
    MetricInfo(
        "n_people_copied",
        "People copied",
        "At least how many training users find more of a trace of theirs in a synthetic trace than chance explains.",
        "people",
        "lower",
        "0",
        NO_WINDOWS,
    ),
    measure=_measure,
    reading=_read,
)
