"""Groups of places: which are adjacent, and the weights of Algorithm 2."""

import numpy as np
import pytest

from ppmtf_jax.attacks.place_groups import adjacent_places, groups_of_moves
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.errors import InputError


def lattice(rows: np.ndarray, columns: np.ndarray, west: float = 139.0, decimals: int = 12) -> PlaceTable:
    """Cells of 0.01875 degrees, as 0.3 degrees in 16 parts."""
    longitude = (west + 0.01875 * columns + 180) % 360 - 180
    return PlaceTable(np.arange(len(rows)), np.round(35 + 0.01875 * rows, decimals), np.round(longitude, decimals))


@pytest.mark.parametrize("kept", [1.0, 0.5])
@pytest.mark.parametrize(("west", "decimals"), [(139.0, 12), (179.9, 12), (139.0, 3)])
def test_eight_cells_around_are_adjacent(kept: float, west: float, decimals: int) -> None:
    cells = np.random.default_rng(0).choice(256, int(256 * kept), replace=False)
    row, column = np.divmod(cells, 16)
    expected = np.maximum(abs(row[:, None] - row), abs(column[:, None] - column)) == 1
    assert (adjacent_places(lattice(row, column, west, decimals)).toarray() == expected).all()


def test_elsewhere_the_eight_nearest_are() -> None:
    position = np.random.default_rng(0).uniform(0, 0.1, (40, 2))
    places = PlaceTable(np.arange(40), 35 + position[:, 0], 139 + position[:, 1])
    distance = np.linalg.norm((places.position_km()[:, None] - places.position_km()), axis=-1)
    nearest = np.argsort(distance, axis=1)[:, 1:9]
    expected = np.zeros((40, 40))
    expected[np.arange(40)[:, None], nearest] = 1
    assert (adjacent_places(places).toarray() == np.maximum(expected, expected.T)).all()


def test_places_at_one_point_are_adjacent_to_each_other_but_none_to_itself() -> None:
    places = PlaceTable(np.arange(30), np.repeat([35.0, 35.1, 35.123], 10), np.full(30, 139.0))
    adjacent = adjacent_places(places).toarray()
    assert not adjacent.diagonal().any()
    assert (adjacent.sum(axis=1) >= 8).all()
    assert not adjacent[:10, 10:].any()


def test_weights_are_moves_both_ways_and_adjacency() -> None:
    # 0 and 1 are joined by a move either way, 2 and 3 by one move and adjacency; stays at 2 do not hold it apart.
    places = lattice(np.zeros(4, int), np.arange(4))
    place, next_place = np.array([[0, 1], [1, 0], [3, 2], [2, 2], [2, 2], [2, 2]]).T
    assert groups_of_moves(place, next_place, places).tolist() == [0, 0, 1, 1]
    assert groups_of_moves(place[:2], next_place[:2], places, 0.0).tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize("latitude", [[35.0, 35.0], [35.0, np.nan]])
def test_without_coordinates_nothing_is_adjacent(latitude: list[float]) -> None:
    places = PlaceTable(np.arange(2), np.array(latitude), np.full(2, 139.0))
    with pytest.raises(InputError, match="adjacency_weight of 0"):
        adjacent_places(places)
    assert groups_of_moves(np.zeros(1, int), np.zeros(1, int), places, 0.0).tolist() == [0, 1]


def test_one_place_is_one_group() -> None:
    places = PlaceTable(np.arange(1), np.zeros(1), np.zeros(1))
    assert groups_of_moves(np.zeros(3, int), np.zeros(3, int), places).tolist() == [0]
