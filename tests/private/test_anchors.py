"""Homes and second places from noisy sums, against those of the users."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ppmtf_jax.private.anchors import AnchoredPeople, fit_anchors

from ppmtf_jax.bridge.counts import VisitCounts
from ppmtf_jax.bridge.people.anchors import Anchors
from ppmtf_jax.bridge.people.law import HOME, SECOND
from ppmtf_jax.bridge.people.layers import Layers
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.noise.accountant import ZCDPAccountant
from ppmtf_jax.noise.mechanisms import SeededNoise
from ppmtf_jax.private.domain import N_TYPES
from ppmtf_jax.private.estimation import estimate_population
from ppmtf_jax.private.releases import RELATION, has_dense_users, release
from tests.private.worlds import domain_of, homes_city


@pytest.fixture(scope="module")
def traces():
    return homes_city(1500)


@pytest.fixture(scope="module")
def fitted(traces):
    domain = replace(domain_of(traces), anchored=True)
    releases = release(traces, domain, ZCDPAccountant(RELATION, 50.0, 1e-6, SeededNoise(0)))
    return fit_anchors(releases, estimate_population(releases, 0), 0)


def variation(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).sum() / 2)


def test_homes_second_places_and_layers_are_those_of_the_users(traces, fitted):
    own = Anchors.of(VisitCounts.of(traces))
    homes = np.bincount(own.home, minlength=40) / traces.n_users
    with_second = own.second >= 0
    seconds = np.bincount(own.second[with_second], minlength=40) / with_second.sum()
    found = fitted.share @ fitted.home
    assert variation(found, homes) < 0.1
    assert variation(found[::-1], homes) > 0.2
    share = fitted.share * (np.arange(N_TYPES) > 0)
    assert share.sum() == pytest.approx(with_second.mean(), abs=0.03)
    assert variation(share @ fitted.second / share.sum(), seconds) < 0.1
    layer = own.layer(traces.user, traces.place)
    slots = traces.time_grid.slot_of_instant
    for each in (HOME, SECOND):
        real = (np.bincount(traces.slot, layer == each) / np.bincount(traces.slot))[slots[: traces.time_grid.period]]
        people = fitted.share * np.stack([1 - fitted.layers.second_share, fitted.layers.second_share])
        found = (people[:, :, None] * fitted.layers.at[..., each]).sum(axis=(0, 1))
        np.testing.assert_allclose(found, real, atol=0.06)
        assert np.abs(found[::-1] - real).max() > 0.2


def test_distributions_sum_to_one(fitted):
    for each in (fitted.home, fitted.second, fitted.elsewhere, fitted.layers.at, fitted.layers.next):
        np.testing.assert_allclose(each.sum(axis=-1), 1, rtol=1e-5)


def test_homes_and_places_elsewhere_are_drawn_to_a_population():
    rng = np.random.default_rng(0)
    home, second = rng.dirichlet(np.ones(30), N_TYPES), rng.dirichlet(np.ones(30), N_TYPES)
    elsewhere, occupancy = rng.dirichlet(np.ones(30), 6), rng.dirichlet(np.ones(3 * N_TYPES), 6)
    occupancy = occupancy.reshape(6, N_TYPES, 3).transpose(1, 0, 2)
    layers = Layers.always_elsewhere(N_TYPES, 6)
    true = AnchoredPeople(np.ones(N_TYPES), layers, home, second, elsewhere, occupancy)
    np.testing.assert_allclose(
        true.population()[4, 7],
        sum(
            occupancy[k, 4] @ (home[k, 7], second[k, 7], elsewhere[4, 7])  # as in the formula of the module
            for k in range(N_TYPES)
        ),
    )
    noisy = [each * rng.lognormal(0, 0.5, each.shape) for each in (home, second)]
    noisy = [each / each.sum(axis=1, keepdims=True) for each in noisy]
    start = true._replace(home=noisy[0], second=noisy[1])
    found = start.drawn_to(true.population())
    assert variation(found.population(), true.population()) < 0.6 * variation(start.population(), true.population())
    assert variation(found.home, home) < variation(noisy[0], home)


def test_anchors_need_dense_traces_of_several_periods(traces):
    def decide(traces):
        accountant = ZCDPAccountant(RELATION, 1.0, 1e-6, SeededNoise(0))
        return has_dense_users(traces, accountant), bool(accountant.spendings)

    assert decide(traces) == (True, True)
    short = toy_city(100, n_places=40, n_days=2, seed=0).traces
    assert decide(short) == (False, False)
    sparse = traces.select_events(np.random.default_rng(0).random(traces.n_events) < 0.2)
    assert decide(sparse) == (False, True)
