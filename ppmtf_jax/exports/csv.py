"""CSV: a row for each point, with time and coordinates."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pyarrow as pa
from pyarrow import compute as arrow
from pyarrow import csv as arrow_csv

from ppmtf_jax.exports.layers import Layer
from ppmtf_jax.exports.nominal_times import iso_texts
from ppmtf_jax.exports.registry import export_format

# A spreadsheet takes a text with such a beginning for a formula. The last four are wide forms of Japanese keyboards.
RUNS = "^[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"


@export_format(
    "csv",
    "A table with times and coordinates, for kepler.gl, QGIS and everything else.",
    (".csv",),
    # The whole line of names, because a CSV has no `about`, and other files begin as this line does.
    mark=rb"\Atime,latitude,longitude,(user,trace,place|place,(category,)?[^,\n]+_events,)",
)
def write_csv(layer: Layer, path: Path) -> None:
    """Write a line of column names and the rows; a CSV has no place for `layer.about`.

    Times are ISO 8601 with the offset of their zone. A text that a spreadsheet would run as a formula (it begins with =
    + - @, a TAB or a line break) gets an apostrophe before it, which prevents that.
    """
    # Arrow writes many times as fast as pandas, but puts all column names in quotation marks.
    how = arrow_csv.WriteOptions(include_header=False, quoting_style="needed")
    with path.open("wb") as stream:
        for piece in layer.pieces():
            if not stream.tell():
                names = io.StringIO(newline="")
                csv.writer(names, lineterminator="\n").writerow(harmless(pa.array(list(piece.rows))).to_pylist())
                stream.write(names.getvalue().encode())
            rows = piece.rows.assign(time=iso_texts(piece.rows["time"]))
            table = pa.Table.from_pandas(rows, preserve_index=False)
            arrow_csv.write_csv(pa.table([harmless(each) for each in table], table.column_names), stream, how)


def harmless(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A column without texts that a spreadsheet would run; numbers and times stay unchanged.

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
