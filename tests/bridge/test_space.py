"""Distances against the law of cosines on the sphere, and cells of near places."""

from __future__ import annotations

import numpy as np
import pytest

from ppmtf_jax.bridge.space import space_of
from ppmtf_jax.data.places import EARTH_RADIUS_KM, PlaceTable


def places_at(latitude, longitude) -> PlaceTable:
    return PlaceTable(np.arange(len(latitude)), np.asarray(latitude, float), np.asarray(longitude, float))


def on_sphere_km(places: PlaceTable) -> np.ndarray:
    latitude, longitude = np.radians(places.latitude), np.radians(places.longitude)
    cosine = np.sin(latitude[:, None]) * np.sin(latitude) + np.cos(latitude[:, None]) * np.cos(latitude) * np.cos(
        longitude[:, None] - longitude
    )
    return EARTH_RADIUS_KM * np.arccos(np.clip(cosine, -1, 1))


@pytest.mark.parametrize("west", [139.6, 179.9])
def test_distances_are_those_on_the_sphere(west):
    rng = np.random.default_rng(0)
    longitude = (west + 0.3 * rng.random(40) + 180) % 360 - 180
    places = places_at(35 + 0.3 * rng.random(40), longitude)
    space = space_of(places)
    assert space.is_exact
    assert space.has_distances
    # The plane touches at the middle: over 30 km the cosine of latitude changes by less than 0.3 percent.
    np.testing.assert_allclose(space.km, on_sphere_km(places), rtol=3e-3, atol=0.01)


def test_cells_hold_equally_many_near_places():
    rng = np.random.default_rng(1)
    places = places_at(35 + rng.random(1000), 139 + rng.random(1000))
    space = space_of(places, max_cells=64)
    size = np.bincount(space.cell)
    assert len(space.km) == 64
    assert size.min() >= 1000 // 64
    assert size.max() <= -(-1000 // 64)
    position = places.position_km()
    apart = np.hypot(*(position[:, None] - position).transpose(2, 0, 1))
    of_cells = space.km[space.cell[:, None], space.cell]
    centre = np.stack([np.bincount(space.cell, axis) / size for axis in position.T], axis=1)
    off = np.hypot(*(position - centre[space.cell]).T)
    same = space.cell[:, None] == space.cell
    # By the triangle inequality; and places are near the centres of their cells, of about 14 km x 11 km.
    assert (np.abs(of_cells - apart) <= off[:, None] + off + 1e-3)[~same].all()
    assert off.mean() < np.hypot(14, 11) / 2
    # Within a cell the root mean square over ordered pairs, a place with itself among them, as arithmetic says.
    squares = np.bincount(space.cell, (apart**2 * same).sum(axis=1)) / size**2
    np.testing.assert_allclose(np.diag(space.km) ** 2, squares, rtol=1e-5)


def test_places_at_one_point_have_no_distances():
    assert not space_of(places_at([35.0] * 3, [139.0] * 3)).has_distances
    assert not space_of(places_at([35.0], [139.0])).has_distances
    many = space_of(places_at([35.0] * 50, [139.0] * 50), max_cells=8)
    assert not many.has_distances
    assert len(many.km) == 8
