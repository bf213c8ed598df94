"""What an import would give, and what that means for synthesis."""

from __future__ import annotations

import numpy as np

from ppmtf_jax.datasets.registry import Imported
from ppmtf_jax.errors import Message, Setting

HOUR_S = 3600
BAR_WIDTH = 20
NIGHT_H = range(8)
# Rules of thumb for warnings: below these values, a model learns little.
MIN_SHARE_OF_STEPS = 0.1
MIN_TRANSITIONS_PER_PLACE = 5
MIN_EVENTS_PER_USER = 5
MANY_PLACES, MIN_SHARE_VISITED = 10_000, 0.1


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
