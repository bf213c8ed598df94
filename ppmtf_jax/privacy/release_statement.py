"""The privacy statement of a release, made from the tested model and not only from its settings."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int

from ppmtf_jax.data.description import counted, share_of
from ppmtf_jax.privacy.statement import HOUSEHOLD, STATEMENT_FORMAT, point
from ppmtf_jax.privacy.verdicts import Verdicts
from ppmtf_jax.privacy.words_of_tests import by_construction, words_of_test
from ppmtf_jax.streams import Seed
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS

PLACES = (
    "The list of places, with coordinates and categories, which is treated as public. It is the list of the training "
    "data."
)
SAME_NUMBER = (
    "The same number of traces was made from each training user, so the number of released traces reveals something "
    "about how many users there were."
)
CHOSEN_NUMBER = (
    "The number of traces that were made was chosen, and says nothing about how many people there were. How many of "
    "them passed depends on the people."
)
RANDOM_IDS = {
    True: "Randomness: reproducible, so the seed must stay secret. Somebody chose the seed. A person who knows or "
    "guesses it, and has the data of the other users, can repeat what was drawn.",
    False: "Randomness: drawn from the operating system's secure source. Only the private files contain the seed.",
}
"""Where the randomness of a release comes from, by whether somebody chose a seed."""


def privacy_statement(
    verdicts: Verdicts, together: bool, seed: Seed, n_events: Int[np.ndarray, " place"]
) -> dict[str, Any]:
    """What the release protects, by which mechanism, under which assumptions, and what it does not protect.

    `together`: whether the traces of one user share a new user id. `seed`: seed of the random order of ids. `n_events`
    (shape (places,)): number of released events at each of the model's places. Returns JSON values: format, mechanism,
    parameters, generator, traces, number_of_traces, rules, protected, not_protected, randomness.
    """
    claims, words = verdicts.claims, words_of_test(verdicts)
    synthesizer = SYNTHESIZERS[verdicts.system]
    numbers = "Every trace has a number of its own, also if several traces were made from one user."
    if together:
        numbers = "Traces made from one user share a number."
    date = "The date of the time grid is nominal."
    if verdicts.origin.dated:
        date = "The publisher chose the dates of the traces; they are not dates of the training data."
    number_of_traces = SAME_NUMBER if verdicts.same_number_of_each_user() else CHOSEN_NUMBER
    points, seed_given = list(words.not_protected), verdicts.seed_given or seed.given
    if not claims.is_private:
        looked = "which share a number here: the test looked at each trace alone" if together else "taken together"
        points.append(f"Several traces of one user, {looked}.")
    points += map(point, claims.not_protected)
    points.append(PLACES if claims.is_private else f"{PLACES} {_users_of_places(verdicts)}")
    points += [*_places_of_one(verdicts, n_events), HOUSEHOLD]
    points += [f"How many training users there were. {SAME_NUMBER}"] if number_of_traces == SAME_NUMBER else []
    points += [
        "What many people have in common, and what it says about each of them.",
        "Anything against a person who has the model. It is not released, and this statement does not hold for them.",
        *(["Anything against a person who knows or guesses the seed, which somebody chose."] if seed_given else []),
        "Which traces were withheld, and how many.",
    ]
    return {
        "format": STATEMENT_FORMAT,
        "mechanism": words.mechanism,
        "parameters": {
            **verdicts.parameters(),
            "min_users_per_place": None if claims.is_private else verdicts.least_users_per_place,
        },
        "by_construction": by_construction(verdicts),
        "generator": {
            "system": synthesizer.name,
            "what": synthesizer.title,
            "settings": verdicts.model_settings,
            "settings_in_words": dict(claims.settings),
        },
        "traces": f"{numbers} Numbers and their order are random. {date}",
        "number_of_traces": number_of_traces,
        "rules": [point(rule) for rule in claims.rules],
        "protected": [*map(point, claims.protected), *words.protected],
        "not_protected": points,
        "randomness": RANDOM_IDS[seed_given],
    }


def _users_of_places(verdicts: Verdicts) -> str:
    """The smallest number of training users at a place, in words."""
    least = verdicts.least_users_per_place
    if least is None:
        return "It is not known how many training users were at each place."
    return f"Each place that anybody visited was visited by at least {counted(least, 'training user')}."


def _places_of_one(verdicts: Verdicts, n_events: Int[np.ndarray, " place"]) -> list[str]:
    """A point on places with a single training user, if there are any."""
    if verdicts.claims.is_private or verdicts.least_users_per_place != 1:
        return []
    is_of_one = verdicts.users_per_place == 1
    places = share_of(int(is_of_one.sum()), len(is_of_one), "places")
    events = share_of(int(n_events[is_of_one].sum()), int(n_events.sum()), "released events")
    return [f"Who was at the places with only one training user: {places}, with {events}."]
