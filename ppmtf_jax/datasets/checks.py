"""Checks of coordinates against the time zone and the places: swapped, in radians, in another zone, scattered."""

from __future__ import annotations

import importlib.util
import re
import zoneinfo
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from ppmtf_jax.data.places import EARTH_RADIUS_KM, PlaceTable
from ppmtf_jax.datasets.places import OUTSIDE, Assigned, GridPlaces, MostVisited, PlaceChoice
from ppmtf_jax.errors import N_EXAMPLES, InputError, Message, Problem, Setting

# Legal clocks are within about three hours of solar time, as in the far west of China; UTC and foreign zones differ
# more.
MAX_SUN_H = 4
MAX_SCATTER_DEGREES, MAX_FAR_SHARE = 0.5, 0.25
# Coordinates are suspected if they are further than this from the city of their time zone, and another way to read them
# gives a point that is this many times nearer.
NEAR_ZONE_KM, TIMES_NEARER = 1000, 3
# Tables of the time zone database; a line has countries, latitude and longitude as +-DDMM[SS]+-DDDMM[SS], and a name.
ZONE_TABLES = ("zone.tab", "zone1970.tab")
ZONE_LINE = re.compile(r"^[A-Z,]+\t([+-]\d{4,7})([+-]\d{5,7})\t(\S+)", re.MULTILINE)


def suspicions(rows: pd.DataFrame, choice: PlaceChoice, assigned: Assigned, time_zone: str, subject: str) -> list[str]:
    """Notes on coordinates of coded check-ins that look odd; an `InputError` where they look wrong."""
    if isinstance(choice, GridPlaces):
        problem = _off_grid(rows, choice, assigned.why != OUTSIDE)
        if problem is not None:
            raise InputError(subject, [problem])
    own = assigned.why == 0
    rows, place = (rows, assigned.place) if own.all() else (rows[own], assigned.place[own])
    local_s = rows["local"].to_numpy().astype(np.int64)
    columns = {name: rows[name].to_numpy() for name in ("latitude", "longitude")}
    found = [_clocks_and_sun(**columns, offset_h=(local_s - rows["utc_s"].to_numpy()) / 3600, time_zone=time_zone)]
    if isinstance(choice, MostVisited):
        found.append(_scattered_places(**columns, place=place, places=assigned.places))
    problems = [each for each in found if isinstance(each, Problem)]
    if problems:
        raise InputError(subject, problems)
    return [note for note in found if isinstance(note, str)]


def _off_grid(rows: pd.DataFrame, grid: GridPlaces, inside: np.ndarray) -> Problem | None:
    """A problem where no check-in is within the box, or most would be if latitude and longitude were swapped."""
    latitude, longitude = (rows[name].to_numpy() for name in ("latitude", "longitude"))
    n_inside, n_rows = int(inside.sum()), len(inside)
    n_if_swapped = 0 if 2 * n_inside > n_rows else int((grid.place_of(longitude, latitude) >= 0).sum())
    if n_inside and n_if_swapped <= max(n_rows / 2, n_inside):
        return None
    span = f"latitudes {latitude.min()} to {latitude.max()}, longitudes {longitude.min()} to {longitude.max()}"
    found = span + (f", {n_inside:,} within" if n_inside else ", so that nothing is left after filtering")
    swapped, other = "Latitude and longitude are probably swapped", "Choose a box that holds the check-ins"
    way_out = swapped if n_if_swapped else other
    return Problem("check-ins within the bounding box", found, n_rows - n_inside, way_out=way_out)


def _clocks_and_sun(
    latitude: np.ndarray, longitude: np.ndarray, offset_h: np.ndarray, time_zone: str
) -> Problem | str | None:
    """Check-ins that do not fit their time zone, or have coordinates swapped or in radians: a problem or a note.

    `offset_h` is by how many hours their clocks are before UTC; arrays have the shape (rows,).
    """
    far = ~_is_by_the_sun(longitude, offset_h)
    n_far = int(far.sum())
    city = _cities().get(time_zone)  # None if it is not known, as for UTC
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
            return Problem("latitude and longitude in degrees", found, len(latitude), way_out=way_out)
    way_out = "Latitude and longitude are probably swapped, or the times are of another zone"
    if n_far > len(far) / 2 and offset_h.any() and _is_by_the_sun(latitude, offset_h).mean() > 0.5:
        found = f"longitudes such as {longitude[far][0]:g}, where it is another time of day, and latitudes that fit"
        return Problem(f"longitudes that fit the clocks of {time_zone}", found, n_far, way_out=way_out)
    if city is not None and _is_far_nearer(middle[::-1], middle, city):
        given_km, swapped_km = (_distance_km(point, city) for point in (middle, middle[::-1]))
        found = f"their middle at {middle[0]:g}, {middle[1]:g}: {given_km:,.0f} km away, {swapped_km:,.0f} if swapped"
        return Problem(f"check-ins near {time_zone}", found, len(latitude), way_out=way_out)
    if not n_far:
        return None
    what = f"{n_far:,} of {len(far):,} check-ins are where the sun is over {MAX_SUN_H} h off the clocks of {time_zone}"
    return f"{what}: they are in other time zones, where night falls in other slots"


def _scattered_places(
    latitude: np.ndarray, longitude: np.ndarray, place: np.ndarray, places: PlaceTable
) -> Problem | str | None:
    """Places whose check-ins are far from their middle: a problem if many check-ins are far, a note if few are."""
    north = latitude - places.latitude[place]
    east = (longitude - places.longitude[place] + 180) % 360 - 180
    far = np.hypot(north, east * np.cos(np.radians(latitude))) > MAX_SCATTER_DEGREES
    if not far.any():
        return None
    scattered, n_rows = np.unique(place[far]), np.bincount(place)
    n_several = int((n_rows > 1).sum())
    examples = tuple(
        f"{places.ids[k]!r} at latitudes {latitude[place == k].min():g} to {latitude[place == k].max():g}, "
        f"longitudes {longitude[place == k].min():g} to {longitude[place == k].max():g}"
        for k in scattered[:N_EXAMPLES]
    )
    found = f"{len(scattered):,} of {n_several:,} places of several check-ins scattered further"
    # The share of check-ins decides, not of places: with many check-ins, every place has some at a wrong position.
    if far.sum() <= MAX_FAR_SHARE * n_rows[n_rows > 1].sum():
        note = f"than {MAX_SCATTER_DEGREES} degrees ({examples[0]}); each is put at the middle of its check-ins"
        return f"{found} {note}"
    expected = f"check-ins within {MAX_SCATTER_DEGREES} degrees of the middle of their place"
    way_out = Message(
        "Check that it is a column of places, and that the coordinates are those of the check-ins. If the places "
        "are large regions, give each its coordinates in a table, with ",
        Setting("stations", "regions.csv"),
        ", or use the cells of a grid, with ",
        Setting("grid"),
    )
    return Problem(expected, found, int(far.sum()), examples, way_out)


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
    """Whether `given` is far from the time zone's city, and another reading of the point is much nearer."""
    given_km = _distance_km(given, city)
    return given_km > NEAR_ZONE_KM and TIMES_NEARER * _distance_km(other, city) < given_km


def _distance_km(point: tuple[float, float], other: tuple[float, float]) -> float:
    """Great-circle distance in kilometres; infinite if `point` is not on the globe."""
    if abs(point[0]) > 90:
        return np.inf
    north, east, south, west = np.radians([*point, *other])
    cosine = np.sin(north) * np.sin(south) + np.cos(north) * np.cos(south) * np.cos(east - west)
    return float(EARTH_RADIUS_KM * np.arccos(np.clip(cosine, -1, 1)))


def _is_by_the_sun(longitude: np.ndarray, offset_h: np.ndarray) -> np.ndarray:
    return np.abs((offset_h - longitude / 15 + 12) % 24 - 12) <= MAX_SUN_H
