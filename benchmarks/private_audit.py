"""Audit of `private`: how much epsilon do attackers find, and do the attacks expose planted bugs?

    python benchmarks/private_audit.py releases --csv benchmarks/private_audit_releases.csv
    python benchmarks/private_audit.py line --csv benchmarks/private_audit_line.csv

The attacker knows all users of a small city, and asks whether one more user took part. She stays for a week at a place
where nobody else goes. Only releases without homes and second places are audited.

- `releases`: the attacker sees the noisy sums, and uses their likelihood ratio, which no attack can beat. Sums are
  computed once, and noise is drawn many times. `mu` is the exact distance of the two distributions in standard
  deviations of the noise. `most` is the largest `mu` that the budget allows, and `least` is a lower bound (95 %) of
  `mu` from the attack. `epsilon_least` is the epsilon that belongs to `least` at delta 1e-6, if the noise is Gaussian.
  `found` is a lower bound of epsilon at delta .01 for any noise, and `claim` is the epsilon of the budget there.
- `line`: the attacker sees only the end of the line: how often the user's place is in the estimated population, or in
  the synthetic traces. Each run draws new noise and fits anew. `found` is a lower bound of epsilon at delta 1e-6. Even
  for an attack that is always right, it is not above about the logarithm of an eighth of the number of runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
import pandas as pd
from common import Row, command_line, record
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.stats import norm

from ppmtf_jax import Traces, fit, synthesize, toy_city
from ppmtf_jax.noise.gaussian import WholeNumbers
from ppmtf_jax.noise.source import NoiseSource, SecureNoise
from ppmtf_jax.noise.zcdp import ZCDPAccountant, epsilon_of, rho_of
from ppmtf_jax.privacy.limits import least_epsilon, share_interval
from ppmtf_jax.private import people, releases
from ppmtf_jax.private.domain import Domain
from ppmtf_jax.private.estimation import estimate_population
from ppmtf_jax.private.releases import RELATION, release
from ppmtf_jax.private.summaries import SCALE, Rows, rows

DELTA, LARGE_DELTA = 1e-6, 1e-2
USERS, PLACES, DAYS = 400, 100, 7


def main() -> None:
    parser = command_line(__doc__, sections=("releases", "line"))
    parser.add_argument("--epsilons", nargs="+", type=float, default=(1.0,))
    parser.add_argument("--bugs", nargs="+", choices=BUGS, default=list(BUGS))
    parser.add_argument("--what", nargs="+", choices=("population", "traces"), default=("population", "traces"))
    parser.add_argument("--runs", type=int, default=None, help="runs of each kind; by default 20,000, or 100 of a line")
    arguments = parser.parse_args()
    section = {"releases": of_releases, "line": of_line}[arguments.section]
    record(section(arguments), arguments.csv, append=arguments.section == "line")


def neighbours() -> tuple[Traces, Traces, int]:
    """Traces of the city without and with the additional user, and her place, where nobody else goes."""
    city = toy_city(USERS, n_places=PLACES, n_days=DAYS, seed=3).traces
    place = int(np.argmin(city.users_per_place()))
    without = city.select_events(city.place != place)
    her = pd.DataFrame(
        {
            "user": int(city.user_ids.max()) + 1,
            "trace": 0,
            "instant": np.arange(city.time_grid.n_instants),
            "place": city.places.ids[place],
        }
    )
    with_her = Traces.from_frame(pd.concat([without.to_frame(), her]), city.places, city.time_grid)
    return without, with_her, place


def not_normalized(counted: Rows, n_cells: int) -> np.ndarray:
    return SCALE * np.bincount(counted.cell, minlength=n_cells)


def normalized_per_day(traces: Traces, domain: Domain) -> Iterator[tuple[str, Rows]]:
    for name, counted in rows(traces, domain):
        yield name, counted._replace(user=traces.periods().piece) if name in domain.population_tables() else counted


BUGS = {
    "none": {"SCALE": SCALE},
    "noise / sqrt(2)": {"SCALE": round(SCALE / np.sqrt(2))},
    "noise / 2": {"SCALE": SCALE // 2},
    "normalized per day": {"rows": normalized_per_day},
    "not normalized": {"vector_sum": not_normalized},
}


class Asked(NoiseSource):
    """A noise source without noise. It keeps what it is called with: values, sensitivity and rho."""

    is_private = True

    def __init__(self):
        self.draws: list[tuple[np.ndarray, float, float]] = []

    def add_laplace(self, values, sensitivity, epsilon):
        raise NotImplementedError

    def add_gaussian(self, values: WholeNumbers, sensitivity: int | float, rho: float) -> WholeNumbers:
        self.draws.append((np.array(values).ravel(), sensitivity, rho))
        return values


def of_releases(arguments: argparse.Namespace) -> Iterator[Row]:
    without, with_her, _ = neighbours()
    for epsilon in arguments.epsilons:
        rho = rho_of(epsilon, DELTA)
        for name in arguments.bugs:
            with patch.multiple(releases, **BUGS[name]):
                scores, mu = likelihood_ratios(without, with_her, epsilon, arguments.runs or 20_000)
            least = least_mu(*scores)
            yield {
                "epsilon": epsilon,
                "bug": name,
                "mu": mu,
                "most": np.sqrt(2 * rho),
                "least": least,
                "epsilon_least": gaussian_epsilon(least, DELTA),
                "claim": epsilon_of(rho, LARGE_DELTA),
                "found": least_epsilon(*scores, LARGE_DELTA),
            }


def likelihood_ratios(
    without: Traces, with_her: Traces, epsilon: float, n_runs: int
) -> tuple[Float[np.ndarray, "neighbour run"], float]:
    """Log-likelihood ratios, up to a constant, of runs without and with the user, and the exact mu."""
    domain, draws = Domain.of(without.places, without.time_grid), []
    for traces in (without, with_her):
        asked = Asked()
        release(traces, domain, ZCDPAccountant(RELATION, epsilon, DELTA, asked))
        draws.append(asked.draws)
    scores, squared = np.zeros((2, n_runs)), 0.0
    for (first, sensitivity, rho), (second, _, _) in zip(*draws, strict=True):
        changed = np.flatnonzero(first != second)
        change, precision = (second - first)[changed], 2 * rho / sensitivity**2
        squared += precision * float(change @ change)
        for score, values in zip(scores, (first, second), strict=True):
            noisy = SecureNoise().add_gaussian(np.tile(values[changed], (n_runs, 1)), sensitivity, rho)
            score += (noisy - first[changed]) @ change * precision
    return scores, np.sqrt(squared)


def least_mu(without: Float[np.ndarray, " run"], with_her: Float[np.ndarray, " run"]) -> float:
    """Lower bound of mu: half of the runs give a threshold, and the other half give the shares of scores above it."""
    threshold = np.median(np.concatenate([without[::2], with_her[::2]]))
    low, high = (
        share_interval(float((scores[1::2] > threshold).mean()), len(scores[1::2]))[end]
        for end, scores in enumerate((with_her, without))
    )
    return max(0.0, float(norm.ppf(low) - norm.ppf(high)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Epsilon at `delta` of the Gaussian mechanism (Balle and Wang 2018, theorem 8)."""

    def excess(epsilon: float) -> float:
        tails = norm.logcdf([mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu])
        return np.exp(tails[0]) - np.exp(epsilon + tails[1]) - delta

    return brentq(excess, 0, 100 + mu**2) if mu > 0 and excess(0) > 0 else 0.0


def of_line(arguments: argparse.Namespace) -> Iterator[Row]:
    without, with_her, place = neighbours()
    for epsilon in arguments.epsilons:
        for what in arguments.what:
            presence, n_runs = {"population": in_population, "traces": in_traces}[what], arguments.runs or 100
            for name in arguments.bugs:
                begin = time.perf_counter()
                with patch.multiple(releases, **BUGS[name]):
                    first, second = (
                        np.array([presence(traces, place, epsilon, seed) for seed in range(n_runs)])
                        for traces in (without, with_her)
                    )
                larger, equal = (second[:, None] > first).mean(), (second[:, None] == first).mean()
                yield {
                    "epsilon": epsilon,
                    "what": what,
                    "bug": name,
                    "runs": n_runs,
                    "without": first.mean(),
                    "with": second.mean(),
                    "auc": larger + equal / 2,
                    "found": least_epsilon(first, second, DELTA),
                    "seconds": time.perf_counter() - begin,
                }


def in_population(traces: Traces, place: int, epsilon: float, seed: int) -> float:
    """Share of the place in the estimated population."""
    domain = Domain.of(traces.places, traces.time_grid)
    noisy = release(traces, domain, ZCDPAccountant(RELATION, epsilon, DELTA))
    return float(estimate_population(noisy, seed)[:, place].mean())


def in_traces(traces: Traces, place: int, epsilon: float, seed: int) -> float:
    """Share of the place in synthetic traces of people without homes."""
    settings = {"epsilon": epsilon, "delta": DELTA, "public_places": True, "anchors": "none"}
    with patch.object(people, "N_PEOPLE", 1000):  # people of the calibration: 8,000 take too long for many runs
        synthetic = synthesize(fit(traces, "private", settings, seed=seed), people=1000, seed=seed)
    return float((synthetic.place == place).mean())


if __name__ == "__main__":
    main()
