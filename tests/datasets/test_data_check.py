"""What an import would give, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.places import GridPlaces
from ppmtf_jax.datasets.registry import DATA_SETS
from ppmtf_jax.datasets.summary import DataCheck, Imported
from ppmtf_jax.errors import InputError
from ppmtf_jax.jobs.steps import import_data

PLACES = PlaceTable(np.arange(9), np.full(9, 35.0), np.full(9, 139.0))


def traces(rows: list[tuple], step_s: int = 1800) -> Traces:
    grid = TimeGrid.cyclic("2024-01-01T00:00:00", step_s, 96, slot_s=7200, time_zone="Asia/Tokyo")
    return Traces.from_frame(pd.DataFrame(rows, columns=["user", "trace", "instant", "place"]), PLACES, grid)


def test_sets_are_counted_together():
    train = traces([(1, 0, 0, 0), (1, 0, 1, 1), (1, 0, 49, 0), (1, 1, 50, 0)])
    test = traces([(2, 0, 3, 5)])
    check = DataCheck(Imported({"train": train, "test": test}, "a report"))
    assert (check.n_users, check.n_events, check.n_places, check.n_visited) == (2, 5, 9, 3)
    # Half hours 0, 1 and 49 are at hours 0 and 0 again of the next day; 50 at 1; 3 at 1.
    assert check.events_of_hour.tolist() == [3, 2] + [0] * 22
    # From 0 to 1, and from 1 to 49; the other trace has one event.
    assert (check.n_in_traces, check.n_transitions, check.gap_s) == (2, 1, (1 + 48) / 2 * 1800)
    assert check.events_per_user == (4 + 1) / 2


def test_what_makes_synthesis_hard_is_told():
    lonely = DataCheck(Imported({"train": traces([(1, 0, 0, 0)])}, "a report"))
    assert "no trace has two" in str(lonely)
    assert [warning.split(":")[0] for warning in lonely.warnings()] == [
        "few consecutive events",
        "many places for 0 transitions",
        "few events per user",
    ]
    awake = [(1, 0, instant, 0) for instant in range(48) if instant // 2 != 12]
    assert DataCheck(Imported({"train": traces(awake)}, "")).warnings() == [
        "fewest events at 12 h: people sleep at night, so the time zone may be wrong"
    ]


def test_many_cells_that_nobody_visits_are_told():
    table = GridPlaces(35, 36, 139, 140, 1000, 1000).table()
    few = replace(traces([(1, 0, 0, 0), (1, 0, 1, 1)]), places=table)
    told = [
        warning for warning in DataCheck(Imported({"train": few}, "")).warnings() if "999,998 of 1,000,000" in warning
    ]
    assert len(told) == 1
    assert "min_users_per_place=2" in told[0]


def test_too_few_users_to_split_can_be_looked_at_and_not_imported(tmp_path):
    settings = DATA_SETS["toy-city"].settings(n_users=2, n_places=20, n_days=1)
    check = DataCheck(DATA_SETS["toy-city"].read(settings, 0, False))
    assert check.n_users == 2
    assert (
        check.warnings()[0]
        == "split: expected a training fraction that leaves users on both sides; found 0.8 of 2 users"
    )
    with pytest.raises(InputError, match="leaves users on both sides"):
        import_data("toy-city", settings, tmp_path / "out", seed=0)
    assert not (tmp_path / "out").exists()
