"""Privelet: the transform and its inverse, how much one count can change, and how much noise a sum has."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.errors import InputError
from ppmtf_jax.noise.laplace import NoiseSource, SecureNoise
from ppmtf_jax.noise.privelet import Hierarchy, noisy_counts, sum_variances
from ppmtf_jax.noise.seeded import SeededNoise
from tests.noise.sources import Recorded, loss_between

# Places of Narita et al. 2022, table 2, with so many in each sub-category: ragged in fanout, and with an only child.
TABLE_2 = [
    *[("travel", name) for name in ("train station", "airport", "platform", "subway", "terminal") for _ in range(9)],
    *[("shop", name) for name in ("electronics", "hobby", "record", "mall") for _ in range(8)],
    *[("arts", "arcade")] * 6,
    *[("professional", name) for name in ("startup", "convention center") for _ in range(4)],
]
HIERARCHIES = {
    "one leaf": Hierarchy(np.array([-1])),
    "one leaf below another node": Hierarchy(np.array([-1, 0, 1])),
    "no categories": Hierarchy.of_paths([()] * 7),
    "one category": Hierarchy.of_paths([("all",)] * 5),
    "table 2": Hierarchy.of_paths(TABLE_2),
    "ragged": Hierarchy.of_paths([("a", "b", "c"), ("a", "b", "c"), ("a", "b"), ("d", "e", "f", "g"), (), ("a",), ()]),
    "root last, any order": Hierarchy(np.array([6, 4, 4, 0, 6, 0, -1, 4, 3, 3])),
    "binary": Hierarchy(np.array([-1, *np.repeat(np.arange(15), 2)])),
    "a line that ends in two": Hierarchy(np.array([-1, *range(20), 19])),
}


def random_hierarchy(seed: int, n_nodes: int = 40) -> Hierarchy:
    """Each node below one that was there before it, and numbers mixed."""
    rng = np.random.default_rng(seed)
    parent = np.array([-1, *(rng.integers(0, n) for n in range(1, n_nodes))])
    number = rng.permutation(n_nodes)
    mixed = np.empty(n_nodes, int)
    mixed[number] = np.where(parent < 0, -1, number[parent])
    return Hierarchy(mixed)


TREES = [*HIERARCHIES.values(), *map(random_hierarchy, range(5))]
TREE_NAMES = [*HIERARCHIES, *(f"random {seed}" for seed in range(5))]
every_tree = pytest.mark.parametrize("tree", TREES, ids=TREE_NAMES)


def above(tree: Hierarchy, node: int) -> list[int]:
    """A node and all above it, by walking up."""
    found = [node]
    while tree.parent[found[-1]] >= 0:
        found.append(int(tree.parent[found[-1]]))
    return found


def sums_by_loop(tree: Hierarchy, counts: np.ndarray) -> np.ndarray:
    sums = np.zeros(len(tree.parent), counts.dtype)
    for leaf, count in zip(tree.leaves, counts, strict=True):
        sums[above(tree, int(leaf))] += count
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
def test_sums_and_coefficients_are_those_of_a_loop(tree):
    counts = np.random.default_rng(0).integers(0, 50, (3, len(tree.leaves)))
    sums, coefficients = tree.sums(counts), tree.transform(counts)
    assert coefficients.dtype == counts.dtype
    for row in range(3):
        np.testing.assert_array_equal(sums[row], sums_by_loop(tree, counts[row]))
        for node in range(len(tree.parent)):
            n_siblings = (tree.parent == tree.parent[node]).sum() if tree.parent[node] >= 0 else 1
            expected = n_siblings * published_coefficient(tree, sums[row], node)
            assert coefficients[row, node] == pytest.approx(expected, abs=1e-9)


@every_tree
@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (0,)])
def test_without_noise_the_inverse_is_exact(tree, shape):
    counts = np.random.default_rng(1).integers(-1000, 1000, (*shape, len(tree.leaves)))
    coefficients = tree.transform(counts)
    # Whole numbers below 2^53, whose quotients are whole.
    np.testing.assert_array_equal(tree.inverse(coefficients), counts)
    np.testing.assert_allclose(tree.inverse(tree.subtract_means(coefficients)), counts, atol=1e-9)


def changes(tree: Hierarchy) -> np.ndarray:
    """By how much every coefficient changes, in units of its sensitivity, when each of the counts grows by 1."""
    counts = np.random.default_rng(2).integers(0, 9, len(tree.leaves))
    change = np.abs(tree.transform(counts + np.eye(len(counts), dtype=int)) - tree.transform(counts))
    assert (change[:, tree.coefficient_sensitivity == 0] == 0).all()
    return change / np.maximum(tree.coefficient_sensitivity, 1)


@every_tree
def test_generalized_sensitivity_by_brute_force(tree):
    assert changes(tree).sum(axis=1).max() == pytest.approx(tree.generalized_sensitivity)
    # As published, with published coefficients and weights, without the package's.
    weight = np.array([published_weight(tree, node) for node in range(len(tree.parent))])
    published = []
    for row in np.eye(len(tree.leaves)):
        sums = sums_by_loop(tree, row)
        change = [published_coefficient(tree, sums, node) for node in range(len(weight))]
        published.append(np.sum(np.abs(change) * weight))
    assert max(published) == pytest.approx(tree.generalized_sensitivity)


def test_generalized_sensitivity_of_known_hierarchies():
    height = {name: tree.generalized_sensitivity for name, tree in HIERARCHIES.items()}
    # Root, and each level with siblings: a line or an only child costs nothing.
    assert height["one leaf"] == height["one leaf below another node"] == 1
    assert height["no categories"] == height["one category"] == height["a line that ends in two"] == 2
    assert height["table 2"] == 4
    assert height["binary"] == 5


def loss(counts: np.ndarray, changed: np.ndarray, tree: Hierarchy, epsilon: float, **options) -> Fraction:
    """By how much the log-probability of an output differs at most between two data sets: exact, of what was drawn."""
    one, other = Recorded(), Recorded()
    for counted, noise in ((counts, one), (changed, other)):
        unchanged = noisy_counts(counted, tree, 3, epsilon, noise, **options)
        np.testing.assert_allclose(unchanged, counted, atol=1e-9)
    return loss_between(one, other)


@every_tree
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("haar", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_neighbours_lose_no_more_than_epsilon(tree, epsilon, haar, weighted):
    """Brute force over all changes of one count by 3, and some of three by 1; the worst loses epsilon and no more."""
    rng = np.random.default_rng(3)
    n_instants, n = 5, len(tree.leaves)
    counts = rng.integers(0, 9, (n_instants, n))
    weights = (
        rng.integers(1, 9, 1 + max(len(above(tree, leaf)) - 1 for leaf in tree.leaves)).tolist() if weighted else None
    )
    losses = []
    for leaf in range(n):
        for instants, leaves in (
            ([leaf % n_instants] * 3, [leaf] * 3),
            (rng.integers(0, n_instants, 3), rng.integers(0, n, 3)),
        ):
            changed = counts.copy()
            np.add.at(changed, (np.array(instants), np.array(leaves)), rng.choice([-1, 1]))
            losses.append(loss(counts, changed, tree, epsilon, haar=haar, level_weights=weights))
    assert max(losses) <= Fraction(epsilon)
    assert max(losses) > Fraction(epsilon) * Fraction(999_999, 1_000_000)


@pytest.mark.parametrize("planted", [lambda k: np.minimum(k, 1), lambda k: k // 2])
def test_planted_weights_lose_more_than_epsilon(planted):
    """Noise as wide on every coefficient, and weights of half the change."""
    tree = Hierarchy.of_paths(TABLE_2)
    tree.__dict__["coefficient_sensitivity"] = np.where(tree.parent < 0, 1, planted(tree.coefficient_sensitivity))
    counts = np.zeros(len(tree.leaves), int)
    assert loss(counts, counts + 3 * np.eye(len(counts), dtype=int)[0], tree, 1.0) > 1


# Sample variances of 4,000 rows: their standard error is at most sqrt(5 / rows) of the variance, since no sum of
# independent Laplace noise has a kurtosis above 6. Seven of those: 1e-12 if they were normal, and with the skewness of
# a squared Laplace number, 6.6, times exp(6.6 x 7^3 / (6 sqrt(rows))) = 400: less than 1e-7 for all sums here.
N_ROWS = 4000
TOLERANCE = 7 * np.sqrt(5 / N_ROWS)


def variance_errors(tree: Hierarchy, noise: NoiseSource, weights: list[int] | None = None) -> np.ndarray:
    """Relative to the closed form, of every node's sum."""
    noisy = noisy_counts(np.full((N_ROWS, len(tree.leaves)), 4), tree, 2, 0.8, noise, level_weights=weights)
    errors = tree.sums(noisy) - tree.sums(np.full(len(tree.leaves), 4))
    return np.mean(errors**2, axis=0) / sum_variances(tree, 2, 0.8, weights) - 1


@pytest.mark.parametrize("noise", [SecureNoise(), SeededNoise(0)])
@pytest.mark.parametrize("name", ["one leaf", "no categories", "ragged", "root last, any order"])
def test_variance_of_sums_is_the_closed_form(name, noise):
    assert np.abs(variance_errors(HIERARCHIES[name], noise)).max() < TOLERANCE


def test_variance_of_sums_with_weights_is_the_closed_form():
    tree = HIERARCHIES["ragged"]
    assert np.abs(variance_errors(tree, SeededNoise(1), [1, 4, 2, 1, 1, 1])).max() < TOLERANCE


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


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 1.0])
def test_less_noise_than_laplace_in_sums_of_large_categories(epsilon):
    """By the closed form: 1,000 places in 10 categories of 5 sub-categories, 20 places each."""
    tree = Hierarchy.of_paths([(i, (i, j)) for i in range(10) for j in range(5) for _ in range(20)])
    one_place = sum_variances(HIERARCHIES["one leaf"], 1, epsilon)[0]
    categories = np.flatnonzero(tree.parent == 0)
    assert len(categories) == 10
    # 128 (9/10)^3 and 32 / 100 against 200; at epsilon 1 discrete noise is 8 % less than that on single places.
    assert (sum_variances(tree, 1, epsilon)[categories] < 0.52 * 100 * one_place).all()
    # Of a sub-category, 20 places, it is more, as it is of single places.
    assert sum_variances(tree, 1, epsilon)[tree.leaves].min() > one_place


def test_less_noise_than_laplace_in_experiment():
    tree = Hierarchy.of_paths([("large",)] * 60 + [("small",)] * 4)
    counts = np.random.default_rng(5).poisson(2.0, (500, 64))
    noise = SeededNoise(6)
    errors = [
        tree.sums(noisy)[:, 1] - tree.sums(counts)[:, 1]
        for noisy in (noisy_counts(counts, tree, 5, 0.5, noise), noise.add_laplace(counts, 5, 0.5))
    ]
    # 3^2 (2 / 4 + 8 / 8) of the two against 2 x 60: about a ninth. Standard errors are 1/10 of either.
    assert np.mean(errors[0] ** 2) < np.mean(errors[1] ** 2) / 4


def test_weights_help_the_sums_of_the_level_that_has_them():
    tree = HIERARCHIES["table 2"]
    categories = np.flatnonzero(tree.parent == 0)
    equal, weighted = (sum_variances(tree, 1, 1.0, weights) for weights in (None, [1, 3, 1, 1]))
    assert (weighted[categories] < 0.6 * equal[categories]).all()
    assert (weighted[tree.leaves] > equal[tree.leaves]).all()
    np.testing.assert_allclose(sum_variances(tree, 1, 1.0, [7, 7, 7, 7]), equal)


@pytest.mark.parametrize("n_instants", [1, 2, 3, 8])
def test_haar_has_the_variance_of_a_whole_day(n_instants):
    """A sum over all instants is the root of the tree over them: noise as in one row, of epsilon / (1 + log2)."""
    tree = HIERARCHIES["ragged"]
    n_levels = {1: 1, 2: 2, 3: 3, 8: 4}[n_instants]
    noise = SeededNoise(7)
    counts = np.full((n_instants, N_ROWS, len(tree.leaves)), 4)
    noisy = noisy_counts(counts, tree, 2, 0.8, noise, haar=True)
    assert noisy.shape == counts.shape
    one_instant = (tree.sums(noisy)[0] - tree.sums(counts)[0]).var(axis=0)
    whole = (tree.sums(noisy).sum(axis=0) - tree.sums(counts).sum(axis=0)).var(axis=0)
    expected = sum_variances(tree, 2, 0.8 / n_levels)
    if n_instants != 3:  # with the noise of the instant that fills up
        np.testing.assert_allclose(whole, expected, rtol=TOLERANCE)
    # v/2 for the first half, with each halving (v + what is above) / 4.
    part = 1.0
    for _ in range(n_levels - 1):
        part = (1 + part) / 4
    np.testing.assert_allclose(one_instant, part * expected, rtol=TOLERANCE)


@pytest.mark.parametrize(
    ("parent", "told"),
    [
        ([], "one root.*0 of them"),
        ([0], "root"),
        ([-1, -1], "2 of them"),
        ([-1, 2, 1], r"above every node.*circles \(2 rows\), first: 1, 2"),
        ([-1, 1], r"circles \(1 row\)"),
        ([-1, 5], r"parents from 0 to 1.*first: 5"),
        ([-1, -2], r"parents from 0 to 1.*first: -2"),
    ],
)
def test_what_is_no_tree_is_refused(parent, told):
    with pytest.raises(InputError, match=told):
        Hierarchy(np.array(parent, int))


@pytest.mark.parametrize("name", [None, float("nan"), pd.NA, ""])
def test_a_place_without_category_is_refused(name):
    with pytest.raises(InputError, match=r"leaves without one \(1 row\), first: 1\. Name them, as 'other'"):
        Hierarchy.of_paths([("a", "b"), ("a", name)])
    with pytest.raises(InputError, match="no leaf"):
        Hierarchy.of_paths([])


@pytest.mark.parametrize(
    ("counts", "sensitivity", "epsilon", "options", "told"),
    [
        (np.zeros((2, 3), int), 1, 1.0, {}, "each of 7 leaves.*shape"),
        (np.zeros(7, int), 0, 1.0, {}, "sensitivity"),
        (np.zeros(7, int), 1, 0.0, {}, "epsilon"),
        (np.zeros(7, int), 1, np.inf, {}, "epsilon"),
        (np.zeros(7, int), 1, np.nan, {}, "epsilon"),
        (np.zeros(7, int), 1, 1.0, {"haar": True}, "time as the first axis"),
        (np.zeros((0, 7), int), 1, 1.0, {"haar": True}, "time as the first axis"),
        (np.full(7, 2**59), 1, 1.0, {}, "62 bits"),
        (np.zeros(7, int), 1, 1.0, {"level_weights": [1, 1, 1]}, "2 levels"),
        (np.zeros(7, int), 1, 1.0, {"level_weights": [1, 0]}, "at least 1"),
    ],
)
def test_bad_input_is_refused(counts, sensitivity, epsilon, options, told):
    with pytest.raises(InputError, match=told):
        noisy_counts(counts, HIERARCHIES["no categories"], sensitivity, epsilon, **options)


def test_equal_names_below_different_categories_are_apart():
    tree = Hierarchy.of_paths([("food", "other"), ("sight", "other"), ("food", "other")])
    # Root, food, its other, sight, its other; then the leaves.
    assert tree.parent.tolist() == [-1, 0, 1, 0, 3, 2, 4, 2]
    assert tree.leaves.tolist() == [5, 6, 7]


def test_many_places_and_deep_trees_need_no_loop_over_leaves():
    tree = Hierarchy.of_paths([(i % 10, i % 100) for i in range(20_000)])
    counts = np.arange(20_000)
    np.testing.assert_array_equal(tree.inverse(tree.transform(counts)), counts)
    assert tree.generalized_sensitivity == 4
