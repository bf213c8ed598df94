"""Log-probability of each attacked trace under each target user's chain, and under the mean chain of all other targets.

Equations (1)-(5) of Murakami et al., "Group Sparsity Tensor Factorization for Re-identification of Open Mobility
Traces" (TIFS 2017), section III. The attacked traces come from target users and from strangers. An instant without an
event is a deleted place: the probability is summed over all places. Since all other places are known exactly, the
forward algorithm becomes a product of entries of powers of the transition matrix: one entry for each two consecutive
events, where the power is their distance in instants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy import sparse
from scipy.special import logsumexp

from ppmtf_jax.attacks.estimators.base import TransitionMatrices, to_probabilities
from ppmtf_jax.attacks.roc import Roc, bar_of_chance, rate_interval
from ppmtf_jax.data.comparable import check_same_places, index_of_ids
from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem, raise_any
from ppmtf_jax.privacy.limits import EXPECTED_BY_CHANCE
from ppmtf_jax.runtime.memory import require_memory
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.runtime.threads import map_in_threads, n_threads, one_thread
from ppmtf_jax.trace_models.population import stationary_distribution

NOBODY = -1
"""Index of a user who is not a target user."""
MAX_GAP = 6
"""After a longer gap, in instants, an event is scored as a first place: the chain has forgotten the event before."""
# Number of matrix entries in a batch of users; each thread has a batch. The bytes of an entry include the user's own
# matrix, the others' matrix, their powers, and the copies made when solving for the stationary distribution.
BATCH_ENTRIES = 2**21
BYTES_OF_ENTRY = 2 * 5 * 8
# Numbers of rows are rounded up, so that few programs are compiled.
ROWS = 64


@dataclass(frozen=True, eq=False)
class Observed:
    """The scored parts of traces: first places, and steps from one event to the next.

    `first`: the distinct first places. `steps`: for each gap of 1, 2, ... instants, place and next place of the
    distinct steps with this gap. `counts`: how often each trace has each step (first columns) and each first place.
    """

    first: Int[np.ndarray, " first"]
    steps: list[Int[np.ndarray, "2 _"]]
    counts: sparse.csr_array

    @classmethod
    def of(cls, traces: Traces, max_gap: int) -> Observed:
        trace, place = traces.trace_of_event(), traces.place.astype(np.int64)
        gap = np.diff(traces.instant.astype(np.int64), prepend=0)
        linked = ~run_begins(trace) & (gap <= max_gap)
        n_places = traces.n_places
        code = np.where(linked, (gap * n_places + np.roll(place, 1)) * n_places + place, -1 - place)
        distinct, column = np.unique(code, return_inverse=True)
        # First places have negative codes: put them behind the steps.
        n_first = int((distinct < 0).sum())
        column = np.where(column < n_first, column + len(distinct) - n_first, column - n_first)
        counts = sparse.coo_array((np.ones(len(code)), (trace, column)), (int(trace[-1]) + 1, len(distinct)))
        gap_of, step = np.divmod(distinct[n_first:], n_places**2)
        longer = np.searchsorted(gap_of, np.arange(2, gap_of.max(initial=0) + 1))
        steps = np.split(np.stack(np.divmod(step, n_places)), longer, axis=1) if len(step) else []
        return cls(-1 - distinct[:n_first], steps, sparse.csr_array(counts))


class OpenWorld(NamedTuple):
    """How well `n_targets` targets (N') are told apart by a threshold of the score, sections III-C and III-D.

    `pair_true` (6), `pair_false`: share of the pairs of a trace and a target above the threshold (TPP_1, FPP_1).
    `false_alarms`: share of strangers' traces with candidates, NaN without strangers. `n_candidates`: mean number of
    candidates of targets' traces. Beside them, what (7) and (10) expect of independent scores. `named_right`,
    `named_wrong`: shares of targets' traces by the max-score rule, whose false alarms are the same.
    """

    n_targets: int
    threshold: float
    pair_true: float
    pair_false: float
    false_alarms: float
    expected_false_alarms: float
    n_candidates: float
    expected_candidates: float
    named_right: float
    named_wrong: float


@dataclass(frozen=True, eq=False)
class TraceScores:
    """Log-probability of each trace for each target user n: `own` is log P(trace | H_n), `others` log P(trace | H_0).

    H_0 is the mean chain of all other target users.
    """

    own: Float[np.ndarray, "trace target"] = field(repr=False)
    others: Float[np.ndarray, "trace target"] = field(repr=False)
    user_ids: np.ndarray = field(repr=False)
    number: Int[np.ndarray, " trace"] = field(repr=False)
    target_ids: np.ndarray = field(repr=False)

    @property
    def log_ratio(self) -> Float[np.ndarray, "trace target"]:
        """The logarithm of the score (5)."""
        return self.own - self.others

    @property
    def truth(self) -> Int[np.ndarray, " trace"]:
        """Index of the target user who made each trace, -1 if no target user did."""
        return index_of_ids(self.user_ids, self.target_ids)

    def found_interval(self, wrong: float = 0.01) -> tuple[float, float]:
        """The 95 % interval of `found`, see `rate_interval`: the others are the target users."""
        n, n_known = len(self.target_ids), len(np.unique(self.truth[self.truth >= 0]))
        return rate_interval(lambda rate: self.found(min(rate, 1 - 1 / n)), wrong, n, n_known)

    def found(self, wrong: float = 0.01) -> float:
        """Share of the known target users who are named right where at most a share `wrong` of them is named wrongly.

        A known target user made one of the traces. The attacker names the most probable target user of a trace, but
        only if the odds against all others, and against the population, are high enough.
        """
        row, named, truth = np.arange(len(self.own)), self.own.argmax(axis=1), self.truth
        rest = self.own.copy()
        rest[row, named] = -np.inf
        odds = self.own[row, named] - np.logaddexp(logsumexp(rest, axis=1), self.others[row, named])
        of_right, of_wrong = (np.full(len(self.target_ids), -np.inf) for _ in range(2))
        for odds_of, those in ((of_right, named == truth), (of_wrong, named != truth)):
            np.maximum.at(odds_of, named[those], odds[those])
        least = np.sort(of_wrong)[::-1][math.floor(wrong * len(of_wrong))]
        return float((of_right > least).sum() / len(np.unique(truth[truth >= 0])))

    def candidates(self, threshold: float) -> Bool[np.ndarray, "trace target"]:
        """Threshold rule (section III-C): all targets whose score, the log-ratio, is at least the threshold."""
        return self.log_ratio >= threshold

    def named(self, threshold: float) -> Int[np.ndarray, " trace"]:
        """Max-score rule (section III-C): the target of the greatest score if it is high enough, -1 otherwise."""
        greatest = self.log_ratio.argmax(axis=1)
        return np.where(self.candidates(threshold).any(axis=1), greatest, NOBODY)

    def of_targets(self, targets: Int[np.ndarray, " target"]) -> TraceScores:
        """The scores for some targets (N'), given by index; all others are strangers to the attacker."""
        own, others = self.own[:, targets], self.others[:, targets]
        return replace(self, own=own, others=others, target_ids=self.target_ids[targets])

    def open_world(self, pair_false: float) -> OpenWorld:
        """Both rules at the lowest threshold at which at most a share `pair_false` of others' pairs is above it."""
        roc, n, truth = verification(self).roc(), len(self.target_ids), self.truth
        at = int(np.flatnonzero(roc.false_positive_rate <= pair_false * (1 + 1e-12))[-1])
        curve = roc.threshold, roc.true_positive_rate, roc.false_positive_rate
        threshold, true, false = (float(each[at]) for each in curve)
        candidates, named, known = self.candidates(threshold), self.named(threshold), truth != NOBODY
        alarms = float(candidates[~known].any(axis=1).mean()) if not known.all() else math.nan
        right = float((named == truth)[known].mean())
        wrong = float((named != NOBODY)[known].mean()) - right
        counted = float(candidates[known].sum(axis=1).mean())
        expected = 1 - (1 - false) ** n, true + (n - 1) * false
        return OpenWorld(n, threshold, true, false, alarms, expected[0], counted, expected[1], right, wrong)

    def combined(self) -> TraceScores:
        """Sum the scores of all traces of a user: all have the same pseudonym."""
        users, row = np.unique(self.user_ids, return_inverse=True)
        by_user = sparse.csr_array((np.ones(len(row)), (row, np.arange(len(row)))))
        number = np.zeros(len(users), np.int64)
        return TraceScores(by_user @ self.own, by_user @ self.others, users, number, self.target_ids)


def score_traces(
    traces: Traces,
    matrices: TransitionMatrices,
    *,
    first_place: Literal["stationary", "uniform"] = "stationary",
    max_gap: int = MAX_GAP,
    progress: bool = False,
) -> TraceScores:
    """Score every attacked trace for every target user.

    The user ids of `traces` are only used to evaluate the attack. `first_place`, `max_gap`: see
    `ReidentificationSettings`; the stationary distribution is that of section III-B, and uniform ones cancel in the
    ratio. Raises `InputError`: the place tables differ, there are fewer than two target users, `max_gap` is below 1, or
    memory is too small.

    Examples
    --------
    >>> from ppmtf_jax.attacks.estimators.base import estimate_transitions
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=10, n_places=20, seed=0).traces
    >>> scores = score_traces(traces, estimate_transitions(traces)).combined()
    >>> scores.log_ratio.argmax(axis=1).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    check_same_places(traces=traces, training=matrices)
    problems: list[Problem | str] = []
    if matrices.n_users < 2:
        way_out = "The likelihood ratio holds a user against the other target users"
        problems.append(Problem("training traces of at least 2 users", str(matrices.n_users), way_out=way_out))
    if max_gap < 1:
        problems.append(Problem("max_gap of at least 1", repr(max_gap)))
    if first_place not in ("stationary", "uniform"):
        problems.append(Problem("first_place 'stationary' or 'uniform'", repr(first_place)))
    raise_any("re-identification", problems)
    observed, (user, number) = Observed.of(traces, max_gap), traces.trace_table()
    n_bytes = (n_threads() + 1) * _batch_users(matrices) * len(matrices.places) ** 2 * BYTES_OF_ENTRY
    n_bytes += 2 * 8 * len(user) * matrices.n_users
    require_memory("attack", n_bytes, "Attack fewer traces or users at a time")
    own, others = np.empty((2, len(user), matrices.n_users))
    for users, tables in log_tables(observed, matrices, stationary=first_place == "stationary", progress=progress):
        scored = observed.counts @ tables.reshape(-1, tables.shape[-1]).T
        own[:, users], others[:, users] = np.split(scored, 2, axis=1)
    return TraceScores(own, others, traces.user_ids[user], number, matrices.user_ids)


def log_tables(
    observed: Observed, matrices: TransitionMatrices, *, stationary: bool, progress: bool = False
) -> Iterator[tuple[Int[np.ndarray, " user"], Float[np.ndarray, "2 user column"]]]:
    """Yield a batch of user indices, and for each user the log-probabilities of the columns of `observed.counts`.

    The first table uses the user's own chain, the second table the mean chain (4) of all other users.
    """
    batches = batches_of_users(matrices, np.arange(matrices.n_users))
    starts = _Starts.of(observed.steps, len(matrices.places))
    steps = [padded_indices(pair) for pair in starts.steps]

    def of_batch(users: Int[np.ndarray, " user"]) -> Float[np.ndarray, "2 user column"]:
        given = (matrices.counts.of_users(users), total, matrices.n_users - 1, matrices.floor)
        chains, tables = _log_tables(*given, starts.place, steps, starts.n_rows)
        log_first = np.full((*chains.shape[:2], len(observed.first)), -np.log(chains.shape[-1]))
        if stationary:
            log_first = np.log(stationary_distribution(np.asarray(chains))[..., observed.first])
        kept = [table[..., : pair.shape[1]] for table, pair in zip(tables, observed.steps, strict=True)]
        return np.concatenate([*kept, log_first], axis=-1)

    # LAPACK must not split the equations of one chain over the cores: that takes five times as long.
    with one_thread(), jax.enable_x64(True), progress_bar("attack", 2 * matrices.n_users, show=progress) as advance:
        total = jnp.zeros((len(matrices.places),) * 2)
        for users in batches:
            total += _summed(matrices.counts.of_users(users), matrices.floor)
            advance(len(users))
        for users, tables in zip(batches, map_in_threads(of_batch, batches), strict=True):
            yield users, tables
            advance(len(users))


class _Starts(NamedTuple):
    """Places in the order of the longest gap of a step that begins there, longest first.

    `steps`: as in `Observed`, with the rank of the first place in this order. `n_rows`: for each gap, number of places
    where a step with this gap or a longer one begins, rounded up to a multiple of `ROWS`.
    """

    place: Int[np.ndarray, " place"]
    steps: list[Int[np.ndarray, "2 _"]]
    n_rows: tuple[int, ...]

    @classmethod
    def of(cls, steps: list[Int[np.ndarray, "2 _"]], n_places: int) -> _Starts:
        longest = np.zeros(n_places, np.int64)
        for gap, (place, _) in enumerate(steps, 1):
            longest[place] = gap
        order = np.argsort(-longest, kind="stable")
        rank = np.argsort(order)
        needed = [int((longest >= gap).sum()) for gap in range(1, len(steps) + 1)]
        n_rows = tuple(min(n_places, -(-n // ROWS) * ROWS) for n in needed)
        return cls(order, [np.stack([rank[place], next_place]) for place, next_place in steps], n_rows)


def batches_of_users(
    matrices: TransitionMatrices, users: Int[np.ndarray, " user"], n_matrices: int = 1
) -> list[Int[np.ndarray, " some"]]:
    """Split users into batches, so that `n_matrices` matrices for each user fit in memory."""
    at_a_time = max(1, _batch_users(matrices) // n_matrices)
    return np.array_split(users, -(-len(users) // at_a_time))


def padded_indices(indices: Int[np.ndarray, "*rows column"]) -> Int[np.ndarray, "*rows padded"]:
    """Pad the number of columns to a power of two, so that few programs are compiled."""
    n_columns = indices.shape[-1]
    width = 1 << max(0, int(n_columns - 1).bit_length())
    return np.pad(indices, [(0, 0)] * (indices.ndim - 1) + [(0, width - n_columns)])


def _batch_users(matrices: TransitionMatrices) -> int:
    return max(1, min(matrices.n_users, BATCH_ENTRIES // len(matrices.places) ** 2))


@jax.jit
def _summed(counts: Float[Array, "user place next_place"], floor: float | Float[Array, ""]) -> Array:
    return to_probabilities(counts.astype(jnp.float64), floor).sum(axis=0)


@partial(jax.jit, static_argnames="n_rows")
def _log_tables(
    counts: Array, total: Array, n_others: Array, floor: Array, starts: Array, steps: list, n_rows: tuple[int, ...]
) -> tuple[Float[Array, "2 user place place"], list[Array]]:
    """The chains of users and of others, and for each gap the log-probabilities of its steps."""
    own = to_probabilities(counts.astype(jnp.float64), floor)
    chains = jnp.stack([own, (total - own) / n_others])
    rows, tables = chains[..., starts[: max(n_rows, default=0)], :], []
    for number, (step, n) in enumerate(zip(steps, n_rows, strict=True)):
        # One table for each gap from 1 on, even if no event has this gap.
        rows = rows[..., :n, :] @ chains if number else rows
        tables.append(jnp.log(rows[..., step[0], step[1]]))
    return chains, tables


# Verification: "did this target user make this trace?"


class Verification(NamedTuple):
    """Scores of all pairs of a trace and a target user, split into genuine and impostor scores.

    `genuine`: scores of traces for the target user who made them. `impostor`: those of other people's traces, NaN for
    the user who made the trace. `impostor_user`: numbers of the people who made these traces; indices of target users
    if they are `against` "targets" and not "strangers".
    """

    genuine: Float[np.ndarray, " genuine"]
    genuine_target: Int[np.ndarray, " genuine"]
    impostor: Float[np.ndarray, "impostor target"]
    impostor_user: Int[np.ndarray, " impostor"]
    against: str

    def roc(self) -> Roc:
        """The ROC curve of all scores."""
        return Roc.of(self.genuine, self.impostor[~np.isnan(self.impostor)])

    def n_exposed(self, n_attacks: int) -> int:
        """How many target users have a trace that scores higher for them than chance explains.

        The others are all impostor scores. `n_attacks` share the people found by chance.
        """
        others = self.impostor[~np.isnan(self.impostor)]
        bar = bar_of_chance(others, len(self.genuine), EXPECTED_BY_CHANCE / n_attacks)
        return len(np.unique(self.genuine_target[self.genuine > bar]))

    @property
    def n_users(self) -> int:
        """Number of target users, plus the number of strangers if there are any."""
        return self.impostor.shape[1] + (int(self.impostor_user.max()) + 1 if self.against == "strangers" else 0)

    def auc_by_users(self) -> Callable[[Float[np.ndarray, " user"]], float]:
        """Return a function from the weights of target users and then strangers to the area under the ROC curve.

        The area is the weighted share of pairs in which the genuine score is higher than that of the impostor. So only
        ranks of impostor scores among genuine ones matter, and they are found once.
        """
        n_targets, of_strangers = self.impostor.shape[1], self.against == "strangers"
        value, rank = np.unique(self.genuine, return_inverse=True)
        # Twice the rank, plus one in a tie. A score that does not exist is NaN; its rank is the highest.
        at = sum(np.searchsorted(value, self.impostor, side).astype(np.int32) for side in ("left", "right"))
        is_pair = (~np.isnan(self.impostor)).astype(float)
        higher, weight_higher = np.empty(self.impostor.shape), np.zeros(2 * len(value) + 1)

        def auc(weight: Float[np.ndarray, " user"]) -> float:
            of_target = weight[:n_targets]
            of_impostor = (weight[n_targets:] if of_strangers else weight)[self.impostor_user]
            of_value = np.bincount(rank, of_target[self.genuine_target], len(value))
            weight_higher[:-1:2] = of_value[::-1].cumsum()[::-1]
            weight_higher[1::2] = weight_higher[:-1:2] - of_value / 2
            np.take(weight_higher, at, out=higher, mode="clip")
            total = of_value.sum() * (of_impostor @ (is_pair @ of_target))
            return float(of_impostor @ (higher @ of_target) / (total or np.nan))

        return auc


def verification(scores: TraceScores) -> Verification:
    """Split the scores of all pairs of a trace and a target user into genuine and impostor scores.

    Impostor traces are strangers' traces if there are any, as in section VI; otherwise other target users' traces.
    Raises `InputError` if no target user made a trace.
    """
    truth, ratio = scores.truth, scores.log_ratio
    known = np.flatnonzero(truth != NOBODY)
    if not len(known):
        way_out = "Both must use the same user ids; read a release with its key"
        raise InputError("traces to attack", [Problem("some of users in the training traces", "none", way_out=way_out)])
    strangers = np.flatnonzero(truth == NOBODY)
    others = strangers if len(strangers) else known
    impostor = ratio[others].copy()
    own = truth[others] != NOBODY
    impostor[own, truth[others][own]] = np.nan
    against = "strangers" if len(strangers) else "targets"
    number = np.unique(scores.user_ids[others], return_inverse=True)[1] if len(strangers) else truth[others]
    return Verification(ratio[known, truth[known]], truth[known], impostor, number, against)
