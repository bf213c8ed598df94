"""The official people-flow files."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.people_flow import read_official_factors, read_people_flow, read_synthetic, read_tensor
from ppmtf_jax.errors import InputError

HAND_MADE = Path(__file__).parents[1] / "samples" / "people_flow"


@pytest.fixture
def folder(tmp_path):
    """A copy of the hand-made files, to be damaged."""
    return Path(shutil.copytree(HAND_MADE, tmp_path / "people_flow"))


def test_hand_made_files():
    train, test = read_people_flow(HAND_MADE)
    # Places are in the order of poi_index, which is not that of poi_id.
    assert train.places.ids.tolist() == [0, 1, 2]
    assert train.places.latitude.tolist() == [35.68, 35.66, 35.67]
    assert train.places.category is None
    assert list(train.to_frame().itertuples(index=False, name=None)) == [
        (0, 0, 0, 2),
        (0, 0, 1, 0),
        (0, 0, 29, 0),
        (1, 0, 0, 1),
    ]
    # 12:45 is in the twelfth interval of 20 minutes after 9:00.
    assert list(test.to_frame().itertuples(index=False, name=None)) == [(2, 0, 3, 1), (2, 0, 11, 1)]
    grid = train.time_grid
    assert (grid.start, grid.step_s, grid.time_zone) == ("2013-07-01T09:00:00", 1200, "Asia/Tokyo")
    assert grid.slot_of_instant.tolist() == list(range(30))
    assert test.time_grid == grid


def test_hand_made_synthetic_traces(folder):
    train, _ = read_people_flow(folder)
    text = (folder / "synthetic_XX.csv").read_text()
    for name in ("time_slot", "time_period"):
        (folder / "synthetic_XX.csv").write_text(text.replace("time_slot", name))
        found = read_synthetic(folder / "synthetic_XX.csv", train).to_frame()
        events = list(found.itertuples(index=False, name=None))
        assert events == [(0, 0, 0, 2), (0, 0, 1, 0), (0, 1, 0, 1), (1, 0, 29, 0)]


def test_synthetic_traces_with_several_instants_in_a_slot(tmp_path):
    train, _ = read_people_flow(HAND_MADE)
    two_days = TimeGrid.cyclic("2012-04-03T00:00:00", 3600, 48, slot_s=7200)
    train = Traces.from_frame(train.to_frame(), train.places, two_days)
    path = tmp_path / "synthetic.csv"
    path.write_text("user,trace_no,time_slot,time_instant,poi_index\n0,0,0,1,2\n0,0,11,0,1\n0,0,11,1,0\n")
    synthetic = read_synthetic(path, train)
    assert synthetic.instant.tolist() == [1, 22, 23]
    assert synthetic.time_grid.n_instants == 24


def test_hand_made_tensors():
    transitions, visits = (read_tensor(HAND_MADE / f"{name}_XX.csv") for name in ("transitions", "visits"))
    assert transitions.to_dict("list") == {"user": [0], "place": [2], "next_place": [0], "count": [1]}
    assert visits.to_dict("list") == {"user": [0, 0], "place": [2, 0], "slot": [0, 1], "count": [1, 1]}


def test_hand_made_factors(tmp_path):
    rows = {"A": "1,2\n3,4\n", "B": "5,6\n", "C": "7,8\n", "D": "9,1\n", "Lam_A": "0,0\n", "mu_A": "0\n"}
    for name, text in rows.items():
        (tmp_path / f"model_{name}.csv").write_text(text)
    factors = read_official_factors(tmp_path)
    assert factors["A"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert [factors[name].shape for name in "ABCD"] == [(2, 2), (1, 2), (1, 2), (1, 2)]


@pytest.mark.parametrize(
    ("name", "text", "messages"),
    [
        (
            "POI_XX.csv",
            "poi_id,lat,lon\n10,1,2\n",
            ["columns poi_id, y, x; found columns poi_id, lat, lon. Missing: y, x"],
        ),
        ("POI_XX.csv", "poi_id,y,x\n10,135,35\n20,35,135\n30,35,135\n", ["probably swapped"]),
        ("POIindex_XX.csv", "poi_id,poi_index,category\n10,0,-\n20,0,-\n", ["repeated place ids (1 row), first: 0"]),
        ("traintraces_XX.csv", "user_index,poi_index,hour,min\n0,9,9,0\n", ["found unknown places (1 row), first: 9"]),
        (
            "traintraces_XX.csv",
            "user_index,poi_index,hour,min\n0,1,x,0\n0,1,9,0.5\n",
            ["numbers in 'hour'", "numbers in 'min'"],
        ),
        (
            "traintraces_XX.csv",
            "user_index,poi_index,hour,min\n0,1,8,40\n0,1,19,0\n0,1,9,0\n0,1,9,0\n",
            [
                "instants 0 to 29 of the time grid; found others (2 rows), first: -1, 30",
                "repeated ones (1 row), first: (0, 0, 0)",
            ],
        ),
        (
            "traintraces_XX.csv",
            "user_index,poi_index,hour,min\n0,1,9,0\n0,1,9,19\n",
            ["times that are whole steps of 20 minutes; found others (1 row), first: row 3"],
        ),
        ("traintraces_XX.csv", "", ["a readable CSV file"]),
        (
            "traintraces_YY.csv",
            "",
            ["one file traintraces_<city>.csv or .csv.gz; found traintraces_XX.csv, traintraces_YY.csv"],
        ),
    ],
)
def test_bad_files(folder, name, text, messages):
    (folder / name).write_text(text)
    with pytest.raises(InputError) as error:
        read_people_flow(folder)
    assert all(message in str(error.value) for message in messages)


def test_missing_files_are_all_named(folder, tmp_path):
    (folder / "POI_XX.csv").unlink()
    (folder / "traintraces_XX.csv").rename(folder / "traintraces_YY.csv")
    with pytest.raises(InputError) as error:
        read_people_flow(folder)
    assert [problem.found for problem in error.value.problems] == ["none", "XX, YY"]
    with pytest.raises(InputError, match="no such folder"):
        read_people_flow(tmp_path / "absent")


def test_bad_synthetic_traces(tmp_path):
    train, _ = read_people_flow(HAND_MADE)
    path = tmp_path / "synthetic.csv"
    path.write_text("user,trace_no,time_instant,poi_index\n0,0,0,0\n")
    with pytest.raises(InputError, match="Missing: time_slot or time_period"):
        read_synthetic(path, train)
    path.write_text("user,trace_no,time_slot,time_instant,poi_index\n0,0,30,0,0\n0,0,2,0,0\n0,0,2,0,1\n")
    with pytest.raises(InputError, match=r"2 problems[\s\S]*instants 0 to 29[\s\S]*repeated ones"):
        read_synthetic(path, train)
    with pytest.raises(InputError, match="no such file"):
        read_synthetic(tmp_path / "absent.csv", train)
    uneven = TimeGrid("2024-01-01T00:00:00", 1200, np.array([0, 0, 1]))
    places = PlaceTable.from_frame(train.places.to_frame())
    frame = train.to_frame().query("instant < 3")
    with pytest.raises(InputError, match="equally many instants in every slot; found 3 instants in 2 slots"):
        read_synthetic(path, Traces.from_frame(frame, places, uneven))


def test_bad_factors_and_tensors(tmp_path):
    (tmp_path / "model_A.csv").write_text("1,x\n")
    (tmp_path / "model_B.csv").write_text("1,2\n")
    (tmp_path / "other_B.csv").write_text("1,2\n")
    with pytest.raises(InputError) as error:
        read_official_factors(tmp_path)
    assert [problem.expected for problem in error.value.problems] == [
        "a table of numbers in model_A.csv",
        "one file *_B.csv",
        "one file *_C.csv",
        "one file *_D.csv",
    ]
    with pytest.raises(InputError, match="Missing: user_index, poi_index_from, poi_index_to or time_slot, count"):
        read_tensor(tmp_path / "model_B.csv")


def test_official_traces(people_flow):
    train, test = read_people_flow(people_flow)
    assert (train.n_users, train.n_events, train.n_places) == (500, 500 * 30, 20 * 20)
    assert (test.n_users, test.n_events) == (500, 500 * 30)
    # Nothing is missing, so every event but the first of each trace ends a transition.
    assert int(train.is_step().sum()) == 500 * 29
    assert train.user_ids.tolist() == list(range(500))
    assert test.user_ids.tolist() == list(range(500, 1000))


def test_official_synthetic_traces_and_factors(people_flow):
    train, _ = read_people_flow(people_flow)
    for name in ("ppmtf_alpha200/synthetic_traces.csv.gz", "sgd_copied_events_2.csv.gz", "sglt_c100_parl_1.csv.gz"):
        synthetic = read_synthetic(people_flow / name, train)
        assert (synthetic.n_users, synthetic.n_events) == (500, 500 * 10 * 30)
        assert len(synthetic.trace_table()[0]) == 500 * 10
    factors = read_official_factors(people_flow / "ppmtf_alpha200")
    assert [factors[name].shape for name in "ABCD"] == [(500, 16), (400, 16), (400, 16), (30, 16)]
    assert factors["A"][0, 0] == 0.0028
