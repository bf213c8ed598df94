"""What is guaranteed, by which mechanism, under which assumptions, and what is not."""

from __future__ import annotations

from ppmtf_jax.evaluation.report.blocks import Block, Finding, Status, Table, Text
from ppmtf_jax.evaluation.report.inputs import ReportData
from ppmtf_jax.evaluation.report.registry import GUARANTEE, section

SEED_RULE = (
    "Good: all seeds were drawn from the operating system; fair: somebody chose one; not known: the traces do not say. "
    "A seed is like a password, and is not on this page."
)
SEEDS = {
    None: (Status.UNKNOWN, "The traces do not say where their seed came from."),
    True: (Status.FAIR, "Somebody chose a seed: people who know or guess it can repeat what was drawn."),
    False: (Status.GOOD, "All seeds came from the operating system, and nobody chose one."),
}
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
    "What the release promises, and what it does not promise",
    "The release contains the same statement as PRIVACY.txt and privacy.json.",
)
def make(data: ReportData) -> list[Block]:
    """The statement that goes with the release, in a table and lists."""
    status, answer = SEEDS[data.seeds_given]
    finding, statement = Finding("Is the randomness secret?", status, answer, SEED_RULE), data.statement
    if statement is None:
        return [finding, Text((NO_RELEASE,))]
    said = {"Mechanism": "mechanism", "Traces": "traces", "Randomness": "randomness"}
    rows = [
        [title, str(statement[name]).removeprefix(f"{title}: ")] for title, name in said.items() if name in statement
    ]
    blocks: list[Block] = [finding, Table("How the release protects", ("What", "In words"), rows, n_words=2)]
    for title, points in (
        ("Protected", statement.get("protected", ())),
        ("Assumed", ASSUMED),
        ("Not protected", statement.get("not_protected", ())),
    ):
        listed = tuple(str(point) for point in points) or ("Nothing is said.",)
        blocks += [Text((f"{title}:",)), Text(listed, is_list=True)]
    return [*blocks, Text(("If an attack above fails, this proves nothing: another attack may succeed.",))]
