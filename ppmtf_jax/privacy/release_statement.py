"""The privacy statement of a release, made from the tested model and not only from its settings."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int

from ppmtf_jax.data.description import counted
from ppmtf_jax.privacy.model_statement import model_statement_text
from ppmtf_jax.privacy.plausible_deniability import PlausibleDeniability, PrivacyTestSettings
from ppmtf_jax.privacy.randomized_test import budgets_of_one_trace
from ppmtf_jax.privacy.statement import STATEMENT_FORMAT, as_text, not_protected, protected
from ppmtf_jax.streams import Seed
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS

# Number of pairs of epsilon and delta in a statement.
N_BUDGETS_SHOWN = 4
NO_MEMBERSHIP = "It sets no bound on membership inference: it does not hide that a person's data was used at all."
PLACES = (
    "The list of places, with coordinates and categories. It is the list of the training data and is treated as public."
)


def privacy_statement(
    verdicts: PlausibleDeniability, together: bool, seed: Seed, n_events: Int[np.ndarray, " place"]
) -> dict[str, Any]:
    """What the release protects, by which mechanism, under which assumptions, and what it does not protect.

    `together`: whether the traces of one user share a new user id. `seed`: seed of the random order of ids. `n_events`
    (shape (places,)): number of released events at each of the model's places. Returns JSON values: format, mechanism,
    parameters, generator, traces, protected, not_protected, randomness.
    """
    test, claims = verdicts.settings, verdicts.claims
    synthesizer = SYNTHESIZERS[verdicts.system]
    numbers = "Every trace has a number of its own, also if several traces were made from one user."
    if together:
        numbers = "Traces made from one user share a number."
    date = "The date of the time grid is nominal."
    if verdicts.origin.dated:
        date = "The publisher chose the dates of the traces; they are not dates of the training data."
    return {
        "format": STATEMENT_FORMAT,
        "mechanism": _mechanism(test),
        "parameters": {
            "k": test.k,
            "eta": test.eta,
            "n_verifiers": "all" if test.n_verifiers is None else test.n_verifiers,
            "noise_epsilon": test.noise_epsilon,
            "precision": test.precision,
            "min_users_per_place": None if claims.is_private else verdicts.least_users_per_place,
        },
        "generator": {"system": synthesizer.name, "what": synthesizer.title, "settings": verdicts.model_settings},
        "traces": f"{numbers} Numbers and their order are random. {date}",
        "protected": [*(f"By the model: {claim}." for claim in claims.protected), *_protected_by_test(test)],
        "not_protected": _not_protected(verdicts, together, n_events),
        "randomness": _randomness(verdicts, seed),
    }


def statement_text(statement: dict[str, Any]) -> str:
    """The statement of a release as text."""
    if "guarantee" in statement:
        return model_statement_text(statement)
    generator = statement["generator"]
    return as_text(
        "WHAT THESE SYNTHETIC TRACES PROTECT, AND WHAT THEY DO NOT PROTECT",
        statement["mechanism"],
        f"Made by {generator['system']}: {generator['what']}. {statement['traces']}",
        protected(statement),
        not_protected(statement),
        statement["randomness"],
    )


def _mechanism(test: PrivacyTestSettings) -> str:
    """What the privacy test required."""
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
        f"{name}: a trace is released only if {number}, the input user included, could have made it with "
        f"probabilities within a factor of {test.factor} of each other (one bin of width eta = {test.eta:g}). The test "
        f"compared the input user with {others}."
    )


def _protected_by_test(test: PrivacyTestSettings) -> list[str]:
    if test.k == 1:
        return []
    users = f"at least {test.k} users, the input user included,"
    if test.noise_epsilon is not None:
        users = f"a noisy number of users around {test.k} (for some traces only the input user)"
    link = (
        "The link between a released trace and the user it was made from (its input user). For a person who sees one "
        f"trace, {users} could have made it with probabilities within a factor of {test.factor} of each other."
    )
    return [link] if test.noise_epsilon is None else [link, _theorem(test, test.noise_epsilon)]


def _theorem(test: PrivacyTestSettings, noise_epsilon: float) -> str:
    """What Theorem 1 says about one trace, with examples from the smallest delta to the largest."""
    budgets = budgets_of_one_trace(test.k, test.eta, noise_epsilon)
    shown = np.unique(np.linspace(0, len(budgets.t) - 1, N_BUDGETS_SHOWN).astype(int))
    pairs = ", ".join(f"({budgets.epsilon[t]:.3g}, {budgets.delta[t]:.2g})" for t in shown)
    return (
        "One trace that is drawn at random from all traces that were made, before it is known which of them passed. "
        f"Whether a person was an input user is then ({noise_epsilon:g} + log(1 + e^{test.eta:g} / t), "
        f"e^(-{noise_epsilon:g} ({test.k} - t)))-differentially private for every whole number t from 1 to "
        f"{test.k - 1}. This is Theorem 1 of Bindschaedler et al. 2017 with their gamma = e^{test.eta:g}. Examples of "
        f"(epsilon, delta): {pairs}. The theorem assumes at least {test.k} users. It also assumes that without this "
        "person all parameters of the model that users share would be the same."
    )


def _not_protected(verdicts: PlausibleDeniability, together: bool, n_events: Int[np.ndarray, " place"]) -> list[str]:
    test, claims = verdicts.settings, verdicts.claims
    points = []
    if test.k == 1:
        points.append("The link between a released trace and its input user: k = 1 requires no other user.")
    if not claims.is_private:
        points += _not_differentially_private(test)
        shared = ": they share a number here, but the test looked at each trace alone." if together else "."
        points.append(f"Several traces of one user taken together{shared}")
    points += [
        "The parameters of the model: the model is not released, and this statement does not hold for a person who "
        "has the model.",
        "Which traces were withheld, and how many.",
    ]
    if verdicts.same_number_of_each_user():
        points.append(
            "How many training users there were. The same number of traces was made from each of them, so the number "
            "of released traces reveals something about it."
        )
    points += ["Facts about many users, and what the traces of all users have in common."]
    points.append(PLACES if claims.is_private else f"{PLACES} {_users_of_places(verdicts, n_events)}")
    if test.precision == "float32":
        points.append(
            "Traces at the edge of a bin: in single precision, the test may have counted a user whose probability is "
            "outside the bin."
        )
    return [*points, *(f"In this release: {note}." for note in claims.not_protected)]


def _not_differentially_private(test: PrivacyTestSettings) -> list[str]:
    """What this test does not protect, but differential privacy would."""
    if test.noise_epsilon is None:
        return [f"Without noise on k, this test is not differential privacy. {NO_MEMBERSHIP}"]
    if test.k == 1:
        return [f"Noise on k = 1 gives no differential privacy: the theorem needs k of at least 2. {NO_MEMBERSHIP}"]
    return [
        "The release as a whole is not differentially private, in spite of the noise: the theorem covers one trace "
        "only. For m traces, if the input user of each is drawn at random separately, epsilon and delta would be m "
        f"times as large, whoever the traces were made from. Here every user is an input user. {NO_MEMBERSHIP}",
        "How the model was learned. Without one person's data, the parameters that users share would be different; the "
        "theorem assumes that they are the same.",
        "That a trace was withheld. For a person who sees that the randomly drawn trace was withheld, delta is larger "
        "by up to one divided by the number of users.",
    ]


def _users_of_places(verdicts: PlausibleDeniability, n_events: Int[np.ndarray, " place"]) -> str:
    """The smallest number of training users at a place, in words."""
    least = verdicts.least_users_per_place
    if least is None:
        return "It is not known how many training users were at each place."
    if least > 1:
        return f"Each place that anybody visited was visited by at least {least} training users."
    is_of_one = verdicts.users_per_place == 1
    n_alone = f"{int(is_of_one.sum()):,} of {counted(len(is_of_one), 'place')}"
    share = f"{100 * n_events[is_of_one].sum() / n_events.sum():.0f} %"
    return f"At {n_alone} there was only one training user; {share} of the released events are there."


def _randomness(verdicts: PlausibleDeniability, seed: Seed) -> str:
    if verdicts.origin.seeds_given or seed.given or (verdicts.settings.n_verifiers is not None and verdicts.seed.given):
        return (
            "Randomness: reproducible, so the seed must stay secret. Somebody chose the seed. A person who knows or "
            "guesses it, and has the data of the other users, can repeat what was drawn."
        )
    return "Randomness: drawn from the operating system's secure source. Only the private files contain the seed."
