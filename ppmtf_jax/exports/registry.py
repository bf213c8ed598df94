"""The file formats of layers, and how a layer becomes a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.exports.layers import Layer
from ppmtf_jax.registry import Registry
from ppmtf_jax.runtime.files import PathLike, atomic_file, check_output_file, has_mark

Write = Callable[[Layer, Path], None]


@dataclass(frozen=True)
class ExportFormat:
    """A file format of layers.

    Parameters
    ----------
    title : str
        What it is and which programs read it, in one sentence.
    suffixes : tuple of str
        Endings of file names, such as ".geojson".
    of_traces_alone : bool
        Whether the format is for traces only and not for populations.
    mark : bytes
        Regular expression that recognizes a file from `write`; see `runtime.files.has_mark`.

    Examples
    --------
    >>> [name for name, entry in EXPORT_FORMATS.items() if ".geojson" in entry.suffixes]
    ['geojson', 'kepler-trips']
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    write: Write
    of_traces_alone: bool = False
    mark: bytes = rb'"made_by": "ppmtf_jax '


EXPORT_FORMATS: Registry[ExportFormat] = Registry(
    "export format", "ppmtf_jax.exports", first=("geojson", "geoparquet", "csv", "mf-json")
)


def export_format(name: str, title: str, suffixes: tuple[str, ...], **options: Any) -> Callable[[Write], Write]:
    """Register the decorated function, which writes a file, as a format; the arguments are those of `ExportFormat`."""

    def register(write: Write) -> Write:
        EXPORT_FORMATS.register(ExportFormat(name, title, suffixes, write, **options))
        return write

    return register


def write_layer(
    layer: Layer, path: PathLike, format_name: str | None = None, *, public: bool = False, overwrite: bool = False
) -> None:
    """Write a layer to a file, in one step.

    `format_name`: one of `EXPORT_FORMATS`; by default the first with this ending of the file name. `public`: whether
    other users may read the file; set this only for released traces. `overwrite`: whether to replace an earlier export.
    Raises `InputError`: the ending does not fit the format, the format cannot contain a population, or the file exists
    or cannot be written.

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
    entry = check_export(path, format_name, of_traces=layer.n_traces > 0, overwrite=overwrite)
    with atomic_file(path, public=public) as partial:
        entry.write(layer, partial)


def check_export(path: PathLike, format_name: str | None, *, of_traces: bool, overwrite: bool = False) -> ExportFormat:
    """The format of an output file; refuses, before the work, an output that `write_layer` would refuse after it."""
    file = Path(path)
    fits = [entry for entry in EXPORT_FORMATS.values() if file.name.lower().endswith(entry.suffixes)]
    if format_name is None and not fits:
        known = dict.fromkeys(suffix for entry in EXPORT_FORMATS.values() for suffix in entry.suffixes)
        raise InputError(str(file), [Problem(f"a name that ends in {', '.join(known)}", file.suffix or "none of them")])
    entry = fits[0] if format_name is None else EXPORT_FORMATS[format_name]
    if entry not in fits:
        # Other programs recognize the format by the ending.
        expected = f"a name that ends in {' or '.join(entry.suffixes)} for {entry.name}"
        raise InputError(str(file), [Problem(expected, file.suffix or "another")])
    if entry.of_traces_alone and not of_traces:
        others = ", ".join(name for name, other in EXPORT_FORMATS.items() if not other.of_traces_alone)
        raise InputError(entry.name, [Problem("traces", "a population", way_out=f"Choose one of {others}")])
    is_ours = partial(has_mark, mark=entry.mark)
    check_output_file(path, overwrite=overwrite, is_ours=is_ours, what=f"an earlier {entry.name} export")
    return entry
