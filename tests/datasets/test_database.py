"""Imports of all kinds of files, with little memory, on one core, and after a process was killed."""

from __future__ import annotations

import csv
import io
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from ppmtf_jax.datasets import database as databases
from ppmtf_jax.datasets import to_traces
from ppmtf_jax.datasets.checkins import read_checkins
from ppmtf_jax.datasets.database import database, floored
from ppmtf_jax.datasets.ids import read_columns
from ppmtf_jax.datasets.places import MostVisited
from ppmtf_jax.errors import InputError
from ppmtf_jax.runtime.files import remove_unfinished
from tests.support import every_place

ROW = "u{},2024-01-{:02d}T{:02d}:00:00Z,48.86,2.36,p{}{}\n"


@pytest.fixture
def small_imports() -> None:
    """Most imports here have an instance of their own."""


def table(end: str = "\n", note: str = "", n_rows: int = 60) -> bytes:
    """Rows with a note, which may have several lines, a blank line and a row of too few fields."""
    rows = [ROW.format(k % 7, 1 + k % 28, k % 24, k % 5, f",{note if k % 3 == 0 else 'x'}") for k in range(n_rows)]
    rows = [*rows[:20], "\n", *rows[20:40], "u1,noon\n", *rows[40:]]
    return ("user,time,latitude,longitude,place,note\n" + "".join(rows)).replace("\n", end).encode()


@pytest.mark.usefixtures("shared_instance")
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("note", ["", '"two\nlines, and ""quotes"""', '5" wide', '"a\n\nb"', '"x"y'])
def test_lines_end_in_any_way_and_texts_may_have_several(tmp_path, end, note):
    path = tmp_path / "table.csv"
    path.write_bytes(table(end, note))
    frame, problems, *_ = read_columns(path, {"user": "user", "place": "place", "note": "note"}, subject="table")
    ((n_rows, example),) = [(each.n_rows, each.examples[0]) for each in problems]
    assert (len(frame), n_rows, example[:7]) == (60, 1, "2 (row ")
    (_, first), (_, second) = csv.reader(io.StringIO(f"1,{note}\n1,x\n".replace("\n", end), newline=""))
    assert frame["note"].fillna("").tolist() == [first if k % 3 == 0 else second for k in range(60)]
    assert frame["user"].tolist() == [f"u{k % 7}" for k in range(60)]


@pytest.mark.usefixtures("shared_instance")
@pytest.mark.parametrize("rows", ['a,"1\nb,2\n', 'x,0\na,"1\nb,"2\nc,3\n', 'a,1\nb,"2'])
def test_a_quote_that_is_not_closed_swallows_no_rows(tmp_path, rows):
    path = tmp_path / "table.csv"
    path.write_text("user,place\n" + rows)
    with pytest.raises(InputError, match="a closing quote for every quote"):
        read_columns(path, {"user": "user", "place": "place"}, subject="table")


@pytest.mark.usefixtures("shared_instance")
def test_lines_may_end_in_several_ways(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(b"user,place\r\na,1\nb,2\r\nc,3\n")
    frame = read_columns(path, {"user": "user", "place": "place"}, subject="table").frame
    assert frame.to_dict("list") == {"user": ["a", "b", "c"], "place": [1, 2, 3]}


@pytest.mark.usefixtures("shared_instance")
def test_a_coordinate_that_is_no_number_leaves_the_others(tmp_path):
    """An id in the same column is a text in all rows."""
    path, columns = tmp_path / "table.csv", {"place": "north", "latitude": "north", "longitude": "east"}
    path.write_text("north,east\n" + "035,139.5\n" * 40 + " +36 ,x\n" + "37, \n" * 20)
    whole = read_columns(path, columns, subject="table").frame
    assert whole["place"].tolist() == ["035"] * 40 + ["+36"] + ["37"] * 20
    assert whole["latitude"].tolist() == [35.0] * 40 + [36.0] + [37.0] * 20
    assert whole["longitude"].tolist() == [139.5] * 40 + ["x"] + [" "] * 20


WANTED = {"user": "user", "place": "place"}


def read_rows(path: Path, rows: str | bytes, header: str = "user,note,place") -> tuple[list, list[int], list]:
    """Users and places of all rows, their lines, and the counts and examples of rows that are left out."""
    content = rows if isinstance(rows, bytes) else rows.encode()
    path.write_bytes(header.encode() + b"\n" + content)
    frame, problems, *_ = read_columns(path, WANTED, subject="table")
    found = frame[["user", "place"]].values.tolist()
    return found, frame.index.tolist(), [(each.n_rows, *each.examples) for each in problems]


TWO = [["a", "x"], ["b", "y"]]


@pytest.mark.usefixtures("shared_instance")
@pytest.mark.parametrize("last", ["", "c\n", 'c,"1" x,z,w\n'])
@pytest.mark.parametrize("field", ['"cafe, bar"', ' "cafe, bar"', " cafe", '" cafe"', ' "a\nb, c"'])
def test_a_blank_may_precede_a_quote(tmp_path, field, last):
    """With and without a row that cannot be split."""
    n_lines = 1 + field.count("\n")
    found, lines, problems = read_rows(tmp_path / "table.csv", f"a,{field},x\nb,-,y\n{last}")
    assert (found, lines) == (TWO, [2, 2 + n_lines])
    assert problems == ([(1, f"{1 if last == 'c' + chr(10) else 4} (row {3 + n_lines})")] if last else [])


@pytest.mark.usefixtures("shared_instance")
@pytest.mark.parametrize("last", ["", 'c,"1" x,z,w\n'])
def test_rows_with_several_blanks_before_a_quote_are_counted(tmp_path, last):
    found, lines, problems = read_rows(tmp_path / "table.csv", f'a,-,x\nc,  "cafe, bar",z\nb,-,y\n{last}')
    assert (found, lines, problems[0][:2]) == (TWO, [2, 4], (1 + bool(last), "4 (row 3)"))


@pytest.mark.usefixtures("shared_instance")
def test_blanks_of_a_field_stay_also_where_quotes_are_mended(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('user,note,place\na, cafe, "x"\nb,"1" 2,y\nc,, z\n')
    frame = read_columns(path, WANTED | {"note": "note"}, subject="table").frame
    assert frame["note"].fillna("").tolist() == [" cafe", "1 2", ""]
    assert frame["place"].tolist() == ["x", "y", "z"]


@pytest.mark.usefixtures("shared_instance")
@pytest.mark.parametrize(
    ("more", "is_read"), [("NULL", 1), ("", 1), ("NULL,,nan", 1), ('"NULL"', 1), (" ", 0), ("w", 0), ("NULL,w", 0)]
)
def test_unknown_values_after_the_last_column_do_no_harm(tmp_path, more, is_read):
    found, lines, problems = read_rows(tmp_path / "table.csv", f"a,-,x\nc,-,z,{more}\nd,-\nb,-,y\n")
    rows = [(["a", "x"], 2), *[(["c", "z"], 3)] * is_read, (["b", "y"], 5)]
    assert (found, lines) == ([row for row, _ in rows], [line for _, line in rows])
    assert [n for n, *_ in problems] == [2 - is_read]


@pytest.mark.usefixtures("shared_instance")
def test_rows_that_the_database_leaves_out_are_an_error(tmp_path):
    """A row of more than 2 MB, of which each field could be read."""
    header = "user,place," + ",".join(f"n{k}" for k in range(30))
    rows = [f"{user},x," + ",".join([note * size] * 30) for user, note, size in (("a", "-", 1), ("b", "w", 10**5))]
    with pytest.raises(InputError, match="rows that cannot be split into fields"):
        read_rows(tmp_path / "table.csv", "\n".join([*rows, rows[0]]), header)


def test_the_name_of_a_folder_is_no_value(tmp_path, monkeypatch):
    (tmp_path / "f0=9").mkdir()
    monkeypatch.chdir(tmp_path)
    assert read_rows(Path("f0=9/table.csv"), "a,-,x\nb,-,y\n")[0] == TWO


@pytest.mark.usefixtures("shared_instance")
@pytest.mark.parametrize("far", [10, 20_000])
def test_lines_of_latin_1_may_end_in_several_ways(tmp_path, far):
    rows = b"a,-,x\r\n" + b"b,-,y\n" * far + "c,é,z\n".encode("latin-1")
    found, lines, _ = read_rows(tmp_path / "table.csv", rows)
    assert (len(found), found[0], found[-1]) == (far + 2, ["a", "x"], ["c", "z"])
    assert lines == list(range(2, far + 4))


@pytest.mark.usefixtures("shared_instance")
def test_a_number_with_an_underscore_is_no_coordinate(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("user,latitude\na,1_0\nb,10\n")
    frame = read_columns(path, {"user": "user", "latitude": "latitude"}, subject="table").frame
    assert frame["latitude"].tolist() == ["1_0", 10.0]


def test_lines_are_numbered_as_in_the_file(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(table(note='"two\nlines"'))
    frame, problems, *_ = read_columns(path, {"user": "user"}, subject="table")
    # Each third note adds a line; row 20 is followed by a blank line, row 40 by one of two fields.
    expected = [2 + k + -(-k // 3) + (k >= 20) + (k >= 40) for k in range(60)]
    assert frame.index.tolist() == expected
    assert f"2 (row {expected[40] - 1})" in problems[0].examples


def big_table(path: Path) -> Path:
    generator = np.random.default_rng(0)
    n_rows = 200_000
    seconds = np.datetime64("2024-03-01") + generator.integers(0, 60 * 86_400, n_rows).astype("timedelta64[s]")
    place = generator.integers(0, 300, n_rows)
    frame = pd.DataFrame({"user": generator.integers(0, 5000, n_rows), "time": seconds, "place": place})
    frame.assign(latitude=48 + place / 1000, longitude=2.3).to_parquet(path)
    return path


def test_the_rows_of_a_table_keep_their_order():
    """The database reads tables in memory in several threads, and would not keep the order of the rows."""
    number = np.arange(500_000)
    frame = pd.DataFrame({"user": number % 7, "place": number})
    for _ in range(3):
        found = read_columns(pa.table(frame), {"user": "user", "place": "place"}, subject="table").frame
        assert (found["place"].to_numpy() == number).all()


def test_memory_and_cores_do_not_change_the_result(tmp_path, monkeypatch):
    """The same bits with a hundredth of the memory, one core, and blocks of few rows."""
    path = big_table(tmp_path / "big.parquet")
    settings = {"time_zone": "Europe/Paris", "discretization": every_place()}
    traces, report = read_checkins(path, **settings)
    frame = pd.read_parquet(path)
    local = frame["time"].dt.tz_localize("Europe/Paris", ambiguous=True, nonexistent="shift_forward")
    hour = frame["time"].dt.floor("h")
    assert traces.n_events == len(frame.assign(hour=hour).drop_duplicates(["user", "hour"]))
    assert report.n_rows == len(frame) == len(local)
    monkeypatch.setattr(databases, "MAX_BYTES", 30_000_000)
    monkeypatch.setattr(to_traces, "VISITS_AT_A_TIME", 5000)
    connect = duckdb.connect
    monkeypatch.setattr(duckdb, "connect", lambda config: connect(config=config | {"threads": 1}))
    again, same_report = read_checkins(path, **settings)
    assert again.digest == traces.digest
    assert same_report == report


def test_an_order_of_the_rows_that_ends_with_ties_is_that_of_the_file():
    """Without the number of the row, the place of equal times would depend on the threads."""
    n_rows = 50_000
    rows = np.arange(n_rows)
    frame = pd.DataFrame({"user": rows % 2, "time": "2024-01-01T08:00:00Z", "place": rows})
    frame = frame.assign(latitude=0.3, longitude=6.7)
    traces, _ = read_checkins(frame, time_zone="UTC", discretization=every_place(MostVisited(n_rows)))
    assert traces.to_frame()["place"].tolist() == [0, 1]


def test_starts_of_trips_come_before_their_ends():
    times = {"time": ["2024-01-01T08:00:00Z", "2024-01-01T09:00:00Z"], "end_time": ["2024-01-01T09:00:00Z"] * 2}
    trips = pd.DataFrame(times | {"user": 1, "place": ["a", "b"], "end_place": ["c", "d"]})
    trips = trips.assign(latitude=0.3, longitude=6.7, end_latitude=0.3, end_longitude=6.7)
    traces, _ = read_checkins(trips, time_zone="UTC", discretization=every_place())
    assert traces.to_frame()["place"].tolist() == ["a", "b"]


@pytest.mark.slow
def test_the_folder_of_a_killed_process_is_removed(tmp_path, monkeypatch):
    code = (
        "from ppmtf_jax.datasets.database import database\nwith database() as c:\n    print('x', flush=True); input()"
    )
    where = os.environ | {"TMPDIR": str(tmp_path)}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], env=where, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with database():
            assert len(list(tmp_path.iterdir())) == 2  # the other one is in use
        process.send_signal(signal.SIGKILL)
    (left,) = tmp_path.iterdir()
    os.utime(left / "lock", (0, 0))
    with database():
        assert len(list(tmp_path.iterdir())) == 1
    assert not list(tmp_path.iterdir())


def test_the_folder_is_removed_when_a_command_is_stopped(tmp_path, monkeypatch):
    """Ctrl-C ends a command without the end of its blocks."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with database():
        assert len(list(tmp_path.iterdir())) == 1
        remove_unfinished()
        assert not list(tmp_path.iterdir())


def test_a_full_disk_is_an_error_that_says_what_to_do():
    def sort() -> None:
        with database() as connection:
            connection.execute("SET max_temp_directory_size = '1MB'; SET memory_limit = '20MB'")
            connection.execute("CREATE TABLE x AS SELECT random() AS a FROM range(5000000) ORDER BY a")

    with pytest.raises(InputError, match=r"memory and disk for the rows; found(.|\n)*TMPDIR"):
        sort()


def test_division_is_rounded_down():
    with database() as connection:
        values = connection.execute(f"SELECT {floored('a', 7)} FROM (VALUES (-8), (-7), (-1), (0), (6), (7)) AS t(a)")
        assert [row for (row,) in values.fetchall()] == [-2, -1, -1, 0, 0, 1]


SQL = Path(__file__).parents[2].joinpath("docs/own-data.md").read_text().split("```sql\n")[1].split("```")[0]


def test_the_sql_of_the_docs_gives_the_same_events(tmp_path, monkeypatch):
    path = big_table(tmp_path / "big.parquet")
    pd.read_parquet(path).drop_duplicates(["user", "time"]).to_parquet(path)
    direct, _ = read_checkins(path, time_zone="Europe/Paris", times_in="UTC", n_places=200)
    monkeypatch.chdir(tmp_path)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'Asia/Tokyo'")
        read = "SELECT * REPLACE (timezone('UTC', time) AS time) FROM read_parquet('big.parquet')"
        connection.execute(f"CREATE TABLE checkins AS {read}")
        connection.execute(SQL.replace("1000", "200"))
    prepared, report = read_checkins(tmp_path / "hourly.parquet", time_zone="Europe/Paris")
    pd.testing.assert_frame_equal(prepared.to_frame(), direct.to_frame())
    assert report.n_same_instant == 0
    for column in ("latitude", "longitude"):
        of_place = [
            dict(zip(each.places.ids, getattr(each.places, column), strict=True)) for each in (prepared, direct)
        ]
        assert of_place[0] == of_place[1]


def test_files_with_numbers_of_several_types_go_together(tmp_path):
    """A column that is whole in the first file must not be rounded in the second."""
    frame = pd.DataFrame({"user": [1, 2], "place": [5, 6]})
    frame.to_parquet(tmp_path / "a.parquet")
    frame.assign(user=[1.5, None], place=["x", "y"]).to_parquet(tmp_path / "b.parquet")
    paths = [tmp_path / name for name in ("a.parquet", "b.parquet")]
    users = read_columns(paths, {"user": "user"}, subject="both").frame["user"]
    assert users[:3].tolist() == [1, 2, 1.5]
    assert users.index.tolist() == ["1 of a.parquet", "2 of a.parquet", "1 of b.parquet", "2 of b.parquet"]
    with pytest.raises(InputError, match="columns of the same types in all files"):
        read_columns(paths, {"place": "place"}, subject="both")
