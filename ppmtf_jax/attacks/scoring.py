"""The sparse scorer: counts of transitions and events as sparse matrices, and their products, block by block.

Re-identification and the likelihood ratio score a trace for a user by adding one number for each transition of the
trace. Most users never made most of the transitions, and for a transition that a user never made this number does not
depend on the user. So the scores of all traces and users are a baseline for each trace plus a sparse product (traces x
pairs) @ (pairs x users), where a pair is a place and the next place. Attacks on windows use products in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy import sparse

from ppmtf_jax.data.comparable import check_same_places
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows, is_complete, same_period
from ppmtf_jax.errors import InputError, Problem

FLOOR = 1e-8
"""Probability of a transition that does not occur in the data of a user, or of the population (App. D)."""
PRODUCTS_AT_A_TIME = 2**23


@dataclass(frozen=True, eq=False)
class AttackedTraces:
    """How often each transition occurs in each attacked trace; `user` is the index of the trace's user.

    The columns of `counts` are `pairs`: all transitions that occur in some trace.
    """

    user: Int[np.ndarray, " trace"]
    number: Int[np.ndarray, " trace"]
    pairs: Int[np.ndarray, " pair"]
    counts: sparse.csr_array

    def known_to(self, transitions: sparse.csr_array) -> sparse.coo_array:
        """Entries at `pairs` of a matrix of users and all pairs, transposed: a matrix of `pairs` and users."""
        entries = transitions.tocoo()
        row = pd.Index(self.pairs).get_indexer(entries.col)
        found = row >= 0
        shape = (len(self.pairs), len(transitions.indptr) - 1)
        return sparse.coo_array((entries.data[found], (row[found], entries.row[found])), shape=shape)


def looks_over_gaps(released: Traces, pool_traces: bool = False) -> bool:
    """Whether attacks count steps over several instants too: synthetic traces with gaps have few steps of one instant.

    Real traces (`pool_traces`) are attacked through steps of one instant, as complete synthetic traces are.
    """
    return not pool_traces and not is_complete(released)


def attacked_traces(released: Traces, pool_traces: bool = False, over_gaps: bool | None = None) -> AttackedTraces:
    """Count the transitions of each released trace, or of all traces of a user together (`pool_traces`).

    `over_gaps`: as in `count_pairs`; by default as `looks_over_gaps` says.
    """
    user, number = released.trace_table()
    unit = released.trace_of_event()
    if pool_traces:
        user, number = np.arange(released.n_users), np.zeros(released.n_users, int)
        unit = released.user
    over_gaps = looks_over_gaps(released, pool_traces) if over_gaps is None else over_gaps
    counts = count_pairs(released, unit, len(user), over_gaps)
    pairs, column = np.unique(counts.indices, return_inverse=True)
    shape = (len(user), len(pairs))
    return AttackedTraces(user, number, pairs, sparse.csr_array((counts.data, column, counts.indptr), shape=shape))


def count_pairs(
    traces: Traces, unit: Int[np.ndarray, " event"], n_units: int, over_gaps: bool = False
) -> sparse.csr_array:
    """Count how often each transition occurs in each unit, such as a user or a trace; see `Traces.transitions`.

    The column of a transition is place times number of places plus next place.
    """
    steps = traces.transitions(over_gaps)
    pair = steps.place.astype(np.int64) * traces.n_places + steps.next_place
    shape = (n_units, traces.n_places**2)
    return sparse.csr_array(sparse.coo_array((np.ones(len(pair)), (unit[steps.event], pair)), shape=shape))


def ml_transitions(traces: Traces, over_gaps: bool = False) -> sparse.csr_array:
    """Transition matrix of each user by maximum likelihood, counts over row sums, as a row of `count_pairs`."""
    transitions = count_pairs(traces, traces.user, traces.n_users, over_gaps)
    user, pair = transitions.tocoo().coords
    _, row = np.unique(user.astype(np.int64) * traces.n_places + pair // traces.n_places, return_inverse=True)
    transitions.data /= np.bincount(row, weights=transitions.data)[row]
    return transitions


def windows_of(**trace_sets: Traces) -> list[Windows]:
    """Cut trace sets on the same places into periods, such as days; errors call the sets by their keyword names."""
    check_same_places(**trace_sets)
    first_name, first = next(iter(trace_sets.items()))
    differ = [name for name, each in trace_sets.items() if not same_period(first.time_grid, each.time_grid)]
    if differ:
        expected = f"grids whose periods have the same instants and slots as that of {first_name}"
        raise InputError("trace sets", [Problem(expected, f"others in {', '.join(differ)}")])
    return [Windows.of(each) for each in trace_sets.values()]


def joined(windows: Windows, others: Windows) -> Windows:
    """Join the windows of two sets; users of the two sets stay different users."""
    shift = {"window": windows.n_windows, "user": windows.user.max() + 1}
    columns = ("window", "phase", "place", "user")
    values = {name: (getattr(windows, name), getattr(others, name) + shift.get(name, 0)) for name in columns}
    return replace(windows, **{name: np.concatenate(pair) for name, pair in values.items()})


def events_by_point(
    windows: Windows,
    value: Float[np.ndarray, " chosen"] | None = None,
    *,
    event: Int[np.ndarray, " chosen"] | slice = slice(None),
    row: Int[np.ndarray, " chosen"] | None = None,
    n_rows: int = 0,
) -> sparse.csr_array:
    """Sparse matrix (windows x points) of events; a point is a pair of an instant of the period and a place.

    Entries are `value`, 1 by default. `event` selects some of the events, and `row` gives their rows in the matrix.
    """
    n_places = len(windows.places)
    point = windows.phase[event].astype(np.int64) * n_places + windows.place[event]
    row, n_rows = (windows.window, windows.n_windows) if row is None else (row, n_rows)
    entries = np.ones(len(point)) if value is None else value
    return sparse.csr_array((entries, (row, point)), shape=(n_rows, windows.time_grid.n_instants * n_places))


def products_in_blocks(counts: sparse.csr_array, values: sparse.csr_array) -> Iterator[tuple[slice, sparse.csr_array]]:
    """Yield `counts @ values` in blocks that fit into memory: a slice of rows, and their product."""
    work = sparse.csr_array((np.ones_like(counts.data), counts.indices, counts.indptr), counts.shape) @ np.diff(
        values.indptr
    )
    block_of_row = (np.cumsum(work) // PRODUCTS_AT_A_TIME).astype(np.int64)
    edges = np.flatnonzero(np.diff(block_of_row, prepend=-1, append=np.iinfo(np.int64).max))
    for first, last in pairwise(edges):
        rows = slice(int(first), int(last))
        yield rows, counts[rows] @ values
