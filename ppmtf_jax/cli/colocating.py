"""The command that synthesizes traces of friends: colocate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from ppmtf_jax.cli.console import tell
from ppmtf_jax.cli.group import with_example
from ppmtf_jax.cli.options import Out, Overwrite, Quiet, argument, option, with_settings
from ppmtf_jax.colocation.counts import find_colocations
from ppmtf_jax.colocation.friend_graph import FriendGraph
from ppmtf_jax.colocation.synthesizer import ColocationSettings
from ppmtf_jax.data.description import counted
from ppmtf_jax.jobs.colocate import colocate_traces, ledger_of
from ppmtf_jax.runtime.folders import STATEMENT_JSON, STATEMENT_TEXT


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
    made = colocate_traces(train, out, settings, model=model, seed=seed, overwrite=overwrite, progress=not quiet)
    graph = FriendGraph.of(made.traces)
    n_drawn, n_in_all = len(made.drawn.pair), len(find_colocations(made.traces, graph))
    tell(f"{graph.n_users} users, {graph.n_pairs} friendships, {n_drawn} meetings drawn, in {out}")
    if n_drawn < made.n_wanted:
        tell(f"The noisy number asked for {made.n_wanted} meetings; more do not fit, because friends are elsewhere")
    tell(f"{n_in_all} co-locations of friends in total, including those by chance")
    statement = json.loads((out / STATEMENT_JSON).read_text(encoding="utf-8"))
    cost = f"epsilon {statement['epsilon']:g} in total" if statement["private"] else "NOT differentially private"
    earlier = statement["earlier_runs"]
    if earlier["n"]:
        cost += f" with {counted(earlier['n'], 'earlier run')} of epsilon {earlier['epsilon']:g}"
    tell(f"{cost}; read {out / STATEMENT_TEXT} first")
    tell(
        f"The ledger {ledger_of(out).name} beside it has the seed and all spent epsilon. Only you can read it: keep it"
    )
