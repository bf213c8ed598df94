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
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.runtime.threads import map_in_threads, on_each_device
from ppmtf_jax.trace_models.base import Bounds, ScoredTraceModel
from ppmtf_jax.trace_models.likelihoods import (
    Moves,
    StepModel,
    Steps,
    distinct_steps,
    empty_step_table,
    firsts_and_stays,
    padded_size,
    representatives,
    step_log_probabilities,
    sum_of_rows,
    the_bound,
    write_moves,
)
from ppmtf_jax.trace_models.persons import LikelihoodModel, PersonModel

# Traces are tested in groups with this total number of events.
EVENTS_TESTED_TOGETHER = 6 << 20
# Number of classes in a table of steps, by the type of its numbers.
CLASSES_AT_A_TIME = {"float32": 64, "float64": 32}
# Largest number of bytes of a step, a row of the table.
STEP_BYTES = 64 * 4
# Log-likelihoods are summed for a tile of traces. A table has the moves of a batch of tiles.
TRACES_AT_A_TIME = 512
TILES_OF_A_TABLE = 32
# Upper bounds leave some pairs of a trace and a class open. Both bounds of these pairs are computed in groups, each of
# pairs of one class.
PAIRS_OF_A_GROUP = 64
GROUPS_AT_A_TIME = 256
# If more than this share of the pairs is open, it is faster to compute the bounds of all pairs.
DENSE = 0.03
# When more pairs than this are open, their exact log-likelihoods are computed.
PAIRS_AT_A_TIME = 2**15
# The bounds of a log-likelihood l are widened by SLACK * (1 + |l|), for rounding errors.
SLACK = 1e-10
OWN_ERROR = 0.01
"""Largest error of the log-likelihoods of traces under their input users, in models that have bounds."""
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
    represents it even if she is not a verifier.
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
    not separate them. For every other class, one user is compared for all its verifiers.

    `own`: log-likelihood of each trace under its input user. `stop_at`: number of plausible users at which counting
    stops; by default all verifiers are compared. Returns two arrays. (1) The number of plausible users, the input user
    included, at most `stop_at`. (2) The number of verifiers in all rounds until the trace left the test; 0 if the input
    user's class was enough. A round has `CLASSES_IN_A_ROUND` classes; the largest classes come first. A model of
    persons is compared with all classes in one round.

    The first result does not depend on the order of the verifiers: a trace leaves the test when the plausible users
    found so far are at least `stop_at`, and then it gets `stop_at`; else all verifiers were compared. So it is the
    smaller of `stop_at` and the number of all plausible users. The second result depends on the order. A pair that the
    bounds of a model leave open counts when it is computed, so a trace may leave in a later round.
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
            # The same bins as in `likelihood_bin`. JAX may compute that function only in single precision.
            same_bin = np.floor(-found / eta) == np.floor(-traces.own[rows] / eta)[:, None]
            traces.count[rows] += (same_bin & ~is_own[rows]) @ classes.n_verifiers
            traces.asked[rows] = classes.n_verifiers.sum()


def _compare_chains(model: ScoredTraceModel, classes: Classes, traces: _Traces, eta: float, progress: bool) -> None:
    """Compare traces with other classes in rounds.

    No array of size traces x classes is stored. For each block of classes, the log-probabilities of the distinct steps
    of the remaining traces are computed and summed along each trace. The verifiers of a class count if this sum lies in
    the trace's bin.

    If the model has `bounds`, upper bounds are summed in place of log-probabilities. Most sums are below the bin of the
    trace. For the other pairs of a trace and a class, lower bounds are summed too. Only where an edge of the bin is
    between both sums, the exact log-likelihood is computed. So the counts are those of exact log-likelihoods.
    """
    own_bin, (own_class, places, _, stop_at, count, asked) = np.asarray(likelihood_bin(traces.own, eta)), traces
    rounds = classes.in_blocks(CLASSES_IN_A_ROUND)
    size = max(1, EVENTS_TESTED_TOGETHER // places.shape[1])
    groups = np.split(np.arange(len(own_class)), np.arange(size, len(own_class), size))

    def settle(pairs: _Pairs) -> None:
        """Compute the log-likelihoods of open pairs, if the outcome for their trace can still change."""
        trace, user, n_verifiers = (column[count[pairs.trace] < stop_at[pairs.trace]] for column in pairs)
        if len(trace):
            found = np.asarray(likelihood_bin(own_log_likelihoods(model, user, places[trace], eta), eta))
            np.add.at(count, trace, n_verifiers * (found == own_bin[trace]))

    with progress_bar("testing plausible deniability", len(groups) * len(classes.user), show=progress) as advance:
        for group in groups:
            active, open_pairs, left = group[count[group] < stop_at[group]], _Pairs.join([]), rounds
            while left and len(active):
                collected = active
                under_test = _TracesUnderTest(model, own_class[active], places[active], own_bin[active], eta)
                with closing(under_test.counts(left)) as counted:
                    while left and COLLECT_ANEW * len(collected) <= len(active) > 0:
                        (in_round, *left), (found, pairs) = left, next(counted)
                        count[active] += found[np.isin(collected, active, assume_unique=True)]
                        asked[active] += in_round.n_verifiers.sum()
                        open_pairs = _Pairs.join([open_pairs, pairs._replace(trace=collected[pairs.trace])])
                        if len(open_pairs.trace) > PAIRS_AT_A_TIME:
                            settle(open_pairs)
                            open_pairs = _Pairs.join([])
                        active = active[count[active] < stop_at[active]]
                        advance(len(in_round.user))
            if left:
                advance(sum(len(in_round.user) for in_round in left))
            settle(open_pairs)


class _Pairs(NamedTuple):
    """Pairs of a trace and a class whose bounds do not tell whether they are in the same bin."""

    trace: Int[np.ndarray, " pair"]
    user: Int[np.ndarray, " pair"]  # who represents the class
    n_verifiers: Int[np.ndarray, " pair"]

    @classmethod
    def join(cls, parts: Sequence[_Pairs]) -> _Pairs:
        """The pairs of all parts."""
        nothing = cls(*np.zeros((3, 0), int))
        return cls(*map(np.concatenate, zip(nothing, *parts, strict=True)))


class _TracesUnderTest:
    """Traces on the devices, which are compared with one block of classes after the other."""

    def __init__(
        self, model: ScoredTraceModel, own_class: np.ndarray, places: np.ndarray, own_bin: np.ndarray, eta: float
    ) -> None:
        self._places, self._own_bin, self._eta = places, own_bin, eta
        n_traces, bounds = len(places), model.bounds()
        size = min(padded_size(n_traces), TRACES_AT_A_TIME)
        n_batches = -(-n_traces // (TILES_OF_A_TABLE * size))
        n_tiles = padded_size(-(-n_traces // (n_batches * size)), least=1)
        n_batches = -(-n_traces // (n_tiles * size))
        steps, rows = distinct_steps(model, places, n_tiles * size)
        columns = places, rows, own_class, own_bin
        shape = n_batches, n_tiles, size
        # The last tile and the last batch are padded with traces whose counts are left out.
        tiles = (
            np.resize(each, (math.prod(shape), *each.shape[1:])).reshape(*shape, *each.shape[1:]) for each in columns
        )
        self._local_copy = on_each_device((bounds or model, jax.tree.map(jnp.asarray, (steps, _Tiles(*tiles)))))
        self._n_classes = CLASSES_AT_A_TIME["float32" if bounds else own_bin.dtype.name]
        # Tables of steps that no block uses at the moment. Each device has one table for each block in progress.
        self._spare: defaultdict[Any, list[jax.Array]] = defaultdict(list)

    def counts(self, rounds: Sequence[Classes]) -> Generator[tuple[np.ndarray, _Pairs]]:
        """For each round and trace, number of verifiers in other classes of the round who put the trace into its bin.

        The open pairs are left out, and are the second result. Blocks of the next round begin before the result of a
        round is read, so that no core waits.
        """
        blocks = [each.in_blocks(self._n_classes) for each in rounds]
        with closing(map_in_threads(self._count_of_block, chain.from_iterable(blocks))) as counted:
            for of_round in blocks:
                counts, pairs = zip(*islice(counted, len(of_round)), strict=True)
                yield np.sum(counts, axis=0), _Pairs.join(pairs)

    def _count_of_block(self, classes: Classes) -> tuple[np.ndarray, _Pairs]:
        model, (steps, batches) = self._local_copy()
        padding = (0, self._n_classes - len(classes.user))
        # Padded classes have no verifiers, so they change no count.
        padded = jax.tree.map(lambda column: jnp.asarray(np.pad(column, padding)), classes)
        (device,) = padded.user.devices()
        spare = self._spare[device]
        table = spare.pop() if spare else empty_step_table(model, self._n_classes, steps)
        cache, stays = _stays(model, padded.user, steps._replace(moves=NO_MOVES))
        table = _write_stays(table, stays)
        found, pairs = [], []
        for number in range(len(batches.rows)):
            moves, tiles = jax.tree.map(lambda column, n=number: column[n], (steps.moves, batches))
            result, table = _compare_batch(model, cache, padded, moves, tiles, self._eta, table)
            found.append(np.asarray(result).reshape(-1, *result.shape[2:]))
            if isinstance(stays, Bounds):
                begin = sum(map(len, found[:-1]))
                # Of the transposed array, `np.nonzero` takes four times as long.
                trace, class_number = np.divmod(np.flatnonzero(found[-1][: len(self._places) - begin]), self._n_classes)
                by_class = np.argsort(class_number, kind="stable")
                trace, class_number = trace[by_class], class_number[by_class]
                if len(trace) < DENSE * found[-1].size:
                    bounds = _bounds_of_pairs(model, cache, stays, tiles, class_number, trace)
                else:
                    bounds = _bounds_of_all(model, cache, stays, moves, tiles)
                    bounds = (np.asarray(each)[trace, class_number].astype(float) for each in bounds)
                pairs.append((begin + trace, class_number, *bounds))
        spare.append(table)
        if not isinstance(stays, Bounds):
            return np.concatenate(found)[: len(self._places)], _Pairs.join([])
        trace, class_number, lower, upper = map(np.concatenate, zip(*pairs, strict=True))
        least, most = bins_of_bounds(lower, upper, self._eta)
        own_bin, n_verifiers = self._own_bin[trace], classes.n_verifiers[class_number]
        maybe = (least <= own_bin) & (own_bin <= most)
        inside, is_open = maybe & (least == most), maybe & (least < most)
        count = np.bincount(trace[inside], n_verifiers[inside], len(self._places)).astype(np.int64)
        return count, _Pairs(trace[is_open], classes.user[class_number[is_open]], n_verifiers[is_open])


class _Tiles(NamedTuple):
    """Traces in tiles."""

    places: Int[Array, "*tile trace instant"]
    rows: Int[Array, "*tile trace instant"]
    own_class: Int[Array, "*tile trace"]
    own_bin: Float[Array, "*tile trace"]


@jax.jit
def _stays(
    model: StepModel, users: Int[Array, " class"], steps: Steps
) -> tuple[Any, Float[Array, "some class"] | Bounds]:
    """First places and stays of all traces; the moves of `steps` are not used.

    This is a program of its own: it takes longest to compile, and groups of traces differ less in stays than in moves.
    """
    cache = model.user_cache(users)
    return cache, firsts_and_stays(model, cache, steps)


@partial(jax.jit, donate_argnames="table")
def _write_stays(
    table: Float[Array, "row class"], stays: Float[Array, "some class"] | Bounds
) -> Float[Array, "row class"]:
    return jax.lax.dynamic_update_slice_in_dim(table, the_bound(stays).astype(table.dtype), 0, 0)


@partial(jax.jit, donate_argnames="table")
def _compare_batch(
    model: StepModel,
    cache: Any,
    classes: Classes,
    moves: Moves,
    tiles: _Tiles,
    eta: float | Float[Array, ""],
    table: Float[Array, "row class"],
) -> tuple[Int[Array, "tile trace"] | Bool[Array, "tile trace class"], Float[Array, "row class"]]:
    """Count the verifiers who put each trace into its bin; with upper bounds, tell who may do so."""
    table = write_moves(model, cache, moves, table)

    def of_tile(tile: _Tiles) -> Array:
        found = sum_of_rows(table, tile.rows)
        others = (classes.user != tile.own_class[:, None]) & (classes.n_verifiers > 0)
        if not isinstance(model, ScoredTraceModel):
            # The sum of n numbers of one sign has a relative error below n units, and the edge one below one unit. The
            # table rounds each number by less than its unit, or by less than its smallest number.
            unit, end = jnp.finfo(found.dtype).eps, ((tile.own_bin + 1) * eta).astype(found.dtype)
            n, rounded = tile.rows.shape[1], jnp.finfo(table.dtype)
            end = end + unit * jnp.abs(end) + n * float(rounded.smallest_subnormal)
            return others & ~(found * (n * unit + float(rounded.eps) - 1) > end[:, None])
        same_bin = likelihood_bin(found, eta) == tile.own_bin[:, None]
        return jnp.sum(jnp.where(same_bin & others, classes.n_verifiers, 0), axis=1)

    return jax.lax.map(of_tile, tiles), table


def _bounds_of_pairs(
    model: StepModel,
    cache: Any,
    stays: Bounds,
    tiles: _Tiles,
    class_number: Int[np.ndarray, " pair"],
    trace: Int[np.ndarray, " pair"],
) -> tuple[Float[np.ndarray, " pair"], Float[np.ndarray, " pair"]]:
    """Bounds of the log-likelihoods of pairs of a trace of the batch and a class; the pairs are sorted by class."""
    # Groups of pairs of one class.
    n_pairs = np.bincount(class_number)
    within = np.arange(len(trace)) - (np.cumsum(n_pairs) - n_pairs)[class_number]
    n_groups = -(-n_pairs // PAIRS_OF_A_GROUP)
    group = (np.cumsum(n_groups) - n_groups)[class_number] + within // PAIRS_OF_A_GROUP
    place_in_group = within % PAIRS_OF_A_GROUP
    lower, upper = np.empty(len(trace)), np.empty(len(trace))
    for begin in range(0, int(n_groups.sum()), GROUPS_AT_A_TIME):
        here = slice(*np.searchsorted(group, [begin, begin + GROUPS_AT_A_TIME]))
        at = group[here] - begin, place_in_group[here]
        traces = np.zeros((GROUPS_AT_A_TIME, PAIRS_OF_A_GROUP), np.int32)
        of_group = np.zeros(GROUPS_AT_A_TIME, np.int32)
        traces[at], of_group[at[0]] = trace[here], class_number[here]
        found = _bounds_of_groups(model, cache, stays, tiles, of_group, traces, int(at[0][-1]) + 1)
        lower[here], upper[here] = (np.asarray(each)[at] for each in found)
    return lower, upper


@jax.jit
def _bounds_of_all(model: StepModel, cache: Any, stays: Bounds, moves: Moves, tiles: _Tiles) -> Bounds:
    """Bounds of the log-likelihoods of all traces of a batch under all classes; shape (traces, classes)."""
    sums, error = [], tiles.rows.shape[-1] * jnp.finfo(stays.upper.dtype).eps
    for bound in Bounds._fields:
        table = jnp.pad(the_bound(stays, bound), ((0, len(moves.place)), (0, 0)))
        table = write_moves(model, cache, moves, table, bound)
        found = jax.lax.map(lambda rows, table=table: sum_of_rows(table, rows), tiles.rows)
        sums.append(found.reshape(-1, found.shape[-1]))
    lower, upper = sums
    return Bounds(lower + error * lower, upper - error * upper)


@jax.jit
def _bounds_of_groups(
    model: StepModel,
    cache: Any,
    stays: Bounds,
    tiles: _Tiles,
    class_number: Int[Array, " group"],
    traces: Int[Array, "group trace"],
    n_groups: int | Int[Array, ""],
) -> Bounds:
    places, rows = (column.reshape(-1, column.shape[-1]) for column in (tiles.places, tiles.rows))

    def of_group(group: Array, result: Bounds) -> Bounds:
        number, trace = class_number[group], traces[group]
        of_class = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, number, 1, leaf.ndim - 1), cache)
        before, after, row = places[trace, :-1], places[trace, 1:], rows[trace]
        instant = jnp.broadcast_to(jnp.arange(1, places.shape[1]), after.shape)
        moves = model.log_moves(of_class, instant.ravel(), before.ravel(), after.ravel())

        def total(result: Array, stays: Array, moves: Array) -> Array:
            steps = (
                stays[row, number]
                .at[:, 1:]
                .set(jnp.where(before == after, stays[row[:, 1:], number], moves.reshape(after.shape)))
            )
            return result.at[group].set(steps.astype(result.dtype).sum(axis=1))

        return jax.tree.map(total, result, stays, moves)

    empty = jnp.zeros(traces.shape, jnp.float64)
    return jax.lax.fori_loop(0, n_groups, of_group, Bounds(empty, empty))


def likelihood_bin(
    log_likelihood: Float[Array | np.ndarray, "..."], eta: float | Float[Array, ""]
) -> Float[Array, "..."]:
    """The bin i with e^-(i+1)eta < p <= e^-i eta, for p = exp(log_likelihood)."""
    return jnp.floor(-log_likelihood / eta)


def bins_of_bounds(
    lower: Float[np.ndarray, "..."], upper: Float[np.ndarray, "..."], eta: float
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """Smallest and largest bin of log-likelihoods with these bounds, however their last digits are rounded."""
    # Far more than the rounding of the edges and of exact log-likelihoods.
    least, most = (SLACK * (1 + np.abs(each)) for each in (upper, lower))
    return np.floor((-upper - least) / eta), np.floor((-lower + most) / eta)


def own_log_likelihoods(
    model: ScoredTraceModel,
    users: Int[np.ndarray, " trace"],
    places: Int[np.ndarray, "trace instant"],
    eta: float,
    progress: bool = False,
) -> Float[np.ndarray, " trace"]:
    """Log-likelihood of each trace under the user that `users` gives for it.

    If the model has `own_bounds`, a trace whose bounds lie in one bin, at most 2 * `OWN_ERROR` apart, gets the middle
    of its bounds. All other traces get the exact log-likelihood. So every result lies in the bin of the exact
    log-likelihood.
    """
    if (bounds := model.own_bounds()) is None:
        return _exact(model, users, places, progress)
    steps = step_log_probabilities(bounds, users, places, progress=progress)
    lower, upper = (each.sum(axis=1) for each in steps)
    least, most = bins_of_bounds(lower, upper, eta)
    with np.errstate(invalid="ignore"):  # infinite bounds
        is_open, own = (least < most) | (upper - lower > 2 * OWN_ERROR), (lower + upper) / 2
    if is_open.any():
        own[is_open] = _exact(model, users[is_open], places[is_open])
    return own


def _exact(
    model: Any, users: Int[np.ndarray, " trace"], places: Int[np.ndarray, "trace instant"], progress: bool = False
) -> Float[np.ndarray, " trace"]:
    """Log-likelihoods, each summed in order of time, so that equal users get equal sums."""
    return np.cumsum(step_log_probabilities(model, users, places, progress=progress), axis=1)[:, -1]
