"""Copied runs and closest records against loops, on copies and on traces of strangers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from ppmtf_jax.attacks.copied_runs import longest_copied_runs
from ppmtf_jax.attacks.copies import check_copies, nearest_shares
from ppmtf_jax.attacks.registry import ATTACKS
from ppmtf_jax.attacks.unicity import unicity
from ppmtf_jax.data.measurement import Comparison, NoSettings
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation import evaluate
from ppmtf_jax.privacy.limits import COPIED, share_interval
from tests.attacks.loops import walks
from tests.support import minutes, places_in_line, random_traces, to_traces

# Two periods of six instants.
GRID = TimeGrid.cyclic("2024-01-01T00:00:00", 4 * 3600, 12, slot_s=4 * 3600)


def windows_of(seed: int, users: range, *, n_places: int = 3, keep: float = 0.8) -> Windows:
    return Windows.of(random_traces(seed, users, places_in_line(n_places), GRID, n_traces=2, keep=keep))


def test_nearest_shares_equal_those_of_loops() -> None:
    for seed in range(3):
        windows, train = windows_of(seed, range(6)), windows_of(50 + seed, range(9))
        expected = [
            max(sum(other.get(i) == place for i, place in day.items()) for other in walks(train)) / len(day)
            for day in walks(windows)
        ]
        assert nearest_shares(windows, train) == pytest.approx(expected)


def pieces(day: dict[int, int], *, across_gaps: bool = False) -> set[tuple[int, ...]]:
    """All runs of places at consecutive instants."""
    runs: list[list[int]] = []
    for i in sorted(day):
        if runs and (across_gaps or i - 1 in day):
            runs[-1].append(day[i])
        else:
            runs.append([day[i]])
    return {tuple(run[first:stop]) for run in runs for first, stop in combinations(range(len(run) + 1), 2)}


def longest_by_loop(windows: Windows, train: Windows, *, across_gaps: bool = False) -> list[int]:
    known = set().union(*(pieces(day, across_gaps=across_gaps) for day in walks(train)))
    each = (pieces(day, across_gaps=across_gaps) & known for day in walks(windows))
    return [max(map(len, copied), default=0) for copied in each]


@pytest.mark.parametrize(("n_places", "keep"), [(2, 1.0), (2, 0.8), (3, 0.9), (8, 1.0), (8, 0.3)])
def test_longest_runs_equal_those_of_loops(n_places: int, keep: float) -> None:
    for seed in range(5):
        windows = windows_of(seed, range(6), n_places=n_places, keep=keep)
        train = windows_of(50 + seed, range(4), n_places=n_places, keep=keep)
        assert longest_copied_runs(windows, train).tolist() == longest_by_loop(windows, train)
        over_gaps = longest_copied_runs(windows, train, over_gaps=True)
        assert over_gaps.tolist() == longest_by_loop(windows, train, across_gaps=True)
    # The comparison notices runs across gaps.
    if n_places == 3:
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
    train, test = (
        random_traces(seed, users, places, grid, keep=keep)
        for seed, users in enumerate((range(200), range(1000, 1200)))
    )
    return train, test


def strangers(train: Traces) -> Traces:
    return random_traces(2, range(5000, 5200), train.places, train.time_grid)


def test_copies_are_far_above_test_users_and_strangers_are_not() -> None:
    train, test = real()
    # Five standard errors of 200 shares of a twentieth, here and in the quantile.
    tolerance = 5 * math.sqrt(2 * 0.05 * 0.95 / 200)
    independent = check_copies(strangers(train), train, test)
    full = random_traces(0, range(200), train.places, train.time_grid)
    half = replace(full, place=np.append(full.place[:1000], strangers(train).place[1000:]))
    copied = check_copies(half, full, test)
    for name in ("copied_run", "nearest_share"):
        assert getattr(independent, name).share_far <= 0.05 + tolerance < getattr(copied, name).share_far
        assert getattr(independent, name).held_out_share_far <= 0.05
    assert copied.nearest_share.share_far >= 0.5
    assert independent.nearest_share.mean == pytest.approx(independent.nearest_share.held_out_mean, abs=0.05)


def test_synthetic_traces_are_thinned_to_the_instants_of_test_users() -> None:
    """Complete traces would have longer runs than those with gaps; thinned, they have equally long ones."""
    train, test = real(keep=0.6)
    found = check_copies(strangers(train), train, test).copied_run
    complete = longest_copied_runs(Windows.of(strangers(train)), Windows.of(train)).mean()
    error = math.sqrt(2) * found.held_out.std() / math.sqrt(200)
    assert abs(found.mean - found.held_out_mean) < 5 * error
    assert complete - found.held_out_mean > 5 * error


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
    readings = {row.quantity.name: row.reading for row in evaluation.rows}
    for name in ("copied_run", "nearest_share"):
        assert evaluation.value(name, "strange") == content[name]["mean"]
        assert evaluation.value(f"{name}_far", "strange") == content[name]["share_far"]
        assert evaluation.value(f"{name}_far", "training") > 0.5
        assert readings[name].references == {"test users": content[name]["held_out_mean"]}
    # Copies are alarming in every attack, strangers in none.
    alarming = {"copied_run_far", "nearest_share_far", "density_ratio_auc", "mia_advantage", "reid_rate"}
    assert evaluation.alarms().keys() == alarming
    assert {column for values in evaluation.alarms().values() for column in values} == {"copied"}
    # The greatest advantage that 200 + 200 users show by chance once in forty times.
    assert readings["mia_advantage"].alarm == pytest.approx(math.sqrt(math.log(40) / 200), abs=1e-5)
    # The greatest rate whose interval is still below a tenth.
    assert share_interval(readings["reid_rate"].alarm, 200)[1] == pytest.approx(0.1, abs=1e-4)
    assert readings["copied_run_far"].alarm == COPIED.alarm(200)


def test_a_number_that_cannot_alarm_says_so() -> None:
    """Windows of two events at two places: some training window equals each of them."""
    places, grid = places_in_line(2), minutes(2)
    train, test = (random_traces(seed, range(100 * seed, 100 * seed + 50), places, grid) for seed in range(2))
    caveats = evaluate(train, train, test).caveats()
    assert [titles for caveat, titles in caveats.items() if caveat.code == "saturated"] == [["Nearest trace, far"]]


def test_what_cannot_be_compared_is_refused() -> None:
    train, test = real()
    other_period = random_traces(1, range(1000, 1010), train.places, minutes(11))
    still = to_traces([(u, 0, 0, 0) for u in range(3)], train.places, train.time_grid)
    for sets in ((train, train, other_period), (train, train, still), (still, train, test), (train, still, test)):
        with pytest.raises(InputError, match="windows of two events in each set"):
            check_copies(*sets)


# Check-ins over several periods


def checkins(seed: int, users: range) -> Traces:
    """About five events in eight days."""
    return random_traces(seed, users, places_in_line(30), DAYS, keep=0.16)


DAYS = TimeGrid.cyclic("2024-01-01T00:00:00", 6 * 3600, 32, slot_s=6 * 3600)


def test_copied_checkins_are_found_and_are_not_thinned() -> None:
    train, test = checkins(0, range(300)), checkins(1, range(1000, 1300))
    copied = replace(train, user_ids=train.user_ids + 5000)
    whole = check_copies(copied, train, test)
    assert whole.nearest_share.mean == 1
    assert whole.nearest_share.share_far > 0.9
    # Not those of so few events that a run of all of them occurs by chance.
    assert whole.copied_run.share_far > 0.7
    # A copy keeps all its events: a run is as long as its window.
    n_events = Windows.of(copied, DAYS.n_instants).with_events(2).events_per_window()
    assert sorted(whole.copied_run.synthetic) == sorted(n_events)
    new = check_copies(checkins(2, range(5000, 5300)), train, test)
    for found in (new.nearest_share, new.copied_run):
        assert found.share_far < 0.05 + 5 * math.sqrt(2 * 0.05 / 300)


def test_training_and_synthetic_checkins_are_cut_into_windows_of_one_length() -> None:
    """Also if a synthetic trace is shorter than the real ones."""
    train, test = checkins(0, range(300)), checkins(1, range(1000, 1300))
    made = random_traces(2, range(300), train.places, DAYS.of_periods(4), keep=0.16)
    made = made.select_users(np.isin(made.user_ids, train.user_ids))
    real = Comparison(train, train, test, made.time_grid.n_instants, pool_traces=True)
    training, synthetic = (ATTACKS["copies"].measure(each, NoSettings()) for each in (real, real.of(made)))
    n_events = Windows.of(train, made.time_grid.n_instants).with_events(2).events_per_window()
    # The mean copied run, and the share of traces that are near: a training window is a copy of itself.
    assert training[1] == n_events.mean() > synthetic[1]
    assert (training[3], training[4]) == (1, 1) > (synthetic[3], synthetic[4])
