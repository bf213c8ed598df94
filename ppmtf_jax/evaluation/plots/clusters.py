"""Clusters of users that a factorization found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ppmtf_jax.data.comparable import check_comparable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation.distributions import counts_to_shares, variation
from ppmtf_jax.evaluation.plots.maps import draw_map, draw_scale_bar, panel_inches, round_ticks, share_scale
from ppmtf_jax.evaluation.plots.style import LINE_COLOURS, label_slots, styled

TOP_USER_SHARE = 0.1


@runtime_checkable
class Factors(Protocol):
    """Factor matrices: a row for each user, place, next place or slot, a column for each cluster."""

    user: Any
    place: Any
    next_place: Any
    slot: Any


@styled
def user_clusters(factors: Factors, synthetic: Traces, train: Traces, *, n_clusters: int = 3) -> Figure:
    """Draw the user clusters that differ most from all users, as Figs. 8 and 12 of Murakami et al. 2021.

    A column of the user factor is a cluster; its users are the 10 % with the largest values. A row for each cluster
    shows the places of these users in the training and the synthetic traces, and the columns of the place and of the
    slot factor, normalized to a square sum of 1. Clusters are in descending order of `cluster_strength`. The
    factors have the shapes (users, rank), (places, rank), (places, rank) and (slots, rank), with the users of `train`.
    Raises `InputError`: they do not fit `train`.
    """
    check_comparable(training=train, synthetic=synthetic)
    user, place, slot = oriented_factors(factors.user, factors.place, factors.slot, train)
    members = [top_users(column) for column in user.T]
    strength = cluster_strength(members, train)
    chosen = np.argsort(-strength, kind="stable")[:n_clusters]
    maps = []
    for top in (members[cluster] for cluster in chosen):
        again = np.flatnonzero(np.isin(synthetic.user_ids, train.user_ids[top]))
        maps.append([100 * population_of(train, top), 100 * population_of(synthetic, again)])
    scale = share_scale(np.array(maps))
    factor_scale = share_scale(place[:, chosen].T)

    width, height = panel_inches(train.places, 2.2)
    figure = Figure(figsize=(3 * width + 3.6, height * len(chosen) + 1.3), layout="constrained")
    axes = figure.subplots(len(chosen), 4, squeeze=False, width_ratios=[1, 1, 1, 0.9])
    for row, cluster, (training, synthesized) in zip(axes, chosen, maps, strict=True):
        population = draw_map(row[0], train.places, training, scale)
        draw_map(row[1], train.places, synthesized, scale)
        loading = draw_map(row[2], train.places, place[:, cluster], factor_scale)
        draw_slot_factor(row[3], slot[:, cluster], train.time_grid.slot_labels())
        name = f"cluster {cluster + 1}, {len(members[cluster])} users"
        row[0].set_ylabel(f"{name}\n{strength[cluster]:.2f} from everybody (TV)")
    for ax, title in zip(axes[0], ("training events", "synthetic events", "place factor", "slot factor"), strict=True):
        ax.set_title(title)
    axes[-1, 3].set_xlabel("time of day")
    draw_scale_bar(axes[-1, 0], train.places)
    where = {"location": "bottom", "aspect": 30, "pad": 0.03, "shrink": 0.8}
    for drawn, ax, label in (
        (population, axes[:, :2], "share of the events of these users, %"),
        (loading, axes[:, 2], "place factor, unit square sum"),
    ):
        figure.colorbar(drawn, ax=ax, ticks=round_ticks(drawn.norm.vmax, 0.16), format="%g", label=label, **where)
    figure.suptitle("User clusters that differ most from everybody: the 10 % strongest users of a factor column")
    return figure


def oriented_factors(user: Any, place: Any, slot: Any, train: Traces) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The factors, with signs that make place and slot columns mostly positive; these columns have unit square sums.

    The signs of the products user * place * slot do not change if two of the three factors change sign. Raises
    `InputError` if the shapes of the factors do not fit `train`.
    """
    user, place, slot = (np.asarray(part, np.float64) for part in (user, place, slot))
    expected = (train.n_users, train.n_places, train.time_grid.n_slots)
    found = (len(user), len(place), len(slot))
    if found != expected:
        sizes = "factors of {} users, {} places, {} slots, as the training traces have"
        raise InputError("user clusters", [Problem(sizes.format(*expected), "{}, {}, {}".format(*found))])
    place_sign, slot_sign = (np.where(part.sum(axis=0) < 0, -1.0, 1.0) for part in (place, slot))

    def unit(columns: np.ndarray) -> np.ndarray:
        norm = np.sqrt((columns**2).sum(axis=0))
        return columns / np.where(norm > 0, norm, 1.0)

    return user * place_sign * slot_sign, unit(place * place_sign), unit(slot * slot_sign)


def top_users(loading: np.ndarray) -> np.ndarray:
    """Indices of the tenth of the users (at least one) with the largest values of a column of the user factor."""
    n_top = max(1, round(TOP_USER_SHARE * len(loading)))
    return np.sort(np.argsort(-loading, kind="stable")[:n_top])


def cluster_strength(members: Sequence[np.ndarray], train: Traces) -> np.ndarray:
    """Total variation between the population of the users of each cluster and that of all users, shape (clusters,)."""
    everybody = population_of(train)
    return np.array([variation(population_of(train, users), everybody) if len(users) else 0.0 for users in members])


def population_of(traces: Traces, users: np.ndarray | slice = slice(None)) -> np.ndarray:
    """Share of the events of some or all users at each place, shape (places,); NaN where they have no event."""
    chosen = np.zeros(traces.n_users, bool)
    chosen[users] = True
    return counts_to_shares(np.bincount(traces.place[chosen[traces.user]], minlength=traces.n_places))


def draw_slot_factor(ax: Axes, values: np.ndarray, labels: Sequence[str], n_labels: int = 5) -> None:
    """A bar for each slot."""
    ax.bar(np.arange(len(values)), values, color=LINE_COLOURS[0], width=0.85)
    label_slots(ax, labels, n_labels)
    ax.margins(x=0.02)
    ax.locator_params(axis="y", nbins=4)
