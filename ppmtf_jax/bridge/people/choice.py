"""What synthetic people may remember, and a sentence about the choice."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Array, Float

Memory = Literal["none", "places", "anchors"]
MEMORIES: tuple[Memory, ...] = ("none", "places", "anchors")
"""The choices, simplest first: nothing; the places of the trace; these places, a home and a second place."""
_IN_WORDS = {
    "none": "People remember nothing",
    "places": "People remember the places of their trace",
    "anchors": "People remember the places of their trace, and have a home and maybe a second place",
}


def memory_sentence(memory: Memory, gain: Float[Array, " memory"] | None) -> str:
    """A sentence for the summary of a model; `gain` as in `ClusterBridge.memory_gain`."""
    if gain is None:
        return f"{_IN_WORDS[memory]}; nothing else was compared"
    tried = dict(zip(MEMORIES, np.asarray(gain), strict=True))
    others = ", ".join(f"{name} {value:+.3f}" for name, value in tried.items() if name != "none")
    return (
        f"{_IN_WORDS[memory]}. This was chosen on held-out training users: log-probability of an event, compared with "
        f"people who remember nothing, in nats: {others}"
    )
