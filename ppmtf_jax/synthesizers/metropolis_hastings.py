"""Traces from reconstructed count tensors by Metropolis-Hastings (Murakami et al. 2021, section 3.4).

The proposal of user n is the reconstructed transitions r_n(a, .), floored and normalized; the target of a slot is the
reconstructed visits, floored. Drawing from the chain's row Q_{n,i}(a, .) is proposing from Q*_n(a, .) and accepting
with eq. (5), so a step needs one row of the proposal and two row sums, and no transition matrix is built.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ppmtf_jax.synthesizers.base import TraceModel, sample_index

FLOOR = 1e-8


class UserTables(NamedTuple):
    """What the log-probabilities of one user need again and again.

    Attributes
    ----------
    transition_row : (rank,)
        The user's row of the transitions' user factor.
    row_sum : (places,)
        Sum of each row of the floored transitions: the proposal's normalizers.
    visits : (slots, places)
        Floored visits: the target of each slot up to its normalizer.
    stay : (slots, places)
        Probability of staying at each place.
    """

    transition_row: Float[Array, " rank"]
    row_sum: Float[Array, " place"]
    visits: Float[Array, "slot place"]
    stay: Float[Array, "slot place"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class MetropolisHastings(TraceModel):
    """Metropolis-Hastings chains of all users from the factors of both tensors.

    Parameters
    ----------
    user, place, next_place : factors of the transitions, shapes (users, rank), (places, rank), (places, rank)
    visit_user, visit_place, slot : factors of the visits, shapes (users, rank), (places, rank), (slots, rank)
        In PPMTF the user and place factors are those of the transitions.
    slot_of_instant : int array, shape (instants,)
    floor : float
        phi: transitions below it become it, and so do visits below zero (as in the published program; the paper's text
        floors visits below phi).
    """

    user: Float[Array, "user rank"]
    place: Float[Array, "place rank"]
    next_place: Float[Array, "place rank"]
    visit_user: Float[Array, "user rank2"]
    visit_place: Float[Array, "place rank2"]
    slot: Float[Array, "slot rank2"]
    slot_of_instant: Int[Array, " instant"]
    floor: float = field(default=FLOOR, metadata={"static": True})

    def sample_first(self, key: Key[Array, ""], user: Int[Array, ""]) -> Int[Array, ""]:
        return sample_index(jax.random.uniform(key, dtype=self.user.dtype), self._visits(user, self.slot_of_instant[0]))

    def sample_next(
        self, key: Key[Array, ""], user: Int[Array, ""], instant: Int[Array, ""], place: Int[Array, ""]
    ) -> Int[Array, ""]:
        """Propose from the user's transitions, accept with eq. (5); the target's normalizer cancels."""
        uniform = jax.random.uniform(key, (2,), self.user.dtype)
        row = self._transitions_from(self.user[user], place)
        proposed = sample_index(uniform[0], row)
        back_row = self._transitions_from(self.user[user], proposed)
        here, there = self._visits_at(user, self.slot_of_instant[instant], jnp.stack([place, proposed]))
        forth = here * row[proposed] * back_row.sum()
        back = there * back_row[place] * row.sum()
        return jnp.where(uniform[1] * forth < back, proposed, place)

    def tables(self, user: Int[Array, ""]) -> UserTables:
        """Row sums, targets and self-transition probabilities of one user: O(slots places^2)."""
        row = self.user[user]
        transitions = self._floored((self.place * row) @ self.next_place.T)
        row_sum = transitions.sum(axis=1)
        visits = jax.vmap(lambda slot: self._visits(user, slot))(jnp.arange(self.slot.shape[0]))
        proposal = transitions / row_sum[:, None]

        def stay(target: Float[Array, " place"]) -> Float[Array, " place"]:
            # Probability flow a -> b is the smaller of target(a) proposal(a, b) and its mirror image; the rest of what
            # is proposed is refused. A sum of refusals, none negative, keeps the digits that 1 - sum would lose.
            flow = target[:, None] * proposal
            refused = flow - jnp.minimum(flow, flow.T)
            return jnp.diagonal(proposal) + refused.sum(axis=1) / target

        return UserTables(row, row_sum, visits, jax.lax.map(stay, visits))

    def log_first(self, tables: UserTables, place: Int[Array, ""]) -> Float[Array, ""]:
        target = tables.visits[self.slot_of_instant[0]]
        return jnp.log(target[place] / target.sum())

    def log_next(
        self, tables: UserTables, instant: Int[Array, ""], place: Int[Array, ""], next_place: Int[Array, ""]
    ) -> Float[Array, ""]:
        slot = self.slot_of_instant[instant]
        forth = self._transition(tables, place, next_place)
        back = self._transition(tables, next_place, place)
        move = jnp.minimum(forth, back * (tables.visits[slot, next_place] / tables.visits[slot, place]))
        return jnp.log(jnp.where(place == next_place, tables.stay[slot, place], move))

    def to_arrays(self) -> dict[str, np.ndarray]:
        names = ("user", "place", "next_place", "slot", "slot_of_instant")
        arrays = {name: np.asarray(getattr(self, name)) for name in names}
        if self.visit_user is not self.user:
            arrays |= {"visit_user": np.asarray(self.visit_user), "visit_place": np.asarray(self.visit_place)}
        return arrays | {"floor": np.asarray(self.floor)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> MetropolisHastings:
        loaded = {name: jnp.asarray(value) for name, value in arrays.items() if name != "floor"}
        loaded.setdefault("visit_user", loaded["user"])
        loaded.setdefault("visit_place", loaded["place"])
        return cls(**loaded, floor=float(arrays["floor"]))

    def _floored(self, transitions: Array) -> Array:
        return jnp.maximum(transitions, self.floor)

    def _transitions_from(self, user_row: Float[Array, " rank"], place: Int[Array, ""]) -> Float[Array, " place"]:
        return self._floored(self.next_place @ (user_row * self.place[place]))

    def _transition(self, tables: UserTables, place: Array, next_place: Array) -> Float[Array, ""]:
        """Proposal probability of one step. The design is formed first, so that over users this is one product."""
        design = self.place[place] * self.next_place[next_place]
        return self._floored(design @ tables.transition_row) / tables.row_sum[place]

    def _visits(self, user: Int[Array, ""], slot: Int[Array, ""]) -> Float[Array, " place"]:
        return self._floored_visits(self.visit_place @ (self.visit_user[user] * self.slot[slot]))

    def _visits_at(self, user: Array, slot: Array, places: Int[Array, " some"]) -> Float[Array, " some"]:
        return self._floored_visits(self.visit_place[places] @ (self.visit_user[user] * self.slot[slot]))

    def _floored_visits(self, visits: Array) -> Array:
        # A visit of exactly 0 would forbid the place for ever; it is floored with the negative ones.
        return jnp.where(visits > 0, visits, self.floor)
