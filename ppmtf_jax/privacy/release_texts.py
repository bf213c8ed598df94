"""The texts in a release: the statement, on one screen and in detail, and the data sheet.

They are made from the plan of the release alone, so that they reveal nothing beyond it. The data sheet tells contents,
origin, recommended use, limits, and how to read the files.
"""

from __future__ import annotations

from typing import Any

from ppmtf_jax.data.description import counted
from ppmtf_jax.data.time_grid import DAY_S, duration
from ppmtf_jax.privacy.release_plan import ReleasePlan
from ppmtf_jax.privacy.statement import (
    as_text,
    first_page,
    first_sentence,
    not_protected,
    protected,
    statement_files,
)

DATASHEET = "DATASHEET.txt"
HOW_TO_READ = """\
How to read it
    from ppmtf_jax import Traces
    table = Traces.load("this folder").to_frame(with_time_and_coordinates=True)"""


def release_texts(plan: ReleasePlan) -> dict[str, str]:
    """The statement and the data sheet of a release, by the names of their files."""
    said = statement_files(plan.statement, *statement_texts(plan.statement))
    return said | {DATASHEET: datasheet_text(plan) + "\n"}


def statement_texts(statement: dict[str, Any]) -> tuple[str, str]:
    """The first page of the statement of a release, and the details."""
    generator = statement["generator"]
    made = f"Made by {generator['system']}: {generator['what']}. {statement['traces']}"
    if "guarantee" in statement:
        return _texts_of_nobody(statement, made)
    promise = [first_sentence(each) for each in statement["protected"]] or ["Nothing that could be stated."]
    promise += [statement["by_construction"]] if statement["by_construction"] else []
    details = as_text(
        "PRIVACY IN DETAIL",
        made,
        ("The test:", f"{statement['mechanism']} {statement['by_construction']}"),
        ("How the model was made (rules that bound what one person weighs; no promise):", statement["rules"]),
        protected(statement),
        not_protected(statement),
        statement["randomness"],
    )
    return first_page("SYNTHETIC TRACES", promise, statement["not_protected"]), details


def _texts_of_nobody(statement: dict[str, Any], made: str) -> tuple[str, str]:
    """The guarantee comes first; the details have its ledger."""
    cost_of = costs(statement["ledger"])
    width = max(map(len, cost_of))
    spent = [f"{mechanism:<{width}}  {cost}" for mechanism, cost in cost_of.items()]
    noise = "" if statement["private"] else ", from noise that protects nobody"
    details = as_text(
        "PRIVACY IN DETAIL",
        statement["guarantee"],
        made,
        statement["number_of_traces"],
        protected(statement),
        f"Neighbours, which are hard to tell apart: {statement['neighbours']}.",
        (f"Numbers that were taken from the data with noise, and what each of them cost{noise}:", spent),
        ("Treated as public:", statement["public"]),
        not_protected(statement),
        f"Randomness: {statement['randomness']}",
    )
    return first_page("SYNTHETIC PEOPLE", statement["guarantee"], statement["not_protected"]), details


def costs(ledger: dict[str, Any]) -> dict[str, str]:
    """What each mechanism of a ledger cost, and what all of them cost together, in words."""
    (of_relation,) = ledger["relations"]
    lines = [*of_relation["mechanisms"], {"mechanism": "together"} | of_relation["spent"]]
    amounts = ({name: line[name] for name in ("epsilon", "delta", "rho") if name in line} for line in lines)
    cost = (", ".join(f"{name} {amount:.4g}" for name, amount in each.items()) for each in amounts)
    return dict(zip((line["mechanism"] for line in lines), cost, strict=True))


def datasheet_text(plan: ReleasePlan) -> str:
    """A data sheet made from what is released alone, so that it reveals nothing beyond the release.

    References
    ----------
    .. [1] Gebru et al.: Datasheets for Datasets, Communications of the ACM 64(12), 2021.
    """
    grid, places, statement = plan.time_grid, plan.places, plan.statement
    generator = statement["generator"]
    in_words = generator["settings_in_words"]
    settings = "; ".join(f"{name} = {value}" for name, value in in_words.items()) or "none"
    chosen_how = (
        "traces were drawn from it, and those that passed a privacy test are here. PRIVACY.txt says what the test "
        "protects and what it does not protect"
    )
    guaranteed = {"What is guaranteed": statement["guarantee"]} if "guarantee" in statement else {}
    if guaranteed:
        chosen_how = (
            "and all traces that were drawn from it are here. PRIVACY.txt says what is protected and what is not"
        )
    has_category = "" if places.category is None else ", category"
    sections = guaranteed | {
        "What it is": (
            f"{counted(plan.n_traces, 'synthetic trace')} of {counted(plan.n_users, 'synthetic user')} over "
            f"{counted(len(places), 'place')}, made by a program: PRIVACY.txt says what they may reveal about real "
            f"people. {_of_one_trace(plan)} {statement['number_of_traces']}"
        ),
        "How it was made": (
            f"By the system {generator['system']} ({generator['what']}) with the settings: {settings}. A model was "
            f"learned from real traces, {chosen_how}; read it first."
        ),
        "What it is good for": (
            "What many people have in common: how people are distributed over places during the day, between which "
            "places they move, how long they stay. Ask the publisher how close these numbers are to those of real "
            "people."
        ),
        "What it is not good for": (
            "Single traces, rare places and rare habits; the number of people; identifying people, finding out who is "
            "missing, or who knows whom; events on certain dates, also if the traces have dates."
        ),
        "Files": (
            "traces.parquet: user (a number that belongs to nobody), trace, instant (counted from 0), place. "
            f"places.parquet: place, latitude, longitude (degrees){has_category}. time_grid.json: the start in the "
            f"local time of {grid.time_zone}, the seconds between two instants, and the slot of the day of each "
            "instant. PRIVACY.txt: what is promised, on one screen. PRIVACY_DETAILS.txt: the same in full. "
            "privacy.json: both for programs. ppmtf.json: what this folder is, with checksums."
        ),
    }
    return as_text("DATA SHEET: SYNTHETIC LOCATION TRACES", *sections.items()) + f"\n\n{HOW_TO_READ}"


def _of_one_trace(plan: ReleasePlan) -> str:
    """What time a trace covers, and whether it has an event at every instant."""
    grid = plan.time_grid
    length_s = grid.n_instants * grid.step_s
    has_no = "no particular date, day of the week or season" if length_s <= DAY_S else "no particular date or season"
    covered = f"{counted(grid.n_instants, 'instant')} of {grid.step_s} s"
    events = f"It has a place for each of {covered}, even if the training traces have far fewer events."
    mean = plan.n_events / plan.n_traces
    if mean < grid.n_instants:
        events = (
            f"Of {covered}, it has a place at {mean:.3g} on average. Like the training traces, it has gaps, which do "
            "not say where the person was."
        )
    return (
        f"Each trace covers {duration(length_s)} of a person who never lived: it has {has_no}, whatever the date in "
        f"time_grid.json says. {events}"
    )
