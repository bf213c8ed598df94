"""Pictures of friends who meet: what is drawn is what was computed, also where nobody meets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from ppmtf_jax.colocation.counts import find_colocations
from ppmtf_jax.colocation.friends import FriendGraph
from ppmtf_jax.colocation.metrics import degree_distribution, meetings_by_category, meetings_by_hour
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation import plots
from ppmtf_jax.evaluation.plots import friends as friend_plots
from tests import support


@pytest.fixture(scope="module")
def halves() -> tuple[Traces, Traces]:
    return toy_city(n_users=200, n_places=30, n_days=1, seed=0).traces.split_users(0.5, seed=0)


@pytest.fixture
def ax():
    return Figure().subplots()


def test_panels_show_the_numbers_of_each_set(halves) -> None:
    real, other = halves
    figure = plots.friend_panels({"real": real, "other": other})
    hours, categories, pairs, friends = figure.axes
    graph = FriendGraph.of(real)
    met = find_colocations(real, graph)
    by_hour = meetings_by_hour(met.counts(), real.time_grid)
    np.testing.assert_allclose(hours.patches[0].get_data().values, 100 * by_hour)
    by_category = meetings_by_category(met.counts(), real.places)
    of_real = categories.containers[0]
    drawn = {text.get_text(): bar.get_width() for text, bar in zip(categories.get_yticklabels(), of_real, strict=True)}
    assert drawn == pytest.approx({name: 100 * share for name, share in by_category.items()})
    assert list(drawn.values()) == sorted(drawn.values(), reverse=True)
    # Of the pairs who are seen at the same time, which nearly all are; the first point is those who meet at all.
    n_met = len(np.unique(met.pair))
    assert pairs.lines[0].get_ydata()[0] == pytest.approx(100 * n_met / graph.n_pairs, rel=0.02)
    # Both halves have as many users, so that nothing is taken from the numbers of friends.
    expected = 100 * (1 - np.cumsum(degree_distribution(graph)))[:-1]
    np.testing.assert_allclose(friends.lines[0].get_ydata(), expected[expected > 0.01])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["real", "other"]
    for axes in figure.axes:
        assert axes.get_title()
        assert "percent" in axes.get_xlabel() + axes.get_ylabel()


def test_without_categories_there_is_no_panel_of_them(halves) -> None:
    plain = replace(halves[0], places=replace(halves[0].places, category=None))
    titles = [axes.get_title() for axes in plots.friend_panels({"real": plain}).axes]
    assert titles == ["When friends meet", "How often two friends meet", "How many friends people have"]


def test_sets_whose_friends_never_meet_or_that_have_none_are_drawn(halves, tmp_path) -> None:
    real = halves[0]
    lonely = replace(real, friendships=np.zeros((0, 2), np.int32))
    figure = plots.friend_panels({"real": real, "lonely": lonely})
    plots.save_figure(figure, tmp_path / "friends.png")
    assert np.isnan(figure.axes[0].patches[1].get_data().values).all()
    assert len(figure.axes[3].lines[1].get_xdata()) == 0


def test_sets_that_cannot_be_drawn_are_refused(halves) -> None:
    with pytest.raises(InputError, match="at least one trace set; found none"):
        plots.friend_panels({})
    with pytest.raises(InputError, match="friendships of the users; found none known"):
        plots.friend_panels({"real": replace(halves[0], friendships=None)})
    with pytest.raises(InputError, match="the same place table"):
        plots.friend_panels({"real": halves[0], "other": replace(halves[1], places=support.places_in_line(30))})


def test_hours_are_steps_of_an_hour(ax) -> None:
    friend_plots.draw_meeting_hours(ax, {"real": np.full(24, 1 / 24), "none": np.full(24, np.nan)})
    assert [patch.get_label() for patch in ax.patches] == ["real", "none"]
    np.testing.assert_allclose(ax.patches[0].get_data().edges, np.arange(25))


def test_categories_are_in_the_order_of_the_first_set(ax) -> None:
    shares = {"real": {"bar": 0.1, "": 0.3, "home": 0.6}, "made": {"bar": 0.5, "": 0.5, "home": 0.0}}
    friend_plots.draw_meeting_categories(ax, shares)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["home", "none", "bar"]
    made = [bar.get_width() for bar in ax.containers[1]]
    assert made == [0, 50, 50]
    assert ax.yaxis_inverted()


@pytest.mark.parametrize("draw", [friend_plots.draw_pair_meetings, friend_plots.draw_friend_numbers])
def test_shares_are_of_at_least_so_many(ax, draw) -> None:
    """What hardly anybody has is left out; so are those who have none, whose share is what is missing to 100."""
    draw(ax, {"real": np.array([0.5, 0.3, 0.1999, 0, 0.0001]), "none": np.array([1.0])})
    real, none = ax.lines
    assert real.get_xdata().tolist() == [1, 2]
    assert real.get_ydata() == pytest.approx([50, 20])
    assert len(none.get_xdata()) == 0
