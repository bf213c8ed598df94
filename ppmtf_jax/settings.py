"""Settings: frozen dataclasses whose annotations say what they accept, from Python, TOML and the command line alike.

Pydantic checks and converts the fields when an object is built. All problems come as one `InputError`. A conversion
that could hide a mistake is refused: 3.5 and "5" are not whole numbers.
"""

from __future__ import annotations

import difflib
import inspect
import math
import re
import tomllib
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, astuple, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from ppmtf_jax.errors import InputError, Message, Problem, Setting, raise_any

AnySettings = TypeVar("AnySettings", bound="Settings")

Count = Annotated[int, Ge(1)]
CountOrZero = Annotated[int, Ge(0)]
Finite = Annotated[float, Gt(-math.inf), Lt(math.inf)]
Positive = Annotated[float, Gt(0), Lt(math.inf)]
Probability = Annotated[float, Ge(0), Le(1)]
Share = Annotated[float, Gt(0), Lt(1)]

BOUNDS = {Ge: "of at least", Gt: "above", Le: "at most", Lt: "below"}
KINDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    int | float: "a number",
    str: "text",
    bool: "true or false",
    dict: "a table",
    Path: "a file or folder",
    Callable: "a function",
}


class Settings:
    """Base of all settings: frozen dataclasses that check their fields when an object is built.

    Annotations say what a field accepts, with bounds as `Annotated[int, Ge(1)]` or one of the names of this module,
    such as `Count`. Numbers of NumPy become numbers of Python. Lists become tuples, texts become paths, and whole
    numbers become floats if the annotation asks for them. The keyword `subject` names the settings in errors.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Walk(Settings, subject="walk"):
    ...     n_steps: Count
    ...     pause_share: Share = 0.5
    >>> Walk(np.int64(3))
    Walk(n_steps=3, pause_share=0.5)
    >>> Walk(2.5, pause_share=1)
    Traceback (most recent call last):
    ppmtf_jax.errors.InputError: walk: 2 problems
      - expected n_steps as a whole number of at least 1; found 2.5.
      - expected pause_share as a number above 0 and below 1; found 1.
    """

    subject: ClassVar[str] = "settings"
    # Run-time type checkers, which our tests use, would refuse values that are converted here.
    __no_type_check__: ClassVar[bool] = True

    def __init_subclass__(cls, *, subject: str | None = None) -> None:
        cls.subject = subject or cls.subject

    def __post_init__(self) -> None:
        problems: list[Problem | str] = []
        for each in fields(self):  # type: ignore[arg-type]
            value, default = getattr(self, each.name), _default(each)
            if value is not MISSING and type(value) is type(default) and value == default:
                continue  # so that pydantic need not be loaded for defaults
            hint = accepted_types(type(self))[each.name]
            try:
                value = converted(value, hint)
            except ValueError:
                found = "nothing" if value is MISSING else repr(_without_numpy(value))
                problems.append(Problem(Message(Setting(each.name), f" as {_describe(hint)}"), found))
                value = default  # for the checks of several fields
            object.__setattr__(self, each.name, value)
        if MISSING not in vars(self).values():
            problems += self.problems()
        raise_any(self.subject, problems)

    def problems(self) -> list[Problem | str]:
        """Problems of several fields together; subclasses override this."""
        return []


def build_settings(kind: type[AnySettings], values: Mapping[str, Any], subject: str) -> AnySettings:
    """Build settings from a mapping, in which "none" is None, as in TOML; all problems are one `InputError`."""
    if not issubclass(kind, Settings):
        raise TypeError(f"{kind.__name__} does not inherit from Settings, so nothing would check its fields")
    hints = accepted_types(kind)
    problems: list[Problem | str] = [_unknown_setting(name, list(hints)) for name in values if name not in hints]
    # A missing setting is given as MISSING, so that it is reported with the other problems.
    given = {each.name: MISSING for each in fields(kind) if _default(each) is MISSING}  # type: ignore[arg-type]
    given |= {name: _from_text(value, hints[name]) for name, value in values.items() if name in hints}
    try:
        built = kind(**given)
    except InputError as error:
        raise InputError(subject, [*problems, *error.problems]) from None
    raise_any(subject, problems)
    return built


def chosen_settings(
    kind: type[AnySettings], settings: AnySettings | Mapping[str, Any] | None, named: Mapping[str, Any], subject: str
) -> AnySettings:
    """The settings that a caller gave as an object, as a mapping or by name; if none of these, the defaults."""
    by_name = isinstance(settings, Mapping)
    problems: list[Problem | str] = []
    if settings is not None and not by_name and not isinstance(settings, kind):
        problems.append(Problem(f"{kind.__name__} or a dict for {subject}", type(settings).__name__))
    if settings is not None and named:
        found = f"{'a dict' if by_name else 'an object'} and {', '.join(named)}"
        problems.append(Problem("settings as an object, as a dict or by name", found))
    raise_any("settings", problems)
    if isinstance(settings, kind):
        return settings
    return build_settings(kind, settings if by_name else named, subject)


@cache
def accepted_types(kind: type) -> dict[str, Any]:
    """The annotation of each field, with its bounds, in the order of the fields."""
    hints: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        hints |= inspect.get_annotations(base, eval_str=True)
    return {each.name: hints[each.name] for each in fields(kind)}


def input_paths(settings: Any) -> dict[str, Path]:
    """The files and folders that settings name, by field."""
    hints = accepted_types(type(settings))
    paths = {name: getattr(settings, name) for name, hint in hints.items() if hint in (Path, Path | None)}
    return {name: path for name, path in paths.items() if path is not None}


def describe_settings(kind: type) -> str:
    """The settings, their defaults and other words: "n_sweeps=100, zeros=sampled (or weighted)"."""
    hints = accepted_types(kind)
    described = []
    for each in fields(kind):
        if each.default is MISSING:
            described.append(f"{each.name} ({_describe(hints[each.name])})")
            continue
        words = [word for word in _words(hints[each.name]) if word != _text(each.default)]
        # A default that depends on other settings is told in words.
        default = each.metadata.get("shown", _text(each.default))
        described.append(f"{each.name}={default}" + (f" (or {', '.join(words)})" if words else ""))
    return ", ".join(described) or "no settings"


def help_of_fields(kind: type) -> dict[str, str]:
    """The help of each field: its text in the section "Parameters" of the class and its bases, on one line."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        docstring = inspect.cleandoc(base.__dict__.get("__doc__") or "")
        section = re.search(r"^Parameters\n-+\n(.*?)(?=^\S[^\n]*\n-+$|\Z)", docstring, re.MULTILINE | re.DOTALL)
        entries = re.findall(
            r"^(\S[^\n]*)\n((?:[ \t][^\n]*\n|\n)*)", section[1] + "\n" if section else "", re.MULTILINE
        )
        for names, text in entries:
            if text.strip():
                found |= dict.fromkeys(names.partition(" : ")[0].replace(" ", "").split(","), " ".join(text.split()))
    return {each.name: found[each.name] for each in fields(kind) if each.name in found}


def parse_assignments(assignments: Iterable[str], subject: str) -> dict[str, Any]:
    """Parse `name=value` texts: a value is as in TOML, or True, False or None as in Python, or else text."""
    return {name: _parse_value(text) for name, text in split_assignments(assignments, subject)}


def parse_choice(text: str, registry: Mapping[str, Any]) -> tuple[Any, Any]:
    """The entry of a registry and its settings, from a text such as "sgd n_copied=2"."""
    name, *assignments = text.split() or [""]
    entry = registry[name]
    return entry, build_settings(entry.settings, parse_assignments(assignments, text), text)


def split_assignments(assignments: Iterable[str], subject: str) -> list[tuple[str, str]]:
    """Split `name=value` texts, with "_" for "-" in names; wrong texts and repeated names are one `InputError`."""
    split = [[part.strip() for part in assignment.partition("=")] for assignment in assignments]
    problems = [Problem("name=value", repr("".join(parts))) for parts in split if not all(parts)]
    pairs = [(name.replace("-", "_"), text) for name, _, text in split]
    for name, count in Counter(name for name, _ in pairs).items():
        if name and count > 1:
            values = ", ".join(text for other, text in pairs if other == name)
            problems.append(Problem(f"one value of {name}", f"{count}: {values}"))
    raise_any(subject, problems)
    return pairs


def _default(of: Field[Any]) -> Any:
    return of.default if of.default_factory is MISSING else of.default_factory()


def converted(value: Any, hint: Any) -> Any:
    """The value as its annotation asks for it; a value that does not fit is a `ValueError`."""
    if isinstance(value, str) and value and Path in types_of(hint) and str not in types_of(hint):
        value = Path(value)
    value = _without_numpy(value)
    return _validator(hint).validate_python(tuple(value) if isinstance(value, (list, range)) else value, strict=True)


def _without_numpy(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's, also within a list."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    return type(value)(map(_without_numpy, value)) if type(value) in (list, tuple) else value


@cache
def _validator(hint: Any) -> Any:
    from pydantic import TypeAdapter  # loading it takes half as long as all of `ppmtf --help`

    return TypeAdapter(hint)


def _from_text(value: Any, hint: Any) -> Any:
    """The value, with None for the text "none" or the text for None, whichever the setting accepts."""
    accepts_none = type(None) in types_of(hint)
    if value is None and not accepts_none and "none" in _words(hint):
        return "none"
    is_none = isinstance(value, str) and value == "none"
    return None if is_none and accepts_none and str not in types_of(hint) else value


def _unknown_setting(name: str, known: list[str]) -> Problem:
    close = difflib.get_close_matches(str(name), known, n=1)
    way_out = f"Did you mean {close[0]}?" if close else ""
    expected = f"settings among {', '.join(known)}" if known else "no settings"
    return Problem(expected, repr(name), way_out=way_out)


def _parse_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return {"none": None, "true": True, "false": False}.get(text.lower(), text)


def _options(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the type itself."""
    is_union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    return typing.get_args(hint) if is_union else (hint,)


def types_of(hint: Any) -> list[Any]:
    """The alternatives without their bounds."""
    return [option.__origin__ if hasattr(option, "__metadata__") else option for option in _options(hint)]


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
    """What a setting accepts, in words."""
    named = [_describe_one(option) for option in _options(hint) if option is not type(None)]
    return " or ".join([name for name in named if name] + [repr(word) for word in _words(hint)])


def _describe_one(option: Any) -> str:
    kind = getattr(option, "__origin__", option)
    if kind is tuple or kind is Sequence:
        return "a list of texts" if str in typing.get_args(option) else "a list of numbers"
    limits = [(BOUNDS[type(bound)], *astuple(bound)) for bound in getattr(option, "__metadata__", ())]
    finite = [f"{words} {limit:g}" for words, limit in limits if math.isfinite(limit)]
    between = " and ".join(finite).replace("of at least 0 and at most", "from 0 to")
    name = KINDS.get(kind, "" if kind is typing.Literal else getattr(kind, "__name__", str(kind)))
    name = name if len(finite) == len(limits) else name.replace("a ", "a finite ")
    return f"{name} {between}".strip()


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value) or "''"
