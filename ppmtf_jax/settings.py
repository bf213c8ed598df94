"""Settings from text: the tables of a TOML file and `name=value` of the command line become frozen dataclasses."""

from __future__ import annotations

import difflib
import inspect
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ppmtf_jax.errors import InputError, Problem

Settings = TypeVar("Settings")


def build_settings(kind: type[Settings], values: Mapping[str, Any], subject: str) -> Settings:
    """Build a settings dataclass from a mapping.

    Raises
    ------
    InputError
        Listing at once unknown names, wrong types, missing settings, and what the dataclass itself refuses.

    Examples
    --------
    >>> from ppmtf_jax.synthesizers.sgd import SGDSettings
    >>> build_settings(SGDSettings, {"n_copied": 2}, "fit")
    SGDSettings(n_copied=2)
    """
    hints = typing.get_type_hints(kind)
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    problems: list[Problem | str] = []
    good = {}
    for name, value in values.items():
        value = _python_value(value)
        if name not in known:
            problems.append(_unknown_setting(name, list(known)))
        elif not _fits(value, hints[name]):
            problems.append(Problem(f"{name} as {_describe(hints[name])}", repr(value)))
        else:
            good[name] = _converted(value, hints[name])
    needed = [n for n, f in known.items() if f.default is MISSING and f.default_factory is MISSING]
    problems += [Problem(f"{n} as {_describe(hints[n])}", "nothing") for n in needed if n not in values]
    if good.keys() >= set(needed):
        try:
            built = kind(**good)
            if not problems:
                return built
        except InputError as error:
            problems += error.problems
    raise InputError(subject, problems)


def chosen_settings(
    kind: type[Settings], settings: Settings | Mapping[str, Any] | None, named: Mapping[str, Any], subject: str
) -> Settings:
    """The settings that a caller chose: an object or a mapping, settings by name, or neither, for the defaults.

    Whichever way they come, types are checked and NumPy's numbers become Python's, which can be saved.

    Raises
    ------
    InputError
        Both are given, the object is of another kind, or what `build_settings` refuses.

    Examples
    --------
    >>> from ppmtf_jax.synthesizers.sgd import SGDSettings
    >>> chosen_settings(SGDSettings, None, {"n_copied": 2}, "fit")
    SGDSettings(n_copied=2)
    """
    if settings is None:
        return build_settings(kind, named, subject)
    problems: list[Problem | str] = []
    by_name = isinstance(settings, Mapping)
    if not by_name and not isinstance(settings, kind):
        problems.append(Problem(f"{kind.__name__} or a dict for {subject}", type(settings).__name__))
    if named:
        found = f"{'a dict' if by_name else 'an object'} and {', '.join(named)}"
        problems.append(Problem("settings as an object, as a dict or by name", found))
    if problems:
        raise InputError("settings", problems)
    if isinstance(settings, kind):
        given = {field.name: getattr(settings, field.name) for field in fields(settings)}  # type: ignore[arg-type]
        return build_settings(type(settings), given, subject)
    return build_settings(kind, settings, subject)


def describe_settings(kind: type) -> str:
    """The settings of a dataclass with their defaults, and the other words that they accept.

    Examples
    --------
    >>> from ppmtf_jax.gibbs.kernel import GibbsSettings
    >>> from ppmtf_jax.data.tensors import Trimming
    >>> describe_settings(Trimming)
    'max_transitions=100 (or none), max_visits=100 (or none), max_count=10 (or none)'
    """
    hints = typing.get_type_hints(kind)
    described = []
    for field in fields(kind):
        if field.default is MISSING:
            described.append(f"{field.name} ({_describe(hints[field.name])})")
            continue
        words = [word for word in _words(hints[field.name]) if word != _text(field.default)]
        # A default that depends on other settings is told in words.
        default = field.metadata.get("shown", _text(field.default))
        described.append(f"{field.name}={default}" + (f" (or {', '.join(words)})" if words else ""))
    return ", ".join(described) or "no settings"


def help_of_fields(kind: type) -> dict[str, str]:
    """What the docstring of a dataclass, and of its bases, says about each field, in the order of the fields.

    The text is that of the section "Parameters" of numpydoc, on one line. Fields that it does not explain are left out.

    Examples
    --------
    >>> from ppmtf_jax.data.tensors import Trimming
    >>> list(help_of_fields(Trimming))
    ['max_transitions', 'max_visits', 'max_count']
    """
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        found |= _documented_parameters(inspect.cleandoc(base.__dict__.get("__doc__") or ""))
    return {field.name: found[field.name] for field in fields(kind) if field.name in found}


def parse_assignments(assignments: Iterable[str], subject: str) -> dict[str, Any]:
    """Parse `name=value` texts; values as in TOML, and what is not TOML is text.

    Examples
    --------
    >>> parse_assignments(["rank=32", "zeros=weighted", "max_count=none"], "fit")
    {'rank': 32, 'zeros': 'weighted', 'max_count': None}
    """
    return {name.replace("-", "_"): _parse_value(text) for name, text in split_assignments(assignments, subject)}


def parse_choice(text: str, registry: Mapping[str, Any]) -> tuple[Any, Any]:
    """An entry of a registry, and its settings, from its name and settings as name=value with spaces between.

    Raises
    ------
    InputError
        There is no such entry or setting.

    Examples
    --------
    >>> from ppmtf_jax.synthesizers.registry import SYNTHESIZERS
    >>> entry, settings = parse_choice("sgd n_copied=2", SYNTHESIZERS)
    >>> entry.name, settings
    ('sgd', SGDSettings(n_copied=2))
    """
    name, *assignments = text.split() or [""]
    entry = registry[name]
    return entry, build_settings(entry.settings, parse_assignments(assignments, text), text)


def split_assignments(assignments: Iterable[str], subject: str) -> list[tuple[str, str]]:
    """Split `name=value` texts; all that are something else are listed in one `InputError`.

    Examples
    --------
    >>> split_assignments(["user=uid", "time=when"], "columns")
    [('user', 'uid'), ('time', 'when')]
    """
    split = [[part.strip() for part in assignment.partition("=")] for assignment in assignments]
    problems = [Problem("name=value", repr("".join(parts))) for parts in split if not all(parts)]
    if problems:
        raise InputError(subject, problems)
    return [(name, text) for name, _, text in split]


def _python_value(value: Any) -> Any:
    """NumPy's numbers, also within a list, as those of Python."""
    if isinstance(value, np.generic):
        return value.item()
    return type(value)(map(_python_value, value)) if type(value) in (list, tuple) else value


def _unknown_setting(name: str, known: list[str]) -> Problem:
    close = difflib.get_close_matches(str(name), known, n=1)
    way_out = f"Did you mean {close[0]}?" if close else ""
    expected = f"settings among {', '.join(known)}" if known else "no settings"
    return Problem(expected, repr(name), way_out=way_out)


def _documented_parameters(docstring: str) -> dict[str, str]:
    """Name and text of the entries of a docstring's section "Parameters"; an entry may have several names."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\S[^\n]*\n-+$|\Z)", docstring, re.MULTILINE | re.DOTALL)
    entries = re.findall(r"^(\S[^\n]*)\n((?:[ \t][^\n]*\n|\n)*)", section[1] + "\n" if section else "", re.MULTILINE)
    return {
        name.strip(): " ".join(text.split())
        for names, text in entries
        for name in names.partition(" : ")[0].split(",")
        if text.strip()
    }


def _parse_value(text: str) -> Any:
    if text.lower() == "none":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _options(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the type itself."""
    is_union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    return typing.get_args(hint) if is_union else (hint,)


def _fits(value: Any, hint: Any) -> bool:
    return any(_fits_one(value, option) for option in _options(hint))


def _fits_one(value: Any, option: Any) -> bool:
    if option is type(None):
        return value is None or value == "none"
    if typing.get_origin(option) is typing.Literal:
        return value in typing.get_args(option)
    if typing.get_origin(option) is tuple:
        return isinstance(value, (list, tuple)) and all(_fits(item, typing.get_args(option)[0]) for item in value)
    if isinstance(value, bool):
        return option is bool
    if option is Path:
        return isinstance(value, Path) or (isinstance(value, str) and value != "")
    return isinstance(value, (int, float) if option is float else option)


def _converted(value: Any, hint: Any) -> Any:
    """TOML has no None, no tuples, no paths, and writes whole floats as integers."""
    options = _options(hint)
    if value == "none" and type(None) in options and str not in options:
        return None
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, str) and Path in options and str not in options:
        return Path(value)
    if isinstance(value, int) and not isinstance(value, bool) and float in options and int not in options:
        return float(value)
    return value


def _words(hint: Any) -> list[str]:
    """The words, as opposed to numbers and free text, that a setting accepts."""
    words: list[str] = []
    for option in _options(hint):
        if option is type(None):
            words.append("none")
        elif typing.get_origin(option) is typing.Literal:
            words += [str(choice) for choice in typing.get_args(option)]
    return words


def _describe(hint: Any) -> str:
    kinds = {
        int: "a whole number",
        float: "a number",
        str: "text",
        bool: "true or false",
        dict: "a table",
        Path: "a file or folder",
    }
    named = [
        kinds.get(option, "a list of numbers" if typing.get_origin(option) is tuple else "")
        for option in _options(hint)
    ]
    return " or ".join([name for name in named if name] + [repr(word) for word in _words(hint)])


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value) or "''"
