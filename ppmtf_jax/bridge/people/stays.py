"""How long people stay elsewhere: by place and slot, by the time they have been there, and by their class of mobility.

Stays and steps away follow the rules of `contributions`. The model also learns how staying depends on the dwell time,
which is the time at the place so far, and on the class. In this regression, for each bin of dwell time, no user's
steps weigh more than the steps of the second heaviest user. A user weighs one in the number of users of a class.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import minimize
from scipy.special import expit, logit

from ppmtf_jax.bridge.contributions import STEP_USERS, bounded, stretches
from ppmtf_jax.bridge.moves import StayCounts, stay_rates
from ppmtf_jax.bridge.people.law import DWELL_FROM
from ppmtf_jax.bridge.transitions import Transitions
from ppmtf_jax.bridge.tuning import BridgeChoice
from ppmtf_jax.bridge.visits import slot_kernel
from ppmtf_jax.data.runs import rank_in_run
from ppmtf_jax.data.traces import Traces

N_CLASSES = 3
"""Number of classes of mobility."""
CLASS_USERS, CLASS_STEPS = 5.0, 5.0
"""Weight, in users, of the shares of classes in all clusters, for one cluster; pseudo-steps, for mobility."""


class StayLaw(NamedTuple):
    """Log-odds of staying elsewhere, see `law.PersonLaw`; `in_slot` is the share of stays in each slot."""

    in_slot: Float[np.ndarray, " slot"]
    log_odds: Float[np.ndarray, "slot place"]
    by_dwell: Float[np.ndarray, " dwell"]
    by_class: Float[np.ndarray, " class"]
    class_share: Float[np.ndarray, "cluster class"]


def dwell_times(windows: Traces) -> Int[np.ndarray, " event"]:
    """For each event, the number of events so far in its run of successive instants at the same place of a window."""
    same_place = np.append(False, windows.place[1:] == windows.place[:-1])[: windows.n_events]
    return rank_in_run(np.cumsum(~(windows.is_step() & same_place))) + 1


def fit_stays(
    windows: Traces,
    is_elsewhere: Bool[np.ndarray, " event"],
    of_user: Int[np.ndarray, " user"],
    choice: BridgeChoice,
) -> StayLaw:
    """Learn from the steps between two events elsewhere.

    A user's mobility is (stays - expected stays) / sqrt(steps + 5). Users are sorted by mobility and divided into three
    equal parts, which are the classes. The log-odds of staying are those of the place and slot, plus effects of the bin
    of dwell time and of the class. Logistic regression with a normal prior learns these effects.
    """
    grid = windows.time_grid
    arrival = np.flatnonzero(windows.is_step() & is_elsewhere & np.roll(is_elsewhere, 1))
    user, slot, place = windows.user[arrival], windows.slot[arrival], windows.place[arrival - 1]
    steps = Transitions(user, slot, place, windows.place[arrival], grid.n_slots, windows.n_places)
    counts = StayCounts.of(steps, STEP_USERS, stretches(grid))
    rates = stay_rates(counts, choice.moves.stay_mass, slot_kernel(grid, choice.moves.slot_bandwidth))
    log_odds = logit(rates.at_place)
    offset, stays = log_odds[slot, place], (steps.place == steps.next_place).astype(float)
    dwell = np.searchsorted(DWELL_FROM, dwell_times(windows)[arrival - 1], side="right") - 1
    of_class, has_steps = _classes(user, stays - expit(offset), len(of_user))
    by_dwell, by_class = _regression(user, offset, stays, dwell, of_class[user])
    counted = np.bincount(
        of_user[has_steps] * N_CLASSES + of_class[has_steps], minlength=(of_user.max() + 1) * N_CLASSES
    )
    users = counted.reshape(-1, N_CLASSES)
    together = (users.sum(axis=0) + 1 / N_CLASSES) / (users.sum() + 1)
    class_share = (users + CLASS_USERS * together) / (users.sum(axis=1, keepdims=True) + CLASS_USERS)
    return StayLaw(rates.in_slot, log_odds, by_dwell, by_class, class_share)


def _classes(
    user: Int[np.ndarray, " step"], surplus: Float[np.ndarray, " step"], n_users: int
) -> tuple[Int[np.ndarray, " user"], Int[np.ndarray, " some"]]:
    """Class of each user, and the users who have steps elsewhere; the classes of other users mean nothing."""
    steps = np.bincount(user, minlength=n_users)
    has_steps = np.flatnonzero(steps)
    mobility = np.bincount(user, surplus, n_users) / np.sqrt(steps + CLASS_STEPS)
    edges = np.quantile(mobility[has_steps], np.arange(1, N_CLASSES) / N_CLASSES) if len(has_steps) else []
    return np.searchsorted(edges, mobility, side="right"), has_steps


def _regression(
    user: Int[np.ndarray, " step"],
    offset: Float[np.ndarray, " step"],
    stays: Float[np.ndarray, " step"],
    dwell: Int[np.ndarray, " step"],
    of_class: Int[np.ndarray, " step"],
) -> tuple[Float[np.ndarray, " dwell"], Float[np.ndarray, " class"]]:
    """Logistic regression on bounded steps; steps with the same offset, dwell bin and class are added up first."""
    weight = bounded(user, dwell, len(DWELL_FROM))[0]
    value, which = np.unique(offset, return_inverse=True)
    shape = (len(value), len(DWELL_FROM), N_CLASSES)
    code, row = np.unique(np.ravel_multi_index((which, dwell, of_class), shape), return_inverse=True)
    at, dwell, of_class = np.unravel_index(code, shape)
    n, n_stay = np.bincount(row, weight, len(code)), np.bincount(row, weight * stays, len(code))

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        by_dwell, by_class = np.split(parameters, [len(DWELL_FROM)])
        score = value[at] + by_dwell[dwell] + by_class[of_class]
        surplus = n * expit(score) - n_stay
        gradient = [np.bincount(dwell, surplus, len(by_dwell)), np.bincount(of_class, surplus, N_CLASSES)]
        log_likelihood = (n_stay * score - n * np.logaddexp(0, score)).sum()
        return 0.5 * parameters @ parameters - log_likelihood, parameters + np.concatenate(gradient)

    found = minimize(loss, np.zeros(len(DWELL_FROM) + N_CLASSES), jac=True, method="L-BFGS-B").x
    return found[: len(DWELL_FROM)], found[len(DWELL_FROM) :]
