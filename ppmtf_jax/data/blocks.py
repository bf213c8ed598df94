"""Work on users in blocks, so that memory does not grow with the number of users.

A block has the traces of `BLOCK_USERS` consecutive users. What is computed from a block is computed anew in each pass.
Numbers that are added over blocks are whole, or multiples of a power of two (see `bridge.contributions`), so their sums
are exact: they do not depend on the order of the blocks, nor on how blocks are divided among files and processes.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from tempfile import TemporaryFile
from typing import Any, Generic, TypeVar
from weakref import finalize

import numpy as np

from ppmtf_jax.runtime.devices import joined_over_processes, n_cores, sum_over_processes
from ppmtf_jax.runtime.threads import in_order

BLOCK_USERS = 8192
"""Number of users in a block. `TraceSet.digest` depends on it: with another number, all digests change."""
Item = TypeVar("Item")
New = TypeVar("New")


class Blocks(Generic[Item]):
    """A value for each block of users, computed again in each pass; the value of a single block is computed only once.

    Parameters
    ----------
    source : iterable of (slice, object)
        The users of each block, as a slice of all users, and their data. It is iterated over in each pass.
    function : callable
        Computes the value of a block from such a pair.
    shared : bool
        Whether the processes have different users. Totals are then sums over all processes.

    Examples
    --------
    >>> blocks = Blocks([(slice(0, 2), np.array([1, 2])), (slice(2, 3), np.array([5]))])
    >>> of_user = np.array([10, 20, 30])
    >>> int(blocks.map(lambda own, more: (own * more).sum(), of_user).total())
    200
    """

    def __init__(
        self,
        source: Iterable[tuple[slice, Any]],
        function: Callable[[slice, Any], Item] = lambda _, value: value,
        *,
        shared: bool = False,
    ):
        self.source, self.function, self.shared = source, function, shared

    def map(self, function: Callable[..., New], *of_users: np.ndarray | range) -> Blocks[New]:
        """The values of a function of the block's value and of the block's part of each array over users."""

        def composed(users: slice, value: Any) -> New:
            return function(self.function(users, value), *(each[users] for each in of_users))

        if isinstance(self.source, list) and len(self.source) == 1:
            ((users, value),) = self.source
            return Blocks([(users, composed(users, value))], shared=self.shared)
        return Blocks(self.source, composed, shared=self.shared)

    def kept(self) -> Blocks[Item]:
        """The same blocks, computed once and written to a temporary file without a name, so that passes are faster."""
        file = TemporaryFile()  # noqa: SIM115 - closed when `read` is no longer used

        def read(_: slice, where: tuple[int, int]) -> Item:
            return pickle.loads(os.pread(file.fileno(), *where))

        finalize(read, file.close)
        source = []
        values = in_order(lambda pair: (pair[0], pickle.dumps(self.function(*pair), 5)), self.source, n_cores())
        for users, content in values:
            source.append((users, (len(content), file.tell())))
            file.write(content)
        file.flush()
        return Blocks(source, read, shared=self.shared)

    def __iter__(self) -> Iterator[Item]:
        return in_order(lambda pair: self.function(*pair), self.source, n_cores())

    def total(self) -> Any:
        """Sum over all blocks of arrays, or of tuples of arrays."""
        sums = reduce(_added, self)
        return tuple(map(self.sum_of_all, sums)) if isinstance(sums, tuple) else self.sum_of_all(sums)

    def joined(self) -> np.ndarray:
        """The arrays of all blocks, one after another, such as a value for each user; every process gets all."""
        return self.of_all(np.concatenate([np.asarray(each) for each in self]))

    def first(self) -> Item:
        """The value of the first block of this process."""
        return next(iter(self))

    def sum_of_all(self, own: Any) -> Any:
        """Sum of the arrays of all processes, from the array of this process."""
        return sum_over_processes(own) if self.shared else own

    def of_all(self, own: np.ndarray) -> np.ndarray:
        """The arrays of all processes, one after another, from the array of this process."""
        return joined_over_processes(own) if self.shared else own


class OneBlock:
    """A value that is the only block of its users; functions of `Blocks` take it as it is."""

    def map(self, function: Callable[..., New], *of_users: np.ndarray | range) -> Blocks[New]:
        """See `Blocks.map`."""
        return Blocks([(slice(None), self)]).map(function, *of_users)


def each_of_users(of_user: np.ndarray) -> Blocks[np.ndarray]:
    """Blocks of an array over users, all in memory."""
    n_users = len(of_user)
    users = [slice(first, min(first + BLOCK_USERS, n_users)) for first in range(0, n_users, BLOCK_USERS)]
    return Blocks([(each, of_user[each]) for each in users])


def _added(one: Any, other: Any) -> Any:
    if isinstance(one, tuple):
        return tuple(map(_added, one, other))
    return one + other
