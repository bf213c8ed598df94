"""Layers as tables of GeoPandas, and positions out of such tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.exports.layers import Layer
from ppmtf_jax.exports.libraries import load_library

if TYPE_CHECKING:
    import geopandas

WGS_84 = "EPSG:4326"


def to_geodataframe(layer: Layer) -> geopandas.GeoDataFrame:
    """The rows of a layer with a column of points, in WGS 84; what the layer is about is in `attrs["about"]`.

    Raises
    ------
    InputError
        GeoPandas is not installed.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> from ppmtf_jax.exports.layers import population_layer
    >>> layer = population_layer({"real": toy_city(n_users=5, seed=0).traces})
    >>> to_geodataframe(layer).plot("real_share")  # doctest: +SKIP
    """
    table = with_points(layer.rows)
    table.attrs["about"] = layer.about
    return table


def with_points(rows: pd.DataFrame, name: str = "geometry") -> geopandas.GeoDataFrame:
    """A table with columns latitude and longitude (degrees) and with points made of them."""
    geopandas = load_library("geopandas")
    points = geopandas.points_from_xy(rows["longitude"], rows["latitude"], crs=WGS_84)
    return geopandas.GeoDataFrame(rows.assign(**{name: points}), geometry=name)


def degrees_of(table: geopandas.GeoDataFrame, subject: str) -> tuple[np.ndarray, np.ndarray]:
    """Latitude and longitude of the points of a table, in WGS 84, which is taken for granted where no system is told.

    Raises
    ------
    InputError
        Some are no points, or empty.
    """
    points = table.geometry
    is_point = ((points.geom_type == "Point") & ~points.is_empty).to_numpy()
    if not is_point.all():
        raise InputError(subject, [Problem("a point in every row", "others", int((~is_point).sum()))])
    if points.crs is not None:
        points = points.to_crs(WGS_84)
    return points.y.to_numpy(), points.x.to_numpy()
