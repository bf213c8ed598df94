"""Noise for differential privacy from OpenDP, and noise from a seed for experiments.

Private noise must come from OpenDP, because floating-point samplers, such as those of NumPy and JAX, reveal the true
value in the low bits of their results. OpenDP draws integers exactly, from the system's secure source, without a seed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, Literal, TypeVar

import numpy as np

from ppmtf_jax.errors import InputError, NumericalError, Problem, raise_any
from ppmtf_jax.streams import Stage, numpy_stream

Values = TypeVar("Values", int, float, np.ndarray)
"""A whole number, a float, or an array of either."""
WholeNumbers = TypeVar("WholeNumbers", int, np.ndarray)
"""A whole number or an array of whole numbers."""

# Noise with a larger scale reaches the limits of 64-bit integers, where OpenDP clamps it.
MAX_SCALE = 2.0**57
# The scale of Gaussian noise is multiplied by this factor, which is larger than OpenDP's upward rounding.
ROUNDING = 1 + 2.0**-49


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
    return _add_by_opendp(
        "epsilon", values, laplace_scale(np.asarray(values), sensitivity, epsilon), sensitivity, epsilon
    )


def add_gaussian(values: WholeNumbers, sensitivity: int | float, rho: float) -> WholeNumbers:
    """Add independent discrete Gaussian noise to whole numbers (Canonne, Kamath and Steinke 2020).

    The probability of the noise x is proportional to exp(-x^2 / (2 scale^2)), where scale = sensitivity / sqrt(2 rho).
    The result is rho-zero-concentrated differentially private (Bun and Steinke 2016) for neighbours whose `values` are
    at most `sensitivity` apart in the Euclidean norm (L2). OpenDP's privacy map gives at most rho.

    `sensitivity`: a whole number above 0. Raises `InputError`: rho or the sensitivity would give no protection, the
    noise would not fit into 64 bits, or the values are not whole numbers. Raises `NumericalError`: as `add_laplace`.

    Examples
    --------
    >>> noisy = add_gaussian(np.zeros(1000, int), sensitivity=2, rho=0.5)
    >>> noisy.dtype, bool(1.5 < noisy.std() < 2.5)
    (dtype('int64'), True)
    """
    return _add_by_opendp("rho", values, gaussian_scale(np.asarray(values), sensitivity, rho), sensitivity, rho)


def laplace_scale(values: np.ndarray, sensitivity: int | float, epsilon: int | float) -> float:
    """Check the arguments of `add_laplace`, and return the scale of its noise."""
    _check(values, sensitivity, "epsilon", epsilon, kinds="if")
    # Use the next larger float, because a quotient that is rounded down would cost slightly more than epsilon.
    scale = float(np.nextafter(sensitivity / epsilon, np.inf))
    return _possible(scale, MAX_SCALE if values.dtype.kind == "i" else np.inf, "epsilon")


def gaussian_scale(values: np.ndarray, sensitivity: int | float, rho: float) -> float:
    """Check the arguments of `add_gaussian`, and return the scale of its noise."""
    _check(values, sensitivity, "rho", rho, kinds="i")
    return _possible(sensitivity / math.sqrt(2 * rho) * ROUNDING, MAX_SCALE, "rho")


class NoiseSource(ABC):
    """Source of a mechanism's noise; the mechanism is differentially private only if `is_private` is true."""

    is_private: bool

    @abstractmethod
    def add_laplace(self, values: Values, sensitivity: int | float, epsilon: int | float) -> Values:
        """Add Laplace noise as the function `add_laplace` does."""

    @abstractmethod
    def add_gaussian(self, values: WholeNumbers, sensitivity: int | float, rho: float) -> WholeNumbers:
        """Add Gaussian noise as the function `add_gaussian` does."""


class SecureNoise(NoiseSource):
    """Noise from OpenDP, which nobody can reproduce: the source for releases."""

    is_private = True

    def add_laplace(self, values: Values, sensitivity: int | float, epsilon: int | float) -> Values:
        return add_laplace(values, sensitivity, epsilon)

    def add_gaussian(self, values: WholeNumbers, sensitivity: int | float, rho: float) -> WholeNumbers:
        return add_gaussian(values, sensitivity, rho)


class SeededNoise(NoiseSource):
    """Laplace and Gaussian noise with the same distributions as OpenDP's, from a seed: **it protects nobody**.

    OpenDP accepts no seed, so this is a sampler of its own, for experiments. A person who knows the seed can remove the
    noise, and the low bits of floats reveal the true values even without the seed. A ledger with this noise says that
    it is not private. The same calls in the same order get the same noise.

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
            return _like(values, exact.ravel() + self._discrete_laplace(scale, exact.size))
        return _like(values, exact.ravel() + self._stream.laplace(scale=scale, size=exact.size))

    def add_gaussian(self, values: WholeNumbers, sensitivity: int | float, rho: float) -> WholeNumbers:
        exact = np.asarray(values)
        scale = gaussian_scale(exact, sensitivity, rho)
        noise, width = np.zeros(0, np.int64), np.floor(scale) + 1
        # Rejection from discrete Laplace (Canonne, Kamath and Steinke 2020, algorithm 3).
        while len(noise) < exact.size:
            drawn = self._discrete_laplace(width, 2 * exact.size)
            accepted = self._stream.random(drawn.size) < np.exp(-(((np.abs(drawn) / scale) - scale / width) ** 2) / 2)
            noise = np.concatenate([noise, drawn[accepted]])
        return _like(values, exact.ravel() + noise[: exact.size])

    def _discrete_laplace(self, scale: float, n: int) -> np.ndarray:
        """The difference of two geometric numbers with the same success probability is discrete Laplace."""
        first, second = self._stream.geometric(-np.expm1(-1 / scale), (2, n))
        return first - second


def _add_by_opendp(
    loss: Literal["epsilon", "rho"], values: Values, scale: float, sensitivity: int | float, allowed: int | float
) -> Values:
    """Add OpenDP's Laplace (epsilon) or Gaussian (rho) noise of this scale, if its privacy map allows it."""
    # Imported here because loading the library takes a second.
    from opendp import measurements, metrics
    from opendp.domains import atom_domain, vector_domain
    from opendp.mod import enable_features

    enable_features("contrib")
    exact = np.asarray(values)
    whole = exact.dtype.kind == "i"
    atoms = atom_domain(T="i64") if whole else atom_domain(T="f64", nan=False)
    make, distance = (
        (measurements.make_laplace, metrics.l1_distance)
        if loss == "epsilon"
        else (measurements.make_gaussian, metrics.l2_distance)
    )
    measurement: Any = make(vector_domain(atoms), distance(T="i64" if whole else "f64"), scale=scale)
    spent = measurement.map(d_in=int(sensitivity) if whole else float(sensitivity))
    if not spent <= allowed:
        article = "an" if loss == "epsilon" else "a"
        raise NumericalError(f"the noise would cost {article} {loss} of {spent!r}, and {allowed!r} was asked for")
    return _like(values, np.asarray(measurement(exact.ravel().tolist()), np.int64 if whole else np.float64))


def _check(values: np.ndarray, sensitivity: int | float, amount: str, loss: int | float, kinds: str) -> None:
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
        expected = "a whole number as the sensitivity of whole numbers"
        problems.append(Problem(expected, repr(sensitivity), way_out=way_out))
    if values.dtype.kind not in kinds:
        floats = " or floats" if "f" in kinds else ""
        problems.append(Problem(f"whole numbers of up to 64 bits{floats}", f"values of type {values.dtype}"))
    elif not np.isfinite(values).all():
        # OpenDP would silently replace NaN by 0 and infinity by the largest float.
        problems.append(Problem("finite values", "NaN or infinity", int((~np.isfinite(values)).sum())))
    raise_any("noise", problems)


def _possible(scale: float, limit: float, amount: str) -> float:
    if not scale < limit:
        problem = Problem("noise that 64 bits can hold", f"a scale of {scale:g}", way_out=f"Raise {amount}")
        raise InputError("noise", [problem])
    return scale


def _like(values: Values, noisy: np.ndarray) -> Values:
    """An array of the shape of `values` for an array, and a number for a number."""
    return noisy.reshape(values.shape) if isinstance(values, np.ndarray) else noisy.item()  # pyright: ignore[reportReturnType]
