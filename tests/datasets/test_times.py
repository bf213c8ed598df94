"""Times as tables write them, and the clocks of a zone."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

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
        # ISO 8601 without marks between the digits, or with the hour alone
        ("20120403T180000Z", "2012-04-03T14:00:00"),
        ("2012-04-03T180000Z", "2012-04-03T14:00:00"),
        ("2012-04-03T18Z", "2012-04-03T14:00:00"),
        ("20120403T180000+0200", "2012-04-03T12:00:00"),
        ("2012-04-03T18:00:00+2", "2012-04-03T12:00:00"),
        ("2012-04-03T18:00:00+05:30", "2012-04-03T08:30:00"),
        ("20120403180000", "2012-04-03T18:00:00"),
        ("20120403", "2012-04-03T00:00:00"),
        # other ways of writing
        ("2012/4/3 8:05", "2012-04-03T08:05:00"),
        ("4/13/2012 6:30 PM", "2012-04-13T18:30:00"),
        ("13.4.2012 18:30", "2012-04-13T18:30:00"),
        ("2012-04-03 12:00 a.m.", "2012-04-03T00:00:00"),
        ("2012-04-03 12:00\u202fPM", "2012-04-03T12:00:00"),
        ("3 April 2012, 18:00", "2012-04-03T18:00:00"),
        ("April 3, 2012 at 6:00 PM", "2012-04-03T18:00:00"),
        ("Tue Apr 03 18:00:00 +0000 2012", "2012-04-03T14:00:00"),
        ("Tue, 03 Apr 2012 18:00:00 GMT", "2012-04-03T14:00:00"),
        ("2012-04-03 18:00:00 UTC", "2012-04-03T14:00:00"),
        ("1333476000", "2012-04-03T14:00:00"),
        ("1333476000123", "2012-04-03T14:00:00"),
        (1333476000123456, "2012-04-03T14:00:00"),
        (1333476000123456789, "2012-04-03T14:00:00"),
        (1333476000, "2012-04-03T14:00:00"),
        (1333476000.9, "2012-04-03T14:00:00"),
        (datetime(2012, 4, 3, 18), "2012-04-03T18:00:00"),
        (pd.Timestamp("2012-04-03T18:00", tz="UTC"), "2012-04-03T14:00:00"),
    ],
)
def test_ways_of_writing_a_time(written, local):
    times = parse_times(pd.Series([written]), "America/New_York")
    assert (times.problems, str(times.local[0])) == ((), local)


NO_TIMES = ["now", "today", " ", 2012, True, "12", "1.5e300", "2012-02-30", "2012-04-03T24:00:00", "3.4.12"]
NO_TIMES += ["2012-04-03T18:00:00+25:00", "2012-04-03T18:00:00-", "2012-04-03 18", "13:00 PM", "2012-04-03 13:00 PM"]
NO_TIMES += ["\uff12012-04-03"]  # digits, but no ASCII ones


@pytest.mark.parametrize("written", NO_TIMES)
def test_what_is_no_time_is_a_problem(written):
    times = parse_times(pd.Series(["2012-04-03T18:00:00", written]), "Europe/Paris")
    assert "times that can be parsed; found others (1 row)" in str(times.unparsed[0])
    assert np.isnat(times.utc[1])


@pytest.mark.parametrize(
    ("written", "local", "problem"),
    [
        (["3/4/2012", "13/4/2012"], ["2012-04-03", "2012-04-13"], ""),
        (["3/4/2012", "4/13/2012"], ["2012-03-04", "2012-04-13"], ""),
        # What is no date in either order does not decide.
        (["3/4/2012", "32/4/2012"], None, "tell day and month apart; found none after the 12th of a month (1 row)"),
        (["3/4/2012", "4/3/2012"], None, "first: '3/4/2012' (row 0). Tell which comes first"),
        (["13/4/2012", "4/13/2012"], None, "in one order; found 1 with the day first and 1 with the month first"),
    ],
)
def test_days_and_months_are_told_apart_by_the_whole_column(written, local, problem):
    times = parse_times(pd.Series(written), "Europe/Paris")
    assert problem in " ".join(map(str, times.problems))
    assert bool(times.problems) == bool(problem)
    if local:
        assert times.local.astype("datetime64[D]").astype(str).tolist() == local


@pytest.mark.parametrize(
    ("written", "options", "local"),
    [
        ("03.04.12 18:00", {"time_format": "%d.%m.%y %H:%M"}, "2012-04-03T18:00:00"),
        ("18h 2012-04-03 +0200", {"time_format": "%Hh %Y-%m-%d %z"}, "2012-04-03T18:00:00"),
        ("2012-04-03T18:00:00", {"times_in": "UTC"}, "2012-04-03T20:00:00"),
        ("2012-04-03T18:00:00", {"times_in": "America/New_York"}, "2012-04-04T00:00:00"),
        ("2012-04-03T18:00:00", {"times_in": "Europe/Paris"}, "2012-04-03T18:00:00"),
    ],
)
def test_what_is_told_of_times(written, options, local):
    times = parse_times(pd.Series([written]), "Europe/Paris", **options)
    assert (times.problems, str(times.local[0])) == ((), local)


@pytest.mark.parametrize(
    ("written", "options", "problem"),
    [
        ("2012-04-03T18:00:00Z", {"times_in": "UTC"}, "times without an offset, which times_in='UTC' is for"),
        ("2012-04-03", {"times_in": "Mars"}, "an IANA time zone such as Asia/Tokyo; found 'Mars'"),
        ("2012-04-03", {"time_format": "mixed"}, "time_format as of strptime"),
        ("2012-04-03", {"time_format": "%Q"}, "time_format as of strptime"),
        ("2012-04-03", {"time_format": "%Y"}, "They are read as time_format='%Y'"),
    ],
)
def test_what_is_told_of_times_and_does_not_fit(written, options, problem):
    times = parse_times(pd.Series([written]), "Europe/Paris", **options)
    assert problem in str([*times.problems, *times.unparsed][0])


@pytest.mark.parametrize(
    ("written", "dates_only"),
    [
        (["2012-04-03"], True),
        (["2012-04-03", "2012-04-04T08:00"], False),
        (["2012-04-03T00:00:00"], False),
        (["2012-04-03T00:00:00", "2012-04-04T00:00:00"], True),
        (pd.to_datetime(["2012-04-03", "2012-04-04"]), True),
        ([1333411200, 1333411200 + 86_400], True),
    ],
)
def test_dates_without_a_time_of_day_are_told(written, dates_only):
    assert parse_times(pd.Series(written), "Europe/Paris").dates_only is dates_only


@pytest.mark.parametrize("zone", ["Europe/Paris", "America/New_York", "Asia/Kolkata", "UTC"])
def test_local_and_true_times_agree_with_the_standard_library(zone):
    """Each quarter of an hour of the two days on which clocks change, and some hours of the year."""
    start = datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC"))
    hours = [*range(0, 366 * 24, 101), *(24 * day + hour / 4 for day in (69, 90, 300, 307) for hour in range(96))]
    moments = [start + timedelta(hours=each) for each in hours]
    walls = [each.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for each in moments]
    absolute = parse_times(pd.Series([each.isoformat() for each in moments]), zone)
    assert (absolute.local == np.array(walls, "datetime64[s]")).all()
    naive = parse_times(pd.Series([each.isoformat() for each in walls]), zone)
    assert (naive.local == np.array(walls, "datetime64[s]")).all()
    # fold=0 is the first of two equal wall-clock times
    first = [each.replace(tzinfo=ZoneInfo(zone), fold=0).astimezone(ZoneInfo("UTC")) for each in walls]
    assert (naive.utc == np.array([each.replace(tzinfo=None) for each in first], "datetime64[s]")).all()


def test_wall_clock_times_at_the_changes_of_summer_time():
    written = ["2024-03-31T02:30:00", "2024-03-31T02:45:00", "2024-10-27T02:30:00", "2024-10-27T03:30:00"]
    times = parse_times(pd.Series(written), "Europe/Paris")
    assert times.local.astype(str).tolist() == written
    # The clocks go forward at 01:00 UTC and back at 01:00 UTC.
    expected = ["2024-03-31T01:00:00", "2024-03-31T01:00:00", "2024-10-27T00:30:00", "2024-10-27T02:30:00"]
    assert times.utc.astype(str).tolist() == expected
    assert times.notes == (
        "times that do not exist (summer time begins), kept as written: 2",
        "times that exist twice (summer time ends), taken as the first: 1",
    )
    # What is no time neither exists twice nor not at all.
    assert parse_times(pd.Series(["2024-03-31T01:30:00", "x"]), "Europe/Paris").notes == ()


PLAIN = ["2012-04-03T18:00:00", "2012-02-29 23:59:59", None, "1912-01-31T00:00:00"]
NOT_PLAIN = (
    ["2012-04-03T18:00:60"],
    ["2012-04-03T24:00:00"],
    ["2011-02-29T18:00:00"],
    ["2012-04-03T18+00:00"],
    ["2012-04-03T18+0000Z"],
    ["2012-04-03T18:00:00z"],
    ["2012-04-03t18:00:00"],
    ["2012-04-03T18:00Z", "2012-04-03T18:00:00Z"],
    ["2012-04-03T18:00:00", "2012-04-03T18:00:0Z"],
    ["3/04/2012 18:00:000"],
    [None],
)


@pytest.mark.parametrize("end", ["", "Z"])
@pytest.mark.parametrize("texts", [PLAIN, *NOT_PLAIN])
def test_a_column_of_plain_times_is_read_as_texts_of_any_shape(texts, end):
    """Another text in the column lets all be read by their shape."""
    written = [text and (text if text.endswith("Z") else text + end) for text in texts]
    alone = parse_times(pd.Series(written, dtype="str"), "UTC").utc
    beside = parse_times(pd.Series([*written, "3 April 2012", "x"], dtype="str"), "UTC").utc
    np.testing.assert_array_equal(alone, beside[: len(written)])
