"""The table of places, and coordinates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ppmtf_jax.errors import InputError, Problem, missing_columns, raise_any, row_problems

NEEDED_COLUMNS = ("place", "latitude", "longitude")
EARTH_RADIUS_KM = 6371.0
MIN_USERS_PER_PLACE = 5
"""Minimum number of training users of a place, for imports and releases alike. Few households have five people, so a
place that is kept is rarely the home of one household."""
Degrees = np.ndarray | float


@dataclass(frozen=True, eq=False)
class PlaceTable:
    """The places that events can be at.

    Raises `InputError`: coordinates are not on the globe.

    Parameters
    ----------
    ids : array, shape (places,)
        The user's own identifiers, distinct.
    latitude, longitude : float array, shape (places,)
        Degrees; NaN where they are not known.
    category : array of str, shape (places,), or None
        A label such as "home" or "restaurant".

    Examples
    --------
    >>> places = PlaceTable.from_frame(
    ...     pd.DataFrame({"place": ["a", "b"], "latitude": [35.6, 35.7], "longitude": [139.7, 139.8]})
    ... )
    >>> len(places), places.index_of(["b", "a"]).tolist()
    (2, [1, 0])
    """

    ids: np.ndarray
    latitude: np.ndarray
    longitude: np.ndarray
    category: np.ndarray | None = None

    def __post_init__(self) -> None:
        problems = coordinate_problems(pd.Series(self.latitude), pd.Series(self.longitude), may_be_missing=True)
        raise_any("places", problems)

    def __len__(self) -> int:
        return len(self.ids)

    def summary(self) -> str:
        """Number of places, region, and whether places have categories."""
        located = np.isfinite(self.latitude) & np.isfinite(self.longitude)
        text = f"{len(self):,}"
        if located.any():
            south, north, *edges = self.bounding_box()
            west, east = (longitude_near(edge, 0.0) for edge in edges)
            text += f", latitude {south:.2f} to {north:.2f}, longitude {west:.2f} to {east:.2f}"
        if not located.all():
            text += f", {int((~located).sum()):,} without coordinates"
        return text + (", with categories" if self.category is not None else "")

    def __repr__(self) -> str:
        return f"PlaceTable: {self.summary()}"

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, *, may_lack_coordinates: bool = False) -> PlaceTable:
        """Validate a table with columns place, latitude, longitude and, optionally, category.

        Raises `InputError`, which lists missing columns, repeated ids, and coordinates out of range or perhaps swapped.

        Parameters
        ----------
        may_lack_coordinates : bool
            Whether coordinates may be missing, as in a saved trace set. A place without coordinates is on no map, and
            functions that need distances refuse it.
        """
        problems = missing_columns(frame.columns, NEEDED_COLUMNS)
        raise_any("places", problems)
        if not len(frame):
            raise InputError("places", [Problem("at least one place", "an empty table")])
        problems += coordinate_problems(frame["latitude"], frame["longitude"], may_lack_coordinates)
        repeated = frame["place"].duplicated()
        problems += row_problems(repeated, "every place once", "repeated place ids", values=frame["place"])
        problems += row_problems(frame["place"].isna(), "an id for every place", "missing ids")
        raise_any("places", problems)
        category = frame["category"].fillna("").astype(str).to_numpy(object) if "category" in frame else None
        return cls(
            id_array(frame["place"]),
            frame["latitude"].to_numpy(np.float64),
            frame["longitude"].to_numpy(np.float64),
            category,
        )

    def to_frame(self) -> pd.DataFrame:
        """A table with columns place, latitude, longitude and, where known, category."""
        columns = {"place": self.ids, "latitude": self.latitude, "longitude": self.longitude}
        if self.category is not None:
            columns["category"] = self.category
        return pd.DataFrame(columns)

    def index_of(self, ids: object) -> np.ndarray:
        """Index of each id; -1 for an unknown one."""
        return pd.Index(self.ids).get_indexer(pd.Index(np.asarray(ids)))

    def unbroken_longitude(self) -> np.ndarray:
        """Longitudes in degrees that do not jump within a region: from 0 to 360 where it crosses the 180th meridian.

        Examples
        --------
        >>> PlaceTable(np.arange(2), np.array([-17.0, -17.0]), np.array([179.5, -179.5])).unbroken_longitude().tolist()
        [179.5, 180.5]
        """
        known = self.longitude[np.isfinite(self.longitude)]
        # The widths of a region that does not cross differ by rounding, so they must not be compared.
        crosses = len(known) > 0 and np.ptp(known % 360) < 180 < np.ptp(known)
        return self.longitude % 360 if crosses else self.longitude

    def bounding_box(self) -> tuple[float, float, float, float]:
        """(south, north, west, east) of the places with coordinates, degrees; east may be above 180.

        See `unbroken_longitude`.
        """
        axes = [axis[np.isfinite(axis)] for axis in (self.latitude, self.unbroken_longitude())]
        bounds = [(float(axis.min()), float(axis.max())) if len(axis) else (np.nan, np.nan) for axis in axes]
        return (*bounds[0], *bounds[1])

    def position_km(self) -> np.ndarray:
        """Kilometres north and east of the middle of the places, on a plane, shape (places, 2).

        A degree of longitude has the same length everywhere, that at the mean latitude. Distances are right to about a
        percent within 100 km; distances between continents are wrong. A region may lie across the 180th meridian. If
        no coordinates are known, all places are at one point.

        Examples
        --------
        A degree of latitude is 111 km; at 60 degrees, a degree of longitude is half as long.

        >>> frame = pd.DataFrame({"place": [1, 2], "latitude": [59.5, 60.5], "longitude": [179.5, -179.5]})
        >>> PlaceTable.from_frame(frame).position_km().round(1).tolist()
        [[-55.6, -27.8], [55.6, 27.8]]
        """
        if not np.isfinite(self.latitude + self.longitude).any():
            return np.zeros((len(self), 2))
        longitude = np.exp(1j * np.radians(self.longitude))
        # Counted from the middle, so that a region across the 180th meridian is not torn apart.
        east = np.angle(longitude * np.nansum(longitude).conj())
        north = np.radians(self.latitude)
        middle = np.nanmean(north)
        return EARTH_RADIUS_KM * np.stack([north - middle, np.cos(middle) * east], axis=1)

    def grid_cell(self, n_cells: int) -> np.ndarray:
        """Cell of each place in a grid of `n_cells` x `n_cells` over the bounding box, shape (places,).

        Cells are numbered by rows from south to north, each from west to east.
        """
        position = self.position_km()
        extent = np.ptp(position, axis=0)  # 0 where all places are on one line
        share = (position - position.min(axis=0)) / np.where(extent > 0, extent, 1)
        row, column = np.minimum((share * n_cells).astype(np.int64), n_cells - 1).T
        return row * n_cells + column


def longitude_near(longitude: Degrees, middle: Degrees) -> Degrees:
    """Shift longitudes by whole circles to within 180 degrees of `middle`; near longitudes stay exactly the same.

    Examples
    --------
    >>> longitude_near(np.array([179.5, -179.5]), 180.0).tolist()
    [179.5, 180.5]
    """
    return longitude - 360 * np.round((longitude - middle) / 360)


def coordinate_problems(latitude: pd.Series, longitude: pd.Series, may_be_missing: bool = False) -> list[Problem]:
    """Problems of coordinates in degrees: not numbers, out of range, probably swapped; they name rows, no positions."""
    problems, row = [], np.array([f"row {label}" for label in latitude.index], object)
    for name, column, limit in (("latitude", latitude, 90), ("longitude", longitude, 180)):
        number = pd.to_numeric(column, errors="coerce").to_numpy(np.float64)
        bad = ~np.isfinite(number)
        if may_be_missing:
            bad &= column.notna().to_numpy(bool)
        problems += row_problems(bad, f"{name} as a number", values=row)
        outside = np.isfinite(number) & (np.abs(number) > limit)
        swapped = name == "latitude" and (np.abs(number[outside]) <= 180).all()
        way_out = "Latitude and longitude are probably swapped" if swapped else ""
        problems += row_problems(outside, f"{name} from {-limit} to {limit} degrees", values=row, way_out=way_out)
    return problems


def id_array(column: pd.Series) -> np.ndarray:
    """Ids as a NumPy array: integers stay integers, everything else becomes a Python object of its own type."""
    if pd.api.types.is_integer_dtype(column.dtype) and not column.isna().any():
        return column.to_numpy(column.dtype if isinstance(column.dtype, np.dtype) else np.int64)
    return column.to_numpy(object)
