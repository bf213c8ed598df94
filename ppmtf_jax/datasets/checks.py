"""What looks wrong with check-ins: single rows that are no check-ins, and tables whose columns are mixed up."""

from __future__ import annotations

import importlib.util
import re
import zoneinfo
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from ppmtf_jax.data.places import EARTH_RADIUS_KM, PlaceTable
from ppmtf_jax.datasets.tables import row_names, row_problems
from ppmtf_jax.errors import N_EXAMPLES, InputError, Message, Problem, Setting

# Clocks are set within three hours of the sun's, in the far west of China say; UTC and foreign zones are further off.
MAX_SUN_H = 4
MAX_SCATTER_DEGREES, MAX_FAR_SHARE = 0.5, 0.25
# Within this distance of the city of their time zone coordinates are not suspected; beyond, they are if another way to
# read them gives a point this many times nearer.
NEAR_ZONE_KM, TIMES_NEARER = 1000, 3
MAX_EMPTY_DAYS = 5 * 365
STRAY_SHARE = 0.01
LIMITS = {"latitude": 90, "longitude": 180}
# Tables of the time zone database; a line has countries, latitude and longitude as +-DDMM[SS]+-DDDMM[SS], and a name.
ZONE_TABLES = ("zone.tab", "zone1970.tab")
ZONE_LINE = re.compile(r"^[A-Z,]+\t([+-]\d{4,7})([+-]\d{5,7})\t(\S+)", re.MULTILINE)


class BadRows(NamedTuple):
    """Rows that are no check-ins (bool array of shape (rows,)), and the problem with them."""

    problem: Problem
    rows: np.ndarray


def bad_rows(checkins: pd.DataFrame, untimed: Sequence[Problem] = ()) -> list[BadRows]:
    """Rows without a user, place, time or coordinates on the globe, or years away from all others.

    `untimed` are the problems that the reader found in rows without a time.
    """
    no_time = (checkins["local_time"].isna() | checkins["utc_time"].isna()).to_numpy(bool)
    missing = _missing(checkins["user"], no_time, "a time for every check-in", "missing times")
    found = [BadRows(problem, no_time) for problem in untimed] if len(untimed) and missing else missing
    for name in ("user", "place", "trace"):
        if name in checkins:
            missing = checkins[name].isna().to_numpy(bool)
            found += _missing(checkins[name], missing, f"a {name} for every check-in", "missing ones")
    for name, limit in LIMITS.items():
        found += _off_the_globe(checkins[name], limit)
    return found + _stray_times(checkins["local_time"], ~no_time)


def without_bad_rows(
    checkins: pd.DataFrame, found: Sequence[BadRows], skipped: Sequence[Problem], subject: str
) -> tuple[pd.DataFrame, int, list[str]]:
    """The good rows, how many were left out, and a note on each kind of bad rows; an error if most rows are bad.

    `skipped` are problems of rows that are not in the table.
    """
    bad = np.any([each.rows for each in found], axis=0) if found else np.zeros(len(checkins), bool)
    n_skipped = sum(problem.n_rows for problem in skipped)
    n_rows, n_bad = len(checkins) + n_skipped, int(bad.sum()) + n_skipped
    problems = [*skipped, *(each.problem for each in found)]
    if n_bad > n_rows / 2:
        way_out = "Check the columns and the format of the times: the table is probably read in a wrong way"
        most = Problem("bad rows to be a few", f"{n_bad:,} of {n_rows:,}", way_out=way_out)
        raise InputError(subject, [*problems, most])
    notes = [f"bad rows left out: {replace(problem, way_out='')}" for problem in problems]
    return checkins[~bad] if bad.any() else checkins, n_bad, notes


def twice_the_same(checkins: pd.DataFrame) -> list[Problem]:
    """A problem where latitude and longitude are the same numbers."""
    latitude, longitude = degrees(checkins)
    if not (latitude == longitude).all() or latitude.min() == latitude.max():
        return []
    return [Problem("latitude and longitude", "the same numbers in both", len(latitude))]


def clocks_and_sun(
    latitude: np.ndarray, longitude: np.ndarray, local: np.ndarray, utc_s: np.ndarray, time_zone: str
) -> tuple[list[Problem], list[str]]:
    """Problems and notes on check-ins that do not fit their time zone, or have coordinates swapped or in radians.

    `local` is datetime64[s], `utc_s` seconds since 1970; all arrays have the shape (rows,).
    """
    offset_h = (local.astype(np.int64) - utc_s) / 3600
    far = ~_is_by_the_sun(longitude, offset_h)
    n_far = int(far.sum())
    city = zone_city(time_zone)
    middle = float(np.median(latitude)), float(np.median(longitude))
    north, east = np.abs(latitude).max(), np.abs(longitude).max()
    if max(north, east) > 0 and north <= np.pi / 2 and east <= np.pi:
        # This box lies in the Gulf of Guinea. It has no land, but ships, and simulated cities of small coordinates.
        converted = float(np.degrees(middle[0])), float(np.degrees(middle[1]))
        if city is None or any(_is_far_nearer(point, middle, city) for point in (converted, converted[::-1])):
            found = f"at most {north:.3g} and {east:.3g}, where there is no land"
            way_out = Message(
                "Convert radians to degrees; if they are degrees, choose a zone that is near, such as ",
                Setting("time_zone", "Africa/Accra"),
                ", whose clocks show UTC",
            )
            return [Problem("latitude and longitude in degrees", found, len(latitude), way_out=way_out)], []
    way_out = "Latitude and longitude are probably swapped, or the times are of another zone"
    if n_far > len(far) / 2 and offset_h.any() and _is_by_the_sun(latitude, offset_h).mean() > 0.5:
        found = f"longitudes such as {longitude[far][0]:g}, where it is another time of day, and latitudes that fit"
        return [Problem(f"longitudes that fit the clocks of {time_zone}", found, n_far, way_out=way_out)], []
    if city is not None and _is_far_nearer(middle[::-1], middle, city):
        given_km, swapped_km = (_distance_km(point, city) for point in (middle, middle[::-1]))
        found = f"their middle at {middle[0]:g}, {middle[1]:g}: {given_km:,.0f} km away, {swapped_km:,.0f} if swapped"
        return [Problem(f"check-ins near {time_zone}", found, len(latitude), way_out=way_out)], []
    if not n_far:
        return [], []
    what = f"{n_far:,} of {len(far):,} check-ins are where the sun is over {MAX_SUN_H} h off the clocks of {time_zone}"
    return [], [f"{what}: in other zones, whose nights are other slots"]


def scattered_places(
    latitude: np.ndarray, longitude: np.ndarray, place: np.ndarray, places: PlaceTable
) -> tuple[list[Problem], list[str]]:
    """Places whose check-ins are far from their middle: a problem if many check-ins are so, a note if a few are."""
    north = latitude - places.latitude[place]
    east = (longitude - places.longitude[place] + 180) % 360 - 180
    far = np.hypot(north, east * np.cos(np.radians(latitude))) > MAX_SCATTER_DEGREES
    scattered = np.unique(place[far])
    n_rows = np.bincount(place)
    n_several = int((n_rows > 1).sum())
    if not len(scattered):
        return [], []
    examples = tuple(
        f"{places.ids[k]!r} at latitudes {latitude[place == k].min():g} to {latitude[place == k].max():g}, "
        f"longitudes {longitude[place == k].min():g} to {longitude[place == k].max():g}"
        for k in scattered[:N_EXAMPLES]
    )
    found = f"{len(scattered):,} of {n_several:,} places of several check-ins scattered further"
    # The share of check-ins and not of places: with many check-ins, each place has one with a wrong position.
    if far.sum() > MAX_FAR_SHARE * n_rows[n_rows > 1].sum():
        expected = f"check-ins within {MAX_SCATTER_DEGREES} degrees of the middle of their place"
        way_out = Message(
            "Check that it is a column of places, and that the coordinates are those of the check-ins. If the places "
            "are large regions, give each its coordinates in a table, with ",
            Setting("stations", "regions.csv"),
            ", or use the cells of a grid, with ",
            Setting("grid"),
        )
        return [Problem(expected, found, int(far.sum()), examples, way_out)], []
    return [], [
        f"{found} than {MAX_SCATTER_DEGREES} degrees ({examples[0]}); each is where the middle of its check-ins is"
    ]


def degrees(checkins: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Latitude and longitude as numbers."""
    latitude, longitude = (pd.to_numeric(checkins[name]).to_numpy(np.float64) for name in LIMITS)
    return latitude, longitude


def zone_city(time_zone: str) -> tuple[float, float] | None:
    """Latitude and longitude of a zone's city; None where they are not known, as of UTC."""
    return _cities().get(time_zone)


@cache
def _cities() -> dict[str, tuple[float, float]]:
    folders = [Path(folder) for folder in zoneinfo.TZPATH]
    package = importlib.util.find_spec("tzdata")
    if package is not None and package.origin:
        folders.append(Path(package.origin).parent / "zoneinfo")
    files = [folder / name for folder in folders for name in ZONE_TABLES if (folder / name).is_file()]
    lines = [line for file in files for line in ZONE_LINE.findall(file.read_text("utf-8"))]
    return {name: (_as_degrees(latitude, 2), _as_degrees(longitude, 3)) for latitude, longitude, name in lines}


def _as_degrees(text: str, n_digits: int) -> float:
    sign, degrees, rest = text[0], text[1 : 1 + n_digits], text[1 + n_digits :].ljust(4, "0")
    value = int(degrees) + int(rest[:2]) / 60 + int(rest[2:]) / 3600
    return -value if sign == "-" else value


def _is_far_nearer(other: tuple[float, float], given: tuple[float, float], city: tuple[float, float]) -> bool:
    """Whether another reading of a point is much nearer to the city of the time zone, and the given one is far."""
    given_km = _distance_km(given, city)
    return given_km > NEAR_ZONE_KM and TIMES_NEARER * _distance_km(other, city) < given_km


def _distance_km(point: tuple[float, float], other: tuple[float, float]) -> float:
    """Along a great circle; infinite where the point is not on the globe."""
    if abs(point[0]) > LIMITS["latitude"]:
        return np.inf
    north, east, south, west = np.radians([*point, *other])
    cosine = np.sin(north) * np.sin(south) + np.cos(north) * np.cos(south) * np.cos(east - west)
    return float(EARTH_RADIUS_KM * np.arccos(np.clip(cosine, -1, 1)))


def _is_by_the_sun(longitude: np.ndarray, offset_h: np.ndarray) -> np.ndarray:
    return np.abs((offset_h - longitude / 15 + 12) % 24 - 12) <= MAX_SUN_H


def _missing(column: pd.Series, missing: np.ndarray, expected: str, found: str) -> list[BadRows]:
    rows = np.flatnonzero(missing)
    return [BadRows(Problem(expected, found, len(rows), row_names(column, rows)), missing)] if len(rows) else []


def _off_the_globe(column: pd.Series, limit: int) -> list[BadRows]:
    number = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    finite = np.isfinite(number)
    outside = finite & (np.abs(number) > limit)
    swapped = column.name == "latitude" and (np.abs(number[outside]) <= 180).all()
    way_out = "Latitude and longitude are probably swapped" if swapped else ""
    expected = f"{column.name} from {-limit} to {limit} degrees"
    no_number = row_problems(column, ~finite, f"{column.name} as a number")
    found = [BadRows(problem, ~finite) for problem in no_number]
    off = row_problems(pd.Series(number, column.index), outside, expected, way_out=way_out)
    return found + [BadRows(problem, outside) for problem in off]


def _stray_times(local: pd.Series, known: np.ndarray) -> list[BadRows]:
    """A few rows years away from the others: their dates are wrong, and would stretch the time grid over the years."""
    day = local.to_numpy("datetime64[D]").astype(np.int64)
    days, n_rows = np.unique(day[known], return_counts=True)
    group = np.cumsum(np.diff(days, prepend=days[:1]) > MAX_EMPTY_DAYS)
    if not len(group) or not group[-1]:
        return []
    in_group = np.bincount(group, weights=n_rows)
    most = days[group == in_group.argmax()]
    n_stray = int(in_group.sum() - in_group.max())
    if n_stray > max(1, STRAY_SHARE * in_group.sum()) or n_stray >= in_group.max():
        return []
    stray = known & ((day < most[0]) | (day > most[-1]))
    span = " to ".join(most[[0, -1]].astype("datetime64[D]").astype(str))
    way_out = Message("Correct them, or leave them out with ", Setting("drop_bad_rows", True))
    examples = tuple(
        f"{time} ({name})"
        for time, name in zip(
            local.to_numpy("datetime64[s]")[stray][:N_EXAMPLES], row_names(local, np.flatnonzero(stray)), strict=True
        )
    )
    problem = Problem(f"times near those of the other rows, {span}", "a few years away", n_stray, examples, way_out)
    return [BadRows(problem, stray)]
