"""Returns: when people go back to a place that they visited before, and to which one.

All parameters are learned by maximum likelihood, with weak normal priors: first those of people who are at a place at
every instant, then those of people who check in.

Of people at every instant, no user weighs more in the likelihood than the user with the second most moves. At most
`MAX_USERS` random users are used, with about `MAX_CHOICES` possible returns at most. More users would change the few
parameters less than another draw of users does.

A window of check-ins has a *type*, which says how often its person returns. Each place has a rate, which compares its
returns with the returns that the other parameters explain. The likelihood of a person's windows uses rates that only
the windows of *other* people give. If their own windows gave rates too, a person's returns would explain themselves,
and the places of people who return often would look too attractive to all others.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ops import segment_sum
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int
from scipy.special import expit

from ppmtf_jax.data.blocks import Blocks
from ppmtf_jax.data.runs import Runs, run_begins
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.people import bins
from ppmtf_jax.people.attraction import Movement
from ppmtf_jax.people.counts import Transitions
from ppmtf_jax.people.event_times import ActivityLevels
from ppmtf_jax.people.fitting import MAX_LOG, maximize, pad, padded, padding
from ppmtf_jax.people.person import VisitedBefore
from ppmtf_jax.people.roles import Anchors
from ppmtf_jax.people.user_bounds import (
    CHECKIN_RETURNS,
    STEP_USERS,
    Rows,
    bounded,
    bounded_totals,
    sums,
    used_share,
)
from ppmtf_jax.people.windows import History, ObservedWindows

MAX_USERS, MAX_CHOICES = 5000, 1_000_000
MAX_LOG_RATIO = np.log(20.0)
"""Bound of the logarithm of (population of a place in a slot / mean population of the place)."""
START = np.array([0.0, 1.0, 0.0, 0.5, 0.1])
BOUNDS = np.array([-6.0, -4.0, -6.0, -1.0, -1.0]), np.array([4.0, 9.0, 4.0, 2.0, 2.0])
PRECISION = np.array([0.1, 0.0, 1.0, 1.0, 1.0])
"""Start, bounds, and precisions of the normal priors, of: logit discount, log strength, back, by_popularity, near."""


class Returns(NamedTuple):
    """Parameters of returns, see `process.PersonProcess`."""

    discount: float
    strength: float
    back: float
    by_popularity: float
    near: float


class Choices(NamedTuple):
    """Moves of people who could have gone back; and for each move, sorted by move, the places to go back to."""

    user: Int[np.ndarray, " move"]
    n_places: Int[np.ndarray, " move"]  # number of distinct other places so far
    is_return: Bool[np.ndarray, " move"]
    move: Int[np.ndarray, " choice"]
    arrivals: Int[np.ndarray, " choice"]
    features: Float[np.ndarray, "choice 3"]  # the place before, popularity, nearness
    is_chosen: Bool[np.ndarray, " choice"]

    def padded(self, weight: Float[np.ndarray, " move"]) -> tuple[Choices, Float[np.ndarray, " more_moves"]]:
        """Append moves without weight; see `fitting.padding`."""
        of_choice = {"move": len(self.user), "arrivals": 1, "features": 0, "is_chosen": False}
        both = pad(self, {"user": 0, "n_places": 1, "is_return": True}, of_choice)
        return both, padded(weight, padding(len(weight)), 0)


def log_popularity_ratio(population: Float[np.ndarray, "slot place"]) -> Float[np.ndarray, "slot place"]:
    """Bounded logarithm of (share of people at a place in a slot / mean share over all slots)."""
    return np.clip(np.log(population / population.mean(axis=0)), -MAX_LOG_RATIO, MAX_LOG_RATIO)


def fit_returns(
    train: Traces, n_periods: int, anchors: Anchors, movement: Movement, random: np.random.Generator
) -> Returns:
    """Maximize the likelihood of the moves to other places, in windows of `n_periods` periods."""
    order = random.permutation(train.n_users)[:MAX_USERS]
    users = np.sort(order)
    windows = train.select_users(users).cut_into_periods(n_periods)
    is_other = anchors.of_users(users).role(windows.user, windows.place) == bins.OTHER
    return maximum_likelihood(choices_of(*_few(windows, is_other, np.searchsorted(users, order)), movement))


def _few(
    windows: Traces, is_other: Bool[np.ndarray, " event"], order: Int[np.ndarray, " user"]
) -> tuple[Traces, Bool[np.ndarray, " kept"]]:
    """Events of the first users in a random order, as many users as the bound on possible returns allows."""
    runs = Runs.of(windows.trace_of_event(), windows.place)
    user = windows.user[runs.first]
    # A window with n runs has fewer than n^2 / 2 possible returns.
    of_window = np.bincount(runs.window) ** 2 / 2
    cost = np.bincount(user[run_begins(runs.window)], of_window, windows.n_users)
    chosen = np.zeros(windows.n_users, bool)
    chosen[order[: max(1, np.searchsorted(np.cumsum(cost[order]), MAX_CHOICES))]] = True
    kept = chosen[windows.user]
    return (windows, is_other) if kept.all() else (windows.select_events(kept), is_other[kept])


def choices_of(windows: Traces, is_other: Bool[np.ndarray, " event"], movement: Movement) -> Choices:
    """The moves to other places, except moves of people who had no place to go back to.

    Two features depend on the current place: the place before, and nearness. They count only if the move is from one
    instant to the next. If instants without events lie between, the person may have come from another place.
    """
    runs = Runs.of(windows.trace_of_event(), windows.place)
    arrival = np.flatnonzero(is_other[runs.first])
    seen = VisitedBefore.of(runs.window[arrival], runs.place[arrival])
    at, place, arrivals = arrival[seen.event], seen.place, seen.count
    n_places = np.bincount(at, minlength=len(runs.place))
    now, earlier = runs.place_before(1), runs.place_before(2)
    possible = (place != now[at]) & runs.is_move()[at]
    at, place, arrivals = (each[possible] for each in (at, place, arrivals))
    is_chosen = runs.place[at] == place
    of_move = np.unique(at)
    is_step = windows.is_step()[runs.first][at]
    slot = windows.slot[runs.first][at]
    population = movement.counts.population
    steps = Transitions(at, slot, now[at], place, *population.shape)
    log_weight = movement.log_probabilities(steps) - np.log(1 - movement.stays.at_place[slot, now[at]])
    near = np.clip(log_weight - np.log(population[slot, place]), -bins.MAX_ATTRACTION, bins.MAX_ATTRACTION)
    features = np.stack(
        [is_step & (place == earlier[at]), log_popularity_ratio(population)[slot, place], is_step * near], axis=1
    )
    user = windows.user[runs.first][of_move]
    is_return = np.isin(of_move, at[is_chosen])
    move = np.searchsorted(of_move, at)
    return Choices(user, n_places[of_move], is_return, move, arrivals, features.astype(np.float64), is_chosen)


def maximum_likelihood(choices: Choices) -> Returns:
    """Parameters that maximize the likelihood times weak normal priors."""
    weight = bounded(choices.user, np.zeros(len(choices.user), int), 1)[0]
    found = maximize(_log_of_moves, START, choices.padded(weight), limits=BOUNDS)
    return Returns(float(expit(found[0])), float(np.exp(found[1])), *found[2:].tolist())


def share_of_returns(windows: Blocks[Traces]) -> float:
    """Share of returns among moves within windows.

    No user weighs more than the second heaviest user, neither in the number of returns nor in that of other moves. Half
    a return and half another move are added, so that the share is above 0 and below 1.
    """

    def rows(own: Traces) -> list[Rows]:
        runs = Runs.of(own.trace_of_event(), own.place)
        user, again = own.user[runs.first][runs.is_move()], runs.earlier()[runs.is_move()] >= 0
        cell = np.zeros(len(user), int)
        return [Rows(user[part], cell[part], cell[part], (1,)) for part in (~again, again)]

    n_other, n_return = (float(each.total[0]) for each in bounded_totals(windows.map(rows)))
    return (n_return + 0.5) / (n_return + n_other + 1)


def _log_of_moves(parameters: Array, given: tuple[Choices, Array]) -> Float[Array, ""]:
    """Log-likelihood of the weighted moves, plus the log-densities of the normal priors."""
    choices, weight = given
    discount, strength = jax.nn.sigmoid(parameters[0]), jnp.exp(parameters[1])
    log_back = jnp.log(choices.arrivals - discount) + choices.features @ parameters[2:]
    log_new = jnp.log(strength + discount * choices.n_places)
    back, chosen = jnp.exp(log_back), choices.is_chosen * log_back
    total = jnp.exp(log_new) + segment_sum(back, choices.move, len(weight), indices_are_sorted=True)
    of_move = jnp.where(choices.is_return, 0, log_new) - jnp.log(total)
    of_move += segment_sum(chosen, choices.move, len(weight), indices_are_sorted=True)
    return weight @ of_move - PRECISION @ parameters**2 / 2


# People who check in.
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


def fit_checkin_returns(
    history: History, windows: ObservedWindows, levels: ActivityLevels, distances: bins.DistanceBins
) -> dict[str, Any]:
    """Fields of `CheckinProcess`, learned twice: first without rates of places, then with the rates found.

    The types of an activity level with few users are those of all levels.
    """
    weight, level, visited = windows.weight, levels.of_window, history.visited
    user, place = windows.user[history.window[visited.event]], visited.place
    with jax.enable_x64(True):
        events = _Events.of(history, weight, level, distances)
        urn = maximize(_log_of_checkins, _Urn.start(level.shape[1]), events, MAX_STEPS)
        expected = np.asarray(_probabilities(urn, events))[: len(user)]
        scale = weight[history.window[visited.event]]
        n_places = len(distances.cell)
        rate, without = rates_of_places(user, place, visited.is_next * scale, expected * scale, n_places)
        events = events._replace(rate=padded(without, len(events.rate) - len(without), 0))
        urn = maximize(_log_of_checkins, urn._replace(by_rate=np.array(1.0)), events, MAX_STEPS)
        shares, discount = np.asarray(jax.nn.softmax(urn.type_logits, axis=1)), float(urn.discount)
    of_all = (weight @ level) @ shares / weight.sum()
    return {
        **{name: np.clip(np.asarray(getattr(urn, name)), -MAX_LOG, MAX_LOG) for name in STORED},
        "discount": discount,
        "place_rate": rate * float(urn.by_rate),
        "type_share": of_all + levels.used[:, None] * (shares - of_all),
    }


def rates_of_places(
    user: Int[np.ndarray, " row"],
    place: Int[np.ndarray, " row"],
    observed: Float[np.ndarray, " row"],
    expected: Float[np.ndarray, " row"],
    n_places: int,
) -> tuple[Float[np.ndarray, " place"], Float[np.ndarray, " row"]]:
    """Rate of each place; and for each row, the rate of its place without the windows of its user.

    A rate is the logarithm of (observed / expected returns), shrunk to 0. A row is an event of a user, and a place that
    they visited before. A user's returns to a place, observed or expected, weigh at most `CHECKIN_RETURNS`, and at most
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
    """Events and visited places, in the form that the likelihood needs; with appended ones, see `History.padded`."""

    history: History
    weight: Float[np.ndarray, " window"]
    level: Float[np.ndarray, "window level"]
    may_be_new: Float[np.ndarray, " event"]  # 1, or 0 if all places are visited
    last_row: Int[np.ndarray, " event"]  # row of the last place
    next_row: Int[np.ndarray, " event"]  # row of the place of the event; any row if it is new
    distance: Int[np.ndarray, " row"]  # class of the distance from the last place
    rate: Float[np.ndarray, " row"]  # of the place, without the person

    @classmethod
    def of(
        cls,
        history: History,
        weight: Float[np.ndarray, " window"],
        level: Float[np.ndarray, "window level"],
        distances: bins.DistanceBins,
    ) -> _Events:
        """Appended windows have weight 0."""
        n_rows, all_events = len(history.visited.event), history.padded(len(weight))
        visited, n_more = all_events.visited, padding(len(weight))
        last_row = np.append(np.flatnonzero(visited.is_last), np.full(padding(len(history.gap)), n_rows))
        next_row = np.zeros(len(last_row), np.int64)
        next_row[~all_events.is_new] = np.flatnonzero(visited.is_next)
        return cls(
            all_events,
            padded(weight, n_more, 0),
            padded(level, n_more, 1 / level.shape[1]),
            (all_events.n_visited < len(distances.cell)).astype(np.float64),
            last_row,
            next_row,
            bins.DISTANCE_CLASS[distances.between(all_events.last_place[visited.event], visited.place)],
            np.zeros(len(visited.event)),
        )


class _Urn(NamedTuple):
    """Parameters of the weights of `CheckinProcess`, transformed so that they have no bounds."""

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
    type_logits: Array  # (level, type)

    @classmethod
    def start(cls, n_levels: int) -> _Urn:
        """Start with types that differ only in how often they go to new places."""
        zero, gaps, three = jnp.array(0.0), jnp.zeros(bins.N_GAPS), jnp.zeros(3)
        distance, types = jnp.zeros((bins.N_GAP_CLASSES, bins.N_DISTANCE_CLASSES)), jnp.zeros(N_TYPES)
        of_type, logits = jnp.linspace(1.5, -1.5, N_TYPES), jnp.zeros((n_levels, N_TYPES))
        return cls(zero - 1, gaps + 1, of_type, gaps, types, three, three, zero, zero, distance, zero, logits)

    @property
    def discount(self) -> Array:
        """Between 0 and 1."""
        return MIN_DISCOUNT + (MAX_DISCOUNT - MIN_DISCOUNT) * jax.nn.sigmoid(self.logit_discount)


STORED = tuple(name for name in _Urn._fields if name not in ("logit_discount", "by_rate", "type_logits"))
"""Parameters that the trace model stores as they are."""


def _log_weights(urn: _Urn, events: _Events) -> tuple[Array, Array]:
    """Log-weight of each visited place, without the effect of the type; log-weight of a new place, (event, type)."""
    history, visited = events.history, events.history.visited
    gap = history.gap[visited.event]
    of_last = urn.last[gap] + visited.match @ urn.last_match
    of_other = (
        visited.match @ urn.match
        + urn.recency * visited.log_hours
        + urn.previous * visited.is_previous
        + urn.distance[jnp.asarray(bins.GAP_CLASS)[gap], events.distance]
    )
    old = jnp.log(visited.n_events - urn.discount) + urn.by_rate * events.rate
    old += jnp.where(visited.is_last, of_last, of_other)
    strength = jnp.exp(urn.strength[history.gap][:, None] + urn.strength_of_type)
    new = strength + urn.discount * history.n_visited[:, None]
    return old, jnp.log(new) + jnp.log(events.may_be_new + TINY)[:, None]


def _log_totals(urn: _Urn, events: _Events, old: Array, new: Array) -> Float[Array, "event type"]:
    """Logarithm of the sum of all weights of each event."""
    visited = events.history.visited
    others = jnp.where(visited.is_last, 0, jnp.exp(old))
    others = segment_sum(others, visited.event, len(events.last_row), indices_are_sorted=True)
    last = jnp.exp(old[events.last_row])[:, None] * jnp.exp(urn.last_of_type)
    return jnp.log(others[:, None] + last + jnp.exp(new))


def _log_types(urn: _Urn, events: _Events) -> tuple[Array, Array]:
    """Joint log-probability of a window's events and of each type, (window, type); and `_log_totals`."""
    history, (old, new) = events.history, _log_weights(urn, events)
    total = _log_totals(urn, events, old, new)
    stays = history.visited.is_last[events.next_row][:, None]
    chosen = old[events.next_row][:, None] + jnp.where(stays, urn.last_of_type, 0)
    of_event = history.part[:, None] * (jnp.where(history.is_new[:, None], new, chosen) - total)
    shares = events.level @ jax.nn.softmax(urn.type_logits, axis=1)
    of_window = segment_sum(of_event, history.window, len(events.weight), indices_are_sorted=True)
    return of_window + jnp.log(shares), total


def _log_of_checkins(urn: _Urn, events: _Events) -> Float[Array, ""]:
    """Log-likelihood of the weighted windows, plus the log-densities of the normal priors."""
    everything = sum(jnp.sum(each**2) for each in urn) / PRIOR_SD**2
    narrow = (jnp.sum(urn.distance**2) + jnp.sum(urn.type_logits**2)) / NARROW_SD**2
    of_window = logsumexp(_log_types(urn, events)[0], axis=1)
    return of_window @ events.weight - 0.5 * (everything + narrow)


@jax.jit
def _probabilities(urn: _Urn, events: _Events) -> Float[Array, " row"]:
    """Probability of each visited place, averaged over the probabilities of the types given the windows."""
    history, (of_type, total) = events.history, _log_types(urn, events)
    types = jax.nn.softmax(of_type, axis=1)[history.window]
    old, event = _log_weights(urn, events)[0], history.visited.event
    of_last = jnp.where(history.visited.is_last[:, None], urn.last_of_type, 0)
    return (types[event] * jnp.exp(old[:, None] + of_last - total[event])).sum(axis=1)
