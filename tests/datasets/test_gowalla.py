"""The formats of SNAP: newest first, UTC, friendships in both directions."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from ppmtf_jax.datasets.places import MostVisited
from ppmtf_jax.datasets.published import read_gowalla
from ppmtf_jax.errors import InputError
from tests.support import every_place

# Tables made by hand have few users.
read_gowalla = partial(read_gowalla, discretization=every_place())

HAND_MADE = Path(__file__).parents[1] / "samples" / "gowalla"
CHECKINS = HAND_MADE / "loc-gowalla_totalCheckins.txt"
EDGES = HAND_MADE / "loc-gowalla_edges.txt"
ROW = "0\t2010-10-12T00:21:28Z\t40.64\t-73.78\t23261\n"


def test_hand_made_files_over_both_changes_of_summer_time():
    traces, report = read_gowalla(
        CHECKINS, EDGES, time_zone="America/New_York", discretization=every_place(MostVisited(2))
    )
    # 7 November is 17 + 30 + 31 + 30 + 31 + 31 + 30 + 31 + 7 = 238 days after 14 March.
    november = 238 * 24
    assert list(traces.to_frame().itertuples(index=False, name=None)) == [
        (0, 0, 1, 200),
        (0, 0, 3, 100),  # 40 minutes later, but 2 o'clock did not exist
        (3, 0, november, 100),
        (3, 0, november + 1, 200),  # the first of the two hours that are called 1 o'clock
    ]
    assert traces.places.ids.tolist() == [100, 200]
    assert traces.friendships.tolist() == [[0, 1]]
    assert (report.n_rows, report.n_duplicates, report.n_other_places, report.n_same_instant) == (7, 1, 1, 1)
    assert (report.n_events, report.n_transitions, report.n_users) == (7 - 3, 1, 2)
    assert report.notes == ("3 of 5 friendship rows left out: a user has no event",)


def test_repeated_rows_are_no_visits():
    # Place 200 has three rows, two of which are the same; 100 has three different ones.
    traces, _ = read_gowalla(CHECKINS, time_zone="America/New_York", discretization=every_place(MostVisited(1)))
    assert traces.places.ids.tolist() == [100]
    assert traces.friendships is None


@pytest.mark.parametrize(
    ("checkins", "edges", "messages"),
    [
        (
            ROW,
            "uid\tfid\n0\t1\n",
            ["column 'user' of edges.txt", "first: 'uid' (row 1). Remove a header line", "column 'friend'"],
        ),
        ("user\ttime\tlat\tlon\tid\n" + ROW, None, ["column 'user' of checkins.txt", "first: 'time' (row 1)"]),
        (ROW.replace("40.64", "140.64"), "0\n", ["at least 2 columns; found 1"]),
        (ROW.replace("40.64", "140.64"), "0\t1\n", ["probably swapped"]),
        (ROW, "", ["found an empty file"]),
        (ROW + "1\t2\n", "0\t1\n2\n", ["5 fields in every row of checkins.txt", "2 fields in every row of edges.txt"]),
    ],
)
def test_bad_files(tmp_path, checkins, edges, messages):
    (tmp_path / "checkins.txt").write_text(checkins)
    if edges is not None:
        (tmp_path / "edges.txt").write_text(edges)
    edges_file = tmp_path / "edges.txt" if edges is not None else None
    with pytest.raises(InputError) as error:
        read_gowalla(tmp_path / "checkins.txt", edges_file, time_zone="America/New_York")
    assert all(message in str(error.value) for message in messages)


def test_new_york(gowalla_nyc):
    files = [gowalla_nyc / f"loc-gowalla_{name}_NYC.txt.gz" for name in ("totalCheckins", "edges")]
    traces, report = read_gowalla(*files, time_zone="America/New_York")
    # Counted with the standard library, as all numbers below.
    assert (report.n_rows, report.n_duplicates, report.n_users_read) == (138_957, 6, 7_115)
    assert (report.n_other_places, report.n_same_instant) == (138_951 - 57_246, 57_246 - 44_613)
    assert (report.n_events, report.n_transitions, report.n_users) == (44_613, 4_644, 5_969)
    assert traces.places.ids[:3].tolist() == [12505, 23261, 11844]
    assert len(traces.friendships) == 12_180
    assert report.notes == ("5,682 of 30,042 friendship rows left out: a user has no event",)
    assert (report.first_time, report.last_time) == ("2009-04-23T18:37:00", "2010-10-22T14:57:31")
    assert report.quietest_hour in range(2, 6)


def test_austin(data_folder):
    folder = data_folder("gowalla-1000users")
    files = [folder / f"loc-gowalla_{name}_Austin.txt.gz" for name in ("totalCheckins", "edges")]
    traces, report = read_gowalla(*files, time_zone="America/Chicago")
    assert (report.n_rows, report.n_duplicates, report.n_users_read) == (44_945, 44_945 - 44_934, 360)
    assert (report.n_other_places, report.n_same_instant) == (44_934 - 33_972, 33_972 - 26_002)
    assert (report.n_events, report.n_transitions, report.n_users) == (26_002, 3_909, 359)
    assert len(traces.friendships) == 4_984 // 2
