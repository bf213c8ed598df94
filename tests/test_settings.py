from __future__ import annotations

import json
import pickle
import re
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from ppmtf_jax.errors import InputError
from ppmtf_jax.settings import (
    Count,
    Positive,
    Settings,
    accepted_types,
    build_settings,
    chosen_settings,
    converted,
    describe_settings,
    help_of_fields,
    parse_assignments,
    split_assignments,
)
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS


@dataclass(frozen=True)
class Walk(Settings, subject="walk"):
    length: Count
    pace: Positive = 1.5
    kind: Literal["stroll", "hike"] = "stroll"
    pause: int | None = 3
    box: tuple[float, ...] | None = None
    names: dict | None = None
    title: str = ""
    alone: bool = True
    diary: Path | None = None


def refusal(values: dict) -> list[str]:
    with pytest.raises(InputError) as caught:
        build_settings(Walk, values, "walk")
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("values", "name", "expected"),
    [
        ({}, "pace", 1.5),
        ({"pace": 2}, "pace", 2.0),
        ({"kind": "hike"}, "kind", "hike"),
        ({"pause": "none"}, "pause", None),
        ({"pause": None}, "pause", None),
        ({"box": [1, 2.5]}, "box", (1, 2.5)),
        ({"box": (1, 2.5)}, "box", (1, 2.5)),
        ({"names": {"a": 1}}, "names", {"a": 1}),
        ({"title": "none"}, "title", "none"),
        ({"alone": False}, "alone", False),
        ({"diary": "walks/first.txt"}, "diary", Path("walks/first.txt")),
        ({"diary": Path("walks")}, "diary", Path("walks")),
        ({"diary": "none"}, "diary", None),
    ],
)
def test_values_are_taken_as_toml_writes_them(values, name, expected):
    built = getattr(build_settings(Walk, {"length": 1} | values, "walk"), name)
    assert built == expected
    assert type(built) is type(expected)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"length": 1.0}, "expected length as a whole number of at least 1; found 1.0."),
        ({"length": True}, "expected length as a whole number of at least 1; found True."),
        ({"length": "2"}, "expected length as a whole number of at least 1; found '2'."),
        ({"length": None}, "expected length as a whole number of at least 1; found None."),
        ({"length": 1, "pace": "fast"}, "expected pace as a finite number above 0; found 'fast'."),
        ({"length": 1, "kind": "run"}, "expected kind as 'stroll' or 'hike'; found 'run'."),
        ({"length": 1, "kind": ["hike"]}, "expected kind as 'stroll' or 'hike'; found ['hike']."),
        ({"length": 1, "pause": 0.5}, "expected pause as a whole number or 'none'; found 0.5."),
        ({"length": 1, "box": ["a", 2]}, "expected box as a list of numbers or 'none'; found ['a', 2]."),
        ({"length": 1, "names": "a=1"}, "expected names as a table or 'none'; found 'a=1'."),
        ({"length": 1, "alone": 1}, "expected alone as true or false; found 1."),
        ({"length": 1, "diary": 7}, "expected diary as a file or folder or 'none'; found 7."),
        ({"length": 1, "diary": ""}, "expected diary as a file or folder or 'none'; found ''."),
        ({}, "expected length as a whole number of at least 1; found nothing."),
    ],
)
def test_wrong_types_are_told(values, message):
    assert refusal(values) == [message]


def test_all_problems_are_listed_at_once():
    problems = refusal({"length": 0, "pace": -1, "pauze": 2, "alone": "yes"})
    known = ", ".join(field.name for field in fields(Walk))
    assert problems == [
        f"expected settings among {known}; found 'pauze'. Did you mean pause?",
        "expected length as a whole number of at least 1; found 0.",
        "expected pace as a finite number above 0; found -1.",
        "expected alone as true or false; found 'yes'.",
    ]


def test_unknown_setting_where_there_are_none():
    with pytest.raises(InputError, match=r"^uniform: expected no settings; found 'rank'\.$"):
        build_settings(SYNTHESIZERS["uniform"].settings, {"rank": 2}, "uniform")


def test_assignments_are_values_of_toml_or_text():
    texts = [
        "rank=32",
        "floor = 1e-8",
        "zeros=weighted",
        "max-count=none",
        "alone=true",
        "own=False",
        "title=a=b",
        "box=[1, 2]",
    ]
    assert parse_assignments(texts, "--set") == {
        "rank": 32,
        "floor": 1e-8,
        "zeros": "weighted",
        "max_count": None,
        "alone": True,
        "own": False,
        "title": "a=b",
        "box": [1, 2],
    }


def test_what_is_no_assignment_is_listed():
    with pytest.raises(InputError) as caught:
        split_assignments(["a=1", "rank", "=3", "b=", ""], "--set")
    assert [problem.found for problem in caught.value.problems] == ["'rank'", "'=3'", "'b='", "''"]


@pytest.mark.parametrize("system", sorted(SYNTHESIZERS))
def test_every_setting_described_can_be_given_as_described(system):
    """What the help says is taken by --set as it stands, and is the default."""
    kind = SYNTHESIZERS[system].settings
    described = describe_settings(kind)
    assert all(f"{field.name}=" in described for field in fields(kind))
    if fields(kind):
        assignments = re.sub(r" \(or [^)]*\)", "", described).split(", ")
        assert build_settings(kind, parse_assignments(assignments, system), system) == kind()


def test_description_tells_other_words_and_what_is_needed():
    assert describe_settings(Walk) == (
        "length (a whole number of at least 1), pace=1.5, kind=stroll (or hike), pause=3 (or none), "
        "box=none, names=none, title='', alone=true, diary=none"
    )
    assert describe_settings(SYNTHESIZERS["uniform"].settings) == "no settings"


@dataclass(frozen=True)
class Guided(Walk):
    """A walk with a guide.

    It is longer than others.

    Parameters
    ----------
    length, pause : int
        Whole kilometres, and
        minutes. More words.

        A second paragraph.
    guide : str
        Who leads.
    title : str
        Of the walk: of each day one.
    pace : float
    stranger : int
        No field of this name.

    Raises
    ------
    InputError
        Not a parameter.
    """

    guide: str = ""


@dataclass(frozen=True)
class Night(Guided):
    """A walk at night.

    Parameters
    ----------
    lamp : bool
        Whether there is light.
    length : int
        Short.
    """

    lamp: bool = True


def test_help_is_what_the_docstring_says():
    kilometres = "Whole kilometres, and minutes. More words. A second paragraph."
    assert help_of_fields(Guided) == {
        "length": kilometres,
        "pause": kilometres,
        "title": "Of the walk: of each day one.",
        "guide": "Who leads.",
    }
    assert help_of_fields(Walk) == {}


def test_bases_document_what_they_have():
    found = help_of_fields(Night)
    assert (found["length"], found["lamp"], found["guide"]) == ("Short.", "Whether there is light.", "Who leads.")
    assert list(found) == [field.name for field in fields(Night) if field.name in found]


# Settings of Python


@pytest.mark.parametrize("wrong", [{"length": 3.5}, {"length": "3"}, {"length": 1, "pause": True}])
def test_an_object_is_checked_when_it_is_built(wrong):
    with pytest.raises(InputError, match=f"walk: expected {list(wrong)[-1]} as a whole number"):
        Walk(**wrong)


def test_an_object_behaves_as_a_frozen_dataclass():
    walk = Walk(2, box=[1, 2])
    assert pickle.loads(pickle.dumps(walk)) == walk == replace(Walk(3, box=(1.0, 2.0)), length=2)
    assert hash(walk) == hash(Walk(2, box=(1, 2)))
    assert repr(walk).startswith("Walk(length=2, pace=1.5, kind='stroll'")
    with pytest.raises(InputError, match="length"):
        replace(walk, length=0)
    with pytest.raises(AttributeError):
        walk.length = 3


def test_numbers_of_numpy_become_numbers_that_can_be_saved():
    values = {"length": np.int64(3), "pace": np.array(0.5), "box": (np.float64(1), 2), "alone": np.bool_(False)}
    walk = Walk(**values)
    assert json.loads(json.dumps(asdict(walk)))["box"] == [1.0, 2.0]
    assert [type(value) for value in (walk.length, walk.pace, walk.alone)] == [int, float, bool]


@pytest.mark.parametrize("system", SYNTHESIZERS)
def test_every_system_takes_numbers_of_numpy_and_refuses_fractions_of_what_is_counted(system):
    kind = SYNTHESIZERS[system].settings
    whole = {field.name: np.int64(field.default) for field in fields(kind) if type(field.default) is int}
    assert json.dumps(asdict(kind(**whole)))
    for name in whole:
        with pytest.raises(InputError, match=rf"{name}\b"):
            chosen_settings(kind, {name: 3.5}, {}, "fit")


def test_defaults_are_settings_that_would_be_accepted():
    """They are not checked when an object is built, so that pydantic need not be loaded."""
    kinds = [Settings]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert len(kinds) > 30
    for kind in kinds[1:]:
        if kind.__module__.startswith("ppmtf_jax") and is_dataclass(kind):  # what some kinds share has no fields
            for name, hint in accepted_types(kind).items():
                default = kind.__dataclass_fields__[name].default
                assert default is MISSING or converted(default, hint) == default, (kind, name)
