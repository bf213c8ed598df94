"""Attacks on released traces: re-identification of their users, and inference of who was a training user."""

from ppmtf_jax.attacks.audit import reidentification_attacks
from ppmtf_jax.attacks.copies import check_copies, unicity
from ppmtf_jax.attacks.estimators.base import estimate_transitions
from ppmtf_jax.attacks.membership import (
    infer_membership,
    membership_advantage,
    membership_chance,
    membership_scores,
)
from ppmtf_jax.attacks.reidentification import reidentify
from ppmtf_jax.attacks.trace_scores import score_traces

__all__ = [
    "check_copies",
    "estimate_transitions",
    "infer_membership",
    "membership_advantage",
    "membership_chance",
    "membership_scores",
    "reidentification_attacks",
    "reidentify",
    "score_traces",
    "unicity",
]
