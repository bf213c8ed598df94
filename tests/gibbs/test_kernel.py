"""The sweep's conditionals against a loop over every cell of the dense tensors, in double precision."""

from __future__ import annotations

from typing import NamedTuple
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ppmtf_jax.errors import InputError
from ppmtf_jax.gibbs import cells, kernel
from ppmtf_jax.gibbs.cells import ObservedCells, observe
from ppmtf_jax.gibbs.conditionals import FactorPrior, HyperPrior, row_conditional
from ppmtf_jax.gibbs.draws import sample_gaussians
from ppmtf_jax.gibbs.kernel import SHARED, Coupling, GibbsSettings, GibbsState, init_state
from ppmtf_jax.gibbs.tensors import CountTensors, zero_weights
from tests.tensors import sparse

USERS, PLACES, SLOTS, RANK = 5, 4, 3, 2
ROWS = {"user": USERS, "place": PLACES, "next_place": PLACES, "slot": SLOTS}
SETTINGS = GibbsSettings(RANK, 3.7, HyperPrior(mean=0.3, mean_strength=1.5, scale=0.6, degrees_of_freedom=4.0))
SEPARATE = Coupling((("transitions", ("a", "b", "c")), ("visits", ("d", "e", "f"))))
# Its programs are half as large, and have blocks of all kinds: of users, by parts, and of others.
VISITS = Coupling(SHARED.tensors[1:])
N_ZEROS, SEED = 4, 3


class Dense(NamedTuple):
    """A tensor with the weight of every cell."""

    value: np.ndarray
    weight: np.ndarray


class Problem(NamedTuple):
    """The same data as the sampler sees it and as dense arrays."""

    cells: dict[str, ObservedCells]
    dense: dict[str, Dense]


def random_counts(seed: int, n_others: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    dense = rng.poisson(3.0, (USERS, PLACES, n_others)) * (rng.random((USERS, PLACES, n_others)) < 0.4)
    dense[0] = 0  # a user without any count
    dense[1] = 1  # one without any zero
    return dense


def held_cells(tiles, mode, shape):
    """User, place, other and value of each cell that tiles hold, padding left out."""
    right = max(other for other in range(3) if other != mode)
    held = np.asarray(tiles.right) < shape[right]
    own = np.asarray(tiles.rows)[np.arange(len(tiles.rows))[:, None, None], tiles.row]
    row = np.broadcast_to(own[..., None], held.shape)[held]
    others = np.stack([np.asarray(tiles.left)[held], np.asarray(tiles.right)[held]], axis=1)
    return *np.insert(others, mode, row, axis=1).T, np.asarray(tiles.value)[held]


def make_problem(zeros: str) -> Problem:
    dense = {"transitions": random_counts(0, PLACES), "visits": random_counts(1, SLOTS)}
    counts = CountTensors(sparse(dense["transitions"]), sparse(dense["visits"]))
    observed = jax.tree.map(jnp.asarray, observe(counts, zeros, N_ZEROS, seed=SEED))
    weighted = {}
    for name, value in dense.items():
        own = observed[name]
        if zeros == "sampled":
            # Which zeros were drawn is read off the layout; `sample_zeros` has its own tests.
            weight = (value > 0).astype(float)
            tiles = own.by_mode[0]
            cell = np.stack(held_cells(tiles, 0, value.shape)[:3])
            weight[tuple(cell)] = 1
        else:
            # The layout keeps it in single precision.
            zero = np.float32(zero_weights(sparse(value), N_ZEROS)).astype(float)
            weight = np.where(value > 0, 1.0, zero[:, None, None])
        weighted[name] = Dense(value.astype(float), weight)
    return Problem(observed, weighted)


@pytest.fixture(scope="module", params=["sampled", "weighted"])
def problem(request):
    return make_problem(request.param)


@pytest.fixture(scope="module")
def factors():
    rng = np.random.default_rng(2)
    return {name: rng.normal(0.4, 0.8, (n, RANK)) for name, n in ROWS.items()}


def dense_conditional(
    name: str, factors: dict[str, np.ndarray], dense: dict[str, Dense], prior: FactorPrior
) -> tuple[np.ndarray, np.ndarray]:
    """Precision and linear term of every row of a factor by a loop over all cells of all tensors."""
    precision = np.repeat(np.asarray(prior.precision)[None], len(factors[name]), axis=0)
    linear = np.repeat((np.asarray(prior.precision) @ np.asarray(prior.mean))[None], len(factors[name]), axis=0)
    for tensor, modes in SHARED.tensors:
        if name not in modes:
            continue
        mode = modes.index(name)
        others = [m for m in range(3) if m != mode]
        for cell in np.ndindex(dense[tensor].value.shape):
            design = np.ones(RANK)
            for m in others:
                design = design * factors[modes[m]][cell[m]]
            alpha = SETTINGS.noise_precision
            precision[cell[mode]] += alpha * dense[tensor].weight[cell] * np.outer(design, design)
            linear[cell[mode]] += alpha * dense[tensor].value[cell] * design
    return precision, linear


@jax.jit
def all_conditionals(observed, factors, priors):
    """Row conditionals of every block from one set of factors."""
    result = {}
    for name in SHARED.factors:
        parts = [
            kernel.total_statistics(
                kernel.Design.of(observed[tensor], modes, modes.index(name), factors), factors[name].shape[0], None
            )
            for tensor, modes in SHARED.tensors
            if name in modes
        ]
        result[name] = jax.vmap(row_conditional, (None, 0, None))(priors[name], sum(parts), SETTINGS.noise_precision)
    return result


def random_priors() -> dict[str, FactorPrior]:
    rng = np.random.default_rng(5)
    priors = {}
    for name in SHARED.factors:
        root = rng.normal(size=(RANK, RANK))
        priors[name] = FactorPrior(rng.normal(size=RANK), root @ root.T)
    return priors


@pytest.mark.usefixtures("float64")
def test_every_block_equals_a_loop_over_the_dense_tensors(problem, factors):
    priors = random_priors()
    ours = all_conditionals(problem.cells, jax.tree.map(jnp.asarray, factors), priors)
    for name in SHARED.factors:
        precision, linear = dense_conditional(name, factors, problem.dense, priors[name])
        assert ours[name].dtype == jnp.float64
        np.testing.assert_allclose(ours[name][:, :-1], precision, rtol=1e-10, atol=1e-10, err_msg=name)
        np.testing.assert_allclose(ours[name][:, -1], linear, rtol=1e-10, atol=1e-10, err_msg=name)


def sweep_without_randomness(monkeypatch, problem: Problem, start: dict[str, np.ndarray]):
    """A sweep in which rows are the means of their conditionals, and precisions a plain function of theirs."""

    def some_prior(key, posterior):
        precision = posterior.degrees_of_freedom * posterior.inverse_scale_matrix
        return FactorPrior(posterior.mean, precision), jnp.linalg.slogdet(precision)[1]

    def mean_rows(conditional, noise):
        return sample_gaussians(jnp.transpose(conditional, (1, 2, 0)), jnp.zeros_like(noise).T).T

    monkeypatch.setattr(kernel, "sample_factor_prior", some_prior)
    monkeypatch.setattr(kernel, "sample_rows", mean_rows)
    priors = {name: FactorPrior(jnp.zeros(RANK), jnp.eye(RANK)) for name in ROWS}
    state = GibbsState(jax.tree.map(jnp.asarray, start), priors, jnp.zeros((), jnp.int32))
    return jax.jit(lambda s, c: kernel.step(jax.random.key(0), s, c, SHARED, SETTINGS))(state, problem.cells)


def expected_prior(rows: np.ndarray) -> FactorPrior:
    """The same function of the textbook normal-Wishart posterior (Murphy 2007, section 8)."""
    hyper, n = SETTINGS.hyper, len(rows)
    centre = rows.mean(axis=0)
    scatter = sum(np.outer(row - centre, row - centre) for row in rows)
    strength = hyper.mean_strength + n
    away = np.outer(centre - hyper.mean, centre - hyper.mean)
    inverse_scale = np.eye(RANK) / hyper.scale + scatter + hyper.mean_strength * n / strength * away
    mean = (hyper.mean_strength * hyper.mean + n * centre) / strength
    return FactorPrior(mean, (hyper.degrees_of_freedom + n) * inverse_scale)


@pytest.mark.usefixtures("float64")
def test_a_whole_sweep_equals_a_loop_over_the_dense_tensors(monkeypatch, problem, factors):
    """Every block sees the newest factors, its own prior and all the tensors that it takes part in."""
    state, info = sweep_without_randomness(monkeypatch, problem, factors)
    expected = dict(factors)
    priors = {name: expected_prior(rows) for name, rows in factors.items()}
    for name in ("user", "place", "next_place", "slot"):
        precision, linear = dense_conditional(name, expected, problem.dense, priors[name])
        expected[name] = np.linalg.solve(precision, linear[..., None])[..., 0]
        np.testing.assert_allclose(state.factors[name], expected[name], rtol=1e-8, err_msg=name)
    assert int(state.sweep) == 1
    assert np.asarray(info.finite).all()
    alpha, log_joint = SETTINGS.noise_precision, 0.0
    for tensor, modes in SHARED.tensors:
        value, weight = problem.dense[tensor]
        rebuilt = np.einsum("ur,pr,or->upo", *(expected[name] for name in modes))
        error = (weight * np.square(value - rebuilt)).sum()
        np.testing.assert_allclose(info.square_error[tensor], error, rtol=1e-6)
        log_joint += 0.5 * (weight.sum() * np.log(alpha / (2 * np.pi)) - alpha * error)
    for name, rows in expected.items():
        np.testing.assert_allclose(info.square_size[name], np.mean(rows**2), rtol=1e-8)
        mean, precision = priors[name]
        covariance, hyper = np.linalg.inv(precision), SETTINGS.hyper
        log_joint += stats.multivariate_normal(mean, covariance).logpdf(rows).sum()
        log_joint += stats.multivariate_normal(np.full(RANK, hyper.mean), covariance / hyper.mean_strength).logpdf(mean)
        log_joint += stats.wishart(hyper.degrees_of_freedom, hyper.scale * np.eye(RANK)).logpdf(precision)
    np.testing.assert_allclose(info.log_joint, log_joint, rtol=1e-6)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("min_tile", "max_tile", "at_a_time", "rows_at_a_time", "n_parts"), [(1, 2, 6, 2, 3), (64, 64, 64, 1, 20)]
)
def test_tiling_and_padding_change_nothing(
    monkeypatch, factors, min_tile, max_tile, at_a_time, rows_at_a_time, n_parts
):
    plain = make_problem("sampled").cells
    sizes = {"MIN_TILE": min_tile, "MAX_TILE": max_tile, "N_PARTS": n_parts}
    sizes |= {"cells_at_a_time": lambda: at_a_time, "rows_at_a_time": lambda: rows_at_a_time}
    for name, value in sizes.items():
        monkeypatch.setattr(cells, name, value)
    other = make_problem("sampled").cells
    assert other["visits"].by_mode[0].value.shape != plain["visits"].by_mode[0].value.shape
    arguments = jax.tree.map(jnp.asarray, factors), random_priors()
    for ours, expected in zip(
        jax.tree.leaves(all_conditionals(other, *arguments)),
        jax.tree.leaves(all_conditionals(plain, *arguments)),
        strict=True,
    ):
        np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=1e-12)


def test_the_sweep_never_calls_lapack():
    """Two LAPACK calls at the same time can hang XLA on a CPU for ever."""
    settings, key, observed = GibbsSettings(32), jax.random.key(0), make_problem("weighted").cells
    state = jax.eval_shape(lambda k: init_state(k, ROWS, VISITS, settings), key)
    sweep = jax.jit(lambda k, s, c: kernel.step(k, s, c, VISITS, settings)).lower(key, state, observed).as_text()
    planted = jax.jit(jnp.linalg.cholesky).lower(np.eye(32)).as_text()
    assert "custom_call" in planted or "cholesky" in planted
    assert not any(name in sweep for name in ("custom_call", "cholesky", "triangular_solve"))


def test_initial_factors_are_uniform_and_differ():
    state = init_state(jax.random.key(0), dict.fromkeys(SEPARATE.factors, 500), SEPARATE, GibbsSettings(4))
    assert list(state.factors) == ["a", "d", "b", "e", "c", "f"]
    for rows in state.factors.values():
        assert rows.dtype == jnp.float32
        assert 0 <= float(rows.min()) <= float(rows.max()) <= 1
        # The mean of 2,000 uniform numbers has a standard error of sqrt(1 / 12 / 2000).
        assert abs(float(rows.mean()) - 0.5) < 5 * np.sqrt(1 / 12 / 2000)
    assert len({float(rows.sum()) for rows in state.factors.values()}) == 6


def test_no_sweep_derives_keys_from_one_that_initial_factors_were_drawn_with(monkeypatch):
    drawn_from, derived_from = set(), set()

    def spy(name, record):
        original = getattr(jax.random, name)

        def spied(key, *args, **kwargs):
            # A callback sees each key of a batch.
            jax.debug.callback(lambda data: record.add(np.asarray(data).tobytes()), jax.random.key_data(key))
            return original(key, *args, **kwargs)

        monkeypatch.setattr(jax.random, name, spied)

    key, observed = jax.random.key(0), make_problem("weighted").cells
    spy("uniform", drawn_from)
    state = init_state(key, ROWS, SHARED, SETTINGS)
    spy("fold_in", derived_from)
    spy("split", derived_from)
    # All keys are made before the first conditional is.
    monkeypatch.setattr(kernel, "hyper_conditional", Mock(side_effect=StopIteration))
    for sweep in range(4):
        with pytest.raises(StopIteration):
            kernel.step(key, state._replace(sweep=jnp.asarray(sweep)), observed, SHARED, SETTINGS)
    jax.effects_barrier()
    assert len(drawn_from) == 4
    # The chain's two keys, and in each sweep its own and those of the factors.
    assert len(derived_from) == 2 + 4 * 5
    assert not drawn_from & derived_from


@pytest.mark.usefixtures("float64")
def test_every_prior_and_every_factor_of_every_sweep_has_a_key_of_its_own(monkeypatch):
    """What is drawn is the key, as two numbers, plus the number of the row, which `row_noise` folds into the key."""

    def key_as_prior(key, posterior):
        return FactorPrior(jax.random.key_data(key).astype(float), jnp.eye(RANK)), jnp.zeros(())

    def nothing(tiles, designs):
        n_rows = len(tiles[0].rows)
        return jnp.zeros((n_rows, RANK + 1, RANK))

    def keys_as_noise(keys, rows, rank, dtype):
        data = (jax.random.key_data(keys) % 4096).astype(float)
        return [own + its_rows[..., None] for own, its_rows in zip(data, rows, strict=True)]

    monkeypatch.setattr(kernel, "sample_factor_prior", key_as_prior)
    monkeypatch.setattr(kernel, "row_noise", keys_as_noise)
    monkeypatch.setattr(kernel, "sample_rows", lambda conditional, noise: noise)
    # What the cells say has no part in the keys, and takes longest to compile.
    monkeypatch.setattr(kernel, "_part_statistics", nothing)
    # Several parts of the users.
    sizes = {"MIN_TILE": 1, "MAX_TILE": 2, "N_PARTS": 3, "cells_at_a_time": lambda: 6, "rows_at_a_time": lambda: 2}
    for name, value in sizes.items():
        monkeypatch.setattr(cells, name, value)
    observed, start = make_problem("weighted").cells, init_state(jax.random.key(1), ROWS, VISITS, SETTINGS)
    assert len(observed["visits"].by_mode[0].rows) > 1
    sweep = jax.jit(
        lambda number: kernel.step(jax.random.key(0), start._replace(sweep=number), observed, VISITS, SETTINGS)
    )
    used = set()
    for number in range(3):
        state, _ = sweep(jnp.asarray(number))
        used |= {tuple(np.asarray(state.priors[name].mean)) for name in VISITS.factors}
        used |= {tuple(np.asarray(state.factors[name])[0]) for name in VISITS.factors}
        for rows in map(np.asarray, state.factors.values()):
            np.testing.assert_array_equal(rows - rows[0], np.arange(len(rows))[:, None].repeat(RANK, axis=1))
    assert len(used) == 3 * 2 * len(VISITS.factors)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"rank": 0}, "rank"),
        ({"noise_precision": 0.0}, "noise_precision"),
        ({"noise_precision": float("nan")}, "noise"),
        ({"rank": 4, "hyper": HyperPrior(degrees_of_freedom=3.0)}, r"degrees_of_freedom of more than rank - 1 = 3"),
    ],
)
def test_bad_settings_are_refused(settings, named):
    with pytest.raises(InputError, match=named):
        GibbsSettings(**settings)
