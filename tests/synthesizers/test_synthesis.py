"""What is written once against the trace model: drawing an index, generating, model folders, new synthesizers."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from ppmtf_jax.privacy.plausible_deniability import plausible_deniability_test
from ppmtf_jax.synthesizers import registry as base
from ppmtf_jax.synthesizers.fitted_model import FittedModel, complete_places
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Synthesizer, register
from ppmtf_jax.synthesizers.sgd import SGDSettings
from ppmtf_jax.synthesizers.synthesis import fit, synthesize
from ppmtf_jax.synthesizers.uniform import UniformSettings
from ppmtf_jax.trace_models.base import TraceModel
from ppmtf_jax.trace_models.likelihoods import pairwise_log_likelihood, step_log_probabilities
from ppmtf_jax.trace_models.metropolis_hastings import MetropolisHastings
from ppmtf_jax.trace_models.sampling import sample_index

# More than one tile of users, and not a whole number of them.
USERS, PLACES, INSTANTS = 70, 6, 4
GRID = TimeGrid("2024-01-01T00:00:00", 60, np.array([0, 1, 1, 2]))
TABLE = PlaceTable(np.array(list("abcdef"), object), np.linspace(35, 36, PLACES), np.linspace(139, 140, PLACES))
IDS = np.array([f"user {n:03d}" for n in range(USERS)], object)


@pytest.fixture(scope="module")
def train():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"user": np.repeat(IDS, INSTANTS), "trace": 0, "instant": np.tile(np.arange(INSTANTS), USERS)})
    frame["place"] = TABLE.ids[rng.integers(PLACES, size=len(frame))]
    return Traces.from_frame(frame, TABLE, GRID)


def random_chains(shared: bool = True) -> MetropolisHastings:
    rng = np.random.default_rng(1)

    def factor(n_rows: int) -> jax.Array:
        return jnp.asarray(rng.normal(0.5, 0.5, (n_rows, 3)), jnp.float32)

    user, place = factor(USERS), factor(PLACES)
    visit_user, visit_place = (user, place) if shared else (factor(USERS), factor(PLACES))
    slot_of_instant = jnp.asarray(GRID.slot_of_instant)
    return MetropolisHastings(user, place, factor(PLACES), visit_user, visit_place, factor(3), slot_of_instant, 1e-3)


def fitted(system: str, trace_model: TraceModel) -> FittedModel:
    return FittedModel(system, {"rank": 3}, 7, IDS, TABLE, GRID, trace_model)


@pytest.fixture(scope="module")
def chains():
    return fitted("ppmtf", random_chains())


# Drawing an index


def index_frequencies(weight: np.ndarray, n: int) -> np.ndarray:
    uniform = (jnp.arange(n) + 0.5) / n
    drawn = np.asarray(jax.jit(jax.vmap(sample_index, (0, None)))(uniform, jnp.asarray(weight)))
    assert (np.diff(drawn) >= 0).all()
    return np.bincount(drawn, minlength=len(weight))


def weights(size: int, zeros: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    weight = rng.exponential(size=size) * (rng.random(size) >= zeros)
    weight[rng.integers(size)] = 1
    return weight


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("size", "zeros"), [(1, 0), (2, 0), (5, 0.6), (1000, 0.5), (1000, 0.99)])
def test_index_has_the_exact_probabilities(size, zeros):
    """Of n equidistant numbers, an interval of length p holds between n p - 1 and n p + 1."""
    weight, n = weights(size, zeros), 5000
    frequency = index_frequencies(weight, n)
    assert np.abs(frequency - n * weight / weight.sum()).max() < 1 + 1e-6
    assert not frequency[weight == 0].any()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10, 1000])
def test_index_never_has_weight_zero(size):
    """In single precision, at both ends of the unit interval and at every boundary between places."""
    draw = jax.jit(jax.vmap(sample_index, (0, None)))
    for seed in range(30):
        weight = weights(size, [0.3, 0.9][seed % 2], seed).astype(np.float32) * np.float32(10.0 ** (seed % 9 - 4))
        edges = (np.cumsum(weight, dtype=np.float64) / weight.sum(dtype=np.float64)).astype(np.float32)
        below, above = np.nextafter(edges, np.float32(0)), np.nextafter(edges, np.float32(2))
        uniform = np.concatenate([[0, np.nextafter(np.float32(1), np.float32(0))], edges, below, above])
        uniform = np.resize(uniform[(uniform >= 0) & (uniform < 1)], 3 * size + 2).astype(np.float32)
        drawn = np.asarray(draw(jnp.asarray(uniform), jnp.asarray(weight)))
        assert (weight[drawn] > 0).all()


# Generating


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Walk(TraceModel):
    """User u starts at place u and moves on by `stride` at every instant, by one more with a probability of its own."""

    jump: jax.Array
    stride: int = field(default=1, metadata={"static": True})

    def sample_first(self, key, user):
        return user % PLACES

    def sample_next(self, key, user, instant, place):
        jumps = jax.random.bernoulli(key, self.jump[user])
        return (place + self.stride + jumps) % PLACES

    def tables(self, users):
        return {"start": users % PLACES, "jump": self.jump[users]}

    def log_first(self, tables, place):
        return jnp.where(place == tables["start"], 0.0, -jnp.inf).astype(self.jump.dtype)

    def log_next(self, tables, instant, place, next_place):
        moved = (next_place - place - self.stride) % PLACES
        probability = jnp.where(moved == 0, 1 - tables["jump"], jnp.where(moved == 1, tables["jump"], 0))
        return jnp.log(probability)

    def to_arrays(self):
        return {"jump": np.asarray(self.jump), "stride": np.asarray(self.stride)}

    @classmethod
    def from_arrays(cls, arrays):
        return cls(jnp.asarray(arrays["jump"]), int(arrays["stride"]))


@dataclass(frozen=True)
class WalkSettings:
    stride: int = 1
    jump: float = 0.0


@pytest.fixture
def walk(monkeypatch):
    """A synthesizer that the package has never heard of."""
    monkeypatch.setattr(base, "SYNTHESIZERS", dict(SYNTHESIZERS))

    def learn(train, settings, seed, progress, checkpoints):
        return Walk(jnp.full(train.n_users, settings.jump), settings.stride)

    register("walk", Synthesizer(WalkSettings, learn, Walk))


@pytest.mark.usefixtures("walk")
def test_users_instants_and_traces_are_in_place(train):
    synthetic = synthesize(fit(train, "walk"), 3, seed=5)
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
    synthetic = synthesize(model, 2, seed=1)
    users, places = complete_places(model, synthetic)
    np.testing.assert_array_equal(users, np.repeat(np.arange(USERS), 2))
    jumps = ((np.diff(places, axis=1) - 1) % PLACES).sum(axis=1)
    log_likelihood = jumps * math.log(0.25) + (INSTANTS - 1 - jumps) * math.log(0.75)
    np.testing.assert_allclose(
        step_log_probabilities(model.trace_model, users, places).sum(axis=1), log_likelihood, rtol=1e-5
    )

    model.save(tmp_path / "model")
    again = FittedModel.load(tmp_path / "model")
    np.testing.assert_array_equal(synthesize(again, 2, seed=1).place, synthetic.place)

    # Exactly the users who start at the same place could have made a trace.
    result = plausible_deniability_test(again, synthetic, k=12, count_all=True)
    same_start = np.bincount(np.arange(USERS) % PLACES)[users % PLACES]
    np.testing.assert_array_equal(result.plausible_users, same_start)
    np.testing.assert_array_equal(result.passed, same_start >= 12)
    np.testing.assert_allclose(result.log_likelihood, log_likelihood, rtol=1e-12)


def test_traces_depend_neither_on_the_batch_nor_on_their_number(chains):
    whole = synthesize(chains, 3, seed=2)
    place = whole.place.reshape(USERS, 3, INSTANTS)
    for batch in (64, 33, 7):
        np.testing.assert_array_equal(synthesize(chains, 3, seed=2, batch_users=batch).place, whole.place)
    np.testing.assert_array_equal(synthesize(chains, 1, seed=2).place, place[:, 0].ravel())
    assert not np.array_equal(place[:, 0], place[:, 1])
    assert not np.array_equal(synthesize(chains, 3, seed=3).place, whole.place)


@pytest.mark.parametrize("wrong", [{"traces_per_user": 0}, {"batch_users": 0}])
def test_at_least_one_trace_and_user_at_a_time(chains, wrong):
    with pytest.raises(InputError, match="at least one"):
        synthesize(chains, **wrong)


# Likelihoods


def test_likelihoods_of_all_pairs_are_those_of_each_trace(chains):
    model, synthetic = chains.trace_model, synthesize(chains, 1, seed=2)
    places = synthetic.place.reshape(USERS, INSTANTS)
    pairs = pairwise_log_likelihood(model, np.arange(USERS), places[:8])
    assert pairs.shape == (8, USERS)
    for trace in range(8):
        own = step_log_probabilities(model, np.arange(USERS), np.repeat(places[trace : trace + 1], USERS, axis=0))
        np.testing.assert_allclose(pairs[trace], own.sum(axis=1), rtol=1e-5)


def test_likelihoods_do_not_depend_on_order_and_batch(chains):
    places = synthesize(chains, 2, seed=2).place.reshape(-1, INSTANTS)
    users = np.repeat(np.arange(USERS), 2)
    expected = step_log_probabilities(chains.trace_model, users, places)
    shuffled = np.random.default_rng(0).permutation(len(users))
    ours = step_log_probabilities(chains.trace_model, users[shuffled], places[shuffled])
    np.testing.assert_allclose(ours, expected[shuffled], rtol=1e-6)


# Model folders


@pytest.mark.parametrize("system", ["ppmtf", "itf", "sgd", "uniform"])
def test_a_model_folder_is_read_back_identically(tmp_path, train, system):
    if system in ("ppmtf", "itf"):
        model = fitted(system, random_chains(shared=system == "ppmtf"))
    else:
        model = fit(train, system, SGDSettings(2) if system == "sgd" else None, seed=11)
    model.save(tmp_path / "model")
    again = FittedModel.load(tmp_path / "model")
    assert (again.system, again.settings, again.seed) == (model.system, model.settings, model.seed)
    assert again.time_grid == model.time_grid
    np.testing.assert_array_equal(again.user_ids, model.user_ids)
    pd.testing.assert_frame_equal(again.places.to_frame(), model.places.to_frame())
    assert type(again.trace_model) is type(model.trace_model)
    ours, expected = again.trace_model.to_arrays(), model.trace_model.to_arrays()
    assert ours.keys() == expected.keys()
    for name, array in expected.items():
        assert ours[name].dtype == array.dtype
        np.testing.assert_array_equal(ours[name], array)
    assert ("visit_user" in expected) == (system == "itf")


def test_a_model_folder_is_replaced_only_on_request(tmp_path, train):
    model = fit(train, "uniform")
    model.save(tmp_path / "model")
    with pytest.raises(InputError, match="model"):
        model.save(tmp_path / "model")
    model.save(tmp_path / "model", overwrite=True)
    assert FittedModel.load(tmp_path / "model").n_users == USERS


@pytest.fixture
def folder(tmp_path, train):
    fit(train, "sgd").save(tmp_path / "model")
    return tmp_path / "model"


def test_missing_folder_and_files_are_named(folder, tmp_path):
    with pytest.raises(InputError, match=r"nowhere.*model\.json.*parameters\.npz"):
        FittedModel.load(tmp_path / "nowhere")
    (folder / "users.parquet").unlink()
    with pytest.raises(InputError, match=r"no users\.parquet"):
        FittedModel.load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"format": 99}, "format 99"), ({"system": "magic"}, "magic.*|sgd"), ({"format": None}, "format None")],
)
def test_another_format_or_system_is_refused(folder, change, message):
    about = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(about | change))
    with pytest.raises(InputError, match=message):
        FittedModel.load(folder)


@pytest.mark.parametrize("name", ["model.json", "time_grid.json", "users.parquet", "places.parquet", "parameters.npz"])
@pytest.mark.parametrize("content", [b"", b"damaged", b"{}"])
def test_damaged_files_are_refused(folder, name, content):
    (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=r"model|users|places|time.grid"):
        FittedModel.load(folder)


def test_parameters_of_another_system_are_refused(folder, train):
    np.savez(folder / "parameters.npz", n_places=np.asarray(3))
    with pytest.raises(InputError, match="parameters"):
        FittedModel.load(folder)


# Asking for what is not there


def test_unknown_system_lists_the_known(train):
    with pytest.raises(InputError, match=r"ppmtf.*sgd.*uniform.*'magic'"):
        fit(train, "magic")


def test_settings_of_another_system(train):
    with pytest.raises(InputError, match=r"SGDSettings for sgd.*UniformSettings"):
        fit(train, "sgd", UniformSettings())


def test_unknown_users(chains):
    np.testing.assert_array_equal(chains.user_index(IDS[[3, 1]]), [3, 1])
    with pytest.raises(InputError, match="nobody"):
        chains.user_index(np.array(["user 001", "nobody"], object))


def test_traces_that_do_not_fit_the_model_are_refused_with_every_reason(chains):
    good = synthesize(chains, 1, seed=0)
    other_grid = TimeGrid.each_instant("2024-01-01T00:00:00", 60, INSTANTS)
    frame = good.to_frame()
    with pytest.raises(InputError, match="missing events") as error:
        complete_places(chains, Traces.from_frame(frame.drop(index=[2, 9]), TABLE, GRID))
    assert "2 traces" in str(error.value)
    other_places = PlaceTable(TABLE.ids[::-1], TABLE.latitude, TABLE.longitude)
    with pytest.raises(InputError) as error:
        complete_places(chains, Traces.from_frame(frame.drop(index=2), other_places, other_grid))
    assert len(error.value.problems) == 3
    strangers = frame.assign(user=frame["user"].str.replace("user", "guest"))
    with pytest.raises(InputError, match="guest 000"):
        complete_places(chains, Traces.from_frame(strangers, TABLE, GRID))
