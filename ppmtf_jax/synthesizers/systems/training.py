"""Training: the training data itself, as upper reference for utility and lower reference for privacy."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Int

from ppmtf_jax.data.description import percent
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.settings import Settings
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Claims, Synthesizer
from ppmtf_jax.trace_models.base import ABSENT, Index, OneKey, StoredArray, TraceModel, stored

TITLE = "The training data itself: protects nobody, for comparison only"


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class OwnPeriods(TraceModel):
    """Each user's own recorded periods; a trace is one of them, drawn at random."""

    # Where each user's periods begin in `place`.
    period_start: Int[Array, " user1"] = stored(lambda n: StoredArray((n.users + 1,), "int", 0, rises=True))
    place: Int[Array, "period instant"] = stored(lambda n: StoredArray(("periods", n.instants), "int", 0, n.places - 1))
    # Share of the events that were not recorded; they have the place of a neighbouring event.
    carried: Float[Array, ""] = stored(lambda n: StoredArray((), low=0, high=1))

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> OwnPeriods:
        start = arrays["period_start"]
        if start[0] != 0 or start[-1] != len(arrays["place"]) or not np.diff(start).all():
            raise ValueError("users without a period, or periods of nobody")
        return super().from_arrays(arrays)

    def sample_trace(self, key: OneKey, user: Index, n_instants: int) -> Int[Array, " instant"]:
        period = jax.random.randint(key, (), self.period_start[user], self.period_start[user + 1])
        return self.place[period, :n_instants]

    def summary(self) -> list[str]:
        lines = ["these are the users' own traces, given away as they are: for comparison, never for release"]
        if self.carried > 0:
            lines.append(
                f"{percent(float(self.carried), 1)} of their events were not recorded and have the place of the "
                "last event, so people stay too often; to fill gaps in another way, complete the traces before the fit"
            )
        return lines


@dataclass(frozen=True)
class TrainingSettings(Settings):
    """Training has no settings."""


def fit_trace_model(train: Traces, *_: object) -> OwnPeriods:
    """Keep the most complete periods of each user.

    Of each user's periods, such as days, those with the most events are kept. If all periods are complete, all are
    kept, and drawn traces have the statistics of the training data with equal weights of users. Gaps get the place of
    the last event before them; instants before the first event get the place of the first event.
    """
    periods = train.periods()
    n_events = np.diff(periods.first, append=train.n_events)
    user = train.user[periods.first]
    most = np.zeros(train.n_users, np.int64)
    np.maximum.at(most, user, n_events)
    kept = n_events == most[user]
    place = np.full((len(user), train.time_grid.period), ABSENT, np.int32)
    place[periods.piece, periods.phase] = train.place
    place = pd.DataFrame(place[kept]).replace(ABSENT, np.nan)
    carried = place.isna().to_numpy().mean()
    carried_on = place.ffill(axis=1).bfill(axis=1).to_numpy(np.int32)
    start = np.searchsorted(user[kept], np.arange(train.n_users + 1)).astype(np.int32)
    return OwnPeriods(jnp.asarray(start), jnp.asarray(carried_on), jnp.asarray(carried))


def claims(model: OwnPeriods, settings: TrainingSettings) -> Claims:
    """Claims of a release of these traces."""
    del model, settings
    everything = "EVERYTHING. These are the users' own traces as recorded, with nothing changed to protect anyone"
    return Claims(not_protected=(everything,))


SYNTHESIZERS.register(Synthesizer("training", TITLE, TrainingSettings, fit_trace_model, OwnPeriods, claims))
