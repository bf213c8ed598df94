"""Membership inference with shadow models (LiRA, Carlini et al. 2022): the strongest attack, for cheap synthesizers.

The attacker knows the synthesizer and its settings, and the traces of the users in question. Models retrained on random
halves of them show how probable a user's traces are under synthetic ones that were made with her data and without; what
was released is then more like the former or the latter. So a user whose traces are usual anyway is not suspected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from ppmtf_jax.attacks.membership.base import MEMBERSHIP_ATTACKS, MembershipAttack
from ppmtf_jax.attacks.membership.density_ratio import density_problems
from ppmtf_jax.attacks.membership.scores import MembershipScores
from ppmtf_jax.attacks.membership.trace_densities import Density, log_density_per_event, windows_of
from ppmtf_jax.data.comparable import check_disjoint_users, check_same_places, index_of_ids
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.settings import build_settings
from ppmtf_jax.streams import Stage, numpy_stream
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS
from ppmtf_jax.synthesizers.synthesis import fit, synthesize

Make = Callable[[Traces, int], Traces]
N_SHADOWS = 16
LEAST_SHADOWS = 4
# Of the stage's streams; `density_ratio` has another.
ATTACKED_STREAM, SHADOW_STREAM = 1, 2


@dataclass(frozen=True)
class ShadowModelSettings:
    """Settings of the attack with shadow models.

    Parameters
    ----------
    system : str
        The synthesizer that made the released traces.
    system_settings : dict
        Its settings, as the traces were made with; its defaults where there are none.
    n_shadows : int
        How many models are trained, even and at least 4. Each costs as much as the released traces did.
    density : {"chain", "kernel"}
        Of a user's traces under synthetic ones, see the density-ratio attack.

    Raises
    ------
    InputError
        Listing what is out of range, and what the synthesizer refuses.
    """

    system: str
    system_settings: dict = field(default_factory=dict)
    n_shadows: int = N_SHADOWS
    density: Density = "chain"

    def __post_init__(self) -> None:
        problems: list[Problem | str] = [*_shadow_problems(self.n_shadows), *density_problems(self.density)]
        try:
            build_settings(SYNTHESIZERS[self.system].settings, self.system_settings, self.system)
        except InputError as error:
            problems += error.problems
        if problems:
            raise InputError("shadow models", problems)


def shadow_model_ratios(
    released: Traces,
    train: Traces,
    test: Traces,
    make: Make,
    *,
    n_shadows: int = N_SHADOWS,
    density: Density = "chain",
    seed: int = 0,
    progress: bool = False,
) -> MembershipScores:
    """Score users by the likelihood ratio of the log-density of their traces, with and without them in training.

    As many training users as others are attacked, at random where there are more; further training users are in the
    training set of every shadow model, so that all these are as large as the true one. Half of the attacked users are
    in each, the other half in the next. The log-density is taken for Gaussian, with means of each user and variances of
    all together: models are too few for a variance of each user (Carlini et al. 2022, "fixed variance").

    Parameters
    ----------
    released : Traces
        From the training users, all that were made: a release of some, which passed a test, is not what shadow models
        give.
    train, test : Traces
        On the same time grid.
    make : callable
        From training traces and a seed to synthetic traces, made like the released ones and as many from each user.
    n_shadows : int
        How many times to do that.
    density : {"chain", "kernel"}
        See `trace_densities`.
    seed : int
        Of who is attacked, the halves, and the seeds that `make` gets.
    progress : bool
        Show a progress bar where there is a terminal.

    Raises
    ------
    InputError
        Users are in both real sets, place tables or time grids differ, or n_shadows is odd or below 4.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=60, n_days=1, seed=0).traces.split_users(0.5, seed=0)
    >>> scores = shadow_model_ratios(train, train, test, lambda traces, seed: traces, n_shadows=4)
    >>> scores.roc.auc > 0.9
    True
    """
    check_same_places(released=released, train=train, test=test)
    check_disjoint_users(train, test)
    problems = _shadow_problems(n_shadows)
    if train.time_grid != test.time_grid:
        problems.append(Problem("training and test traces on one time grid", "two"))
    if problems:
        raise InputError("shadow models", problems)
    users = _Users.of(train, test, seed)
    of_released, of_users = windows_of(released=released, users=users.traces)
    rng = numpy_stream(seed, Stage.MEMBERSHIP, SHADOW_STREAM)
    statistic = np.empty((n_shadows, users.traces.n_users))
    is_in = np.empty((n_shadows, users.traces.n_users), bool)
    with progress_bar("shadow models", n_shadows, show=progress) as advance:
        for number in range(n_shadows):
            is_in[number] = users.other_half(is_in[number - 1]) if number % 2 else users.half(rng)
            made = make(users.traces.select_users(np.flatnonzero(is_in[number])), int(rng.integers(2**63)))
            _, of_made = windows_of(users=users.traces, made=made)
            statistic[number] = log_density_per_event(of_users, of_made, density)
            advance(1)
    score = _log_likelihood_ratio(log_density_per_event(of_users, of_released, density), statistic, is_in)
    ids, attacked = users.traces.user_ids, users.is_attacked
    members, others = (np.flatnonzero(attacked & kind) for kind in (users.is_member, ~users.is_member))
    return MembershipScores(score[None, members], score[None, others], ids[members], ids[others], "shadow_models")


@dataclass(frozen=True, eq=False)
class _Users:
    """The training users, and as many others as there are of them at most."""

    traces: Traces
    is_member: Bool[np.ndarray, " user"]
    is_attacked: Bool[np.ndarray, " user"]

    @classmethod
    def of(cls, train: Traces, test: Traces, seed: int) -> _Users:
        rng = numpy_stream(seed, Stage.MEMBERSHIP, ATTACKED_STREAM)
        n_attacked = min(train.n_users, test.n_users)
        member, other = (each.user_ids[rng.permutation(each.n_users)[:n_attacked]] for each in (train, test))
        strangers = test.select_users(index_of_ids(other, test.user_ids))
        frame = pd.concat([each.to_frame() for each in (train, strangers)])
        traces = Traces.from_frame(frame, train.places, train.time_grid)
        is_member = index_of_ids(traces.user_ids, train.user_ids) >= 0
        return cls(traces, is_member, ~is_member | (index_of_ids(traces.user_ids, member) >= 0))

    def half(self, rng: np.random.Generator) -> Bool[np.ndarray, " user"]:
        """A training set: half of the attacked users, and all who are not attacked."""
        chosen = ~self.is_attacked
        attacked = np.flatnonzero(self.is_attacked)
        chosen[rng.permutation(attacked)[: len(attacked) // 2]] = True
        return chosen

    def other_half(self, half: Bool[np.ndarray, " user"]) -> Bool[np.ndarray, " user"]:
        return ~half | ~self.is_attacked


def _shadow_problems(n_shadows: int) -> list[Problem]:
    if n_shadows >= LEAST_SHADOWS and n_shadows % 2 == 0:
        return []
    return [Problem(f"an even n_shadows of at least {LEAST_SHADOWS}", repr(n_shadows))]


def _log_likelihood_ratio(
    seen: Float[np.ndarray, " user"],
    statistic: Float[np.ndarray, "shadow user"],
    is_in: Bool[np.ndarray, "shadow user"],
) -> Float[np.ndarray, " user"]:
    """Of what was seen of each user, with Gaussians of shadow models with her and without; 0 for one in all."""
    attacked = ~is_in.all(axis=0)
    log_density = np.zeros((2, len(seen)))
    rounding = np.finfo(float).eps * (1 + np.abs(statistic).max())
    for row, kind in zip(log_density, (is_in, ~is_in), strict=True):
        mean = np.average(statistic[:, attacked], axis=0, weights=kind[:, attacked])
        square = (statistic[:, attacked] - mean) ** 2
        # Each user's mean takes one of her models.
        variance = square[kind[:, attacked]].sum() / (kind[:, attacked].sum() - attacked.sum())
        variance = max(variance, rounding**2)
        row[attacked] = -((seen[attacked] - mean) ** 2) / (2 * variance) - np.log(variance) / 2
    return log_density[0] - log_density[1]


def _infer(
    released: Traces, train: Traces, test: Traces, settings: ShadowModelSettings, seed: int, progress: bool
) -> MembershipScores:
    traces_per_user = len(np.unique(released.trace))

    def make(traces: Traces, its_seed: int) -> Traces:
        model = fit(traces, settings.system, seed=its_seed, **settings.system_settings)
        return synthesize(model, traces_per_user=traces_per_user, seed=its_seed)

    return shadow_model_ratios(
        released,
        train,
        test,
        make,
        n_shadows=settings.n_shadows,
        density=settings.density,
        seed=seed,
        progress=progress,
    )


MEMBERSHIP_ATTACKS.register(
    MembershipAttack(
        "shadow_models",
        "Density of a user's traces, held against models retrained with and without her",
        ShadowModelSettings,
        _infer,
    )
)
