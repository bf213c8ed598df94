"""Measurements of trace sets, and descriptions of their numbers.

Metrics of utility and attacks are both a `Measurement`: an entry of a registry with a function that computes a number
for each of its quantities. Tables and pictures read the title, meaning and direction of a number from its `MetricInfo`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Int

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import is_complete
from ppmtf_jax.settings import Settings

Result = TypeVar("Result")
Memo = dict[tuple[Any, ...], Any]
Scale = Literal["share", "places", "nights", "events", "hours", "bits", "cells", "none"]
"""What kind of difference a number is; `evaluation.judgement` says how large one is an error. "none": that depends on
the data, as for distances in towns of different sizes."""
NEAR_TRAINING = "near Training"
"""A good value of a distance that is above 0 even between two groups of real people."""


@dataclass(frozen=True)
class MetricInfo:
    """What a number means.

    Examples
    --------
    >>> bias = MetricInfo("bias", "Bias", "How much too much.", "km", "zero", "near 0")
    >>> bias.better, bias.prefers(-0.1, 0.2), bias.text(-0.00001)
    ('closest to 0', True, '0.0000')
    >>> replace(bias, direction="none").text(12.0)
    '12'
    """

    name: str  # for settings and files, such as "tp_tv"
    title: str  # as printed, such as "TP-TV"
    meaning: str  # one sentence
    unit: str  # as an axis shows it: "bins", "share of traces"
    # Which is better: "zero" for a signed number that is best at 0, "none" for one that is neither, such as a count.
    direction: Literal["lower", "higher", "zero", "none"] = "lower"
    good_value: str = NEAR_TRAINING  # in words, such as "near 0"
    undefined: str = ""  # when it is NaN; empty if never
    scale: Scale = "none"  # by which yardstick a difference is judged
    plain: str = ""  # the title in the report, in words that need no explanation; `title` by default
    # The section of the report that shows it beside the numbers of real and of random traces, a name given to
    # `section` in `evaluation/report/sections/`; "" for the table of all numbers alone.
    section: str = ""
    uses: tuple[str, ...] = ()  # the uses of traces that it decides on in the verdict, see `evaluation.judgement.USES`

    @property
    def better(self) -> str:
        """The better direction in words, or "" for a count."""
        return {"zero": "closest to 0", "none": ""}.get(self.direction, self.direction)

    def prefers(self, value: float, other: float) -> bool:
        """Whether a number is better than another by more than rounding; False where one is undefined."""
        loss, other_loss = self._loss(value), self._loss(other)
        finite = math.isfinite(value) and math.isfinite(other)
        return finite and loss < other_loss and not math.isclose(loss, other_loss, rel_tol=1e-9, abs_tol=1e-12)

    def text(self, value: float) -> str:
        """A number as printed: with four decimals, a large one with fewer, a count without; "-" where undefined.

        The mean of an error over the cells of a table may be tiny, so it has three digits.
        """
        if not math.isfinite(value):
            return "-"
        if abs(value) >= 100 or (self.direction == "none" and value == round(value)):
            return f"{value:.0f}"
        if self.scale == "cells":
            return f"{value:.3g}"
        # Adding 0 removes the minus sign of a number that is rounded to 0.
        return f"{round(value, 4) + 0.0:.4f}"

    def _loss(self, value: float) -> float:
        return {"lower": value, "higher": -value, "zero": abs(value), "none": 0.0}[self.direction]


class Caveat(NamedTuple):
    """Why a number says little on the data at hand: a code, such as "few_values", and a sentence without its stop."""

    code: str
    text: str


def caveat_if(applies: bool | np.bool_, code: str, text: str) -> tuple[Caveat, ...]:
    """The caveats of an `Interpretation`: this one, or none."""
    return (Caveat(code, text),) if applies else ()


@dataclass(frozen=True)
class Interpretation:
    """How to interpret a number on the data at hand; depends on the real sets alone."""

    # Numbers to compare with, by name, such as the number of a random half of the same users ("floor").
    references: dict[str, float] = field(default_factory=dict)
    caveats: tuple[Caveat, ...] = ()  # why the number says little on these data
    # A number of synthetic traces above this limit is an alarm: it exceeds, by a margin that matters, what chance gives
    # on these data. Infinite if there is no alarm.
    alarm: float = math.inf

    def held_against(self) -> dict[str, float]:
        """The references and the alarm, by name."""
        return self.references | ({"alarms above": self.alarm} if math.isfinite(self.alarm) else {})


@dataclass(frozen=True)
class NoSettings(Settings):
    """A measurement without settings."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """A trace set to measure, and the real sets to compare it with; caches the statistics of each set."""

    traces: Traces  # the measured set
    # `train`, `test`: real traces of users who were, and were not, used to make the synthetic ones.
    train: Traces
    test: Traces
    n_instants: int  # how many instants one synthetic trace covers
    # Whether the trace numbers of `traces` only mark breaks, as in real data: all traces of a user are then one.
    pool_traces: bool = False
    _of_real: Memo = field(default_factory=dict, repr=False)
    _of_measured: Memo = field(default_factory=dict, repr=False)

    def statistic(self, function: Callable[..., Result], traces: Traces, *args: Any) -> Result:
        """`function(traces, *args)`, computed once for all measurements and columns.

        Results for the real sets are kept for all comparisons with these sets, other results only for this comparison.
        The function must be defined in a module: a lambda made at each call is computed again. `args` are hashable.
        """
        memo = self._of_real if traces is self.train or traces is self.test else self._of_measured
        key = (function, traces, *args)
        if key not in memo:
            memo[key] = function(traces, *args)
        return memo[key]

    @property
    def window_length(self) -> int:
        """Number of instants of windows that are as long as a synthetic trace: whole periods, at least one.

        If a real set covers less time, the windows are that short.
        """
        shortest = min(self.n_instants, self.train.time_grid.n_instants, self.test.time_grid.n_instants)
        period = self.test.time_grid.period
        return max(shortest // period, 1) * period

    def of(self, traces: Traces, *, pool_traces: bool = False) -> Comparison:
        """Compare another set with the same real sets."""
        return Comparison(traces, self.train, self.test, self.n_instants, pool_traces, self._of_real)

    @property
    def n_parts(self) -> int:
        """Number of `parts`."""
        return 1 if self.pool_traces else int(part_of_trace(self.traces).max()) + 1

    def parts(self) -> Iterator[Comparison]:
        """A comparison for each of the parts of `part_of_trace`, or one for all traces if numbers only mark breaks."""
        if self.pool_traces:
            yield self
            return
        part = part_of_trace(self.traces)
        for each in range(int(part.max()) + 1):
            yield self.of(self.traces.select_traces(part == each))


def part_of_trace(traces: Traces) -> Int[np.ndarray, " trace"]:
    """Parts with about one trace of each user: the trace numbers, if all users have equally many traces.

    Otherwise few users have a trace with some of the numbers, and what is measured on these traces would be mostly
    chance. So the traces, in the order of their trace numbers, are cut into parts of about equal size.

    Examples
    --------
    >>> from ppmtf_jax import toy_city
    >>> traces = toy_city(n_users=3, n_days=1, seed=0).traces
    >>> part_of_trace(traces).tolist()
    [0, 0, 0]
    """
    user, number = traces.trace_table()
    n_parts = max(1, round(len(user) / len(np.unique(user))))
    part = np.empty(len(user), np.int64)
    part[np.lexsort((user, number))] = np.arange(len(user)) * n_parts // len(user)
    return part


@dataclass(frozen=True)
class Measurement:
    """An entry of a registry of metrics or attacks: functions that measure some quantities.

    Examples
    --------
    >>> events = MetricInfo("n_events", "Events", "Number of events.", "events", "higher", "near Training")
    >>> count = Measurement("n_events", "utility", (events,), lambda comparison, settings: [comparison.traces.n_events])
    >>> [quantity.title for quantity in count.described(NoSettings())]
    ['Events']
    """

    name: str  # in the registry and in settings
    kind: Literal["utility", "privacy"]
    # Names, titles and meanings may hold settings in braces, such as "TP-TV-Top{n_top}"; see `described`.
    quantities: tuple[MetricInfo, ...]
    measure: Callable[[Comparison, Any], Sequence[float]]  # a number for each quantity
    # The exact numbers for uniform traces, if they are known, from the real sets of the comparison only. Without this
    # function, synthetic traces with every place replaced by a random one are measured.
    uniform: Callable[[Comparison, Any], Sequence[float]] | None = None
    settings: type = NoSettings  # a frozen dataclass; every setting has a default
    # Whether the traces of each trace number are measured separately, and the numbers averaged; see `part_of_trace`.
    per_trace_number: bool = False
    pools_gaps: bool = False  # whether synthetic traces with gaps, which have few events each, are measured together
    # Of the training set and settings.
    reading: Callable[[Comparison, Any], Sequence[Interpretation]] | None = None
    # Raises `InputError` if the sets cannot be measured, before anything is computed.
    check: Callable[[Comparison], None] | None = None
    # Whether the sets have the measured data, such as friendships. A measurement that applies to no synthetic set is
    # left out; if it applies to some, it is undefined for the others.
    applies: Callable[[Comparison], bool] | None = None

    def is_by_number(self, traces: Traces) -> bool:
        """Whether the traces of each trace number are measured separately."""
        return self.per_trace_number and (is_complete(traces) or not self.pools_gaps)

    def described(self, settings: Any) -> list[MetricInfo]:
        """The quantities at some settings."""
        values = asdict(settings)
        parts = ("name", "title", "meaning", "plain")
        return [replace(q, **{part: getattr(q, part).format(**values) for part in parts}) for q in self.quantities]
