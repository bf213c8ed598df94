"""Choice of what the bridge's synthetic people remember, by the likelihood of held-out training users.

A quarter of the training users are held out. Three models are fitted to the other users, with the same clusters and the
same smoothing: the chain, people who remember places, and people who also have homes. A model is good enough if its
log-likelihood of the held-out users is within one standard error of the best one. The simplest of the good models is
chosen. Test users and metrics are not used.

Real traces have gaps. An exact score of an event after a gap would be a sum over all places at the missing instants.
Instead, all models distinguish the same two cases. In the first case, the person stayed at her place at each instant of
the gap. In the second case, she left this place. Then the chain takes the place after the gap from the cluster's
distribution in this slot. People with a memory use their memory, as `bridge.people.likelihood.log_traces` describes.
The difference to the exact sum was measured in a simulated city, with weeks in which a fifth of the events follow a
gap. The exact sum raises the mean log-probability of an event by 0.008 nats for the chain, and by 0.518 nats for people
with homes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp

from ppmtf_jax.bridge.clusters import Clusters
from ppmtf_jax.bridge.people.choice import MEMORIES, Memory
from ppmtf_jax.bridge.people.law import MOST_REMEMBERED
from ppmtf_jax.bridge.tuning import HELD_OUT_OF, MOST_USERS, first_within_error, random_folds
from ppmtf_jax.data.runs import rank_in_group, run_begins
from ppmtf_jax.data.traces import Traces, TraceSet
from ppmtf_jax.runtime.devices import of_first_process
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.synthesizers.bridge_model import ClusterBridge
from ppmtf_jax.trace_models.base import ABSENT

# The comparison needs several held-out users and several others. With fewer users than this, nothing is compared.
LEAST_USERS = 2 * HELD_OUT_OF
STEPS_AT_A_TIME = 4096
# In single precision, a probability of staying may be rounded to 1.
ROUNDING = 1e-6


class MemoryChoice(NamedTuple):
    """The chosen memory, and for each of `MEMORIES` the mean gain over the chain in log-probability per event (nats).

    If `gain` is None, nothing was compared.
    """

    memory: Memory
    gain: Float[np.ndarray, " memory"] | None = None


def choose_memory(
    train: TraceSet,
    of_user: Int[np.ndarray, " user"],
    score: Callable[[Memory, Traces, Int[np.ndarray, " user"], Traces], Float[np.ndarray, " held_out"]],
    random: np.random.Generator,
    progress: bool = False,
) -> MemoryChoice:
    """Compare the models on at most 2,000 random users; with too few users, people remember nothing.

    A trace is compared up to the last place that a person can remember; what follows is impossible under people who
    remember. `score(memory, learned, of_learned, held_out)` fits a model to the traces `learned`, whose users are in
    the clusters `of_learned`, and returns the log-likelihood of each held-out user.
    """
    if train.n_users < LEAST_USERS:
        return MemoryChoice("none")
    users = np.sort(random.permutation(train.n_users)[:MOST_USERS])
    others, held_out = next(random_folds(len(users), HELD_OUT_OF, random))
    some = train.select_users(users)
    learned, predicted = (some.select_users(each).cut_into_periods() for each in (others, held_out))
    predicted = remembered(predicted)
    of_learned = np.unique(of_user[users[others]], return_inverse=True)[1].astype(np.int32)
    scores = []
    with progress_bar("choosing what people remember", len(MEMORIES), show=progress, waits_for="") as advance:
        for memory in MEMORIES:
            scores.append(score(memory, learned, of_learned, predicted))
            advance(1)
    gain = [(each - scores[0]).sum() / predicted.n_events for each in scores]
    # Other processors may round differently, so all use the choice of the first process.
    chosen = int(of_first_process(np.array(first_within_error(scores))))
    return MemoryChoice(MEMORIES[chosen], of_first_process(np.array(gain, np.float32)))


def remembered(traces: Traces) -> Traces:
    """The events of each trace before its first place beyond the `MOST_REMEMBERED` places of a person."""
    trace = traces.trace_of_event().astype(np.int64)
    is_new = rank_in_group(trace * traces.n_places + traces.place) == 0
    n_so_far = np.cumsum(is_new)
    first = np.flatnonzero(run_begins(trace))
    return traces.select_events(n_so_far - (n_so_far[first] - 1)[trace] <= MOST_REMEMBERED)


def table_of(traces: Traces) -> tuple[Int[np.ndarray, "trace instant"], Int[np.ndarray, " trace"]]:
    """Places of traces cut into periods, `ABSENT` where there is no event; and the user of each trace."""
    periods = traces.periods()
    places = np.full((len(periods.first), traces.time_grid.period), ABSENT, np.int32)
    places[periods.piece, periods.phase] = traces.place
    return places, traces.user[periods.first]


def chain_log_likelihood(chain: ClusterBridge, clusters: Clusters, traces: Traces) -> Float[np.ndarray, " user"]:
    """Log-likelihood of each user's events under the mixture of clusters.

    The probability of the first event of a trace is the share of its place in the cluster's visits in its slot. After a
    gap, a person is still at the place before the gap with the probability of staying there at each instant of the gap.
    Otherwise, the probability of her place is again this share.
    """
    slot, place, phase = traces.slot, traces.place, traces.instant % traces.time_grid.period
    is_step, is_first = traces.is_step(), np.zeros(traces.n_events, bool)
    is_first[traces.periods().first] = True
    first_user = np.unique(clusters.of_user, return_index=True)[1]
    cache, score = chain.user_cache(jnp.asarray(first_user)), jax.jit(chain.log_moves)

    def log_moves(*columns: Int[np.ndarray, " step"]) -> Float[np.ndarray, "step cluster"]:
        """Log-probabilities of steps, by phase, place and next place."""
        found = np.empty((len(columns[0]), len(first_user)))
        for begin in range(0, len(found), STEPS_AT_A_TIME):
            rows = slice(begin, begin + STEPS_AT_A_TIME)
            padded = (jnp.asarray(np.resize(column[rows], STEPS_AT_A_TIME)) for column in columns)
            found[rows] = np.asarray(score(cache, *padded))[: len(found[rows])]
        return found

    log = np.log(clusters.visits[:, slot, place]).T
    step, gap = np.flatnonzero(is_step), np.flatnonzero(~is_step & ~is_first)
    log[step] = log_moves(phase[step], place[step - 1], place[step])
    last, length = place[gap - 1], phase[gap] - phase[gap - 1]
    log_stay = np.zeros((len(gap), len(first_user)))
    for before in range(length.max(initial=0)):
        rows = np.flatnonzero(before < length)
        log_stay[rows] += log_moves(phase[gap[rows]] - before, last[rows], last[rows])
    stays = np.minimum(np.exp(log_stay), 1 - ROUNDING)
    log[gap] = np.log(np.where((last == place[gap])[:, None], stays, 0) + (1 - stays) * np.exp(log[gap]))
    of_user = np.stack([np.bincount(traces.user, column, traces.n_users) for column in log.T], axis=1)
    return np.asarray(logsumexp(of_user + np.log(clusters.share), axis=1))
