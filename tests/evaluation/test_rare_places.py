"""Rare places, counted by hand, and generators that forget them or overdo them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ppmtf_jax.data.measurement import Comparison
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.evaluation.metrics.rare_places import is_rare
from ppmtf_jax.evaluation.registry import METRICS
from tests.support import codes, minutes, places_in_line, to_traces

METRIC = METRICS["rare_places"]
SETTINGS = METRIC.settings()


def rare_by_loop(n_visits: list[int], share: float) -> list[bool]:
    """A place is rare if all places with as many visits or fewer have at most this share."""
    total = sum(n_visits)
    return [sum(other for other in n_visits if other <= each) <= share * total for each in n_visits]


@pytest.mark.parametrize("seed", range(5))
def test_rare_places_by_loop(seed):
    n_visits = np.random.default_rng(seed).integers(0, 9, size=12)
    for share in (0.05, 0.2, 0.5):
        assert is_rare(n_visits, share).tolist() == rare_by_loop(n_visits.tolist(), share)


def traces_at(counts: list[int], places=None, first_user: int = 0):
    """One user a place, with so many events there."""
    places = places or places_in_line(len(counts))
    rows = [(first_user + at, 0, instant, at) for at, count in enumerate(counts) for instant in range(count)]
    return to_traces(rows, places, minutes(100))


def numbers(made: list[int], train: list[int], test: list[int], places=None) -> list[float]:
    sets = [traces_at(counts, places, first) for first, counts in ((0, made), (0, train), (100, test))]
    return METRIC.measure(Comparison(*sets, 100), SETTINGS)


def test_numbers_by_hand():
    """Of 100 real events, 8 are at the rare places 1 and 2: 10 % of the synthetic events, 8 % of the test events."""
    visits, variation = numbers([90, 10, 0], [46, 2, 2], [46, 2, 2])
    assert visits == pytest.approx(np.log2((10.5 / 100.5) / (4.5 / 50.5)))
    # The places lie at both ends of other cells: all is at one of them, of the test events half.
    assert variation == pytest.approx(0.5)
    assert numbers([46, 2, 2], [46, 2, 2], [46, 2, 2]) == pytest.approx([0, 0])


def test_who_forgets_rare_places_or_overdoes_them_is_found():
    real = [60, 30, 5, 5]
    forgotten, _ = numbers([90, 10, 0, 0], real, real)
    overdone, _ = numbers([25, 25, 25, 25], real, real)
    assert forgotten < -4
    assert overdone > 1.5


def test_uniform_is_exact():
    sets = [traces_at([60, 30, 6, 4], first_user=first) for first in (0, 0, 100)]
    assert METRIC.uniform(Comparison(*sets, 100), SETTINGS)[0] == pytest.approx(
        np.log2((50.5 / 100.5) / (10.5 / 100.5))
    )


def test_no_rare_place_and_no_map():
    assert np.isnan(numbers([50, 50], [50, 50], [50, 50])).all()
    point = PlaceTable(np.arange(3), np.zeros(3), np.zeros(3))
    sets = [traces_at([46, 2, 2], point, first) for first in (0, 0, 100)]
    few, at_point = METRIC.reading(Comparison(*sets, 100), SETTINGS)
    assert codes(few) == ["few_values"]
    assert codes(at_point) == ["few_values", "one_point"]
    many = [replace(each, places=point) for each in (traces_at([99, 20, 20, 20][:3], point, n) for n in (0, 0, 100))]
    assert METRIC.reading(Comparison(*many, 100), replace(SETTINGS, share=0.5))[0].caveats == ()
