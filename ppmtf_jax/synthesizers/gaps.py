"""Fill the gaps of real traces with the most probable places, or with random places given the known events."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import N_EXAMPLES, InputError, Problem
from ppmtf_jax.runtime.devices import seed_of_first_process
from ppmtf_jax.settings import Settings, chosen_settings
from ppmtf_jax.streams import Seed, Stage, draw_seed, jax_stream
from ppmtf_jax.synthesizers.fitted_model import FittedModel, grid_problems
from ppmtf_jax.trace_models.base import ScoredTraceModel
from ppmtf_jax.trace_models.completion import ABSENT, most_probable_places, sample_places
from ppmtf_jax.trace_models.persons import PersonModel


@dataclass(frozen=True)
class CompletionSettings(Settings, subject="completion"):
    """How gaps are filled.

    Parameters
    ----------
    how : "most-probable" or "random"
        The most probable complete trace, or a random one given the known events. The most probable trace has too few
        rare places compared with real traces.
    """

    how: Literal["most-probable", "random"] = "most-probable"


def complete(
    model: FittedModel,
    traces: Traces,
    settings: CompletionSettings | None = None,
    *,
    seed: int | Seed | None = None,
    progress: bool = False,
    **named_settings: Any,
) -> Traces:
    """Fill the gaps of each trace under the model's chain for its user: a presence at every instant.

    A completed trace says where a chain would put the user when nothing was recorded. It is no record, and its user
    goes back to earlier places less often than people do, since a chain has no memory.

    Every period (`TimeGrid.period`, such as a day) in which a trace has an event gets an event at each of its instants;
    known events stay as they are. A period without any event stays empty, since nothing is known about it. As in
    `synthesize`, the chain starts again in each period, so steps from one period to the next are ignored.

    Parameters
    ----------
    model : FittedModel
        A chain with likelihoods, learned from the users of `traces`, such as the bridge with `memory="none"`.
    traces : Traces
        Traces with the model's time grid and places.
    settings : CompletionSettings, optional
    seed : int or Seed, optional
        Reproduces random completions. Each completion depends on the seed, the user, the trace number and the period,
        but not on other traces. By default it comes from the operating system.
    progress : bool
        Show a progress bar on a terminal.
    **named_settings
        Settings by name, in place of `settings`: `complete(model, traces, how="random")`.

    Returns
    -------
    Traces
        The completed traces. They contain real events of real people, so keep them as secret as `traces`.

    Raises
    ------
    InputError
        The traces have another grid, another place table or unknown users; the model has no likelihoods, or its people
        remember earlier places, so that its traces cannot be drawn given known events; known events
        are impossible under the model (under sgd, for example, moves that nobody made); or memory is too small (see
        `trace_models.completion`).

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
    trace_model = model.trace_model
    if problems := completion_problems(model):
        raise InputError("model", problems)
    if problems := grid_problems(model, traces):
        raise InputError("traces to complete", problems)

    # One row for each period with events: its instants, and the known places.
    grid, periods = traces.time_grid, traces.periods()
    user, trace, first = (column[periods.first] for column in (traces.user, traces.trace, traces.instant))
    period = first // grid.period
    instant = period[:, None] * grid.period + np.arange(grid.period)
    known = np.full(instant.shape, ABSENT, np.int32)
    known[periods.piece, periods.phase] = traces.place
    users, keys = model.user_index(traces.user_ids)[user], None
    if chosen.how == "random":
        key = jax_stream(seed_of_first_process(draw_seed(seed)).value, Stage.COMPLETION)
        keys = _keys(key, jnp.asarray(np.stack([users, trace, period], axis=1)))

    places, impossible_at = np.full_like(known, ABSENT), np.full(len(users), ABSENT, np.int32)
    # If the grid cuts off the last period, it is completed up to the end of the grid.
    within = instant < grid.n_instants
    n_instants = within.sum(axis=1)
    for length in np.unique(n_instants).tolist():
        rows = np.flatnonzero(n_instants == length)
        given = (trace_model, users[rows], known[rows, :length], traces.n_places)
        if keys is None:
            made = most_probable_places(*given, progress=progress)
        else:
            made = sample_places(keys[rows], *given, progress=progress)
        places[rows, :length], impossible_at[rows] = made

    if (impossible := np.flatnonzero(impossible_at != ABSENT)).size:
        some = impossible[:N_EXAMPLES]
        names = zip(traces.user_ids[user[some]], trace[some], instant[some, impossible_at[some]], strict=True)
        examples = tuple(f"user {name}, trace {number}, instant {at}" for name, number, at in names)
        way_out = "Take a model in which every move is possible, such as bridge, or mend these events"
        expected, found = "known events that are possible under the model", "periods with impossible ones"
        raise InputError("completion", [Problem(expected, found, len(impossible), examples, way_out)])
    columns = {"instant": instant[within], "place": places[within]}
    columns |= {"user": np.repeat(user, n_instants), "trace": np.repeat(trace, n_instants)}
    # Completed traces have no origin, since they are not a model's draw.
    return replace(traces, **{name: column.astype(np.int32) for name, column in columns.items()}, origin=None)


def completion_problems(model: FittedModel) -> list[Problem]:
    """A problem if the model cannot complete traces."""
    if isinstance(model.trace_model, PersonModel):
        way_out = 'Fit the bridge with memory="none" and gaps="none" (--set memory=none --set gaps=none)'
        found = f"{model.system} with a memory of earlier places"
        return [Problem("a model whose next place depends on the last place alone", found, 0, (), way_out)]
    if not isinstance(model.trace_model, ScoredTraceModel):
        way_out = "Completion weighs whole traces: take another system"
        return [Problem("a model whose traces have a likelihood", model.system, way_out=way_out)]
    return []


@jax.jit
def _keys(key: Key[Array, ""], names: Int[Array, "period 3"]) -> Key[Array, " period"]:
    """Key of each (user, trace number, period)."""

    def of_name(name: Array) -> Array:
        of_user = jax.random.fold_in(key, name[0])
        return jax.random.fold_in(jax.random.fold_in(of_user, name[1]), name[2])

    return jax.vmap(of_name)(names)
