"""Commands that write files for maps: `ppmtf export population` and `traces`.

Others may read a file only if all of it comes from a release.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ppmtf_jax.cli.console import tell
from ppmtf_jax.cli.group import example, group_of_commands
from ppmtf_jax.cli.options import Quiet, argument, option
from ppmtf_jax.data.stored_traces import open_traces
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.exports.layers import Layer, population_layer, trace_layer
from ppmtf_jax.exports.registry import EXPORT_FORMATS, check_export, write_layer
from ppmtf_jax.jobs.steps import open_released
from ppmtf_jax.privacy.release import is_release
from ppmtf_jax.streams import check_seed

OutFile = Annotated[Path, option("--out FILE", "The file to write; the name must be free.")]
BY_ENDING = "By default, the ending of the file's name decides."
TraceFormat = Annotated[str | None, option("--format NAME", f"One of {', '.join(EXPORT_FORMATS)}. {BY_ENDING}")]
OF_POINTS = [name for name, entry in EXPORT_FORMATS.items() if not entry.of_traces_alone]
PopulationFormat = Annotated[str | None, option("--format NAME", f"One of {', '.join(OF_POINTS)}. {BY_ENDING}")]
Replace = Annotated[bool, option("--overwrite", "Replace an earlier export.")]

RELEASED = "The traces are from a release: anyone may read the file."
UNTESTED = "The traces are synthetic and not tested for release: only you can read the file."
UNRELEASED = "The traces are of nobody, but not released: only you can read the file."
OF_NOBODY = "Their users are synthetic; see PRIVACY.txt beside the traces. Only you can read the file."
REAL = "REAL DATA: the file shows where real people were. Only you can read it: give it to nobody."

export = group_of_commands("export", example("ppmtf export traces released --out traces.geojson"))


@export.command(epilog=example("ppmtf export population released --real city/train --out population.geojson"))
def population(
    traces: Annotated[Path, argument("TRACES", "Released, synthetic or real traces.")],
    out: OutFile,
    real: Annotated[Path | None, option("--real TRACES", "Real traces to compare them with, place by place.")] = None,
    format_name: PopulationFormat = None,
    overwrite: Replace = False,
    quiet: Quiet = False,
) -> None:
    """Write how many people are at each place in each hour, in synthetic and in real traces.

    The file has a row for each place and hour: the number of events, and their share of all events of the hour. If the
    grid has several days, all days are counted together. Times are nominal and lie on the first day of the grid, for
    the time sliders of map programs. Nothing protects counts of real people.
    """
    check_export(out, format_name, of_traces=False, overwrite=overwrite)
    loaded, whose = _load(traces, quiet)
    # Real traces must not be called synthetic in the file.
    sets = {"real" if whose == REAL and real is None else "synthetic": loaded}
    if real is not None:
        compared = open_traces(real, progress=not quiet)
        sets = {"synthetic": open_released(traces, compared, None) if whose == RELEASED else loaded, "real": compared}
        whose = REAL
    layer = population_layer(sets)
    write_layer(layer, out, format_name, public=whose == RELEASED, overwrite=overwrite)
    rows = layer.rows
    tell(f"{len(rows)} rows for {rows['place'].nunique()} places and {rows['time'].nunique()} hours in {out}")
    _tell_of(layer, whose)


@export.command(epilog=example("ppmtf export traces released --sample 100 --out traces.geojson"))
def traces(
    traces: Annotated[Path, argument("TRACES", "Released or synthetic traces.")],
    out: OutFile,
    sample: Annotated[int | None, option("--sample N", "Number of traces, drawn at random. By default all.")] = None,
    seed: Annotated[int, option("--seed N", "The same seed draws the same traces.", callback=check_seed)] = 0,
    of_real_people: Annotated[
        bool, option("--of-real-people", "Write the traces even if they are of real people.")
    ] = False,
    format_name: TraceFormat = None,
    overwrite: Replace = False,
    quiet: Quiet = False,
) -> None:
    """Write traces event by event, with times and coordinates.

    Times are nominal, from the time grid: all synthetic traces are on the same days, and only the hour has a meaning,
    and in traces of several days perhaps the day of the week.
    """
    check_export(out, format_name, of_traces=True, overwrite=overwrite)
    loaded, whose = _load(traces, quiet)
    if whose == REAL and not of_real_people:
        way_out = (
            "Each trace would show where somebody was, and when. Export a release or synthetic traces; or say that you "
            "want it (--of-real-people)"
        )
        raise InputError(str(traces), [Problem("released or synthetic traces", "real ones", way_out=way_out)])
    layer = trace_layer(loaded, sample, seed=seed)
    write_layer(layer, out, format_name, public=whose == RELEASED, overwrite=overwrite)
    n_all = layer.about["traces_in_all"]
    which = f"all {n_all}" if layer.n_traces == n_all else f"{layer.n_traces} of {n_all}"
    tell(f"{which} traces, {layer.n_rows} events, in {out}")
    _tell_of(layer, whose)


def _load(folder: Path, quiet: bool) -> tuple[Traces, str]:
    """A trace set, and a remark on the privacy of its users."""
    traces = open_traces(folder, progress=not quiet)
    if is_release(folder):
        return traces, RELEASED
    if traces.of_nobody:
        return traces, OF_NOBODY if traces.origin is None else UNRELEASED
    return traces, REAL if traces.origin is None else UNTESTED


def _tell_of(layer: Layer, whose: str) -> None:
    tell(f"Times are nominal, by the clocks of {layer.about['time_zone']}.")
    tell(whose)
