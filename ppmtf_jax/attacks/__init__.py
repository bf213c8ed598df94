"""Attacks on released traces: re-identification of their users, and inference of who was a training user."""

from ppmtf_jax.attacks.membership import membership_advantage, membership_chance, membership_scores, mia_advantage
from ppmtf_jax.attacks.reidentification import reid_rate, reidentify

__all__ = ["membership_advantage", "membership_chance", "membership_scores", "mia_advantage", "reid_rate", "reidentify"]
