"""Sizes of arrays that share a compiled program."""

from __future__ import annotations


def round_up(n: int, steps: int = 8) -> int:
    """Round up to one of `steps` sizes between powers of two, so that data of similar size share a compiled program.

    Examples
    --------
    >>> [round_up(n, steps=2) for n in (4, 5, 7, 9, 12, 13)]
    [4, 6, 8, 12, 12, 16]
    """
    step = max(1, (1 << n.bit_length()) // (2 * steps))
    return -(-n // step) * step
