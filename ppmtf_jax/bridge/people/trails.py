"""Steps of traces, and the persons who may have made the traces; the exact probabilities need both."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from ppmtf_jax.bridge.people.law import ELSEWHERE, HOME, SECOND
from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.trace_models.base import ABSENT


def table_of(traces: Traces) -> tuple[Int[np.ndarray, "trace instant"], Int[np.ndarray, " trace"]]:
    """Places of traces cut into periods, `ABSENT` where there is no event; and the user of each trace."""
    periods = traces.periods()
    places = np.full((len(periods.first), traces.time_grid.period), ABSENT, np.int32)
    places[periods.piece, periods.phase] = traces.place
    return places, traces.user[periods.first]


def number_of_places(places: Int[np.ndarray, "trace instant"]) -> Int[np.ndarray, " trace"]:
    """Number of distinct places of each trace."""
    return (np.diff(np.sort(places, axis=1), axis=1, prepend=ABSENT) != 0).sum(axis=1)


class Steps(NamedTuple):
    """Steps from each event to the next one, sorted by trace; all traces have the same number of distinct places.

    The *number* of a place counts the distinct places of a trace in the order of their first events: 0, 1, ...
    """

    trace: Int[np.ndarray, " step"]
    start: Int[np.ndarray, " step"]  # instant
    end: Int[np.ndarray, " step"]
    arrived: Int[np.ndarray, " step"]  # first instant of the current run of events at the place where the step starts
    place: Int[np.ndarray, " step"]  # where the step starts
    number: Int[np.ndarray, " step"]  # number of `place`
    following: Int[np.ndarray, " step"]  # number of the place where the step ends
    before: Int[np.ndarray, " step"]  # number of the place visited just before `place`, or `ABSENT`
    known: Int[np.ndarray, " step"]  # number of distinct places so far
    arrivals: Int[np.ndarray, "step number"]  # number of runs of events at each place that began so far

    @classmethod
    def of(
        cls, places: Int[np.ndarray, "trace instant"]
    ) -> tuple[Int[np.ndarray, "trace number"], Int[np.ndarray, " trace"], Steps]:
        """Place of each number, first instant and steps of traces; each trace has at least one event."""
        trace, instant = np.nonzero(places != ABSENT)
        place = places[trace, instant].astype(np.int64)
        begins, arrives = run_begins(trace), run_begins(trace, place)
        of_run, at = trace[arrives], place[arrives]
        _, first, inverse = np.unique(of_run * (at.max() + 1) + at, return_index=True, return_inverse=True)
        distinct = at[np.sort(first)].reshape(len(places), -1)
        n_before = distinct.shape[1] * of_run
        n_new = np.cumsum(np.isin(np.arange(len(at)), first))
        number = n_new[first[inverse]] - 1 - n_before
        visits = number[:, None] == np.arange(distinct.shape[1])
        arrivals, is_first = np.cumsum(visits, axis=0), run_begins(of_run)
        arrivals -= (arrivals - visits)[is_first][of_run]
        before = np.where(is_first, ABSENT, np.roll(number, 1))
        start, run = np.flatnonzero(~begins[1:]), np.cumsum(arrives) - 1
        here, following = run[start], run[start + 1]
        steps = cls(
            trace[start],
            instant[start],
            instant[start + 1],
            instant[arrives][here],
            place[start],
            number[here],
            number[following],
            before[here],
            (n_new - n_before)[here],
            arrivals[here],
        )
        return distinct, instant[begins], steps

    def select(self, chosen: Bool[np.ndarray, " step"]) -> Steps:
        """The chosen steps."""
        return Steps(*(column[chosen] for column in self))

    @property
    def stays(self) -> Bool[np.ndarray, " step"]:
        """Whether the step ends at the same place."""
        return self.number == self.following


class Persons(NamedTuple):
    """All persons who may have made a trace with a given number of distinct places.

    `home`, `second`: number of the home and of the second place in the trace (see `Steps`), `ABSENT` if the trace does
    not have this place. `layer`: layer of each person at the place of each number.
    """

    home: Int[np.ndarray, " person"]
    second: Int[np.ndarray, " person"]
    has_second: Int[np.ndarray, " person"]
    layer: Int[np.ndarray, "person number"]

    @classmethod
    def of(cls, n_distinct: int, *, anchors: bool) -> Persons:
        """All persons; without anchors, nobody has a home or second place."""
        numbers = np.arange(ABSENT, n_distinct if anchors else 0)
        home, second, has_second = (x.ravel() for x in np.meshgrid(numbers, numbers, [0, 1], indexing="ij"))
        exists = ((home != second) | (home == ABSENT)) & ((second == ABSENT) | (has_second == 1))
        home, second, has_second, number = home[exists], second[exists], has_second[exists], np.arange(n_distinct)
        layer = np.where(number == home[:, None], HOME, np.where(number == second[:, None], SECOND, ELSEWHERE))
        return cls(home, second, has_second, layer)

    @property
    def anchors(self) -> tuple[Int[np.ndarray, " person"], Int[np.ndarray, " person"]]:
        return self.home, self.second

    @property
    def is_elsewhere(self) -> Bool[np.ndarray, "person number"]:
        return self.layer == ELSEWHERE

    def layers_of(self, steps: Steps) -> tuple[Int[np.ndarray, "step person"], Int[np.ndarray, "step person"]]:
        """Layers before and after each step."""
        return self.layer.T[steps.number], self.layer.T[steps.following]
