"""Convergence of the sampler: compare several chains on quantities that do not depend on the column order.

Permuting the columns of the factors, or changing their signs, does not change the model, so single entries of a factor
say nothing about convergence. The chains are compared on the log joint density, the reconstruction errors, the mean
squares of the factors, and predicted held-out cells. Rank-normalized R-hat and effective sample sizes come from ArviZ
(Vehtari et al. 2021).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Int

from ppmtf_jax.data.events import counts_per_user
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.gibbs.cells import observe
from ppmtf_jax.gibbs.kernel import Coupling, Factors, GibbsSettings, rows_of_factors
from ppmtf_jax.gibbs.memory import require_memory_to_fit
from ppmtf_jax.gibbs.run import Quantity, keep_every, run_gibbs
from ppmtf_jax.gibbs.tensors import CountTensors, sample_zeros
from ppmtf_jax.streams import Stage, jax_stream, numpy_stream

# These errors are only reported as numbers; R-hat is not computed for them.
HELD_OUT_ERRORS = ("held_out", "held_out_average")
# Number of cells of each tensor whose prediction is kept for every draw: enough to compare chains, few enough for
# memory.
N_PREDICTED = 50
HELD_OUT_ZERO_STAGES = {"transitions": Stage.HELD_OUT_ZERO_TRANSITIONS, "visits": Stage.HELD_OUT_ZERO_VISITS}


class HeldOut(NamedTuple):
    """Cells whose counts the sampler does not see: indices (user, place, other) and counts."""

    index: Int[np.ndarray, "cell 3"]
    value: Float[np.ndarray, " cell"]


def hold_out(
    counts: CountTensors, share: float, *, seed: int, n_zeros: int | None = None
) -> tuple[CountTensors, dict[str, HeldOut]]:
    """Hold out a random share of the positive cells of each tensor, and as many zero cells of each user.

    With `n_zeros`, so many zero cells of each user are held out, but no larger share of the cells than of the positive
    ones. At least one positive cell of each tensor is held out. If a user has too few zero cells, all of them are.
    Returns the counts without the held-out positive cells, and the held-out cells of each tensor, positive ones first;
    `observe` takes their indices as `hidden`. Raises `InputError`: without `n_zeros`, a tensor has no positive cell.
    """
    shown, hidden = {}, {}
    for order, (name, tensor) in enumerate(counts._asdict().items()):
        if n_zeros is None and not len(tensor.user):
            raise InputError(name, [Problem("at least one positive cell to hold out", "none")])
        rng = numpy_stream(seed, Stage.HELD_OUT, order)
        hide = rng.random(len(tensor.user)) < share
        if len(hide):
            hide[rng.integers(len(hide))] = True
        wanted = counts_per_user(tensor.user[hide], tensor.shape[0])
        if n_zeros is not None:
            wanted = max(1, min(n_zeros, int(share * tensor.cells_per_user)))
        zeros = sample_zeros(tensor, wanted, seed=seed, stage=HELD_OUT_ZERO_STAGES[name])
        shown[name] = tensor.select(~hide)
        value = np.concatenate([tensor.count[hide], np.zeros(len(zeros))])
        hidden[name] = HeldOut(np.concatenate([tensor.cell_index[hide], zeros]), value)
    return CountTensors(**shown), hidden


def predict_cells(
    factors: Mapping[str, Array | np.ndarray], modes: tuple[str, str, str], index: Int[np.ndarray, "cell 3"]
) -> Float[np.ndarray, "chain cell"]:
    """Predicted counts of the cells of a tensor of these modes, from factors of shapes (chain, rows, rank)."""
    first, second, third = (np.asarray(factors[z])[:, rows] for z, rows in zip(modes, index.T, strict=True))
    return np.einsum("cnz,cnz,cnz->cn", first, second, third)


def held_out_predictions(
    coupling: Coupling, hidden: dict[str, HeldOut], kept_cells: dict[str, np.ndarray], burn_in: int
) -> Callable[[Factors], dict[Quantity, np.ndarray]]:
    """What to keep of each draw, in the order of sweeps: errors of it and of the average so far, and some predictions.

    `kept_cells`: the held-out cells of each tensor whose predictions are kept. `burn_in`: number of first sweeps that
    the average prediction excludes.
    """
    sweeps, total = count(1), dict.fromkeys(hidden, 0.0)

    def of_draw(factors: Factors) -> dict[Quantity, np.ndarray]:
        found, n_averaged = {}, next(sweeps) - burn_in
        for tensor, modes in coupling.tensors:
            index, value = hidden[tensor]
            predicted = predict_cells(factors, modes, index)
            average = np.full(predicted.shape, np.nan)
            if n_averaged > 0:
                total[tensor] = total[tensor] + predicted.astype(np.float64)
                average = total[tensor] / n_averaged
            found[Quantity("held_out", tensor)] = _root_mean_square(predicted - value)
            found[Quantity("held_out_average", tensor)] = _root_mean_square(average - value)
            found |= {Quantity("cell", tensor, n): predicted[:, n] for n in kept_cells[tensor].tolist()}
        return found

    return of_draw


def _root_mean_square(error: Float[np.ndarray, "chain cell"]) -> Float[np.ndarray, " chain"]:
    return np.sqrt(np.mean(error**2, axis=-1))


def held_out_note(hidden: dict[str, HeldOut], zeros: Literal["sampled", "weighted"]) -> str:
    """Text: numbers of held-out cells, and what the sampler knows about these cells."""
    sizes = []
    for tensor, (_, value) in hidden.items():
        n_positive, n_zero = int(np.sum(value > 0)), int(np.sum(value == 0))
        enough = "" if n_zero == n_positive else " (users with fewer have no more)"
        sizes.append(f"{n_positive} positive and {n_zero} zero {tensor}{enough}")
    said = f"Held out: {', '.join(sizes)}. "
    if zeros == "sampled":
        return said + "The sampler observes none of these cells."
    return said + (
        "With weighted zeros the sampler observes every cell that is not shown as a zero with a weight, and so also "
        "the held-out cells: the zeros were not hidden from it, and only the counts of the positive cells were."
    )


MIN_CHAINS, MIN_SWEEPS = 2, 20
# Thresholds of Vehtari et al. 2021.
MAX_R_HAT = 1.01
MIN_ESS_PER_CHAIN = 100
# A held-out error that falls by more than this share from the second to the last quarter of the sweeps is not settled.
SETTLED = 0.02
# The number of needed sweeps is only estimated up to this multiple of the sweeps done; more would be a guess.
MAX_EXTRAPOLATION = 10
# If chains mix, twice the sweeps halve R-hat^2 - 1. If more than this share remains, the chains hardly approach.
FALLS = 0.75


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """How well several chains of a sampler agree.

    Parameters
    ----------
    table : DataFrame
        A row per quantity, by its short name: mean, sd, r_hat, ess_bulk, ess_tail over the second half of the sweeps.
    trace : dict of float arrays, shape (chains, sweeps)
        The quantities after each sweep. They include the held-out root mean square error of each single draw, and that
        of the average of all predictions so far (from the middle of the run on).
    advice : list of str
        Recommendations in words; also says so if nothing needs to be done.
    held_out_note : str
        Numbers of held-out cells, and what the sampler knows about these cells: the caption of `held_out`.
    """

    table: pd.DataFrame
    trace: dict[Quantity, np.ndarray]
    n_sweeps: int
    advice: list[str]
    held_out_note: str

    def overview(self) -> pd.DataFrame:
        """The table with all predicted cells of a tensor in one row: largest R-hat, smallest effective sample sizes."""
        summarized = [quantity for quantity in self.trace if str(quantity) in self.table.index]
        cells = [quantity for quantity in summarized if quantity.kind == "cell"]
        rows = {each.title: self.table.loc[str(each)] for each in summarized if each.kind != "cell"}
        for tensor in dict.fromkeys(cell.of for cell in cells):
            own = self.table.loc[[str(cell) for cell in cells if cell.of == tensor]]
            worst = pd.Series({"mean": np.nan, "sd": np.nan, "r_hat": own["r_hat"].max()})
            least = own[["ess_bulk", "ess_tail"]].min()
            rows[f"{len(own)} predicted {tensor}, worst"] = pd.concat([worst, least])
        return pd.DataFrame(rows).T

    def held_out(self) -> pd.DataFrame:
        """Root mean square error at the held-out cells of each tensor, averaged over the chains.

        Columns: error of single draws, averaged over each quarter of the sweeps; the best sweep; error of the average
        prediction of the second half.
        """
        rows = {}
        for tensor in (each.of for each in self.trace if each.kind == "held_out"):
            mean = self.trace[Quantity("held_out", tensor)].mean(axis=0)
            average = self.trace[Quantity("held_out_average", tensor)]
            quarters = [float(quarter.mean()) for quarter in np.array_split(mean, 4)]
            rows[tensor] = [*quarters, int(mean.argmin()) + 1, float(average[:, -1].mean())]
        columns = ["first_quarter", "second_quarter", "third_quarter", "last_quarter", "best_sweep", "of_average"]
        return pd.DataFrame.from_dict(rows, orient="index", columns=columns)

    def sweeps(self) -> pd.DataFrame:
        """All quantities except predicted cells, one row per chain and sweep."""
        shown = {str(each): values.ravel() for each, values in self.trace.items() if each.kind != "cell"}
        chain, sweep = (1 + index.ravel() for index in np.indices(self.trace[Quantity("log_joint")].shape))
        return pd.DataFrame({"chain": chain, "sweep": sweep} | shown)


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
    seed: int,
    progress: bool = False,
) -> Diagnosis:
    """Run several chains on most of the cells, compare the chains, and predict the held-out cells.

    The chains, at least 2, run one after another. The held-out cells are predicted after each sweep; draws are not
    kept. `counts` are trimmed as for training. `held_out`: share of the positive cells that the sampler does not see,
    see `hold_out`, and `Diagnosis.held_out_note` for what weighted zeros show of them. `seed`: of the chains, their
    observed zeros, and the held-out and predicted cells. Raises `InputError`: too few chains or sweeps, no cell to hold
    out, or too little memory.
    """
    problems = []
    if n_chains < MIN_CHAINS:
        problems.append(Problem(f"at least {MIN_CHAINS} chains", f"{n_chains}"))
    if n_sweeps < MIN_SWEEPS:
        way_out = "Ask for more with n_sweeps (--sweeps) than the model was fitted with"
        problems.append(Problem(f"at least {MIN_SWEEPS} sweeps", f"{n_sweeps}", way_out=way_out))
    if not 0 < held_out < 1:
        problems.append(Problem("a held-out share between 0 and 1", repr(held_out)))
    if problems:
        raise InputError("diagnose", problems)
    require_memory_to_fit(counts, zeros, n_zeros, settings.rank)
    shown, hidden = hold_out(counts, held_out, seed=seed)
    hidden_cells = {tensor: each.index for tensor, each in hidden.items()}
    cells = observe(shown, zeros, n_zeros, seed=seed, hidden=hidden_cells)
    n_rows = rows_of_factors(coupling, shown)
    half = n_sweeps // 2
    kept_cells = {
        tensor: numpy_stream(seed, Stage.PREDICTED, order).permutation(len(hidden[tensor].value))[:N_PREDICTED]
        for order, (tensor, _) in enumerate(coupling.tensors)
    }
    chains = []
    for number in range(n_chains):
        result = run_gibbs(
            jax_stream(seed, Stage.CHAINS, number),
            cells,
            n_rows,
            coupling,
            settings,
            n_sweeps=n_sweeps,
            keep=keep_every(1),
            kept_of=held_out_predictions(coupling, hidden, kept_cells, half),
            progress=progress,
        )
        chains.append(result.trace | result.draws)
    trace = {quantity: np.concatenate([each[quantity] for each in chains]) for quantity in chains[0]}
    judged = {each: values[:, half:] for each, values in trace.items() if each.kind not in HELD_OUT_ERRORS}
    table = summarize(judged)
    return Diagnosis(table, trace, n_sweeps, advise(table, trace), held_out_note(hidden, zeros))


def summarize(trace: Mapping[Quantity, np.ndarray]) -> pd.DataFrame:
    """Mean, sd, rank-normalized R-hat, and bulk and tail effective sample size of each quantity (chains, draws)."""
    with warnings.catch_warnings():
        # Once a day, ArviZ announces its next version on import.
        warnings.filterwarnings("ignore", r"\s*ArviZ is undergoing", FutureWarning)
        import arviz

    named = {str(quantity): np.asarray(values, np.float64) for quantity, values in trace.items()}
    data = arviz.convert_to_dataset(named)
    columns = {"r_hat": arviz.rhat(data), "ess_bulk": arviz.ess(data), "ess_tail": arviz.ess(data, method="tail")}
    table = pd.DataFrame({column: {name: float(values[name]) for name in named} for column, values in columns.items()})
    table.insert(0, "mean", pd.Series({name: float(np.mean(values)) for name, values in named.items()}))
    table.insert(1, "sd", pd.Series({name: float(np.std(values)) for name, values in named.items()}))
    return table


def advise(table: pd.DataFrame, trace: Mapping[Quantity, np.ndarray]) -> list[str]:
    """Report whether the chains have converged, how their draws may be used, and what to try.

    `table` is the result of `summarize` for the second half of the sweeps. `trace` has all sweeps, and held-out errors.
    """
    n_chains, n_sweeps = next(iter(trace.values())).shape
    least = MIN_ESS_PER_CHAIN * n_chains
    few = table["ess_bulk"] < least
    if table["r_hat"].max() > MAX_R_HAT:
        advice = [_apart(table, trace, n_sweeps, n_chains)]
    else:
        advice = [
            f"{n_sweeps} sweeps were enough for the chains to meet: R-hat is at most {MAX_R_HAT} for all {len(table)} "
            "quantities."
        ]
    if few.any():
        advice.append(
            f"{int(few.sum())} of {len(table)} quantities have fewer than {least} effective draws: do not report "
            "posterior means or intervals of them."
        )
    return advice + [_held_out_advice(each.of, values) for each, values in trace.items() if each.kind == "held_out"]


def round_up(number: float) -> int:
    """Round up to two significant digits: 101 to 110."""
    unit = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return math.ceil(number / unit) * unit


def _apart(table: pd.DataFrame, trace: Mapping[Quantity, np.ndarray], n_sweeps: int, n_chains: int) -> str:
    """For chains that have not converged: distance, whether they approach each other, number of sweeps to try."""
    r_hat = table["r_hat"]
    worst = next(quantity for quantity in trace if str(quantity) == r_hat.idxmax())
    half, quarter = n_sweeps // 2, n_sweeps // 4
    before = float(summarize({worst: trace[worst][:, quarter:half]})["r_hat"].iloc[0])
    cells = r_hat[[str(quantity) for quantity in trace if quantity.kind == "cell"]]
    of_cells = f", {cells.max():.2f} for the worst predicted cell" if len(cells) else ""
    said = (
        f"{n_sweeps} sweeps were not enough: the chains have not met. R-hat is {r_hat.max():.2f} for the "
        f"{worst.title} ({before:.2f} after half the sweeps){of_cells} and above {MAX_R_HAT} for "
        f"{int((r_hat > MAX_R_HAT).sum())} of {len(table)} quantities. "
    )
    # If chains mix, the variance between their means and R-hat^2 - 1 fall as 1 / sweeps. The number of effective draws
    # grows with the sweeps.
    short_of_draws = MIN_ESS_PER_CHAIN * n_chains / table["ess_bulk"].min()
    factor = max(2.0, (r_hat.max() ** 2 - 1) / (MAX_R_HAT**2 - 1), short_of_draws)
    if factor <= MAX_EXTRAPOLATION:
        n_needed = round_up(factor * n_sweeps)
        return said + f"At this rate they meet after about {n_needed} sweeps: set n_sweeps={n_needed}."
    if r_hat.max() ** 2 - 1 < FALLS * (before**2 - 1):
        return (
            said + f"They approach each other, but too slowly to predict when they meet: try n_sweeps={4 * n_sweeps}."
        )
    return said + (
        "They hardly approach each other: they mix very slowly, or each is in a mode of its own. Try "
        f"n_sweeps={4 * n_sweeps} once. If they stay apart, one draw is still a model, as good as its held-out error, "
        "but it is not a draw from the posterior."
    )


def _held_out_advice(tensor: str, error: np.ndarray) -> str:
    """Whether the held-out error of single draws, shape (chains, sweeps), still falls, rises or has settled."""
    mean = error.mean(axis=0)
    _, second, _, last = (quarter.mean() for quarter in np.array_split(mean, 4))
    best = int(mean.argmin()) + 1
    if last < second * (1 - SETTLED):
        return f"Held-out error of the {tensor} still falls ({second:.3g} to {last:.3g}): run more sweeps."
    if last > mean.min() * (1 + SETTLED):
        return (
            f"Held-out error of the {tensor} rose from {mean.min():.3g} after sweep {best} to {last:.3g}: the model "
            "overfits the shown counts. Compare with a lower noise_precision."
        )
    return f"Held-out error of the {tensor} has settled at {last:.3g}: more sweeps do not lower it."
