"""TPM: one transition matrix for all users under user-level differential privacy.

The second synthesizer of section 5.3 of the co-location paper (Narita et al., "Synthesizing Privacy-Preserving Location
Traces Including Co-locations"): Laplace noise on every transition count, first places from the stationary distribution.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ppmtf_jax.data.description import percent
from ppmtf_jax.data.runs import least_of_each
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.noise.mechanisms import NoiseSource, SecureNoise, SeededNoise
from ppmtf_jax.runtime.memory import require_memory
from ppmtf_jax.settings import Count, Positive, Settings
from ppmtf_jax.streams import Seed, Stage, UserStreams
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Claims, Synthesizer
from ppmtf_jax.synthesizers.systems.ppmtf import PRIVATE_POPULATION_BYTES
from ppmtf_jax.trace_models.base import Index, OneKey, ScoredTraceModel, StoredArray, stored
from ppmtf_jax.trace_models.population import one_step_more, stationary_distribution
from ppmtf_jax.trace_models.sampling import sample_index

TITLE = "One transition matrix for all users, with user-level differential privacy (co-location paper, 5.3)"


@dataclass(frozen=True)
class TPMSettings(Settings):
    """Settings of TPM.

    Parameters
    ----------
    epsilon : float
        Privacy budget of the model and of everything made from it. A smaller epsilon protects better.
    max_transitions : int
        Maximum number of transitions per user that are counted, chosen at random. The noise is proportional to it.
    noise : "secure" or "seeded"
        "seeded" noise is reproducible, for experiments; the model then protects nobody.
    """

    epsilon: Positive = 1.0
    max_transitions: Count = 10
    noise: Literal["secure", "seeded"] = "secure"


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class TransitionMatrix(ScoredTraceModel):
    """One homogeneous Markov chain for all users."""

    # Probabilities of the first place.
    first: Float[Array, " place"] = stored(lambda n: StoredArray((n.places,), low=0, high=1))
    transition: Float[Array, "place next_place"] = stored(lambda n: StoredArray((n.places, n.places), low=0, high=1))
    # Expected sum of the positive counts from noise alone, divided by the sum of the positive noisy counts; at most 1.
    noise_share: Float[Array, ""] = stored(lambda n: StoredArray((), low=0, high=1))

    def sample_first(self, key: OneKey, user: Index) -> Index:
        return sample_index(jax.random.uniform(key, dtype=self.first.dtype), self.first)

    def sample_next(self, key: OneKey, user: Index, instant: Index, place: Index) -> Index:
        return sample_index(jax.random.uniform(key, dtype=self.first.dtype), self.transition[place])

    def user_classes(self, n_users: int) -> Int[np.ndarray, " user"]:
        return np.zeros(n_users, int)

    def instant_classes(self, n_instants: int) -> Int[np.ndarray, " instant"]:
        return np.zeros(n_instants, int)

    def user_cache(self, users: Int[Array, " user"]) -> Int[Array, " user"]:
        return jnp.zeros_like(users)

    def log_first(self, cache: Index, place: Index) -> Float[Array, ""]:
        return jnp.log(self.first[place])

    def log_next(self, cache: Index, instant: Index, place: Index, next_place: Index) -> Float[Array, ""]:
        return jnp.log(self.transition[place, next_place])

    def summary(self) -> list[str]:
        return [f"noise alone would make {percent(float(self.noise_share))} of the transitions that were learned"]


def fit_with_noise(train: Traces, settings: TPMSettings, noise: NoiseSource, *, seed: Seed) -> FittedModel:
    """Like `fit`, with a noise source that several mechanisms share, such as one of an `Accountant`.

    The settings of the model record whether the noise was secure.
    """
    used = replace(settings, noise="secure" if noise.is_private else "seeded")
    return FittedModel.of("tpm", asdict(used), seed, train, _noisy_chain(train, used, noise, seed.value))


def fit_trace_model(train: Traces, settings: TPMSettings, seed: int, *_: object) -> TransitionMatrix:
    """Count the transitions of all users, at most `max_transitions` of each user, and add noise to every count.

    Negative counts become 0. Then each place gets one additional step, distributed over next places like all steps
    (`one_step_more`). So every move is possible, and there is exactly one stationary distribution.

    Notes
    -----
    The model is epsilon-differentially private at the level of users, and so is everything computed from it.

    Neighbours: two data sets that differ by one additional user with all their traces; places and time grid are public.

    Mechanism: discrete Laplace noise of scale max_transitions / epsilon on each of the places x places counts, from
    `SecureNoise`, which has no seed: the same seed does not give the same model. Everything else is computed from the
    noisy counts alone. Seeded noise gives no guarantee.

    Sensitivity of the counts: max_transitions in L1. Proof: the counts are the sum over users of each user's own
    counts. Which transitions of a user count is a function of the seed, their id and their own events (`UserStreams`),
    so for every seed the additional user does not change those of the others. The sum changes by these counts alone,
    which are not negative and add up to at most max_transitions. As this holds for every seed, the seed may be known.
    """
    noise = SecureNoise() if settings.noise == "secure" else SeededNoise(seed)
    return _noisy_chain(train, settings, noise, seed)


def _noisy_chain(train: Traces, settings: TPMSettings, noise: NoiseSource, seed: int) -> TransitionMatrix:
    n_places = train.n_places
    require_memory("fit", PRIVATE_POPULATION_BYTES * n_places**2, "Take fewer places")
    count = trimmed_transition_counts(train, settings.max_transitions, seed)
    noisy = noise.add_laplace(count, settings.max_transitions, settings.epsilon)
    count = np.maximum(noisy, 0)
    transition = one_step_more(count)
    noise_share = n_places**2 * _mean_positive_part(settings.max_transitions / settings.epsilon) / max(count.sum(), 1)
    return TransitionMatrix(
        jnp.asarray(stationary_distribution(transition)), jnp.asarray(transition), jnp.asarray(min(noise_share, 1.0))
    )


def trimmed_transition_counts(traces: Traces, max_transitions: int, seed: int) -> Int[np.ndarray, "place next_place"]:
    """Transition counts with at most `max_transitions` steps of each user, drawn with their own random stream."""
    event, user, place, next_place = traces.transitions()
    when = np.stack([traces.trace[event], traces.instant[event]], axis=1)
    drawn = UserStreams.of(seed, Stage.TRIMMED_TRANSITIONS, traces.user_ids).at(user, when)
    kept = least_of_each(user, drawn, max_transitions)
    cell = place[kept].astype(np.int64) * traces.n_places + next_place[kept]
    return np.bincount(cell, minlength=traces.n_places**2).reshape(traces.n_places, -1)


def _mean_positive_part(scale: float) -> float:
    """Mean of max(Z, 0) for discrete Laplace noise Z: e^(-1/scale) / (1 - e^(-2/scale))."""
    return float(np.exp(-1 / scale) / -np.expm1(-2 / scale))


def claims(model: TransitionMatrix, settings: TPMSettings) -> Claims:
    """Claims of a release of these traces."""
    del model
    if settings.noise != "secure":
        seeded = "anybody's transitions: NOT PRIVATE. The noise of their counts comes from a seed, for experiments only"
        return Claims(not_protected=(seeded,))
    return Claims(
        (
            f"each training user with all their traces, because these are {settings.epsilon:g}-differentially private. "
            "Places and times come from noisy counts of all users' transitions, and from nothing else in the data. "
            "Neighbours are two data sets that differ by one additional user. The place "
            "list and the time grid are treated as public",
        ),
        (
            "anybody, if there are several releases: the epsilon of any other model or release of the same data is "
            "added to its",
        ),
        is_private=True,
    )


SYNTHESIZERS.register(Synthesizer("tpm", TITLE, TPMSettings, fit_trace_model, TransitionMatrix, claims))
