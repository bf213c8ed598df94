"""Orders of rows by several columns of whole numbers."""

from __future__ import annotations

import numpy as np
import pytest

from ppmtf_jax.data.runs import stable_order

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("n_rows", [0, 1, 2, 1000])
@pytest.mark.parametrize(
    "spans", [((0, 1),), ((-5, 5), (0, 3)), ((0, 9), (-(2**31), 2**31 - 1)), ((-(2**62), 2**62), (0, 4)), ((7, 8),) * 9]
)
def test_the_order_is_that_of_lexsort(n_rows, spans):
    """Also where a row does not fit into one number, and where many rows are equal."""
    columns = [RNG.integers(*span, n_rows, endpoint=True) for span in spans]
    columns = [column.astype(np.int32) if np.abs(column).max(initial=0) < 2**31 else column for column in columns]
    assert stable_order(*columns).tolist() == np.lexsort(columns[::-1]).tolist()
