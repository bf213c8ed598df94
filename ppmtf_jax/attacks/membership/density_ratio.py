"""Membership inference from synthetic traces alone, by a ratio of densities (DOMIAS, van Breugel et al. 2023).

A synthesizer that has learned its training data by heart makes traces that are more probable near these than near
traces of other people. The attacker sees the synthetic traces, has reference traces of people who are not among the
training users, and needs to know nothing of the synthesizer. One thing differs from the paper: what is usual is learned
from both, a smooth density of synthetic and reference traces. Reference traces are few, and alone they take for very
unusual what synthetic traces show to be common: places that a hundred people happen not to visit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ppmtf_jax.attacks.membership.base import MEMBERSHIP_ATTACKS, MembershipAttack
from ppmtf_jax.attacks.membership.scores import MembershipScores
from ppmtf_jax.attacks.membership.trace_densities import Density, joined, log_density_per_event, windows_of
from ppmtf_jax.attacks.registry import ATTACKS
from ppmtf_jax.data.comparable import check_disjoint_users
from ppmtf_jax.data.measurement import Comparison, Measurement, Quantity, Reading
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import same_period
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.privacy.limits import MEMBERSHIP_AUC, people_of_both
from ppmtf_jax.settings import Settings, Share
from ppmtf_jax.streams import Stage, numpy_stream

USUAL_CONCENTRATION = 30.0
"""What few have done says little of what is usual."""
LEAST_TEST_USERS = 2
SEED = 0
# Of the stage's streams; `shadow_models` has the others.
REFERENCE_STREAM = 0


@dataclass(frozen=True)
class DensityRatioSettings(Settings, subject="density-ratio attack"):
    """Settings of the density-ratio attack.

    Parameters
    ----------
    density : {"chain", "kernel"}
        Of the synthetic traces: "chain" finds what one chain for everybody gives away, "kernel" copied traces. What is
        usual is always a chain.
    reference_fraction : float
        Share of the test users, at random, whose traces are the reference. They are not attacked.

    Raises
    ------
    InputError
        Listing what is out of range.
    """

    density: Density = "chain"
    reference_fraction: Share = 0.5


def density_ratios(
    released: Traces,
    train: Traces,
    test: Traces,
    settings: DensityRatioSettings = DensityRatioSettings(),
    *,
    seed: int = 0,
) -> MembershipScores:
    """Score users by how much more probable their traces are among the released ones than in general, per event.

    The log-density of a user's traces under the released ones, less that under what is usual.

    Parameters
    ----------
    released : Traces
    train : Traces
        Of the training users; all are attacked.
    test : Traces
        Of other users, some of whom are the reference and all others attacked.
    settings : DensityRatioSettings
    seed : int
        Of who is the reference.

    Raises
    ------
    InputError
        Users are in both real sets, test users are fewer than two, or place tables or periods of the grids differ.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=60, n_days=1, seed=0).traces.split_users(0.5, seed=0)
    >>> scores = density_ratios(train, train, test)
    >>> scores.members.shape, scores.others.shape
    ((1, 30), (1, 15))
    """
    check_disjoint_users(train, test)
    if test.n_users < LEAST_TEST_USERS:
        problem = Problem("two test users, one of them for reference", "one", way_out="Split off more test users")
        raise InputError("density-ratio attack", [problem])
    reference, others = _split(test, settings.reference_fraction, seed)
    sets = {"released": released, "train": train, "others": others, "reference": reference}
    synthetic, of_train, of_others, of_reference = windows_of(**sets)
    usual = joined(synthetic, of_reference)
    members, strangers = (
        log_density_per_event(each, synthetic, settings.density)
        - log_density_per_event(each, usual, concentration=USUAL_CONCENTRATION)
        for each in (of_train, of_others)
    )
    return MembershipScores(members[None], strangers[None], train.user_ids, others.user_ids, "density_ratio")


def _split(test: Traces, fraction: float, seed: int) -> tuple[Traces, Traces]:
    """Traces of reference users, and of all others; at least one of each."""
    n_reference = _n_reference(test.n_users, fraction)
    users = numpy_stream(seed, Stage.MEMBERSHIP, REFERENCE_STREAM).permutation(test.n_users)
    return test.select_users(users[:n_reference]), test.select_users(users[n_reference:])


def _n_reference(n_users: int, fraction: float) -> int:
    return min(max(round(fraction * n_users), 1), n_users - 1)


MEMBERSHIP_ATTACKS.register(
    MembershipAttack(
        "density_ratio",
        "Density of a user's traces among the synthetic ones over that of usual traces",
        DensityRatioSettings,
        lambda released, train, test, settings, seed, _: density_ratios(released, train, test, settings, seed=seed),
    )
)


# Measured


def _measure(comparison: Comparison, settings: DensityRatioSettings) -> list[float]:
    if not _can_be_measured(comparison):
        return [math.nan]
    return [density_ratios(comparison.traces, comparison.train, comparison.test, settings, seed=SEED).roc.auc]


def _read(comparison: Comparison, settings: DensityRatioSettings) -> list[Reading]:
    if not _can_be_measured(comparison):
        return [Reading()]
    n_others = comparison.test.n_users - _n_reference(comparison.test.n_users, settings.reference_fraction)
    return [Reading(alarm=MEMBERSHIP_AUC.alarm(people_of_both(comparison.train.n_users, n_others)))]


def _can_be_measured(comparison: Comparison) -> bool:
    grid = comparison.train.time_grid
    same = all(same_period(grid, each.time_grid) for each in (comparison.traces, comparison.test))
    return same and comparison.test.n_users >= LEAST_TEST_USERS


ATTACKS.register(
    Measurement(
        "density_ratio",
        "privacy",
        (
            Quantity(
                "density_ratio_auc",
                "Density-ratio AUC",
                "How often a training user's real traces look more like the synthetic ones, beside what is usual, than "
                "another user's do.",
                "area under the curve, 0.5 by chance",
                "lower",
                "near 0.5",
                f"fewer than {LEAST_TEST_USERS} test users, or periods of the grids that differ",
            ),
        ),
        _measure,
        settings=DensityRatioSettings,
        reading=_read,
        check=lambda comparison: check_disjoint_users(comparison.train, comparison.test),
    )
)
