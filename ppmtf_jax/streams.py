"""Random streams: one for each stage, and where a user's draw must not depend on the others, one for each user.

All come from one seed. The seed is part of the secret: whoever knows it, and the program, can repeat what was drawn. So
it has 128 bits and comes from the operating system unless the caller gives one. A stage's stream is keyed by a hash of
the seed and of the stage's name, so no two stages share a draw whatever the seed.

Noise for differential privacy comes from none of these, but from `noise`: it has no seed. What has one there, for
experiments, says that it is not private.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Int, Key, UInt32

from ppmtf_jax.errors import InputError, Problem

SEED_BITS = 128
# Numbers drawn at once: bounds the memory, and makes few programs.
NUMBERS_AT_A_TIME = 2**20
LOW_32_BITS = np.uint64(2**32 - 1)


class Stage(StrEnum):
    """Everything that draws at random; streams of different stages are independent."""

    SPLIT = "split into training and test users"
    TRIMMED_TRANSITIONS = "trimming of transitions"
    TRIMMED_VISITS = "trimming of visits"
    ZERO_TRANSITIONS = "zeros of transitions"
    ZERO_VISITS = "zeros of visits"
    FIT = "fit"
    TUNING = "choice of settings"
    SYNTHESIS = "synthesis"
    COMPLETION = "completion of partly known traces"
    VERIFIERS = "verifiers of the privacy test"
    RELEASE = "numbers of released traces"
    CHAINS = "chains of a diagnosis"
    HELD_OUT = "held-out cells of a diagnosis"
    HELD_OUT_ZERO_TRANSITIONS = "held-out zeros of transitions of a diagnosis"
    HELD_OUT_ZERO_VISITS = "held-out zeros of visits of a diagnosis"
    PREDICTED = "predicted cells of a diagnosis"
    UNOBSERVED = "cells that were not observed"
    METRICS = "windows and halves that metrics compare"
    EXPERIMENTAL_NOISE = "noise of experiments, which protects nobody"
