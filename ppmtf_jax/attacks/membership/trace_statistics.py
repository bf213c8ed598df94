"""What synthetic traces have in common with a user's: one number of each user for each of several ways to look at them.

Different synthesizers give users away in different ways: by places per hour if populations are exact, or by whole
traces if some are copied. So the attacker uses several statistics, and learns on models of her own which of them tell.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from ppmtf_jax.attacks.membership.trace_densities import count_of, log_density_per_event
from ppmtf_jax.attacks.scoring import products_in_blocks
from ppmtf_jax.data.windows import Windows

REACH = 1
"""Instants before and after over which visits are smoothed."""
PSEUDO_COUNT = 0.02
"""Events that are added to each count, so that moves that no trace makes have a probability too."""
SMOOTH_CONCENTRATION = 100.0
"""Of the chain that says how usual a user's traces are, beside the one that says what no trace does."""
COMPARED_WINDOWS = 2**28
"""Most windows of users times windows of synthetic traces that are held side by side; else some of the latter."""


def statistics_of(users: Windows, made: Windows) -> Float[np.ndarray, "statistic user"]:
    """All statistics of each user's windows beside synthetic ones, in the order of `STATISTICS`.

    A user of whom a statistic says nothing, as of moves where she makes none, has 0 whatever the synthetic traces are.

    Parameters
    ----------
    users : Windows
        Of the users who are attacked, each with at least one.
    made : Windows
        Of synthetic traces, over the same places and a grid of the same period.

    Examples
    --------
    >>> from ppmtf_jax.attacks.membership.trace_densities import windows_of
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> users, made = windows_of(users=toy_city(9, seed=0).traces, made=toy_city(5, seed=1).traces)
    >>> statistics_of(users, made).shape == (len(STATISTICS), 9)
    True
    """
    return np.stack([statistic(users, made) for statistic in STATISTICS.values()])


def _visits(users: Windows, made: Windows) -> Float[np.ndarray, " user"]:
    """Log-share of each of her places at its instant and those next to it."""
    n_places, n_instants = len(users.places), users.time_grid.n_instants
    shifts = range(-REACH, REACH + 1)
    # Instants begin at REACH, so that those before the first have numbers too.
    known = np.concatenate([made.phase.astype(np.int64) + REACH + shift for shift in shifts])
    asked = users.phase.astype(np.int64) + REACH
    count = count_of(known * n_places + np.tile(made.place, len(shifts)), asked * n_places + users.place)
    total = np.bincount(known, minlength=n_instants + 2 * REACH)[asked]
    return _mean(users, users.window, _log_share(count, total, n_places))


def _moves(users: Windows, made: Windows) -> Float[np.ndarray, " user"]:
    """Log-share of each place that she moves to, among the next places of the one before."""
    n_places = len(users.places)
    (place, following), steps = users.steps(), made.steps()
    known, asked = (each[0].astype(np.int64) * n_places + each[1] for each in (steps, (place, following)))
    total = np.bincount(steps[0], minlength=n_places)[place]
    moved = place != following
    log_share = _log_share(count_of(known, asked), total, n_places)
    return _mean(users, users.window[users.is_step()][moved], log_share[moved])


def _pairs(users: Windows, made: Windows) -> Float[np.ndarray, " user"]:
    """Log-share of synthetic windows that are at both of two places, over all two places of a window of hers."""
    at, at_made = (_places_of(each) for each in (users, made))
    both = sparse.csr_array(at_made.T @ at_made)
    both.setdiag(0)
    both.data = np.log1p(np.asarray(both.data, float) / PSEUDO_COUNT)
    gain = np.zeros(users.n_windows)
    for rows, product in products_in_blocks(at, both):
        gain[rows] = product.multiply(at[rows]).sum(axis=1)
    n_places = np.diff(at.indptr)
    n_pairs = np.bincount(users.user, n_places * (n_places - 1))
    return np.bincount(users.user, gain) / np.maximum(n_pairs, 1)


def _kernel(users: Windows, made: Windows) -> Float[np.ndarray, " user"]:
    """How near whole synthetic windows come to hers."""
    step = -(-made.n_windows * users.n_windows // COMPARED_WINDOWS)
    some = made if step == 1 else made.select(np.arange(made.n_windows) % step == 0)
    return log_density_per_event(users, some, "kernel")


STATISTICS: dict[str, Callable[[Windows, Windows], Float[np.ndarray, " user"]]] = {
    "visits": _visits,
    "moves": _moves,
    "pairs": _pairs,
    "kernel": _kernel,
    "chain": partial(log_density_per_event, density="chain"),
    "smooth chain": partial(log_density_per_event, density="chain", concentration=SMOOTH_CONCENTRATION),
}
"""From windows of users and synthetic ones to a number of each user, by name."""


def _log_share(
    count: Int[np.ndarray, " event"], total: Int[np.ndarray, " event"], n_places: int
) -> Float[np.ndarray, " event"]:
    return np.log((count + PSEUDO_COUNT) / (total + PSEUDO_COUNT * n_places))


def _mean(
    users: Windows, window: Int[np.ndarray, " event"], value: Float[np.ndarray, " event"]
) -> Float[np.ndarray, " user"]:
    """Mean over the events of each user; 0 of none."""
    user, n_users = users.user[window], int(users.user.max()) + 1
    return np.bincount(user, value, n_users) / np.maximum(np.bincount(user, minlength=n_users), 1)


def _places_of(windows: Windows) -> sparse.csr_array:
    """1 where a window is at a place."""
    visits = windows.visits()
    shape = (windows.n_windows, len(windows.places))
    return sparse.csr_array((np.ones(len(visits.place)), (visits.window, visits.place)), shape=shape)
