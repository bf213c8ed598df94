"""Stay points: where users stayed, from GPS fixes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from ppmtf_jax.data.places import EARTH_RADIUS_KM
from ppmtf_jax.data.runs import rank_in_run, run_begins
from ppmtf_jax.data.time_grid import DAY_S
from ppmtf_jax.datasets.database import END_ROWS, IS_BEGINNING, Connection
from ppmtf_jax.datasets.times import local_times
from ppmtf_jax.errors import Finding, InputError, Message, Problem, Setting
from ppmtf_jax.settings import Positive, Settings

N_AT_A_TIME = 256
# Longer visits are told: an end may be wrong.
LONG_DAYS = 31


@dataclass(frozen=True)
class StayPoints(Settings, subject="stay points"):
    """The definition of a stay: fixes within a distance of the first fix that cover at least a duration.

    Parameters
    ----------
    distance_m : float
    duration_s : float
    max_gap_s : float
        A longer time without a fix ends a stay: a user who is at home again after a month has been elsewhere. By
        default half a day, so that a night without a signal is part of a stay.

    References
    ----------
    .. [1] Li, Zheng, Xie, Chen, Liu, Ma: Mining User Similarity Based on Location History, GIS 2008. They use 200 m and
       30 minutes; 20 minutes are also common.
    """

    distance_m: Positive = 200
    duration_s: Positive = 1200
    max_gap_s: Positive = 43_200


def find_stay_points(fixes: pd.DataFrame, settings: StayPoints = StayPoints()) -> pd.DataFrame:
    """Find where and how long users stayed.

    A group is a fix and the fixes that follow within the distance. A group that lasts long enough is a stay, and the
    search goes on after it. Otherwise the search goes on from the next fix. This is the definition of Li et al. 2008.
    Their algorithm also counts the first fix beyond the distance, so that a gap in the recording becomes a stay.

    `fixes` has the columns user, latitude, longitude, utc_time and, optionally, trace; no stay spans two traces. The
    rows may be in any order. The result has the columns user, trace where there is one, latitude, longitude (means of
    the fixes), arrival and departure (UTC), with users and traces in the order of their first rows.

    With the same thresholds, the sliding search of trackintel differs in exactly four rules. If a group is not a stay,
    the search goes on from the first fix that is further away, and so misses stays that begin before this fix. The next
    fix counts for the duration. A group that a gap ends is not a stay. The place of a stay is the mean of the distinct
    positions. For four users of Geolife, trackintel finds 342 stays, this function 269.

    Examples
    --------
    >>> minutes = pd.Timestamp("2024-01-01") + pd.to_timedelta([0, 10, 20, 30, 40], unit="min")
    >>> fixes = pd.DataFrame({"user": 7, "latitude": [35.0, 35.0, 35.001, 35.1, 35.2], "longitude": 139.7})
    >>> stays = find_stay_points(fixes.assign(utc_time=minutes))
    >>> stays["latitude"].round(5).tolist(), (stays["departure"] - stays["arrival"]).dt.seconds.tolist()
    ([35.00033], [1200])
    """
    coded = {name: fixes[name].to_numpy(np.float64) for name in ("latitude", "longitude")}
    coded["utc_s"] = fixes["utc_time"].to_numpy("datetime64[s]").astype(np.int64)
    ids = {}
    for name in ("user", "trace"):
        coded[name] = np.zeros(len(fixes), np.int32)
        if name in fixes:
            coded[name], ids[name] = pd.factorize(fixes[name])
    stays = _stays(pd.DataFrame(coded), settings)
    named = {name: values[coded[name][stays["fix"]]] for name, values in ids.items()}
    times = {name: stays[name].astype("datetime64[s]") for name in ("arrival", "departure")}
    return pd.DataFrame(named | {name: stays[name] for name in ("latitude", "longitude")} | times)


def _stays(fixes: pd.DataFrame, settings: StayPoints) -> dict[str, np.ndarray]:
    """First fix of each stay, mean latitude and longitude, arrival and departure in seconds.

    `fixes` has the columns user, trace (codes), latitude, longitude and utc_s, in any order.
    """
    columns = {name: fixes[name].to_numpy() for name in ("user", "trace", "latitude", "longitude", "utc_s")}
    order = np.lexsort((columns["utc_s"], columns["trace"], columns["user"]))
    user, trace, latitude, longitude, utc_s = (column[order] for column in columns.values())
    begins = run_begins(user, trace)
    begins[1:] |= np.diff(utc_s) > settings.max_gap_s
    first, stop = _Search(begins, np.radians(latitude), np.radians(longitude), utc_s, settings).stays()
    # Longitudes are counted from the first fix, so that a stay at the 180th meridian is not torn apart.
    east = longitude.copy()
    if len(first):
        east[first[0] :] -= np.repeat(longitude[first], np.diff(first, append=len(order)))
    # Ranges are in order and do not overlap.
    ends, n_fixes = np.stack([first, stop], 1).ravel(), stop - first
    north, east = (
        np.add.reduceat(np.append(each, 0.0), ends)[::2] / n_fixes if len(first) else np.zeros(0)
        for each in (latitude, _wrapped(east))
    )
    means = {"latitude": north, "longitude": _wrapped(longitude[first] + east)}
    return {"fix": order[first], **means, "arrival": utc_s[first], "departure": utc_s[stop - 1]}


def stays_as_checkins(
    connection: Connection, settings: StayPoints, time_zone: str, repeat_s: int | None, subject: str
) -> str:
    """Put the stays among the fixes of the table `checkins` into their place, as check-ins; a note on them.

    With `repeat_s`, a stay has a check-in in each instant of this many seconds, by the clocks of the zone, from the
    arrival to the departure. Without it, a stay has one check-in, at the arrival.
    """
    fixes = connection.sql("SELECT * FROM checkins ORDER BY user, trace, utc_s, row").df()
    stays = _stays(fixes, settings)
    n_stays, what = len(stays["arrival"]), f"{settings.duration_s:g} s within {settings.distance_m:g} m"
    if not n_stays:
        way_out = "Ask for a shorter stay or a larger distance, or leave stay points out"
        raise InputError(subject, [Problem(f"a stay of {what}", f"none in {len(fixes):,} fixes", way_out=way_out)])
    of_stay = fixes.iloc[stays["fix"]].assign(latitude=stays["latitude"], longitude=stays["longitude"])
    _put_presences(connection, of_stay, stays["arrival"], stays["departure"], time_zone, repeat_s)
    return f"{len(fixes):,} fixes became {n_stays:,} stays of {what} at least"


def visits_as_checkins(connection: Connection, time_zone: str, repeat_s: int | None, subject: str) -> Finding:
    """Put the visits of the table `checkins`, whose ends are rows or durations, into their place, as of stays."""
    columns = [name for name, *_ in connection.execute("DESCRIBE checkins").fetchall()]
    duration = "CAST(utc_s + duration_s AS BIGINT)" if "duration_s" in columns else "NULL"
    ends = f"SELECT row - {END_ROWS} AS row, utc_s AS end_s FROM checkins WHERE NOT {IS_BEGINNING}"
    visits = connection.sql(
        f"SELECT {', '.join(name for name in columns if name != 'duration_s')}, coalesce(end_s, {duration}) AS end_s "
        f"FROM (SELECT * FROM checkins WHERE {IS_BEGINNING}) LEFT JOIN ({ends}) USING (row) ORDER BY row"
    ).df()
    arrival = visits["utc_s"].to_numpy(np.int64)
    end_s = visits.pop("end_s")
    departure, n_open = end_s.fillna(visits["utc_s"]).to_numpy(np.int64), int(end_s.isna().sum())
    is_backward = departure < arrival
    n_backward = int(is_backward.sum())
    if 2 * n_backward > len(visits):
        way_out = Message(
            "Name the columns the other way round, such as ", Setting("columns", {"end_time": "departure"})
        )
        expected, code = "visits that end after they begin", "backward-visits"
        raise InputError(subject, [Problem(expected, "others", n_backward, way_out=way_out, code=code)])
    departure = np.where(is_backward, arrival, departure)
    n_presences = _put_presences(connection, visits, arrival, departure, time_zone, repeat_s)
    odd = {
        "have no end, and count at their beginning": n_open,
        "end before they begin, and count at their beginning": n_backward,
        f"last longer than {LONG_DAYS} days": int((departure - arrival > LONG_DAYS * DAY_S).sum()),
    }
    text = f"each row is a visit: {len(visits):,} visits are {n_presences:,} check-ins, at each instant"
    text += "".join(f"; {n:,} {what}" for what, n in odd.items() if n)
    return Finding(text, code="visits", n_rows=len(visits))


def _put_presences(
    connection: Connection,
    stays: pd.DataFrame,
    arrival: np.ndarray,
    departure: np.ndarray,
    time_zone: str,
    repeat_s: int | None,
) -> int:
    """Make `checkins` of the instants that stays cover, see `stays_as_checkins`; the number of these instants."""

    def local_of(utc_s: np.ndarray) -> np.ndarray:
        return local_times(pd.DatetimeIndex(utc_s.astype("datetime64[s]")), time_zone).astype(np.int64)

    everyone = np.arange(len(stays))
    stay, utc_s = everyone, arrival
    if repeat_s is not None:
        stay, later_s = begun_instants(local_of(arrival), departure - arrival, repeat_s)
        # The departure is added, because a change of the clocks during a stay shifts the instants.
        both = pd.DataFrame({"stay": np.append(stay, everyone), "utc": np.append(arrival[stay] + later_s, departure)})
        both = both.sort_values(["stay", "utc"], kind="stable")
        both = both.assign(instant=local_of(both["utc"].to_numpy()) // repeat_s).drop_duplicates(["stay", "instant"])
        stay, utc_s = both["stay"].to_numpy(), both["utc"].to_numpy()
    found = stays.iloc[stay].assign(local_s=local_of(utc_s), utc_s=utc_s, row=np.arange(len(stay)))
    connection.register("found_stays", found)
    connection.execute("CREATE OR REPLACE TABLE checkins AS SELECT * FROM found_stays")
    return len(stay)


def begun_instants(start_s: np.ndarray, duration_s: np.ndarray, step_s: int) -> tuple[np.ndarray, np.ndarray]:
    """The instants that stays cover: for each, the number of the stay, and the seconds since the start of the stay.

    A stay covers the instant of its start, and each instant that begins until its end: a stay from 08:50 to 09:40
    covers two instants of one hour. `start_s` are seconds of the clock by which instants begin.
    """
    to_next = step_s - start_s % step_s
    n_instants = 1 + np.maximum(0, (duration_s - to_next) // step_s + 1)
    stay = np.repeat(np.arange(len(start_s)), n_instants)
    number = rank_in_run(stay)
    return stay, np.where(number > 0, to_next[stay] + (number - 1) * step_s, 0)


class _Search(NamedTuple):
    """The search for stays among fixes (in radians) that are sorted by group (user, trace) and time.

    `begins` says which fixes begin a group.
    """

    begins: np.ndarray
    north: np.ndarray
    east: np.ndarray
    utc_s: np.ndarray
    settings: StayPoints

    def stays(self) -> tuple[np.ndarray, np.ndarray]:
        """Index of the first fix of each stay, and of the fix after its last fix."""
        n = len(self.utc_s)
        at = np.flatnonzero(self.begins)
        stop = np.append(at, n)[1:]
        candidates = np.append(self._candidates(stop), n)
        found = [(at[:0], at[:0])]
        # All groups at once, each from stay to stay.
        while len(at):
            at = candidates[np.searchsorted(candidates, at)]
            goes_on = at < stop
            at, stop = at[goes_on], stop[goes_on]
            end = self._first_outside(at, stop)
            lasts = self.utc_s[end - 1] - self.utc_s[at] >= self.settings.duration_s
            found.append((at[lasts], end[lasts]))
            at = np.where(lasts, end, at + 1)
        first, end = (np.concatenate(part) for part in zip(*found, strict=True))
        order = np.argsort(first)
        return first[order], end[order]

    def _candidates(self, stop_of_group: np.ndarray) -> np.ndarray:
        """Fixes that may begin a stay: the user is still near them after the duration and at some times before."""
        group, duration_s = np.cumsum(self.begins) - 1, self.settings.duration_s
        since = self.utc_s - self.utc_s.min(initial=0)
        # One clock for all groups: the next group begins long after the group before.
        clock = group * (int(since.max(initial=0)) + int(np.ceil(duration_s)) + 1) + since
        until = np.searchsorted(clock, clock + duration_s)
        candidate = np.flatnonzero(until < stop_of_group[group])
        for quarter in (4, 2, 1, 3):
            later = candidate + (until[candidate] - candidate) * quarter // 4
            candidate = candidate[self._is_near(candidate, later)]
        return candidate

    def _first_outside(self, at: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """The first later fix that is further away, or the end of the group."""
        end = at + 1
        open_ = np.arange(len(at))
        while len(open_):
            block = end[open_, None] + np.arange(N_AT_A_TIME)
            outside = block >= stop[open_, None]
            outside |= ~self._is_near(at[open_, None], np.minimum(block, len(self.utc_s) - 1))
            n_inside = np.where(outside.any(1), outside.argmax(1), N_AT_A_TIME)
            end[open_] += n_inside
            open_ = open_[n_inside == N_AT_A_TIME]
        return end

    def _is_near(self, fix: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Whether fixes are within the distance, on a plane; the error is about a metre over some kilometres."""
        north = self.north[other] - self.north[fix]
        east = (self.east[other] - self.east[fix] + np.pi) % (2 * np.pi) - np.pi
        east = east * np.cos((self.north[other] + self.north[fix]) / 2)
        return north**2 + east**2 <= (self.settings.distance_m / (1000 * EARTH_RADIUS_KM)) ** 2


def _wrapped(degrees: np.ndarray) -> np.ndarray:
    """The same angles, from -180 to 180."""
    return (degrees + 180) % 360 - 180
