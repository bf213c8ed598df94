"""From traces to count tensors: transitions, visits, trimming, and the zero cells that are observed.

Transitions R^I count, for each user, how often one place follows another at consecutive instants; visits R^II count
events by place and slot (Murakami et al. 2021, section 3.2). Both are sparse: only positive cells are stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ppmtf_jax.data.events import counts_per_user
from ppmtf_jax.data.runs import least_of_each, rank_in_run
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.settings import Count, Settings
from ppmtf_jax.streams import Stage, UserStreams

# Random numbers in memory at once.
NUMBERS_AT_A_TIME = 2**21
# Numbers per block of a user's stream. Another value would draw other zeros, so it never changes.
BLOCK = 128
# The streams of the zeros that the sampler observes.
ZERO_STAGES = {"transitions": Stage.ZERO_TRANSITIONS, "visits": Stage.ZERO_VISITS}


class SparseCounts(NamedTuple):
    """A count tensor by its positive cells, sorted by (user, place, other), each once."""

    # `user`, `place`, `other`, `count`: `other` is the next place (transitions) or the slot (visits); shape (cells,).
    user: np.ndarray
    place: np.ndarray
    other: np.ndarray
    count: np.ndarray
    shape: tuple[int, int, int]
    user_ids: np.ndarray  # the users' own identifiers: random draws for a user depend on their id alone; shape (users,)

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

    def select(self, keep: np.ndarray) -> SparseCounts:
        """Keep some of the cells, and all users; `keep` has one boolean for each cell."""
        user, place, other, count = (column[keep] for column in self[:4])
        return self._replace(user=user, place=place, other=other, count=count)


class CountTensors(NamedTuple):
    """The two tensors that are factorized together: `transitions` (R^I) and `visits` (R^II)."""

    transitions: SparseCounts
    visits: SparseCounts


@dataclass(frozen=True)
class Trimming(Settings, subject="trimming"):
    """How counts are bounded per user before training (section 3.2).

    Parameters
    ----------
    max_transitions, max_visits : int or None
        Largest number of positive cells per user (lambda^I, lambda^II); the kept cells are random. None keeps all.
    max_count : int or None
        Largest count (r_max); larger counts are cut to it. None cuts nothing.
    """

    max_transitions: Count | None = 100
    max_visits: Count | None = 100
    max_count: Count | None = 10


def count_tensors(traces: Traces, trimming: Trimming = Trimming(), *, seed: int) -> CountTensors:
    """Count transitions and visits of every user, trimmed.

    The kept cells depend only on the seed, the user's id and their own traces: other users do not change their counts.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> counts = count_tensors(toy_city(n_users=5, seed=0).traces, seed=0)
    >>> counts.visits.shape[0], bool(counts.visits.count.max() <= 10)
    (5, True)
    """
    n_places, n_slots = traces.n_places, traces.time_grid.n_slots

    def trimmed(block: Traces) -> tuple[SparseCounts, SparseCounts]:
        steps, n_users = block.transitions(), block.n_users
        of_steps = _count(steps.user, steps.place, steps.next_place, (n_users, n_places, n_places), block.user_ids)
        of_events = _count(block.user, block.place, block.slot, (n_users, n_places, n_slots), block.user_ids)
        return (
            _trim_cells(of_steps, trimming.max_transitions, seed, Stage.TRIMMED_TRANSITIONS),
            _trim_cells(of_events, trimming.max_visits, seed, Stage.TRIMMED_VISITS),
        )

    tensors = zip(*traces.blocks.map(trimmed), strict=True)
    return CountTensors(*(_joined(blocks, traces.user_ids, trimming.max_count) for blocks in tensors))


def sample_zeros(
    counts: SparseCounts, n_zeros: int | np.ndarray, *, seed: int, stage: Stage, hidden: np.ndarray | None = None
) -> np.ndarray:
    """Draw distinct zero cells of each user uniformly at random (section 3.3).

    A user with fewer than `n_zeros` zero cells gets all of them. The cells depend on the seed, the stage, the user's id
    and their own cells only.

    `n_zeros`: one number for all users, or one for each user, shape (users,). `hidden`: user, place and other of
    further cells that must not be drawn, shape (cells, 3). Returns user, place and other of the drawn cells, sorted,
    each cell once, shape (drawn cells, 3).
    """
    if hidden is not None:  # as if they were positive
        user, place, other = np.concatenate([counts.cell_index, hidden]).T
        counts = _count(user, place, other, counts.shape, counts.user_ids)
    n_users, _, n_others = counts.shape
    available = counts.cells_per_user - counts.positive_per_user()
    wanted = np.minimum(n_zeros, available)
    streams = UserStreams.of(seed, stage, counts.user_ids)
    size = max(1, NUMBERS_AT_A_TIME // (BLOCK * _n_blocks(int(wanted.max(initial=0)))))
    zeros = np.empty((int(wanted.sum()), 3), np.int32)
    done = 0
    for first in range(0, n_users, size):
        users = np.arange(first, min(first + size, n_users))
        user, rank = distinct_ranks(streams, users, available[users], wanted[users])
        place, other = np.divmod(nth_zero_cell(counts, user, rank), n_others)
        zeros[done : done + len(user)] = np.stack([user, place, other], axis=1)
        done += len(user)
    return zeros


def zero_weights(counts: SparseCounts, n_zeros: int) -> np.ndarray:
    """Weight of a zero cell of each user: `n_zeros` over the number of their zero cells, at most 1, shape (users,).

    If `n_zeros` random zero cells are observed, each zero cell's log-likelihood has, on average, this weight.
    """
    n_zero_cells = counts.cells_per_user - counts.positive_per_user()
    return np.minimum(1.0, n_zeros / np.maximum(n_zero_cells, 1))


def distinct_ranks(
    streams: UserStreams, users: np.ndarray, bound: np.ndarray, wanted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Draw `wanted` distinct numbers below `bound` for each of some users: the first distinct ones of their own stream.

    `users`, `bound` and `wanted` have one entry for each of these users, `wanted` is at most `bound`. The returned user
    and rank have one entry for each number and are sorted.
    """
    everything = wanted == bound
    who = np.repeat(users[everything], bound[everything])
    parts = [(who, rank_in_run(who))]
    left = np.flatnonzero(~everything & (wanted > 0))
    n_blocks = _n_blocks(int(wanted[left].max(initial=0)))
    # Users with too many repeated numbers draw more blocks.
    while len(left):
        size = max(1, NUMBERS_AT_A_TIME // (BLOCK * n_blocks))
        short = []
        for some in (left[first : first + size] for first in range(0, len(left), size)):
            drawn = np.concatenate([streams.numbers(users[some], block, BLOCK) for block in range(n_blocks)], axis=1)
            rank, enough = _first_distinct((drawn * bound[some, None]).astype(np.int64), wanted[some])
            parts.append((np.repeat(users[some[enough]], wanted[some[enough]]), rank))
            short.append(some[~enough])
        left, n_blocks = np.concatenate(short), 2 * n_blocks
    user, rank = np.concatenate(parts, axis=1)
    order = np.argsort(user, kind="stable")
    return user[order], rank[order]


def nth_zero_cell(counts: SparseCounts, user: np.ndarray, zero_rank: np.ndarray) -> np.ndarray:
    """Number of the zero cell of rank `zero_rank` within the slice of each user; `user` is sorted.

    The k-th positive cell p_k has p_k - k zeros before it. So the zero of rank u lies after all positive cells with
    p_k - k <= u. An offset of more than a slice for each user allows one sorted search for all users.
    """
    if not len(user):
        return np.zeros(0, np.int64)
    first, last = int(user[0]), int(user[-1])
    low, high = np.searchsorted(counts.user, [first, last + 1])
    # The cell numbers of all users, below, exceed 32 bits from 2,148 users with a million cells each.
    own = user.astype(np.int64) - first
    owner = counts.user[low:high].astype(np.int64) - first
    positive = counts.place[low:high].astype(np.int64) * counts.shape[2] + counts.other[low:high]
    start = np.searchsorted(owner, np.arange(last - first + 1))
    zeros_before = positive - (np.arange(high - low) - start[owner])
    stride = counts.cells_per_user + 1
    n_before = np.searchsorted(owner * stride + zeros_before, own * stride + zero_rank, side="right")
    return zero_rank + n_before - start[own]


def _count(
    user: np.ndarray, place: np.ndarray, other: np.ndarray, shape: tuple[int, int, int], user_ids: np.ndarray
) -> SparseCounts:
    cell, count = np.unique(np.ravel_multi_index((user, place, other), shape), return_counts=True)
    user, place, other = (index.astype(np.int32) for index in np.unravel_index(cell, shape))
    return SparseCounts(user, place, other, count.astype(np.int32), shape, user_ids)


def _joined(blocks: tuple[SparseCounts, ...], user_ids: np.ndarray, max_count: int | None) -> SparseCounts:
    """Join the tensors of consecutive blocks of users, and cut the counts."""
    user, place, other, count = (np.concatenate([block[i] for block in blocks]) for i in range(4))
    n_cells, n_users = [len(block.user) for block in blocks], [block.shape[0] for block in blocks]
    user += np.repeat(np.cumsum(n_users, dtype=np.int32) - np.int32(n_users), n_cells)
    count = count if max_count is None else np.minimum(count, max_count)
    return SparseCounts(user, place, other, count, (len(user_ids), *blocks[0].shape[1:]), user_ids)


def _trim_cells(block: SparseCounts, max_cells: int | None, seed: int, stage: Stage) -> SparseCounts:
    """Keep at most `max_cells` cells of each user: the cells with the smallest numbers in their own stream."""
    number = rank_in_run(block.user)
    if max_cells is None or number.max(initial=0) < max_cells:
        return block
    # Numbers are drawn only for users with too many cells.
    too_many = np.unique(block.user[number >= max_cells])
    cells = np.flatnonzero(np.isin(block.user, too_many))
    user = np.searchsorted(too_many, block.user[cells])
    drawn = UserStreams.of(seed, stage, block.user_ids[too_many]).at(user, block.cell_index[cells, 1:])
    keep = np.ones(len(block.user), bool)
    keep[cells] = False
    keep[cells[least_of_each(user, drawn, max_cells)]] = True
    return block.select(keep)


def _n_blocks(n: int) -> int:
    """How many blocks are first drawn for `n` distinct numbers."""
    return max(1, -(-(n + n // 16) // BLOCK))


def _first_distinct(drawn: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first `wanted` distinct numbers of each row, sorted, for rows with enough of them; and these rows."""
    shift = drawn.shape[1].bit_length()
    # Sorting number and position as one is several times faster than sorting positions by number.
    ordered = np.sort((drawn << shift) | np.arange(drawn.shape[1]), axis=1)
    number, position = ordered >> shift, ordered & ((1 << shift) - 1)
    is_new = np.ones_like(number, bool)
    is_new[:, 1:] = number[:, 1:] != number[:, :-1]
    new_at = np.empty_like(is_new)
    np.put_along_axis(new_at, position, is_new, axis=1)
    n_new = np.cumsum(new_at, axis=1, dtype=np.int32)
    enough = n_new[:, -1] >= wanted
    last = np.argmax(n_new >= wanted[:, None], axis=1)
    return number[is_new & (position <= last[:, None]) & enough[:, None]], enough
