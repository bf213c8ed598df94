"""Entropy of sequences of places: how hard it is to foretell the next place of a person who has been watched so far."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.data.runs import rank_in_run
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.evaluation.metrics.windows import SEED, Sample, mean_difference, window_metric
from ppmtf_jax.streams import Stage, numpy_stream

MIN_ENTROPY_EVENTS = 20
MAX_WINDOWS = 2000
# At most so many pairs of events are compared for a set: this bounds the time.
MAX_PAIRS = 2**29
# Windows that are processed at a time.
BLOCK = 256
# Random-stream number; see windows.py.
WINDOWS = 4
ABSENT = -1


@window_metric(
    "entropy_difference",
    "Entropy, bits",
    "Lempel-Ziv estimate of the entropy of the next place given all places before it, mean over windows of at "
    f"least {MIN_ENTROPY_EVENTS} events: synthetic users minus test users.",
    mean_difference,
    unit="bits an event",
    scale="bits",
    plain="How regular people are",
    section="persons",
    uses=("weeks",),
    min_events=MIN_ENTROPY_EVENTS,
)
def entropies(windows: Windows) -> Sample:
    """Entropy of each window in bits, see `lempel_ziv_entropy`.

    At most 2,000 random windows (fixed seed) are measured, fewer if they have very many events.
    """
    if not windows.n_windows:
        return Sample(windows.user, np.zeros(0))
    n_measured = min(MAX_WINDOWS, windows.n_windows, max(MAX_PAIRS // int(windows.events_per_window().max()) ** 2, 1))
    chosen = np.zeros(windows.n_windows, bool)
    chosen[numpy_stream(SEED, Stage.METRICS, WINDOWS).permutation(windows.n_windows)[:n_measured]] = True
    windows = windows.select(chosen)
    n_events = windows.events_per_window()
    place = np.full((windows.n_windows, n_events.max()), ABSENT, np.int32)
    place[windows.window, rank_in_run(windows.window)] = windows.place
    blocks = range(0, windows.n_windows, BLOCK)
    entropy = [lempel_ziv_entropy(place[first : first + BLOCK], n_events[first : first + BLOCK]) for first in blocks]
    return Sample(windows.user, np.concatenate(entropy))


def lempel_ziv_entropy(
    place: Int[np.ndarray, "window event"], n_events: Int[np.ndarray, " window"]
) -> Float[np.ndarray, " window"]:
    """Lempel-Ziv estimate of the entropy rate of sequences of places, in bits an event (Kontoyiannis et al. 1998).

    For n events, it is n log2(n) divided by the sum over events of a length: that of the shortest sequence of places
    that begins at the event and does not occur among the events before it. A sequence that occurs there up to the last
    event counts as one longer. Places are in the order of time. `n_events` has the number of events of each window, at
    least 1; events after these are not read.

    Examples
    --------
    Always at one place: the lengths are 1, 2, 3 and 2.

    >>> lempel_ziv_entropy(np.array([[7, 7, 7, 7]]), np.array([4])).tolist()
    [1.0]
    """
    counted = np.arange(place.shape[1]) < n_events[:, None]
    total = np.zeros(len(place))
    # common[:, j]: how many places the sequences from event i and from event j on have in common, for all j < i.
    common = np.zeros((len(place), place.shape[1] + 1), np.int32)
    for event in reversed(range(place.shape[1])):
        same = (place[:, :event] == place[:, event, None]) & counted[:, event, None]
        common = np.where(same, common[:, 1 : event + 1] + 1, 0)
        # A sequence that begins at j must end before the event.
        longest = np.minimum(common, event - np.arange(event)).max(axis=1, initial=0)
        total += np.where(counted[:, event], longest + 1, 0)
    return n_events * np.log2(n_events) / total
