"""What traces of synthetic friends protect, by which mechanism, and what they do not protect."""

from __future__ import annotations

from textwrap import fill
from typing import Any

from ppmtf_jax.colocation.synthesizer import RELATION, ColocationSynthesis
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS

STATEMENT_FORMAT = 1
WIDTH = 100


def privacy_statement(made: ColocationSynthesis) -> dict[str, Any]:
    """What is protected, by which mechanisms, for which neighbours, at what cost, and what is not protected.

    Returns
    -------
    dict
        Values as in JSON: format, private, neighbours, epsilon, delta, ledger, settings, protected, not_protected,
        randomness. `private` says whether the sum of the ledger bounds all that the traces tell of a user. With a model
        that was given, with the greedy rule, or with noise that is not secure, it does not.

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
    ledger = made.accountant.ledger()
    relation = next(each for each in ledger["relations"] if each["relation"] == RELATION)
    private = ledger["private"] and made.settings.limit_rule == "bounded" and not made.model_given
    total = f"epsilon {relation['spent']['epsilon']:g}"
    return {
        "format": STATEMENT_FORMAT,
        "private": private,
        "neighbours": RELATION,
        **relation["spent"],
        "ledger": ledger,
        "settings": vars(made.settings) | {"system": made.model.system},
        "protected": [
            f"Of one user: all her events and all her friendships together, by differential privacy with {total}, the "
            "sum over the mechanisms below. If they are replaced by others and not only left out, it is twice that.",
            "Who the synthetic users are: nobody. None of them was made from one person.",
        ]
        if private
        else [],
        "not_protected": [*_why_not_private(made), *_never_protected()],
        "randomness": _randomness(ledger["private"]),
    }


def statement_text(statement: dict[str, Any]) -> str:
    """A privacy statement to read."""

    def points(items: list[str]) -> str:
        return "\n".join(fill(item, WIDTH, initial_indent="- ", subsequent_indent="  ") for item in items)

    spent = [
        f"{line['mechanism']}: epsilon {line['epsilon']:g}, delta {line['delta']:g}, "
        f"noise scaled to a sensitivity of {line['sensitivity']:g}"
        for relation in statement["ledger"]["relations"]
        for line in relation["mechanisms"]
    ]
    protected = statement["protected"] or ["Nothing that could be stated: see below."]
    return "\n\n".join(
        [
            "WHAT THESE SYNTHETIC TRACES OF FRIENDS PROTECT, AND WHAT NOT",
            *([] if statement["private"] else ["NOT PRIVATE. The reasons are below."]),
            "Protected:\n" + points(protected),
            fill(f"Neighbours: {statement['neighbours']}.", WIDTH),
            "Mechanisms, on whole numbers (discrete Laplace noise), which add up:\n" + points(spent),
            "Not protected:\n" + points(statement["not_protected"]),
            fill(f"Randomness: {statement['randomness']}", WIDTH),
        ]
    )


def _why_not_private(made: ColocationSynthesis) -> list[str]:
    reasons = []
    if not made.accountant.noise.is_private:
        reasons.append("Anybody: the noise comes from a seed, for experiments. The losses above protect nobody.")
    if made.settings.limit_rule == "greedy":
        reasons.append(
            "Users, in spite of the noise: with the greedy rule, as published, one user can change the counts of "
            f"co-locations by more than the {made.settings.sensitivity} that the noise is scaled to, without any bound."
        )
    if made.model_given:
        system = SYNTHESIZERS[made.model.system]
        reasons.append(
            f"Users that the model ({system.name}: {system.title}) was learned from: the ledger does not cover what it "
            "tells of them. Each synthetic user's moves between meetings are those of one of them, by lot."
        )
        reasons += [f"By this model: {note}." for note in made.model.claims().not_protected]
    return reasons


def _randomness(secure: bool) -> str:
    if not secure:
        return "The noise was drawn from a seed: whoever knows it takes the noise off again. So was all else."
    return (
        "The noise is OpenDP's, from the operating system's secure source, and has no seed. All else was drawn "
        "from a seed, on whose secrecy the protection does not depend."
    )


def _never_protected() -> list[str]:
    return [
        "How many users there were: there are as many synthetic ones. Who they were is taken as public.",
        "The places with coordinates and categories, the time grid and all settings: they are taken as public.",
        "What is true of many users, and what the data of her friends and others tell of a user.",
        "Other releases of the same data: they add to the epsilon of this one.",
        "How long the computation took.",
    ]
