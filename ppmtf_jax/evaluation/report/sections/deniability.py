"""The plausible-deniability test: how many traces could as well have been made from other people."""

from __future__ import annotations

import math

import numpy as np

from ppmtf_jax.data.description import at_most
from ppmtf_jax.evaluation.judgement import ENOUGH_PASSED, FEW_PASSED
from ppmtf_jax.evaluation.plots import pass_rate_curves
from ppmtf_jax.evaluation.report.blocks import Block, Finding, Picture, Status, Table, Text, percent
from ppmtf_jax.evaluation.report.inputs import ReportData, Unavailable, if_available
from ppmtf_jax.evaluation.report.registry import PRIVACY, section
from ppmtf_jax.privacy.limits import SURE, grade, sureness
from ppmtf_jax.privacy.plausible_deniability import PrivacyTestSettings
from ppmtf_jax.privacy.verdicts import Verdicts

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


@section(
    "deniability",
    PRIVACY,
    "Could it have been somebody else?",
    "Before a trace is released, a test checks whether other people's data could also have led to it.",
)
def make(data: ReportData) -> list[Block]:
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
    table = Table("Outcome of the test", ("What", "Number"), rows)
    findings, text = (
        (tested_finding(data, verdicts), _sample_finding(share, verdicts)),
        verdicts.words.mechanism,
    )
    return [*findings, Text((text,)), *if_available(lambda: [_curve(verdicts)]), table]


def _curve(verdicts: Verdicts) -> Picture:
    settings = verdicts.settings
    if verdicts.has_noise and not settings.count_all:
        raise Unavailable("No curve: with noise, counting stopped at a different k for each trace (see count_all).")
    last = int(min(max(MAX_PLOTTED_K, settings.k), verdicts.counted_to))
    if last < 2:
        raise Unavailable("No curve: counting stopped at k = 1; more is known with count_all.")
    rates = verdicts.pass_rates(np.arange(1, last + 1))
    figure = pass_rate_curves({verdicts.facts()["settings"]: rates})
    figure.axes[0].axvline(settings.k, color="#333333", linewidth=1, linestyle="--")
    alt = f"A falling curve: the share of the traces that pass for each k up to {last}."
    counted = "" if np.isinf(verdicts.counted_to) else f" Counting stopped at k = {last}; more is known with count_all."
    return Picture(
        figure,
        alt,
        f"The share of the traces that would pass with another k. The dashed line is the k of the test.{counted}",
    )


def tested_finding(data: ReportData, verdicts: Verdicts) -> Finding:
    """Whether all traces of the report passed a test that protects."""
    if not (data.is_release or verdicts.passed.all()):
        n_failed = int((~verdicts.passed).sum())
        answer = f"No: {n_failed:,} of these traces did not pass. Do not hand out these traces as they are."
        return Finding(TESTED, Status.POOR, answer, TESTED_RULE)
    if not isinstance(verdicts.settings, PrivacyTestSettings):
        answer = f"Yes. But the test sets no bound: {verdicts.words.not_protected[0]}"
        return Finding(TESTED, Status.UNKNOWN, answer, TESTED_RULE)
    settings = verdicts.settings
    if settings.k == 1 and not verdicts.has_noise:
        return Finding(TESTED, Status.POOR, "With k = 1 the test lets every trace pass, and says nothing.", TESTED_RULE)
    sure = sureness(settings.k, settings.eta)
    status = grade(SURE, sure)
    answer = (
        f"Yes: at least {settings.k} people could have led to each trace, with probabilities within a factor of "
        f"{factor_text(settings)}. Nobody can be more than {at_most(sure)} sure from whom it was made. "
        f"{verdicts.by_construction}"
    ).rstrip()
    if settings.noise_epsilon is not None:
        # The number of people that 19 of 20 passed traces had to reach at least, with the noise on k.
        asked = np.maximum(verdicts.threshold[verdicts.passed], 1)
        least = int(np.quantile(asked, 0.05, method="lower")) if len(asked) else 1
        status = grade(SURE, sureness(least, settings.eta))
        status = Status.FAIR if status is Status.GOOD else status
        answer = (
            f"With noise on k = {settings.k}, one in twenty of the traces that passed had to reach no more than "
            f"{'1 person' if least == 1 else f'{least:,} people'}."
        )
    return Finding(TESTED, status, answer, TESTED_RULE)


def factor_text(settings: PrivacyTestSettings) -> str:
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
