"""Membership inference with shadow models (LiRA, Carlini et al. 2022): the strongest attack.

The attacker knows the synthesizer, its settings and those of the privacy test, and the traces of the users in question.
She learns models from random halves of these users. They show what synthetic traces have in common with a user's own
traces, once when they were made with her data and once when they were not. The released traces are then more like the
former or the latter. So a user whose traces are usual anyway is not suspected. `trace_statistics` compares traces in
several ways. `calibration` learns from the shadow models how much each way tells.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool

from ppmtf_jax.attacks.membership.base import MEMBERSHIP_ATTACKS, MembershipAttack
from ppmtf_jax.attacks.membership.calibration import LEAST_SHADOWS, Shadows
from ppmtf_jax.attacks.membership.scores import MembershipScores
from ppmtf_jax.attacks.membership.shadow_checkpoint import ShadowCheckpoint, shadow_digest
from ppmtf_jax.attacks.membership.trace_densities import windows_of
from ppmtf_jax.attacks.membership.trace_statistics import statistics_of
from ppmtf_jax.data.comparable import check_disjoint_users, check_same_places, index_of_ids
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.privacy.plausible_deniability import PrivacyTestSettings, plausible_deniability_test
from ppmtf_jax.runtime.progress import in_words, progress_bar
from ppmtf_jax.settings import Count, Settings, build_settings
from ppmtf_jax.streams import Stage, numpy_stream
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS
from ppmtf_jax.synthesizers.synthesis import fit, synthesize

Make = Callable[[Traces, int], Traces]
N_SHADOWS = 8
"""Twice as many find hardly more and take twice as long: see the benchmarks."""
MOST_ATTACKED = 1000
"""So many training users, and so many others, are attacked at most. All further training users only fill the shadow
models."""
ROUNDS, ENOUGH = 3, 0.8
"""A shadow model makes more traces at most so often, until this share of the number of released traces has passed."""
# Of the stage's streams; `density_ratio` has another.
ATTACKED_STREAM, SHADOW_STREAM, PASSED_STREAM = 1, 2, 3


@dataclass(frozen=True)
class ShadowModelSettings(Settings, subject="shadow models"):
    """Settings of the attack with shadow models.

    Parameters
    ----------
    system : str
        The synthesizer that made the released traces.
    system_settings : dict
        The settings that the traces were made with. Defaults are used for those that are missing.
    test_settings : dict, optional
        Settings of the privacy test that the released traces passed, such as k and eta. The traces of shadow models are
        tested in the same way. None if nothing was tested.
    n_shadows : int
        How many models are trained: an even number, at least 6. Each costs as much as the released traces did.
    n_attacked : int
        At most so many training users, and so many others, are attacked; they are drawn at random.

    Raises
    ------
    InputError
        Lists what is out of range, and what the synthesizer and the test refuse.
    """

    system: str
    system_settings: dict = field(default_factory=dict)
    test_settings: dict | None = None
    n_shadows: int = N_SHADOWS
    n_attacked: Count = MOST_ATTACKED

    def problems(self) -> list[Problem | str]:
        """What is wrong with the number of models, and what the synthesizer and the test refuse."""
        problems = _problems(self.n_shadows, self.n_attacked)
        try:
            build_settings(SYNTHESIZERS[self.system].settings, self.system_settings, self.system)
            build_settings(PrivacyTestSettings, self.test_settings or {}, "test")
        except InputError as error:
            problems += error.problems
        return problems


def infer_by_shadow_models(
    released: Traces,
    train: Traces,
    test: Traces,
    settings: ShadowModelSettings,
    *,
    seed: int = 0,
    checkpoint: Path | None = None,
    progress: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> MembershipScores:
    """The attack on traces of a synthesizer that is known by its name; see `shadow_model_scores`.

    Parameters
    ----------
    checkpoint : path, optional
        A file with the results of finished shadow models, which only its owner can read. A later call with the same
        data and settings continues from it; a call with other data or settings starts again.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=40, n_places=20, n_days=1, seed=0).traces.split_users(0.5, seed=0)
    >>> made = synthesize(fit(train, "sgd", seed=0), seed=0)
    >>> scores = infer_by_shadow_models(made, train, test, ShadowModelSettings("sgd", n_shadows=6))
    >>> scores.members.shape, scores.others.shape
    ((1, 20), (1, 20))
    """
    wanted = Wanted.of(released, train)
    given = {name: value for name, value in asdict(settings).items() if name != "n_shadows"}
    kept = (
        None
        if checkpoint is None
        else ShadowCheckpoint(checkpoint, shadow_digest({**given, **wanted._asdict()}, seed, train, test))
    )
    say(f"shadow models: learning {settings.n_shadows} models like this, from other halves of the users")
    return shadow_model_scores(
        released,
        train,
        test,
        lambda traces, its_seed: made_like(traces, settings, wanted, its_seed),
        n_shadows=settings.n_shadows,
        n_attacked=settings.n_attacked,
        seed=seed,
        kept=kept,
        progress=progress,
        say=say,
    )


def shadow_model_scores(
    released: Traces,
    train: Traces,
    test: Traces,
    make: Make,
    *,
    n_shadows: int = N_SHADOWS,
    n_attacked: int = MOST_ATTACKED,
    seed: int = 0,
    kept: ShadowCheckpoint | None = None,
    progress: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> MembershipScores:
    """Score users by the log-odds that their data was used, from what shadow models make with it and without.

    As many training users as others are attacked; they are drawn at random if there are more. All further training
    users are in the training set of every shadow model, so these sets are as large as the true one, and run the same
    compiled programs. One half of the attacked users is in one model, and the other half is in the next.

    Parameters
    ----------
    released : Traces
        From the training users.
    train, test : Traces
        On the same time grid.
    make : callable
        Makes synthetic traces from training traces and a seed: as many as were released, made and tested like them.
    n_shadows : int
        How many times to call `make`.
    n_attacked : int
        At most so many training users, and so many others, are attacked.
    seed : int
        Decides who is attacked, the halves, and the seeds that `make` gets.
    kept : ShadowCheckpoint, optional
        Results of finished shadow models.
    progress : bool
        Show a progress bar where there is a terminal.
    say : function of a str
        Is told how long it takes: an estimate after the first model, and a better one after the second.

    Raises
    ------
    InputError
        Users are in both real sets, place tables or time grids differ, or n_shadows is odd or below 6.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=60, n_days=1, seed=0).traces.split_users(0.5, seed=0)
    >>> scores = shadow_model_scores(train, train, test, lambda traces, seed: traces, n_shadows=6)
    >>> scores.roc.auc > 0.9
    True
    """
    target = Target.of(released, train, test, n_attacked=n_attacked, seed=seed)
    return target.scores(learn_shadows(target, make, n_shadows, seed=seed, kept=kept, progress=progress, say=say))


@dataclass(frozen=True, eq=False)
class _Users:
    """The training users, and as many others as there are of them at most."""

    traces: Traces
    is_member: Bool[np.ndarray, " user"]
    is_attacked: Bool[np.ndarray, " user"]

    @classmethod
    def of(cls, train: Traces, test: Traces, n_attacked: int, seed: int) -> _Users:
        rng = numpy_stream(seed, Stage.MEMBERSHIP, ATTACKED_STREAM)
        n_attacked = min(train.n_users, test.n_users, n_attacked)
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


class Target(NamedTuple):
    """What is attacked: the released traces, and the users who may be behind them."""

    users: _Users
    windows: Windows
    released: Windows

    @classmethod
    def of(
        cls, released: Traces, train: Traces, test: Traces, *, n_attacked: int = MOST_ATTACKED, seed: int = 0
    ) -> Target:
        """See `shadow_model_scores`."""
        check_same_places(released=released, train=train, test=test)
        check_disjoint_users(train, test)
        problems = _problems(LEAST_SHADOWS, n_attacked)
        if train.time_grid != test.time_grid:
            problems.append(Problem("training and test traces on one time grid", "two"))
        if problems:
            raise InputError("shadow models", problems)
        users = _Users.of(train, test, n_attacked, seed)
        attacked = users.traces.select_users(np.flatnonzero(users.is_attacked))
        return cls(users, *windows_of(users=attacked, released=released))

    def scores(self, shadows: Shadows) -> MembershipScores:
        """Log-odds of every attacked user."""
        score = shadows.score(statistics_of(self.windows, self.released))
        users = self.users
        ids, is_member = users.traces.user_ids[users.is_attacked], users.is_member[users.is_attacked]
        return MembershipScores(
            score[None, is_member], score[None, ~is_member], ids[is_member], ids[~is_member], "shadow_models"
        )


def learn_shadows(
    target: Target,
    make: Make,
    n_shadows: int = N_SHADOWS,
    *,
    seed: int = 0,
    kept: ShadowCheckpoint | None = None,
    progress: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Shadows:
    """What shadow models show of a target's users, see `shadow_model_scores`; those of before are not made again."""
    problems = _problems(n_shadows, 1)
    if problems:
        raise InputError("shadow models", problems)
    rng, users = numpy_stream(seed, Stage.MEMBERSHIP, SHADOW_STREAM), target.users
    found = [] if kept is None else kept.load(say)[:n_shadows]
    if found:
        say(f"shadow models: {len(found)} of {n_shadows} were made before")
    is_in: list[np.ndarray] = []
    with progress_bar("shadow models", n_shadows, show=progress, done=len(found)) as advance:
        for number in range(n_shadows):
            is_in.append(users.other_half(is_in[-1]) if number % 2 else users.half(rng))
            its_seed = int(rng.integers(2**63))
            if number < len(found):
                continue
            began = time.monotonic()
            made = make(users.traces.select_users(np.flatnonzero(is_in[-1])), its_seed)
            found.append(statistics_of(target.windows, windows_of(users=users.traces, made=made)[1]))
            if kept is not None:
                kept.save(found)
            advance(1)
            # The first one compiles, so the second tells better how long the others take.
            if number < 2:
                _tell_time(time.monotonic() - began, n_shadows - number - 1, say)
    return Shadows(np.array(found), np.array(is_in)[:, users.is_attacked])


def _tell_time(seconds: float, left: int, say: Callable[[str], None]) -> None:
    if left:
        say(f"shadow models: this one took {in_words(seconds)}; {left} more take some {in_words(left * seconds)}")


class Wanted(NamedTuple):
    """How many traces a shadow model has to give.

    Attributes
    ----------
    n_traces : int
        As many as were released.
    of_user : int
        Made of each user, at least. Released with their key, traces have the numbers that they were made with; else
        more are made until enough pass.
    """

    n_traces: int
    of_user: int

    @classmethod
    def of(cls, released: Traces, train: Traces) -> Wanted:
        """As many as there are."""
        number = released.trace_table()[1]
        return cls(len(number), max(-(-len(number) // train.n_users), int(number.max()) + 1))


def made_like(train: Traces, settings: ShadowModelSettings, wanted: Wanted, seed: int) -> Traces:
    """Traces of a shadow model that passed the same test as the released ones, and at most as many.

    Raises
    ------
    InputError
        None passes.
    """
    model = fit(train, settings.system, settings.system_settings, seed=seed)
    of_user = wanted.of_user
    for _ in range(ROUNDS):
        made = synthesize(model, traces_per_user=of_user, seed=seed)
        passed = np.ones(len(made.trace_table()[0]), bool)
        if settings.test_settings is not None:
            passed = plausible_deniability_test(model, made, seed=seed, **settings.test_settings).passed
        if passed.sum() >= ENOUGH * wanted.n_traces:
            break
        # Powers of two, so that shadow models share few compiled programs.
        needed = -(-wanted.n_traces * of_user // max(int(passed.sum()), 1))
        of_user = 1 << (min(needed, 16 * of_user) - 1).bit_length()
    if not passed.any():
        way_out = "Leave shadow models out: too few traces pass to attack them"
        raise InputError("shadow models", [Problem("shadow models some of whose traces pass", "none", way_out=way_out)])
    rng = numpy_stream(seed, Stage.MEMBERSHIP, PASSED_STREAM)
    kept = rng.permutation(np.flatnonzero(passed))[: wanted.n_traces]
    return made.select_traces(np.isin(np.arange(len(passed)), kept))


def _problems(n_shadows: int, n_attacked: int) -> list[Problem | str]:
    problems: list[Problem | str] = []
    if n_shadows < LEAST_SHADOWS or n_shadows % 2:
        problems.append(Problem(f"an even n_shadows of at least {LEAST_SHADOWS}", repr(n_shadows)))
    if n_attacked < 1:
        problems.append(Problem("n_attacked of at least 1", repr(n_attacked)))
    return problems


def _infer(
    released: Traces, train: Traces, test: Traces, settings: ShadowModelSettings, seed: int, progress: bool
) -> MembershipScores:
    return infer_by_shadow_models(released, train, test, settings, seed=seed, progress=progress)


MEMBERSHIP_ATTACKS.register(
    MembershipAttack(
        "shadow_models",
        "What a user's traces have in common with the synthetic ones, held against models with and without her",
        ShadowModelSettings,
        _infer,
    )
)
