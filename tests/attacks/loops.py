"""What tests of attacks share: windows as dictionaries, and scores evaluated by counting."""

from __future__ import annotations

import numpy as np

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows


def days(traces: Traces) -> list[tuple[int, dict[int, int]]]:
    """User, and place by instant of the period, of each window."""
    found: dict[tuple[int, int, int], dict[int, int]] = {}
    columns = (traces.user, traces.trace, traces.instant, traces.place)
    for user, trace, instant, place in zip(*(column.tolist() for column in columns), strict=True):
        number, phase = divmod(instant, traces.time_grid.period)
        found.setdefault((user, trace, number), {})[phase] = place
    return [(user, day) for (user, _, _), day in found.items()]


def walks(windows: Windows) -> list[dict[int, int]]:
    """Place by instant of each window."""
    found: list[dict[int, int]] = [{} for _ in range(windows.n_windows)]
    columns = (windows.window, windows.phase, windows.place)
    for window, phase, place in zip(*(column.tolist() for column in columns), strict=True):
        found[window][phase] = place
    return found


def error_of_auc(n_positive: int, n_negative: int) -> float:
    """Standard error of the area under the curve by chance: that of the Mann-Whitney statistic."""
    return float(np.sqrt((n_positive + n_negative + 1) / (12 * n_positive * n_negative)))
