"""The registry of membership attacks, and the function that runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ppmtf_jax.attacks.membership.scores import MembershipScores
from ppmtf_jax.data.comparable import check_disjoint_users, check_same_places
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.registry import Registry
from ppmtf_jax.settings import chosen_settings


@dataclass(frozen=True)
class MembershipAttack:
    """An entry of the registry of membership attacks.

    `infer` computes `MembershipScores` from released, training and test traces, settings, a seed, and whether to show
    progress. `title` says in one line what the attack is.
    """

    name: str
    title: str
    settings: type
    infer: Callable[[Traces, Traces, Traces, Any, int, bool], MembershipScores]


MEMBERSHIP_ATTACKS: Registry[MembershipAttack] = Registry(
    "membership attack",
    "ppmtf_jax.attacks.membership",
    first=("likelihood_ratio", "density_ratio", "nearest", "shadow_models"),
)


def infer_membership(
    released: Traces,
    train: Traces,
    test: Traces,
    attack: str = "density_ratio",
    settings: Any = None,
    *,
    seed: int = 0,
    progress: bool = False,
    **named_settings: Any,
) -> MembershipScores:
    """Score users: a higher score means that the user's data were more probably used for the released traces.

    Raises `InputError`: the attack or a setting is unknown, the place tables differ, users are in both real sets, or
    the attack cannot be run on these traces.

    Parameters
    ----------
    released : Traces
        What the attacker sees.
    train, test : Traces
        Real traces of users whose data were used (`train`) or not (`test`). What the attacker knows of these traces
        depends on the attack.
    attack : str
        A name in `MEMBERSHIP_ATTACKS`.
    settings : the attack's settings, such as `DensityRatioSettings`; None for its defaults
    **named_settings
        Settings by name, in place of `settings`.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=60, n_days=1, seed=0).traces.split_users(0.5, seed=0)
    >>> scores = infer_membership(train, train, test, density="kernel")
    >>> scores.roc.auc > 0.9
    True
    """
    entry = MEMBERSHIP_ATTACKS[attack]
    chosen = chosen_settings(entry.settings, settings, named_settings, attack)
    check_same_places(released=released, train=train, test=test)
    check_disjoint_users(train, test)
    return entry.infer(released, train, test, chosen, seed, progress)
