"""The files of the official PPMTF release for the SNS-based People Flow Data (Tokyo)."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.ids import whole_numbers
from ppmtf_jax.datasets.registry import DATA_SETS, DataSet
from ppmtf_jax.datasets.summary import Imported
from ppmtf_jax.errors import InputError, Problem, first_examples, missing_columns, quoted_error, raise_any, row_problems
from ppmtf_jax.runtime.files import PathLike
from ppmtf_jax.runtime.progress import spinner
from ppmtf_jax.settings import Settings

KINDS = ("POI", "POIindex", "traintraces", "testtraces")
FIRST_HOUR, STEP_S, N_INSTANTS = 9, 1200, 30
START, TIME_ZONE = "2013-07-01T09:00:00", "Asia/Tokyo"
UNREADABLE = (OSError, ValueError, EOFError, zlib.error)


def read_people_flow(folder: PathLike) -> tuple[Traces, Traces]:
    """Read training and test traces, 9:00 to 19:00 in thirty instants of 20 minutes, each a slot of its own.

    User and place ids are the indices of the files (user_index, poi_index), as in the official synthetic traces,
    tensors and factors. The traces come from six days of 2013; their common grid begins nominally on 2013-07-01. The
    folder has POI_X.csv, POIindex_X.csv, traintraces_X.csv and testtraces_X.csv for one city X (published: TK), each
    plain or gzipped (.csv.gz). Training and test traces have the same places, in the order of poi_index. Raises
    `InputError`, which lists all problems of a file: it is missing, or its content is not as expected.

    References
    ----------
    .. [1] Murakami, Hamada, Kawamoto, Hatano: Privacy-Preserving Multiple Tensor Factorization for Synthesizing
       Large-Scale Location Traces with Cluster-Specific Features, PoPETs 2021, section 4.1.

    Examples
    --------
    >>> train, test = read_people_flow("people_flow")  # doctest: +SKIP
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(str(folder), [Problem("a folder with the people-flow files", "no such folder")])
    files = {kind: [*folder.glob(f"{kind}_*.csv"), *folder.glob(f"{kind}_*.csv.gz")] for kind in KINDS}
    problems = _one_each({f"{kind}_<city>.csv or .csv.gz": found for kind, found in files.items()})
    cities = {found[0].name.split(".")[0].split("_", 1)[1] for found in files.values() if len(found) == 1}
    if len(cities) > 1:
        problems.append(Problem("files of one city", ", ".join(sorted(cities))))
    raise_any(str(folder), problems)
    points = _read_table(files["POI"][0], "poi_id", "y", "x")
    index = _read_table(files["POIindex"][0], "poi_id", "poi_index", "category")
    joined = index.merge(points[["poi_id", "y", "x"]], on="poi_id", how="left").sort_values("poi_index")
    table = joined[["poi_index", "y", "x", "category"]].reset_index(drop=True)
    table = table.set_axis(["place", "latitude", "longitude", "category"], axis=1)
    if (table["category"] == "-").all():
        table = table.drop(columns="category")
    places, grid = PlaceTable.from_frame(table), TimeGrid.each_instant(START, STEP_S, N_INSTANTS, TIME_ZONE)

    def traces(path: Path) -> Traces:
        table = _read_table(path, "user_index", "poi_index", "hour", "min")
        _check_whole_numbers(path, table[["hour", "min"]])
        minutes = (table["hour"] - FIRST_HOUR) * 60 + table["min"]
        between = (60 * minutes % STEP_S != 0).to_numpy()
        rows = np.array([f"row {2 + index}" for index in table.index], object)
        expected = f"times that are whole steps of {STEP_S // 60} minutes"
        raise_any(str(path), row_problems(between, expected, values=rows))
        columns = {"user": table["user_index"], "place": table["poi_index"], "instant": minutes * 60 // STEP_S}
        return Traces.from_frame(pd.DataFrame(columns), places, grid, subject=str(path))

    return traces(files["traintraces"][0]), traces(files["testtraces"][0])


def read_synthetic(file: PathLike, like: Traces) -> Traces:
    """Read a file of official synthetic traces, plain or gzipped.

    Its columns are user, trace_no, time_slot (or time_period), time_instant (within the slot) and poi_index. The
    training traces `like` give the places and the time grid. A synthetic trace covers one period of the grid. Raises
    `InputError`, which lists all problems: the file is not of that kind, or does not fit places and time grid.
    """
    grid = like.time_grid.one_period()
    if grid.n_instants % grid.n_slots:
        found = f"{grid.n_instants} instants in {grid.n_slots} slots"
        raise InputError(str(file), [Problem("a time grid with equally many instants in every slot", found)])
    table = _read_table(Path(file), "user", "trace_no", ("time_slot", "time_period"), "time_instant", "poi_index")
    names = {"time_slot": "time slot", "time_period": "time slot", "trace_no": "trace", "poi_index": "place"}
    table = table.rename(columns=names)
    _check_whole_numbers(file, table[["time slot", "time_instant"]])
    table["instant"] = table["time slot"] * (grid.n_instants // grid.n_slots) + table["time_instant"]
    return Traces.from_frame(table[["user", "trace", "instant", "place"]], like.places, grid, subject=str(file))


def read_official_factors(folder: PathLike) -> dict[str, np.ndarray]:
    """Read the official factors: "A" (users, rank), "B" and "C" (places, rank), "D" (slots, rank).

    The folder has one file ending in _A.csv (or _A.csv.gz), and so on; hyper-parameters (_Lam_A, _mu_A) are not read.
    Raises `InputError`: a file is missing, is there twice, or holds something else than numbers.
    """
    factors, problems = {}, list[Problem]()
    for name in "ABCD":
        hyper = f"_Lam_{name}", f"_mu_{name}"
        found = [path for path in Path(folder).glob(f"*_{name}.csv*") if not path.name.split(".")[0].endswith(hyper)]
        if missing := _one_each({f"*_{name}.csv": found}):
            problems += missing
            continue
        try:
            factors[name] = np.loadtxt(found[0], delimiter=",", ndmin=2)
        except UNREADABLE as error:
            problems.append(Problem(f"a table of numbers in {found[0].name}", quoted_error(error)))
    raise_any(str(folder), problems)
    return factors


def read_tensor(file: PathLike) -> pd.DataFrame:
    """Read an official count tensor, one row for each positive cell.

    The columns are user, place, next_place, count for transitions; user, place, slot, count for visits. Raises
    `InputError`: the file cannot be read, or has other columns.
    """
    table = _read_table(Path(file), "user_index", "poi_index_from", ("poi_index_to", "time_slot"), "count")
    names = {"user_index": "user", "poi_index_from": "place", "poi_index_to": "next_place", "time_slot": "slot"}
    table = table.rename(columns=names)
    return table[["user", "place", "next_place" if "next_place" in table else "slot", "count"]]


@dataclass(frozen=True)
class PeopleFlowSettings(Settings, subject="import"):
    """Import of the official people-flow files, which come with training and test users.

    Parameters
    ----------
    path : Path
        Folder of the official files, plain or gzipped.
    synthetic : Path, optional
        Official synthetic traces, to import as well.
    """

    path: Path
    synthetic: Path | None = None


def _import(settings: PeopleFlowSettings, seed: int, progress: bool) -> Imported:
    with spinner("importing", show=progress):
        train, test = read_people_flow(settings.path)
        sets = {"train": train, "test": test}
        if settings.synthetic is not None:
            sets["synthetic"] = read_synthetic(settings.synthetic, train)
    return Imported(sets, f"{train.n_users} training and {test.n_users} test users")


TITLE = "The SNS-based people flow data of the official PPMTF release."
DATA_SETS.register(DataSet("people-flow", TITLE, PeopleFlowSettings, _import, "people-flow data/PF"))


def _one_each(files: Mapping[str, Sequence[Path]]) -> list[Problem]:
    """A problem for each name that is not that of one file."""
    return [
        Problem(f"one file {name}", ", ".join(first_examples(sorted(path.name for path in found))) or "none")
        for name, found in files.items()
        if len(found) != 1
    ]


def _read_table(path: Path, *needed: str | tuple[str, str]) -> pd.DataFrame:
    """Read a CSV file with the needed columns; a tuple stands for alternatives."""
    try:
        table = pd.read_csv(path)
    except FileNotFoundError as error:
        raise InputError(str(path), [Problem("a file to read", "no such file")]) from error
    except UNREADABLE as error:
        raise InputError(str(path), [Problem("a readable CSV file, plain or gzipped", str(error))]) from error
    alternatives = [(name,) if isinstance(name, str) else name for name in needed]
    present = [next((name for name in names if name in table), " or ".join(names)) for names in alternatives]
    raise_any(str(path), missing_columns(table.columns, present))
    return table


def _check_whole_numbers(path: PathLike, table: pd.DataFrame) -> None:
    found = (whole_numbers(column, f"whole numbers in '{name}'")[1] for name, column in table.items())
    raise_any(str(path), itertools.chain(*found))
