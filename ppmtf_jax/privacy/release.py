"""The release folder, which may be published, and its key, which stays private.

The privacy test protects the link between a trace and its input user. So a release contains no ids of input users. It
has new user ids, numbered in a random order, and nothing that reveals the link: no verdicts, likelihoods, seeds or
withheld traces. The key links released traces to input users. It is a separate folder, for `evaluate` and the attacks.

Traces of nobody have no input users. They are released as they are, without a test and without a key, and with the
guarantee of their model.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int, UInt64

from ppmtf_jax.data.comparable import ids_of_nobody
from ppmtf_jax.data.description import counted
from ppmtf_jax.data.places import MIN_USERS_PER_PLACE, PlaceTable, id_array
from ppmtf_jax.data.rearranged import Rearranged, rearranged_traces
from ppmtf_jax.data.runs import rank_in_run, stable_order
from ppmtf_jax.data.stored_traces import (
    PART_BLOCKS,
    PART_USERS,
    joined,
    on_places,
    open_traces,
    parts_of_users,
    write_parts,
)
from ppmtf_jax.data.trace_set import part_file, read_parquet, write_table
from ppmtf_jax.data.traces import OF_NOBODY, Origin, Traces, TraceSet
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.privacy.datasheet import Contents, datasheet_text
from ppmtf_jax.privacy.model_statement import model_statement
from ppmtf_jax.privacy.release_statement import privacy_statement, statement_texts
from ppmtf_jax.privacy.verdicts import Verdicts
from ppmtf_jax.runtime.engine import stage
from ppmtf_jax.runtime.files import PathLike, write_text
from ppmtf_jax.runtime.folders import (
    STATEMENT_JSON,
    Paths,
    check_output_folder,
    checksums,
    marked,
    output_folder,
    read_marker,
    write_statement,
)
from ppmtf_jax.runtime.lineage import SYNTHETIC_TRACES, Lineage, digest_of
from ppmtf_jax.settings import Count, Settings, chosen_settings
from ppmtf_jax.streams import Seed, Stage, draw_seed, random_keys
from ppmtf_jax.synthesizers.fitted_model import FittedModel, check_origin, ids_of_people

RELEASE, RELEASE_KEY = "release", "release key"
KEY_FILE, DATASHEET = "key.parquet", "DATASHEET.txt"


@dataclass(frozen=True)
class ReleaseSettings(Settings, subject="release"):
    """Whether traces of one user keep a common id, and how many training users each place needs.

    Parameters
    ----------
    keep_users_together : bool
        Whether the traces made from one user share a new user id. The privacy test does not cover several traces of one
        user taken together, so by default every trace has its own user id.
    min_users_per_place : int
        Minimum number of training users at each visited place; otherwise the release is refused. The default is that of
        imports. 1 allows places that only one person visited, such as their home, and 2 to 4 the home of a household.
        Not checked if the model is differentially private.
    """

    keep_users_together: bool = False
    min_users_per_place: Count = MIN_USERS_PER_PLACE


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """Traces that may be published, and the data that must stay private.

    Parameters
    ----------
    statement : dict
        What is protected and what is not, see `release_statement.privacy_statement` and `model_statement`.
    key : DataFrame or None
        Secret. One row for each trace: released_user and released_trace, and the original user and synthetic_trace.
        None for traces of nobody.
    n_parts : int
        Number of parts in which traces and key are written.
    seed : Seed or None
        Secret. The seed of the random order of ids. None for traces of nobody.
    origin : Origin
        Secret. The model and the draw that made the traces.
    lineage : Lineage
        Secret. Digests of the verdicts, and of the data that they were made from.
    """

    contents: Contents
    statement: dict[str, Any]
    key: pd.DataFrame | None
    seed: Seed | None
    origin: Origin
    lineage: Lineage
    n_parts: int = 1

    @property
    def n_traces(self) -> int:
        """Number of released traces."""
        return self.contents.n_traces

    @cached_property
    def traces(self) -> Traces:
        """All released traces. After a test, users have new ids in random order, such as "released 5e1f0a 07"."""
        return joined(self.contents.in_parts())

    def __repr__(self) -> str:
        """Only public facts."""
        secret = "origin is" if self.key is None else "key, seed and origin are"
        return f"Release of {counted(self.n_traces, 'trace')}; its {secret} secret"


@stage("release")
def make_release(
    synthetic: TraceSet,
    by: Verdicts | FittedModel,
    settings: ReleaseSettings | None = None,
    *,
    seed: int | Seed | None = None,
    **named_settings: Any,
) -> Release:
    """Make a release of the traces that passed, with new user ids in a random order, or of traces of nobody.

    Places are listed in the order of their ids, because the order in the training data is by popularity. The time grid
    gets a nominal date with the same day of the week, because the date in the training data is that of a real event. A
    date that `synthesize` was asked for (`start`) stays.

    Raises `InputError`: the verdicts belong to other traces; the traces were changed after the test; no trace passed;
    or a visited place had fewer training users than `min_users_per_place`. If a model is given: it knows users, it did
    not make the traces, the traces are only a part of those that it made, or settings are given.

    Parameters
    ----------
    synthetic : Traces or StoredTraces
        All traces that were tested, or all people that `synthesize` made from a model of nobody.
    by : Verdicts or FittedModel
        The verdicts on exactly these traces; or, if they are of nobody, the model that made them.
    settings : ReleaseSettings, optional
        Not for traces of nobody.
    seed : int or Seed, optional
        Seed of the random order of ids. It must stay secret, and comes from the operating system if none is given. It
        is not used for traces of nobody, which keep their ids.
    **named_settings
        Settings by name, in place of `settings`.

    Examples
    --------
    >>> from ppmtf_jax import fit, plausible_deniability_test, synthesize, toy_city
    >>> model = fit(toy_city(n_users=60, n_places=12, seed=0).traces, "uniform")
    >>> synthetic = synthesize(model, seed=0)
    >>> release = make_release(synthetic, plausible_deniability_test(model, synthetic, k=2), seed=0)
    >>> release.traces.user_ids[:2].tolist(), list(release.key)
    (['released ... 00', 'released ... 01'], ['released_user', 'released_trace', 'user', 'synthetic_trace'])
    """
    chosen = chosen_settings(ReleaseSettings, settings, named_settings, "release")
    if isinstance(by, FittedModel):
        return _release_of_nobody(synthetic, by, chosen)
    verdicts, own_seed = by, draw_seed(seed)
    user_of_trace, synthetic_trace = check_same_traces(synthetic, verdicts)
    _check_places(verdicts, chosen.min_users_per_place)
    n_traces = verdicts.n_passed
    if not n_traces:
        way_out = "Lower k, raise eta, or learn a smoother model (lower noise_precision)"
        raise InputError("release", [Problem("at least one trace that passed", "none", way_out=way_out)])
    passed, together = verdicts.passed, chosen.keep_users_together
    number, released_trace = _fresh_numbers(user_of_trace, passed, together, own_seed.value)
    n_users = 1 + int(number.max())
    events = Rearranged(synthetic, user_of_trace, number, released_trace, n_users)
    at_place, n_parts = events.at_place, events.n_parts
    place_order = np.argsort(synthetic.places.ids, kind="stable")
    new_ids = partial(ids_of_nobody, n_users, "released", [at_place[place_order]])
    grid = synthetic.time_grid if verdicts.origin.dated else synthetic.time_grid.on_nominal_date()
    places = _in_order(synthetic.places, place_order)
    new_place = np.argsort(place_order).astype(np.int32)

    def in_parts() -> Iterator[Traces]:
        for users, rows in events.in_parts():
            rows = rows._replace(place=new_place[rows.place])
            yield Traces(*rows, new_ids(np.arange(users.start, users.stop)), places, grid)

    contents = Contents(n_users, n_traces, int(events.begins[-1]), places, grid, in_parts)
    rows = np.stack([number, released_trace, user_of_trace, synthetic_trace], axis=1)[passed]
    number, released_trace, user, synthetic_trace = rows[stable_order(rows[:, 0], rows[:, 1])].T
    # In pieces, because an array of texts takes several times the memory of a column.
    pieces = np.split(number, range(PART_USERS, len(number), PART_USERS))
    columns = {"released_user": pd.concat([pd.Series(new_ids(piece)) for piece in pieces], ignore_index=True)}
    columns |= {"released_trace": released_trace, "user": synthetic.user_ids[user]}
    key = pd.DataFrame(columns | {"synthetic_trace": synthetic_trace})
    statement = privacy_statement(verdicts, chosen.keep_users_together, own_seed, at_place)
    return Release(contents, statement, key, own_seed, verdicts.origin, verdicts.lineage, n_parts)


def _release_of_nobody(synthetic: TraceSet, model: FittedModel, settings: ReleaseSettings) -> Release:
    """Release of all traces of nobody; a part is refused, because the guarantee does not cover the choice of a part."""
    statement = model_statement(model, dated=synthetic.origin is not None and synthetic.origin.dated)
    origin, problems = check_origin(model, synthetic), []
    n_users, blocks = synthetic.n_users, synthetic.blocks
    if not np.array_equal(synthetic.user_ids, ids_of_people(n_users, blocks.map(lambda block: block.place))):
        way_out = "Release what was synthesized: the guarantee does not cover a choice, which may depend on the data"
        problems.append(Problem("all traces, as they were synthesized", "a part of them, or others", way_out=way_out))
    if settings != ReleaseSettings():
        problems.append(Problem("no settings: they are for traces that were tested", str(settings)))
    if problems:
        raise InputError("release", problems)

    def in_parts() -> Iterator[Traces]:
        remaining = iter(blocks)
        while part := list(islice(remaining, PART_BLOCKS)):
            yield replace(joined(part), origin=None)

    n_traces = int(blocks.map(lambda block: np.array(len(block.trace_table()[0]))).total())
    contents = Contents(n_users, n_traces, synthetic.n_events, synthetic.places, synthetic.time_grid, in_parts)
    return Release(contents, statement, None, None, origin, synthetic.lineage, -(-n_users // PART_USERS))


def save_release(
    release: Release,
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
    if (release.key is None) != (key_folder is None):
        expected = "no key: nobody stands behind these traces" if release.key is None else "a folder for the key"
        raise InputError("release", [Problem(expected, str(key_folder))])
    if key_folder is not None and Path(os.path.abspath(key_folder)).is_relative_to(os.path.abspath(folder)):
        found = "one that would be handed out with it"
        raise InputError(str(key_folder), [Problem("a key outside the release", found)])
    beside = [] if key_folder is None else [key_folder]
    check_output_folder(folder, RELEASE, overwrite=overwrite, inputs=[*inputs, *beside])
    about = {OF_NOBODY: True} if release.key is None else None
    how = {"overwrite": overwrite, "inputs": inputs}
    with output_folder(folder, RELEASE, about=about, public=True, **how) as unfinished:
        write_parts(unfinished, release.contents.in_parts(), release.n_parts)
        write_statement(unfinished, release.statement, *statement_texts(release.statement))
        write_text(unfinished / DATASHEET, datasheet_text(release.contents, release.statement) + "\n")
        if release.key is not None and release.seed is not None and key_folder is not None:
            of_key: dict[str, Any] = {
                "seed": release.seed._asdict(),
                "origin": release.origin._asdict(),
                "made_from": dict(release.lineage),
                "release": digest_of(checksums(unfinished)),
            }
            with output_folder(key_folder, RELEASE_KEY, about=of_key, **how) as secret:
                for number, part in enumerate(parts_of_users(release.key, "released_user")):
                    write_table(part_file(secret / KEY_FILE, number, release.n_parts), part)


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


def load_with_key(folder: PathLike, key_folder: PathLike, like: TraceSet) -> Traces:
    """The traces of `open_with_key`, in memory."""
    return open_with_key(folder, key_folder, like).in_memory()


def open_with_key(folder: PathLike, key_folder: PathLike, like: TraceSet) -> TraceSet:
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
    """Lineage of the release of a key; `load_with_key` checks that key and release belong together."""
    return _about_key(key_folder)["made_from"]


def _about_key(key_folder: PathLike) -> dict[str, Any]:
    return marked(key_folder, RELEASE_KEY, way_out="Give the key that was written with the release").about


def check_same_traces(synthetic: TraceSet, verdicts: Verdicts) -> tuple[np.ndarray, np.ndarray]:
    """Check that the verdicts belong to exactly these traces, and return the `trace_table` of the traces.

    Raises `InputError`: the verdicts belong to traces of another model or draw, or to other traces of the same draw.
    """

    def check(is_right: bool, expected: str, found: str) -> None:
        if not is_right:
            way_out = "Test these traces, and give the verdicts of that test"
            raise InputError("verdicts", [Problem(expected, found, way_out=way_out)])

    made, tested_origin = synthetic.origin, verdicts.origin
    found = "those of traces of another model"
    if made is None or made.model == tested_origin.model:
        drawn = "none" if made is None else made.draw
        found = f"those of other traces (draw {tested_origin.draw}, not {drawn})"
    check(made == tested_origin, "the verdicts of these traces", found)
    user, trace = synthetic.trace_table()
    tested = verdicts.table
    is_same = len(user) == len(tested) and (
        np.array_equal(synthetic.user_ids[user], tested["user"]) and np.array_equal(trace, tested["trace"])
    )
    found = f"{len(tested)} verdicts for {len(user)} traces, or verdicts of other users"
    check(is_same, "a verdict on each of these traces", found)
    found = "traces with other events, places or instants"
    check(synthetic.digest == verdicts.made_from[SYNTHETIC_TRACES], "the traces as they were tested", found)
    return user, trace


def _fresh_numbers(
    user: Int[np.ndarray, " trace"], passed: Bool[np.ndarray, " trace"], together: bool, seed: int
) -> tuple[Int[np.ndarray, " trace"], Int[np.ndarray, " trace"]]:
    """New user and new trace number of each trace; the user is -1 if the trace is withheld.

    Traces, or users if their traces stay together, are numbered in the order of random keys of 64 bits. Without equal
    keys, each order is equally probable. Two of n keys are equal with probability n^2 / 2^65: 3 in 10,000 for 100
    million. They would keep their old order, and nobody could tell which two neighbours they are.
    """
    keys = partial(random_keys, seed, Stage.RELEASE)
    of_trace = keys(0, 0, len(user))[passed]
    new_user, new_trace = np.full(len(user), -1, np.int32), np.zeros(len(user), np.int32)
    if not together:
        new_user[passed] = _ranks(of_trace)
        return new_user, new_trace
    of_user = keys(1, int(user[0]), int(user[-1] - user[0]) + 1)
    present, place = np.unique(user[passed], return_inverse=True)
    new_user[passed] = _ranks(of_user[present - user[0]])[place]
    # Traces are numbered anew, because gaps in their numbers would reveal the withheld traces.
    order = np.flatnonzero(passed)[np.lexsort([of_trace, place])]
    new_trace[order] = rank_in_run(user[order])
    return new_user, new_trace


def _ranks(keys: UInt64[np.ndarray, " row"]) -> Int[np.ndarray, " row"]:
    """The rank of each key; equal keys keep their order."""
    ranks = np.empty(len(keys), np.int64)
    ranks[np.argsort(keys, kind="stable")] = np.arange(len(keys))
    return ranks


def _in_order(places: PlaceTable, order: np.ndarray) -> PlaceTable:
    category = None if places.category is None else places.category[order]
    return PlaceTable(places.ids[order], places.latitude[order], places.longitude[order], category)


def _check_places(verdicts: Verdicts, min_users: int) -> None:
    """Refuse a release if a visited place had too few training users."""
    users = verdicts.users_per_place
    if min_users == 1 or verdicts.claims.is_private:
        return
    found, least = "a model that does not know how many there were", verdicts.least_users_per_place or 1
    if users is not None:
        n_few, n_visited = int(((users > 0) & (users < min_users)).sum()), int((users > 0).sum())
        if not n_few:
            return
        found = f"{n_few:,} of {counted(n_visited, 'visited place')} with fewer, one of them with only {least}"
    option = f"min_users_per_place={least} (--min-users-per-place {least})"
    way_out = f"Import fewer places, or larger ones; or release with {option}"
    expected = f"at least {min_users} training users at each visited place"
    raise InputError("release", [Problem(expected, found, way_out=way_out)])
