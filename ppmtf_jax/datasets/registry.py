"""Every data set that can be imported, by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.places import keep_shared_places
from ppmtf_jax.datasets.summary import Imported, ImportReport
from ppmtf_jax.errors import InputError
from ppmtf_jax.registry import Registry


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
    min_users, other_places = min_users_per_place, "nearest"
    if isinstance(report, ImportReport):
        min_users, other_places = report.min_users_per_place, report.other_places
    sets, refusal = {"all": traces}, None
    try:
        split = traces.split_users(train_fraction, seed)
        train, test = keep_shared_places(*split, min_users=min_users, other_places=other_places)
    except InputError as error:
        refusal = error
    else:
        sets = {"train": train, "test": test}
        if isinstance(report, ImportReport):
            n_moved = 0
            if other_places == "nearest":
                ids = [[each.places.ids[each.place] for each in pair] for pair in (split, (train, test))]
                n_moved = sum(int((was != now).sum()) for was, now in zip(*ids, strict=True))
            report = report.after_split(train, test, n_moved)
    if isinstance(report, str):
        return Imported(sets, report, refusal)
    return Imported(sets, report.text(), refusal, tuple(report.losses()), report.kept())
