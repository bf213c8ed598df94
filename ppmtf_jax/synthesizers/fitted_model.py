"""A trace model with what its indices mean, and the folder that holds one."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.trace_set import read_parquet
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem, first_examples
from ppmtf_jax.runtime.files import atomic_folder, write_text
from ppmtf_jax.synthesizers.registry import synthesizer_named
from ppmtf_jax.trace_models.base import TraceModel

MODEL_FORMAT = 1
MODEL_FILES = ("time_grid.json", "users.parquet", "places.parquet", "parameters.npz")


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A trace model together with what its indices mean. `fit` makes one; a model folder holds one.

    Parameters
    ----------
    system : str
        Name of the synthesizer.
    settings : dict
    seed : int
    user_ids : array, shape (users,)
    places : PlaceTable
    time_grid : TimeGrid
        Grid of one synthetic trace: one period of the training grid.
    trace_model : TraceModel
    """

    system: str
    settings: dict[str, Any]
    seed: int
    user_ids: np.ndarray
    places: PlaceTable
    time_grid: TimeGrid
    trace_model: TraceModel

    @property
    def n_users(self) -> int:
        return len(self.user_ids)

    def user_index(self, ids: np.ndarray) -> np.ndarray:
        """Index of each user id; unknown users are an `InputError`."""
        index = pd.Index(self.user_ids).get_indexer(pd.Index(ids))
        if (index < 0).any():
            unknown = np.asarray(ids)[index < 0]
            problem = Problem("users that the model was trained on", "others", 0, first_examples(unknown.tolist()))
            raise InputError("users", [problem])
        return index

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write a model folder. It holds the parameters, which no privacy test covers: keep it secret."""
        about = {"format": MODEL_FORMAT, "system": self.system, "settings": self.settings, "seed": self.seed}
        with atomic_folder(folder, overwrite=overwrite) as partial_folder:
            write_text(partial_folder / "time_grid.json", self.time_grid.to_json())
            pd.DataFrame({"user": self.user_ids}).to_parquet(partial_folder / "users.parquet", index=False)
            self.places.to_frame().to_parquet(partial_folder / "places.parquet", index=False)
            np.savez(partial_folder / "parameters.npz", **self.trace_model.to_arrays())  # type: ignore[arg-type]
            about["checksums"] = {name: _checksum(partial_folder / name) for name in MODEL_FILES}
            write_text(partial_folder / "model.json", json.dumps(about, indent=1) + "\n")

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> FittedModel:
        """Read a model folder; what is missing, damaged or of another format is an `InputError`."""
        folder = Path(folder)
        absent = [name for name in ("model.json", *MODEL_FILES) if not (folder / name).is_file()]
        if absent:
            problem = Problem("a model folder", f"no {', '.join(absent)}", way_out="Make one with `ppmtf fit`")
            raise InputError(str(folder), [problem])
        about = _read_about(folder / "model.json")
        # A factor with rows missing would not fail: an index out of range is clamped.
        changed = [name for name in MODEL_FILES if _checksum(folder / name) != about["checksums"].get(name)]
        if changed:
            problem = Problem("the files as they were saved", f"{', '.join(changed)} changed", way_out="Fit it again")
            raise InputError(str(folder), [problem])
        return cls(
            about["system"],
            about["settings"],
            about["seed"],
            read_parquet(folder / "users.parquet")["user"].to_numpy(),
            PlaceTable.from_frame(read_parquet(folder / "places.parquet")),
            TimeGrid.load(folder / "time_grid.json"),
            _read_parameters(folder / "parameters.npz", synthesizer_named(about["system"]).model),
        )


def _read_about(file: Path) -> dict[str, Any]:
    way_out = "Fit the model again"
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        found = about.get("format")
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(str(file), [Problem("a readable model.json", str(error), way_out=way_out)]) from error
    if found != MODEL_FORMAT:
        raise InputError(str(file), [Problem(f"a model of format {MODEL_FORMAT}", f"format {found}", way_out=way_out)])
    absent = [name for name in ("system", "settings", "seed", "checksums") if name not in about]
    if absent:
        raise InputError(str(file), [Problem("all of a model.json", f"no {', '.join(absent)}", way_out=way_out)])
    return about


def _checksum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read_parameters(path: Path, model: type[TraceModel]) -> TraceModel:
    try:
        # Opened here: NumPy leaves a damaged file open.
        with open(path, "rb") as file, np.load(file) as stored:
            return model.from_arrays(dict(stored))
    except (OSError, EOFError, ValueError, TypeError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(str(path), [Problem(f"parameters of {model.__name__}", str(error))]) from error


def complete_places(model: FittedModel, traces: Traces) -> tuple[np.ndarray, np.ndarray]:
    """User index (in the model) and places of traces that have an event at every instant of the model's grid.

    Returns
    -------
    users : int array, shape (traces,)
    places : int array, shape (traces, instants)

    Raises
    ------
    InputError
        Another grid or place table, users that the model does not know, or traces with missing events, whose
        likelihood is not a product of steps.
    """
    problems = []
    if traces.time_grid != model.time_grid:
        problems.append(Problem("traces on the model's time grid", "another time grid"))
    if not np.array_equal(traces.places.ids, model.places.ids):
        problems.append(Problem("traces over the model's places", "another place table"))
    events = np.bincount(traces.trace_of_event())
    if (events != model.time_grid.n_instants).any():
        n_short = int((events != model.time_grid.n_instants).sum())
        problems.append(Problem("an event at every instant", f"{n_short} traces with missing events"))
    if problems:
        raise InputError("synthetic traces", problems)
    users = model.user_index(traces.user_ids)[traces.trace_table()[0]]
    return users, traces.place.reshape(-1, model.time_grid.n_instants)
