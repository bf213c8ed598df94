"""Work over parts of the users: in this process, or in other processes and on other machines.

A part is what a worker has in memory at a time, such as 65,536 users of a folder. `map_parts` gives the results in the
order of the parts. Sums are taken in this order, so they are the same, bit by bit, for any engine and any number of
workers. joblib carries the tasks: its processes on this machine, or a cluster of Dask, Ray or Spark, which bring
scheduling, another try if a worker dies, and limits of memory. A task carries the path of a part, a model, the ids of
users and arrays over them, and the seed of draws, but not the traces. All workers must see the same files, under the
same names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from threading import Lock
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.runtime.threads import in_a_single_thread, one_thread

Item = TypeVar("Item")
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


class Engine(NamedTuple):
    """Where the tasks of `map_parts` run.

    `backend` is the name of a back end of joblib, or "threads" for this process; `where` is a number of processes, or
    the address of a scheduler.
    """

    backend: str
    where: str = ""

    @property
    def is_remote(self) -> bool:
        """Whether other processes do the work."""
        return self.backend != THREADS.backend


THREADS = Engine("threads")
WAIT_S = 20
"""A scheduler that does not answer for so long is taken for absent."""
INSTALLED_BY = {"dask": "'ppmtf_jax[cluster]'", "ray": "ray", "spark": "joblibspark pyspark"}
ENGINES = ("threads", "processes:4", "dask:tcp://HOST:8786", "ray", "spark")
_engine: ContextVar[Engine] = ContextVar("engine", default=THREADS)
_stage: ContextVar[str] = ContextVar("stage", default="work")
# The limit to one thread is that of a process, so tasks of a Dask worker with several threads follow each other.
_one_task = Lock()


@contextmanager
def use_engine(words: str) -> Iterator[Engine]:
    """Let an engine do the work on parts of the users, inside the block; results are the same with every engine.

    Raises `InputError`: there is no such engine, its library is not installed, or its scheduler does not answer.

    Parameters
    ----------
    words : str
        "threads": all cores of this process. "processes:4": four processes on this machine. "dask:tcp://HOST:8786": the
        workers of this scheduler of Dask; "dask": the client that the program has made. "ray", "spark": the cluster
        that the program, or its environment, is connected to.

    Examples
    --------
    >>> with use_engine("threads"):
    ...     list(map_parts(abs, [-2, 1]))
    [2, 1]
    """
    engine = _engine_of(words)
    with _connected(engine):
        token = _engine.set(engine)
        try:
            yield engine
        finally:
            _engine.reset(token)


def is_remote() -> bool:
    """Whether other processes do the work on parts."""
    return _engine.get().is_remote


def stage(name: str) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Name the tasks that a function starts; a dashboard shows them by this name."""

    def named(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @wraps(function)
        def call(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
            token = _stage.set(name)
            try:
                return function(*arguments, **options)
            finally:
                _stage.reset(token)

        return call

    return named


def map_parts(
    function: Callable[[Item], Result],
    parts: Iterable[Item],
    *,
    n_parts: int = 0,
    name_of: Callable[[Item], str] = str,
    progress: bool = False,
) -> Iterator[Result]:
    """Results of a function of each part, in the order of the parts.

    In this process, one part follows the other, because a part itself uses all cores; elsewhere each worker takes a
    part. An error has a note with the stage and the name of the part.

    Parameters
    ----------
    function : callable
        It and the parts are pickled by cloudpickle for other processes. It may write files.
    n_parts : int
        Their number, for the progress bar; no bar is shown for 0.
    name_of : callable
        The name of a part in the note of an error, such as "users 0 to 65535".

    Examples
    --------
    >>> list(map_parts(len, [[1, 2], [3]]))
    [2, 1]
    """
    title, engine = _stage.get(), _engine.get()
    double = jnp.result_type(float) == jnp.float64
    tasks = (_Task(function, part, title, name_of(part), double) for part in parts)
    results = _in_processes(tasks, engine) if engine.is_remote else (task.result() for task in tasks)
    with progress_bar(title, n_parts, show=progress and n_parts > 1 and engine.is_remote) as advance:
        for result in results:
            yield result
            advance(1)


@dataclass(frozen=True, eq=False, repr=False)
class _Task:
    """A function of a part, with what JAX must know of the caller's thread."""

    function: Callable[[Any], Any]
    part: Any
    stage: str
    name: str
    double: bool

    @property
    def __name__(self) -> str:  # joblib and Dask name their tasks by it
        return self.stage

    def __repr__(self) -> str:  # Dask logs it if the task fails; the part may hold data of people
        return f"{self.stage}: {self.name}"

    def result(self) -> Any:
        try:
            return self.function(self.part)
        except Exception as error:
            error.add_note(f"In the stage {self.stage}, {self.name}")
            raise

    def __call__(self) -> Any:
        """The result in a worker; there are as many workers as cores, so each takes one thread."""
        token = _engine.set(THREADS)
        try:
            with _one_task, jax.enable_x64(self.double), one_thread(), in_a_single_thread():
                return self.result()
        finally:
            _engine.reset(token)


def _engine_of(words: str) -> Engine:
    name, _, where = words.partition(":")
    backend = {"processes": "loky"}.get(name, name)
    problem = None
    if name == "processes" and not (where.isdecimal() and int(where) > 0):
        problem = Problem("a number of processes, such as processes:4", repr(words))
    elif name not in {each.partition(":")[0] for each in ENGINES}:
        problem = Problem(f"one of {', '.join(ENGINES)}", repr(words))
    elif where and name not in ("processes", "dask"):
        problem = Problem(f"the word {name} alone", repr(words))
    if problem:
        raise InputError("engine", [problem])
    return Engine(backend, where)


@contextmanager
def _connected(engine: Engine) -> Iterator[None]:
    """A connection to the workers of an engine, and its back end in joblib."""
    connection = nullcontext()
    try:
        if engine.backend == "ray":
            import ray  # noqa: F401  # pyright: ignore[reportMissingImports]
        elif engine.backend == "spark":
            from joblibspark import register_spark  # pyright: ignore[reportMissingImports]

            register_spark()
        elif engine.backend == "dask":
            from distributed import Client, get_client  # pyright: ignore[reportMissingImports]

            connection = Client(engine.where, timeout=WAIT_S) if engine.where else nullcontext(get_client())
    except ImportError as error:
        way_out = f"pip install {INSTALLED_BY[engine.backend]}"
        raise InputError("engine", [Problem("the library of this engine", str(error), way_out=way_out)]) from error
    except (OSError, ValueError) as error:
        way_out = "Start it with `dask scheduler`, and workers with `dask worker tcp://HOST:8786`"
        raise InputError("engine", [Problem("a scheduler that answers", str(error), way_out=way_out)]) from error
    with connection:
        yield


def _in_processes(tasks: Iterable[_Task], engine: Engine) -> Iterator[Any]:
    """The results of tasks in the workers of an engine, in order."""
    from joblib import Parallel, parallel_config
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    killed: tuple[type[Exception], ...] = (TerminatedWorkerError,)
    if engine.backend == "dask":
        from distributed import KilledWorker  # pyright: ignore[reportMissingImports]

        killed += (KilledWorker,)
    n_jobs = int(engine.where) if engine.backend == "loky" else -1
    # The other back ends give all results at the end.
    return_as = "generator" if engine.backend in ("loky", "dask") else "list"
    with parallel_config(backend=engine.backend, n_jobs=n_jobs):
        # Large arrays stay in the tasks: joblib would write them to files that others may read.
        parallel = Parallel(batch_size=1, return_as=return_as, max_nbytes=None)
    if engine.backend == "dask":
        _tell_failures(parallel._backend)
    try:
        yield from parallel((task, (), {}) for task in tasks)
    except killed as error:
        way_out = "The system may have killed it for want of memory: take fewer processes, or workers with more memory"
        raise InputError("engine", [Problem("processes that live", "one that ended", way_out=way_out)]) from error


def _tell_failures(backend: Any) -> None:
    """Let joblib know of tasks that Dask gave up, because they ended several workers; it would wait for ever."""
    name = "submit" if hasattr(backend, "submit") else "apply_async"  # before joblib 1.5
    submit = getattr(backend, name)

    def submitted(function: Any, callback: Any = None) -> Any:
        def tell(done: Any) -> None:
            if callback and not done.cancelled() and (error := done.exception()):
                callback(error)

        future = submit(function, callback)
        future.add_done_callback(tell)
        return future

    setattr(backend, name, submitted)
