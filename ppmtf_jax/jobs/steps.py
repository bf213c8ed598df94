"""The steps that the command line and jobs share, each as one function that loads, works and saves.

A step checks its outputs before it works. Only the owner may read the outputs, except for a release.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ppmtf_jax.data.stored_traces import PART_USERS, on_places, open_traces
from ppmtf_jax.data.trace_set import SYNTHETIC, TRACES_FILE, part_file, write_about
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.registry import DATA_SETS
from ppmtf_jax.datasets.summary import Imported
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.gibbs.run import Checkpoints
from ppmtf_jax.privacy.own_test import TestSettings, load_verdicts, privacy_test
from ppmtf_jax.privacy.release import RELEASE, RELEASE_KEY, is_release, open_with_key, write_release
from ppmtf_jax.privacy.release_plan import ReleasePlan, ReleaseSettings, plan_release
from ppmtf_jax.privacy.verdicts import Verdicts
from ppmtf_jax.runtime.engine import is_remote, map_parts, stage
from ppmtf_jax.runtime.files import PathLike, clear_leftovers, exclusive_use, read_own, remove, write_text
from ppmtf_jax.runtime.folders import VERDICTS, check_output_folder, output_folder, read_marker
from ppmtf_jax.runtime.progress import spinner
from ppmtf_jax.settings import input_paths
from ppmtf_jax.streams import Seed, draw_seed
from ppmtf_jax.synthesizers.fitted_model import MODEL, FittedModel, SyntheticPart
from ppmtf_jax.synthesizers.registry import DEFAULT_SYSTEM
from ppmtf_jax.synthesizers.synthesis import SynthesisSettings, fit, synthesize_in_parts

IMPORTED = "imported data"
AnySeed = int | Seed | None


def import_data(
    source: str, settings: Any, out: PathLike, *, seed: AnySeed = None, overwrite: bool = False, progress: bool = False
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
    # A report later says what the import kept, and what it left out.
    about = {"source": source, "seed": own_seed._asdict(), "summary": imported.report}
    about |= {"kept": imported.kept, "losses": imported.losses}
    with (
        spinner("writing", show=progress),
        output_folder(out, IMPORTED, about=about, overwrite=overwrite, inputs=inputs) as partial,
    ):
        for name, traces in imported.sets.items():
            (partial / name).mkdir()
            traces.write_into(partial / name)
    return imported


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
    """Learn a model of a trace set; a fit that was stopped continues when this is called again in the same way.

    The state of a long fit is in the file `checkpoint`, which the caller removes. Without it, the state and the seed
    are kept beside `out` until the fit is done, and only one fit at a time writes a model.
    """
    check_output_folder(out, MODEL, overwrite=overwrite, inputs=[train])
    if checkpoint is not None:
        traces = open_traces(train, with_friends=False, progress=progress)
        model = fit(traces, system, settings, seed=seed, progress=progress, checkpoints=Checkpoints(checkpoint))
        model.save(out, overwrite=overwrite, inputs=[train])
        return model
    final = Path(os.path.abspath(out))
    state, seed_file, lock = (
        final.with_name(f".{final.name}.checkpoint.{suffix}") for suffix in ("npz", "json", "lock")
    )
    how = {"checkpoint": state, "overwrite": overwrite, "progress": progress}
    with exclusive_use(lock):
        clear_leftovers(final.parent, [final.name, state.name, seed_file.name])
        try:
            model = fit_model(train, out, system, settings, seed=kept_seed(seed_file, seed), **how)
        finally:
            # Without a state to continue from, the seed is of no use.
            if not state.exists():
                remove(seed_file)
        remove(state)
        remove(seed_file)
        return model


def kept_seed(file: Path, seed: AnySeed) -> Seed:
    """The given seed; otherwise the seed in the file; otherwise a drawn seed, which the file then keeps.

    So stopped work continues with its first seed. A file that others could have written is refused (`files.open_own`).
    """
    if seed is not None:
        return draw_seed(seed)
    if os.path.lexists(file):
        # The release will say that this seed came from the operating system, so nobody else may have chosen it.
        content = read_own(file)
        try:
            return Seed(draw_seed(json.loads(content)["seed"]).value, given=False)
        except (OSError, ValueError, KeyError, TypeError) as error:
            way_out = "Remove it to begin anew with another seed"
            raise InputError(str(file), [Problem("a readable seed", str(error), way_out=way_out)]) from error
    drawn = draw_seed(None)
    write_text(file, json.dumps({"seed": drawn.value}) + "\n")
    return drawn


@stage("synthesize")
def synthesize_traces(
    model: PathLike,
    out: PathLike,
    settings: SynthesisSettings | None = None,
    *,
    seed: AnySeed = None,
    overwrite: bool = False,
    progress: bool = False,
) -> tuple[int, int]:
    """Synthesize traces from every user of a model, or new people from a model of nobody.

    The traces of many users are written in parts, so that memory does not grow with the number of users. Returns the
    numbers of traces and of events.
    """
    check_output_folder(out, SYNTHETIC, overwrite=overwrite, inputs=[model])
    fitted, shown = FittedModel.load(model), progress and not is_remote()
    parts = synthesize_in_parts(fitted, settings, n_users=PART_USERS, seed=seed, progress=shown)
    n_made, about = np.zeros(2, np.int64), {}
    with output_folder(out, SYNTHETIC, about=about, overwrite=overwrite, inputs=[model]) as unfinished:
        files = [part_file(unfinished / TRACES_FILE, number, len(parts)) for number in range(len(parts))]
        how = {"n_parts": len(parts), "name_of": lambda part: part[0].name, "progress": progress}
        for n_traces, n_events, facts in map_parts(_made_and_written, zip(files, parts, strict=True), **how):
            n_made += n_traces, n_events
            about.update(facts)
        write_about(unfinished, fitted.places, parts[0].time_grid)
    n_traces, n_events = n_made.tolist()
    return n_traces, n_events


def _made_and_written(part: tuple[Path, SyntheticPart]) -> tuple[int, int, dict[str, Any]]:
    """Draw and write a part of synthetic traces; returns the numbers of traces and events, and facts of the marker."""
    file, traces = part[0], part[1].made()
    traces.write_events_into(file)
    return len(traces.trace_table()[0]), traces.n_events, traces.kind_and_facts()[1]


def run_privacy_test(
    model: PathLike,
    synthetic: PathLike,
    out: PathLike,
    settings: TestSettings | Mapping[str, Any] | None = None,
    *,
    seed: AnySeed = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Verdicts:
    """Make the privacy test of the model's system and write the verdicts."""
    inputs = [model, synthetic]
    check_output_folder(out, VERDICTS, overwrite=overwrite, inputs=inputs)
    fitted, traces = FittedModel.load(model), open_traces(synthetic, progress=progress)
    verdicts = privacy_test(fitted, traces, settings, seed=seed, progress=progress)
    verdicts.save(out, overwrite=overwrite, inputs=inputs)
    return verdicts


def release_traces(
    synthetic: PathLike,
    by: PathLike,
    out: PathLike,
    key: PathLike | None = None,
    settings: ReleaseSettings | None = None,
    *,
    seed: AnySeed = None,
    overwrite: bool = False,
    progress: bool = False,
) -> ReleasePlan:
    """Write the traces that passed as a release, which can be handed to anyone, and its key, which stays private.

    `by`: the verdicts, or for traces of nobody the model that made them. Traces of nobody have no key.
    """
    inputs, marker = [synthetic, by], read_marker(by)
    if key is not None:
        check_output_folder(key, RELEASE_KEY, overwrite=overwrite, inputs=inputs)
    check_output_folder(out, RELEASE, overwrite=overwrite, inputs=inputs)
    is_model = marker is not None and marker.kind == MODEL
    traces = open_traces(synthetic, progress=progress)
    judged = FittedModel.load(by) if is_model else load_verdicts(by)
    plan = plan_release(traces, judged, settings, seed=seed)
    write_release(plan, out, key, overwrite=overwrite, inputs=inputs)
    return plan


def open_released(
    folder: PathLike, train: Traces, key: PathLike | None, *, key_needed: str | None = None, progress: bool = False
) -> Traces:
    """Synthetic traces, or a release on the places of the training traces: with the users' ids if there is a key.

    A release without its key is refused if `key_needed` is given, which is the advice of the error message. Traces of
    nobody are not refused, because they have no key. A key beside traces that are not a release is refused.
    """
    released = is_release(folder)
    if key is not None and not released:
        raise InputError(str(folder), [Problem("a release, which a key is for", "other traces")])
    if key is not None:
        return open_with_key(folder, key, train)
    traces = open_traces(folder, with_friends=not released, progress=progress)
    if not released:
        return traces
    if key_needed is not None and not traces.of_nobody:
        raise InputError(str(folder), [Problem("the key of the release", "none", way_out=key_needed)])
    # A release has its own order of places.
    return on_places(traces, train.places, str(folder))
