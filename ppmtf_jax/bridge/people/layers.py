"""When people are at home, at their second place and elsewhere: chains of layers of each cluster.

Events in a layer, and steps between two layers, are counted for each instant of the period, for the users of each
cluster who have a second place and for those who have none. In each of these numbers, no user weighs more than the
second heaviest user. A user weighs one in the number of users who have a second place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.bridge.contributions import Rows, bounded_totals
from ppmtf_jax.bridge.fitting import matching
from ppmtf_jax.bridge.people.anchors import NOWHERE, Anchors
from ppmtf_jax.bridge.people.law import ELSEWHERE, HOME, SECOND
from ppmtf_jax.data.traces import Traces

PRIOR_EVENTS = 20.0
"""Weight, in events, of the layers (or steps) of all clusters as a prior for one cluster at one instant."""
LIFT_EVENTS = 5.0
"""Weight of a prior, in events, for the factor between the layers of a cluster and of all clusters at an instant."""
SECOND_USERS = 5.0
"""Weight, in users, of the share of all users with a second place, as a prior for the share in one cluster."""
BANDWIDTH, OVERALL_STEPS = 0.7, 10.0
"""Smoothing of the steps of all clusters: standard deviation in instants, and weight of the steps of all instants."""
RAKINGS, STAY_ROUNDS, MAX_CHANGE = 40, 8, 5.0
LEAST, TINY = 1e-4, 1e-12


class Layers(NamedTuple):
    """Chains of layers; the first index of arrays is whether people have a second place; see `model.RememberingBridge`.

    `at`: share of the people in each layer at each phase, learned from the users.
    """

    second_share: Float[np.ndarray, " cluster"]
    at: Float[np.ndarray, "2 cluster phase 3"]
    next: Float[np.ndarray, "2 cluster phase 3 3"]

    @classmethod
    def always_elsewhere(cls, n_clusters: int, period: int) -> Layers:
        """Nobody has an anchor."""
        at = np.zeros((2, n_clusters, period, 3))
        at[..., ELSEWHERE] = 1
        return cls(np.zeros(n_clusters), at, np.repeat(at[..., None, :], 3, axis=-2))


def fit_layers(train: Traces, anchors: Anchors, of_user: Int[np.ndarray, " user"]) -> Layers:
    """Chains that have the users' shares of layers at each instant, and stay at anchors as often as users do.

    The shares of layers of a cluster are shrunk to the shares of all clusters, times a factor for the cluster. The
    steps of a cluster are shrunk to the steps of all clusters. At each instant, raking finds the joint distribution of
    the layers before and after the step: it has the given marginals, and is nearest to the observed steps. Raking
    alternates with setting the odds of staying at an anchor, which all clusters share.
    """
    n_clusters, period = int(of_user.max()) + 1, train.time_grid.period
    shape = (2, n_clusters, period, 3, 3)

    def rows(block: Traces, home: np.ndarray, second: np.ndarray, cluster: np.ndarray) -> list[Rows]:
        layer = Anchors(home, second).layer(block.user, block.place)
        kind, arrival = (second != NOWHERE).astype(np.int64), np.flatnonzero(block.is_step())

        def counted(events: np.ndarray | slice, *layers: np.ndarray) -> Rows:
            user, size = block.user[events], shape[: 3 + len(layers)]
            cell = np.ravel_multi_index((kind[user], cluster[user], block.instant[events] % period, *layers), size)
            return Rows(user, cell, cell, size)

        return [counted(slice(None), layer), counted(arrival, layer[arrival - 1], layer[arrival])]

    events, steps = bounded_totals(train.blocks.map(rows, *anchors, of_user))
    at, share = _marginals(events.total), _second_share(anchors.second != NOWHERE, of_user)
    people = np.bincount(of_user) * np.stack([1 - share, share]) / len(of_user)
    return Layers(share, at, chains_of_layers(at, steps.total, people))


def _second_share(has_second: np.ndarray, of_user: np.ndarray) -> Float[np.ndarray, " cluster"]:
    users = np.bincount(of_user)
    return (np.bincount(of_user, has_second) + SECOND_USERS * has_second.mean()) / (users + SECOND_USERS)


def _marginals(events: Float[np.ndarray, "2 cluster phase 3"]) -> Float[np.ndarray, "2 cluster phase 3"]:
    possible = np.ones((2, 1, 1, 3))
    possible[0, ..., SECOND] = 0
    of_all = _normalized((events.sum(axis=1, keepdims=True) + 1e-3) * possible)
    in_cluster = events.sum(axis=0)
    together = in_cluster.sum(axis=0)
    mean = max(together.sum(axis=-1).mean(), 1)
    lift = _normalized(in_cluster + LIFT_EVENTS * together / mean + TINY) / _normalized(together + 1e-3)
    prior = _normalized(of_all * lift * possible)
    return _normalized(events * possible + PRIOR_EVENTS * prior)


def chains_of_layers(
    at: Float[np.ndarray, "2 cluster phase 3"],
    steps: Float[np.ndarray, "2 cluster phase 3 3"],
    people: Float[np.ndarray, "2 cluster"],
) -> Float[np.ndarray, "2 cluster phase 3 3"]:
    """Chains with the shares `at` of layers, and nearly the observed steps; see `fit_layers`."""
    instant = np.arange(at.shape[2])
    near = _normalized(np.exp(-0.5 * ((instant[:, None] - instant) / BANDWIDTH) ** 2))
    of_all = np.einsum("st,htij->hsij", near, steps.sum(axis=1))
    ever = _normalized(steps.sum(axis=(1, 2)) + 0.5)
    pooled = _normalized(of_all + OVERALL_STEPS * ever[:, None])
    own = _normalized(steps + PRIOR_EVENTS * pooled[:, None])
    # Share of the steps of all people that stay at an anchor.
    together, anywhen = of_all.sum(axis=0), steps.sum(axis=(0, 1, 2))
    overall = (anywhen[HOME, HOME] + anywhen[SECOND, SECOND]) / max(anywhen.sum(), 1)
    stays = together[:, HOME, HOME] + together[:, SECOND, SECOND] + PRIOR_EVENTS * overall
    wanted = np.clip(stays / (together.sum(axis=(1, 2)) + PRIOR_EVENTS), LEAST, 1 - LEAST)
    before, odds = np.roll(at, 1, axis=2), np.ones(len(instant))
    is_stay = np.diag([1.0, 1.0, 0.0])
    for number in range(STAY_ROUNDS):
        joint = own * (1 + (odds - 1)[:, None, None] * is_stay) * before[..., None] + TINY
        for _ in range(RAKINGS):
            joint *= (at / np.maximum(joint.sum(axis=-2), TINY))[..., None, :]
            joint *= (before / np.maximum(joint.sum(axis=-1), TINY))[..., None]
        found = np.einsum("hk,hkt->t", people, joint[..., HOME, HOME] + joint[..., SECOND, SECOND])
        found = np.clip(found, LEAST, 1 - LEAST)
        if number < STAY_ROUNDS - 1:
            odds *= matching(wanted / (1 - wanted), found / (1 - found), MAX_CHANGE)
            odds = np.clip(odds, 1e-4, 1e4)
    # If nobody is in a layer, it has no steps, and any row will do.
    total = joint.sum(axis=-1, keepdims=True)
    return np.where(total > TINY, joint / np.maximum(total, TINY), at[..., None, :])


def _normalized(weight: np.ndarray) -> np.ndarray:
    return weight / weight.sum(axis=-1, keepdims=True)
