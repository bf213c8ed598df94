"""All metrics and attacks at once, beside what the training set and uniform traces give."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ppmtf_jax.attacks.registry import ATTACKS
from ppmtf_jax.data.comparable import check_comparable
from ppmtf_jax.data.measurement import Comparison, Measurement, Quantity
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation.registry import METRICS
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.settings import build_settings

SYNTHETIC, TRAINING, UNIFORM = "synthetic", "training", "uniform"
RESERVED = (TRAINING, UNIFORM, "train", "test")
"""Names that no column of synthetic traces may have."""
UNIFORM_SEED = 0
JSON_KIND = "evaluation"
TABLE_COLUMNS = (
    "metric",
    "column",
    "value",
    "direction",
    "unit",
    "meaning",
    "title",
    "good_value",
    "undefined",
    "kind",
)


class Chosen(NamedTuple):
    """A metric or attack that is to be measured, at some settings.

    Attributes
    ----------
    measurement : Measurement
    settings : what `measurement.settings` says
    quantities : list of Quantity
        At these settings.
    """

    measurement: Measurement
    settings: Any
    quantities: list[Quantity]

    def measured(self, comparison: Comparison) -> dict[str, float]:
        """The numbers of a trace set, by the names of the quantities."""
        return self._named(self.measurement.measure(comparison, self.settings))

    def uniform(self, comparison: Comparison) -> dict[str, float]:
        """The exact numbers of uniform traces; none where they are not known."""
        uniform = self.measurement.uniform
        return self._named(uniform(comparison, self.settings)) if uniform else {}

    def _named(self, values: Sequence[float]) -> dict[str, float]:
        return {each.name: float(value) for each, value in zip(self.quantities, values, strict=True)}


@dataclass(frozen=True)
class EvaluationSettings:
    """What is measured, and how.

    Parameters
    ----------
    attacks : bool
        Also attack; then the sets' users matter.
    settings : dict
        Settings of single metrics and attacks by their names in `METRICS` and `ATTACKS`, each a mapping.

    Raises
    ------
    InputError
        Listing unknown metrics and attacks, and all settings that these refuse.

    Examples
    --------
    >>> settings = EvaluationSettings(attacks=False, settings={"tm_emd": {"n_bins": 10}})
    >>> [chosen.measurement.name for chosen in settings.chosen()]
    ['tm_emd', 'tp_tv', 'vf_tv']
    """

    attacks: bool = True
    settings: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        problems: list[Problem | str] = []
        for name, values in self.settings.items():
            if name not in METRICS and name not in ATTACKS:
                problems.append(Problem(f"metrics and attacks among {', '.join([*METRICS, *ATTACKS])}", repr(name)))
            elif not isinstance(values, Mapping):
                problems.append(Problem(f"{name} as a table of settings", repr(values)))
            else:
                problems += _refused(METRICS[name] if name in METRICS else ATTACKS[name], values)
        if problems:
            raise InputError("evaluation", problems)

    def chosen(self) -> list[Chosen]:
        """The metrics and, if wanted, the attacks, at these settings.

        Raises
        ------
        InputError
            Two of them give a quantity of the same name.
        """
        found = []
        for measurement in [*METRICS.values(), *(ATTACKS.values() if self.attacks else ())]:
            settings = build_settings(measurement.settings, self.settings.get(measurement.name, {}), measurement.name)
            found.append(Chosen(measurement, settings, measurement.described(settings)))
        names = [quantity.name for each in found for quantity in each.quantities]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            problem = Problem("quantities of different names", f"{', '.join(repeated)} more than once")
            raise InputError("metrics and attacks", [problem])
        return found

    def quantities(self) -> dict[str, Quantity]:
        """What `evaluate` gives numbers for, by name, in order.

        Examples
        --------
        >>> list(EvaluationSettings(attacks=False).quantities())
        ['tm_emd_y', 'tm_emd_x', 'tp_tv', 'tp_tv_top50', 'vf_tv']
        """
        return {quantity.name: quantity for each in self.chosen() for quantity in each.quantities}


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """What `evaluate` found.

    Parameters
    ----------
    table : DataFrame
        A row for each metric and column, with `TABLE_COLUMNS`: the metric's and the column's name, the number (NaN
        where it is undefined), and what is known of the metric, see `Quantity`; kind is "utility" or "privacy".

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=20, seed=0).traces.split_users(0.5, seed=0)
    >>> evaluation = evaluate(train, train, test, EvaluationSettings(attacks=False))
    >>> evaluation["tp_tv"] == evaluation.value("tp_tv", "training") < evaluation.value("tp_tv", "uniform")
    True
    >>> evaluation.columns
    ['synthetic', 'training', 'uniform']
    """

    table: pd.DataFrame

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics, in order; attacks come last."""
        return self.table["metric"].drop_duplicates().tolist()

    @property
    def columns(self) -> list[str]:
        """Names of the synthetic sets, "training" and "uniform"."""
        return self.table["column"].drop_duplicates().tolist()

    def value(self, metric: str, column: str | None = None) -> float:
        """A number; of the first synthetic set where no column is given.

        Raises
        ------
        InputError
            There is no such metric or column.
        """
        column = self.columns[0] if column is None else column
        wanted = ((metric, "metric", self.metrics), (column, "column", self.columns))
        problems = [
            Problem(f"a {what} among {', '.join(known)}", repr(n)) for n, what, known in wanted if n not in known
        ]
        if problems:
            raise InputError("evaluation", problems)
        found = (self.table["metric"] == metric) & (self.table["column"] == column)
        return float(self.table.loc[found, "value"].iloc[0])

    def __getitem__(self, metric: str) -> float:
        return self.value(metric)

    def rows(self) -> list[tuple[Quantity, list[float]]]:
        """What each metric is, and its numbers in the order of `columns`: for tables and pictures."""
        found = []
        for name, rows in self.table.groupby("metric", sort=False):
            about = {each.name: rows[each.name].iloc[0] for each in fields(Quantity) if each.name != "name"}
            found.append((Quantity(str(name), **about), rows["value"].tolist()))
        return found

    def to_json(self) -> str:
        """As JSON; an undefined number becomes null, for JSON knows no NaN."""
        kinds = self.table.drop_duplicates("metric").set_index("metric")["kind"]
        metrics = [
            asdict(quantity) | {"kind": kinds[quantity.name], "values": [_or_none(value) for value in values]}
            for quantity, values in self.rows()
        ]
        content = {"kind": JSON_KIND, "made_by": f"ppmtf_jax {version('ppmtf_jax')}"}
        content |= {"columns": self.columns, "metrics": metrics}
        return json.dumps(content, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, subject: str = "evaluation") -> Evaluation:
        """Read what `to_json` wrote.

        Parameters
        ----------
        text : str
        subject : str
            What the error calls it by, such as the name of the file.

        Raises
        ------
        InputError
            It is something else.
        """
        try:
            content = json.loads(text)
            if content["kind"] != JSON_KIND:
                raise ValueError(f"kind {content['kind']!r}")
            columns, metrics = content["columns"], content["metrics"]
            return cls(_table(columns, [_metric_from_json(metric) for metric in metrics]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            found = f"{type(error).__name__}: {error}"
            way_out = "Evaluate the traces again"
            raise InputError(subject, [Problem("an evaluation as JSON", found, way_out=way_out)]) from error

    def __repr__(self) -> str:
        rows = {quantity.title: values for quantity, values in self.rows()}
        return pd.DataFrame.from_dict(rows, orient="index", columns=self.columns).round(4).to_string()


def evaluate(
    synthetic: Traces | Mapping[str, Traces],
    train: Traces,
    test: Traces,
    settings: EvaluationSettings = EvaluationSettings(),
    *,
    progress: bool = False,
) -> Evaluation:
    """All metrics and attacks of synthetic sets, beside those of the training set and of uniform places.

    Utility is computed for each trace number of a synthetic set and averaged, as published. The trace numbers of the
    real sets only mark breaks, so these are taken whole, also where the training set is attacked: a user's traces
    together are then one. Attacks on uniform traces are attacks on the synthetic set with the most traces, every place
    replaced by a random one (seed 0): what an attacker gets from traces that depend on nobody.

    Parameters
    ----------
    synthetic : Traces, or mapping of names to Traces
        Of training users, not necessarily of all, on a grid with the slots of the real sets. One alone is the column
        "synthetic". Shares of visits have as many bins as one period of the first one's grid has instants.
    train, test : Traces
        Real traces of users who were, and were not, used to make the synthetic ones.
    settings : EvaluationSettings
    progress : bool
        Show a progress bar where there is a terminal.

    Returns
    -------
    Evaluation
        Its columns are the synthetic sets, "training" and "uniform".

    Raises
    ------
    InputError
        The numbers of slots or the place tables differ; there is no synthetic set, or one with the name of another
        column; or, if they are attacked, synthetic users are not training users, or users are in both real sets.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=20, seed=0).traces.split_users(0.5, seed=0)
    >>> half = train.select_users(np.arange(5))
    >>> evaluation = evaluate({"all": train, "half": half}, train, test)
    >>> evaluation.value("tp_tv", "all") < evaluation.value("tp_tv", "half")
    True
    """
    sets = {SYNTHETIC: synthetic} if isinstance(synthetic, Traces) else dict(synthetic)
    _check_columns(sets)
    check_comparable(**sets, train=train, test=test)
    chosen = settings.chosen()
    n_instants = next(iter(sets.values())).time_grid.one_period().n_instants
    real = Comparison(train, train, test, n_instants, pool_traces=True)
    tasks = _tasks(sets, real, chosen)
    values = {}
    n_steps = 1 + sum(task.n_steps for task in tasks.values())
    with progress_bar("evaluating", n_steps, show=progress, waits_for="") as advance:
        exact = {name: value for each in chosen for name, value in each.uniform(real).items()}
        advance(1)
        for name in list(tasks):
            # What was computed of a synthetic set is forgotten once that has been measured.
            values[name] = tasks.pop(name).values(advance)
    values[UNIFORM] |= exact
    return Evaluation(_table(list(values), _metrics_of(chosen, values)))


class _Task(NamedTuple):
    """A trace set, and what is to be measured of it."""

    comparison: Comparison
    of_numbers: list[Chosen]
    of_whole: list[Chosen]

    @classmethod
    def of(cls, comparison: Comparison, chosen: list[Chosen]) -> _Task:
        """What is to be measured of a set, some of each trace number; refuses sets that cannot be measured."""
        for each in chosen:
            if each.measurement.check is not None:
                each.measurement.check(comparison)
        by_number = [each.measurement.per_trace_number for each in chosen]
        return cls(
            comparison,
            [each for each, apart in zip(chosen, by_number, strict=True) if apart],
            [each for each, apart in zip(chosen, by_number, strict=True) if not apart],
        )

    @property
    def n_steps(self) -> int:
        return (self.comparison.n_parts if self.of_numbers else 0) + bool(self.of_whole)

    def values(self, advance: Callable[[int], None]) -> dict[str, float]:
        """Every number by its name; those of trace numbers are averaged."""
        found = []
        for part in self.comparison.parts() if self.of_numbers else ():
            found.append(_all_of(self.of_numbers, part))
            advance(1)
        values = {name: float(np.mean([each[name] for each in found])) for name in (found[0] if found else ())}
        if self.of_whole:
            values |= _all_of(self.of_whole, self.comparison)
            advance(1)
        return values


def _all_of(chosen: list[Chosen], comparison: Comparison) -> dict[str, float]:
    return {name: value for each in chosen for name, value in each.measured(comparison).items()}


def _tasks(sets: dict[str, Traces], real: Comparison, chosen: list[Chosen]) -> dict[str, _Task]:
    tasks = {name: _Task.of(real.of(traces), chosen) for name, traces in sets.items()}
    tasks[TRAINING] = _Task.of(real, chosen)
    sampled = [each for each in chosen if each.measurement.uniform is None]
    most = max(sets.values(), key=lambda traces: len(traces.trace_table()[0]))
    # Nothing is measured of it where all is known exactly.
    tasks[UNIFORM] = _Task.of(real.of(_with_uniform_places(most) if sampled else most), sampled)
    return tasks


def _check_columns(sets: dict[str, Traces]) -> None:
    taken = [name for name in sets if name in RESERVED]
    problems = [] if sets else [Problem("at least one synthetic trace set", "none")]
    if taken:
        problems.append(Problem(f"names of synthetic sets other than {', '.join(RESERVED)}", ", ".join(taken)))
    if problems:
        raise InputError("synthetic traces", problems)


def _with_uniform_places(traces: Traces) -> Traces:
    place = np.random.default_rng(UNIFORM_SEED).integers(traces.n_places, size=traces.n_events, dtype=np.int32)
    return replace(traces, place=place)


def _refused(measurement: Measurement, values: Mapping[str, Any]) -> list[str]:
    try:
        build_settings(measurement.settings, values, measurement.name)
    except InputError as error:
        return [f"{measurement.name}: {problem}" for problem in error.problems]
    return []


# The table

_Metric = tuple[Quantity, str, list[float]]
"""What a metric is, its kind, and its numbers in the order of the columns."""


def _metrics_of(chosen: list[Chosen], values: dict[str, dict[str, float]]) -> list[_Metric]:
    return [
        (quantity, each.measurement.kind, [column[quantity.name] for column in values.values()])
        for each in chosen
        for quantity in each.quantities
    ]


def _table(columns: list[str], metrics: list[_Metric]) -> pd.DataFrame:
    rows = [
        asdict(quantity) | {"metric": quantity.name, "column": column, "value": value, "kind": kind}
        for quantity, kind, values in metrics
        for column, value in zip(columns, values, strict=True)
    ]
    return pd.DataFrame(rows, columns=list(TABLE_COLUMNS))


def _metric_from_json(content: dict[str, Any]) -> _Metric:
    about = {name: value for name, value in content.items() if name not in ("kind", "values")}
    values = [math.nan if value is None else float(value) for value in content["values"]]
    return Quantity(**about), str(content["kind"]), values


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
