"""Which places are visited most, and whether they are in the same order."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from ppmtf_jax.data.measurement import Quantity
from ppmtf_jax.evaluation.report.content import Content, Gauges, Table, percent
from ppmtf_jax.evaluation.report.gauges import gauge, utility_light
from ppmtf_jax.evaluation.report.material import REAL, SYNTHETIC, TRAINING, UNIFORM, Material, Unavailable
from ppmtf_jax.evaluation.report.registry import SECTIONS, UTILITY, SectionMaker

N_SHOWN = 10
RANK = Quantity(
    "place_rank",
    "Spearman's rank correlation",
    "Whether places that real people visit more are visited more: 1 is the same order, 0 no relation.",
    "rank correlation, -1 to 1",
    "higher",
    "near Training",
    "all places are visited equally often in one of the sets",
)


def make(material: Material) -> Content:
    """The rank correlation of visits, and the most visited places with their ranks."""
    counts = visits(material)
    correlation = {name: rank_correlation(counts[name], counts[REAL]) for name in (SYNTHETIC, TRAINING, UNIFORM)}
    gauges = Gauges((gauge(RANK, *correlation.values(), title="Order of the places by visits"),))
    light = utility_light("Are the most visited places the same?", gauges.items)
    return Content([gauges, _table(material, counts)], [light])


def visits(material: Material) -> dict[str, np.ndarray]:
    """Events of each set at each place; made traces at the hours at which real people are seen, where that can be."""
    try:
        found = {name: windows.place for name, windows in material.windows.items()}
    except Unavailable:
        found = {name: traces.place for name, traces in material.sets.items()}
    return {name: np.bincount(place, minlength=len(material.places)) for name, place in found.items()}


def rank_correlation(count: np.ndarray, other: np.ndarray) -> float:
    """Spearman's rank correlation over places that anybody visits; NaN where all are visited equally often.

    Examples
    --------
    >>> rank_correlation(np.array([5, 3, 1, 0]), np.array([9, 4, 2, 0]))
    1.0
    """
    known = (count > 0) | (other > 0)
    if known.sum() < 2 or np.ptp(count[known]) == 0 or np.ptp(other[known]) == 0:
        return math.nan
    return float(np.corrcoef(stats.rankdata(count[known]), stats.rankdata(other[known]))[0, 1])


def _table(material: Material, counts: dict[str, np.ndarray]) -> Table:
    most = np.argsort(-counts[REAL], kind="stable")[:N_SHOWN]
    most = most[counts[REAL][most] > 0]
    share = {name: count / count.sum() for name, count in counts.items()}
    rank = {name: stats.rankdata(-count, method="min").astype(int) for name, count in counts.items()}
    rows = [
        [
            name,
            percent(share[REAL][place], 2),
            percent(share[TRAINING][place], 2),
            percent(share[SYNTHETIC][place], 2),
            f"{rank[SYNTHETIC][place]} of {len(material.places):,}",
        ]
        for name, place in zip(material.place_names(most), most.tolist(), strict=True)
    ]
    caption = f"The {len(rows)} places that real test users visit most, in that order, and their share of all events"
    headings = ("Place", "Real, test users", "Real, training users", "Synthetic", "Its rank in synthetic traces")
    return Table(caption, headings, rows)


SECTIONS.register(
    SectionMaker(
        "places",
        UTILITY,
        "The most visited places",
        "A ranking of places by visits is often all that is asked for.",
        make,
    )
)
