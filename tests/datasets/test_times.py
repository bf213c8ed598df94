"""Times as tables write them, and the clocks of a zone."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppmtf_jax.datasets.times import parse_times


@pytest.mark.parametrize(
    ("written", "local"),
    [
        ("2012-04-03T18:00:00Z", "2012-04-03T14:00:00"),
        ("2012-04-03 18:00:00+00:00", "2012-04-03T14:00:00"),
        ("2012-04-03T18:00:00.987Z", "2012-04-03T14:00:00"),
        ("2012-04-03T18:00:00-0400", "2012-04-03T18:00:00"),
        ("2012-04-04T03:00+09", "2012-04-03T14:00:00"),
        ("2012-04-03T18:00:00", "2012-04-03T18:00:00"),
        ("2012-04-03 18:00", "2012-04-03T18:00:00"),
        ("2012-04-03", "2012-04-03T00:00:00"),
        (" 2012-04-03T18:00:00Z ", "2012-04-03T14:00:00"),
        ("1333476000", "2012-04-03T14:00:00"),
        (1333476000, "2012-04-03T14:00:00"),
        (1333476000.9, "2012-04-03T14:00:00"),
        (datetime(2012, 4, 3, 18), "2012-04-03T18:00:00"),
        (pd.Timestamp("2012-04-03T18:00", tz="UTC"), "2012-04-03T14:00:00"),
    ],
)
def test_ways_of_writing_a_time(written, local):
    times = parse_times(pd.Series([written]), "America/New_York")
    assert (times.problems, str(times.local[0])) == ((), local)


@given(st.integers(0, 366 * 24 * 60), st.sampled_from(["Europe/Paris", "America/New_York", "Asia/Kolkata", "UTC"]))
def test_local_and_true_times_agree_with_the_standard_library(minutes, zone):
    moment = datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC")) + timedelta(minutes=minutes)
    wall = moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    absolute = parse_times(pd.Series([moment.isoformat()]), zone)
    assert absolute.local[0] == np.datetime64(wall)
    naive = parse_times(pd.Series([wall.isoformat()]), zone)
    assert naive.local[0] == np.datetime64(wall)
    # fold=0 is the first of two equal wall-clock times
    first = wall.replace(tzinfo=ZoneInfo(zone), fold=0).astimezone(ZoneInfo("UTC")).replace(tzinfo=None)
    assert naive.utc[0] == np.datetime64(first)


def test_wall_clock_times_at_the_changes_of_summer_time():
    times = parse_times(
        pd.Series(["2024-03-31T02:30:00", "2024-10-27T02:30:00", "2024-10-27T03:30:00"]), "Europe/Paris"
    )
    assert times.local.astype(str).tolist() == ["2024-03-31T02:30:00", "2024-10-27T02:30:00", "2024-10-27T03:30:00"]
    # The clocks go forward at 01:00 UTC and back at 01:00 UTC.
    assert times.utc.astype(str).tolist() == ["2024-03-31T01:00:00", "2024-10-27T00:30:00", "2024-10-27T02:30:00"]
    assert times.notes == (
        "times that do not exist (summer time begins), kept as written: 1",
        "times that exist twice (summer time ends), taken as the first: 1",
    )
