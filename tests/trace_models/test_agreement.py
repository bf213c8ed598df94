"""What is drawn and what is scored agree: the privacy test judges the model that draws, for whatever settings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies

from ppmtf_jax.synthesizers.registry import SYNTHESIZERS
from ppmtf_jax.synthesizers.synthesis import fit
from ppmtf_jax.synthesizers.systems.uniform import Uniform
from ppmtf_jax.trace_models.base import ScoredTraceModel
from ppmtf_jax.trace_models.metropolis_hastings import LARGEST_FACTOR, SMALLEST_FLOOR, MetropolisHastings
from ppmtf_jax.trace_models.sampling import sample_index
from tests.people.examples import try_few_settings
from tests.trace_models.agreement import log_rows, worst_disagreement
from tests.trace_models.examples import INSTANTS, PLACES, random_training

FITTED = {
    "sgd": [{"n_copied": 0}, {"n_copied": 2}],
    "tpm": [{"epsilon": 0.01, "noise": "seeded"}, {"epsilon": 100.0, "noise": "seeded"}],
    "uniform": [{}],
    "bridge": [{"n_clusters": 3, "memory": "none"}],
}
FACTORIZED = {"ppmtf", "itf"}


def test_every_system_whose_model_is_scored_is_looked_at():
    scored = {name for name, entry in SYNTHESIZERS.items() if issubclass(entry.model, ScoredTraceModel)}
    scored -= {name for name in scored if SYNTHESIZERS[name].of_nobody}  # no user has a row to score
    assert scored == FITTED.keys() | FACTORIZED


@pytest.mark.parametrize(
    ("system", "settings"), [(name, settings) for name, tried in FITTED.items() for settings in tried]
)
def test_draws_of_a_fitted_model_are_distributed_as_it_scores_them(system, settings, monkeypatch):
    try_few_settings(monkeypatch)
    model = fit(random_training(), system, seed=1, **settings).trace_model
    assert worst_disagreement(model, [0, 69], INSTANTS, PLACES) < 1


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class OneStaysLonger(Uniform):
    """Draws place 0 at 0.22 instead of 0.167, and scores as if it did not."""

    def sample_next(self, key, user, instant, place):
        again = jax.random.bernoulli(jax.random.fold_in(key, 1), 1 / 15)
        return jnp.where(again, 0, super().sample_next(key, user, instant, place))


def test_a_model_that_draws_otherwise_is_caught():
    assert worst_disagreement(OneStaysLonger(n_places=PLACES), [0], INSTANTS, PLACES) > 1


# Chains of factors


USERS, RANK, SLOTS, N_GRID = 2, 2, 2, 64
# With the population in half of the proposal, or without. The first floor is below those that settings accept.
FLOORS_AND_MIXES = ((1e-13, 0.0), (SMALLEST_FLOOR, 0.5), (1e-8, 0.0), (0.999, 0.5))
# Midpoints of n intervals give the length of an interval to within 1 / n. So each proposal has its probability to
# within 1 / n, and each acceptance to within 1 / (2 n): a right step differs by at most (PLACES + 1) / n in total
# variation. Rounding in single precision moves a boundary past a midpoint once in thousands.
TOLERANCE = (PLACES + 2) / N_GRID


def factors_of(seed: int, scale: float, visit_scale: float) -> dict[str, np.ndarray]:
    """Factors of reconstructions of the sizes scale^3 and visit_scale^3; a third of them negative."""
    rng = np.random.default_rng(seed)
    sizes = {"user": USERS, "place": PLACES, "next_place": PLACES}
    visit_sizes = {"visit_user": USERS, "visit_place": PLACES, "slot": SLOTS}
    made = {name: rng.normal(0.5, 1, (n, RANK)) * scale for name, n in sizes.items()}
    made |= {name: rng.normal(0.5, 1, (n, RANK)) * visit_scale for name, n in visit_sizes.items()}
    return {name: np.clip(rows, -LARGEST_FACTOR, LARGEST_FACTOR).astype(np.float32) for name, rows in made.items()}


POPULATION = np.random.default_rng(5).dirichlet(np.full(PLACES, 0.5), size=PLACES).astype(np.float32)


def chains(kind: type, floor: float, mix: float, factors: dict[str, np.ndarray]) -> MetropolisHastings:
    population = jnp.asarray(POPULATION) if mix else None
    return kind(
        **jax.tree.map(jnp.asarray, factors),
        slot_of_instant=jnp.array([1, 0]),
        floor=floor,
        population=population,
        proposal_mix=mix,
    )


@cache
def compiled(kind: type, floor: float, mix: float):
    """Where a step leads from each place, for pairs of random numbers on a grid, and the scores: one program."""
    middle = (jnp.arange(N_GRID) + 0.5) / N_GRID
    pairs = jnp.stack(jnp.meshgrid(middle, middle), axis=-1).reshape(-1, 2)
    user, slot, every = jnp.asarray(1), jnp.asarray(0), jnp.arange(PLACES)

    @jax.jit
    def drawn_and_scored(factors: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        model = chains(kind, floor, mix, factors)
        over_pairs = jax.vmap(model.move, (0, None, None, None))
        drawn = jax.vmap(over_pairs, (None, None, None, 0))(pairs, user, slot, every)
        return drawn, log_rows(model, user, 2, PLACES)[1][0]

    return drawn_and_scored


def disagreement(kind: type, floor: float, mix: float, factors: dict[str, np.ndarray]) -> float:
    """Greatest total variation between a row of steps, enumerated on the grid, and the row of scores."""
    moved, scores = compiled(kind, floor, mix)(factors)
    drawn = np.stack([np.bincount(row, minlength=PLACES) for row in np.asarray(moved)]) / N_GRID**2
    scored = np.exp(np.asarray(scores, np.float64))
    np.testing.assert_allclose(scored.sum(axis=1), 1, rtol=1e-4)
    return np.abs(drawn - scored).sum(axis=1).max() / 2


SIZES = strategies.floats(-3, 6).map(lambda exponent: 10**exponent)


@hypothesis.settings(max_examples=24)
@hypothesis.given(strategies.sampled_from(FLOORS_AND_MIXES), strategies.integers(0, 1000), SIZES, SIZES)
def test_steps_are_scored_as_they_are_drawn(floor_and_mix, seed, scale, visit_scale):
    """Reconstructed counts from 1e-9 to 1e18, some of them at the floor."""
    assert disagreement(MetropolisHastings, *floor_and_mix, factors_of(seed, scale, visit_scale)) < TOLERANCE


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Products(MetropolisHastings):
    """Compares products, which leave single precision, instead of ratios."""

    def move(self, uniform, user, slot, place):
        row = self._proposal_from(self.user[user], place)
        proposed = sample_index(uniform[0], row)
        back_row = self._proposal_from(self.user[user], proposed)
        here, there = self._visits(user, slot, jnp.stack([place, proposed]))
        forth = here * row[proposed] * back_row.sum()
        return jnp.where(uniform[1] * forth < there * back_row[place] * row.sum(), proposed, place)


@pytest.mark.parametrize("counts", [-1e-3, 1e15])
def test_steps_whose_products_leave_single_precision_are_caught(counts):
    """All counts equal, below the floor or large: each place has a sixth, and what compares products never moves."""
    factor = np.full((PLACES, RANK), (counts / RANK), np.float32)
    ones = np.ones((PLACES, RANK), np.float32)
    factors = {"user": ones[:USERS], "place": ones, "next_place": factor}
    factors |= {"visit_user": ones[:USERS], "visit_place": factor, "slot": ones[:SLOTS]}
    assert disagreement(MetropolisHastings, 1e-13, 0.0, factors) < TOLERANCE
    assert disagreement(Products, 1e-13, 0.0, factors) == pytest.approx(5 / 6)
