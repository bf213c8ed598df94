"""Privelet: the transform and its inverse, how much one count can change, and how much noise a sum has."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.errors import InputError
from ppmtf_jax.noise.mechanisms import NoiseSource, SecureNoise, SeededNoise
from ppmtf_jax.noise.privelet import Hierarchy, noisy_counts
from tests.noise.sources import Recorded, loss_between

# Places of Narita et al. 2022, table 2, with so many in each sub-category: ragged in fanout, and with an only child.
TABLE_2 = [
    *[("travel", name) for name in ("train station", "airport", "platform", "subway", "terminal") for _ in range(9)],
    *[("shop", name) for name in ("electronics", "hobby", "record", "mall") for _ in range(8)],
    *[("arts", "arcade")] * 6,
    *[("professional", name) for name in ("startup", "convention center") for _ in range(4)],
]
PATHS = {
    "one leaf": [()],
    "no categories": [()] * 7,
    "one category": [("all",)] * 5,
    "table 2": TABLE_2,
    "ragged": [("a", "b", "c"), ("a", "b", "c"), ("a", "b"), ("d", "e", "f", "g"), (), ("a",), ()],
    "binary": [tuple(f"{leaf:04b}"[: depth + 1] for depth in range(3)) for leaf in range(16)],
}
HIERARCHIES = {name: Hierarchy.of_paths(paths) for name, paths in PATHS.items()}
every_tree = pytest.mark.parametrize("tree", HIERARCHIES.values(), ids=HIERARCHIES)


def leaves(tree: Hierarchy) -> range:
    return range(len(tree.parent) - tree.n_leaves, len(tree.parent))


def above(tree: Hierarchy, node: int) -> list[int]:
    """A node and all above it, by walking up."""
    found = [node]
    while tree.parent[found[-1]] >= 0:
        found.append(int(tree.parent[found[-1]]))
    return found


def sums_by_loop(tree: Hierarchy, counts: np.ndarray) -> np.ndarray:
    sums = np.zeros(len(tree.parent), counts.dtype)
    for leaf, count in zip(leaves(tree), counts, strict=True):
        sums[above(tree, leaf)] += count
    return sums


def published_coefficient(tree: Hierarchy, sums: np.ndarray, node: int) -> float:
    """The sum below a node minus the mean of the sums below it and its siblings; the whole sum for the root."""
    siblings = tree.parent == tree.parent[node]
    return float(sums[node] - (sums[siblings].mean() if tree.parent[node] >= 0 else 0))


def published_weight(tree: Hierarchy, node: int) -> float:
    """f / (2 f - 2) for one of f siblings, 1 for the root; 0 where the coefficient is always 0."""
    n_siblings = int((tree.parent == tree.parent[node]).sum())
    if tree.parent[node] < 0:
        return 1.0
    return n_siblings / (2 * n_siblings - 2) if n_siblings > 1 else 0.0


@every_tree
def test_sums_coefficients_and_inverse_are_those_of_a_loop(tree):
    counts = np.random.default_rng(0).integers(-1000, 1000, (3, tree.n_leaves))
    sums, coefficients = tree.sums(counts), tree.transform(counts)
    assert coefficients.dtype == counts.dtype
    for row in range(3):
        np.testing.assert_array_equal(sums[row], sums_by_loop(tree, counts[row]))
        for node in range(len(tree.parent)):
            n_siblings = (tree.parent == tree.parent[node]).sum() if tree.parent[node] >= 0 else 1
            expected = n_siblings * published_coefficient(tree, sums[row], node)
            assert coefficients[row, node] == pytest.approx(expected, abs=1e-9)
    # Whole numbers below 2^53, whose quotients are whole.
    np.testing.assert_array_equal(tree.inverse(coefficients), counts)
    np.testing.assert_allclose(tree.inverse(tree.subtract_means(coefficients)), counts, atol=1e-9)


@pytest.mark.parametrize("shape", [(), (2, 3), (0,)])
def test_any_number_of_axes(shape):
    counts = np.ones((*shape, 7), int)
    noisy = noisy_counts(counts, HIERARCHIES["ragged"], 1, 1.0, Recorded())
    np.testing.assert_allclose(noisy, counts, atol=1e-9)


@every_tree
def test_generalized_sensitivity_by_brute_force(tree):
    """As published, with published coefficients and weights, without the package's."""
    published = []
    for row in np.eye(tree.n_leaves):
        sums = sums_by_loop(tree, row)
        terms = (abs(published_coefficient(tree, sums, n)) * published_weight(tree, n) for n in range(len(sums)))
        published.append(sum(terms))
    assert max(published) == pytest.approx(tree.generalized_sensitivity)


def test_generalized_sensitivity_of_known_hierarchies():
    """Root, and each level with siblings: an only child costs nothing."""
    heights = {name: tree.generalized_sensitivity for name, tree in HIERARCHIES.items()}
    assert heights == {"one leaf": 1, "no categories": 2, "one category": 2, "table 2": 4, "ragged": 5, "binary": 5}


def loss(counts: np.ndarray, changed: np.ndarray, tree: Hierarchy, epsilon: float) -> Fraction:
    """By how much the log-probability of an output differs at most between two data sets: exact, of what was drawn."""
    one, other = Recorded(), Recorded()
    for counted, noise in ((counts, one), (changed, other)):
        np.testing.assert_allclose(noisy_counts(counted, tree, 3, epsilon, noise), counted, atol=1e-9)
    return loss_between(one, other)


@every_tree
def test_neighbours_lose_no_more_than_epsilon(tree):
    """Brute force over all changes of one count by 3, and some of three by 1; the worst loses epsilon and no more."""
    rng = np.random.default_rng(3)
    n, epsilon = tree.n_leaves, 0.1
    counts = rng.integers(0, 9, (2, n))
    losses = []
    for leaf in range(n):
        for changes in (([leaf % 2] * 3, [leaf] * 3), (rng.integers(0, 2, 3), rng.integers(0, n, 3))):
            changed = counts.copy()
            np.add.at(changed, tuple(map(np.array, changes)), rng.choice([-1, 1]))
            losses.append(loss(counts, changed, tree, epsilon))
    assert Fraction(epsilon) * Fraction(999_999, 1_000_000) < max(losses) <= Fraction(epsilon)


@pytest.mark.parametrize("planted", [lambda k: np.minimum(k, 1), lambda k: k // 2])
def test_planted_weights_lose_more_than_epsilon(planted):
    """Noise as wide on every coefficient, and weights of half the change."""
    tree = Hierarchy.of_paths(TABLE_2)
    tree.__dict__["coefficient_sensitivity"] = np.where(tree.parent < 0, 1, planted(tree.coefficient_sensitivity))
    counts = np.zeros(tree.n_leaves, int)
    assert loss(counts, counts + 3 * np.eye(len(counts), dtype=int)[0], tree, 1.0) > 1


# The noise of sums


def laplace_variance(scale: np.ndarray) -> np.ndarray:
    """Of discrete Laplace noise, 2 q / (1 - q)^2 with q = exp(-1 / scale); 0 at scale 0."""
    inverse = 1 / np.where(scale > 0, scale, 1)
    return np.where(scale > 0, 2 * np.exp(-inverse) / np.expm1(-inverse) ** 2, 0)


def sum_variances(tree: Hierarchy, sensitivity: int, epsilon: float) -> np.ndarray:
    """Variance of the sum of every node.

    With v(s) the variance of noise of scale s, and h the generalized sensitivity: v(h sensitivity / epsilon) for the
    root; for one of f siblings below P, (1 - 1/f) v(2 (f - 1) h sensitivity / epsilon) / f^2 + Var(P) / f^2. The first
    part is what subtracting the mean of the siblings leaves of the coefficient's noise.
    """
    scale = tree.coefficient_sensitivity * tree.generalized_sensitivity * sensitivity / epsilon
    f = tree.n_siblings
    variances = laplace_variance(scale) * np.where(f > 1, 1 - 1 / f, 1) / f**2
    for node in range(1, len(f)):
        variances[node] += variances[tree.parent[node]] / f[node] ** 2
    return variances


# Sample variances of 4,000 rows: their standard error is at most sqrt(5 / rows) of the variance, since no sum of
# independent Laplace noise has a kurtosis above 6. Seven of those: 1e-12 if they were normal, and with the skewness of
# a squared Laplace number, 6.6, times exp(6.6 x 7^3 / (6 sqrt(rows))) = 400: less than 1e-7 for all sums here.
N_ROWS = 4000
TOLERANCE = 7 * np.sqrt(5 / N_ROWS)


def variance_errors(tree: Hierarchy, noise: NoiseSource) -> np.ndarray:
    """Relative to the closed form, of every node's sum."""
    noisy = noisy_counts(np.full((N_ROWS, tree.n_leaves), 4), tree, 2, 0.8, noise)
    errors = tree.sums(noisy) - tree.sums(np.full(tree.n_leaves, 4))
    return np.mean(errors**2, axis=0) / sum_variances(tree, 2, 0.8) - 1


@pytest.mark.parametrize("noise", [SecureNoise(), SeededNoise(0)])
def test_variance_of_sums_is_the_closed_form(noise):
    assert np.abs(variance_errors(HIERARCHIES["ragged"], noise)).max() < TOLERANCE


def test_planted_bugs_change_the_variance(monkeypatch):
    tree = HIERARCHIES["ragged"]
    with monkeypatch.context() as patch:
        patch.setattr(Hierarchy, "subtract_means", lambda _, coefficients: coefficients.astype(float))
        assert np.abs(variance_errors(tree, SeededNoise(0))).max() > TOLERANCE

    class Louder(SeededNoise):
        def add_laplace(self, values, sensitivity, epsilon):
            return super().add_laplace(values, sensitivity, epsilon * 0.8)

    assert np.abs(variance_errors(tree, Louder(0))).max() > TOLERANCE


def test_closed_form_by_hand():
    """Two categories of two places: scale 3 / epsilon for the root, 2 x 3 / epsilon for the others."""
    tree = Hierarchy.of_paths([("a",), ("a",), ("b",), ("b",)])
    epsilon = 0.01
    root = 2 * (3 / epsilon) ** 2
    # Of f = 2 siblings: half of the coefficient's variance, divided by f^2, and a quarter of the parent's.
    category = 2 * (6 / epsilon) ** 2 / 2 / 4 + root / 4
    place = 2 * (6 / epsilon) ** 2 / 2 / 4 + category / 4
    # The discrete distribution has less, 1/6 each time.
    np.testing.assert_allclose(sum_variances(tree, 1, epsilon), [root, *[category] * 2, *[place] * 4], rtol=1e-5)


def test_less_noise_than_laplace_in_sums_of_large_categories():
    """By the closed form: 1,000 places in 10 categories of 5 sub-categories, 20 places each."""
    tree = Hierarchy.of_paths([(i, (i, j)) for i in range(10) for j in range(5) for _ in range(20)])
    for epsilon in (0.01, 0.1, 0.5, 1.0):
        one_place = laplace_variance(np.array(1 / epsilon))
        variances = sum_variances(tree, 1, epsilon)
        # 128 (9/10)^3 and 32 / 100 against 200; at epsilon 1 discrete noise is 8 % less than that on single places.
        assert (variances[tree.depth == 1] < 0.52 * 100 * one_place).all()
        # Of a sub-category, 20 places, it is more, as it is of single places.
        assert variances[-tree.n_leaves :].min() > one_place


# Bad input


@pytest.mark.parametrize("name", [None, float("nan"), pd.NA, ""])
def test_a_place_without_category_is_refused(name):
    with pytest.raises(InputError, match=r"leaves without one \(1 row\), first: 1\. Name them, as 'other'"):
        Hierarchy.of_paths([("a", "b"), ("a", name)])


def test_no_leaf_is_refused():
    with pytest.raises(InputError, match="no leaf"):
        Hierarchy.of_paths([])


@pytest.mark.parametrize(
    ("counts", "sensitivity", "epsilon", "told"),
    [
        (np.zeros((2, 3), int), 1, 1.0, "each of 7 leaves.*shape"),
        (np.zeros(7, int), 0, 1.0, "sensitivity"),
        (np.zeros(7, int), 1, 0.0, "epsilon"),
        (np.zeros(7, int), 1, np.nan, "epsilon"),
        (np.full(7, 2**59), 1, 1.0, "62 bits"),
    ],
)
def test_bad_input_is_refused(counts, sensitivity, epsilon, told):
    with pytest.raises(InputError, match=told):
        noisy_counts(counts, HIERARCHIES["no categories"], sensitivity, epsilon)


def test_equal_names_below_different_categories_are_apart():
    tree = Hierarchy.of_paths([("food", "other"), ("sight", "other"), ("food", "other")])
    # Root, food, its other, sight, its other; then the leaves.
    assert tree.parent.tolist() == [-1, 0, 1, 0, 3, 2, 4, 2]
    assert tree.n_leaves == 3
