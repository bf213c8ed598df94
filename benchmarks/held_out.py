"""How probable the check-ins of held-out people are, if one number of the fit is another one.

    python benchmarks/held_out.py ../shared --csv benchmarks/held_out.csv

For each data set, split and variant: nats per event of a quarter of the training users under the bridge of check-ins
that is fitted to the others, and the CPU seconds of the fit. A held-out person's cluster is unknown: the probability of
each cluster is its share of the people. "as it is" is the library; each other variant changes one number of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from common import Clock, Row, command_line, machine, record
from scipy.special import logsumexp

from ppmtf_jax import fit
from ppmtf_jax.bridge.checkins import calibration, returns, when
from ppmtf_jax.bridge.checkins.likelihood import log_windows
from ppmtf_jax.bridge.checkins.model import CheckinBridge
from ppmtf_jax.bridge.checkins.observed_windows import ObservedWindows
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.foursquare import read_foursquare
from ppmtf_jax.datasets.gowalla import read_gowalla
from ppmtf_jax.trace_models.base import ABSENT

SPLITS = 3
HELD_OUT = 0.25
VARIANTS: dict[str, tuple[Any, str, Any]] = {
    "as it is": (when, "MOST_ROUNDS", when.MOST_ROUNDS),
    "paces: 4 rounds": (when, "MOST_ROUNDS", 4),
    "paces: 20 rounds": (when, "MOST_ROUNDS", 20),
    "returns: 200 steps": (returns, "MOST_STEPS", 200),
    "calibration: 32 simulations": (calibration, "N_REPEATS", (1, 1, 2, 4, 8, 16)),
    "no calibration": (calibration, "N_REPEATS", ()),
}
LEAST_CHECKINS = 20
COLUMNS = ["data", "split", "variant", "nats_per_event", "cpu_seconds", "events", "cores", "load"]


def gowalla(shared: Path) -> Traces:
    """The users with at least 20 check-ins."""
    file = shared / "data" / "gowalla-nyc" / "loc-gowalla_totalCheckins_NYC.txt.gz"
    traces = read_gowalla(file, time_zone="America/New_York")[0]
    return traces.select_users(np.bincount(traces.user, minlength=traces.n_users) >= LEAST_CHECKINS)


DATA = {
    "New York": lambda shared: read_foursquare(shared / "data" / "foursquare-tsmc2014-nyc")[0],
    "Gowalla": gowalla,
}


def rows(shared: Path, chosen: list[str]) -> Iterator[Row]:
    for data in chosen:
        traces = DATA[data](shared)
        for split in range(SPLITS):
            learned, held_out = traces.split_users(1 - HELD_OUT, seed=split)
            for variant, (module, name, value) in VARIANTS.items():
                clock = Clock()
                with patch.object(module, name, value):
                    model = fit(learned, gaps="as-observed", seed=split).trace_model
                seconds = clock.row()["cpu_seconds"]
                nats, n_events = nats_per_event(model, held_out)
                found = {"nats_per_event": round(nats, 4), "cpu_seconds": seconds, "events": n_events}
                yield {"data": data, "split": split, "variant": variant, **found, **machine()}


def nats_per_event(model: CheckinBridge, traces: Traces) -> tuple[float, int]:
    """Log-probability of the windows of people of unknown clusters, for each of their events."""
    windows = ObservedWindows.of(traces, CheckinBridge.grid_of_trace(traces.time_grid))
    places = np.full((windows.n_windows, windows.grid.n_instants), ABSENT, np.int32)
    places[windows.window, windows.instant] = windows.place
    n_present = np.asarray(model.n_present, np.float64)
    of_user = np.zeros((traces.n_users, len(n_present)))
    np.add.at(of_user, windows.user, log_windows(model, places, np.arange(len(n_present))))
    log = logsumexp(of_user[np.unique(windows.user)] + np.log(n_present / n_present.sum()), axis=1)
    return float(np.sum(log)) / len(windows.place), len(windows.place)


if __name__ == "__main__":
    parser = command_line(__doc__, shared=True)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    arguments = parser.parse_args()
    record(rows(arguments.shared, arguments.data), arguments.csv, COLUMNS)
