"""All numbers of the evaluation."""

from __future__ import annotations

from ppmtf_jax.evaluation.report.blocks import Block, Details, Table, Text
from ppmtf_jax.evaluation.report.inputs import ReportData
from ppmtf_jax.evaluation.report.registry import NUMBERS, section
from ppmtf_jax.evaluation.tables import references_text


@section(
    "numbers",
    NUMBERS,
    "All numbers, for those who want them",
    "All numbers that were measured: of these traces, of other systems in the comparison, of the real training data "
    "and of random places.",
)
def make(data: ReportData) -> list[Block]:
    """A table for utility and one for privacy, remarks, and what each number means."""
    evaluation = data.evaluation
    columns = [name[:1].upper() + name[1:] for name in evaluation.columns]
    blocks: list[Block] = []
    for kind in ("utility", "privacy"):
        rows = [row for row in evaluation.rows if row.kind == kind]
        if rows:
            caption = f"Numbers of {kind}, as `ppmtf evaluate` prints them"
            cells = []
            for row in rows:
                better = f"{row.quantity.better} is better" if row.quantity.better else ""
                good = "; ".join(filter(None, [row.quantity.good_value, better, references_text(row.reading)]))
                cells.append([row.title, good, *row.texts()])
            blocks.append(Details(caption, (Table(caption, ("Number", "A good value", *columns), cells, n_words=2),)))
    told = evaluation.remarks()
    if told:
        lead = "Numbers that say little on these data (†), or that are worse than chance (!):"
        blocks += [Text((lead,)), Text(tuple(told), is_list=True)]
    meanings = [[row.quantity.title, row.quantity.meaning, row.quantity.better or "-"] for row in evaluation.rows]
    caption = "What each number means"
    table = Table(caption, ("Number", "What it is", "Better"), meanings, n_words=3)
    return [*blocks, Details(caption, (table,))]
