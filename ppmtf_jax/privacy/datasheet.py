"""The data sheet of a release: contents, origin, recommended use, limits, and how to read the files."""

from __future__ import annotations

from ppmtf_jax.data.description import counted
from ppmtf_jax.data.time_grid import DAY_S, duration
from ppmtf_jax.privacy.release_plan import ReleasePlan
from ppmtf_jax.privacy.statement import as_text

HOW_TO_READ = """\
How to read it
    from ppmtf_jax import Traces
    table = Traces.load("this folder").to_frame(with_time_and_coordinates=True)"""


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
