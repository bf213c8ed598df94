"""The one abstraction of the library: a trace model, in what can be sampled and what can be scored.

A synthesizer ends in a trace model: for each user, a distribution of traces. All that can be sampled is a `TraceModel`.
Most are a `MarkovModel`: a distribution of the first place and, per instant, of the next place given the current one;
where its log-probabilities are known too it is a `ScoredTraceModel`. Generation, likelihoods and the
plausible-deniability test are each written once against these.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ppmtf_jax.errors import Problem, first_examples


class Sizes(NamedTuple):
    """How many there are of each: what the arrays of a stored model have to fit.

    Attributes
    ----------
    users, places, slots, instants : int
        Instants of one synthetic trace.
    """

    users: int
    places: int
    slots: int
    instants: int


class StoredArray(NamedTuple):
    """What an array of a model folder has to be.

    Attributes
    ----------
    shape : tuple of int or str
        Lengths: numbers, names of `Sizes`, or other names, which have to be the same length wherever they stand.
    kind : "float" or "int"
    low, high : float
        Least and greatest value allowed.
    rises : bool
        Whether no value is less than the one before it.
    optional : bool
        Whether it may be missing.
    """

    shape: tuple[int | str, ...]
    kind: Literal["float", "int"] = "float"
    low: float = -np.inf
    high: float = np.inf
    rises: bool = False
    optional: bool = False


class TraceModel(abc.ABC):
    """For each user a distribution of traces.

    It is a JAX pytree, and all methods that take a user can be vmapped. Users, places and instants are indices; instant
    0 is that of the first event.
    """

    @abc.abstractmethod
    def sample_trace(self, key: Key[Array, ""], user: Int[Array, ""], n_instants: int) -> Int[Array, " instant"]:
        """Draw the places of a trace at the first `n_instants` instants, int32."""

    def summary(self) -> list[str]:
        """What a person should know of the model, a sentence each, such as what was chosen and why."""
        return []

    @abc.abstractmethod
    def to_arrays(self) -> dict[str, np.ndarray]:
        """What a model folder stores."""

    @classmethod
    @abc.abstractmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> TraceModel:
        """The inverse of `to_arrays`."""

    @classmethod
    @abc.abstractmethod
    def stored_arrays(cls, sizes: Sizes) -> dict[str, StoredArray]:
        """What each array of `to_arrays` has to be; a folder with others is refused when it is loaded.

        JAX would not notice: what is out of range is clamped, and what is not a number spreads.
        """


class MarkovModel(TraceModel):
    """For each user a Markov chain over places, inhomogeneous in time."""

    @abc.abstractmethod
    def sample_first(self, key: Key[Array, ""], user: Int[Array, ""]) -> Int[Array, ""]:
        """Draw the place at instant 0."""

    @abc.abstractmethod
    def sample_next(
        self, key: Key[Array, ""], user: Int[Array, ""], instant: Int[Array, ""], place: Int[Array, ""]
    ) -> Int[Array, ""]:
        """Draw the place at `instant`, given `place` at the instant before."""

    def sample_trace(self, key: Key[Array, ""], user: Int[Array, ""], n_instants: int) -> Int[Array, " instant"]:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(n_instants))

        def advance(place: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
            following = self.sample_next(step[0], user, step[1], place)
            return following, following

        first = self.sample_first(keys[0], user).astype(jnp.int32)
        rest = jax.lax.scan(advance, first, (keys[1:], jnp.arange(1, n_instants)))[1]
        return jnp.concatenate([first[None], rest])


class ScoredTraceModel(MarkovModel):
    """A Markov chain whose log-probabilities are known."""

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

    def classes(self, n_users: int) -> Int[np.ndarray, " user"]:
        """A number for each user; where two users have the same, every trace is equally probable for both.

        The plausible-deniability test takes a model at its word: users of one class count for each other unasked.
        """
        return np.arange(n_users)

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


def array_problems(
    arrays: Mapping[str, np.ndarray], expected: Mapping[str, StoredArray], sizes: Sizes
) -> list[Problem]:
    """All that is wrong with the arrays of a model folder.

    Examples
    --------
    >>> expected = {"user": StoredArray(("users", "rank")), "slot": StoredArray(("slots", "rank"))}
    >>> arrays = {"user": np.zeros((2, 3)), "slot": np.array([[0.0, 1.0], [np.nan, 2.0]])}
    >>> for problem in array_problems(arrays, expected, Sizes(users=2, places=5, slots=2, instants=4)):
    ...     print(problem)
    expected 'slot' of shape (2, 3); found (2, 2).
    expected finite numbers in 'slot'; found others (1 row), first: nan.
    """
    problems = []
    missing = [name for name, array in expected.items() if name not in arrays and not array.optional]
    if missing or arrays.keys() - expected.keys():
        found = ", ".join(sorted(arrays)) or "none"
        problems.append(Problem(f"arrays {', '.join(sorted(expected))}", found))
    lengths: dict[str, int] = dict(sizes._asdict())
    for name, what in expected.items():
        if name in arrays:
            problems += _problems_of_array(name, np.asarray(arrays[name]), what, lengths)
    return problems


def _problems_of_array(name: str, array: np.ndarray, what: StoredArray, lengths: dict[str, int]) -> list[Problem]:
    if not np.issubdtype(array.dtype, np.floating if what.kind == "float" else np.integer):
        return [Problem(f"{name!r} of {what.kind} numbers", str(array.dtype))]
    problems = []
    if array.ndim == len(what.shape):
        for length, size in zip(array.shape, what.shape, strict=True):
            if isinstance(size, str):
                lengths.setdefault(size, length)
    shape = tuple(lengths.get(size, "any") if isinstance(size, str) else size for size in what.shape)
    if array.shape != shape:
        problems.append(Problem(f"{name!r} of shape {shape}", str(array.shape)))
    flat = array.ravel()
    falls = np.append(np.zeros(min(len(flat), 1), bool), flat[1:] < flat[:-1])
    for expected, bad in (
        (f"finite numbers in {name!r}", ~np.isfinite(flat)),
        (f"{name!r} from {what.low:g} to {what.high:g}", (flat < what.low) | (flat > what.high)),
        (f"numbers in {name!r} that do not fall", falls & what.rises),
    ):
        if bad.any():
            examples = first_examples(flat[np.flatnonzero(bad)[:5]].tolist())
            problems.append(Problem(expected, "others", int(bad.sum()), examples))
    return problems
