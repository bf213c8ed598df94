"""Small trace sets, and what they hold told by loops over dictionaries: what tests of several stages share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from ppmtf_jax.data.measurement import Interpretation, MetricInfo
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.discretize import Discretization
from ppmtf_jax.evaluation import Evaluation
from ppmtf_jax.evaluation.results import Row as EvaluationRow

Row = tuple[int, int, int, int]
"""User, trace, instant, place."""

every_place = partial(Discretization, min_users_per_place=1)
"""Also places of few users: tables made by hand have no others."""


def places_in_line(n: int) -> PlaceTable:
    """Places 0, 1, ... from the south-west to the north-east."""
    return PlaceTable(np.arange(n), np.linspace(35, 36, n), np.linspace(139, 140, n))


def minutes(n: int) -> TimeGrid:
    """Minutes from midnight, each a slot of its own."""
    return TimeGrid.each_instant("2024-01-01T00:00:00", 60, n)


def to_traces(rows: Iterable[Row], places: PlaceTable, grid: TimeGrid) -> Traces:
    """Traces of some events; places by index."""
    frame = pd.DataFrame(list(rows), columns=["user", "trace", "instant", "place"])
    return Traces.from_frame(frame.assign(place=places.ids[frame["place"]]), places, grid)


def random_traces(
    seed: int,
    users: Iterable[int],
    places: PlaceTable,
    grid: TimeGrid,
    *,
    n_traces: int = 1,
    keep: float = 1.0,
    n_visited: int | None = None,
) -> Traces:
    """Places drawn from one distribution for everybody, so that no trace tells anything of its user.

    Parameters
    ----------
    users : int
        Their ids. One of whom no event is kept is not among the users.
    keep : float
        Share of the events that are kept.
    n_visited : int, optional
        Places from this number on are never visited.
    """
    rng = np.random.default_rng(seed)
    when = np.array([(u, t, i) for u in users for t in range(n_traces) for i in range(grid.n_instants)])
    place = rng.integers(n_visited or len(places), size=len(when))
    kept = rng.random(len(when)) < keep
    return to_traces(np.column_stack([when, place])[kept].tolist(), places, grid)


def transitions_by_loop(traces: Traces, *, over_gaps: bool = False) -> list[Row]:
    """User, trace number, place and next place of every transition; `over_gaps`: also over several instants."""
    columns = (traces.user, traces.trace, traces.instant, traces.place)
    at = {(u, t, i): p for u, t, i, p in zip(*(column.tolist() for column in columns), strict=True)}
    found = []
    for u, t, i in at:
        reach = traces.time_grid.n_instants if over_gaps else 1
        later = [at[u, t, i + gap] for gap in range(1, reach + 1) if (u, t, i + gap) in at]
        found += [(u, t, at[u, t, i], later[0])] if later else []
    return found


def evaluation_of(
    columns: Sequence[str],
    numbers: Sequence[tuple[MetricInfo, Sequence[float]]],
    readings: Mapping[str, Interpretation] | None = None,
) -> Evaluation:
    """An evaluation with given numbers, for each quantity one for each column; and how some are to be read."""
    known = readings or {}
    rows = [
        EvaluationRow(
            quantity, "utility", dict(zip(columns, values, strict=True)), known.get(quantity.name, Interpretation())
        )
        for quantity, values in numbers
    ]
    return Evaluation(rows)


def codes(reading: Interpretation) -> list[str]:
    """Codes of the caveats of a number."""
    return [each.code for each in reading.caveats]
