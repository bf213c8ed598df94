"""Options of the commands: options that several commands share, and options that are made from settings.

The settings of a step are defined once, as a frozen dataclass. Its fields become options: `n_places` becomes
`--places N`, `step_s` becomes `--step SECONDS`, and a required `path` becomes an argument. The help of an option is the
text of the field in the docstring of the class.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.runtime.files import check_output_file
from ppmtf_jax.settings import accepted_types, build_settings, help_of_fields, split_assignments, types_of
from ppmtf_jax.streams import check_seed

# Longer lists of choices leave no room for the help in a narrow terminal; then the sentence of the help names them.
MAX_WORDS = 8
Command = Callable[..., None]


def option(name: str, text: str, **more: Any) -> Any:
    """An option of a command, such as "--out FOLDER", with its help."""
    flag, _, value = name.partition(" ")
    return typer.Option(flag, metavar=value or None, help=text, **more)


def argument(name: str, text: str) -> Any:
    """An argument of a command, with its help."""
    return typer.Argument(metavar=name, help=text)


Out = Annotated[Path, option("--out FOLDER", "Where to write; the name must be free.")]
Overwrite = Annotated[bool, option("--overwrite", "Replace an earlier output of this command.")]
Seed = Annotated[
    int | None,
    option(
        "--seed N",
        "The same seed gives the same result, except for differentially private noise, which has no seed. Keep it "
        "secret. By default, a seed is drawn.",
        callback=lambda seed: None if seed is None else check_seed(seed),
    ),
]
Quiet = Annotated[bool, option("--quiet", "Show no progress.")]
Engine = Annotated[
    str,
    option(
        "--engine NAME",
        "Where to work on parts of the users: threads, processes:4, dask:tcp://HOST:8786, ray or spark.",
    ),
]
Train = Annotated[Path, argument("TRAIN", "Trace set of the training users.")]
TrainOption = Annotated[Path, option("--train TRAIN", "Trace set of the training users.")]
TestOption = Annotated[Path, option("--test TEST", "Trace set of the test users, whose data the model never saw.")]
Json = Annotated[Path | None, option("--json FILE", "Write the numbers to this file too.")]
Model = Annotated[Path, argument("MODEL", "Model folder, made by `ppmtf fit`.")]


def check_picture(file: Path | None, *, overwrite: bool) -> None:
    """Refuse a picture that cannot be written, before the work and not after it."""
    if file is not None:
        from ppmtf_jax.evaluation.plots import check_picture_name, is_own_picture

        check_picture_name(file)
        check_output_file(file, overwrite=overwrite, is_ours=is_own_picture, what="an earlier picture")


def with_settings(
    kind: type, *others: type, without: tuple[str, ...] = (), into: str = "settings"
) -> Callable[[Command], Command]:
    """Replace a command's parameter `into` by the options of settings; the fields `without` get no option.

    With several kinds of settings, the parameter becomes a dict of the options that differ from their defaults: the
    command finds out which kind it needs. If kinds have a field of the same name, the help is that of the first.
    """
    hints, texts, chosen = {}, {}, {}
    for each in (kind, *others):
        hints, texts = accepted_types(each) | hints, help_of_fields(each) | texts
        chosen |= {field.name: field for field in fields(each) if field.name not in {*without, *chosen}}
    options = [_parameter(field, hints[name], texts.get(name, "")) for name, field in chosen.items()]

    def decorate(command: Command) -> Command:
        def call(**values: Any) -> None:
            given = {name: _parsed(values.pop(name), hints[name], name) for name in chosen}
            given = {name: value for name, value in given.items() if value is not None}
            if others:
                settings: Any = {name: value for name, value in given.items() if value != chosen[name].default}
            else:
                settings = build_settings(kind, given, command.__name__.replace("_", " "))
            command(**{into: settings}, **values)

        annotations = typing.get_type_hints(command, include_extras=True)
        own = [
            each.replace(annotation=annotations[name], kind=inspect.Parameter.KEYWORD_ONLY)
            for name, each in inspect.signature(command).parameters.items()
            if name != into
        ]
        parameters = sorted([*options, *own], key=lambda each: each.default is not inspect.Parameter.empty)
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {each.name: each.annotation for each in parameters}
        call.__name__, call.__doc__ = command.__name__, command.__doc__
        return call

    return decorate


def option_name(field_name: str) -> str:
    """The option of a field: its name without the parts that mark a number, a time or a length.

    Examples
    --------
    >>> option_name("n_places"), option_name("max_gap_s"), option_name("count_all")
    ('--places', '--max-gap', '--count-all')
    """
    return "--" + field_name.removeprefix("n_").removesuffix("_s").removesuffix("_m").replace("_", "-")


def _parameter(field: Field[Any], hint: Any, text: str) -> inspect.Parameter:
    """The parameter of a command that becomes the field's option, or argument."""
    name, kind = field.name, _kind_of(hint)
    is_required = field.default is MISSING and field.default_factory is MISSING
    # Only the first sentence, because help should be short.
    text = text.split(". ")[0].rstrip(".") + "." if text else ""
    annotation, default = kind, inspect.Parameter.empty if is_required else field.default
    if kind is Path and is_required:
        about = argument(name.upper(), text)
    else:
        flag = option_name(name)
        if kind is bool and field.default is True:
            flag = f"{flag}/--no-{flag.removeprefix('--')}"
        about = typer.Option(flag, metavar=_metavar(name, kind), help=text)
        if _is_structured(kind):
            annotation, default = str | None, inspect.Parameter.empty if is_required else None
        elif type(None) in types_of(hint):
            annotation = kind | None
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, annotation=Annotated[annotation, about], default=default)


def _kind_of(hint: Any) -> Any:
    """The type that a hint allows: float if it is one of several, otherwise the first."""
    kinds = [kind for kind in types_of(hint) if kind is not type(None)]
    return float if float in kinds else kinds[0]


def _is_structured(kind: Any) -> bool:
    """Whether an option has several values with commas between them."""
    return typing.get_origin(kind) is tuple or kind is dict


def _metavar(name: str, kind: Any) -> str | None:
    words = "|".join(map(str, typing.get_args(kind))) if typing.get_origin(kind) is typing.Literal else ""
    if kind is bool or 0 < len(words) < MAX_WORDS:
        return None
    if words:
        return "WORD"
    if typing.get_origin(kind) is tuple:
        return "NUMBERS"
    units = {"_s": "SECONDS", "_m": "METRES"}
    return units.get(name[-2:]) or {int: "N", float: "X", Path: "FILE", dict: "NAME=COLUMN,..."}.get(kind, "TEXT")


def _parsed(value: Any, hint: Any, name: str) -> Any:
    """Parse the text of an option into a tuple of numbers or a table."""
    kind = _kind_of(hint)
    if not isinstance(value, str) or not _is_structured(kind):
        return value
    if kind is dict:
        pairs = split_assignments(value.split(","), option_name(name))
        return {key: int(column) if column.isdecimal() else column for key, column in pairs}
    try:
        return tuple(float(part) if "." in part else int(part) for part in value.split(","))
    except ValueError:
        raise InputError(option_name(name), [Problem("numbers with commas between them", repr(value))]) from None
