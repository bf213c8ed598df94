"""The numbers of `evaluate` as a table to read."""

from __future__ import annotations

import math

from rich.box import SIMPLE_HEAD
from rich.table import Table

from ppmtf_jax.data.measurement import Quantity
from ppmtf_jax.evaluation.evaluation import Evaluation


def format_table(evaluation: Evaluation, *, note: str = "") -> Table:
    """A table of all metrics beside Training and Uniform; print it with `rich.print`.

    Parameters
    ----------
    evaluation : Evaluation
    note : str
        A sentence to stand below it.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> from ppmtf_jax.evaluation.evaluation import evaluate
    >>> train, test = toy_city(n_users=20, seed=0).traces.split_users(0.5, seed=0)
    >>> table = format_table(evaluate(train, train, test))
    >>> [column.header for column in table.columns]
    ['Metric', 'Synthetic', 'Training', 'Uniform', 'A good value']
    """
    rows = evaluation.rows()
    directions = {quantity.direction for quantity, _ in rows}
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, caption_justify="left")
    table.title = "Utility and privacy" + (f": {directions.pop()} is better" if len(directions) == 1 else "")
    table.caption = " ".join(part for part in (note, _undefined_note(rows)) if part) or None
    mixed = bool(directions)
    table.add_column("Metric", no_wrap=True)
    for name in evaluation.columns:
        table.add_column(name[:1].upper() + name[1:], justify="right", no_wrap=True)
    table.add_column("A good value")
    for quantity, values in rows:
        good = f"{quantity.good_value} ({quantity.direction} is better)" if mixed else quantity.good_value
        table.add_row(quantity.title, *map(_number, values), good)
    return table


def _number(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "-"


def _undefined_note(rows: list[tuple[Quantity, list[float]]]) -> str:
    """Why some of the numbers are missing."""
    reasons = [
        f"{quantity.title}: {quantity.undefined}"
        for quantity, values in rows
        if quantity.undefined and any(math.isnan(value) for value in values)
    ]
    return "Undefined, shown as -. " + "; ".join(reasons) + "." if reasons else ""
