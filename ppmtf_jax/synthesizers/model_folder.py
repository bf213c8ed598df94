"""The folder of a fitted model: what is written, and the checks when it is read."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import pandas as pd

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.trace_set import read_parquet, write_table
from ppmtf_jax.errors import InputError, Problem, first_examples
from ppmtf_jax.runtime.arrays import read_arrays
from ppmtf_jax.runtime.files import PathLike, write_text
from ppmtf_jax.runtime.folders import Paths, marked, output_folder
from ppmtf_jax.runtime.lineage import MODEL
from ppmtf_jax.streams import check_seed
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Synthesizer
from ppmtf_jax.trace_models.base import Sizes, TraceModel, array_problems

MODEL_FORMAT = 3
ABOUT_FILE, GRID_FILE, PARAMETERS_FILE = "model.json", "time_grid.json", "parameters.npz"
USERS_FILE, PLACES_FILE = "users.parquet", "places.parquet"
ABOUT = ("system", "settings", "seed", "seed_given", "learned_from", "users_per_place")
MODEL_FILES = (ABOUT_FILE, GRID_FILE, USERS_FILE, PLACES_FILE, PARAMETERS_FILE)
PACKAGE = __name__.partition(".")[0]
WAY_OUT = "Fit the model again"


def write_model(fields: Mapping[str, Any], folder: PathLike, *, overwrite: bool = False, inputs: Paths = ()) -> None:
    """Write the fields of a `FittedModel` to a model folder, see `FittedModel.save`."""
    per_place = fields["users_per_place"]
    about = {
        "format": MODEL_FORMAT,
        "system": fields["system"],
        "module": _module_of(fields["system"], fields["trace_model"]),
        "settings": fields["settings"],
        "seed": fields["seed"],
        "seed_given": fields["seed_given"],
        "learned_from": fields["learned_from"],
        "users_per_place": None if per_place is None else per_place.tolist(),
    }
    with output_folder(folder, MODEL, overwrite=overwrite, inputs=inputs) as partial:
        write_text(partial / GRID_FILE, fields["time_grid"].to_json())
        write_table(partial / USERS_FILE, pd.DataFrame({"user": fields["user_ids"]}))
        write_table(partial / PLACES_FILE, fields["places"].to_frame())
        np.savez(partial / PARAMETERS_FILE, **fields["trace_model"].to_arrays())  # type: ignore[arg-type]
        write_text(partial / ABOUT_FILE, json.dumps(about, indent=1) + "\n")


def _module_of(system: str, trace_model: TraceModel) -> str:
    """The module that registers the synthesizer: one outside of the package, or the package."""
    kinds: list[type] = [SYNTHESIZERS[system].settings] if system in SYNTHESIZERS else []
    modules = [kind.__module__ for kind in (*kinds, type(trace_model))]
    return next((module for module in modules if module.partition(".")[0] != PACKAGE), PACKAGE)


def read_model(folder: Path) -> dict[str, Any]:
    """Read a model folder: the fields of a `FittedModel`; see `FittedModel.load` for the errors."""
    absent = [name for name in MODEL_FILES if not (folder / name).is_file()]
    if absent:
        problem = Problem("a model folder", f"no {', '.join(absent)}", way_out="Make one with `ppmtf fit`")
        raise InputError(str(folder), [problem])
    marked(folder, MODEL, way_out=WAY_OUT)
    about = _read_about(folder / ABOUT_FILE)
    user_ids = _read_users(folder / USERS_FILE)
    places = PlaceTable.from_frame(read_parquet(folder / PLACES_FILE), may_lack_coordinates=True)
    time_grid = TimeGrid.load(folder / GRID_FILE)
    sizes = Sizes(len(user_ids), len(places), time_grid.n_slots, time_grid.n_instants)
    model = _synthesizer_of(about, folder / ABOUT_FILE).model
    trace_model = _read_parameters(folder / PARAMETERS_FILE, model, sizes)
    users_per_place = _read_users_per_place(about["users_per_place"], sizes, folder / ABOUT_FILE)
    checked = {"seed": check_seed(about["seed"]), "learned_from": str(about["learned_from"])}
    read = {"user_ids": user_ids, "places": places, "time_grid": time_grid, "trace_model": trace_model}
    return {name: about[name] for name in ABOUT} | checked | read | {"users_per_place": users_per_place}


def _read_about(file: Path) -> dict[str, Any]:
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        found = about.get("format")
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(str(file), [Problem("a readable model.json", str(error), way_out=WAY_OUT)]) from error
    if found != MODEL_FORMAT:
        raise InputError(str(file), [Problem(f"a model of format {MODEL_FORMAT}", f"format {found}", way_out=WAY_OUT)])
    absent = [name for name in ABOUT if name not in about]
    if absent:
        raise InputError(str(file), [Problem("all of a model.json", f"no {', '.join(absent)}", way_out=WAY_OUT)])
    return about


def _synthesizer_of(about: dict[str, Any], file: Path) -> Synthesizer:
    """The registered synthesizer of a model. Its module is not imported here, since it could run any code."""
    system, module = about["system"], about.get("module", PACKAGE)
    if isinstance(system, str) and system in SYNTHESIZERS:
        return SYNTHESIZERS[system]
    unnamed = {PACKAGE: "the module that registers it", "__main__": "the script or notebook that registers it"}
    what = unnamed.get(module, f"module {module}, which registers it")
    way_out = f"Import or run {what}, before the model is loaded"
    known = ", ".join(SYNTHESIZERS)
    raise InputError(str(file), [Problem(f"a synthesizer among {known}", repr(system), way_out=way_out)])


def _read_users(file: Path) -> np.ndarray:
    table = read_parquet(file)
    if list(table) != ["user"] or not len(table):
        raise InputError(str(file), [Problem("a column 'user' with at least one id", ", ".join(map(str, table)))])
    repeated = table["user"].duplicated()
    if repeated.any():
        examples = first_examples(table.loc[repeated, "user"].tolist())
        problem = Problem("every user once", "repeated ids", int(repeated.sum()), examples, WAY_OUT)
        raise InputError(str(file), [problem])
    return table["user"].to_numpy()


def _read_users_per_place(numbers: object, sizes: Sizes, file: Path) -> np.ndarray | None:
    if numbers is None:
        return None
    found = np.asarray(numbers)
    if found.shape != (sizes.places,) or found.dtype.kind != "i" or found.min() < 0 or found.max() > sizes.users:
        expected = f"users_per_place with {sizes.places} numbers of users, up to {sizes.users}"
        raise InputError(str(file), [Problem(expected, "something else", way_out=WAY_OUT)])
    return found


def _read_parameters(path: Path, model: type[TraceModel], sizes: Sizes) -> TraceModel:
    try:
        expected = model.stored_arrays(sizes)
        arrays = read_arrays(path, expected)
        problems = array_problems(arrays, expected, sizes)
        if problems:
            raise InputError(str(path), problems)
        return model.from_arrays(arrays)
    except InputError:
        raise
    except (OSError, EOFError, ValueError, TypeError, KeyError, zipfile.BadZipFile, TokenError) as error:
        raise InputError(str(path), [Problem(f"parameters of {model.__name__}", str(error))]) from error
