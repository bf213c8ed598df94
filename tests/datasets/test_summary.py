"""What an import says of its rows, that its claim on places holds for the training users, and what it would give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from ppmtf_jax.cli.app import app
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checkins import read_checkins
from ppmtf_jax.datasets.discretize import Discretization
from ppmtf_jax.datasets.places import GridPlaces, MostVisited
from ppmtf_jax.datasets.registry import DATA_SETS, split_users
from ppmtf_jax.datasets.summary import DataCheck, Imported
from ppmtf_jax.errors import InputError
from ppmtf_jax.jobs.steps import import_data
from ppmtf_jax.runtime.folders import read_marker


def town() -> pd.DataFrame:
    """Forty users in a bar each hour; k of them at shop k, from 1 to 12; each thrice at home alone."""
    rows = [(user, f"2024-01-01T{hour:02d}:00Z", "bar", 0.0) for user in range(40) for hour in range(10, 13)]
    rows += [(user, f"2024-01-{2 + k:02d}T10:00Z", f"shop {k:02d}", k) for k in range(1, 13) for user in range(k)]
    rows += [
        (user, f"2024-01-02T{h}:00Z", f"home {user:02d}", 20 + user) for user in range(40) for h in ("01", "02", "03")
    ]
    table = pd.DataFrame(rows, columns=["user", "time", "place", "latitude"])
    return table.assign(latitude=40 + table["latitude"] / 100, longitude=0.0)


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("town") / "town.csv"
    town().to_csv(path, index=False)
    return path


def imported(file: Path, **settings) -> Imported:
    data_set = DATA_SETS["checkins"]
    return data_set.read(data_set.settings(file, **settings), 3, False)


@pytest.mark.parametrize("how", [{}, {"other_places": "nearest"}, {"grid": (39.995, 40.605, -1, 1, 61, 1)}])
def test_every_place_has_five_training_users(file, how):
    found = imported(file, **how)
    n_users = found.sets["train"].users_per_place()
    assert n_users[n_users > 0].min() == 5
    assert "fewest training users of a place  " in found.report
    every = imported(file, **how, min_users_per_place=1).sets["train"]
    kept = set(found.sets["train"].places.ids[n_users > 0].tolist())
    assert kept == set(every.places.ids[every.users_per_place() >= 5].tolist())
    # Twelve people were at the last shop, and not every shop of five or more has five of the training users.
    assert 2 <= len(kept) <= 9


def test_what_is_left_out_is_counted_once():
    traces, report = read_checkins(town(), discretization=Discretization(MostVisited(5)))
    # The bar and the shops of 12 to 9 users are kept; shops of 5 to 8 are other places; the rest are of few.
    assert report.left_out() == {"places of few users": 1 + 2 + 3 + 4 + 40 * 3, "other places": 5 + 6 + 7 + 8}
    assert report.n_rows == traces.n_events + sum(report.left_out().values())
    told = report.kept()
    assert told.startswith(f"{traces.n_events:,} of {report.n_rows:,} rows")
    assert told.index("130 (places of few users)") < told.index("26 (other places)")
    # 95 % of 120 + 12 + ... + 5 = 188 are 178.6: shops down to 6 keep 120 + 63 = 183, those down to 7 keep 177.
    assert report.advice()["other places"] == "n_places=8 keeps 95 % of the check-ins at places of at least 5 users"
    assert read_checkins(town(), discretization=Discretization(MostVisited(8)))[1].n_places_for_most is None
    split = split_users(traces, report, 0.8, 0)
    assert split.losses[0].startswith("1")
    assert split.losses[0].endswith(
        "fewer than 5 training users; other_places='nearest' moves what is there to the nearest place that is kept"
    )


def test_the_step_that_keeps_most_is_told():
    minutes = [*range(0, 60, 10), 61, 62]
    rows = [(user, f"2024-01-01T{10 + at // 60}:{at % 60:02d}Z") for user in range(5) for at in minutes]
    table = pd.DataFrame(rows, columns=["user", "time"]).assign(latitude=40.0, longitude=0.0)
    grid = GridPlaces(39, 41, -1, 1, 1, 1)
    for step_s, n_lost, better in ((3600, 6, 120), (1800, 5, 120), (600, 1, 120), (60, 0, None)):
        report = read_checkins(table, discretization=Discretization(grid, step_s=step_s))[1]
        assert (report.n_same_instant, report.step_for_most_s) == (5 * n_lost, better)


def test_the_dry_run_and_the_data_tell_it_too(file, tmp_path):
    words = ["import", "checkins", str(file), "--places", "3", "--seed", "3", "--quiet"]
    dry = CliRunner().invoke(app, [*words, "--check"]).output.replace("\n", " ")
    assert "rows left out, places of few users: fewer than 5 training users; --other-places nearest moves" in dry
    assert "other places: --places" in dry
    assert "nothing looks amiss" not in dry
    CliRunner().invoke(app, [*words, "--out", str(tmp_path / "private" / "data")], catch_exceptions=False)
    losses = read_marker(tmp_path / "private" / "data").about["losses"]
    assert losses == list(DataCheck(imported(file, n_places=3)).losses)
    assert len(losses) == 2


@pytest.mark.slow
def test_new_york_by_default(foursquare_nyc):
    data_set = DATA_SETS["foursquare"]
    found = data_set.read(data_set.settings(foursquare_nyc), 0, False)
    n_users = found.sets["train"].users_per_place()
    assert (len(n_users), n_users.min()) == (851, 5)
    # With all places kept 344 of 1,000 are of one person.
    assert len(found.losses) == 2


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
