"""Writing the folder of a fitted model, and reading and checking it."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import pandas as pd

from ppmtf_jax.data.description import counted
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.trace_set import read_parquet, write_table
from ppmtf_jax.errors import InputError, Problem, raise_any, row_problems
from ppmtf_jax.runtime.files import PathLike, write_text
from ppmtf_jax.runtime.folders import MODEL, Paths, marked, output_folder, read_arrays
from ppmtf_jax.streams import check_seed
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS
from ppmtf_jax.trace_models.base import Sizes, TraceModel, array_problems

MODEL_FORMAT = 4
ABOUT_FILE, GRID_FILE, PARAMETERS_FILE = "model.json", "time_grid.json", "parameters.npz"
USERS_FILE, PLACES_FILE = "users.parquet", "places.parquet"
ABOUT = ("system", "settings", "seed", "seed_given", "learned_from", "users_per_place")
MODEL_FILES = (ABOUT_FILE, GRID_FILE, USERS_FILE, PLACES_FILE, PARAMETERS_FILE)
PACKAGE = __name__.partition(".")[0]
WAY_OUT = "Fit the model again"


def write_model(fields: Mapping[str, Any], folder: PathLike, *, overwrite: bool = False, inputs: Paths = ()) -> None:
    """Write the fields of a `FittedModel` to a model folder, see `FittedModel.save`."""
    system, per_place = fields["system"], fields["users_per_place"]
    # Name of the module that registers the synthesizer: a module outside the package, or the package.
    kinds = [type(fields["trace_model"]), *([SYNTHESIZERS[system].settings] if system in SYNTHESIZERS else [])]
    outside = [kind.__module__ for kind in reversed(kinds) if kind.__module__.partition(".")[0] != PACKAGE]
    about = {"format": MODEL_FORMAT, "system": system, "module": next(iter(outside), PACKAGE)}
    about |= {name: fields[name] for name in ABOUT} | {"trace_model": type(fields["trace_model"]).__name__}
    about["users_per_place"] = None if per_place is None else per_place.tolist()
    with output_folder(folder, MODEL, overwrite=overwrite, inputs=inputs) as partial:
        write_text(partial / GRID_FILE, fields["time_grid"].to_json())
        write_table(partial / USERS_FILE, pd.DataFrame({"user": fields["user_ids"]}))
        write_table(partial / PLACES_FILE, fields["places"].to_frame())
        np.savez(partial / PARAMETERS_FILE, **fields["trace_model"].to_arrays())  # type: ignore[arg-type]
        write_text(partial / ABOUT_FILE, json.dumps(about, indent=1) + "\n")


def read_model(folder: Path) -> dict[str, Any]:
    """Read a model folder: the fields of a `FittedModel`; see `FittedModel.load` for the errors."""
    if absent := [name for name in MODEL_FILES if not (folder / name).is_file()]:
        found = f"no {', '.join(absent)}" if folder.is_dir() else "no such folder"
        raise _refusal(folder, "a model folder", found, "Make one with `ppmtf fit`")
    marked(folder, MODEL, way_out=WAY_OUT)
    about = _read_about(folder / ABOUT_FILE)
    kinds, name = SYNTHESIZERS[about["system"]].models, about["trace_model"]
    if name not in kinds:
        raise _refusal(folder / ABOUT_FILE, f"a trace model among {', '.join(kinds)}", repr(name))
    kind = kinds[name]
    user_ids = _read_users(folder / USERS_FILE, kind.of_nobody)
    places = PlaceTable.from_frame(read_parquet(folder / PLACES_FILE), may_lack_coordinates=True)
    time_grid = TimeGrid.load(folder / GRID_FILE)
    sizes = Sizes(len(user_ids), len(places), time_grid.n_slots, time_grid.n_instants)
    if (per_place := about["users_per_place"]) is not None:
        per_place = np.asarray(per_place)
        is_count = per_place.shape == (sizes.places,) and per_place.dtype.kind == "i"
        if not is_count or per_place.min() < 0 or per_place.max() > sizes.users:
            expected = f"users_per_place with {sizes.places} numbers of users, up to {sizes.users}"
            raise _refusal(folder / ABOUT_FILE, expected, "something else")
    return {name: about[name] for name in ABOUT} | {
        "seed": check_seed(about["seed"]),
        "learned_from": str(about["learned_from"]),
        "users_per_place": per_place,
        "user_ids": user_ids,
        "places": places,
        "time_grid": time_grid,
        "trace_model": _read_parameters(folder / PARAMETERS_FILE, kind, sizes),
    }


def _refusal(file: Path, expected: str, found: str, way_out: str = WAY_OUT) -> InputError:
    return InputError(str(file), [Problem(expected, found, way_out=way_out)])


def _read_about(file: Path) -> dict[str, Any]:
    """What is stored of a model beside its tables; refuses a synthesizer that is not registered.

    The module that registers an unknown synthesizer is not imported here, since a module can run any code.
    """
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        found = about.get("format")
    except (OSError, ValueError, AttributeError) as error:
        raise _refusal(file, "a readable model.json", str(error)) from error
    if found != MODEL_FORMAT:
        raise _refusal(file, f"a model of format {MODEL_FORMAT}", f"format {found}")
    if absent := [name for name in (*ABOUT, "module", "trace_model") if name not in about]:
        raise _refusal(file, "all of a model.json", f"no {', '.join(absent)}")
    if not isinstance(about["seed_given"], bool):
        raise _refusal(file, "seed_given as true or false", repr(about["seed_given"]))
    system, module = about["system"], about["module"]
    if not isinstance(system, str) or system not in SYNTHESIZERS:
        unnamed = {PACKAGE: "the module that registers it", "__main__": "the script or notebook that registers it"}
        what = unnamed.get(module, f"module {module}, which registers it")
        way_out = f"Import or run {what}, before the model is loaded"
        raise _refusal(file, f"a synthesizer among {', '.join(SYNTHESIZERS)}", repr(system), way_out)
    return about


def _read_users(file: Path, of_nobody: bool) -> np.ndarray:
    table = read_parquet(file)
    if list(table) != ["user"] or of_nobody == bool(len(table)):
        expected = f"a column 'user' with {'no' if of_nobody else 'at least one'} id"
        raise _refusal(file, expected, f"{', '.join(map(str, table))}; {counted(len(table), 'id')}", "")
    repeated = table["user"].duplicated()
    problems = row_problems(repeated, "every user once", "repeated ids", values=table["user"], way_out=WAY_OUT)
    raise_any(str(file), problems)
    return table["user"].to_numpy()


def _read_parameters(path: Path, model: type[TraceModel], sizes: Sizes) -> TraceModel:
    try:
        expected = model.stored_arrays(sizes)
        arrays = read_arrays(path, expected)
        raise_any(str(path), array_problems(arrays, expected, sizes))
        return model.from_arrays(arrays)
    except InputError:
        raise
    except (OSError, EOFError, ValueError, TypeError, KeyError, zipfile.BadZipFile, TokenError) as error:
        raise _refusal(path, f"parameters of {model.__name__}", str(error), "") from error
