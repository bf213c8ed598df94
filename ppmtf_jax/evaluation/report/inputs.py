"""What a report is made of, computed once: the trace sets, their measured numbers, and the model."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
from annotated_types import Ge

from ppmtf_jax.attacks.audit import Reidentified
from ppmtf_jax.attacks.membership.base import MembershipScores
from ppmtf_jax.data.comparable import index_of_ids
from ppmtf_jax.data.measurement import Comparison, MetricInfo
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows, same_period
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation.chance import chance_of, standard_errors
from ppmtf_jax.evaluation.evaluation import uniform_places
from ppmtf_jax.evaluation.judgement import Chance, judge
from ppmtf_jax.evaluation.metrics.population import population_by_slot
from ppmtf_jax.evaluation.metrics.windows import compared_windows
from ppmtf_jax.evaluation.registry import Undefined
from ppmtf_jax.evaluation.report.page import Block, Gauges, Text
from ppmtf_jax.evaluation.results import REAL, SYNTHETIC, TRAINING, UNIFORM, Evaluation, Row
from ppmtf_jax.privacy.verdicts import Verdicts
from ppmtf_jax.settings import Settings
from ppmtf_jax.streams import Stage, numpy_stream
from ppmtf_jax.synthesizers.fitted_model import FittedModel

SAMPLE_SEED = 0
MIN_VISITORS = 3
"""A place is named, or shown on the map of a group, only if at least this many real people visit it."""


class Unavailable(Exception):
    """Raised if a section has nothing to show; the message is a sentence of the page."""


def if_available(make: Callable[[], list[Block]]) -> list[Block]:
    """Blocks, or the reason why they cannot be made."""
    try:
        return make()
    except Unavailable as reason:
        return [Text((str(reason),))]


def needed(error: InputError) -> str:
    """What an error expected, without the examples and values that it found, because these may name users."""
    return "; ".join(getattr(problem, "expected", "other input") for problem in error.problems)


@dataclass(frozen=True)
class ReportSettings(Settings, subject="report"):
    """Settings that decide how long a report takes.

    Parameters
    ----------
    n_users : int
        Largest number of training users, and of other users, to attack; they are drawn at random.
    estimators : tuple of str, optional
        Estimators of users' transitions, see `reidentification_attacks`; all estimators by default.
    fast : bool
        Leave out the attack with shadow models, which takes longest and is the strongest.
    consent : bool
        The people of the data agreed that days of ten of them are drawn; people of a simulated city need not agree.
    """

    n_users: Annotated[int, Ge(2)] = 1000
    estimators: tuple[str, ...] | None = None
    fast: bool = False
    consent: bool = False

    def problems(self) -> list[Problem | str]:
        """A problem if there is no estimator."""
        return [Problem("at least one estimator", "none")] if self.estimators == () else []


class Traced(NamedTuple):
    """The attacks on identity, a sentence on what was not attacked and why, or "", and attacks that were refused."""

    attacks: list[Reidentified]
    note: str
    refused: dict[str, InputError]


@dataclass(frozen=True, eq=False)
class ReportData:
    """The input of a report."""

    # Real traces of users whose data were used (train), and not used (test), to make the synthetic traces.
    train: Traces
    test: Traces
    synthetic: Traces  # on the places of `train`; `of_nobody` if it is not known from whom each trace was made
    evaluation: Evaluation
    column: str  # of the evaluation that has the synthetic traces
    is_release: bool
    source: str = ""  # name of the data set
    kept: str = ""  # how many of the rows of the data were used, and which were left out, in sentences
    losses: tuple[str, ...] = ()  # why many rows of the data were left out
    seeds_given: bool | None = None  # whether somebody chose a seed; None if it is not known
    model: FittedModel | None = None
    verdicts: Verdicts | None = None  # of all traces that were made
    statement: dict[str, Any] | None = None
    settings: ReportSettings = field(default=ReportSettings())
    shadow_scores: MembershipScores | None = None  # of shadow models that were learned from people
    release_scores: MembershipScores | None = None  # of those that were learned from the synthetic traces
    traced: Traced | None = None  # the attacks on identity, if they were made before
    # Share of the traces that passed the privacy test, by column of the evaluation. Unknown shares are missing.
    shares_passed: Mapping[str, float] = field(default_factory=dict)
    no_shadows: str = "because it is not known how to learn them"  # why there are no scores: the end of a sentence
    # The whole training, test and synthetic sets, if any of `train`, `test` and `synthetic` is only a sample.
    whole: tuple[Traces, Traces, Traces] | None = None

    @property
    def places(self) -> PlaceTable:
        return self.train.places

    @property
    def whole_sets(self) -> tuple[Traces, Traces, Traces]:
        """The whole training, test and synthetic sets."""
        return self.whole or (self.train, self.test, self.synthetic)

    @property
    def is_sample(self) -> bool:
        """Whether `train` is a sample of the training users."""
        return self.train.n_users < self.whole_sets[0].n_users

    @cached_property
    def n_synthetic(self) -> int:
        """Number of the traces of the whole synthetic set."""
        return len(self.whole_sets[2].trace_table()[0])

    @property
    def has_known_users(self) -> bool:
        """Whether it is known from whom each synthetic trace was made."""
        return not self.synthetic.of_nobody

    @property
    def no_users(self) -> str:
        """Why it is not known from whom each trace was made: the end of a sentence."""
        return "no trace was made from one person" if self.guarantee else "it is not known from whom each was made"

    @property
    def guarantee(self) -> str:
        """What the model of nobody guarantees that made the traces; empty for other traces."""
        return (self.statement or {}).get("guarantee", "")

    @property
    def proof(self) -> str:
        """What differential privacy proves for traces of nobody, and what it does not prove; "" without a proof."""
        statement = self.statement or {}
        if not statement.get("private"):
            return ""
        return (
            f"Proven instead: differential privacy with epsilon = {statement['epsilon']:g} bounds what any attack can "
            "find about any one person; the guarantee says how. It does not prove that no trace resembles a real one, "
            "because many people do the same, and it does not protect facts about groups."
        )

    @cached_property
    def sets(self) -> dict[str, Traces]:
        """The trace sets by name; uniform traces are made as in `evaluate`."""
        uniform = uniform_places(self.synthetic)
        return {REAL: self.test, TRAINING: self.train, SYNTHETIC: self.synthetic, UNIFORM: uniform}

    @cached_property
    def _real(self) -> Comparison:
        return Comparison(self.train, self.train, self.test, self.synthetic.time_grid.n_instants, pool_traces=True)

    def comparison(self, name: str) -> Comparison:
        """Compare a set with the real sets, as in `evaluate`."""
        return self._real.of(self.sets[name], pool_traces=name in (REAL, TRAINING))

    @cached_property
    def chance(self) -> dict[str, Chance]:
        """What chance does to the numbers of real people, by metric."""
        return chance_of(self.train, self.test, self.synthetic)

    def gauges(self, section: str, *, without: Container[str] = ()) -> Gauges:
        """The judged numbers of the evaluation that belong to a section, apart from some."""
        rows = [row for row in self.evaluation.rows if row.quantity.section == section]
        chosen = [(row, row.quantity.name) for row in rows if row.quantity.name not in without]
        return Gauges(tuple(judge(row, self.column, self.chance.get(name, Chance())) for row, name in chosen))

    @cached_property
    def presence(self) -> dict[str, np.ndarray]:
        """Share of each set's events in each slot and place, shape (slots, places), at the hours of test users.

        Synthetic traces are complete; real people are seen at some hours more than at others. So every slot is weighted
        by the test users' events in this slot.
        """
        found = {name: presence_at_hours(self.sets[name], self.test) for name in (REAL, TRAINING, SYNTHETIC)}
        hours = found[REAL].sum(axis=1, keepdims=True)
        return found | {UNIFORM: np.repeat(hours / len(self.places), len(self.places), axis=1)}

    def gauge_of_presence(
        self, quantity: MetricInfo, measure: Callable[[np.ndarray, np.ndarray], float], *, uniform: float
    ) -> Gauges:
        """A judged number that is no metric: `measure` compares the presence of a set with that of the test users."""
        columns = {self.column: SYNTHETIC, TRAINING: TRAINING}
        numbers = {column: measure(self.presence[name], self.presence[REAL]) for column, name in columns.items()}

        def of_real(train: Traces, test: Traces) -> dict[str, float]:
            return {quantity.name: measure(*(presence_at_hours(traces, test) for traces in (train, test)))}

        chance = Chance(standard_errors(of_real, self.train, self.test).get(quantity.name, 0.0))
        return Gauges((judge(Row(quantity, "utility", numbers | {UNIFORM: uniform}), self.column, chance),))

    @cached_property
    def windows(self) -> dict[str, Windows]:
        """The windows of each set that the metrics of one period compare, so that pictures show what they measure.

        Raises `Unavailable`: synthetic and real traces have different periods, or no period of a set has two events.
        """
        grid = self.test.time_grid
        if not all(same_period(traces.time_grid, grid) for traces in (self.train, self.synthetic)):
            raise Unavailable("Synthetic and real time grids have different periods, so the traces cannot be compared.")
        try:
            return {name: compared_windows(self.comparison(name)) for name in self.sets}
        except Undefined:
            reason = "Nobody is seen twice within one period such as a day, so there is nothing to compare."
            raise Unavailable(reason) from None

    def is_shown(self, traces: Traces) -> np.ndarray:
        """Whether at least `MIN_VISITORS` users of real traces visit each place, shape (places,).

        A place where only one or two people of a group go reveals what these people do.
        """
        return traces.users_per_place() >= MIN_VISITORS

    @cached_property
    def has_map(self) -> bool:
        """Whether the places have coordinates that differ."""
        coordinates = np.stack([self.places.latitude, self.places.longitude])
        return bool(np.isfinite(coordinates).all() and (np.ptp(coordinates, axis=1) > 0).any())

    @cached_property
    def attacked(self) -> tuple[Traces, Traces, Traces, str]:
        """Synthetic, training and test traces to attack, and a note on what was left out, or "".

        They are of at most `settings.n_users` training users, and as many others.
        """
        n, released = self.settings.n_users, self.synthetic
        rng = numpy_stream(SAMPLE_SEED, Stage.ATTACKED_USERS)
        train, test = (
            each if each.n_users <= n else each.select_users(rng.permutation(each.n_users)[:n])
            for each in (self.train, self.test)
        )
        if train is self.train and test is self.test:
            return released, train, test, ""
        if self.has_known_users and train is not self.train:
            own = index_of_ids(released.user_ids, train.user_ids) >= 0
            if not own.any():
                raise Unavailable("None of the users who were drawn to be attacked has a synthetic trace.")
            released = released.select_users(own)
        note = (
            f"To save time, the traces of {train.n_users} of {self.train.n_users} training users and of {test.n_users} "
            f"of {self.test.n_users} others were attacked, drawn at random."
        )
        return released, train, test, note

    def place_names(self, places: np.ndarray) -> list[str]:
        """Names of some places, given by index: category, if known, and id."""
        ids, category = self.places.ids[places].astype(str).tolist(), self.places.category
        names = [""] * len(ids) if category is None else category[places].astype(str).tolist()
        return [f"{name} ({each})" if name not in ("", each) else each for each, name in zip(ids, names, strict=True)]


def presence_at_hours(traces: Traces, test: Traces) -> np.ndarray:
    """Share of the events in each slot and place, shape (slots, places), at the hours of the test users' events."""
    hours = np.bincount(test.slot, minlength=test.time_grid.n_slots) / test.n_events
    return hours[:, None] * population_by_slot(traces)
