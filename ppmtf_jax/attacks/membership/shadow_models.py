"""Membership inference with shadow models (LiRA, Carlini et al. 2022): the strongest attack.

The attacker knows the synthesizer, its settings and those of the privacy test, and the real traces of the users in
question. The steps: (1) train shadow models on random halves of these users, and let them make traces like the released
ones. (2) Compare each user's real traces with the traces of each shadow model (`statistics_of`): this shows how
similar synthetic traces are if the user's data were used, and if not. (3) Score each user by how much more the released
traces resemble the first case (`Shadows.score`). So a user whose traces are usual does not get a high score.

An attacker who knows the real traces of nobody but the person in question makes shadow models from the release itself:
released traces stand in for people (Guan et al. 2024, arXiv 2406.18671).
"""

from __future__ import annotations

import io
import json
import os
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from ppmtf_jax.attacks.membership.base import MembershipScores, membership_attack
from ppmtf_jax.attacks.membership.shadow_statistics import MIN_SHADOWS, STATISTICS, Shadows, statistics_of
from ppmtf_jax.attacks.scoring import windows_of
from ppmtf_jax.data.comparable import check_disjoint_users, check_same_places, index_of_ids
from ppmtf_jax.data.time_grid import DAY_S
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.privacy.own_test import privacy_test, settings_kind
from ppmtf_jax.privacy.plausible_deniability import PrivacyTestSettings, all_pass
from ppmtf_jax.runtime.files import atomic_file, read_own
from ppmtf_jax.runtime.folders import digest_of, digest_of_sources
from ppmtf_jax.runtime.progress import continues_from, in_words, progress_bar
from ppmtf_jax.runtime.threads import map_in_threads, one_thread
from ppmtf_jax.settings import Count, Settings, build_settings
from ppmtf_jax.streams import Stage, numpy_stream
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS
from ppmtf_jax.synthesizers.synthesis import fit, synthesize

PEOPLE_OF_SHADOWS = ("real", "released")
N_SHADOWS = 8
"""Number of shadow models. Twice as many take twice as long and are hardly better: see the benchmarks."""
MAX_ATTACKED = 1000
"""Maximum number of attacked training users, and of attacked other users. All training users who are not attacked are
in the training set of every shadow model."""
ROUNDS, ENOUGH = 3, 0.8
"""A shadow model makes traces up to 3 times, until at least 80 % of the released number of traces pass the test."""
AT_ONCE = 2
"""Number of shadow models that are learned at once, after the first one, where there are as many cores. A fit uses
little more than one core, and more fits at once would need more memory."""
ATTACKED_STREAM, SHADOW_STREAM, PASSED_STREAM, STAND_INS_STREAM = 1, 2, 3, 4
"""Random-stream numbers of the stage; density_ratio.py uses 0."""
Statistics = Float[np.ndarray, "statistic user"]


@dataclass(frozen=True)
class ShadowModelSettings(Settings, subject="shadow models"):
    """Settings of the attack with shadow models.

    Parameters
    ----------
    system : str
        The synthesizer that made the released traces.
    system_settings : dict
        The settings with which the traces were made. Missing settings have their defaults. If the settings include the
        choices of the attacked model (see `FittedModel.settings_found`), a shadow model takes less time. It learns
        everything else from its own users alone. These choices do not make the traces look safer than they are: they
        are a few numbers that hardly depend on a single user, and make shadow models more like the attacked one.
    test_settings : dict, optional
        Settings of the privacy test that the released traces passed, such as k and eta. The traces of shadow models are
        tested in the same way. None if nothing was tested.
    n_shadows : int
        How many models are trained: an even number, at least 6. Each model takes as long as making the released traces.
    n_attacked : int
        Maximum number of attacked training users, and of attacked other users, drawn at random.
    people : {"real", "released"}
        Whom shadow models learn from: random halves of the real users, or of released traces that stand in for people.
    """

    system: str
    system_settings: dict = field(default_factory=dict)
    test_settings: dict | None = None
    n_shadows: int = N_SHADOWS
    n_attacked: Count = MAX_ATTACKED
    people: Literal["real", "released"] = "real"

    def problems(self) -> list[Problem | str]:
        """Problems of the number of models, and of the settings of the synthesizer and the test."""
        problems: list[Problem | str] = []
        if self.n_shadows < MIN_SHADOWS or self.n_shadows % 2:
            problems.append(Problem(f"an even n_shadows of at least {MIN_SHADOWS}", repr(self.n_shadows)))
        try:
            build_settings(SYNTHESIZERS[self.system].settings, self.system_settings, self.system)
            build_settings(settings_kind(self.system), self.test_settings or {}, "test")
        except InputError as error:
            problems += error.problems
        return problems


@membership_attack(
    "shadow_models",
    "Resemblance of the synthetic traces to traces of models trained with, and without, a user's data",
    ShadowModelSettings,
)
def infer_by_shadow_models(
    released: Traces,
    train: Traces,
    test: Traces,
    settings: ShadowModelSettings,
    seed: int = 0,
    progress: bool = False,
    *,
    checkpoint: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> MembershipScores:
    """Score users by the log-odds that their data were used; see `infer_membership`.

    `train` and `test` have the same time grid. `checkpoint` is a file with the results of finished shadow models, which
    only its owner can read. A later call with the same data and settings continues from it; a call with other data or
    settings starts again. `say` receives an estimate of the time after the first models, and a better one after some
    more. Raises `InputError` if users are in both real sets, place tables or time grids differ, or no trace of a
    shadow model passes the test.
    """
    target = Target.of(released, train, test, n_attacked=settings.n_attacked, seed=seed)
    if settings.people == "released":
        target = target.with_stand_ins(released, train.n_users, seed=seed)
    number = released.trace_table()[1]
    days, rest_s = divmod(released.time_grid.n_instants * released.time_grid.step_s, DAY_S)
    of_user = max(-(-len(number) // train.n_users), int(number.max()) + 1)
    wanted = Wanted(len(number), of_user, None if rest_s else days)
    kept = None
    if checkpoint is not None:
        continues_from(checkpoint, "the finished shadow models")
        given = {name: value for name, value in asdict(settings).items() if name != "n_shadows"}
        kept = ShadowCheckpoint(checkpoint, shadow_digest({**given, **wanted._asdict()}, seed, train, test))
    whom = "users" if settings.people == "real" else "released traces, which stand in for people"
    say(f"shadow models: training {settings.n_shadows} models of the same kind on halves of the {whom}")
    shadows = learn_shadows(
        target,
        lambda traces, its_seed: made_like(traces, settings, wanted, its_seed),
        settings.n_shadows,
        seed=seed,
        kept=kept,
        at_once=1 if SYNTHESIZERS[settings.system].on_all_devices else AT_ONCE,
        progress=progress,
        say=say,
    )
    return target.scores(shadows)


class Target(NamedTuple):
    """The released traces, and the users whose membership is inferred.

    `traces`: the real traces of all training users and the other attacked users. `windows`: those of attacked users,
    and `is_member` whether each of them, with the ids `ids`, is a training user. If released traces stand in for
    people, `traces` are these, all of them are "attacked", and `stand_ins` are their windows.
    """

    traces: Traces
    is_attacked: Bool[np.ndarray, " user"]
    ids: np.ndarray
    is_member: Bool[np.ndarray, " attacked"]
    windows: Windows
    released: Windows
    stand_ins: Windows | None = None

    @classmethod
    def of(
        cls, released: Traces, train: Traces, test: Traces, *, n_attacked: int = MAX_ATTACKED, seed: int = 0
    ) -> Target:
        """Draw the attacked users: as many training users as others."""
        check_same_places(released=released, train=train, test=test)
        check_disjoint_users(train, test)
        if train.time_grid != test.time_grid:
            raise InputError("shadow models", [Problem("training and test traces on one time grid", "two")])
        rng = numpy_stream(seed, Stage.MEMBERSHIP, ATTACKED_STREAM)
        n_attacked = min(train.n_users, test.n_users, n_attacked)
        member, other = (each.user_ids[rng.permutation(each.n_users)[:n_attacked]] for each in (train, test))
        strangers = test.select_users(index_of_ids(other, test.user_ids))
        frame = pd.concat([each.to_frame() for each in (train, strangers)])
        traces = Traces.from_frame(frame, train.places, train.time_grid)
        is_member = index_of_ids(traces.user_ids, train.user_ids) >= 0
        is_attacked = ~is_member | (index_of_ids(traces.user_ids, member) >= 0)
        attacked = traces.select_users(np.flatnonzero(is_attacked))
        windows = windows_of(users=attacked, released=released)
        return cls(traces, is_attacked, attacked.user_ids, is_member[is_attacked], *windows)

    def with_stand_ins(self, released: Traces, n_users: int, *, seed: int = 0) -> Target:
        """The same target, if twice as many released traces as there are training users stand in for people."""
        trace = released.trace_of_event()
        rng = numpy_stream(seed, Stage.MEMBERSHIP, STAND_INS_STREAM)
        chosen = np.sort(rng.permutation(int(trace[-1]) + 1)[: 2 * n_users])
        kept = np.isin(trace, chosen)
        columns = trace[kept], np.zeros(kept.sum(), int), released.instant[kept], released.place[kept]
        ids = np.arange(int(trace[-1]) + 1)
        stand_ins = Traces.from_indices(*columns, ids, released.places, released.time_grid)
        windows = windows_of(users=stand_ins)[0]
        return self._replace(traces=stand_ins, is_attacked=np.ones(stand_ins.n_users, bool), stand_ins=windows)

    def half(self, rng: np.random.Generator) -> Bool[np.ndarray, " user"]:
        """Draw a training set: half of the attacked users, and all users who are not attacked.

        The set is as large as the true training set, so the same compiled programs can be used.
        """
        chosen = ~self.is_attacked
        attacked = np.flatnonzero(self.is_attacked)
        chosen[rng.permutation(attacked)[: len(attacked) // 2]] = True
        return chosen

    def scores(self, shadows: Shadows) -> MembershipScores:
        """Log-odds of every attacked user."""
        score, of = shadows.score(statistics_of(self.windows, self.released)), self.is_member
        return MembershipScores(score[None, of], score[None, ~of], self.ids[of], self.ids[~of], "shadow_models")

    def statistics(self, made: Traces) -> Float[np.ndarray, "statistic user"]:
        """Statistics of the attacked users, and after them of those who stand in, for the traces of a shadow model."""
        sets = [self.windows] if self.stand_ins is None else [self.windows, self.stand_ins]
        windows = windows_of(users=self.traces, made=made)[1]
        return np.concatenate([statistics_of(each, windows) for each in sets], axis=1)


def learn_shadows(
    target: Target,
    make: Callable[[Traces, int], Traces],
    n_shadows: int = N_SHADOWS,
    *,
    seed: int = 0,
    kept: ShadowCheckpoint | None = None,
    at_once: int = 1,
    progress: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Shadows:
    """Compute the statistics of a target's users for shadow models; statistics in `kept` are not computed again.

    `make` gets training traces and a seed. It makes as many synthetic traces as were released, and makes and tests them
    in the same way. `at_once`: how many models are learned at once, in threads, after the first one.
    """
    rng = numpy_stream(seed, Stage.MEMBERSHIP, SHADOW_STREAM)
    found = [] if kept is None else kept.load(say)[:n_shadows]
    if found:
        say(f"shadow models: {len(found)} of {n_shadows} were finished before")
    is_in: list[np.ndarray] = []
    seeds: list[int] = []
    for number in range(n_shadows):
        # The second model of a pair has the other half of the attacked users.
        is_in.append(~is_in[-1] | ~target.is_attacked if number % 2 else target.half(rng))
        seeds.append(int(rng.integers(2**63)))

    def learn(number: int) -> Float[np.ndarray, "statistic user"]:
        return target.statistics(make(target.traces.select_users(np.flatnonzero(is_in[number])), seeds[number]))

    began, n_before = time.monotonic(), len(found)
    # Fits limit NumPy to one thread. The limit is set here for all of them, since they do not end at the same time.
    with one_thread(), progress_bar("shadow models", n_shadows, show=progress, done=n_before) as advance:
        first, others = map(learn, range(n_before, n_shadows)[:1]), range(n_before + 1, n_shadows)
        # The first model compiles the programs that all models use. A second model beside it would compile them again.
        for statistics in chain(first, map_in_threads(learn, others, most_at_once=at_once)):
            found.append(statistics)
            if kept is not None:
                kept.save(found)
            advance(1)
            # The first model takes longest, so an estimate after more models is better.
            n_made, left = len(found) - n_before, n_shadows - len(found)
            if left and n_made in (1, 1 + at_once):
                seconds = time.monotonic() - began
                took, rest = in_words(seconds), in_words(left * seconds / n_made)
                say(f"shadow models: {n_made} took {took}; {left} more take about {rest}")
    statistics, n_attacked = np.array(found), len(target.ids)
    stood_in = None if target.stand_ins is None else statistics[..., n_attacked:]
    return Shadows(statistics[..., :n_attacked], np.array(is_in)[:, target.is_attacked], stood_in)


class Wanted(NamedTuple):
    """Traces of a shadow model: `n_traces` that pass, `of_user` for each user in the first round, of `days` days each.

    If the release has its key, trace numbers show how many traces were made for each user. Otherwise further rounds
    make more until enough pass.
    """

    n_traces: int
    of_user: int
    days: int | None = None  # None: as long as the model makes them


def made_like(train: Traces, settings: ShadowModelSettings, wanted: Wanted, seed: int) -> Traces:
    """Make traces with a shadow model: they pass the test of the released traces, and are at most as many.

    Raises `InputError` if no trace passes.
    """
    model = fit(train, settings.system, settings.system_settings, seed=seed)
    # A model that was learned from half of the users may make traces of another kind.
    of_user, days = wanted.of_user, wanted.days if model.trace_model.goes_on else None
    for _ in range(ROUNDS):
        number = {"people": wanted.n_traces} if model.of_nobody else {"traces_per_user": of_user}
        made = synthesize(model, number | {"days": days}, seed=seed)
        passed = np.ones(len(made.trace_table()[0]), bool)
        test = settings.test_settings and settings_kind(settings.system)(**settings.test_settings)
        if test and not (isinstance(test, PrivacyTestSettings) and all_pass(model, test)):
            passed = privacy_test(model, made, test, seed=seed).passed
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


@dataclass(frozen=True)
class ShadowCheckpoint:
    """The statistics of finished shadow models in a file that only its owner may read.

    `digest` identifies the data and settings, see `shadow_digest`.
    """

    path: Path
    digest: str

    def save(self, statistics: Sequence[Statistics]) -> None:
        """Write the statistics of all finished shadow models."""
        with atomic_file(self.path) as partial, open(partial, "wb") as file:
            np.savez(file, digest=np.array(self.digest), statistics=np.array(statistics))

    def load(self, say: Callable[[str], None] = lambda _: None) -> list[Statistics]:
        """Read the statistics; an empty list, with a message, if the file is damaged or has other data or settings.

        Raises `InputError` if somebody else could have put the file there, see `runtime.files.open_own`.
        """
        if not os.path.lexists(self.path):
            return []
        try:
            with np.load(io.BytesIO(read_own(self.path))) as kept:
                if str(kept["digest"]) == self.digest:
                    return list(kept["statistics"])
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
            say(f"shadow models: {self.path.name} cannot be read; starting again")
            return []
        say(f"shadow models: {self.path.name} is from other data or settings; starting again")
        return []


def shadow_digest(settings: dict[str, Any], seed: int, *real: Traces) -> str:
    """Digest of everything that determines the statistics of shadow models.

    `settings` does not have the number of shadow models: an attack with more models continues from the same file.
    """
    told = json.dumps(settings, default=str, sort_keys=True)
    # The digest of traces leaves out users without an event.
    users = [[str(each) for each in traces.user_ids.tolist()] for traces in real]
    return digest_of(digest_of_sources(), list(STATISTICS), told, seed, users, [traces.digest for traces in real])
