"""Re-identification by an attacker who knows the real traces."""

from __future__ import annotations

import math

from ppmtf_jax.attacks.audit import Reidentified, reidentification_attacks
from ppmtf_jax.attacks.roc import Roc
from ppmtf_jax.attacks.splits import Rehearsal, targets_of
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation.plots import roc_curves
from ppmtf_jax.evaluation.report.attack_tables import identity_table
from ppmtf_jax.evaluation.report.blocks import Block, Finding, Picture, Status, Text, finding_of, percent
from ppmtf_jax.evaluation.report.inputs import ReportData, refused_note
from ppmtf_jax.evaluation.report.registry import PRIVACY, section
from ppmtf_jax.privacy.limits import IDENTITY_LIMITS, NAMED, rule, worst

MIN_TARGETS, MAX_TARGETS, MAX_ENTRIES = 50, 500, 8e7
"""Minimum and maximum number of targets. Between these limits, there are as many targets as possible whose transition
matrices have at most `MAX_ENTRIES` entries in all."""
SEED = 0
QUESTION = "Can traces be traced back to people?"
IF_POOR = "Do not release these traces: use a larger k, or a system that smooths more."


@section(
    "identity",
    PRIVACY,
    "Whose traces are these?",
    "The worst case: somebody knows the real traces of many people, gets the synthetic ones, and guesses from whom "
    "each was made.",
    question=QUESTION,
)
def make(data: ReportData) -> list[Block]:
    """Attack the traces with every estimator, and list the strongest attack first."""
    if not data.has_known_users:
        answer = f"No guess can be checked: {data.no_users}."
        return [Finding(QUESTION, Status.UNKNOWN, answer, rule(IDENTITY_LIMITS)), Text((answer,))]
    made, attacks, refused = attack(data)
    evaluation = data.evaluation
    # Evaluations without attacks have no such rate.
    known = evaluation.value("reid_rate", data.column) if "reid_rate" in evaluation.metrics else math.nan
    notes = []
    if made.known.n_users < data.train.n_users:
        notes.append(
            f"To save time, {made.known.n_users:,} of {data.train.n_users:,} training users, drawn at random, were "
            f"targets, and the traces of {made.anonymized.n_users:,} people were attacked."
        )
    if refused:
        notes.append(refused_note(refused))
    if math.isfinite(known):
        n_traces = len(data.synthetic.trace_table()[0])
        notes.append(
            f"The attack of the PPMTF paper, on {n_traces:,} traces, names the right one of "
            f"{data.train.n_users:,} people for {percent(known, 1)} of the traces (a guess: "
            f"{percent(1 / data.train.n_users, 2)})."
        )
    blocks = [_finding(attacks, known, data), identity_table(attacks), _curves(attacks)]
    return [*blocks, Text(tuple(notes))] if notes else blocks


def attack(data: ReportData) -> tuple[Rehearsal, list[Reidentified], dict[str, InputError]]:
    """Run the attacks: the attacked traces, the results, and why other attacks do not suit the data.

    Raises `InputError` if no attack is possible.
    """
    most = int(min(max(MAX_ENTRIES // data.train.n_places**2, MIN_TARGETS), MAX_TARGETS))
    made = targets_of(data.train, data.synthetic, min(most, data.settings.n_users), seed=SEED)
    refused: dict[str, InputError] = {}
    estimators = data.settings.estimators
    attacks = reidentification_attacks(
        made.known, made.anonymized, estimators, seed=SEED, on_refused=refused.__setitem__
    )
    return made, attacks, refused


def _finding(attacks: list[Reidentified], known: float, data: ReportData) -> Finding:
    judged = {
        f"{attack.title}, {which}": worst(linkage.judgements())
        for attack in attacks
        for which, linkage in (("traces one by one", attack.each), ("all traces of a person", attack.combined))
    }
    if math.isfinite(known):
        n_users = data.train.n_users
        judged["That of the PPMTF paper"] = NAMED.judge(known, data.synthetic.n_users, guess=1 / n_users)
    return finding_of(QUESTION, judged, IDENTITY_LIMITS, IF_POOR)


def _curves(attacks: list[Reidentified]) -> Picture:
    curves: dict[str, Roc] = {}
    for attack in attacks:
        # Of each estimator, the settings with the strongest attack, which come first.
        name = attack.estimator.split()[0].upper()
        curves = {name: attack.each.roc, f"{name}*": attack.combined.roc} | curves
    figure = roc_curves(curves, title="Re-identification", logarithmic=True)
    alt = "Curves of the share of own traces found against the share of false alarms, for each attack, beside a guess."
    caption = (
        "Vertical: the share of traces that an attacker links to the right person. Horizontal: the share of false "
        "alarms. Near the dotted curve, the attacker is no better than a guess. A star marks attacks on all traces of "
        "a person together."
    )
    return Picture(figure, alt, caption)
