"""How long people stay at other places than home and second place: by place, slot, time there and class of mobility.

Stays and steps away follow the rules of `user_bounds`. The model also learns how staying depends on the dwell time,
which is the time at the place so far, and on the class. In this regression, for each bin of dwell time, no user's
steps weigh more than the steps of the second heaviest user, and the steps of u users are multiplied by (u - 4) / u. A
user weighs one in the number of users of a class.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.special import expit, logit

from ppmtf_jax.data.blocks import Blocks
from ppmtf_jax.data.runs import rank_in_run
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.people.attraction import MoveSmoothing
from ppmtf_jax.people.bins import DWELL_FROM
from ppmtf_jax.people.counts import StayCounts, Transitions, slot_kernel, stay_rates
from ppmtf_jax.people.fitting import maximize, padded, padding
from ppmtf_jax.people.user_bounds import STEP_USERS, Rows, bounded_totals, time_blocks, used_share

N_CLASSES = 3
"""Number of classes of mobility."""
CLASS_USERS, CLASS_STEPS = 5.0, 5.0
"""Weight, in users, of the shares of classes in all clusters, for one cluster; pseudo-steps, for mobility."""


def dwell_times(windows: Traces) -> Int[np.ndarray, " event"]:
    """For each event, the number of events so far in its run of successive instants at the same place of a window."""
    same_place = np.append(False, windows.place[1:] == windows.place[:-1])[: windows.n_events]
    return rank_in_run(np.cumsum(~(windows.is_step() & same_place))) + 1


class _OtherSteps(NamedTuple):
    """Steps from other places to other places, and the bin of dwell time before each."""

    steps: Transitions
    dwell: Int[np.ndarray, " step"]

    @classmethod
    def of(cls, windows: Traces, is_other: Bool[np.ndarray, " event"]) -> _OtherSteps:
        arrival = np.flatnonzero(windows.is_step() & is_other & np.roll(is_other, 1))
        dwell = np.searchsorted(DWELL_FROM, dwell_times(windows)[arrival - 1], side="right") - 1
        return cls(Transitions.of(windows, arrival), dwell)


def fit_stays(
    windows: Blocks[tuple[Traces, Bool[np.ndarray, " event"]]],
    time_grid: TimeGrid,
    of_user: Int[np.ndarray, " user"],
    smoothing: MoveSmoothing,
) -> tuple[Float[np.ndarray, " slot"], dict[str, np.ndarray]]:
    """Learn from the steps from other places to other places; `windows` also say which events are at other places.

    Gives the share of stays in each slot, and arrays of `process.PersonProcess`.

    A user's mobility is (stays - expected stays) / sqrt(steps + 5). Users are sorted by mobility and divided into three
    equal parts, which are the classes. The log-odds of staying are those of the place and slot, plus effects of the bin
    of dwell time and of the class. Logistic regression with a normal prior learns these effects.
    """
    observed = windows.map(lambda both: _OtherSteps.of(*both))
    counts = StayCounts.of(observed.map(lambda own: own.steps), STEP_USERS, time_blocks(time_grid))
    rates = stay_rates(counts, smoothing.stay_mass, slot_kernel(time_grid, smoothing.slot_bandwidth))
    log_odds = logit(rates.at_place)
    mobility = observed.map(lambda own, cluster: _mobility(own, log_odds, len(cluster)), of_user).joined()
    has_steps = np.flatnonzero(~np.isnan(mobility))
    edges = np.quantile(mobility[has_steps], np.arange(1, N_CLASSES) / N_CLASSES) if len(has_steps) else []
    # The classes of users without steps mean nothing.
    of_class = np.minimum(np.searchsorted(edges, mobility, side="right"), N_CLASSES - 1).astype(np.int8)
    by_dwell, by_class = _regression(observed, log_odds, of_class)
    counted = np.bincount(
        of_user[has_steps] * N_CLASSES + of_class[has_steps], minlength=(of_user.max() + 1) * N_CLASSES
    )
    users = counted.reshape(-1, N_CLASSES)
    together = (users.sum(axis=0) + 1 / N_CLASSES) / (users.sum() + 1)
    class_share = (users + CLASS_USERS * together) / (users.sum(axis=1, keepdims=True) + CLASS_USERS)
    odds = {"stay": log_odds, "stay_by_dwell": by_dwell, "stay_by_class": by_class}
    return rates.in_slot, {"class_share": class_share, **odds}


def _mobility(
    observed: _OtherSteps, log_odds: Float[np.ndarray, "slot place"], n_users: int
) -> Float[np.ndarray, " user"]:
    """Mobility of each user, NaN for a user without steps from other places to other places."""
    steps = observed.steps
    surplus = (steps.place == steps.next_place) - expit(log_odds[steps.slot, steps.place])
    n_steps = np.bincount(steps.user, minlength=n_users)
    mobility = np.bincount(steps.user, surplus, n_users) / np.sqrt(n_steps + CLASS_STEPS)
    return np.where(n_steps > 0, mobility, np.nan)


def _regression(
    observed: Blocks[_OtherSteps], log_odds: Float[np.ndarray, "slot place"], of_class: Int[np.ndarray, " user"]
) -> tuple[Float[np.ndarray, " dwell"], Float[np.ndarray, " class"]]:
    """Logistic regression on bounded steps; steps of one slot, place, dwell bin and class are added up first."""
    shape = (*log_odds.shape, len(DWELL_FROM), N_CLASSES, 2)

    def rows(own: _OtherSteps, of_class: Int[np.ndarray, " user"]) -> list[Rows]:
        steps, dwell = own
        stays = (steps.place == steps.next_place).astype(int)
        cell = np.ravel_multi_index((steps.slot, steps.place, dwell, of_class[steps.user], stays), shape)
        return [Rows(steps.user, dwell, cell, shape)]

    ((table, groups),) = bounded_totals(observed.map(rows, of_class))
    table *= used_share(groups.users_of(len(DWELL_FROM)), STEP_USERS)[:, None, None]
    found = np.nonzero(table.sum(axis=-1))
    n_more = padding(len(found[0]))
    columns = (log_odds[found[:2]], *found[2:], *table[found].T)
    start = np.zeros(len(DWELL_FROM)), np.zeros(N_CLASSES)
    return maximize(_log_posterior, start, [padded(column, n_more, 0) for column in columns])


def _log_posterior(effects: tuple[Array, Array], rows: list[Array]) -> Float[Array, ""]:
    """Log-likelihood of stays and steps away, plus log-densities of the standard normal priors of the effects."""
    by_dwell, by_class = effects
    offset, dwell, of_class, n_leave, n_stay = rows
    score = offset + by_dwell[dwell] + by_class[of_class]
    log_likelihood = n_stay @ score - (n_leave + n_stay) @ jnp.logaddexp(0, score)
    return log_likelihood - (by_dwell @ by_dwell + by_class @ by_class) / 2
