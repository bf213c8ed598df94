"""Verdicts: what a release, a job and the report ask of the outcome of a privacy test, whichever test it was."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from ppmtf_jax.data.description import counted, in_lines
from ppmtf_jax.data.stored_traces import parts_of_users
from ppmtf_jax.data.trace_set import part_file, read_parquet, write_table
from ppmtf_jax.data.traces import Origin, Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.runtime.files import PathLike
from ppmtf_jax.runtime.folders import (
    SYNTHETIC_TRACES,
    VERDICTS,
    Lineage,
    Paths,
    digest_of,
    digest_of_array,
    marked,
    output_folder,
)
from ppmtf_jax.settings import Settings
from ppmtf_jax.streams import Seed
from ppmtf_jax.synthesizers.fitted_model import FittedModel, check_origin
from ppmtf_jax.synthesizers.registry import Claims

AnyVerdicts = TypeVar("AnyVerdicts", bound="Verdicts")
VERDICTS_FILE = "verdicts.parquet"


@dataclass(frozen=True, eq=False, kw_only=True)
class Verdicts:
    """Outcome of a privacy test; a subclass for each test.

    Parameters
    ----------
    settings : Settings
        Settings of the test; all tests have k, the number of users whom a trace must resemble.
    system : str
        The synthesizer of the model.
    model_settings : dict
        The settings of the model.
    claims : Claims
        What the statement of a release must say about this model, in addition to the text for all releases.
    n_users : int
        Number of users of the model.
    users_per_place : int array, shape (places,), or None
        How many training users were at each place of the model; None if this is not known.
    origin : Origin
        The model and the draw that made the traces.
    made_from : dict of str to str
        Digests of the tested traces (all events), and of the data that they were made from.
    table : DataFrame
        One row for each trace, in the order of `Traces.trace_table`. All tests have the columns user, trace,
        plausible_users (the input user included) and passed.
    """

    test: ClassVar[str]
    """Name of the test in a folder of verdicts."""
    kinds: ClassVar[dict[str, type]]
    """Classes of the fields that are stored as tables, by name."""
    has_noise: ClassVar[bool] = False
    """Whether k was noisy."""
    may_pass: ClassVar[Any] = True
    """Whether each trace meets the conditions of the test that do not depend on k."""

    settings: Any
    system: str
    model_settings: dict[str, Any]
    claims: Claims
    n_users: int
    users_per_place: np.ndarray | None
    origin: Origin = field(repr=False)
    made_from: Lineage = field(repr=False)
    table: pd.DataFrame

    def __init_subclass__(cls, *, test: str, settings: type[Settings]) -> None:
        cls.test = test
        cls.kinds = {"settings": settings, "claims": Claims, "origin": Origin, "seed": Seed}

    def __repr__(self) -> str:
        parts = {"model": self.system} | self.facts()
        title = f"{type(self).__name__}: {self.passed.sum():,} of {counted(len(self.table), 'trace')} passed"
        return in_lines(title, parts)

    def parameters(self) -> dict[str, Any]:
        """The settings of the test that a release states."""
        return asdict(self.settings)

    def facts(self) -> dict[str, str]:
        """The settings and other facts of the test, as text by name."""
        return {"settings": ", ".join(f"{name} = {value}" for name, value in asdict(self.settings).items())}

    @cached_property
    def lineage(self) -> Lineage:
        """Digests of the verdicts, and of the data that they were made from."""
        own = [
            digest_of_array(column.to_numpy())
            for part in parts_of_users(self.table, "user")
            for _, column in part.items()
        ]
        said = digest_of(asdict(self.settings), self.claims, list(self.table), *own)
        return {**self.made_from, VERDICTS: said}

    @property
    def n_traces(self) -> int:
        """Number of tested traces."""
        return len(self.table)

    @property
    def n_passed(self) -> int:
        """Number of traces that may be released."""
        return int(self.passed.sum())

    @property
    def passed(self) -> Bool[np.ndarray, " trace"]:
        """Whether each trace may be released, in the order of `Traces.trace_table`."""
        return self.table["passed"].to_numpy()

    @property
    def plausible_users(self) -> Int[np.ndarray, " trace"]:
        """Number of plausible users of each trace, k'; the input user counts."""
        return self.table["plausible_users"].to_numpy()

    @property
    def passes_by_construction(self) -> bool:
        """Whether every trace of the model is certain to pass, so that passing says nothing about single traces."""
        return False

    @property
    def seed_given(self) -> bool:
        """Whether somebody chose a seed on which the traces or the verdicts depend."""
        return self.origin.seeds_given

    @property
    def counted_to(self) -> float:
        """The largest k for which the number of passing traces is known; infinite if all users were counted."""
        return np.inf

    @property
    def least_users_per_place(self) -> int | None:
        """The smallest number of training users at any visited place; None if this is not known."""
        users = self.users_per_place
        return None if users is None else int(users[users > 0].min())

    def same_number_of_each_user(self) -> bool:
        """Whether each user of the model has equally many traces."""
        counts = self.table["user"].value_counts()
        return len(counts) == self.n_users and counts.nunique() == 1

    def pass_rates(self, k: Int[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Share of the traces that pass without noise, for each k: Fig. 16 of Murakami et al. 2021 from one test.

        Raises `InputError`: a k is above `counted_to`; run the test with the largest k, or with `count_all`.
        """
        if (k > self.counted_to).any():
            way_out = "Run the test with the largest k, or with count_all"
            raise InputError("pass rates", [Problem(f"k up to {self.counted_to:g}", str(k.max()), way_out=way_out)])
        return ((self.plausible_users >= k[:, None]) & self.may_pass).sum(axis=1) / self.n_traces

    def check_made_of(self, synthetic: Traces) -> None:
        """Check that these are the verdicts on exactly these traces.

        Raises `InputError`: they are of traces of another model or draw, or of other traces of the same draw.
        """

        def check(is_right: bool, expected: str, found: str) -> None:
            if not is_right:
                way_out = "Test these traces, and give the verdicts of that test"
                raise InputError("verdicts", [Problem(expected, found, way_out=way_out)])

        made = synthetic.origin
        found = "those of traces of another model"
        if made is None or made.model == self.origin.model:
            drawn = "none" if made is None else made.draw
            found = f"those of other traces (draw {self.origin.draw}, not {drawn})"
        check(made == self.origin, "the verdicts of these traces", found)
        user, trace = synthetic.trace_table()
        is_same = len(user) == self.n_traces and (
            np.array_equal(synthetic.user_ids[user], self.table["user"]) and np.array_equal(trace, self.table["trace"])
        )
        found = f"{self.n_traces} verdicts for {len(user)} traces, or verdicts of other users"
        check(is_same, "a verdict on each of these traces", found)
        found = "traces with other events, places or instants"
        check(synthetic.digest == self.made_from[SYNTHETIC_TRACES], "the traces as they were tested", found)

    def save(self, folder: PathLike, *, overwrite: bool = False, inputs: Paths = ()) -> None:
        """Write a folder of verdicts; only its owner may read it, because it shows which traces were withheld."""
        about = {name: getattr(self, name) for name in self._stored()}
        about |= {name: asdict(value) for name, value in about.items() if isinstance(value, Settings)}
        about |= {name: value._asdict() for name, value in about.items() if hasattr(value, "_asdict")}
        users = self.users_per_place
        about |= {"test": self.test, "made_from": dict(self.made_from)}
        about |= {"users_per_place": None if users is None else users.tolist()}
        with output_folder(folder, VERDICTS, about=about, overwrite=overwrite, inputs=inputs) as partial:
            parts = parts_of_users(self.table, "user")
            for number, part in enumerate(parts):
                write_table(part_file(partial / VERDICTS_FILE, number, len(parts)), part)

    @classmethod
    def load(cls: type[AnyVerdicts], folder: PathLike) -> AnyVerdicts:
        """Read a folder of verdicts of this test; `InputError` if it is something else, or was changed."""
        about = marked(folder, VERDICTS, way_out="Make it with `ppmtf test`").about
        if absent := [name for name in ("test", *cls._stored()) if name not in about]:
            found, way_out = f"no {', '.join(absent)}", "Test the traces again"
            raise InputError(str(folder), [Problem("verdicts of this version", found, way_out=way_out)])
        if about["test"] != cls.test:
            problem = Problem(f"verdicts of the test {cls.test!r}", f"those of {about['test']!r}")
            raise InputError(str(folder), [problem])
        read = {name: about[name] for name in cls._stored()}
        for name in read.keys() & cls.kinds.keys():
            # JSON has lists for tuples.
            values = {key: tuple(value) if isinstance(value, list) else value for key, value in about[name].items()}
            read[name] = cls.kinds[name](**values)
        if read["users_per_place"] is not None:
            read["users_per_place"] = np.array(read["users_per_place"])
        return cls(**read, table=read_parquet(Path(folder) / VERDICTS_FILE))

    @classmethod
    def _stored(cls) -> list[str]:
        """The fields in the marker of a folder of verdicts: all but the table."""
        return [each.name for each in fields(cls) if each.name != "table"]


def facts_of_model(model: FittedModel, synthetic: Traces) -> dict[str, Any]:
    """The fields of verdicts that say what was tested; `InputError` if the model did not make the traces."""
    return {
        "system": model.system,
        "model_settings": model.settings,
        "claims": model.claims(),
        "n_users": model.n_users,
        "users_per_place": model.users_per_place,
        "origin": check_origin(model, synthetic),
        "made_from": {**model.lineage, **synthetic.lineage},
    }
