"""Gaussian noise has the distribution that it must have, and never costs more than rho."""

from __future__ import annotations

import numpy as np
import pytest
from opendp import measurements
from scipy import stats

from ppmtf_jax.errors import InputError, NumericalError
from ppmtf_jax.noise.mechanisms import SecureNoise, SeededNoise, add_gaussian

# OpenDP's noise has no seed: a test that a right sampler fails once in a million runs.
FALSE_ALARM = 1e-6
N = 20_000


def fit_ratio(noise: np.ndarray, scale: float) -> float:
    """Chi-square of the noise against the discrete Gaussian distribution, in units of its quantile of 1 - 1e-6.

    The cells are single values; those with fewer than 50 expected draws join the last cell of their side.
    """
    far = np.arange(int(12 * scale) + 2)
    weight = np.exp(-((far / scale) ** 2) / 2)
    probability = np.concatenate([weight[:0:-1], weight]) / (2 * weight.sum() - 1)
    reach = int(np.flatnonzero(probability[len(weight) - 1 :] * N >= 50).max())
    values = np.clip(np.arange(1 - len(weight), len(weight)), -reach - 1, reach + 1)
    expected = np.bincount(values + reach + 1, probability * N)
    observed = np.bincount(np.clip(noise, -reach - 1, reach + 1) + reach + 1, minlength=len(expected))
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float(statistic / stats.chi2.isf(FALSE_ALARM, len(expected) - 1))


@pytest.mark.parametrize("source", [SecureNoise(), SeededNoise(0)])
@pytest.mark.parametrize(("sensitivity", "rho", "scale"), [(3, 0.125, 6.0), (1, 2.0, 0.5), (1, 0.5, 1.0)])
def test_noise_is_discrete_gaussian_of_the_right_scale(source, sensitivity, rho, scale):
    noise = source.add_gaussian(np.full(N, 7), sensitivity, rho) - 7
    assert fit_ratio(noise, scale) < 1
    # Planted: the scale of another sensitivity, and noise divided by sqrt(2).
    assert fit_ratio(noise, scale * 1.2) > 1
    assert fit_ratio(noise, scale * np.sqrt(2)) > 1


def test_a_rounded_gaussian_of_small_scale_is_told_apart():
    assert fit_ratio(np.rint(np.random.default_rng(0).normal(0, 0.5, N)).astype(int), 0.5) > 1


@pytest.mark.parametrize("source", [SecureNoise(), SeededNoise(0)])
def test_shape_and_kind_are_kept(source):
    for shape in ((3, 4), (0,), ()):
        noisy = source.add_gaussian(np.zeros(shape, np.int32), 1, 1.0)
        assert (noisy.shape, noisy.dtype) == (shape, np.int64)
    assert type(source.add_gaussian(3, 1, 1.0)) is int


@pytest.mark.parametrize(
    ("values", "sensitivity", "rho", "told"),
    [
        (np.zeros(3, int), 1, 0.0, "rho"),
        (np.zeros(3, int), 1, np.inf, "rho"),
        (np.zeros(3, int), 0, 1.0, "sensitivity"),
        (np.zeros(3, int), 1.5, 1.0, "whole number as the sensitivity.*Round it up"),
        (np.zeros(3), 1, 1.0, "whole numbers of up to 64 bits; found values of type float64"),
        (np.zeros(3, int), 1, 1e-40, "64 bits.*Raise rho"),
    ],
)
def test_what_would_be_no_protection_is_refused(values, sensitivity, rho, told):
    for source in (SecureNoise(), SeededNoise(0)):
        with pytest.raises(InputError, match=told):
            source.add_gaussian(values, sensitivity, rho)


def test_noise_never_costs_more_than_rho():
    """OpenDP rounds the cost up, so the scale must be a little larger than the quotient: none is refused."""
    rng = np.random.default_rng(0)
    for sensitivity, power in zip(rng.integers(1, 3000, 300).tolist(), rng.uniform(-6, 3, 300), strict=True):
        add_gaussian(0, sensitivity, 10.0**power)


@pytest.mark.parametrize("error", [np.sqrt(1 / 2), 1 - 1e-12])
def test_planted_scale_that_is_too_small_is_refused(monkeypatch, error):
    original = measurements.make_gaussian
    monkeypatch.setattr(measurements, "make_gaussian", lambda *space, scale: original(*space, scale=scale * error))
    with pytest.raises(NumericalError, match=r"would cost a rho of .*, and 0\.5 was asked for"):
        add_gaussian(np.zeros(3, int), 3, 0.5)


def test_seeded_noise_repeats_and_goes_on():
    source, again, other = SeededNoise(3), SeededNoise(3), SeededNoise(4)
    first, second = (source.add_gaussian(np.zeros(50, int), 10, 0.1) for _ in range(2))
    np.testing.assert_array_equal(first, again.add_gaussian(np.zeros(50, int), 10, 0.1))
    assert (first != second).any()
    assert (first != other.add_gaussian(np.zeros(50, int), 10, 0.1)).any()
