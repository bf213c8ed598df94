"""Maximum of a smooth function of several arrays, by L-BFGS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

from ppmtf_jax.errors import NumericalError

MOST_LOG = 30.0
"""Bound of the logarithms that the trace model stores, so that float32 can represent exponentials of some sums."""


class Maximizer:
    """Maximizes `value(parameters, data)`; the program is compiled once for all data of the same shapes.

    It computes in float64, so create it and use it under `jax.enable_x64(True)`.
    """

    def __init__(self, value: Callable[[Any, Any], jax.Array], start: Any):
        flat, self.unflatten = ravel_pytree(start)
        self.start = np.asarray(flat, np.float64)
        self.gradient = jax.jit(jax.value_and_grad(lambda x, data: -value(self.unflatten(x), data)))

    def maximize(self, data: Any, most_steps: int, start: Any = None) -> Any:
        """The parameters after at most `most_steps` steps."""
        data = jax.device_put(data)

        def descend(x: np.ndarray) -> tuple[float, np.ndarray]:
            loss, gradient = self.gradient(x, data)
            return float(loss), np.asarray(gradient, np.float64)

        x = self.start if start is None else np.asarray(ravel_pytree(start)[0], np.float64)
        found = minimize(descend, x, jac=True, method="L-BFGS-B", options={"maxiter": most_steps})
        if not np.isfinite(found.fun):
            raise NumericalError("the likelihood of the check-ins is not finite")
        return self.unflatten(found.x)
