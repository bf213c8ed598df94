"""Who was in the training data: membership inference, with what is found at few false alarms."""

from __future__ import annotations

from ppmtf_jax.attacks.membership.base import MEMBERSHIP_ATTACKS, infer_membership
from ppmtf_jax.attacks.membership.scores import MembershipScores, MembershipSummary
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation.plots import roc_curves
from ppmtf_jax.evaluation.report.attack_tables import membership_table
from ppmtf_jax.evaluation.report.blocks import Block, Finding, Picture, Status, Text, finding_of
from ppmtf_jax.evaluation.report.inputs import ReportData, Unavailable, refused_note
from ppmtf_jax.evaluation.report.registry import PRIVACY, section
from ppmtf_jax.privacy.limits import MEMBERSHIP_LIMITS, worst
from ppmtf_jax.settings import parse_choice

ATTACKS = {
    "likelihood_ratio": "Likelihood ratio",
    "density_ratio": "Density ratio, chain",
    "density_ratio density=kernel": "Density ratio, kernel",
    "nearest": "Nearest trace",
}
"""Attacks that take seconds only."""
SHADOWS, OF_RELEASE = "Shadow models", "Shadow models of the release alone"
SEED = 0
QUESTION = "Can one tell whose data was used?"
IF_POOR = "Release these traces only if it is no secret whose data was used."


@section(
    "membership",
    PRIVACY,
    "Who was in the data?",
    "It can be a secret that somebody's data was used at all, for example the data of patients of a clinic. The test "
    "above does not protect this secret. So it is attacked here, by an attacker who knows real traces of many people.",
    question=QUESTION,
    needs_shadows=True,
)
def make(data: ReportData) -> list[Block]:
    """All attacks, the strongest first."""
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
    if not found:
        raise Unavailable(f"No attack on membership suits these data. {refused_note(refused)}")
    found = dict(sorted(found.items(), key=lambda each: -each[1].roc.auc))
    summaries = {title: scores.summary(seed=SEED, n_attacks=len(found)) for title, scores in found.items()}
    notes = [each for each in (note, refused_note(refused), _shadows_note(data)) if each]
    finding = membership_finding(summaries, with_shadows=SHADOWS in found)
    return [finding, membership_table(summaries), _curves(found), Text(tuple(notes))]


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


def membership_finding(summaries: dict[str, MembershipSummary], *, with_shadows: bool) -> Finding:
    """The worst number decides; without the strongest attack, the status is never good."""
    judged = {title: worst(each.judgements()) for title, each in summaries.items()}
    finding = finding_of(QUESTION, judged, MEMBERSHIP_LIMITS, IF_POOR)
    if with_shadows or finding.status is not Status.GOOD:
        return finding
    answer = f"{finding.answer} The strongest attack, by shadow models, was left out."
    return finding._replace(status=Status.FAIR, answer=answer)


def _curves(found: dict[str, MembershipScores]) -> Picture:
    curves = {title: scores.roc for title, scores in found.items()}
    figure = roc_curves(curves, title="Membership inference", logarithmic=True)
    alt = "Curves of the share of training users found against the share of false alarms, for each attack."
    caption = (
        "Vertical: the share of training users whom an attacker finds. Horizontal: the share of other users who are "
        "accused wrongly. The left side matters most: it shows people who are found with hardly any false alarms."
    )
    return Picture(figure, alt, caption)
