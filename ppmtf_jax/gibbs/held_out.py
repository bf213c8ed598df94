"""Held-out cells of the count tensors, and the error with which a chain predicts them."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.data.tensors import CountTensors, sample_zeros
from ppmtf_jax.data.traces import counts_per_user
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.gibbs.kernel import Coupling, Factors
from ppmtf_jax.gibbs.quantities import Quantity
from ppmtf_jax.streams import Stage, numpy_stream

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


def hold_out(counts: CountTensors, share: float, *, seed: int) -> tuple[CountTensors, dict[str, HeldOut]]:
    """Hold out a random share of the positive cells of each tensor, and as many zero cells of each user.

    At least one positive cell of each tensor is held out. If a user has too few zero cells, all of them are held out.

    Returns `shown`: the counts without the held-out positive cells. Pass the held-out indices to `observe` as `hidden`,
    so that it does not draw these cells as zeros. Returns `hidden`: the held-out cells of each tensor, positive cells
    first. Raises `InputError`: a tensor has no positive cell.
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


def predict_cells(
    factors: tuple[Float[np.ndarray, "chain draw _ rank"], ...], index: Int[np.ndarray, "cell 3"]
) -> Float[np.ndarray, "chain draw cell"]:
    """Predicted counts of the cells for every draw, from the factors."""
    first, second, third = (factor[..., rows, :] for factor, rows in zip(factors, index.T, strict=True))
    return np.einsum("cdnz,cdnz,cdnz->cdn", first, second, third)


class HeldOutPredictions:
    """Predictions of the held-out cells after each sweep of one chain; call `of_draw` in the order of sweeps.

    Parameters
    ----------
    kept_cells : dict of int arrays
        The held-out cells of each tensor whose predictions are kept.
    burn_in : int
        Number of first sweeps that the average prediction excludes.
    """

    def __init__(
        self, coupling: Coupling, hidden: dict[str, HeldOut], kept_cells: dict[str, np.ndarray], burn_in: int
    ) -> None:
        self.coupling, self.hidden, self.kept_cells, self.burn_in = coupling, hidden, kept_cells, burn_in
        self.n_sweeps = 0
        self.total: dict[str, np.ndarray] = {}

    def of_draw(self, factors: Factors) -> dict[str, np.ndarray]:
        """Error of this draw, error of the average prediction so far, and the predictions of the kept cells."""
        self.n_sweeps += 1
        found = {}
        for tensor, modes in self.coupling.tensors:
            index, value = self.hidden[tensor]
            predicted = predict_cells(tuple(np.asarray(factors[name])[:, None] for name in modes), index)[:, 0]
            average = np.full(predicted.shape, np.nan)
            if self.n_sweeps > self.burn_in:
                self.total[tensor] = self.total.get(tensor, 0.0) + predicted.astype(np.float64)
                average = self.total[tensor] / (self.n_sweeps - self.burn_in)
            found |= {
                f"held_out {tensor}": _root_mean_square(predicted - value),
                f"held_out_average {tensor}": _root_mean_square(average - value),
                f"cells {tensor}": predicted[:, self.kept_cells[tensor]],
            }
        return found

    def trace(self, draws: dict[str, np.ndarray]) -> dict[Quantity, np.ndarray]:
        """Results of `of_draw` for all sweeps as quantities, shapes (chains, sweeps)."""
        trace = {}
        for tensor, numbers in self.kept_cells.items():
            trace |= {Quantity(kind, tensor): draws[f"{kind} {tensor}"] for kind in HELD_OUT_ERRORS}
            cells = draws[f"cells {tensor}"]
            trace |= {Quantity("cell", tensor, n): cells[..., column] for column, n in enumerate(numbers.tolist())}
        return trace


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
