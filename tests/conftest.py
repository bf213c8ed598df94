"""Where the real data sets are, and settings that tests share."""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import jax
import pytest
from threadpoolctl import threadpool_limits

from tests.workers import workers  # noqa: F401 - a fixture

# Pictures are drawn into files, whatever display the developer has.
os.environ.setdefault("MPLBACKEND", "agg")

# Keep compiled modules even if PYTHONDONTWRITEBYTECODE is set, as it is in many containers: without them each worker
# compiles all modules and tests again, which takes 6 s of processor time.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Most of the time of the fast tests is compilation of programs that run once, on little data. Slow tests, notebooks and
# benchmarks run what users do. Only public settings of JAX are asked for, and a JAX that does not know one of them runs
# the same tests in more time: a flag of XLA that it does not know would end the process.
if "slow" not in os.environ.get("PYTEST_ADDOPTS", "") + " ".join(sys.argv):
    for name, value in (("jax_disable_most_optimizations", True), ("jax_traceback_in_locations_limit", 0)):
        os.environ.setdefault(name.upper(), str(int(value)))  # for programs that tests start
        with contextlib.suppress(AttributeError):
            jax.config.update(name, type(value)(int(os.environ[name.upper()])))
    # Threads of BLAS and OpenMP spin while they wait for work; each worker of pytest computes little, on one core.
    # The workers and the programs that tests start read the environment; this process may have loaded NumPy already.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    threadpool_limits(1)
    # The workers keep the memory that a test frees for the next one; to return it and to ask for it again took a tenth
    # of their time. (glibc alone reads these variables.)
    os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", str(2**28))
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(2**25))  # the largest that it takes
    os.environ.setdefault("MALLOC_TOP_PAD_", str(2**24))

# Most of what tests leave behind is freed without the collector, which would run a hundred times a second.
gc.set_threshold(1_000_000)

# Folders whose tests run programs of the same shapes, which are compiled, or loaded, once in each process.
SAME_PROGRAMS = {
    f"tests/{folder}"
    for folder in (
        "gibbs", "people", "privacy", "private", "semantics", "synthesizers",
        "trace_models",
    )
}  # fmt: skip
# A file that runs the programs of another folder.
WITH = {"tests/synthesizers/test_private.py": "tests/private"}

# Bytes by which a worker grows before it forgets its compiled programs.
MAX_MEMORY_OF_PROGRAMS = 2**31
_memory_before = 0

# The same examples at every run; no deadline, since the first call of a jitted function compiles it.
hypothesis.settings.register_profile("reproducible", derandomize=True, deadline=None)
hypothesis.settings.load_profile("reproducible")


def pytest_configure(config: pytest.Config) -> None:
    """Keep compiled programs between runs, in pytest's own cache (`pytest --cache-clear` forgets them)."""
    cache = getattr(config, "cache", None)
    if cache is None or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    # Programs are compiled for one machine's processor, and a checkout may be on a disk that several machines use.
    folder = str(cache.mkdir(f"jax-{platform.node()}"))
    # In the environment for pytest's workers, too, and for programs that tests start.
    os.environ["JAX_COMPILATION_CACHE_DIR"] = folder
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Leave the tests of a file to one worker, or those of a folder: they share fitted models and compiled programs."""
    from xdist.scheduler import LoadFileScheduling

    class LoadFolderScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            folder = file.rpartition("/")[0]
            return WITH.get(file, folder if folder in SAME_PROGRAMS else file)

    return LoadFolderScheduling(config, log) if config.getvalue("dist") == "load" else None


def pytest_collection_finish() -> None:
    """Spare the collector of garbage the modules and tests, which stay until the end."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Spare the collector everything, since pytest calls it five times before it ends."""
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Forget compiled programs between files once they and what they keep have taken much memory.

    JAX forgets none by itself: a worker grew to 5 GB.
    """
    result = yield
    if nextitem is not None and nextitem.path != item.path:
        global _memory_before
        grown = memory_of_this_process() - _memory_before
        if grown > MAX_MEMORY_OF_PROGRAMS:
            jax.clear_caches()
            gc.collect()
            _memory_before = memory_of_this_process()
    return result


def memory_of_this_process() -> int:
    """Resident bytes; 0 where the system does not say."""
    file = Path("/proc/self/statm")
    return int(file.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if file.exists() else 0


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Name bytes by their argument: an archive holds the time of its making, and all workers must name tests alike."""
    del config
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of real data sets and official results, beside the repository."""
    return _present(Path(__file__).resolve().parents[2] / "shared")


@pytest.fixture(scope="session")
def people_flow(shared: Path) -> Path:
    """Official people-flow files and results (Tokyo, 500 training and 500 test users)."""
    return _present(shared / "reference" / "people_flow")


@pytest.fixture(scope="session")
def foursquare_nyc(shared: Path) -> Path:
    """Foursquare TSMC2014, New York."""
    return _present(shared / "data" / "foursquare-tsmc2014-nyc")


@pytest.fixture(scope="session")
def gowalla_nyc(shared: Path) -> Path:
    """SNAP Gowalla, cut to New York, with friendships."""
    return _present(shared / "data" / "gowalla-nyc")


@pytest.fixture(scope="session")
def data_folder(shared: Path) -> Callable[[str], Path]:
    """Gives the folder of a data set by its name."""
    return lambda name: _present(shared / "data" / name)


@pytest.fixture(scope="session")
def geolife_data(shared: Path) -> Path:
    """Geolife: all trajectories with a fix a minute, and those of four users in full."""
    return _present(shared / "data" / "geolife")


@pytest.fixture
def float64() -> Iterator[None]:
    """JAX computes in double precision while the test runs."""
    with jax.enable_x64(True):
        yield


def _present(folder: Path) -> Path:
    if not folder.is_dir():
        pytest.skip(f"needs the data folder '{folder.name}', which is not beside the repository")
    return folder
