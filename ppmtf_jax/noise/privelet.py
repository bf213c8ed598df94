"""Privelet: noise for counts over a hierarchy, small for the sums of its categories (Xiao, Wang and Gehrke 2011).

Counts of places, say, are wanted by category too. With independent noise on every place, the noise of a category's sum
grows with its number of places. Privelet adds noise to wavelet coefficients instead, one for each node of the
hierarchy, from which the counts follow; the noise of a sum then hardly grows with its size.

Its price is a scale that grows with the height of the hierarchy. Over categories, sub-categories and places, the sum of
one of f categories has the variance 128 (1 - 1/f)^3 (sensitivity / epsilon)^2 and a little more; the sum of n places
with Laplace noise has 2 n (sensitivity / epsilon)^2. So with four categories it pays for those of more than 28 places,
whatever epsilon is, and never for single places. `sum_variances` says what to expect.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Num

from ppmtf_jax.errors import InputError, Problem, first_examples
from ppmtf_jax.noise.accountant import float_below
from ppmtf_jax.noise.laplace import NoiseSource, SecureNoise

ROOT = -1
"""Parent of the root."""

# Coefficients have to fit into 64-bit integers, and leave room for noise.
MAX_COEFFICIENT = 2.0**61


class _Level(NamedTuple):
    """The nodes of one depth, siblings side by side."""

    nodes: Int[np.ndarray, " node"]
    first: Int[np.ndarray, " family"]
    """Position of each family's first node among them."""
    parents: Int[np.ndarray, " family"]
    family: Int[np.ndarray, " node"]


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """A tree of any shape, whose leaves have counts: all places, categories, sub-categories, places.

    Parameters
    ----------
    parent : int array, shape (nodes,)
        The node above each node, -1 for the root. Nodes that are above no other are the leaves; their order is that of
        the counts.

    Raises
    ------
    InputError
        This is no tree.

    Examples
    --------
    >>> hierarchy = Hierarchy(np.array([-1, 0, 0, 1, 1]))
    >>> hierarchy.leaves.tolist(), hierarchy.fanout.tolist()
    ([2, 3, 4], [2, 2, 0, 0, 0])
    >>> hierarchy.sums(np.array([5, 1, 2])).tolist()
    [8, 3, 5, 1, 2]
    """

    parent: Int[np.ndarray, " node"]

    def __post_init__(self) -> None:
        n = len(self.parent)
        outside = np.flatnonzero((self.parent < ROOT) | (self.parent >= n))
        if len(outside):
            expected = f"parents from 0 to {n - 1}, and {ROOT} for the root"
            values = first_examples(self.parent[outside].tolist())
            raise InputError("hierarchy", [Problem(expected, "others", len(outside), values)])
        n_roots = int((self.parent == ROOT).sum())
        if n_roots != 1:
            raise InputError("hierarchy", [Problem(f"one root, a node with parent {ROOT}", f"{n_roots} of them")])
        circular = np.flatnonzero(self._depth < 0)
        if len(circular):
            examples = first_examples(circular.tolist())
            raise InputError("hierarchy", [Problem("a root above every node", "circles", len(circular), examples)])

    @classmethod
    def of_paths(cls, paths: Sequence[Sequence[Hashable]]) -> Hierarchy:
        """The hierarchy of some leaves from what is above each, from the coarsest category to the finest.

        Every path stands for a leaf of its own. Paths may differ in length, and a category has leaves and
        sub-categories at once if need be. Equal names under different categories are different nodes.

        Raises
        ------
        InputError
            There is no path, or a category has no name (None or NaN).

        Examples
        --------
        >>> hierarchy = Hierarchy.of_paths([("food", "bar"), ("food", "bar"), ("food", "cafe"), ("sight",), ()])
        >>> hierarchy.sums(np.array([1, 2, 3, 4, 5])).tolist()
        [15, 6, 3, 3, 4, 1, 2, 3, 4, 5]
        """
        unnamed = [number for number, path in enumerate(paths) if any(name is None or name != name for name in path)]
        if unnamed or not len(paths):
            way_out = "Name them, as 'other', or leave the last names of their paths out"
            found = "leaves without one" if unnamed else "no leaf"
            problem = Problem("categories of some leaves", found, len(unnamed), first_examples(unnamed), way_out)
            raise InputError("hierarchy", [problem])
        number: dict[tuple[Hashable, ...], int] = {(): 0}
        parent = [ROOT]
        # Once for each distinct path, not for each leaf.
        for path in dict.fromkeys(map(tuple, paths)):
            for depth in range(1, len(path) + 1):
                if path[:depth] not in number:
                    number[path[:depth]] = len(parent)
                    parent.append(number[path[: depth - 1]])
        return cls(np.array(parent + [number[tuple(path)] for path in paths]))

    @cached_property
    def fanout(self) -> Int[np.ndarray, " node"]:
        """Number of nodes right below each node; 0 for a leaf."""
        return np.bincount(self.parent[self.parent != ROOT], minlength=len(self.parent))

    @cached_property
    def leaves(self) -> Int[np.ndarray, " leaf"]:
        """The node of each leaf."""
        return np.flatnonzero(self.fanout == 0)

    @cached_property
    def coefficient_sensitivity(self) -> Int[np.ndarray, " node"]:
        """By how much the coefficients of a node and its siblings change in all when a count below it changes by 1.

        1 for the root, 2 (f - 1) for one of f siblings: 0 for an only child, whose coefficient is always 0.
        """
        return np.where(self.parent == ROOT, 1, 2 * (self.fanout[self.parent] - 1))

    @cached_property
    def generalized_sensitivity(self) -> int:
        """Sum of |change of a coefficient| / `coefficient_sensitivity` when one count changes by 1, at its largest.

        1 for the root, and 1 for each further node on the way to the leaf that has siblings.
        """
        return int(1 / self.level_shares()[0])

    def level_shares(self, weights: Sequence[int] | None = None) -> list[Fraction]:
        """The share of epsilon that the coefficients of each level get, from the root downwards.

        Proportional to the weights, and such that no leaf has coefficients above it whose shares are more than 1 in
        all. With equal weights every share is 1 / `generalized_sensitivity`.

        Raises
        ------
        InputError
            There is not one weight of at least 1 for each level.

        Examples
        --------
        >>> Hierarchy(np.array([-1, 0, 0, 1, 1])).level_shares([1, 2, 1])
        [Fraction(1, 4), Fraction(1, 2), Fraction(1, 4)]
        """
        n_levels = 1 + len(self._levels)
        weights = [1] * n_levels if weights is None else list(weights)
        if len(weights) != n_levels or not all(weight >= 1 and weight == int(weight) for weight in weights):
            expected = f"a whole number of at least 1 for each of {n_levels} levels, from the root on"
            raise InputError("level weights", [Problem(expected, repr(weights))])
        total = np.where(self.coefficient_sensitivity > 0, np.array(weights)[self._depth], 0)
        for level in self._levels:
            total[level.nodes] += total[level.parents][level.family]
        return [Fraction(int(weight), int(total[self.leaves].max())) for weight in weights]

    def sums(self, counts: Num[np.ndarray, "*row leaf"]) -> Num[np.ndarray, "*row node"]:
        """The sum of the counts below every node."""
        sums = np.zeros((*counts.shape[:-1], len(self.parent)), counts.dtype)
        sums[..., self.leaves] = counts
        for level in reversed(self._levels):
            sums[..., level.parents] = np.add.reduceat(sums[..., level.nodes], level.first, axis=-1)
        return sums

    def transform(self, counts: Num[np.ndarray, "*row leaf"]) -> Num[np.ndarray, "*row node"]:
        """The nominal wavelet transform: a coefficient for each node.

        That of the root is the sum of all counts. That of a node N with f siblings, itself among them, below P is
        f s(N) - s(P), with sums s: f times the coefficient s(N) - s(P) / f of Xiao et al., so that whole numbers stay
        whole. Their weight f / (2 f - 2) is in `coefficient_sensitivity`.
        """
        coefficients = self.sums(counts)
        for level in reversed(self._levels):
            above = coefficients[..., level.parents][..., level.family]
            coefficients[..., level.nodes] = self._n_siblings[level.nodes] * coefficients[..., level.nodes] - above
        return coefficients

    def inverse(self, coefficients: Num[np.ndarray, "*row node"]) -> Float[np.ndarray, "*row leaf"]:
        """The counts of which `transform` gives these coefficients.

        Coefficients of siblings should sum to 0, as those of counts do: see `subtract_means`.
        """
        sums = coefficients.astype(float)
        for level in self._levels:
            above = sums[..., level.parents][..., level.family]
            sums[..., level.nodes] = (sums[..., level.nodes] + above) / self._n_siblings[level.nodes]
        return sums[..., self.leaves]

    def subtract_means(self, coefficients: Num[np.ndarray, "*row node"]) -> Float[np.ndarray, "*row node"]:
        """Make the coefficients of siblings sum to 0 by subtracting their mean (Xiao et al., mean subtraction).

        So the sums of noisy counts are those of the noisy coefficients, and their noise is smallest.
        """
        refined = coefficients.astype(float)
        for level in self._levels:
            own = refined[..., level.nodes]
            means = np.add.reduceat(own, level.first, axis=-1) / self.fanout[level.parents]
            refined[..., level.nodes] = own - means[..., level.family]
        return refined

    @cached_property
    def _alike(self) -> list[Int[np.ndarray, " node"]]:
        """The nodes whose coefficients are not always 0, by level and `coefficient_sensitivity`."""
        kinds = np.stack([self._depth, self.coefficient_sensitivity])
        noisy = np.flatnonzero(self.coefficient_sensitivity)
        order = noisy[np.lexsort(kinds[:, noisy])]
        changes = np.diff(kinds[:, order], axis=1).any(axis=0)
        return np.split(order, np.flatnonzero(changes) + 1)

    @cached_property
    def _n_siblings(self) -> Int[np.ndarray, " node"]:
        """Of each node, itself among them; the root is alone."""
        return np.where(self.parent == ROOT, 1, self.fanout[self.parent])

    @cached_property
    def _depth(self) -> Int[np.ndarray, " node"]:
        """Steps from the root to each node; -1 for one that the root is not above."""
        # A node past the end stands above the root. Each round doubles the steps that were gone up.
        above = np.append(np.where(self.parent == ROOT, len(self.parent), self.parent), len(self.parent))
        steps = (above != np.arange(len(above))).astype(int)
        for _ in range(len(self.parent).bit_length()):
            steps, above = steps + steps[above], above[above]
        return np.where(above == len(self.parent), steps - 1, -1)[:-1]

    @cached_property
    def _levels(self) -> list[_Level]:
        """From the children of the root downwards."""
        if len(self.parent) == 1:
            return []
        by_depth = np.lexsort((self.parent, self._depth))[1:]
        levels = []
        for nodes in np.split(by_depth, np.flatnonzero(np.diff(self._depth[by_depth])) + 1):
            parents, first, size = np.unique(self.parent[nodes], return_index=True, return_counts=True)
            levels.append(_Level(nodes, first, parents, np.repeat(np.arange(len(parents)), size)))
        return levels


def noisy_counts(
    counts: Int[np.ndarray, "*row leaf"],
    hierarchy: Hierarchy,
    sensitivity: int,
    epsilon: int | float,
    noise: NoiseSource | None = None,
    *,
    level_weights: Sequence[int] | None = None,
    haar: bool = False,
) -> Float[np.ndarray, "*row leaf"]:
    """Counts with noise that is small in the sums of the hierarchy's nodes (Privelet for nominal data).

    Differentially private with `epsilon` for neighbours whose counts differ by at most `sensitivity` in all (L1),
    wherever among rows and leaves. All that is done after the noise is drawn is computed of noisy numbers alone.

    **Proof.** Write s for `sensitivity`. Every coefficient is a whole number, computed exactly, and gets discrete
    Laplace noise of the scale k s / (w epsilon), where k is its `coefficient_sensitivity` and w the share of its level.
    When one count changes by 1, the coefficient of the root changes by 1 = k; of f siblings one of which is above that
    leaf, that one changes by f - 1 and each other by 1, 2 (f - 1) = k in all; others do not change, and those of only
    children, which get no noise, are always 0. So |change| / scale is w epsilon / s in all on a level, and at most
    epsilon / s on all levels, since the shares above a leaf are at most 1 in all. A change of the counts by s in all
    is s changes by 1: |change| / scale is at most epsilon in all, and that bounds by how much the log-probability of
    any noisy coefficients changes. With equal shares, 1 / h with h the generalized sensitivity, this is the published
    mechanism.

    With `haar`, each coefficient is then transformed along the first axis: the sum over all instants, and for every
    node of a binary tree over them the left half's sum minus the right half's. What changes by 1 at one instant changes
    one of those on each of 1 + log2(instants) levels, by 1; so shares are divided by that number. This is the standard
    decomposition of Xiao et al., where the weights of these sums and differences are 1.

    Parameters
    ----------
    counts : int array, shape (..., leaves)
        With `haar` the first axis is time.
    sensitivity : int
        At least 1.
    noise : NoiseSource
        By default `SecureNoise`.
    level_weights : sequence of int, optional
        How the levels of the hierarchy share epsilon, from the root on: see `Hierarchy.level_shares`. By default
        equally, as published. More for the level of the categories makes their sums better, and single places worse.
    haar : bool
        Make sums over time good as well. It pays from about 50 instants on, for sums over most of them: the scale
        grows by 1 + log2(instants), and the variance by its square, where that of a sum over n instants grows by n.

    Returns
    -------
    float array, shape (..., leaves)
        May be negative. `Hierarchy.sums` gives those of categories.

    Raises
    ------
    InputError
        The counts are not those of the hierarchy's leaves, or epsilon or the sensitivity would be no protection.

    Examples
    --------
    >>> hierarchy = Hierarchy.of_paths([("food",)] * 60 + [("sight",)] * 40)
    >>> noisy = noisy_counts(np.full((24, 100), 3), hierarchy, sensitivity=2, epsilon=1000.0)
    >>> noisy.shape, bool(abs(hierarchy.sums(noisy)[:, :2] - [300, 180]).max() < 1)
    ((24, 100), True)
    """
    _check(counts, hierarchy, sensitivity, epsilon, haar)
    coefficients = hierarchy.transform(counts.astype(np.int64))
    shares, source = hierarchy.level_shares(level_weights), noise or SecureNoise()
    if haar:
        coefficients = _haar(coefficients)
        shares = [share / len(coefficients).bit_length() for share in shares]
    noisy = coefficients.copy()
    for nodes in hierarchy._alike:
        changed, depth = hierarchy.coefficient_sensitivity[nodes[0]], hierarchy._depth[nodes[0]]
        # Rounded down: the shares of all levels are no more than epsilon.
        share = float_below(Fraction(epsilon) * shares[depth])
        noisy[..., nodes] = source.add_laplace(coefficients[..., nodes], int(changed * sensitivity), share)
    if haar:
        noisy = _inverse_haar(noisy)[: len(counts)]
    return hierarchy.inverse(hierarchy.subtract_means(noisy))


def sum_variances(
    hierarchy: Hierarchy, sensitivity: int, epsilon: int | float, level_weights: Sequence[int] | None = None
) -> Float[np.ndarray, " node"]:
    """Variance of every node's sum of `noisy_counts` without `haar`, the same for every row.

    With v(s) the variance of discrete Laplace noise of scale s, and w the share of the node's level: v(sensitivity /
    (w epsilon)) for the root; for one of f siblings below P, (1 - 1/f) v(2 (f - 1) sensitivity / (w epsilon)) / f^2 +
    Var(P) / f^2. The first part is what subtracting the mean of the siblings leaves of the coefficient's noise.

    Examples
    --------
    A hundred places in four categories; the noise of 25 places that is added up for a category has the variance 50.

    >>> hierarchy = Hierarchy.of_paths([(category,) for category in range(4) for _ in range(25)])
    >>> sum_variances(hierarchy, sensitivity=1, epsilon=1.0)[:2].round(1)
    array([17.8, 31.5])
    """
    shares = np.array([float(share) for share in hierarchy.level_shares(level_weights)])[hierarchy._depth]
    scale = hierarchy.coefficient_sensitivity * (sensitivity / epsilon) / shares
    n_siblings = hierarchy._n_siblings
    variances = laplace_variance(scale) * np.where(n_siblings > 1, 1 - 1 / n_siblings, 1) / n_siblings**2
    for level in hierarchy._levels:
        variances[level.nodes] += variances[level.parents][level.family] / n_siblings[level.nodes] ** 2
    return variances


def laplace_variance(scale: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Variance of discrete Laplace noise, 2 q / (1 - q)^2 with q = exp(-1 / scale); 0 at scale 0.

    Examples
    --------
    >>> laplace_variance(np.array([0.0, 10.0])).round(2)
    array([  0.  , 199.83])
    """
    inverse = 1 / np.where(scale > 0, scale, 1)
    return np.where(scale > 0, 2 * np.exp(-inverse) / np.expm1(-inverse) ** 2, 0)


def _check(counts: np.ndarray, hierarchy: Hierarchy, sensitivity: int, epsilon: int | float, haar: bool) -> None:
    problems: list[Problem | str] = []
    if counts.ndim == 0 or counts.shape[-1] != len(hierarchy.leaves):
        problems.append(Problem(f"a count for each of {len(hierarchy.leaves)} leaves, last", f"shape {counts.shape}"))
    elif 2.0 * hierarchy.fanout.max() * np.abs(counts.astype(float)).sum() > MAX_COEFFICIENT:
        problems.append(
            Problem("coefficients of at most 62 bits", f"counts up to {np.abs(counts.astype(float)).max():g}")
        )
    if haar and (counts.ndim < 2 or not len(counts)):
        problems.append(Problem("time as the first axis, before that of the leaves", f"shape {counts.shape}"))
    if sensitivity < 1 or sensitivity != int(sensitivity):
        problems.append(Problem("a whole number of at least 1 as the sensitivity", repr(sensitivity)))
    if not 0 < epsilon < np.inf:
        problems.append(Problem("a positive, finite epsilon", repr(epsilon)))
    if problems:
        raise InputError("noisy counts", problems)


def _haar(values: Int[np.ndarray, "instant ..."]) -> Int[np.ndarray, "padded ..."]:
    """Along the first axis, padded to a power of two: the sum, then left minus right sums from coarse to fine."""
    n_padded = 1 << (len(values) - 1).bit_length()
    sums = np.concatenate([values, np.zeros((n_padded - len(values), *values.shape[1:]), values.dtype)])
    differences = []
    while len(sums) > 1:
        differences.append(sums[::2] - sums[1::2])
        sums = sums[::2] + sums[1::2]
    return np.concatenate([sums, *reversed(differences)])


def _inverse_haar(coefficients: Num[np.ndarray, "padded ..."]) -> Float[np.ndarray, "padded ..."]:
    sums = coefficients[:1].astype(float)
    while len(sums) < len(coefficients):
        difference = coefficients[len(sums) : 2 * len(sums)]
        sums = np.stack([sums + difference, sums - difference], axis=1).reshape(-1, *sums.shape[1:]) / 2
    return sums
