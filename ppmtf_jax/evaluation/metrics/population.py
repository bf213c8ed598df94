"""TP-TV: distance between the populations (distributions of the events over places) of each slot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ppmtf_jax.data.comparable import check_comparable
from ppmtf_jax.data.description import percent
from ppmtf_jax.data.measurement import Comparison, Interpretation, caveat_if
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.evaluation.distributions import pair_counts, total_variation
from ppmtf_jax.evaluation.judgement import LARGE_PART
from ppmtf_jax.evaluation.registry import register_utility, variation_quantity
from ppmtf_jax.settings import Count, Settings

N_TOP = 50


@dataclass(frozen=True)
class PopulationSettings(Settings, subject="TP-TV"):
    """Settings of TP-TV.

    Parameters
    ----------
    n_top : int
        Number of most visited places of each slot that count for TP-TV-Top (50: TP-TV-Top50).
    """

    n_top: Count = N_TOP


def population_by_slot(traces: Traces) -> np.ndarray:
    """Distribution of the events of each slot over places, shape (slots, places); uniform for a slot without events."""
    count = pair_counts(traces.slot, traces.place, (traces.time_grid.n_slots, traces.n_places)).toarray()
    total = count.sum(axis=1, keepdims=True)
    return np.where(total > 0, count / np.maximum(total, 1), 1 / traces.n_places)


def tp_tv(traces: Traces, test: Traces) -> float:
    """TP-TV with all trace numbers pooled: total variation between the populations, averaged over the slots.

    See Murakami et al. 2021, section 4.3. The sets have the same places and the same number of slots.
    """
    check_comparable(traces=traces, test=test)
    return total_variation(population_by_slot(traces), population_by_slot(test))


def _measure(comparison: Comparison, settings: PopulationSettings) -> list[float]:
    return _variations(comparison.statistic(population_by_slot, comparison.traces), comparison, settings)


def _uniform(comparison: Comparison, settings: PopulationSettings) -> list[float]:
    test = comparison.test
    return _variations(np.full((test.time_grid.n_slots, test.n_places), 1 / test.n_places), comparison, settings)


def _variations(population: np.ndarray, comparison: Comparison, settings: PopulationSettings) -> list[float]:
    test = comparison.statistic(population_by_slot, comparison.test)
    top = np.argsort(-test, axis=1, kind="stable")[:, : settings.n_top]
    at_top = (np.take_along_axis(each, top, axis=1) for each in (population, test))
    return [total_variation(population, test), total_variation(*at_top)]


def _reading(comparison: Comparison, settings: PopulationSettings) -> list[Interpretation]:
    test = comparison.test
    empty = 1 - len(np.unique(test.slot)) / test.time_grid.n_slots
    text = (
        f"{percent(empty)} of the slots have no test event and count as uniform, so scattered traces score well there"
    )
    return [Interpretation(caveats=caveat_if(empty > LARGE_PART, "empty_slots", text))] * 2


register_utility(
    variation_quantity(
        "tp_tv",
        "TP-TV",
        "Total variation between the distributions over places of the synthetic and the test events, averaged "
        "over the slots.",
        plain="Where people are",
        section="population",
        uses=("population",),
    ),
    variation_quantity(
        "tp_tv_top{n_top}",
        "TP-TV-Top{n_top}",
        "TP-TV over the {n_top} places that the test users visit most in each slot.",
        plain="Where people are, the {n_top} busiest places alone",
        section="population",
        uses=("population",),
    ),
    measure=_measure,
    uniform=_uniform,
    settings=PopulationSettings,
    per_trace_number=True,
    pools_gaps=True,
    reading=_reading,
)
