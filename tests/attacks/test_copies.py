"""Copied runs, nearest traces and unicity against loops, on copies and on traces of strangers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.attacks.copies import CopyCheck, check_copies, heaviest_copied_runs, nearest, surprise, unicity
from ppmtf_jax.attacks.registry import ATTACKS
from ppmtf_jax.attacks.roc import Roc
from ppmtf_jax.data.measurement import Comparison, NoSettings
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.datasets.places import keep_shared_places
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation import evaluate
from ppmtf_jax.evaluation.report.sections.leaks import finding_of_copies
from ppmtf_jax.privacy.limits import COPIED, Status, share_interval
from tests.attacks.loops import walks
from tests.support import minutes, places_in_line, random_traces, to_traces

# Two periods of six instants.
GRID = TimeGrid.cyclic("2024-01-01T00:00:00", 4 * 3600, 12, slot_s=4 * 3600)


def windows_of(seed: int, users: range, *, n_places: int = 3, keep: float = 0.8) -> Windows:
    return Windows.of(random_traces(seed, users, places_in_line(n_places), GRID, n_traces=2, keep=keep))


def weights_of(windows: Windows, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(len(windows.place))


def of_windows(windows: Windows, weight: np.ndarray) -> list[list[tuple[int, int, float]]]:
    """Instant, place and weight of the events of each window."""
    found: list[list[tuple[int, int, float]]] = [[] for _ in range(windows.n_windows)]
    for window, *event in zip(windows.window, windows.phase.tolist(), windows.place.tolist(), weight, strict=True):
        found[window].append(tuple(event))
    return found


def test_nearest_windows_equal_those_of_loops() -> None:
    for seed in range(3):
        windows, released = windows_of(seed, range(6)), windows_of(50 + seed, range(9))
        weight = weights_of(windows, seed)
        expected, exact = (
            [
                max(
                    sum(w for i, place, w in day if any(other.get(i + shift) == place for shift in shifts))
                    for other in walks(released)
                )
                for day in of_windows(windows, weight)
            ]
            for shifts in ((-1, 0, 1), (0,))
        )
        assert nearest(windows, released, weight).weight == pytest.approx(expected)
        # The comparison notices the tolerance.
        assert expected != pytest.approx(exact)


def heaviest_by_loop(windows: Windows, weight: np.ndarray, released: Windows) -> list[float]:
    pieces = {
        tuple(day[i] for i in sorted(day)[first:stop])
        for day in walks(released)
        for first, stop in combinations(range(len(day) + 1), 2)
    }
    found = []
    for day in of_windows(windows, weight):
        runs = [day[first:stop] for first, stop in combinations(range(len(day) + 1), 2)]
        found.append(max((sum(w for *_, w in run) for run in runs if tuple(p for _, p, _ in run) in pieces), default=0))
    return found


@pytest.mark.parametrize(("n_places", "keep"), [(2, 1.0), (2, 0.8), (3, 0.9), (8, 1.0), (8, 0.3)])
def test_heaviest_runs_equal_those_of_loops(n_places: int, keep: float) -> None:
    for seed in range(5):
        windows = windows_of(seed, range(6), n_places=n_places, keep=keep)
        released = windows_of(50 + seed, range(4), n_places=n_places, keep=keep)
        weight = weights_of(windows, seed)
        assert heaviest_copied_runs(windows, released, weight) == pytest.approx(
            heaviest_by_loop(windows, weight, released)
        )


def test_a_run_is_found_at_other_instants_and_over_gaps() -> None:
    places, grid = places_in_line(7), minutes(12)
    walk = [5, 1, 2, 3, 4, 0, 6]
    windows = Windows.of(to_traces([(0, 0, i, p) for i, p in enumerate(walk)], places, grid))
    # The second to sixth place at the end of the day, one of them an instant later than it would be.
    released = Windows.of(
        to_traces([(1, 0, i, p) for i, p in zip((0, 6, 7, 9, 10, 11), (6, *walk[1:6]), strict=True)], places, grid)
    )
    assert heaviest_copied_runs(windows, released, np.ones(7)).tolist() == [5]
    assert nearest(windows, released, np.ones(7)).weight.tolist() == [0]


def test_an_arrival_is_as_surprising_as_it_is_rare_among_others() -> None:
    """Three of five people go from 0 to 1, one of them twice, and one from 0 to 2; a fifth is only at 3."""
    walks_of = {0: [0, 1], 1: [0, 1, 0, 1], 2: [0, 1], 3: [0, 2], 4: [3]}
    rows = [(u, 0, i, p) for u, walk in walks_of.items() for i, p in enumerate(walk)]
    windows = Windows.of(to_traces(rows, places_in_line(4), minutes(4))).arrivals()
    found = surprise(windows)
    # Two places come after 0. Of the three others there, two went to 1, which three of five visit; none went to 2.
    assert found[1] == pytest.approx(-math.log((2 + 2 * 3 / 5) / (3 + 2)))
    assert found[-2] == pytest.approx(-math.log((0 + 2 * 1 / 5) / (3 + 2)))
    # The first place of three of the four others.
    assert found[0] == pytest.approx(-math.log((3 + 2 * 4 / 5) / (4 + 2)))


# All together


def real(keep: float = 0.9) -> tuple[Traces, Traces]:
    places, grid = places_in_line(10), minutes(10)
    train, test = (
        random_traces(seed, users, places, grid, keep=keep)
        for seed, users in enumerate((range(200), range(1000, 1200)))
    )
    return train, test


def strangers(train: Traces) -> Traces:
    return random_traces(2, range(5000, 5200), train.places, train.time_grid)


HOURS = TimeGrid.cyclic("2024-01-01T00:00:00", 3600, 24, slot_s=3600)


def days_of(seed: int, first: int, n: int = 500, share_of_day: float = 0.6) -> Traces:
    """A day of people who go to seven of 150 places, which they choose independently."""
    rng = np.random.default_rng(seed)
    popular = rng.zipf(1.2, size=(n, 7)) % 150
    when = np.sort(rng.integers(0, 24, size=(n, 7)), axis=1)
    at = (np.arange(24)[None, :, None] >= when[:, None, :]).sum(axis=2) % 7
    place = np.take_along_axis(popular, at, axis=1)
    user, instant = np.nonzero(rng.random((n, 24)) < share_of_day)
    rows = np.column_stack([first + user, np.zeros_like(user), instant, place[user, instant]])
    return to_traces(rows.tolist(), places_in_line(150), HOURS)


def beside(made: Traces, copied: Traces, *, later: int = 0) -> Traces:
    """Some traces, and copies of others under other names, maybe later."""
    frame = copied.to_frame()
    frame = frame.assign(user=frame["user"] + 10**6, instant=frame["instant"] + later)
    frames = [made.to_frame(), frame[frame["instant"] < made.time_grid.n_instants]]
    return Traces.from_frame(pd.concat(frames), made.places, made.time_grid)


def light(released: Traces, train: Traces, test: Traces) -> Status:
    return check_copies(released, train, test).judgement().status


def test_people_are_counted_whose_whole_day_is_copied() -> None:
    """One of 500 is not good, nor are 1 %, and 3 and 7 % are poor; an average hides all of them.

    Ten releases of other people: one person is found in at most 5 % of such releases, two in at most 2.5 %. That more
    than two of ten have a person, or one has two people, has a probability below 2 % and 23 %; the seeds are fixed.
    """
    train, test = days_of(0, 0), days_of(1, 10_000)
    found = [check_copies(days_of(seed, 20_000), train, test) for seed in range(2, 12)]
    assert sum(each.n_copied > 0 for each in found) <= 2
    assert max(each.n_copied for each in found) <= 1
    assert {each.judgement().status for each in found} <= {Status.GOOD, Status.FAIR}
    others, most = days_of(2, 20_000), found[0].most
    [one] = np.random.default_rng(0).choice(np.flatnonzero(most > np.quantile(most, 0.9)), 1)
    assert light(beside(others, train.select_users(np.array([one]))), train, test) is not Status.GOOD
    rng = np.random.default_rng(0)
    for share in (0.01, 0.03, 0.07):
        copied = train.select_users(np.sort(rng.permutation(500)[: round(500 * share)]))
        check = check_copies(beside(others, copied), train, test)
        assert check.judgement().status in ((Status.POOR, Status.FAIR) if share == 0.01 else (Status.POOR,)), share
        assert 0 < check.n_copied <= 500 * share + 1
        # What an average says of one in a hundred.
        if share == 0.01:
            assert check.share_far < 0.1


def test_copies_of_more_people_are_noticed_more() -> None:
    check = check_copies(days_of(2, 20_000), days_of(0, 0), days_of(1, 10_000))
    assert check.is_noticed(0.1)
    assert not check.is_noticed(0.0)
    assert 0 < check.noticed_share <= 0.05


def check_of(training: np.ndarray, most: np.ndarray, test: np.ndarray) -> CopyCheck:
    return CopyCheck(np.ones(5), np.ones(5), training, test, most, least=15.0, crowd=len(training))


def test_a_person_who_is_counted_shows_no_copies_of_others() -> None:
    rng = np.random.default_rng(0)
    training, test = rng.exponential(size=(2, 500))
    training[0] = 60.0
    for most, status in ((0.0, Status.UNKNOWN), (60.0, Status.FAIR)):
        check = check_of(training, np.full(500, most), test)
        assert (check.n_copied, check.judgement().status) == (1, status)
        assert (check.noticed_share == 1) == (status is Status.UNKNOWN)
        assert "copied as well" in finding_of_copies(check).answer
    # Nothing more can be noticed if all are copied, which is no better light.
    copied = check_of(training + 60, training + 60, test)
    assert copied.n_copied > 300
    assert copied.judgement().status is Status.POOR
    assert "noticed" not in finding_of_copies(copied).answer


def test_copies_of_tied_scores_are_noticed() -> None:
    """Nobody shares anything with any trace, but three people have a whole trace."""
    score = np.where(np.arange(500) < 3, 50.0, 0.0)
    assert check_of(score, np.full(500, 50.0), np.zeros(500)).judgement().status is Status.POOR
    assert check_of(np.zeros(500), np.full(500, 50.0), np.zeros(500)).judgement().status is Status.GOOD


def test_a_share_of_few_people_is_at_least_one_of_them() -> None:
    rng = np.random.default_rng(0)
    training, test = rng.exponential(size=(2, 10))
    check = check_of(training, np.full(10, 200.0), test)
    assert (check.n_copied, check.noticed_share) == (0, 0.1)
    found = check.judgement()
    assert found.status is Status.FAIR
    told = check_of(training, np.zeros(10), test).judgement().text
    assert "too few of 10 training users have traces so unusual" in told


def test_days_of_all_people_are_found_an_hour_later_and_spliced_from_two() -> None:
    train, test = days_of(0, 0), days_of(1, 10_000)
    later = beside(days_of(2, 20_000), train, later=1)
    assert light(later, train, test) is Status.POOR
    frame = train.to_frame()
    afternoon = frame["instant"] >= 12
    spliced = frame.assign(user=np.where(afternoon, (frame["user"] + 1) % 500, frame["user"]))
    assert light(Traces.from_frame(spliced, train.places, train.time_grid), train, test) is Status.POOR


def test_true_visits_at_rare_places_are_found() -> None:
    """One place in ten of a trace of nobody is where a training user was at this instant, and hardly anybody else."""
    train, test = days_of(0, 0), days_of(1, 10_000)
    rare = train.users_per_place() < 20
    frame, own = days_of(2, 0).to_frame(), train.to_frame()
    own = own[rare[train.place]]
    made = pd.concat([own, frame]).drop_duplicates(["user", "instant"])
    assert light(Traces.from_frame(made, train.places, train.time_grid), train, test) is Status.POOR


def crowded(seed: int, first: int, n: int) -> Traces:
    """Days of people who go to five of 150 places, so that few people go to each place."""
    rng = np.random.default_rng(seed)
    place = np.repeat(rng.integers(0, 150, size=(n, 5)), 5, axis=1)[:, :24]
    user, instant = np.nonzero(rng.random((n, 24)) < 0.5)
    rows = np.column_stack([first + user, np.zeros_like(user), instant, place[user, instant]])
    return to_traces(rows.tolist(), places_in_line(150), HOURS)


def test_places_that_training_users_chose_do_not_look_like_copies() -> None:
    """A place is kept if five training users visit it, so more of their visits than of other people's are at it.

    Without a leak, a training user and a test user score alike; the tolerance is five standard errors of the area under
    the curve, over 16 releases whose people are independent. Without the correction, training users score higher.
    """
    areas = {"corrected": [], "not": []}
    for seed in range(16):
        train, test, others = (crowded(3 * seed + k, 1000 * k, 150) for k in range(3))
        train, test, others = keep_shared_places(train, test, others, min_users=5)
        check = check_copies(others, train, test)
        areas["corrected"].append(Roc.of(check.training, check.test).auc)
        with pytest.MonkeyPatch.context() as patched:
            # Then all visits count.
            patched.setattr("ppmtf_jax.attacks.copies.N_OF_FEWEST", 10**6)
            check = check_copies(others, train, test)
        areas["not"].append(Roc.of(check.training, check.test).auc)
    error = math.sqrt(1 / (6 * 150) / 16)
    assert abs(np.mean(areas["corrected"]) - 0.5) < 5 * error < np.mean(areas["not"]) - 0.5


def test_unicity_compares_crowds_of_equal_size() -> None:
    """200 users with four traces each are as unique with the key of a release as without it.

    Without the key, each trace is its own user. Among 800 one is unique less often, which says nothing of the traces.
    The tolerance is five standard errors of ten draws of 200 users; their crowds overlap, so they count as one.
    """
    train, test = real()
    user = np.repeat(np.arange(200, dtype=np.int32), 4)
    many = random_traces(7, range(1000, 1800), train.places, train.time_grid)
    with_key = replace(many, user=user[many.user], trace=many.user % 4, user_ids=train.user_ids)
    without = replace(many, user_ids=np.arange(5000, 5800))
    found = [check_copies(each, train, test) for each in (with_key, without)]
    assert [each.crowd for each in found] == [200, 200]
    shares = np.array([each.unicity[1] for each in found])
    assert abs(shares[0] - shares[1]) < 5 * math.sqrt(2 * 0.25 / 200)
    # Crowds of different sizes are noticed.
    assert unicity(without)[1] < shares[0] - 5 * math.sqrt(0.25 / 200)
    few = train.select_users(np.arange(20))
    assert check_copies(few, train, test).crowd == 20
    assert math.isnan(ATTACKS["copies"].measure(Comparison(few, train, test, 10), NoSettings())[0])


def test_numbers_become_json_and_rows_of_the_evaluation() -> None:
    train, test = real()
    synthetic = replace(strangers(train), user_ids=train.user_ids)
    content = json.loads(json.dumps(check_copies(synthetic, train, test).to_dict(), allow_nan=False))
    assert len(content["unicity"]) == len(content["training_unicity"]) == 5
    evaluation = evaluate({"copied": train, "strange": synthetic}, train, test)
    assert evaluation.value("unicity", "strange") == content["unicity"][3]
    assert evaluation.value("unicity", "training") == content["training_unicity"][3]
    assert evaluation.value("n_people_copied", "strange") == content["n_copied"] == 0
    readings = {row.quantity.name: row.reading for row in evaluation.rows}
    assert evaluation.value("copied_far", "strange") == content["share_far"]
    assert evaluation.value("copied_far", "training") > 0.5
    # Copies are alarming in every attack, strangers in none.
    alarming = {"n_people_copied", "density_ratio_auc", "mia_advantage", "reid_rate"}
    alarming |= {"inferred_home", "inferred_second", "inferred_rest", "hidden_places"}
    assert evaluation.alarms().keys() == alarming
    assert {column for values in evaluation.alarms().values() for column in values} == {"copied"}
    # The greatest advantage that 200 + 200 users show by chance once in forty times.
    assert readings["mia_advantage"].alarm == pytest.approx(math.sqrt(math.log(40) / 200), abs=1e-5)
    # The greatest rate whose interval is still below a tenth.
    assert share_interval(readings["reid_rate"].alarm, 200)[1] == pytest.approx(0.1, abs=1e-4)
    assert readings["n_people_copied"].alarm == COPIED.fair


def test_numbers_that_cannot_alarm_say_so_and_are_not_good() -> None:
    """Windows of two events at two places: test users find whole traces of theirs too, in any traces."""
    places, grid = places_in_line(2), minutes(2)
    train, test = (random_traces(seed, range(100 * seed, 100 * seed + 50), places, grid) for seed in range(2))
    caveats = evaluate(train, train, test).caveats()
    assert [titles for caveat, titles in caveats.items() if caveat.code == "saturated"] == [["People copied"]]
    assert light(train, train, test) is Status.UNKNOWN


def test_what_cannot_be_compared_is_refused() -> None:
    train, test = real()
    other_period = random_traces(1, range(1000, 1010), train.places, minutes(11))
    still = to_traces([(u, 0, 0, 0) for u in range(3)], train.places, train.time_grid)
    # Each is alone at an own place, so none of these places would have been kept without its user.
    alone = to_traces([(u, 0, i, u) for u in range(30) for i in (0, 5)], places_in_line(30), train.time_grid)
    with pytest.raises(InputError, match="windows of two events in each set"):
        check_copies(alone, alone, replace(alone, user_ids=alone.user_ids + 100))
    for sets in ((train, train, other_period), (train, train, still), (still, train, test), (train, still, test)):
        with pytest.raises(InputError, match="windows of two events in each set"):
            check_copies(*sets)


# Check-ins over several periods


def checkins(seed: int, users: range) -> Traces:
    """About five events in eight days."""
    return random_traces(seed, users, places_in_line(30), DAYS, keep=0.16)


DAYS = TimeGrid.cyclic("2024-01-01T00:00:00", 6 * 3600, 32, slot_s=6 * 3600)


def test_copied_checkins_are_found_and_new_ones_are_not() -> None:
    train, test = checkins(0, range(300)), checkins(1, range(1000, 1300))
    copied = replace(train, user_ids=train.user_ids + 5000)
    whole = check_copies(copied, train, test)
    assert whole.share_far > 0.7
    # A copy keeps all its events.
    assert whole.training == pytest.approx(whole.most)
    new = check_copies(checkins(2, range(5000, 5300)), train, test)
    assert new.share_far < 0.05 + 5 * math.sqrt(2 * 0.05 / 300)
    assert (new.n_copied, whole.judgement().status) == (0, Status.POOR)


def test_training_and_synthetic_checkins_are_cut_into_windows_of_one_length() -> None:
    """Also if a synthetic trace is shorter than the real ones."""
    train, test = checkins(0, range(300)), checkins(1, range(1000, 1300))
    made = random_traces(2, range(300), train.places, DAYS.of_periods(4), keep=0.16)
    made = made.select_users(np.isin(made.user_ids, train.user_ids))
    real = Comparison(train, train, test, made.time_grid.n_instants, pool_traces=True)
    training, synthetic = (ATTACKS["copies"].measure(each, NoSettings()) for each in (real, real.of(made)))
    # A training window is a copy of itself.
    assert training[1] > 0.5 > synthetic[1]


def unique_by_loop(everybody: list[dict[int, int]], n_points: int) -> float:
    """Probability that no other walk has a walk's points, all choices equally probable; averaged over the walks."""
    shares = []
    for number, walk in enumerate(everybody):
        others = [set(other.items()) for n, other in enumerate(everybody) if n != number]
        choices = list(combinations(walk.items(), min(n_points, len(walk))))
        shares.append(np.mean([not any(set(points) <= other for other in others) for points in choices]))
    return float(np.mean(shares))


def test_unicity_is_that_of_all_choices_of_points() -> None:
    """Each user has one window. The tolerance is five standard errors of the mean of all repetitions."""
    n_users, n_repeats = 12, 100
    traces = random_traces(0, range(n_users), places_in_line(3), minutes(5), keep=0.8)
    found = unicity(traces, max_points=4, n_repeats=n_repeats)
    expected = [unique_by_loop(walks(Windows.of(traces)), n_points) for n_points in (1, 2, 3, 4)]
    tolerance = 5 * math.sqrt(1 / (4 * n_users * n_repeats))
    assert found == pytest.approx(expected, abs=tolerance)
    # The tolerance notices one point too many.
    assert found[:3] != pytest.approx(expected[1:], abs=tolerance)


def test_users_who_are_always_or_never_unique() -> None:
    places, grid = places_in_line(9), minutes(3)
    apart = to_traces([(u, 0, i, u) for u in range(9) for i in range(3)], places, grid)
    assert unicity(apart).tolist() == [1.0] * 5
    alike = to_traces([(u, 0, i, 0) for u in range(9) for i in range(3)], places, grid)
    assert unicity(alike).tolist() == [0.0] * 5
    assert unicity(apart.select_users(np.array([0]))).tolist() == [1.0] * 5


def test_one_period_of_each_user_counts() -> None:
    """A user with more periods is not known by more points, and does not hide others."""
    places, grid = places_in_line(3), TimeGrid.cyclic("2024-01-01T00:00:00", 3600, 72, slot_s=3600)
    # One user has three days, each at another place all day; another is always at the first place.
    long = [(0, 0, i, i // 24) for i in range(72)]
    found = unicity(to_traces(long + [(1, 0, i, 0) for i in range(24)], places, grid), max_points=2, n_repeats=250)
    # They differ unless the day at the first place is drawn: 1 - 1/3, five standard errors.
    assert found == pytest.approx(2 / 3, abs=5 * math.sqrt(2 / 9 / 250))


def test_crowds_larger_than_the_users_and_no_points() -> None:
    traces = random_traces(0, range(3), places_in_line(3), minutes(5))
    assert np.isnan(unicity(traces, n_users=4)).all()
    with pytest.raises(InputError, match=r"(?s)max_points of at least 1.*n_repeats of at least 1"):
        unicity(traces, max_points=0, n_repeats=0)
