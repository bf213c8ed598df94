"""A public prior of the population, from a table of places with weights or from a public trace set.

A prior may not depend on the traces that the model learns from. It helps most if there are few users.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from jaxtyping import Float

from ppmtf_jax.data.comparable import index_of_ids
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import SYNTHETIC, TRACE_SET, Traces
from ppmtf_jax.datasets.tables import read_columns
from ppmtf_jax.errors import InputError, Problem, raise_any
from ppmtf_jax.private.domain import Domain
from ppmtf_jax.runtime.files import PathLike
from ppmtf_jax.runtime.folders import read_marker

KERNELS_KM = (0.1, 0.4, 1.5)
"""Standard deviations of the normal kernels that spread the weight at a point over the places around this point."""
AT_A_TIME = 2000
"""Number of weighted points that are spread at a time."""
LEAST = 1e-3
"""Each weight is raised by this share of the place's mean weight over slots, and of the mean weight of all places."""


def read_prior(path: PathLike, domain: Domain, training: str = "") -> Float[np.ndarray, "slot place"]:
    """Weights of the places in each slot, positive.

    Raises `InputError`: the file cannot be read, a weight is negative or not a number, a trace set has other slots, no
    weight is at or near the places of the domain, the prior is the training traces, or it was synthesized from them.

    Parameters
    ----------
    path : path
        A folder of a trace set, or a table (CSV, Parquet or the like). A trace set says how popular places are in each
        slot; the total weight of a user is the square root of her number of events. A table has a row for each place,
        and may have a column of weights. If the places of the domain have coordinates, the table must have coordinates,
        and each weight is spread over the places around it. Otherwise the table must have the ids of the places.
    training : str
        Digest of the training traces. Neither they nor traces synthesized from them may be the prior.
    """
    marker = read_marker(path)
    if marker is not None and marker.kind in (TRACE_SET, SYNTHETIC):
        traces = Traces.load(path)
        if training and training in (traces.digest, traces.origin.training if traces.origin else ""):
            problem = Problem("a public prior", "the training traces, or traces that were synthesized from them")
            raise InputError(str(path), [problem])
        places, weight = _of_traces(traces, domain, str(path))
    else:
        places, weight = _of_table(path, with_coordinates=domain.space.has_distances)
    if domain.space.has_distances:
        spread = _spread(places, weight, domain.places)
    else:
        spread = np.zeros((domain.n_places, weight.shape[1]))
        index = index_of_ids(places.ids, domain.places.ids)
        np.add.at(spread, index[index >= 0], weight[index >= 0])
    if not spread.sum() > 0:
        problem = Problem(
            "weights at or near the places of the traces", "none", way_out="Give a table of the same city"
        )
        raise InputError(str(path), [problem])
    by_slot = spread + LEAST * spread.mean(axis=1, keepdims=True)
    return np.broadcast_to(by_slot + LEAST * spread.mean(), (domain.n_places, domain.n_slots)).T


def _of_traces(traces: Traces, domain: Domain, subject: str) -> tuple[PlaceTable, Float[np.ndarray, "place slot"]]:
    """Places of a trace set, and their weights in each slot."""
    if traces.time_grid.period != domain.time_grid.period or traces.time_grid.n_slots != domain.n_slots:
        expected = f"{domain.n_slots} slots in {domain.time_grid.period} instants, as the traces have"
        found = f"{traces.time_grid.n_slots} slots in {traces.time_grid.period} instants"
        raise InputError(subject, [Problem(expected, found)])
    share = 1 / np.sqrt(np.bincount(traces.user, minlength=traces.n_users))[traces.user]
    cell = traces.place.astype(np.int64) * domain.n_slots + traces.slot
    weight = np.bincount(cell, share, traces.n_places * domain.n_slots)
    return traces.places, weight.reshape(traces.n_places, domain.n_slots)


def _of_table(path: PathLike, with_coordinates: bool) -> tuple[PlaceTable, Float[np.ndarray, "place 1"]]:
    """Places of a table, and their weights; a table without weights gives every place the weight 1."""
    degrees = ("latitude", "longitude") if with_coordinates else ()
    frame, problems, *_ = read_columns(path, {}, find=("place", *degrees, "weight"), subject=str(path))
    weight = pd.to_numeric(frame.get("weight", pd.Series(1.0, frame.index)), errors="coerce").to_numpy(float)
    if not (np.isfinite(weight) & (weight >= 0)).all():
        problems = [*problems, Problem("weights of at least 0", "others")]
    if not with_coordinates and "place" not in frame:
        problems = [*problems, Problem("a column place, since the places of the traces have no coordinates", "none")]
    raise_any(str(path), problems)
    nowhere = np.full(len(frame), np.nan)
    position = (frame[name].to_numpy(float) if with_coordinates else nowhere for name in ("latitude", "longitude"))
    ids = frame["place"].astype(object).infer_objects().to_numpy() if "place" in frame else np.arange(len(frame))
    return PlaceTable(ids, *position), weight[:, None]


def _spread(
    places: PlaceTable, weight: Float[np.ndarray, "point slot"], onto: PlaceTable
) -> Float[np.ndarray, "place slot"]:
    """Spread the weights of points over places, by normal kernels of several widths."""
    together = replace(
        onto,
        ids=np.arange(len(onto) + len(places)),
        latitude=np.append(onto.latitude, places.latitude),
        longitude=np.append(onto.longitude, places.longitude),
        category=None,
    ).position_km()
    to, points = together[: len(onto)], together[len(onto) :]
    spread = np.zeros((len(onto), weight.shape[1]))
    for begin in range(0, len(points), AT_A_TIME):
        apart = to[:, None] - points[begin : begin + AT_A_TIME]
        squared = (apart**2).sum(axis=-1)
        density = sum(np.exp(-squared / (2 * km**2)) / km for km in KERNELS_KM)
        spread += density @ weight[begin : begin + AT_A_TIME]
    return spread
