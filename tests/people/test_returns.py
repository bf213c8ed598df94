"""Returns: possible returns and their likelihood by loops, and planted parameters that are found again."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.people import returns
from ppmtf_jax.people.bins import MAX_ATTRACTION
from ppmtf_jax.people.counts import Transitions
from ppmtf_jax.people.returns import (
    PRECISION,
    RATE_MASS,
    Choices,
    _few,
    _log_of_moves,
    choices_of,
    log_popularity_ratio,
    maximum_likelihood,
    rates_of_places,
    share_of_returns,
)
from ppmtf_jax.people.user_bounds import CHECKIN_RETURNS, STEP_USERS, UNIT
from tests.people.examples import movement_of, people
from tests.people.towns import commuters


@pytest.fixture(scope="module")
def windows():
    return people(n_users=20).cut_into_periods(2)


def choices_by_loop(windows, is_other, movement) -> list:
    """Of each move to one of the other places, the user, number of places, and what each possible return is like."""
    population = movement.counts.population
    ratio, found = log_popularity_ratio(population), []
    key, arrivals, history, last = None, {}, [], None
    rows = zip(windows.user, windows.trace, windows.instant, windows.slot, windows.place, is_other, strict=True)
    for user, trace, instant, slot, place, at_other in rows:
        if key != (user, trace):
            key, arrivals, history = (user, trace), {}, []
        if history and history[-1] == place:
            last = instant
            continue
        others = {other: n for other, n in arrivals.items() if history[-1] != other}
        if at_other and history and others:
            options = []
            for other, n in sorted(others.items()):
                is_step = instant == last + 1
                step = Transitions(*(np.array([each]) for each in (user, slot, history[-1], other)), *population.shape)
                weight = np.exp(movement.log_probabilities(step)[0])
                weight /= 1 - movement.stays.at_place[slot, history[-1]]
                near = np.clip(np.log(weight / population[slot, other]), -MAX_ATTRACTION, MAX_ATTRACTION)
                is_back = len(history) > 1 and history[-2] == other
                options.append((n, is_step * is_back, ratio[slot, other], is_step * near, other == place))
            found.append((user, len(arrivals), options))
        if at_other:
            arrivals[place] = arrivals.get(place, 0) + 1
        history.append(place)
        last = instant
    return found


def test_choices_are_those_of_a_loop(windows):
    movement, is_other = movement_of(windows), windows.place % 5 != 0
    choices = choices_of(windows, is_other, movement)
    expected = choices_by_loop(windows, is_other, movement)
    assert choices.user.tolist() == [user for user, _, _ in expected]
    assert choices.n_places.tolist() == [n for _, n, _ in expected]
    assert choices.is_return.tolist() == [any(option[-1] for option in options) for _, _, options in expected]
    assert (np.diff(choices.move) >= 0).all()
    columns = np.column_stack([choices.arrivals, choices.features, choices.is_chosen])
    for move, (_, _, options) in enumerate(expected):
        found = sorted(columns[choices.move == move].tolist())
        np.testing.assert_allclose(found, sorted(map(list, options)), rtol=1e-5, atol=1e-6)


def test_the_likelihood_of_moves_is_that_of_a_loop(windows):
    """And appended moves without weight change nothing."""
    choices = choices_of(windows, np.ones(windows.n_events, bool), movement_of(windows))
    weight = np.linspace(0.5, 1, len(choices.user))
    point = np.array([0.3, 0.7, -0.5, 0.4, 0.2])
    discount, strength = 1 / (1 + np.exp(-0.3)), np.exp(0.7)
    expected = -0.5 * PRECISION @ point**2
    for move, (n_places, is_return) in enumerate(zip(choices.n_places, choices.is_return, strict=True)):
        own = choices.move == move
        back = (choices.arrivals[own] - discount) * np.exp(choices.features[own] @ point[2:])
        new = strength + discount * n_places
        chosen = back[choices.is_chosen[own]].sum() if is_return else new
        expected += weight[move] * np.log(chosen / (back.sum() + new))
    with jax.enable_x64(True):
        for given in ((choices, weight), choices.padded(weight)):
            given = jax.tree.map(jnp.asarray, given)
            assert float(_log_of_moves(jnp.asarray(point), given)) == pytest.approx(expected, rel=1e-9)


def simulated(n_users: int, *, discount: float, strength: float, back: float, seed: int = 0) -> Choices:
    """Twenty moves of each user with known parameters, among 1,000 places without distances."""
    rng = np.random.default_rng(seed)
    users, numbers, again, move, arrivals, features, chosen = [], [], [], [], [], [], []
    for user in range(n_users):
        count, now, before = {0: 1, 1: 1}, 1, 0
        for _ in range(20):
            others = [place for place in count if place != now]
            weight = np.array([(count[place] - discount) * np.exp(back * (place == before)) for place in others])
            new = strength + discount * len(count)
            drawn = rng.choice(len(others) + 1, p=np.append(weight, new) / (weight.sum() + new))
            following = others[drawn] if drawn < len(others) else len(count)
            for place in others:
                move.append(len(users))
                arrivals.append(count[place])
                features.append((place == before, 0, 0))
                chosen.append(place == following)
            users.append(user)
            numbers.append(len(count))
            again.append(drawn < len(others))
            count[following] = count.get(following, 0) + 1
            now, before = following, now
    columns = (np.array(each) for each in (users, numbers, again, move, arrivals))
    return Choices(*columns, np.array(features, float), np.array(chosen))


def test_planted_parameters_are_found():
    """Within 5 standard errors, from the curvature of the loss; a fit that takes the discount for 0 is off."""
    planted = {"discount": 0.5, "strength": 2.0, "back": -1.0}
    choices = simulated(300, **planted)
    process = maximum_likelihood(choices)
    point = np.array([np.log(process.discount / (1 - process.discount)), np.log(process.strength), process.back, 0, 0])
    with jax.enable_x64(True):
        given = jax.tree.map(jnp.asarray, (choices, np.ones(len(choices.user))))
        rows = -jax.hessian(_log_of_moves)(jnp.asarray(point), given)[:3, :3]
    error = np.sqrt(np.diag(np.linalg.inv(np.array(rows))))
    away = np.abs(point[:3] - [0.0, np.log(planted["strength"]), planted["back"]])
    assert (away < 5 * error).all()
    assert error.max() < 0.5
    # The bug: arrivals count in full.
    bug = maximum_likelihood(choices._replace(arrivals=choices.arrivals + 0.5))
    assert abs(np.log(bug.discount / (1 - bug.discount))) > 5 * error[0]


def test_nobody_weighs_more_than_the_second():
    """A user with a thousand moves, all returns, changes the parameters by no more than a user with twenty."""
    choices = simulated(60, discount=0.3, strength=3.0, back=0.0)
    before = np.array(maximum_likelihood(choices))
    n, more = len(choices.user), 1000
    added = Choices(
        np.append(choices.user, np.full(more, 60)),
        np.append(choices.n_places, np.full(more, 2)),
        np.append(choices.is_return, np.ones(more, bool)),
        np.append(choices.move, n + np.arange(more)),
        np.append(choices.arrivals, np.ones(more, int)),
        np.concatenate([choices.features, np.zeros((more, 3))]),
        np.append(choices.is_chosen, np.ones(more, bool)),
    )
    rows = np.r_[0:n, n : n + 20]
    few = Choices(*(each[rows] for each in added[:3]), *(each[: len(choices.move) + 20] for each in added[3:]))
    after, bounded = (np.array(maximum_likelihood(each)) for each in (added, few))
    np.testing.assert_allclose(after, bounded, rtol=0.02, atol=0.02)
    assert np.abs(after - before).max() > 1e-3


def test_few_users_take_part_where_they_have_many_moves(windows, monkeypatch):
    monkeypatch.setattr(returns, "MAX_CHOICES", 200)
    is_other = windows.place > 2
    some, of_some = _few(windows, is_other, np.random.default_rng(0).permutation(windows.n_users))
    assert 0 < some.n_users < 20
    np.testing.assert_array_equal(of_some, some.place > 2)


def runs_by_loop(windows) -> list[tuple]:
    """(window, whether a move leads to it, whether it is a return) of each run, by a loop over the events."""
    found, history = [], []
    window = -1
    for number, place in zip(windows.trace_of_event().tolist(), windows.place.tolist(), strict=True):
        if number != window:
            window, history = number, []
        if not history or history[-1] != place:
            found.append((number, bool(history), place in history))
            history.append(place)
    return found


def test_return_share_counts_no_user_more_than_the_second():
    traces = commuters(n_users=12, n_periods=3, present=0.8)
    windows = traces.cut_into_periods()
    moves, returns = np.zeros(traces.n_users), np.zeros(traces.n_users)
    user_of_window = windows.trace_table()[0]
    for window, is_move, is_return in runs_by_loop(windows):
        moves[user_of_window[window]] += is_move
        returns[user_of_window[window]] += is_return
    n_return, n_other = (np.minimum(n, np.sort(n)[-2]).sum() for n in (returns, moves - returns))
    assert share_of_returns(windows.blocks) == pytest.approx((n_return + 0.5) / (n_return + n_other + 1))
    # Returns are not counted across windows: whole traces have more of them.
    assert share_of_returns(traces.blocks) > share_of_returns(windows.blocks) + 0.1


def visits_of(seed: int = 0, n: int = 400, n_users: int = 12, n_places: int = 5):
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
    user, place, observed, expected = visits_of()
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


def test_one_more_user_changes_a_rate_by_at_most_their_five_returns():
    user, place, observed, expected = visits_of()
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
        # They add at most 5 returns, and the heaviest of the others may then weigh up to 5 more.
        most = more_share * 2 * CHECKIN_RETURNS + (more_share - share) * max(returns - less, 0)
        assert np.exp(after[each]) - np.exp(before[each]) <= most / (less + RATE_MASS)
        unlimited = returns + 1000 - less - 5
        assert np.exp(after[each]) < 0.1 * unlimited / (less + 5 + RATE_MASS)
