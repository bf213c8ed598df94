"""Training: the data itself, given away. The upper end of utility, and the lower end of privacy.

To compare with: what a synthesizer that knows everything and protects nobody achieves.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.gibbs.run import Checkpoints
from ppmtf_jax.settings import Settings
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Claims, Synthesizer
from ppmtf_jax.trace_models.base import Sizes, StoredArray, TraceModel

ABSENT = -1


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class OwnPeriods(TraceModel):
    """Each user's own recorded periods, of which a trace is one, drawn at random.

    Parameters
    ----------
    period_start : int array, shape (users + 1,)
        Where each user's periods begin in `place`.
    place : int array, shape (periods, instants)
    carried : float array, shape ()
        Share of the events in which nothing was recorded, and the place of another event stands.
    """

    period_start: Int[Array, " user1"]
    place: Int[Array, "period instant"]
    carried: Float[Array, ""]

    def sample_trace(self, key: Key[Array, ""], user: Int[Array, ""], n_instants: int) -> Int[Array, " instant"]:
        period = jax.random.randint(key, (), self.period_start[user], self.period_start[user + 1])
        return self.place[period, :n_instants]

    def summary(self) -> list[str]:
        lines = ["these are the users' own traces, given away as they are: for comparison, never for release"]
        if self.carried > 0:
            lines.append(
                f"{float(self.carried):.1%} of their events were not recorded: the place before is carried on there, "
                "which makes people stay too much; complete the traces first for another filling"
            )
        return lines

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {each.name: np.asarray(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> OwnPeriods:
        start = arrays["period_start"]
        if start[0] != 0 or start[-1] != len(arrays["place"]) or not np.diff(start).all():
            raise ValueError("users without a period, or periods of nobody")
        return cls(**{name: jnp.asarray(value) for name, value in arrays.items()})

    @classmethod
    def stored_arrays(cls, sizes: Sizes) -> dict[str, StoredArray]:
        return {
            "period_start": StoredArray((sizes.users + 1,), "int", 0, rises=True),
            "place": StoredArray(("periods", sizes.instants), "int", 0, sizes.places - 1),
            "carried": StoredArray((), low=0, high=1),
        }


@dataclass(frozen=True)
class TrainingSettings(Settings):
    """Training has no settings."""


def fit_trace_model(
    train: Traces, settings: TrainingSettings, seed: int, progress: bool = False, checkpoints: Checkpoints | None = None
) -> OwnPeriods:
    """Keep each user's most complete periods.

    A period, such as a day, of a trace is hers if it has an event. Of these the ones with most events stay, so that as
    little as can be is made up: where every period is complete all of them do, equally probable, and what is drawn has
    the statistics of the training data (each user counting the same). Where hers have gaps, the place of the event
    before is carried on, and before the first event its own is carried back.
    """
    del settings, seed, progress, checkpoints
    length, trace_of_event = train.time_grid.period, train.trace_of_event()
    n_periods = -(-train.time_grid.n_instants // length)
    name = trace_of_event * np.int64(n_periods) + train.instant // length
    _, first, row, n_events = np.unique(name, return_index=True, return_inverse=True, return_counts=True)
    user = train.user[first]
    most = np.zeros(train.n_users, np.int64)
    np.maximum.at(most, user, n_events)
    kept = n_events == most[user]
    place = np.full((len(first), length), ABSENT, np.int32)
    place[row, train.instant % length] = train.place
    place = place[kept]
    carried = (place == ABSENT).mean()
    start = np.searchsorted(user[kept], np.arange(train.n_users + 1)).astype(np.int32)
    return OwnPeriods(jnp.asarray(start), jnp.asarray(_carried_on(place)), jnp.asarray(carried))


def _carried_on(place: Int[np.ndarray, "period instant"]) -> Int[np.ndarray, "period instant"]:
    """Gaps with the place before them, or, where there is none, the first one after them."""
    known = place != ABSENT
    last_known = np.maximum.accumulate(np.where(known, np.arange(place.shape[1]), ABSENT), axis=1)
    at = np.where(last_known == ABSENT, known.argmax(axis=1)[:, None], last_known)
    return np.take_along_axis(place, at, axis=1)


def claims(model: OwnPeriods, settings: TrainingSettings) -> Claims:
    """What a release of these traces has to say."""
    del model, settings
    everything = "EVERYTHING. These are the users' own traces as recorded, with nothing changed to protect anyone"
    return Claims(not_protected=(everything,))


SYNTHESIZERS.register(
    Synthesizer(
        "training",
        "The training data itself, given away: protects nobody, for comparison only",
        TrainingSettings,
        fit_trace_model,
        OwnPeriods,
        claims,
    )
)
