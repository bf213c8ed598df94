"""Noise for differential privacy, from OpenDP.

Nothing else may make it: floating-point samplers, NumPy's and JAX's among them, give the true value away in the low
bits of what they return. OpenDP draws integers exactly, from the system's secure source; hence there is no seed.

At the bottom of the package, since synthesizers (learning transitions) and privacy tests both draw from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar

import numpy as np

from ppmtf_jax.errors import InputError, NumericalError, Problem
from ppmtf_jax.runtime.devices import of_first_process

Values = TypeVar("Values", int, float, np.ndarray)
"""A whole number, a float, or an array of either."""

# Noise of a wider scale runs into the ends of 64-bit integers, where OpenDP cuts it off.
MAX_SCALE = 2.0**57


def add_laplace(values: Values, sensitivity: int | float, epsilon: int | float) -> Values:
    """Add independent Laplace noise, discrete to whole numbers and continuous to floats.

    Its probability, or density, is proportional to exp(-|x| epsilon / sensitivity). epsilon-differentially private for
    neighbours whose `values` differ by at most `sensitivity` in all (L1): the mechanism's own privacy map, which OpenDP
    computes with every rounding upwards, gives at most epsilon for them. Several processes, each of which calls this
    with the same `values`, get one draw: two would be two releases.

    To floats, OpenDP adds discrete Laplace noise on the grid of multiples of 2^-1074, of which every float is one, in
    exact arithmetic, and rounds the sum. So the low bits tell nothing more than the sum does (Mironov 2012). But
    `sensitivity` has to hold for the floats themselves: where they were computed with rounding, that counts too. Whole
    numbers, counted and scaled exactly, are free of it, and twice as fast.

    Parameters
    ----------
    values : int, float, or array of either, of any shape
    sensitivity : int or float
        Above 0; to whole numbers a whole number.
    epsilon : float

    Returns
    -------
    int, float, int64 or float64 array, of the shape of `values`

    Raises
    ------
    InputError
        Epsilon or the sensitivity would be no protection, or a value is not finite.
    NumericalError
        By its own map the noise costs more than epsilon. Nothing was drawn.

    Examples
    --------
    >>> noisy = add_laplace(np.zeros(1000, int), sensitivity=1, epsilon=2.0)
    >>> noisy.dtype, bool(-1 < noisy.mean() < 1)
    (dtype('int64'), True)
    >>> -1 < add_laplace(0.25, sensitivity=0.001, epsilon=0.5) < 1
    True
    """
    exact = np.asarray(values)
    scale = laplace_scale(exact, sensitivity, epsilon)
    measurement = _measurement(exact.dtype.kind, scale)
    spent = measurement.map(d_in=int(sensitivity) if exact.dtype.kind == "i" else float(sensitivity))
    if not spent <= epsilon:
        raise NumericalError(f"the noise would cost an epsilon of {spent!r}, and {epsilon!r} was asked for")
    wide = np.int64 if exact.dtype.kind == "i" else np.float64
    noisy = of_first_process(np.asarray(measurement(exact.ravel().tolist()), wide))
    return like(values, noisy.reshape(exact.shape))


class NoiseSource(ABC):
    """Where a mechanism takes its noise from; what it gives is differentially private only if `is_private`."""

    is_private: bool

    @abstractmethod
    def add_laplace(self, values: Values, sensitivity: int | float, epsilon: int | float) -> Values:
        """Add Laplace noise as `ppmtf_jax.noise.laplace.add_laplace` does."""


class SecureNoise(NoiseSource):
    """Noise from OpenDP, which nobody can repeat: what a release takes.

    Examples
    --------
    >>> SecureNoise().is_private
    True
    """

    is_private = True

    def add_laplace(self, values: Values, sensitivity: int | float, epsilon: int | float) -> Values:
        return add_laplace(values, sensitivity, epsilon)


def laplace_scale(values: np.ndarray, sensitivity: int | float, epsilon: int | float) -> float:
    """Scale of the noise that `add_laplace` adds, after the checks of what it was given.

    Raises
    ------
    InputError
        Epsilon or the sensitivity would be no protection, or a value is not finite.

    Examples
    --------
    >>> 6 <= laplace_scale(np.zeros(3, int), sensitivity=3, epsilon=0.5) < 6.0001
    True
    """
    problems: list[Problem | str] = []
    if not 0 < epsilon < np.inf:
        problems.append(Problem("a positive, finite epsilon", repr(epsilon)))
    if not 0 < sensitivity < np.inf:
        problems.append(Problem("a positive, finite sensitivity", repr(sensitivity)))
    elif values.dtype.kind == "i" and sensitivity != int(sensitivity):
        way_out = "Round it up, or give the values as floats"
        problems.append(
            Problem("a whole number as the sensitivity of whole numbers", repr(sensitivity), 0, (), way_out)
        )
    if values.dtype.kind not in "if":
        problems.append(Problem("whole numbers of up to 64 bits or floats", f"values of type {values.dtype}"))
    elif not np.isfinite(values).all():
        # OpenDP would take NaN for 0 and infinity for the largest float, without a word.
        problems.append(Problem("finite values", "NaN or infinity", int((~np.isfinite(values)).sum())))
    if problems:
        raise InputError("noise", problems)
    # The next larger number: rounded down, the quotient would cost a last digit more than epsilon.
    scale = float(np.nextafter(sensitivity / epsilon, np.inf))
    if not scale < (MAX_SCALE if values.dtype.kind == "i" else np.inf):
        problem = Problem("noise that 64 bits can hold", f"a scale of {scale:g}", way_out="Raise epsilon")
        raise InputError("noise", [problem])
    return scale


def like(values: Values, noisy: np.ndarray) -> Values:
    """An array for an array, and a number for a number.

    Examples
    --------
    >>> like(3, np.array(4)), like(np.array([3]), np.array([4]))
    (4, array([4]))
    """
    return noisy if isinstance(values, np.ndarray) else noisy.item()  # pyright: ignore[reportReturnType]


def _measurement(kind: str, scale: float) -> Any:
    """OpenDP's measurement for a vector of 64-bit integers ("i") or of floats."""
    # Loading the library takes a second that nobody else should pay.
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_laplace
    from opendp.metrics import l1_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    if kind == "i":
        return make_laplace(vector_domain(atom_domain(T="i64")), l1_distance(T="i64"), scale=scale)
    return make_laplace(vector_domain(atom_domain(T="f64", nan=False)), l1_distance(T="f64"), scale=scale)
