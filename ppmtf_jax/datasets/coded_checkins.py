"""A table of check-ins, checked once and coded once: what places, instants and traces are made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

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


class Coded(NamedTuple):
    """A column by code: row r has the value `ids[code[r]]`; -1 where the value is missing."""

    code: np.ndarray
    ids: np.ndarray

    def at(self, rows: np.ndarray) -> Coded:
        """Some of the rows, by index or mask."""
        return Coded(self.code[rows], self.ids)


class CheckIns(NamedTuple):
    """Check-ins without bad rows, as columns of one length.

    `local` is wall-clock time (datetime64[s]), `utc_s` true time in seconds since 1970. A table without a column of
    places or traces has the code -1 in every row.
    """

    user: Coded
    place: Coded
    trace: Coded
    category: Coded | None
    latitude: np.ndarray
    longitude: np.ndarray
    local: np.ndarray
    utc_s: np.ndarray

    @classmethod
    def of(
        cls,
        table: pd.DataFrame,
        time_zone: str,
        *,
        needs_places: bool = True,
        subject: str = "check-ins",
        findings: Findings = Findings(),
        drop_bad_rows: bool = False,
    ) -> tuple[CheckIns, int, list[str]]:
        """The good rows of a table, the number of bad rows that were left out, and a note on each kind of bad rows.

        Categories are coded only if places are needed. All problems are one `InputError`, see `discretize`.
        """
        problems = list(dict.fromkeys([*findings.problems, *zone_problems(time_zone)]))
        of_columns = missing_columns(table.columns, CHECKIN_COLUMNS)
        if not of_columns and not len(table):
            of_columns = [Problem("at least one check-in", "none")]
        if of_columns:
            raise InputError(subject, [*findings.skipped, *problems, *of_columns])
        bad, n_bad, notes = _bad_rows(table, findings.untimed), 0, []
        if drop_bad_rows:
            table, n_bad, notes = _without_bad_rows(table, bad, findings.skipped, subject)
        else:
            problems = [*findings.skipped, *problems, *(each.problem for each in bad)]
        rows_are_good = not problems
        if needs_places and "place" not in table:
            expected = "a place for every check-in, to find the most visited"
            way_out = Message("Name the column of the places, or choose a grid with ", Setting("grid"))
            problems.append(Problem(expected, "no place column", way_out=way_out))
        user, place, trace = (_coded(table, name, problems) for name in ("user", "place", "trace"))
        latitude = longitude = np.zeros(0)
        if rows_are_good and not problems:
            latitude, longitude = (pd.to_numeric(table[name]).to_numpy(np.float64) for name in LIMITS)
            problems += _same_numbers(latitude, longitude)
            problems += _backward_problems(table, user, trace) if "trace" in table else []
        if problems:
            raise InputError(subject, problems)
        category = Coded(*codes_of(table["category"])) if needs_places and "category" in table else None
        local, utc = (table[name].to_numpy("datetime64[s]") for name in ("local_time", "utc_time"))
        return cls(user, place, trace, category, latitude, longitude, local, utc.astype(np.int64)), n_bad, notes

    @property
    def n_rows(self) -> int:
        return len(self.utc_s)

    def at(self, rows: np.ndarray) -> CheckIns:
        """Some of the rows, by index or mask."""
        known = {name: column for name, column in self._asdict().items() if column is not None}
        return self._replace(
            **{k: each.at(rows) if isinstance(each, Coded) else each[rows] for k, each in known.items()}
        )

    def without_repeated(self) -> CheckIns:
        """Each row once."""
        known = {name: column for name, column in self._asdict().items() if column is not None}
        codes = {name: column.code if isinstance(column, Coded) else column for name, column in known.items()}
        return self.at(~pd.DataFrame(codes, copy=False).duplicated().to_numpy())


def _coded(table: pd.DataFrame, name: str, problems: list[Problem]) -> Coded:
    """A column of ids by code; adds a problem where ids are of several types, which have no order, or no ids."""
    nothing = Coded(np.broadcast_to(np.int32(-1), len(table)), np.zeros(0, object))
    if name not in table:
        return nothing
    column = table[name]
    try:
        coded = Coded(*codes_of(column))
    except TypeError:
        kind = type(column.iloc[0]).__name__
        problems.append(Problem(f"texts or numbers in '{name}'", f"values such as a {kind}"))
        return nothing
    kinds = {type(value).__name__: value for value in coded.ids} if coded.ids.dtype == object else {}
    if len(kinds) > 1:
        examples = ", ".join(f"{value!r} ({kind})" for kind, value in kinds.items())
        problems.append(Problem(f"ids of one type in '{name}'", f"several: {examples}"))
    return coded


def _backward_problems(table: pd.DataFrame, user: Coded, trace: Coded) -> list[Problem]:
    """Time that decreases from one row of a given trace to its next."""
    group = user.code.astype(np.int64) * len(trace.ids) + trace.code
    order = np.argsort(group, kind="stable")
    utc = table["utc_time"].to_numpy("datetime64[s]")[order]
    back = np.flatnonzero((np.diff(group[order]) == 0) & (np.diff(utc) < np.timedelta64(0, "s")))
    if not len(back):
        return []
    local = table["local_time"].to_numpy("datetime64[s]")
    before, after = order[back[:N_EXAMPLES]], order[back[:N_EXAMPLES] + 1]
    examples = []
    for name, earlier, row in zip(row_names(table["user"], after), before, after, strict=True):
        who = f"user {user.ids[user.code[row]]}, trace {trace.ids[trace.code[row]]}"
        examples.append(f"{name} ({who}): {local[row]} after {local[earlier]}")
    way_out = "Sort the rows by user, trace and time; or leave the trace column out, then any order will do"
    expected = "times that do not decrease within a trace"
    return [Problem(expected, "time going backwards", len(back), tuple(examples), way_out)]


class _BadRows(NamedTuple):
    """Rows that are no check-ins (bool array of shape (rows,)), and the problem with them."""

    problem: Problem
    rows: np.ndarray


def _bad_rows(checkins: pd.DataFrame, untimed: Sequence[Problem] = ()) -> list[_BadRows]:
    """Rows without a user, place, time or coordinates on the globe, or years away from all others.

    `untimed` are the problems that the reader found in rows without a time.
    """
    no_time = (checkins["local_time"].isna() | checkins["utc_time"].isna()).to_numpy(bool)
    missing = _missing(checkins["user"], no_time, "a time for every check-in", "missing times")
    found = [_BadRows(problem, no_time) for problem in untimed] if len(untimed) and missing else missing
    for name in ("user", "place", "trace"):
        if name in checkins:
            missing = checkins[name].isna().to_numpy(bool)
            found += _missing(checkins[name], missing, f"a {name} for every check-in", "missing ones")
    for name, limit in LIMITS.items():
        found += _off_the_globe(checkins[name], limit)
    return found + _stray_times(checkins["local_time"], ~no_time)


def _without_bad_rows(
    checkins: pd.DataFrame, found: Sequence[_BadRows], skipped: Sequence[Problem], subject: str
) -> tuple[pd.DataFrame, int, list[str]]:
    """The good rows, how many were left out, and a note on each kind of bad rows; an error if most rows are bad.

    `skipped` are problems of rows that are not in the table.
    """
    bad = np.any([each.rows for each in found], axis=0) if found else np.zeros(len(checkins), bool)
    n_skipped = sum(problem.n_rows for problem in skipped)
    n_rows, n_bad = len(checkins) + n_skipped, int(bad.sum()) + n_skipped
    problems = [*skipped, *(each.problem for each in found)]
    if n_bad > n_rows / 2:
        way_out = "Check the columns and the format of the times: the table is probably read in a wrong way"
        most = Problem("bad rows to be a few", f"{n_bad:,} of {n_rows:,}", way_out=way_out)
        raise InputError(subject, [*problems, most])
    notes = [f"bad rows left out: {replace(problem, way_out='')}" for problem in problems]
    return checkins[~bad] if bad.any() else checkins, n_bad, notes


def _same_numbers(latitude: np.ndarray, longitude: np.ndarray) -> list[Problem]:
    """A problem where latitude and longitude are the same numbers."""
    if not (latitude == longitude).all() or latitude.min() == latitude.max():
        return []
    return [Problem("latitude and longitude", "the same numbers in both", len(latitude))]


def _missing(column: pd.Series, missing: np.ndarray, expected: str, found: str) -> list[_BadRows]:
    rows = np.flatnonzero(missing)
    return [_BadRows(Problem(expected, found, len(rows), row_names(column, rows)), missing)] if len(rows) else []


def _off_the_globe(column: pd.Series, limit: int) -> list[_BadRows]:
    number = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    finite = np.isfinite(number)
    outside = finite & (np.abs(number) > limit)
    swapped = column.name == "latitude" and (np.abs(number[outside]) <= 180).all()
    way_out = "Latitude and longitude are probably swapped" if swapped else ""
    expected = f"{column.name} from {-limit} to {limit} degrees"
    no_number = row_problems(column, ~finite, f"{column.name} as a number")
    found = [_BadRows(problem, ~finite) for problem in no_number]
    off = row_problems(pd.Series(number, column.index), outside, expected, way_out=way_out)
    return found + [_BadRows(problem, outside) for problem in off]


def _stray_times(local: pd.Series, known: np.ndarray) -> list[_BadRows]:
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
    span = " to ".join(most[[0, -1]].astype("datetime64[D]").astype(str))
    way_out = Message("Correct them, or leave them out with ", Setting("drop_bad_rows", True))
    examples = tuple(
        f"{time} ({name})"
        for time, name in zip(
            local.to_numpy("datetime64[s]")[stray][:N_EXAMPLES], row_names(local, np.flatnonzero(stray)), strict=True
        )
    )
    problem = Problem(f"times near those of the other rows, {span}", "a few years away", n_stray, examples, way_out)
    return [_BadRows(problem, stray)]
