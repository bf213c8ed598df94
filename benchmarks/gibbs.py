"""Seconds per Gibbs sweep, beside SMURFF on the same tensor in the same run.

    python benchmarks/gibbs.py people-flow --data ../shared/reference/people_flow
    python benchmarks/gibbs.py city
    python benchmarks/gibbs.py ranks
    python benchmarks/gibbs.py smurff
    python benchmarks/gibbs.py parts
    python benchmarks/gibbs.py devices

Every measurement runs in a process of its own, so that peak memory is its own. Prints CSV; --csv appends it to a file.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from common import SHARED, Clock, Row, command_line, in_a_process, machine, peak_mb, record

CITY_USERS, CITY_PLACES, CITY_SLOTS, CITY_CELLS_PER_USER = 219_793, 1_000, 12, 20
REPEATS = 5
COLUMNS = ["program", "data", "zeros", "rank", "threads", "tensors", "seconds_per_sweep", "median_seconds"]
COLUMNS += ["million_visits_per_second", "statistics_ns_per_visit", "draw_us_per_row"]
COLUMNS += ["statistics_share", "compile_s", "peak_mb", "cells_mb_per_device", "finite", "error", "load"]
COLUMNS += ["cpu_seconds_per_sweep"]


def city_tensors(n_users: int = CITY_USERS, n_places: int = CITY_PLACES):
    """A random city, by default of the size of Istanbul: popular places have more events, and each user has few cells.

    Each user has equally many cells in a city of any size, except that small cities draw a few more cells twice.
    """
    from ppmtf_jax.data.tensors import CountTensors, SparseCounts

    rng = np.random.default_rng(0)
    popularity = 1 / np.arange(1, n_places + 1)
    popularity /= popularity.sum()

    def tensor(n_cells, n_others, other):
        user = np.repeat(np.arange(n_users), n_cells)
        place = rng.choice(n_places, len(user), p=popularity)
        cell = np.unique((user.astype(np.int64) * n_places + place) * n_others + other(len(user)))
        rest, other_index = np.divmod(cell, n_others)
        user, place = np.divmod(rest, n_places)
        count = rng.integers(1, 4, len(user)).astype(np.int32)
        index = (axis.astype(np.int32) for axis in (user, place, other_index))
        return SparseCounts(*index, count, (n_users, n_places, n_others), np.arange(n_users))

    half = CITY_CELLS_PER_USER // 2
    return CountTensors(
        tensor(half, n_places, lambda n: rng.choice(n_places, n, p=popularity)),
        tensor(half, CITY_SLOTS, lambda n: rng.integers(0, CITY_SLOTS, n)),
    )


def time_sweeps(cells, n_rows, coupling, settings, repeats=REPEATS):
    """Run calls of some sweeps: the last state, seconds of the first call, and (seconds, CPU seconds) of a later sweep.

    The cells must be on the devices before the call.
    """
    import jax

    from ppmtf_jax.gibbs.run import SWEEPS_PER_CALL, init_chains, run_sweeps
    from ppmtf_jax.runtime.devices import mesh_of

    mesh = mesh_of()
    keys, state = init_chains(jax.random.key(0), 1, n_rows, coupling, settings, mesh)
    taken = []
    for _ in range(1 + repeats):
        clock = Clock()
        state = run_sweeps(keys, state, cells, SWEEPS_PER_CALL, coupling, settings, mesh)[0]
        jax.block_until_ready(state)
        taken.append(clock.both())
    return state, taken[0][0], np.array(taken[1:]) / SWEEPS_PER_CALL


def measure(case: dict) -> dict:
    """Time sweeps of one case in this process."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_num_cpu_devices", case["threads"])

    from ppmtf_jax.data.tensors import count_tensors
    from ppmtf_jax.datasets.people_flow import read_people_flow
    from ppmtf_jax.gibbs.cells import N_MODES, observe
    from ppmtf_jax.gibbs.kernel import SHARED, Coupling, GibbsSettings, rows_of_factors
    from ppmtf_jax.gibbs.run import SWEEPS_PER_CALL, share_cells
    from ppmtf_jax.runtime.devices import mesh_of

    counts = city_tensors() if case["data"] == "city" else count_tensors(read_people_flow(case["data"])[0], seed=0)
    coupling = Coupling(SHARED.tensors[:1]) if case.get("one_tensor") else SHARED
    cells = observe(counts, case["zeros"], 1000, seed=0)
    cells = {name: cells[name] for name, _ in coupling.tensors}
    # A padded cell points past the last place or slot.
    shapes = counts._asdict()
    n_visits = N_MODES * sum(int(np.sum(own.by_mode[0].right < shapes[name].shape[2])) for name, own in cells.items())
    settings = GibbsSettings(rank=case["rank"])
    cells = share_cells(cells, mesh_of())
    state, first, sweeps = time_sweeps(cells, rows_of_factors(coupling, counts), coupling, settings)
    seconds = sweeps[:, 0]
    finite = all(bool(jnp.isfinite(factor).all()) for factor in state.factors.values())
    sweep = float(min(seconds))
    return {
        "seconds_per_sweep": round(sweep, 4),
        "median_seconds": round(float(np.median(seconds)), 4),
        "million_visits_per_second": round(n_visits / sweep / 1e6, 1),
        "compile_s": round(first - SWEEPS_PER_CALL * sweep, 1),
        "peak_mb": peak_mb(),
        "cells_mb_per_device": round(sum(x.addressable_shards[0].data.nbytes for x in jax.tree.leaves(cells)) / 1e6, 1),
        "finite": finite,
        "cpu_seconds_per_sweep": round(float(min(sweeps[:, 1])), 4),
    }


def measure_parts(case: dict) -> dict:
    """Time of the parts of a sweep on one device, in nanoseconds per cell visit and microseconds per drawn row."""
    import jax
    import jax.numpy as jnp

    from ppmtf_jax.data.tensors import count_tensors
    from ppmtf_jax.datasets.people_flow import read_people_flow
    from ppmtf_jax.gibbs import kernel
    from ppmtf_jax.gibbs.cells import observe
    from ppmtf_jax.gibbs.conditionals import FactorPrior, with_row
    from ppmtf_jax.gibbs.kernel import SHARED, GibbsSettings, init_state, rows_of_factors

    counts = count_tensors(read_people_flow(case["data"])[0], seed=0)
    cells = jax.tree.map(jnp.asarray, observe(counts, case["zeros"], 1000, seed=0))
    n_rows, settings, key = rows_of_factors(SHARED, counts), GibbsSettings(rank=case["rank"]), jax.random.key(0)
    state = init_state(key, n_rows, SHARED, settings)

    def seconds(function):
        compiled = jax.jit(function)
        jax.block_until_ready(compiled(state, cells))
        taken = []
        for _ in range(20):
            begin = time.perf_counter()
            jax.block_until_ready(compiled(state, cells))
            taken.append(time.perf_counter() - begin)
        return min(taken)

    def all_statistics(state, cells):
        return [
            kernel.total_statistics(
                kernel.Design.of(cells[tensor], modes, mode, state.factors), n_rows[modes[mode]], None
            )
            for tensor, modes in SHARED.tensors
            for mode in range(3)
        ]

    def all_draws(state, cells):
        prior = FactorPrior(jnp.zeros(case["rank"]), jnp.eye(case["rank"]))
        return [
            kernel.sample_factor(
                prior,
                200.0,
                with_row(rows[:, :, None] * rows[:, None], rows),
                kernel.row_noise(key[None], [jnp.arange(len(rows))], case["rank"], rows.dtype)[0],
            )
            for rows in state.factors.values()
        ]

    whole = seconds(lambda state, cells: kernel.step(key, state, cells, SHARED, settings))
    statistics, draws = seconds(all_statistics), seconds(all_draws)

    n_visits = 3 * sum(float(own.total_weight) for own in cells.values())  # sampled zeros weigh 1 each
    return {
        "seconds_per_sweep": round(whole, 4),
        "statistics_ns_per_visit": round(statistics / n_visits * 1e9, 1),
        "draw_us_per_row": round(draws / sum(n_rows.values()) * 1e6, 2),
        "statistics_share": round(statistics / whole, 2),
    }


def measure_smurff(case: dict) -> dict:
    """Time SMURFF (normal-Wishart priors, fixed noise) on the transition tensor with the same sampled zeros."""
    import smurff

    from ppmtf_jax.data.tensors import ZERO_STAGES, count_tensors, sample_zeros
    from ppmtf_jax.datasets.people_flow import read_people_flow

    counts = count_tensors(read_people_flow(case["data"])[0], seed=0).transitions
    zeros = sample_zeros(counts, 1000, seed=0, stage=ZERO_STAGES["transitions"])
    index = np.concatenate([counts.cell_index, zeros])
    value = np.concatenate([counts.count, np.zeros(len(zeros))]).astype(np.float64)
    tensor = smurff.SparseTensor((value, tuple(index.T.astype(np.int32))), counts.shape)

    session = smurff.TrainSession(
        priors=["normal"] * 3,
        num_latent=case["rank"],
        burnin=1000,
        nsamples=1,
        num_threads=case["threads"],
        seed=0,
        verbose=0,
    )
    session.addTrainAndTest(tensor, None, smurff.FixedNoise(200.0))
    session.init()
    session.step()
    seconds = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        for _ in range(2):
            session.step()
        seconds.append((time.perf_counter() - begin) / 2)
    sweep = min(seconds)
    return {
        "seconds_per_sweep": round(sweep, 4),
        "median_seconds": round(float(np.median(seconds)), 4),
        "million_visits_per_second": round(3 * len(value) / sweep / 1e6, 1),
        "peak_mb": peak_mb(),
    }


def cases(which: str, data: str) -> list[dict]:
    flow = {"data": data, "zeros": "sampled", "rank": 16, "threads": 2}
    if which == "people-flow":
        return [flow, flow | {"zeros": "weighted"}]
    if which == "city":
        return [flow | {"data": "city", "zeros": "weighted"}]
    if which == "devices":
        return [flow | {"data": "city", "zeros": "weighted", "threads": n} for n in (1, 2, 4)]
    if which == "ranks":
        return [flow | {"rank": rank} for rank in (8, 16, 32, 64)]
    if which == "parts":
        return [flow | {"rank": rank, "threads": 1, "parts": True} for rank in (16, 32)]
    one = flow | {"one_tensor": True}
    return [case | {"threads": n, "peer": peer} for n in (1, 2) for case in (one,) for peer in (False, True)]


def rows(which: str, data: str) -> Iterator[Row]:
    for case in cases(which, data):
        measurement = measure_smurff if case.get("peer") else measure_parts if case.get("parts") else measure
        yield {
            "program": "SMURFF" if case.get("peer") else "ppmtf_jax",
            "data": "city" if case["data"] == "city" else "people flow",
            "zeros": case["zeros"],
            "rank": case["rank"],
            "threads": case["threads"],
            "tensors": 1 if case.get("one_tensor") else 2,
            "load": machine()["load"],
        } | in_a_process(measurement, case, n_cores=case["threads"], keep_error=True)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("which", choices=["people-flow", "city", "ranks", "smurff", "parts", "devices"])
    parser.add_argument("--data", default=str(SHARED / "reference" / "people_flow"))
    arguments = parser.parse_args()
    record(rows(arguments.which, arguments.data), arguments.csv, COLUMNS, append=True)


if __name__ == "__main__":
    main()
