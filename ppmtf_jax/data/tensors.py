"""From traces to count tensors: transitions, visits, trimming, and the zero cells that are observed.

Transitions R^I count, for each user, how often one place follows another at consecutive instants; visits R^II count
events by place and slot (Murakami et al. 2021, section 3.2). Both are sparse: only positive cells are stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ppmtf_jax.data.traces import Traces, counts_per_user
from ppmtf_jax.errors import InputError, Problem

USERS_AT_A_TIME = 4096


class SparseCounts(NamedTuple):
    """A count tensor by its positive cells, sorted by (user, place, other), each once.

    Attributes
    ----------
    user, place, other : int32 arrays, shape (cells,)
        `other` is the next place (transitions) or the slot (visits).
    count : int32 array, shape (cells,)
    shape : (users, places, others)
    """

    user: np.ndarray
    place: np.ndarray
    other: np.ndarray
    count: np.ndarray
    shape: tuple[int, int, int]

    @property
    def cells_per_user(self) -> int:
        """Cells of one user's slice, positive or not."""
        return self.shape[1] * self.shape[2]

    @property
    def cell_index(self) -> np.ndarray:
        """User, place and other of each cell, shape (cells, 3)."""
        return np.stack([self.user, self.place, self.other], axis=1)

    def positive_per_user(self) -> np.ndarray:
        """Number of positive cells of each user, shape (users,)."""
        return counts_per_user(self.user, self.shape[0])


class CountTensors(NamedTuple):
    """The two tensors that are factorized together: `transitions` (R^I) and `visits` (R^II)."""

    transitions: SparseCounts
    visits: SparseCounts


@dataclass(frozen=True)
class Trimming:
    """How counts are bounded per user before training (section 3.2).

    Parameters
    ----------
    max_transitions, max_visits : int or None
        Most positive cells per user (lambda^I, lambda^II); which ones stay is random. None keeps all.
    max_count : int or None
        Counts above it are cut to it (r_max). None cuts nothing.
    """

    max_transitions: int | None = 100
    max_visits: int | None = 100
    max_count: int | None = 10

    def __post_init__(self) -> None:
        for name in ("max_transitions", "max_visits", "max_count"):
            value = getattr(self, name)
            if value is not None and not value >= 1:
                raise InputError("trimming", [Problem(f"{name} of at least 1, or None", repr(value))])


def count_tensors(traces: Traces, trimming: Trimming = Trimming(), *, seed: int = 0) -> CountTensors:
    """Count transitions and visits of every user, trimmed.

    A transition joins two events of one trace at consecutive instants.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> counts = count_tensors(toy_city(n_users=5, seed=0).traces)
    >>> counts.visits.shape[0], bool(counts.visits.count.max() <= 10)
    (5, True)
    """
    rng = np.random.default_rng(seed)
    n_users, n_places, n_slots = traces.n_users, traces.n_places, traces.time_grid.n_slots
    transitions, visits = [], []
    for block in traces.by_users():
        after = np.flatnonzero(block.is_step())
        steps = (block.user[after], block.place[after - 1], block.place[after])
        transitions.append(_count(*steps, (n_users, n_places, n_places)))
        visits.append(_count(block.user, block.place, block.slot, (n_users, n_places, n_slots)))
    return CountTensors(
        _trim(transitions, trimming.max_transitions, trimming.max_count, rng),
        _trim(visits, trimming.max_visits, trimming.max_count, rng),
    )


def sample_zeros(counts: SparseCounts, n_zeros: int, *, seed: int | tuple[int, ...]) -> np.ndarray:
    """Draw distinct zero cells of each user uniformly at random (section 3.3).

    A user with fewer than `n_zeros` zero cells gets all of them.

    Returns
    -------
    int32 array, shape (zero cells, 3)
        Columns user, place, other.
    """
    rng = np.random.default_rng(seed)
    n_users, _, n_others = counts.shape
    blocks = []
    for first, zero_rank, valid in _zero_ranks(counts, n_zeros, rng):
        cell = _nth_zero_cell(counts, first, zero_rank)
        user = np.broadcast_to(first + np.arange(len(cell))[:, None], cell.shape)
        place, other = np.divmod(cell, n_others)
        blocks.append(np.stack([user[valid], place[valid], other[valid]], axis=1).astype(np.int32))
    return np.concatenate(blocks) if n_users else np.zeros((0, 3), np.int32)


def zero_weights(counts: SparseCounts, n_zeros: int) -> np.ndarray:
    """Weight of every zero cell of each user such that they weigh `n_zeros` in all, at most 1 each, shape (users,).

    Observing `n_zeros` of the zero cells at random multiplies each one's log-likelihood, on average, by this weight.
    """
    n_zero_cells = counts.cells_per_user - counts.positive_per_user()
    return np.minimum(1.0, n_zeros / np.maximum(n_zero_cells, 1))


def _count(user: np.ndarray, place: np.ndarray, other: np.ndarray, shape: tuple[int, int, int]) -> SparseCounts:
    cell = (user.astype(np.int64) * shape[1] + place) * shape[2] + other
    distinct, count = np.unique(cell, return_counts=True)
    rest, other = np.divmod(distinct, shape[2])
    user, place = np.divmod(rest, shape[1])
    user, place, other, count = (index.astype(np.int32) for index in (user, place, other, count))
    return SparseCounts(user, place, other, count, shape)


def _trim(
    blocks: list[SparseCounts], max_cells: int | None, max_count: int | None, rng: np.random.Generator
) -> SparseCounts:
    """One tensor of those of consecutive blocks of users, trimmed."""
    # Either every cell gets a random number or none does, whatever the blocks.
    if max_cells is not None and any(_number_in_user(block.user).max(initial=0) >= max_cells for block in blocks):
        blocks = [_trim_cells(block, max_cells, rng) for block in blocks]
    user, place, other, count = (np.concatenate([block[i] for block in blocks]) for i in range(4))
    count = count if max_count is None else np.minimum(count, max_count)
    return SparseCounts(user, place, other, count, blocks[0].shape)


def _trim_cells(block: SparseCounts, max_cells: int, rng: np.random.Generator) -> SparseCounts:
    """At most `max_cells` cells of each user, at random."""
    keep = np.empty(len(block.user), bool)
    # Users are in order already: this only shuffles the cells of each.
    order = np.lexsort((rng.random(len(block.user)), block.user))
    keep[order] = _number_in_user(block.user) < max_cells
    return SparseCounts(block.user[keep], block.place[keep], block.other[keep], block.count[keep], block.shape)


def _number_in_user(user: np.ndarray) -> np.ndarray:
    """0, 1, ... for the cells of each user, whose cells follow each other."""
    first = np.flatnonzero(np.append(True, user[1:] != user[:-1])[: len(user)])
    return np.arange(len(user)) - np.repeat(first, np.diff(first, append=len(user)))


def _zero_ranks(
    counts: SparseCounts, n_zeros: int, rng: np.random.Generator
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """For blocks of users, distinct random ranks among each user's zero cells: first user, ranks, which are valid."""
    n_zero_cells = counts.cells_per_user - counts.positive_per_user()
    dense = n_zeros * 4 > n_zero_cells.min(initial=counts.cells_per_user)
    block = max(1, min(USERS_AT_A_TIME, 2**24 // (counts.cells_per_user if dense else 2 * n_zeros)))
    draw = _distinct_by_permutation if dense else _distinct_by_rejection
    for first in range(0, counts.shape[0], block):
        bound = n_zero_cells[first : first + block]
        ranks = draw(bound, n_zeros, rng)
        yield first, ranks, np.arange(ranks.shape[1]) < np.minimum(bound, n_zeros)[:, None]


def _distinct_by_permutation(bound: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """`n` distinct numbers below each bound (all of them where there are fewer), by sorting random keys."""
    keys = rng.random((len(bound), int(bound.max(initial=1))))
    keys[np.arange(keys.shape[1]) >= bound[:, None]] = 2.0
    n = min(n, keys.shape[1])
    return np.argsort(keys, axis=1, kind="stable")[:, :n]


def _distinct_by_rejection(bound: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """`n` distinct numbers below each bound, far above `n`: the first `n` different ones of a long enough sequence."""
    n_draws = n
    while True:
        n_draws += max(8, n_draws // 4)
        drawn = (rng.random((len(bound), n_draws)) * bound[:, None]).astype(np.int64)
        order = np.argsort(drawn, axis=1, kind="stable")
        ordered = np.take_along_axis(drawn, order, axis=1)
        new = np.ones_like(ordered, bool)
        new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
        is_new = np.empty_like(new)
        np.put_along_axis(is_new, order, new, axis=1)
        taken = is_new & (np.cumsum(is_new, axis=1) <= n)
        if (taken.sum(axis=1) == n).all():
            return drawn[taken].reshape(len(bound), n)


def _nth_zero_cell(counts: SparseCounts, first: int, zero_rank: np.ndarray) -> np.ndarray:
    """Cell number of the zero cell of given rank, for consecutive users from `first`; shapes (users, ranks).

    The k-th positive cell p_k has p_k - k zeros before it, so the zero of rank u lies after as many positive cells as
    have p_k - k <= u. Offsetting every user by more than a slice makes one sorted search serve them all.
    """
    n_users = len(zero_rank)
    low, high = np.searchsorted(counts.user, [first, first + n_users])
    # Cells of all users are numbered below: beyond 32 bits from 2,148 users with a million cells each.
    user = counts.user[low:high].astype(np.int64) - first
    positive = counts.place[low:high].astype(np.int64) * counts.shape[2] + counts.other[low:high]
    start = np.searchsorted(user, np.arange(n_users))
    zeros_before = positive - (np.arange(high - low) - start[user])
    stride = counts.cells_per_user + 1
    wanted = np.arange(n_users)[:, None] * stride + zero_rank
    n_before = np.searchsorted(user * stride + zeros_before, wanted.ravel(), side="right").reshape(wanted.shape)
    return zero_rank + n_before - start[:, None]
