"""The plan of a release: which traces, under which new numbers, on which places, and what is said about them.

The privacy test protects the link between a trace and its input user. So a release contains no ids of input users. It
has new user ids, numbered in a random order, and nothing that reveals the link: no verdicts, likelihoods, seeds or
withheld traces. The key links released traces to input users.

Traces of nobody have no input users: all of them are released, without a test and without a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int, UInt64

from ppmtf_jax.data.comparable import ids_of_nobody
from ppmtf_jax.data.description import counted
from ppmtf_jax.data.places import MIN_USERS_PER_PLACE, PlaceTable
from ppmtf_jax.data.runs import rank_in_run, stable_order
from ppmtf_jax.data.stored_traces import PART_BLOCKS, PART_USERS, Rearranged, joined
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.trace_set import Origin
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.privacy.statements import model_statement, privacy_statement
from ppmtf_jax.privacy.verdicts import Verdicts
from ppmtf_jax.runtime.engine import stage
from ppmtf_jax.runtime.folders import Lineage
from ppmtf_jax.settings import Count, Settings, chosen_settings
from ppmtf_jax.streams import Seed, Stage, draw_seed, random_keys
from ppmtf_jax.synthesizers.fitted_model import FittedModel, check_origin, ids_of_people


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
        Not checked if the model is differentially private. Of the settings, traces of nobody have this one alone.
    """

    keep_users_together: bool = False
    min_users_per_place: Count = MIN_USERS_PER_PLACE


@dataclass(frozen=True, eq=False, repr=False)
class ReleasePlan:
    """A release before it is written: traces that may be published, and the data that must stay private."""

    n_users: int
    n_traces: int
    n_events: int
    places: PlaceTable  # in the order of their ids
    time_grid: TimeGrid  # with a nominal date, or with the date that was asked for
    in_parts: Callable[[], Iterator[Traces]]  # makes the released traces, in parts of `PART_USERS` users
    statement: dict[str, Any]  # what is protected and what is not, see `statements`
    # Secret: the model and the draw that made the traces; digests of the verdicts, and of what they were made from.
    origin: Origin
    lineage: Lineage
    # Secret: a row for each trace with released_user and released_trace, and the original user and synthetic_trace; the
    # seed of the random order of ids. None for traces of nobody.
    key: pd.DataFrame | None = None
    seed: Seed | None = None

    @property
    def n_parts(self) -> int:
        """Number of parts in which traces and key are written."""
        return -(-self.n_users // PART_USERS)

    @cached_property
    def traces(self) -> Traces:
        """All released traces. After a test, users have new ids in random order, such as "released 5e1f0a 07"."""
        return joined(self.in_parts())

    def __repr__(self) -> str:
        """Only public facts."""
        secret = "origin is" if self.key is None else "key, seed and origin are"
        return f"Release of {counted(self.n_traces, 'trace')}; its {secret} secret"


@stage("release")
def plan_release(
    synthetic: Traces,
    by: Verdicts | FittedModel,
    settings: ReleaseSettings | None = None,
    *,
    seed: int | Seed | None = None,
    **named_settings: Any,
) -> ReleasePlan:
    """Plan a release of the traces that passed, with new user ids in a random order, or of traces of nobody.

    Places are listed in the order of their ids, because the order in the training data may be by popularity; those of a
    differentially private model of nobody are public and stay as they are. The time grid gets a nominal date with the
    same day of the week, because the date in the training data is that of a real event. A date that `synthesize` was
    asked for (`start`) stays.

    Raises `InputError`: the verdicts belong to other traces; the traces were changed after the test; no trace passed;
    or a visited place had fewer training users than `min_users_per_place`. If a model is given: it knows users, it did
    not make the traces, the traces are only a part of those that it made, or settings are given.

    Parameters
    ----------
    synthetic : Traces
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
    >>> plan = plan_release(synthetic, plausible_deniability_test(model, synthetic, k=2), seed=0)
    >>> plan.traces.user_ids[:2].tolist(), list(plan.key)
    (['released ... 00', 'released ... 01'], ['released_user', 'released_trace', 'user', 'synthetic_trace'])
    """
    chosen = chosen_settings(ReleaseSettings, settings, named_settings, "release")
    if isinstance(by, FittedModel):
        return _plan_of_nobody(synthetic, by, chosen)
    by.check_made_of(synthetic)
    _check_places(by, chosen)
    if not by.n_passed:
        way_out = "Lower k, raise eta, or learn a smoother model (lower noise_precision)"
        raise InputError("release", [Problem("at least one trace that passed", "none", way_out=way_out)])
    own_seed, together = draw_seed(seed), chosen.keep_users_together
    user, trace = synthetic.trace_table()
    new_user, new_trace = _new_numbers(user, by.passed, together, own_seed.value)
    n_users = int(new_user.max()) + 1
    released = Rearranged(synthetic, user, new_user, new_trace, n_users)
    places, new_place = _by_id(synthetic.places)
    grid = synthetic.time_grid if by.origin.dated else synthetic.time_grid.on_nominal_date()
    new_ids = partial(ids_of_nobody, n_users, "released", [released.at_place[np.argsort(new_place)]])

    def in_parts() -> Iterator[Traces]:
        for users, rows in released.in_parts():
            rows = rows._replace(place=new_place[rows.place])
            yield Traces(*rows, new_ids(np.arange(users.start, users.stop)), places, grid)

    numbers = np.stack([new_user, new_trace, user, trace], axis=1)[by.passed]
    number, released_trace, user, trace = numbers[stable_order(numbers[:, 0], numbers[:, 1])].T
    # In pieces, because an array of texts takes several times the memory of a column.
    pieces = np.split(number, range(PART_USERS, len(number), PART_USERS))
    released_user = pd.concat([pd.Series(new_ids(piece)) for piece in pieces], ignore_index=True)
    columns = {"released_user": released_user, "released_trace": released_trace, "user": synthetic.user_ids[user]}
    return ReleasePlan(
        n_users,
        by.n_passed,
        int(released.begins[-1]),
        places,
        grid,
        in_parts,
        privacy_statement(by, together, own_seed, released.at_place),
        by.origin,
        by.lineage,
        pd.DataFrame(columns | {"synthetic_trace": trace}),
        own_seed,
    )


def _plan_of_nobody(synthetic: Traces, model: FittedModel, settings: ReleaseSettings) -> ReleasePlan:
    """Plan of all traces of nobody; a part is refused, because the guarantee does not cover the choice of a part."""
    origin, problems = check_origin(model, synthetic), []
    statement = model_statement(model, origin)
    if (least := getattr(model.trace_model, "least_users_per_place", None)) is not None:
        if least < settings.min_users_per_place:
            raise _few_users(f"visited places with fewer, one of them with only {least}", int(least), settings)
        settings = replace(settings, min_users_per_place=MIN_USERS_PER_PLACE)
    n_users, blocks = synthetic.n_users, synthetic.blocks
    if not np.array_equal(synthetic.user_ids, ids_of_people(n_users, blocks.map(lambda block: block.place))):
        way_out = "Release what was synthesized: the guarantee does not cover a choice, which may depend on the data"
        problems.append(Problem("all traces, as they were synthesized", "a part of them, or others", way_out=way_out))
    if settings != ReleaseSettings():
        problems.append(Problem("no settings: they are for traces that were tested", str(settings)))
    if problems:
        raise InputError("release", problems)

    places, ids = synthetic.places, synthetic.user_ids
    if statement["ledger"] is None:
        places, new_place = _by_id(places)
        blocks = blocks.map(lambda block: replace(block, place=new_place[block.place], places=places))
        # The ids are a hash of the places' numbers, which could confirm a guess of the old order.
        ids = ids_of_people(n_users, blocks.map(lambda block: block.place))
    blocks = blocks.map(lambda block, user_ids: replace(block, user_ids=user_ids, origin=None), ids)

    def in_parts() -> Iterator[Traces]:
        remaining = iter(blocks)
        while part := list(islice(remaining, PART_BLOCKS)):
            yield joined(part)

    n_traces = int(blocks.map(lambda block: np.array(len(block.trace_table()[0]))).total())
    size = n_users, n_traces, synthetic.n_events
    return ReleasePlan(*size, places, synthetic.time_grid, in_parts, statement, origin, synthetic.lineage)


def _new_numbers(
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
    return np.argsort(np.argsort(keys, kind="stable"))


def _by_id(places: PlaceTable) -> tuple[PlaceTable, Int[np.ndarray, " place"]]:
    """The places in the order of their ids, and the new number of each place."""
    order = np.argsort(places.ids, kind="stable")
    category = None if places.category is None else places.category[order]
    by_id = PlaceTable(places.ids[order], places.latitude[order], places.longitude[order], category)
    return by_id, np.argsort(order).astype(np.int32)


def _check_places(verdicts: Verdicts, settings: ReleaseSettings) -> None:
    """Refuse a release if a visited place had too few training users."""
    users, min_users = verdicts.users_per_place, settings.min_users_per_place
    if min_users == 1 or verdicts.claims.is_private:
        return
    found, least = "a model that does not know how many there were", verdicts.least_users_per_place or 1
    if users is not None:
        n_few, n_visited = int(((users > 0) & (users < min_users)).sum()), int((users > 0).sum())
        if not n_few:
            return
        found = f"{n_few:,} of {counted(n_visited, 'visited place')} with fewer, one of them with only {least}"
    raise _few_users(found, least, settings)


def _few_users(found: str, least: int, settings: ReleaseSettings) -> InputError:
    option = f"min_users_per_place={least} (--min-users-per-place {least})"
    way_out = f"Import fewer places, or larger ones; or release with {option}"
    expected = f"at least {settings.min_users_per_place} training users at each visited place"
    return InputError("release", [Problem(expected, found, way_out=way_out)])
