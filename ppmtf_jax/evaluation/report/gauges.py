"""Gauges: utility numbers on the scale from real traces to random places, and the findings that follow from them.

The rule is the same for all numbers: a number is good if it lies at most a quarter of the way from Training to Uniform,
fair if at most half of the way, and poor otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ppmtf_jax.data.measurement import Interpretation, MetricInfo
from ppmtf_jax.evaluation.report.blocks import Finding, Gauge, Gauges, Status, percent
from ppmtf_jax.evaluation.report.inputs import ReportData
from ppmtf_jax.evaluation.results import TRAINING, UNIFORM
from ppmtf_jax.evaluation.tables import references_text

GOOD_UP_TO, FAIR_UP_TO = 0.25, 0.5
LEAST_GAP = 0.02
"""If Uniform is worse than Training by less than this share of Uniform, the number says little."""
FLOOR = "floor"
"""Name of a reference that no synthesizer can beat, which then replaces Training."""
TOO_SHORT = "Random places score nearly as well as real traces here, so the number says little"
UTILITY_RULE = (
    "Each number is placed between Training (real traces) and Uniform (random places). Good: at most a quarter of the "
    "way to Uniform; fair: at most half; poor: beyond. The least good number decides; numbers with a dagger (†) do not "
    "count."
)


def gauge(
    quantity: MetricInfo,
    synthetic: float,
    training: float,
    uniform: float,
    *,
    title: str,
    reading: Interpretation = Interpretation(),
) -> Gauge:
    """A number between Training and Uniform.

    A number with a caveat decides nothing. A reference "floor" that is worse than Training replaces Training.
    """
    caveat, position, status = reading.caveat.splitlines(), None, Status.UNKNOWN
    numbers = {"Training": training, "Synthetic": synthetic, "Uniform": uniform}
    floor = reading.references.get(FLOOR, math.nan)
    if _loss(quantity, floor) > _loss(quantity, training):
        numbers = {"Floor": floor, "Synthetic": synthetic, "Uniform": uniform}
    best, own, worst = (_loss(quantity, value) for value in numbers.values())
    if not math.isfinite(own):
        caveat = caveat or [f"It is undefined here: {quantity.undefined}"]
    elif not caveat and not worst - best > LEAST_GAP * abs(worst):
        caveat = [TOO_SHORT]
    elif not caveat:
        position = (own - best) / (worst - best)
        status = Status.GOOD if position <= GOOD_UP_TO else Status.FAIR if position <= FAIR_UP_TO else Status.POOR
    printed = {name: quantity.text(value) for name, value in numbers.items()}
    reasons = " ".join(reason.rstrip(".") + "." for reason in caveat)
    return Gauge(title, quantity, printed, position, status, reasons, references_text(reading))


def gauges_of(data: ReportData, titles: Mapping[str, str]) -> Gauges:
    """Gauges of some metrics, with their titles; metrics that the evaluation does not have are left out."""
    rows, columns, found = {row.quantity.name: row for row in data.evaluation.rows()}, data.evaluation.columns, []
    for name, title in titles.items():
        if name in rows:
            value = dict(zip(columns, rows[name].values, strict=True))
            numbers = (value[column] for column in (data.column, TRAINING, UNIFORM))
            found.append(gauge(rows[name].quantity, *numbers, title=title, reading=rows[name].reading))
    return Gauges(tuple(found))


def utility_finding(question: str, gauges: Sequence[Gauge], if_poor: str = "") -> Finding:
    """The finding of some gauges: the least good one without a caveat decides."""
    known = [each for each in gauges if each.position is not None]
    if not known:
        return Finding(question, Status.UNKNOWN, "No number answers this on these data.", UTILITY_RULE)
    least = max(known, key=lambda each: each.position or 0.0)
    position, way = least.position or 0.0, "further off than random places"
    if position <= 1:
        way = f"{percent(position)} of the way from real traces to random places"
    if position <= 0.005:
        way = "as near as real traces of other people"
    advice = f" {if_poor}" if if_poor and least.status is Status.POOR else ""
    return Finding(question, least.status, f"{least.title}: {way}.{advice}", UTILITY_RULE)


def _loss(quantity: MetricInfo, value: float) -> float:
    return {"lower": value, "higher": -value, "zero": abs(value)}.get(quantity.direction, math.nan)
