"""Noise for differential privacy, from OpenDP.

Nothing else may make it: floating-point samplers, NumPy's and JAX's among them, give the true value away in the low
bits of what they return. OpenDP draws integers exactly, from the system's secure source; hence there is no seed.

At the bottom of the package, since synthesizers (learning transitions) and privacy tests both draw from it.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from ppmtf_jax.errors import InputError, NumericalError, Problem
from ppmtf_jax.runtime.devices import of_first_process


def add_laplace(values: Int[np.ndarray, "..."], sensitivity: int, epsilon: float) -> Int[np.ndarray, "..."]:
    """Add independent discrete Laplace noise, P(x) proportional to exp(-|x| epsilon / sensitivity).

    epsilon-differentially private for neighbours whose `values` differ by at most `sensitivity` in all (L1): the
    mechanism's own privacy map, which OpenDP computes with every rounding upwards, gives at most epsilon for them.
    Several processes, each of which calls this with the same `values`, get one draw: two would be two releases.

    Raises
    ------
    InputError
        Epsilon or the sensitivity would be no protection.
    NumericalError
        By its own map the noise costs more than epsilon. Nothing was drawn.

    Examples
    --------
    >>> noisy = add_laplace(np.zeros(1000, int), sensitivity=1, epsilon=2.0)
    >>> noisy.dtype, bool(-1 < noisy.mean() < 1)
    (dtype('int64'), True)
    """
    if not 0 < epsilon < np.inf or sensitivity < 1:
        expected = "a positive, finite epsilon and a sensitivity of at least 1"
        raise InputError("noise", [Problem(expected, f"{epsilon} and {sensitivity}")])
    # Loading the library takes a second that nobody else should pay.
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_laplace
    from opendp.metrics import l1_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    space = vector_domain(atom_domain(T="i64")), l1_distance(T="i64")
    # The next larger number: rounded down, the quotient would cost a last digit more than epsilon.
    measurement = make_laplace(*space, scale=float(np.nextafter(sensitivity / epsilon, np.inf)))
    spent = measurement.map(d_in=sensitivity)
    if not spent <= epsilon:
        raise NumericalError(f"the noise would cost an epsilon of {spent!r}, and {epsilon!r} was asked for")
    return of_first_process(np.asarray(measurement(values.ravel().tolist()), np.int64).reshape(values.shape))
