"""Lines under maps: what is read of GeoJSON, and that maps look the same around them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation import plots

SQUARE = [[0, 0], [2, 0], [2, 1], [0, 0]]


@pytest.mark.parametrize(
    ("geometry", "lines"),
    [
        ({"type": "LineString", "coordinates": [[5, 52, 9.5], [6, 53, 9.5]]}, [[[52, 5], [53, 6]]]),
        (
            {"type": "MultiLineString", "coordinates": [[[5, 52], [6, 53]], [[1, 2], [3, 4]]]},
            [[[52, 5], [53, 6]], [[2, 1], [4, 3]]],
        ),
        ({"type": "Polygon", "coordinates": [SQUARE]}, [[[0, 0], [0, 2], [1, 2], [0, 0]]]),
        ({"type": "MultiPolygon", "coordinates": [[SQUARE], [SQUARE]]}, [[[0, 0], [0, 2], [1, 2], [0, 0]]] * 2),
    ],
)
def test_lines_of_every_kind_are_read(tmp_path, geometry, lines):
    features = [
        {"type": "Feature", "geometry": each} for each in (geometry, None, {"type": "Point", "coordinates": [1, 2]})
    ]
    features.append({"type": "Feature", "geometry": {"type": "GeometryCollection", "geometries": [geometry]}})
    (tmp_path / "a.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    assert [line.tolist() for line in plots.read_background(tmp_path / "a.geojson")] == lines * 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("roads", "a GeoJSON file of lines"),
        ("[1]", "a GeoJSON file of lines"),
        ('{"type": "Topology"}', "found ValueError: type 'Topology'"),
        ('{"type": "LineString", "coordinates": [["a", "b"], [1, 2]]}', "a GeoJSON file of lines"),
        ('{"type": "Point", "coordinates": [1, 2]}', "lines, such as roads or a coast; found none"),
        ('{"type": "LineString", "coordinates": [[390000, 5820000], [390001, 5820001]]}', r"Convert it to WGS84"),
    ],
)
def test_what_is_no_background(tmp_path, content, message):
    (tmp_path / "a.geojson").write_text(content)
    with pytest.raises(InputError, match=message):
        plots.read_background(tmp_path / "a.geojson")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="a GeoJSON file of lines; found FileNotFoundError"):
        plots.read_background(tmp_path / "none.geojson")


def test_lines_lie_under_dots_and_leave_the_frame_as_it_is():
    train, test = toy_city(20, seed=0).traces.split_users(0.5, seed=0)
    far = np.array([[-80.0, -170.0], [80.0, 170.0]])
    plain, with_lines = (plots.population_maps(test, train, slots=[1], background=lines) for lines in ((), [far]))
    for before, after in zip(plain.axes[:2], with_lines.axes[:2], strict=True):
        assert (before.get_xlim(), before.get_ylim()) == (after.get_xlim(), after.get_ylim())
        lines, *dots = sorted(after.collections, key=lambda each: each.get_zorder())
        np.testing.assert_array_equal(lines.get_segments()[0], far[:, ::-1])
        assert len(dots) == len(before.collections)
