"""The registry of sections, a report of them, and its verdict: for which uses traces are fit, and at what risk.

The functions of the sections are in `sections/`. A section that cannot be made gives the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np

from ppmtf_jax.data.measurement import MetricInfo
from ppmtf_jax.errors import InputError, NumericalError, Problem, raise_any
from ppmtf_jax.evaluation.judgement import (
    ENOUGH_PASSED,
    FIT,
    USES,
    WITH_CARE,
    YARDSTICKS,
    Fitness,
    Judged,
    JudgedUse,
    judge_uses,
    loss,
)
from ppmtf_jax.evaluation.report.inputs import ReportData, Unavailable, needed
from ppmtf_jax.evaluation.report.page import (
    Block,
    Details,
    Finding,
    Gauges,
    Picture,
    Report,
    Section,
    Status,
    Table,
    Text,
    Verdict,
    percent,
    small,
)
from ppmtf_jax.evaluation.results import RESERVED, sample_remark
from ppmtf_jax.privacy.verdicts import Verdicts
from ppmtf_jax.registry import Registry
from ppmtf_jax.runtime.progress import progress_bar

MADE, UTILITY, GROUPS, PRIVACY, GUARANTEE, NUMBERS = PARTS = (
    "What was made",
    "What was kept",
    "Groups of people",
    "What leaks",
    "What is guaranteed",
    "All numbers",
)
"""The parts of a page, in order."""
ATTACKS = ("found", "copies", "inference")
"""The sections whose findings are the risk of the verdict."""
LEFT_OUT = "Not known: the data do not allow an answer."
UTILITY_RULE = (
    "The error of a number is how much worse it is than that of the training users, who are real people too, beyond "
    f"the two standard errors that chance explains. Good, or fit: at most {percent(FIT)} of the yardstick; fair, or "
    f"with care: at most {percent(WITH_CARE)}; poor, or not fit: more. Where chance alone is larger, the light "
    "is fair if the traces are surely nearer than random places, otherwise not known. The yardsticks are listed in the "
    "verdict. The worst number decides; numbers with a dagger (†) do not, unless no other is known."
)
N_RISKS = 3
BETTER = "Would something else serve better?"
ORDER = (Fitness.FIT, Fitness.WITH_CARE, Fitness.NOT_FIT)
COLUMN_TITLES = {"released": "the released traces", "all": "all traces, tested or not"}

SECTIONS: Registry[Section] = Registry(
    "section of a report",
    "ppmtf_jax.evaluation.report.sections",
    first=(
        *("made", "population", "transitions", "trips", "persons", "visit-fractions", "places", "range-queries"),
        *("clusters", "deniability", "found", "copies", "inference", "statement", "numbers"),
    ),
)
"""The order of the sections within a part; other sections come last."""

MakeBlocks = Callable[[ReportData], list[Block]]


def section(name: str, part: str, title: str, lead: str, **options: Any) -> Callable[[MakeBlocks], MakeBlocks]:
    """Register a function from `ReportData` to the blocks of a section; see `Section` for the arguments.

    The `Finding` objects among the blocks go to the summary. A section with gauges but without a finding gets a finding
    from its least good gauge. If something is missing, the function raises `Unavailable` or an `InputError`. Then the
    section says what is missing, the status of its question is "not known", and the other sections are made as usual.
    """

    def register(make: MakeBlocks) -> MakeBlocks:
        SECTIONS.register(Section(name, part, title, lead, make, **options))
        return make

    return register


def compose_early(data: ReportData) -> dict[str, Section]:
    """Make the sections that need no shadow models, by name, and draw their pictures."""
    found = {each.name: compose_section(each, data) for each in SECTIONS.values() if not each.needs_shadows}
    for each in found.values():
        _draw(each.blocks)
    return found


def _draw(blocks: Sequence[Block]) -> None:
    """Draw the pictures among some blocks, which keep what was drawn."""
    for block in blocks:
        if isinstance(block, Picture):
            block.svg  # noqa: B018
        elif isinstance(block, Details):
            _draw(block.blocks)


def compose_report(
    data: ReportData,
    *,
    made: Mapping[str, Section] | None = None,
    progress: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Make every section of a report, and the verdict from what they found.

    `made`: sections that `compose_early` made. `say` receives the title of each other section before it is made.
    """
    check_names(row.quantity for row in data.evaluation.rows)
    sections = []
    with progress_bar("writing the report", len(SECTIONS), show=progress, waits_for="") as advance:
        for each in sorted(SECTIONS.values(), key=lambda each: PARTS.index(each.part)):
            found = (made or {}).get(each.name)
            if found is None:
                say(f"{each.title} ...")
                found = compose_section(each, data)
            sections.append(found)
            advance(1)
    title = "Report on synthetic traces" + (f" ({data.source})" if data.source else "")
    n, what = data.n_synthetic, "released" if data.is_release else "synthetic"
    by = f" by {data.model.system}" if data.model else ""
    train, sampled = data.whole_sets[0], data.evaluation.sampled
    subtitle = f"{data.kept} " if data.kept else ""
    subtitle += (
        f"{n:,} {what} trace{'s' * (n != 1)} made{by} from {train.n_events:,} events of {train.n_users:,} people at "
        f"{train.n_places:,} places.{f' {sample_remark(sampled)}' if sampled else ''}"
    )
    return Report(title, subtitle, sections, date.today().isoformat(), compose_verdict(data, sections))


def check_names(metrics: Iterable[MetricInfo]) -> None:
    """Refuse a section or a use that does not exist: the report would leave out the number without a word."""
    problems = []
    for each in metrics:
        if each.section:
            SECTIONS[each.section]
        way_out = f"Correct the metric {each.name}"
        for use in sorted({*each.uses} - {*USES}):
            problems.append(Problem(f"a use: one of {', '.join(USES)}", repr(use), way_out=way_out))
    raise_any("report", problems)


def compose_section(section: Section, data: ReportData) -> Section:
    """A section with its blocks and findings, or with a sentence on why it cannot be made."""
    try:
        made = section.make(data)
    except (Unavailable, InputError, NumericalError) as error:
        reason = str(error)
        if isinstance(error, InputError):
            reason = f"It needs {needed(error)}."
        elif isinstance(error, NumericalError):
            reason = "The computation did not stay within finite numbers."
        blocks: list[Block] = [Text((f"Left out. {reason}",))]
        findings = [Finding(section.question, Status.UNKNOWN, reason, LEFT_OUT)] if section.question else []
    else:
        findings = [block for block in made if isinstance(block, Finding)]
        blocks = [block for block in made if not isinstance(block, Finding)]
        gauges = [block.items for block in made if isinstance(block, Gauges)]
        if gauges and not findings:
            findings = [utility_finding(section.question, sum(gauges, ()), section.if_poor)]
    if section.part == PRIVACY and data.proof:
        # Where attacks could not answer the question, the proof does.
        proven = {"status": Status.NOT_APPLICABLE, "answer": data.proof}
        findings = [each._replace(**proven) if each.status is Status.UNKNOWN else each for each in findings]
    return section._replace(blocks=blocks, findings=findings)


def utility_finding(question: str, judged: Sequence[Judged], if_poor: str = "") -> Finding:
    """The finding of some judged numbers: the least good one of known fitness decides."""
    known = [each for each in judged if math.isfinite(each.error)]
    if not known:
        return Finding(question, Status.UNKNOWN, "No number answers this on these data.", UTILITY_RULE)
    least = max(known, key=lambda each: each.badness)
    way = "as near as real traces of other people"
    if least.reason:
        way = small(least.reason)
    elif least.error > 0:
        way = f"worse than real people, by {percent(least.error)} of the yardstick"
        if least.scale is not None:
            position = least.scale[0]
            nearer = f"{percent(position)} of the way from real traces to random places"
            way = nearer if position <= 1 else "further off than random places"
    advice = f" {if_poor}" if if_poor and least.fitness is Fitness.NOT_FIT else ""
    return Finding(question, least.fitness.status, f"{least.title}: {way}.{advice}", UTILITY_RULE)


# The verdict


def compose_verdict(data: ReportData, sections: Sequence[Section]) -> Verdict:
    """Judge the uses of synthetic traces; the findings of `sections` are the risk."""
    evaluation = data.evaluation
    # The columns of synthetic traces; the column of the report comes first.
    columns = [data.column, *(each for each in evaluation.columns if each not in (*RESERVED, data.column))]
    judged = {each: judge_uses(evaluation.rows, each, data.chance) for each in columns}
    uses = judged[data.column]
    blocks: list[Block] = [
        Text(tuple(each for each in (data.guarantee, _in_a_sentence(uses)) if each)),
        Table(
            "For which uses these traces are fit",
            ("Use", "Verdict", "Why", "In practice"),
            [(each.use.title, each.fitness, _why(each), _advice(each)) for each in uses],
            n_words=4,
        ),
        _risk_table(sections),
        *_better_systems(data, judged),
        *([] if data.guarantee else [Text((_better_k(data.verdicts),))]),
        *([_systems_table(data, judged)] if len(judged) > 1 else []),
        Details("The numbers behind this verdict", (_numbers_table(uses),)),
        Details("The rule, and the yardsticks", (Text((UTILITY_RULE,)), _yardsticks())),
    ]
    return Verdict(uses, blocks)


def _in_a_sentence(uses: Sequence[JudgedUse]) -> str:
    words = {
        Fitness.FIT: "These traces are fit for",
        Fitness.WITH_CARE: "Use these traces with care for",
        Fitness.NOT_FIT: "Do not use these traces for",
        Fitness.NOT_KNOWN: "It is not known whether these traces are fit for",
    }
    titles = {each: [small(use.use.title) for use in uses if use.fitness is each] for each in words}
    return " ".join(f"{begin} {'; '.join(titles[each])}." for each, begin in words.items() if titles[each])


def _why(use: JudgedUse) -> str:
    """The number that decides and the number of real people, in words."""
    if not use.numbers:
        return "Not measured: the evaluation has no number for this use."
    worst = use.numbers[0]
    title = worst.quantity.title
    if worst.fitness is Fitness.NOT_KNOWN:
        return f"Not measured. {title}: {small(worst.reason)}."
    real, value, _ = worst.texts.values()
    how = "Far worse than real people"
    if worst.reason:
        how = worst.reason
    elif worst.error == 0:
        how = "As good as real people, within what chance explains"
    elif worst.fitness is Fitness.FIT:
        how = "Worse than real people by so little that it hardly matters"
    elif worst.fitness is Fitness.WITH_CARE:
        how = "Worse than real people by more than chance explains"
    n = sum(math.isfinite(each.error) for each in use.numbers)
    of_several = f" It is the worst of {n} numbers." if n > 1 else ""
    of_several += f" Not known: {len(use.numbers) - n} more." if n < len(use.numbers) else ""
    return f"{title}: {value}; real people: {real}. {how}.{of_several}"


def _advice(use: JudgedUse) -> str:
    return {
        Fitness.FIT: use.use.examples,
        Fitness.WITH_CARE: f"{use.use.examples} Check an answer before you rely on it.",
        Fitness.NOT_FIT: use.use.otherwise,
        Fitness.NOT_KNOWN: "Do not rely on it.",
    }[use.fitness]


def _risk_table(sections: Sequence[Section]) -> Block:
    found = [finding for each in sections if each.name in ATTACKS for finding in each.findings]
    if not found:
        return Text(("At what risk: no attack was made.",))
    rows = [(finding.question, finding.status, finding.answer) for finding in found]
    return Table("At what risk", ("Question", "Light", "What the strongest attack found"), rows, n_words=3)


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
        better = [each for each in of_others if _serves_better(use, each)]
        if better:
            best, here = min(better, key=lambda each: each.numbers[0].error), use.numbers[0]
            quantity, name = here.quantity, best.numbers[0].column
            there, own_number = (quantity.text(here.row.numbers[each]) for each in (name, here.column))
            found.append(
                f"{use.use.title}: {name} ({best.fitness.word.lower()}). {quantity.title}: {there}; these traces: "
                f"{own_number}; real people: {quantity.text(here.real)}."
            )
    if not found:
        return [Text((f"{BETTER} Of the compared systems with enough passed traces, none would serve a use better.",))]
    lead = f"{BETTER} These compared systems would. Look at their attacks in the table before you choose."
    return [Text((lead,)), Text(tuple(found), is_list=True)]


def _serves_better(own: JudgedUse, other: JudgedUse) -> bool:
    """Whether another system has a better verdict, all numbers that these traces have, and a gain beyond chance."""
    known = own.fitness in ORDER and other.fitness in ORDER
    if not known or ORDER.index(other.fitness) >= ORDER.index(own.fitness):
        return False
    errors = {each.quantity.name: each.error for each in other.numbers}
    if any(math.isfinite(each.error) and math.isnan(errors[each.quantity.name]) for each in own.numbers):
        return False
    worst = own.numbers[0]
    here, there = (loss(worst.quantity, worst.row.numbers[each.numbers[0].column]) for each in (own, other))
    return here - there > worst.noise


def _better_k(verdicts: Verdicts | None) -> str:
    """Whether most traces would pass with a larger k, or need a smaller one."""
    if verdicts is None:
        return "No privacy test is known, so nothing is known about its k."
    k, largest, share = verdicts.settings.k, largest_k(verdicts), percent(ENOUGH_PASSED)
    if largest is None:
        return f"Whether another k than {k} would do is not known: k is noisy, or counting stopped (see `count_all`)."
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
        share = percent(passed) if math.isfinite(passed) else "-"
        rows.append([COLUMN_TITLES.get(column, column), share, *counts, *numbers])
    uses = [f"Uses: {each.word.lower()}" for each in ORDER]
    headings = ("Traces", "Passed the test", *uses, *(row.quantity.title for row in risks))
    return Table("What was compared: number of uses, and attacks (lower is better)", headings, rows)


def _numbers_table(uses: Sequence[JudgedUse]) -> Table:
    rows = []
    for use, each in ((of.use, each) for of in uses for each in of.numbers):
        real, value, random = each.texts.values()
        error = percent(each.error) if math.isfinite(each.error) else "-"
        rows.append((use.title, each.quantity.title, each.fitness, each.reason, value, real, random, error))
    caption = "All numbers of the uses. Error: difference from real people beyond chance, as a share of the yardstick"
    headings = ("Use", "Number", "Verdict", "Remark", "Synthetic", "Real ± chance", "Random", "Error")
    return Table(caption, headings, rows, n_words=4)


def _yardsticks() -> Table:
    rows = [
        (each.what, "random places" if math.isinf(each.length) else f"{each.length:g}", each.reason)
        for each in YARDSTICKS.values()
    ]
    return Table("Yardsticks", ("Numbers", "Yardstick", "Reason"), rows, n_words=3)
