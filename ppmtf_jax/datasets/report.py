"""The report on an import: how many rows were read, left out and kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ppmtf_jax.data.description import percent
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.places import OtherPlaces
from ppmtf_jax.errors import Message, Setting

# A reason that left out more than this share of the rows leads to a warning.
MUCH = 0.1


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
        reasons = {
            "bad rows": self.n_bad_rows,
            **{f"no {name}": n for name, n in self.n_without.items()},
            "repeated rows": self.n_duplicates,
            "outside the grid": self.n_outside_box,
            "places of few users": self.n_few_users,
            "other places": self.n_other_places,
            "same instant": self.n_same_instant,
        }
        return {reason: n for reason, n in reasons.items() if n}

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
        lines = [("rows read", self.n_rows), ("users read", self.n_users_read)]
        lines += [(f"left out: {reason}", n) for reason, n in self.left_out().items()]
        lines += [("moved to the nearest place", self.n_moved)] if self.n_moved else []
        lines += [("events", self.n_events), ("transitions", self.n_transitions), ("users", self.n_users)]
        lines += [("traces", self.n_traces), ("places", self.n_places)]
        lines += [(f"fewest {self.counted} of a place", self.least_users)]
        width = max(len(name) for name, _ in lines)
        text = [f"  {name:<{width}}  {count:>12,}" for name, count in lines]
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
