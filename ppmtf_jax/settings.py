"""Settings from text: the tables of a TOML file and `name=value` of the command line become frozen dataclasses."""

from __future__ import annotations

import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from ppmtf_jax.errors import InputError, Problem

Settings = TypeVar("Settings")


def build_settings(kind: type[Settings], values: Mapping[str, Any], subject: str) -> Settings:
    """Build a settings dataclass from a mapping; unknown names and wrong types are listed in one `InputError`.

    Examples
    --------
    >>> from ppmtf_jax.synthesizers.sgd import SGDSettings
    >>> build_settings(SGDSettings, {"n_copied": 2}, "fit")
    SGDSettings(n_copied=2)
    """
    hints = typing.get_type_hints(kind)
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    problems = []
    for name, value in values.items():
        if name not in known:
            problems.append(Problem(f"settings among {', '.join(known) or '(none)'}", repr(name)))
        elif not _fits(value, hints[name]):
            problems.append(Problem(f"{name} as {_describe(hints[name])}", repr(value)))
    needed = [n for n, f in known.items() if f.default is MISSING and f.default_factory is MISSING and n not in values]
    if needed:
        problems.append(Problem("all settings without a default", f"no {', '.join(needed)}"))
    if problems:
        raise InputError(subject, problems)
    return kind(**{name: _converted(value, hints[name]) for name, value in values.items()})


def parse_assignments(assignments: Iterable[str], subject: str) -> dict[str, Any]:
    """Parse `name=value` texts; values as in TOML, and what is not TOML is text.

    Examples
    --------
    >>> parse_assignments(["rank=32", "zeros=weighted", "max_count=none"], "fit")
    {'rank': 32, 'zeros': 'weighted', 'max_count': None}
    """
    parsed = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name:
            raise InputError(subject, [Problem("name=value", repr(assignment))])
        parsed[name.strip().replace("-", "_")] = _parse_value(text.strip())
    return parsed


def _parse_value(text: str) -> Any:
    if text.lower() == "none":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _options(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the type itself."""
    return (
        typing.get_args(hint)
        if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
        else (hint,)
    )


def _fits(value: Any, hint: Any) -> bool:
    for option in _options(hint):
        if option is type(None):
            fits = value is None or value == "none"
        elif typing.get_origin(option) is typing.Literal:
            fits = value in typing.get_args(option)
        elif option is bool or isinstance(value, bool):
            fits = option is bool and isinstance(value, bool)
        elif option is float:
            fits = isinstance(value, (int, float))
        else:
            fits = isinstance(value, typing.get_origin(option) or option) or (
                typing.get_origin(option) is tuple and isinstance(value, list)
            )
        if fits:
            return True
    return False


def _converted(value: Any, hint: Any) -> Any:
    """TOML has no None, no tuples, and writes whole floats as integers."""
    options = _options(hint)
    if value == "none" and type(None) in options and str not in options:
        return None
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, int) and not isinstance(value, bool) and float in options and int not in options:
        return float(value)
    return value


def _describe(hint: Any) -> str:
    names = []
    for option in _options(hint):
        if option is type(None):
            names.append("'none'")
        elif typing.get_origin(option) is typing.Literal:
            names += [repr(choice) for choice in typing.get_args(option)]
        else:
            names.append(
                {int: "a whole number", float: "a number", str: "text", bool: "true or false"}.get(option, str(option))
            )
    return " or ".join(names)
