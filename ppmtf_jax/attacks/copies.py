"""Signs that synthetic traces are copies of training traces, compared with the same numbers for test users.

Each user's real traces are searched for in the synthetic traces, in two ways: as a whole (`nearest`) and in
runs of places at any time (`heaviest_copied_runs`). What is found is weighed by how surprising it is: the weight of an
arrival at a place is -log of the share of the other people who go there from the same place. So a day at home weighs
little, and a day that nobody else has weighs much. If nothing is copied, training users and test users find equally
much. Everything is measured on windows: periods of the grid, such as days, or windows as long as the synthetic traces
if these last several periods. Neither these signs nor their absence prove anything.

Unicity is reported too. For it, windows of complete synthetic traces are thinned: each keeps only the instants at which
a randomly drawn window of a test user has events, so that synthetic and real windows have similar gaps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ppmtf_jax.attacks.copied_runs import heaviest_copied_runs
from ppmtf_jax.attacks.membership.trace_densities import joined
from ppmtf_jax.attacks.registry import register_attack
from ppmtf_jax.attacks.scoring import events_by_point, products_in_blocks
from ppmtf_jax.attacks.unicity import unicity
from ppmtf_jax.data.comparable import check_same_places
from ppmtf_jax.data.measurement import Comparison, Interpretation, MetricInfo, NoSettings, caveat_if
from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import MIN_WINDOW_EVENTS, NO_WINDOWS, Windows, is_complete, same_period
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.privacy.limits import COPIED, EXPECTED_BY_CHANCE, EXPOSED, Judgement, Status, bar_of_chance
from ppmtf_jax.streams import Stage, numpy_stream

MAX_WINDOWS = 4000
"""Maximum number of windows of training users, and of test users; the users are drawn at random."""
REACH = 1
"""Instants by which a copied event may be earlier or later."""
FAR_QUANTILE = 0.95
SEED = 0
WINDOWS_STREAM, THINNING_STREAM = 1, 2
"""Random-stream numbers of the stage; unicity.py uses 0."""
TABLE_POINTS = 4
COPY_TITLES = {
    "nearest": "The synthetic trace that is nearest to a person's trace",
    "copied_run": "The longest run of places, at any time, that a synthetic trace has too",
}
"""What the comparisons of a `CopyCheck` compare."""
EXPOSED_TITLE = "People whose traces are copied for certain"
SATURATED = "Hardly anybody has a trace so unusual that a copy would be noticed, so this number cannot alarm"


@dataclass(frozen=True, eq=False)
class HeldOutComparison:
    """How much of their own traces training users and test users find in synthetic traces, in nats.

    `most` is what each training user would find if all of a trace was copied. `share_far` is the share of the training
    users above the 95 % quantile of the test users: about 0.05 by chance, or less if there are ties. `exposed` are the
    training users above the bar of chance, and `noticeable` those who would be there if a whole trace of theirs was
    copied. The comparison is saturated if the light would not be poor even if all traces were copied.
    """

    training: Float[np.ndarray, " user"]
    test: Float[np.ndarray, " other"]
    most: Float[np.ndarray, " user"]
    share_far: float
    is_saturated: bool
    exposed: Bool[np.ndarray, " user"]
    noticeable: Bool[np.ndarray, " user"]

    @classmethod
    def of(cls, training: np.ndarray, test: np.ndarray, most: np.ndarray, n_pairs: int) -> HeldOutComparison:
        """Compare the users of both sets; `n_pairs` is the number of pairs of a training and a released window.

        The bar of chance is that of `bar_of_chance`, but not below log(pairs / expected): what e^-w of the people do is
        found by chance in that share of the pairs. Below that, the scores are too coarse to have a tail.
        """
        far, expected = float(np.quantile(test, FAR_QUANTILE, method="higher")), EXPECTED_BY_CHANCE / len(COPY_TITLES)
        bar = max(bar_of_chance(test, len(training), expected), math.log(n_pairs / expected))
        share, possible = (float(np.mean(numbers > far)) for numbers in (training, most))
        is_saturated = COPIED.judge(possible, min(len(training), len(test))).status is not Status.POOR
        return cls(training, test, most, share, is_saturated, exposed=training > bar, noticeable=most > bar)

    @property
    def n_users(self) -> int:
        """Number of users in the set with fewer users."""
        return min(len(self.training), len(self.test))

    def judgement(self) -> Judgement:
        """Judge the share by the limit of copies; "not known" if saturated."""
        return COPIED.judge(math.nan if self.is_saturated else self.share_far, self.n_users)

    def to_dict(self) -> dict[str, float]:
        """All numbers for JSON, none of them of a single user."""
        means = {"mean": float(self.training.mean()), "held_out_mean": float(self.test.mean())}
        return {**means, "share_far": self.share_far, "n_exposed": int(self.exposed.sum())}


@dataclass(frozen=True, eq=False)
class CopyCheck:
    """Result of `check_copies`.

    `unicity` is that of the synthetic windows, `training_unicity` that of the training users, both among `crowd` users.
    `nearest` compares whole traces and `copied_run` runs of places.
    """

    unicity: Float[np.ndarray, " points"]
    training_unicity: Float[np.ndarray, " points"]
    nearest: HeldOutComparison
    copied_run: HeldOutComparison
    crowd: int

    @property
    def n_exposed(self) -> int:
        """How many training users find more of a trace of theirs than chance explains."""
        return int((self.nearest.exposed | self.copied_run.exposed).sum())

    @property
    def n_noticeable(self) -> int:
        """How many training users would be exposed if a whole trace of theirs was copied."""
        return int((self.nearest.noticeable | self.copied_run.noticeable).sum())

    def judgements(self) -> dict[str, Judgement]:
        """Judge all numbers, by title."""
        judged = {title: getattr(self, name).judgement() for name, title in COPY_TITLES.items()}
        return judged | {EXPOSED_TITLE: EXPOSED.judge(self.n_exposed, self.n_noticeable)}

    def to_dict(self) -> dict[str, Any]:
        """All numbers for JSON."""
        return {
            "unicity": self.unicity.tolist(),
            "training_unicity": self.training_unicity.tolist(),
            "crowd": self.crowd,
            **{name: getattr(self, name).to_dict() for name in COPY_TITLES},
            "n_exposed": self.n_exposed,
            "n_noticeable": self.n_noticeable,
            "n_users": len(self.nearest.training),
        }


def check_copies(released: Traces, train: Traces, test: Traces, *, seed: int = SEED) -> CopyCheck:
    """Measure signs of copying in released traces, compared with the same numbers for test users.

    Windows with one event are left out. At most 4,000 windows of training users, and of test users, are looked for.
    `train` and `test` are real traces of users who were, and were not, used to make the released traces. Raises
    `InputError`: the place tables or the periods of the grids differ, or a set has no window with two events.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=400, n_days=7, seed=0).traces.split_users(0.5, seed=0)
    >>> check = check_copies(train, train, test)
    >>> check.copied_run.share_far > 0.9, check.n_exposed > 100
    (True, True)
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
        comparison.statistic(windows_of_some, each, length, seed).arrivals()
        for each in (comparison.train, comparison.test)
    )
    unique = unicity(thinned, n_users=crowd, seed=seed)
    unique_real = comparison.statistic(_unicity_of_real, comparison.train, length, crowd, seed)
    whole, run = _compared(windows, some_train, some_test)
    return CopyCheck(unique, unique_real, whole, run, crowd)


def _compared(released: Windows, train: Windows, test: Windows) -> tuple[HeldOutComparison, HeldOutComparison]:
    """What users find as a whole, and in runs; `train` and `test` have only arrivals."""
    real = joined(train, test)
    weight = surprise(real)
    users, user = np.unique(real.user, return_inverse=True)
    is_test = users > train.user.max()

    def compared(found: Float[np.ndarray, " window"]) -> HeldOutComparison:
        greatest, most = np.zeros(len(users)), np.zeros(len(users))
        np.maximum.at(greatest, user, found)
        np.maximum.at(most, user, np.bincount(real.window, weight, real.n_windows))
        n_pairs = train.n_windows * released.n_windows
        return HeldOutComparison.of(greatest[~is_test], greatest[is_test], most[~is_test], n_pairs)

    whole = nearest(real, released, weight).weight
    return compared(whole), compared(heaviest_copied_runs(real, released.arrivals(), weight))


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


def _measure(comparison: Comparison, settings: NoSettings) -> list[float]:
    found = _check(comparison, SEED)
    if found is None:
        return [math.nan] * 4
    shares = found.nearest.share_far, found.copied_run.share_far
    return [found.unicity[TABLE_POINTS - 1], *shares, float(found.n_exposed)]


def _read(comparison: Comparison, settings: NoSettings) -> list[Interpretation]:
    found = _check(comparison, SEED)
    if found is None:
        return [Interpretation()] * 4
    shares = [
        Interpretation(
            caveats=caveat_if(each.is_saturated, "saturated", SATURATED),
            alarm=math.inf if each.is_saturated else COPIED.alarm(each.n_users),
        )
        for each in (found.nearest, found.copied_run)
    ]
    return [Interpretation(), *shares, Interpretation(alarm=EXPOSED.fair)]


FAR = "Share of the training users who find more of a trace of theirs {} than 95 % of the test users do."
CHANCE, UNIT = "at most 0.05", "share of training users"
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
        "nearest_far",
        "Nearest trace, far",
        FAR.format("in the nearest synthetic trace, up to an instant earlier or later,"),
        UNIT,
        "lower",
        CHANCE,
        NO_WINDOWS,
    ),
    MetricInfo(
        "copied_run_far",
        "Copied run, far",
        FAR.format("in a run of places of a synthetic trace, at any time,"),
        UNIT,
        "lower",
        CHANCE,
        NO_WINDOWS,
    ),
    MetricInfo(
        "n_people_copied",
        "People copied",
        "Number of training users who find so much of a trace of theirs in a synthetic trace that chance explains it "
        f"for {EXPECTED_BY_CHANCE} people.",
        "people",
        "lower",
        "0",
        NO_WINDOWS,
    ),
    measure=_measure,
    reading=_read,
)
