"""SGLT's privacy test: a trace differs from its input user's traces, and is semantically similar to other users.

The test of Bindschaedler and Shokri 2016 needs no likelihood, so it works for every system. But it compares only the
places of traces: it does not compute how probable a trace is for another input user, so it does not bound what an
attacker learns. For systems with likelihoods, use `plausible_deniability`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from ppmtf_jax.data.runs import joined_ranges
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem, raise_any
from ppmtf_jax.semantics.seed_traces import SeedTraces
from ppmtf_jax.settings import Count, Probability, Settings, chosen_settings
from ppmtf_jax.synthesizers.fitted_model import FittedModel, check_origin, complete_places

# Number of table cells computed at a time, to limit memory.
CELLS_AT_A_TIME = 2**22


@dataclass(frozen=True)
class SemanticTestSettings(Settings, subject="semantic test"):
    """Parameters of the semantic test; names in brackets are those in Fig. 2 of Bindschaedler and Shokri 2016.

    Parameters
    ----------
    k : int
        Number of users to whom a trace must be about equally similar in meaning; the input user counts.
    max_semantic_difference : float
        Largest difference between the similarity to another user and the similarity to the input user (delta_d). A
        smaller value protects better.
    max_geographic_similarity : float
        Largest share of time at the same places as the input user, not necessarily at the same time (delta_s), 0 to 1.
    max_intersection : float
        Largest share of instants at which the input user is at the same place (delta_i).
    """

    k: Count = 10
    max_semantic_difference: Probability = 0.1
    max_geographic_similarity: Probability = 0.5
    max_intersection: Probability = 0.25


@dataclass(frozen=True, eq=False)
class SemanticVerdicts:
    """Outcome of the semantic test."""

    settings: SemanticTestSettings
    # One row for each trace, in the order of `Traces.trace_table`. `plausible_users` counts the input user.
    table: pd.DataFrame

    @property
    def passed(self) -> Bool[np.ndarray, " trace"]:
        """Whether each trace may be released."""
        return self.table["passed"].to_numpy()


def semantic_privacy_test(
    model: FittedModel,
    train: Traces,
    synthetic: Traces,
    settings: SemanticTestSettings | None = None,
    **named_settings: Any,
) -> SemanticVerdicts:
    """Test whether each trace differs from its input user's traces and is about equally similar in meaning to k users.

    A trace passes if (1) its input user is at the same place at few instants, (2) its visit distribution pi overlaps
    little with hers: the overlap is the sum over r of min(pi_r, pi_r(user)), and (3) its semantic similarity (10) to
    her is about the same as to at least k - 1 other users. The semantic similarity is the largest overlap over all
    renamings of places; see `semantics.similarity.VisitProfiles.similarity`, but without smoothing.

    If a user has several periods, (1) and (2) each use the period with the largest value, and (3) uses all periods.

    `train`: the training traces of the model, without gaps. `synthetic`: traces that `synthesize` made from this model,
    or a part of them. `**named_settings`: settings by name, in place of `settings`: `semantic_privacy_test(model,
    train, synthetic, k=20)`. Raises `InputError`: the model did not make the traces; the model has other users, places
    or times than `train`; or `train` has missing events.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> from ppmtf_jax.synthesizers.synthesis import fit, synthesize
    >>> train = synthesize(fit(toy_city(n_users=20, seed=0).traces, "sgd", seed=0), seed=0)  # without gaps
    >>> model = fit(train, "uniform", seed=0)
    >>> semantic_privacy_test(model, train, synthesize(model, seed=0), k=2).table.columns.tolist()
    ['user', 'trace', 'semantic_similarity', 'geographic_similarity', 'intersection', 'plausible_users', 'passed']
    """
    chosen = chosen_settings(SemanticTestSettings, settings, named_settings, "semantic test")
    check_origin(model, synthetic)
    users, places = complete_places(model, synthetic)
    if synthetic.n_events < places.size or synthetic.time_grid.one_period() != synthetic.time_grid:
        way_out = "Use the plausible-deniability test (plausible_deniability_test)"
        expected, found = (
            "traces of one period with an event at every instant",
            "traces with gaps or of several periods",
        )
        raise InputError("semantic test", [Problem(expected, found, way_out=way_out)])
    seeds = _seeds_of_model(model, train)
    intersection, geographic = _likeness_to_own(seeds, users, places)
    semantic, plausible = _likeness_to_all(seeds, users, places, chosen.max_semantic_difference)
    index, trace = synthetic.trace_table()
    columns = {"user": synthetic.user_ids[index], "trace": trace, "semantic_similarity": semantic}
    columns |= {"geographic_similarity": geographic, "intersection": intersection, "plausible_users": plausible}
    table = pd.DataFrame(columns)
    table["passed"] = (
        (intersection <= chosen.max_intersection)
        & (geographic <= chosen.max_geographic_similarity)
        & (plausible >= chosen.k)
    )
    return SemanticVerdicts(chosen, table)


def _seeds_of_model(model: FittedModel, train: Traces) -> SeedTraces:
    checks = (
        ("users", "others", np.array_equal(train.user_ids, model.user_ids)),
        ("places", "another place table", np.array_equal(train.places.ids, model.places.ids)),
        ("time grid", "another one", train.time_grid.one_period() == model.time_grid),
    )
    problems = [
        Problem(f"the {what} that the model was trained on", found) for what, found, is_same in checks if not is_same
    ]
    raise_any("training traces", problems)
    return SeedTraces.of(train)


def _likeness_to_own(
    seeds: SeedTraces, users: Int[np.ndarray, " trace"], places: Int[np.ndarray, "trace instant"]
) -> tuple[Float[np.ndarray, " trace"], Float[np.ndarray, " trace"]]:
    """Greatest share of equal events, and of time at the same places, over the periods of the input user."""
    n_seeds = seeds.seeds_per_user[users]
    trace = np.repeat(np.arange(len(users)), n_seeds)
    first_pair = np.cumsum(n_seeds) - n_seeds
    seed = joined_ranges(np.searchsorted(seeds.user, users), n_seeds)
    same_time = (places[trace] == seeds.place[seed]).mean(axis=1)
    same_place = np.empty(len(trace))
    for rows in _in_blocks(len(trace), seeds.n_places):
        both = (_shares(each, seeds.n_places) for each in (places[trace[rows]], seeds.place[seed[rows]]))
        same_place[rows] = np.minimum(*both).sum(axis=1)
    return np.maximum.reduceat(same_time, first_pair), np.maximum.reduceat(same_place, first_pair)


def _likeness_to_all(
    seeds: SeedTraces, users: Int[np.ndarray, " trace"], places: Int[np.ndarray, "trace instant"], max_difference: float
) -> tuple[Float[np.ndarray, " trace"], Int[np.ndarray, " trace"]]:
    """Semantic similarity of each trace to its input user, and number of users with about the same similarity."""
    visits = _falling(seeds.visits() / places.shape[1])
    visits = visits[:, visits.any(axis=0)]
    own, plausible = np.empty(len(users)), np.empty(len(users), np.int64)
    for rows in _in_blocks(len(users), max(visits.size, seeds.n_places)):
        of_trace = _falling(_shares(places[rows], seeds.n_places))[:, None, : visits.shape[1]]
        similarity = np.minimum(of_trace, visits).sum(axis=2)
        own[rows] = np.take_along_axis(similarity, users[rows, None], axis=1)[:, 0]
        # Equal sums of shares may be rounded differently.
        plausible[rows] = (np.abs(similarity - own[rows, None]) <= max_difference + 1e-9).sum(axis=1)
    return own, plausible


def _in_blocks(n_rows: int, cells_per_row: int) -> Iterator[slice]:
    block = max(1, CELLS_AT_A_TIME // cells_per_row)
    return (slice(first, first + block) for first in range(0, n_rows, block))


def _shares(places: Int[np.ndarray, "trace instant"], n_places: int) -> Float[np.ndarray, "trace place"]:
    """The visit distribution of each trace."""
    n_traces, n_instants = places.shape
    cell = np.arange(n_traces)[:, None] * n_places + places
    return np.bincount(cell.ravel(), minlength=n_traces * n_places).reshape(n_traces, n_places) / n_instants


def _falling(shares: Float[np.ndarray, "row place"]) -> Float[np.ndarray, "row rank"]:
    return -np.sort(-shares, axis=1)
