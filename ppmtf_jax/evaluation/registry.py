"""The metrics that are known by name: each is a `Measurement` of kind "utility", registered by its own module."""

from __future__ import annotations

from ppmtf_jax.data.measurement import Measurement
from ppmtf_jax.registry import Registry

PUBLISHED = ("tp_tv", "tm_emd", "vf_tv")
"""The metrics of Murakami et al. 2021, in the order of the paper."""

ONE_PERIOD = (
    "stay_share",
    "move_interval_w1_h",
    "jump_tv",
    "radius_w1_km",
    "od_tv",
    "row_tv",
    "distinct_w1",
    "top_place_w1",
    "window_vf_tv",
    "group_fidelity",
)
"""How people move within one period: whether and how long they stay, how far they go, where to, how many places they
see, and whether each group is where it should be."""

FRIENDS = ("friend_meetings", "meeting_places", "friend_graph")
"""Whether friends meet as often, when and where real ones do, and how many friends people have."""

METRICS: Registry[Measurement] = Registry(
    "metric", "ppmtf_jax.evaluation.metrics", first=(*PUBLISHED, *ONE_PERIOD, *FRIENDS)
)

NEAR_TRAINING = "near Training"
"""A good value of what real traces set the limit of."""

LARGE_PART = 0.2
"""Where more than this of what a metric averages over does not compare, or is filled by convention, it has a caveat.

Distances of distributions are at most 1, so a share this large can move a mean by as much: synthesizers differ by less.
"""
