"""What is guaranteed, by which mechanism, under which assumptions, and what is not."""

from __future__ import annotations

from ppmtf_jax.evaluation.report.blocks import Block, Finding, Status, Table, Text
from ppmtf_jax.evaluation.report.inputs import ReportData
from ppmtf_jax.evaluation.report.registry import GUARANTEE, section

SEED_RULE = (
    "Good: all seeds were drawn from the operating system; fair: somebody chose one; not known: the traces do not say. "
    "A seed is like a password, and is not on this page."
)
ASSUMED = (
    "People who get the release have neither the model nor any seed.",
    "They look at one trace at a time.",
    "The list of places, with coordinates and categories, is not secret.",
)
NO_RELEASE = (
    "The folder has no release, and so no statement. These traces are not to be handed out: nothing is guaranteed. "
    "Release the traces that pass the privacy test with `ppmtf release`, or with a job."
)


@section(
    "statement",
    GUARANTEE,
    "What the release promises, and what not",
    "The release contains the same statement as PRIVACY.txt and privacy.json.",
)
def make(data: ReportData) -> list[Block]:
    """The statement that goes with the release, in a table and lists."""
    statement = data.statement
    if statement is None:
        return [_seed_finding(data.seeds_given), Text((NO_RELEASE,))]
    said = {"Mechanism": "mechanism", "Traces": "traces", "Randomness": "randomness"}
    rows = [
        [title, str(statement[name]).removeprefix(f"{title}: ")] for title, name in said.items() if name in statement
    ]
    blocks: list[Block] = [_seed_finding(data.seeds_given)]
    blocks.append(Table("How the release protects", ("What", "In words"), rows, n_words=2))
    for title, points in (
        ("Protected", statement.get("protected", ())),
        ("Assumed", ASSUMED),
        ("Not protected", statement.get("not_protected", ())),
    ):
        blocks.append(Text((f"{title}:",)))
        blocks.append(Text(tuple(str(point) for point in points) or ("Nothing is said.",), is_list=True))
    return [*blocks, Text(("If an attack above fails, this proves nothing: another attack may succeed.",))]


def _seed_finding(given: bool | None) -> Finding:
    question = "Is the randomness secret?"
    if given is None:
        return Finding(question, Status.UNKNOWN, "The traces do not say where their seed came from.", SEED_RULE)
    if given:
        answer = "Somebody chose a seed: people who know or guess it can repeat what was drawn."
        return Finding(question, Status.FAIR, answer, SEED_RULE)
    return Finding(question, Status.GOOD, "All seeds came from the operating system, and nobody chose one.", SEED_RULE)
