"""Markov clustering, against graphs whose clusters are known, a dense loop, and the program of its author."""

import shutil
import subprocess

import numpy as np
import pytest
from scipy import sparse

from ppmtf_jax.attacks.markov_clustering import markov_clusters


def graph(n_nodes: int, edges: dict[tuple[int, int], float]) -> sparse.csr_array:
    """Both directions of each edge."""
    one_way = sparse.coo_array((list(edges.values()), tuple(np.array(list(edges)).T)), (n_nodes, n_nodes))
    return sparse.csr_array(one_way + one_way.T)


def clique(*nodes: int, weight: float = 1.0) -> dict[tuple[int, int], float]:
    return {(a, b): weight for a in nodes for b in nodes if a < b}


def blocks(seed: int, n_nodes: int = 40, n_blocks: int = 4) -> sparse.csr_array:
    """A random graph, dense within blocks; weights are random, so that nothing ties."""
    rng = np.random.default_rng(seed)
    block = rng.integers(n_blocks, size=n_nodes)
    edge_prob = np.where(block[:, None] == block, 0.6, 0.02)
    weight = np.triu(rng.uniform(0.5, 2, (n_nodes, n_nodes)) * (rng.uniform(size=(n_nodes, n_nodes)) < edge_prob), 1)
    return sparse.csr_array(weight + weight.T)


def dense_clusters(weights: np.ndarray, inflation: float) -> list[int]:
    """The same without pruning: nodes belong together that end in the same places."""
    flow = weights + np.diag(np.where(weights.max(axis=0) > 0, weights.max(axis=0), 1))
    flow = flow / flow.sum(axis=0)
    for _ in range(200):
        flow = (flow @ flow) ** inflation
        flow = flow / flow.sum(axis=0)
    ends = [tuple(np.flatnonzero(column > 1e-3)) for column in flow.T]
    known = list(dict.fromkeys(ends))
    return [known.index(end) for end in ends]


@pytest.mark.parametrize(
    ("n_nodes", "edges", "clusters"),
    [
        # All columns of a clique are equal and even, which expansion and inflation both keep.
        (4, clique(0, 1, 2, 3), [0, 0, 0, 0]),
        (5, clique(0, 2) | clique(1, 3, 4), [0, 1, 0, 1, 1]),
        (3, {(0, 2): 1.0}, [0, 1, 0]),
        (1, {(0, 0): 0.0}, [0]),
        (6, clique(0, 1, 2) | clique(3, 4, 5) | {(2, 3): 1.0}, [0, 0, 0, 1, 1, 1]),
        # In the middle between both triangles: to that of the first attractor.
        (7, clique(0, 1, 2) | clique(4, 5, 6) | {(2, 3): 1.0, (3, 4): 1.0}, [0, 0, 0, 0, 1, 1, 1]),
    ],
)
def test_known_clusters(n_nodes: int, edges: dict[tuple[int, int], float], clusters: list[int]) -> None:
    assert markov_clusters(graph(n_nodes, edges)).tolist() == clusters


def test_a_first_iteration_by_hand() -> None:
    # On the path 0 - 1 - 2 with loops of 1 the columns are (1, 1, 0)/2, (1, 1, 1)/3, (0, 1, 1)/2; squared, (5, 5, 2)/12
    # and (5, 8, 5)/18: the middle gains in its own column and nowhere loses, so that all end there. A loop of 1 on
    # nodes joined by 1/1000 leaves each alone: loops must be as heavy as the heaviest edge, whatever the scale.
    path = {(0, 1): 1.0, (1, 2): 1.0}
    assert markov_clusters(graph(3, path)).tolist() == [0, 0, 0]
    light = {edge: weight / 1000 for edge, weight in path.items()}
    assert markov_clusters(graph(3, light)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("inflation", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("seed", range(2))
def test_pruning_changes_no_cluster(seed: int, inflation: float) -> None:
    weights = blocks(seed)
    assert markov_clusters(weights, inflation).tolist() == dense_clusters(weights.toarray(), inflation)


def test_scale_loops_and_explicit_zeros_do_not_matter() -> None:
    weights = blocks(0)
    expected = markov_clusters(weights).tolist()
    assert markov_clusters(sparse.csr_array(weights * 1e-6)).tolist() == expected
    assert markov_clusters(sparse.csr_array(weights + 5 * sparse.eye_array(40))).tolist() == expected
    row, column = np.indices((40, 40)).reshape(2, -1)
    full = sparse.coo_array((weights.toarray().ravel(), (row, column)), (40, 40))
    assert markov_clusters(full).tolist() == expected


@pytest.mark.skipif(shutil.which("mcl") is None, reason="needs the program mcl")
@pytest.mark.parametrize("seed", range(3))
def test_the_program_finds_the_same(seed: int, tmp_path) -> None:
    weights = blocks(seed)
    coo = sparse.triu(weights).tocoo()
    lines = [f"{a}\t{b}\t{w}" for a, b, w in zip(coo.row.tolist(), coo.col.tolist(), coo.data.tolist(), strict=True)]
    (tmp_path / "graph").write_text("\n".join(lines) + "\n")
    subprocess.run(
        ["mcl", str(tmp_path / "graph"), "--abc", "-I", "2.0", "-o", str(tmp_path / "out")],
        check=True,
        capture_output=True,
    )
    theirs = {frozenset(map(int, line.split())) for line in (tmp_path / "out").read_text().splitlines()}
    ours = markov_clusters(weights)
    # Nodes without an edge are not in the file.
    linked = np.flatnonzero(weights.sum(axis=0) > 0)
    assert {frozenset(linked[ours[linked] == cluster].tolist()) for cluster in set(ours[linked].tolist())} == theirs
