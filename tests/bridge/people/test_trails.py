"""Steps of traces against a loop over their events."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ppmtf_jax.bridge.people.trails import Persons, Steps
from ppmtf_jax.trace_models.base import ABSENT


def test_steps_are_those_of_a_loop() -> None:
    places = np.array([[7, ABSENT, 7, 3, 7, 7, 9, 9], [ABSENT, 2, 0, 0, ABSENT, 5, 0, ABSENT]])
    distinct, first, steps = Steps.of(places)
    np.testing.assert_array_equal(distinct, [[7, 3, 9], [2, 0, 5]])
    np.testing.assert_array_equal(first, [0, 1])
    expected = []
    for trace, row in enumerate(places.tolist()):
        numbers, runs, arrived = distinct[trace].tolist(), [], 0
        events = [instant for instant, place in enumerate(row) if place != ABSENT]
        for start, end in pairwise(events):
            number = numbers.index(row[start])
            if runs[-1:] != [number]:
                runs, arrived = [*runs, number], start
            before = runs[-2] if len(runs) > 1 else ABSENT
            arrivals = [runs.count(each) for each in range(3)]
            following = numbers.index(row[end])
            columns = [trace, start, end, arrived, row[start], number, following, before, max(runs) + 1, *arrivals]
            expected.append(columns)
    np.testing.assert_array_equal(np.column_stack(steps), expected)


def test_every_person_stands_once() -> None:
    persons = Persons.of(3, anchors=True)
    assert len({tuple(row) for row in np.column_stack(persons[:3])}) == len(persons.home) == 3 * 2 + 3 * 2 + 3 + 2
    assert len(Persons.of(3, anchors=False).home) == 2
