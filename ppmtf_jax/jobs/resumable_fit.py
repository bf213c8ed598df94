"""A single fit that continues where it was stopped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.jobs.steps import AnySeed, fit_model
from ppmtf_jax.runtime.devices import is_first_process
from ppmtf_jax.runtime.files import PathLike, clear_leftovers, exclusive_use, read_own, remove, write_text
from ppmtf_jax.runtime.folders import check_output_folder
from ppmtf_jax.streams import Seed, draw_seed
from ppmtf_jax.synthesizers.fitted_model import MODEL, FittedModel
from ppmtf_jax.synthesizers.registry import DEFAULT_SYSTEM


def fit_resumably(
    train: PathLike,
    out: PathLike,
    system: str = DEFAULT_SYSTEM,
    settings: Any = None,
    *,
    seed: AnySeed = None,
    overwrite: bool = False,
    progress: bool = False,
) -> FittedModel:
    """Learn a model of a trace set; a fit that was stopped continues when this is called again in the same way.

    The state and the seed are kept beside `out` until the fit is done. Only one fit at a time writes a model.
    """
    final = Path(os.path.abspath(out))
    checkpoint, seed_file, lock = (
        final.with_name(f".{final.name}.checkpoint.{suffix}") for suffix in ("npz", "json", "lock")
    )

    def fit(seed: AnySeed) -> FittedModel:
        return fit_model(
            train, out, system, settings, seed=seed, checkpoint=checkpoint, overwrite=overwrite, progress=progress
        )

    if not is_first_process():
        return fit(seed)
    check_output_folder(out, MODEL, overwrite=overwrite, inputs=[train])
    with exclusive_use(lock):
        clear_leftovers(final.parent, [final.name, checkpoint.name, seed_file.name])
        try:
            model = fit(kept_seed(seed_file, seed))
        finally:
            # Without a state to continue from, the seed is of no use.
            if not checkpoint.exists():
                remove(seed_file)
        remove(checkpoint)
        remove(seed_file)
        return model


def kept_seed(file: Path, seed: AnySeed) -> Seed:
    """The given seed; otherwise the seed in the file; otherwise a drawn seed, which the file then keeps.

    So stopped work continues with its first seed. A file that others could have written is refused; see
    `runtime.files.open_own`.
    """
    if seed is not None:
        return draw_seed(seed)
    if os.path.lexists(file):
        # The release will say that this seed came from the operating system, so nobody else may have chosen it.
        content = read_own(file)
        try:
            return Seed(draw_seed(json.loads(content)["seed"]).value, given=False)
        except (OSError, ValueError, KeyError, TypeError) as error:
            way_out = "Remove it to begin anew with another seed"
            raise InputError(str(file), [Problem("a readable seed", str(error), way_out=way_out)]) from error
    drawn = draw_seed(None)
    write_text(file, json.dumps({"seed": drawn.value}) + "\n")
    return drawn
