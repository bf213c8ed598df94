"""What is guaranteed, by which mechanism, under which assumptions, and what is not."""

from __future__ import annotations

from ppmtf_jax.evaluation.report.content import Block, Content, Light, Status, Table, Text
from ppmtf_jax.evaluation.report.material import Material
from ppmtf_jax.evaluation.report.registry import GUARANTEE, SECTIONS, SectionMaker

SEED_RULE = (
    "Good: all seeds were drawn from the operating system; fair: somebody chose one; not known: the traces do not say. "
    "A seed is like a password, and is not on this page."
)
ASSUMED = (
    "Whoever gets the release has neither the model nor any seed.",
    "She looks at one trace at a time.",
    "The list of places, with coordinates and categories, is no secret.",
)
NO_RELEASE = (
    "There is no release in the folder, and so no statement. These traces are not to be handed out: nothing is "
    "guaranteed of them. Release those that pass the privacy test with `ppmtf release`, or with a job."
)


def make(material: Material) -> Content:
    """The statement that goes with the release, in a table and lists."""
    statement = material.statement
    if statement is None:
        return Content([Text((NO_RELEASE,))], [_light_of_seed(material.seeds_given)])
    said = {"Mechanism": "mechanism", "Traces": "traces", "Randomness": "randomness"}
    rows = [
        [title, str(statement[name]).removeprefix(f"{title}: ")] for title, name in said.items() if name in statement
    ]
    blocks: list[Block] = [Table("How the release protects", ("What", "In words"), rows, n_words=2)]
    for title, points in (
        ("Protected", statement.get("protected", ())),
        ("Assumed", ASSUMED),
        ("Not protected", statement.get("not_protected", ())),
    ):
        blocks.append(Text((f"{title}:",)))
        blocks.append(Text(tuple(str(point) for point in points) or ("Nothing is said.",), is_list=True))
    blocks.append(Text(("An attack above that fails proves nothing: another one may succeed.",)))
    return Content(blocks, [_light_of_seed(material.seeds_given)])


def _light_of_seed(given: bool | None) -> Light:
    question = "Is the randomness secret?"
    if given is None:
        return Light(question, Status.UNKNOWN, "The traces do not say where their seed came from.", SEED_RULE)
    if given:
        answer = "Somebody chose a seed: whoever knows or guesses it can repeat what was drawn."
        return Light(question, Status.FAIR, answer, SEED_RULE)
    return Light(question, Status.GOOD, "All seeds came from the operating system, and nobody chose one.", SEED_RULE)


SECTIONS.register(
    SectionMaker(
        "statement",
        GUARANTEE,
        "What the release promises, and what not",
        "This goes with the release too, as PRIVACY.txt and privacy.json.",
        make,
    )
)
