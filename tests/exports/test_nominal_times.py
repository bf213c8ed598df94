"""Wall-clock times as moments of a zone, above all where clocks change."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.exports.nominal_times import clocks_skip, iso_texts, wall_clock, zoned_times


def hours(*texts: str) -> np.ndarray:
    return np.array(texts, "datetime64[ms]")


def test_wall_clock_of_instants():
    grid = TimeGrid.each_instant("2024-01-01T23:30:00", 1800, 4, "Asia/Tokyo")
    expected = hours("2024-01-01T23:30", "2024-01-02T01:00", "2024-01-02T00:00")
    assert wall_clock(grid, np.array([0, 3, 1])).tolist() == expected.tolist()


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "Asia/Kathmandu", "America/New_York"])
def test_clocks_show_what_they_showed(zone):
    local = hours("2024-07-01T09:00", "2024-01-01T09:00")
    zoned = zoned_times(local, zone)
    assert (zoned.tz_localize(None).to_numpy() == local).all()
    assert not clocks_skip(local, zone)


def test_the_first_of_two_hours_when_summer_time_ends():
    (time,) = zoned_times(hours("2024-11-03T01:30"), "America/New_York")
    assert time.isoformat() == "2024-11-03T01:30:00-04:00"


@pytest.mark.parametrize(("zone", "day"), [("America/New_York", "2024-03-10"), ("Europe/London", "2024-03-31")])
def test_a_day_with_a_skipped_hour_keeps_its_hours_and_their_order(zone, day):
    local = np.datetime64(day, "ms") + 3_600_000 * np.arange(24)
    zoned = zoned_times(local, zone)
    assert clocks_skip(local, zone)
    assert (zoned.tz_localize(None).to_numpy() == local).all()
    assert (np.diff(zoned.as_unit("s").asi8) == 3600).all()


def test_texts_have_the_offset_of_their_day():
    times = pd.Series(zoned_times(hours("2024-07-01T09:00", "2024-01-01T09:00", "2024-07-01T09:00"), "Europe/Berlin"))
    summer, winter = "2024-07-01T09:00:00+02:00", "2024-01-01T09:00:00+01:00"
    assert iso_texts(times).tolist() == [summer, winter, summer]
