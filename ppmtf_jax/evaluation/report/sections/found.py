"""Can a person be found: re-identification and membership inference, and one light for the strongest of all attacks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ppmtf_jax.attacks.audit import Reidentified, reidentification_attacks, targets_of
from ppmtf_jax.attacks.membership.base import MEMBERSHIP_ATTACKS, MembershipScores, infer_membership
from ppmtf_jax.attacks.roc import Roc
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation.plots import roc_curves
from ppmtf_jax.evaluation.report.attack_tables import identity_table, membership_table
from ppmtf_jax.evaluation.report.blocks import Block, Finding, Picture, Status, Text
from ppmtf_jax.evaluation.report.inputs import ReportData, Traced, Unavailable, refused_note
from ppmtf_jax.evaluation.report.registry import PRIVACY, section
from ppmtf_jax.privacy.limits import FINDING_LIMITS, FOUND, Judgement, rule, worst
from ppmtf_jax.settings import parse_choice

ATTACKS = {
    "likelihood_ratio": "Likelihood ratio",
    "density_ratio": "Density ratio, chain",
    "density_ratio density=kernel": "Density ratio, kernel",
    "nearest": "Nearest trace",
}
"""Attacks on membership that take seconds only."""
SHADOWS, OF_RELEASE = "Shadow models", "Shadow models of the release alone"
N_MEMBERSHIP = len(ATTACKS) + 2
MIN_TARGETS, MAX_TARGETS, MAX_ENTRIES = 50, 500, 8e7
"""Minimum and maximum number of targets. Between these limits, there are as many targets as possible whose transition
matrices have at most `MAX_ENTRIES` entries in all."""
SEED = 0
QUESTION = "Can somebody find a person who was in the data?"
IF_POOR = (
    "Do not release these traces if it is a secret whose data was used. A larger k, a system that smooths more, or "
    "differential privacy protects better."
)


@section(
    "found",
    PRIVACY,
    "Can a person be found?",
    "The worst case: somebody knows the real traces of many people and gets the synthetic ones. Whose traces are "
    "these, and whose data was used at all? That somebody is in the data of a clinic, for example, can itself be a "
    "secret, which the test above does not protect.",
    question=QUESTION,
    needs_shadows=True,
)
def make(data: ReportData) -> list[Block]:
    """One light for the strongest of all attacks, and the attacks in two tables, each with the strongest first."""
    traced, why_not, refused_traces = data.traced or traced_back(data)
    found, notes, refused = _members(data)
    n_attacks = N_MEMBERSHIP + 2 * len(traced)
    summaries = {title: scores.summary(seed=SEED, n_attacks=n_attacks) for title, scores in found.items()}
    judged = {title: each.judgements() for title, each in summaries.items()}
    for attack in traced:
        for which, linkage in (("traces one by one", attack.each), ("all traces of a person", attack.combined)):
            judged[f"{attack.title}, {which}"] = linkage.judgements()
    if not judged:
        raise Unavailable(f"No attack suits these data. {refused_note(refused)} {why_not}")
    left_out = [] if SHADOWS in found else ["by shadow models, the strongest"]
    # Traces of nobody are not from any one person.
    if not (traced or data.guarantee):
        left_out.append("on identity")
    finding = strongest_finding(judged, left_out)
    notes = [*notes, why_not, refused_note(refused_traces | refused), _shadows_note(data)]
    blocks: list[Block] = [finding]
    if traced:
        blocks += [identity_table(traced), _traced_curves(traced)]
    if found:
        blocks += [membership_table(summaries), _members_curves(found)]
    return [*blocks, Text(tuple(each for each in notes if each))]


def strongest_finding(judged: Mapping[str, list[Judgement]], left_out: Sequence[str] = ()) -> Finding:
    """The worst number of all attacks decides; if attacks were left out, the status is never good.

    Each list begins with the judgement of the people found. Of the attacks with the worst status, the strongest is the
    one that finds most.
    """
    status = worst([each for of in judged.values() for each in of]).status
    name, of = max(
        ((name, of) for name, of in judged.items() if worst(of).status is status),
        key=lambda each: (np.nan_to_num(each[1][0].value), each[1][0].high),
    )
    found, decisive = of[0], of[0] if of[0].status is status else worst(of)
    said = f"The strongest attack ({name[:1].lower() + name[1:]}) "
    if math.isfinite(found.value):
        people, low, high, guess = (f"{1000 * each:,.0f}" for each in (found.value, found.low, found.high, found.guess))
        right = 100 * found.value / (found.value + FOUND.guess)
        said += (
            f"finds {people} of 1,000 people (95\u00a0%: {low} to {high}; a guess: {guess}); {right:.0f} of 100 "
            "accusations are right."
        )
    else:
        said += "could not be measured."
    if decisive is not found or status is Status.UNKNOWN:
        said += f" {decisive.text}"
    elif status is Status.POOR and found.low <= found.guess:
        said += " The area under its curve shows that there is a leak."
    more = f" {IF_POOR}" if status is Status.POOR else ""
    if left_out and status is Status.GOOD:
        status, more = Status.FAIR, f" Attacks were left out: {', and '.join(left_out)}."
    return Finding(QUESTION, status, f"{said}{more}", rule(FINDING_LIMITS))


# Whose traces are these?


def traced_back(data: ReportData) -> Traced:
    """Attack identity with every estimator."""
    if not data.has_known_users:
        return Traced([], f"No guess whose traces these are can be checked: {data.no_users}.", {})
    most = int(min(max(MAX_ENTRIES // data.train.n_places**2, MIN_TARGETS), MAX_TARGETS))
    made = targets_of(data.train, data.synthetic, min(most, data.settings.n_users), seed=SEED)
    refused: dict[str, InputError] = {}
    how = {"seed": SEED, "n_other_attacks": N_MEMBERSHIP, "on_refused": refused.__setitem__}
    try:
        attacks = reidentification_attacks(made.known, made.anonymized, data.settings.estimators, **how)
    except InputError as error:
        return Traced([], "", {"Attacks on identity": error})
    note = ""
    if made.known.n_users < data.train.n_users:
        note = (
            f"To save time, {made.known.n_users:,} of {data.train.n_users:,} training users, drawn at random, were "
            f"targets, and the traces of {made.anonymized.n_users:,} people were attacked."
        )
    return Traced(attacks, note, refused)


def _traced_curves(attacks: list[Reidentified]) -> Picture:
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


# Whose data was used?


class Members(NamedTuple):
    """The scores of the attacks on membership, the strongest first, and what to say of them."""

    found: dict[str, MembershipScores]
    notes: list[str]
    refused: dict[str, InputError]


def _members(data: ReportData) -> Members:
    released, train, test, note = data.attacked
    found: dict[str, MembershipScores] = {}
    refused: dict[str, InputError] = {}
    for name, title in ATTACKS.items():
        entry, settings = parse_choice(name, MEMBERSHIP_ATTACKS)
        try:
            found[title] = infer_membership(released, train, test, entry.name, settings, seed=SEED)
        except InputError as error:
            refused[title] = error
    shadows = {SHADOWS: data.shadow_scores, OF_RELEASE: data.release_scores}
    found |= {title: scores for title, scores in shadows.items() if scores is not None}
    return Members(dict(sorted(found.items(), key=lambda each: -each[1].roc.auc)), [note], refused)


def _shadows_note(data: ReportData) -> str:
    if data.shadow_scores is not None:
        return (
            f"{SHADOWS}: the attacker learns models like this one from random halves of the people, and compares "
            "traces made with and without a person's data to the person's own traces. Then the attacker decides "
            "whether the synthetic traces look as if they were made with or without the person's data. "
            f"{OF_RELEASE}: an attacker who knows nobody else learns such models from the synthetic traces, which "
            "stand in for people."
        )
    why = "to save time (--fast)" if data.settings.fast else data.no_shadows
    return f"{SHADOWS}, the strongest attack, were left out {why}. More may leak than is shown here."


def _members_curves(found: dict[str, MembershipScores]) -> Picture:
    curves = {title: scores.roc for title, scores in found.items()}
    figure = roc_curves(curves, title="Membership inference", logarithmic=True)
    alt = "Curves of the share of training users found against the share of false alarms, for each attack."
    caption = (
        "Vertical: the share of training users whom an attacker finds. Horizontal: the share of other users who are "
        "accused wrongly. The left side matters most: it shows people who are found with hardly any false alarms."
    )
    return Picture(figure, alt, caption)
