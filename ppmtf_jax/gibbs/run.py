"""Running the sampler: jitted scans of sweeps, kept draws, checkpoints with exact resume, progress."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Int, Key

from ppmtf_jax.errors import InputError, NumericalError, Problem, first_examples
from ppmtf_jax.gibbs.cells import ObservedCells, pad_parts
from ppmtf_jax.gibbs.kernel import Coupling, Factors, GibbsSettings, GibbsState, SweepInfo, init_state, step
from ppmtf_jax.gibbs.quantities import Quantity
from ppmtf_jax.runtime.devices import AXIS, SAME, SPLIT, is_first_process, mesh_of, put
from ppmtf_jax.runtime.files import atomic_file, open_own
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.settings import Count, CountOrZero, Settings

# Sweeps of one jitted call: enough to hide the call, few enough for a lively progress bar.
SWEEPS_PER_CALL = 5
# A device of a CPU has a core. XLA would share small operations out among all cores, and do several at once on each
# device: with a device for each core a sweep then takes 1.4 times as long. Other platforms ignore this.
ONE_CORE_A_DEVICE = {"xla_cpu_multi_thread_eigen": False, "xla_cpu_enable_concurrency_optimized_scheduler": False}
WAY_OUT = "Delete it to start anew, or give another name"


@runtime_checkable
class Keep(Protocol):
    """Says which draws to keep; any object with this method will do."""

    def keeps(self, sweep: int, n_sweeps: int) -> bool:
        """Whether the draw after `sweep` sweeps (1 to n_sweeps) is kept."""
        ...


@dataclass(frozen=True)
class KeepLast:
    """Keep only the last draw, as published."""

    def keeps(self, sweep: int, n_sweeps: int) -> bool:
        """Whether this is the last."""
        return sweep == n_sweeps


@dataclass(frozen=True)
class KeepEvery(Settings, subject="keep"):
    """Keep every n-th draw after a burn-in."""

    n: Count
    burn_in: CountOrZero = 0

    def keeps(self, sweep: int, n_sweeps: int) -> bool:
        """Whether it is an n-th one, counted from the burn-in."""
        return sweep > self.burn_in and (sweep - self.burn_in) % self.n == 0


@dataclass(frozen=True)
class Checkpoints(Settings, subject="checkpoints"):
    """Where and how often to write the state of a run, so that it can go on after it was stopped.

    A run that finds the file of the same run goes on from it; a file of another run is refused, or of another user.
    Draws tell of the users in the data, so only the file's owner may read it.
    """

    path: Path
    every: Count = 10


class GibbsResult(NamedTuple):
    """Outcome of a run.

    Attributes
    ----------
    state : GibbsState
        Of the last sweep, every array with a leading chain axis.
    draws : dict of float32 arrays, shape (chains, kept, rows, rank)
        The factors, or what else was kept of them.
    kept_sweeps : int array, shape (kept,)
        After how many sweeps each kept draw was taken.
    trace : dict of float arrays, shape (chains, sweeps)
        Those quantities after each sweep that `watched` names.
    """

    state: GibbsState
    draws: dict[str, np.ndarray]
    kept_sweeps: np.ndarray
    trace: dict[Quantity, np.ndarray]


def watched(coupling: Coupling) -> list[Quantity]:
    """What a run records after each sweep: log joint density, error of each tensor, mean square of each factor.

    Examples
    --------
    >>> [str(quantity) for quantity in watched(Coupling((("visits", ("user", "place", "slot")),)))]
    ['log_joint', 'rmse_visits', 'size_user', 'size_place', 'size_slot']
    """
    errors = [Quantity("rmse", tensor) for tensor, _ in coupling.tensors]
    return [Quantity("log_joint"), *errors, *(Quantity("size", factor) for factor in coupling.factors)]


def factors_of_draw(factors: Factors) -> dict[str, np.ndarray]:
    """All factors, on the host."""
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
    keep: Keep = KeepLast(),
    kept_of: Callable[[Factors], dict[str, np.ndarray]] = factors_of_draw,
    checkpoints: Checkpoints | None = None,
    progress: bool = False,
    devices: Sequence[Any] | None = None,
) -> GibbsResult:
    """Run `n_sweeps` sweeps of `n_chains` chains.

    Parameters
    ----------
    key : typed key; with the data and the settings it decides every draw
    cells : observed cells of each tensor, from `cells.observe`
    n_rows : rows of each factor
    keep : which draws to keep
    kept_of : what to keep of a draw, by default its factors: a function of these, called sweep by sweep, giving arrays
        by name; the arrays of both have a leading chain axis. Where there are checkpoints, it has to be the default
    checkpoints : resume from and write to a file; a resumed run equals an unbroken one bit for bit
    devices : JAX devices, which share the cells and the work; by default all that JAX has, of every process where there
        are several. The draws do not depend on their number: each row is drawn with a key of its own, and sums over
        devices are taken in a fixed order.

    Raises
    ------
    NumericalError
        A factor is no longer finite: says at which sweep, in which factor and where the last checkpoint is.
    InputError
        The checkpoint is of another run.
    """
    problems = []
    if n_sweeps < 1 or n_chains < 1:
        problems.append(Problem("at least one sweep and one chain", f"{n_sweeps} sweeps, {n_chains} chains"))
    if checkpoints and kept_of is not factors_of_draw:
        problems.append(Problem("factors to keep where there are checkpoints, which hold them", "another kept_of"))
    if problems:
        raise InputError("run", problems)
    mesh = mesh_of(devices)
    # Of all cells, so not where nobody asks for it.
    fingerprint = _fingerprint(key, cells, n_rows, coupling, settings, n_chains) if checkpoints else ""
    cells = share_cells(cells, mesh)
    chain_keys, start = init_chains(key, n_chains, n_rows, coupling, settings, mesh)
    history = _History(start, [], [], [])
    if checkpoints and checkpoints.path.is_file():
        history = _read_checkpoint(checkpoints.path, history, fingerprint, coupling)
        history = history.keeping(keep, n_sweeps, checkpoints.path)
        history = history._replace(state=_on_all_devices(history.state, mesh))

    weights = {name: float(cells[name].total_weight) for name, _ in coupling.tensors}
    done = int(history.state.sweep[0])
    with progress_bar("Gibbs sweeps", n_sweeps, show=progress, done=done) as advance:
        while done < n_sweeps:
            n = _sweeps_to_next_stop(done, n_sweeps, keep, checkpoints)
            state, info = run_sweeps(chain_keys, history.state, cells, n, coupling, settings, mesh)
            _check_finite(info, n, done, coupling, checkpoints)
            done += n
            advance(n)
            history.trace.append(_traced(info, n, weights, coupling))
            history = history._replace(state=state)
            if keep.keeps(done, n_sweeps):
                history.kept.append(kept_of(state.factors))
                history.kept_sweeps.append(done)
            if checkpoints and is_first_process() and (done % checkpoints.every == 0 or done == n_sweeps):
                _write_checkpoint(checkpoints.path, history, fingerprint)
    return history.result()


class _History(NamedTuple):
    """A run so far: exactly what a checkpoint holds."""

    state: GibbsState
    kept: list[dict[str, np.ndarray]]
    kept_sweeps: list[int]
    trace: list[dict[Quantity, np.ndarray]]

    def keeping(self, keep: Keep, n_sweeps: int, path: Path) -> _History:
        """Of the draws in a checkpoint those that `keep` asks for; it may have been written with another `keep`."""
        done = int(self.state.sweep[0])
        if done > n_sweeps:
            found = f"one of {done}"
            raise InputError(str(path), [Problem(f"a checkpoint of at most {n_sweeps} sweeps", found, way_out=WAY_OUT)])
        stored = dict(zip(self.kept_sweeps, self.kept, strict=True))
        wanted = [sweep for sweep in range(1, done + 1) if keep.keeps(sweep, n_sweeps)]
        missing = [sweep for sweep in wanted if sweep not in stored]
        if missing:
            found = f"none of sweeps {', '.join(first_examples(missing))}"
            raise InputError(str(path), [Problem("a checkpoint with the draws to keep", found, way_out=WAY_OUT)])
        return self._replace(kept=[stored[sweep] for sweep in wanted], kept_sweeps=wanted)

    def result(self) -> GibbsResult:
        names = self.kept[0] if self.kept else {}
        draws = {name: np.stack([draw[name] for draw in self.kept], axis=1) for name in names}
        # Of several devices' equal copies one is enough for whatever comes next.
        state = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), self.state)
        return GibbsResult(state, draws, np.array(self.kept_sweeps, np.int64), self.joined_trace())

    def joined_trace(self) -> dict[Quantity, np.ndarray]:
        return {each: np.concatenate([part[each] for part in self.trace], axis=1) for each in self.trace[0]}


def share_cells(cells: dict[str, ObservedCells], mesh: Mesh) -> dict[str, ObservedCells]:
    """Put the parts of all tiles on the devices of a mesh in turn, and the rest on each of them.

    Parameters
    ----------
    cells : dict of `ObservedCells`
        As `cells.observe` gives them, on the host.
    mesh : Mesh
        See `runtime.devices.mesh_of`.
    """
    cells = pad_parts(cells, mesh.size)
    return put(cells, _partition(cells), mesh)


def _partition(cells: dict[str, ObservedCells]) -> dict[str, ObservedCells]:
    """How each array of the cells lies on the devices."""

    def of(own: ObservedCells) -> ObservedCells:
        by_mode = jax.tree.map(lambda _: SPLIT, own.by_mode)
        return jax.tree.map(lambda _: SAME, own)._replace(by_mode=by_mode)

    return {name: of(own) for name, own in cells.items()}


def init_chains(
    key: Key[Array, ""], n_chains: int, n_rows: dict[str, int], coupling: Coupling, settings: GibbsSettings, mesh: Mesh
) -> tuple[Array, GibbsState]:
    """The key and the first state of each chain, on every device of the mesh.

    Returns
    -------
    keys : key array, shape (chains,)
    state : GibbsState
        Every array with a leading chain axis.
    """
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(n_chains))
    state = jax.vmap(lambda key: init_state(key, n_rows, coupling, settings))(keys)
    return jax.random.wrap_key_data(_on_all_devices(jax.random.key_data(keys), mesh)), _on_all_devices(state, mesh)


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
    """Some sweeps of every chain; all arrays of `state` and of what is returned have a leading chain axis.

    Parameters
    ----------
    chain_keys, state : from `init_chains`, or the state of an earlier call
    cells : dict of `ObservedCells`
        Shared among the devices by `share_cells`.
    n_active : int
        How many sweeps, at most SWEEPS_PER_CALL.
    """
    # One chain after another: a batch of chains is 2.6 times slower on CPU, whose caches one chain fills. And as all
    # chains run the same program, a chain's draws are the same however many there are.
    after = [
        sweep_chain(
            chain_keys[chain], jax.tree.map(lambda x, c=chain: x[c], state), cells, n_active, coupling, settings, mesh
        )
        for chain in range(len(chain_keys))
    ]
    return jax.tree.map(lambda *chains: jnp.stack(chains), *after)


@partial(jax.jit, static_argnames=("coupling", "settings", "mesh"), compiler_options=ONE_CORE_A_DEVICE)
def sweep_chain(
    key: Array,
    state: GibbsState,
    cells: dict[str, ObservedCells],
    n_active: int | Int[Array, ""],
    coupling: Coupling,
    settings: GibbsSettings,
    mesh: Mesh,
) -> tuple[GibbsState, SweepInfo]:
    """The same number of sweeps whatever is asked for, some of them idle, so that it is one program."""

    def run(
        key: Array, state: GibbsState, cells: dict[str, ObservedCells], n_active: Array
    ) -> tuple[GibbsState, SweepInfo]:
        def sweep(state: GibbsState) -> tuple[GibbsState, SweepInfo]:
            return step(key, state, cells, coupling, settings, AXIS)

        idle_info = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(sweep, state)[1])

        def body(state: GibbsState, number: Array) -> tuple[GibbsState, SweepInfo]:
            return lax.cond(number < n_active, sweep, lambda s: (s, idle_info), state)

        return lax.scan(body, state, jnp.arange(SWEEPS_PER_CALL))

    specs = (SAME, SAME, _partition(cells), SAME)
    share = jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=SAME, check_vma=False)
    return share(key, state, cells, n_active)


def _traced(info: SweepInfo, n: int, weights: dict[str, float], coupling: Coupling) -> dict[Quantity, np.ndarray]:
    """The first `n` sweeps of `info` as `watched` quantities, shapes (chains, n)."""
    found = {Quantity("log_joint"): info.log_joint}
    for tensor, error in info.square_error.items():
        found[Quantity("rmse", tensor)] = jnp.sqrt(jnp.maximum(error, 0) / weights[tensor])
    found |= {Quantity("size", factor): size for factor, size in info.square_size.items()}
    return {quantity: np.asarray(found[quantity])[:, :n] for quantity in watched(coupling)}


def _sweeps_to_next_stop(done: int, n_sweeps: int, keep: Keep, checkpoints: Checkpoints | None) -> int:
    for n in range(1, SWEEPS_PER_CALL + 1):
        stops = done + n == n_sweeps or keep.keeps(done + n, n_sweeps)
        if stops or (checkpoints and (done + n) % checkpoints.every == 0):
            return n
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


def _fingerprint(
    key: Array,
    cells: dict[str, ObservedCells],
    n_rows: dict[str, int],
    coupling: Coupling,
    settings: GibbsSettings,
    n_chains: int,
) -> str:
    """Identifies a chain of draws: the same key, data and model. What is kept of it is not a part of that."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((sorted(n_rows.items()), coupling, settings, n_chains, jax.__version__)).encode())
    digest.update(np.asarray(jax.random.key_data(key)).tobytes())
    for leaf in jax.tree.leaves(cells):
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()


def _write_checkpoint(path: Path, history: _History, fingerprint: str) -> None:
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(history.state)]
    arrays = {f"state_{i}": leaf for i, leaf in enumerate(leaves)}
    arrays |= {f"trace_{quantity}": values for quantity, values in history.joined_trace().items()}
    for i, draw in enumerate(history.kept):
        arrays |= {f"kept_{i}_{name}": value for name, value in draw.items()}
    with atomic_file(path) as partial_path, open(partial_path, "wb") as file:
        np.savez(file, fingerprint=fingerprint, kept_sweeps=np.array(history.kept_sweeps, np.int64), **arrays)  # type: ignore[arg-type]
        file.flush()
        os.fsync(file.fileno())


def _read_checkpoint(path: Path, fresh: _History, fingerprint: str, coupling: Coupling) -> _History:
    try:
        # Opened here: NumPy leaves a damaged file open.
        with open(open_own(path, os.O_RDONLY), "rb") as file, np.load(file) as stored:
            arrays = dict(stored)
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(str(path), [Problem("a checkpoint", str(error), way_out=WAY_OUT)]) from error
    if str(arrays.get("fingerprint")) != fingerprint:
        expected = "the checkpoint of this run"
        raise InputError(str(path), [Problem(expected, "one of other data, settings or seed", way_out=WAY_OUT)])
    structure = jax.tree.structure(fresh.state)
    state = jax.tree.unflatten(structure, [arrays[f"state_{i}"] for i in range(structure.num_leaves)])
    kept_sweeps = arrays["kept_sweeps"].tolist()
    kept = [{name: arrays[f"kept_{i}_{name}"] for name in fresh.state.factors} for i in range(len(kept_sweeps))]
    trace = {quantity: arrays[f"trace_{quantity}"] for quantity in watched(coupling)}
    return _History(state, kept, kept_sweeps, [trace])
