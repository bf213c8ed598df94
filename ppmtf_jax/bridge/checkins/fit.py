"""Fit of the trace model of check-ins to training traces with given clusters."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from ppmtf_jax.bridge.checkins.calibration import calibrate
from ppmtf_jax.bridge.checkins.history import History
from ppmtf_jax.bridge.checkins.law import distance_bins
from ppmtf_jax.bridge.checkins.model import CheckinBridge
from ppmtf_jax.bridge.checkins.new_places import first_rates, fit_new_places
from ppmtf_jax.bridge.checkins.observed_windows import ObservedWindows
from ppmtf_jax.bridge.checkins.returns import fit_returns
from ppmtf_jax.bridge.checkins.when import fit_paces
from ppmtf_jax.bridge.clusters import Clusters
from ppmtf_jax.bridge.person import is_first_visit
from ppmtf_jax.bridge.space import space_of
from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.time_grid import DAY_S
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.streams import Stage, jax_stream, numpy_stream

# Upper bounds of the data that the model learns from: number of instants of all windows, and number of pairs of an
# event and an earlier event of the same window. More data would change the parameters less than another seed does.
MAX_INSTANTS, MAX_PAIRS = 2**24, 2**21


def first_visits(traces: Traces) -> Traces:
    """The first event of each trace at each place in each window; see `CheckinBridge.grid_of_trace` for the windows.

    The trace model has a law of returns. If the distributions over places counted all events, returns would count
    twice. Events before the first midnight are a window of their own, and so are events of the last days that do not
    fill a window. Raises `InputError`: the step does not divide a day, or the grid has no whole day.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=5, n_days=2, seed=0).traces
    >>> shown = first_visits(traces)
    >>> shown.n_users, shown.n_events < traces.n_events / 4
    (5, True)
    """
    grid = traces.time_grid
    window = (traces.instant - grid.first_midnight()) // CheckinBridge.grid_of_trace(grid).n_instants
    of_window = np.cumsum(run_begins(traces.trace_of_event(), window))
    return traces.select_events(is_first_visit(of_window, traces.place))


def fit_checkins(
    train: Traces,
    clusters: Clusters,
    *,
    n_paces: int | None = None,
    seed: int,
    selected: Mapping[str, np.ndarray] | None = None,
    progress: bool = False,
) -> CheckinBridge:
    """Learn when people check in, whether they return, and which new places they go to; then calibrate.

    `train`: traces with gaps; see `CheckinBridge.grid_of_trace` for the windows into which they are cut. `clusters`:
    clusters of all users, with the distributions of `first_visits` over places in each slot of the time grid.
    `n_paces`: number of classes of pace; by default it is chosen by the likelihood of held-out users. `seed`: seed of
    the streams of `Stage.FIT`, which draw users if there are many, and the simulated people. `selected`: arrays of the
    model that say why it was selected.

    The weight of one user in each learned number is bounded; `contributions.CHECKIN_RULES` says how. The distributions
    over places follow `contributions.RULES`. Raises `InputError`: the step does not divide a day; the grid has no whole
    day; the windows have no event; or the slots of one window differ from those of another.
    """
    grid = CheckinBridge.grid_of_trace(train.time_grid)
    random = numpy_stream(seed, Stage.FIT, 1)
    windows = ObservedWindows.of_some(train, grid, random, most_instants=MAX_INSTANTS, most_pairs=MAX_PAIRS)
    space, cluster = space_of(train.places), clusters.of_user[windows.user]
    bins = distance_bins(space.km)
    # A window may lack some slots of the grid, and its grid numbers only the slots that it has.
    first = train.time_grid.first_midnight()
    slots = np.unique(train.time_grid.slot_of_instant[first : first + grid.n_instants])
    visits = clusters.visits[:, slots]
    random = numpy_stream(seed, Stage.FIT, 4)
    paces = fit_paces(windows, windows.weights(), cluster, len(clusters.share), random, n_paces)
    weight = paces.weight
    history = History.of(windows).bounded(windows.user, weight, bins, space.cell)
    returns = fit_returns(history, windows, paces, bins, space.cell)
    new = fit_new_places(history, weight, cluster, grid.slot_of_instant, visits, bins, space.cell)
    learned = {
        "pace_share": paces.share,
        "log_odds": paces.log_odds,
        **returns._asdict(),
        **new._asdict(),
        "visits": visits,
        "first_rate": first_rates(windows, weight, cluster, visits, numpy_stream(seed, Stage.FIT, 3)),
        **(selected or {}),
    }
    whole = {
        "cluster": clusters.of_user,
        "n_present": np.bincount(clusters.of_user[train.has_events], minlength=len(clusters.share)),
        "slot_of_instant": grid.slot_of_instant,
        "distance_bin": bins,
        "cell": space.cell,
    }
    model = CheckinBridge(
        per_day=DAY_S // grid.step_s,
        **{name: jnp.asarray(each, jnp.float32) for name, each in learned.items()},
        **{name: jnp.asarray(each, jnp.int32) for name, each in whole.items()},
    )
    key = jax_stream(seed, Stage.FIT, 2)
    return calibrate(model, windows, weight, cluster, paces.of_window, key, progress=progress)
