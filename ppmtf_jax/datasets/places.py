"""Which places there are, and at which of them a check-in is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.spatial import KDTree

from ppmtf_jax.data.places import EARTH_RADIUS_KM, PlaceTable, longitude_near
from ppmtf_jax.datasets.checks import degrees
from ppmtf_jax.datasets.tables import codes_of
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.settings import Count, Settings

Number = int | float
OtherPlaces = Literal["drop", "nearest"]
MIN_USERS_PER_PLACE = 5
# What an advice on settings calls most of the check-ins.
MOST = 0.95


@dataclass(frozen=True)
class GridPlaces(Settings, subject="grid of places"):
    """The cells of a regular grid over a bounding box; what lies outside is dropped.

    Cell `row * n_columns + column` has row 0 in the south and column 0 in the west. A place is a cell, its coordinates
    are those of the cell's centre. Points on the northern and eastern edge belong to the last row and column.

    Parameters
    ----------
    south, north, west, east : float
        The box, degrees. Across the 180th meridian its west is above its east, such as 178 and -178.
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
    n_rows: Count
    n_columns: Count

    def problems(self) -> list[Problem | str]:
        """A box that is none."""
        problems: list[Problem | str] = []
        if not -90 <= self.south < self.north <= 90:
            problems.append(Problem("-90 <= south < north <= 90 degrees", f"south {self.south}, north {self.north}"))
        if not (abs(self.west) <= 180 and abs(self.east) <= 180 and self._is_wide()):
            expected = "-180 <= west < east <= 180 degrees, or west above east for a box across the 180th meridian"
            problems.append(Problem(expected, f"west {self.west}, east {self.east}"))
        return problems

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
        box = GridPlaces(south, north, west, east, 1, 1)
        if not 0 < cell_m < np.inf:
            raise InputError("grid of places", [Problem("a positive, finite cell_m", repr(cell_m))])
        height = float(np.degrees(cell_m / (1000 * EARTH_RADIUS_KM)))
        width = height / float(np.cos(np.radians((south + north) / 2)))
        shares = (north - south) / height, (box._east() - west) / width
        n_rows, n_columns = (int(np.ceil(share - 1e-9)) for share in shares)
        covered = float(longitude_near(west + n_columns * width, 0.0))
        return cls(south, south + n_rows * height, west, covered, n_rows, n_columns)

    def place_of(self, latitude: object, longitude: object) -> np.ndarray:
        """Cell of each point, -1 outside the box, int64 array of shape (points,)."""
        latitude, longitude = np.asarray(latitude, np.float64), np.asarray(longitude, np.float64)
        row = _bin(latitude, self.south, self.north, self.n_rows)
        longitude = longitude_near(longitude, (self.west + self._east()) / 2)
        column = _bin(longitude, self.west, self._east(), self.n_columns)
        return np.where((row >= 0) & (column >= 0), row * self.n_columns + column, -1)

    def table(self) -> PlaceTable:
        """All cells, also those that nobody visits."""
        row, column = np.divmod(np.arange(self.n_rows * self.n_columns, dtype=np.int64), self.n_columns)
        latitude = self.south + (row + 0.5) * (self.north - self.south) / self.n_rows
        longitude = self.west + (column + 0.5) * (self._east() - self.west) / self.n_columns
        return PlaceTable(row * self.n_columns + column, latitude, longitude_near(longitude, 0.0))

    def _east(self) -> Number:
        """Above the west."""
        return self.east + 360 * (self.east < self.west)

    def _is_wide(self) -> bool:
        """A box across the meridian is of a region: one around most of the globe has west and east mixed up."""
        return self.west < self.east or (self.west > self.east and self._east() - self.west < 180)


@dataclass(frozen=True)
class MostVisited(Settings, subject="most visited places"):
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

    n_places: Count = 1000


class Assigned(NamedTuple):
    """At which place each check-in is.

    Attributes
    ----------
    place : int64 array, shape (rows,)
        Index into the table; -1 where the check-in is left out.
    places : PlaceTable
    outside, few, beyond : bool arrays, shape (rows,)
        Check-ins outside of the box; at places of too few users; at other places that are not kept.
    moved_km : float array, shape (rows,)
        How far check-ins at places that are not kept were moved, else 0.
    n_for_most : int or None
        How many places would keep most of the check-ins at places of enough users; None where these do.
    """

    place: np.ndarray
    places: PlaceTable
    outside: np.ndarray
    few: np.ndarray
    beyond: np.ndarray
    moved_km: np.ndarray
    n_for_most: int | None


def assign_places(
    checkins: pd.DataFrame, choice: GridPlaces | MostVisited, min_users: int = 1, others: OtherPlaces = "drop"
) -> Assigned:
    """Find the place of each check-in.

    Parameters
    ----------
    checkins : DataFrame
        Columns latitude, longitude, user, and for `MostVisited` place.
    choice : GridPlaces or MostVisited
    min_users : int
        Places with check-ins of fewer users are not kept.
    others : "drop" or "nearest"
        What becomes of check-ins at places that are not kept.

    Raises
    ------
    InputError
        No place has so many users.
    """
    latitude, longitude = degrees(checkins)
    on_grid = isinstance(choice, GridPlaces)
    if on_grid:
        codes, own = choice.place_of(latitude, longitude), choice.table()
    else:
        codes, ids = codes_of(checkins["place"])
        own = PlaceTable(ids, *_middles(latitude, longitude, codes))
    inside = codes >= 0
    visits, n_users = _visits_and_users(codes[inside], codes_of(checkins["user"])[0][inside], len(own))
    enough = n_users >= min_users
    if inside.any() and not enough.any():
        raise InputError("places", [too_few_users(min_users, int(n_users.max()))])
    by_id = np.arange(len(own)) if on_grid else np.argsort(own.ids, kind="stable")
    ranked = by_id[np.argsort(-visits[by_id], kind="stable")]
    ranked = ranked[enough[ranked]]
    chosen = ranked if on_grid else ranked[: choice.n_places]
    kept = np.zeros(len(own), bool)
    kept[chosen] = True
    total = np.cumsum(visits[ranked])
    n_for_most = int(np.searchsorted(total, MOST * total[-1])) + 1 if len(total) else 0
    n_for_most = n_for_most if n_for_most > len(chosen) else None

    goes_to, moved_km = np.where(kept, np.arange(len(own)), -1), np.zeros(len(own))
    if others == "nearest":
        goes_to, moved_km = nearest_kept(own, kept)
    # One more for check-ins outside of the box.
    goes_to, moved_km = np.append(goes_to, -1), np.append(moved_km, 0.0)
    place, places = goes_to[codes], own
    if not on_grid:
        index = np.full(len(own) + 1, -1, np.int64)
        index[chosen] = np.arange(len(chosen))
        place = index[place]
        here = kept[codes]
        category = None
        if "category" in checkins:
            category = _most_frequent_category(checkins["category"][here], place[here], len(chosen))
        places = PlaceTable(own.ids[chosen], own.latitude[chosen], own.longitude[chosen], category)
    few, beyond = inside & ~enough[codes], inside & enough[codes] & ~kept[codes]
    return Assigned(place, places, ~inside, few, beyond, moved_km[codes], n_for_most)


def nearest_kept(places: PlaceTable, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each place the nearest kept place, and its distance in km; for a kept place this is the place itself.

    Parameters
    ----------
    places : PlaceTable
    kept : bool array, shape (places,)
        At least one.

    Raises
    ------
    InputError
        The places have no coordinates that tell them apart.

    Examples
    --------
    >>> places = PlaceTable(np.arange(3), np.array([0.0, 0.0, 0.0]), np.array([179.5, -179.5, 178.0]))
    >>> index, km = nearest_kept(places, np.array([False, True, True]))
    >>> index.tolist(), km.round().tolist()
    ([1, 1, 2], [111.0, 0.0, 0.0])
    """
    north, east = np.radians(places.latitude), np.radians(places.longitude)
    point = np.stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)], axis=1)
    if not np.isfinite(point).all() or (len(places) > 1 and not np.ptp(point, axis=0).any()):
        found, way_out = "missing ones, or the same for all", "Leave check-ins at other places out: other_places='drop'"
        raise InputError("places", [Problem("coordinates, to find the nearest place", found, way_out=way_out)])
    chosen, other = np.flatnonzero(kept), np.flatnonzero(~kept)
    chord, found = KDTree(point[chosen]).query(point[other])
    index, moved_km = np.arange(len(places)), np.zeros(len(places))
    index[other], moved_km[other] = chosen[found], 2 * EARTH_RADIUS_KM * np.arcsin(np.minimum(chord / 2, 1))
    return index, moved_km


def too_few_users(min_users: int, found: int) -> Problem:
    """The problem that no place has enough users."""
    way_out = (
        "Choose a coarser grid, or a smaller min_users_per_place; 1 keeps all places. Traces at a place of one user "
        "tell about this user alone"
    )
    return Problem(f"a place of at least {min_users} users", f"at most {found}", way_out=way_out)


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


def _bin(value: np.ndarray, low: Number, high: Number, n_bins: int) -> np.ndarray:
    inside = (value >= low) & (value <= high)
    index = np.floor((np.where(inside, value, low) - low) / (high - low) * n_bins).astype(np.int64)
    return np.where(inside, np.minimum(index, n_bins - 1), -1)


def _middles(latitude: np.ndarray, longitude: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Medians of the coordinates of the check-ins at each place."""
    unbroken = longitude_near(longitude, _mean_longitude(longitude, place)[place])
    median = pd.DataFrame({"latitude": latitude, "longitude": unbroken}).groupby(place).median()
    return median["latitude"].to_numpy(), np.asarray(longitude_near(median["longitude"].to_numpy(), 0.0))


def _visits_and_users(place: np.ndarray, user: np.ndarray, n_places: int) -> tuple[np.ndarray, np.ndarray]:
    """How many check-ins, and how many users, each place has."""
    pairs = np.unique(place * (user.max(initial=0) + np.int64(1)) + user)
    users = pairs // (user.max(initial=0) + np.int64(1))
    return np.bincount(place, minlength=n_places), np.bincount(users, minlength=n_places)


def _mean_longitude(longitude: np.ndarray, place: np.ndarray) -> np.ndarray:
    """The direction of the mean of the points of each place on a circle, degrees."""
    angle = np.radians(longitude)
    return np.degrees(np.arctan2(np.bincount(place, np.sin(angle)), np.bincount(place, np.cos(angle))))


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
