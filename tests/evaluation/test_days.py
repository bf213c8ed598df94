"""Motifs of days, and whether days end where they began, against loops and known networks."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from ppmtf_jax.data.windows import Windows
from ppmtf_jax.evaluation.metrics import days
from tests import support
from tests.evaluation import window_loops as loops


@pytest.fixture(scope="module")
def windows() -> Windows:
    return Windows.of(loops.random_traces(0, n_users=150, keep=0.8), 3 * loops.N_A_DAY)


def test_motifs_are_those_of_a_loop(windows: Windows) -> None:
    """Numbers of motifs are equal exactly where the loop's motifs are."""
    expected = [(user, loops.motif(day)) for user, events in loops.by_window(windows) for day in loops.days_of(events)]
    found = days.daily_motifs(windows)
    assert found.user.tolist() == [user for user, _ in expected]
    pairs = set(zip(found.value.tolist(), (motif for _, motif in expected), strict=True))
    assert len({number for number, _ in pairs}) == len({motif for _, motif in pairs}) == len(pairs) > 20
    assert {len(motif) == 1 for _, motif in pairs} == {True, False}


def motif_of(*places: int) -> int:
    rows = [(0, 0, instant, place) for instant, place in enumerate(places)]
    return int(days.daily_motifs(Windows.of(support.to_traces(rows, loops.PLACES, loops.grid_of(1)))).value[0])


def test_known_days() -> None:
    home_and_back = motif_of(0, 1, 0)
    assert motif_of(3, 5, 3) == motif_of(3, 3, 5, 5, 3, 5, 3) == home_and_back
    # There is no way back in the first; direction counts.
    assert motif_of(0, 1) != home_and_back
    assert motif_of(0, 1, 2, 0) == motif_of(2, 1, 0, 2) == motif_of(1, 2, 0, 1)
    assert motif_of(0, 1, 2, 0) != motif_of(0, 1, 0, 2, 0)
    # Who begins at home and who ends there leave the same network.
    assert motif_of(0, 1, 0, 1) == home_and_back
    assert motif_of(0, 0) == motif_of(6, 6, 6) != motif_of(0, 1)
    # Six places and seven are two motifs, whatever the way.
    assert motif_of(0, 1, 2, 3, 4, 5) == motif_of(5, 4, 3, 2, 1, 0, 1, 0) != motif_of(0, 1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize("n_nodes", [2, 3, 4, 5])
def test_a_renamed_network_is_the_same_and_another_one_is_not(n_nodes: int) -> None:
    rng = np.random.default_rng(0)
    pairs = list(permutations(range(n_nodes), 2))
    number = {pair: 1 << (pair[0] * 5 + pair[1]) for pair in pairs}
    edges = [pair for pair in pairs if rng.random() < 0.5]
    renamed = [sum(number[name[a], name[b]] for a, b in edges) for name in permutations(range(n_nodes))]
    found = days.canonical(np.array(renamed), n_nodes)
    assert set(found.tolist()) == {min(renamed)}
    fewer = sum(number[pair] for pair in edges[1:])
    assert days.canonical(np.array([fewer]), n_nodes)[0] != min(renamed)


def test_days_that_end_where_they_began_are_those_of_a_loop(windows: Windows) -> None:
    expected = [
        (user, day[0][1] == day[-1][1]) for user, events in loops.by_window(windows) for day in loops.days_of(events)
    ]
    found = days.ends_where_it_began(windows)
    assert list(zip(found.user.tolist(), found.value.tolist(), strict=True)) == expected


def test_no_day_with_two_events() -> None:
    alone = Windows.of(support.to_traces([(0, 0, 3, 1), (1, 0, 9, 1)], loops.PLACES, loops.grid_of(2)))
    assert len(days.daily_motifs(alone).value) == len(days.ends_where_it_began(alone).value) == 0
