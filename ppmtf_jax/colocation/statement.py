"""The privacy statement of traces of synthetic friends."""

from __future__ import annotations

from typing import Any

from ppmtf_jax.colocation.synthesizer import RELATION, ColocationSynthesis
from ppmtf_jax.data.description import counted
from ppmtf_jax.noise.accountant import NO_RUNS, EarlierRuns, stated
from ppmtf_jax.noise.mechanisms import NoiseSource
from ppmtf_jax.privacy.statements import (
    RANDOMNESS,
    STATEMENT_FORMAT,
    as_text,
    first_page,
    first_sentence,
    not_protected,
    protected,
)
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS

NEVER_PROTECTED = (
    "How many users there were: there are as many synthetic users. Who they were is treated as public.",
    "The places with coordinates and categories, the time grid and all settings: they are treated as public.",
    "Facts about many users, and what the data of friends and other people reveal about a user.",
    "Other releases of the same data: their epsilon adds to the epsilon of this one.",
    "How long the computation took.",
)
UNBOUNDED_RUNS = (
    "Users, against a person who has seen what earlier runs made or printed. At least one of those runs used a model "
    "that was given, noise from a seed, or a limit by the greedy rule. So their epsilon bounds nothing, "
    "and a sum that includes it bounds nothing."
)


def privacy_statement(made: ColocationSynthesis, earlier: EarlierRuns = NO_RUNS) -> dict[str, Any]:
    """The statement: what is protected, mechanisms, neighbours, privacy budget, and what is not protected.

    `earlier`: earlier runs on the same data, which also spent privacy budget. Returns JSON values: format, private (see
    `is_bounded`), neighbours, epsilon and delta (the sums over this run and all earlier runs), earlier_runs, ledger,
    settings, protected, not_protected, randomness.

    Examples
    --------
    >>> from ppmtf_jax.colocation.synthesizer import synthesize_colocations
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> city = toy_city(n_users=60, n_places=20, n_days=1, seed=0).traces
    >>> made = synthesize_colocations(city, epsilon_friendship=5.0, n_colocations=50, seed=0)
    >>> statement = privacy_statement(made)
    >>> statement["private"], statement["epsilon"]
    (True, 7.0)
    """
    accountant = made.accountant
    private = is_bounded(accountant.noise, made.model_given)
    total = stated(accountant.spent + earlier.loss)
    return {
        "format": STATEMENT_FORMAT,
        "private": private,
        "neighbours": RELATION,
        **total,
        "earlier_runs": {"n": earlier.n, **stated(earlier.loss), "bounded": earlier.bounded},
        "ledger": accountant.ledger(),
        "settings": vars(made.settings) | {"system": made.model.system},
        "protected": _protected(stated(accountant.spent)["epsilon"], earlier, total["epsilon"]) if private else [],
        "not_protected": [*_own_reasons(made), *([] if earlier.bounded else [UNBOUNDED_RUNS]), *NEVER_PROTECTED],
        "randomness": RANDOMNESS[accountant.noise.is_private],
    }


def statement_texts(statement: dict[str, Any]) -> tuple[str, str]:
    """The first page of the statement of traces of friends, and the details."""
    spent = [
        f"{line['mechanism']}: epsilon {line['epsilon']:g}, delta {line['delta']:g}, "
        f"noise scaled to a sensitivity of {line['sensitivity']:g}"
        for relation in statement["ledger"]["relations"]
        for line in relation["mechanisms"]
    ]
    promise = [first_sentence(each) for each in statement["protected"]]
    page = first_page("SYNTHETIC FRIENDS", promise or ["NOTHING. They are NOT PRIVATE."], statement["not_protected"])
    details = as_text(
        "PRIVACY IN DETAIL",
        *([] if statement["private"] else ["NOT PRIVATE. The reasons are below."]),
        protected(statement),
        f"Neighbours: {statement['neighbours']}.",
        ("Mechanisms, on whole numbers (discrete Laplace noise), which add up:", spent),
        not_protected(statement),
        f"Randomness: {statement['randomness']}",
    )
    return page, details


def is_bounded(noise: NoiseSource, model_given: bool) -> bool:
    """Whether the ledger bounds everything that the traces reveal about a user: not with a model that was given."""
    return noise.is_private and not model_given


def _protected(own_epsilon: float, earlier: EarlierRuns, total_epsilon: float) -> list[str]:
    points = [
        "Each user: all their events and all their friendships together, by differential privacy with epsilon "
        f"{own_epsilon:g}, the sum over all mechanisms. If their data is replaced by other data and not only left out, "
        "epsilon is twice as large."
    ]
    if earlier.n and earlier.bounded:
        points.append(
            f"The same, if everything that {counted(earlier.n, 'earlier run')} drew is counted too: with epsilon "
            f"{total_epsilon:g}. The epsilon of a run is spent once its numbers are drawn, even if the run did not "
            "finish."
        )
    return [*points, "Who the synthetic users are: nobody. None of them was made from one person."]


def _own_reasons(made: ColocationSynthesis) -> list[str]:
    """Why the traces are not private, or not as private as the ledger says."""
    reasons = []
    if not made.accountant.noise.is_private:
        reasons.append("Anybody: the noise comes from a seed, for experiments. The losses above protect nobody.")
    if made.model_given:
        system, claims = SYNTHESIZERS[made.model.system], made.model.claims()
        reasons.append(
            f"Users that the model ({system.name}: {system.title}) was learned from: the ledger does not cover what "
            "the model reveals about them. Between meetings, each synthetic user moves like one of these users, who is "
            "drawn at random."
        )
        reasons += [f"What this model protects by itself, on top of the ledger: {note}." for note in claims.protected]
        reasons += [f"By this model: {note}." for note in claims.not_protected]
    return reasons
