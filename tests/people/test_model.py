"""The trace model of people who remember: its arrays, its sentences, its classes of users."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.errors import InputError
from ppmtf_jax.people.model import RememberingBridge
from ppmtf_jax.runtime.devices import round_up
from ppmtf_jax.trace_models.base import ABSENT, ROUNDED, Sizes, array_problems
from tests.people.person_processes import random_arrays, random_process

PROCESS = random_process(n_users=5)


@pytest.mark.parametrize("anchors", [True, False])
def test_arrays_pass_the_checks_of_a_model_folder_and_make_the_same_model(anchors: bool) -> None:
    process = random_process(n_places=6, n_days=2, n_cells=3, anchors=anchors)
    arrays, sizes = process.to_arrays(), Sizes(users=5, places=6, slots=2, instants=4)
    assert array_problems(arrays, RememberingBridge.stored_arrays(sizes), sizes) == []
    again = RememberingBridge.from_arrays(arrays)
    assert again.longest == process.longest
    assert again.to_arrays().keys() == arrays.keys()


@pytest.mark.parametrize("anchors", [True, False])
def test_users_of_a_model_with_longer_axes_have_the_same_traces(anchors: bool) -> None:
    process = random_process(n_users=5, n_clusters=5, n_places=6, n_days=2, anchors=anchors)
    longer = process.rounded()
    assert [len(each.n_present) for each in (process, longer)] == [5, 6]
    assert len(longer.next_place) == round_up(len(process.next_place), ROUNDED)
    keys = jax.random.split(jax.random.key(0), 40)
    traces = [
        jax.vmap(jax.vmap(each.sample_trace, (None, 0, None)), (0, None, None))(keys, jnp.arange(5), 4)
        for each in (process, longer)
    ]
    np.testing.assert_array_equal(*traces)


WRONG = {
    "cluster beyond": ("cluster", lambda x: x + 1),
    "slot_of_phase beyond": ("slot_of_phase", lambda x: x + 1),
    "cell beyond": ("cell", lambda x: x + 1),
    "moves that end beyond": ("move_start", lambda x: x + 1),
    "do not ascend": ("next_place", lambda x: x[::-1]),
    "whole periods": ("stay_at_time", lambda x: x[:-1]),
    "without any place in 'home'": ("home", lambda x: 0 * x),
    "without any place in 'first_other'": ("first_other", lambda x: 0 * x),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arrays_are_refused(message: str) -> None:
    name, change = WRONG[message]
    arrays = random_arrays(n_places=8)
    with pytest.raises(ValueError, match=message):
        RememberingBridge.from_arrays(arrays | {name: change(arrays[name])})


def test_people_at_home_need_arrays_of_homes() -> None:
    arrays = random_arrays()
    arrays.pop("second")
    with pytest.raises(ValueError, match="of the arrays of anchors only"):
        RememberingBridge.from_arrays(arrays)
    others = {name: array for name, array in arrays.items() if name not in ("home", "home_pull", "second_pull")}
    others.pop("anchor_between")
    with pytest.raises(ValueError, match="no arrays of anchors"):
        RememberingBridge.from_arrays(others)


def test_only_complete_traces_have_exact_probabilities() -> None:
    with pytest.raises(InputError, match="1 traces with gaps"):
        PROCESS.log_traces(np.array([[0, 1], [ABSENT, 1]]), np.arange(2))
    assert PROCESS.log_traces(np.array([[0, 1]]), np.array([1])).shape == (1, 1)


def test_the_summary_tells_who_remembers_what() -> None:
    share = 100 * np.average(np.asarray(PROCESS.second_share), weights=[3, 2])
    lines = PROCESS.summary()
    assert lines[-1].startswith(f"{share:.0f} %")
    assert "home" in lines[2]
    assert "home" not in random_process(anchors=False).summary()[2]
    chosen = replace(PROCESS, memory_gain=jnp.array([0, 0.25, 0.5])).summary()[2]
    assert chosen.endswith("places +0.250, anchors +0.500")


def test_times_after_the_last_calibrated_day_are_like_the_last_day() -> None:
    process = random_process(period=4, n_days=2)
    np.testing.assert_array_equal(process.time_of(jnp.array([0, 5, 9, 15])), [0, 5, 5, 7])
