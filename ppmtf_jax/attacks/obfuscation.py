"""Deletion of places from traces before release: random places, or the worst places for the attacker.

Section VI-A of Murakami et al., TIFS 2017. The functions return a mask of the remaining events, for
`Traces.select_events`. Deleted events leave instants without an event.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ppmtf_jax.attacks.estimators.base import TransitionMatrices, to_probabilities
from ppmtf_jax.attacks.trace_scores import MAX_GAP, batches_of_users, padded_indices
from ppmtf_jax.data.comparable import check_same_places, index_of_ids
from ppmtf_jax.data.runs import rank_in_run, run_begins
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.runtime.threads import one_thread
from ppmtf_jax.streams import Stage, numpy_stream
from ppmtf_jax.trace_models.population import stationary_distribution


def random_deletions(traces: Traces, n_deleted: int, *, seed: int) -> Bool[np.ndarray, " event"]:
    """Mask of the remaining events after `n_deleted` random events of each trace are deleted; at least one remains."""
    _check(n_deleted)
    trace = traces.trace_of_event()
    order = np.lexsort([numpy_stream(seed, Stage.DELETIONS).random(traces.n_events), trace])
    n_events = np.bincount(trace)
    keep = np.empty(traces.n_events, bool)
    keep[order] = rank_in_run(trace) >= np.minimum(n_deleted, n_events - 1)[trace]
    return keep


def worst_deletions(
    traces: Traces,
    matrices: TransitionMatrices,
    n_deleted: int,
    *,
    first_place: Literal["stationary", "uniform"] = "stationary",
    max_gap: int = MAX_GAP,
) -> Bool[np.ndarray, " event"]:
    """Mask of the remaining events in the worst case for an attacker with the given matrices.

    Of all ways to delete `n_deleted` places of a trace (at least one place remains), choose the one with the smallest
    P(trace | H_n), where n is the user who made the trace. A dynamic program finds it exactly: for each remaining place
    and number of deletions so far, it computes the smallest probability of the trace up to this place. Traces of users
    without a matrix are not changed. `first_place` and `max_gap` are as in `score_traces`.
    """
    _check(n_deleted)
    check_same_places(traces=traces, training=matrices)
    keep = np.ones(traces.n_events, bool)
    target = index_of_ids(traces.user_ids, matrices.user_ids)
    known = np.flatnonzero((target >= 0)[traces.user])
    if not n_deleted or not len(known):
        return keep
    trace, place, instant = (
        of[known].astype(np.int64) for of in (traces.trace_of_event(), traces.place, traces.instant)
    )
    of_event = target[traces.user[known]]
    # Events 1, 2, ... events earlier in the same trace, and the gap in instants; 0 if they are not linked.
    back = np.arange(len(trace))[:, None] - np.arange(1, n_deleted + 2)
    previous = np.maximum(back, 0)
    gap = instant[:, None] - instant[previous]
    gap[(back < 0) | (trace[previous] != trace[:, None]) | (gap > max_gap)] = 0
    as_first, after = _log_probabilities(matrices, of_event, place, previous, gap, first_place == "stationary")
    first = np.flatnonzero(run_begins(trace))
    keep[known] = _kept(first, np.diff(first, append=len(trace)), as_first, after, n_deleted)
    return keep


def _check(n_deleted: int) -> None:
    if n_deleted < 0:
        raise InputError("deletion", [Problem("a number of places to delete of at least 0", repr(n_deleted))])


def _log_probabilities(
    matrices: TransitionMatrices,
    target: Int[np.ndarray, " event"],
    place: Int[np.ndarray, " event"],
    previous: Int[np.ndarray, "event back"],
    gap: Int[np.ndarray, "event back"],
    stationary: bool,
) -> tuple[Float[np.ndarray, " event"], Float[np.ndarray, "event back"]]:
    """Log-probability of each event as a first place, and after each earlier event, under its user's chain."""
    as_first, after = np.empty(len(place)), np.empty(previous.shape)
    max_power = int(gap.max(initial=0))
    users = np.unique(target)
    with jax.enable_x64(True):
        for batch in batches_of_users(matrices, users, max_power + 1):
            events = np.flatnonzero(np.isin(target, batch))
            row = np.searchsorted(batch, target[events])
            steps = np.stack([np.broadcast_to(row[:, None], gap[events].shape), place[previous[events]], gap[events]])
            padded = padded_indices(place[events]), padded_indices(np.moveaxis(steps, 1, -1))
            counts = matrices.counts.of_users(batch)
            chains, step = _own_tables(counts, matrices.floor, *padded, max_power=max_power)
            as_first[events] = -np.log(chains.shape[-1])
            if stationary:
                with one_thread():  # as in `trace_scores.log_tables`
                    as_first[events] = np.log(stationary_distribution(np.asarray(chains))[row, place[events]])
            after[events] = np.asarray(step)[:, : len(events)].T
    return as_first, np.where(gap > 0, after, as_first[:, None])


@partial(jax.jit, static_argnames="max_power")
def _own_tables(
    counts: Array, floor: Array, place: Array, steps: Array, *, max_power: int
) -> tuple[Float[Array, "user place place"], Array]:
    """The chains of users, and log-probabilities of steps."""
    chains = to_probabilities(counts.astype(jnp.float64), floor)
    powers = [jnp.broadcast_to(jnp.eye(chains.shape[-1]), chains.shape)]
    for _ in range(max_power):
        powers.append(powers[-1] @ chains)
    of_user, before, gap = steps
    return chains, jnp.log(jnp.stack(powers)[gap, of_user, before, place])


def _kept(
    first: Int[np.ndarray, " trace"],
    length: Int[np.ndarray, " trace"],
    as_first: Float[np.ndarray, " event"],
    after: Float[np.ndarray, "event back"],
    n_deleted: int,
) -> Bool[np.ndarray, " event"]:
    """Mask of the remaining events: the dynamic program, for all traces at once."""
    longest, n_deletions = int(length.max()), np.minimum(n_deleted, length - 1)
    # least[t, m]: the smallest log-probability up to place t if place t remains and m earlier places are deleted.
    shape = (longest, n_deleted + 1, len(first))
    least, skipped = np.full(shape, np.inf), np.zeros(shape, np.int64)
    for t in range(longest):
        event = np.minimum(first + t, len(as_first) - 1)
        for m in range(min(t, n_deleted) + 1):
            # The last remaining place before t is place t - d - 1, or there is none.
            ways = [least[t - d - 1, m - d] + after[event, d] for d in range(min(m, t - 1) + 1)]
            ways.append(as_first[event] if m == t else np.full(len(first), np.inf))
            least[t, m], skipped[t, m] = np.min(ways, axis=0), np.argmin(ways, axis=0)
            skipped[t, m][skipped[t, m] == len(ways) - 1] = t
    keep = np.zeros(len(as_first), bool)
    traces = np.arange(len(first))
    # Choose the last remaining place; all places after it are deleted. Then go back through the table.
    ends = length[None] - 1 - np.arange(n_deleted + 1)[:, None]
    left = n_deletions[None] - np.arange(n_deleted + 1)[:, None]
    possible = (ends >= 0) & (left >= 0)
    at_end = np.where(possible, least[np.maximum(ends, 0), np.maximum(left, 0), traces], np.inf)
    best = np.argmin(at_end, axis=0)
    t, m = ends[best, traces], left[best, traces]
    while len(traces):
        keep[first[traces] + t] = True
        d = skipped[t, m, traces]
        t, m = t - d - 1, m - d
        goes_on = t >= 0
        traces, t, m = traces[goes_on], t[goes_on], m[goes_on]
    return keep
