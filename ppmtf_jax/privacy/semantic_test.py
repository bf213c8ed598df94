"""SGLT's privacy test: a trace differs from its input user's traces, and is semantically similar to other users.

The test of Bindschaedler and Shokri 2016 compares only the places of traces. It does not compute how probable a trace
is for another input user, so it does not bound what an attacker learns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd
import scipy  # loads `scipy.optimize`, which takes half a second, when it is first used
from annotated_types import Ge, Lt
from jaxtyping import Bool, Float, Int

from ppmtf_jax.data.description import percent
from ppmtf_jax.data.runs import joined_ranges
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem, raise_any
from ppmtf_jax.privacy.verdicts import NO_MEMBERSHIP, USED, InWords, PrivacyTest, Verdicts, facts_of_model
from ppmtf_jax.semantics.places import SeedTraces
from ppmtf_jax.settings import Count, Probability, chosen_settings
from ppmtf_jax.synthesizers.fitted_model import FittedModel, complete_places
from ppmtf_jax.synthesizers.systems.sglt import SGLT

# Number of table cells computed at a time, to limit memory.
CELLS_AT_A_TIME = 2**22


@dataclass(frozen=True)
class SemanticTestSettings(PrivacyTest, subject="semantic test"):
    """Parameters of the semantic test; names in brackets are those in Fig. 2 of Bindschaedler and Shokri 2016.

    Parameters
    ----------
    k : int
        Number of users to whom a trace must be about equally similar in meaning; the input user counts.
    max_semantic_difference : float
        For sglt: largest difference between the similarity to another user and the similarity to the input user
        (delta_d). A smaller value protects better.
    max_geographic_similarity : float
        For sglt: largest share of time at the same places as the input user, not necessarily at the same time
        (delta_s), 0 to 1.
    max_intersection : float
        For sglt: largest share of instants at which the input user is at the same place (delta_i).
    n_time_periods : int
        For sglt: number of parts of the day in which meaning, and moves, are compared apart (tau).
    apart_km : float, optional
        For sglt: for max_geographic_similarity, compare moves (7) in place of time at the same places. From this
        distance on two places are entirely different; nearer ones are the same in part (earth mover's distance).
    """

    test = "semantic"
    k: Count = 10
    max_semantic_difference: Probability = 0.1
    max_geographic_similarity: Probability = 0.5
    max_intersection: Probability = 0.25
    n_time_periods: Count = 1
    apart_km: Annotated[float, Ge(0), Lt(np.inf)] | None = None

    def may_pass(self, table: pd.DataFrame) -> Bool[np.ndarray, " trace"]:
        """Whether each trace differs enough from its input user's traces."""
        is_other = table["geographic_similarity"] <= self.max_geographic_similarity
        return ((table["intersection"] <= self.max_intersection) & is_other).to_numpy()

    def in_words(self, is_private: bool) -> InWords:
        """See `PrivacyTest`."""
        at_once, in_all = percent(self.max_intersection), percent(self.max_geographic_similarity)
        k, difference, n_parts = self.k, f"{self.max_semantic_difference:g}", self.n_time_periods
        parts = f", in the same of {n_parts} parts of the day" if n_parts > 1 else ""
        overlap = "time at most is time that this {} spends at the same places, maybe at another time of the day"
        if self.apart_km is not None:
            overlap = "steps at most lead where those of this {} from the same place do, in part if they end less than "
            overlap += f"{self.apart_km:g} km away{parts}"
        overlap = f"{in_all} of its {overlap}"
        return InWords(
            "The test of Bindschaedler and Shokri (IEEE S&P 2016, Fig. 2): a trace is released only if (1) the user it "
            f"was made from (its input user) is at the same place at {at_once} of the instants at most, (2) "
            f"{overlap.format('user')}, and (3) its similarity in meaning to at least k = {k} users, the input "
            f"user included, differs by {difference} or less from that to the input user.",
            [
                "That no trace is a copy of a person's trace: the person it was made from is at the same place at "
                f"{at_once} of its instants at most, and {overlap.format('person')}.",
                f"That a trace does not resemble one person alone: in meaning, it resembles at least {k} users about "
                "as much, the person it was made from included. Meaning is how a trace's time is divided among places, "
                f"whatever the places are{f', in each of {n_parts} parts of the day' if n_parts > 1 else ''}.",
            ],
            [
                "From whom a trace was made: the test computes no probability, so there is no bound on how sure "
                "somebody can be of a person. It compares places, and each trace was made from the trace of one "
                "person.",
                f"{USED} {NO_MEMBERSHIP}",
            ],
        )


def semantic_privacy_test(
    model: FittedModel,
    synthetic: Traces,
    settings: SemanticTestSettings | None = None,
    **named_settings: Any,
) -> Verdicts:
    """Test whether each trace differs from its input user's traces and is about equally similar in meaning to k users.

    Three conditions are those of `SemanticTestSettings`: the intersection, the overlap sum over r of min(pi_r,
    pi_r(user)) of visit distributions (`geographic_similarity` with `apart_km`), and the semantic similarity (10): the
    largest overlap over all renamings of places, as in `VisitProfiles.similarity`, but without smoothing. The first two
    use the period of the input user with the largest value, the third all periods.

    `synthetic`: traces that `synthesize` made from this model, which has the traces of the training users, or a part of
    them. Raises `InputError`: the model is not of SGLT, or did not make the traces; or settings do not suit its places
    or seed traces.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> from ppmtf_jax.synthesizers.synthesis import fit, synthesize
    >>> train = synthesize(fit(toy_city(n_users=20, seed=0).traces, "sgd", seed=0), seed=0)  # without gaps
    >>> model = fit(train, "sglt", seed=0)
    >>> semantic_privacy_test(model, synthesize(model, seed=0), k=2).table.columns.tolist()
    ['user', 'trace', 'semantic_similarity', 'geographic_similarity', 'intersection', 'plausible_users', 'passed']
    """
    chosen = chosen_settings(SemanticTestSettings, settings, named_settings, "semantic test")
    if not isinstance(model.trace_model, SGLT):
        way_out = "Use the plausible-deniability test (plausible_deniability_test)"
        raise InputError("semantic test", [Problem("a model of sglt", f"one of {model.system}", way_out=way_out)])
    facts, traces = facts_of_model(model, synthetic), synthetic.in_memory()
    users, places = complete_places(model, traces)
    seeds = model.trace_model.seed_traces()
    position, problems = model.places.position_km(), []
    if chosen.n_time_periods > places.shape[1]:
        problems.append(Problem(f"n_time_periods up to {places.shape[1]}", str(chosen.n_time_periods)))
    if chosen.apart_km and not np.isfinite(model.places.latitude + model.places.longitude).all():
        problems.append(Problem("coordinates of all places", "missing ones", way_out="Leave apart_km out"))
    raise_any("semantic test", problems)
    intersection, geographic = _likeness_to_own(seeds, users, places, position, chosen)
    semantic, plausible = _likeness_to_all(seeds, users, places, chosen)
    index, trace = traces.trace_table()
    table = pd.DataFrame({"user": traces.user_ids[index], "trace": trace, "semantic_similarity": semantic})
    table = table.assign(geographic_similarity=geographic, intersection=intersection, plausible_users=plausible)
    table["passed"] = chosen.may_pass(table) & (plausible >= chosen.k)
    return Verdicts(**facts, settings=chosen, table=table)


def _likeness_to_own(
    seeds: SeedTraces,
    users: Int[np.ndarray, " trace"],
    places: Int[np.ndarray, "trace instant"],
    position: Float[np.ndarray, "place 2"],
    settings: SemanticTestSettings,
) -> tuple[Float[np.ndarray, " trace"], Float[np.ndarray, " trace"]]:
    """Greatest share of equal events, and of time at the same places, over the periods of the input user."""
    n_seeds = seeds.seeds_per_user[users]
    trace, first_pair = np.repeat(np.arange(len(users)), n_seeds), np.cumsum(n_seeds) - n_seeds
    seed = joined_ranges(np.searchsorted(seeds.user, users), n_seeds)
    same_time = (places[trace] == seeds.place[seed]).mean(axis=1)
    same_place = np.empty(len(trace))
    for rows in _in_blocks(len(trace), seeds.n_places):
        of_both = places[trace[rows]], seeds.place[seed[rows]]
        if settings.apart_km is None:
            same_place[rows] = np.minimum(*(_shares(each, seeds.n_places) for each in of_both)).sum(axis=1)
        else:
            how = position, settings.apart_km, settings.n_time_periods
            same_place[rows] = [geographic_similarity(*pair, *how) for pair in zip(*of_both, strict=True)]
    return np.maximum.reduceat(same_time, first_pair), np.maximum.reduceat(same_place, first_pair)


def geographic_similarity(
    made: Int[np.ndarray, " instant"],
    own: Int[np.ndarray, " instant"],
    position: Float[np.ndarray, "place 2"],
    apart_km: float,
    n_time_periods: int = 1,
) -> float:
    """Geographic similarity (7) of a trace to a seed trace: the mean over its steps of that of the next places.

    Two distributions of next places have the similarity 1 minus their earth mover's distance, with costs
    min(1, km / apart_km). From a place that the seed never leaves in a time period, it is taken to go where it goes in
    this time period, wherever from. The last instant is followed by the first.
    """
    total, following, own_following = 0.0, np.roll(made, -1), np.roll(own, -1)
    for at in np.array_split(np.arange(len(made)), n_time_periods):
        for place, n_steps in zip(*np.unique(made[at], return_counts=True), strict=True):
            leaves = own[at] == place
            others = own_following[at][leaves] if leaves.any() else own_following[at]
            total += n_steps * _overlap(following[at][made[at] == place], others, position, apart_km)
    return total / len(made)


def _overlap(made: np.ndarray, own: np.ndarray, position: np.ndarray, apart_km: float) -> float:
    """1 minus the earth mover's distance of two lists of places.

    The costs are a metric, so what both have at a place stays there. Only the rest is moved, by a small linear program.
    """
    place, index = np.unique(np.concatenate([made, own]), return_inverse=True)
    parts = np.split(index.ravel(), [len(made)])
    share, of_own = (np.bincount(each, minlength=len(place)) / len(each) for each in parts)
    common, left = float(np.minimum(share, of_own).sum()), share - of_own
    source, target = np.flatnonzero(left > 0), np.flatnonzero(left < 0)
    apart = np.linalg.norm(position[place[source], None] - position[place[target]], axis=2)
    gain = np.maximum(0, 1 - apart / apart_km) if apart_km else np.zeros_like(apart)
    if not gain.any():
        return common
    # Sums over targets and over sources are at most what is left there.
    sums = np.kron(np.eye(len(source)), np.ones(len(target))), np.kron(np.ones(len(source)), np.eye(len(target)))
    moved = scipy.optimize.linprog(-gain.ravel(), np.concatenate(sums), np.append(left[source], -left[target]))
    return common - float(moved.fun)


def _likeness_to_all(
    seeds: SeedTraces,
    users: Int[np.ndarray, " trace"],
    places: Int[np.ndarray, "trace instant"],
    settings: SemanticTestSettings,
) -> tuple[Float[np.ndarray, " trace"], Int[np.ndarray, " trace"]]:
    """Semantic similarity of each trace to its input user, and number of users with about the same similarity."""
    weights, parts = seeds.in_time_periods(settings.n_time_periods)
    falling = (_falling(part.visits() / part.place.shape[1]) for part in parts)
    visits = [each[:, each.any(axis=0)] for each in falling]
    own, plausible = np.empty(len(users)), np.empty(len(users), np.int64)
    for rows in _in_blocks(len(users), max(seeds.n_places, *(each.size for each in visits))):
        similarity = np.zeros((len(places[rows]), seeds.n_users))
        for weight, each, at in zip(weights, visits, np.array_split(places[rows], len(parts), axis=1), strict=True):
            of_trace = _falling(_shares(at, seeds.n_places))[:, None, : each.shape[1]]
            similarity += weight * np.minimum(of_trace, each).sum(axis=2)
        own[rows] = np.take_along_axis(similarity, users[rows, None], axis=1)[:, 0]
        # Equal sums of shares may be rounded differently.
        plausible[rows] = (np.abs(similarity - own[rows, None]) <= settings.max_semantic_difference + 1e-9).sum(axis=1)
    return own, plausible


def _in_blocks(n_rows: int, cells_per_row: int) -> Iterator[slice]:
    block = max(1, CELLS_AT_A_TIME // cells_per_row)
    return (slice(first, first + block) for first in range(0, n_rows, block))


def _shares(places: Int[np.ndarray, "trace instant"], n_places: int) -> Float[np.ndarray, "trace place"]:
    """The visit distribution of each trace."""
    return SeedTraces(np.arange(len(places)), places, len(places), n_places).visits() / places.shape[1]


def _falling(shares: Float[np.ndarray, "row place"]) -> Float[np.ndarray, "row rank"]:
    return -np.sort(-shares, axis=1)
