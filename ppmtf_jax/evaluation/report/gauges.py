"""Numbers of utility between what real traces and what random places give, and the light that follows from them.

The rule is the same for all of them, so that a reader learns it once: a number is good where synthetic traces have gone
at most a quarter of the way from Training to Uniform, fair up to half of it, poor beyond.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ppmtf_jax.data.measurement import Quantity, Reading
from ppmtf_jax.evaluation.evaluation import TRAINING, UNIFORM, Row
from ppmtf_jax.evaluation.report.content import Gauge, Gauges, Light, Status, percent
from ppmtf_jax.evaluation.report.material import Material
from ppmtf_jax.evaluation.tables import references_text

GOOD_UP_TO, FAIR_UP_TO = 0.25, 0.5
LEAST_GAP = 0.02
"""Where Uniform is worse than Training by less than this share of itself, the way between them is too short to tell."""
FLOOR = "floor"
"""Name of a reference that no synthesizer can be better than, which then stands in for Training."""
TOO_SHORT = "Random places score nearly as well as real traces here, so the number says little"
UTILITY_RULE = (
    "Each number is placed between Training (real traces) and Uniform (random places). Good: at most a quarter of the "
    "way to Uniform; fair: at most half; poor: beyond. The least good number decides; those with a dagger (†) do not "
    "count."
)
DIRECTIONS = {"lower": "lower is better", "higher": "higher is better", "closest to 0": "closest to 0 is better"}


def gauge(
    quantity: Quantity,
    synthetic: float,
    training: float,
    uniform: float,
    *,
    title: str,
    reading: Reading = Reading(),
) -> Gauge:
    """A number between Training and Uniform.

    Parameters
    ----------
    quantity : Quantity
    synthetic, training, uniform : float
    title : str
        In plain words.
    reading : Reading
        Its caveat is told, and then the number decides nothing; a reference "floor" that is worse than Training stands
        in for it.

    Examples
    --------
    >>> far = Quantity("far_km", "Far, km", "How far off.", "km", "lower", "near Training")
    >>> found = gauge(far, 2.0, 1.0, 5.0, title="How far off")
    >>> found.position, found.status.word
    (0.25, 'Good')
    >>> gauge(far, 2.0, 1.0, 1.01, title="How far off").status.word
    'Not known'
    """
    caveat, position = reading.caveat.splitlines(), None
    best, own, worst = (_loss(quantity, value) for value in (training, synthetic, uniform))
    floor = reading.references.get(FLOOR, math.nan)
    begins_at_floor = _loss(quantity, floor) > best
    best = _loss(quantity, floor) if begins_at_floor else best
    if not math.isfinite(own):
        caveat = caveat or [_sentence(f"It is undefined here: {quantity.undefined}")]
    elif not caveat and not worst - best > LEAST_GAP * abs(worst):
        caveat = [TOO_SHORT]
    elif not caveat:
        position = (own - best) / (worst - best)
    return Gauge(
        title,
        quantity.title,
        quantity.meaning,
        DIRECTIONS.get(quantity.better, quantity.better),
        quantity.text(synthetic),
        quantity.text(training),
        quantity.text(uniform),
        position,
        _status(position),
        " ".join(_sentence(reason) for reason in caveat),
        quantity.text(floor) if begins_at_floor else "",
        references_text(reading),
    )


def gauges_of(material: Material, titles: Mapping[str, str]) -> Gauges:
    """Some numbers of an evaluation, those that it has, by their names, each with what it is called here."""
    rows = {row.quantity.name: row for row in material.evaluation.rows()}
    return Gauges(tuple(_gauge_of_row(material, rows[name], title) for name, title in titles.items() if name in rows))


def utility_light(question: str, gauges: Sequence[Gauge], if_poor: str = "") -> Light:
    r"""The light of some numbers: the least good one that counts decides.

    Parameters
    ----------
    question : str
    gauges : sequence of Gauge
    if_poor : str
        What not to use the traces for then, as a sentence.

    Examples
    --------
    >>> far = Quantity("far_km", "Far, km", "How far off.", "km", "lower", "near Training")
    >>> light = utility_light("How far?", [gauge(far, each, 1.0, 5.0, title="Way") for each in (1.2, 4.0)])
    >>> light.status.word, light.answer
    ('Poor', 'Way: 75\xa0% of the way from real traces to random places.')
    """
    known = [each for each in gauges if each.position is not None]
    if not known:
        return Light(question, Status.UNKNOWN, "No number tells it on these data.", UTILITY_RULE)
    least = max(known, key=lambda each: each.position or 0.0)
    advice = f" {if_poor}" if if_poor and least.status is Status.POOR else ""
    return Light(question, least.status, f"{least.title}: {way(least)}.{advice}", UTILITY_RULE)


def way(each: Gauge) -> str:
    """Where a number is, in words."""
    if each.position is None:
        return "not known"
    if each.position <= 0.005:
        return "as near as real traces of other people"
    if each.position > 1:
        return "further off than random places"
    return f"{percent(each.position)} of the way from real traces to random places"


def _gauge_of_row(material: Material, row: Row, title: str) -> Gauge:
    value = dict(zip(material.evaluation.columns, row.values, strict=True))
    numbers = (value[name] for name in (material.column, TRAINING, UNIFORM))
    return gauge(row.quantity, *numbers, title=title, reading=row.reading)


def _loss(quantity: Quantity, value: float) -> float:
    return {"lower": value, "higher": -value, "zero": abs(value)}.get(quantity.direction, math.nan)


def _status(position: float | None) -> Status:
    if position is None:
        return Status.UNKNOWN
    return Status.GOOD if position <= GOOD_UP_TO else Status.FAIR if position <= FAIR_UP_TO else Status.POOR


def _sentence(text: str) -> str:
    return text.rstrip(".") + "."
