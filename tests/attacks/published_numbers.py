"""The numbers of Murakami et al. 2021, App. D, of traces on their own, without an evaluation."""

from __future__ import annotations

import math

from ppmtf_jax.attacks import membership_advantage, membership_scores
from ppmtf_jax.attacks.registry import ATTACKS
from ppmtf_jax.attacks.scoring import looks_over_gaps
from ppmtf_jax.data.comparable import check_same_places
from ppmtf_jax.data.measurement import Comparison, NoSettings
from ppmtf_jax.data.traces import Traces


def reid_rate(released: Traces, train: Traces, *, pool_traces: bool = False) -> float:
    """Share of the released traces whose training user is guessed right; chance is 1 / training users."""
    check_same_places(released=released, train=train)
    comparison, attack = Comparison(released, train, train, 1, pool_traces), ATTACKS["reidentification"]
    assert attack.check is not None
    attack.check(comparison)
    return attack.measure(comparison, NoSettings())[0]


def mia_advantage(released: Traces, train: Traces, test: Traces, *, pool_traces: bool = False) -> float:
    """Advantage of the best threshold on `membership_scores`; NaN without a transition to attack with."""
    over_gaps = looks_over_gaps(released, pool_traces)
    if not all(each.has_transitions(over_gaps) for each in (released, train)):
        return math.nan
    return membership_advantage(*membership_scores(released, train, test, pool_traces=pool_traces))
