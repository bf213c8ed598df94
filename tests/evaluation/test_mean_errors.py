"""Mean errors of population, transitions and co-locations, by loops over all cells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ppmtf_jax.colocation.counts import find_colocations
from ppmtf_jax.colocation.friends import FriendGraph
from ppmtf_jax.data.measurement import Comparison, NoSettings
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.evaluation.registry import METRICS
from tests.evaluation.test_friends import MADE, PERIOD, PLACES, REAL
from tests.support import minutes, places_in_line, random_traces

N_PLACES = 5


def traces(seed: int) -> Traces:
    return random_traces(seed, range(4), places_in_line(N_PLACES), minutes(9), keep=0.8, n_visited=N_PLACES - 1)


def by_loop(of: Traces) -> tuple[np.ndarray, np.ndarray]:
    """Population, and transition matrix in which a place that nobody leaves is always stayed at."""
    population, matrix = np.zeros(of.n_places), np.zeros((of.n_places, of.n_places))
    rows = list(zip(of.user.tolist(), of.instant.tolist(), of.place.tolist(), strict=True))
    for user, instant, place in rows:
        population[place] += 1 / len(rows)
        for other, later, there in rows:
            matrix[place, there] += user == other and later == instant + 1
    for place in range(of.n_places):
        matrix[place, place] += not matrix[place].any()
    return population, matrix / matrix.sum(axis=1, keepdims=True)


def measured(name: str, made: Traces, test: Traces, *, uniform: bool = False) -> list[float]:
    comparison = Comparison(made, test, test, test.time_grid.n_instants)
    metric = METRICS[name]
    return list((metric.uniform if uniform else metric.measure)(comparison, NoSettings()))


@pytest.mark.parametrize("number", [0, 1])
def test_errors_are_those_of_loops(number: int) -> None:
    made, test = traces(0), traces(1)
    error = by_loop(made)[number] - by_loop(test)[number]
    both = slice(2 * number, 2 * number + 2)
    assert measured("mean_errors", made, test)[both] == pytest.approx([np.abs(error).mean(), (error**2).mean()])
    chance = 1 / N_PLACES - by_loop(test)[number]
    uniform = measured("mean_errors", made, test, uniform=True)[both]
    assert uniform == pytest.approx([np.abs(chance).mean(), (chance**2).mean()])
    assert measured("mean_errors", test, test) == [0] * 4
    # Planted: without the cells that no trace has, the uniform errors are others.
    seen = chance[by_loop(test)[number] > 0]
    assert uniform[0] != pytest.approx(np.abs(seen).mean())


def test_transitions_are_undefined_without_a_step() -> None:
    still = traces(0).select_events(traces(0).instant == 0)
    for uniform in (False, True):
        found = measured("mean_errors", traces(1), still, uniform=uniform)
        assert np.isnan(found).tolist() == [False, False, True, True]
    assert METRICS["mean_errors"].quantities[3].text(1.23456e-6) == "1.23e-06"


def test_co_locations_by_instant_and_category() -> None:
    """Real friends are seen 2, 2, 1 and 0 times at the four instants, the synthetic ones twice at each of them."""

    def co_locations(of: Traces) -> np.ndarray:
        counts = find_colocations(of, FriendGraph.of(of)).counts(PERIOD).toarray()
        return np.stack([counts[:, PLACES.category == name].sum(axis=1) for name in ("bar", "home")], axis=1)

    error = co_locations(MADE) * np.array([2 / 2, 2 / 2, 1 / 2, 0])[:, None] - co_locations(REAL)
    assert error.any(axis=0).all()
    assert measured("friend_meetings", MADE, REAL)[-2:] == pytest.approx([np.abs(error).mean(), (error**2).mean()])
    # At random places, half of the meetings are in bars; one of four places is that of the friend.
    chance = np.array([2, 2, 1, 0])[:, None] / 4 / 2 - co_locations(REAL)
    found = measured("friend_meetings", MADE, REAL, uniform=True)[-2:]
    assert found == pytest.approx([np.abs(chance).mean(), (chance**2).mean()])
    # One category of all places is known, and so the errors are.
    of_one = [replace(each, places=replace(PLACES, category=np.full(4, "bar", object))) for each in (MADE, REAL)]
    error = error.sum(axis=1, keepdims=True)
    found = measured("friend_meetings", *of_one)[-3:]
    assert found == pytest.approx([0, np.abs(error).mean(), (error**2).mean()])
    unnamed = replace(REAL, places=replace(PLACES, category=None))
    assert np.isnan(measured("friend_meetings", unnamed, unnamed)[-2:]).all()
