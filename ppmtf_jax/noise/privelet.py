"""Privelet: noise for counts by place that is small in the sums over categories (Xiao, Wang and Gehrke 2011).

If every place gets independent noise, the noise of a category's sum grows with its number of places. Privelet adds
noise to wavelet coefficients instead, one coefficient for each node of a tree (all places, categories, places), and
computes the counts from the noisy coefficients. Then the noise of a sum hardly grows with the number of places.

The disadvantage is a noise scale that grows with the height of the tree. In a tree of categories, sub-categories and
places, the noise in the sum of one of f categories has a variance slightly above 128 (1 - 1/f)^3
(sensitivity / epsilon)^2. With Laplace noise, the sum of n places has a variance of 2 n (sensitivity / epsilon)^2. So
with four categories Privelet is better for categories of more than 28 places, for every epsilon, and never for single
places.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Num
from scipy import sparse

from ppmtf_jax.errors import InputError, Problem, first_examples, raise_any
from ppmtf_jax.noise.accountant import float_below
from ppmtf_jax.noise.mechanisms import NoiseSource, SecureNoise

# Maximum number of bits of a coefficient: with noise, it must still fit into a 64-bit integer.
MAX_COEFFICIENT = 2.0**61


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """A tree whose leaves have counts, such as all places, categories, sub-categories and places.

    Build it with `of_paths`.
    """

    # The parent of each node, -1 for the root. The root is first, every other node is after its parent, and the leaves
    # are last, in the order of the counts.
    parent: Int[np.ndarray, " node"]
    depth: Int[np.ndarray, " node"]  # number of steps from the root
    n_leaves: int

    @classmethod
    def of_paths(cls, paths: Sequence[Sequence[Hashable]]) -> Hierarchy:
        """Build a hierarchy from the categories above each leaf, from the coarsest to the finest.

        Paths may differ in length, and a category may have both leaves and sub-categories. Equal names below different
        categories are different nodes.

        Raises `InputError`: there is no path, or a category has no name (None, NaN, NA or an empty text).
        """
        unnamed = [number for number, path in enumerate(paths) if any(map(_is_missing, path))]
        if unnamed or not len(paths):
            way_out = "Name them, as 'other', or leave the last names of their paths out"
            found = "leaves without one" if unnamed else "no leaf"
            problem = Problem("categories of some leaves", found, len(unnamed), first_examples(unnamed), way_out)
            raise InputError("hierarchy", [problem])
        number: dict[tuple[Hashable, ...], int] = {(): 0}
        # Once for each distinct path, not for each leaf.
        for path in dict.fromkeys(map(tuple, paths)):
            for depth in range(1, len(path) + 1):
                number.setdefault(path[:depth], len(number))
        parent = [-1] + [number[path[:-1]] for path in number if path] + [number[tuple(path)] for path in paths]
        depths = [len(path) for path in number] + [len(path) + 1 for path in paths]
        return cls(np.array(parent), np.array(depths), len(paths))

    @cached_property
    def n_siblings(self) -> Int[np.ndarray, " node"]:
        """Number of nodes with the same parent, the node itself included; 1 for the root."""
        n_children = np.bincount(self.parent[1:], minlength=len(self.parent))
        return np.append(1, n_children[self.parent[1:]])

    @cached_property
    def coefficient_sensitivity(self) -> Int[np.ndarray, " node"]:
        """Total change of the coefficients of a node and its siblings if a count below the node changes by 1.

        It is 1 for the root, 2 (f - 1) for one of f siblings, and 0 for an only child, whose coefficient is always 0.
        """
        return np.append(1, 2 * (self.n_siblings[1:] - 1))

    @cached_property
    def generalized_sensitivity(self) -> int:
        """Maximum sum of |change of a coefficient| / `coefficient_sensitivity` if one count changes by 1.

        1 for the root, plus 1 for each further node with siblings on the path to the leaf.
        """
        return int(((self.coefficient_sensitivity > 0).astype(int) @ self._is_below).max())

    def sums(self, counts: Num[np.ndarray, "*row leaf"]) -> Num[np.ndarray, "*row node"]:
        """The sum of the counts below every node."""
        shape = (*counts.shape[:-1], len(self.parent))
        return (counts.reshape(-1, self.n_leaves) @ self._is_below.T).reshape(shape)

    def transform(self, counts: Num[np.ndarray, "*row leaf"]) -> Num[np.ndarray, "*row node"]:
        """The nominal wavelet transform: a coefficient for each node.

        The coefficient of the root is the sum of all counts. For a node N with f siblings, itself included, below P it
        is f s(N) - s(P), with sums s: f times the coefficient s(N) - s(P) / f of Xiao et al., so that whole numbers
        stay whole. Their weight f / (2 f - 2) is in `coefficient_sensitivity`.
        """
        sums = self.sums(counts)
        coefficients = self.n_siblings * sums
        coefficients[..., 1:] -= sums[..., self.parent[1:]]
        return coefficients

    def subtract_means(self, coefficients: Num[np.ndarray, "*row node"]) -> Float[np.ndarray, "*row node"]:
        """Subtract the mean of the coefficients of siblings, so that they sum to 0 (Xiao et al., mean subtraction).

        Then the sums of noisy counts agree with the noisy coefficients, and their noise is minimal.
        """
        refined = coefficients.astype(float)
        of_family = np.zeros_like(coefficients)
        np.add.at(of_family, (..., self.parent[1:]), coefficients[..., 1:])
        refined[..., 1:] -= of_family[..., self.parent[1:]] / self.n_siblings[1:]
        return refined

    def inverse(self, coefficients: Num[np.ndarray, "*row node"]) -> Float[np.ndarray, "*row leaf"]:
        """Inverse of `transform`: the counts with these coefficients, if the coefficients of siblings sum to 0."""
        sums = coefficients.astype(float)
        for depth in range(1, self.depth.max() + 1):
            nodes = np.flatnonzero(self.depth == depth)
            sums[..., nodes] = (sums[..., nodes] + sums[..., self.parent[nodes]]) / self.n_siblings[nodes]
        return sums[..., -self.n_leaves :]

    def alike(self) -> Iterator[Int[np.ndarray, " node"]]:
        """The nodes whose coefficients can differ from 0, grouped by `coefficient_sensitivity` and depth."""
        kinds = np.stack([self.coefficient_sensitivity, self.depth])
        different, kind = np.unique(kinds, axis=1, return_inverse=True)
        return (np.flatnonzero(kind == number) for number in np.flatnonzero(different[0]))

    @cached_property
    def _is_below(self) -> sparse.csr_array:
        """1 if a leaf is below a node or is the node, otherwise 0; shape (nodes, leaves)."""
        node = np.arange(len(self.parent) - self.n_leaves, len(self.parent))
        leaf, pairs = np.arange(self.n_leaves), []
        while len(node):
            pairs.append(np.stack([node, leaf]))
            node, leaf = self.parent[node], leaf[self.parent[node] >= 0]
            node = node[node >= 0]
        place = np.concatenate(pairs, axis=1)
        ones = np.ones(place.shape[1], np.int64)
        return sparse.csr_array((ones, tuple(place)), shape=(len(self.parent), self.n_leaves))


def noisy_counts(
    counts: Int[np.ndarray, "*row leaf"],
    hierarchy: Hierarchy,
    sensitivity: int,
    epsilon: int | float,
    noise: NoiseSource | None = None,
) -> Float[np.ndarray, "*row leaf"]:
    """Counts with noise that is small in the sums of the hierarchy's nodes (Privelet for nominal data).

    The result is `epsilon`-differentially private for neighbours whose counts, over all rows and leaves, differ by at
    most `sensitivity` in total (L1). Everything after the noise is computed from noisy numbers alone.

    **Proof.** Let s be `sensitivity` and h the `generalized_sensitivity`. Every coefficient is a whole number, computed
    exactly, and gets discrete Laplace noise of the scale k s h / epsilon, where k is its `coefficient_sensitivity`. If
    one count changes by 1, the coefficient of the root changes by 1 = k. Of f siblings, one is above the changed leaf:
    its coefficient changes by f - 1, and that of each other sibling by 1, so the total change is 2 (f - 1) = k. All
    other coefficients stay the same. Coefficients of only children are always 0 and get no noise. So the sum of
    |change| / scale is epsilon / (s h) at the root and at each level where the path to the leaf has siblings. In total
    it is at most h times that, epsilon / s. A total change of the counts by s consists of s changes by 1. So the sum of
    |change| / scale is at most epsilon, and it bounds the change of the log-probability of all noisy coefficients
    together.

    `sensitivity`: at least 1. `noise`: by default `SecureNoise`. The noisy counts may be negative. `Hierarchy.sums`
    adds them up by category. Do this before you set negative counts to 0. Afterwards the bias of the sums is many times
    their noise, because single counts have large noise. Raises `InputError`: the counts do not fit the hierarchy's
    leaves, or epsilon or the sensitivity would give no protection.

    Examples
    --------
    >>> hierarchy = Hierarchy.of_paths([("food",)] * 60 + [("sight",)] * 40)
    >>> noisy = noisy_counts(np.full((24, 100), 3), hierarchy, sensitivity=2, epsilon=1000.0)
    >>> noisy.shape, bool(abs(hierarchy.sums(noisy)[:, :2] - [300, 180]).max() < 1)
    ((24, 100), True)
    """
    _check(counts, hierarchy, sensitivity, epsilon)
    noisy, source = hierarchy.transform(counts.astype(np.int64)), noise or SecureNoise()
    # Round down, so that all nodes above a leaf together spend at most epsilon.
    share = float_below(Fraction(epsilon) / hierarchy.generalized_sensitivity)
    for nodes in hierarchy.alike():
        own = int(hierarchy.coefficient_sensitivity[nodes[0]] * sensitivity)
        noisy[..., nodes] = source.add_laplace(noisy[..., nodes], own, share)
    return hierarchy.inverse(hierarchy.subtract_means(noisy))


def _is_missing(name: Any) -> bool:
    return bool(pd.isna(name)) or name == ""


def _check(counts: np.ndarray, hierarchy: Hierarchy, sensitivity: int, epsilon: int | float) -> None:
    problems: list[Problem | str] = []
    if counts.dtype.kind not in "iu":
        problems.append(Problem("whole numbers as counts", f"values of type {counts.dtype}"))
    if counts.ndim == 0 or counts.shape[-1] != hierarchy.n_leaves:
        expected = f"a count for each of {hierarchy.n_leaves} leaves, last"
        problems.append(Problem(expected, f"shape {counts.shape}"))
    elif 2.0 * hierarchy.n_siblings.max() * np.abs(counts.astype(float)).sum() > MAX_COEFFICIENT:
        found = f"counts up to {np.abs(counts.astype(float)).max():g}"
        problems.append(Problem("coefficients of at most 62 bits", found))
    if sensitivity < 1 or sensitivity != int(sensitivity):
        problems.append(Problem("a whole number of at least 1 as the sensitivity", repr(sensitivity)))
    if not 0 < epsilon < np.inf:
        problems.append(Problem("a positive, finite epsilon", repr(epsilon)))
    raise_any("noisy counts", problems)
