"""Discrete time: instants of equal step, and the slot that each belongs to."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np

from ppmtf_jax.errors import InputError, Problem, first_examples

DAY_S = 86_400


@dataclass(frozen=True, eq=False)
class TimeGrid:
    """Discrete time: instants of equal step, and the slot that each instant belongs to.

    Parameters
    ----------
    start : str
        Local wall-clock time of instant 0, ISO format.
    step_s : int
        Seconds from one instant to the next.
    slot_of_instant : int array, shape (instants,)
        Slot of each instant, 0 to slots - 1, every slot used. Any map will do, cyclic ones too.
    time_zone : str
        IANA name of the zone of `start`.

    Examples
    --------
    Two days of hours in twelve cyclic two-hour slots; a synthetic trace then lasts one day.

    >>> grid = TimeGrid.cyclic("2024-01-01T00:00:00", 3600, 48, slot_s=7200)
    >>> grid.n_instants, grid.n_slots, grid.slot_of_instant[[0, 1, 2, 24]].tolist(), grid.one_period().n_instants
    (48, 12, [0, 0, 1, 0], 24)
    """

    start: str
    step_s: int
    slot_of_instant: np.ndarray
    time_zone: str = "UTC"

    def __post_init__(self) -> None:
        slots = np.asarray(self.slot_of_instant)
        problems = _clock_problems(self.start, self.step_s)
        if slots.ndim != 1 or not len(slots) or not np.issubdtype(slots.dtype, np.integer):
            problems.append(
                Problem("a slot number for each of at least one instant", f"{slots.dtype} array of shape {slots.shape}")
            )
        elif slots.min() < 0 or slots.max() >= len(slots) or not np.bincount(slots).all():
            problems.append(
                Problem(
                    "slots numbered 0, 1, ... without gaps",
                    f"slots {', '.join(first_examples(np.unique(slots).tolist()))}",
                )
            )
        try:
            ZoneInfo(self.time_zone)
        except (KeyError, TypeError, ValueError, OSError):
            problems.append(Problem("an IANA time zone such as Asia/Tokyo", repr(self.time_zone)))
        if problems:
            raise InputError("time grid", problems)
        object.__setattr__(self, "slot_of_instant", slots.astype(np.int32))
        object.__setattr__(self, "step_s", int(self.step_s))

    @property
    def n_instants(self) -> int:
        return len(self.slot_of_instant)

    @property
    def n_slots(self) -> int:
        return int(self.slot_of_instant.max()) + 1

    @classmethod
    def each_instant(cls, start: str, step_s: int, n_instants: int, time_zone: str = "UTC") -> TimeGrid:
        """Every instant is a slot of its own."""
        return cls(start, step_s, np.arange(n_instants, dtype=np.int32), time_zone)

    @classmethod
    def cyclic(
        cls, start: str, step_s: int, n_instants: int, *, slot_s: int, period_s: int = DAY_S, time_zone: str = "UTC"
    ) -> TimeGrid:
        """Slots of `slot_s` seconds that come round every `period_s` seconds, counted from local midnight."""
        problems = _clock_problems(start, step_s)
        if problems:
            raise InputError("time grid", problems)
        if slot_s <= 0 or period_s % slot_s or slot_s % step_s:
            found = f"step {step_s} s, slot {slot_s} s, period {period_s} s"
            raise InputError(
                "time grid", [Problem("a step that divides the slot, and a slot that divides the period", found)]
            )
        begin = datetime.fromisoformat(start)
        since_midnight_s = begin.hour * 3600 + begin.minute * 60 + begin.second
        seconds = since_midnight_s + step_s * np.arange(n_instants, dtype=np.int64)
        slots = (seconds % period_s) // slot_s
        # A grid shorter than a period does not reach every slot: number those that it does reach.
        return cls(start, step_s, np.unique(slots, return_inverse=True)[1].astype(np.int32), time_zone)

    def one_period(self) -> TimeGrid:
        """The shortest beginning of the grid after which the slots repeat: what one synthetic trace covers."""
        slots = self.slot_of_instant
        for period in range(1, self.n_instants):
            if slots[period] == slots[0] and np.array_equal(slots[period:], slots[:-period]):
                return replace(self, slot_of_instant=slots[:period])
        return self

    def time_of(self, instant: int) -> datetime:
        """Local wall-clock time of an instant."""
        return datetime.fromisoformat(self.start) + timedelta(seconds=self.step_s * int(instant))

    def slot_labels(self) -> list[str]:
        """Wall-clock time at which each slot first begins, such as "09:20"."""
        first = np.unique(self.slot_of_instant, return_index=True)[1]
        return [self.time_of(instant).strftime("%H:%M") for instant in first.tolist()]

    def to_json(self) -> str:
        content = {
            "start": self.start,
            "step_s": self.step_s,
            "time_zone": self.time_zone,
            "n_instants": self.n_instants,
            "slot_of_instant": self.slot_of_instant.tolist(),
        }
        return json.dumps(content) + "\n"

    @classmethod
    def load(cls, file: Path) -> TimeGrid:
        """Read a `time_grid.json`."""
        try:
            return cls.from_json(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(str(file), [Problem("a readable time_grid.json", str(error))]) from error

    @classmethod
    def from_json(cls, text: str) -> TimeGrid:
        try:
            content = json.loads(text)
            return cls(content["start"], content["step_s"], np.array(content["slot_of_instant"]), content["time_zone"])
        except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            needed = "JSON with start, step_s, time_zone and slot_of_instant"
            raise InputError("time grid", [Problem(needed, f"{type(error).__name__}: {error}")]) from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimeGrid) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())


def _clock_problems(start: object, step_s: object) -> list[Problem]:
    problems = []
    if not (isinstance(step_s, (int, np.integer)) and step_s > 0):
        problems.append(Problem("a step of a positive whole number of seconds", repr(step_s)))
    try:
        if datetime.fromisoformat(start).tzinfo is not None:  # type: ignore[arg-type]
            problems.append(Problem("start as a local time without an offset", repr(start)))
    except (TypeError, ValueError):
        problems.append(Problem("start as an ISO date and time", repr(start)))
    return problems


def zone_problems(time_zone: str) -> list[Problem]:
    """A problem where `time_zone` is no IANA zone."""
    try:
        ZoneInfo(time_zone)
    except (KeyError, ValueError, OSError, TypeError):
        return [Problem("an IANA time zone such as Asia/Tokyo", repr(time_zone))]
    return []
