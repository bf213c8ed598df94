"""Noise that is reproducible from a seed, for experiments: **it protects nobody**.

OpenDP accepts no seed, so this module has its own sampler. A person who knows the seed can remove the noise, and the
low bits of floats reveal the true values even without the seed. The ledger of an `Accountant` with this noise says that
it is not private.
"""

from __future__ import annotations

import numpy as np

from ppmtf_jax.noise.laplace import NoiseSource, Values, laplace_scale, like
from ppmtf_jax.streams import Stage, numpy_stream


class SeededNoise(NoiseSource):
    """Laplace noise with the same distribution as OpenDP's, from a seed; not private.

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
            # The difference of two geometric numbers with the same success probability is discrete Laplace.
            first, second = self._stream.geometric(-np.expm1(-1 / scale), (2, exact.size))
            noise = first - second
        else:
            noise = self._stream.laplace(scale=scale, size=exact.size)
        return like(values, (exact.ravel() + noise).reshape(exact.shape))
