"""Fitting the remembering bridge to training traces, for given clusters and smoothing of the cluster bridge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from operator import itemgetter

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.bridge.attraction import QUANTILES, covered_distances, distance_bins
from ppmtf_jax.bridge.clusters import population_and_clusters
from ppmtf_jax.bridge.moves import MoveCounts, Movement
from ppmtf_jax.bridge.people.anchors import Anchors, anchor_distribution, pair_anchors
from ppmtf_jax.bridge.people.calibration import (
    THOROUGH,
    Effort,
    Targets,
    calibrate,
    presence,
    share_of_seen_returns,
    simulated_clusters,
)
from ppmtf_jax.bridge.people.law import ELSEWHERE
from ppmtf_jax.bridge.people.layers import Layers, fit_layers
from ppmtf_jax.bridge.people.model import RememberingBridge
from ppmtf_jax.bridge.people.returns import fit_returns, lift_of, share_of_returns
from ppmtf_jax.bridge.people.stays import fit_stays
from ppmtf_jax.bridge.selection import Selection
from ppmtf_jax.bridge.space import Space, space_of
from ppmtf_jax.bridge.transitions import Transitions
from ppmtf_jax.bridge.visits import VisitCounts, population
from ppmtf_jax.data.blocks import Blocks
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.streams import Stage, jax_stream, numpy_stream


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
    """Fit the remembering bridge; see `law` for its law.

    `of_user`: clusters of all users, numbered 0, 1, ... without gaps. `selection`: smoothing that was selected
    for the cluster bridge. `anchors`: whether people have a home and a second place; without anchors, all places are
    alike. `selected`: arrays of the model that say why it was selected.

    If the training grid is longer than one period, the first two periods of a synthetic trace are calibrated, and later
    periods are like the second one. Otherwise all periods are like the first one.
    """
    grid, space, visits = train.time_grid, space_of(train.places), train.blocks.map(VisitCounts.of)
    n_clusters, n_periods = int(of_user.max()) + 1, 2 if grid.n_instants > grid.period else 1
    own = Anchors.of_all(visits) if anchors else Anchors.none(train.n_users)
    layers = fit_layers(train, own, of_user) if anchors else Layers.always_elsewhere(n_clusters, grid.period)
    elsewhere = visits.map(_visits_elsewhere, *own)
    shares, clusters = population_and_clusters(
        elsewhere, of_user, selection.population, selection.clusters, space, grid
    )
    steps = train.blocks.map(_steps_elsewhere, *own)
    movement = Movement.of(MoveCounts.of(steps, shares, space, grid), selection.moves)
    windows = train.blocks.map(partial(_windows, n_periods), *own)
    stays = fit_stays(windows, grid, of_user, selection.moves)
    returns = fit_returns(train, n_periods, own, movement, numpy_stream(seed, Stage.FIT, 1))
    slots, times = grid.slot_of_instant[: grid.period], (n_periods * grid.period, n_clusters, train.n_places)
    arrays = {
        "cluster": of_user,
        "n_present": np.bincount(of_user[train.has_events], minlength=n_clusters),
        "slot_of_phase": slots,
        "class_share": stays.class_share,
        "second_share": layers.second_share,
        "layer_first": layers.at[:, :, 0],
        "layer_next": layers.next,
        "first_elsewhere": clusters.visits[:, slots[0]],
        "stay": stays.log_odds,
        "stay_at_time": np.zeros(times[0]),
        "stay_tilt": np.zeros(times, np.float32),
        "stay_by_dwell": stays.by_dwell,
        "stay_by_class": stays.by_class,
        "lift": lift_of(shares),
        "population": shares,
        "pull": np.ones(times, np.float32),
        **movement.attraction.arrays(),
        **{name: np.array(value) for name, value in returns._asdict().items()},
        **(selected or {}),
    }
    if anchors:
        visited = population(visits, selection.population, grid).mean(axis=0)
        arrays |= _anchor_arrays(own, of_user, visited, space, selection)
    law = RememberingBridge.from_arrays({name: narrow(values) for name, values in arrays.items()})
    rounded = law.rounded()
    n_rounded = len(rounded.n_present)
    bins, covered = _distances(steps.map(lambda own: own.moves), space)
    targets = Targets(
        np.pad(clusters.visits, [(0, n_rounded - n_clusters), (0, 0), (0, 0)], mode="edge"),
        stays.in_slot.astype(np.float32),
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


def _anchor_arrays(
    own: Anchors,
    of_user: Int[np.ndarray, " user"],
    visited: Float[np.ndarray, " place"],
    space: Space,
    selection: Selection,
) -> dict[str, np.ndarray]:
    """Arrays of homes and second places."""
    home, second = (anchor_distribution(place, of_user, visited, space, selection) for place in own)
    pairs = pair_anchors(own, of_user, home, second, space)
    pulls = {"home_pull": pairs.home_pull, "second_pull": pairs.second_pull, "anchor_between": pairs.between}
    return {"home": home, "second": second, **pulls}


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


def _visits_elsewhere(visits: VisitCounts, home: np.ndarray, second: np.ndarray) -> VisitCounts:
    keep = Anchors(home, second).layer(visits.user, visits.place) == ELSEWHERE
    return replace(visits, **{name: getattr(visits, name)[keep] for name in ("user", "slot", "place", "count")})


def _steps_elsewhere(block: Traces, home: np.ndarray, second: np.ndarray) -> Transitions:
    steps = Transitions.of(block)
    return steps.where(Anchors(home, second).layer(steps.user, steps.next_place) == ELSEWHERE)


def _windows(n_periods: int, block: Traces, home: np.ndarray, second: np.ndarray) -> tuple[Traces, np.ndarray]:
    """Windows, and which of their events are elsewhere.

    A synthetic person begins to remember, and to count her time at a place, at the first instant of her trace. So what
    the model learns about memory comes from windows, whose memory also begins at their first instant.
    """
    is_elsewhere = Anchors(home, second).layer(block.user, block.place) == ELSEWHERE
    return block.cut_into_periods(n_periods), is_elsewhere


def narrow(values: np.ndarray) -> np.ndarray:
    """Numbers with 32 bits, as the trace model stores them."""
    return values.astype(np.int32 if np.issubdtype(values.dtype, np.integer) else np.float32, copy=False)
