"""A table of check-ins, checked once and coded once: what places, instants and traces are made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from ppmtf_jax.data.time_grid import zone_problems
from ppmtf_jax.datasets.checks import bad_rows, degrees, twice_the_same, without_bad_rows
from ppmtf_jax.datasets.tables import codes_of, row_names
from ppmtf_jax.errors import N_EXAMPLES, InputError, Message, Problem, Setting, missing_columns

CHECKIN_COLUMNS = ("user", "latitude", "longitude", "local_time", "utc_time")


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
        bad, n_bad, notes = bad_rows(table, findings.untimed), 0, []
        if drop_bad_rows:
            table, n_bad, notes = without_bad_rows(table, bad, findings.skipped, subject)
        else:
            problems = [*findings.skipped, *problems, *(each.problem for each in bad)]
        rows_are_good = not problems
        if needs_places and "place" not in table:
            expected = "a place for every check-in, to find the most visited"
            way_out = Message("Name the column of the places, or choose a grid with ", Setting("grid"))
            problems.append(Problem(expected, "no place column", way_out=way_out))
        user, place, trace = (_coded(table, name, problems) for name in ("user", "place", "trace"))
        if rows_are_good and not problems:
            problems += twice_the_same(table)
            problems += _backward_problems(table, user, trace) if "trace" in table else []
        if problems:
            raise InputError(subject, problems)
        category = Coded(*codes_of(table["category"])) if needs_places and "category" in table else None
        local, utc = (table[name].to_numpy("datetime64[s]") for name in ("local_time", "utc_time"))
        return cls(user, place, trace, category, *degrees(table), local, utc.astype(np.int64)), n_bad, notes

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
