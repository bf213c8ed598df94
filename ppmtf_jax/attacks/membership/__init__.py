"""Membership inference: was this user's data used to make the traces? One file an attack, found by its name."""

from ppmtf_jax.attacks.membership.base import MEMBERSHIP_ATTACKS, MembershipScores, infer_membership
from ppmtf_jax.attacks.membership.density_ratio import density_ratios
from ppmtf_jax.attacks.membership.likelihood_ratio import membership_scores, mia_advantage
from ppmtf_jax.attacks.membership.scores import membership_advantage, membership_chance

__all__ = [
    "MEMBERSHIP_ATTACKS",
    "MembershipScores",
    "density_ratios",
    "infer_membership",
    "membership_advantage",
    "membership_chance",
    "membership_scores",
    "mia_advantage",
]
