"""From a table of check-ins to traces: check and code the rows, assign places, then instants and traces."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checks import suspicions
from ppmtf_jax.datasets.coded_checkins import Findings, code_checkins
from ppmtf_jax.datasets.discretization import Discretization
from ppmtf_jax.datasets.places import BEYOND, FEW, OUTSIDE, GivenPlaces, GridPlaces, assign_places, keep_shared_places
from ppmtf_jax.datasets.report import ImportReport, counts_of
from ppmtf_jax.datasets.spaced_traces import SpacedTraces
from ppmtf_jax.datasets.stay_points import StayPoints, stays_as_checkins
from ppmtf_jax.errors import Message, Problem, Setting

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

    Parameters
    ----------
    checkins : DataFrame
        Columns user, latitude, longitude (degrees), local_time (naive datetime64, wall clock), utc_time (naive
        datetime64, for order and gaps), place (optional on a grid, and for given places if other check-ins go to the
        nearest place) and, optionally, category, and trace (rows of one trace are together and in time order; traces
        are numbered anew from 0 for each user).
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
    on_grid, given = (isinstance(discretization.places, kind) for kind in (GridPlaces, GivenPlaces))
    min_users, others = 1 if given else discretization.min_users_per_place, discretization.other_places
    needs_places = not (on_grid or (given and others == "nearest"))
    if stay_points is not None and needs_places:
        way_out = Message("Choose a grid with ", Setting("grid"))
        problem = Problem("a grid, since stay points have no place ids", "places with ids", way_out=way_out)
        findings = findings._replace(problems=[*findings.problems, problem])
    # Check and code the rows.
    how = {"needs_places": needs_places, "drop_bad_rows": drop_bad_rows}
    coded = code_checkins(checkins, time_zone, subject=subject, findings=findings, **how)
    user_ids, notes = coded.ids["user"], [*findings.notes, *coded.notes]
    if stay_points is not None:
        repeat_s = discretization.step_s if isinstance(discretization, Discretization) else None
        rows, stay_note = stays_as_checkins(coded.rows, stay_points, time_zone, repeat_s, subject)
        coded = coded._replace(rows=rows)
        notes.append(stay_note)
    n_good, n_bad = len(coded.rows), coded.n_bad
    if drop_repeated:
        coded = coded._replace(rows=coded.rows.drop_duplicates())
    n_duplicates = n_good - len(coded.rows)
    # Assign places.
    assigned = assign_places(coded, discretization.places, min_users, others)
    notes += suspicions(coded.rows, discretization.places, assigned, time_zone, subject)
    is_out, moved_km = assigned.place < 0, assigned.moved_km[assigned.moved_km > 0]
    n_left_out = np.bincount(assigned.why[is_out], minlength=BEYOND + 1).tolist()
    placed = coded.rows[["user", "trace", "local", "utc_s"]].assign(place=assigned.place)[~is_out]
    places, n_for_most = assigned.places, assigned.n_for_most
    del coded, assigned, is_out  # there may be tens of millions of rows
    # Assign instants and traces.
    events = discretization.events_of(placed, time_zone)
    local, kept = placed["local"].to_numpy(), events.checkins
    first, last = local.min(), local.max()
    del placed, local
    notes += events.notes
    if len(moved_km):
        km = f"by {np.median(moved_km):.2g} km in the median, by {moved_km.max():.2g} km at most"
        notes.append(f"check-ins moved to the nearest place: {km}")
    user, place = (kept[name].to_numpy() for name in ("user", "place"))
    friends = friendships
    if friendships is not None:
        users = user_ids[np.unique(user)]
        known = friendships["user"].isin(users) & friendships["friend"].isin(users)
        n_unknown, friends = int((~known).sum()), friendships[known]
        if n_unknown:
            notes.append(f"{n_unknown:,} of {len(known):,} friendship rows left out: a user has no event")
    indices = user, events.trace, events.instant, place
    traces = Traces.from_indices(*indices, user_ids, places, events.time_grid, friends, subject=subject)
    n_before, hour = traces.n_events, kept["local"].dt.hour
    # Only the first of several check-ins at an instant is kept, so a place may now have too few users.
    (traces,) = keep_shared_places(traces, min_users=min_users, other_places=others, keep_table=on_grid)
    report = ImportReport(
        subject=subject,
        n_rows=len(checkins) + sum(problem.n_rows for problem in findings.skipped),
        n_users_read=len(user_ids),
        n_bad_rows=n_bad,
        n_duplicates=n_duplicates,
        n_outside_box=n_left_out[OUTSIDE],
        n_few_users=n_left_out[FEW] + n_before - traces.n_events,
        n_other_places=n_left_out[BEYOND],
        n_same_instant=events.n_same_instant,
        n_moved=len(moved_km),
        **counts_of([traces]),
        first_time=str(first),
        last_time=str(last),
        quietest_hour=int(np.bincount(hour, minlength=24).argmin()),
        time_zone=time_zone,
        min_users_per_place=min_users,
        other_places=others,
        on_grid=on_grid,
        n_places_for_most=n_for_most,
        step_for_most_s=events.step_for_most_s,
        notes=tuple(notes),
    )
    return traces, report
