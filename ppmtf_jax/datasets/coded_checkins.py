"""A checked and coded table of check-ins, from which places, instants and traces are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.time_grid import zone_problems
from ppmtf_jax.datasets.tables import codes_of, row_names, row_problems
from ppmtf_jax.errors import N_EXAMPLES, InputError, Message, Problem, Setting, missing_columns

CHECKIN_COLUMNS = ("user", "latitude", "longitude", "local_time", "utc_time")
MAX_EMPTY_DAYS = 5 * 365
STRAY_SHARE = 0.01
LIMITS = {"latitude": 90, "longitude": 180}


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
    """Check-ins without bad rows, coded.

    `rows` has the columns user, place and trace, which are codes (-1 in every row where the table has no such column),
    latitude, longitude, local (wall-clock time, datetime64[s]) and utc_s (true time in seconds since 1970); with
    category, where it is known and places are needed. `ids` has the value of each code, by column. `n_bad` rows were
    left out; the `notes` tell of each kind of them.
    """

    rows: pd.DataFrame
    ids: dict[str, np.ndarray]
    n_bad: int
    notes: list[str]


def code_checkins(
    table: pd.DataFrame,
    time_zone: str,
    *,
    needs_places: bool = True,
    subject: str = "check-ins",
    findings: Findings = Findings(),
    drop_bad_rows: bool = False,
) -> CheckIns:
    """Check and code the rows of a table; all problems are one `InputError`, see `discretize`."""
    problems = list(dict.fromkeys([*findings.problems, *zone_problems(time_zone)]))
    of_columns = missing_columns(table.columns, CHECKIN_COLUMNS)
    if not of_columns and not len(table):
        of_columns = [Problem("at least one check-in", "none")]
    if of_columns:
        raise InputError(subject, [*findings.skipped, *problems, *of_columns])
    kinds, n_bad, notes = _bad_rows(table, findings.untimed), 0, []
    of_rows = [problem for problem, _ in kinds]
    if drop_bad_rows:
        bad = np.any([np.zeros(len(table), bool), *(rows for _, rows in kinds)], axis=0)
        n_skipped = sum(problem.n_rows for problem in findings.skipped)
        n_rows, n_bad = len(table) + n_skipped, int(bad.sum()) + n_skipped
        if n_bad > n_rows / 2:
            way_out = "Check the columns and the format of the times: the table is probably read in a wrong way"
            most = Problem("bad rows to be a few", f"{n_bad:,} of {n_rows:,}", way_out=way_out)
            raise InputError(subject, [*findings.skipped, *of_rows, most])
        every = [*findings.skipped, *of_rows]
        notes = [f"bad rows left out: {replace(problem, way_out='')}" for problem in every]
        table = table[~bad] if bad.any() else table
    else:
        problems = [*findings.skipped, *problems, *of_rows]
    rows_are_good = not problems
    if needs_places and "place" not in table:
        expected = "a place for every check-in, to find the most visited"
        way_out = Message("Name the column of the places, or choose a grid with ", Setting("grid"))
        problems.append(Problem(expected, "no place column", way_out=way_out))
    columns, ids = {}, {}
    for name in ("user", "place", "trace"):
        columns[name], ids[name] = _coded(table, name, problems)
    if rows_are_good and not problems:
        columns |= {name: pd.to_numeric(table[name]).to_numpy(np.float64) for name in LIMITS}
        latitude, longitude = columns["latitude"], columns["longitude"]
        if (latitude == longitude).all() and latitude.min() < latitude.max():
            problems.append(Problem("latitude and longitude", "the same numbers in both", len(table)))
        problems += _backward_problems(table, columns, ids) if "trace" in table else []
    if problems:
        raise InputError(subject, problems)
    if needs_places and "category" in table:
        columns["category"], ids["category"] = codes_of(table["category"])
    local, utc = (table[name].to_numpy("datetime64[s]") for name in ("local_time", "utc_time"))
    rows = pd.DataFrame(columns | {"local": local, "utc_s": utc.astype(np.int64)}, copy=False)
    return CheckIns(rows, ids, n_bad, notes)


def _coded(table: pd.DataFrame, name: str, problems: list[Problem]) -> tuple[np.ndarray, np.ndarray]:
    """Codes and values of a column of ids; adds a problem if the ids have several types, which have no order."""
    nothing = np.full(len(table), -1, np.int32), np.zeros(0, object)
    if name not in table:
        return nothing
    try:
        codes, ids = codes_of(table[name])
    except TypeError:
        kind = type(table[name].iloc[0]).__name__
        problems.append(Problem(f"texts or numbers in '{name}'", f"values such as a {kind}"))
        return nothing
    kinds = {type(value).__name__: value for value in ids} if ids.dtype == object else {}
    if len(kinds) > 1:
        examples = ", ".join(f"{value!r} ({kind})" for kind, value in kinds.items())
        problems.append(Problem(f"ids of one type in '{name}'", f"several: {examples}"))
    return codes, ids


def _backward_problems(
    table: pd.DataFrame, codes: Mapping[str, np.ndarray], ids: Mapping[str, np.ndarray]
) -> list[Problem]:
    """A problem if time decreases from one row of a given trace to the next row."""
    user, trace = codes["user"], codes["trace"]
    order = np.lexsort((trace, user))
    utc = table["utc_time"].to_numpy("datetime64[s]")[order]
    back = np.flatnonzero(~run_begins(user[order], trace[order])[1:] & (np.diff(utc) < np.timedelta64(0, "s")))
    if not len(back):
        return []
    local = table["local_time"].to_numpy("datetime64[s]")
    before, after = order[back[:N_EXAMPLES]], order[back[:N_EXAMPLES] + 1]
    examples = []
    for name, earlier, row in zip(row_names(table["user"], after), before, after, strict=True):
        who = f"user {ids['user'][user[row]]}, trace {ids['trace'][trace[row]]}"
        examples.append(f"{name} ({who}): {local[row]} after {local[earlier]}")
    way_out = "Sort the rows by user, trace and time; or leave the trace column out, then any order will do"
    expected = "times that do not decrease within a trace"
    return [Problem(expected, "time going backwards", len(back), tuple(examples), way_out)]


def _bad_rows(checkins: pd.DataFrame, untimed: Sequence[Problem]) -> list[tuple[Problem, np.ndarray]]:
    """Each kind of rows that are no check-ins: the problem with them, and a mask of the rows.

    These have no user, place, time or coordinates on the globe, or are years away from all others. `untimed` are the
    problems that the reader found in rows without a time.
    """
    no_time = (checkins["local_time"].isna() | checkins["utc_time"].isna()).to_numpy(bool)
    ids = [name for name in ("user", "place", "trace") if name in checkins]
    found: list[tuple[Problem, np.ndarray]] = []
    for name, rows in [("time", no_time), *((name, checkins[name].isna().to_numpy(bool)) for name in ids)]:
        if rows.any():
            examples = row_names(checkins["user"], np.flatnonzero(rows))
            what = "missing times" if name == "time" else "missing ones"
            missing = Problem(f"a {name} for every check-in", what, int(rows.sum()), examples)
            found += [(problem, rows) for problem in (untimed if name == "time" and untimed else [missing])]
    for name, limit in LIMITS.items():
        column = checkins[name]
        number = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
        finite = np.isfinite(number)
        off = finite & (np.abs(number) > limit)
        is_swapped = name == "latitude" and (np.abs(number[off]) <= 180).all()
        way_out = "Latitude and longitude are probably swapped" if is_swapped else ""
        expected = f"{name} from {-limit} to {limit} degrees"
        found += [(problem, ~finite) for problem in row_problems(column, ~finite, f"{name} as a number")]
        off_globe = row_problems(pd.Series(number, column.index), off, expected, way_out=way_out)
        found += [(problem, off) for problem in off_globe]
    return found + _stray_times(checkins["local_time"], ~no_time)


def _stray_times(local: pd.Series, known: np.ndarray) -> list[tuple[Problem, np.ndarray]]:
    """A few rows years away from the others: their dates are wrong, and would stretch the time grid over the years."""
    day = local.to_numpy("datetime64[D]").astype(np.int64)
    days, n_rows = np.unique(day[known], return_counts=True)
    group = np.cumsum(np.diff(days, prepend=days[:1]) > MAX_EMPTY_DAYS)
    if not len(group) or not group[-1]:
        return []
    in_group = np.bincount(group, weights=n_rows)
    most = days[group == in_group.argmax()]
    n_stray = int(in_group.sum() - in_group.max())
    if n_stray > max(1, STRAY_SHARE * in_group.sum()) or n_stray >= in_group.max():
        return []
    stray = known & ((day < most[0]) | (day > most[-1]))
    first, span = np.flatnonzero(stray)[:N_EXAMPLES], " to ".join(most[[0, -1]].astype("datetime64[D]").astype(str))
    times = local.to_numpy("datetime64[s]")[first]
    examples = tuple(f"{time} ({name})" for time, name in zip(times, row_names(local, first), strict=True))
    way_out = Message("Correct them, or leave them out with ", Setting("drop_bad_rows", True))
    expected = f"times near those of the other rows, {span}"
    return [(Problem(expected, "a few years away", n_stray, examples, way_out), stray)]
