"""The plausible-deniability test against a double loop over traces and users."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, NumericalError
from ppmtf_jax.privacy import plausible_deniability as tested
from ppmtf_jax.privacy.limits import MAX_ETA, MIN_ETA
from ppmtf_jax.privacy.plausible_deniability import (
    PrivacyTestSettings,
    all_pass,
    choose_verifiers,
    plausible_deniability_test,
)
from ppmtf_jax.privacy.plausible_users import likelihood_bin
from ppmtf_jax.synthesizers.synthesis import fit, synthesize
from ppmtf_jax.synthesizers.systems.sgd import SGDSettings
from tests.privacy.examples import (
    GRID,
    IDS,
    INSTANTS,
    NUMBER,
    PLACES,
    TABLE,
    USERS,
    brute_force_count,
)

pytestmark = pytest.mark.usefixtures("small_blocks")
INPUT_USERS = np.repeat(np.arange(USERS), NUMBER)


@pytest.mark.parametrize("eta", [0.3, 2.5])
def test_counts_are_those_of_a_double_loop(model, synthetic, likelihoods, eta):
    result = plausible_deniability_test(model, synthetic, k=3, eta=eta, count_all=True)
    own = likelihoods[np.arange(len(likelihoods)), INPUT_USERS]
    np.testing.assert_allclose(result.log_likelihood, own, rtol=1e-12)
    np.testing.assert_array_equal(likelihood_bin(result.log_likelihood, eta), likelihood_bin(own, eta))
    expected = brute_force_count(likelihoods, INPUT_USERS, set(range(USERS)), eta)
    np.testing.assert_array_equal(result.plausible_users, expected)
    # Otherwise this would show nothing.
    assert len(set(expected)) > 2


@pytest.mark.parametrize("n_verifiers", [4, USERS])
def test_a_subset_of_verifiers_and_always_the_input_user_once(model, synthetic, likelihoods, n_verifiers):
    chosen = [set(choose_verifiers(USERS, n_verifiers, seed).tolist()) for seed in range(2)]
    for seed, verifiers in enumerate(chosen):
        result = plausible_deniability_test(model, synthetic, k=2, n_verifiers=n_verifiers, seed=seed, count_all=True)
        assert len(verifiers) == result.n_verifiers == n_verifiers
        np.testing.assert_array_equal(
            result.plausible_users, brute_force_count(likelihoods, INPUT_USERS, verifiers, 1.0)
        )
    assert (n_verifiers == USERS) == (len({tuple(verifiers) for verifiers in chosen}) == 1)


@pytest.mark.parametrize("k", [1, 4, 8])
def test_stopping_early_gives_the_same_verdicts(model, synthetic, whole, k):
    early = plausible_deniability_test(model, synthetic, k=k)
    np.testing.assert_array_equal(early.plausible_users, np.minimum(whole.plausible_users, k))
    np.testing.assert_array_equal(early.passed, whole.plausible_users >= k)
    np.testing.assert_array_equal(early.log_likelihood, whole.log_likelihood)
    assert early.passed.all() == (k == 1)
    assert k <= USERS or not early.passed.any()


def test_the_table_has_a_row_for_each_trace(synthetic, whole):
    table = whole.table
    assert table.columns.tolist() == [
        "user",
        "trace",
        "log_likelihood",
        "plausible_users",
        "verifiers",
        "threshold",
        "passed",
    ]
    index, trace = synthetic.trace_table()
    np.testing.assert_array_equal(table["user"], IDS[index])
    np.testing.assert_array_equal(table["trace"], trace)
    np.testing.assert_array_equal(table["passed"], whole.passed)
    released = synthetic.select_traces(whole.passed)
    assert released.n_events == whole.passed.sum() * INSTANTS


def test_pass_rates_in_one_pass(model, synthetic, whole):
    k = np.array([2, 3, USERS])
    up_to_2, up_to_3 = (plausible_deniability_test(model, synthetic, k=each) for each in (2, 3))
    expected = [each.passed.mean() for each in (up_to_2, up_to_3)]
    np.testing.assert_array_equal(whole.pass_rates(k)[:2], expected)
    assert whole.pass_rates(k)[2] == np.mean(whole.plausible_users == USERS)
    np.testing.assert_array_equal(up_to_3.pass_rates(k[:2]), expected)
    with pytest.raises(InputError, match="up to 3"):
        up_to_3.pass_rates(k)


def test_the_randomized_test_adds_noise_to_k_for_each_trace(model, synthetic, whole, monkeypatch):
    """With the noise known: it is that of scale 1 / epsilon for a count that one user changes by one."""
    asked = []

    def noisy(values, sensitivity, epsilon):
        asked.append((values.tolist(), sensitivity, epsilon))
        return values + np.arange(len(values)) % 7 - 4

    monkeypatch.setattr(tested, "add_laplace", noisy)
    plausible_deniability_test(model, synthetic, k=1)
    assert not asked
    result = plausible_deniability_test(model, synthetic, k=3, noise_epsilon=0.5)
    assert asked == [([3] * USERS * NUMBER, 1, 0.5)]
    threshold = 3 + np.arange(USERS * NUMBER) % 7 - 4
    np.testing.assert_array_equal(result.passed, whole.plausible_users >= threshold)
    np.testing.assert_array_equal(result.table["passed"], result.passed)


def test_only_some_users_and_traces_in_any_numbering(model, synthetic, whole):
    """Traces that were withheld leave gaps; the verdicts on the others stay."""
    keep = np.arange(USERS * NUMBER) % 4 == 1
    some = plausible_deniability_test(model, synthetic.select_traces(keep), k=3, count_all=True)
    np.testing.assert_array_equal(some.plausible_users, whole.plausible_users[keep])


def test_single_precision_is_close(model, synthetic, whole):
    single = plausible_deniability_test(model, synthetic, k=3, count_all=True, precision="float32")
    assert single.log_likelihood.dtype == np.float32
    assert whole.log_likelihood.dtype == np.float64
    np.testing.assert_allclose(single.log_likelihood, whole.log_likelihood, rtol=1e-5)


# Copied events


@pytest.fixture(scope="module")
def train():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame([(u, i) for u in IDS for i in range(INSTANTS)], columns=["user", "instant"])
    return Traces.from_frame(frame.assign(place=rng.integers(PLACES, size=len(frame))), TABLE, GRID)


def test_copied_events_leave_only_users_who_share_them(train):
    model = fit(train, "sgd", SGDSettings(1))
    first = train.place.reshape(USERS, INSTANTS)[:, 0]
    same = np.bincount(first)[first]
    assert len(set(same.tolist())) > 1
    # Everybody's own trace is possible: its transitions were seen.
    result = plausible_deniability_test(model, model.claim(train), k=2, count_all=True)
    np.testing.assert_array_equal(result.plausible_users, same)
    shared = fit(train, "sgd")
    everybody = plausible_deniability_test(shared, shared.claim(train), k=2, count_all=True)
    assert (everybody.plausible_users == USERS).all()


def test_what_holds_for_every_trace_of_a_class(train):
    """The verifiers that share an input user's copied event count, whatever eta; those of others cannot."""
    model = fit(train, "sgd", SGDSettings(1))
    first = train.place.reshape(USERS, INSTANTS)[:, 0]
    synthetic = synthesize(model, traces_per_user=5, seed=0)
    own = np.repeat(np.arange(USERS), 5)
    for n_verifiers, eta, seed in ((2, 1.0, 0), (2, 1.0, 1), (4, 1e-6, 0), (4, 1e-6, 1), (USERS, 1e-6, 0)):
        verifiers = choose_verifiers(USERS, n_verifiers, seed)
        others = ((first[verifiers] == first[own, None]) & (verifiers != own[:, None])).sum(axis=1)
        options = {"k": 2, "eta": eta, "n_verifiers": n_verifiers, "seed": seed}
        whole = plausible_deniability_test(model, synthetic, count_all=True, **options)
        np.testing.assert_array_equal(whole.plausible_users, 1 + others)
        np.testing.assert_array_equal(plausible_deniability_test(model, synthetic, **options).passed, others >= 1)
    smallest = int(np.bincount(np.unique(first, return_inverse=True)[1]).min())
    for k in (smallest, smallest + 1):
        passed = plausible_deniability_test(model, synthetic, k=k, eta=1e-6).passed.all()
        assert all_pass(model, PrivacyTestSettings(k=k, eta=1e-6)) == passed == (k == smallest)
    for some in ({"n_verifiers": USERS - 1}, {"noise_epsilon": 1.0}):
        assert not all_pass(model, PrivacyTestSettings(k=1, **some))


@pytest.mark.parametrize(("n_places", "precision"), [(2, "float64"), (10, "float32")])
def test_every_trace_of_a_uniform_model_has_all_users(n_places, precision):
    """Also where a trace lies at the very edge of a bin: each event of it is 1, or 2, widths of a bin improbable."""
    table = PlaceTable(np.arange(n_places), np.linspace(35, 36, n_places), np.linspace(139, 140, n_places))
    frame = pd.DataFrame([(user, i, 0) for user in IDS for i in range(INSTANTS)], columns=["user", "instant", "place"])
    model = fit(Traces.from_frame(frame, table, GRID), "uniform")
    synthetic = synthesize(model, seed=0)
    for eta in (math.log(2), math.log(n_places), INSTANTS * math.log(n_places)):
        options = {"k": USERS, "eta": eta, "precision": precision, "count_all": True, "allow_large_eta": True}
        result = plausible_deniability_test(model, synthetic, **options)
        assert (result.plausible_users == USERS).all()


def test_traces_that_are_impossible_under_their_own_user(train):
    model = fit(train, "sgd", SGDSettings(1))
    frame = train.to_frame()
    frame.loc[0, "place"] = (frame.loc[0, "place"] + 1) % PLACES
    with pytest.raises((NumericalError, InputError), match=r"1 trace.*impossible"):
        plausible_deniability_test(model, model.claim(Traces.from_frame(frame, TABLE, GRID)), k=2)


# Bad input


@pytest.mark.parametrize(
    "wrong",
    [
        {"k": 0},
        {"eta": math.inf, "allow_large_eta": True},
        {"eta": 9.9e-7},
        {"eta": 1e-4, "precision": "float32"},
        {"eta": 3.01},
        {"n_verifiers": 8},
        {"noise_epsilon": 0.0},
    ],
    ids=str,
)
def test_bad_parameters(model, synthetic, wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        plausible_deniability_test(model, synthetic, **wrong)


def test_the_limits_of_eta_are_taken_and_a_large_one_has_to_be_asked_for():
    assert PrivacyTestSettings(eta=MAX_ETA).factor == "e^3 = 20.1"
    assert PrivacyTestSettings(eta=MIN_ETA).factor == "e^1e-06 = 1"
    assert PrivacyTestSettings(eta=1000.0, allow_large_eta=True).factor == "e^1000 = more than 1e308"
    with pytest.raises(InputError, match=r"within a factor of e\^5 = 148; set allow_large_eta"):
        PrivacyTestSettings(eta=5.0)


def test_numbers_of_bins_are_exact_at_the_least_eta():
    """At 1e-310 every one was infinite, and all traces lay in one bin."""
    log_likelihood = np.array([-1000.0, -1000.0 - 2 * MIN_ETA])
    with jax.enable_x64(True):
        bins = np.asarray(likelihood_bin(jnp.asarray(log_likelihood), MIN_ETA))
    assert np.isfinite(bins).all()
    assert bins[0] != bins[1]


def test_traces_that_the_test_cannot_judge(model, synthetic):
    frame = synthetic.to_frame()
    with pytest.raises(InputError, match="missing events"):
        plausible_deniability_test(model, model.claim(Traces.from_frame(frame.drop(index=4), TABLE, GRID)))
    other = TimeGrid("2024-01-01T00:00:00", 60, np.array([0, 1, 0]))
    with pytest.raises(InputError, match="time grid"):
        plausible_deniability_test(model, model.claim(Traces.from_frame(frame, TABLE, other)))
    strangers = Traces.from_frame(frame.replace({"user": {100: 1000}}), TABLE, GRID)
    with pytest.raises(InputError, match="1000"):
        plausible_deniability_test(model, model.claim(strangers))
