"""PPMTF+: PPMTF whose people are drawn anew from the prior of the users (Murakami et al., PoPETs 2023).

The model has the factors B, C, D of places and slots, and the prior N(mu_A, Lambda_A^-1) of the users' factors, but no
user's factor: what Murakami et al. 2021, section 5, propose to share. Each trace is that of a new person.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.gibbs.conditionals import with_row
from ppmtf_jax.gibbs.draws import sample_gaussians
from ppmtf_jax.gibbs.kernel import SHARED
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Claims, Synthesizer
from ppmtf_jax.synthesizers.systems import ppmtf
from ppmtf_jax.synthesizers.systems.ppmtf import PPMTFSettings, fit_chains
from ppmtf_jax.trace_models.base import Index, OneKey, StoredArray, stored
from ppmtf_jax.trace_models.metropolis_hastings import Chains, MetropolisHastings

TITLE = "PPMTF whose people are drawn anew from the prior of all users (Murakami et al. 2023)"
OF_PERSON = 2**31
"""Number of the random stream of a person's factor. The streams of instants have the numbers below it."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class NewUsers(MetropolisHastings):
    """Chains of new people: `user` has no rows, (0, rank), because each trace draws one of its own."""

    of_nobody: ClassVar[bool] = True
    completed_as: ClassVar[None] = None

    # The smallest number of training users at any visited place, which a release checks and states.
    least_users_per_place: Int[Array, ""] = stored(lambda _: StoredArray((), "int", 1), kw_only=True)

    @classmethod
    def of(cls, chains: MetropolisHastings, users_per_place: Int[np.ndarray, " place"]) -> NewUsers:
        """What the users of PPMTF have in common: the chains without the users' factors."""
        arrays = chains.to_arrays()
        if "prior_mean" not in arrays or "visit_user" in arrays:
            found = "one without priors, or with two factors of the users"
            raise InputError("new users", [Problem("a model of ppmtf that `fit` made", found)])
        least = users_per_place[users_per_place > 0].min()
        return cls.from_arrays(arrays | {"user": arrays["user"][:0], "least_users_per_place": np.int32(least)})

    @classmethod
    def from_arrays(cls: type[Chains], arrays: dict[str, np.ndarray]) -> Chains:
        # Otherwise the factors of people would be NaN, without a word. A model folder says that the model is damaged.
        np.linalg.cholesky(arrays["prior_precision"][0].astype(np.float64))
        return super().from_arrays(arrays)

    def sample_user(self, key: OneKey) -> Float[Array, " rank"]:
        """Draw the factor of a new person from N(mu_A, Lambda_A^-1)."""
        mean, precision = (of_all[0] for of_all in jax.tree.leaves((self.prior_mean, self.prior_precision)))
        prior = with_row(precision, precision @ mean)[..., None]
        return sample_gaussians(prior, jax.random.normal(key, (len(mean), 1), mean.dtype))[:, 0]

    def sample_trace(self, key: OneKey, user: Index, n_instants: int) -> Int[Array, " instant"]:
        row = self.sample_user(jax.random.fold_in(key, OF_PERSON))[None]
        chain = MetropolisHastings.sample_trace
        return chain(replace(self, user=row, visit_user=row), key, jnp.zeros_like(user), n_instants)


def fit_trace_model(train: Traces, *how: Any) -> NewUsers:
    """Fit PPMTF, and keep what users have in common; `how`: see `fit_chains`."""
    return NewUsers.of(fit_chains(SHARED, train, *how), train.users_per_place())


def without_users(model: FittedModel) -> FittedModel:
    """A PPMTF+ model from a fitted model of PPMTF: without users, their factors, the seed, and the date of the data.

    Raises `InputError`: the model is of another system, or does not know its priors or users per place.

    Examples
    --------
    >>> from ppmtf_jax import fit, toy_city
    >>> train = toy_city(n_users=20, n_days=1, seed=0).traces
    >>> people = without_users(fit(train, "ppmtf", rank=2, n_sweeps=5, zeros="weighted", seed=0))
    >>> people.sample(3, seed=0).n_users, people.n_users
    (3, 0)
    """
    per_place = model.users_per_place
    if not isinstance(model.trace_model, MetropolisHastings) or per_place is None:
        raise InputError("new users", [Problem("a model of ppmtf that `fit` made", f"one of {model.system}")])
    known, nobody = NewUsers.of(model.trace_model, per_place), np.zeros(0, object)
    grid = model.time_grid.on_nominal_date()
    return FittedModel("ppmtf_plus", model.settings, 0, nobody, model.places, grid, known, model.seed_given)


def claims(model: NewUsers, settings: PPMTFSettings) -> Claims:
    """Claims of a release of these traces."""
    in_words = ppmtf.claims(model, settings).settings
    # Without what it says of the population's transitions: here no privacy test compares users, and noise is in vain.
    unproved = ppmtf.claims(replace(model, population=None), settings).not_protected
    input_user = (
        "from whom a trace was made: from nobody. The factors of its person were drawn from a distribution that all "
        "training users have in common, so no trace has an input user"
    )
    proof = (
        "anybody, by a proof. These traces are not differentially private. The factors of places and times, and the "
        "distribution of the factors of users, come from all training users, and nothing bounds what one user changes"
    )
    rare = (
        "who was at places that few people visited. The factors of a place come from the training users who visited "
        f"it, at least {int(model.least_users_per_place)} at each visited place, and traces go there as they did"
    )
    noise = "have no noise" if settings.population_epsilon is None else "have noise, but the factors have none"
    moves = (
        "where people went from places that few people left. People move, in part, by the transitions of all training "
        f"users together. These {noise}"
    )
    moved = () if model.population is None else (moves,)
    return Claims((input_user,), (proof, rare, *moved, *unproved), settings=in_words)


SYNTHESIZERS.register(
    Synthesizer("ppmtf_plus", TITLE, PPMTFSettings, fit_trace_model, NewUsers, claims, on_all_devices=True)
)
