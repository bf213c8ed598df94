"""CSV: a row for each point, with time and coordinates, for everything else."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pyarrow as pa
from pyarrow import compute as arrow
from pyarrow import csv as arrow_csv

from ppmtf_jax.exports.layers import Layer
from ppmtf_jax.exports.nominal_times import iso_texts
from ppmtf_jax.exports.registry import EXPORT_FORMATS, ExportFormat

# What a spreadsheet takes for a formula, or for a mark before one; wide ones too, as Japanese keyboards have them.
RUNS = "^[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"


def write_csv(layer: Layer, path: Path) -> None:
    """Write the rows under a line of names; a CSV has no room for what the layer is about.

    Times are ISO 8601 with the offset of their zone. Texts, such as ids and categories, that a spreadsheet would run as
    a formula (they begin with = + - @, a TAB or a line break) get an apostrophe before them, which stops it.

    Examples
    --------
    >>> import tempfile
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> from ppmtf_jax.exports.layers import trace_layer
    >>> file = Path(tempfile.mkdtemp()) / "traces.csv"
    >>> write_csv(trace_layer(toy_city(n_users=5, seed=0).traces), file)
    >>> file.read_text(encoding="utf-8").splitlines()[0]
    'time,latitude,longitude,user,trace,place,category'
    """
    names = io.StringIO(newline="")
    csv.writer(names, lineterminator="\n").writerow(harmless(pa.array(list(layer.rows))).to_pylist())
    # The writer of Arrow is many times as fast as that of pandas, but puts all names in quotation marks.
    how = arrow_csv.WriteOptions(include_header=False, quoting_style="needed")
    with path.open("wb") as stream:
        stream.write(names.getvalue().encode())
        for piece in layer.in_pieces():
            rows = piece.rows.assign(time=iso_texts(piece.rows["time"]))
            table = pa.Table.from_pandas(rows, preserve_index=False)
            arrow_csv.write_csv(pa.table([harmless(each) for each in table], table.column_names), stream, how)


def harmless(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A column of which a spreadsheet runs no text; numbers and times stay what they are.

    Examples
    --------
    >>> harmless(pa.array(["=1+1", "bar"])).to_pylist(), harmless(pa.array([-1.5])).to_pylist()
    (["'=1+1", 'bar'], [-1.5])
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    marked = arrow.binary_join_element_wise(pa.scalar("'", column.type), column, pa.scalar("", column.type))  # type: ignore[attr-defined]
    return arrow.if_else(arrow.match_substring_regex(column, RUNS), marked, column)  # type: ignore[attr-defined]


EXPORT_FORMATS.register(
    ExportFormat(
        "csv",
        "A table with times and coordinates, for kepler.gl, QGIS and everything else.",
        (".csv",),
        write_csv,
        # Without what it is about the line of names has to do; others begin theirs in the same way.
        mark=rb"\Atime,latitude,longitude,(user,trace,place|place,(category,)?[^,\n]+_events,)",
    )
)
