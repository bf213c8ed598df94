"""Who lives in the toy city, and where its quarters are: four clusters of people with hours and habits of their own."""

from __future__ import annotations

from typing import NamedTuple

# Kilometres east and north of the centre.
QUARTERS = {
    "west suburb": (-5.5, -1.0),
    "south suburb": (0.5, -5.5),
    "campus": (4.0, 3.8),
    "old town": (-2.8, 3.6),
    "harbour": (5.6, -2.0),
}
BUSINESS_PARK = (2.2, -2.0)
CATEGORY_SHARE = {
    "home": 0.40,
    "office": 0.16,
    "shop": 0.13,
    "restaurant": 0.13,
    "park": 0.07,
    "university": 0.02,
    "hospital": 0.03,
    "station": 0.06,
}
CATEGORIES = tuple(CATEGORY_SHARE)

WEEKDAYS, WEEKEND, ALL_DAYS = range(5), range(5, 7), range(7)


class Outing(NamedTuple):
    """A stay away from home or a break at work: its days, probability, hours of start, length and destinations."""

    days: range
    probability: float
    first_start: int
    last_start: int
    longest: int
    weights: dict[str, float]
    from_work: bool = False


class Cluster(NamedTuple):
    """What the people of one cluster have in common. If work runs over midnight, `work_end` is before `work_start`."""

    name: str
    share: float
    quarters: tuple[str, ...]
    work_category: str | None
    work_start: tuple[int, int]
    work_end: tuple[int, int]
    by_train: bool
    outings: tuple[Outing, ...]


CLUSTERS = (
    Cluster(
        "office commuters", 0.45, ("west suburb", "south suburb"), "office", (8, 9), (17, 18), True,
        (
            Outing(WEEKDAYS, 0.35, 12, 12, 1, {"restaurant": 0.8, "shop": 0.2}, from_work=True),
            Outing(WEEKDAYS, 0.35, 19, 20, 3, {"restaurant": 0.6, "shop": 0.3, "park": 0.1}),
            Outing(WEEKEND, 0.75, 10, 15, 4, {"shop": 0.45, "park": 0.4, "restaurant": 0.15}),
            Outing(WEEKEND, 0.35, 18, 20, 3, {"restaurant": 1.0}),
        ),
    ),
    Cluster(
        "students", 0.2, ("campus",), "university", (9, 11), (15, 18), False,
        (
            Outing(WEEKDAYS, 0.4, 12, 13, 1, {"restaurant": 0.7, "park": 0.3}, from_work=True),
            Outing(WEEKDAYS, 0.45, 18, 21, 3, {"restaurant": 0.5, "shop": 0.25, "park": 0.25}),
            Outing(WEEKEND, 0.35, 11, 14, 4, {"university": 1.0}),
            Outing(WEEKEND, 0.7, 15, 21, 4, {"restaurant": 0.5, "shop": 0.3, "park": 0.2}),
        ),
    ),
    Cluster(
        "retired", 0.2, ("old town",), None, (0, 0), (0, 0), False,
        (
            Outing(ALL_DAYS, 0.75, 9, 11, 2, {"shop": 0.6, "park": 0.3, "hospital": 0.1}),
            Outing(ALL_DAYS, 0.65, 13, 16, 3, {"park": 0.5, "shop": 0.3, "restaurant": 0.2}),
        ),
    ),
    Cluster(
        "night workers", 0.15, ("harbour",), "hospital", (21, 23), (5, 7), False,
        (
            Outing(ALL_DAYS, 0.6, 14, 16, 3, {"shop": 0.5, "park": 0.3, "restaurant": 0.2}),
            Outing(WEEKEND, 0.4, 18, 19, 3, {"restaurant": 1.0}),
        ),
    ),
)  # fmt: skip
CLUSTER_NAMES = tuple(cluster.name for cluster in CLUSTERS)
