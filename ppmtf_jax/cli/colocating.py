"""The command that synthesizes traces of friends: colocate.

A ledger beside the output records what each draw spends of the privacy budget, before the draw. The ledger stays when a
run fails, and the next run adds to it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from ppmtf_jax.cli.console import tell
from ppmtf_jax.cli.group import with_example
from ppmtf_jax.cli.options import Out, Overwrite, Quiet, argument, option, with_settings
from ppmtf_jax.colocation.counts import find_colocations
from ppmtf_jax.colocation.friends import FriendGraph
from ppmtf_jax.colocation.statement import is_bounded, privacy_statement, statement_texts
from ppmtf_jax.colocation.synthesizer import RELATION, ColocationSettings, synthesize_colocations
from ppmtf_jax.data.description import counted
from ppmtf_jax.data.traces import OF_NOBODY, Traces
from ppmtf_jax.noise.accountant import KeptLedger
from ppmtf_jax.noise.mechanisms import SecureNoise
from ppmtf_jax.privacy.statement import STATEMENT_TEXT, statement_files
from ppmtf_jax.runtime.files import write_text
from ppmtf_jax.runtime.folders import check_output_folder, output_folder
from ppmtf_jax.streams import draw_seed
from ppmtf_jax.synthesizers.fitted_model import FittedModel

# A separate kind of folder, so that synthetic traces never replace recorded traces.
FRIENDS = "traces of synthetic friends"


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
