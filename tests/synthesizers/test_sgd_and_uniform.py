"""SGD against dense maximum-likelihood matrices counted by a loop, and Uniform.

`tests/trace_models/test_agreement.py` compares what they draw with what they score.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from ppmtf_jax.synthesizers.synthesis import fit, synthesize
from ppmtf_jax.synthesizers.systems import sgd
from ppmtf_jax.synthesizers.systems.sgd import SGDSettings
from ppmtf_jax.trace_models.base import ScoredTraceModel

USERS, PLACES, PERIOD, DAYS = 4, 5, 4, 3
SLOTS = np.array([1, 0, 0, 1])


@pytest.fixture(scope="module")
def train():
    """Three days of four instants; two thirds of the events are there, place 4 is never left and slot 1 comes first."""
    rng = np.random.default_rng(0)
    rows = [
        (u, t, i, int(rng.integers(PLACES - 1))) for u in range(USERS) for t in range(2) for i in range(PERIOD * DAYS)
    ]
    frame = pd.DataFrame(rows, columns=["user", "trace", "instant", "place"])
    frame = frame[rng.random(len(frame)) < 0.66]
    # User 3 has no event at the second instant of any day.
    frame = frame[(frame.user != 3) | (frame.instant % PERIOD != 1)]
    places = PlaceTable(np.arange(PLACES), np.linspace(35, 36, PLACES), np.linspace(139, 140, PLACES))
    grid = TimeGrid("2024-01-01T00:00:00", 60, np.tile(SLOTS, DAYS), period=PERIOD)
    return Traces.from_frame(frame, places, grid)


def dense_chain(train: Traces) -> tuple[np.ndarray, np.ndarray]:
    """First distribution and one matrix for each slot of arrival."""
    events = list(train.to_frame().itertuples(index=False, name=None))
    place_at = {(u, t, i): p for u, t, i, p in events}
    first, count = np.zeros(PLACES), np.zeros((2, PLACES, PLACES))
    for (u, t, i), p in place_at.items():
        if SLOTS[i % PERIOD] == SLOTS[0]:
            first[p] += 1
        if (u, t, i - 1) in place_at:
            count[SLOTS[i % PERIOD], place_at[u, t, i - 1], p] += 1
    for row in count.reshape(-1, PLACES):
        row[:] = row / row.sum() if row.sum() else 1 / PLACES
    return first / first.sum(), count


def copied_events(train: Traces, n_copied: int) -> dict[tuple[int, int], int]:
    """(user, instant of the day) -> place of the earliest such event of the user."""
    copied = {}
    for u, _, i, p in train.to_frame().itertuples(index=False, name=None):
        if i % PERIOD < n_copied:
            copied.setdefault((u, i % PERIOD), p)
    return copied


@jax.jit
def log_probabilities(model: ScoredTraceModel) -> tuple[jax.Array, jax.Array]:
    """Of each first place, shape (users, places), and of each step, shape (users, instants, places, places)."""
    cache, every = model.user_cache(jnp.arange(USERS)), jnp.arange(PLACES)
    over_firsts = jax.vmap(jax.vmap(model.log_first, (None, 0)), (-1, None))
    over_places = jax.vmap(jax.vmap(model.log_next, (None, None, None, 0)), (None, None, 0, None))
    over_steps = jax.vmap(jax.vmap(over_places, (None, 0, None, None)), (-1, None, None, None))
    return over_firsts(cache, every), over_steps(cache, jnp.arange(1, PERIOD), every, every)


def all_probabilities(model: ScoredTraceModel) -> tuple[np.ndarray, np.ndarray]:
    first, step = log_probabilities(model)
    return np.exp(first), np.exp(step)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("n_copied", [0, 2, 4, 99])
def test_log_probabilities_are_those_of_the_dense_matrices(train, n_copied):
    fitted = fit(train, "sgd", SGDSettings(n_copied))
    assert fitted.time_grid.n_instants == PERIOD
    first, count = dense_chain(train)
    copied = copied_events(train, n_copied)
    for user, (ours_first, ours_step) in enumerate(zip(*all_probabilities(fitted.trace_model), strict=True)):
        for instant in range(PERIOD):
            expected = first if instant == 0 else count[SLOTS[instant]]
            if (user, instant) in copied:
                expected = np.broadcast_to(np.arange(PLACES) == copied[user, instant], expected.shape).astype(float)
            ours = ours_first if instant == 0 else ours_step[instant - 1]
            np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=0)
    assert ((3, 1) in copied) is False
    assert (n_copied == 0) == (not copied)


def test_a_model_with_longer_axes_draws_the_same_traces(train):
    model = fit(train, "sgd", SGDSettings(1)).trace_model
    longer = model.rounded()
    assert len(longer.next_place) > len(model.next_place)
    assert (np.diff(longer.count_before) >= 0).all()  # a draw searches by halves
    keys = jax.random.split(jax.random.key(0), 40)
    traces = [
        jax.vmap(jax.vmap(each.sample_trace, (None, 0, None)), (0, None, None))(keys, jnp.arange(USERS), PERIOD)
        for each in (model, longer)
    ]
    np.testing.assert_array_equal(*traces)


def with_equal_copies(train: Traces) -> Traces:
    """User 2 begins every day where user 0 does, user 3 has nothing at the second instant."""
    frame = train.to_frame()
    of_user_0 = frame[frame.user == 0]
    return Traces.from_frame(
        pd.concat([frame[frame.user != 2], of_user_0.assign(user=2)]), train.places, train.time_grid
    )


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("n_copied", [0, 1, 2, 4])
def test_classes_are_the_users_with_the_same_copied_events(train, n_copied):
    train = with_equal_copies(train)
    model = fit(train, "sgd", SGDSettings(n_copied)).trace_model
    copied = copied_events(train, n_copied)
    rows = [[copied.get((user, instant)) for instant in range(n_copied)] for user in range(USERS)]
    classes = model.user_classes(USERS)
    np.testing.assert_array_equal(classes[:, None] == classes, [[a == b for b in rows] for a in rows])
    assert classes[0] == classes[2]
    assert len(set(classes.tolist())) == (1 if n_copied == 0 else len({tuple(row) for row in rows}))
    twin = [np.flatnonzero(classes == own)[0] for own in classes]
    for ours in all_probabilities(model):
        np.testing.assert_array_equal(ours, ours[twin])
    np.testing.assert_array_equal(model.user_classes(1), [0])


def test_events_are_copied_where_there_are_any(train):
    synthetic = synthesize(fit(train, "sgd", SGDSettings(3)), traces_per_user=40, seed=1)
    place = synthetic.place.reshape(USERS, 40, PERIOD)
    copied = copied_events(train, 3)
    for (user, instant), where in copied.items():
        assert (place[user, :, instant] == where).all()
    assert len(set(place[3, :, 1])) > 1
    assert len({tuple(trace) for trace in place[0].tolist()}) > 1


def test_traces_without_any_transition(train):
    """Single events: every place is equally probable after the first."""
    lonely = train.select_users(np.arange(USERS))
    frame = lonely.to_frame()
    frame = frame[frame.instant % 2 == 0]
    fitted = fit(Traces.from_frame(frame, train.places, train.time_grid), "sgd")
    step = all_probabilities(fitted.trace_model)[1]
    np.testing.assert_allclose(step, 1 / PLACES, rtol=1e-6)


def test_more_events_than_are_counted_are_refused(train, monkeypatch):
    """Running sums of 32 bits would begin again at -2^31."""
    most = max(int(train.is_step().sum()), int((train.slot == train.slot[train.instant == 0][0]).sum()))
    monkeypatch.setattr(sgd, "INT32_MAX", most - 1)
    with pytest.raises(InputError, match=f"at most {most - 1} events; found {most}"):
        fit(train, "sgd", seed=0)
    monkeypatch.setattr(sgd, "INT32_MAX", most)
    fit(train, "sgd", seed=0)


def test_uniform(train):
    fitted = fit(train, "uniform")
    first, step = all_probabilities(fitted.trace_model)
    np.testing.assert_allclose(first, 1 / PLACES, rtol=1e-6)
    np.testing.assert_allclose(step, 1 / PLACES, rtol=1e-6)
    assert len(set(fitted.trace_model.user_classes(USERS))) == 1
