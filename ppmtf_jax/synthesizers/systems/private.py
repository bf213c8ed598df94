"""Private: synthetic people under user-level differential privacy, whose model may be published.

The model learns from the data only through noisy sums over users (see `private.releases`, which has the proof). From
these sums it learns the population (`private.estimation`), and people who move and remember (`private.people`). A
synthetic person stands for nobody, and the model knows no user.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import jax
import numpy as np
from annotated_types import Gt, Lt
from jaxtyping import Array, Float, Int, Key

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Message, Problem, Setting
from ppmtf_jax.gibbs.run import Checkpoints
from ppmtf_jax.noise.accountant import ZCDPAccountant
from ppmtf_jax.noise.mechanisms import SecureNoise, SeededNoise
from ppmtf_jax.people.model import RememberingBridge
from ppmtf_jax.people.process import sample_life
from ppmtf_jax.people.space import require_few_places
from ppmtf_jax.private.domain import Domain
from ppmtf_jax.private.estimation import read_prior
from ppmtf_jax.private.people import fit_people, is_small
from ppmtf_jax.private.releases import MECHANISMS, RELATION, SCALE, has_dense_users, release
from ppmtf_jax.runtime.memory import require_memory
from ppmtf_jax.settings import Positive, Settings
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Claims, Synthesizer
from ppmtf_jax.trace_models.base import StoredArray, stored
from ppmtf_jax.trace_models.sampling import sample_index

# Measured as `PLACE_S` of the bridge: memory per slot and place, and seconds per place.
CONSTANT_BYTES, SLOT_PLACE_BYTES, PLACE_S = 900 * 2**20, 6000, 0.011
OF_CLUSTER = 2**31
"""Number of the random stream of a person's type. The streams of instants have the numbers below it."""
TITLE = "Synthetic people under user-level differential privacy; the model may be published"


@dataclass(frozen=True)
class PrivateSettings(Settings):
    """Settings of `private`.

    Parameters
    ----------
    epsilon, delta : float
        The promise: (epsilon, delta)-differential privacy for each user with all their traces. A smaller epsilon
        protects better. Delta should be far below one divided by the number of users.
    public_places : bool
        Must be true: your declaration that the place table does not depend on the traces. A table of places that people
        visited, or visited often, does depend on them. The same must hold for the first and the last day of the data.
    anchors : "auto", "none" or "coupled"
        Whether people have a home and a second place ("coupled") or not ("none"). "auto" decides by noisy counts of the
        users with and without dense traces of several periods.
    prior : Path, optional
        File of a public table of places with weights, or folder of a public trace set, see
        `private.estimation.read_prior`. It says roughly where people are, and helps most if there are few users. It may
        not depend on the traces.
    noise : "secure" or "seeded"
        "seeded" noise is reproducible, for experiments; the model then protects nobody.
    """

    epsilon: Positive = 1.0
    delta: Annotated[float, Gt(0), Lt(1)] = 1e-6
    public_places: bool = False
    anchors: Literal["auto", "none", "coupled"] = "auto"
    prior: Path | None = None
    noise: Literal["secure", "seeded"] = "secure"


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class PrivatePeople(RememberingBridge):
    """The process of synthetic people who stand for nobody; see `PersonProcess` for the arrays.

    `share`: share of the people in each cluster; a cluster is a type of people.
    `promise`: epsilon, delta, and 1 if the noise was secure (otherwise 0). `losses`: rho of each mechanism in
    `private.releases.MECHANISMS`; 0 if the mechanism was not used.
    """

    of_nobody: ClassVar[bool] = True
    padded: ClassVar[tuple[str, ...]] = ()

    promise: Float[Array, "3"] = stored(lambda n: StoredArray((3,), low=0), kw_only=True)
    share: Float[Array, " cluster"] = stored(lambda n: StoredArray(("clusters",), low=0, high=1), kw_only=True)
    losses: Float[Array, " mechanism"] = stored(lambda n: StoredArray((len(MECHANISMS),), low=0), kw_only=True)

    def sample_trace(self, key: Key[Array, ""], user: Int[Array, ""], n_instants: int) -> Int[Array, " instant"]:
        cluster = sample_index(jax.random.uniform(jax.random.fold_in(key, OF_CLUSTER)), self.share)
        return sample_life(self, key, cluster, n_instants)

    def user_classes(self, n_users: int) -> Int[np.ndarray, " user"]:
        return np.zeros(n_users, int)

    @property
    def is_private(self) -> bool:
        """Whether the noise was secure."""
        return bool(self.promise[2])

    def ledger(self) -> dict[str, Any]:
        """What each mechanism cost, as `noise.accountant.Ledger.ledger` states it; no amount is below the exact one."""
        losses = {name: _decimal(rho) for name, rho in zip(MECHANISMS, self.losses, strict=True) if rho}
        spent = {"epsilon": self.epsilon, "delta": self.delta, "rho": sum(losses.values())}
        lines = [{"mechanism": name, "sensitivity": SCALE, "rho": rho} for name, rho in losses.items()]
        own = {"relation": RELATION, "budget": spent, "spent": spent, "mechanisms": lines}
        return {"private": self.is_private, "relations": [own]}

    @property
    def epsilon(self) -> float:
        return _decimal(self.promise[0])

    @property
    def delta(self) -> float:
        return _decimal(self.promise[1])

    def summary(self) -> list[str]:
        promise = f"Epsilon {self.epsilon:g} and delta {self.delta:g}, if {RELATION}"
        lines = [promise if self.is_private else "NOT PRIVATE: the noise comes from a seed, for experiments only"]
        if self.home is not None:
            lines.append("people have a home, and maybe a second place")
        remembered = "remember" if self.remembered else "do not remember"
        return [*lines, f"people {remembered} the {'other ' if self.home is not None else ''}places of their trace"]


def _decimal(value: Any) -> float:
    """The number that the shortest decimal notation of a 32-bit float shows."""
    return float(str(np.float32(value)))


def not_below(values: Sequence[float]) -> Float[np.ndarray, " value"]:
    """32-bit floats whose shortest decimal notation is not below the values.

    Examples
    --------
    >>> [str(each) for each in not_below([0.1, 0.123456789])]
    ['0.1', '0.12345679']
    """
    rounded = np.asarray(values, np.float32)
    below = np.array([_decimal(each) for each in rounded]) < np.asarray(values)
    return np.where(below, np.nextafter(rounded, np.float32(np.inf)), rounded)


def fit_trace_model(
    train: Traces, settings: PrivateSettings, seed: int, progress: bool = False, checkpoints: Checkpoints | None = None
) -> PrivatePeople:
    """Draw noisy sums from the traces, and learn synthetic people from these sums alone."""
    del checkpoints
    _require_public_places(settings)
    needed = CONSTANT_BYTES + SLOT_PLACE_BYTES * train.time_grid.n_slots * train.n_places
    require_few_places(train.n_places, needed, PLACE_S, "")
    require_memory("fit", needed, "Take larger cells, or a smaller box")
    domain = Domain.of(train.places, train.time_grid)
    # Wrong traces, or a wrong file of a prior, must not cost any of the budget.
    domain.check(train)
    prior = None if settings.prior is None else read_prior(settings.prior, domain, train.digest)
    noise = SecureNoise() if settings.noise == "secure" else SeededNoise(seed)
    accountant = ZCDPAccountant(RELATION, settings.epsilon, settings.delta, noise)
    anchored = settings.anchors == "auto" and has_dense_users(train, accountant)
    domain = replace(domain, anchored=anchored or settings.anchors == "coupled")
    releases = release(train, domain, accountant)
    if is_small(releases):
        warnings.warn(TOO_SMALL, stacklevel=3)
    arrays = fit_people(releases, seed, prior, progress=progress)
    promise = not_below([settings.epsilon, settings.delta, float(noise.is_private)])
    losses = not_below([releases.rho(name) for name in MECHANISMS])
    return PrivatePeople.from_arrays(arrays | {"promise": promise, "losses": losses})


TOO_SMALL = (
    "fit: the noisy sums suggest too few users for a useful private model. It needs about 100 users with dense traces, "
    "or 1,000 users who check in now and then, at epsilon 1; half of that at epsilon 2. A public prior helps most here"
)


def _require_public_places(settings: PrivateSettings) -> None:
    if not settings.public_places:
        way_out = Message(
            "Places that were chosen because people visit them reveal where people were. Import the traces onto a "
            "table of places from elsewhere, with ",
            Setting("place_table", "places.csv"),
            ", or onto a grid, with ",
            Setting("grid"),
            " and ",
            Setting("min_users_per_place", 1),
            "; then declare it with ",
            Setting("public_places", True),
        )
        raise InputError("fit", [Problem("public places", "no declaration that they are public", way_out=way_out)])


def claims(model: PrivatePeople, settings: PrivateSettings) -> Claims:
    """What a release of the model's traces claims to protect, and not to protect."""
    in_words = {"anchors": "none" if model.home is None else "coupled"}
    if not model.is_private:
        seeded = "anybody: NOT PRIVATE. The noise comes from a seed, for experiments only"
        return Claims(not_protected=(seeded,), settings=in_words)
    return Claims(
        (
            "each training user with all their traces. The model and everything made from it are "
            f"({model.epsilon:g}, {model.delta:g})-differentially private. They come from noisy sums over users, "
            "and from nothing else in the data. Neighbours are two data sets that differ by one additional user. The "
            "place table and the time grid are treated as public",
        ),
        is_private=True,
        settings=in_words,
    )


SYNTHESIZERS.register(Synthesizer("private", TITLE, PrivateSettings, fit_trace_model, PrivatePeople, claims))
