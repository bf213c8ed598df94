"""From a table of check-ins to traces: check and code the rows, assign places, then instants and traces."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checks import suspicions
from ppmtf_jax.datasets.coded_checkins import CheckIns, Findings
from ppmtf_jax.datasets.discretization import Discretization, MakesTraces, PlacedCheckIns
from ppmtf_jax.datasets.places import GridPlaces, assign_places, keep_shared_places
from ppmtf_jax.datasets.report import ImportReport, counts_of, least_users
from ppmtf_jax.datasets.stay_points import StayPoints, stays_as_checkins
from ppmtf_jax.errors import Message, Problem, Setting


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

    Parameters
    ----------
    checkins : DataFrame
        Columns user, latitude, longitude (degrees), local_time (naive datetime64, wall clock), utc_time (naive
        datetime64, for order and gaps) and, optionally, place (needed for `MostVisited`), category, and trace (rows
        of one trace are together and in time order; numbered anew from 0 for each user).
    discretization : Discretization or SpacedTraces
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

    Returns
    -------
    (Traces, ImportReport)

    Raises
    ------
    InputError
        Listing every problem of the table at once: no rows, missing ids or times, bad coordinates, no place column,
        time going backwards within a trace, a few times years away from all others; columns that seem mixed up; or
        nothing left after filtering.

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
    on_grid = isinstance(discretization.places, GridPlaces)
    if stay_points is not None and not on_grid:
        way_out = Message("Choose a grid with ", Setting("grid"))
        problem = Problem("a grid, since stay points have no place ids", "most visited places", way_out=way_out)
        findings = findings._replace(problems=[*findings.problems, problem])
    how = {"needs_places": not on_grid, "drop_bad_rows": drop_bad_rows}
    rows, n_bad, bad_notes = CheckIns.of(checkins, time_zone, subject=subject, findings=findings, **how)
    n_rows, n_users_read = len(checkins) + sum(problem.n_rows for problem in findings.skipped), len(rows.user.ids)
    notes = [*findings.notes, *bad_notes]
    if stay_points is not None:
        repeat_s = discretization.step_s if isinstance(discretization, Discretization) else None
        rows, stay_note = stays_as_checkins(rows, stay_points, time_zone, repeat_s, subject)
        notes.append(stay_note)
    n_good = rows.n_rows
    if drop_repeated:
        rows = rows.without_repeated()
    n_duplicates, user_ids = n_good - rows.n_rows, rows.user.ids
    min_users, others = discretization.min_users_per_place, discretization.other_places
    assigned = assign_places(rows, discretization.places, min_users, others)
    place_notes = suspicions(rows, discretization.places, assigned, time_zone, subject)
    placed = PlacedCheckIns.of(rows, assigned.place)
    places, counts, move_notes = assigned.places, assigned.counts(), assigned.moves()
    del rows, assigned  # there may be tens of millions of rows
    events = discretization.events_of(placed, time_zone)
    first, last, kept = placed.local.min(), placed.local.max(), events.checkins
    del placed
    friends, friend_notes = _known_friends(friendships, user_ids[np.unique(kept.user)])
    indices = kept.user, events.trace, events.instant, kept.place
    traces = Traces.from_indices(*indices, user_ids, places, events.time_grid, friends, subject=subject)
    n_before = traces.n_events
    # Only the first of several check-ins at an instant is kept, so that a place may have lost users.
    (traces,) = keep_shared_places(traces, min_users=min_users, other_places=others, keep_table=on_grid)
    counts["n_few_users"] += n_before - traces.n_events
    report = ImportReport(
        subject=subject,
        n_rows=n_rows,
        n_users_read=n_users_read,
        n_bad_rows=n_bad,
        n_duplicates=n_duplicates,
        n_same_instant=events.n_same_instant,
        **counts,
        **counts_of([traces]),
        least_users=least_users(traces),
        first_time=str(first),
        last_time=str(last),
        quietest_hour=int(np.bincount(kept.local.astype("datetime64[h]").astype(np.int64) % 24, minlength=24).argmin()),
        time_zone=time_zone,
        min_users_per_place=min_users,
        other_places=others,
        on_grid=on_grid,
        step_for_most_s=events.step_for_most_s,
        notes=(*notes, *place_notes, *events.notes, *move_notes, *friend_notes),
    )
    return traces, report


def _known_friends(friendships: pd.DataFrame | None, users: np.ndarray) -> tuple[pd.DataFrame | None, list[str]]:
    """The friendships among users with events, and a note on those left out."""
    if friendships is None:
        return None, []
    known = friendships["user"].isin(users) & friendships["friend"].isin(users)
    n_left_out = int((~known).sum())
    note = f"{n_left_out:,} of {len(known):,} friendship rows left out: a user has no event"
    return friendships[known], [note] if n_left_out else []
