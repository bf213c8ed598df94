"""Rows of traces and of populations, counted by loops."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from ppmtf_jax.exports import layers
from ppmtf_jax.exports.layers import Layer, clocks_skip, population_layer, trace_layer, zoned_times
from tests.exports.examples import GRID, PLACES, ROWS, by_hand
from tests.support import places_in_line, random_traces, to_traces

DAY = TimeGrid.cyclic("2024-01-01T00:00:00", 1800, 96, slot_s=3600, time_zone="Asia/Tokyo")


def test_every_event_is_a_row_in_order():
    layer = trace_layer(by_hand())
    start = pd.Timestamp("2024-01-01T22:00", tz="Pacific/Fiji")
    assert list(layer.rows["time"]) == [start + pd.Timedelta(hours=instant) for _, _, instant, _ in ROWS]
    for name, column in (("user", 0), ("trace", 1)):
        assert layer.rows[name].tolist() == [row[column] for row in ROWS]
    assert layer.rows["place"].tolist() == [str(PLACES.ids[place]) for *_, place in ROWS]
    assert layer.rows["longitude"].tolist() == [PLACES.longitude[place] for *_, place in ROWS]
    assert layer.rows["latitude"].tolist() == [PLACES.latitude[place] for *_, place in ROWS]
    (piece,) = layer.pieces()
    assert (piece.first.tolist(), piece.number) == ([0, 3, 4], 0)
    assert (layer.n_traces, layer.n_rows) == (3, 7)
    assert layer.about["time_zone"] == "Pacific/Fiji"
    assert layer.about["time"].startswith("nominal")
    assert (layer.about["traces"], layer.about["traces_in_all"]) == (3, 3)


def test_a_sample_is_of_whole_traces_and_its_seed_decides():
    traces = random_traces(0, range(30), places_in_line(5), DAY, n_traces=2)
    one, same, other = (trace_layer(traces, 10, seed=seed) for seed in (1, 1, 2))
    pd.testing.assert_frame_equal(one.rows, same.rows)
    assert not one.rows[["user", "trace"]].equals(other.rows[["user", "trace"]])
    chosen = one.rows.groupby(["user", "trace"], sort=False).size()
    assert (len(chosen), set(chosen)) == (one.n_traces, {96}) == (10, {96})
    # In the order of the traces, not of the draw.
    assert chosen.index.is_monotonic_increasing
    assert one.about["traces_in_all"] == 60
    # A sample larger than all is all.
    assert trace_layer(by_hand(), 99).rows.equals(trace_layer(by_hand()).rows)
    with pytest.raises(InputError, match="a number of traces of at least 1; found 0"):
        trace_layer(by_hand(), 0)


def test_every_trace_is_as_likely_to_be_drawn():
    """Of 4 traces 2 are drawn 100 times: each is in half of them, 50 with a standard deviation of 5."""
    traces = random_traces(0, range(4), places_in_line(2), GRID)
    drawn = Counter(user for seed in range(100) for user in trace_layer(traces, 2, seed=seed).rows["user"].unique())
    assert all(25 < drawn[user] < 75 for user in range(4))


@pytest.mark.parametrize("rows_at_a_time", [1, 3, 4, 100])
def test_pieces_are_of_whole_traces(monkeypatch, rows_at_a_time):
    monkeypatch.setattr(layers, "ROWS_AT_A_TIME", rows_at_a_time)
    layer = trace_layer(by_hand())
    pieces = list(layer.pieces())
    pd.testing.assert_frame_equal(pd.concat([piece.rows for piece in pieces], ignore_index=True), layer.rows)
    who = [set(zip(piece.rows["user"], piece.rows["trace"], strict=True)) for piece in pieces]
    assert sum(map(len, who)) == 3
    begins, n_before = [], 0
    for piece in pieces:
        assert piece.number == len(begins)
        begins += [n_before + first for first in piece.first.tolist()]
        n_before += len(piece.rows)
    assert begins == [0, 3, 4]
    # The longest trace has three rows.
    assert max(len(piece.rows) for piece in pieces) < rows_at_a_time + 3


def plain_population(sets: dict[str, Traces]) -> dict[tuple[int, object], dict[str, int]]:
    """Events by hour of the day and place, of grids of half-hours whose period is a day."""
    found: dict[tuple[int, object], dict[str, int]] = {}
    for name, traces in sets.items():
        for instant, place in zip(traces.instant.tolist(), traces.place.tolist(), strict=True):
            cell = found.setdefault((instant % 48 // 2, traces.places.ids[place]), dict.fromkeys(sets, 0))
            cell[name] += 1
    return found


def test_population_is_that_of_a_plain_count():
    places = places_in_line(6)
    real = random_traces(1, range(9), places, DAY, keep=0.2)
    synthetic = random_traces(2, range(4), places, DAY.one_period(), n_visited=4)
    sets = {"synthetic": synthetic, "real": real}
    rows = population_layer(sets).rows
    expected = plain_population(sets)
    hour = rows["time"].dt.hour
    assert dict(zip(zip(hour, rows["place"], strict=True), rows["real_events"], strict=True)) == {
        cell: count["real"] for cell, count in expected.items()
    }
    total = Counter()
    for (h, _), count in expected.items():
        total[h] += count["synthetic"]
    share = [expected[h, place]["synthetic"] / total[h] for h, place in zip(hour, rows["place"], strict=True)]
    np.testing.assert_allclose(rows["synthetic_share"], share)
    np.testing.assert_allclose(rows["difference"], rows["synthetic_share"] - rows["real_share"])
    # All on the first day of the first set, by its clocks.
    assert rows["time"].iloc[0].isoformat() == "2024-01-01T00:00:00+09:00"
    assert rows["time"].is_monotonic_increasing
    # A release of another date is compared by the clock.
    nominal = replace(synthetic, time_grid=replace(synthetic.time_grid, start="2001-01-02T00:00:00"))
    again = population_layer({"synthetic": nominal, "real": real}).rows
    assert again["time"].min().isoformat() == "2001-01-02T00:00:00+09:00"
    assert again.drop(columns="time").equals(rows.drop(columns="time"))


def test_an_hour_without_events_has_no_share():
    places, grid = places_in_line(2), TimeGrid.each_instant("2024-01-01T00:00:00", 3600, 2)
    always, once = to_traces([(1, 0, 0, 0), (1, 0, 1, 0)], places, grid), to_traces([(1, 0, 0, 1)], places, grid)
    rows = population_layer({"synthetic": always, "real": once}).rows
    assert rows["real_share"].fillna(-1).tolist() == [0, 1, -1]
    assert rows["difference"].fillna(-9).tolist() == [1, -1, -9]


def test_one_slot_a_day_has_one_row_a_place():
    grid = TimeGrid.cyclic("2024-01-01T00:00:00", 86_400, 7, slot_s=86_400)
    traces = random_traces(0, range(5), places_in_line(2), grid)
    layer = population_layer({"real": traces})
    assert (len(layer.rows), layer.rows["real_events"].sum(), layer.step_s) == (2, 35, 86_400)
    assert "difference" not in layer.rows


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"start": "2024-01-01T09:00:00"}, "48 instants of 1800 s from 09:00:00"),
        ({"time_zone": "UTC"}, "from 00:00:00 in UTC"),
        ({"step_s": 600}, "48 instants of 600 s"),
        ({"period": 96}, "96 instants of 1800 s from Monday 00:00:00"),
    ],
)
def test_other_clocks_are_refused(changed, found):
    places = places_in_line(2)
    other = replace(DAY, **changed)
    sets = {"synthetic": random_traces(0, [1], places, DAY), "real": random_traces(0, [1], places, other)}
    with pytest.raises(InputError, match=f"periods of the same clocks; .*real: .*{found}"):
        population_layer(sets)
    with pytest.raises(InputError, match="different numbers of places"):
        population_layer(sets | {"real": random_traces(0, [1], places_in_line(3), DAY)})


def make(kind: str, traces: Traces) -> Layer:
    return trace_layer(traces) if kind == "traces" else population_layer({"real": traces})


@pytest.mark.parametrize("kind", ["traces", "population"])
def test_places_without_coordinates_are_refused_with_a_way_out(kind):
    places = PlaceTable(np.arange(4), np.array([1.0, np.nan, 2, np.nan]), np.array([1.0, np.nan, np.nan, np.nan]))
    traces = to_traces([(1, 0, 0, 0), (1, 0, 1, 2), (2, 0, 0, 1)], places, GRID)
    with pytest.raises(InputError, match=r"somebody is; found 2 of 3 without, first: 1, 2.*select_events") as error:
        make(kind, traces)
    # What the message says helps; nobody is at place 3.
    mask = str(error.value).partition("select_events(")[2].removesuffix(")")
    assert len(make(kind, traces.select_events(eval(mask))).rows) == 1


def test_the_first_of_two_hours_when_summer_time_ends():
    (time,) = zoned_times(np.array(["2024-11-03T01:30"], "datetime64[ms]"), "America/New_York")
    assert time.isoformat() == "2024-11-03T01:30:00-04:00"


@pytest.mark.parametrize(("zone", "day"), [("America/New_York", "2024-03-10"), ("Europe/London", "2024-03-31")])
def test_a_day_with_a_skipped_hour_keeps_its_hours_and_their_order(zone, day):
    local = np.datetime64(day, "ms") + 3_600_000 * np.arange(24)
    zoned = zoned_times(local, zone)
    assert clocks_skip(local, zone)
    layer = trace_layer(
        random_traces(0, [1], places_in_line(2), TimeGrid.each_instant(f"{day}T00:00:00", 3600, 24, zone))
    )
    assert "offset of the first" in layer.about["time"]
    assert "offset" not in trace_layer(by_hand()).about["time"]
    assert (zoned.tz_localize(None).to_numpy() == local).all()
    assert (np.diff(zoned.as_unit("s").asi8) == 3600).all()
