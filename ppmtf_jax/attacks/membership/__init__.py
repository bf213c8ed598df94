"""Membership inference: were a user's data used to make the traces? One file for each attack, found by its name.

All attacks have the same steps: compute a score for each user (`likelihood_ratio`, `density_ratio`, `nearest`,
`shadow_models`), optionally calibrate it for each user on shadow models (`calibration`), and compute rates with
intervals over users (`scores`).
"""

from ppmtf_jax.attacks.membership.base import MEMBERSHIP_ATTACKS, MembershipScores, infer_membership

# These two modules also register columns of the evaluation, so they are imported with the package.
from ppmtf_jax.attacks.membership.density_ratio import DensityRatioSettings
from ppmtf_jax.attacks.membership.likelihood_ratio import membership_scores, mia_advantage
from ppmtf_jax.attacks.membership.scores import membership_advantage, membership_chance

__all__ = [
    "MEMBERSHIP_ATTACKS",
    "DensityRatioSettings",
    "MembershipScores",
    "infer_membership",
    "membership_advantage",
    "membership_chance",
    "membership_scores",
    "mia_advantage",
]
