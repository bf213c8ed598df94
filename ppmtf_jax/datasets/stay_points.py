"""Stay points: where somebody stayed, out of the fixes of a receiver."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ppmtf_jax.data.places import EARTH_RADIUS_KM
from ppmtf_jax.datasets.tables import codes_of
from ppmtf_jax.datasets.times import local_times
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.settings import Positive, Settings

Number = int | float
N_AT_A_TIME = 256


@dataclass(frozen=True)
class StayPoints(Settings, subject="stay points"):
    """What counts as a stay: fixes within some distance of the first of them, over some time at least.

    Parameters
    ----------
    distance_m : float
    duration_s : float
    max_gap_s : float
        No stay goes over a longer time without a fix: whoever is at home again after a month has been elsewhere. By
        default half a day, so that a night without a signal is part of a stay.

    Raises
    ------
    InputError
        They are not positive.

    References
    ----------
    .. [1] Li, Zheng, Xie, Chen, Liu, Ma: Mining User Similarity Based on Location History, GIS 2008. There 200 m and
       30 minutes; 20 minutes are as usual.
    """

    distance_m: Positive = 200
    duration_s: Positive = 1200
    max_gap_s: Positive = 43_200


def find_stay_points(fixes: pd.DataFrame, settings: StayPoints = StayPoints()) -> pd.DataFrame:
    """Where users stayed, for how long.

    From each fix on, those that follow it within the distance are one group; if it lasts, it is a stay, and the search
    goes on behind it, else from the next fix. This is the definition of Li et al. 2008; their algorithm counts the
    first fix beyond the distance, too, so that a gap in the recording becomes a stay.

    Parameters
    ----------
    fixes : DataFrame
        Columns user, latitude, longitude, utc_time and, optionally, trace, beyond which no stay goes; in any order.
    settings : StayPoints

    Returns
    -------
    DataFrame
        Columns user, trace where there is one, latitude, longitude (means of the fixes), arrival, departure (UTC),
        users and traces in the order of their first rows.

    Notes
    -----
    trackintel's sliding search differs at the same thresholds, in four rules and no others. Where fixes are no stay it
    goes on from the first that is further away, and so does not find stays that begin before that. The next fix counts
    for the duration, as in the algorithm of Li et al. A group that a gap ends is no stay. And the place is the mean of
    the distinct positions. Of four users of Geolife it finds 342 stays where there are 269 here: 140 of its stays last
    long enough only with the next fix.

    Examples
    --------
    >>> minutes = pd.Timestamp("2024-01-01") + pd.to_timedelta([0, 10, 20, 30, 40], unit="min")
    >>> fixes = pd.DataFrame({"user": 7, "latitude": [35.0, 35.0, 35.001, 35.1, 35.2], "longitude": 139.7})
    >>> stays = find_stay_points(fixes.assign(utc_time=minutes))
    >>> stays["latitude"].round(5).tolist(), (stays["departure"] - stays["arrival"]).dt.seconds.tolist()
    ([35.00033], [1200])
    """
    user, user_ids = codes_of(fixes["user"])
    trace, trace_ids = codes_of(fixes["trace"]) if "trace" in fixes else (np.zeros(len(fixes), np.int32), None)
    utc_s = fixes["utc_time"].to_numpy("datetime64[s]").astype(np.int64)
    order = np.lexsort((utc_s, trace, user))
    user, trace, utc_s = user[order], trace[order], utc_s[order]
    latitude, longitude = (fixes[name].to_numpy(np.float64)[order] for name in ("latitude", "longitude"))
    begins = (np.diff(user, prepend=-1) != 0) | (np.diff(trace, prepend=-1) != 0)
    begins = np.flatnonzero(begins | (np.diff(utc_s, prepend=utc_s[:1]) > settings.max_gap_s))
    first, stop = _Search(begins, latitude, longitude, utc_s, settings).stays()
    n_fixes = stop - first
    # From the first fix and not from a meridian, so that no stay is torn where longitudes begin.
    of_stay = np.repeat(first, np.diff(first, append=len(order)))
    east = _wrapped(longitude[len(order) - len(of_stay) :] - longitude[of_stay])
    east = np.concatenate([np.zeros(len(order) - len(of_stay)), east])
    columns: dict[str, object] = {"user": user_ids[user[first]]}
    if trace_ids is not None:
        columns["trace"] = trace_ids[trace[first]]
    columns["latitude"] = _sums(latitude, first, stop) / n_fixes
    columns["longitude"] = _wrapped(longitude[first] + _sums(east, first, stop) / n_fixes)
    columns["arrival"], columns["departure"] = (utc_s[at].astype("datetime64[s]") for at in (first, stop - 1))
    return pd.DataFrame(columns)


def stays_as_checkins(
    fixes: pd.DataFrame, settings: StayPoints, time_zone: str, repeat_s: int | None, subject: str
) -> tuple[pd.DataFrame, str]:
    """Stays as check-ins for `discretize`, and a note on them.

    Parameters
    ----------
    repeat_s : int or None
        A check-in in each instant of so many seconds, by the clocks of the zone, from that of the arrival to that of
        the departure; None: at the arrival alone.

    Raises
    ------
    InputError
        Nobody stays anywhere.
    """
    stays = find_stay_points(fixes, settings)
    what = f"{settings.duration_s:g} s within {settings.distance_m:g} m"
    if not len(stays):
        way_out = "Ask for a shorter stay or a larger distance, or leave stay points out"
        raise InputError(subject, [Problem(f"a stay of {what}", f"none in {len(fixes):,} fixes", way_out=way_out)])
    arrival, departure = (
        stays.pop(name).to_numpy("datetime64[s]").astype(np.int64) for name in ("arrival", "departure")
    )
    stay, utc = np.arange(len(stays)), arrival
    if repeat_s is not None:
        local = local_times(pd.DatetimeIndex(arrival.astype("datetime64[s]")), time_zone).astype(np.int64)
        stay, later_s = begun_instants(local, departure - arrival, repeat_s)
        # The departure too: clocks that change in between shift the instants.
        stay, utc = np.append(stay, np.arange(len(stays))), np.append(arrival[stay] + later_s, departure)
        order = np.lexsort((utc, stay))
        stay, utc = stay[order], utc[order]
    utc = utc.astype("datetime64[s]")
    checkins = stays.loc[stay].reset_index(drop=True)
    checkins["local_time"], checkins["utc_time"] = local_times(pd.DatetimeIndex(utc), time_zone), utc
    if repeat_s is not None:
        instant = checkins["local_time"].to_numpy("datetime64[s]").astype(np.int64) // repeat_s
        again = pd.DataFrame({"stay": stay, "instant": instant}).duplicated().to_numpy()
        checkins = checkins[~again].reset_index(drop=True)
    return checkins, f"{len(fixes):,} fixes became {len(stays):,} stays of {what} at least"


def begun_instants(start_s: np.ndarray, duration_s: np.ndarray, step_s: int) -> tuple[np.ndarray, np.ndarray]:
    """The instants that stays cover: each stay at its start, and whenever an instant begins until its end.

    Parameters
    ----------
    start_s : int array, shape (stays,)
        Seconds by the clock that instants begin by.
    duration_s : int array, shape (stays,)
        An instant that begins at the very end is covered.
    step_s : int
        Seconds from one instant to the next.

    Returns
    -------
    stay, later_s : int arrays, shape (instants covered,)
        Which stay, and how long after its start.

    Examples
    --------
    From 08:50 to 09:40 are two hours of the day, though less than one hour.

    >>> stay, later_s = begun_instants(np.array([8 * 3600 + 50 * 60]), np.array([50 * 60]), 3600)
    >>> (later_s // 60).tolist()
    [0, 10]
    """
    to_next = step_s - start_s % step_s
    n_instants = 1 + np.maximum(0, (duration_s - to_next) // step_s + 1)
    stay = np.repeat(np.arange(len(start_s)), n_instants)
    number = np.arange(len(stay)) - np.repeat(np.cumsum(n_instants) - n_instants, n_instants)
    return stay, np.where(number > 0, to_next[stay] + (number - 1) * step_s, 0)


class _Search:
    """The search for stays among fixes that are sorted by group (user, trace) and time."""

    def __init__(
        self, begins: np.ndarray, latitude: np.ndarray, longitude: np.ndarray, utc_s: np.ndarray, settings: StayPoints
    ):
        self.begins, self.n = begins, len(utc_s)
        self.north, self.east = np.radians(latitude), np.radians(longitude)
        self.utc_s, self.distance_m, self.duration_s = utc_s, settings.distance_m, settings.duration_s
        self.stop_of_group = np.append(begins, self.n)[1:]

    def stays(self) -> tuple[np.ndarray, np.ndarray]:
        """First fix of each stay, and the one behind its last."""
        candidates = self._candidates()
        at, stop = self.begins, self.stop_of_group
        found = [(at[:0], at[:0])]
        # All groups at once, each from stay to stay.
        while len(at):
            which = np.searchsorted(candidates, at)
            at = candidates[np.minimum(which, len(candidates) - 1)] if len(candidates) else at
            goes_on = (which < len(candidates)) & (at < stop)
            at, stop = at[goes_on], stop[goes_on]
            end = self._first_outside(at, stop)
            lasts = self.utc_s[end - 1] - self.utc_s[at] >= self.duration_s
            found.append((at[lasts], end[lasts]))
            at = np.where(lasts, end, at + 1)
        first, end = (np.concatenate(part) for part in zip(*found, strict=True))
        order = np.argsort(first)
        return first[order], end[order]

    def _candidates(self) -> np.ndarray:
        """Fixes that may begin a stay: after the duration, and at some times before, the user is near them still."""
        stop = np.repeat(self.stop_of_group, np.diff(self.begins, append=self.n))
        since = self.utc_s - self.utc_s.min(initial=0)
        group = np.repeat(np.arange(len(self.begins)), np.diff(self.begins, append=self.n))
        # One clock for all: whoever comes next begins long after the one before.
        clock = group * (int(since.max(initial=0)) + int(np.ceil(self.duration_s)) + 1) + since
        until = np.searchsorted(clock, clock + self.duration_s)
        candidate = np.flatnonzero(until < stop)
        for quarter in (4, 2, 1, 3):
            later = candidate + (until[candidate] - candidate) * quarter // 4
            candidate = candidate[self._is_near(candidate, later)]
        return candidate

    def _first_outside(self, at: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """The first fix behind each that is further away, or where its group ends."""
        end = at + 1
        open_ = np.arange(len(at))
        while len(open_):
            block = end[open_, None] + np.arange(N_AT_A_TIME)
            outside = block >= stop[open_, None]
            outside |= ~self._is_near(at[open_, None], np.minimum(block, self.n - 1))
            n_inside = np.where(outside.any(1), outside.argmax(1), N_AT_A_TIME)
            end[open_] += n_inside
            open_ = open_[n_inside == N_AT_A_TIME]
        return end

    def _is_near(self, fix: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Whether fixes are within the distance, on a plane: right to a metre in kilometres."""
        north = self.north[other] - self.north[fix]
        east = (self.east[other] - self.east[fix] + np.pi) % (2 * np.pi) - np.pi
        east = east * np.cos((self.north[other] + self.north[fix]) / 2)
        return north**2 + east**2 <= (self.distance_m / (1000 * EARTH_RADIUS_KM)) ** 2


def _wrapped(degrees: np.ndarray) -> np.ndarray:
    """From -180 to 180."""
    return (degrees + 180) % 360 - 180


def _sums(values: np.ndarray, first: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Sums over the ranges from `first` to `stop`, which are in order and apart."""
    if not len(first):
        return np.zeros(0)
    return np.add.reduceat(np.append(values, 0.0), np.stack([first, stop], 1).ravel())[::2]
