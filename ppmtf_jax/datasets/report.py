"""What became of the rows of a data set."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ImportReport:
    """What became of the rows of a data set; `print` it.

    Parameters
    ----------
    subject : str
        What was read.
    n_rows, n_users_read : int
        Rows and users before anything was left out.
    n_bad_rows, n_duplicates, n_outside_box, n_other_places, n_same_instant : int
        Rows left out: no check-ins, repeated entirely, outside the grid of places, not at one of the most visited
        places, at an instant that already has an event of the user.
    n_users, n_places, n_traces, n_events, n_transitions : int
        What there is now; transitions are between consecutive instants of one trace.
    first_time, last_time : str
        Local wall-clock times of the first and the last event.
    quietest_hour : int
        Hour of the day with the fewest events. People sleep: where this is in the daytime, the times are probably in
        another zone than assumed.
    time_zone : str
        Whose clocks the times and the instants follow.
    notes : tuple of str
        What else the reader has to say.
    """

    subject: str
    n_rows: int
    n_users_read: int
    n_bad_rows: int
    n_duplicates: int
    n_outside_box: int
    n_other_places: int
    n_same_instant: int
    n_users: int
    n_places: int
    n_traces: int
    n_events: int
    n_transitions: int
    first_time: str
    last_time: str
    quietest_hour: int
    time_zone: str
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [("rows read", self.n_rows), ("users read", self.n_users_read)]
        left_out = [
            ("left out: bad rows", self.n_bad_rows),
            ("left out: repeated rows", self.n_duplicates),
            ("left out: outside the grid", self.n_outside_box),
            ("left out: other places", self.n_other_places),
            ("left out: same instant", self.n_same_instant),
        ]
        lines += [line for line in left_out if line[1]]
        lines += [("events", self.n_events), ("transitions", self.n_transitions), ("users", self.n_users)]
        lines += [("traces", self.n_traces), ("places", self.n_places)]
        width = max(len(name) for name, _ in lines)
        text = [f"  {name:<{width}}  {count:>12,}" for name, count in lines]
        span = f"  from {self.first_time} to {self.last_time} by the clocks of {self.time_zone}, "
        span += f"fewest events at {self.quietest_hour:02d} h"
        return "\n".join([self.subject, *text, span, *(f"  {note}" for note in self.notes)])
