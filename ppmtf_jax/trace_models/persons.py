"""Trace models whose traces have memory: each trace is that of a new synthetic person."""

from __future__ import annotations

import abc
from typing import ClassVar

import numpy as np
from jaxtyping import Array, Float, Int

from ppmtf_jax.trace_models.base import ScoredTraceModel, TraceModel


class PersonModel(TraceModel):
    """A distribution of whole traces for each class of users; the next place may depend on all places before it.

    A trace depends on its user only through her class, so every trace is equally probable for all users of a class.
    Each trace belongs to a new synthetic person, who is no user, and whose properties (such as her home) are drawn for
    this trace. `sample_trace` may return `ABSENT` for an instant without an event, but no trace is empty.
    """

    has_gaps: ClassVar[bool] = True

    cluster: Int[Array, " user"]
    """Class number of each user: 0, 1, ... without gaps. Subclasses declare it as a stored field."""

    def user_classes(self, n_users: int) -> Int[np.ndarray, " user"]:
        """The users' clusters: every trace is equally probable for all users of a cluster."""
        return np.asarray(self.cluster)[:n_users]

    @abc.abstractmethod
    def log_traces(
        self, places: Int[np.ndarray, "trace instant"], classes: Int[np.ndarray, " class"], *, progress: bool = False
    ) -> Float[np.ndarray, "trace class"]:
        """Exact log-probability (float64) of each whole trace under each of the classes.

        `places`: `ABSENT` at instants without an event. Minus infinity if the model cannot make the trace.
        """

    def log_own_class(
        self, places: Int[np.ndarray, "trace instant"], own_class: Int[np.ndarray, " trace"], *, progress: bool = False
    ) -> Float[np.ndarray, " trace"]:
        """Log-probability of each trace under its own class only; a model with a faster way overrides this method."""
        own = np.empty(len(places))
        for each in np.unique(own_class):
            rows = np.flatnonzero(own_class == each)
            own[rows] = self.log_traces(places[rows], np.array([each]), progress=progress)[:, 0]
        return own


LikelihoodModel = ScoredTraceModel | PersonModel
"""Trace models whose traces have a known probability."""
