"""Membership inference by the nearest synthetic trace: how much of a user's trace is in one synthetic trace."""

from __future__ import annotations

import numpy as np

from ppmtf_jax.attacks.copies import nearest, weighed
from ppmtf_jax.attacks.membership.base import MEMBERSHIP_ATTACKS, MembershipAttack
from ppmtf_jax.attacks.membership.scores import MembershipScores
from ppmtf_jax.attacks.membership.trace_densities import windows_of
from ppmtf_jax.data.measurement import NoSettings
from ppmtf_jax.data.traces import Traces


def nearest_traces(
    released: Traces,
    train: Traces,
    test: Traces,
    settings: NoSettings = NoSettings(),
    seed: int = 0,
    progress: bool = False,
) -> MembershipScores:
    """Score users by the greatest weight of a period of theirs that one synthetic period has too, see `nearest`.

    The attacker knows the real traces of all these users, and from them how unusual each move is. See
    `infer_membership`.
    """
    del settings, seed, progress
    synthetic, of_train, of_test = windows_of(released=released, train=train, test=test)
    real, weight = weighed(train, of_train, of_test)
    scores = np.zeros(train.n_users + test.n_users)
    np.maximum.at(scores, real.user, nearest(real, synthetic, weight).weight)
    members, others = np.split(scores[None], [train.n_users], axis=1)
    return MembershipScores(members, others, train.user_ids, test.user_ids, "nearest", one_tail=False)


MEMBERSHIP_ATTACKS.register(
    MembershipAttack(
        "nearest",
        "Weight of what a user's traces share with the nearest synthetic trace, up to an instant earlier or later",
        NoSettings,
        nearest_traces,
    )
)
