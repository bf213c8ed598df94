"""Whether people check in at a new place or at an old one, and at which old one, given the gap since the last event.

The weights are those of `CheckinBridge`; they are learned by maximum likelihood with weak normal priors. A window has a
*type*, which says how often its person returns. Each place has a rate, which compares its returns with the returns that
the other parameters explain. The likelihood of a person's windows uses rates that only the windows of *other* people
give. If her own windows gave rates too, a person's returns would explain themselves, and the places of people who
return often would look too attractive to all others.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ppmtf_jax.bridge.checkins.history import History, Visited
from ppmtf_jax.bridge.checkins.law import (
    DISTANCE_CLASS,
    GAP_CLASS,
    GAP_FROM_H,
    N_DISTANCE_CLASSES,
    N_GAP_CLASSES,
)
from ppmtf_jax.bridge.checkins.observed_windows import ObservedWindows
from ppmtf_jax.bridge.checkins.when import Paces
from ppmtf_jax.bridge.contributions import CHECKIN_RETURNS, STEP_USERS, bounded, sums, used_share
from ppmtf_jax.bridge.fitting import MAX_LOG, maximize, pad

# Number of pseudo-returns of each place, which count both as observed and as expected.
RATE_MASS = 5.0
N_TYPES = 4
# More steps do not make held-out windows more probable.
MAX_STEPS = 30
# Standard deviations of two normal priors. The first prior holds for all parameters. The second one holds, in addition,
# for logits of shares and for effects of distance.
PRIOR_SD, NARROW_SD = 3.0, 1.0
MIN_DISCOUNT, MAX_DISCOUNT = 1e-6, 0.99
TINY = 1e-300


class Returns(NamedTuple):
    """Parameters of returns: fields of `CheckinBridge`."""

    discount: float
    strength: Float[np.ndarray, " gap"]
    strength_of_type: Float[np.ndarray, " type"]
    last: Float[np.ndarray, " gap"]
    last_of_type: Float[np.ndarray, " type"]
    last_match: Float[np.ndarray, " 3"]
    match: Float[np.ndarray, " 3"]
    recency: float
    previous: float
    distance: Float[np.ndarray, "gap_class distance_class"]
    place_rate: Float[np.ndarray, " place"]
    type_share: Float[np.ndarray, "pace type"]


def fit_returns(
    history: History,
    windows: ObservedWindows,
    paces: Paces,
    distance_bin: Int[np.ndarray, "cell cell"],
    cell: Int[np.ndarray, " place"],
) -> Returns:
    """Learn all parameters twice: first without rates of places, then with the rates that the first result gives.

    `distance_bin`, `cell`: as in `CheckinBridge`. The types of a pace with few users are those of all paces.
    """
    weight, pace = paces.weight, paces.of_window
    events = _Events.of(history, weight, pace, DISTANCE_CLASS[distance_bin], cell)
    user = windows.user[history.window[events.visited.event]]
    with jax.enable_x64(True):
        whole = events.padded()
        urn = maximize(_log_posterior, _Urn.start(pace.shape[1]), whole, MAX_STEPS)
        expected = np.asarray(_probabilities(urn, whole))[: len(user)]
        returned, place = events.visited.is_next, events.visited.place
        scale = weight[history.window[events.visited.event]]
        rate, without = rates_of_places(user, place, returned * scale, expected * scale, len(cell))
        events = events._replace(rate=without)
        urn = maximize(_log_posterior, urn._replace(by_rate=np.array(1.0)), events.padded(), MAX_STEPS)
        found = urn.parameters(rate)
    of_all = (weight @ pace) @ found.type_share / weight.sum()
    return found._replace(type_share=of_all + paces.used[:, None] * (found.type_share - of_all))


def rates_of_places(
    user: Int[np.ndarray, " row"],
    place: Int[np.ndarray, " row"],
    observed: Float[np.ndarray, " row"],
    expected: Float[np.ndarray, " row"],
    n_places: int,
) -> tuple[Float[np.ndarray, " place"], Float[np.ndarray, " row"]]:
    """Rate of each place; and for each row, the rate of its place without the windows of its user.

    A rate is the logarithm of (observed / expected returns), shrunk to 0. A row is an event of a user, and a place that
    she visited before. A user's returns to a place, observed or expected, weigh at most `CHECKIN_RETURNS`, and at most
    as much as those of the user who has the second most. The rate is 0 for a place to which fewer than `STEP_USERS`
    users could return.
    """
    which, pair = np.unique(user.astype(np.int64) * n_places + place, return_inverse=True)
    user_of, place_of = np.divmod(which, n_places)
    both = np.stack([sums(pair, each, len(which)) for each in (observed, expected)])
    greatest = np.maximum(both.max(axis=0), 1e-9)
    both *= np.minimum(1, CHECKIN_RETURNS / greatest)
    greatest = np.minimum(greatest, CHECKIN_RETURNS)
    used, users = bounded(user_of, place_of, n_places, greatest)
    both *= used / greatest
    share = used_share(users, STEP_USERS)
    total = np.stack([sums(place_of, each, n_places) for each in both])

    def log_ratio(total: Float[np.ndarray, "2 n"], share: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        observed, expected = total
        return np.log1p(share * (observed - expected) / (expected + RATE_MASS))

    without = log_ratio(total[:, place_of] - both, share[place_of])
    return log_ratio(total, share), without[pair]


class _Events(NamedTuple):
    """Events and visited places, in the form that the likelihood needs."""

    gap: Int[np.ndarray, " event"]
    n_visited: Int[np.ndarray, " event"]
    may_be_new: Float[np.ndarray, " event"]  # 1, or 0 if all places are visited
    is_new: Bool[np.ndarray, " event"]
    part: Float[np.ndarray, " event"]  # see `History`
    last_row: Int[np.ndarray, " event"]  # row of the last place
    next_row: Int[np.ndarray, " event"]  # row of the place of the event; any row if it is new
    window: Int[np.ndarray, " event"]
    weight: Float[np.ndarray, " window"]
    pace: Float[np.ndarray, "window pace"]
    visited: Visited
    distance: Int[np.ndarray, " row"]  # class of the distance from the last place
    rate: Float[np.ndarray, " row"]  # of the place, without the person

    @classmethod
    def of(
        cls,
        history: History,
        weight: Float[np.ndarray, " window"],
        pace: Float[np.ndarray, "window pace"],
        distance_class: Int[np.ndarray, "cell cell"],
        cell: Int[np.ndarray, " place"],
    ) -> _Events:
        visited, is_new = history.visited, history.is_new
        next_row = np.zeros(len(is_new), np.int64)
        next_row[~is_new] = np.flatnonzero(visited.is_next)
        return cls(
            gap=history.gap,
            n_visited=history.n_visited,
            may_be_new=(history.n_visited < len(cell)).astype(np.float64),
            is_new=is_new,
            part=history.part,
            last_row=np.flatnonzero(visited.is_last),
            next_row=next_row,
            window=history.window,
            weight=weight,
            pace=pace,
            visited=visited,
            distance=distance_class[cell[history.last_place[visited.event]], cell[visited.place]],
            rate=np.zeros(len(visited.event)),
        )

    def padded(self) -> _Events:
        """Append windows of weight 0, in which people are at new places; see `fitting.padding`."""
        of_event = {"gap": 0, "n_visited": 1, "may_be_new": 1, "is_new": True, "part": 0, "next_row": 0}
        of_event |= {"last_row": len(self.rate), "window": len(self.weight)}
        visited = pad(self.visited, dict.fromkeys(Visited._fields, 0) | {"event": len(self.gap), "n_events": 1})
        found = pad(self, of_event, {"distance": 0, "rate": 0}, {"weight": 0, "pace": 1 / self.pace.shape[1]})
        return found._replace(visited=visited)


class _Urn(NamedTuple):
    """Parameters of `Returns`, transformed so that they have no bounds."""

    logit_discount: Array
    strength: Array
    strength_of_type: Array
    last: Array
    last_of_type: Array
    last_match: Array
    match: Array
    recency: Array
    previous: Array
    distance: Array
    by_rate: Array
    type_logits: Array  # (pace, type)

    @classmethod
    def start(cls, n_paces: int) -> _Urn:
        """Start with types that differ only in how often they go to new places."""
        zero, gaps, three = jnp.array(0.0), jnp.zeros(len(GAP_FROM_H)), jnp.zeros(3)
        distance, types = jnp.zeros((N_GAP_CLASSES, N_DISTANCE_CLASSES)), jnp.zeros(N_TYPES)
        of_type, logits = jnp.linspace(1.5, -1.5, N_TYPES), jnp.zeros((n_paces, N_TYPES))
        return cls(zero - 1, gaps + 1, of_type, gaps, types, three, three, zero, zero, distance, zero, logits)

    @property
    def discount(self) -> Array:
        """Between 0 and 1."""
        return MIN_DISCOUNT + (MAX_DISCOUNT - MIN_DISCOUNT) * jax.nn.sigmoid(self.logit_discount)

    def parameters(self, rate: Float[np.ndarray, " place"]) -> Returns:
        """The fields of the trace model, given the rates of places."""
        with jax.enable_x64(True):
            shares = np.asarray(jax.nn.softmax(self.type_logits, axis=1))
            discount = float(self.discount)
        kept = {name: np.asarray(getattr(self, name)) for name in _Urn._fields if name in Returns._fields}
        bounded_logs = {name: np.clip(each, -MAX_LOG, MAX_LOG) for name, each in kept.items()}
        return Returns(**bounded_logs, discount=discount, place_rate=rate * float(self.by_rate), type_share=shares)


def _log_weights(urn: _Urn, events: _Events) -> tuple[Array, Array]:
    """Log-weight of each visited place, without the effect of the type; log-weight of a new place, (event, type)."""
    visited = events.visited
    gap = events.gap[visited.event]
    of_last = urn.last[gap] + visited.match @ urn.last_match
    of_other = (
        visited.match @ urn.match
        + urn.recency * visited.log_hours
        + urn.previous * visited.is_previous
        + urn.distance[jnp.asarray(GAP_CLASS)[gap], events.distance]
    )
    old = jnp.log(visited.n_events - urn.discount) + urn.by_rate * events.rate
    old += jnp.where(visited.is_last, of_last, of_other)
    strength = jnp.exp(urn.strength[events.gap][:, None] + urn.strength_of_type)
    new = strength + urn.discount * events.n_visited[:, None]
    return old, jnp.log(new) + jnp.log(events.may_be_new + TINY)[:, None]


def _log_totals(urn: _Urn, events: _Events, old: Array, new: Array) -> Float[Array, "event type"]:
    """Logarithm of the sum of all weights of each event."""
    others = jnp.where(events.visited.is_last, 0, jnp.exp(old))
    others = jax.ops.segment_sum(others, events.visited.event, len(events.gap), indices_are_sorted=True)
    last = jnp.exp(old[events.last_row])[:, None] * jnp.exp(urn.last_of_type)
    return jnp.log(others[:, None] + last + jnp.exp(new))


def _log_types(urn: _Urn, events: _Events) -> tuple[Array, Array]:
    """Joint log-probability of a window's events and of each type, (window, type); and `_log_totals`."""
    old, new = _log_weights(urn, events)
    total = _log_totals(urn, events, old, new)
    stays = events.visited.is_last[events.next_row][:, None]
    chosen = old[events.next_row][:, None] + jnp.where(stays, urn.last_of_type, 0)
    of_event = events.part[:, None] * (jnp.where(events.is_new[:, None], new, chosen) - total)
    shares = events.pace @ jax.nn.softmax(urn.type_logits, axis=1)
    of_window = jax.ops.segment_sum(of_event, events.window, len(events.weight), indices_are_sorted=True)
    return of_window + jnp.log(shares), total


def _log_posterior(urn: _Urn, events: _Events) -> Float[Array, ""]:
    """Log-likelihood of the weighted windows, plus the log-densities of the normal priors."""
    everything = sum(jnp.sum(each**2) for each in urn) / PRIOR_SD**2
    narrow = (jnp.sum(urn.distance**2) + jnp.sum(urn.type_logits**2)) / NARROW_SD**2
    of_window = jax.scipy.special.logsumexp(_log_types(urn, events)[0], axis=1)
    return of_window @ events.weight - 0.5 * (everything + narrow)


@jax.jit
def _probabilities(urn: _Urn, events: _Events) -> Float[Array, " row"]:
    """Probability of each visited place, averaged over the probabilities of the types given the windows."""
    of_type, total = _log_types(urn, events)
    types = jax.nn.softmax(of_type, axis=1)[events.window]
    old, event = _log_weights(urn, events)[0], events.visited.event
    of_last = jnp.where(events.visited.is_last[:, None], urn.last_of_type, 0)
    return (types[event] * jnp.exp(old[:, None] + of_last - total[event])).sum(axis=1)
