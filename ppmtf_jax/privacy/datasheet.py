"""The data sheet of a release: what it is, how it was made, what it is good for, and how it is read."""

from __future__ import annotations

from textwrap import fill
from typing import Any

from ppmtf_jax.data.description import counted
from ppmtf_jax.data.traces import Traces

WIDTH = 100
HOW_TO_READ = """\
    from ppmtf_jax import Traces
    table = Traces.load("this folder").to_frame(with_time_and_coordinates=True)"""


def datasheet_text(traces: Traces, statement: dict[str, Any]) -> str:
    """A data sheet to read, of what the release itself shows: nothing in it tells more of the training data.

    Parameters
    ----------
    traces : Traces
        As released.
    statement : dict
        Of the release, see `privacy.release.privacy_statement`.

    References
    ----------
    .. [1] Gebru et al.: Datasheets for Datasets, Communications of the ACM 64(12), 2021.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> generator = {"system": "uniform", "what": "Places at random", "settings": {}}
    >>> text = datasheet_text(toy_city(n_users=5, seed=0).traces, {"generator": generator})
    >>> text.splitlines()[0]
    'DATA SHEET: SYNTHETIC LOCATION TRACES'
    """
    grid, places = traces.time_grid, traces.places
    period = grid.one_period()
    n_traces = len(traces.trace_table()[0])
    generator = statement["generator"]
    chosen = {name: "found by itself" if value is None else value for name, value in generator["settings"].items()}
    settings = ", ".join(f"{name} = {value}" for name, value in chosen.items()) or "none"
    has_category = "" if places.category is None else ", category"
    paragraphs = {
        "What it is": (
            f"{counted(n_traces, 'synthetic trace')} of {counted(traces.n_users, 'synthetic user')} over "
            f"{counted(len(places), 'place')}, made by a program: PRIVACY.txt says what of real people may be in them. "
            "Each is one abstract day, or period: of no particular date, day of the week or season, whatever the "
            "nominal date says. It has a place for each of "
            f"{counted(period.n_instants, 'instant')} of {period.step_s} s, however rarely the people behind the model "
            "were seen."
        ),
        "How it was made": (
            f"By the system {generator['system']} ({generator['what']}) with the settings: {settings}. A model was "
            "learned from real traces, traces were drawn from it, and those that passed a privacy test are here. "
            "PRIVACY.txt says what that protects and what it does not; read it first."
        ),
        "What it is good for": (
            "What many people have in common: how people are spread over places through the day, from where to where "
            "they go, how long they stay. Ask whoever made it how near these numbers are to those of real people."
        ),
        "What it is not good for": (
            "Single traces, rare places and rare habits; how many people there are, since numbers of traces and events "
            "were chosen; who somebody is, who is missing, or who belongs to whom; what happens on certain dates."
        ),
        "Files": (
            "traces.parquet: user (a number of nobody), trace, instant (counted from 0), place. places.parquet: place, "
            f"latitude, longitude (degrees){has_category}. time_grid.json: the nominal start, by the clocks of "
            f"{grid.time_zone}, seconds from one instant to the next, and the slot of the day of each instant. "
            "privacy.json: PRIVACY.txt for programs. ppmtf.json: what this folder is, with checksums."
        ),
    }
    told = [f"{title}\n{fill(text, WIDTH)}" for title, text in paragraphs.items()]
    return "\n\n".join(["DATA SHEET: SYNTHETIC LOCATION TRACES", *told, f"How it is read\n{HOW_TO_READ}"])
