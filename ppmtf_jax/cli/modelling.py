"""Commands that learn and draw: fit, diagnose, complete, synthesize, colocate."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import pandas as pd
from rich.table import Table

from ppmtf_jax.cli.console import console, plain_table, tell
from ppmtf_jax.cli.group import LATE_HELP, with_example
from ppmtf_jax.cli.options import (
    Engine,
    Model,
    Out,
    Overwrite,
    Quiet,
    Seed,
    Train,
    argument,
    option,
    with_settings,
)
from ppmtf_jax.colocation.counts import find_colocations
from ppmtf_jax.colocation.friends import FriendGraph
from ppmtf_jax.colocation.statement import is_bounded, privacy_statement, statement_texts
from ppmtf_jax.colocation.synthesizer import RELATION, ColocationSettings, synthesize_colocations
from ppmtf_jax.data.description import counted
from ppmtf_jax.data.trace_set import OF_NOBODY
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.gibbs.diagnostics import MAX_R_HAT, Diagnosis
from ppmtf_jax.jobs.steps import fit_model, synthesize_traces
from ppmtf_jax.noise.accountant import KeptLedger
from ppmtf_jax.noise.mechanisms import SecureNoise
from ppmtf_jax.privacy.statements import STATEMENT_TEXT, statement_files
from ppmtf_jax.runtime.engine import use_engine
from ppmtf_jax.runtime.files import write_text
from ppmtf_jax.runtime.folders import check_output_folder, output_folder
from ppmtf_jax.runtime.progress import in_words
from ppmtf_jax.settings import build_settings, describe_settings, parse_assignments
from ppmtf_jax.streams import draw_seed
from ppmtf_jax.synthesizers.convergence import diagnose_model
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.gaps import CompletionSettings
from ppmtf_jax.synthesizers.gaps import complete as complete_gaps
from ppmtf_jax.synthesizers.registry import DEFAULT_SYSTEM, SYNTHESIZERS
from ppmtf_jax.synthesizers.synthesis import SynthesisSettings

DIAGNOSIS = "diagnosis"
# Separate kinds of folders, so that these traces never replace recorded traces.
COMPLETED, FRIENDS = "completed traces", "traces of synthetic friends"


def _fit_help() -> str:
    systems = "\n".join(
        f"- {name}: {entry.title}. {describe_settings(entry.settings)}" for name, entry in SYNTHESIZERS.items()
    )
    return f"""Learn a generative model of traces.

If a fit was stopped, the same command continues it. The model contains the parameters, which no privacy test covers:
keep it secret. Only you can read it.

Systems, with the settings that --set can change and their defaults:

{systems}
"""


LATE_HELP["fit"] = _fit_help


@with_example("ppmtf fit city/train --system ppmtf --set rank=16 --out model")
def fit(
    train: Train,
    out: Out,
    system: Annotated[str, option("--system NAME", "What to learn: see above.")] = DEFAULT_SYSTEM,
    settings: Annotated[
        list[str] | None, option("--set NAME=VALUE", "A setting of the system; may be given several times.")
    ] = None,
    seed: Seed = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    engine: Engine = "threads",
) -> None:
    """Learn a generative model of traces."""
    chosen = build_settings(SYNTHESIZERS[system].settings, parse_assignments(settings or [], "--set"), "--set")
    begin = time.perf_counter()
    with use_engine(engine):
        model = fit_model(train, out, system, chosen, seed=seed, overwrite=overwrite, progress=not quiet)
    if said := model.summary():
        for sentence in [*said, f"The fit took {in_words(time.perf_counter() - begin)}"]:
            tell(f"- {sentence}")
    tell(f"{system} model of {'nobody' if model.of_nobody else f'{model.n_users} users'} in {out}")


@with_example("ppmtf diagnose model --train city/train --out diagnosis")
def diagnose(
    model: Model,
    train: Annotated[Path, option("--train TRAIN", "Trace set that the model was fitted to.")],
    out: Out,
    chains: Annotated[int, option("--chains N", "How many chains to compare.", min=2)] = 4,
    sweeps: Annotated[
        int | None, option("--sweeps N", "Sweeps of each chain; by default those of the model.", min=20)
    ] = None,
    seed: Seed = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Check whether a ppmtf or itf model had enough sweeps.

    Fits the model several more times from other starts, with some counts held out, and compares the chains by
    quantities that do not depend on the order of the factors' columns. Writes summary.csv (a row for each quantity),
    sweeps.csv (a row for each sweep of each chain) and traces.png into the folder.
    """
    inputs, own_seed = [model, train], draw_seed(seed)
    check_output_folder(out, DIAGNOSIS, overwrite=overwrite, inputs=inputs)
    fitted, traces = FittedModel.load(model), Traces.load(train, progress=not quiet)
    diagnosis = diagnose_model(
        fitted, traces, n_sweeps=sweeps, n_chains=chains, seed=own_seed.value, progress=not quiet
    )
    # Only drawing needs Matplotlib.
    from ppmtf_jax.evaluation.plots import save_figure, trace_plots

    about = {"seed": own_seed._asdict()}
    with output_folder(out, DIAGNOSIS, about=about, overwrite=overwrite, inputs=inputs) as partial:
        diagnosis.table.rename_axis("quantity").to_csv(partial / "summary.csv")
        diagnosis.sweeps().to_csv(partial / "sweeps.csv", index=False)
        shown = {each.title: values for each, values in diagnosis.trace.items() if each.kind != "cell"}
        save_figure(trace_plots(shown), partial / "traces.png")
    title = f"{fitted.system}, {chains} chains of {diagnosis.n_sweeps} sweeps: do they agree?"
    console.print(_agreement_table(diagnosis.overview(), title))
    console.print(_held_out_table(diagnosis))
    for advice in diagnosis.advice:
        tell(f"- {advice}")
    tell(f"summary.csv, sweeps.csv and traces.png in {out}")


@with_example("ppmtf complete model city/train --how random --out whole")
@with_settings(CompletionSettings)
def complete(
    model: Model,
    traces: Annotated[Path, argument("TRACES", "Trace set of users that the model knows.")],
    out: Out,
    settings: CompletionSettings,
    seed: Seed = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Fill the gaps of real traces: where people were when nothing was recorded.

    If a trace has an event in a period, such as a day, it gets an event at every instant of this period. Recorded
    events stay as they are. Pieces of traces that the model cannot complete are named, and keep their recorded events.
    The completed traces contain real events: keep them as private as the data. Only you can read them.
    """
    inputs, own_seed = [model, traces], draw_seed(seed)
    check_output_folder(out, COMPLETED, overwrite=overwrite, inputs=inputs)
    fitted, given = FittedModel.load(model), Traces.load(traces, progress=not quiet)
    whole = complete_gaps(fitted, given, settings, seed=own_seed, progress=not quiet, say=tell)
    about = {"how": settings.how, "model": fitted.checksum, "seed": own_seed._asdict()}
    with output_folder(out, COMPLETED, about=about, overwrite=overwrite, inputs=inputs) as partial:
        whole.write_into(partial)
    tell(f"{whole.n_events} events of {whole.n_users} users in {out}. Keep them as private as the recorded events.")


@with_example("ppmtf synthesize model --traces-per-user 10 --out synthetic")
@with_settings(SynthesisSettings)
def synthesize(
    model: Model,
    out: Out,
    settings: SynthesisSettings,
    seed: Seed = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    engine: Engine = "threads",
) -> None:
    """Synthesize traces from every user of a model, or from users drawn at random.

    Only you can read the traces. Do not release them yet: test them first. A model of nobody, such as one of the system
    private, makes new people, whose traces need no test.
    """
    with use_engine(engine):
        n_traces, n_events = synthesize_traces(model, out, settings, seed=seed, overwrite=overwrite, progress=not quiet)
    tell(f"{counted(n_traces, 'trace')} with {counted(n_events, 'event')} in {out}")


@with_example("ppmtf colocate city/train --epsilon-friendship 5 --epsilon-colocation 2 --colocations 50 --out friends")
@with_settings(ColocationSettings)
def colocate(
    train: Annotated[Path, argument("TRAIN", "Trace set of users with friendships.")],
    out: Out,
    settings: ColocationSettings,
    model: Annotated[
        Path | None,
        option(
            "--model MODEL", "Complete traces by this model. The budgets do not cover what it reveals about its users."
        ),
    ] = None,
    seed: Annotated[
        int | None,
        option(
            "--seed N",
            "Seed of all draws except the noise, which has none: the traces differ each time. Keep it secret.",
        ),
    ] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Synthesize traces of friends who meet, under differential privacy.

    Writes a trace set with friendships, one trace of each synthetic user, and a statement of what is protected and what
    is not (PRIVACY.txt, privacy.json). Synthetic users represent nobody. The noise has no seed: the same --seed does
    not give the same traces. Epsilon is spent once noise is drawn, even if the run fails: a ledger beside the folder
    adds up all runs.
    """
    inputs = [train] if model is None else [train, model]
    check_output_folder(out, FRIENDS, overwrite=overwrite, inputs=inputs)
    own_seed, noise = draw_seed(seed), SecureNoise()
    fitted = None if model is None else FittedModel.load(model)
    traces = Traces.load(train, progress=not quiet)
    # It is secret, because it also has the seeds.
    ledger = Path(f"{os.path.abspath(out)}.ledger.jsonl")
    kept = KeptLedger(ledger, own_seed, bounded=is_bounded(noise, fitted is not None))
    made = synthesize_colocations(
        traces, settings, model=fitted, noise=noise, seed=own_seed, record=kept.add, progress=not quiet
    )
    statement = privacy_statement(made, kept.earlier(RELATION))
    about = {OF_NOBODY: made.traces.of_nobody}
    with output_folder(out, FRIENDS, about=about, overwrite=overwrite, inputs=inputs) as partial:
        made.traces.write_into(partial)
        for name, text in statement_files(statement, *statement_texts(statement)).items():
            write_text(partial / name, text)
    graph = FriendGraph.of(made.traces)
    n_drawn, n_in_all = len(made.drawn.pair), len(find_colocations(made.traces, graph))
    tell(f"{graph.n_users} users, {graph.n_pairs} friendships, {n_drawn} meetings drawn, in {out}")
    if n_drawn < made.n_wanted:
        tell(f"The noisy number asked for {made.n_wanted} meetings; more do not fit, because friends are elsewhere")
    tell(f"{n_in_all} co-locations of friends in total, including those by chance")
    cost = f"epsilon {statement['epsilon']:g} in total" if statement["private"] else "NOT differentially private"
    earlier = statement["earlier_runs"]
    if earlier["n"]:
        cost += f" with {counted(earlier['n'], 'earlier run')} of epsilon {earlier['epsilon']:g}"
    tell(f"{cost}; read {out / STATEMENT_TEXT} first")
    tell(f"The ledger {ledger.name} beside it has the seed and all spent epsilon. Only you can read it: keep it")


def _agreement_table(overview: pd.DataFrame, title: str) -> Table:
    """A table of the agreement of the chains on each quantity, over the second half of the sweeps."""
    caption = f"Second half of the sweeps. R-hat should be at most {MAX_R_HAT}; ESS: effective sample size."
    headings = ("Mean", "SD", "R-hat", "ESS bulk", "tail")
    rows = []
    for name, row in overview.iterrows():
        numbers = [f"{row['mean']:.4g}", f"{row['sd']:.2g}", f"{row['r_hat']:.3f}"]
        numbers += [f"{row[column]:.0f}" for column in ("ess_bulk", "ess_tail")]
        rows.append([str(name), *("-" if number == "nan" else number for number in numbers)])
    return plain_table(title, ["Quantity", *headings], rows, caption, no_wrap=headings)


def _held_out_table(diagnosis: Diagnosis) -> Table:
    """A table of the error at the held-out cells over the sweeps."""
    headings = ("1st", "2nd", "3rd", "4th quarter", "Best sweep", "Average of draws")
    rows = []
    for tensor, row in diagnosis.held_out().iterrows():
        quarters = [f"{row[f'{which}_quarter']:.3f}" for which in ("first", "second", "third", "last")]
        rows.append([str(tensor), *quarters, f"{row['best_sweep']:.0f}", f"{row['of_average']:.3f}"])
    note = diagnosis.held_out_note
    return plain_table("Error at held-out cells", ["Tensor", *headings], rows, note, no_wrap=headings)
