"""When people go back to a place that they remember, and to which place; learned by maximum likelihood of their moves.

In the likelihood, no user weighs more than the user with the second most moves. At most `MAX_USERS` random users are
used, with about `MAX_CHOICES` possible returns at most. More users would change the few parameters less than another
draw of users does.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ops import segment_sum
from jaxtyping import Array, Bool, Float, Int
from scipy.special import expit

from ppmtf_jax.bridge.contributions import Rows, bounded, bounded_totals
from ppmtf_jax.bridge.fitting import maximize, pad, padded, padding
from ppmtf_jax.bridge.moves import Movement
from ppmtf_jax.bridge.people.anchors import Anchors
from ppmtf_jax.bridge.people.law import ELSEWHERE, MAX_ATTRACTION
from ppmtf_jax.bridge.person import VisitedBefore
from ppmtf_jax.bridge.transitions import Transitions
from ppmtf_jax.data.blocks import Blocks
from ppmtf_jax.data.runs import Runs, run_begins
from ppmtf_jax.data.traces import Traces

MAX_USERS, MAX_CHOICES = 5000, 1_000_000
MAX_LIFT = np.log(20.0)
"""Bound of the logarithm of (population of a place in a slot / mean population of the place)."""
START = np.array([0.0, 1.0, 0.0, 0.5, 0.1])
BOUNDS = np.array([-6.0, -4.0, -6.0, -1.0, -1.0]), np.array([4.0, 9.0, 4.0, 2.0, 2.0])
PRECISION = np.array([0.1, 0.0, 1.0, 1.0, 1.0])
"""Start, bounds, and precisions of the normal priors, of: logit discount, log strength, back, by_lift, near."""


class ReturnLaw(NamedTuple):
    """Parameters of returns, see `model.RememberingBridge`."""

    discount: float
    strength: float
    back: float
    by_lift: float
    near: float


class Choices(NamedTuple):
    """Moves of people who could have gone back; and for each move, sorted by move, the places to go back to."""

    user: Int[np.ndarray, " move"]
    n_places: Int[np.ndarray, " move"]  # number of distinct places elsewhere so far
    is_return: Bool[np.ndarray, " move"]
    move: Int[np.ndarray, " choice"]
    arrivals: Int[np.ndarray, " choice"]
    features: Float[np.ndarray, "choice 3"]  # the place before, lift, nearness
    is_chosen: Bool[np.ndarray, " choice"]

    def padded(self, weight: Float[np.ndarray, " move"]) -> tuple[Choices, Float[np.ndarray, " more_moves"]]:
        """Append moves without weight; see `fitting.padding`."""
        of_choice = {"move": len(self.user), "arrivals": 1, "features": 0, "is_chosen": False}
        both = pad(self, {"user": 0, "n_places": 1, "is_return": True}, of_choice)
        return both, padded(weight, padding(len(weight)), 0)


def lift_of(population: Float[np.ndarray, "slot place"]) -> Float[np.ndarray, "slot place"]:
    """Bounded logarithm of (share of people at a place in a slot / mean share over all slots)."""
    return np.clip(np.log(population / population.mean(axis=0)), -MAX_LIFT, MAX_LIFT)


def fit_returns(
    train: Traces, n_periods: int, anchors: Anchors, movement: Movement, random: np.random.Generator
) -> ReturnLaw:
    """Maximize the likelihood of the moves to places elsewhere, in windows of `n_periods` periods."""
    order = random.permutation(train.n_users)[:MAX_USERS]
    users = np.sort(order)
    windows = train.select_users(users).cut_into_periods(n_periods)
    is_elsewhere = anchors.of_users(users).layer(windows.user, windows.place) == ELSEWHERE
    return maximum_likelihood(choices_of(*_few(windows, is_elsewhere, np.searchsorted(users, order)), movement))


def _few(
    windows: Traces, is_elsewhere: Bool[np.ndarray, " event"], order: Int[np.ndarray, " user"]
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
    return (windows, is_elsewhere) if kept.all() else (windows.select_events(kept), is_elsewhere[kept])


def choices_of(windows: Traces, is_elsewhere: Bool[np.ndarray, " event"], movement: Movement) -> Choices:
    """The moves to places elsewhere, except moves of people who had no place to go back to.

    Two features depend on the current place: the place before, and nearness. They count only if the move is from one
    instant to the next. If instants without events lie between, the person may have come from another place.
    """
    runs = Runs.of(windows.trace_of_event(), windows.place)
    arrival = np.flatnonzero(is_elsewhere[runs.first])
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
    near = np.clip(log_weight - np.log(population[slot, place]), -MAX_ATTRACTION, MAX_ATTRACTION)
    features = np.stack([is_step & (place == earlier[at]), lift_of(population)[slot, place], is_step * near], axis=1)
    user = windows.user[runs.first][of_move]
    is_return = np.isin(of_move, at[is_chosen])
    move = np.searchsorted(of_move, at)
    return Choices(user, n_places[of_move], is_return, move, arrivals, features.astype(np.float64), is_chosen)


def maximum_likelihood(choices: Choices) -> ReturnLaw:
    """Parameters that maximize the likelihood times weak normal priors."""
    weight = bounded(choices.user, np.zeros(len(choices.user), int), 1)[0]
    found = maximize(_log_posterior, START, choices.padded(weight), limits=BOUNDS)
    return ReturnLaw(float(expit(found[0])), float(np.exp(found[1])), *found[2:].tolist())


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


def _log_posterior(parameters: Array, given: tuple[Choices, Array]) -> Float[Array, ""]:
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
