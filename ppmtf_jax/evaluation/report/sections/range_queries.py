"""How many are in some part of town at some hours: the error of random range queries."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ppmtf_jax.data.measurement import Quantity
from ppmtf_jax.evaluation.plots.style import DIM
from ppmtf_jax.evaluation.report.content import Content, Gauges, Picture
from ppmtf_jax.evaluation.report.drawing import LOOKS, panels
from ppmtf_jax.evaluation.report.gauges import gauge, utility_light
from ppmtf_jax.evaluation.report.material import REAL, SYNTHETIC, TRAINING, UNIFORM, Material
from ppmtf_jax.evaluation.report.registry import SECTIONS, UTILITY, SectionMaker

N_QUERIES = 500
QUESTION = "Are counts in a part of town right?"
SEED = 0
SMALLEST_SIDE, LARGEST_SIDE = 0.1, 0.5
"""Side of the box, as a share of that of the box around all places."""
SANITY_BOUND = 0.01
"""What a true answer is at least taken for, as a share of all events: errors of tiny answers must not outweigh all."""
ERROR = Quantity(
    "range_query_error",
    "Range-query error",
    f"Mean relative error of {N_QUERIES} random questions: which share of the events is in this box, at these hours?",
    "relative error",
    "lower",
    "near Training",
)


class Queries(NamedTuple):
    """Random boxes, each with a range of hours.

    Attributes
    ----------
    south, north, west, east : float arrays, shape (queries,)
        On the plane of the places, km.
    first, after : int arrays, shape (queries,)
        Slots.
    """

    south: np.ndarray
    north: np.ndarray
    west: np.ndarray
    east: np.ndarray
    first: np.ndarray
    after: np.ndarray


def make(material: Material) -> Content:
    """The mean error of random queries, and true against synthetic answers."""
    material.need_map()
    position_km = material.places.position_km()
    queries = random_queries(position_km, material.test.time_grid.n_slots)
    answers = {name: answer(presence, queries, position_km) for name, presence in material.presence.items()}
    errors = {name: mean_error(answers[name], answers[REAL]) for name in (SYNTHETIC, TRAINING, UNIFORM)}
    gauges = Gauges((gauge(ERROR, *errors.values(), title="Error of a count"),))
    figure = panels([partial(_draw, answers=answers)], size=(4.4, 3.6))
    alt = "A dot for each question: its true answer against that from synthetic traces."
    caption = (
        "A dot for each question. On the line the synthetic traces give the true answer; real training users, who are "
        "other people, do not give it exactly either."
    )
    if_poor = "Do not count people in districts by these traces."
    light = utility_light(QUESTION, gauges.items, if_poor)
    return Content([gauges, Picture(figure, alt, caption)], [light])


def random_queries(position_km: np.ndarray, n_slots: int, n_queries: int = N_QUERIES) -> Queries:
    """Boxes around random places, with sides of a tenth to a half of the town's, and random ranges of hours."""
    rng = np.random.default_rng(SEED)
    centre = position_km[rng.integers(len(position_km), size=n_queries)]
    half = np.ptp(position_km, axis=0) * rng.uniform(SMALLEST_SIDE, LARGEST_SIDE, (n_queries, 2)) / 2
    length = rng.integers(1, max(1, n_slots // 2), size=n_queries, endpoint=True)
    first = rng.integers(0, n_slots - length, endpoint=True)
    (south, west), (north, east) = (centre - half).T, (centre + half).T
    return Queries(south, north, west, east, first, first + length)


def answer(presence: np.ndarray, queries: Queries, position_km: np.ndarray) -> np.ndarray:
    """Share of the events in each box at its hours, shape (queries,).

    Parameters
    ----------
    presence : float array, shape (slots, places)
        Share of the events in each slot and place.
    queries : Queries
    position_km : float array, shape (places, 2)
    """
    before = np.concatenate([np.zeros((1, len(position_km))), np.cumsum(presence, axis=0)])
    north, east = position_km.T
    found = np.empty(len(queries.first))
    for number, (low, high, left, right, first, after) in enumerate(zip(*queries, strict=True)):
        inside = (north >= low) & (north <= high) & (east >= left) & (east <= right)
        found[number] = (before[after] - before[first])[inside].sum()
    return found


def mean_error(answers: np.ndarray, true: np.ndarray) -> float:
    """Mean relative error, with a sanity bound on true answers.

    Examples
    --------
    >>> round(mean_error(np.array([0.3, 0.0]), np.array([0.2, 0.001])), 6)
    0.3
    """
    return float(np.mean(np.abs(answers - true) / np.maximum(true, SANITY_BOUND)))


def _draw(ax: Any, *, answers: dict[str, np.ndarray]) -> None:
    true = 100 * answers[REAL]
    highest = max(100 * max(each.max() for each in (answers[REAL], answers[SYNTHETIC])), 1e-3)
    ax.plot([0, highest], [0, highest], color=DIM, linewidth=1)
    for name, marker in ((TRAINING, "x"), (SYNTHETIC, "o")):
        look = {"color": LOOKS[name]["color"], "label": LOOKS[name]["label"]}
        ax.plot(true, 100 * answers[name], marker, markersize=3.5, markerfacecolor="none", linestyle="none", **look)
    ax.set(
        xlabel="true answer (test users), percent of the events",
        ylabel="answer, percent",
        xlim=(0, None),
        ylim=(0, None),
    )


SECTIONS.register(
    SectionMaker(
        "range-queries",
        UTILITY,
        "Counts in a part of town",
        "How many people are in this district between these hours? Asked of many random districts and hours.",
        make,
        QUESTION,
    )
)
