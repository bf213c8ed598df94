"""What is guaranteed, by which mechanism, under which assumptions, and what is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ppmtf_jax.evaluation.report.blocks import Block, Details, Finding, Status, Table, Text
from ppmtf_jax.evaluation.report.inputs import ReportData
from ppmtf_jax.evaluation.report.registry import GUARANTEE, section
from ppmtf_jax.privacy.limits import EPSILON, grade
from ppmtf_jax.privacy.statements import costs

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
LISTS = {"Protected": "protected", "Treated as public": "public", "Not protected": "not_protected"}
PROVEN_RULE = (
    f"Good: epsilon is at most {EPSILON.good:g}. Fair: it is at most {EPSILON.fair:g}. Poor: it is more, or the noise "
    f"protects nobody. {EPSILON.reason}"
)
NO_RELEASE = (
    "The folder has no release, and so no statement. These traces are not to be handed out: nothing is guaranteed. "
    "Release the traces that pass the privacy test with `ppmtf release`, or with a job."
)


@section(
    "statement",
    GUARANTEE,
    "What the release promises, and what it does not promise",
    "The release contains the same statement as PRIVACY.txt, PRIVACY_DETAILS.txt and privacy.json.",
)
def make(data: ReportData) -> list[Block]:
    """The statement that goes with the release, in a table and lists."""
    status, answer = SEEDS[data.seeds_given]
    finding, statement = Finding("Is the randomness secret?", status, answer, SEED_RULE), data.statement
    if statement is None:
        return [finding, Text((NO_RELEASE,))]
    if data.guarantee:
        return _of_nobody(statement)
    said = {
        "Mechanism": "mechanism",
        "By construction": "by_construction",
        "Traces": "traces",
        "Randomness": "randomness",
    }
    rows = [
        [title, str(statement[name]).removeprefix(f"{title}: ")] for title, name in said.items() if statement.get(name)
    ]
    blocks: list[Block] = [finding, Table("How the release protects", ("What", "In words"), rows, n_words=2)]
    protected, not_protected = (statement.get(name, ()) for name in ("protected", "not_protected"))
    blocks += _lists({"Protected": protected, "Assumed": ASSUMED, "Not protected": not_protected})
    if statement.get("rules"):
        blocks.append(
            Details("Rules by which the model was made; no promise", (Text(tuple(statement["rules"]), is_list=True),))
        )
    return [*blocks, Text(("If an attack above fails, this proves nothing: another attack may succeed.",))]


def _of_nobody(statement: Mapping[str, Any]) -> list[Block]:
    """The guarantee, its ledger, and what it does not cover."""
    status = grade(EPSILON, statement["epsilon"]) if statement["private"] else Status.POOR
    rows = list(costs(statement["ledger"]).items())
    caption = f"Numbers taken from the data with noise, and what each cost. Neighbours: {statement['neighbours']}"
    return [
        Finding("Is the protection proven?", status, statement["guarantee"], PROVEN_RULE),
        Text((statement["guarantee"], statement["randomness"])),
        *_lists({title: statement[name] for title, name in LISTS.items()}),
        Table(caption, ("Number", "Cost"), rows, n_words=2),
    ]


def _lists(points_of: Mapping[str, Sequence[str]]) -> list[Block]:
    """Lists of points with their titles."""
    blocks: list[Block] = []
    for title, points in points_of.items():
        listed = tuple(str(point) for point in points) or ("Nothing is said.",)
        blocks += [Text((f"{title}:",)), Text(listed, is_list=True)]
    return blocks
