"""Laplace noise for differential privacy, from OpenDP.

Private noise must come from OpenDP, because floating-point samplers, such as those of NumPy and JAX, reveal the true
value in the low bits of their results. OpenDP draws integers exactly, from the system's secure source, without a seed.

Both synthesizers and privacy tests use this module.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from ppmtf_jax.errors import InputError, NumericalError, Problem, raise_any

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
    measurement = _measurement(exact.dtype.kind, scale)
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


def _measurement(kind: str, scale: float) -> Any:
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
