"""The steps from data to an evaluated release, each as one function that loads, works and saves.

The command line calls single steps and a job calls all of them. A step checks its outputs before it works. Only the
owner may read the outputs, except for a release and exports of a release.

Several processes may run a step together; then the first process alone writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ppmtf_jax.data.traces import SYNTHETIC, Traces
from ppmtf_jax.datasets.data_check import DataCheck
from ppmtf_jax.datasets.registry import DATA_SETS, Imported
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation import Evaluation, EvaluationSettings, evaluate
from ppmtf_jax.gibbs.diagnostics import Diagnosis
from ppmtf_jax.gibbs.run import Checkpoints
from ppmtf_jax.jobs.config import input_paths
from ppmtf_jax.privacy.plausible_deniability import (
    VERDICTS,
    PlausibleDeniability,
    PrivacyTestSettings,
    plausible_deniability_test,
)
from ppmtf_jax.privacy.release import (
    RELEASE,
    RELEASE_KEY,
    Release,
    ReleaseSettings,
    check_same_traces,
    is_release,
    lineage_of_key,
    load_with_key,
    make_release,
    save_release,
)
from ppmtf_jax.runtime.devices import is_first_process
from ppmtf_jax.runtime.files import PathLike, check_output_file, has_mark, write_text
from ppmtf_jax.runtime.folders import check_output_folder, output_folder
from ppmtf_jax.runtime.lineage import TRAINING_TRACES, Lineage, check_belong_together
from ppmtf_jax.runtime.progress import spinner
from ppmtf_jax.streams import Seed, draw_seed
from ppmtf_jax.synthesizers.convergence import diagnose_model
from ppmtf_jax.synthesizers.fitted_model import MODEL, FittedModel
from ppmtf_jax.synthesizers.gaps import CompletionSettings, complete
from ppmtf_jax.synthesizers.registry import DEFAULT_SYSTEM
from ppmtf_jax.synthesizers.synthesis import SynthesisSettings, fit, synthesize

IMPORTED, DIAGNOSIS, PICTURES = "imported data", "diagnosis", "pictures"
# A separate kind of folder, so that completed traces never replace recorded traces.
COMPLETED = "completed traces"
# The largest k in Fig. 16 of Murakami et al. 2021.
MAX_PLOTTED_K = 200
is_evaluation = partial(has_mark, mark=rb'\A\{\s*"kind": "evaluation",\s*"made_by": "ppmtf_jax ')

AnySeed = int | Seed | None


def import_data(
    source: str,
    settings: Any,
    out: PathLike,
    *,
    seed: AnySeed = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Imported:
    """Read the data set named `source` and write its trace sets, such as train and test, into one folder.

    The seed decides the split into training and test users; who is in the training data is part of the secret.
    """
    inputs = list(input_paths(settings).values())
    check_output_folder(out, IMPORTED, overwrite=overwrite, inputs=inputs)
    own_seed = draw_seed(seed)
    imported = DATA_SETS[source].read(settings, own_seed.value, progress)
    if imported.refusal is not None:
        raise imported.refusal
    # A report later says what the import left out.
    about = {
        "source": source,
        "seed": own_seed._asdict(),
        "summary": imported.report,
        "losses": imported.losses,
    }
    with (
        spinner("writing", show=progress),
        output_folder(out, IMPORTED, about=about, overwrite=overwrite, inputs=inputs) as partial,
    ):
        for name, traces in imported.sets.items():
            (partial / name).mkdir()
            traces.write_into(partial / name)
    return imported


def check_data(source: str, settings: Any, *, seed: AnySeed = None, progress: bool = False) -> DataCheck:
    """Read a data set and report what an import would give; writes nothing."""
    return DataCheck(DATA_SETS[source].read(settings, draw_seed(seed).value, progress))


def fit_model(
    train: PathLike,
    out: PathLike,
    system: str = DEFAULT_SYSTEM,
    settings: Any = None,
    *,
    seed: AnySeed = None,
    checkpoint: Path | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> FittedModel:
    """Learn a model of a trace set.

    A long fit continues from the state in the file `checkpoint` and stores its state there; the caller removes it.
    """
    _check_output(out, MODEL, overwrite, [train])
    checkpoints = None if checkpoint is None else Checkpoints(checkpoint)
    traces = Traces.load(train, progress=progress)
    model = fit(traces, system, settings, seed=seed, progress=progress, checkpoints=checkpoints)
    _save(model, out, overwrite, [train])
    return model


def diagnose_fit(
    model: PathLike,
    train: PathLike,
    out: PathLike,
    *,
    n_sweeps: int | None = None,
    n_chains: int = 4,
    seed: AnySeed = None,
    overwrite: bool = False,
    progress: bool = False,
) -> tuple[FittedModel, Diagnosis]:
    """Check whether the chains of a model ran long enough: summary.csv, sweeps.csv and traces.png."""
    check_output_folder(out, DIAGNOSIS, overwrite=overwrite, inputs=[model, train])
    own_seed = draw_seed(seed)
    fitted, traces = FittedModel.load(model), Traces.load(train, progress=progress)
    diagnosis = diagnose_model(
        fitted, traces, n_sweeps=n_sweeps, n_chains=n_chains, seed=own_seed.value, progress=progress
    )
    # Only drawing needs Matplotlib.
    from ppmtf_jax.evaluation.plots import save_figure, trace_plots

    about = {"seed": own_seed._asdict()}
    with output_folder(out, DIAGNOSIS, about=about, overwrite=overwrite, inputs=[model, train]) as partial:
        diagnosis.table.rename_axis("quantity").to_csv(partial / "summary.csv")
        diagnosis.sweeps().to_csv(partial / "sweeps.csv", index=False)
        save_figure(trace_plots(diagnosis.shown_traces()), partial / "traces.png")
    return fitted, diagnosis


def complete_traces(
    model: PathLike,
    traces: PathLike,
    out: PathLike,
    settings: CompletionSettings | None = None,
    *,
    seed: AnySeed = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Traces:
    """Fill the gaps of a trace set; the result contains real events and is as private as the input."""
    inputs, chosen, own_seed = [model, traces], settings or CompletionSettings(), draw_seed(seed)
    check_output_folder(out, COMPLETED, overwrite=overwrite, inputs=inputs)
    fitted, given = FittedModel.load(model), Traces.load(traces, progress=progress)
    completed = complete(fitted, given, chosen, seed=own_seed, progress=progress)
    about = {"how": chosen.how, "model": fitted.checksum, "seed": own_seed._asdict()}
    with output_folder(out, COMPLETED, about=about, overwrite=overwrite, inputs=inputs) as partial:
        completed.write_into(partial)
    return completed


def synthesize_traces(
    model: PathLike,
    out: PathLike,
    settings: SynthesisSettings | None = None,
    *,
    seed: AnySeed = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Traces:
    """Synthesize traces from every user of a model; they are not ready for release."""
    _check_output(out, SYNTHETIC, overwrite, [model])
    traces = synthesize(FittedModel.load(model), settings, seed=seed, progress=progress)
    _save(traces, out, overwrite, [model])
    return traces


def run_privacy_test(
    model: PathLike,
    synthetic: PathLike,
    out: PathLike,
    settings: PrivacyTestSettings | None = None,
    *,
    seed: AnySeed = None,
    picture: PathLike | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> PlausibleDeniability:
    """Test synthetic traces for plausible deniability and write the verdicts.

    The file `picture` shows how many traces pass for each k.
    """
    chosen = settings or PrivacyTestSettings()
    inputs = [model, synthetic]
    _check_output(out, VERDICTS, overwrite, inputs)
    if picture is not None:
        _check_pass_rates(chosen, Path(picture), overwrite)
    fitted, traces = FittedModel.load(model), Traces.load(synthetic, progress=progress)
    verdicts = plausible_deniability_test(fitted, traces, chosen, seed=seed, progress=progress)
    _save(verdicts, out, overwrite, inputs)
    if picture is not None and is_first_process():
        _draw_pass_rates(verdicts, Path(picture))
    return verdicts


def release_traces(
    synthetic: PathLike,
    verdicts: PathLike,
    out: PathLike,
    key: PathLike,
    settings: ReleaseSettings | None = None,
    *,
    seed: AnySeed = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Release:
    """Write the traces that passed as a release, which can be handed to anyone, and its key, which stays private."""
    inputs = [synthetic, verdicts]
    check_output_folder(key, RELEASE_KEY, overwrite=overwrite, inputs=inputs)
    check_output_folder(out, RELEASE, overwrite=overwrite, inputs=inputs)
    traces = Traces.load(synthetic, progress=progress)
    release = make_release(traces, PlausibleDeniability.load(verdicts), settings, seed=seed)
    save_release(release, out, key, overwrite=overwrite, inputs=inputs)
    return release


def evaluate_traces(
    synthetic: PathLike,
    train: PathLike,
    test: PathLike,
    settings: EvaluationSettings | None = None,
    *,
    key: PathLike | None = None,
    verdicts: PathLike | None = None,
    json_file: PathLike | None = None,
    show: Callable[[Evaluation], None] = lambda _: None,
    overwrite: bool = False,
    progress: bool = False,
) -> Evaluation:
    """Measure utility and privacy of synthetic or released traces.

    `synthetic`: synthetic traces, or a release. `train`, `test`: trace sets of the model's users and of other users.
    Traces that were made from another training set are refused. `key`: of the release, because the attacks need to know
    the user of each trace. `verdicts`: verdicts on synthetic traces: adds a column with the traces that passed.
    `json_file`: where to write the numbers as well. `show`: is called before the file is written, so that a full disk
    does not lose the numbers.
    """
    chosen = settings or EvaluationSettings()
    if json_file is not None:
        check_output_file(json_file, overwrite=overwrite, is_ours=is_evaluation, what="an earlier evaluation")
    training, testing = (Traces.load(folder, progress=progress) for folder in (train, test))
    sets = _sets_to_evaluate(Path(synthetic), training, chosen, key, verdicts, progress)
    evaluation = evaluate(sets, training, testing, chosen, progress=progress)
    show(evaluation)
    if json_file is not None:
        write_text(json_file, evaluation.to_json())
    return evaluation


def draw_pictures(
    out: PathLike,
    *,
    synthetic: Traces,
    train: Traces,
    test: Traces,
    evaluation: Evaluation,
    model: FittedModel,
    overwrite: bool = False,
    progress: bool = False,
) -> None:
    """Draw pictures that compare the synthetic with the real traces."""
    # Only drawing needs Matplotlib.
    from ppmtf_jax.evaluation.plots import Factors, save_pictures

    factors = model.trace_model if isinstance(model.trace_model, Factors) else None
    with spinner("drawing", show=progress), output_folder(out, PICTURES, overwrite=overwrite) as partial:
        save_pictures(partial, synthetic=synthetic, train=train, test=test, evaluation=evaluation, factors=factors)


def load_released(
    folder: PathLike, train: Traces, key: PathLike | None, *, key_needed: str | None = None, progress: bool = False
) -> Traces:
    """Synthetic traces, or a release on the places of the training traces: with the users' ids if there is a key.

    A release without its key is refused if `key_needed` says what to do instead. Other traces with a key are refused.
    """
    released = is_release(folder)
    if key is not None and not released:
        raise InputError(str(folder), [Problem("a release, which a key is for", "other traces")])
    if key is not None:
        return load_with_key(folder, key, train)
    traces = Traces.load(folder, progress=progress)
    if released and key_needed is not None:
        raise InputError(str(folder), [Problem("the key of the release", "none", way_out=key_needed)])
    # A release has its own order of places.
    return Traces.from_frame(traces.to_frame(), train.places, traces.time_grid) if released else traces


def _sets_to_evaluate(
    synthetic: Path,
    train: Traces,
    settings: EvaluationSettings,
    key: PathLike | None,
    verdicts: PathLike | None,
    progress: bool,
) -> Traces | Mapping[str, Traces]:
    released = is_release(synthetic)
    if released and key is not None:
        _check_learned_from(train, key, lineage_of_key(key))
    if released and verdicts is not None:
        raise InputError(str(synthetic), [Problem("synthetic traces, which verdicts are of", "a release")])
    way_out = "Give it with --key, or leave the attacks out with --no-attacks" if settings.attacks else None
    traces = load_released(synthetic, train, key, key_needed=way_out, progress=progress)
    _check_learned_from(train, synthetic, traces.lineage)
    if released:
        return {"released": traces}
    if verdicts is None:
        return traces
    judged = PlausibleDeniability.load(verdicts)
    check_same_traces(traces, judged)
    passed = {"released": traces.select_traces(judged.passed)} if judged.passed.any() else {}
    return passed | {"all": traces}


def _check_learned_from(train: Traces, name: PathLike, lineage: Lineage) -> None:
    way_out = "Give the training set that they were made from with --train"
    lineages = {"training set": {TRAINING_TRACES: train.digest}, str(name): lineage}
    check_belong_together("evaluation", lineages, way_out=way_out)


def _check_output(out: PathLike, kind: str, overwrite: bool, inputs: Sequence[PathLike]) -> None:
    if is_first_process():
        check_output_folder(out, kind, overwrite=overwrite, inputs=inputs)


def _save(
    made: FittedModel | Traces | PlausibleDeniability, out: PathLike, overwrite: bool, inputs: Sequence[PathLike]
) -> None:
    if is_first_process():
        made.save(out, overwrite=overwrite, inputs=inputs)


def _check_pass_rates(settings: PrivacyTestSettings, picture: Path, overwrite: bool) -> None:
    from ppmtf_jax.evaluation.plots import check_picture_name, is_own_picture

    if settings.noise_epsilon is not None and not settings.count_all:
        way_out = "Add --count-all: counting stops at another k for each trace"
        raise InputError("--plot", [Problem("all plausible users counted", "--noise-epsilon", way_out=way_out)])
    check_picture_name(picture)
    check_output_file(picture, overwrite=overwrite, is_ours=is_own_picture, what="an earlier picture")


def _draw_pass_rates(verdicts: PlausibleDeniability, picture: Path) -> None:
    from ppmtf_jax.evaluation.plots import pass_rate_curves, save_figure

    settings = verdicts.settings
    k = np.arange(1, int(min(max(MAX_PLOTTED_K, settings.k), verdicts.counted_to)) + 1)
    name = f"{len(verdicts.passed)} traces, {verdicts.n_verifiers} verifiers, eta = {settings.eta:g}"
    save_figure(pass_rate_curves({name: verdicts.pass_rates(k)}), picture)
