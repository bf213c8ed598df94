"""The plausible-deniability test against a double loop over traces and users, and against the official counts."""

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
from ppmtf_jax.datasets.people_flow import read_official_factors, read_people_flow, read_synthetic
from ppmtf_jax.errors import InputError, NumericalError
from ppmtf_jax.privacy import plausible_deniability as tested
from ppmtf_jax.privacy.plausible_deniability import (
    choose_verifiers,
    count_plausible_users,
    likelihood_bin,
    plausible_deniability_test,
)
from ppmtf_jax.synthesizers.fitted_model import FittedModel, complete_places
from ppmtf_jax.synthesizers.sgd import SGDSettings
from ppmtf_jax.synthesizers.synthesis import fit
from ppmtf_jax.trace_models.likelihoods import step_log_probabilities
from ppmtf_jax.trace_models.metropolis_hastings import MetropolisHastings

USERS, PLACES, SLOTS, RANK, INSTANTS, NUMBER = 7, 4, 2, 2, 3, 3
SLOT_OF_INSTANT = np.array([0, 1, 1], np.int32)
FLOOR = 0.01
GRID = TimeGrid("2024-01-01T00:00:00", 60, SLOT_OF_INSTANT)
TABLE = PlaceTable(np.arange(PLACES), np.linspace(35, 36, PLACES), np.linspace(139, 140, PLACES))
IDS = np.arange(100, 100 + USERS)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks of verifiers and of traces, and groups of traces, the last of them not full."""
    monkeypatch.setattr(tested, "EVENTS_TESTED_TOGETHER", 9 * INSTANTS + 1)
    monkeypatch.setattr(tested, "VERIFIERS_AT_A_TIME", {"float32": 2, "float64": 2})
    monkeypatch.setattr(tested, "VERIFIERS_IN_A_ROUND", 3)
    monkeypatch.setattr(tested, "TRACES_AT_A_TIME", 8)


@pytest.fixture(scope="module")
def factors():
    rng = np.random.default_rng(0)
    sizes = {"user": USERS, "place": PLACES, "next_place": PLACES, "slot": SLOTS}
    return {name: rng.normal(0.4, 0.4, (n, RANK)).astype(np.float32) for name, n in sizes.items()}


@pytest.fixture(scope="module")
def model(factors):
    a, b, c, d = (jnp.asarray(factor) for factor in factors.values())
    chains = MetropolisHastings(a, b, c, a, b, d, jnp.asarray(SLOT_OF_INSTANT), FLOOR)
    return FittedModel("ppmtf", {}, 0, IDS, TABLE, GRID, chains)


@pytest.fixture(scope="module")
def synthetic(model):
    """Places at random: every trace is possible, thanks to the floor."""
    user, trace, instant = (index.ravel() for index in np.indices((USERS, NUMBER, INSTANTS)))
    place = np.random.default_rng(1).integers(PLACES, size=len(user))
    frame = pd.DataFrame({"user": IDS[user], "trace": trace, "instant": instant, "place": place})
    return model.claim(Traces.from_frame(frame, TABLE, GRID))


def naive_log_likelihood(factors: dict[str, np.ndarray], user: int, places: list[int]) -> float:
    """From the whole Metropolis-Hastings matrix of each instant, eq. (5), entry by entry."""
    a, b, c, d = (factor.astype(float) for factor in factors.values())
    transitions = np.maximum([[sum(a[user] * b[x] * c[y]) for y in range(PLACES)] for x in range(PLACES)], FLOOR)
    proposal = transitions / transitions.sum(axis=1, keepdims=True)
    log_likelihood = 0.0
    for instant, place in enumerate(places):
        target = np.array([sum(a[user] * b[x] * d[SLOT_OF_INSTANT[instant]]) for x in range(PLACES)])
        target = np.where(target > 0, target, FLOOR)
        if instant == 0:
            log_likelihood += math.log(target[place] / target.sum())
            continue
        before = places[instant - 1]
        leave = {
            y: min(proposal[before, y], proposal[y, before] * target[y] / target[before])
            for y in range(PLACES)
            if y != before
        }
        log_likelihood += math.log(leave.get(place, 1 - sum(leave.values())))
    return log_likelihood


@pytest.fixture(scope="module")
def likelihoods(factors, synthetic):
    """Of every trace under every user, shape (traces, users)."""
    places = synthetic.place.reshape(-1, INSTANTS).tolist()
    return np.array([[naive_log_likelihood(factors, user, trace) for user in range(USERS)] for trace in places])


def brute_force_count(likelihoods: np.ndarray, verifiers: set[int], eta: float) -> list[int]:
    """Users, the input user and the verifiers, whose likelihood lies in the input user's interval, eqs. (6)-(7)."""
    counts = []
    for trace, row in enumerate(likelihoods):
        own = trace // NUMBER
        i = next(i for i in range(10_000) if math.exp(-(i + 1) * eta) < math.exp(row[own]) <= math.exp(-i * eta))
        asked = verifiers | {own}
        counts.append(sum(math.exp(-(i + 1) * eta) < math.exp(row[user]) <= math.exp(-i * eta) for user in asked))
    return counts


@pytest.mark.parametrize("eta", [0.3, 1.0, 2.5])
def test_counts_are_those_of_a_double_loop(model, synthetic, likelihoods, eta):
    result = plausible_deniability_test(model, synthetic, k=3, eta=eta, count_all=True)
    own = likelihoods[np.arange(len(likelihoods)), np.arange(len(likelihoods)) // NUMBER]
    np.testing.assert_allclose(result.log_likelihood, own, rtol=1e-12)
    expected = brute_force_count(likelihoods, set(range(USERS)), eta)
    np.testing.assert_array_equal(result.plausible_users, expected)
    # Otherwise this would show nothing.
    assert len(set(expected)) > 2


@pytest.mark.parametrize("n_verifiers", [1, 4, 7])
def test_a_subset_of_verifiers_and_always_the_input_user_once(model, synthetic, likelihoods, n_verifiers):
    chosen = [set(choose_verifiers(USERS, n_verifiers, seed).tolist()) for seed in range(3)]
    for seed, verifiers in enumerate(chosen):
        result = plausible_deniability_test(model, synthetic, k=2, n_verifiers=n_verifiers, seed=seed, count_all=True)
        assert len(verifiers) == result.n_verifiers == n_verifiers
        np.testing.assert_array_equal(result.plausible_users, brute_force_count(likelihoods, verifiers, 1.0))
    assert (n_verifiers == USERS) == (len({tuple(verifiers) for verifiers in chosen}) == 1)


def test_planted_bugs_in_counting_are_caught(model, synthetic, likelihoods):
    """The input user counted twice, or the wrong one left out, gives other counts."""
    right = np.array(brute_force_count(likelihoods, set(range(USERS)), 1.0))
    users = np.arange(len(likelihoods)) // NUMBER
    own = likelihoods[np.arange(len(likelihoods)), users]
    arguments = model.trace_model, np.arange(USERS)
    places = synthetic.place.reshape(-1, INSTANTS)
    for wrong_users in (users + USERS, (users + 1) % USERS):
        counts, _ = count_plausible_users(*arguments, wrong_users, places, own, 1.0)
        assert (counts != right).any()
    np.testing.assert_array_equal(count_plausible_users(*arguments, users, places, own, 1.0)[0], right)


@pytest.mark.parametrize("k", [1, 2, 4, 7, 8])
def test_stopping_early_gives_the_same_verdicts(model, synthetic, k):
    whole = plausible_deniability_test(model, synthetic, k=k, count_all=True)
    early = plausible_deniability_test(model, synthetic, k=k)
    np.testing.assert_array_equal(early.plausible_users, np.minimum(whole.plausible_users, k))
    np.testing.assert_array_equal(early.passed, whole.passed)
    np.testing.assert_array_equal(early.passed, whole.plausible_users >= k)
    np.testing.assert_array_equal(early.log_likelihood, whole.log_likelihood)
    assert early.passed.all() == (k == 1)
    assert k <= USERS or not early.passed.any()


def test_the_table_has_a_row_for_each_trace(model, synthetic):
    result = plausible_deniability_test(model, synthetic, k=3)
    table = result.table
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
    np.testing.assert_array_equal(table["passed"], result.passed)
    released = synthetic.select_traces(result.passed)
    assert released.n_events == result.passed.sum() * INSTANTS


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


@pytest.mark.parametrize("share", [1.0, 0.0])
def test_collecting_steps_anew_changes_nothing(model, synthetic, monkeypatch, share):
    """Always when a trace left, or never."""
    before = plausible_deniability_test(model, synthetic, k=3)
    monkeypatch.setattr(tested, "COLLECT_ANEW", share)
    pd.testing.assert_frame_equal(plausible_deniability_test(model, synthetic, k=3).table, before.table)


def test_pass_rates_in_one_pass(model, synthetic):
    k = np.arange(1, USERS + 1)
    expected = [plausible_deniability_test(model, synthetic, k=int(one)).passed.mean() for one in k]
    whole = plausible_deniability_test(model, synthetic, k=2, count_all=True)
    np.testing.assert_array_equal(whole.pass_rates(k), expected)
    up_to_3 = plausible_deniability_test(model, synthetic, k=3)
    np.testing.assert_array_equal(up_to_3.pass_rates(k[:3]), expected[:3])
    with pytest.raises(InputError, match="up to 3"):
        up_to_3.pass_rates(k)


def test_the_randomized_test_adds_noise_to_k_for_each_trace(model, synthetic, monkeypatch):
    """With the noise known: it is that of scale 1 / epsilon for a count that one user changes by one."""
    asked = []

    def noisy(values, sensitivity, epsilon):
        asked.append((values.tolist(), sensitivity, epsilon))
        return values + np.arange(len(values)) % 7 - 4

    monkeypatch.setattr(tested, "add_laplace", noisy)
    whole = plausible_deniability_test(model, synthetic, k=3, count_all=True)
    assert not asked
    result = plausible_deniability_test(model, synthetic, k=3, noise_epsilon=0.5)
    assert asked == [([3] * USERS * NUMBER, 1, 0.5)]
    threshold = 3 + np.arange(USERS * NUMBER) % 7 - 4
    np.testing.assert_array_equal(result.passed, whole.plausible_users >= threshold)
    np.testing.assert_array_equal(result.table["passed"], result.passed)


def test_the_test_is_deterministic(model, synthetic):
    one, two = (plausible_deniability_test(model, synthetic, k=3, n_verifiers=4, seed=2) for _ in range(2))
    pd.testing.assert_frame_equal(one.table, two.table)


def test_the_size_of_a_block_changes_nothing(model, synthetic, monkeypatch):
    small = plausible_deniability_test(model, synthetic, k=3, count_all=True)
    monkeypatch.setattr(tested, "VERIFIERS_AT_A_TIME", {"float32": 32, "float64": 32})
    monkeypatch.setattr(tested, "VERIFIERS_IN_A_ROUND", 256)
    monkeypatch.setattr(tested, "TRACES_AT_A_TIME", 128)
    pd.testing.assert_frame_equal(plausible_deniability_test(model, synthetic, k=3, count_all=True).table, small.table)


def test_only_some_users_and_traces_in_any_numbering(model, synthetic):
    """Traces that were withheld leave gaps; the verdicts on the others stay."""
    whole = plausible_deniability_test(model, synthetic, k=3, count_all=True)
    keep = np.arange(USERS * NUMBER) % 4 == 1
    some = plausible_deniability_test(model, synthetic.select_traces(keep), k=3, count_all=True)
    np.testing.assert_array_equal(some.plausible_users, whole.plausible_users[keep])


@pytest.mark.usefixtures("float64")
def test_bins_are_closed_above_and_open_below():
    """e^-(i+1)eta < p <= e^-i eta."""
    log_likelihood = np.array([0.0, -0.5, -1.0, np.nextafter(-1.0, -2), np.nextafter(-1.0, 0), -np.inf])
    np.testing.assert_array_equal(likelihood_bin(log_likelihood, 0.5), [0, 1, 2, 2, 1, np.inf])


def test_single_precision_is_close(model, synthetic):
    double = plausible_deniability_test(model, synthetic, k=3, count_all=True)
    single = plausible_deniability_test(model, synthetic, k=3, count_all=True, precision="float32")
    assert single.log_likelihood.dtype == np.float32
    assert double.log_likelihood.dtype == np.float64
    np.testing.assert_allclose(single.log_likelihood, double.log_likelihood, rtol=1e-5)


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
        {"eta": 0.0},
        {"eta": -1.0},
        {"eta": math.nan},
        {"eta": math.inf},
        {"n_verifiers": 0},
        {"n_verifiers": 8},
        {"noise_epsilon": 0.0},
    ],
    ids=str,
)
def test_bad_parameters(model, synthetic, wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        plausible_deniability_test(model, synthetic, **wrong)


def test_all_bad_parameters_are_named_at_once(model, synthetic):
    with pytest.raises(InputError) as error:
        plausible_deniability_test(model, synthetic, k=-1, eta=0.0, n_verifiers=0)
    assert len(error.value.problems) == 3


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
        counts, _ = count_plausible_users(chains, np.arange(499), users, places, own, 1.0)
    np.testing.assert_array_equal(synthetic.user_ids[users], official["user"])
    np.testing.assert_array_equal(synthetic.trace_table()[1], official["trace"])
    # A likelihood at the very edge of a bin may round to the other side: 1 in 1,000 at most.
    assert (counts == official["plausible_users"]).mean() >= 0.999
