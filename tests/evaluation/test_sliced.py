"""TP-SWD, TM-TV and TM-SWD against what the official evaluation of PPMTF+ printed, and against brute force."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy

from ppmtf_jax.data.windows import Windows
from ppmtf_jax.datasets.people_flow import read_people_flow, read_synthetic
from ppmtf_jax.evaluation import EvaluationSettings, evaluate
from ppmtf_jax.evaluation.metrics import matrices
from ppmtf_jax.evaluation.metrics.matrices import apart, sliced_wasserstein
from tests.support import minutes, places_in_line, random_traces

NO_ATTACKS = EvaluationSettings(attacks=False)
NAMES = {"tp_tv": "TP-TV", "tp_swd": "TP-SWD", "tm_tv": "TM-TV", "tm_swd": "TM-SWD"}
FILES = {
    "A": "people_flow/ppmtf_alpha200/synthetic_traces.csv.gz",
    "SmplA1": "ppmtf_plus/people_flow_synthetic_traces_SmplA1.csv.gz",
}


def test_what_the_official_evaluation_printed(people_flow: Path):
    """It compares with the training users, one trace number at a time, and has the test users as a reference."""
    train, test = read_people_flow(people_flow)
    files = {name: people_flow.parent / file for name, file in FILES.items()}
    if not files["SmplA1"].is_file():
        pytest.skip("no reference traces of PPMTF+")
    sets = {name: read_synthetic(file, train) for name, file in files.items()}
    found = evaluate(sets, test, train, NO_ATTACKS)
    for name in FILES:
        table = files["SmplA1"].with_name(f"people_flow_utilpriv_PPMTF_TK_{name}.csv")
        printed = pd.read_csv(table, skipinitialspace=True, index_col="tracedir").loc["PPMTF_TK_alp200_mnt100_mnv100"]
        for ours, theirs in NAMES.items():
            for column, ending in ((name, "syn"), ("training", "tes"), ("uniform", "uni")):
                assert found.value(ours, column) == pytest.approx(float(printed[f"{theirs}_{ending}"]), abs=1e-9)


def brute(found: np.ndarray, expected: np.ndarray, n_bins: int) -> float:
    east, north = np.random.RandomState(0).randn(2, 50)
    lines = np.stack([north, east], axis=1) / np.hypot(north, east)[:, None]
    cells = np.array([(y, x) for y in range(n_bins) for x in range(n_bins)])
    return np.mean(
        [
            scipy.stats.wasserstein_distance(cells @ line, cells @ line, a, b)
            for line in lines
            for a, b in zip(found, expected, strict=True)
        ]
    )


def test_the_distance_is_that_of_projections_also_in_parts(monkeypatch):
    rng = np.random.default_rng(0)
    found, expected = rng.dirichlet(np.full(9, 0.3), (2, 5))
    assert sliced_wasserstein(found, expected, 3) == pytest.approx(brute(found, expected, 3))
    # The planted bug: axes exchanged.
    turned = sliced_wasserstein(*(each.reshape(5, 3, 3).swapaxes(1, 2).reshape(5, 9) for each in (found, expected)), 3)
    assert turned != pytest.approx(brute(found, expected, 3), rel=1e-3)
    train, test, other = (random_traces(n, range(6), places_in_line(10), minutes(8)) for n in range(3))
    whole = evaluate(train, other, test, NO_ATTACKS)
    monkeypatch.setattr(matrices, "ROWS", 3)
    parts = evaluate(train, other, test, NO_ATTACKS)
    for name in ("tm_tv", "tm_swd"):
        assert parts.value(name, "synthetic") == pytest.approx(whole.value(name, "synthetic"))
        assert parts.value(name, "uniform") == pytest.approx(whole.value(name, "uniform"))


def test_people_who_are_all_alike_lack_diversity():
    traces = random_traces(0, range(30), places_in_line(10), minutes(8))
    alike = replace(traces, place=(traces.instant % 10).astype(np.int32))
    assert apart(Windows.of(alike)).value.max() == 0
    found = apart(Windows.of(traces))
    shares = np.zeros((30, 10))
    np.add.at(shares, (traces.user, traces.place), 1 / 8)
    pairs = [np.abs(a - b).sum() / 2 for i, a in enumerate(shares) for j, b in enumerate(shares) if i != j]
    # 30 of the 870 ordered pairs.
    assert found.value.mean() == pytest.approx(np.mean(pairs), abs=5 * np.std(pairs) / np.sqrt(30))
    assert evaluate(alike, traces, traces, NO_ATTACKS)["diversity_difference"] == pytest.approx(-found.value.mean())
