"""Trace sets in several files, read in blocks of users."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data import stored_traces
from ppmtf_jax.data.events import EVENT_COLUMNS, friend_indices
from ppmtf_jax.data.stored_traces import StoredTraces, joined, open_traces, rearranged_traces, save_in_parts
from ppmtf_jax.data.trace_set import trace_files
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.people.counts import PopulationSmoothing, SeenMoves, Transitions, VisitCounts, population
from ppmtf_jax.people.user_bounds import time_blocks
from tests.machine import with_gigabytes

N_USERS = 23


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of four users, so that few users have several blocks, and the last block is smaller."""
    for module in ("traces", "stored_traces"):
        monkeypatch.setattr(f"ppmtf_jax.data.{module}.BLOCK_USERS", 4)


@pytest.fixture(scope="module", params=["numbers", "texts"])
def whole(request) -> Traces:
    traces = replace(toy_city(N_USERS, n_places=12, n_days=2, seed=0).traces, friendships=None)
    if request.param == "texts":
        ids = np.array([f"user {number:02d}" for number in range(N_USERS)], object)
        traces = replace(traces, user_ids=ids)
    return traces.cut_into_periods()


def parts_of(traces: Traces, n_parts: int) -> list[Traces]:
    return [traces.select_users(users) for users in np.array_split(np.arange(traces.n_users), n_parts)]


def assert_same(one: Traces, other: Traces) -> None:
    for name in (*EVENT_COLUMNS, "user_ids"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.user_ids.dtype == other.user_ids.dtype


def test_joined_parts_keep_the_friendships_within_them(whole):
    pairs = pd.DataFrame({"user": whole.user_ids[[0, 1, -1]], "friend": whole.user_ids[[1, -1, -2]]})
    friends = friend_indices(pairs, whole.user_ids)[0]
    parts = parts_of(replace(whole, friendships=friends), 3)
    # The pair of the first and the last part is in neither of them.
    assert joined(parts).friendships.tolist() == [[0, 1], [N_USERS - 2, N_USERS - 1]]
    assert joined(parts_of(replace(whole, friendships=None), 3)).friendships is None


@pytest.mark.parametrize("n_parts", [1, 3, 7])
def test_parts_are_read_as_one_table(whole, tmp_path, n_parts):
    save_in_parts(parts_of(whole, n_parts), tmp_path / "set")
    assert len(trace_files(tmp_path / "set")) == n_parts
    assert_same(Traces.load(tmp_path / "set"), whole)
    assert pd.read_parquet(tmp_path / "set" / "traces.parquet").equals(whole.to_frame())
    stored = open_traces(tmp_path / "set")
    assert isinstance(stored, StoredTraces)
    assert stored.digest == whole.digest == Traces.load(tmp_path / "set").digest
    assert (stored.n_users, stored.n_events, stored.n_places) == (N_USERS, whole.n_events, 12)
    np.testing.assert_array_equal(stored.users_per_place(), whole.users_per_place())
    kept = stored.for_many_passes()
    for file in trace_files(tmp_path / "set"):
        file.unlink()
    assert kept.digest == whole.digest
    assert_same(kept.select_users(np.array([3, 4, 22])), whole.select_users(np.array([3, 4, 22])))
    for one, other in zip(kept.blocks, whole.blocks, strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("group", [5, 10_000])
def test_blocks_are_those_in_memory(whole, tmp_path, monkeypatch, group):
    """A block of four users has more events than a small row group, and fewer than a large one."""
    monkeypatch.setattr("ppmtf_jax.data.events.PIECE_EVENTS", group)
    save_in_parts(parts_of(whole, 3), tmp_path / "set")
    stored = open_traces(tmp_path / "set")
    assert isinstance(stored, StoredTraces)  # else it was read into memory, because it seemed to be out of order
    of_files, in_memory = list(stored.blocks), list(whole.blocks)
    assert [block.n_users for block in of_files] == [4, 4, 4, 4, 4, 3]
    for one, other in zip(of_files, in_memory, strict=True):
        assert_same(one, other)
    first = whole.select_users(np.arange(4))
    assert_same(of_files[0], first)


@pytest.mark.parametrize("users", [[0], [3, 4, 22], [8, 9, 10, 11], list(range(N_USERS))])
def test_some_users_are_read(whole, tmp_path, users):
    save_in_parts(parts_of(whole, 3), tmp_path / "set")
    assert_same(open_traces(tmp_path / "set").select_users(np.array(users)), whole.select_users(np.array(users)))


@pytest.mark.parametrize(
    "which", [[-1], [N_USERS], [True], [], [False] * N_USERS], ids=["-1", "past", "one", "0", "no"]
)
def test_users_that_are_not_there_are_refused(whole, tmp_path, which):
    """As by traces in memory: index -1 is not the last user."""
    whole.save(tmp_path / "set")
    for traces in (open_traces(tmp_path / "set"), whole):
        with pytest.raises(InputError, match="users to keep"):
            traces.select_users(np.array(which))


def test_a_set_that_does_not_fit_into_memory_is_opened_but_not_loaded(whole, tmp_path, monkeypatch):
    whole.save(tmp_path / "set")
    with_gigabytes(monkeypatch, 1e-6)
    stored = open_traces(tmp_path / "set")
    assert sum(block.n_events for block in stored.blocks) == whole.n_events
    for load in (lambda: Traces.load(tmp_path / "set"), stored.in_memory):
        with pytest.raises(InputError, match=r"traces\.parquet: .*Read it on a larger machine"):
            load()


def test_what_needs_all_events_says_how_to_load_them(whole, tmp_path):
    save_in_parts([whole], tmp_path / "stored")
    for of_all in (Traces.describe, Traces.to_frame, Traces.cut_into_periods):
        with pytest.raises(InputError, match="in_memory"):
            of_all(open_traces(tmp_path / "stored"))


def test_friendships_are_kept_and_problems_of_them_found(whole, tmp_path):
    pairs = np.array([[0, 5], [5, 6], [6, 22]], np.int32)
    replace(whole, friendships=pairs).save(tmp_path / "set")
    stored = open_traces(tmp_path / "set")
    np.testing.assert_array_equal(stored.in_memory().friendships, pairs)
    np.testing.assert_array_equal(stored.select_users(np.array([5, 6, 7])).friendships, [[0, 1]])
    assert next(iter(stored.blocks)).friendships is None
    friends = pd.read_parquet(tmp_path / "set" / "friendships.parquet")
    friends["friend"] = "nobody" if whole.user_ids.dtype == object else -1
    friends.to_parquet(tmp_path / "set" / "friendships.parquet", index=False)
    messages = []
    for read in (Traces.load, open_traces):
        with pytest.raises(InputError, match="friends who are users with events") as error:
            read(tmp_path / "set")
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    assert open_traces(tmp_path / "set", with_friends=False).friendships is None


def test_a_value_of_each_user_and_a_total(whole, tmp_path):
    whole.save(tmp_path / "set")
    blocks = open_traces(tmp_path / "set").blocks
    n_events = blocks.map(lambda block: np.bincount(block.user)).joined()
    np.testing.assert_array_equal(n_events, np.bincount(whole.user))
    weight = np.arange(N_USERS)
    both = blocks.map(lambda block, own: (block.n_events, (own[block.user]).sum()), weight).total()
    assert both == (whole.n_events, weight[whole.user].sum())


def test_traces_that_are_rearranged_are_in_the_order_of_new_users(monkeypatch):
    """More new users than numbers of 16 bits: events are sorted by their part, not by their user."""
    for module in ("traces", "stored_traces"):
        monkeypatch.setattr(f"ppmtf_jax.data.{module}.BLOCK_USERS", 8192)
    city, rng, n_users = toy_city(3, n_places=12, n_days=2, seed=0).traces, np.random.default_rng(0), 70_000
    place, instant = (rng.integers(0, top, n_users).astype(np.int32) for top in (12, 48))
    everybody, first = np.arange(n_users, dtype=np.int32), np.zeros(n_users, np.int32)
    traces = Traces(everybody, first, instant, place, everybody, city.places, city.time_grid)
    chosen = rng.permutation(n_users)[:69_000]
    new_user = np.full(n_users, -1, np.int32)
    new_user[chosen] = np.arange(len(chosen))
    found = rearranged_traces(traces, everybody, new_user, first, np.arange(len(chosen)))
    expected = replace(traces.select_users(everybody[: len(chosen)]), place=place[chosen], instant=instant[chosen])
    for one, other in zip(found.blocks, expected.blocks, strict=True):
        for name in ("user", "instant", "place"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def disordered(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Tables that cannot be read in blocks of users, but are valid."""
    return {
        "users": frame[::-1],
        "a user in two places": pd.concat([frame[2:], frame[:2]]),
        "instants": frame.iloc[[1, 0, *range(2, len(frame))]],
        "no trace": frame[frame["trace"] == 0].drop(columns="trace"),
        "floats": frame.astype({"instant": float}),
    }


def test_tables_that_are_not_in_order_are_loaded_and_sorted(whole, tmp_path):
    whole.save(tmp_path / "set")
    for frame in disordered(whole.to_frame()).values():
        frame.to_parquet(tmp_path / "set" / "traces.parquet", index=False)
        found = open_traces(tmp_path / "set")
        assert isinstance(found, Traces)
        assert_same(found, Traces.load(tmp_path / "set"))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"place": "nowhere"}, "places of the place table"),
        ({"instant": 10**6}, "of the time grid"),
        ({"instant": 0, "trace": 0}, "once"),
        ({"user": None}, "a user for every event"),
    ],
)
def test_problems_are_those_of_loading(whole, tmp_path, change, expected):
    whole.save(tmp_path / "set")
    whole.to_frame().assign(**change).to_parquet(tmp_path / "set" / "traces.parquet", index=False)
    for read in (Traces.load, open_traces):
        with pytest.raises(InputError, match=expected):
            read(tmp_path / "set")


def test_parts_with_other_columns_or_unreadable_parts_are_refused(whole, tmp_path):
    save_in_parts(parts_of(whole, 2), tmp_path / "set")
    second = tmp_path / "set" / "traces.parquet" / "part-00001.parquet"
    pd.read_parquet(second).drop(columns="trace").to_parquet(second, index=False)
    with pytest.raises(InputError, match=r"part-00001.parquet: expected the columns of part-00000.parquet"):
        open_traces(tmp_path / "set")
    second.write_bytes(b"")
    with pytest.raises(InputError, match=r"part-00001.parquet: expected a readable Parquet file"):
        open_traces(tmp_path / "set")


def test_parts_must_be_in_the_order_of_users(whole, tmp_path):
    with pytest.raises(InputError, match="in part 1"):
        save_in_parts(parts_of(whole, 3)[::-1], tmp_path / "set")
    assert not list(tmp_path.iterdir())


def test_a_day_of_one_user_more_changes_the_digest(whole):
    """A planted change in the last block: were only the first block read, the digests would be equal."""
    place = whole.place.copy()
    place[-1] = (place[-1] + 1) % 12
    assert replace(whole, place=place).digest != whole.digest
    assert whole.select_users(np.arange(N_USERS - 1)).digest != whole.digest


@pytest.mark.parametrize("bug", [False, True], ids=["", "planted bug"])
def test_workers_find_the_same_in_the_parts_of_a_folder(whole, tmp_path, monkeypatch, workers, bug):
    """Parts of two blocks. No task has the traces, or the ids of users of other parts. The bug forgets a part."""
    monkeypatch.setattr(stored_traces, "PART_BLOCKS", 2)
    save_in_parts(parts_of(whole, 2), tmp_path / "set")

    def found(traces: Traces) -> list:
        visits = traces.blocks.map(VisitCounts.of)
        seen = SeenMoves.of(
            traces.blocks.map(lambda block: Transitions.of(block).moves), 2, time_blocks(whole.time_grid)
        )
        some = traces.select_users(np.array([0, 5, 6, 21]))
        shares = population(visits, PopulationSmoothing(0.75, 2, 1.0, 1.0, 0.3), whole.time_grid)
        return [shares, seen.in_slot, seen.overall, some.place, some.user, traces.users_per_place(), traces.digest]

    stored = open_traces(tmp_path / "set").for_many_passes()
    expected, n_before = found(whole), len(workers)
    assert n_before == 0  # traces in memory are not sent away
    if bug:
        parts = stored_traces._StoredBlocks.parts
        monkeypatch.setattr(stored_traces._StoredBlocks, "parts", lambda self: list(parts(self))[:-1])
        with contextlib.suppress(ValueError):
            assert not all(map(np.array_equal, found(stored), expected))
        return
    assert all(map(np.array_equal, found(stored), expected))
    assert len(workers) % 3 == 0
    assert len(workers) >= 3 * 5


def test_traces_of_some_users_do_not_come_from_workers(whole, tmp_path, workers):
    save_in_parts(parts_of(whole, 2), tmp_path / "set")
    users = np.array([0, 5, 22])
    assert_same(open_traces(tmp_path / "set").select_users(users), whole.select_users(users))
    assert not workers


def refusal(folder: Path) -> str:
    with pytest.raises(InputError) as error:
        open_traces(folder)
    return str(error.value)


def test_what_is_wrong_anywhere_is_refused_or_sorted(whole, tmp_path):
    """At the beginning, in the middle, and at the end."""
    whole.save(tmp_path / "set")
    file, frame, n_events = tmp_path / "set" / "traces.parquet", whole.to_frame(), whole.n_events
    for row in (1, n_events // 2, n_events - 1):
        order = np.arange(n_events)
        order[[row - 1, row]] = order[[row, row - 1]]
        swapped, broken = frame.iloc[order], frame.copy()
        broken.loc[row, "place"] = "nowhere"
        swapped.to_parquet(file, index=False)
        found = open_traces(tmp_path / "set")
        assert isinstance(found, Traces)
        assert_same(found, whole)
        broken.to_parquet(file, index=False)
        assert "places of the place table" in refusal(tmp_path / "set")
    content = bytearray(file.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    file.write_bytes(content)
    assert "a readable Parquet file" in refusal(tmp_path / "set")
