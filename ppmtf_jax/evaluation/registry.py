"""The metrics that are known by name: each is a `Measurement` of kind "utility", registered by its own module."""

from __future__ import annotations

from ppmtf_jax.data.measurement import Measurement
from ppmtf_jax.registry import Registry

METRICS: Registry[Measurement] = Registry("metric", "ppmtf_jax.evaluation.metrics")

NEAR_TRAINING = "near Training"
"""A good value of what real traces set the limit of."""

LARGE_PART = 0.2
"""Where more than this of what a metric averages over does not compare, or is filled by convention, it has a caveat.

Distances of distributions are at most 1, so a share this large can move a mean by as much: synthesizers differ by less.
"""
