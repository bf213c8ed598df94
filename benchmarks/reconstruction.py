"""Reconstruction errors of PPMTF and ITF, after App. E (Fig. 14) of Murakami et al. 2021.

    python benchmarks/reconstruction.py ../shared --csv benchmarks/reconstruction.csv

The script measures the l1 error of both count tensors, for the last of 100 draws at the published settings: over the
observed cells, and (estimated) over all other cells. If nothing is learned (all factors are zero), the error of the
observed cells is the sum of the counts, and the error of the other cells is zero.

Data: `nyc` has the check-ins in New York of TSMC2014; `nyc-friends` has a part of the data that the paper used, with
more users and fewer check-ins per user; `people-flow` has many transitions of every user.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd
from common import Clock, command_line, new_york, people_flow, record
from jax import Array

from ppmtf_jax.data.tensors import ZERO_STAGES, CountTensors, SparseCounts, count_tensors, sample_zeros
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checkins import read_checkins
from ppmtf_jax.datasets.discretization import Discretization
from ppmtf_jax.gibbs import kernel
from ppmtf_jax.gibbs.cells import observe
from ppmtf_jax.gibbs.conditionals import HyperPrior, NormalWishart, hyper_conditional
from ppmtf_jax.gibbs.kernel import SHARED, GibbsSettings, rows_of_factors
from ppmtf_jax.gibbs.quantities import Quantity
from ppmtf_jax.gibbs.run import run_gibbs
from ppmtf_jax.streams import Stage, jax_stream
from ppmtf_jax.synthesizers.itf import UNSHARED

COUPLINGS = {"PPMTF": SHARED, "ITF": UNSHARED}
N_ZEROS, N_SWEEPS = 1000, 100


@dataclass(frozen=True)
class Errors:
    """One fit of one system, and one tensor of it."""

    data: str
    share_of_transitions: float
    scatter: str
    system: str
    noise_precision: float
    seed: int
    tensor: str
    observed: float
    unobserved: float
    sum_of_counts: int
    cells_observed: int
    cells_unobserved: int
    cpu_seconds_fit: float


def main() -> None:
    parser = command_line(__doc__, shared=True)
    parser.add_argument("--data", choices=DATA, default="nyc")
    parser.add_argument("--precisions", type=float, nargs="+", default=[200.0], help="noise precisions alpha")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--as-printed", action="store_true", help="the uncentred scatter of eqs. (25) and (28)")
    parser.add_argument("--share", type=float, default=1.0, help="share of the positive transition cells to keep")
    arguments = parser.parse_args()
    if arguments.as_printed:
        kernel.hyper_conditional = uncentred
    about = (arguments.data, arguments.share, "as printed" if arguments.as_printed else "centred")
    train = DATA[arguments.data](arguments.shared)
    for precision in arguments.precisions:
        for seed in arguments.seeds:
            counts = thinned(count_tensors(train, seed=seed), arguments.share, seed)
            for system in COUPLINGS:
                found = (asdict(Errors(*about, *each)) for each in errors(system, counts, precision, seed))
                record(found, arguments.csv, append=True)


def nyc(shared: Path) -> Traces:
    return new_york(shared).split_users(0.8, 0)[0]


def nyc_friends(shared: Path) -> Traces:
    """Local hours are known, minutes are not; venues without coordinates are left out."""
    table = pd.read_csv(shared / "data" / "foursquare-www2019-lbsn2vec" / "nyc_checkins.csv.gz").dropna(subset="lat")
    names = {"user": "user", "time": "local_time_hour", "latitude": "lat", "longitude": "lon", "place": "venue_id"}
    table["local_time_hour"] += ":00:00"
    every_place = Discretization(min_users_per_place=1)
    traces, _ = read_checkins(table, names, time_zone="America/New_York", discretization=every_place)
    return traces.split_users(0.8, 0)[0]


DATA = {"nyc": nyc, "nyc-friends": nyc_friends, "people-flow": lambda shared: people_flow(shared)[0]}


def thinned(counts: CountTensors, share: float, seed: int) -> CountTensors:
    """Keep a random part of the transitions; cells that are left out count as zeros."""
    own = counts.transitions
    keep = np.random.default_rng((seed, 7)).random(len(own.user)) < share
    return counts._replace(transitions=own.select(keep))


def uncentred(factor: Array, hyper: HyperPrior) -> NormalWishart:
    good, centre = hyper_conditional(factor, hyper), factor.mean(axis=0)
    return good._replace(inverse_scale_matrix=good.inverse_scale_matrix + factor.shape[0] * jnp.outer(centre, centre))


def errors(system: str, counts: CountTensors, noise_precision: float, seed: int) -> Iterator[tuple]:
    """Fit one system and measure the reconstruction of both tensors."""
    coupling = COUPLINGS[system]
    clock = Clock()
    cells = observe(counts, "sampled", N_ZEROS, seed=seed)
    result = run_gibbs(
        jax_stream(seed, Stage.FIT),
        cells,
        rows_of_factors(coupling, counts),
        coupling,
        GibbsSettings(noise_precision=noise_precision),
        n_sweeps=N_SWEEPS,
    )
    seconds = clock.both()[1]
    for tensor, modes in coupling.tensors:
        own = counts._asdict()[tensor]
        zeros = sample_zeros(own, N_ZEROS, seed=seed, stage=ZERO_STAGES[tensor])
        factors = tuple(result.draws[name][0, -1] for name in modes)
        check_zeros(factors, own, zeros, float(result.trace[Quantity("rmse", tensor)][0, -1]))
        found = reconstruction_errors(factors, own, zeros, seed=seed)
        n_observed = len(own.user) + len(zeros)
        n_left = int(np.prod(own.shape, dtype=np.int64)) - n_observed
        yield (
            system,
            noise_precision,
            seed,
            tensor,
            *found,
            int(own.count.sum()),
            n_observed,
            n_left,
            round(seconds, 1),
        )


def reconstruct(factors: tuple[np.ndarray, np.ndarray, np.ndarray], index: np.ndarray) -> np.ndarray:
    first, second, third = (np.asarray(factor, np.float64)[rows] for factor, rows in zip(factors, index.T, strict=True))
    return (first * second * third).sum(axis=1)


def reconstruction_errors(factors, counts: SparseCounts, zeros: np.ndarray, seed: int) -> tuple[float, float]:
    """Sums of absolute differences, in counts: observed cells; all others, from 1,000 of each user."""
    index = np.concatenate([counts.cell_index, zeros]).astype(np.int32)
    value = np.concatenate([counts.count, np.zeros(len(zeros), np.int32)])
    sampled = sample_zeros(counts, 1000, seed=seed, stage=Stage.UNOBSERVED, hidden=zeros)
    n_unobserved = counts.cells_per_user - np.bincount(index[:, 0], minlength=counts.shape[0])
    n_visited = np.bincount(sampled[:, 0], minlength=counts.shape[0])
    weight = (n_unobserved / np.maximum(n_visited, 1))[sampled[:, 0]]
    observed = np.abs(value - reconstruct(factors, index)).sum()
    return float(observed), float(weight @ np.abs(reconstruct(factors, sampled)))


def check_zeros(factors, counts, zeros, rmse) -> None:
    """Check that the zeros are those that the sampler saw: its own error of the observed cells must agree."""
    index = np.concatenate([np.stack(counts[:3], axis=1), zeros])
    value = np.concatenate([counts.count, np.zeros(len(zeros))])
    ours = np.sqrt(np.mean((value - reconstruct(factors, index)) ** 2))
    assert abs(ours - rmse) < 1e-3 * rmse, f"root mean square error {ours}, but the sampler says {rmse}"


if __name__ == "__main__":
    main()
