"""The central abstraction of the library: a trace model gives each user a distribution of traces.

Every synthesizer fits a trace model. A `TraceModel` can be sampled. A `ScoredTraceModel` has a distribution of the
first place and, for each instant, of the next place given the current place, and gives their log-probabilities. The
traces of a `PersonModel` have a memory: each is that of a new synthetic person. Synthesis, likelihoods and the
plausible-deniability test are written only once, for these classes.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from dataclasses import Field, field, fields, replace
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.errors import Problem, first_examples
from ppmtf_jax.runtime.devices import round_up

# One key, one index (of a user, place, instant or slot), and the indices of many steps.
OneKey = Key[Array, ""]
Index = Int[Array, ""]
Steps = Int[Array, " step"]
Model = TypeVar("Model", bound="TraceModel")
ROUNDED = 2
"""Number of lengths between powers of two to which `TraceModel.rounded` rounds."""
ABSENT = -1
"""In an array of places: no event at this instant."""


class Sizes(NamedTuple):
    """Numbers of users, places, slots, and instants of one synthetic trace, which stored arrays must match."""

    users: int
    places: int
    slots: int
    instants: int


class StoredArray(NamedTuple):
    """Specification of an array in a model folder."""

    # Lengths of the axes: numbers, fields of `Sizes`, or other names. The same name means the same length.
    shape: tuple[int | str, ...]
    kind: Literal["float", "int"] = "float"
    # `low`, `high`: smallest and largest value allowed.
    low: float = -np.inf
    high: float = np.inf
    rises: bool = False  # whether every value must be at least the previous value
    optional: bool = False  # whether the array may be missing


def stored(array: Callable[[Sizes], StoredArray], **options: Any) -> Any:
    """A dataclass field of a trace model that a model folder stores; `options` as for `dataclasses.field`.

    `array` gives the specification of the stored array. With the option `static=True` the field is a Python number,
    which JAX compiles into its programs.
    """
    static = {"static": options.pop("static", False)}
    return field(metadata={"stored": array, **static}, **options)


class TraceModel(abc.ABC):
    """A distribution of traces for each user.

    A trace model is a dataclass and a JAX pytree; all methods that take a user can be vmapped. Users, places and
    instants are indices; the first event is at instant 0. A model folder holds the fields that are declared by
    `stored`; a model with other arrays overrides `to_arrays`, `from_arrays` and `stored_arrays`.

    Examples
    --------
    ::

        @jax.tree_util.register_dataclass
        @dataclass(frozen=True, eq=False)
        class Places(TraceModel):
            first: Float[Array, " place"] = stored(lambda n: StoredArray((n.places,), low=0, high=1))
    """

    goes_on: ClassVar[bool] = False
    """Whether a trace may last any number of periods; otherwise it lasts as long as `grid_of_trace`."""

    has_gaps: ClassVar[bool] = False
    """Whether a trace may have instants without an event, which are `ABSENT`."""

    completed_as: ClassVar[Literal["chain", "person"] | None] = None
    """How gaps of a trace are filled: each period as a chain, several periods as one person, or not at all."""

    padded: ClassVar[tuple[str, ...]] = ()
    """Axes of stored arrays, such as "clusters", that `rounded` makes longer."""

    of_nobody: ClassVar[bool] = False
    """Whether the model knows no users: each trace is that of a new synthetic person, and `sample_trace` gets the
    number of the person in place of a user. A differentially private one has a `ledger`."""

    @abc.abstractmethod
    def sample_trace(self, key: OneKey, user: Index, n_instants: int) -> Int[Array, " instant"]:
        """Draw the places of a trace at the first `n_instants` instants, int32."""

    def draw_trace(self, key: OneKey, user: Index, number: Index, n_instants: int) -> Int[Array, " instant"]:
        """Draw trace `number` of a user; `key` is the same for all users and traces."""
        return self.sample_trace(jax.random.fold_in(jax.random.fold_in(key, user), number), user, n_instants)

    @classmethod
    def grid_of_trace(cls, grid: TimeGrid) -> TimeGrid:
        """Time grid of a synthetic trace of a model that was learned from traces on `grid`: one period by default."""
        return grid.one_period()

    def summary(self) -> list[str]:
        """Sentences about the model for people, such as what was chosen and why."""
        return []

    @property
    def settings_found(self) -> dict[str, Any]:
        """Settings that `fit` chose itself, by name."""
        return {}

    def ledger(self) -> dict[str, Any] | None:
        """What differential privacy cost, as `noise.accountant.Ledger.ledger` states it; None for a model without."""
        return None

    def rounded(self: Model) -> Model:
        """The same model with the axes in `padded` lengthened to rounded sizes, so that similar models share programs.

        The last entry of each axis is repeated. Nothing refers to the added entries, so the traces do not change.
        """
        longer = {}
        for name, what in self.stored_arrays(Sizes(0, 0, 0, 0)).items():
            value = getattr(self, name)
            if value is not None and not set(self.padded).isdisjoint(what.shape):
                ends = zip(what.shape, value.shape, strict=True)
                missing = [(0, round_up(n, ROUNDED) - n if axis in self.padded else 0) for axis, n in ends]
                longer[name] = jnp.asarray(np.pad(np.asarray(value), missing, mode="edge"))
        return replace(self, **longer)  # type: ignore[type-var]

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The arrays that a model folder stores; fields that are None are left out."""
        values = {each.name: getattr(self, each.name) for each in self._stored()}
        return {name: np.asarray(value) for name, value in values.items() if value is not None}

    @classmethod
    def from_arrays(cls: type[Model], arrays: dict[str, np.ndarray]) -> Model:
        """The inverse of `to_arrays`."""
        static = {each.name for each in cls._stored() if each.metadata["static"]}
        return cls(**{name: array.item() if name in static else jnp.asarray(array) for name, array in arrays.items()})

    @classmethod
    def stored_arrays(cls, sizes: Sizes) -> dict[str, StoredArray]:
        """Specification of each array of `to_arrays`; loading refuses a folder whose arrays do not match.

        JAX would not notice wrong arrays: it clamps indices that are out of range, and NaN spreads.
        """
        return {each.name: each.metadata["stored"](sizes) for each in cls._stored()}

    @classmethod
    def _stored(cls) -> list[Field]:
        return [each for each in fields(cls) if "stored" in each.metadata]  # type: ignore[arg-type]


class ScoredTraceModel(TraceModel):
    """A time-inhomogeneous Markov chain over places for each user, whose log-probabilities are known."""

    completed_as: ClassVar = "chain"

    @abc.abstractmethod
    def sample_first(self, key: OneKey, user: Index) -> Index:
        """Draw the place at instant 0."""

    @abc.abstractmethod
    def sample_next(self, key: OneKey, user: Index, instant: Index, place: Index) -> Index:
        """Draw the place at `instant`, given the place at the previous instant."""

    def sample_trace(self, key: OneKey, user: Index, n_instants: int) -> Int[Array, " instant"]:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(n_instants))

        def advance(place: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
            following = self.sample_next(step[0], user, step[1], place)
            return following, following

        first = self.sample_first(keys[0], user).astype(jnp.int32)
        rest = jax.lax.scan(advance, first, (keys[1:], jnp.arange(1, n_instants)))[1]
        return jnp.concatenate([first[None], rest])

    @abc.abstractmethod
    def user_cache(self, users: Int[Array, " user"]) -> Any:
        """Precomputed arrays for the log-probabilities of some users, with the users along the last axis.

        The users are the last axis, so that a block of users is contiguous in memory and is computed in parallel.
        """

    @abc.abstractmethod
    def log_first(self, cache: Any, place: Index) -> Float[Array, ""]:
        """Log-probability of `place` at instant 0, given the cache of one user."""

    @abc.abstractmethod
    def log_next(self, cache: Any, instant: Index, place: Index, next_place: Index) -> Float[Array, ""]:
        """Log-probability of `next_place` at `instant`, given the previous place and the cache of one user."""

    # The remaining methods are for speed: a model overrides them if it has a faster way than the default.

    def user_classes(self, n_users: int) -> Int[np.ndarray, " user"]:
        """Class number of each user; if two users have the same number, every trace is equally probable for both.

        The plausible-deniability test relies on this: it counts all users of a class as plausible if one of them is.
        """
        return np.arange(n_users)

    def instant_classes(self, n_instants: int) -> np.ndarray:
        """Class number of each instant; if two instants have the same number, their step probabilities are equal."""
        return np.arange(n_instants)

    def log_moves(self, cache: Any, instants: Steps, places: Steps, next_places: Steps) -> Float[Array, "step user"]:
        """`log_next` of many steps, each to another place, for all users of the cache."""
        over_users = jax.vmap(self.log_next, (-1, None, None, None))
        return jax.vmap(over_users, (None, 0, 0, 0))(cache, instants, places, next_places)

    def log_stays(self, cache: Any, instants: Steps, places: Steps) -> Float[Array, "step user"]:
        """`log_next` of many steps that stay, sorted by place, for all users of the cache."""
        return self.log_moves(cache, instants, places, places)

    def log_own_steps(
        self, cache: Any, which: Int[Array, " trace"], places: Int[Array, "trace instant"]
    ) -> Float[Array, "trace instant"]:
        """`log_first` and `log_next` of the steps of each trace, under one user each.

        Here the users are the first axis of the cache; `which` has the position of each trace's user.
        """
        instants = jnp.arange(1, places.shape[1])

        def one(pair: tuple[Array, Array]) -> Array:
            table, trace = jax.tree.map(lambda leaf: leaf[pair[0]], cache), pair[1]
            rest = jax.vmap(self.log_next, (None, 0, 0, 0))(table, instants, trace[:-1], trace[1:])
            return jnp.append(self.log_first(table, trace[0]), rest)

        return jax.lax.map(one, (which, places))


def array_problems(
    arrays: Mapping[str, np.ndarray], expected: Mapping[str, StoredArray], sizes: Sizes
) -> list[Problem]:
    """All problems of the arrays of a model folder: wrong names, kinds, shapes or values."""
    problems = []
    missing = [name for name, array in expected.items() if name not in arrays and not array.optional]
    if missing or arrays.keys() - expected.keys():
        found = ", ".join(sorted(arrays)) or "none"
        problems.append(Problem(f"arrays {', '.join(sorted(expected))}", found))
    lengths: dict[str, int] = dict(sizes._asdict())
    for name, what in expected.items():
        if name not in arrays:
            continue
        array = np.asarray(arrays[name])
        if not np.issubdtype(array.dtype, np.floating if what.kind == "float" else np.integer):
            problems.append(Problem(f"{name!r} of {what.kind} numbers", str(array.dtype)))
            continue
        if array.ndim == len(what.shape):
            for length, size in zip(array.shape, what.shape, strict=True):
                if isinstance(size, str):
                    lengths.setdefault(size, length)
        shape = tuple(lengths.get(size, "any") if isinstance(size, str) else size for size in what.shape)
        if array.shape != shape:
            problems.append(Problem(f"{name!r} of shape {shape}", str(array.shape)))
        flat = array.ravel()
        for rule, bad in (
            (f"finite numbers in {name!r}", ~np.isfinite(flat)),
            (f"{name!r} from {what.low:g} to {what.high:g}", (flat < what.low) | (flat > what.high)),
            (f"numbers in {name!r} that do not fall", np.append(False, flat[1:] < flat[:-1])[: len(flat)] & what.rises),
        ):
            if bad.any():
                examples = first_examples(flat[np.flatnonzero(bad)[:5]].tolist())
                problems.append(Problem(rule, "others", int(bad.sum()), examples))
    return problems


class PersonModel(TraceModel):
    """A distribution of whole traces for each class of users; the next place may depend on all places before it.

    A trace depends on its user only through their class, so every trace is equally probable for all users of a class.
    Each trace belongs to a new synthetic person, who is no user, and whose properties (such as their home) are drawn
    for this trace. `sample_trace` may return `ABSENT` for an instant without an event, but no trace is empty.
    """

    has_gaps: ClassVar[bool] = True

    cluster: Int[Array, " user"]
    """Class number of each user: 0, 1, ... without gaps. Subclasses declare it as a stored field."""

    def user_classes(self, n_users: int) -> Int[np.ndarray, " user"]:
        """The users' clusters: every trace is equally probable for all users of a cluster."""
        return np.asarray(self.cluster)[:n_users]

    @abc.abstractmethod
    def log_traces(
        self, places: Int[np.ndarray, "trace instant"], classes: Int[np.ndarray, " class"], *, progress: bool = False
    ) -> Float[np.ndarray, "trace class"]:
        """Exact log-probability (float64) of each whole trace under each of the classes.

        `places`: `ABSENT` at instants without an event. Minus infinity if the model cannot make the trace.
        """

    def log_own_class(
        self, places: Int[np.ndarray, "trace instant"], own_class: Int[np.ndarray, " trace"], *, progress: bool = False
    ) -> Float[np.ndarray, " trace"]:
        """Log-probability of each trace under its own class only; a model with a faster way overrides this method."""
        own = np.empty(len(places))
        for each in np.unique(own_class):
            rows = np.flatnonzero(own_class == each)
            own[rows] = self.log_traces(places[rows], np.array([each]), progress=progress)[:, 0]
        return own


LikelihoodModel = ScoredTraceModel | PersonModel
"""Trace models whose traces have a known probability."""
