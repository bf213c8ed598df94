"""Groups of similar people: whether traces made from a group have its places and hours (Figs. 8 and 12)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from ppmtf_jax.data.comparable import index_of_ids
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.evaluation.distributions import counts_to_shares, pair_counts
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
from ppmtf_jax.evaluation.report.blocks import Block, Details, Picture, Table, Text, percent
from ppmtf_jax.evaluation.report.gauges import gauges_of
from ppmtf_jax.evaluation.report.inputs import LEAST_VISITORS, ReportData
from ppmtf_jax.evaluation.report.registry import GROUPS, section
from ppmtf_jax.evaluation.results import SYNTHETIC, TRAINING
from ppmtf_jax.trace_models.metropolis_hastings import MetropolisHastings

N_CLUSTERS = 3
LEAST_USERS = 5
"""Smaller clusters are not shown: their maps would show what single people do."""
N_TOP_PLACES = 5


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
def make(data: ReportData) -> list[Block]:
    """Group-TV, and the clusters that differ most from everybody."""
    gauges = gauges_of(data, "clusters")
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
        if len(users) >= LEAST_USERS and own.sum() >= LEAST_USERS and len(found) < N_CLUSTERS:
            title = f"Cluster {number + 1}: {len(users):,} people, {what}"
            parts = train.select_users(users), data.synthetic.select_users(own)
            found.append(Cluster(number, title, *parts, float(strength[number])))
    return found, f"No cluster has {LEAST_USERS} people with synthetic traces; fewer would be single people."


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
        f"right places. Places with fewer than {LEAST_VISITORS} of these people are left out.",
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
