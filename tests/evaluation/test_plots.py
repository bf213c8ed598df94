"""The pictures: what is drawn is what was computed; nothing of pyplot is touched."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from ppmtf_jax.attacks.roc import Roc
from ppmtf_jax.data.measurement import Caveat, Interpretation, MetricInfo
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import ToyCity, toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation import EvaluationSettings, plots
from ppmtf_jax.evaluation.evaluation import Evaluation
from ppmtf_jax.evaluation.metrics.population import population_by_slot
from ppmtf_jax.evaluation.plots.maps import (
    cluster_strength,
    flows_between_cells,
    grid_of_places,
    oriented_factors,
    oriented_next_place,
    round_ticks,
    share_scale,
    top_users,
)
from ppmtf_jax.evaluation.plots.matrices import MAX_MATRIX_GROUPS, group_transitions, moved_apart, neighbour_groups
from tests.support import evaluation_of, random_traces

QUANTITIES = EvaluationSettings().quantities()
EVALUATION = evaluation_of(["synthetic"], [(QUANTITIES["tp_tv"], [0.1])])


@pytest.fixture(scope="module")
def city() -> ToyCity:
    return toy_city(200, seed=2)


@pytest.fixture(scope="module")
def halves(city: ToyCity) -> tuple[Traces, Traces]:
    return city.traces.split_users(0.5, seed=0)


def grid_places(n_rows: int, n_columns: int) -> PlaceTable:
    row, column = np.divmod(np.arange(n_rows * n_columns), n_columns)
    # The last bits differ from place to place, as in real files.
    noise = 1e-12 * np.random.default_rng(0).normal(size=len(row))
    latitude, longitude = 35.65 + 0.005 * row + noise, 139.68 + 0.006 * column
    return PlaceTable.from_frame(
        pd.DataFrame({"place": np.arange(len(row)), "latitude": latitude, "longitude": longitude})
    )


def traces_in(places: PlaceTable, n_slots: int, n_users: int = 30) -> Traces:
    """One event of each user in each slot."""
    grid = TimeGrid.each_instant("2024-01-01T09:00:00", 1200, n_slots)
    return random_traces(0, range(n_users), places, grid)


@pytest.mark.parametrize("logarithmic", [False, True])
def test_ties_are_a_straight_line_as_the_area_counts_them(logarithmic):
    """A likelihood ratio gives most people the score 0: a coin decides among them."""
    roc = Roc.of(np.array([2.0, *[0.0] * 9]), np.array([1.0, *[0.0] * 7]))
    x, y = plots.roc_curves({"LR": roc}, title="Who?", logarithmic=logarithmic).axes[0].lines[0].get_xydata().T / 100
    assert np.trapezoid(y, x) == pytest.approx(roc.auc, abs=1e-4)
    tied = (x > 1 / 8) & (x < 1)
    assert tied.sum() > 30
    assert y[tied] == pytest.approx(0.1 + 0.9 * (x[tied] - 1 / 8) / (7 / 8))


def true_factors(city: ToyCity) -> SimpleNamespace:
    """Factors that know the truth: one column per cluster, with the cluster's own visits."""
    traces = city.traces
    user = np.eye(len(city.cluster_names))[city.cluster]
    place, slot = np.zeros((traces.n_places, user.shape[1])), np.zeros((traces.time_grid.n_slots, user.shape[1]))
    np.add.at(place, (traces.place, city.cluster[traces.user]), 1)
    np.add.at(slot, (traces.slot, city.cluster[traces.user]), 1)
    return SimpleNamespace(user=user, place=place, next_place=place, slot=slot)


def written_numbers(axes) -> list[float]:
    return [float(text.get_text()) for text in axes.texts if text.get_text() not in ("n/a", "")]


def test_a_slot_without_events_is_left_empty() -> None:
    places = grid_places(3, 3)
    grid = TimeGrid.each_instant("2024-01-01T09:00:00", 3600, 3)
    frame = pd.DataFrame({"user": [0, 0, 1], "instant": [0, 2, 2], "place": [4, 4, 5]})
    traces = Traces.from_frame(frame, places, grid)
    figure = plots.population_maps(traces, traces)
    first, second, third = (ax.collections[0].get_array() for ax in figure.axes[:3])
    assert np.ma.getmaskarray(second).all()
    assert third.ravel()[[4, 5]].tolist() == [100 / 2, 100 / 2]
    assert first.sum() == pytest.approx(100)


def test_grids_are_drawn_as_cells_and_scattered_places_as_dots(city: ToyCity) -> None:
    traces = traces_in(grid_places(4, 5), 6)
    cells = plots.population_maps(traces, traces, slots=[3]).axes[0].collections[0]
    expected = 100 * population_by_slot(traces)[3].reshape(4, 5)
    np.testing.assert_allclose(np.ma.getdata(cells.get_array()).reshape(4, 5), expected)

    # A grid with holes leaves them empty.
    traces = traces_in(PlaceTable.from_frame(grid_places(4, 5).to_frame().drop(index=[7, 11])), 3)
    cells = plots.population_maps(traces, traces, slots=[0]).axes[0].collections[0].get_array()
    assert np.flatnonzero(np.ma.getmaskarray(cells).ravel()).tolist() == [7, 11]

    dots = plots.population_maps(city.traces, city.traces, slots=[5]).axes[0].collections[-1]
    shares = 100 * population_by_slot(city.traces)[5]
    np.testing.assert_allclose(np.sort(dots.get_array()), np.sort(shares))
    largest = dots.get_offsets()[np.argmax(dots.get_array())]
    places = city.traces.places
    np.testing.assert_allclose(largest, [places.longitude[shares.argmax()], places.latitude[shares.argmax()]])


def test_population_maps_share_one_scale_and_correct_longitude(halves) -> None:
    train, synthetic = halves
    figure = plots.population_maps(synthetic, train, synthetic)
    maps, colour_bars = figure.axes[:-1], figure.axes[-1:]
    assert (len(maps), len(colour_bars)) == (3 * 4, 1)
    assert "%" in colour_bars[0].get_ylabel()
    norms = {ax.collections[-1].norm for ax in maps}
    assert len(norms) == 1
    largest = max(population_by_slot(traces)[[1, 4, 7, 10]].max() for traces in halves)
    assert norms.pop().vmax == pytest.approx(100 * largest)
    assert maps[0].get_aspect() == pytest.approx(1 / np.cos(np.radians(52.0)), rel=1e-3)
    assert [ax.get_title() for ax in maps[:4]] == ["from 02:00", "from 08:00", "from 14:00", "from 20:00"]


def test_one_place_with_half_of_a_quiet_hour_does_not_pale_all_others() -> None:
    """Without a cap, 48 % at one place among shares of about .1 % leave all other places in the palest colours."""
    usual = np.linspace(0.05, 0.2, 800)
    scale = share_scale(np.append(usual, 48.0))
    assert scale.vmax == pytest.approx(0.2, rel=0.02)
    assert scale(48.0) == 1
    assert scale(usual).min() > 0.4
    assert share_scale(np.append(usual, 0.5)).vmax == 0.5
    assert share_scale(np.full(5, np.nan)).vmax == 1
    place = np.repeat(np.arange(301), [500, *[1] * 300])
    frame = pd.DataFrame({"user": np.arange(800), "instant": 0, "place": place})
    spread = PlaceTable(np.arange(301), 52 + 0.01 * np.sqrt(np.arange(301)), 5 + 0.001 * np.arange(301))
    traces = Traces.from_frame(frame, spread, TimeGrid.each_instant("2024-01-01T09:00:00", 3600, 1))
    bar = plots.population_maps(traces, traces).axes[-1]
    # The end of the bar is an arrow, so its scale is true.
    assert bar._colorbar.extend == "max"
    assert bar._colorbar.norm.vmax < 1


def walk(path: list[int], places: PlaceTable, n_users: int = 1) -> Traces:
    """Users who are all at these places at consecutive instants."""
    grid = TimeGrid.each_instant("2024-01-01T09:00:00", 3600, len(path))
    frame = pd.DataFrame({"instant": np.arange(len(path)), "place": path})
    return Traces.from_frame(frame.merge(pd.DataFrame({"user": np.arange(n_users)}), how="cross"), places, grid)


def row_of_places(*longitudes: float) -> PlaceTable:
    return PlaceTable.from_frame(
        pd.DataFrame({"place": range(len(longitudes)), "latitude": 0, "longitude": longitudes})
    )


KM = 360 / (2 * np.pi * 6371)
"""Degrees on the equator."""


def test_jump_lengths_are_shares_of_the_moves() -> None:
    places = row_of_places(0, 1.5 * KM, 4.7 * KM)
    # One stay, two moves of 1.5 km and one of 3.2 km; and one of 4.7 km.
    sets = {"many": walk([0, 0, 1, 0, 1, 2], places), "one": walk([0, 2], places, n_users=3)}
    ax = plots.jump_length_curves(sets).axes[0]
    many, one = ax.lines
    assert many.get_xdata().tolist() == [0.5, 1.5, 2.5, 3.5, 4.5]
    np.testing.assert_allclose(many.get_ydata(), [np.nan, 100 * 3 / 4, np.nan, 100 * 1 / 4, np.nan])
    np.testing.assert_allclose(one.get_ydata(), [np.nan] * 4 + [100])
    wide = plots.jump_length_curves(sets, bin_km=2.0).axes[0].lines[0]
    np.testing.assert_allclose(wide.get_ydata(), [75, 25, np.nan])
    assert wide.get_xdata().tolist() == [1, 3, 5]


@pytest.mark.parametrize("path", [[0], [0, 0, 0]], ids=["one event", "a stay"])
def test_who_does_not_move_is_said_to_and_not_drawn(path: list[int]) -> None:
    places = row_of_places(0, 3 * KM)
    still, going = walk(path, places), walk([0, 1], places)
    ax = plots.jump_length_curves({"still": still, "going": going}).axes[0]
    assert [line.get_label() for line in ax.lines] == ["still: no move", "going"]
    assert np.isnan(ax.lines[0].get_ydata()).all()
    flows = plots.flow_maps({"still": still, "going": going})
    assert [ax.get_title() for ax in flows.axes] == [
        "still: no move between cells",
        "going: 1 flow, 100 % of the moves",
    ]
    assert [len(ax.patches) for ax in flows.axes] == [0, 1]
    for nobody in (plots.jump_length_curves({"still": still}), plots.flow_maps({"still": still}), flows):
        nobody.draw_without_rendering()


def test_flows_are_moves_between_cells() -> None:
    # Two cells: places 0 and 1 are in the first.
    places = row_of_places(0, 1, 4)
    traces = walk([0, 1, 2, 2, 0, 2, 1], places)
    flows = flows_between_cells(traces, n_cells=2)
    (west, east) = places.grid_cell(2)[[0, 2]]
    # Five moves: one within the first cell, two there, two back; of equal flows the one from the first cell is first.
    assert list(zip(*(each.tolist() for each in flows), strict=True)) == [(west, east, 2 / 5), (east, west, 2 / 5)]


def test_the_largest_flows_are_arrows_of_one_scale() -> None:
    places = row_of_places(0, 1, 2, 3)
    often = walk([0, 1, 0, 1, 2], places)  # two moves 0-1 of four, one 1-0, one 1-2
    once = walk([3, 0], places)
    figure = plots.flow_maps({"often": often, "once": once}, n_cells=4, n_flows=1)
    assert [ax.get_title() for ax in figure.axes] == [
        "often: 1 flow, 50 % of the moves",
        "once: 1 flow, 100 % of the moves",
    ]
    (first,), (second,) = (ax.patches for ax in figure.axes)
    assert first.get_arrowstyle().tail_width / second.get_arrowstyle().tail_width == pytest.approx((2 / 4) / 1)
    assert [tuple(at) for at in second._posA_posB] == [(3, 0), (0, 0)]
    (legend,) = figure.legends
    widths = {line.get_label(): line.get_linewidth() for line in legend.legend_handles}
    assert widths["100 %"] == pytest.approx(second.get_arrowstyle().tail_width)
    assert widths["50 %"] == pytest.approx(first.get_arrowstyle().tail_width)


def test_sets_of_other_places_are_not_drawn_as_one(halves) -> None:
    sets = {"a": halves[0], "b": walk([0, 1], row_of_places(0, 1))}
    for draw in (plots.jump_length_curves, plots.flow_maps):
        with pytest.raises(InputError, match="100 in a, 2 in b"):
            draw(sets)
    with pytest.raises(InputError, match="at least one trace set"):
        plots.flow_maps({})
    with pytest.raises(InputError, match="at least one trace set"):
        plots.jump_length_curves({})
    with pytest.raises(InputError, match="bin_km as a finite number above 0"):
        plots.jump_length_curves(sets, bin_km=0.0)
    with pytest.raises(InputError, match="n_cells as a whole number of at least 1"):
        plots.flow_maps({"a": halves[0]}, n_cells=0)
    with pytest.raises(InputError, match="n_flows of at least one"):
        plots.flow_maps({"a": halves[0]}, n_flows=0)
    with pytest.raises(InputError, match="place"):
        plots.population_maps(traces_in(grid_places(3, 3), 12), halves[0])
    with pytest.raises(InputError, match=r"other than training, test.*test"):
        plots.population_maps({"test": halves[0]}, *halves)


def test_matrices_are_ordered_by_category(city: ToyCity, halves) -> None:
    train, synthetic = halves
    figure = plots.transition_matrices(synthetic, train)
    left, right, colour_bar = figure.axes
    labels = [label.get_text() for label in left.get_yticklabels()]
    assert labels == list(dict.fromkeys(train.places.category))
    order = np.lexsort((train.places.longitude, [labels.index(name) for name in train.places.category]))
    for ax, traces in ((left, train), (right, synthetic)):
        drawn = ax.images[0].get_array()
        expected = group_transitions(traces, np.arange(100))[np.ix_(order, order)]
        np.testing.assert_array_equal(np.ma.getmaskarray(drawn), np.isnan(expected))
        shown = np.ma.filled(drawn, np.nan)
        np.testing.assert_allclose(shown[expected > 0], expected[expected > 0])
        assert (shown[expected == 0] < ax.images[0].norm.vmin).all()
    assert left.images[0].norm is right.images[0].norm
    assert colour_bar.get_yscale() == "log"


@pytest.mark.parametrize(("n_rows", "n_columns"), [(20, 20), (9, 13), (3, 3)])
def test_many_places_become_groups_of_neighbours(n_rows: int, n_columns: int) -> None:
    places = grid_places(n_rows, n_columns)
    groups = neighbour_groups(places)
    sizes = np.bincount(groups.of_place)
    assert len(sizes) == min(len(places), MAX_MATRIX_GROUPS)
    assert sizes.max() - 1 <= sizes.min() >= 1
    longitude = [places.longitude[groups.of_place == group].round(6) for group in range(len(sizes))]
    assert all(west.max() <= east.min() for west, east in pairwise(longitude))


def test_groups_do_not_mix_categories_unless_there_are_too_many() -> None:
    places = toy_city(5, n_places=730, n_days=1).traces.places
    groups = neighbour_groups(places)
    n_groups = groups.of_place.max() + 1
    assert all(len(set(places.category[groups.of_place == group])) == 1 for group in range(n_groups))
    assert n_groups == len(groups.category_of_group) <= MAX_MATRIX_GROUPS
    many = grid_places(5, 5).to_frame().assign(category=[f"kind {i}" for i in range(25)])
    assert neighbour_groups(PlaceTable.from_frame(many)).categories == []


def test_labels_are_kept_apart() -> None:
    moved = moved_apart(np.array([0.0, 10.0, 10.5, 11.0, 99.0]), 3.0, 99.0)
    assert (np.diff(moved) >= 3).all()
    assert moved[-1] == 99


def test_bars_show_what_was_given_and_mark_what_was_not() -> None:
    undefined = float("nan")
    values = {"tp_tv": [0.43, 0.38, 0.86], "reid_rate": [0.0, undefined, undefined], "vf_tv": [undefined] * 3}
    quantities = {name: QUANTITIES[name] for name in values}
    numbers = [(quantities[name], values[name]) for name in values]
    figure = plots.utility_bars(evaluation_of(["synthetic", "training", "uniform"], numbers))
    axes = dict(zip(values, figure.axes, strict=False))
    assert [bar.get_height() for bar in axes["tp_tv"].patches] == [0.43, 0.38, 0.86]
    assert written_numbers(axes["tp_tv"]) == [0.43, 0.38, 0.86]
    assert [text.get_text() for text in axes["reid_rate"].texts] == ["0", "n/a", "n/a"]
    assert not axes["vf_tv"].patches
    for name, quantity in quantities.items():
        assert axes[name].get_title() == f"{quantity.title}\nlower is better"
        assert axes[name].get_ylabel() == quantity.unit
        assert axes[name].get_xlabel() == f"good: {quantity.good_value}"
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["synthetic", "training data", "uniform"]
    figure.draw_without_rendering()


@pytest.mark.parametrize("n_metrics", [9, pytest.param(len(QUANTITIES), marks=pytest.mark.slow)])
def test_no_text_of_metrics_lies_on_another_or_is_cut_off(n_metrics: int) -> None:
    about = Interpretation({"floor": 0.12, "all alike": 0.5}, (Caveat("few", "Too few users for this number"),))
    # Those with the longest titles.
    widest = sorted(QUANTITIES.values(), key=lambda each: -len(each.title))[:n_metrics]
    numbers = [(each, [0.0012, 0.0017, 0.519, 0.0012]) for each in widest]
    columns = ["released", "all", "training", "uniform"]
    figure = plots.utility_bars(evaluation_of(columns, numbers, dict.fromkeys(QUANTITIES, about)))
    figure.draw_without_rendering()
    texts = [text for ax in figure.axes for text in (*ax.texts, ax.title, ax.xaxis.label, ax.yaxis.label)]
    texts += [*figure.legends[0].get_texts(), figure.legends[0].get_title(), *figure.texts]
    shown = [text for text in texts if text.get_text() and text.get_visible()]
    low, high = np.array([text.get_window_extent().get_points() for text in shown]).transpose(1, 0, 2)
    one, other = np.nonzero(((low < high[:, None]) & (high > low[:, None])).all(axis=2))
    assert [(shown[a], shown[b]) for a, b in zip(one, other, strict=True) if a != b] == []
    assert (low >= 0).all()
    assert (high <= figure.get_size_inches() * figure.dpi).all()


def test_bars_go_below_0_and_counts_have_none() -> None:
    bias = MetricInfo("bias", "Bias", "A number.", "km", "zero", "near 0")
    count = MetricInfo("n", "Counted", "A number.", "traces", "none", "-")
    numbers = [(count, [500.0, 500.0, 500.0]), (bias, [-0.6, 0.1, -0.2])]
    figure = plots.utility_bars(evaluation_of(["synthetic", "training", "uniform"], numbers))
    panel, *rest = figure.axes
    assert panel.get_title() == "Bias\nclosest to 0 is better"
    assert [bar.get_height() for bar in panel.patches] == [-0.6, 0.1, -0.2]
    # Each number stands beyond the end of its bar, within the panel.
    heights = [text.get_position()[1] for text in panel.texts]
    assert heights[0] < -0.6 < heights[2] < -0.2 < 0.1 < heights[1]
    low, high = panel.get_ylim()
    assert low < heights[0]
    assert heights[1] < high
    assert figure.legends
    assert not any(ax.get_title() for ax in rest)
    figure.draw_without_rendering()
    # Numbers too long for their bars are rounded.
    numbers = [(QUANTITIES["tp_tv"], [-0.0129, -0.00181, 0.0181])]
    figure = plots.utility_bars(evaluation_of(["synthetic", "training", "uniform"], numbers))
    assert written_numbers(figure.axes[0]) == [-0.013, -0.002, 0.0181]


def test_references_are_lines_and_caveats_are_told_below() -> None:
    readings = {
        "tp_tv": Interpretation({"floor": 0.26, "everybody alike": 0.9}),
        "vf_tv": Interpretation(caveats=(Caveat("few", "Too few users for this number"),)),
    }
    numbers = [(QUANTITIES[name], [0.5, 0.4, 0.3]) for name in readings]
    figure = plots.utility_bars(evaluation_of(["synthetic", "training", "uniform"], numbers, readings))
    first, second = figure.axes[:2]
    lines = sorted(line.get_ydata()[0] for line in first.lines)
    assert lines == [0, 0.26, 0.9]
    assert first.get_ylim()[1] > 0.9
    assert "floor 0.26, everybody alike 0.90" in first.get_xlabel().replace("\n", " ")
    assert {bar.get_alpha() for bar in first.patches} == {None}
    assert second.get_title().startswith("VF-TV †\n")
    assert all(bar.get_alpha() < 0.5 for bar in second.patches)
    assert figure.get_supxlabel() == "† VF-TV: Too few users for this number."
    figure.draw_without_rendering()


def test_strength_of_clusters_is_the_distance_from_everybody() -> None:
    """A cluster is a tenth of the users, at least one."""
    assert top_users(np.linspace(0, 1, 40)).tolist() == [36, 37, 38, 39]
    grid = TimeGrid.each_instant("2024-01-01T09:00:00", 3600, 1)
    frame = pd.DataFrame({"user": np.arange(10), "instant": 0, "place": [8] + [0] * 9})
    traces = Traces.from_frame(frame, grid_places(3, 3), grid)
    odd, common = np.eye(10)[0], np.eye(10)[1]
    np.testing.assert_allclose(cluster_strength([top_users(odd), top_users(common)], traces), [9 / 10, 1 / 10])


def test_clusters_of_the_truth_are_drawn(city: ToyCity) -> None:
    factors = true_factors(city)
    traces = city.traces
    synthetic = traces.select_users(np.arange(0, traces.n_users, 2))
    figure = plots.user_clusters(factors, synthetic, traces, n_clusters=2)
    panels = np.array(figure.axes[: 2 * 5]).reshape(2, 5)
    strength = cluster_strength([top_users(column) for column in factors.user.T], traces)
    for row, cluster in zip(panels, np.argsort(-strength)[:2], strict=True):
        top = top_users(factors.user[:, cluster])
        assert (city.cluster[top] == cluster).all()
        for ax, shown in ((row[0], traces), (row[1], synthetic)):
            chosen = np.isin(shown.user_ids[shown.user], traces.user_ids[top])
            share = 100 * np.bincount(shown.place[chosen], minlength=traces.n_places) / chosen.sum()
            np.testing.assert_allclose(np.sort(ax.collections[-1].get_array()), np.sort(share))
        for ax in row[2:4]:
            assert np.sum(np.square(ax.collections[-1].get_array())) == pytest.approx(1)
        assert sum(bar.get_height() ** 2 for bar in row[4].patches) == pytest.approx(1)
        venues = traces.places.category[np.argsort(-factors.place[:, cluster], kind="stable")[:5]]
        assert row[0].get_ylabel().splitlines()[2:] == list(dict.fromkeys(venues))[:2]
        assert f"cluster {cluster + 1}," in row[0].get_ylabel()
    figure.draw_without_rendering()
    # A map of a cluster without a synthetic trace stays empty.
    others = np.setdiff1d(np.arange(traces.n_users), top_users(factors.user[:, np.argsort(-strength)[0]]))
    figure = plots.user_clusters(factors, traces.select_users(others), traces, n_clusters=1)
    figure.draw_without_rendering()
    assert [len(ax.collections[-1].get_offsets()) for ax in figure.axes[:2]] == [traces.n_places, 0]


def test_next_places_keep_the_signs_of_the_transitions(city: ToyCity) -> None:
    """Turning user and slots turns the products of the transitions, unless the next places are turned too."""
    factors = true_factors(city)
    upright = oriented_next_place(factors.next_place, factors.slot)
    np.testing.assert_allclose(oriented_next_place(-factors.next_place, -factors.slot), upright)
    np.testing.assert_allclose(oriented_next_place(-factors.next_place, factors.slot), -upright)


@pytest.mark.parametrize("flipped", [("user", "place"), ("user", "slot"), ("place", "slot")])
def test_signs_of_factors_do_not_matter(city: ToyCity, flipped: tuple[str, str]) -> None:
    factors = true_factors(city)
    expected = oriented_factors(factors.user, factors.place, factors.slot, city.traces)
    turned = SimpleNamespace(**{**vars(factors), **{name: -getattr(factors, name) for name in flipped}})
    for got, wanted in zip(
        oriented_factors(turned.user, turned.place, turned.slot, city.traces), expected, strict=True
    ):
        np.testing.assert_allclose(got, wanted)


def test_ticks_are_round_and_apart() -> None:
    for largest in (0.013, 0.9, 1.0, 4.47, 8.0, 37.0, 100.0):
        ticks = np.array(round_ticks(largest, 0.1))
        assert ticks[0] == 0
        assert 0.9 * largest <= ticks[-1] <= largest
        assert (np.diff(np.sqrt(ticks / largest)) >= 0.1 - 1e-9).all()


def test_odd_place_sets_can_be_drawn() -> None:
    two = pd.DataFrame({"place": [1, 2], "latitude": [50.0, 50.0], "longitude": [8.0, 8.1], "category": ["$x", "y_$"]})
    for frame in (two.head(1), two):
        traces = traces_in(PlaceTable.from_frame(frame), 1, n_users=3)
        plots.population_maps(traces, traces).draw_without_rendering()
        plots.transition_matrices(traces, traces).draw_without_rendering()


def test_all_pictures_are_written(city: ToyCity, halves, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are laid out by other tests; how any picture is written is tested with the smallest."""
    monkeypatch.setattr(Figure, "savefig", lambda _, path, **__: Path(path).touch())
    train, test = halves
    half_city = ToyCity(train, city.cluster[train.user_ids], city.cluster_names, city.home, city.work)
    arguments = {"synthetic": train, "train": train, "test": test, "evaluation": EVALUATION}
    paths = plots.save_pictures(tmp_path / "pictures", **arguments, factors=true_factors(half_city))
    names = ["population", "transitions", "utility", "clusters"]
    assert [path.name for path in paths] == [f"{name}.png" for name in names]
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == sorted(path.name for path in paths)
    # Nothing is written if one of them cannot be drawn.
    with pytest.raises(InputError, match="factors of 100 users"):
        plots.save_pictures(tmp_path / "none", **arguments, factors=true_factors(city))
    assert not (tmp_path / "none").exists()


def test_attacks_have_a_picture_of_their_own() -> None:
    rows = EVALUATION.rows
    attack = rows[0]._replace(quantity=QUANTITIES["reid_rate"], kind="privacy")
    attacked = Evaluation([*rows, attack])
    titles = [
        [ax.get_title().partition("\n")[0] for ax in draw(attacked).axes if ax.get_title()]
        for draw in (plots.utility_bars, plots.privacy_bars)
    ]
    assert titles == [["TP-TV"], ["Re-identification rate"]]


def curve() -> Figure:
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([1.0, 0.75])
    return figure


@pytest.mark.parametrize("suffix", ["svg", "pdf", "PNG"])
def test_the_same_picture_is_the_same_file(tmp_path: Path, suffix: str) -> None:
    """It says that it is ours, and not when or by which version of Matplotlib it was made."""
    first, again, others = (tmp_path / f"{name}.{suffix}" for name in ("first", "again", "others"))
    plots.save_figure(curve(), first)
    plots.save_figure(curve(), again)
    content = first.read_bytes()
    assert content == again.read_bytes()
    assert plots.is_own_picture(first)
    assert b"ppmtf_jax" in content
    assert content.startswith({"svg": b"<?xml", "pdf": b"%PDF", "PNG": b"\x89PNG"}[suffix])
    assert [word for word in (b"CreationDate", b"dc:date", matplotlib.__version__.encode()) if word in content] == []
    curve().savefig(others)
    assert not plots.is_own_picture(others)
    # Nor is a picture ours whose name says that it is of another format.
    assert not plots.is_own_picture(first.rename(first.with_suffix(".png" if suffix == "pdf" else ".pdf")))


@pytest.mark.parametrize("name", ["picture.jpg", "picture", ".png", "picture.png.gz"])
def test_unknown_formats_are_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    for refuse in (plots.check_picture_name, plots.is_own_picture, lambda path: plots.save_figure(curve(), path)):
        with pytest.raises(InputError, match=r"a name that ends in \.png, \.svg, \.pdf"):
            refuse(tmp_path / name)
    assert not list(tmp_path.iterdir())
    (tmp_path / "text.svg").write_text("<dc:title>ppmtf_jax</dc:title>")
    assert not plots.is_own_picture(tmp_path / "text.svg")
    assert not plots.is_own_picture(tmp_path / "absent.png")


def test_chains_are_drawn_under_their_titles() -> None:
    chains = np.arange(20.0).reshape(2, 10)
    figure = plots.trace_plots({"log joint density": chains, "error at visits": -chains})
    titles = [ax.get_title() for ax in figure.axes[:2]]
    assert titles == ["log joint density", "error at visits"]
    for ax, sign in zip(figure.axes, (1, -1), strict=False):
        np.testing.assert_array_equal([line.get_ydata() for line in ax.lines], sign * chains)


def test_matplotlib_is_imported_only_for_pictures_and_pyplot_never() -> None:
    """All commands import the other modules, and would start later by the time that Matplotlib takes."""
    package = Path(plots.__file__).parents[2]
    drawing = (package / "evaluation" / "plots", package / "evaluation" / "report" / "sections")
    at_the_top = r"^(from|import) (matplotlib|ppmtf_jax\.evaluation\.plots)|^from ppmtf_jax\.evaluation import .*plots"
    for file in package.rglob("*.py"):
        source = file.read_text(encoding="utf-8")
        assert not re.search(r"import .*pyplot|from .*pyplot import", source), file
        if not any(file.is_relative_to(folder) for folder in drawing):
            assert not re.search(at_the_top, source, flags=re.MULTILINE), file


def test_real_people_flow_is_a_grid(shared: Path) -> None:
    frame = pd.read_csv(shared / "reference" / "people_flow" / "POI_TK.csv.gz")
    places = PlaceTable.from_frame(frame.rename(columns={"poi_id": "place", "y": "latitude", "x": "longitude"}))
    (rows, _), (columns, _) = grid_of_places(places)
    assert (len(rows), len(columns)) == (20, 20)


def test_pass_rates_are_drawn_against_k():
    curves = {"sparse": np.array([1.0, 0.5, 0.25]), "dense": np.array([1.0, 0.75])}
    ax = plots.pass_rate_curves(curves).axes[0]
    for line, (name, rates) in zip(ax.lines, curves.items(), strict=True):
        assert line.get_label() == name
        np.testing.assert_array_equal(line.get_xdata(), np.arange(1, len(rates) + 1))
        np.testing.assert_array_equal(line.get_ydata(), 100 * rates)


def test_trade_offs_have_a_line_for_each_system_in_each_panel():
    titles = {"tp_tv": "TP-TV", "reid_rate": "Re-identification", "mia_advantage": "Membership"}
    tv, reid, membership = (MetricInfo(name, title, "", "TV", "lower", "") for name, title in titles.items())
    ours = {
        "sgd": {"tp_tv": [0.5, 0.4], "reid_rate": [0.001, 0.1], "mia_advantage": [0.1, 0.2]},
        "ppmtf": {"tp_tv": [0.3], "reid_rate": [0.02], "mia_advantage": [0.0]},
    }
    official = {"sgd": {"tp_tv": [0.45], "reid_rate": [0.05], "mia_advantage": [0.15]}}
    training = {"training": {"tp_tv": 0.2, "reid_rate": 1.0, "mia_advantage": 0.7}}
    figure = plots.trade_offs(ours, [tv], [reid, membership], published=official, references=training)
    upper, lower = figure.axes
    assert [line.get_label() for line in upper.lines] == ["sgd", "sgd, published", "ppmtf", "training"]
    assert upper.lines[0].get_color() == upper.lines[1].get_color() != upper.lines[2].get_color()
    np.testing.assert_array_equal(upper.lines[0].get_xydata(), [[0.001, 0.5], [0.1, 0.4]])
    np.testing.assert_array_equal(lower.lines[3].get_xydata(), [[0.7, 0.2]])
    # Re-identification spans two decades; an advantage may be 0 or less.
    assert (upper.get_xscale(), lower.get_xscale()) == ("log", "linear")
