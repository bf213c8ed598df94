"""Discrete Gaussian noise for zero-concentrated differential privacy (zCDP), from OpenDP."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np

from ppmtf_jax.errors import InputError, NumericalError, Problem
from ppmtf_jax.noise.laplace import MAX_SCALE, check_noise, like

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
    measurement = _measurement(gaussian_scale(exact, sensitivity, rho))
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


def _measurement(scale: float) -> Any:
    """OpenDP's measurement for a vector of 64-bit integers."""
    # Imported here because loading the library takes a second.
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    return make_gaussian(vector_domain(atom_domain(T="i64")), l2_distance(T="i64"), scale=scale)
