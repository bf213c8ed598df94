"""Memory: how people go back to places that they know, and how they divide their time among places.

A window is as long as a synthetic trace. A *run* is a series of events of a window at one place, one after the other,
with or without gaps between them. Here, a *move* leads from one run to the next, so it may take longer than one step.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ppmtf_jax.data.measurement import Caveat, Comparison, caveat_if
from ppmtf_jax.data.runs import rank_in_run, run_begins
from ppmtf_jax.data.time_grid import DAY_S
from ppmtf_jax.data.windows import Visits, Windows
from ppmtf_jax.evaluation.distributions import variation_of_samples, wasserstein
from ppmtf_jax.evaluation.judgement import LITTLE_MEMORY
from ppmtf_jax.evaluation.metrics.windows import Sample, mean_difference, one_point, window_metric

MIN_SHARE_EVENTS = 5
NIGHT_H, DAYS_OF_WEEK = 6, 7
RETURN_HOURS = np.r_[0:25, 26:80:2, 100, 130, 170, 400]
"""First hour of each bin of return times."""


def _little_memory(windows: Windows, floor: float) -> tuple[Caveat, ...]:
    text = f"Half of the test windows have at most {LITTLE_MEMORY} events, which show little memory"
    few = windows.n_windows and np.median(windows.events_per_window()) <= LITTLE_MEMORY
    return caveat_if(bool(few), "little_memory", text)


def _has_nights(comparison: Comparison) -> bool:
    """Whether windows last at least two days."""
    return comparison.window_length * comparison.test.time_grid.step_s >= 2 * DAY_S


@window_metric(
    "return_difference",
    "Returns",
    "Share of moves to a place visited earlier in the same window: synthetic users minus test users.",
    mean_difference,
    unit="share of moves, -1 to 1",
    plain="How often people come back to a place",
    section="persons",
    uses=("days",),
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
    unit="share of moves, -1 to 1",
    plain="How often people go straight back",
    section="persons",
    uses=("days",),
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
    plain="After how many hours people come back",
    section="persons",
    uses=("weeks",),
    caveats=_little_memory,
)
def return_time_bins(windows: Windows) -> Sample:
    """For each return, the bin of the time since the last event at the place."""
    runs, earlier = windows.runs, windows.runs.earlier()
    back = np.flatnonzero(earlier >= 0)
    away = windows.phase[runs.first[back]] - windows.phase[runs.last[earlier[back]]]
    return Sample(windows.user[runs.window[back]], hour_bins(windows, away, RETURN_HOURS))


def hour_bins(windows: Windows, n_instants: np.ndarray, first_hours: np.ndarray) -> np.ndarray:
    """Bin of each span of time; `first_hours` has the first hour of each bin."""
    return np.searchsorted(first_hours * 3600, n_instants.astype(np.int64) * windows.time_grid.step_s, side="right") - 1


@window_metric(
    "distinct_w1",
    "Distinct places",
    "Wasserstein distance between the numbers of different places of synthetic and of test users in windows as "
    "long as a synthetic trace.",
    wasserstein,
    unit="places",
    scale="places",
    plain="How many different places people see",
    section="trips",
    uses=("days", "weeks"),
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
    unit="km",
    scale="none",
    plain="Distance between the two main places",
    section="persons",
    uses=("commuting",),
    min_events=MIN_SHARE_EVENTS,
    caveats=one_point,
)
def main_distance_km(windows: Windows) -> Sample:
    """Distance between the two most visited places of each window with at least two events at the second one.

    Places without coordinates are left out.
    """
    top, second = (visits_of_rank(windows, rank) for rank in (0, 1))
    counted = second.count > 1
    window, position_km = second.window[counted], windows.places.position_km()
    # Every window has a most visited place.
    distance_km = np.linalg.norm(position_km[top.place[window]] - position_km[second.place[counted]], axis=1)
    known = np.isfinite(distance_km)
    return Sample(windows.user[window[known]], distance_km[known])


@window_metric(
    "night_homes_difference",
    "Night homes",
    "Number of different places of a week that are the most frequent place of a night (0 to 6 o'clock), on "
    "average: synthetic users minus test users.",
    mean_difference,
    unit="places a week",
    scale="nights",
    plain="At how many places people spend the nights of a week",
    section="persons",
    uses=("commuting",),
    applies=_has_nights,
)
def night_homes(windows: Windows) -> Sample:
    """Number of different places of a week that are the most frequent place of a night, from 0 to 6 o'clock.

    There is one value for each week with an event at night; weeks are 7 days, from the beginning of the window on. If
    several places are equally frequent in a night, the place visited first counts.
    """
    grid, n_places = windows.time_grid, len(windows.places)
    time_s = grid.since_midnight_s()[windows.phase]
    at_night = np.flatnonzero(time_s % DAY_S < NIGHT_H * 3600)
    window, date = windows.window[at_night].astype(np.int64), time_s[at_night] // DAY_S
    week = windows.phase[at_night].astype(np.int64) * grid.step_s // (DAYS_OF_WEEK * DAY_S)
    begins = run_begins(window, week, date)
    night_place = (np.cumsum(begins) - 1) * n_places + windows.place[at_night]
    pair, first, count = np.unique(night_place, return_index=True, return_counts=True)
    most_first = np.lexsort((first, -count, pair // n_places))
    home = pair[most_first[run_begins(pair[most_first] // n_places)]] % n_places
    # Weeks are numbered over all windows; each home of a week counts once.
    begins_week = run_begins(window[begins], week[begins])
    week_home = np.unique((np.cumsum(begins_week) - 1) * n_places + home)
    n_homes = np.bincount(week_home // n_places)
    return Sample(windows.user[window[begins][begins_week]], n_homes)


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
        unit="share of events",
        scale="share",
        plain=_plain,
        section=_section,
        uses=("commuting",),
        min_events=MIN_SHARE_EVENTS,
    )(partial(share_of_rank, rank=_rank))
