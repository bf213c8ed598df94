"""A checked and coded table of check-ins, from which places, instants and traces are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ppmtf_jax.data.time_grid import zone_problems
from ppmtf_jax.datasets.checks import ID_NAMES, bad_rows, unknown_rows
from ppmtf_jax.datasets.ids import Ids, keep_used, values_of
from ppmtf_jax.datasets.read import IS_BEGINNING, Rows
from ppmtf_jax.errors import N_EXAMPLES, Finding, InputError, Message, Problem, Setting, quoted, raise_any


class Findings(NamedTuple):
    """What a reader found: problems of the whole table, notes for the report, and problems of bad rows.

    `skipped` are problems of rows that are not in the table, since they could not be split into fields; `untimed` are
    problems of its rows without a time. They are raised together with the problems that the check of the rows finds.
    """

    problems: Sequence[Problem] = ()
    notes: Sequence[str] = ()
    skipped: Sequence[Problem] = ()
    untimed: Sequence[Problem] = ()


class CheckIns(NamedTuple):
    """Check-ins without bad rows, coded, as the table or view `checkins` of a database.

    It has the columns row, user, place, trace, category, latitude, longitude, local_s (wall-clock time) and utc_s
    (true time). The times are in seconds since 1970. User, place, trace and category are codes in the order of the
    values that `ids` has. A code is -1 where the table has no such column, and where a category is missing. `n_bad` of
    `n_rows` rows were left out, and `n_without` counts others, which lack a position, user, place or time; `notes` has
    what else was found.
    """

    rows: Rows
    ids: dict[str, np.ndarray]
    n_rows: int
    n_bad: int
    n_without: dict[str, int]
    notes: list[str]


def code_rows(rows: Rows, ids: Ids, times: str, table: str = "raw") -> None:
    """Make `clocked` of `raw`, or of a table that begins with it: with codes in place of ids, and columns of times."""
    joins = "".join(f" LEFT JOIN {name}_ids ON {name}_ids.written = raw.{name}" for name in ids.names)
    columns = [f"{name}_ids.code AS {name}" for name in ids.names]
    columns += [name for name in ("latitude", "longitude", "duration_s", "has_no_station") if name in rows.columns]
    query = f"SELECT {', '.join(('row', *columns, times))} FROM {table}{joins}"
    rows.connection.execute(f"CREATE OR REPLACE TABLE clocked AS {query}")


def code_checkins(
    rows: Rows,
    time_zone: str,
    *,
    needs_places: bool,
    subject: str,
    findings: Findings,
    drop_bad_rows: bool,
    as_table: bool,
    are_visits: bool,
) -> CheckIns:
    """Check the rows of the view `every_row`; all problems are one `InputError`, see `discretize`.

    `as_table`: make `checkins` a table, because the caller will change it. Otherwise it may be a view.
    """
    problems = list(dict.fromkeys([*findings.problems, *zone_problems(time_zone)]))
    is_counted = IS_BEGINNING if are_visits else "true"
    (n_read,) = rows.one(f"SELECT count(*) FROM every_row WHERE {is_counted}")
    if not n_read:
        raise InputError(subject, [*findings.skipped, *problems, Problem("at least one check-in", "none")])
    unknown = unknown_rows(rows, needs_places, has_bad_times=bool(findings.untimed))
    n_without, known = _known_rows(rows, unknown, is_counted)
    rows.connection.execute(f"CREATE OR REPLACE VIEW timed AS SELECT * FROM every_row WHERE {known}")
    kinds, notes = bad_rows(rows, findings.untimed)
    of_rows, n_bad = [problem for problem, _ in kinds], 0
    n_rows = n_read + sum(problem.n_rows for problem in findings.skipped)
    bad = " OR ".join(["false", *(f"({where})" for _, where in kinds)])
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
    is_whole = not kinds and not n_without
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
    problems += _backward_problems(rows, ids, is_counted) if "trace" in rows.columns else []
    raise_any(subject, problems)
    return CheckIns(rows, ids, n_rows, n_bad, n_without, notes)


def _known_rows(rows: Rows, unknown: dict[str, str], is_counted: str) -> tuple[dict[str, int], str]:
    """How many rows lack what, each counted once, and SQL of the others."""
    names, conditions = list(unknown), list(unknown.values())
    cases = " ".join(f"WHEN {where} THEN {k}" for k, where in enumerate(conditions))
    kinds = f"SELECT CASE {cases} END AS kind FROM every_row WHERE {is_counted}"
    query = f"SELECT kind, count(*) FROM ({kinds}) WHERE kind >= 0 GROUP BY 1"
    found = dict(rows.connection.execute(query).fetchall())
    n_without = {names[kind]: found[kind] for kind in sorted(found)}
    is_known = " AND ".join(f"NOT coalesce({where}, false)" for where in conditions)
    return n_without, is_known if n_without or is_counted != "true" else "true"


def _backward_problems(rows: Rows, ids: dict[str, np.ndarray], is_counted: str) -> list[Problem]:
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
