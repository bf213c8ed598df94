"""From a table of check-ins to traces: check and code the rows, assign places, then instants and traces."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from ppmtf_jax.data.time_grid import zone_problems
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checks import Findings, code_checkins, suspicions
from ppmtf_jax.datasets.database import Connection, database
from ppmtf_jax.datasets.discretize import Discretization, PlacedVisits, SpacedTraces, Visits
from ppmtf_jax.datasets.ids import code_rows, tidy_ids
from ppmtf_jax.datasets.parts import Rows
from ppmtf_jax.datasets.places import BEYOND, FEW, OUTSIDE, GivenPlaces, GridPlaces, assign_places, keep_shared_places
from ppmtf_jax.datasets.read import parts_of
from ppmtf_jax.datasets.stays import StayPoints, stays_as_checkins, visits_as_checkins
from ppmtf_jax.datasets.summary import ImportReport, counts_of
from ppmtf_jax.errors import InputError, Message, Problem, Setting, missing_columns

CHECKIN_COLUMNS = ("user", "latitude", "longitude", "local_time", "utc_time")
VISITS_AT_A_TIME = 2**18
MakesTraces = Discretization | SpacedTraces
"""How check-ins become traces: by the clock, or by their order."""


def discretize(
    checkins: pd.DataFrame,
    discretization: MakesTraces,
    *,
    time_zone: str,
    friendships: pd.DataFrame | None = None,
    subject: str = "check-ins",
    findings: Findings = Findings(),
    drop_repeated: bool = False,
    drop_bad_rows: bool = False,
    stay_points: StayPoints | None = None,
) -> tuple[Traces, ImportReport]:
    """Turn a table of raw check-ins, in any order, into traces.

    Raises `InputError`, which lists every problem of the table at once: no rows, missing ids or times, bad coordinates,
    no place column, time going backwards within a trace, a few times years away from all others; columns that seem
    mixed up; or nothing left after filtering.

    Parameters
    ----------
    checkins : DataFrame
        Columns user, latitude, longitude (degrees), local_time (naive datetime64, wall clock), utc_time (naive
        datetime64, for order and gaps), place (optional on a grid, and for given places if other check-ins go to the
        nearest place) and, optionally, category, and trace (rows of one trace are together and in time order; traces
        are numbered anew from 0 for each user).
    time_zone : str
        IANA name of the zone of local_time.
    friendships : DataFrame, optional
        Columns user, friend. Pairs with a user who has no event are dropped; the report says how many.
    subject : str
        What errors and the report call the data.
    findings : Findings
        What the reader found: problems, rows that it could not read, notes for the report.
    drop_repeated : bool
        Whether to drop rows that repeat another row entirely before visits are counted.
    drop_bad_rows : bool
        Whether to leave out bad rows, with a note on each kind, instead of raising an error.
    stay_points : StayPoints, optional
        Rows are GPS fixes: take the stays among them, each as a check-in at every step of the stay (for
        `SpacedTraces` one at the arrival).

    Examples
    --------
    >>> hours = pd.to_datetime(["2024-01-01T08:10", "2024-01-01T09:50", "2024-01-01T09:55"])
    >>> checkins = pd.DataFrame(
    ...     {
    ...         "user": "ann",
    ...         "place": ["home", "work", "cafe"],
    ...         "latitude": [35.6, 35.7, 35.7],
    ...         "longitude": 139.7,
    ...         "local_time": hours,
    ...         "utc_time": hours - pd.Timedelta(hours=9),
    ...     }
    ... )
    >>> all_places = Discretization(min_users_per_place=1)
    >>> traces, report = discretize(checkins, all_places, time_zone="Asia/Tokyo")
    >>> traces.to_frame()["instant"].tolist(), report.n_transitions, report.n_same_instant
    ([8, 9], 1, 1)
    """
    problems = missing_columns(checkins.columns, CHECKIN_COLUMNS)
    if not len(checkins) and not problems:
        problems = [Problem("at least one check-in", "none")]
    if problems:
        problems = [*dict.fromkeys([*findings.problems, *zone_problems(time_zone)]), *problems]
        raise InputError(subject, [*findings.skipped, *problems])
    with database() as connection:
        rows = rows_of_frame(connection, checkins, subject)
        options = friendships, drop_repeated, drop_bad_rows, stay_points
        return to_traces(rows, discretization, time_zone, subject, findings, *options)


def rows_of_frame(connection: Connection, checkins: pd.DataFrame, subject: str) -> Rows:
    """The rows of a DataFrame, with their local_time and utc_time as the view `every_row`."""
    names = [name for name in (*CHECKIN_COLUMNS, "place", "trace", "category") if name in checkins]
    rows = Rows(connection, parts_of(checkins, {name: name for name in names}, (), False, subject))
    seconds = (f"CAST(floor(epoch_us({name}_time) / 1000000) AS BIGINT) AS {name}_s" for name in ("local", "utc"))
    code_rows(rows, tidy_ids(rows, as_read=True), f"{', '.join(seconds)}, false AS no_time")
    connection.execute("CREATE OR REPLACE VIEW every_row AS SELECT * FROM clocked")
    return rows


def to_traces(
    rows: Rows,
    discretization: MakesTraces,
    time_zone: str,
    subject: str,
    findings: Findings,
    friendships: pd.DataFrame | None = None,
    drop_repeated: bool = False,
    drop_bad_rows: bool = False,
    stay_points: StayPoints | None = None,
    are_visits: bool = False,
) -> tuple[Traces, ImportReport]:
    """`discretize` of the view `every_row` of a database.

    With `are_visits`, each row has its beginning in it, and perhaps its end, as of `END_ROWS`, or a duration.
    """
    on_grid, given = (isinstance(discretization.places, kind) for kind in (GridPlaces, GivenPlaces))
    min_users, others = 1 if given else discretization.min_users_per_place, discretization.other_places
    needs_places = not (on_grid or (given and others == "nearest"))
    if stay_points is not None and needs_places:
        way_out = Message("Choose a grid with ", Setting("grid"))
        problem = Problem("a grid, since stay points have no place ids", "places with ids", way_out=way_out)
        findings = findings._replace(problems=[*findings.problems, problem])
    as_table = stay_points is not None or drop_repeated or are_visits
    how = needs_places, drop_bad_rows, as_table, are_visits
    coded = code_checkins(rows, time_zone, subject, findings, *how)
    user_ids, notes, connection = coded.ids["user"], [*findings.notes, *coded.notes], rows.connection
    repeat_s = discretization.step_s if isinstance(discretization, Discretization) else None
    if are_visits:
        notes.append(visits_as_checkins(connection, time_zone, repeat_s, subject))
    if stay_points is not None:
        notes.append(stays_as_checkins(connection, stay_points, time_zone, repeat_s, subject))
    n_duplicates = 0
    if drop_repeated:  # rows that repeat an earlier row entirely
        (n_before,) = rows.one("SELECT count(*) FROM checkins")
        first = "SELECT min(row) AS row, COLUMNS(* EXCLUDE (row)) FROM checkins GROUP BY ALL"
        connection.execute(f"CREATE OR REPLACE TABLE checkins AS {first}")
        n_duplicates = n_before - rows.one("SELECT count(*) FROM checkins")[0]
    assigned = assign_places(coded, discretization.places, min_users, others)
    notes += suspicions(coded, discretization.places, assigned, time_zone, subject)
    n_left_out, places = assigned.n_left_out.tolist(), assigned.places
    visits = _visits(connection, "trace" in rows.columns)
    events = discretization.events_of(visits, time_zone)
    notes += events.notes
    km, n_moved = assigned.moved_km
    if len(km):
        middle, furthest = np.median(np.repeat(km, n_moved)), km.max()
        km_text = f"by {middle:.2g} km in the median, by {furthest:.2g} km at most"
        notes.append(f"check-ins moved to the nearest place: {km_text}")
    if friendships is not None:
        known = friendships.isin(user_ids[np.unique(events.user)])[["user", "friend"]].all(axis=1)
        if not known.all():
            notes.append(f"{(~known).sum():,} of {len(known):,} friendship rows left out: a user has no event")
        friendships = friendships[known]
    indices = events.user, events.trace, events.instant, events.place
    traces = Traces.from_indices(*indices, user_ids, places, events.time_grid, friendships, subject=subject)
    n_before = traces.n_events
    # Only the first of several check-ins at an instant is kept, so a place may now have too few users.
    (traces,) = keep_shared_places(traces, min_users=min_users, other_places=others)
    first, last = (np.datetime64(seconds, "s") for seconds in (visits.first_s, visits.last_s))
    report = ImportReport(
        subject=subject,
        n_rows=coded.n_rows,
        n_users_read=len(user_ids),
        n_bad_rows=coded.n_bad,
        n_without=coded.n_without,
        n_duplicates=n_duplicates,
        n_outside_box=n_left_out[OUTSIDE],
        n_few_users=n_left_out[FEW] + n_before - traces.n_events,
        n_other_places=n_left_out[BEYOND],
        n_same_instant=events.n_same_instant,
        n_moved=int(n_moved.sum()),
        **counts_of([traces]),
        first_time=str(first),
        last_time=str(last),
        quietest_hour=int(events.n_of_hour.argmin()),
        time_zone=time_zone,
        min_users_per_place=min_users,
        other_places=others,
        n_places_for_most=assigned.n_for_most,
        step_for_most_s=events.step_for_most_s,
        notes=tuple(notes),
    )
    return traces, report


def _visits(connection: Connection, has_traces: bool) -> PlacedVisits:
    """The check-ins at places; a user's traces follow each other in time, at equal times in the order of the rows."""
    query = "SELECT count(*), min(local_s), max(local_s) FROM placed"
    n_visits, first_s, last_s = connection.execute(query).fetchall()[0]
    source = "placed"
    if has_traces:
        number = "row_number() OVER (PARTITION BY user ORDER BY min(utc_s), min(row)) - 1 AS number"
        query = f"SELECT user AS own, trace AS given, {number} FROM placed GROUP BY user, trace"
        connection.execute(f"CREATE OR REPLACE TABLE numbered AS {query}")
        source = "(SELECT * REPLACE (number AS trace) FROM placed JOIN numbered ON (user, trace) = (own, given))"

    def blocks() -> Iterator[Visits]:
        ordered = connection.sql(f"SELECT {', '.join(Visits._fields)} FROM {source} ORDER BY user, row")
        rest = [np.zeros(0, np.int64)] * len(Visits._fields)
        for batch in ordered.to_arrow_reader(VISITS_AT_A_TIME):
            columns = [np.append(*pair) for pair in zip(rest, (each.to_numpy() for each in batch.columns), strict=True)]
            last_user = np.searchsorted(columns[0], columns[0][-1])
            rest = [column[last_user:] for column in columns]
            yield Visits(*(column[:last_user] for column in columns))
        yield Visits(*rest)

    return PlacedVisits(blocks(), n_visits, first_s, last_s)
