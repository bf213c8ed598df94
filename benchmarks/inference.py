"""PPMTF by Gibbs sampling, SVI and NUTS: seconds, error at held-out cells, utility; and settings by "auto".

    python benchmarks/inference.py people-flow ../shared --csv benchmarks/inference.csv
    python benchmarks/inference.py small-city          # with NUTS, which takes small data only
    python benchmarks/inference.py city --users 21979  # seconds and memory of the sweeps and steps of a large city
    python benchmarks/inference.py auto ../shared      # what held-out cells choose, beside the published settings

`positive_transitions` and `positive_visits` are root mean square errors of the model at held-out positive cells, and
`score` is the mean log density of a cell, positive ones and zeros in their true proportion; both are of a model that
did not see these cells. The other columns are of a model of all cells: seconds (with compilation) and utility, ten
traces per user. Compare `cpu_seconds` on a busy machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from common import Clock, Row, command_line, measured, new_york, peak_mb, people_flow, record
from ppmtf_jax.models.inference import run_nuts, run_svi
from ppmtf_jax.models.mtf_numpyro import expected_cells, list_cells

from ppmtf_jax import PPMTFSettings, Traces, evaluate, fit, synthesize, toy_city
from ppmtf_jax.gibbs.cells import observe
from ppmtf_jax.gibbs.kernel import SHARED, rows_of_factors
from ppmtf_jax.gibbs.run import run_gibbs
from ppmtf_jax.gibbs.selection import hide, log_score
from ppmtf_jax.gibbs.tensors import count_tensors
from ppmtf_jax.streams import Stage, jax_stream

SEED = 0
METRICS = ("tp_tv", "tm_emd_y", "tm_emd_x", "vf_tv", "reid_rate")
WAYS: dict[str, dict[str, Any]] = {
    "gibbs": {},
    "svi, delta": {"inference": "svi", "guide": "delta"},
    "svi, normal": {"inference": "svi", "guide": "normal"},
}


def factors_of(counts: Any, settings: PPMTFSettings, hidden: dict[str, np.ndarray] | None = None) -> dict[str, Any]:
    """Factors of all cells but the hidden ones."""
    key, known = jax_stream(SEED, Stage.FIT), (rows_of_factors(SHARED, counts), SHARED, settings.gibbs())
    zeros = settings.zeros, settings.n_zeros
    if settings.inference == "gibbs":
        cells = observe(counts, *zeros, seed=SEED, hidden=hidden)
        draws = run_gibbs(key, cells, *known, n_sweeps=settings.n_sweeps).draws
        return {name: draw[0, -1] for name, draw in draws.items()}
    listed = list_cells(counts, *zeros, seed=SEED, hidden=hidden)
    if settings.inference == "nuts":
        sites = run_nuts(key, listed, *known, n_draws=settings.n_sweeps).sites
        return {name: site[0, -1] for name, site in sites.items()}
    return jax.block_until_ready(run_svi(key, listed, *known, guide=settings.guide, n_steps=settings.n_steps))


def held_out(train: Traces, settings: PPMTFSettings) -> Row:
    """Errors of factors that did not see some cells."""
    counts = count_tensors(train, settings.trimming(), seed=SEED)
    shown, hidden = hide(counts, SEED)
    index = {name: each.index for name, each in hidden.items()}
    factors = factors_of(shown, settings, index)
    found = {z: np.asarray(expected_cells(factors, modes, index[z]), np.float64) for z, modes in SHARED.tensors}
    row: Row = {
        "score": log_score({z: each[None] for z, each in found.items()}, hidden, counts, settings.noise_precision)
    }
    for z, (_, value) in hidden.items():
        row[f"positive_{z}"] = float(np.sqrt(np.mean((found[z] - value)[value > 0] ** 2)))
    return row


def compared(data: str, train: Traces, test: Traces, ways: dict[str, dict[str, Any]], **same: Any) -> Iterator[Row]:
    """A row of each way."""
    for way, chosen in ways.items():
        settings = PPMTFSettings(**same, **chosen)
        model, took = measured(fit, train, "ppmtf", settings, seed=SEED)
        evaluation = evaluate(synthesize(model, traces_per_user=10, seed=SEED), train, test)
        utility = {name: float(evaluation.value(name)) for name in METRICS}
        said = " / ".join(model.summary())
        yield {"data": data, "way": way} | took | held_out(train, settings) | utility | {"said": said}


def of_people_flow(given: Any) -> Iterator[Row]:
    train, test = people_flow(given.shared)
    yield from compared("people flow", train, test, WAYS)


def of_small_city(given: Any) -> Iterator[Row]:
    train, test = toy_city(n_users=40, n_places=10, n_days=5, seed=SEED).traces.split_users(0.5, seed=SEED)
    ways = WAYS | {"nuts": {"inference": "nuts", "n_sweeps": 150}}
    yield from compared("simulated city, 20 users", train, test, ways, rank=2, n_zeros=50)


def of_city(given: Any) -> Iterator[Row]:
    """Seconds of sweeps and steps; those of a whole fit are 100 and 1,500 times as long."""
    train = toy_city(n_users=given.users, n_places=1000, n_days=1, seed=SEED).traces
    counts = count_tensors(train, PPMTFSettings().trimming(), seed=SEED)
    for way, chosen in WAYS.items():
        times, numbers = [], (5, 15) if way == "gibbs" else (50, 150)
        for n in 2 * numbers:  # the second time, programs are compiled already
            settings = PPMTFSettings(zeros="weighted", n_sweeps=n, n_steps=n, **chosen)
            clock = Clock()
            factors_of(counts, settings)
            times.append(clock.both())
        each = (np.array(times[3]) - times[2]) / (numbers[1] - numbers[0])
        total = PPMTFSettings().n_sweeps if way == "gibbs" else PPMTFSettings().n_steps
        row: Row = {"data": f"simulated city, {train.n_users} users", "way": way}
        row |= {"seconds_each": float(each[0]), "cpu_seconds_each": float(each[1])}
        yield row | {"cpu_seconds_of_all": float(each[1] * total), "peak_mb": peak_mb()}


def of_auto(given: Any) -> Iterator[Row]:
    """Published and chosen settings side by side."""
    auto = dict.fromkeys(("rank", "noise_precision", "n_zeros"), "auto")
    ways = {"published": {}, "auto": auto}
    for data, (train, test) in (
        ("people flow", people_flow(given.shared)),
        ("New York", new_york(given.shared).split_users(0.8, SEED)),
    ):
        for way, chosen in ways.items():
            model, took = measured(fit, train, "ppmtf", PPMTFSettings(**chosen), seed=SEED)
            evaluation = evaluate(synthesize(model, traces_per_user=10, seed=SEED), train, test)
            utility = {name: float(evaluation.value(name)) for name in METRICS}
            yield {"data": data, "way": way} | took | utility | {"said": " / ".join(model.summary())}


SECTIONS: dict[str, Callable[[Any], Iterator[Row]]] = {
    "people-flow": of_people_flow,
    "small-city": of_small_city,
    "city": of_city,
    "auto": of_auto,
}


def main() -> None:
    parser = command_line(__doc__, sections=SECTIONS, shared=True)
    parser.add_argument("--users", type=int, default=219_793, help="of the city")
    given = parser.parse_args()
    record(SECTIONS[given.section](given), given.csv)


if __name__ == "__main__":
    main()
