"""Groups of places: which are adjacent, the weights of Algorithm 2, and Markov clustering."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest
from scipy import sparse

from ppmtf_jax.attacks.place_groups import adjacent_places, groups_of_moves, markov_clusters
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.errors import InputError


def lattice(rows: np.ndarray, columns: np.ndarray, west: float = 139.0, decimals: int = 12) -> PlaceTable:
    """Cells of 0.01875 degrees, as 0.3 degrees in 16 parts."""
    longitude = (west + 0.01875 * columns + 180) % 360 - 180
    return PlaceTable(np.arange(len(rows)), np.round(35 + 0.01875 * rows, decimals), np.round(longitude, decimals))


@pytest.mark.parametrize("kept", [1.0, 0.5])
@pytest.mark.parametrize(("west", "decimals"), [(139.0, 12), (179.9, 12), (139.0, 3)])
def test_eight_cells_around_are_adjacent(kept: float, west: float, decimals: int) -> None:
    cells = np.random.default_rng(0).choice(256, int(256 * kept), replace=False)
    row, column = np.divmod(cells, 16)
    expected = np.maximum(abs(row[:, None] - row), abs(column[:, None] - column)) == 1
    assert (adjacent_places(lattice(row, column, west, decimals)).toarray() == expected).all()


def test_elsewhere_the_eight_nearest_are() -> None:
    position = np.random.default_rng(0).uniform(0, 0.1, (40, 2))
    places = PlaceTable(np.arange(40), 35 + position[:, 0], 139 + position[:, 1])
    distance = np.linalg.norm((places.position_km()[:, None] - places.position_km()), axis=-1)
    nearest = np.argsort(distance, axis=1)[:, 1:9]
    expected = np.zeros((40, 40))
    expected[np.arange(40)[:, None], nearest] = 1
    assert (adjacent_places(places).toarray() == np.maximum(expected, expected.T)).all()


def test_places_at_one_point_are_adjacent_to_each_other_but_none_to_itself() -> None:
    places = PlaceTable(np.arange(30), np.repeat([35.0, 35.1, 35.123], 10), np.full(30, 139.0))
    adjacent = adjacent_places(places).toarray()
    assert not adjacent.diagonal().any()
    assert (adjacent.sum(axis=1) >= 8).all()
    assert not adjacent[:10, 10:].any()


def test_weights_are_moves_both_ways_and_adjacency() -> None:
    # 0 and 1 are joined by a move either way, 2 and 3 by one move and adjacency; stays at 2 do not hold it apart.
    places = lattice(np.zeros(4, int), np.arange(4))
    place, next_place = np.array([[0, 1], [1, 0], [3, 2], [2, 2], [2, 2], [2, 2]]).T
    assert groups_of_moves(place, next_place, places).tolist() == [0, 0, 1, 1]
    assert groups_of_moves(place[:2], next_place[:2], places, 0.0).tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize("latitude", [[35.0, 35.0], [35.0, np.nan]])
def test_without_coordinates_nothing_is_adjacent(latitude: list[float]) -> None:
    places = PlaceTable(np.arange(2), np.array(latitude), np.full(2, 139.0))
    with pytest.raises(InputError, match="adjacency_weight of 0"):
        adjacent_places(places)
    assert groups_of_moves(np.zeros(1, int), np.zeros(1, int), places, 0.0).tolist() == [0, 1]


def test_one_place_is_one_group() -> None:
    places = PlaceTable(np.arange(1), np.zeros(1), np.zeros(1))
    assert groups_of_moves(np.zeros(3, int), np.zeros(3, int), places).tolist() == [0]


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
