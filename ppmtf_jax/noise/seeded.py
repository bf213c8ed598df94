"""Noise that is reproducible from a seed, for experiments: **it protects nobody**.

OpenDP accepts no seed, so this module has its own sampler. A person who knows the seed can remove the noise, and the
low bits of floats reveal the true values even without the seed. A ledger with this noise says that it is not private.
"""

from __future__ import annotations

import numpy as np

from ppmtf_jax.noise.gaussian import WholeNumbers, gaussian_scale
from ppmtf_jax.noise.laplace import Values, laplace_scale, like
from ppmtf_jax.noise.source import NoiseSource
from ppmtf_jax.streams import Stage, numpy_stream


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
