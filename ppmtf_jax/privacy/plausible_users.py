"""Count the users who make a trace with about the same probability as its input user."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Generator, Sequence
from contextlib import closing
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ppmtf_jax.errors import NumericalError
from ppmtf_jax.runtime.memory import require_memory
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.runtime.threads import map_in_threads, n_threads, on_each_device
from ppmtf_jax.trace_models.base import LikelihoodModel, PersonModel, ScoredTraceModel
from ppmtf_jax.trace_models.likelihoods import (
    Moves,
    Steps,
    distinct_steps,
    empty_step_table,
    firsts_and_stays,
    padded_size,
    representatives,
    step_log_probabilities,
    sum_of_rows,
    table_rows,
    write_moves,
)

# Traces are tested in groups with this total number of events.
EVENTS_TESTED_TOGETHER = 6 << 20
# Number of classes in a table of steps, by the type of its numbers.
CLASSES_AT_A_TIME = {"float32": 64, "float64": 32}
SLACK = {"float32": 1e-6, "float64": 1e-10}
"""A verifier counts if the log-likelihood l is in the bin by more than SLACK * (1 + |l|), by the type of the numbers.

Programs of different compilers, or of different sizes, add in another order, fuse operations or not, and use vectors of
another width. So one log-likelihood differs between them: in double precision by 2e-15 in tests, by at most n 2^-53 for
a step that adds n numbers of one sign (1e-10 for a million places), and by more where factors of both signs cancel. A
verifier who is nearer to an edge of the bin than this may be on either side of it, and does not count.
"""
# Log-likelihoods are summed for a tile of traces. A table has the moves of a batch of tiles.
TRACES_AT_A_TIME = 512
TILES_OF_A_TABLE = 32
# Maximum number of log-probabilities of traces of persons that are computed together.
NUMBERS_AT_A_TIME = 2**22
# Traces leave the test only after a round of this many classes, so that results do not depend on the number of cores.
CLASSES_IN_A_ROUND = 256
NO_MOVES = Moves(*np.zeros((3, 0, 0), np.int32))
# When less than this share of the traces remains, the table of steps is built again.
COLLECT_ANEW = 0.82


class Classes(NamedTuple):
    """Classes of users with equal models.

    `user`: for a model of persons, the number of the class. For other models, the first user of the class, who
    represents it even if they are not a verifier.
    """

    user: Int[np.ndarray | Array, " class"]
    n_verifiers: Int[np.ndarray | Array, " class"]

    def in_blocks(self, size: int) -> list[Classes]:
        """Consecutive blocks of this size; the last may be smaller."""
        return list(map(Classes, *(np.split(column, range(size, len(self.user), size)) for column in self)))


class Verifiers(NamedTuple):
    """Who verifies the traces of a model, and the classes of all its users; made once for all traces."""

    class_of_user: Int[np.ndarray, " user"]  # as `Classes.user`
    is_verifier: Bool[np.ndarray, " user"]
    classes: Classes  # those that have verifiers, the largest first

    @classmethod
    def of(cls, model: LikelihoodModel, verifiers: Int[np.ndarray, " verifier"], n_users: int) -> Verifiers:
        """`verifiers`: distinct users."""
        class_of_user = (
            model.user_classes(n_users) if isinstance(model, PersonModel) else representatives(model, n_users)
        )
        user, n_verifiers = np.unique(class_of_user[verifiers], return_counts=True)
        order = np.argsort(-n_verifiers, kind="stable")
        is_verifier = np.zeros(n_users, bool)
        is_verifier[verifiers] = True
        return cls(class_of_user, is_verifier, Classes(user[order], n_verifiers[order]))


def count_plausible_users(
    model: LikelihoodModel,
    verifiers: Verifiers,
    users: Int[np.ndarray, " trace"],
    places: Int[np.ndarray, "trace instant"],
    own: Float[np.ndarray, " trace"],
    eta: float,
    stop_at: Int[np.ndarray, " trace"] | None = None,
    progress: bool = False,
) -> tuple[Int[np.ndarray, " trace"], Int[np.ndarray, " trace"]]:
    """Count the plausible users of each trace, eqs. (6)-(7).

    Verifiers of the input user's class count without a comparison: equal likelihoods lie in one bin, and rounding must
    not separate them. For every other class, one user is compared for all its verifiers. A verifier at the edge of the
    bin, up to rounding, does not count; see `SLACK`.

    `own`: log-likelihood of each trace under its input user. `stop_at`: number of plausible users at which counting
    stops; by default all verifiers are compared. Returns two arrays. (1) The number of plausible users, the input user
    included, at most `stop_at`. (2) The number of verifiers in all rounds until the trace left the test; 0 if the input
    user's class was enough. A round has `CLASSES_IN_A_ROUND` classes; the largest classes come first. A model of
    persons is compared with all classes in one round.

    The first result does not depend on the order of the verifiers: a trace leaves the test when the plausible users
    found so far are at least `stop_at`, and then it gets `stop_at`; else all verifiers were compared. So it is the
    smaller of `stop_at` and the number of all plausible users. The second result depends on the order.
    """
    stop_at = np.full(len(users), np.iinfo(np.int64).max) if stop_at is None else stop_at
    classes, own_class = verifiers.classes, verifiers.class_of_user[users]
    in_class = np.zeros(int(max(classes.user.max(), own_class.max())) + 1, np.int64)
    in_class[classes.user] = classes.n_verifiers
    count = 1 + in_class[own_class] - verifiers.is_verifier[users]
    traces = _Traces(own_class, places, own, stop_at, count, np.zeros(len(users), np.int64))
    compare = _compare_persons if isinstance(model, PersonModel) else _compare_chains
    compare(model, classes, traces, eta, progress)
    return np.minimum(count, np.maximum(stop_at, 1)), traces.asked


class _Traces(NamedTuple):
    """Traces under test; `count` and `asked` are the two results of `count_plausible_users` so far."""

    own_class: Int[np.ndarray, " trace"]
    places: Int[np.ndarray, "trace instant"]
    own: Float[np.ndarray, " trace"]
    stop_at: Int[np.ndarray, " trace"]
    count: Int[np.ndarray, " trace"]
    asked: Int[np.ndarray, " trace"]


def _compare_persons(model: PersonModel, classes: Classes, traces: _Traces, eta: float, progress: bool) -> None:
    """Compare traces with all other classes; `NumericalError` if a log-probability is NaN."""
    is_own = traces.own_class[:, None] == classes.user
    active = np.flatnonzero(traces.count < traces.stop_at)
    size = max(1, NUMBERS_AT_A_TIME // len(classes.user))
    for rows in np.split(active, range(size, len(active), size)):
        if len(rows) and not is_own[rows].all():
            found = model.log_traces(traces.places[rows], np.asarray(classes.user), progress=progress)
            if np.isnan(found).any():
                raise NumericalError("the model gives log-probabilities that are not numbers")
            same_bin = in_bin(found, np.floor(-traces.own[rows] / eta)[:, None], eta)
            traces.count[rows] += (same_bin & ~is_own[rows]) @ classes.n_verifiers
            traces.asked[rows] = classes.n_verifiers.sum()


def _compare_chains(model: ScoredTraceModel, classes: Classes, traces: _Traces, eta: float, progress: bool) -> None:
    """Compare traces with other classes in rounds.

    No array of size traces x classes is stored. For each block of classes, the log-probabilities of the distinct steps
    of the remaining traces are computed and summed along each trace. The verifiers of a class count if this sum lies in
    the trace's bin.
    """
    own_bin, (own_class, places, _, stop_at, count, asked) = np.asarray(likelihood_bin(traces.own, eta)), traces
    rounds = classes.in_blocks(CLASSES_IN_A_ROUND)
    size = max(1, EVENTS_TESTED_TOGETHER // places.shape[1])
    groups = np.split(np.arange(len(own_class)), np.arange(size, len(own_class), size))

    with progress_bar("testing plausible deniability", len(groups) * len(classes.user), show=progress) as advance:
        for group in groups:
            active, left = group[count[group] < stop_at[group]], rounds
            while left and len(active):
                collected = active
                under_test = _TracesUnderTest(model, own_class[active], places[active], own_bin[active], eta)
                with closing(under_test.counts(left)) as counted:
                    while left and COLLECT_ANEW * len(collected) <= len(active) > 0:
                        (in_round, *left), found = left, next(counted)
                        count[active] += found[np.isin(collected, active, assume_unique=True)]
                        asked[active] += in_round.n_verifiers.sum()
                        active = active[count[active] < stop_at[active]]
                        advance(len(in_round.user))
            if left:
                advance(sum(len(in_round.user) for in_round in left))


class _TracesUnderTest:
    """Traces on the devices, which are compared with one block of classes after the other."""

    def __init__(
        self, model: ScoredTraceModel, own_class: np.ndarray, places: np.ndarray, own_bin: np.ndarray, eta: float
    ) -> None:
        self._places, self._own_bin, self._eta = places, own_bin, eta
        n_traces = len(places)
        size = min(padded_size(n_traces), TRACES_AT_A_TIME)
        n_batches = -(-n_traces // (TILES_OF_A_TABLE * size))
        n_tiles = padded_size(-(-n_traces // (n_batches * size)), least=1)
        n_batches = -(-n_traces // (n_tiles * size))
        steps, rows = distinct_steps(model, places, n_tiles * size)
        columns = rows, own_class, own_bin
        shape = n_batches, n_tiles, size
        # The last tile and the last batch are padded with traces whose counts are left out.
        tiles = (
            np.resize(each, (math.prod(shape), *each.shape[1:])).reshape(*shape, *each.shape[1:]) for each in columns
        )
        self._local_copy = on_each_device((model, jax.tree.map(jnp.asarray, (steps, _Tiles(*tiles)))))
        self._n_classes = CLASSES_AT_A_TIME[own_bin.dtype.name]
        table_bytes = table_rows(steps) * self._n_classes * own_bin.dtype.itemsize
        require_memory("test", n_threads() * table_bytes, "Test fewer traces at a time, or use fewer threads")
        # Tables of steps that no block uses at the moment. Each device has one table for each block in progress.
        self._spare: defaultdict[Any, list[jax.Array]] = defaultdict(list)

    def counts(self, rounds: Sequence[Classes]) -> Generator[np.ndarray]:
        """For each round and trace, number of verifiers in other classes of the round who put the trace into its bin.

        Blocks of the next round begin before the result of a round is read, so that no core waits.
        """
        blocks = [each.in_blocks(self._n_classes) for each in rounds]
        with closing(map_in_threads(self._count_of_block, chain.from_iterable(blocks))) as counted:
            for of_round in blocks:
                yield np.sum(list(islice(counted, len(of_round))), axis=0)

    def _count_of_block(self, classes: Classes) -> np.ndarray:
        model, (steps, batches) = self._local_copy()
        padding = (0, self._n_classes - len(classes.user))
        # Padded classes have no verifiers, so they change no count.
        padded = jax.tree.map(lambda column: jnp.asarray(np.pad(column, padding)), classes)
        (device,) = padded.user.devices()
        spare = self._spare[device]
        table = spare.pop() if spare else empty_step_table(model, self._n_classes, steps)
        cache, stays = _stays(model, padded.user, steps._replace(moves=NO_MOVES))
        table = _write_stays(table, stays)
        found = []
        for number in range(len(batches.rows)):
            moves, tiles = jax.tree.map(lambda column, n=number: column[n], (steps.moves, batches))
            result, table = _compare_batch(model, cache, padded, moves, tiles, self._eta, table)
            found.append(np.asarray(result).ravel())
        spare.append(table)
        return np.concatenate(found)[: len(self._places)]


class _Tiles(NamedTuple):
    """Traces in tiles."""

    rows: Int[Array, "*tile trace instant"]
    own_class: Int[Array, "*tile trace"]
    own_bin: Float[Array, "*tile trace"]


@jax.jit
def _stays(
    model: ScoredTraceModel, users: Int[Array, " class"], steps: Steps
) -> tuple[Any, Float[Array, "some class"]]:
    """First places and stays of all traces; the moves of `steps` are not used.

    This is a program of its own: it takes longest to compile, and groups of traces differ less in stays than in moves.
    """
    cache = model.user_cache(users)
    return cache, firsts_and_stays(model, cache, steps)


@partial(jax.jit, donate_argnames="table")
def _write_stays(table: Float[Array, "row class"], stays: Float[Array, "some class"]) -> Float[Array, "row class"]:
    return jax.lax.dynamic_update_slice_in_dim(table, stays, 0, 0)


@partial(jax.jit, donate_argnames="table")
def _compare_batch(
    model: ScoredTraceModel,
    cache: Any,
    classes: Classes,
    moves: Moves,
    tiles: _Tiles,
    eta: float | Float[Array, ""],
    table: Float[Array, "row class"],
) -> tuple[Int[Array, "tile trace"], Float[Array, "row class"]]:
    """Count the verifiers who put each trace into its bin."""
    table = write_moves(model, cache, moves, table)

    def of_tile(tile: _Tiles) -> Array:
        found = sum_of_rows(table, tile.rows)
        others = (classes.user != tile.own_class[:, None]) & (classes.n_verifiers > 0)
        same_bin = in_bin(found, tile.own_bin[:, None], eta)
        return jnp.sum(jnp.where(same_bin & others, classes.n_verifiers, 0), axis=1)

    return jax.lax.map(of_tile, tiles), table


def likelihood_bin(
    log_likelihood: Float[Array | np.ndarray, "..."], eta: float | Float[Array, ""]
) -> Float[Array, "..."]:
    """The bin i of eq. (6), e^-(i+1)eta < p <= e^-i eta, for p = exp(log_likelihood): edges at the multiples of eta."""
    return jnp.floor(-log_likelihood / eta)


def in_bin(
    log_likelihood: Float[Array | np.ndarray, "..."],
    own_bin: Float[Array | np.ndarray, "..."],
    eta: float | Float[Array, ""],
) -> Bool[Array | np.ndarray, "..."]:
    """Whether log-likelihoods lie in a bin of `likelihood_bin` by more than they may be rounded, see `SLACK`.

    Examples
    --------
    >>> in_bin(np.array([-2.5, -2.0, -3.0, -np.inf]), np.full(4, 2.0), eta=1.0)
    array([ True, False, False, False])
    """
    xp = np if isinstance(log_likelihood, np.ndarray) else jnp
    slack = SLACK[log_likelihood.dtype.name] * (1 + abs(log_likelihood))
    with np.errstate(invalid="ignore"):  # a trace that is impossible for a user is in no bin
        least = xp.maximum(-log_likelihood - slack, 0)  # no probability is above 1, so bin 0 has no such edge
        return (xp.floor(least / eta) == own_bin) & (xp.floor((slack - log_likelihood) / eta) == own_bin)


def own_log_likelihoods(
    model: ScoredTraceModel,
    users: Int[np.ndarray, " trace"],
    places: Int[np.ndarray, "trace instant"],
    progress: bool = False,
) -> Float[np.ndarray, " trace"]:
    """Log-likelihood of each trace under the user that `users` gives for it.

    Each is summed in order of time, so that equal users get equal sums.
    """
    return np.cumsum(step_log_probabilities(model, users, places, progress=progress), axis=1)[:, -1]
