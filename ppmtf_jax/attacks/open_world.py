"""Scores of the verification attack "did this target user make this trace?", also for strangers' traces.

Section III of Murakami et al., TIFS 2017. The attacker knows some traces of the target users. The anonymized traces
come from target users and from strangers; the attacker knows nothing about strangers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.attacks.beyond_chance import bar_of_chance
from ppmtf_jax.attacks.roc import Roc
from ppmtf_jax.attacks.trace_scores import TraceScores
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.privacy.limits import EXPECTED_BY_CHANCE

NOBODY = -1
"""Index of a user who is not a target user."""


class Verification(NamedTuple):
    """Scores of all pairs of a trace and a target user, split into genuine and impostor scores.

    `genuine`: scores of target users' traces for the user who made them. `impostor`: scores of other people's traces
    for each target user; NaN for the user who made the trace. `impostor_user`: numbers of the people who made these
    traces; if `against` is "targets" and not "strangers", these are indices of target users.
    """

    genuine: Float[np.ndarray, " genuine"]
    genuine_target: Int[np.ndarray, " genuine"]
    impostor: Float[np.ndarray, "impostor target"]
    impostor_user: Int[np.ndarray, " impostor"]
    against: str

    def roc(self) -> Roc:
        """The ROC curve of all scores."""
        return Roc.of(self.genuine, self.impostor[~np.isnan(self.impostor)])

    def n_exposed(self, n_attacks: int) -> int:
        """How many target users have a trace that scores higher for them than chance explains.

        The others are all impostor scores. `n_attacks` share the people found by chance.
        """
        others = self.impostor[~np.isnan(self.impostor)]
        bar = bar_of_chance(others, len(self.genuine), EXPECTED_BY_CHANCE / n_attacks)
        return len(np.unique(self.genuine_target[self.genuine > bar]))

    @property
    def n_users(self) -> int:
        """Number of target users, plus the number of strangers if there are any."""
        return self.impostor.shape[1] + (int(self.impostor_user.max()) + 1 if self.against == "strangers" else 0)

    def auc_by_users(self) -> Callable[[Float[np.ndarray, " user"]], float]:
        """Return a function from the weights of target users and then strangers to the area under the ROC curve.

        The area is the weighted share of pairs of a genuine and an impostor score in which the genuine score is higher.
        So only the ranks of the impostor scores among the genuine ones matter. The ranks are found once.
        """
        n_targets, of_strangers = self.impostor.shape[1], self.against == "strangers"
        value, rank = np.unique(self.genuine, return_inverse=True)
        # Twice the rank, plus one in a tie. A score that does not exist is NaN; its rank is the highest.
        at = sum(np.searchsorted(value, self.impostor, side).astype(np.int32) for side in ("left", "right"))
        is_pair = (~np.isnan(self.impostor)).astype(float)
        higher, weight_higher = np.empty(self.impostor.shape), np.zeros(2 * len(value) + 1)

        def auc(weight: Float[np.ndarray, " user"]) -> float:
            of_target = weight[:n_targets]
            of_impostor = (weight[n_targets:] if of_strangers else weight)[self.impostor_user]
            of_value = np.bincount(rank, of_target[self.genuine_target], len(value))
            weight_higher[:-1:2] = of_value[::-1].cumsum()[::-1]
            weight_higher[1::2] = weight_higher[:-1:2] - of_value / 2
            np.take(weight_higher, at, out=higher, mode="clip")
            total = of_value.sum() * (of_impostor @ (is_pair @ of_target))
            return float(of_impostor @ (higher @ of_target) / (total or np.nan))

        return auc


def verification(scores: TraceScores) -> Verification:
    """Split the scores of all pairs of a trace and a target user into genuine and impostor scores.

    Impostor traces are strangers' traces if there are any, as in section VI; otherwise other target users' traces.
    Raises `InputError` if no target user made a trace.
    """
    truth, ratio = scores.truth, scores.log_ratio
    known = np.flatnonzero(truth != NOBODY)
    if not len(known):
        way_out = "Both must use the same user ids; read a release with its key"
        raise InputError("traces to attack", [Problem("some of users in the training traces", "none", way_out=way_out)])
    strangers = np.flatnonzero(truth == NOBODY)
    others = strangers if len(strangers) else known
    impostor = ratio[others].copy()
    own = truth[others] != NOBODY
    impostor[own, truth[others][own]] = np.nan
    against = "strangers" if len(strangers) else "targets"
    number = np.unique(scores.user_ids[others], return_inverse=True)[1] if len(strangers) else truth[others]
    return Verification(ratio[known, truth[known]], truth[known], impostor, number, against)
