"""CSV: a row for each point, with time and coordinates, for everything else."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pyarrow as pa
from pyarrow import csv as arrow_csv

from ppmtf_jax.exports.layers import Layer
from ppmtf_jax.exports.nominal_times import iso_texts
from ppmtf_jax.exports.registry import EXPORT_FORMATS, ExportFormat


def write_csv(layer: Layer, path: Path) -> None:
    """Write the rows under a line of names; a CSV has no room for what the layer is about.

    Times are ISO 8601 with the offset of their zone.

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
    csv.writer(names, lineterminator="\n").writerow(layer.rows)
    # The writer of Arrow is many times as fast as that of pandas, but puts all names in quotation marks.
    how = arrow_csv.WriteOptions(include_header=False, quoting_style="needed")
    with path.open("wb") as stream:
        stream.write(names.getvalue().encode())
        for piece in layer.in_pieces():
            rows = piece.rows.assign(time=iso_texts(piece.rows["time"]))
            arrow_csv.write_csv(pa.Table.from_pandas(rows, preserve_index=False), stream, how)


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
