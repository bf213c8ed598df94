"""Densities of traces against sums over dictionaries."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from ppmtf_jax.attacks.membership.trace_densities import CONCENTRATION, Density, log_density_per_event, windows_of
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from tests.attacks.loops import days
from tests.support import minutes, places_in_line, random_traces, to_traces

N_PLACES = 5
# Three periods of four instants in three slots.
GRID = TimeGrid("2024-01-01T00:00:00", 3600, np.tile(np.array([0, 0, 1, 2], np.int32), 3), period=4)
STRAY = 0.01


def traces_of(seed: int, users: range, *, n_traces: int = 2, keep: float = 0.7) -> Traces:
    return random_traces(seed, users, places_in_line(N_PLACES), GRID, n_traces=n_traces, keep=keep, n_visited=4)


def log_density(traces: Traces, model: Traces, density: Density = "chain", **others: float) -> np.ndarray:
    windows, of_model = windows_of(traces=traces, model=model)
    return log_density_per_event(windows, of_model, density, **others)


def slot(instant: int) -> int:
    return [0, 0, 1, 2][instant]


def chain_by_loop(traces: Traces, model: Traces, c: float) -> list[float]:
    place, of_slot, step, of_slot_step = Counter(), Counter(), Counter(), Counter()
    for _, day in days(model):
        for i, b in day.items():
            place[b] += 1
            of_slot[slot(i), b] += 1
            if i - 1 in day:
                step[day[i - 1], b] += 1
                of_slot_step[(slot(i), day[i - 1]), b] += 1

    def mixed(count: Counter, context: object, b: int, prior: float) -> float:
        total = sum(n for (where, _), n in count.items() if where == context)
        return (count[context, b] + c * prior) / (total + c)

    log, n_events = Counter(), Counter()
    for user, day in days(traces):
        for i, b in day.items():
            p = (place[b] + c / N_PLACES) / (place.total() + c)
            if i - 1 in day:
                a = day[i - 1]
                p = mixed(of_slot_step, (slot(i), a), b, mixed(step, a, b, p))
            else:
                p = mixed(of_slot, slot(i), b, p)
            log[user] += math.log(p)
            n_events[user] += 1
    return [log[user] / n_events[user] for user in range(traces.n_users)]


def kernel_by_loop(traces: Traces, model: Traces) -> list[float]:
    components = [day for _, day in days(model)]
    at = Counter((slot(i), b) for day in components for i, b in day.items())

    def background(i: int, b: int) -> float:
        n_slot = sum(n for (s, _), n in at.items() if s == slot(i))
        return (at[slot(i), b] + 1 / N_PLACES) / (n_slot + 1)

    log, n_events = Counter(), Counter()
    for user, day in days(traces):
        density = [
            math.prod(STRAY * background(i, b) + (1 - STRAY) * (component.get(i) == b) for i, b in day.items())
            for component in components
        ]
        log[user] += math.log(sum(density) / len(density))
        n_events[user] += len(day)
    return [log[user] / n_events[user] for user in range(traces.n_users)]


@pytest.mark.parametrize("concentration", [CONCENTRATION, 3.0])
def test_chain_equals_loops(concentration: float) -> None:
    traces, model = traces_of(0, range(3)), traces_of(1, range(6))
    found = log_density(traces, model, concentration=concentration)
    assert found == pytest.approx(chain_by_loop(traces, model, concentration))
    assert found != pytest.approx(chain_by_loop(traces, model, concentration * 1.1), rel=1e-4)


def test_kernel_equals_loops() -> None:
    traces, model = traces_of(0, range(3)), traces_of(1, range(6))
    found = log_density(traces, model, "kernel")
    assert found == pytest.approx(kernel_by_loop(traces, model))
    assert found != pytest.approx(kernel_by_loop(traces, traces_of(2, range(6))), rel=1e-3)


@pytest.mark.parametrize("density", ["chain", "kernel"])
def test_probabilities_of_all_traces_sum_to_1(density: Density) -> None:
    """Of three instants of which the first has no event, over a complete model."""
    grid, places = minutes(3), places_in_line(3)
    model = random_traces(0, range(7), places, grid)
    walks = [(3 * a + b, 0, 1 + i, (a, b)[i]) for a in range(3) for b in range(3) for i in range(2)]
    found = log_density(to_traces(walks, places, grid), model, density)
    assert np.exp(2 * found).sum() == pytest.approx(1)


@pytest.mark.parametrize("density", ["chain", "kernel"])
def test_odd_traces_have_finite_densities(density: Density) -> None:
    """One place alone, which is then certain; one event a trace, so that there is no step; a place of nobody else."""
    one, grid = places_in_line(1), minutes(4)
    certain = random_traces(0, range(3), one, grid)
    assert log_density(certain, certain, density) == pytest.approx(0, abs=1e-9)
    still = to_traces([(u, 0, u, u) for u in range(3)], places_in_line(4), grid)
    elsewhere = to_traces([(u, 0, i, 3) for u in range(3) for i in range(4)], places_in_line(4), grid)
    for traces, model in ((still, still), (still, elsewhere), (elsewhere, still)):
        assert np.isfinite(log_density(traces, model, density)).all()


def test_a_kernel_of_long_periods_stays_finite() -> None:
    """The density of a copied trace is far from those of others: exponentials beyond the range of a float."""
    places, grid = places_in_line(50), minutes(2000)
    traces = random_traces(0, range(3), places, grid)
    assert np.isfinite(log_density(traces, traces, "kernel")).all()


def test_grids_of_other_periods_are_an_error() -> None:
    with pytest.raises(InputError, match="as that of a; found others in b"):
        windows_of(a=traces_of(0, range(2)), b=random_traces(0, range(2), places_in_line(N_PLACES), minutes(4)))
