"""Hidden places, against every way to complete a trace; and people whom the attacker does not know as control."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.attacks import deobfuscation
from ppmtf_jax.attacks.audit import RehearsalSettings, ReidentificationSettings, rehearse, reidentification_attacks
from ppmtf_jax.attacks.deobfuscation import HiddenEvents, infer_places, posterior
from ppmtf_jax.attacks.estimators.base import estimate_transitions, to_probabilities
from ppmtf_jax.attacks.registry import ATTACKS
from ppmtf_jax.data.measurement import Comparison, NoSettings
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.evaluation.report.page import hidden_table
from ppmtf_jax.privacy.limits import Status
from tests.support import minutes, places_in_line, random_traces, to_traces

N_PLACES, LENGTH = 4, 7
PLACES = places_in_line(N_PLACES)
FLOOR = 1e-3


def trace_of(walk: list[int | None], n_instants: int = LENGTH) -> Traces:
    """One trace; the user is not seen where the place is None."""
    return to_traces([(0, 0, i, x) for i, x in enumerate(walk) if x is not None], PLACES, minutes(n_instants))


def by_trying_all(chain: np.ndarray, arrivals: np.ndarray, traces: Traces, visible: np.ndarray) -> np.ndarray:
    """The distribution of each hidden place: every walk through all instants from the first event to the last."""
    instants, places = traces.instant.tolist(), traces.place.tolist()
    known = {i: x for i, x, seen in zip(instants, places, visible, strict=True) if seen}
    begin, chance = instants[0], np.zeros((len(instants), len(chain)))
    for walk in itertools.product(range(len(chain)), repeat=instants[-1] - begin + 1):
        if all(walk[i - begin] == x for i, x in known.items()):
            weight = arrivals[walk[0]] * math.prod(chain[a, b] for a, b in itertools.pairwise(walk))
            for event, i in enumerate(instants):
                chance[event, walk[i - begin]] += weight
    return (chance / chance.sum(axis=1, keepdims=True))[~visible]


WALKS = {
    "between": ([0, 1, 2, 3, 0, 1, 2], [1, 0, 0, 1, 0, 1, 1]),
    "the last ones": ([0, 1, 2, 3, 0, 1, 2], [1, 1, 0, 0, 0, 0, 0]),
    "with gaps": ([0, None, 2, None, None, 1, 2], [1, 1, 0, 1, 1, 1, 1][:4]),
}


def compared(walk: list[int | None], seen: list[int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The distributions of the hidden places, by the attack and by trying all; arrivals are as the attacker's."""
    rng = np.random.default_rng(seed)
    counts, total = (rng.integers(1, 9, size=(N_PLACES, N_PLACES)).astype(float) for _ in range(2))
    counts[1] = 0  # never seen to leave
    traces, visible = trace_of(walk), np.array(seen, bool)
    with jax.enable_x64(True):
        found = np.asarray(posterior(jnp.asarray(counts), jnp.asarray(total), FLOOR, HiddenEvents.of(traces, visible)))
        counts += np.asarray(to_probabilities(jnp.asarray(total), FLOOR))
        chain, arrivals = (np.asarray(to_probabilities(jnp.asarray(of), FLOOR)) for of in (counts, counts.sum(axis=0)))
    return found, by_trying_all(chain, arrivals, traces, visible)


@pytest.mark.parametrize("name", WALKS)
def test_hidden_places_are_those_of_all_completions(name: str) -> None:
    found, expected = compared(*WALKS[name], seed=3)
    assert found == pytest.approx(expected, rel=1e-12)


def test_a_planted_step_too_few_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the loop over steps begins one step late, so that gaps count as one shorter."""
    loop = deobfuscation.lax.fori_loop
    monkeypatch.setattr(deobfuscation.lax, "fori_loop", lambda first, last, *of: loop(first + 1, last, *of))
    found, expected = compared(*WALKS["between"], seed=3)
    assert np.abs(found - expected).max() > 0.01


def test_an_event_without_an_earlier_one_is_where_the_person_arrives_and_a_long_gap_is_forgotten() -> None:
    counts = jnp.asarray(np.random.default_rng(0).random((N_PLACES, N_PLACES)))
    seen = counts + to_probabilities(counts, FLOOR)
    arrivals, chain = (np.asarray(to_probabilities(of, FLOOR)) for of in (seen.sum(axis=0), seen))
    before = HiddenEvents.of(trace_of([0, 2]), np.array([False, True]))
    weight = arrivals * chain[:, 2]
    assert np.asarray(posterior(counts, counts, FLOOR, before))[0] == pytest.approx(weight / weight.sum(), rel=1e-5)
    far = trace_of([0, *[None] * deobfuscation.MAX_GAP, 2], LENGTH + 5)
    assert far.instant.tolist() == [0, deobfuscation.MAX_GAP + 1]
    hidden = HiddenEvents.of(far, np.array([True, False]))
    assert np.asarray(posterior(counts, counts, FLOOR, hidden))[0] == pytest.approx(arrivals, rel=1e-5)
    assert np.asarray(hidden).T.tolist() == [[1, 2, 0, deobfuscation.MAX_GAP + 1, -1, 0]]
    # Counted in events, it is near.
    assert HiddenEvents.of(far, np.array([True, False]), over_gaps=True).since.tolist() == [1]


def test_a_tiny_floor_leaves_a_distribution() -> None:
    """Nobody was ever seen to go from place 0 to place 2 in two steps; in single precision 1e-60 is 0."""
    counts = jnp.eye(N_PLACES)
    hidden = HiddenEvents.of(trace_of([0, 1, 2]), np.array([True, False, True]))
    chance = np.asarray(posterior(counts, counts, 1e-30, hidden))[0]
    assert chance == pytest.approx([0.5, 0, 0.5, 0], abs=1e-6)


def test_places_of_other_traces_are_not_seen() -> None:
    rows = [(0, 0, 0, 1), (0, 1, 1, 2), (0, 1, 2, 3), (1, 0, 3, 1)]
    hidden = HiddenEvents.of(to_traces(rows, PLACES, minutes(LENGTH)), np.array([True, False, True, True]))
    assert (hidden.before.tolist(), hidden.after.tolist()) == ([-1], [3])


def test_most_probable_places_and_expected_distances() -> None:
    traces = random_traces(0, range(3), PLACES, minutes(LENGTH), n_traces=30)
    matrices = estimate_transitions(traces, floor=FLOOR)
    visible = np.random.default_rng(1).random(traces.n_events) < 0.5
    hidden = HiddenEvents.of(traces, visible)
    person = np.where(hidden.event % 2, traces.user[hidden.event], -1)
    counts = np.asarray(matrices.counts.of_users(np.arange(3)), float)
    total = counts.sum(axis=0)
    place, error_km = infer_places(hidden, matrices, person, total)
    km = PLACES.position_km()
    for number in range(0, len(person), 25):
        own = counts[person[number]] if person[number] >= 0 else total
        chance = np.asarray(posterior(jnp.asarray(own), jnp.asarray(total), FLOOR, hidden.select(np.array([number]))))[
            0
        ]
        away = np.linalg.norm(km - km[hidden.place[number]], axis=1)
        assert (place[number], error_km[number]) == (chance.argmax(), pytest.approx(chance @ away, rel=1e-4))
    # Without coordinates, distances are not known, and places are the same.
    nowhere = replace(PLACES, latitude=np.full(N_PLACES, np.nan), longitude=np.full(N_PLACES, np.nan))
    blind = infer_places(hidden, replace(matrices, places=nowhere), person, total)
    assert blind[0].tolist() == place.tolist()
    assert np.isnan(blind[1]).all()


# The attack on people


def days(n_days: int) -> TimeGrid:
    """Days of twelve hours."""
    return TimeGrid("2024-01-01T00:00:00", 3600, np.tile(np.arange(12), n_days), period=12)


def cyclic(n_people: int, seed: int, n_days: int = 4) -> Traces:
    """People who go round three places of their own, in an order that nobody else can know."""
    rng = np.random.default_rng(seed)
    rows = []
    for person in range(n_people):
        own = rng.choice(40, 3, replace=False)
        rows += [(person, 0, i, own[(i + i // 12) % 3]) for i in range(12 * n_days)]
    return to_traces(rows, places_in_line(40), days(n_days))


DELETED = ReidentificationSettings(n_deleted=5, deletion="random")


def test_known_people_are_tracked_and_others_are_not() -> None:
    made = rehearse(cyclic(100, seed=0), RehearsalSettings(), seed=0)
    (attack,) = reidentification_attacks(made.known, made.anonymized, ["ml"], DELETED)
    assert attack.hidden is not None
    rows = attack.hidden.rows
    assert attack.hidden.judgement.status is Status.POOR
    assert rows["Model of the person named"][0] > 0.9 > 0.5 > rows["Model of the person named"][2]
    assert rows["The person's own model"][0] > rows["Model of all people"][0] + 0.3
    assert rows["The person's own model"][1] < rows["Model of all people"][1] / 2
    assert np.isnan(rows["The person's own model"][2:]).all()
    assert rows["Last place seen"][0] < 0.5
    assert attack.numbers()["hidden"]["difference"] == attack.hidden.judgement.value
    assert (
        json.loads(json.dumps(attack.numbers(), allow_nan=False))["hidden"]["The person's own model"][2:] == [None] * 2
    )


def test_a_place_without_coordinates_leaves_its_events_out_of_distances_alone(monkeypatch) -> None:
    people = cyclic(60, seed=0)
    far = people.places.longitude.copy()
    far[:1] = np.nan
    made = rehearse(replace(people, places=replace(people.places, longitude=far)), RehearsalSettings(), seed=0)
    asked, infer = [], deobfuscation.infer_places
    monkeypatch.setattr(deobfuscation, "infer_places", lambda *of: asked.append(of[2]) or infer(*of))
    attacks = reidentification_attacks(made.known, made.anonymized, ["ml", "ml floor=1e-3"], DELETED)
    for attack in attacks:
        assert attack.hidden is not None
        for name, row in attack.hidden.rows.items():
            assert np.isnan(row).tolist() == [False, False] + [name == "The person's own model"] * 2
    # Strangers have no model of their own, so none is asked for.
    assert len(asked[0]) < len(asked[1])
    assert (asked[0] >= 0).all()
    assert len(hidden_table(attacks).rows) == 2 * len(attacks[0].hidden.rows)


def test_a_city_where_all_are_alike_tells_nothing_of_a_person() -> None:
    """A common chain of all: the model of anybody is right often, but no more often about known people.

    Five standard errors of a difference of mean shares of 100 people each, whose variance is at most 1/4.
    """
    rng = np.random.default_rng(0)
    walk = [(u, 0, i, (i + i // 12 + int(rng.random() < 0.1)) % 5) for u in range(200) for i in range(48)]
    everybody = to_traces(walk, places_in_line(5), days(4))
    made = rehearse(everybody, RehearsalSettings(), seed=0)
    (attack,) = reidentification_attacks(made.known, made.anonymized, ["ml"], DELETED)
    assert attack.hidden is not None
    assert attack.hidden.rows["Model of the person named"][2] > 0.5
    assert abs(attack.hidden.judgement.value) < 5 * math.sqrt(0.5 / 100)


def test_without_strangers_nothing_is_judged() -> None:
    made = rehearse(cyclic(30, seed=0), RehearsalSettings(stranger_share=0.0), seed=0)
    (attack,) = reidentification_attacks(made.known, made.anonymized, ["ml"], DELETED)
    assert attack.hidden is not None
    assert attack.hidden.judgement.status is Status.UNKNOWN
    assert attack.hidden.rows["Model of the person named"][0] > 0.9
    assert attack.numbers()["hidden"]["difference"] is None


def test_nothing_is_said_where_nothing_is_hidden_or_strangers_cannot_be_compared() -> None:
    made = rehearse(cyclic(30, seed=0), RehearsalSettings(), seed=0)
    for settings in (ReidentificationSettings(), ReidentificationSettings(n_deleted=5)):
        (attack,) = reidentification_attacks(made.known, made.anonymized, ["ml"], settings)
        assert attack.hidden is None
        assert "hidden" not in attack.numbers()


def test_synthetic_traces_that_are_copies_give_hidden_places_away_and_those_of_others_do_not() -> None:
    train, test, others = (cyclic(120, seed) for seed in range(3))

    def measured(released: Traces) -> tuple[list[float], float]:
        comparison = Comparison(released, train, test, 48)
        return ATTACKS["deobfuscation"].measure(comparison, NoSettings()), ATTACKS["deobfuscation"].reading(
            comparison, NoSettings()
        )[0].alarm

    (right, error_km), alarm = measured(train)
    assert right > 0.4 > alarm > 0
    assert error_km < 0
    (right, _), _ = measured(others)
    assert abs(right) < 5 * math.sqrt(0.5 / 120) < alarm + 0.3
    (right, _), _ = measured(test)
    assert right < -0.4


def test_the_attack_on_synthetic_traces_is_undefined_without_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = cyclic(4, 0), cyclic(4, 1)
    assert np.isfinite(ATTACKS["deobfuscation"].measure(Comparison(train, train, test, 48), NoSettings())).all()
    monkeypatch.setattr(deobfuscation, "MAX_PLACES", 39)
    assert np.isnan(ATTACKS["deobfuscation"].measure(Comparison(train, train, test, 48), NoSettings())).all()
    monkeypatch.undo()
    still = to_traces([(u, 0, 0, 0) for u in range(3)], train.places, train.time_grid)
    for sets in ((still, train, test), (train, train, still), (train, still, test)):
        comparison = Comparison(*sets, 48)
        assert np.isnan(ATTACKS["deobfuscation"].measure(comparison, NoSettings())).all()
    assert ATTACKS["deobfuscation"].reading(Comparison(train, train, still, 48), NoSettings())[0].alarm == math.inf
