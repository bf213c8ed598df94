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

from ppmtf_jax.devices import gather_rows, own_share
from ppmtf_jax.errors import InputError, Problem, first_examples
from ppmtf_jax.files import atomic_folder, write_text
from ppmtf_jax.gibbs.run import Checkpoints
from ppmtf_jax.memory import require_memory_to_synthesize
from ppmtf_jax.progress import progress_bar
from ppmtf_jax.threads import map_in_threads, on_each_device
from ppmtf_jax.traces import PlaceTable, TimeGrid, Traces, read_parquet

# Users are generated in tiles of this size whatever the batch, so that the products have one shape and the traces do
# not depend on how users are batched.
TILE = 64
# Users whose tables are made together, and steps looked at together: what is made in between fits a core's cache.
USERS_AT_A_TIME = 64
CHUNK = 512
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
    def tables(self, users: Int[Array, " user"]) -> Any:
        """What the log-probabilities of some users need again and again: arrays with the users along the last axis.

        So that what is done for a block of users is done side by side, and moves as one piece of memory.
        """

    @abc.abstractmethod
    def log_first(self, tables: Any, place: Int[Array, ""]) -> Float[Array, ""]:
        """Log-probability of `place` at instant 0, given the tables of one user."""

    @abc.abstractmethod
    def log_next(
        self, tables: Any, instant: Int[Array, ""], place: Int[Array, ""], next_place: Int[Array, ""]
    ) -> Float[Array, ""]:
        """Log-probability of `next_place` at `instant`, given `place` before and the tables of one user."""

    # The rest is for speed: a model that can do better than the default overrides it.

    def phases(self, n_instants: int) -> np.ndarray:
        """A number for each instant; where two have the same, steps at them are equally probable for every user."""
        return np.arange(n_instants)

    def log_moves(
        self,
        tables: Any,
        instants: Int[Array, " step"],
        places: Int[Array, " step"],
        next_places: Int[Array, " step"],
    ) -> Float[Array, "step user"]:
        """`log_next` of many steps, each to another place, for all users of the tables."""
        over_users = jax.vmap(self.log_next, (-1, None, None, None))
        return jax.vmap(over_users, (None, 0, 0, 0))(tables, instants, places, next_places)

    def log_stays(
        self, tables: Any, instants: Int[Array, " step"], places: Int[Array, " step"]
    ) -> Float[Array, "step user"]:
        """`log_next` of many steps that stay, sorted by place, for all users of the tables."""
        return self.log_moves(tables, instants, places, places)

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
    on how many traces are made. Several processes share the users, and all get the same traces; see `join_processes`.

    Returns
    -------
    Traces
        With the input users' ids; trace numbers 0 to `traces_per_user` - 1.
    """
    if traces_per_user < 1 or batch_users < 1:
        found = f"{traces_per_user} traces per user, {batch_users} users at a time"
        raise InputError("synthesize", [Problem("at least one of each", found)])
    n_users, n_instants = model.n_users, model.time_grid.n_instants
    require_memory_to_synthesize(n_users, traces_per_user, n_instants)
    key, trace_model = jax.random.key(seed), on_each_device(model.trace_model)
    # Batches and shares are of whole tiles: how a user's numbers are rounded can depend on her place in the tile.
    own_users = np.arange(n_users)[own_share(n_users, TILE)]
    # Batches of one size, so that one program is compiled.
    n_batches = -(-len(own_users) // batch_users)
    batch_users = -(-len(own_users) // (n_batches * TILE)) * TILE
    place = np.empty((len(own_users), traces_per_user, n_instants), np.int32)
    with progress_bar("synthesizing", len(own_users) * traces_per_user, show=progress) as advance:
        jobs = [(users, number) for users in _batches(own_users, batch_users) for number in range(traces_per_user)]

        def draw(job: tuple[np.ndarray, int]) -> np.ndarray:
            users, number = job
            tiles = jnp.asarray(np.resize(users, batch_users).reshape(-1, TILE))
            drawn = _sample_tiles(key, trace_model(), tiles, number, n_instants)
            return np.asarray(drawn).reshape(-1, n_instants)[: len(users)]

        for (users, number), drawn in zip(jobs, map_in_threads(draw, jobs), strict=True):
            place[users - own_users[0], number] = drawn
            advance(len(users))
    place = gather_rows(place, n_users, TILE)
    user, trace, instant = (index.ravel().astype(np.int32) for index in np.indices(place.shape))
    return Traces(user, trace, instant, place.ravel(), model.user_ids, model.places, model.time_grid)


def step_log_probabilities(
    model: TraceModel, users: np.ndarray, places: np.ndarray, *, progress: bool = False
) -> np.ndarray:
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
    sorted_users = users[order]
    # Blocks of users, and never part of a user's traces: tables are made once for each user.
    distinct, begin = np.unique(sorted_users, return_index=True)
    begin = np.append(begin, len(users))
    blocks = list(_batches(np.arange(len(distinct)), USERS_AT_A_TIME))
    # All blocks of one size, so that one program is compiled.
    size = padded_size(int(max(begin[block[-1] + 1] - begin[block[0]] for block in blocks)))
    here = on_each_device(model)

    def of_block(block: np.ndarray) -> np.ndarray:
        rows = order[begin[block[0]] : begin[block[-1] + 1]]
        which = np.searchsorted(distinct[block], users[rows])
        padded = np.resize(np.arange(len(rows)), size)
        ids = np.resize(distinct[block], USERS_AT_A_TIME)
        steps = _own_steps(here(), jnp.asarray(ids), jnp.asarray(which[padded]), jnp.asarray(places[rows[padded]]))
        return np.asarray(steps)[: len(rows)]

    computed = []
    with progress_bar("likelihoods of the traces", len(distinct), show=progress) as advance:
        for block, steps in zip(blocks, map_in_threads(of_block, blocks), strict=True):
            computed.append(steps)
            advance(len(block))
    result = np.empty(places.shape, computed[0].dtype)
    result[order] = np.concatenate(computed)
    return result


class Steps(NamedTuple):
    """The distinct steps of some traces: what their likelihoods under many users consist of.

    Attributes
    ----------
    first_place : (firsts,)
        Places at instant 0.
    stay_instant, stay_place : (stays,), sorted by place
    move_instant, move_place, move_next_place : (moves,)
    """

    first_place: np.ndarray
    stay_instant: np.ndarray
    stay_place: np.ndarray
    move_instant: np.ndarray
    move_place: np.ndarray
    move_next_place: np.ndarray


def distinct_steps(model: TraceModel, places: np.ndarray) -> tuple[Steps, np.ndarray]:
    """The distinct steps of complete traces, and which of them a trace consists of.

    Parameters
    ----------
    places : int array, shape (traces, instants)

    Returns
    -------
    steps : Steps
        Padded by repetition to few sizes, so that few programs are compiled.
    rows : int array, shape (traces, instants)
        Where each event is in the firsts, stays and moves, one after another.
    """
    n_places = int(places.max()) + 1
    # The first instant of each phase stands for all of them.
    _, representative, phase = np.unique(model.phases(places.shape[1])[1:], return_index=True, return_inverse=True)
    instant = (representative + 1)[phase]
    first, first_row = np.unique(places[:, 0], return_inverse=True)
    before, after = places[:, :-1].astype(np.int64), places[:, 1:]
    stays = before == after
    stay, stay_row = np.unique(((before * places.shape[1]) + instant)[stays], return_inverse=True)
    moves = (instant * n_places + before) * n_places + after
    move, move_row = np.unique(moves[~stays], return_inverse=True)
    first, stay, move = (_padded(keys) for keys in (first, stay, move))
    rows = np.empty(places.shape, np.int32)
    rows[:, 0] = first_row
    rows[:, 1:][stays] = len(first) + stay_row
    rows[:, 1:][~stays] = len(first) + len(stay) + move_row
    stay_place, stay_instant = np.divmod(stay, places.shape[1])
    rest, next_place = np.divmod(move, n_places)
    move_instant, place = np.divmod(rest, n_places)
    columns = (first, stay_instant, stay_place, move_instant, place, next_place)
    return Steps(*(column.astype(np.int32) for column in columns)), rows


def log_step_table(
    model: TraceModel, users: Int[Array, " user"], steps: Steps, table: Float[Array, "row user"]
) -> Float[Array, "row user"]:
    """Log-probability of every step under every user, in the order that `distinct_steps` counts them.

    `table`, which `empty_step_table` makes, is written over: a large table costs more to allocate than to fill.
    """
    tables = model.tables(users)
    first = _log_firsts(model, tables, steps)
    stays = model.log_stays(tables, steps.stay_instant, steps.stay_place)
    n_first, n_stays, n_moves = len(first), len(stays), len(steps.move_place)
    table = table.at[:n_first].set(first).at[n_first : n_first + n_stays].set(stays)
    # In chunks, so that what is made in between stays in the cache, and each into its place, which saves a copy.
    chunk = CHUNK if n_moves % CHUNK == 0 else n_moves

    def write(number: Array, table: Array) -> Array:
        begin = number * chunk
        of_chunk = (
            jax.lax.dynamic_slice_in_dim(column, begin, chunk)
            for column in (steps.move_instant, steps.move_place, steps.move_next_place)
        )
        rows = model.log_moves(tables, *of_chunk).astype(table.dtype)
        return jax.lax.dynamic_update_slice_in_dim(table, rows, n_first + n_stays + begin, 0)

    return jax.lax.fori_loop(0, n_moves // chunk, write, table) if n_moves else table


def empty_step_table(model: TraceModel, n_users: int, steps: Steps) -> Float[Array, "row user"]:
    """Room for `log_step_table`."""
    n_rows = len(steps.first_place) + len(steps.stay_place) + len(steps.move_place)
    first = jax.eval_shape(lambda users: _log_firsts(model, model.tables(users), steps), jnp.zeros(n_users, jnp.int32))
    return jnp.zeros((n_rows, n_users), first.dtype)


def _log_firsts(model: TraceModel, tables: Any, steps: Steps) -> Float[Array, "step user"]:
    return jax.vmap(jax.vmap(model.log_first, (-1, None)), (None, 0))(tables, steps.first_place)


def sum_of_rows(table: Float[Array, "row user"], rows: Int[Array, "trace instant"]) -> Float[Array, "trace user"]:
    """Log-likelihood of traces from the table of their steps, added up in the order of time."""
    total = table[rows[:, 0]]
    for instant in range(1, rows.shape[1]):
        total = total + table[rows[:, instant]]
    return total


def pairwise_log_likelihood(
    model: TraceModel, users: Int[np.ndarray, " user"], places: Int[np.ndarray, "trace instant"]
) -> Float[np.ndarray, "trace user"]:
    """Log-likelihood of each complete trace under each of the users."""
    here = on_each_device((model, *distinct_steps(model, places)))

    def of_block(block: np.ndarray) -> np.ndarray:
        model, steps, rows = here()
        padded = jnp.asarray(np.resize(block, USERS_AT_A_TIME))
        return np.asarray(_log_likelihoods(model, padded, steps, rows))[:, : len(block)]

    return np.concatenate(list(map_in_threads(of_block, _batches(users, USERS_AT_A_TIME))), axis=1)


@jax.jit
def _log_likelihoods(model: TraceModel, users: Array, steps: Steps, rows: Array) -> Float[Array, "trace user"]:
    table = empty_step_table(model, len(users), steps)
    return sum_of_rows(log_step_table(model, users, steps, table), rows)


@jax.jit
def _own_steps(
    model: TraceModel, users: Int[Array, " user"], which: Int[Array, " trace"], places: Int[Array, "trace instant"]
) -> Float[Array, "trace instant"]:
    tables = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), model.tables(users))
    instants = jnp.arange(1, places.shape[1])

    def one(pair: tuple[Array, Array]) -> Array:
        table, trace = jax.tree.map(lambda leaf: leaf[pair[0]], tables), pair[1]
        rest = jax.vmap(model.log_next, (None, 0, 0, 0))(table, instants, trace[:-1], trace[1:])
        return jnp.concatenate([model.log_first(table, trace[0])[None], rest])

    return jax.lax.map(one, (which, places))


def padded_size(size: int) -> int:
    """The next of 0, 16, 24, 32, 48, 64, 96, ...: few sizes, and at most half as much again."""
    if not size:
        return 0
    power = 1 << max(4, (size - 1).bit_length())
    return power * 3 // 4 if size <= power * 3 // 4 and power > 16 else power


def _padded(keys: np.ndarray) -> np.ndarray:
    """Sorted keys with the last one repeated."""
    return np.pad(keys, (0, padded_size(len(keys)) - len(keys)), mode="edge") if len(keys) else keys


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
