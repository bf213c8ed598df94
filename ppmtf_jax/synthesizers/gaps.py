"""Fill the gaps of real traces with probable places, or with random places given the known events."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from ppmtf_jax.data.time_grid import DAY_S
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import N_EXAMPLES, InputError, Problem, raise_any
from ppmtf_jax.people.completion import complete_traces
from ppmtf_jax.runtime.threads import in_single_precision
from ppmtf_jax.settings import Settings, chosen_settings
from ppmtf_jax.streams import Seed, Stage, draw_seed, jax_stream
from ppmtf_jax.synthesizers.fitted_model import FittedModel, grid_problems
from ppmtf_jax.trace_models.completion import ABSENT, Completion, most_probable_places, sample_places

MAX_DAYS = 28
"""Maximum number of days that are completed as one person who remembers; then a new person begins."""


@dataclass(frozen=True)
class CompletionSettings(Settings, subject="completion"):
    """How gaps are filled.

    Parameters
    ----------
    how : "most-probable" or "random"
        The most probable complete trace, which has too few rare places compared with real traces, or a random one given
        the known events. For people who remember, the most probable one of several random candidates is found; their
        number is `people.completion.PARTICLES`.
    """

    how: Literal["most-probable", "random"] = "most-probable"


@in_single_precision
def complete(
    model: FittedModel,
    traces: Traces,
    settings: CompletionSettings | None = None,
    *,
    seed: int | Seed | None = None,
    progress: bool = False,
    say: Callable[[str], None] = warnings.warn,
    **named_settings: Any,
) -> Traces:
    """Fill the gaps of each trace with places, under the model's distribution for its user.

    A completed trace says where the model would put the user when nothing was recorded. It is no record. Every period
    (`TimeGrid.period`, such as a day) in which a trace has an event gets an event at each of its instants; known events
    stay as they are. A period without any event stays empty, since nothing is known about it.

    As in `synthesize`, a chain starts again in each period, and returns to earlier places only by chance. A person who
    remembers goes on from period to period, and goes back to their home and places. A new person begins after at most
    `MAX_DAYS` days, or after each period if periods are longer.

    Parameters
    ----------
    model : FittedModel
        Chains with likelihoods or people who remember, learned from the users of `traces`.
    traces : Traces
        Traces with the model's time grid and places.
    seed : int or Seed, optional
        Reproduces random completions, and all completions of people who remember; a completion does not depend on other
        traces. By default it comes from the operating system.
    say : function of a text
        Is told which pieces of traces keep their known events alone, because an event is impossible under the model
        (under sgd, for example, a move that nobody made), or too improbable for the particles of people who remember;
        and that users have several traces in one period, each of which is completed by itself.
    **named_settings
        Settings by name, in place of `settings`.

    Returns
    -------
    Traces
        The completed traces. They contain real events of real people, so keep them as secret as `traces`.

    Notes
    -----
    Raises `InputError`: the traces have another grid, another place table or unknown users; a real user has several
    events at one instant; the model has no likelihoods, or its traces have gaps themselves; nothing could be completed;
    or memory is too small (see `trace_models.completion`).

    Completions under chains are exact. Completions of people who remember come from a particle filter, see
    `people.completion`. Their home and second place are sought among the 12 known places with the most events
    (`people.completion.MAX_ANCHORS`); otherwise they are places that are not known.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> from ppmtf_jax.synthesizers.synthesis import fit
    >>> traces = toy_city(n_users=10, n_days=1, seed=0).traces
    >>> whole = complete(fit(traces, "uniform"), traces, how="random")
    >>> whole.n_events == 10 * whole.time_grid.n_instants
    True
    """
    chosen = chosen_settings(CompletionSettings, settings, named_settings, "completion")
    raise_any("model", completion_problems(model))
    raise_any("traces to complete", grid_problems(model, traces))
    if traces.origin is None:
        _check_one_at_a_time(traces, say)

    # One row for each chain or person: its instants, the known places, and which periods have events.
    grid, length = traces.time_grid, _instants_of_one(model, traces)
    rows = traces.periods(length)
    user, trace, first = (column[rows.first] for column in (traces.user, traces.trace, traces.instant))
    number = first // length
    instant = number[:, None] * length + np.arange(length)
    known = np.full(instant.shape, ABSENT, np.int32)
    known[rows.piece, rows.phase] = traces.place
    has_events = (known.reshape(len(known), -1, grid.period) != ABSENT).any(axis=2)
    users = model.user_index(traces.user_ids)[user]
    key = jax_stream(draw_seed(seed).value, Stage.COMPLETION)
    keys = _keys(key, jnp.asarray(np.stack([users, trace, number], axis=1)))

    places, impossible_at = np.full_like(known, ABSENT), np.full(len(users), ABSENT, np.int32)
    # If the grid cuts off the last period, it is completed up to the end of the grid.
    within = instant < grid.n_instants
    n_instants = within.sum(axis=1)
    for each in np.unique(n_instants).tolist():
        of_length = np.flatnonzero(n_instants == each)
        given = keys[of_length], users[of_length], known[of_length, :each]
        places[of_length, :each], impossible_at[of_length] = complete_rows(model, *given, chosen.how, progress)
    within &= np.repeat(has_events, grid.period, axis=1)

    is_left = impossible_at != ABSENT
    if is_left.any():
        text = _left(model, traces, user[is_left], trace[is_left], instant[is_left, impossible_at[is_left]], len(users))
        if is_left.all():
            raise InputError("completion", [text])
        say(text)
    # What is left stays as it was recorded.
    places[is_left] = known[is_left]
    within &= ~is_left[:, None] | (known != ABSENT)
    columns = {"instant": instant[within], "place": places[within]}
    of_row = within.sum(axis=1)
    columns |= {"user": np.repeat(user, of_row), "trace": np.repeat(trace, of_row)}
    # Completed traces have no origin, since they are not a model's draw.
    return replace(traces, **{name: column.astype(np.int32) for name, column in columns.items()}, origin=None)


def _check_one_at_a_time(traces: Traces, say: Callable[[str], None]) -> None:
    """Refuse several events of a user at one instant; say if users have several traces in one period."""
    grid = traces.time_grid
    for length in (1, grid.period):
        first = traces.periods(length).first
        at = traces.user[first].astype(np.int64) * grid.n_instants + traces.instant[first] // length
        n_more = len(at) - len(np.unique(at))
        if n_more and length == 1:
            way_out = 'Import the data with repeats="first" (--repeats first), or choose one of these traces'
            problem = Problem("one event of a user at an instant", "others at the same instant", n_more, (), way_out)
            raise InputError("traces to complete", [problem])
        if n_more:
            what = f"{n_more} of {len(at)} pieces of traces share a period with another of their user, and are"
            say(f"{what} completed by themselves: the completed traces of a user can be at two places at once.")


def _left(
    model: FittedModel, traces: Traces, user: np.ndarray, trace: np.ndarray, instant: np.ndarray, n_rows: int
) -> str:
    """What is said of rows that the model cannot complete; `instant`: their first event that it cannot reach."""
    first = [(traces.user_ids[u], t, i) for u, t, i in zip(user, trace, instant, strict=True)][:N_EXAMPLES]
    examples = ", ".join(f"user {name}, trace {number}, instant {at}" for name, number, at in first)
    n_users = len(np.unique(user))
    what = f"{len(user)} of {n_rows} pieces of traces, of {n_users} user{'s' * (n_users > 1)}, stay as they are: "
    if model.trace_model.completed_as == "person":
        why = "an event is impossible under the model, or too improbable for its particles"
        way_out = 'Try another seed, or fit with memory="none" (--set memory=none)'
    else:
        why = "an event is impossible under the model"
        way_out = "Take a model in which every move is possible, such as bridge"
    return f"{what}{why} (first: {examples}). {way_out}."


def _instants_of_one(model: FittedModel, traces: Traces) -> int:
    """Number of instants that are completed as one chain or as one person."""
    grid = traces.time_grid
    if model.trace_model.completed_as != "person":
        return grid.period
    most = max(1, MAX_DAYS * DAY_S // (grid.period * grid.step_s))
    return min(most, -(-grid.n_instants // grid.period)) * grid.period


def complete_rows(
    model: FittedModel,
    keys: Key[Array, " trace"],
    users: Int[np.ndarray, " trace"],
    known: Int[np.ndarray, "trace instant"],
    how: str,
    progress: bool,
) -> Completion:
    """Complete rows of known places (`ABSENT` where unknown), each of one chain or person from the first instant on.

    `model`: a model without `completion_problems`. `users`: indices of the model's users.
    """
    process: Any = model.trace_model
    if process.completed_as == "person":
        return complete_traces(keys, process, users, known, most_probable=how == "most-probable", progress=progress)
    given = (process, users, known, len(model.places))
    return (
        sample_places(keys, *given, progress=progress)
        if how == "random"
        else most_probable_places(*given, progress=progress)
    )


def completion_problems(model: FittedModel) -> list[Problem]:
    """A problem if the model cannot complete traces."""
    if model.trace_model.completed_as is not None:
        return []
    if model.trace_model.has_gaps:
        way_out = 'Fit the bridge with gaps="none" (--set gaps=none): its people are somewhere at every instant'
        found = f"{model.system}, which makes check-ins with gaps"
        return [Problem("a model of where people are at every instant", found, 0, (), way_out)]
    way_out = "Completion weighs whole traces: take another system"
    return [Problem("a model whose traces have a likelihood", model.system, way_out=way_out)]


@jax.jit
def _keys(key: Key[Array, ""], names: Int[Array, "period 3"]) -> Key[Array, " period"]:
    """Key of each row, from its user, trace number and row number in the trace."""

    def of_name(name: Array) -> Array:
        of_user = jax.random.fold_in(key, name[0])
        return jax.random.fold_in(jax.random.fold_in(of_user, name[1]), name[2])

    return jax.vmap(of_name)(names)
