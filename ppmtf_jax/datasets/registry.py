"""Every data set that can be imported, by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.report import ImportReport
from ppmtf_jax.datasets.shared_places import keep_shared_places
from ppmtf_jax.errors import InputError
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
    losses : tuple of str
        Sentences on why many rows were left out, each with a way to keep them.
    """

    sets: dict[str, Traces]
    report: str
    refusal: InputError | None = None
    losses: tuple[str, ...] = ()


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


def split_users(
    traces: Traces, report: ImportReport | str, train_fraction: float, seed: int, min_users_per_place: int = 1
) -> Imported:
    """Training and test users, at random, of data that comes without them; all together where they are too few.

    Places are kept where enough of the training users are, since it is their privacy that counts. An `ImportReport`
    says how many that is and what happens to events elsewhere; without one it is `min_users_per_place`, and they are
    moved to the nearest place that is kept.
    """
    try:
        split = traces.split_users(train_fraction, seed)
        if isinstance(report, str):
            train, test = keep_shared_places(
                *split, min_users=min_users_per_place, other_places="nearest", keep_table=True
            )
        else:
            train, test = _shared(split, report)
    except InputError as refusal:
        return Imported({"all": traces}, str(report), refusal, _losses(report))
    if isinstance(report, ImportReport):
        n_moved = 0
        if report.other_places == "nearest":
            n_moved = sum(int((_ids(was) != _ids(now)).sum()) for was, now in zip(split, (train, test), strict=True))
        report = report.after_split(train, test, n_moved)
    return Imported({"train": train, "test": test}, str(report), losses=_losses(report))


def _shared(split: tuple[Traces, Traces], report: ImportReport) -> tuple[Traces, ...]:
    min_users, others = report.min_users_per_place, report.other_places
    return keep_shared_places(*split, min_users=min_users, other_places=others, keep_table=report.on_grid)


def _losses(report: ImportReport | str) -> tuple[str, ...]:
    return () if isinstance(report, str) else tuple(report.losses())


def _ids(traces: Traces) -> np.ndarray:
    return traces.places.ids[traces.place]
