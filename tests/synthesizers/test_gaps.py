"""Gaps of traces are filled, whatever their periods; what was known stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.trace_set import Origin
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from ppmtf_jax.people.model import RememberingBridge
from ppmtf_jax.synthesizers import gaps
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.gaps import complete
from ppmtf_jax.synthesizers.synthesis import fit
from ppmtf_jax.trace_models.completion import ABSENT, Completion
from ppmtf_jax.trace_models.likelihoods import step_log_probabilities
from tests.people.person_processes import random_arrays
from tests.support import places_in_line, random_traces, to_traces

PLACES = places_in_line(5)
# Three days of four instants, and a fourth that ends after its third instant.
PERIOD, INSTANTS = 4, 15
GRID = TimeGrid("2024-01-01T00:00:00", 60, np.resize(np.arange(PERIOD), INSTANTS), period=PERIOD)


@pytest.fixture(scope="module")
def train() -> Traces:
    return random_traces(0, range(6), PLACES, GRID, n_traces=2, keep=0.5)


def one_by_one(model: FittedModel, traces: Traces, **settings) -> Traces:
    """Completed as synthetic traces, of which a user may have several at one instant."""
    return complete(model, model.claim(traces), **settings)


@pytest.fixture(scope="module")
def model(train) -> FittedModel:
    return fit(train, "tpm", seed=0, noise="seeded", epsilon=100.0)


def rows(traces: Traces) -> set[tuple]:
    return set(traces.to_frame().itertuples(index=False, name=None))


@pytest.mark.parametrize("how", ["most-probable", "random"])
def test_every_period_with_an_event_is_whole_and_known_events_stay(train, model, how):
    claimed = model.claim(train)
    whole = complete(model, claimed, how=how, seed=0)
    assert rows(train) <= rows(whole)
    assert (type(claimed.origin), whole.origin) == (Origin, None), "completed traces are real ones"
    days = {(user, trace, instant // PERIOD) for user, trace, instant, _ in rows(train)}
    expected = {(u, t, i) for u, t, day in days for i in range(day * PERIOD, min((day + 1) * PERIOD, INSTANTS))}
    assert sorted((user, trace, instant) for user, trace, instant, _ in rows(whole)) == sorted(expected)
    assert rows(Traces.from_frame(whole.to_frame(), train.places, train.time_grid)) == rows(whole)
    for name in ("user", "trace", "instant", "place"):
        assert getattr(whole, name).dtype == np.int32


def test_a_period_without_events_stays_without(model):
    with_a_day_off = to_traces([(0, 0, 1, 2), (0, 0, 9, 3)], PLACES, GRID)
    whole = complete(model, with_a_day_off)
    assert whole.instant.tolist() == [0, 1, 2, 3, 8, 9, 10, 11]
    assert whole.place[[1, 5]].tolist() == [2, 3]


def test_random_completions_are_reproducible_and_each_is_of_its_own(train, model):
    first, again, other = (one_by_one(model, train, how="random", seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.place, again.place)
    assert (first.place != other.place).any()
    # As many periods, for the program that is compiled already: those of two users are traces of two others.
    frame, is_moved = train.to_frame(), train.user < 2
    moved = frame.assign(user=frame["user"] + 4 * is_moved, trace=frame["trace"] + 2 * is_moved)
    among_others = one_by_one(model, Traces.from_frame(moved, PLACES, GRID), how="random", seed=0)
    own, same = ({row for row in rows(each) if row[0] in (2, 3)} for each in (first, among_others))
    assert own == same
    n_whole = int((train.instant[train.periods().first] < 3 * PERIOD).sum())
    same_gaps = to_traces([(0, n // 3, n % 3 * PERIOD, 0) for n in range(n_whole)], PLACES, GRID)
    drawn = one_by_one(model, same_gaps, how="random", seed=0).place.reshape(-1, PERIOD)
    # More than there are traces: periods of a trace differ too.
    assert len(set(map(tuple, drawn.tolist()))) > -(-n_whole // 3)


def test_a_grid_that_ends_within_a_period_is_completed_as_far_as_it_goes(train, model):
    """What would come after the end has no say: the most probable three events, not the first three of four."""
    # As many traces as of the training users, for the program that is compiled already.
    n_traces = int((train.instant[train.periods().first] >= 12).sum())
    whole = one_by_one(model, to_traces([(0, trace, 12, 1) for trace in range(n_traces)], PLACES, GRID))
    assert whole.instant.tolist() == [12, 13, 14] * n_traces
    every = np.array([(1, second, third) for second in range(5) for third in range(5)])
    log_likelihood = step_log_probabilities(model.trace_model, np.zeros(len(every), int), every).sum(axis=1)
    assert whole.place.tolist() == every[log_likelihood.argmax()].tolist() * n_traces


@pytest.mark.parametrize("how", ["most-probable", "random"])
def test_what_is_impossible_stays_and_is_named_and_the_rest_is_completed(how):
    stays = to_traces([(u, 0, i, 0) for u in (7, 8) for i in range(PERIOD)], PLACES, GRID)
    # Nobody made the move to place 1.
    impossible = [(8, 3, 4, 0), (8, 3, 6, 1)]
    strange, model, said = to_traces([(7, 0, 0, 0), *impossible], PLACES, GRID), fit(stays, "sgd"), []
    whole = complete(model, strange, how=how, say=said.append)
    assert rows(whole) == {*((7, 0, i, 0) for i in range(PERIOD)), *impossible}
    assert len(said) == 1
    assert "1 of 2 pieces of traces, of 1 user," in said[0]
    assert "(first: user 8, trace 3, instant 6)" in said[0]
    with pytest.warns(UserWarning, match="1 of 2 pieces"):
        complete(model, strange, how=how)
    with pytest.raises(InputError, match="1 of 1 pieces"):
        complete(model, to_traces(impossible, PLACES, GRID), how=how)


def test_a_user_is_at_one_place_at_a_time(model):
    """Two events at instant 1, or two traces in the first period; `repeats="count"` makes both."""
    twice, beside = ([(0, 0, 1, 2), (0, 1, instant, 3), (1, 0, 1, 3)] for instant in (1, 2))
    with pytest.raises(
        InputError, match=r"one event of a user at an instant; found others .*\(1 row\).*--repeats first"
    ):
        complete(model, to_traces(twice, PLACES, GRID))
    with pytest.warns(UserWarning, match="1 of 3 pieces of traces share a period with another of their user"):
        complete(model, to_traces(beside, PLACES, GRID))
    assert complete(model, to_traces([(0, 0, 1, 2), (0, 1, 4, 3)], PLACES, GRID)).n_events == 2 * PERIOD


def test_strange_traces_are_refused(train, model):
    one_day = TimeGrid("2024-01-01T00:00:00", 60, np.arange(PERIOD))
    other_grid = to_traces([(0, 0, 0, 0), (0, 1, 0, 0)], PLACES, one_day)
    shorter = to_traces([(0, 0, 0, 0)], places_in_line(4), GRID)
    two_days = to_traces([(0, 0, 0, 0), (0, 0, 4, 0)], PLACES, GRID)
    assert complete(model, two_days).n_events == 2 * PERIOD
    assert one_by_one(model, other_grid).n_events == 2 * PERIOD
    with pytest.raises(InputError, match="place table"):
        complete(model, shorter)
    with pytest.raises(InputError, match="time grid"):
        complete(model, to_traces([(0, 0, 0, 0)], PLACES, TimeGrid("2024-01-01T00:00:00", 60, np.zeros(4, int))))
    with pytest.raises(InputError, match="that the model was trained on"):
        complete(model, to_traces([(99, 0, 0, 0)], PLACES, GRID))
    with pytest.raises(InputError, match=r"how as .*most-probable"):
        complete(model, other_grid, how="likely")


def at_first_known_place(
    keys: object, process: object, users: np.ndarray, known: np.ndarray, **options: object
) -> Completion:
    """Everybody is always at home; rows with other known places are impossible at the first of these."""
    del keys, process, users, options
    rows = np.arange(len(known))
    home = known[rows, (known != ABSENT).argmax(axis=1)][:, None]
    is_other = (known != ABSENT) & (known != home)
    impossible_at = np.where(is_other.any(axis=1), is_other.argmax(axis=1), ABSENT)
    return Completion(np.broadcast_to(home, known.shape), impossible_at)


@pytest.mark.parametrize("stand_in", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_person_who_remembers_has_one_home_in_all_periods(train, model, stand_in, monkeypatch):
    if stand_in:  # the filter takes long to compile
        monkeypatch.setattr(gaps, "complete_traces", at_first_known_place)
    arrays = random_arrays(n_places=5, n_users=6, period=PERIOD, n_slots=PERIOD, seed=1)
    # Everybody is always at home.
    arrays["role_first"][:], arrays["role_next"][:] = np.eye(3)[0], np.eye(3)[0]
    people = replace(model, trace_model=RememberingBridge.from_arrays(arrays))
    known = to_traces([(0, 0, 1, 2), (0, 0, 9, 2), (1, 0, 5, 4), (1, 1, 12, 3)], PLACES, GRID)
    for how in ("random", "most-probable"):
        whole = complete(people, known, how=how, seed=0)
        assert whole.instant.tolist() == [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14]
        assert whole.place.tolist() == [2] * 8 + [4] * 4 + [3] * 3
    moved = to_traces([(0, 0, 1, 2), (0, 0, 9, 3)], PLACES, GRID)
    with pytest.raises(InputError, match=r"too improbable .*instant 9\).*memory=.none"):
        complete(people, moved)
