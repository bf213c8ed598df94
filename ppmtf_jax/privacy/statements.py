"""Privacy statements: what is protected in published data, by which mechanism, and what is not protected.

A statement is a dict of JSON values with the lists of points `protected` and `not_protected`. It is written to three
files: PRIVACY.txt, one screen that says what is promised; PRIVACY_DETAILS.txt, with everything else; and privacy.json,
for programs. The first sentence of each point stands alone, because it is the point on the first page.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from jaxtyping import Int

from ppmtf_jax.data.description import at_most, counted, share_of
from ppmtf_jax.data.trace_set import Origin
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.privacy.verdicts import Verdicts
from ppmtf_jax.settings import build_settings, input_paths
from ppmtf_jax.streams import Seed
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS

STATEMENT_FORMAT = 2
STATEMENT_JSON, STATEMENT_TEXT, STATEMENT_DETAILS = "privacy.json", "PRIVACY.txt", "PRIVACY_DETAILS.txt"
WIDTH = 80
MORE = "PRIVACY_DETAILS.txt has all of this in full, and how the traces were made."
NOT_MEASURED = (
    "Nothing was measured: no attack was tried on these traces before this was written. Ask the publisher which "
    "attacks were tried since then, and what they found."
)
RANDOMNESS = {
    True: "The noise is OpenDP's, from the operating system's secure source, and has no seed. Everything else was "
    "drawn from a seed. The protection does not depend on the secrecy of this seed.",
    False: "The noise and everything else were drawn from a seed. A person who knows the seed can remove the noise.",
    None: "The model was drawn from a seed, which it does not keep, and the traces from another one. Both must stay "
    "secret.",
}
"""Where the noise of a differentially private mechanism comes from, by whether it is private; None without noise."""
RANDOM_IDS = {
    True: "Randomness: reproducible, so the seed must stay secret. Somebody chose the seed. A person who knows or "
    "guesses it, and has the data of the other users, can repeat what was drawn.",
    False: "Randomness: drawn from the operating system's secure source. Only the private files contain the seed.",
}
"""Where the randomness of a release comes from, by whether somebody chose a seed."""
PLACES = (
    "The list of places, with coordinates and categories, which is treated as public. It is the list of the training "
    "data."
)
HOUSEHOLD = (
    "A household as one: two people who live together count as two users. So a family alone can reach a limit on the "
    "number of users of a place"
)
SEED_KNOWN = "Anything against a person who knows or guesses the seed, which somebody chose."
SAME_NUMBER = (
    "The same number of traces was made from each training user, so the number of released traces reveals something "
    "about how many users there were."
)
CHOSEN_NUMBER = (
    "The number of traces that were made was chosen, and says nothing about how many people there were. How many of "
    "them passed depends on the people."
)

NOT_PRIVATE = "NOT PRIVATE: nobody is protected, for the first reason below."
NOT_PROVEN = (
    "NOT PROVEN: these traces are not differentially private. No trace was made from one person, but the model was "
    "learned from all of them."
)
CHOSEN_NUMBER_OF_PEOPLE = (
    "The number of synthetic people was chosen, and says nothing about how many people there were."
)
PUBLIC = (
    "The list of places, with coordinates and categories, and what follows from it, such as ranges of distance. It "
    "must not be chosen from the data, for example by how often people visit places.",
    "The time grid: its length, step, slots and time zone. If a trace has several days, also the day of the week on "
    "which it begins. The first and the last day must not be those of somebody's first and last event.",
    "All settings of the model, such as epsilon, and everything that they name.",
)
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

NOT_PROTECTED_WITHOUT_PROOF = (
    PLACES,
    f"{HOUSEHOLD}.",
    "What many people have in common, and what it says about each of them.",
    "Anybody, against numbers and pictures that compare synthetic with real traces.",
    "Anybody, by what the model reveals, if it is published or if somebody draws many traces from it.",
)

Section = str | tuple[str, str | Sequence[str]]
"""A paragraph, or a heading with a paragraph or a list of points."""


# Of traces that passed a test


def privacy_statement(
    verdicts: Verdicts, together: bool, seed: Seed, n_events: Int[np.ndarray, " place"]
) -> dict[str, Any]:
    """What a release protects, by which mechanism, under which assumptions, and what it does not protect.

    It is made from the tested model and not only from its settings. `together`: whether the traces of one user share a
    new user id. `seed`: seed of the random order of ids. `n_events`: number of released events at each of the model's
    places. Returns JSON values: format, mechanism, parameters, generator, traces, number_of_traces, rules, protected,
    not_protected, randomness.
    """
    claims, least = verdicts.claims, verdicts.least_users_per_place
    words, synthesizer = verdicts.words, SYNTHESIZERS[verdicts.system]
    numbers = "Every trace has a number of its own, also if several traces were made from one user."
    if together:
        numbers = "Traces made from one user share a number."
    date = "The date of the time grid is nominal."
    if verdicts.origin.dated:
        date = "The publisher chose the dates of the traces; they are not dates of the training data."
    of_user = verdicts.table["user"].value_counts()
    is_same_number = len(of_user) == verdicts.n_users and of_user.nunique() == 1
    points, seed_given = list(words.not_protected), verdicts.seed_given or seed.given
    if not claims.is_private:
        looked = "which share a number here: the test looked at each trace alone" if together else "taken together"
        points.append(f"Several traces of one user, {looked}.")
    points += map(point, claims.not_protected)
    users = "It is not known how many training users were at each place."
    if least is not None:
        users = f"Each place that anybody visited was visited by at least {counted(least, 'training user')}."
    points.append(PLACES if claims.is_private else f"{PLACES} {users}")
    if least == 1 and not claims.is_private:
        is_of_one = verdicts.users_per_place == 1
        places = share_of(int(is_of_one.sum()), len(is_of_one), "places")
        events = share_of(int(n_events[is_of_one].sum()), int(n_events.sum()), "released events")
        points.append(f"Who was at the places with only one training user: {places}, with {events}.")
    points += [
        f"{HOUSEHOLD}, or of users who could have led to a trace.",
        *([f"How many training users there were. {SAME_NUMBER}"] if is_same_number else []),
        "What many people have in common, and what it says about each of them.",
        "Anything against a person who has the model. It is not released, and this statement does not hold for them.",
        *([SEED_KNOWN] if seed_given else []),
        "Which traces were withheld, and how many.",
    ]
    return {
        "format": STATEMENT_FORMAT,
        "mechanism": words.mechanism,
        "parameters": verdicts.settings.stated() | {"min_users_per_place": None if claims.is_private else least},
        "by_construction": verdicts.by_construction,
        "generator": {
            "system": synthesizer.name,
            "what": synthesizer.title,
            "settings": verdicts.model_settings,
            "settings_in_words": dict(claims.settings),
        },
        "traces": f"{numbers} Numbers and their order are random. {date}",
        "number_of_traces": SAME_NUMBER if is_same_number else CHOSEN_NUMBER,
        "rules": [point(rule) for rule in claims.rules],
        "protected": [*map(point, claims.protected), *words.protected],
        "not_protected": points,
        "randomness": RANDOM_IDS[seed_given],
    }


# Of traces of nobody


def model_statement(model: FittedModel, origin: Origin) -> dict[str, Any]:
    """The privacy statement for everything made from a model of nobody: the guarantee, its cost and its limits.

    `origin`: that of the traces, which says whether somebody chose a seed or the date. Returns JSON values: format,
    guarantee, private, neighbours, epsilon, delta, ledger, generator, traces, public, protected, not_protected,
    randomness. `generator` has the checksum of the model, and the settings; for a file in the settings, only its name,
    without the folder. Of a model without a ledger, nothing is proven: neighbours, epsilon, delta and ledger are None.
    Its checksum is left out: who knows the data of the others and guesses the seed could confirm a guess of one user's.
    Raises `InputError`: the model knows users.
    """
    if not model.of_nobody:
        way_out = "Test the traces of this model, and release those that pass"
        found = f"a {model.system} model, which knows users"
        raise InputError("release", [Problem("a model of nobody", found, 0, (), way_out)])
    claims, synthesizer, ledger = model.claims(), SYNTHESIZERS[model.system], model.trace_model.ledger()
    settings = build_settings(synthesizer.settings, model.settings, model.system)
    private, relation, epsilon, delta = False, None, None, None
    promise, public, unprotected, randomness = NOT_PROVEN, PUBLIC[1:], NOT_PROTECTED_WITHOUT_PROOF, RANDOMNESS[None]
    if ledger is not None:
        (of_relation,) = ledger["relations"]
        relation, (epsilon, delta) = of_relation["relation"], (of_relation["budget"][n] for n in ("epsilon", "delta"))
        private = claims.is_private and ledger["private"]
        promise = guarantee(epsilon, delta) if private else NOT_PRIVATE
        public, unprotected, randomness = PUBLIC, NOT_PROTECTED, RANDOMNESS[ledger["private"]]
    elif origin.seeds_given:
        unprotected, randomness = (*unprotected, SEED_KNOWN), f"{randomness} Somebody chose a seed."
    date = "The publisher chose the dates of the traces." if origin.dated else "The date of the time grid is nominal."
    return {
        "format": STATEMENT_FORMAT,
        "guarantee": promise,
        "private": private,
        "neighbours": relation,
        "epsilon": epsilon,
        "delta": delta,
        "ledger": ledger,
        "generator": {
            "system": synthesizer.name,
            "what": synthesizer.title,
            "settings": model.settings | {name: path.name for name, path in input_paths(settings).items()},
            "settings_in_words": dict(claims.settings),
            **({} if ledger is None else {"model": model.checksum}),
        },
        "traces": f"Each trace is that of a new synthetic person, who stands for no real one. {date}",
        "public": list(public),
        "number_of_traces": CHOSEN_NUMBER_OF_PEOPLE,
        "protected": [*map(point, claims.protected)],
        "not_protected": [*map(point, claims.not_protected), *unprotected],
        "randomness": randomness,
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


# As texts


def statement_texts(statement: dict[str, Any]) -> tuple[str, str]:
    """The first page of the statement of a release, and the details; of traces of nobody, the guarantee comes first."""
    generator = statement["generator"]
    made = f"Made by {generator['system']}: {generator['what']}. {statement['traces']}"
    if "guarantee" in statement:
        cost_of = costs(statement["ledger"])
        width = max(map(len, cost_of), default=0)
        spent = [f"{mechanism:<{width}}  {cost}" for mechanism, cost in cost_of.items()]
        noise = "" if statement["private"] else ", from noise that protects nobody"
        neighbours = f"Neighbours, which are hard to tell apart: {statement['neighbours']}."
        details = as_text(
            "PRIVACY IN DETAIL",
            statement["guarantee"],
            made,
            statement["number_of_traces"],
            protected(statement),
            *([neighbours] if cost_of else []),
            (f"Numbers that were taken from the data with noise, and what each of them cost{noise}:", spent),
            ("Treated as public:", statement["public"]),
            not_protected(statement),
            f"Randomness: {statement['randomness']}",
        )
        return first_page("SYNTHETIC PEOPLE", statement["guarantee"], statement["not_protected"]), details
    promise = [first_sentence(each) for each in statement["protected"]] or ["Nothing that could be stated."]
    promise += [statement["by_construction"]] if statement["by_construction"] else []
    details = as_text(
        "PRIVACY IN DETAIL",
        made,
        ("The test:", f"{statement['mechanism']} {statement['by_construction']}"),
        ("How the model was made (rules that bound what one person weighs; no promise):", statement["rules"]),
        protected(statement),
        not_protected(statement),
        statement["randomness"],
    )
    return first_page("SYNTHETIC TRACES", promise, statement["not_protected"]), details


def costs(ledger: dict[str, Any] | None) -> dict[str, str]:
    """What each mechanism of a ledger cost, and what all of them cost together, in words; empty without a ledger."""
    if ledger is None:
        return {}
    (of_relation,) = ledger["relations"]
    lines = [*of_relation["mechanisms"], {"mechanism": "together"} | of_relation["spent"]]
    amounts = ({name: line[name] for name in ("epsilon", "delta", "rho") if name in line} for line in lines)
    cost = (", ".join(f"{name} {amount:.4g}" for name, amount in each.items()) for each in amounts)
    return dict(zip((line["mechanism"] for line in lines), cost, strict=True))


def statement_files(statement: Mapping[str, Any], page: str, details: str) -> dict[str, str]:
    """A statement's three files by name: one for programs, one screen for people, and the details."""
    for_programs = json.dumps(statement, indent=1)
    return {STATEMENT_JSON: f"{for_programs}\n", STATEMENT_TEXT: f"{page}\n", STATEMENT_DETAILS: f"{details}\n"}


def first_page(of_what: str, promise: str | Sequence[str], points: Sequence[str]) -> str:
    """One screen: the promise, and the first sentence of each point that is not protected.

    Examples
    --------
    >>> print(first_page("TRACES", ["Nothing."], ["Anybody. They are real."]))
    WHAT THESE TRACES PROMISE
    - Nothing.
    <BLANKLINE>
    WHAT THEY DO NOT PROTECT
    - Anybody.
    <BLANKLINE>
    Nothing was measured: no attack was tried on these traces before this was
    written. Ask the publisher which attacks were tried since then, and what they
    found.
    <BLANKLINE>
    PRIVACY_DETAILS.txt has all of this in full, and how the traces were made.
    """
    short = ("WHAT THEY DO NOT PROTECT", [first_sentence(each) for each in points])
    return as_text((f"WHAT THESE {of_what} PROMISE", promise), short, NOT_MEASURED, MORE)


def as_text(*sections: Section) -> str:
    """Sections or titles as text in lines of at most 80 characters; empty lists are left out."""
    written = []
    for section in sections:
        if isinstance(section, str):
            written.append(fill(section, WIDTH))
        elif section[1]:
            heading, body = section
            items = [body] if isinstance(body, str) else body
            first, later = ("", "") if isinstance(body, str) else ("- ", "  ")
            filled = [fill(each, WIDTH, initial_indent=first, subsequent_indent=later) for each in items]
            written.append("\n".join([heading, *filled]))
    return "\n\n".join(written)


def first_sentence(text: str) -> str:
    """The text up to its first full stop before a space."""
    return text.split(". ")[0].removesuffix(".") + "."


def point(phrase: str) -> str:
    """A phrase of `Claims` as a point."""
    return f"{phrase[:1].upper()}{phrase[1:]}."


def protected(statement: dict[str, Any]) -> Section:
    """The section on what is protected."""
    return "Protected:", statement["protected"] or ["Nothing that could be stated: see below."]


def not_protected(statement: dict[str, Any]) -> Section:
    """The section on what is not protected."""
    return "Not protected:", statement["not_protected"]
