"""Transitions of users between consecutive instants."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Int

from ppmtf_jax.bridge.space import Space
from ppmtf_jax.data.blocks import OneBlock
from ppmtf_jax.data.traces import Traces


@dataclass(frozen=True, eq=False)
class Transitions(OneBlock):
    """Transitions between consecutive instants; `slot` is the slot of arrival."""

    user: Int[np.ndarray, " step"]
    slot: Int[np.ndarray, " step"]
    place: Int[np.ndarray, " step"]
    next_place: Int[np.ndarray, " step"]
    n_slots: int
    n_places: int

    @classmethod
    def of(cls, traces: Traces, arrival: Int[np.ndarray, " step"] | None = None) -> Transitions:
        """The transitions of traces, see `Traces.transitions`; or only those to the events `arrival`."""
        event = np.flatnonzero(traces.is_step()) if arrival is None else arrival
        place, next_place = traces.place[event - 1], traces.place[event]
        slot, n_slots = traces.slot[event], traces.time_grid.n_slots
        return cls(traces.user[event], slot, place, next_place, n_slots, traces.n_places)

    def of_users(self, users: Int[np.ndarray, " user"]) -> Transitions:
        """Transitions of the users with these sorted indices, who are numbered 0, 1, ... in that order."""
        found = self.where(np.isin(self.user, users))
        return replace(found, user=np.searchsorted(users, found.user))

    @property
    def stays(self) -> Transitions:
        """Transitions from a place to itself."""
        return self.where(self.place == self.next_place)

    @property
    def moves(self) -> Transitions:
        """Transitions to another place."""
        return self.where(self.place != self.next_place)

    @property
    def pair(self) -> Int[np.ndarray, " step"]:
        """Code of each pair: place * n_places + next place."""
        return self.place.astype(np.int64) * self.n_places + self.next_place

    def cells(self, space: Space) -> Int[np.ndarray, " step"]:
        """Code of each pair of cells: cell * n_cells + next cell."""
        return space.cell[self.place].astype(np.int64) * len(space.km) + space.cell[self.next_place]

    def in_slot_and_place(self, group_of_slot: Int[np.ndarray, " slot"] | None = None) -> Int[np.ndarray, " step"]:
        """Code of each transition: (slot of arrival, or its group) * n_places + place."""
        slot = self.slot if group_of_slot is None else group_of_slot[self.slot]
        return slot.astype(np.int64) * self.n_places + self.place

    def __len__(self) -> int:
        return len(self.user)

    def where(self, keep: Bool[np.ndarray, " step"]) -> Transitions:
        """The transitions for which `keep` is true."""
        return replace(self, **{name: getattr(self, name)[keep] for name in ("user", "slot", "place", "next_place")})
