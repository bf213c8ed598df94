"""What is drawn of visit fractions is what was counted by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation import plots
from tests.support import minutes, to_traces

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
