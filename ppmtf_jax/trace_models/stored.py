"""Trace models whose arrays are the fields of a dataclass: each field says what a model folder may hold for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np

from ppmtf_jax.trace_models.base import Sizes, StoredArray, TraceModel

Model = TypeVar("Model", bound="ModelOfFields")


def stored(array: Callable[[Sizes], StoredArray]) -> Mapping[str, Any]:
    """Metadata of a field: the array that a model folder holds for it, given the sizes of the model."""
    return {"stored": array}


class ModelOfFields(TraceModel):
    """Trace model that stores each field with the metadata `stored`; a subclass is a dataclass and a JAX pytree.

    Examples
    --------
    ::

        @jax.tree_util.register_dataclass
        @dataclass(frozen=True, eq=False)
        class Places(ModelOfFields):
            first: Float[Array, " place"] = field(metadata=stored(lambda n: StoredArray((n.places,), low=0, high=1)))
    """

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {name: np.asarray(getattr(self, name)) for name in self._stored()}

    @classmethod
    def from_arrays(cls: type[Model], arrays: dict[str, np.ndarray]) -> Model:
        return cls(**{name: jnp.asarray(value) for name, value in arrays.items()})

    @classmethod
    def stored_arrays(cls, sizes: Sizes) -> dict[str, StoredArray]:
        return {name: array(sizes) for name, array in cls._stored().items()}

    @classmethod
    def _stored(cls) -> dict[str, Callable[[Sizes], StoredArray]]:
        return {each.name: each.metadata["stored"] for each in fields(cls) if "stored" in each.metadata}  # type: ignore[arg-type]
