"""Fitting the remembering bridge to training traces, for given clusters and smoothing of the cluster bridge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Int

from ppmtf_jax.bridge.clusters import clusters_of_users
from ppmtf_jax.bridge.expectation_maximization import ClusterSmoother
from ppmtf_jax.bridge.gravity import covered_distances
from ppmtf_jax.bridge.moves import MoveCounts, Movement
from ppmtf_jax.bridge.people.anchors import Anchors, anchor_distribution, pair_anchors
from ppmtf_jax.bridge.people.calibration import N_ROUNDS, Targets, calibrate
from ppmtf_jax.bridge.people.distances import distance_bins
from ppmtf_jax.bridge.people.law import ELSEWHERE
from ppmtf_jax.bridge.people.layers import Layers, fit_layers
from ppmtf_jax.bridge.people.model import RememberingBridge
from ppmtf_jax.bridge.people.returns import fit_returns, lift_of
from ppmtf_jax.bridge.people.stays import fit_stays
from ppmtf_jax.bridge.people.windows import return_share, windows_of
from ppmtf_jax.bridge.space import space_of
from ppmtf_jax.bridge.transitions import Transitions
from ppmtf_jax.bridge.tuning import BridgeChoice
from ppmtf_jax.bridge.visits import VisitCounts, population
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.streams import Stage, jax_stream, numpy_stream


def fit_people(
    train: Traces,
    of_user: Int[np.ndarray, " user"],
    choice: BridgeChoice,
    *,
    anchors: bool,
    seed: int,
    progress: bool = False,
) -> RememberingBridge:
    """Fit the remembering bridge; see `model` for its law.

    `of_user`: clusters of all users, numbered 0, 1, ... without gaps. `choice`: smoothing that was chosen for the
    cluster bridge. `anchors`: whether people have a home and a second place; without, all places are alike.

    A trace of several periods is like the training traces for two periods, if these last several periods; later
    periods are like the second one.
    """
    grid, space, visits = train.time_grid, space_of(train.places), VisitCounts.of(train)
    n_users, period = train.n_users, grid.period
    shares = population(visits, choice.population, grid)
    own = Anchors.of(visits) if anchors else Anchors.none(n_users)
    layers = fit_layers(train, own, of_user) if anchors else Layers.always_elsewhere(int(of_user.max()) + 1, period)
    elsewhere = _where(visits, own.layer(visits.user, visits.place) == ELSEWHERE)
    shares_elsewhere = population(elsewhere, choice.population, grid)
    smoother = ClusterSmoother(shares_elsewhere, space, choice.clusters, grid)
    clusters = clusters_of_users(elsewhere, smoother, of_user)
    steps = Transitions.of(train)
    steps = steps.where(own.layer(steps.user, steps.next_place) == ELSEWHERE)
    movement = Movement.of(MoveCounts.of(steps, shares_elsewhere, space, grid), choice.moves)
    n_periods = 2 if grid.n_instants > period else 1
    windows = windows_of(train, n_periods)
    is_elsewhere = own.layer(train.user, train.place) == ELSEWHERE
    stays = fit_stays(windows, is_elsewhere, of_user, choice)
    returns = fit_returns(windows, is_elsewhere, movement, numpy_stream(seed, Stage.FIT, 1))
    n_places, shape = train.n_places, (n_periods * period, *clusters.visits.shape[::2])
    slots = grid.slot_of_instant[:period]
    seen = movement.counts.seen
    arrays = {
        "cluster": of_user,
        "n_present": np.bincount(of_user[np.unique(train.user)], minlength=len(clusters.share)),
        "slot_of_phase": slots,
        "class_share": stays.class_share,
        "second_share": layers.second_share,
        "layer_first": layers.at[:, :, 0],
        "layer_next": layers.next,
        "first_elsewhere": clusters.visits[:, slots[0]],
        "stay": stays.log_odds,
        "stay_at_time": np.zeros(shape[0]),
        "stay_tilt": np.zeros(shape),
        "stay_by_dwell": stays.by_dwell,
        "stay_by_class": stays.by_class,
        "lift": lift_of(shares_elsewhere),
        "population": shares_elsewhere,
        "cell": space.cell,
        "move_start": np.searchsorted(seen.place, np.arange(n_places + 1)),
        "next_place": np.append(seen.next_place, n_places),
        "seen": np.pad(movement.seen, [(0, 0), (0, 1)]),
        "leaving": movement.gravity,
        "arriving": shares_elsewhere,
        "between": movement.counts.gravity.between,
        "pull": np.ones(shape),
        **{name: np.array(value) for name, value in returns._asdict().items()},
    }
    if anchors:
        visited = shares.mean(axis=0)
        home, second = (anchor_distribution(place, of_user, visited, space, choice) for place in own)
        pairs = pair_anchors(own, of_user, home, second, space)
        arrays |= {"home": home, "second": second, "home_pull": pairs.home_pull, "second_pull": pairs.second_pull}
        arrays["anchor_between"] = pairs.between
    law = RememberingBridge.from_arrays({name: _narrow(values) for name, values in arrays.items()})
    moves = steps.moves
    bins = distance_bins(moves.place, moves.next_place, space)
    covered = covered_distances(moves, bins[space.cell[moves.place], space.cell[moves.next_place]], int(bins.max()) + 1)
    targets = Targets(
        clusters.visits,
        stays.in_slot.astype(np.float32),
        bins,
        (covered / covered.sum()).astype(np.float32),
        return_share(windows),
        clusters.share.astype(np.float32),
    )
    with progress_bar("calibrating people", N_ROUNDS, show=progress) as advance:
        key, random = jax_stream(seed, Stage.FIT, 2), numpy_stream(seed, Stage.FIT, 3)
        return calibrate(law, targets, windows, key, random, advance)


def _where(visits: VisitCounts, keep: np.ndarray) -> VisitCounts:
    kept = {name: getattr(visits, name)[keep] for name in ("user", "slot", "place", "count")}
    return replace(visits, **kept)


def _narrow(values: np.ndarray) -> np.ndarray:
    return values.astype(np.int32 if np.issubdtype(values.dtype, np.integer) else np.float32)
