"""Which places there are, and at which of them a check-in is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ppmtf_jax.data.places import EARTH_RADIUS_KM, PlaceTable
from ppmtf_jax.datasets.checks import degrees
from ppmtf_jax.datasets.tables import codes_of
from ppmtf_jax.errors import InputError, Problem

Number = int | float


@dataclass(frozen=True)
class GridPlaces:
    """The cells of a regular grid over a bounding box; what lies outside is dropped.

    Cell `row * n_columns + column` has row 0 in the south and column 0 in the west. A place is a cell, its coordinates
    are those of the cell's centre. Points on the northern and eastern edge belong to the last row and column.

    Parameters
    ----------
    south, north, west, east : float
        The box, degrees. A box across the 180th meridian is not possible.
    n_rows, n_columns : int

    Raises
    ------
    InputError
        The box is empty or not on the globe, or there is no row or column.

    Examples
    --------
    >>> grid = GridPlaces(35.65, 35.75, 139.68, 139.80, n_rows=20, n_columns=20)
    >>> grid.place_of([35.652, 35.75, 36.0], [139.687, 139.80, 139.7]).tolist()
    [1, 399, -1]
    """

    south: Number
    north: Number
    west: Number
    east: Number
    n_rows: int
    n_columns: int

    def __post_init__(self) -> None:
        problems = []
        if not -90 <= self.south < self.north <= 90:
            problems.append(Problem("-90 <= south < north <= 90 degrees", f"south {self.south}, north {self.north}"))
        if not -180 <= self.west < self.east <= 180:
            problems.append(Problem("-180 <= west < east <= 180 degrees", f"west {self.west}, east {self.east}"))
        if not (is_count(self.n_rows) and is_count(self.n_columns)):
            found = f"{self.n_rows!r} rows, {self.n_columns!r} columns"
            problems.append(Problem("at least one row and one column, in whole numbers", found))
        if problems:
            raise InputError("grid of places", problems)

    @classmethod
    def of_cells(cls, south: Number, north: Number, west: Number, east: Number, cell_m: Number) -> GridPlaces:
        """Square cells of some metres, from the south-western corner of a box until all of it is covered.

        Cells are as wide as high in the middle of the box; a degree of longitude is shorter in the north.

        Examples
        --------
        A degree of latitude is 6371 km * pi / 180 = 111.2 km; at 60 degrees one of longitude is half as long.

        >>> grid = GridPlaces.of_cells(59.5, 60.5, 10, 12, cell_m=10_000)
        >>> grid.n_rows, grid.n_columns, round(grid.north, 3)
        (12, 12, 60.579)
        """
        GridPlaces(south, north, west, east, 1, 1)
        if not 0 < cell_m < np.inf:
            raise InputError("grid of places", [Problem("a positive, finite cell_m", repr(cell_m))])
        height = float(np.degrees(cell_m / (1000 * EARTH_RADIUS_KM)))
        width = height / float(np.cos(np.radians((south + north) / 2)))
        n_rows, n_columns = (int(np.ceil(share - 1e-9)) for share in ((north - south) / height, (east - west) / width))
        return cls(south, south + n_rows * height, west, west + n_columns * width, n_rows, n_columns)

    def place_of(self, latitude: object, longitude: object) -> np.ndarray:
        """Cell of each point, -1 outside the box, int64 array of shape (points,)."""
        latitude, longitude = np.asarray(latitude, np.float64), np.asarray(longitude, np.float64)
        row = _bin(latitude, self.south, self.north, self.n_rows)
        column = _bin(longitude, self.west, self.east, self.n_columns)
        return np.where((row >= 0) & (column >= 0), row * self.n_columns + column, -1)

    def table(self) -> PlaceTable:
        """All cells, also those that nobody visits."""
        row, column = np.divmod(np.arange(self.n_rows * self.n_columns, dtype=np.int64), self.n_columns)
        latitude = self.south + (row + 0.5) * (self.north - self.south) / self.n_rows
        longitude = self.west + (column + 0.5) * (self.east - self.west) / self.n_columns
        return PlaceTable(row * self.n_columns + column, latitude, longitude)


@dataclass(frozen=True)
class MostVisited:
    """The places with the most check-ins, most visited first; equals in the order of their ids.

    The coordinates of a place are the medians over its check-ins, its category the most frequent one.

    Parameters
    ----------
    n_places : int
        How many; where the data has fewer, all of them.

    Raises
    ------
    InputError
        `n_places` is not a positive whole number.
    """

    n_places: int

    def __post_init__(self) -> None:
        if not is_count(self.n_places):
            raise InputError("most visited places", [Problem("a positive whole number of places", repr(self.n_places))])


def assign_places(checkins: pd.DataFrame, choice: GridPlaces | MostVisited) -> tuple[np.ndarray, PlaceTable]:
    """Index of the place of each check-in (-1: left out) and the place table."""
    latitude, longitude = degrees(checkins)
    if isinstance(choice, GridPlaces):
        return choice.place_of(latitude, longitude), choice.table()
    codes, ids = codes_of(checkins["place"])
    by_id = np.argsort(ids, kind="stable")
    visits = np.bincount(codes, minlength=len(ids))
    chosen = by_id[np.argsort(-visits[by_id], kind="stable")][: choice.n_places]
    index = np.full(len(ids), -1, np.int64)
    index[chosen] = np.arange(len(chosen))
    place = index[codes]
    kept = place >= 0
    median = pd.DataFrame({"latitude": latitude[kept], "longitude": longitude[kept]}).groupby(place[kept]).median()
    category = None
    if "category" in checkins:
        category = _most_frequent_category(checkins["category"][kept], place[kept], len(chosen))
    return place, PlaceTable(ids[chosen], median["latitude"].to_numpy(), median["longitude"].to_numpy(), category)


def off_grid_problems(checkins: pd.DataFrame, grid: GridPlaces, inside: np.ndarray) -> list[Problem]:
    """A problem where no check-in is within the box, or most would be if latitude and longitude were swapped.

    Parameters
    ----------
    inside : bool array, shape (rows,)
    """
    latitude, longitude = degrees(checkins)
    n_if_swapped = 0 if 2 * inside.sum() > len(inside) else int((grid.place_of(longitude, latitude) >= 0).sum())
    is_swapped = n_if_swapped > max(len(inside) / 2, inside.sum())
    if inside.any() and not is_swapped:
        return []
    span = f"latitudes {latitude.min()} to {latitude.max()}, longitudes {longitude.min()} to {longitude.max()}"
    found = span + (f", {int(inside.sum()):,} within" if inside.any() else ", so that nothing is left after filtering")
    way_out = "Choose a box that holds the check-ins"
    if is_swapped or n_if_swapped:
        way_out = "Latitude and longitude are probably swapped"
    return [Problem("check-ins within the bounding box", found, int((~inside).sum()), way_out=way_out)]


def is_count(value: object) -> bool:
    """Whether a value is a positive whole number."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value > 0)


def _bin(value: np.ndarray, low: Number, high: Number, n_bins: int) -> np.ndarray:
    inside = (value >= low) & (value <= high)
    index = np.floor((np.where(inside, value, low) - low) / (high - low) * n_bins).astype(np.int64)
    return np.where(inside, np.minimum(index, n_bins - 1), -1)


def _most_frequent_category(category: pd.Series, place: np.ndarray, n_places: int) -> np.ndarray:
    """Label of each place; equally frequent ones in alphabetical order, "" where there is none."""
    codes, values = codes_of(category)
    labels = np.append(values.astype(str), "")
    named = labels[codes] != ""
    counts = pd.DataFrame({"place": place[named], "label": labels[codes[named]]}).value_counts().reset_index()
    best = counts.sort_values(["place", "count", "label"], ascending=[True, False, True]).drop_duplicates("place")
    result = np.full(n_places, "", object)
    result[best["place"].to_numpy()] = best["label"].to_numpy(object)
    return result
