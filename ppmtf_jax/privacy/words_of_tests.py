"""What each privacy test required of the traces, what it protects and what it does not, in words."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ppmtf_jax.data.description import at_most, percent
from ppmtf_jax.privacy.limits import sureness
from ppmtf_jax.privacy.plausible_deniability import PlausibleDeniability, PrivacyTestSettings
from ppmtf_jax.privacy.randomized_test import budgets_of_one_trace
from ppmtf_jax.privacy.semantic_test import SemanticVerdicts
from ppmtf_jax.privacy.verdicts import Verdicts

# Number of pairs of epsilon and delta in a statement.
N_BUDGETS_SHOWN = 4
NO_MEMBERSHIP = "The test sets no bound on membership inference."
USED = "Whether a person's data was used at all."


class InWords(NamedTuple):
    """Points of a statement, as `statement` describes them."""

    mechanism: str
    protected: list[str]
    not_protected: list[str]


def words_of_test(verdicts: Verdicts) -> InWords:
    """The test of these verdicts in words."""
    if isinstance(verdicts, SemanticVerdicts):
        return _semantic(verdicts)
    if isinstance(verdicts, PlausibleDeniability):
        return _deniability(verdicts)
    raise TypeError(type(verdicts).__name__)


def by_construction(verdicts: Verdicts) -> str:
    """That all traces passed because they could not fail; empty if they could."""
    if not (isinstance(verdicts, PlausibleDeniability) and verdicts.passes_by_construction):
        return ""
    return (
        f"Every trace of this model passes the test by construction: at least {verdicts.smallest_class:,} users share "
        "one law of traces. So the test says nothing about single traces, or about what these users have in common."
    )


def _semantic(verdicts: SemanticVerdicts) -> InWords:
    test = verdicts.settings
    at_once, in_all = percent(test.max_intersection), percent(test.max_geographic_similarity)
    k, difference = test.k, f"{test.max_semantic_difference:g}"
    return InWords(
        "The test of Bindschaedler and Shokri (IEEE S&P 2016, Fig. 2): a trace is released only if (1) the user it "
        f"was made from (its input user) is at the same place at {at_once} of the instants at most, (2) {in_all} of "
        "its time at most is time that this user spends at the same places, maybe at another time of the day, and (3) "
        f"its similarity in meaning to at least k = {k} users, the input user included, differs by {difference} or "
        "less from that to the input user.",
        [
            "That no trace is a copy of a person's trace: the person it was made from is at the same place at "
            f"{at_once} of its instants at most, and {in_all} of its time at most is time that this person spends at "
            "the same places, maybe at another time of the day.",
            f"That a trace does not resemble one person alone: in meaning, it resembles at least {k} users about as "
            "much, the person it was made from included. Meaning is how a trace's time is divided among places, "
            "whatever the places are.",
        ],
        [
            "From whom a trace was made: the test computes no probability, so there is no bound on how sure somebody "
            "can be of a person. It compares places, and each trace was made from the trace of one person.",
            f"{USED} {NO_MEMBERSHIP}",
        ],
    )


def _deniability(verdicts: PlausibleDeniability) -> InWords:
    test, claims = verdicts.settings, verdicts.claims
    points = []
    if test.k == 1:
        points.append("From whom a trace was made: k = 1 requires no other user.")
    if not claims.is_private:
        points += _not_differentially_private(test)
    if test.precision == "float32":
        points.append(
            "Traces at the edge of a bin: in single precision, the test may have counted a user whose probability is "
            "outside the bin."
        )
    return InWords(_mechanism(test), _protected(test), points)


def _mechanism(test: PrivacyTestSettings) -> str:
    """What the test required."""
    name, number = "Privacy Test 1 of Murakami et al. (PETS 2021)", f"at least k = {test.k} training users"
    if test.noise_epsilon is not None:
        name = "Privacy Test 2 of Bindschaedler et al. (VLDB 2017)"
        noise = f"discrete Laplace noise of scale 1/{test.noise_epsilon:g}"
        number = f"a noisy number of training users (k = {test.k} plus {noise}, drawn anew for each trace)"
    elif test.k == 1:
        return f"{name} with k = 1, which tests nothing: every trace passes."
    others = "all other training users"
    if test.n_verifiers is not None:
        others = f"{test.n_verifiers} training users chosen at random"
    return (
        f"{name}: a trace is released only if {number}, the user it was made from (its input user) included, could "
        f"have made it with probabilities within a factor of {test.factor} of each other (one bin of width eta = "
        f"{test.eta:g}). The test compared the input user with {others}."
    )


def _protected(test: PrivacyTestSettings) -> list[str]:
    if test.k == 1:
        return []
    within = f"with probabilities within a factor of {test.factor} of each other"
    if test.noise_epsilon is not None:
        return [
            f"From whom a trace was made: a noisy number of users around {test.k} (for some traces only the input "
            f"user) could have led to it, {within}.",
            _theorem(test, test.noise_epsilon),
        ]
    return [
        "From whom a trace was made: whoever sees it alone, and held all users equally probable before, can be at most "
        f"{at_most(sureness(test.k, test.eta))} sure of one of them, because at least {test.k} users, the one it was "
        f"made from included, could have led to it, {within}."
    ]


def _theorem(test: PrivacyTestSettings, noise_epsilon: float) -> str:
    """What Theorem 1 says about one trace, with examples from the smallest delta to the largest."""
    budgets = budgets_of_one_trace(test.k, test.eta, noise_epsilon)
    shown = np.unique(np.linspace(0, len(budgets.t) - 1, N_BUDGETS_SHOWN).astype(int))
    pairs = ", ".join(f"({budgets.epsilon[t]:.3g}, {budgets.delta[t]:.2g})" for t in shown)
    return (
        "Whether a person was an input user, by differential privacy of one trace that is drawn at random from all "
        "traces that were made, before it is known which of them passed. Whether a person was an input user is then "
        f"({noise_epsilon:g} + log(1 + e^{test.eta:g} / t), e^(-{noise_epsilon:g} ({test.k} - t)))-differentially "
        f"private for every whole number t from 1 to {test.k - 1}. This is Theorem 1 of Bindschaedler et al. 2017 "
        f"with their gamma = e^{test.eta:g}. Examples of (epsilon, delta): {pairs}. The theorem assumes at least "
        f"{test.k} users. It also assumes that without this person all parameters of the model that users share would "
        "be the same."
    )


def _not_differentially_private(test: PrivacyTestSettings) -> list[str]:
    """What this test does not protect, but differential privacy would."""
    if test.noise_epsilon is None:
        return [f"{USED} Without noise on k, the test is not differential privacy. {NO_MEMBERSHIP}"]
    if test.k == 1:
        return [
            f"{USED} Noise on k = 1 gives no differential privacy: the theorem needs k of at least 2. {NO_MEMBERSHIP}"
        ]
    return [
        f"{USED} The release as a whole is not differentially private, in spite of the noise: the theorem covers one "
        "trace only. For m traces, if the input user of each is drawn at random separately, epsilon and delta would "
        f"be m times as large, whoever the traces were made from. Here every user is an input user. {NO_MEMBERSHIP}",
        "How the model was learned. Without one person's data, the parameters that users share would be different; the "
        "theorem assumes that they are the same.",
        "That a trace was withheld. For a person who sees that the randomly drawn trace was withheld, delta is larger "
        "by up to one divided by the number of users.",
    ]
