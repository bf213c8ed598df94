"""Random legitimate tables, written in random ways, read back to the same events; and damaged ones."""

from __future__ import annotations

import gzip
import io
import tempfile
import zipfile
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ppmtf_jax.datasets.checkins import read_checkins
from ppmtf_jax.datasets.places import MostVisited
from ppmtf_jax.errors import InputError
from tests.datasets.test_tables import FORMS
from tests.support import every_place

# Tables made by hand have few users.
read_checkins = partial(read_checkins, discretization=every_place())

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
    return gzip.compress(content) if packing == "gzip" else zipped(content) if packing == "zip" else content


def zipped(content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("table", content)
    return stream.getvalue()


def expected_events(table: pd.DataFrame) -> list[tuple]:
    """The first check-in of each user in each hour, by a plain loop."""
    found: dict[tuple, tuple] = {}
    start = table["time"].min().floor("D")
    for row in table.itertuples():
        instant = int((row.time - start).total_seconds() // 3600)
        if (row.user, instant) not in found or row.time < found[row.user, instant][0]:
            found[row.user, instant] = (row.time, row.place)
    return sorted((user, instant, place) for (user, instant), (_, place) in found.items())


def read(content: bytes, **options):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table"
        path.write_bytes(content)
        return read_checkins(path, time_zone=ZONE, discretization=every_place(MostVisited(99)), **options)


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_table_is_read_back_however_it_is_written(data):
    table = data.draw(checkins()).drop_duplicates(["user", "time"])
    content = data.draw(files(table))
    traces, report = read(content)
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
        read(bytes(content), drop_bad_rows=drop_bad_rows)


@settings(max_examples=10)
@given(st.binary(max_size=200), st.sampled_from([b"", b"user,time,latitude,longitude,place\n", b"PAR1", b"PK\3\4"]))
def test_any_bytes_give_a_clear_error(content, head):
    with suppress(InputError):
        read(head + content)
