"""TP-TV: how far the population of each slot is from where it should be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ppmtf_jax.data.comparable import check_comparable
from ppmtf_jax.data.measurement import Comparison, Measurement, Quantity, Reading
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.evaluation.distributions import total_variation
from ppmtf_jax.evaluation.registry import LARGE_PART, METRICS, NEAR_TRAINING
from ppmtf_jax.settings import Count, Settings

N_TOP = 50


@dataclass(frozen=True)
class PopulationSettings(Settings, subject="TP-TV"):
    """Settings of TP-TV.

    Parameters
    ----------
    n_top : int
        Number of places that count for TP-TV-Top50.

    Raises
    ------
    InputError
        There is none.
    """

    n_top: Count = N_TOP


def population_by_slot(traces: Traces) -> np.ndarray:
    """Distribution of the events of each slot over places; uniform for a slot without events.

    Returns
    -------
    float64 array, shape (slots, places)

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> bool(np.allclose(population_by_slot(toy_city(n_users=5, seed=0).traces).sum(axis=1), 1))
    True
    """
    n_slots, n_places = traces.time_grid.n_slots, traces.n_places
    cell = traces.slot.astype(np.int64) * n_places + traces.place
    count = np.bincount(cell, minlength=n_slots * n_places).reshape(n_slots, n_places).astype(np.float64)
    total = count.sum(axis=1, keepdims=True)
    return np.where(total > 0, count / np.maximum(total, 1), 1 / n_places)


def tp_tv(traces: Traces, test: Traces) -> float:
    """TP-TV of `traces`, all trace numbers taken together: total variation between populations, over the slots.

    Raises
    ------
    InputError
        The numbers of slots or the place tables differ.

    References
    ----------
    Murakami et al. 2021, section 4.3.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=5, seed=0).traces
    >>> tp_tv(traces, traces)
    0.0
    """
    check_comparable(traces=traces, test=test)
    return total_variation(population_by_slot(traces), population_by_slot(test))


def tp_tv_top50(traces: Traces, test: Traces, *, n_top: int = N_TOP) -> float:
    """TP-TV over the `n_top` places most visited in each slot of the test traces (ties: first in the place table).

    Raises
    ------
    InputError
        The numbers of slots or the place tables differ.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=20, seed=0).traces.split_users(0.5, seed=0)
    >>> tp_tv_top50(train, test) < tp_tv(train, test)
    True
    """
    check_comparable(traces=traces, test=test)
    return _top_variation(population_by_slot(traces), population_by_slot(test), n_top)


def _top_variation(population: np.ndarray, test: np.ndarray, n_top: int) -> float:
    top = np.argsort(-test, axis=1, kind="stable")[:, :n_top]
    return total_variation(np.take_along_axis(population, top, axis=1), np.take_along_axis(test, top, axis=1))


def _measure(comparison: Comparison, settings: PopulationSettings) -> list[float]:
    return _variations(comparison.statistic(population_by_slot, comparison.traces), comparison, settings)


def _uniform(comparison: Comparison, settings: PopulationSettings) -> list[float]:
    test = comparison.test
    everywhere = np.full((test.time_grid.n_slots, test.n_places), 1 / test.n_places)
    return _variations(everywhere, comparison, settings)


def _variations(population: np.ndarray, comparison: Comparison, settings: PopulationSettings) -> list[float]:
    test = comparison.statistic(population_by_slot, comparison.test)
    return [total_variation(population, test), _top_variation(population, test, settings.n_top)]


def _reading(comparison: Comparison, settings: PopulationSettings) -> list[Reading]:
    test = comparison.test
    empty = 1 - len(np.unique(test.slot)) / test.time_grid.n_slots
    caveat = f"{empty:.0%} of the slots have no test event and count as uniform, so scattered traces score well there"
    return [Reading(caveat=caveat if empty > LARGE_PART else "")] * 2


METRICS.register(
    Measurement(
        "tp_tv",
        "utility",
        (
            Quantity(
                "tp_tv",
                "TP-TV",
                "Total variation between the distributions over places of the synthetic and the test events, averaged "
                "over the slots.",
                "total variation, 0 to 1",
                "lower",
                NEAR_TRAINING,
            ),
            Quantity(
                "tp_tv_top{n_top}",
                "TP-TV-Top{n_top}",
                "TP-TV where only the {n_top} places that the test users visit most in the slot count.",
                "total variation, 0 to 1",
                "lower",
                NEAR_TRAINING,
            ),
        ),
        _measure,
        _uniform,
        PopulationSettings,
        per_trace_number=True,
        reading=_reading,
    )
)
