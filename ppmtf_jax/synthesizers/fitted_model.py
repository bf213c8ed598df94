"""A trace model with what its indices mean, and the folder that holds one."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ppmtf_jax.data.description import counted, in_lines
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.trace_set import read_parquet, write_table
from ppmtf_jax.data.traces import Origin, Traces
from ppmtf_jax.errors import InputError, Problem, first_examples
from ppmtf_jax.runtime.devices import seed_of_first_process
from ppmtf_jax.runtime.files import write_text
from ppmtf_jax.runtime.folders import Paths, marked, output_folder
from ppmtf_jax.settings import build_settings
from ppmtf_jax.streams import Seed, Stage, check_seed, draw_seed, jax_stream, numpy_stream
from ppmtf_jax.synthesizers.memory import require_memory_to_sample
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Claims, Synthesizer
from ppmtf_jax.trace_models.base import Sizes, TraceModel, array_problems
from ppmtf_jax.trace_models.sampling import sample_traces

MODEL = "model"
MODEL_FORMAT = 2
ABOUT_FILE, GRID_FILE, PARAMETERS_FILE = "model.json", "time_grid.json", "parameters.npz"
USERS_FILE, PLACES_FILE = "users.parquet", "places.parquet"
MODEL_FILES = (ABOUT_FILE, GRID_FILE, USERS_FILE, PLACES_FILE, PARAMETERS_FILE)
PACKAGE = __name__.partition(".")[0]
WAY_OUT = "Fit the model again"


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A trace model together with what its indices mean. `fit` makes one; a model folder holds one.

    Parameters
    ----------
    system : str
        Name of the synthesizer.
    settings : dict
    seed : int
        Part of the secret.
    user_ids : array, shape (users,)
    places : PlaceTable
    time_grid : TimeGrid
        Grid of one synthetic trace: one period of the training grid.
    trace_model : TraceModel
    seed_given : bool
        Whether somebody chose the seed; otherwise it came from the operating system.

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

    @property
    def n_users(self) -> int:
        return len(self.user_ids)

    def __repr__(self) -> str:
        """What it is, in a few lines, of which none tells anything of a single user; at once, however many."""
        grid = self.time_grid.summary()
        parts = {
            "settings": ", ".join(f"{name}={value!r}" for name, value in self.settings.items()) or "none",
            "traces": f"{grid['time']}; {counted(self.time_grid.n_slots, 'slot')}",
            "fitted": "; ".join(self.summary()),
            "privacy": "secret like its training data; test its traces before release",
            "protects": "; ".join(self._shown_claims().protected),
            "leaks": "; ".join(self._shown_claims().not_protected),
        }
        users, places = counted(self.n_users, "user"), counted(len(self.places), "place")
        return in_lines(f"FittedModel: {self.system}, learned from {users} at {places}", parts)

    def claims(self) -> Claims:
        """What a release of its traces has to say, beyond what holds for all, that it protects and does not protect.

        Raises
        ------
        InputError
            The synthesizer is unknown here, or its settings are of another version.
        """
        synthesizer = SYNTHESIZERS[self.system]
        settings = build_settings(synthesizer.settings, self.settings, self.system)
        return synthesizer.claims(self.trace_model, settings)

    def _shown_claims(self) -> Claims:
        try:
            return self.claims()
        except InputError:  # no reason to show nothing of the model
            return Claims()

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.n_users, len(self.places), self.time_grid.n_slots, self.time_grid.n_instants)

    def summary(self) -> list[str]:
        """What a person should know of the model, a sentence each, such as what was chosen and why."""
        return self.trace_model.summary()

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of all that decides what the model synthesizes, the same before it is saved and after it is loaded.

        Traces carry it, so that none is tested against another model than the one that made it.
        """
        digest = hashlib.sha256(json.dumps([self.system, self.settings, str(self.seed)]).encode())
        digest.update(self.time_grid.to_json().encode())
        for ids in (self.user_ids, self.places.ids):
            digest.update(json.dumps([str(value) for value in ids.tolist()]).encode())
        for name, array in sorted(self.trace_model.to_arrays().items()):
            digest.update(json.dumps([name, str(array.dtype), array.shape]).encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def user_index(self, ids: np.ndarray) -> np.ndarray:
        """Index of each user id; unknown users are an `InputError`."""
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
        seed: int | Seed | None = None,
        batch_users: int = 4096,
        progress: bool = False,
    ) -> Traces:
        """Draw synthetic traces of training users drawn at random with replacement, or so many of each user.

        A trace depends on the seed, its user and its number alone, as in `synthesize`, which calls this: with one seed,
        number 3 of a user is the same trace however many are drawn. The more traces, the more users, of the same ones
        that fewer had. Several processes share the traces, and all get the same; see `join_processes`.

        Parameters
        ----------
        n_traces : int, or int array of shape (users,)
            In all; or of each user of the model.
        seed : int or Seed, optional
            Reproduces the traces. It is part of the secret, and comes from the operating system where none is given.
        batch_users : int
            Users at a time, at least 1, which bounds the memory.
        progress : bool
            Show a progress bar where there is a terminal.

        Returns
        -------
        Traces
            With the ids of those users who were drawn, in their order, and traces numbered from 0 of each; so they can
            be tested and attacked like those of `synthesize`. They are not fit for release: test them.

        Raises
        ------
        InputError
            No trace is asked for, or more than fit into the memory.

        Examples
        --------
        >>> from ppmtf_jax import fit, plausible_deniability_test, toy_city
        >>> model = fit(toy_city(n_users=20, seed=0).traces, "sgd", seed=0)
        >>> traces = model.sample(100, seed=1)
        >>> len(traces.trace_table()[0]), plausible_deniability_test(model, traces, k=20).passed.all()
        (100, np.True_)
        """
        if batch_users < 1:
            raise InputError("sample", [Problem("at least one user at a time", repr(batch_users))])
        own_seed = seed_of_first_process(draw_seed(seed))
        of_user = self._traces_of_user(n_traces, own_seed.value)
        n_instants = self.time_grid.n_instants
        require_memory_to_sample(int(of_user.sum()), n_instants)
        key = jax_stream(own_seed.value, Stage.SYNTHESIS)
        place = sample_traces(key, self.trace_model, of_user, n_instants, batch_users=batch_users, progress=progress)
        drawn = np.flatnonzero(of_user)
        of_user = of_user[drawn]
        user = np.repeat(np.arange(len(drawn), dtype=np.int32), of_user)
        number = np.arange(len(user)) - np.repeat(np.cumsum(of_user) - of_user, of_user)
        return Traces(
            np.repeat(user, n_instants),
            np.repeat(number.astype(np.int32), n_instants),
            np.tile(np.arange(n_instants, dtype=np.int32), len(user)),
            place.ravel(),
            self.user_ids[drawn],
            self.places,
            self.time_grid,
            origin=Origin(self.checksum, own_seed.value, self.seed_given or own_seed.given),
        )

    def _traces_of_user(self, n_traces: int | np.ndarray, seed: int) -> np.ndarray:
        """How many traces of each user, shape (users,)."""
        number = np.asarray(n_traces)
        is_whole = np.issubdtype(number.dtype, np.integer) and number.shape in ((), (self.n_users,))
        if not is_whole or (number < 0).any() or not number.any():
            expected = f"a number of traces of at least 1, or {self.n_users} of at least 0, one a user"
            found = repr(n_traces) if not number.shape else f"{number.dtype} array of shape {number.shape}"
            raise InputError("sample", [Problem(expected, found)])
        if number.shape:
            return number.astype(np.int64)
        require_memory_to_sample(int(number), self.time_grid.n_instants)
        drawn = numpy_stream(seed, Stage.SAMPLED_USERS).integers(self.n_users, size=int(number))
        return np.bincount(drawn, minlength=self.n_users)

    def claim(self, traces: Traces, *, seed: int = 0) -> Traces:
        """The same traces, said to be made by this model; for traces that were made elsewhere, as by official programs.

        The caller vouches for it: a privacy test of traces that are not the model's says nothing.
        """
        return replace(traces, origin=Origin(self.checksum, seed, seeds_given=True))

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False, inputs: Paths = ()) -> None:
        """Write a model folder, which only its owner may read.

        It holds the parameters, which no privacy test covers, and the seed: keep it secret.
        """
        about = {
            "format": MODEL_FORMAT,
            "system": self.system,
            "module": self._module(),
            "settings": self.settings,
            "seed": self.seed,
            "seed_given": self.seed_given,
        }
        with output_folder(folder, MODEL, overwrite=overwrite, inputs=inputs) as partial:
            write_text(partial / GRID_FILE, self.time_grid.to_json())
            write_table(partial / USERS_FILE, pd.DataFrame({"user": self.user_ids}))
            write_table(partial / PLACES_FILE, self.places.to_frame())
            np.savez(partial / PARAMETERS_FILE, **self.trace_model.to_arrays())  # type: ignore[arg-type]
            write_text(partial / ABOUT_FILE, json.dumps(about, indent=1) + "\n")

    def _module(self) -> str:
        """The module of the synthesizer, or the package where nothing of it is from elsewhere."""
        kinds: list[type] = [SYNTHESIZERS[self.system].settings] if self.system in SYNTHESIZERS else []
        modules = [kind.__module__ for kind in (*kinds, type(self.trace_model))]
        return next((module for module in modules if module.partition(".")[0] != PACKAGE), PACKAGE)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> FittedModel:
        """Read a model folder.

        Raises
        ------
        InputError
            It is no model folder or of another format; a file is missing, damaged or was changed; its parts do not
            fit each other: shapes, types and finiteness of the parameters against the tables of users and places; or
            nobody has registered its synthesizer: import the module that does, which is named, before you load it. It
            is not imported unasked, for a folder could then run anything.
        """
        folder = Path(folder)
        absent = [name for name in MODEL_FILES if not (folder / name).is_file()]
        if absent:
            problem = Problem("a model folder", f"no {', '.join(absent)}", way_out="Make one with `ppmtf fit`")
            raise InputError(str(folder), [problem])
        marked(folder, MODEL, way_out=WAY_OUT)
        about = _read_about(folder / ABOUT_FILE)
        user_ids = _read_users(folder / USERS_FILE)
        places = PlaceTable.from_frame(read_parquet(folder / PLACES_FILE))
        time_grid = TimeGrid.load(folder / GRID_FILE)
        sizes = Sizes(len(user_ids), len(places), time_grid.n_slots, time_grid.n_instants)
        model = _synthesizer_of(about, folder / ABOUT_FILE).model
        trace_model = _read_parameters(folder / PARAMETERS_FILE, model, sizes)
        system, settings, seed, given = (about[name] for name in ("system", "settings", "seed", "seed_given"))
        return cls(system, settings, check_seed(seed), user_ids, places, time_grid, trace_model, given)


def _read_about(file: Path) -> dict[str, Any]:
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        found = about.get("format")
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(str(file), [Problem("a readable model.json", str(error), way_out=WAY_OUT)]) from error
    if found != MODEL_FORMAT:
        raise InputError(str(file), [Problem(f"a model of format {MODEL_FORMAT}", f"format {found}", way_out=WAY_OUT)])
    absent = [name for name in ("system", "settings", "seed", "seed_given") if name not in about]
    if absent:
        raise InputError(str(file), [Problem("all of a model.json", f"no {', '.join(absent)}", way_out=WAY_OUT)])
    return about


def _synthesizer_of(about: dict[str, Any], file: Path) -> Synthesizer:
    """The synthesizer of a model, whose module has to be imported where it is none of the package."""
    system, module = about["system"], about.get("module", PACKAGE)
    if system in SYNTHESIZERS:
        return SYNTHESIZERS[system]
    unnamed = {PACKAGE: "the module that registers it", "__main__": "the script or notebook that registers it"}
    what = unnamed.get(module, f"module {module}, which registers it")
    way_out = f"Import or run {what}, before the model is loaded"
    known = ", ".join(SYNTHESIZERS)
    raise InputError(str(file), [Problem(f"a synthesizer among {known}", repr(system), way_out=way_out)])


def _read_users(file: Path) -> np.ndarray:
    table = read_parquet(file)
    if list(table) != ["user"] or not len(table):
        raise InputError(str(file), [Problem("a column 'user' with at least one id", ", ".join(map(str, table)))])
    repeated = table["user"].duplicated()
    if repeated.any():
        examples = first_examples(table.loc[repeated, "user"].tolist())
        problem = Problem("every user once", "repeated ids", int(repeated.sum()), examples, WAY_OUT)
        raise InputError(str(file), [problem])
    return table["user"].to_numpy()


def _read_parameters(path: Path, model: type[TraceModel], sizes: Sizes) -> TraceModel:
    try:
        # Opened here: NumPy leaves a damaged file open.
        with open(path, "rb") as file, np.load(file) as stored:
            arrays = dict(stored)
        problems = array_problems(arrays, model.stored_arrays(sizes), sizes)
        if problems:
            raise InputError(str(path), problems)
        return model.from_arrays(arrays)
    except InputError:
        raise
    except (OSError, EOFError, ValueError, TypeError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(str(path), [Problem(f"parameters of {model.__name__}", str(error))]) from error


def complete_places(model: FittedModel, traces: Traces) -> tuple[np.ndarray, np.ndarray]:
    """User index (in the model) and places of traces that have an event at every instant of the model's grid.

    Returns
    -------
    users : int array, shape (traces,)
    places : int array, shape (traces, instants)

    Raises
    ------
    InputError
        Another grid or place table, users that the model does not know, or traces with missing events, whose
        likelihood is not a product of steps.
    """
    problems = []
    if traces.time_grid != model.time_grid:
        problems.append(Problem("traces on the model's time grid", "another time grid"))
    if not np.array_equal(traces.places.ids, model.places.ids):
        problems.append(Problem("traces over the model's places", "another place table"))
    events = np.bincount(traces.trace_of_event())
    if (events != model.time_grid.n_instants).any():
        n_short = int((events != model.time_grid.n_instants).sum())
        problems.append(Problem("an event at every instant", f"{n_short} traces with missing events"))
    if problems:
        raise InputError("synthetic traces", problems)
    users = model.user_index(traces.user_ids)[traces.trace_table()[0]]
    return users, traces.place.reshape(-1, model.time_grid.n_instants)


def grid_problems(model: FittedModel, traces: Traces) -> list[Problem | str]:
    """Why a model cannot be applied to traces: they are of other places or instants than it was learned from."""
    problems: list[Problem | str] = []
    if traces.time_grid.one_period() != model.time_grid:
        problems.append(Problem("traces on the time grid that the model was learned from", "another time grid"))
    if not np.array_equal(traces.places.ids, model.places.ids):
        problems.append(Problem("traces over the model's places", "another place table"))
    return problems


def check_origin(model: FittedModel, traces: Traces) -> Origin:
    """The origin of traces that the model made.

    Raises
    ------
    InputError
        They are not synthetic, or another model made them.
    """
    way_out = "Test what was synthesized from this very model; `model.claim(traces)` vouches for traces made elsewhere"
    if traces.origin is None:
        raise InputError("synthetic traces", [Problem("traces made by the model", "others", way_out=way_out)])
    if traces.origin.model != model.checksum:
        found = f"those of another one ({traces.origin.model[:12]}, not {model.checksum[:12]})"
        raise InputError("synthetic traces", [Problem("traces made by the model", found, way_out=way_out)])
    return traces.origin
