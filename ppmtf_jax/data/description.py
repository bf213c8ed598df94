"""Large objects as text: a few lines, and tables of counts and quantiles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from textwrap import wrap
from typing import Any

import numpy as np
import pandas as pd

WIDTH, MAX_LINES, MAX_LINES_EACH = 79, 10, 3


def counted(number: int, what: str) -> str:
    """A number with its noun, such as "1 user" or "2,500 users"."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def percent(share: float, digits: int = 0) -> str:
    """A share in percent; only 0 and 1 are printed as 0 % and 100 %.

    Examples
    --------
    >>> percent(0.234), percent(0.0), percent(2 / 25200), percent(0.9999, 1)
    ('23 %', '0 %', 'less than 1 %', 'more than 99.9 %')
    """
    least = 10.0**-digits
    shown = round(100 * share, digits) if 0 < share < 1 else None
    if shown == 0:
        return f"less than {least:.{digits}f} %"
    return f"more than {100 - least:.{digits}f} %" if shown == 100 else f"{100 * share:.{digits}f} %"


def share_of(part: int, whole: int, what: str) -> str:
    """Two counts with their share.

    Examples
    --------
    >>> share_of(2, 25_200, "events")
    '2 of 25,200 events (less than 0.1 %)'
    """
    return f"{part:,} of {whole:,} {what} ({percent(part / whole, 1)})"


def at_most(share: float) -> str:
    """A bound on a share in percent, rounded up to one digit.

    Examples
    --------
    >>> at_most(0.23191)
    '23.2 %'
    """
    return f"{math.ceil(1000 * share) / 10:g} %"


def in_lines(title: str, parts: Mapping[str, str]) -> str:
    """A title and the named texts that are not empty below it, at most ten lines; longer texts end in "..."."""
    shown = {name: text for name, text in parts.items() if text}
    margin = max(map(len, shown), default=0) + 2
    lines = wrap(title, WIDTH, max_lines=MAX_LINES_EACH, placeholder=" ...")
    for name, text in shown.items():
        left = max(0, min(MAX_LINES_EACH, MAX_LINES - len(lines)))
        wrapped = wrap(text, WIDTH - 2 - margin, max_lines=left, placeholder=" ...") if left else []
        lines += [f"  {head:<{margin}}{line}" for head, line in zip([name, *[""] * left], wrapped, strict=False)]
    return "\n".join(lines)


def quantiles(samples: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Count, sum, mean, minimum, median and maximum of samples of whole numbers, a row for each sample."""
    rows = [
        {
            "count": len(sample),
            "sum": int(sample.sum(dtype=np.int64)),
            "mean": float(sample.mean()) if len(sample) else np.nan,
            "min": int(sample.min()) if len(sample) else pd.NA,
            "median": float(np.median(sample)) if len(sample) else np.nan,
            "max": int(sample.max()) if len(sample) else pd.NA,
        }
        for sample in samples.values()
    ]
    whole = dict.fromkeys(("count", "sum", "min", "max"), "Int64")
    return pd.DataFrame(rows, index=list(samples)).astype(whole)


def finite_or_none(content: Any) -> Any:
    """The same numbers, lists and dicts with None for NaN and infinity, which JSON does not have."""
    if isinstance(content, dict):
        return {key: finite_or_none(value) for key, value in content.items()}
    if type(content) in (list, tuple):
        return type(content)(map(finite_or_none, content))
    return None if isinstance(content, float) and not math.isfinite(content) else content
