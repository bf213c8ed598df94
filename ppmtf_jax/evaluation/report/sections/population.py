"""Where people are at each hour."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from ppmtf_jax.evaluation.distributions import variation
from ppmtf_jax.evaluation.metrics.population import population_by_slot, tp_tv
from ppmtf_jax.evaluation.plots import population_maps
from ppmtf_jax.evaluation.plots.curves import draw_lines
from ppmtf_jax.evaluation.plots.style import LOWER, label_slots, panels
from ppmtf_jax.evaluation.report.blocks import Block, Picture, Status, Text
from ppmtf_jax.evaluation.report.gauges import gauges_of, utility_finding
from ppmtf_jax.evaluation.report.inputs import ReportData
from ppmtf_jax.evaluation.report.registry import UTILITY, section
from ppmtf_jax.evaluation.results import SYNTHETIC, TRAINING, UNIFORM

QUESTION = "Are people at the right places at the right hours?"
IF_POOR = "Do not use these traces for questions about single places and hours."
N_LABELS = 8
FEW = 0.5
"""Synthetic events are called few below this share of the training events."""
SEED = 0


@section(
    "population",
    UTILITY,
    "Where people are, hour by hour",
    "People who plan shops, buses or cell towers need to know how many people are at each place at each time.",
    question=QUESTION,
    if_poor=IF_POOR,
)
def make(data: ReportData) -> list[Block]:
    """How far the population of each slot is off, and maps of it."""
    n_top = next((name for name in data.evaluation.metrics if name.startswith("tp_tv_top")), "")
    gauges = gauges_of(data, {"tp_tv": "Where people are", n_top: "Where people are, the busiest places alone"})
    no_maps = Text(("No maps: the places have no coordinates that tell them apart.",))
    finding = utility_finding(QUESTION, gauges.items, IF_POOR)
    if finding.status in (Status.FAIR, Status.POOR):
        finding = finding._replace(answer=f"{finding.answer} {_few_events(data)}".strip())
    if not data.has_map:
        return [finding, gauges, _by_hour(data), no_maps]
    maps = Picture(
        population_maps({"synthetic": data.synthetic}, data.train, data.test),
        "Maps of the share of events at each place, at some times of the day, of real and synthetic traces.",
        "Where people are at some times of the day. All maps have one scale, so that the rows can be compared: the row "
        "of synthetic traces should look like the two above it.",
    )
    return [finding, gauges, _by_hour(data), maps]


def distance_by_slot(data: ReportData, name: str) -> np.ndarray:
    """Total variation of a set from the test users in each slot, shape (slots,); NaN where they have no event.

    It is averaged over trace numbers, so that its mean over the slots is TP-TV if test users have events in all slots.
    For random places, it uses the expected population and not that of some traces.
    """
    test = data.test
    expected = population_by_slot(test)
    if name == UNIFORM:
        parts = [np.full_like(expected, 1 / test.n_places)]
    else:
        parts = [population_by_slot(part.traces) for part in data.comparison(name).parts()]
    distance = np.mean([variation(part, expected) for part in parts], axis=0)
    return np.where(np.bincount(test.slot, minlength=test.time_grid.n_slots) > 0, distance, np.nan)


def _few_events(data: ReportData) -> str:
    """A sentence with the TP-TV of equally few real events, which differ from many by chance; "" if not few."""
    train, n_events = data.train, data.synthetic.n_events // max(data.comparison(SYNTHETIC).n_parts, 1)
    if n_events > FEW * train.n_events:
        return ""
    shuffled = np.random.default_rng(SEED).permutation(train.n_users)
    n_of_user = np.bincount(train.user, minlength=train.n_users)[shuffled]
    n_users = int(np.searchsorted(np.cumsum(n_of_user), n_events)) + 1
    distance = tp_tv(train.select_users(shuffled[:n_users]), data.test)
    return (
        f"There are few synthetic events ({n_events:,}), and few events differ from many by chance: {n_users:,} random "
        f"training users, with as many events, also have a TP-TV of {distance:.2f}."
    )


def _by_hour(data: ReportData) -> Picture:
    lines = {name: 100 * distance_by_slot(data, name) for name in (TRAINING, SYNTHETIC, UNIFORM)}
    labels = data.train.time_grid.slot_labels()

    def draw(ax: Axes) -> None:
        marker = {"marker": "o", "markersize": 3} if len(labels) < 3 else {}
        draw_lines(ax, np.arange(len(labels)), lines, **marker)
        label_slots(ax, labels, N_LABELS)
        ax.set(ylim=(0, 101), xlabel="time from", ylabel="at another place, percent")

    figure = panels([draw], size=(5.4, 2.6), room=(0.0, 0.4), legend=LOWER | {"ncols": 2})
    alt = "Curves over the day: how far training, synthetic and random traces are from where other people are."
    caption = (
        "Distance at each time: the share of people who would have to move to another place to match real "
        "people. The synthetic curve should be near that of the training users, who are real people too: two groups of "
        "people are never quite alike."
    )
    return Picture(figure, alt, caption)
