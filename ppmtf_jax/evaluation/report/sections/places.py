"""Which places are visited most, and whether they are in the same order."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from ppmtf_jax.data.measurement import MetricInfo
from ppmtf_jax.evaluation.metrics.population import N_TOP
from ppmtf_jax.evaluation.report.blocks import Block, Table, percent
from ppmtf_jax.evaluation.report.gauges import gauge_of_presence
from ppmtf_jax.evaluation.report.inputs import LEAST_VISITORS, ReportData
from ppmtf_jax.evaluation.report.registry import UTILITY, section
from ppmtf_jax.evaluation.results import REAL, SYNTHETIC, TRAINING

N_SHOWN = 10
RANK = MetricInfo(
    "place_rank",
    "Spearman's rank correlation",
    f"Whether the {N_TOP} places that test users visit most are in the same order: 1 is the same, 0 no relation.",
    "rank correlation, -1 to 1",
    "higher",
    undefined="all places are visited equally often in one of the sets",
    scale="share",
    plain="Order of the places by visits",
)


@section(
    "places",
    UTILITY,
    "The most visited places",
    "Many questions need only a ranking of places by visits.",
    question="Are the most visited places the same?",
    if_poor="Do not rank places by these traces.",
)
def make(data: ReportData) -> list[Block]:
    """The rank correlation of visits, and the most visited places with their ranks."""

    def correlation(presence: np.ndarray, test: np.ndarray) -> float:
        return correlation_at_top(presence.sum(axis=0), test.sum(axis=0))

    # The number of Uniform is 0, because equally often visited places have no order.
    gauges = gauge_of_presence(data, RANK, correlation, uniform=0.0)
    return [gauges, _table(data, {name: presence.sum(axis=0) for name, presence in data.presence.items()})]


def correlation_at_top(share: np.ndarray, test: np.ndarray) -> float:
    """Rank correlation of the visits at the places that test users visit most.

    Ranks over all places would mislead: a rarely visited place is in the data only because training or test users visit
    it, so a rare place with few visits of one set tends to have more visits of the other set.
    """
    top = np.argsort(-test, kind="stable")[:N_TOP]
    return rank_correlation(share[top], test[top])


def rank_correlation(share: np.ndarray, other: np.ndarray) -> float:
    """Spearman's rank correlation of the visits of places; NaN where all are visited equally often."""
    if len(share) < 2 or np.ptp(share) == 0 or np.ptp(other) == 0:
        return math.nan
    return float(np.corrcoef(stats.rankdata(share), stats.rankdata(other))[0, 1])


def _table(data: ReportData, share: dict[str, np.ndarray]) -> Table:
    most = np.argsort(-share[REAL], kind="stable")
    most = most[data.is_shown(data.test)[most]][:N_SHOWN]
    rank = {name: stats.rankdata(-each, method="min").astype(int) for name, each in share.items()}
    rows = [
        [
            name,
            *(percent(share[each][place], 2) for each in (REAL, TRAINING, SYNTHETIC)),
            f"{rank[REAL][place]:,}",
            f"{rank[SYNTHETIC][place]:,}",
        ]
        for name, place in zip(data.place_names(most), most.tolist(), strict=True)
    ]
    caption = (
        f"The places that test users visit most, at least {LEAST_VISITORS} of them each: their share of the events, "
        f"and their rank among {len(data.places):,}"
    )
    headings = ("Place", "Test users", "Training users", "Synthetic", "Rank, test users", "Rank, synthetic")
    return Table(caption, headings, rows)
