"""The step that synthesizes traces of friends.

A ledger beside the output records what each draw spends of the privacy budget, before the draw. The ledger stays when a
run fails, and the next run adds to it.
"""

from __future__ import annotations

import os
from pathlib import Path

from ppmtf_jax.colocation.statement import is_bounded, privacy_statement, statement_text
from ppmtf_jax.colocation.synthesizer import (
    RELATION,
    ColocationSettings,
    ColocationSynthesis,
    synthesize_colocations,
)
from ppmtf_jax.data.traces import OF_NOBODY, Traces
from ppmtf_jax.noise.kept_ledger import KeptLedger
from ppmtf_jax.noise.laplace import NoiseSource, SecureNoise
from ppmtf_jax.runtime.files import PathLike
from ppmtf_jax.runtime.folders import check_output_folder, output_folder, write_statement
from ppmtf_jax.streams import Seed, draw_seed
from ppmtf_jax.synthesizers.fitted_model import FittedModel

# A separate kind of folder, so that synthetic traces never replace recorded traces.
FRIENDS = "traces of synthetic friends"


def ledger_of(out: PathLike) -> Path:
    """The ledger beside an output; it is secret, because it also has the seeds."""
    final = Path(os.path.abspath(out))
    return final.with_name(f"{final.name}.ledger.jsonl")


def colocate_traces(
    train: PathLike,
    out: PathLike,
    settings: ColocationSettings | None = None,
    *,
    model: PathLike | None = None,
    noise: NoiseSource | None = None,
    seed: int | Seed | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> ColocationSynthesis:
    """Synthesize traces of friends who meet, and write them with a statement of what they protect.

    A draw spends privacy budget even if the run fails: the ledger (see `ledger_of`) records every loss before its noise
    is drawn, a repeated run adds to it, and the statement counts everything in it.

    `train`: trace set with friendships. `out`: gets a trace set, privacy.json and PRIVACY.txt, and no seed. `model`:
    model to complete traces with, in place of TPM under differential privacy. `noise`: by default `SecureNoise`. With
    any other noise the statement says that the traces are not private. `seed`: for all draws except the noise.
    """
    inputs = [train] if model is None else [train, model]
    check_output_folder(out, FRIENDS, overwrite=overwrite, inputs=inputs)
    own_seed, chosen, source = draw_seed(seed), settings or ColocationSettings(), noise or SecureNoise()
    fitted = None if model is None else FittedModel.load(model)
    traces = Traces.load(train, progress=progress)
    kept = KeptLedger(ledger_of(out), own_seed, bounded=is_bounded(chosen, source, fitted is not None))
    made = synthesize_colocations(
        traces, chosen, model=fitted, noise=source, seed=own_seed, record=kept.add, progress=progress
    )
    statement = privacy_statement(made, kept.earlier(RELATION))
    about = {OF_NOBODY: made.traces.of_nobody}
    with output_folder(out, FRIENDS, about=about, overwrite=overwrite, inputs=inputs) as partial:
        made.traces.write_into(partial)
        write_statement(partial, statement, statement_text(statement))
    return made
