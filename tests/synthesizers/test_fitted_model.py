"""Model folders, and what traces have to be for a model."""

from __future__ import annotations

import importlib
import io
import json
import sys
import tracemalloc
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from ppmtf_jax.runtime.folders import MARKER, checksum
from ppmtf_jax.synthesizers.fitted_model import FittedModel, complete_places
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS
from ppmtf_jax.synthesizers.synthesis import fit, synthesize
from ppmtf_jax.synthesizers.systems.sgd import SGDSettings
from tests.machine import with_gigabytes
from tests.trace_models.examples import (
    GRID,
    IDS,
    INSTANTS,
    PLACES,
    TABLE,
    USERS,
    fitted,
    random_chains,
)


@pytest.fixture
def train(random_train) -> Traces:
    return random_train


@pytest.mark.parametrize("system", ["ppmtf", "itf", "sgd", "uniform", "tpm", "training"])
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


@pytest.fixture
def folder(tmp_path, train):
    fit(train, "sgd").save(tmp_path / "model")
    return tmp_path / "model"


def mark_anew(folder: Path) -> None:
    """As if the files had been written so: checksums say nothing then."""
    marker = json.loads((folder / MARKER).read_text())
    marker["files"] = {name: checksum(folder / name) for name in marker["files"]}
    (folder / MARKER).write_text(json.dumps(marker))


def change_parameters(folder: Path, change: dict[str, np.ndarray | None]) -> None:
    """Replace stored arrays, or remove those that are None, with checksums to match."""
    with np.load(folder / "parameters.npz") as stored:
        arrays = dict(stored) | change
    np.savez(folder / "parameters.npz", **{name: value for name, value in arrays.items() if value is not None})
    mark_anew(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"user": np.full((USERS, 3), np.nan)}, rf"finite numbers in 'user'; .*\({USERS * 3} rows\), first: nan"),
        ({"user": np.zeros((USERS - 1, 3))}, rf"'user' of shape \({USERS}, 3\); found \({USERS - 1}, 3\)"),
        ({"slot": np.zeros((3, 4))}, "factors of the visits of different rank"),
        ({"slot_of_instant": np.array([0, 1, 1, 3])}, "'slot_of_instant' from 0 to 2"),
        ({"user": np.zeros((USERS, 3), int)}, "'user' of float numbers; found int64"),
        ({"more": np.zeros(3)}, "expected arrays chains, chosen, floor, .*found floor, more"),
        ({"floor": None}, "expected arrays chains, chosen, floor, "),
    ],
)
def test_parameters_that_do_not_fit_are_refused(tmp_path, change, message):
    """What JAX would clamp or spread without a word, though the files are as they were written."""
    fitted("ppmtf", random_chains()).save(tmp_path / "model")
    change_parameters(tmp_path / "model", change)
    with pytest.raises(InputError, match=message):
        FittedModel.load(tmp_path / "model")


def in_a_zip(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def stored(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def claims(shape: str, rest: bytes = b"") -> bytes:
    """A stored array of a header of any shape."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + rest


MEGABYTES = 8
ZEROS = stored(np.zeros(MEGABYTES * 2**17))
HARM = {
    "another name, compressed": ({"more.npy": ZEROS}, "found more"),
    "one name twice": ({"user": ZEROS, "user.npy": ZEROS}, "expected arrays chains, chosen, floor"),
    "compressed": ({"user.npy": ZEROS}, "arrays as NumPy stores them, uncompressed; found 'user'"),
    "more than there is": (
        {"user.npy": claims("(1000000000000,)")},
        "8000000000.* bytes of 'user', as its header says",
    ),
    "less than there is": ({"user.npy": claims("(1,)", ZEROS)}, "bytes of 'user', as its header says; found"),
    "deep shape": ({"user.npy": claims("[" * 5000)}, "parameters of"),
}


@pytest.mark.parametrize("kind", HARM)
def test_arrays_that_would_do_harm_are_refused_before_they_are_read(tmp_path, kind):
    """A few kilobytes in place of the parameters may stand for gigabytes: nothing is read of what does not belong."""
    fitted("ppmtf", random_chains()).save(tmp_path / "model")
    members, message = HARM[kind]
    in_a_zip(
        tmp_path / "model" / "parameters.npz", members, zipfile.ZIP_DEFLATED if "compr" in kind else zipfile.ZIP_STORED
    )
    mark_anew(tmp_path / "model")
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=message):
            FittedModel.load(tmp_path / "model")
        # Python and NumPy tell what they allocate.
        assert tracemalloc.get_traced_memory()[1] < MEGABYTES * 2**20 / 4
    finally:
        tracemalloc.stop()


def test_a_table_of_more_rows_than_fit_is_refused_before_it_is_read(tmp_path, monkeypatch):
    """Parquet writes a million equal ids in a few bytes."""
    fitted("ppmtf", random_chains()).save(tmp_path / "model")
    users = tmp_path / "model" / "users.parquet"
    pd.DataFrame({"user": np.zeros(10**6, int)}).to_parquet(users)
    assert users.stat().st_size < 10_000
    mark_anew(tmp_path / "model")
    with_gigabytes(monkeypatch, 0.007)
    with pytest.raises(InputError, match=r"users\.parquet: expected 0\.0 GB of memory"):
        FittedModel.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"copied": np.full((USERS, 1), PLACES)}, "'copied' from -1 to 5"),
        ({"first_count_before": np.arange(PLACES + 1)[::-1]}, "numbers in 'first_count_before' that do not fall"),
        ({"row_start": np.full(3 * PLACES + 1, 10**6)}, "rows that end beyond the last transition"),
    ],
)
def test_counts_that_do_not_fit_are_refused(tmp_path, train, change, message):
    fit(train, "sgd", n_copied=1).save(tmp_path / "model")
    change_parameters(tmp_path / "model", change)
    with pytest.raises(InputError, match=message):
        FittedModel.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("users", "message"),
    [
        ([*IDS[:-1], IDS[0]], r"every user once; found repeated ids \(1 row\), first: user 000"),
        (IDS[:-1], rf"'user' of shape \({USERS - 1}, "),
        ([], "at least one id"),
    ],
)
def test_users_that_do_not_fit_are_refused(tmp_path, users, message):
    fitted("ppmtf", random_chains()).save(tmp_path / "model")
    pd.DataFrame({"user": users}).to_parquet(tmp_path / "model" / "users.parquet")
    mark_anew(tmp_path / "model")
    with pytest.raises(InputError, match=message):
        FittedModel.load(tmp_path / "model")


def test_a_checksum_is_that_of_everything_that_decides(chains):
    def changed(**fields) -> str:
        return replace(chains, **fields).checksum

    factors = chains.trace_model
    others = [
        changed(seed=8),
        changed(system="itf"),
        changed(settings={"rank": 4}),
        changed(user_ids=IDS[::-1]),
        changed(places=PlaceTable(TABLE.ids[::-1], TABLE.latitude, TABLE.longitude)),
        changed(time_grid=TimeGrid("2024-01-02T00:00:00", 60, GRID.slot_of_instant)),
        changed(trace_model=replace(factors, next_place=factors.next_place.at[3, 1].add(1e-3))),
    ]
    assert len({chains.checksum, *others}) == len(others) + 1
    assert changed() == chains.checksum


# What a person sees


@pytest.mark.parametrize("system", ["sgd", "tpm", "training", "uniform"])
def test_every_model_is_shown_briefly_and_without_ids(train, system):
    model = fit(train, system, seed=987_654_321_123)
    shown = repr(model)
    assert len(shown.splitlines()) <= 10
    assert max(map(len, shown.splitlines())) < 80
    assert not any(text in shown for text in (*IDS, str(model.seed), "array", "Array"))
    assert ("leaks     EVERYTHING" in shown) == (system == "training")


def test_missing_folder_and_files_are_named(folder, tmp_path):
    with pytest.raises(InputError, match=r"nowhere.*no such folder"):
        FittedModel.load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty.*model\.json.*parameters\.npz"):
        FittedModel.load(tmp_path / "empty")
    (folder / "users.parquet").unlink()
    with pytest.raises(InputError, match=r"no users\.parquet"):
        FittedModel.load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, "format 99"),
        ({"format": 3}, "a model of format 4; found format 3"),
        ({"system": "magic"}, "magic.*|sgd"),
        ({"format": None}, "format None"),
        ({"seed_given": None}, "seed_given as true or false"),
    ],
)
def test_another_format_or_system_is_refused(folder, change, message):
    about = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(about | change))
    with pytest.raises(InputError, match=r"model\.json changed"):
        FittedModel.load(folder)
    mark_anew(folder)
    with pytest.raises(InputError, match=message):
        FittedModel.load(folder)


@pytest.mark.parametrize("name", ["model.json", "time_grid.json", "users.parquet", "places.parquet", "parameters.npz"])
def test_damaged_files_are_refused(folder, name):
    (folder / name).write_bytes(b"{}")
    with pytest.raises(InputError, match=r"model|users|places|time.grid"):
        FittedModel.load(folder)


def test_unknown_users(chains):
    np.testing.assert_array_equal(chains.user_index(IDS[[3, 1]]), [3, 1])
    with pytest.raises(InputError, match="nobody"):
        chains.user_index(np.array(["user 001", "nobody"], object))


def test_traces_that_do_not_fit_the_model_are_refused_with_every_reason(chains):
    good = synthesize(chains, traces_per_user=1, seed=0)
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


# Synthesizers of somebody else

SCRIPT = """
import sys
from dataclasses import dataclass
import jax, jax.numpy as jnp, numpy as np
from ppmtf_jax import FittedModel, fit, toy_city
from ppmtf_jax.settings import Settings
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Synthesizer
from ppmtf_jax.trace_models.base import StoredArray, TraceModel

@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Stay(TraceModel):
    place: jax.Array

    def sample_trace(self, key, user, n_instants):
        return jnp.full(n_instants, self.place[user])

    def to_arrays(self):
        return {"place": np.asarray(self.place)}

    @classmethod
    def from_arrays(cls, arrays):
        return cls(jnp.asarray(arrays["place"]))

    @classmethod
    def stored_arrays(cls, sizes):
        return {"place": StoredArray((sizes.users,), "int", 0, sizes.places - 1)}

@dataclass(frozen=True)
class StaySettings(Settings):
    pass

def learn(train, settings, seed, progress, checkpoints):
    first = np.unique(train.user, return_index=True)[1]
    return Stay(jnp.asarray(train.place[first]))

SYNTHESIZERS.register(Synthesizer("stay", "Everybody stays", StaySettings, learn, Stay))
if __name__ == "__main__":
    fit(toy_city(n_users=5, n_days=1, seed=0).traces, "stay", seed=0).save(sys.argv[1])
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch) -> Iterator[ModuleType]:
    """The script as a module, which registers its synthesizer when it is imported."""
    (tmp_path / "own_module.py").write_text(SCRIPT)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("own_module")
    if "stay" in SYNTHESIZERS:
        SYNTHESIZERS.remove("stay")
    del sys.modules["own_module"]


def test_a_model_of_a_script_is_loaded_once_the_script_is_imported(tmp_path, monkeypatch):
    """It was learned by the script as a program, whose classes are of the module `__main__`."""
    script = tmp_path / "own_script.py"
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path / "model")])
    exec(compile(SCRIPT, script, "exec"), {"__name__": "__main__"})
    SYNTHESIZERS.remove("stay")
    with pytest.raises(InputError, match=r"found 'stay'\. Import or run the script or notebook that registers it"):
        FittedModel.load(tmp_path / "model")
    try:
        exec(compile(SCRIPT, script, "exec"), {"__name__": "own_script"})
        model = FittedModel.load(tmp_path / "model")
        places = model.sample(7, seed=0).place.reshape(7, -1)
        np.testing.assert_array_equal(places, np.repeat(places[:, :1], places.shape[1], axis=1))
    finally:
        SYNTHESIZERS.remove("stay")


def test_a_model_of_a_module_names_it(tmp_path, train, own_module):
    """Nothing is imported because a folder says so."""
    fit(train, "stay", seed=0).save(tmp_path / "model")
    assert type(FittedModel.load(tmp_path / "model").trace_model) is own_module.Stay
    SYNTHESIZERS.remove("stay")
    with pytest.raises(InputError, match=r"found 'stay'\. Import or run module own_module, which registers it"):
        FittedModel.load(tmp_path / "model")
