"""Shadow models: who is in which, the ratio by hand, copies found and independent traces not."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.attacks.membership import MembershipScores, infer_membership, shadow_models
from ppmtf_jax.attacks.membership.shadow_models import (
    MAX_ATTACKED,
    ShadowCheckpoint,
    ShadowModelSettings,
    Target,
    Wanted,
    infer_by_shadow_models,
    learn_shadows,
    made_like,
    shadow_digest,
)
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from ppmtf_jax.privacy.plausible_deniability import plausible_deniability_test
from ppmtf_jax.synthesizers.synthesis import fit, synthesize
from tests.attacks.loops import error_of_auc
from tests.support import minutes, places_in_line, random_traces
from tests.trace_models.nobody import registered_nobody

PLACES, GRID = places_in_line(12), minutes(10)
Make = Callable[[Traces, int], Traces]


def traces_of(seed: int, users: range) -> Traces:
    return random_traces(seed, users, PLACES, GRID)


def real(n_members: int, n_others: int) -> tuple[Traces, Traces]:
    return traces_of(0, range(n_members)), traces_of(1, range(1000, 1000 + n_others))


def scores_of(
    released: Traces, train: Traces, test: Traces, make: Make, *, n_attacked: int = MAX_ATTACKED, **how: Any
) -> MembershipScores:
    """The attack with a synthesizer of the test's own."""
    target = Target.of(released, train, test, n_attacked=n_attacked, seed=how.get("seed", 0))
    return target.scores(learn_shadows(target, make, **{"n_shadows": 6} | how))


def copy(traces: Traces, seed: int) -> Traces:
    return traces


def strangers(traces: Traces, seed: int) -> Traces:
    return random_traces(seed % 2**31, range(5000, 5000 + traces.n_users), PLACES, GRID)


def test_copies_are_found_and_independent_traces_tell_nothing() -> None:
    train, test = real(50, 50)
    tolerance = 5 * error_of_auc(50, 50)
    assert scores_of(train, train, test, copy, n_shadows=8).roc.auc > 0.99
    scores = scores_of(strangers(train, 7), train, test, strangers, n_shadows=8)
    assert abs(scores.roc.auc - 0.5) < tolerance

    def leaking(traces: Traces, seed: int) -> Traces:
        """Strangers, and every fourth user as they are."""
        return traces.select_users(np.arange(0, traces.n_users, 4)) if seed % 2 else traces

    assert scores_of(train, train, test, leaking, n_shadows=8).roc.auc - 0.5 > tolerance


@pytest.mark.parametrize(("n_members", "n_others", "n_attacked"), [(9, 5, 99), (5, 9, 4), (1, 1, 99)])
def test_shadow_models_are_as_large_as_the_true_one(n_members: int, n_others: int, n_attacked: int) -> None:
    """Each attacked user is in half of the models, all other training users are in every model."""
    train, test = real(n_members, n_others)
    sets: list[np.ndarray] = []

    def recorded(traces: Traces, seed: int) -> Traces:
        sets.append(traces.user_ids)
        return traces

    scores = scores_of(train, train, test, recorded, n_attacked=n_attacked)
    assert [len(each) for each in sets] == [n_members] * 6
    attacked = [*scores.member_ids, *scores.other_ids]
    assert len(scores.member_ids) == len(scores.other_ids) == min(n_members, n_others, n_attacked)
    assert [sum(user in each for each in sets) for user in attacked] == [3] * len(attacked)
    not_attacked = set(train.user_ids) - set(attacked)
    assert all(not_attacked <= set(each) for each in sets)


def test_the_seed_says_all() -> None:
    """And the number of models that are learned at once says nothing."""
    train, test = real(10, 10)
    scores = [scores_of(train, train, test, strangers, seed=0, at_once=2)]
    scores += [scores_of(train, train, test, strangers, seed=seed) for seed in (0, 1)]
    assert np.array_equal(scores[0].members, scores[1].members)
    assert not np.array_equal(scores[0].members, scores[2].members)


def test_a_system_is_retrained_by_its_name() -> None:
    """The pooled chain has no step that no training user makes."""
    train, test = real(20, 20)
    given = {"system": "sgd", "system_settings": {"n_copied": 0}, "n_shadows": 6}
    scores = infer_membership(train, train, test, "shadow_models", **given)
    assert scores.attack == "shadow_models"
    assert scores.roc.auc > 0.9


def test_shadow_models_of_nobody_make_as_many_people_as_were_released() -> None:
    train, test = real(40, 40)
    with registered_nobody():
        settings = ShadowModelSettings("nobody", {"epsilon": 0.1}, n_shadows=6)
        released = synthesize(fit(train, "nobody", settings.system_settings, seed=0), people=30, seed=0)
        assert made_like(train, settings, Wanted(30, 1), seed=1).n_users == 30
        scores = infer_by_shadow_models(released, train, test, settings)
    assert abs(scores.roc.auc - 0.5) < 5 * error_of_auc(40, 40)


def test_what_cannot_be_run_is_refused() -> None:
    train, test = real(3, 3)
    for n_shadows in (4, 7):
        with pytest.raises(InputError, match=f"even n_shadows of at least 6; found {n_shadows}"):
            ShadowModelSettings("sgd", n_shadows=n_shadows)
    with pytest.raises(InputError, match=r"(?s)n_attacked as .*even n_shadows.*n_copied as .* at least 0"):
        ShadowModelSettings("sgd", {"n_copied": -1}, n_shadows=5, n_attacked=0)
    with pytest.raises(InputError, match=r"one of bridge.*; found 'sgt'"):
        ShadowModelSettings("sgt")
    with pytest.raises(InputError, match="system as text; found nothing"):
        infer_membership(train, train, test, "shadow_models")
    with pytest.raises(InputError, match="3 of 3 test users"):
        scores_of(train, train, train, copy)
    elsewhere = random_traces(0, range(3), places_in_line(13), GRID)
    for sets, make in (((elsewhere, train, test), copy), ((train, train, test), lambda traces, seed: elsewhere)):
        with pytest.raises(InputError, match="the same place table"):
            scores_of(*sets, make)
    later = random_traces(1, range(1000, 1003), PLACES, minutes(20))
    with pytest.raises(InputError, match="one time grid; found two"):
        scores_of(train, train, later, copy)


# Like what was released


def test_shadow_models_are_tested_like_the_released_traces() -> None:
    """A trace passes where another user begins at the same place; those that pass are as many as were released."""
    train, _ = real(20, 20)
    system = {"n_copied": 1}
    k = {"k": 2, "eta": 1.0}

    def passes(traces: Traces, seed: int) -> np.ndarray:
        return plausible_deniability_test(fit(train, "sgd", system, seed=seed), traces, seed=seed, **k).passed

    settings = ShadowModelSettings("sgd", system, k, n_shadows=6)
    made = made_like(train, settings, Wanted(40, 3), seed=1)
    assert len(made.trace_table()[0]) == 40
    assert passes(made, 1).all()
    # Without the test some would not have passed.
    untested = made_like(train, replace(settings, test_settings=None), Wanted(40, 3), seed=1)
    assert len(untested.trace_table()[0]) == 40
    assert not passes(untested, 1).all()


def test_where_no_trace_passes_it_is_said() -> None:
    train, _ = real(20, 20)
    # Nowhere all 20 users begin.
    settings = ShadowModelSettings("sgd", {"n_copied": 1}, {"k": 20, "eta": 1.0}, n_shadows=6)
    with pytest.raises(InputError, match="some of whose traces pass; found none"):
        made_like(train, settings, Wanted(1, 1), 0)


# Going on


class Stopped(Exception):
    """As by the user."""


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Seeds of shadow models that were fitted; the fifth fit is stopped once, and has 0."""
    seeds: list[int] = []

    def fitted(traces: Traces, system: str, settings: object, *, seed: int) -> object:
        if len(seeds) == 4 and 0 not in seeds:
            seeds.append(0)
            raise Stopped
        seeds.append(seed)
        return fit(traces, system, settings, seed=seed)

    monkeypatch.setattr(shadow_models, "fit", fitted)
    # Otherwise the sixth fit may have begun when the fifth is stopped.
    monkeypatch.setattr(shadow_models, "AT_ONCE", 1)
    return seeds


def test_an_attack_that_was_stopped_goes_on(fits: list[int], tmp_path: Path) -> None:
    train, test = real(6, 6)
    kept, said = tmp_path / "shadows.npz", []
    settings = ShadowModelSettings("uniform", n_shadows=6)
    with pytest.raises(Stopped):
        infer_by_shadow_models(train, train, test, settings, checkpoint=kept)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    gone_on = infer_by_shadow_models(train, train, test, settings, checkpoint=kept, say=said.append)
    assert "shadow models: 4 of 6 were finished before" in said
    n_fits = len(fits)
    whole = infer_by_shadow_models(train, train, test, settings)
    assert np.array_equal(gone_on.members, whole.members)
    # Four, the one that was stopped, and two; then all six. Each has a seed of its own.
    assert (n_fits, len(fits)) == (7, 13)
    assert fits[:4] + fits[5:7] == fits[7:]
    assert len(set(fits[7:])) == 6
    # More of them go on too; other data do not, and neither does a damaged file.
    infer_by_shadow_models(train, train, test, replace(settings, n_shadows=8), checkpoint=kept)
    assert len(fits) == 15
    said.clear()
    infer_by_shadow_models(train, traces_of(5, range(6)), test, settings, checkpoint=kept, say=said.append)
    assert "shadow models: shadows.npz is from other data or settings; starting again" in said
    assert len(fits) == 21
    kept.write_bytes(kept.read_bytes()[:100])
    assert not ShadowCheckpoint(kept, "any").load(said.append)
    assert said[-1] == "shadow models: shadows.npz cannot be read; starting again"


def test_shadow_models_of_other_data_or_settings_have_another_digest() -> None:
    train, test = real(4, 3)
    moved = replace(train, place=(train.place + 1) % train.n_places)
    later = replace(train, time_grid=minutes(20))
    given = [
        ({"n": 1}, 0, train, test),
        ({"n": 2}, 0, train, test),
        ({"n": 1}, 1, train, test),
        ({"n": 1}, 0, test, train),
        ({"n": 1}, 0, moved, test),
        ({"n": 1}, 0, later, test),
        ({"n": 1}, 0, train, real(4, 2)[1]),
        # A user without an event.
        ({"n": 1}, 0, replace(train, user_ids=np.append(train.user_ids, 99)), test),
    ]
    assert len({shadow_digest(*each) for each in given}) == len(given)
    assert shadow_digest(*given[0]) == shadow_digest({"n": 1}, 0, *real(4, 3))


# Without real people


def test_released_traces_stand_in_for_people() -> None:
    """An attacker who knows nobody else finds those whose traces are in the release, and nobody in one of strangers.

    Half of the released traces are those of all training users. The shadow models of strangers are the strangers who
    stood in, so what is learned is what a copy looks like.
    """
    train, test = real(60, 60)
    others = random_traces(9, range(3000, 3060), PLACES, GRID)
    beside = Traces.from_frame(pd.concat([train.to_frame(), others.to_frame()]), PLACES, GRID)
    tolerance = 5 * error_of_auc(60, 60)

    def found(released: Traces, make: Make) -> MembershipScores:
        target = Target.of(released, train, test).with_stand_ins(released, train.n_users)
        assert (target.traces.n_users, len(target.ids)) == (min(120, released.n_users), 120)
        return target.scores(learn_shadows(target, make, n_shadows=8))

    leaked = found(beside, copy)
    assert leaked.roc.auc - 0.5 > tolerance
    assert set(leaked.member_ids) == set(train.user_ids)
    independent = found(random_traces(8, range(4000, 4120), PLACES, GRID), copy)
    assert abs(independent.roc.auc - 0.5) < tolerance


def test_a_system_is_learned_from_its_own_release() -> None:
    train, test = real(20, 20)
    released = synthesize(fit(train, "sgd", seed=0), traces_per_user=3, seed=0)
    settings = ShadowModelSettings("sgd", n_shadows=6, people="released")
    scores = infer_by_shadow_models(released, train, test, settings)
    assert scores.members.shape == scores.others.shape == (1, 20)
    assert scores.roc.auc > 0.5
