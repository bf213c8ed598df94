"""All numbers of the evaluation, of all systems that were compared."""

from __future__ import annotations

from ppmtf_jax.evaluation.evaluation import Row, remarks
from ppmtf_jax.evaluation.report.content import Block, Content, Details, Table, Text
from ppmtf_jax.evaluation.report.material import Material
from ppmtf_jax.evaluation.report.registry import NUMBERS, SECTIONS, SectionMaker
from ppmtf_jax.evaluation.tables import references_text


def make(material: Material) -> Content:
    """A table for utility and one for privacy, what each number means, and which say little here."""
    evaluation = material.evaluation
    columns = [name[:1].upper() + name[1:] for name in evaluation.columns]
    blocks: list[Block] = []
    for kind in ("utility", "privacy"):
        rows = [row for row in evaluation.rows() if row.kind == kind]
        if rows:
            caption = f"Numbers of {kind}, as `ppmtf evaluate` prints them"
            cells = [[row.title, _good(row), *row.texts(evaluation.columns)] for row in rows]
            blocks.append(Details(caption, (Table(caption, ("Number", "A good value", *columns), cells, n_words=2),)))
    told = remarks(evaluation)
    if told:
        lead = "Numbers that say little on these data (†), or that are worse than chance (!):"
        blocks += [Text((lead,)), Text(tuple(told), is_list=True)]
    meanings = [[row.quantity.title, row.quantity.meaning, row.quantity.better or "-"] for row in evaluation.rows()]
    caption = "What each number means"
    table = Table(caption, ("Number", "What it is", "Better"), meanings, n_words=3)
    return Content([*blocks, Details(caption, (table,))])


def _good(row: Row) -> str:
    better = f"{row.quantity.better} is better" if row.quantity.better else ""
    return "; ".join(filter(None, [row.quantity.good_value, better, references_text(row.reading)]))


SECTIONS.register(
    SectionMaker(
        "numbers",
        NUMBERS,
        "All numbers, for those who want them",
        "Everything that was measured, of these traces, of other systems that were compared, of the real training data "
        "and of random places.",
        make,
    )
)
