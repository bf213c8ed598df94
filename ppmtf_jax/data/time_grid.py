"""Discrete time: instants at a fixed step, and the slot of each instant."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

from ppmtf_jax.data.description import counted
from ppmtf_jax.errors import InputError, Problem, first_examples, raise_any

DAY_S = 86_400
UNITS_S = {"day": DAY_S, "h": 3600, "min": 60, "s": 1}
N_WEEKDAYS, DAY_TYPES = 7, "wwwwwee"
"""Number of days of a week, and the default type of each day from Monday to Sunday: w is a weekday, e the weekend."""
NOMINAL_MONDAY = date(2001, 1, 1)
JSON_KEYS = ("start", "step_s", "time_zone", "slot_of_instant", "period")


@dataclass(frozen=True, eq=False)
class TimeGrid:
    """Discrete time: instants of equal step, and the slot that each instant belongs to.

    Raises `InputError`, which lists everything that does not fit.

    Parameters
    ----------
    start : str
        Local wall-clock time of instant 0, ISO format.
    step_s : int
        Seconds from one instant to the next.
    slot_of_instant : int array, shape (instants,)
        Slot of each instant, 0 to slots - 1, every slot used. Any map is allowed, also a cyclic map.
    time_zone : str
        IANA name of the zone of `start`.
    period : int
        Instants after which the slots repeat: what one synthetic trace covers. Default: the whole grid.

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
    # None becomes the number of instants.
    period: int = field(default=None, kw_only=True)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        slots = np.asarray(self.slot_of_instant)
        problems = _clock_problems(self.start, self.step_s)
        of_slots = _slot_problems(slots)
        period = len(slots) if self.period is None else self.period
        # Only valid slots can be checked for repetition.
        problems += of_slots or _period_problems(slots, period)
        problems += zone_problems(self.time_zone)
        raise_any("time grid", problems)
        object.__setattr__(self, "slot_of_instant", slots.astype(np.int32))
        object.__setattr__(self, "step_s", int(self.step_s))
        object.__setattr__(self, "period", int(period))

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
        """Slots of `slot_s` seconds that repeat every `period_s` seconds, counted from local midnight.

        Examples
        --------
        With one slot per day, a synthetic trace still lasts a day:

        >>> TimeGrid.cyclic("2024-01-01T00:00:00", 3600, 48, slot_s=86_400).one_period().n_instants
        24
        """
        grid = cls.each_instant(start, step_s, n_instants, time_zone)
        if slot_s <= 0 or period_s <= 0 or period_s % slot_s or slot_s % step_s:
            expected = "a step that divides the slot, and a slot that divides the period"
            raise InputError("time grid", [Problem(expected, f"step {step_s} s, slot {slot_s} s, period {period_s} s")])
        slots = grid.since_midnight_s() % period_s // slot_s
        # A grid shorter than a period does not have every slot, so its slots are renumbered without gaps.
        numbered = np.unique(slots, return_inverse=True)[1]
        return replace(grid, slot_of_instant=numbered, period=min(period_s // step_s, n_instants))

    @classmethod
    def weekly(
        cls,
        start: str,
        step_s: int,
        n_instants: int,
        *,
        slot_s: int,
        day_types: str = DAY_TYPES,
        time_zone: str = "UTC",
    ) -> TimeGrid:
        """Slots of `slot_s` seconds that repeat every week; each type of day has slots of its own.

        `day_types` has a letter for each day from Monday to Sunday; days with the same letter are of one type.

        Examples
        --------
        >>> grid = TimeGrid.weekly("2024-01-01T00:00:00", 3600, 24 * 14, slot_s=7200)  # a Monday
        >>> grid.n_slots, grid.period, grid.slot_of_instant[[0, 24, 5 * 24, 7 * 24]].tolist()
        (24, 168, [0, 0, 12, 0])
        """
        if len(day_types) != N_WEEKDAYS:
            expected = f"day types as {N_WEEKDAYS} letters, one for each day from Monday to Sunday, such as {DAY_TYPES}"
            raise InputError("time grid", [Problem(expected, repr(day_types))])
        daily = cls.cyclic(start, step_s, n_instants, slot_s=slot_s, time_zone=time_zone)
        weekday = (datetime.fromisoformat(start).weekday() + daily.day()) % N_WEEKDAYS
        type_of = np.array([day_types.index(letter) for letter in day_types])[weekday]
        slots = daily.since_midnight_s() % DAY_S // slot_s + DAY_S // slot_s * type_of
        # Numbers of types have gaps, and a grid shorter than a week may not have every slot: number the slots anew.
        numbered = np.unique(slots, return_inverse=True)[1]
        return replace(daily, slot_of_instant=numbered, period=min(N_WEEKDAYS * DAY_S // step_s, n_instants))

    def one_period(self) -> TimeGrid:
        """The first period of the grid: what one synthetic trace covers."""
        return replace(self, slot_of_instant=self.slot_of_instant[: self.period])

    def of_periods(self, n_periods: int, start: date | None = None) -> TimeGrid:
        """A grid of whole periods with the slots of this grid, from its start or from the same time of another date.

        Examples
        --------
        >>> hours = TimeGrid.cyclic("2024-01-01T09:00:00", 3600, 24, slot_s=7200)
        >>> hours.of_periods(7, date(2025, 3, 3)).summary()["time"]
        '168 instants of 1 h from 2025-03-03 09:00 to 2025-03-10 08:00, UTC'
        """
        begin = self.start
        if start is not None:
            begin = datetime.combine(start, datetime.fromisoformat(begin).time()).isoformat()
        return replace(self, start=begin, slot_of_instant=np.tile(self.slot_of_instant[: self.period], n_periods))

    def on_nominal_date(self) -> TimeGrid:
        """The grid on a date that tells nothing of the true one; a grid of several days keeps its day of the week.

        Examples
        --------
        >>> TimeGrid.cyclic("2024-03-06T09:00:00", 3600, 24, slot_s=7200).on_nominal_date().start
        '2001-01-01T09:00:00'
        """
        start = datetime.fromisoformat(self.start)
        weekday = start.weekday() if self.n_instants * self.step_s > DAY_S else 0
        return replace(self, start=datetime.combine(NOMINAL_MONDAY + timedelta(weekday), start.time()).isoformat())

    def whole_days(self, most: int) -> TimeGrid:
        """The first whole days of the grid: at most `most` days; whole weeks if there are at least seven days.

        The result begins at `first_midnight`. Slots that it does not have are left out of its numbers. Raises
        `InputError`: the step does not divide a day, or the grid has no whole day.

        Examples
        --------
        >>> grid = TimeGrid.cyclic("2024-01-01T21:00:00", 3600, 20 * 24, slot_s=7200)
        >>> print(grid.whole_days(28).summary()["time"])
        336 instants of 1 h from 2024-01-02 00:00 to 2024-01-15 23:00, UTC
        """
        per_day, first = DAY_S // self.step_s, self.first_midnight()
        n_days = min(most, (self.n_instants - first) // max(per_day, 1))
        n_days -= n_days % 7 if n_days > 7 else 0
        if DAY_S % self.step_s or n_days < 1:
            expected = "a step that divides a day, and a whole day of instants"
            raise InputError("time grid", [Problem(expected, self.summary()["time"])])
        slots = self.slot_of_instant[first : first + n_days * per_day]
        numbered = np.unique(slots, return_inverse=True)[1]
        start = self.time_of(first).isoformat()
        return replace(self, start=start, slot_of_instant=numbered, period=min(self.period, len(slots)))

    def has_whole_day(self) -> bool:
        """Whether the step divides a day, and the grid has all instants of a day from midnight on."""
        return DAY_S % self.step_s == 0 and (self.n_instants - self.first_midnight()) * self.step_s >= DAY_S

    def first_midnight(self) -> int:
        """First instant of the first day that begins within the grid; `n_instants` if there is none.

        Examples
        --------
        >>> TimeGrid.each_instant("2024-01-01T21:30:00", 3600, 24).first_midnight()  # at half past midnight
        3
        """
        begins = np.flatnonzero(self.since_midnight_s() % DAY_S < self.step_s)
        return int(begins[0]) if len(begins) else self.n_instants

    def time_of(self, instant: int) -> datetime:
        """Local wall-clock time of an instant."""
        return datetime.fromisoformat(self.start) + timedelta(seconds=self.step_s * int(instant))

    def local_times(self) -> pd.DatetimeIndex:
        """Local times of all instants, with their zone.

        A wall-clock time that occurs twice is the first of the two. A wall-clock time in an hour that clocks skip
        becomes the first moment after this hour.

        Examples
        --------
        >>> grid = TimeGrid.each_instant("2024-03-31T01:00:00", 3600, 3, "Europe/Paris")
        >>> [str(time) for time in grid.local_times()]
        ['2024-03-31 01:00:00+01:00', '2024-03-31 03:00:00+02:00', '2024-03-31 03:00:00+02:00']
        """
        since_start = np.arange(self.n_instants, dtype=np.int64) * self.step_s
        wall = np.datetime64(datetime.fromisoformat(self.start), "us") + since_start.astype("timedelta64[s]")
        first = np.ones(self.n_instants, bool)
        return pd.DatetimeIndex(wall).tz_localize(self.time_zone, ambiguous=first, nonexistent="shift_forward")

    def since_midnight_s(self) -> np.ndarray:
        """Seconds from the midnight before instant 0 to each instant by local clocks, shape (instants,)."""
        begin = datetime.fromisoformat(self.start)
        first_s = (begin.hour * 60 + begin.minute) * 60 + begin.second
        return first_s + np.arange(self.n_instants, dtype=np.int64) * self.step_s

    def day(self) -> np.ndarray:
        """Local day of each instant, counted from that of instant 0, shape (instants,)."""
        return self.since_midnight_s() // DAY_S

    def summary(self) -> dict[str, str]:
        """Span and slots in words, by name."""
        first, last = (self.time_of(instant).strftime("%Y-%m-%d %H:%M") for instant in (0, self.n_instants - 1))
        time = f"{counted(self.n_instants, 'instant')} of {duration(self.step_s)} from {first} to {last}"
        slots = f"{self.n_slots:,}"
        if self.period < self.n_instants:
            slots += f", the same every {counted(self.period, 'instant')} ({duration(self.period * self.step_s)})"
        return {"time": f"{time}, {self.time_zone}", "slots": slots}

    def __repr__(self) -> str:
        return f"TimeGrid: {'; slots: '.join(self.summary().values())}"

    def slot_labels(self) -> list[str]:
        """Wall-clock time at which each slot first begins: "09:20", or "Mon 09:20" if some times are equal."""
        first = [self.time_of(instant) for instant in np.unique(self.slot_of_instant, return_index=True)[1].tolist()]
        labels = [f"{time:%H:%M}" for time in first]
        return labels if len(set(labels)) == len(labels) else [f"{time:%a %H:%M}" for time in first]

    def to_json(self) -> str:
        """As JSON, on one line."""
        content = {name: getattr(self, name) for name in ("start", "step_s", "time_zone", "n_instants", "period")}
        return json.dumps({**content, "slot_of_instant": self.slot_of_instant.tolist()}) + "\n"

    @classmethod
    def load(cls, file: Path) -> TimeGrid:
        """Read a `time_grid.json`."""
        try:
            return cls.from_json(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(str(file), [Problem("a readable time_grid.json", str(error))]) from error

    @classmethod
    def from_json(cls, text: str) -> TimeGrid:
        """Read what `to_json` wrote."""
        try:
            content = json.loads(text)
            start, step_s, time_zone, slots, period = (content[key] for key in JSON_KEYS)
            if period is None:
                raise TypeError("period is null")
            return cls(start, step_s, np.array(slots), time_zone, period=period)
        except InputError:
            raise
        except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            needed = f"JSON with {', '.join(JSON_KEYS[:-1])} and {JSON_KEYS[-1]}"
            raise InputError("time grid", [Problem(needed, f"{type(error).__name__}: {error}")]) from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimeGrid) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())


def without_gaps(numbers: np.ndarray) -> np.ndarray:
    """Numbers 0, 1, ... in place of others, in the same order."""
    return np.unique(numbers, return_inverse=True)[1]


def duration(seconds: int) -> str:
    """A time span in the largest unit that divides it, such as "90 s", "20 min" or "7 days"."""
    unit, length_s = next((unit, length_s) for unit, length_s in UNITS_S.items() if seconds % length_s == 0)
    number = seconds // length_s
    return counted(number, unit) if unit == "day" else f"{number:,} {unit}"


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


def _slot_problems(slots: np.ndarray) -> list[Problem]:
    if slots.ndim != 1 or not len(slots) or not np.issubdtype(slots.dtype, np.integer):
        expected = "a slot number for each of at least one instant"
        return [Problem(expected, f"{slots.dtype} array of shape {slots.shape}")]
    if slots.min() < 0 or slots.max() >= len(slots) or not np.bincount(slots).all():
        found = f"slots {', '.join(first_examples(np.unique(slots).tolist()))}"
        return [Problem("slots numbered 0, 1, ... without gaps", found)]
    return []


def _period_problems(slots: np.ndarray, period: Any) -> list[Problem]:
    is_whole = isinstance(period, (int, np.integer)) and not isinstance(period, bool)
    if not (is_whole and 1 <= period <= len(slots)):
        return [Problem(f"a period of 1 to {len(slots)} instants, in whole numbers", repr(period))]
    differs = np.flatnonzero(slots[period:] != slots[:-period])
    if not len(differs):
        return []
    first = int(differs[0])
    found = f"slot {slots[first]} at instant {first}, slot {slots[first + period]} at instant {first + period}"
    return [Problem(f"slots that repeat after the period of {period} instants", found)]


def zone_problems(time_zone: object) -> list[Problem]:
    """A problem if `time_zone` is not an IANA zone."""
    try:
        ZoneInfo(time_zone)  # type: ignore[arg-type]
    except (KeyError, ValueError, OSError, TypeError):
        return [Problem("an IANA time zone such as Asia/Tokyo", repr(time_zone))]
    return []
