"""Densities against loops; the density-ratio attack and the nearest trace on copies and on traces of strangers."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ppmtf_jax.attacks.membership import infer_membership
from ppmtf_jax.attacks.membership.density_ratio import (
    CONCENTRATION,
    Density,
    DensityRatioSettings,
    density_ratios,
    log_density_per_event,
)
from ppmtf_jax.attacks.registry import ATTACKS
from ppmtf_jax.attacks.scoring import windows_of
from ppmtf_jax.data.measurement import Comparison
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from tests.attacks.loops import days, error_of_auc
from tests.support import minutes, places_in_line, random_traces, to_traces

DENSITIES: tuple[Density, ...] = ("chain", "kernel")
N_MEMBERS, N_TEST = 200, 200


def traces_of(seed: int, users: range, n_traces: int = 1) -> Traces:
    return random_traces(seed, users, places_in_line(30), minutes(10), n_traces=n_traces)


@pytest.fixture(scope="module")
def real() -> tuple[Traces, Traces]:
    return traces_of(0, range(N_MEMBERS)), traces_of(1, range(1000, 1000 + N_TEST))


@pytest.mark.parametrize("density", DENSITIES)
def test_copies_give_their_users_away_and_strangers_nobody(real: tuple[Traces, Traces], density: Density) -> None:
    train, test = real
    assert infer_membership(train, train, test, "density_ratio", density=density).roc.auc > 0.99
    strangers = traces_of(2, range(5000, 5200))
    tolerance = 5 * error_of_auc(N_MEMBERS, N_TEST // 2)
    settings = DensityRatioSettings(density=density)
    assert abs(density_ratios(strangers, train, test, settings).roc.auc - 0.5) < tolerance
    # Copies of half of the members among them are noticed.
    leaked = replace(strangers, place=np.append(train.place[:1000], strangers.place[1000:]))
    assert density_ratios(leaked, train, test, settings).roc.auc - 0.5 > tolerance


def test_reference_users_are_not_attacked_and_drawn_by_the_seed(real: tuple[Traces, Traces]) -> None:
    train, test = real
    attacked = [density_ratios(train, train, test, seed=seed).other_ids for seed in (0, 0, 1)]
    assert len(attacked[0]) == N_TEST // 2
    assert np.array_equal(attacked[0], attacked[1])
    assert not np.array_equal(attacked[0], attacked[2])
    few = density_ratios(train, train, test, DensityRatioSettings(reference_fraction=0.001))
    assert len(few.other_ids) == N_TEST - 1


@pytest.mark.parametrize("density", DENSITIES)
def test_odd_users_are_scored(density: Density) -> None:
    """Without a step, always at one place, with one event, or of whom nothing was released."""
    places, grid = places_in_line(5), minutes(6)
    walks = {
        0: {0: 1, 2: 3, 4: 0},
        1: dict.fromkeys(range(6), 4),
        2: {3: 2},
        3: {i: i % 5 for i in range(6)},
    }
    train = to_traces([(u, 0, i, p) for u, walk in walks.items() for i, p in walk.items()], places, grid)
    test = random_traces(0, range(10, 14), places, grid)
    released = train.select_users(np.array([0, 1, 2]))
    scores = density_ratios(released, train, test, DensityRatioSettings(density=density))
    assert scores.members.shape == (1, 4)
    assert np.isfinite(scores.members).all()
    assert np.isfinite(scores.others).all()
    assert scores.members[0, 3] < scores.members[0, :3].min()


def test_what_cannot_be_attacked_is_refused(real: tuple[Traces, Traces]) -> None:
    train, test = real
    with pytest.raises(InputError, match=r"two test users.*found one"):
        density_ratios(train, train, test.select_users(np.array([0])))
    with pytest.raises(InputError, match="200 of 200 test users"):
        infer_membership(train, train, train)
    elsewhere = random_traces(0, range(3), places_in_line(13), minutes(10))
    with pytest.raises(InputError, match="the same place table"):
        density_ratios(elsewhere, train, test)
    with pytest.raises(InputError, match="likelihood_ratio, density_ratio, nearest, shadow_models; found 'domias'"):
        infer_membership(train, train, test, "domias")
    with pytest.raises(InputError, match=r"(?s)'chain' or 'kernel'; found 'chains'.*reference_fraction as a number"):
        infer_membership(train, train, test, density="chains", reference_fraction=1.0)


def test_the_evaluation_has_the_area_under_the_curve(real: tuple[Traces, Traces]) -> None:
    train, test = real
    attack, settings = ATTACKS["density_ratio"], DensityRatioSettings()
    comparison = Comparison(train, train, test, train.time_grid.period)
    assert attack.measure(comparison, settings) == [density_ratios(train, train, test).roc.auc]
    assert attack.reading is not None
    [reading] = attack.reading(comparison, settings)
    # One limit: the largest area whose 95 % interval is still below .65, or that is a guess.
    by_chance = 1.96 * error_of_auc(N_MEMBERS, N_TEST // 2)
    assert reading.references == {}
    assert reading.alarm == pytest.approx(max(0.65 - by_chance, 0.5 + by_chance), abs=1e-3)
    alone = Comparison(train, train, test.select_users(np.array([0])), train.time_grid.period)
    assert math.isnan(attack.measure(alone, settings)[0])


N_PLACES = 5
# Three periods of four instants in three slots.
GRID = TimeGrid("2024-01-01T00:00:00", 3600, np.tile(np.array([0, 0, 1, 2], np.int32), 3), period=4)
STRAY = 0.01


def traces_of_density(seed: int, users: range, *, n_traces: int = 2, keep: float = 0.7) -> Traces:
    return random_traces(seed, users, places_in_line(N_PLACES), GRID, n_traces=n_traces, keep=keep, n_visited=4)


def log_density(traces: Traces, model: Traces, density: Density = "chain", **others: float) -> np.ndarray:
    windows, of_model = windows_of(traces=traces, model=model)
    return log_density_per_event(windows, of_model, density, **others)


def slot(instant: int) -> int:
    return [0, 0, 1, 2][instant]


def chain_by_loop(traces: Traces, model: Traces, c: float) -> list[float]:
    place, of_slot, step, of_slot_step = Counter(), Counter(), Counter(), Counter()
    for _, day in days(model):
        for i, b in day.items():
            place[b] += 1
            of_slot[slot(i), b] += 1
            if i - 1 in day:
                step[day[i - 1], b] += 1
                of_slot_step[(slot(i), day[i - 1]), b] += 1

    def mixed(count: Counter, context: object, b: int, prior: float) -> float:
        total = sum(n for (where, _), n in count.items() if where == context)
        return (count[context, b] + c * prior) / (total + c)

    log, n_events = Counter(), Counter()
    for user, day in days(traces):
        for i, b in day.items():
            p = (place[b] + c / N_PLACES) / (place.total() + c)
            if i - 1 in day:
                a = day[i - 1]
                p = mixed(of_slot_step, (slot(i), a), b, mixed(step, a, b, p))
            else:
                p = mixed(of_slot, slot(i), b, p)
            log[user] += math.log(p)
            n_events[user] += 1
    return [log[user] / n_events[user] for user in range(traces.n_users)]


def kernel_by_loop(traces: Traces, model: Traces) -> list[float]:
    components = [day for _, day in days(model)]
    at = Counter((slot(i), b) for day in components for i, b in day.items())

    def background(i: int, b: int) -> float:
        n_slot = sum(n for (s, _), n in at.items() if s == slot(i))
        return (at[slot(i), b] + 1 / N_PLACES) / (n_slot + 1)

    log, n_events = Counter(), Counter()
    for user, day in days(traces):
        density = [
            math.prod(STRAY * background(i, b) + (1 - STRAY) * (component.get(i) == b) for i, b in day.items())
            for component in components
        ]
        log[user] += math.log(sum(density) / len(density))
        n_events[user] += len(day)
    return [log[user] / n_events[user] for user in range(traces.n_users)]


@pytest.mark.parametrize("concentration", [CONCENTRATION, 3.0])
def test_chain_equals_loops(concentration: float) -> None:
    traces, model = traces_of_density(0, range(3)), traces_of_density(1, range(6))
    found = log_density(traces, model, concentration=concentration)
    assert found == pytest.approx(chain_by_loop(traces, model, concentration))
    assert found != pytest.approx(chain_by_loop(traces, model, concentration * 1.1), rel=1e-4)


def test_kernel_equals_loops() -> None:
    traces, model = traces_of_density(0, range(3)), traces_of_density(1, range(6))
    found = log_density(traces, model, "kernel")
    assert found == pytest.approx(kernel_by_loop(traces, model))
    assert found != pytest.approx(kernel_by_loop(traces, traces_of_density(2, range(6))), rel=1e-3)


@pytest.mark.parametrize("density", ["chain", "kernel"])
def test_probabilities_of_all_traces_sum_to_1(density: Density) -> None:
    """Of three instants of which the first has no event, over a complete model."""
    grid, places = minutes(3), places_in_line(3)
    model = random_traces(0, range(7), places, grid)
    walks = [(3 * a + b, 0, 1 + i, (a, b)[i]) for a in range(3) for b in range(3) for i in range(2)]
    found = log_density(to_traces(walks, places, grid), model, density)
    assert np.exp(2 * found).sum() == pytest.approx(1)


@pytest.mark.parametrize("density", ["chain", "kernel"])
def test_odd_traces_have_finite_densities(density: Density) -> None:
    """One place alone, which is then certain; one event a trace, so that there is no step; a place of nobody else."""
    one, grid = places_in_line(1), minutes(4)
    certain = random_traces(0, range(3), one, grid)
    assert log_density(certain, certain, density) == pytest.approx(0, abs=1e-9)
    still = to_traces([(u, 0, u, u) for u in range(3)], places_in_line(4), grid)
    elsewhere = to_traces([(u, 0, i, 3) for u in range(3) for i in range(4)], places_in_line(4), grid)
    for traces, model in ((still, still), (still, elsewhere), (elsewhere, still)):
        assert np.isfinite(log_density(traces, model, density)).all()


def test_a_kernel_of_long_periods_stays_finite() -> None:
    """The density of a copied trace is far from those of others: exponentials beyond the range of a float."""
    places, grid = places_in_line(50), minutes(2000)
    traces = random_traces(0, range(3), places, grid)
    assert np.isfinite(log_density(traces, traces, "kernel")).all()


def test_grids_of_other_periods_are_an_error() -> None:
    with pytest.raises(InputError, match="as that of a; found others in b"):
        windows_of(a=traces_of_density(0, range(2)), b=random_traces(0, range(2), places_in_line(N_PLACES), minutes(4)))


PLACES, TEN = places_in_line(12), minutes(10)


def test_copies_an_instant_later_are_found_and_strangers_are_not() -> None:
    train, test = (random_traces(seed, users, PLACES, TEN) for seed, users in enumerate((range(60), range(100, 160))))
    frame = train.to_frame()
    later = Traces.from_frame(frame.assign(instant=frame["instant"] + 1)[frame["instant"] < 9], PLACES, TEN)
    assert infer_membership(later, train, test, "nearest").roc.auc > 0.99
    strangers = random_traces(7, range(3000, 3060), PLACES, TEN)
    auc = infer_membership(strangers, train, test, "nearest").roc.auc
    assert abs(auc - 0.5) < 5 * error_of_auc(60, 60)


def test_a_user_who_shares_nothing_has_no_weight() -> None:
    train, test = (
        to_traces([(0, 0, 0, 1), (0, 0, 1, 2)], PLACES, TEN),
        to_traces([(1, 0, 5, 3)], PLACES, TEN),
    )
    scores = infer_membership(train, train, test, "nearest")
    assert scores.members[0, 0] > 0 == scores.others[0, 0]
    # In six of ten releases of strangers, somebody odd was above any bar that the others' scores give.
    assert not scores.one_tail
