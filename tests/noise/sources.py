"""Noise sources that tests look into."""

from __future__ import annotations

import numpy as np

from ppmtf_jax.noise.laplace import NoiseSource


class Recorded(NoiseSource):
    """Adds nothing, or gives what it is told to in place of the values; `asked` is what it was asked for."""

    is_private = False

    def __init__(self, instead: np.ndarray | None = None):
        self.instead = instead
        self.asked: list[tuple[np.ndarray, int | float, int | float]] = []

    def add_laplace(self, values, sensitivity, epsilon):
        self.asked.append((values, sensitivity, epsilon))
        return values if self.instead is None else self.instead
