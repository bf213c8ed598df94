"""Layers as tables of GeoPandas; and what is said where a library is missing."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from ppmtf_jax.errors import InputError
from ppmtf_jax.exports import to_geodataframe, to_movingpandas, to_trackintel
from ppmtf_jax.exports.layers import population_layer, trace_layer
from tests.exports.examples import PLACES, ROWS, by_hand


def test_points_are_where_places_are():
    pytest.importorskip("geopandas", reason="needs GeoPandas (extra interop)")
    layer = trace_layer(by_hand())
    table = to_geodataframe(layer)
    assert table.crs.to_epsg() == 4326
    assert table.geometry.x.tolist() == [PLACES.longitude[place] for *_, place in ROWS]
    assert table.attrs["about"] == layer.about
    assert "geometry" not in layer.rows
    assert len(to_geodataframe(population_layer({"real": by_hand()}))) == 6


@pytest.mark.parametrize(
    ("library", "convert"),
    [("geopandas", lambda: to_geodataframe(trace_layer(by_hand()))), ("trackintel", lambda: to_trackintel(by_hand())),
     ("movingpandas", lambda: to_movingpandas(by_hand().select_traces(np.array([True, False, True]))))],
)  # fmt: skip
def test_a_missing_library_is_told_with_the_way_to_get_it(monkeypatch, library, convert):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=rf"{library}: .*pip install 'ppmtf_jax\[interop\]'"):
        convert()
