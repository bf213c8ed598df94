"""Membership inference: were a user's data used to make the traces? `MEMBERSHIP_ATTACKS` finds all attacks by name.

All attacks have the same steps: compute a score for each user (`likelihood_ratio`, `density_ratio` and `nearest`,
`shadow_models`), and compute rates with intervals over users (`base`).
"""

from ppmtf_jax.attacks.membership.base import (
    MEMBERSHIP_ATTACKS,
    MembershipScores,
    infer_membership,
    membership_advantage,
    membership_chance,
)

# These two modules also register columns of the evaluation, so they are imported with the package.
from ppmtf_jax.attacks.membership.density_ratio import DensityRatioSettings
from ppmtf_jax.attacks.membership.likelihood_ratio import membership_scores

__all__ = [
    "MEMBERSHIP_ATTACKS",
    "DensityRatioSettings",
    "MembershipScores",
    "infer_membership",
    "membership_advantage",
    "membership_chance",
    "membership_scores",
]
