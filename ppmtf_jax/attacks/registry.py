"""The attacks that are known by name: each is a `Measurement` of kind "privacy", registered by its own module."""

from __future__ import annotations

from ppmtf_jax.data.measurement import Measurement
from ppmtf_jax.registry import Registry

ATTACKS: Registry[Measurement] = Registry("attack", "ppmtf_jax.attacks")

NO_TRANSITIONS = "no transition to attack with: no two consecutive events in the training or in the synthetic traces"
"""When an attack that looks at transitions is undefined."""

ALARM_CHANCE = 0.01
"""How often traces that depend on nobody may be above what is called chance."""

ALARM_MARGIN = 0.1
"""How far above chance a rate alarms: with many users, far less is found to be no chance, and matters to nobody."""
