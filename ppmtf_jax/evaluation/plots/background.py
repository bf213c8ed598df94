"""Roads or a coast under a map: lines from a file of the user."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from ppmtf_jax.errors import InputError, Problem

Lines = Sequence[np.ndarray]
NESTING = {"LineString": 0, "MultiLineString": 1, "Polygon": 1, "MultiPolygon": 2}
"""How deep the lines of a geometry are nested in lists."""
COLOUR = "#9A9A9A"


def read_background(path: str | os.PathLike[str]) -> list[np.ndarray]:
    """Read the lines of a GeoJSON file, such as roads or a coast; polygons become outlines, points are left out.

    Each line has the shape (points, 2): latitude and longitude, degrees. Raises `InputError`: the file does not exist,
    is not GeoJSON, has coordinates that are not degrees, or has no line.

    Examples
    --------
    >>> import tempfile
    >>> road = {"type": "LineString", "coordinates": [[13.3, 52.5], [13.4, 52.6]]}
    >>> file = Path(tempfile.mkdtemp(), "roads.geojson")
    >>> _ = file.write_text(json.dumps({"type": "Feature", "geometry": road}))
    >>> read_background(file)[0].tolist()
    [[52.5, 13.3], [52.6, 13.4]]
    """
    try:
        lines = [
            np.array([position[:2] for position in line], float)
            for line in _lines(json.loads(Path(path).read_text("utf-8")))
        ]
        lines = [line[:, ::-1] for line in lines if len(line) > 1]
    except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise InputError(str(path), [Problem("a GeoJSON file of lines", f"{type(error).__name__}: {error}")]) from error
    if not lines:
        raise InputError(str(path), [Problem("lines, such as roads or a coast", "none")])
    latitude, longitude = np.concatenate(lines).T
    if not (np.abs(latitude).max() <= 90 and np.abs(longitude).max() <= 180):
        way_out = "Convert it to WGS84 (EPSG:4326)"
        raise InputError(str(path), [Problem("longitude and latitude in degrees", "others", way_out=way_out)])
    return lines


def draw_background(ax: Axes, lines: Lines, *, above: bool) -> None:
    """Draw thin grey lines within the limits of the axes; with `above`, over grid cells that would hide them."""
    if lines:
        segments = LineCollection([line[:, ::-1] for line in lines], colors=COLOUR, linewidths=0.4)
        segments.set_zorder(3 if above else 0.5)
        ax.add_collection(segments, autolim=False)


def _lines(content: dict[str, Any]) -> Iterator[Any]:
    """The lines of a GeoJSON object, each a list of positions."""
    kind = content["type"]
    if kind == "FeatureCollection":
        for feature in content["features"]:
            yield from _lines(feature)
    elif kind == "Feature":
        if content["geometry"] is not None:
            yield from _lines(content["geometry"])
    elif kind == "GeometryCollection":
        for geometry in content["geometries"]:
            yield from _lines(geometry)
    elif kind in NESTING:
        lines: Iterable[Any] = [content["coordinates"]]
        for _ in range(NESTING[kind]):
            lines = chain.from_iterable(lines)
        yield from lines
    elif kind not in ("Point", "MultiPoint"):
        raise ValueError(f"type {kind!r}")
