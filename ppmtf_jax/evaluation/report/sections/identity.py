"""Whose traces are these: re-identification by an attacker who knows the real traces."""

from __future__ import annotations

import math

from ppmtf_jax.attacks.audit import Linkage, Reidentified, reidentification_attacks
from ppmtf_jax.attacks.splits import targets_of
from ppmtf_jax.evaluation.plots import roc_curves
from ppmtf_jax.evaluation.report.content import Block, Content, Light, Picture, Status, Table, Text, light_of, percent
from ppmtf_jax.evaluation.report.material import Material
from ppmtf_jax.evaluation.report.registry import PRIVACY, SECTIONS, SectionMaker
from ppmtf_jax.privacy.limits import IDENTITY_LIMITS, NAMED, rule, worst

MAX_TARGETS = 500
SEED = 0
QUESTION = "Can traces be traced back to people?"
IF_POOR = "Do not release these traces: use a larger k, or a system that smooths more."


def make(material: Material) -> Content:
    """Every estimator against the traces, the strongest first."""
    if material.synthetic.of_nobody or not material.users_known:
        answer = "Nobody knows whose these traces are, so no guess can be checked."
        return Content([Text((answer,))], [Light(QUESTION, Status.UNKNOWN, answer, rule(IDENTITY_LIMITS))])
    n_targets = min(MAX_TARGETS, material.settings.n_users)
    made = targets_of(material.train, material.synthetic, n_targets, seed=SEED)
    left_out: list[str] = []
    estimators = material.settings.estimators
    attacks = reidentification_attacks(made.known, made.anonymized, estimators, seed=SEED, say=left_out.append)
    known = _known_rate(material)
    blocks: list[Block] = [_table(attacks), _curves(attacks)]
    notes = []
    if made.known.n_users < material.train.n_users:
        notes.append(
            f"To save time, {made.known.n_users:,} of {material.train.n_users:,} training users, drawn at random, were "
            f"targets, and the traces of {made.anonymized.n_users:,} people were attacked."
        )
    n_left_out = sum("left out" in each for each in left_out)
    if n_left_out:
        notes.append(f"{n_left_out} attacks do not suit these data, and were left out.")
    if math.isfinite(known):
        notes.append(
            f"The attack of the PPMTF paper, on all {material.n_synthetic:,} traces, names the right one of "
            f"{material.train.n_users:,} people for {percent(known, 1)} of them (a guess: "
            f"{percent(1 / material.train.n_users, 2)})."
        )
    if notes:
        blocks.append(Text(tuple(notes)))
    return Content(blocks, [_light(attacks, known, material)])


def _known_rate(material: Material) -> float:
    """What the evaluation says of the simplest attack; NaN where it was left out."""
    if "reid_rate" not in material.evaluation.metrics:
        return math.nan
    return material.evaluation.value("reid_rate", material.column)


def _light(attacks: list[Reidentified], known: float, material: Material) -> Light:
    judged = {
        f"{attack.title}, {which}": worst(linkage.judgements())
        for attack in attacks
        for which, linkage in (("traces one by one", attack.each), ("all traces of a person", attack.combined))
    }
    if math.isfinite(known):
        n_users = material.train.n_users
        judged["That of the PPMTF paper"] = NAMED.judge(known, material.synthetic.n_users, guess=1 / n_users)
    decisive = worst(list(judged.values()))
    attack = next(name for name, each in judged.items() if each is decisive)
    return light_of(QUESTION, decisive, IDENTITY_LIMITS, IF_POOR, f"Attack: {attack[:1].lower()}{attack[1:]}.")


def _table(attacks: list[Reidentified]) -> Table:
    rows = [
        [attack.title, which, *_cells(linkage)]
        for attack in attacks
        for which, linkage in (("one by one", attack.each), ("all of a person", attack.combined))
    ]
    first = attacks[0].each
    caption = (
        f"Attacks by somebody who knows all traces of {first.n_targets:,} people. Right person: how often the attacker "
        f"names the right one of them (a guess: {percent(1 / first.n_targets, 2)}). AUC: how often a person's own "
        "trace looks more like hers than another trace does (a guess: 0.5). Found: share of a person's own traces that "
        "are found with few false alarms"
    )
    return Table(
        caption, ("Attack", "Traces", "Right person", "AUC", "95 %", "Found at 1 %", "at 0.1 %"), rows, n_words=2
    )


def _cells(linkage: Linkage) -> list[str]:
    low, high = linkage.auc_interval
    rates = [percent(linkage.true_positive_rate[rate], 1) for rate in (0.01, 0.001)]
    return [percent(linkage.accuracy, 1), f"{linkage.auc:.2f}", f"{low:.2f}-{high:.2f}", *rates]


def _curves(attacks: list[Reidentified]) -> Picture:
    curves = {}
    for attack in attacks:
        name = attack.estimator.upper()
        curves |= {name: attack.each.roc, f"{name}*": attack.combined.roc}
    figure = roc_curves(curves, title="Re-identification", logarithmic=True)
    alt = "Curves of the share of own traces found against the share of false alarms, for each attack, beside a guess."
    caption = (
        "How many traces an attacker links to the right person (up) against how many false alarms she raises (right). "
        "Near the dotted curve, she does no better than a guess. A star: all traces of a person together."
    )
    return Picture(figure, alt, caption)


SECTIONS.register(
    SectionMaker(
        "identity",
        PRIVACY,
        "Whose traces are these?",
        "The worst case: somebody knows the real traces of many people, gets the synthetic ones, and guesses from whom "
        "each was made.",
        make,
        QUESTION,
    )
)
