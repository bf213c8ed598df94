"""Gauges: utility numbers on the scale from real traces to random places, and the findings that follow from them.

All numbers are judged by the rule of `evaluation.judgement`, as in the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import replace

import numpy as np

from ppmtf_jax.data.measurement import Interpretation, MetricInfo
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.evaluation.chance import standard_errors
from ppmtf_jax.evaluation.judgement import FIT, FLOOR, WITH_CARE, Chance, judge, loss
from ppmtf_jax.evaluation.report.blocks import Finding, Gauge, Gauges, Status, percent
from ppmtf_jax.evaluation.report.inputs import ReportData, presence_at_hours
from ppmtf_jax.evaluation.results import REAL, SYNTHETIC, TRAINING, UNIFORM, Row
from ppmtf_jax.evaluation.tables import references_text

UTILITY_RULE = (
    "The error of a number is how much worse it is than that of the training users, who are real people too, beyond "
    f"the two standard errors that chance explains. Good, or fit: at most {percent(FIT)} of the yardstick; fair, or "
    f"with care: at most {percent(WITH_CARE)}; poor, or not fit: more. Where chance alone is larger, the light "
    "is fair if the traces are surely nearer than random places, otherwise not known. The yardsticks are listed in the "
    "verdict. The worst number decides; numbers with a dagger (†) do not, unless no other is known."
)


def gauge(
    quantity: MetricInfo,
    synthetic: float,
    training: float,
    uniform: float,
    *,
    reading: Interpretation = Interpretation(),
    chance: Chance = Chance(),
) -> Gauge:
    """A number between Training and Uniform.

    A number of unknown fitness decides nothing. A reference "floor", or the number of equally few real traces, replaces
    Training if it is worse.
    """
    judged = judge(quantity, synthetic, training, uniform, reading, chance)
    names = {chance.few: "Equally few real", reading.references.get(FLOOR): "Floor", training: "Training"}
    best = names.get(judged.real, "Training")
    random = "Uniform" if judged.uniform != chance.few_uniform else "Equally few random"
    numbers = {best: judged.real, "Synthetic": synthetic, random: judged.uniform}
    printed = {name: quantity.text(value) for name, value in numbers.items()}
    if judged.noise > 0 and math.isfinite(judged.real):
        printed[best] += f" ± {quantity.text(judged.noise)}"
    position, ends, real = None, (0.0, 0.0), loss(quantity, judged.real)
    way = loss(quantity, judged.uniform) - real
    if not judged.reason and way > 0:
        position = (loss(quantity, synthetic) - real) / way
        ends = tuple(min((judged.noise + limit * judged.yardstick) / way, 1.0) for limit in (FIT, WITH_CARE))
    caveat = f"{judged.reason.rstrip('.')}." if judged.reason else ""
    beside = {name: value for name, value in reading.references.items() if name.capitalize() not in numbers}
    reference = references_text(replace(reading, references=beside))
    return Gauge(quantity, printed, position, judged, ends, caveat, reference)


def gauges_of(data: ReportData, section: str, *, without: Container[str] = ()) -> Gauges:
    """Gauges of the numbers of an evaluation that belong to a section, apart from some."""
    rows = [row for row in data.evaluation.rows if row.quantity.section == section and row.quantity.name not in without]
    return Gauges(tuple(gauge_of(data, row) for row in rows))


def gauge_of(data: ReportData, row: Row) -> Gauge:
    """The gauge of a row of the evaluation."""
    numbers = (row.numbers[column] for column in (data.column, TRAINING, UNIFORM))
    return gauge(row.quantity, *numbers, reading=row.reading, chance=data.chance.get(row.quantity.name, Chance()))


def gauge_of_presence(
    data: ReportData, quantity: MetricInfo, measure: Callable[[np.ndarray, np.ndarray], float], *, uniform: float
) -> Gauges:
    """The gauge of a number that is no metric: `measure` compares the presence of a set with that of the test users."""
    synthetic, training = (measure(data.presence[name], data.presence[REAL]) for name in (SYNTHETIC, TRAINING))

    def of_real(train: Traces, test: Traces) -> dict[str, float]:
        return {quantity.name: measure(*(presence_at_hours(traces, test) for traces in (train, test)))}

    chance = Chance(standard_errors(of_real, data.train, data.test).get(quantity.name, 0.0))
    return Gauges((gauge(quantity, synthetic, training, uniform, chance=chance),))


def utility_finding(question: str, gauges: Sequence[Gauge], if_poor: str = "") -> Finding:
    """The finding of some gauges: the least good one of known fitness decides."""
    known = [each for each in gauges if math.isfinite(each.judged.error)]
    if not known:
        return Finding(question, Status.UNKNOWN, "No number answers this on these data.", UTILITY_RULE)
    least = max(known, key=lambda each: each.judged.badness)
    way = "as near as real traces of other people"
    if least.caveat:
        way = least.caveat[:1].lower() + least.caveat[1:-1]
    elif least.judged.error > 0:
        way = f"worse than real people, by {percent(least.judged.error)} of the yardstick"
        if least.position is not None:
            way = "further off than random places"
            if least.position <= 1:
                way = f"{percent(least.position)} of the way from real traces to random places"
    advice = f" {if_poor}" if if_poor and least.status is Status.POOR else ""
    return Finding(question, least.status, f"{least.title}: {way}.{advice}", UTILITY_RULE)
