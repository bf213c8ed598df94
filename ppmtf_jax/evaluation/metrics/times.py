"""When people check in, and in which order they visit the places of a day.

A window is as long as a synthetic trace, or one period. Metrics that depend only on the times of events are measured
only for synthetic traces with gaps of their own. A day lasts 24 hours from the beginning of a window; a window of less
than 24 hours is one day.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
from jaxtyping import Int

from ppmtf_jax.data.measurement import Comparison
from ppmtf_jax.data.runs import rank_in_run, run_begins
from ppmtf_jax.data.time_grid import DAY_S
from ppmtf_jax.data.windows import MIN_WINDOW_EVENTS, Windows
from ppmtf_jax.evaluation.distributions import variation_of_samples, wasserstein
from ppmtf_jax.evaluation.metrics.moves import gaps
from ppmtf_jax.evaluation.metrics.windows import BETWEEN, Sample, hour_bins, mean_difference, window_metric

GAP_HOURS = np.r_[0:13, 16, 20, 22, 24, 25, 27, 31, 40, 46, 49, 51, 60, 72, 96, 120, 168, 240, 400]
"""First hour of each bin of the time between two events."""
MAX_EVENTS = 12
NIGHT_H, DAYS_OF_WEEK = 6, 7
MAX_NODES = 5
MAX_PLACES = 9
# A network of at most MAX_NODES places is a number with a bit for each ordered pair of places.
N_BITS = MAX_NODES**2


@window_metric(
    "events_w1",
    "Events of a window",
    "Wasserstein distance between the numbers of events of synthetic and of test users in windows as long as a "
    "synthetic trace with at least one event.",
    wasserstein,
    shown=("events", "How many events people have", "events"),
    unit="events",
    scale="events",
    min_events=1,
    of_times=True,
)
def n_events(windows: Windows) -> Sample:
    """Number of events of each window."""
    return Sample(windows.user, windows.events_per_window())


@window_metric(
    "day_events_tv",
    "Events of a day",
    f"Total variation {BETWEEN} numbers of events of a day with at least one event.",
    variation_of_samples,
    shown=("events", "How many events a day has", "events"),
    min_events=1,
    of_times=True,
)
def day_events(windows: Windows) -> Sample:
    """Number of events of each day with an event; numbers above `MAX_EVENTS` count as `MAX_EVENTS`."""
    days = windows.days()
    return Sample(days.user, np.minimum(days.events_per_window(), MAX_EVENTS))


@window_metric(
    "event_gap_tv",
    "Time between events",
    f"Total variation {BETWEEN} hours between successive events.",
    variation_of_samples,
    shown=("events", "How long the gaps between events are", "events"),
    of_times=True,
)
def gap_bins(windows: Windows) -> Sample:
    """Bin of the time between each two successive events of a window."""
    later, gap = gaps(windows)
    return Sample.at(windows, later, hour_bins(windows, gap, GAP_HOURS))


def _has_nights(comparison: Comparison) -> bool:
    """Whether windows last at least two days."""
    return comparison.window_length * comparison.test.time_grid.step_s >= 2 * DAY_S


@window_metric(
    "night_homes_difference",
    "Night homes",
    "Number of different places of a week that are the most frequent place of a night (0 to 6 o'clock), on "
    "average: synthetic users minus test users.",
    mean_difference,
    shown=("persons", "At how many places people spend the nights of a week", "commuting"),
    unit="places a week",
    scale="nights",
    applies=_has_nights,
)
def night_homes(windows: Windows) -> Sample:
    """For each week, how many different places are the most frequent place of a night (0 to 6 o'clock).

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


@window_metric(
    "closed_day_difference",
    "Closed days",
    "Share of days whose last event is at the place of the first one: synthetic users minus test users.",
    mean_difference,
    shown=("persons", "How many days end where they began", "commuting"),
    unit="share of days, -1 to 1",
    one_period=True,
)
def ends_where_it_began(windows: Windows) -> Sample:
    """For each day, whether its last event is at the place of its first one."""
    days = windows.days().with_events(MIN_WINDOW_EVENTS)
    first = np.flatnonzero(run_begins(days.window))
    last = np.append(first, len(days.window))[1:] - 1
    return Sample(days.user, days.place[first] == days.place[last])


@window_metric(
    "daily_motif_tv",
    "Daily motifs",
    "Total variation between the distributions of synthetic and of test users' daily motifs: the network of moves "
    f"between the places of a day, or the number of places if it is above {MAX_NODES}.",
    variation_of_samples,
    shown=("persons", "In which order people visit the places of a day", "days"),
    one_period=True,
)
def daily_motifs(windows: Windows) -> Sample:
    """Number of the motif of each day: the network of the moves between its places (Schneider et al. 2013).

    Two days have the same motif if one network becomes the other when its places are renamed. The directions of moves
    count, but not how often a move is made. Days with more than five places differ only by the number of places; nine
    or more places count as nine.
    """
    days = windows.days().with_events(MIN_WINDOW_EVENTS)
    runs = days.runs
    n_places, node = _nodes(runs.window, runs.place)
    is_small = n_places <= MAX_NODES
    move = np.flatnonzero(runs.is_move() & is_small[runs.window])
    network = np.zeros(days.n_windows, np.int64)
    np.bitwise_or.at(network, runs.window[move], 1 << (node[move - 1] * MAX_NODES + node[move]))
    motif = np.minimum(n_places, MAX_PLACES) << N_BITS
    for n_nodes in range(2, MAX_NODES + 1):
        of_size = n_places == n_nodes
        different, which = np.unique(network[of_size], return_inverse=True)
        motif[of_size] += canonical(different, n_nodes)[which]
    return Sample(days.user, motif)


def canonical(network: Int[np.ndarray, " network"], n_nodes: int) -> Int[np.ndarray, " network"]:
    """For each network, the smallest of the numbers that it gets when its nodes are renamed in all ways.

    Bit a * 5 + b of a network says whether a move leads from node a to node b.

    Examples
    --------
    A move from node 0 to node 1, and a move from node 1 to node 0, are the same network.

    >>> canonical(np.array([1 << 1, 1 << 5]), 2).tolist()
    [2, 2]
    """
    pairs, names = (np.array([*permutations(range(n_nodes), size)]) for size in (2, n_nodes))
    has_move = network[:, None] >> (pairs @ [MAX_NODES, 1]) & 1
    renamed = np.left_shift(1, names[:, pairs] @ [MAX_NODES, 1])
    return (has_move @ renamed.T).min(axis=1)


def _nodes(window: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number of places of each window, and for each row, the rank of its place by first visit in its window."""
    order = np.lexsort((place, window))
    begins = run_begins(window[order], place[order])
    # `lexsort` is stable, so the first row of a place in a window comes first.
    number, first = np.empty(len(order), np.int64), np.sort(order[begins])
    number[order] = np.searchsorted(first, order[begins])[np.cumsum(begins) - 1]
    return np.bincount(window[first]), rank_in_run(window[first])[number]
