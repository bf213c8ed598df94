import numpy as np
import pytest

from ppmtf_jax.bridge.checkins.observed_windows import Sparsity
from ppmtf_jax.data.time_grid import TimeGrid
from tests.support import places_in_line, to_traces

HOURS = TimeGrid.cyclic("2024-01-01T21:00:00", 3600, 3 + 48, slot_s=3600)


def facts(instants: list[int]) -> Sparsity:
    return Sparsity.of(to_traces([(0, 0, instant, 0) for instant in instants], places_in_line(1), HOURS))


def test_facts_count_active_days_with_the_hours_that_the_grid_has():
    # Two events on the first day, which has three hours, and one on the third day.
    found = facts([0, 1, 30])
    assert found.events_a_day == pytest.approx(3 / 2)
    assert found.share == pytest.approx(3 / (3 + 24))
    assert found.steps == pytest.approx(1 / 2)


@pytest.mark.parametrize(
    ("instants", "is_sparse"),
    [([5, 17, 30], True), (list(range(3, 51)), False), (list(range(3, 7)), False), (list(range(3, 51, 3)), False)],
)
def test_sparse_is_what_covers_little_of_the_day_in_single_instants(instants, is_sparse):
    assert facts(instants).is_sparse == is_sparse
    assert np.isfinite(facts(instants)).all()
