"""Commands that judge: test, release, evaluate."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from ppmtf_jax.cli.console import console, tell, warn_of_few
from ppmtf_jax.cli.group import with_example
from ppmtf_jax.cli.options import (
    Engine,
    Json,
    Model,
    Out,
    Overwrite,
    Quiet,
    Seed,
    TestOption,
    TrainOption,
    argument,
    check_picture,
    option,
    with_settings,
)
from ppmtf_jax.data.description import counted
from ppmtf_jax.data.stored_traces import open_traces
from ppmtf_jax.data.trace_set import SYNTHETIC
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem, raise_any
from ppmtf_jax.evaluation import Evaluation, EvaluationSettings
from ppmtf_jax.evaluation import evaluate as evaluate_sets
from ppmtf_jax.evaluation.results import TableOrList
from ppmtf_jax.jobs.steps import open_released, release_traces, run_privacy_test
from ppmtf_jax.privacy.own_test import load_verdicts
from ppmtf_jax.privacy.plausible_deniability import PrivacyTestSettings
from ppmtf_jax.privacy.release import RELEASE, is_release, lineage_of_key
from ppmtf_jax.privacy.release_plan import ReleaseSettings
from ppmtf_jax.privacy.semantic_test import SemanticTestSettings
from ppmtf_jax.runtime.engine import use_engine
from ppmtf_jax.runtime.files import check_output_file, has_mark, write_text
from ppmtf_jax.runtime.folders import TRAINING_TRACES, Lineage, check_belong_together, read_marker
from ppmtf_jax.settings import parse_assignments

# The largest k in Fig. 16 of Murakami et al. 2021.
MAX_PLOTTED_K = 200
is_evaluation = partial(has_mark, mark=rb'\A\{\s*"kind": "evaluation",\s*"made_by": "ppmtf_jax ')
Synthetic = Annotated[Path, argument("SYNTHETIC", "Traces made by `ppmtf synthesize`.")]


@with_example("ppmtf test model synthetic --k 10 --eta 1 --out verdicts")
@with_settings(PrivacyTestSettings, SemanticTestSettings)
def check_deniability(
    model: Model,
    synthetic: Synthetic,
    out: Out,
    settings: dict[str, Any],
    plot: Annotated[
        Path | None,
        option(
            "--plot FILE",
            "Draw how many traces pass for each k, up to --k; with --count-all up to 200. PNG, SVG or PDF.",
        ),
    ] = None,
    seed: Seed = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    engine: Engine = "threads",
) -> None:
    """Test synthetic traces for plausible deniability, or those of sglt for semantic similarity.

    Writes verdicts.parquet into the folder: user, trace, plausible_users, passed, and for each test more columns. The
    verdicts say which traces were withheld: they are secret, and only you can read them. Release the traces that passed
    with `ppmtf release`. Traces of sglt have no likelihood: its own test takes --k and the options --max-..., and does
    not bound how sure somebody can be from whom a trace was made.
    """
    if plot is not None and "noise_epsilon" in settings and "count_all" not in settings:
        way_out = "Add --count-all: counting stops at another k for each trace"
        raise InputError("--plot", [Problem("all plausible users counted", "--noise-epsilon", way_out=way_out)])
    check_picture(plot, overwrite=overwrite)
    with use_engine(engine):
        verdicts = run_privacy_test(model, synthetic, out, settings, seed=seed, overwrite=overwrite, progress=not quiet)
    n_traces, n_passed, test = verdicts.n_traces, verdicts.n_passed, verdicts.settings
    if plot is not None:
        from ppmtf_jax.evaluation.plots import pass_rate_curves, save_figure

        k = np.arange(1, int(min(max(MAX_PLOTTED_K, test.k), verdicts.counted_to)) + 1)
        name = ", ".join([f"{n_traces} traces", *verdicts.facts().values()])
        save_figure(pass_rate_curves({name: verdicts.pass_rates(k)}), plot)
    if test.k == 1:
        tell(
            "Warning: with k = 1 a trace needs no other user, so the test protects nobody. Use a larger --k, such as "
            "10."
        )
    tell(f"{n_passed} of {n_traces} traces passed ({verdicts.facts()['settings']}); verdicts in {out}")
    if said := verdicts.by_construction:
        tell(said)
    if not n_passed:
        way_out = "lower k, raise the limits of the test, or learn a model of fewer clusters"
        if isinstance(test, PrivacyTestSettings):
            way_out = _way_out(test, verdicts.n_verifiers)
        tell(f"No trace may be released: {way_out}.")
    warn_of_few(n_passed, n_traces)


def _way_out(settings: PrivacyTestSettings, n_asked: int) -> str:
    """Advice if no trace passed the plausible-deniability test."""
    if settings.noise_epsilon is None and settings.k > n_asked + 1:
        return (
            f"no trace could pass: k = {settings.k} users are needed, but only {n_asked + 1} are counted; lower k"
            + ("" if settings.n_verifiers is None else ", or ask more verifiers")
        )
    return "lower k, raise eta (3 at most), or learn a smoother model (lower noise_precision)"


@with_example("ppmtf release synthetic verdicts --out released --key released-key")
@with_settings(ReleaseSettings)
def release(
    synthetic: Synthetic,
    out: Out,
    settings: ReleaseSettings,
    verdicts: Annotated[Path | None, argument("[VERDICTS]", "The verdicts of `ppmtf test` on these traces.")] = None,
    model: Annotated[
        Path | None, option("--model MODEL", "In place of verdicts, for traces of nobody: the model that made them.")
    ] = None,
    key: Annotated[
        Path | None,
        option(
            "--key FOLDER", "Where to write which trace was made from which user: keep it secret. Not with --model."
        ),
    ] = None,
    seed: Seed = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    engine: Engine = "threads",
) -> None:
    """Write the traces that passed the test into a folder that can be handed to anyone.

    The folder contains the traces with new ids in a random order, the places, the time grid, and a statement of what is
    protected and what is not (PRIVACY.txt, privacy.json). The key says which id belongs to which user; only you can
    read it. Traces of nobody, such as those of the system private, need neither a test nor a key: give the model that
    made them.
    """
    by = verdicts if model is None else model
    if by is None or (verdicts is not None and model is not None):
        found = "neither" if by is None else "both"
        raise InputError("release", [Problem("VERDICTS, or for traces of nobody --model MODEL", found)])
    if (key is None) != (verdicts is None):
        expected = "--key FOLDER beside VERDICTS" if key is None else "no --key: nobody stands behind these traces"
        raise InputError("release", [Problem(expected, "none" if key is None else str(key))])
    with use_engine(engine):
        made = release_traces(synthetic, by, out, key, settings, seed=seed, overwrite=overwrite, progress=not quiet)
    if key is None:
        tell(f"{made.n_traces} traces of nobody in {out}; read {out / 'PRIVACY.txt'} first")
        tell(made.statement["guarantee"])
        return
    tell(f"{made.n_traces} traces in {out}, which can be handed to anyone; read {out / 'PRIVACY.txt'} first")
    least = made.statement["parameters"]["min_users_per_place"]
    if least is not None:
        tell(f"Each visited place was visited by at least {counted(least, 'training user')}.")
    tell(f"The key stays with you: {key}")


@with_example("ppmtf evaluate released --key released-key --train city/train --test city/test --json metrics.json")
@with_settings(EvaluationSettings, without=("settings",))
def evaluate(
    synthetic: Annotated[Path, argument("TRACES", "Synthetic traces, or a release.")],
    train: TrainOption,
    test: TestOption,
    settings: EvaluationSettings,
    key: Annotated[Path | None, option("--key KEY", "Key of the release; the attacks need it.")] = None,
    verdicts: Annotated[Path | None, option("--verdicts VERDICTS", "Add a column with the traces that passed.")] = None,
    json_file: Json = None,
    change: Annotated[
        list[str] | None, option("--set METRIC.NAME=VALUE", "A setting of a metric, such as tm_emd.n_bins=40.")
    ] = None,
    overwrite: Annotated[bool, option("--overwrite", "Replace an earlier file of --json.")] = False,
    quiet: Quiet = False,
) -> None:
    """Measure utility and privacy, beside the training traces and uniform traces.

    The same traces give the same numbers: only uniform traces, splits that measure chance, and samples are random, and
    their seeds are fixed. Of a set of more than 250,000 users, a random sample of 250,000 is measured.
    """
    _check_not_swapped(synthetic, {"--train": train, "--test": test})
    chosen = EvaluationSettings(attacks=settings.attacks, settings=_of_metrics(change or []))
    if json_file is not None:
        check_output_file(json_file, overwrite=overwrite, is_ours=is_evaluation, what="an earlier evaluation")
    training, testing = (open_traces(folder, progress=not quiet) for folder in (train, test))
    released = is_release(synthetic)
    if released and key is not None:
        _check_learned_from(training, key, lineage_of_key(key))
    if released and verdicts is not None:
        raise InputError(str(synthetic), [Problem("synthetic traces, which verdicts are of", "a release")])
    way_out = "Give it with --key, or leave the attacks out with --no-attacks" if chosen.attacks else None
    traces = open_released(synthetic, training, key, key_needed=way_out, progress=not quiet)
    _check_learned_from(training, synthetic, traces.lineage)
    sets: Traces | dict[str, Traces] = {"released": traces} if released else traces
    if verdicts is not None:
        judged = load_verdicts(verdicts)
        judged.check_made_of(traces)
        passed = {"released": traces.select_traces(judged.passed)} if judged.passed.any() else {}
        sets = passed | {"all": traces}
    found = evaluate_sets(sets, training, testing, chosen, progress=not quiet)
    # Before the file is written, so that a full disk loses no numbers.
    console.print(TableOrList(found, note=_note(found, key is not None or traces.of_nobody)))
    if json_file is not None:
        write_text(json_file, found.to_json())


def _check_learned_from(train: Traces, name: Path, lineage: Lineage) -> None:
    way_out = "Give the training set that they were made from with --train"
    lineages = {"training set": {TRAINING_TRACES: train.digest}, str(name): lineage}
    check_belong_together("evaluation", lineages, way_out=way_out)


def _check_not_swapped(synthetic: Path, real: dict[str, Path]) -> None:
    """Refuse swapped arguments: synthetic traces in place of real traces, and no synthetic traces."""
    kinds = {folder: getattr(read_marker(folder), "kind", "") for folder in (synthetic, *real.values())}
    if kinds[synthetic] in (SYNTHETIC, RELEASE):
        return
    problems = [
        Problem(f"real traces as {name}", kinds[folder], way_out=f"Are {folder} and {synthetic} swapped?")
        for name, folder in real.items()
        if kinds[folder] in (SYNTHETIC, RELEASE)
    ]
    raise_any("evaluate", problems)


def _note(evaluation: Evaluation, needs_no_key: bool) -> str:
    """A note below the table."""
    if "all" in evaluation.columns:
        return "All: the synthetic traces before the privacy test."
    if needs_no_key or evaluation.columns[0] != "released":
        return ""
    return "Without the key, all released traces are measured together, so the numbers differ from those with the key."


def _of_metrics(assignments: list[str]) -> dict[str, dict[str, object]]:
    """METRIC.NAME=VALUE as a table for each metric."""
    tables: dict[str, dict[str, object]] = {}
    for name, value in parse_assignments(assignments, "--set").items():
        metric, dot, setting = name.partition(".")
        if not dot:
            raise InputError("--set", [Problem("METRIC.NAME=VALUE", repr(name))])
        tables.setdefault(metric, {})[setting] = value
    return tables
