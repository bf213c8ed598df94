"""What leaks: plausible deniability, finding people (identity and membership), copies, and guesses about people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes

from ppmtf_jax.attacks.audit import Reidentified, reidentification_attacks, targets_of
from ppmtf_jax.attacks.copies import CopyCheck, check_copies
from ppmtf_jax.attacks.inference import GUESSES, infer
from ppmtf_jax.attacks.membership.base import MEMBERSHIP_ATTACKS, MembershipScores, infer_membership
from ppmtf_jax.attacks.roc import Roc
from ppmtf_jax.data.description import at_most
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation.judgement import ENOUGH_PASSED, FEW_PASSED
from ppmtf_jax.evaluation.plots import pass_rate_curves, roc_curves
from ppmtf_jax.evaluation.plots.curves import draw_cumulative, draw_lines
from ppmtf_jax.evaluation.plots.style import LOWER, panels
from ppmtf_jax.evaluation.report.compose import PRIVACY, section
from ppmtf_jax.evaluation.report.inputs import ReportData, Traced, Unavailable, if_available, needed
from ppmtf_jax.evaluation.report.page import (
    Block,
    Finding,
    Picture,
    Status,
    Table,
    Text,
    copies_table,
    identity_table,
    membership_table,
    percent,
    small,
    unicity_table,
)
from ppmtf_jax.evaluation.results import REAL, SYNTHETIC, TRAINING
from ppmtf_jax.privacy.limits import (
    COPIED,
    FINDING_LIMITS,
    FOUND,
    INFERRED,
    SURE,
    Judgement,
    Limit,
    grade,
    rule,
    sureness,
    worst,
)
from ppmtf_jax.privacy.plausible_deniability import PrivacyTestSettings
from ppmtf_jax.privacy.verdicts import Verdicts
from ppmtf_jax.settings import parse_choice

SEED = 0
MAX_PLOTTED_K = 200
"""The range of Fig. 16 of Murakami et al. 2021."""
TESTED, FAIR_SAMPLE = "Was every trace tested before its release?", "Are enough traces left after the test?"
TESTED_RULE = (
    "Suppose that somebody knows the model, sees one trace alone, and held all users equally probable beforehand. "
    "With k and eta, this person can be at most 1 / (1 + (k - 1) / e^eta) sure from whom the trace was made. Good: "
    f"every trace of this report passed the test, and this number is at most {percent(SURE.good)}. Fair: it is at "
    f"most {percent(SURE.fair)}, or there is noise on k; with noise, k is the number that 19 of 20 traces had to "
    "reach. Poor: it is more, some traces did not pass, or there was no test. Not known: the test sets no such bound. "
    "If every trace of a model passes by construction, the light is about the model, and says nothing about these "
    "traces."
)
SAMPLE_RULE = (
    f"Good: at least {percent(ENOUGH_PASSED)} of the traces passed; fair: at least {percent(FEW_PASSED)}; poor: fewer. "
    "A trace passes only if it resembles those of many people, so a few such traces are not representative."
)
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
FOUND_QUESTION = "Can somebody find a person who was in the data?"
COPIES_QUESTION = "Are real traces copied?"
GUESS_QUESTION = "Can more be guessed about people whose data was used?"
IF_FOUND = (
    "Do not release these traces if it is a secret whose data was used. A larger k, a system that smooths more, or "
    "differential privacy protects better."
)
IF_GUESSED = "Do not release these traces: they complete what somebody knows of a person."


# Could it have been somebody else?


@section(
    "deniability",
    PRIVACY,
    "Could it have been somebody else?",
    "Before a trace is released, a test checks whether other people's data could also have led to it.",
)
def deniability(data: ReportData) -> list[Block]:
    """Share of the traces that pass for each k, and whether all traces of the report passed."""
    verdicts = data.verdicts
    if data.guarantee:
        raise Unavailable("No trace was made from one person, so there is nothing to test: see the guarantee.")
    if verdicts is None:
        answer = "No privacy test is known."
        text = "The folder has no verdicts of a privacy test, so it is not known whether any trace is deniable."
        tested = Finding(TESTED, Status.POOR, answer, TESTED_RULE)
        return [tested, Finding(FAIR_SAMPLE, Status.UNKNOWN, answer, SAMPLE_RULE), Text((text,))]
    share = float(verdicts.passed.mean())
    rows = [
        ["Traces tested", f"{len(verdicts.passed):,}"],
        ["Traces that passed", f"{int(verdicts.passed.sum()):,} ({percent(share, 1)})"],
    ]
    if isinstance(verdicts.settings, PrivacyTestSettings):
        compared = "Verifiers: people with whom the person of each trace was compared"
        rows.append([compared, f"{verdicts.n_verifiers:,}"])
    return [
        tested_finding(data, verdicts),
        _sample_finding(share, verdicts),
        Text((verdicts.words.mechanism,)),
        *if_available(lambda: [_curve(verdicts)]),
        Table("Outcome of the test", ("What", "Number"), rows),
    ]


def _curve(verdicts: Verdicts) -> Picture:
    settings = verdicts.settings
    if verdicts.has_noise and not settings.count_all:
        raise Unavailable("No curve: with noise, counting stopped at a different k for each trace (see count_all).")
    last = int(min(max(MAX_PLOTTED_K, settings.k), verdicts.counted_to))
    if last < 2:
        raise Unavailable("No curve: counting stopped at k = 1; more is known with count_all.")
    figure = pass_rate_curves({verdicts.facts()["settings"]: verdicts.pass_rates(np.arange(1, last + 1))})
    figure.axes[0].axvline(settings.k, color="#333333", linewidth=1, linestyle="--")
    counted = "" if np.isinf(verdicts.counted_to) else f" Counting stopped at k = {last}; more is known with count_all."
    return Picture(
        figure,
        f"A falling curve: the share of the traces that pass for each k up to {last}.",
        f"The share of the traces that would pass with another k. The dashed line is the k of the test.{counted}",
    )


def tested_finding(data: ReportData, verdicts: Verdicts) -> Finding:
    """Whether all traces of the report passed a test that protects."""
    status, answer = _tested(data, verdicts)
    return Finding(TESTED, status, answer, TESTED_RULE)


def _tested(data: ReportData, verdicts: Verdicts) -> tuple[Status, str]:
    if not (data.is_release or verdicts.passed.all()):
        n_failed = int((~verdicts.passed).sum())
        return Status.POOR, f"No: {n_failed:,} of these traces did not pass. Do not hand out these traces as they are."
    if not isinstance(verdicts.settings, PrivacyTestSettings):
        return Status.UNKNOWN, f"Yes. But the test sets no bound: {verdicts.words.not_protected[0]}"
    settings = verdicts.settings
    if settings.k == 1 and not verdicts.has_noise:
        return Status.POOR, "With k = 1 the test lets every trace pass, and says nothing."
    if settings.noise_epsilon is not None:
        # The number of people that 19 of 20 passed traces had to reach at least, with the noise on k.
        asked = np.maximum(verdicts.threshold[verdicts.passed], 1)
        least = int(np.quantile(asked, 0.05, method="lower")) if len(asked) else 1
        status = grade(SURE, sureness(least, settings.eta))
        people = "1 person" if least == 1 else f"{least:,} people"
        return Status.FAIR if status is Status.GOOD else status, (
            f"With noise on k = {settings.k}, one in twenty of the traces that passed had to reach no more than "
            f"{people}."
        )
    sure = sureness(settings.k, settings.eta)
    answer = (
        f"Yes: at least {settings.k} people could have led to each trace, with probabilities within a factor of "
        f"{_factor(settings)}. Nobody can be more than {at_most(sure)} sure from whom it was made. "
        f"{verdicts.by_construction}"
    )
    return grade(SURE, sure), answer.rstrip()


def _factor(settings: PrivacyTestSettings) -> str:
    """The factor e^eta, in digits that can be read."""
    return f"{math.exp(settings.eta):.3g}" if settings.eta < 100 else f"e^{settings.eta:g}"


def _sample_finding(share: float, verdicts: Verdicts) -> Finding:
    if verdicts.settings.k == 1 and not verdicts.has_noise:
        answer = "With k = 1 all traces pass; with a larger k, few may pass."
        return Finding(FAIR_SAMPLE, Status.UNKNOWN, answer, SAMPLE_RULE)
    status = Status.GOOD if share >= ENOUGH_PASSED else Status.FAIR if share >= FEW_PASSED else Status.POOR
    answer = f"{percent(share)} of the traces passed."
    if status is Status.POOR:
        answer += (
            " They are not representative of people: only traces that resemble many people pass. More traces pass with "
            "a system that smooths more, such as bridge."
        )
    return Finding(FAIR_SAMPLE, status, answer, SAMPLE_RULE)


# Can a person be found?


@section(
    "found",
    PRIVACY,
    "Can a person be found?",
    "The worst case: somebody knows the real traces of many people and gets the synthetic ones. Whose traces are "
    "these, and whose data was used at all? That somebody is in the data of a clinic, for example, can itself be a "
    "secret, which the test above does not protect.",
    question=FOUND_QUESTION,
    needs_shadows=True,
)
def found(data: ReportData) -> list[Block]:
    """One light for the strongest of all attacks, and the attacks in two tables, each with the strongest first."""
    traced, why_not, refused_traces = data.traced or traced_back(data)
    scores_of, refused = _members(data)
    n_attacks = N_MEMBERSHIP + 2 * len(traced)
    summaries = {title: scores.summary(seed=SEED, n_attacks=n_attacks) for title, scores in scores_of.items()}
    judged = {title: each.judgements() for title, each in summaries.items()}
    for attack in traced:
        for which, linkage in (("traces one by one", attack.each), ("all traces of a person", attack.combined)):
            judged[f"{attack.title}, {which}"] = linkage.judgements()
    if not judged:
        raise Unavailable(f"No attack suits these data. {_refused_note(refused)} {why_not}")
    left_out = [] if SHADOWS in scores_of else ["by shadow models, the strongest"]
    # Traces of nobody are not from any one person.
    if not (traced or data.guarantee):
        left_out.append("on identity")
    blocks: list[Block] = [strongest_finding(judged, left_out)]
    if traced:
        blocks += [identity_table(traced), _traced_curves(traced)]
    if scores_of:
        curves = {title: scores.roc for title, scores in scores_of.items()}
        picture = Picture(
            roc_curves(curves, title="Membership inference", logarithmic=True),
            "Curves of the share of training users found against the share of false alarms, for each attack.",
            "Vertical: the share of training users whom an attacker finds. Horizontal: the share of other users who "
            "are accused wrongly. The left side matters most: it shows people who are found with hardly any false "
            "alarms.",
        )
        blocks += [membership_table(summaries), picture]
    notes = (data.attacked[3], why_not, _refused_note(refused_traces | refused), _shadows_note(data))
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
    most, decisive = of[0], of[0] if of[0].status is status else worst(of)
    said = f"The strongest attack ({small(name)}) "
    if math.isfinite(most.value):
        people, low, high, guess = (f"{1000 * each:,.0f}" for each in (most.value, most.low, most.high, most.guess))
        right = 100 * most.value / (most.value + FOUND.guess)
        said += (
            f"finds {people} of 1,000 people (95\u00a0%: {low} to {high}; a guess: {guess}); {right:.0f} of 100 "
            "accusations are right."
        )
    else:
        said += "could not be measured."
    if decisive is not most or status is Status.UNKNOWN:
        said += f" {decisive.text}"
    elif status is Status.POOR and most.low <= most.guess:
        said += " The area under its curve shows that there is a leak."
    more = f" {IF_FOUND}" if status is Status.POOR else ""
    if left_out and status is Status.GOOD:
        status, more = Status.FAIR, f" Attacks were left out: {', and '.join(left_out)}."
    return Finding(FOUND_QUESTION, status, f"{said}{more}", rule(FINDING_LIMITS))


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
    return Picture(
        roc_curves(curves, title="Re-identification", logarithmic=True),
        "Curves of the share of own traces found against the share of false alarms, for each attack, beside a guess.",
        "Vertical: the share of traces that an attacker links to the right person. Horizontal: the share of false "
        "alarms. Near the dotted curve, the attacker is no better than a guess. A star marks attacks on all traces of "
        "a person together.",
    )


def _members(data: ReportData) -> tuple[dict[str, MembershipScores], dict[str, InputError]]:
    """The scores of the attacks on membership, the strongest first, and attacks that were refused."""
    released, train, test, _ = data.attacked
    scores: dict[str, MembershipScores] = {}
    refused: dict[str, InputError] = {}
    for name, title in ATTACKS.items():
        entry, settings = parse_choice(name, MEMBERSHIP_ATTACKS)
        try:
            scores[title] = infer_membership(released, train, test, entry.name, settings, seed=SEED)
        except InputError as error:
            refused[title] = error
    shadows = {SHADOWS: data.shadow_scores, OF_RELEASE: data.release_scores}
    scores |= {title: each for title, each in shadows.items() if each is not None}
    return dict(sorted(scores.items(), key=lambda each: -each[1].roc.auc)), refused


def _refused_note(refused: Mapping[str, InputError]) -> str:
    """A sentence that names the attacks that do not suit the data, by title, with the reasons; "" if there are none."""
    listed = "; ".join(f"{title}: it needs {needed(error)}" for title, error in refused.items())
    return f"Left out, because they do not suit these data. {listed}." if listed else ""


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


# Are traces copies, and what can be guessed?


def _worst_finding(
    question: str, judged: Mapping[str, Judgement], limit: Limit, if_poor: str, found_by: str = ""
) -> Finding:
    """The finding of the worst judgement, with a sentence on what was `found_by` it, which may name it: {}."""
    decisive = worst(list(judged.values()))
    name = next(name for name, each in judged.items() if each is decisive)
    advice = f" {if_poor}" if decisive.status is Status.POOR else ""
    answer = f"{decisive.text} {found_by.format(small(name))}{advice}"
    return Finding(question, decisive.status, answer, rule([limit]))


@section(
    "copies",
    PRIVACY,
    "Are traces copies?",
    "A synthetic trace that repeats a long piece of a real trace reveals that piece.",
    question=COPIES_QUESTION,
)
def copies(data: ReportData) -> list[Block]:
    """What training users and test users find of their traces in synthetic traces, and unicity."""
    check = check_copies(data.synthetic, data.train, data.test, seed=SEED)
    shared = {TRAINING: check.training, REAL: check.test}
    n_points = np.arange(1, len(check.unicity) + 1)

    def draw_unicity(ax: Axes) -> None:
        draw_lines(ax, n_points, {TRAINING: 100 * check.training_unicity, SYNTHETIC: 100 * check.unicity}, marker="o")
        ax.set(ylim=(0, 101), xlabel="known points", ylabel="people identified, percent", xticks=n_points)

    draws = [partial(draw_cumulative, samples=shared, label="found in one synthetic trace, nats"), draw_unicity]
    picture = Picture(
        panels(draws, size=(3.4, 2.7), room=(0.0, 0.4), legend=LOWER),
        "Curves of what people find of their traces, and of the share of people identified by a number of known "
        "points.",
        "Left: how much of a person's trace is in one synthetic trace, weighed by how unusual it is. People whose data "
        "was not used (real) find something too, by chance; the curve of the training users should not lie to the "
        "right of their curve. Right: the share of people whom a number of known places and times tells from all "
        "others. For real traces, this is why leaving out names does not protect people; for synthetic traces, it is "
        "neither good nor bad.",
    )
    unicity = {"Synthetic": check.unicity, "Real, training users": check.training_unicity}
    return [finding_of_copies(check), copies_table(check), picture, unicity_table(unicity, check.crowd)]


def finding_of_copies(check: CopyCheck) -> Finding:
    """The light of copies, and of how many people copies would be noticed."""
    also = " as well" if check.n_copied else ""
    if check.n_copied > 1:
        noticed = "More people may be copied."
    elif check.noticed_share < 1:
        share = percent(check.noticed_share)
        noticed = f"If whole traces of {share} of the people were copied{also}, it would be noticed."
    else:
        noticed = f"Even whole traces of a tenth of the people could be copied{also} without being noticed."
    return _worst_finding(COPIES_QUESTION, {"": check.judgement()}, COPIED, "Do not release these traces.", noticed)


@section(
    "inference",
    PRIVACY,
    "What can be guessed about a person?",
    "Somebody knows the later half of a person's day and looks up the nearest synthetic trace, to guess the earlier "
    "half. About people whose data was not used, such a guess is right now and then, too.",
    question=GUESS_QUESTION,
)
def inference(data: ReportData) -> list[Block]:
    """The shares of right guesses about training users and about test users."""
    guessed = infer(data.synthetic, data.train, data.test, seed=SEED)
    judged, rows = {GUESSES[name]: each.judgement() for name, each in guessed.items()}, []
    for each, (title, light) in zip(guessed.values(), judged.items(), strict=True):
        known = [percent(share.mean(), 1) if len(share) else "-" for share in (each.training, each.test)]
        ends = f"{100 * light.low:.1f} to {100 * light.high:.1f}"
        rows.append([title, f"{len(each.training):,}", *known, ends, light.status])
    caption = (
        "Guesses from the nearest synthetic trace that are right, for training users and for people whose data was not "
        "used (test users), and the 95 % interval of the difference in percentage points"
    )
    headings = ("What is guessed", "Training users", "Right", "Right, test users", "Difference", "Light")
    finding = _worst_finding(GUESS_QUESTION, judged, INFERRED, IF_GUESSED, "What was guessed: {}.")
    return [finding, Table(caption, headings, rows)]
