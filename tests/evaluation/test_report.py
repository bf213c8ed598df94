"""The report: what its lights say, what is and is not on the page, and what happens where things are missing."""

from __future__ import annotations

import json
import math
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.layout_engine import ConstrainedLayoutEngine

from ppmtf_jax.attacks import audit
from ppmtf_jax.attacks.estimators.base import ESTIMATORS
from ppmtf_jax.attacks.membership.base import MembershipScores
from ppmtf_jax.attacks.roc import Roc
from ppmtf_jax.data.measurement import Interpretation
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.stored_traces import StoredTraces
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation import Evaluation, EvaluationSettings, chance, evaluate
from ppmtf_jax.evaluation.distributions import wasserstein
from ppmtf_jax.evaluation.judgement import Chance, Fitness
from ppmtf_jax.evaluation.metrics.moves import radius_of_gyration_km
from ppmtf_jax.evaluation.report import SECTIONS, Report, ReportData, ReportSettings, compose, compose_report, render
from ppmtf_jax.evaluation.report import page as pages
from ppmtf_jax.evaluation.report.compose import compose_section, compose_verdict, largest_k
from ppmtf_jax.evaluation.report.inputs import Traced, Unavailable
from ppmtf_jax.evaluation.report.page import Details, Finding, Gauges, Picture, Section, Status, Table, Text
from ppmtf_jax.evaluation.report.sections import leaks, people, utility
from ppmtf_jax.evaluation.results import REAL, SYNTHETIC, TRAINING, UNIFORM, Row
from ppmtf_jax.jobs import report as jobs_report
from ppmtf_jax.jobs.compare import COSTS, SHARE_PASSED, Compared
from ppmtf_jax.jobs.report import load_report_data, report_run, shadow_scores, with_compared
from ppmtf_jax.jobs.steps import run_privacy_test
from ppmtf_jax.privacy.limits import EXPOSED, FOUND, worst
from ppmtf_jax.privacy.plausible_deniability import PrivacyTestSettings
from ppmtf_jax.registry import Registry
from ppmtf_jax.synthesizers.synthesis import fit
from ppmtf_jax.trace_models.metropolis_hastings import MetropolisHastings
from tests.commands import refused, works
from tests.evaluation.report_run import SEED, run_small_job
from tests.support import minutes, places_in_line, random_traces, to_traces
from tests.trace_models.nobody import registered_nobody

QUICK = ReportSettings(estimators=("ml",), fast=True)


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> Path:
    return run_small_job(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def material(job) -> ReportData:
    return load_report_data(job, QUICK)


@contextmanager
def without_layout() -> Iterator[pytest.MonkeyPatch]:
    """Pictures are drawn as they are: to move their panels apart takes as long as to draw them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConstrainedLayoutEngine, "execute", lambda *_: None)
        yield patch


@pytest.fixture(scope="module")
def written(job, material) -> tuple[Path, Report]:
    """The page of the material, so that what both need is computed once."""
    with without_layout() as patch:
        patch.setattr(jobs_report, "load_report_data", lambda *_, **__: material)
        return report_run(job, settings=QUICK)


@pytest.fixture(scope="module")
def page(written) -> str:
    return written[0].read_text(encoding="utf-8")


@pytest.fixture
def little_chance(monkeypatch) -> None:
    """What chance does is estimated from few parts, where a test does not depend on it."""
    monkeypatch.setattr(chance, "N_PARTS", 2)
    monkeypatch.setattr(chance, "N_FEW", 2)


@pytest.fixture
def one_attack(monkeypatch) -> None:
    """One attack on membership stands for all: the page has all of them."""
    monkeypatch.setattr(leaks, "ATTACKS", {"likelihood_ratio": leaks.ATTACKS["likelihood_ratio"]})


def made(name: str, material: ReportData) -> Section:
    """A section of the page, with a sentence where it cannot be made."""
    return compose_section(SECTIONS[name], material)


def light(name: str, material: ReportData) -> Status:
    return made(name, material).findings[0].status


def changed(material: ReportData, **fields: Any) -> ReportData:
    """The material with other fields, which do not change what chance does: it takes longer than all else."""
    found = replace(material, **fields)
    found.__dict__["chance"] = material.chance
    return found


def words(content: Section) -> str:
    """All text of paragraphs, lists and tables."""
    found = []
    for block in content.blocks:
        for each in block.blocks if isinstance(block, Details) else (block,):
            if isinstance(each, Text):
                found += each.lines
            elif isinstance(each, Table):
                cells = (cell for row in each.rows for cell in row)
                found += [each.caption, *(cell if isinstance(cell, str) else cell.word for cell in cells)]
    return "\n".join(found)


def pictures(content: Section) -> list[Picture]:
    return [block for block in content.blocks if isinstance(block, Picture)]


def section_of(report: Report, name: str) -> Section:
    return next(section for section in report.sections if section.name == name)


class Elements(HTMLParser):
    """Tags with their attributes, and the text, of a page."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br", "path", "use"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in ("path", "use") and (not self.open or self.open.pop() != tag):
            self.wrong.append(tag)

    def handle_data(self, data):
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


# The page as a whole


def test_the_page_has_every_section_and_light(page, written):
    _, report = written
    elements = Elements(page)
    ids = [attributes["id"] for _, attributes in elements.tags if "id" in attributes]
    assert {section.name for section in report.sections} == set(SECTIONS) <= set(ids)
    parts = [section.part for section in report.sections]
    assert parts == sorted(parts, key=compose.PARTS.index)
    links = [attributes.get("href") for attributes in elements.all("a")]
    for section in report.sections:
        assert all(finding.question in elements.text for finding in section.findings)
        assert f"#{section.name}" in links
    assert len(report.findings()) > 8
    # Every rule can be read, and no status is told by colour alone.
    assert all(rule.split("\xa0")[0] in elements.text for rule in report.rules())
    assert page.count('class="symbol"') >= 2 * len(report.findings())
    lights = [Finding("", status, "", "") for status in (Status.POOR, Status.GOOD, Status.UNKNOWN, Status.GOOD)]
    assert pages.tally(lights) == "2 good, 1 poor, 1 not known"


def test_the_page_needs_nothing_but_itself_is_well_formed_and_can_be_heard(page):
    elements = Elements(page)
    for tag, attributes in elements.tags:
        for name in ("src", "href", "xlink:href", "data", "action"):
            value = attributes.get(name)
            # Within the page, or data in it.
            assert value is None or value.startswith(("#", "data:")), f"{tag} {name}={value}"
    assert not elements.all("script")
    assert not re.search(r"@import|url\((?!#)", page)
    assert elements.wrong == elements.open == []
    ids = [attributes["id"] for _, attributes in elements.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    levels = [int(tag[1]) for tag, _ in elements.tags if re.fullmatch("h[1-6]", tag)]
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(after <= before + 1 for before, after in pairwise(levels))
    drawn = elements.all("svg")
    assert drawn
    assert all(each.get("aria-label") and each.get("role") == "img" for each in drawn)
    assert len(elements.all("figure")) == len(elements.all("figcaption")) == len(drawn)
    assert not re.search(r"\b(nan|None)\b", elements.text)


def test_no_secret_is_on_the_page_and_only_its_owner_can_read_it(written, page, job):
    """Neither a seed, nor anybody's id, nor what tells which draw or model made the traces."""
    synthetic = Traces.load(job / "private" / "synthetic")
    for secret in (str(SEED), "quagga", synthetic.origin.model[:12], synthetic.origin.draw, str(job.parent)):
        assert secret not in page
    assert stat.S_IMODE(written[0].stat().st_mode) == 0o600
    assert written[0].parent.name == "private"
    assert Elements(page[page.index("<body>") :]).text.strip().startswith("Private.")


def test_ids_of_users_are_text_and_not_tags():
    finding = Finding("<b>Who?</b>", Status.FAIR, "<i>& so</i>", "Rule `ppmtf <run>`")
    blocks = [
        Text(("<script>alert(1)</script>", "a `<x>` b")),
        Table("<u>", ("<s>",), [["<script>"]]),
        Details("<em>", (Text(("<q>",), is_list=True),)),
    ]
    section = Section("name", compose.NUMBERS, "Title", "Lead.", list, blocks=blocks, findings=[finding])
    page = render(Report("<title>", "<p>", [section]))
    assert not {"script", "b", "i", "u", "s", "em", "q"} & {tag for tag, _ in Elements(page).tags}
    assert "<code>&lt;x&gt;</code>" in page


def launched(playwright: Any, error: type[Exception]) -> Any:
    """Playwright's own Chromium, or that of the system."""
    installed = filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    for path in (None, *installed):
        with suppress(error):
            return playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
    pytest.skip("needs a browser: playwright install chromium")


@pytest.mark.slow
def test_the_page_fits_a_screen_and_loads_nothing(written):
    """On a desk, a tablet and a telephone, light and dark: nothing is wider than the screen, and nothing goes wrong."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs Playwright, which is not installed")
    # Elements that are wider than the screen, other than what scrolls within another one.
    too_wide = """() => [...document.querySelectorAll("body *")]
        .filter(each => !each.closest(".scroll") && each.getBoundingClientRect().right > window.innerWidth + 1)
        .map(each => each.outerHTML.slice(0, 80))"""
    address = written[0].as_uri()
    with sync_api.sync_playwright() as playwright:
        browser = launched(playwright, sync_api.Error)
        for width, scheme in product((1280, 800, 400), ("light", "dark")):
            page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
            requests, complaints = [], []
            page.on("request", lambda request, found=requests: found.append(request.url))
            for event in ("console", "pageerror"):
                page.on(event, lambda message, found=complaints: found.append(str(message)))
            page.goto(address)
            page.evaluate("() => document.querySelectorAll('details').forEach(each => { each.open = true })")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(too_wide) == []
            assert [url for url in requests if not url.startswith("data:")] == [address]
            assert complaints == []
            # Text is told from what is below it: black on black would be the same colour.
            ink, ground = page.evaluate(
                "() => ['color', 'backgroundColor'].map(e => getComputedStyle(document.body)[e])"
            )
            assert ink != ground


# Writing it


def test_the_command_writes_a_page_and_replaces_only_its_own(job, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs_report, "compose_report", lambda *_, **__: Report("T", "S", []))
    monkeypatch.setattr(jobs_report, "shadow_scores", lambda *_, **__: (None, ""))
    monkeypatch.setattr(jobs_report, "compose_early", lambda _: None)  # of which this page would show nothing
    out = tmp_path / "page.html"
    command = ["report", job, "--out", out, "--quiet"]
    assert "Only you can read" in works(*command)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    refused(*command)
    works(*command, "--overwrite")
    out.write_text("<html>a page of somebody else</html>")
    refused(*command, "--overwrite")
    assert out.read_text() == "<html>a page of somebody else</html>"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_what_cannot_be_is_refused(job, tmp_path):
    with pytest.raises(InputError, match="would be handed out"):
        report_run(job, job / "release" / "report.html")
    assert not (job / "release" / "report.html").exists()
    with pytest.raises(InputError, match="a folder of a job"):
        report_run(tmp_path)
    assert not any(tmp_path.iterdir())
    with pytest.raises(InputError) as raised:
        ReportSettings(n_users=1, estimators=())
    assert len(raised.value.problems) == 2


# Where things are missing


def without(job: Path, tmp_path: Path, *names: str) -> Path:
    """A copy of a job in which some files or folders are missing."""
    copy = tmp_path / "job"
    shutil.copytree(job, copy)
    for name in names:
        shutil.rmtree(copy / name) if (copy / name).is_dir() else (copy / name).unlink()
    return copy


def test_without_a_release_traces_are_not_to_be_handed_out(job, tmp_path):
    found = load_report_data(without(job, tmp_path, "release", "private/key"), QUICK)
    assert found.has_known_users
    assert "not to be handed out" in words(made("statement", found))
    assert "None of them is a release" in words(made("made", found))
    # The evaluation of the job knows no such column, since all traces passed: it is made again.
    assert found.evaluation.columns[0] == found.column == "all"


@pytest.mark.usefixtures("one_attack", "little_chance")
def test_without_a_key_nobody_is_found(job, tmp_path):
    found = load_report_data(without(job, tmp_path, "private/key"), QUICK)
    assert not found.has_known_users
    for name in ("found", "clusters"):
        assert "not known from whom" in words(made(name, found))
    # Whose data was used is attacked all the same.
    assert made("found", found).findings[0].answer.startswith("The strongest attack")


@pytest.mark.usefixtures("little_chance")
def test_without_model_verdicts_and_numbers(job, tmp_path):
    names = ("private/model", "private/verdicts", "private/metrics.json")
    found = load_report_data(without(job, tmp_path, *names), QUICK)
    assert "not said" in words(made("made", found))
    assert [each.status for each in made("deniability", found).findings] == [Status.POOR, Status.UNKNOWN]
    assert "model is not in the folder" in words(made("clusters", found))
    assert made("numbers", found).blocks


@pytest.mark.usefixtures("little_chance")
def test_of_many_users_a_sample_is_reported(material, job, tmp_path, monkeypatch):
    monkeypatch.setattr("ppmtf_jax.evaluation.evaluation.MAX_USERS", 12)
    monkeypatch.setattr(StoredTraces, "in_memory", None)
    found = load_report_data(without(job, tmp_path, "private/metrics.json"), replace(QUICK, fast=False))
    assert [each.n_users for each in (found.train, found.test, found.synthetic)] == [12] * 3
    assert set(found.evaluation.sampled) == {"training", "test", "released"}
    why_not = "because they would learn from a sample of the users, and the model learned from all"
    assert shadow_scores(found, tmp_path / "shadows.npz") == (None, why_not)
    # Facts are of the whole sets.
    assert words(made("made", found)) == words(made("made", material))
    monkeypatch.setattr(compose, "SECTIONS", {})
    monkeypatch.setattr(compose, "check_names", lambda _: None)
    assert re.fullmatch(
        re.escape(compose_report(material).subtitle) + " Only a random sample.*", compose_report(found).subtitle
    )
    # Sampled users keep their cluster.
    cluster = np.asarray(material.model.trace_model.cluster)
    clusters, _ = people.strongest_clusters(found)
    assert clusters
    for each in clusters:
        assert (cluster[np.isin(material.train.user_ids, each.train.user_ids)] == each.number).all()
    # They keep their verdicts, too, and a trace that did not pass is not shown.
    passed = np.arange(found.n_synthetic) % 2 == 0
    table = material.verdicts.table.assign(plausible_users=99 * passed)
    some = replace(found, is_release=False, verdicts=replace(material.verdicts, table=table))
    assert set(people.tested(some).user_ids) == set(table["user"][passed]) & set(found.synthetic.user_ids)


@pytest.mark.usefixtures("one_attack", "little_chance")
def test_of_nobody_the_guarantee_is_told_first(tmp_path):
    """Its pictures are not drawn, since only its words are its own."""
    with registered_nobody(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "_svg", lambda *_: "")
        importing = {"source": "checkins", "path": "checkins.csv", "time_zone": "UTC", "min_users_per_place": 1}
        importing["grid"] = [51.9, 52.1, 5.3, 5.7, 4, 5]
        fitting = {"system": "nobody", "epsilon": 4.0}
        job = run_small_job(tmp_path, **{"import": importing}, fit=fitting, test={}, release={})
        page, report = report_run(job, settings=QUICK)
        found = load_report_data(job, QUICK)
        fit(found.train, "nobody", epsilon=4.0).save(job / "private" / "model", overwrite=True)
        with pytest.raises(InputError, match=r"model.*release|release.*model"):
            load_report_data(job, QUICK)
    # The numbers are those of the job, and not made anew.
    assert found.evaluation.lineage
    assert report.verdict.blocks[0].lines[0] == found.guarantee
    assert found.guarantee.startswith("Every person whose data was used is protected")
    statement = section_of(report, "statement")
    # Epsilon is above 1 and at most 10.
    [proven] = statement.findings
    assert (proven.question, proven.status) == ("Is the protection proven?", Status.FAIR)
    assert "Treated as public:" in words(statement)
    for name in ("deniability", "clusters", "made"):
        section = section_of(report, name)
        assert "o trace was made from one person" in words(section)
        answered = Status.NOT_APPLICABLE if section.part == compose.PRIVACY else Status.UNKNOWN
        assert all(finding.status is answered for finding in section.findings)
    [proven] = section_of(report, "found").findings
    assert proven.answer == found.proof
    assert "epsilon = 4 " in found.proof
    assert not replace(found, statement=found.statement | {"private": False}).proof
    assert report.subtitle.startswith(found.kept)
    assert " rows of the data are used" in found.kept
    text = page.read_text(encoding="utf-8")
    for never in ("No privacy test is known", "None of them is a release", "not known from whom", "withheld"):
        assert never not in text


def test_parts_of_another_run_are_refused(job, tmp_path, material):
    """Verdicts made with another k would say of this release what its statement does not: with the key, and without."""
    copy = without(job, tmp_path)
    private = copy / "private"

    def refuses(said: str, job: Path = copy) -> None:
        with pytest.raises(InputError, match=said):
            load_report_data(job, QUICK)

    harder = PrivacyTestSettings(k=6, count_all=True)
    run_privacy_test(private / "model", private / "synthetic", private / "verdicts", harder, seed=SEED, overwrite=True)
    refuses(r"private/verdicts and private/key of the same verdicts.*Run the job again")
    shutil.rmtree(private / "key")
    refuses("private/verdicts and release of the same settings of the privacy test")
    # With another number of verifiers alone, too; and where other traces passed.
    verdicts = material.verdicts
    fewer = replace(verdicts, settings=replace(verdicts.settings, n_verifiers=7))
    fewer.save(private / "verdicts", overwrite=True)
    refuses("private/verdicts and release of the same settings of the privacy test")
    table = verdicts.table.assign(threshold=verdicts.threshold + (np.arange(len(verdicts.threshold)) == 0) * 10**6)
    replace(verdicts, table=table).save(private / "verdicts", overwrite=True)
    refuses("private/verdicts and release of the same number of traces that passed")
    for name, other, said in (
        ("model", fit(material.train, "tpm"), "same model"),
        ("data/train", material.train.select_users(np.arange(50)), "same training traces"),
    ):
        changed_job = without(job, tmp_path / name, f"private/{name}")
        other.save(tmp_path / "other" / name)
        shutil.copytree(tmp_path / "other" / name, changed_job / "private" / name)
        refuses(said, changed_job)


def test_numbers_of_another_run_are_refused_and_those_that_say_nothing_made_anew(job, tmp_path, material):
    copy = without(job, tmp_path)
    file = copy / "private" / "metrics.json"
    numbers = json.loads(file.read_text())
    mark = next(name for name in numbers["made_from"] if "released" in name)
    file.write_text(json.dumps(numbers | {"made_from": numbers["made_from"] | {mark: "0" * 64}}))
    with pytest.raises(InputError, match="of the same traces of the column 'released'"):
        load_report_data(copy, QUICK)
    numbers["metrics"][0]["numbers"] = dict.fromkeys(numbers["metrics"][0]["numbers"], 0.25)
    file.write_text(json.dumps(numbers | {"made_from": {}}))
    assert load_report_data(copy, QUICK).evaluation["tp_tv"] == material.evaluation["tp_tv"] != 0.25


def test_a_release_that_was_changed_and_a_job_without_traces_are_refused(job, tmp_path):
    copy = without(job, tmp_path, "release/privacy.json")
    with pytest.raises(InputError, match=r"privacy\.json changed or missing"):
        load_report_data(copy, QUICK)
    shutil.rmtree(copy / "release")
    shutil.rmtree(copy / "private" / "synthetic")
    with pytest.raises(InputError, match="release or private/synthetic"):
        load_report_data(copy, QUICK)
    shutil.rmtree(copy / "private" / "data" / "test")
    with pytest.raises(InputError, match="private/data/test"):
        report_run(copy, settings=QUICK)


@pytest.mark.usefixtures("little_chance")
def test_without_coordinates_there_are_no_maps_but_all_else(material):
    def placed(latitude: float, longitude: float) -> ReportData:
        """All places are at one point, or nowhere."""
        places = replace(
            material.places,
            latitude=np.full_like(material.places.latitude, latitude),
            longitude=np.full_like(material.places.longitude, longitude),
        )
        sets = {name: replace(getattr(material, name), places=places) for name in ("train", "test", "synthetic")}
        return replace(material, **sets)

    assert not placed(math.nan, math.nan).has_map
    nowhere = placed(52.0, 13.0)
    assert not nowhere.has_map
    names = ("population", "transitions", "trips", "clusters", "places", "visit-fractions")
    contents = {name: made(name, nowhere) for name in names}
    for name, content in contents.items():
        assert any(isinstance(block, Gauges) for block in content.blocks), name
    render(Report("T", "S", [contents["trips"], contents["places"]]))  # all distances are 0
    assert "this needs a map" in words(made("range-queries", nowhere))
    assert pictures(contents["transitions"]) == []
    assert pictures(contents["clusters"])
    assert not any("maps" in picture.caption for picture in pictures(contents["clusters"]))


def lonely(n_instants: int, n_users: int = 3) -> ReportData:
    """Everybody is seen at single instants of a grid, at one of two places."""
    grid, places = minutes(n_instants), places_in_line(2)
    sets = {
        name: to_traces([(first + user, 0, user % n_instants, user % 2) for user in range(n_users)], places, grid)
        for name, first in (("train", 0), ("test", 10), ("synthetic", 0))
    }
    evaluation = evaluate({"all": sets["synthetic"]}, sets["train"], sets["test"], EvaluationSettings(attacks=False))
    return ReportData(**sets, evaluation=evaluation, column="all", is_release=False, settings=QUICK)


def test_one_person_who_never_moves_and_one_time_of_day():
    """Nobody is seen twice: what needs two events says so, and the page is made all the same."""
    report = compose_report(lonely(1, 1))
    text = Elements(render(report)).text
    assert "Nobody is seen twice" in text
    assert "not to be handed out" in text
    assert len(report.sections) == len(SECTIONS)


def test_a_section_is_added_by_registering_it_and_does_not_tell_what_an_error_found(monkeypatch):
    """It may be ids of users."""

    def fails(material: ReportData) -> list[pages.Block]:
        raise InputError("test", [Problem("other users", "quagga-001 in both", examples=("quagga-001",))])

    registry = Registry("section", "ppmtf_jax.noise", first=list(SECTIONS))
    for entry in SECTIONS.values():
        registry.register(entry._replace(make=lambda _: []))
    registry.register(Section("shoes", compose.PARTS[1], "Shoes", "What people wear.", fails, "Do they?"))
    monkeypatch.setattr(compose, "SECTIONS", registry)
    report = compose_report(lonely(2))
    assert words(section_of(report, "shoes")) == "Left out. It needs other users."
    [unknown] = report.findings()
    assert unknown[:3] == ("Do they?", Status.UNKNOWN, "It needs other users.")
    assert 'id="shoes"' in render(report)
    names = [section.name for section in report.sections]
    # The last of its part.
    assert names.index("range-queries") < names.index("shoes") < names.index("clusters")


# What sections compute


def test_pictures_show_what_the_metrics_measure(material):
    """The windows and the slots that are drawn give the numbers of the evaluation."""
    radius = {name: radius_of_gyration_km(windows).value for name, windows in material.windows.items()}
    for name, column in ((SYNTHETIC, material.column), (TRAINING, "training")):
        expected = material.evaluation.value("radius_w1_km", column)
        assert wasserstein(radius[name], radius[REAL]) == pytest.approx(expected)
    many = replace(material, synthetic=material.train)
    for data, name, column in (
        (material, SYNTHETIC, material.column),
        (many, TRAINING, "training"),
        (many, UNIFORM, "uniform"),
    ):
        distance = utility.distance_by_slot(data, name)
        assert distance.mean() == pytest.approx(material.evaluation.value("tp_tv", column))


def test_few_traces_are_held_against_equally_few_real_ones(material):
    """Ten complete traces of a day have fewer events than 56 people who were seen for two days.

    All three curves have as much chance as the numbers beside them.
    """
    few = replace(material, synthetic=material.synthetic.select_users(np.arange(10)))
    for found, name in ((few, "Equally few real"), (replace(material, synthetic=material.train), "Training")):
        assert name in found.gauges("population").items[0].texts
    known = few.chance["tp_tv"]
    assert utility.distance_by_slot(few, TRAINING).mean() == pytest.approx(known.few)
    assert utility.distance_by_slot(few, UNIFORM).mean() == pytest.approx(known.few_uniform)


def test_ranks_and_answers_to_queries():
    rank = utility.rank_correlation
    assert rank(np.array([4, 3, 2]), np.array([1, 2, 3])) == pytest.approx(-1)
    # Ties have the mean of their ranks: 1, 2.5, 2.5 and 1, 2, 3.
    assert rank(np.array([1, 5, 5]), np.array([1, 2, 9])) == pytest.approx(np.corrcoef([1, 2.5, 2.5], [1, 2, 3])[0, 1])
    assert math.isnan(rank(np.array([2, 2]), np.array([1, 5])))
    assert math.isnan(rank(np.array([2]), np.array([1])))
    # Three places in a line and two slots, with shares of sixths: in boxes around the first place, and of all.
    km = places_in_line(3).position_km()
    presence = np.array([[1, 1, 1], [1, 0, 2]]) / 6
    near_first = (km[0, 0] - 1, km[0, 0] + 1, km[0, 1] - 1, km[0, 1] + 1)
    everywhere = (-1e9, 1e9, -1e9, 1e9)
    queries = [(*near_first, 0, 2), (*near_first, 1, 2), (*everywhere, 0, 1), (*everywhere, 0, 2)]
    assert utility.answer(presence, queries, km).tolist() == pytest.approx([2 / 6, 1 / 6, 3 / 6, 1.0])
    assert utility.mean_error(np.array([0.5, 0.25]), np.array([0.5, 0.5])) == 0.25
    for n_slots in (1, 2, 24):
        assert all(0 <= first < after <= n_slots for *_, first, after in utility.random_queries(km, n_slots))


def test_presence_has_the_hours_of_test_users(material):
    """Sums of slots are those of the test users for every set, and the test users' own shares are their counts."""
    test, found = material.test, material.presence
    hours = np.bincount(test.slot, minlength=test.time_grid.n_slots) / test.n_events
    for presence in found.values():
        assert presence.sum(axis=1) == pytest.approx(hours)
    counts = np.bincount(test.place, minlength=test.n_places) / test.n_events
    assert found[REAL].sum(axis=0) == pytest.approx(counts)


def test_places_of_single_people_are_not_named(material):
    """A place is named, or on the map of a group, only if three of the real people go there."""
    test = material.test
    n_visitors = [len(np.unique(test.user[test.place == place])) for place in range(test.n_places)]
    assert material.is_shown(test).tolist() == [n >= 3 for n in n_visitors]
    one = replace(material, test=test.select_users(np.arange(1)))
    assert made("places", one).blocks[1].rows == []
    named = PlaceTable(np.array(["a", "b"]), np.zeros(2), np.ones(2), np.array(["bar", ""], object))
    found = lonely(2)
    assert replace(found, train=replace(found.train, places=named)).place_names(np.array([0, 1])) == ["bar (a)", "b"]


def test_other_hours_cannot_be_compared(material):
    grid = minutes(material.synthetic.time_grid.n_instants)
    with pytest.raises(Unavailable, match="different periods"):
        _ = replace(material, synthetic=replace(material.synthetic, time_grid=grid)).windows


def test_clusters_are_those_of_the_model(material):
    found, _ = people.strongest_clusters(material)
    member = np.asarray(material.model.trace_model.cluster)
    assert len(found) == len(np.unique(member)) > 1
    for cluster in found:
        expected = material.train.user_ids[member == cluster.number]
        assert cluster.train.user_ids.tolist() == expected.tolist()
        assert set(cluster.synthetic.user_ids) <= set(expected)
    assert [each.strength for each in found] == sorted((each.strength for each in found), reverse=True)
    # A cluster of few people is not shown.
    few = material.train.user_ids[np.flatnonzero(member == 0)[:3]]
    kept = material.synthetic.select_users(np.isin(material.synthetic.user_ids, few))
    found, reason = people.strongest_clusters(replace(material, synthetic=kept))
    assert found == []
    assert "single people" in reason
    traces = to_traces([(0, 0, 0, 1), (1, 0, 0, 0), (0, 0, 1, 1)], places_in_line(2), minutes(3))
    np.testing.assert_equal(people.share_at_top_places(traces, np.array([1])), [0.5, 1.0, np.nan])


@pytest.mark.usefixtures("little_chance")
def test_clusters_of_factors_are_the_strongest_users_of_a_column(material):
    """The users of a planted cluster, the second half, have the largest values in the second column of the factor."""
    n_users, n_places, n_slots = material.train.n_users, len(material.places), material.train.time_grid.n_slots
    half = np.arange(n_users) >= n_users // 2
    user = np.stack([~half, half], axis=1) + np.linspace(0, 0.1, n_users)[:, None]
    place, slot = np.ones((n_places, 2)), np.ones((n_slots, 2))
    slots = jnp.asarray(material.model.time_grid.slot_of_instant)
    # Those of the transitions are of other people, as in ITF: clusters are of the visits.
    parts = (jnp.asarray(each, jnp.float32) for each in (user[::-1], place, place, user, place, slot))
    chains = MetropolisHastings(*parts, slot_of_instant=slots)
    factorized = replace(material, model=replace(material.model, system="ppmtf", settings={}, trace_model=chains))
    found, _ = people.strongest_clusters(factorized)
    ids, n_top = factorized.train.user_ids, round(n_users / 10)
    expected = {0: ids[: n_users // 2][-n_top:].tolist(), 1: ids[-n_top:].tolist()}
    assert {each.number: each.train.user_ids.tolist() for each in found} == expected
    content = made("clusters", factorized)
    assert len(pictures(content)) == 2
    assert isinstance(content.blocks[-1], Details)


# Leaks


@pytest.mark.usefixtures("one_attack", "little_chance")
def test_copies_of_real_traces_are_poor_and_random_places_leak_nothing(material):
    """The training traces as if they were synthetic: every light of leaks that can tell must not be good."""
    copied = replace(material, synthetic=material.train, column="training")
    assert light("found", copied) is Status.POOR
    # Of 14 test users at 16 places, much can be found and guessed anyway.
    assert light("copies", copied) is not Status.GOOD
    assert light("inference", copied) is Status.UNKNOWN
    assert light("population", copied) is Status.GOOD
    random = replace(material, synthetic=material.sets[UNIFORM], column="uniform")
    for name in ("population", "trips", "places", "range-queries"):
        assert light(name, random) is Status.POOR, name
    # Of 14 test users nobody knows what chance gives.
    assert (random.test.n_users, light("copies", random)) == (14, Status.UNKNOWN)


@pytest.mark.usefixtures("one_attack")
def test_shadow_models_are_among_the_attacks_of_a_report_unless_it_is_fast(job, written, material, monkeypatch):
    """They are made and tested as the statement of the release says, kept in the private folder, and in its light."""
    scores = MembershipScores(np.ones((1, 30)), np.zeros((1, 400)), np.arange(30), np.arange(400), "shadow_models")
    asked = []

    def found(released, train, test, settings, *, checkpoint, **_):
        asked.append((settings.system, settings.test_settings["k"], settings.n_attacked, settings.people, checkpoint))
        return scores

    def composed(material, **_):
        asked.append(material.shadow_scores)
        return Report("", "", [])

    monkeypatch.setattr(jobs_report, "infer_by_shadow_models", found)
    monkeypatch.setattr(jobs_report, "compose_report", composed)
    monkeypatch.setattr(jobs_report, "compose_early", lambda _: None)
    monkeypatch.setattr(jobs_report, "write_text", lambda *_: None)
    report_run(job, job / "page.html", ReportSettings(estimators=("ml",), n_users=40))
    files = {"real": "shadows.npz", "released": "shadows_of_release.npz"}
    assert asked == [*(("bridge", 5, 40, each, job / "private" / file) for each, file in files.items()), scores]
    asked.clear()
    report_run(job, job / "fast.html", QUICK)
    assert asked == [None]

    [strongest] = made("found", replace(material, shadow_scores=scores)).findings
    assert re.search("shadow models.*finds 1,000 of 1,000 people", strongest.answer)
    assert strongest.status is Status.POOR
    assert "were left out to save time (--fast)" in words(section_of(written[1], "found"))
    unknown = replace(material, settings=ReportSettings(estimators=("ml",)), no_shadows="because it rains")
    assert "were left out because it rains." in words(made("found", unknown))


def test_refused_attacks_are_named_with_the_reason(material, monkeypatch):
    def refusing(function, position, name):
        def called(*sets: Any, **how: Any) -> Any:
            if sets[position] == name:
                raise InputError("attack", [Problem("places with coordinates", "a secret of user 7")])
            return function(*sets, **how)

        return called

    attacks = ("likelihood_ratio", "density_ratio")
    monkeypatch.setattr(leaks, "ATTACKS", {name: name for name in attacks})
    monkeypatch.setattr(leaks, "infer_membership", refusing(leaks.infer_membership, 3, attacks[0]))
    monkeypatch.setattr(audit, "estimate_transitions", refusing(audit.estimate_transitions, 1, "tf"))
    said = words(made("found", replace(material, settings=ReportSettings(n_users=30))))
    for title in (attacks[0], ESTIMATORS["tf"].title):
        assert f"{title}: it needs places with coordinates" in said
    assert "secret" not in said


def test_sections_that_need_no_shadow_models_can_be_made_before_the_others(material, written):
    with without_layout():
        early, said = compose.compose_early(material), []
        assert set(SECTIONS) - set(early) == {"found"}
        report = compose_report(material, made=early, say=said.append)
        assert said == [f"{SECTIONS['found'].title} ..."]
        # The same content gives the same page.
        assert render(report) == render(written[1])


def test_a_report_is_made_where_shadow_models_cannot_be(job, monkeypatch):
    """With a word on why, and what a report of synthetic traces alone needs is the model."""
    material, said, asked = load_report_data(job, ReportSettings()), [], []

    def learn(*sets: Any, **_: Any) -> None:
        asked.append((sets[3].system, sets[3].test_settings))
        if sets[3].test_settings is not None:
            raise InputError("fit", [Problem("more users", "quagga-001")])

    monkeypatch.setattr(jobs_report, "infer_by_shadow_models", learn)
    # The page does not say what was found, which may name users.
    expected = None, "because they need more users"
    assert shadow_scores(material, job / "none.npz", say=said.append) == expected
    assert "quagga-001" in said[-1]
    untested = replace(material, statement=None, is_release=False)
    assert shadow_scores(untested, job / "none.npz") == (None, "")
    assert asked[1:] == [("bridge", None)]
    for other, why in (
        (replace(untested, model=None), "the model that made these traces is not known"),
        (replace(material, statement={}), "does not name the model"),
    ):
        assert why in shadow_scores(other, job / "none.npz")[1]


def test_an_average_that_hides_those_who_are_exposed_is_poor():
    """Of 1,000 members 90 score above everybody else, the others like strangers: the area is .09 + .91 / 2 = .545."""

    def scores_of(members: np.ndarray, others: np.ndarray) -> MembershipScores:
        ids = np.arange(len(members) + len(others))
        return MembershipScores(members[None], others[None], ids[: len(members)], ids[len(members) :])

    rng = np.random.default_rng(0)
    members, others = rng.normal(size=(2, 1000))
    members[:90] = 10
    cases = {
        "exposed": (scores_of(members, others), Status.POOR),
        # .84, .69, .66 and .5 of the members are above one of four others each: .67 on average.
        "of four": (scores_of(rng.normal(size=500), np.array([-1.0, -0.5, -0.4, 0.0])), Status.UNKNOWN),
        "nobody": (scores_of(rng.normal(size=1000), others), Status.GOOD),
    }
    judged = {name: scores.summary().judgements() for name, (scores, _) in cases.items()}
    for name, (_, status) in cases.items():
        assert leaks.strongest_finding({name: judged[name]}).status is status, name
    finding = leaks.strongest_finding({"nobody": judged["nobody"]}, ["by shadow models"])
    assert (finding.status, "shadow models" in finding.answer) == (Status.FAIR, True)
    assert cases["exposed"][0].roc.auc < 0.56
    # The attack that finds most is named, of two that cannot tell: too few people could be exposed.
    none, some = ([FOUND.judge(value, 500), EXPOSED.judge(0, 50)] for value in (0.0, 0.02))
    said = leaks.strongest_finding({"None": none, "Some": some})
    assert (said.status, "(some) finds 20 of" in said.answer) == (Status.UNKNOWN, True)
    # Nobody is found, but five people are exposed.
    hidden = [FOUND.judge(0.01, 5000), EXPOSED.judge(5, 5000)]
    assert (hidden[0].status, leaks.strongest_finding({"Hidden": hidden}).status) == (Status.GOOD, Status.POOR)


def test_who_names_half_of_all_persons_is_no_good_attack():
    """Nobody is found, since some wrong names are given with high odds; but half of the names are right."""
    usual = {"n_traces": 500, "n_targets": 500, "n_known": 500, "against": "targets", "auc": 0.5, "n_exposed": 0}
    usual |= {"auc_interval": (0.45, 0.55), "true_positive_rate": {}, "accuracy": 0.002, "found": 0.0, "n_attacks": 1}
    usual |= {"found_interval": (0.0, 0.007), "roc": Roc.of(np.arange(2.0), np.arange(2.0))}
    assert worst(audit.Linkage(**usual).judgements()).status is Status.GOOD
    half = usual | {"accuracy": 0.498, "auc": 0.75, "auc_interval": (0.7, 0.8)}
    assert worst(audit.Linkage(**half).judgements()).status is Status.POOR


def test_without_attacks_on_identity_the_light_is_not_good(material, monkeypatch):
    told: list[str] = []
    kept = leaks.strongest_finding
    monkeypatch.setattr(leaks, "strongest_finding", lambda judged, left_out: told.extend(left_out) or kept(judged))
    leaks.found(replace(material, traced=Traced([], "", {}), statement=None))
    assert "on identity" in told


@pytest.mark.usefixtures("one_attack")
def test_a_sample_is_attacked_and_said(material):
    few = replace(material, settings=ReportSettings(n_users=9, estimators=("ml",)))
    released, train, test, note = few.attacked
    assert (train.n_users, test.n_users) == (9, 9)
    assert set(released.user_ids) <= set(train.user_ids)
    assert "9 of 56 training users" in note
    assert words(made("found", few)).count("To save time") == 2


def test_deniability_is_told_by_what_was_tested(material):
    verdicts = material.verdicts

    def tested(table=verdicts.table, *, smallest_class=verdicts.smallest_class, eta=1.0, **settings) -> Finding:
        chosen = replace(verdicts.settings, **settings)
        object.__setattr__(chosen, "eta", eta)  # one that is only taken when it is forced
        other = replace(verdicts, table=table, settings=chosen, smallest_class=smallest_class)
        return leaks.tested_finding(replace(material, verdicts=other), other)

    # By hand, 1 / (1 + (k - 1) / e^eta): .23; .41, .43; .73, .69, 1 and 1.
    expected = {
        Status.GOOD: [(10, 1.0)],
        Status.FAIR: [(5, 1.0), (10, 1.93)],
        Status.POOR: [(2, 1.0), (10, 3.0), (10, 1000.0), (1, 1.0)],
    }
    for status, pairs in expected.items():
        for k, eta in pairs:
            assert tested(k=k, eta=eta).status is status, (k, eta)
    assert tested(k=10, noise_epsilon=1.0).status is Status.FAIR
    for smallest, is_said in ((10, True), (9, False)):
        assert ("by construction" in tested(k=10, smallest_class=smallest).answer) == is_said
    # With noise as wide as k a trace in some passes that had to reach its own user alone.
    for noise_epsilon, status in ((1.0, Status.FAIR), (0.1, Status.POOR), (1e-9, Status.POOR)):
        noise = np.round(np.random.default_rng(0).laplace(scale=1 / noise_epsilon, size=2000)).astype(np.int64)
        table = verdicts.table.iloc[[0] * 2000].assign(threshold=10 + noise, plausible_users=40)
        found = tested(table, k=10, noise_epsilon=noise_epsilon)
        assert (found.status, "1 person." in found.answer) == (status, status is Status.POOR)
    failed = replace(verdicts, table=verdicts.table.assign(threshold=10**6))
    lights = made("deniability", replace(material, verdicts=failed, is_release=False)).findings
    assert [each.status for each in lights] == [Status.POOR, Status.POOR]
    stopped = replace(verdicts, settings=replace(verdicts.settings, noise_epsilon=1.0, count_all=False))
    assert "No curve" in words(made("deniability", replace(material, verdicts=stopped)))


def test_seeds_are_told_but_not_shown(material):
    assert material.seeds_given is True
    for given, status in {True: Status.FAIR, False: Status.GOOD, None: Status.UNKNOWN}.items():
        assert light("statement", replace(material, seeds_given=given)) is status


# The verdict


def told(data: ReportData) -> str:
    return words(Section("verdict", compose.NUMBERS, "", "", list, blocks=compose_verdict(data, []).blocks))


def test_the_page_begins_with_the_verdict_and_its_lights_agree(page, written):
    """The same rule and the same numbers: no light of a number is better or worse than in the verdict."""
    _, report = written
    assert page.index('id="verdict"') < page.index('id="summary"')
    titles = [each.use.title for each in report.verdict.uses]
    assert titles[0] == "Where people are, by hour"
    # Traces of a day, and of people without friends.
    assert {"Friends", "Weeks of persons"}.isdisjoint(titles)
    text = Elements(page).text
    assert all(each in text for each in (*titles, "At what risk", leaks.FOUND_QUESTION, leaks.COPIES_QUESTION))
    blocks = (block for section in report.sections for block in section.blocks if isinstance(block, Gauges))
    lights = {gauge.quantity.name: gauge.fitness for block in blocks for gauge in block.items}
    judged = {each.quantity.name: each.fitness for use in report.verdict.uses for each in use.numbers}
    common = lights.keys() & judged.keys()
    assert len(common) > 8
    assert {name: lights[name] for name in common} == {name: judged[name] for name in common}


def test_training_traces_are_fit_and_random_ones_are_not(material):
    uses = compose_verdict(changed(material, synthetic=material.train, column="training"), []).uses
    assert {each.fitness for each in uses} <= {Fitness.FIT, Fitness.NOT_KNOWN}
    assert uses[0].fitness is Fitness.FIT
    random = compose_verdict(changed(material, synthetic=material.sets[UNIFORM], column="uniform"), []).uses
    assert Fitness.FIT not in {each.fitness for each in random[:4]}
    assert random[0].fitness is Fitness.NOT_FIT


def planted(material: ReportData, column: str, edit: str = "", **fields: Any) -> str:
    """The verdict on three systems: `bad` has the numbers of random places, `good` and `same` those of Training.

    `edit` names a metric that the evaluation of `good` does not have.
    """
    chosen = {"bad": "uniform", "good": "training", "same": "training", "training": "training", "uniform": "uniform"}
    rows = [
        row._replace(numbers={new: row.numbers[old] for new, old in chosen.items()}) for row in material.evaluation.rows
    ]
    for row in rows:
        if row.quantity.name == edit:
            row.numbers["good"] = math.nan
    return told(changed(material, evaluation=Evaluation(rows), column=column, **fields))


def test_what_serves_better_is_told_with_its_figures(material):
    """Systems of which few traces may be released, or whose worst number was not measured, are not named."""
    [row] = (each for each in material.evaluation.rows if each.quantity.name == "tp_tv")
    real, random = (row.quantity.text(row.numbers[name]) for name in ("training", "uniform"))
    verdict, use = planted(material, "bad"), "Where people are, by hour: "
    assert re.search(rf"{use}(good|same) \(fit\)\. ", verdict)
    assert re.search(rf"TP-TV\S*: {real}; these traces: {random}; real people: ", verdict)
    for column in ("good", "same"):
        assert "none would serve a use better" in planted(material, column)
    assert use + "same" in planted(material, "bad", "tp_tv")
    assert use + "same" in planted(material, "bad", shares_passed={"good": 0.7, "same": 0.8})
    neither = planted(material, "bad", "tp_tv", shares_passed={"same": 0.7})
    assert use + "same" not in neither
    assert use + "good" not in neither


def test_what_chance_explains_is_not_better(material):
    """One number just beyond the limit of a use, and one just within it."""
    [row] = (each for each in material.evaluation.rows if each.quantity.name == "tp_tv")
    training, uniform = (row.numbers[name] for name in ("training", "uniform"))
    for noise, is_told in ((0.02, False), (0.0005, True)):
        limit = training + 2 * noise + 0.05 * min(1.0, uniform - training)
        numbers = {"bad": limit + 0.002, "good": limit - 0.002, "training": training, "uniform": uniform}
        evaluation = Evaluation([row._replace(numbers=numbers, reading=Interpretation())])
        data = changed(material, evaluation=evaluation, column="bad")
        data.__dict__["chance"] = {"tp_tv": Chance(noise)}
        assert ("Where people are, by hour: good (fit)" in told(data)) == is_told


def test_the_largest_k_that_most_traces_pass(material):
    """Three of four traces; where counting stopped or k is noisy, no larger k is told."""
    verdicts = material.verdicts
    for plausible, k, largest in (([10, 10, 10, 10], 5, 10), ([3, 7, 8, 9], 5, 7), ([1, 1, 4, 4], 5, 1)):
        table = verdicts.table.iloc[:4].assign(plausible_users=plausible)
        assert largest_k(replace(verdicts, table=table, settings=replace(verdicts.settings, k=k))) == largest
    for unknown in ({"count_all": False}, {"noise_epsilon": 1.0}):
        other = replace(verdicts, settings=replace(verdicts.settings, **unknown))
        assert largest_k(other) is None
        assert "is not known: k is noisy, or counting stopped" in told(changed(material, verdicts=other))


def test_a_comparison_gives_the_verdict_more_systems(material, tmp_path):
    """Means over seeds; of the traces that passed where some did not; and only of the same data."""
    tp_tv = next(row.quantity for row in material.evaluation.rows if row.quantity.name == "tp_tv")
    passed = next(each for each in COSTS if each.name == SHARE_PASSED)

    def cell(lineage: dict[str, str], share: float, **numbers: float) -> Evaluation:
        shares = {name: math.nan if name == "training" else share for name in numbers}
        return Evaluation([Row(tp_tv, "utility", numbers), Row(passed, "cost", shares)], lineage)

    def store(lineage: dict[str, str]) -> None:
        cells = {
            ("sgd", seed): cell(lineage, 0.5, all=0.9, passed=n, training=0.1) for seed, n in enumerate((0.2, 0.4))
        }
        cells |= {("tpm", 0): cell(lineage, 1.0, all=0.7), ("private", 0): cell(lineage, math.nan, all=0.6)}
        (tmp_path / "compare.json").write_text(Compared(cells, {}).mean("passed").to_json())

    store(dict(material.evaluation.lineage))
    with_systems = with_compared(material, tmp_path)
    found = with_systems.evaluation
    assert found.columns == [*material.evaluation.columns, "sgd", "tpm", "private"]
    assert [found.value("tp_tv", name) for name in ("sgd", "tpm")] == pytest.approx([0.3, 0.7])
    assert math.isnan(found.value("od_tv", "sgd"))
    assert with_systems.shares_passed == {"released": 1.0, "sgd": 0.5, "tpm": 1.0}
    # The same numbers from other traces.
    store(dict(material.evaluation.lineage) | {"test traces": "0"})
    with pytest.raises(InputError, match="of the same test traces"):
        with_compared(material, tmp_path)
    with pytest.raises(InputError, match=r"no compare\.json"):
        with_compared(material, tmp_path / "none")


# Persons


def test_real_days_are_drawn_only_of_simulated_people_or_with_consent(material):
    """Those of `material` come from a table of check-ins, so nobody may draw them in silence."""
    assert material.source == "checkins"
    for found, sets in (
        (material, {"synthetic"}),
        (changed(material, settings=replace(QUICK, consent=True)), {"synthetic", "real"}),
        (changed(material, source="toy-city"), {"synthetic", "real"}),
    ):
        content = made("persons", found)
        timelines, maps = pictures(content)
        assert len(timelines.figure.axes) == len(sets)
        assert {ax.get_title().split()[0] for ax in maps.figure.axes if ax.get_title()} == sets
        assert ("real people are test users" in words(content)) == ("real" in sets)
        assert ("No days of real people are shown" in words(content)) == ("real" not in sets)


def test_only_traces_that_passed_are_drawn(material):
    """If one trace of a hundred passed, it is the one that is drawn."""
    traces, verdicts = material.synthetic, material.verdicts
    untested = changed(material, is_release=False, verdicts=None)
    assert "no privacy test is known" in words(made("persons", untested))
    n = len(traces.trace_table()[0])
    one = replace(verdicts, table=verdicts.table.assign(plausible_users=99 * (np.arange(n) == 3)))
    assert "1 synthetic people" in pictures(made("persons", replace(untested, verdicts=one)))[0].caption
    none = replace(verdicts, table=verdicts.table.assign(plausible_users=0))
    assert "no trace passed" in words(made("persons", changed(untested, verdicts=none)))
    # Ten different people, the same ones each time.
    drawn = [people._drawn(traces, 24) for _ in range(2)]
    assert drawn[0].n_windows == 10 == len(np.unique(drawn[0].user))
    assert drawn[0].place.tolist() == drawn[1].place.tolist()


@pytest.mark.usefixtures("little_chance")
def test_traces_with_gaps_over_four_weeks(material):
    """Check-ins over 28 days: no section fails, and what they are measured by is there."""
    grid = TimeGrid.cyclic("2024-01-01T00:00:00", 3600, 28 * 24, slot_s=7200)
    sets = {
        name: random_traces(seed, range(first, first + 30), places_in_line(12), grid, keep=0.05)
        for name, seed, first in (("train", 1, 0), ("test", 2, 100), ("synthetic", 3, 0))
    }
    synthetic = sets["synthetic"]
    evaluation = evaluate({"all": synthetic}, sets["train"], sets["test"], EvaluationSettings(attacks=False))
    users = synthetic.user_ids[synthetic.trace_table()[0]]
    table = material.verdicts.table.iloc[[0] * len(users)].assign(user=users, plausible_users=99)
    how = {"column": "all", "is_release": False, "settings": replace(QUICK, consent=True)}
    found = ReportData(**sets, evaluation=evaluation, verdicts=replace(material.verdicts, table=table), **how)
    # Attacks take longer than all else, and have tests of their own.
    sections = {name: made(name, found) for name in SECTIONS if name != "found"}
    assert {name for name, each in sections.items() if words(each).startswith("Left out")} <= {"clusters"}
    assert "28 days" in words(sections["made"])
    uses = {each.use.title for each in compose_verdict(found, list(sections.values())).uses}
    assert {"Weeks of persons", "When people are seen"} <= uses
    whole, days, _ = pictures(sections["persons"])
    assert "whole traces" in whole.caption
    assert "The days of 10 synthetic and 10 real people" in days.caption
    with without_layout():
        for picture in (whole, days):
            picture.figure.draw_without_rendering()
