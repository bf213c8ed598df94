"""Small cities, their domains and neighbours, and releases without noise, which tests of private releases share."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.noise.accountant import ZCDPAccountant
from ppmtf_jax.private.domain import Domain
from ppmtf_jax.private.releases import DENSITY, RELATION, has_dense_users, release
from tests.noise.sources import Draw, Recorded

EPSILON, DELTA = 1.0, 1e-6


def city(kind: str) -> Traces:
    """30 users for 3 days, a tenth of the events missing, at 80 places: with coordinates, categories, both or none."""
    traces = toy_city(30, n_places=80, n_days=3, missing=0.1, seed=0).traces
    places = traces.places
    if kind in ("categories", "neither"):
        nowhere = np.full(len(places), np.nan)
        places = PlaceTable(places.ids, nowhere, nowhere, places.category)
    if kind in ("coordinates", "neither"):
        places = replace(places, category=None)
    return replace(traces, places=places, friendships=None)


def homes_city(n_users: int) -> Traces:
    """Users who are seen at 40 places at every hour of 4 days, long enough for homes; of one program for any number."""
    return replace(toy_city(n_users, n_places=40, n_days=4, seed=0).traces, friendships=None)


KINDS = ("both", "coordinates", "categories", "neither")


def domain_of(traces: Traces, *, anchored: bool = False) -> Domain:
    return replace(Domain.of(traces.places, traces.time_grid), anchored=anchored)


def without(traces: Traces, user: int) -> Traces:
    """The neighbour without one user, who may be the only one."""
    keep = traces.user != user
    events = {name: getattr(traces, name)[keep] for name in ("trace", "instant", "place")}
    renumbered = traces.user[keep] - (traces.user[keep] > user)
    return replace(traces, user=renumbered.astype(np.int32), user_ids=np.delete(traces.user_ids, user), **events)


def with_user(traces: Traces, instants: np.ndarray, places: np.ndarray, *, first: bool = False) -> Traces:
    """The neighbour with one more user, who comes last or first."""
    user = int(traces.user_ids.min()) - 1 if first else int(traces.user_ids.max()) + 1
    added = pd.DataFrame({"user": user, "trace": 0, "instant": instants, "place": traces.places.ids[places]})
    return Traces.from_frame(pd.concat([traces.to_frame(), added]), traces.places, traces.time_grid)


class Sum(NamedTuple):
    """A sum over users as it was given to the noise, and the standard deviation of this noise."""

    value: np.ndarray
    sigma: float


def asked_of(traces: Traces, domain: Domain) -> dict[str, Draw]:
    """What a fit gives to the noise, by name; if the domain is anchored, also the count that decides about that."""
    noise = Recorded(is_private=True)
    accountant = ZCDPAccountant(RELATION, EPSILON, DELTA, noise)
    names = [DENSITY] if domain.anchored else []
    if domain.anchored:
        has_dense_users(traces, accountant)
    names += release(traces, domain, accountant).sums
    return dict(zip(names, noise.asked, strict=True))


def sums_of(traces: Traces, domain: Domain) -> dict[str, Sum]:
    """Sums that a fit gives to the noise, by name."""
    asked = asked_of(traces, domain).items()
    return {name: Sum(draw.values, draw.sensitivity / np.sqrt(2 * draw.epsilon)) for name, draw in asked}
