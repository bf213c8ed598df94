"""The release folder, which may be published, and its key, which stays private: how both are written and read.

The folder has the traces, the statement and a data sheet, which tells contents, origin, recommended use, limits, and
how to read the files.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ppmtf_jax.data.description import counted
from ppmtf_jax.data.places import id_array
from ppmtf_jax.data.stored_traces import on_places, open_traces, parts_of_users, rearranged_traces, write_parts
from ppmtf_jax.data.time_grid import DAY_S, duration
from ppmtf_jax.data.trace_set import OF_NOBODY, part_file, read_parquet, write_table
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.privacy.release_plan import ReleasePlan
from ppmtf_jax.privacy.statements import STATEMENT_JSON, as_text, statement_files, statement_texts
from ppmtf_jax.runtime.files import PathLike, write_text
from ppmtf_jax.runtime.folders import (
    Lineage,
    Paths,
    check_output_folder,
    checksums,
    digest_of,
    marked,
    output_folder,
    read_marker,
)

RELEASE, RELEASE_KEY = "release", "release key"
KEY_FILE = "key.parquet"
DATASHEET = "DATASHEET.txt"
HOW_TO_READ = """\
How to read it
    from ppmtf_jax import Traces
    table = Traces.load("this folder").to_frame(with_time_and_coordinates=True)"""


def write_release(
    plan: ReleasePlan,
    folder: PathLike,
    key_folder: PathLike | None = None,
    *,
    overwrite: bool = False,
    inputs: Paths = (),
) -> None:
    """Write the release, which may be published as it is, and the key, which only its owner can read.

    The key is written first, because a release without its key could never be evaluated. Traces of nobody have no key.

    Raises `InputError`: a folder exists and may not be replaced, one folder lies in the other, or a folder cannot be
    written. The folder for the key is missing, or it is given although the release has no key.
    """
    if (plan.key is None) != (key_folder is None):
        expected = "no key: nobody stands behind these traces" if plan.key is None else "a folder for the key"
        raise InputError("release", [Problem(expected, str(key_folder))])
    if key_folder is not None and Path(os.path.abspath(key_folder)).is_relative_to(os.path.abspath(folder)):
        found = "one that would be handed out with it"
        raise InputError(str(key_folder), [Problem("a key outside the release", found)])
    beside = [] if key_folder is None else [key_folder]
    check_output_folder(folder, RELEASE, overwrite=overwrite, inputs=[*inputs, *beside])
    about = {OF_NOBODY: True} if plan.key is None else None
    how = {"overwrite": overwrite, "inputs": inputs}
    with output_folder(folder, RELEASE, about=about, public=True, **how) as release:
        write_parts(release, plan.in_parts(), plan.n_parts)
        said = statement_files(plan.statement, *statement_texts(plan.statement))
        for name, text in (said | {DATASHEET: datasheet_text(plan) + "\n"}).items():
            write_text(release / name, text)
        if plan.key is not None and plan.seed is not None and key_folder is not None:
            of_key: dict[str, Any] = {
                "seed": plan.seed._asdict(),
                "origin": plan.origin._asdict(),
                "made_from": dict(plan.lineage),
                "release": digest_of(checksums(release)),
            }
            with output_folder(key_folder, RELEASE_KEY, about=of_key, **how) as secret:
                for number, part in enumerate(parts_of_users(plan.key, "released_user")):
                    write_table(part_file(secret / KEY_FILE, number, plan.n_parts), part)


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


def is_release(folder: PathLike) -> bool:
    """Whether a folder is a release; `InputError` if files of the release were changed or added."""
    marker = read_marker(folder)
    if marker is None or marker.kind != RELEASE:
        return False
    marked(folder, RELEASE, way_out="Release the traces again", alone=True)
    return True


def statement_of(folder: PathLike) -> dict[str, Any]:
    """The statement of a release; empty if the folder has none, `InputError` if it cannot be read."""
    file = Path(folder) / STATEMENT_JSON
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        problem = Problem("a readable statement", type(error).__name__, way_out="Release the traces again")
        raise InputError(str(file), [problem]) from error
    return content if isinstance(content, dict) else {}


def load_with_key(folder: PathLike, key_folder: PathLike, like: Traces) -> Traces:
    """The traces of `open_with_key`, in memory."""
    return open_with_key(folder, key_folder, like).in_memory()


def open_with_key(folder: PathLike, key_folder: PathLike, like: Traces) -> Traces:
    """Released traces with their input users and original trace numbers, which are secret; read in blocks of users.

    `folder`, `key_folder`: a release and its key. `like`: the training traces; the result has their order of places.
    Raises `InputError`: a folder is of another kind or changed, the key is of another release, or the places differ.
    """
    files = marked(folder, RELEASE, way_out="Give a folder that `ppmtf release` made", alone=True).files
    if _about_key(key_folder).get("release") != digest_of(files):
        raise InputError(str(key_folder), [Problem("the key of this release", "that of another one")])
    released = on_places(open_traces(folder), like.places, str(folder))
    key = read_parquet(Path(key_folder) / KEY_FILE)
    number, trace = released.trace_table()
    # A key has a row for each trace, in the order of the traces.
    is_right = np.array_equal(released.user_ids[number], key["released_user"].to_numpy(object))
    if not is_right or not np.array_equal(trace, key["released_trace"]):
        raise InputError(str(key_folder), [Problem("a row for each released trace, in their order", "others")])
    user, ids = pd.factorize(key["user"], sort=True)
    synthetic_trace = key["synthetic_trace"].to_numpy()
    return rearranged_traces(released, number, user, synthetic_trace, id_array(pd.Series(ids)))


def lineage_of_key(key_folder: PathLike) -> Lineage:
    """Lineage of the release of a key; `open_with_key` checks that key and release belong together."""
    return _about_key(key_folder)["made_from"]


def _about_key(key_folder: PathLike) -> dict[str, Any]:
    return marked(key_folder, RELEASE_KEY, way_out="Give the key that was written with the release").about
