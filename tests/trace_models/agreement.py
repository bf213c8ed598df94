"""Is what a model draws distributed as its scores say?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from ppmtf_jax.trace_models.base import ScoredTraceModel

# A correct sampler fails a test at this level once in a million seeds; the seeds are fixed.
FALSE_ALARM = 1e-6


def log_rows(model: ScoredTraceModel, user: jax.Array, n_instants: int, n_places: int) -> tuple[jax.Array, jax.Array]:
    """Log-probabilities of first and of next places, shapes (places,) and (instants - 1, places, places)."""
    every, instants = jnp.arange(n_places), jnp.arange(1, n_instants)
    cache = jax.tree.map(lambda leaf: leaf[..., 0], model.user_cache(user[None]))
    first = jax.vmap(model.log_first, (None, 0))(cache, every)
    from_place = jax.vmap(model.log_next, (None, None, None, 0))
    at_instant = jax.vmap(from_place, (None, None, 0, None))
    return first, jax.vmap(at_instant, (None, 0, None, None))(cache, instants, every, every)


def worst_disagreement(
    model: ScoredTraceModel, users: list[int], n_instants: int, n_places: int, *, n_draws: int = 4000
) -> float:
    """Pearson's statistic of the worst row, in units of its quantile: above 1 the draws are not those of the scores.

    Each row, from every place at every instant and of the first places, is drawn `n_draws` times.
    """
    keys = jax.random.split(jax.random.key(0), n_draws)
    instants, every = jnp.arange(1, n_instants), jnp.arange(n_places)
    over_places = jax.vmap(model.sample_next, (None, None, None, 0))
    over_instants = jax.vmap(over_places, (None, None, 0, None))
    draw_next = jax.jit(jax.vmap(over_instants, (0, None, None, None)))
    draw_first = jax.jit(jax.vmap(model.sample_first, (0, None)))
    scores = jax.jit(lambda user: log_rows(model, user, n_instants, n_places))
    level = FALSE_ALARM / (len(users) * (1 + (n_instants - 1) * n_places))
    worst = 0.0
    for user in users:
        first, following = (np.exp(np.asarray(log, np.float64)) for log in scores(jnp.asarray(user)))
        drawn_first, drawn_next = (
            draw_first(keys, jnp.asarray(user)),
            draw_next(keys, jnp.asarray(user), instants, every),
        )
        worst = max(worst, chi_square_ratio(np.asarray(drawn_first), first, level))
        for instant, place in np.ndindex(n_instants - 1, n_places):
            drawn = np.asarray(drawn_next[:, instant, place])
            worst = max(worst, chi_square_ratio(drawn, following[instant, place], level))
    return worst


def chi_square_ratio(drawn: np.ndarray, probability: np.ndarray, level: float) -> float:
    """Pearson's statistic in units of its quantile; places expected less than 5 times are pooled.

    Infinite where a place was drawn that cannot be, or where the probabilities do not sum to one.
    """
    observed = np.bincount(drawn, minlength=len(probability))
    if observed[probability == 0].any() or abs(probability.sum() - 1) > 1e-4:
        return np.inf
    expected = probability / probability.sum() * len(drawn)
    rare = expected < 5
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    # Few of the rare ones are a Poisson variable, of which the statistic would be no chi-square.
    if expected[-1] < 5:
        if stats.poisson.sf(observed[-1] - 1, expected[-1]) < level:
            return np.inf
        observed, expected = observed[:-1], expected[:-1]
    if len(expected) < 2:
        return 0.0
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float(statistic / stats.chi2.isf(level, len(expected) - 1))
