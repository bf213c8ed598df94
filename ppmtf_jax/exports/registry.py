"""The formats that layers can be written in: each is registered by its own module."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.exports.layers import Layer
from ppmtf_jax.registry import Registry
from ppmtf_jax.runtime.files import atomic_file, check_output_file

# A mark is looked for in so many bytes at the beginning and at the end of a file.
SEARCHED_BYTES = 2**16


@dataclass(frozen=True)
class ExportFormat:
    """A format of files.

    Parameters
    ----------
    name : str
        By which it is asked for, such as "geojson".
    title : str
        What it is and who reads it, in one sentence.
    suffixes : tuple of str
        Endings of names of such files, such as ".geojson".
    write : function of a Layer and a Path
        Writes the file.
    of_traces_alone : bool
        Whether it is for what moves, and holds no population.
    mark : bytes
        Regular expression by which a file that `write` made is known: it fits near the beginning or the end of each.

    Examples
    --------
    >>> [name for name, entry in EXPORT_FORMATS.items() if ".geojson" in entry.suffixes]
    ['geojson', 'kepler-trips']
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    write: Callable[[Layer, Path], None]
    of_traces_alone: bool = False
    mark: bytes = rb'"made_by": "ppmtf_jax '


EXPORT_FORMATS: Registry[ExportFormat] = Registry(
    "export format", "ppmtf_jax.exports", first=("geojson", "geoparquet", "csv", "mf-json")
)


def write_layer(
    layer: Layer,
    path: str | os.PathLike[str],
    format_name: str | None = None,
    *,
    public: bool = False,
    overwrite: bool = False,
) -> None:
    """Write a layer into a file, in one step.

    Parameters
    ----------
    path : path
    format_name : str, optional
        Of `EXPORT_FORMATS`. By default the first whose files have names that end like this one.
    public : bool
        Whether others may read it: right only for what was released. Otherwise only its owner may.
    overwrite : bool
        Whether to replace an earlier export.

    Raises
    ------
    InputError
        The name ends in that of no format, or of another; the format holds no population; or the file cannot be
        written, or exists.

    Examples
    --------
    >>> import tempfile
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> from ppmtf_jax.exports.layers import population_layer
    >>> file = Path(tempfile.mkdtemp()) / "population.csv"
    >>> write_layer(population_layer({"real": toy_city(n_users=5, seed=0).traces}), file)
    >>> file.read_text(encoding="utf-8").splitlines()[0]
    'time,latitude,longitude,place,category,real_events,real_share'
    """
    entry = check_export(path, format_name, of_traces=layer.trace_of_row is not None, overwrite=overwrite)
    with atomic_file(path, public=public) as partial:
        entry.write(layer, partial)


def check_export(
    path: str | os.PathLike[str], format_name: str | None, *, of_traces: bool, overwrite: bool = False
) -> ExportFormat:
    """Refuse at once, and not after the work, a file that could not be written; gives its format.

    Raises
    ------
    InputError
        See `write_layer`.

    Examples
    --------
    >>> check_export("somewhere/traces.parquet", None, of_traces=True).name
    'geoparquet'
    """
    entry = _format_of(Path(path), format_name)
    if entry.of_traces_alone and not of_traces:
        others = ", ".join(name for name, other in EXPORT_FORMATS.items() if not other.of_traces_alone)
        raise InputError(entry.name, [Problem("traces", "a population", way_out=f"Choose one of {others}")])
    check_output_file(
        path,
        overwrite=overwrite,
        is_ours=lambda file: _has_mark(file, entry.mark),
        what=f"an earlier {entry.name} export",
    )
    return entry


def _format_of(path: Path, name: str | None) -> ExportFormat:
    fits = [entry for entry in EXPORT_FORMATS.values() if path.name.lower().endswith(entry.suffixes)]
    if name is None and fits:
        return fits[0]
    if name is None:
        known = dict.fromkeys(suffix for entry in EXPORT_FORMATS.values() for suffix in entry.suffixes)
        raise InputError(str(path), [Problem(f"a name that ends in {', '.join(known)}", path.suffix or "none of them")])
    entry = EXPORT_FORMATS[name]
    if entry not in fits:
        # Programs that read it go by the ending.
        expected = f"a name that ends in {' or '.join(entry.suffixes)} for {name}"
        raise InputError(str(path), [Problem(expected, path.suffix or "another")])
    return entry


def _has_mark(path: Path, mark: bytes) -> bool:
    with path.open("rb") as stream:
        begin = stream.read(SEARCHED_BYTES)
        stream.seek(max(0, path.stat().st_size - SEARCHED_BYTES))
        return any(re.search(mark, part) for part in (begin, stream.read()))
