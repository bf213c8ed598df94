"""Shadow models: who is in which, the ratio by hand, copies found and independent traces not."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from ppmtf_jax.attacks.membership import infer_membership
from ppmtf_jax.attacks.membership.shadow_models import ShadowModelSettings, shadow_model_ratios
from ppmtf_jax.attacks.membership.trace_densities import log_density_per_event, windows_of
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from tests.support import minutes, places_in_line, random_traces

PLACES, GRID = places_in_line(12), minutes(10)
Make = Callable[[Traces, int], Traces]


def traces_of(seed: int, users: range) -> Traces:
    return random_traces(seed, users, PLACES, GRID)


def real(n_members: int, n_others: int) -> tuple[Traces, Traces]:
    return traces_of(0, range(n_members)), traces_of(1, range(1000, 1000 + n_others))


def copy(traces: Traces, seed: int) -> Traces:
    return traces


def strangers(traces: Traces, seed: int) -> Traces:
    return random_traces(seed % 2**31, range(5000, 5000 + traces.n_users), PLACES, GRID)


def test_copies_are_found_and_independent_traces_tell_nothing() -> None:
    train, test = real(60, 60)
    tolerance = 5 * math.sqrt((60 + 60 + 1) / (12 * 60 * 60))
    assert shadow_model_ratios(train, train, test, copy, n_shadows=8).roc.auc > 0.99
    scores = shadow_model_ratios(strangers(train, 7), train, test, strangers, n_shadows=8)
    assert abs(scores.roc.auc - 0.5) < tolerance

    def leaking(traces: Traces, seed: int) -> Traces:
        """Strangers, and every fourth user as she is."""
        return traces.select_users(np.arange(0, traces.n_users, 4)) if seed % 2 else traces

    assert shadow_model_ratios(train, train, test, leaking, n_shadows=8).roc.auc - 0.5 > tolerance


def test_on_average_independent_traces_tell_nothing() -> None:
    """Over 30 experiments, within five standard errors of the mean of as many Mann-Whitney statistics."""
    n_users, n_experiments, auc = 40, 30, []
    for number in range(n_experiments):
        train, test = (traces_of(10 * number + kind, range(1000 * kind, 1000 * kind + n_users)) for kind in range(2))
        released = strangers(train, 10 * number + 2)
        auc.append(shadow_model_ratios(released, train, test, strangers, n_shadows=4, seed=number).roc.auc)
    error = math.sqrt((2 * n_users + 1) / (12 * n_users**2))
    assert abs(np.mean(auc) - 0.5) < 5 * error / math.sqrt(n_experiments)
    # The spread is that of ranks too: 30 experiments know it to an eighth.
    assert np.std(auc, ddof=1) == pytest.approx(error, rel=5 / math.sqrt(2 * n_experiments))


def recorded(make: Make, sets: list[np.ndarray], made: list[Traces]) -> Make:
    def and_record(traces: Traces, seed: int) -> Traces:
        sets.append(traces.user_ids)
        made.append(make(traces, seed))
        return made[-1]

    return and_record


@pytest.mark.parametrize(("n_members", "n_others"), [(9, 5), (5, 9), (6, 6), (1, 1)])
def test_shadow_models_are_as_large_as_the_true_one(n_members: int, n_others: int) -> None:
    train, test = real(n_members, n_others)
    sets: list[np.ndarray] = []
    scores = shadow_model_ratios(train, train, test, recorded(copy, sets, []), n_shadows=6)
    assert [len(each) for each in sets] == [n_members] * 6
    attacked = [*scores.member_ids, *scores.other_ids]
    assert len(scores.member_ids) == len(scores.other_ids) == min(n_members, n_others)
    assert [sum(user in each for each in sets) for user in attacked] == [3] * len(attacked)
    not_attacked = set(train.user_ids) - set(attacked)
    assert all(not_attacked <= set(each) for each in sets)


def test_the_ratio_by_hand() -> None:
    train, test = real(6, 4)
    sets: list[np.ndarray] = []
    made: list[Traces] = []
    released = strangers(train, 3)
    scores = shadow_model_ratios(released, train, test, recorded(strangers, sets, made), n_shadows=4, seed=2)
    statistic = {}
    for traces in (train, test):
        for each in [*made, released]:
            windows, model = windows_of(traces=traces, each=each)
            found = log_density_per_event(windows, model)
            statistic |= {(user, id(each)): value for user, value in zip(traces.user_ids.tolist(), found, strict=True)}
    users = [*scores.member_ids.tolist(), *scores.other_ids.tolist()]
    mean, residual = {}, {}
    for kind in (True, False):
        for user in users:
            values = [statistic[user, id(m)] for m, who in zip(made, sets, strict=True) if (user in who) == kind]
            mean[kind, user] = sum(values) / 2
            residual[kind, user] = [value - mean[kind, user] for value in values]
    # Two models of each kind a user, less one for her mean.
    variance = {kind: sum(r**2 for user in users for r in residual[kind, user]) / len(users) for kind in (True, False)}

    def log_density(kind: bool, user: int) -> float:
        error = statistic[user, id(released)] - mean[kind, user]
        return -(error**2) / (2 * variance[kind]) - math.log(variance[kind]) / 2

    expected = [log_density(True, user) - log_density(False, user) for user in users]
    assert [*scores.members[0], *scores.others[0]] == pytest.approx(expected)
    assert expected != pytest.approx([-each for each in expected], abs=1e-3)


def test_the_seed_says_all() -> None:
    train, test = real(10, 10)
    scores = [shadow_model_ratios(train, train, test, strangers, n_shadows=4, seed=seed) for seed in (0, 0, 1)]
    assert np.array_equal(scores[0].members, scores[1].members)
    assert not np.array_equal(scores[0].members, scores[2].members)


def test_traces_that_never_change_say_nothing() -> None:
    """The variance is then 0."""
    train, test = real(20, 20)
    same = strangers(train, 1)
    scores = shadow_model_ratios(same, train, test, lambda traces, seed: same, n_shadows=4)
    assert np.isfinite(scores.members).all()
    assert np.isfinite(scores.others).all()
    assert abs(scores.roc.auc - 0.5) < 5 * math.sqrt((20 + 20 + 1) / (12 * 20 * 20))
    other = shadow_model_ratios(strangers(train, 2), train, test, lambda traces, seed: same, n_shadows=4)
    assert np.isfinite([other.members, other.others]).all()


def test_a_system_is_retrained_by_its_name() -> None:
    """The pooled chain has no step that no training user makes."""
    train, test = real(30, 30)
    given = {"system": "sgd", "system_settings": {"n_copied": 0}, "n_shadows": 4}
    scores = infer_membership(train, train, test, "shadow_models", **given)
    assert scores.attack == "shadow_models"
    assert scores.roc.auc > 0.9


def test_what_cannot_be_run_is_refused() -> None:
    train, test = real(3, 3)
    for n_shadows in (2, 5):
        with pytest.raises(InputError, match=f"even n_shadows of at least 4; found {n_shadows}"):
            shadow_model_ratios(train, train, test, copy, n_shadows=n_shadows)
    with pytest.raises(InputError, match=r"(?s)even n_shadows.*n_copied of at least 0; found -1"):
        ShadowModelSettings("sgd", {"n_copied": -1}, n_shadows=3)
    with pytest.raises(InputError, match=r"one of bridge.*; found 'sgt'"):
        ShadowModelSettings("sgt")
    with pytest.raises(InputError, match="system as text; found nothing"):
        infer_membership(train, train, test, "shadow_models")
    with pytest.raises(InputError, match="3 of 3 test users"):
        shadow_model_ratios(train, train, train, copy)
    elsewhere = random_traces(0, range(3), places_in_line(13), GRID)
    for sets, make in (((elsewhere, train, test), copy), ((train, train, test), lambda traces, seed: elsewhere)):
        with pytest.raises(InputError, match="the same place table"):
            shadow_model_ratios(*sets, make)
    later = random_traces(1, range(1000, 1003), PLACES, minutes(20))
    with pytest.raises(InputError, match="one time grid; found two"):
        shadow_model_ratios(train, train, later, copy)
