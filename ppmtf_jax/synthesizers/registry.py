"""Every synthesizer by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.gibbs.run import Checkpoints
from ppmtf_jax.registry import Registry
from ppmtf_jax.trace_models.base import TraceModel


def no_notes(settings: Any) -> list[str]:
    """Nothing to add to what every privacy statement says."""
    del settings
    return []


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
    unprotected : function of the settings, giving a list of str
        What a release has to say, beyond what holds for all, that it does not protect.
    """

    name: str
    title: str
    settings: type
    fit: Callable[[Traces, Any, int, bool, Checkpoints | None], TraceModel]
    model: type[TraceModel]
    unprotected: Callable[[Any], list[str]] = no_notes


DEFAULT_SYSTEM = "bridge"
"""What `fit` learns where nothing is said: see benchmarks/README.md for why."""

SYNTHESIZERS: Registry[Synthesizer] = Registry("system", "ppmtf_jax.synthesizers")
