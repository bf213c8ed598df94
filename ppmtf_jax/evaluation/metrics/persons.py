"""How people divide their time among places, how they go back to places that they know, and how regular they are.

A window is as long as a synthetic trace. A *run* is a series of events of a window at one place, one after the other,
with or without gaps between them. Here, a *move* leads from one run to the next, so it may take longer than one step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.data.measurement import Caveat, Comparison, Interpretation, caveat_if
from ppmtf_jax.data.runs import rank_in_run, run_begins
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import MIN_WINDOW_EVENTS, Visits, Windows
from ppmtf_jax.evaluation.distributions import (
    counts_to_shares,
    variation,
    variation_of_samples,
    wasserstein,
    weighted_mean,
)
from ppmtf_jax.evaluation.judgement import LITTLE_MEMORY
from ppmtf_jax.evaluation.metrics.windows import (
    Sample,
    compared_windows,
    distance_km,
    hour_bins,
    mean_difference,
    one_point,
    random_windows,
    real_windows,
    window_metric,
)
from ppmtf_jax.evaluation.registry import Undefined, register_utility, variation_quantity
from ppmtf_jax.settings import Count, Settings

COARSE_SHARES = f"Most test windows have only {MIN_WINDOW_EVENTS} events, so shares of events say little"
MIN_SHARE_EVENTS = 5
RETURN_HOURS = np.r_[0:25, 26:80:2, 100, 130, 170, 400]
"""First hour of each bin of return times."""
MIN_ENTROPY_EVENTS = 20
MAX_ENTROPIES = 2000
# At most so many pairs of events are compared for the entropies of a set: this bounds the time.
MAX_PAIRS = 2**29
# Windows whose entropy is computed at a time.
BLOCK = 256
# Random-stream number; see windows.py.
ENTROPIES = 4
ABSENT = -1


# VF-TV: total variation between the distributions over windows of the share of events at each place


@dataclass(frozen=True)
class VisitSettings(Settings, subject="VF-TV"):
    """Settings of VF-TV.

    Parameters
    ----------
    n_bins : int, optional
        Number of bins of a share. By default, one for each instant of a period.
    published : bool
        As in Murakami et al. 2021, 4.3: all events of a real user are one window, and each synthetic trace is one as it
        is, without thinning. Windows with fewer than 5 events and shares of exactly 1 do not count, all places weigh
        the same, and a place without synthetic visits counts as if all shares were in the lowest bin.
    """

    n_bins: Count | None = None
    published: bool = False


def visit_fractions(windows: Windows, n_bins: int, *, published: bool = False) -> np.ndarray:
    """Histogram of each place over the windows' shares of events at the place: windows per bin, shape (places, bins).

    Bins are (0, 1/n], (1/n, 2/n], ..., (1 - 1/n, 1]; shares of 0 do not count. See `VisitSettings` for `published`.
    """
    visits, n_places = windows.visits(), len(windows.places)
    total = windows.events_per_window()[visits.window]
    # Whole numbers throughout: a share on the edge of a bin must not depend on rounding.
    cell = visits.place * n_bins - (-visits.count * n_bins // total) - 1
    if published:
        cell = cell[(total >= MIN_SHARE_EVENTS) & (visits.count < total)]
    return np.bincount(cell, minlength=n_places * n_bins).reshape(n_places, n_bins)


def _as_they_are(traces: Traces, of_users: bool) -> Windows:
    """A window for each trace, or for each user where trace numbers only mark breaks, with all of its events."""
    begins = run_begins(traces.user) if of_users else run_begins(traces.user, traces.trace)
    users, grid = traces.user[begins], traces.time_grid
    return Windows(np.cumsum(begins) - 1, traces.instant, traces.place, users, traces.places, grid)


def _measure(comparison: Comparison, settings: VisitSettings) -> list[float]:
    """VF-TV: mean over the places that have a histogram in both real sets.

    The weight of a place is the number of windows that visit it: the smaller of the numbers in the real sets.
    Otherwise, on data with few events per window, rare places would decide, and the metric would measure only chance. A
    place without a synthetic histogram has the total variation 1.
    """
    length, n_bins = comparison.window_length, settings.n_bins
    n_bins = n_bins or min(comparison.n_instants, comparison.test.time_grid.period)
    real = comparison.train, comparison.test
    if settings.published:
        sets = [comparison.statistic(_as_they_are, comparison.traces, comparison.pool_traces)]
        sets += [comparison.statistic(_as_they_are, each, True) for each in real]
    else:
        sets = [compared_windows(comparison, length), *(real_windows(comparison, each, length) for each in real)]
    released, train, test = (visit_fractions(each, n_bins, published=settings.published) for each in sets)
    weight = np.minimum(train.sum(axis=1), test.sum(axis=1))
    known = weight > 0
    if not known.any():
        raise Undefined
    weight, released, test = weight[known], released[known], test[known]
    if settings.published:
        weight = np.ones(len(weight))
        released[released.sum(axis=1) == 0, 0] = 1
    distance = variation(counts_to_shares(released), counts_to_shares(test))
    return [weighted_mean(np.where(released.any(axis=1), distance, 1.0), weight)]


def _reading(comparison: Comparison, settings: VisitSettings) -> list[Interpretation]:
    n_events = real_windows(comparison, comparison.test, comparison.window_length).events_per_window()
    is_coarse = len(n_events) > 0 and np.median(n_events) <= MIN_WINDOW_EVENTS
    return [Interpretation(caveats=caveat_if(is_coarse, "coarse_shares", COARSE_SHARES))]


register_utility(
    variation_quantity(
        "vf_tv",
        "VF-TV",
        "Total variation between the distributions of the share of events at a place, over windows as long as a "
        "synthetic trace, averaged over the places, weighted by the number of windows with a visit.",
        "no place that windows visit in both real sets, no synthetic window, or (unless `published`) time grids with "
        "different periods",
        plain="Share of their time that people spend at each place",
        section="visit-fractions",
    ),
    measure=_measure,
    settings=VisitSettings,
    per_trace_number=True,
    reading=_reading,
)


# Places that people know


def _little_memory(windows: Windows, floor: float) -> tuple[Caveat, ...]:
    text = f"Half of the test windows have at most {LITTLE_MEMORY} events, which show little memory"
    few = windows.n_windows and np.median(windows.events_per_window()) <= LITTLE_MEMORY
    return caveat_if(bool(few), "little_memory", text)


@window_metric(
    "return_difference",
    "Returns",
    "Share of moves to a place visited earlier in the same window: synthetic users minus test users.",
    mean_difference,
    shown=("persons", "How often people come back to a place", "days"),
    unit="share of moves, -1 to 1",
    caveats=_little_memory,
)
def returns(windows: Windows) -> Sample:
    """For each move, whether it leads to a place visited earlier in the window."""
    runs = windows.runs
    move = runs.is_move()
    return Sample(windows.user[runs.window[move]], runs.earlier()[move] >= 0)


@window_metric(
    "straight_back_difference",
    "Straight back",
    "Share of moves that lead straight back to the place before: synthetic users minus test users.",
    mean_difference,
    shown=("persons", "How often people go straight back", "days"),
    unit="share of moves, -1 to 1",
    caveats=_little_memory,
)
def straight_back(windows: Windows) -> Sample:
    """For each move, whether it leads from a place straight back to the place visited just before that place."""
    runs = windows.runs
    move = runs.is_move()
    return Sample(windows.user[runs.window[move]], runs.place_before(2)[move] == runs.place[move])


@window_metric(
    "return_time_tv",
    "Return times",
    "Total variation between the distributions of the hours after which synthetic and test users come back to a place.",
    variation_of_samples,
    shown=("persons", "After how many hours people come back", "weeks"),
    caveats=_little_memory,
)
def return_time_bins(windows: Windows) -> Sample:
    """For each return, the bin of the time since the last event at the place."""
    runs, earlier = windows.runs, windows.runs.earlier()
    back = np.flatnonzero(earlier >= 0)
    away = windows.phase[runs.first[back]] - windows.phase[runs.last[earlier[back]]]
    return Sample(windows.user[runs.window[back]], hour_bins(windows, away, RETURN_HOURS))


@window_metric(
    "distinct_w1",
    "Distinct places",
    "Wasserstein distance between the numbers of different places of synthetic and of test users in windows as "
    "long as a synthetic trace.",
    wasserstein,
    shown=("trips", "How many different places people see", "days", "weeks"),
    unit="places",
    scale="places",
)
def distinct(windows: Windows) -> Sample:
    """Number of different places of each window."""
    return Sample(windows.user, np.bincount(windows.visits().window, minlength=windows.n_windows))


def share_of_rank(windows: Windows, rank: int) -> Sample:
    """For each window, the share of its events at its most (rank 0) or second most (rank 1) visited place, or 0."""
    visits, share = visits_of_rank(windows, rank), np.zeros(windows.n_windows)
    share[visits.window] = visits.count / windows.events_per_window()[visits.window]
    return Sample(windows.user, share)


def visits_of_rank(windows: Windows, rank: int) -> Visits:
    """For each window that has one, its place of this rank by number of events; ties in order of the place table."""
    visits = windows.visits()
    order = np.lexsort((-visits.count, visits.window))
    chosen = order[rank_in_run(visits.window[order]) == rank]
    return Visits(*(column[chosen] for column in visits))


@window_metric(
    "main_places_w1_km",
    "Main places, km",
    "Wasserstein distance between the distances from the most to the second most visited place of synthetic and of "
    f"test users' windows with at least {MIN_SHARE_EVENTS} events.",
    wasserstein,
    shown=("persons", "Distance between the two main places", "commuting"),
    unit="km",
    scale="none",
    min_events=MIN_SHARE_EVENTS,
    caveats=one_point,
)
def main_distance_km(windows: Windows) -> Sample:
    """Distance between the two most visited places of each window with at least two events at the second one.

    Places without coordinates are left out.
    """
    top, second = (visits_of_rank(windows, rank) for rank in (0, 1))
    counted = second.count > 1
    window = second.window[counted]
    # Every window has a most visited place.
    length_km = distance_km(windows, top.place[window], second.place[counted])
    known = np.isfinite(length_km)
    return Sample(windows.user[window[known]], length_km[known])


for _rank, _name, _title, _which, _plain, _section in (
    (0, "top_place_w1", "Top place", "most", "Share of the time at the most visited place", "visit-fractions"),
    (1, "second_place_w1", "Second place", "second most", "Share of the time at the second place", "persons"),
):
    window_metric(
        _name,
        _title,
        f"Wasserstein distance between the shares of events of synthetic and of test users at the {_which} visited "
        f"place of a window as long as a synthetic trace, with at least {MIN_SHARE_EVENTS} events.",
        wasserstein,
        shown=(_section, _plain, "commuting"),
        unit="share of events",
        min_events=MIN_SHARE_EVENTS,
    )(partial(share_of_rank, rank=_rank))


# Entropy: how hard it is to foretell the next place of a person who has been watched so far


@window_metric(
    "entropy_difference",
    "Entropy, bits",
    "Lempel-Ziv estimate of the entropy of the next place given all places before it, mean over windows of at "
    f"least {MIN_ENTROPY_EVENTS} events: synthetic users minus test users.",
    mean_difference,
    shown=("persons", "How regular people are", "weeks"),
    unit="bits an event",
    scale="bits",
    min_events=MIN_ENTROPY_EVENTS,
)
def entropies(windows: Windows) -> Sample:
    """Entropy of each window in bits, see `lempel_ziv_entropy`.

    At most 2,000 random windows (fixed seed) are measured, fewer if they have very many events.
    """
    if not windows.n_windows:
        return Sample(windows.user, np.zeros(0))
    n_affordable = max(MAX_PAIRS // int(windows.events_per_window().max()) ** 2, 1)
    windows = random_windows(windows, min(MAX_ENTROPIES, n_affordable), ENTROPIES)
    n_events = windows.events_per_window()
    place = np.full((windows.n_windows, n_events.max()), ABSENT, np.int32)
    place[windows.window, rank_in_run(windows.window)] = windows.place
    blocks = range(0, windows.n_windows, BLOCK)
    entropy = [lempel_ziv_entropy(place[first : first + BLOCK], n_events[first : first + BLOCK]) for first in blocks]
    return Sample(windows.user, np.concatenate(entropy))


def lempel_ziv_entropy(
    place: Int[np.ndarray, "window event"], n_events: Int[np.ndarray, " window"]
) -> Float[np.ndarray, " window"]:
    """Lempel-Ziv estimate of the entropy rate of sequences of places, in bits an event (Kontoyiannis et al. 1998).

    For n events, it is n log2(n) divided by the sum over events of a length: that of the shortest sequence of places
    that begins at the event and does not occur among the events before it. A sequence that occurs there up to the last
    event counts as one longer. Places are in the order of time. `n_events` has the number of events of each window, at
    least 1; events after these are not read.

    Examples
    --------
    Always at one place: the lengths are 1, 2, 3 and 2.

    >>> lempel_ziv_entropy(np.array([[7, 7, 7, 7]]), np.array([4])).tolist()
    [1.0]
    """
    counted = np.arange(place.shape[1]) < n_events[:, None]
    total = np.zeros(len(place))
    # common[:, j]: how many places the sequences from event i and from event j on have in common, for all j < i.
    common = np.zeros((len(place), place.shape[1] + 1), np.int32)
    for event in reversed(range(place.shape[1])):
        same = (place[:, :event] == place[:, event, None]) & counted[:, event, None]
        common = np.where(same, common[:, 1 : event + 1] + 1, 0)
        # A sequence that begins at j must end before the event.
        longest = np.minimum(common, event - np.arange(event)).max(axis=1, initial=0)
        total += np.where(counted[:, event], longest + 1, 0)
    return n_events * np.log2(n_events) / total
