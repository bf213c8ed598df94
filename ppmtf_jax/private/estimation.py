"""The population estimated from noisy releases: a log-linear model with learned scales, fitted by mean-field inference.

The number of people l(s, b) at place b in slot s is modelled as

    log l(s, b) = c_s + u_b + sum_g v_g(cell_g(b)) + sum_h (L H_h)(s, cell_h(b)) + w(category(b))
                  + (L C)(s, category(b)) + e(s, b) + (1 + a) log prior(s, b)

where g are all numbers of cells (`domain.N_CELLS`), h are those in `SMOOTH_CELLS`, and L makes effects smooth over
slots. All effects but c are normal with mean 0, and so is the number a. Each family of effects has its own scale, which
is learned. The release y_j is a table. It is normal with mean k_j A_j l, where A_j adds up people over the slots and
places of each cell of the table. The factor k_j is learned, because users' vectors in different tables have different
sums. The variance of y_j is that of the noise, plus 0.4 times the mean, because it is by chance who the users are.

The posterior of the effects is approximated by independent normal distributions that minimize the Kullback-Leibler
divergence (mean-field variational inference). The numbers c, k_j and the scales have no distribution, only a value. The
optimization uses stochastic gradients (Adam), with one draw of all effects per step. The time does not depend on the
number of users. All this is post-processing: nothing here sees a trace of the users. A public prior comes from a table
of places with weights or from a public trace set (`read_prior`). It may not depend on the traces that the model learns
from, and helps most if there are few users.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax import lax
from jax.ops import segment_sum
from jaxtyping import Array, Float, Int, Key

from ppmtf_jax.data.comparable import index_of_ids
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.time_grid import DAY_S, TimeGrid
from ppmtf_jax.data.trace_set import SYNTHETIC, TRACE_SET
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.ids import read_columns
from ppmtf_jax.errors import InputError, Problem, raise_any
from ppmtf_jax.private.domain import N_CELLS, Domain, Grouping
from ppmtf_jax.private.releases import Releases
from ppmtf_jax.runtime.files import PathLike
from ppmtf_jax.runtime.folders import read_marker
from ppmtf_jax.streams import Stage, jax_stream

N_STEPS = 220
LEARNING_RATE, LAST_RATE_SHARE = 0.08, 0.02
MAX_GRADIENT = 100.0
"""Maximum norm of the gradient of a step; a longer gradient is scaled down to this norm."""
CHANCE_VARIANCE = 0.4
"""Variance of a sum over users, divided by its mean, if users are a random sample."""
SLOT_SCALE = 0.7
"""Standard deviation of the change of c from slot to slot."""
SCALE_WEIGHT, SCALE_SPREAD = 1.5, 0.7
"""The penalty for a learned scale t is weight x (log(t / t0) / spread)^2, where t0 is the scale at the start."""
SMOOTH_H, SMOOTH_SLOTS = 3.0, 3.0
"""Standard deviation of the smoothing over slots, in hours; if a period is not a whole number of days, at most this
number of slots."""
SMOOTH_CELLS = N_CELLS[:2]
"""Numbers of cells for which a cell's effects change over slots."""
FIRST_SD = 0.3
"""Standard deviation of each effect at the start, in units of its scale. That of a, the number of the prior, is divided
by sqrt(places). Otherwise draws of a move all places so much that the first gradients are noise, and some seeds find a
far worse fit."""
MIN_LOG, MAX_LOG = -25.0, 20.0
MIN_PRIOR = 1e-4
"""This share of a prior is spread evenly over places, so that no place is impossible."""
KERNELS_KM = (0.1, 0.4, 1.5)
"""Standard deviations of the normal kernels that spread the weight at a point over the places around this point."""
AT_A_TIME = 2000
"""Number of weighted points that are spread at a time."""
MIN_WEIGHT = 1e-3
"""Each weight is raised by this share of the place's mean weight over slots, and of the mean weight of all places."""


@partial(jax.tree_util.register_dataclass, data_fields=["group", "weight", "scale"], meta_fields=["n_groups", "slots"])
@dataclass(frozen=True, eq=False)
class _Effect:
    """A family of effects: one number per group of places, constant over slots, smooth over slots, or free in each."""

    group: Int[Array, " place"]
    n_groups: int
    slots: str  # "constant", "smooth" or "free"
    scale: Float[Array, ""] | float
    weight: Float[Array, "place slot"] | Float[Array, ""] | float = field(default=1.0)

    def at(self, value: Float[Array, "group slots"], smoothing: Float[Array, "slot slot"]) -> Float[Array, "place _"]:
        """The effect on each place in each slot; only one slot, if effect and weight are the same in all slots."""
        value = value @ smoothing.T if self.slots == "smooth" else value
        return self.weight * value[self.group]


class Table(NamedTuple):
    """A release: the column of each place, the row of each slot, noisy sums in users, and their standard deviation."""

    column: Int[Array, " place"]
    row_of: Float[Array, "slot row"]  # 1 if the slot belongs to the row
    value: Float[Array, "column row"]
    sigma: Float[Array, ""]

    def expected(self, people: Float[Array, "place slot"]) -> Float[Array, "column row"]:
        """The sums of the table for a population."""
        return segment_sum(people @ self.row_of, self.column, len(self.value))


class _Parameters(NamedTuple):
    """Parameters of the approximate posterior; families by name."""

    mean: dict[str, Array]
    log_sd: dict[str, Array]
    log_scale: dict[str, Array]
    slot: Float[Array, " slot"]  # c
    log_sum: Float[Array, " table"]  # k_j = exp(log_sum[j] - log_sum of the finest table)


def estimate_population(
    releases: Releases, seed: int, prior: Float[np.ndarray, "slot place"] | None = None
) -> Float[np.ndarray, "slot place"]:
    """The share of the people at each place in each slot, from noisy releases and a public prior; every share positive.

    The estimate is the average of the posterior mean and the posterior median, each normalized. `seed`: seed of the
    stochastic gradients. It may be known: privacy does not depend on it. `prior` (shape (slots, places)): a public
    guess of the population, such as a density of venues. Its numbers are at least 0, and not all 0 in any slot. The
    model learns how far to trust it. Raises `InputError`: the prior has another shape, a number that is negative or not
    finite, or only zeros in a slot.
    """
    domain, offset = releases.domain, None
    if prior is not None:
        shape = (domain.n_slots, domain.n_places)
        if prior.shape != shape or not (np.isfinite(prior) & (prior >= 0)).all() or not prior.any(axis=1).all():
            expected = f"{shape[0]} x {shape[1]} numbers (slots, places) of at least 0, not all 0 in a slot"
            raise InputError("prior", [Problem(expected, f"an array of shape {prior.shape}, or other numbers")])
        offset = log_guess(prior)
    tables = tables_of(releases, domain.population_tables())
    return estimate(tables, domain, offset, _smoothing(domain.time_grid), seed)


def estimate(
    tables: list[Table],
    domain: Domain,
    offset: Float[np.ndarray, "row place"] | None,
    smoothing: Float[np.ndarray, "row row"],
    seed: int,
) -> Float[np.ndarray, "row place"]:
    """Distributions over places for each row (slot) of noisy tables; `offset`: see `log_guess`; `smoothing`: L."""
    n_rows, effects = len(smoothing), _effects(domain)
    given = jnp.zeros((domain.n_places, n_rows)) if offset is None else jnp.asarray(offset.T, jnp.float32)
    if offset is not None:
        effects["prior"] = _Effect(jnp.zeros(domain.n_places, int), 1, "constant", 0.7, given)
    start = _start(effects, tables, n_rows, domain.n_places)
    key = jax_stream(seed, Stage.FIT)
    log_people, variance = _fit(key, start, effects, tables, jnp.asarray(smoothing, jnp.float32), given)
    median, mean = (_normalized(np.asarray(log, np.float64)) for log in (log_people, log_people + variance / 2))
    return ((median + mean) / 2).T


def tables_of(releases: Releases, groupings: Mapping[str, Grouping]) -> list[Table]:
    """The releases of these names as tables, with the row of each slot and the column of each place."""
    tables = []
    for name, grouping in groupings.items():
        if name in releases.sums:
            noisy, row_of = releases[name], np.eye(grouping.shape[0], dtype=np.float32)[grouping.row]
            value = jnp.asarray(noisy.value.T, jnp.float32)
            tables.append(Table(jnp.asarray(grouping.column), jnp.asarray(row_of), value, jnp.float32(noisy.sigma)))
    return tables


def _effects(domain: Domain) -> dict[str, _Effect]:
    """All families of effects, except the prior, with their scales at the start."""
    place = np.arange(domain.n_places)
    families = {"place": (place, "constant", 0.8), "slot x place": (place, "free", 0.2)}
    for n_cells, cell in domain.cells.items():
        families[f"{n_cells} cells"] = (cell, "constant", 0.5)
        if n_cells in SMOOTH_CELLS:
            families[f"slot x {n_cells} cells"] = (cell, "smooth", 0.3)
    if domain.category is not None:
        families["category"] = (domain.category, "constant", 0.6)
        families["slot x category"] = (domain.category, "smooth", 0.4)
    return {
        name: _Effect(jnp.asarray(group), int(group.max()) + 1, slots, scale)
        for name, (group, slots, scale) in families.items()
    }


def _smoothing(time_grid: TimeGrid) -> Float[np.ndarray, "slot slot"]:
    """A matrix L that makes independent numbers x smooth over slots, as L x: L L^T is a Gaussian or periodic kernel."""
    n_slots, slots = time_grid.n_slots, np.arange(time_grid.n_slots)
    slot_h = time_grid.step_s / 3600 * time_grid.n_instants / run_begins(time_grid.slot_of_instant).sum()
    width = SMOOTH_H / slot_h
    apart = slots[:, None] - slots
    if time_grid.n_instants * time_grid.step_s % DAY_S == 0:
        # The last slot is a neighbour of the first (MacKay 1998).
        log_kernel = -2 * (np.sin(np.pi * apart / n_slots) * n_slots / (2 * np.pi * width)) ** 2
    else:
        log_kernel = -((apart / min(width, SMOOTH_SLOTS)) ** 2) / 2
    return np.linalg.cholesky(np.exp(log_kernel) + 1e-2 * np.eye(n_slots))


def log_guess(weight: Float[np.ndarray, "row place"]) -> Float[np.ndarray, "row place"]:
    """Normalize the weights of each row to shares, and take the logarithm of their ratio to the uniform share."""
    share = weight / weight.sum(axis=1, keepdims=True)
    return np.log((1 - MIN_PRIOR) * share * weight.shape[1] + MIN_PRIOR)


def _start(effects: Mapping[str, _Effect], tables: list[Table], n_slots: int, n_places: int) -> _Parameters:
    """Parameters at the start: all effects have mean 0, and people are spread evenly."""
    mean = {
        name: jnp.zeros((effect.n_groups, 1 if effect.slots == "constant" else n_slots))
        for name, effect in effects.items()
    }
    log_sd = {name: jnp.full_like(mean[name], np.log(FIRST_SD * effect.scale)) for name, effect in effects.items()}
    if "prior" in log_sd:
        log_sd["prior"] -= np.log(n_places) / 2
    log_scale = {name: jnp.asarray(np.log(effect.scale), jnp.float32) for name, effect in effects.items()}
    sums = jnp.stack([jnp.maximum(jnp.sum(table.value), 5.0) for table in tables])
    slot = jnp.full(n_slots, jnp.log(sums[_finest(tables)] / n_slots / n_places))
    return _Parameters(mean, log_sd, log_scale, slot, jnp.log(sums))


def _finest(tables: list[Table]) -> int:
    """Index of the table with the most cells; the number of people l has the units of this table."""
    return int(np.argmax([table.value.size for table in tables]))


@jax.jit
def _fit(
    key: Key[Array, ""],
    start: _Parameters,
    effects: dict[str, _Effect],
    tables: list[Table],
    smoothing: Float[Array, "slot slot"],
    offset: Float[Array, "place slot"],
) -> tuple[Float[Array, "place slot"], Float[Array, "place slot"]]:
    """Mean and variance of log l under the approximate posterior."""
    schedule = optax.cosine_decay_schedule(LEARNING_RATE, N_STEPS, LAST_RATE_SHARE)
    # The gradient of an early draw may be so large that Adam, which divides by past gradients, takes tiny steps later.
    optimizer = optax.chain(optax.clip_by_global_norm(MAX_GRADIENT), optax.adam(schedule))

    def log_people(values: dict[str, Array], slot: Array) -> Float[Array, "place slot"]:
        return offset + slot + sum(effect.at(values[name], smoothing) for name, effect in effects.items())

    def loss(parameters: _Parameters, key: Key[Array, ""]) -> Float[Array, ""]:
        keys = dict(zip(effects, jax.random.split(key, len(effects)), strict=True))
        drawn = {
            name: mean + jnp.exp(parameters.log_sd[name]) * jax.random.normal(keys[name], mean.shape)
            for name, mean in parameters.mean.items()
        }
        people = jnp.exp(jnp.clip(log_people(drawn, parameters.slot), MIN_LOG, MAX_LOG))
        total = jnp.sum((jnp.diff(parameters.slot) / SLOT_SCALE) ** 2) / 2
        ratios = jnp.exp(parameters.log_sum - parameters.log_sum[_finest(tables)])
        for table, ratio in zip(tables, ratios, strict=True):
            expected = ratio * table.expected(people)
            variance = lax.stop_gradient(table.sigma**2 + CHANCE_VARIANCE * expected)
            total += jnp.sum((table.value - expected) ** 2 / variance) / 2
        return total + sum(_divergence(parameters, name, effect) for name, effect in effects.items())

    def step(state: tuple[Any, Any], key: Key[Array, ""]) -> tuple[tuple[Any, Any], None]:
        parameters, moments = state
        updates, moments = optimizer.update(jax.grad(loss)(parameters, key), moments)
        return (optax.apply_updates(parameters, updates), moments), None

    (fitted, _), _ = lax.scan(step, (start, optimizer.init(start)), jax.random.split(key, N_STEPS))
    variance = sum(
        _squared(effect).at(jnp.exp(2 * fitted.log_sd[name]), smoothing**2) for name, effect in effects.items()
    )
    return log_people(fitted.mean, fitted.slot), jnp.broadcast_to(variance, offset.shape)


def _squared(effect: _Effect) -> _Effect:
    """The family for variances instead of effects: its weight is squared, because variances add up like this."""
    return replace(effect, weight=effect.weight**2)


def _divergence(parameters: _Parameters, name: str, effect: _Effect) -> Float[Array, ""]:
    """Divergence of a family's posterior from its normal prior, plus the penalty for the scale of this prior."""
    log_sd, log_scale = parameters.log_sd[name], parameters.log_scale[name]
    second_moment = (parameters.mean[name] ** 2 + jnp.exp(2 * log_sd)) * jnp.exp(-2 * log_scale)
    penalty = SCALE_WEIGHT * ((log_scale - jnp.log(effect.scale)) / SCALE_SPREAD) ** 2
    return jnp.sum(log_scale - log_sd + second_moment / 2) + penalty


def _normalized(log_people: Float[np.ndarray, "place slot"]) -> Float[np.ndarray, "place slot"]:
    people = np.exp(log_people - log_people.max(axis=0))
    return people / people.sum(axis=0)


def read_prior(path: PathLike, domain: Domain, training: str = "") -> Float[np.ndarray, "slot place"]:
    """Weights of the places in each slot, positive.

    Raises `InputError`: the file cannot be read, a weight is negative or not a number, a trace set has other slots, no
    weight is at or near the places of the domain, the prior is the training traces, or it was synthesized from them.

    Parameters
    ----------
    path : path
        A folder of a trace set, or a table (CSV, Parquet or the like). A trace set says how popular places are in each
        slot; the total weight of a user is the square root of their number of events. A table has a row for each place,
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
    by_slot = spread + MIN_WEIGHT * spread.mean(axis=1, keepdims=True)
    return np.broadcast_to(by_slot + MIN_WEIGHT * spread.mean(), (domain.n_places, domain.n_slots)).T


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
