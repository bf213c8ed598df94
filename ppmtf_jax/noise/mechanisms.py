"""Laplace noise for differential privacy, from OpenDP.

Private noise must come from OpenDP, because floating-point samplers, such as those of NumPy and JAX, reveal the true
value in the low bits of their results. OpenDP draws integers exactly, from the system's secure source, without a seed.

Both synthesizers and privacy tests use this module.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, TypeVar

import numpy as np

from ppmtf_jax.errors import InputError, NumericalError, Problem, raise_any
from ppmtf_jax.streams import Stage, numpy_stream

Values = TypeVar("Values", int, float, np.ndarray)
"""A whole number, a float, or an array of either."""

# Noise with a larger scale reaches the limits of 64-bit integers, where OpenDP clamps it.
MAX_SCALE = 2.0**57


def add_laplace(values: Values, sensitivity: int | float, epsilon: int | float) -> Values:
    """Add independent Laplace noise: discrete noise to whole numbers, continuous noise to floats.

    The probability, or density, of the noise x is proportional to exp(-|x| epsilon / sensitivity). The result is
    epsilon-differentially private for neighbours whose `values` differ by at most `sensitivity` in all (L1): OpenDP's
    privacy map of the mechanism, which rounds only upwards, gives at most epsilon for them.

    To floats, OpenDP adds discrete Laplace noise on the grid of multiples of 2^-1074, which contains every float, in
    exact arithmetic, and rounds the sum. So the low bits reveal nothing more than the sum does (Mironov 2012). But
    `sensitivity` must hold for the floats themselves, including rounding errors in their computation. Whole numbers
    avoid this problem and are twice as fast.

    The result has the shape of `values`. `sensitivity`: above 0; for whole numbers a whole number. Raises `InputError`:
    epsilon or the sensitivity would give no protection, or a value is not finite. Raises `NumericalError`: according to
    its privacy map, the mechanism costs more than epsilon; then nothing is drawn.

    Examples
    --------
    >>> noisy = add_laplace(np.zeros(1000, int), sensitivity=1, epsilon=2.0)
    >>> noisy.dtype, bool(-1 < noisy.mean() < 1)
    (dtype('int64'), True)
    """
    exact = np.asarray(values)
    scale = laplace_scale(exact, sensitivity, epsilon)
    measurement = _laplace_measurement(exact.dtype.kind, scale)
    spent = measurement.map(d_in=int(sensitivity) if exact.dtype.kind == "i" else float(sensitivity))
    if not spent <= epsilon:
        raise NumericalError(f"the noise would cost an epsilon of {spent!r}, and {epsilon!r} was asked for")
    wide = np.int64 if exact.dtype.kind == "i" else np.float64
    noisy = np.asarray(measurement(exact.ravel().tolist()), wide)
    return like(values, noisy.reshape(exact.shape))


def laplace_scale(values: np.ndarray, sensitivity: int | float, epsilon: int | float) -> float:
    """Check the arguments of `add_laplace`, and return the scale of its noise."""
    check_noise(values, sensitivity, "epsilon", epsilon, kinds="if")
    # Use the next larger float, because a quotient that is rounded down would cost slightly more than epsilon.
    scale = float(np.nextafter(sensitivity / epsilon, np.inf))
    if not scale < (MAX_SCALE if values.dtype.kind == "i" else np.inf):
        problem = Problem("noise that 64 bits can hold", f"a scale of {scale:g}", way_out="Raise epsilon")
        raise InputError("noise", [problem])
    return scale


def check_noise(values: np.ndarray, sensitivity: int | float, amount: str, loss: int | float, kinds: str) -> None:
    """Refuse values, a sensitivity or a loss with which noise would give no protection.

    `kinds`: values that the mechanism accepts, "i" for whole numbers and "f" for floats. `amount`: name of the loss.
    """
    problems: list[Problem | str] = []
    if not 0 < loss < np.inf:
        problems.append(Problem(f"a positive, finite {amount}", repr(loss)))
    if not 0 < sensitivity < np.inf:
        problems.append(Problem("a positive, finite sensitivity", repr(sensitivity)))
    elif values.dtype.kind == "i" and sensitivity != int(sensitivity):
        way_out = "Round it up" + (", or give the values as floats" if "f" in kinds else "")
        problems.append(
            Problem("a whole number as the sensitivity of whole numbers", repr(sensitivity), way_out=way_out)
        )
    if values.dtype.kind not in kinds:
        floats = " or floats" if "f" in kinds else ""
        problems.append(Problem(f"whole numbers of up to 64 bits{floats}", f"values of type {values.dtype}"))
    elif not np.isfinite(values).all():
        # OpenDP would silently replace NaN by 0 and infinity by the largest float.
        problems.append(Problem("finite values", "NaN or infinity", int((~np.isfinite(values)).sum())))
    raise_any("noise", problems)


def like(values: Values, noisy: np.ndarray) -> Values:
    """Return an array for an array, and a number for a number."""
    return noisy if isinstance(values, np.ndarray) else noisy.item()  # pyright: ignore[reportReturnType]


def _laplace_measurement(kind: str, scale: float) -> Any:
    """OpenDP's measurement for a vector of 64-bit integers ("i") or floats."""
    # Imported here because loading the library takes a second.
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_laplace
    from opendp.metrics import l1_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    if kind == "i":
        return make_laplace(vector_domain(atom_domain(T="i64")), l1_distance(T="i64"), scale=scale)
    return make_laplace(vector_domain(atom_domain(T="f64", nan=False)), l1_distance(T="f64"), scale=scale)


WholeNumbers = TypeVar("WholeNumbers", int, np.ndarray)
"""A whole number or an array of whole numbers."""

# The scale sensitivity / sqrt(2 rho) is multiplied by this factor, which is larger than OpenDP's upward rounding.
ROUNDING = 1 + 2.0**-49


def add_gaussian(values: WholeNumbers, sensitivity: int | float, rho: float) -> WholeNumbers:
    """Add independent discrete Gaussian noise to whole numbers (Canonne, Kamath and Steinke 2020).

    The probability of the noise x is proportional to exp(-x^2 / (2 scale^2)), where scale = sensitivity / sqrt(2 rho).
    The result is rho-zero-concentrated differentially private (Bun and Steinke 2016) for neighbours whose `values` are
    at most `sensitivity` apart in the Euclidean norm (L2). OpenDP draws exactly, without a seed. OpenDP's privacy map,
    which computes the loss of the mechanism and rounds only upwards, gives at most rho.

    The result has the shape of `values`. `sensitivity`: a whole number above 0. Raises `InputError`: rho or the
    sensitivity would give no protection, the noise would not fit into 64 bits, or the values are not whole numbers.
    Raises `NumericalError`: according to its privacy map, the mechanism costs more than rho; then nothing is drawn.

    Examples
    --------
    >>> noisy = add_gaussian(np.zeros(1000, int), sensitivity=2, rho=0.5)
    >>> noisy.dtype, bool(1.5 < noisy.std() < 2.5)
    (dtype('int64'), True)
    """
    exact = np.asarray(values)
    measurement = _gaussian_measurement(gaussian_scale(exact, sensitivity, rho))
    spent = measurement.map(d_in=int(sensitivity))
    if not spent <= rho:
        raise NumericalError(f"the noise would cost a rho of {spent!r}, and {rho!r} was asked for")
    noisy = np.asarray(measurement(exact.ravel().tolist()), np.int64)
    return like(values, noisy.reshape(exact.shape))


def gaussian_scale(values: np.ndarray, sensitivity: int | float, rho: float) -> float:
    """Check the arguments of `add_gaussian`, and return the scale of its noise."""
    check_noise(values, sensitivity, "rho", rho, kinds="i")
    scale = sensitivity / math.sqrt(2 * rho) * ROUNDING
    if not scale < MAX_SCALE:
        problem = Problem("noise that 64 bits can hold", f"a scale of {scale:g}", way_out="Raise rho")
        raise InputError("noise", [problem])
    return scale


def _gaussian_measurement(scale: float) -> Any:
    """OpenDP's measurement for a vector of 64-bit integers."""
    # Imported here because loading the library takes a second.
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    return make_gaussian(vector_domain(atom_domain(T="i64")), l2_distance(T="i64"), scale=scale)


class NoiseSource(ABC):
    """Source of a mechanism's noise; the mechanism is differentially private only if `is_private` is true."""

    is_private: bool

    @abstractmethod
    def add_laplace(self, values: Values, sensitivity: int | float, epsilon: int | float) -> Values:
        """Add Laplace noise as `ppmtf_jax.noise.mechanisms.add_laplace` does."""

    @abstractmethod
    def add_gaussian(self, values: WholeNumbers, sensitivity: int | float, rho: float) -> WholeNumbers:
        """Add Gaussian noise as `ppmtf_jax.noise.mechanisms.add_gaussian` does."""


class SecureNoise(NoiseSource):
    """Noise from OpenDP, which nobody can reproduce: the source for releases."""

    is_private = True

    def add_laplace(self, values: Values, sensitivity: int | float, epsilon: int | float) -> Values:
        return add_laplace(values, sensitivity, epsilon)

    def add_gaussian(self, values: WholeNumbers, sensitivity: int | float, rho: float) -> WholeNumbers:
        return add_gaussian(values, sensitivity, rho)


class SeededNoise(NoiseSource):
    """Laplace and Gaussian noise with the same distributions as OpenDP's, from a seed; not private.

    The same calls in the same order get the same noise.

    Parameters
    ----------
    seed : int
        From 0 to 2^128 - 1.

    Examples
    --------
    >>> first, second = (SeededNoise(7).add_laplace(np.arange(5), sensitivity=1, epsilon=0.5) for _ in range(2))
    >>> bool((first == second).all()), SeededNoise(7).is_private
    (True, False)
    """

    is_private = False

    def __init__(self, seed: int):
        self._stream = numpy_stream(seed, Stage.EXPERIMENTAL_NOISE)

    def add_laplace(self, values: Values, sensitivity: int | float, epsilon: int | float) -> Values:
        exact = np.asarray(values)
        scale = laplace_scale(exact, sensitivity, epsilon)
        if exact.dtype.kind == "i":
            noise = self._discrete_laplace(scale, exact.size)
        else:
            noise = self._stream.laplace(scale=scale, size=exact.size)
        return like(values, (exact.ravel() + noise).reshape(exact.shape))

    def add_gaussian(self, values: WholeNumbers, sensitivity: int | float, rho: float) -> WholeNumbers:
        exact = np.asarray(values)
        scale = gaussian_scale(exact, sensitivity, rho)
        noise, width = np.zeros(0, np.int64), np.floor(scale) + 1
        # Rejection from discrete Laplace (Canonne, Kamath and Steinke 2020, algorithm 3).
        while len(noise) < exact.size:
            drawn = self._discrete_laplace(width, 2 * exact.size)
            accepted = self._stream.random(drawn.size) < np.exp(-(((np.abs(drawn) / scale) - scale / width) ** 2) / 2)
            noise = np.concatenate([noise, drawn[accepted]])
        return like(values, (exact.ravel() + noise[: exact.size]).reshape(exact.shape))

    def _discrete_laplace(self, scale: float, n: int) -> np.ndarray:
        """The difference of two geometric numbers with the same success probability is discrete Laplace."""
        first, second = self._stream.geometric(-np.expm1(-1 / scale), (2, n))
        return first - second
