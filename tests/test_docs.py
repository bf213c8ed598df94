"""What the pages of the documentation show works as it stands there, and the site has all of them."""

from __future__ import annotations

import importlib.util
import json
import re
import stat
import tomllib
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from matplotlib.figure import Figure
from packaging.requirements import Requirement

import ppmtf_jax
from ppmtf_jax.cli.group import COMMANDS
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.evaluation import EvaluationSettings
from ppmtf_jax.jobs.config import JobConfig
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS
from tests.commands import works
from tests.pages import PAGES, ROOT, blocks, command_lines, exit_code_of_help, make_targets, text_of
from tests.people.examples import try_few_settings

DOCS = ROOT / "docs"
README = ROOT / "README.md"
# Pages whose Python blocks are run; that of the README takes longer.
WITH_PYTHON = [page for page in PAGES if page.parent == DOCS and blocks(page, "python")]


def site():
    """The module that makes pages when the site is built; it needs nothing of the site's builder to be loaded."""
    spec = importlib.util.spec_from_file_location("docs_site", DOCS / "site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.stem)
def test_python_runs(page, tmp_path, monkeypatch):
    """The blocks of a page one after the other, as a reader types them."""
    monkeypatch.chdir(tmp_path)
    # The pictures are composed; that they can be laid out and written is tested in tests/evaluation.
    monkeypatch.setattr(Figure, "savefig", lambda _, path, **__: Path(path).touch())
    try_few_settings(monkeypatch)
    names = {}
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), names)


@pytest.mark.slow
def test_gaps_of_the_data_of_the_start_page_are_filled(tmp_path, monkeypatch):
    """Its commands up to `complete`, on fewer people, and with seeds, so that a failure comes again."""
    monkeypatch.chdir(tmp_path)
    try_few_settings(monkeypatch)
    lines = [words for words in command_lines(text_of(DOCS / "start.md")) if "city" in " ".join(words)]
    steps = {words[0]: words for words in reversed(lines) if words[0] in ("import", "fit", "complete")}
    steps["import"][steps["import"].index("1000")] = "200"
    said = [works(*steps[name], "--seed", 0, "--quiet") for name in ("import", "fit", "complete")]
    assert "stay as they are" not in said[-1]
    whole = Traces.load(tmp_path / "whole")
    assert whole.n_users == 160
    assert whole.n_events == len(whole.trace_table()[0]) * whole.time_grid.n_instants


def test_command_lines_and_targets_are_known():
    lines = {" ".join(words): words for page in PAGES for words in command_lines(text_of(page))}
    assert [line for line, words in lines.items() if exit_code_of_help(words)] == []
    for planted in ("fit train --out model --rank 3", "teleport x", "import nowhere x --out y"):
        assert exit_code_of_help(planted.split()) == 2
    named = re.findall(r"tests/[\w/.]+", text_of(ROOT / "Makefile"))
    assert [path for path in named if not (ROOT / path).exists()] == []
    targets = {name for page in [*PAGES, ROOT / "CONTRIBUTING.md"] for name in make_targets(page)}
    assert targets >= {"demo", "test", "check", "docs"}
    assert targets <= set(re.findall(r"^([a-z]+):", text_of(ROOT / "Makefile"), flags=re.MULTILINE))


@pytest.mark.slow
def test_snippet_of_the_readme_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (snippet,) = blocks(README, "python")
    exec(compile(snippet, "README.md", "exec"), {})
    assert re.fullmatch(r"\d+% passed, TP-TV 0\.\d{3}\n", capsys.readouterr().out)
    assert {path.name for path in tmp_path.iterdir()} == {"released", "released-key"}
    files = {path.name for path in (tmp_path / "released").iterdir()}
    assert files >= {"traces.parquet", "places.parquet", "time_grid.json", "PRIVACY.txt", "privacy.json", "ppmtf.json"}
    assert stat.S_IMODE((tmp_path / "released-key").stat().st_mode) == 0o700


def test_the_readme_is_short_and_shows_the_line_in_the_order_of_its_use():
    line = ["import", "fit", "synthesize", "test", "release", "evaluate"]
    assert [words[0] for words in command_lines(text_of(README))][: len(line)] == line
    assert len(text_of(README).splitlines()) <= 120
    assert make_targets(README)[:2] == ["demo", "test"]
    linked = re.findall(r"\]\(notebooks/(\w+)\.ipynb\)", text_of(README))
    assert sorted(linked) == sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))


def test_links_lead_to_files():
    """Inside the repository; the site's builder checks those of the site, made pages included."""
    missing = []
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CODE_OF_CONDUCT.md"]:
        for link in re.findall(r"\]\(([^)#\s]+)", text_of(page)):
            is_made = link.startswith("reference/") or link in ("commands.md", "lists.md")
            if not is_made and not link.startswith("https://") and not (page.parent / link).exists():
                missing.append((page.name, link))
    assert missing == []


def test_job_is_a_configuration(tmp_path):
    (content,) = blocks(DOCS / "start.md", "toml")
    file = tmp_path / "job.toml"
    file.write_text(content, encoding="utf-8")
    config = JobConfig.load(file)
    assert (config.source, config.system, config.seed) == ("foursquare", "bridge", None)
    assert config.compared["ppmtf"].zeros == "weighted"
    assert (config.testing.k, config.testing.eta) == (10, 1.0)


def test_page_of_metrics_says_what_each_is_for():
    rows = re.findall(r"^\| ([^|]*) \|", text_of(DOCS / "results.md"), flags=re.MULTILINE)
    # Three titles of lengths of windows have a comma of their own.
    named = {title for row in rows for title in (row, *row.split(", "))}
    titles = {each.title for each in EvaluationSettings(attacks=False).quantities().values()}
    assert titles - named == set()


def test_every_synthesizer_is_explained():
    # ITF, the twin of PPMTF, serves to compare with it.
    headings = re.findall(r"^## (.*)", text_of(DOCS / "synthesizers.md"), flags=re.MULTILINE)
    explained = {word for heading in headings for word in heading.split()}
    assert set(SYNTHESIZERS) - explained <= {"itf"}


def test_what_processes_say_to_each_other_is_not_protected():
    said = " ".join(text_of(DOCS / "scaling.md").split())
    assert "neither authenticates nor encrypts" in said
    assert "a network that you trust" in said


def test_workflow_runs_what_a_developer_runs():
    workflow = yaml.safe_load(text_of(ROOT / ".github" / "workflows" / "ci.yml"))
    job = workflow["jobs"]["check"]
    (step,) = (step for step in job["steps"] if "run" in step)
    assert (ROOT / step["run"]).stat().st_mode & 0o100
    # Oldest and newest are those that the package says it is for.
    classified = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text_of(ROOT / "pyproject.toml"))
    assert job["strategy"]["matrix"]["python"] == classified
    assert workflow["jobs"]["newest"]["strategy"]["matrix"]["python"] == [classified[0], classified[-1]]


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_tested_versions_are_among_those_that_are_allowed(python):
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    allowed = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    tested = {}
    for line in text_of(ROOT / "constraints.txt").splitlines():
        if not line.lstrip().startswith("#"):
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"python_full_version": f"{python}.0"}):
                (only,) = requirement.specifier
                tested[requirement.name] = only.version
    for each in map(Requirement, allowed):
        if each.name != project["name"]:
            assert each.specifier.contains(tested[each.name.replace("_", "-")]), each


def pages_of(navigation: list) -> list[str]:
    found = []
    for entry in navigation:
        (value,) = entry.values()
        found += [value] if isinstance(value, str) else pages_of(value)
    return found


def test_navigation_has_every_page():
    made = site()
    navigation = pages_of(yaml.safe_load(text_of(ROOT / "mkdocs.yml"))["nav"])
    written = [page.name for page in DOCS.glob("*.md")]
    by_hook = [f"notebooks/{path.stem}.md" for path in made.NOTEBOOKS]
    assert sorted([*navigation, *by_hook]) == sorted([*written, *made.PAGES.values(), "commands.md", "lists.md"])
    assert [name for name in made.PAGES if not (ROOT / name).exists()] == []


def test_pages_are_made_of_the_program():
    made = site()
    commands = made.commands_page()
    assert {words[0] for words in command_lines(commands)} >= set(COMMANDS)
    assert [name for name in COMMANDS if f"\n## ppmtf {name}\n" not in commands] == []
    assert [name for name in SYNTHESIZERS if f"\n| {name} |" not in made.lists_page()] == []
    assert "\n`--system NAME`\n:   What to learn" in commands
    names = made.names_page()
    assert [name for name in ppmtf_jax.__all__ if f"| [{name}][ppmtf_jax." not in names] == []


@pytest.mark.parametrize(
    ("link", "source", "page", "in_site"),
    [
        ("docs/privacy.md", "README.md", "index.md", "privacy.md"),
        ("benchmarks/README.md", "README.md", "index.md", "benchmarks.md"),
        ("../CONTRIBUTING.md", "docs/start.md", "start.md", "contributing.md"),
        ("../notebooks/quickstart.ipynb", "docs/start.md", "start.md", "notebooks/quickstart.md"),
        ("reference/data.md", "docs/own-data.md", "own-data.md", "reference/data.md"),
        ("data.md", "docs/reference/index.md", "reference/index.md", "data.md"),
    ],
)
def test_links_of_the_repository_are_links_of_the_site(link, source, page, in_site):
    assert site().in_site(link, source, page) == in_site


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_are_worth_looking_at(path):
    """Each has its pictures, says how it is opened in Colab, and is a page of the site."""
    code = [cell for cell in json.loads(text_of(path))["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] for cell in code[-1:])
    shown = [kind for cell in code for output in cell["outputs"] for kind in output.get("data", {})]
    assert "image/png" in shown
    assert not any(output.get("name") == "stderr" for cell in code for output in cell["outputs"])
    assert path.stat().st_size < 700_000
    first = "".join(code[0]["source"])
    assert first.startswith("# Installs ppmtf_jax unless it is there.")
    assert first == text_of(path.with_suffix(".py")).split("# %%\n")[1].strip()
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    _, found, repository = project.get("urls", {}).get("Repository", "").partition("github.com/")
    leads_to = f"github/{repository}/blob/main/notebooks/{path.name}" if found else ""
    assert f"colab-badge.svg)](https://colab.research.google.com/{leads_to})" in text_of(path)
    page, pictures = site().notebook_page(path)
    assert len(pictures) >= 1
    assert all(f"({name})" in page and len(picture) < 150_000 for name, picture in pictures.items())
    assert "colab" not in page.lower().replace("in colab", "")


def test_pictures_are_small():
    pictures = [path for path in (DOCS / "pictures").iterdir() if path.suffix in (".png", ".svg")]
    assert Path(DOCS / "pictures" / "population.png") in pictures
    assert max(path.stat().st_size for path in pictures) < 150_000


@pytest.fixture(scope="module")
def figures():
    """The benchmark that draws the papers' figures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        yield importlib.import_module("figures")


def test_words_of_the_papers_figures_follow_from_the_stored_numbers(figures):
    page, listed = text_of(DOCS / "figures.md"), figures.read_figures()
    assert figures.index(listed) in page
    drawn = re.findall(r"\]\((figures/[^)]+\.png)\)", page)
    assert sorted(drawn) == sorted(f"figures/{path.name}" for path in (DOCS / "figures").iterdir())
    sizes = [(DOCS / picture).stat().st_size for picture in drawn]
    assert max(sizes) <= 60_000
    assert sum(sizes) <= 1_500_000


@pytest.mark.parametrize(
    ("claim", "held"),
    [
        ({"asks": "ratio", "of": "a", "to": "b", "high": 1}, [True, False]),
        ({"asks": "ratio", "of": "a", "to": "flat", "low": 1}, [False, True]),
        ({"asks": "value", "of": "a", "x": [2], "low": 4}, [True]),
        ({"asks": "change", "of": "a", "x": [1, 2], "high": 3}, [False]),
        ({"asks": "slope", "of": "a", "low": 1.9, "high": 2.1}, [True]),
        ({"asks": "correlation", "of": "b", "high": -0.9}, [True]),
        ({"asks": "first", "of": "a", "n": 1, "low": 0.3}, [False]),
        ({"asks": "lowest", "of": "b", "at": [2]}, [True]),
        ({"asks": "nearer", "of": "b", "to": "a", "target": "a"}, [False]),
        ({"asks": "published", "relative": 0.1}, [True, False]),
    ],
)
def test_sentences_of_figures_are_asked_right(figures, claim, held):
    """Series a: 1, 4; b: 3, 2; one number 2 for all x; published of a: 1.05, 5."""
    ours = [("a", 1, 1.0), ("a", 2, 4.0), ("b", 1, 3.0), ("b", 2, 2.0), ("flat", np.nan, 2.0)]
    rows = [("p", *each, False, each[1]) for each in ours] + [("p", "a", 1, 1.05, True, 1), ("p", "a", 2, 5.0, True, 2)]
    points = pd.DataFrame(rows, columns=["panel", "series", "x", "y", "published", "setting"])
    assert figures.holds(points, claim).tolist() == held
