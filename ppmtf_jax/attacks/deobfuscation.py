"""De-obfuscation: where was a person at the instants that are hidden? The second half of a tracking attack.

A tracking attack finds out whose trace it is, and then infers the places that the trace does not show (Shokri et al.,
"Quantifying Location Privacy", S&P 2011; section 2.2 of Murakami et al. 2021). The attacker has a transition matrix P
of each person. If the nearest visible places a and b are g instants before and h instants after a hidden event, then

    P(place x | a, b)  is proportional to  P^g[a, x] P^h[x, b].

This is the forward-backward algorithm: visible places are known exactly, so no other event matters. Much can be guessed
about anybody in the same city. So people whom the attacker knows are compared with people whom they do not know.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ppmtf_jax.attacks.estimators.base import TransitionCounts, TransitionMatrices, to_probabilities
from ppmtf_jax.attacks.registry import NO_TRANSITIONS, register_attack
from ppmtf_jax.attacks.reidentification import guesses
from ppmtf_jax.attacks.scoring import FLOOR, attacked_traces, count_pairs, looks_over_gaps, ml_transitions
from ppmtf_jax.attacks.trace_scores import MAX_GAP, NOBODY, TraceScores, batches_of_users
from ppmtf_jax.data.measurement import Comparison, Interpretation, MetricInfo, NoSettings
from ppmtf_jax.data.runs import rank_in_run
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.privacy.limits import INFERRED, TRACKED, Judgement, people_of_both
from ppmtf_jax.streams import Stage, numpy_stream

UNSEEN, BLOCK = -1, 3
MAX_HIDDEN, MAX_PEOPLE, MIN_PEOPLE, MAX_ENTRIES, MAX_PLACES, SEED = 64, 200, 50, 8e7, 2000, 0
"""`evaluate` looks at so many hidden events of each person, and at so many training users and test users, drawn with
this seed: as many as have at most so many entries in their matrices. With more places it would take too long."""


class HiddenEvents(NamedTuple):
    """Hidden events, and the nearest visible places of the same trace, -1 if there is none, with the gaps to them."""

    event: Int[np.ndarray, " hidden"]
    place: Int[np.ndarray, " hidden"]
    before: Int[np.ndarray, " hidden"]
    since: Int[np.ndarray, " hidden"]
    after: Int[np.ndarray, " hidden"]
    until: Int[np.ndarray, " hidden"]

    @classmethod
    def of(cls, traces: Traces, visible: Bool[np.ndarray, " event"], *, over_gaps: bool = False) -> HiddenEvents:
        """The events that are not visible; with `over_gaps`, gaps are numbers of events, not of instants."""
        number = np.arange(traces.n_events)
        trace, time = traces.trace_of_event(), number if over_gaps else traces.instant.astype(np.int64)
        hidden, columns = np.flatnonzero(~visible), []
        last = np.maximum.accumulate(np.where(visible, number, 0))
        following = np.minimum.accumulate(np.where(visible, number, len(number) - 1)[::-1])[::-1]
        for other in (last[hidden], following[hidden]):
            gap = np.abs(time[other] - time[hidden])
            linked = visible[other] & (trace[other] == trace[hidden])
            columns += [np.where(linked, traces.place[other], UNSEEN), np.where(linked, gap, 0)]
        return cls(hidden, traces.place[hidden], *columns)

    def select(self, those: np.ndarray) -> HiddenEvents:
        """Some of the hidden events, by a mask or by indices."""
        return HiddenEvents(*(column[those] for column in self))


def posterior(
    counts: Float[Array, "place next"], total: Float[Array, "place next"], floor: Any, hidden: HiddenEvents
) -> Float[Array, "hidden place"]:
    """Distribution of each hidden place of a person with these transition counts, by forward-backward.

    A step as all people make it (`total`) is added at each place: a person's own counts are few. If no earlier place is
    visible within `MAX_GAP`, they are where they often arrive.
    """
    seen = counts + to_probabilities(total, floor)
    chain, arrivals = to_probabilities(seen, floor), to_probabilities(seen.sum(axis=0), floor)

    def steps(matrix: Array, place: Array, gap: Array, otherwise: Array) -> Array:
        is_near = (place != UNSEEN) & (gap <= MAX_GAP)
        # The first step begins at one place, so that it is a row of the matrix.
        first, n_steps = jnp.where(is_near[:, None], matrix[place], otherwise), jnp.where(is_near, gap, 0)

        def step(number: Array, each: Array) -> Array:
            return jnp.where((number < n_steps)[:, None], each @ matrix, each)

        last = lax.fori_loop(1, n_steps.max(), step, first)
        return last / last.max(axis=-1, keepdims=True)  # so that products of two floors do not vanish

    before, since, after, until = map(jnp.asarray, hidden[2:])
    weight = steps(chain, before, since, arrivals) * steps(chain.T, after, until, jnp.ones_like(arrivals))
    return weight / weight.sum(axis=-1, keepdims=True)


@jax.jit
def _inferred(counts: Array, total: Array, floor: Array, km: Array, hidden: HiddenEvents) -> Float[Array, "2 hidden"]:
    chance = posterior(counts, total, floor, hidden)
    away = jnp.linalg.norm(km - km[hidden.place][:, None], axis=-1)
    known = jnp.isfinite(away)
    error_km = (chance * jnp.where(known, away, 0)).sum(axis=-1) / (chance * known).sum(axis=-1)
    return jnp.stack([chance.argmax(axis=-1).astype(error_km.dtype), error_km])


def infer_places(
    hidden: HiddenEvents, matrices: TransitionMatrices, person: Int[np.ndarray, " hidden"], total: Any
) -> Float[np.ndarray, "2 hidden"]:
    """The most probable place of each hidden event, and the expected distance from the true place in km.

    `person`: whose matrix the attacker takes, by index, or -1 for that of all people together (`total`). The distance
    is the expected error of Shokri et al. 2011, section III; NaN if the true place has no coordinates.
    """
    found, km = np.empty((2, len(person))), _position_km(matrices)
    for whose in np.unique(person):
        counts = total if whose == NOBODY else matrices.counts.of_users(np.array([whose]))[0]
        those = np.flatnonzero(person == whose)
        for some in np.array_split(those, -(-len(those) // MAX_HIDDEN)):
            # Always equally many, so that one program is compiled.
            padded = hidden.select(np.resize(some, MAX_HIDDEN))
            found[:, some] = _inferred(counts, total, matrices.floor, km, padded)[:, : len(some)]
    return found


def _position_km(matrices: TransitionMatrices) -> Float[np.ndarray, "place 2"]:
    known = np.isfinite(matrices.places.latitude + matrices.places.longitude)
    return np.where(known[:, None], matrices.places.position_km(), np.nan)


def _accuracy(
    user: Int[np.ndarray, " hidden"], hidden: HiddenEvents, inferred: Float[np.ndarray, "2 hidden"]
) -> Float[np.ndarray, "2"]:
    """Share of right places, and mean distance: means over each person's events that are not NaN, and over people."""
    known, person = np.isfinite(inferred), np.unique(user, return_inverse=True)[1]
    n = [np.bincount(person[those]) for those in known]
    right = inferred[0] == hidden.place
    total = [np.bincount(person[those], each[those]) for those, each in zip(known, (right, inferred[1]), strict=True)]
    return np.array([(t[m > 0] / m[m > 0]).mean() if m.any() else np.nan for t, m in zip(total, n, strict=True)])


@dataclass(frozen=True)
class Deobfuscation:
    """How well the hidden places of people are inferred.

    `rows` has, by what they are inferred from, the share of right places and the mean distance in km, for people whom
    the attacker knows and then for others; NaN if there are none. The others are named as somebody whom the attacker
    knows. `judgement` is of how many more places are right for known people: it is about them, and not about the city.
    """

    rows: dict[str, list[float]]
    judgement: Judgement

    @classmethod
    def of(
        cls, traces: Traces, visible: np.ndarray, scores: TraceScores, matrices: TransitionMatrices, n_attacks: int = 1
    ) -> Deobfuscation | None:
        """Name the person of each trace by its visible events, and infer where they were at the others; None without.

        Visible events must be drawn alike for all people. `scores`: those of the visible events. The strongest of
        `n_attacks` attacks counts.
        """
        hidden = HiddenEvents.of(traces, visible)
        if not len(hidden.event):
            return None
        trace, user = traces.trace_of_event()[hidden.event], traces.user[hidden.event]
        named, own = scores.own.argmax(axis=1)[trace], scores.truth[trace]
        last = np.where(hidden.before != UNSEEN, hidden.before, hidden.after)
        batches, km = batches_of_users(matrices, np.arange(matrices.n_users)), _position_km(matrices)
        total = sum(matrices.counts.of_users(users).sum(axis=0) for users in batches)
        away = np.linalg.norm(km[last] - km[hidden.place], axis=1)
        is_known, by_own = own != NOBODY, np.full((2, len(own)), np.nan)
        by_own[:, is_known] = infer_places(hidden.select(is_known), matrices, own[is_known], total)
        found = {
            "Model of the person named": infer_places(hidden, matrices, named, total),
            "The person's own model": by_own,
            "Model of all people": infer_places(hidden, matrices, np.full(len(own), NOBODY), total),
            "Last place seen": np.stack([last, np.where(last == UNSEEN, np.nan, away)]),
        }
        sets = is_known, ~is_known
        rows = {
            name: np.concatenate([_accuracy(user[s], hidden.select(s), each[:, s]) for s in sets]).tolist()
            for name, each in found.items()
        }
        right, _, of_others, _ = rows["Model of the person named"]
        people = len(np.unique(user[is_known])), len(np.unique(user[~is_known]))
        return cls(rows, TRACKED.judge(right - of_others, people, n_attacks=n_attacks))

    def numbers(self) -> dict[str, Any]:
        """`rows`, and the judged difference with its interval."""
        light = self.judgement
        return self.rows | {"difference": light.value, "low": light.low, "high": light.high}


# As `evaluate` measures it: synthetic traces stand in for what the attacker knows of people


def _partly_hidden(real: Traces) -> tuple[Traces, Bool[np.ndarray, " event"]]:
    """Some users, drawn at random, and their visible events: of each trace three, not the next three, and so on."""
    n = int(min(max(MAX_ENTRIES // real.n_places**2, MIN_PEOPLE), MAX_PEOPLE))
    drawn = numpy_stream(SEED, Stage.ATTACKED_USERS).permutation(real.n_users)[:n]
    attacked = real.select_users(np.sort(drawn))
    return attacked, rank_in_run(attacked.trace_of_event()) // BLOCK % 2 == 0


def _measure(comparison: Comparison, settings: NoSettings) -> list[float]:
    """The attacker takes the model of the synthetic user whose steps make a person's visible steps most probable."""
    released, means = comparison.traces, []
    over_gaps = looks_over_gaps(released, comparison.pool_traces)
    if released.n_places > MAX_PLACES:
        return [math.nan] * 2
    counts, n_places = count_pairs(released, released.user, released.n_users, over_gaps), released.n_places
    learned = TransitionCounts(counts, n_places), FLOOR, released.user_ids, released.places, "ml"
    total = counts.sum(axis=0).reshape(n_places, n_places)  # sparse, because there may be very many users
    for real in (comparison.train, comparison.test):
        attacked, visible = comparison.statistic(_partly_hidden, real)
        seen = attacked.select_events(visible)
        if visible.all() or not all(each.has_transitions(over_gaps) for each in (released, seen)):
            return [math.nan] * 2
        hidden = HiddenEvents.of(attacked, visible, over_gaps=over_gaps)
        hidden = hidden.select(rank_in_run(attacked.user[hidden.event]) < MAX_HIDDEN)
        user = attacked.user[hidden.event]
        known = comparison.statistic(ml_transitions, released, over_gaps)
        named = guesses(attacked_traces(seen, True, over_gaps), known)[user]
        inferred = infer_places(hidden, TransitionMatrices(*learned), named, total)
        means.append(_accuracy(user, hidden, inferred))
    return (means[0] - means[1]).tolist()


def _read(comparison: Comparison, settings: NoSettings) -> list[Interpretation]:
    sets = (comparison.statistic(_partly_hidden, real) for real in (comparison.train, comparison.test))
    people = [len(np.unique(attacked.user[~visible])) for attacked, visible in sets]
    alarm = INFERRED.alarm(people_of_both(*people)) if all(people) else math.inf
    return [Interpretation(alarm=alarm), Interpretation()]


_FROM = "from the half that is visible and the synthetic user whose moves suit these best"
_UNDEFINED = f"more than {MAX_PLACES:,} places, no hidden event, or {NO_TRANSITIONS}"
register_attack(
    "deobfuscation",
    MetricInfo(
        "hidden_places",
        "Hidden places",
        f"How much more often hidden places are inferred right for training users than for test users, {_FROM}.",
        "difference of shares of people",
        "lower",
        "near 0",
        _UNDEFINED,
    ),
    MetricInfo(
        "hidden_places_km",
        "Hidden places, distance",
        f"Expected distance of an inferred from the true hidden place, {_FROM}: training users minus test users.",
        "km",
        "zero",
        "near 0",
        f"{_UNDEFINED}, or coordinates that are not known",
    ),
    measure=_measure,
    reading=_read,
)
