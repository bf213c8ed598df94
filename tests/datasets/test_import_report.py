"""What an import says of rows that it left out, and that its claim on places holds for the training users."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from ppmtf_jax.cli.app import app
from ppmtf_jax.datasets.checkins import read_checkins
from ppmtf_jax.datasets.discretize import Discretization
from ppmtf_jax.datasets.places import GridPlaces, MostVisited
from ppmtf_jax.datasets.registry import DATA_SETS, split_users
from ppmtf_jax.datasets.summary import DataCheck, Imported
from ppmtf_jax.runtime.folders import read_marker
from ppmtf_jax.settings import describe_settings


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


def test_help_tells_the_number_of_places():
    told = {name: describe_settings(DATA_SETS[name].settings) for name in ("checkins", "foursquare", "geolife")}
    assert "n_places=1000 unless there is a grid or a place_table, " in told["checkins"]
    assert "time_zone=America/New_York" in told["foursquare"]
    assert "n_places=none" in told["geolife"]


@pytest.mark.slow
def test_new_york_by_default(foursquare_nyc):
    data_set = DATA_SETS["foursquare"]
    found = data_set.read(data_set.settings(foursquare_nyc), 0, False)
    n_users = found.sets["train"].users_per_place()
    assert (len(n_users), n_users.min()) == (851, 5)
    # With all places kept 344 of 1,000 are of one person.
    assert len(found.losses) == 2
