"""Noise has the distribution that it must have, tells nothing else of the value, and never costs more than it may."""

from __future__ import annotations

import math

import numpy as np
import pytest
from opendp import measurements
from scipy import stats

from ppmtf_jax.errors import InputError, NumericalError
from ppmtf_jax.noise.mechanisms import SecureNoise, SeededNoise, add_gaussian, add_laplace

# OpenDP's noise has no seed: a test that a right sampler fails once in a million runs.
FALSE_ALARM = 1e-6
N = 20_000


def chi_square_ratio(observed: np.ndarray, expected: np.ndarray) -> float:
    """Of counts in cells, in units of the quantile that a right sampler exceeds once in a million times."""
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float(statistic / stats.chi2.isf(FALSE_ALARM, len(expected) - 1))


def fit_ratio(noise: np.ndarray, scale: float) -> float:
    """Chi-square of the noise's values against the discrete Laplace distribution, in units of its quantile."""
    distribution = stats.dlaplace(1 / scale)
    reach = int(distribution.isf(50 / N))
    values = np.arange(-reach, reach + 1)
    expected = np.concatenate([[distribution.cdf(-reach - 1)], distribution.pmf(values), [distribution.sf(reach)]]) * N
    clipped = np.clip(noise, -reach - 1, reach + 1)
    return chi_square_ratio(np.bincount(clipped + reach + 1, minlength=len(expected)), expected)


def continuous_fit_ratio(noise: np.ndarray, scale: float) -> float:
    """The same for floats, in 100 cells that are equally probable under the Laplace distribution."""
    cell = (stats.laplace(scale=scale).cdf(noise) * 100).astype(int)
    return chi_square_ratio(np.bincount(cell, minlength=100), np.full(100, N / 100))


@pytest.mark.parametrize("source", [SecureNoise(), SeededNoise(0)])
def test_noise_is_discrete_laplace_of_the_right_scale(source):
    noise = source.add_laplace(np.full(N, 7), 3, 0.5) - 7
    assert fit_ratio(noise, 6.0) < 1
    # Planted: the scale of another sensitivity.
    assert fit_ratio(noise, 5.0) > 1


@pytest.mark.parametrize("source", [SecureNoise(), SeededNoise(0)])
def test_noise_of_floats_is_laplace_of_the_right_scale(source):
    noise = source.add_laplace(np.full(N, 0.25), 0.003, 0.5) - 0.25
    assert continuous_fit_ratio(noise, 0.006) < 1
    assert continuous_fit_ratio(noise, 0.005) > 1


@pytest.mark.parametrize("source", [SecureNoise(), SeededNoise(0)])
def test_shape_and_kind_are_kept(source):
    for dtype, wide in ((np.int32, np.int64), (np.int64, np.int64), (np.float32, np.float64)):
        for shape in ((3, 4), (0,), ()):
            noisy = source.add_laplace(np.zeros(shape, dtype), 1, 1.0)
            assert (noisy.shape, noisy.dtype) == (shape, wide)
    assert type(source.add_laplace(3, 1, 1.0)) is int
    assert type(source.add_laplace(0.3, 0.1, 1.0)) is float
    assert source.add_gaussian(np.zeros((3, 4), np.int32), 1, 1.0).shape == (3, 4)
    assert type(source.add_gaussian(3, 1, 1.0)) is int


@pytest.mark.parametrize(
    ("values", "sensitivity", "epsilon", "told"),
    [
        (np.zeros(3, int), 1, 0.0, "epsilon"),
        (np.zeros(3, int), 1, -1.0, "epsilon"),
        (np.zeros(3, int), 1, np.inf, "epsilon"),
        (np.zeros(3, int), 1, np.nan, "epsilon"),
        (np.zeros(3, int), 0, 1.0, "sensitivity"),
        (np.zeros(3), np.nan, 1.0, "sensitivity"),
        (np.zeros(3, int), 1.5, 1.0, "whole number as the sensitivity.*Round it up"),
        (np.array([0.0, np.nan, np.inf]), 1, 1.0, r"finite values.*2 rows"),
        (np.array([0.0, np.nan]), 1, 1.0, "finite values"),
        (np.array([0.0, -np.inf]), 1, 1.0, "finite values"),
        (np.zeros(3, bool), 1, 1.0, "type bool"),
        (np.zeros(3, np.uint64), 1, 1.0, "type uint64"),
        (np.zeros(3, int), 1, 1e-18, "64 bits.*Raise epsilon"),
        (np.zeros(3), 1e300, 1e-300, "64 bits.*Raise epsilon"),
    ],
)
def test_what_would_be_no_protection_is_refused(values, sensitivity, epsilon, told):
    for source in (SecureNoise(), SeededNoise(0)):
        with pytest.raises(InputError, match=told):
            source.add_laplace(values, sensitivity, epsilon)


@pytest.mark.parametrize("zero", [0, 0.0])
def test_noise_never_costs_more_than_epsilon(zero):
    """Where the quotient of sensitivity and epsilon is rounded down, OpenDP counts the last digit: none is refused."""
    rng = np.random.default_rng(0)
    for sensitivity, power in zip(rng.integers(1, 3000, 300).tolist(), rng.uniform(-4, 3, 300), strict=True):
        add_laplace(zero, sensitivity, 10.0**power)


@pytest.mark.parametrize("error", [1 / 2, 1 - 1e-12])
@pytest.mark.parametrize("zeros", [np.zeros(3, int), np.zeros(3)])
def test_planted_scale_that_is_too_small_is_refused(monkeypatch, error, zeros):
    original = measurements.make_laplace
    monkeypatch.setattr(measurements, "make_laplace", lambda *space, scale: original(*space, scale=scale * error))
    with pytest.raises(NumericalError, match=r"would cost an epsilon of .*, and 0\.5 was asked for"):
        add_laplace(zeros, 3, 0.5)


def reachable(answer: float, outputs: np.ndarray) -> np.ndarray:
    """Whether NumPy's sampler of scale 1 can give an output when the true answer is `answer` (Mironov 2012).

    It computes answer + log(u + u), or answer - log(2 - u - u) from u = 1/2 on, of a multiple u of 2^-53 below 1. So an
    output comes of a u near exp(-|output - answer|) / 2, or 1 minus that, and there are few multiples that near.
    """

    def sample(u: float) -> float:
        return answer - math.log(2.0 - u - u) if u >= 0.5 else answer + math.log(u + u)

    def is_reached(output: float) -> bool:
        half = math.exp(-abs(output - answer)) / 2
        near = round((1 - half if output > answer else half) * 2**53)
        candidates = range(max(1, near - 4), min(2**53 - 1, near + 4) + 1)
        return any(sample(u * 2.0**-53) == output for u in candidates)

    return np.array([is_reached(output) for output in outputs.tolist()])


def told_apart(outputs: list[np.ndarray], mark: np.ndarray) -> bool:
    """Whether a mark is more frequent among the outputs for one of two true answers than chance explains."""
    shown = [len(part) for part in outputs]
    marked = [int(part.sum()) for part in np.split(mark, [shown[0]])]
    table = [[marked[0], shown[0] - marked[0]], [marked[1], shown[1] - marked[1]]]
    return bool(stats.fisher_exact(table).pvalue < FALSE_ALARM)


def numpy_laplace(values: np.ndarray) -> np.ndarray:
    return np.random.default_rng(0).laplace(loc=values, scale=1.0)


@pytest.fixture(scope="module")
def outputs_for_0_and_1() -> dict[str, list[np.ndarray]]:
    samplers = {"ours": lambda values: add_laplace(values, 1.0, 1.0), "NumPy's": numpy_laplace}
    return {name: [sampler(np.full(N, answer)) for answer in (0.0, 1.0)] for name, sampler in samplers.items()}


LOW_BITS = {
    # Above both answers both densities are multiples of exp(-x), below both of exp(x).
    "reachable from 0": (lambda x: x > 1, lambda x: reachable(0.0, x)),
    "reachable from 1": (lambda x: x > 1, lambda x: reachable(1.0, x)),
    "last four bits are 0": (lambda x: (x > -0.25) & (x < 0), lambda x: x.view(np.int64) % 16 == 0),
}


@pytest.mark.parametrize("name", LOW_BITS)
def test_low_bits_do_not_tell_the_true_answer(outputs_for_0_and_1, name):
    """In a region where, by the densities alone, the outputs for both answers have one and the same distribution.

    There only the low bits could tell 0 from 1: Fisher's test is exact. The planted sampler that tells is NumPy's.
    """
    region, mark = LOW_BITS[name]
    for sampler, both in outputs_for_0_and_1.items():
        outputs = [noisy[region(noisy)][:600] for noisy in both]
        assert min(map(len, outputs)) > 500
        assert told_apart(outputs, mark(np.concatenate(outputs))) == (sampler == "NumPy's")


def test_the_attack_knows_what_numpy_can_give():
    """Each answer reaches all of its own outputs; of the other's, NumPy's sampler gives many away for certain."""
    rng = np.random.default_rng(1)
    outputs = [rng.laplace(loc=answer, scale=1.0, size=500) for answer in (0.0, 1.0)]
    assert reachable(0.0, outputs[0]).all()
    assert reachable(1.0, outputs[1]).all()
    assert reachable(1.0, outputs[0]).mean() < 0.7
    assert reachable(0.0, outputs[1]).mean() < 0.7


def test_seeded_noise_repeats_and_goes_on():
    source, again, other = SeededNoise(3), SeededNoise(3), SeededNoise(4)
    first, second = (source.add_laplace(np.zeros(50, int), 10, 0.1) for _ in range(2))
    np.testing.assert_array_equal(first, again.add_laplace(np.zeros(50, int), 10, 0.1))
    assert (first != second).any()
    assert (first != other.add_laplace(np.zeros(50, int), 10, 0.1)).any()
    assert not source.is_private
    assert SecureNoise().is_private


def gaussian_fit_ratio(noise: np.ndarray, scale: float) -> float:
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
    assert gaussian_fit_ratio(noise, scale) < 1
    # Planted: the scale of another sensitivity, and noise divided by sqrt(2).
    assert gaussian_fit_ratio(noise, scale * 1.2) > 1
    assert gaussian_fit_ratio(noise, scale * np.sqrt(2)) > 1


def test_a_rounded_gaussian_of_small_scale_is_told_apart():
    assert gaussian_fit_ratio(np.rint(np.random.default_rng(0).normal(0, 0.5, N)).astype(int), 0.5) > 1


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
def test_gaussian_noise_that_would_be_no_protection_is_refused(values, sensitivity, rho, told):
    for source in (SecureNoise(), SeededNoise(0)):
        with pytest.raises(InputError, match=told):
            source.add_gaussian(values, sensitivity, rho)


def test_noise_never_costs_more_than_rho():
    """OpenDP rounds the cost up, so the scale must be a little larger than the quotient: none is refused."""
    rng = np.random.default_rng(0)
    for sensitivity, power in zip(rng.integers(1, 3000, 300).tolist(), rng.uniform(-6, 3, 300), strict=True):
        add_gaussian(0, sensitivity, 10.0**power)


@pytest.mark.parametrize("error", [np.sqrt(1 / 2), 1 - 1e-12])
def test_planted_gaussian_scale_that_is_too_small_is_refused(monkeypatch, error):
    original = measurements.make_gaussian
    monkeypatch.setattr(measurements, "make_gaussian", lambda *space, scale: original(*space, scale=scale * error))
    with pytest.raises(NumericalError, match=r"would cost a rho of .*, and 0\.5 was asked for"):
        add_gaussian(np.zeros(3, int), 3, 0.5)
