"""Choice of settings by held-out cells, as Murakami et al. 2021 propose ("Tuning hyperparameters", section 3.5).

Settings are judged by the log density that draws of the sampler give to cells that it did not see. Positive cells and
zeros count in their true proportion: a sample with as many of either would favour few zeros and a low precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Array, Float
from scipy.special import logsumexp

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import NumericalError
from ppmtf_jax.gibbs.cells import observe
from ppmtf_jax.gibbs.diagnostics import HeldOut, hold_out, predict_cells
from ppmtf_jax.gibbs.kernel import Coupling, Factors, GibbsSettings, rows_of_factors
from ppmtf_jax.gibbs.memory import bytes_to_fit
from ppmtf_jax.gibbs.run import keep_every, run_gibbs
from ppmtf_jax.gibbs.tensors import CountTensors, Trimming, count_tensors
from ppmtf_jax.runtime.memory import available_bytes
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.streams import Stage, jax_stream, numpy_stream

PUBLISHED: dict[str, Any] = {"rank": 16, "noise_precision": 200.0, "n_zeros": 1000}
GRID = {"rank": (8, 16, 32), "noise_precision": (10.0, 50.0, 200.0, 1000.0), "n_zeros": (300, 1000, 3000)}
# Precision and zeros depend on each other; the rank is chosen after them.
TOGETHER = (("n_zeros", "noise_precision"), ("rank",))
# Successive halving: sweeps of each round, and one out of how many candidates reaches the next.
SWEEPS, ONE_OF = (10, 20, 40), 3
# Enough to choose; chains of more users take longer.
MAX_USERS = 1000
FAILED = -1e9
HELD_OUT_SHARE, HELD_OUT_ZEROS = 0.05, 100


def count_some_users(train: Traces, trimming: Trimming, seed: int) -> CountTensors:
    """Counts of at most 1,000 random users, by whom settings are compared."""
    users = np.sort(numpy_stream(seed, Stage.TUNING).permutation(train.n_users)[:MAX_USERS])
    return count_tensors(train.select_users(users), trimming, seed=seed)


def hide(counts: CountTensors, seed: int) -> tuple[CountTensors, dict[str, HeldOut]]:
    """Hold out positive cells of each tensor and zeros of each user, for `log_score`; see `hold_out`."""
    return hold_out(counts, HELD_OUT_SHARE, seed=seed, n_zeros=HELD_OUT_ZEROS)


def log_score(
    predicted: Mapping[str, Float[Array | np.ndarray, "draw cell"]],
    hidden: Mapping[str, HeldOut],
    counts: CountTensors,
    noise_precision: float,
) -> float:
    """Mean log predictive density of a cell of `counts`, from the predictions of the hidden ones by some draws."""
    total = n_cells = 0.0
    for name, (_, value) in hidden.items():
        found, tensor = np.asarray(predicted[name], np.float64), getattr(counts, name)
        logs = logsumexp(-0.5 * noise_precision * (found - value) ** 2, axis=0) - np.log(len(found))
        n_positive = len(tensor.user)
        n_zeros = tensor.shape[0] * tensor.cells_per_user - n_positive
        for which, number in ((value > 0, n_positive), (value == 0, n_zeros)):
            if which.any():
                total, n_cells = total + number * logs[which].mean(), n_cells + number
    return float(total / n_cells + 0.5 * np.log(noise_precision / (2 * np.pi)))


def choose_settings(
    train: Traces,
    trimming: Trimming,
    coupling: Coupling,
    given: Mapping[str, Any],
    seed: int,
    *,
    progress: bool = False,
) -> tuple[dict[str, Any], float]:
    """Choose the settings that are "auto" in `given`; also gives the gain in `log_score` over the published ones.

    Short chains of some users are compared. Their zeros are sampled, because held-out cells cannot be hidden among
    weighted ones. All predict the same held-out cells: with others, each chain would be compiled anew. The gain is 0 if
    the published settings have no score. Raises `NumericalError`: no settings have one.
    """
    score = cache(_score_of_chains(count_some_users(train, trimming, seed), coupling, seed))
    published = PUBLISHED | {name: given[name] for name in PUBLISHED if given[name] != "auto"}
    groups = [group for each in TOGETHER if (group := [name for name in each if given[name] == "auto"])]
    best, gain = published, 0.0
    with progress_bar("choosing settings", len(groups) * len(SWEEPS), show=progress) as advance:
        for group in groups:
            candidates = [
                best | dict(zip(group, each, strict=True)) for each in product(*(GRID[name] for name in group))
            ]
            for n_sweeps in SWEEPS:
                candidates.sort(key=lambda each: -score(n_sweeps, *each.values()))
                best = candidates[0]
                highest, usual = (score(n_sweeps, *each.values()) for each in (best, published))
                if highest == FAILED:
                    tried = "no chain of the settings tried ended, or none fits into memory"
                    raise NumericalError(f"{tried}: give {', '.join(group)} as numbers")
                gain = 0.0 if usual == FAILED else highest - usual
                candidates = candidates[: -(-len(candidates) // ONE_OF)]
                advance(1)
    return {name: best[name] for name in PUBLISHED if given[name] == "auto"}, gain


def _score_of_chains(counts: CountTensors, coupling: Coupling, seed: int) -> Callable[[int, int, float, int], float]:
    """A function of sweeps, rank, noise precision and zeros: `log_score` of a chain, or `FAILED` without one."""
    shown, hidden = hide(counts, seed)
    index = {name: each.index for name, each in hidden.items()}
    observed = cache(lambda n_zeros: observe(shown, "sampled", n_zeros, seed=seed, hidden=index))

    def predict(factors: Factors) -> dict[str, np.ndarray]:
        return {z: predict_cells(factors, modes, index[z]) for z, modes in coupling.tensors}

    def score(n_sweeps: int, rank: int, noise_precision: float, n_zeros: int) -> float:
        if bytes_to_fit(counts, "sampled", n_zeros, rank) > (available_bytes() or np.inf):
            return FAILED
        known = jax_stream(seed, Stage.TUNING), observed(n_zeros), rows_of_factors(coupling, counts), coupling
        how = {"n_sweeps": n_sweeps, "keep": keep_every(1, n_sweeps // 2), "kept_of": predict}
        try:
            draws = run_gibbs(*known, GibbsSettings(rank, noise_precision), **how).draws
        except NumericalError:
            return FAILED
        return log_score({name: draw[0] for name, draw in draws.items()}, hidden, counts, noise_precision)

    return score
