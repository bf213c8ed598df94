"""The numbers of an evaluation: a table, its rows, remarks on them, and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.metadata import version
from typing import Any, NamedTuple

import pandas as pd

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
            | {"numbers": {column: _or_none(value) for column, value in row.numbers.items()}}
            | {"references": row.reading.references, "caveats": [each._asdict() for each in row.reading.caveats]}
            | {"alarm": _or_none(row.reading.alarm)}
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


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
