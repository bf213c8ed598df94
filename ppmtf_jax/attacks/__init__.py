"""Attacks on released traces: re-identification of their users, and inference of who was a training user."""

from ppmtf_jax.attacks.alarms import find_alarms
from ppmtf_jax.attacks.membership import (
    infer_membership,
    membership_advantage,
    membership_chance,
    membership_scores,
    mia_advantage,
)
from ppmtf_jax.attacks.reidentification import reid_rate, reidentify

__all__ = [
    "find_alarms",
    "infer_membership",
    "membership_advantage",
    "membership_chance",
    "membership_scores",
    "mia_advantage",
    "reid_rate",
    "reidentify",
]
