"""Quantities for testing convergence: they do not depend on the order of the factors' columns."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["log_joint", "rmse", "size", "held_out", "held_out_average", "cell"]

TITLES: dict[Kind, str] = {
    "log_joint": "log joint density",
    "rmse": "error at {of}",
    "size": "mean square of {of}",
    "held_out": "error at held-out {of}",
    "held_out_average": "error at held-out {of}, averaged",
    "cell": "predicted cell {number} of {of}",
}


class Quantity(NamedTuple):
    """A quantity that is recorded after each sweep; `str` gives a short name, for columns of files.

    Examples
    --------
    >>> str(Quantity("cell", "visits", 3)), Quantity("size", "next_place").title
    ('cell_visits_3', 'mean square of next_place')
    """

    # log_joint; rmse: weighted root mean square error over the observed cells of a tensor; size: mean square of the
    # entries of a factor; held_out: root mean square error of a draw at the held-out cells of a tensor;
    # held_out_average: the same error for the average prediction so far, after the burn-in; cell: prediction of one
    # held-out cell.
    kind: Kind
    of: str = ""  # the tensor or the factor; empty for log_joint
    number: int | None = None  # number of the held-out cell

    @property
    def title(self) -> str:
        """The quantity in words."""
        return TITLES[self.kind].format(of=self.of, number=self.number)

    def __str__(self) -> str:
        return "_".join(str(part) for part in self if part not in ("", None))
