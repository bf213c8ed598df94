"""The type checker of the tests, which prepares the check of a function at its first call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from beartype import beartype


def lazily(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check every call by beartype. A run calls few of the 4,000 functions; a check takes 1 ms to prepare."""
    checked = None

    def check(*arguments: Any, **options: Any) -> Any:
        nonlocal checked
        if checked is None:
            checked = beartype(function)
        return checked(*arguments, **options)

    return check
