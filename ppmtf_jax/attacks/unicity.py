"""Unicity: share of users who are unique at a few points of their traces (de Montjoye et al. 2013)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from ppmtf_jax.attacks.scoring import events_by_point, products_in_blocks
from ppmtf_jax.data.runs import least_of_each, rank_in_run
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.errors import Problem, raise_any
from ppmtf_jax.streams import Stage, numpy_stream

MAX_POINTS = 5
N_REPEATS = 10
N_KNOWN = 500
"""Maximum number of users whose points are drawn in a repetition; these users are drawn at random."""
POINTS_STREAM = 0
"""Random-stream number of the stage; copies.py uses 1 to 3."""


def unicity(
    traces: Traces | Windows,
    *,
    max_points: int = MAX_POINTS,
    n_repeats: int = N_REPEATS,
    n_users: int | None = None,
    seed: int = 0,
) -> Float[np.ndarray, " points"]:
    """Share of users who are unique at 1, 2, ... points of their own (de Montjoye et al. 2013).

    A point is a place and an instant of the period. In each repetition, one window (one period) of each user is drawn,
    and then points of this window at random. If a user has fewer points, all of them are used. The user is unique if no
    other user's drawn window contains all drawn points. Shares are averaged over the repetitions. Only one window per
    user is used, so that users with longer traces do not have more points.

    `n_users`: size of the crowd, the number of users drawn at random in each repetition; all by default. Compare only
    shares with the same crowd size, because more users are unique in a small crowd. With fewer users than that, all
    shares are NaN. Raises `InputError`: `max_points`, `n_repeats` or `n_users` is below 1.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> shares = unicity(toy_city(100, seed=0).traces)
    >>> shares.shape, bool(shares[0] < shares[4])
    ((5,), True)
    """
    problems = [
        Problem(f"{name} of at least 1", repr(value))
        for name, value in (("max_points", max_points), ("n_repeats", n_repeats), ("n_users", n_users))
        if value is not None and value < 1
    ]
    raise_any("unicity", problems)
    windows = traces if isinstance(traces, Windows) else Windows.of(traces)
    n_there = len(np.unique(windows.user))
    crowd = n_there if n_users is None else n_users
    if crowd > n_there:
        return np.full(max_points, np.nan)
    rng = numpy_stream(seed, Stage.ALARMS, POINTS_STREAM)
    return np.mean([_unicity_of_draw(windows, max_points, crowd, rng) for _ in range(n_repeats)], axis=0)


def at_most(n: int, limit: int, rng: np.random.Generator) -> Bool[np.ndarray, " all"]:
    """Random mask that selects `limit` of `n` elements, or all if `n` is smaller."""
    return rng.permutation(n) < limit


def _unicity_of_draw(
    windows: Windows, max_points: int, n_users: int, rng: np.random.Generator
) -> Float[np.ndarray, " points"]:
    one_of_user = least_of_each(windows.user, rng.random(windows.n_windows), most=1)
    one_each = windows.select(np.isin(np.arange(windows.n_windows), one_of_user))
    if n_users < one_each.n_windows:
        one_each = one_each.select(at_most(one_each.n_windows, n_users, rng))
    crowd = events_by_point(one_each).T.tocsr()
    known = np.flatnonzero(at_most(one_each.n_windows, N_KNOWN, rng))
    # The points of each selected user, in random order.
    event = np.flatnonzero(np.isin(one_each.window, known))
    order = np.lexsort((rng.random(len(event)), one_each.window[event]))
    event, row = event[order], np.searchsorted(known, one_each.window[event[order]])
    # One query row for each number of points and each selected user.
    number, chosen = np.nonzero(rank_in_run(row) <= np.arange(max_points)[:, None])
    row, n_rows = number * len(known) + row[chosen], max_points * len(known)
    queries = events_by_point(one_each, event=event[chosen], row=row, n_rows=n_rows)
    wanted = np.bincount(row, minlength=n_rows)
    n_matches = np.empty(n_rows)
    for rows, product in products_in_blocks(queries, crowd):
        n_entries = np.diff(product.indptr)
        has_all = product.data == np.repeat(wanted[rows], n_entries)
        n_matches[rows] = np.bincount(np.repeat(np.arange(len(n_entries)), n_entries), has_all, len(n_entries))
    return np.mean(n_matches.reshape(max_points, -1) == 1, axis=1)
