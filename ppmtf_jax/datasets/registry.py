"""Every data set that can be imported, by its name; and the settings that imports of check-ins share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from annotated_types import Gt

from ppmtf_jax.data.places import MIN_USERS_PER_PLACE
from ppmtf_jax.data.time_grid import DAY_TYPES, zone_problems
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.discretize import Discretization, Period, Repeats
from ppmtf_jax.datasets.places import GivenPlaces, GridPlaces, MostVisited, PlaceChoice, keep_shared_places
from ppmtf_jax.datasets.stays import StayPoints
from ppmtf_jax.datasets.summary import Imported, ImportReport
from ppmtf_jax.datasets.to_traces import MakesTraces
from ppmtf_jax.errors import InputError, Message, Problem, Setting, collecting
from ppmtf_jax.registry import Registry
from ppmtf_jax.runtime.progress import spinner
from ppmtf_jax.settings import Count, Positive, Settings, Share, chosen_settings

DEFAULT_PLACES = 1000
SHOWN_PLACES = f"{DEFAULT_PLACES} unless there is a grid or a place_table"
PLACES_FIELDS = ("n_places", "place_table", "grid", "cell_m")
CORNERS = Message(Setting("grid"), " as south, north, west, east beside ", Setting("cell_m"))
DISCRETIZATION_FIELDS = ("step_s", "slot_s", "period", "day_types", "max_gap_s", "repeats", "min_users_per_place")
DISCRETIZATION_FIELDS += ("other_places",)
AnyImport = TypeVar("AnyImport", bound="CheckinTableSettings")
AnyReader = TypeVar("AnyReader", bound=Callable[..., tuple[Traces, ImportReport]])


@dataclass(frozen=True)
class DataSet:
    """A kind of data that can be imported.

    Parameters
    ----------
    name : str
        What users call it, on the command line and in job files.
    title : str
        What it is, in one sentence.
    settings : type
        Frozen dataclass. Its "Parameters" document every field: help is made of them.
    read : function of (settings, seed, progress), giving Imported
        The seed decides who is a training user; progress is shown where there is a terminal, if asked for.
    example : str
        The arguments of `ppmtf import` in an example, without --out.

    Examples
    --------
    >>> settings = DATA_SETS["toy-city"].settings(n_users=20, n_days=1)
    >>> imported = DATA_SETS["toy-city"].read(settings, 0, False)
    >>> {name: traces.n_users for name, traces in imported.sets.items()}
    {'train': 16, 'test': 4}
    """

    name: str
    title: str
    settings: type
    read: Callable[[Any, int, bool], Imported]
    example: str


DATA_SETS: Registry[DataSet] = Registry("data set", "ppmtf_jax.datasets")


def split_users(
    traces: Traces, report: ImportReport | str, train_fraction: float, seed: int, min_users_per_place: int = 1
) -> Imported:
    """Split the users of a data set at random into training and test users; keep one set "all" if they are too few.

    A place is kept if enough training users visit it, because the privacy of training users counts. An `ImportReport`
    has the number of users that is enough, and says what happens to events at other places. Without a report, the
    number is `min_users_per_place`, and these events are moved to the nearest place that is kept.
    """
    is_told = isinstance(report, ImportReport)
    min_users = report.min_users_per_place if is_told else min_users_per_place
    other_places = report.other_places if is_told else "nearest"
    sets, refusal = {"all": traces}, None
    try:
        split = traces.split_users(train_fraction, seed)
        train, test = keep_shared_places(*split, min_users=min_users, other_places=other_places)
    except InputError as error:
        refusal = error
    else:
        sets = {"train": train, "test": test}
        if is_told:
            n_moved = 0
            if other_places == "nearest":
                ids = [[each.places.ids[each.place] for each in pair] for pair in (split, (train, test))]
                n_moved = sum(int((was != now).sum()) for was, now in zip(*ids, strict=True))
            report = report.after_split(train, test, n_moved)
    if isinstance(report, str):
        return Imported(sets, report, refusal)
    return Imported(sets, report.text(), refusal, tuple(report.losses()), report.kept())


@dataclass(frozen=True)
class CheckinTableSettings(Settings, subject="import"):
    """Where a table of check-ins is, and how check-ins become events.

    Parameters
    ----------
    path : Path
        File to read.
    n_places : int, optional
        Keep the N most visited places, by default 1000. Not beside a grid or a place_table.
    place_table : Path, optional
        Use all places of this table and no others. Its columns are place, latitude, longitude and perhaps category.
    min_users_per_place : int
        Keep places, or cells of a grid, that have at least this number of training users. 1 keeps all, also the cells
        that nobody visits: then the cells may be public. The places of a place_table are always kept.
    other_places : "drop" or "nearest"
        "drop" leaves out check-ins at other places; "nearest" moves them to the nearest place that is kept,
        but those far from all places of a place_table are left out.
    grid : tuple of six numbers, optional
        South, north, west, east, rows, columns: use the cells of a regular grid over this box, in degrees, as places.
        Leave out rows and columns if the side of the cells is given in metres.
    cell_m : float, optional
        Side of the cells of the grid in metres.
    step_s : int
        Seconds from one instant to the next.
    slot_s : int
        Length of a time slot in seconds; slots repeat every day.
    period : "day" or "week"
        What a synthetic trace covers: "day", or "week", in which days of different types have slots of their own.
    day_types : str
        Only with period "week": a letter for each day from Monday to Sunday. Days with the same letter share their
        slots. By default, Saturday and Sunday share slots that the other days do not have.
    max_gap_s : float, optional
        A new trace begins after a gap of more seconds than this between check-ins.
    repeats : "first" or "count"
        Of several check-ins of a user at one instant, the first; or all, as the published programs count them.
    time_zone : str, optional
        Time zone whose clocks the slots follow, such as Asia/Tokyo. The default depends on the reader.
    train_fraction : float
        Share of the users to learn from. The others are for testing.
    drop_bad_rows : bool
        Leave out rows that are not check-ins, and list them, instead of an error.

    Examples
    --------
    >>> CheckinTableSettings(Path("checkins.csv"), grid=(35.6, 35.8, 139.6, 139.9, 20, 20)).discretization().places
    GridPlaces(south=35.6, north=35.8, west=139.6, east=139.9, n_rows=20, n_columns=20)
    """

    path: Path
    n_places: Count | None = field(default=None, metadata={"shown": SHOWN_PLACES})
    place_table: Path | None = None
    min_users_per_place: Count = MIN_USERS_PER_PLACE
    other_places: Literal["drop", "nearest"] = "drop"
    grid: tuple[int | float, ...] | None = None
    cell_m: Positive | None = None
    step_s: Count = 3600
    slot_s: Count = 7200
    period: Period = "day"
    day_types: str = DAY_TYPES
    max_gap_s: Annotated[float, Gt(0)] | None = None
    repeats: Repeats = "first"
    time_zone: str | None = None
    train_fraction: Share = 0.8
    drop_bad_rows: bool = False

    def problems(self) -> list[Problem | str]:
        """Problems of the zone, of the places, and of settings that do not fit each other."""
        problems: list[Problem | str] = [*self._own_problems()]
        if self.time_zone is not None:
            problems += zone_problems(self.time_zone)
        for build in (self._places, lambda: Discretization(**self._other_settings())):
            with collecting(problems):
                build()
        return problems

    @property
    def places_are_public(self) -> bool:
        """Whether the places and the choice of the events that are kept do not depend on who visits the places."""
        return self.place_table is not None or (self.grid is not None and self.min_users_per_place == 1)

    def discretization(self) -> Discretization:
        """How check-ins become events."""
        return Discretization(self._places(), **self._other_settings())

    def options(self) -> dict[str, Any]:
        """The arguments of `discretize` that follow from the settings."""
        zone = self.time_zone or type(self).time_zone
        return {"discretization": self.discretization(), "drop_bad_rows": self.drop_bad_rows, "time_zone": zone}

    def _own_problems(self) -> list[Problem]:
        """Problems of the settings of one data set; readers add theirs."""
        if self.grid is None and self.cell_m is not None:
            return [Problem(CORNERS, "none")]
        problems = []
        chosen = [name for name in ("n_places", "place_table", "grid") if getattr(self, name) is not None]
        if len(chosen) > 1:
            found = Message(*[part for name in chosen for part in (" and ", Setting(name))][1:])
            way_out = (
                "Leave one out: the places of a table or the cells of a grid are used, however often they are visited"
            )
            problems.append(Problem("one choice of places", found, way_out=way_out))
        if self.place_table is not None and self.min_users_per_place not in (1, MIN_USERS_PER_PLACE):
            expected = Message("no ", Setting("min_users_per_place"), " beside ", Setting("place_table"))
            way_out = "All places of a table are kept"
            problems.append(Problem(expected, str(self.min_users_per_place), way_out=way_out))
        return problems

    def _places(self) -> PlaceChoice:
        if self.place_table is not None:
            return GivenPlaces(self.place_table)
        if self.grid is None:
            return MostVisited(DEFAULT_PLACES if self.n_places is None else self.n_places)
        expected, way_out = Message(Setting("grid"), " as south, north, west, east, rows, columns"), ""
        if self.cell_m is not None:
            expected, way_out = CORNERS, "Leave rows and columns out: the cells make them"
        if len(self.grid) != (6 if self.cell_m is None else 4):
            raise InputError("import", [Problem(expected, f"{len(self.grid)} values", way_out=way_out)])
        if self.cell_m is not None:
            return GridPlaces.of_cells(*self.grid, cell_m=self.cell_m)
        if not all(isinstance(number, int) for number in self.grid[4:]):
            expected = "rows and columns of the grid as whole numbers"
            raise InputError("import", [Problem(expected, "{!r} and {!r}".format(*self.grid[4:]))])
        return GridPlaces(*self.grid)  # type: ignore[arg-type]

    def _other_settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in DISCRETIZATION_FIELDS}


@dataclass(frozen=True)
class FixTableSettings(CheckinTableSettings):
    """Where a table of check-ins or GPS fixes is, and how the rows become events.

    Parameters
    ----------
    stay_distance_m : float, optional
        Take stays of GPS fixes within this distance, in metres, as check-ins. Default: 200 if a duration is given.
    stay_duration_s : float, optional
        Shortest duration of a stay in seconds. Default: 1200 if a distance is given.
    """

    stay_distance_m: Positive | None = None
    stay_duration_s: Positive | None = None

    def stay_points(self) -> StayPoints | None:
        """The definition of a stay; None where each fix is a check-in."""
        given = {"distance_m": self.stay_distance_m, "duration_s": self.stay_duration_s}
        given = {name: value for name, value in given.items() if value is not None}
        return StayPoints(**given) if given else None

    def options(self) -> dict[str, Any]:
        """The arguments of `discretize` that follow from the settings."""
        return {**super().options(), "stay_points": self.stay_points()}


def reader_settings(
    kind: type[AnyImport],
    path: object,
    settings: AnyImport | Mapping[str, Any] | None,
    named: Mapping[str, Any],
    discretization: MakesTraces | None,
    stay_points: StayPoints | None = None,
) -> tuple[AnyImport, dict[str, Any]]:
    """The settings of a reader, and the arguments of `discretize` that follow from its arguments and settings."""
    twice = [name for name in (*PLACES_FIELDS, *DISCRETIZATION_FIELDS) if name in named]
    if discretization is not None and twice:
        raise InputError("settings", [Problem("either a discretization or its settings", f"also {', '.join(twice)}")])
    if settings is None:
        named = {"path": Path(str(path)), **named}
    chosen = chosen_settings(kind, settings, named, str(path))
    given = {"discretization": discretization, "stay_points": stay_points}
    return chosen, chosen.options() | {name: value for name, value in given.items() if value is not None}


def data_set(name: str, kind: type[AnyImport], title: str, example: str) -> Callable[[AnyReader], AnyReader]:
    """Register a reader of check-ins as a data set: the path of the settings is read, then the users are split."""

    def register(read: AnyReader) -> AnyReader:
        def read_and_split(settings: CheckinTableSettings, seed: int, progress: bool) -> Imported:
            with spinner("importing", show=progress):
                traces, report = read(settings.path, settings=settings)
            return split_users(traces, report, settings.train_fraction, seed)

        DATA_SETS.register(DataSet(name, title, kind, read_and_split, example))
        return read

    return register
