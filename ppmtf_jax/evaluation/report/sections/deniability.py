"""How many traces could as well have been made from others: the plausible-deniability test."""

from __future__ import annotations

import math

import numpy as np

from ppmtf_jax.evaluation.plots import pass_rate_curves
from ppmtf_jax.evaluation.report.content import Block, Content, Light, Picture, Status, Table, Text, percent
from ppmtf_jax.evaluation.report.material import Material, Unavailable
from ppmtf_jax.evaluation.report.registry import PRIVACY, SECTIONS, SectionMaker
from ppmtf_jax.privacy.limits import SURE, grade, sureness
from ppmtf_jax.privacy.plausible_deniability import PlausibleDeniability, PrivacyTestSettings

MAX_PLOTTED_K = 200
"""As far as Fig. 16 of Murakami et al. 2021 goes."""
FAIR_SHARE, FEW = 0.75, 0.25
TESTED, FAIR_SAMPLE = "Was every trace tested before it leaves?", "Are enough traces left after the test?"
TESTED_RULE = (
    "Suppose that somebody knows the model, sees one trace alone, and held all users equally probable beforehand. With "
    "k and eta, this person can be sure from whom the trace was made by 1 / (1 + (k - 1) / e^eta) at most. Good: every "
    f"trace of this report passed the test, and this number is at most {percent(SURE.good)}. Fair: it is at most "
    f"{percent(SURE.fair)}, or there is noise on k; then k is the number that 19 of 20 traces had to reach. Poor: it "
    "is more, some traces did not pass, or there was no test."
)
SAMPLE_RULE = (
    f"Good: at least {percent(FAIR_SHARE)} of the traces passed; fair: at least {percent(FEW)}; poor: fewer. A trace "
    "passes only if it is not special to one person, so a few such traces are not a fair sample of people."
)


def make(material: Material) -> Content:
    """Share of the traces that pass for each k, and whether those of the report did."""
    verdicts = material.verdicts
    if verdicts is None:
        answer = "No privacy test is known."
        unknown = Light(FAIR_SAMPLE, Status.UNKNOWN, answer, SAMPLE_RULE)
        text = "The folder has no verdicts of a privacy test, so it is not known whether any trace is deniable."
        return Content([Text((text,))], [Light(TESTED, Status.POOR, answer, TESTED_RULE), unknown])
    settings, share = verdicts.settings, float(verdicts.passed.mean())
    factor, noise = factor_text(settings), "" if settings.noise_epsilon is None else ", and a number drawn at random,"
    blocks: list[Block] = [
        Text(
            (
                f"A trace passes if at least k = {settings.k} people{noise} of the training data, the one it was made "
                f"from among them, could have led to it with probabilities within a factor of e^eta = {factor} "
                f"(eta = {settings.eta:g}). So for a person who sees this trace and nothing else, none of these "
                f"people is more than {factor} times as plausible as another.",
            )
        )
    ]
    try:
        blocks.append(_curve(verdicts))
    except Unavailable as reason:
        blocks.append(Text((str(reason),)))
    rows = [
        ["Traces tested", f"{len(verdicts.passed):,}"],
        ["passed", f"{int(verdicts.passed.sum()):,} ({percent(share, 1)})"],
        ["People asked for each trace, beside the one it was made from", f"{verdicts.n_verifiers:,}"],
    ]
    blocks.append(Table("Outcome of the test", ("What", "Number"), rows))
    return Content(blocks, [_light(material, verdicts), _light_of_sample(share, settings)])


def _curve(verdicts: PlausibleDeniability) -> Picture:
    settings = verdicts.settings
    if settings.noise_epsilon is not None and not settings.count_all:
        raise Unavailable("No curve: with noise on k, counting stopped at another k for each trace (see count_all).")
    last = int(min(max(MAX_PLOTTED_K, settings.k), verdicts.counted_to))
    if last < 2:
        raise Unavailable("No curve: counting stopped at k = 1; more is known with count_all.")
    rates = verdicts.pass_rates(np.arange(1, last + 1))
    figure = pass_rate_curves({f"eta = {settings.eta:g}": rates})
    figure.axes[0].axvline(settings.k, color="#333333", linewidth=1, linestyle="--")
    alt = f"A falling curve: the share of the traces that pass for each k up to {last}."
    counted = "" if np.isinf(verdicts.counted_to) else f" Counting stopped at k = {last}; more is known with count_all."
    return Picture(
        figure,
        alt,
        "How many traces would pass if more, or fewer, people had to be plausible. The dashed line is the k of the "
        f"test.{counted}",
    )


def _light(material: Material, verdicts: PlausibleDeniability) -> Light:
    settings = verdicts.settings
    if not (material.is_release or verdicts.passed.all()):
        n_failed = int((~verdicts.passed).sum())
        answer = f"No: {n_failed:,} of these traces did not pass. Do not hand out these traces as they are."
        return Light(TESTED, Status.POOR, answer, TESTED_RULE)
    if settings.k == 1 and settings.noise_epsilon is None:
        return Light(TESTED, Status.POOR, "With k = 1 the test lets every trace pass, and says nothing.", TESTED_RULE)
    sure = sureness(settings.k, settings.eta)
    status = grade(SURE, sure)
    answer = (
        f"Yes: at least {settings.k} people could have led to each trace, with probabilities within a factor of "
        f"{factor_text(settings)}. Nobody can be more than {percent(sure)} sure from whom it was made."
    )
    if settings.noise_epsilon is not None:
        least = _least_with_noise(verdicts)
        status = grade(SURE, sureness(least, settings.eta))
        status = Status.FAIR if status is Status.GOOD else status
        answer = (
            f"With noise on k = {settings.k}, one in twenty of those that passed had to reach no more than "
            f"{'1 person' if least == 1 else f'{least:,} people'}."
        )
    return Light(TESTED, status, answer, TESTED_RULE)


def _least_with_noise(verdicts: PlausibleDeniability) -> int:
    """How many plausible people 19 of 20 of the traces that passed had to reach at least."""
    asked = np.maximum(verdicts.threshold[verdicts.passed], 1)
    return int(np.quantile(asked, 0.05, method="lower")) if len(asked) else 1


def factor_text(settings: PrivacyTestSettings) -> str:
    """The factor e^eta, in digits that can be read."""
    return f"{math.exp(settings.eta):.3g}" if settings.eta < 100 else f"e^{settings.eta:g}"


def _light_of_sample(share: float, settings: PrivacyTestSettings) -> Light:
    if settings.k == 1 and settings.noise_epsilon is None:
        answer = "With k = 1 all traces pass; with a k that protects, few may pass."
        return Light(FAIR_SAMPLE, Status.UNKNOWN, answer, SAMPLE_RULE)
    status = Status.GOOD if share >= FAIR_SHARE else Status.FAIR if share >= FEW else Status.POOR
    answer = f"{percent(share)} of the traces passed."
    if status is Status.POOR:
        answer += " They are not a fair sample of people. More pass with a system that smooths more, such as bridge."
    return Light(FAIR_SAMPLE, status, answer, SAMPLE_RULE)


SECTIONS.register(
    SectionMaker(
        "deniability",
        PRIVACY,
        "Could it have been somebody else?",
        "Before a trace is released, a test asks whether other people could have led to it as well.",
        make,
    )
)
