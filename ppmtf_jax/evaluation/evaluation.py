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
from ppmtf_jax.data.measurement import Comparison, Measurement, Quantity, Reading
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation.registry import METRICS
from ppmtf_jax.runtime.lineage import TEST_TRACES, TRAINING_TRACES, Lineage, column_of
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.settings import Settings, build_settings

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
    "references",
    "caveat",
    "alarm",
)
ALARMED = (
    "These traces tell of training users what traces of nobody would not. Release them only if you may accept that; "
    "a smoother model, fewer traces of each user, or more users who train it tell less"
)
UNIFORM_IS_BETTER = "Uniform scores better than Training on these data, so it tells nothing of a synthesizer"


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

    def applies(self, comparison: Comparison) -> bool:
        """Whether a synthetic set and the real ones have what is to be measured."""
        applies = self.measurement.applies
        return applies is None or applies(comparison)

    def measured(self, comparison: Comparison) -> dict[str, float]:
        """The numbers of a trace set, by the names of the quantities."""
        return self._named(self.measurement.measure(comparison, self.settings))

    def uniform(self, comparison: Comparison) -> dict[str, float]:
        """The exact numbers of uniform traces; none where they are not known."""
        uniform = self.measurement.uniform
        return self._named(uniform(comparison, self.settings)) if uniform else {}

    def readings(self, comparison: Comparison) -> dict[str, Reading]:
        """How the numbers are to be read, by the names of the quantities; from the comparison of the training set."""
        reading = self.measurement.reading
        found = reading(comparison, self.settings) if reading else [Reading()] * len(self.quantities)
        return {each.name: about for each, about in zip(self.quantities, found, strict=True)}

    def _named(self, values: Sequence[float]) -> dict[str, float]:
        return {each.name: float(value) for each, value in zip(self.quantities, values, strict=True)}


@dataclass(frozen=True)
class EvaluationSettings(Settings, subject="evaluation"):
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
    ['tp_tv', 'tm_emd', 'vf_tv', 'stay_share', 'move_interval_w1_h', 'jump_tv', 'radius_w1_km', 'od_tv', 'row_tv',
     'distinct_w1', 'top_place_w1', 'window_vf_tv', 'group_fidelity', 'friend_meetings', 'meeting_places',
     'friend_graph']
    """

    attacks: bool = True
    settings: dict = field(default_factory=dict)

    def problems(self) -> list[Problem | str]:
        """Metrics and attacks that are unknown, and settings that they refuse."""
        problems: list[Problem | str] = []
        for name, values in self.settings.items():
            if name not in METRICS and name not in ATTACKS:
                problems.append(Problem(f"metrics and attacks among {', '.join([*METRICS, *ATTACKS])}", repr(name)))
            elif not isinstance(values, Mapping):
                problems.append(Problem(f"{name} as a table of settings", repr(values)))
            else:
                problems += _refused(METRICS[name] if name in METRICS else ATTACKS[name], values)
        return problems

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
        """What `evaluate` gives numbers for, by name, in order; some only of sets that have what they look at.

        Examples
        --------
        >>> list(EvaluationSettings(attacks=False).quantities())[:5]
        ['tp_tv', 'tp_tv_top50', 'tm_emd_y', 'tm_emd_x', 'vf_tv']
        """
        return {quantity.name: quantity for each in self.chosen() for quantity in each.quantities}


class Row(NamedTuple):
    """What an evaluation says of a metric.

    Attributes
    ----------
    quantity : Quantity
    kind : {"utility", "privacy"}
    values : list of float
        In the order of the columns.
    reading : Reading
        What to hold them against, and why they may say little on these data.
    """

    quantity: Quantity
    kind: str
    values: list[float]
    reading: Reading = Reading()

    @property
    def title(self) -> str:
        """As printed: with a dagger where there is a caveat."""
        return self.quantity.title + (" †" if self.reading.caveat else "")

    def is_alarming(self, column: str, value: float) -> bool:
        """Whether a number is one of synthetic traces, and worse than chance."""
        return column not in RESERVED and value > self.reading.alarm

    def texts(self, columns: Sequence[str], spreads: Sequence[float] | None = None) -> list[str]:
        """The numbers as printed: marked where they alarm, each with its spread where that is given and known.

        Examples
        --------
        >>> row = Row(Quantity("b", "B", "", "", "lower", ""), "privacy", [0.4, 0.9], Reading(alarm=0.25))
        >>> row.texts(["synthetic", "training"])
        ['! 0.4000', '0.9000']
        """

        def text(column: str, value: float, spread: float) -> str:
            number = self.quantity.text(value)
            if math.isfinite(spread) and spread > 0:
                number += f" ± {self.quantity.text(spread)}"
            return ("! " if self.is_alarming(column, value) else "") + number

        unknown = [math.nan] * len(self.values)
        return [text(*each) for each in zip(columns, self.values, spreads or unknown, strict=True)]


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """What `evaluate` found.

    Parameters
    ----------
    table : DataFrame
        A row for each metric and column, with `TABLE_COLUMNS`: the metric's and the column's name, the number (NaN
        where it is undefined), and what is known of the metric, see `Quantity`; kind is "utility" or "privacy". How the
        metric is to be read on these data is in references, a dictionary, caveat and alarm, see `Reading`.
    lineage : dict of str to str
        Digests of the traces that were measured; of numbers that were given, nothing.

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
    lineage: Lineage = field(default_factory=dict)

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

    def rows(self) -> list[Row]:
        """What each metric is, and its numbers in the order of `columns`: for tables and pictures."""
        found = []
        for name, rows in self.table.groupby("metric", sort=False):
            first = rows.iloc[0]
            quantity = Quantity(str(name), **{each.name: first[each.name] for each in fields(Quantity)[1:]})
            reading = Reading(first["references"], first["caveat"], float(first["alarm"]))
            found.append(Row(quantity, first["kind"], rows["value"].tolist(), reading))
        return found

    def caveats(self) -> dict[str, list[str]]:
        """Why some metrics say little on these data: the titles of the metrics, by reason.

        Examples
        --------
        >>> row = Row(Quantity("a", "A", "", "", "lower", ""), "utility", [0.0], Reading(caveat="Too few users"))
        >>> Evaluation.of_rows(["synthetic"], [row]).caveats()
        {'Too few users': ['A']}
        """
        found: dict[str, list[str]] = {}
        for row in self.rows():
            for reason in row.reading.caveat.splitlines():
                found.setdefault(reason.rstrip("."), []).append(row.quantity.title)
        return found

    def alarms(self) -> dict[str, dict[str, float]]:
        """The numbers of synthetic sets that are worse than chance, by metric and column.

        Examples
        --------
        >>> row = Row(Quantity("a", "A", "", "", "lower", ""), "privacy", [0.6, 0.9], Reading(alarm=0.5))
        >>> Evaluation.of_rows(["synthetic", "training"], [row]).alarms()
        {'a': {'synthetic': 0.6}}
        """
        found = {}
        for row in self.rows():
            values = zip(self.columns, row.values, strict=True)
            above = {column: value for column, value in values if row.is_alarming(column, value)}
            if above:
                found[row.quantity.name] = above
        return found

    @classmethod
    def of_rows(cls, columns: Sequence[str], rows: Sequence[Row], lineage: Lineage | None = None) -> Evaluation:
        """An evaluation of given numbers: the opposite of `rows`."""
        table = [
            asdict(row.quantity) | asdict(row.reading) | {"metric": row.quantity.name, "kind": row.kind}
            | {"column": column, "value": value}
            for row in rows
            for column, value in zip(columns, row.values, strict=True)
        ]  # fmt: skip
        return cls(pd.DataFrame(table, columns=list(TABLE_COLUMNS)), lineage or {})

    def to_json(self) -> str:
        """As JSON; an undefined number becomes null, for JSON knows no NaN."""
        metrics = [
            asdict(row.quantity) | {"kind": row.kind, "values": [_or_none(each) for each in row.values]}
            | asdict(row.reading) | {"alarm": _or_none(row.reading.alarm)}
            for row in self.rows()
        ]  # fmt: skip
        content = {"kind": JSON_KIND, "made_by": f"ppmtf_jax {version('ppmtf_jax')}"}
        content |= {"made_from": dict(self.lineage), "columns": self.columns, "metrics": metrics}
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
            rows = [_row_from_json(metric) for metric in content["metrics"]]
            return cls.of_rows(content["columns"], rows, dict(content.get("made_from", {})))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            found = f"{type(error).__name__}: {error}"
            way_out = "Evaluate the traces again"
            raise InputError(subject, [Problem("an evaluation as JSON", found, way_out=way_out)]) from error

    def __repr__(self) -> str:
        numbers = {row.title: [row.quantity.text(value) for value in row.values] for row in self.rows()}
        table = pd.DataFrame.from_dict(numbers, orient="index", columns=self.columns)
        return "\n".join([table.to_string(), *remarks(self)])


def remarks(evaluation: Evaluation) -> list[str]:
    """What to print below the numbers: a line for each reason why some say little, and one on those that alarm.

    Examples
    --------
    >>> row = Row(Quantity("a", "A", "", "", "lower", ""), "utility", [0.0], Reading(caveat="Too few users"))
    >>> remarks(Evaluation.of_rows(["synthetic"], [row]))
    ['† A: Too few users.']
    >>> row = Row(Quantity("b", "B", "", "", "lower", ""), "privacy", [0.4], Reading(alarm=0.25))
    >>> remarks(Evaluation.of_rows(["synthetic"], [row]))[0]
    '! Too high: B (synthetic 0.4000; alarms above 0.25). These traces tell of training users what traces of ...'
    """
    found = [f"† {', '.join(titles)}: {reason}." for reason, titles in evaluation.caveats().items()]
    rows, above = {row.quantity.name: row for row in evaluation.rows()}, []
    for name, values in evaluation.alarms().items():
        quantity, limit = rows[name].quantity, rows[name].reading.alarm
        numbers = ", ".join(f"{column} {quantity.text(value)}" for column, value in values.items())
        above.append(f"{quantity.title} ({numbers}; alarms above {limit:.2f})")
    return [*found, f"! Too high: {'; '.join(above)}. {ALARMED}."] if above else found


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
    together are then one. Friends are measured where synthetic and test users have friendships. Attacks on uniform
    traces are attacks on the synthetic set with the most traces, every place replaced by a random one (seed 0): what an
    attacker gets from traces that depend on nobody.

    Parameters
    ----------
    synthetic : Traces, or mapping of names to Traces
        Of training users, not necessarily of all, or of nobody (`Traces.of_nobody`), who then cannot be re-identified;
        on a grid with the slots of the real sets. One alone is the column "synthetic". Shares of visits have as many
        bins as one period of the first one's grid has instants.
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
    n_instants = next(iter(sets.values())).time_grid.one_period().n_instants
    real = Comparison(train, train, test, n_instants, pool_traces=True)
    chosen = [each for each in settings.chosen() if any(each.applies(real.of(traces)) for traces in sets.values())]
    tasks = _tasks(sets, real, chosen)
    values = {}
    n_steps = 1 + sum(task.n_steps for task in tasks.values())
    with progress_bar("evaluating", n_steps, show=progress, waits_for="") as advance:
        exact = {name: value for each in chosen for name, value in each.uniform(real).items()}
        readings = {name: reading for each in chosen for name, reading in each.readings(real).items()}
        advance(1)
        for name in list(tasks):
            # What was computed of a synthetic set is forgotten once that has been measured.
            values[name] = tasks.pop(name).values(advance)
    values[UNIFORM] |= exact
    lineage = {TRAINING_TRACES: train.digest, TEST_TRACES: test.digest}
    lineage |= {column_of(name): traces.digest for name, traces in sets.items()}
    return Evaluation.of_rows(list(values), _rows_of(chosen, values, readings), lineage)


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


def _rows_of(chosen: list[Chosen], values: dict[str, dict[str, float]], readings: dict[str, Reading]) -> list[Row]:
    return [
        Row(
            quantity,
            each.measurement.kind,
            [column[quantity.name] for column in values.values()],
            _completed(readings[quantity.name], each.measurement.kind == "utility" and _fails(quantity, values)),
        )
        for each in chosen
        for quantity in each.quantities
    ]


def _fails(quantity: Quantity, values: dict[str, dict[str, float]]) -> bool:
    """Whether traces that know nothing score better than real ones."""
    return quantity.prefers(values[UNIFORM][quantity.name], values[TRAINING][quantity.name])


def _completed(reading: Reading, uniform_is_better: bool) -> Reading:
    """With what is known only when all is measured, and without references that are undefined."""
    reasons = [UNIFORM_IS_BETTER] * uniform_is_better + reading.caveat.splitlines()
    references = {name: float(value) for name, value in reading.references.items() if math.isfinite(value)}
    return Reading(references, "\n".join(reasons), reading.alarm)


def _row_from_json(content: dict[str, Any]) -> Row:
    about = dict(content)
    # Evaluations of earlier versions say little or nothing of how they are to be read.
    references = {str(name): float(value) for name, value in about.pop("references", {}).items()}
    alarm = about.pop("alarm", None)
    reading = Reading(references, str(about.pop("caveat", "")), math.inf if alarm is None else float(alarm))
    kind = str(about.pop("kind"))
    values = [math.nan if value is None else float(value) for value in about.pop("values")]
    return Row(Quantity(**about), kind, values, reading)


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
