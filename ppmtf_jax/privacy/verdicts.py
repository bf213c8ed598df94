"""What every privacy test gives: settings that know what the test means in words, and one type of verdicts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from ppmtf_jax.data.description import counted, in_lines
from ppmtf_jax.data.stored_traces import parts_of_users
from ppmtf_jax.data.trace_set import Origin, part_file, write_table
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.runtime.files import PathLike
from ppmtf_jax.runtime.folders import (
    SYNTHETIC_TRACES,
    VERDICTS,
    Lineage,
    Paths,
    digest_of,
    digest_of_array,
    output_folder,
)
from ppmtf_jax.settings import Settings
from ppmtf_jax.streams import Seed
from ppmtf_jax.synthesizers.fitted_model import FittedModel, check_origin
from ppmtf_jax.synthesizers.registry import Claims

VERDICTS_FILE = "verdicts.parquet"
NO_MEMBERSHIP = "The test sets no bound on membership inference."
USED = "Whether a person's data was used at all."


class InWords(NamedTuple):
    """What a test required of the traces, and points on what it protects and what it does not."""

    mechanism: str
    protected: list[str]
    not_protected: list[str]


class PrivacyTest(Settings):
    """Settings of a privacy test: a frozen dataclass for each test, with k, the users whom a trace must resemble."""

    test: ClassVar[str]
    """Name of the test in a folder of verdicts."""
    k: int
    n_verifiers: int | None = None
    count_all: bool = True
    noise_epsilon: float | None = None

    def stated(self) -> dict[str, Any]:
        """The settings that a release states."""
        return asdict(self)  # type: ignore[call-overload]

    def in_brief(self) -> str:
        """The settings that count most, in a line."""
        return ", ".join(f"{name} = {value}" for name, value in self.stated().items())

    def in_words(self, is_private: bool) -> InWords:
        """The test in words; `is_private`: whether the traces are differentially private anyway."""
        raise NotImplementedError

    def may_pass(self, table: pd.DataFrame) -> Bool[np.ndarray, " trace"] | bool:
        """Whether each trace meets the conditions that do not depend on k."""
        return True


@dataclass(frozen=True, eq=False, kw_only=True)
class Verdicts:
    """Outcome of a privacy test.

    `table` has one row for each trace, in the order of `Traces.trace_table`. All tests have the columns user, trace,
    plausible_users (k', the input user included) and passed; see the test for the others.
    """

    settings: Any  # a `PrivacyTest`
    system: str  # the synthesizer of the model
    model_settings: dict[str, Any]
    claims: Claims  # what the statement of a release must say about this model, beside the text for all releases
    n_users: int  # of the model
    users_per_place: np.ndarray | None  # how many training users were at each place of the model, if this is known
    origin: Origin = field(repr=False)  # the model and the draw that made the traces
    made_from: Lineage = field(repr=False)  # digests of the tested traces, and of the data that they were made from
    table: pd.DataFrame
    # Of plausible deniability: seed of the subset of verifiers, their number (an input user counts even if they are no
    # verifier), and number of users of the smallest class, all of whom make every trace with the same probability.
    seed: Seed | None = field(default=None, repr=False)
    n_verifiers: int | None = None
    smallest_class: int | None = None

    def __repr__(self) -> str:
        title = f"{self.settings.test.capitalize()} test: {self.n_passed:,} of {counted(self.n_traces, 'trace')} passed"
        return in_lines(title, {"model": self.system} | self.facts())

    @property
    def words(self) -> InWords:
        """The test in words, for this model."""
        return self.settings.in_words(self.claims.is_private)

    def facts(self) -> dict[str, str]:
        """The settings that count most and the number of verifiers, as text by name."""
        verifiers = {} if self.n_verifiers is None else {"verifiers": counted(self.n_verifiers, "user")}
        return {"settings": self.settings.in_brief()} | verifiers

    @cached_property
    def lineage(self) -> Lineage:
        """Digests of the verdicts, and of the data that they were made from."""
        parts = parts_of_users(self.table, "user")
        own = [digest_of_array(column.to_numpy()) for part in parts for _, column in part.items()]
        return {**self.made_from, VERDICTS: digest_of(asdict(self.settings), self.claims, list(self.table), *own)}

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
        if "threshold" in self.table:
            return self.plausible_users >= self.threshold
        return self.table["passed"].to_numpy()

    @property
    def plausible_users(self) -> Int[np.ndarray, " trace"]:
        """Number of plausible users of each trace, k'; the input user counts."""
        return self.table["plausible_users"].to_numpy()

    @property
    def log_likelihood(self) -> Float[np.ndarray, " trace"]:
        """Of plausible deniability: log-likelihood of each trace under its input user."""
        return self.table["log_likelihood"].to_numpy()

    @property
    def threshold(self) -> Int[np.ndarray, " trace"]:
        """Of plausible deniability: the number of plausible users that each trace must reach: k, or k plus noise."""
        return self.table["threshold"].to_numpy()

    @property
    def has_noise(self) -> bool:
        """Whether k was noisy."""
        return self.settings.noise_epsilon is not None

    @property
    def by_construction(self) -> str:
        """That every trace passed because each class has at least k users, all compared; empty if traces could fail."""
        if self.settings.n_verifiers or self.has_noise or not (self.smallest_class or 0) >= self.settings.k > 1:
            return ""
        return (
            f"Every trace of this model passes the test by construction: at least {self.smallest_class:,} users share "
            "one distribution of traces. So the test says nothing about single traces, or about what these users share."
        )

    @property
    def seed_given(self) -> bool:
        """Whether somebody chose a seed of the traces, or of a random subset of verifiers."""
        own = self.seed if self.settings.n_verifiers else None
        return self.origin.seeds_given or (own is not None and own.given)

    @property
    def counted_to(self) -> float:
        """The largest k for which the number of passing traces is known; infinite if all users were counted."""
        if self.settings.count_all or not self.n_passed:
            return np.inf
        return float(self.threshold[self.passed].min())

    @property
    def least_users_per_place(self) -> int | None:
        """The smallest number of training users at any visited place; None if this is not known."""
        users = self.users_per_place
        return None if users is None else int(users[users > 0].min())

    def pass_rates(self, k: Int[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Share of the traces that pass without noise, for each k: Fig. 16 of Murakami et al. 2021 from one test.

        Raises `InputError`: a k is above `counted_to`; run the test with the largest k, or with `count_all`.
        """
        if (k > self.counted_to).any():
            way_out = "Run the test with the largest k, or with count_all"
            raise InputError("pass rates", [Problem(f"k up to {self.counted_to:g}", str(k.max()), way_out=way_out)])
        may_pass = self.settings.may_pass(self.table)
        return ((self.plausible_users >= k[:, None]) & may_pass).sum(axis=1) / self.n_traces

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
        about: dict[str, Any] = {name: getattr(self, name) for name in stored_fields(self.seed is not None)}
        about |= {name: value._asdict() for name, value in about.items() if hasattr(value, "_asdict")}
        users = self.users_per_place
        about |= {"settings": asdict(self.settings), "test": self.settings.test, "made_from": dict(self.made_from)}
        about |= {"users_per_place": None if users is None else users.tolist()}
        with output_folder(folder, VERDICTS, about=about, overwrite=overwrite, inputs=inputs) as partial:
            parts = parts_of_users(self.table, "user")
            for number, part in enumerate(parts):
                write_table(part_file(partial / VERDICTS_FILE, number, len(parts)), part)


def stored_fields(has_verifiers: bool) -> list[str]:
    """The fields in the marker of a folder of verdicts: all but the table, which is a file."""
    left_out = {"table"} if has_verifiers else {"table", "seed", "n_verifiers", "smallest_class"}
    return [each.name for each in fields(Verdicts) if each.name not in left_out]


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
