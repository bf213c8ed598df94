"""Seed traces: whole periods of users, which SGLT transforms into synthetic traces."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import Problem, first_examples, raise_any


class SeedTraces(NamedTuple):
    """Complete traces of one period each, sorted by user."""

    user: Int[np.ndarray, " seed"]
    place: Int[np.ndarray, "seed instant"]
    n_users: int
    n_places: int

    @classmethod
    def of(cls, train: Traces) -> SeedTraces:
        """Cut traces into periods.

        Periods without events are left out, and also the last period if the grid cuts it off.

        Raises `InputError`: a period has some events, but not all, or a user has no whole period.
        """
        length = train.time_grid.period
        n_periods = train.time_grid.n_instants // length
        period = train.instant // length
        whole = period < n_periods
        trace = train.trace_of_event()[whole].astype(np.int64)
        first, n_events = np.unique(trace * n_periods + period[whole], return_index=True, return_counts=True)[1:]
        user = train.user[whole][first]
        gaps = n_events < length
        problems = []
        if gaps.any():
            examples = first_examples(train.user_ids[np.unique(user[gaps])].tolist())
            found = f"{gaps.sum()} periods with missing events; users"
            way_out = "SGLT and its privacy test need complete traces: complete them first, or take users without gaps"
            expected = f"an event at each of the {length} instants of a period"
            problems.append(Problem(expected, found, 0, examples, way_out))
        seedless = np.setdiff1d(np.arange(train.n_users), user)
        if len(seedless):
            examples = first_examples(train.user_ids[seedless].tolist())
            found = "events of a last period only, which the grid cuts off"
            problems.append(Problem(f"a whole period of {length} instants of every user", found, 0, examples))
        raise_any("seed traces", problems)
        return cls(user, train.place[whole].reshape(-1, length), train.n_users, train.n_places)

    @property
    def seeds_per_user(self) -> Int[np.ndarray, " user"]:
        return np.bincount(self.user, minlength=self.n_users)

    def visits(self) -> Float[np.ndarray, "user place"]:
        """Mean number of a user's events at each place in a period."""
        cell = self.user[:, None].astype(np.int64) * self.n_places + self.place
        count = np.bincount(cell.ravel(), minlength=self.n_users * self.n_places).reshape(self.n_users, self.n_places)
        return count / self.seeds_per_user[:, None]

    def transitions(self) -> Int[np.ndarray, "place next_place"]:
        """Transition counts of all users; the last instant of a seed is followed by its first."""
        cell = self.place.astype(np.int64) * self.n_places + np.roll(self.place, -1, axis=1)
        return np.bincount(cell.ravel(), minlength=self.n_places**2).reshape(self.n_places, self.n_places)
