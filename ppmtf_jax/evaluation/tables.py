"""The numbers of an evaluation as a table for a terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ppmtf_jax.data.measurement import Interpretation
from ppmtf_jax.evaluation.results import Evaluation, Row

MIN_TITLE_WIDTH = 12
UNBOUNDED = 1000


class TableOrList:
    """The table of `format_table`, or a list of its numbers where the terminal is too narrow for the table."""

    def __init__(self, evaluation: Evaluation, *, note: str = ""):
        self.table = format_table(evaluation, note=note)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table | Text]:
        """The table if it fits, otherwise the list."""
        yield self.table if fits(self.table, console, options) else self._list()

    def _list(self) -> Text:
        names = [str(column.header) for column in self.table.columns][1:-1]
        titles, *columns, goods = ([str(cell) for cell in column.cells] for column in self.table.columns)
        name_width, width = max(map(len, names)), max(len(text) for column in columns for text in column)
        lines = [str(self.table.title)]
        for row, (title, good) in enumerate(zip(titles, goods, strict=True)):
            lines += ["", f"{title} ({good})"]
            lines += [
                f"  {name:<{name_width}} {column[row]:>{width + 2}}"
                for name, column in zip(names, columns, strict=True)
            ]
        return Text("\n".join([*lines, *(["", str(self.table.caption)] if self.table.caption else [])]))


def fits(table: Table, console: Console, options: ConsoleOptions) -> bool:
    """Whether a table can be printed without cutting off a word or a number."""
    return Measurement.get(console, options.update(width=UNBOUNDED), table).minimum <= options.max_width


def format_table(evaluation: Evaluation, *, note: str = "", spread: Evaluation | None = None) -> Table:
    """A table of all metrics of synthetic sets, Training and Uniform; print it with `rich.print`.

    The last column has a good value and the references on these data. Metrics that say little on these data are dim and
    have a dagger; numbers of synthetic traces that are worse than chance have an exclamation mark. The reasons are
    printed below the table. `note`: a sentence below the table. `spread`: standard deviations of the same metrics and
    columns, printed after a plus-minus sign.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> from ppmtf_jax import evaluate
    >>> train, test = toy_city(n_users=20, seed=0).traces.split_users(0.5, seed=0)
    >>> table = format_table(evaluate(train, train, test))
    >>> [column.header for column in table.columns]
    ['Metric', 'Synthetic', 'Training', 'Uniform', 'A good value']
    """
    rows = evaluation.rows
    directions = Counter(row.quantity.better for row in rows if row.quantity.better)
    usual = directions.most_common(1)[0][0] if directions else ""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, caption_justify="left")
    table.title = "Utility and privacy" + (f": {usual} is better" if usual else "")
    table.title += ", unless said otherwise" if len(directions) > 1 else ""
    table.caption = "\n".join([*filter(None, [note, _undefined_note(rows)]), *evaluation.remarks()]) or None
    apart = {row.quantity.name: row.numbers for row in spread.rows} if spread else {}
    numbers = [row.texts(apart.get(row.quantity.name)) for row in rows]
    table.add_column("Metric", min_width=MIN_TITLE_WIDTH, overflow="fold")
    for name, of_column in zip(evaluation.columns, zip(*numbers, strict=True), strict=True):
        # A long name may take several lines, a number may not.
        width = max(map(len, of_column), default=0)
        table.add_column(name[:1].upper() + name[1:], justify="right", min_width=width)
    table.add_column("A good value")
    for _, of_kind in groupby(zip(rows, numbers, strict=True), key=lambda pair: pair[0].kind):
        for row, texts in of_kind:
            table.add_row(row.title, *texts, _good_value(row, usual), style="dim" if row.reading.caveats else None)
        table.add_section()
    return table


def references_text(reading: Interpretation) -> str:
    """References and the alarm of a number, each with two decimals or, if small, two digits."""
    return ", ".join(f"{name} {_rounded(value)}" for name, value in reading.held_against().items())


def _rounded(value: float) -> str:
    if value == round(value):
        return f"{value + 0.0:.0f}"
    return f"{value:.2g}" if abs(value) < 0.1 else f"{value:.2f}"


def _good_value(row: Row, usual: str) -> str:
    """A good value, the direction where it is unusual, and the references."""
    better, good = row.quantity.better, row.quantity.good_value
    if better not in ("", usual) and (better, good) != ("closest to 0", "near 0"):
        good += f" ({better})"
    return "; ".join(filter(None, [good, references_text(row.reading)]))


def _undefined_note(rows: list[Row]) -> str:
    """Why some numbers are missing."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.quantity.undefined and any(map(math.isnan, row.numbers.values())):
            reasons.setdefault(row.quantity.undefined, []).append(row.quantity.title)
    listed = "; ".join(f"{', '.join(titles)}: {reason}" for reason, titles in reasons.items())
    return f"Undefined, shown as -. {listed}." if listed else ""
