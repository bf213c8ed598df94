"""Sums of users' vectors against loops over dictionaries and whole numbers of any size."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, NumericalError
from ppmtf_jax.private import releases as module
from ppmtf_jax.private.domain import Domain
from ppmtf_jax.private.releases import MAX_COUNT, Rows, density, rows, shapes, vector_sum
from tests.private.worlds import KINDS, city, domain_of
from tests.support import minutes, places_in_line, to_traces

Place = int | None


def anchors_by_loop(places: list[int]) -> tuple[Place, Place]:
    """Home and second place of a user with events at these places."""
    ranked = sorted(Counter(places).items(), key=lambda each: (-each[1], each[0]))
    chosen = [place for place, count in ranked[:2] if count >= 2]
    if len(chosen) > 1 and dict(ranked)[chosen[1]] < 0.08 * len(places):
        chosen.pop()
    return (*chosen, None, None)[:2]


def counts_by_loop(traces: Traces, domain: Domain) -> dict[str, dict[int, Counter]]:
    """For each summary, each user's counts, by cell of the table as a tuple."""
    period, slot_of, most_steps = domain.time_grid.period, domain.time_grid.slot_of_instant, domain.time_grid.period - 1
    at: dict[tuple[int, int], dict[int, int]] = {}
    for user, trace, instant, place in zip(
        *(getattr(traces, name).tolist() for name in ("user", "trace", "instant", "place")), strict=True
    ):
        at.setdefault((user, trace), {})[instant] = place
    anchors: dict[int, tuple[Place, Place]] = {}
    for user in {user for user, _ in at} if domain.anchored else ():
        anchors[user] = anchors_by_loop(traces.place[traces.user == user].tolist())
    found: dict[str, dict[int, Counter]] = {name: {} for name in shapes(domain)}

    def count(name: str, user: int, *cell: int) -> None:
        if name in found:
            found[name].setdefault(user, Counter())[cell] += 1

    def distance(place: int, other: int) -> int:
        cell = domain.space.cell
        return int(domain.distance_bin[cell[place], cell[other]])

    type_of = {}
    for user, (home, second) in anchors.items():
        parts = [
            int(domain.quarter[slot_of[instant % period]])
            for (owner, _), events in at.items()
            for instant, place in events.items()
            if owner == user and place == second
        ]
        type_of[user] = 1 + max(range(4), key=parts.count) if parts else 0
        if home is not None:
            count("type", user, type_of[user])
        if home is not None and second is not None:
            count("home to second", user, distance(home, second))
        for number, place in enumerate((home, second)):
            for name, table in domain.anchor_tables().items():
                if place is not None:
                    count(name, user, int(table.row[4 * number + type_of[user]]), int(table.column[place]))
    for (user, _), events in at.items():
        home, second = anchors.get(user, (None, None))
        role = {i: 0 if place == home else 1 if place == second else 2 for i, place in events.items()}
        own_type = type_of.get(user, 0)
        for instant, place in events.items():
            slot = int(slot_of[instant % period])
            count("type x slot x role", user, own_type, slot, role[instant])
            for name, table in domain.population_tables().items():
                count(name, user, int(table.row[slot]), int(table.column[place]))
        for number in {instant // period for instant in events}:
            window = {instant: place for instant, place in events.items() if instant // period == number}
            steps = {i: int(window[i] != window[i - 1]) for i in window if i - 1 in window}
            at_other = {i: moved for i, moved in steps.items() if role[i] == role[i - 1] == 2}
            if at_other:
                share = sum(at_other.values()) / len(at_other)
                mobility = sum(share > most + 1e-9 for most in (0, 0.12, 0.25, 0.4, 0.6))
                complete = sum(len(at_other) > quarter * most_steps for quarter in (0.25, 0.75))
                count("mobility", user, complete, mobility)
            for i, moved in steps.items():
                slot = int(slot_of[i % period])
                count("slot x role x role", user, int(own_type > 0), slot, role[i - 1], role[i])
                if i in at_other:
                    count("slot x stay or move", user, slot, moved)
                if moved and role[i] == 2:
                    count("distance", user, distance(window[i - 1], window[i]))
                if moved and steps.get(i - 1):
                    count("back or not", user, int(window[i] == window[i - 2]))
    return found


def sum_by_loop(of_users: dict[int, Counter], shape: tuple[int, ...]) -> np.ndarray:
    """Sum of floor(1024 c / |c|), in whole numbers of any size."""
    total = np.zeros(shape, np.int64)
    for counts in of_users.values():
        squares = sum(count**2 for count in counts.values())
        for cell, count in counts.items():
            total[cell] += math.isqrt(1024**2 * count**2 // squares)
    return total


def sums(traces: Traces, domain: Domain) -> dict[str, np.ndarray]:
    shape = shapes(domain)
    return {name: vector_sum(each, math.prod(shape[name])).reshape(shape[name]) for name, each in rows(traces, domain)}


def assert_as_by_loop(traces: Traces, domain: Domain) -> None:
    found, expected = sums(traces, domain), counts_by_loop(traces, domain)
    assert found.keys() == expected.keys() == shapes(domain).keys()
    for name, value in found.items():
        np.testing.assert_array_equal(value, sum_by_loop(expected[name], value.shape), err_msg=name)


@pytest.mark.parametrize("anchored", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_those_of_loops(kind, anchored):
    traces = city(kind)
    domain = domain_of(traces, anchored=anchored)
    assert ("home to second" in shapes(domain)) == (anchored and kind in ("both", "coordinates"))
    assert ("distance" in shapes(domain)) == ("cell" in shapes(domain)) == (kind in ("both", "coordinates"))
    assert ("slot x category" in shapes(domain)) == (kind in ("both", "categories"))
    assert_as_by_loop(traces, domain)
    for name, value in sums(traces, domain).items():
        assert (value > 0).sum() > 1, name


def test_several_traces_and_periods_that_do_not_begin_at_midnight():
    traces = city("both")
    grid = TimeGrid.cyclic("2024-01-01T21:30:00", 3600, traces.time_grid.n_instants, slot_s=3600)
    assert_as_by_loop(replace(traces, time_grid=grid), Domain.of(traces.places, grid))
    # The same events as traces of one period each; and in a period of all three days.
    np.testing.assert_equal(*(sums(each, domain_of(traces)) for each in (traces, traces.cut_into_periods())))
    whole = replace(grid, period=grid.n_instants)
    assert_as_by_loop(replace(traces, time_grid=whole), Domain.of(traces.places, whole))


EDGES = {
    "one event": [(0, 0, 3, 1)],
    "no step": [(0, 0, 0, 1), (0, 0, 2, 1), (1, 0, 5, 0)],
    "no move": [(0, 0, i, 1) for i in range(6)],
    "two traces": [(0, trace, i, (i + trace) % 3) for trace in range(2) for i in range(4)],
}


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize("n_places", [3, 20])
def test_few_events(name, n_places):
    traces = to_traces(EDGES[name], places_in_line(n_places), minutes(6))
    for anchored in (False, True):
        assert_as_by_loop(traces, domain_of(traces, anchored=anchored))


@pytest.mark.parametrize("n_places", [1, 5])
def test_places_at_one_point_have_no_distances(n_places):
    places = PlaceTable(np.arange(n_places), np.full(n_places, 35.0), np.full(n_places, 139.0))
    traces = to_traces([(0, 0, 0, 0), (0, 0, 1, n_places - 1)], places, minutes(2))
    assert "distance" not in shapes(domain_of(traces))
    assert_as_by_loop(traces, domain_of(traces))


def test_a_single_category_is_none():
    places = replace(places_in_line(3), category=np.array(["home"] * 3, object))
    assert Domain.of(places, minutes(2)).category is None


def test_a_missing_category_is_the_same_in_a_saved_table():
    places = replace(places_in_line(3), category=np.array(["Zoo", None, "Art"], object))
    saved = PlaceTable.from_frame(places.to_frame())
    for table in (places, saved):
        np.testing.assert_array_equal(Domain.of(table, minutes(2)).category, [2, 0, 1])


def test_dense_users_have_events_at_half_of_the_instants_of_three_windows():
    """Also if the windows are in several traces; a user without such windows is counted as well."""
    grid = TimeGrid.cyclic("2024-01-01", 6 * 3600, 16, slot_s=6 * 3600)  # four days of four instants
    dense = [(0, 0, 4 * day + i, i) for day in range(3) for i in range(2)]
    in_traces = [(1, trace, 4 * trace + i, 0) for trace in range(3) for i in range(2)]
    sparse = [(2, 0, 4 * day + i, 0) for day in range(4) for i in range(1 + (day < 2))]
    found = density(to_traces(dense + in_traces + sparse, places_in_line(3), grid))
    assert (found.user.tolist(), found.group.tolist()) == ([0, 1, 2], [1, 1, 0])


def test_large_counts_do_not_overflow(monkeypatch):
    """A count beyond the largest is taken as the largest: the norm stays below 1024."""
    unique = np.unique
    monkeypatch.setattr(
        module.np, "unique", lambda keys, return_counts: (unique(keys), np.array([2**40, MAX_COUNT, 1]))
    )
    total = vector_sum(Rows(np.zeros(3, int), np.arange(3)), 3)
    assert total.tolist() == [math.isqrt(1024**2 * MAX_COUNT**2 // (2 * MAX_COUNT**2 + 1))] * 2 + [0]


def test_norms_are_checked(monkeypatch):
    """Planted: rounding up to the next whole number."""
    original = np.sqrt
    monkeypatch.setattr(module.np, "sqrt", lambda squares: original(squares) + 1)
    with pytest.raises(NumericalError, match="longer than the noise covers"):
        vector_sum(Rows(np.zeros(2, int), np.arange(2)), 2)


def test_other_places_or_slots_are_refused():
    traces = city("both")
    domain = domain_of(traces)
    other = replace(traces, places=replace(traces.places, ids=traces.places.ids[::-1]))
    with pytest.raises(InputError, match="the places of the domain, in their order"):
        domain.check(other)
    twice = replace(traces, user=traces.user[::-1])
    with pytest.raises(InputError, match=r"events in the order of users.*from_frame"):
        domain.check(twice)
    with pytest.raises(InputError, match="the slots of the domain's period"):
        domain.check(replace(traces, time_grid=TimeGrid.each_instant("2024-01-01", 3600, 72)))
