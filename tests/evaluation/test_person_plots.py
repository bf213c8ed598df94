"""Timelines and maps of persons: what is drawn is where they were."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_hex

from ppmtf_jax.attacks.estimators.tensor import FactorizedCounts, Factors
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation.plots import group_maps, person_maps, person_timelines
from ppmtf_jax.evaluation.plots.persons import APART, OTHER_COLOUR, RANK_COLOURS
from tests.support import minutes, places_in_line, to_traces

HOURS = TimeGrid.each_instant("2024-01-01T06:00:00", 3600, 24)


def windows(rows, places=None, grid=HOURS) -> Windows:
    return Windows.of(to_traces(rows, places or places_in_line(9), grid))


def bars(ax) -> list[tuple[float, float, int, str]]:
    """Begin, width, row and colour of each bar."""
    return [
        (round(bar.get_x(), 6), round(bar.get_width(), 6), round(bar.get_y() + bar.get_height() / 2),
         to_hex(bar.get_facecolor()).upper())
        for bar in ax.patches
    ]  # fmt: skip


def test_a_bar_is_a_stay_and_gaps_are_empty():
    """Place 3 twice as often as place 1, and an hour without an event."""
    day = windows([(0, 0, hour, place) for hour, place in ((0, 3), (1, 3), (2, 1), (4, 1), (5, 3), (6, 3))])
    ax = person_timelines({"real": day}).axes[0]
    first, second = RANK_COLOURS[:2]
    assert bars(ax) == [(0, 2, 0, first), (2, 1, 0, second), (4, 1, 0, second), (5, 2, 0, first)]
    assert [text.get_text() for text in ax.texts] == ["1", "2", "2", "1"]
    assert ax.get_xticklabels()[0].get_text() == "06:00"


def test_the_sixth_place_is_one_of_others():
    day = windows([(0, 0, hour, hour if hour < 7 else 0) for hour in range(24)])
    colours = [colour for *_, colour in bars(person_timelines({"a": day}).axes[0])]
    assert colours == [*RANK_COLOURS, OTHER_COLOUR, OTHER_COLOUR, RANK_COLOURS[0]]


def test_days_of_a_month_are_labelled_and_short_stays_are_seen():
    grid = TimeGrid.cyclic("2024-01-01T00:00:00", 3600, 28 * 24, slot_s=7200)
    month = windows([(0, 0, hour, 1) for hour in (0, 300, 671)], grid=replace(grid, period=24))
    whole = Windows.of(to_traces([(0, 0, hour, 1) for hour in (0, 300, 671)], places_in_line(9), grid), 28 * 24)
    ax = person_timelines({"a": whole}).axes[0]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["day 1", "day 8", "day 15", "day 22"]
    assert all(width >= 672 / 150 for _, width, _, _ in bars(ax))
    assert month.n_windows == 3
    # Periods that are shorter than a day have their hours; the first person is at the top.
    ax = person_timelines({"a": windows([(0, 0, 0, 1), (0, 0, 1, 2)], grid=minutes(30))}).axes[0]
    assert ax.get_xticklabels()[-1].get_text() == "00:28"
    assert ax.yaxis_inverted()


def test_numbers_on_a_map_are_in_the_order_of_visits_and_apart():
    places = PlaceTable(np.arange(4), np.array([0.0, 1.0, 1.0001, 0.0]), np.array([0.0, 0.0, 0.0, 1.0]))
    # Home is 3, where they begin; then 1, and 2 nearly at the same point; then 0.
    day = windows([(0, 0, hour, place) for hour, place in enumerate((3, 3, 1, 2, 0, 3))], places)
    ax = person_maps({"real": day}).axes[0]
    numbers = {text.get_text(): text.get_position() for text in ax.texts if text.get_text().isdigit()}
    assert set(numbers) == {"1", "2", "4"}
    assert numbers["1"] == (1.0, 0.0)
    squares = [line for line in ax.lines if line.get_marker() == "s"]
    assert (squares[0].get_xdata()[0], to_hex(squares[0].get_color()).upper()) == (1.0, RANK_COLOURS[0])
    side = ax.get_xlim()[1] - ax.get_xlim()[0]
    at = np.array(list(numbers.values()))
    distance = np.hypot(*(at[:, None] - at[None]).T)[~np.eye(len(at), dtype=bool)]
    assert distance.min() >= APART * side * 0.99


def test_arrows_lead_from_place_to_place():
    day = windows([(0, 0, hour, place) for hour, place in enumerate((0, 1, 1, 0))])
    ax = person_maps({"real": day}).axes[0]
    places = places_in_line(9)
    arrows = [text for text in ax.texts if getattr(text, "arrow_patch", None) is not None]
    ends = [(each.xyann[0], each.xy[0]) for each in arrows]
    assert ends == [(places.longitude[0], places.longitude[1]), (places.longitude[1], places.longitude[0])]


def test_somebody_who_never_moves_has_a_map():
    ax = person_maps({"real": windows([(0, 0, 0, 4), (0, 0, 1, 4)])}).axes[0]
    assert [text.get_text() for text in ax.texts if text.get_text().isdigit()] == ["1"]
    assert np.diff(ax.get_xlim()) > 0


def test_what_cannot_be_drawn_is_refused():
    day = windows([(0, 0, 0, 1)])
    other = windows([(0, 0, 0, 1)], grid=minutes(30))
    for people in ({}, {"a": day, "b": other}, {"a": day.select(np.zeros(1, bool))}):
        with pytest.raises(InputError, match="at least one set, each of at least one window"):
            person_timelines(people)
    nowhere = PlaceTable(np.arange(2), np.full(2, np.nan), np.full(2, np.nan))
    with pytest.raises(InputError, match="places with coordinates"):
        person_maps({"a": windows([(0, 0, 0, 1)], nowhere)})


def test_users_of_a_group_are_those_who_are_predicted_to_go_there():
    """Users 0 and 1 walk among places 0 to 4, users 2 and 3 among 5 to 8; user 3 is predicted to go there most."""
    rows = [(user, 0, hour, hour % 5 if user < 2 else 5 + hour % 4) for user in range(4) for hour in range(8 + user)]
    train = to_traces(rows, places_in_line(9), HOURS)
    group = np.repeat([0, 1], [5, 4])
    user_b, next_b = np.array([[1.0, 0], [2, 0], [0, 1], [0, 3]]), np.eye(2)[group]
    nothing = np.zeros((9, 2))
    counts = FactorizedCounts(Factors(nothing, nothing, user_b, next_b, user_b * 0, nothing), np.zeros(1), group)
    figure = group_maps(train, counts, n_groups=2, n_users=1)
    assert [ax.get_title() for ax in figure.axes] == [
        "4 places, 100 % of events", "5 places, 100 % of events"
    ]  # fmt: skip
    drawn = [line.get_xdata() for line in figure.axes[0].lines if len(line.get_xdata()) > 2]
    np.testing.assert_allclose(drawn[0], train.places.unbroken_longitude()[train.place[train.user == 3]])
    # A model that predicts nothing has nobody who goes most.
    nobody = group_maps(train, replace(counts, factors=counts.factors._replace(user_b=user_b * 0)), n_users=1)
    assert not nobody.axes[0].lines
    assert nobody.axes[0].get_title() == "4 places, 0 % of events"
    with pytest.raises(InputError, match="matrices of gstf that were learned from these traces"):
        group_maps(train, replace(counts, group=None))
    with pytest.raises(InputError, match="matrices of gstf"):
        group_maps(train.select_users(np.arange(3)), counts)
