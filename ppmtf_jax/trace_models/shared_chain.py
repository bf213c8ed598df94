"""One Markov chain for all users, with a transition matrix per slot, after events copied from the input user (SGD)."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ppmtf_jax.trace_models.base import ScoredTraceModel, StoredArray
from ppmtf_jax.trace_models.sparse_rows import find_in_row
from ppmtf_jax.trace_models.stored import ModelOfFields, stored

ABSENT = -1


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class SharedChain(ModelOfFields, ScoredTraceModel):
    """Maximum-likelihood chain shared by all users, after the events copied from the input user.

    Transition matrices are sparse: only observed transitions are stored, slot by slot. If nobody left a place in a
    slot, every next place is equally probable, as in the published program.
    """

    # Where the row of (slot, place) begins in `next_place`.
    row_start: Int[Array, " row"] = field(
        metadata=stored(lambda n: StoredArray((n.slots * n.places + 1,), "int", 0, rises=True))
    )
    # Sorted within a row; the last entry belongs to no row.
    next_place: Int[Array, " seen1"] = field(metadata=stored(lambda n: StoredArray(("seen",), "int", 0, n.places)))
    # Cumulative transition counts: sampling is exact integer arithmetic.
    count_before: Int[Array, " seen1"] = field(metadata=stored(lambda n: StoredArray(("seen",), "int", 0, rises=True)))
    # Cumulative number of events in the first slot.
    first_count_before: Int[Array, " place1"] = field(
        metadata=stored(lambda n: StoredArray((n.places + 1,), "int", 0, rises=True))
    )
    # Place of the input user at the first instants, -1 where there is none.
    copied: Int[Array, "user copied"] = field(
        metadata=stored(lambda n: StoredArray(("users", "copied"), "int", ABSENT, n.places - 1))
    )
    slot_of_instant: Int[Array, " instant"] = field(
        metadata=stored(lambda n: StoredArray(("instants",), "int", 0, n.slots - 1))
    )

    @property
    def n_places(self) -> int:
        return self.first_count_before.shape[0] - 1

    def sample_first(self, key: Key[Array, ""], user: Int[Array, ""]) -> Int[Array, ""]:
        target = jax.random.randint(key, (), 0, self.first_count_before[-1])
        drawn = jnp.searchsorted(self.first_count_before, target, side="right") - 1
        return self._copied_or(user, jnp.zeros((), jnp.int32), drawn)

    def sample_next(
        self, key: Key[Array, ""], user: Int[Array, ""], instant: Int[Array, ""], place: Int[Array, ""]
    ) -> Int[Array, ""]:
        begin, end = self._row(instant, place)
        total = self.count_before[end] - self.count_before[begin]
        target = jax.random.randint(key, (), 0, jnp.where(total > 0, total, self.n_places))
        seen = jnp.searchsorted(self.count_before, self.count_before[begin] + target, side="right") - 1
        drawn = jnp.where(total > 0, self.next_place[jnp.minimum(seen, len(self.next_place) - 1)], target)
        return self._copied_or(user, instant, drawn)

    def user_cache(self, users: Int[Array, " user"]) -> Int[Array, "copied user"]:
        """The copied events of the users, which are all that distinguishes users."""
        return self.copied[users].T

    def user_classes(self, n_users: int) -> Int[np.ndarray, " user"]:
        """Users with the same copied events; without copied events, everybody."""
        return np.unique(np.asarray(self.copied[:n_users]), axis=0, return_inverse=True)[1]

    def log_first(self, cache: Int[Array, " copied"], place: Int[Array, ""]) -> Float[Array, ""]:
        count = self.first_count_before[place + 1] - self.first_count_before[place]
        # `float` is JAX's default: a quotient of int32 would stay in single precision where double was asked for.
        log_probability = jnp.log(count.astype(float) / self.first_count_before[-1])
        return self._certain_if_copied(cache, jnp.zeros((), jnp.int32), place, log_probability)

    def log_next(
        self,
        cache: Int[Array, " copied"],
        instant: Int[Array, ""],
        place: Int[Array, ""],
        next_place: Int[Array, ""],
    ) -> Float[Array, ""]:
        return self._certain_if_copied(cache, instant, next_place, self._log_shared(instant, place, next_place))

    def log_moves(
        self,
        cache: Int[Array, "copied user"],
        instants: Int[Array, " step"],
        places: Int[Array, " step"],
        next_places: Int[Array, " step"],
    ) -> Float[Array, "step user"]:
        """Look up once what all users share."""
        shared = jax.vmap(self._log_shared)(instants, places, next_places)
        over_users = jax.vmap(self._certain_if_copied, (-1, None, None, None))
        return jax.vmap(over_users, (None, 0, 0, 0))(cache, instants, next_places, shared)

    def _log_shared(self, instant: Array, place: Array, next_place: Array) -> Float[Array, ""]:
        begin, end = self._row(instant, place)
        total = self.count_before[end] - self.count_before[begin]
        at, seen = find_in_row(self.next_place, begin, end, next_place)
        count = self.count_before[at + 1] - self.count_before[at]
        share = jnp.where(seen, count, 0).astype(float) / jnp.maximum(total, 1)
        return jnp.log(jnp.where(total > 0, share, 1 / self.n_places))

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> SharedChain:
        if arrays["row_start"][-1] >= len(arrays["next_place"]):
            raise ValueError("rows that end beyond the last transition")
        return super().from_arrays(arrays)

    def _row(self, instant: Array, place: Array) -> tuple[Array, Array]:
        row = self.slot_of_instant[instant] * self.n_places + place
        return self.row_start[row], self.row_start[row + 1]

    def _copied_or(self, user: Array, instant: Array, drawn: Array) -> Int[Array, ""]:
        n_copied = self.copied.shape[1]
        if not n_copied:
            return drawn.astype(jnp.int32)
        copy = self.copied[user, jnp.minimum(instant, n_copied - 1)]
        return jnp.where((instant < n_copied) & (copy != ABSENT), copy, drawn).astype(jnp.int32)

    def _certain_if_copied(self, copied: Array, instant: Array, place: Array, log_probability: Array) -> Array:
        n_copied = copied.shape[0]
        if not n_copied:
            return log_probability
        copy = copied[jnp.minimum(instant, n_copied - 1)]
        log_certain = jnp.where(copy == place, 0.0, -jnp.inf)
        return jnp.where((instant < n_copied) & (copy != ABSENT), log_certain, log_probability)
