"""Who was in the training data: membership inference, with what is found at few false alarms."""

from __future__ import annotations

from ppmtf_jax.attacks.membership.base import MEMBERSHIP_ATTACKS, infer_membership
from ppmtf_jax.attacks.membership.scores import MembershipScores, MembershipSummary
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation.plots import roc_curves
from ppmtf_jax.evaluation.report.content import Block, Content, Light, Picture, Table, Text, light_of, percent
from ppmtf_jax.evaluation.report.material import Material, Unavailable
from ppmtf_jax.evaluation.report.registry import PRIVACY, SECTIONS, SectionMaker
from ppmtf_jax.privacy.limits import MEMBERSHIP_LIMITS, worst
from ppmtf_jax.settings import parse_choice

ATTACKS = {
    "likelihood_ratio": "Likelihood ratio",
    "density_ratio": "Density ratio, chain",
    "density_ratio density=kernel": "Density ratio, kernel",
}
"""All that take seconds; `ppmtf attack membership --model` also has shadow models, which take longest."""
SEED = 0
QUESTION = "Can one tell whose data was used?"
IF_POOR = "Release them only if it is no secret whose data was used."


def make(material: Material) -> Content:
    """The attacks that need no model, the strongest first."""
    released, train, test, note = material.attacked
    found: dict[str, MembershipScores] = {}
    for name, title in ATTACKS.items():
        entry, settings = parse_choice(name, MEMBERSHIP_ATTACKS)
        try:
            found[title] = infer_membership(released, train, test, entry.name, settings, seed=SEED)
        except InputError:
            continue
    if not found:
        raise Unavailable("No attack on membership suits these data: they need several people in both sets who move.")
    found = dict(sorted(found.items(), key=lambda each: -each[1].roc.auc))
    summaries = {title: scores.summary(seed=SEED) for title, scores in found.items()}
    notes = [each for each in (note, _of_missing(found)) if each]
    blocks: list[Block] = [_table(summaries), _curves(found), *([Text(tuple(notes))] if notes else [])]
    return Content(blocks, [_light(summaries)])


def _of_missing(found: dict[str, MembershipScores]) -> str:
    missing = [title for title in ATTACKS.values() if title not in found]
    return f"Left out, for these data do not suit: {', '.join(missing).lower()}." if missing else ""


def _light(summaries: dict[str, MembershipSummary]) -> Light:
    judged = {title: worst(each.judgements()) for title, each in summaries.items()}
    decisive = worst(list(judged.values()))
    attack = next(title for title, each in judged.items() if each is decisive)
    return light_of(QUESTION, decisive, MEMBERSHIP_LIMITS, IF_POOR, f"Attack: {attack[:1].lower()}{attack[1:]}.")


def _table(summaries: dict[str, MembershipSummary]) -> Table:
    rows = []
    for title, each in summaries.items():
        shares = ((0.01, each.tpr_at_1_percent), (0.001, each.tpr_at_01_percent))
        rates = [percent(share.value, 1) if each.n_others * rate >= 1 else "-" for rate, share in shares]
        numbers = [f"{value:.2f}" for value in (each.advantage.value, each.chance)]
        rows.append([title, f"{each.auc.value:.2f}", f"{each.auc.low:.2f}-{each.auc.high:.2f}", *numbers, *rates])
    first = next(iter(summaries.values()))
    caption = (
        f"{first.n_members:,} training users and up to {max(each.n_others for each in summaries.values()):,} others. "
        "AUC: how often a training user scores higher than another; a guess: 0.5. Advantage: greatest difference of "
        "true and false alarms, and what it is by chance. Found: share of the training users found with few false "
        "alarms (-: too few others to know)"
    )
    headings = ("Attack", "AUC", "95 %", "Advantage", "by chance", "Found at 1 %", "at 0.1 %")
    return Table(caption, headings, rows)


def _curves(found: dict[str, MembershipScores]) -> Picture:
    curves = {title: scores.roc for title, scores in found.items()}
    figure = roc_curves(curves, title="Membership inference", logarithmic=True)
    alt = "Curves of the share of training users found against the share of false alarms, for each attack."
    caption = (
        "How many training users an attacker finds (up) against how many others she accuses wrongly (right). What is "
        "at the left matters most: people found with hardly a false alarm."
    )
    return Picture(figure, alt, caption)


SECTIONS.register(
    SectionMaker(
        "membership",
        PRIVACY,
        "Who was in the data?",
        "That somebody's data was used at all can be a secret, as with patients of a clinic. The test above does not "
        "protect it, so it is attacked here by one who knows real traces of many people.",
        make,
        QUESTION,
    )
)
