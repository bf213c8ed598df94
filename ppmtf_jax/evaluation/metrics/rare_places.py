"""Rare-TV: whether the places with few visits have their visitors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ppmtf_jax.data.measurement import Comparison, Interpretation
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.evaluation.distributions import variation
from ppmtf_jax.evaluation.registry import Undefined, register_utility, variation_quantity
from ppmtf_jax.settings import Settings, Share

RARE_SHARE = 0.2
LEAST_EVENTS = 30


@dataclass(frozen=True)
class RareSettings(Settings, subject="rare places"):
    """Settings of Rare-TV.

    Parameters
    ----------
    share : float
        Share of the test events that are at rare places.
    """

    share: Share = RARE_SHARE


def visits(traces: Traces) -> np.ndarray:
    """Number of events at each place, shape (places,)."""
    return np.bincount(traces.place, minlength=traces.n_places)


def rare_places(of_place: np.ndarray, share: float) -> np.ndarray:
    """The least visited places that together have at most this share of the visits, shape (rare places,).

    Places with equally many visits are all rare or all not rare. Places without a visit are rare.

    Examples
    --------
    >>> rare_places(np.array([80, 0, 9, 9, 2]), 0.2).tolist(), rare_places(np.array([80, 0, 9, 9, 2]), 0.15).tolist()
    ([1, 4, 2, 3], [1, 4])
    """
    order = np.argsort(of_place, kind="stable")
    up_to = np.cumsum(of_place[order])
    # The visits of all places with at most as many visits as this place.
    last = np.searchsorted(of_place[order], of_place[order], side="right") - 1
    return order[up_to[last] <= share * of_place.sum()]


def _rare(comparison: Comparison, settings: RareSettings) -> tuple[np.ndarray, np.ndarray]:
    """The rare places, and the distribution of the test events over them; raises `Undefined` if there are none."""
    test = comparison.statistic(visits, comparison.test)
    rare = rare_places(test, settings.share)
    if not test[rare].sum():
        raise Undefined
    return rare, test[rare] / test[rare].sum()


def _measure(comparison: Comparison, settings: RareSettings) -> list[float]:
    rare, expected = _rare(comparison, settings)
    found = comparison.statistic(visits, comparison.traces)[rare]
    if not found.sum():
        return [1.0]
    return [float(variation(found / found.sum(), expected))]


def _uniform(comparison: Comparison, settings: RareSettings) -> list[float]:
    rare, expected = _rare(comparison, settings)
    return [float(variation(np.full(len(rare), 1 / len(rare)), expected))]


def _reading(comparison: Comparison, settings: RareSettings) -> list[Interpretation]:
    rare, _ = _rare(comparison, settings)
    n_events = int(comparison.statistic(visits, comparison.test)[rare].sum())
    caveat = f"The test users have only {n_events} events at rare places, so chance decides"
    return [Interpretation(caveat=caveat if n_events < LEAST_EVENTS else "")]


register_utility(
    variation_quantity(
        "rare_tv",
        "Rare-TV",
        "Total variation between the distributions of synthetic and of test events over rare places: the least visited "
        "places, which together have at most a share of {share:g} of the test events.",
        "no place has so few test events",
    ),
    measure=_measure,
    uniform=_uniform,
    settings=RareSettings,
    reading=_reading,
)
