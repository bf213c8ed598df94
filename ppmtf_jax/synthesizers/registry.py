"""Registry of synthesizers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, NamedTuple

import jax

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.gibbs.run import Checkpoints
from ppmtf_jax.registry import Registry
from ppmtf_jax.trace_models.base import TraceModel


class Claims(NamedTuple):
    """Statements about a model's traces for a release, in addition to the statements for all releases."""

    # `protected`, `not_protected`, `rules`: phrases with no initial capital letter and no final full stop, such as
    # "where the input user was at noon". The first sentence of each stands on the first page, so it says the point.
    protected: tuple[str, ...] = ()
    not_protected: tuple[str, ...] = ()
    # Whether everything that the traces reveal is differentially private for each training user, except the number of
    # users. Then the statement does not list single users as unprotected, and it contains no exact numbers, such as the
    # number of users at a place.
    is_private: bool = False
    # Rules by which the model was made, such as what one user weighs in a count. They are no promise to anybody.
    rules: tuple[str, ...] = ()
    # What the settings mean in this model, in words, where it is not what they say: for example "chosen by held-out
    # likelihood" for one that was left out. `FittedModel.claims` adds all other settings.
    settings: Mapping[str, str] = {}


@dataclass(frozen=True)
class Synthesizer:
    """A way to learn a trace model.

    Parameters
    ----------
    name : str
        Name for users, such as "ppmtf".
    title : str
        Description in one line.
    settings : frozen dataclass type
    fit : function of (training traces, settings, seed, progress, checkpoints) that returns the trace model
    model : type
        Class of the trace model.
    claims : function of (trace model, settings) that returns `Claims`
        Numbers in the claims, such as users per cluster, must come from the model: they can differ from the settings.
    other_models : tuple of types
        Further classes of trace model that `fit` may return.
    in_blocks : bool
        Whether `fit` takes any `Traces`, also traces that do not fit into memory; otherwise it takes traces in memory.
    settings_found : function of a trace model that returns a dict
        Settings by name that `fit` chose itself, so that fits to other users can make the same choice; by default those
        that the model says.
    on_all_devices : bool
        Whether `fit` runs programs that all devices share. Then two fits must not run in two threads: their programs
        could wait for each other for ever.
    """

    name: str
    title: str
    settings: type
    fit: Callable[[Any, Any, int, bool, Checkpoints | None], TraceModel]
    model: type[TraceModel]
    claims: Callable[[Any, Any], Claims] = lambda model, settings: Claims()
    other_models: tuple[type[TraceModel], ...] = ()
    in_blocks: bool = False
    settings_found: Callable[[Any], dict[str, Any]] = lambda model: model.settings_found
    on_all_devices: bool = False

    @property
    def models(self) -> dict[str, type[TraceModel]]:
        """Every class of trace model that `fit` may return, by its name, which model folders store."""
        return {each.__name__: each for each in (self.model, *self.other_models)}

    @property
    def of_nobody(self) -> bool:
        """Whether its models know no users, see `TraceModel.of_nobody`."""
        return self.model.of_nobody

    @property
    def has_proof(self) -> bool:
        """Whether its models keep a ledger of differential privacy, see `TraceModel.ledger`."""
        return self.model.ledger is not TraceModel.ledger


DEFAULT_SYSTEM = "bridge"
"""Default system of `fit`; for the reasons see benchmarks/README.md."""

SYNTHESIZERS: Registry[Synthesizer] = Registry("system", "ppmtf_jax.synthesizers.systems")


def check_trace_model(synthesizer: Synthesizer, trace_model: object) -> None:
    """Refuse a fitted model whose class is not registered, or that JAX or a model folder cannot hold."""
    subject, found = f"synthesizer {synthesizer.name!r}", type(trace_model)
    if found.__name__ not in synthesizer.models or not issubclass(found, TraceModel):
        expected = " or ".join(f"a {name}" for name in synthesizer.models)
        raise InputError(subject, [Problem(f"fit to return {expected} (registered)", found.__name__)])
    if jax.tree_util.all_leaves([trace_model]):
        way_out = f"Decorate class {found.__name__} with @jax.tree_util.register_dataclass"
        problem = Problem("a trace model that is a JAX pytree", "a class unknown to JAX", way_out=way_out)
        raise InputError(subject, [problem])
    if found.from_arrays.__func__ is TraceModel.from_arrays.__func__ and is_dataclass(found):
        required = [each for each in fields(found) if each.default is MISSING]
        if unstored := [each.name for each in required if "stored" not in each.metadata]:
            way_out = "Declare them by `stored`, or override to_arrays, from_arrays and stored_arrays"
            names = f"{', '.join(unstored)} of {found.__name__}"
            raise InputError(subject, [Problem("a trace model whose fields are stored", names, way_out=way_out)])
