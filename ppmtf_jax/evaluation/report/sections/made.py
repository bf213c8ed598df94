"""What the synthetic traces were made from, with which settings, and whether the seed was drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from ppmtf_jax.datasets.registry import DATA_SETS
from ppmtf_jax.evaluation.report.blocks import Block, Details, Table
from ppmtf_jax.evaluation.report.inputs import ReportData
from ppmtf_jax.evaluation.report.registry import MADE, section
from ppmtf_jax.privacy.own_test import settings_kind
from ppmtf_jax.settings import help_of_fields
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS

SEEDS = {None: "not said", True: "chosen by somebody", False: "drawn from the operating system"}


@section(
    "made",
    MADE,
    "Data and settings",
    "A synthesizer learns from real traces how people move, and then invents traces of people who do not exist.",
)
def make(data: ReportData) -> list[Block]:
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
        blocks.append(
            _settings_table("Settings of the privacy test", asdict(verdicts.settings), settings_kind(verdicts.system))
        )
    return blocks


def _facts(data: ReportData) -> list[list[str]]:
    train, test, synthetic = data.whole_sets
    source = DATA_SETS[data.source].title if data.source in DATA_SETS else data.source
    model, verdicts = data.model, data.verdicts
    grid, own = train.time_grid, synthetic.time_grid
    days = " to ".join(dict.fromkeys(str(grid.time_of(instant).date()) for instant in (0, grid.n_instants - 1)))
    untested = "none: no trace was made from one person" if data.guarantee else "none is known"
    facts = {
        "Real data": source or "not said",
        "People": f"{train.n_users:,} whose traces were used; {test.n_users:,} others, for comparison",
        "Events": f"{train.n_events:,} used; {test.n_events:,} of the others",
        "Places": f"{train.n_places:,}" + ("" if data.has_map else ", without usable coordinates"),
        "Time": f"{days} ({grid.time_zone}), in steps of {_span(grid.step_s)}; {grid.n_slots:,} time slots",
        "Synthesizer": "not said" if model is None else f"{SYNTHESIZERS[model.system].title} ({model.system})",
        "Synthetic traces": _synthetic_in_words(data),
        "One trace covers": f"{own.n_instants:,} instants, {_span(own.n_instants * own.step_s)}",
        "Privacy test": verdicts.facts()["settings"] if verdicts is not None else untested,
        "Seeds": SEEDS[data.seeds_given],
    }
    if data.losses:
        facts["Left out of the data"] = "; ".join(data.losses)
    return [list(each) for each in facts.items()]


def _synthetic_in_words(data: ReportData) -> str:
    if data.guarantee:
        return f"{data.n_synthetic:,}, each of a new synthetic person"
    people = f"{data.whole_sets[2].n_users:,} people" if data.has_known_users else "people who are not known here"
    made = f"{data.n_synthetic:,}, made from {people}"
    if not data.is_release:
        return f"{made}. None of them is a release: do not hand them out"
    total = "" if data.verdicts is None else f" out of {len(data.verdicts.passed):,} traces"
    return f"{made}. They were released{total}"


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
