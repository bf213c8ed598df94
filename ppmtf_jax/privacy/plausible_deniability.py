"""The plausible-deniability test: k - 1 other users must be about equally plausible as a trace's input user.

Mechanism: by default Privacy Test 1 of Murakami et al. 2021 (section 3.5), after Bindschaedler et al. 2017, which is
deterministic; optionally Privacy Test 2 of Bindschaedler et al. 2017, with noise on k. The test protects the link
between a trace and its input user. Without noise it is *not* differential privacy: the model's factors, the outcome of
the test itself (which traces are withheld) and several traces of the same user are not covered.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Int

from ppmtf_jax.data.blocks import Blocks
from ppmtf_jax.data.description import at_most
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, NumericalError, Problem
from ppmtf_jax.noise.mechanisms import add_laplace
from ppmtf_jax.privacy.budgets import budgets_of_one_trace
from ppmtf_jax.privacy.limits import MAX_ETA, MIN_ETA, MIN_ETA_IN_SINGLE_PRECISION, sureness
from ppmtf_jax.privacy.plausible_users import (
    EVENTS_TESTED_TOGETHER,
    Verifiers,
    count_plausible_users,
    own_log_likelihoods,
)
from ppmtf_jax.privacy.verdicts import NO_MEMBERSHIP, USED, InWords, PrivacyTest, Verdicts, facts_of_model
from ppmtf_jax.runtime.engine import is_remote, stage
from ppmtf_jax.settings import Count, Positive, chosen_settings
from ppmtf_jax.streams import Seed, Stage, draw_seed, numpy_stream
from ppmtf_jax.synthesizers.fitted_model import FittedModel, places_of_traces
from ppmtf_jax.trace_models.base import LikelihoodModel, PersonModel

# Number of pairs of epsilon and delta in a statement.
N_BUDGETS_SHOWN = 4


@dataclass(frozen=True)
class PrivacyTestSettings(PrivacyTest, subject="plausible-deniability test"):
    """Parameters of the plausible-deniability test.

    Parameters
    ----------
    k : int
        How many users must be able to make the trace with about the same probability. The input user counts, so 1 tests
        nothing. Larger protects better.
    eta : float
        Width of a bin of log-likelihood, from 1e-6 (1e-3 in float32) to 3: the probabilities of users in one bin agree
        within a factor of e^eta. A smaller eta protects better.
    n_verifiers : int, optional
        Number of random users who are compared with the input user (U*); by default all. The input user always counts.
    count_all : bool
        Count all plausible users. By default a trace leaves the test as soon as it has passed.
    noise_epsilon : float, optional
        Randomize the test: each trace must reach k plus discrete Laplace noise of scale 1 / noise_epsilon.
    precision : "float64" or "float32"
        Precision of the likelihoods, "float64" or "float32". With float32 a likelihood can fall into the wrong bin (see
        benchmarks). Models of persons (`trace_models.base`) always use float64.
    allow_large_eta : bool
        Accept an eta above 3, for experiments: most traces then pass, and little is protected.
    """

    test = "plausible deniability"
    k: Count = 10
    eta: Positive = 1.0
    n_verifiers: Count | None = None
    count_all: bool = False
    noise_epsilon: Positive | None = None
    precision: Literal["float64", "float32"] = "float64"
    allow_large_eta: bool = False

    def problems(self) -> list[Problem | str]:
        """Problems: an eta that is too small for the precision, or so large that it protects little."""
        problems: list[Problem | str] = []
        least = MIN_ETA_IN_SINGLE_PRECISION if self.precision == "float32" else MIN_ETA
        if self.eta < least:
            problems.append(Problem(f"eta of at least {least:g} in {self.precision}", repr(self.eta)))
        if self.eta > MAX_ETA and not self.allow_large_eta:
            way_out = (
                "With this eta, the probabilities of users in one bin agree only within a factor of "
                f"{self.factor}; set allow_large_eta (--allow-large-eta) to use it anyway"
            )
            problems.append(Problem(f"eta up to {MAX_ETA:g}", repr(self.eta), way_out=way_out))
        return problems

    @property
    def factor(self) -> str:
        """The largest factor between probabilities in one bin, as text.

        Examples
        --------
        >>> PrivacyTestSettings(eta=1.0).factor
        'e^1 = 2.72'
        """
        value = f"{math.exp(self.eta):.3g}" if self.eta < math.log(sys.float_info.max) else "more than 1e308"
        return f"e^{self.eta:g} = {value}"

    def stated(self) -> dict[str, Any]:
        """The settings that a release states."""
        asked = "all" if self.n_verifiers is None else self.n_verifiers
        stated = {"k": self.k, "eta": self.eta, "n_verifiers": asked, "noise_epsilon": self.noise_epsilon}
        return {**stated, "precision": self.precision}

    def in_brief(self) -> str:
        """The settings that count most, in a line."""
        noise = "" if self.noise_epsilon is None else f", noise with epsilon {self.noise_epsilon:g} on k"
        return f"k = {self.k}, eta = {self.eta:g}, a factor of {self.factor}{noise}"

    def in_words(self, is_private: bool) -> InWords:
        """See `PrivacyTest`."""
        points = []
        if self.k == 1:
            points.append("From whom a trace was made: k = 1 requires no other user.")
        if not is_private:
            points += self._not_differentially_private()
        if self.precision == "float32":
            points.append(
                "Traces at the edge of a bin: in single precision, the test may have counted a user whose probability "
                "is outside the bin."
            )
        return InWords(self._mechanism(), self._protected(), points)

    def _mechanism(self) -> str:
        """What the test required."""
        name, number = "Privacy Test 1 of Murakami et al. (PETS 2021)", f"at least k = {self.k} training users"
        if self.noise_epsilon is not None:
            name = "Privacy Test 2 of Bindschaedler et al. (VLDB 2017)"
            noise = f"discrete Laplace noise of scale 1/{self.noise_epsilon:g}"
            number = f"a noisy number of training users (k = {self.k} plus {noise}, drawn anew for each trace)"
        elif self.k == 1:
            return f"{name} with k = 1, which tests nothing: every trace passes."
        others = "all other training users"
        if self.n_verifiers is not None:
            others = f"{self.n_verifiers} training users chosen at random"
        return (
            f"{name}: a trace is released only if {number}, the user it was made from (its input user) included, could "
            f"have made it with probabilities within a factor of {self.factor} of each other (one bin of width eta = "
            f"{self.eta:g}). The test compared the input user with {others}."
        )

    def _protected(self) -> list[str]:
        if self.k == 1:
            return []
        within = f"with probabilities within a factor of {self.factor} of each other"
        if self.noise_epsilon is not None:
            return [
                f"From whom a trace was made: a noisy number of users around {self.k} (for some traces only the input "
                f"user) could have led to it, {within}.",
                self._theorem(self.noise_epsilon),
            ]
        return [
            "From whom a trace was made: whoever sees it alone, and held all users equally probable before, can be at "
            f"most {at_most(sureness(self.k, self.eta))} sure of one of them, because at least {self.k} users, the one "
            f"it was made from included, could have led to it, {within}."
        ]

    def _not_differentially_private(self) -> list[str]:
        """What this test does not protect, but differential privacy would."""
        if self.noise_epsilon is None:
            return [f"{USED} Without noise on k, the test is not differential privacy. {NO_MEMBERSHIP}"]
        if self.k == 1:
            return [
                f"{USED} Noise on k = 1 gives no differential privacy: the theorem needs k of at least 2. "
                f"{NO_MEMBERSHIP}"
            ]
        return [
            f"{USED} The release as a whole is not differentially private, in spite of the noise: the theorem covers "
            "one trace only. For m traces, if the input user of each is drawn at random separately, epsilon and delta "
            "would be m times as large, whoever the traces were made from. Here every user is an input user. "
            f"{NO_MEMBERSHIP}",
            "How the model was learned. Without one person's data, the parameters that users share would be different; "
            "the theorem assumes that they are the same.",
            "That a trace was withheld. For a person who sees that the randomly drawn trace was withheld, delta is "
            "larger by up to one divided by the number of users.",
        ]

    def _theorem(self, noise_epsilon: float) -> str:
        """What Theorem 1 says about one trace, with examples from the smallest delta to the largest."""
        budgets = budgets_of_one_trace(self.k, self.eta, noise_epsilon)
        shown = np.unique(np.linspace(0, len(budgets.t) - 1, N_BUDGETS_SHOWN).astype(int))
        pairs = ", ".join(f"({budgets.epsilon[t]:.3g}, {budgets.delta[t]:.2g})" for t in shown)
        return (
            "Whether a person was an input user, by differential privacy of one trace that is drawn at random from all "
            "traces that were made, before it is known which of them passed. Whether a person was an input user is "
            f"then ({noise_epsilon:g} + log(1 + e^{self.eta:g} / t), e^(-{noise_epsilon:g} ({self.k} - "
            f"t)))-differentially private for every whole number t from 1 to {self.k - 1}. This is Theorem 1 of "
            f"Bindschaedler et al. 2017 with their gamma = e^{self.eta:g}. Examples of (epsilon, delta): {pairs}. The "
            f"theorem assumes at least {self.k} users. It also assumes that without this person all parameters of the "
            "model that users share would be the same."
        )


@stage("test")
def plausible_deniability_test(
    model: FittedModel,
    synthetic: Traces,
    settings: PrivacyTestSettings | None = None,
    *,
    seed: int | Seed | None = None,
    progress: bool = False,
    **named_settings: Any,
) -> Verdicts:
    """Test every trace for (k, eta)-plausible deniability.

    A trace with likelihood p under its input user lies in the bin i with e^-(i+1)eta < p <= e^-i eta, eq. (6); it
    passes if at least k users, the input user included, put it into the same bin, eq. (7).

    With `noise_epsilon` this is Privacy Test 2 of Bindschaedler et al. 2017 (App. C of the paper): each trace must
    reach k plus discrete Laplace noise of scale 1 / noise_epsilon. Their gamma, the largest factor between
    probabilities in a bin, is e^eta. `privacy.budgets` states the conditions under which one trace is
    differentially private; a release as a whole is not. The noise comes from OpenDP and has no seed.

    In some models many users are equal (`user_classes` of the trace model): for example all users of SGD without copied
    events, or all users of a cluster. Suppose that the input user's class has c members among the verifiers, the
    input user included. Then k' >= c for every eta, because the trace has the same likelihood for all of them. So these
    users count without a comparison, and rounding cannot separate them. With a random subset of verifiers,
    k' >= 1 + the number of other members of the class in the subset: it is certain that every trace passes only if the
    subset has k - 1 others of every class.

    Raises `InputError`: the model did not make the traces, its traces have no likelihood, it is of nobody, or settings
    are impossible. Raises `NumericalError`: a trace is impossible under its own input user.

    Parameters
    ----------
    model : FittedModel
        A model of a system whose traces have a likelihood.
    synthetic : Traces
        Traces that `synthesize` made from this model, or a part of them. The traces of `open_traces` are read in blocks
        of users; only the verdicts of all blocks are in memory together.
    seed : int or Seed, optional
        Seed of the subset of verifiers. It comes from the operating system if none is given.
    **named_settings
        Settings by name, in place of `settings`: `plausible_deniability_test(model, synthetic, k=20)`.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> from ppmtf_jax.synthesizers.synthesis import fit, synthesize
    >>> model = fit(toy_city(n_users=20, seed=0).traces, "uniform")
    >>> plausible_deniability_test(model, synthesize(model), k=20).passed.all()
    np.True_
    """
    chosen = chosen_settings(PrivacyTestSettings, settings, named_settings, "test")
    if model.of_nobody:
        way_out = "No trace has an input user, so there is nothing to test: release the traces with their model"
        found = f"those of a {model.system} model, which knows no users"
        raise InputError("privacy test", [Problem("traces that were made from users", found, 0, (), way_out)])
    n_verifiers = model.n_users if chosen.n_verifiers is None else chosen.n_verifiers
    if n_verifiers > model.n_users:
        problem = Problem(f"n_verifiers from 1 to {model.n_users}, the number of users", repr(n_verifiers))
        raise InputError("plausible-deniability test", [problem])
    trace_model = model.trace_model
    if not isinstance(trace_model, LikelihoodModel):
        way_out = "This test compares likelihoods. `privacy_test` makes the test of the system itself, if there is one"
        raise InputError("model", [Problem("a model whose traces have a likelihood", model.system, way_out=way_out)])
    facts = facts_of_model(model, synthetic)
    own_seed = draw_seed(seed)
    user, trace = synthetic.trace_table()
    threshold = np.full(len(user), chosen.k)
    if chosen.noise_epsilon is not None:
        threshold = add_laplace(threshold, 1, chosen.noise_epsilon)
    begins = np.searchsorted(user, np.arange(synthetic.n_users + 1))
    is_double = chosen.precision == "float64" or isinstance(trace_model, PersonModel)
    with jax.enable_x64(is_double):
        trace_model = _in_precision(trace_model, chosen.precision)
        random_users = choose_verifiers(model.n_users, n_verifiers, own_seed.value)
        verifiers = Verifiers.of(trace_model, random_users, model.n_users)
        blocks = synthetic.blocks.map(
            partial(_tested, model), model.user_index(synthetic.user_ids), _OfTraces(threshold, begins)
        )
        judged = blocks.of_parts(partial(_judged, trace_model, verifiers, chosen, progress and not is_remote()))
        own, plausible, compared = map(np.concatenate, zip(*judged, strict=True))
    columns = {"user": synthetic.user_ids[user], "trace": trace, "log_likelihood": own, "plausible_users": plausible}
    columns |= {"verifiers": compared, "threshold": threshold, "passed": plausible >= threshold}
    return Verdicts(
        **facts,
        settings=chosen,
        seed=own_seed,
        n_verifiers=n_verifiers,
        smallest_class=_smallest_class(trace_model, model.n_users),
        table=pd.DataFrame(columns),
    )


def all_pass(model: FittedModel, settings: PrivacyTestSettings) -> bool:
    """Whether each class of users has at least k users, so that every trace passes and no likelihood is needed.

    False with a limited number of verifiers, or with noise.
    """
    trace_model, is_plain = model.trace_model, settings.n_verifiers is None and settings.noise_epsilon is None
    if not isinstance(trace_model, LikelihoodModel) or model.of_nobody or not is_plain:
        return False
    return _smallest_class(trace_model, model.n_users) >= settings.k


def _smallest_class(model: LikelihoodModel, n_users: int) -> int:
    """Number of users of the smallest class of users who make every trace with the same probability."""
    return int(np.unique(model.user_classes(n_users), return_counts=True)[1].min())


def _in_precision(model: LikelihoodModel, precision: str) -> LikelihoodModel:
    if isinstance(model, PersonModel):
        return model

    def cast(leaf: jax.Array) -> jax.Array:
        is_float = jnp.issubdtype(leaf.dtype, jnp.floating)
        return jnp.asarray(np.asarray(leaf), precision) if is_float else leaf

    return jax.tree.map(cast, model)


class _OfTraces(NamedTuple):
    """A number of each trace; a slice of users has the numbers of their traces."""

    value: np.ndarray
    begins: np.ndarray  # of the traces of each user, and the end of the last one

    def __getitem__(self, users: slice) -> _OfTraces:  # pyright: ignore[reportIncompatibleMethodOverride]
        begins = self.begins[users.start : users.stop + 1]
        return _OfTraces(self.value[begins[0] : begins[-1]], begins - begins[0])


class _Tested(NamedTuple):
    """Traces to test: the model's index of the input user, the places, and how many plausible users are needed."""

    user: Int[np.ndarray, " trace"]
    places: Int[np.ndarray, "trace instant"]
    threshold: Int[np.ndarray, " trace"]


def _tested(model: FittedModel, block: Traces, index: Int[np.ndarray, " user"], threshold: _OfTraces) -> _Tested:
    return _Tested(index[block.trace_table()[0]], places_of_traces(model, block), threshold.value)


def _judged(
    model: LikelihoodModel, verifiers: Verifiers, settings: PrivacyTestSettings, progress: bool, blocks: Blocks[_Tested]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-likelihood of each trace under its input user, and the results of `count_plausible_users`."""
    judged = []
    # Models of persons test the traces of each class in separate blocks. In small groups, these are too small.
    n_together = (4 if isinstance(model, PersonModel) else 1) * EVENTS_TESTED_TOGETHER
    for users, places, threshold in _groups(blocks.here(), n_together):
        own_class = verifiers.class_of_user[users]
        if isinstance(model, PersonModel):
            own = model.log_own_class(places, own_class, progress=progress)
        else:
            own = own_log_likelihoods(model, own_class, places, progress)
        if not np.isfinite(own).all():
            raise NumericalError(f"{int((~np.isfinite(own)).sum())} traces are impossible under their own input user")
        stop_at = None if settings.count_all else threshold
        counted_users = count_plausible_users(model, verifiers, users, places, own, settings.eta, stop_at, progress)
        judged.append((own, *counted_users))
    own, plausible, compared = map(np.concatenate, zip(*judged, strict=True))
    return own, plausible, compared


def choose_verifiers(n_users: int, n_verifiers: int, seed: int) -> Int[np.ndarray, " verifier"]:
    """A random subset of the users (U*), as sorted indices."""
    return np.sort(numpy_stream(seed, Stage.VERIFIERS).permutation(n_users)[:n_verifiers])


def _groups(blocks: Iterator[_Tested], n_events: int) -> Iterator[_Tested]:
    """Groups of consecutive blocks; large groups take less time than single blocks."""
    group: list[_Tested] = []
    for block in blocks:
        if group and sum(each.places.size for each in group) + block.places.size > n_events:
            yield _Tested(*map(np.concatenate, zip(*group, strict=True)))
            group = []
        if block.places.size:
            group.append(block)
    if group:
        yield _Tested(*map(np.concatenate, zip(*group, strict=True)))
