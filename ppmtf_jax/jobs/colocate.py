"""The step that synthesizes traces of friends."""

from __future__ import annotations

import json
import os

from ppmtf_jax.colocation.statement import privacy_statement, statement_text
from ppmtf_jax.colocation.synthesizer import ColocationSettings, ColocationSynthesis, synthesize_colocations
from ppmtf_jax.data.traces import OF_NOBODY, Traces
from ppmtf_jax.noise.laplace import NoiseSource
from ppmtf_jax.runtime.files import write_text
from ppmtf_jax.runtime.folders import check_output_folder, output_folder
from ppmtf_jax.streams import Seed, draw_seed
from ppmtf_jax.synthesizers.fitted_model import FittedModel

# A kind of its own, so that none is ever written over recorded traces.
FRIENDS = "traces of synthetic friends"
STATEMENT_JSON, STATEMENT_TEXT = "privacy.json", "PRIVACY.txt"

PathLike = str | os.PathLike[str]


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
    """Synthesize traces of friends who meet, and write them with a statement of what they protect and what not.

    Parameters
    ----------
    train : path
        Trace set with friendships.
    out : path
        Gets a trace set, privacy.json and PRIVACY.txt.
    settings : ColocationSettings, optional
    model : path, optional
        Model to complete traces with, in place of TPM under differential privacy.
    noise : NoiseSource, optional
        By default `SecureNoise`. With any other the statement says that the traces are not private.
    seed : int or Seed, optional
        Of all draws but the noise.
    """
    inputs = [train] if model is None else [train, model]
    check_output_folder(out, FRIENDS, overwrite=overwrite, inputs=inputs)
    own_seed = draw_seed(seed)
    fitted = None if model is None else FittedModel.load(model)
    traces = Traces.load(train, progress=progress)
    made = synthesize_colocations(traces, settings, model=fitted, noise=noise, seed=own_seed, progress=progress)
    statement = privacy_statement(made)
    about = {"seed": own_seed._asdict(), OF_NOBODY: made.traces.of_nobody}
    with output_folder(out, FRIENDS, about=about, overwrite=overwrite, inputs=inputs) as partial:
        made.traces.write_into(partial)
        write_text(partial / STATEMENT_JSON, json.dumps(statement, indent=1) + "\n")
        write_text(partial / STATEMENT_TEXT, statement_text(statement) + "\n")
    return made
