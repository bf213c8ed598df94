"""Rhythm: when people check in, and where they are after hours without an event.

A window is as long as a synthetic trace. Metrics that depend only on the times of events are measured only for
synthetic traces with gaps of their own.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ppmtf_jax.data.measurement import Comparison
from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.evaluation.distributions import variation_of_samples, wasserstein
from ppmtf_jax.evaluation.metrics.memory import hour_bins
from ppmtf_jax.evaluation.metrics.windows import Sample, mean_difference, one_point, real_windows, window_metric

GAP_HOURS = np.r_[0:13, 16, 20, 22, 24, 25, 27, 31, 40, 46, 49, 51, 60, 72, 96, 120, 168, 240, 400]
"""First hour of each bin of the time between two events."""
JUMP_KM = np.geomspace(0.25, 64, 17)
"""First kilometre of each bin of jump lengths, except for the first bin, which begins at 0."""
JUMP_HOURS = {
    "1h": (0.0, 1.0, "up to 1 h", "within an hour"),
    "6h": (1.0, 6.0, "1-6 h", "in 2 to 6 hours"),
    "24h": (6.0, 24.0, "6-24 h", "in 7 to 24 hours"),
    "later": (24.0, np.inf, "above 24 h", "in more than a day"),
}
"""Classes of hours between two events: more than the first number, at most the second number; and their titles."""
MOST_EVENTS = 12
MOSTLY_GAPS = 0.5
BETWEEN = "between the distributions of synthetic and of test users'"


@window_metric(
    "events_w1",
    "Events of a window",
    "Wasserstein distance between the numbers of events of synthetic and of test users in windows as long as a "
    "synthetic trace with at least one event.",
    wasserstein,
    unit="events",
    scale="events",
    plain="How many events people have",
    section="events",
    uses=("events",),
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
    plain="How many events a day has",
    section="events",
    uses=("events",),
    min_events=1,
    of_times=True,
)
def day_events(windows: Windows) -> Sample:
    """Number of events of each day with an event; numbers above `MOST_EVENTS` count as `MOST_EVENTS`."""
    days = windows.days()
    return Sample(days.user, np.minimum(days.events_per_window(), MOST_EVENTS))


@window_metric(
    "event_gap_tv",
    "Time between events",
    f"Total variation {BETWEEN} hours between successive events.",
    variation_of_samples,
    plain="How long the gaps between events are",
    section="events",
    uses=("events",),
    of_times=True,
)
def gap_bins(windows: Windows) -> Sample:
    """Bin of the time between each two successive events of a window."""
    later, gap = _gaps(windows)
    return Sample.at(windows, later, hour_bins(windows, gap, GAP_HOURS))


@window_metric(
    "stay_any_gap_difference",
    "Stays, any gap",
    "Share of events at the same place as the event before in the window, however long ago: synthetic users minus "
    "test users.",
    mean_difference,
    unit="share of events, -1 to 1",
    plain="How often people are seen where they were seen last",
    section="events",
    uses=("events",),
)
def stays(windows: Windows) -> Sample:
    """For each event but the first of a window, whether it is at the same place as the event before it."""
    later, _ = _gaps(windows)
    return Sample.at(windows, later, windows.place[later] == windows.place[later - 1])


def jump_bins(windows: Windows, above_h: float, at_most_h: float) -> Sample:
    """Bins of the lengths of moves between two successive events that are so many hours apart."""
    later, gap = _gaps(windows)
    gap_s = gap.astype(np.int64) * windows.time_grid.step_s
    moved = windows.place[later] != windows.place[later - 1]
    later = later[moved & (gap_s > above_h * 3600) & (gap_s <= at_most_h * 3600)]
    position_km = windows.places.position_km()
    length_km = np.linalg.norm(position_km[windows.place[later]] - position_km[windows.place[later - 1]], axis=1)
    known = np.isfinite(length_km)
    return Sample.at(windows, later[known], np.searchsorted(JUMP_KM, length_km[known], side="right"))


def _gaps(windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """Index of each event except the first of a window, and the number of instants since the event before it."""
    later = np.flatnonzero(~run_begins(windows.window))
    return later, windows.phase[later] - windows.phase[later - 1]


def is_mostly_gaps(comparison: Comparison) -> bool:
    """Whether most successive events of the test users are not at consecutive instants."""
    _, gap = _gaps(real_windows(comparison, comparison.test, comparison.window_length))
    return bool(len(gap)) and float(np.mean(gap > 1)) > MOSTLY_GAPS


for _name, (_above, _at_most, _title, _plain) in JUMP_HOURS.items():
    window_metric(
        f"jump_{_name}_tv",
        f"Jump-TV, {_title}",
        f"Total variation {BETWEEN} lengths of moves between successive events with {_title} between them.",
        variation_of_samples,
        plain=f"How far people go {_plain}",
        section="transitions",
        uses=("flows",),
        applies=is_mostly_gaps,
        caveats=one_point,
    )(partial(jump_bins, above_h=_above, at_most_h=_at_most))
