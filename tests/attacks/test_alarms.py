"""Alarms against loops over dictionaries, on copies and on traces of strangers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from ppmtf_jax.attacks.alarms import find_alarms, longest_copied_runs, nearest_shares, unicity
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation import evaluate
from ppmtf_jax.privacy.limits import COPIED, share_interval
from tests.support import minutes, places_in_line, random_traces, to_traces

# Two periods of six instants.
GRID = TimeGrid.cyclic("2024-01-01T00:00:00", 4 * 3600, 12, slot_s=4 * 3600)


def windows_of(seed: int, users: range, *, n_places: int = 3, keep: float = 0.8) -> Windows:
    return Windows.of(random_traces(seed, users, places_in_line(n_places), GRID, n_traces=2, keep=keep))


def days(windows: Windows) -> list[dict[int, int]]:
    """Place by instant, of each window."""
    found: list[dict[int, int]] = [{} for _ in range(windows.n_windows)]
    columns = (windows.window, windows.phase, windows.place)
    for window, phase, place in zip(*(column.tolist() for column in columns), strict=True):
        found[window][phase] = place
    return found


# Unicity


def alone_by_loop(walks: list[dict[int, int]], n_points: int) -> float:
    """Probability that a walk's points, any of them equally probable, are of no other walk: averaged over the walks."""
    shares = []
    for number, walk in enumerate(walks):
        others = [set(other.items()) for n, other in enumerate(walks) if n != number]
        choices = list(combinations(walk.items(), min(n_points, len(walk))))
        shares.append(np.mean([not any(set(points) <= other for other in others) for points in choices]))
    return float(np.mean(shares))


@pytest.mark.parametrize("seed", range(2))
def test_unicity_is_that_of_all_choices_of_points(seed: int) -> None:
    """Each user has one window. The tolerance is five standard errors of the mean of all repetitions."""
    n_users, n_repeats = 12, 400
    traces = random_traces(seed, range(n_users), places_in_line(3), minutes(5), keep=0.8)
    found = unicity(traces, max_points=4, n_repeats=n_repeats)
    expected = [alone_by_loop(days(Windows.of(traces)), n_points) for n_points in (1, 2, 3, 4)]
    tolerance = 5 * math.sqrt(1 / (4 * n_users * n_repeats))
    assert found == pytest.approx(expected, abs=tolerance)
    # One point too many is noticed.
    assert found[:3] != pytest.approx(expected[1:], abs=tolerance)


def test_unicity_of_who_is_alone_and_who_never_is() -> None:
    places, grid = places_in_line(9), minutes(3)
    apart = to_traces([(u, 0, i, u) for u in range(9) for i in range(3)], places, grid)
    assert unicity(apart).tolist() == [1.0] * 5
    alike = to_traces([(u, 0, i, 0) for u in range(9) for i in range(3)], places, grid)
    assert unicity(alike).tolist() == [0.0] * 5
    assert unicity(apart.select_users(np.array([0]))).tolist() == [1.0] * 5


def test_unicity_looks_at_one_period_of_each_user() -> None:
    """Whoever was watched for longer is neither known by more points nor in more people's way."""
    places, grid = places_in_line(3), TimeGrid.cyclic("2024-01-01T00:00:00", 3600, 72, slot_s=3600)
    # A user of three days, each at another place all day; another who is always at the first.
    long = [(0, 0, i, i // 24) for i in range(72)]
    found = unicity(to_traces(long + [(1, 0, i, 0) for i in range(24)], places, grid), n_repeats=500)
    # They are told apart unless the day of the first place is drawn: 1 - 1/3, five standard errors.
    assert found == pytest.approx(2 / 3, abs=5 * math.sqrt(2 / 9 / 500))


def test_unicity_without_points_is_refused() -> None:
    with pytest.raises(InputError, match=r"(?s)max_points of at least 1.*n_repeats of at least 1"):
        unicity(windows_of(0, range(3)), max_points=0, n_repeats=0)


# Nearest and longest


@pytest.mark.parametrize("seed", range(3))
def test_nearest_shares_equal_those_of_loops(seed: int) -> None:
    windows, train = windows_of(seed, range(6)), windows_of(50 + seed, range(9))
    expected = [
        max(sum(other.get(i) == place for i, place in day.items()) for other in days(train)) / len(day)
        for day in days(windows)
    ]
    assert nearest_shares(windows, train) == pytest.approx(expected)


def runs(day: dict[int, int], *, across_gaps: bool = False) -> list[list[int]]:
    """Places of each unbroken run."""
    found: list[list[int]] = []
    for i in sorted(day):
        if found and (across_gaps or i - 1 in day):
            found[-1].append(day[i])
        else:
            found.append([day[i]])
    return found


def longest_by_loop(windows: Windows, train: Windows, *, across_gaps: bool = False) -> list[int]:
    known = {
        tuple(run[first:stop])
        for day in days(train)
        for run in runs(day, across_gaps=across_gaps)
        for first, stop in combinations(range(len(run) + 1), 2)
    }
    return [
        max(
            (
                stop - first
                for run in runs(day, across_gaps=across_gaps)
                for first, stop in combinations(range(len(run) + 1), 2)
                if tuple(run[first:stop]) in known
            ),
            default=0,
        )
        for day in days(windows)
    ]


@pytest.mark.parametrize(("n_places", "keep"), [(2, 1.0), (2, 0.8), (3, 0.9), (8, 1.0), (8, 0.3)])
def test_longest_runs_equal_those_of_loops(n_places: int, keep: float) -> None:
    for seed in range(5):
        windows = windows_of(seed, range(6), n_places=n_places, keep=keep)
        train = windows_of(50 + seed, range(4), n_places=n_places, keep=keep)
        assert longest_copied_runs(windows, train).tolist() == longest_by_loop(windows, train)


def test_a_gap_ends_a_run() -> None:
    windows, train = windows_of(0, range(6)), windows_of(50, range(4))
    assert longest_copied_runs(windows, train).tolist() != longest_by_loop(windows, train, across_gaps=True)


def test_a_run_is_found_at_other_instants_too() -> None:
    places, grid = places_in_line(7), minutes(12)
    walk = [5, 1, 2, 3, 4, 4, 0, 6]
    windows = Windows.of(to_traces([(0, 0, i, p) for i, p in enumerate(walk)], places, grid))
    # Its second to seventh place, two instants later, among others.
    shifted = [6, 6, 6, *walk[1:7], 5]
    train = Windows.of(to_traces([(1, 0, i, p) for i, p in enumerate(shifted)], places, grid))
    assert longest_copied_runs(windows, train).tolist() == [6]
    assert nearest_shares(windows, train).tolist() == [0.0]


def test_places_of_nobody_else_and_single_events() -> None:
    places, grid = places_in_line(4), minutes(3)
    still = Windows.of(to_traces([(u, 0, u, u) for u in range(3)], places, grid))
    elsewhere = Windows.of(to_traces([(0, 0, i, 3) for i in range(3)], places, grid))
    assert longest_copied_runs(still, elsewhere).tolist() == nearest_shares(still, elsewhere).tolist() == [0, 0, 0]
    assert longest_copied_runs(still, still).tolist() == nearest_shares(still, still).tolist() == [1, 1, 1]


# All together


def real(keep: float = 0.9) -> tuple[Traces, Traces]:
    places, grid = places_in_line(10), minutes(10)
    users = range(200), range(1000, 1200)
    train, test = (random_traces(seed, each, places, grid, keep=keep) for seed, each in enumerate(users))
    return train, test


def strangers(train: Traces) -> Traces:
    return random_traces(2, range(5000, 5200), train.places, train.time_grid)


def test_copies_ring_and_strangers_do_not() -> None:
    train, test = real()
    # Five standard errors of 200 shares of a twentieth, here and in the quantile.
    tolerance = 5 * math.sqrt(2 * 0.05 * 0.95 / 200)
    quiet = find_alarms(strangers(train), train, test)
    full = random_traces(0, range(200), train.places, train.time_grid)
    half = replace(full, place=np.append(full.place[:1000], strangers(train).place[1000:]))
    copied = find_alarms(half, full, test)
    for name in ("copied_run", "nearest_share"):
        assert getattr(quiet, name).share_far <= 0.05 + tolerance < getattr(copied, name).share_far
        assert getattr(quiet, name).held_out_share_far <= 0.05
    assert copied.nearest_share.share_far >= 0.5
    assert quiet.nearest_share.mean == pytest.approx(quiet.nearest_share.held_out_mean, abs=0.05)


def test_synthetic_traces_are_looked_at_where_test_users_are() -> None:
    """Complete traces would have longer runs than those with gaps: thinned, they are as long."""
    train, test = real(keep=0.6)
    found = find_alarms(strangers(train), train, test).copied_run
    complete = longest_copied_runs(Windows.of(strangers(train)), Windows.of(train)).mean()
    error = math.sqrt(2) * found.held_out.std() / math.sqrt(200)
    assert abs(found.mean - found.held_out_mean) < 5 * error
    assert complete - found.held_out_mean > 5 * error


def test_unicity_compares_crowds_of_equal_size() -> None:
    """The same traces, each under a user of its own as in a release without its key, are as unique as with it.

    Of 200 users with four traces each. Among 800 one is less often alone, which says nothing of the traces. The
    tolerance is five standard errors of ten draws of 200 users, whose crowds overlap: as if they were one.
    """
    train, test = real()
    user = np.repeat(np.arange(200, dtype=np.int32), 4)
    many = random_traces(7, range(1000, 1800), train.places, train.time_grid)
    own = user[many.user]
    with_key = replace(many, user=own, trace=many.user % 4, user_ids=train.user_ids)
    without = replace(many, user_ids=np.arange(5000, 5800))
    found = [find_alarms(each, train, test) for each in (with_key, without)]
    assert [each.crowd for each in found] == [200, 200]
    shares = np.array([each.unicity[1] for each in found])
    assert abs(shares[0] - shares[1]) < 5 * math.sqrt(2 * 0.25 / 200)
    # What it was: crowds as large as they happen to be.
    assert unicity(without)[1] < shares[0] - 5 * math.sqrt(0.25 / 200)


def test_there_is_no_unicity_of_fewer_users_than_the_crowd() -> None:
    train, test = real()
    few = train.select_users(np.arange(20))
    assert np.isnan(unicity(few, n_users=21)).all()
    evaluation = evaluate(few, train, test)
    assert math.isnan(evaluation["unicity"])
    assert find_alarms(few, train, test).crowd == 20


def test_alarms_become_json_and_rows_of_the_evaluation() -> None:
    train, test = real()
    synthetic = replace(strangers(train), user_ids=train.user_ids)
    alarms = find_alarms(synthetic, train, test)
    content = json.loads(json.dumps(alarms.to_dict(), allow_nan=False))
    assert len(content["unicity"]) == len(content["training_unicity"]) == 5
    evaluation = evaluate(synthetic, train, test)
    assert evaluation["unicity"] == content["unicity"][3]
    assert evaluation.value("unicity", "training") == content["training_unicity"][3]
    references = {row.quantity.name: row.reading.references for row in evaluation.rows()}
    for name in ("copied_run", "nearest_share"):
        assert evaluation[name] == content[name]["mean"]
        assert evaluation[f"{name}_far"] == content[name]["share_far"]
        assert evaluation.value(f"{name}_far", "training") > 0.5
        assert references[name] == {"test users": content[name]["held_out_mean"]}


RUNG = {"copied_run_far", "nearest_share_far", "density_ratio_auc", "mia_advantage", "reid_rate"}


def test_copies_alarm_everywhere_and_strangers_nowhere() -> None:
    train, test = real()
    evaluation = evaluate({"copied": train, "strange": replace(strangers(train), user_ids=train.user_ids)}, train, test)
    assert evaluation.alarms().keys() == RUNG
    assert {column for values in evaluation.alarms().values() for column in values} == {"copied"}
    limits = {row.quantity.name: row.reading.alarm for row in evaluation.rows()}
    # What is found by chance of 200 + 200 users once in forty times; what is nearer to the limit is smaller.
    assert limits["mia_advantage"] == pytest.approx(math.sqrt(math.log(40) / 200), abs=1e-5)
    # The largest rate whose interval is still below a tenth.
    assert share_interval(limits["reid_rate"], 200)[1] == pytest.approx(0.1, abs=1e-4)
    assert limits["copied_run_far"] == COPIED.alarm(200)


def test_an_alarm_that_cannot_ring_says_so() -> None:
    """Windows of two events, at two places: some of the training set has each."""
    places, grid = places_in_line(2), minutes(2)
    train, test = (random_traces(seed, range(100 * seed, 100 * seed + 50), places, grid) for seed in range(2))
    caveats = evaluate(train, train, test).caveats()
    assert [titles for reason, titles in caveats.items() if "silent" in reason] == [["Nearest trace, far"]]


def test_what_cannot_be_compared_is_refused() -> None:
    train, test = real()
    other_period = random_traces(1, range(1000, 1010), train.places, minutes(11))
    still = to_traces([(u, 0, 0, 0) for u in range(3)], train.places, train.time_grid)
    for sets in ((train, train, other_period), (train, train, still), (still, train, test), (train, still, test)):
        with pytest.raises(InputError, match="windows of two events in each set"):
            find_alarms(*sets)
