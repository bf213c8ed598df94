"""Small cities, their domains and neighbours, releases without noise, and planted bugs of releases."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.noise.accountant import ZCDPAccountant
from ppmtf_jax.private import releases as releases_module
from ppmtf_jax.private.domain import Domain
from ppmtf_jax.private.releases import DENSITY, RELATION, SCALE, has_dense_users, release, rows
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


# Planted bugs, each of which breaks the proof: tests must expose them


def not_normalized(patch: pytest.MonkeyPatch) -> None:
    def add_up(counted, n_cells):
        return SCALE * np.bincount(counted.group, minlength=n_cells)

    patch.setattr(releases_module, "vector_sum", add_up)


def normalized_per_day(patch: pytest.MonkeyPatch) -> None:
    def per_day(traces, domain):
        for name, counted in rows(traces, domain):
            is_of_events = len(counted.user) == traces.n_events
            yield name, counted._replace(user=traces.periods().piece) if is_of_events else counted

    patch.setattr(releases_module, "rows", per_day)


def of_noise(patch: pytest.MonkeyPatch, part: float) -> None:
    """Noise for a smaller change of sums than users make."""
    add = ZCDPAccountant.add_gaussian

    def too_little(accountant, values, sensitivity, rho, mechanism):
        return add(accountant, values, round(part * sensitivity), rho, mechanism)

    patch.setattr(ZCDPAccountant, "add_gaussian", too_little)


def less_noise(patch: pytest.MonkeyPatch) -> None:
    of_noise(patch, 1 / np.sqrt(2))


def half_the_noise(patch: pytest.MonkeyPatch) -> None:
    of_noise(patch, 1 / 2)


def drawn_in_the_order_of_users(patch: pytest.MonkeyPatch) -> None:
    """A tenth of the rows are left out, drawn from one stream: a user's id decides what others' draws are."""

    def drawn(traces, domain):
        for name, counted in rows(traces, domain):
            kept = np.random.default_rng(0).random(len(counted.user)) < 0.9
            yield name, counted._replace(user=counted.user[kept], group=counted.group[kept])

    patch.setattr(releases_module, "rows", drawn)


BUGS = [not_normalized, normalized_per_day, less_noise, half_the_noise, drawn_in_the_order_of_users]
