"""What was made and what is guaranteed: data, settings, seeds, the statement of the release, and all numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from ppmtf_jax.datasets.registry import DATA_SETS
from ppmtf_jax.evaluation.report.compose import GUARANTEE, MADE, NUMBERS, section
from ppmtf_jax.evaluation.report.inputs import ReportData
from ppmtf_jax.evaluation.report.page import Block, Details, Finding, Status, Table, Text
from ppmtf_jax.evaluation.results import references_text
from ppmtf_jax.privacy.limits import EPSILON, grade
from ppmtf_jax.privacy.own_test import settings_kind
from ppmtf_jax.privacy.statements import costs
from ppmtf_jax.settings import help_of_fields
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS

SEEDS = {
    None: ("not said", Status.UNKNOWN, "The traces do not say where their seed came from."),
    True: (
        "chosen by somebody",
        Status.FAIR,
        "Somebody chose a seed: people who know or guess it can repeat what was drawn.",
    ),
    False: (
        "drawn from the operating system",
        Status.GOOD,
        "All seeds came from the operating system, and nobody chose one.",
    ),
}
SEED_RULE = (
    "Good: all seeds were drawn from the operating system; fair: somebody chose one; not known: the traces do not say. "
    "A seed is like a password, and is not on this page."
)
ASSUMED = (
    "People who get the release have neither the model nor any seed.",
    "They look at one trace at a time.",
    "The list of places, with coordinates and categories, is not secret.",
)
SAID = {
    "Mechanism": "mechanism",
    "By construction": "by_construction",
    "Traces": "traces",
    "Randomness": "randomness",
}
LISTS = {"Protected": "protected", "Treated as public": "public", "Not protected": "not_protected"}
PROVEN_RULE = (
    f"Good: epsilon is at most {EPSILON.good:g}. Fair: it is at most {EPSILON.fair:g}. Poor: it is more, or the noise "
    f"protects nobody. {EPSILON.reason}"
)
NO_RELEASE = (
    "The folder has no release, and so no statement. These traces are not to be handed out: nothing is guaranteed. "
    "Release the traces that pass the privacy test with `ppmtf release`, or with a job."
)


@section(
    "made",
    MADE,
    "Data and settings",
    "A synthesizer learns from real traces how people move, and then invents traces of people who do not exist.",
)
def made(data: ReportData) -> list[Block]:
    """What went in, what came out, and the settings of both."""
    blocks: list[Block] = [Table("What went in and what came out", ("What", "Here"), _facts(data), n_words=2)]
    model, verdicts = data.model, data.verdicts
    if model is not None:
        kind = SYNTHESIZERS[model.system].settings
        blocks.append(_settings_table(f"Settings of {model.system}", model.claims().settings, kind))
        if model.summary():
            caption = "What the synthesizer reports about itself"
            blocks.append(Details(caption, (Table(caption, ("Sentence",), [[each] for each in model.summary()]),)))
    if verdicts is not None:
        kind = settings_kind(verdicts.system)
        blocks.append(_settings_table("Settings of the privacy test", asdict(verdicts.settings), kind))
    return blocks


def _facts(data: ReportData) -> list[tuple[str, str]]:
    train, test, synthetic = data.whole_sets
    source = DATA_SETS[data.source].title if data.source in DATA_SETS else data.source
    model, verdicts = data.model, data.verdicts
    grid, own = train.time_grid, synthetic.time_grid
    days = " to ".join(dict.fromkeys(str(grid.time_of(instant).date()) for instant in (0, grid.n_instants - 1)))
    untested = "none: no trace was made from one person" if data.guarantee else "none is known"
    people = f"{synthetic.n_users:,} people" if data.has_known_users else "people who are not known here"
    ours = f"{data.n_synthetic:,}, made from {people}"
    if data.guarantee:
        ours = f"{data.n_synthetic:,}, each of a new synthetic person"
    elif data.is_release:
        total = "" if verdicts is None else f" out of {len(verdicts.passed):,} traces"
        ours += f". They were released{total}"
    else:
        ours += ". None of them is a release: do not hand them out"
    facts = {
        "Real data": source or "not said",
        "People": f"{train.n_users:,} whose traces were used; {test.n_users:,} others, for comparison",
        "Events": f"{train.n_events:,} used; {test.n_events:,} of the others",
        "Places": f"{train.n_places:,}" + ("" if data.has_map else ", without usable coordinates"),
        "Time": f"{days} ({grid.time_zone}), in steps of {_span(grid.step_s)}; {grid.n_slots:,} time slots",
        "Synthesizer": "not said" if model is None else f"{SYNTHESIZERS[model.system].title} ({model.system})",
        "Synthetic traces": ours,
        "One trace covers": f"{own.n_instants:,} instants, {_span(own.n_instants * own.step_s)}",
        "Privacy test": verdicts.facts()["settings"] if verdicts is not None else untested,
        "Seeds": SEEDS[data.seeds_given][0],
    }
    if data.losses:
        facts["Left out of the data"] = "; ".join(data.losses)
    return list(facts.items())


def _span(seconds: int) -> str:
    for unit, unit_s in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        n, rest = divmod(seconds, unit_s)
        if rest == 0:
            return f"{n:,} {unit}{'s' * (n != 1)}"
    return str(timedelta(seconds=seconds))


def _settings_table(caption: str, values: Mapping[str, Any], kind: type) -> Details:
    help_texts = help_of_fields(kind)
    rows = [[name, "none" if value is None else str(value), help_texts.get(name, "")] for name, value in values.items()]
    return Details(caption, (Table(caption, ("Setting", "Value", "What it is"), rows, n_words=3),))


@section(
    "statement",
    GUARANTEE,
    "What the release promises, and what it does not promise",
    "The release contains the same statement as PRIVACY.txt, PRIVACY_DETAILS.txt and privacy.json.",
)
def statement(data: ReportData) -> list[Block]:
    """The statement that goes with the release, in a table and lists; of nobody, the guarantee and its ledger."""
    _, status, answer = SEEDS[data.seeds_given]
    finding, said = Finding("Is the randomness secret?", status, answer, SEED_RULE), data.statement
    if said is None:
        return [finding, Text((NO_RELEASE,))]
    if data.guarantee:
        status = grade(EPSILON, said["epsilon"]) if said["private"] else Status.POOR
        caption = f"Numbers taken from the data with noise, and what each cost. Neighbours: {said['neighbours']}"
        rows = list(costs(said["ledger"]).items())
        return [
            Finding("Is the protection proven?", status, said["guarantee"], PROVEN_RULE),
            Text((said["guarantee"], said["randomness"])),
            *_lists({title: said[name] for title, name in LISTS.items()}),
            *([Table(caption, ("Number", "Cost"), rows, n_words=2)] if rows else []),
        ]
    rows = [[title, str(said[name]).removeprefix(f"{title}: ")] for title, name in SAID.items() if said.get(name)]
    protected, not_protected = (said.get(name, ()) for name in ("protected", "not_protected"))
    points = {"Protected": protected, "Assumed": ASSUMED, "Not protected": not_protected}
    blocks = [finding, Table("How the release protects", ("What", "In words"), rows, n_words=2), *_lists(points)]
    if said.get("rules"):
        rules = Text(tuple(said["rules"]), is_list=True)
        blocks.append(Details("Rules by which the model was made; no promise", (rules,)))
    return [*blocks, Text(("If an attack above fails, this proves nothing: another attack may succeed.",))]


def _lists(points_of: Mapping[str, Sequence[str]]) -> list[Block]:
    """Lists of points with their titles."""
    blocks: list[Block] = []
    for title, points in points_of.items():
        listed = tuple(str(point) for point in points) or ("Nothing is said.",)
        blocks += [Text((f"{title}:",)), Text(listed, is_list=True)]
    return blocks


@section(
    "numbers",
    NUMBERS,
    "All numbers, for those who want them",
    "All numbers that were measured: of these traces, of other systems in the comparison, of the real training data "
    "and of random places.",
)
def numbers(data: ReportData) -> list[Block]:
    """A table for utility and one for privacy, remarks, and what each number means."""
    evaluation = data.evaluation
    columns = [name[:1].upper() + name[1:] for name in evaluation.columns]
    blocks: list[Block] = []
    for kind in ("utility", "privacy"):
        cells = []
        for row in (row for row in evaluation.rows if row.kind == kind):
            better = f"{row.quantity.better} is better" if row.quantity.better else ""
            good = "; ".join(filter(None, [row.quantity.good_value, better, references_text(row.reading)]))
            cells.append([row.title, good, *row.texts()])
        if cells:
            caption = f"Numbers of {kind}, as `ppmtf evaluate` prints them"
            blocks.append(Details(caption, (Table(caption, ("Number", "A good value", *columns), cells, n_words=2),)))
    if told := evaluation.remarks():
        lead = "Numbers that say little on these data (†), or that are worse than chance (!):"
        blocks += [Text((lead,)), Text(tuple(told), is_list=True)]
    meanings = [[row.quantity.title, row.quantity.meaning, row.quantity.better or "-"] for row in evaluation.rows]
    caption = "What each number means"
    return [*blocks, Details(caption, (Table(caption, ("Number", "What it is", "Better"), meanings, n_words=3),))]
