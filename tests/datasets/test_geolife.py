"""PLT files: six header lines, CRLF, GMT; in folders and archives."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from ppmtf_jax.datasets import geolife
from ppmtf_jax.datasets.discretize import SpacedTraces
from ppmtf_jax.datasets.geolife import BEIJING, read_geolife
from ppmtf_jax.datasets.places import GridPlaces
from ppmtf_jax.errors import InputError, quoted
from tests.support import every_place

# Tables made by hand have few users.
read_geolife = partial(read_geolife, discretization=every_place(GridPlaces(*BEIJING)))

HAND_MADE = Path(__file__).parents[1] / "samples" / "geolife"
BOX = GridPlaces(39.7, 40.2, 116.1, 116.7, 16, 16)
HEADER = "Geolife trajectory\r\nWGS 84\r\nAltitude is in Feet\r\nReserved 3\r\n0,2,255,My Track,0,0,2,8421376\r\n0\r\n"
FIX = "39.90,116.41,0,492,39744.6631944444,2008-10-23,15:55:00\r\n"
# Cells are 1/32 degree high and 0.0375 wide: 39.90 is in row 0.2 * 32 = 6.4, 39.96 in 8.3; 116.41 in column 8.3.
SOUTH_CELL, NORTH_CELL = 6 * 16 + 8, 8 * 16 + 8
# Instants are hours of Beijing, eight hours after GMT, from midnight of 23 October.
EVENTS = [
    ("000", 0, 23, SOUTH_CELL),
    ("000", 0, 24, NORTH_CELL),
    ("000", 0, 24 + 10, NORTH_CELL),
    ("007", 0, 48 + 8, NORTH_CELL),
]


def events(traces) -> list[tuple]:
    return list(traces.to_frame().itertuples(index=False, name=None))


def write(folder: Path, text: str, user: str = "003", name: str = "20081023155500.plt") -> None:
    file = folder / "Data" / user / "Trajectory" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())


def refusal(folder: Path) -> str:
    with pytest.raises(InputError) as error:
        read_geolife(folder)
    return str(error.value)


def test_hand_made_folder():
    assert b"\r\n" in (HAND_MADE / "Data/000/Trajectory/20081023155500.plt").read_bytes()
    traces, report = read_geolife(HAND_MADE)
    assert events(traces) == EVENTS
    assert (traces.time_grid.start, traces.time_grid.time_zone) == ("2008-10-23T00:00:00", "Asia/Shanghai")
    # One fix is in Tokyo, two are at the same instant, and one is at latitude 400.
    assert (report.n_rows, report.n_outside_box, report.n_same_instant, report.n_events) == (6, 1, 1, 4)
    assert report.notes == ("fixes left out that are nowhere on the globe: 1 (1 in 000/20081024020000.plt)",)


@pytest.mark.parametrize("kind", ["gztar", "zip"])
def test_archives_read_the_same(tmp_path, kind):
    archive = shutil.make_archive(str(tmp_path / "geolife"), kind, HAND_MADE)
    assert events(read_geolife(archive)[0]) == EVENTS


def test_few_fixes_at_a_time_read_the_same(monkeypatch):
    monkeypatch.setattr(geolife, "BYTES_AT_A_TIME", 1)
    assert events(read_geolife(HAND_MADE)[0]) == EVENTS


def test_line_ends_and_blank_lines_do_not_matter(tmp_path):
    later = FIX.replace("15:55", "17:55")
    write(tmp_path, (HEADER + FIX + later).replace("\r\n", "\n"))
    expected = events(read_geolife(tmp_path)[0])
    assert expected == [("003", 0, 23, SOUTH_CELL), ("003", 0, 25, SOUTH_CELL)]
    for text in (
        HEADER + FIX + later.rstrip(),
        HEADER + FIX + "\r\n" + later + "\r\n \r\n",
        "\ufeff" + HEADER + FIX + later,
    ):
        write(tmp_path, text)
        assert events(read_geolife(tmp_path)[0]) == expected


EVENING = FIX.rstrip().replace("15:55:00", "23:59:{}")


@pytest.mark.parametrize(
    ("line", "second"),
    [
        *[(EVENING.format("50") + blank, 50) for blank in ("", "\t", "\r", " \t\r", "\v", "\f", "\x85", "\xa0")],
        *[(blank + EVENING.format("50"), 50) for blank in (" ", "\t", "\v", "\xa0")],
        *[(blank, None) for blank in ("\t", "\r", "\v\f", "\xa0", " \t ")],
        (EVENING.format("59"), 59),
        # Leap seconds are those of the next minute.
        (EVENING.format("60"), 60),
        (EVENING.format("61"), 61),
        (EVENING.format("50").replace("39.90", "+39.90"), 50),
        *[(EVENING.format(end), "damaged") for end in ("62", "99", "5", "-1", "50.5", " 5")],
        *[(FIX.rstrip().replace("15:55:00", time), "damaged") for time in ("24:00:00", "24:00:60", "15:60:00")],
        *[(EVENING.format("50").replace("39.90", n), "damaged") for n in ("+-3", "3_9.9", "-+3", "+", "\t")],
        *[(EVENING.format("50").replace("116.41", n), "damaged") for n in ("+-3", "11_6.4")],
    ],
)
def test_blanks_around_a_line_do_not_matter_and_odd_numbers_do(tmp_path, line, second):
    """Beside lines that are as they should be, to the second."""
    text = HEADER + FIX + line + "\r\n" + FIX.replace("15:55", "15:57")
    write(tmp_path, "")
    next(tmp_path.rglob("*.plt")).write_bytes(text.encode("latin-1"))
    if second == "damaged":
        # Blanks at both ends are not told.
        assert f"has 1 (line 8 {quoted(line.strip(), is_position=True)})" in refusal(tmp_path)
        return
    # Seconds from midnight in Beijing: 15:55 GMT is five minutes before the next midnight, and 23:59 is 7:59 then.
    later = [] if second is None else [(31 * 60 + 59) * 60 + second]
    traces, _ = read_geolife(tmp_path, discretization=every_place(GridPlaces(*BEIJING), step_s=1, slot_s=3600))
    assert traces.instant.tolist() == [(23 * 60 + 55) * 60, (23 * 60 + 57) * 60, *later]


def test_other_files_are_left_alone(tmp_path):
    write(tmp_path, HEADER + FIX)
    write(tmp_path, "Mac", name="._20081023155500.plt")
    write(tmp_path, "a list", name="notes.txt")
    (tmp_path / "Data" / "003" / "labels.plt").write_text("modes of transport")
    assert events(read_geolife(tmp_path)[0]) == [("003", 0, 23, SOUTH_CELL)]


@pytest.mark.parametrize(
    "line",
    [
        "39.9,116.4,0,492,39744.66,2008-10-23",
        FIX.replace("39.90", "39,90").rstrip(),
        FIX.replace("39.90", "").rstrip(),
        FIX.replace("39.90", "nan").rstrip(),
        FIX.replace("10-23", "13-23").rstrip(),
        # Cut off in the middle of the time, which would still be a time.
        FIX.rstrip()[:-3],
    ],
)
def test_damaged_lines_are_counted_by_file(tmp_path, line):
    write(tmp_path, HEADER + FIX + line + "\r\n" + FIX)
    write(tmp_path, HEADER + f"{line}\r\n" + FIX + f"{line}\r\n", user="004")
    write(tmp_path, HEADER + FIX, user="005")
    message = refusal(tmp_path)
    assert "found others in 2 files (3 rows), first: 004/20081023155500.plt has 2 (line 7 " in message
    assert f"003/20081023155500.plt has 1 (line 8 {quoted(line, is_position=True)})" in message


def test_all_problems_are_told_at_once(tmp_path):
    write(tmp_path, FIX * 8)
    write(tmp_path, "Geolife trajectory\n0\n", user="004")
    write(tmp_path, HEADER + "what?\r\n", user="005")
    message = refusal(tmp_path)
    assert "others in 2 of 3 files, first: 003/20081023155500.plt, 004/20081023155500.plt" in message
    assert "005/20081023155500.plt has 1 (line 7 'what?')" in message


def test_nothing_to_read(tmp_path):
    assert "found none" in refusal(tmp_path)
    assert "no such file" in refusal(tmp_path / "absent")
    write(tmp_path, HEADER)
    assert "at least one fix; found none in 1 files" in refusal(tmp_path)
    broken = tmp_path / "geolife.tar.gz"
    broken.write_bytes(b"\x1f\x8b not gzip")
    assert "a tar or zip archive of it" in refusal(broken)
    whole = Path(shutil.make_archive(str(tmp_path / "whole"), "gztar", HAND_MADE)).read_bytes()
    broken.write_bytes(whole[: len(whole) // 2])
    assert "a tar or zip archive of it" in refusal(broken)


def test_fixes_without_a_grid_are_refused():
    with pytest.raises(InputError, match="choose a grid"):
        read_geolife(HAND_MADE, discretization=every_place())


def test_full_trajectories_of_four_users(geolife_data):
    traces, report = read_geolife(geolife_data / "geolife13_full_4users.tar.gz")
    # Counted with the standard library: lines of all PLT files but their headers.
    assert (report.n_rows, report.n_users_read) == (304_656, 4)
    assert traces.user_ids.tolist() == ["006", "008", "012", "019"]
    assert report.quietest_hour in range(1, 6)


@pytest.mark.slow
def test_beijing(geolife_data):
    traces, report = read_geolife(geolife_data / "geolife13_thin60s.tar.gz", discretization=SpacedTraces(BOX))
    assert (report.n_rows, report.n_users_read) == (1_206_788, 182)
    assert (traces.n_users, report.n_traces, traces.n_events) == (88, 88 * 10, 88 * 100)
