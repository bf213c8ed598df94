"""The step that synthesizes traces of friends.

What it spends of the privacy budget is written down before it is drawn, beside the output and not in it: a file that
stays when a run fails, and to which the next run adds.
"""

from __future__ import annotations

import json
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
from ppmtf_jax.runtime.files import write_text
from ppmtf_jax.runtime.folders import check_output_folder, output_folder
from ppmtf_jax.streams import Seed, draw_seed
from ppmtf_jax.synthesizers.fitted_model import FittedModel

# A kind of its own, so that none is ever written over recorded traces.
FRIENDS = "traces of synthetic friends"
STATEMENT_JSON, STATEMENT_TEXT = "privacy.json", "PRIVACY.txt"

PathLike = str | os.PathLike[str]


def ledger_of(out: PathLike) -> Path:
    """Where the ledger of an output is: beside it, and secret, for it has the seeds too.

    Examples
    --------
    >>> ledger_of("made/friends").name
    'friends.ledger.jsonl'
    """
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
    """Synthesize traces of friends who meet, and write them with a statement of what they protect and what not.

    What was drawn is spent, even if nothing comes of it: a ledger beside the output, see `ledger_of`, has every loss
    before its noise is drawn. It stays, a repeated run adds to it, and the statement counts all of it.

    Parameters
    ----------
    train : path
        Trace set with friendships.
    out : path
        Gets a trace set, privacy.json and PRIVACY.txt, and no seed.
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
        write_text(partial / STATEMENT_JSON, json.dumps(statement, indent=1) + "\n")
        write_text(partial / STATEMENT_TEXT, statement_text(statement) + "\n")
    return made
