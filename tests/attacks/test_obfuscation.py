"""Deletion of places, against every way to delete them."""

import itertools

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.attacks.estimators.base import TransitionMatrices, estimate_transitions
from ppmtf_jax.attacks.obfuscation import random_deletions, worst_deletions
from ppmtf_jax.attacks.trace_scores import score_traces
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from tests.support import minutes, places_in_line, random_traces

LENGTH = 7


def some_traces(n_users: int, n_traces: int, seed: int, *, keep: float = 1.0) -> Traces:
    return random_traces(seed, range(n_users), places_in_line(4), minutes(LENGTH), n_traces=n_traces, keep=keep)


def own_scores(traces: Traces, matrices: TransitionMatrices, **how) -> dict[tuple[int, int], float]:
    """Log-probability of each trace under its own user's chain."""
    scores = score_traces(traces, matrices, **how)
    own = scores.own[np.arange(len(scores.truth)), scores.truth]
    return dict(zip(zip(scores.user_ids.tolist(), scores.number.tolist(), strict=True), own.tolist(), strict=True))


def least_by_trying_all(traces: Traces, matrices: TransitionMatrices, n_deleted: int, **how) -> dict:
    """Smallest log-probability of each trace over all ways to delete places, each way a trace of its own."""
    frame, ways, key_of = traces.to_frame(), [], []
    for key, events in frame.groupby(["user", "trace"]):
        for kept in itertools.combinations(range(len(events)), max(1, len(events) - n_deleted)):
            ways.append(events.iloc[list(kept)].assign(trace=len(ways)))
            key_of.append(key)
    scores = own_scores(Traces.from_frame(pd.concat(ways), traces.places, traces.time_grid), matrices, **how)
    least: dict[tuple[int, int], float] = {}
    for (_, way), value in scores.items():
        least[key_of[way]] = min(least.get(key_of[way], np.inf), value)
    return least


@pytest.mark.parametrize(
    ("n_deleted", "how"),
    [(3, {}), (3, {"max_gap": 2}), (3, {"first_place": "uniform"}), (LENGTH + 3, {})],
)
def test_worst_deletions_are_the_worst_of_all(n_deleted: int, how: dict) -> None:
    matrices = estimate_transitions(some_traces(3, 2, seed=1))
    traces = some_traces(3, 2, seed=2, keep=0.75)
    keep = worst_deletions(traces, matrices, n_deleted, **how)
    left = own_scores(traces.select_events(keep), matrices, **how)
    assert left == pytest.approx(least_by_trying_all(traces, matrices, n_deleted, **how), rel=1e-9)


def test_random_deletions_are_not_the_worst() -> None:
    matrices, traces = estimate_transitions(some_traces(3, 2, seed=1)), some_traces(3, 2, seed=2)
    worst = own_scores(traces.select_events(worst_deletions(traces, matrices, 3)), matrices)
    at_random = own_scores(traces.select_events(random_deletions(traces, 3, seed=0)), matrices)
    assert all(at_random[key] >= worst[key] - 1e-9 for key in worst)
    assert sum(at_random.values()) > sum(worst.values()) + 1


def test_as_many_places_are_deleted_of_each_trace() -> None:
    traces = some_traces(4, 3, seed=3)
    for keep in (random_deletions(traces, 2, seed=0), worst_deletions(traces, estimate_transitions(traces), 2)):
        assert np.bincount(traces.trace_of_event()[keep]).tolist() == [LENGTH - 2] * 12
    assert np.bincount(traces.trace_of_event()[random_deletions(traces, 99, seed=0)]).tolist() == [1] * 12


def test_each_place_is_deleted_as_often() -> None:
    traces = some_traces(400, 10, seed=4)
    deleted = np.bincount(traces.instant[~random_deletions(traces, 2, seed=5)], minlength=LENGTH)
    n, p = 4_000, 2 / LENGTH
    assert np.abs(deleted - n * p).max() < 5 * np.sqrt(n * p * (1 - p))


def test_strangers_traces_are_left_whole_and_negative_numbers_refused() -> None:
    traces = some_traces(4, 2, seed=3)
    matrices = estimate_transitions(traces.select_users(np.array([0, 2])))
    keep = worst_deletions(traces, matrices, 2)
    assert keep[np.isin(traces.user, [1, 3])].all()
    assert (~keep).sum() == 2 * 2 * 2
    for delete in (lambda: random_deletions(traces, -1, seed=0), lambda: worst_deletions(traces, matrices, -1)):
        with pytest.raises(InputError, match="at least 0"):
            delete()
