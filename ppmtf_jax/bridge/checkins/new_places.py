"""Which new place people go to (near the last place, near an own place, or anywhere), and where their windows begin.

The weights are those of `CheckinBridge`. They are learned by maximum likelihood from all events at new places, given
the distributions of the clusters over places. A window has a *range*: how near its person stays to her own places.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ppmtf_jax.bridge.checkins.history import History, Visited
from ppmtf_jax.bridge.checkins.law import DISTANCE_FROM_KM, GAP_CLASS, GAP_FROM_H, N_GAP_CLASSES
from ppmtf_jax.bridge.checkins.observed_windows import ObservedWindows
from ppmtf_jax.bridge.contributions import STEP_USERS, bounded, sums, used_share
from ppmtf_jax.bridge.fitting import maximize, pad
from ppmtf_jax.bridge.selection import N_FOLDS, random_folds
from ppmtf_jax.data.runs import joined_ranges

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


class NewPlaces(NamedTuple):
    """Parameters of new places: fields of `CheckinBridge`."""

    range_share: Float[np.ndarray, " range"]
    reference: Float[np.ndarray, "range gap 3"]
    near_last: Float[np.ndarray, "gap_class bin"]
    near_own: Float[np.ndarray, " bin"]


def fit_new_places(
    history: History,
    weight: Float[np.ndarray, " window"],
    cluster: Int[np.ndarray, " window"],
    slot_of_instant: Int[np.ndarray, " instant"],
    visits: Float[np.ndarray, "cluster slot place"],
    distance_bin: Int[np.ndarray, "cell cell"],
    cell: Int[np.ndarray, " place"],
) -> NewPlaces:
    """Learn all parameters together.

    Each window has a `weight` and a `cluster`; the other arguments are as in `CheckinBridge`.
    """
    new = history.where(history.is_new)
    of_event = cluster[new.window], slot_of_instant[new.instant]
    arrivals = _Arrivals.of(new, weight, of_event, visits, distance_bin, cell)
    found = maximize(_log_posterior, _Factors.start(), arrivals.padded(), MAX_STEPS)
    with jax.enable_x64(True):
        shares = np.exp(np.asarray(found.log_references()))
        ranges = np.asarray(jax.nn.softmax(found.range_logits))
    return NewPlaces(ranges, shares.transpose(1, 0, 2), np.exp(found.near_last), np.exp(found.near_own))


def first_rates(
    windows: ObservedWindows,
    weight: Float[np.ndarray, " window"],
    cluster: Int[np.ndarray, " window"],
    visits: Float[np.ndarray, "cluster slot place"],
    random: np.random.Generator,
) -> Float[np.ndarray, " place"]:
    """Logarithm of (observed / expected first events of windows) at each place, shrunk to 0.

    `visits` gives the expected number. The likelihood of held-out users decides how much the rates are shrunk. A user's
    first events at a place weigh at most as much as those of the user who has the second most there. The rate is 0 for
    a place where windows of fewer than `STEP_USERS` users begin.
    """
    is_first, n_places = ~windows.is_later, visits.shape[2]
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
    distance_bin: Int[np.ndarray, "cell cell"],
    cell: Int[np.ndarray, " place"],
) -> Float[np.ndarray, "row bin"]:
    """For each visited place, the sum of `visits` over all unvisited places, by bin of distance from the visited place.

    `group`: cluster and slot of each event.
    """
    n_cells, n_bins = len(distance_bin), len(DISTANCE_FROM_KM)
    row_group = np.ravel_multi_index(group, visits.shape[:2])[visited.event]
    groups, number = np.unique(row_group, return_inverse=True)
    flat = visits.reshape(-1, visits.shape[2])[groups].astype(np.float64)
    in_cell = np.stack([np.bincount(cell, each, n_cells) for each in flat], axis=1) if len(flat) else flat
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
    """Events at new places, and the places visited before each event."""

    gap: Int[np.ndarray, " event"]
    window: Int[np.ndarray, " event"]
    part: Float[np.ndarray, " event"]  # see `History`
    weight: Float[np.ndarray, " window"]
    last_row: Int[np.ndarray, " event"]
    # For each visited place (a row): index of its event, its share of the events so far, bin of its distance from the
    # new place, and `unvisited_mass`.
    event: Int[np.ndarray, " row"]
    share: Float[np.ndarray, " row"]
    bin: Int[np.ndarray, " row"]
    mass: Float[np.ndarray, "row bin"]

    @classmethod
    def of(
        cls,
        new: History,
        weight: Float[np.ndarray, " window"],
        group: tuple[Int[np.ndarray, " event"], Int[np.ndarray, " event"]],
        visits: Float[np.ndarray, "cluster slot place"],
        distance_bin: Int[np.ndarray, "cell cell"],
        cell: Int[np.ndarray, " place"],
    ) -> _Arrivals:
        visited = new.visited
        total = np.bincount(visited.event, visited.n_events, len(new.gap))
        return cls(
            gap=new.gap,
            window=new.window,
            part=new.part,
            weight=weight,
            last_row=np.flatnonzero(visited.is_last),
            event=visited.event,
            share=visited.n_events / total[visited.event],
            bin=distance_bin[cell[visited.place], cell[new.place[visited.event]]].astype(np.int64),
            mass=unvisited_mass(visited, group, visits, distance_bin, cell),
        )

    def padded(self) -> _Arrivals:
        """Append windows of weight 0; see `fitting.padding`."""
        of_event = {"gap": 0, "window": len(self.weight), "part": 0, "last_row": len(self.share)}
        return pad(self, of_event, {"event": len(self.gap), "share": 1, "bin": 0, "mass": 1}, {"weight": 0})


class _Factors(NamedTuple):
    """Logarithms of factors of distance, and log-odds of references and ranges."""

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

    def log_references(self) -> Float[Array, "gap range 3"]:
        """Logarithms of the shares of `ANYWHERE`, `NEAR_LAST` and `NEAR_OWN`."""
        own = self.reference[:, 1:] + self.own_of_range
        last = jnp.broadcast_to(self.reference[:, :1], own.shape)
        return jax.nn.log_softmax(jnp.stack([jnp.zeros_like(own), last, own], axis=-1), axis=-1)


def _log_ranges(factors: _Factors, arrivals: _Arrivals) -> Float[Array, "window range"]:
    """Joint log-probability of the new places and of each range, for each window.

    The probability of each new place is divided by the place's share in the cluster and slot.
    """
    n_events = len(arrivals.gap)
    mass_of_last = arrivals.mass[arrivals.last_row]
    log_last = factors.near_last[jnp.asarray(GAP_CLASS)[arrivals.gap]]
    last = jnp.exp(jnp.take_along_axis(log_last, arrivals.bin[arrivals.last_row][:, None], axis=1)[:, 0])
    last /= (mass_of_last * jnp.exp(log_last)).sum(axis=1) + MIN_MASS
    own = arrivals.share * jnp.exp(factors.near_own[arrivals.bin])
    own /= arrivals.mass @ jnp.exp(factors.near_own) + MIN_MASS
    own = jax.ops.segment_sum(own, arrivals.event, n_events, indices_are_sorted=True)
    anywhere = 1 / (mass_of_last.sum(axis=1) + MIN_MASS)
    ratio = jnp.stack([anywhere, last, own], axis=-1)
    of_event = jax.scipy.special.logsumexp(factors.log_references()[arrivals.gap], axis=-1, b=ratio[:, None])
    of_event *= arrivals.part[:, None]
    of_window = jax.ops.segment_sum(of_event, arrivals.window, len(arrivals.weight), indices_are_sorted=True)
    return of_window + jax.nn.log_softmax(factors.range_logits)


def _log_posterior(factors: _Factors, arrivals: _Arrivals) -> Float[Array, ""]:
    """Log-likelihood of the weighted windows up to a constant, plus the log-densities of the normal priors."""
    of_window = jax.scipy.special.logsumexp(_log_ranges(factors, arrivals), axis=1)
    rough = (jnp.diff(factors.near_last, axis=1) ** 2).sum() + (jnp.diff(factors.near_own) ** 2).sum()
    penalty = SMOOTH_PRECISION * rough + LONG_GAP_PRECISION * (factors.near_last[-1] ** 2).sum()
    penalty += PRECISION * sum(jnp.sum(each**2) for each in factors)
    return of_window @ arrivals.weight - 0.5 * penalty
