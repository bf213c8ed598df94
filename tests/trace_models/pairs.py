"""Log-likelihood of every trace under every user, by the steps that the privacy test uses."""

from __future__ import annotations

import jax
import numpy as np

from ppmtf_jax.trace_models.base import ScoredTraceModel
from ppmtf_jax.trace_models.likelihoods import (
    Moves,
    distinct_steps,
    empty_step_table,
    firsts_and_stays,
    sum_of_rows,
    write_moves,
)


@jax.jit
def _log_likelihoods(model, users, steps, rows):
    cache, table = model.user_cache(users), empty_step_table(model, len(users), steps)
    stays = firsts_and_stays(model, cache, steps)
    table = table.at[: len(stays)].set(stays)
    (moves,) = (Moves(*columns) for columns in zip(*steps.moves, strict=True))
    return sum_of_rows(write_moves(model, cache, moves, table), rows)


def pairwise_log_likelihood(model: ScoredTraceModel, users: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Of complete traces (trace, instant), shape (trace, user)."""
    return np.asarray(_log_likelihoods(model, users, *distinct_steps(model, places, len(places))))
