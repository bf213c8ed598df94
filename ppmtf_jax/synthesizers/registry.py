"""Every synthesizer by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.gibbs.run import Checkpoints
from ppmtf_jax.trace_models.base import TraceModel


class Synthesizer(NamedTuple):
    """A way to learn a trace model.

    Attributes
    ----------
    settings : frozen dataclass type
    fit : function of (training traces, settings, seed, progress, checkpoints), giving the trace model
    model : the trace model's type
    """

    settings: Any
    fit: Callable[[Traces, Any, int, bool, Checkpoints | None], TraceModel]
    model: type[TraceModel]


SYNTHESIZERS: dict[str, Synthesizer] = {}


def register(system: str, synthesizer: Synthesizer) -> None:
    """Make a synthesizer known under the name that users give."""
    SYNTHESIZERS[system] = synthesizer


def synthesizer_named(system: str) -> Synthesizer:
    """Look a synthesizer up; an unknown name is an `InputError` that lists the known ones."""
    if system not in SYNTHESIZERS:
        raise InputError("system", [Problem(f"one of {', '.join(sorted(SYNTHESIZERS))}", repr(system))])
    return SYNTHESIZERS[system]
