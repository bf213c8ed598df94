"""What of real traces an attacker knows."""

import numpy as np
import pytest

from ppmtf_jax.attacks.splits import RehearsalSettings, rehearse, targets_of
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError


@pytest.fixture(scope="module")
def city() -> Traces:
    return toy_city(n_users=20, n_places=20, n_days=5, seed=0).traces


def pieces_of(traces: Traces) -> set[tuple[int, int]]:
    user, number = traces.trace_table()
    return set(zip(traces.user_ids[user].tolist(), number.tolist(), strict=True))


def test_traces_are_cut_where_a_period_ends(city):
    cut = city.cut_into_periods()
    day = city.instant // 24
    assert np.array_equal(cut.instant, city.instant)
    assert np.array_equal(np.unique(np.stack([cut.user, cut.trace, day]), axis=1)[:2].T, np.stack(cut.trace_table()).T)
    first = np.flatnonzero(np.diff(cut.user, prepend=-1))
    assert (cut.trace[first] == 0).all()


def test_the_attacker_knows_the_earlier_pieces_of_targets_and_nothing_of_strangers(city):
    made = rehearse(city, RehearsalSettings(known_share=0.4), seed=1)
    known, handed_out = pieces_of(made.known), pieces_of(made.anonymized)
    assert not known & handed_out
    assert known | handed_out <= pieces_of(city.cut_into_periods())
    assert made.known.n_users == 10
    # Three days of everybody: who has fewer or more would be known by that.
    assert np.bincount(made.anonymized.trace_table()[0]).tolist() == [3] * 20
    for user in made.known.user_ids.tolist():
        own = sorted(number for each, number in known if each == user)
        assert own == [0, 1]
        assert min(number for each, number in handed_out if each == user) == 2


def test_targets_and_strangers_are_as_few_as_asked_for(city):
    made = rehearse(city, RehearsalSettings(n_targets=3), seed=0)
    assert (made.known.n_users, made.anonymized.n_users) == (3, 6)
    made = targets_of(city, city, 3, seed=0)
    assert (made.known.n_users, made.anonymized.n_users) == (3, 6)
    assert set(made.known.user_ids.tolist()) <= set(made.anonymized.user_ids.tolist())
    made = targets_of(city, city, 30, seed=0)
    assert made.known.n_users == made.anonymized.n_users == 20


def test_users_with_one_piece_are_strangers(city):
    user, number = (each := city.cut_into_periods()).trace_table()
    short = each.select_traces((user >= 12) | (number == 0))
    made = rehearse(short, RehearsalSettings(stranger_share=0.0, pieces="trace"), seed=0)
    assert made.known.n_users == 8
    assert made.n_left_out == 12
    assert made.anonymized.n_users == 20


def test_the_seed_decides_who_is_drawn(city):
    drawn = [rehearse(city, RehearsalSettings(), seed=seed).known.user_ids.tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_what_cannot_be_split_is_refused(city):
    with pytest.raises(InputError, match=r"(?s)known_share as a number above 0 and below 1.*stranger_share.*n_targets"):
        RehearsalSettings(known_share=1.0, stranger_share=1.0, n_targets=1)
    with pytest.raises(InputError, match="two users with two pieces"):
        rehearse(city, RehearsalSettings(pieces="trace"), seed=0)
    with pytest.raises(InputError, match="users of the training set"):
        targets_of(city.select_users(np.arange(5)), city, 5, seed=0)
