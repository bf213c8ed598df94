"""Traces from reconstructed count tensors by Metropolis-Hastings (Murakami et al. 2021, section 3.4).

The proposal of user n is the row of reconstructed transitions r_n(a, .), floored and normalized. The target of a slot
is the reconstructed visits, floored. To draw from the row Q_{n,i}(a, .) of the chain, a place is proposed from Q*_n(a,
.) and accepted with the probability (5). So a step needs only two rows of the proposal and their sums, not the
transition matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ppmtf_jax.trace_models.base import ScoredTraceModel, StoredArray, stored
from ppmtf_jax.trace_models.sampling import sample_index

FLOOR = 1e-8
# With these bounds, all products and quotients of a step stay within single precision (1e-38 to 1e38), for ranks and
# numbers of places up to a million: reconstructed counts lie between the smallest floor and 1e18 * rank, so their ratio
# is at most 1e36. A step that is less probable than 1e-38 is never drawn, and its log-probability is -inf.
SMALLEST_FLOOR = 1e-12
LARGEST_FACTOR = 1e6
# Factors of the visits that may be those of the transitions, which are then stored once.
SAME_FACTORS = {"visit_user": "user", "visit_place": "place"}


def _factor(rows: str, rank: str, *, optional: bool = False) -> StoredArray:
    return StoredArray((rows, rank), low=-LARGEST_FACTOR, high=LARGEST_FACTOR, optional=optional)


class UserTables(NamedTuple):
    """Precomputed arrays for the log-probabilities of some users, or of one user."""

    transition_row: Float[Array, "rank *user"]  # the rows of the users in the user factor of the transitions
    # Sum of each row of the floored transitions: the normalizers of the personal proposal.
    row_sum: Float[Array, "place *user"]
    visits: Float[Array, "slot place *user"]  # floored visits: the target of each slot up to its normalizer


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class MetropolisHastings(ScoredTraceModel):
    """Metropolis-Hastings chains of all users from the factors of both tensors."""

    # `user`, `place`, `next_place`: factors of the transitions. Factors may be negative; only counts have a floor.
    user: Float[Array, "user rank"] = stored(lambda _: _factor("users", "rank"))
    place: Float[Array, "place rank"] = stored(lambda _: _factor("places", "rank"))
    next_place: Float[Array, "place rank"] = stored(lambda _: _factor("places", "rank"))
    # `visit_user`, `visit_place`, `slot`: factors of the visits; in PPMTF the user and place factors are the same as
    # for the transitions.
    visit_user: Float[Array, "user rank2"] = stored(lambda _: _factor("users", "visit rank", optional=True))
    visit_place: Float[Array, "place rank2"] = stored(lambda _: _factor("places", "visit rank", optional=True))
    slot: Float[Array, "slot rank2"] = stored(lambda _: _factor("slots", "visit rank"))
    slot_of_instant: Int[Array, " instant"] = stored(lambda n: StoredArray(("instants",), "int", 0, n.slots - 1))
    # phi: transitions below phi become phi, and visits at or below 0 become phi (as in the published program; according
    # to the paper, visits below phi become phi).
    floor: float = stored(lambda _: StoredArray((), low=SMALLEST_FLOOR, high=1), default=FLOOR, static=True)
    # Transition matrix of the population, every entry positive.
    population: Float[Array, "place place"] | None = stored(
        lambda _: StoredArray(("places", "places"), low=0, high=1, optional=True), default=None
    )
    # m: the proposal of user n is (1 - m) r_n(a, b) / sum r_n(a, .) + m population(a, b). 0 as published.
    proposal_mix: float = stored(lambda _: StoredArray((), low=0, high=1), default=0.0, static=True)

    def sample_first(self, key: Key[Array, ""], user: Int[Array, ""]) -> Int[Array, ""]:
        return sample_index(jax.random.uniform(key, dtype=self.user.dtype), self._visits(user, self.slot_of_instant[0]))

    def sample_next(
        self, key: Key[Array, ""], user: Int[Array, ""], instant: Int[Array, ""], place: Int[Array, ""]
    ) -> Int[Array, ""]:
        """Propose a place, and accept it with the probability (5); the normalizer of the target cancels."""
        uniform = jax.random.uniform(key, (2,), self.user.dtype)
        return self.move(uniform, user, self.slot_of_instant[instant], place)

    def move(self, uniform: Float[Array, "2"], user: Array, slot: Array, place: Array) -> Int[Array, ""]:
        """The next place from two uniform numbers: one for the proposal, one for its acceptance, eq. (5)."""
        row = self._proposal_from(self.user[user], place)
        proposed = sample_index(uniform[0], row)
        back_row = self._proposal_from(self.user[user], proposed)
        here, there = self._visits(user, slot, jnp.stack([place, proposed]))
        # Compute ratios, as in `log_next`: a product of visits, proposal and sum can leave the range of single
        # precision. The proposal would then be rejected, although its log-probability is finite.
        forth = row[proposed] / row.sum()
        back = (back_row[place] / back_row.sum()) * (there / here)
        return jnp.where(uniform[1] * forth < back, proposed, place)

    def instant_classes(self, n_instants: int) -> np.ndarray:
        """Step probabilities depend only on the slot of the instant."""
        return np.asarray(self.slot_of_instant)[:n_instants]

    def user_cache(self, users: Int[Array, " user"]) -> UserTables:
        """Row sums and targets; the cost is O(places^2 rank) for each user."""
        rows, visit_rows = self.user[users].T, self.visit_user[users]
        ones = jnp.ones(len(self.next_place), rows.dtype)
        # A product with ones is faster than a sum along an axis.
        row_sum = jax.lax.map(lambda place_row: ones @ self._floored((self.next_place * place_row) @ rows), self.place)
        visits = jnp.einsum("ur,sr,pr->spu", visit_rows, self.slot, self.visit_place)
        return UserTables(rows, row_sum, self._floored_visits(visits))

    def log_first(self, cache: UserTables, place: Int[Array, ""]) -> Float[Array, ""]:
        target = cache.visits[self.slot_of_instant[0]]
        return jnp.log(target[place] / target.sum())

    def log_next(
        self, cache: UserTables, instant: Int[Array, ""], place: Int[Array, ""], next_place: Int[Array, ""]
    ) -> Float[Array, ""]:
        target = cache.visits[self.slot_of_instant[instant]]
        forth, back = self._proposal(cache, place, next_place), self._proposal(cache, next_place, place)
        move = jnp.minimum(forth, back * (target[next_place] / target[place]))
        return jnp.log(jnp.where(place == next_place, self._stay(cache, target, place), move))

    def _stay(self, cache: UserTables, target: Float[Array, " place"], place: Int[Array, ""]) -> Float[Array, ""]:
        """Probability of staying: the probability of proposing the same place, plus that of all rejections.

        The flow a -> b is target(a) proposal(a, b); its excess over the flow b -> a is rejected. Summing these
        non-negative rejections keeps the digits that 1 - (sum of moves) would lose.
        """
        row = cache.transition_row
        out = self._mixed(self._floored(self.next_place @ (row * self.place[place])) / cache.row_sum[place], (place,))
        back = self._mixed(
            self._floored(self.place @ (row * self.next_place[place])) / cache.row_sum, (slice(None), place)
        )
        # A product with ones is vectorized; a sum along the last axis is not.
        return out[place] + jnp.maximum(out - back * (target / target[place]), 0) @ jnp.ones_like(out)

    def log_moves(
        self,
        cache: UserTables,
        instants: Int[Array, " step"],
        places: Int[Array, " step"],
        next_places: Int[Array, " step"],
    ) -> Float[Array, "step user"]:
        slots = self.slot_of_instant[instants]
        forth, back = self._proposal(cache, places, next_places), self._proposal(cache, next_places, places)
        return jnp.log(jnp.minimum(forth, back * (cache.visits[slots, next_places] / cache.visits[slots, places])))

    def log_stays(
        self, cache: UserTables, instants: Int[Array, " step"], places: Int[Array, " step"]
    ) -> Float[Array, "step user"]:
        """Compute place by place: two rows of the proposal are enough for all slots of a place."""
        rows, row_sum, visits = cache
        n_places, n_users = row_sum.shape
        if not len(places):  # JAX cannot index an empty array
            return jnp.zeros((0, n_users), rows.dtype)
        slots = self.slot_of_instant[instants]
        distinct = jnp.unique(places, size=n_places, fill_value=n_places)
        begin, end = (jnp.searchsorted(places, distinct, side=side) for side in ("left", "right"))
        # Here the places are contiguous in memory, because a product with ones sums over them.
        ones = jnp.ones(n_places, rows.dtype)
        factors, row_sums, targets = rows.T, row_sum.T, visits.swapaxes(1, 2)

        def of_place(number: Array, result: Array) -> Array:
            place = distinct[number]
            out = self._floored((factors * self.place[place]) @ self.next_place.T) / row_sums[:, place, None]
            back = self._floored((factors * self.next_place[place]) @ self.place.T) / row_sums
            out, back = self._mixed(out, (place,)), self._mixed(back, (slice(None), place))

            def of_slot(step: Array, result: Array) -> Array:
                target = targets[slots[step]]
                refused = jnp.maximum(out - back * (target * (1 / target[:, place])[:, None]), 0) @ ones
                return result.at[step].set(jnp.log(out[:, place] + refused))

            return jax.lax.fori_loop(begin[number], end[number], of_slot, result)

        empty = jnp.zeros((len(places), n_users), rows.dtype)
        return jax.lax.fori_loop(0, jnp.sum(distinct < n_places), of_place, empty)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All factors; those of the visits only where they are others than those of the transitions."""
        arrays = super().to_arrays()
        shared = [name for name, other in SAME_FACTORS.items() if np.array_equal(arrays[name], arrays[other])]
        return {name: array for name, array in arrays.items() if name not in shared}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> MetropolisHastings:
        shared = {name: other for name, other in SAME_FACTORS.items() if name not in arrays}
        arrays = arrays | {name: arrays[other] for name, other in shared.items()}
        if arrays["visit_user"].shape[1] != arrays["slot"].shape[1]:
            raise ValueError("factors of the visits of different rank")
        model = super().from_arrays(arrays)
        # One copy in memory serves both tensors.
        return replace(model, **{name: getattr(model, other) for name, other in shared.items()})

    def _floored(self, transitions: Array) -> Array:
        return jnp.maximum(transitions, self.floor)

    def _mixed(self, personal: Array, entries: tuple[Any, ...]) -> Array:
        """Mix entries of the personal proposal with the same entries of the population's, if there is one."""
        if self.population is None:
            return personal
        return (1 - self.proposal_mix) * personal + self.proposal_mix * self.population[entries]

    def _proposal_from(self, user_row: Float[Array, " rank"], place: Int[Array, ""]) -> Float[Array, " place"]:
        """A row of the proposal; not normalized if there is no population."""
        row = self._floored(self.next_place @ (user_row * self.place[place]))
        return row if self.population is None else self._mixed(row / row.sum(), (place,))

    def _proposal(
        self, cache: UserTables, place: Int[Array, "*step"], next_place: Int[Array, "*step"]
    ) -> Float[Array, "*step_and_user"]:
        """The proposal of one step of one user, or of many steps of all users of the cache."""
        design = self.place[place] * self.next_place[next_place]
        personal = self._floored(design @ cache.transition_row) / cache.row_sum[place]
        each_user = (None,) * (personal.ndim - place.ndim)
        return self._mixed(personal, (place, next_place, *each_user))

    def _visits(
        self, user: Int[Array, ""], slot: Int[Array, ""], places: slice | Int[Array, " some"] = slice(None)
    ) -> Float[Array, " some"]:
        return self._floored_visits(self.visit_place[places] @ (self.visit_user[user] * self.slot[slot]))

    def _floored_visits(self, visits: Array) -> Array:
        # A target of exactly 0 would exclude the place for ever, so it becomes phi like negative targets.
        return jnp.where(visits > 0, visits, self.floor)
