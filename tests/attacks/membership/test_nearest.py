"""The nearest trace as an attack on membership: copies are found, also a little later, and strangers are not."""

from __future__ import annotations

from ppmtf_jax.attacks.membership import infer_membership
from ppmtf_jax.data.traces import Traces
from tests.attacks.loops import error_of_auc
from tests.support import minutes, places_in_line, random_traces, to_traces

PLACES, GRID = places_in_line(12), minutes(10)


def test_copies_an_instant_later_are_found_and_strangers_are_not() -> None:
    train, test = (random_traces(seed, users, PLACES, GRID) for seed, users in enumerate((range(60), range(100, 160))))
    frame = train.to_frame()
    later = Traces.from_frame(frame.assign(instant=frame["instant"] + 1)[frame["instant"] < 9], PLACES, GRID)
    assert infer_membership(later, train, test, "nearest").roc.auc > 0.99
    strangers = random_traces(7, range(3000, 3060), PLACES, GRID)
    auc = infer_membership(strangers, train, test, "nearest").roc.auc
    assert abs(auc - 0.5) < 5 * error_of_auc(60, 60)


def test_a_user_who_shares_nothing_has_no_weight() -> None:
    train, test = to_traces([(0, 0, 0, 1), (0, 0, 1, 2)], PLACES, GRID), to_traces([(1, 0, 5, 3)], PLACES, GRID)
    scores = infer_membership(train, train, test, "nearest")
    assert scores.members[0, 0] > 0 == scores.others[0, 0]
    # In six of ten releases of strangers, somebody odd was above any bar that the others' scores give.
    assert not scores.one_tail
