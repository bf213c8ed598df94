"""SGD: one transition matrix per slot for all users, first events copied (Murakami et al. 2021, App. C)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ppmtf_jax.data.events import INT32_MAX
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.settings import CountOrZero, Settings
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Claims, Synthesizer
from ppmtf_jax.trace_models.base import ABSENT, Index, OneKey, ScoredTraceModel, Steps, StoredArray, stored
from ppmtf_jax.trace_models.sampling import find_in_row

TITLE = "Synthetic data generation: one transition matrix per slot for all users, first events copied (App. C)"


@dataclass(frozen=True)
class SGDSettings(Settings):
    """Settings of SGD.

    Parameters
    ----------
    n_copied : int
        Number of first events that are copied from the input user (xi). With 0, a trace depends on no input user.
    """

    n_copied: CountOrZero = 0


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class SharedChain(ScoredTraceModel):
    """Maximum-likelihood chain shared by all users, after the events copied from the input user.

    Transition matrices are sparse: only observed transitions are stored, slot by slot. If nobody left a place in a
    slot, every next place is equally probable, as in the published program.
    """

    padded: ClassVar[tuple[str, ...]] = ("seen",)

    # Where the row of (slot, place) begins in `next_place`.
    row_start: Int[Array, " row"] = stored(lambda n: StoredArray((n.slots * n.places + 1,), "int", 0, rises=True))
    # Sorted within a row; the last entry belongs to no row.
    next_place: Int[Array, " seen1"] = stored(lambda n: StoredArray(("seen",), "int", 0, n.places))
    # Cumulative transition counts, so that sampling uses exact integer arithmetic.
    count_before: Int[Array, " seen1"] = stored(lambda n: StoredArray(("seen",), "int", 0, rises=True))
    # Cumulative number of events in the first slot.
    first_count_before: Int[Array, " place1"] = stored(lambda n: StoredArray((n.places + 1,), "int", 0, rises=True))
    # Place of the input user at each of the first instants, -1 if there is no event.
    copied: Int[Array, "user copied"] = stored(lambda n: StoredArray(("users", "copied"), "int", ABSENT, n.places - 1))
    slot_of_instant: Int[Array, " instant"] = stored(lambda n: StoredArray(("instants",), "int", 0, n.slots - 1))

    @property
    def n_places(self) -> int:
        return self.first_count_before.shape[0] - 1

    def sample_first(self, key: OneKey, user: Index) -> Index:
        target = jax.random.randint(key, (), 0, self.first_count_before[-1])
        drawn = jnp.searchsorted(self.first_count_before, target, side="right") - 1
        return self._copied_or(user, jnp.zeros((), jnp.int32), drawn)

    def sample_next(self, key: OneKey, user: Index, instant: Index, place: Index) -> Index:
        begin, end = self._row(instant, place)
        total = self.count_before[end] - self.count_before[begin]
        target = jax.random.randint(key, (), 0, jnp.where(total > 0, total, self.n_places))
        seen = jnp.searchsorted(self.count_before, self.count_before[begin] + target, side="right") - 1
        drawn = jnp.where(total > 0, self.next_place[jnp.minimum(seen, len(self.next_place) - 1)], target)
        return self._copied_or(user, instant, drawn)

    def user_cache(self, users: Int[Array, " user"]) -> Int[Array, "copied user"]:
        """The copied events of the users; users do not differ in anything else."""
        return self.copied[users].T

    def user_classes(self, n_users: int) -> Int[np.ndarray, " user"]:
        """Classes of users with the same copied events; without copied events, one class of all users."""
        return np.unique(np.asarray(self.copied[:n_users]), axis=0, return_inverse=True)[1]

    def log_first(self, cache: Int[Array, " copied"], place: Index) -> Float[Array, ""]:
        count = self.first_count_before[place + 1] - self.first_count_before[place]
        # `float` is JAX's default type; a quotient of int32 would be single even if double precision is enabled.
        log_probability = jnp.log(count.astype(float) / self.first_count_before[-1])
        return self._certain_if_copied(cache, jnp.zeros((), jnp.int32), place, log_probability)

    def log_next(
        self, cache: Int[Array, " copied"], instant: Index, place: Index, next_place: Index
    ) -> Float[Array, ""]:
        return self._certain_if_copied(cache, instant, next_place, self._log_shared(instant, place, next_place))

    def log_moves(
        self, cache: Int[Array, "copied user"], instants: Steps, places: Steps, next_places: Steps
    ) -> Float[Array, "step user"]:
        """Look up the shared probabilities only once for all users."""
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

    def _copied_or(self, user: Array, instant: Array, drawn: Array) -> Index:
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


def fit_trace_model(train: Traces, settings: SGDSettings, *_: object) -> SharedChain:
    """Maximum likelihood: count the transitions by slot of arrival, and the places in the first slot."""
    period = train.time_grid.one_period()
    n_places, n_slots = train.n_places, train.time_grid.n_slots
    steps = train.transitions()
    row = train.slot[steps.event].astype(np.int64) * n_places + steps.place
    seen, count = np.unique(row * n_places + steps.next_place, return_counts=True)
    row, next_place = np.divmod(seen, n_places)
    # JAX cannot index an empty array: add a last entry that no row reaches.
    next_place = np.append(next_place, n_places)
    in_first_slot = train.slot == period.slot_of_instant[0]
    first_count = np.bincount(train.place[in_first_slot], minlength=n_places)
    if not first_count.any():
        # Without events in the first slot, use the events of all slots.
        first_count = np.bincount(train.place, minlength=n_places)
    return SharedChain(
        jnp.asarray(np.searchsorted(row, np.arange(n_slots * n_places + 1)).astype(np.int32)),
        jnp.asarray(next_place.astype(np.int32)),
        jnp.asarray(_running_sum(count)),
        jnp.asarray(_running_sum(first_count)),
        jnp.asarray(_first_places(train, min(settings.n_copied, period.n_instants), period.n_instants)),
        jnp.asarray(period.slot_of_instant),
    )


def _running_sum(count: np.ndarray) -> np.ndarray:
    total = int(count.sum())
    if total > INT32_MAX:
        problem = Problem(f"at most {INT32_MAX:,} events", f"{total:,}", way_out="Learn from fewer users")
        raise InputError("sgd", [problem])
    return np.concatenate([[0], np.cumsum(count)]).astype(np.int32)


def _first_places(train: Traces, n_copied: int, n_instants: int) -> np.ndarray:
    """Each user's place at each of the first instants of a period: their earliest event at that instant; -1 if none."""
    copied = np.full((train.n_users, n_copied), ABSENT, np.int32)
    instant = train.instant % n_instants
    early = np.flatnonzero(instant < n_copied)[::-1]
    copied[train.user[early], instant[early]] = train.place[early]
    return copied


def claims(model: SharedChain, settings: SGDSettings) -> Claims:
    """Claims of a release of these traces."""
    del model
    if not settings.n_copied:
        return Claims()
    events = "event" if settings.n_copied == 1 else f"{settings.n_copied} events"
    return Claims(
        not_protected=(
            f"the first {events} of each trace, copied from the user it was made from, where they had any then",
        )
    )


SYNTHESIZERS.register(Synthesizer("sgd", TITLE, SGDSettings, fit_trace_model, SharedChain, claims))
