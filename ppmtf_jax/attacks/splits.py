"""What of real traces the attacker knows, and what is handed out without names: a rehearsal of an attack."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal, NamedTuple

import numpy as np
from annotated_types import Ge, Lt

from ppmtf_jax.data.comparable import index_of_ids, training_user_of
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.settings import Settings, Share
from ppmtf_jax.streams import Stage, numpy_stream


class Rehearsal(NamedTuple):
    """Real traces, some of which the attacker knows.

    Attributes
    ----------
    known : Traces
        Of the target users: the earliest pieces of each.
    anonymized : Traces
        The later pieces of all: of strangers as many as of target users, who would else be known by having fewer.
    n_left_out : int
        Chosen target users who have one piece only: they are strangers.
    """

    known: Traces
    anonymized: Traces
    n_left_out: int


@dataclass(frozen=True)
class RehearsalSettings(Settings, subject="rehearsal"):
    """How real traces are split into what the attacker knows and what is handed out.

    Parameters
    ----------
    pieces : "period" or "trace"
        What is handed out under one pseudonym: what a user did in a period of the time grid, such as a day, or a trace.
    known_share : float
        Share of each target user's pieces, the earliest, that the attacker knows; at least one.
    stranger_share : float
        Share of the users of whom the attacker knows nothing.
    n_targets : int
        Most target users; others are left out at random, and as many strangers.

    Raises
    ------
    InputError
        Listing every setting that is impossible.
    """

    pieces: Literal["period", "trace"] = "period"
    known_share: Share = 0.5
    stranger_share: Annotated[float, Ge(0), Lt(1)] = 0.5
    n_targets: Annotated[int, Ge(2)] = 500


def cut_by_period(traces: Traces) -> Traces:
    """Traces that end where a period of the time grid does, numbered anew for each user.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=2, n_days=3, seed=0).traces
    >>> len(traces.trace_table()[0]), len(cut_by_period(traces).trace_table()[0])
    (2, 6)
    """
    period = traces.instant // traces.time_grid.period
    begins = np.diff(traces.trace_of_event(), prepend=-1) | np.diff(period, prepend=-1)
    number = np.cumsum(begins != 0, dtype=np.int32)
    first_of_user = np.searchsorted(traces.user, np.arange(traces.n_users))
    return replace(traces, trace=number - number[first_of_user][traces.user])


def rehearse(traces: Traces, settings: RehearsalSettings, *, seed: int) -> Rehearsal:
    """Split real traces into what the attacker knows and what is handed out without names.

    Raises
    ------
    InputError
        Less than two target users have two pieces.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> made = rehearse(toy_city(n_users=10, n_days=4, seed=0).traces, RehearsalSettings(), seed=0)
    >>> made.known.n_users, made.anonymized.n_users, len(made.known.trace_table()[0])
    (5, 10, 10)
    """
    cut = cut_by_period(traces) if settings.pieces == "period" else traces
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
    rank = np.arange(len(user_of_piece)) - (np.cumsum(n_pieces) - n_pieces)[user_of_piece]
    # Of one piece there is no earlier part.
    is_early = (rank < n_known[user_of_piece]) & (n_pieces[user_of_piece] > 1)
    is_used = np.isin(user_of_piece, np.concatenate([chosen, strangers]))
    left_out = len(chosen) - int(is_target.sum())
    known = cut.select_traces(is_early & is_target[user_of_piece])
    return Rehearsal(known, cut.select_traces(is_used & ~is_early), left_out)


def targets_of(train: Traces, released: Traces, n_targets: int, *, seed: int) -> Rehearsal:
    """An attacker who has the training traces of some users, and all that was released.

    Where there are more training users than targets, the released traces of as many others are those of strangers.

    Parameters
    ----------
    train, released : Traces
        With the same user ids.
    n_targets : int
        Most target users, chosen at random.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=10, n_days=1, seed=0).traces
    >>> made = targets_of(traces, traces, 4, seed=0)
    >>> made.known.n_users, made.anonymized.n_users
    (4, 8)
    """
    training_user_of(released, train)
    shuffled = numpy_stream(seed, Stage.REHEARSAL).permutation(train.n_users)
    used = train.user_ids[shuffled[: 2 * n_targets]]
    attacked = np.flatnonzero(index_of_ids(released.user_ids, used) >= 0)
    return Rehearsal(train.select_users(shuffled[:n_targets]), released.select_users(attacked), 0)
