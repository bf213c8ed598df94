"""Noise has the distribution that it must have."""

from __future__ import annotations

import numpy as np
import pytest
from opendp import measurements
from scipy import stats

from ppmtf_jax.errors import InputError, NumericalError
from ppmtf_jax.noise.laplace import add_laplace

# The noise has no seed: a test that a right sampler fails once in a million runs.
FALSE_ALARM = 1e-6
N = 20_000


def fit_ratio(noise: np.ndarray, scale: float) -> float:
    """Chi-square of the noise's values against the discrete Laplace distribution, in units of its quantile."""
    law = stats.dlaplace(1 / scale)
    reach = int(law.isf(50 / N))
    values = np.arange(-reach, reach + 1)
    expected = np.concatenate([[law.cdf(-reach - 1)], law.pmf(values), [law.sf(reach)]]) * N
    clipped = np.clip(noise, -reach - 1, reach + 1)
    observed = np.bincount(clipped + reach + 1, minlength=len(expected))
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float(statistic / stats.chi2.isf(FALSE_ALARM, len(expected) - 1))


def test_noise_is_discrete_laplace_of_the_right_scale():
    noise = add_laplace(np.full(N, 7), 3, 0.5) - 7
    assert fit_ratio(noise, 6.0) < 1
    # Planted: the scale of another sensitivity.
    assert fit_ratio(noise, 5.0) > 1


def test_shape_is_kept_and_values_are_whole_numbers():
    noisy = add_laplace(np.zeros((3, 4), np.int32), 1, 1.0)
    assert noisy.shape == (3, 4)
    assert noisy.dtype == np.int64


@pytest.mark.parametrize(("sensitivity", "epsilon"), [(1, 0.0), (1, -1.0), (1, np.inf), (1, np.nan), (0, 1.0)])
def test_what_would_be_no_protection_is_refused(sensitivity, epsilon):
    with pytest.raises(InputError, match="epsilon"):
        add_laplace(np.zeros(3, int), sensitivity, epsilon)


def test_noise_never_costs_more_than_epsilon():
    """Where the quotient of sensitivity and epsilon is rounded down, OpenDP counts the last digit: none is refused."""
    rng = np.random.default_rng(0)
    for sensitivity, power in zip(rng.integers(1, 3000, 300).tolist(), rng.uniform(-4, 3, 300), strict=True):
        add_laplace(np.zeros(1, int), sensitivity, 10.0**power)


@pytest.mark.parametrize("error", [1 / 2, 1 - 1e-12])
def test_planted_scale_that_is_too_small_is_refused(monkeypatch, error):
    original = measurements.make_laplace
    monkeypatch.setattr(measurements, "make_laplace", lambda *space, scale: original(*space, scale=scale * error))
    with pytest.raises(NumericalError, match=r"would cost an epsilon of .*, and 0\.5 was asked for"):
        add_laplace(np.zeros(3, int), 3, 0.5)
