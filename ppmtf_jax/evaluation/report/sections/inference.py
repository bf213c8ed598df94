"""What can be guessed about a person whose trace is known in part."""

from __future__ import annotations

from ppmtf_jax.attacks.inference import GUESSES, infer
from ppmtf_jax.evaluation.report.blocks import Block, Table, finding_of, percent
from ppmtf_jax.evaluation.report.inputs import ReportData
from ppmtf_jax.evaluation.report.registry import PRIVACY, section
from ppmtf_jax.privacy.limits import INFERRED

SEED = 0
QUESTION = "Can more be guessed about people whose data was used?"
IF_POOR = "Do not release these traces: they complete what somebody knows of a person."


@section(
    "inference",
    PRIVACY,
    "What can be guessed about a person?",
    "Somebody knows the later half of a person's day and looks up the nearest synthetic trace, to guess the earlier "
    "half. About people whose data was not used, such a guess is right now and then, too.",
    question=QUESTION,
)
def make(data: ReportData) -> list[Block]:
    """The shares of right guesses about training users and about test users."""
    found = infer(data.synthetic, data.train, data.test, seed=SEED)
    judged = {name: each.judgement() for name, each in found.items()}
    rows = []
    for name, each in found.items():
        known = [percent(share.mean(), 1) if len(share) else "-" for share in (each.training, each.test)]
        ends = f"{100 * judged[name].low:.1f} to {100 * judged[name].high:.1f}"
        rows.append([GUESSES[name], f"{len(each.training):,}", *known, ends, judged[name].status])
    caption = (
        "Guesses from the nearest synthetic trace that are right, for training users and for people whose data was not "
        "used (test users), and the 95 % interval of the difference in percentage points"
    )
    headings = ("What is guessed", "Training users", "Right", "Right, test users", "Difference", "Light")
    by_title = {GUESSES[name]: each for name, each in judged.items()}
    return [
        finding_of(QUESTION, by_title, [INFERRED], IF_POOR, "What was guessed: {}."),
        Table(caption, headings, rows),
    ]
