"""Fitting the models of people to training traces, for given clusters and a given smoothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from operator import itemgetter

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.data.blocks import Blocks
from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.time_grid import DAY_S
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.people import checkin_calibration
from ppmtf_jax.people.attraction import (
    QUANTILES,
    MoveCounts,
    Movement,
    covered_distances,
    distance_bins,
)
from ppmtf_jax.people.bins import OTHER, DistanceBins
from ppmtf_jax.people.calibration import (
    THOROUGH,
    Effort,
    Targets,
    calibrate,
    presence,
    share_of_seen_returns,
    simulated_clusters,
)
from ppmtf_jax.people.checkin_new_places import first_rates, fit_new_places
from ppmtf_jax.people.clusters import Clusters, population_and_clusters
from ppmtf_jax.people.counts import Transitions, VisitCounts, population
from ppmtf_jax.people.event_times import fit_activity_levels
from ppmtf_jax.people.model import CheckinBridge, RememberingBridge
from ppmtf_jax.people.person import is_first_visit
from ppmtf_jax.people.returns import fit_checkin_returns, fit_returns, log_popularity_ratio, share_of_returns
from ppmtf_jax.people.roles import Anchors, Roles, anchor_distribution, fit_roles, pair_anchors
from ppmtf_jax.people.selection import Selection
from ppmtf_jax.people.space import Space, space_of
from ppmtf_jax.people.stays import fit_stays
from ppmtf_jax.people.windows import History, ObservedWindows
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.streams import Stage, jax_stream, numpy_stream

# Upper bounds of the data that the model learns from: number of instants of all windows, and number of pairs of an
# event and an earlier event of the same window. More data would change the parameters less than another seed does.
MAX_INSTANTS, MAX_PAIRS = 2**24, 2**21


def fit_people(
    train: Traces,
    of_user: Int[np.ndarray, " user"],
    selection: Selection,
    *,
    anchors: bool,
    seed: int,
    selected: Mapping[str, np.ndarray] | None = None,
    effort: Effort = THOROUGH,
    progress: bool = False,
) -> RememberingBridge:
    """Fit the remembering bridge; see `process.PersonProcess`.

    `of_user`: clusters of all users, numbered 0, 1, ... without gaps. `selection`: smoothing that was selected
    for the cluster bridge. `anchors`: whether people have a home and a second place; without anchors, all places are
    alike. `selected`: arrays of the model that say why it was selected.

    If the training grid is longer than one period, the first two periods of a synthetic trace are calibrated, and later
    periods are like the second one. Otherwise all periods are like the first one.
    """
    grid, space, visits = train.time_grid, space_of(train.places), train.blocks.map(VisitCounts.of)
    n_clusters, n_periods = int(of_user.max()) + 1, 2 if grid.n_instants > grid.period else 1
    own = Anchors.of_all(visits) if anchors else Anchors.none(train.n_users)
    roles = fit_roles(train, own, of_user) if anchors else Roles.always_other(n_clusters, grid.period)
    at_other = visits.map(_visits_of_other, *own)
    shares, clusters = population_and_clusters(at_other, of_user, selection.population, selection.clusters, space, grid)
    steps = train.blocks.map(_steps_to_other, *own)
    movement = Movement.of(MoveCounts.of(steps, shares, space, grid), selection.moves)
    windows = train.blocks.map(partial(_windows, n_periods), *own)
    stays_in_slot, stays = fit_stays(windows, grid, of_user, selection.moves)
    returns = fit_returns(train, n_periods, own, movement, numpy_stream(seed, Stage.FIT, 1))
    slots, times = grid.slot_of_instant[: grid.period], (n_periods * grid.period, n_clusters, train.n_places)
    arrays = {
        "cluster": of_user,
        "n_present": np.bincount(of_user[train.has_events], minlength=n_clusters),
        "slot_of_phase": slots,
        "second_share": roles.second_share,
        "role_first": roles.at[:, :, 0],
        "role_next": roles.next,
        "first_other": clusters.visits[:, slots[0]],
        "stay_at_time": np.zeros(times[0]),
        "stay_tilt": np.zeros(times, np.float32),
        **stays,
        "log_popularity_ratio": log_popularity_ratio(shares),
        "population": shares,
        "pull": np.ones(times, np.float32),
        **movement.attraction.arrays(),
        **{name: np.array(value) for name, value in returns._asdict().items()},
        **(selected or {}),
    }
    if anchors:
        visited = population(visits, selection.population, grid).mean(axis=0)
        home, second = (anchor_distribution(place, of_user, visited, space, selection) for place in own)
        arrays |= pair_anchors(own, of_user, home, second, space)
    process = RememberingBridge.from_arrays({name: narrow(values) for name, values in arrays.items()})
    rounded = process.rounded()
    n_rounded = len(rounded.n_present)
    bins, covered = _distances(steps.map(lambda own: own.moves), space)
    targets = Targets(
        np.pad(clusters.visits, [(0, n_rounded - n_clusters), (0, 0), (0, 0)], mode="edge"),
        stays_in_slot.astype(np.float32),
        bins,
        covered.astype(np.float32),
        share_of_returns(windows.map(itemgetter(0))),
        np.pad(clusters.share, (0, n_rounded - n_clusters)).astype(np.float32),
    )
    simulated = simulated_clusters(n_clusters, n_rounded, effort.n_people)
    present = presence(train, n_periods, len(simulated), numpy_stream(seed, Stage.FIT, 3))
    returns_seen = partial(share_of_seen_returns, present=present, weight=targets.share[simulated])
    with progress_bar("calibrating people", effort.n_rounds, show=progress) as advance:
        key = jax_stream(seed, Stage.FIT, 2)
        calibrated, _ = calibrate(rounded, targets, simulated, returns_seen, key, advance, effort.n_rounds)
    # Without the added clusters and moves.
    own = {name: tuple(map(slice, np.shape(values))) for name, values in arrays.items()}
    found = {name: np.asarray(each[own.get(name, ())]) for name, each in calibrated.to_arrays().items()}
    return RememberingBridge.from_arrays(found)


def _distances(
    moves: Blocks[Transitions], space: Space
) -> tuple[Int[np.ndarray, "cell cell"], Float[np.ndarray, " bin"]]:
    """Bins of distance, and the share of moves in each bin; no user weighs more there than the second heaviest user."""
    n_cells = len(space.km)
    n_pairs = moves.map(lambda own: np.bincount(own.cells(space), minlength=n_cells**2)).total()
    bins = distance_bins(n_pairs.reshape(n_cells, n_cells), space)
    covered = covered_distances(moves, bins, space)
    # Add empty bins up to a fixed number, so that models with different numbers of bins share compiled programs.
    empty = len(QUANTILES) + 1 - len(covered)
    return bins, np.pad(covered / covered.sum(), (0, empty))


def _visits_of_other(visits: VisitCounts, home: np.ndarray, second: np.ndarray) -> VisitCounts:
    keep = Anchors(home, second).role(visits.user, visits.place) == OTHER
    return replace(visits, **{name: getattr(visits, name)[keep] for name in ("user", "slot", "place", "count")})


def _steps_to_other(block: Traces, home: np.ndarray, second: np.ndarray) -> Transitions:
    steps = Transitions.of(block)
    return steps.where(Anchors(home, second).role(steps.user, steps.next_place) == OTHER)


def _windows(n_periods: int, block: Traces, home: np.ndarray, second: np.ndarray) -> tuple[Traces, np.ndarray]:
    """Windows, and which of their events are at other places.

    Synthetic people begin to remember, and to count their time at a place, at the first instant of their trace. So what
    the model learns about memory comes from windows, whose memory also begins at their first instant.
    """
    is_other = Anchors(home, second).role(block.user, block.place) == OTHER
    return block.cut_into_periods(n_periods), is_other


def narrow(values: np.ndarray) -> np.ndarray:
    """Numbers with 32 bits, as the trace model stores them."""
    return values.astype(np.int32 if np.issubdtype(values.dtype, np.integer) else np.float32, copy=False)


def first_visits(traces: Traces) -> Traces:
    """The first event of each trace at each place in each window; see `CheckinBridge.grid_of_trace` for the windows.

    The trace model models returns apart. If the distributions over places counted all events, returns would count
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
    n_levels: int | None = None,
    seed: int,
    selected: Mapping[str, np.ndarray] | None = None,
    progress: bool = False,
) -> CheckinBridge:
    """Learn when people check in, whether they return, and which new places they go to; then calibrate.

    `train`: traces with gaps; see `CheckinBridge.grid_of_trace` for the windows into which they are cut. `clusters`:
    clusters of all users, with the distributions of `first_visits` over places in each slot of the time grid.
    `n_levels`: by default it is chosen by the likelihood of held-out users. `seed`: seed of the streams of
    `Stage.FIT`, which draw users if there are many, and the simulated people. `selected`: arrays of the model that say
    why it was selected.

    The weight of one user in each learned number is bounded; `user_bounds.CHECKIN_RULES` says how. The distributions
    over places follow `user_bounds.RULES`. Raises `InputError`: the step does not divide a day; the grid has no whole
    day; the windows have no event; or the slots of one window differ from those of another.
    """
    grid = CheckinBridge.grid_of_trace(train.time_grid)
    random = numpy_stream(seed, Stage.FIT, 1)
    windows = ObservedWindows.of_some(train, grid, random, most_instants=MAX_INSTANTS, most_pairs=MAX_PAIRS)
    space = space_of(train.places)
    distances = DistanceBins.of(space.km, space.cell)
    # A window may lack some slots of the grid, and its grid numbers only the slots that it has.
    first = train.time_grid.first_midnight()
    slots = np.unique(train.time_grid.slot_of_instant[first : first + grid.n_instants])
    visits = clusters.visits[:, slots]
    windows = replace(windows, weight=windows.weights(), cluster=clusters.of_user[windows.user])
    levels = fit_activity_levels(windows, len(clusters.share), numpy_stream(seed, Stage.FIT, 4), n_levels)
    windows = replace(windows, weight=levels.weight)
    history = History.of(windows).bounded(windows, distances)
    arrays = {
        "cluster": clusters.of_user,
        "n_present": np.bincount(clusters.of_user[train.has_events], minlength=len(clusters.share)),
        "slot_of_instant": grid.slot_of_instant,
        "per_day": np.array(DAY_S // grid.step_s),
        "level_share": levels.share,
        "log_odds": levels.log_odds,
        **fit_checkin_returns(history, windows, levels, distances),
        **fit_new_places(history, windows, visits, distances),
        **distances._asdict(),
        "visits": visits,
        "first_rate": first_rates(windows, visits, numpy_stream(seed, Stage.FIT, 3)),
        **(selected or {}),
    }
    model = CheckinBridge.from_arrays({name: narrow(np.asarray(values)) for name, values in arrays.items()})
    key = jax_stream(seed, Stage.FIT, 2)
    return checkin_calibration.calibrate(model, windows, levels.of_window, key, progress=progress)
