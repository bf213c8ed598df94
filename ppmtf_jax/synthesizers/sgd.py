"""SGD: one transition matrix per slot for all users, first events copied (Murakami et al. 2021, App. C)."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.gibbs.run import Checkpoints
from ppmtf_jax.settings import CountOrZero, Settings
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Claims, Synthesizer
from ppmtf_jax.trace_models.shared_chain import ABSENT, SharedChain

TITLE = "Synthetic data generation: one transition matrix per slot for everybody, first events copied (App. C)"


@dataclass(frozen=True)
class SGDSettings(Settings):
    """Settings of SGD.

    Parameters
    ----------
    n_copied : int
        How many first events of the input user are copied (xi). With 0 a trace is independent of its input user.
    """

    n_copied: CountOrZero = 0


def fit_trace_model(
    train: Traces, settings: SGDSettings, seed: int, progress: bool = False, checkpoints: Checkpoints | None = None
) -> SharedChain:
    """Maximum likelihood: count transitions per slot of arrival, and places in the first slot."""
    period = train.time_grid.one_period()
    n_places, n_slots = train.n_places, train.time_grid.n_slots
    event, _, place, next_place = train.transitions()
    row = train.slot[event].astype(np.int64) * n_places + place
    seen, count = np.unique(row * n_places + next_place, return_counts=True)
    row, next_place = np.divmod(seen, n_places)
    # JAX cannot index an empty array: add a last entry that no row reaches.
    next_place = np.append(next_place, n_places)
    in_first_slot = train.slot == period.slot_of_instant[0]
    first_count = np.bincount(train.place[in_first_slot], minlength=n_places)
    if not first_count.any():
        # Without events in the first slot, take the population of all slots.
        first_count = np.bincount(train.place, minlength=n_places)
    return SharedChain(
        jnp.asarray(np.searchsorted(row, np.arange(n_slots * n_places + 1)).astype(np.int32)),
        jnp.asarray(next_place.astype(np.int32)),
        jnp.asarray(_running_sum(count)),
        jnp.asarray(_running_sum(first_count)),
        jnp.asarray(_first_places(train, min(settings.n_copied, period.n_instants), period.n_instants)),
        jnp.asarray(period.slot_of_instant),
    )


def _running_sum(count: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(count)]).astype(np.int32)


def _first_places(train: Traces, n_copied: int, n_instants: int) -> np.ndarray:
    """Each user's place at the first instants of a period, from her earliest period with an event then; -1 if none."""
    copied = np.full((train.n_users, n_copied), ABSENT, np.int32)
    instant = train.instant % n_instants
    early = np.flatnonzero(instant < n_copied)[::-1]
    copied[train.user[early], instant[early]] = train.place[early]
    return copied


def claims(model: SharedChain, settings: SGDSettings) -> Claims:
    """Claims of a release of these traces."""
    del model
    if not settings.n_copied:
        return Claims()
    events = "event" if settings.n_copied == 1 else f"{settings.n_copied} events"
    return Claims(
        not_protected=(
            f"the first {events} of each trace, copied from the input user where she had any at these instants",
        )
    )


SYNTHESIZERS.register(Synthesizer("sgd", TITLE, SGDSettings, fit_trace_model, SharedChain, claims))
