"""The type checker of the tests: it checks every annotated call, shapes included.

jaxtyping decorates all functions and data classes of the package when they are imported (`--jaxtyping-packages` in
pyproject.toml). Its own decorator binds the arguments of each call to a signature and checks them twice, for its
messages, which was a seventh of the time of the tests. Here beartype checks arguments and result once; where there are
shapes, it does so in a context of jaxtyping, in which an axis has one length. Most of the 4,000 functions are never
called in a run, so a check is prepared at the first call.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from types import CodeType
from typing import Any, get_args, get_type_hints

import jaxtyping
from beartype import BeartypeConf, beartype

WITH_SHAPES = jaxtyping.jaxtyped
# A TypeError, as jaxtyping raises.
CHECKED = beartype(conf=BeartypeConf(violation_type=TypeError))

# A function inside a function is made anew at each call of the outer one. Only the first one is checked: preparing the
# same check again took half of the time of some tests.
NESTED: set[CodeType] = set()


def lazily(thing: Any = None, **_: object) -> Any:
    """Check every call of a function, or of the `__init__` of a data class, from the first one on."""
    if thing is None:
        return lazily
    if isinstance(thing, classmethod | staticmethod):
        return type(thing)(lazily(thing.__func__))
    if inspect.isclass(thing):
        if dataclasses.is_dataclass(thing) and not getattr(thing, "__no_type_check__", False):
            thing.__init__ = lazily(thing.__init__)
        return thing
    if not inspect.isfunction(thing):
        return WITH_SHAPES(thing, typechecker=beartype)
    if "<locals>" in thing.__qualname__:
        if thing.__code__ in NESTED:
            return thing
        NESTED.add(thing.__code__)
    checked = None

    @functools.wraps(thing)
    def check(*arguments: Any, **options: Any) -> Any:
        nonlocal checked
        if jaxtyping.config.jaxtyping_disable:
            return thing(*arguments, **options)
        if checked is None:
            checked = _checked(thing)
        return checked(*arguments, **options)

    return check


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception:  # a name that only a type checker imports: jaxtyping takes it for Any
        return WITH_SHAPES(function, typechecker=beartype)
    has_shapes = any(map(_has_shape, hints.values()))
    if has_shapes and inspect.isgeneratorfunction(function):  # it would run when the context is left
        return WITH_SHAPES(function, typechecker=beartype)
    function.__annotations__ = hints
    checked = CHECKED(function)
    return _in_context(checked) if has_shapes else checked


def _in_context(checked: Callable[..., Any]) -> Callable[..., Any]:
    def check(*arguments: Any, **options: Any) -> Any:
        with WITH_SHAPES("context"):
            return checked(*arguments, **options)

    return check


def _has_shape(hint: Any) -> bool:
    if isinstance(hint, list):  # the arguments of a callable
        return any(map(_has_shape, hint))
    return type(hint).__module__.startswith("jaxtyping") or any(map(_has_shape, get_args(hint)))


# The code that the import hook writes looks the decorator up here, for every function.
jaxtyping.jaxtyped = lazily
