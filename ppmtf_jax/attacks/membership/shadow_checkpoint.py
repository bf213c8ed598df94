"""A private file with the results of finished shadow models, so that a stopped attack can continue."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ppmtf_jax.attacks.membership.trace_statistics import STATISTICS
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.runtime.files import atomic_file, read_own
from ppmtf_jax.runtime.folders import digest_of, digest_of_sources

Statistics = Float[np.ndarray, "statistic user"]


@dataclass(frozen=True)
class ShadowCheckpoint:
    """The statistics of finished shadow models in a file that only its owner may read.

    `digest` identifies the data and settings, see `shadow_digest`.
    """

    path: Path
    digest: str

    def save(self, statistics: Sequence[Statistics]) -> None:
        """Write the statistics of all finished shadow models."""
        with atomic_file(self.path) as partial, open(partial, "wb") as file:
            np.savez(file, digest=np.array(self.digest), statistics=np.array(statistics))

    def load(self, say: Callable[[str], None] = lambda _: None) -> list[Statistics]:
        """Read the statistics; an empty list, with a message, if the file is damaged or has other data or settings.

        Raises `InputError` if somebody else could have put the file there, see `runtime.files.open_own`.
        """
        if not os.path.lexists(self.path):
            return []
        try:
            with np.load(io.BytesIO(read_own(self.path))) as kept:
                if str(kept["digest"]) == self.digest:
                    return list(kept["statistics"])
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
            say(f"shadow models: {self.path.name} cannot be read; starting again")
            return []
        say(f"shadow models: {self.path.name} is from other data or settings; starting again")
        return []


def shadow_digest(settings: dict[str, Any], seed: int, *real: Traces) -> str:
    """Digest of everything that determines the statistics of shadow models.

    `settings` does not have the number of shadow models: an attack with more models continues from the same file.
    """
    told = json.dumps(settings, default=str, sort_keys=True)
    # The digest of traces leaves out users without an event.
    users = [[str(each) for each in traces.user_ids.tolist()] for traces in real]
    return digest_of(digest_of_sources(), list(STATISTICS), told, seed, users, [traces.digest for traces in real])
