"""The numbers of an evaluation: its rows, remarks on them, JSON, and a table for a terminal."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from importlib.metadata import version
from itertools import groupby
from typing import Any, NamedTuple

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ppmtf_jax.data.description import finite_or_none
from ppmtf_jax.data.measurement import Caveat, Interpretation, MetricInfo
from ppmtf_jax.errors import InputError, Problem, raise_any
from ppmtf_jax.runtime.folders import Lineage

REAL, TRAINING, SYNTHETIC, UNIFORM = "real", "training", "synthetic", "uniform"
"""Trace sets of a comparison; "real" are the test users, whose data no synthesizer saw."""
TEST = "test"
"""The test users where several sets are named, such as for `ppmtf attack`."""
RESERVED = (TRAINING, UNIFORM, "train", TEST)
"""Names that no column of synthetic traces may have."""
JSON_KIND = "evaluation"
MIN_TITLE_WIDTH, UNBOUNDED = 12, 1000
ALARMED = (
    "These traces reveal more about training users than chance explains. Release them only if you accept that; a "
    "smoother model, fewer traces of each user, or more training users reveal less"
)


class Row(NamedTuple):
    """A metric, its kind ("utility" or "privacy"), its numbers by column, and how to read them."""

    quantity: MetricInfo
    kind: str
    numbers: dict[str, float]
    reading: Interpretation = Interpretation()

    @property
    def title(self) -> str:
        """The printed title: with a dagger if there is a caveat."""
        return self.quantity.title + (" †" if self.reading.caveats else "")

    def is_alarming(self, column: str, value: float) -> bool:
        """Whether a number belongs to synthetic traces and is worse than chance."""
        return column not in RESERVED and value > self.reading.alarm

    def texts(self, spread: Mapping[str, float] | None = None) -> list[str]:
        """The printed numbers: with "!" if they are alarming, and with their spread if it is known."""

        def text(column: str, value: float) -> str:
            number, apart = self.quantity.text(value), (spread or {}).get(column, math.nan)
            if math.isfinite(apart) and apart > 0:
                number += f" ± {self.quantity.text(apart)}"
            return ("! " if self.is_alarming(column, value) else "") + number

        return [text(*each) for each in self.numbers.items()]


def sample_remark(sampled: Mapping[str, int]) -> str:
    """A line to print below the numbers: of which sets only a sample was measured, and how many users they have."""
    whole = ", ".join(f"{name} ({number:,} users)" for name, number in sampled.items())
    return f"Only a random sample was measured of {whole}."


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The result of `evaluate`.

    Parameters
    ----------
    rows : list of Row
        Each metric with its numbers: of the synthetic sets, "training" and "uniform"; attacks come last.
    lineage : dict of str to str
        Digests of the measured traces; empty if the evaluation was built from given numbers.
    sampled : dict of str to int
        Names of the sets of which only a random sample of users was measured, and numbers of users of the whole sets.

    Examples
    --------
    >>> from ppmtf_jax import EvaluationSettings, evaluate
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=20, seed=0).traces.split_users(0.5, seed=0)
    >>> evaluation = evaluate(train, train, test, EvaluationSettings(attacks=False))
    >>> evaluation["tp_tv"] == evaluation.value("tp_tv", "training") < evaluation.value("tp_tv", "uniform")
    True
    >>> evaluation.columns
    ['synthetic', 'training', 'uniform']
    """

    rows: list[Row]
    lineage: Lineage = field(default_factory=dict)
    sampled: dict[str, int] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """Names of the synthetic sets, "training" and "uniform": all rows have the same."""
        return list(self.rows[0].numbers) if self.rows else []

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics, in order."""
        return [row.quantity.name for row in self.rows]

    def value(self, metric: str, column: str | None = None) -> float:
        """The number of a metric in a column, by default in the column of the first synthetic set.

        Raises `InputError`: there is no such metric or column.
        """
        column = self.columns[0] if column is None else column
        wanted = ((metric, "metric", self.metrics), (column, "column", self.columns))
        problems = [
            Problem(f"a {what} among {', '.join(known)}", repr(n)) for n, what, known in wanted if n not in known
        ]
        raise_any("evaluation", problems)
        return self.rows[self.metrics.index(metric)].numbers[column]

    def __getitem__(self, metric: str) -> float:
        return self.value(metric)

    def to_frame(self) -> pd.DataFrame:
        """A row for each metric and column: metric, column, value, kind, and what is known of the metric.

        The value is NaN if it is undefined. See `MetricInfo` and `Interpretation` for the other columns.
        """
        table = [
            {"metric": row.quantity.name, "column": column, "value": value, "kind": row.kind}
            | vars(row.quantity) | vars(row.reading)
            for row in self.rows
            for column, value in row.numbers.items()
        ]  # fmt: skip
        return pd.DataFrame(table).drop(columns="name", errors="ignore")

    def caveats(self) -> dict[Caveat, list[str]]:
        """Titles of the metrics that say little on these data, by reason."""
        found: dict[Caveat, list[str]] = {}
        for row in self.rows:
            for caveat in row.reading.caveats:
                found.setdefault(caveat, []).append(row.quantity.title)
        return found

    def alarms(self) -> dict[str, dict[str, float]]:
        """The numbers of synthetic sets that are worse than chance, by metric and column."""
        found = {}
        for row in self.rows:
            above = {column: value for column, value in row.numbers.items() if row.is_alarming(column, value)}
            if above:
                found[row.quantity.name] = above
        return found

    def remarks(self) -> list[str]:
        """Lines to print below the numbers: one on samples, one for each caveat, and one for the numbers that alarm."""
        found = [f"† {', '.join(titles)}: {caveat.text}." for caveat, titles in self.caveats().items()]
        if self.sampled:
            found.insert(0, sample_remark(self.sampled))
        rows, above = {row.quantity.name: row for row in self.rows}, []
        for name, values in self.alarms().items():
            quantity, limit = rows[name].quantity, rows[name].reading.alarm
            numbers = ", ".join(f"{column} {quantity.text(value)}" for column, value in values.items())
            above.append(f"{quantity.title} ({numbers}; alarms above {limit:.2f})")
        return [*found, f"! Too high: {'; '.join(above)}. {ALARMED}."] if above else found

    def to_json(self) -> str:
        """As JSON; an undefined number becomes null, because JSON has no NaN."""
        metrics = [
            vars(row.quantity) | {"kind": row.kind}
            | {"numbers": finite_or_none(row.numbers)}
            | {"references": row.reading.references, "caveats": [each._asdict() for each in row.reading.caveats]}
            | {"alarm": finite_or_none(row.reading.alarm)}
            for row in self.rows
        ]  # fmt: skip
        content = {"kind": JSON_KIND, "made_by": f"ppmtf_jax {version('ppmtf_jax')}"}
        content |= {"made_from": dict(self.lineage)} | ({"sampled": self.sampled} if self.sampled else {})
        content |= {"metrics": metrics}
        return json.dumps(content, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, subject: str = "evaluation") -> Evaluation:
        """Read the result of `to_json`.

        `subject`: name of the file, for the error. Raises `InputError`: the text is no evaluation.
        """
        try:
            content = json.loads(text)
            if content["kind"] != JSON_KIND:
                raise ValueError(f"kind {content['kind']!r}")
            rows = [_row_from_json(metric) for metric in content["metrics"]]
            about = (dict(content.get(name, {})) for name in ("made_from", "sampled"))
            return cls(rows, *about)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            found = f"{type(error).__name__}: {error}"
            way_out = "Evaluate the traces again"
            raise InputError(subject, [Problem("an evaluation as JSON", found, way_out=way_out)]) from error

    def __repr__(self) -> str:
        numbers = {row.title: [row.quantity.text(value) for value in row.numbers.values()] for row in self.rows}
        table = pd.DataFrame.from_dict(numbers, orient="index", columns=self.columns)
        return "\n".join([table.to_string(), *self.remarks()])


def _row_from_json(content: dict[str, Any]) -> Row:
    about = {each.name: content[each.name] for each in fields(MetricInfo)}
    quantity = MetricInfo(**about | {"uses": tuple(about["uses"])})
    references = {str(name): float(value) for name, value in content["references"].items()}
    caveats = tuple(Caveat(**each) for each in content["caveats"])
    alarm = math.inf if content["alarm"] is None else float(content["alarm"])
    numbers = {str(name): math.nan if value is None else float(value) for name, value in content["numbers"].items()}
    return Row(quantity, str(content["kind"]), numbers, Interpretation(references, caveats, alarm))


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
