"""Raking: adjust the distributions of clusters until their mixture is the population."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from ppmtf_jax.runtime.threads import map_in_threads

# Maximum total variation from the population in each slot; most data need fewer than twenty rounds.
TOLERANCE, MAX_ROUNDS = 1e-5, 100


def rake(
    distributions: Float[np.ndarray, "cluster slot place"],
    share: Float[np.ndarray, " cluster"],
    population: Float[np.ndarray, "slot place"],
) -> Float[np.ndarray, "cluster slot place"]:
    """Scale distributions so that sum_k share_k theta_k is the population, up to a total variation of 1e-5 per slot.

    Iterative proportional fitting, at most 100 rounds: scale places to the population, then clusters to sum 1.
    """

    def rake_slot(slot: int) -> Float[np.ndarray, "cluster place"]:
        theta = distributions[:, slot].astype(np.float64)
        for _ in range(MAX_ROUNDS):
            mixture = share @ theta
            if np.abs(mixture - population[slot]).sum() / 2 < TOLERANCE:
                break
            theta *= population[slot] / mixture
            theta /= theta.sum(axis=1, keepdims=True)
        return theta.astype(np.float32)

    return np.stack(list(map_in_threads(rake_slot, range(distributions.shape[1]))), axis=1)
