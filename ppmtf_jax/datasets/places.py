"""The places of an import, and the place of each check-in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.spatial import KDTree

from ppmtf_jax.data.places import EARTH_RADIUS_KM, MIN_USERS_PER_PLACE, PlaceTable, longitude_near
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.database import Connection, columns_of, number
from ppmtf_jax.datasets.ids import CheckIns, read_columns
from ppmtf_jax.errors import InputError, Message, Problem, Setting, first_examples, quoted, raise_any
from ppmtf_jax.settings import Count, Settings

Number = int | float
OtherPlaces = Literal["drop", "nearest"]
PLACE_COLUMNS = ("place", "latitude", "longitude", "category")
MAX_CELLS = 10_000_000
# Advised settings keep this share of the check-ins.
MOST = 0.95
# Why a check-in is not at a place that is kept.
OUTSIDE, FEW, BEYOND = 1, 2, 3


@dataclass(frozen=True)
class GridPlaces(Settings, subject="grid of places"):
    """The cells of a regular grid over a bounding box; check-ins outside are dropped.

    If places need a number of users (`Discretization.min_users_per_place` above 1), only the cells that have them are
    kept, since every place costs memory and time. With 1, all cells are kept, visited or not. Then the table of places
    says nothing of people, and may be public.

    Cell `row * n_columns + column` has row 0 in the south and column 0 in the west. A place is a cell at the cell's
    centre. Points on the northern and eastern edge belong to the last row and column.

    Parameters
    ----------
    south, north, west, east : float
        The box, degrees. If it crosses the 180th meridian, west is greater than east, such as 178 and -178.
    n_rows, n_columns : int

    Examples
    --------
    >>> table = GridPlaces(35.65, 35.75, 139.68, 139.80, n_rows=20, n_columns=20).table()
    >>> len(table), table.latitude[:1].round(4).tolist(), table.longitude[:2].round(3).tolist()
    (400, [35.6525], [139.683, 139.689])
    """

    south: Number
    north: Number
    west: Number
    east: Number
    n_rows: Count
    n_columns: Count

    def problems(self) -> list[Problem | str]:
        """Problems of the box and the number of cells."""
        problems: list[Problem | str] = []
        if not -90 <= self.south < self.north <= 90:
            problems.append(Problem("-90 <= south < north <= 90 degrees", f"south {self.south}, north {self.north}"))
        # A box across the 180th meridian that spans most of the globe has west and east mixed up.
        is_wide = self.west < self.east or (self.west > self.east and self._east() - self.west < 180)
        if not (abs(self.west) <= 180 and abs(self.east) <= 180 and is_wide):
            expected = "-180 <= west < east <= 180 degrees, or west above east for a box across the 180th meridian"
            problems.append(Problem(expected, f"west {self.west}, east {self.east}"))
        if self.n_rows * self.n_columns > MAX_CELLS:
            found, way_out = f"{self.n_rows:,} x {self.n_columns:,}", "Choose larger cells, or a smaller box"
            problems.append(Problem(f"at most {MAX_CELLS:,} cells", found, way_out=way_out))
        return problems

    @classmethod
    def of_cells(cls, south: Number, north: Number, west: Number, east: Number, cell_m: Number) -> GridPlaces:
        """Square cells of `cell_m` metres, from the south-western corner of a box until they cover it.

        Cells are square at the middle latitude of the box; elsewhere, a degree of longitude has another length.

        Examples
        --------
        A degree of latitude is 6371 km * pi / 180 = 111.2 km; at 60 degrees, a degree of longitude is half as long.

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
        if west < east and n_columns * width >= 180:
            covered = min(west + n_columns * width, 180.0)
        # The last row must not reach over the pole, nor the last column of a wide box over the 180th meridian.
        return cls(south, min(south + n_rows * height, 90), west, covered, n_rows, n_columns)

    def cell(self) -> str:
        """SQL of the cell of each point, from the columns latitude and longitude; -1 outside the box."""
        row = _bin_of("latitude", self.south, self.north, self.n_rows)
        middle = (self.west + self._east()) / 2
        longitude = f"(longitude - 360 * round_even((longitude - {number(middle)}) / 360, 0))"
        column = _bin_of(longitude, self.west, self._east(), self.n_columns)
        return f"coalesce({row} * {self.n_columns} + {column}, -1)"

    def table(self) -> PlaceTable:
        """The table of all cells, also of cells that nobody visits."""
        row, column = np.divmod(np.arange(self.n_rows * self.n_columns, dtype=np.int64), self.n_columns)
        latitude = self.south + (row + 0.5) * (self.north - self.south) / self.n_rows
        longitude = self.west + (column + 0.5) * (self._east() - self.west) / self.n_columns
        return PlaceTable(row * self.n_columns + column, latitude, longitude_near(longitude, 0.0))

    def _east(self) -> Number:
        """The eastern edge in degrees, plus 360 if it is below the western edge."""
        return self.east + 360 * (self.east < self.west)


@dataclass(frozen=True)
class MostVisited(Settings, subject="most visited places"):
    """The places with the most check-ins, most visited first; ties in the order of their ids.

    The coordinates of a place are the medians over its check-ins, its category is the most frequent one. If the data
    has fewer than `n_places` places, all are taken.
    """

    n_places: Count = 1000


@dataclass(frozen=True)
class GivenPlaces(Settings, subject="places"):
    """The places of a table that is given, visited or not, and no others.

    A check-in belongs to the place with its place id. Other check-ins have no influence, so the places may be public.

    Parameters
    ----------
    path : Path
        CSV, Parquet or a similar table, such as `places.parquet` of a trace set. Columns: place, latitude, longitude
        (degrees) and, optionally, category. Other columns are not read.
    """

    path: Path

    def table(self) -> PlaceTable:
        """Read the table; `InputError` if a column or a coordinate is missing or wrong, or a place is repeated."""
        subject = str(self.path)
        frame, problems, *_ = read_columns(self.path, {}, find=PLACE_COLUMNS, subject=subject)
        try:
            raise_any(subject, problems)
            texts = {name: frame[name].astype(object).infer_objects() for name in PLACE_COLUMNS if name in frame}
            return PlaceTable.from_frame(pd.DataFrame(texts))
        except InputError as error:
            raise InputError(subject, error.problems) from None


PlaceChoice = GridPlaces | MostVisited | GivenPlaces


class Assigned(NamedTuple):
    """The places, and what became of the check-ins.

    The view `placed` of the database has those at places that are kept: row, user, trace, place (index into the table
    of places), local_s, utc_s. The table `goes` has for each code of `coded_places` the `place` that its check-ins go
    to, -1 where they are left out, `why`: 0 for a place that is kept, otherwise `OUTSIDE` of the box, of too `FEW`
    users, or `BEYOND` the most visited or given places; and `moved_km`. `n_left_out` counts check-ins by `why`.
    `moved_km` has the lengths of moves, and the number of check-ins of each. `n_for_most` is how many places would keep
    most of the check-ins at places with enough users; None if the kept places already do so.
    """

    places: PlaceTable
    n_left_out: np.ndarray
    moved_km: tuple[np.ndarray, np.ndarray]
    n_for_most: int | None = None


def assign_places(
    checkins: CheckIns, choice: PlaceChoice, min_users: int = 1, others: OtherPlaces = "drop"
) -> Assigned:
    """Find the place of each check-in; places of fewer than `min_users` users are not kept, unless they are given."""
    connection, n_for_most = checkins.rows.connection, None
    code = choice.cell() if isinstance(choice, GridPlaces) else "place"
    if isinstance(choice, GivenPlaces) and others == "nearest":
        # Check-ins at other places count by their position.
        connection.execute(
            "CREATE OR REPLACE TABLE positions AS SELECT place AS own, latitude AS north, longitude AS east, "
            "CAST(row_number() OVER (ORDER BY place, latitude, longitude) - 1 AS INTEGER) AS code "
            "FROM (SELECT DISTINCT place, latitude, longitude FROM checkins)"
        )
        code = "(SELECT code FROM positions WHERE (own, north, east) = (place, latitude, longitude))"
    connection.execute(f"CREATE OR REPLACE VIEW coded_places AS SELECT * REPLACE ({code} AS place) FROM checkins")
    query = "SELECT place AS code, count(*) AS n_visits FROM coded_places GROUP BY place ORDER BY place"
    goes = connection.sql(query).df().astype(np.int64)
    if isinstance(choice, GivenPlaces):
        places = choice.table()
        _go_to_given(checkins, goes, places, others)
    else:
        places, n_for_most = _go_to_chosen(checkins, goes, choice, min_users, others)
    connection.register("goes_to", goes.astype({"place": np.int32}))
    connection.execute("CREATE OR REPLACE TABLE goes AS SELECT * FROM goes_to")
    connection.execute(
        "CREATE OR REPLACE VIEW placed AS SELECT row, user, trace, goes.place, local_s, utc_s "
        "FROM coded_places JOIN goes ON goes.code = coded_places.place WHERE goes.place >= 0"
    )
    out, moved = goes[goes["place"] < 0], goes[goes["moved_km"] > 0]
    n_left_out = np.bincount(out["why"], out["n_visits"], minlength=BEYOND + 1).astype(np.int64)
    return Assigned(places, n_left_out, (moved["moved_km"].to_numpy(), moved["n_visits"].to_numpy()), n_for_most)


def _go_to_chosen(
    checkins: CheckIns, goes: pd.DataFrame, choice: GridPlaces | MostVisited, min_users: int, others: OtherPlaces
) -> tuple[PlaceTable, int | None]:
    """The cells of a grid or the most visited places that have enough users; adds place, why and moved_km to `goes`."""
    connection, on_grid, codes = checkins.rows.connection, isinstance(choice, GridPlaces), goes["code"].to_numpy()
    if isinstance(choice, GridPlaces):
        own, n_kept = choice.table(), choice.n_rows * choice.n_columns
    else:
        own, n_kept = PlaceTable(checkins.ids["place"], *_middles(connection)), choice.n_places
    inside = codes >= 0
    n_visits, n_users = np.zeros((2, len(own)), np.int64)
    n_visits[codes[inside]] = goes["n_visits"].to_numpy()[inside]
    if min_users > 1:
        pairs = "SELECT DISTINCT place, user FROM coded_places WHERE place >= 0"
        place, n = columns_of(connection, f"SELECT place, count(*) FROM ({pairs}) GROUP BY place")
        n_users[place.astype(np.int64)] = n
    enough = n_users >= min_users if min_users > 1 else np.ones(len(own), bool)
    if inside.any() and not enough.any():
        raise InputError("places", [_too_few_users(min_users, int(n_users.max()))])
    ranked = np.argsort(-n_visits, kind="stable")
    ranked = ranked[enough[ranked]]
    chosen, total = ranked[:n_kept], np.cumsum(n_visits[ranked])
    if on_grid:
        chosen = np.sort(chosen)
    n_for_most = int(np.searchsorted(total, MOST * total[-1])) + 1 if len(total) else 0
    kept = np.zeros(len(own), bool)
    kept[chosen] = True
    goes_to, moved_km = np.where(kept, np.arange(len(own)), -1), np.zeros(len(own))
    if others == "nearest":
        goes_to, moved_km = nearest_kept(own, kept)
    places = own
    if len(chosen) < len(own) or not on_grid:
        index = np.full(len(own) + 1, -1, np.int64)
        index[chosen] = np.arange(len(chosen))
        goes_to, category = index[goes_to], None
        if not on_grid and "category" in checkins.ids and "category" in checkins.rows.columns:
            category = _most_frequent_category(checkins, index[:-1], len(chosen))
        places = PlaceTable(own.ids[chosen], own.latitude[chosen], own.longitude[chosen], category)
    # The last entry is for check-ins outside of the box, whose code is -1.
    goes["place"], goes["moved_km"] = np.append(goes_to, -1)[codes], np.append(moved_km, 0.0)[codes]
    goes["why"] = np.append(np.where(enough, np.where(kept, 0, BEYOND), FEW), OUTSIDE)[codes]
    return places, n_for_most if n_for_most > len(chosen) else None


def _go_to_given(checkins: CheckIns, goes: pd.DataFrame, table: PlaceTable, others: OtherPlaces) -> None:
    """Add place, why and moved_km to `goes`: the given place with the id or, if `others` says so, the nearest one.

    For each place of the table, take the distance to its nearest neighbour in the table. A check-in is moved at most as
    far as the largest of these distances.
    """
    ids = [str(each) for each in checkins.ids["place"]]
    of_id = pd.Index([str(each) for each in table.ids]).get_indexer(pd.Index(ids, dtype="str"))
    # The last entry is for check-ins without an id, whose code is -1.
    of_id, moved_km = np.append(of_id, -1), np.zeros(len(goes))
    if others == "nearest":
        query = "SELECT own, north, east FROM positions ORDER BY code"
        code, north, east = columns_of(checkins.rows.connection, query)
        place = of_id[code.astype(np.int64)]
        unknown = np.flatnonzero(place < 0)
        tree = KDTree(own := _points(table.latitude, table.longitude))
        chord, found = tree.query(_points(north[unknown], east[unknown]))
        apart = tree.query(own, 2)[0][:, 1].max() if len(table) > 1 else np.inf
        place[unknown] = np.where(chord <= apart, found, -1)
        moved_km[unknown] = np.where(chord <= apart, _chord_km(chord), 0)
    else:
        place = of_id[goes["code"]]
    if (place < 0).all():
        way_out = Message("Or move check-ins to the nearest place: ", Setting("other_places", "nearest"))
        some = first_examples([quoted(each) for each in ids[:5]])
        raise InputError("places", [Problem("check-ins at the places of the table", "none", 0, some, way_out)])
    goes["place"], goes["why"], goes["moved_km"] = place, np.where(place < 0, BEYOND, 0), moved_km


def nearest_kept(places: PlaceTable, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each place the index of the nearest kept place, and its distance in km; a kept place is its own nearest."""
    point = _points(places.latitude, places.longitude)
    if not np.isfinite(point).all() or (len(places) > 1 and not np.ptp(point, axis=0).any()):
        found = "missing ones, or the same for all"
        way_out = Message("Leave check-ins at other places out: ", Setting("other_places", "drop"))
        raise InputError("places", [Problem("coordinates, to find the nearest place", found, way_out=way_out)])
    chosen, other = np.flatnonzero(kept), np.flatnonzero(~kept)
    chord, found = KDTree(point[chosen]).query(point[other])
    index, moved_km = np.arange(len(places)), np.zeros(len(places))
    index[other], moved_km[other] = chosen[found], _chord_km(chord)
    return index, moved_km


def _points(latitude: np.ndarray, longitude: np.ndarray) -> Float[np.ndarray, "point 3"]:
    """Points of the unit sphere."""
    north, east = np.radians(latitude), np.radians(longitude)
    return np.stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)], axis=1)


def _chord_km(chord: np.ndarray) -> np.ndarray:
    """Kilometres along the globe between points whose straight distance (chord) on the unit sphere is given."""
    return 2 * EARTH_RADIUS_KM * np.arcsin(np.minimum(chord / 2, 1))


def keep_shared_places(
    train: Traces,
    *others: Traces,
    min_users: int = MIN_USERS_PER_PLACE,
    other_places: OtherPlaces = "drop",
) -> tuple[Traces, ...]:
    """Keep the places where at least `min_users` training users have events.

    Readers count all users, so a place may have fewer training users. `ppmtf import` and jobs call this function after
    the split. Raises `InputError`: no place has `min_users` users, or a set has no event left.

    Parameters
    ----------
    train : Traces
        The users who are counted.
    *others : Traces
        Traces with the same places, such as those of the test users.
    min_users : int
        1 keeps all places, also those without an event.
    other_places : "drop" or "nearest"
        Whether events at other places are left out or moved to the nearest place that is kept.

    Returns
    -------
    tuple of Traces
        The training users' and the others', on the same places. Users without an event are dropped.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=40, seed=0).traces.split_users(0.8, seed=0)
    >>> train, test = keep_shared_places(train, test, min_users=5)
    >>> bool(train.users_per_place().min() >= 5), len(train.places) == len(test.places)
    (True, True)
    """
    if min_users == 1:
        return train, *others
    n_users = train.users_per_place()
    kept = n_users >= min_users
    if kept.all():
        return train, *others
    if not kept.any():
        raise InputError("places", [_too_few_users(min_users, int(n_users.max()))])
    goes_to = np.where(kept, np.arange(len(kept)), -1)
    if other_places == "nearest":
        goes_to = nearest_kept(train.places, kept)[0]
    goes_to = np.append(np.cumsum(kept) - 1, -1)[goes_to]
    own = train.places
    category = None if own.category is None else own.category[kept]
    places = PlaceTable(own.ids[kept], own.latitude[kept], own.longitude[kept], category)
    kept_sets = []
    for each in (train, *others):
        stays = goes_to[each.place] >= 0
        left = each if stays.all() else each.select_events(stays)
        kept_sets.append(replace(left, place=goes_to[left.place].astype(each.place.dtype), places=places))
    return tuple(kept_sets)


def _too_few_users(min_users: int, found: int) -> Problem:
    """No place has enough users."""
    way_out = (
        "Choose a coarser grid, or a smaller min_users_per_place; 1 keeps all places. Traces at a place of one user "
        "tell about this user alone"
    )
    return Problem(f"a place of at least {min_users} users", f"at most {found}", way_out=way_out)


def _bin_of(value: str, low: Number, high: Number, n_bins: int) -> str:
    """SQL of the bin of a value, 0, 1, ...; NULL outside. The upper edge belongs to the last bin."""
    share = f"({value} - {number(low)}) / {number(high - low)}"
    inside = f"{value} BETWEEN {number(low)} AND {number(high)}"
    return f"CASE WHEN {inside} THEN least(CAST(floor({share} * {n_bins}) AS INTEGER), {n_bins - 1}) END"


def _middles(connection: Connection) -> list[np.ndarray]:
    """Medians of the latitudes and longitudes of the check-ins at each place, in the order of the codes."""
    # Longitudes are counted from the mean direction of a place's points, so that a place at the 180th meridian is one.
    mean = "degrees(atan2(sum(n * sin(radians(longitude))), sum(n * cos(radians(longitude)))))"
    # The database rounds halves away from zero and NumPy to even; a point opposite to the mean is either.
    unbroken = "longitude - 360 * round_even((longitude - middle) / 360, 0)"
    connection.execute(
        "CREATE OR REPLACE TABLE spots AS SELECT place, latitude, longitude, count(*) AS n FROM checkins GROUP BY ALL"
    )
    latitude, longitude = (
        columns_of(
            connection,
            f"""
            WITH middles AS (SELECT place, {mean} AS middle FROM spots GROUP BY place),
            each_value AS (
                SELECT place, {value} AS value, sum(n) AS n FROM spots JOIN middles USING (place) GROUP BY ALL
            ),
            counted AS (
                SELECT *, sum(n) OVER (PARTITION BY place ORDER BY value) AS upto,
                    sum(n) OVER (PARTITION BY place) AS total FROM each_value
            )
            SELECT (min(value) + max(value)) / 2 FROM counted
            WHERE 2 * upto >= total AND 2 * (upto - n) <= total GROUP BY place ORDER BY place
            """,
        )[0]
        for value in ("latitude", unbroken)
    )
    return [np.asarray(latitude), np.asarray(longitude_near(longitude, 0.0))]


def _most_frequent_category(checkins: CheckIns, index: np.ndarray, n_places: int) -> np.ndarray:
    """Most frequent label of each place (ties: the first in alphabetical order), "" for a place without a label."""
    query = "SELECT place, category, count(*) AS n FROM checkins WHERE category >= 0 GROUP BY ALL"
    counts = checkins.rows.connection.sql(query).df()
    labels = checkins.ids["category"].astype(str)
    counts = counts.assign(place=index[counts["place"]], label=labels[counts["category"]])
    counts = counts[(counts["label"] != "") & (counts["place"] >= 0)]
    best = counts.sort_values(["place", "n", "label"], ascending=[True, False, True]).drop_duplicates("place")
    return best.set_index("place")["label"].reindex(range(n_places), fill_value="").to_numpy(object)
