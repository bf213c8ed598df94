"""Unicity against all choices of points."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from ppmtf_jax.attacks.unicity import unicity
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.errors import InputError
from tests.attacks.loops import walks
from tests.support import minutes, places_in_line, random_traces, to_traces


def unique_by_loop(everybody: list[dict[int, int]], n_points: int) -> float:
    """Probability that no other walk has a walk's points, all choices equally probable; averaged over the walks."""
    shares = []
    for number, walk in enumerate(everybody):
        others = [set(other.items()) for n, other in enumerate(everybody) if n != number]
        choices = list(combinations(walk.items(), min(n_points, len(walk))))
        shares.append(np.mean([not any(set(points) <= other for other in others) for points in choices]))
    return float(np.mean(shares))


def test_unicity_is_that_of_all_choices_of_points() -> None:
    """Each user has one window. The tolerance is five standard errors of the mean of all repetitions."""
    n_users, n_repeats = 12, 100
    traces = random_traces(0, range(n_users), places_in_line(3), minutes(5), keep=0.8)
    found = unicity(traces, max_points=4, n_repeats=n_repeats)
    expected = [unique_by_loop(walks(Windows.of(traces)), n_points) for n_points in (1, 2, 3, 4)]
    tolerance = 5 * math.sqrt(1 / (4 * n_users * n_repeats))
    assert found == pytest.approx(expected, abs=tolerance)
    # The tolerance notices one point too many.
    assert found[:3] != pytest.approx(expected[1:], abs=tolerance)


def test_users_who_are_always_or_never_unique() -> None:
    places, grid = places_in_line(9), minutes(3)
    apart = to_traces([(u, 0, i, u) for u in range(9) for i in range(3)], places, grid)
    assert unicity(apart).tolist() == [1.0] * 5
    alike = to_traces([(u, 0, i, 0) for u in range(9) for i in range(3)], places, grid)
    assert unicity(alike).tolist() == [0.0] * 5
    assert unicity(apart.select_users(np.array([0]))).tolist() == [1.0] * 5


def test_one_period_of_each_user_counts() -> None:
    """A user with more periods is not known by more points, and does not hide others."""
    places, grid = places_in_line(3), TimeGrid.cyclic("2024-01-01T00:00:00", 3600, 72, slot_s=3600)
    # One user has three days, each at another place all day; another is always at the first place.
    long = [(0, 0, i, i // 24) for i in range(72)]
    found = unicity(to_traces(long + [(1, 0, i, 0) for i in range(24)], places, grid), max_points=2, n_repeats=250)
    # They differ unless the day at the first place is drawn: 1 - 1/3, five standard errors.
    assert found == pytest.approx(2 / 3, abs=5 * math.sqrt(2 / 9 / 250))


def test_crowds_larger_than_the_users_and_no_points() -> None:
    traces = random_traces(0, range(3), places_in_line(3), minutes(5))
    assert np.isnan(unicity(traces, n_users=4)).all()
    with pytest.raises(InputError, match=r"(?s)max_points of at least 1.*n_repeats of at least 1"):
        unicity(traces, max_points=0, n_repeats=0)
