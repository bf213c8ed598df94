"""The data itself: whole periods of each user, found by loops over dictionaries."""

from __future__ import annotations

import numpy as np
import pytest

from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from ppmtf_jax.privacy.plausible_deniability import plausible_deniability_test
from ppmtf_jax.synthesizers.gaps import complete
from ppmtf_jax.synthesizers.synthesis import fit, synthesize
from tests.support import minutes, places_in_line, random_traces, to_traces

PLACES, PERIOD = places_in_line(6), 4
DAYS = TimeGrid("2024-01-01T00:00:00", 60, np.tile(np.arange(PERIOD), 3), period=PERIOD)


def made(traces: Traces, traces_per_user: int = 1) -> list[list[list[int]]]:
    """Places of each trace of each user."""
    synthetic = synthesize(fit(traces, "training"), traces_per_user=traces_per_user, seed=0)
    return synthetic.place.reshape(traces.n_users, traces_per_user, -1).tolist()


def own_periods(traces: Traces) -> dict[int, list[list[int]]]:
    """Places of the complete periods of each user."""
    found: dict[int, dict[tuple[int, int], list[int]]] = {}
    for user, trace, instant, place in traces.to_frame().itertuples(index=False, name=None):
        found.setdefault(user, {}).setdefault((trace, instant // PERIOD), []).append(place)
    return {user: [each for each in periods.values() if len(each) == PERIOD] for user, periods in found.items()}


def test_one_complete_period_of_each_user_is_given_away_as_it_is():
    train = random_traces(0, range(70), PLACES, minutes(5))
    for own, places in zip(made(train, 2), train.place.reshape(70, 5).tolist(), strict=True):
        assert own == [places, places]
    assert fit(train, "training").summary() == [
        "these are the users' own traces, given away as they are: for comparison, never for release"
    ]


def test_of_several_periods_each_is_drawn_equally_often():
    train, n = random_traces(0, range(3), PLACES, DAYS, n_traces=2), 600
    for user, drawn in enumerate(made(train, n)):
        periods = own_periods(train)[user]
        assert len({tuple(each) for each in periods}) == 6
        often = [drawn.count(each) for each in periods]
        assert sum(often) == n
        # Each is binomial (n, 1 / 6): within five standard deviations.
        assert np.abs(np.array(often) - n / 6).max() < 5 * np.sqrt(n * (1 / 6) * (5 / 6))


def test_the_most_complete_periods_are_given_away():
    """User 0 has a whole day and one with three events, user 1 two days with two of four."""
    rows = [(0, 0, i, 1) for i in range(4)] + [(0, 0, i, 2) for i in (4, 5, 6)]
    rows += [(1, 0, 1, 3), (1, 0, 3, 4), (1, 5, 8, 5), (1, 5, 9, 0), (1, 0, 4, 0)]
    first, second = made(to_traces(rows, PLACES, DAYS), 50)
    assert first == [[1, 1, 1, 1]] * 50
    # Carried on from the event before, and back from the first one.
    assert {tuple(each) for each in second} == {(3, 3, 3, 4), (5, 0, 0, 0)}


def test_what_was_not_recorded_is_told():
    rows = [(0, 0, 0, 1), (0, 0, 2, 1), (0, 0, 3, 1), (1, 0, 0, 2)]
    summary = fit(to_traces(rows, PLACES, DAYS), "training").summary()
    assert len(summary) == 2
    assert "50.0 % of their events were not recorded" in summary[1]


def test_single_events_one_instant_and_a_grid_that_ends_within_a_period():
    assert made(to_traces([(0, 0, 2, 4)], PLACES, minutes(4))) == [[[4, 4, 4, 4]]]
    assert made(to_traces([(0, 0, 0, 4)], PLACES, minutes(1))) == [[[4]]]
    cut = TimeGrid("2024-01-01T00:00:00", 60, np.resize(np.arange(PERIOD), 6), period=PERIOD)
    assert made(to_traces([(0, 0, 4, 1), (0, 0, 5, 2)], PLACES, cut)) == [[[1, 2, 2, 2]]]


def test_it_is_never_released_and_says_why():
    train = random_traces(0, range(5), PLACES, minutes(3))
    model = fit(train, "training")
    with pytest.raises(InputError, match="a model whose traces have a likelihood"):
        plausible_deniability_test(model, synthesize(model), k=1)
    with pytest.raises(InputError, match="a model whose traces have a likelihood"):
        complete(model, train)
    assert "EVERYTHING" in model.claims().not_protected[0]


def test_users_without_a_period_are_refused():
    model = fit(random_traces(0, range(5), PLACES, DAYS, keep=0.7), "training", seed=0)
    arrays = model.trace_model.to_arrays()
    arrays["period_start"] = np.append([0, 0], arrays["period_start"][2:])
    with pytest.raises(ValueError, match="users without a period"):
        type(model.trace_model).from_arrays(arrays)
