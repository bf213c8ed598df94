"""The numbers of `evaluate` as a table to read."""

from __future__ import annotations

import math
from collections import Counter
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.table import Table

from ppmtf_jax.data.measurement import Reading
from ppmtf_jax.evaluation.evaluation import Evaluation, Row, caveat_lines


def format_table(evaluation: Evaluation, *, note: str = "", spread: Evaluation | None = None) -> Table:
    """A table of all metrics beside Training and Uniform; print it with `rich.print`.

    What a number is to be held against on these data stands with what a good value is. Metrics that say little on these
    data are dim and have a dagger; why is told below.

    Parameters
    ----------
    evaluation : Evaluation
    note : str
        A sentence to stand below it.
    spread : Evaluation, optional
        Of the same metrics and columns: what stands behind each number with a plus-minus sign, where it is known.

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
    directions = Counter(row.quantity.better for row in rows if row.quantity.better)
    usual = directions.most_common(1)[0][0] if directions else ""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, caption_justify="left")
    table.title = "Utility and privacy" + (f": {usual} is better" if usual else "")
    table.title += ", unless said otherwise" if len(directions) > 1 else ""
    table.caption = "\n".join([*filter(None, [note, _undefined_note(rows)]), *caveat_lines(evaluation)]) or None
    table.add_column("Metric")
    for name in evaluation.columns:
        table.add_column(name[:1].upper() + name[1:], justify="right", no_wrap=True)
    table.add_column("A good value")
    apart = {row.quantity.name: row.values for row in spread.rows()} if spread else {}
    for _, of_kind in groupby(rows, key=lambda row: row.kind):
        for row in of_kind:
            numbers = [row.quantity.text(value) for value in row.values]
            spreads = apart.get(row.quantity.name, [math.nan] * len(numbers))
            numbers = [_with_spread(text, row, each) for text, each in zip(numbers, spreads, strict=True)]
            style = "dim" if row.reading.caveat else None
            table.add_row(row.title, *numbers, _good_value(row, usual), style=style)
        table.add_section()
    return table


def _with_spread(text: str, row: Row, spread: float) -> str:
    return f"{text} ± {row.quantity.text(spread)}" if math.isfinite(spread) and spread > 0 else text


def references_text(reading: Reading) -> str:
    """What to hold a number against, each with two decimals or, if small, two digits.

    Examples
    --------
    >>> references_text(Reading({"floor": 0.2613, "everybody alike": 0.0123}))
    'floor 0.26, everybody alike 0.012'
    """
    return ", ".join(f"{name} {_rounded(value)}" for name, value in reading.references.items())


def _rounded(value: float) -> str:
    if value == round(value):
        return f"{value + 0.0:.0f}"
    return f"{value:.2g}" if abs(value) < 0.1 else f"{value:.2f}"


def _good_value(row: Row, usual: str) -> str:
    """What to hope for, which is better where that is unusual and goes unsaid, and what to hold the numbers against."""
    better, good = row.quantity.better, row.quantity.good_value
    if better not in ("", usual) and (better, good) != ("closest to 0", "near 0"):
        good += f" ({better})"
    return "; ".join(filter(None, [good, references_text(row.reading)]))


def _undefined_note(rows: list[Row]) -> str:
    """Why some of the numbers are missing."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.quantity.undefined and any(math.isnan(value) for value in row.values):
            reasons.setdefault(row.quantity.undefined, []).append(row.quantity.title)
    listed = "; ".join(f"{', '.join(titles)}: {reason}" for reason, titles in reasons.items())
    return f"Undefined, shown as -. {listed}." if listed else ""
