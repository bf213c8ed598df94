"""A report on one page: what synthetic traces keep, what they leak and what is guaranteed, in plain words.

`compose_report` makes the sections, each a file in `sections/`, of `ReportData`; `render` makes a page of them. What
the page shows is computed apart from how it looks.
"""

from ppmtf_jax.evaluation.report.blocks import Report, Status
from ppmtf_jax.evaluation.report.composing import compose_report
from ppmtf_jax.evaluation.report.inputs import ReportData, ReportSettings
from ppmtf_jax.evaluation.report.registry import SECTIONS, section
from ppmtf_jax.evaluation.report.rendering import is_report, render

__all__ = [
    "SECTIONS",
    "Report",
    "ReportData",
    "ReportSettings",
    "Status",
    "compose_report",
    "is_report",
    "render",
    "section",
]
