"""One table of check-ins in every way that people write tables; random tables read back; and damaged ones."""

from __future__ import annotations

import gzip
import io
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import jaxtyping
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ppmtf_jax.datasets.checkins import read_checkins
from ppmtf_jax.datasets.ids import read_columns
from ppmtf_jax.datasets.places import MostVisited
from ppmtf_jax.errors import InputError
from tests.support import every_place

# Tables made by hand have few users.
read_checkins = partial(read_checkins, discretization=every_place())

TABLE = pd.DataFrame(
    {
        "user": ["007", "007", "008"],
        "time": ["2024-03-04T08:10:00", "2024-03-04T09:20:00", "2024-03-13T00:30:00"],
        "latitude": ["48.86", "48.85", "48.86"],
        "longitude": ["2.36", "2.35", "2.36"],
        "place": ["Louvre", "Café", "Louvre"],
    }
)
# Instants are hours from midnight of 4 March; the 13th is nine days later.
EVENTS = [("007", 8, "Louvre"), ("007", 9, "Café"), ("008", 9 * 24, "Louvre")]


def text(table: pd.DataFrame, **options) -> str:
    return table.to_csv(index=False, lineterminator="\n", **options)


def with_times(how: str) -> pd.DataFrame:
    return TABLE.assign(time=pd.to_datetime(TABLE["time"]).dt.strftime(how))


def epochs(per_s: int) -> pd.DataFrame:
    utc = pd.to_datetime(TABLE["time"]).dt.tz_localize("Europe/Paris").dt.tz_convert("UTC")
    return TABLE.assign(time=utc.map(pd.Timestamp.timestamp).astype("int64") * per_s)


def zipped(name: str, content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("__MACOSX/._x", "Mac")
        archive.writestr(name, content)
    return stream.getvalue()


def commas(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(**{name: table[name].str.replace(".", ",") for name in ("latitude", "longitude")})


def parquet(table: pd.DataFrame) -> bytes:
    stream = io.BytesIO()
    table.to_parquet(stream)
    return stream.getvalue()


DATE_AND_TIME = TABLE.assign(Date=TABLE["time"].str[:10], time=TABLE["time"].str[11:])
FORMS = {
    "commas": text(TABLE),
    "semicolons": text(TABLE, sep=";"),
    "TABs": text(TABLE, sep="\t"),
    "pipes": text(TABLE, sep="|"),
    "decimal commas": text(commas(TABLE), sep=";"),
    "decimal commas in quotes": text(commas(TABLE)),
    "CRLF": text(TABLE).replace("\n", "\r\n"),
    "CR": text(TABLE).replace("\n", "\r"),
    "blank lines": "\n" + text(TABLE).replace("\n", "\n\n") + ",,,,\n",
    "UTF-8 with a mark": text(TABLE).encode("utf-8-sig"),
    "UTF-16": text(TABLE).encode("utf-16"),
    "UTF-16 without a mark": text(TABLE).encode("utf-16-le"),
    "UTF-16, big-endian": text(TABLE).encode("utf-16-be"),
    "Latin-1": text(TABLE).encode("latin-1"),
    "Latin-1 far down": (text(TABLE) + "007,2024-03-04T08:15:00,48.86,2.36,Louvre\n" * 3000 + "\n").encode("latin-1"),
    "gzip": gzip.compress(text(TABLE).encode()),
    "zip": zipped("a/b.csv", text(TABLE).encode("utf-16")),
    "zip of Parquet": zipped("b.parquet", parquet(TABLE)),
    "Parquet": parquet(TABLE),
    "capitals": text(TABLE.rename(columns=str.upper)),
    "other names": text(TABLE.set_axis(["User ID", "Timestamp", "Lat", "lng", "venue_id"], axis=1)),
    "x and y": text(TABLE.set_axis(["uid", "datetime", "y", "x", "POI"], axis=1)),
    "other columns": text(TABLE.assign(comment="a, b", note="")),
    "date and time apart": text(DATE_AND_TIME),
    "day first": text(with_times("%d/%m/%Y %H:%M")),
    "month first": text(with_times("%m/%d/%Y %I:%M %p")),
    "dots": text(with_times("%d.%m.%Y %H:%M:%S")),
    "names of months": text(with_times("%d-%b-%Y %I:%M:%S %p")),
    "digits": text(with_times("%Y%m%d%H%M%S")),
    "seconds": text(epochs(1)),
    "milliseconds": text(epochs(1000)),
    "microseconds": text(epochs(10**6)),
}


def events(source, columns=None, **options) -> list[tuple]:
    traces, _ = read_checkins(source, columns, **({"time_zone": "Europe/Paris"} | options))
    return list(traces.to_frame()[["user", "instant", "place"]].itertuples(index=False, name=None))


def written(folder: Path, content: str | bytes, name: str = "checkins.csv") -> Path:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / name


@pytest.mark.parametrize("form", FORMS)
def test_every_way_of_writing_a_table(tmp_path, form):
    assert events(written(tmp_path, FORMS[form])) == EVENTS


@pytest.mark.parametrize("form", [None, "decimal commas", "pipes", "UTF-16"])
def test_files_without_a_header(tmp_path, form):
    content = FORMS[form or "commas"]
    lines = content.decode("utf-16") if isinstance(content, bytes) else content
    content = lines.split("\n", 1)[1].encode("utf-16" if form == "UTF-16" else "utf-8")
    columns = {name: position for position, name in enumerate(TABLE)}
    assert events(written(tmp_path, content), columns) == EVENTS


class OnlyArrow:
    """What Polars gives others of itself."""

    def __init__(self, table: pa.Table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


class OnlyInterchange:
    def __init__(self, table: pa.Table):
        self.table = table

    def __dataframe__(self, nan_as_null=False, allow_copy=True):
        return self.table.__dataframe__(nan_as_null, allow_copy)


def views(table: pa.Table) -> pa.Table:
    return pa.table({name: table[name].cast(pa.string_view()) for name in table.column_names})


@pytest.mark.parametrize(
    "table",
    [
        TABLE,
        pa.table(TABLE),
        OnlyArrow(pa.table(TABLE)),
        OnlyArrow(views(pa.table(TABLE))),
        OnlyInterchange(pa.table(TABLE)),
        pa.table(TABLE.assign(time=pd.to_datetime(TABLE["time"]))),
        pa.table(TABLE.assign(user=TABLE["user"].astype("category"))),
        TABLE.astype({"latitude": float, "longitude": float}).convert_dtypes(dtype_backend="pyarrow"),
        TABLE.set_index("user", drop=False),
    ],
    ids=lambda table: type(table).__name__,
)
def test_tables_in_memory(table):
    assert events(table) == EVENTS


@pytest.mark.parametrize(
    ("form", "notes"),
    [
        ("commas", []),
        (
            "x and y",
            [
                f"column {name!r} is taken for {role}"
                for role, name in zip(TABLE, ["uid", "datetime", "y", "x", "POI"], strict=True)
            ],
        ),
        ("pipes", ["fields are separated by pipes"]),
        ("decimal commas", ["latitude and longitude with decimal commas", "fields are separated by semicolons"]),
        ("UTF-16", ["the text is UTF-16"]),
        ("Latin-1", ["the text is Latin-1, since it is not UTF-8"]),
        ("date and time apart", ["column 'Date' is taken for date"]),
        ("day first", ["dates are read as %d/%m/%Y"]),
        ("month first", ["dates are read as %m/%d/%Y"]),
        ("milliseconds", ["times are milliseconds since 1970"]),
    ],
)
def test_what_was_found_is_told(tmp_path, form, notes):
    _, report = read_checkins(written(tmp_path, FORMS[form]), time_zone="Europe/Paris")
    assert list(report.notes) == notes
    assert "Europe/Paris" in str(report)
    assert all(note in str(report) for note in notes)


def test_a_column_that_says_utc_is_utc(tmp_path):
    path = written(tmp_path, text(TABLE.rename(columns={"time": "UTC_time"})))
    assert events(path) == events(written(tmp_path, text(TABLE), "b.csv"), times_in="UTC")
    _, report = read_checkins(path, time_zone="Europe/Paris")
    assert "times of column 'UTC_time' are taken as UTC, as its name says" in report.notes
    assert events(path, times_in="Europe/Paris") == EVENTS


def test_names_that_are_told_and_names_that_are_found_go_together(tmp_path):
    table = TABLE.set_axis(["customer", "time", "lat", "lon", "shop"], axis=1).assign(trip=["t", "t", "u"], place="x")
    path = written(tmp_path, text(table))
    traces, report = read_checkins(path, {"user": "Customer", "place": "shop"}, time_zone="Europe/Paris")
    assert sorted(traces.places.ids) == ["Café", "Louvre"]
    assert "column 'trip' is taken for trace" in report.notes
    # With all that is needed, only what is told is read.
    told = dict(zip(("user", "time", "latitude", "longitude", "place"), table, strict=False))
    assert read_checkins(path, told, time_zone="Europe/Paris")[1].notes == ()


BAD = text(TABLE) + "009,2024-03-05T08:00:00,48.86,2.36\n,2024-03-05T08:00:00,48.86,2.36,Louvre\n"
BAD += "009,noon,48.86,2.36,Louvre\n009,1900-01-01T08:00:00,48.86,2.36,Louvre\n009,2024-03-05T08:00:00,x,2.36,Louvre\n"


def test_bad_rows_are_left_out_where_that_is_asked_for_and_shown(tmp_path):
    path = written(tmp_path, text(TABLE) + text(TABLE, header=False) * 2 + BAD.split("\n", 4)[4])
    with pytest.raises(InputError) as error:
        read_checkins(path, time_zone="Europe/Paris")
    assert len(error.value.problems) == 4
    traces, report = read_checkins(path, time_zone="Europe/Paris", drop_bad_rows=True)
    assert traces.n_events == 3
    assert (report.n_rows, report.n_bad_rows, report.n_without, report.n_same_instant) == (9 + 5, 4, {"user": 1}, 6)
    assert report.n_rows == report.n_events + report.n_same_instant + report.n_bad_rows + 1
    rows = [note for note in report.notes if note.startswith("bad rows left out: expected")]
    # The header is row 1, the bad ones are rows 11 to 15, of which row 12 has no user.
    assert [
        row for row in (11, 13, 14, 15) if not any(f"(row {row})" in note or f"row {row}." in note for note in rows)
    ] == []
    assert "left out: bad rows" in str(report)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            TABLE.assign(extra=1).set_axis([*TABLE, "user"], axis=1),
            "one column that can be the user; found 'user', 'user'",
        ),
        (TABLE.assign(user=[["a"], ["b"], ["c"]]), "texts or numbers in 'user'; found values such as a list"),
        (zipped("a.csv", b"")[:60], "a readable CSV"),
    ],
)
def test_what_is_no_table(tmp_path, source, message):
    with pytest.raises(InputError) as error:
        read_checkins(written(tmp_path, source) if isinstance(source, bytes) else source, time_zone="Europe/Paris")
    assert message in str(error.value)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Users have no annotations checked, as tests have."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("source", [7, pa.array([1, 2])], ids=str)
def test_what_is_no_source(source):
    with pytest.raises(InputError, match=r"a path of a file|list of paths, or a table of pandas, Polars or PyArrow"):
        read_checkins(source)


def test_rows_with_too_few_fields_in_a_file_of_latin_1(tmp_path):
    path = written(tmp_path, (text(TABLE) * 3 + "009;\u00e9\n").encode("latin-1"))
    with pytest.raises(InputError) as error:
        read_checkins(path, time_zone="Europe/Paris")
    assert "first: 1 (row 13)" in str(error.value)


def test_numbers_with_marks_for_thousands_are_no_degrees(tmp_path):
    table = TABLE.assign(latitude=["48.86", "48,85", "48.86"])
    with pytest.raises(InputError, match="latitude as a number; found others"):
        read_checkins(written(tmp_path, text(table)), time_zone="Europe/Paris")


def test_large_ids_keep_their_values():
    table = TABLE.assign(user=np.array([2**63 + 1, 2**63 + 1, 5], np.uint64))
    assert {user for user, _, _ in events(table)} == {2**63 + 1, 5}


def test_only_what_is_asked_for_is_read(tmp_path):
    path = written(tmp_path, text(TABLE))
    frame, problems, notes, names = read_columns(path, {"user": "user", "latitude": "latitude"}, subject="x")
    assert frame.columns.tolist() == ["user", "latitude"]
    np.testing.assert_array_equal(frame["latitude"], [48.86, 48.85, 48.86])
    assert (problems, notes, names) == ([], [], {"user": "user", "latitude": "latitude"})


# Random tables

ZONE = "Asia/Kolkata"  # no summer time, and half an hour off
START = np.datetime64("2024-02-27T00:00:00")
# Each id is of a kind that no text file takes for another: no blanks at its ends, not all plain integers.
WORDS = st.text("abcXYZ 0159.-éß,;|\t'\"", min_size=1, max_size=6).filter(lambda word: word == word.strip())
NAMES = {
    "user": ["user", "UserID", "uid", "user_id"],
    "time": ["time", "Timestamp", "DATETIME", "created_at"],
    "latitude": ["latitude", "Lat", "y"],
    "longitude": ["longitude", "lng", "LON", "x"],
    "place": ["place", "venue_id", "POI"],
}
TIME_FORMATS = ["%Y-%m-%dT%H:%M:%S", "%Y/%m/%d %H:%M:%S", "%d.%m.%Y %H:%M:%S", "%m/%d/%Y %I:%M:%S %p"]
TIME_FORMATS += ["%d %B %Y %H:%M:%S", "%Y%m%dT%H%M%S", "%Y%m%d%H%M%S"]


@st.composite
def checkins(draw: st.DrawFn) -> pd.DataFrame:
    """Check-ins of a few users at a few places, one at least after the 12th of a month, in any order."""
    places = draw(st.lists(WORDS, min_size=1, max_size=4, unique=True))
    users = draw(st.lists(WORDS, min_size=1, max_size=3, unique=True))
    row = st.tuples(st.sampled_from(["n", *users]), st.integers(0, 20 * 24 * 3600 - 1), st.sampled_from(["m", *places]))
    rows = [*draw(st.lists(row, max_size=12)), ("n", 17 * 24 * 3600 + 5, "m"), ("n", 5, "m")]
    frame = pd.DataFrame(rows, columns=["user", "time", "place"])
    number = frame["place"].map({place: k for k, place in enumerate(["m", *places])})
    frame["time"] = START + frame["time"].to_numpy().astype("timedelta64[s]")
    return frame.assign(latitude=19 + number / 64, longitude=72.5 + number / 64)


@st.composite
def files(draw: st.DrawFn, table: pd.DataFrame) -> bytes:
    """One of the ways of writing a table."""
    how = draw(st.sampled_from([*TIME_FORMATS, "zoned", "s", "ms", "us"]))
    utc = table["time"] - pd.Timedelta("5h30min")
    if how == "zoned":
        time = utc.dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    elif how in ("s", "ms", "us"):
        time = utc.to_numpy(f"datetime64[{how}]").astype(np.int64)
    else:
        time = table["time"].dt.strftime(how)
    written = table.assign(time=time)[draw(st.permutations(list(table)))]
    written = written.rename(columns={name: draw(st.sampled_from(NAMES[name])) for name in table})
    form = draw(st.sampled_from(["text", "text", "text", "parquet"]))
    if form == "parquet":
        stream = io.BytesIO()
        written.to_parquet(stream)
        content = stream.getvalue()
    else:
        mark = draw(st.sampled_from(",;\t|"))
        decimal = "." if mark == "," else draw(st.sampled_from(".,"))
        end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
        text = written.to_csv(index=False, sep=mark, decimal=decimal, lineterminator=end)
        content = text.encode(draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"])))
    packing = draw(st.sampled_from(["", "gzip", "zip"]))
    return gzip.compress(content) if packing == "gzip" else zipped("table", content) if packing == "zip" else content


def expected_events(table: pd.DataFrame) -> list[tuple]:
    """The first check-in of each user in each hour, by a plain loop."""
    found: dict[tuple, tuple] = {}
    start = table["time"].min().floor("D")
    for row in table.itertuples():
        instant = int((row.time - start).total_seconds() // 3600)
        if (row.user, instant) not in found or row.time < found[row.user, instant][0]:
            found[row.user, instant] = (row.time, row.place)
    return sorted((user, instant, place) for (user, instant), (_, place) in found.items())


def read_bytes(content: bytes, **options):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table"
        path.write_bytes(content)
        return read_checkins(path, time_zone=ZONE, discretization=every_place(MostVisited(99)), **options)


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_table_is_read_back_however_it_is_written(data):
    table = data.draw(checkins()).drop_duplicates(["user", "time"])
    content = data.draw(files(table))
    traces, report = read_bytes(content)
    events = traces.to_frame()[["user", "instant", "place"]].itertuples(index=False, name=None)
    assert sorted(events) == expected_events(table)
    assert report.time_zone == ZONE
    assert report.n_rows == len(table)


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(
    form=st.sampled_from(list(FORMS)).filter(lambda form: form != "Latin-1 far down"),
    changes=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.binary(max_size=3), st.integers(0, 4)), max_size=4
    ),
    kept=st.floats(0.3, 1),
    drop_bad_rows=st.booleans(),
)
def test_damaged_bytes_give_a_clear_error_if_any(form, changes, kept, drop_bad_rows):
    whole = FORMS[form] if isinstance(FORMS[form], bytes) else FORMS[form].encode()
    content = bytearray(whole[: int(len(whole) * kept)] if kept < 0.9 else whole)
    for where, new, n_old in changes:
        at = int(where * len(content))
        content[at : at + n_old] = new
    with suppress(InputError):
        read_bytes(bytes(content), drop_bad_rows=drop_bad_rows)


@settings(max_examples=10)
@given(st.binary(max_size=200), st.sampled_from([b"", b"user,time,latitude,longitude,place\n", b"PAR1", b"PK\3\4"]))
def test_any_bytes_give_a_clear_error(content, head):
    with suppress(InputError):
        read_bytes(head + content)
