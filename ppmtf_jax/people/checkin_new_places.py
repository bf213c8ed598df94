"""Fit of the weights of new places (near the last place, near an own place, anywhere) and of first places.

`checkin_process` draws new places by these weights, and `checkin_likelihood` scores them. They are learned by maximum
likelihood from all events at new places, given the distributions of the clusters over places. A window has a *range*:
how near its person stays to their own places.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ops import segment_sum
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int

from ppmtf_jax.data.runs import joined_ranges
from ppmtf_jax.people.bins import DISTANCE_FROM_KM, GAP_CLASS, GAP_FROM_H, N_GAP_CLASSES, DistanceBins
from ppmtf_jax.people.fitting import maximize, padded, padding
from ppmtf_jax.people.selection import N_FOLDS, random_folds
from ppmtf_jax.people.user_bounds import STEP_USERS, bounded, sums, used_share
from ppmtf_jax.people.windows import History, ObservedWindows, Visited

N_RANGES = 3
# More steps do not make held-out windows more probable.
MAX_STEPS = 60
# Precisions of three normal priors: of differences between neighbouring bins of distance; of `near_last` after the
# longest gaps, when the last place says little; and of all parameters.
SMOOTH_PRECISION, LONG_GAP_PRECISION, PRECISION = 2.0, 20.0, 0.04
MIN_MASS = 1e-12
PAIRS_AT_A_TIME = 2**20
# Candidates for the number of pseudo-events of each place, which shrinks the rates of first events. With infinity, all
# rates are 0.
FIRST_MASSES = (3.0, 10.0, 30.0, 100.0, np.inf)
FIRST_ROUNDS = 3


def fit_new_places(
    history: History,
    windows: ObservedWindows,
    visits: Float[np.ndarray, "cluster slot place"],
    distances: DistanceBins,
) -> dict[str, np.ndarray]:
    """Fields of `CheckinProcess`, all learned together."""
    found = maximize(_log_posterior, _Factors.start(), _Arrivals.of(history, windows, visits, distances), MAX_STEPS)
    with jax.enable_x64(True):
        shares = np.exp(np.asarray(found.log_components()))
        ranges = np.asarray(jax.nn.softmax(found.range_logits))
    near = {name: np.exp(getattr(found, name)) for name in ("near_last", "near_own")}
    return {"range_share": ranges, "reference": shares.transpose(1, 0, 2), **near}


def first_rates(
    windows: ObservedWindows, visits: Float[np.ndarray, "cluster slot place"], random: np.random.Generator
) -> Float[np.ndarray, " place"]:
    """Logarithm of (observed / expected first events of windows) at each place, shrunk to 0.

    `visits` gives the expected number. The likelihood of held-out users decides how much the rates are shrunk. A user's
    first events at a place weigh at most as much as those of the user who has the second most there. The rate is 0 for
    a place where windows of fewer than `STEP_USERS` users begin.
    """
    is_first, n_places, weight, cluster = ~windows.is_later, visits.shape[2], windows.weight, windows.cluster
    place, slot = windows.place[is_first], windows.grid.slot_of_instant[windows.instant[is_first]]

    def learned(keep: Bool[np.ndarray, " window"], mass: float) -> Float[np.ndarray, " place"]:
        of_window, users = bounded(windows.user[keep], place[keep], n_places, weight[keep])
        observed, used = sums(place[keep], of_window, n_places), used_share(users, STEP_USERS)
        of_group = np.zeros(visits.shape[:2])
        np.add.at(of_group, (cluster[keep], slot[keep]), weight[keep])
        rate = np.zeros(n_places)
        for _ in range(FIRST_ROUNDS):
            expected = np.exp(rate) * np.tensordot(of_group / (visits @ np.exp(rate)), visits, axes=2)
            rate += np.log1p(used * (observed - expected) / (expected + mass))
        return rate

    gain = np.zeros(len(FIRST_MASSES))
    for _, users in random_folds(int(windows.user.max()) + 1, N_FOLDS, random):
        held_out = np.isin(windows.user, users)
        group = cluster[held_out], slot[held_out]
        for number, mass in enumerate(FIRST_MASSES):
            rate = learned(~held_out, mass)
            total = (visits @ np.exp(rate))[group] / visits.sum(axis=2)[group]
            gain[number] += weight[held_out] @ (rate[place[held_out]] - np.log(total))
    return learned(np.ones(windows.n_windows, bool), FIRST_MASSES[int(gain.argmax())])


def unvisited_mass(
    visited: Visited,
    group: tuple[Int[np.ndarray, " event"], Int[np.ndarray, " event"]],
    visits: Float[np.ndarray, "cluster slot place"],
    distances: DistanceBins,
) -> Float[np.ndarray, "row bin"]:
    """For each visited place, the sum of `visits` over all unvisited places, by bin of distance from the visited place.

    `group`: cluster and slot of each event.
    """
    (distance_bin, cell), n_bins = distances, len(DISTANCE_FROM_KM)
    row_group = np.ravel_multi_index(group, visits.shape[:2])[visited.event]
    groups, number = np.unique(row_group, return_inverse=True)
    flat = visits.reshape(-1, visits.shape[2])[groups].astype(np.float64)
    in_cell = np.stack([np.bincount(cell, each, len(distance_bin)) for each in flat], axis=1) if len(flat) else flat
    at = cell[visited.place]
    mass = np.zeros((len(at), n_bins))
    for each in range(n_bins):
        mass[:, each] = ((distance_bin == each) @ in_cell)[at, number] if len(at) else 0
    # Subtract the visited places of the event, by bin of distance from each of them.
    begin = np.searchsorted(visited.event, np.arange(len(group[0]) + 1))
    size = np.diff(begin)[visited.event]
    stops = np.searchsorted(np.cumsum(size), np.arange(PAIRS_AT_A_TIME, size.sum() + PAIRS_AT_A_TIME, PAIRS_AT_A_TIME))
    first = 0
    for stop in np.unique(np.minimum(stops + 1, len(size))):
        rows = np.arange(first, stop)
        row, other = np.repeat(rows, size[rows]), joined_ranges(begin[visited.event[rows]], size[rows])
        bins = distance_bin[at[row], at[other]].astype(np.int64)
        taken = np.bincount((row - first) * n_bins + bins, flat[number[row], visited.place[other]], len(rows) * n_bins)
        mass[first:stop] -= taken.reshape(-1, n_bins)
        first = stop
    return np.maximum(mass, 0)


class _Arrivals(NamedTuple):
    """Events at new places, and the places visited before each; with appended ones, see `History.padded`."""

    history: History
    weight: Float[np.ndarray, " window"]
    last_row: Int[np.ndarray, " event"]  # row of the last place
    # For each visited place (a row): its share of the events so far, bin of its distance from the new place, and
    # `unvisited_mass`.
    share: Float[np.ndarray, " row"]
    bin: Int[np.ndarray, " row"]
    mass: Float[np.ndarray, "row bin"]

    @classmethod
    def of(
        cls,
        history: History,
        windows: ObservedWindows,
        visits: Float[np.ndarray, "cluster slot place"],
        distances: DistanceBins,
    ) -> _Arrivals:
        """Appended windows have weight 0."""
        new, weight = history.where(history.is_new), windows.weight
        group = windows.cluster[new.window], windows.grid.slot_of_instant[new.instant]
        visited, n_rows = new.visited, len(new.visited.event)
        n_more = padding(n_rows)
        total = np.bincount(visited.event, visited.n_events, len(new.gap))
        return cls(
            new.padded(len(weight)),
            padded(weight, padding(len(weight)), 0),
            padded(np.flatnonzero(visited.is_last), padding(len(new.gap)), n_rows),
            padded(visited.n_events / total[visited.event], n_more, 1),
            padded(distances.between(visited.place, new.place[visited.event]), n_more, 0),
            padded(unvisited_mass(visited, group, visits, distances), n_more, 1),
        )


class _Factors(NamedTuple):
    """Logarithms of factors of distance, and log-odds of components and ranges."""

    near_last: Array  # (gap class, bin)
    near_own: Array  # (bin,)
    reference: Array  # (gap, 2): of the last place and of an own place, against anywhere
    own_of_range: Array
    range_logits: Array

    @classmethod
    def start(cls) -> _Factors:
        """Start with factors that fall with the distance."""
        falling = -0.3 * jnp.arange(len(DISTANCE_FROM_KM))
        near_last, reference = jnp.tile(falling, (N_GAP_CLASSES, 1)), jnp.zeros((len(GAP_FROM_H), 2))
        return cls(near_last, falling, reference, jnp.linspace(-1, 1, N_RANGES), jnp.zeros(N_RANGES))

    def log_components(self) -> Float[Array, "gap range 3"]:
        """Logarithms of the shares of `ANYWHERE`, `NEAR_LAST` and `NEAR_OWN`."""
        own = self.reference[:, 1:] + self.own_of_range
        last = jnp.broadcast_to(self.reference[:, :1], own.shape)
        return jax.nn.log_softmax(jnp.stack([jnp.zeros_like(own), last, own], axis=-1), axis=-1)


def _log_ranges(factors: _Factors, arrivals: _Arrivals) -> Float[Array, "window range"]:
    """Joint log-probability of the new places and of each range, for each window.

    The probability of each new place is divided by the place's share in the cluster and slot.
    """
    history = arrivals.history
    mass_of_last = arrivals.mass[arrivals.last_row]
    log_last = factors.near_last[jnp.asarray(GAP_CLASS)[history.gap]]
    last = jnp.exp(jnp.take_along_axis(log_last, arrivals.bin[arrivals.last_row][:, None], axis=1)[:, 0])
    last /= (mass_of_last * jnp.exp(log_last)).sum(axis=1) + MIN_MASS
    own = arrivals.share * jnp.exp(factors.near_own[arrivals.bin])
    own /= arrivals.mass @ jnp.exp(factors.near_own) + MIN_MASS
    own = segment_sum(own, history.visited.event, len(arrivals.last_row), indices_are_sorted=True)
    anywhere = 1 / (mass_of_last.sum(axis=1) + MIN_MASS)
    ratio = jnp.stack([anywhere, last, own], axis=-1)
    of_event = logsumexp(factors.log_components()[history.gap], axis=-1, b=ratio[:, None])
    of_event *= history.part[:, None]
    of_window = segment_sum(of_event, history.window, len(arrivals.weight), indices_are_sorted=True)
    return of_window + jax.nn.log_softmax(factors.range_logits)


def _log_posterior(factors: _Factors, arrivals: _Arrivals) -> Float[Array, ""]:
    """Log-likelihood of the weighted windows up to a constant, plus the log-densities of the normal priors."""
    of_window = logsumexp(_log_ranges(factors, arrivals), axis=1)
    rough = (jnp.diff(factors.near_last, axis=1) ** 2).sum() + (jnp.diff(factors.near_own) ** 2).sum()
    penalty = SMOOTH_PRECISION * rough + LONG_GAP_PRECISION * (factors.near_last[-1] ** 2).sum()
    penalty += PRECISION * sum(jnp.sum(each**2) for each in factors)
    return of_window @ arrivals.weight - 0.5 * penalty
