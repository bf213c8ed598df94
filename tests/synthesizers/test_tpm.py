"""One chain for everybody from noisy counts: against counting by a loop, and one user's part in it by brute force."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from ppmtf_jax.noise.mechanisms import NoiseSource, SecureNoise, SeededNoise
from ppmtf_jax.privacy.plausible_deniability import plausible_deniability_test
from ppmtf_jax.privacy.release_plan import plan_release
from ppmtf_jax.settings import build_settings
from ppmtf_jax.streams import Seed
from ppmtf_jax.synthesizers.synthesis import fit, synthesize
from ppmtf_jax.synthesizers.systems import tpm
from ppmtf_jax.synthesizers.systems.tpm import (
    TPMSettings,
    TransitionMatrix,
    fit_with_noise,
    trimmed_transition_counts,
)
from ppmtf_jax.trace_models.likelihoods import step_log_probabilities
from ppmtf_jax.trace_models.population import stationary_distribution
from tests.machine import with_gigabytes
from tests.noise.sources import Recorded
from tests.support import minutes, places_in_line, random_traces, to_traces, transitions_by_loop

N_PLACES, FALSE_ALARM = 5, 1e-6
# What logarithms in single precision differ by.
SINGLE = {"rtol": 1e-5, "atol": 1e-6}
PLACES, GRID = places_in_line(N_PLACES), minutes(8)


@pytest.fixture(scope="module")
def train() -> Traces:
    """Of 12 users with gaps, two traces each; the last place is never visited."""
    return random_traces(0, range(12), PLACES, GRID, n_traces=2, keep=0.8, n_visited=N_PLACES - 1)


def fitted_chain(traces: Traces, settings: TPMSettings | None = None) -> TransitionMatrix:
    model = fit(traces, "tpm", settings, seed=0).trace_model
    assert isinstance(model, TransitionMatrix)
    return model


def chain_with(noise: NoiseSource, traces: Traces, settings: TPMSettings = TPMSettings()) -> TransitionMatrix:
    model = fit_with_noise(traces, settings, noise, seed=Seed(0, given=True)).trace_model
    assert isinstance(model, TransitionMatrix)
    return model


def counts_by_loop(traces: Traces) -> np.ndarray:
    count = np.zeros((N_PLACES, N_PLACES), int)
    for _, _, place, after in transitions_by_loop(traces):
        count[place, after] += 1
    return count


def test_without_trimming_all_transitions_count(train):
    np.testing.assert_array_equal(trimmed_transition_counts(train, 1000, seed=0), counts_by_loop(train))


@pytest.mark.parametrize("most", [1, 3])
def test_of_each_user_so_many_count_as_may_and_any_of_them(train, most):
    own = [counts_by_loop(train.select_users(np.array([user]))) for user in range(train.n_users)]
    kept = np.array([trimmed_transition_counts(train, most, seed=seed) for seed in range(100)])
    assert (kept.sum(axis=(1, 2)) == sum(min(most, each.sum()) for each in own)).all()
    # Each step is kept with the same probability; the standard deviation of a sum of draws is below sqrt(n).
    expected = 100 * sum(each * min(1, most / each.sum()) for each in own)
    assert (np.abs(kept.sum(axis=0) - expected) < 5 * np.sqrt(expected + 1)).all()


def test_one_user_less_changes_the_counts_by_no_more_than_noise_covers(train):
    """Brute force over every user left out."""
    noise = Recorded()
    chain_with(noise, train, TPMSettings(epsilon=0.5, max_transitions=3))
    ((counts, sensitivity, epsilon),) = noise.asked
    assert (sensitivity, epsilon) == (3, 0.5)
    changes = []
    for user in range(train.n_users):
        others = train.select_users(np.delete(np.arange(train.n_users), user))
        changes.append(np.abs(trimmed_transition_counts(others, 3, seed=0) - counts).sum())
    assert max(changes) == sensitivity
    # Twin: drawn from one stream in the order of the users, they would depend on each other.
    assert max(np.abs(drawn_in_order(train, 3) - drawn_in_order(without_first(train), 3)).ravel()) > 0
    assert np.abs(drawn_in_order(train, 3) - drawn_in_order(without_first(train), 3)).sum() > sensitivity


@pytest.mark.parametrize("given", ["table", "file"])
def test_one_user_more_whose_id_has_a_fraction_changes_the_counts_by_no_more_than_noise_covers(tmp_path, given):
    """The fraction made all ids floats, "1" became "1.0", and what counts of every user was drawn anew."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame([(user, i) for user in range(1, 201) for i in range(40)], columns=["user", "instant"])
    rows["place"] = rng.integers(N_PLACES, size=len(rows))
    more = pd.concat([rows, rows[rows["user"] == 1].assign(user=200.5)])
    counts = []
    for frame in (rows, more):
        if given == "file":
            frame.to_csv(tmp_path / "events.csv", index=False)
            frame = pd.read_csv(tmp_path / "events.csv")
        traces = Traces.from_frame(frame, PLACES, minutes(40))
        counts.append(trimmed_transition_counts(traces, 10, seed=0))
    assert np.abs(counts[1] - counts[0]).sum() == 10


def test_the_noise_is_that_of_the_settings_and_of_the_statement(train, monkeypatch):
    noise = Recorded()
    monkeypatch.setattr(tpm, "SecureNoise", lambda: noise)
    settings = TPMSettings(epsilon=0.25, max_transitions=7)
    claims = fit(train, "tpm", settings, seed=0).claims()
    ((counts, sensitivity, epsilon),) = noise.asked
    np.testing.assert_array_equal(counts, trimmed_transition_counts(train, 7, seed=0))
    assert (sensitivity, epsilon) == (7, 0.25)
    assert f"{epsilon:g}-differentially private" in claims.protected[0]
    # One source that several mechanisms share is asked for the same.
    fit_with_noise(train, settings, noise, seed=Seed(0, given=True))
    assert noise.asked[1][1:] == (sensitivity, epsilon)


def without_first(traces: Traces) -> Traces:
    return traces.select_users(np.arange(1, traces.n_users))


def drawn_in_order(traces: Traces, most: int) -> np.ndarray:
    rng, count = np.random.default_rng(0), np.zeros((N_PLACES, N_PLACES), int)
    _, user, place, after = traces.transitions()
    for each in range(traces.n_users):
        own = rng.permutation(np.flatnonzero(user == each))[:most]
        np.add.at(count, (place[own], after[own]), 1)
    return count


def test_the_model_is_made_of_the_noisy_counts_alone(train):
    noisy = np.array([[4, -3, 0, 1, 0], [0, 0, 2, 0, 0], [-1, 0, 0, 0, 7], [0, 0, 0, 0, 0], [-5, -5, -5, -5, -5]])
    model = chain_with(Recorded(noisy), train)
    count = np.maximum(noisy, 0)
    share = (count.sum(axis=0) + 1) / (4 + 1 + 2 + 7 + 5)
    expected = [(row + share) / (row.sum() + 1) for row in count]
    np.testing.assert_allclose(model.transition, expected, rtol=1e-6)
    np.testing.assert_allclose(model.transition[3], share, rtol=1e-6)
    # The first place is such that a step changes nothing.
    np.testing.assert_allclose(model.first @ model.transition, model.first, rtol=1e-5)


def test_stationary_distribution_of_places_that_hardly_mix():
    """Two halves that are left once in 10^7 steps: p(a) P(a, b) = p(b) P(b, a)."""
    rare = 1e-7
    transition = np.array([[1 - rare, rare], [3 * rare, 1 - 3 * rare]])
    np.testing.assert_allclose(stationary_distribution(transition), [0.75, 0.25], rtol=1e-7)
    np.testing.assert_allclose(stationary_distribution(np.ones((1, 1))), [1])


def test_log_probabilities_and_draws_are_those_of_the_matrix(train):
    fitted = fit_with_noise(train, TPMSettings(), Recorded(), seed=Seed(0, given=True))
    arrays = fitted.trace_model.to_arrays()
    first, transition = (arrays[name].astype(float) for name in ("first", "transition"))
    places = synthesize(fitted, traces_per_user=500, seed=0).place.reshape(-1, GRID.n_instants)
    steps = step_log_probabilities(fitted.trace_model, np.repeat(np.arange(12), 500)[:50], places[:50])
    np.testing.assert_allclose(steps[:, 0], np.log(first[places[:50, 0]]), **SINGLE)
    np.testing.assert_allclose(steps[:, 1:], np.log(transition[places[:50, :-1], places[:50, 1:]]), **SINGLE)
    assert chi_square_ratio(places[:, 0], first) < 1
    assert chi_square_ratio(places[:, -1], first) < 1
    for place in range(N_PLACES):
        assert chi_square_ratio(places[places[:, 2] == place, 3], transition[place]) < 1
    # Planted: the other direction of time.
    backwards = transition.T / transition.T.sum(axis=1, keepdims=True)
    assert max(chi_square_ratio(places[places[:, 2] == a, 3], backwards[a]) for a in range(N_PLACES)) > 1


def chi_square_ratio(drawn: np.ndarray, probability: np.ndarray) -> float:
    expected = probability * len(drawn)
    statistic = ((np.bincount(drawn, minlength=N_PLACES) - expected) ** 2 / expected).sum()
    return float(statistic / stats.chi2.isf(FALSE_ALARM, N_PLACES - 1))


def test_much_budget_gives_the_counts_and_little_gives_noise(train):
    exact = fitted_chain(train, TPMSettings(epsilon=1e6, max_transitions=1000))
    count = counts_by_loop(train)
    often = count.sum(axis=1) > 0
    ours = np.asarray(exact.transition)[often]
    assert np.abs(ours - count[often] / count[often].sum(axis=1, keepdims=True)).max() < 1 / count[often].sum(1).min()
    assert exact.summary() == ["noise alone would make 0 % of the transitions that were learned"]
    noise = fitted_chain(train, TPMSettings(epsilon=1e-3))
    # The sum of 25 positive parts of mean 5,000 and standard deviation below 9,000 is nowhere near five times its mean.
    assert float(noise.noise_share) > 0.2
    assert jnp.isfinite(noise.transition).all()


def test_seeded_noise_repeats_with_the_seed(train):
    assert (fitted_chain(train).transition != fitted_chain(train).transition).any(), "secure noise has no seed"
    first, again, other = (
        fit(train, "tpm", noise="seeded", seed=seed).trace_model.to_arrays()["transition"] for seed in (0, 0, 1)
    )
    assert (first == again).all()
    assert (first != other).any()
    np.testing.assert_array_equal(first, chain_with(SeededNoise(0), train).transition)


@pytest.mark.parametrize(("noise", "private"), [(SecureNoise(), True), (SeededNoise(0), False)])
def test_a_release_says_whether_the_noise_protects(train, noise, private):
    model = fit_with_noise(train, TPMSettings(epsilon=0.25), noise, seed=Seed(0, given=True))
    synthetic = synthesize(model, seed=0)
    verdicts = plausible_deniability_test(model, synthetic, k=12)
    assert verdicts.passed.all()
    statement = plan_release(synthetic, verdicts).statement
    assert any("0.25-differentially private" in point for point in statement["protected"]) == private
    assert any("NOT PRIVATE" in point for point in statement["not_protected"]) != private


@pytest.mark.parametrize("rows", [[(0, 0, 3, 2)], [(0, 0, 0, 0), (1, 0, 2, 1)]], ids=["one event", "no step"])
def test_traces_without_any_step(rows):
    """Nothing is known: every move is as probable as any other."""
    noise = Recorded()
    model = chain_with(noise, to_traces(rows, PLACES, GRID))
    np.testing.assert_allclose(model.transition, 1 / N_PLACES, rtol=1e-6)
    np.testing.assert_allclose(model.first, 1 / N_PLACES, rtol=1e-6)
    assert not noise.asked[0][0].any()


def test_what_would_be_no_protection_is_refused(train):
    with pytest.raises(InputError, match=r"(?s)epsilon.*max_transitions"):
        TPMSettings(0.0, 0)
    for epsilon in (-1.0, np.inf, np.nan):
        with pytest.raises(InputError, match="epsilon"):
            TPMSettings(epsilon)
    with pytest.raises(InputError, match="'secure' or 'seeded'"):
        build_settings(TPMSettings, {"noise": "none"}, "tpm")


def test_too_many_places_are_refused(train, monkeypatch):
    with_gigabytes(monkeypatch, 1e-6)
    with pytest.raises(InputError, match="Take fewer places"):
        fit(train, "tpm", seed=0)
