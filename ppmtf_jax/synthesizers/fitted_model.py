"""A fitted model: a trace model with the users, places and times to which its indices refer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Int

from ppmtf_jax.data.comparable import ids_of_nobody
from ppmtf_jax.data.description import counted, in_lines
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.runs import rank_in_run
from ppmtf_jax.data.time_grid import DAY_S, TimeGrid, duration
from ppmtf_jax.data.trace_set import Origin
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, NumericalError, Problem, first_examples, raise_any
from ppmtf_jax.runtime.files import PathLike
from ppmtf_jax.runtime.folders import MODEL, TRAINING_TRACES, Lineage, Paths, json_of_ids
from ppmtf_jax.runtime.memory import require_memory_for
from ppmtf_jax.runtime.threads import in_single_precision
from ppmtf_jax.settings import build_settings, input_paths
from ppmtf_jax.streams import Seed, Stage, draw_seed, jax_stream, numpy_stream
from ppmtf_jax.synthesizers.model_folder import read_model, write_model
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Claims
from ppmtf_jax.trace_models.base import ABSENT, TraceModel
from ppmtf_jax.trace_models.sampling import sample_traces

SYNTHESIS_BYTES = 200 * 2**20
"""Memory of synthesis that does not depend on the number of traces."""


class SyntheticPart(NamedTuple):
    """Synthetic traces that are not yet drawn, of some users of a model; can be pickled for another process."""

    model: FittedModel
    of_user: Int[np.ndarray, " user"]  # number of traces of each user of the model
    users: slice  # the users of the part
    time_grid: TimeGrid
    origin: Origin
    batch_users: int
    progress: bool

    @in_single_precision
    def made(self) -> Traces:
        """Draw the traces."""
        model, of_user, users, grid, origin, batch_users, progress = self
        require_memory_to_sample(int(of_user[users].sum()), grid.n_instants)
        key, how = jax_stream(origin.seed, Stage.SYNTHESIS), {"batch_users": batch_users, "progress": progress}
        place = sample_traces(key, model.trace_model, of_user, grid.n_instants, users=users, **how)
        is_event = place != ABSENT
        n_events = is_event.sum(axis=1)
        if not n_events.all():
            raise NumericalError(f"{int((n_events == 0).sum())} synthetic traces have no event")
        drawn = np.flatnonzero(of_user[users])
        user = np.repeat(np.arange(len(drawn), dtype=np.int32), of_user[users][drawn])
        instants = np.arange(grid.n_instants, dtype=np.int32)
        events = place[is_event]
        return Traces(
            np.repeat(user, n_events),
            np.repeat(rank_in_run(user).astype(np.int32), n_events),
            np.broadcast_to(instants, place.shape)[is_event],
            events,
            ids_of_people(len(drawn), [events]) if model.of_nobody else model.user_ids[users][drawn],
            model.places,
            grid,
            origin=origin,
            of_nobody=model.of_nobody,
        )


def require_memory_to_sample(n_traces: int, n_instants: int) -> None:
    """Refuse more complete traces than fit into memory, and say how many fit."""
    each = bytes_of_trace(n_instants)
    require_memory_for(
        "sample", n_traces, each, SYNTHESIS_BYTES, lambda n: f"Ask for at most {n:,} traces" if n else ""
    )


def bytes_of_trace(n_instants: int) -> int:
    """Memory of a synthetic trace: five int64, and at each instant the place, a boolean, and four int32 columns."""
    return 5 * 8 + (4 + 1 + 4 * 4) * n_instants


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A trace model with the users, places and times of its indices: the result of `fit`, stored in a model folder.

    A model is secret like its training data, unless its trace model is of nobody (`TraceModel.of_nobody`) and its noise
    is private (`claims().is_private`). Then its parameters come from noisy numbers, places, settings and slots are
    public, the date is nominal, and there are no user ids, no digest of the data, no number of users and no seed. So
    the model folder may be published. Its settings may contain names of your files.

    Parameters
    ----------
    system : str
        Name of the synthesizer.
    seed : int
        Seed of the fit. Keep it secret. 0 for a model of nobody.
    user_ids : array, shape (users,)
        Empty for a model of nobody.
    time_grid : TimeGrid
        Grid of a synthetic trace: one period of the training grid, or more (`TraceModel.grid_of_trace`).
    seed_given : bool
        Whether the caller gave the seed; otherwise it came from the operating system. False for a model with a ledger.
    learned_from : str
        Digest of the training traces; empty if unknown.
    users_per_place : int array, shape (places,), optional
        Number of training users with an event at each place; None if unknown.

    Examples
    --------
    >>> from ppmtf_jax import fit, toy_city
    >>> fit(toy_city(n_users=20, n_days=1, seed=0).traces, "sgd")
    FittedModel: sgd, learned from 20 users at 100 places
      settings  n_copied=0
      traces    24 instants of 1 h from 2024-03-04 00:00 to 2024-03-04 23:00, UTC;
                12 slots
      privacy   secret like its training data; test its traces before release
    """

    system: str
    settings: dict[str, Any]
    seed: int = field(repr=False)
    user_ids: np.ndarray
    places: PlaceTable
    time_grid: TimeGrid
    trace_model: TraceModel
    seed_given: bool = True
    learned_from: str = ""
    users_per_place: np.ndarray | None = None

    @classmethod
    def of(
        cls, system: str, settings: dict[str, Any], seed: Seed, train: Traces, trace_model: TraceModel
    ) -> FittedModel:
        """Model that was learned from traces; one of nobody keeps only its parameters and public facts."""
        grid = trace_model.grid_of_trace(train.time_grid)
        if trace_model.of_nobody:
            nobody, given = np.zeros(0, object), seed.given and trace_model.ledger() is None
            return cls(system, settings, 0, nobody, train.places, grid.on_nominal_date(), trace_model, given)
        seen = train.digest, train.users_per_place()
        return cls(system, settings, seed.value, train.user_ids, train.places, grid, trace_model, seed.given, *seen)

    @property
    def lineage(self) -> Lineage:
        """Digests of the model and of its training traces."""
        return ({TRAINING_TRACES: self.learned_from} if self.learned_from else {}) | {MODEL: self.checksum}

    @property
    def n_users(self) -> int:
        return len(self.user_ids)

    @property
    def of_nobody(self) -> bool:
        """Whether the model knows no users; see `TraceModel.of_nobody`."""
        return self.trace_model.of_nobody

    def __repr__(self) -> str:
        """A summary of a few lines that reveals nothing about a single user; its cost does not grow with the users."""
        grid, claims = self.time_grid.summary(), Claims()
        with suppress(InputError):  # show the rest of the model anyway
            claims = self.claims()
        parts = {
            "settings": ", ".join(f"{name}={value!r}" for name, value in self.settings.items()) or "none",
            "traces": f"{grid['time']}; {counted(self.time_grid.n_slots, 'slot')}",
            "fitted": "; ".join(self.summary()),
            "privacy": "secret like its training data; test its traces before release",
            "protects": "; ".join(claims.protected),
            "leaks": "; ".join(claims.not_protected),
        }
        places, learned_from = counted(len(self.places), "place"), f"learned from {counted(self.n_users, 'user')}"
        if self.of_nobody:
            learned_from, parts["privacy"] = "of nobody", "NOT PRIVATE: secret like its training data"
            if self.trace_model.ledger() is None:
                parts["privacy"] = "NOT PROVEN: for those whom you choose"
            elif claims.is_private:
                parts["privacy"] = "may be published"
        return in_lines(f"FittedModel: {self.system}, {learned_from} at {places}", parts)

    def claims(self) -> Claims:
        """What the model's traces protect and do not protect, in addition to what is said of all releases.

        Raises `InputError`: the synthesizer is not registered, or its settings are of another version.
        """
        synthesizer = SYNTHESIZERS[self.system]
        settings = build_settings(synthesizer.settings, self.settings, self.system)
        claims, files = synthesizer.claims(self.trace_model, settings), input_paths(settings)
        in_words = {name: "none" if value is None else str(value) for name, value in vars(settings).items()}
        in_words |= {name: path.name for name, path in files.items()}
        return claims._replace(settings={**in_words, **claims.settings})

    def settings_found(self) -> dict[str, Any]:
        """The settings, with those that the fit chose itself."""
        return self.settings | SYNTHESIZERS[self.system].settings_found(self.trace_model)

    def summary(self) -> list[str]:
        """Sentences about the model, such as the chosen settings."""
        return self.trace_model.summary()

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of everything that determines the synthetic traces; saving and loading do not change it.

        Traces carry it, so that they are tested against the model that made them.
        """
        digest = hashlib.sha256(json.dumps([self.system, self.settings, str(self.seed)]).encode())
        digest.update(self.time_grid.to_json().encode())
        for ids in (self.user_ids, self.places.ids):
            for piece in json_of_ids(ids):
                digest.update(piece)
        for name, array in sorted(self.trace_model.to_arrays().items()):
            digest.update(json.dumps([name, str(array.dtype), array.shape]).encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def user_index(self, ids: np.ndarray) -> np.ndarray:
        """Index of each user id; unknown ids raise an `InputError`."""
        index = pd.Index(self.user_ids).get_indexer(pd.Index(ids))
        if (index < 0).any():
            unknown = np.asarray(ids)[index < 0]
            problem = Problem("users that the model was trained on", "others", 0, first_examples(unknown.tolist()))
            raise InputError("users", [problem])
        return index

    def sample(
        self,
        n_traces: int | np.ndarray,
        *,
        days: int | None = None,
        start: date | None = None,
        seed: int | Seed | None = None,
        batch_users: int = 4096,
        progress: bool = False,
    ) -> Traces:
        """Draw synthetic traces of random training users (with replacement), or a given number of traces of each user.

        If the model is of nobody, each trace is that of a new person. A trace depends only on the seed, its user (or
        person) and its number, so a larger sample contains the traces of a smaller sample.

        Raises `InputError`: `n_traces` is 0, the traces do not fit into memory, or the model cannot make traces of
        these days. Raises `NumericalError`: the model made a trace without any event.

        Parameters
        ----------
        n_traces : int, or int array of shape (users,)
            Total number, or the number for each user of the model.
        days : int, optional
            How many days each trace lasts; by default as long as the model's time grid.
        start : date, optional
            Date of the first instant. By default that of the training traces; for a model of nobody, a nominal date.
        seed : int or Seed, optional
            Reproduces the traces. Keep it secret. By default it comes from the operating system.
        batch_users : int
            Number of users processed at a time, at least 1; it limits the memory.

        Returns
        -------
        Traces
            Traces with the ids of the drawn users, in the model's order. The traces of each user are numbered from 0.
            Test them before any release. The people of a model of nobody have new ids, see `ids_of_people`.

        Examples
        --------
        >>> from ppmtf_jax import fit, plausible_deniability_test, toy_city
        >>> model = fit(toy_city(n_users=20, seed=0).traces, "sgd", seed=0)
        >>> traces = model.sample(100, seed=1)
        >>> len(traces.trace_table()[0]), plausible_deniability_test(model, traces, k=20).passed.all()
        (100, np.True_)
        """
        how = {"days": days, "start": start, "seed": seed, "batch_users": batch_users, "progress": progress}
        (whole,) = self.sample_in_parts(n_traces, n_users=None, **how)
        return whole.made()

    def sample_in_parts(
        self,
        n_traces: int | np.ndarray,
        *,
        n_users: int | None,
        days: int | None = None,
        start: date | None = None,
        seed: int | Seed | None = None,
        batch_users: int = 4096,
        progress: bool = False,
    ) -> list[SyntheticPart]:
        """The traces of `sample` in parts of at most `n_users` users, which bounds the memory; draw each by `made`.

        New people, whom a model of nobody makes, are in one part.
        """
        if batch_users < 1:
            raise InputError("sample", [Problem("at least one user at a time", repr(batch_users))])
        own_seed = draw_seed(seed)
        grid = self.grid_of_days(days, start)
        of_user = self._traces_of_user(n_traces, grid.n_instants, own_seed.value)
        n_users = len(of_user) if n_users is None or self.of_nobody else n_users
        origin = Origin(
            self.checksum, own_seed.value, self.seed_given or own_seed.given, self.learned_from, start is not None
        )
        each = [slice(first, first + n_users) for first in range(0, len(of_user), n_users)]
        given = (grid, origin, batch_users, progress)
        return [SyntheticPart(self, of_user, users, *given) for users in each if of_user[users].any()]

    def grid_of_days(self, days: int | None = None, start: date | None = None) -> TimeGrid:
        """Time grid of synthetic traces that last some days, from a date; see `sample`.

        Raises `InputError`: the days are not a whole number of the model's periods, the model cannot make traces of
        this length, or its traces must begin on another day of the week.
        """
        own = self.time_grid
        n_periods = own.n_instants // own.period
        if days is not None:
            n_periods, rest_s = divmod(days * DAY_S, own.period * own.step_s)
            if rest_s or not n_periods:
                expected = f"days that are a whole number of the model's periods of {duration(own.period * own.step_s)}"
                raise InputError("synthesize", [Problem(expected, counted(days, "day"))])
        if days is None and start is None:
            return own
        grid = own.of_periods(n_periods, start)
        raise_any("synthesize", self._grid_problems(grid))
        return grid

    def _grid_problems(self, grid: TimeGrid) -> list[Problem]:
        """Problems if the model cannot make traces on this grid."""
        own, begins = self.time_grid, datetime.fromisoformat(grid.start)
        if grid == own:
            return []
        if grid != own.of_periods(grid.n_instants // own.period, begins.date()):
            return [Problem("traces on the model's time grid", "another time grid")]
        problems = []
        if grid.n_instants != own.n_instants and not self.trace_model.goes_on:
            length, asked = (duration(each.n_instants * each.step_s) for each in (own, grid))
            way_out = "Leave out the number of days, or use a model whose people remember from day to day"
            problems.append(
                Problem(f"traces of {length}, as this model makes them", f"traces of {asked}", 0, (), way_out)
            )
        own_begin = datetime.fromisoformat(own.start)
        if own.n_instants * own.step_s > DAY_S and begins.weekday() != own_begin.weekday():
            found = f"{begins:%Y-%m-%d}, a {begins:%A}"
            problems.append(Problem(f"a start on a {own_begin:%A}, as in the training traces", found))
        return problems

    def _traces_of_user(self, n_traces: int | np.ndarray, n_instants: int, seed: int) -> np.ndarray:
        """Number of traces of each user, shape (users,), or of each new person, shape (people,)."""
        number = np.asarray(n_traces)
        shapes = ((),) if self.of_nobody else ((), (self.n_users,))
        is_whole = np.issubdtype(number.dtype, np.integer) and number.shape in shapes
        if not is_whole or (number < 0).any() or not number.any():
            of_each = "" if self.of_nobody else f", or {self.n_users} of at least 0, one a user"
            found = repr(n_traces) if not number.shape else f"{number.dtype} array of shape {number.shape}"
            raise InputError("sample", [Problem(f"a number of traces of at least 1{of_each}", found)])
        if number.shape:
            return number.astype(np.int64)
        require_memory_to_sample(int(number), n_instants)
        if self.of_nobody:
            return np.ones(int(number), np.int64)
        drawn = numpy_stream(seed, Stage.SAMPLED_USERS).integers(self.n_users, size=int(number))
        return np.bincount(drawn, minlength=self.n_users)

    def claim(self, traces: Traces, *, seed: int = 0) -> Traces:
        """Mark traces as made by this model although they were made elsewhere, such as by official programs.

        The caller is responsible: a privacy test is meaningless if the model did not make the traces.
        """
        return replace(traces, origin=Origin(self.checksum, seed, True, self.learned_from))

    def save(self, folder: PathLike, *, overwrite: bool = False, inputs: Paths = ()) -> None:
        """Write a model folder that only its owner may read: parameters, which no privacy test covers, and the seed."""
        write_model(vars(self), folder, overwrite=overwrite, inputs=inputs)

    @classmethod
    @in_single_precision
    def load(cls, folder: PathLike) -> FittedModel:
        """Read a model folder.

        Raises `InputError`: the folder is not a model folder; a file is missing, damaged or changed; the parameters do
        not match the tables of users and places; or the synthesizer is not registered. Then first import the module
        that the message names: it is not imported automatically, since a folder could then run any code.
        """
        return cls(**read_model(Path(folder)))


def ids_of_people(n_people: int, places: Iterable[Int[np.ndarray, " event"]]) -> np.ndarray:
    """Ids of the people that a model of nobody made; a part of the people, or other places, would give other ids.

    `places`: the places of all events, block by block, as indices of the model's places.
    """
    return ids_of_nobody(n_people, "synthetic", places)


def complete_places(model: FittedModel, traces: Traces) -> tuple[np.ndarray, np.ndarray]:
    """Index of each trace's user in the model, and the result of `places_of_traces`; `InputError` as there."""
    places = places_of_traces(model, traces)
    return model.user_index(traces.user_ids)[traces.trace_table()[0]], places


def places_of_traces(model: FittedModel, traces: Traces) -> Int[np.ndarray, "trace instant"]:
    """Places of the traces, `ABSENT` at instants without an event if traces of the model may have gaps.

    Raises `InputError`: the traces have another grid or place table, or missing events.
    """
    problems = model._grid_problems(traces.time_grid)
    if not np.array_equal(traces.places.ids, model.places.ids):
        problems.append(Problem("traces over the model's places", "another place table"))
    trace_of_event, n_instants = traces.trace_of_event(), traces.time_grid.n_instants
    n_events = np.bincount(trace_of_event)
    n_short = int((n_events != n_instants).sum())
    if n_short and not model.trace_model.has_gaps:
        problems.append(Problem("an event at every instant", f"{n_short} traces with missing events"))
    raise_any("synthetic traces", problems)
    if not n_short:
        return traces.place.reshape(-1, n_instants)
    places = np.full((len(n_events), n_instants), ABSENT, np.int32)
    places[trace_of_event, traces.instant] = traces.place
    return places


def grid_problems(model: FittedModel, traces: Traces) -> list[Problem | str]:
    """Problems if the model has another time grid or place table than the traces."""
    problems: list[Problem | str] = []
    if model.trace_model.grid_of_trace(traces.time_grid) != model.time_grid:
        problems.append(Problem("traces on the time grid that the model was learned from", "another time grid"))
    if not np.array_equal(traces.places.ids, model.places.ids):
        problems.append(Problem("traces over the model's places", "another place table"))
    return problems


def check_origin(model: FittedModel, traces: Traces) -> Origin:
    """Origin of traces; raises `InputError` if the model did not make them."""
    way_out = "Test what was synthesized from this very model; `model.claim(traces)` vouches for traces made elsewhere"
    origin = traces.origin
    if origin is None or origin.model != model.checksum:
        another = f"those of another one ({origin.model[:12]}, not {model.checksum[:12]})" if origin else "others"
        raise InputError("synthetic traces", [Problem("traces made by the model", another, way_out=way_out)])
    return origin
