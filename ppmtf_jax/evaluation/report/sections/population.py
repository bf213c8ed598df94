"""Where people are at each hour."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from ppmtf_jax.evaluation.chance import N_FEW, few_real
from ppmtf_jax.evaluation.distributions import variation
from ppmtf_jax.evaluation.metrics.population import population_by_slot
from ppmtf_jax.evaluation.plots import population_maps
from ppmtf_jax.evaluation.plots.curves import draw_lines
from ppmtf_jax.evaluation.plots.style import LOWER, label_slots, panels
from ppmtf_jax.evaluation.report.blocks import Block, Picture, Text
from ppmtf_jax.evaluation.report.gauges import gauges_of
from ppmtf_jax.evaluation.report.inputs import ReportData
from ppmtf_jax.evaluation.report.registry import UTILITY, section
from ppmtf_jax.evaluation.results import SYNTHETIC, TRAINING, UNIFORM

N_LABELS = 8


@section(
    "population",
    UTILITY,
    "Where people are, hour by hour",
    "People who plan shops, buses or cell towers need to know how many people are at each place at each time.",
    question="Are people at the right places at the right hours?",
    if_poor="Do not use these traces for questions about single places and hours.",
)
def make(data: ReportData) -> list[Block]:
    """How far the population of each slot is off, and maps of it."""
    gauges = gauges_of(data, "population")
    no_maps = Text(("No maps: the places have no coordinates that tell them apart.",))
    if not data.has_map:
        return [gauges, _by_hour(data), no_maps]
    maps = Picture(
        population_maps({"synthetic": data.synthetic}, data.train, data.test),
        "Maps of the share of events at each place, at some times of the day, of real and synthetic traces.",
        "Where people are at some times of the day. All maps have one scale, so that the rows can be compared: the row "
        "of synthetic traces should look like the two above it. Where the scale ends in an arrow, a few places have "
        "larger shares than its last colour.",
    )
    return [gauges, _by_hour(data), maps]


def distance_by_slot(data: ReportData, name: str) -> np.ndarray:
    """Total variation of a set from the test users in each slot, shape (slots,); NaN where they have no event.

    It is averaged over trace numbers, so that its mean over the slots is TP-TV if test users have events in all slots.
    If synthetic traces have fewer events than training users, it is that of equally few real traces and random places,
    with which the gauges compare them. Otherwise, for random places, it uses the expected population.
    """
    test = data.test
    expected = population_by_slot(test)
    few = [few_real(data.train, data.synthetic, number)[0] for number in range(N_FEW)]
    if name == TRAINING and few[0] is not None:
        parts = [population_by_slot(each) for each in few if each is not None]
    elif name == UNIFORM and few[0] is None:
        parts = [np.full_like(expected, 1 / test.n_places)]
    else:
        parts = [population_by_slot(part.traces) for part in data.comparison(name).parts()]
    distance = np.mean([variation(part, expected) for part in parts], axis=0)
    return np.where(np.bincount(test.slot, minlength=test.time_grid.n_slots) > 0, distance, np.nan)


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
        "people are never quite alike. If there are fewer synthetic than training events, all curves are of equally "
        "few, because fewer events are further off by chance."
    )
    return Picture(figure, alt, caption)
