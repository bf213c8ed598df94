"""Fit a model to traces, and synthesize traces from it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

import numpy as np
import pandas as pd

from ppmtf_jax.data.comparable import check_traces
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checkins import read_checkins
from ppmtf_jax.errors import InputError, Message, Problem, Setting
from ppmtf_jax.gibbs.run import Checkpoints
from ppmtf_jax.runtime.engine import stage
from ppmtf_jax.runtime.memory import require_memory_for
from ppmtf_jax.runtime.threads import in_single_precision
from ppmtf_jax.settings import Count, Settings, chosen_settings, input_paths
from ppmtf_jax.streams import Seed, draw_seed
from ppmtf_jax.synthesizers.fitted_model import SYNTHESIS_BYTES, FittedModel, SyntheticPart, bytes_of_trace
from ppmtf_jax.synthesizers.registry import DEFAULT_SYSTEM, SYNTHESIZERS, check_trace_model

DEFAULT_PEOPLE = 1000
"""Default number of people from a model of nobody; it is a constant, because it must not depend on the data."""


@dataclass(frozen=True)
class SynthesisSettings(Settings, subject="synthesize"):
    """How many traces to synthesize, and of which days.

    Parameters
    ----------
    traces_per_user : int, optional
        Number of traces of each user; 1 by default. A model of nobody, such as one of `private`, refuses this setting.
    people : int, optional
        Number of synthetic people, each with one trace, made from users drawn at random with replacement. Unlike
        `traces_per_user`, this does not reveal the number of users. A model of nobody makes new people instead, 1,000
        by default.
    days : int, optional
        How many days each trace lasts, for models whose people remember from day to day. By default, a trace is as long
        as the model's time grid: one period of the training traces, or one window of a model of check-ins.
    start : str or date, optional
        Date of the first day of the traces, such as 2025-03-03; by default the date of the training traces, which a
        release does not show. Traces of several days must start on the same day of the week as the training traces.
    """

    traces_per_user: Count | None = None
    people: Count | None = None
    days: Count | None = None
    start: str | date | None = None

    def problems(self) -> list[Problem | str]:
        """Problems: both `traces_per_user` and `people` are given, or the start is not a date."""
        problems: list[Problem | str] = []
        if self.traces_per_user is not None and self.people is not None:
            problems.append(Problem("traces_per_user or people", "both"))
        try:
            self.start_date()
        except ValueError:
            problems.append(Problem("start as a date, such as 2025-03-03", repr(self.start)))
        return problems

    def start_date(self) -> date | None:
        """The date of the first day, if one is given."""
        return date.fromisoformat(self.start) if isinstance(self.start, str) else self.start


@in_single_precision
@stage("fit")
def fit(
    train: Traces | pd.DataFrame,
    system: str = DEFAULT_SYSTEM,
    settings: Any = None,
    *,
    seed: int | Seed | None = None,
    progress: bool = False,
    checkpoints: Checkpoints | None = None,
    **named_settings: Any,
) -> FittedModel:
    """Learn a generative model of traces.

    Raises `InputError`: the system or a setting is unknown (the message names the most similar one), settings are
    impossible, or a registered synthesizer breaks the contract of `Synthesizer`.

    Parameters
    ----------
    train : Traces or DataFrame
        Traces in memory; or, from `open_traces`, traces in a folder, which the bridge reads in blocks of users, and
        other systems load. A DataFrame of check-ins is read with the default settings of `read_checkins`; a warning
        says which rows were read and which were left out.
    system : str
        Name of a synthesizer, see `synthesizers.registry.SYNTHESIZERS`.
    settings : the system's settings, such as `PPMTFSettings`, or a dict of settings by name; defaults otherwise
    seed : int or Seed, optional
        Reproduces the fit. Keep it secret. By default it comes from the operating system.
    checkpoints : Checkpoints, optional
        File to which a long fit writes its state and from which it resumes. Give the seed too, because a fit with
        another seed cannot resume. `jobs.steps.fit_model` stores a random seed for you.
    **named_settings
        Settings by name, in place of `settings`.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> model = fit(toy_city(n_users=20, seed=0).traces, "sgd", n_copied=1, seed=0)
    >>> synthesize(model, traces_per_user=2, seed=1).n_users
    20

    Use the settings of another model again:

    >>> fit(toy_city(n_users=9, seed=1).traces, model.system, model.settings).settings
    {'n_copied': 1}
    """
    if isinstance(train, pd.DataFrame):
        train, report = read_checkins(train)
        warnings.warn(f"fit read a table of check-ins with the default settings.\n{report}", stacklevel=2)
    check_traces(train, "fit")
    synthesizer = SYNTHESIZERS[system]
    settings = chosen_settings(synthesizer.settings, settings, named_settings, system)
    own_seed = draw_seed(seed)
    train = train if synthesizer.in_blocks else train.in_memory()
    trace_model = synthesizer.fit(train, settings, own_seed.value, progress, checkpoints)
    check_trace_model(synthesizer, trace_model)
    # Paths as texts, as model folders keep them.
    stored = asdict(settings) | {name: str(path) for name, path in input_paths(settings).items()}
    return FittedModel.of(system, stored, own_seed, train, trace_model)


def synthesize(
    model: FittedModel,
    settings: SynthesisSettings | Mapping[str, Any] | None = None,
    *,
    seed: int | Seed | None = None,
    batch_users: int = 4096,
    progress: bool = False,
    **named_settings: Any,
) -> Traces:
    """Synthesize traces from each user of a model or from random users, or new people from a model of nobody.

    A trace has an event at every instant of the model's time grid; if the model makes check-ins, it has gaps. A trace
    depends only on the seed, its user and its number, not on `batch_users` or the number of traces. Raises
    `InputError`: a setting does not suit the model, see `FittedModel.sample`.

    Parameters
    ----------
    settings : SynthesisSettings or dict, optional
    seed : int or Seed, optional
        Reproduces the traces. Keep it secret. By default it comes from the operating system.
    batch_users : int
        Number of users processed at a time, at least 1; it limits the memory.
    **named_settings
        Settings by name, in place of `settings`: `synthesize(model, people=500)`.

    Returns
    -------
    Traces
        Traces with the input users' ids. The traces of each user are numbered from 0. Test them before any release.
        The people of a model of nobody have new ids, and their traces need no test.
    """
    how = {"seed": seed, "batch_users": batch_users, "progress": progress}
    (whole,) = synthesize_in_parts(model, settings, n_users=None, **how, **named_settings)
    return whole.made()


def synthesize_in_parts(
    model: FittedModel,
    settings: SynthesisSettings | Mapping[str, Any] | None = None,
    *,
    n_users: int | None,
    seed: int | Seed | None = None,
    batch_users: int = 4096,
    progress: bool = False,
    **named_settings: Any,
) -> list[SyntheticPart]:
    """The traces of `synthesize` in parts of at most `n_users` users, which bounds the memory; draw each by `made`."""
    chosen = chosen_settings(SynthesisSettings, settings, named_settings, "synthesize")
    start, number = chosen.start_date(), chosen.people
    if model.of_nobody:
        if chosen.traces_per_user is not None:
            found = Message(Setting("traces_per_user", chosen.traces_per_user))
            way_out = Message("Choose the number of people instead, such as ", Setting("people", DEFAULT_PEOPLE))
            problem = Problem("no traces_per_user, because the model knows no users", found, way_out=way_out)
            raise InputError("synthesize", [problem])
        number = number or DEFAULT_PEOPLE
    if number is None:
        traces_per_user = chosen.traces_per_user or 1
        n_instants = model.grid_of_days(chosen.days, start).n_instants
        each = bytes_of_trace(n_instants) * min(model.n_users, n_users or model.n_users)
        fewer = "Take a model of fewer users"
        require_memory_for(
            "synthesize", traces_per_user, each, SYNTHESIS_BYTES, lambda n: f"Set traces_per_user={n}" if n else fewer
        )
        number = np.full(model.n_users, traces_per_user)
    how = {"seed": seed, "batch_users": batch_users, "progress": progress}
    return model.sample_in_parts(number, n_users=n_users, days=chosen.days, start=start, **how)
