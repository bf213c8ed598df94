"""The semantic test against loops over traces and users."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from ppmtf_jax.privacy import semantic_test
from ppmtf_jax.privacy.semantic_test import SemanticTestSettings, semantic_privacy_test
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.synthesis import fit, synthesize
from tests.support import places_in_line, random_traces

USERS, PLACES, PERIOD, TRACES = 9, 6, 4, 3
GRID = TimeGrid("2024-01-01T00:00:00", 60, np.tile(np.arange(PERIOD), 2), period=PERIOD)


@pytest.fixture(scope="module")
def train() -> Traces:
    return random_traces(0, range(USERS), places_in_line(PLACES), GRID)


@pytest.fixture(scope="module")
def model(train) -> FittedModel:
    return fit(train, "sglt", n_clusters=2, remove_true_prob=0.0, seed=0)


@pytest.fixture(scope="module")
def synthetic(model) -> Traces:
    return synthesize(model, traces_per_user=TRACES, seed=0)


def falling(counts: Counter, scale: float) -> list[float]:
    found = sorted((count / scale for count in counts.values()), reverse=True)
    return found + [0.0] * (PLACES - len(found))


def test_all_numbers_are_those_of_loops(train, model, synthetic, monkeypatch):
    monkeypatch.setattr(semantic_test, "CELLS_AT_A_TIME", 100)
    seeds = train.place.reshape(USERS, 2, PERIOD).tolist()
    traces = synthetic.place.reshape(-1, PERIOD).tolist()
    settings = SemanticTestSettings(
        k=5, max_semantic_difference=0.125, max_geographic_similarity=0.75, max_intersection=0.5
    )
    verdicts = semantic_privacy_test(model, synthetic, settings)
    visits = [falling(Counter(seeds[user][0] + seeds[user][1]), 2 * PERIOD) for user in range(USERS)]
    for number, (row, trace) in enumerate(zip(verdicts.table.to_dict("records"), traces, strict=True)):
        user, shares = number // TRACES, falling(Counter(trace), PERIOD)
        intersection = max(sum(a == b for a, b in zip(trace, seed, strict=True)) / PERIOD for seed in seeds[user])
        geographic = max(sum((Counter(trace) & Counter(seed)).values()) / PERIOD for seed in seeds[user])
        semantic = [sum(map(min, shares, of_user)) for of_user in visits]
        plausible = sum(abs(value - semantic[user]) <= 0.125 + 1e-12 for value in semantic)
        assert (row["user"], row["trace"]) == (user, number % TRACES)
        assert row["intersection"] == pytest.approx(intersection)
        assert row["geographic_similarity"] == pytest.approx(geographic)
        assert row["semantic_similarity"] == pytest.approx(semantic[user])
        assert row["plausible_users"] == plausible
        assert row["passed"] == (intersection <= 0.5 and geographic <= 0.75 and plausible >= 5)
    assert 0 < verdicts.passed.mean() < 1


def emd_similarity(made: list[int], own: list[int], apart_km: float, km: np.ndarray) -> float:
    """1 minus the least cost of all plans between the two distributions over all places."""
    cost = np.minimum(1, km / apart_km) if apart_km else 1.0 - np.eye(PLACES)
    sums = np.concatenate([np.kron(np.eye(PLACES), np.ones(PLACES)), np.kron(np.ones(PLACES), np.eye(PLACES))])
    shares = [Counter(each)[place] / len(each) for each in (made, own) for place in range(PLACES)]
    return 1 - linprog(cost.ravel(), A_eq=sums, b_eq=shares).fun


@pytest.mark.parametrize("chosen", [{"apart_km": 70.0}, {"apart_km": 0}, {"apart_km": 70.0, "n_time_periods": 2}])
def test_geographic_similarity_is_that_of_all_plans(train, model, synthetic, chosen):
    settings = SemanticTestSettings(k=5, **chosen)
    table = semantic_privacy_test(model, synthetic, settings).table
    position = train.places.position_km()
    km = np.linalg.norm(position[:, None] - position, axis=2)
    assert 0 < km[0, 1] < 70 < km[0, -1]
    seeds = train.place.reshape(USERS, 2, PERIOD).tolist()
    halves = [range(2), range(2, 4)] if settings.n_time_periods == 2 else [range(PERIOD)]
    for number, trace in enumerate(synthetic.place.reshape(-1, PERIOD).tolist()):
        values = []
        for seed in seeds[number // TRACES]:
            value = 0.0
            for half, t in ((each, t) for each in halves for t in each):
                after = [trace[(s + 1) % PERIOD] for s in half if trace[s] == trace[t]]
                others = [seed[(s + 1) % PERIOD] for s in half if seed[s] == trace[t]]
                others = others or [seed[(s + 1) % PERIOD] for s in half]
                value += emd_similarity(after, others, settings.apart_km, km) / PERIOD
            values.append(value)
        assert table["geographic_similarity"][number] == pytest.approx(max(values), abs=1e-7)


def test_each_time_period_has_its_own_renaming(train, model, synthetic):
    seeds = train.place.reshape(USERS, 2, PERIOD).tolist()
    table = semantic_privacy_test(model, synthetic, k=2, n_time_periods=2).table
    for number, trace in enumerate(synthetic.place.reshape(-1, PERIOD).tolist()):
        value = 0.0
        for half in (slice(2), slice(2, 4)):
            both = seeds[number // TRACES]
            of_user = falling(Counter(both[0][half] + both[1][half]), 4)
            value += sum(map(min, falling(Counter(trace[half]), 2), of_user)) / 2
        assert table["semantic_similarity"][number] == pytest.approx(value)


def test_settings_that_do_not_suit_the_traces_are_refused(model, synthetic):
    with pytest.raises(InputError, match="n_time_periods up to 4; found 5"):
        semantic_privacy_test(model, synthetic, n_time_periods=5)
    assert "less than 2 km away, and (3)" in SemanticTestSettings(apart_km=2.0).in_words(False).mechanism
    # What is compared in parts of the day says nothing of other parts.
    words = SemanticTestSettings(apart_km=2.0, n_time_periods=3).in_words(False)
    assert "less than 2 km away, in the same of 3 parts of the day, and (3)" in words.mechanism
    assert "in each of 3 parts of the day" in words.protected[1]


def test_only_missing_coordinates_are_missing(train, model, synthetic):
    ids, known = np.arange(PLACES), np.ones(PLACES)
    for latitude in (known, np.where(ids == 0, np.nan, 1), known * np.nan):
        at = replace(model, places=PlaceTable(ids, latitude, known))
        made = replace(synthetic, places=at.places)
        if np.isnan(latitude).any():
            with pytest.raises(InputError, match="coordinates of all places; found missing ones"):
                semantic_privacy_test(at, at.claim(made), apart_km=1.0)
        else:
            assert (semantic_privacy_test(at, at.claim(made), apart_km=1.0).table["geographic_similarity"] == 1).all()


def test_a_copied_trace_fails_and_is_most_similar(train, model):
    copies = synthesize(fit(train, "sgd", n_copied=PERIOD, seed=0), seed=0)
    verdicts = semantic_privacy_test(model, model.claim(copies), k=1)
    assert not verdicts.passed.any()
    assert (verdicts.table["geographic_similarity"] == 1).all()
    assert (verdicts.table["intersection"] == 1).all()


def test_traces_of_another_model_and_other_systems_are_refused(train, synthetic):
    with pytest.raises(InputError, match="those of another one"):
        semantic_privacy_test(fit(train, "sglt", seed=1), synthetic)
    others = fit(train, "sgd", seed=0)
    with pytest.raises(InputError, match="a model of sglt"):
        semantic_privacy_test(others, synthesize(others, seed=0))
