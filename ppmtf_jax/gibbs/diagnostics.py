"""Has the sampler run long enough? Convergence of what does not depend on the order of the columns.

Columns of the factors may be permuted and their signs exchanged without changing the model, so entries of a factor say
nothing about convergence. Watched are the log joint density, the reconstruction errors, the factors' mean squares, and
predicted cells, observed and held out. Rank-normalized R-hat and effective sample sizes come from ArviZ (Vehtari et al.
2021).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from ppmtf_jax.data.tensors import CountTensors, SparseCounts, sample_zeros
from ppmtf_jax.data.traces import counts_per_user
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.gibbs.cells import observe
from ppmtf_jax.gibbs.kernel import Coupling, Factors, GibbsSettings, rows_of_factors
from ppmtf_jax.gibbs.memory import require_memory_to_fit
from ppmtf_jax.gibbs.quantities import Quantity
from ppmtf_jax.gibbs.run import KeepEvery, run_gibbs
from ppmtf_jax.streams import Stage, jax_stream, numpy_stream

# Of these a single number is reported and the chains are not compared.
HELD_OUT_ERRORS = ("held_out", "held_out_average")
MIN_CHAINS, MIN_SWEEPS = 2, 20
# Thresholds of Vehtari et al. 2021.
MAX_R_HAT = 1.01
MIN_ESS_PER_CHAIN = 100
# Cells that are predicted at every draw: enough for an average, few enough to keep.
N_PREDICTED = 50
# A held-out error that still falls by more than this share in the second half has not settled.
SETTLED = 0.02
# How many times the sweeps an estimate of the sweeps needed may go: beyond that it would be a guess.
MAX_EXTRAPOLATION = 10
# Twice the sweeps halve R-hat^2 - 1 of chains that mix; where they leave more than this of it, it hardly falls.
FALLS = 0.75
HELD_OUT_ZERO_STAGES = {
    "transitions": Stage.HELD_OUT_ZERO_TRANSITIONS,
    "visits": Stage.HELD_OUT_ZERO_VISITS,
}


class HeldOut(NamedTuple):
    """Cells whose counts the sampler does not see.

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
        For each watched quantity, by its short name: mean, sd, r_hat, ess_bulk, ess_tail over the second half of the
        sweeps.
    trace : dict of float arrays, shape (chains, sweeps)
        The quantities after each sweep; held-out root mean square errors among them: of the single draw, and of the
        average of all predictions so far (from the middle of the run on).
    n_sweeps : int
    advice : list of str
        What to do, in words; says so when nothing is to be done.
    held_out_note : str
        How many cells are held out, and what the sampler sees of them: a caption of `held_out`.
    """

    table: pd.DataFrame
    trace: dict[Quantity, np.ndarray]
    n_sweeps: int
    advice: list[str]
    held_out_note: str

    def overview(self) -> pd.DataFrame:
        """The table with one row for all predicted cells of a tensor: the greatest R-hat, the least sample sizes."""
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
        """Root mean square error at held-out cells of each tensor, over the chains' average.

        Columns: of single draws after a quarter, a half, three quarters and all of the sweeps (each the mean of the
        quarter before), the best sweep, and the error of the average of the second half's predictions.
        """
        rows = {each.of: self._held_out_row(each.of) for each in self.trace if each.kind == "held_out"}
        return pd.DataFrame.from_dict(rows, orient="index")

    def sweeps(self) -> pd.DataFrame:
        """What was watched after each sweep of each chain but the predicted cells, one row for each."""
        shown = {str(each): values.ravel() for each, values in self.trace.items() if each.kind != "cell"}
        chain, sweep = (1 + index.ravel() for index in np.indices(self.trace[Quantity("log_joint")].shape))
        return pd.DataFrame({"chain": chain, "sweep": sweep} | shown)

    def shown_traces(self) -> dict[str, np.ndarray]:
        """What a plot shows: the traces of all but the predicted cells by their titles, shapes (chains, sweeps)."""
        return {each.title: values for each, values in self.trace.items() if each.kind != "cell"}

    def _held_out_row(self, tensor: str) -> dict[str, float]:
        mean = self.trace[Quantity("held_out", tensor)].mean(axis=0)
        quarters = [float(quarter.mean()) for quarter in np.array_split(mean, 4)]
        average = self.trace[Quantity("held_out_average", tensor)]
        row = dict(zip(("first_quarter", "second_quarter", "third_quarter", "last_quarter"), quarters, strict=True))
        return row | {"best_sweep": int(mean.argmin()) + 1, "of_average": float(average[:, -1].mean())}


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
    """Run several chains on most of the cells and see whether they agree, and predict the rest.

    The chains run one after another. Held-out cells are predicted after each sweep, and no draw is kept.

    Parameters
    ----------
    counts : CountTensors
        Trimmed as for training.
    coupling, settings, zeros, n_zeros : as for training
    n_chains : int
        At least 2; R-hat compares them.
    held_out : float
        Share of the positive cells that is not shown to the sampler, see `hold_out`. With sampled zeros none of the
        held-out cells is observed. With weighted zeros every cell that is not shown is observed as a zero of its
        weight, those held out among them: the error at held-out zeros is then one at observed cells, and that at
        held-out positive cells is greater than if they were not observed. `Diagnosis.held_out_note` says so too.
    seed : int
        Of the chains, the zeros they observe, and what is held out and predicted.

    Raises
    ------
    InputError
        Too few chains or sweeps, no cell to hold out, or the memory would not suffice.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> from ppmtf_jax.gibbs.kernel import SHARED
    >>> from ppmtf_jax.data.tensors import count_tensors
    >>> counts = count_tensors(toy_city(n_users=20, n_places=20, seed=0).traces, seed=0)
    >>> settings = GibbsSettings(rank=2)
    >>> diagnosis = diagnose(counts, SHARED, settings, zeros="weighted", n_sweeps=20, n_chains=2, seed=0)
    >>> diagnosis.trace[Quantity("log_joint")].shape
    (2, 20)
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
    shown_cells = {
        tensor: numpy_stream(seed, Stage.PREDICTED, order).permutation(len(hidden[tensor].value))[:N_PREDICTED]
        for order, (tensor, _) in enumerate(coupling.tensors)
    }
    chains = []
    for number in range(n_chains):
        predictions = _Predictions(coupling, hidden, shown_cells, half)
        result = run_gibbs(
            jax_stream(seed, Stage.CHAINS, number),
            cells,
            n_rows,
            coupling,
            settings,
            n_sweeps=n_sweeps,
            keep=KeepEvery(1),
            kept_of=predictions.of_draw,
            progress=progress,
        )
        chains.append(result.trace | _predicted_trace(result.draws, shown_cells))
    trace = {quantity: np.concatenate([each[quantity] for each in chains]) for quantity in chains[0]}
    judged = {each: values[:, half:] for each, values in trace.items() if each.kind not in HELD_OUT_ERRORS}
    table = summarize(judged)
    return Diagnosis(table, trace, n_sweeps, advise(table, trace), _held_out_note(hidden, zeros))


def summarize(trace: Mapping[Quantity, np.ndarray]) -> pd.DataFrame:
    """Mean, sd, rank-normalized R-hat, bulk and tail effective sample size of each quantity, shapes (chains, draws).

    Rows have the quantities' short names.
    """
    with warnings.catch_warnings():
        # Once a day ArviZ tells whoever imports it of its next version.
        warnings.filterwarnings("ignore", r"\s*ArviZ is undergoing", FutureWarning)
        import arviz

    named = {str(quantity): np.asarray(values, np.float64) for quantity, values in trace.items()}
    data = arviz.convert_to_dataset(named)
    columns = {"r_hat": arviz.rhat(data), "ess_bulk": arviz.ess(data), "ess_tail": arviz.ess(data, method="tail")}
    table = pd.DataFrame({column: {name: float(values[name]) for name in named} for column, values in columns.items()})
    table.insert(0, "mean", pd.Series({name: float(np.mean(values)) for name, values in named.items()}))
    table.insert(1, "sd", pd.Series({name: float(np.std(values)) for name, values in named.items()}))
    return table


def hold_out(counts: CountTensors, share: float, *, seed: int) -> tuple[CountTensors, dict[str, HeldOut]]:
    """Hold out a random share of the positive cells of each tensor, and of each user as many of her zero cells.

    At least one positive cell of each tensor. A user who has fewer zero cells than held-out positive ones gives all her
    zero cells.

    Returns
    -------
    shown : CountTensors
        Without the held-out positive cells, which count as zeros there: give `observe` the indices as `hidden`, so that
        neither they nor the held-out zeros are drawn as zeros.
    hidden : dict of `HeldOut`
        Of each tensor; positive cells first.

    Raises
    ------
    InputError
        A tensor has no positive cell.
    """
    shown, hidden = {}, {}
    for order, (name, tensor) in enumerate(counts._asdict().items()):
        if not len(tensor.user):
            raise InputError(name, [Problem("at least one positive cell to hold out", "none")])
        rng = numpy_stream(seed, Stage.HELD_OUT, order)
        hide = rng.random(len(tensor.user)) < share
        hide[rng.integers(len(hide))] = True
        n_zeros = counts_per_user(tensor.user[hide], tensor.shape[0])
        zeros = sample_zeros(tensor, n_zeros, seed=seed, stage=HELD_OUT_ZERO_STAGES[name])
        shown[name] = tensor.select(~hide)
        value = np.concatenate([tensor.count[hide], np.zeros(len(zeros))])
        hidden[name] = HeldOut(np.concatenate([tensor.cell_index[hide], zeros]), value)
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


class ReconstructionErrors(NamedTuple):
    """Sums of absolute differences between a count tensor and its reconstruction, in counts.

    Attributes
    ----------
    observed : float
        Over the positive cells and the zeros that the sampler saw.
    unobserved : float
        Over all other cells, which are zeros too: estimated from a sample.
    """

    observed: float
    unobserved: float


def reconstruction_errors(
    factors: tuple[np.ndarray, np.ndarray, np.ndarray],
    counts: SparseCounts,
    zeros: np.ndarray,
    *,
    n_sampled: int = 1000,
    seed: int,
) -> ReconstructionErrors:
    """How far one draw's reconstruction is from the counts, Murakami et al. 2021, App. E (Fig. 14).

    The unobserved cells are too many to visit: `n_sampled` of each user are drawn, and their mean counts for all of the
    user's. A user with fewer has all of them visited.

    Parameters
    ----------
    factors : three arrays, shapes (users, rank), (places, rank), (others, rank)
    counts : SparseCounts
        As seen by the sampler, hence trimmed.
    zeros : int array, shape (zero cells, 3)
        The zeros that the sampler saw, from `sample_zeros`; each once.

    Examples
    --------
    One user, who was at the first of three places twice; one zero was observed and two cells are left:

    >>> one = np.array([0], np.int32)
    >>> counts = SparseCounts(one, one, one, np.array([2], np.int32), (1, 3, 1), np.array(["ann"]))
    >>> factors = (np.array([[1.0]]), np.array([[1.5], [0.25], [-1.0]]), np.array([[1.0]]))
    >>> reconstruction_errors(factors, counts, np.array([[0, 1, 0]]), seed=0)
    ReconstructionErrors(observed=0.75, unobserved=1.0)
    """
    index = np.concatenate([counts.cell_index, zeros]).astype(np.int32)
    value = np.concatenate([counts.count, np.zeros(len(zeros), np.int32)])
    sampled = sample_zeros(counts, n_sampled, seed=seed, stage=Stage.UNOBSERVED, hidden=zeros)
    n_unobserved = counts.cells_per_user - np.bincount(index[:, 0], minlength=counts.shape[0])
    n_visited = np.bincount(sampled[:, 0], minlength=counts.shape[0])
    weight = (n_unobserved / np.maximum(n_visited, 1))[sampled[:, 0]]
    observed = np.abs(value - _reconstruct(factors, index))
    unobserved = np.abs(_reconstruct(factors, sampled))
    return ReconstructionErrors(float(observed.sum()), float(weight @ unobserved))


def _reconstruct(factors: tuple[np.ndarray, np.ndarray, np.ndarray], index: np.ndarray) -> np.ndarray:
    """Cells of one draw, shape (cells,)."""
    draw = tuple(np.asarray(factor, np.float64)[None, None] for factor in factors)
    return predict_cells(draw, index)[0, 0]  # type: ignore[arg-type]


def advise(table: pd.DataFrame, trace: Mapping[Quantity, np.ndarray]) -> list[str]:
    """What the watched quantities say: whether the chains have met, for what their draws are enough, what to try.

    Parameters
    ----------
    table : DataFrame
        From `summarize`, of the second half of the sweeps.
    trace : mapping to float arrays, shape (chains, sweeps)
        Of all sweeps; held-out errors too, where there are any.
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
    """Up to two significant digits.

    Examples
    --------
    >>> round_up(101.0), round_up(7.0)
    (110, 7)
    """
    unit = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return math.ceil(number / unit) * unit


class _Predictions:
    """What a chain predicts of the held-out cells, looked at after each of its sweeps in turn."""

    def __init__(
        self, coupling: Coupling, hidden: dict[str, HeldOut], shown_cells: dict[str, np.ndarray], half: int
    ) -> None:
        self.coupling, self.hidden, self.shown_cells, self.half = coupling, hidden, shown_cells, half
        self.n_sweeps = 0
        self.total: dict[str, np.ndarray] = {}

    def of_draw(self, factors: Factors) -> dict[str, np.ndarray]:
        """Errors of the draw, and from the middle of the run on of the average prediction; some of the cells."""
        self.n_sweeps += 1
        found = {}
        for tensor, modes in self.coupling.tensors:
            index, value = self.hidden[tensor]
            predicted = predict_cells(tuple(np.asarray(factors[name])[:, None] for name in modes), index)[:, 0]
            found[_name("held_out", tensor)] = _root_mean_square(predicted - value)
            found[_name("cells", tensor)] = predicted[:, self.shown_cells[tensor]]
            average = np.full(predicted.shape, np.nan)
            if self.n_sweeps > self.half:
                self.total[tensor] = self.total.get(tensor, 0.0) + predicted.astype(np.float64)
                average = self.total[tensor] / (self.n_sweeps - self.half)
            found[_name("held_out_average", tensor)] = _root_mean_square(average - value)
        return found


def _predicted_trace(kept: dict[str, np.ndarray], shown_cells: dict[str, np.ndarray]) -> dict[Quantity, np.ndarray]:
    """What `_Predictions` found at all sweeps, as watched quantities of shape (chains, sweeps)."""
    trace = {}
    for tensor, numbers in shown_cells.items():
        for kind in HELD_OUT_ERRORS:
            trace[Quantity(kind, tensor)] = kept[_name(kind, tensor)]
        for column, number in enumerate(numbers.tolist()):
            trace[Quantity("cell", tensor, number)] = kept[_name("cells", tensor)][..., column]
    return trace


def _name(what: str, tensor: str) -> str:
    return f"{what} {tensor}"


def _root_mean_square(error: Float[np.ndarray, "chain cell"]) -> Float[np.ndarray, " chain"]:
    return np.sqrt(np.mean(error**2, axis=-1))


def _held_out_note(hidden: dict[str, HeldOut], zeros: Literal["sampled", "weighted"]) -> str:
    sizes = []
    for tensor, (_, value) in hidden.items():
        n_positive, n_zero = int(np.sum(value > 0)), int(np.sum(value == 0))
        enough = "" if n_zero == n_positive else " (users with fewer have no more)"
        sizes.append(f"{n_positive} positive and {n_zero} zero {tensor}{enough}")
    said = f"Held out: {', '.join(sizes)}. "
    if zeros == "sampled":
        return said + "The sampler observes none of these cells."
    return said + (
        "With weighted zeros the sampler observes every other cell as a zero of its weight, held-out ones among them: "
        "the zeros were not hidden from it, and of the positive cells only the counts were."
    )


def _apart(table: pd.DataFrame, trace: Mapping[Quantity, np.ndarray], n_sweeps: int, n_chains: int) -> str:
    """What to do about chains that have not met: how far they are, whether they come nearer, how many sweeps to try."""
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
    # The variance between the means of chains that mix falls as 1 / sweeps, and R-hat^2 - 1 with it; effective draws
    # grow with the sweeps.
    short_of_draws = MIN_ESS_PER_CHAIN * n_chains / table["ess_bulk"].min()
    factor = max(2.0, (r_hat.max() ** 2 - 1) / (MAX_R_HAT**2 - 1), short_of_draws)
    if factor <= MAX_EXTRAPOLATION:
        n_needed = round_up(factor * n_sweeps)
        return said + f"At this rate they meet after about {n_needed} sweeps: set n_sweeps={n_needed}."
    if r_hat.max() ** 2 - 1 < FALLS * (before**2 - 1):
        return said + f"They come nearer, too slowly to foretell when they meet: try n_sweeps={4 * n_sweeps}."
    return said + (
        "They hardly come nearer: they mix very slowly, or each is in a mode of its own. Try "
        f"n_sweeps={4 * n_sweeps} once; if they stay apart, one draw is a model whose worth the held-out error tells, "
        "but not a draw of the posterior."
    )


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
            "fits the shown counts more closely than it can know. Compare with a lower noise_precision."
        )
    return f"Held-out error of the {tensor} has settled at {last:.3g}: more sweeps do not lower it."
