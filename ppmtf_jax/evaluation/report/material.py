"""What a report is made of: the trace sets, what was measured of them, and what made them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
from annotated_types import Ge

from ppmtf_jax.attacks.membership.scores import MembershipScores
from ppmtf_jax.data.comparable import index_of_ids
from ppmtf_jax.data.measurement import Comparison
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows, same_period
from ppmtf_jax.errors import Problem
from ppmtf_jax.evaluation.evaluation import UNIFORM_SEED, Evaluation
from ppmtf_jax.evaluation.metrics.mobility import MIN_EVENTS
from ppmtf_jax.evaluation.metrics.mobility import SEED as WINDOW_SEED
from ppmtf_jax.evaluation.metrics.population import population_by_slot
from ppmtf_jax.privacy.plausible_deniability import PlausibleDeniability
from ppmtf_jax.settings import Settings
from ppmtf_jax.streams import Stage, numpy_stream
from ppmtf_jax.synthesizers.fitted_model import FittedModel

N_USERS = 1000
SAMPLE_SEED = 0
LEAST_VISITORS = 3
"""Real people who must be at a place for it to be named, or shown on the map of a group."""
REAL, TRAINING, SYNTHETIC, UNIFORM = "real", "training", "synthetic", "uniform"
"""Names of the trace sets that pictures show: real are the test users, whom no synthesizer saw."""


class Unavailable(Exception):
    """Why a section has nothing to show; its message is a sentence of the page."""


@dataclass(frozen=True)
class ReportSettings(Settings, subject="report"):
    """How much work a report is.

    Parameters
    ----------
    n_users : int
        Most training users, and most others, who are attacked; a random part of them where there are more.
    estimators : tuple of str, optional
        How an attacker learns users' moves, see `reidentification_attacks`; all there are where not given.
    fast : bool
        Leave out the attack with shadow models, which takes longest and finds most.

    Raises
    ------
    InputError
        Fewer than two users, or no estimator.
    """

    n_users: Annotated[int, Ge(2)] = N_USERS
    estimators: tuple[str, ...] | None = None
    fast: bool = False

    def problems(self) -> list[Problem | str]:
        """No estimator at all."""
        return [Problem("at least one estimator", "none")] if self.estimators == () else []


class Attacked(NamedTuple):
    """Trace sets of a bounded number of users.

    Attributes
    ----------
    released, train, test : Traces
    note : str
        What was left out, or "".
    """

    released: Traces
    train: Traces
    test: Traces
    note: str


@dataclass(frozen=True, eq=False)
class Material:
    """What a report is made of.

    Parameters
    ----------
    train, test : Traces
        Real traces of users who were, and were not, used.
    synthetic : Traces
        What the report is about; on the places of `train`.
    evaluation : Evaluation
    column : str
        Of the evaluation, that of the synthetic traces.
    is_release : bool
        Whether they were released, or only made.
    users_known : bool
        Whether the synthetic traces have the ids of the training users that they were made from.
    source : str
        What the data set is called, or "".
    losses : tuple of str
        Why many rows of the data were left out.
    seeds_given : bool, optional
        Whether somebody chose a seed; None where nobody knows.
    model : FittedModel, optional
    verdicts : PlausibleDeniability, optional
        Of all traces that were made.
    statement : dict, optional
        The privacy statement of the release.
    settings : ReportSettings
    shadow_scores : MembershipScores, optional
        Of the attack with shadow models.
    """

    train: Traces
    test: Traces
    synthetic: Traces
    evaluation: Evaluation
    column: str
    is_release: bool
    users_known: bool
    source: str = ""
    losses: tuple[str, ...] = ()
    seeds_given: bool | None = None
    model: FittedModel | None = None
    verdicts: PlausibleDeniability | None = None
    statement: dict[str, Any] | None = None
    settings: ReportSettings = field(default=ReportSettings())
    shadow_scores: MembershipScores | None = None

    @property
    def places(self) -> PlaceTable:
        return self.train.places

    @cached_property
    def n_synthetic(self) -> int:
        """Number of the synthetic traces."""
        return len(self.synthetic.trace_table()[0])

    @cached_property
    def uniform(self) -> Traces:
        """The synthetic traces with every place replaced by a random one, as `evaluate` does."""
        place = np.random.default_rng(UNIFORM_SEED).integers(
            self.synthetic.n_places, size=self.synthetic.n_events, dtype=np.int32
        )
        return replace(self.synthetic, place=place)

    @property
    def sets(self) -> dict[str, Traces]:
        """The trace sets by name."""
        return {REAL: self.test, TRAINING: self.train, SYNTHETIC: self.synthetic, UNIFORM: self.uniform}

    def comparison(self, name: str) -> Comparison:
        """A set beside the real ones, as `evaluate` sees it."""
        n_instants = self.synthetic.time_grid.one_period().n_instants
        pooled = name in (REAL, TRAINING)
        return Comparison(self.sets[name], self.train, self.test, n_instants, pool_traces=pooled)

    @cached_property
    def windows(self) -> dict[str, Windows]:
        """Periods of each set with at least two events; made ones at the hours at which real people are seen.

        As the metrics of mobility have them, so that pictures show what these numbers measure.

        Raises
        ------
        Unavailable
            Synthetic and real traces have other periods, or no period of a set has two events.
        """
        grid = self.test.time_grid
        if not all(same_period(traces.time_grid, grid) for traces in (self.train, self.synthetic)):
            raise Unavailable("Synthetic and real traces have other hours of the day, and cannot be compared.")
        found = {name: Windows.of(self.sets[name]).with_events(MIN_EVENTS) for name in (REAL, TRAINING)}
        for name in (SYNTHETIC, UNIFORM) if found[REAL].n_windows else ():
            whole = Windows.of(self.sets[name])
            drawn = numpy_stream(WINDOW_SEED, Stage.METRICS).integers(found[REAL].n_windows, size=whole.n_windows)
            found[name] = whole.thinned(found[REAL], drawn).with_events(MIN_EVENTS)
        if not all(windows.n_windows for windows in found.values()):
            raise Unavailable("Nobody is seen twice within one period such as a day, so there is nothing to compare.")
        return found

    @cached_property
    def presence(self) -> dict[str, np.ndarray]:
        """Where and when people are: the share of a set's events in each slot and place, at the hours of test users.

        Made traces are complete, real people are seen at some hours more than at others. So every set's places of a
        slot count as often as test users are seen in it.

        Returns
        -------
        dict of str to float arrays, shape (slots, places)
        """
        hours = np.bincount(self.test.slot, minlength=self.test.time_grid.n_slots) / self.test.n_events
        found = {name: population_by_slot(self.sets[name]) for name in (REAL, TRAINING, SYNTHETIC)}
        found[UNIFORM] = np.full_like(found[REAL], 1 / len(self.places))
        return {name: hours[:, None] * population for name, population in found.items()}

    def is_shown(self, traces: Traces) -> np.ndarray:
        """Whether at least `LEAST_VISITORS` people of some real traces are at each place, shape (places,).

        A place where only one or two of a group go tells what these do.
        """
        return traces.users_per_place() >= LEAST_VISITORS

    @cached_property
    def has_map(self) -> bool:
        """Whether the places have coordinates that tell them apart."""
        coordinates = np.stack([self.places.latitude, self.places.longitude])
        return bool(np.isfinite(coordinates).all() and (np.ptp(coordinates, axis=1) > 0).any())

    def need_map(self) -> None:
        """Refuse what needs coordinates where there are none.

        Raises
        ------
        Unavailable
        """
        if not self.has_map:
            raise Unavailable("The places have no coordinates that tell them apart: this needs a map.")

    @cached_property
    def attacked(self) -> Attacked:
        """The trace sets of at most `settings.n_users` training users, and as many others."""
        n, released = self.settings.n_users, self.synthetic
        rng = np.random.default_rng(SAMPLE_SEED)
        train, test = (
            each if each.n_users <= n else each.select_users(rng.permutation(each.n_users)[:n])
            for each in (self.train, self.test)
        )
        if train is self.train and test is self.test:
            return Attacked(released, train, test, "")
        if self.users_known and train is not self.train:
            own = index_of_ids(released.user_ids, train.user_ids) >= 0
            if not own.any():
                raise Unavailable("None of the users who were drawn to be attacked has a synthetic trace.")
            released = released.select_users(own)
        note = (
            f"To save time, the traces of {train.n_users} of {self.train.n_users} training users and of {test.n_users} "
            f"of {self.test.n_users} others were attacked, drawn at random."
        )
        return Attacked(released, train, test, note)

    def place_names(self, places: np.ndarray) -> list[str]:
        """What some places, given by index, are called: category, if known, and id."""
        category = self.places.category
        ids = [str(each) for each in self.places.ids[places].tolist()]
        if category is None:
            return ids
        named = zip(ids, (str(each) for each in category[places].tolist()), strict=True)
        return [f"{name} ({each})" if name and name != each else each for each, name in named]
