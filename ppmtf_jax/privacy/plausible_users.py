"""Count the users who make a trace with about the same probability as its input user."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import partial
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
    Table,
    distinct_steps,
    empty_step_table,
    padded_size,
    representatives,
    step_log_probabilities,
    sum_of_rows,
    write_moves,
    write_stays,
)
from ppmtf_jax.trace_models.persons import LikelihoodModel, PersonModel

# Traces are tested in groups with this total number of events.
EVENTS_TESTED_TOGETHER = 6 << 20
# Number of classes in a table of steps, by the type of its numbers (lower and upper bounds in single precision).
CLASSES_AT_A_TIME = {"float32": 64, "float64": 32}
STEP_BYTES = 64 * 4 * 2
# Log-likelihoods are summed for a tile of traces. A table has the moves of a batch of tiles, so that it stays small.
TRACES_AT_A_TIME = 512
BATCH_OF_TILES = 8
# Maximum number of open pairs of a trace and a class that are computed together.
PAIRS_AT_A_TIME = 2**18
# Maximum number of log-probabilities of traces of persons that are computed together.
NUMBERS_AT_A_TIME = 2**22
# Traces leave the test only after a round of this many classes, so that results do not depend on the number of cores.
CLASSES_IN_A_ROUND = 256
# When less than this share of the traces remains, the table of steps is built again.
COLLECT_ANEW = 0.7


class Classes(NamedTuple):
    """Classes of users with equal models.

    `user`: for a model of persons, the number of the class. For other models, the first user of the class, who
    represents it even if she is not a verifier.
    """

    user: Int[np.ndarray | Array, " class"]
    n_verifiers: Int[np.ndarray | Array, " class"]


def count_plausible_users(
    model: LikelihoodModel,
    verifiers: Int[np.ndarray, " verifier"],
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

    `verifiers`: distinct users. `own`: log-likelihood of each trace under its input user. `stop_at`: number of
    plausible users at which counting stops; by default all verifiers are compared. Returns two arrays. (1) The number
    of plausible users, the input user included, at most `stop_at`. (2) The number of verifiers in all rounds until the
    trace left the test; 0 if the input user's class was enough. A round has `CLASSES_IN_A_ROUND` classes; the largest
    classes come first. A model of persons is compared with all classes in one round.
    """
    stop_at = np.full(len(users), np.iinfo(np.int64).max) if stop_at is None else stop_at
    n_users, of_persons = int(max(verifiers.max(), users.max())) + 1, isinstance(model, PersonModel)
    class_of_user = model.user_classes(n_users) if of_persons else representatives(model, n_users)
    # The largest class first.
    user, n_verifiers = np.unique(class_of_user[verifiers], return_counts=True)
    order = np.argsort(-n_verifiers, kind="stable")
    classes, own_class = Classes(user[order], n_verifiers[order]), class_of_user[users]
    in_own_class = np.bincount(class_of_user[verifiers], minlength=int(class_of_user.max()) + 1)[own_class]
    count = 1 + in_own_class - np.isin(users, verifiers)
    traces = _Traces(own_class, places, own, stop_at, count, np.zeros(len(users), np.int64))
    (_compare_persons if of_persons else _compare_chains)(model, classes, traces, eta, progress)
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
    the trace's bin. If the model has `bounds`, they are summed in place of log-probabilities, and the exact
    log-likelihood is only computed for the few pairs of a trace and a class whose bounds are on both sides of an edge
    of the bin. So the counts are those of exact log-likelihoods in any case.
    """
    own_bin, (own_class, places, _, stop_at, count, asked) = np.asarray(likelihood_bin(traces.own, eta)), traces
    cuts = np.arange(CLASSES_IN_A_ROUND, len(classes.user), CLASSES_IN_A_ROUND)
    rounds = list(map(Classes, *(np.split(column, cuts) for column in classes)))
    size = max(1, EVENTS_TESTED_TOGETHER // places.shape[1])
    groups = np.split(np.arange(len(own_class)), np.arange(size, len(own_class), size))
    with progress_bar("testing plausible deniability", len(groups) * len(classes.user), show=progress) as advance:
        for group in groups:
            active, collected = group[count[group] < stop_at[group]], None
            for in_round in rounds:
                if len(active):
                    if collected is None or len(active) < COLLECT_ANEW * len(collected):
                        collected = active
                        under_test = _TracesUnderTest(model, own_class[active], places[active], own_bin[active])
                    found = under_test.count(in_round, eta)
                    count[active] += found[np.isin(collected, active, assume_unique=True)]
                    asked[active] += in_round.n_verifiers.sum()
                    active = active[count[active] < stop_at[active]]
                advance(len(in_round.user))


class _TracesUnderTest:
    """Traces on the devices, which are compared with one block of classes after the other."""

    def __init__(self, model: ScoredTraceModel, own_class: np.ndarray, places: np.ndarray, own_bin: np.ndarray) -> None:
        self._model, self._places, self._own_bin = model, places, own_bin
        size = min(padded_size(len(places)), TRACES_AT_A_TIME)
        batch = size * BATCH_OF_TILES
        steps, rows = distinct_steps(model, places, batch)
        # The last tile and the last batch are padded with traces that are counted for nobody.
        shape = (-(-len(places) // batch), -(-min(len(places), batch) // size), size)
        tiles = (
            np.resize(array, (math.prod(shape), *array.shape[1:])).reshape(*shape, *array.shape[1:])
            for array in (rows, own_bin, own_class)
        )
        bounds = model.bounds()
        self._local_copy = on_each_device((bounds or model, jax.tree.map(jnp.asarray, (steps, tuple(tiles)))))
        self._n_classes = CLASSES_AT_A_TIME["float64" if bounds is None and own_bin.dtype == np.float64 else "float32"]
        # Tables of steps that no block uses at the moment. Each device has one table for each block in progress.
        self._spare: defaultdict[Any, list[Table]] = defaultdict(list)

    def count(self, classes: Classes, eta: float) -> np.ndarray:
        """For each trace, number of verifiers in other classes of `classes` who put the trace into its bin."""
        cuts = np.arange(self._n_classes, len(classes.user), self._n_classes)
        blocks = list(map(Classes, *(np.split(column, cuts) for column in classes)))
        total, open_pairs = np.zeros(len(self._places), np.int64), []
        for block, (count, trace, number) in zip(
            blocks, map_in_threads(lambda block: self._count_of_block(block, eta), blocks), strict=True
        ):
            total += count
            open_pairs.append((trace, block.user[number], block.n_verifiers[number]))
        trace, user, n_verifiers = map(np.concatenate, zip(*open_pairs, strict=True))
        for some in np.split(np.arange(len(trace)), np.arange(PAIRS_AT_A_TIME, len(trace), PAIRS_AT_A_TIME)):
            if len(some):
                rows = trace[some]
                exact = np.cumsum(step_log_probabilities(self._model, user[some], self._places[rows]), axis=1)[:, -1]
                same_bin = np.asarray(likelihood_bin(exact, eta)) == self._own_bin[rows]
                np.add.at(total, rows, same_bin * n_verifiers[some])
        return total

    def _count_of_block(self, classes: Classes, eta: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Number of verifiers for certain of each trace, and the pairs of a trace and a class that are open."""
        model, (steps, tiles) = self._local_copy()
        padding = (0, self._n_classes - len(classes.user))
        # Padded classes have no verifiers, so they change no count.
        padded = jax.tree.map(lambda column: jnp.asarray(np.pad(column, padding)), classes)
        (device,) = padded.user.devices()
        spare = self._spare[device]
        table = spare.pop() if spare else empty_step_table(model, self._n_classes, steps)
        cache, table = _write_stays(model, padded.user, steps, table)
        counts, undecided = [], []
        for number in range(len(tiles[0])):
            moves, of_batch = jax.tree.map(lambda column, n=number: column[n], (steps.moves, tiles))
            count, unknown, table = _count_in_bin(model, cache, padded, moves, *of_batch, eta, table)
            counts.append(np.asarray(count).ravel())
            undecided.append(np.asarray(unknown).reshape(-1, self._n_classes))
        spare.append(table)
        n_traces = len(self._places)
        return np.concatenate(counts)[:n_traces], *np.nonzero(np.concatenate(undecided)[:n_traces])


@partial(jax.jit, donate_argnames="table")
def _write_stays(model: StepModel, users: Int[Array, " class"], steps: Steps, table: Table) -> tuple[Any, Table]:
    cache = model.user_cache(users)
    return cache, write_stays(model, cache, steps, table)


@partial(jax.jit, donate_argnames="table")
def _count_in_bin(
    model: StepModel,
    cache: Any,
    classes: Classes,
    moves: Moves,
    rows: Int[Array, "tile trace instant"],
    own_bin: Float[Array, "tile trace"],
    own_class: Int[Array, "tile trace"],
    eta: float | Float[Array, ""],
    table: Table,
) -> tuple[Int[Array, "tile trace"], Bool[Array, "tile trace class"], Table]:
    table = write_moves(model, cache, moves, table)

    def of_tile(tile: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        rows, own_bin, own_class = tile
        inside, outside = _compared(sum_of_rows(table, rows), own_bin[:, None], eta, rows.shape[1])
        others = (classes.user != own_class[:, None]) & (classes.n_verifiers > 0)
        return jnp.sum(jnp.where(inside & others, classes.n_verifiers, 0), axis=1), others & ~inside & ~outside

    return *jax.lax.map(of_tile, (rows, own_bin, own_class)), table


def _compared(
    log_likelihood: Table, own_bin: Float[Array, "trace 1"], eta: float | Float[Array, ""], n_steps: int
) -> tuple[Bool[Array, "trace class"], Bool[Array, "trace class"]]:
    """Whether log-likelihoods are in the traces' bins for certain, and whether they are not for certain."""
    if not isinstance(log_likelihood, Bounds):
        inside = likelihood_bin(log_likelihood, eta) == own_bin
        return inside, ~inside
    unit = jnp.finfo(log_likelihood.lower.dtype).eps
    # The sum of n numbers of one sign has a relative error of at most n units, and an edge of the bin one of a unit.
    least, greatest = (-each for each in (log_likelihood.upper, log_likelihood.lower))
    least, greatest = least * (1 - n_steps * unit), greatest * (1 + n_steps * unit)
    edges = (own_bin * eta).astype(least.dtype), ((own_bin + 1) * eta).astype(least.dtype)
    (begin_low, begin_high), (end_low, end_high) = ((e - unit * jnp.abs(e), e + unit * jnp.abs(e)) for e in edges)
    return (least > begin_high) & (greatest < end_low), (least > end_high) | (greatest < begin_low)


def likelihood_bin(
    log_likelihood: Float[Array | np.ndarray, "..."], eta: float | Float[Array, ""]
) -> Float[Array, "..."]:
    """The bin i with e^-(i+1)eta < p <= e^-i eta, for p = exp(log_likelihood)."""
    return jnp.floor(-log_likelihood / eta)
