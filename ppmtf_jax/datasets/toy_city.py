"""An invented city with simulated people, whose homes, work places, habits and clusters are known.

It needs no download, and because the truth is known it can tell whether a method finds it. People belong to one of four
clusters that live in different quarters and keep different hours; they commute, eat, shop and go out to places chosen
by gravity (near and popular places first) or habit. Nothing here is private, so NumPy's generator is good enough.

Places come from a random stream of their own, and so do people in blocks of `BLOCK_USERS`: a complete block is the same
whatever the number of users, and a city too large for memory can be made in pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.registry import DATA_SETS, DataSet, Imported, split_users
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.settings import Count, Settings, Share

BLOCK_USERS = 10_000
MEAN_FRIENDS = 8.0
LEAST_USERS = 2
"""Training users at each place of an imported city: a release refuses places of one person."""

START = "2024-03-04T00:00:00"  # a Monday
CENTRE_LATITUDE, CENTRE_LONGITUDE = 52.0, 5.5
KM_PER_DEGREE = 111.2
HOURS = np.arange(24)

# Kilometres east and north of the centre.
QUARTERS = {
    "west suburb": (-5.5, -1.0),
    "south suburb": (0.5, -5.5),
    "campus": (4.0, 3.8),
    "old town": (-2.8, 3.6),
    "harbour": (5.6, -2.0),
}
BUSINESS_PARK = (2.2, -2.0)
CATEGORY_SHARE = {
    "home": 0.40,
    "office": 0.16,
    "shop": 0.13,
    "restaurant": 0.13,
    "park": 0.07,
    "university": 0.02,
    "hospital": 0.03,
    "station": 0.06,
}
CATEGORIES = tuple(CATEGORY_SHARE)
POPULARITY_EXPONENT = 0.8
WORK_DECAY_KM = 5.0
LEISURE_DECAY_KM = 1.5
FRIEND_DECAY_KM = 1.0
SAME_CLUSTER_PROBABILITY = 0.8
HABIT_PROBABILITY = 0.6
DAY_OFF_PROBABILITY = 0.06

PLACE_STREAM, PEOPLE_STREAM, DAY_STREAM, FRIEND_STREAM, KEPT_EVENT_STREAM = range(5)
WEEKDAYS, WEEKEND, ALL_DAYS = range(5), range(5, 7), range(7)


@dataclass(frozen=True)
class _Outing:
    """A stay away from home or a break at work: on which days, how probable, from when, how long, where to."""

    days: range
    probability: float
    first_start: int
    last_start: int
    longest: int
    weights: dict[str, float]
    from_work: bool = False


@dataclass(frozen=True)
class _Cluster:
    """What the people of one cluster have in common. Work may run over midnight; `work_end` is then the smaller."""

    name: str
    share: float
    quarters: tuple[str, ...]
    work_category: str | None
    work_start: tuple[int, int]
    work_end: tuple[int, int]
    by_train: bool
    outings: tuple[_Outing, ...]


CLUSTERS = (
    _Cluster(
        "office commuters", 0.45, ("west suburb", "south suburb"), "office", (8, 9), (17, 18), True,
        (
            _Outing(WEEKDAYS, 0.35, 12, 12, 1, {"restaurant": 0.8, "shop": 0.2}, from_work=True),
            _Outing(WEEKDAYS, 0.35, 19, 20, 3, {"restaurant": 0.6, "shop": 0.3, "park": 0.1}),
            _Outing(WEEKEND, 0.75, 10, 15, 4, {"shop": 0.45, "park": 0.4, "restaurant": 0.15}),
            _Outing(WEEKEND, 0.35, 18, 20, 3, {"restaurant": 1.0}),
        ),
    ),
    _Cluster(
        "students", 0.2, ("campus",), "university", (9, 11), (15, 18), False,
        (
            _Outing(WEEKDAYS, 0.4, 12, 13, 1, {"restaurant": 0.7, "park": 0.3}, from_work=True),
            _Outing(WEEKDAYS, 0.45, 18, 21, 3, {"restaurant": 0.5, "shop": 0.25, "park": 0.25}),
            _Outing(WEEKEND, 0.35, 11, 14, 4, {"university": 1.0}),
            _Outing(WEEKEND, 0.7, 15, 21, 4, {"restaurant": 0.5, "shop": 0.3, "park": 0.2}),
        ),
    ),
    _Cluster(
        "retired", 0.2, ("old town",), None, (0, 0), (0, 0), False,
        (
            _Outing(ALL_DAYS, 0.75, 9, 11, 2, {"shop": 0.6, "park": 0.3, "hospital": 0.1}),
            _Outing(ALL_DAYS, 0.65, 13, 16, 3, {"park": 0.5, "shop": 0.3, "restaurant": 0.2}),
        ),
    ),
    _Cluster(
        "night workers", 0.15, ("harbour",), "hospital", (21, 23), (5, 7), False,
        (
            _Outing(ALL_DAYS, 0.6, 14, 16, 3, {"shop": 0.5, "park": 0.3, "restaurant": 0.2}),
            _Outing(WEEKEND, 0.4, 18, 19, 3, {"restaurant": 1.0}),
        ),
    ),
)  # fmt: skip
CLUSTER_NAMES = tuple(cluster.name for cluster in CLUSTERS)


@dataclass(frozen=True, eq=False)
class ToyCity:
    """Simulated traces and the truth behind them.

    Parameters
    ----------
    traces : Traces
        One trace for each user; hourly instants from Monday midnight in twelve cyclic two-hour slots; friendships.
    cluster : int array, shape (users,)
        True cluster of each user, an index into `cluster_names`.
    cluster_names : tuple of str
    home : int array, shape (users,)
        Index of the place where the user lives.
    work : int array, shape (users,)
        Index of the place where the user works or studies; -1 for the retired.
    """

    traces: Traces
    cluster: np.ndarray
    cluster_names: tuple[str, ...]
    home: np.ndarray
    work: np.ndarray


def toy_city(
    n_users: int = 400,
    *,
    n_places: int = 100,
    n_days: int = 7,
    missing: float = 0.2,
    seed: int = 0,
    progress: bool = False,
) -> ToyCity:
    """Simulate a city: who was where at each hour, who is whose friend, and the truth behind it.

    Parameters
    ----------
    n_users : int
    n_places : int
        At least 8, one of each category.
    n_days : int
        The first day is a Monday.
    missing : float
        Probability in [0, 1) that an event is absent, as in check-ins. Every user keeps at least one event.
    seed : int
        At least 0.
    progress : bool
        Show a progress bar where there is a terminal.

    Raises
    ------
    InputError
        Listing every argument that is out of range.

    Examples
    --------
    >>> city = toy_city(50, seed=1)
    >>> city.traces.n_users, city.traces.n_places, city.traces.time_grid.n_slots
    (50, 100, 12)
    >>> str(city.traces.places.category[city.home[0]]), city.cluster_names[0]
    ('home', 'office commuters')
    """
    pieces = []
    with progress_bar("simulating", n_users, show=progress, waits_for="") as advance:
        for piece in toy_city_pieces(n_users, n_places=n_places, n_days=n_days, missing=missing, seed=seed):
            pieces.append(piece)
            advance(piece.traces.n_users)
    if len(pieces) == 1:
        return pieces[0]
    first = pieces[0].traces

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(piece, name) for piece in pieces])

    def joined_events(name: str, step: int = 0) -> np.ndarray:
        # In place, since at a million users a second copy of all pieces counts.
        parts = [getattr(piece.traces, name) for piece in pieces]
        whole = np.concatenate(parts)
        if step:
            begin = np.cumsum([0] + [len(part) for part in parts])
            for number in range(len(parts)):
                whole[begin[number] : begin[number + 1]] += number * step
        return whole

    traces = Traces(
        user=joined_events("user", BLOCK_USERS),
        trace=joined_events("trace"),
        instant=joined_events("instant"),
        place=joined_events("place"),
        user_ids=joined_events("user_ids"),
        places=first.places,
        time_grid=first.time_grid,
        friendships=joined_events("friendships", BLOCK_USERS),
    )
    return ToyCity(traces, joined("cluster"), CLUSTER_NAMES, joined("home"), joined("work"))


def toy_city_pieces(
    n_users: int, *, n_places: int = 100, n_days: int = 7, missing: float = 0.2, seed: int = 0
) -> Iterator[ToyCity]:
    """The same city as `toy_city`, in pieces of `BLOCK_USERS` users, so that only one piece is in memory.

    All pieces have the same places and time grid. User ids are the numbers 0, 1, ... of the whole city. Friends are of
    the same piece.

    Examples
    --------
    >>> [piece.traces.n_users for piece in toy_city_pieces(10_500, n_days=1)]
    [10000, 500]
    """
    _check_arguments(n_users, n_places, n_days, missing, seed)
    return _pieces(n_users, n_places, n_days, missing, seed)


@dataclass(frozen=True)
class ToyCitySettings(Settings, subject="import"):
    """Simulation of a city.

    Parameters
    ----------
    n_users : int
        How many people live there.
    n_places : int
        How many places it has.
    n_days : int
        How many days they are watched.
    train_fraction : float
        Share of the users to learn from. The others are for testing.

    Raises
    ------
    InputError
        Listing every setting that is out of range.

    Examples
    --------
    >>> ToyCitySettings(n_users=1, n_days=0)
    Traceback (most recent call last):
    ppmtf_jax.errors.InputError: import: 2 problems
    """

    n_users: Annotated[int, Ge(2)] = 400
    n_places: Annotated[int, Ge(len(CATEGORIES))] = 100
    n_days: Count = 7
    train_fraction: Share = 0.8


def _import(settings: ToyCitySettings, seed: int, progress: bool) -> Imported:
    size = {"n_places": settings.n_places, "n_days": settings.n_days}
    traces = toy_city(settings.n_users, **size, seed=seed, progress=progress).traces
    report = (
        f"a simulated city of {traces.n_users} users, {traces.n_places} places, {traces.n_events} events\n"
        "places of one training user alone are joined with the nearest other"
    )
    return split_users(traces, report, settings.train_fraction, seed, min_users_per_place=LEAST_USERS)


DATA_SETS.register(
    DataSet(
        "toy-city",
        "A simulated city, to try things out without any data.",
        ToyCitySettings,
        _import,
        "toy-city --users 400",
    )
)


def _check_arguments(n_users: int, n_places: int, n_days: int, missing: float, seed: int) -> None:
    problems = []
    least = {"n_users": 1, "n_places": len(CATEGORIES), "n_days": 1, "seed": 0}
    for (name, minimum), value in zip(least.items(), (n_users, n_places, n_days, seed), strict=True):
        if not isinstance(value, (int, np.integer)) or value < minimum:
            problems.append(Problem(f"{name} as a whole number of at least {minimum}", repr(value)))
    if not 0 <= missing < 1:
        problems.append(Problem("missing as a probability of at least 0 and less than 1", repr(missing)))
    if problems:
        raise InputError("toy city", problems)


def _pieces(n_users: int, n_places: int, n_days: int, missing: float, seed: int) -> Iterator[ToyCity]:
    city = _City.build(n_places, np.random.default_rng([seed, PLACE_STREAM]))
    time_grid = TimeGrid.cyclic(START, 3600, 24 * n_days, slot_s=7200)
    for block in range(-(-n_users // BLOCK_USERS)):
        first = block * BLOCK_USERS
        n_block = min(BLOCK_USERS, n_users - first)
        people = _People.draw(n_block, city, np.random.default_rng([seed, PEOPLE_STREAM, block]))
        place = np.empty((n_block, n_days, 24), np.int32)
        present = np.empty((n_block, n_days, 24), bool)
        for day in range(n_days):
            # One stream per day: a longer simulation begins with the shorter one.
            rng = np.random.default_rng([seed, DAY_STREAM, block, day])
            place[:, day] = _simulate_day(city, people, day % 7, rng)
            present[:, day] = rng.random((n_block, 24)) >= missing
        place, present = place.reshape(n_block, -1), present.reshape(n_block, -1)
        _keep_one_event(present, np.random.default_rng([seed, KEPT_EVENT_STREAM, block]))
        user, instant = np.nonzero(present)
        traces = Traces(
            user=user.astype(np.int32),
            trace=np.zeros(len(user), np.int32),
            instant=instant.astype(np.int32),
            place=place[present],
            user_ids=np.arange(first, first + n_block),
            places=city.places,
            time_grid=time_grid,
            friendships=_draw_friendships(city, people, np.random.default_rng([seed, FRIEND_STREAM, block])),
        )
        yield ToyCity(traces, people.cluster, CLUSTER_NAMES, people.home, people.work)


def _keep_one_event(present: np.ndarray, rng: np.random.Generator) -> None:
    silent = np.flatnonzero(~present.any(axis=1))
    present[silent, rng.integers(present.shape[1], size=len(silent))] = True


@dataclass(frozen=True, eq=False)
class _Categorical:
    """Categorical distributions, one for each row of weights; a draw is one binary search."""

    edges: np.ndarray
    n_columns: int

    @classmethod
    def build(cls, weights: np.ndarray) -> _Categorical:
        cumulative = np.cumsum(weights, axis=1)
        cumulative /= cumulative[:, -1:]
        # Row i takes the interval [i, i + 1], so that all rows together are one sorted array.
        return cls((cumulative + np.arange(len(weights))[:, None]).ravel(), weights.shape[1])

    def draw(self, row: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        found = np.searchsorted(self.edges, row + rng.random(len(row)), side="right")
        return np.minimum(found - row * self.n_columns, self.n_columns - 1)


@dataclass(frozen=True, eq=False)
class _City:
    """The map, and how places attract people."""

    places: PlaceTable
    position_km: np.ndarray
    members: dict[str, np.ndarray]
    homes: _Categorical
    work: dict[str, _Categorical]
    leisure: dict[str, _Categorical]
    nearest_station: np.ndarray

    @classmethod
    def build(cls, n_places: int, rng: np.random.Generator) -> _City:
        counts = _category_counts(n_places)
        position_km = np.concatenate([_scatter(name, count, rng) for name, count in counts.items()])
        category = np.repeat(np.array(CATEGORIES, object), list(counts.values()))
        members = {name: np.flatnonzero(category == name) for name in CATEGORIES}
        distance_km = _distances(position_km, position_km)
        popularity = np.concatenate([np.arange(1, count + 1.0) ** -POPULARITY_EXPONENT for count in counts.values()])

        def gravity(name: str, decay_km: float) -> _Categorical:
            there = members[name]
            return _Categorical.build(popularity[there] * np.exp(-distance_km[:, there] / decay_km))

        latitude = CENTRE_LATITUDE + position_km[:, 1] / KM_PER_DEGREE
        longitude_km = KM_PER_DEGREE * np.cos(np.radians(CENTRE_LATITUDE))
        ids = np.array([f"{name}_{i}" for name, count in counts.items() for i in range(count)], object)
        longitude = CENTRE_LONGITUDE + position_km[:, 0] / longitude_km
        return cls(
            PlaceTable(ids, latitude, longitude, category),
            position_km,
            members,
            _Categorical.build(_home_weights(position_km[members["home"]])),
            {c.work_category: gravity(c.work_category, WORK_DECAY_KM) for c in CLUSTERS if c.work_category},
            {name: gravity(name, LEISURE_DECAY_KM) for name in CATEGORIES},
            members["station"][distance_km[:, members["station"]].argmin(axis=1)],
        )


def _category_counts(n_places: int) -> dict[str, int]:
    """One place of each category, the others by share, largest remainders first."""
    ideal = (n_places - len(CATEGORIES)) * np.array(list(CATEGORY_SHARE.values()))
    counts = 1 + ideal.astype(int)
    counts[np.argsort(-(ideal % 1), kind="stable")[: n_places - counts.sum()]] += 1
    return dict(zip(CATEGORIES, counts.tolist(), strict=True))


def _scatter(category: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Positions of the places of a category, kilometres east and north of the centre, shape (count, 2)."""
    quarters = np.array(list(QUARTERS.values()))
    around = np.arange(count) % len(quarters)
    noise = rng.normal(size=(count, 2))
    if category == "home":
        # Quarters in turn, and every sixth home area anywhere in town.
        central = np.arange(count) % 6 == 5
        turn = (np.cumsum(~central) - 1) % len(quarters)
        return np.where(central[:, None], 2.2 * noise, quarters[turn] + 0.9 * noise)
    if category == "office":
        outside = (np.arange(count) % 4 == 3)[:, None]
        return np.where(outside, np.array(BUSINESS_PARK) + 0.4 * noise, 0.8 * noise)
    if category in ("shop", "restaurant"):
        central = (np.arange(count) % 2 == 0)[:, None]
        return np.where(central, 1.3 * noise, quarters[around] + 1.0 * noise)
    if category == "park":
        return quarters[around] * 0.75 + 1.2 * noise
    if category == "university":
        return 0.8 * quarters[2] + 0.4 * noise
    if category == "hospital":
        return 0.55 * quarters[4] + 1.5 * noise
    # Stations: one in the centre and one in each quarter, further ones along the lines between them.
    stops = np.concatenate([[[0.0, 0.0]], quarters])
    ring, n_rings = np.arange(count) // len(stops), -(-count // len(stops))
    inward = (ring / n_rings)[:, None]
    return stops[np.arange(count) % len(stops)] * (1 - inward) + (0.25 + 0.75 * inward) * noise


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.sqrt(((a[:, None] - b[None]) ** 2).sum(axis=-1))


def _home_weights(homes_km: np.ndarray) -> np.ndarray:
    """How much the people of each cluster like to live in each home area, shape (clusters, homes)."""
    weights = []
    for kind in CLUSTERS:
        quarters = np.array([QUARTERS[name] for name in kind.quarters])
        nearest_km = _distances(homes_km, quarters).min(axis=1)
        weights.append(np.exp(-0.5 * (nearest_km / 1.2) ** 2) + 0.01)
    return np.array(weights)


@dataclass(frozen=True, eq=False)
class _People:
    """What does not change from day to day, one entry for each person of a block."""

    cluster: np.ndarray
    home: np.ndarray
    work: np.ndarray
    work_start: np.ndarray
    work_end: np.ndarray
    favourite: dict[str, np.ndarray]

    @classmethod
    def draw(cls, n: int, city: _City, rng: np.random.Generator) -> _People:
        cluster = rng.choice(len(CLUSTERS), size=n, p=[kind.share for kind in CLUSTERS])
        home = city.members["home"][city.homes.draw(cluster, rng)]
        work = np.full(n, -1)
        hours = np.zeros((2, n), int)
        for number, kind in enumerate(CLUSTERS):
            who = np.flatnonzero(cluster == number)
            if kind.work_category:
                chosen = city.work[kind.work_category].draw(home[who], rng)
                work[who] = city.members[kind.work_category][chosen]
            for row, (low, high) in zip(hours, (kind.work_start, kind.work_end), strict=True):
                row[who] = rng.integers(low, high + 1, size=len(who))
        favourite = {name: city.members[name][city.leisure[name].draw(home, rng)] for name in CATEGORIES}
        # Students study where they are enrolled, at weekends too.
        favourite["university"] = np.where(cluster == CLUSTER_NAMES.index("students"), work, favourite["university"])
        return cls(cluster, home, work, hours[0], hours[1], favourite)


def _simulate_day(city: _City, people: _People, weekday: int, rng: np.random.Generator) -> np.ndarray:
    """Place of each person at each hour of a day: home, with stays elsewhere painted over it, shape (people, 24)."""
    place = np.repeat(people.home[:, None], 24, axis=1)

    def stay(who: np.ndarray, where: np.ndarray, start: np.ndarray, end: np.ndarray) -> None:
        during = (start[:, None] <= HOURS) & (end[:, None] > HOURS)
        place[who] = np.where(during, where[:, None], place[who])

    for number, kind in enumerate(CLUSTERS):
        everybody = np.flatnonzero(people.cluster == number)
        working = everybody[rng.random(len(everybody)) >= DAY_OFF_PROBABILITY]
        work, start, end = people.work[working], people.work_start[working], people.work_end[working]
        overnight = kind.work_start > kind.work_end
        if kind.work_category and overnight:
            if (weekday - 1) % 7 in WEEKDAYS:
                stay(working, work, np.zeros_like(start), end)
            if weekday in WEEKDAYS:
                stay(working, work, start, np.full_like(end, 24))
        elif kind.work_category and weekday in WEEKDAYS:
            stay(working, work, start, end)
            if kind.by_train:
                stay(working, city.nearest_station[people.home[working]], start - 1, start)
                stay(working, city.nearest_station[work], end, end + 1)
        for outing in kind.outings:
            if weekday not in outing.days:
                continue
            candidates = working if outing.from_work else everybody
            who = candidates[rng.random(len(candidates)) < outing.probability]
            begin = rng.integers(outing.first_start, outing.last_start + 1, size=len(who))
            hours = rng.integers(1, outing.longest + 1, size=len(who))
            stay(who, _destinations(city, people, who, outing, rng), begin, begin + hours)
    return place


def _destinations(
    city: _City, people: _People, who: np.ndarray, outing: _Outing, rng: np.random.Generator
) -> np.ndarray:
    """Where people go: their favourite place of a category, or one chosen by gravity."""
    names = list(outing.weights)
    category = rng.choice(len(names), size=len(who), p=list(outing.weights.values()))
    origin = (people.work if outing.from_work else people.home)[who]
    where = np.empty(len(who), int)
    for number, name in enumerate(names):
        chosen = np.flatnonzero(category == number)
        near = city.members[name][city.leisure[name].draw(origin[chosen], rng)]
        # Habits belong to free time; lunch is taken near the work place.
        habit = (rng.random(len(chosen)) < HABIT_PROBABILITY) & (not outing.from_work)
        where[chosen] = np.where(habit, people.favourite[name][who[chosen]], near)
    return where


def _draw_friendships(city: _City, people: _People, rng: np.random.Generator) -> np.ndarray:
    """Friends, mostly of the same cluster and with close homes; some people have many, shape (pairs, 2)."""
    n, n_clusters = len(people.home), len(CLUSTERS)
    sociability = rng.gamma(2.0, MEAN_FRIENDS / 2 / 2.0, size=n)
    user = np.repeat(np.arange(n), rng.poisson(sociability))
    same = rng.random(len(user)) < SAME_CLUSTER_PROBABILITY
    cluster = np.where(same, people.cluster[user], people.cluster[rng.integers(n, size=len(user))])

    homes = city.members["home"]
    home_of = np.searchsorted(homes, people.home)
    group = people.cluster * len(homes) + home_of
    by_group = np.argsort(group, kind="stable")
    size = np.bincount(group, minlength=n_clusters * len(homes)).reshape(n_clusters, len(homes))
    first = np.concatenate([[0], np.cumsum(size.ravel())])
    closeness = np.exp(-_distances(city.position_km[homes], city.position_km[homes]) / FRIEND_DECAY_KM)
    attraction = size[:, None, :] * closeness[None]
    home_choice = _Categorical.build(attraction.reshape(-1, len(homes)) + 1e-300)
    home = home_choice.draw(cluster * len(homes) + home_of[user], rng)
    chosen_group = cluster * len(homes) + home
    n_there = size.ravel()[chosen_group]
    found = n_there > 0
    user, chosen_group, n_there = user[found], chosen_group[found], n_there[found]
    friend = by_group[first[chosen_group] + rng.integers(n_there)]
    pairs = np.sort(np.stack([user, friend], axis=1), axis=1)
    return np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0).astype(np.int32).reshape(-1, 2)
