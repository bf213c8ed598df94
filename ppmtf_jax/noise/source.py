"""Sources of noise: OpenDP for releases; `seeded` has one for experiments."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ppmtf_jax.noise.gaussian import WholeNumbers, add_gaussian
from ppmtf_jax.noise.laplace import Values, add_laplace


class NoiseSource(ABC):
    """Source of a mechanism's noise; the mechanism is differentially private only if `is_private` is true."""

    is_private: bool

    @abstractmethod
    def add_laplace(self, values: Values, sensitivity: int | float, epsilon: int | float) -> Values:
        """Add Laplace noise as `ppmtf_jax.noise.laplace.add_laplace` does."""

    @abstractmethod
    def add_gaussian(self, values: WholeNumbers, sensitivity: int | float, rho: float) -> WholeNumbers:
        """Add Gaussian noise as `ppmtf_jax.noise.gaussian.add_gaussian` does."""


class SecureNoise(NoiseSource):
    """Noise from OpenDP, which nobody can reproduce: the source for releases."""

    is_private = True

    def add_laplace(self, values: Values, sensitivity: int | float, epsilon: int | float) -> Values:
        return add_laplace(values, sensitivity, epsilon)

    def add_gaussian(self, values: WholeNumbers, sensitivity: int | float, rho: float) -> WholeNumbers:
        return add_gaussian(values, sensitivity, rho)
