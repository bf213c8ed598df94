"""Curves of friends, attacks and shares of visits: what is drawn is what was computed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from ppmtf_jax.attacks.roc import Roc
from ppmtf_jax.colocation.counts import find_colocations
from ppmtf_jax.colocation.friends import FriendGraph
from ppmtf_jax.colocation.metrics import degree_distribution, meetings_by_category, meetings_by_hour
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation import plots
from ppmtf_jax.evaluation.plots.curves import draw_at_least
from ppmtf_jax.evaluation.plots.numbers import draw_auc, draw_roc
from tests import support
from tests.support import minutes, to_traces


@pytest.fixture
def ax() -> Axes:
    return Figure(layout="constrained").subplots()


@pytest.fixture(scope="module")
def halves() -> tuple[Traces, Traces]:
    return toy_city(n_users=200, n_places=30, n_days=1, seed=0).traces.split_users(0.5, seed=0)


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


def test_shares_are_of_at_least_so_many(ax) -> None:
    """What hardly anybody has is left out; so are those who have none, whose share is what is missing to 100."""
    draw_at_least(ax, {"real": np.array([0.5, 0.3, 0.1999, 0, 0.0001]), "none": np.array([1.0])})
    real, none = ax.lines
    assert real.get_xdata().tolist() == [1, 2]
    assert real.get_ydata() == pytest.approx([50, 20])
    assert len(none.get_xdata()) == 0


def test_odd_sets_of_friends_are_drawn_or_refused(halves, tmp_path) -> None:
    real = halves[0]
    plain = replace(real, places=replace(real.places, category=None))
    titles = [axes.get_title() for axes in plots.friend_panels({"real": plain}).axes]
    assert titles == ["When friends meet", "How often two friends meet", "How many friends people have"]
    lonely = replace(real, friendships=np.zeros((0, 2), np.int32))
    figure = plots.friend_panels({"real": real, "lonely": lonely})
    plots.save_figure(figure, tmp_path / "friends.png")
    assert np.isnan(figure.axes[0].patches[1].get_data().values).all()
    assert len(figure.axes[3].lines[1].get_xdata()) == 0
    for sets, message in (
        ({}, "at least one trace set; found none"),
        ({"real": replace(real, friendships=None)}, "friendships of the users; found none known"),
        ({"real": real, "other": replace(real, places=support.places_in_line(30))}, "the same place table"),
    ):
        with pytest.raises(InputError, match=message):
            plots.friend_panels(sets)


# Attacks


def test_rates_are_percent_beside_a_guess(ax: Axes) -> None:
    roc = Roc.of(np.array([3.0, 2.0]), np.array([2.5, 0.0]))
    assert draw_roc(ax, {"TF": (roc.false_positive_rate, roc.true_positive_rate)}) is ax
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [0, 0, 50, 50, 100])
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [0, 50, 50, 100, 100])
    guess = np.asarray(ax.lines[1].get_xydata())
    np.testing.assert_array_equal(guess[[0, -1]], [[0, 0], [100, 100]])
    np.testing.assert_array_equal(guess[:, 0], guess[:, 1])
    assert [text.get_text() for text in ax.legend().get_texts()] == ["TF", "a guess"]


def test_all_traces_together_have_the_colour_of_single_ones(ax: Axes) -> None:
    curve = np.array([0.0, 1.0]), np.array([0.0, 1.0])
    draw_roc(ax, {"ML": curve, "ML*": curve, "TF*": curve, "TF": curve})
    colour = [line.get_color() for line in ax.lines]
    assert colour[0] == colour[1] != colour[2] == colour[3]
    assert [line.get_linestyle() for line in ax.lines[:4]] == ["-", "--", "--", "-"]


def test_areas_along_a_number_or_groups_that_have_names(ax: Axes) -> None:
    lines = {"ML": np.array([0.6, np.nan, 0.3]), "TF": np.array([0.7, 0.6, 0.5])}
    assert draw_auc(ax, np.array([1, 3, 9]), lines, label="known traces", errors={"TF": np.full(3, 0.02)}) is ax
    ml, tf = (bars for bars in ax.containers if isinstance(bars, ErrorbarContainer))
    np.testing.assert_array_equal(ml.lines[0].get_xydata(), [[1, 60], [3, np.nan], [9, 30]])
    assert (ml.has_yerr, tf.has_yerr) == (False, True)
    (bars,) = tf.lines[2]
    np.testing.assert_allclose(bars.get_segments()[0][:, 1], [70 - 2, 70 + 2])
    # Whole numbers have a tick each.
    assert ax.get_xticks().tolist() == [1, 3, 9]
    named = draw_auc(Figure().subplots(), np.array(["2 to 5", "6 to 10"]), {"GSTF": np.array([0.6, 0.7])}, label="n")
    named.figure.draw_without_rendering()
    assert [text.get_text() for text in named.get_xticklabels()] == ["2 to 5", "6 to 10"]


# Shares of visits

HOME, BAR, PUB, PARK = range(4)
PLACES = PlaceTable(
    np.array(["a", "b", "c", "d"]), np.zeros(4), np.zeros(4), category=np.array(["home", "bar", "bar", "park"])
)


def days(*rows: list[int]) -> Traces:
    """A user with ten instants of each row."""
    events = [(user, 0, instant, place) for user, row in enumerate(rows) for instant, place in enumerate(row)]
    return to_traces(events, PLACES, minutes(10))


TEST = days([HOME] * 7 + [BAR] * 2 + [PUB], [HOME] * 9 + [BAR])


def drawn(figure, title: str) -> dict[str, np.ndarray]:
    (ax,) = [ax for ax in figure.axes if ax.get_title() == title]
    return {patch.get_label(): patch.get_data().values for patch in ax.patches}


def test_places_of_one_category_count_together():
    figure = plots.visit_fraction_panels({"test": TEST, "other": days([PUB] * 4 + [PARK] * 6)})
    assert [ax.get_title() for ax in figure.axes] == ["home", "bar", "park"]
    bar = drawn(figure, "bar")
    # Shares of 0.3 and 0.1 of the first set, of 0.4 of the other: bins (0.2, 0.3], (0, 0.1], (0.3, 0.4].
    assert bar["test"].tolist() == [50, 0, 50] + [0] * 7
    assert bar["other"].tolist() == [0, 0, 0, 100] + [0] * 6
    assert drawn(figure, "home")["other"].tolist() == [0] * 10


def test_chosen_kinds_and_places_without_categories():
    (ax,) = plots.visit_fraction_panels({"test": TEST}, kinds=("bar",)).axes
    assert ax.get_title() == "bar"
    plain = replace(TEST, places=replace(PLACES, category=None))
    figure = plots.visit_fraction_panels({"test": plain}, kinds=("b", "c"))
    assert drawn(figure, "c")["test"].tolist() == [100] + [0] * 9


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(InputError, match="at least one trace set"):
        plots.visit_fraction_panels({})
    with pytest.raises(InputError, match=r"categories among bar, home, park; found zoo"):
        plots.visit_fraction_panels({"test": TEST}, kinds=("zoo",))
