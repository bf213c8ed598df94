"""Keep only places that several people visit: events at other places reveal their few visitors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.places import MIN_USERS_PER_PLACE, OtherPlaces, nearest_kept, too_few_users
from ppmtf_jax.errors import InputError


def keep_shared_places(
    train: Traces,
    *others: Traces,
    min_users: int = MIN_USERS_PER_PLACE,
    other_places: OtherPlaces = "drop",
    keep_table: bool = False,
) -> tuple[Traces, ...]:
    """Keep the places where at least `min_users` training users have events.

    Readers count all users, so a place may have fewer training users. `ppmtf import` and jobs call this function after
    the split.

    Parameters
    ----------
    train : Traces
        The users who are counted.
    *others : Traces
        Traces with the same places, such as those of the test users.
    min_users : int
        1 keeps all places, also those without an event.
    other_places : "drop" or "nearest"
        Whether events at other places are left out or moved to the nearest place that is kept.
    keep_table : bool
        Leave other places in the table, without events. This is for the cells of a grid.

    Returns
    -------
    tuple of Traces
        The training users' and the others', on the same places. Users without an event are dropped.

    Raises
    ------
    InputError
        No place has so many users, or a set has no event left.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=40, seed=0).traces.split_users(0.8, seed=0)
    >>> train, test = keep_shared_places(train, test, min_users=5)
    >>> bool(train.users_per_place().min() >= 5), len(train.places) == len(test.places)
    (True, True)
    """
    n_users = train.users_per_place()
    kept = n_users >= min_users
    if min_users == 1 or kept.all():
        return train, *others
    if not kept.any():
        raise InputError("places", [too_few_users(min_users, int(n_users.max()))])
    goes_to = np.where(kept, np.arange(len(kept)), -1)
    if other_places == "nearest":
        goes_to = nearest_kept(train.places, kept)[0]
    places = train.places
    if not keep_table:
        number = np.append(np.cumsum(kept) - 1, -1)
        goes_to = number[goes_to]
        category = None if places.category is None else places.category[kept]
        places = PlaceTable(places.ids[kept], places.latitude[kept], places.longitude[kept], category)
    return tuple(_moved(each, goes_to, places) for each in (train, *others))


def _moved(traces: Traces, goes_to: np.ndarray, places: PlaceTable) -> Traces:
    stays = goes_to[traces.place] >= 0
    left = traces if stays.all() else traces.select_events(stays)
    return replace(left, place=goes_to[left.place].astype(traces.place.dtype), places=places)
