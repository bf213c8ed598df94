"""Posterior sampling with retries (App. G): the draw is that of the constrained distribution, and retries end."""

from __future__ import annotations

from contextlib import nullcontext

import jax
import numpy as np
import pytest

from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError, NumericalError
from ppmtf_jax.gibbs import run
from ppmtf_jax.gibbs.cells import observe
from ppmtf_jax.gibbs.kernel import SHARED, GibbsSettings
from ppmtf_jax.gibbs.run import GibbsResult, kappa_of, run_within
from ppmtf_jax.gibbs.tensors import count_tensors

N_ROWS = {"user": 3, "place": 4, "next_place": 4, "slot": 2}
MAX_COUNT = 2


def drawn(key) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    return {name: rng.normal(size=(n, 2)).astype(np.float32) for name, n in N_ROWS.items()}


@pytest.fixture
def tried(monkeypatch) -> list:
    """A stand-in for the sampler that draws normal factors; the calls, in order."""
    calls = []

    def sampler(key, cells, n_rows, coupling, settings, **options):
        calls.append((drawn(key), cells))
        return GibbsResult(None, {z: x[None, None] for z, x in calls[-1][0].items()}, np.array([1]), {})

    monkeypatch.setattr(run, "run_gibbs", sampler)
    return calls


def brute(factors: dict[str, np.ndarray]) -> float:
    a, b, c, d = (np.asarray(each, float) for each in factors.values())
    counts = np.concatenate([np.einsum("uz,pz,qz->upq", a, b, other).ravel() for other in (c, d)])
    return max(0.0, -counts.min(), counts.max() - MAX_COUNT)


def within(seed: int, kappa: float, cells=None, **options) -> GibbsResult:
    how = {"kappa": kappa, "max_count": MAX_COUNT, "n_sweeps": 1, **options}
    return run_within(jax.random.key(seed), cells or {}, N_ROWS, SHARED, GibbsSettings(2), **how)


def test_the_distance_is_that_of_all_reconstructed_counts():
    for seed in range(20):
        factors = drawn(jax.random.key(seed))
        assert kappa_of(factors, SHARED, MAX_COUNT) == pytest.approx(brute(factors), rel=1e-5)
    inside = {name: np.full((n, 2), 0.5, np.float32) for name, n in N_ROWS.items()}
    assert kappa_of(inside, SHARED, MAX_COUNT) == 0
    # Also an outlier of the visits alone counts, and a broken draw is never inside.
    assert kappa_of(inside | {"slot": np.full((2, 2), 100, np.float32)}, SHARED, MAX_COUNT) == 48
    assert kappa_of(inside | {"slot": np.full((2, 2), np.nan, np.float32)}, SHARED, MAX_COUNT) == np.inf


def test_the_first_draw_inside_is_taken_and_tries_share_the_cells(tried):
    keys = [jax.random.fold_in(jax.random.key(0), number) for number in range(20)]
    outside = [brute(drawn(key)) for key in keys]
    kappa = sorted(outside)[2]
    found = {name: draws[0, -1] for name, draws in within(0, kappa + 1e-4).draws.items()}
    first = next(number for number, each in enumerate(outside) if each <= kappa + 1e-4)
    assert len(tried) == first + 1 > 1
    np.testing.assert_array_equal(found["user"], drawn(keys[first])["user"])
    assert all(cells is tried[0][1] for _, cells in tried)


def test_retries_end_and_say_how_near_they_came(tried):
    with pytest.raises(NumericalError, match=r"none of 4 draws .* kappa = 0\.01 .* nearest is \d"):
        within(0, 0.01, max_tries=4)
    assert len(tried) == 4
    for wrong in ({"max_tries": 0}, {"kappa": -1.0}, {"kappa": float("nan")}):
        with pytest.raises(InputError, match="at least one try"):
            within(0, **({"kappa": 1.0} | wrong))


def test_weighted_zeros_are_refused_because_the_budget_is_that_of_sampled_ones(tried):
    counts = count_tensors(toy_city(n_users=5, n_places=8, n_days=1, seed=0).traces, seed=0)
    for zeros in ("sampled", "weighted"):
        with pytest.raises(InputError, match="weighted") if zeros == "weighted" else nullcontext():
            within(0, 1e3, cells=observe(counts, zeros, 5, seed=0))
    assert len(tried) == 1
