"""Counting plausible users against a double loop over traces and users, and against the official counts."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.datasets.people_flow import read_official_factors, read_people_flow, read_synthetic
from ppmtf_jax.errors import InputError
from ppmtf_jax.privacy import plausible_users as tested
from ppmtf_jax.privacy.plausible_deniability import plausible_deniability_test
from ppmtf_jax.privacy.plausible_users import Verifiers, count_plausible_users, likelihood_bin
from ppmtf_jax.synthesizers.fitted_model import FittedModel, complete_places
from ppmtf_jax.trace_models.likelihoods import representatives, step_log_probabilities
from ppmtf_jax.trace_models.metropolis_hastings import MetropolisHastings
from tests.machine import with_gigabytes
from tests.privacy.examples import (
    INSTANTS,
    NUMBER,
    USERS,
    brute_force_count,
)
from tests.trace_models.examples import ChainOfEach, ChainOfEachClass, random_class_model

pytestmark = pytest.mark.usefixtures("small_blocks")
INPUT_USERS = np.repeat(np.arange(USERS), NUMBER)
N_CASES = 6


def test_planted_bugs_in_counting_are_caught(model, synthetic, likelihoods):
    """The input user counted twice, or the wrong one left out, gives other counts."""
    right = np.array(brute_force_count(likelihoods, INPUT_USERS, set(range(USERS)), 1.0))
    users = INPUT_USERS
    own = likelihoods[np.arange(len(likelihoods)), users]
    arguments = model.trace_model, Verifiers.of(model.trace_model, np.arange(USERS), 2 * USERS)
    places = synthetic.place.reshape(-1, INSTANTS)
    for wrong_users in (users + USERS, (users + 1) % USERS):
        counts, _ = count_plausible_users(*arguments, wrong_users, places, own, 1.0)
        assert (counts != right).any()
    np.testing.assert_array_equal(count_plausible_users(*arguments, users, places, own, 1.0)[0], right)


def test_verifiers_that_were_looked_at(model, synthetic, likelihoods):
    """Rounds of 3: a trace leaves at the end of the round in which it reaches k."""
    k, eta = 3, 1.0
    result = plausible_deniability_test(model, synthetic, k=k, eta=eta)
    bins = np.floor(-likelihoods / eta)
    for trace, row in enumerate(bins):
        own = trace // NUMBER
        found = 1 + np.cumsum((row == row[own]) & (np.arange(USERS) != own))
        ends = [min(end, USERS) for end in range(3, USERS + 3, 3)]
        needed = next((end for end in ends if found[end - 1] >= k), USERS)
        assert result.table["verifiers"][trace] == needed
    assert len(set(result.table["verifiers"])) > 1


def test_a_table_that_does_not_fit_is_refused(model, synthetic, monkeypatch):
    """A table of 2 classes for each thread, with a row for each distinct step."""
    with_gigabytes(monkeypatch, 1e-6)
    with pytest.raises(InputError, match=r"test: expected .* of memory .*Test fewer traces at a time"):
        plausible_deniability_test(model, synthetic, k=3)


def test_collecting_steps_anew_changes_nothing(model, synthetic, monkeypatch):
    """Always when a trace left, or never."""
    tables = []
    for share in (1.0, 0.0):
        monkeypatch.setattr(tested, "COLLECT_ANEW", share)
        tables.append(plausible_deniability_test(model, synthetic, k=3).table)
    pd.testing.assert_frame_equal(*tables)


def test_the_size_of_a_block_changes_nothing(model, synthetic, whole, monkeypatch):
    monkeypatch.setattr(tested, "CLASSES_AT_A_TIME", {"float32": 32, "float64": 32})
    monkeypatch.setattr(tested, "CLASSES_IN_A_ROUND", 256)
    monkeypatch.setattr(tested, "TRACES_AT_A_TIME", 128)
    pd.testing.assert_frame_equal(plausible_deniability_test(model, synthetic, k=3, count_all=True).table, whole.table)


@pytest.mark.usefixtures("float64")
def test_bins_are_closed_above_and_open_below():
    """e^-(i+1)eta < p <= e^-i eta."""
    log_likelihood = np.array([0.0, -0.5, -1.0, np.nextafter(-1.0, -2), np.nextafter(-1.0, 0), -np.inf])
    np.testing.assert_array_equal(likelihood_bin(log_likelihood, 0.5), [0, 1, 2, 2, 1, np.inf])


# Classes of users


class Case(NamedTuple):
    """Random traces of a model of random classes, and who verifies them."""

    model: ChainOfEachClass
    class_of_user: np.ndarray
    users: np.ndarray
    places: np.ndarray
    own: np.ndarray
    verifiers: np.ndarray
    eta: float

    def count(self, model: ChainOfEachClass | None = None, users: np.ndarray | None = None, **options):
        model, users = model or self.model, self.users if users is None else users
        verifiers = Verifiers.of(model, self.verifiers, 1 + int(max(self.verifiers.max(), users.max())))
        return count_plausible_users(model, verifiers, users, self.places, self.own, self.eta, **options)

    def other_members(self) -> np.ndarray:
        """Verifiers of the input user's class, without the input user."""
        members = self.class_of_user[self.verifiers] == self.class_of_user[self.users, None]
        return (members & (self.verifiers != self.users[:, None])).sum(axis=1)


def random_case(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    n_users, n_places, n_traces = 13, 3, 30
    class_of_user = rng.integers((1, 2, 5, n_users)[seed % 4], size=n_users)
    model = random_class_model(rng, class_of_user, n_places)
    users, places = rng.integers(n_users, size=n_traces), rng.integers(n_places, size=(n_traces, INSTANTS))
    own = np.cumsum(step_log_probabilities(model, representatives(model, n_users)[users], places), axis=1)[:, -1]
    verifiers = np.sort(rng.permutation(n_users)[: rng.integers(1, n_users + 1)])
    return Case(model, class_of_user, users, places, own, verifiers, float(rng.uniform(0.1, 3)))


def asking_each(case: Case) -> ChainOfEach:
    """The same chains, and nothing said of classes."""
    return ChainOfEach(case.model.first[:, case.class_of_user], case.model.next[..., case.class_of_user])


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("seed", range(N_CASES))
def test_asking_classes_gives_what_asking_each_verifier_gives(seed):
    case = random_case(seed)
    each = asking_each(case)
    first, following = (np.log(array) for array in (each.first, each.next))
    before, after = case.places[:, :-1], case.places[:, 1:]
    log_likelihoods = first[case.places[:, 0]] + following[before, after].sum(axis=1)
    right = brute_force_count(log_likelihoods, case.users, set(case.verifiers.tolist()), case.eta)
    counts, looked_at = case.count()
    np.testing.assert_array_equal(counts, right)
    np.testing.assert_array_equal(case.count(each)[0], right)
    assert (looked_at == len(case.verifiers)).all()
    # A threshold of each trace's own, as with noise, which may be below 1.
    stop_at = np.arange(len(counts)) % 9 - 2
    early, looked_at = case.count(stop_at=stop_at)
    np.testing.assert_array_equal(early, np.minimum(right, np.maximum(stop_at, 1)))
    np.testing.assert_array_equal(early, case.count(each, stop_at=stop_at)[0])
    np.testing.assert_array_equal(looked_at == 0, stop_at <= 1 + case.other_members())


@pytest.mark.usefixtures("float64")
def test_the_random_cases_are_of_every_kind():
    """Input users among the verifiers and not, alone in their class, without another verifier in it, with several."""
    cases = [random_case(seed) for seed in range(N_CASES)]
    inside = np.concatenate([np.isin(case.users, case.verifiers) for case in cases])
    size = np.concatenate([np.bincount(case.class_of_user)[case.class_of_user[case.users]] for case in cases])
    others = np.concatenate([case.other_members() for case in cases])
    for one_of in (inside, ~inside):
        for kind in (size == 1, (size > 1) & (others == 0), others == 1, others > 2):
            assert (one_of & kind).any()
    assert any(len(set(case.class_of_user)) == 1 for case in cases)
    assert any((case.count()[0] > 1 + case.other_members()).any() for case in cases)


@pytest.mark.usefixtures("float64")
def test_planted_bugs_in_counting_classes_are_caught():
    """The input user counted twice: once as input, and once as a verifier of their class."""
    case = random_case(0)
    inside, n_users = np.isin(case.users, case.verifiers), len(case.class_of_user)
    right, _ = case.count()
    # Twins that are of the same classes, and not among the verifiers.
    twins = replace(case.model, class_of_user=jnp.tile(case.class_of_user, 2))
    twice, _ = case.count(twins, case.users + n_users)
    np.testing.assert_array_equal(twice, right + inside)
    assert 0 < inside.sum() < len(inside)


@pytest.mark.usefixtures("float64")
def test_rounding_parts_no_class():
    """Own likelihoods are added up elsewhere: where they round to the other side of an edge, classmates still count."""
    case = random_case(0)
    model = replace(case.model, class_of_user=jnp.zeros_like(case.class_of_user))
    first_user = np.zeros(1, int)
    exact = np.cumsum(step_log_probabilities(model, first_user, case.places[:1]), axis=1)[:, -1]
    rounded, eta = exact * (1 - 1e-12), float(-exact[0] * (1 - 1e-13))
    assert np.floor(-rounded / eta) == 0
    assert np.floor(-exact / eta) == 1
    one = case._replace(
        model=model,
        class_of_user=np.asarray(model.class_of_user),
        users=case.users[:1],
        places=case.places[:1],
        own=rounded,
        eta=eta,
        verifiers=np.arange(len(case.class_of_user)),
    )
    assert one.count()[0] == len(case.class_of_user)
    # Asked one by one all others would lie in the next bin.
    assert one.count(asking_each(one))[0] == 1


@pytest.mark.usefixtures("float64")
def test_verifiers_that_were_looked_at_class_by_class():
    """Rounds of 3 classes, the largest first: of 5, 4 and 3 verifiers, of 2, 1 and 1, and of 1."""
    size = np.array([1, 4, 2, 5, 3, 1, 1])
    n_classes, class_of_user = len(size), np.repeat(np.arange(len(size)), size)
    # In class c all stay at place c, but for little; in class 4 everything is as likely.
    likely = np.full((n_classes, n_classes), 1e-3) + 0.9 * np.eye(n_classes)
    likely[:, 4] = 0.9
    model = ChainOfEachClass(*map(jnp.asarray, (likely, np.tile(likely, (n_classes, 1, 1)), class_of_user)))
    # A trace of the last user of each class.
    users, places = np.cumsum(size) - 1, np.tile(np.arange(n_classes)[:, None], INSTANTS)
    own, verifiers = np.full(n_classes, INSTANTS * np.log(0.9)), np.arange(len(class_of_user))
    plausible = np.array([1 + 3, 4 + 3, 2 + 3, 5 + 3, 3, 1 + 3, 1 + 3])
    for stop_at, looked_at in (
        ([1, 4, 2, 5, 3, 1, 1], [0, 0, 0, 0, 0, 0, 0]),
        ([2, 5, 3, 6, 4, 4, 5], [12, 12, 12, 12, 17, 12, 17]),
    ):
        everybody = Verifiers.of(model, verifiers, len(verifiers))
        counts = count_plausible_users(model, everybody, users, places, own, 1.0, np.array(stop_at))
        np.testing.assert_array_equal(counts[0], np.minimum(plausible, stop_at))
        np.testing.assert_array_equal(counts[1], looked_at)


# Official results


@pytest.mark.slow
def test_official_counts(people_flow, monkeypatch):
    """Verifiers are users 0 to 498, eta is 1; traces 0 to 4 of every user under the official factors."""
    monkeypatch.undo()
    train, _ = read_people_flow(people_flow)
    folder = people_flow / "ppmtf_alpha200"
    synthetic = read_synthetic(folder / "synthetic_traces.csv.gz", train)
    synthetic = synthetic.select_traces(synthetic.trace_table()[1] < 5)
    official = pd.read_csv(folder / "plausible_users.csv.gz")
    with jax.enable_x64(True):
        a, b, c, d = (jnp.asarray(factor) for factor in read_official_factors(folder).values())
        chains = MetropolisHastings(a, b, c, a, b, d, jnp.arange(30))
    model = FittedModel("ppmtf", {}, 0, train.user_ids, train.places, train.time_grid, chains)
    users, places = complete_places(model, model.claim(synthetic))
    with jax.enable_x64(True):
        own = step_log_probabilities(chains, users, places).sum(axis=1)
        counts, _ = count_plausible_users(chains, Verifiers.of(chains, np.arange(499), 500), users, places, own, 1.0)
    np.testing.assert_array_equal(synthetic.user_ids[users], official["user"])
    np.testing.assert_array_equal(synthetic.trace_table()[1], official["trace"])
    # A likelihood at the very edge of a bin may round to the other side: 1 in 1,000 at most.
    assert (counts == official["plausible_users"]).mean() >= 0.999
