"""Traces of synthetic friends who meet, under differential privacy.

Section 4 of the co-location paper (Narita et al., "Synthesizing Privacy-Preserving Location Traces Including
Co-locations"), with noise and sensitivities that hold, the number of co-locations chosen from the data, and traces
completed under any trace model with likelihoods.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Any, Literal

import jax
import numpy as np
import pandas as pd
from annotated_types import Ge, Lt
from jaxtyping import Float, Int

from ppmtf_jax.colocation.counts import ColocationLimits, bounded_colocations, greedy_colocations
from ppmtf_jax.colocation.drawing import Drawn, MeetingProbabilities, draw_meetings, no_meetings
from ppmtf_jax.colocation.friend_graph import FriendGraph
from ppmtf_jax.colocation.friendship import noisy_degree_distribution, noisy_friendship_probability
from ppmtf_jax.colocation.random_graphs import sample_configuration_graph, sample_erdos_renyi
from ppmtf_jax.data.comparable import ids_of_nobody
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem, first_examples
from ppmtf_jax.noise.accountant import Accountant, Budget, Spending
from ppmtf_jax.noise.laplace import NoiseSource
from ppmtf_jax.noise.privelet import Hierarchy, noisy_counts
from ppmtf_jax.settings import Count, Positive, Settings, chosen_settings
from ppmtf_jax.streams import Seed, Stage, draw_seed, jax_stream, numpy_stream
from ppmtf_jax.synthesizers.fitted_model import FittedModel, grid_problems
from ppmtf_jax.synthesizers.tpm import TPMSettings, fit_with_noise
from ppmtf_jax.trace_models.base import ScoredTraceModel
from ppmtf_jax.trace_models.completion import ABSENT, most_probable_places, sample_places

RELATION = (
    "one user: two data sets over the same users, places and time grid, of which one has neither events nor "
    "friendships of one user, and which are otherwise the same"
)
# Of the number that is aimed at, how far all co-locations may be off; and how often meetings are drawn for it.
CLOSE_ENOUGH, MOST_DRAWS = 0.02, 6


@dataclass(frozen=True)
class ColocationSettings(Settings, subject="co-location settings"):
    """How traces of friends are synthesized, and what each part may cost of one user's privacy.

    Parameters
    ----------
    epsilon_friendship : float
        Privacy budget of who is whose friend. It is spent under node DP.
    epsilon_colocation : float
        Privacy budget of where and when friends meet.
    epsilon_number : float
        Privacy budget of how often friends meet. Not spent if `n_colocations` is given.
    epsilon_moves : float
        Privacy budget of all other moves. Not spent if a model is given.
    n_colocations : int, optional
        How many co-locations to draw, theta. By default as many as there are, with noise, in a period of the data. More
        come about by chance where traces are completed, and where friends of friends meet.
    subtract_chance : bool
        Draw fewer, so that there are as many in all, with those by chance. Refused where chance alone makes more, as
        with data of few events a user, whose synthetic traces have one at every instant.
    max_events : int
        Most events of a user that count for where and when. The noise is as much larger.
    max_friends : int
        Most friends with whom a user counts at one place and instant. The noise is as much larger.
    max_meetings : int
        Most co-locations of a user that count for how often. The noise is as much larger.
    max_transitions : int
        Most moves of a user that count for all other moves. The noise is as much larger.
    mechanism : "privelet" or "laplace"
        Noise that is small for categories of places, or for single places.
    limit_rule : "bounded" or "greedy"
        How a user's co-locations are limited. The greedy rule is the published one, and does not protect her.
    graph_model : "erdos-renyi" or "configuration"
        Whether all are friends with the same probability, or as many have each number of friends as in the data.
    max_degree : int
        Most friends of a user that count for the configuration model. The noise is as much larger.
    meetings : "published" or "by-counts"
        As in the paper, at any instant, or when and where the nearest possible counts say. The latter is better only
        where counts are well above their noise; else it takes noise at its word.
    joining_probability : float
        How probable it is that a friend of two who meet is asked along, then another one. From 0 to below 1.
    completion : "random" or "most-probable"
        How traces are completed between meetings. The latter is published, and repeats the most probable trace.

    Raises
    ------
    InputError
        Listing every setting that is impossible.
    """

    epsilon_friendship: Positive = 1.0
    epsilon_colocation: Positive = 1.0
    epsilon_number: Positive = 0.1
    epsilon_moves: Positive = 1.0
    n_colocations: Count | None = None
    subtract_chance: bool = False
    max_events: Count = 10
    max_friends: Count = 1
    max_meetings: Count = 100
    max_transitions: Count = 10
    mechanism: Literal["privelet", "laplace"] = "privelet"
    limit_rule: Literal["bounded", "greedy"] = "bounded"
    graph_model: Literal["erdos-renyi", "configuration"] = "erdos-renyi"
    max_degree: Count = 50
    meetings: Literal["published", "by-counts"] = "published"
    joining_probability: Annotated[float, Ge(0), Lt(1)] = 0.0
    completion: Literal["random", "most-probable"] = "random"

    @property
    def sensitivity(self) -> int:
        """What the noise of the counts of co-locations is scaled to; no bound under the greedy rule."""
        limits = ColocationLimits(self.max_events, self.max_friends)
        return limits.sensitivity if self.limit_rule == "bounded" else self.max_events


@dataclass(frozen=True, eq=False)
class ColocationSynthesis:
    """Synthetic traces of friends who meet, and what they cost.

    Parameters
    ----------
    traces : Traces
        Of users "synthetic 0", "synthetic 1", ..., who stand for nobody, one trace each over one period of the data's
        time grid; with friendships.
    settings : ColocationSettings
    accountant : Accountant
        Its ledger has all that was spent. **It does not hold under the greedy rule, nor for a model that was given**,
        and says itself where the noise is not private.
    model : FittedModel
        Under which the traces were completed. It holds the real users' ids and its seed: it is secret.
    model_given : bool
        Whether it was.
    drawn : Drawn
        The co-locations that were drawn; by chance there are more.
    n_wanted : int
        As many as were asked for, or there are by the noisy number, of which friends who are elsewhere at the time may
        leave no room for all.
    seed : Seed
        Secret. It does not reproduce the noise, which has none unless a seeded source was given.
    """

    traces: Traces
    settings: ColocationSettings
    accountant: Accountant
    model: FittedModel
    model_given: bool
    drawn: Drawn
    n_wanted: int
    seed: Seed


def synthesize_colocations(
    traces: Traces,
    settings: ColocationSettings | None = None,
    *,
    graph: FriendGraph | None = None,
    model: FittedModel | None = None,
    noise: NoiseSource | None = None,
    seed: int | Seed | None = None,
    record: Callable[[Spending], None] = lambda _: None,
    progress: bool = False,
    **named_settings: Any,
) -> ColocationSynthesis:
    """Synthesize traces of friends who meet: as many users as there are, one trace of one period each.

    Noisy numbers are computed of the data: how probable a friendship is, how many pairs of friends are where when, and
    how many in all. Of these numbers alone a graph of friends and their meetings are drawn (`draw_meetings`), and what
    is between is completed under a trace model, by default TPM with a budget of its own.

    Parameters
    ----------
    traces : Traces
        With friendships, unless the graph is given.
    settings : ColocationSettings, optional
    graph : FriendGraph, optional
        Of all users, where some of them have no event.
    model : FittedModel, optional
        Of any system whose traces have a likelihood, over the same places and period. **What it tells of the users that
        it was learned from is not bounded**, unless it is differentially private itself; then its loss adds to the
        ledger's. Each synthetic user gets the chain of one of its users, by lot.
    noise : NoiseSource, optional
        By default `SecureNoise`. With `SeededNoise` and a seed an experiment can be repeated; the result says that it
        is not private.
    seed : int or Seed, optional
        Of all draws but the noise. It is part of the secret, and comes from the operating system where none is given.
    record : function of a Spending
        Is told every line of the ledger before its noise is drawn: what fails afterwards has spent it.
    progress : bool
        Show a progress bar where there is a terminal.
    **named_settings
        Settings by name, in place of `settings`.

    Raises
    ------
    InputError
        Friendships are not known; a place has no category, for privelet; the model is of other places or instants, has
        no likelihood, or makes drawn meetings impossible; by the noisy numbers there is no friendship or no
        co-location; or there are more co-locations than friendships and instants allow. Only noisy numbers, and what is
        public, decide on it. What was spent until then is spent. Where the noisy number is more than there is room for,
        as many are drawn as find some.

    Notes
    -----
    With the bounded rule and without a model, the traces and their friendships are differentially private, with the sum
    of the ledger's epsilons.

    Neighbours: two data sets over the same users, places and time grid, all public, of which one has neither events nor
    friendships of one user, and which are otherwise the same. Replacing all that is hers by something else costs twice
    as much. How many users there are is told, and who they are is taken as public.

    Mechanisms, each with the proof of its sensitivity: `noisy_friendship_probability` or `noisy_degree_distribution`;
    `noisy_colocation_counts`; discrete Laplace noise of scale max_meetings / epsilon on the number of co-locations that
    `greedy_colocations` keeps, which one user changes by at most max_meetings; and TPM. All are of integers, by OpenDP.
    All the rest is computed of their results and of random numbers that do not depend on the data. They add up by
    sequential composition. Not covered: how long the computation takes.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> city = toy_city(n_users=60, n_places=20, n_days=1, seed=0).traces
    >>> made = synthesize_colocations(city, epsilon_friendship=5.0, n_colocations=50, seed=0)
    >>> made.traces.n_events == 60 * 24, len(made.drawn.pair)
    (True, 50)
    >>> float(made.accountant.spent(RELATION).epsilon)
    7.0
    """
    chosen = chosen_settings(ColocationSettings, settings, named_settings, "co-locations")
    friends = graph if graph is not None else FriendGraph.of(traces)
    _check_model(model, traces)
    if chosen.mechanism == "privelet":
        place_hierarchy(traces.places)
    own_seed = draw_seed(seed)
    accountant = Accountant({RELATION: Budget(_budget(chosen, model is not None))}, noise, record)
    synthetic = _synthetic_friends(friends, chosen, accountant, own_seed.value)
    counts = noisy_colocation_counts(traces, friends, chosen, accountant, seed=own_seed.value)
    probabilities = MeetingProbabilities.as_published(counts)
    if chosen.meetings == "by-counts":
        probabilities = MeetingProbabilities.of_counts(counts)
    number = chosen.n_colocations or _noisy_number(traces, friends, chosen, accountant)
    completing = model or _private_moves(traces, chosen, accountant, own_seed)

    def draw(n: int) -> tuple[Drawn, Int[np.ndarray, "user instant"]]:
        joining = chosen.joining_probability
        drawn = no_meetings(synthetic.n_users, traces.time_grid.period)
        if n:
            drawn = draw_meetings(
                synthetic,
                probabilities,
                n,
                allow_fewer=chosen.n_colocations is None,
                joining_probability=joining,
                seed=own_seed.value,
            )
        return drawn, _completed(completing, drawn, chosen.completion, own_seed.value, progress)

    drawn, places = _as_many_in_all(number, draw, synthetic) if chosen.subtract_chance else draw(number)
    made = _as_traces(places, synthetic, completing)
    return ColocationSynthesis(made, chosen, accountant, completing, model is not None, drawn, number, own_seed)


def place_hierarchy(places: PlaceTable) -> Hierarchy:
    """Places below their categories.

    Raises
    ------
    InputError
        Some have no category.

    Examples
    --------
    >>> place_hierarchy(PlaceTable(np.arange(2), np.zeros(2), np.zeros(2), np.array(["bar", "home"], object))).parent
    array([-1,  0,  0,  1,  2])
    """
    category = np.full(len(places), "", object) if places.category is None else places.category
    without = np.flatnonzero(category == "")
    if len(without):
        way_out = "Name it, as 'other', or take mechanism laplace"
        examples = first_examples(places.ids[without].tolist())
        problem = Problem("a category of each place, for privelet", "places without", len(without), examples, way_out)
        raise InputError("places", [problem])
    return Hierarchy.of_paths([(name,) for name in category.tolist()])


def noisy_colocation_counts(
    traces: Traces, graph: FriendGraph, settings: ColocationSettings, accountant: Accountant, *, seed: int
) -> Float[np.ndarray, "instant place"]:
    """How many pairs of friends are where at each instant of a period, with noise: Q' of section 4.3.

    Parameters
    ----------
    traces : Traces
    graph : FriendGraph
    settings : ColocationSettings
        Of which the limits, the rule, the mechanism and `epsilon_colocation` matter.
    accountant : Accountant
        With a budget for `RELATION`; it gives the noise.
    seed : int
        Of which events count.

    Returns
    -------
    float64 array, shape (instants of a period, places)
        Summed over all periods of the data; may be negative.

    Notes
    -----
    Under the bounded rule the counts change by at most max_events x max_friends, in L1, between neighbours by
    `RELATION` (`bounded_colocations`), and the noise is scaled to that. Under the greedy rule the noise is scaled to
    max_events as published, which is no bound: see `greedy_colocations`.
    """
    if settings.limit_rule == "bounded":
        limits = ColocationLimits(settings.max_events, settings.max_friends)
        kept = bounded_colocations(traces, graph, limits, seed=seed)
    else:
        kept = greedy_colocations(traces, graph, settings.max_events)
    counts = kept.counts_in_period(traces.time_grid.period).toarray()
    what = f"co-locations by instant and place, {settings.limit_rule} rule: {settings.mechanism}"
    own = {"sensitivity": settings.sensitivity, "epsilon": settings.epsilon_colocation}
    if settings.mechanism == "laplace":
        return accountant.add_laplace(counts, **own, mechanism=what, relation=RELATION).astype(float)
    epsilon = accountant.spend(what, RELATION, own["epsilon"], sensitivity=settings.sensitivity)
    return noisy_counts(counts, place_hierarchy(traces.places), settings.sensitivity, epsilon, accountant.noise)


def _budget(settings: ColocationSettings, model_given: bool) -> str:
    """The exact sum of what will be spent, as text."""
    parts = [settings.epsilon_friendship, settings.epsilon_colocation]
    parts += [] if settings.n_colocations else [settings.epsilon_number]
    parts += [] if model_given else [settings.epsilon_moves]
    return str(sum((Budget(part).loss.epsilon for part in parts), Fraction()))


def _synthetic_friends(
    graph: FriendGraph, settings: ColocationSettings, accountant: Accountant, seed: int
) -> FriendGraph:
    epsilon, n_users = settings.epsilon_friendship, graph.n_users
    if settings.graph_model == "erdos-renyi":
        # Of the number, of which the probability is computed: every line of the ledger is of whole numbers.
        to_spend = accountant.spend("number of friendships", RELATION, epsilon, sensitivity=max(n_users - 1, 1))
        probability = noisy_friendship_probability(graph, to_spend, accountant.noise)
        return sample_erdos_renyi(n_users, probability, seed=seed)
    most = settings.max_degree
    to_spend = accountant.spend("numbers of friends", RELATION, epsilon, sensitivity=2 * most)
    shares = noisy_degree_distribution(graph, most, to_spend, accountant.noise, seed=seed)
    return sample_configuration_graph(n_users, shares, seed=seed)


def _noisy_number(traces: Traces, graph: FriendGraph, settings: ColocationSettings, accountant: Accountant) -> int:
    """How many co-locations there are in a period, with noise."""
    counted, most = len(greedy_colocations(traces, graph, settings.max_meetings)), settings.max_meetings
    noisy = accountant.add_laplace(
        np.array([counted]), most, settings.epsilon_number, "number of co-locations: laplace", RELATION
    )
    number = round(int(noisy[0]) * traces.time_grid.period / traces.time_grid.n_instants)
    if number < 1:
        expected = "at least one co-location in a period, by the noisy number of them"
        way_out = "Give n_colocations, or raise epsilon_number if friends do meet. What was spent is spent"
        raise InputError("co-locations", [Problem(expected, str(number), way_out=way_out)])
    return number


def _private_moves(traces: Traces, settings: ColocationSettings, accountant: Accountant, seed: Seed) -> FittedModel:
    """TPM under the budget of all other moves."""
    what, most = "all other moves: transition matrix (TPM)", settings.max_transitions
    epsilon = accountant.spend(what, RELATION, settings.epsilon_moves, sensitivity=most)
    return fit_with_noise(traces, TPMSettings(epsilon, most), accountant.noise, seed=seed)


def _as_many_in_all(
    number: int, draw: Callable[[int], tuple[Drawn, Int[np.ndarray, "user instant"]]], graph: FriendGraph
) -> tuple[Drawn, Int[np.ndarray, "user instant"]]:
    """Meetings and places with about so many co-locations in all, chance included.

    Draws until it fits, of noisy numbers alone: first without any meeting, which tells what chance makes, then with as
    many as are missing. More than that come about, for who meets stays together a while and meets friends of friends:
    from there, by the straight line between the last draws with too few and too many.
    """
    by_chance = _n_colocations(draw(0)[1], graph)
    if by_chance >= number:
        way_out = "Leave subtract_chance, or ask for more with n_colocations"
        expected = f"fewer co-locations by chance than the {number} that there are to be"
        raise InputError("co-locations", [Problem(expected, str(by_chance), way_out=way_out)])
    # The upper one is a guess, until one is drawn: as if all that are drawn came on top of chance.
    low, high, tries = (by_chance, 0), (number + by_chance, number), []
    for _ in range(MOST_DRAWS):
        totals, n_drawn = zip(low, high, strict=True)
        made = draw(round(np.interp(number, totals, n_drawn)))
        total = _n_colocations(made[1], graph)
        tries.append((abs(total - number), made))
        if tries[-1][0] <= CLOSE_ENOUGH * number:
            break
        low, high = ((total, len(made[0].pair)), high) if total < number else (low, (total, len(made[0].pair)))
    return min(tries, key=lambda each: each[0])[1]


def _n_colocations(places: Int[np.ndarray, "user instant"], graph: FriendGraph) -> int:
    """How many pairs of friends are at one place, at all instants."""
    one, other = graph.pairs.T
    return sum(int((places[one, instant] == places[other, instant]).sum()) for instant in range(places.shape[1]))


def _check_model(model: FittedModel | None, traces: Traces) -> None:
    if model is None:
        return
    problems: list[Problem | str] = []
    if not isinstance(model.trace_model, ScoredTraceModel):
        way_out = "Completion weighs whole traces: take another system"
        problems.append(Problem("a model whose traces have a likelihood", model.system, way_out=way_out))
    problems += grid_problems(model, traces)
    if problems:
        raise InputError("model", problems)


def _completed(
    model: FittedModel, drawn: Drawn, how: str, seed: int, progress: bool
) -> Int[np.ndarray, "user instant"]:
    """A place of each synthetic user at each instant, under the chain of one of the model's users, by lot."""
    n_users, n_places = len(drawn.known), len(model.places)
    lots = np.resize(numpy_stream(seed, Stage.COMPLETION).permutation(model.n_users), n_users)
    given = (model.trace_model, lots, drawn.known, n_places)
    if how == "random":
        keys = jax.random.split(jax_stream(seed, Stage.COMPLETION), n_users)
        places, impossible_at = sample_places(keys, *given, progress=progress)  # type: ignore[arg-type]
    else:
        places, impossible_at = most_probable_places(*given, progress=progress)  # type: ignore[arg-type]
    impossible = np.flatnonzero(impossible_at != ABSENT)
    if len(impossible):
        way_out = "Take a model in which every move is possible, such as tpm or bridge"
        found = f"{len(impossible)} users who cannot be where they meet"
        raise InputError("co-locations", [Problem("meetings that are possible under the model", found, 0, (), way_out)])
    return places


def _as_traces(places: Int[np.ndarray, "user instant"], graph: FriendGraph, model: FittedModel) -> Traces:
    user_ids = ids_of_nobody(graph.n_users, "synthetic", places)
    user, instant = np.indices(places.shape)
    columns = {"user": user_ids[user.ravel()], "instant": instant.ravel(), "place": model.places.ids[places.ravel()]}
    friendships = pd.DataFrame(user_ids[graph.pairs], columns=["user", "friend"])
    traces = Traces.from_frame(pd.DataFrame(columns), model.places, model.time_grid, friendships)
    return replace(traces, of_nobody=True)
