"""The toy city: reproducible, valid, alive, and with a truth that can be found again."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets import toy_city as module
from ppmtf_jax.datasets.toy_city import ToyCity, toy_city, toy_city_pieces
from ppmtf_jax.errors import InputError

EVENT_FIELDS = ("user", "trace", "instant", "place")


@pytest.fixture(scope="module")
def city() -> ToyCity:
    return toy_city(1000, missing=0.0, seed=3)


def category_share(city: ToyCity, cluster: str, day: int, hours: range) -> dict[str, float]:
    """Shares of the categories among the events of a cluster at some hours of a day (0 is Monday)."""
    traces = city.traces
    chosen = city.cluster[traces.user] == city.cluster_names.index(cluster)
    chosen &= np.isin(traces.instant, [24 * day + hour for hour in hours])
    names, counts = np.unique(traces.places.category[traces.place[chosen]].astype(str), return_counts=True)
    return dict(zip(names.tolist(), (counts / counts.sum()).tolist(), strict=True))


def distance_km(city: ToyCity, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    places = city.traces.places
    north = 111.2 * (places.latitude[a] - places.latitude[b])
    east = 111.2 * np.cos(np.radians(52.0)) * (places.longitude[a] - places.longitude[b])
    return np.hypot(north, east)


def test_is_a_valid_trace_set(city: ToyCity, tmp_path) -> None:
    traces = city.traces
    assert (traces.n_users, traces.n_places, traces.n_events) == (1000, 100, 1000 * 7 * 24)
    assert traces.time_grid.n_slots == 12
    assert traces.time_grid.one_period().n_instants == 24
    assert traces.time_grid.time_of(0).weekday() == 0
    traces.save(tmp_path / "city")
    again = Traces.load(tmp_path / "city")
    for name in (*EVENT_FIELDS, "user_ids", "friendships"):
        np.testing.assert_array_equal(getattr(again, name), getattr(traces, name))
        assert getattr(again, name).dtype == getattr(traces, name).dtype
    assert again.time_grid == traces.time_grid


@pytest.mark.parametrize(("n_users", "n_places"), [(1, 8), (2, 333), (7, 9)])
def test_any_size(n_users: int, n_places: int) -> None:
    city = toy_city(n_users, n_places=n_places, n_days=1)
    assert city.traces.n_users == n_users
    assert len(set(city.traces.places.ids)) == n_places
    assert set(city.traces.places.category) == set(module.CATEGORIES)


def test_missing_events_change_nothing_else() -> None:
    full, holes = toy_city(50, missing=0.0).traces, toy_city(50, missing=0.5).traces
    where = holes.user.astype(int) * full.time_grid.n_instants + holes.instant
    np.testing.assert_array_equal(full.place[where], holes.place)
    # Each user keeps an event.
    assert set(toy_city(300, n_days=1, missing=0.999).traces.user) == set(range(300))


def test_the_same_seed_gives_the_same_city_in_every_version() -> None:
    """Benchmarks and documentation quote numbers of the toy city, so no change may alter it unnoticed."""
    traces = toy_city(n_users=30, n_places=20, n_days=2, seed=0).traces
    assert (traces.n_events, int(traces.place.astype(int) @ (traces.instant + 1))) == (1152, 150884)


def test_a_longer_simulation_begins_with_the_shorter_and_the_seed_decides() -> None:
    short, long, other = toy_city(50, n_days=2), toy_city(50, n_days=3), toy_city(50, n_days=2, seed=1)
    assert not np.array_equal(short.traces.places.latitude, other.traces.places.latitude)
    begin = long.traces.instant < 48
    np.testing.assert_array_equal(long.traces.place[begin], short.traces.place)
    np.testing.assert_array_equal(long.traces.instant[begin], short.traces.instant)


def test_pieces_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_USERS", 40)
    whole = toy_city(100, n_days=2)
    larger = toy_city(130, n_days=2)
    pieces = list(toy_city_pieces(100, n_days=2))
    assert [piece.traces.n_users for piece in pieces] == [40, 40, 20]
    assert [piece.traces.user_ids[0] for piece in pieces] == [0, 40, 80]
    np.testing.assert_array_equal(whole.home, np.concatenate([piece.home for piece in pieces]))
    np.testing.assert_array_equal(whole.traces.place, np.concatenate([piece.traces.place for piece in pieces]))
    validated = Traces.from_frame(whole.traces.to_frame(), whole.traces.places, whole.traces.time_grid)
    for name in EVENT_FIELDS:
        np.testing.assert_array_equal(getattr(validated, name), getattr(whole.traces, name))
    friends = np.concatenate([piece.traces.user_ids[piece.traces.friendships] for piece in pieces])
    np.testing.assert_array_equal(whole.traces.friendship_frame().to_numpy(), friends)
    # Complete blocks do not depend on how many users follow.
    n_same = int((whole.traces.user < 80).sum())
    np.testing.assert_array_equal(larger.traces.place[:n_same], whole.traces.place[:n_same])


@pytest.mark.parametrize(
    ("arguments", "n_problems"),
    [
        ({"n_users": 0}, 1),
        ({"n_places": 7}, 1),
        ({"n_days": 0, "missing": 1.0}, 2),
        ({"missing": float("nan"), "seed": -1}, 2),
    ],
)
def test_bad_arguments_are_all_listed(arguments: dict, n_problems: int) -> None:
    with pytest.raises(InputError) as caught:
        toy_city(**{"n_users": 5, **arguments})
    assert len(caught.value.problems) == n_problems


def test_nights_at_home_middays_at_work_weekends_out(city: ToyCity) -> None:
    assert category_share(city, "office commuters", 1, range(6)) == {"home": 1.0}
    assert category_share(city, "office commuters", 1, range(14, 16))["office"] > 0.85
    assert category_share(city, "students", 2, range(12, 14))["university"] > 0.6
    assert category_share(city, "night workers", 3, range(5))["hospital"] > 0.85
    weekend = category_share(city, "office commuters", 5, range(13, 17))
    assert "office" not in weekend
    assert weekend["shop"] + weekend["park"] > 0.2
    assert "restaurant" in category_share(city, "office commuters", 2, range(12, 13))


def test_home_and_work_are_the_places_of_the_truth(city: ToyCity) -> None:
    traces = city.traces
    night = traces.instant == 24 + 3
    commuter = city.cluster == city.cluster_names.index("office commuters")
    at_night = traces.place[night]
    np.testing.assert_array_equal(at_night[commuter], city.home[commuter])
    retired = city.cluster == city.cluster_names.index("retired")
    np.testing.assert_array_equal(city.work == -1, retired)
    assert set(traces.places.category[city.home]) == {"home"}


def test_friends_are_alike_and_near(city: ToyCity) -> None:
    friends = city.traces.friendships
    assert (friends[:, 0] < friends[:, 1]).all()
    assert len(np.unique(friends, axis=0)) == len(friends)
    rng = np.random.default_rng(0)
    strangers = rng.integers(city.traces.n_users, size=(5000, 2))
    same = [np.mean(city.cluster[pairs[:, 0]] == city.cluster[pairs[:, 1]]) for pairs in (friends, strangers)]
    apart = [distance_km(city, *city.home[pairs].T).mean() for pairs in (friends, strangers)]
    assert same[0] > 0.8 > 0.5 > same[1]
    assert apart[0] < 0.5 * apart[1]
    degree = np.bincount(friends.ravel(), minlength=city.traces.n_users)
    assert 6 < degree.mean() < module.MEAN_FRIENDS
    assert degree.var() > 1.5 * degree.mean()


def test_the_clusters_can_be_found_again() -> None:
    city = toy_city(400, seed=5)
    traces = city.traces
    names, category = np.unique(traces.places.category.astype(str), return_inverse=True)
    profile = np.zeros((traces.n_users, traces.time_grid.n_slots * len(names)))
    np.add.at(profile, (traces.user, traces.slot * len(names) + category[traces.place]), 1)
    profile /= profile.sum(axis=1, keepdims=True)
    found = KMeans(len(city.cluster_names), n_init=3, random_state=0).fit_predict(profile)
    assert adjusted_rand_score(city.cluster, found) > 0.95


def test_more_people_than_memory_are_refused_before_they_are_made():
    with pytest.raises(InputError, match=r"toy city: expected .* GB of memory .*Take fewer users or days"):
        toy_city(10**12)
