"""Reconstruction errors of PPMTF and ITF on check-ins in New York, after App. E (Fig. 14) of Murakami et al. 2021.

    python benchmarks/reconstruction.py ../shared --csv benchmarks/reconstruction.csv

The l1 error of both count tensors, over the observed cells and, estimated, over all others, of the last of 100 draws at
the published settings. Without anything learned (all factors zero) the error of the observed cells is the sum of the
counts, and that of the others zero.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import jax
import numpy as np

from ppmtf_jax.datasets.foursquare import read_foursquare
from ppmtf_jax.gibbs.cells import observe
from ppmtf_jax.gibbs.diagnostics import reconstruction_errors
from ppmtf_jax.gibbs.kernel import SHARED, GibbsSettings, rows_of_factors
from ppmtf_jax.gibbs.run import run_gibbs
from ppmtf_jax.synthesizers.itf import UNSHARED
from ppmtf_jax.tensors import CountTensors, count_tensors, sample_zeros

ROOT = Path(__file__).resolve().parents[1]
COUPLINGS = {"PPMTF": SHARED, "ITF": UNSHARED}
N_ZEROS, N_SWEEPS = 1000, 100


@dataclass(frozen=True)
class Row:
    """One fit of one system, and one tensor of it."""

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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path, nargs="?", default=ROOT.parent / "shared", help="folder of the data")
    parser.add_argument("--csv", type=Path, help="file for the figures")
    parser.add_argument("--precisions", type=float, nargs="+", default=[200.0], help="noise precisions alpha")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    traces, _ = read_foursquare(arguments.shared / "data" / "foursquare-tsmc2014-nyc")
    train, _ = traces.split_users(0.8, 0)
    rows = []
    for precision in arguments.precisions:
        for seed in arguments.seeds:
            counts = count_tensors(train, seed=seed)
            for system in COUPLINGS:
                for row in errors(system, counts, precision, seed):
                    rows.append(row)
                    print(
                        ",".join(
                            f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}"
                            for name, value in asdict(row).items()
                        ),
                        flush=True,
                    )
                    if arguments.csv:
                        write(arguments.csv, rows)


def errors(system: str, counts: CountTensors, noise_precision: float, seed: int) -> Iterator[Row]:
    """Fit one system and measure the reconstruction of both tensors."""
    coupling = COUPLINGS[system]
    begin = time.process_time()
    cells = observe(counts, "sampled", N_ZEROS, seed=seed)
    result = run_gibbs(
        jax.random.key(seed),
        cells,
        rows_of_factors(coupling, counts),
        coupling,
        GibbsSettings(noise_precision=noise_precision),
        n_sweeps=N_SWEEPS,
    )
    seconds = time.process_time() - begin
    for number, (tensor, modes) in enumerate(coupling.tensors, start=1):
        own = counts._asdict()[tensor]
        zeros = sample_zeros(own, N_ZEROS, seed=(seed, number))
        factors = tuple(result.draws[name][0, -1] for name in modes)
        check_zeros(factors, own, zeros, float(result.trace[f"rmse_{tensor}"][0, -1]))
        found = reconstruction_errors(factors, own, zeros, seed=seed)
        n_observed = len(own.user) + len(zeros)
        n_left = int(np.prod(own.shape, dtype=np.int64)) - n_observed
        yield Row(
            system, noise_precision, seed, tensor, *found, int(own.count.sum()), n_observed, n_left, round(seconds, 1)
        )


def check_zeros(factors, counts, zeros, rmse) -> None:
    """The zeros are those that the sampler saw: else its own error of the observed cells would be another."""
    index = np.concatenate([np.stack(counts[:3], axis=1), zeros])
    value = np.concatenate([counts.count, np.zeros(len(zeros))])
    rows = [np.asarray(factor, np.float64)[index[:, mode]] for mode, factor in enumerate(factors)]
    ours = np.sqrt(np.mean((value - (rows[0] * rows[1] * rows[2]).sum(axis=1)) ** 2))
    assert abs(ours - rmse) < 1e-3 * rmse, f"root mean square error {ours}, but the sampler says {rmse}"


def write(file: Path, rows: list[Row]) -> None:
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, asdict(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {name: f"{v:.6g}" if isinstance(v, float) else v for name, v in asdict(row).items()} for row in rows
        )


if __name__ == "__main__":
    main()
