"""Curves of attacks: what is drawn is what was given."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from ppmtf_jax.attacks.roc import Roc
from ppmtf_jax.evaluation.plots.attacks import draw_auc, draw_roc


@pytest.fixture
def ax() -> Axes:
    return Figure(layout="constrained").subplots()


def render(ax: Axes) -> None:
    assert isinstance(ax.figure, Figure)
    ax.figure.draw_without_rendering()


def labels(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.legend().get_texts()]


def test_rates_are_percent_beside_a_guess(ax: Axes) -> None:
    roc = Roc.of(np.array([3.0, 2.0]), np.array([2.5, 0.0]))
    assert draw_roc(ax, {"TF": (roc.false_positive_rate, roc.true_positive_rate)}) is ax
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [0, 0, 50, 50, 100])
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [0, 50, 50, 100, 100])
    guess = np.asarray(ax.lines[1].get_xydata())
    np.testing.assert_array_equal(guess[[0, -1]], [[0, 0], [100, 100]])
    np.testing.assert_array_equal(guess[:, 0], guess[:, 1])
    assert labels(ax) == ["TF", "a guess"]


def test_all_traces_together_have_the_colour_of_single_ones(ax: Axes) -> None:
    curve = np.array([0.0, 1.0]), np.array([0.0, 1.0])
    draw_roc(ax, {"ML": curve, "ML*": curve, "TF*": curve, "TF": curve})
    colour = [line.get_color() for line in ax.lines]
    assert colour[0] == colour[1] != colour[2] == colour[3]
    assert [line.get_linestyle() for line in ax.lines[:4]] == ["-", "--", "--", "-"]


def test_areas_along_a_number(ax: Axes) -> None:
    lines = {"ML": np.array([0.6, np.nan, 0.3]), "TF": np.array([0.7, 0.6, 0.5])}
    drawn = draw_auc(ax, np.array([1, 3, 9]), lines, label="known traces", errors={"TF": np.full(3, 0.02)})
    assert drawn is ax
    ml, tf = (bars for bars in ax.containers if isinstance(bars, ErrorbarContainer))
    np.testing.assert_array_equal(ml.lines[0].get_xydata(), [[1, 60], [3, np.nan], [9, 30]])
    assert (ml.has_yerr, tf.has_yerr) == (False, True)
    (bars,) = tf.lines[2]
    np.testing.assert_allclose(bars.get_segments()[0][:, 1], [70 - 2, 70 + 2])
    # Whole numbers have a tick each.
    assert ax.get_xticks().tolist() == [1, 3, 9]
    assert labels(ax) == ["a guess", "ML", "TF"]
    render(ax)


def test_areas_along_groups_that_have_names(ax: Axes) -> None:
    draw_auc(ax, np.array(["2 to 5", "6 to 10"]), {"GSTF": np.array([0.6, 0.7])}, label="places of a trace")
    render(ax)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["2 to 5", "6 to 10"]
