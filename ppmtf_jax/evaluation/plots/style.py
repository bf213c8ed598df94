"""How all pictures look."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

if TYPE_CHECKING:
    import matplotlib.figure

P = ParamSpec("P")

DPI = 150
# Of Okabe and Ito, told apart with any colour vision.
LINE_COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"]
MAP_COLOURS = "YlGnBu"
NOTHING = "#F0F0F0"
DIM = "#666666"
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "figure.titlesize": 11,
    "legend.title_fontsize": 11,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    # Ids and categories may hold dollar signs; they are text, not formulas.
    "text.parse_math": False,
}


def styled(draw: Callable[P, matplotlib.figure.Figure]) -> Callable[P, matplotlib.figure.Figure]:
    """Let a function draw in `STYLE`.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> styled(lambda: Figure())().axes
    []
    """

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> matplotlib.figure.Figure:
        import matplotlib

        with matplotlib.rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawn
