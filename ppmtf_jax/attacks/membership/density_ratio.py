"""Membership inference from synthetic traces alone, by a ratio of densities (DOMIAS, van Breugel et al. 2023).

A synthesizer that has learned its training data by heart makes traces that are more probable near these than near
traces of other people. The attacker sees the synthetic traces, has reference traces of people who are not among the
training users, and needs to know nothing of the synthesizer.
"""

from __future__ import annotations

from dataclasses import dataclass

from ppmtf_jax.attacks.membership.base import MEMBERSHIP_ATTACKS, MembershipAttack
from ppmtf_jax.attacks.membership.scores import MembershipScores
from ppmtf_jax.attacks.membership.trace_densities import DENSITIES, Density, log_density_per_event, windows_of
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.streams import Stage, numpy_stream

REFERENCE_CONCENTRATION = 30.0
"""Reference traces are few: their chain says little of rare steps, and has to say so."""
# Of the stage's streams; `shadow_models` has the others.
REFERENCE_STREAM = 0


@dataclass(frozen=True)
class DensityRatioSettings:
    """Settings of the density-ratio attack.

    Parameters
    ----------
    density : {"chain", "kernel"}
        Of the synthetic traces: "chain" finds what one chain for everybody gives away, "kernel" copied traces. The
        reference is always a chain.
    reference_fraction : float
        Share of the test users, at random, whose traces are the reference. They are not attacked.

    Raises
    ------
    InputError
        Listing what is out of range.
    """

    density: Density = "chain"
    reference_fraction: float = 0.5

    def __post_init__(self) -> None:
        problems = density_problems(self.density)
        if not 0 < self.reference_fraction < 1:
            problems.append(Problem("reference_fraction between 0 and 1", repr(self.reference_fraction)))
        if problems:
            raise InputError("density-ratio attack", problems)


def density_problems(density: str) -> list[Problem]:
    """A problem where there is no such density.

    Examples
    --------
    >>> print(density_problems("chains")[0])
    expected density as 'chain' or 'kernel'; found 'chains'.
    """
    if density in DENSITIES:
        return []
    return [Problem(f"density as {' or '.join(map(repr, DENSITIES))}", repr(density))]


def density_ratios(
    released: Traces,
    train: Traces,
    test: Traces,
    settings: DensityRatioSettings = DensityRatioSettings(),
    *,
    seed: int = 0,
) -> MembershipScores:
    """Score users by the log-density of their traces under the released ones less that under the reference, per event.

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
        There are fewer than two test users, or the periods of the grids differ.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=60, n_days=1, seed=0).traces.split_users(0.5, seed=0)
    >>> scores = density_ratios(train, train, test)
    >>> scores.members.shape, scores.others.shape
    ((1, 30), (1, 15))
    """
    if test.n_users < 2:
        way_out = "Split off more test users"
        found = f"{test.n_users}"
        raise InputError(
            "density-ratio attack", [Problem("two test users, one of them for reference", found, way_out=way_out)]
        )
    reference, others = _split(test, settings.reference_fraction, seed)
    synthetic, *real = windows_of(released=released, train=train, others=others, reference=reference)
    *attacked, known = real
    members, strangers = (
        log_density_per_event(each, synthetic, settings.density)
        - log_density_per_event(each, known, concentration=REFERENCE_CONCENTRATION)
        for each in attacked
    )
    return MembershipScores(members[None], strangers[None], train.user_ids, others.user_ids, "density_ratio")


def _split(test: Traces, fraction: float, seed: int) -> tuple[Traces, Traces]:
    """Traces of reference users, and of all others; at least one of each."""
    n_reference = min(max(round(fraction * test.n_users), 1), test.n_users - 1)
    users = numpy_stream(seed, Stage.MEMBERSHIP, REFERENCE_STREAM).permutation(test.n_users)
    return test.select_users(users[:n_reference]), test.select_users(users[n_reference:])


MEMBERSHIP_ATTACKS.register(
    MembershipAttack(
        "density_ratio",
        "Density of a user's traces under the synthetic ones over that under those of strangers",
        DensityRatioSettings,
        lambda released, train, test, settings, seed, _: density_ratios(released, train, test, settings, seed=seed),
    )
)
