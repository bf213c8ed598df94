"""Lights by hand, and what holds for all: more leak never gives a better light, nor do fewer people."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppmtf_jax.privacy.limits import (
    ADVANTAGE,
    COPIED,
    EXPOSED,
    FINDING_LIMITS,
    FOUND,
    INFERRED,
    MEMBERSHIP_AUC,
    NAMED,
    SURE,
    TRACKED,
    Limit,
    Status,
    advantage_interval,
    auc_interval,
    grade,
    people_of_both,
    rule,
    share_interval,
    shows_leak,
    sureness,
    worst,
)
from tests.private.least_epsilon import least_epsilon

GOOD, FAIR, POOR, UNKNOWN, _ = Status
ESTIMATED = (NAMED, MEMBERSHIP_AUC, FOUND, ADVANTAGE, INFERRED)

limits = st.sampled_from(ESTIMATED)
shares = st.floats(0, 1)
crowds = st.floats(1, 1e5)


@pytest.mark.parametrize(
    ("limit", "value", "people", "status"),
    [
        # Ten in a hundred members found with one false alarm in a hundred.
        (FOUND, 0.10, 1000, POOR),
        # Of thousands of people, one exposed person is not good, and two are poor.
        (EXPOSED, 0, 10_000, GOOD),
        (EXPOSED, 1, 10_000, FAIR),
        (EXPOSED, 2, 10_000, POOR),
        (EXPOSED, 2, 10, POOR),
        (EXPOSED, 0, 99, UNKNOWN),
        (EXPOSED, 0, 100, GOOD),
        (MEMBERSHIP_AUC, 0.53, 1000, GOOD),
        # 500 members and 4 others tell as much as 7.9 of each.
        (MEMBERSHIP_AUC, 0.70, people_of_both(500, 4), UNKNOWN),
        (MEMBERSHIP_AUC, 0.757, 500, POOR),
        (MEMBERSHIP_AUC, 0.57, 500, FAIR),
        (FOUND, 0.093, 500, POOR),
        (FOUND, 0.032, 500, FAIR),
        (FOUND, 0.01, 500, GOOD),
        (FOUND, 0.0, 5, UNKNOWN),
        (NAMED, 0.0, 20, UNKNOWN),
        (NAMED, 0.0, 100, FAIR),
        (NAMED, 0.0, 200, GOOD),
        (NAMED, 0.012, 500, GOOD),
        (NAMED, 0.84, 500, POOR),
        (FOUND, math.nan, 500, UNKNOWN),
        (NAMED, 0.0, 0, UNKNOWN),
    ],
)
def test_lights(limit: Limit, value: float, people: float, status: Status) -> None:
    assert limit.judge(value, people).status is status


def test_two_targets_who_are_both_named_are_not_good() -> None:
    """Of two, a guess names half: that both are right happens in a quarter of all cases."""
    found = NAMED.judge(1.0, 2, guess=0.5)
    assert found.status is UNKNOWN
    assert (found.people, found.needed) == (2, 36)


def test_of_two_sets_both_numbers_are_told() -> None:
    """With 320 training users it is the 40 others that are too few: 120 of each would do."""
    found = FOUND.judge(0.02, people=(320, 40))
    assert (found.status, found.people) == (UNKNOWN, (320, 40))
    assert (found.low, found.high) == FOUND.interval(0.02, people_of_both(320, 40))
    assert "320 training users and 40 others" in found.text
    assert f"{found.needed} of each" in found.text
    # .05^(1/3) = .37 and more of three would still be a guess of one in three; of ten, none is.
    assert NAMED.judge(1.0, 10, guess=0.1).status is POOR


def test_an_interval_that_was_found_otherwise_counts_where_it_is_wider() -> None:
    narrow, wide = (0.529, 0.531), (0.32, 0.9)
    assert MEMBERSHIP_AUC.judge(0.53, 1000, narrow) == MEMBERSHIP_AUC.judge(0.53, 1000)
    found = MEMBERSHIP_AUC.judge(0.70, 1000, wide)
    assert (found.status, found.low, found.high) == (UNKNOWN, 0.32, 0.9)
    assert found.needed is not None
    assert found.needed > 1000


def test_a_leak_that_another_number_shows_is_never_not_known() -> None:
    """Of 50 people, 2 are found: up to 14 %, and maybe nobody. An area of .7 of 1,000 people is no guess."""
    assert FOUND.judge(0.04, 50).status is UNKNOWN
    assert FOUND.judge(0.04, 50, is_leak=shows_leak(0.7, 1000, (0.65, 0.75))).status is POOR
    assert FOUND.judge(0.01, 1000, is_leak=True).status is GOOD
    assert not shows_leak(0.7, 1000, (0.49, 0.8))
    assert not shows_leak(0.7, 8, (0.65, 0.75))


def test_intervals_by_hand() -> None:
    # 0 of n: (1 - p)^n = .025.
    assert share_interval(0.0, 40) == (0.0, pytest.approx(1 - 0.025 ** (1 / 40)))
    assert share_interval(1.0, 40) == (pytest.approx(0.025 ** (1 / 40)), 1.0)
    # The variance of the Mann-Whitney statistic, (n + m + 1) / (12 n m), for large n = m.
    assert auc_interval(0.5, 600) == pytest.approx((0.5 - 1.96 / 60, 0.5 + 1.96 / 60), abs=1e-5)
    # exp(-2 d^2 n m / (n + m)) = .025 with n = m = 100.
    assert advantage_interval(0.5, 100)[0] == pytest.approx(0.5 - math.sqrt(math.log(40) / 100))
    assert people_of_both(250, 500) == pytest.approx(1000 / 3)


def answers(epsilon: float, delta: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """1,000 randomized answers without and with a user: the exact epsilon; with probability delta, 9 betrays them."""
    rng = np.random.default_rng(seed)
    true = rng.random((2, 1000)) < math.exp(epsilon) / (1 + math.exp(epsilon))
    without, with_user = (true == np.array([[False], [True]])).astype(float)
    return without, np.where(rng.random(1000) < delta, 9.0, with_user)


@pytest.mark.parametrize("flip", [1, -1])
def test_an_attack_finds_an_epsilon_that_is_not_too_large(flip: int) -> None:
    """Too large in at most 5 % of the cases; without intervals, in far more."""
    both = [[flip * scores for scores in answers(1.0, 0.0, seed)] for seed in range(40)]
    found = [least_epsilon(*scores, 0.0) for scores in both]
    assert sum(each > 1 for each in found) <= 4  # of 40: 5 % would give more with a probability of 5 %
    assert np.mean(found) > 0.7
    assert sum(least_epsilon(*scores, 0.0, tail=0.5) > 1 for scores in both) > 10


def test_delta_is_taken_off() -> None:
    without, with_user = answers(1e-9, 0.3, 0)
    assert least_epsilon(without, with_user, 0.0) > 3
    assert least_epsilon(without, with_user, 0.3) == 0
    assert least_epsilon(without, without, 0.0) == least_epsilon(np.ones(2), np.zeros(2), 0.0) == 0


def ranks(*order: Status) -> dict[Status, int]:
    return {status: number for number, status in enumerate(order)}


@settings(max_examples=50)
@given(limits, shares, shares, crowds, st.floats(0, 0.5))
def test_more_leak_never_gives_a_better_light(limit, value, other, people, guess) -> None:
    rank = ranks(GOOD, FAIR, UNKNOWN, POOR)
    less, more = (limit.judge(each, people, guess=guess) for each in sorted((value, other)))
    assert rank[less.status] <= rank[more.status]


@settings(max_examples=50)
@given(limits, shares, crowds, crowds, st.floats(0, 0.5))
def test_fewer_people_never_give_a_better_light(limit, value, people, other, guess) -> None:
    """Neither what is poor nor what is not known may be released for it."""
    rank = ranks(GOOD, FAIR, UNKNOWN) | {POOR: 2}
    fewer, more = (limit.judge(value, each, guess=guess) for each in sorted((people, other)))
    assert rank[fewer.status] >= rank[more.status]


def test_of_several_attacks_the_worst_needs_more_evidence() -> None:
    """.058 of 500 is above a guess in one attack of one, but one attack in a hundred has this by chance."""
    assert NAMED.judge(0.11, 60, guess=0.04).status is POOR
    assert NAMED.judge(0.11, 60, guess=0.04, n_attacks=100).status is UNKNOWN
    bootstrap = MEMBERSHIP_AUC.judge(0.7, 1000, (0.6, 0.8), n_attacks=10)
    # 2.807 standard errors are left out at each end of ten intervals, and 1.96 of one.
    assert bootstrap.low == pytest.approx(0.7 - 0.1 * 2.807 / 1.96, abs=1e-4)
    assert bootstrap.high == 0.8


@settings(max_examples=50)
@given(limits, crowds)
def test_alarms_ring_where_the_light_is_poor(limit, people) -> None:
    alarm = limit.alarm(people)
    if math.isinf(alarm):
        assert limit.judge(1.0, people).status is not POOR
    else:
        assert limit.judge(alarm, people).status is not POOR
        assert limit.judge(min(alarm + 2e-6, 1.0), people).status is POOR


@settings(max_examples=50)
@given(limits, shares, st.floats(1, 100))
def test_with_as_many_people_as_are_asked_for_it_is_known(limit, value, people) -> None:
    found = limit.judge(value, people)
    if found.needed is not None:
        assert found.needed > people
        assert limit.judge(value, found.needed).status is not UNKNOWN


def test_the_worst_decides() -> None:
    poor, unknown = FOUND.judge(0.5, 1000), FOUND.judge(0.0, 5)
    fair, good = FOUND.judge(0.03, 500), MEMBERSHIP_AUC.judge(0.5, 1000)
    assert worst([good, fair, unknown, poor]) is poor
    assert worst([good, fair, unknown]) is unknown
    assert worst([fair, good]) is fair
    # Of two that are alike, the one that is further off.
    assert worst([poor, FOUND.judge(0.2, 1000)]) is poor


def test_limits_are_in_order_and_told() -> None:
    for limit in (*ESTIMATED, SURE):
        assert limit.guess < limit.good < limit.fair < 1
        assert limit.reason
        assert "{value}" in limit.sentence
    told = rule([NAMED, INFERRED, EXPOSED]).replace("\u00a0", " ")
    assert "named 3 % and 10 %" in told
    assert "inferred 10 % and 15 %" in told
    assert "people exposed 0 and 1" in told


def test_k_and_eta() -> None:
    """The input user is at most e^eta times as probable as each of k - 1 others."""
    assert sureness(10, 1.0) == pytest.approx(math.e / (math.e + 9))
    assert [grade(SURE, sureness(*each)) for each in ((10, 1.0), (5, 1.0), (2, 1.0), (1, 1.0), (10, 1000.0))] == [
        GOOD,
        FAIR,
        POOR,
        POOR,
        POOR,
    ]


def test_the_page_on_attacks_has_the_limits_of_the_code() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "attacks.md").read_text(encoding="utf-8")
    page = page[page.index("## When is a number good?") :]
    rows = [[cell.strip() for cell in line.split("|")[2:5]] for line in page.splitlines() if line.startswith("| ")]
    plain = (MEMBERSHIP_AUC, ADVANTAGE)
    expected = [
        [
            f"{end:.2f}" if each in plain else each.shown(end, "g").replace("\u00a0", " ")
            for end in (each.good, each.fair)
        ]
        for each in (*FINDING_LIMITS, MEMBERSHIP_AUC, ADVANTAGE, COPIED, INFERRED, TRACKED, SURE)
    ]
    assert [row[1:] for row in rows[1:]] == expected
