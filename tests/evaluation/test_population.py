"""Group-TV and rare places against loops and by hand, planted synthesizers, and what is undefined."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ppmtf_jax.data.measurement import Comparison
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.evaluation.metrics.population import Groups, GroupSettings, is_rare, most_visited_place
from ppmtf_jax.evaluation.registry import METRICS
from tests import support
from tests.support import codes

GROUPS = METRICS["group_tv"]
# A place in each quarter of a square; with two cells a side, places are cells.
PLACES = PlaceTable(np.array(["sw", "se", "nw", "ne"]), np.array([0.0, 0, 1, 1]), np.array([0.0, 1, 0, 1]))
PERIOD = 4
SMALL = GroupSettings(min_users=2, n_cells=2)


def grid_of(n_instants: int, *, step_s: int = 3600) -> TimeGrid:
    return TimeGrid("2024-01-01T00:00:00", step_s, np.arange(n_instants) % PERIOD, period=PERIOD)


def to_traces(rows: list[support.Row], n_instants: int = PERIOD) -> Traces:
    return support.to_traces(rows, PLACES, grid_of(n_instants))


def days_of(days: dict[int, list[int | None]]) -> Traces:
    """A day of each user, by their places."""
    return to_traces([(u, 0, i, place) for u, day in days.items() for i, place in enumerate(day) if place is not None])


def measured(traces: Traces, train: Traces, settings: GroupSettings = SMALL, *, synthetic: bool = True) -> float:
    return GROUPS.measure(Comparison(traces, train, train, PERIOD, pool_traces=not synthetic), settings)[0]


def references(train: Traces, settings: GroupSettings = GroupSettings()) -> tuple[float, float]:
    (reading,) = GROUPS.reading(Comparison(train, train, train, PERIOD, pool_traces=True), settings)
    return reading.references["floor"], reading.references["all alike"]


TRAIN = days_of({0: [0, 0, 0, 1], 1: [0, 0, 0, 0], 2: [3, 3, 3, 3], 3: [3, 3, 2, 3], 4: [3, 3, 3, 3]})


def test_numbers_of_traces_known_by_heart() -> None:
    # Two groups, of two and of three users, who differ at instants 2 and 3 from the traces made from them.
    made = days_of({0: [0, 0, 0, 0], 1: [0, 0, 2, 2], 2: [3, 3, 3, 3]})
    first = (abs(1 - 1 / 2) + 1 / 2 + abs(1 / 2 - 1 / 2) + 1 / 2 + 1 / 2) / 2 / 4
    second = (1 / 3 + 1 / 3) / 2 / 4
    assert measured(made, TRAIN) == pytest.approx((2 * first + 3 * second) / 5)
    floor, alike = references(TRAIN, SMALL)
    # Everybody: 2 of 5 at 0 and 3 of 5 at 3 but at instant 2, where 2 of 5, 1 of 5 and 2 of 5 are, and at instant 3.
    first = (3 / 5 + 3 / 5 + 3 / 5 + (1 - 1 / 5 - 1 / 5)) / 4
    second = (2 / 5 + 2 / 5 + (1 - 2 / 5 - 1 / 5) + 2 / 5) / 4
    assert alike == pytest.approx((2 * first + 3 * second) / 5)
    # Either half of the first group is 1/2 from it at one of four instants; one of three of the second 1/3 or 2/3.
    least, most = (2 * 1 / 2 + 3 * 1 / 3) / 5 / 4, (2 * 1 / 2 + 3 * 2 / 3) / 5 / 4
    assert least <= floor <= most


def loop_fidelity(traces: Traces, train: Traces, min_users: int, n_cells: int) -> float:
    """Of sets that are not thinned, straight from the definition."""

    def events(of: Traces) -> list[tuple[str, int, int]]:
        columns = (of.user_ids[of.user], of.instant, of.place)
        return [
            (user, instant % of.time_grid.period, place)
            for user, instant, place in zip(*(c.tolist() for c in columns), strict=True)
        ]

    cell = train.places.grid_cell(n_cells).tolist()
    home = {}
    for user in train.user_ids.tolist():
        count = Counter(place for who, _, place in events(train) if who == user)
        home[user] = cell[min(count, key=lambda place: (-count[place], place))]
    distance, n_counted = 0.0, 0
    for group, n_users in Counter(home.values()).items():
        if n_users < min_users:
            continue
        shares = []
        for each in (traces, train):
            count = Counter(
                (phase * 4 // train.time_grid.period, cell[place])
                for user, phase, place in events(each)
                if home[user] == group
            )
            shares.append({kind: n / count.total() for kind, n in count.items()})
        kinds = set(shares[0]) | set(shares[1])
        apart = sum(abs(shares[0].get(kind, 0) - shares[1].get(kind, 0)) for kind in kinds) / 2
        distance, n_counted = distance + n_users * (apart if shares[0] else 1), n_counted + n_users
    return distance / n_counted


@pytest.mark.parametrize("seed", range(2))
def test_it_is_that_of_a_loop(seed: int) -> None:
    train = toy_city(n_users=80, n_places=20, n_days=2, seed=seed).traces
    other = toy_city(n_users=80, n_places=20, n_days=1, missing=0.5, seed=seed).traces
    other = other.select_users(np.random.default_rng(seed).permutation(80)[:30])
    for min_users, n_cells in ((2, 3), (10, 2), (4, 8)):
        found = measured(other, train, GroupSettings(min_users, n_cells), synthetic=False)
        assert found == pytest.approx(loop_fidelity(other, train, min_users, n_cells)), (min_users, n_cells)


def test_users_are_told_by_their_ids_and_not_by_their_order() -> None:
    """Users 2, 3 and 4 alone, whose indices are those of others in the training set."""
    made = days_of({2: [3, 3, 3, 3], 3: [3, 3, 2, 3], 4: [3, 3, 3, 3]})
    # The first group has no trace, which counts as 1.
    assert measured(made, TRAIN) == pytest.approx((2 * 1 + 3 * 0) / 5)
    groups = Groups.of(TRAIN, GroupSettings(min_users=3, n_cells=2))
    assert (groups.of_user.tolist(), groups.n_users.tolist()) == ([-1, -1, 0, 0, 0], [3])


def test_who_shuffles_users_among_groups_is_at_everybody_alike() -> None:
    """The population of traces is untouched, so that no metric of the population sees it."""
    train = toy_city(n_users=2000, missing=0.0, n_days=1, seed=0).traces
    shuffled = train.place.reshape(2000, 24)[np.random.default_rng(0).permutation(2000)].ravel()
    _, alike = references(train)
    found = measured(replace(train, place=shuffled), train, GroupSettings())
    # By the triangle inequality no farther from `alike` than each group's strangers, a sample of all, are from all.
    groups = Groups.of(train, GroupSettings())
    deviation = (groups.user_counts.toarray() / 24).std(axis=0).sum()
    chance = math.sqrt(2 / math.pi) / 2 * deviation * np.average(1 / np.sqrt(groups.n_users), weights=groups.n_users)
    assert abs(found - alike) < chance < alike / 3
    honest = toy_city(n_users=2000, missing=0.0, n_days=2, seed=0).traces
    second_day = honest.instant >= 24
    # Another day of the same people.
    another = replace(train, place=honest.place[second_day])
    assert measured(another, train, GroupSettings()) < alike / 3


def test_the_floor_is_what_others_like_them_give() -> None:
    """A group's distribution from infinitely many people is as far from its members as they are said to be."""
    rng = np.random.default_rng(0)
    n, shares = 400, np.array([0.55, 0.25, 0.15, 0.05])
    train = days_of({user: [0, int(rng.choice(4, p=shares)), 0, 0] for user in range(n)})
    places = np.repeat(np.arange(4), (n * shares).round().astype(int)).tolist()
    true = days_of({user: [0, place, 0, 0] for user, place in enumerate(places)})
    # All are one group; they differ at one of four instants.
    settings = GroupSettings(min_users=20, n_cells=2)
    expected = math.sqrt(2 / math.pi) / 2 * np.sqrt(shares * (1 - shares) / n).sum() / 4
    floor, _ = references(train, settings)
    # A mean over ten halves, each of about four terms, has a standard error of some 0.6 / sqrt(2 * 10) of it.
    assert floor == pytest.approx(expected, rel=5 * 0.6 / math.sqrt(20))
    assert measured(true, train, settings, synthetic=False) < 4 * expected


def test_hours_alone_are_no_difference() -> None:
    """Real users have events at few hours, complete traces at all: thinned, they are where the users are."""
    train = to_traces([(user, 0, PERIOD * day + 1, user // 3) for user in range(6) for day in range(2)], 2 * PERIOD)
    made = days_of({user: [user // 3] * PERIOD for user in range(6)})
    assert measured(made, train) == 0
    # Without thinning three of four events are at other quarters.
    assert measured(made, train, synthetic=False) == pytest.approx(3 / 4)


def test_traces_are_thinned_to_windows_of_their_own_group() -> None:
    """The one group is out early, the other late."""
    early = {user: [0, 0, None, None] for user in range(3)}
    late = {user: [None, None, 1, 1] for user in range(3, 6)}
    made = days_of({user: [user // 3] * PERIOD for user in range(6)})
    assert measured(made, days_of(early | late)) == 0


def test_most_visited_place_is_the_first_of_equals() -> None:
    assert most_visited_place(days_of({5: [2, 1, 1, 2], 7: [3, 3, 0, 3]})).tolist() == [1, 3]


def test_uniform_is_what_many_uniform_traces_give() -> None:
    train = toy_city(n_users=200, n_places=20, n_days=1, seed=0).traces
    settings = GroupSettings(n_cells=3)
    rng = np.random.default_rng(0)
    n = 2000
    columns = {
        "user": np.repeat(np.arange(200), 24 * n // 200),
        "trace": np.tile(np.repeat(np.arange(n // 200), 24), 200),
        "instant": np.tile(np.arange(24), n),
        "place": rng.integers(20, size=24 * n),
    }
    many = replace(train, **{name: column.astype(np.int32) for name, column in columns.items()})
    (expected,) = GROUPS.uniform(Comparison(train, train, train, 24, pool_traces=True), settings)
    # At least 200 traces and 4,000 events a group: shares in 36 kinds of events to sqrt(36 / 4000) / 2 in all.
    assert measured(many, train, settings) == pytest.approx(expected, abs=math.sqrt(36 / 4000) / 2)


# What is undefined, or says little


def test_no_group_is_large_enough() -> None:
    settings = GroupSettings(min_users=4, n_cells=2)
    real = Comparison(TRAIN, TRAIN, TRAIN, PERIOD, pool_traces=True)
    assert math.isnan(measured(TRAIN, TRAIN, settings))
    assert math.isnan(GROUPS.uniform(real, settings)[0])
    (reading,) = GROUPS.reading(real, settings)
    assert (reading.references, codes(reading)) == ({}, ["no_group"])


@pytest.mark.parametrize("ids", [np.arange(100, 105), np.array(list("abcde"), object), np.array([0, 1, 2, 3, 9])])
def test_traces_of_somebody_unknown_have_no_group(ids: np.ndarray) -> None:
    assert math.isnan(measured(replace(TRAIN, user_ids=ids), TRAIN))
    # Nor have grids whose periods differ.
    assert math.isnan(measured(replace(TRAIN, time_grid=grid_of(PERIOD, step_s=900)), TRAIN))


# Rare places

RARE = METRICS["rare_places"]
RARE_SETTINGS = RARE.settings()


@pytest.mark.parametrize("seed", range(5))
def test_rare_places_by_loop(seed):
    """A place is rare if all places with as many visits or fewer have at most this share."""
    n_visits = np.random.default_rng(seed).integers(0, 9, size=12)
    for share in (0.05, 0.2, 0.5):
        up_to = [n_visits[n_visits <= each].sum() for each in n_visits]
        assert is_rare(n_visits, share).tolist() == [each <= share * n_visits.sum() for each in up_to]


def traces_at(counts: list[int], places=None, first_user: int = 0):
    """One user a place, with so many events there."""
    places = places or support.places_in_line(len(counts))
    rows = [(first_user + at, 0, instant, at) for at, count in enumerate(counts) for instant in range(count)]
    return support.to_traces(rows, places, support.minutes(100))


def numbers(made: list[int], train: list[int], test: list[int], places=None) -> list[float]:
    sets = [traces_at(counts, places, first) for first, counts in ((0, made), (0, train), (100, test))]
    return RARE.measure(Comparison(*sets, 100), RARE_SETTINGS)


def test_numbers_by_hand():
    """Of 100 real events, 8 are at the rare places 1 and 2: 10 % of the synthetic events, 8 % of the test events."""
    visits, variation = numbers([90, 10, 0], [46, 2, 2], [46, 2, 2])
    assert visits == pytest.approx(np.log2((10.5 / 100.5) / (4.5 / 50.5)))
    # The places lie at both ends of other cells: all is at one of them, of the test events half.
    assert variation == pytest.approx(0.5)
    assert numbers([46, 2, 2], [46, 2, 2], [46, 2, 2]) == pytest.approx([0, 0])


def test_who_forgets_rare_places_or_overdoes_them_is_found():
    real = [60, 30, 5, 5]
    forgotten, _ = numbers([90, 10, 0, 0], real, real)
    overdone, _ = numbers([25, 25, 25, 25], real, real)
    assert forgotten < -4
    assert overdone > 1.5


def test_uniform_is_exact():
    sets = [traces_at([60, 30, 6, 4], first_user=first) for first in (0, 0, 100)]
    assert RARE.uniform(Comparison(*sets, 100), RARE_SETTINGS)[0] == pytest.approx(
        np.log2((50.5 / 100.5) / (10.5 / 100.5))
    )


def test_no_rare_place_and_no_map():
    assert np.isnan(numbers([50, 50], [50, 50], [50, 50])).all()
    point = PlaceTable(np.arange(3), np.zeros(3), np.zeros(3))
    sets = [traces_at([46, 2, 2], point, first) for first in (0, 0, 100)]
    few, at_point = RARE.reading(Comparison(*sets, 100), RARE_SETTINGS)
    assert codes(few) == ["few_values"]
    assert codes(at_point) == ["few_values", "one_point"]
    many = [replace(each, places=point) for each in (traces_at([99, 20, 20, 20][:3], point, n) for n in (0, 0, 100))]
    assert RARE.reading(Comparison(*many, 100), replace(RARE_SETTINGS, share=0.5))[0].caveats == ()
