"""Times of tables: from the values of a column to wall-clock times and true times, in seconds since 1970.

Texts are read by their shape, which has a 9 in place of every digit. A column of millions of texts has only a few
shapes, and all texts of a shape are read in the same way: nothing is guessed row by row.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ppmtf_jax.data.time_grid import DAY_S, zone_problems
from ppmtf_jax.datasets.checks import put_right_rollover, rounded_times
from ppmtf_jax.datasets.database import database, text
from ppmtf_jax.datasets.parts import Rows
from ppmtf_jax.datasets.read import parts_of
from ppmtf_jax.errors import Message, Problem, Setting

# 1980 and 2100, in seconds since 1970. Years, dates such as 20240131 and times such as 20240131180000 lie outside, and
# so does a count that is read in a wrong unit.
EARLIEST_EPOCH_S, LATEST_EPOCH_S = 315_532_800, 4_102_444_800
EPOCH_UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
# Numbers in a second unit are a problem if more than this share of the rows has it.
MIN_SHARE_OF_UNIT = 0.1
# Words that are accepted in place of a format.
DAY_ORDERS = {"day-first": True, "month-first": False}
COUNTS = ("unix", "gps")
GPS_EPOCH_S = int(np.datetime64("1980-01-06", "s").astype(np.int64))
NAT = np.datetime64("NaT", "s")
LEAP_SECONDS = """1981-07 1982-07 1983-07 1985-07 1988-01 1990-01 1991-01 1992-07 1993-07 1994-07 1996-01 1997-07
 1999-01 2006-01 2009-01 2012-07 2015-07 2017-01"""


FORMATS_OF_TIMES = Message(
    "Write times as 2012-04-03T18:00:00, 2012-04-03T18:00:00-04:00 or in seconds since 1970, or tell how they are "
    "written, such as ",
    Setting("time_format", "%d.%m.%Y %H:%M"),
)
HOUR_S, MINUTE_S = 3_600, 60
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# Dates and times in digits alone.
COMPACT = ("99999999", "99999999999999")
# The form of plain times, by their length, and whether they tell their offset.
PLAIN = {19: ("9999-99-99[T ]99:99:99", False), 20: ("9999-99-99[T ]99:99:99Z", True)}
NUMBER = re.compile(r"\s*[+-]?9+(?:\.9*)?(?:e[+-]?99?)?\s*", re.ASCII)

_SPACE = "(?:\\s|\u00a0|\u202f)"
_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|"
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_WEEKDAY = r"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,?\s+"
_CLOCK = (r"(?P<H>99?)(?::(?P<min>99)(?::(?P<S>99)(?:[.,]9+)?)?)?", r"(?P<H>99)(?P<min>99)(?:(?P<S>99)(?:[.,]9+)?)?")
_AM_PM = rf"(?:{_SPACE}*(?P<half>[ap])\.?m\.?)?"
_OFFSET = (
    "(?:\\s?(?:(?:utc|gmt)?(?P<sign>[+-]|\u2212)(?P<oh>99?)(?::?(?P<om>99))?(?:\\s[a-z]{3,5})?|(?P<zero>z|utc|gmt)))?"
)
_DATES = (
    r"(?P<Y>9999)(?P<mark>[-/.])(?P<m>99?)(?P=mark)(?P<d>99?)",
    r"(?P<Y>9999)(?P<m>99)(?P<d>99)",
    r"(?P<first>99?)(?P<mark>[-/.])(?P<second>99?)(?P=mark)(?P<Y>9999)",
    rf"(?P<d>99?)[- /]{_MONTH}[- /,]\s?(?P<Y>9999)",
    rf"{_MONTH} (?P<d>99?),? (?P<Y>9999)",
)
_WHOLE = [
    re.compile(
        rf"\s*(?:{_WEEKDAY})?{date}(?:(?:t|,?\s+|\s+at\s+){clock}{_AM_PM}{_OFFSET})?\s*", re.IGNORECASE | re.ASCII
    )
    for date in _DATES
    for clock in _CLOCK
] + [
    re.compile(r"\s*(?P<Y>9999)(?P<m>99)(?P<d>99)(?P<H>99)(?P<min>99)(?P<S>99)\s*", re.ASCII),
    re.compile(rf"\s*{_WEEKDAY}{_MONTH}\s+(?P<d>99?) {_CLOCK[0]}{_OFFSET} (?P<Y>9999)\s*", re.IGNORECASE | re.ASCII),
]
# The numbers within a text, whose places a shape tells.
FIELDS = ("Y", "m", "d", "H", "min", "S", "oh", "om", "first", "second")


class Times(NamedTuple):
    """Local wall-clock and true times: in the view `timed` of a database, or as arrays.

    They are missing where a value is no time. `problems` concern the whole column, `unparsed` the rows without a
    readable time. `dates_only`: no row has a time of day. `is_count`: numbers were read as counts since 1970.
    """

    local: Any = None
    utc: Any = None
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    unparsed: tuple[Problem, ...] = ()
    dates_only: bool = False
    is_count: bool = False


def parse_times(
    column: pd.Series, time_zone: str | None, *, times_in: str | None = None, time_format: str | None = None
) -> Times:
    """Local wall-clock and true times of a column; see `read_checkins` for the texts and numbers that are times.

    Parameters
    ----------
    time_zone : str or None
        Zone of the local times. None: the zone `times_in`; without `times_in`, UTC, and all times need an offset.
    times_in : str, optional
        Zone of the times without an offset. Default: `time_zone`.
    time_format : str, optional
        A format of `datetime.strptime`, or day-first, month-first, unix or gps. By default inferred from the column.

    Returns
    -------
    Times
        Arrays of datetime64[s], shape (rows,), not-a-time where a value is no time.

    Examples
    --------
    >>> times = parse_times(pd.Series(["3/4/2012 6:00 PM", "13/4/2012 6:30 PM"]), "America/New_York", times_in="UTC")
    >>> times.local.astype(str).tolist()
    ['2012-04-03T14:00:00', '2012-04-13T14:30:00']
    """
    with database() as connection:
        frame = column.infer_objects().to_frame("time")
        rows = Rows(connection, parts_of(frame, {"time": "time"}, (), False, "times"))
        walls = read_walls(rows, time_format)
        connection.execute(f"CREATE OR REPLACE TABLE clocked AS SELECT row, {walls.columns} FROM {walls.table}")
        times = read_times(rows, walls, time_zone, times_in)
        found = connection.sql("SELECT local_s, utc_s FROM every_row ORDER BY row").fetchnumpy()
    seconds = [np.ma.asarray(found[name]) for name in ("local_s", "utc_s")]
    times_of = [each.filled(0).astype(np.int64).astype("datetime64[s]") for each in seconds]
    local, utc = (np.where(np.ma.getmaskarray(each), NAT, time) for each, time in zip(seconds, times_of, strict=True))
    return times._replace(local=local, utc=utc)


class Walls(NamedTuple):
    """How the wall-clock times of `raw` and their offsets are computed, and what was found out about them.

    `wall` is SQL of the wall-clock time, `offset_s` of its offset in seconds, missing where the time does not tell it.
    """

    wall: str
    offset_s: str
    table: str = "raw"
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    way_out: str = FORMATS_OF_TIMES
    has_clock: bool = True
    is_count: bool = False

    @property
    def columns(self) -> str:
        """SQL of wall, offset_s and no_time (nothing is written), from `table`."""
        return f"{self.wall} AS wall, {self.offset_s} AS offset_s, time IS NULL AS no_time"


def read_walls(rows: Rows, time_format: str | None) -> Walls:
    """What the column `time` of `raw` means: times of the database, counts since 1970, texts of a format, or texts."""
    kind = rows.columns["time"]
    if kind.startswith("TIMESTAMP"):
        # A time of the database that is infinite is none.
        wall = "CASE WHEN isfinite(time) THEN CAST(floor(epoch_us(time) / 1000000) AS BIGINT) END"
        return Walls(wall, "0" if "TIME ZONE" in kind else "NULL")
    is_number = re.match("U?(TINY|SMALL|BIG|HUGE)?INT|DOUBLE|FLOAT|DECIMAL", kind) is not None
    if time_format in COUNTS or is_number:
        return _from_counts(rows, "TRY_CAST(trim(CAST(time AS VARCHAR)) AS DOUBLE)", time_format == "gps")
    if time_format is not None and time_format not in DAY_ORDERS:
        return _by_format(rows, time_format)
    value = "time" if kind == "VARCHAR" else "CAST(time AS VARCHAR)"
    shortest, longest, n_known = rows.one(f"SELECT min(strlen({value})), max(strlen({value})), count({value}) FROM raw")
    form, has_offset = PLAIN.get(shortest if shortest == longest else 0, ("", False))
    is_plain = f"{value} GLOB {text(form.replace('9', '[0-9]'))} AND substr({value}, 12, 2) < '24'"
    if form and rows.one(f"SELECT bool_and({is_plain}) FROM raw")[0]:
        return Walls(f"epoch_us(TRY_CAST({value} AS TIMESTAMP)) // 1000000", "0" if has_offset else "NULL")
    return _by_shape(rows, value, time_format, n_known)


def _by_shape(rows: Rows, value: str, time_format: str | None, n_known: int) -> Walls:
    connection = rows.connection
    shape = f"translate({value}, '012345678', '999999999')"
    query = f"SELECT {shape} AS shape, count(*) FROM raw WHERE {value} IS NOT NULL GROUP BY 1 ORDER BY min(row)"
    counts = dict(connection.execute(query).fetchall())
    n_counts = sum(n for each, n in counts.items() if NUMBER.fullmatch(each) and each.strip() not in COMPACT)
    if 2 * n_counts > n_known:
        is_number = ", ".join([text(each) for each in counts if NUMBER.fullmatch(each)])
        return _from_counts(
            rows, f"CASE WHEN {shape} IN ({is_number}) THEN TRY_CAST(trim({value}) AS DOUBLE) END", False
        )
    shapes = [found for each in counts if (found := _read_shape(each)) is not None]
    marks = sorted({found.pop("mark") for found in shapes} - {""})
    names = ["shape", *(f"{name}_{what}" for name in FIELDS for what in ("at", "n")), "half", "month", "sign", "zoned"]
    connection.register("found_shapes", pd.DataFrame(shapes, columns=names).astype(dict.fromkeys(names[1:], "int32")))
    connection.execute("CREATE OR REPLACE TABLE shapes AS SELECT * FROM found_shapes")
    table, problems = f"raw LEFT JOIN shapes ON shapes.shape = {shape}", []

    def number(name: str) -> str:
        return f"coalesce(TRY_CAST(substr({value}, {name}_at, {name}_n) AS INTEGER), 0)"

    first, second = number("first"), number("second")
    # Texts that are no date in either order are not counted.
    orders = {
        "day": f"first_n > 0 AND {first} BETWEEN 13 AND 31 AND {second} <= 12",
        "month": f"first_n > 0 AND {second} BETWEEN 13 AND 31 AND {first} <= 12",
        "either": f"first_n > 0 AND {first} <= 12 AND {second} <= 12",
    }
    day_first = DAY_ORDERS.get(time_format or "", False)
    if marks:
        wanted = ", ".join(f"count(*) FILTER ({where}), min(row) FILTER ({where})" for where in orders.values())
        found = rows.one(f"SELECT {wanted} FROM {table}")
        n_day, n_month, n_either = found[::2]
        day_first = DAY_ORDERS.get(time_format or "", n_day > 0)
        if time_format is None:
            first_rows = sorted(row for row in found[1::2] if row is not None)
            problems = _problem_of_order(rows, n_day, n_month, n_either, first_rows)
    day = f"{number('d')} + {first if day_first else second}"
    month = f"{number('m')} + month + {second if day_first else first}"
    hour, minute, second_of = number("H"), number("min"), number("S")
    begin = f"make_date(greatest({number('Y')}, 1), least(greatest({month}, 1), 12), 1)"
    is_good = [
        f"{month} BETWEEN 1 AND 12",
        f"{number('Y')} > 0",
        f"{day} BETWEEN 1 AND day(last_day({begin}))",
        f"{hour} < 24 AND {minute} < 60 AND {second_of} < 60",
        f"(half = 0 OR {hour} BETWEEN 1 AND 12)",
        f"{number('om')} < 60 AND {number('oh')} * {HOUR_S} + {number('om')} * {MINUTE_S} <= {14 * HOUR_S}",
    ]
    of_day = f"(CASE half WHEN 0 THEN {hour} ELSE {hour} % 12 + 12 * (half - 1) END) * {HOUR_S}"
    seconds = f"({begin} - DATE '1970-01-01' + {day} - 1) * {DAY_S} + {of_day} + {minute} * {MINUTE_S} + {second_of}"
    wall = f"CASE WHEN shapes.shape IS NOT NULL AND {' AND '.join(is_good)} THEN CAST({seconds} AS BIGINT) END"
    offset_s = f"CASE WHEN zoned = 1 THEN sign * ({number('oh')} * {HOUR_S} + {number('om')} * {MINUTE_S}) END"
    order = ["%d", "%m", "%Y"] if day_first else ["%m", "%d", "%Y"]
    notes = [f"dates are read as {layout}" for layout in sorted(mark.join(order) for mark in marks)]
    (has_clock,) = rows.one(f"SELECT coalesce(bool_or(H_n > 0 AND ({wall}) IS NOT NULL), false) FROM {table}")
    return Walls(wall, offset_s, table, tuple(problems), tuple(notes), has_clock=has_clock)


def _read_shape(shape: str) -> dict[str, Any] | None:
    """Where the numbers of a shape are, and what else it means; None if it is not the shape of a time."""
    for pattern in _WHOLE if len(shape.encode()) <= 80 else ():
        match = pattern.fullmatch(shape)
        if match is None:
            continue
        fields = match.groupdict()
        # A number without minutes is an hour only after T, as in ISO 8601, or with am or pm.
        is_hour_alone = fields.get("H") is not None and fields.get("min") is None and fields.get("half") is None
        if is_hour_alone and shape[match.start("H") - 1].lower() != "t":
            continue
        found: dict[str, Any] = {"shape": shape, "mark": fields["mark"] if "first" in fields else ""}
        for name in FIELDS:
            begin, end = match.span(name) if fields.get(name) else (0, 0)
            found |= {f"{name}_at": begin + 1, f"{name}_n": end - begin}
        half, month, sign = (fields.get(name) or "" for name in ("half", "month", "sign"))
        found["half"] = " ap".find(half.lower()) if half else 0
        found["month"] = MONTHS.index(month.lower()[:3]) + 1 if month else 0
        return found | {"sign": 1 if sign in ("", "+") else -1, "zoned": int(bool(sign or fields.get("zero")))}
    return None


def _problem_of_order(rows: Rows, n_day: int, n_month: int, n_either: int, first: list[int]) -> list[Problem]:
    """A problem if the column does not tell whether days come first in dates such as 3/4/2012."""
    day, month = (Setting("time_format", word) for word in ("day-first", "month-first"))
    way_out = Message("Tell which comes first: ", day, " or ", month)
    if n_day and n_month:
        expected, n_rows = "dates all in one order", 0
        found = f"{n_day:,} with the day first and {n_month:,} with the month first"
    elif n_either and not n_day and not n_month:
        expected, found, n_rows = "dates that tell day and month apart", "none after the 12th of a month", n_either
    else:
        return []
    examples = rows.examples(f"row IN ({', '.join(map(str, first))})", "time")
    return [Problem(expected, found, n_rows, examples, way_out)]


def _by_format(rows: Rows, time_format: str) -> Walls:
    """Times in a format of `datetime.strptime`; pandas reads each different text once."""
    directives = set(re.findall(r"%-?([A-Za-z])", time_format))
    query = "SELECT DISTINCT CAST(time AS VARCHAR) AS written FROM raw WHERE time IS NOT NULL"
    texts = rows.connection.sql(query).df()
    written, has_offset, fault = texts["written"].astype("str").str.strip(), "%z" in time_format, ""
    wall = np.full(len(texts), "NaT", "datetime64[s]")
    if not directives:
        fault = "it has no directive such as %d"
    elif "Z" in directives:
        fault = "%Z does not tell the offset; use %z"
    elif "I" in directives and "p" not in directives:
        fault = "%I needs %p, which tells AM from PM"
    else:
        try:
            parsed = pd.DatetimeIndex(pd.to_datetime(written, format=time_format, utc=has_offset, errors="coerce"))
            wall = (parsed.tz_localize(None) if has_offset else parsed).as_unit("s").to_numpy("datetime64[s]")
        except (ValueError, TypeError) as error:
            fault = str(error)
    words = ", ".join((*DAY_ORDERS, *COUNTS))
    expected = Message(Setting("time_format"), f" as of strptime, such as '%d.%m.%Y %H:%M', or one of {words}")
    problems = (Problem(expected, f"{time_format!r}: {fault}"),) if fault else ()
    seconds = pd.arrays.IntegerArray(wall.astype(np.int64), np.isnat(wall))
    rows.connection.register("read_texts", texts.assign(second=seconds))
    rows.connection.execute("CREATE OR REPLACE TABLE times_of_texts AS SELECT * FROM read_texts")
    table = "raw LEFT JOIN times_of_texts ON CAST(time AS VARCHAR) = written"
    way_out = Message("They are read as ", Setting("time_format", time_format))
    has_clock = bool(directives & set("HIcXTR"))
    return Walls("second", "0" if has_offset else "NULL", table, problems, way_out=way_out, has_clock=has_clock)


def _from_counts(rows: Rows, number: str, is_gps: bool) -> Walls:
    """Counts since 1970, in the unit that puts most of them between 1980 and 2100; or seconds of GPS time."""
    units = EPOCH_UNITS
    if is_gps:
        # GPS time counts seconds from 6 January 1980, including leap seconds.
        leaps = np.array(LEAP_SECONDS.split(), "datetime64[s]").astype(np.int64) - GPS_EPOCH_S
        later = " - ".join(f"({number} >= {leap + k})::INTEGER" for k, leap in enumerate(leaps.tolist(), 1))
        number, units = f"({number} + {GPS_EPOCH_S} - {later})", {"seconds": 1}
    fits = {
        unit: f"{number} BETWEEN {EARLIEST_EPOCH_S * per_s} AND {LATEST_EPOCH_S * per_s}"
        for unit, per_s in units.items()
    }
    n_rows, *n_of = rows.one(
        f"SELECT count(*), {', '.join(f'count(*) FILTER ({fit})' for fit in fits.values())} FROM raw"
    )
    counts = dict(zip(units, n_of, strict=True))
    unit, *others = sorted(counts, key=lambda name: -counts[name])
    good, problems = [unit], []
    notes = ["times are seconds of GPS time" if is_gps else f"times are {unit} since 1970"]
    if others and counts[others[0]] > MIN_SHARE_OF_UNIT * n_rows:
        found = f"{counts[unit]:,} in {unit} and {counts[others[0]]:,} in {others[0]}"
        way_out = "Divide the larger numbers, or read the rows of each unit alone"
        problems = [Problem("numbers since 1970 in one unit", found, way_out=way_out)]
        good = list(units)
    if not is_gps:
        notes += rounded_times(rows, f"CASE WHEN {fits[unit]} THEN CAST(floor({number} / {units[unit]}) AS BIGINT) END")
    cases = " ".join(f"WHEN {fits[name]} THEN CAST(floor({number} / {units[name]}) AS BIGINT)" for name in good)
    way_out = f"Numbers are {unit} since 1970, from 1980 to 2100; write dates as 2012-04-03, and weekdays as dates"
    found = {"problems": tuple(problems), "notes": tuple(notes)}
    return Walls(f"CASE {cases} END", "0", way_out=way_out, is_count=not is_gps, **found)


def read_times(rows: Rows, walls: Walls, time_zone: str | None, times_in: str | None) -> Times:
    """Make the view `every_row` of the table `clocked`, which has `walls`: with local_s and utc_s.

    `time_zone` and `times_in` are as of `parse_times`.
    """
    zones = dict.fromkeys(zone for zone in (time_zone, times_in) if zone is not None)
    problems = [*(problem for zone in zones for problem in zone_problems(zone)), *walls.problems]
    notes, wall = [*walls.notes], "wall"
    if "user" in rows.columns:
        wall, found = put_right_rollover(rows, wall)
        notes += found
    known = f"({wall}) IS NOT NULL"
    naive, absolute = f"{known} AND offset_s IS NULL", f"{known} AND offset_s IS NOT NULL"
    first, last, n_naive, n_absolute, n_not_midnight = rows.one(
        f"SELECT min({wall}), max({wall}), count(*) FILTER ({naive}), count(*) FILTER ({absolute}), "
        f"count(*) FILTER (({wall}) % {DAY_S} <> 0) FROM clocked"
    )
    if not zones:
        zone = Setting("time_zone", "Europe/Paris")
        more = Message("Name the zone of the clock that wrote them, such as ", zone)
        problems += rows.problem(naive, "a time zone, for times without an offset", "none", more, "time", "clocked")
    if n_naive and n_absolute:
        counts = f"{n_naive} without and {n_absolute} with one"
        problems.append(Problem("times all with an offset or all without", counts))
    elif times_in is not None:
        expected = Message("times without an offset, which ", Setting("times_in", times_in), " is for")
        more = "Leave it out: these times tell their offset, or count from 1970 in UTC"
        problems += rows.problem(absolute, expected, "times with one", more, "time", "clocked")
    utc = f"({wall}) - coalesce(offset_s, 0)"
    local, clock = wall, times_in or time_zone or "UTC"
    if not problems and n_naive:
        utc, more_notes = _true_times(rows, wall, clock, first, last)
        notes += more_notes
    if not problems and first is not None and (not n_naive or time_zone not in (None, clock)):
        local = _local_times_sql(f"({utc})", time_zone or "UTC", first, last)
    # If several different times are all at midnight, dates were stored as times.
    dates_only = first is not None and (not walls.has_clock or (not n_not_midnight and first < last))
    where, expected = f"NOT ({known}) AND NOT no_time", "times that can be parsed"
    unparsed = rows.problem(where, expected, way_out=walls.way_out, values="time", table="clocked")
    columns = f"*, ({local}) AS local_s, CAST({utc} AS BIGINT) AS utc_s"
    rows.connection.execute(f"CREATE OR REPLACE VIEW every_row AS SELECT {columns} FROM clocked")
    return Times(None, None, tuple(problems), tuple(notes), tuple(unparsed), dates_only, walls.is_count)


# The clocks of a time zone


def local_times(utc: pd.DatetimeIndex, time_zone: str) -> np.ndarray:
    """Wall-clock times in a zone of naive UTC times, datetime64[s] of shape (times,)."""
    return utc.tz_localize("UTC").tz_convert(time_zone).tz_localize(None).to_numpy("datetime64[s]")


def _changes(time_zone: str, first_s: int, last_s: int) -> tuple[int, list[tuple[int, int, int]]]:
    """Offset of a zone from UTC in seconds at a time, and its changes until another: true time, offset before, after.

    True times are exact; clocks do not change twice on a day.
    """
    low, high = (np.datetime64(date, "s").astype(np.int64) for date in ("0001-01-05", "9999-12-25"))
    day = np.arange(max(first_s - 2 * DAY_S, low), min(last_s + 3 * DAY_S, high), DAY_S)

    def offset_s(utc_s: np.ndarray) -> np.ndarray:
        utc = pd.DatetimeIndex(utc_s.astype("datetime64[s]"))
        return local_times(utc, time_zone).astype(np.int64) - utc_s

    offsets = offset_s(day)
    at = np.flatnonzero(np.diff(offsets))
    before, after = day[at], day[at + 1]
    while len(at) and (after - before > 1).any():
        middle = (before + after) // 2
        is_before = offset_s(middle) == offsets[at]
        before, after = np.where(is_before, middle, before), np.where(is_before, after, middle)
    changes = zip(after.tolist(), offsets[at].tolist(), offsets[at + 1].tolist(), strict=True)
    return int(offsets[0]), list(changes)


def _local_times_sql(utc: str, time_zone: str, first_s: int, last_s: int) -> str:
    """SQL of wall-clock times in a zone."""
    first, changes = _changes(time_zone, first_s - DAY_S, last_s + DAY_S)
    cases = "".join(f"WHEN {utc} < {change} THEN {before} " for change, before, _ in changes)
    return f"{utc} + CASE {cases}ELSE {changes[-1][2]} END" if changes else f"{utc} + {first}"


def _true_times(rows: Rows, wall: str, time_zone: str, first_s: int, last_s: int) -> tuple[str, list[str]]:
    """SQL of the UTC of wall-clock times, and notes on those that do not exist or exist twice."""
    first, changes = _changes(time_zone, first_s, last_s)
    cases, absent, twice = "", ["false"], ["false"]
    for change, before, after in changes:
        cases += f"WHEN ({wall}) < {change + before} THEN ({wall}) - {before} "
        if after > before:
            cases += f"WHEN ({wall}) < {change + after} THEN {change} "
        span = f"({wall}) >= {change + min(before, after)} AND ({wall}) < {change + max(before, after)}"
        (absent if after > before else twice).append(span)
    if not changes:
        return f"({wall}) - {first}", []
    n_absent, n_twice = rows.one(
        f"SELECT count(*) FILTER ({' OR '.join(absent)}), count(*) FILTER ({' OR '.join(twice)}) FROM clocked"
    )
    notes = []
    if n_absent:
        notes.append(f"times that do not exist (summer time begins), kept as written: {n_absent:,}")
    if n_twice:
        notes.append(f"times that exist twice (summer time ends), taken as the first: {n_twice:,}")
    return f"CASE {cases}ELSE ({wall}) - {changes[-1][2]} END", notes
