"""The privacy statement of traces of nobody: what the differential privacy of their model guarantees."""

from __future__ import annotations

import math
from typing import Any

from ppmtf_jax.data.description import at_most
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.privacy.statement import RANDOMNESS, STATEMENT_FORMAT, point
from ppmtf_jax.settings import build_settings, input_paths
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS

NOT_PRIVATE = "NOT PRIVATE: nobody is protected, for the first reason below."
PUBLIC = (
    "The list of places, with coordinates and categories, and what follows from it, such as ranges of distance. It "
    "must not be chosen from the data, for example by how often people visit places.",
    "The time grid: its length, step, slots and time zone. If a trace has several days, also the day of the week on "
    "which it begins. The first and the last day must not be those of somebody's first and last event.",
    "All settings of the model, such as epsilon, and everything that they name.",
)
CHOSEN_NUMBER = "The number of synthetic people was chosen, and says nothing about how many people there were."
NOT_PROTECTED = (
    "Anybody, if the places were chosen from the data: then the list of places may reveal who was there.",
    "Anybody, if the same data is used several times: the epsilons and deltas of several models add up. This is so "
    "also if the settings are the same, and if a fit failed after it had drawn its noise.",
    "Anybody, against numbers and pictures that compare synthetic with real traces.",
    "Groups of people, such as a household. For g people together, rho is g * g times as large, and epsilon more than "
    "g times, at the same delta.",
    "A person whose data has two user ids: they count as two people.",
    "Facts about many people, and what the data of others reveal about a person.",
    "Anybody, by how the data was chosen before the fit, such as which users are training users, if others see this.",
    "How long the computation took, and how much memory it needed.",
)


def model_statement(model: FittedModel, *, dated: bool = False) -> dict[str, Any]:
    """The privacy statement for everything made from a model of nobody: the guarantee, its cost and its limits.

    `dated`: whether the publisher chose the date of the traces. Returns JSON values: format, guarantee, private,
    neighbours, epsilon, delta, ledger, generator, traces, public, protected, not_protected, randomness. `generator` has
    the checksum of the model, which may be published too, and the settings; for a file in the settings, only its name,
    without the folder. Raises `InputError`: the model knows users, or keeps no ledger.
    """
    ledger = model.trace_model.ledger()
    if not model.of_nobody or ledger is None:
        way_out = "Test the traces of this model, and release those that pass"
        found = f"a {model.system} model, which knows users" if not model.of_nobody else "a model without a ledger"
        raise InputError("release", [Problem("a differentially private model of nobody", found, 0, (), way_out)])
    claims, synthesizer = model.claims(), SYNTHESIZERS[model.system]
    settings = build_settings(synthesizer.settings, model.settings, model.system)
    (of_relation,) = ledger["relations"]
    epsilon, delta = (of_relation["budget"][name] for name in ("epsilon", "delta"))
    private = claims.is_private and ledger["private"]
    date = "The publisher chose the dates of the traces." if dated else "The date of the time grid is nominal."
    return {
        "format": STATEMENT_FORMAT,
        "guarantee": guarantee(epsilon, delta) if private else NOT_PRIVATE,
        "private": private,
        "neighbours": of_relation["relation"],
        "epsilon": epsilon,
        "delta": delta,
        "ledger": ledger,
        "generator": {
            "system": synthesizer.name,
            "what": synthesizer.title,
            "settings": model.settings | {name: path.name for name, path in input_paths(settings).items()},
            "settings_in_words": dict(claims.settings),
            "model": model.checksum,
        },
        "traces": f"Each trace is that of a new synthetic person, who stands for no real one. {date}",
        "public": list(PUBLIC),
        "number_of_traces": CHOSEN_NUMBER,
        "protected": [*map(point, claims.protected)],
        "not_protected": [*map(point, claims.not_protected), *NOT_PROTECTED],
        "randomness": RANDOMNESS[ledger["private"]],
    }


def guarantee(epsilon: float, delta: float) -> str:
    """What (epsilon, delta)-differential privacy guarantees, in words; see `greatest_accuracy`.

    Examples
    --------
    >>> print(guarantee(1.0, 1e-6))  # doctest: +ELLIPSIS
    Every person whose data was used is protected, with all their traces together: ... right in at most 73.2 % of ca...
    """
    right = at_most(greatest_accuracy(epsilon, delta))
    return (
        "Every person whose data was used is protected, with all their traces together: differential privacy with "
        f"epsilon = {epsilon:g} and delta = {delta:g}. Suppose that it is as probable that their data was used as that "
        "it was not. Then somebody who sees all of these traces, and knows everything else, can guess which is true, "
        f"and is right in at most {right} of cases; a coin is right in 50 %."
    )


def greatest_accuracy(epsilon: float, delta: float) -> float:
    """The greatest share of right guesses which of two equally probable neighbouring data sets was used.

    Under differential privacy, a test's true positive rate t and false positive rate f satisfy t <= e^epsilon f + delta
    and 1 - f <= e^epsilon (1 - t) + delta. So the share of right guesses, (t + 1 - f) / 2, is at most
    (e^epsilon + delta) / (e^epsilon + 1) (Kairouz, Oh and Viswanath, ICML 2015).

    Examples
    --------
    >>> greatest_accuracy(0.0, 0.0), round(greatest_accuracy(1.0, 1e-6), 4)
    (0.5, 0.7311)
    """
    return (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon))
