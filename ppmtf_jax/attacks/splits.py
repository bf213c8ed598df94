"""Rehearsal of an attack: split real traces into traces that the attacker knows and traces to attack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np
from annotated_types import Ge, Lt

from ppmtf_jax.data.comparable import index_of_ids, training_user_of
from ppmtf_jax.data.runs import rank_in_run
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.settings import Settings, Share
from ppmtf_jax.streams import Stage, numpy_stream


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
    cut = traces.cut_into_periods() if settings.pieces == "period" else traces
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
