"""All estimators on the same traces: copies are found, independent traces are not; how traces are split."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.attacks import audit
from ppmtf_jax.attacks.audit import (
    RehearsalSettings,
    ReidentificationSettings,
    rehearse,
    reidentification_attacks,
    targets_of,
)
from ppmtf_jax.attacks.trace_scores import score_traces as score
from ppmtf_jax.data.events import EVENT_COLUMNS
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.trace_set import Origin
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError

N_USERS, N_PLACES = 24, 12


@pytest.fixture(scope="module")
def city() -> Traces:
    return toy_city(n_users=N_USERS, n_places=N_PLACES, n_days=2, seed=0).traces


def at_random(traces: Traces, seed: int) -> Traces:
    """The same events at places that have nothing to do with who is there."""
    return dataclasses.replace(
        traces, place=np.random.default_rng(seed).integers(0, N_PLACES, traces.n_events).astype(np.int32)
    )


def test_copies_are_found(city):
    # Without gaps, nobody's matrix makes a trace's transitions more likely than the one that they were counted for.
    frame = pd.DataFrame(np.indices((N_USERS, 40)).reshape(2, -1).T, columns=["user", "instant"]).assign(place=0)
    frame["place"] = city.places.ids[np.random.default_rng(0).integers(0, N_PLACES, len(frame))]
    walks = Traces.from_frame(frame, city.places, city.time_grid)
    [attack] = reidentification_attacks(walks, walks, ["ml"])
    assert attack.each.accuracy == 1
    assert attack.each.auc == 1
    assert attack.each.against == "targets"
    assert attack.each.true_positive_rate[0.001] == 1


def test_independent_traces_are_not(city):
    known, handed_out = at_random(city, 1), at_random(city, 2)
    [attack] = reidentification_attacks(known, handed_out, ["ml floor=1e-2"])
    n, m = N_USERS, N_USERS * (N_USERS - 1)
    # Of independent scores; a target's or a trace's scores depend on each other, which at most doubles it here.
    standard_error = np.sqrt((n + m + 1) / (12 * n * m))
    assert abs(attack.each.auc - 0.5) < 5 * standard_error
    assert attack.each.accuracy <= 1 / n + 5 * np.sqrt(1 / n * (1 - 1 / n) / n)
    low, high = attack.each.auc_interval
    assert low < attack.each.auc < high


def test_the_order_of_users_changes_nothing(city):
    turned = city.to_frame()
    turned["user"] = (turned["user"] + 7) % N_USERS
    again = Traces.from_frame(turned, city.places, city.time_grid)
    [attack], [other] = (reidentification_attacks(traces, traces, ["ml"]) for traces in (city, again))
    assert other.each.auc == pytest.approx(attack.each.auc, abs=1e-12)


def test_the_strongest_attack_stands_first(city):
    said = []
    attacks = reidentification_attacks(city, city, ["ml floor=0.05", "ml"], say=said.append)
    assert attacks[0].each.auc >= attacks[1].each.auc
    assert {attack.estimator for attack in attacks} == {"ml", "ml floor=0.05"}
    assert len(said) == 2
    numbers = attacks[0].numbers()
    assert numbers["each"]["n_targets"] == N_USERS
    assert numbers["combined"]["true_positive_rate"].keys() == {"0.001", "0.01", "0.1"}


def test_the_worst_deletion_is_worse_for_the_attacker_than_any(city, monkeypatch):
    """As many places are deleted of each trace, those of strangers at random."""
    known, left, auc = city.select_users(np.arange(N_USERS // 2)), [], {}
    monkeypatch.setattr(
        audit, "score_traces", lambda traces, *a, **how: left.append(traces) or score(traces, *a, **how)
    )
    for how in ("random", "worst"):
        settings = ReidentificationSettings(n_deleted=4, deletion=how)
        [attack] = reidentification_attacks(known, city, ["ml"], settings)
        assert attack.each.against == "strangers"
        auc[how] = attack.each.auc
        expected = np.maximum(np.bincount(city.trace_of_event()) - 4, 1)
        np.testing.assert_array_equal(np.bincount(left[-1].trace_of_event()), expected)
    assert auc["worst"] < auc["random"]


def test_wrong_settings_and_estimators_are_refused_before_any_work(city):
    said = []
    with pytest.raises(InputError, match=r"(?s)n_deleted.*max_gap"):
        ReidentificationSettings(n_deleted=-1, max_gap=0)
    with pytest.raises(InputError, match="one of ml"):
        reidentification_attacks(city, city, ["ml", "nobody"], say=said.append)
    with pytest.raises(InputError, match="floor as a number above 0"):
        reidentification_attacks(city, city, ["ml", "ml floor=2.0"], say=said.append)
    with pytest.raises(InputError, match="some of ml"):
        reidentification_attacks(city, city, [])
    assert not said


def test_with_one_place_every_attack_is_a_guess():
    """All probabilities are 1, all scores are 0, and ties count half."""
    one = toy_city(n_users=6, n_days=1, seed=0).traces
    place = PlaceTable(np.array(["here"]), np.array([35.6]), np.array([139.7]))
    frame = one.to_frame().assign(place="here")
    everybody_here = Traces.from_frame(frame, place, one.time_grid)
    [attack] = reidentification_attacks(everybody_here, everybody_here, ["ml"])
    assert attack.each.auc == pytest.approx(0.5, abs=1e-12)


def test_traces_of_one_place_and_users_who_never_move_can_be_attacked(city):
    """A single place has a first place to go by; who makes no transition has a uniform matrix."""
    first = np.diff(city.trace_of_event(), prepend=-1) != 0
    single = city.select_events(first)
    known = city.select_events(first | (city.user > 3))
    [attack] = reidentification_attacks(known, single, ["ml"])
    assert 0 <= attack.each.auc <= 1
    assert attack.each.n_traces == N_USERS


@pytest.fixture(scope="module")
def city_split() -> Traces:
    return toy_city(n_users=20, n_places=20, n_days=5, seed=0).traces


def pieces_of(traces: Traces) -> set[tuple[int, int]]:
    user, number = traces.trace_table()
    return set(zip(traces.user_ids[user].tolist(), number.tolist(), strict=True))


def test_traces_are_cut_where_a_period_ends(city_split):
    cut = city_split.cut_into_periods()
    day = city_split.instant // 24
    assert np.array_equal(cut.instant, city_split.instant)
    assert np.array_equal(np.unique(np.stack([cut.user, cut.trace, day]), axis=1)[:2].T, np.stack(cut.trace_table()).T)
    first = np.flatnonzero(np.diff(cut.user, prepend=-1))
    assert (cut.trace[first] == 0).all()


def test_the_attacker_knows_the_earlier_pieces_of_targets_and_nothing_of_strangers(city_split):
    made = rehearse(city_split, RehearsalSettings(known_share=0.4), seed=1)
    known, handed_out = pieces_of(made.known), pieces_of(made.anonymized)
    assert not known & handed_out
    assert known | handed_out <= pieces_of(city_split.cut_into_periods())
    assert made.known.n_users == 10
    # Three days of everybody: who has fewer or more would be known by that.
    assert np.bincount(made.anonymized.trace_table()[0]).tolist() == [3] * 20
    for user in made.known.user_ids.tolist():
        own = sorted(number for each, number in known if each == user)
        assert own == [0, 1]
        assert min(number for each, number in handed_out if each == user) == 2


def test_events_of_one_instant_in_other_traces_give_no_pieces_of_their_own(city_split):
    """As imported with `--repeats count`, where each repeat begins another trace; one trace a user is unchanged."""
    again = dataclasses.replace(city_split, place=(city_split.place + 1) % 20, trace=city_split.trace + 1)
    both = [np.concatenate([getattr(each, name) for each in (city_split, again)]) for name in EVENT_COLUMNS]
    repeated = Traces.from_indices(*both, city_split.user_ids, city_split.places, city_split.time_grid)
    for settings in (RehearsalSettings(), RehearsalSettings(pieces="trace", stranger_share=0.0)):
        made = rehearse(repeated, settings, seed=1)
        if settings.pieces == "period":
            once = rehearse(city_split, settings, seed=1)
            assert made.known.digest == once.known.digest
            assert made.anonymized.digest == once.anonymized.digest
        else:
            assert made.anonymized.n_events == city_split.n_events
    # Traces that a model made of one user are other versions of a life.
    origin = Origin("m" * 64, 0, seeds_given=True)
    made = rehearse(dataclasses.replace(repeated, origin=origin), RehearsalSettings(stranger_share=0.0), seed=1)
    assert made.known.n_events + made.anonymized.n_events == repeated.n_events


@pytest.mark.parametrize("text", ["tf rank=2 n_sweeps=2", "tf n_sweeps=2 rank=2 floor=1e-3"])
def test_a_title_tells_the_settings_that_were_given(city_split, text):
    made = rehearse(city_split, RehearsalSettings(), seed=0)
    (attack,) = reidentification_attacks(made.known, made.anonymized, [text])
    floor = ", floor 0.001" if "floor" in text else ""
    assert attack.title.partition(", ")[2] == f"{floor[2:]}{', ' if floor else ''}rank 2, n sweeps 2"


def test_targets_and_strangers_are_as_few_as_asked_for(city_split):
    made = rehearse(city_split, RehearsalSettings(n_targets=3), seed=0)
    assert (made.known.n_users, made.anonymized.n_users) == (3, 6)
    made = targets_of(city_split, city_split, 3, seed=0)
    assert (made.known.n_users, made.anonymized.n_users) == (3, 6)
    assert set(made.known.user_ids.tolist()) <= set(made.anonymized.user_ids.tolist())
    made = targets_of(city_split, city_split, 30, seed=0)
    assert made.known.n_users == made.anonymized.n_users == 20


def test_users_with_one_piece_are_strangers(city_split):
    user, number = (each := city_split.cut_into_periods()).trace_table()
    short = each.select_traces((user >= 12) | (number == 0))
    made = rehearse(short, RehearsalSettings(stranger_share=0.0, pieces="trace"), seed=0)
    assert made.known.n_users == 8
    assert made.n_left_out == 12
    assert made.anonymized.n_users == 20


def test_the_seed_decides_who_is_drawn(city_split):
    drawn = [rehearse(city_split, RehearsalSettings(), seed=seed).known.user_ids.tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_what_cannot_be_split_is_refused(city_split):
    with pytest.raises(InputError, match=r"(?s)known_share as a number above 0 and below 1.*stranger_share.*n_targets"):
        RehearsalSettings(known_share=1.0, stranger_share=1.0, n_targets=1)
    with pytest.raises(InputError, match="two users with two pieces"):
        rehearse(city_split, RehearsalSettings(pieces="trace"), seed=0)
    with pytest.raises(InputError, match="users of the training set"):
        targets_of(city_split.select_users(np.arange(5)), city_split, 5, seed=0)
