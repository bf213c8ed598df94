"""The type checker of the tests, which prepares the check of a function at its first call."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

from beartype import beartype

# Code of functions inside of functions that are checked already.
NESTED: set[CodeType] = set()


def lazily(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check every call by beartype. A run calls few of the 4,000 functions; a check takes 1 ms to prepare.

    A function inside of a function is made anew at each call of the outer one. Only the first one is checked: half of
    the time of some tests was the preparation of the same check.
    """
    if "<locals>" in function.__qualname__:
        if function.__code__ in NESTED:
            return function
        NESTED.add(function.__code__)
    checked = None

    def check(*arguments: Any, **options: Any) -> Any:
        nonlocal checked
        if checked is None:
            checked = beartype(function)
        return checked(*arguments, **options)

    return check
