"""The table of places: what is accepted, what is refused and how."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.errors import InputError


def places(ids, **columns) -> PlaceTable:
    n = len(ids)
    return PlaceTable.from_frame(
        pd.DataFrame({"place": ids, "latitude": np.arange(n) + 35.0, "longitude": np.arange(n) + 139.0, **columns})
    )


def problems_of(frame: pd.DataFrame) -> list[str]:
    with pytest.raises(InputError) as error:
        PlaceTable.from_frame(frame)
    return [str(problem) for problem in error.value.problems]


def test_places_keep_their_order_and_ids():
    found = places(["z", "y", "x"], category=["bar", None, "gym"])
    assert found.ids.tolist() == ["z", "y", "x"]
    assert found.category.tolist() == ["bar", "", "gym"]
    assert found.index_of(["x", "nowhere", "z"]).tolist() == [2, -1, 0]
    assert found.bounding_box() == (35.0, 37.0, 139.0, 141.0)


def test_every_problem_of_a_place_table_at_once():
    frame = pd.DataFrame({"place": ["a", "a", None], "latitude": [139.7, "x", 3], "longitude": [35.6, 200, 3]})
    assert problems_of(frame) == [
        "expected latitude as a number; found others (1 row), first: x.",
        "expected latitude from -90 to 90 degrees; found others (1 row), first: 139.7. "
        "Latitude and longitude are probably swapped",
        "expected longitude from -180 to 180 degrees; found others (1 row), first: 200.0.",
        "expected every place once; found repeated place ids (1 row), first: a.",
        "expected an id for every place; found missing ids (1 row).",
    ]
    assert problems_of(frame.rename(columns={"latitude": "lat"})) == [
        "expected columns place, latitude, longitude; found columns place, lat, longitude. Missing: latitude"
    ]
    assert problems_of(frame.iloc[:0]) == ["expected at least one place; found an empty table."]
