"""Traces of synthetic friends who meet, under differential privacy.

Section 4 of the co-location paper (see `friends`), with secure noise, and completion under any model with likelihoods.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Any, Literal

import jax
import numpy as np
import pandas as pd
from annotated_types import Ge, Lt
from jaxtyping import Float, Int

from ppmtf_jax.colocation.counts import ColocationLimits, bounded_colocations, find_colocations, greedy_colocations
from ppmtf_jax.colocation.drawing import Drawn, MeetingProbabilities, draw_meetings, no_meetings
from ppmtf_jax.colocation.friends import (
    FriendGraph,
    noisy_degree_distribution,
    noisy_friendship_probability,
    noisy_level_counts,
    sample_barabasi_albert,
    sample_configuration_graph,
    sample_erdos_renyi,
)
from ppmtf_jax.data.comparable import ids_of_nobody
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem, first_examples, raise_any
from ppmtf_jax.noise.accountant import Accountant, Spending, exact_loss
from ppmtf_jax.noise.mechanisms import NoiseSource
from ppmtf_jax.noise.privelet import Hierarchy, noisy_counts
from ppmtf_jax.runtime.threads import in_single_precision
from ppmtf_jax.settings import Count, Positive, Settings, chosen_settings
from ppmtf_jax.streams import Seed, Stage, draw_seed, jax_stream, numpy_stream
from ppmtf_jax.synthesizers.fitted_model import FittedModel, grid_problems
from ppmtf_jax.synthesizers.gaps import complete_rows, completion_problems
from ppmtf_jax.synthesizers.systems.tpm import TPMSettings, fit_with_noise
from ppmtf_jax.trace_models.completion import ABSENT

RELATION = (
    "one user: two data sets over the same users, places and time grid, of which one has neither events nor "
    "friendships of one user, and which are otherwise the same"
)
# Allowed relative error of the number of co-locations, and maximum number of draws of meetings.
CLOSE_ENOUGH, MAX_DRAWS = 0.02, 6
# Scale of the noise on levels, as a share of the number of friendships, above which there is a warning.
MUCH_NOISE = 0.2


@dataclass(frozen=True)
class ColocationSettings(Settings, subject="co-location settings"):
    """Settings of the synthesis of friends' traces, with the privacy budget of each part.

    Parameters
    ----------
    epsilon_friendship : float
        Privacy budget of the friendship graph, under node differential privacy.
    epsilon_colocation : float
        Privacy budget of the places and instants at which friends meet.
    epsilon_number : float
        Privacy budget of the number of co-locations. Not spent if `n_colocations` is given.
    epsilon_moves : float
        Privacy budget of all other moves. Not spent if a model is given.
    epsilon_level : float
        Privacy budget of the levels of friendships. Not spent if `max_level` is 1.
    n_colocations : int, optional
        Number of co-locations to draw (theta). By default the noisy number of co-locations in a period of the data.
        Completion of traces, and meetings with friends of friends, add further co-locations by chance.
    subtract_chance : bool
        Draw fewer co-locations, so that the total including co-locations by chance is right. Refused if chance alone
        makes more than the total. This happens where users have few events, because synthetic traces are complete.
    max_events : int
        Maximum number of a user's events that count for meetings. The noise is proportional to it.
    max_friends : int
        Maximum number of friends with whom a user is counted at one place and instant. The noise is proportional to it.
    max_meetings : int
        Maximum number of co-locations of a user that are counted for the total number. The noise is proportional to it.
    max_transitions : int
        Maximum number of moves of a user that count for the model of all other moves. The noise is proportional to it.
    mechanism : "privelet" or "laplace"
        "privelet": noise that is small for categories of places. "laplace": noise that is small for single places.
    graph_model : "erdos-renyi", "barabasi-albert" or "configuration"
        "erdos-renyi": any two users are friends with the same probability. "barabasi-albert": as many friendships, but
        a few users have very many. "configuration": the distribution of the number of friends is that of the data.
    max_degree : int
        Maximum number of friends of a user that count for the configuration model, and for each level of friendship.
        The noise is proportional to it.
    max_level : int
        With 1, all friendships are equal, as published. Otherwise the level of a friendship is how often the friends
        meet in the data, up to this number, and synthetic friends meet in proportion to a level drawn from their
        distribution; friends of level 0 meet by chance only. The noise grows with it, and a warning says if it hides
        the levels. Users with more than `max_degree` friends who rarely meet make levels too high.
    meetings : "published" or "by-counts"
        Instants and places of meetings. "published": as in the paper, instants are equally probable. "by-counts": in
        proportion to the nearest non-negative counts. This is better only if counts are well above their noise;
        otherwise it reproduces the noise.
    joining_probability : float
        Probability that a friend of two people who meet is asked to come along, then a further friend, and so on. At
        least 0 and below 1.
    completion : "random" or "most-probable"
        How traces are completed between meetings. "most-probable", as published, repeats the most probable trace.
    """

    epsilon_friendship: Positive = 1.0
    epsilon_colocation: Positive = 1.0
    epsilon_number: Positive = 0.1
    epsilon_moves: Positive = 1.0
    epsilon_level: Positive = 1.0
    n_colocations: Count | None = None
    subtract_chance: bool = False
    max_events: Count = 10
    max_friends: Count = 1
    max_meetings: Count = 100
    max_transitions: Count = 10
    mechanism: Literal["privelet", "laplace"] = "privelet"
    graph_model: Literal["erdos-renyi", "barabasi-albert", "configuration"] = "erdos-renyi"
    max_degree: Count = 50
    max_level: Count = 1
    meetings: Literal["published", "by-counts"] = "published"
    joining_probability: Annotated[float, Ge(0), Lt(1)] = 0.0
    completion: Literal["random", "most-probable"] = "random"


@dataclass(frozen=True, eq=False)
class ColocationSynthesis:
    """Synthetic traces of friends who meet, and their privacy cost.

    Parameters
    ----------
    traces : Traces
        One trace over one period of the data's time grid for each of the users "synthetic 0", "synthetic 1", ..., who
        represent no real person; with friendships.
    accountant : Accountant
        Its ledger lists everything that was spent. **The ledger does not hold for a given model.** It says if the noise
        is not private.
    model : FittedModel
        The model that completed the traces. It is secret, since it contains the real users' ids and its seed.
    model_given : bool
        Whether the caller gave the model; otherwise it was learned under the budget.
    drawn : Drawn
        The drawn co-locations; there are further co-locations by chance.
    n_wanted : int
        The given or the noisy number of co-locations. Fewer are drawn if too many friends are already at other places.
    seed : Seed
        Secret. It does not reproduce the noise, which has no seed unless a seeded source was given.
    """

    traces: Traces
    settings: ColocationSettings
    accountant: Accountant
    model: FittedModel
    model_given: bool
    drawn: Drawn
    n_wanted: int
    seed: Seed


@in_single_precision
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
    """Synthesize traces of friends who meet: as many users as in the data, with one trace of one period each.

    From noisy numbers alone, a friendship graph and meetings are drawn (`draw_meetings`). A trace model fills the time
    between meetings, by default TPM with its own budget.

    Parameters
    ----------
    traces : Traces
        Traces with friendships, unless `graph` is given.
    graph : FriendGraph, optional
        The graph of all users; needed if some of them have no event.
    model : FittedModel, optional
        A model of any system with likelihoods of traces, over the same places and period. **What the model reveals
        about its training users is not bounded**, unless the model is differentially private; then its loss must be
        added to the ledger's. Each synthetic user is drawn like a random user of the model.
    noise : NoiseSource, optional
        By default `SecureNoise`. With `SeededNoise` and a seed, an experiment is reproducible; the result says that it
        is not private.
    seed : int or Seed, optional
        Seed of all draws except the noise. Keep it secret. By default it comes from the operating system.
    record : function of a Spending
        Receives every line of the ledger before its noise is drawn, because a run that fails later has still spent it.
    **named_settings
        Settings by name, in place of `settings`.

    Notes
    -----
    Raises `InputError`: friendships are not known; a place has no category (for privelet); the model has other places
    or instants, has no likelihood, or makes drawn meetings impossible; the noisy numbers give no friendship or no
    co-location; or `n_colocations` exceeds what friendships and instants allow. Errors depend only on noisy numbers and
    public facts, and the budget spent before an error stays spent. If the *noisy* number of co-locations is larger than
    possible, fewer are drawn.

    Without a given model, the traces and their friendships are differentially private, with the sum of the ledger's
    epsilons. Neighbours: `RELATION`. Replacing all data of a user by other data costs twice as much. The number of
    users is revealed, and their identity, the places and the time grid are treated as public.

    Mechanisms, each with the proof of its sensitivity: `noisy_friendship_probability` or `noisy_degree_distribution`;
    with levels, `noisy_level_counts`; `noisy_colocation_counts`; discrete Laplace noise of scale max_meetings / epsilon
    on the number of co-locations that `greedy_colocations` keeps, which one user changes by at most max_meetings; and
    TPM. All work on integers, with OpenDP's noise, and their budgets add up. Everything else is computed from their
    results and from random numbers that do not depend on the data. Not covered: the duration of the computation.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> city = toy_city(n_users=60, n_places=20, n_days=1, seed=0).traces
    >>> made = synthesize_colocations(city, epsilon_friendship=5.0, n_colocations=50, seed=0)
    >>> made.traces.n_events == 60 * 24, len(made.drawn.pair)
    (True, 50)
    >>> float(made.accountant.spent.epsilon)
    7.0
    """
    chosen = chosen_settings(ColocationSettings, settings, named_settings, "co-locations")
    friends = graph if graph is not None else FriendGraph.of(traces)
    if model is not None:
        raise_any("model", [*completion_problems(model), *grid_problems(model, traces)])
    if chosen.mechanism == "privelet":
        place_hierarchy(traces.places)  # refused before anything is spent
    own_seed = draw_seed(seed)
    accountant = Accountant(RELATION, _budget(chosen, model is not None), noise=noise, record=record)
    synthetic = _synthetic_friends(friends, chosen, accountant, own_seed.value)
    level = None
    if chosen.max_level > 1:
        level = _synthetic_levels(traces, friends, synthetic.n_pairs, chosen, accountant, own_seed.value)
    counts = noisy_colocation_counts(traces, friends, chosen, accountant, seed=own_seed.value)
    by_counts = chosen.meetings == "by-counts"
    probabilities = (MeetingProbabilities.of_counts if by_counts else MeetingProbabilities.as_published)(counts)
    number = chosen.n_colocations or _noisy_number(traces, friends, chosen, accountant)
    if (completing := model) is None:
        what, most = "all other moves: transition matrix (TPM)", chosen.max_transitions
        epsilon = accountant.spend(what, chosen.epsilon_moves, sensitivity=most)
        completing = fit_with_noise(traces, TPMSettings(epsilon, most), accountant.noise, seed=own_seed)

    def draw(n: int) -> tuple[Drawn, Int[np.ndarray, "user instant"]]:
        drawn = no_meetings(synthetic.n_users, traces.time_grid.period)
        if n:
            drawn = draw_meetings(
                synthetic,
                probabilities,
                n,
                allow_fewer=chosen.n_colocations is None,
                joining_probability=chosen.joining_probability,
                level=level,
                seed=own_seed.value,
            )
        return drawn, _completed(completing, drawn, chosen.completion, own_seed.value, progress)

    drawn, places = _as_many_in_all(number, draw, synthetic) if chosen.subtract_chance else draw(number)
    made = _as_traces(places, synthetic, completing)
    return ColocationSynthesis(made, chosen, accountant, completing, model is not None, drawn, number, own_seed)


def place_hierarchy(places: PlaceTable) -> Hierarchy:
    """Hierarchy of places and their categories; `InputError` if a place has no category."""
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
    """Noisy number of pairs of friends at each place and instant of a period: Q' of section 4.3.

    Counts are summed over all periods of the data; noisy counts may be negative. They change by at most max_events x
    max_friends, in L1, between neighbours by `RELATION` (`bounded_colocations`). `seed` decides which events count.
    """
    limits, source = ColocationLimits(settings.max_events, settings.max_friends), accountant.noise
    kept = bounded_colocations(traces, graph, limits, seed=seed)
    counts = kept.counts(traces.time_grid.period).toarray()
    what, sensitivity = f"co-locations by instant and place: {settings.mechanism}", limits.sensitivity
    epsilon = accountant.spend(what, settings.epsilon_colocation, sensitivity=sensitivity)
    if settings.mechanism == "laplace":
        return source.add_laplace(counts, sensitivity, epsilon).astype(float)
    return noisy_counts(counts, place_hierarchy(traces.places), sensitivity, epsilon, source)


def _budget(settings: ColocationSettings, model_given: bool) -> Fraction:
    """The exact sum of all budgets that will be spent."""
    parts = [settings.epsilon_friendship, settings.epsilon_colocation]
    parts += [] if settings.n_colocations else [settings.epsilon_number]
    parts += [] if model_given else [settings.epsilon_moves]
    parts += [] if settings.max_level == 1 else [settings.epsilon_level]
    return sum((exact_loss("privacy budget", part).epsilon for part in parts), Fraction())


def _synthetic_friends(
    graph: FriendGraph, settings: ColocationSettings, accountant: Accountant, seed: int
) -> FriendGraph:
    epsilon, n_users, most = settings.epsilon_friendship, graph.n_users, settings.max_degree
    if settings.graph_model != "configuration":
        # The ledger lists the number of friendships, not the probability, so that every line is about whole numbers.
        to_spend = accountant.spend("number of friendships", epsilon, sensitivity=max(n_users - 1, 1))
        probability = noisy_friendship_probability(graph, to_spend, accountant.noise)
        sample = sample_erdos_renyi if settings.graph_model == "erdos-renyi" else sample_barabasi_albert
        return sample(n_users, probability, seed=seed)
    to_spend = accountant.spend("numbers of friends", epsilon, sensitivity=2 * most)
    shares = noisy_degree_distribution(graph, most, to_spend, accountant.noise, seed=seed)
    return sample_configuration_graph(n_users, shares, seed=seed)


def _synthetic_levels(
    traces: Traces, graph: FriendGraph, n_pairs: int, settings: ColocationSettings, accountant: Accountant, seed: int
) -> Int[np.ndarray, " pair"]:
    """A level of each of `n_pairs` synthetic friendships, drawn from the noisy distribution."""
    most, limit = settings.max_level, settings.max_degree
    epsilon = accountant.spend("levels of friendships", settings.epsilon_level, sensitivity=(most + 1) * limit)
    level = np.bincount(find_colocations(traces, graph).pair, minlength=graph.n_pairs)
    n_counted, *at_least = noisy_level_counts(graph, level, most, limit, epsilon, accountant.noise, seed=seed)
    drawn = numpy_stream(seed, Stage.FRIENDSHIPS, 1).random(n_pairs) * n_counted
    found = (drawn[:, None] < np.array(at_least)).sum(axis=1)
    if not found.any():
        way_out = "Raise epsilon_level, or leave max_level at 1. What was spent is spent"
        problem = Problem("friends who meet, by the noisy levels of friendships", "none", way_out=way_out)
        raise InputError("co-locations", [problem])
    scale = (most + 1) * limit / float(epsilon)
    if scale > MUCH_NOISE * n_counted:
        warnings.warn(
            f"The levels of friendships have much noise: of scale {scale:,.0f}, on {n_counted:,.0f} friendships (a "
            "noisy number). Raise epsilon_level, lower max_level or max_degree, or leave max_level at 1.",
            stacklevel=4,
        )
    return found


def _noisy_number(traces: Traces, graph: FriendGraph, settings: ColocationSettings, accountant: Accountant) -> int:
    """The noisy number of co-locations in a period."""
    most, grid = settings.max_meetings, traces.time_grid
    counted = np.array([len(greedy_colocations(traces, graph, most))])
    noisy = accountant.add_laplace(counted, most, settings.epsilon_number, "number of co-locations: laplace")
    number = round(int(noisy[0]) * grid.period / grid.n_instants)
    if number < 1:
        expected = "at least one co-location in a period, by the noisy number of them"
        way_out = "Give n_colocations, or raise epsilon_number if friends do meet. What was spent is spent"
        raise InputError("co-locations", [Problem(expected, str(number), way_out=way_out)])
    return number


def _as_many_in_all(
    number: int, draw: Callable[[int], tuple[Drawn, Int[np.ndarray, "user instant"]]], graph: FriendGraph
) -> tuple[Drawn, Int[np.ndarray, "user instant"]]:
    """Meetings and places with about `number` co-locations in total, including co-locations by chance.

    The first draw has no meetings, so it shows the number by chance. The next ones interpolate linearly between the
    last draw with too few co-locations and the last with too many: people who meet stay together for a while.
    """
    by_chance = _n_colocations(draw(0)[1], graph)
    if by_chance >= number:
        way_out = "Leave subtract_chance, or ask for more with n_colocations"
        expected = f"fewer co-locations by chance than the {number} that there are to be"
        raise InputError("co-locations", [Problem(expected, str(by_chance), way_out=way_out)])
    # First assume that drawn meetings only add to the co-locations by chance.
    low, high, tries = (by_chance, 0), (number + by_chance, number), []
    for _ in range(MAX_DRAWS):
        totals, n_drawn = zip(low, high, strict=True)
        made = draw(round(np.interp(number, totals, n_drawn)))
        total = _n_colocations(made[1], graph)
        tries.append((abs(total - number), made))
        if tries[-1][0] <= CLOSE_ENOUGH * number:
            break
        low, high = ((total, len(made[0].pair)), high) if total < number else (low, (total, len(made[0].pair)))
    return min(tries, key=lambda each: each[0])[1]


def _n_colocations(places: Int[np.ndarray, "user instant"], graph: FriendGraph) -> int:
    """Number of pairs of friends at one place, over all instants."""
    one, other = graph.pairs.T
    return sum(int((places[one, instant] == places[other, instant]).sum()) for instant in range(places.shape[1]))


def _completed(
    model: FittedModel, drawn: Drawn, how: str, seed: int, progress: bool
) -> Int[np.ndarray, "user instant"]:
    """A place of each synthetic user at each instant, drawn like a random user of the model."""
    n_users = len(drawn.known)
    chains = np.resize(numpy_stream(seed, Stage.COMPLETION).permutation(model.n_users), n_users)
    keys = jax.random.split(jax_stream(seed, Stage.COMPLETION), n_users)
    places, impossible_at = complete_rows(model, keys, chains, drawn.known, how, progress)
    impossible = np.flatnonzero(impossible_at != ABSENT)
    if len(impossible):
        way_out = "Take a model in which every move is possible, such as tpm or bridge"
        found = f"{len(impossible)} users who cannot be where they meet"
        raise InputError("co-locations", [Problem("meetings that are possible under the model", found, 0, (), way_out)])
    return places


def _as_traces(places: Int[np.ndarray, "user instant"], graph: FriendGraph, model: FittedModel) -> Traces:
    user_ids = ids_of_nobody(graph.n_users, "synthetic", [places])
    user, instant = np.indices(places.shape)
    columns = {"user": user_ids[user.ravel()], "instant": instant.ravel(), "place": model.places.ids[places.ravel()]}
    friendships = pd.DataFrame(user_ids[graph.pairs], columns=["user", "friend"])
    traces = Traces.from_frame(pd.DataFrame(columns), model.places, model.time_grid, friendships)
    return replace(traces, of_nobody=True)
