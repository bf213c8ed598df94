"""What is said about an import: how many rows were read, left out and kept, and what that means for synthesis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ppmtf_jax.data.description import percent
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.places import OtherPlaces
from ppmtf_jax.errors import InputError, Message, Setting

# A reason that left out more than this share of the rows leads to a warning.
MUCH = 0.1
HOUR_S = 3600
BAR_WIDTH = 20
NIGHT_H = range(8)
# Rules of thumb for warnings: below these values, a model learns little.
MIN_SHARE_OF_STEPS = 0.1
MIN_TRANSITIONS_PER_PLACE = 5
MIN_EVENTS_PER_USER = 5
MANY_PLACES, MIN_SHARE_VISITED = 10_000, 0.1


@dataclass(frozen=True)
class ImportReport:
    """How many rows of a data set were read, left out and kept; `print` it.

    Parameters
    ----------
    subject : str
        What was read.
    n_rows, n_users_read : int
        Rows and users before anything was left out.
    n_bad_rows, n_duplicates, n_outside_box, n_few_users, n_other_places, n_same_instant : int
        Rows left out: rows that are not check-ins, repeated rows, rows outside the grid of places, at places of too few
        users, not at one of the most visited or given places, or at an instant that already has an event of the user.
    n_without : dict
        Rows left out because their position, user, place or time is not known, by what is missing.
    n_moved : int
        Check-ins that were moved to the nearest place that is kept.
    n_users, n_places, n_traces, n_events, n_transitions : int
        In the traces; transitions are between consecutive instants of one trace.
    least_users : int
        The smallest number of users at any visited place; `counted` says which users are counted.
    first_time, last_time, time_zone : str
        Local wall-clock times of the first and the last event, and the zone of these clocks.
    quietest_hour : int
        Hour of the day with the fewest events. If it is in the daytime, the time zone is probably wrong.
    min_users_per_place, other_places
        Settings of the import.
    n_places_for_most, step_for_most_s : int, optional
        How many places would keep 95 % of the check-ins at places with enough users, and which step would keep 95 % of
        the check-ins at the kept places. None if the settings already do so, or if it is not possible.
    notes : tuple of str
        Notes of the reader.
    """

    subject: str
    n_rows: int
    n_users_read: int
    n_bad_rows: int
    n_duplicates: int
    n_outside_box: int
    n_few_users: int
    n_other_places: int
    n_same_instant: int
    n_moved: int
    n_users: int
    n_places: int
    n_traces: int
    n_events: int
    n_transitions: int
    least_users: int
    first_time: str
    last_time: str
    quietest_hour: int
    time_zone: str
    min_users_per_place: int = 1
    other_places: OtherPlaces = "drop"
    n_without: dict[str, int] = field(default_factory=dict)
    n_places_for_most: int | None = None
    step_for_most_s: int | None = None
    counted: str = "users"
    notes: tuple[str, ...] = ()

    def after_split(self, train: Traces, test: Traces, n_moved: int) -> ImportReport:
        """The report on training and test users, after the training users alone decided which places are kept."""
        counts = counts_of([train, test])
        n_few, n_moved = self.n_few_users + self.n_events - counts["n_events"], self.n_moved + n_moved
        return replace(self, **counts, n_few_users=n_few, n_moved=n_moved, counted="training users")

    def left_out(self) -> dict[str, int]:
        """How many rows were left out, by reason, without the reasons that left out none."""
        reasons = {"bad rows": self.n_bad_rows} | {f"no {name}": n for name, n in self.n_without.items()}
        reasons |= {"repeated rows": self.n_duplicates, "outside the grid": self.n_outside_box}
        reasons |= {"places of few users": self.n_few_users, "other places": self.n_other_places}
        return {reason: n for reason, n in (reasons | {"same instant": self.n_same_instant}).items() if n}

    def kept(self) -> str:
        """How many of the rows are used and how many are not, in a sentence or three; the largest part comes first."""
        left_out = sorted(self.left_out().items(), key=lambda each: -each[1])
        n_used = self.n_rows - sum(n for _, n in left_out)
        said = f"{n_used:,} of {self.n_rows:,} rows of the data are used ({percent(n_used / max(self.n_rows, 1))})."
        if left_out:
            said += f" Not used: {'; '.join(f'{n:,} ({reason})' for reason, n in left_out)}."
        return f"{said} Places of few users are often homes and offices." if self.n_few_users else said

    def advice(self) -> dict[str, str]:
        """Which setting would keep most of the rows that were left out, by reason."""
        found = {}
        if self.n_few_users:
            found["places of few users"] = Message(
                f"fewer than {self.min_users_per_place} {self.counted}; ",
                Setting("other_places", "nearest"),
                " moves what is there to the nearest place that is kept",
            )
        if self.n_other_places and self.n_places_for_most is not None:
            of_whom = f" of at least {self.min_users_per_place} users" if self.min_users_per_place > 1 else ""
            n_places = Setting("n_places", self.n_places_for_most)
            found["other places"] = Message(n_places, f" keeps 95 % of the check-ins at places{of_whom}")
        if self.n_same_instant and self.step_for_most_s is not None:
            step_s = Setting("step_s", self.step_for_most_s)
            found["same instant"] = Message(step_s, " keeps 95 % of the check-ins at the places")
        return found

    def losses(self) -> list[str]:
        """A sentence for each reason that left out many rows, with a way to keep them."""
        much = {reason: n for reason, n in self.left_out().items() if n > MUCH * self.n_rows}
        much.pop("repeated rows", None)
        ways = {reason: Message(": ", way) for reason, way in self.advice().items()}
        return [Message(f"{n:,} of {self.n_rows:,} rows left out, {why}", ways.get(why, "")) for why, n in much.items()]

    def __str__(self) -> str:
        return str.__str__(self.text())

    def text(self) -> Message:
        """All that is printed."""
        lines = {"rows read": self.n_rows, "users read": self.n_users_read}
        lines |= {f"left out: {reason}": n for reason, n in self.left_out().items()}
        lines |= {"moved to the nearest place": self.n_moved} if self.n_moved else {}
        lines |= {name: getattr(self, f"n_{name}") for name in ("events", "transitions", "users", "traces", "places")}
        lines |= {f"fewest {self.counted} of a place": self.least_users}
        width = max(map(len, lines))
        text = [f"  {name:<{width}}  {count:>12,}" for name, count in lines.items()]
        span = f"  from {self.first_time} to {self.last_time} by the clocks of {self.time_zone}, "
        span += f"fewest events at {self.quietest_hour:02d} h"
        notes = [*(Message(f"{reason}: ", way) for reason, way in self.advice().items()), *self.notes]
        return Message.of_lines([self.subject, *text, span, *(Message("  ", note) for note in notes)])


def counts_of(sets: Sequence[Traces]) -> dict[str, int]:
    """What an `ImportReport` counts of traces, all sets together; the users of each place in the first set alone."""
    n_users_of_place = sets[0].users_per_place()
    return {
        "n_users": sum(traces.n_users for traces in sets),
        "n_places": sets[0].n_places,
        "n_traces": sum(len(traces.trace_table()[0]) for traces in sets),
        "n_events": sum(traces.n_events for traces in sets),
        "n_transitions": sum(int(traces.is_step().sum()) for traces in sets),
        "least_users": int(n_users_of_place[n_users_of_place > 0].min()),
    }


class Imported(NamedTuple):
    """The result of an import.

    `sets` are "train" and "test", perhaps others; `report` says what became of the rows. A `refusal` says why the sets
    can be looked at, but not used; `losses` are sentences on why many rows were left out, each with a way to keep them;
    `kept` says in a sentence how many rows are used, and which are not.
    """

    sets: dict[str, Traces]
    report: str
    refusal: InputError | None = None
    losses: tuple[str, ...] = ()
    kept: str = ""


class DataCheck:
    """Summary of what an import would give, training and test users together; `print` it.

    `events_of_hour` has the events in each hour of the day, `n_visited` counts places with an event, `n_transitions`
    pairs of events at consecutive instants of one trace, `n_in_traces` events that follow another one in their trace.
    `events_per_user` and `gap_s` (seconds between consecutive events of a trace; NaN where no trace has two) are
    medians. `refusal` says why the data cannot be imported, or is empty; `losses` say why many rows were left out.
    """

    def __init__(self, imported: Imported):
        sets = list(imported.sets.values())
        grid = sets[0].time_grid
        start_s = np.datetime64(grid.start, "s").astype(np.int64)
        instant = np.concatenate([traces.instant for traces in sets]).astype(np.int64)
        per_user = np.concatenate([np.bincount(traces.user, minlength=traces.n_users) for traces in sets])
        gaps = np.concatenate([traces.gaps() for traces in sets])
        self.report, self.losses = imported.report, imported.losses
        self.refusal = "" if imported.refusal is None else str(imported.refusal).rstrip(".")
        self.events_of_hour = np.bincount((start_s + instant * grid.step_s) // HOUR_S % 24, minlength=24)
        self.n_users, self.n_events = len(per_user), int(per_user.sum())
        self.n_places = sets[0].n_places
        self.n_visited = len(np.unique(np.concatenate([traces.place for traces in sets])))
        self.n_in_traces, self.n_transitions = len(gaps), int((gaps == 1).sum())
        self.events_per_user = float(np.median(per_user))
        self.gap_s = float(np.median(gaps)) * grid.step_s if len(gaps) else np.nan
        self.step_s = grid.step_s

    def warnings(self) -> list[str]:
        """Reasons why synthesis will be hard or impossible, each with advice."""
        found = [*([self.refusal] if self.refusal else []), *self.losses]
        quietest = int(self.events_of_hour.argmin())
        if quietest not in NIGHT_H and self.events_of_hour.max() > 2 * self.events_of_hour[quietest]:
            found.append(f"fewest events at {quietest:02d} h: people sleep at night, so the time zone may be wrong")
        if self.n_transitions < MIN_SHARE_OF_STEPS * max(self.n_in_traces, 1):
            found.append(
                f"few consecutive events: {self.n_transitions:,} of {self.n_in_traces:,} come one step, {self.step_s} "
                "s, after another event. A longer step gives more"
            )
        if self.n_places > MANY_PLACES and self.n_visited < MIN_SHARE_VISITED * self.n_places:
            empty = f"many places without a visit: {self.n_places - self.n_visited:,} of {self.n_places:,}. Each takes "
            ways = "time and memory in most models. Take larger cells or, if the places need not be public, "
            found.append(Message(empty, ways, Setting("min_users_per_place", 2)))
        if self.n_transitions < MIN_TRANSITIONS_PER_PLACE * self.n_visited:
            found.append(
                f"many places for {self.n_transitions:,} transitions: {self.n_visited:,} are visited. Fewer places, or "
                "larger cells, give more transitions for each"
            )
        if self.events_per_user < MIN_EVENTS_PER_USER:
            found.append(f"few events per user: half of the users have {self.events_per_user:g} or less")
        return found

    def __str__(self) -> str:
        return str.__str__(self.text())

    def text(self) -> Message:
        """All that is printed."""
        gap = f"half of the gaps between them are {self.gap_s / HOUR_S:.3g} h or more"
        gap = "no trace has two" if np.isnan(self.gap_s) else gap
        lines = [
            self.report,
            "",
            f"Half of the {self.n_users:,} users have {self.events_per_user:g} events or more; {gap}.",
            f"{self.n_visited:,} of {self.n_places:,} places are visited.",
            "",
            "Events by hour of the day:",
        ]
        most = max(int(self.events_of_hour.max()), 1)
        lines += [
            f"  {hour:02d} h {'#' * round(BAR_WIDTH * n / most):<{BAR_WIDTH}} {n:>11,}"
            for hour, n in enumerate(self.events_of_hour.tolist())
        ]
        warnings = self.warnings()
        lines += ["", "For synthesis:" if warnings else "For synthesis: nothing looks amiss."]
        return Message.of_lines(lines + [Message("  ", warning, ".") for warning in warnings])
