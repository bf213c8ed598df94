"""Random streams: one for each stage, and one for each user where a draw must not depend on other users.

All streams come from one seed. The seed is secret: with the seed and the program anybody can repeat all draws. So it
has 128 bits, from the operating system unless the caller gives one. The key of a stage's stream is a hash of the seed
and the stage's name, so that no two stages share a draw.

Noise for differential privacy has no seed: it comes from `noise`. Seeded noise is only for experiments, and marked so.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from enum import StrEnum, unique
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Int, Key, UInt32, UInt64

from ppmtf_jax.errors import InputError, Problem

SEED_BITS = 128
# Numbers drawn at once: this bounds the memory and the number of compiled programs.
NUMBERS_AT_A_TIME = 2**20
LOW_32_BITS = np.uint64(2**32 - 1)


@unique
class Stage(StrEnum):
    """Everything that draws at random; streams of different stages are independent."""

    SPLIT = "split into training and test users"
    TRIMMED_TRANSITIONS = "trimming of transitions"
    TRIMMED_VISITS = "trimming of visits"
    ZERO_TRANSITIONS = "zeros of transitions"
    ZERO_VISITS = "zeros of visits"
    FIT = "fit"
    TUNING = "choice of settings"
    MEMORY = "choice of what synthetic people remember"
    SYNTHESIS = "synthesis"
    SAMPLED_USERS = "users of whom traces are sampled"
    COMPLETION = "completion of partly known traces"
    VERIFIERS = "verifiers of the privacy test"
    RELEASE = "numbers of released traces"
    CHAINS = "chains of a diagnosis"
    HELD_OUT = "held-out cells of a diagnosis"
    HELD_OUT_ZERO_TRANSITIONS = "held-out zeros of transitions of a diagnosis"
    HELD_OUT_ZERO_VISITS = "held-out zeros of visits of a diagnosis"
    PREDICTED = "predicted cells of a diagnosis"
    UNOBSERVED = "cells that were not observed"
    METRICS = "windows and halves that metrics compare"
    MEASURED_USERS = "users whom metrics measure"
    UNIFORM = "places of the traces that are called Uniform"
    SHUFFLED_SCORES = "scores of members and others, shuffled"
    ATTACKED_USERS = "users whom a report attacks"
    SHOWN_PEOPLE = "people whom a report shows"
    QUERIES = "questions that a report asks"
    FRIENDSHIPS = "friendships of synthetic users"
    LIMITED_FRIENDSHIPS = "order in which friendships are read up to a limit"
    TRIMMED_EVENTS = "trimming of events"
    COLOCATIONS = "co-locations of synthetic friends"
    DELETIONS = "places deleted from attacked traces"
    REHEARSAL = "split into what an attacker knows and what is handed out"
    BOOTSTRAP = "users drawn again for an interval"
    MEMBERSHIP = "reference users and shadow models of membership attacks"
    ALARMS = "periods and points that alarms look at"
    EXPORT = "sample of exported traces"
    EXPERIMENTAL_NOISE = "noise of experiments, which protects nobody"


class Seed(NamedTuple):
    """A seed, and whether somebody chose it."""

    value: int
    given: bool

    def __repr__(self) -> str:
        """Without the value of the seed, which is secret."""
        return f"Seed(given={self.given})"


def draw_seed(seed: int | Seed | None) -> Seed:
    """The given seed, or a secret one from the operating system; a `Seed` of an earlier call stays the same."""
    if isinstance(seed, Seed):
        return Seed(check_seed(seed.value), seed.given)
    if seed is None:
        return Seed(secrets.randbits(SEED_BITS), given=False)
    return Seed(check_seed(seed), given=True)


def check_seed(seed: Any) -> int:
    """A seed as a Python number; anything but a whole number of at most 128 bits is an `InputError`."""
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or not 0 <= seed < 2**SEED_BITS:
        raise InputError("seed", [Problem(f"a whole number from 0 to 2^{SEED_BITS} - 1", repr(seed))])
    return int(seed)


def numpy_stream(seed: int, stage: Stage, *numbers: int) -> np.random.Generator:
    """The NumPy generator of a stage; `numbers` distinguish several generators of one stage.

    Examples
    --------
    >>> same = [numpy_stream(0, stage).random() for stage in (Stage.SPLIT, Stage.SPLIT, Stage.VERIFIERS)]
    >>> same[0] == same[1], same[0] == same[2]
    (True, False)
    """
    return np.random.default_rng(int.from_bytes(_digest(seed, stage, numbers), "little"))


def random_keys(seed: int, stage: Stage, number: int, first: int, n: int) -> UInt64[np.ndarray, " key"]:
    """Numbers of 64 bits from the stream `number` of a stage: those of `n` items, of which the first is item `first`.

    The number of an item depends only on the item, so that each process draws the numbers of its own items alone.

    Examples
    --------
    >>> two = random_keys(0, Stage.RELEASE, 0, 3, 2), random_keys(0, Stage.RELEASE, 0, 0, 5)[3:]
    >>> bool((two[0] == two[1]).all())
    True
    """
    bits = np.random.PCG64(int.from_bytes(_digest(seed, stage, (number,)), "little"))
    bits.advance(first)
    return bits.random_raw(n)


def jax_stream(seed: int, stage: Stage, *numbers: int) -> Key[Array, ""]:
    """The JAX key of a stage, of 64 bits; `numbers` distinguish several keys of one stage."""
    return _key(jnp.asarray(np.frombuffer(_digest(seed, stage, numbers)[:8], np.uint32)))


def fingerprint(seed: int, stage: Stage) -> str:
    """A text that differs between seeds and does not reveal the seed."""
    return hashlib.sha256(b"fingerprint" + _digest(seed, stage, ())).hexdigest()[:16]


def _digest(seed: int, stage: Stage, numbers: tuple[int, ...]) -> bytes:
    content = "|".join(["ppmtf_jax", stage.name, str(check_seed(seed)), *map(str, numbers)])
    return hashlib.sha256(content.encode()).digest()


@dataclass(frozen=True, eq=False)
class UserStreams:
    """A random stream for each user, which depends only on the seed, the stage and the id of the user.

    Adding or removing a user changes no other user's draws. Proofs of user-level sensitivity need that.

    Examples
    --------
    >>> streams = UserStreams.of(0, Stage.ZERO_VISITS, np.array(["ann", "bob"]))
    >>> alone = UserStreams.of(0, Stage.ZERO_VISITS, np.array(["bob"]))
    >>> bool((streams.numbers(np.array([1]), 0, 4) == alone.numbers(np.array([0]), 0, 4)).all())
    True
    """

    keys: UInt32[np.ndarray, "user 2"]

    @classmethod
    def of(cls, seed: int, stage: Stage, user_ids: np.ndarray) -> UserStreams:
        """The streams of users, keyed by their printed ids; 7, "7", 7.0 and "07" are one id."""
        # Each id is printed alone: in a column, an id of another type would change how all ids are printed.
        hashed = pd.util.hash_array(np.array([_as_text(each) for each in user_ids.tolist()], object), categorize=False)
        halves = np.stack([hashed >> np.uint64(32), hashed & LOW_32_BITS], axis=1).astype(np.uint32)
        return cls(_in_parts(partial(_user_keys, jax_stream(seed, stage)), halves))

    def numbers(self, users: Int[np.ndarray, " user"], block: int, n: int) -> Float[np.ndarray, "user n"]:
        """Block number `block` of `n` numbers for each of some users, uniform in [0, 1) with 53 bits."""
        at_a_time = max(1, NUMBERS_AT_A_TIME // max(n, 1))
        bits = _in_parts(lambda keys: _block_bits(keys, block, n), self.keys[users], at_a_time)
        return _as_uniform(bits)

    def at(self, users: Int[np.ndarray, " cell"], cells: Int[np.ndarray, "cell index"]) -> Float[np.ndarray, " cell"]:
        """A number in [0, 1) for each cell, which depends only on the user's stream and the index of the cell."""
        both = np.concatenate([self.keys[users], cells.astype(np.uint32)], axis=1)
        return _as_uniform(_in_parts(_cell_bits, both))


def _as_text(user_id: object) -> str:
    """A user id as text; equal numbers have equal texts, different whole numbers have different texts."""
    text = str(user_id)
    try:
        # Whole numbers stay exact: as floats, those beyond 2^53 would be rounded, and two users could share a stream.
        return str(int(text))
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() else repr(number)


def _in_parts(function: Any, rows: np.ndarray, at_a_time: int = NUMBERS_AT_A_TIME) -> np.ndarray:
    """Apply `function` to blocks of rows, padded to few sizes, so that few programs are compiled."""
    parts = []
    for first in range(0, len(rows), at_a_time):
        part = rows[first : first + at_a_time]
        size = min(at_a_time, max(16, 1 << (len(part) - 1).bit_length()))
        padded = np.pad(part, [(0, size - len(part)), (0, 0)])
        parts.append(np.asarray(function(jnp.asarray(padded)))[: len(part)])
    return np.concatenate(parts) if parts else np.asarray(function(jnp.zeros((0, rows.shape[1]), jnp.uint32)))


def _as_uniform(bits: np.ndarray) -> np.ndarray:
    """Convert two words of 32 bits, along the last axis, to a number in [0, 1) of 53 bits."""
    high, low = bits[..., 0].astype(np.uint64), bits[..., 1].astype(np.uint64)
    return ((high << np.uint64(21)) | (low >> np.uint64(11))) * 2.0**-53


def _key(words: Array) -> Array:
    return jax.random.wrap_key_data(words, impl="threefry2x32")


@jax.jit
def _user_keys(key: Key[Array, ""], halves: UInt32[Array, "user 2"]) -> UInt32[Array, "user 2"]:
    def of_user(half: Array) -> Array:
        return jax.random.key_data(jax.random.fold_in(jax.random.fold_in(key, half[0]), half[1]))

    return jax.vmap(of_user)(halves)


@partial(jax.jit, static_argnames="n")
def _block_bits(keys: UInt32[Array, "user 2"], block: int | Array, n: int) -> UInt32[Array, "user n 2"]:
    return jax.vmap(lambda words: jax.random.bits(jax.random.fold_in(_key(words), block), (n, 2), jnp.uint32))(keys)


@jax.jit
def _cell_bits(keys_and_cells: UInt32[Array, "cell columns"]) -> UInt32[Array, "cell 2"]:
    def of_cell(row: Array) -> Array:
        key = _key(row[:2])
        for index in row[2:]:
            key = jax.random.fold_in(key, index)
        return jax.random.bits(key, (2,), jnp.uint32)

    return jax.vmap(of_cell)(keys_and_cells)
