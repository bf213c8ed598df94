"""Inference: what can be guessed about a person from synthetic traces and half of this person's trace.

One of the three questions of the Article 29 Working Party (Opinion 05/2014) about anonymized data, beside singling out
and linkability. The attacker knows the later half of the events of each window of a person, finds the synthetic window
that shares most with them (as in `copies`), and reads the earlier half off this window: at each hidden event, the place
of the synthetic event that is nearest in time. Much can be guessed about anybody, because people are alike. So the
number that counts is how much more often a guess is right about training users than about test users.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.attacks.copies import SEED, nearest, surprise, windows_of_some
from ppmtf_jax.attacks.registry import register_attack
from ppmtf_jax.attacks.scoring import joined
from ppmtf_jax.data.comparable import check_same_places
from ppmtf_jax.data.measurement import Comparison, Interpretation, MetricInfo, NoSettings
from ppmtf_jax.data.runs import rank_in_run
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import NO_WINDOWS, Windows, same_period
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.privacy.limits import INFERRED, Judgement, people_of_both

GUESSES = {
    "home": "Home: the place with most hidden events",
    "second": "Second place: the place with the second most hidden events",
    "rest": "The place of each hidden event",
}
"""What is guessed about a person."""


@dataclass(frozen=True, eq=False)
class Guessed:
    """Share of right guesses about each training user and each test user, from 0 to 1."""

    training: Float[np.ndarray, " user"]
    test: Float[np.ndarray, " other"]

    @property
    def people(self) -> tuple[int, int]:
        """Number of training users and of test users."""
        return len(self.training), len(self.test)

    @property
    def difference(self) -> float:
        """How much more often a guess is right about training users; NaN if one of the sets has nobody."""
        return float(self.training.mean() - self.test.mean()) if all(self.people) else math.nan

    def judgement(self) -> Judgement:
        """Judge the difference; the worst of three guesses counts."""
        return INFERRED.judge(self.difference, self.people, n_attacks=len(GUESSES))

    def to_dict(self) -> dict[str, Any]:
        """All numbers for JSON, none of them of a single user."""
        judged = self.judgement()
        return {"difference": self.difference, "low": judged.low, "high": judged.high}


def infer(released: Traces, train: Traces, test: Traces, *, seed: int = SEED) -> dict[str, Guessed]:
    """Guess what the attacker does not know about training users and about test users, see `GUESSES`.

    At most 4,000 windows of each set are attacked, those of users drawn at random. Raises `InputError`: the place
    tables or the periods of the grids differ, or a set has no window with two events.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=200, n_days=1, seed=0).traces.split_users(0.5, seed=0)
    >>> guessed = infer(train, train, test)
    >>> guessed["second"].difference > 0.3, guessed["second"].judgement().status.word
    (True, 'Poor')
    """
    check_same_places(released=released, train=train, test=test)
    found = _infer(Comparison(released, train, test, released.time_grid.n_instants), seed)
    if found is None:
        raise InputError("inference", [Problem("windows of two events in each set, on grids of one period", "none")])
    return found


def _infer(comparison: Comparison, seed: int) -> dict[str, Guessed] | None:
    """Guess about both sets; None if there is nothing to guess from."""
    length, sets = comparison.window_length, (comparison.train, comparison.test)
    same = all(same_period(each.time_grid, comparison.traces.time_grid) for each in sets)
    if not same or comparison.traces.time_grid.n_instants < length:
        return None
    train, test = (comparison.statistic(windows_of_some, each, length, seed) for each in sets)
    released = Windows.of(comparison.traces, length)
    if not (train.n_windows and test.n_windows and released.n_windows):
        return None
    # 1. For each window, the synthetic one that shares most with its later half.
    real = joined(train, test)
    is_known = rank_in_run(real.window) >= (real.events_per_window() // 2)[real.window]
    arrivals = real.select_events(is_known).arrivals()
    found = nearest(arrivals, released, surprise(arrivals))
    # 2. Its places at the hidden events; -1 where nothing is shared.
    hidden = real.select_events(~is_known)
    guess = np.where(
        found.weight[hidden.window] > 0, _places_at(released, found.released[hidden.window], hidden.phase), -1
    )
    # 3. The shares of right guesses of each user.
    users, user = np.unique(hidden.user[hidden.window], return_inverse=True)
    is_test = users > train.user.max()
    true, guessed = (_favourites(user, place, len(users)) for place in (hidden.place, guess))
    right = {
        "home": (true[0] == guessed[0]).astype(float),
        "second": np.where(true[1] >= 0, true[1] == guessed[1], np.nan),
        "rest": np.bincount(user, guess == hidden.place) / np.bincount(user),
    }
    kept = {name: np.isfinite(share) for name, share in right.items()}
    return {name: Guessed(share[~is_test & kept[name]], share[is_test & kept[name]]) for name, share in right.items()}


def _places_at(
    released: Windows, window: Int[np.ndarray, " event"], phase: Int[np.ndarray, " event"]
) -> Int[np.ndarray, " event"]:
    """Place of the event of a released window that is nearest to an instant, for pairs of both."""
    length = 2 * released.time_grid.n_instants
    # Windows are twice as far apart as they are long, so that the nearest event is in the window.
    key, asked = (of.astype(np.int64) * length + at for of, at in ((released.window, released.phase), (window, phase)))
    after = np.minimum(np.searchsorted(key, asked), len(key) - 1)
    before = np.maximum(after - 1, 0)
    return released.place[np.where(np.abs(key[before] - asked) <= np.abs(key[after] - asked), before, after)]


def _favourites(
    user: Int[np.ndarray, " event"], place: Int[np.ndarray, " event"], n_users: int
) -> Int[np.ndarray, "2 user"]:
    """The two places where each user has most events, the lower index first in a tie; -1 if there is none."""
    cells, count = np.unique(np.stack([user, place]), axis=1, return_counts=True)
    order = np.lexsort((cells[1], -count, cells[0]))
    user, place = cells[:, order]
    rank = rank_in_run(user)
    found = np.full((2, n_users), -1)
    found[rank[rank < 2], user[rank < 2]] = place[rank < 2]
    return found


def _measure(comparison: Comparison, settings: NoSettings) -> list[float]:
    found = _infer(comparison, SEED)
    return [math.nan] * len(GUESSES) if found is None else [found[name].difference for name in GUESSES]


def _read(comparison: Comparison, settings: NoSettings) -> list[Interpretation]:
    found = _infer(comparison, SEED) or {}
    people = [found[name].people if name in found else (0, 0) for name in GUESSES]
    alarms = [INFERRED.alarm(people_of_both(*both)) if all(both) else math.inf for both in people]
    return [Interpretation(alarm=alarm) for alarm in alarms]


register_attack(
    "inference",
    *(
        MetricInfo(
            f"inferred_{name}",
            title,
            f"How much more often {what} is guessed right for training users than for test users, from the later half "
            "of their traces and the nearest synthetic trace.",
            "difference of shares of people",
            "lower",
            "near 0",
            NO_WINDOWS,
        )
        for name, title, what in (
            ("home", "Home inferred", "a person's home"),
            ("second", "Second place inferred", "a person's second place"),
            ("rest", "Rest inferred", "the place of a hidden event"),
        )
    ),
    measure=_measure,
    reading=_read,
)
