"""The package has one direction: a module imports only from stages before its own, and never in a circle."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "ppmtf_jax"

# Names of one stage do not import each other, except in the first, which knows nothing of the data. "" is the package
# itself with what it re-exports.
STAGES = (
    {"errors", "settings", "registry", "streams"},
    {"runtime"},
    {"noise"},
    {"data"},
    {"datasets"},
    {"gibbs", "trace_models"},
    {"people", "semantics", "models"},
    {"private"},
    {"synthesizers"},
    {"privacy"},
    {"attacks", "colocation"},
    {"evaluation"},
    {"exports"},
    {"jobs"},
    {""},
    {"cli"},
    {"__main__"},
)


def modules(package: Path) -> dict[str, Path]:
    """Dotted name, without the package's own, and file of every module; a folder's `__init__` goes by the folder."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


def imports(source: str, known: set[str]) -> set[str]:
    """Modules of the package that a source imports anywhere in it, inside functions too.

    `from ppmtf_jax.a import b` is an import of module a.b where there is one, else of module a.
    """
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [("." * node.level + (node.module or ""), alias.name) for alias in node.names]
        else:
            continue
        for module, name in names:
            assert not module.startswith("."), f"relative import of {module}"
            head, _, inner = module.partition(".")
            if head == PACKAGE:
                candidate = f"{inner}.{name}".strip(".") if name else inner
                found.add(candidate if candidate in known else inner)
    return found


def stage(module: str) -> int:
    """Number of the stage that a module belongs to."""
    name = module.partition(".")[0]
    for number, names in enumerate(STAGES):
        if name in names:
            return number
    pytest.fail(f"{PACKAGE}.{name} has no place in STAGES")


def offences(graph: dict[str, set[str]]) -> list[str]:
    """Imports that go against the direction, each as text."""
    found = []
    for module, imported in graph.items():
        for other in imported:
            same_name = module.partition(".")[0] == other.partition(".")[0]
            both_first = {module, other} <= STAGES[0]
            if stage(other) > stage(module) or (stage(other) == stage(module) and not (same_name or both_first)):
                found.append(f"{module} imports {other}")
    return sorted(found)


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    files = modules(ROOT / PACKAGE)
    # A folder of its own in the repository, which is part of the package once installed.
    files |= {f"models.{name}": path for name, path in modules(ROOT / "models").items()}
    return {name: imports(path.read_text(encoding="utf-8"), set(files)) for name, path in files.items()}


def test_imports_go_one_way(graph: dict[str, set[str]]) -> None:
    assert offences(graph) == []


def test_no_circle_of_imports(graph: dict[str, set[str]]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"circle: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("import ppmtf_jax.evaluation.plots", "evaluation.plots"),
        ("from ppmtf_jax.evaluation import plots", "evaluation.plots"),
        ("from ppmtf_jax.evaluation.plots import plot_population", "evaluation.plots"),
        ("from ppmtf_jax import evaluation", "evaluation"),
        ("from ppmtf_jax import evaluate", ""),
        ("def late():\n    from ppmtf_jax.cli.app import app", "cli.app"),
    ],
)
def test_a_planted_import_is_found(source: str, module: str) -> None:
    known = {"", "cli", "cli.app", "evaluation", "evaluation.plots", "data"}
    assert imports(source, known) == {module}
    assert offences({"data": imports(source, known)}) == [f"data imports {module}"]


def test_neighbours_of_a_stage_are_apart() -> None:
    graph = {"attacks.membership": {"colocation.counts"}, "gibbs.run": {"gibbs.kernel"}, "settings": {"errors"}}
    assert offences(graph) == ["attacks.membership imports colocation.counts"]


def test_models_are_part_of_the_package_and_looked_at(graph: dict[str, set[str]]) -> None:
    assert "gibbs.kernel" in graph["models.mtf_numpyro"]
    assert importlib.import_module(f"{PACKAGE}.models.mtf_numpyro").__file__ == str(ROOT / "models" / "mtf_numpyro.py")


def test_import_leaves_heavy_libraries_out() -> None:
    """Pictures, scikit-learn and the command line cost seconds that a script without them does not pay."""
    code = f"import sys, {PACKAGE}; print(*{{'matplotlib', 'sklearn', 'typer'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
