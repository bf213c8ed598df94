"""Co-locations against loops, and by brute force how much one user changes their counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.colocation import counts as module
from ppmtf_jax.colocation.counts import (
    ColocationLimits,
    Colocations,
    bounded_colocations,
    find_colocations,
    greedy_colocations,
)
from ppmtf_jax.colocation.friends import FriendGraph, limit_friends
from ppmtf_jax.data.trace_set import Origin
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from tests.colocation.examples import (
    GRID,
    N_INSTANTS,
    N_PLACES,
    N_USERS,
    PLACES,
    meetings_by_loop,
    random_data,
    random_friends,
    without_events,
    without_friends,
)
from tests.machine import with_gigabytes
from tests.support import Row, minutes, places_in_line, to_traces

Take = Callable[[Traces, FriendGraph], Colocations]
SEEDS = range(4)


def as_set(colocations: Colocations) -> set[tuple[int, int, int]]:
    columns = (colocations.instant, colocations.place, colocations.pair)
    return set(zip(*(column.tolist() for column in columns), strict=True))


def changes(take: Take, traces: Traces, graph: FriendGraph) -> tuple[list[int], list[int]]:
    """By how much counts (L1) and their sum change, for each user without their events, their friends, and both."""
    counts = take(traces, graph).counts()
    in_cells, in_all = [], []
    for user in traces.user_ids.tolist():
        fewer_events, fewer_friends = without_events(traces, user), without_friends(graph, user)
        for others in ((fewer_events, graph), (traces, fewer_friends), (fewer_events, fewer_friends)):
            change = counts - take(*others).counts()
            in_cells.append(int(abs(change).sum()))
            in_all.append(abs(int(change.sum())))
    return in_cells, in_all


def largest_changes(take: Take) -> tuple[int, int]:
    """The largest over some random data sets, of which half have all meetings at one place."""
    found = [changes(take, *random_data(seed, n_visited=1 if seed < 2 else N_PLACES)) for seed in SEEDS]
    return max(max(cells) for cells, _ in found), max(max(sums) for _, sums in found)


def path(n: int) -> tuple[Traces, FriendGraph]:
    """Users 0 to n, each a friend of the next, who meet one after the other: i and i + 1 at instant i."""
    rows: list[Row] = [(user, 0, i, 0) for i in range(n) for user in (i, i + 1)]
    graph = FriendGraph.from_pairs(np.arange(n + 1), np.stack([np.arange(n), np.arange(1, n + 1)], axis=1))
    return to_traces(rows, places_in_line(1), minutes(n)), graph


# All co-locations


@pytest.mark.parametrize("seed", SEEDS)
def test_co_locations_are_what_loops_find(seed):
    traces, graph = random_data(seed)
    found = find_colocations(traces, graph)
    assert as_set(found) == meetings_by_loop(traces, graph)
    assert len(found) == len(as_set(found)) > 0
    order = np.lexsort((found.pair, found.place, found.instant))
    assert (order == np.arange(len(found))).all()


def test_blocks_of_any_size_find_the_same(monkeypatch):
    traces, graph = random_data(1)
    whole = as_set(find_colocations(traces, graph))
    for size in (1, 7):
        monkeypatch.setattr(module, "EVENTS_AT_A_TIME", size)
        assert as_set(find_colocations(traces, graph)) == whole


def test_counts_by_instant_and_place():
    traces, graph = random_data(0)
    expected = np.zeros((N_INSTANTS, N_PLACES), int)
    for instant, place, _ in meetings_by_loop(traces, graph):
        expected[instant, place] += 1
    found = find_colocations(traces, graph)
    assert found.counts().toarray().tolist() == expected.tolist()
    assert found.counts(2).toarray().tolist() == (expected[:2] + expected[2:]).tolist()


def test_figure_2_of_the_paper():
    """Users 2 and 3 meet at place 1 at instant 1, users 1 and 2 at place 2 at instant 2, if they are friends."""
    traces = to_traces([(1, 0, 1, 3), (1, 0, 2, 2), (2, 0, 1, 1), (2, 0, 2, 2), (3, 0, 1, 1)], places_in_line(4), GRID)
    friends = FriendGraph.from_pairs(traces.user_ids, np.array([[0, 1], [1, 2], [0, 2]]))
    assert as_set(find_colocations(traces, friends)) == {(1, 1, 2), (2, 2, 0)}
    assert as_set(find_colocations(traces, friends.select_pairs(np.array([True, True, False])))) == {(2, 2, 0)}


@pytest.mark.parametrize(
    ("rows", "pairs"),
    [
        ([(0, 0, 0, 0), (1, 0, 0, 1), (2, 0, 1, 0)], [[0, 1], [0, 2]]),
        ([(0, 0, 0, 0), (1, 0, 0, 0), (2, 0, 0, 0)], []),
        ([(0, 0, 0, 0)], []),
    ],
    ids=["never together", "no friends", "one user"],
)
def test_no_co_location_at_all(rows, pairs):
    graph = FriendGraph.from_pairs(np.arange(3), np.array(pairs, int).reshape(-1, 2))
    traces = to_traces(rows, PLACES, GRID)
    for found in (
        find_colocations(traces, graph),
        greedy_colocations(traces, graph, 1),
        bounded_colocations(traces, graph, seed=0),
    ):
        assert len(found) == 0
        assert found.counts().toarray().tolist() == np.zeros((N_INSTANTS, N_PLACES)).tolist()


def test_two_traces_of_a_user_that_say_the_same_count_once():
    rows = [(0, 0, 1, 2), (0, 1, 1, 2), (1, 0, 1, 2), (1, 1, 1, 0)]
    graph = FriendGraph.from_pairs(np.arange(2), np.array([[0, 1]]))
    assert as_set(find_colocations(to_traces(rows, PLACES, GRID), graph)) == {(1, 2, 0)}


def test_several_synthetic_traces_of_a_user_are_refused():
    traces = replace(to_traces([(0, 0, 1, 2), (0, 1, 1, 2)], PLACES, GRID), origin=Origin("model", 0, True))
    graph = FriendGraph.from_pairs(np.arange(1), np.zeros((0, 2), int))
    with pytest.raises(InputError, match="select_traces"):
        find_colocations(traces, graph)
    assert len(find_colocations(traces.select_traces(np.array([True, False])), graph)) == 0


def test_a_graph_of_other_users_is_refused():
    traces, _ = random_data(0)
    with pytest.raises(InputError, match="users of the friendship graph"):
        find_colocations(traces, FriendGraph.from_pairs(np.arange(N_USERS - 1), np.array([[0, 1]])))


# As published


def test_greedy_takes_what_reading_in_order_takes():
    for seed, most in product(SEEDS, (1, 2, 4)):
        traces, graph = random_data(seed)
        number, expected = dict.fromkeys(range(N_USERS), 0), set()
        for meeting in sorted(meetings_by_loop(traces, graph)):
            pair = graph.pairs[meeting[2]].tolist()
            if all(number[user] < most for user in pair):
                expected.add(meeting)
                number.update({user: number[user] + 1 for user in pair})
        assert as_set(greedy_colocations(traces, graph, most)) == expected


@pytest.mark.parametrize("most", [1, 2])
def test_greedy_trimming_fails_the_brute_force_in_cells_but_not_in_all(most):
    in_cells, in_all = largest_changes(lambda *data: greedy_colocations(*data, most))
    assert in_cells > most
    assert in_all == most


# With a bound


@pytest.mark.parametrize(("max_events", "max_friends"), [(2, 1), (1, 2)])
def test_one_user_changes_bounded_counts_by_no_more_than_the_bound(max_events, max_friends):
    """Brute force over every user of small random data sets: without their events, their friends, and both."""
    limits = ColocationLimits(max_events, max_friends)
    in_cells, _ = largest_changes(lambda *data: bounded_colocations(*data, limits, seed=0))
    assert 0 < in_cells <= limits.sensitivity == max_events * max_friends


def test_replaced_events_and_friends_change_bounded_counts_by_no_more_than_is_said():
    """Of user 0: both by 2 c D, friends alone by c D."""
    limits = ColocationLimits(2, 1)
    graphs = [random_friends(seed) for seed in range(4)]
    for seed in range(2):
        traces, _ = random_data(2 * seed, n_visited=1)
        other, _ = random_data(2 * seed + 20, n_visited=1)
        both = pd.concat([without_events(traces, 0).to_frame(), other.to_frame().query("user == 0")])
        replaced = Traces.from_frame(both, PLACES, GRID)
        rest = without_friends(graphs[0], 0).pairs
        for own in graphs:
            pairs = np.concatenate([rest, own.pairs[(own.pairs == 0).any(axis=1)]])
            other_graph = FriendGraph.from_pairs(np.arange(N_USERS), pairs)
            first = bounded_colocations(traces, graphs[0], limits, seed=0).counts()
            friends = bounded_colocations(traces, other_graph, limits, seed=0).counts()
            everything = bounded_colocations(replaced, other_graph, limits, seed=0).counts()
            assert abs(first - friends).sum() <= limits.sensitivity
            assert abs(first - everything).sum() <= 2 * limits.sensitivity


def test_the_bound_is_reached():
    """Three friends are with user 0 at each of four instants, and no two of them are friends."""
    traces = to_traces([(user, 0, i, 0) for user in range(4) for i in range(4)], PLACES, GRID)
    graph = FriendGraph.from_pairs(np.arange(4), np.array([[0, 1], [0, 2], [0, 3]]))
    take = bounded_colocations
    limits = ColocationLimits(4, 2)
    change = (
        take(traces, graph, limits, seed=0).counts() - take(without_events(traces, 0), graph, limits, seed=0).counts()
    )
    assert change.sum() == 4 * 2


def test_planted_events_drawn_in_the_order_of_users_exceed_the_bound(monkeypatch):
    """From one stream, what is drawn for a user depends on who comes before them."""
    monkeypatch.setattr(module.UserStreams, "at", lambda _, users, cells: np.random.default_rng(0).random(len(users)))
    limits = ColocationLimits(2, 1)
    in_cells, _ = largest_changes(lambda *data: bounded_colocations(*data, limits, seed=0))
    assert in_cells > limits.sensitivity


def test_planted_cut_of_the_whole_graph_exceeds_the_bound_where_friendships_go_too():
    """Who has one friend at most in the graph: along a path, all friendships of one side change with one of them."""
    traces, graph = path(9)

    def take(traces: Traces, graph: FriendGraph) -> Colocations:
        return find_colocations(traces, limit_friends(graph, 1, seed=0))

    # Each user has two events.
    assert max(changes(take, traces, graph)[0]) > 2 * 1
    limits = ColocationLimits(2, 1)
    assert max(changes(lambda *data: bounded_colocations(*data, limits, seed=0), traces, graph)[0]) <= 2 * 1


def test_limits_that_nobody_reaches_cut_nothing():
    for seed in SEEDS:
        traces, graph = random_data(seed)
        limits = ColocationLimits(N_INSTANTS * N_PLACES, N_USERS)
        assert as_set(bounded_colocations(traces, graph, limits, seed=seed)) == meetings_by_loop(traces, graph)
        assert as_set(greedy_colocations(traces, graph, 1000)) == meetings_by_loop(traces, graph)


def test_any_events_may_count():
    """Two friends who are together at 4 instants: a co-location counts if both keep its event, each 2 of 4."""
    traces = to_traces([(user, 0, i, 0) for user in range(2) for i in range(4)], PLACES, GRID)
    graph = FriendGraph.from_pairs(np.arange(2), np.array([[0, 1]]))
    limits, n = ColocationLimits(2, 1), 60
    counts = sum(bounded_colocations(traces, graph, limits, seed=seed).counts() for seed in range(n)).toarray()[:, 0]
    # Each is a Bernoulli draw of probability 1/4.
    assert (np.abs(counts - n / 4) < 5 * np.sqrt(n * 1 / 4 * 3 / 4)).all()


def test_what_a_user_keeps_does_not_depend_on_how_others_are_numbered():
    traces, graph = random_data(5)
    more = FriendGraph.from_pairs(np.arange(-3, N_USERS), graph.pairs + 3)
    limits = ColocationLimits(2, 1)
    assert as_set(bounded_colocations(traces, more, limits, seed=0)) == as_set(
        bounded_colocations(traces, graph, limits, seed=0)
    )


def test_limits_below_one_are_refused():
    with pytest.raises(InputError, match=r"(?s)max_events as.*of at least 1.*max_friends as.*of at least 1"):
        ColocationLimits(0, 0)
    with pytest.raises(InputError, match="max_colocations of at least 1"):
        greedy_colocations(*random_data(0), 0)


def test_a_hub_in_a_crowd_costs_no_matrix():
    """20,000 users at one place at one instant, one of whom is a friend of all."""
    n = 20_000
    traces = to_traces([(user, 0, 0, 0) for user in range(n)], places_in_line(1), minutes(1))
    others = np.arange(1, n)
    graph = FriendGraph.from_pairs(np.arange(n), np.stack([np.zeros_like(others), others], axis=1))
    assert find_colocations(traces, graph).counts().toarray().tolist() == [[n - 1]]
    assert bounded_colocations(traces, graph, ColocationLimits(1, 3), seed=0).counts().toarray().tolist() == [[3]]


# Memory


def test_too_many_friends_are_refused_before_they_are_looked_up(monkeypatch):
    traces, graph = random_data(0)
    monkeypatch.setattr(module._Presence, "meetings", lambda *_: pytest.fail("it began"))
    with_gigabytes(monkeypatch, 0.1)
    with pytest.raises(InputError, match=r"co-locations: expected 0\.1 GB .*Take fewer users, or fewer days"):
        find_colocations(traces, graph)


def test_too_many_meetings_are_refused_when_that_many_are_found(monkeypatch):
    traces, graph = random_data(0)
    monkeypatch.setattr(module, "MEETING_BYTES", 10**12)
    with_gigabytes(monkeypatch, 1)
    with pytest.raises(InputError, match=r"co-locations: expected \d{4,}\.0 GB"):
        find_colocations(traces, graph)
