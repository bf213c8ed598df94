"""Commands that write files for maps: `ppmtf export population` and `traces`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ppmtf_jax.cli.console import tell
from ppmtf_jax.cli.group import FriendlyGroup
from ppmtf_jax.cli.options import Quiet, example
from ppmtf_jax.exports.registry import EXPORT_FORMATS
from ppmtf_jax.jobs.export import OF_NOBODY, REAL, RELEASED, UNTESTED, Exported, export_population, export_traces
from ppmtf_jax.streams import check_seed

OutFile = Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write; the name must be free.")]
BY_ENDING = "By default, the ending of the file's name decides."
TraceFormat = Annotated[
    str | None, typer.Option("--format", metavar="NAME", help=f"One of {', '.join(EXPORT_FORMATS)}. {BY_ENDING}")
]
OF_POINTS = [name for name, entry in EXPORT_FORMATS.items() if not entry.of_traces_alone]
PopulationFormat = Annotated[
    str | None, typer.Option("--format", metavar="NAME", help=f"One of {', '.join(OF_POINTS)}. {BY_ENDING}")
]
Replace = Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export.")]

WORDS = {
    RELEASED: "The traces are from a release: anyone may read the file.",
    UNTESTED: "The traces are synthetic and not tested for release: only you can read the file.",
    OF_NOBODY: "Their users are synthetic; see PRIVACY.txt beside the traces. Only you can read the file.",
    REAL: "REAL DATA: the file shows where real people were. Only you can read it: give it to nobody.",
}


def add_to(app: typer.Typer) -> None:
    """Add `export` to the commands."""
    group = typer.Typer(cls=FriendlyGroup, no_args_is_help=True, rich_markup_mode="markdown", callback=lambda: None)
    group.command(epilog=example("ppmtf export population released --real city/train --out population.geojson"))(
        population
    )
    group.command(epilog=example("ppmtf export traces released --sample 100 --out traces.geojson"))(traces)
    app.add_typer(
        group,
        name="export",
        help="Write a population or traces for maps: kepler.gl, QGIS and others.",
        epilog=example("ppmtf export traces released --out traces.geojson"),
    )


def population(
    traces: Annotated[Path, typer.Argument(metavar="TRACES", help="Released, synthetic or real traces.")],
    out: OutFile,
    real: Annotated[
        Path | None, typer.Option("--real", metavar="TRACES", help="Real traces to compare them with, place by place.")
    ] = None,
    format_name: PopulationFormat = None,
    overwrite: Replace = False,
    quiet: Quiet = False,
) -> None:
    """Write how many people are at each place in each hour, in synthetic and in real traces.

    The file has a row for each place and hour: the number of events, and their share of all events of the hour. If the
    grid has several days, all days are counted together. Times are nominal and lie on the first day of the grid, for
    the time sliders of map programs. Nothing protects counts of real people.
    """
    made = export_population(traces, out, format_name, real=real, overwrite=overwrite, progress=not quiet)
    rows = made.layer.rows
    tell(f"{len(rows)} rows for {rows['place'].nunique()} places and {rows['time'].nunique()} hours in {out}")
    _tell_of(made)


def traces(
    traces: Annotated[Path, typer.Argument(metavar="TRACES", help="Released or synthetic traces.")],
    out: OutFile,
    sample: Annotated[
        int | None, typer.Option("--sample", metavar="N", help="Number of traces, drawn at random. By default all.")
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", callback=check_seed, help="The same seed draws the same traces.")
    ] = 0,
    of_real_people: Annotated[
        bool, typer.Option("--of-real-people", help="Write the traces even if they are of real people.")
    ] = False,
    format_name: TraceFormat = None,
    overwrite: Replace = False,
    quiet: Quiet = False,
) -> None:
    """Write traces event by event, with times and coordinates.

    Times are nominal, from the time grid: all synthetic traces are on the same day, and only the hour has a meaning.
    """
    made = export_traces(
        traces,
        out,
        format_name,
        n_traces=sample,
        seed=seed,
        of_real_people=of_real_people,
        overwrite=overwrite,
        progress=not quiet,
    )
    n_all = made.layer.about["traces_in_all"]
    which = f"all {n_all}" if made.layer.n_traces == n_all else f"{made.layer.n_traces} of {n_all}"
    tell(f"{which} traces, {len(made.layer.rows)} events, in {out}")
    _tell_of(made)


def _tell_of(made: Exported) -> None:
    tell(f"Times are nominal, by the clocks of {made.layer.about['time_zone']}.")
    # Real data decides, whatever stands beside it.
    tell(WORDS[REAL if REAL in made.whose else made.whose[0]])
