"""Where people are at each hour."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.evaluation.metrics.population import population_by_slot, tp_tv
from ppmtf_jax.evaluation.plots import population_maps
from ppmtf_jax.evaluation.report.content import Block, Content, Picture, Status, Text
from ppmtf_jax.evaluation.report.drawing import draw_lines, panels
from ppmtf_jax.evaluation.report.gauges import gauges_of, utility_light
from ppmtf_jax.evaluation.report.material import SYNTHETIC, TRAINING, UNIFORM, Material
from ppmtf_jax.evaluation.report.registry import SECTIONS, UTILITY, SectionMaker

N_LABELS = 8
FEW = 0.5
"""Share of the training events below which the synthetic ones are said to be few."""
SEED = 0


def make(material: Material) -> Content:
    """How far the population of each slot is off, and maps of it."""
    n_top = next((name for name in material.evaluation.metrics if name.startswith("tp_tv_top")), "")
    gauges = gauges_of(material, {"tp_tv": "Where people are", n_top: "Where people are, the busiest places alone"})
    blocks: list[Block] = [gauges, _by_hour(material)]
    if material.has_map:
        blocks.append(_maps(material))
    else:
        blocks.append(Text(("No maps: the places have no coordinates that tell them apart.",)))
    if_poor = "Do not ask these traces about single places and hours."
    light = utility_light("Are people at the right places at the right hours?", gauges.items, if_poor)
    if light.status in (Status.FAIR, Status.POOR):
        light = replace(light, answer=f"{light.answer} {_of_few(material)}".strip())
    return Content(blocks, [light])


def distance_by_slot(material: Material, name: str) -> np.ndarray:
    """Total variation of a set from the test users in each slot, shape (slots,); NaN where these have no event.

    Averaged over trace numbers, as TP-TV is: that is its mean over the slots, where test users have events in all. Of
    random places the expected population, not that of some traces.
    """
    test = material.test
    expected = population_by_slot(test)
    if name == UNIFORM:
        parts = [np.full_like(expected, 1 / test.n_places)]
    else:
        parts = [population_by_slot(part.traces) for part in material.comparison(name).parts()]
    distance = np.mean([np.abs(part - expected).sum(axis=1) / 2 for part in parts], axis=0)
    return np.where(np.bincount(test.slot, minlength=test.time_grid.n_slots) > 0, distance, np.nan)


def _of_few(material: Material) -> str:
    """What real traces would give if there were as few: the distance grows where there is little to tell from."""
    train, n_events = material.train, material.synthetic.n_events // max(material.comparison(SYNTHETIC).n_parts, 1)
    if n_events > FEW * train.n_events:
        return ""
    shuffled = np.random.default_rng(SEED).permutation(train.n_users)
    n_of_user = np.bincount(train.user, minlength=train.n_users)[shuffled]
    n_users = int(np.searchsorted(np.cumsum(n_of_user), n_events)) + 1
    distance = tp_tv(train.select_users(shuffled[:n_users]), material.test)
    return (
        f"There are few synthetic events ({n_events:,}), and few are by chance away from where many are: {n_users:,} "
        f"random training users, with as many, have a TP-TV of {distance:.2f}."
    )


def _by_hour(material: Material) -> Picture:
    lines = {name: distance_by_slot(material, name) for name in (TRAINING, SYNTHETIC, UNIFORM)}
    figure = panels([partial(_draw, lines=lines, traces=material.train)], size=(5.4, 2.6))
    alt = "Curves over the day: how far training, synthetic and random traces are from where other people are."
    caption = (
        "How far off, time by time: the share of people who would have to be moved to another place to match real "
        "people. The synthetic curve should be near that of the training users, who are real people too: two groups of "
        "people are never quite alike."
    )
    return Picture(figure, alt, caption)


def _draw(ax: Any, *, lines: dict[str, np.ndarray], traces: Traces) -> None:
    labels = traces.time_grid.slot_labels()
    slots = np.arange(len(labels))
    marker = {"marker": "o", "markersize": 3} if len(labels) < 3 else {}
    draw_lines(ax, slots, {name: 100 * line for name, line in lines.items()}, **marker)
    every = -(-len(labels) // N_LABELS)
    ax.set_xticks(slots[::every], labels[::every])
    ax.set(ylim=(0, 101), xlabel="time from", ylabel="at another place, percent")


def _maps(material: Material) -> Picture:
    figure = population_maps({"synthetic": material.synthetic}, material.train, material.test)
    alt = "Maps of the share of events at each place, at some times of the day, of real and synthetic traces."
    caption = (
        "Where people are at some times of the day. All maps have one scale, so that the rows can be compared: the row "
        "of synthetic traces should look like the two above it."
    )
    return Picture(figure, alt, caption)


SECTIONS.register(
    SectionMaker(
        "population",
        UTILITY,
        "Where people are, hour by hour",
        "Whoever plans shops, buses or cell towers asks how many people are where at which time.",
        make,
    )
)
