"""The registry of utility metrics: each is a `Measurement` of kind "utility", registered by its own module."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from ppmtf_jax.data.measurement import Comparison, Interpretation, Measurement, MetricInfo, Scale
from ppmtf_jax.registry import Registry

METRICS: Registry[Measurement] = Registry(
    "metric",
    "ppmtf_jax.evaluation.metrics",
    first=(
        *("tp_tv", "tm_emd", "vf_tv"),  # Murakami et al. 2021, in the order of the paper
        *("tp_swd", "tm_tv"),  # PPMTF+
        *("stay_difference", "move_interval_w1_h", "jump_tv", "radius_w1_km", "od_tv", "row_tv", "group_tv"),
        *("return_difference", "straight_back_difference", "return_time_tv"),
        *("distinct_w1", "top_place_w1", "second_place_w1", "main_places_w1_km"),
        *("daily_motif_tv", "closed_day_difference", "night_homes_difference", "entropy_difference"),
        *("diversity_difference", "stay_any_gap_difference"),
        *("jump_1h_tv", "jump_6h_tv", "jump_24h_tv", "jump_later_tv"),
        *("events_w1", "event_gap_tv", "day_events_tv", "rare_places"),
        *("friend_meetings", "friend_graph"),
        "mean_errors",  # Narita et al. 2022
    ),
)
"""The order of the metrics in tables; other metrics come last."""


def variation_quantity(name: str, title: str, meaning: str, undefined: str = "", **options: Any) -> MetricInfo:
    """A total variation, for which lower is better; the options are fields of `MetricInfo`."""
    return MetricInfo(name, title, meaning, "total variation, 0 to 1", undefined=undefined, scale="share", **options)


def difference_quantity(
    name: str, title: str, meaning: str, unit: str, undefined: str = "", scale: Scale = "share", **options: Any
) -> MetricInfo:
    """A difference, synthetic users minus test users, which is best at 0; the options are fields of `MetricInfo`."""
    return MetricInfo(name, title, meaning, unit, "zero", "near 0", undefined, scale, **options)


def error_quantities(name: str, title: str, of_what: str, unit: str, undefined: str = "") -> list[MetricInfo]:
    """The quantities of `mean_errors`, as section 5.2 of Narita et al. 2022 measures utility."""
    options: dict[str, Any] = {"undefined": undefined, "scale": "cells"}
    return [
        MetricInfo(f"{name}_mae", f"{title} MAE", f"Mean absolute error of {of_what}.", unit, **options),
        MetricInfo(f"{name}_mse", f"{title} MSE", f"Mean squared error of {of_what}.", f"({unit})^2", **options),
    ]


class Undefined(Exception):
    """Raised by a function of `register_utility` if none of its numbers is defined on the sets."""


def register_utility(*quantities: MetricInfo, name: str = "", **options: Any) -> None:
    """Register a metric of utility, with the name of its first quantity unless another is given.

    The options are those of `Measurement`. Where `measure` or `uniform` raises `Undefined`, all numbers are NaN; where
    `reading` does, nothing is said of them.
    """
    otherwise = {"measure": math.nan, "uniform": math.nan, "reading": Interpretation()}
    for option in otherwise.keys() & options.keys():
        options[option] = partial(_where_defined, options[option], [otherwise[option]] * len(quantities))
    METRICS.register(Measurement(name or quantities[0].name, "utility", quantities, **options))


def _where_defined(function: Callable[..., Any], otherwise: Any, comparison: Comparison, settings: Any) -> Any:
    try:
        return function(comparison, settings)
    except Undefined:
        return otherwise
