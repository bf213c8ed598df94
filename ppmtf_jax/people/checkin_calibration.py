"""Calibration: after gaps of each length, simulated people stay, return and go as far as observed people do.

Each step of the model is learned given what observed people did before. Simulated people visited other places before,
so some of their shares differ from the observed shares. Here people are simulated at the observed times. The weights of
staying, of new places and of distances change, so that the simulated shares come near the observed ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key
from scipy.special import logit

from ppmtf_jax.data.runs import joined_ranges
from ppmtf_jax.people.bins import DISTANCE_FROM_KM, GAP_CLASS, GAP_FROM_H, N_GAP_CLASSES, DistanceBins, bins_of_instants
from ppmtf_jax.people.checkin_process import CheckinProcess, sample_places
from ppmtf_jax.people.fitting import MAX_LOG
from ppmtf_jax.people.person import is_first_visit
from ppmtf_jax.people.user_bounds import STEP_USERS, bounded, sums, used_share
from ppmtf_jax.people.windows import ObservedWindows
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.runtime.threads import map_in_threads, on_each_device
from ppmtf_jax.trace_models.sampling import TILE, sample_index

Process = TypeVar("Process", bound=CheckinProcess)
# Number of simulations in each round. The noise of a round matters less if more rounds follow.
N_REPEATS = (1, 1, 1, 2, 2, 4)
# Part of a difference of log-odds that a round removes; greater differences are first cut to `MAX_CHANGE`.
STEP, MAX_CHANGE = 0.7, 1.0
DISTANCE_POWER, MAX_FACTOR = 0.6, 2.0
# Number of pseudo-events, distributed like all events; share that is added to each bin of distance.
MASS, MIN_SHARE = 10.0, 0.01
LEAST = 1e-9


class Moments(NamedTuple):
    """Weighted numbers of events after the first of their window."""

    events: Float[np.ndarray, " gap"]
    stays: Float[np.ndarray, " gap"]  # events at the last place
    returns: Float[np.ndarray, " gap"]  # events at another place that was visited before in the window
    moves: Float[np.ndarray, "gap_class bin"]  # events at another place than the last place, by distance

    @classmethod
    def of(cls, windows: ObservedWindows, model: CheckinProcess) -> Moments:
        """Count events; no user weighs more than the second heaviest user, and u users weigh (u - 4) / u."""
        place, n_gaps, n_bins = windows.place, len(GAP_FROM_H), len(DISTANCE_FROM_KM)
        later = np.flatnonzero(windows.is_later)
        gaps = bins_of_instants(GAP_FROM_H, model.per_day, windows.grid.n_instants)
        gap = gaps[windows.instant[later] - windows.instant[later - 1]]
        moved = place[later] != place[later - 1]
        returned = moved & ~is_first_visit(windows.window, place)[later]
        of_event, who = windows.weight[windows.window[later]], windows.user_of_event[later]

        def count(group: Int[np.ndarray, " row"], keep: Bool[np.ndarray, " row"], n: int) -> Float[np.ndarray, " n"]:
            used, users = bounded(who[keep], group[keep], n, of_event[keep])
            return sums(group[keep], used, n) * used_share(users, STEP_USERS)

        distances = DistanceBins(np.asarray(model.distance_bin), np.asarray(model.cell))
        bins = distances.between(place[later - 1], place[later])
        moves = count(GAP_CLASS[gap] * n_bins + bins, moved, N_GAP_CLASSES * n_bins).reshape(N_GAP_CLASSES, n_bins)
        everything = np.ones(len(later), bool)
        return cls(count(gap, everything, n_gaps), count(gap, ~moved, n_gaps), count(gap, returned, n_gaps), moves)

    @property
    def means(self) -> tuple[float, float]:
        """Share of stays among events, and of returns among other events; pseudo-counts keep them off 0 and 1."""
        stays, events = self.stays.sum(), self.events.sum()
        return (stays + 1) / (events + 2), (self.returns.sum() + 1) / (events - stays + 2)

    def shares(self, means: tuple[float, float]) -> Shares:
        """Shares of stays and of returns, shrunk to `means`; shares of distances, plus `MIN_SHARE`."""
        stays = (self.stays + MASS * means[0]) / (self.events + MASS)
        returns = (self.returns + MASS * means[1]) / (self.events - self.stays + MASS)
        return Shares(stays, returns, self.moves / np.maximum(self.moves.sum(axis=1, keepdims=True), 1) + MIN_SHARE)


class Shares(NamedTuple):
    """Shares of stays among events, of returns among other events, and of bins of distance among moves."""

    stays: Float[np.ndarray, " gap"]
    returns: Float[np.ndarray, " gap"]
    distances: Float[np.ndarray, "gap_class bin"]


def calibrate(
    model: Process,
    windows: ObservedWindows,
    level: Float[np.ndarray, "window level"],
    key: Key[Array, ""],
    *,
    progress: bool = False,
) -> Process:
    """Change weights in rounds, each of which compares simulated people with the observed people.

    After the last round, one more simulation gives the `residual` of the model.

    Simulated people have events at the times of the windows. `level`: probabilities of the levels of each window.
    """
    observed = Moments.of(windows, model)
    with progress_bar("check-ins of simulated people", sum(N_REPEATS) + 1, show=progress) as advance:

        def simulated(number: int, n_repeats: int) -> Moments:
            found = []
            for repeat in range(n_repeats):
                own_key = jax.random.fold_in(jax.random.fold_in(key, number), repeat)
                found.append(Moments.of(simulate_places(model, windows, level, own_key), model))
                advance(1)
            return Moments._make(sum(parts) / n_repeats for parts in zip(*found, strict=True))

        for number, n_repeats in enumerate(N_REPEATS):
            model = _corrected(model, observed, simulated(number, n_repeats))
        apart = residual(observed, simulated(len(N_REPEATS), 1))
    return replace(model, residual=jnp.asarray(apart, jnp.float32))


def residual(observed: Moments, simulated: Moments) -> Float[np.ndarray, " 3"]:
    """Mean difference between shares of stays and of returns over gaps; total variation between distances of moves.

    Examples
    --------
    >>> gaps, moves = np.array([100.0, 0.0]), np.array([[60.0, 30.0]])
    >>> seen = Moments(gaps, 0.1 * gaps, 0.3 * gaps, moves)
    >>> residual(seen, seen).tolist()
    [0.0, 0.0, 0.0]
    >>> residual(seen, Moments(gaps, 0.2 * gaps, 0.3 * gaps, moves[:, ::-1])).round(2).tolist()
    [0.09, 0.04, 0.33]
    """
    wanted, found = (each.shares(observed.means) for each in (observed, simulated))
    of_gap = [np.abs(one - other) for one, other in zip(wanted, found, strict=True)]
    of_gap[2] = of_gap[2].sum(axis=1) / 2
    weights = observed.events, observed.events - observed.stays, observed.moves.sum(axis=1)
    return np.array([np.average(each, weights=np.maximum(w, LEAST)) for each, w in zip(of_gap, weights, strict=True)])


def simulate_places(
    model: CheckinProcess,
    windows: ObservedWindows,
    level: Float[np.ndarray, "window level"],
    key: Key[Array, ""],
) -> ObservedWindows:
    """Windows of new people of the same clusters, who check in at the same times, with types and ranges drawn anew."""
    place = np.empty(len(windows.place), np.int32)
    begin = np.searchsorted(windows.window, np.arange(windows.n_windows + 1))
    # Windows with similar numbers of events share a tile, since the window with most events determines its time.
    order = np.argsort(np.diff(begin), kind="stable")
    tiles = np.resize(order, (-(-len(order) // TILE), TILE))
    local_copy = on_each_device(model.rounded())

    def simulate(tile: Int[np.ndarray, " window"]) -> tuple[np.ndarray, np.ndarray]:
        length = begin[tile + 1] - begin[tile]
        rows, number = joined_ranges(begin[tile], length), np.repeat(np.arange(TILE), length)
        happens = np.zeros((TILE, windows.grid.n_instants), bool)
        happens[number, windows.instant[rows]] = True
        given = map(jnp.asarray, (tile, happens, windows.cluster[tile], level[tile].astype(np.float32)))
        return rows, np.asarray(_simulate_tile(local_copy(), key, *given))[number, windows.instant[rows]]

    for rows, found in map_in_threads(simulate, tiles):
        place[rows] = found
    return replace(windows, place=place)


@jax.jit
def _simulate_tile(
    model: CheckinProcess,
    key: Key[Array, ""],
    window: Int[Array, " window"],
    happens: Bool[Array, "window instant"],
    cluster: Int[Array, " window"],
    level: Float[Array, "window level"],
) -> Int[Array, "window instant"]:
    most_events = happens.sum(axis=1).max()

    def simulate(window: Array, happens: Array, cluster: Array, level: Array) -> Array:
        own_key = jax.random.fold_in(key, window)
        uniforms = jax.random.uniform(jax.random.fold_in(own_key, 0), 2)
        kind = sample_index(uniforms[0], level @ model.type_share)
        reach = sample_index(uniforms[1], model.range_share)
        return sample_places(model, jax.random.fold_in(own_key, 1), happens, cluster, kind, reach, most_events)

    return jax.vmap(simulate)(window, happens, cluster, level)


def _corrected(model: Process, observed: Moments, simulated: Moments) -> Process:
    """The model with other weights of staying, of new places and of distances from the last place."""
    wanted, found = (each.shares(observed.means) for each in (observed, simulated))
    more_stays, more_returns = (
        STEP * np.clip(logit(one) - logit(other), -MAX_CHANGE, MAX_CHANGE)
        for one, other in zip(wanted[:2], found[:2], strict=True)
    )
    # Less weight of new places also raises the share of the last place. This is undone, since `more_stays` corrects it.
    last = np.asarray(model.last) + more_stays - more_returns * (1 - wanted.returns)
    factor = np.clip(wanted.distances / found.distances, 1 / MAX_FACTOR, MAX_FACTOR) ** DISTANCE_POWER
    changed = {
        "last": np.clip(last, -MAX_LOG, MAX_LOG),
        "strength": np.clip(np.asarray(model.strength) - more_returns, -MAX_LOG, MAX_LOG),
        "near_last": np.asarray(model.near_last) * factor,
    }
    return replace(model, **{name: jnp.asarray(each, jnp.float32) for name, each in changed.items()})
