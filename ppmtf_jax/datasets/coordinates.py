"""Judgements on coordinates by the time zone and the places: swapped, in radians, in another zone, scattered.

No message has a position: it would be that of a person.
"""

from __future__ import annotations

import importlib.util
import re
import zoneinfo
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from ppmtf_jax.data.places import EARTH_RADIUS_KM, PlaceTable
from ppmtf_jax.datasets.coded_checkins import CheckIns
from ppmtf_jax.datasets.places import OUTSIDE, Assigned, GridPlaces, MostVisited, PlaceChoice
from ppmtf_jax.errors import N_EXAMPLES, Finding, InputError, Message, Problem, Setting, quoted, raise_any

# Legal clocks are within about three hours of solar time, as in the far west of China; other zones differ more.
MAX_SUN_H = 4
MAX_SCATTER_DEGREES, MAX_FAR_SHARE = 0.5, 0.25
DEGREE_KM = float(np.radians(EARTH_RADIUS_KM))
# Further from the middle of its place, a check-in is at another place, or its position is wrong.
APART_KM = 2
# Coordinates are suspected if they are further than this from the city of their time zone, and another way to read them
# gives a point that is this many times nearer.
ROWS_OF_MIDDLE = 1_000_000
NEAR_ZONE_KM, TIMES_NEARER = 1000, 3
# Tables of the time zone database; a line has countries, latitude and longitude as +-DDMM[SS]+-DDDMM[SS], and a name.
ZONE_TABLES = ("zone.tab", "zone1970.tab")
ZONE_LINE = re.compile(r"^[A-Z,]+\t([+-]\d{4,7})([+-]\d{5,7})\t(\S+)", re.MULTILINE)


def suspicions(
    checkins: CheckIns, choice: PlaceChoice, assigned: Assigned, time_zone: str, subject: str
) -> list[Finding]:
    """Notes on coordinates of coded check-ins that look odd; an `InputError` where they look wrong."""
    connection = checkins.rows.connection
    if isinstance(choice, GridPlaces):
        problem = _off_grid(checkins, choice, int(assigned.n_left_out[OUTSIDE]))
        if problem is not None:
            raise InputError(subject, [problem])
    connection.execute(
        "CREATE OR REPLACE VIEW own AS SELECT coded_places.* REPLACE (goes.place AS place) "
        "FROM coded_places JOIN goes ON goes.code = coded_places.place WHERE why = 0"
    )
    found = [_clocks_and_sun(checkins, time_zone)]
    if isinstance(choice, MostVisited):
        found.append(_scattered_places(checkins, assigned.places))
    problems = [each for each in found if isinstance(each, Problem)]
    raise_any(subject, problems)
    return [note for note in found if isinstance(note, Finding)]


def _off_grid(checkins: CheckIns, grid: GridPlaces, n_outside: int) -> Problem | None:
    """A problem where no check-in is within the box, or most would be if latitude and longitude were swapped."""
    n_rows, *middle = checkins.rows.one("SELECT count(*), median(latitude), median(longitude) FROM checkins")
    n_inside = n_rows - n_outside
    swapped = "SELECT longitude AS latitude, latitude AS longitude FROM checkins"
    count = f"SELECT count(*) FROM ({swapped}) WHERE {grid.cell()} >= 0"
    n_if_swapped = 0 if 2 * n_inside > n_rows else checkins.rows.one(count)[0]
    if n_inside and n_if_swapped <= max(n_rows / 2, n_inside):
        return None
    box_middle = (grid.south + grid.north) / 2, (grid.west + grid.east) / 2
    away_km = _distance_km((middle[0], middle[1]), box_middle)
    found = f"{n_inside:,} within; the middle of all is {away_km:,.0f} km from that of the box"
    swapped, other = "Latitude and longitude are probably swapped", "Choose a box that holds the check-ins"
    way_out, code = (swapped, "swapped") if n_if_swapped else (other, "off-grid")
    return Problem("check-ins within the bounding box", found, n_rows - n_inside, way_out=way_out, code=code)


def _clocks_and_sun(checkins: CheckIns, time_zone: str) -> Problem | Finding | None:
    """Check-ins that do not fit their time zone, or have coordinates swapped or in radians: a problem or a note."""
    by_the_sun = {
        axis: f"abs(fmod((local_s - utc_s) / 3600 - {axis} / 15 + 36, 24) - 12) <= {MAX_SUN_H}"
        for axis in ("latitude", "longitude")
    }
    far = f"NOT {by_the_sun['longitude']}"
    n_rows, n_far, n_by_latitude, is_off_utc, north, east = checkins.rows.one(
        f"SELECT count(*), count(*) FILTER ({far}), count(*) FILTER ({by_the_sun['latitude']}), "
        "bool_or(local_s <> utc_s), max(abs(latitude)), max(abs(longitude)) FROM own"
    )
    if not n_rows:
        return None
    city = _cities().get(time_zone)  # None if it is not known, as for UTC
    # Every k-th row will do for the middle.
    few = f"row % {max(1, n_rows // ROWS_OF_MIDDLE)} = 0" if n_rows > ROWS_OF_MIDDLE else "true"
    middle = checkins.rows.one(f"SELECT median(latitude), median(longitude) FROM own WHERE {few}")
    if max(north, east) > 0 and north <= np.pi / 2 and east <= np.pi:
        # This box lies in the Gulf of Guinea. It has no land, but ships, and simulated cities of small coordinates.
        converted = float(np.degrees(middle[0])), float(np.degrees(middle[1]))
        if city is None or any(_is_far_nearer(point, middle, city) for point in (converted, converted[::-1])):
            found = "numbers of radians, at most half of pi and pi, where there is no land"
            way_out = Message(
                "Convert radians to degrees; if they are degrees, choose a zone that is near, such as ",
                Setting("time_zone", "Africa/Accra"),
                ", whose clocks show UTC",
            )
            return Problem("latitude and longitude in degrees", found, n_rows, way_out=way_out, code="radians")
    way_out = "Latitude and longitude are probably swapped, or the times are of another zone"
    if n_far > n_rows / 2 and is_off_utc and n_by_latitude > n_rows / 2:
        found = "longitudes where it is another time of day, and latitudes that fit"
        expected = f"longitudes that fit the clocks of {time_zone}"
        return Problem(expected, found, n_far, way_out=way_out, code="swapped")
    if city is not None and _is_far_nearer(middle[::-1], middle, city):
        given_km, swapped_km = (_distance_km(point, city) for point in (middle, middle[::-1]))
        found = f"their middle {given_km:,.0f} km away, {swapped_km:,.0f} if swapped"
        return Problem(f"check-ins near {time_zone}", found, n_rows, way_out=way_out, code="swapped")
    if not n_far:
        return None
    what = f"{n_far:,} of {n_rows:,} check-ins are where the sun is over {MAX_SUN_H} h off the clocks of {time_zone}"
    text = f"{what}: they are in other time zones, where night falls in other slots"
    return Finding(text, code="other-zones", n_rows=n_far)


def _scattered_places(checkins: CheckIns, places: PlaceTable) -> Problem | Finding | None:
    """Places whose check-ins are far from their middle: a problem if many check-ins are very far, else a note."""
    connection = checkins.rows.connection
    middles = {"goes_to": np.arange(len(places)), "north": places.latitude, "east": places.longitude}
    connection.register("middles", pd.DataFrame(middles))
    # `spots` are the distinct positions at each place, with the number of their check-ins.
    away = "sqrt(pow(latitude - north, 2) + pow((fmod(longitude - east + 540, 360) - 180) * cos(radians(latitude)), 2))"
    of_place = connection.sql(
        f"SELECT goes_to, sum(n)::BIGINT AS n, max({away}) AS furthest, "
        f"coalesce(sum(n) FILTER ({away} > {MAX_SCATTER_DEGREES}), 0)::BIGINT AS n_scattered, "
        f"coalesce(sum(n) FILTER ({away} > {APART_KM / DEGREE_KM}), 0)::BIGINT AS n_apart "
        "FROM spots JOIN goes ON goes.code = spots.place AND why = 0 JOIN middles ON goes.place = goes_to "
        "GROUP BY goes_to ORDER BY goes_to"
    ).df()
    several = of_place[of_place["n"] > 1]
    apart = several[several["n_apart"] > 0]
    if not len(apart):
        return None
    n_scattered = int(several["n_scattered"].sum())
    # The share of check-ins decides, not of places: with many check-ins, every place has some at a wrong position.
    if n_scattered <= MAX_FAR_SHARE * several["n"].sum():
        n_apart, furthest_km = int(apart["n_apart"].sum()), apart["furthest"].max() * DEGREE_KM
        text = (
            f"{len(apart):,} of {len(several):,} places have check-ins more than {APART_KM} km from their middle: "
            f"{n_apart:,} check-ins, up to {furthest_km:,.0f} km. Each place is put at its middle; if an id was used "
            "again for another place, give that one another id"
        )
        return Finding(text, code="places-apart", n_rows=n_apart)
    scattered = several[several["n_scattered"] > 0]
    examples = tuple(
        f"{quoted(places.ids[each.goes_to])}, {each.furthest * DEGREE_KM:,.0f} km"
        for each in scattered[:N_EXAMPLES].itertuples()
    )
    found = f"{len(scattered):,} of {len(several):,} places of several check-ins scattered further"
    expected = f"check-ins within {MAX_SCATTER_DEGREES} degrees of the middle of their place"
    way_out = Message(
        "Check that it is a column of places, and that the coordinates are those of the check-ins. If the places "
        "are large regions, give each its coordinates in a table, with ",
        Setting("stations", "regions.csv"),
        ", or use the cells of a grid, with ",
        Setting("grid"),
    )
    return Problem(expected, found, n_scattered, examples, way_out, "scattered-places")


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
