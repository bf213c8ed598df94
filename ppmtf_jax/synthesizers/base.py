"""The one abstraction of the library: a trace model, and what is written once against it.

A synthesizer ends in a `TraceModel`: for each user, a distribution of the first place and, per instant, of the next
place given the current one, in two forms, *sample* and *log-probability*. The generator and the exact likelihoods
below, the plausible-deniability test and everything later work on that alone. A module of this package that defines a
trace model registers it with `register`; nothing else has to change.
"""

from __future__ import annotations

import abc
import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Int, Key

from ppmtf_jax.errors import InputError, Problem, first_examples
from ppmtf_jax.files import atomic_folder, write_text
from ppmtf_jax.gibbs.run import Checkpoints
from ppmtf_jax.progress import progress_bar
from ppmtf_jax.traces import PlaceTable, TimeGrid, Traces, read_parquet

# Users are generated in tiles of this size whatever the batch, so that the products have one shape and the traces do
# not depend on how users are batched.
TILE = 64
MODEL_FORMAT = 1
MODEL_FILES = ("time_grid.json", "users.parquet", "places.parquet", "parameters.npz")


class TraceModel(abc.ABC):
    """For each user a Markov chain over places, inhomogeneous in time. A JAX pytree; all methods can be vmapped.

    Users, places and instants are indices; instant 0 is that of the first event.
    """

    @abc.abstractmethod
    def sample_first(self, key: Key[Array, ""], user: Int[Array, ""]) -> Int[Array, ""]:
        """Draw the place at instant 0."""

    @abc.abstractmethod
    def sample_next(
        self, key: Key[Array, ""], user: Int[Array, ""], instant: Int[Array, ""], place: Int[Array, ""]
    ) -> Int[Array, ""]:
        """Draw the place at `instant`, given `place` at the instant before."""

    @abc.abstractmethod
    def tables(self, user: Int[Array, ""]) -> Any:
        """Everything about one user that `log_first` and `log_next` need again and again: a pytree of arrays."""

    @abc.abstractmethod
    def log_first(self, tables: Any, place: Int[Array, ""]) -> Float[Array, ""]:
        """Log-probability of `place` at instant 0."""

    @abc.abstractmethod
    def log_next(
        self, tables: Any, instant: Int[Array, ""], place: Int[Array, ""], next_place: Int[Array, ""]
    ) -> Float[Array, ""]:
        """Log-probability of `next_place` at `instant`, given `place` at the instant before."""

    @abc.abstractmethod
    def to_arrays(self) -> dict[str, np.ndarray]:
        """What a model folder stores."""

    @classmethod
    @abc.abstractmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> TraceModel:
        """The inverse of `to_arrays`."""


class Synthesizer(NamedTuple):
    """A way to learn a trace model.

    Attributes
    ----------
    settings : frozen dataclass type
    fit : function of (training traces, settings, seed, progress, checkpoints), giving the trace model
    model : the trace model's type
    """

    settings: Any
    fit: Callable[[Traces, Any, int, bool, Checkpoints | None], TraceModel]
    model: type[TraceModel]


SYNTHESIZERS: dict[str, Synthesizer] = {}


def register(system: str, synthesizer: Synthesizer) -> None:
    """Make a synthesizer known under the name that users give."""
    SYNTHESIZERS[system] = synthesizer


def synthesizer_named(system: str) -> Synthesizer:
    """Look a synthesizer up; an unknown name is an `InputError` that lists the known ones."""
    if system not in SYNTHESIZERS:
        raise InputError("system", [Problem(f"one of {', '.join(sorted(SYNTHESIZERS))}", repr(system))])
    return SYNTHESIZERS[system]


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A trace model together with what its indices mean. `fit` makes one; a model folder holds one.

    Parameters
    ----------
    system : str
        Name of the synthesizer.
    settings : dict
    seed : int
    user_ids : array, shape (users,)
    places : PlaceTable
    time_grid : TimeGrid
        Grid of one synthetic trace: one period of the training grid.
    trace_model : TraceModel
    """

    system: str
    settings: dict[str, Any]
    seed: int
    user_ids: np.ndarray
    places: PlaceTable
    time_grid: TimeGrid
    trace_model: TraceModel

    @property
    def n_users(self) -> int:
        return len(self.user_ids)

    def user_index(self, ids: np.ndarray) -> np.ndarray:
        """Index of each user id; unknown users are an `InputError`."""
        index = pd.Index(self.user_ids).get_indexer(pd.Index(ids))
        if (index < 0).any():
            unknown = np.asarray(ids)[index < 0]
            problem = Problem("users that the model was trained on", "others", 0, first_examples(unknown.tolist()))
            raise InputError("users", [problem])
        return index

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write a model folder. It holds the parameters, which no privacy test covers: keep it secret."""
        about = {"format": MODEL_FORMAT, "system": self.system, "settings": self.settings, "seed": self.seed}
        with atomic_folder(folder, overwrite=overwrite) as partial_folder:
            write_text(partial_folder / "time_grid.json", self.time_grid.to_json())
            pd.DataFrame({"user": self.user_ids}).to_parquet(partial_folder / "users.parquet", index=False)
            self.places.to_frame().to_parquet(partial_folder / "places.parquet", index=False)
            np.savez(partial_folder / "parameters.npz", **self.trace_model.to_arrays())  # type: ignore[arg-type]
            about["checksums"] = {name: _checksum(partial_folder / name) for name in MODEL_FILES}
            write_text(partial_folder / "model.json", json.dumps(about, indent=1) + "\n")

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> FittedModel:
        """Read a model folder; what is missing, damaged or of another format is an `InputError`."""
        folder = Path(folder)
        absent = [name for name in ("model.json", *MODEL_FILES) if not (folder / name).is_file()]
        if absent:
            problem = Problem("a model folder", f"no {', '.join(absent)}", way_out="Make one with `ppmtf fit`")
            raise InputError(str(folder), [problem])
        about = _read_about(folder / "model.json")
        # A factor with rows missing would not fail: an index out of range is clamped.
        changed = [name for name in MODEL_FILES if _checksum(folder / name) != about["checksums"].get(name)]
        if changed:
            problem = Problem("the files as they were saved", f"{', '.join(changed)} changed", way_out="Fit it again")
            raise InputError(str(folder), [problem])
        return cls(
            about["system"],
            about["settings"],
            about["seed"],
            read_parquet(folder / "users.parquet")["user"].to_numpy(),
            PlaceTable.from_frame(read_parquet(folder / "places.parquet")),
            TimeGrid.load(folder / "time_grid.json"),
            _read_parameters(folder / "parameters.npz", synthesizer_named(about["system"]).model),
        )


def _read_about(file: Path) -> dict[str, Any]:
    way_out = "Fit the model again"
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        found = about.get("format")
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(str(file), [Problem("a readable model.json", str(error), way_out=way_out)]) from error
    if found != MODEL_FORMAT:
        raise InputError(str(file), [Problem(f"a model of format {MODEL_FORMAT}", f"format {found}", way_out=way_out)])
    absent = [name for name in ("system", "settings", "seed", "checksums") if name not in about]
    if absent:
        raise InputError(str(file), [Problem("all of a model.json", f"no {', '.join(absent)}", way_out=way_out)])
    return about


def _checksum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read_parameters(path: Path, model: type[TraceModel]) -> TraceModel:
    try:
        # Opened here: NumPy leaves a damaged file open.
        with open(path, "rb") as file, np.load(file) as stored:
            return model.from_arrays(dict(stored))
    except (OSError, EOFError, ValueError, TypeError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(str(path), [Problem(f"parameters of {model.__name__}", str(error))]) from error


def fit(
    train: Traces,
    system: str = "ppmtf",
    settings: Any = None,
    *,
    seed: int = 0,
    progress: bool = False,
    checkpoints: Checkpoints | None = None,
) -> FittedModel:
    """Learn a generative model of traces.

    Parameters
    ----------
    train : Traces
    system : str
        "ppmtf", "sgd" or "uniform".
    settings : the system's settings, such as `PPMTFSettings`; None for its defaults
    seed : int
        Reproduces the fit.
    progress : bool
        Show a progress bar where there is a terminal.
    checkpoints : Checkpoints, optional
        For a long fit: where to write its state, and to go on from.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> model = fit(toy_city(n_users=20, seed=0).traces, "sgd", seed=0)
    >>> synthesize(model, traces_per_user=2, seed=1).n_users
    20
    """
    synthesizer = synthesizer_named(system)
    settings = synthesizer.settings() if settings is None else settings
    if not isinstance(settings, synthesizer.settings):
        found = type(settings).__name__
        raise InputError("settings", [Problem(f"{synthesizer.settings.__name__} for {system}", found)])
    trace_model = synthesizer.fit(train, settings, seed, progress, checkpoints)
    grid = train.time_grid.one_period()
    return FittedModel(system, asdict(settings), seed, train.user_ids, train.places, grid, trace_model)


def synthesize(
    model: FittedModel, traces_per_user: int = 1, *, seed: int = 0, batch_users: int = 4096, progress: bool = False
) -> Traces:
    """Synthesize traces from every user of a model, one event at every instant of the model's grid.

    A trace depends on the seed, its user and its number alone: neither on `batch_users`, which bounds the memory, nor
    on how many traces are made.

    Returns
    -------
    Traces
        With the input users' ids; trace numbers 0 to `traces_per_user` - 1.
    """
    if traces_per_user < 1 or batch_users < 1:
        found = f"{traces_per_user} traces per user, {batch_users} users at a time"
        raise InputError("synthesize", [Problem("at least one of each", found)])
    n_users, n_instants = model.n_users, model.time_grid.n_instants
    key = jax.random.key(seed)
    place = np.empty((n_users, traces_per_user, n_instants), np.int32)
    with progress_bar("synthesizing", n_users * traces_per_user, show=progress) as advance:
        for users in _batches(np.arange(n_users), batch_users):
            tiles = jnp.asarray(_pad_to_tiles(users).reshape(-1, TILE))
            for number in range(traces_per_user):
                drawn = _sample_tiles(key, model.trace_model, tiles, number, n_instants)
                place[users, number] = np.asarray(drawn).reshape(-1, n_instants)[: len(users)]
                advance(len(users))
    user, trace, instant = (index.ravel().astype(np.int32) for index in np.indices(place.shape))
    return Traces(user, trace, instant, place.ravel(), model.user_ids, model.places, model.time_grid)


def step_log_probabilities(model: TraceModel, users: np.ndarray, places: np.ndarray, *, batch: int = 512) -> np.ndarray:
    """Log-probability of each event of complete traces, each under its own user.

    Parameters
    ----------
    users : int array, shape (traces,)
    places : int array, shape (traces, instants)

    Returns
    -------
    float array, shape (traces, instants)
        Its sum over instants is the trace's log-likelihood.
    """
    order = np.argsort(users, kind="stable")
    blocks = []
    for rows in _batches(order, batch):
        distinct, which = np.unique(users[rows], return_inverse=True)
        padded = np.resize(distinct, -(-len(distinct) // 16) * 16)
        tables = user_tables(model, jnp.asarray(padded))
        padded_rows = np.resize(np.arange(len(rows)), batch)
        steps = _own_steps(model, tables, jnp.asarray(which[padded_rows]), jnp.asarray(places[rows[padded_rows]]))
        blocks.append(np.asarray(steps)[: len(rows)])
    result = np.empty(places.shape, blocks[0].dtype)
    result[order] = np.concatenate(blocks)
    return result


@jax.jit
def user_tables(model: TraceModel, users: Int[Array, " user"]) -> Any:
    """`model.tables` of several users, with a leading user axis."""
    return jax.lax.map(model.tables, users)


@jax.jit
def pairwise_log_likelihood(
    model: TraceModel, tables: Any, places: Int[Array, "trace instant"]
) -> Float[Array, "trace user"]:
    """Log-likelihood of each complete trace under each of the users whose tables are given."""
    of_users = jax.vmap(lambda table: jax.vmap(lambda trace: _steps_of(model, table, trace).sum())(places))
    return of_users(tables).T


@jax.jit
def _own_steps(
    model: TraceModel, tables: Any, which: Int[Array, " trace"], places: Int[Array, "trace instant"]
) -> Float[Array, "trace instant"]:
    def one(index: Array, trace: Array) -> Array:
        return _steps_of(model, jax.tree.map(lambda leaf: leaf[index], tables), trace)

    return jax.lax.map(lambda pair: one(*pair), (which, places), batch_size=32)


def _steps_of(model: TraceModel, table: Any, trace: Int[Array, " instant"]) -> Float[Array, " instant"]:
    first = model.log_first(table, trace[0])
    instants = jnp.arange(1, trace.shape[0])
    rest = jax.vmap(model.log_next, (None, 0, 0, 0))(table, instants, trace[:-1], trace[1:])
    return jnp.concatenate([first[None], rest])


@partial(jax.jit, static_argnames="n_instants")
def _sample_tiles(
    key: Key[Array, ""],
    model: TraceModel,
    tiles: Int[Array, "tile user"],
    number: int | Int[Array, ""],
    n_instants: int,
) -> Int[Array, "tile user instant"]:
    def sample_trace(user: Array) -> Array:
        own_key = jax.random.fold_in(jax.random.fold_in(key, user), number)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(own_key, jnp.arange(n_instants))

        def advance(place: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
            following = model.sample_next(step[0], user, step[1], place)
            return following, following

        first = model.sample_first(keys[0], user).astype(jnp.int32)
        rest = jax.lax.scan(advance, first, (keys[1:], jnp.arange(1, n_instants)))[1]
        return jnp.concatenate([first[None], rest])

    return jax.lax.map(jax.vmap(sample_trace), tiles)


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


def sample_index(uniform: Float[Array, ""], weight: Float[Array, " place"]) -> Int[Array, ""]:
    """Draw an index with probability proportional to `weight` from one uniform number.

    Two levels of about sqrt(places) each: the sums of blocks, then the chosen block, so that no cumulative sum of the
    whole row is formed.
    """
    n = weight.shape[0]
    width = max(1, int(np.ceil(np.sqrt(n))))
    n_blocks = -(-n // width)
    blocks = jnp.pad(weight, (0, n_blocks * width - n)).reshape(n_blocks, width)
    ends = jnp.cumsum(blocks.sum(axis=1))
    target = uniform * ends[-1]
    block = jnp.minimum(jnp.sum(ends <= target), n_blocks - 1)
    before = jnp.where(block > 0, ends[block - 1], 0)
    within = jnp.cumsum(blocks[block])
    # A compiler may fuse product and difference, and round what was just at the boundary to below it.
    rest = jnp.maximum(target - before, 0)
    # Where rounding carries the target past the end, the last place of positive weight is meant.
    last = width - 1 - jnp.argmax(blocks[block][::-1] > 0)
    return (block * width + jnp.minimum(jnp.sum(within <= rest), last)).astype(jnp.int32)


def _batches(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for first in range(0, len(rows), size):
        yield rows[first : first + size]


def _pad_to_tiles(users: np.ndarray) -> np.ndarray:
    return np.resize(users, -(-len(users) // TILE) * TILE)
