"""Trace model of check-ins: windows of several days in which people check in now and then, at old places and new ones.

When people check in depends on the pace of the person's window, the time of the week, the hours since the last check-in
and the person's habits. Where they check in depends on the hours since the last check-in: an old place again, or a new
place near an old one. All people of a cluster follow one law.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
from jaxtyping import Array, Int

from ppmtf_jax.trace_models.base import StoredArray, stored
from ppmtf_jax.trace_models.persons import PersonModel


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class CheckinBridge(PersonModel):
    """Fields: see the specification."""

    cluster: Int[Array, " user"] = stored(lambda n: StoredArray((n.users,), "int", 0))
    n_present: Int[Array, " cluster"] = stored(lambda n: StoredArray(("clusters",), "int", 0))
