"""A simulated city: the homes, work places, habits and clusters of its people are known.

It needs no download. Because the truth is known, the city shows whether a method finds the truth. People belong to one
of four clusters that live in different quarters and keep different hours; they commute, eat, shop and go out to places
chosen by gravity (near and popular places first) or habit. Nothing here is private, so NumPy's generator will do.

Places have a random stream of their own, and so have people in blocks of `BLOCK_USERS`: a complete block is the same
whatever the number of users, and a city too large for memory can be made in pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, get_args

import numpy as np
from annotated_types import Ge, Lt

from ppmtf_jax.data.events import EVENT_COLUMNS
from ppmtf_jax.data.places import MIN_USERS_PER_PLACE, PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.trace_set import EVENT_BYTES
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.discretize import Period
from ppmtf_jax.datasets.registry import DATA_SETS, DataSet, split_users
from ppmtf_jax.datasets.summary import Imported
from ppmtf_jax.datasets.toy_people import (
    BUSINESS_PARK,
    CATEGORIES,
    CATEGORY_SHARE,
    CLUSTER_NAMES,
    CLUSTERS,
    QUARTERS,
    WEEKDAYS,
    Outing,
)
from ppmtf_jax.errors import Problem, raise_any
from ppmtf_jax.runtime.memory import require_memory
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.settings import Count, Settings, Share

BLOCK_USERS = 10_000
MEAN_FRIENDS = 8.0
START = "2024-03-04T00:00:00"  # a Monday
CENTRE_LATITUDE, CENTRE_LONGITUDE = 52.0, 5.5
KM_PER_DEGREE = 111.2
HOURS = np.arange(24)

POPULARITY_EXPONENT = 0.8
WORK_DECAY_KM = 5.0
LEISURE_DECAY_KM = 1.5
FRIEND_DECAY_KM = 1.0
SAME_CLUSTER_PROBABILITY = 0.8
HABIT_PROBABILITY = 0.6
DAY_OFF_PROBABILITY = 0.06

PLACE_STREAM, PEOPLE_STREAM, DAY_STREAM, FRIEND_STREAM, KEPT_EVENT_STREAM = range(5)


@dataclass(frozen=True, eq=False)
class ToyCity:
    """Simulated traces and the truth behind them.

    Parameters
    ----------
    traces : Traces
        One trace for each user; hourly instants from Monday midnight in twelve cyclic two-hour slots; friendships.
    cluster : int array, shape (users,)
        True cluster of each user, an index into `cluster_names`.
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
    period: str = "day",
    seed: int = 0,
    progress: bool = False,
) -> ToyCity:
    """Simulate a city: who was where at each hour, who is whose friend, and the truth behind it.

    Raises `InputError`: arguments are out of range, or the city needs more memory than is available.

    Parameters
    ----------
    n_places : int
        At least 8, one of each category.
    n_days : int
        The first day is a Monday.
    missing : float
        Probability in [0, 1) that an event is absent, as in check-ins. Every user keeps at least one event.
    period : "day" or "week"
        What a synthetic trace will cover: two-hour slots repeat every day, or every week and differ at weekends.
    seed : int
        At least 0.

    Examples
    --------
    >>> city = toy_city(50, seed=1)
    >>> city.traces.n_users, city.traces.n_places, city.traces.time_grid.n_slots
    (50, 100, 12)
    >>> str(city.traces.places.category[city.home[0]]), city.cluster_names[0]
    ('home', 'office commuters')
    """
    pieces = []
    made = toy_city_pieces(n_users, n_places=n_places, n_days=n_days, missing=missing, period=period, seed=seed)
    require_memory("toy city", n_users * n_days * len(HOURS) * EVENT_BYTES, "Take fewer users or days")
    with progress_bar("simulating", n_users, show=progress, waits_for="") as advance:
        for piece in made:
            pieces.append(piece)
            advance(piece.traces.n_users)
    if len(pieces) == 1:
        return pieces[0]
    columns = {}
    for name in (*EVENT_COLUMNS, "user_ids", "friendships"):
        parts = [getattr(piece.traces, name) for piece in pieces]
        columns[name] = np.concatenate(parts)
        if name in ("user", "friendships"):
            # In place, because at a million users a second copy of all pieces takes too much memory.
            for number, part in enumerate(np.split(columns[name], np.cumsum([len(part) for part in parts])[:-1])):
                part += number * BLOCK_USERS
    cluster, home, work = (
        np.concatenate(parts) for parts in zip(*((each.cluster, each.home, each.work) for each in pieces), strict=True)
    )
    return ToyCity(replace(pieces[0].traces, **columns), cluster, CLUSTER_NAMES, home, work)


def toy_city_pieces(
    n_users: int, *, n_places: int = 100, n_days: int = 7, missing: float = 0.2, period: str = "day", seed: int = 0
) -> Iterator[ToyCity]:
    """The same city as `toy_city`, in pieces of `BLOCK_USERS` users, so that only one piece is in memory.

    All pieces have the same places and time grid. User ids are the numbers 0, 1, ... of the whole city. Friends are
    always in the same piece.
    """
    problems = []
    least = {"n_users": 1, "n_places": len(CATEGORIES), "n_days": 1, "seed": 0}
    for (name, minimum), value in zip(least.items(), (n_users, n_places, n_days, seed), strict=True):
        if not isinstance(value, (int, np.integer)) or value < minimum:
            problems.append(Problem(f"{name} as a whole number of at least {minimum}", repr(value)))
    if not 0 <= missing < 1:
        problems.append(Problem("missing as a probability of at least 0 and less than 1", repr(missing)))
    if period not in get_args(Period):
        problems.append(Problem(f"period among {', '.join(get_args(Period))}", repr(period)))
    raise_any("toy city", problems)
    grid_of = TimeGrid.weekly if period == "week" else TimeGrid.cyclic
    time_grid = grid_of(START, 3600, 24 * n_days, slot_s=7200)
    return _pieces(n_users, n_places, n_days, missing, time_grid, seed)


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
        How many days are simulated.
    missing : float
        Share of the events that are not recorded.
    period : "day" or "week"
        What a synthetic trace covers: "day", or "week", in which Saturday and Sunday have slots of their own.
    train_fraction : float
        Share of the users to learn from. The others are for testing.
    min_users_per_place : int
        Events at places with fewer training users are moved to the nearest place with enough training users. With 1, no
        event is moved, so the traces of a user do not depend on other users.
    """

    n_users: Annotated[int, Ge(2)] = 400
    n_places: Annotated[int, Ge(len(CATEGORIES))] = 100
    n_days: Count = 7
    missing: Annotated[float, Ge(0), Lt(1)] = 0.2
    period: Period = "day"
    train_fraction: Share = 0.8
    min_users_per_place: Count = MIN_USERS_PER_PLACE

    @property
    def places_are_public(self) -> bool:
        """Whether the place of an event does not depend on which other users visit it."""
        return self.min_users_per_place == 1


def _import(settings: ToyCitySettings, seed: int, progress: bool) -> Imported:
    size = {name: getattr(settings, name) for name in ("n_users", "n_places", "n_days", "missing", "period")}
    traces = toy_city(**size, seed=seed, progress=progress).traces
    least = settings.min_users_per_place
    report = f"a simulated city of {traces.n_users} users, {traces.n_places} places, {traces.n_events} events"
    if least > 1:
        report += f"\nplaces of fewer than {least} training users are joined with the nearest other place"
    return split_users(traces, report, settings.train_fraction, seed, min_users_per_place=least)


TITLE = "A simulated city, to try things out without any data."
DATA_SETS.register(DataSet("toy-city", TITLE, ToyCitySettings, _import, "toy-city --users 400"))


def _pieces(
    n_users: int, n_places: int, n_days: int, missing: float, time_grid: TimeGrid, seed: int
) -> Iterator[ToyCity]:
    city = _City(n_places, np.random.default_rng([seed, PLACE_STREAM]))
    for block in range(-(-n_users // BLOCK_USERS)):
        first = block * BLOCK_USERS
        n_block = min(BLOCK_USERS, n_users - first)
        people = _People(n_block, city, np.random.default_rng([seed, PEOPLE_STREAM, block]))
        place = np.empty((n_block, n_days, 24), np.int32)
        present = np.empty((n_block, n_days, 24), bool)
        for day in range(n_days):
            # Each day has its own stream, so a longer simulation begins with the days of a shorter one.
            rng = np.random.default_rng([seed, DAY_STREAM, block, day])
            place[:, day] = _simulate_day(city, people, day % 7, rng)
            present[:, day] = rng.random((n_block, 24)) >= missing
        place, present = place.reshape(n_block, -1), present.reshape(n_block, -1)
        silent = np.flatnonzero(~present.any(axis=1))
        rng = np.random.default_rng([seed, KEPT_EVENT_STREAM, block])
        present[silent, rng.integers(present.shape[1], size=len(silent))] = True
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


class _Categorical:
    """Categorical distributions, one for each row of weights; a draw is one binary search."""

    def __init__(self, weights: np.ndarray):
        cumulative = np.cumsum(weights, axis=1)
        cumulative /= cumulative[:, -1:]
        # Row i takes the interval [i, i + 1], so that all rows together are one sorted array.
        self.edges = (cumulative + np.arange(len(weights))[:, None]).ravel()
        self.n_columns = weights.shape[1]

    def draw(self, row: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        found = np.searchsorted(self.edges, row + rng.random(len(row)), side="right")
        return np.minimum(found - row * self.n_columns, self.n_columns - 1)


class _City:
    """The map, and how places attract people."""

    def __init__(self, n_places: int, rng: np.random.Generator):
        # Number of places of each category: one, plus a share of the others by largest remainders.
        ideal = (n_places - len(CATEGORIES)) * np.array(list(CATEGORY_SHARE.values()))
        n_of = 1 + ideal.astype(int)
        n_of[np.argsort(-(ideal % 1), kind="stable")[: n_places - n_of.sum()]] += 1
        counts = dict(zip(CATEGORIES, n_of.tolist(), strict=True))
        position_km = np.concatenate([_scatter(name, count, rng) for name, count in counts.items()])
        category = np.repeat(np.array(CATEGORIES, object), n_of)
        members = {name: np.flatnonzero(category == name) for name in CATEGORIES}
        distance_km = _distances(position_km, position_km)
        popularity = np.concatenate([np.arange(1, count + 1.0) ** -POPULARITY_EXPONENT for count in counts.values()])

        def gravity(name: str, decay_km: float) -> _Categorical:
            there = members[name]
            return _Categorical(popularity[there] * np.exp(-distance_km[:, there] / decay_km))

        latitude = CENTRE_LATITUDE + position_km[:, 1] / KM_PER_DEGREE
        longitude_km = KM_PER_DEGREE * np.cos(np.radians(CENTRE_LATITUDE))
        ids = np.array([f"{name}_{i}" for name, count in counts.items() for i in range(count)], object)
        self.places = PlaceTable(ids, latitude, CENTRE_LONGITUDE + position_km[:, 0] / longitude_km, category)
        self.members = members
        self.work = {c.work_category: gravity(c.work_category, WORK_DECAY_KM) for c in CLUSTERS if c.work_category}
        self.leisure = {name: gravity(name, LEISURE_DECAY_KM) for name in CATEGORIES}
        self.nearest_station = members["station"][distance_km[:, members["station"]].argmin(axis=1)]
        self.between_homes_km = distance_km[np.ix_(members["home"], members["home"])]
        # Weight of each home area for the people of each cluster, shape (clusters, homes).
        nearest_km = [
            _distances(position_km[members["home"]], np.array([QUARTERS[name] for name in kind.quarters])).min(axis=1)
            for kind in CLUSTERS
        ]
        self.homes = _Categorical(np.exp(-0.5 * (np.array(nearest_km) / 1.2) ** 2) + 0.01)


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


class _People:
    """The properties of people that stay the same from day to day, one entry for each person of a block."""

    def __init__(self, n: int, city: _City, rng: np.random.Generator):
        self.cluster = rng.choice(len(CLUSTERS), size=n, p=[kind.share for kind in CLUSTERS])
        self.home = city.members["home"][city.homes.draw(self.cluster, rng)]
        self.work = np.full(n, -1)
        self.work_start, self.work_end = np.zeros((2, n), int)
        for number, kind in enumerate(CLUSTERS):
            who = np.flatnonzero(self.cluster == number)
            if kind.work_category:
                chosen = city.work[kind.work_category].draw(self.home[who], rng)
                self.work[who] = city.members[kind.work_category][chosen]
            for hours, (low, high) in ((self.work_start, kind.work_start), (self.work_end, kind.work_end)):
                hours[who] = rng.integers(low, high + 1, size=len(who))
        self.favourite = {name: city.members[name][city.leisure[name].draw(self.home, rng)] for name in CATEGORIES}
        # Students study where they are enrolled, at weekends too.
        is_student = self.cluster == CLUSTER_NAMES.index("students")
        self.favourite["university"] = np.where(is_student, self.work, self.favourite["university"])


def _simulate_day(city: _City, people: _People, weekday: int, rng: np.random.Generator) -> np.ndarray:
    """Place of each person at each hour of a day: home, or a stay elsewhere, shape (people, 24)."""
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
    city: _City, people: _People, who: np.ndarray, outing: Outing, rng: np.random.Generator
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
    attraction = size[:, None, :] * np.exp(-city.between_homes_km / FRIEND_DECAY_KM)[None]
    home_choice = _Categorical(attraction.reshape(-1, len(homes)) + 1e-300)
    home = home_choice.draw(cluster * len(homes) + home_of[user], rng)
    chosen_group = cluster * len(homes) + home
    n_there = size.ravel()[chosen_group]
    found = n_there > 0
    user, chosen_group, n_there = user[found], chosen_group[found], n_there[found]
    friend = by_group[first[chosen_group] + rng.integers(n_there)]
    pairs = np.sort(np.stack([user, friend], axis=1), axis=1)
    return np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0).astype(np.int32).reshape(-1, 2)
