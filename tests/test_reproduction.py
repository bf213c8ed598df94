"""Fresh fits at the published settings give what the published program gave; `benchmarks/reproduce.py` shows more.

One run of the published program is compared with the mean of three of ours. Were both from the same distribution, their
difference would scatter by sqrt(1 + 1/3) of the standard deviation from seed to seed, which twelve seeds of ours told.
Three of these are allowed. Single seeds scatter too much: of the twelve one had a TM-EMD of 1.48 and one of 2.13.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax import EvaluationSettings, PPMTFSettings, evaluate, fit, synthesize
from ppmtf_jax.datasets.people_flow import read_people_flow
from tests.attacks.published_numbers import reid_rate

SETTINGS = {"rank": 16, "noise_precision": 200.0, "n_sweeps": 100, "n_zeros": 1000, "proposal_mix": 0.0}
SEEDS = 3
# Published, and our standard deviation over seeds.
PUBLISHED = {
    "tp_tv": (0.427, 0.0038),
    "tp_tv_top50": (0.129, 0.0014),
    "tm_emd_y": (1.83, 0.135),
    "tm_emd_x": (1.83, 0.128),
    "reid_rate": (0.016, 0.0018),
}


def deviations(people_flow: Path, zeros: str) -> dict[str, float]:
    """How far the means are from the published figures, in standard deviations of the difference."""
    train, test = read_people_flow(people_flow)
    metrics = []
    for seed in range(SEEDS):
        model = fit(train, "ppmtf", PPMTFSettings(zeros=zeros, **SETTINGS), seed=seed)
        metrics.append(evaluate(synthesize(model, traces_per_user=10, seed=seed), train, test))
    for name in ("tp_tv", "tp_tv_top50", "tm_emd_y", "tm_emd_x"):
        assert all(run[name] < run.value(name, "uniform") for run in metrics)
    means = {name: np.mean([run[name] for run in metrics]) for name in PUBLISHED}
    scatter = np.sqrt(1 + 1 / SEEDS)
    return {name: float((means[name] - value) / (scatter * sd)) for name, (value, sd) in PUBLISHED.items()}


@pytest.mark.slow
def test_fresh_fits_on_people_flow(people_flow: Path) -> None:
    outside = {name: z for name, z in deviations(people_flow, "sampled").items() if abs(z) > 3}
    assert outside == {}


@pytest.mark.slow
def test_weighted_zeros_keep_the_population_and_are_told_apart(people_flow: Path) -> None:
    """They were not published. That they are another model shows in the transitions: the comparison sees so much."""
    of = deviations(people_flow, "weighted")
    assert abs(of["tp_tv"]) <= 3
    assert of["tm_emd_x"] > 3


# How far our SGD may be from the published figures.
SGD_TOLERANCE = {"tp_tv": 0.01, "tm_emd_y": 0.06, "tm_emd_x": 0.06, "reid_rate": 0.02}


def outside_of(published: pd.Series, found: dict[str, float]) -> set[str]:
    """Metrics that are further from the published figures than they may be."""
    return {name for name, far in SGD_TOLERANCE.items() if abs(found[name] - published[name]) > far}


@pytest.mark.parametrize("n_copied", [4, *(pytest.param(n, marks=pytest.mark.slow) for n in range(3))])
def test_sgd_gives_what_was_published_for_each_number_of_copied_events(people_flow: Path, n_copied: int) -> None:
    train, test = read_people_flow(people_flow)
    published = pd.read_csv(people_flow / "published_results.csv").set_index("setting")
    synthetic = synthesize(fit(train, "sgd", n_copied=n_copied), traces_per_user=10, seed=0)
    evaluation = evaluate(synthetic, train, test, EvaluationSettings(attacks=False))
    found = {name: evaluation[name] for name in SGD_TOLERANCE if name in evaluation.metrics}
    found["reid_rate"] = reid_rate(synthetic, train)
    assert outside_of(published.loc[f"cn{n_copied}"], found) == set()
    # Twin: four events more or less give another re-identification rate.
    assert "reid_rate" in outside_of(published.loc[f"cn{4 if n_copied < 2 else 0}"], found)
