"""Groups of people who are alike: whether traces made from them are where and when they are (Figs. 8 and 12)."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from ppmtf_jax.data.comparable import index_of_ids
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.evaluation.distributions import counts_to_shares
from ppmtf_jax.evaluation.plots.bars import SYNTHETIC_COLOURS
from ppmtf_jax.evaluation.plots.clusters import oriented_factors, top_users
from ppmtf_jax.evaluation.plots.maps import draw_map, draw_scale_bar, panel_inches, share_scale
from ppmtf_jax.evaluation.plots.style import styled
from ppmtf_jax.evaluation.report.content import Block, Content, Details, Gauges, Light, Picture, Table, Text, percent
from ppmtf_jax.evaluation.report.drawing import draw_lines
from ppmtf_jax.evaluation.report.gauges import gauges_of, utility_light
from ppmtf_jax.evaluation.report.material import LEAST_VISITORS, SYNTHETIC, TRAINING, Material
from ppmtf_jax.evaluation.report.registry import GROUPS, SECTIONS, SectionMaker
from ppmtf_jax.trace_models.metropolis_hastings import MetropolisHastings

N_CLUSTERS = 3
LEAST_USERS = 5
"""Fewer people are no group: their map would show what single ones do."""
N_TOP_PLACES = 5


@runtime_checkable
class ClustersOfUsers(Protocol):
    """A trace model of which every user belongs to one cluster."""

    cluster: Any


class VisitFactors(NamedTuple):
    """Factors of the visits, which in ITF are others than those of the transitions.

    Attributes
    ----------
    user, place, next_place, slot : arrays, shapes (users, rank), (places, rank), (places, rank), (slots, rank)
        There is no next place in visits: it is the place.
    """

    user: Any
    place: Any
    next_place: Any
    slot: Any

    @classmethod
    def of(cls, model: MetropolisHastings) -> VisitFactors:
        """Those of a model."""
        return cls(model.visit_user, model.visit_place, model.visit_place, model.slot)


class Cluster(NamedTuple):
    """Users who are alike, and how far they are from everybody.

    Attributes
    ----------
    number : int
        Of the model's, from 0.
    title : str
    train, synthetic : Traces
        Of these users.
    strength : float
        Total variation between where they and all training users are.
    """

    number: int
    title: str
    train: Traces
    synthetic: Traces
    strength: float


def make(material: Material) -> Content:
    """Group fidelity, and the clusters that differ most from everybody."""
    gauges = gauges_of(material, {"group_fidelity": "Where and when the people of each neighbourhood are"})
    blocks: list[Block] = [gauges] if gauges.items else []
    if not material.users_known or material.synthetic.of_nobody:
        blocks.append(Text(("No clusters: nobody knows from whom each trace was made.",)))
        return Content(blocks, _lights(gauges))
    found, reason = strongest_clusters(material)
    if not found:
        blocks.append(Text((reason,)))
    for cluster in found:
        blocks += [_picture(material, cluster), _top_places(material, cluster)]
    model = material.model
    if found and model is not None and isinstance(model.trace_model, MetropolisHastings) and material.has_map:
        alt = "For each cluster a map of its column of the place factor, and bars of its column of the slot factor."
        caption = (
            "What the model itself knows of each cluster: where its people are (place factor) and when (slot factor), "
            "normalized to a square sum of 1."
        )
        picture = Picture(_draw_factors(material, found, model.trace_model), alt, caption)
        blocks.append(Details("The columns of the model's factors", (picture,)))
    return Content(blocks, _lights(gauges))


def strongest_clusters(material: Material) -> tuple[list[Cluster], str]:
    """The clusters of the model that differ most from everybody; if there is none, why."""
    model, train = material.model, material.train
    if model is None:
        return [], "The model is not in the folder, so that its clusters cannot be shown."
    if not np.array_equal(model.user_ids, train.user_ids):
        return [], "The model was learned from other users than these, so that its clusters cannot be shown."
    if isinstance(model.trace_model, MetropolisHastings):
        user, _, _ = oriented_factors(VisitFactors.of(model.trace_model), train)
        members = [top_users(column) for column in user.T]
        what = "the tenth with the largest values in a column of the user factor"
    elif isinstance(model.trace_model, ClustersOfUsers):
        cluster = np.asarray(model.trace_model.cluster)[: train.n_users]
        members = [np.flatnonzero(cluster == number) for number in range(int(cluster.max()) + 1)]
        what = "a cluster of the model"
    else:
        return [], f"{model.system} knows no groups of people, so that there are no clusters to show."
    strength = np.array([_distance(train, users) for users in members])
    found = []
    for number in np.argsort(-strength, kind="stable").tolist():
        users = members[number]
        own = index_of_ids(material.synthetic.user_ids, train.user_ids[users]) >= 0
        if len(users) >= LEAST_USERS and own.sum() >= LEAST_USERS and len(found) < N_CLUSTERS:
            title = f"Cluster {number + 1}: {len(users):,} people, {what}"
            parts = train.select_users(users), material.synthetic.select_users(own)
            found.append(Cluster(number, title, *parts, float(strength[number])))
    return found, f"No cluster has {LEAST_USERS} people with synthetic traces: fewer are no group, but single people."


def share_at_top_places(traces: Traces, top: np.ndarray) -> np.ndarray:
    """Share of the events of each slot that are at some places, shape (slots,); NaN for a slot without events."""
    n_slots = traces.time_grid.n_slots
    at_top = np.bincount(traces.slot, np.isin(traces.place, top), minlength=n_slots)
    n_events = np.bincount(traces.slot, minlength=n_slots)
    return np.divide(at_top, n_events, out=np.full(n_slots, np.nan), where=n_events > 0)


def _distance(train: Traces, users: np.ndarray) -> float:
    """Total variation between where some users and all are."""
    return float(np.abs(_shares(train.select_users(users)) - _shares(train)).sum() / 2) if len(users) else 0.0


def _shares(traces: Traces) -> np.ndarray:
    return counts_to_shares(np.bincount(traces.place, minlength=traces.n_places))


def _top(material: Material, cluster: Cluster) -> np.ndarray:
    most = np.argsort(-_shares(cluster.train), kind="stable")
    return most[material.is_shown(cluster.train)[most]][:N_TOP_PLACES]


def _picture(material: Material, cluster: Cluster) -> Picture:
    figure = _draw(material, cluster, _top(material, cluster))
    maps = "maps of the training and the synthetic events, and " if material.has_map else ""
    alt = f"{cluster.title}: {maps}the share of the events at its five most visited places over the day."
    caption = (
        f"{cluster.title}. They are {percent(cluster.strength)} away from where everybody is. The maps, and the two "
        "curves, should be alike: then the traces made from these people are where they are. Places where fewer than "
        f"{LEAST_VISITORS} of these people go are left out."
    )
    return Picture(figure, alt, caption)


@styled
def _draw(material: Material, cluster: Cluster, top: np.ndarray) -> Any:
    from matplotlib.figure import Figure

    sets = {"training": cluster.train, "synthetic": cluster.synthetic}
    width, height = panel_inches(material.places, 2.4) if material.has_map else (0.0, 2.4)
    n_maps = len(sets) if material.has_map else 0
    figure = Figure(figsize=(n_maps * width + 3.2, max(height, 2.2) + 0.3), layout="constrained")
    axes = figure.subplots(1, n_maps + 1, squeeze=False, width_ratios=[*[width] * n_maps, 3.0])[0]
    shown = material.is_shown(cluster.train)
    shares = [np.where(shown, 100 * _shares(traces), np.nan) for traces in sets.values()]
    for ax, name, share in zip(axes[:-1], sets, shares, strict=False):
        draw_map(ax, material.places, share, share_scale(np.array(shares)))
        ax.set_title(f"{name} events")
    if material.has_map:
        draw_scale_bar(axes[0], material.places)
    _draw_hours(axes[-1], cluster, top)
    return figure


@styled
def _draw_factors(material: Material, clusters: list[Cluster], model: MetropolisHastings) -> Any:
    from matplotlib.figure import Figure

    _, place, slot = oriented_factors(VisitFactors.of(model), material.train)
    width, height = panel_inches(material.places, 2.0)
    figure = Figure(figsize=(width * len(clusters) + 0.4, height + 1.9), layout="constrained")
    axes = figure.subplots(2, len(clusters), squeeze=False, height_ratios=[height, 1.2])
    labels = material.train.time_grid.slot_labels()
    every = -(-len(labels) // 3)
    for (on_map, by_hour), cluster in zip(axes.T, clusters, strict=True):
        shown = material.is_shown(cluster.train)
        values = np.where(shown, place[:, cluster.number], np.nan)
        draw_map(on_map, material.places, values, share_scale(values))
        on_map.set_title(f"cluster {cluster.number + 1}, place factor")
        by_hour.bar(np.arange(len(labels)), slot[:, cluster.number], width=0.85, color=SYNTHETIC_COLOURS[0])
        by_hour.set_xticks(np.arange(0, len(labels), every), labels[::every])
        by_hour.set_title("slot factor")
    return figure


def _draw_hours(ax: Any, cluster: Cluster, top: np.ndarray) -> None:
    sets = {TRAINING: cluster.train, SYNTHETIC: cluster.synthetic}
    labels = cluster.train.time_grid.slot_labels()
    slots = np.arange(len(labels))
    draw_lines(ax, slots, {name: 100 * share_at_top_places(traces, top) for name, traces in sets.items()})
    every = -(-len(labels) // 5)
    ax.set_xticks(slots[::every], labels[::every])
    ax.set(title=f"at its {len(top)} top places, percent", ylim=(0, None))
    ax.legend(frameon=False, fontsize=7)


def _top_places(material: Material, cluster: Cluster) -> Table:
    top = _top(material, cluster)
    shares = [_shares(traces)[top] for traces in (cluster.train, cluster.synthetic)]
    others = _shares(material.train)[top]
    rows = [
        [name, *(percent(value, 1) for value in values)]
        for name, *values in zip(material.place_names(top), *shares, others, strict=True)
    ]
    caption = f"{cluster.title.partition(':')[0]}: its {len(top)} most visited places, and their share of the events"
    return Table(caption, ("Place", "These people", "Synthetic", "Everybody"), rows)


def _lights(gauges: Gauges) -> list[Light]:
    question, if_poor = "Are groups of people kept apart?", "Do not ask these traces about a part of the people."
    return [utility_light(question, gauges.items, if_poor)] if gauges.items else []


SECTIONS.register(
    SectionMaker(
        "clusters",
        GROUPS,
        "People who are alike",
        "Students are at other places and hours than nurses. Traces of an average person would have the right totals, "
        "and be of no use to whoever asks about one part of the town. The number is held against the floor: how far "
        "half of a group is from all of it.",
        make,
    )
)
