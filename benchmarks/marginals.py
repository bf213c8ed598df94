"""MST and AIM, differentially private mechanisms for tables, applied to location traces with the library `mbi`.

`mbi` runs in an environment of its own:

    python3 -m venv ~/mbi && ~/mbi/bin/pip install mbi==2.0.0
    export MBI_PYTHON=~/mbi/bin/python

Places are grouped into 16 cells of neighbouring places, and the period is divided into ten or twelve blocks. Each user
is one record: a cell for each block. This is the cell of their first event in this block on any day. A block
without an event gets the cell of the block before it, or if there is none, of the block after it. So a record is a
function of one user's events. The mechanisms have the same neighbours as the system `private` and, by zCDP, the same
epsilon and delta. In each block, a synthetic person is at a random place of their cell. They stay at this place as long
as the cell does not change.

- MST: McKenna, Miklau and Sheldon (2021), Winning the NIST contest, Journal of Privacy and Confidentiality 11. It
  measures two-way marginals along a tree of blocks. The exponential mechanism chooses the tree.
- AIM: McKenna, Mullins, Sheldon and Miklau (2022), AIM: an adaptive and iterative mechanism, PVLDB 15. The workload is
  all pairs of blocks. Here, the measured pairs always form a forest, so that inference takes seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ppmtf_jax import Traces

MECHANISMS = ("MST", "AIM")
PYTHON = "MBI_PYTHON"
"""Environment variable with the Python of mbi."""
N_CELLS = 16
N_ITERATIONS = 300


def marginal_traces(train: Traces, mechanism: str, epsilon: float, delta: float, n_people: int, seed: int) -> Traces:
    """Complete traces of one period of `n_people` synthetic people; needs places with coordinates."""
    from ppmtf_jax import Traces
    from ppmtf_jax.noise.accountant import rho_of
    from ppmtf_jax.people.space import space_of

    if not os.environ.get(PYTHON):
        raise SystemExit(f"{mechanism}: {PYTHON} does not name the Python of mbi, see benchmarks/marginals.py")
    grid, cell = train.time_grid.one_period(), space_of(train.places, N_CELLS).cell
    n_blocks = 10 if grid.n_instants % 12 else 12
    block = np.arange(grid.n_instants) * n_blocks // grid.n_instants
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "records.npy", records(train, cell, block))
        job = {"mechanism": mechanism, "rho": rho_of(epsilon, delta), "people": n_people, "seed": seed}
        (folder / "job.json").write_text(json.dumps(job | {"cells": int(cell.max()) + 1}))
        done = subprocess.run([os.environ[PYTHON], "-W", "ignore", __file__, name], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{mechanism}: {done.stderr}")
        made = np.load(folder / "people.npy")
    place = _places(made, cell, np.random.default_rng([seed, 1]))[:, block].astype(np.int32)
    person, instant = np.divmod(np.arange(place.size, dtype=np.int32), np.int32(grid.n_instants))
    nobody = np.arange(n_people)
    return Traces(person, np.zeros_like(person), instant, place.ravel(), nobody, train.places, grid, of_nobody=True)


def records(traces: Traces, cell: np.ndarray, block: np.ndarray) -> np.ndarray:
    """The record of each user: a cell for each block, shape (users, blocks)."""
    n_blocks = int(block[-1]) + 1
    key = traces.user.astype(np.int64) * n_blocks + block[traces.instant % traces.time_grid.period]
    found, first = np.unique(key, return_index=True)
    of_user = np.full(traces.n_users * n_blocks, -1)
    of_user[found] = cell[traces.place[first]]
    of_user = of_user.reshape(-1, n_blocks)
    for order in (range(1, n_blocks), range(n_blocks - 2, -1, -1)):
        for b in order:
            beside = b - 1 if order.step > 0 else b + 1
            of_user[:, b] = np.where(of_user[:, b] < 0, of_user[:, beside], of_user[:, b])
    return of_user


def _places(cells: np.ndarray, cell: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random place for each block of each person; the place stays the same as long as the cell does."""
    order, n_places = np.argsort(cell, kind="stable"), np.bincount(cell)
    first = np.concatenate([[0], np.cumsum(n_places)[:-1]])
    place = order[first[cells] + (rng.random(cells.shape) * n_places[cells]).astype(int)]
    for b in range(1, cells.shape[1]):
        place[:, b] = np.where(cells[:, b] == cells[:, b - 1], place[:, b - 1], place[:, b])
    return place


# What the Python of mbi does


class Table:
    """Records, and all noisy measurements of them."""

    def __init__(self, values: np.ndarray, n_cells: int, rng: np.random.Generator):
        import mbi

        self.names = [f"block {b}" for b in range(values.shape[1])]
        self.domain = mbi.Domain(self.names, (n_cells,) * len(self.names))
        self.data = mbi.Dataset({name: values[:, b] for b, name in enumerate(self.names)}, self.domain)
        self.rng, self.measured = rng, []

    def counts(self, of: Any, names: tuple[str, ...]) -> np.ndarray:
        return np.asarray(of.project(names).values, float).ravel()

    def measure(self, names: tuple[str, ...], sigma: float) -> None:
        import mbi

        exact = self.counts(self.data, names)
        noisy = exact + self.rng.normal(0, sigma, exact.shape)
        self.measured.append(mbi.LinearMeasurement(noisy, names, stddev=sigma))

    def estimate(self, n_iterations: int, begin: Any = None) -> Any:
        import mbi

        engine = mbi.estimation.MirrorDescent()
        return engine.estimate(self.domain, self.measured, iters=n_iterations, warm_start=begin)

    def worst(self, model: Any, candidates: dict[tuple[str, ...], float], epsilon: float, sigma: float) -> tuple:
        """Choose a marginal with a large error of the model, by the exponential mechanism; `candidates` has weights."""
        error = np.array([np.abs(self.counts(self.data, c) - self.counts(model, c)).sum() for c in candidates])
        weight = np.array(list(candidates.values()))
        bias = np.sqrt(2 / np.pi) * sigma * np.array([self.domain.size(c) for c in candidates])
        score = epsilon / 2 * weight * (error - bias) / weight.max()
        return list(candidates)[int(np.argmax(score + self.rng.gumbel(size=len(score))))]

    def joins(self, pair: tuple[str, ...]) -> bool:
        """Whether the two blocks are not yet connected by measured pairs."""
        group = {name: name for name in self.names}
        for each in self.measured:
            if len(each.clique) == 2:
                old, new = (group[name] for name in each.clique)
                group = {name: new if own == old else own for name, own in group.items()}
        return group[pair[0]] != group[pair[1]]


def mst(table: Table, rho: float) -> Any:
    """MST: single blocks, the choice of a tree, and the pairs of the tree each get a third of the budget."""
    n = len(table.names)
    for name in table.names:
        table.measure((name,), np.sqrt(3 * n / (2 * rho)))
    model = table.estimate(N_ITERATIONS)
    for _ in range(n - 1):
        pairs = {pair: 1.0 for pair in combinations(table.names, 2) if table.joins(pair)}
        pair = table.worst(model, pairs, np.sqrt(8 * rho / 3 / (n - 1)), 0.0)
        table.measure(pair, np.sqrt(3 * (n - 1) / (2 * rho)))
    return table.estimate(N_ITERATIONS, model)


def aim(table: Table, rho: float) -> Any:
    """AIM: measure the worst marginals in turn; if one changes the model less than its noise, the noise is halved."""
    n = len(table.names)
    sigma, epsilon = np.sqrt(16 * n / (2 * 0.9 * rho)), np.sqrt(8 * 0.1 * rho / (16 * n))
    for name in table.names:
        table.measure((name,), sigma)
    left = rho - n / (2 * sigma**2)
    model = table.estimate(N_ITERATIONS)
    while left > 0:
        cost = 1 / (2 * sigma**2) + epsilon**2 / 8
        if left < 2 * cost:
            sigma, epsilon, cost = np.sqrt(1 / (2 * 0.9 * left)), np.sqrt(8 * 0.1 * left), left
        left -= cost
        known = {frozenset(each.clique) for each in table.measured}
        # The weight of a marginal: the number of blocks it shares with each pair of the workload, summed over pairs.
        candidates = {(name,): float(n - 1) for name in table.names}
        candidates |= {
            pair: 2.0 * (n - 1)
            for pair in combinations(table.names, 2)
            if table.joins(pair) or frozenset(pair) in known
        }
        chosen = table.worst(model, candidates, epsilon, sigma)
        before = table.counts(model, chosen)
        table.measure(chosen, sigma)
        model = table.estimate(N_ITERATIONS // 3, model)
        if np.abs(table.counts(model, chosen) - before).sum() <= np.sqrt(2 / np.pi) * sigma * len(before):
            sigma, epsilon = sigma / 2, 2 * epsilon
    return table.estimate(N_ITERATIONS, model)


def synthesize(folder: Path) -> None:
    """Make records of synthetic people with mbi."""
    job = json.loads((folder / "job.json").read_text())
    table = Table(np.load(folder / "records.npy"), job["cells"], np.random.default_rng(job["seed"]))
    model = {"MST": mst, "AIM": aim}[job["mechanism"]](table, job["rho"])
    np.random.seed(job["seed"])  # noqa: NPY002 -- mbi draws records from the global stream
    made = model.synthetic_data(job["people"])
    people = np.stack([np.asarray(made.data[name]) for name in table.names], axis=1)
    np.save(folder / "people.npy", people[np.arange(job["people"]) % len(people)])


if __name__ == "__main__":
    synthesize(Path(sys.argv[1]))
