"""Every data set that can be imported, by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.registry import Registry


class Imported(NamedTuple):
    """What an import gives.

    Attributes
    ----------
    sets : dict of str to Traces
        "train" and "test", perhaps others.
    report : str
        What became of the rows.
    refusal : InputError, optional
        Why the sets cannot be used as they are, though they can be looked at.
    """

    sets: dict[str, Traces]
    report: str
    refusal: InputError | None = None


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
        What follows `ppmtf import` in an example, without the place to write to.

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


def split_users(traces: Traces, report: object, train_fraction: float, seed: int) -> Imported:
    """Training and test users, at random, of data that comes without them; all together where they are too few."""
    try:
        train, test = traces.split_users(train_fraction, seed)
    except InputError as refusal:
        return Imported({"all": traces}, str(report), refusal)
    return Imported({"train": train, "test": test}, str(report))


def fraction_problems(train_fraction: float) -> list[Problem]:
    """A problem where `train_fraction` cannot leave users on both sides."""
    if 0 < train_fraction < 1:
        return []
    return [Problem("train_fraction between 0 and 1", repr(train_fraction))]
