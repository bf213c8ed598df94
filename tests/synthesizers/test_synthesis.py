"""Fitting and synthesizing with any trace model, and new synthesizers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError, NumericalError
from ppmtf_jax.privacy.plausible_deniability import plausible_deniability_test
from ppmtf_jax.settings import Settings
from ppmtf_jax.synthesizers.fitted_model import FittedModel, complete_places
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Synthesizer
from ppmtf_jax.synthesizers.synthesis import fit, synthesize, synthesize_in_parts
from ppmtf_jax.trace_models.base import ScoredTraceModel, StoredArray, TraceModel
from ppmtf_jax.trace_models.likelihoods import step_log_probabilities
from tests.trace_models.examples import (
    GRID,
    IDS,
    INSTANTS,
    PLACES,
    TABLE,
    USERS,
)


@pytest.fixture
def train(random_train) -> Traces:
    return random_train


# Generating


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Walk(ScoredTraceModel):
    """User u starts at place u and moves on by `stride` at every instant, by one more with a probability of its own."""

    jump: jax.Array
    stride: int = field(default=1, metadata={"static": True})

    def sample_first(self, key, user):
        return user % PLACES

    def sample_next(self, key, user, instant, place):
        jumps = jax.random.bernoulli(key, self.jump[user])
        return (place + self.stride + jumps) % PLACES

    def user_cache(self, users):
        return {"start": users % PLACES, "jump": self.jump[users]}

    def log_first(self, cache, place):
        return jnp.where(place == cache["start"], 0.0, -jnp.inf).astype(self.jump.dtype)

    def log_next(self, cache, instant, place, next_place):
        moved = (next_place - place - self.stride) % PLACES
        probability = jnp.where(moved == 0, 1 - cache["jump"], jnp.where(moved == 1, cache["jump"], 0))
        return jnp.log(probability)

    def to_arrays(self):
        return {"jump": np.asarray(self.jump), "stride": np.asarray(self.stride)}

    @classmethod
    def from_arrays(cls, arrays):
        return cls(jnp.asarray(arrays["jump"]), int(arrays["stride"]))

    @classmethod
    def stored_arrays(cls, sizes):
        return {"jump": StoredArray(("users",), low=0, high=1), "stride": StoredArray((), "int", 1)}


@dataclass(frozen=True)
class WalkSettings(Settings):
    stride: int = 1
    jump: float = 0.0


@pytest.fixture
def walk():
    """A synthesizer that the package has never heard of."""

    def learn(train, settings, seed, progress, checkpoints):
        return Walk(jnp.full(train.n_users, settings.jump), settings.stride)

    SYNTHESIZERS.register(Synthesizer("walk", "Everybody walks on", WalkSettings, learn, Walk))
    yield
    SYNTHESIZERS.remove("walk")


@pytest.mark.usefixtures("walk")
def test_users_instants_and_traces_are_in_place(train):
    synthetic = synthesize(fit(train, "walk"), traces_per_user=3, seed=5)
    user, trace, instant = (index.ravel() for index in np.indices((USERS, 3, INSTANTS)))
    place = TABLE.ids[(user + instant) % PLACES]
    expected = pd.DataFrame({"user": IDS[user], "trace": trace, "instant": instant, "place": place})
    pd.testing.assert_frame_equal(synthetic.to_frame(), expected, check_dtype=False)
    assert synthetic.time_grid == GRID
    assert synthetic.places is train.places


@pytest.mark.usefixtures("walk")
def test_a_new_synthesizer_works_everywhere(train, tmp_path):
    """Fit, generate, likelihoods, folder and privacy test, with nothing but one registration."""
    model = fit(train, "walk", WalkSettings(jump=0.25), seed=3)
    assert (model.system, model.settings, model.seed) == ("walk", {"stride": 1, "jump": 0.25}, 3)
    synthetic = synthesize(model, traces_per_user=2, seed=1)
    users, places = complete_places(model, synthetic)
    np.testing.assert_array_equal(users, np.repeat(np.arange(USERS), 2))
    jumps = ((np.diff(places, axis=1) - 1) % PLACES).sum(axis=1)
    log_likelihood = jumps * math.log(0.25) + (INSTANTS - 1 - jumps) * math.log(0.75)
    np.testing.assert_allclose(
        step_log_probabilities(model.trace_model, users, places).sum(axis=1), log_likelihood, rtol=1e-5
    )

    model.save(tmp_path / "model")
    again = FittedModel.load(tmp_path / "model")
    np.testing.assert_array_equal(synthesize(again, traces_per_user=2, seed=1).place, synthetic.place)

    # Exactly the users who start at the same place could have made a trace.
    result = plausible_deniability_test(again, synthetic, k=12, count_all=True)
    same_start = np.bincount(np.arange(USERS) % PLACES)[users % PLACES]
    np.testing.assert_array_equal(result.plausible_users, same_start)
    np.testing.assert_array_equal(result.passed, same_start >= 12)
    np.testing.assert_allclose(result.log_likelihood, log_likelihood, rtol=1e-12)


def test_traces_depend_neither_on_the_batch_nor_on_their_number(chains):
    whole = synthesize(chains, traces_per_user=3, seed=2)
    place = whole.place.reshape(USERS, 3, INSTANTS)
    for batch in (64, 33, 7):
        np.testing.assert_array_equal(
            synthesize(chains, traces_per_user=3, seed=2, batch_users=batch).place, whole.place
        )
    np.testing.assert_array_equal(synthesize(chains, traces_per_user=1, seed=2).place, place[:, 0].ravel())
    assert not np.array_equal(place[:, 0], place[:, 1])
    assert not np.array_equal(synthesize(chains, traces_per_user=3, seed=3).place, whole.place)


# Sampling


def as_set(traces: Traces) -> set[tuple]:
    """User, trace number and places of each trace."""
    users, numbers = traces.trace_table()
    places = traces.place.reshape(-1, INSTANTS)
    return {(traces.user_ids[u], n, *row) for u, n, row in zip(users, numbers.tolist(), places.tolist(), strict=True)}


def test_a_sample_is_part_of_what_is_synthesized(chains):
    some = chains.sample(150, seed=2)
    assert len(as_set(some)) == 150
    most = int(some.trace.max()) + 1
    assert as_set(some) <= as_set(synthesize(chains, traces_per_user=most, seed=2))
    assert as_set(some) <= as_set(chains.sample(151, seed=2))
    assert as_set(chains.sample(150, seed=2, batch_users=7)) == as_set(some)
    assert not as_set(some) <= as_set(chains.sample(1000, seed=3))
    # Each user's traces are numbered from 0, and events are in order.
    frame = some.to_frame()
    assert (frame.groupby("user")["trace"].max() + 1).sum() == 150
    pd.testing.assert_frame_equal(frame, frame.sort_values(["user", "trace", "instant"], ignore_index=True))


def chi_square(counts: np.ndarray) -> float:
    return float(((counts - counts.mean()) ** 2 / counts.mean()).sum())


def test_users_are_drawn_at_random_with_replacement(chains):
    """Counts of users are multinomial: chi-square with 69 degrees of freedom, mean 69 and variance 138."""
    counts = np.bincount(chains.sample(20_000, seed=0).trace_table()[0], minlength=USERS)
    assert abs(chi_square(counts) - (USERS - 1)) < 5 * math.sqrt(2 * (USERS - 1))
    # The planted bugs: everybody as often, and the first of them twice as often.
    assert abs(chi_square(np.full(USERS, 20_000 / USERS)) - (USERS - 1)) > 5 * math.sqrt(2 * (USERS - 1))
    assert abs(chi_square(counts + (np.arange(USERS) < 2) * counts) - (USERS - 1)) > 5 * math.sqrt(2 * (USERS - 1))


def test_so_many_of_each_user(chains):
    of_user = np.arange(USERS) % 3
    found = chains.sample(of_user, seed=2)
    assert found.user_ids.tolist() == IDS[of_user > 0].tolist()
    np.testing.assert_array_equal(np.bincount(found.trace_table()[0]), of_user[of_user > 0])
    everything = synthesize(chains, traces_per_user=2, seed=2)
    number = everything.trace_table()[1]
    expected = everything.select_traces(number < np.repeat(of_user, 2))
    pd.testing.assert_frame_equal(found.to_frame(), expected.to_frame())


@pytest.mark.usefixtures("walk")
def test_a_sample_is_tested_like_what_is_synthesized(train, tmp_path):
    """Its users are fewer than the model's, so that their indices are others; origins say which model made them."""
    model = fit(train, "walk", jump=0.25, seed=3)
    model.sample(40, seed=2).save(tmp_path / "some")
    some = Traces.load(tmp_path / "some")
    assert some.n_users < USERS
    assert some.origin == synthesize(model, seed=2).origin
    result = plausible_deniability_test(model, some, k=12, count_all=True)
    user = np.searchsorted(IDS, result.table["user"].to_numpy())
    np.testing.assert_array_equal(result.plausible_users, np.bincount(np.arange(USERS) % PLACES)[user % PLACES])
    # The planted bug: traces of the model's first users.
    shifted = replace(some, user_ids=IDS[: some.n_users])
    with pytest.raises(NumericalError, match="impossible under their own input user"):
        plausible_deniability_test(model, shifted, k=12)


@pytest.mark.parametrize(
    "wrong",
    [0, True, np.zeros(USERS, int), np.ones(USERS - 1, int), np.ones(USERS), np.full(USERS, -1)],
    ids=str,
)
def test_at_least_one_trace_is_sampled(chains, wrong):
    with pytest.raises(InputError, match=f"a number of traces of at least 1, or {USERS} of at least 0"):
        chains.sample(wrong)
    with pytest.raises(InputError, match="at least one user"):
        synthesize(chains, batch_users=0)


# Seeds and origins


def test_seeds_are_drawn_unless_given(train):
    models = [fit(train, "uniform") for _ in range(2)]
    assert not any(model.seed_given for model in models)
    assert models[0].seed != models[1].seed
    assert min(model.seed.bit_length() for model in models) > 90
    traces = [synthesize(models[0]) for _ in range(2)]
    assert not np.array_equal(traces[0].place, traces[1].place)
    again = synthesize(models[0], seed=traces[0].origin.seed)
    np.testing.assert_array_equal(again.place, traces[0].place)
    assert (traces[0].origin.seeds_given, again.origin.seeds_given) == (False, True)


def test_no_secret_is_shown(train):
    model = fit(train, "uniform")
    synthetic = synthesize(model)
    verdicts = plausible_deniability_test(model, synthetic, k=2)
    shown = f"{model!r} {synthetic!r} {verdicts!r}"
    assert not any(user in f"{model!r} {synthetic!r}" for user in IDS)
    assert not any(str(seed) in shown for seed in (model.seed, synthetic.origin.seed, verdicts.seed.value))


@pytest.mark.usefixtures("walk")
def test_traces_know_the_model_that_made_them(train, tmp_path):
    model, other = (fit(train, "walk", jump=jump, seed=3) for jump in (0.25, 0.5))
    synthetic = synthesize(model, seed=1)
    assert synthetic.origin.model == model.checksum != other.checksum
    with pytest.raises(InputError, match="traces made by the model; found those of another one"):
        plausible_deniability_test(other, synthetic)
    same_system_other_seed = fit(train, "walk", jump=0.25, seed=4)
    with pytest.raises(InputError, match="those of another one"):
        plausible_deniability_test(same_system_other_seed, synthetic)
    with pytest.raises(InputError, match="traces made by the model; found others"):
        plausible_deniability_test(model, Traces.from_frame(synthetic.to_frame(), TABLE, GRID))
    assert plausible_deniability_test(model, synthetic.select_traces(np.arange(USERS) < 9), k=1).passed.all()

    synthetic.save(tmp_path / "synthetic")
    loaded = Traces.load(tmp_path / "synthetic")
    assert loaded.origin == synthetic.origin
    assert plausible_deniability_test(model, loaded, k=1).passed.all()
    frame = pd.read_parquet(tmp_path / "synthetic" / "traces.parquet")
    frame.loc[0, "place"] = TABLE.ids[3]
    frame.to_parquet(tmp_path / "synthetic" / "traces.parquet")
    with pytest.raises(InputError, match=r"traces as they were written; found others\. Synthesize them again"):
        Traces.load(tmp_path / "synthetic")


# Asking for what is not there


# Synthesizers that do not fit


@dataclass(frozen=True)
class Plain(TraceModel):
    """A model that JAX does not know."""

    def sample_trace(self, key, user, n_instants):
        return jnp.zeros(n_instants, jnp.int32)

    def to_arrays(self):
        return {}

    @classmethod
    def from_arrays(cls, arrays):
        return cls()

    @classmethod
    def stored_arrays(cls, sizes):
        return {}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Unstored(TraceModel):
    """A model with a field that nothing stores."""

    place: int

    def sample_trace(self, key, user, n_instants):
        return jnp.full(n_instants, self.place)


@pytest.mark.parametrize(
    ("registered", "given", "message"),
    [
        (Unstored, Unstored(1), "expected a trace model whose fields are stored; found place of Unstored.*by `stored`"),
        (Plain, Plain(), "expected a trace model that is a JAX pytree.*class Plain with @jax.tree_util"),
        (Walk, Plain(), "expected fit to return a Walk .*; found Plain"),
    ],
)
def test_what_could_not_be_sampled_or_loaded_is_refused_after_the_fit(train, registered, given, message):
    SYNTHESIZERS.register(Synthesizer("own", "Own", WalkSettings, lambda *_: given, registered))
    try:
        with pytest.raises(InputError, match=message):
            fit(train, "own")
    finally:
        SYNTHESIZERS.remove("own")


@pytest.mark.parametrize("kind", [int, type("Undecorated", (Settings,), {})])
def test_settings_of_a_synthesizer_check_themselves(kind):
    expected = f"system 'own': expected a class of settings; found {kind.__name__}. Make it a frozen dataclass"
    with pytest.raises(InputError, match=expected):
        SYNTHESIZERS.register(Synthesizer("own", "Own", kind, lambda *_: None, Walk))


@pytest.mark.parametrize("n_users", [1, 7, 64, 100])
def test_parts_are_the_traces_of_all_users(n_users):
    """Also if a part begins within a tile of users, or has no user at all."""
    model = fit(toy_city(90, n_places=10, n_days=1, seed=0).traces, "sgd", seed=0)
    whole = synthesize(model, traces_per_user=2, seed=1)
    parts = [part.made() for part in synthesize_in_parts(model, n_users=n_users, traces_per_user=2, seed=1)]
    assert len(parts) == -(-90 // n_users)
    for name in ("place", "instant", "trace"):
        np.testing.assert_array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name))
    ids = np.concatenate([part.user_ids[part.user] for part in parts])
    np.testing.assert_array_equal(ids, whole.user_ids[whole.user])
    assert {part.origin for part in parts} == {whole.origin}
    some = np.zeros(90, int)
    some[[3, 70]] = 2
    assert sum(part.made().n_users for part in model.sample_in_parts(some, n_users=n_users, seed=1)) == 2
