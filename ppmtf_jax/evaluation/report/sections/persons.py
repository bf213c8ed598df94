"""Single persons: their days, when they are seen, and pictures of ten synthetic people."""

from __future__ import annotations

import numpy as np

from ppmtf_jax.data.comparable import index_of_ids
from ppmtf_jax.data.time_grid import DAY_S
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows, is_complete
from ppmtf_jax.evaluation.plots import person_maps, person_timelines
from ppmtf_jax.evaluation.report.blocks import Block, Picture, Text
from ppmtf_jax.evaluation.report.gauges import gauges_of, utility_finding
from ppmtf_jax.evaluation.report.inputs import ReportData, Unavailable, if_available
from ppmtf_jax.evaluation.report.registry import UTILITY, section
from ppmtf_jax.streams import Stage, numpy_stream

SIMULATED = ("toy-city",)
"""Data sets of simulated people, whose days can be shown to anybody."""
N_PERSONS = 10
LEAST_EVENTS = 2
SEED = 0
QUESTION_OF_EVENTS = "Are people seen as often, and at the same times, as real people?"
NO_REAL = (
    "No days of real people are shown: they would reveal who these people are. Days from the data are shown only for "
    "simulated people, such as those of the toy city, or with `--consent`, if all people of the data agreed to it."
)
NUMBERS = (
    "A bar is a stay at one place. Its number and colour say which of the person's places it is: 1 is the most visited "
    "place, often the home. Where there is no bar, nothing is known."
)


@section(
    "persons",
    UTILITY,
    "Days of persons",
    "People come home, go back to places that they know, and are at the same few places on most days. Traces can have "
    "the right number of people at each place and hour, and still not look like the traces of persons.",
    question="Do people come back to their places as real people do?",
    if_poor="Do not follow single persons through these traces.",
)
def make(data: ReportData) -> list[Block]:
    """Gauges of memory, and ten persons drawn at random."""
    return [gauges_of(data, "persons"), *if_available(lambda: _pictures(data))]


@section(
    "events",
    UTILITY,
    "When people are seen",
    "People check in, or use their telephones, at some hours only. If synthetic traces have gaps, the gaps should be "
    "like those of real traces.",
)
def make_events(data: ReportData) -> list[Block]:
    """Gauges of the events of traces with gaps."""
    if is_complete(data.synthetic):
        raise Unavailable("These traces have no gaps: they say where a person is at every instant.")
    gauges = gauges_of(data, "events")
    # The question is not part of the section, because complete traces have no answer to it.
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
        days = {name: _one_each(windows.days()) for name, windows in people.items()}
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
    # The synthetic traces may be a sample; verdicts are on all traces.
    measured = index_of_ids(data.verdicts.table["user"].to_numpy(), data.synthetic.user_ids) >= 0
    passed = data.verdicts.passed[measured]
    if not passed.any():
        raise Unavailable("No days are shown: no trace passed the privacy test.")
    return data.synthetic.select_traces(passed)


def _drawn(data: ReportData, traces: Traces, length: int) -> Windows:
    """A window of at least two events for each of up to `N_PERSONS` random people; `Unavailable` if there is none."""
    windows = Windows.of(traces, length).with_events(LEAST_EVENTS)
    if not windows.n_windows:
        raise Unavailable("No days are shown: no trace has two events.")
    return _one_each(windows)


def _one_each(windows: Windows) -> Windows:
    """A random window for each of up to `N_PERSONS` random people, if possible with at least two events."""
    few = windows.events_per_window() < LEAST_EVENTS
    shuffled = numpy_stream(SEED, Stage.SHOWN_PEOPLE).permutation(windows.n_windows)
    shuffled = shuffled[np.argsort(few[shuffled], kind="stable")]
    _, first = np.unique(windows.user[shuffled], return_index=True)
    chosen = np.zeros(windows.n_windows, bool)
    chosen[shuffled[np.sort(first)[:N_PERSONS]]] = True
    return windows.select(chosen)


def _timelines(people: dict[str, Windows], what: str) -> Picture:
    sets = " and ".join(f"{windows.n_windows} {name}" for name, windows in people.items())
    alt = f"Timelines, a row for each person: {what} of {sets} people, as bars of stays at places."
    caption = f"The {what} of {sets} people, drawn at random. {NUMBERS}"
    return Picture(person_timelines(people), alt, caption)


def _maps(people: dict[str, Windows]) -> Picture:
    sets = " and ".join(f"{windows.n_windows} {name}" for name, windows in people.items())
    alt = f"Maps of the routes of {sets} people, with arrows from each place to the next one."
    caption = (
        "The traces of these people on maps, each map on its own scale. The numbers are the order in which places are "
        "first visited; of places that are very near each other, only one has a number."
    )
    return Picture(person_maps(people), alt, caption)


def _who(data: ReportData, people: dict[str, Windows]) -> str:
    why = "is simulated" if data.source in SIMULATED else "agreed that their days are shown"
    return (
        f"The {people['real'].n_windows} real people are test users, whose data no synthesizer saw. Everybody in these "
        f"data {why}. A synthetic person has nothing to do with the real person of the same number."
    )
