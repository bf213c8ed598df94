"""The canonical data: what is accepted, what is refused and how, and that a folder keeps all of it."""

from __future__ import annotations

import errno
import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.stored_traces import open_traces
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.trace_set import Origin
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.runtime.files import atomic_file, write_text
from ppmtf_jax.runtime.folders import output_folder
from tests.faults import parquet_fails

FILES = {"traces.parquet", "places.parquet", "time_grid.json"}


def places(ids=("a", "b", "c"), **columns) -> PlaceTable:
    n = len(ids)
    return PlaceTable.from_frame(
        pd.DataFrame({"place": ids, "latitude": np.arange(n) + 35.0, "longitude": np.arange(n) + 139.0, **columns})
    )


def grid(n_instants: int = 4) -> TimeGrid:
    return TimeGrid.each_instant("2024-01-01T09:00:00", 3600, n_instants, "Asia/Tokyo")


def table(**columns) -> pd.DataFrame:
    return pd.DataFrame({"user": [7, 7, 9], "trace": 0, "instant": [0, 1, 2], "place": ["a", "b", "a"], **columns})


def traces(frame: pd.DataFrame | None = None, friends: pd.DataFrame | None = None) -> Traces:
    return Traces.from_frame(table() if frame is None else frame, places(), grid(), friends)


def problems_of(function, *arguments, **options) -> list[str]:
    with pytest.raises(InputError) as error:
        function(*arguments, **options)
    return [str(problem) for problem in error.value.problems]


def assert_same(one: Traces, other: Traces) -> None:
    for name in ("user", "trace", "instant", "place"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert getattr(other, name).dtype == np.int32
    assert one.user_ids.tolist() == other.user_ids.tolist()
    assert one.user_ids.dtype == other.user_ids.dtype
    pd.testing.assert_frame_equal(one.places.to_frame(), other.places.to_frame())
    assert one.time_grid == other.time_grid
    assert (one.friendships is None) == (other.friendships is None)
    if one.friendships is not None:
        np.testing.assert_array_equal(one.friendships, other.friendships)


# From and to tables


def test_rows_in_any_order_become_sorted_events():
    frame = pd.DataFrame(
        {
            "user": ["bob", "ann", "bob", "bob", "ann"],
            "trace": [1, 0, 0, 0, 0],
            "instant": [0, 3, 2, 1, 0],
            "place": ["a", "b", "c", "a", "a"],
        }
    )
    found = traces(frame)
    assert found.user_ids.tolist() == ["ann", "bob"]
    assert found.user.tolist() == [0, 0, 1, 1, 1]
    assert found.trace.tolist() == [0, 0, 0, 0, 1]
    assert found.instant.tolist() == [0, 3, 1, 2, 0]
    assert found.place.tolist() == [0, 1, 0, 2, 0]
    assert (found.n_users, found.n_places, found.n_events) == (2, 3, 5)
    assert found.slot.tolist() == found.instant.tolist()


@pytest.mark.parametrize("dtype", [str, "Int64"])
def test_whole_numbers_of_any_type_will_do(dtype):
    assert traces(table().astype({"instant": dtype})).instant.tolist() == [0, 1, 2]


def test_times_are_local_ones_with_their_zone():
    frame = traces().to_frame(with_time_and_coordinates=True)
    assert list(frame) == ["user", "trace", "instant", "place", "time", "latitude", "longitude"]
    assert [time.isoformat() for time in frame["time"]] == [
        f"2024-01-01T{hour:02d}:00:00+09:00" for hour in (9, 10, 11)
    ]
    assert frame["latitude"].tolist() == [35, 36, 35]
    assert frame["longitude"].tolist() == [139, 140, 139]
    pd.testing.assert_frame_equal(frame[list(table())], traces().to_frame())


def test_a_place_of_unknown_position_has_none_in_a_table():
    unknown = PlaceTable(np.array(list("abc"), object), np.array([35, np.nan, 37]), np.array([139, np.nan, 141]))
    frame = replace(traces(), places=unknown).to_frame(with_time_and_coordinates=True)
    assert frame["latitude"].isna().tolist() == frame["longitude"].isna().tolist() == [False, True, False]
    assert "1 without coordinates" in repr(unknown)
    assert repr(PlaceTable(np.array([1]), np.array([np.nan]), np.array([np.nan]))).endswith("1, 1 without coordinates")


def test_only_the_next_instant_of_the_same_trace_is_a_step():
    frame = pd.DataFrame(
        {
            "user": [1, 1, 1, 1, 2, 2],
            "trace": [0, 0, 0, 1, 0, 0],
            "instant": [0, 1, 3, 1, 3, 2],
            "place": list("aabbcc"),
        }
    )
    #                              1: 0, 1, 3 | 1 | 2: 2, 3
    assert traces(frame).is_step().tolist() == [False, True, False, False, False, True]


# What a person sees


def test_neither_ids_nor_seeds_are_shown():
    secret = 987_654_321_123
    ids = np.array(["alice of 5 Elm Street", "bob"], object)
    hidden = PlaceTable(np.array(["Dr. Smith's clinic", "b", "c"], object), np.zeros(3), np.zeros(3))
    origin = Origin(model="0123abcd" * 8, seed=secret, seeds_given=True)
    shown = repr(replace(traces(), user_ids=ids, places=hidden, origin=origin))
    assert "synthetic" in shown
    assert repr(origin) == str(origin) == "Origin(seeds_given=True)"
    assert not any(text in shown for text in ("alice", "bob", "Smith", str(secret), "0123abcd"))


def test_a_digest_is_of_who_was_where_when(tmp_path):
    given = traces()
    given.save(tmp_path / "traces")
    assert Traces.load(tmp_path / "traces").digest == given.digest
    # The nominal date of a release is not that of the data, but of the same day of the week.
    start = given.time_grid.start
    assert replace(given, time_grid=replace(given.time_grid, start=start.replace("-01-01", "-01-08"))).digest == (
        given.digest
    )
    others = [
        given.select_events(np.arange(given.n_events) > 0),
        replace(given, place=(given.place + 1) % 3),
        replace(given, user_ids=np.array(["eve", "zoe"], object)),
        replace(given, places=replace(given.places, longitude=given.places.longitude + 1)),
        replace(given, time_grid=replace(given.time_grid, start=start.replace("-01-01", "-01-02"))),
        replace(given, time_grid=replace(given.time_grid, start=start.replace("T09", "T10"))),
        replace(given, time_grid=replace(given.time_grid, time_zone="America/Sao_Paulo")),
    ]
    assert len({given.digest, *(other.digest for other in others)}) == 1 + len(others)


def test_many_traces_are_shown_at_once_and_narrowly():
    """An array that costs nothing until it is looked at: a second would say that it was."""
    n = 10**12
    one = np.broadcast_to(np.int32(0), n)
    zone = "America/Argentina/ComodRivadavia"
    grid = TimeGrid.cyclic("2024-01-01T00:00:00", 60, 60 * 24 * 366, slot_s=60, time_zone=zone)
    friends = np.zeros((10**6, 2), np.int32)
    large = Traces(one, one, one, one, np.arange(10**6), places(), grid, friends, Origin("m", 1, False), True)
    began = time.perf_counter()
    lines = repr(large).splitlines()
    assert time.perf_counter() - began < 1
    assert lines[0] == "Traces: 1,000,000,000,000 events of 1,000,000 users at 3 places"
    assert len(lines) <= 10
    assert max(map(len, lines)) < 80


def test_a_description_counts_everything():
    """Two traces of user 1, of which the first has a gap and goes into the next day; one event of user 2."""
    frame = pd.DataFrame(
        {
            "user": [1, 1, 1, 1, 1, 2],
            "trace": [0, 0, 0, 0, 3, 0],
            "instant": [0, 1, 3, 4, 3, 2],
            "place": list("aabbac"),
        }
    )
    grid = TimeGrid.each_instant("2024-01-01T21:00:00", 3600, 5)
    found = Traces.from_frame(frame, places(("a", "b", "c", "nowhere")), grid).describe()
    expected = {
        #                              count sum  mean    min median max
        "events per user":            (2, 6, 6 / 2, 1, 3, 5),
        "traces per user":            (2, 3, 3 / 2, 1, 1.5, 2),
        "events per trace and day":   (4, 6, 6 / 4, 1, 1.5, 2),  # 2 before and 2 after midnight; 1; 1
        "places per user":            (2, 3, 3 / 2, 1, 1.5, 2),
        "users per place":            (4, 3, 3 / 4, 0, 1, 1),
        "events per slot":            (5, 6, 6 / 5, 1, 1, 2),
        "steps to the next event":    (3, 4, 4 / 3, 1, 1, 2),
        "next event is one step on":  (3, 2, 2 / 3, 0, 1, 1),
    }  # fmt: skip
    assert list(found) == ["count", "sum", "mean", "min", "median", "max"]
    assert found.index.tolist() == list(expected)
    for name, numbers in expected.items():
        assert found.loc[name].tolist() == pytest.approx(numbers), name


def test_a_description_of_single_events_says_that_there_are_no_gaps():
    found = traces(table(trace=[0, 1, 0])).describe()
    assert found.loc["next event is one step on", ["count", "sum"]].tolist() == [0, 0]
    assert found.loc["steps to the next event", ["mean", "min", "median", "max"]].isna().all()


# Pieces


@pytest.fixture
def small_pieces(monkeypatch):
    """Two events a piece, so that a few rows are several."""
    monkeypatch.setattr("ppmtf_jax.data.events.PIECE_EVENTS", 2)
    monkeypatch.setattr("ppmtf_jax.data.trace_set.PIECE_EVENTS", 2)


def random_table(seed: int, n_users: int, *, text: bool) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    keys = [(u, t, i) for u in range(n_users) for t in (0, 4) for i in range(4) if rng.random() < 0.6]
    frame = pd.DataFrame(keys or [(0, 0, 0)], columns=["user", "trace", "instant"])
    frame["place"] = rng.choice(["a", "b", "c"], len(frame))
    frame["user"] = [f"user {u}" for u in frame["user"]] if text else frame["user"] * 10 - 20
    return frame


@pytest.mark.parametrize(("seed", "text", "shuffled"), [(0, False, True), (1, True, False), (2, True, True)])
def test_pieces_make_the_same_as_a_whole(tmp_path, monkeypatch, seed, text, shuffled):
    frame = random_table(seed, 12, text=text)
    whole = traces(frame)
    if shuffled:
        frame = frame.sample(frac=1, random_state=seed)
    monkeypatch.setattr("ppmtf_jax.data.events.PIECE_EVENTS", 3)
    monkeypatch.setattr("ppmtf_jax.data.trace_set.PIECE_EVENTS", 5)
    assert_same(whole, traces(frame))
    whole.save(tmp_path / "set")
    assert_same(whole, Traces.load(tmp_path / "set"))


def test_row_groups_are_of_bounded_size(tmp_path, small_pieces):
    traces().save(tmp_path / "set")
    assert parquet.ParquetFile(tmp_path / "set" / "traces.parquet").num_row_groups == 2
    assert pd.read_parquet(tmp_path / "set" / "traces.parquet").to_dict("list") == table().to_dict("list")


def test_a_table_that_others_wrote_is_read_in_pieces(tmp_path, small_pieces):
    traces().save(tmp_path / "set")
    file = tmp_path / "set" / "traces.parquet"
    for frame in (table(), table()[::-1], table().astype({"instant": "Int64"}), table().drop(columns="trace")):
        frame.to_parquet(file, index=False)
        assert_same(traces(), Traces.load(tmp_path / "set"))
    table().iloc[:0].to_parquet(file, index=False)
    assert "an empty table" in problems_of(Traces.load, tmp_path / "set")[0]
    table().drop(columns="user").to_parquet(file, index=False)
    assert "Missing: user" in problems_of(Traces.load, tmp_path / "set")[0]


def test_problems_of_all_pieces_are_listed_together(small_pieces):
    frame = pd.DataFrame(
        {
            "user": [7, None, 7, 7, None],
            "trace": 0,
            "instant": [0, 1, 0.5, 1, 9],
            "place": ["x", "y", None, "x", "z"],
        }
    )
    assert sorted(problems_of(traces, frame)) == [
        "expected a place for every event; found missing values in 'place' (1 row), first: row 2.",
        "expected a user for every event; found missing values in 'user' (2 rows), first: row 1, row 4.",
        "expected places of the place table; found unknown places (4 rows), first: x, y, z.",
        "expected whole numbers in 'instant'; found others (1 row), first: 0.5.",
    ]


def test_problems_between_pieces_are_listed_together(small_pieces):
    frame = pd.DataFrame({"user": 7, "trace": [0, 0, 2**40, 0, -1], "instant": [2, 4, 1, 2, 2**40], "place": "a"})
    assert problems_of(traces, frame) == [
        f"expected instants 0 to 3 of the time grid; found others (2 rows), first: 4, {2**40}.",
        f"expected trace numbers from 0 to 2**31 - 1; found others (2 rows), first: {2**40}, -1.",
        "expected each (user, trace, instant) once; found repeated ones (1 row), first: (7, 0, 2). "
        "Keep one event per instant, or give them different trace numbers",
    ]


def test_types_of_ids_are_compared_across_pieces(small_pieces):
    frame = pd.DataFrame({"user": pd.Series(["a", "b", "c", 9], dtype=object), "instant": 0, "place": "a"})
    assert problems_of(traces, frame) == ["expected user ids of one type; found several, first: 'c' (str), 9 (int)."]


def test_blocks_of_users_are_all_events(monkeypatch):
    whole = traces(random_table(0, 12, text=False))
    described = whole.describe()
    for size in (1, 3, 8, 1000):
        monkeypatch.setattr("ppmtf_jax.data.traces.BLOCK_USERS", size)
        pd.testing.assert_frame_equal(whole.describe(), described)
        blocks = list(whole.blocks)
        for name in ("trace", "instant", "place", "user_ids"):
            joined = np.concatenate([getattr(block, name) for block in blocks])
            np.testing.assert_array_equal(joined, getattr(whole, name))
        users = np.concatenate([block.user_ids[block.user] for block in blocks])
        np.testing.assert_array_equal(users, whole.user_ids[whole.user])
        assert all(block.n_users <= size for block in blocks)
        assert np.concatenate([block.is_step() for block in blocks]).tolist() == whole.is_step().tolist()


# Friendships


def test_friendships_are_pairs_given_once_or_twice():
    frame = table(user=[3, 5, 9])
    friends = pd.DataFrame({"user": [9, 3, 5, 5], "friend": [3, 9, 5, 3]})
    found = traces(frame, friends)
    assert found.friendships.tolist() == [[0, 1], [0, 2]]  # nobody is a friend of himself
    assert found.friendship_frame().to_dict("list") == {"user": [3, 3], "friend": [5, 9]}
    assert traces().friendship_frame() is None


def test_friends_without_events_are_refused():
    friends = pd.DataFrame({"user": [7, 7], "friend": [9, 11]})
    assert problems_of(traces, None, friends) == [
        "expected friends who are users with events; found others (1 row), first: (7, 11)."
    ]
    assert "Missing: friend" in problems_of(traces, None, friends[["user"]])[0]


# Parts


def test_users_are_split_by_seed():
    frame = pd.DataFrame({"user": range(10), "instant": 0, "place": "a"})
    train, test = traces(frame).split_users(0.8, seed=3)
    assert (train.n_users, test.n_users) == (8, 2)
    assert sorted([*train.user_ids, *test.user_ids]) == list(range(10))
    again, _ = traces(frame).split_users(0.8, seed=3)
    assert train.user_ids.tolist() == again.user_ids.tolist()
    others = {tuple(traces(frame).split_users(0.8, seed=seed)[1].user_ids.tolist()) for seed in range(20)}
    assert len(others) > 5


@pytest.mark.parametrize(("n_users", "percent"), [(2, 50), (2, 51), (10, 70), (10, 99), (29, 29), (40, 1)])
def test_split_sizes(n_users, percent):
    frame = pd.DataFrame({"user": range(n_users), "instant": 0, "place": "a"})
    n_test = n_users * (100 - percent) // 100
    if n_test == 0:
        assert "leaves users on both sides" in problems_of(traces(frame).split_users, percent / 100, 0)[0]
    else:
        train, test = traces(frame).split_users(percent / 100, 0)
        assert (train.n_users, test.n_users) == (n_users - n_test, n_test)


def test_part_of_the_users_keeps_friendships_among_them():
    frame = pd.DataFrame({"user": [1, 2, 3], "instant": 0, "place": "a"})
    whole = traces(frame, pd.DataFrame({"user": [1, 1, 2], "friend": [2, 3, 3]}))
    part = whole.select_users(np.array([0, 2]))
    assert_same(part, whole.select_users(np.array([True, False, True])))
    assert part.user_ids.tolist() == [1, 3]
    assert part.friendships.tolist() == [[0, 1]]
    assert whole.select_users(np.array([1])).friendships.shape == (0, 2)


def test_part_of_the_traces(tmp_path):
    found = traces(table(trace=[0, 1, 0])).select_traces(np.array([False, True, False]))
    assert found.to_frame().to_dict("list") == {"user": [7], "trace": [1], "instant": [1], "place": ["b"]}
    traces().save(tmp_path / "set")
    for each in (traces(), open_traces(tmp_path / "set")):
        assert problems_of(each.select_traces, np.array([False, False])) == [
            "expected at least one event to keep; found none."
        ]


@pytest.mark.parametrize(
    "keep",
    [[0, 1], [1.0, 0.0], [True], [True, False, True], [[True, False]], True, [None, True]],
    ids=str,
)
def test_only_a_mask_of_the_right_length_keeps_traces(keep, tmp_path):
    """This is the gate of a release: indices gave 1 user of 60, and not those that were meant."""
    traces().save(tmp_path / "set")
    for select in (traces().select_traces, open_traces(tmp_path / "set").select_traces):
        (problem,) = problems_of(select, np.array(keep))
        assert problem.startswith("expected 2 booleans, one a trace; found")
        assert "np.isin" in problem


@pytest.mark.parametrize("keep", [[0, 1], [True], [True] * 5, [1.0] * 4, True], ids=str)
def test_only_a_mask_of_the_right_length_keeps_events(keep):
    (problem,) = problems_of(traces().select_events, np.array(keep))
    assert problem.startswith(f"expected {traces().n_events} booleans, one an event; found")


@pytest.mark.parametrize("which", [[2], [-1], [True], [0.0]], ids=str)
def test_only_users_there_are_can_be_selected(which):
    assert traces().n_users == 2
    (problem,) = problems_of(traces().select_users, np.array(which))
    assert problem.startswith("expected indices from 0 to 1, or 2 booleans, one a user; found")


def test_what_somebody_wrote_by_hand_is_a_trace_set_too(tmp_path):
    """The marker is for what this program writes: reading does without."""
    traces().save(tmp_path / "set")
    (tmp_path / "set" / "ppmtf.json").unlink()
    assert_same(Traces.load(tmp_path / "set"), traces())


# Bad tables of events


def test_missing_columns_name_those_needed_and_those_found():
    assert problems_of(traces, pd.DataFrame({"uid": [1], "place": ["a"]})) == [
        "expected columns user, instant, place; found columns uid, place. Missing: user, instant"
    ]


def test_problems_of_single_values_are_listed_together():
    frame = table(user=[None, 7, 9], trace=[0.5, 0, 0], instant=["x", np.inf, 2], place=["a", None, "nowhere"])
    assert problems_of(traces, frame) == [
        "expected whole numbers in 'trace'; found others (1 row), first: 0.5.",
        "expected whole numbers in 'instant'; found others (2 rows), first: x, inf.",
        "expected a user for every event; found missing values in 'user' (1 row), first: row 0.",
        "expected a place for every event; found missing values in 'place' (1 row), first: row 1.",
        "expected places of the place table; found unknown places (1 row), first: nowhere.",
    ]


def test_problems_between_rows_are_listed_together():
    frame = table(user=[7, 7, 7], instant=[2, 2, 4])
    friends = pd.DataFrame({"user": [7], "friend": [8]})
    assert problems_of(traces, frame, friends) == [
        "expected instants 0 to 3 of the time grid; found others (1 row), first: 4.",
        "expected each (user, trace, instant) once; found repeated ones (1 row), first: (7, 0, 2). "
        "Keep one event per instant, or give them different trace numbers",
        "expected friends who are users with events; found others (1 row), first: (7, 8).",
    ]


def test_ids_of_another_type_are_unknown_places():
    frame = table(place=[0, 1, 0])
    assert problems_of(traces, frame) == [
        "expected places of the place table; found unknown places (3 rows), first: 0, 1."
    ]


def test_first_offenders_only_but_all_are_counted():
    frame = pd.DataFrame({"user": 1, "instant": range(50), "place": "a"})
    assert problems_of(traces, frame) == [
        "expected instants 0 to 3 of the time grid; found others (46 rows), first: 4, 5, 6, 7, 8."
    ]


# The folder

ids = st.one_of(
    st.lists(st.integers(-(2**60), 2**60), min_size=1, max_size=6, unique=True),
    st.lists(st.text(st.characters(codec="utf-8"), max_size=8), min_size=1, max_size=6, unique=True),
)


@st.composite
def parts_of_trace_sets(draw) -> tuple[pd.DataFrame, pd.DataFrame, list[int], pd.DataFrame | None]:
    """Events, places, slots and perhaps friendships."""
    user_ids, place_ids = draw(ids), draw(ids)
    n_instants, n_places = draw(st.integers(1, 30)), len(place_ids)
    place_frame = pd.DataFrame({"place": place_ids})
    for name in ("latitude", "longitude"):
        place_frame[name] = draw(st.lists(st.floats(-90, 90), min_size=n_places, max_size=n_places))
    if draw(st.booleans()):
        texts = st.text(st.characters(codec="utf-8"), max_size=5)
        place_frame["category"] = draw(st.lists(texts, min_size=n_places, max_size=n_places))
    event = st.tuples(st.sampled_from(user_ids), st.integers(0, 3), st.integers(0, n_instants - 1))
    keys = draw(st.lists(event, min_size=1, max_size=30, unique=True))
    frame = pd.DataFrame(keys, columns=["user", "trace", "instant"])
    frame["place"] = [draw(st.sampled_from(place_ids)) for _ in keys]
    friends = None
    if draw(st.booleans()):
        user = st.sampled_from(sorted(set(frame["user"])))
        friends = pd.DataFrame(draw(st.lists(st.tuples(user, user), max_size=8)), columns=["user", "friend"])
    slots = draw(st.lists(st.integers(0, 3), min_size=n_instants, max_size=n_instants))
    return frame, place_frame, slots, friends


@settings(max_examples=10)
@given(parts_of_trace_sets())
def test_a_folder_keeps_everything(parts):
    frame, place_frame, slots, friends = parts
    time_grid = TimeGrid("2024-02-28T23:00:00", 600, np.unique(slots, return_inverse=True)[1], "Europe/Paris")
    original = Traces.from_frame(frame, PlaceTable.from_frame(place_frame), time_grid, friends)
    with tempfile.TemporaryDirectory() as folder:
        original.save(Path(folder) / "new" / "set")
        assert_same(original, Traces.load(Path(folder) / "new" / "set"))


def test_files_of_a_trace_set(tmp_path):
    traces().save(tmp_path / "set")
    assert {path.name for path in (tmp_path / "set").iterdir()} == FILES | {"ppmtf.json"}
    assert pd.read_parquet(tmp_path / "set" / "traces.parquet").to_dict("list") == table().to_dict("list")
    content = json.loads((tmp_path / "set" / "time_grid.json").read_text())
    assert (content["n_instants"], content["step_s"], content["time_zone"]) == (4, 3600, "Asia/Tokyo")
    traces(None, pd.DataFrame({"user": [7], "friend": [9]})).save(tmp_path / "friends")
    assert {path.name for path in (tmp_path / "friends").iterdir()} == FILES | {"friendships.parquet", "ppmtf.json"}


def test_invented_users_are_remembered_through_all_that_is_done_with_traces(tmp_path):
    replace(traces(), of_nobody=True).save(tmp_path / "invented")
    loaded = Traces.load(tmp_path / "invented")
    assert loaded.of_nobody
    assert loaded.select_users(np.array([1])).of_nobody
    traces().save(tmp_path / "real")
    assert not Traces.load(tmp_path / "real").of_nobody


def test_loading_what_is_no_trace_set(tmp_path):
    assert problems_of(Traces.load, tmp_path / "absent") == ["expected a trace-set folder; found no such folder."]
    assert problems_of(Traces.load, tmp_path) == [
        "expected a trace set with traces.parquet, places.parquet, time_grid.json; found an empty folder. "
        "Make one with `ppmtf import`"
    ]
    traces().save(tmp_path / "set")
    (tmp_path / "set" / "traces.parquet").unlink()
    assert "found places.parquet, ppmtf.json, time_grid.json" in problems_of(Traces.load, tmp_path / "set")[0]


@pytest.mark.parametrize(
    ("name", "content"),
    [("traces.parquet", b""), ("places.parquet", b"no Parquet at all"), ("time_grid.json", b"\xff\xfe")],
)
def test_loading_a_damaged_file(tmp_path, name, content):
    traces().save(tmp_path / "set")
    (tmp_path / "set" / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name}: expected a readable (Parquet file|time_grid.json)"):
        Traces.load(tmp_path / "set")


# Nothing half-written


class Interrupted(BaseException):
    """Stands for Ctrl-C, which is no `Exception` either."""


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        Interrupted(),
    ],
)
@pytest.mark.parametrize("fails_at", ["traces.parquet", "friendships.parquet"])
@pytest.mark.parametrize("exists", [False, True])
def test_a_failure_in_the_middle_leaves_nothing(tmp_path, error, fails_at, exists):
    whole = traces(None, pd.DataFrame({"user": [7], "friend": [9]}))
    if exists:
        traces().save(tmp_path / "set")
    raised = InputError if isinstance(error, OSError) else type(error)
    with pytest.raises(raised) as caught, parquet_fails(error, fails_at):
        whole.save(tmp_path / "set", overwrite=exists)
    if isinstance(error, OSError):
        assert f"a place that can be written to; found {error}" in str(caught.value)
        assert "Check permissions and free space" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == (["set"] if exists else [])
    if exists:
        assert_same(Traces.load(tmp_path / "set"), traces())


def test_nothing_is_seen_under_the_name_before_the_end(tmp_path):
    with output_folder(tmp_path / "set", "trace set") as partial:
        (partial / "file").write_text("content")
        assert not (tmp_path / "set").exists()
        assert partial.parent == tmp_path  # on the same disk, so that renaming is one step
    assert (tmp_path / "set" / "file").read_text() == "content"
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_a_file_is_replaced_in_one_step(tmp_path):
    path = tmp_path / "new" / "report.json"
    write_text(path, "old")
    with pytest.raises(RuntimeError, match="bug"), atomic_file(path) as partial:  # noqa: PT012
        partial.write_text("half")
        raise RuntimeError("bug")
    assert path.read_text() == "old"
    write_text(path, "Café")
    assert path.read_bytes() == "Café".encode()
    assert [entry.name for entry in path.parent.iterdir()] == ["report.json"]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_without_permission_to_write(tmp_path):
    tmp_path.chmod(0o500)
    try:
        assert "Permission denied" in problems_of(traces().save, tmp_path / "set")[0]
    finally:
        tmp_path.chmod(0o700)
    assert list(tmp_path.iterdir()) == []


def test_the_old_folder_comes_back_when_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    traces().save(tmp_path / "set")
    rename = Path.rename

    def failing(path: Path, target: Path) -> Path:
        if ".partial-" in path.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(InputError):
        traces(table(user=[1, 1, 2])).save(tmp_path / "set", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    assert_same(Traces.load(tmp_path / "set"), traces())


def test_traces_are_cut_every_two_periods_and_users_may_have_no_events() -> None:
    city = toy_city(n_users=4, n_days=5, missing=0.3, seed=0).traces
    for some in (city, city.select_events(city.user % 3 > 0)):
        for n_periods in (1, 2):
            cut = some.cut_into_periods(n_periods)
            expected = np.stack([some.user, some.instant // (n_periods * 24)])
            np.testing.assert_array_equal(np.stack([cut.user, cut.trace]), expected)
