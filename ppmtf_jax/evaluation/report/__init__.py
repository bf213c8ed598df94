"""A report on one page: what synthetic traces keep, what they give away and what is guaranteed, in plain words.

`compose_report` makes the sections, each a file in `sections/`, of a `Material`; `render` makes a page of them. What
the page shows is computed apart from how it looks.
"""

from ppmtf_jax.evaluation.report.composing import compose_report
from ppmtf_jax.evaluation.report.content import Report, Status
from ppmtf_jax.evaluation.report.material import Material, ReportSettings
from ppmtf_jax.evaluation.report.registry import SECTIONS, SectionMaker
from ppmtf_jax.evaluation.report.rendering import is_report, render

__all__ = [
    "SECTIONS",
    "Material",
    "Report",
    "ReportSettings",
    "SectionMaker",
    "Status",
    "compose_report",
    "is_report",
    "render",
]
