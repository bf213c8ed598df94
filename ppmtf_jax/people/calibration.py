"""Set pulls and log-odds of staying, so that people with memory have the right distribution over places at every time.

Both concern other places, which are neither home nor second place. Memory moves people away from where a chain would
put them: a return goes to a place that the person visited before, and a new place is a place that they never visited.
So the pulls are set instant by instant, forward in time. At each instant, Sinkhorn iterations find the pulls that bring
the expected people at other places (by cluster, class of mobility, dwell time and place) to the cluster's distribution
over other places. This expectation needs three numbers that only simulated people give: how many moves are
returns, which places are no longer new, and how often people stay. Several rounds also set the factors of distance,
which all clusters share, and the strength of new places. Then moves are as long, and returns are as frequent, as in the
training traces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.ops import segment_sum
from jaxtyping import Array, Bool, Float, Int, Key

from ppmtf_jax.data.runs import Runs, joined_ranges
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.people.bins import DWELL_FROM, HOME, OTHER, SECOND
from ppmtf_jax.people.fitting import matching
from ppmtf_jax.people.person import PersonState
from ppmtf_jax.people.process import PersonProcess, sample_person, sample_step
from ppmtf_jax.trace_models.base import ABSENT

MIN_PEOPLE, MAX_PEOPLE = 50, 400
"""Minimum and maximum number of simulated people of a cluster."""
TOLERANCE, MAX_SCALINGS, FEW = 3e-3, 15, 0.01
"""Sinkhorn iterations stop at this total variation from the target, or after this number of iterations. The total
variation is relative to the people at other places. If they are less than the share `FEW` of a cluster's people, it is
relative to this share: if nearly all people are at home, many iterations for the few others take too much time."""
CORRECTIONS, HALVINGS = 3, 30
"""Number of iterations that correct the pulls for visited places; number of bisections for the odds of staying."""
MIN_SHARE = 0.02
"""Minimum share of a place's people who stay there or come to it as a new place, even if returns bring too many."""
MIN_LEFT = 0.02
"""Lower bound of the share of weight that a person has left when the places that they know are excluded."""
MAX_TILT, MAX_ODDS = 4.0, 12.0
MAX_CHANGE, STRENGTH_POWER = 5.0, 1.3
"""Maximum change of a factor in a round; exponent of the change of strength, since strength acts weakly on returns."""
TINY = 1e-20
KEPT = np.append(1 - 1 / np.diff(DWELL_FROM), 1.0)
"""For each bin of dwell time: of the people who stay, the share who are still in this bin an instant later."""


class Effort(NamedTuple):
    """Number of rounds of calibration, and number of simulated people of all clusters together."""

    n_rounds: int
    n_people: int


Process = TypeVar("Process", bound=PersonProcess)
THOROUGH, QUICK = Effort(6, 8000), Effort(2, 2000)
"""Effort for a model that is kept, and for models that are only compared."""


class Targets(NamedTuple):
    """Statistics of the training people that simulated people should have."""

    other: Float[Array, "cluster slot place"]  # distribution of the people at other places
    stays: Float[Array, " slot"]  # share of stays among the steps from other places to other places
    bin: Int[Array, "cell cell"]  # bins of distance
    distances: Float[Array, " bin"]  # share of the moves to other places in each bin
    returns: float  # share of returns among moves, see `returns.share_of_returns`
    share: Float[Array, " cluster"]  # share of the people


class _Times(NamedTuple):
    """Arrays that a sweep sets at each time; `scaling`: the pull before it is corrected for visited places."""

    pull: Float[Array, "time cluster place"]
    stay_tilt: Float[Array, "time cluster place"]
    stay_at_time: Float[Array, " time"]
    scaling: Float[Array, "time cluster place"]


SET = ("pull", "stay_tilt", "stay_at_time")
"""Arrays of the process that a sweep sets."""


class _Found(NamedTuple):
    """What simulated people did at each time."""

    place: Int[Array, "time person"]
    returning: Float[Array, " time"]  # share of returns among moves to other places
    in_bin: Float[Array, "time bin"]


def calibrate(
    process: Process,
    targets: Targets,
    clusters: Int[np.ndarray, " person"],
    share_of_returns: Callable[[Int[np.ndarray, "person instant"]], float],
    key: Key[Array, ""],
    advance_bar: Callable[[int], None] = lambda _: None,
    n_rounds: int = THOROUGH.n_rounds,
) -> tuple[Process, Int[np.ndarray, "person instant"]]:
    """Set pulls, log-odds of staying, factors of distance and strength; also gives the places of the simulated people.

    The `residual` of the process is what the last round leaves.

    `process`: has all arrays; its weights of new places have no factors of distance yet. The arrays in `SET` have their
    start values: pulls of 1 and log-odds of 0. The caller cannot use these arrays afterwards, since their memory is
    used again. `clusters`: the cluster of each simulated person. `share_of_returns`: measures, on the places of the
    simulated people, what `targets.returns` states.
    """
    n_times = len(process.stay_at_time)
    cell, last = np.asarray(process.cell), process.n_places - 1
    origin = np.repeat(np.arange(process.n_places), np.diff(process.move_start))
    # The last entries of the moves belong to no place. Their weights are 0.
    origin = np.pad(origin, (0, len(process.next_place) - len(origin)), constant_values=last)
    bin_of_move = targets.bin[cell[origin], cell[np.minimum(process.next_place, last)]]
    factor, returning = np.ones(len(targets.distances)), jnp.full(n_times, targets.returns * (process.remembered > 0))
    times = _Times(process.pull, process.stay_tilt, process.stay_at_time, jnp.ones_like(process.pull))
    process = replace(process, **{name: values[:1] for name, values in times._asdict().items() if name in SET})
    base_seen, base_between = process.seen, process.between
    wanted = np.asarray(targets.distances)
    seen, distances = targets.returns, wanted
    for number in range(n_rounds):
        by_bin = jnp.asarray(factor, jnp.float32)
        process = replace(process, seen=base_seen * by_bin[bin_of_move], between=base_between * by_bin[targets.bin])
        # Its type is the same in all rounds, so that the sweep is compiled once.
        returning, own_key = returning.astype(jnp.float32), jax.random.fold_in(key, number)
        times, found = _sweep(process, targets, times, returning, jnp.asarray(origin), jnp.asarray(clusters), own_key)
        returning = found.returning
        advance_bar(1)
        in_bin, seen = np.asarray(found.in_bin, np.float64).sum(axis=0), share_of_returns(np.asarray(found.place).T)
        distances = in_bin / max(in_bin.sum(), TINY)
        if number < n_rounds - 1:
            factor *= matching(wanted, distances, MAX_CHANGE)
            # The mean factor of a move is 1, so that nearness keeps its meaning in the weights of returns.
            factor /= max(wanted @ factor, TINY)
            odds = seen / (1 - seen), targets.returns / (1 - targets.returns)
            change = np.float32(matching(*odds, MAX_CHANGE, STRENGTH_POWER))
            process = replace(process, strength=process.strength * change)
    residual = jnp.array([abs(seen - targets.returns), np.abs(distances - wanted).sum() / 2], jnp.float32)
    process = replace(process, residual=residual, **{name: getattr(times, name) for name in SET})
    return process, np.asarray(found.place).T


def simulated_clusters(n_clusters: int, n_rounded: int, n_people: int) -> Int[np.ndarray, " person"]:
    """The cluster of each simulated person: about `n_people` in all, equally many in each cluster.

    `n_rounded`: number of clusters after `TraceModel.rounded`. It determines the number of people, so that models with
    the same `n_rounded` share a program. People who are left over are in the first added cluster.
    """
    total = n_rounded * int(np.clip(n_people // n_rounded, MIN_PEOPLE, MAX_PEOPLE))
    return np.minimum(np.arange(total) // (total // n_clusters), n_clusters)


def presence(
    train: Traces, n_periods: int, n_people: int, random: np.random.Generator
) -> Bool[np.ndarray, "person instant"]:
    """For each simulated person, the instants at which a randomly drawn window of `n_periods` periods has events."""
    n_instants = n_periods * train.time_grid.period
    windows = train.blocks.map(lambda block: block.cut_into_periods(n_periods))
    ends = np.cumsum(windows.map(lambda own: np.bincount(own.trace_table()[0], minlength=own.n_users)).joined())
    chosen = random.integers(ends[-1], size=n_people)
    user = np.searchsorted(ends, chosen, side="right")
    users = np.unique(user)
    some = train.select_users(users).cut_into_periods(n_periods)
    row, of_window = some.trace_of_event(), some.trace_table()[0]
    begins = np.append(np.flatnonzero(np.diff(row, prepend=-1)), len(row))
    # From the end of the user's windows among all windows, and among those of `some`.
    last = np.searchsorted(of_window, np.searchsorted(users, user), side="right")
    window = last - (ends[user] - chosen)
    length = np.diff(begins)[window]
    present = np.zeros((n_people, n_instants), bool)
    events = joined_ranges(begins[window], length)
    present[np.repeat(np.arange(n_people), length), some.instant[events] % n_instants] = True
    return present


def share_of_seen_returns(
    places: Int[np.ndarray, "person instant"],
    present: Bool[np.ndarray, "person instant"],
    weight: Float[np.ndarray, " person"],
) -> float:
    """Share of returns among the moves of people who are seen at some instants only."""
    person, instant = np.nonzero(present & (places != ABSENT))
    runs = Runs.of(person, places[person, instant])
    moves = weight[runs.window] * runs.is_move()
    least = 0.5 * weight.mean()
    return float((moves @ (runs.earlier() >= 0) + least) / (moves.sum() + 2 * least))


@partial(jax.jit, donate_argnames="times")
def _sweep(
    process: PersonProcess,
    targets: Targets,
    times: _Times,
    returning: Float[Array, " time"],
    origin: Int[Array, " move1"],
    clusters: Int[Array, " person"],
    key: Key[Array, ""],
) -> tuple[_Times, _Found]:
    """Simulate people from instant to instant; before each step, set the pulls and log-odds of staying for it.

    The arrays of `times` are large, so they are changed in place. These arrays in `process` are not read.
    """
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(len(clusters)))
    people = jax.vmap(sample_person, (None, 0, 0))(process, keys, clusters)
    begins = process.class_share.T[:, None, :, None] * process.first_other
    crowd = jnp.pad(begins, [(0, 0), (0, len(DWELL_FROM) - 1), (0, 0), (0, 0)])
    roles = jnp.stack([1 - process.second_share, process.second_share])[..., None] * process.role_first

    def step(carry: tuple, given: tuple) -> tuple[tuple, tuple]:
        people, crowd, roles, times = carry
        instant, returns = given
        old = jax.tree.map(lambda values: values[instant], times)
        _, phase, _, slot = process.when(instant)
        next_role = process.role_next[:, :, phase]
        into = roles[..., None] * next_role
        kernel = _Kernel(process, slot, origin)
        weight, target, at_other = targets.share[people.cluster], targets.other[:, slot], into[..., OTHER].sum(axis=0)
        crowd, scaling, going = _expect(process, kernel, target, slot, old, returns, crowd, at_other)
        tilt = jnp.clip(jnp.log(jnp.maximum(scaling, TINY) / going), -MAX_TILT, MAX_TILT)
        to_other = next_role[people.has_second, people.cluster, people.role, OTHER]
        was_other = people.role == OTHER
        dwell = jnp.searchsorted(jnp.asarray(DWELL_FROM), people.dwell, side="right") - 1
        log_odds = process.stay[slot, people.place] + tilt[people.cluster, people.place]
        log_odds += process.stay_by_dwell[dwell] + process.stay_by_class[people.mobility]
        at_time = _common_odds(log_odds, weight * to_other * was_other, targets.stays[slot])
        leaves = to_other * jnp.where(was_other, jax.nn.sigmoid(-log_odds - at_time), 1)
        start = scaling * old.pull / jnp.maximum(old.scaling, TINY)
        now = _Times(_corrected(process, kernel, scaling, start, going, people, leaves), tilt, at_time, scaling)
        after = jax.vmap(sample_step, (None, 0, 0, None))(_at_one(process, slot, next_role, now), keys, people, instant)
        moves = weight * ((after.role == OTHER) & (after.place != people.place))
        again = jnp.any(people.visited == after.place[:, None], axis=1)
        share = jnp.sum(moves * again) / jnp.maximum(moves.sum(), TINY) if process.remembered else jnp.array(0.0)
        bins = targets.bin[process.cell[people.place], process.cell[after.place]]
        in_bin = segment_sum(moves, bins, len(targets.distances))
        times = jax.tree.map(lambda values, new: values.at[instant].set(new), times, now)
        return (after, crowd, into.sum(axis=2), times), _Found(after.place, share, in_bin)

    rest = jnp.arange(1, len(returning)), returning[1:]
    (*_, times), found = jax.lax.scan(step, (people, crowd, roles, times), rest)
    # Nobody moves to the first instant.
    first = _Found(people.place, returning[0], jnp.zeros(len(targets.distances)))
    return times, jax.tree.map(lambda begin, values: jnp.concatenate([begin[None], values]), first, found)


def _at_one(
    process: PersonProcess, slot: Int[Array, ""], next_role: Float[Array, "2 cluster 3 3"], times: _Times
) -> PersonProcess:
    """The process of one instant, as a process whose period is one instant; this copies no array over all times."""
    set_at = {name: getattr(times, name)[None] for name in SET}
    return replace(process, slot_of_phase=slot[None], role_next=next_role[:, :, None], **set_at)


class _Kernel:
    """K of one slot, as products with rows of clusters; dense if each place is a cell."""

    def __init__(self, process: PersonProcess, slot: Int[Array, ""], origin: Int[Array, " move1"]):
        self.process, self.slot = process, slot
        self.cells = process.kernel(slot, origin)
        self.dense = self.cells.as_dense() if len(process.between) == process.n_places else None

    def from_next(self, v: Float[Array, "cluster place"]) -> Float[Array, "cluster place"]:
        """Sum over b of K(a, b) v(b), not below a tiny number."""
        product = self.cells.from_next(v.T).T if self.dense is None else v @ self.dense.T
        return jnp.maximum(product, TINY)

    def to_next(self, u: Float[Array, "cluster place"]) -> Float[Array, "cluster place"]:
        """Sum over a of u(a) K(a, b)."""
        return self.cells.to_next(u.T).T if self.dense is None else u @ self.dense

    def between(self, place: Int[Array, " person"], other: Int[Array, " person"]) -> Float[Array, " person"]:
        """K(a, b) for some pairs of different places."""
        if self.dense is not None:
            return self.dense[place, other]
        return jax.vmap(self.process.pair, (None, 0, 0))(self.slot, place, other)


def _expect(
    process: PersonProcess,
    kernel: _Kernel,
    target: Float[Array, "cluster place"],
    slot: Int[Array, ""],
    old: _Times,
    returning: Float[Array, ""],
    crowd: Float[Array, "class dwell cluster place"],
    into: Float[Array, "cluster role"],
) -> tuple[Array, Array, Array]:
    """The people expected at other places after a step, the scaling that brings them to the target, and K x scaling.

    `old`: values that the previous sweep set. `into`: shares of the people who are at other places after the step, by
    their role before the step. `returning`: share of returns among the moves. The places of these returns are assumed
    to have the distribution `target`.
    """
    log_odds = process.stay[slot] + old.stay_at_time
    log_odds += process.stay_by_class[:, None, None] + process.stay_by_dwell[:, None]
    odds_of_leaving = jnp.exp(-log_odds)[:, :, None]
    total = jnp.maximum(crowd.sum(axis=(0, 1, 3)), TINY)
    crowd *= (into[:, OTHER] / total)[:, None]
    everybody, anchored = crowd.sum(axis=(0, 1)), jnp.zeros_like(target)
    if process.home is not None and process.second is not None:
        anchored = into[:, HOME, None] * process.home + into[:, SECOND, None] * process.second
    people = into.sum(axis=1)[:, None]

    def leaving(number: tuple[int, int], scaling: Array, going: Array) -> Float[Array, "cluster place"]:
        here, odds = crowd[number], odds_of_leaving[number]
        return here - here / (1 + odds * going / jnp.maximum(scaling, TINY))

    def iterate(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        scaling, _, number = state
        going = kernel.from_next(scaling)
        # XLA makes one fast loop of this sum. A sum over axes of an array takes several times as long.
        leave = sum(leaving(each, scaling, going) for each in np.ndindex(crowd.shape[:2]))
        moves = jnp.sum(leave + anchored, axis=1)[:, None]
        needed = jnp.maximum(people * target - returning * moves * target, MIN_SHARE * people * target + TINY)
        found = everybody - leave + (1 - returning) * scaling * kernel.to_next((leave + anchored) / going)
        apart = jnp.abs(found - needed).sum(axis=1) / jnp.maximum(needed.sum(axis=1), FEW)
        scaling = scaling * needed / jnp.maximum(found, TINY)
        return scaling / scaling.mean(axis=1, keepdims=True), apart.max() / 2, number + 1

    def is_open(state: tuple[Array, Array, Array]) -> Array:
        return (state[1] > TOLERANCE) & (state[2] < MAX_SCALINGS)

    start = old.scaling, jnp.array(jnp.inf), jnp.array(0)
    scaling, *_ = jax.lax.while_loop(is_open, iterate, start)
    going = kernel.from_next(scaling)
    leave = crowd - crowd / (1 + odds_of_leaving * going / jnp.maximum(scaling, TINY))
    stay = crowd - leave
    kept = stay * jnp.asarray(KEPT)[:, None, None]
    # Moves of each class, from other places and from anchors.
    moving = leave.sum(axis=1) + process.class_share.T[:, :, None] * anchored
    new = scaling * kernel.to_next((moving / going).reshape(-1, process.n_places)).reshape(moving.shape)
    arriving = (1 - returning) * new + returning * moving.sum(axis=2, keepdims=True) * target
    after = jnp.concatenate([arriving[:, None], jnp.zeros_like(stay[:, 1:])], axis=1) + kept
    return after.at[:, 1:].add((stay - kept)[:, :-1]), scaling, going


def _common_odds(
    log_odds: Float[Array, " person"], weight: Float[Array, " person"], wanted: Float[Array, ""]
) -> Float[Array, ""]:
    """Number to add to all log-odds, so that the wanted share of the people stays; 0 if there are no people."""

    def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) / 2
        too_few = jnp.sum(weight * jax.nn.sigmoid(log_odds + middle)) < wanted * weight.sum()
        return jnp.where(too_few, middle, low), jnp.where(too_few, high, middle)

    low, high = jax.lax.fori_loop(0, HALVINGS, halve, (jnp.array(-MAX_ODDS), jnp.array(MAX_ODDS)))
    return jnp.where(weight.sum() > 0, (low + high) / 2, 0)


def _corrected(
    process: PersonProcess,
    kernel: _Kernel,
    scaling: Float[Array, "cluster place"],
    start: Float[Array, "cluster place"],
    going: Float[Array, "cluster place"],
    people: PersonState,
    leaves: Float[Array, " person"],
) -> Float[Array, "cluster place"]:
    """Pulls such that moves to new places reach the places that `scaling` would give them if no place were excluded.

    A move to a new place excludes the places that the person knows. `leaves`: for each person, the probability of a
    move to one of the other places.
    """
    cluster, place = people.cluster, people.place
    visited = people.visited.T if process.remembered else people.place[None]
    known = jnp.concatenate([people.home[None], people.second[None], visited])
    # Only the first rows are used, since most people know few places.
    n_known = 2 + jnp.max(jnp.sum(visited != ABSENT, axis=0))
    is_excluded = (known != ABSENT) & (known != place)
    known = jnp.maximum(known, 0)

    def weigh(row: Array, weights: Array) -> Array:
        return weights.at[row].set(jnp.where(is_excluded[row], kernel.between(place, known[row]), 0))

    weight = jax.lax.fori_loop(0, n_known, weigh, jnp.zeros(known.shape))
    origin = cluster * scaling.shape[1] + place

    def from_places(value: Array) -> Array:
        return segment_sum(value, origin, scaling.size).reshape(scaling.shape)

    wanted = scaling * kernel.to_next(from_places(leaves / going[cluster, place]))
    least = 1e-3 * wanted.mean(axis=1, keepdims=True) + TINY

    def correct(_: Array, pull: Array) -> Array:
        possible = kernel.from_next(pull)[cluster, place]

        def exclude(row: Array, left: Array) -> Array:
            return left - weight[row] * pull[cluster, known[row]]

        left = jax.lax.fori_loop(0, n_known, exclude, possible)
        part = leaves / jnp.maximum(left, MIN_LEFT * possible)

        def lose(row: Array, arriving: Array) -> Array:
            return arriving.at[cluster, known[row]].add(-part * weight[row])

        arriving = jax.lax.fori_loop(0, n_known, lose, kernel.to_next(from_places(part)))
        found = pull * jnp.maximum(arriving, 0)
        pull = pull * jnp.clip((wanted + least) / (found + least), 1 / MAX_CHANGE, MAX_CHANGE)
        return pull / pull.mean(axis=1, keepdims=True)

    return jax.lax.fori_loop(0, CORRECTIONS, correct, start)
