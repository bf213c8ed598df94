"""Running the sampler: jitted scans of sweeps, kept draws, checkpoints with exact resume, progress."""

from __future__ import annotations

import hashlib
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Key

from ppmtf_jax.errors import InputError, NumericalError, Problem
from ppmtf_jax.gibbs.cells import ObservedCells, pad_parts
from ppmtf_jax.gibbs.kernel import Coupling, Factors, GibbsSettings, GibbsState, SweepInfo, init_state, step
from ppmtf_jax.runtime.devices import AXIS, SAME, SPLIT, mesh_of, put
from ppmtf_jax.runtime.files import atomic_file, open_own
from ppmtf_jax.runtime.progress import continues_from, progress_bar
from ppmtf_jax.settings import Count, Settings

Kind = Literal["log_joint", "rmse", "size", "held_out", "held_out_average", "cell"]

TITLES: dict[Kind, str] = {
    "log_joint": "log joint density",
    "rmse": "error at {of}",
    "size": "mean square of {of}",
    "held_out": "error at held-out {of}",
    "held_out_average": "error at held-out {of}, averaged",
    "cell": "predicted cell {number} of {of}",
}


class Quantity(NamedTuple):
    """A quantity that is recorded after each sweep; `str` gives a short name, for columns of files."""

    # log_joint; rmse: weighted root mean square error over the observed cells of a tensor; size: mean square of the
    # entries of a factor; held_out: root mean square error of a draw at the held-out cells of a tensor;
    # held_out_average: the same error for the average prediction so far, after the burn-in; cell: prediction of one
    # held-out cell.
    kind: Kind
    of: str = ""  # the tensor or the factor; empty for log_joint
    number: int | None = None  # number of the held-out cell

    @property
    def title(self) -> str:
        """The quantity in words."""
        return TITLES[self.kind].format(of=self.of, number=self.number)

    def __str__(self) -> str:
        return "_".join(str(part) for part in self if part not in ("", None))


# Number of sweeps in one jitted call: enough to hide its overhead, few enough for frequent progress updates.
SWEEPS_PER_CALL = 5
# On a CPU each JAX device has one core. By default XLA splits small operations over all cores and runs several
# operations at once on each device; with one device per core, this makes a sweep 1.4 times as long.
ONE_CORE_A_DEVICE = {"xla_cpu_multi_thread_eigen": False, "xla_cpu_enable_concurrency_optimized_scheduler": False}
# Changes whenever checkpoints or the draws of a sweep change, so that a run of another version is not continued.
CHECKPOINT_FORMAT = 3

# Function of (sweep, n_sweeps): whether to keep the draw after this sweep, from 1 to n_sweeps.
Keep = Callable[[int, int], bool]
Trace = dict[Quantity, np.ndarray]


def keep_last(sweep: int, n_sweeps: int) -> bool:
    """Keep only the last draw, as published."""
    return sweep == n_sweeps


def keep_every(n: int, burn_in: int = 0) -> Keep:
    """Keep every n-th draw after a burn-in."""
    if n < 1 or burn_in < 0:
        raise InputError("keep", [Problem("n of at least 1 and a burn_in of at least 0", f"{n} and {burn_in}")])
    return lambda sweep, n_sweeps: sweep > burn_in and (sweep - burn_in) % n == 0


@dataclass(frozen=True)
class Checkpoints(Settings, subject="checkpoints"):
    """File for the state of a run, and number of sweeps between writes, so that a stopped run can continue.

    A run that finds a checkpoint of the same run continues from that checkpoint. It refuses a checkpoint of another
    run, and a file that belongs to another user. Draws reveal the users in the data, so only the owner can read the
    file. It holds the state, whose factors are the last draw, and no draws before it.
    """

    path: Path
    every: Count = 10


class GibbsResult(NamedTuple):
    """Result of a run."""

    state: GibbsState  # after the last sweep; every array has a leading chain axis
    draws: dict[Any, np.ndarray]  # the kept factors, or what `kept_of` made of them; shape (chains, kept, rows, rank)
    kept_sweeps: np.ndarray  # number of the sweep after which each draw was kept; shape (kept,)
    trace: dict[Quantity, np.ndarray]  # the quantities of `watched` after each sweep; shape (chains, sweeps)


def watched(coupling: Coupling) -> list[Quantity]:
    """The quantities that a run records: log joint density, error of each tensor, mean square of each factor."""
    errors = [Quantity("rmse", tensor) for tensor, _ in coupling.tensors]
    return [Quantity("log_joint"), *errors, *(Quantity("size", factor) for factor in coupling.factors)]


def factors_of_draw(factors: Factors) -> dict[str, np.ndarray]:
    """Copy all factors to the host."""
    return jax.tree.map(np.asarray, factors)


def run_gibbs(
    key: Key[Array, ""],
    cells: dict[str, ObservedCells],
    n_rows: dict[str, int],
    coupling: Coupling,
    settings: GibbsSettings,
    *,
    n_sweeps: int,
    n_chains: int = 1,
    keep: Keep = keep_last,
    kept_of: Callable[[Factors], dict[Any, np.ndarray]] = factors_of_draw,
    checkpoints: Checkpoints | None = None,
    progress: bool = False,
    devices: Sequence[Any] | None = None,
) -> GibbsResult:
    """Run `n_sweeps` Gibbs sweeps of `n_chains` chains (Murakami et al. 2021, Appendix H).

    Raises `NumericalError`: a factor is no longer finite; the error names the sweep, the factor and the last
    checkpoint. Raises `InputError`: the checkpoint belongs to another run.

    Parameters
    ----------
    key : typed key
        The key, the data and the settings determine every draw.
    cells : dict of `ObservedCells`
        The result of `cells.observe`.
    n_rows : dict
        Number of rows of each factor.
    keep : which draws to keep
    kept_of : function of the factors of a kept draw, which gives the arrays to keep, by name
        All arrays have a leading chain axis.
    checkpoints : file to resume from and to write to
        Only with `keep_last` and the factors as they are. A resumed run gives the same draws, bit for bit.
    devices : JAX devices that share the cells and the work
        By default all devices of all processes. The draws do not depend on the number of devices: each row has its own
        key, and sums over devices are taken in a fixed order.
    """
    problems = []
    if n_sweeps < 1 or n_chains < 1:
        problems.append(Problem("at least one sweep and one chain", f"{n_sweeps} sweeps, {n_chains} chains"))
    if checkpoints and not (keep is keep_last and kept_of is factors_of_draw):
        problems.append(Problem("the last draw kept where there are checkpoints, which hold no other", "another keep"))
    if problems:
        raise InputError("run", problems)
    mesh = mesh_of(devices)
    # Hashing all cells is slow, so it is done only for checkpoints.
    fingerprint = _fingerprint(key, cells, n_rows, coupling, settings, n_chains) if checkpoints else ""
    weights = {name: float(cells[name].total_weight) for name, _ in coupling.tensors}
    cells = share_cells(cells, mesh)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(n_chains))
    state = _on_all_devices(jax.vmap(lambda key: init_state(key, n_rows, coupling, settings))(keys), mesh)
    keys = jax.random.wrap_key_data(_on_all_devices(jax.random.key_data(keys), mesh))
    traces: list[Trace] = []  # of the sweeps of each call
    if checkpoints:
        continues_from(checkpoints.path, "the sweeps up to the last checkpoint")
        if checkpoints.path.is_file():
            state, trace = _read_checkpoint(checkpoints.path, state, fingerprint, coupling, n_sweeps)
            state, traces = _on_all_devices(state, mesh), [trace]
    done = int(state.sweep[0])
    kept = {done: kept_of(state.factors)} if done == n_sweeps else {}  # a finished run
    with progress_bar("Gibbs sweeps", n_sweeps, show=progress, done=done) as advance:
        while done < n_sweeps:
            n = _sweeps_to_next_stop(done, n_sweeps, keep, checkpoints)
            state, info = run_sweeps(keys, state, cells, n, coupling, settings, mesh)
            _check_finite(info, n, done, coupling, checkpoints)
            done += n
            advance(n)
            traces.append(_traced(info, n, weights, coupling))
            if keep(done, n_sweeps):
                kept[done] = kept_of(state.factors)
            if checkpoints and jax.process_index() == 0 and (done % checkpoints.every == 0 or done == n_sweeps):
                _write_checkpoint(checkpoints.path, state, _joined(traces), fingerprint)
    names = next(iter(kept.values()), {})
    draws = {name: np.stack([draw[name] for draw in kept.values()], axis=1) for name in names}
    # All devices have equal copies; keep one.
    state = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), state)
    return GibbsResult(state, draws, np.array(list(kept), np.int64), _joined(traces))


def run_within(
    key: Key[Array, ""],
    cells: dict[str, ObservedCells],
    n_rows: dict[str, int],
    coupling: Coupling,
    settings: GibbsSettings,
    *,
    kappa: float,
    max_count: int,
    n_sweeps: int,
    max_tries: int = 20,
    progress: bool = False,
) -> GibbsResult:
    """Run a new chain until its last draw reconstructs all counts within kappa of [0, max_count] (App. G, "retry").

    If a chain drew from the exact posterior, the result would be a draw from the posterior under this constraint,
    exp(-G) / (integral of exp(-G) over the factors inside), whose budget is `privacy.budgets.epsilon_of_user`. Hence
    every try has the same cells, and a key of its own: with other cells, or with one chain that goes on until it is
    inside, the distribution would be another one. Fix kappa before you look at any draw. `max_count` is that of both
    tensors; if they differ, the larger one, also in the budget.

    The budget covers the draw alone. Whether a try was inside, how many it took (so also the time) and how near they
    came depend on the data, and nothing bounds by how much: keep them secret.

    Raises `NumericalError`: no try was inside; `InputError`: no try, a negative kappa, or weighted zeros, which the
    proof does not cover. The rest as for `run_gibbs`.
    """
    weighted = [name for name, own in cells.items() if own.zero_weight is not None]
    if max_tries < 1 or not kappa >= 0 or weighted:
        expected = "at least one try, kappa of at least 0, and sampled zeros"
        raise InputError("run", [Problem(expected, f"{max_tries}, {kappa}, {'weighted' if weighted else 'sampled'}")])
    nearest = math.inf
    for number in range(max_tries):
        own = jax.random.fold_in(key, number)
        result = run_gibbs(own, cells, n_rows, coupling, settings, n_sweeps=n_sweeps, progress=progress)
        outside = kappa_of({name: draws[0, -1] for name, draws in result.draws.items()}, coupling, max_count)
        if outside <= kappa:
            return result
        nearest = min(nearest, outside)
    raise NumericalError(
        f"none of {max_tries} draws has all counts within kappa = {kappa:g} of 0 and {max_count}: the nearest is "
        f"{nearest:.4g} away. Allow more tries, or a larger kappa, which costs a larger epsilon"
    )


def kappa_of(factors: Mapping[str, np.ndarray | Array], coupling: Coupling, max_count: int) -> float:
    """How far the reconstructed counts of some factors are outside [0, max_count], at most: the least kappa of App. G.

    NaN factors give infinity. No tensor is stored: the memory is that of one user's counts.
    """

    def outside(row: Array, left: Array, right: Array) -> Array:
        counts = jnp.matmul(left * row, right.T, precision="highest")
        return jnp.maximum(-counts.min(), counts.max() - max_count)

    found = [0.0]
    for _, modes in coupling.tensors:
        user, left, right = (jnp.asarray(factors[name]) for name in modes)
        found.append(float(lax.map(partial(outside, left=left, right=right), user).max()))
    return max(found) if np.isfinite(found).all() else math.inf


def share_cells(cells: dict[str, ObservedCells], mesh: Mesh) -> dict[str, ObservedCells]:
    """Distribute the parts of all tiles over the devices of a mesh, and copy everything else to each device."""
    cells = pad_parts(cells, mesh.size)
    return put(cells, _partition(cells), mesh)


def _partition(cells: dict[str, ObservedCells]) -> dict[str, ObservedCells]:
    """Whether each array of the cells is split over the devices or copied to each."""
    return {
        name: jax.tree.map(lambda _: SAME, own)._replace(by_mode=jax.tree.map(lambda _: SPLIT, own.by_mode))
        for name, own in cells.items()
    }


def _on_all_devices(tree: Any, mesh: Mesh) -> Any:
    return put(tree, jax.tree.map(lambda _: SAME, tree), mesh)


def run_sweeps(
    chain_keys: Array,
    state: GibbsState,
    cells: dict[str, ObservedCells],
    n_active: int,
    coupling: Coupling,
    settings: GibbsSettings,
    mesh: Mesh,
) -> tuple[GibbsState, SweepInfo]:
    """Run `n_active` (at most SWEEPS_PER_CALL) sweeps of every chain, on cells from `share_cells`.

    All arrays of `state` and of the results have a leading chain axis.
    """
    # A number of the compiled program, so that a fit with another precision compiles nothing.
    alpha = jnp.asarray(settings.noise_precision, state.factors[coupling.factors[0]].dtype)
    same = coupling, replace(settings, noise_precision=1.0), mesh
    # One chain after another: on a CPU a batch of chains is 2.6 times slower, because one chain fills the caches. All
    # chains run the same program, so the draws of a chain do not depend on the number of chains.
    sweep = sweep_on(mesh.devices.flat[0].platform)
    after = [
        sweep(chain_keys[chain], jax.tree.map(lambda x, c=chain: x[c], state), cells, n_active, alpha, *same)
        for chain in range(len(chain_keys))
    ]
    return jax.tree.map(lambda *chains: jnp.stack(chains), *after)


def sweep_chain(
    key: Array,
    state: GibbsState,
    cells: dict[str, ObservedCells],
    n_active: int | Int[Array, ""],
    noise_precision: float | Float[Array, ""],
    coupling: Coupling,
    settings: GibbsSettings,
    mesh: Mesh,
) -> tuple[GibbsState, SweepInfo]:
    """Run SWEEPS_PER_CALL sweeps, only `n_active` of them active, so that all numbers use the same program.

    `noise_precision` replaces that of `settings`.
    """

    def run(
        key: Array, state: GibbsState, cells: dict[str, ObservedCells], n_active: Array, noise_precision: Array
    ) -> tuple[GibbsState, SweepInfo]:
        def sweep(state: GibbsState) -> tuple[GibbsState, SweepInfo]:
            return step(key, state, cells, coupling, settings, AXIS, noise_precision)

        # Written out: asking JAX for the shapes would trace the sweep once more, which takes a second.
        zero = jnp.zeros((), state.factors[coupling.factors[0]].dtype)
        errors, sizes = {name: zero for name, _ in coupling.tensors}, dict.fromkeys(coupling.factors, zero)
        idle_info = SweepInfo(errors, zero, sizes, jnp.zeros(len(coupling.factors), bool))

        def body(state: GibbsState, number: Array) -> tuple[GibbsState, SweepInfo]:
            return lax.cond(number < n_active, sweep, lambda s: (s, idle_info), state)

        return lax.scan(body, state, jnp.arange(SWEEPS_PER_CALL))

    specs = (SAME, SAME, _partition(cells), SAME, SAME)
    share = jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=SAME, check_vma=False)
    return share(key, state, cells, n_active, noise_precision)


@cache
def sweep_on(platform: str) -> Callable[..., tuple[GibbsState, SweepInfo]]:
    """`sweep_chain`, compiled for a platform: options of the CPU must not reach the compiler of another one."""
    options = ONE_CORE_A_DEVICE if platform == "cpu" else None
    return jax.jit(sweep_chain, static_argnames=("coupling", "settings", "mesh"), compiler_options=options)


def _traced(info: SweepInfo, n: int, weights: dict[str, float], coupling: Coupling) -> Trace:
    """The quantities of `watched` in the first `n` sweeps of `info`, shapes (chains, n)."""
    errors = (jnp.sqrt(jnp.maximum(info.square_error[name], 0) / weights[name]) for name, _ in coupling.tensors)
    found = info.log_joint, *errors, *(info.square_size[factor] for factor in coupling.factors)
    return {each: np.asarray(values)[:, :n] for each, values in zip(watched(coupling), found, strict=True)}


def _joined(traces: list[Trace]) -> Trace:
    return {each: np.concatenate([part[each] for part in traces], axis=1) for each in traces[0]}


def _sweeps_to_next_stop(done: int, n_sweeps: int, keep: Keep, checkpoints: Checkpoints | None) -> int:
    for sweep in range(done + 1, done + SWEEPS_PER_CALL):
        if sweep == n_sweeps or keep(sweep, n_sweeps) or (checkpoints and sweep % checkpoints.every == 0):
            return sweep - done
    return SWEEPS_PER_CALL


def _check_finite(info: SweepInfo, n: int, done: int, coupling: Coupling, checkpoints: Checkpoints | None) -> None:
    finite = np.asarray(info.finite)[:, :n].all(axis=0)
    if finite.all():
        return
    sweep, factor = np.argwhere(~finite)[0]
    at = f" The last checkpoint is {checkpoints.path}." if checkpoints and checkpoints.path.is_file() else ""
    raise NumericalError(
        f"factor '{coupling.factors[factor]}' is no longer finite after sweep {done + int(sweep) + 1}: its precision "
        f"matrix lost definiteness in {info.square_error[coupling.tensors[0][0]].dtype}. Lower noise_precision, or "
        f"check the counts for extreme values.{at}"
    )


def _fingerprint(key: Array, cells: dict[str, ObservedCells], n_rows: dict[str, int], *model: Any) -> str:
    """Hash of key, data and model, which together determine the draws."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((CHECKPOINT_FORMAT, sorted(n_rows.items()), *model, jax.__version__)).encode())
    for leaf in (jax.random.key_data(key), *jax.tree.leaves(cells)):
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()


def _write_checkpoint(path: Path, state: GibbsState, trace: Trace, fingerprint: str) -> None:
    arrays = {f"state_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
    arrays |= {f"trace_{quantity}": values for quantity, values in trace.items()}
    with atomic_file(path) as partial_path, open(partial_path, "wb") as file:
        np.savez(file, fingerprint=fingerprint, **arrays)  # type: ignore[arg-type]
        file.flush()
        os.fsync(file.fileno())


def _read_checkpoint(
    path: Path, start: GibbsState, fingerprint: str, coupling: Coupling, n_sweeps: int
) -> tuple[GibbsState, Trace]:
    """The state at a checkpoint, and the quantities of the sweeps up to it."""

    def refusal(expected: str, found: str) -> InputError:
        return InputError(
            str(path), [Problem(expected, found, way_out="Delete it to start anew, or give another name")]
        )

    try:
        # The file is opened here, because NumPy would leave a damaged file open.
        with open(open_own(path, os.O_RDONLY), "rb") as file, np.load(file) as read:
            arrays = dict(read)
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise refusal("a checkpoint", str(error)) from error
    if str(arrays.get("fingerprint")) != fingerprint:
        raise refusal("the checkpoint of this run", "one of other data, settings or seed, or of another version")
    structure = jax.tree.structure(start)
    state = jax.tree.unflatten(structure, [arrays[f"state_{i}"] for i in range(structure.num_leaves)])
    if (done := int(state.sweep[0])) > n_sweeps:
        raise refusal(f"a checkpoint of at most {n_sweeps} sweeps", f"one of {done}")
    return state, {quantity: arrays[f"trace_{quantity}"] for quantity in watched(coupling)}
