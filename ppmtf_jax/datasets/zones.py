"""Where time zones are: the coordinates of each zone's city, from the time zone database."""

from __future__ import annotations

import importlib.util
import re
import zoneinfo
from functools import cache
from pathlib import Path

# A line of these tables: countries, latitude and longitude as +-DDMM[SS]+-DDDMM[SS], name.
TABLES = ("zone.tab", "zone1970.tab")
LINE = re.compile(r"^[A-Z,]+\t([+-]\d{4,7})([+-]\d{5,7})\t(\S+)", re.MULTILINE)


def zone_city(time_zone: str) -> tuple[float, float] | None:
    """Latitude and longitude of a zone's city; None where they are not known, as of UTC.

    Examples
    --------
    >>> zone_city("Europe/Berlin"), zone_city("UTC")
    ((52.5, 13.366666666666667), None)
    """
    return _cities().get(time_zone)


@cache
def _cities() -> dict[str, tuple[float, float]]:
    folders = [Path(folder) for folder in zoneinfo.TZPATH]
    package = importlib.util.find_spec("tzdata")
    if package is not None and package.origin:
        folders.append(Path(package.origin).parent / "zoneinfo")
    files = [folder / name for folder in folders for name in TABLES if (folder / name).is_file()]
    lines = [line for file in files for line in LINE.findall(file.read_text("utf-8"))]
    return {name: (_degrees(latitude, 2), _degrees(longitude, 3)) for latitude, longitude, name in lines}


def _degrees(text: str, n_digits: int) -> float:
    sign, degrees, rest = text[0], text[1 : 1 + n_digits], text[1 + n_digits :].ljust(4, "0")
    value = int(degrees) + int(rest[:2]) / 60 + int(rest[2:]) / 3600
    return -value if sign == "-" else value
