"""The command line `ppmtf`: one command for each step of the line, and `run` for all of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from ppmtf_jax.errors import InputError, PpmtfError, Problem

console = Console()
complaints = Console(stderr=True)


class _FriendlyGroup(TyperGroup):
    """Shows an error message, not a traceback, for what a user can cause."""

    def invoke(self, ctx: typer.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PpmtfError as error:
            complaints.print("[bold red]Error[/bold red]", end=" ")
            complaints.print(str(error), markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as error:
            complaints.print("Stopped. Finished steps are kept; the same command goes on where it can.")
            raise typer.Exit(130) from error


app = typer.Typer(
    cls=_FriendlyGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Synthesize privacy-preserving location traces: learn, synthesize, test for plausible deniability, evaluate.",
)
importing = typer.Typer(cls=_FriendlyGroup, no_args_is_help=True, rich_markup_mode="rich")
app.add_typer(importing, name="import", help="Convert a data set into trace sets for training and testing.")

Out = Annotated[Path, typer.Option("--out", help="Folder to write; must not exist yet unless --overwrite is given.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same result.")]
NPlaces = Annotated[int, typer.Option("--places", min=1, help="Keep this many of the most visited places.")]
Grid = Annotated[
    str | None, typer.Option("--grid", help="south,north,west,east,rows,columns: a regular grid instead of places.")
]
Step = Annotated[int, typer.Option("--step", help="Seconds from one instant to the next.")]
Slot = Annotated[int, typer.Option("--slot", help="Seconds of a time slot; slots come round every day.")]
MaxGap = Annotated[float | None, typer.Option("--max-gap", help="Seconds between check-ins that end a trace.")]
Zone = Annotated[str | None, typer.Option("--time-zone", help="IANA name, such as Asia/Tokyo.")]
TrainFraction = Annotated[float, typer.Option("--train-fraction", help="Share of the users to learn from.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bars.")]


@importing.command("people-flow")
def import_people_flow(
    folder: Annotated[Path, typer.Argument(help="Folder of the official files, plain or gzipped.")],
    out: Out,
    synthetic: Annotated[
        Path | None, typer.Option("--synthetic", help="An official file of synthetic traces, to import beside them.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Import the SNS-based people flow data of the official PPMTF release.

    Writes OUT/train and OUT/test, and OUT/synthetic with --synthetic.

    Example: ppmtf import people-flow data/PF --out pf
    """
    from ppmtf_jax.datasets.people_flow import read_synthetic
    from ppmtf_jax.pipeline import ImportSettings, import_traces

    train, test, report = import_traces(ImportSettings("people-flow", str(folder)), seed=0)
    sets = {"train": train, "test": test}
    if synthetic is not None:
        sets["synthetic"] = read_synthetic(synthetic, train)
    _save_sets(sets, out, overwrite, report)


@importing.command("foursquare")
def import_foursquare(
    file: Annotated[
        Path, typer.Argument(help="dataset_TSMC2014_NYC.txt or _TKY.txt, plain or gzipped, or its folder.")
    ],
    out: Out,
    places: NPlaces = 1000,
    grid: Grid = None,
    step: Step = 3600,
    slot: Slot = 7200,
    max_gap: MaxGap = None,
    time_zone: Zone = None,
    train_fraction: TrainFraction = 0.8,
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Import Foursquare check-ins of the TSMC2014 release (eight columns).

    Writes OUT/train and OUT/test.

    Example: ppmtf import foursquare dataset_TSMC2014_NYC.txt --out nyc
    """
    values = _import_values(places, grid, step, slot, max_gap, time_zone, train_fraction)
    _import({"source": "foursquare", "path": str(file)} | values, out, seed, overwrite)


@importing.command("gowalla")
def import_gowalla(
    file: Annotated[Path, typer.Argument(help="loc-gowalla_totalCheckins.txt or a cut of it, plain or gzipped.")],
    out: Out,
    edges: Annotated[Path | None, typer.Option("--edges", help="loc-gowalla_edges.txt: friendships.")] = None,
    places: NPlaces = 1000,
    grid: Grid = None,
    step: Step = 3600,
    slot: Slot = 7200,
    max_gap: MaxGap = None,
    time_zone: Zone = None,
    train_fraction: TrainFraction = 0.8,
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Import Gowalla check-ins in SNAP's format, with friendships where the edges are given.

    Writes OUT/train and OUT/test.

    Example: ppmtf import gowalla checkins.txt --edges edges.txt --time-zone America/Chicago --out austin
    """
    values = _import_values(places, grid, step, slot, max_gap, time_zone, train_fraction)
    more = {"source": "gowalla", "path": str(file)} | ({"edges": str(edges)} if edges else {})
    _import(more | values, out, seed, overwrite)


@importing.command("checkins")
def import_checkins(
    file: Annotated[Path, typer.Argument(help="CSV, TSV or Parquet, plain or gzipped.")],
    out: Out,
    columns: Annotated[
        str, typer.Option("--columns", help="user=uid,time=ts,latitude=lat,longitude=lon[,place=...][,category=...]")
    ] = "",
    places: NPlaces = 1000,
    grid: Grid = None,
    step: Step = 3600,
    slot: Slot = 7200,
    max_gap: MaxGap = None,
    time_zone: Zone = None,
    train_fraction: TrainFraction = 0.8,
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Import any table of check-ins or GPS fixes.

    Writes OUT/train and OUT/test.

    Example: ppmtf import checkins my.csv --columns user=uid,time=when --time-zone Europe/Berlin --out berlin
    """
    values = _import_values(places, grid, step, slot, max_gap, time_zone, train_fraction)
    if columns:
        pairs = [pair.partition("=") for pair in columns.split(",")]
        values["columns"] = {name: int(column) if column.isdigit() else column for name, _, column in pairs}
    _import({"source": "checkins", "path": str(file)} | values, out, seed, overwrite)


@importing.command("toy-city")
def import_toy_city(
    out: Out,
    users: Annotated[int, typer.Option("--users", min=2)] = 400,
    places: NPlaces = 100,
    days: Annotated[int, typer.Option("--days", min=1)] = 7,
    train_fraction: TrainFraction = 0.8,
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Simulate a city, to try things out without any data.

    Writes OUT/train and OUT/test.

    Example: ppmtf import toy-city --users 1000 --out toy
    """
    values = {"n_users": users, "n_places": places, "n_days": days, "train_fraction": train_fraction}
    _import({"source": "toy-city"} | values, out, seed, overwrite)


@app.command()
def fit(
    train: Annotated[Path, typer.Argument(help="Trace set of the training users.")],
    out: Out,
    system: Annotated[str, typer.Option("--system", help="ppmtf, sgd or uniform.")] = "ppmtf",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the system as name=value, such as rank=32; may be repeated."),
    ] = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Learn a generative model of traces.

    Settings of ppmtf, with their defaults: rank=16, noise_precision=200, n_sweeps=100, zeros=sampled (or weighted),
    n_zeros=1000, max_transitions=100, max_visits=100, max_count=10, floor=1e-8. Of sgd: n_copied=0.

    A fit that was stopped goes on where it was when the same command is given again. The model holds the parameters:
    keep it secret.

    Example: ppmtf fit pf/train --out pf/model --set rank=16 --set noise_precision=200
    """
    from ppmtf_jax.gibbs.run import Checkpoints
    from ppmtf_jax.settings import build_settings, parse_assignments
    from ppmtf_jax.synthesizers.base import fit as fit_model
    from ppmtf_jax.synthesizers.base import synthesizer_named
    from ppmtf_jax.traces import Traces

    _check_free(out, overwrite)
    chosen = build_settings(synthesizer_named(system).settings, parse_assignments(settings or [], "--set"), system)
    checkpoint = out.with_name(f".{out.name}.checkpoint.npz")
    model = fit_model(
        Traces.load(train), system, chosen, seed=seed, progress=not quiet, checkpoints=Checkpoints(checkpoint)
    )
    model.save(out, overwrite=overwrite)
    checkpoint.unlink(missing_ok=True)
    console.print(f"{system} model of {model.n_users} users in {out}")


@app.command()
def synthesize(
    model: Annotated[Path, typer.Argument(help="Model folder, made by `ppmtf fit`.")],
    out: Out,
    traces_per_user: Annotated[int, typer.Option("--traces-per-user", min=1)] = 1,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Synthesize traces from every user of a model.

    They are not yet fit for release: test them first.

    Example: ppmtf synthesize pf/model --traces-per-user 10 --out pf/synthetic
    """
    from ppmtf_jax.synthesizers.base import FittedModel
    from ppmtf_jax.synthesizers.base import synthesize as synthesize_traces

    _check_free(out, overwrite)
    traces = synthesize_traces(FittedModel.load(model), traces_per_user, seed=seed, progress=not quiet)
    traces.save(out, overwrite=overwrite)
    console.print(f"{traces.n_users * traces_per_user} traces of {traces.time_grid.n_instants} events in {out}")


@app.command("test")
def check_deniability(
    model: Annotated[Path, typer.Argument(help="The model that the traces come from.")],
    synthetic: Annotated[Path, typer.Argument(help="Trace set made by `ppmtf synthesize`.")],
    out: Out,
    k: Annotated[int, typer.Option("--k", min=1, help="Users who must be as plausible, the input user included.")] = 10,
    eta: Annotated[
        float, typer.Option("--eta", help="Width of a bin of log-likelihood; smaller protects better.")
    ] = 1.0,
    verifiers: Annotated[
        int | None, typer.Option("--verifiers", min=1, help="Size of the random subset of users asked; default all.")
    ] = None,
    count_all: Annotated[bool, typer.Option("--count-all", help="Count on after k was reached.")] = False,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Test synthetic traces for plausible deniability and keep those that pass.

    Writes OUT/verdicts.parquet (user, trace, log_likelihood, plausible_users, passed) and, as a trace set in OUT, the
    traces that passed.

    Example: ppmtf test pf/model pf/synthetic --k 10 --eta 1 --out pf/released
    """
    from ppmtf_jax.pipeline import save_released
    from ppmtf_jax.privacy.plausible_deniability import plausible_deniability_test
    from ppmtf_jax.synthesizers.base import FittedModel
    from ppmtf_jax.traces import Traces

    _check_free(out, overwrite)
    traces = Traces.load(synthetic)
    verdicts = plausible_deniability_test(
        FittedModel.load(model),
        traces,
        k=k,
        eta=eta,
        n_verifiers=verifiers,
        seed=seed,
        count_all=count_all,
        progress=not quiet,
    )
    save_released(traces, verdicts, out, overwrite=overwrite)
    n_passed, n_traces = int(verdicts.passed.sum()), len(verdicts.passed)
    console.print(f"{n_passed} of {n_traces} traces passed (k = {k}, eta = {eta:g}); verdicts in {out}")
    if not n_passed:
        console.print(
            "No trace may be released: lower k, raise eta, or learn a smoother model (lower noise_precision)."
        )


@app.command()
def evaluate(
    synthetic: Annotated[Path, typer.Argument(help="Trace set to evaluate.")],
    train: Annotated[Path, typer.Option("--train", help="Trace set of the training users.")],
    test: Annotated[Path, typer.Option("--test", help="Trace set of users who were not used.")],
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the numbers to this file.")] = None,
    attacks: Annotated[bool, typer.Option(help="Also attack the traces.")] = True,
) -> None:
    """Measure utility and privacy, beside the training traces and uniform ones.

    Example: ppmtf evaluate pf/synthetic --train pf/train --test pf/test --json metrics.json
    """
    from ppmtf_jax.evaluation.metrics import evaluate as evaluate_traces
    from ppmtf_jax.evaluation.report import format_table, write_json
    from ppmtf_jax.traces import Traces

    metrics = evaluate_traces(Traces.load(synthetic), Traces.load(train), Traces.load(test), attacks=attacks)
    if json_file is not None:
        write_json(json_file, metrics)
    console.print(format_table(metrics))


@app.command()
def run(
    config: Annotated[Path, typer.Argument(help="TOML file with [import], [fit], [synthesize], [test], [evaluate].")],
    quiet: Quiet = False,
) -> None:
    """Do the whole job of a configuration file: import, fit, synthesize, test, evaluate, draw.

    Finished steps are skipped unless what they depend on changed; a job that was stopped goes on when run again.

    Example: ppmtf run job.toml (the README shows a file).
    """
    from ppmtf_jax.pipeline import RunConfig

    _run_and_show(RunConfig.load(config), quiet)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for everything that is made.")] = Path("demo"),
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Run the whole line on a simulated city: a table, pictures, and traces that passed the privacy test.

    Example: ppmtf demo --out demo
    """
    from ppmtf_jax.pipeline import RunConfig

    # Homes are many and users each have one, so the toy city takes a higher rank than the published data.
    content = {
        "out": str(out),
        "seed": seed,
        "import": {"source": "toy-city", "n_users": 2500},
        "fit": {"rank": 32, "zeros": "weighted", "n_zeros": 300},
    }
    _run_and_show(RunConfig.from_mapping(content, Path(), default_out="demo", subject="demo"), quiet)


def _run_and_show(config: Any, quiet: bool) -> None:
    from ppmtf_jax.evaluation.report import format_table
    from ppmtf_jax.pipeline import run as run_job

    result = run_job(config, progress=not quiet, say=lambda text: console.print(text, markup=False, highlight=False))
    console.print(format_table(result.metrics))
    if result.n_released:
        console.print(
            f"{result.n_released} of {result.n_traces} traces passed the privacy test: {result.out / 'released'}"
        )
    else:
        console.print(
            f"None of {result.n_traces} traces passed the privacy test; the table shows what was not released."
        )
    console.print(f"Pictures: {', '.join(path.name for path in result.pictures)} in {result.out / 'pictures'}")


def _import_values(
    places: int, grid: str | None, step: int, slot: int, max_gap: float | None, zone: str | None, train_fraction: float
) -> dict[str, Any]:
    values: dict[str, Any] = {"n_places": places, "step_s": step, "slot_s": slot, "train_fraction": train_fraction}
    if grid is not None:
        try:
            values["grid"] = tuple(float(part) for part in grid.split(","))
        except ValueError:
            expected = "south,north,west,east,rows,columns as numbers"
            raise InputError("--grid", [Problem(expected, repr(grid))]) from None
    if max_gap is not None:
        values["max_gap_s"] = max_gap
    if zone is not None:
        values["time_zone"] = zone
    return values


def _import(values: dict[str, Any], out: Path, seed: int, overwrite: bool) -> None:
    from ppmtf_jax.pipeline import ImportSettings, import_traces

    _check_free(out, overwrite)
    train, test, report = import_traces(ImportSettings(**values), seed)
    _save_sets({"train": train, "test": test}, out, overwrite, report)


def _save_sets(sets: dict[str, Any], out: Path, overwrite: bool, report: str) -> None:
    from ppmtf_jax.files import atomic_folder

    with atomic_folder(out, overwrite=overwrite) as partial:
        for name, traces in sets.items():
            (partial / name).mkdir()
            traces.write_into(partial / name)
    console.print(report, markup=False, highlight=False)
    for name, traces in sets.items():
        console.print(f"{out / name}: {traces.n_users} users, {traces.n_events} events")


def _check_free(out: Path, overwrite: bool) -> None:
    """Refuse at once, not after the work, to write over something."""
    if out.exists() and not overwrite:
        raise InputError(
            str(out), [Problem("a name that is free", "an existing one", way_out="Give --overwrite to replace it")]
        )


if __name__ == "__main__":
    sys.exit(app())
