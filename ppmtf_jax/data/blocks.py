"""Work on users in blocks, so that memory does not grow with the number of users.

A block has the traces of `BLOCK_USERS` consecutive users, and a part has the blocks of a file or so. What is computed
from a block is computed anew in each pass; other processes may do a part each, see `runtime.engine`. Numbers that are
added over blocks are whole, or multiples of a power of two (see `people.user_bounds`), so their sums are exact: they
do not depend on how blocks are divided among files and workers.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from itertools import chain
from tempfile import TemporaryFile
from typing import Any, Generic, TypeVar
from weakref import finalize

import numpy as np

from ppmtf_jax.runtime.devices import n_cores
from ppmtf_jax.runtime.engine import is_remote, map_parts
from ppmtf_jax.runtime.threads import in_order

BLOCK_USERS = 8192
"""Number of users in a block. `Traces.digest` depends on it: with another number, all digests change."""
Item = TypeVar("Item")
New = TypeVar("New")
Step = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function of the value of a block, and of the block's part of each array over users."""


class Blocks(Generic[Item]):
    """A value for each block of users, computed again in each pass; the value of a single block is computed only once.

    Parameters
    ----------
    source : iterable of (slice, object)
        The users of each block, as a slice of all users, and their data. It is iterated over in each pass. If it has a
        method `parts`, this gives the users of each part, as a slice of all users, and a source of the part, which
        numbers the users of the part from 0 and can be pickled. Then other processes can do the work.
    steps : tuple of Step
        Functions that follow each other, the first one of the data.

    Examples
    --------
    >>> blocks = Blocks([(slice(0, 2), np.array([1, 2])), (slice(2, 3), np.array([5]))])
    >>> of_user = np.array([10, 20, 30])
    >>> int(blocks.map(lambda own, more: (own * more).sum(), of_user).total())
    200
    """

    def __init__(self, source: Iterable[tuple[slice, Any]], steps: tuple[Step, ...] = ()):
        self.source, self.steps = source, steps

    def map(self, function: Callable[..., New], *of_users: Any) -> Blocks[New]:
        """The values of a function of the block's value and of the block's part of each array over users."""
        blocks = Blocks(self.source, (*self.steps, (function, of_users)))
        if isinstance(self.source, list) and len(self.source) == 1:
            return Blocks([(self.source[0][0], blocks.value(self.source[0]))])
        return blocks

    def value(self, block: tuple[slice, Any]) -> Item:
        """The value of a block of the source."""
        users, value = block
        for function, of_users in self.steps:
            value = function(value, *(each[users] for each in of_users))
        return value

    def kept(self) -> Blocks[Item]:
        """The same blocks, computed once and written to a temporary file without a name, so that passes are faster."""
        file = TemporaryFile()  # noqa: SIM115 - closed when `read` is no longer used

        def read(where: tuple[int, int]) -> Item:
            return pickle.loads(os.pread(file.fileno(), *where))

        finalize(read, file.close)
        source = []
        values = in_order(lambda pair: (pair[0], pickle.dumps(self.value(pair), 5)), self.source, n_cores())
        for users, content in values:
            source.append((users, (len(content), file.tell())))
            file.write(content)
        file.flush()
        return Blocks(source, ((read, ()),))

    def of_parts(self, function: Callable[[Blocks[Item]], New]) -> Iterator[New]:
        """A function of the blocks of each part, which other processes compute; without them, of all blocks."""
        parts_of_source = getattr(self.source, "parts", None)
        if not is_remote() or parts_of_source is None:
            yield function(self)
            return
        parts = (
            (users, Blocks(source, tuple((each, tuple(of[users] for of in of_users)) for each, of_users in self.steps)))
            for users, source in parts_of_source()
        )
        yield from map_parts(
            lambda part: function(part[1]), parts, name_of=lambda part: f"users {part[0].start} to {part[0].stop - 1}"
        )

    def here(self) -> Iterator[Item]:
        """The values of all blocks, computed in this process."""
        return in_order(self.value, self.source, n_cores())

    def __iter__(self) -> Iterator[Item]:
        if not is_remote():
            return self.here()
        return chain.from_iterable(self.of_parts(lambda blocks: list(blocks.here())))

    def total(self) -> Any:
        """Sum over all blocks of arrays, or of tuples of arrays."""
        return reduce(_added, self.of_parts(lambda blocks: reduce(_added, blocks.here())))

    def joined(self) -> np.ndarray:
        """The arrays of all blocks, one after another, such as a value for each user."""
        return np.concatenate([np.asarray(each) for each in self])

    def first(self) -> Item:
        """The value of the first block."""
        return self.value(next(iter(self.source)))


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
