import numpy as np
import pytest

from ppmtf_jax.bridge.checkins.returns import RATE_MASS, rates_of_places
from ppmtf_jax.bridge.contributions import CHECKIN_RETURNS, STEP_USERS, UNIT


def rows(seed: int = 0, n: int = 400, n_users: int = 12, n_places: int = 5):
    rng = np.random.default_rng(seed)
    user, place = rng.integers(0, n_users, n), rng.integers(0, n_places, n)
    return user, place, (rng.random(n) < 0.3).astype(float), rng.random(n) * 0.5


def sums_by_loop(user, place, observed, expected, of_place, without=None):
    """Share of used returns of a place, returns, and expected returns.

    `without`: a user whose returns are left out of the sums, though not out of the limits.
    """
    sums = {}
    for each in np.unique(user[place == of_place]).tolist():
        own = (user == each) & (place == of_place)
        sums[each] = np.array([observed[own].sum(), expected[own].sum()])
    weight = {each: min(max(both), CHECKIN_RETURNS) for each, both in sums.items()}
    second = sorted(weight.values())[-2] if len(weight) > 1 else 0
    scaled = {each: both / max(both) * min(weight[each], second) for each, both in sums.items()}
    share = max(len(sums) - STEP_USERS + 1, 0) / max(len(sums), 1)
    total = sum((both for each, both in scaled.items() if each != without), np.zeros(2))
    return share, total[0], total[1]


def rate_by_loop(*arguments, **named):
    share, returns, expected = sums_by_loop(*arguments, **named)
    return np.log(1 + share * (returns - expected) / (expected + RATE_MASS))


def test_rates_are_those_of_a_loop_and_leave_the_person_out():
    # The weight of each of 12 users is rounded down to a multiple of `UNIT`, and beside `RATE_MASS` this is the error.
    error = 2 * 12 * UNIT / RATE_MASS
    user, place, observed, expected = rows()
    rate, without = rates_of_places(user, place, observed, expected, 6)
    for each in range(5):
        assert rate[each] == pytest.approx(rate_by_loop(user, place, observed, expected, each), abs=error)
    assert rate[5] == 0  # nobody could return there
    for row in range(0, len(user), 37):
        wanted = rate_by_loop(user, place, observed, expected, place[row], without=user[row])
        assert without[row] == pytest.approx(wanted, abs=error)


def test_a_place_with_few_users_has_the_rate_of_all_places():
    user = np.repeat(np.arange(STEP_USERS - 1), 10)
    rate, without = rates_of_places(user, np.zeros_like(user), np.ones(len(user)), np.full(len(user), 0.1), 1)
    assert rate.tolist() == [0]
    assert not without.any()


def test_one_more_user_changes_a_rate_by_at_most_her_five_returns():
    user, place, observed, expected = rows()
    before = rates_of_places(user, place, observed, expected, 5)[0]
    # A user with 1,000 returns to each place.
    more = np.repeat(np.arange(5), 1000)
    after = rates_of_places(
        np.append(user, np.full(len(more), 99)),
        np.append(place, more),
        np.append(observed, np.ones(len(more))),
        np.append(expected, np.full(len(more), 1e-3)),
        5,
    )[0]
    for each in range(5):
        share, returns, less = sums_by_loop(user, place, observed, expected, each)
        users = len(np.unique(user[place == each]))
        more_share = (users + 2 - STEP_USERS) / (users + 1)
        # She adds at most 5 returns herself, and the heaviest of the others may then weigh up to 5 more.
        most = more_share * 2 * CHECKIN_RETURNS + (more_share - share) * max(returns - less, 0)
        assert np.exp(after[each]) - np.exp(before[each]) <= most / (less + RATE_MASS)
        unlimited = returns + 1000 - less - 5
        assert np.exp(after[each]) < 0.1 * unlimited / (less + 5 + RATE_MASS)
