"""Population and transition matrix of all users: sliced distances, mean errors; and how far two people are apart.

TP-SWD, TM-TV and TM-SWD are those of Murakami et al., PoPETs 2023. The sliced Wasserstein distance of two distributions
on a plane is the Wasserstein-1 distance of their projections onto a line, averaged over lines (Rabin et al. 2012). As
published, places are the cells of TM-EMD, and the lines are 50 random ones that are always the same. The mean errors
are those of Figures 12 to 15 of Narita et al. 2022; those of co-locations (Figures 8 to 11) are in `friends`.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy import sparse

from ppmtf_jax.data.measurement import Comparison, Interpretation, MetricInfo, NoSettings
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.evaluation.distributions import mean_errors, pair_counts, row_shares, row_variation, row_variation_from
from ppmtf_jax.evaluation.metrics.moves import TransitionSettings, bins_of_places, transition_matrix
from ppmtf_jax.evaluation.metrics.population import compared_populations, visits
from ppmtf_jax.evaluation.metrics.windows import SEED, Sample, mean_difference, window_metric
from ppmtf_jax.evaluation.registry import Undefined, error_quantities, register_utility, variation_quantity
from ppmtf_jax.streams import Stage, numpy_stream

N_LINES = 50
PAIRS = 6  # number of the random stream, see windows.py
ROWS = 4096
"""Number of rows of a transition matrix whose distributions over the cells are in memory at a time."""


def sliced_wasserstein(found: np.ndarray, expected: np.ndarray, n_bins: int) -> float:
    """Mean sliced Wasserstein distance of corresponding rows, in cells; shape (rows, bins north * bins east).

    Examples
    --------
    All people one cell further north: 2 / pi = 0.637 on average over all lines, and 0.59 over these.

    >>> round(sliced_wasserstein(np.eye(4)[[2]], np.eye(4)[[0]], 2), 2)
    0.59
    """
    cell, total = np.stack(np.divmod(np.arange(n_bins**2), n_bins)), 0.0
    # NumPy's old generator never changes, and is the published one.
    east_north = np.random.RandomState(0).randn(2, N_LINES)
    for line in (east_north / np.linalg.norm(east_north, axis=0))[::-1].T:
        position = line @ cell
        order = np.argsort(position, kind="stable")
        ahead = np.cumsum((found - expected)[:, order], axis=1)[:, :-1]
        total += float((np.abs(ahead) @ np.diff(position[order])).sum())
    return total / (N_LINES * len(expected))


def _at_cells(comparison: Comparison, settings: TransitionSettings) -> sparse.csr_array:
    """The cell of each place as a 0-1 matrix, shape (places, bins north * bins east)."""
    north, east = bins_of_places(comparison.test.places, settings)
    shape = comparison.test.n_places, settings.n_bins**2
    return pair_counts(np.arange(shape[0]), north * settings.n_bins + east, shape)


def _population(comparison: Comparison, settings: TransitionSettings, *, uniform: bool = False) -> list[float]:
    cells = _at_cells(comparison, settings)
    found, test = (each @ cells for each in compared_populations(comparison, uniform=uniform))
    return [sliced_wasserstein(found, test, settings.n_bins)]


def _rows(comparison: Comparison, settings: TransitionSettings, of: str = "traces") -> list[float]:
    """TM-TV and TM-SWD of the traces, of people who go anywhere ("uniform"), or of people who never move ("stays")."""
    if not comparison.statistic(Traces.has_transitions, comparison.test):
        raise Undefined
    cells, test = _at_cells(comparison, settings), comparison.statistic(transition_matrix, comparison.test)
    n_places, total = comparison.test.n_places, np.zeros(2)
    found = comparison.statistic(transition_matrix, comparison.traces) if of == "traces" else sparse.eye_array(n_places)
    found, own_cells = sparse.csr_array(found), np.asarray(cells.sum(axis=0)) / n_places
    for first in range(0, n_places, ROWS):
        own, expected = found[first : first + ROWS], test[first : first + ROWS]
        variation = row_variation_from(1 / n_places, expected)
        if of != "uniform":
            variation, own_cells = row_variation(own, expected), sparse.csr_array(own @ cells).toarray()
        distance = sliced_wasserstein(own_cells, (expected @ cells).toarray(), settings.n_bins)
        total += variation.sum(), distance * len(variation)
    return (total / n_places).tolist()


def _never_moving(comparison: Comparison, settings: TransitionSettings) -> list[Interpretation]:
    return [Interpretation({"never moving": each}) for each in _rows(comparison, settings, "stays")]


def population(traces: Traces) -> np.ndarray:
    """Share of the events at each place, shape (places,)."""
    return visits(traces) / traces.n_events


def _errors(comparison: Comparison, settings: NoSettings, *, uniform: bool = False) -> list[float]:
    made, test = comparison.traces, comparison.test
    chance, n_cells = 1 / test.n_places, test.n_places**2
    share = chance if uniform else comparison.statistic(population, made)
    errors = mean_errors(share - comparison.statistic(population, test))
    if not comparison.statistic(Traces.has_transitions, test):
        return [*errors, np.nan, np.nan]
    # Transition matrices are sparse.
    matrix = comparison.statistic(transition_matrix, test)
    if uniform:
        return errors + mean_errors(chance - matrix.data, n_cells, rest=chance)
    difference = sparse.csr_array(comparison.statistic(transition_matrix, made) - matrix)
    return errors + mean_errors(difference.data, n_cells)


NO_STEP = "no transition in the test traces"
LIKE_PUBLISHED = {"per_trace_number": True, "pools_gaps": True}
register_utility(
    MetricInfo(
        "tp_swd",
        "TP-SWD",
        "Sliced Wasserstein distance, in cells, between the distributions over places of the synthetic and the test "
        "events, averaged over the slots.",
        "cells",
    ),
    measure=_population,
    uniform=partial(_population, uniform=True),
    settings=TransitionSettings,
    **LIKE_PUBLISHED,
)
register_utility(
    variation_quantity(
        "tm_tv",
        "TM-TV",
        "Total variation between the distributions of the next place of synthetic and of test users, averaged over the "
        "places; at a place that nobody leaves, the next place is the same place.",
        NO_STEP,
    ),
    MetricInfo(
        "tm_swd",
        "TM-SWD",
        "Sliced Wasserstein distance, in cells, between the same distributions as for TM-TV.",
        "cells",
        undefined=NO_STEP,
    ),
    measure=_rows,
    uniform=partial(_rows, of="uniform"),
    reading=_never_moving,
    settings=TransitionSettings,
    **LIKE_PUBLISHED,
)
register_utility(
    *error_quantities("population", "Population", "the share of the events at a place", "share of events"),
    *error_quantities(
        "transition",
        "Transition",
        "the probability of a step from one place to another; a place that nobody leaves is always stayed at",
        "probability",
        NO_STEP,
    ),
    name="mean_errors",
    measure=_errors,
    uniform=partial(_errors, uniform=True),
    **LIKE_PUBLISHED,
)


@window_metric(
    "diversity_difference",
    "Diversity",
    "Total variation between the places of two random users in one period, averaged: synthetic users minus test users.",
    mean_difference,
    unit="total variation, -1 to 1",
    one_period=True,
)
def apart(windows: Windows) -> Sample:
    """Total variation between where each window and the window of another random user are (fixed seed)."""
    shares = row_shares(pair_counts(windows.window, windows.place, (windows.n_windows, len(windows.places))))
    order = numpy_stream(SEED, Stage.METRICS, PAIRS).permutation(windows.n_windows)
    other = np.roll(order, 1)
    different = windows.user[order] != windows.user[other]
    return Sample(windows.user[order][different], row_variation(shares[order], shares[other])[different])
