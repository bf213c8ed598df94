"""Layers as tables of GeoPandas, and coordinates from such tables."""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ppmtf_jax.errors import InputError, Problem, raise_any, row_problems
from ppmtf_jax.exports.layers import Layer

if TYPE_CHECKING:
    import geopandas

WGS_84 = "EPSG:4326"


def load_library(name: str) -> Any:
    """Import a library of the extra `interop`; the error says how to install it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # unused parts of the library warn of missing libraries
            return importlib.import_module(name)
    except ImportError as error:
        way_out = "Install it with: pip install 'ppmtf_jax[interop]'"
        raise InputError(name, [Problem("the library to be installed", str(error), way_out=way_out)]) from error


def to_geodataframe(layer: Layer) -> geopandas.GeoDataFrame:
    """The rows of a layer with a column of points in WGS 84; `attrs["about"]` has `layer.about`.

    Raises `InputError`: GeoPandas is not installed, or the rows do not fit into memory.

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
    """Add a column of points to a table with columns latitude and longitude (degrees)."""
    geopandas = load_library("geopandas")
    points = geopandas.points_from_xy(rows["longitude"], rows["latitude"], crs=WGS_84)
    return geopandas.GeoDataFrame(rows.assign(**{name: points}), geometry=name)


def degrees_of(table: geopandas.GeoDataFrame, subject: str) -> tuple[np.ndarray, np.ndarray]:
    """Latitude and longitude of the points of a table in WGS 84; a table without CRS is assumed to be in WGS 84."""
    points = table.geometry
    is_point = ((points.geom_type == "Point") & ~points.is_empty).to_numpy()
    raise_any(subject, row_problems(~is_point, "a point in every row"))
    if points.crs is not None:
        points = points.to_crs(WGS_84)
    return points.y.to_numpy(), points.x.to_numpy()
