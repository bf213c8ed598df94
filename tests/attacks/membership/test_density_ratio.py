"""The density-ratio attack on copies, on traces of strangers, and on odd traces."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from ppmtf_jax.attacks.membership import infer_membership
from ppmtf_jax.attacks.membership.density_ratio import DensityRatioSettings, density_ratios
from ppmtf_jax.attacks.membership.trace_densities import Density
from ppmtf_jax.attacks.registry import ATTACKS
from ppmtf_jax.data.measurement import Comparison
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.synthesizers.synthesis import fit, synthesize
from tests.attacks.loops import error_of_auc
from tests.support import minutes, places_in_line, random_traces, to_traces

DENSITIES: tuple[Density, ...] = ("chain", "kernel")
N_MEMBERS, N_TEST = 200, 200


def traces_of(seed: int, users: range, n_traces: int = 1) -> Traces:
    return random_traces(seed, users, places_in_line(30), minutes(10), n_traces=n_traces)


@pytest.fixture(scope="module")
def real() -> tuple[Traces, Traces]:
    return traces_of(0, range(N_MEMBERS)), traces_of(1, range(1000, 1000 + N_TEST))


@pytest.mark.parametrize("density", DENSITIES)
def test_copies_give_their_users_away_and_strangers_nobody(real: tuple[Traces, Traces], density: Density) -> None:
    train, test = real
    assert infer_membership(train, train, test, "density_ratio", density=density).roc.auc > 0.99
    strangers = traces_of(2, range(5000, 5200))
    tolerance = 5 * error_of_auc(N_MEMBERS, N_TEST // 2)
    settings = DensityRatioSettings(density=density)
    assert abs(density_ratios(strangers, train, test, settings).roc.auc - 0.5) < tolerance
    # Copies of half of the members among them are noticed.
    leaked = replace(strangers, place=np.append(train.place[:1000], strangers.place[1000:]))
    assert density_ratios(leaked, train, test, settings).roc.auc - 0.5 > tolerance


def test_the_training_data_given_away_are_found_and_uniform_traces_tell_nothing() -> None:
    train, test = toy_city(200, n_places=400, n_days=1, missing=0.0, seed=0).traces.split_users(0.5, seed=0)
    auc = {}
    for system in ("training", "uniform"):
        made = synthesize(fit(train, system, seed=0), traces_per_user=3, seed=0)
        auc[system] = density_ratios(made, train, test, DensityRatioSettings("kernel")).roc.auc
    # No test user has the very day of a training user.
    assert auc["training"] > 0.99
    assert abs(auc["uniform"] - 0.5) < 5 * error_of_auc(100, 50)


def test_reference_users_are_not_attacked_and_drawn_by_the_seed(real: tuple[Traces, Traces]) -> None:
    train, test = real
    attacked = [density_ratios(train, train, test, seed=seed).other_ids for seed in (0, 0, 1)]
    assert len(attacked[0]) == N_TEST // 2
    assert np.array_equal(attacked[0], attacked[1])
    assert not np.array_equal(attacked[0], attacked[2])
    few = density_ratios(train, train, test, DensityRatioSettings(reference_fraction=0.001))
    assert len(few.other_ids) == N_TEST - 1


@pytest.mark.parametrize("density", DENSITIES)
def test_odd_users_are_scored(density: Density) -> None:
    """Without a step, always at one place, with one event, or of whom nothing was released."""
    places, grid = places_in_line(5), minutes(6)
    walks = {
        0: {0: 1, 2: 3, 4: 0},
        1: dict.fromkeys(range(6), 4),
        2: {3: 2},
        3: {i: i % 5 for i in range(6)},
    }
    train = to_traces([(u, 0, i, p) for u, walk in walks.items() for i, p in walk.items()], places, grid)
    test = random_traces(0, range(10, 14), places, grid)
    released = train.select_users(np.array([0, 1, 2]))
    scores = density_ratios(released, train, test, DensityRatioSettings(density=density))
    assert scores.members.shape == (1, 4)
    assert np.isfinite(scores.members).all()
    assert np.isfinite(scores.others).all()
    assert scores.members[0, 3] < scores.members[0, :3].min()


def test_what_cannot_be_attacked_is_refused(real: tuple[Traces, Traces]) -> None:
    train, test = real
    with pytest.raises(InputError, match=r"two test users.*found one"):
        density_ratios(train, train, test.select_users(np.array([0])))
    with pytest.raises(InputError, match="200 of 200 test users"):
        infer_membership(train, train, train)
    elsewhere = random_traces(0, range(3), places_in_line(13), minutes(10))
    with pytest.raises(InputError, match="the same place table"):
        density_ratios(elsewhere, train, test)
    with pytest.raises(InputError, match="likelihood_ratio, density_ratio, nearest, shadow_models; found 'domias'"):
        infer_membership(train, train, test, "domias")
    with pytest.raises(InputError, match=r"(?s)'chain' or 'kernel'; found 'chains'.*reference_fraction as a number"):
        infer_membership(train, train, test, density="chains", reference_fraction=1.0)


def test_the_evaluation_has_the_area_under_the_curve(real: tuple[Traces, Traces]) -> None:
    train, test = real
    attack, settings = ATTACKS["density_ratio"], DensityRatioSettings()
    comparison = Comparison(train, train, test, train.time_grid.period)
    assert attack.measure(comparison, settings) == [density_ratios(train, train, test).roc.auc]
    assert attack.reading is not None
    [reading] = attack.reading(comparison, settings)
    # One limit: the largest area whose 95 % interval is still below .65, or that is a guess.
    by_chance = 1.96 * error_of_auc(N_MEMBERS, N_TEST // 2)
    assert reading.references == {}
    assert reading.alarm == pytest.approx(max(0.65 - by_chance, 0.5 + by_chance), abs=1e-3)
    alone = Comparison(train, train, test.select_users(np.array([0])), train.time_grid.period)
    assert math.isnan(attack.measure(alone, settings)[0])
