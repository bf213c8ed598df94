"""Rounds take what reading one pair after the other takes, and one node changes little."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppmtf_jax.colocation.friends import greedy_b_matching

N_NODES = 6
LISTS = st.lists(
    st.tuples(st.integers(0, N_NODES - 1), st.integers(0, N_NODES - 1)).filter(lambda pair: pair[0] != pair[1]),
    max_size=25,
)


def read_one_by_one(pairs: np.ndarray, most: int) -> list[bool]:
    number, taken = dict.fromkeys(range(N_NODES), 0), []
    for one, other in pairs.tolist():
        taken.append(number[one] < most and number[other] < most)
        if taken[-1]:
            number[one] += 1
            number[other] += 1
    return taken


@given(LISTS, st.integers(1, 4))
def test_rounds_take_what_reading_takes(pairs, most):
    array = np.array(pairs, int).reshape(-1, 2)
    assert greedy_b_matching(array, N_NODES, most).tolist() == read_one_by_one(array, most)


@given(LISTS, st.integers(1, 4), st.integers(0, N_NODES - 1))
def test_the_pairs_of_one_node_change_degrees_and_number_by_no_more_than_the_lemma_says(pairs, most, node):
    array = np.array(pairs, int).reshape(-1, 2)
    others = array[(array != node).all(axis=1)]
    taken, without = (each[greedy_b_matching(each, N_NODES, most)] for each in (array, others))
    degree, degree_without = (np.bincount(each.ravel(), minlength=N_NODES) for each in (taken, without))
    assert np.abs(np.delete(degree - degree_without, node)).sum() <= degree[node] <= most
    assert 0 <= len(taken) - len(without) <= degree[node]


@pytest.mark.parametrize("n", [10, 11])
def test_which_pairs_are_taken_changes_along_a_whole_chain(n):
    """The lemma says nothing of it: without the first node all pairs of a path change."""
    path = np.stack([np.arange(n), np.arange(1, n + 1)], axis=1)
    with_first = greedy_b_matching(path, n + 1, 1)
    without_first = greedy_b_matching(path[1:], n + 1, 1)
    assert with_first.tolist() == [i % 2 == 0 for i in range(n)]
    assert (with_first[1:] != without_first).all()


def test_many_pairs_in_a_random_order():
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 20_000, (100_000, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    taken = greedy_b_matching(pairs, 20_000, 5)
    degree = np.bincount(pairs[taken].ravel(), minlength=20_000)
    assert degree.max() == 5
    # Every pair that was not taken has a node without room.
    assert (degree[pairs[~taken]].max(axis=1) == 5).all()
