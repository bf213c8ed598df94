"""A private file that keeps what is known of finished shadow models, so that a long attack goes on where it stopped."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ppmtf_jax.attacks.membership.trace_statistics import STATISTICS
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.runtime.files import atomic_file, read_own
from ppmtf_jax.runtime.lineage import digest_of

Statistics = Float[np.ndarray, "statistic user"]


@dataclass(frozen=True)
class ShadowCheckpoint:
    """The statistics of finished shadow models in a file, which only its owner may read.

    Parameters
    ----------
    path : Path
    digest : str
        Of all that decides what shadow models are, see `shadow_digest`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = ShadowCheckpoint(Path(folder) / "shadows.npz", "abc")
    ...     kept.save([np.zeros((2, 3))])
    ...     len(kept.load()), len(ShadowCheckpoint(kept.path, "other").load(print))
    shadow models: shadows.npz is of other data or settings; they begin anew
    (1, 0)
    """

    path: Path
    digest: str

    def save(self, statistics: Sequence[Statistics]) -> None:
        """Keep those of all shadow models that are finished."""
        with atomic_file(self.path) as partial, open(partial, "wb") as file:
            np.savez(file, digest=np.array(self.digest), statistics=np.array(statistics))

    def load(self, say: Callable[[str], None] = lambda _: None) -> list[Statistics]:
        """Those that are kept, or none where the file is missing, damaged, or of other data or settings: says so.

        Raises
        ------
        InputError
            Somebody else could have put the file there, see `runtime.files.open_own`.
        """
        if not os.path.lexists(self.path):
            return []
        try:
            with np.load(io.BytesIO(read_own(self.path))) as kept:
                if str(kept["digest"]) == self.digest:
                    return list(kept["statistics"])
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
            say(f"shadow models: {self.path.name} cannot be read; they begin anew")
            return []
        say(f"shadow models: {self.path.name} is of other data or settings; they begin anew")
        return []


def shadow_digest(settings: dict[str, Any], seed: int, *real: Traces) -> str:
    """Of all that decides what shadow models make, and of whom their statistics are.

    Parameters
    ----------
    settings : dict
        Of the attack and of how many traces are made; without the number of shadow models, for more of them go on.
    seed : int
    *real : Traces
        Of training users and of others.
    """
    told = json.dumps(settings, default=str, sort_keys=True)
    # The digest of traces leaves out users without an event.
    users = [[str(each) for each in traces.user_ids.tolist()] for traces in real]
    return digest_of(version("ppmtf_jax"), list(STATISTICS), told, seed, users, [traces.digest for traces in real])
