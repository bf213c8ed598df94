"""The release folder, which may be handed out, and its key, which stays private.

The privacy test protects the link between a trace and its input user. So a release contains no ids of input users. It
has new ids, numbered in a random order, and nothing that tells the link: no verdicts, likelihoods, seeds or withheld
traces. The key, which links released traces to input users, is a folder of its own, for `evaluate` and the attacks.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Int

from ppmtf_jax.data.comparable import ids_of_nobody
from ppmtf_jax.data.description import counted
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.trace_set import read_parquet, write_table
from ppmtf_jax.data.traces import Origin, Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.privacy.datasheet import datasheet_text
from ppmtf_jax.privacy.limits import MIN_USERS_PER_PLACE
from ppmtf_jax.privacy.plausible_deniability import PlausibleDeniability, PrivacyTestSettings
from ppmtf_jax.privacy.randomized_test import budgets_of_one_trace
from ppmtf_jax.runtime.files import write_text
from ppmtf_jax.runtime.folders import (
    Paths,
    check_output_folder,
    checksum,
    files_below,
    marked,
    output_folder,
    read_marker,
)
from ppmtf_jax.runtime.lineage import SYNTHETIC_TRACES, Lineage, digest_of
from ppmtf_jax.settings import Count, Settings, chosen_settings
from ppmtf_jax.streams import Seed, Stage, draw_seed, numpy_stream
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS

RELEASE, RELEASE_KEY = "release", "release key"
STATEMENT_JSON, STATEMENT_TEXT, KEY_FILE = "privacy.json", "PRIVACY.txt", "key.parquet"
DATASHEET = "DATASHEET.txt"
STATEMENT_FORMAT = 1
# Pairs of epsilon and delta that a statement spells out.
N_BUDGETS_SHOWN = 4
# A Monday: the date of a release's time grid is nominal, but for the day of the week.
NOMINAL_MONDAY = datetime(2001, 1, 1)


@dataclass(frozen=True)
class ReleaseSettings(Settings, subject="release"):
    """Whether traces of one user stay together, and how many users each place needs.

    Parameters
    ----------
    keep_users_together : bool
        Whether the traces made from one user share a number. The privacy test says nothing about several traces of
        one user taken together, so by default every trace has a number of its own.
    min_users_per_place : int
        Each place in the place table where any training user was needs at least so many training users. 1 allows
        places where only one person was, such as her home.
    """

    keep_users_together: bool = False
    min_users_per_place: Count = MIN_USERS_PER_PLACE


class Release(NamedTuple):
    """Traces that can be handed to anyone, and what has to stay private.

    Attributes
    ----------
    traces : Traces
        Their users have new ids that belong to nobody, such as "released 07", numbered in a random order.
    statement : dict
        What is protected and what is not, see `privacy_statement`.
    key : DataFrame
        Secret. One row for each trace, with columns released_user and released_trace, and the user and synthetic_trace
        behind them.
    seed : Seed
        Secret. The seed of the numbers.
    origin : Origin
        Secret: which model and which draw made the traces.
    lineage : Lineage
        Secret: digests of the verdicts, and of what they were made from.
    """

    traces: Traces
    statement: dict[str, Any]
    key: pd.DataFrame
    seed: Seed
    origin: Origin
    lineage: Lineage

    def __repr__(self) -> str:
        """What can be shown to anyone."""
        return f"Release of {counted(len(self.key), 'trace')}; its key, seed and origin are secret"


def make_release(
    synthetic: Traces,
    verdicts: PlausibleDeniability,
    settings: ReleaseSettings | None = None,
    *,
    seed: int | Seed | None = None,
    **named_settings: Any,
) -> Release:
    """The traces that passed, under new ids that belong to nobody and are numbered in random order.

    Places are listed in the order of their ids, because the order in the training data is by popularity. The time grid
    gets a nominal date with the same day of the week, because the date in the training data is that of a real event.

    Parameters
    ----------
    synthetic : Traces
        All that were tested.
    verdicts : PlausibleDeniability
        Of these very traces.
    settings : ReleaseSettings, optional
    seed : int or Seed, optional
        Of the numbers. It is part of the secret, and comes from the operating system where none is given.
    **named_settings
        Settings by name, in place of `settings`.

    Raises
    ------
    InputError
        The verdicts belong to other traces, or the traces were changed after the test; no trace passed; or a place had
        fewer training users than `min_users_per_place`.

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
    own_seed = draw_seed(seed)
    check_same_traces(synthetic, verdicts)
    passed = verdicts.passed
    _check_places(verdicts, chosen.min_users_per_place)
    if not passed.any():
        way_out = "Lower k, raise eta, or learn a smoother model (lower noise_precision)"
        raise InputError("release", [Problem("at least one trace that passed", "none", way_out=way_out)])
    user, trace = (column[passed] for column in synthetic.trace_table())
    number, released_trace, order = _fresh_numbers(user, chosen, own_seed.value)
    place_order = np.argsort(synthetic.places.ids, kind="stable")
    new_place = np.empty(len(place_order), np.int32)
    new_place[place_order] = np.arange(len(place_order), dtype=np.int32)
    own_place = synthetic.place.reshape(len(passed), -1)[passed]
    place = new_place[own_place[order]]
    n_instants = place.shape[1]
    user_ids = ids_of_nobody(int(number[-1]) + 1, "released", place)
    traces = Traces(
        np.repeat(number, n_instants).astype(np.int32),
        np.repeat(released_trace, n_instants).astype(np.int32),
        np.tile(np.arange(n_instants, dtype=np.int32), len(place)),
        place.ravel(),
        user_ids,
        _in_order(synthetic.places, place_order),
        _nominal(synthetic.time_grid),
    )
    key = pd.DataFrame(
        {
            "released_user": user_ids[number],
            "released_trace": released_trace,
            "user": synthetic.user_ids[user[order]],
            "synthetic_trace": trace[order],
        }
    )
    statement = privacy_statement(verdicts, chosen, own_seed, own_place)
    return Release(traces, statement, key, own_seed, verdicts.origin, verdicts.lineage)


def privacy_statement(
    verdicts: PlausibleDeniability, settings: ReleaseSettings, seed: Seed, places: Int[np.ndarray, "trace instant"]
) -> dict[str, Any]:
    """What the release protects, by which mechanism, under which assumptions, and what it does not protect.

    Statements about the model come from the verdicts, which were made with it.

    Parameters
    ----------
    verdicts : PlausibleDeniability
    settings : ReleaseSettings
    seed : Seed
        Of the numbers.
    places : int array, shape (traces, instants)
        Of the traces that are released, as indices of the model's places.

    Returns
    -------
    dict
        Values as in JSON: mechanism, parameters, generator, traces, protected, not_protected, randomness.
    """
    test, claims = verdicts.settings, verdicts.claims
    synthesizer = SYNTHESIZERS[verdicts.system]
    together = settings.keep_users_together
    return {
        "format": STATEMENT_FORMAT,
        "mechanism": _mechanism(test),
        "parameters": {
            "k": test.k,
            "eta": test.eta,
            "n_verifiers": "all" if test.n_verifiers is None else test.n_verifiers,
            "noise_epsilon": test.noise_epsilon,
            "precision": test.precision,
            "min_users_per_place": None if claims.is_private else least_users_per_place(verdicts),
        },
        "generator": {"system": synthesizer.name, "what": synthesizer.title, "settings": verdicts.model_settings},
        "traces": (
            "Traces made from one user share a number."
            if together
            else "Every trace has a number of its own, whoever it was made from."
        )
        + " Numbers and their order are random. The date of the time grid is nominal.",
        "protected": [
            *(f"By the model: {claim}." for claim in claims.protected),
            *_link_protected(test),
            *_if_randomized(test),
        ],
        "not_protected": [
            *(["The link between a released trace and its input user: k = 1 asks for no other user."] * (test.k == 1)),
            *([] if claims.is_private else _what_is_not_private(test, together)),
            "What the model holds: it is not released, and nothing stated here holds if somebody gets it.",
            "Which traces were withheld, and how many.",
            *_if_number_is_told(verdicts),
            "What is true of many users, and what the traces of all users have in common.",
            _about_places(verdicts, places),
            *_if_rounded(test),
            *(f"In this release: {note}." for note in claims.not_protected),
        ],
        "randomness": _randomness(verdicts, seed),
    }


def least_users_per_place(verdicts: PlausibleDeniability) -> int | None:
    """The smallest number of training users at any place that was visited; None where it is not known."""
    if verdicts.users_per_place is None:
        return None
    return int(verdicts.users_per_place[verdicts.users_per_place > 0].min())


def statement_text(statement: dict[str, Any]) -> str:
    """A privacy statement as text."""

    def points(items: list[str]) -> str:
        return "\n".join(fill(item, 100, initial_indent="- ", subsequent_indent="  ") for item in items)

    generator = statement["generator"]
    return "\n\n".join(
        [
            "WHAT THESE SYNTHETIC TRACES PROTECT, AND WHAT THEY DO NOT PROTECT",
            fill(statement["mechanism"], 100),
            fill(f"Made by {generator['system']}: {generator['what']}. {statement['traces']}", 100),
            "Protected:\n" + points(statement["protected"] or ["Nothing that could be stated: see below."]),
            "Not protected:\n" + points(statement["not_protected"]),
            fill(statement["randomness"], 100),
        ]
    )


def save_release(
    release: Release,
    folder: str | os.PathLike[str],
    key_folder: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    inputs: Paths = (),
) -> None:
    """Write the release, which can be handed to anyone as it is, and the key, which only its owner can read.

    The key is written first, because a release without its key could never be evaluated.

    Raises
    ------
    InputError
        A folder exists and may not be replaced, one lies in the other, or it cannot be written.
    """
    if Path(os.path.abspath(key_folder)).is_relative_to(os.path.abspath(folder)):
        found = "one that would be handed out with it"
        raise InputError(str(key_folder), [Problem("a key outside the release", found)])
    check_output_folder(folder, RELEASE, overwrite=overwrite, inputs=[*inputs, key_folder])
    about: dict[str, Any] = {
        "seed": release.seed._asdict(),
        "origin": release.origin._asdict(),
        "made_from": dict(release.lineage),
    }
    with output_folder(folder, RELEASE, overwrite=overwrite, public=True, inputs=inputs) as partial:
        release.traces.write_into(partial)
        write_text(partial / STATEMENT_JSON, json.dumps(release.statement, indent=1) + "\n")
        write_text(partial / STATEMENT_TEXT, statement_text(release.statement) + "\n")
        write_text(partial / DATASHEET, datasheet_text(release.traces, release.statement) + "\n")
        about["release"] = digest_of({name: checksum(partial / name) for name in files_below(partial)})
        with output_folder(key_folder, RELEASE_KEY, about=about, overwrite=overwrite, inputs=inputs) as partial_key:
            write_table(partial_key / KEY_FILE, release.key)


def is_release(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder is a release.

    Raises
    ------
    InputError
        The folder was a release, but some of its files changed, or other files were put into it.
    """
    marker = read_marker(folder)
    if marker is None or marker.kind != RELEASE:
        return False
    marked(folder, RELEASE, way_out="Release the traces again", alone=True)
    return True


def load_with_key(folder: str | os.PathLike[str], key_folder: str | os.PathLike[str], like: Traces) -> Traces:
    """Released traces with the users and trace numbers that they were made from, which makes them secret again.

    Parameters
    ----------
    folder, key_folder : path
        A release and its key.
    like : Traces
        The training traces. The result has their order of places.

    Raises
    ------
    InputError
        A folder is of another kind or was changed, the key belongs to another release, or the places are different.
    """
    files = marked(folder, RELEASE, way_out="Give a folder that `ppmtf release` made", alone=True).files
    marker = marked(key_folder, RELEASE_KEY, way_out="Give the key that was written with the release")
    if marker.about.get("release") != digest_of(files):
        raise InputError(str(key_folder), [Problem("the key of this release", "that of another one")])
    released, key = Traces.load(folder), read_parquet(Path(key_folder) / KEY_FILE)
    number, trace = released.trace_table()
    # Looked up once for each trace, not once for each event.
    row = pd.MultiIndex.from_frame(key[["released_user", "released_trace"]]).get_indexer(
        pd.MultiIndex.from_arrays([released.user_ids[number], trace])
    )[released.trace_of_event()]
    frame = released.to_frame().assign(user=key["user"].to_numpy()[row], trace=key["synthetic_trace"].to_numpy()[row])
    return Traces.from_frame(frame, like.places, released.time_grid, subject=str(folder))


def lineage_of_key(key_folder: str | os.PathLike[str]) -> Lineage:
    """What the release of a key was made from; `load_with_key` checks that it is the key of a release."""
    return marked(key_folder, RELEASE_KEY, way_out="Give the key that was written with the release").about["made_from"]


def check_same_traces(synthetic: Traces, verdicts: PlausibleDeniability) -> None:
    """Check that the verdicts belong to exactly these traces.

    Raises
    ------
    InputError
        They belong to traces of another model or draw, or to other traces of the same draw.
    """
    way_out = "Test these traces, and give the verdicts of that test"
    if synthetic.origin is None or synthetic.origin != verdicts.origin:
        drawn = "none" if synthetic.origin is None else synthetic.origin.draw
        found = f"those of other ones (draw {verdicts.origin.draw}, not {drawn})"
        raise InputError("verdicts", [Problem("the verdicts of these traces", found, way_out=way_out)])
    user, trace = synthetic.trace_table()
    same = len(user) == len(verdicts.table) and (
        np.array_equal(synthetic.user_ids[user], verdicts.table["user"])
        and np.array_equal(trace, verdicts.table["trace"])
    )
    if not same:
        found = f"{len(verdicts.table)} verdicts for {len(user)} traces, or of other users"
        raise InputError("verdicts", [Problem("a verdict on each of these traces", found, way_out=way_out)])
    if synthetic.digest != verdicts.made_from[SYNTHETIC_TRACES]:
        found = "traces with other events, places or instants"
        raise InputError("verdicts", [Problem("the traces as they were tested", found, way_out=way_out)])


def _fresh_numbers(user: np.ndarray, settings: ReleaseSettings, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number and trace number of each released trace, in their order, and which of the given traces each one is."""
    rng = numpy_stream(seed, Stage.RELEASE)
    order = rng.permutation(len(user))
    if not settings.keep_users_together:
        return np.arange(len(user)), np.zeros(len(user), np.int64), order
    users, user = np.unique(user, return_inverse=True)
    number = rng.permutation(len(users))[user]
    order = order[np.argsort(number[order], kind="stable")]
    number = number[order]
    first = np.searchsorted(number, number)
    # Counted anew: the numbers of withheld traces would be missing.
    return number, np.arange(len(number)) - first, order


def _in_order(places: PlaceTable, order: np.ndarray) -> PlaceTable:
    category = None if places.category is None else places.category[order]
    return PlaceTable(places.ids[order], places.latitude[order], places.longitude[order], category)


def _nominal(grid: TimeGrid) -> TimeGrid:
    start = datetime.fromisoformat(grid.start)
    day = NOMINAL_MONDAY + timedelta(days=start.weekday())
    return replace(grid, start=datetime.combine(day.date(), start.time()).isoformat())


def _check_places(verdicts: PlausibleDeniability, min_users: int) -> None:
    """Refuse a release if too few training users were at some place."""
    users = verdicts.users_per_place
    if min_users == 1 or verdicts.claims.is_private:
        return
    way_out = "Import fewer places, or larger ones; or release with min_users_per_place=1 (--min-users-per-place 1)"
    expected = f"at least {min_users} training users at each visited place"
    if users is None:
        raise InputError(
            "release", [Problem(expected, "a model that does not know how many there were", 0, (), way_out)]
        )
    n_few, n_visited = int(((users > 0) & (users < min_users)).sum()), int((users > 0).sum())
    if n_few:
        fewer = "with only one" if min_users == 2 else "with fewer"
        found = f"{n_few:,} of {counted(n_visited, 'visited place')} {fewer}"
        raise InputError("release", [Problem(expected, found, 0, (), way_out)])


def _mechanism(test: PrivacyTestSettings) -> str:
    """What the privacy test asked for."""
    name, number = "Privacy Test 1 of Murakami et al. (PETS 2021)", f"at least k = {test.k} training users"
    if test.noise_epsilon is not None:
        name = "Privacy Test 2 of Bindschaedler et al. (VLDB 2017)"
        noise = f"discrete Laplace noise of scale 1/{test.noise_epsilon:g}"
        number = f"as many training users as k = {test.k} plus {noise}, drawn for each trace anew"
    elif test.k == 1:
        return f"{name} with k = 1, which tests nothing: every trace passes."
    others = "all other training users"
    if test.n_verifiers is not None:
        others = f"{test.n_verifiers} training users chosen at random"
    return (
        f"{name}: a trace is released only if {number}, the input user among them, could have made it with "
        f"probabilities within a factor of {test.factor} of each other (one bin of width eta = {test.eta:g}). The test "
        f"compared the input user with {others}."
    )


def _link_protected(test: PrivacyTestSettings) -> list[str]:
    if test.k == 1:
        return []
    users = f"at least {test.k} users, the input user among them,"
    if test.noise_epsilon is not None:
        users = f"as many users as k = {test.k} plus noise asked for (this may be the input user alone)"
    return [
        "The link between a released trace and the user it was made from (its input user). For a person who sees one "
        f"trace, {users} could have made it with probabilities within a factor of {test.factor} of each other."
    ]


def _if_rounded(test: PrivacyTestSettings) -> list[str]:
    if test.precision == "float64":
        return []
    return [
        "Traces at the edge of a bin: in single precision, the test may have counted a user whose probability is "
        "outside the bin."
    ]


def _if_randomized(test: PrivacyTestSettings) -> list[str]:
    """What Theorem 1 says of one trace, and for what delta."""
    if test.noise_epsilon is None or test.k == 1:
        return []
    budgets = budgets_of_one_trace(test.k, test.eta, test.noise_epsilon)
    # From the smallest delta that there is, in a few steps.
    shown = np.unique(np.linspace(0, len(budgets.t) - 1, N_BUDGETS_SHOWN).astype(int))
    pairs = ", ".join(f"({budgets.epsilon[t]:.3g}, {budgets.delta[t]:.2g})" for t in shown)
    return [
        "One trace that is picked by lot among all that were made, before it is known which of them passed. Whether a "
        f"person was an input user is then ({test.noise_epsilon:g} + log(1 + e^{test.eta:g} / t), "
        f"e^(-{test.noise_epsilon:g} ({test.k} - t)))-differentially private for every whole number t from 1 to "
        f"{test.k - 1}. This is Theorem 1 of Bindschaedler et al. 2017 with their gamma = e^{test.eta:g}. Examples of "
        f"(epsilon, delta): {pairs}. The theorem assumes at least {test.k} users. It also assumes that without this "
        "person all parameters of the model that users share would be the same."
    ]


def _what_is_not_private(test: PrivacyTestSettings, together: bool) -> list[str]:
    """What differential privacy would protect."""
    several = "Several traces of one user taken together" + (
        ": they share a number here, but the test looked at each trace alone." if together else "."
    )
    hidden = "It sets no bound on membership inference: it does not hide that a person's data was used at all."
    if test.noise_epsilon is None:
        return [f"Without noise on k, this test is not differential privacy. {hidden}", several]
    if test.k == 1:
        return [f"Noise on k = 1 gives no differential privacy: the theorem needs k of at least 2. {hidden}", several]
    return [
        "The release as a whole is not differentially private, in spite of the noise: the theorem covers one trace "
        "only. For m traces, with a separate lot for the input user of each, epsilon and delta would be m times as "
        f"large, whoever they were made from. Here every user is an input user. {hidden}",
        "How the model was learned. Without one person's data, the parameters that users share would be different; the "
        "theorem assumes that they are the same.",
        "That a trace was withheld. For a person who sees that the trace picked by lot was withheld, delta is larger "
        "by up to one divided by the number of users.",
        several,
    ]


def _if_number_is_told(verdicts: PlausibleDeniability) -> list[str]:
    traces_of_user = verdicts.table["user"].value_counts()
    if len(traces_of_user) < verdicts.n_users or traces_of_user.nunique() > 1:
        return []
    return [
        "How many training users there were. The same number of traces was made from each of them, so the number of "
        "released traces tells something about it."
    ]


def _about_places(verdicts: PlausibleDeniability, places: Int[np.ndarray, "trace instant"]) -> str:
    listed = (
        "The list of places, with coordinates and categories. It is the list of the training data and is treated as "
        "public."
    )
    if verdicts.claims.is_private:
        return listed
    least = least_users_per_place(verdicts)
    if least is None:
        return f"{listed} It is not known how many training users were at each place."
    if least > 1:
        return f"{listed} Each place that anybody visited was visited by at least {least} training users."
    is_of_one = verdicts.users_per_place == 1
    n_alone = f"{int(is_of_one.sum()):,} of {counted(len(is_of_one), 'place')}"
    share = f"{is_of_one[places].mean():.0%}"
    return f"{listed} At {n_alone} there was only one training user; {share} of the released events are there."


def _randomness(verdicts: PlausibleDeniability, seed: Seed) -> str:
    if verdicts.origin.seeds_given or seed.given or (verdicts.settings.n_verifiers is not None and verdicts.seed.given):
        return (
            "Randomness: reproducible: the seed must stay secret. Somebody chose the seed. A person who knows or "
            "guesses it, and has the data of the other users, can repeat what was drawn."
        )
    return "Randomness: drawn from the operating system's secure source. Only the private files contain the seed."
