"""The command line `ppmtf`: one command for each step of the line, and `run` for all of them."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import nullcontext, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import typer
from jax.errors import JaxRuntimeError
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.people_flow import read_synthetic
from ppmtf_jax.errors import InputError, PpmtfError, Problem
from ppmtf_jax.evaluation.evaluation import METRICS
from ppmtf_jax.evaluation.evaluation import evaluate as evaluate_traces
from ppmtf_jax.evaluation.tables import format_table, write_json
from ppmtf_jax.gibbs.diagnostics import MAX_R_HAT
from ppmtf_jax.gibbs.run import Checkpoints
from ppmtf_jax.jobs import steps as pipeline
from ppmtf_jax.privacy.plausible_deniability import PlausibleDeniability, plausible_deniability_test
from ppmtf_jax.runtime.devices import (
    is_first_process,
    join_processes,
    leave_processes,
    use_all_cores,
    wait_for_processes,
)
from ppmtf_jax.runtime.files import atomic_folder, clear_leftovers, exclusive_use
from ppmtf_jax.runtime.progress import spinner
from ppmtf_jax.settings import build_settings, check_seed, describe_settings, parse_assignments, split_assignments
from ppmtf_jax.synthesizers import fitted_model, registry, synthesis
from ppmtf_jax.synthesizers.convergence import diagnose_model

COMMANDS = ("demo", "import", "fit", "diagnose", "synthesize", "test", "evaluate", "run")
STEPS = "Step by step"
MANY = "Several processes or machines"
WHOLE = "All steps at once"
FORMAT = "From check-ins to traces"
SUMMARY = "summary.csv"

console = Console()
complaints = Console(stderr=True)


class _FriendlyGroup(TyperGroup):
    """Shows an error message, not a traceback, for what a user can cause."""

    def list_commands(self, ctx: Any) -> list[str]:
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: COMMANDS.index(name) if name in COMMANDS else len(COMMANDS))

    def invoke(self, ctx: Any) -> Any:
        with suppress(InputError):  # where this is called from a program that has used JAX already
            use_all_cores()
        try:
            return self._invoke(ctx)
        except typer.Exit as end:
            if end.exit_code:
                leave_processes(end.exit_code)
            raise

    def _invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            wait_for_processes()
            return result
        except PpmtfError as error:
            raise _stop(str(error)) from error
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # nobody reads on, as in `ppmtf ... | head`: typer ends quietly
            where = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            raise _stop(f"{where}. Check permissions and free space; what was finished is kept.") from error
        except (MemoryError, JaxRuntimeError) as error:
            if "Gloo" in str(error):
                raise _stop(f"another process ended before the work was done; see what it says. ({error})") from error
            if isinstance(error, JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
                raise
            way_out = "Take fewer users or places, a lower rank, or zeros=weighted; what was finished is kept"
            raise _stop(f"the memory does not suffice ({error}). {way_out}.") from error
        except KeyboardInterrupt as error:
            complaints.print("Stopped. What was finished is kept; `fit` and `run` go on when they are called again.")
            raise typer.Exit(130) from error


def _stop(message: str) -> typer.Exit:
    complaints.print("[bold red]Error:[/bold red]", end=" ")
    complaints.print(message, markup=False, highlight=False, soft_wrap=True)
    return typer.Exit(1)


# As far as Fig. 16 of Murakami et al. 2021 goes.
MAX_PLOTTED_K = 200

app = typer.Typer(
    cls=_FriendlyGroup,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Synthesize location traces that keep the statistics of real ones, and test that they protect people.",
    epilog="To see it at work without any data: `ppmtf demo`",
)
importing = typer.Typer(cls=_FriendlyGroup, no_args_is_help=True, rich_markup_mode="markdown")
app.add_typer(
    importing,
    name="import",
    help="Convert a data set into two trace sets, for training and for testing.",
    epilog="Each has its own help: `ppmtf import checkins --help`",
    rich_help_panel=STEPS,
)


def _example(command: str) -> str:
    return f"Example: `{command}`"


Out = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where to write; the name must be free.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an earlier output of that name.")]
Seed = Annotated[
    int, typer.Option("--seed", metavar="N", callback=check_seed, help="The same seed gives the same result.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder, made by `ppmtf fit`.")]
NPlaces = Annotated[
    int,
    typer.Option("--places", metavar="N", min=1, help="Keep the N most visited places.", rich_help_panel=FORMAT),
]
Grid = Annotated[
    str | None,
    typer.Option(
        "--grid",
        metavar="S,N,W,E,ROWS,COLS",
        help="Use the cells of a regular grid over this box, in degrees, as places.",
        rich_help_panel=FORMAT,
    ),
]
Step = Annotated[
    int,
    typer.Option("--step", metavar="SECONDS", help="From one instant to the next.", rich_help_panel=FORMAT),
]
Slot = Annotated[
    int,
    typer.Option(
        "--slot", metavar="SECONDS", help="Length of a time slot; slots come round every day.", rich_help_panel=FORMAT
    ),
]
MaxGap = Annotated[
    float | None,
    typer.Option(
        "--max-gap",
        metavar="SECONDS",
        help="Between check-ins further apart a new trace begins.",
        rich_help_panel=FORMAT,
    ),
]
Zone = Annotated[
    str | None,
    typer.Option(
        "--time-zone", metavar="ZONE", help="Whose clocks the slots follow, such as Asia/Tokyo.", rich_help_panel=FORMAT
    ),
]
Coordinator = Annotated[
    str | None,
    typer.Option(
        "--coordinator",
        metavar="HOST:PORT",
        help="Share the work with other processes, each called with the same command: where process 0 listens.",
        rich_help_panel=MANY,
    ),
]
Processes = Annotated[
    int, typer.Option("--processes", metavar="N", min=1, help="How many there are.", rich_help_panel=MANY)
]
Process = Annotated[
    int, typer.Option("--process", metavar="I", min=0, help="Which one this is; 0 writes.", rich_help_panel=MANY)
]
TrainFraction = Annotated[
    float, typer.Option("--train-fraction", metavar="SHARE", help="Share of the users to learn from.")
]


@app.callback(invoke_without_command=True)
def main(
    show_version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Do what is asked of `ppmtf` itself, before any command."""
    if show_version:
        console.print(f"ppmtf_jax {version('ppmtf_jax')}", highlight=False)


@importing.command("people-flow", epilog=_example("ppmtf import people-flow data/PF --out pf"))
def import_people_flow(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of the official files, plain or gzipped.")],
    out: Out,
    synthetic: Annotated[
        Path | None, typer.Option("--synthetic", metavar="FILE", help="Official synthetic traces, to import too.")
    ] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Import the SNS-based people flow data of the official PPMTF release.

    Writes the trace sets train and test into the folder, and synthetic with --synthetic.
    """
    _check_out(out, overwrite, "train")
    settings = pipeline.ImportSettings("people-flow", str(folder))
    train, test, report = pipeline.import_traces(settings, seed=0, progress=not quiet)
    with spinner("importing", show=not quiet):
        more = {} if synthetic is None else {"synthetic": read_synthetic(synthetic, train)}
    _save_sets({"train": train, "test": test} | more, out, overwrite, report, quiet)


@importing.command("foursquare", epilog=_example("ppmtf import foursquare dataset_TSMC2014_NYC.txt --out nyc"))
def import_foursquare(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="dataset_TSMC2014_NYC.txt or _TKY.txt, plain or gzipped, or the folder it is in."
        ),
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
    quiet: Quiet = False,
) -> None:
    """Import Foursquare check-ins of the TSMC2014 release (eight columns).

    Writes the trace sets train and test into the folder.
    """
    values = _import_values(places, grid, step, slot, max_gap, time_zone, train_fraction)
    _import({"source": "foursquare", "path": str(file)} | values, out, seed, overwrite, quiet)


@importing.command(
    "gowalla", epilog=_example("ppmtf import gowalla checkins.txt --edges edges.txt --time-zone Europe/Oslo --out oslo")
)
def import_gowalla(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="loc-gowalla_totalCheckins.txt or a cut of it, plain or gzipped."),
    ],
    out: Out,
    edges: Annotated[
        Path | None, typer.Option("--edges", metavar="FILE", help="Friendships: loc-gowalla_edges.txt.")
    ] = None,
    places: NPlaces = 1000,
    grid: Grid = None,
    step: Step = 3600,
    slot: Slot = 7200,
    max_gap: MaxGap = None,
    time_zone: Zone = None,
    train_fraction: TrainFraction = 0.8,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Import Gowalla check-ins in SNAP's format, with friendships where the edges are given.

    Writes the trace sets train and test into the folder.
    """
    values = _import_values(places, grid, step, slot, max_gap, time_zone, train_fraction)
    more = {"source": "gowalla", "path": str(file)} | ({"edges": str(edges)} if edges else {})
    _import(more | values, out, seed, overwrite, quiet)


@importing.command(
    "checkins",
    epilog=_example(
        "ppmtf import checkins my.csv --columns user=uid,time=when,latitude=lat,longitude=lon "
        "--time-zone Europe/Berlin --out berlin"
    ),
)
def import_checkins(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV, TSV or Parquet, plain or gzipped.")],
    out: Out,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="NAME=COLUMN,...",
            help="Which column is user, time, latitude, longitude and, where there are, place, category, trace: "
            "a name, or a number from 0 in a file without a header. By default columns of these names.",
        ),
    ] = None,
    places: NPlaces = 1000,
    grid: Grid = None,
    step: Step = 3600,
    slot: Slot = 7200,
    max_gap: MaxGap = None,
    time_zone: Zone = None,
    train_fraction: TrainFraction = 0.8,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Import any table of check-ins or GPS fixes.

    Writes the trace sets train and test into the folder.
    """
    values = _import_values(places, grid, step, slot, max_gap, time_zone, train_fraction)
    if columns is not None:
        pairs = split_assignments(columns.split(","), "--columns")
        values["columns"] = {name: int(column) if column.isdecimal() else column for name, column in pairs}
    _import({"source": "checkins", "path": str(file)} | values, out, seed, overwrite, quiet)


@importing.command("toy-city", epilog=_example("ppmtf import toy-city --users 400 --out city"))
def import_toy_city(
    out: Out,
    users: Annotated[int, typer.Option("--users", metavar="N", min=2, help="How many people live there.")] = 400,
    places: Annotated[int, typer.Option("--places", metavar="N", min=8, help="How many places it has.")] = 100,
    days: Annotated[int, typer.Option("--days", metavar="N", min=1, help="How long they are watched.")] = 7,
    train_fraction: TrainFraction = 0.8,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Simulate a city, to try things out without any data.

    Writes the trace sets train and test into the folder.
    """
    values = {"n_users": users, "n_places": places, "n_days": days, "train_fraction": train_fraction}
    _import({"source": "toy-city"} | values, out, seed, overwrite, quiet)


def _fit_help() -> str:
    return f"""Learn a generative model of traces.

A fit that was stopped goes on when the same command is given again. The model holds the parameters, which no privacy
test covers: keep it secret.

Systems, with what --set can change and the defaults:

{_settings_list({name: system.settings for name, system in sorted(registry.SYNTHESIZERS.items())})}
"""


def _run_help() -> str:
    return f"""Do the whole job of a configuration file: import, fit, synthesize, test, evaluate, draw.

Finished steps are skipped unless what they depend on changed; a job that was stopped goes on when run again.

The smallest file has two lines, `[import]` and `source = "toy-city"`. All that a file can hold, with the defaults:

- before the tables: seed=0, out='name of the file'
{_settings_list({f"`[{name}]`": kind for name, kind in pipeline.TABLES.items()})}
- `[fit]`: system=ppmtf, and the system's settings: see `ppmtf fit --help`
"""


def _settings_list(kinds: dict[str, Any]) -> str:
    return "\n".join(f"- {name}: {describe_settings(kind)}" for name, kind in kinds.items())


@app.command(
    help=_fit_help(),
    rich_help_panel=STEPS,
    epilog=_example("ppmtf fit city/train --set rank=16 --set zeros=weighted --out model"),
)
def fit(
    train: Annotated[Path, typer.Argument(metavar="TRAIN", help="Trace set of the training users.")],
    out: Out,
    system: Annotated[str, typer.Option("--system", metavar="NAME", help="What to learn: see above.")] = "ppmtf",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the system; may be given several times."),
    ] = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    coordinator: Coordinator = None,
    processes: Processes = 1,
    process: Process = 0,
) -> None:
    """Learn a generative model of traces."""
    _check_out(out, overwrite, "model.json", writes=process == 0)
    progress = _join(coordinator, processes, process) and not quiet
    chosen = build_settings(
        registry.synthesizer_named(system).settings, parse_assignments(settings or [], "--set"), "--set"
    )
    checkpoint = out.absolute().with_name(f".{out.absolute().name}.checkpoint.npz")
    with exclusive_use(checkpoint.with_suffix(".lock")) if is_first_process() else nullcontext():
        if is_first_process():
            clear_leftovers(checkpoint.parent, [checkpoint.name])
        model = synthesis.fit(
            Traces.load(train, progress=progress),
            system,
            chosen,
            seed=seed,
            progress=progress,
            checkpoints=Checkpoints(checkpoint),
        )
        if not is_first_process():
            return
        model.save(out, overwrite=overwrite)
        checkpoint.unlink(missing_ok=True)
    _tell(f"{system} model of {model.n_users} users in {out}")


@app.command(rich_help_panel=STEPS, epilog=_example("ppmtf diagnose model --train city/train --out diagnosis"))
def diagnose(
    model: Model,
    train: Annotated[Path, typer.Option("--train", metavar="TRAIN", help="Trace set that the model was fitted to.")],
    out: Out,
    chains: Annotated[int, typer.Option("--chains", metavar="N", min=2, help="How many chains to compare.")] = 4,
    sweeps: Annotated[
        int | None,
        typer.Option("--sweeps", metavar="N", min=20, help="Sweeps of each chain; by default those of the model."),
    ] = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Tell whether a ppmtf or itf model had enough sweeps.

    Fits it several times more from other starts, with some counts held out, and compares the chains by what does not
    depend on the order of the factors' columns. Writes summary.csv (a row for each quantity), sweeps.csv (a row for
    each sweep of each chain) and traces.png into the folder.
    """
    _check_out(out, overwrite, SUMMARY)
    fitted = fitted_model.FittedModel.load(model)
    diagnosis = diagnose_model(
        fitted, Traces.load(train, progress=not quiet), n_sweeps=sweeps, n_chains=chains, seed=seed, progress=not quiet
    )
    # Drawing needs Matplotlib, which nothing else does.
    from ppmtf_jax.evaluation.plots import save_figure, trace_plots

    with atomic_folder(out, overwrite=overwrite) as partial:
        diagnosis.table.rename_axis("quantity").to_csv(partial / SUMMARY)
        diagnosis.sweeps().to_csv(partial / "sweeps.csv", index=False)
        save_figure(trace_plots(diagnosis.shown_traces()), partial / "traces.png")
    title = f"{fitted.system}, {chains} chains of {diagnosis.n_sweeps} sweeps: do they agree?"
    console.print(_agreement(diagnosis.overview(), title))
    console.print(_held_out(diagnosis.held_out()))
    for advice in diagnosis.advice:
        _tell(f"- {advice}")
    _tell(f"summary.csv, sweeps.csv and traces.png in {out}")


@app.command(rich_help_panel=STEPS, epilog=_example("ppmtf synthesize model --traces-per-user 10 --out synthetic"))
def synthesize(
    model: Model,
    out: Out,
    traces_per_user: Annotated[
        int, typer.Option("--traces-per-user", metavar="N", min=1, help="How many from each user.")
    ] = 1,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    coordinator: Coordinator = None,
    processes: Processes = 1,
    process: Process = 0,
) -> None:
    """Synthesize traces from every user of a model.

    They are not yet fit for release: test them first.
    """
    _check_out(out, overwrite, "traces.parquet", writes=process == 0)
    progress = _join(coordinator, processes, process) and not quiet
    fitted = fitted_model.FittedModel.load(model)
    traces = synthesis.synthesize(fitted, traces_per_user, seed=seed, progress=progress)
    if not is_first_process():
        return
    traces.save(out, overwrite=overwrite)
    _tell(f"{traces.n_users * traces_per_user} traces of {traces.time_grid.n_instants} events in {out}")


@app.command("test", rich_help_panel=STEPS, epilog=_example("ppmtf test model synthetic --k 10 --eta 1 --out released"))
def check_deniability(
    model: Model,
    synthetic: Annotated[Path, typer.Argument(metavar="SYNTHETIC", help="Trace set made by `ppmtf synthesize`.")],
    out: Out,
    k: Annotated[
        int,
        typer.Option(
            "--k", metavar="N", min=1, help="How many users a trace must be as plausible for; its own counts."
        ),
    ] = 10,
    eta: Annotated[
        float, typer.Option("--eta", metavar="X", help="Width of a bin of log-likelihood; smaller protects better.")
    ] = 1.0,
    verifiers: Annotated[
        int | None, typer.Option("--verifiers", metavar="N", min=1, help="Ask only N random users; by default all.")
    ] = None,
    count_all: Annotated[bool, typer.Option("--count-all", help="Count on after k was reached.")] = False,
    noise_epsilon: Annotated[
        float | None,
        typer.Option("--noise-epsilon", metavar="X", help="Randomize the test: Laplace noise of scale 1/X on k."),
    ] = None,
    precision: Annotated[
        Literal["float64", "float32"],
        typer.Option("--precision", help="Of the likelihoods; float32 takes less time, and may err at a bin's edge."),
    ] = "float64",
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            metavar="FILE",
            help="Draw how many traces pass for each k, up to --k; with --count-all up to 200.",
        ),
    ] = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    coordinator: Coordinator = None,
    processes: Processes = 1,
    process: Process = 0,
) -> None:
    """Test synthetic traces for plausible deniability and keep those that pass.

    Writes verdicts.parquet (user, trace, log_likelihood, plausible_users, verifiers, passed) and the traces that
    passed, as a trace set, into the folder.
    """
    _check_out(out, overwrite, pipeline.VERDICTS, writes=process == 0)
    if plot is not None and noise_epsilon is not None and not count_all:
        way_out = "Add --count-all: counting stops at another k for each trace"
        raise InputError("--plot", [Problem("all plausible users counted", "--noise-epsilon", way_out=way_out)])
    progress = _join(coordinator, processes, process) and not quiet
    fitted, traces = fitted_model.FittedModel.load(model), Traces.load(synthetic, progress=progress)
    verdicts = plausible_deniability_test(
        fitted,
        traces,
        k=k,
        eta=eta,
        n_verifiers=verifiers,
        seed=seed,
        count_all=count_all,
        noise_epsilon=noise_epsilon,
        precision=precision,
        progress=progress,
    )
    if not is_first_process():
        return
    pipeline.save_released(traces, verdicts, out, overwrite=overwrite)
    if plot is not None:
        _plot_pass_rates(verdicts, plot)
    n_passed = int(verdicts.passed.sum())
    _tell(f"{n_passed} of {len(verdicts.passed)} traces passed (k = {k}, eta = {eta:g}); verdicts in {out}")
    if not n_passed:
        _tell("No trace may be released: lower k, raise eta, or learn a smoother model (lower noise_precision).")


@app.command(
    rich_help_panel=STEPS,
    epilog=_example("ppmtf evaluate released --train city/train --test city/test --json metrics.json"),
)
def evaluate(
    synthetic: Annotated[Path, typer.Argument(metavar="SYNTHETIC", help="Trace set to evaluate.")],
    train: Annotated[Path, typer.Option("--train", metavar="TRAIN", help="Trace set of the training users.")],
    test: Annotated[Path, typer.Option("--test", metavar="TEST", help="Trace set of users who were not used.")],
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the numbers to this file too.")
    ] = None,
    attacks: Annotated[
        bool, typer.Option("--attacks/--no-attacks", help="Whether to attack the traces, or to measure utility alone.")
    ] = True,
    quiet: Quiet = False,
) -> None:
    """Measure utility and privacy, beside the training traces and uniform ones.

    The same traces give the same numbers: nothing here is random but the uniform traces, whose seed is fixed.
    """
    sets = [Traces.load(folder, progress=not quiet) for folder in (synthetic, train, test)]
    metrics = evaluate_traces(*sets, attacks=attacks, progress=not quiet)
    console.print(format_table(metrics))
    if json_file is not None:
        write_json(json_file, metrics)


@app.command(help=_run_help(), rich_help_panel=WHOLE, epilog=_example("ppmtf run job.toml"))
def run(
    config: Annotated[Path, typer.Argument(metavar="JOB.TOML", help="The configuration file.")],
    quiet: Quiet = False,
) -> None:
    """Do the whole job of a configuration file."""
    _run_and_show(pipeline.RunConfig.load(config), quiet)


@app.command(rich_help_panel=WHOLE, epilog=_example("ppmtf demo --out demo"))
def demo(
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="For everything that is made.")] = Path("demo"),
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Run the whole line on a simulated city: a table, pictures, and traces that passed the privacy test."""
    # Homes are many and users each have one, so the toy city takes a higher rank than the published data.
    content = {
        "out": str(out),
        "seed": seed,
        "import": {"source": "toy-city", "n_users": 2500},
        "fit": {"rank": 32, "zeros": "weighted", "n_zeros": 300},
    }
    _run_and_show(pipeline.RunConfig.from_mapping(content, Path(), default_out="demo", subject="demo"), quiet)


def _run_and_show(config: pipeline.RunConfig, quiet: bool) -> None:
    result = pipeline.run(config, progress=not quiet, say=_tell)
    console.print(_summary(result))
    if result.n_released:
        _tell(f"{result.n_released} of {result.n_traces} traces passed the privacy test: {result.out / 'released'}")
    else:
        _tell(f"None of {result.n_traces} traces passed the privacy test. Lower k, raise eta or lower noise_precision.")
    _tell(f"Pictures: {', '.join(path.name for path in result.pictures)} in {result.out / 'pictures'}")


def _summary(result: pipeline.RunResult) -> Table:
    """The metrics of the released traces and, since withholding some changes them, of all synthetic ones."""
    table = Table(title="Utility and privacy: lower is better", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.caption, table.caption_justify = "All: the synthetic traces before the privacy test.", "left"
    table.add_column("Metric", no_wrap=True)
    released, synthetic = result.metrics, result.metrics_before_test
    columns = {"Released": (released, "")} if result.n_released else {}
    columns |= {"All": (synthetic, ""), "Training": (synthetic, "_train"), "Uniform": (synthetic, "_uniform")}
    for title in columns:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("Good value", no_wrap=True)
    for name, metric in METRICS.items():
        if name in synthetic:
            values = [metrics.get(name + suffix, float("nan")) for metrics, suffix in columns.values()]
            numbers = ["-" if value != value else f"{value:.4f}" for value in values]
            table.add_row(metric.title, *numbers, metric.good_value)
    return table


def _tell(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _agreement(overview: pd.DataFrame, title: str) -> Table:
    """How the chains agree on each quantity, over the second half of the sweeps."""
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.caption = f"Second half of the sweeps. R-hat to be {MAX_R_HAT} at most; ESS: effective draws."
    table.caption_justify = "left"
    table.add_column("Quantity")
    for heading in ("Mean", "SD", "R-hat", "ESS bulk", "tail"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, row in overview.iterrows():
        numbers = [f"{row['mean']:.4g}", f"{row['sd']:.2g}", f"{row['r_hat']:.3f}"]
        numbers += [f"{row[column]:.0f}" for column in ("ess_bulk", "ess_tail")]
        table.add_row(str(name), *("-" if number == "nan" else number for number in numbers))
    return table


def _held_out(errors: pd.DataFrame) -> Table:
    """How the error at the held-out cells went."""
    table = Table(title="Error at cells held out", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.caption = "Root mean square, half of the cells zeros; each draw, by quarter of the run."
    table.caption_justify = "left"
    table.add_column("Tensor")
    for heading in ("1st", "2nd", "3rd", "4th quarter", "Best sweep", "Average of draws"):
        table.add_column(heading, justify="right", no_wrap=True)
    for tensor, row in errors.iterrows():
        quarters = [f"{row[f'{which}_quarter']:.3f}" for which in ("first", "second", "third", "last")]
        table.add_row(str(tensor), *quarters, f"{row['best_sweep']:.0f}", f"{row['of_average']:.3f}")
    return table


def _import_values(
    places: int, grid: str | None, step: int, slot: int, max_gap: float | None, zone: str | None, train_fraction: float
) -> dict[str, Any]:
    values = {"n_places": places, "step_s": step, "slot_s": slot, "train_fraction": train_fraction}
    more = {"grid": _parse_grid(grid) if grid else None, "max_gap_s": max_gap, "time_zone": zone}
    return values | more


def _parse_grid(grid: str) -> tuple[int | float, ...]:
    try:
        return tuple(float(part) if "." in part else int(part) for part in grid.split(","))
    except ValueError:
        expected = "south,north,west,east,rows,columns as numbers"
        raise InputError("--grid", [Problem(expected, repr(grid))]) from None


def _import(values: dict[str, Any], out: Path, seed: int, overwrite: bool, quiet: bool) -> None:
    _check_out(out, overwrite, "train")
    train, test, report = pipeline.import_traces(pipeline.ImportSettings(**values), seed, progress=not quiet)
    _save_sets({"train": train, "test": test}, out, overwrite, report, quiet)


def _save_sets(sets: dict[str, Traces], out: Path, overwrite: bool, report: str, quiet: bool) -> None:
    pipeline.save_sets(sets, out, overwrite=overwrite, progress=not quiet)
    _tell(report)
    for name, traces in sets.items():
        _tell(f"{out / name}: {traces.n_users} users, {traces.n_events} events")


def _join(coordinator: str | None, processes: int, process: int) -> bool:
    """Join the other processes if there are any. Whether this is the first, which shows progress and writes."""
    if coordinator is not None:
        join_processes(coordinator, processes, process)
    elif processes > 1 or process > 0:
        raise InputError("--processes", [Problem("--coordinator HOST:PORT beside it", "none")])
    return is_first_process()


def _plot_pass_rates(verdicts: PlausibleDeniability, file: Path) -> None:
    # Drawing needs Matplotlib, which the test does not.
    from ppmtf_jax.evaluation.plots import pass_rate_curves, save_figure

    k = np.arange(1, int(min(max(MAX_PLOTTED_K, verdicts.k), verdicts.counted_to)) + 1)
    name = f"{len(verdicts.passed)} traces, {verdicts.n_verifiers} verifiers, eta = {verdicts.eta:g}"
    save_figure(pass_rate_curves({name: verdicts.pass_rates(k)}), file)


def _check_out(out: Path, overwrite: bool, part: str, *, writes: bool = True) -> None:
    """Refuse at once, not after the work, an output that could not be written. An earlier one would have `part`."""
    if out.exists() and not overwrite:
        way_out = "Choose another name, or give --overwrite to replace it"
        raise InputError(str(out), [Problem("a name that is free", "an existing one", way_out=way_out)])
    if out.exists() and not (out / part).exists() and not (out.is_dir() and not any(out.iterdir())):
        way_out = "Nothing was changed: choose another name, or remove it yourself"
        expected = f"an earlier output of this command (with {part}) to replace"
        raise InputError(str(out), [Problem(expected, "something else", way_out=way_out)])
    parent = next(folder for folder in out.absolute().parents if folder.exists())
    if writes and not (parent.is_dir() and os.access(parent, os.W_OK)):
        found = f"{parent}, which is {'write-protected' if parent.is_dir() else 'a file'}"
        raise InputError(str(out), [Problem("a folder to write into", found)])


if __name__ == "__main__":
    sys.exit(app())
