"""Has the sampler run long enough? Convergence of what does not depend on the order of the columns.

Columns of the factors may be permuted and their signs exchanged without changing the model, so entries of a factor say
nothing about convergence. Watched are the log joint density, the reconstruction errors, the factors' mean squares, and
predicted cells, observed and held out. Rank-normalized R-hat and effective sample sizes come from ArviZ (Vehtari et al.
2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import numpy as np
import pandas as pd

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.gibbs.cells import observe
from ppmtf_jax.gibbs.kernel import Coupling, GibbsSettings, rows_of_factors
from ppmtf_jax.gibbs.run import KeepEvery, run_gibbs
from ppmtf_jax.tensors import CountTensors, SparseCounts, sample_zeros

# Thresholds of Vehtari et al. 2021.
MAX_R_HAT = 1.01
MIN_ESS_PER_CHAIN = 100
# Cells that are predicted at every draw: enough for an average, few enough to keep.
N_PREDICTED = 50
# A held-out error that still falls by more than this share in the second half has not settled.
SETTLED = 0.02


class HeldOut(NamedTuple):
    """Cells that the sampler does not see.

    Attributes
    ----------
    index : int32 array, shape (cells, 3)
        User, place, other.
    value : float array, shape (cells,)
    """

    index: np.ndarray
    value: np.ndarray


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """How several chains of a sampler agree.

    Parameters
    ----------
    table : DataFrame
        For each watched quantity: mean, sd, r_hat, ess_bulk, ess_tail over the second half of the sweeps.
    trace : dict of float arrays, shape (chains, sweeps)
        The quantities after each sweep; held-out root mean square errors among them: of the single draw, and of the
        average of all predictions so far (from the middle of the run on).
    n_sweeps : int
    advice : list of str
        What to do, in words; says so when nothing is to be done.
    """

    table: pd.DataFrame
    trace: dict[str, np.ndarray]
    n_sweeps: int
    advice: list[str]


def diagnose(
    counts: CountTensors,
    coupling: Coupling,
    settings: GibbsSettings,
    *,
    zeros: Literal["sampled", "weighted"] = "sampled",
    n_zeros: int = 1000,
    n_sweeps: int = 100,
    n_chains: int = 4,
    held_out: float = 0.05,
    seed: int = 0,
    progress: bool = False,
) -> Diagnosis:
    """Run several chains on most of the cells and see whether they agree, and predict the rest.

    Parameters
    ----------
    counts : CountTensors
        Trimmed as for training.
    coupling, settings, zeros, n_zeros : as for training
    n_chains : int
        At least 2; R-hat compares them.
    held_out : float
        Share of the positive cells that is not shown to the sampler.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> from ppmtf_jax.gibbs.kernel import SHARED
    >>> from ppmtf_jax.tensors import count_tensors
    >>> counts = count_tensors(toy_city(n_users=20, n_places=20, seed=0).traces)
    >>> diagnosis = diagnose(counts, SHARED, GibbsSettings(rank=2), zeros="weighted", n_sweeps=20, n_chains=2)
    >>> diagnosis.trace["log_joint"].shape
    (2, 20)
    """
    if n_chains < 2 or n_sweeps < 20 or not 0 < held_out < 1:
        found = f"{n_chains} chains, {n_sweeps} sweeps, {held_out} held out"
        raise InputError("diagnose", [Problem("at least 2 chains and 20 sweeps, a held-out share in (0, 1)", found)])
    shown, hidden = hold_out(counts, held_out, seed=seed)
    result = run_gibbs(
        jax.random.key(seed),
        observe(shown, zeros, n_zeros, seed=seed),
        rows_of_factors(coupling, shown),
        coupling,
        settings,
        n_sweeps=n_sweeps,
        n_chains=n_chains,
        keep=KeepEvery(1),
        progress=progress,
    )
    trace = dict(result.trace)
    half = n_sweeps // 2
    for tensor, modes in coupling.tensors:
        predicted = predict_cells(tuple(result.draws[name] for name in modes), hidden[tensor].index)
        trace |= _held_out_errors(tensor, predicted, hidden[tensor].value, half)
        for number in np.random.default_rng(seed).permutation(predicted.shape[-1])[:N_PREDICTED]:
            trace[f"cell_{tensor}_{number}"] = predicted[..., number]
    watched = {name: values for name, values in trace.items() if not name.startswith("held_out")}
    table = summarize({name: values[:, half:] for name, values in watched.items()})
    return Diagnosis(table, trace, n_sweeps, _advice(table, trace, n_sweeps, n_chains))


def summarize(trace: dict[str, np.ndarray]) -> pd.DataFrame:
    """Mean, sd, rank-normalized R-hat, bulk and tail effective sample size of each quantity, shapes (chains, draws)."""
    import arviz

    data = arviz.convert_to_dataset({name: np.asarray(values, np.float64) for name, values in trace.items()})
    columns = {"r_hat": arviz.rhat(data), "ess_bulk": arviz.ess(data), "ess_tail": arviz.ess(data, method="tail")}
    table = pd.DataFrame({name: {key: float(values[key]) for key in trace} for name, values in columns.items()})
    table.insert(0, "mean", pd.Series({name: float(np.mean(values)) for name, values in trace.items()}))
    table.insert(1, "sd", pd.Series({name: float(np.std(values)) for name, values in trace.items()}))
    return table


def hold_out(counts: CountTensors, share: float, *, seed: int) -> tuple[CountTensors, dict[str, HeldOut]]:
    """Hide a random share of the positive cells of each tensor, and as many zero cells.

    A hidden positive cell counts as a zero to the sampler that observes all zeros; with sampled zeros it is missing,
    but for the small chance that it is drawn as a zero.
    """
    shown, hidden = {}, {}
    for number, (name, tensor) in enumerate(counts._asdict().items()):
        rng = np.random.default_rng((seed, number))
        hide = rng.random(len(tensor.user)) < share
        hide[rng.integers(len(hide))] = True
        index = np.stack([tensor.user, tensor.place, tensor.other], axis=1)
        left = ~hide
        shown[name] = SparseCounts(
            tensor.user[left], tensor.place[left], tensor.other[left], tensor.count[left], tensor.shape
        )
        # One zero cell of each user is drawn, and as many of them are used as positive cells are hidden.
        zeros = rng.permutation(sample_zeros(tensor, 1, seed=(seed, number)))[: hide.sum()]
        value = np.concatenate([tensor.count[hide], np.zeros(len(zeros))])
        hidden[name] = HeldOut(np.concatenate([index[hide], zeros]), value)
    return CountTensors(**shown), hidden


def predict_cells(factors: tuple[np.ndarray, np.ndarray, np.ndarray], index: np.ndarray) -> np.ndarray:
    """Reconstructed cells of every draw.

    Parameters
    ----------
    factors : three arrays, shapes (chains, draws, rows, rank)
    index : int array, shape (cells, 3)

    Returns
    -------
    float array, shape (chains, draws, cells)
    """
    first, second, third = (factor[..., rows, :] for factor, rows in zip(factors, index.T, strict=True))
    return np.einsum("cdnz,cdnz,cdnz->cdn", first, second, third)


def _held_out_errors(tensor: str, predicted: np.ndarray, value: np.ndarray, half: int) -> dict[str, np.ndarray]:
    single = np.sqrt(np.mean((predicted - value) ** 2, axis=-1))
    average = np.full(single.shape, np.nan)
    n_averaged = np.arange(1, predicted.shape[1] - half + 1)[:, None]
    running = np.cumsum(predicted[:, half:], axis=1) / n_averaged
    average[:, half:] = np.sqrt(np.mean((running - value) ** 2, axis=-1))
    return {f"held_out_{tensor}": single, f"held_out_average_{tensor}": average}


def _advice(table: pd.DataFrame, trace: dict[str, np.ndarray], n_sweeps: int, n_chains: int) -> list[str]:
    advice = []
    r_hat = table["r_hat"]
    if r_hat.max() > MAX_R_HAT:
        n_bad = int((r_hat > MAX_R_HAT).sum())
        advice.append(
            f"The chains have not met: R-hat is {r_hat.max():.2f} for {r_hat.idxmax()} and above {MAX_R_HAT} for "
            f"{n_bad} of {len(table)} quantities after {n_sweeps} sweeps. Try n_sweeps={4 * n_sweeps}. If they stay "
            "apart, each chain is in a mode of its own: one draw is then a model, but not a draw of the posterior."
        )
    few = table["ess_bulk"] < MIN_ESS_PER_CHAIN * n_chains
    if few.any():
        advice.append(
            f"{int(few.sum())} of {len(table)} quantities have fewer than {MIN_ESS_PER_CHAIN * n_chains} effective "
            "draws: do not report posterior means or intervals of them."
        )
    return advice + [
        _held_out_advice(name.removeprefix("held_out_"), trace[name]) for name in trace if _is_single(name)
    ]


def _is_single(name: str) -> bool:
    return name.startswith("held_out_") and not name.startswith("held_out_average_")


def _held_out_advice(tensor: str, error: np.ndarray) -> str:
    """What the held-out error of single draws says, shape (chains, sweeps)."""
    mean = error.mean(axis=0)
    _, second, _, last = (quarter.mean() for quarter in np.array_split(mean, 4))
    best = int(mean.argmin()) + 1
    if last < second * (1 - SETTLED):
        return f"Held-out error of the {tensor} still falls ({second:.3g} to {last:.3g}): run more sweeps."
    if last > mean.min() * (1 + SETTLED):
        return (
            f"Held-out error of the {tensor} rose from {mean.min():.3g} after sweep {best} to {last:.3g}: the model "
            "fits the shown counts more closely than it can know. A lower noise_precision predicts better."
        )
    return f"Held-out error of the {tensor} has settled at {last:.3g}: more sweeps do not help."
