"""Statistics of synthetic traces against loops, and scores calibrated on shadow models."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from ppmtf_jax.attacks.membership import shadow_statistics
from ppmtf_jax.attacks.membership.density_ratio import log_density_per_event
from ppmtf_jax.attacks.membership.shadow_statistics import PSEUDO_COUNT, STATISTICS, Shadows, statistics_of
from ppmtf_jax.attacks.roc import Roc
from ppmtf_jax.attacks.scoring import windows_of
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from tests.attacks.loops import days, error_of_auc
from tests.support import minutes, places_in_line, random_traces, to_traces

N_USERS, N_SHADOWS, N_STATISTICS = 100, 8, 6


def halves(rng: np.random.Generator, n_models: int = N_SHADOWS, n_users: int = N_USERS) -> np.ndarray:
    """Half of the users in a model, and the others in the next."""
    half = rng.permuted(np.tile(np.arange(n_users) % 2 == 0, (n_models // 2, 1)), axis=1)
    return np.stack([half, ~half], axis=1).reshape(n_models, n_users)


def drawn(rng: np.random.Generator, effect: list[float], n_models: int = N_SHADOWS) -> Shadows:
    """Each user's statistics are around a level of their own, and with their data so many spreads higher."""
    is_in, size = halves(rng, n_models), (len(effect), N_USERS)
    level, spread = 10 * rng.normal(size=size), rng.uniform(0.5, 2, size)
    noise = rng.normal(size=(n_models, *size)) + np.array(effect)[:, None] * is_in[:, None]
    return Shadows(level + spread * noise, is_in)


def auc(scores: np.ndarray, is_in: np.ndarray) -> float:
    return Roc.of(scores[is_in], scores[~is_in]).auc


def split(shadows: Shadows) -> tuple[Shadows, np.ndarray, np.ndarray]:
    """All but the last two as shadow models, and the last but one as what was released."""
    return Shadows(shadows.statistics[:-2], shadows.is_in[:-2]), shadows.statistics[-2], shadows.is_in[-2]


def null(rng: np.random.Generator) -> tuple[Shadows, np.ndarray, np.ndarray]:
    return split(drawn(rng, [0.0] * N_STATISTICS, N_SHADOWS + 2))


N_EXPERIMENTS = 40
ERROR = error_of_auc(N_USERS // 2, N_USERS // 2) / math.sqrt(N_EXPERIMENTS)
"""Standard error of a mean of so many areas under the curve by chance, each a Mann-Whitney statistic."""


def test_where_data_have_no_effect_nothing_is_found() -> None:
    """On average, within five standard errors. Weights that are learned on the target find something: a planted bug."""
    rng, found = np.random.default_rng(0), []
    for _ in range(N_EXPERIMENTS):
        shadows, seen, is_in = null(rng)
        features = shadow_statistics.features_of(seen, shadows)
        on_target = shadow_statistics.learned(features[None], is_in[None])
        found.append([auc(shadows.score(seen), is_in), auc(on_target(features), is_in)])
    fair, cheating = np.mean(found, axis=0)
    assert abs(fair - 0.5) < 5 * ERROR
    assert cheating - 0.5 > 5 * ERROR


def test_what_tells_is_learned_from_the_shadow_models() -> None:
    """Of one statistic in six that is one spread higher: nearly all that the best possible attack finds.

    That knows level and spread of each user, and has an area of Phi(1 / sqrt 2) = .760 under its curve. It may be any
    of the six, and an attack that trusts all of them alike finds less: that of a sum is at most Phi(1 / sqrt 12) = .61.
    """
    rng, found = np.random.default_rng(2), []
    for number in range(12):
        effect = [0.0] * N_STATISTICS
        effect[number % N_STATISTICS] = 1.0
        shadows, seen, is_in = split(drawn(rng, effect, 18))
        features = shadow_statistics.features_of(seen, shadows)
        found.append([auc(shadows.score(seen), is_in), auc(features[:N_STATISTICS].sum(axis=0), is_in)])
    learned, alike = np.mean(found, axis=0)
    # The spread of an area of .76 is below that by chance, of which five errors are .084.
    assert learned > 0.76 - 5 * ERROR * math.sqrt(N_EXPERIMENTS / 12)
    assert alike < 0.61 + 5 * ERROR * math.sqrt(N_EXPERIMENTS / 12)
    assert learned > alike + 0.05


def test_users_are_held_against_their_own_level() -> None:
    """Levels differ ten times as much as data do: without calibration nearly nothing would be found."""
    shadows, seen, is_in = split(drawn(np.random.default_rng(3), [2.0], 18))
    assert auc(shadows.score(seen), is_in) > 0.85
    assert auc(seen[0], is_in) < 0.65


def test_features_by_hand() -> None:
    """One user with 4 and 6 in models with them and 1 and 1 without; another with 0 and 2, and 2 and 2."""
    statistics = np.array([[4.0, 2.0], [1.0, 0.0], [6.0, 2.0], [1.0, 2.0]])[:, None]
    is_in = np.array([[True, False], [False, True], [True, False], [False, True]])
    found = shadow_statistics.features_of(np.array([[5.0, 1.0]]), Shadows(statistics, is_in))
    # Squares 1 + 1 + 0 + 0 of both, by two free models: a variance of 1, usual too.
    assert found == pytest.approx(np.array([[5 - 3, 1 - 1.5], [(5 - 3) * 4, (1 - 1.5) * (1 - 2)]]))
    # Of three times the spread: 9 weighs 2 models, and the usual (9 + 1) / 2 weighs 4.
    statistics[:, 0, 0] = [2.0, 1.0, 8.0, 1.0]
    found = shadow_statistics.features_of(np.array([[5.0, 1.0]]), Shadows(statistics, is_in))
    assert found[0] == pytest.approx([2 / math.sqrt((2 * 9 + 4 * 5) / 6), -0.5 / math.sqrt((2 * 1 + 4 * 5) / 6)])


@pytest.mark.parametrize("n_shadows", [4, 6])
def test_few_shadow_models_are_refused_before_their_spread_is_undefined(n_shadows: int) -> None:
    """Of four models, the weights would be learned with the help of two: no spread can be computed from them."""
    shadows = drawn(np.random.default_rng(5), [2.0], n_shadows)
    if n_shadows < shadow_statistics.MIN_SHADOWS:
        with pytest.raises(InputError, match="at least 6 models"):
            shadows.score(shadows.statistics[0])
    else:
        assert np.isfinite(shadows.score(shadows.statistics[0])).all()


def test_a_statistic_that_never_changes_says_nothing() -> None:
    shadows, seen, is_in = split(drawn(np.random.default_rng(4), [2.0, 0.0], 18))
    shadows.statistics[:, 1] = 0.1
    scores = [shadows.score(np.stack([seen[0], np.full(N_USERS, value)])) for value in (0.1, 7.0)]
    assert np.isfinite(scores).all()
    assert np.array_equal(*scores)
    assert auc(scores[0], is_in) > 0.85


N_PLACES = 5
# Three periods of four instants.
GRID = TimeGrid("2024-01-01T00:00:00", 3600, np.tile(np.arange(4, dtype=np.int32), 3), period=4)


def traces_of(seed: int, users: range) -> Traces:
    return random_traces(seed, users, places_in_line(N_PLACES), GRID, n_traces=2, keep=0.7, n_visited=4)


def share(count: int, total: int) -> float:
    return math.log((count + PSEUDO_COUNT) / (total + PSEUDO_COUNT * N_PLACES))


def by_loops(users: Traces, made: Traces, *, reach: int = 1) -> dict[str, list[float]]:
    near, steps = Counter(), Counter()
    model = [day for _, day in days(made)]
    for day in model:
        near.update((i + d, b) for i, b in day.items() for d in range(-reach, reach + 1))
        steps.update((day[i - 1], b) for i, b in day.items() if i - 1 in day)
    both = Counter(pair for day in model for pair in combinations(sorted(set(day.values())), 2))
    values: dict[str, dict[int, list[float]]] = {name: {} for name in ("visits", "moves", "pairs")}
    for user, day in days(users):
        for i, b in day.items():
            total = sum(n for (instant, _), n in near.items() if instant == i)
            values["visits"].setdefault(user, []).append(share(near[i, b], total))
            if i - 1 in day and day[i - 1] != b:
                total = sum(n for (a, _), n in steps.items() if a == day[i - 1])
                values["moves"].setdefault(user, []).append(share(steps[day[i - 1], b], total))
        for pair in combinations(sorted(set(day.values())), 2):
            values["pairs"].setdefault(user, []).append(math.log(both[pair] / PSEUDO_COUNT + 1))
    means = {name: [of.get(user, [0.0]) for user in range(users.n_users)] for name, of in values.items()}
    return {name: [sum(each) / len(each) for each in of] for name, of in means.items()}


def test_statistics_equal_those_of_loops() -> None:
    users, made = traces_of(0, range(6)), traces_of(10, range(4))
    windows, of_made = windows_of(users=users, made=made)
    found = dict(zip(STATISTICS, statistics_of(windows, of_made), strict=True))
    expected = by_loops(users, made)
    for name, values in expected.items():
        assert found[name] == pytest.approx(values), name
    assert found["visits"] != pytest.approx(by_loops(users, made, reach=0)["visits"], abs=1e-3)
    assert np.array_equal(found["kernel"], log_density_per_event(windows, of_made, "kernel"))
    assert np.array_equal(found["chain"], log_density_per_event(windows, of_made, "chain"))


def test_odd_users_have_finite_statistics() -> None:
    """Who never moves, is at places that nobody else is at, or has one event; and the same of the synthetic traces."""
    places, grid = places_in_line(4), minutes(4)
    still = to_traces([(u, 0, u, u) for u in range(3)], places, grid)
    elsewhere = to_traces([(u, 0, i, 3) for u in range(3) for i in range(4)], places, grid)
    for users, made in ((still, still), (still, elsewhere), (elsewhere, still)):
        found = dict(zip(STATISTICS, statistics_of(*windows_of(users=users, made=made)), strict=True))
        assert np.isfinite(list(found.values())).all()
        assert not found["moves"].any()
        assert not found["pairs"].any()


def test_of_many_windows_some_are_held_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second one of 8, beside those of six users, where 24 pairs are the most."""
    places = places_in_line(N_PLACES)
    users, made = (random_traces(seed, range(n), places, minutes(4)) for seed, n in ((0, 6), (1, 8)))
    monkeypatch.setattr(shadow_statistics, "COMPARED_WINDOWS", 24)
    found = STATISTICS["kernel"](*windows_of(users=users, made=made))
    half = made.select_users(np.arange(0, 8, 2))
    windows, of_half = windows_of(users=users, half=half)
    assert found == pytest.approx(log_density_per_event(windows, of_half, "kernel"))
