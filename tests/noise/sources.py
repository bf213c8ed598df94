"""Noise sources that tests look into, and what the draws of a mechanism have to be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ppmtf_jax.noise.accountant import Spending, float_below
from ppmtf_jax.noise.mechanisms import NoiseSource


class Draw(NamedTuple):
    """What noise was asked for once."""

    values: np.ndarray
    sensitivity: int | float
    epsilon: int | float  # rho of Gaussian noise


class Recorded(NoiseSource):
    """Adds nothing, or gives what it is told to in place of the values; `asked` is what it was asked for.

    Parameters
    ----------
    instead : array, optional
    is_private : bool
        What it says of itself: whoever asks a source that is private, as a release does, asks as usual.
    """

    def __init__(self, instead: np.ndarray | None = None, *, is_private: bool = False):
        self.instead, self.is_private = instead, is_private
        self.asked: list[Draw] = []

    def add_laplace(self, values, sensitivity, epsilon):
        self.asked.append(Draw(np.array(values), sensitivity, epsilon))
        return values if self.instead is None else self.instead

    def add_gaussian(self, values, sensitivity, rho):
        self.asked.append(Draw(np.array(values), sensitivity, rho))
        return values if self.instead is None else self.instead

    @property
    def scales(self) -> list[tuple[int | float, int | float]]:
        """Sensitivity and epsilon of every draw, in order."""
        return [(draw.sensitivity, draw.epsilon) for draw in self.asked]


Several = Mapping[str, Callable[[int, float, NoiseSource], object]]


def scales_by_ledger(ledger: Iterable[Spending], several: Several | None = None) -> list[tuple[float, float]]:
    """Sensitivity and epsilon of the draws that a ledger speaks of: one a line, the line's own.

    Parameters
    ----------
    ledger : lines, as `Accountant.spendings` has them
    several : mapping of str to function of sensitivity, epsilon and a NoiseSource, optional
        Of a mechanism that draws more than once, by its name in the ledger: the same mechanism with what the line
        says, of any values. That it keeps to the two numbers is for a test of the mechanism by itself.
    """
    expected: list[tuple[float, float]] = []
    for line in ledger:
        epsilon = float_below(line.loss.epsilon)
        if several and line.mechanism in several:
            noise = Recorded()
            several[line.mechanism](line.sensitivity, epsilon, noise)
            expected += noise.scales
        else:
            expected.append((line.sensitivity, epsilon))
    return expected


def loss_between(one: Recorded, other: Recorded) -> Fraction:
    """By how much the log-probability of what was drawn differs at most between two data sets, exactly.

    Both sources were handed the same draws in the same order, each of its own data set.
    """
    lost = Fraction()
    for ours, theirs in zip(one.asked, other.asked, strict=True):
        assert ours[1:] == theirs[1:]
        lost += int(np.abs(ours.values - theirs.values).sum()) * Fraction(ours.epsilon) / Fraction(ours.sensitivity)
    return lost
