"""The steps that export traces and populations for maps; only exports of a release alone may be read by others."""

from __future__ import annotations

from dataclasses import dataclass

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.exports.layers import Layer, population_layer, trace_layer
from ppmtf_jax.exports.registry import check_export, write_layer
from ppmtf_jax.jobs.steps import load_released
from ppmtf_jax.privacy.release import is_release
from ppmtf_jax.runtime.files import PathLike

RELEASED, UNTESTED, OF_NOBODY, REAL = "released", "synthetic", "of nobody", "real"


@dataclass(frozen=True, eq=False)
class Exported:
    """What was written, and the kinds of traces that it was made from: "released", "synthetic", "of nobody", "real"."""

    layer: Layer
    whose: tuple[str, ...]

    @property
    def public(self) -> bool:
        """Whether others may read the file."""
        return set(self.whose) == {RELEASED}


def export_traces(
    traces: PathLike,
    out: PathLike,
    format_name: str | None = None,
    *,
    n_traces: int | None = None,
    seed: int = 0,
    of_real_people: bool = False,
    overwrite: bool = False,
    progress: bool = False,
) -> Exported:
    """Write the events of all traces or of a sample (see `trace_layer`).

    Traces of real people are refused unless the caller asks for them with `of_real_people`.
    """
    check_export(out, format_name, of_traces=True, overwrite=overwrite)
    loaded, whose = _load(traces, progress)
    if whose == REAL and not of_real_people:
        way_out = (
            "Each trace would show where somebody was, and when. Export a release or synthetic traces; or say that you "
            "want it (--of-real-people)"
        )
        raise InputError(str(traces), [Problem("released or synthetic traces", "real ones", way_out=way_out)])
    exported = Exported(trace_layer(loaded, n_traces, seed=seed), (whose,))
    write_layer(exported.layer, out, format_name, public=exported.public, overwrite=overwrite)
    return exported


def export_population(
    traces: PathLike,
    out: PathLike,
    format_name: str | None = None,
    *,
    real: PathLike | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Exported:
    """Write the number of events at each place in each hour, beside those of `real` traces with the same places."""
    check_export(out, format_name, of_traces=False, overwrite=overwrite)
    loaded, whose = _load(traces, progress)
    # Nobody should take real traces for synthetic traces.
    sets, of_whom = {"real" if whose == REAL and real is None else "synthetic": loaded}, (whose,)
    if real is not None:
        compared = Traces.load(real, progress=progress)
        sets = {"synthetic": load_released(traces, compared, None) if whose == RELEASED else loaded, "real": compared}
        of_whom = (whose, REAL)
    exported = Exported(population_layer(sets), of_whom)
    write_layer(exported.layer, out, format_name, public=exported.public, overwrite=overwrite)
    return exported


def _load(folder: PathLike, progress: bool) -> tuple[Traces, str]:
    traces = Traces.load(folder, progress=progress)
    if is_release(folder):
        return traces, RELEASED
    if traces.of_nobody:
        return traces, OF_NOBODY
    return traces, REAL if traces.origin is None else UNTESTED
