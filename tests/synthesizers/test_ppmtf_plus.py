"""PPMTF+: people from the prior, in a model that holds nothing of a user."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.data.stored_traces import StoredTraces, open_traces
from ppmtf_jax.datasets.people_flow import read_official_factors, read_people_flow
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation import EvaluationSettings, evaluate
from ppmtf_jax.gibbs.run import GibbsResult
from ppmtf_jax.jobs.config import JobConfig
from ppmtf_jax.privacy.own_test import can_be_tested
from ppmtf_jax.privacy.release_plan import plan_release
from ppmtf_jax.privacy.statements import NOT_PROVEN, SEED_KNOWN, statement_texts
from ppmtf_jax.streams import Seed
from ppmtf_jax.synthesizers.fitted_model import FittedModel, ids_of_people
from ppmtf_jax.synthesizers.synthesis import fit, synthesize
from ppmtf_jax.synthesizers.systems import ppmtf
from ppmtf_jax.synthesizers.systems.ppmtf_plus import NewUsers, without_users
from ppmtf_jax.trace_models.metropolis_hastings import MetropolisHastings
from tests.evaluation.single_metrics import tp_tv
from tests.synthesizers.test_ppmtf import state_of

RANK = 3


def random_chains(rng: np.random.Generator) -> MetropolisHastings:
    """Chains of 4 users at 8 places in 2 slots, and a prior of users far from 0 whose columns correlate."""
    user, place, onward, slot = (jnp.asarray(rng.random((n, RANK)), jnp.float32) for n in (4, 8, 8, 2))
    root = np.tril(rng.normal(size=(RANK, RANK))) + 3 * np.eye(RANK)
    of_prior = {"prior_mean": jnp.full((6, RANK), 2.0), "prior_precision": jnp.tile(root @ root.T, (6, 1, 1))}
    return MetropolisHastings(user, place, onward, user, place, slot, jnp.array([0, 0, 1, 1]), **of_prior)


@pytest.fixture(scope="module")
def chains() -> MetropolisHastings:
    return random_chains(np.random.default_rng(0))


@pytest.fixture(scope="module")
def people(chains) -> NewUsers:
    return NewUsers.of(chains, np.array([3, 0, 2, 9, 9, 9, 9, 9]))


def worst_moment(sample, people: NewUsers, n_draws: int = 20_000) -> float:
    """Largest error of the mean and of the covariance of drawn factors, in standard errors of the closed form."""
    draws = np.asarray(jax.vmap(sample)(jax.random.split(jax.random.key(0), n_draws)), np.float64)
    precision = np.asarray(people.prior_precision[0], np.float64)
    covariance = np.linalg.inv(precision)
    of_mean = (draws.mean(axis=0) - np.asarray(people.prior_mean[0])) / np.sqrt(np.diag(covariance) / n_draws)
    # The variance of the product of two centred normal numbers is s_ii s_jj + s_ij^2.
    spread = np.sqrt((np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2) / n_draws)
    return max(np.abs(of_mean).max(), (np.abs(np.cov(draws.T) - covariance) / spread).max())


def test_factors_of_people_have_the_moments_of_the_prior(people):
    assert worst_moment(people.sample_user, people) < 5

    def transposed(key):  # the planted bug: L^-1 in place of L^-T
        root = jnp.linalg.inv(jnp.linalg.cholesky(people.prior_precision[0]))
        return people.prior_mean[0] + root @ jax.random.normal(key, (RANK,))

    assert worst_moment(transposed, people) > 20


def test_a_trace_is_that_of_the_chain_of_its_own_person(people, chains):
    """The same keys as those of a user with that factor; two people have two factors."""
    key, numbers = jax.random.key(5), jnp.arange(50)

    def own_chain(number):
        own = jax.random.fold_in(jax.random.fold_in(key, number), 0)
        row = people.sample_user(jax.random.fold_in(own, 2**31))[None]
        return replace(chains, user=row, visit_user=row).sample_trace(own, jnp.asarray(0), 4)

    traces, expected = (
        np.asarray(jax.jit(jax.vmap(draw))(numbers))
        for draw in (lambda n: people.draw_trace(key, n, jnp.asarray(0), 4), own_chain)
    )
    np.testing.assert_array_equal(traces, expected)
    assert len(np.unique(traces, axis=0)) > 10


def test_the_model_folder_holds_nothing_of_a_user(tmp_path, monkeypatch):
    """Of a fit, and of what is shared of a PPMTF model: the same people. A stand-in for the sampler draws factors."""

    def sampler(key, cells, n_rows, coupling, settings, **options):
        rng = np.random.default_rng(0)
        draws = {name: rng.random((1, 1, n, settings.rank)).astype(np.float32) for name, n in n_rows.items()}
        return GibbsResult(state_of(n_rows, settings), draws, np.array([3]), {})

    monkeypatch.setattr(ppmtf, "run_gibbs", sampler)
    train = toy_city(n_users=12, n_places=8, n_days=1, seed=0).traces
    how = {"rank": 2, "n_sweeps": 3, "zeros": "weighted", "n_zeros": 20}
    secret = fit(train, "ppmtf", how, seed=987654)
    fitted, shared = fit(train, "ppmtf_plus", how, seed=987654), without_users(secret)
    assert fitted.checksum == shared.checksum
    shared.save(tmp_path / "shared")
    again = FittedModel.load(tmp_path / "shared")
    arrays = again.trace_model.to_arrays()
    assert arrays["user"].shape == (0, 2)
    assert "visit_user" not in arrays
    rows = np.concatenate([array.ravel() for array in arrays.values() if array.dtype.kind == "f"])
    assert not np.isin(np.asarray(secret.trace_model.user), rows).any()
    assert (again.n_users, again.seed, again.learned_from, again.users_per_place) == (0, 0, "", None)
    assert again.time_grid.start[:10] != train.time_grid.start[:10]
    written = b"".join(path.read_bytes() for path in (tmp_path / "shared").iterdir())
    assert b"987654" not in written
    np.testing.assert_array_equal(again.sample(9, seed=1).place, fitted.sample(9, seed=1).place)
    # Another seed draws other people.
    assert not np.array_equal(again.sample(9, seed=2).place, fitted.sample(9, seed=1).place)


def test_what_cannot_be_shared_is_refused(people, chains, tmp_path):
    train = toy_city(n_users=12, n_places=8, n_days=1, seed=0).traces
    with pytest.raises(InputError, match="a model of ppmtf"):
        without_users(fit(train, "sgd"))
    for wrong in (replace(chains, prior_mean=None), replace(chains, visit_user=chains.user + 1)):
        with pytest.raises(InputError, match="without priors, or with two factors"):
            NewUsers.of(wrong, np.ones(8, int))
    with pytest.raises(ValueError, match="ositive definite"):
        NewUsers.from_arrays(people.to_arrays() | {"prior_precision": -np.asarray(people.prior_precision)})


def model_of(people: NewUsers, *, seed_given: bool = False, **settings) -> FittedModel:
    """A model at eight places whose ids fall."""
    train = toy_city(n_users=12, n_places=8, n_days=1, seed=0).traces
    grid = replace(train.time_grid, slot_of_instant=np.array([0, 0, 1, 1]), period=4)
    places = replace(train.places, ids=np.array(list("hgfedcba"), object))
    return FittedModel("ppmtf_plus", settings, 0, np.zeros(0, object), places, grid, people, seed_given)


def release_of(people: NewUsers, **settings):
    model = model_of(people)
    assert not can_be_tested(model)
    return plan_release(synthesize(model, people=7, seed=0), model, **settings)


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_release_lists_the_places_by_id_and_hides_the_old_order(people, monkeypatch, tmp_path, in_parts):
    """The list of imported places is by popularity, and the ids of people are a hash of numbers of places."""
    model = model_of(people)
    made = made_here = synthesize(model, people=9, seed=0)
    if in_parts:
        for name in ("traces", "stored_traces"):
            monkeypatch.setattr(f"ppmtf_jax.data.{name}.BLOCK_USERS", 4)
        made.save(tmp_path / "made")
        monkeypatch.setattr(StoredTraces, "in_memory", None)
        made = open_traces(tmp_path / "made")
    plan = plan_release(made, model, min_users_per_place=2)
    released = plan.traces
    assert plan.places.ids.tolist() == released.places.ids.tolist() == list("abcdefgh")
    np.testing.assert_array_equal(released.places.ids[released.place], made_here.places.ids[made_here.place])
    np.testing.assert_array_equal(released.places.latitude, made_here.places.latitude[::-1])
    np.testing.assert_array_equal(released.user_ids, ids_of_people(9, [released.place]))
    assert not set(released.user_ids) & set(made_here.user_ids)
    assert (released.n_users, released.origin, released.of_nobody) == (9, None, True)


def test_a_chosen_seed_is_told_and_the_checksum_is_not(people):
    """Whoever guesses the seed and knows the data of the others could compare checksums."""
    for of_fit, seed in ((False, None), (True, None), (False, 3)):
        model, chosen = model_of(people, seed_given=of_fit), of_fit or seed is not None
        said = plan_release(synthesize(model, people=7, seed=seed), model, min_users_per_place=2).statement
        assert (SEED_KNOWN in said["not_protected"]) == ("Somebody chose a seed" in said["randomness"]) == chosen
        assert model.checksum not in json.dumps(said)
    train = toy_city(n_users=12, n_places=8, n_days=1, seed=0).traces
    for given in (True, False):
        assert FittedModel.of("ppmtf_plus", {}, Seed(1, given), train, people).seed_given == given


@pytest.mark.parametrize("epsilon", [None, 0.5])
def test_what_is_said_of_the_transitions_of_all_users_is_true_of_people(people, epsilon):
    """There is no test of users here, no factor of one user, and no neighbour."""
    mixed = replace(people, population=jnp.full((8, 8), 1 / 8), proposal_mix=0.5)
    for each in (mixed, people):
        model = model_of(each, proposal_mix=0.5, population_epsilon=epsilon)
        plan = plan_release(synthesize(model, people=7), model, min_users_per_place=2)
        said = " ".join(" ".join(statement_texts(plan.statement)).split())
        assert ("Where people went from places that few people left" in said) == (each is mixed)
        noise = "have no noise" if epsilon is None else "have noise, but the factors have none"
        assert (noise in said) == (each is mixed)
        for other in ("privacy test", "single users", "Neighbours", "differentially private by", "led to a trace"):
            assert other not in said
        assert "NOT PROVEN: for those whom you choose" in repr(model)


def test_a_release_promises_no_proof_and_counts_the_users_of_places(people):
    with pytest.raises(InputError, match=r"at least 5 training users at each visited place.*only 2"):
        release_of(people)
    with pytest.raises(InputError, match="no settings"):
        release_of(people, min_users_per_place=2, keep_users_together=True)
    statement = release_of(people, min_users_per_place=2).statement
    assert (statement["guarantee"], statement["private"], statement["ledger"]) == (NOT_PROVEN, False, None)
    assert (statement["epsilon"], statement["neighbours"]) == (None, None)
    page, details = statement_texts(statement)
    assert page.splitlines()[1] in NOT_PROVEN
    in_full = " ".join(details.split())
    assert "at least 2 at each visited place" in in_full
    assert "not differentially private" in in_full
    assert "Neighbours" not in in_full
    assert "epsilon =" not in in_full
    assert "Numbers that were taken" not in in_full


def job(tables, folder) -> JobConfig:
    return JobConfig.from_mapping(tables, folder, default_out="out", subject="job")


def test_a_job_may_import_by_visits_but_asks_nothing_of_users(tmp_path):
    """Places need not be public, because nothing is proven; a number for each user is still refused."""
    table = {"import": {"source": "toy-city"}, "fit": {"system": "ppmtf_plus"}, "release": {"min_users_per_place": 2}}
    assert job(table, tmp_path).releasing.min_users_per_place == 2
    for name, setting in (("synthesize", {"traces_per_user": 2}), ("release", {"keep_users_together": True})):
        with pytest.raises(InputError, match=f"in .{name}.: ppmtf_plus knows no users"):
            job(table | {name: setting}, tmp_path)


@pytest.mark.slow
def test_official_factors_give_the_published_differences(people_flow: Path):
    """Three draws of all users; PPMTF is at TP-TV .427 and TM-EMD-X 1.83 with the same factors."""
    train, test = read_people_flow(people_flow)
    folder = people_flow / "ppmtf_alpha200"
    a, b, c, d = (jnp.asarray(each, jnp.float32) for each in read_official_factors(folder).values())
    mean, precision = (
        np.stack([np.loadtxt(folder / f"factors_sweep100_{kind}_{z}.csv.gz", delimiter=",") for z in "ABCABD"])
        for kind in ("mu", "Lam")
    )
    of_prior = {"prior_mean": jnp.asarray(mean, jnp.float32), "prior_precision": jnp.asarray(precision, jnp.float32)}
    chains = MetropolisHastings(a, b, c, a, b, d, jnp.arange(30), **of_prior)
    people = NewUsers.of(chains, train.users_per_place())
    model = FittedModel("ppmtf_plus", {}, 0, np.zeros(0, object), train.places, train.time_grid, people)
    for seed in range(3):
        drawn = synthesize(model, people=500, seed=seed)
        found = evaluate(drawn, train, test, EvaluationSettings(attacks=False))
        assert 0.42 < found["tp_tv"] == tp_tv(drawn, test) < 0.46
        assert 1.4 < found["tm_emd_x"] < 1.7
