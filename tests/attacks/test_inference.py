"""What is guessed from traces, by hand, where traces are given away and where they are those of other people."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ppmtf_jax.attacks.inference import GUESSES, infer
from ppmtf_jax.attacks.registry import ATTACKS
from ppmtf_jax.data.measurement import Comparison, NoSettings
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from ppmtf_jax.privacy.limits import Status
from tests.support import minutes, places_in_line, random_traces, to_traces

PLACES, GRID = places_in_line(12), minutes(6)


def walks(of_user: dict[int, list[int]]) -> Traces:
    """The place of each user at each instant; -1 where the user is not seen."""
    rows = [(user, 0, i, place) for user, walk in of_user.items() for i, place in enumerate(walk) if place >= 0]
    return to_traces(rows, PLACES, GRID)


def test_the_hidden_half_is_read_off_the_nearest_trace() -> None:
    """User 0 is found at the later places 7 and 8, and user 1 at 9; of user 2 nothing is found."""
    train = walks({0: [1, 1, 2, 7, 7, 8], 1: [3, -1, 4, 9, -1, 9]})
    test = walks({2: [1, 1, 2, 11, 11, 11]})
    released = walks({5: [1, 1, 5, 7, 7, 8], 6: [3, 4, 4, 9, 9, 9]})
    found = infer(released, train, test)
    # Two of three hidden places of user 0, whose second place is 2 and not 5. User 1: 3 and 4, and a tie of both.
    assert found["rest"].training.tolist() == [2 / 3, 1]
    assert found["home"].training.tolist() == [1, 1]
    assert found["second"].training.tolist() == [0, 1]
    assert [found[name].test.tolist() for name in GUESSES] == [[0], [0], [0]]
    assert found["rest"].difference == pytest.approx(5 / 6)


def test_an_event_that_is_missing_is_that_nearest_in_time() -> None:
    train, test = walks({0: [1, 2, 3, 7, 7, 8]}), walks({2: [1, 1, 2, 11, 11, 11]})
    released = walks({4: [5, 5, 5, 5, 5, 5], 5: [-1, 2, -1, -1, 7, 8], 6: [6, 6, 6, 6, 6, 6]})
    # The event at instant 1 is nearest to the hidden instants 0, 1 and 2.
    assert infer(released, train, test)["rest"].training.tolist() == [1 / 3]


def real(seed: int) -> tuple[Traces, Traces, Traces]:
    """Training, test and other users, each at places of a few of their own."""
    rng = np.random.default_rng(seed)
    own = rng.integers(0, 40, size=(1200, 3))
    where = np.sort(rng.integers(0, 3, size=(1200, 12)), axis=1)
    rows = [(u, 0, i, own[u, where[u, i]]) for u in range(1200) for i in range(12)]
    everybody = to_traces(rows, places_in_line(40), minutes(12))
    return tuple(everybody.select_users(np.arange(n, n + 400)) for n in (0, 400, 800))


def test_a_release_of_training_traces_is_found_and_one_of_other_people_is_at_chance() -> None:
    """Of ten independent releases, none is poor; each would be with a probability of at most 2.5 %."""
    statuses = []
    for seed in range(10):
        train, test, others = real(seed)
        found = infer(others, train, test)
        statuses += [each.judgement().status for each in found.values()]
        # Five standard errors of a difference of shares.
        assert all(abs(each.difference) < 5 * math.sqrt(0.5 / 400) for each in found.values())
    assert Status.POOR not in statuses
    leaked = infer(train, train, test)
    assert {each.judgement().status for each in leaked.values()} == {Status.POOR}
    # A tenth of the training users gives away nothing that this number shows; the number of people copied does.
    few = infer(train.select_users(np.arange(40)), train, test)
    assert few["home"].difference > 0.02


def test_numbers_are_undefined_where_nothing_can_be_guessed() -> None:
    train, test, _ = real(0)
    still = to_traces([(u, 0, 0, 0) for u in range(3)], train.places, train.time_grid)
    with pytest.raises(InputError, match="windows of two events"):
        infer(train, still, test)
    for sets in ((train, still, test), (random_traces(0, range(3), train.places, minutes(11)), train, test)):
        measured = ATTACKS["inference"].measure(Comparison(*sets, sets[0].time_grid.n_instants), NoSettings())
        assert np.isnan(measured).all()
    # Nobody has a second hidden place.
    home = walks({0: [1, 1, 1, 7, 7, 8]}), walks({2: [1, 1, 1, 11, 11, 11]})
    assert math.isnan(infer(home[0], *home)["second"].difference)
    assert infer(home[0], *home)["second"].judgement().status is Status.UNKNOWN
