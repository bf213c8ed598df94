"""The verdict: for which uses traces are fit, at what risk, and what would serve better."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ppmtf_jax.evaluation.judgement import ENOUGH_PASSED, YARDSTICKS, Fitness, Judged, JudgedUse, judge_uses, loss
from ppmtf_jax.evaluation.report.blocks import Block, Details, Section, Table, Text, Verdict, percent
from ppmtf_jax.evaluation.report.gauges import UTILITY_RULE
from ppmtf_jax.evaluation.report.inputs import ReportData
from ppmtf_jax.evaluation.results import RESERVED, Row
from ppmtf_jax.privacy.verdicts import Verdicts

ATTACKS = ("found", "copies", "inference")
"""The sections whose findings are the risk."""
N_RISKS = 3
BETTER = "Would something else serve better?"
ORDER = (Fitness.FIT, Fitness.WITH_CARE, Fitness.NOT_FIT)
COLUMN_TITLES = {"released": "the released traces", "all": "all traces, tested or not"}


def compose_verdict(data: ReportData, sections: Sequence[Section]) -> Verdict:
    """Judge the uses of synthetic traces; the findings of `sections` are the risk."""
    evaluation = data.evaluation
    # The columns of synthetic traces; the column of the report comes first.
    columns = [data.column, *(each for each in evaluation.columns if each not in (*RESERVED, data.column))]
    judged = {each: judge_uses(evaluation.rows, each, data.chance) for each in columns}
    uses = judged[data.column]
    blocks = [
        Text(tuple(each for each in (data.guarantee, _in_a_sentence(uses)) if each)),
        _uses_table(data, uses),
        _risk_table(sections),
        *_better_systems(data, judged),
        *([] if data.guarantee else [Text((_better_k(data),))]),
    ]
    if len(judged) > 1:
        blocks.append(_systems_table(data, judged))
    numbers = Details("The numbers behind this verdict", (_numbers_table(data, uses),))
    rule = Details("The rule, and the yardsticks", (Text((UTILITY_RULE,)), _yardsticks()))
    return Verdict(uses, [*blocks, numbers, rule])


def _in_a_sentence(uses: Sequence[JudgedUse]) -> str:
    words = {
        Fitness.FIT: "These traces are fit for",
        Fitness.WITH_CARE: "Use these traces with care for",
        Fitness.NOT_FIT: "Do not use these traces for",
        Fitness.NOT_KNOWN: "It is not known whether these traces are fit for",
    }
    titles = {each: [_small(use.use.title) for use in uses if use.fitness is each] for each in words}
    said = [f"{begin} {'; '.join(titles[each])}." for each, begin in words.items() if titles[each]]
    return " ".join(said)


def _small(title: str) -> str:
    return title[:1].lower() + title[1:]


def _uses_table(data: ReportData, uses: Sequence[JudgedUse]) -> Table:
    rows = [(each.use.title, each.fitness, _why(data, each), _advice(each)) for each in uses]
    headings = ("Use", "Verdict", "Why", "In practice")
    return Table("For which uses these traces are fit", headings, rows, n_words=len(headings))


def _why(data: ReportData, use: JudgedUse) -> str:
    """The number that decides and the number of real people, in words."""
    if not use.numbers:
        return "Not measured: the evaluation has no number for this use."
    row, judged = use.numbers[0]
    if judged.fitness is Fitness.NOT_KNOWN:
        return f"Not measured. {row.quantity.title}: {_small(judged.reason.rstrip('.'))}."
    value, real = _printed(data, row, judged)
    how = "Far worse than real people"
    if judged.reason:
        how = judged.reason.rstrip(".")
    elif judged.error == 0:
        how = "As good as real people, within what chance explains"
    elif judged.fitness is Fitness.FIT:
        how = "Worse than real people by so little that it hardly matters"
    elif judged.fitness is Fitness.WITH_CARE:
        how = "Worse than real people by more than chance explains"
    n = sum(math.isfinite(each.error) for _, each in use.numbers)
    of_several = f" It is the worst of {n} numbers." if n > 1 else ""
    of_several += f" Not known: {len(use.numbers) - n} more." if n < len(use.numbers) else ""
    return f"{row.quantity.title}: {value}; real people: {real}. {how}.{of_several}"


def _advice(use: JudgedUse) -> str:
    return {
        Fitness.FIT: use.use.examples,
        Fitness.WITH_CARE: f"{use.use.examples} Check an answer before you rely on it.",
        Fitness.NOT_FIT: use.use.otherwise,
        Fitness.NOT_KNOWN: "Do not rely on it.",
    }[use.fitness]


def _printed(data: ReportData, row: Row, judged: Judged) -> tuple[str, str]:
    """The number of the synthetic traces, and the number of real people ± what chance explains, as text."""
    value = row.numbers[data.column]
    chance = f" ± {row.quantity.text(judged.noise)}" if judged.noise > 0 else ""
    return row.quantity.text(value), row.quantity.text(judged.real) + chance


def _risk_table(sections: Sequence[Section]) -> Block:
    found = [finding for each in sections if each.name in ATTACKS for finding in each.findings]
    rows = [(finding.question, finding.status, finding.answer) for finding in found]
    if not rows:
        return Text(("At what risk: no attack was made.",))
    headings = ("Question", "Light", "What the strongest attack found")
    return Table("At what risk", headings, rows, n_words=len(headings))


def _better_systems(data: ReportData, judged: Mapping[str, Sequence[JudgedUse]]) -> list[Block]:
    """For each use, the best compared system, if it is better than these traces and enough of its traces passed."""
    # The column of all traces is not another system, and it has traces that failed the privacy test.
    own, *others = [each for each in judged if each == data.column or each not in COLUMN_TITLES]
    if not others:
        way_out = "`[[compare]]` in a job, or `ppmtf compare`, compares systems."
        return [Text((f"{BETTER} No other system was compared. {way_out}",))]
    kept = [each for each in others if data.shares_passed.get(each, 1.0) >= ENOUGH_PASSED]
    found = []
    for use, *of_others in zip(judged[own], *(judged[each] for each in kept), strict=True):
        better = [each for each in zip(kept, of_others, strict=True) if _serves_better(data, use, *each)]
        if better:
            name, best = min(better, key=lambda each: each[1].numbers[0][1].error)
            row, number = use.numbers[0]
            here, there = (row.quantity.text(row.numbers[each]) for each in (own, name))
            found.append(
                f"{use.use.title}: {name} ({best.fitness.word.lower()}). {row.quantity.title}: {there}; these traces: "
                f"{here}; real people: {row.quantity.text(number.real)}."
            )
    if not found:
        return [Text((f"{BETTER} Of the compared systems with enough passed traces, none would serve a use better.",))]
    lead = f"{BETTER} These compared systems would. Look at their attacks in the table before you choose."
    return [Text((lead,)), Text(tuple(found), is_list=True)]


def _serves_better(data: ReportData, own: JudgedUse, name: str, other: JudgedUse) -> bool:
    """Whether another system has a better verdict, all numbers that these traces have, and a gain beyond chance."""
    known = own.fitness in ORDER and other.fitness in ORDER
    if not known or ORDER.index(other.fitness) >= ORDER.index(own.fitness):
        return False
    errors = {row.quantity.name: judged.error for row, judged in other.numbers}
    if any(math.isfinite(judged.error) and math.isnan(errors[row.quantity.name]) for row, judged in own.numbers):
        return False
    row, judged = own.numbers[0]
    losses = (loss(row.quantity, row.numbers[each]) for each in (data.column, name))
    return next(losses) - next(losses) > judged.noise


def _better_k(data: ReportData) -> str:
    """Whether most traces would pass with a larger k, or need a smaller one."""
    verdicts = data.verdicts
    if verdicts is None:
        return "No privacy test is known, so nothing is known about its k."
    k, largest = verdicts.settings.k, largest_k(verdicts)
    if largest is None:
        return f"Whether another k than {k} would do is not known: k is noisy, or counting stopped (see `count_all`)."
    share = percent(ENOUGH_PASSED)
    if largest > k:
        return f"With a k of up to {largest:,} in place of {k}, {share} of the traces still pass, protected better."
    if largest == k:
        return f"A k of {k} is the largest with which {share} of the traces pass."
    if largest == 0:
        return f"There is no k with which {share} of the traces pass."
    return f"With a k of {largest:,} in place of {k}, {share} of the traces would pass, but protected less."


def largest_k(verdicts: Verdicts) -> int | None:
    """The largest k with which enough traces pass, at the settings of the test; None if that is not known."""
    if verdicts.has_noise:
        return None
    known = verdicts.counted_to
    last = int(min(known, verdicts.plausible_users.max(initial=1)))
    enough = np.flatnonzero(verdicts.pass_rates(np.arange(1, last + 1)) >= ENOUGH_PASSED)
    largest = int(enough[-1]) + 1 if len(enough) else 0
    # Where counting stopped at a k, more traces may pass with a larger k.
    return None if largest >= known else largest


def _systems_table(data: ReportData, judged: Mapping[str, Sequence[JudgedUse]]) -> Table:
    risks = [row for row in data.evaluation.rows if row.kind == "privacy" and row.quantity.better][-N_RISKS:]
    rows = []
    for column, uses in judged.items():
        counts = [str(sum(each.fitness is fitness for each in uses)) for fitness in ORDER]
        numbers = [row.quantity.text(row.numbers[column]) for row in risks]
        passed = data.shares_passed.get(column, math.nan)
        share = [percent(passed) if math.isfinite(passed) else "-"]
        rows.append([COLUMN_TITLES.get(column, column), *share, *counts, *numbers])
    uses = [f"Uses: {each.word.lower()}" for each in ORDER]
    headings = ("Traces", "Passed the test", *uses, *(row.quantity.title for row in risks))
    return Table("What was compared: number of uses, and attacks (lower is better)", headings, rows)


def _numbers_table(data: ReportData, uses: Sequence[JudgedUse]) -> Table:
    rows = []
    for use in uses:
        for row, judged in use.numbers:
            value, real = _printed(data, row, judged)
            error = percent(judged.error) if math.isfinite(judged.error) else "-"
            cells = (value, real, row.quantity.text(judged.uniform), error)
            rows.append((use.use.title, row.quantity.title, judged.fitness, judged.reason, *cells))
    caption = "All numbers of the uses. Error: difference from real people beyond chance, as a share of the yardstick"
    headings = ("Use", "Number", "Verdict", "Remark", "Synthetic", "Real ± chance", "Random", "Error")
    return Table(caption, headings, rows, n_words=4)


def _yardsticks() -> Table:
    rows = [
        (each.what, "random places" if math.isinf(each.length) else f"{each.length:g}", each.reason)
        for each in YARDSTICKS.values()
    ]
    return Table("Yardsticks", ("Numbers", "Yardstick", "Reason"), rows, n_words=3)
