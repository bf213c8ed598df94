"""JSON texts of whole columns, without a Python step for each row."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import compute as arrow

from ppmtf_jax.exports.layers import Layer, Piece
from ppmtf_jax.exports.nominal_times import iso_texts


def json_texts(column: pd.Series) -> pa.Array:
    r"""Each value of a column as JSON; missing ones as null, zoned times as ISO 8601 with their offset.

    Examples
    --------
    >>> json_texts(pd.Series([0.5, float("nan")])).to_pylist(), json_texts(pd.Series(["a", 'say "b"'])).to_pylist()
    (['0.5', 'null'], ['"a"', '"say \\"b\\""'])
    """
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        column = pd.Series(iso_texts(column))
    if pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype):
        return pa.array(column.to_numpy(), from_pandas=True).cast(pa.string()).fill_null("null")
    code, distinct = pd.factorize(column)
    texts = np.array([*(json.dumps(value, default=str) for value in distinct.tolist()), "null"], object)
    return pa.array(texts[code], pa.string())


def joined(*parts: pa.Array | str) -> pa.Array:
    """Concatenate texts row by row; a single text is added to every row."""
    return arrow.binary_join_element_wise(*parts, "")  # type: ignore[attr-defined]


def json_objects(columns: Mapping[str, pa.Array]) -> pa.Array:
    """A JSON object for each row, from columns of JSON texts.

    Examples
    --------
    >>> json_objects({"a": pa.array(["1", "2"]), "b": pa.array(["null", "3"])}).to_pylist()
    ['{"a":1,"b":null}', '{"a":2,"b":3}']
    """
    parts: list[pa.Array | str] = []
    for name, texts in columns.items():
        parts += [f"{',' if parts else '{'}{json.dumps(name)}:", texts]
    return joined(*parts, "}")


def json_arrays(texts: pa.Array, first: np.ndarray) -> pa.Array:
    """A JSON array for each group of rows; `first` has the first row of each group.

    Examples
    --------
    >>> json_arrays(pa.array(["1", "2", "3"]), np.array([0, 1])).to_pylist()
    ['[1]', '[2,3]']
    """
    groups = pa.ListArray.from_arrays(pa.array(np.append(first, len(texts)), pa.int32()), texts)
    return joined("[", arrow.binary_join(groups, ","), "]")  # type: ignore[attr-defined]


def write_collection(layer: Layer, path: Path, features: Callable[[Piece], pa.Array], **members: object) -> None:
    """Write a feature collection: the members and `layer.about`, then the `features` of each piece of the layer."""
    members["about"] = layer.about
    head = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in members.items())
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write(f'{{"type": "FeatureCollection",\n{head},\n"features": [')
        between = "\n"
        for piece in layer.pieces():
            stream.write(between + ",\n".join(features(piece).to_pylist()))
            between = ",\n"
        stream.write("\n]}\n")
