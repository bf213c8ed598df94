"""The metrics that are known by name: each is a `Measurement` of kind "utility", registered by its own module."""

from __future__ import annotations

from ppmtf_jax.data.measurement import Measurement
from ppmtf_jax.registry import Registry

METRICS: Registry[Measurement] = Registry("metric", "ppmtf_jax.evaluation.metrics")

NEAR_TRAINING = "near Training"
"""A good value of what real traces set the limit of."""
