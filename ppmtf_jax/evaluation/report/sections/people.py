"""Single persons and groups: days, times, pictures of ten people, and clusters of people who are alike."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from ppmtf_jax.data.comparable import index_of_ids
from ppmtf_jax.data.time_grid import DAY_S
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows, is_complete
from ppmtf_jax.evaluation.distributions import counts_to_shares, pair_counts
from ppmtf_jax.evaluation.plots import person_maps, person_timelines
from ppmtf_jax.evaluation.plots.curves import draw_lines
from ppmtf_jax.evaluation.plots.maps import (
    cluster_strength,
    draw_map,
    draw_scale_bar,
    draw_slot_factor,
    oriented_factors,
    panel_inches,
    population_of,
    share_scale,
    top_users,
)
from ppmtf_jax.evaluation.plots.style import label_slots, styled
from ppmtf_jax.evaluation.report.compose import GROUPS, UTILITY, section, utility_finding
from ppmtf_jax.evaluation.report.inputs import MIN_VISITORS, ReportData, Unavailable, if_available
from ppmtf_jax.evaluation.report.page import Block, Details, Picture, Table, Text, percent
from ppmtf_jax.evaluation.results import SYNTHETIC, TRAINING
from ppmtf_jax.streams import Stage, numpy_stream
from ppmtf_jax.trace_models.metropolis_hastings import MetropolisHastings

SIMULATED = ("toy-city",)
"""Data sets of simulated people, whose days can be shown to anybody."""
N_PERSONS, MIN_EVENTS, SEED = 10, 2, 0
QUESTION_OF_EVENTS = "Are people seen as often, and at the same times, as real people?"
NO_REAL = (
    "No days of real people are shown: they would reveal who these people are. Days from the data are shown only for "
    "simulated people, such as those of the toy city, or with `--consent`, if all people of the data agreed to it."
)
NUMBERS = (
    "A bar is a stay at one place. Its number and colour say which of the person's places it is: 1 is the most visited "
    "place, often the home. Where there is no bar, nothing is known."
)
N_CLUSTERS, N_TOP_PLACES = 3, 5
MIN_USERS = 5
"""Smaller clusters are not shown: their maps would show what single people do."""


@section(
    "persons",
    UTILITY,
    "Days of persons",
    "People come home, go back to places that they know, and are at the same few places on most days. Traces can have "
    "the right number of people at each place and hour, and still not look like the traces of persons.",
    question="Do people come back to their places as real people do?",
    if_poor="Do not follow single persons through these traces.",
)
def persons(data: ReportData) -> list[Block]:
    """Gauges of memory, and ten persons drawn at random."""
    return [data.gauges("persons"), *if_available(lambda: _pictures(data))]


@section(
    "events",
    UTILITY,
    "When people are seen",
    "People check in, or use their telephones, at some hours only. If synthetic traces have gaps, the gaps should be "
    "like those of real traces.",
)
def events(data: ReportData) -> list[Block]:
    """Gauges of the events of traces with gaps."""
    if is_complete(data.synthetic):
        raise Unavailable("These traces have no gaps: they say where a person is at every instant.")
    gauges = data.gauges("events")
    # The question is not part of the section, because complete traces have no answer to it.
    return [utility_finding(QUESTION_OF_EVENTS, gauges.items), gauges]


def _pictures(data: ReportData) -> list[Block]:
    length = data.synthetic.time_grid.n_instants
    people = {"synthetic": _drawn(tested(data), length)}
    is_simulated = data.source in SIMULATED
    real_is_shown = is_simulated or data.settings.consent
    if real_is_shown:
        people["real"] = _drawn(data.test, length)
    day = DAY_S // data.synthetic.time_grid.step_s
    blocks: list[Block] = [_timelines(people, "whole traces" if length > day > 0 else "days")]
    if length > day > 0:
        blocks.append(_timelines({name: _one_each(windows.days()) for name, windows in people.items()}, "days"))
    if data.has_map:
        maps = Picture(
            person_maps(people),
            f"Maps of the routes of {_listed(people)} people, with arrows from each place to the next one.",
            "The traces of these people on maps, each map on its own scale. The numbers are the order in which places "
            "are first visited; of places that are very near each other, only one has a number.",
        )
        blocks.append(maps)
    if not real_is_shown:
        return [*blocks, Text((NO_REAL,))]
    why = "is simulated" if is_simulated else "agreed that their days are shown"
    who = (
        f"The {people['real'].n_windows} real people are test users, whose data no synthesizer saw. Everybody in these "
        f"data {why}. A synthetic person has nothing to do with the real person of the same number."
    )
    return [*blocks, Text((who,))]


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


def _drawn(traces: Traces, length: int) -> Windows:
    """A window of at least two events for each of up to `N_PERSONS` random people; `Unavailable` if there is none."""
    windows = Windows.of(traces, length).with_events(MIN_EVENTS)
    if not windows.n_windows:
        raise Unavailable("No days are shown: no trace has two events.")
    return _one_each(windows)


def _one_each(windows: Windows) -> Windows:
    """A random window for each of up to `N_PERSONS` random people, if possible with at least two events."""
    few = windows.events_per_window() < MIN_EVENTS
    shuffled = numpy_stream(SEED, Stage.SHOWN_PEOPLE).permutation(windows.n_windows)
    shuffled = shuffled[np.argsort(few[shuffled], kind="stable")]
    _, first = np.unique(windows.user[shuffled], return_index=True)
    chosen = np.zeros(windows.n_windows, bool)
    chosen[shuffled[np.sort(first)[:N_PERSONS]]] = True
    return windows.select(chosen)


def _timelines(people: dict[str, Windows], what: str) -> Picture:
    sets = _listed(people)
    return Picture(
        person_timelines(people),
        f"Timelines, a row for each person: {what} of {sets} people, as bars of stays at places.",
        f"The {what} of {sets} people, drawn at random. {NUMBERS}",
    )


def _listed(people: dict[str, Windows]) -> str:
    return " and ".join(f"{windows.n_windows} {name}" for name, windows in people.items())


# Groups


class Cluster(NamedTuple):
    """Similar users, their traces, and the total variation between their population and that of all training users."""

    number: int
    title: str
    train: Traces
    synthetic: Traces
    strength: float

    @property
    def sets(self) -> dict[str, Traces]:
        return {TRAINING: self.train, SYNTHETIC: self.synthetic}

    def shares(self) -> dict[str, np.ndarray]:
        """Share of the events at each place."""
        return {name: population_of(traces) for name, traces in self.sets.items()}


@section(
    "clusters",
    GROUPS,
    "People who are alike",
    "Students are at other places and hours than nurses. Traces of an average person would have the right totals, but "
    "they would be useless for questions about one part of the town. The number is compared with the floor: the "
    "distance between half of a group and the whole group.",
    question="Are groups of people kept apart?",
    if_poor="Do not use these traces for questions about a part of the people.",
)
def clusters(data: ReportData) -> list[Block]:
    """Group-TV, and the clusters that differ most from everybody."""
    gauges = data.gauges("clusters")
    blocks: list[Block] = [gauges] if gauges.items else []
    if not data.has_known_users:
        return [*blocks, Text((f"No clusters of these traces: {data.no_users}.",))]
    found, reason = strongest_clusters(data)
    if not found:
        return [*blocks, Text((reason,))]
    for cluster in found:
        blocks += _blocks_of(data, cluster)
    model = data.model
    if model is not None and isinstance(model.trace_model, MetropolisHastings) and data.has_map:
        picture = Picture(
            _draw_factors(data, found, model.trace_model),
            "For each cluster a map of its column of the place factor, and bars of its column of the slot factor.",
            "What the model has learned about each cluster: where its people are (place factor) and when (slot "
            "factor), normalized to a square sum of 1.",
        )
        blocks.append(Details("The columns of the model's factors", (picture,)))
    return blocks


def strongest_clusters(data: ReportData) -> tuple[list[Cluster], str]:
    """The clusters of the model that differ most from everybody, and the reason if there is none."""
    model, train = data.model, data.train
    if model is None:
        return [], "The model is not in the folder, so its clusters cannot be shown."
    # The training users may be a sample of the users of the model.
    of_model = index_of_ids(train.user_ids, model.user_ids)
    if (of_model < 0).any():
        return [], "The model was learned from other users, so its clusters cannot be shown."
    if isinstance(model.trace_model, MetropolisHastings):
        user, _, _ = _factors(model.trace_model, of_model, train)
        members = [top_users(column) for column in user.T]
        what = "the tenth with the largest values in a column of the user factor"
    elif (of_user := getattr(model.trace_model, "cluster", None)) is not None:
        cluster = np.asarray(of_user)[of_model]
        members = [np.flatnonzero(cluster == number) for number in range(int(cluster.max()) + 1)]
        what = "a cluster of the model"
    else:
        return [], f"{model.system} has no groups of people, so there are no clusters to show."
    strength, found = cluster_strength(members, train), []
    for number in np.argsort(-strength, kind="stable").tolist():
        users = members[number]
        own = index_of_ids(data.synthetic.user_ids, train.user_ids[users]) >= 0
        if len(users) >= MIN_USERS and own.sum() >= MIN_USERS and len(found) < N_CLUSTERS:
            title = f"Cluster {number + 1}: {len(users):,} people, {what}"
            parts = train.select_users(users), data.synthetic.select_users(own)
            found.append(Cluster(number, title, *parts, float(strength[number])))
    return found, f"No cluster has {MIN_USERS} people with synthetic traces; fewer would be single people."


def _factors(model: MetropolisHastings, users: np.ndarray, train: Traces) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The factors of the visit tensor, of some users; in ITF they differ from the factors of the transition tensor."""
    return oriented_factors(model.visit_user[users], model.visit_place, model.slot, train)


def share_at_top_places(traces: Traces, top: np.ndarray) -> np.ndarray:
    """Share of the events of each slot that are at some places, shape (slots,); NaN for a slot without events."""
    is_top = np.isin(traces.place, top).astype(int)
    return counts_to_shares(pair_counts(traces.slot, is_top, (traces.time_grid.n_slots, 2)).toarray())[:, 1]


def _blocks_of(data: ReportData, cluster: Cluster) -> list[Block]:
    shares, shown = cluster.shares(), data.is_shown(cluster.train)
    most = np.argsort(-shares[TRAINING], kind="stable")
    top = most[shown[most]][:N_TOP_PLACES]
    maps = "maps of the training and the synthetic events, and " if data.has_map else ""
    alike = "The two maps should be alike, and so should the two curves" if maps else "The two curves should be alike"
    picture = Picture(
        _draw_cluster(data, cluster, top),
        f"{cluster.title}: {maps}the share of the events at its five most visited places over the day.",
        f"{cluster.title}. Their distribution over places differs by {percent(cluster.strength)} from that of all "
        f"people. {alike}: then the traces made from these people are at the "
        f"right places. Places with fewer than {MIN_VISITORS} of these people are left out.",
    )
    columns = [each[top] for each in (*shares.values(), population_of(data.train))]
    cells = ([percent(value, 1) for value in column.tolist()] for column in columns)
    rows = list(zip(data.place_names(top), *cells, strict=True))
    caption = f"{cluster.title.partition(':')[0]}: its {len(top)} most visited places, and their share of the events"
    return [picture, Table(caption, ("Place", "These people", "Synthetic", "Everybody"), rows)]


@styled
def _draw_cluster(data: ReportData, cluster: Cluster, top: np.ndarray) -> Figure:
    """Maps of training and synthetic events, if there are coordinates, and the share at the top places by hour."""
    shares, shown = cluster.shares(), data.is_shown(cluster.train)
    width, height = panel_inches(data.places, 2.4) if data.has_map else (0.0, 2.4)
    n_maps = len(shares) if data.has_map else 0
    figure = Figure(figsize=(n_maps * width + 3.2, max(height, 2.2) + 0.3), layout="constrained")
    *maps, hours = figure.subplots(1, n_maps + 1, squeeze=False, width_ratios=[*[width] * n_maps, 3.0])[0]
    percents = {name: np.where(shown, 100 * share, np.nan) for name, share in shares.items()}
    scale = share_scale(np.array(list(percents.values())))
    for ax, (name, values) in zip(maps, percents.items(), strict=False):
        draw_map(ax, data.places, values, scale)
        ax.set_title(f"{name} events")
    if maps:
        draw_scale_bar(maps[0], data.places)
    labels = data.train.time_grid.slot_labels()
    lines = {name: 100 * share_at_top_places(traces, top) for name, traces in cluster.sets.items()}
    draw_lines(hours, np.arange(len(labels)), lines)
    label_slots(hours, labels, 5)
    hours.set(title=f"at its {len(top)} top places, percent", ylim=(0, None))
    hours.legend(frameon=False, fontsize=7)
    return figure


@styled
def _draw_factors(data: ReportData, clusters: list[Cluster], model: MetropolisHastings) -> Figure:
    # The place and the slot factor do not depend on the users.
    _, place, slot = _factors(model, np.arange(data.train.n_users), data.train)
    width, height = panel_inches(data.places, 2.0)
    figure = Figure(figsize=(width * len(clusters) + 0.4, height + 1.9), layout="constrained")
    axes = figure.subplots(2, len(clusters), squeeze=False, height_ratios=[height, 1.2])
    labels = data.train.time_grid.slot_labels()
    for (on_map, by_hour), cluster in zip(axes.T, clusters, strict=True):
        values = np.where(data.is_shown(cluster.train), place[:, cluster.number], np.nan)
        draw_map(on_map, data.places, values, share_scale(values))
        on_map.set_title(f"cluster {cluster.number + 1}, place factor")
        draw_slot_factor(by_hour, slot[:, cluster.number], labels, 3)
        by_hour.set_title("slot factor")
    return figure
