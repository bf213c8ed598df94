"""Data sets by name: what each reads, which settings it takes, and that one more is one entry."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.cli.options import option_name
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checkins import read_checkins
from ppmtf_jax.datasets.foursquare_www import read_foursquare_www
from ppmtf_jax.datasets.geolife import BEIJING, read_geolife
from ppmtf_jax.datasets.people_flow import read_people_flow, read_synthetic
from ppmtf_jax.datasets.places import GridPlaces, keep_shared_places
from ppmtf_jax.datasets.published import read_foursquare, read_gowalla
from ppmtf_jax.datasets.registry import DATA_SETS, CheckinTableSettings, DataSet
from ppmtf_jax.datasets.summary import Imported, ImportReport
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.settings import Settings, build_settings, describe_settings, help_of_fields
from tests.support import every_place

# Tables made by hand have few users.
EVERY_PLACE = {"min_users_per_place": 1}
read_checkins = partial(read_checkins, discretization=every_place())
read_foursquare = partial(read_foursquare, discretization=every_place())
read_geolife = partial(read_geolife, discretization=every_place(GridPlaces(*BEIJING)))
read_gowalla = partial(read_gowalla, discretization=every_place())
read_foursquare_www = partial(read_foursquare_www, discretization=every_place(repeats="count"))

SAMPLES = Path(__file__).parents[1] / "samples"
NAMES = ["checkins", "foursquare", "foursquare-www", "geolife", "gowalla", "lbsn2vec", "people-flow", "toy-city"]
COLUMNS = {"user": "who", "time": "when", "latitude": "lat", "longitude": "lon", "place": "where"}


def imported(name: str, seed: int = 0, **values) -> Imported:
    data_set = DATA_SETS[name]
    return data_set.read(build_settings(data_set.settings, values, "import"), seed, False)


def refusal(name: str, **values) -> list[str]:
    with pytest.raises(InputError) as error:
        build_settings(DATA_SETS[name].settings, values, "import")
    return [str(problem) for problem in error.value.problems]


def assert_split_of(found: Imported, traces: Traces, report: object, seed: int, train_fraction: float = 0.8) -> None:
    """The sets are what splitting the traces gives, and the report is the reader's."""
    train, test = traces.split_users(train_fraction, seed)
    assert list(found.sets) == ["train", "test"]
    for part, expected in zip(found.sets.values(), (train, test), strict=True):
        pd.testing.assert_frame_equal(part.to_frame(), expected.to_frame())
        pd.testing.assert_frame_equal(part.places.to_frame(), expected.places.to_frame())
        assert part.time_grid == expected.time_grid
    assert found.report == str(report.after_split(train, test, 0) if isinstance(report, ImportReport) else report)


# Entries


def test_every_data_set_is_registered():
    assert list(DATA_SETS) == NAMES
    with pytest.raises(InputError, match=r"^data set: .*; found 'four-square'\. Did you mean foursquare"):
        DATA_SETS["four-square"]


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_tells_all_that_help_needs(name):
    data_set = DATA_SETS[name]
    assert data_set.name == name
    assert data_set.title.endswith(".")
    assert data_set.example.split()[0] == name
    assert is_dataclass(data_set.settings)
    assert describe_settings(data_set.settings)
    names = [field.name for field in fields(data_set.settings)]
    assert list(help_of_fields(data_set.settings)) == names
    options = {word for word in data_set.example.split() if word.startswith("--")}
    assert options <= {option_name(name) for name in names}


@dataclass(frozen=True)
class LineSettings(Settings, subject="import"):
    """People on a line.

    Parameters
    ----------
    n_users : int
        How many there are.
    """

    n_users: int


def read_line(settings: LineSettings, seed: int, progress: bool) -> Imported:
    n = settings.n_users
    places = PlaceTable(np.arange(n), np.linspace(35, 36, n), np.linspace(139, 140, n))
    frame = pd.DataFrame({"user": range(n), "instant": 0, "place": range(n)})
    traces = Traces.from_frame(frame, places, TimeGrid.each_instant("2024-01-01T00:00:00", 60, 1))
    train, test = traces.split_users(0.5, seed)
    return Imported({"train": train, "test": test}, f"{n} users")


def test_a_data_set_of_ones_own():
    DATA_SETS.register(DataSet("line", "People on a line.", LineSettings, read_line, "line --users 6"))
    try:
        assert list(DATA_SETS) == sorted([*NAMES, "line"])
        found = imported("line", n_users=6)
        assert ({name: traces.n_users for name, traces in found.sets.items()}, found.report) == (
            {"train": 3, "test": 3},
            "6 users",
        )
        assert help_of_fields(DATA_SETS["line"].settings) == {"n_users": "How many there are."}
        assert refusal("line") == ["expected n_users as a whole number; found nothing."]
    finally:
        DATA_SETS.remove("line")
    assert list(DATA_SETS) == NAMES


# What is read


CHECKINS, GEOLIFE, GOWALLA, WORLD = (SAMPLES / name for name in ("checkins", "geolife", "gowalla", "foursquare_www"))
GOWALLA_FILES = [GOWALLA / f"loc-gowalla_{name}.txt" for name in ("totalCheckins", "edges")]
PARIS = {"columns": COLUMNS, "time_zone": "Europe/Paris"}
TIMES = {"step_s": 600, "slot_s": 1200, "max_gap_s": 7200.0}
BOX = (48.8, 48.9, 2.3, 2.4, 4, 5)
# Settings of an import, and the reader's call that gives the same.
READ = {
    "foursquare": ({"path": str(SAMPLES / "foursquare")}, lambda: read_foursquare(SAMPLES / "foursquare")),
    "geolife": (
        {"path": GEOLIFE, "time_zone": "UTC"} | TIMES,
        lambda: read_geolife(
            GEOLIFE, time_zone="UTC", discretization=every_place(GridPlaces(39.7, 40.2, 116.1, 116.7, 16, 16), **TIMES)
        ),
    ),
    "gowalla": (
        {"path": GOWALLA_FILES[0], "edges": str(GOWALLA_FILES[1]), "time_zone": "America/Chicago"},
        lambda: read_gowalla(*GOWALLA_FILES, time_zone="America/Chicago"),
    ),
    "foursquare-www": (
        {"path": str(WORLD), "city": "new-york"},
        lambda: read_foursquare_www(WORLD, city="new-york"),
    ),
    "checkins": (
        {"path": CHECKINS / "checkins.csv", "grid": list(BOX)} | TIMES | PARIS,
        lambda: read_checkins(
            CHECKINS / "checkins.csv", **PARIS, discretization=every_place(GridPlaces(*BOX), **TIMES)
        ),
    ),
}


@pytest.mark.parametrize("name", READ)
def test_an_import_splits_what_its_reader_gives(name):
    settings, read = READ[name]
    traces, report = read()
    assert_split_of(imported(name, 1, **EVERY_PLACE, **settings, train_fraction=0.5), traces, report, 1, 0.5)
    assert (traces.friendships is not None) == (name in ("gowalla", "foursquare-www"))


def test_places_of_geolife_are_the_cells_of_a_grid():
    coarse = imported("geolife", **EVERY_PLACE, path=GEOLIFE, grid=[39.7, 40.2, 116.1, 116.7, 2, 3], train_fraction=0.5)
    assert coarse.sets["train"].n_places == 2 * 3
    for name, value in {"grid": None, "n_places": 500}.items():
        assert "expected a grid, since GPS fixes have no place ids" in refusal("geolife", path="x", **{name: value})[0]


def test_people_flow_with_synthetic_traces():
    folder = SAMPLES / "people_flow"
    train, test = read_people_flow(folder)
    found = imported("people-flow", path=folder, synthetic=folder / "synthetic_XX.csv")
    expected = {"train": train, "test": test, "synthetic": read_synthetic(folder / "synthetic_XX.csv", train)}
    assert list(found.sets) == list(expected)
    for name, traces in expected.items():
        pd.testing.assert_frame_equal(found.sets[name].to_frame(), traces.to_frame())
    assert found.report == "2 training and 1 test users"
    assert list(imported("people-flow", path=folder).sets) == ["train", "test"]


def test_toy_city():
    found = imported("toy-city", 2**127 + 5, n_users=10, n_places=12, n_days=2, min_users_per_place=2)
    traces = toy_city(10, n_places=12, n_days=2, seed=2**127 + 5).traces
    assert found.report.startswith(f"a simulated city of 10 users, 12 places, {traces.n_events} events\n")
    train, test = keep_shared_places(*traces.split_users(0.8, 2**127 + 5), min_users=2, other_places="nearest")
    assert 1 not in found.sets["train"].users_per_place()
    for part, expected in zip(found.sets.values(), (train, test), strict=True):
        pd.testing.assert_frame_equal(part.to_frame(), expected.to_frame())
    # All events stay where they were, with 1.
    found = imported("toy-city", 7, n_users=10, n_places=12, n_days=2, missing=0.5, min_users_per_place=1)
    parts = toy_city(10, n_places=12, n_days=2, missing=0.5, seed=7).traces.split_users(0.8, 7)
    assert "joined" not in found.report
    for part, expected in zip(found.sets.values(), parts, strict=True):
        pd.testing.assert_frame_equal(part.to_frame(), expected.to_frame())


# Settings


def test_a_grid_in_place_of_the_most_visited_places():
    times = {"step_s": 600, "slot_s": 1200, "max_gap_s": 90.0}
    found = CheckinTableSettings(Path("file"), grid=(48, 49.5, 2, 3, 20, 10), **times).discretization()
    assert found.places == GridPlaces(48, 49.5, 2, 3, n_rows=20, n_columns=10)
    assert (found.step_s, found.slot_s, found.max_gap_s) == (600, 1200, 90.0)


@pytest.mark.parametrize(
    ("values", "messages"),
    [
        ({"path": ""}, ["expected path as a file or folder; found ''."]),
        ({"train_fraction": 1.0}, ["expected train_fraction as a number above 0 and below 1; found 1.0."]),
        ({"train_fraction": float("nan")}, ["expected train_fraction as a number above 0 and below 1; found nan."]),
        ({"time_zone": "Mars/Phobos"}, ["expected an IANA time zone such as Asia/Tokyo; found 'Mars/Phobos'."]),
        ({"time_zone": ""}, ["expected an IANA time zone such as Asia/Tokyo; found ''."]),
        ({"n_places": 0}, ["expected n_places as a whole number of at least 1 or 'none'; found 0."]),
        ({"grid": [1, 2, 3]}, ["expected grid as south, north, west, east, rows, columns; found 3 values."]),
        (
            {"grid": [1, 2, 3, 4, 5.0, 6]},
            ["expected rows and columns of the grid as whole numbers; found 5.0 and 6."],
        ),
        ({"grid": [2, 1, 3, 4, 5, 6]}, ["expected -90 <= south < north <= 90 degrees; found south 2, north 1."]),
        (
            {"train_fraction": 0.0, "time_zone": "x", "grid": [1, 2], "step_s": 7000, "max_gap_s": 0.0},
            [
                "expected max_gap_s as a number above 0 or 'none'; found 0.0.",
                "expected train_fraction as a number above 0 and below 1; found 0.0.",
                "expected an IANA time zone such as Asia/Tokyo; found 'x'.",
                "expected grid as south, north, west, east, rows, columns; found 2 values.",
                "expected a step in whole seconds that divides a day; found 7000 s.",
            ],
        ),
    ],
)
def test_impossible_settings_are_all_listed(values, messages):
    assert refusal("checkins", **({"path": "file", "time_zone": "Europe/Oslo"} | values)) == messages


def test_gowalla_is_of_no_zone_and_places_are_chosen_once():
    assert "such as time_zone='America/Chicago'" in refusal("gowalla", path="file")[0]
    assert (
        "expected one choice of places; found n_places and grid"
        in refusal("checkins", path="x", n_places=9, grid=(0, 1) * 3)[0]
    )
