"""Judgements on the rows of a table: what is unknown, what was lost, and what is mixed up or years away.

Each judgement is a finding, which the report shows, or a problem, which refuses the table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ppmtf_jax.data.time_grid import DAY_S
from ppmtf_jax.datasets.database import floored
from ppmtf_jax.datasets.read import Rows
from ppmtf_jax.errors import N_EXAMPLES, Finding, Message, Problem, Setting

ID_NAMES = ("user", "place", "trace")
LIMITS = {"latitude": 90, "longitude": 180}
MAX_EMPTY_DAYS = 5 * 365
STRAY_SHARE = 0.01
# Positions that mean "unknown". On the globe, all in the sea: the pair means it if more rows are at exactly this point
# than near it. Off the globe: of AIS, and numbers of nines.
ON_GLOBE = ((0, 0), (-1, -1), (90, 180), (-90, -180))
OFF_GLOBE = {"latitude": (91,), "longitude": (181,)}
NINES = (999, 9999, 99999, 999999)
MAX_SENTINEL = 10**6
# The clock of a GPS receiver counts weeks up to 1,024 and then begins anew.
ROLLOVER_DAYS, MAX_ROLLOVERS, MAX_ROLLOVER_SHARE = 7168, 2, 0.25
# Steps in seconds of times that were rounded as numbers, and not to minutes; 128 s is the step of 32-bit numbers.
ROUNDED_S = (10**6, 10**5, 10**4, 1000, 128, 100)
MIN_ROUNDED_TIMES = 5


def unknown_rows(rows: Rows, needs_places: bool, has_bad_times: bool) -> dict[str, str]:
    """SQL of the rows of `every_row` whose position, user, place or time the writer did not know, by what is missing.

    With `has_bad_times`, some rows have no time because it cannot be read; the column `no_time` tells them apart.
    """
    unknown = {"position": f"latitude IS NULL OR longitude IS NULL{_sentinels(rows)}"}
    for name in ID_NAMES:
        if name in rows.columns and (name != "place" or needs_places):
            unknown[name] = f"{name} IS NULL"
    unknown["time"] = "no_time" if has_bad_times else "local_s IS NULL OR utc_s IS NULL"
    return unknown


def _sentinels(rows: Rows) -> str:
    """SQL of more rows whose position is not known, which begins with OR; empty if there are none."""
    exact = {point: f"(latitude = {point[0]} AND longitude = {point[1]})" for point in ON_GLOBE}
    near = [f"abs(latitude - {north}) < 1 AND abs(longitude - {east}) < 1" for north, east in ON_GLOBE]
    off = {name: f"(abs({name}) > {limit} AND abs({name}) < {MAX_SENTINEL})" for name, limit in LIMITS.items()}
    counts = [*exact.values(), *near, " OR ".join(off.values())]
    n_rows, *found = rows.one(
        f"SELECT count(*) FILTER (longitude IS NOT NULL), "
        f"{', '.join(f'count(*) FILTER ({each})' for each in counts)} FROM every_row WHERE latitude IS NOT NULL"
    )
    n_exact, n_near, n_off = found[: len(exact)], found[len(exact) : -1], found[-1]
    conditions = [
        where
        for where, n, n_around in zip(exact.values(), n_exact, n_near, strict=True)
        if n_around < 2 * n < 2 * n_rows
    ]
    if n_off:
        for name in LIMITS:
            values = ", ".join(map(str, (*OFF_GLOBE[name], *NINES, *(-each for each in NINES))))
            conditions.append(f"({name} IN ({values}))")
        # Any other point that is off the globe in both directions, if it is repeated exactly.
        both = f"{off['latitude']} AND {off['longitude']}"
        query = f"SELECT latitude, longitude FROM every_row WHERE {both} GROUP BY ALL HAVING count(*) > 1"
        if 2 * n_off <= n_rows:
            conditions.append(f"((latitude, longitude) IN ({query}))")
    return "".join(f" OR {each}" for each in conditions)


def bad_rows(rows: Rows, untimed: Sequence[Problem]) -> tuple[list[tuple[Problem, str]], list[Finding]]:
    """Each kind of rows of `timed` that are no check-ins: the problem with them, and the SQL that finds them.

    These have a time or coordinates that cannot be read, are not on the globe, or are years away from all others.
    `untimed` are the problems that the reader found in rows without a time.
    """
    no_time, timed = "local_s IS NULL OR utc_s IS NULL", {"table": "timed"}
    finite = {name: f"({name} IS NOT NULL AND isfinite({name}))" for name in LIMITS}
    off = {name: f"{finite[name]} AND abs({name}) > {limit}" for name, limit in LIMITS.items()}
    found: list[tuple[Problem, str]] = []
    # Most tables have no bad row. One pass finds this; otherwise, each kind of problem takes a pass.
    kinds = [no_time, *(f"NOT {each}" for each in finite.values()), *off.values()]
    is_any = rows.one(f"SELECT bool_or({' OR '.join(f'({each})' for each in kinds)}) FROM timed")[0]
    if is_any or untimed:
        missing = [] if untimed else rows.problem(no_time, "a time for every check-in", "missing times", **timed)
        found += [(each, no_time) for each in (*untimed, *missing)]
    for name, limit in LIMITS.items() if is_any else ():
        others = rows.problem(f"NOT {finite[name]}", f"{name} as a number", values=name, **timed)
        found += [(problem, f"NOT {finite[name]}") for problem in others]
        way_out = _way_back(name, rows.one(f"SELECT max(abs({name})) FROM timed WHERE {off[name]}")[0] or 0.0)
        others = rows.problem(off[name], f"{name} from {-limit} to {limit} degrees", way_out=way_out, **timed)
        found += [(problem, off[name]) for problem in others]
    strays, notes = _stray_times(rows, f"NOT ({no_time})")
    return found + strays, notes


def _way_back(name: str, largest: float) -> str:
    """What coordinates off the globe may be."""
    for factor in (10**6, 10**7):
        if factor < largest <= LIMITS[name] * factor:
            return f"They look like degrees times {factor:,}: divide them by that"
    if largest > 1000:
        return "They look like metres of a map projection: convert them to degrees (EPSG:4326)"
    return "Latitude and longitude are probably swapped" if name == "latitude" and 90 < largest <= 180 else ""


def _groups_of_days(rows: Rows, seconds: str, table: str, known: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The days with rows since 1970, their number of rows, and the number of each day's group; years lie between."""
    query = f"SELECT {floored(seconds, DAY_S)}, count(*) FROM {table} WHERE {known} GROUP BY 1 ORDER BY 1"
    days, n_rows = np.array(rows.connection.execute(query).fetchall(), np.int64).reshape(-1, 2).T
    return days, n_rows, np.cumsum(np.diff(days, prepend=days[:1]) > MAX_EMPTY_DAYS)


def put_right_rollover(rows: Rows, wall: str) -> tuple[str, list[Finding]]:
    """SQL of wall-clock times, with those put right that a GPS receiver dated 1,024 or 2,048 weeks too early.

    These are fewer than a quarter of the rows, years before the others, and among them after that many weeks.
    """
    days, n_rows, group = _groups_of_days(rows, wall, "clocked", f"({wall}) IS NOT NULL")
    in_group = np.bincount(group, weights=n_rows)
    if len(in_group) < 2:
        return wall, []
    main = days[group == in_group.argmax()]
    cases, n_early, weeks = "", 0, []
    for number in np.flatnonzero(in_group <= MAX_ROLLOVER_SHARE * in_group.sum()):
        early = days[group == number]
        for k in range(1, MAX_ROLLOVERS + 1):
            # A day more at both ends: the rows of few devices may begin before or end after all others.
            is_within = main[0] - 1 <= early[0] + k * ROLLOVER_DAYS and early[-1] + k * ROLLOVER_DAYS <= main[-1] + 1
            if is_within and main[-1] - main[0] <= MAX_EMPTY_DAYS:
                begin, end, later = early[0] * DAY_S, (early[-1] + 1) * DAY_S, k * ROLLOVER_DAYS * DAY_S
                cases += f"WHEN ({wall}) >= {begin} AND ({wall}) < {end} THEN ({wall}) + {later} "
                n_early += int(in_group[number])
                weeks.append(f"{k * ROLLOVER_DAYS // 7:,}")
    if not cases:
        return wall, []
    text = (
        f"{n_early:,} times are {' or '.join(weeks)} weeks before the others, as of a GPS receiver that counts weeks "
        "anew: these weeks are added"
    )
    return f"CASE {cases}ELSE ({wall}) END", [Finding(text, code="gps-rollover", n_rows=n_early)]


def rounded_times(rows: Rows, seconds: str) -> list[Finding]:
    """A note if counts since 1970 lost digits, such as 1.709537e+09, which is known to 1,000 s only."""
    checks = ", ".join(f"bool_and(({seconds}) % {step} = 0)" for step in (60, *ROUNDED_S))
    n_times, n_rows, whole_minutes, *is_step = rows.one(
        f"SELECT count(DISTINCT {seconds}), count({seconds}), {checks} FROM raw"
    )
    steps = [step for step, holds in zip(ROUNDED_S, is_step, strict=True) if holds]
    if whole_minutes or not steps or n_times < MIN_ROUNDED_TIMES:
        return []
    text = f"times lost digits: all {n_rows:,} are multiples of {steps[0]:,} s. Export the column as whole numbers"
    return [Finding(text, code="rounded-times", n_rows=n_rows)]


def _stray_times(rows: Rows, known: str) -> tuple[list[tuple[Problem, str]], list[Finding]]:
    """A few rows years away from the others: their dates are wrong, and would stretch the time grid over the years.

    If they are more than a few, they are only noted.
    """
    days, n_rows, group = _groups_of_days(rows, "local_s", "timed", known)
    if not len(group) or not group[-1]:
        return [], []
    in_group = np.bincount(group, weights=n_rows)
    most = days[group == in_group.argmax()]
    n_stray = int(in_group.sum() - in_group.max())
    span = " to ".join(most[[0, -1]].astype("datetime64[D]").astype(str))
    if n_stray > max(1, STRAY_SHARE * in_group.sum()) or n_stray >= in_group.max():
        text = f"{n_stray:,} rows are years away from the others, {span}: the time grid spans the years between"
        return [], [Finding(text, code="years-between", n_rows=n_stray)]
    stray = f"{known} AND (local_s < {most[0] * DAY_S} OR local_s >= {(most[-1] + 1) * DAY_S})"
    first = f"SELECT row, local_s FROM timed WHERE {stray} ORDER BY row LIMIT {N_EXAMPLES}"
    times = rows.connection.execute(first).fetchall()
    examples = tuple(f"{np.datetime64(seconds, 's')} ({rows.name_of(row)})" for row, seconds in times)
    way_out = Message("Correct them, or leave them out with ", Setting("drop_bad_rows", True))
    expected = f"times near those of the other rows, {span}"
    return [(Problem(expected, "a few years away", n_stray, examples, way_out, "stray-times"), stray)], []
