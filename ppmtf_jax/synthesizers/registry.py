"""Every synthesizer by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.gibbs.run import Checkpoints
from ppmtf_jax.registry import Registry
from ppmtf_jax.trace_models.base import TraceModel


class Claims(NamedTuple):
    """What a release of a model's traces says in addition to what holds for all releases.

    Attributes
    ----------
    protected, not_protected : tuple of str
        Texts without their first capital letter and last full stop, such as "where the input user was at noon".
    is_private : bool
        Whether differential privacy covers each training user in all that the traces tell, except the number of users.
        Then a release does not say that single users are unprotected, and it tells no exact numbers, such as how many
        users were at a place.
    """

    protected: tuple[str, ...] = ()
    not_protected: tuple[str, ...] = ()
    is_private: bool = False


def no_claims(model: TraceModel, settings: Any) -> Claims:
    """Nothing to add to what every privacy statement says."""
    del model, settings
    return Claims()


@dataclass(frozen=True)
class Synthesizer:
    """A way to learn a trace model.

    Parameters
    ----------
    name : str
        What users call it: "ppmtf".
    title : str
        What it is, in one line.
    settings : frozen dataclass type
    fit : function of (training traces, settings, seed, progress, checkpoints), giving the trace model
    model : type
        Of the trace model.
    claims : function of (trace model, settings), giving `Claims`
        What a release says in addition to what holds for all releases. Its numbers, such as of users in a cluster, are
        those of the model, because they can differ from what the settings asked for.

    Raises
    ------
    InputError
        The settings are no dataclass.
    """

    name: str
    title: str
    settings: type
    fit: Callable[[Traces, Any, int, bool, Checkpoints | None], TraceModel]
    model: type[TraceModel]
    claims: Callable[[Any, Any], Claims] = no_claims


DEFAULT_SYSTEM = "bridge"
"""What `fit` learns where nothing is said: see benchmarks/README.md for why."""

SYNTHESIZERS: Registry[Synthesizer] = Registry("system", "ppmtf_jax.synthesizers")


def check_trace_model(synthesizer: Synthesizer, trace_model: object) -> None:
    """Refuse what a synthesizer's `fit` gave if it could not be synthesized from, or not be loaded once it is saved.

    Raises
    ------
    InputError
        It is of another class than was registered, or JAX does not know the class.
    """
    problems: list[Problem | str] = []
    expected = synthesizer.model
    if not isinstance(trace_model, expected):
        problems.append(Problem(f"a {expected.__name__}, as registered, from its fit", type(trace_model).__name__))
    elif jax.tree_util.all_leaves([trace_model]):
        way_out = f"Decorate class {expected.__name__} with @jax.tree_util.register_dataclass"
        problems.append(Problem("a trace model that is a JAX pytree", "a class unknown to JAX", way_out=way_out))
    if problems:
        raise InputError(f"synthesizer {synthesizer.name!r}", problems)
