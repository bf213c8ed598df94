"""Membership inference from whole traces: by a ratio of densities, and by the nearest synthetic trace.

Density ratio (DOMIAS, van Breugel et al. 2023): a synthesizer that memorized its training data makes more traces near
these data than near other people's traces. The attacker sees the synthetic traces, has reference traces of people who
are not training users, and knows nothing about the synthesizer. Unlike in the paper, the density of usual traces is
learned from synthetic and reference traces together, and is smoothed. The reference traces alone are too few: common
places that they miss would look very unusual.

Densities of traces under a model learned from other traces, per event:
"chain": one Markov chain for all users, with a transition matrix for each slot. It is smoothed towards the chain of all
slots, which is smoothed towards the visits (nested Dirichlet priors). Its cost is linear in the number of events.
"kernel": a mixture with one component for each model trace; with a small probability, each event moves to a random
place visited in its slot (kernel of Aitchison and Aitken 1976). The kernel compares whole traces, not only steps. Its
cost is the product of both numbers of traces.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.attacks.copies import nearest, weighed
from ppmtf_jax.attacks.membership.base import MembershipScores, membership_attack
from ppmtf_jax.attacks.registry import register_attack
from ppmtf_jax.attacks.scoring import events_by_point, joined, products_in_blocks, windows_of
from ppmtf_jax.data.comparable import check_disjoint_users
from ppmtf_jax.data.measurement import Comparison, Interpretation, MetricInfo, NoSettings
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows, same_period
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.privacy.limits import MEMBERSHIP_AUC, people_of_both
from ppmtf_jax.settings import Settings, Share
from ppmtf_jax.streams import Stage, numpy_stream

Density = Literal["chain", "kernel"]
CONCENTRATION = 1e-3
"""Weight of a prior, in events. Small, because steps absent from the synthetic data are the strongest evidence."""
USUAL_CONCENTRATION = 30.0
"""The same of the usual density. Large, because few people cannot show what is usual."""
STRAY_PROBABILITY = 0.01
MIN_TEST_USERS = 2
SEED = 0
REFERENCE_STREAM = 0
"""Random-stream number of the stage; shadow_models.py uses 1 to 4."""


@dataclass(frozen=True)
class DensityRatioSettings(Settings, subject="density-ratio attack"):
    """Settings of the density-ratio attack.

    Parameters
    ----------
    density : {"chain", "kernel"}
        Model of the density of synthetic traces: "chain", one Markov chain for all users, finds users through their
        moves; "kernel" finds copied traces. The density of usual traces is always a chain.
    reference_fraction : float
        Share of the test users, drawn at random, whose traces are the reference. These users are not attacked.
    """

    density: Density = "chain"
    reference_fraction: Share = 0.5


@membership_attack(
    "density_ratio",
    "Density of a user's traces among the synthetic traces, divided by their density among usual traces",
    DensityRatioSettings,
)
def density_ratios(
    released: Traces,
    train: Traces,
    test: Traces,
    settings: DensityRatioSettings = DensityRatioSettings(),
    seed: int = 0,
    progress: bool = False,
) -> MembershipScores:
    """Score users by the log-density of their traces among the released traces minus the usual one, per event.

    The attack scores all training users, and the test users who are not in the reference. See `infer_membership`.
    """
    del progress
    if test.n_users < MIN_TEST_USERS:
        problem = Problem("two test users, one of them for reference", "one", way_out="Split off more test users")
        raise InputError("density-ratio attack", [problem])
    n_reference = _n_reference(test.n_users, settings.reference_fraction)
    users = numpy_stream(seed, Stage.MEMBERSHIP, REFERENCE_STREAM).permutation(test.n_users)
    reference, others = test.select_users(users[:n_reference]), test.select_users(users[n_reference:])
    sets = {"released": released, "train": train, "others": others, "reference": reference}
    synthetic, of_train, of_others, of_reference = windows_of(**sets)
    usual = joined(synthetic, of_reference)
    members, strangers = (
        log_density_per_event(each, synthetic, settings.density)
        - log_density_per_event(each, usual, concentration=USUAL_CONCENTRATION)
        for each in (of_train, of_others)
    )
    return MembershipScores(members[None], strangers[None], train.user_ids, others.user_ids, "density_ratio")


def _n_reference(n_users: int, fraction: float) -> int:
    """Number of reference users: at least one, and so few that at least one test user is left to attack."""
    return min(max(round(fraction * n_users), 1), n_users - 1)


@membership_attack(
    "nearest",
    "Weight of what a user's traces share with the nearest synthetic trace, up to an instant earlier or later",
    NoSettings,
)
def nearest_traces(
    released: Traces,
    train: Traces,
    test: Traces,
    settings: NoSettings = NoSettings(),
    seed: int = 0,
    progress: bool = False,
) -> MembershipScores:
    """Score users by the greatest weight of a period of theirs that one synthetic period has too, see `nearest`.

    The attacker knows the real traces of all these users, and from them how unusual each move is. See
    `infer_membership`.
    """
    del settings, seed, progress
    synthetic, of_train, of_test = windows_of(released=released, train=train, test=test)
    real, weight = weighed(train, of_train, of_test)
    scores = np.zeros(train.n_users + test.n_users)
    np.maximum.at(scores, real.user, nearest(real, synthetic, weight).weight)
    members, others = np.split(scores[None], [train.n_users], axis=1)
    return MembershipScores(members, others, train.user_ids, test.user_ids, "nearest", one_tail=False)


def log_density_per_event(
    windows: Windows, model: Windows, density: Density = "chain", *, concentration: float = CONCENTRATION
) -> Float[np.ndarray, " user"]:
    """Log-density of each user's windows under a model of other windows, per event of the user.

    Each user has at least one window. `concentration` is the weight of each prior of the chain, in events.
    """
    of_window = DENSITIES[density](windows, model, concentration)
    return np.bincount(windows.user, of_window) / np.bincount(windows.user, windows.events_per_window())


def _chain(windows: Windows, model: Windows, concentration: float) -> Float[np.ndarray, " window"]:
    n_places, wanted, known = len(windows.places), _events(windows), _events(model)
    steps = {name: column[known["is_step"]] for name, column in known.items()}
    of_place = _shares(known, wanted, [], 1 / n_places, n_places, concentration)
    of_slot = _shares(known, wanted, ["slot"], of_place, n_places, concentration)
    of_step = _shares(steps, wanted, ["previous"], of_place, n_places, concentration)
    of_step = _shares(steps, wanted, ["slot", "previous"], of_step, n_places, concentration)
    probability = np.where(wanted["is_step"], of_step, of_slot)
    return np.bincount(windows.window, np.log(probability), minlength=windows.n_windows)


def _kernel(windows: Windows, model: Windows, concentration: float) -> Float[np.ndarray, " window"]:
    del concentration
    wanted, known = _events(windows), _events(model)
    stray = STRAY_PROBABILITY * _shares(known, wanted, ["slot"], 1 / len(windows.places), len(windows.places), 1.0)
    gains = events_by_point(windows, np.log(1 - STRAY_PROBABILITY + stray) - np.log(stray))
    same = events_by_point(model).T.tocsr()
    log_sum = np.empty(windows.n_windows)
    for rows, product in products_in_blocks(gains, same):
        # Log-sum-exp of each row: stored entries are positive, all others 0.
        n_stored = np.diff(product.indptr)
        row = np.repeat(np.arange(len(n_stored)), n_stored)
        greatest = np.zeros(len(n_stored))
        np.maximum.at(greatest, row, product.data)
        total = np.bincount(row, np.exp(product.data - greatest[row]), minlength=len(n_stored))
        log_sum[rows] = greatest + np.log(total + (model.n_windows - n_stored) * np.exp(-greatest))
    strays = np.bincount(windows.window, np.log(stray), minlength=windows.n_windows)
    return strays + log_sum - np.log(model.n_windows)


DENSITIES: dict[str, Callable[[Windows, Windows, float], np.ndarray]] = {"chain": _chain, "kernel": _kernel}


def _events(windows: Windows) -> dict[str, np.ndarray]:
    """Slot, place and previous place of events; `is_step`: whether the previous event is one instant earlier."""
    place = windows.place.astype(np.int64)
    slot = windows.time_grid.slot_of_instant[windows.phase].astype(np.int64)
    return {"slot": slot, "previous": np.append(0, place[:-1]), "place": place, "is_step": windows.is_step()}


def _shares(
    known: dict[str, np.ndarray],
    wanted: dict[str, np.ndarray],
    context: list[str],
    prior: np.ndarray | float,
    n_places: int,
    concentration: float,
) -> Float[np.ndarray, " event"]:
    """Probability of each wanted place in its context, such as its slot: counts with a Dirichlet prior."""

    def count(columns: list[str]) -> np.ndarray:
        """For each wanted event, the number of known events with the same values in some columns."""
        code, asked = (np.zeros(len(each["place"]), np.int64) for each in (known, wanted))
        for name in columns:
            code, asked = code * n_places + known[name], asked * n_places + wanted[name]
        return count_of(code, asked)

    return (count([*context, "place"]) + concentration * prior) / (count(context) + concentration)


def count_of(codes: Int[np.ndarray, " known"], wanted: Int[np.ndarray, " event"]) -> Int[np.ndarray, " event"]:
    """How many of the known codes equal each wanted code."""
    codes = np.sort(codes)
    return np.searchsorted(codes, wanted, side="right") - np.searchsorted(codes, wanted)


def _measure(comparison: Comparison, settings: DensityRatioSettings) -> list[float]:
    if not _can_be_measured(comparison):
        return [math.nan]
    return [density_ratios(comparison.traces, comparison.train, comparison.test, settings, SEED).roc.auc]


def _read(comparison: Comparison, settings: DensityRatioSettings) -> list[Interpretation]:
    if not _can_be_measured(comparison):
        return [Interpretation()]
    n_others = comparison.test.n_users - _n_reference(comparison.test.n_users, settings.reference_fraction)
    return [Interpretation(alarm=MEMBERSHIP_AUC.alarm(people_of_both(comparison.train.n_users, n_others)))]


def _can_be_measured(comparison: Comparison) -> bool:
    grid = comparison.train.time_grid
    same = all(same_period(grid, each.time_grid) for each in (comparison.traces, comparison.test))
    return same and comparison.test.n_users >= MIN_TEST_USERS


register_attack(
    "density_ratio",
    MetricInfo(
        "density_ratio_auc",
        "Density-ratio AUC",
        "Probability that a random training user's real traces get a higher score than another user's. The score "
        "is the density among the synthetic traces relative to the density among usual traces.",
        "area under the curve, 0.5 by chance",
        "lower",
        "near 0.5",
        f"fewer than {MIN_TEST_USERS} test users, or periods of the grids that differ",
    ),
    measure=_measure,
    settings=DensityRatioSettings,
    reading=_read,
    check=lambda comparison: check_disjoint_users(comparison.train, comparison.test),
)
