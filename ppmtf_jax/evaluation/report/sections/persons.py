"""Single persons: how days go, when people are seen, and days of ten invented people."""

from __future__ import annotations

import numpy as np

from ppmtf_jax.data.time_grid import DAY_S
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows, is_complete
from ppmtf_jax.evaluation.plots import person_maps, person_timelines
from ppmtf_jax.evaluation.report.blocks import Block, Picture, Text
from ppmtf_jax.evaluation.report.gauges import gauges_of, utility_finding
from ppmtf_jax.evaluation.report.inputs import ReportData, Unavailable, if_available
from ppmtf_jax.evaluation.report.registry import UTILITY, section

SIMULATED = ("toy-city",)
"""Data sets of simulated people, whose days can be shown to anybody."""
N_PERSONS = 10
LEAST_EVENTS = 2
SEED = 0
TITLES = {
    "return_difference": "How often people come back to a place",
    "straight_back_difference": "How often people go straight back",
    "return_time_tv": "After how long people come back",
    "window_distinct_w1": "How many places people see",
    "distinct_by_events": "How many places people see in so many events",
    "window_top_w1": "Share of the time at the most visited place",
    "second_place_w1": "Share of the time at the second place",
    "main_places_w1_km": "Distance of the two main places",
    "daily_motif_tv": "In which pattern people visit the places of a day",
    "closed_day_difference": "How many days end where they began",
    "night_homes_difference": "At how many places people spend the nights of a week",
    "entropy_difference": "How regular people are",
}
TITLES_OF_EVENTS = {
    "events_w1": "How many events people have",
    "event_gap_tv": "How long nothing is known in between",
    "day_events_tv": "How many events a day has",
    "stay_any_gap_difference": "How often people are where they were last seen",
}
QUESTION_OF_EVENTS = "Are people seen as often, and at such times, as real people?"
NO_REAL = (
    "No days of real people are shown: they would tell who these people are. They are shown for simulated people, such "
    "as those of the toy city, and with `--consent`, if all people of the data agreed that their days are drawn here."
)
NUMBERS = (
    "A bar is a stay at one place; its number and colour say which of the person's places it is: 1 is the most visited "
    "one, often the home. Where there is no bar, nothing is known."
)


@section(
    "persons",
    UTILITY,
    "Days of persons",
    "People come home, go back to places that they know, and are at the same few places on most days. Traces can have "
    "the right crowds at every hour, and yet be traces of nobody.",
    question="Do people come back to their places as real people do?",
    if_poor="Do not follow single persons through these traces.",
)
def make(data: ReportData) -> list[Block]:
    """Gauges of memory, and ten persons drawn at random."""
    return [gauges_of(data, TITLES), *if_available(lambda: _pictures(data))]


@section(
    "events",
    UTILITY,
    "When people are seen",
    "People check in, or use their telephones, at some hours only. Traces with such gaps should have them as real "
    "traces have them.",
)
def make_events(data: ReportData) -> list[Block]:
    """Gauges of the events of traces with gaps."""
    if is_complete(data.synthetic):
        raise Unavailable("These traces have no gaps: they say where a person is at every instant.")
    gauges = gauges_of(data, TITLES_OF_EVENTS)
    # A question of the section would be asked of complete traces too.
    return [utility_finding(QUESTION_OF_EVENTS, gauges.items), gauges]


def _pictures(data: ReportData) -> list[Block]:
    length = data.synthetic.time_grid.n_instants
    people = {"synthetic": _drawn(data, tested(data), length)}
    real_is_shown = data.source in SIMULATED or data.settings.consent
    if real_is_shown:
        people["real"] = _drawn(data, data.test, length)
    day = DAY_S // data.synthetic.time_grid.step_s
    blocks: list[Block] = []
    if length > day > 0:
        blocks.append(_timelines(people, "whole traces"))
        days = {name: _one_day_each(windows) for name, windows in people.items()}
        blocks.append(_timelines(days, "days"))
    else:
        blocks.append(_timelines(people, "days"))
    if data.has_map:
        blocks.append(_maps(people))
    return [*blocks, Text(((_who(data, people) if real_is_shown else NO_REAL),))]


def tested(data: ReportData) -> Traces:
    """The synthetic traces that passed the privacy test; raises `Unavailable` if there are none."""
    if data.is_release:
        return data.synthetic
    if data.verdicts is None:
        raise Unavailable("No days are shown: no privacy test is known, and a trace may be that of a real person.")
    if not data.verdicts.passed.any():
        raise Unavailable("No days are shown: no trace passed the privacy test.")
    return data.synthetic.select_traces(data.verdicts.passed)


def _drawn(data: ReportData, traces: Traces, length: int) -> Windows:
    """Windows of some random people, one each, with at least two events; raises `Unavailable` if there are none."""
    windows = Windows.of(traces, length).with_events(LEAST_EVENTS)
    if not windows.n_windows:
        raise Unavailable("No days are shown: nobody has two events in a trace.")
    shuffled = np.random.default_rng(SEED).permutation(windows.n_windows)
    _, first = np.unique(windows.user[shuffled], return_index=True)
    chosen = np.zeros(windows.n_windows, bool)
    chosen[shuffled[np.sort(first)[:N_PERSONS]]] = True
    return windows.select(chosen)


def _one_day_each(windows: Windows) -> Windows:
    """A random day of each window, with two events if it has such a day."""
    days = windows.days()
    few = days.events_per_window() < LEAST_EVENTS
    shuffled = np.random.default_rng(SEED).permutation(days.n_windows)
    shuffled = shuffled[np.argsort(few[shuffled], kind="stable")]
    _, first = np.unique(days.user[shuffled], return_index=True)
    chosen = np.zeros(days.n_windows, bool)
    chosen[shuffled[first]] = True
    return days.select(chosen)


def _timelines(people: dict[str, Windows], what: str) -> Picture:
    sets = " and ".join(f"{windows.n_windows} {name}" for name, windows in people.items())
    alt = f"Timelines, a row for each person: {what} of {sets} people, as bars of stays at places."
    caption = f"The {what} of {sets} people, drawn at random. {NUMBERS}"
    return Picture(person_timelines(people), alt, caption)


def _maps(people: dict[str, Windows]) -> Picture:
    sets = " and ".join(f"{windows.n_windows} {name}" for name, windows in people.items())
    alt = f"Maps of the ways of {sets} people, with arrows from each place to the next one."
    caption = (
        "The traces of these people on maps, each on a scale of its own. The numbers are the order in which places are "
        "first visited; of places that are very near each other, only one has a number."
    )
    return Picture(person_maps(people), alt, caption)


def _who(data: ReportData, people: dict[str, Windows]) -> str:
    why = "is simulated" if data.source in SIMULATED else "agreed that their days are shown"
    return (
        f"The {people['real'].n_windows} real people are test users, whose data no synthesizer saw. Everybody of these "
        f"data {why}. A synthetic row has nothing to do with the real row of the same number."
    )
