"""Membership inference from synthetic traces alone, by a ratio of densities (DOMIAS, van Breugel et al. 2023).

A synthesizer that memorized its training data makes more traces near these data than near other people's traces. The
attacker sees the synthetic traces, has reference traces of people who are not training users, and knows nothing about
the synthesizer. Unlike in the paper, the density of usual traces is learned from synthetic and reference traces
together, and is smoothed. The reference traces alone are too few: common places that they miss would look very unusual.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ppmtf_jax.attacks.membership.base import MEMBERSHIP_ATTACKS, MembershipAttack
from ppmtf_jax.attacks.membership.scores import MembershipScores
from ppmtf_jax.attacks.membership.trace_densities import Density, joined, log_density_per_event, windows_of
from ppmtf_jax.attacks.registry import register_attack
from ppmtf_jax.data.comparable import check_disjoint_users
from ppmtf_jax.data.measurement import Comparison, Interpretation, MetricInfo
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import same_period
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.privacy.limits import MEMBERSHIP_AUC, people_of_both
from ppmtf_jax.settings import Settings, Share
from ppmtf_jax.streams import Stage, numpy_stream

USUAL_CONCENTRATION = 30.0
"""Weight of a prior of the usual density, in events. Large, because few people cannot show what is usual."""
LEAST_TEST_USERS = 2
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
    if test.n_users < LEAST_TEST_USERS:
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


MEMBERSHIP_ATTACKS.register(
    MembershipAttack(
        "density_ratio",
        "Density of a user's traces among the synthetic traces, divided by their density among usual traces",
        DensityRatioSettings,
        density_ratios,
    )
)


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
    return same and comparison.test.n_users >= LEAST_TEST_USERS


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
        f"fewer than {LEAST_TEST_USERS} test users, or periods of the grids that differ",
    ),
    measure=_measure,
    settings=DensityRatioSettings,
    reading=_read,
    check=lambda comparison: check_disjoint_users(comparison.train, comparison.test),
)
