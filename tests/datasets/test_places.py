"""Places of check-ins: the cells of a grid, and the most visited ones."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.datasets.places import GridPlaces, MostVisited
from ppmtf_jax.errors import InputError

BOX = GridPlaces(35.65, 35.75, 139.68, 139.80, n_rows=20, n_columns=20)


def test_centre_of_each_cell_is_in_that_cell():
    table = BOX.table()
    assert len(table) == 20 * 20
    np.testing.assert_array_equal(BOX.place_of(table.latitude, table.longitude), np.arange(20 * 20))


def test_row_0_is_the_south_and_column_0_the_west():
    table = GridPlaces(10, 12, 100, 103, n_rows=2, n_columns=3).table()
    assert table.ids.tolist() == [0, 1, 2, 3, 4, 5]
    assert table.latitude.tolist() == [10.5] * 3 + [11.5] * 3
    assert table.longitude.tolist() == [100.5, 101.5, 102.5] * 2


def test_edges_belong_to_the_box_and_nothing_beyond():
    corners = BOX.place_of([35.65, 35.75, 35.75, 35.65], [139.68, 139.80, 139.68, 139.80])
    assert corners.tolist() == [0, 20 * 20 - 1, 19 * 20, 19]
    beyond = BOX.place_of([35.6499, 35.7501, 35.7, 35.7, np.nan], [139.7, 139.7, 139.6799, 139.8001, 139.7])
    assert beyond.tolist() == [-1] * 5


def test_official_cells_are_the_same(people_flow):
    points = pd.read_csv(people_flow / "POI_TK.csv.gz")
    table = BOX.table()
    np.testing.assert_allclose(table.latitude, points["y"], atol=1e-9)
    np.testing.assert_allclose(table.longitude, points["x"], atol=1e-9)


def test_impossible_grids_list_every_problem():
    with pytest.raises(InputError) as error:
        GridPlaces(41, 40, -200, 0, 0, 2)
    assert len(error.value.problems) == 3
    with pytest.raises(InputError, match="positive whole number of places; found 0"):
        MostVisited(0)
