"""Foursquare's check-ins of the whole world with friendships (WWW 2019), cut to a city: the data of the papers."""

from __future__ import annotations

import codecs
import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pyarrow as pa

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checks import Findings
from ppmtf_jax.datasets.database import Connection, database, text
from ppmtf_jax.datasets.discretize import Repeats
from ppmtf_jax.datasets.ids import code_rows, read_columns, tidy_ids
from ppmtf_jax.datasets.parts import Rows, TextTable, Wanted, readable
from ppmtf_jax.datasets.places import GridPlaces
from ppmtf_jax.datasets.published import EDGE_COLUMNS, user_problems
from ppmtf_jax.datasets.registry import CheckinTableSettings, data_set, reader_settings
from ppmtf_jax.datasets.summary import ImportReport
from ppmtf_jax.datasets.text_files import HEAD_BYTES, look_at, opened, utf8_copy
from ppmtf_jax.datasets.times import read_times, read_walls
from ppmtf_jax.datasets.to_traces import MakesTraces, to_traces
from ppmtf_jax.errors import InputError, Message, Problem, Setting
from ppmtf_jax.runtime.files import PathLike

City = Literal["istanbul", "jakarta", "kuala-lumpur", "new-york", "sao-paulo", "tokyo"]
# South, north, west and east of the published experiments, and the zone.
CITIES: dict[str, tuple[tuple[float, float, float, float], str]] = {
    "istanbul": ((40.8, 41.2, 28.5, 29.5), "Europe/Istanbul"),
    "jakarta": ((-6.4, -6.1, 106.7, 107.0), "Asia/Jakarta"),
    "kuala-lumpur": ((3.0, 3.3, 101.6, 101.8), "Asia/Kuala_Lumpur"),
    "new-york": ((40.5, 41.0, -74.28, -73.68), "America/New_York"),
    "sao-paulo": ((-24.0, -23.4, -46.8, -46.3), "America/Sao_Paulo"),
    "tokyo": ((35.5, 35.9, 139.5, 140.0), "Asia/Tokyo"),
}
FILES = ("raw_Checkins_anonymized.txt", "raw_POIs.txt")
GRAPHS = {"old": "friendship_before_old.txt", "new": "friendship_after_new.txt"}
CHECKINS = {"user": 0, "place": 1, "time": 2, "minutes": 3}
MAX_MINUTES = 840


@dataclass(frozen=True)
class FoursquareWWWSettings(CheckinTableSettings):
    """Import of a city out of Foursquare's check-ins of the whole world, with friendships.

    Parameters
    ----------
    path : Path
        Folder of raw_Checkins_anonymized.txt, raw_POIs.txt and the files of friendships, each plain or gzipped.
    city : str
        Which city: istanbul, jakarta, kuala-lumpur, new-york, sao-paulo or tokyo, in the boxes of the papers.
    graph : "old" or "new"
        Friendships before the check-ins (old) or after them (new). Only pairs of users who have events are kept.
    time_zone : str, optional
        Name of the zone of the clocks, by default the city's. Local times always follow the offsets of the check-ins.
    """

    city: City | None = None
    graph: Literal["old", "new"] = "new"
    repeats: Repeats = "count"

    def options(self) -> dict[str, Any]:
        """The arguments of `discretize` that follow from the settings."""
        return {**super().options(), "time_zone": self.time_zone or CITIES[self.city or ""][1]}

    def _own_problems(self) -> list[Problem]:
        problems = super()._own_problems()
        if self.city is not None:
            return problems
        way_out = Message("Name one, such as ", Setting("city", "tokyo"))
        return [*problems, Problem(f"a city, one of {', '.join(CITIES)}", "none", way_out=way_out)]


@data_set(
    "foursquare-www",
    FoursquareWWWSettings,
    "Foursquare check-ins of a city out of the whole world, with friendships (WWW 2019): the data of the papers.",
    "foursquare-www dataset_WWW2019 --city new-york",
)
def read_foursquare_www(
    folder: PathLike,
    settings: FoursquareWWWSettings | None = None,
    *,
    discretization: MakesTraces | None = None,
    **named: Any,
) -> tuple[Traces, ImportReport]:
    """Read a city out of the "Global-scale Check-in Dataset with User Social Networks".

    The files have TABs and no header. Check-ins: user, venue, UTC time such as "Tue Apr 03 18:00:06 +0000 2012", offset
    of local time in minutes. Venues: venue, latitude, longitude, category, country; in several encodings. Friendships:
    pairs of users; the file may be missing or empty. The most visited venues are counted in the box alone. The
    published programs took UTC for local time, so their slots of two hours are shifted; these slots are local.

    References
    ----------
    .. [1] Yang, Qu, Yang, Cudre-Mauroux: Revisiting User Mobility and Social Relationships in LBSNs: A Hypergraph
       Embedding Approach, WWW 2019.

    Examples
    --------
    >>> traces, report = read_foursquare_www("dataset_WWW2019", city="new-york")  # doctest: +SKIP
    """
    settings, options = reader_settings(FoursquareWWWSettings, folder, settings, named, discretization)
    folder, subject, friends, problems, notes = Path(folder), f"{folder}, {settings.city}", None, [], []
    checkins, venues, pairs = (_file(folder, name) for name in (*FILES, GRAPHS[settings.graph]))
    if checkins is None or venues is None:
        raise InputError(str(folder), [Problem(f"a folder with {' and '.join(FILES)}", "at least one is missing")])
    if pairs is None:
        notes.append(f"no friendships: the folder has no {GRAPHS[settings.graph]}")
    elif _head(pairs).strip():
        friends, problems, *_ = read_columns(pairs, EDGE_COLUMNS, quote_char=False, subject=str(pairs))
        problems += [each for name in EDGE_COLUMNS for each in user_problems(pairs, friends[name])]
    else:
        friends = pd.DataFrame(columns=[*EDGE_COLUMNS])
    with database() as connection:
        notes += _read_venues(connection, venues, GridPlaces(*CITIES[settings.city or ""][0], 1, 1))
        part = _OfVenues(checkins, _head(checkins), Wanted(CHECKINS, (), False))
        if not re.search("[0-9]", "".join(part.content.first_fields)):
            raise InputError(
                str(checkins), [Problem("check-ins in every row", "a header line (row 1)", way_out="Remove it")]
            )
        part.file = checkins.as_posix()
        part.types |= {"latitude": pa.float64(), "longitude": pa.float64(), "category": pa.string()}
        rows = Rows(connection, [part])
        n_rows, n_nowhere, n_unknown = rows.one(
            "SELECT count(*), count(*) FILTER (place IS NULL), count(*) FILTER (hash(place) NOT IN (FROM located) AND "
            f"place IS NOT NULL) FROM ({part.all_rows(connection)})"
        )
        rows.starts[-1] = n_rows  # rows keep their numbers among all
        notes.append(
            f"{n_rows:,} check-ins of the world read; {n_unknown:,} of them, wherever they are, are left out because "
            f"{venues.name} has no position of their venue, and {n_nowhere:,} because they name no venue"
        )
        if not rows.one("SELECT count(*) FROM source")[0]:
            raise InputError(subject, [*rows.problems, Problem("check-ins in the box", f"none of {n_rows:,}")])
        ids, walls = tidy_ids(rows), read_walls(rows, None)
        code_rows(rows, ids, f"{walls.columns}, TRY_CAST(minutes AS DOUBLE) AS minutes", walls.table)
        times = read_times(rows, walls, "UTC", None)
        known = f"abs(minutes) <= {MAX_MINUTES} AND minutes % 1 = 0"
        expected = f"offsets from UTC in whole minutes, {-MAX_MINUTES} to {MAX_MINUTES}"
        no_offset = rows.problem(f"NOT coalesce({known}, false)", expected, values="minutes", table="clocked")
        local = f"CASE WHEN {known} THEN utc_s + CAST(60 * minutes AS BIGINT) END AS local_s"
        connection.execute("ALTER VIEW every_row RENAME TO in_utc")
        connection.execute(f"CREATE VIEW every_row AS SELECT * REPLACE ({local}) FROM in_utc")
        findings = Findings(
            [*problems, *ids.problems, *times.problems],
            [*notes, *rows.notes, *ids.notes, *times.notes],
            rows.problems,
            [*no_offset, *times.unparsed],
        )
        return to_traces(rows, subject=subject, findings=findings, friendships=friends, **options)


class _OfVenues(TextTable):
    """The check-ins at the venues of the table `venues`, with the venues' columns; the others are not stored."""

    keeps_all = False

    def all_rows(self, connection: Connection) -> str:
        """SQL of all check-ins."""
        return super().relation(connection)

    def relation(self, connection: Connection) -> str:
        """As of `Part`."""
        rows = f"SELECT * REPLACE (row_number() OVER () - 1 AS position) FROM ({self.all_rows(connection)})"
        return f"SELECT rows.*, venues.* EXCLUDE (venue) FROM ({rows}) AS rows JOIN venues ON venue = place"


def _file(folder: Path, name: str) -> Path | None:
    """A file of the folder, plain or else gzipped."""
    return next((file for file in (folder / name, folder / f"{name}.gz") if file.is_file()), None)


def _head(file: Path) -> bytes:
    with opened(file) as stream:
        return stream.read(HEAD_BYTES)


def _read_venues(connection: Connection, file: Path, area: GridPlaces) -> list[str]:
    """Make `venues`: those in the box, with coordinates as texts; and `located`: hashes of all that have a position.

    A line that cannot be split is left out. Encodings differ from line to line, and the category Café is broken.
    Returns a note if venues are in the box at several positions.
    """
    columns = ", ".join(f"'f{k}': 'VARCHAR'" for k in range(5))
    how = f"columns = {{{columns}}}, delim = '\t', quote = '', escape = '', header = false, auto_detect = false"
    how += ", null_padding = true, ignore_errors = true, strict_mode = false"
    degrees = "TRY_CAST(f1 AS DOUBLE) AS latitude, TRY_CAST(f2 AS DOUBLE) AS longitude"
    (folder,) = connection.execute("SELECT getvariable('import_folder')").fetchall()[0]
    with readable(file):
        # Every byte is a letter of Latin-1, and so are those of a byte-order mark.
        copy, _ = utf8_copy(look_at(file, _head(file), False)._replace(encoding="latin-1"), Path(folder))
        venue = f"replace(f0, {text(codecs.BOM_UTF8.decode('latin-1'))}, '') AS venue"
        rows = f"SELECT {venue}, {degrees}, f3 AS category FROM read_csv({text(str(copy))}, {how})"
        connection.execute(
            f"CREATE TABLE located AS SELECT DISTINCT hash(venue) FROM ({rows}) "
            "WHERE isfinite(latitude) AND isfinite(longitude)"
        )
        connection.execute(f"CREATE TABLE found_venues AS SELECT * FROM ({rows}) WHERE {area.cell()} = 0")
    labels = connection.sql("SELECT DISTINCT category AS written FROM found_venues WHERE category <> ''").df()
    connection.register("labels", labels.assign(label=[_repaired(each) for each in labels["written"]]))
    connection.execute(
        "CREATE TABLE venues AS SELECT DISTINCT ON (venue) venue, CAST(latitude AS VARCHAR) AS latitude, "
        "CAST(longitude AS VARCHAR) AS longitude, label AS category "
        "FROM found_venues LEFT JOIN labels ON written = category ORDER BY ALL"
    )
    several = "SELECT venue FROM found_venues GROUP BY venue HAVING count(DISTINCT (latitude, longitude)) > 1"
    (n_several,) = connection.execute(f"SELECT count(*) FROM ({several})").fetchall()[0]
    return [f"venues at several positions, of which one is taken: {n_several:,}"] if n_several else []


def _repaired(label: str) -> str:
    """A label that was read as Latin-1, in the encoding that it was written in."""
    with contextlib.suppress(UnicodeDecodeError):
        label = label.encode("latin-1").decode()
    return "Café" if re.fullmatch("Caf[^a-z]*", label) else label
