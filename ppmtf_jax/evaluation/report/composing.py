"""From material to a report: every section in turn, and a sentence in the place of one that cannot be made."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

from ppmtf_jax.errors import InputError, NumericalError
from ppmtf_jax.evaluation.report.content import Content, Light, Report, Section, Status, Text
from ppmtf_jax.evaluation.report.material import Material, Unavailable
from ppmtf_jax.evaluation.report.registry import PARTS, SECTIONS, SectionMaker
from ppmtf_jax.runtime.progress import progress_bar

LEFT_OUT = "Not known: the data are not such that it can be told."


def compose_report(
    material: Material, *, progress: bool = False, say: Callable[[str], None] = lambda _: None
) -> Report:
    """Make every section of a report.

    Parameters
    ----------
    material : Material
    progress : bool
        Show a progress bar where there is a terminal.
    say : function of a str
        Is told which section is made.
    """
    makers = sorted(SECTIONS.values(), key=lambda maker: PARTS.index(maker.part))
    sections = []
    with progress_bar("writing the report", len(makers), show=progress, waits_for="") as advance:
        for maker in makers:
            say(f"{maker.title} ...")
            sections.append(Section(maker.name, maker.part, maker.title, maker.lead, content_of(maker, material)))
            advance(1)
    return Report(_title(material), _subtitle(material), sections, date.today().isoformat())


def content_of(maker: SectionMaker, material: Material) -> Content:
    """What a section has to say, or a sentence on why it cannot be made."""
    try:
        return maker.make(material)
    except Unavailable as error:
        reason = str(error)
    except InputError as error:
        # Examples and what was found may name users: only what was expected is told.
        needed = "; ".join(getattr(problem, "expected", "other input") for problem in error.problems)
        reason = f"It needs {needed}."
    except NumericalError:
        reason = "The computation did not stay within finite numbers."
    lights = [Light(maker.question, Status.UNKNOWN, reason, LEFT_OUT)] if maker.question else []
    return Content([Text((f"Left out. {reason}",))], lights)


def _title(material: Material) -> str:
    return "Report on synthetic traces" + (f" ({material.source})" if material.source else "")


def _subtitle(material: Material) -> str:
    n, what = material.n_synthetic, "released" if material.is_release else "synthetic"
    by = f" by {material.model.system}" if material.model else ""
    return (
        f"{n:,} {what} trace{'s' * (n != 1)} made{by} from {material.train.n_events:,} events of "
        f"{material.train.n_users:,} people at {material.train.n_places:,} places."
    )
