"""A report on one page, in plain words: utility, leaks and guarantees of synthetic traces.

`compose_report` makes the sections from `ReportData`; their functions are in `sections/`. `render` makes the page.
"""

from ppmtf_jax.evaluation.report.compose import SECTIONS, compose_report, section
from ppmtf_jax.evaluation.report.inputs import ReportData, ReportSettings
from ppmtf_jax.evaluation.report.page import Report, Status, is_report, render

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
