"""Places: who has been where is told by an index into a table of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ppmtf_jax.errors import InputError, Problem, first_examples, missing_columns

NEEDED_COLUMNS = ("place", "latitude", "longitude")
EARTH_RADIUS_KM = 6371.0
Degrees = np.ndarray | float


@dataclass(frozen=True, eq=False)
class PlaceTable:
    """The places that events can be at.

    Parameters
    ----------
    ids : array, shape (places,)
        The user's own identifiers, distinct.
    latitude, longitude : float array, shape (places,)
        Degrees; NaN where they are not known.
    category : array of str, shape (places,), or None
        A label such as "home" or "restaurant".

    Raises
    ------
    InputError
        Coordinates are not on the globe.

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
        if problems:
            raise InputError("places", problems)

    def __len__(self) -> int:
        return len(self.ids)

    def summary(self) -> str:
        """How many there are, about where, and whether they have categories.

        Examples
        --------
        >>> PlaceTable(np.array([7, 9]), np.array([35.6, 35.7]), np.array([139.7, 139.8])).summary()
        '2, latitude 35.60 to 35.70, longitude 139.70 to 139.80'
        """
        located = np.isfinite(self.latitude) & np.isfinite(self.longitude)
        text = f"{len(self):,}"
        if located.any():
            south, north, west, east = self.bounding_box()
            text += f", latitude {south:.2f} to {north:.2f}, longitude {west:.2f} to {longitude_near(east, 0.0):.2f}"
        if not located.all():
            text += f", {int((~located).sum()):,} without coordinates"
        return text + (", with categories" if self.category is not None else "")

    def __repr__(self) -> str:
        return f"PlaceTable: {self.summary()}"

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, *, may_lack_coordinates: bool = False) -> PlaceTable:
        """Validate a table with columns place, latitude, longitude and, optionally, category.

        Parameters
        ----------
        frame : DataFrame
        may_lack_coordinates : bool
            Whether coordinates may be missing, as in a trace set that was saved so. What has no coordinates is on no
            map, and what needs distances refuses it.

        Raises
        ------
        InputError
            Listing missing columns, repeated ids, and coordinates that are out of range or look swapped.
        """
        problems = missing_columns(frame.columns, NEEDED_COLUMNS)
        if problems:
            raise InputError("places", problems)
        if not len(frame):
            raise InputError("places", [Problem("at least one place", "an empty table")])
        problems += coordinate_problems(frame["latitude"], frame["longitude"], may_lack_coordinates)
        repeated = frame["place"].duplicated()
        if repeated.any():
            problems.append(
                Problem(
                    "every place once",
                    "repeated place ids",
                    int(repeated.sum()),
                    first_examples(frame.loc[repeated, "place"].tolist()),
                )
            )
        missing = frame["place"].isna()
        if missing.any():
            problems.append(Problem("an id for every place", "missing ids", int(missing.sum())))
        if problems:
            raise InputError("places", problems)
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
        """Longitudes that do not jump within a region: where it lies across the 180th meridian, from 0 to 360.

        Returns
        -------
        float64 array, shape (places,)
            Degrees.

        Examples
        --------
        >>> PlaceTable(np.arange(2), np.array([-17.0, -17.0]), np.array([179.5, -179.5])).unbroken_longitude().tolist()
        [179.5, 180.5]
        """
        known = self.longitude[np.isfinite(self.longitude)]
        crosses = len(known) > 0 and np.ptp(known % 360) < min(180, np.ptp(known))
        return self.longitude % 360 if crosses else self.longitude

    def bounding_box(self) -> tuple[float, float, float, float]:
        """(south, north, west, east) of the places that have coordinates, degrees.

        East is above 180 where the region lies across the 180th meridian: the box is that of `unbroken_longitude`.
        """
        axes = [axis[np.isfinite(axis)] for axis in (self.latitude, self.unbroken_longitude())]
        bounds = [(float(axis.min()), float(axis.max())) if len(axis) else (np.nan, np.nan) for axis in axes]
        return (*bounds[0], *bounds[1])

    def position_km(self) -> np.ndarray:
        """Kilometres north and east of the middle of the places, on a plane.

        A degree of longitude is as long everywhere as at the mean latitude: right to about a percent within 100 km, and
        no measure of distances between continents. A region may lie across the 180th meridian.

        Returns
        -------
        float64 array, shape (places, 2)

        Examples
        --------
        A degree of latitude is 111 km; at 60 degrees one of longitude is half as long.

        >>> frame = pd.DataFrame({"place": [1, 2], "latitude": [59.5, 60.5], "longitude": [179.5, -179.5]})
        >>> PlaceTable.from_frame(frame).position_km().round(1).tolist()
        [[-55.6, -27.8], [55.6, 27.8]]
        """
        longitude = np.exp(1j * np.radians(self.longitude))
        # From the middle and not from a meridian, so that no region is torn where longitudes begin.
        east = np.angle(longitude * np.nansum(longitude).conj())
        north = np.radians(self.latitude)
        middle = np.nanmean(north)
        return EARTH_RADIUS_KM * np.stack([north - middle, np.cos(middle) * east], axis=1)

    def grid_cell(self, n_cells: int) -> np.ndarray:
        """Which cell of a grid over the bounding box each place is in.

        Parameters
        ----------
        n_cells : int
            On each side of the box.

        Returns
        -------
        int64 array, shape (places,)
            From 0 to n_cells^2 - 1, rows of cells from south to north, each from west to east.

        Examples
        --------
        >>> frame = pd.DataFrame(
        ...     {"place": [1, 2, 3], "latitude": [35.0, 35.2, 36.0], "longitude": [139.0, 140.0, 139.2]}
        ... )
        >>> PlaceTable.from_frame(frame).grid_cell(2).tolist()
        [0, 1, 2]
        """
        position = self.position_km()
        # All places may be on one line.
        extent = np.ptp(position, axis=0)
        share = (position - position.min(axis=0)) / np.where(extent > 0, extent, 1)
        row, column = np.minimum((share * n_cells).astype(np.int64), n_cells - 1).T
        return row * n_cells + column


def longitude_near(longitude: Degrees, middle: Degrees) -> Degrees:
    """The same meridians as degrees within 180 of `middle`; what is so already keeps every bit.

    Examples
    --------
    >>> longitude_near(np.array([179.5, -179.5]), 180.0).tolist(), longitude_near(np.array([181.0]), 0.0).tolist()
    ([179.5, 180.5], [-179.0])
    """
    return longitude - 360 * np.round((longitude - middle) / 360)


def coordinate_problems(latitude: pd.Series, longitude: pd.Series, may_be_missing: bool = False) -> list[Problem]:
    """Problems of coordinates in degrees: not numbers, out of range, probably swapped."""
    problems = []
    values = {}
    for name, column, limit in (("latitude", latitude, 90), ("longitude", longitude, 180)):
        number = pd.to_numeric(column, errors="coerce").to_numpy(np.float64)
        values[name] = number
        bad = ~np.isfinite(number)
        if may_be_missing:
            bad &= column.notna().to_numpy(bool)
        if bad.any():
            problems.append(
                Problem(f"{name} as a number", "others", int(bad.sum()), first_examples(column[bad].tolist()))
            )
        outside = np.isfinite(number) & (np.abs(number) > limit)
        if outside.any():
            examples = first_examples(number[outside].tolist())
            swapped = name == "latitude" and (np.abs(number[outside]) <= 180).all()
            way_out = "Latitude and longitude are probably swapped" if swapped else ""
            problems.append(
                Problem(f"{name} from {-limit} to {limit} degrees", "others", int(outside.sum()), examples, way_out)
            )
    return problems


def id_array(column: pd.Series) -> np.ndarray:
    """Ids as a NumPy array: integers stay integers, everything else becomes a Python object of its own type."""
    if pd.api.types.is_integer_dtype(column.dtype) and not column.isna().any():
        return column.to_numpy(column.dtype if isinstance(column.dtype, np.dtype) else np.int64)
    return column.to_numpy(object)
