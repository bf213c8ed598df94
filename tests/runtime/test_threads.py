"""Work in threads: the order, the precision and the errors of one thread."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from ppmtf_jax.runtime import threads
from ppmtf_jax.runtime.threads import map_in_threads, on_each_device


@pytest.fixture(params=[1, 3])
def n_threads(request, monkeypatch):
    monkeypatch.setattr(threads, "n_threads", lambda: request.param)
    return request.param


@pytest.mark.usefixtures("n_threads")
def test_results_come_in_the_order_of_the_items():
    assert list(map_in_threads(str, range(20))) == [str(number) for number in range(20)]
    assert list(map_in_threads(str, [])) == []


@pytest.mark.usefixtures("n_threads")
@pytest.mark.parametrize("double", [False, True])
def test_the_precision_is_that_of_the_caller(double):
    with jax.enable_x64(double):
        (precision,) = set(map_in_threads(lambda _: jnp.zeros(()).dtype.name, range(5)))
    assert precision == ("float64" if double else "float32")


def test_few_items_are_taken_before_their_results_are(n_threads):
    taken = []

    def items():
        for number in range(20):
            taken.append(number)
            yield number

    for result in map_in_threads(lambda x: x, items()):
        assert len(taken) <= result + n_threads + 1


@pytest.mark.usefixtures("n_threads")
def test_an_error_ends_it():
    with pytest.raises(ZeroDivisionError):
        list(map_in_threads(lambda x: 1 / x, [2, 1, 0, 1, 1, 1]))


def test_what_all_read_lies_where_each_computes(monkeypatch):
    monkeypatch.setattr(threads, "_devices", jax.local_devices)
    tree = {"a": jnp.arange(3), "b": (jnp.ones(2),)}
    local_copy = on_each_device(tree)
    for device in jax.local_devices():
        with jax.default_device(device):
            assert {leaf.device for leaf in jax.tree.leaves(local_copy())} == {device}
    assert jax.tree.all(jax.tree.map(lambda x, y: bool((x == y).all()), local_copy(), tree))


def test_threads_use_what_the_caller_compiled(n_threads):
    """A device in the context of a thread would make JAX trace and compile the program again."""
    traced = []

    @jax.jit
    def double(x):
        traced.append(x)
        return 2 * x

    double(1.0)
    assert [float(each) for each in map_in_threads(double, [2.0] * 4)] == [4.0] * 4
    assert len(traced) == 1


ON_DEVICES = """
import hashlib, sys
import jax
jax.config.update("jax_num_cpu_devices", int(sys.argv[1]))
import jax.numpy as jnp
from ppmtf_jax import PPMTFSettings, fit, plausible_deniability_test, synthesize, toy_city
from ppmtf_jax.runtime import threads
from ppmtf_jax.runtime.threads import map_in_threads, on_each_device

if sys.argv[2] == "accelerators":
    threads._devices = jax.local_devices
shared, add = jnp.arange(5), jax.jit(lambda a, b: a + b)
def device_of_sum(i):
    return next(iter(add(shared, i).devices())).id

local_copy = on_each_device(shared)
assert all(map_in_threads(lambda i: local_copy().device == next(iter(add(i, i).devices())), range(8)))
used = {device_of_sum(1), *map_in_threads(device_of_sum, range(8))}
train = toy_city(n_users=150, seed=0).traces
model = fit(train, "ppmtf", PPMTFSettings(rank=2, n_sweeps=2, zeros="weighted"), seed=0)
synthetic = synthesize(model, traces_per_user=2, seed=1, batch_users=64)
verdicts = plausible_deniability_test(model, synthetic, k=5, count_all=True)
print(len(used), hashlib.md5(synthetic.place.tobytes() + verdicts.plausible_users.tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_four_devices_synthesize_and_test_what_one_does():
    """Four devices of a CPU are used as one, and four that the library takes for accelerators are all used."""

    def run(n_devices: int, kind: str) -> list[str]:
        command = [sys.executable, "-c", ON_DEVICES, str(n_devices), kind]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        return done.stdout.split()

    one, cores, accelerators = run(1, "cores"), run(4, "cores"), run(4, "accelerators")
    assert [n_used for n_used, _ in (one, cores, accelerators)] == ["1", "1", "4"]
    assert one[1] == cores[1] == accelerators[1]
