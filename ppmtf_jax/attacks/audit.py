"""Re-identification with all estimators on the same traces, and how traces are split for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from annotated_types import Ge, Lt

from ppmtf_jax.attacks.deobfuscation import Deobfuscation
from ppmtf_jax.attacks.estimators.base import ESTIMATORS, TransitionMatrices, estimate_transitions
from ppmtf_jax.attacks.obfuscation import random_deletions, worst_deletions
from ppmtf_jax.attacks.roc import Roc, bootstrap_interval
from ppmtf_jax.attacks.scoring import FLOOR
from ppmtf_jax.attacks.trace_scores import MAX_GAP, NOBODY, OpenWorld, TraceScores, score_traces, verification
from ppmtf_jax.data.comparable import index_of_ids, training_user_of
from ppmtf_jax.data.description import finite_or_none
from ppmtf_jax.data.runs import rank_in_run, run_begins
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.privacy.limits import EXPOSED, FOUND, NAMED, Judgement, shows_leak
from ppmtf_jax.settings import Count, CountOrZero, Settings, Share, chosen_settings, parse_choice
from ppmtf_jax.streams import Stage, numpy_stream

FLOORS = ("", " floor=1e-3")
"""Floors of transition probabilities that are tried by default: that of the paper, 1e-8, and one that often finds more,
because a single step that a person never made then says less."""

FALSE_POSITIVE_RATES = (0.001, 0.01, 0.1)
"""False positive rates at which true positive rates are reported: low, because false accusations must be rare."""


@dataclass(frozen=True)
class ReidentificationSettings(Settings, subject="re-identification"):
    """Settings of the re-identification attack.

    Parameters
    ----------
    n_deleted : int
        Places deleted from each trace before it is handed out.
    deletion : "worst" or "random"
        Which places of target users' traces are deleted: the places whose absence hurts the attacker most, or random
        places. The places deleted from strangers' traces are always random.
    first_place : "stationary" or "uniform"
        Probability of the first place of a trace: the stationary distribution of the chain, or the same for all places.
    max_gap : int
        Longest gap between two events, in instants, for which their transition is scored.
    """

    n_deleted: CountOrZero = 0
    deletion: Literal["worst", "random"] = "worst"
    first_place: Literal["stationary", "uniform"] = "stationary"
    max_gap: Count = MAX_GAP


@dataclass(frozen=True, eq=False)
class Linkage:
    """How well traces are linked to target users.

    `n_known` is the number of target users who made at least one attacked trace. `against` says who made the impostor
    traces: "strangers" or other "targets". The interval is a bootstrap interval over users. `accuracy` is the share of
    target users' traces whose user is guessed right; by chance it is 1 / n_targets. `found` is the share of the known
    target users who are named right where at most 1 % of the targets are named wrongly; its interval is that of
    `TraceScores.found_interval`. `n_exposed` target users have a trace that scores higher than chance explains, see
    `bar_of_chance`. The strongest of `n_attacks` attacks counts. `open_world` tells how well the rules do by which an
    attacker decides, for each of `FALSE_POSITIVE_RATES`.
    """

    n_traces: int
    n_targets: int
    n_known: int
    against: str
    auc: float
    auc_interval: tuple[float, float]
    true_positive_rate: dict[float, float]
    accuracy: float
    found: float
    found_interval: tuple[float, float]
    n_exposed: int
    n_attacks: int
    roc: Roc = field(repr=False)
    open_world: dict[float, OpenWorld] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, scores: TraceScores, *, seed: int, n_attacks: int = 1) -> Linkage:
        """Evaluate scores; `seed` is the seed of the bootstrap, and the strongest of `n_attacks` attacks counts."""
        checked = verification(scores)
        roc = checked.roc()
        known = scores.truth != NOBODY
        right = scores.own[known].argmax(axis=1) == scores.truth[known]
        rates = {rate: roc.true_positive_rate_at(rate) for rate in FALSE_POSITIVE_RATES}
        interval = bootstrap_interval(checked.auc_by_users(), checked.n_users, seed=seed)
        n_targets, n_known = len(scores.target_ids), len(np.unique(scores.truth[known]))
        counts = len(known), n_targets, n_known
        exposed = checked.n_exposed(n_attacks), n_attacks
        shares = float(right.mean()), scores.found(), scores.found_interval()
        rules = {rate: scores.open_world(rate) for rate in FALSE_POSITIVE_RATES}
        return cls(*counts, checked.against, roc.auc, interval, rates, *shares, *exposed, roc, rules)

    def judgements(self) -> list[Judgement]:
        """Judge the people found, the people exposed and the right persons named by `FINDING_LIMITS`.

        Somebody who names a target user at random, and is wrong for at most 1 % of them, finds nearly nobody.
        """
        n, interval = self.n_attacks, self.found_interval
        is_leak = shows_leak(self.auc, self.n_known, self.auc_interval, n)
        by_chance = FOUND.guess / self.n_targets
        found = FOUND.judge(self.found, self.n_known, interval, guess=by_chance, n_attacks=n, is_leak=is_leak)
        named = NAMED.judge(self.accuracy, self.n_known, guess=1 / self.n_targets, n_attacks=n)
        return [found, EXPOSED.judge(self.n_exposed, self.n_known), named]

    def numbers(self) -> dict[str, Any]:
        """All numbers for JSON, without the curve."""
        found = {name: value for name, value in vars(self).items() if name != "roc"}
        rules = {str(rate): each._asdict() for rate, each in self.open_world.items()}
        rates = {str(rate): each for rate, each in self.true_positive_rate.items()}
        return found | {"true_positive_rate": rates, "open_world": rules}


@dataclass(frozen=True, eq=False)
class Reidentified:
    """Result of one estimator if every trace has its own pseudonym (`each`), or every user has one (`combined`).

    `hidden`: how well the deleted places are inferred; None if none is deleted, or they are not random places.
    """

    estimator: str
    title: str
    each: Linkage
    combined: Linkage
    seconds: float
    matrices: TransitionMatrices = field(repr=False)
    hidden: Deobfuscation | None = None

    def numbers(self) -> dict[str, Any]:
        """All numbers for JSON, without the curves; None for what is not known."""
        linkages = {"each": self.each.numbers(), "combined": self.combined.numbers()}
        linkages |= {} if self.hidden is None else {"hidden": self.hidden.numbers()}
        return finite_or_none({"estimator": self.estimator, **linkages, "seconds": round(self.seconds, 1)})


def reidentification_attacks(
    known: Traces,
    anonymized: Traces,
    estimators: Sequence[str] | None = None,
    settings: ReidentificationSettings | None = None,
    *,
    seed: int = 0,
    n_other_attacks: int = 0,
    progress: bool = False,
    say: Callable[[str], None] = lambda _: None,
    on_refused: Callable[[str, InputError], None] = lambda *_: None,
) -> list[Reidentified]:
    """Attack traces with every estimator; the strongest comes first.

    The attacks are sorted by the AUC of single traces. The first is the strongest *on these traces*: it was chosen by
    the measured AUC, because an auditor looks for the worst case.

    Parameters
    ----------
    known : Traces
        The target users' traces that the attacker knows.
    anonymized : Traces
        The attacked traces. Their user ids are only used to evaluate the attack.
    estimators : sequence of str, optional
        Names, each with settings if wanted, as in "tf rank=8". By default all estimators, each with all `FLOORS`.
    n_other_attacks : int
        The strongest of these attacks and so many others counts.
    say : callable
        Receives progress messages.
    on_refused : callable
        Receives the title of each default estimator that does not suit the data, and the reason.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=20, n_places=20, n_days=4, seed=0).traces
    >>> made = rehearse(traces, RehearsalSettings(), seed=0)
    >>> [attack] = reidentification_attacks(made.known, made.anonymized, ["ml floor=1e-3"])
    >>> attack.each.against, attack.each.auc > 0.6
    ('strangers', True)
    """
    chosen = chosen_settings(ReidentificationSettings, settings, {}, "re-identification")
    every = [f"{name}{floor}" for name in ESTIMATORS for floor in FLOORS]
    asked = every if estimators is None else list(dict.fromkeys(estimators))
    if not asked:
        raise InputError("estimators", [Problem(f"some of {', '.join(ESTIMATORS)}", "none")])
    # Refuse an unknown name before any estimator runs.
    parsed = {text: parse_choice(text, ESTIMATORS) for text in asked}
    found: list[Reidentified] = []
    learned: dict[Any, TransitionMatrices] = {}
    for number, (name, (entry, given)) in enumerate(parsed.items()):
        say(f"{name}: learning transition matrices of {known.n_users} users")
        began = time.perf_counter()
        try:
            # The floor is not part of what is learned.
            key = entry.name, replace(given, floor=FLOOR)
            if key not in learned:
                learned[key] = estimate_transitions(known, entry.name, given, seed=seed, progress=progress)
            matrices = replace(learned[key], floor=given.floor)
        except InputError as error:
            # A default estimator may not suit the data, for example if coordinates are missing: skip it.
            if estimators is not None or (number == len(parsed) - 1 and not found):
                raise
            say(f"{name} was left out: {error}")
            on_refused(entry.title, error)
            continue
        visible = _left_after_deletion(anonymized, matrices, chosen, seed)
        left = anonymized.select_events(visible)
        scores = score_traces(left, matrices, first_place=chosen.first_place, max_gap=chosen.max_gap, progress=progress)
        # Of each estimator, traces are attacked one by one and together.
        n_attacks = 2 * len(parsed) + n_other_attacks
        each, combined = (Linkage.of(of, seed=seed, n_attacks=n_attacks) for of in (scores, scores.combined()))
        usual = vars(entry.settings())
        told = (f"{key.replace('_', ' ')} {value}" for key, value in vars(given).items() if value != usual[key])
        title = ", ".join([entry.title, *told])
        # The worst places are deleted from target users' traces alone, so strangers' places could not be compared; and
        # places of synthetic traces are nobody's.
        tracked = chosen.deletion == "random" and anonymized.origin is None
        hidden = Deobfuscation.of(anonymized, visible, scores, matrices, len(parsed)) if tracked else None
        found.append(Reidentified(name, title, each, combined, time.perf_counter() - began, matrices, hidden))
    return sorted(found, key=lambda attack: -attack.each.auc)


def _left_after_deletion(
    traces: Traces, matrices: TransitionMatrices, settings: ReidentificationSettings, seed: int
) -> np.ndarray:
    at_random = random_deletions(traces, settings.n_deleted, seed=seed)
    if settings.deletion == "random" or not settings.n_deleted:
        return at_random
    worst = worst_deletions(
        traces, matrices, settings.n_deleted, first_place=settings.first_place, max_gap=settings.max_gap
    )
    is_target = index_of_ids(traces.user_ids, matrices.user_ids) != NOBODY
    return np.where(is_target[traces.user], worst, at_random)


# What the attacker knows, and what is attacked


class Rehearsal(NamedTuple):
    """Real traces, split for an attack.

    `known` are the earliest pieces of each target user, `anonymized` the later pieces of target users and strangers.
    The early pieces of strangers are dropped too: otherwise target users could be recognized by having fewer pieces.
    `n_left_out` is the number of drawn target users with only one piece: they count as strangers.
    """

    known: Traces
    anonymized: Traces
    n_left_out: int


@dataclass(frozen=True)
class RehearsalSettings(Settings, subject="rehearsal"):
    """How real traces are split into traces that the attacker knows and traces to attack.

    Parameters
    ----------
    pieces : "period" or "trace"
        The events that share one pseudonym: a user's events in a period of the time grid, such as a day, or a trace.
        Of a user's events of one instant in several traces, the first trace's counts if pieces are periods.
    known_share : float
        Share of each target user's pieces that the attacker knows: the earliest pieces, at least one.
    stranger_share : float
        Share of the users about whom the attacker knows nothing.
    n_targets : int
        Maximum number of target users, and of strangers. Others are left out at random.
    """

    pieces: Literal["period", "trace"] = "period"
    known_share: Share = 0.5
    stranger_share: Annotated[float, Ge(0), Lt(1)] = 0.5
    n_targets: Annotated[int, Ge(2)] = 500


def rehearse(traces: Traces, settings: RehearsalSettings, *, seed: int) -> Rehearsal:
    """Split real traces into traces that the attacker knows and traces to attack.

    Raises `InputError` if fewer than two target users have two pieces.
    """
    cut = traces
    if settings.pieces == "period":
        # The traces that a model made of one user are many versions of one life, so they stay apart.
        cut = (traces if traces.origin is not None else _as_one_trace(traces)).cut_into_periods()
    shuffled = numpy_stream(seed, Stage.REHEARSAL).permutation(cut.n_users)
    n_strangers = round(cut.n_users * settings.stranger_share)
    strangers, chosen = shuffled[:n_strangers][: settings.n_targets], shuffled[n_strangers:][: settings.n_targets]
    user_of_piece, _ = cut.trace_table()
    n_pieces = np.bincount(user_of_piece, minlength=cut.n_users)
    is_target = np.isin(np.arange(cut.n_users), chosen) & (n_pieces > 1)
    if is_target.sum() < 2:
        found = f"{int(is_target.sum())} of {len(chosen)} target users"
        way_out = "Take longer traces, a smaller stranger_share, or the other kind of pieces"
        raise InputError("rehearsal", [Problem("two users with two pieces at least", found, way_out=way_out)])
    n_known = np.clip(np.round(n_pieces * settings.known_share).astype(int), 1, np.maximum(n_pieces - 1, 1))
    # The attacker knows nothing about users with only one piece.
    is_early = (rank_in_run(user_of_piece) < n_known[user_of_piece]) & (n_pieces[user_of_piece] > 1)
    is_used = np.isin(user_of_piece, np.concatenate([chosen, strangers]))
    left_out = len(chosen) - int(is_target.sum())
    known = cut.select_traces(is_early & is_target[user_of_piece])
    return Rehearsal(known, cut.select_traces(is_used & ~is_early), left_out)


def _as_one_trace(traces: Traces) -> Traces:
    """All events of a user in one trace, with one event an instant."""
    order = np.lexsort((traces.trace, traces.instant, traces.user))
    kept = order[run_begins(traces.user[order], traces.instant[order])]
    columns = {name: getattr(traces, name)[kept] for name in ("user", "instant", "place")}
    return replace(traces, trace=np.zeros(len(kept), np.int32), **columns)


def targets_of(train: Traces, released: Traces, n_targets: int, *, seed: int) -> Rehearsal:
    """Split for an attacker who knows the training traces of up to `n_targets` randomly drawn users.

    The attacked traces are the released traces of these users and of as many other training users (strangers). Raises
    `InputError`: a released user is not a training user.
    """
    if released.of_nobody:
        raise InputError("re-identification", [Problem("traces that were made from people", "traces of nobody")])
    training_user_of(released, train)
    shuffled = numpy_stream(seed, Stage.REHEARSAL).permutation(train.n_users)
    used = train.user_ids[shuffled[: 2 * n_targets]]
    attacked = np.flatnonzero(index_of_ids(released.user_ids, used) >= 0)
    return Rehearsal(train.select_users(shuffled[:n_targets]), released.select_users(attacked), 0)
