"""Seed traces: what is cut, refused, counted."""

from __future__ import annotations

import numpy as np
import pytest

from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.errors import InputError
from ppmtf_jax.semantics.places import SeedTraces
from tests.support import places_in_line, to_traces

PERIOD = 3
GRID = TimeGrid("2024-01-01T00:00:00", 60, np.tile(np.arange(PERIOD), 3)[:-1], period=PERIOD)
"""Two whole periods, and two instants of a third."""
PLACES = places_in_line(4)


def events(user: int, trace: int, first: int, places: list[int]) -> list[tuple[int, int, int, int]]:
    return [(user, trace, first + i, place) for i, place in enumerate(places)]


# User 0 has two periods and a part of the third, user 1 the second period, user 2 two traces of the first.
ROWS = [
    *events(0, 0, 0, [0, 1, 0, 2, 2, 2, 3, 3]),
    *events(1, 0, 3, [1, 1, 2]),
    *events(2, 0, 0, [0, 0, 0]),
    *events(2, 5, 0, [0, 0, 1]),
]
SEEDS = {0: [[0, 1, 0], [2, 2, 2]], 1: [[1, 1, 2]], 2: [[0, 0, 0], [0, 0, 1]]}


def test_each_whole_period_of_a_user_is_a_seed():
    seeds = SeedTraces.of(to_traces(ROWS, PLACES, GRID))
    assert seeds.user.tolist() == [0, 0, 1, 2, 2]
    assert seeds.place.tolist() == [place for user in SEEDS.values() for place in user]
    assert seeds.seeds_per_user.tolist() == [2, 1, 2]


def test_visits_and_transitions_are_those_of_a_loop():
    seeds = SeedTraces.of(to_traces(ROWS, PLACES, GRID))
    visits, transitions = np.zeros((3, 4)), np.zeros((4, 4), int)
    for user, traces in SEEDS.items():
        for trace in traces:
            for place, following in zip(trace, trace[1:] + trace[:1], strict=True):
                visits[user, place] += 1 / len(traces)
                transitions[place, following] += 1
    np.testing.assert_allclose(seeds.visits(), visits)
    np.testing.assert_array_equal(seeds.transitions(), transitions)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_missing_events_are_refused_and_completion_is_offered(missing):
    rows = [row for row in ROWS if row[:3] != (1, 0, 3 + missing)]
    message = (
        r"each of the 3 instants of a period; found 1 periods with missing events; users, first: 1\..*complete them"
    )
    with pytest.raises(InputError, match=message):
        SeedTraces.of(to_traces(rows, PLACES, GRID))


def test_a_user_with_a_part_of_a_period_that_the_grid_cuts_off_is_refused():
    with pytest.raises(InputError, match=r"a whole period of 3 instants of every user; .*first: 9"):
        SeedTraces.of(to_traces([*ROWS, *events(9, 0, 6, [1, 1])], PLACES, GRID))
