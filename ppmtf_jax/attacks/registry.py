"""Registry of attacks: each attack is a `Measurement` of kind "privacy", registered by its own module."""

from __future__ import annotations

from typing import Any

from ppmtf_jax.data.measurement import Measurement, MetricInfo
from ppmtf_jax.registry import Registry

ATTACKS: Registry[Measurement] = Registry("attack", "ppmtf_jax.attacks")

NO_TRANSITIONS = "no transition to attack with: no two consecutive events in the training or in the synthetic traces"
"""Why an attack on transitions has no result."""


def register_attack(name: str, *quantities: MetricInfo, **options: Any) -> None:
    """Register an attack with its quantities and the other arguments of `Measurement`."""
    ATTACKS.register(Measurement(name, "privacy", quantities, **options))
