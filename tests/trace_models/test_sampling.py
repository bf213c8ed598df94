"""Drawing an index with exact probabilities."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.trace_models.sampling import sample_index
from tests.trace_models.examples import INSTANTS, random_chains


def index_frequencies(weight: np.ndarray, n: int) -> np.ndarray:
    uniform = (jnp.arange(n) + 0.5) / n
    drawn = np.asarray(jax.jit(jax.vmap(sample_index, (0, None)))(uniform, jnp.asarray(weight)))
    assert (np.diff(drawn) >= 0).all()
    return np.bincount(drawn, minlength=len(weight))


def weights(size: int, zeros: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    weight = rng.exponential(size=size) * (rng.random(size) >= zeros)
    weight[rng.integers(size)] = 1
    return weight


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("size", "zeros"), [(1, 0), (2, 0), (5, 0.6), (1000, 0.5), (1000, 0.99)])
def test_index_has_the_exact_probabilities(size, zeros):
    """Of n equidistant numbers, an interval of length p holds between n p - 1 and n p + 1."""
    weight, n = weights(size, zeros), 5000
    frequency = index_frequencies(weight, n)
    assert np.abs(frequency - n * weight / weight.sum()).max() < 1 + 1e-6
    assert not frequency[weight == 0].any()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10, 1000])
def test_index_never_has_weight_zero(size):
    """In single precision, at both ends of the unit interval and at every boundary between places."""
    draw = jax.jit(jax.vmap(sample_index, (0, None)))
    for seed in range(18):
        weight = weights(size, [0.3, 0.9][seed % 2], seed).astype(np.float32) * np.float32(10.0 ** (seed % 9 - 4))
        edges = (np.cumsum(weight, dtype=np.float64) / weight.sum(dtype=np.float64)).astype(np.float32)
        below, above = np.nextafter(edges, np.float32(0)), np.nextafter(edges, np.float32(2))
        uniform = np.concatenate([[0, np.nextafter(np.float32(1), np.float32(0))], edges, below, above])
        uniform = np.resize(uniform[(uniform >= 0) & (uniform < 1)], 3 * size + 2).astype(np.float32)
        drawn = np.asarray(draw(jnp.asarray(uniform), jnp.asarray(weight)))
        assert (weight[drawn] > 0).all()


def test_a_chain_is_drawn_event_by_event_each_from_a_key_of_its_own():
    model, key = random_chains(), jax.random.key(4)
    first, following = jax.jit(model.sample_first), jax.jit(model.sample_next)
    trace = jax.jit(model.sample_trace, static_argnums=2)(key, jnp.asarray(3), INSTANTS)
    expected = [first(jax.random.fold_in(key, 0), jnp.asarray(3))]
    for instant in range(1, INSTANTS):
        own_key = jax.random.fold_in(key, instant)
        expected.append(following(own_key, jnp.asarray(3), jnp.asarray(instant), expected[-1]))
    assert trace.tolist() == [int(place) for place in expected]
