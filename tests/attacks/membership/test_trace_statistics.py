"""What synthetic traces have in common with a user's, against loops over dictionaries."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from ppmtf_jax.attacks.membership import trace_statistics
from ppmtf_jax.attacks.membership.trace_densities import log_density_per_event, windows_of
from ppmtf_jax.attacks.membership.trace_statistics import PSEUDO_COUNT, STATISTICS, statistics_of
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from tests.attacks.loops import days
from tests.support import minutes, places_in_line, random_traces, to_traces

N_PLACES = 5
# Three periods of four instants.
GRID = TimeGrid("2024-01-01T00:00:00", 3600, np.tile(np.arange(4, dtype=np.int32), 3), period=4)


def traces_of(seed: int, users: range) -> Traces:
    return random_traces(seed, users, places_in_line(N_PLACES), GRID, n_traces=2, keep=0.7, n_visited=4)


def share(count: int, total: int) -> float:
    return math.log((count + PSEUDO_COUNT) / (total + PSEUDO_COUNT * N_PLACES))


def by_loops(users: Traces, made: Traces, *, reach: int = 1) -> dict[str, list[float]]:
    near, steps = Counter(), Counter()
    model = [day for _, day in days(made)]
    for day in model:
        near.update((i + d, b) for i, b in day.items() for d in range(-reach, reach + 1))
        steps.update((day[i - 1], b) for i, b in day.items() if i - 1 in day)
    both = Counter(pair for day in model for pair in combinations(sorted(set(day.values())), 2))
    values: dict[str, dict[int, list[float]]] = {name: {} for name in ("visits", "moves", "pairs")}
    for user, day in days(users):
        for i, b in day.items():
            total = sum(n for (instant, _), n in near.items() if instant == i)
            values["visits"].setdefault(user, []).append(share(near[i, b], total))
            if i - 1 in day and day[i - 1] != b:
                total = sum(n for (a, _), n in steps.items() if a == day[i - 1])
                values["moves"].setdefault(user, []).append(share(steps[day[i - 1], b], total))
        for pair in combinations(sorted(set(day.values())), 2):
            values["pairs"].setdefault(user, []).append(math.log(both[pair] / PSEUDO_COUNT + 1))
    means = {name: [of.get(user, [0.0]) for user in range(users.n_users)] for name, of in values.items()}
    return {name: [sum(each) / len(each) for each in of] for name, of in means.items()}


def test_statistics_equal_those_of_loops() -> None:
    users, made = traces_of(0, range(6)), traces_of(10, range(4))
    windows, of_made = windows_of(users=users, made=made)
    found = dict(zip(STATISTICS, statistics_of(windows, of_made), strict=True))
    expected = by_loops(users, made)
    for name, values in expected.items():
        assert found[name] == pytest.approx(values), name
    assert found["visits"] != pytest.approx(by_loops(users, made, reach=0)["visits"], abs=1e-3)
    assert np.array_equal(found["kernel"], log_density_per_event(windows, of_made, "kernel"))
    assert np.array_equal(found["chain"], log_density_per_event(windows, of_made, "chain"))


def test_odd_users_have_finite_statistics() -> None:
    """Who never moves, is at places that nobody else is at, or has one event; and the same of the synthetic traces."""
    places, grid = places_in_line(4), minutes(4)
    still = to_traces([(u, 0, u, u) for u in range(3)], places, grid)
    elsewhere = to_traces([(u, 0, i, 3) for u in range(3) for i in range(4)], places, grid)
    for users, made in ((still, still), (still, elsewhere), (elsewhere, still)):
        found = dict(zip(STATISTICS, statistics_of(*windows_of(users=users, made=made)), strict=True))
        assert np.isfinite(list(found.values())).all()
        assert not found["moves"].any()
        assert not found["pairs"].any()


def test_of_many_windows_some_are_held_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second one of 8, beside those of six users, where 24 pairs are the most."""
    places = places_in_line(N_PLACES)
    users, made = (random_traces(seed, range(n), places, minutes(4)) for seed, n in ((0, 6), (1, 8)))
    monkeypatch.setattr(trace_statistics, "COMPARED_WINDOWS", 24)
    found = STATISTICS["kernel"](*windows_of(users=users, made=made))
    half = made.select_users(np.arange(0, 8, 2))
    windows, of_half = windows_of(users=users, half=half)
    assert found == pytest.approx(log_density_per_event(windows, of_half, "kernel"))
