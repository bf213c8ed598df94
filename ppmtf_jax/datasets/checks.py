"""Judgements on the rows of a table: what is unknown, what was lost, and what is mixed up, swapped or years away.

Each judgement is a finding, which the report shows, or a problem, which refuses the table. No message has a position:
it would be that of a person.
"""

from __future__ import annotations

import importlib.util
import re
import zoneinfo
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from ppmtf_jax.data.places import EARTH_RADIUS_KM, PlaceTable
from ppmtf_jax.data.time_grid import DAY_S, zone_problems
from ppmtf_jax.datasets.database import IS_BEGINNING, floored
from ppmtf_jax.datasets.ids import ID_NAMES, CheckIns, keep_used, values_of
from ppmtf_jax.datasets.parts import Rows
from ppmtf_jax.datasets.places import OUTSIDE, Assigned, GridPlaces, MostVisited, PlaceChoice
from ppmtf_jax.errors import N_EXAMPLES, Finding, InputError, Message, Problem, Setting, quoted, raise_any

LIMITS = {"latitude": 90, "longitude": 180}
STRAY_SHARE = 0.01
# The clock of a GPS receiver counts weeks up to 1,024 and then begins anew.
MAX_EMPTY_DAYS, ROLLOVER_DAYS, MAX_ROLLOVERS, MAX_ROLLOVER_SHARE = 5 * 365, 7168, 2, 0.25
# Steps in seconds of times that were rounded as numbers, and not to minutes; 128 s is the step of 32-bit numbers.
ROUNDED_S, MIN_ROUNDED_TIMES = (10**6, 10**5, 10**4, 1000, 128, 100), 5
# Positions that mean "unknown". On the globe, all in the sea: the pair means it if more rows are at exactly this point
# than near it. Off the globe: of AIS, and numbers of nines.
ON_GLOBE = ((0, 0), (-1, -1), (90, 180), (-90, -180))
NINES = (999, 9999, 99999, 999999, -999, -9999, -99999, -999999)
OFF_GLOBE = {"latitude": (91, *NINES), "longitude": (181, *NINES)}
MAX_SENTINEL = 10**6
# Legal clocks are within about three hours of solar time, as in the far west of China; other zones differ more.
MAX_SUN_H = 4
MAX_SCATTER_DEGREES, MAX_FAR_SHARE = 0.5, 0.25
DEGREE_KM = float(np.radians(EARTH_RADIUS_KM))
# Further from the middle of its place, a check-in is at another place, or its position is wrong.
APART_KM = 2
# Coordinates are suspected if they are over NEAR_ZONE_KM from the city of their time zone, and another way to read them
# gives a point over TIMES_NEARER times nearer.
NEAR_ZONE_KM, TIMES_NEARER = 1000, 3
ROWS_OF_MIDDLE = 1_000_000
# Tables of the time zone database; a line has countries, latitude and longitude as +-DDMM[SS]+-DDDMM[SS], and a name.
ZONE_TABLES = ("zone.tab", "zone1970.tab")
ZONE_LINE = re.compile(r"^[A-Z,]+\t([+-]\d{4,7})([+-]\d{5,7})\t(\S+)", re.MULTILINE)


class Findings(NamedTuple):
    """What a reader found: problems of the whole table, notes for the report, and problems of bad rows.

    `skipped` are problems of rows that are not in the table, since they could not be split into fields; `untimed` are
    problems of its rows without a time. They are raised together with the problems that the check of the rows finds.
    """

    problems: Sequence[Problem] = ()
    notes: Sequence[str] = ()
    skipped: Sequence[Problem] = ()
    untimed: Sequence[Problem] = ()


def code_checkins(
    rows: Rows,
    time_zone: str,
    subject: str,
    findings: Findings,
    needs_places: bool,
    drop_bad_rows: bool = False,
    as_table: bool = False,
    are_visits: bool = False,
) -> CheckIns:
    """Check the rows of the view `every_row`; all problems are one `InputError`, see `discretize`.

    `as_table`: make `checkins` a table, because the caller will change it. Otherwise it may be a view.
    """
    problems = list(dict.fromkeys([*findings.problems, *zone_problems(time_zone)]))
    is_counted = IS_BEGINNING if are_visits else "true"
    (n_read,) = rows.one(f"SELECT count(*) FROM every_row WHERE {is_counted}")
    if not n_read:
        raise InputError(subject, [*findings.skipped, *problems, Problem("at least one check-in", "none")])
    # Rows whose position, user, place or time the writer did not know; each counts once. Where some times cannot be
    # read, `no_time` tells the rows apart in which nothing is written.
    unknown = {"position": f"latitude IS NULL OR longitude IS NULL{_sentinels(rows)}"}
    for name in ID_NAMES:
        if name in rows.columns and (name != "place" or needs_places):
            unknown[name] = f"{name} IS NULL"
    unknown["time"] = "no_time" if findings.untimed else "local_s IS NULL OR utc_s IS NULL"
    cases = " ".join(f"WHEN {where} THEN {k}" for k, where in enumerate(unknown.values()))
    kinds = f"SELECT CASE {cases} END AS kind FROM every_row WHERE {is_counted}"
    query = f"SELECT kind, count(*) FROM ({kinds}) WHERE kind >= 0 GROUP BY 1"
    counts = dict(rows.connection.execute(query).fetchall())
    n_without = {name: counts[k] for k, name in enumerate(unknown) if k in counts}
    known = " AND ".join(f"NOT coalesce({where}, false)" for where in unknown.values())
    known = known if n_without or are_visits else "true"
    rows.connection.execute(f"CREATE OR REPLACE VIEW timed AS SELECT * FROM every_row WHERE {known}")
    bad_kinds, notes = _bad_rows(rows, findings.untimed)
    of_rows, n_bad = [problem for problem, _ in bad_kinds], 0
    n_rows = n_read + sum(problem.n_rows for problem in findings.skipped)
    bad = " OR ".join(["false", *(f"({where})" for _, where in bad_kinds)])
    if drop_bad_rows:
        n_bad = rows.one(f"SELECT count(*) FROM timed WHERE ({bad}) AND {is_counted}")[0] + n_rows - n_read
        left_out = [replace(problem, way_out="") for problem in (*findings.skipped, *of_rows)]
        notes += [Finding(f"bad rows left out: {each}", code=each.code, n_rows=each.n_rows) for each in left_out]
    else:
        problems = [*findings.skipped, *problems, *of_rows]
    n_lost = n_bad + sum(n_without.values())
    if n_lost > n_rows / 2:
        lacking = "".join(f", {n:,} without a {name}" for name, n in n_without.items())
        way_out = "Check the columns and the format of the times: the table is probably read in a wrong way"
        most = Problem("bad rows to be a few", f"{n_lost:,} of {n_rows:,}{lacking}", way_out=way_out, code="few-rows")
        raise InputError(subject, [*(() if problems else (*findings.skipped, *of_rows)), *problems, most])
    if needs_places and "place" not in rows.columns:
        expected = "a place for every check-in, to find the most visited"
        way_out = Message("Name the column of the places, or choose a grid with ", Setting("grid"))
        problems.append(Problem(expected, "no place column", way_out=way_out))
    mixed = {name: problem for part in rows.parts for name, problem in part.mixed.items()}
    problems += [mixed[name] for name in ID_NAMES if name in mixed]
    raise_any(subject, problems)
    names = [name for name in (*ID_NAMES, "category") if name in rows.columns and (needs_places or name != "category")]
    columns = [f"coalesce({name}, -1) AS {name}" if name in names else f"-1 AS {name}" for name in ID_NAMES]
    columns += ["coalesce(category, -1) AS category"] if "category" in names else []
    columns += ["latitude", "longitude", "local_s", "utc_s", *(["duration_s"] if "duration_s" in rows.columns else [])]
    is_whole = not bad_kinds and not n_without
    rows.connection.execute(
        f"CREATE OR REPLACE {'VIEW' if is_whole and not as_table else 'TABLE'} checkins AS "
        f"SELECT row, {', '.join(columns)} FROM timed WHERE NOT ({bad})"
    )
    for name in () if is_whole else names:
        keep_used(rows, name, "checkins")
    ids = {name: values_of(rows, name) if name in names else np.zeros(0, object) for name in (*ID_NAMES, "category")}
    same, least, most = rows.one("SELECT bool_and(latitude = longitude), min(latitude), max(latitude) FROM checkins")
    if same and least < most:
        problems.append(Problem("latitude and longitude", "the same numbers in both", n_read))
    problems += _backward_times(rows, ids, is_counted) if "trace" in rows.columns else []
    raise_any(subject, problems)
    return CheckIns(rows, ids, n_rows, n_bad, n_without, notes)


def _sentinels(rows: Rows) -> str:
    """SQL of more rows whose position is not known, which begins with OR; empty if there are none."""
    exact = [f"(latitude = {north} AND longitude = {east})" for north, east in ON_GLOBE]
    near = [f"abs(latitude - {north}) < 1 AND abs(longitude - {east}) < 1" for north, east in ON_GLOBE]
    off = {name: f"(abs({name}) > {limit} AND abs({name}) < {MAX_SENTINEL})" for name, limit in LIMITS.items()}
    counts = ", ".join(f"count(*) FILTER ({each})" for each in (*exact, *near, " OR ".join(off.values())))
    n_rows, *found, n_off = rows.one(
        f"SELECT count(*) FILTER (longitude IS NOT NULL), {counts} FROM every_row WHERE latitude IS NOT NULL"
    )
    pairs = zip(exact, found, found[len(exact) :], strict=False)
    conditions = [where for where, n, n_around in pairs if n_around < 2 * n < 2 * n_rows]
    if n_off:
        conditions += [f"({name} IN ({', '.join(map(str, values))}))" for name, values in OFF_GLOBE.items()]
        # Any other point that is off the globe in both directions, if it is repeated exactly.
        both = f"{off['latitude']} AND {off['longitude']}"
        query = f"SELECT latitude, longitude FROM every_row WHERE {both} GROUP BY ALL HAVING count(*) > 1"
        conditions += [f"((latitude, longitude) IN ({query}))"] if 2 * n_off <= n_rows else []
    return "".join(f" OR {each}" for each in conditions)


def _bad_rows(rows: Rows, untimed: Sequence[Problem]) -> tuple[list[tuple[Problem, str]], list[Finding]]:
    """Each kind of rows of `timed` that are no check-ins: the problem with them, and the SQL that finds them.

    These have a time or coordinates that cannot be read, are not on the globe, or are years away from all others.
    `untimed` are the problems that the reader found in rows without a time.
    """
    no_time = "local_s IS NULL OR utc_s IS NULL"
    finite = {name: f"({name} IS NOT NULL AND isfinite({name}))" for name in LIMITS}
    off = {name: f"{finite[name]} AND abs({name}) > {limit}" for name, limit in LIMITS.items()}
    found: list[tuple[Problem, str]] = []
    # Most tables have no bad row. One pass finds this; otherwise, each kind of problem takes a pass.
    kinds = [no_time, *(f"NOT {each}" for each in finite.values()), *off.values()]
    is_any = rows.one(f"SELECT bool_or({' OR '.join(f'({each})' for each in kinds)}) FROM timed")[0]
    if is_any or untimed:
        missing = untimed or rows.problem(no_time, "a time for every check-in", "missing times", table="timed")
        found += [(each, no_time) for each in missing]
    for name, limit in LIMITS.items() if is_any else ():
        others = rows.problem(f"NOT {finite[name]}", f"{name} as a number", values=name, table="timed")
        found += [(problem, f"NOT {finite[name]}") for problem in others]
        way_out = _way_back(name, rows.one(f"SELECT max(abs({name})) FROM timed WHERE {off[name]}")[0] or 0.0)
        expected = f"{name} from {-limit} to {limit} degrees"
        found += [(each, off[name]) for each in rows.problem(off[name], expected, way_out=way_out, table="timed")]
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
    """The days with rows since 1970, the number of each day's group, and the rows of each; years lie between groups."""
    query = f"SELECT {floored(seconds, DAY_S)}, count(*) FROM {table} WHERE {known} GROUP BY 1 ORDER BY 1"
    days, n_rows = np.array(rows.connection.execute(query).fetchall(), np.int64).reshape(-1, 2).T
    group = np.cumsum(np.diff(days, prepend=days[:1]) > MAX_EMPTY_DAYS)
    return days, group, np.bincount(group, weights=n_rows)


def put_right_rollover(rows: Rows, wall: str) -> tuple[str, list[Finding]]:
    """SQL of wall-clock times, with those put right that a GPS receiver dated 1,024 or 2,048 weeks too early.

    These are fewer than a quarter of the rows, years before the others, and among them after that many weeks.
    """
    days, group, in_group = _groups_of_days(rows, wall, "clocked", f"({wall}) IS NOT NULL")
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
    days, group, in_group = _groups_of_days(rows, "local_s", "timed", known)
    if len(in_group) < 2:
        return [], []
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


def _backward_times(rows: Rows, ids: dict[str, np.ndarray], is_counted: str) -> list[Problem]:
    """A problem if time decreases from one row of a given trace to the next row."""
    trace = "OVER (PARTITION BY user, trace ORDER BY row)"
    before = f"SELECT *, lag(utc_s) {trace} AS utc_before, lag(local_s) {trace} AS local_before FROM checkins"
    back = f"FROM ({before} WHERE {is_counted}) WHERE utc_s < utc_before"
    n_back = rows.one(f"SELECT count(*) {back}")[0]
    if not n_back:
        return []
    first = f"SELECT row, user, trace, local_s, local_before {back} ORDER BY user, trace, row LIMIT {N_EXAMPLES}"
    examples = []
    for row, user, trace_code, *times in rows.connection.execute(first).fetchall():
        who = f"user {quoted(ids['user'][user])}, trace {quoted(ids['trace'][trace_code])}"
        now, earlier = (np.datetime64(seconds, "s") for seconds in times)
        examples.append(f"{rows.name_of(row)} ({who}): {now} after {earlier}")
    way_out = "Sort the rows by user, trace and time; or leave the trace column out, then any order will do"
    expected = "times that do not decrease within a trace"
    return [Problem(expected, "time going backwards", n_back, tuple(examples), way_out)]


# Where the check-ins are


def suspicions(
    checkins: CheckIns, choice: PlaceChoice, assigned: Assigned, time_zone: str, subject: str
) -> list[Finding]:
    """Notes on coordinates of coded check-ins that look odd; an `InputError` where they look wrong."""
    if isinstance(choice, GridPlaces):
        raise_any(subject, _off_grid(checkins.rows, choice, int(assigned.n_left_out[OUTSIDE])))
    found = _clocks_and_sun(checkins.rows, time_zone)
    if isinstance(choice, MostVisited):
        found += _scattered_places(checkins.rows, assigned.places)
    raise_any(subject, [each for each in found if isinstance(each, Problem)])
    return [each for each in found if isinstance(each, Finding)]


def _off_grid(rows: Rows, grid: GridPlaces, n_outside: int) -> list[Problem]:
    """A problem where no check-in is within the box, or most would be if latitude and longitude were swapped."""
    n_rows, north, east = rows.one("SELECT count(*), median(latitude), median(longitude) FROM checkins")
    n_inside = n_rows - n_outside
    swapped = "SELECT longitude AS latitude, latitude AS longitude FROM checkins"
    count = f"SELECT count(*) FROM ({swapped}) WHERE {grid.cell()} >= 0"
    n_if_swapped = 0 if 2 * n_inside > n_rows else rows.one(count)[0]
    if n_inside and n_if_swapped <= max(n_rows / 2, n_inside):
        return []
    away_km = _distance_km((north, east), ((grid.south + grid.north) / 2, (grid.west + grid.east) / 2))
    found = f"{n_inside:,} within; the middle of all is {away_km:,.0f} km from that of the box"
    way_out, code = "Choose a box that holds the check-ins", "off-grid"
    if n_if_swapped:
        way_out, code = "Latitude and longitude are probably swapped", "swapped"
    return [Problem("check-ins within the bounding box", found, n_rows - n_inside, way_out=way_out, code=code)]


def _clocks_and_sun(rows: Rows, time_zone: str) -> list[Problem | Finding]:
    """Check-ins that do not fit their time zone, or have coordinates swapped or in radians: a problem or a note."""
    rows.connection.execute(
        "CREATE OR REPLACE VIEW own AS SELECT coded_places.* REPLACE (goes.place AS place) "
        "FROM coded_places JOIN goes ON goes.code = coded_places.place WHERE why = 0"
    )
    by_sun = "abs(fmod((local_s - utc_s) / 3600 - {} / 15 + 36, 24) - 12) <= " + str(MAX_SUN_H)
    n_rows, n_far, n_by_latitude, is_off_utc, north, east = rows.one(
        f"SELECT count(*), count(*) FILTER (NOT {by_sun.format('longitude')}), "
        f"count(*) FILTER ({by_sun.format('latitude')}), "
        "bool_or(local_s <> utc_s), max(abs(latitude)), max(abs(longitude)) FROM own"
    )
    if not n_rows:
        return []
    city = _cities().get(time_zone)  # None if it is not known, as for UTC
    # Every k-th row will do for the middle.
    few = f"row % {max(1, n_rows // ROWS_OF_MIDDLE)} = 0" if n_rows > ROWS_OF_MIDDLE else "true"
    middle = rows.one(f"SELECT median(latitude), median(longitude) FROM own WHERE {few}")
    if max(north, east) > 0 and north <= np.pi / 2 and east <= np.pi:
        # This box lies in the Gulf of Guinea. It has no land, but ships, and simulated cities of small coordinates.
        converted = float(np.degrees(middle[0])), float(np.degrees(middle[1]))
        if city is None or any(_is_far_nearer(point, middle, city) for point in (converted, converted[::-1])):
            found = "numbers of radians, at most half of pi and pi, where there is no land"
            way_out = Message(
                "Convert radians to degrees; if they are degrees, choose a zone that is near, such as ",
                Setting("time_zone", "Africa/Accra"),
                ", whose clocks show UTC",
            )
            return [Problem("latitude and longitude in degrees", found, n_rows, way_out=way_out, code="radians")]
    way_out = "Latitude and longitude are probably swapped, or the times are of another zone"
    if n_far > n_rows / 2 and is_off_utc and n_by_latitude > n_rows / 2:
        found = "longitudes where it is another time of day, and latitudes that fit"
        expected = f"longitudes that fit the clocks of {time_zone}"
        return [Problem(expected, found, n_far, way_out=way_out, code="swapped")]
    if city is not None and _is_far_nearer(middle[::-1], middle, city):
        given_km, swapped_km = (_distance_km(point, city) for point in (middle, middle[::-1]))
        found = f"their middle {given_km:,.0f} km away, {swapped_km:,.0f} if swapped"
        return [Problem(f"check-ins near {time_zone}", found, n_rows, way_out=way_out, code="swapped")]
    if not n_far:
        return []
    what = f"{n_far:,} of {n_rows:,} check-ins are where the sun is over {MAX_SUN_H} h off the clocks of {time_zone}"
    text = f"{what}: they are in other time zones, where night falls in other slots"
    return [Finding(text, code="other-zones", n_rows=n_far)]


def _scattered_places(rows: Rows, places: PlaceTable) -> list[Problem | Finding]:
    """Places whose check-ins are far from their middle: a problem if many check-ins are very far, else a note."""
    middles = {"goes_to": np.arange(len(places)), "north": places.latitude, "east": places.longitude}
    rows.connection.register("middles", pd.DataFrame(middles))
    # `spots` are the distinct positions at each place, with the number of their check-ins.
    away = "sqrt(pow(latitude - north, 2) + pow((fmod(longitude - east + 540, 360) - 180) * cos(radians(latitude)), 2))"
    several = rows.connection.sql(
        f"SELECT goes_to, sum(n)::BIGINT AS n, max({away}) AS furthest, "
        f"coalesce(sum(n) FILTER ({away} > {MAX_SCATTER_DEGREES}), 0)::BIGINT AS n_scattered, "
        f"coalesce(sum(n) FILTER ({away} > {APART_KM / DEGREE_KM}), 0)::BIGINT AS n_apart "
        "FROM spots JOIN goes ON goes.code = spots.place AND why = 0 JOIN middles ON goes.place = goes_to "
        "GROUP BY goes_to HAVING sum(n) > 1 ORDER BY goes_to"
    ).df()
    apart, scattered = several[several["n_apart"] > 0], several[several["n_scattered"] > 0]
    if not len(apart):
        return []
    n_scattered = int(several["n_scattered"].sum())
    # The share of check-ins decides, not of places: with many check-ins, every place has some at a wrong position.
    if n_scattered <= MAX_FAR_SHARE * several["n"].sum():
        n_apart, furthest_km = int(apart["n_apart"].sum()), apart["furthest"].max() * DEGREE_KM
        text = (
            f"{len(apart):,} of {len(several):,} places have check-ins more than {APART_KM} km from their middle: "
            f"{n_apart:,} check-ins, up to {furthest_km:,.0f} km. Each place is put at its middle; if an id was used "
            "again for another place, give that one another id"
        )
        return [Finding(text, code="places-apart", n_rows=n_apart)]
    furthest = scattered[:N_EXAMPLES].itertuples()
    examples = tuple(f"{quoted(places.ids[each.goes_to])}, {each.furthest * DEGREE_KM:,.0f} km" for each in furthest)
    found = f"{len(scattered):,} of {len(several):,} places of several check-ins scattered further"
    expected = f"check-ins within {MAX_SCATTER_DEGREES} degrees of the middle of their place"
    way_out = Message(
        "Check that it is a column of places, and that the coordinates are those of the check-ins. If the places "
        "are large regions, give each its coordinates in a table, with ",
        Setting("stations", "regions.csv"),
        ", or use the cells of a grid, with ",
        Setting("grid"),
    )
    return [Problem(expected, found, n_scattered, examples, way_out, "scattered-places")]


@cache
def _cities() -> dict[str, tuple[float, float]]:
    """Latitude and longitude of the city of each time zone, in degrees."""

    def degrees(text: str, n_digits: int) -> float:
        whole, rest = text[1 : 1 + n_digits], text[1 + n_digits :].ljust(4, "0")
        value = int(whole) + int(rest[:2]) / 60 + int(rest[2:]) / 3600
        return -value if text[0] == "-" else value

    folders = [Path(folder) for folder in zoneinfo.TZPATH]
    package = importlib.util.find_spec("tzdata")
    if package is not None and package.origin:
        folders.append(Path(package.origin).parent / "zoneinfo")
    files = [folder / name for folder in folders for name in ZONE_TABLES if (folder / name).is_file()]
    lines = [line for file in files for line in ZONE_LINE.findall(file.read_text("utf-8"))]
    return {name: (degrees(latitude, 2), degrees(longitude, 3)) for latitude, longitude, name in lines}


def _is_far_nearer(other: tuple[float, float], given: tuple[float, float], city: tuple[float, float]) -> bool:
    """Whether `given` is far from the time zone's city, and another reading of the point is much nearer."""
    given_km = _distance_km(given, city)
    return given_km > NEAR_ZONE_KM and TIMES_NEARER * _distance_km(other, city) < given_km


def _distance_km(point: tuple[float, float], other: tuple[float, float]) -> float:
    """Great-circle distance in kilometres; infinite if `point` is not on the globe."""
    if abs(point[0]) > 90:
        return np.inf
    north, east, south, west = np.radians([*point, *other])
    cosine = np.sin(north) * np.sin(south) + np.cos(north) * np.cos(south) * np.cos(east - west)
    return float(EARTH_RADIUS_KM * np.arccos(np.clip(cosine, -1, 1)))
