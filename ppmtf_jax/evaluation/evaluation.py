"""All metrics and attacks of synthetic sets, of the training set, and of uniform traces."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ppmtf_jax.attacks.registry import ATTACKS
from ppmtf_jax.data.comparable import check_comparable, index_of_ids
from ppmtf_jax.data.measurement import Comparison, Interpretation, Measurement, MetricInfo
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem, collecting, raise_any
from ppmtf_jax.evaluation.judgement import UNIFORM_IS_BETTER
from ppmtf_jax.evaluation.registry import METRICS
from ppmtf_jax.evaluation.results import RESERVED, TEST, TRAINING, UNIFORM, Evaluation, Row
from ppmtf_jax.runtime.folders import TEST_TRACES, TRAINING_TRACES, column_of
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.runtime.threads import in_single_precision
from ppmtf_jax.settings import Settings, build_settings
from ppmtf_jax.streams import Stage, numpy_stream

MAX_USERS = 250_000
"""Of larger sets, a random sample of this size is measured."""
SEED = 0


class ConfiguredMeasurement(NamedTuple):
    """A metric or attack with its settings, and the quantities that it gives at these settings."""

    measurement: Measurement
    settings: Any
    quantities: list[MetricInfo]

    def applies(self, comparison: Comparison) -> bool:
        """Whether the sets have the measured data, such as friendships."""
        return self.measurement.applies is None or self.measurement.applies(comparison)

    def by_name(self, function: Callable[[Comparison, Any], Sequence[Any]] | None, comparison: Comparison) -> dict:
        """What a function of the measurement gives for each quantity, by its name; empty without the function."""
        if function is None:
            return {}
        names = [each.name for each in self.quantities]
        return dict(zip(names, function(comparison, self.settings), strict=True))


@dataclass(frozen=True)
class EvaluationSettings(Settings, subject="evaluation"):
    """The metrics and attacks of an evaluation, and their settings.

    Parameters
    ----------
    attacks : bool
        Run the attacks too; they compare the users of the sets.
    settings : dict
        Settings by metric or attack: a mapping for each name in `METRICS` or `ATTACKS`.

    Examples
    --------
    >>> settings = EvaluationSettings(attacks=False, settings={"tp_tv": {"n_top": 10}})
    >>> list(settings.quantities())[:3]
    ['tp_tv', 'tp_tv_top10', 'tm_emd_y']
    """

    attacks: bool = True
    settings: dict = field(default_factory=dict)

    def problems(self) -> list[Problem | str]:
        """Problems for unknown metrics and attacks, and for settings that a metric or attack refuses."""
        problems: list[Problem | str] = []
        for name, values in self.settings.items():
            if name not in METRICS and name not in ATTACKS:
                problems.append(Problem(f"metrics and attacks among {', '.join([*METRICS, *ATTACKS])}", repr(name)))
            elif not isinstance(values, Mapping):
                problems.append(Problem(f"{name} as a table of settings", repr(values)))
            else:
                measurement = METRICS[name] if name in METRICS else ATTACKS[name]
                with collecting(problems, f"{name}: "):
                    build_settings(measurement.settings, values, name)
        return problems

    def measurements(self) -> list[ConfiguredMeasurement]:
        """The metrics and, if wanted, the attacks, at these settings; refuses two quantities of the same name."""
        found = []
        for measurement in [*METRICS.values(), *(ATTACKS.values() if self.attacks else ())]:
            settings = build_settings(measurement.settings, self.settings.get(measurement.name, {}), measurement.name)
            found.append(ConfiguredMeasurement(measurement, settings, measurement.described(settings)))
        n_uses = Counter(quantity.name for each in found for quantity in each.quantities)
        if repeated := sorted(name for name, n in n_uses.items() if n > 1):
            problem = Problem("quantities of different names", f"{', '.join(repeated)} more than once")
            raise InputError("metrics and attacks", [problem])
        return found

    def quantities(self) -> dict[str, MetricInfo]:
        """The quantities that `evaluate` can give, by name, in order; some need sets with friendships or categories."""
        return {quantity.name: quantity for each in self.measurements() for quantity in each.quantities}


@in_single_precision
def evaluate(
    synthetic: Traces | Mapping[str, Traces],
    train: Traces,
    test: Traces,
    settings: EvaluationSettings = EvaluationSettings(),
    *,
    progress: bool = False,
) -> Evaluation:
    """Compute all metrics and attacks of synthetic sets, of the training set, and of uniform traces.

    The published metrics and the meetings of friends are computed for each trace number of a synthetic set and
    averaged, as in the publication; if users have different numbers of traces, `part_of_trace` says what is measured
    together. If traces have gaps, the population and the transitions are those of all traces. In the real sets, trace
    numbers only mark breaks: all traces of a real user count as one trace, also in attacks on the training set. The
    metrics of friends need friendships of synthetic and of test users. Metrics of one period and of longer windows
    compare parts of traces (see `metrics.windows`); the windows are as long as the longest synthetic traces. Uniform
    traces are the synthetic set with the longest traces (of several, the one with the most), with every place replaced
    by a random place (seed 0). Attacks on uniform traces show what an attacker finds if the places depend on no user.

    Of a set of more than `MAX_USERS` users, a random sample of this size is measured; see `sample_of_users`.

    Raises `InputError`: slots or place tables differ; there is no synthetic set, or its name is reserved for another
    column; or, with attacks, a synthetic user is not a training user, or a user is in both real sets.

    Parameters
    ----------
    synthetic : Traces, or mapping of names to traces
        Traces of all or some training users, or of invented users (`Traces.of_nobody`), who cannot be re-identified.
        The time grid has the slots of the real sets. A single set becomes the column "synthetic".
    train, test : Traces
        Real traces of users whose data were used (train), and not used (test), to make the synthetic traces.

    Returns
    -------
    Evaluation
        Its columns are the synthetic sets, "training" and "uniform".

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=20, seed=0).traces.split_users(0.5, seed=0)
    >>> half = train.select_users(np.arange(5))
    >>> evaluation = evaluate({"all": train, "half": half}, train, test)
    >>> evaluation.value("tp_tv", "all") < evaluation.value("tp_tv", "half")
    True
    """
    whole_sets = {"synthetic": synthetic} if isinstance(synthetic, Traces) else dict(synthetic)
    problems: list[Problem | str] = [] if whole_sets else [Problem("at least one synthetic trace set", "none")]
    if taken := [name for name in whole_sets if name in RESERVED]:
        problems.append(Problem(f"names of synthetic sets other than {', '.join(RESERVED)}", ", ".join(taken)))
    raise_any("synthetic traces", problems)
    lineage = {TRAINING_TRACES: train.digest, TEST_TRACES: test.digest}
    lineage |= {column_of(name): traces.digest for name, traces in whole_sets.items()}
    sets, sampled = sample_of_users({TRAINING: train, TEST: test, **whole_sets})
    train, test = sets.pop(TRAINING), sets.pop(TEST)
    check_comparable(**sets, train=train, test=test)
    n_instants = max(traces.time_grid.n_instants for traces in sets.values())
    real = Comparison(train, train, test, n_instants, pool_traces=True)
    wanted = [each for each in settings.measurements() if any(each.applies(real.of(set_)) for set_ in sets.values())]
    # If all numbers of uniform traces are known exactly, no uniform traces are drawn.
    drawn = [each for each in wanted if each.measurement.uniform is None]
    most = max(sets.values(), key=lambda traces: (traces.time_grid.n_instants, len(traces.trace_table()[0])))
    columns = {name: (real.of(traces), wanted) for name, traces in sets.items()} | {TRAINING: (real, wanted)}
    columns[UNIFORM] = real.of(uniform_places(most) if drawn else most), drawn
    # Some measurements are made for each trace number and averaged, others for the whole set.
    tasks = [
        (column, comparison, by_number, chosen)
        for column, (comparison, of_column) in columns.items()
        for by_number in (True, False)
        if (chosen := [each for each in of_column if each.measurement.is_by_number(comparison.traces) == by_number])
    ]
    for _, comparison, _, chosen in tasks:
        for each in chosen:
            if each.measurement.check is not None:
                each.measurement.check(comparison)
    del columns
    values: dict[str, dict[str, float]] = {name: {} for name in (*sets, TRAINING, UNIFORM)}
    readings: dict[str, Interpretation] = {}
    n_steps = 1 + sum(comparison.n_parts if by_number else 1 for _, comparison, by_number, _ in tasks)
    with progress_bar("evaluating", n_steps, show=progress, waits_for="") as advance:
        for each in wanted:
            exact = each.by_name(each.measurement.uniform, real)
            values[UNIFORM] |= {name: float(value) for name, value in exact.items()}
            readings |= each.by_name(each.measurement.reading, real)
        advance(1)
        while tasks:
            # `pop` frees the statistics of a synthetic set after its measurement.
            column, comparison, by_number, chosen = tasks.pop(0)
            found: list[dict[str, float]] = []
            for part in comparison.parts() if by_number else (comparison,):
                numbers = [each.by_name(each.measurement.measure, part) for each in chosen]
                found.append({name: value for each in numbers for name, value in each.items()})
                advance(1)
            values[column] |= {name: float(np.mean([each[name] for each in found])) for name in found[0]}
    rows = []
    for kind, quantity in ((each.measurement.kind, quantity) for each in wanted for quantity in each.quantities):
        row = {column: of_column[quantity.name] for column, of_column in values.items()}
        reading = readings.get(quantity.name, Interpretation())
        references = {name: float(value) for name, value in reading.references.items() if math.isfinite(value)}
        is_better = kind == "utility" and quantity.prefers(row[UNIFORM], row[TRAINING])
        caveats = ((UNIFORM_IS_BETTER,) if is_better else ()) + reading.caveats
        rows.append(Row(quantity, kind, row, replace(reading, references=references, caveats=caveats)))
    return Evaluation(rows, lineage, sampled)


def sample_of_users(sets: Mapping[str, Traces]) -> tuple[dict[str, Traces], dict[str, int]]:
    """The sets in memory, each with all users or `MAX_USERS` drawn at random (seed 0), and sizes of the sampled sets.

    The real sets are those named "training" and "test"; all others are synthetic. Attacks need the synthetic and the
    real traces of the same users. So if there are more than `MAX_USERS` training users, synthetic sets made from
    training users are reduced to the sampled training users. The sample begins with those who are in synthetic sets of
    at most `MAX_USERS` users. The sizes are numbers of users of the whole sets, for those that were sampled.

    The standard error of a share of n sampled users is at most .5 / sqrt(n). A distance of two distributions is, by
    chance, larger in samples than in whole sets, also in the column of the training set.
    """
    rng, train = numpy_stream(SEED, Stage.MEASURED_USERS), sets[TRAINING]

    def drawn(traces: Traces, *first: np.ndarray) -> np.ndarray:
        order = rng.random(traces.n_users)
        order[np.concatenate([np.zeros(0, np.int64), *first])] -= 1
        return np.argsort(order)[:MAX_USERS]

    made = [name for name in sets if name not in (TRAINING, TEST)]
    index = {name: index_of_ids(sets[name].user_ids, train.user_ids) for name in made}
    is_large = train.n_users > MAX_USERS
    of_training = [name for name in made if is_large and (index[name] >= 0).all()]
    users: dict[str, np.ndarray] = {}
    if is_large:
        users[TRAINING] = np.sort(drawn(train, *(index[n] for n in of_training if len(index[n]) <= MAX_USERS)))
    for name in (*made, *({TEST} & sets.keys())):
        if name in of_training:
            users[name] = np.flatnonzero(np.isin(index[name], users[TRAINING]))
        elif sets[name].n_users > MAX_USERS:
            users[name] = drawn(sets[name])
    measured = {n: each.select_users(users[n]) if n in users else each.in_memory() for n, each in sets.items()}
    return measured, {name: each.n_users for name, each in sets.items() if measured[name].n_users < each.n_users}


def uniform_places(traces: Traces) -> Traces:
    """Traces with every place replaced by a random one."""
    place = numpy_stream(SEED, Stage.UNIFORM).integers(traces.n_places, size=traces.n_events, dtype=np.int32)
    return replace(traces, place=place)
