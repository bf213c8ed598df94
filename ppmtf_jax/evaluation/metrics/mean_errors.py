"""Mean errors of the population and of the transition matrix of all users: Figures 12 to 15 of Narita et al. 2022.

Those of the co-locations of friends (Figures 8 to 11) are in `friends`.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy import sparse

from ppmtf_jax.data.measurement import Comparison, NoSettings
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.evaluation.distributions import mean_errors
from ppmtf_jax.evaluation.metrics.moves import transition_matrix
from ppmtf_jax.evaluation.metrics.population import visits
from ppmtf_jax.evaluation.registry import error_quantities, register_utility


def population(traces: Traces) -> np.ndarray:
    """Share of the events at each place, shape (places,)."""
    return visits(traces) / traces.n_events


def _measure(comparison: Comparison, settings: NoSettings, *, uniform: bool = False) -> list[float]:
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


register_utility(
    *error_quantities("population", "Population", "the share of the events at a place", "share of events"),
    *error_quantities(
        "transition",
        "Transition",
        "the probability of a step from one place to another; a place that nobody leaves is always stayed at",
        "probability",
        "no transition in the test traces",
    ),
    name="mean_errors",
    measure=_measure,
    uniform=partial(_measure, uniform=True),
    per_trace_number=True,
    pools_gaps=True,
)
