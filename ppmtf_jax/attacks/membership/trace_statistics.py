"""Statistics that compare a user's traces with synthetic ones: one number for each user and each statistic.

Synthesizers reveal users in different ways: through the places at each hour if populations are exact, or through whole
traces if some are copied. So the attacker uses several, and learns from shadow models how much each reveals.
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
"""Number of instants before and after an instant whose visits are added to it."""
PSEUDO_COUNT = 0.02
"""Events added to each count, so that moves that occur in no trace have a positive probability."""
SMOOTH_CONCENTRATION = 100.0
"""Concentration of a second chain. It shows how usual a user's traces are; the first one shows absent steps."""
COMPARED_WINDOWS = 2**28
"""Maximum number of pairs of user windows and synthetic windows; above it, fewer synthetic windows are used."""


def statistics_of(users: Windows, made: Windows) -> Float[np.ndarray, "statistic user"]:
    """All statistics of each user's windows compared with synthetic windows, in the order of `STATISTICS`.

    Each user has at least one window. Both sets have the same places and grids with the same period. A statistic that
    is undefined for a user, such as moves of a user who never moves, is 0 for any synthetic traces.
    """
    return np.stack([statistic(users, made) for statistic in STATISTICS.values()])


def _visits(users: Windows, made: Windows) -> Float[np.ndarray, " user"]:
    """Mean log of the share of synthetic events at the user's places, at the same and neighbouring instants."""
    n_places, n_instants = len(users.places), users.time_grid.n_instants
    shifts = range(-REACH, REACH + 1)
    # Instants begin at REACH, so that the neighbours before the first have numbers of at least 0.
    known = np.concatenate([made.phase.astype(np.int64) + REACH + shift for shift in shifts])
    asked = users.phase.astype(np.int64) + REACH
    count = count_of(known * n_places + np.tile(made.place, len(shifts)), asked * n_places + users.place)
    total = np.bincount(known, minlength=n_instants + 2 * REACH)[asked]
    return _mean_log_share(users, users.window, count, total)


def _moves(users: Windows, made: Windows) -> Float[np.ndarray, " user"]:
    """Mean log of the share of synthetic steps from a place that go where the user moved from this place."""
    n_places = len(users.places)
    (place, following), steps = users.steps(), made.steps()
    known, asked = (each[0].astype(np.int64) * n_places + each[1] for each in (steps, (place, following)))
    total = np.bincount(steps[0], minlength=n_places)[place]
    moved = place != following
    window = users.window[users.is_step()]
    return _mean_log_share(users, window[moved], count_of(known, asked)[moved], total[moved])


def _pairs(users: Windows, made: Windows) -> Float[np.ndarray, " user"]:
    """Mean log of the number of synthetic windows that visit both places of a pair, over a user's pairs."""
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
    """Kernel density: how similar whole synthetic windows are to the user's windows."""
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
"""Functions of user windows and synthetic windows that return a number for each user, by name."""


def _mean_log_share(
    users: Windows,
    window: Int[np.ndarray, " event"],
    count: Int[np.ndarray, " event"],
    total: Int[np.ndarray, " event"],
) -> Float[np.ndarray, " user"]:
    """Mean logarithm of count / total over the events of each user; 0 if there are none."""
    log_share = np.log((count + PSEUDO_COUNT) / (total + PSEUDO_COUNT * len(users.places)))
    user, n_users = users.user[window], int(users.user.max()) + 1
    return np.bincount(user, log_share, n_users) / np.maximum(np.bincount(user, minlength=n_users), 1)


def _places_of(windows: Windows) -> sparse.csr_array:
    """Matrix with 1 where a window visits a place."""
    visits = windows.visits()
    shape = (windows.n_windows, len(windows.places))
    return sparse.csr_array((np.ones(len(visits.place)), (visits.window, visits.place)), shape=shape)
