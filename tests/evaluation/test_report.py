"""The report: what its lights say, what is and is not on the page, and what happens where things are missing."""

from __future__ import annotations

import json
import math
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any, Never

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from matplotlib.layout_engine import ConstrainedLayoutEngine

from ppmtf_jax.attacks import audit
from ppmtf_jax.attacks.audit import Linkage
from ppmtf_jax.attacks.estimators.base import ESTIMATORS
from ppmtf_jax.attacks.membership.base import MembershipScores
from ppmtf_jax.attacks.membership.shadow_models import ShadowModelSettings
from ppmtf_jax.attacks.roc import Roc
from ppmtf_jax.data.measurement import Caveat, Interpretation, MetricInfo
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.stored_traces import StoredTraces
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation import Evaluation, EvaluationSettings, chance, evaluate
from ppmtf_jax.evaluation.distributions import wasserstein
from ppmtf_jax.evaluation.judgement import Chance, Fitness
from ppmtf_jax.evaluation.metrics.moves import radius_of_gyration_km
from ppmtf_jax.evaluation.report import (
    SECTIONS,
    Report,
    ReportData,
    ReportSettings,
    compose_report,
    render,
    rendering,
)
from ppmtf_jax.evaluation.report import registry as report_registry
from ppmtf_jax.evaluation.report.blocks import Details, Finding, Gauges, Picture, Section, Status, Table, Text, Verdict
from ppmtf_jax.evaluation.report.gauges import gauge, utility_finding
from ppmtf_jax.evaluation.report.inputs import Traced, Unavailable
from ppmtf_jax.evaluation.report.registry import NUMBERS, PARTS, PRIVACY, SectionMaker, compose_early, compose_section
from ppmtf_jax.evaluation.report.rendering import tally
from ppmtf_jax.evaluation.report.sections import deniability, persons
from ppmtf_jax.evaluation.report.sections import found as found_section
from ppmtf_jax.evaluation.report.sections.clusters import share_at_top_places, strongest_clusters
from ppmtf_jax.evaluation.report.sections.places import rank_correlation
from ppmtf_jax.evaluation.report.sections.population import distance_by_slot
from ppmtf_jax.evaluation.report.sections.range_queries import Queries, answer, mean_error, random_queries
from ppmtf_jax.evaluation.report.verdict import compose_verdict, largest_k
from ppmtf_jax.evaluation.results import REAL, SYNTHETIC, TRAINING, UNIFORM, Row
from ppmtf_jax.jobs import report as jobs_report
from ppmtf_jax.jobs.compare import COSTS, SHARE_PASSED, Compared
from ppmtf_jax.jobs.report import load_report_data, report_run, shadow_scores, with_compared
from ppmtf_jax.jobs.steps import run_privacy_test
from ppmtf_jax.privacy.limits import EXPOSED, FOUND, worst
from ppmtf_jax.privacy.own_test import load_verdicts
from ppmtf_jax.privacy.plausible_deniability import PrivacyTestSettings
from ppmtf_jax.privacy.verdicts import Verdicts
from ppmtf_jax.registry import Registry
from ppmtf_jax.synthesizers.synthesis import fit
from ppmtf_jax.trace_models.metropolis_hastings import MetropolisHastings
from tests.commands import refused, works
from tests.evaluation.report_run import N_USERS, SEED, USER, run_small_job
from tests.support import minutes, places_in_line, random_traces, to_traces
from tests.trace_models.nobody import registered_nobody

QUICK = ReportSettings(estimators=("ml",), fast=True)
FAR = MetricInfo("far_km", "Far, km", "How far off.", "km", "lower", "near Training", "nobody moves")


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
    title = found_section.ATTACKS["likelihood_ratio"]
    monkeypatch.setattr(found_section, "ATTACKS", {"likelihood_ratio": title})


def made(name: str, material: ReportData) -> Section:
    """A section of the page, with a sentence where it cannot be made."""
    return compose_section(SECTIONS[name], material)


def changed(material: ReportData, **fields: Any) -> ReportData:
    """The material with other fields, which do not change what chance does: it takes longer than all else."""
    found = replace(material, **fields)
    found.__dict__["chance"] = material.chance
    return found


def words(content: Section) -> str:
    """All text of paragraphs, lists and tables."""
    found = []
    for block in content.blocks:
        blocks = block.blocks if isinstance(block, Details) else (block,)
        for each in blocks:
            if isinstance(each, Text):
                found += each.lines
            elif isinstance(each, Table):
                found += [
                    each.caption,
                    *(cell if isinstance(cell, str) else cell.word for row in each.rows for cell in row),
                ]
    return "\n".join(found)


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
        if tag in ("path", "use"):
            return
        if not self.open or self.open.pop() != tag:
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
    assert [section.part for section in report.sections] == sorted(
        (maker.part for maker in SECTIONS.values()), key=PARTS.index
    )
    for section in report.sections:
        assert all(finding.question in elements.text for finding in section.findings)
        assert any(attributes.get("href") == f"#{section.name}" for attributes in elements.all("a"))
    assert len(report.findings()) > 8
    # Every rule can be read, and no status is told by colour alone.
    assert all(rule.split("\xa0")[0] in elements.text for rule in report.rules())
    assert page.count('class="symbol"') >= 2 * len(report.findings())


def test_the_page_needs_nothing_but_itself(page):
    elements = Elements(page)
    for tag, attributes in elements.tags:
        for name in ("src", "href", "xlink:href", "data", "action"):
            value = attributes.get(name)
            # Within the page, or data in it.
            assert value is None or value.startswith(("#", "data:")), f"{tag} {name}={value}"
    assert not elements.all("script")
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def test_the_page_is_well_formed_and_can_be_heard(page):
    elements = Elements(page)
    assert elements.wrong == []
    assert elements.open == []
    ids = [attributes["id"] for _, attributes in elements.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    levels = [int(tag[1]) for tag, _ in elements.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    pictures = elements.all("svg")
    assert pictures
    assert all(each.get("aria-label") and each.get("role") == "img" for each in pictures)
    assert len(elements.all("figure")) == len(elements.all("figcaption")) == len(pictures)
    assert elements.all("html") == [{"lang": "en"}]
    assert "None" not in elements.text
    assert not re.search(r"\bnan\b", elements.text)


def test_no_secret_is_on_the_page(page, job):
    """Neither a seed, nor anybody's id, nor what tells which draw or model made the traces."""
    assert str(SEED) not in page
    assert not any(USER.format(user) in page for user in range(N_USERS))
    assert "quagga" not in page
    synthetic = Traces.load(job / "private" / "synthetic")
    assert synthetic.origin.model[:12] not in page
    assert synthetic.origin.draw not in page
    assert str(job.parent) not in page


def test_the_page_says_who_may_see_it_and_only_its_owner_can(written, page):
    path, _ = written
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.parent.name == "private"
    assert Elements(page[page.index("<body>") :]).text.strip().startswith("Private.")


def test_the_same_content_gives_the_same_page(material, written, page):
    [first] = (section for section in written[1].sections if section.name == "range-queries")
    again = made("range-queries", material)
    assert words(again) == words(first)
    with without_layout():
        [drawn] = re.findall("<svg.*?</svg>", render(Report("T", "S", [again])), flags=re.DOTALL)
    # Only the numbers of the pictures differ, which follow from what else is on the page.
    pictures = re.findall("<svg.*?</svg>", page, flags=re.DOTALL)
    assert drawn in [re.sub(r"picture\d+-", "picture1-", each) for each in pictures]


def test_ids_of_users_are_text_and_not_tags():
    light = Finding("<b>Who?</b>", Status.FAIR, "<i>& so</i>", "Rule `ppmtf <run>`")
    blocks = [
        Text(("<script>alert(1)</script>", "a `<x>` b")),
        Table("<u>", ("<s>",), [["<script>"]]),
        Details("<em>", (Text(("<q>",), is_list=True),)),
    ]
    page = render(Report("<title>", "<p>", [Section("name", NUMBERS, "Title", "Lead.", blocks, [light])]))
    elements = Elements(page)
    assert not elements.all("script")
    assert not {"b", "i", "u", "s", "em", "q"} & {tag for tag, _ in elements.tags}
    assert "<code>&lt;x&gt;</code>" in page


# Writing it


def test_the_command_writes_a_page_and_replaces_only_its_own(job, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs_report, "compose_report", lambda *_, **__: Report("T", "S", []))
    monkeypatch.setattr(jobs_report, "shadow_scores", lambda *_, **__: (None, ""))
    monkeypatch.setattr(jobs_report, "compose_early", lambda _: None)  # of which this page would show nothing
    out = tmp_path / "page.html"
    words = ["report", job, "--out", out, "--quiet"]
    assert "Only you can read" in works(*words)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    refused(*words)
    works(*words, "--overwrite")
    out.write_text("<html>a page of somebody else</html>")
    refused(*words, "--overwrite")
    assert out.read_text() == "<html>a page of somebody else</html>"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_private_page_is_not_put_into_a_release(job):
    with pytest.raises(InputError, match="would be handed out"):
        report_run(job, job / "release" / "report.html")
    assert not (job / "release" / "report.html").exists()


def test_what_is_no_job_is_refused(tmp_path):
    with pytest.raises(InputError, match="a folder of a job"):
        report_run(tmp_path)
    assert not any(tmp_path.iterdir())


def test_settings_that_are_impossible():
    with pytest.raises(InputError) as raised:
        ReportSettings(n_users=1, estimators=())
    assert len(raised.value.problems) == 2


# Where things are missing


def without(job: Path, tmp_path: Path, *names: str) -> Path:
    """A copy of a job in which some files or folders are missing."""
    copy = tmp_path / "job"
    shutil.copytree(job, copy)
    for name in names:
        path = copy / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return copy


def test_without_a_release_traces_are_not_to_be_handed_out(job, tmp_path):
    found = load_report_data(without(job, tmp_path, "release", "private/key"), QUICK)
    assert not found.is_release
    assert found.users_known
    assert "not to be handed out" in words(made("statement", found))
    assert "None of them is a release" in words(made("made", found))
    # The evaluation of the job knows no such column, since all traces passed: it is made again.
    assert found.evaluation.columns[0] == found.column == "all"


@pytest.mark.usefixtures("one_attack", "little_chance")
def test_without_a_key_nobody_is_found(job, tmp_path):
    found = load_report_data(without(job, tmp_path, "private/key"), QUICK)
    assert not found.users_known
    for name in ("found", "clusters"):
        assert "not known from whom" in words(made(name, found))
    # Whose data was used is attacked all the same.
    [light] = made("found", found).findings
    assert light.answer.startswith("The strongest attack")


@pytest.mark.usefixtures("little_chance")
def test_of_many_users_a_sample_is_reported(material, job, tmp_path, monkeypatch):
    monkeypatch.setattr("ppmtf_jax.evaluation.evaluation.MOST_USERS", 12)
    monkeypatch.setattr(StoredTraces, "in_memory", None)
    shadows = tmp_path / "shadows.npz"
    found = load_report_data(without(job, tmp_path, "private/metrics.json"), replace(QUICK, fast=False))
    assert [each.n_users for each in (found.train, found.test, found.synthetic)] == [12] * 3
    assert set(found.evaluation.sampled) == {"training", "test", "released"}
    why_not = "because they would learn from a sample of the users, and the model learned from all"
    assert shadow_scores(found, shadows) == (None, why_not)
    # Facts are of the whole sets.
    assert words(made("made", found)) == words(made("made", material))
    assert found.n_synthetic == material.n_synthetic
    monkeypatch.setattr(report_registry, "SECTIONS", {"clusters": SECTIONS["clusters"]})
    report = compose_report(found)
    assert report.subtitle.startswith(compose_report(material).subtitle)
    assert "Only a random sample was measured of" in report.subtitle
    # A sampled user keeps her cluster.
    cluster = np.asarray(material.model.trace_model.cluster)
    clusters, _ = strongest_clusters(found)
    assert clusters
    for each in clusters:
        own = np.isin(material.train.user_ids, each.train.user_ids)
        assert (cluster[own] == each.number).all()
    # So does she keep her verdicts, and a trace that did not pass is not shown.
    passed = np.arange(found.n_synthetic) % 2 == 0
    table = material.verdicts.table.assign(plausible_users=99 * passed)
    some = replace(found, is_release=False, verdicts=replace(material.verdicts, table=table))
    shown = set(table["user"][passed]) & set(found.synthetic.user_ids)
    assert set(persons.tested(some).user_ids) == shown


@pytest.mark.usefixtures("one_attack")
@pytest.mark.usefixtures("little_chance")
def test_of_nobody_the_guarantee_is_told_first(tmp_path):
    """Its pictures are not drawn, since only its words are its own."""
    with registered_nobody(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(rendering, "_svg", lambda *_: "")
        public = {"grid": [51.9, 52.1, 5.3, 5.7, 4, 5], "min_users_per_place": 1}
        importing = {"source": "checkins", "path": "checkins.csv", "time_zone": "UTC"} | public
        fitting = {"system": "nobody", "epsilon": 4.0}
        job = run_small_job(tmp_path, **{"import": importing}, fit=fitting, test={}, release={})
        page, report = report_run(job, settings=QUICK)
        found = load_report_data(job, QUICK)
        other = fit(found.train, "nobody", epsilon=4.0)
        other.save(job / "private" / "model", overwrite=True)
        with pytest.raises(InputError, match=r"model.*release|release.*model"):
            load_report_data(job, QUICK)
    # The numbers are those of the job, and not made anew.
    assert found.evaluation.lineage
    assert report.verdict is not None
    first = report.verdict.blocks[0]
    assert isinstance(first, Text)
    assert first.lines[0] == found.guarantee
    assert first.lines[0].startswith("Every person whose data was used is protected")
    statement = next(section for section in report.sections if section.name == "statement")
    [light] = statement.findings
    # Epsilon is above 1 and at most 10.
    assert (light.question, light.status) == ("Is the protection proven?", Status.FAIR)
    assert "together" in words(statement)
    assert "Treated as public:" in words(statement)
    for name in ("deniability", "clusters", "made"):
        section = next(section for section in report.sections if section.name == name)
        assert "o trace was made from one person" in words(section)
        answered = Status.NOT_APPLICABLE if section.part == PRIVACY else Status.UNKNOWN
        assert all(finding.status is answered for finding in section.findings)
    [proven] = next(section for section in report.sections if section.name == "found").findings
    assert proven.answer == found.proof
    assert "epsilon = 4 " in found.proof
    # What attacks found stays: here that too few people are known, or that nothing is copied.
    assert not replace(found, statement=found.statement | {"private": False}).proof
    assert report.subtitle.startswith(found.kept)
    assert " rows of the data are used" in found.kept
    text = page.read_text(encoding="utf-8")
    for never in ("No privacy test is known", "None of them is a release", "not known from whom", "withheld"):
        assert never not in text


def test_verdicts_made_after_the_release_are_refused(job, tmp_path):
    """Made with another k they would say of this release what its statement does not: with the key, and without."""
    copy = without(job, tmp_path)
    private = copy / "private"
    harder = PrivacyTestSettings(k=6, count_all=True)
    run_privacy_test(private / "model", private / "synthetic", private / "verdicts", harder, seed=SEED, overwrite=True)
    with pytest.raises(InputError, match=r"private/verdicts and private/key of the same verdicts.*Run the job again"):
        load_report_data(copy, QUICK)
    shutil.rmtree(private / "key")
    with pytest.raises(InputError, match="private/verdicts and release of the same settings of the privacy test"):
        load_report_data(copy, QUICK)
    # With another number of verifiers alone, too; and where other traces passed.
    verdicts = load_verdicts(job / "private" / "verdicts")
    fewer = replace(verdicts, settings=replace(verdicts.settings, n_verifiers=7))
    fewer.save(private / "verdicts", overwrite=True)
    with pytest.raises(InputError, match="private/verdicts and release of the same settings of the privacy test"):
        load_report_data(copy, QUICK)
    table = verdicts.table.assign(threshold=verdicts.threshold + (np.arange(len(verdicts.threshold)) == 0) * 10**6)
    replace(verdicts, table=table).save(private / "verdicts", overwrite=True)
    with pytest.raises(InputError, match="private/verdicts and release of the same number of traces that passed"):
        load_report_data(copy, QUICK)


def test_models_and_data_of_another_run_are_refused(job, tmp_path, material):
    model = job / "private" / "model"
    train = job / "private" / "data" / "train"
    for folder, other, said in (
        (model, fit(material.train, "tpm"), "same model"),
        (train, material.train.select_users(np.arange(50)), "same training traces"),
    ):
        copy = without(job, tmp_path / folder.name, str(folder.relative_to(job)))
        other.save(tmp_path / "other" / folder.name)
        shutil.copytree(tmp_path / "other" / folder.name, copy / folder.relative_to(job))
        with pytest.raises(InputError, match=said):
            load_report_data(copy, QUICK)


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


@pytest.mark.usefixtures("little_chance")
def test_without_model_verdicts_and_numbers(job, tmp_path):
    names = ("private/model", "private/verdicts", "private/metrics.json")
    found = load_report_data(without(job, tmp_path, *names), QUICK)
    assert "not said" in words(made("made", found))
    assert [light.status for light in made("deniability", found).findings] == [Status.POOR, Status.UNKNOWN]
    assert "model is not in the folder" in words(made("clusters", found))
    assert made("numbers", found).blocks


def test_a_release_that_was_changed_is_refused(job, tmp_path):
    with pytest.raises(InputError, match=r"privacy\.json changed or missing"):
        load_report_data(without(job, tmp_path, "release/privacy.json"), QUICK)


def test_without_real_or_synthetic_traces_nothing_is_reported(job, tmp_path):
    copy = without(job, tmp_path, "release", "private/synthetic")
    with pytest.raises(InputError, match="release or private/synthetic"):
        load_report_data(copy, QUICK)
    shutil.rmtree(copy / "private" / "data" / "test")
    with pytest.raises(InputError, match="private/data/test"):
        report_run(copy, settings=QUICK)


@pytest.fixture
def nowhere(material) -> ReportData:
    """All places are at one point."""
    places = material.places
    point = PlaceTable(places.ids, np.full(len(places), 52.0), np.full(len(places), 13.0), None)
    sets = {name: replace(getattr(material, name), places=point) for name in ("train", "test", "synthetic")}
    return replace(material, **sets)


@pytest.mark.usefixtures("little_chance")
def test_without_coordinates_there_are_no_maps_but_all_else(nowhere):
    assert not nowhere.has_map
    for name in ("population", "transitions", "trips", "clusters", "places", "visit-fractions"):
        content = made(name, nowhere)
        assert any(isinstance(block, Gauges) for block in content.blocks), name
        if name in ("trips", "places"):  # all distances are 0
            render(Report("T", "S", [content]))
    assert "this needs a map" in words(made("range-queries", nowhere))
    assert [block for block in made("transitions", nowhere).blocks if isinstance(block, Picture)] == []
    captions = [block.caption for block in made("clusters", nowhere).blocks if isinstance(block, Picture)]
    assert captions
    assert not any("maps" in caption for caption in captions)


def test_places_without_any_coordinate(material):
    places = material.places
    unknown = PlaceTable(places.ids, np.full(len(places), np.nan), np.full(len(places), np.nan))
    sets = {name: replace(getattr(material, name), places=unknown) for name in ("train", "test", "synthetic")}
    assert not replace(material, **sets).has_map


def test_a_trace_of_two_days_covers_two_days(material):
    """The time grid of synthetic traces is repeated every day, and 48 hours long."""
    longer = changed(material, synthetic=material.test)
    assert "One trace covers" in words(made("made", longer))
    assert "48 instants, 2 days" in words(made("made", longer))


def lonely(n_instants: int, n_users: int = 3) -> ReportData:
    """Everybody is seen at single instants of a grid, at one of two places."""
    grid, places = minutes(n_instants), places_in_line(2)
    sets = {
        name: to_traces([(first + user, 0, user % n_instants, user % 2) for user in range(n_users)], places, grid)
        for name, first in (("train", 0), ("test", 10), ("synthetic", 0))
    }
    evaluation = evaluate({"all": sets["synthetic"]}, sets["train"], sets["test"], EvaluationSettings(attacks=False))
    return ReportData(**sets, evaluation=evaluation, column="all", is_release=False, users_known=True, settings=QUICK)


def test_one_person_who_never_moves_and_one_time_of_day():
    """Nobody is seen twice: what needs two events says so, and the page is made all the same."""
    report = compose_report(lonely(1, 1))
    text = Elements(render(report)).text
    assert "Nobody is seen twice" in text
    assert "not to be handed out" in text
    assert len(report.sections) == len(SECTIONS)


def test_what_an_error_found_is_not_told():
    """It may be ids of users."""

    def fails(material: ReportData) -> Section:
        raise InputError("test", [Problem("other users", "quagga-001 in both", examples=("quagga-001",))])

    maker = SectionMaker("fails", NUMBERS, "Fails", "It fails.", fails, "Does it?")
    content = compose_section(maker, lonely(2))
    assert words(content) == "Left out. It needs other users."
    [light] = content.findings
    assert (light.question, light.status, light.answer) == ("Does it?", Status.UNKNOWN, "It needs other users.")


def test_a_section_is_added_by_registering_it(monkeypatch):
    registry = Registry("section", "ppmtf_jax.noise", first=list(SECTIONS))
    for entry in SECTIONS.values():
        registry.register(replace(entry, make=lambda _: []))
    registry.register(SectionMaker("shoes", PARTS[1], "Shoes", "What people wear.", lambda _: [Text(("Boots.",))]))
    monkeypatch.setattr(report_registry, "SECTIONS", registry)
    report = compose_report(lonely(2))
    page = render(report)
    assert 'id="shoes"' in page
    assert "Boots." in page
    names = [section.name for section in report.sections]
    # The last of its part.
    assert names.index("range-queries") < names.index("shoes") < names.index("clusters")


# Lights


@pytest.mark.parametrize(
    ("synthetic", "position", "status"),
    [
        (0.5, -0.125, Status.GOOD),
        (1.0, 0.0, Status.GOOD),
        (1.2, 0.05, Status.GOOD),
        (1.3, 0.075, Status.FAIR),
        (1.8, 0.2, Status.FAIR),
        (1.9, 0.225, Status.POOR),
        (9.0, 2.0, Status.POOR),
        (math.nan, None, Status.UNKNOWN),
    ],
)
def test_the_way_from_training_to_uniform(synthetic, position, status):
    """Training is at 1, Uniform at 5: a twentieth of the way is 1.2, a fifth of it 1.8."""
    found = gauge(FAR, synthetic, 1.0, 5.0)
    assert found.position == (None if position is None else pytest.approx(position))
    assert found.status is status
    if position is not None:
        assert found.ends == pytest.approx((0.05, 0.2))


def test_chance_widens_what_is_good():
    """Two standard errors of 0.1 on the way from 1 to 5 are a twentieth of it."""
    found = gauge(FAR, 1.35, 1.0, 5.0, chance=Chance(0.1))
    assert (found.status, found.ends) == (Status.GOOD, pytest.approx((0.1, 0.25)))
    assert found.numbers["Training"] == "1.0000 ± 0.2000"
    few = gauge(FAR, 1.9, 1.0, 5.0, chance=Chance(0.0, few=1.8))
    assert (few.status, "Equally few real" in few.numbers) == (Status.GOOD, True)


def test_directions_and_floor():
    signed, more = (replace(FAR, direction=direction) for direction in ("zero", "higher"))
    share = replace(signed, unit="share of moves")
    assert gauge(share, -0.3, 0.1, 0.9).position == pytest.approx((0.3 - 0.1) / (0.9 - 0.1))
    assert gauge(more, 0.6, 0.8, 0.0).position == pytest.approx((0.8 - 0.6) / 0.8)
    with_floor = gauge(FAR, 2.0, 0.0, 4.0, reading=Interpretation({"floor": 1.0, "all alike": 3.0}))
    assert with_floor.position == pytest.approx((2 - 1) / (4 - 1))
    assert with_floor.reference == "all alike 3"
    assert with_floor.numbers == {"Floor": "1.0000", "Synthetic": "2.0000", "Uniform": "4.0000"}
    assert "Training" in gauge(FAR, 2.0, 1.5, 4.0, reading=Interpretation({"floor": 1.0})).numbers


def test_numbers_that_say_little_decide_nothing():
    caveats = (Caveat("few", "Too few users"), Caveat("far", "Too far"))
    with_caveat = gauge(FAR, 9.0, 1.0, 5.0, reading=Interpretation(caveats=caveats))
    assert with_caveat.position is None
    assert with_caveat.caveat == "Too few users. Too far."
    assert gauge(FAR, 1.0, 5.0, 5.05).status is Status.UNKNOWN
    good = gauge(FAR, 1.0, 1.0, 5.0)
    assert utility_finding("How far?", [with_caveat, good]).status is Status.GOOD
    assert utility_finding("How far?", [with_caveat]).status is Status.UNKNOWN


def test_tallies():
    lights = [Finding("", status, "", "") for status in (Status.POOR, Status.GOOD, Status.UNKNOWN, Status.GOOD)]
    assert tally(lights) == "2 good, 1 poor, 1 not known"
    assert len({status.word for status in Status}) == len({status.symbol for status in Status}) == len(Status)


# What sections compute


def test_pictures_show_what_the_metrics_measure(material):
    """The windows that are drawn give the numbers of the evaluation."""
    radius = {name: radius_of_gyration_km(windows).value for name, windows in material.windows.items()}
    for name, column in ((SYNTHETIC, material.column), (TRAINING, "training")):
        expected = material.evaluation.value("radius_w1_km", column)
        assert wasserstein(radius[name], radius[REAL]) == pytest.approx(expected)


def test_the_distance_of_the_slots_is_that_of_the_metric(material):
    many = replace(material, synthetic=material.train)
    for data, name, column in (
        (material, SYNTHETIC, material.column),
        (many, TRAINING, "training"),
        (many, UNIFORM, "uniform"),
    ):
        distance = distance_by_slot(data, name)
        assert distance.mean() == pytest.approx(material.evaluation.value("tp_tv", column))


def test_the_distance_of_the_slots_is_that_of_equally_few_traces(material):
    """All three curves have as much chance as the numbers beside them."""
    few = replace(material, synthetic=material.synthetic.select_users(np.arange(10)))
    known = few.chance["tp_tv"]
    assert distance_by_slot(few, TRAINING).mean() == pytest.approx(known.few)
    assert distance_by_slot(few, UNIFORM).mean() == pytest.approx(known.few_uniform)


def test_few_traces_are_held_against_equally_few_real_ones(material):
    """Ten complete traces of a day have fewer events than 56 people who were seen for two days."""
    few = replace(material, synthetic=material.synthetic.select_users(np.arange(10)))
    for found, name in ((few, "Equally few real"), (replace(material, synthetic=material.train), "Training")):
        [gauges] = (block for block in made("population", found).blocks if isinstance(block, Gauges))
        assert name in gauges.items[0].numbers


def test_ranks():
    assert rank_correlation(np.array([4, 3, 2]), np.array([1, 2, 3])) == pytest.approx(-1)
    # Ties have the mean of their ranks: 1, 2.5, 2.5 and 1, 2, 3.
    expected = np.corrcoef([1, 2.5, 2.5], [1, 2, 3])[0, 1]
    assert rank_correlation(np.array([1, 5, 5]), np.array([1, 2, 9])) == pytest.approx(expected)
    assert math.isnan(rank_correlation(np.array([2, 2]), np.array([1, 5])))
    assert math.isnan(rank_correlation(np.array([2]), np.array([1])))


def test_answers_to_queries():
    """Three places in a line and two slots, with shares of sixths: in boxes around the first place, and of all."""
    km = places_in_line(3).position_km()
    presence = np.array([[1, 1, 1], [1, 0, 2]]) / 6
    near_first = (km[0, 0] - 1, km[0, 0] + 1, km[0, 1] - 1, km[0, 1] + 1)
    boxes = np.array([near_first, near_first, (-1e9, 1e9, -1e9, 1e9), (-1e9, 1e9, -1e9, 1e9)]).T
    queries = Queries(*boxes, first=np.array([0, 1, 0, 0]), after=np.array([2, 2, 1, 2]))
    assert answer(presence, queries, km).tolist() == pytest.approx([2 / 6, 1 / 6, 3 / 6, 1.0])
    assert mean_error(np.array([0.5, 0.5]), np.array([0.5, 0.5])) == 0


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
    shown = material.is_shown(test)
    assert shown.tolist() == [n >= 3 for n in n_visitors]
    one = replace(material, test=test.select_users(np.arange(1)))
    assert made("places", one).blocks[1].rows == []


def test_queries_are_within_the_period():
    for n_slots in (1, 2, 24):
        queries = random_queries(places_in_line(5).position_km(), n_slots)
        assert (queries.first >= 0).all()
        assert (queries.after <= n_slots).all()
        assert (queries.after > queries.first).all()


def test_clusters_are_those_of_the_model(material):
    found, _ = strongest_clusters(material)
    member = np.asarray(material.model.trace_model.cluster)
    assert len(found) == len(np.unique(member)) > 1
    for cluster in found:
        number = int(re.match(r"Cluster (\d+)", cluster.title)[1]) - 1
        expected = material.train.user_ids[member == number]
        assert cluster.train.user_ids.tolist() == expected.tolist()
        assert set(cluster.synthetic.user_ids) <= set(expected)
    assert [each.strength for each in found] == sorted((each.strength for each in found), reverse=True)


@pytest.fixture
def factorized(material) -> ReportData:
    """The users of a planted cluster, the second half, have the largest values in the second column of the factor."""
    n_users, n_places, n_slots = material.train.n_users, len(material.places), material.train.time_grid.n_slots
    half = np.arange(n_users) >= n_users // 2
    user = np.stack([~half, half], axis=1) + np.linspace(0, 0.1, n_users)[:, None]
    place, slot = np.ones((n_places, 2)), np.ones((n_slots, 2))
    slots = jnp.asarray(material.model.time_grid.slot_of_instant)
    # Those of the transitions are of other people, as in ITF: clusters are of the visits.
    parts = (jnp.asarray(each, jnp.float32) for each in (user[::-1], place, place, user, place, slot))
    chains = MetropolisHastings(*parts, slot_of_instant=slots)
    return replace(material, model=replace(material.model, system="ppmtf", settings={}, trace_model=chains))


@pytest.mark.usefixtures("little_chance")
def test_clusters_of_factors_are_the_strongest_users_of_a_column(factorized):
    found, _ = strongest_clusters(factorized)
    ids, n_users = factorized.train.user_ids, factorized.train.n_users
    n_top = round(n_users / 10)
    expected = {0: ids[: n_users // 2][-n_top:], 1: ids[-n_top:]}
    assert {each.number for each in found} == {0, 1}
    for cluster in found:
        assert cluster.train.user_ids.tolist() == expected[cluster.number].tolist()
    content = made("clusters", factorized)
    pictures = [block for block in content.blocks if isinstance(block, Picture)]
    assert len(pictures) == 2
    assert isinstance(content.blocks[-1], Details)


def test_a_cluster_of_few_people_is_not_shown(material):
    users = np.flatnonzero(np.asarray(material.model.trace_model.cluster) == 0)[:3]
    few = material.synthetic.user_ids[np.isin(material.synthetic.user_ids, material.train.user_ids[users])]
    kept = np.isin(material.synthetic.user_ids, few)
    found, reason = strongest_clusters(replace(material, synthetic=material.synthetic.select_users(kept)))
    assert found == []
    assert "single people" in reason


def test_share_at_top_places():
    traces = to_traces([(0, 0, 0, 1), (1, 0, 0, 0), (0, 0, 1, 1)], places_in_line(2), minutes(3))
    assert share_at_top_places(traces, np.array([1])).tolist()[:2] == [0.5, 1.0]
    assert np.isnan(share_at_top_places(traces, np.array([1]))[2])


@pytest.mark.usefixtures("one_attack")
def test_copies_of_real_traces_are_poor(material):
    """The training traces as if they were synthetic: every light of leaks that can tell must not be good."""
    copied = replace(material, synthetic=material.train, column="training")
    assert made("found", copied).findings[0].status is Status.POOR
    # Of 14 test users at 16 places, much can be found and guessed anyway.
    assert made("copies", copied).findings[0].status is not Status.GOOD
    assert made("inference", copied).findings[0].status is Status.UNKNOWN
    assert all(light.status is Status.GOOD for light in made("population", copied).findings)


@pytest.mark.usefixtures("one_attack")
def test_shadow_models_are_among_the_attacks_of_a_report_unless_it_is_fast(
    job, written, material, tmp_path, monkeypatch
):
    """They are made and tested as the statement of the release says, kept in the private folder, and in its light."""
    scores = MembershipScores(np.ones((1, 30)), np.zeros((1, 400)), np.arange(30), np.arange(400), "shadow_models")
    asked = []

    def found(released, train, test, settings, *, checkpoint, **_):
        asked.append((settings.system, settings.test_settings["k"], settings.n_attacked, settings.people, checkpoint))
        return scores

    monkeypatch.setattr(jobs_report, "infer_by_shadow_models", found)

    def composed(material, **_):
        asked.append(material.shadow_scores)
        return Report("", "", [])

    monkeypatch.setattr(jobs_report, "compose_report", composed)
    monkeypatch.setattr(jobs_report, "compose_early", lambda _: None)
    monkeypatch.setattr(jobs_report, "render", lambda _: "")
    report_run(job, tmp_path / "page.html", ReportSettings(estimators=("ml",), n_users=40))
    files = {"real": "shadows.npz", "released": "shadows_of_release.npz"}
    assert asked == [*(("bridge", 5, 40, each, job / "private" / file) for each, file in files.items()), scores]
    asked.clear()
    report_run(job, tmp_path / "fast.html", QUICK)
    assert asked == [None]

    shown = made("found", replace(material, shadow_scores=scores))
    assert "shadow models" in shown.findings[0].answer
    assert "finds 1,000 of 1,000 people" in shown.findings[0].answer
    assert shown.findings[0].status is Status.POOR
    [fast] = (section for section in written[1].sections if section.name == "found")
    assert "were left out to save time (--fast)" in words(fast)
    unknown = replace(material, settings=ReportSettings(estimators=("ml",)), no_shadows="because it rains")
    assert "were left out because it rains." in found_section._shadows_note(unknown)


def test_refused_attacks_are_named_with_the_reason(material, monkeypatch):
    problem = Problem("places with coordinates", "a secret of user 7")

    def refuse(*_: Any, **__: Any) -> Never:
        raise InputError("attack", [problem])

    attacks = ("likelihood_ratio", "density_ratio")
    monkeypatch.setattr(found_section, "ATTACKS", {name: name for name in attacks})
    infer = found_section.infer_membership
    monkeypatch.setattr(
        found_section,
        "infer_membership",
        lambda *sets, **how: refuse() if sets[3] == attacks[0] else infer(*sets, **how),
    )
    said = words(made("found", material))
    assert "likelihood_ratio: it needs places with coordinates" in said
    assert "secret" not in said
    learn = audit.estimate_transitions
    monkeypatch.setattr(
        audit,
        "estimate_transitions",
        lambda known, name, *rest, **how: refuse() if name == "tf" else learn(known, name, *rest, **how),
    )
    all_of_them = replace(material, settings=ReportSettings(n_users=30))
    assert f"{ESTIMATORS['tf'].title}: it needs places with coordinates" in words(made("found", all_of_them))


def test_sections_that_need_no_shadow_models_can_be_made_before_the_others(material, written):
    with without_layout():
        made, said = compose_early(material), []
        assert set(SECTIONS) - set(made) == {"found"}
        report = compose_report(material, made=made, say=said.append)
        assert said == [f"{SECTIONS['found'].title} ..."]
        assert render(report) == render(written[1])


def test_a_report_is_made_where_shadow_models_cannot_be(job, monkeypatch):
    """With a word on why, and what a report of synthetic traces alone needs is the model."""
    material, said = load_report_data(job, ReportSettings()), []

    def refused(*_, **__):
        raise InputError("fit", [Problem("more users", "quagga-001")])

    monkeypatch.setattr(jobs_report, "infer_by_shadow_models", refused)
    # The page does not say what was found, which may name users.
    expected = None, "because they need more users"
    assert jobs_report.shadow_scores(material, job / "none.npz", say=said.append) == expected
    assert "quagga-001" in said[-1]
    asked: list[ShadowModelSettings] = []

    def settled(released, train, test, settings, **_):
        asked.append(settings)

    monkeypatch.setattr(jobs_report, "infer_by_shadow_models", settled)
    untested = replace(material, statement=None, is_release=False)
    assert jobs_report.shadow_scores(untested, job / "none.npz")[1] == ""
    assert [(each.system, each.test_settings) for each in asked] == [("bridge", None)]
    _, why = jobs_report.shadow_scores(replace(untested, model=None), job / "none.npz")
    assert "the model that made these traces is not known" in why
    _, why = jobs_report.shadow_scores(replace(material, statement={}), job / "none.npz")
    assert "does not name the model" in why


def test_random_places_are_poor_but_leak_nothing(material):
    random = replace(material, synthetic=material.sets[UNIFORM], column="uniform")
    for name in ("population", "trips", "places", "range-queries"):
        assert made(name, random).findings[0].status is Status.POOR, name
    [light] = made("copies", random).findings
    # Of 14 test users nobody knows what chance gives.
    assert (random.test.n_users, light.status) == (14, Status.UNKNOWN)


def scores_of(members: np.ndarray, others: np.ndarray) -> MembershipScores:
    ids = np.arange(len(members) + len(others))
    return MembershipScores(members[None], others[None], ids[: len(members)], ids[len(members) :])


def test_an_average_that_hides_those_who_are_exposed_is_poor():
    """Of 1,000 members 90 score above everybody else, the others like strangers: the area is .09 + .91 / 2 = .545."""
    rng = np.random.default_rng(0)
    members, others = rng.normal(size=(2, 1000))
    members[:90] = 10
    # .84, .69, .66 and .5 of the members are above one of four others each: .67 on average.
    few_others = scores_of(rng.normal(size=500), np.array([-1.0, -0.5, -0.4, 0.0]))
    cases = {
        "exposed": (scores_of(members, others), Status.POOR),
        "nobody": (scores_of(rng.normal(size=1000), others), Status.GOOD),
        "of four": (few_others, Status.UNKNOWN),
    }
    judged = {name: scores.summary().judgements() for name, (scores, _) in cases.items()}
    for name, (_, status) in cases.items():
        assert found_section.strongest_finding({name: judged[name]}).status is status, name
    light = found_section.strongest_finding({"nobody": judged["nobody"]}, ["by shadow models"])
    assert (light.status, "shadow models" in light.answer) == (Status.FAIR, True)
    assert cases["exposed"][0].roc.auc < 0.56


def test_the_attack_that_finds_most_is_named():
    """Two attacks that cannot tell: too few people could be exposed."""
    none, some = ([FOUND.judge(value, 500), EXPOSED.judge(0, 50)] for value in (0.0, 0.02))
    said = found_section.strongest_finding({"None": none, "Some": some})
    assert (said.status, "(some) finds 20 of" in said.answer) == (Status.UNKNOWN, True)


def linkage(**changed: object) -> Linkage:
    """An attack that finds nobody, and names one of 500 targets at random."""
    usual = {"n_traces": 500, "n_targets": 500, "n_known": 500, "against": "targets", "auc": 0.5, "n_exposed": 0}
    usual |= {"auc_interval": (0.45, 0.55), "true_positive_rate": {}, "accuracy": 0.002, "found": 0.0, "n_attacks": 1}
    usual |= {"found_interval": (0.0, 0.007), "roc": Roc.of(np.arange(2.0), np.arange(2.0))}
    return Linkage(**(usual | changed))


def test_who_names_half_of_all_persons_is_no_good_attack():
    """Nobody is found, since some wrong names are given with high odds; but half of the names are right."""
    assert worst(linkage().judgements()).status is Status.GOOD
    assert worst(linkage(accuracy=0.498, auc=0.75, auc_interval=(0.7, 0.8)).judgements()).status is Status.POOR


def test_without_attacks_on_identity_the_light_is_not_good(material, monkeypatch):
    told: list[str] = []

    def keep(judged: object, left_out: list[str]) -> Finding:
        told.extend(left_out)
        return strongest_finding(judged, left_out)

    strongest_finding = found_section.strongest_finding
    monkeypatch.setattr(found_section, "strongest_finding", keep)
    found_section.make(replace(material, traced=Traced([], "", {}), statement=None))
    assert "on identity" in told


def test_two_targets_are_not_enough_to_be_good(material):
    """Both are named right, which a guess does in a quarter of all cases."""
    two = replace(material, settings=ReportSettings(n_users=2, estimators=("ml",)), synthetic=material.train)
    assert made("found", two).findings[0].status in (Status.UNKNOWN, Status.POOR)


@pytest.mark.usefixtures("one_attack")
def test_a_sample_is_attacked_and_said(material):
    few = replace(material, settings=ReportSettings(n_users=9, estimators=("ml",)))
    released, train, test, note = few.attacked
    assert (train.n_users, test.n_users) == (9, 9)
    assert set(released.user_ids) <= set(train.user_ids)
    assert "9 of 56 training users" in note
    assert words(made("found", few)).count("To save time") == 2


@pytest.mark.parametrize(("noise_epsilon", "status"), [(1.0, Status.FAIR), (0.1, Status.POOR), (1e-9, Status.POOR)])
def test_much_noise_on_k_is_no_fair_test(material, noise_epsilon, status):
    """With noise as wide as k a trace in some passes that had to reach its own user alone."""
    noise = np.round(np.random.default_rng(0).laplace(scale=1 / noise_epsilon, size=2000)).astype(np.int64)
    verdicts = material.verdicts
    settings = replace(verdicts.settings, k=10, eta=1.0, noise_epsilon=noise_epsilon)
    table = pd.DataFrame({"threshold": 10 + noise, "plausible_users": 40})
    noisy = replace(verdicts, settings=settings, table=table)
    light = deniability.tested_finding(replace(material, verdicts=noisy), noisy)
    assert light.status is status
    assert ("1 person." in light.answer) == (status is Status.POOR)


def test_a_light_on_what_cannot_fail_says_so(material):
    for smallest, is_said in ((10, True), (9, False)):
        settings = replace(material.verdicts.settings, k=10)
        verdicts = replace(material.verdicts, settings=settings, smallest_class=smallest)
        light = deniability.tested_finding(material, verdicts)
        assert light.status is Status.GOOD
        assert ("passes the test by construction: at least 10 users" in light.answer) == is_said


def test_deniability_is_told_by_what_was_tested(material):
    verdicts = material.verdicts
    noisy = replace(verdicts, settings=replace(verdicts.settings, k=10, noise_epsilon=1.0))
    # By hand, 1 / (1 + (k - 1) / e^eta): .23; .41, .43; .73, .69, 1 and 1.
    expected = {
        Status.GOOD: [(10, 1.0)],
        Status.FAIR: [(5, 1.0), (10, 1.93)],
        Status.POOR: [(2, 1.0), (10, 3.0), (10, 1000.0), (1, 1.0)],
    }
    for status, pairs in expected.items():
        for k, eta in pairs:
            # An eta that is only taken when it is forced.
            settings = replace(verdicts.settings, k=k)
            object.__setattr__(settings, "eta", eta)
            light = made("deniability", replace(material, verdicts=replace(verdicts, settings=settings))).findings[0]
            assert light.status is status, (k, eta)
    assert "within a factor of e^1 = 2.72" in words(made("deniability", material))
    assert made("deniability", replace(material, verdicts=noisy)).findings[0].status is Status.FAIR
    failed = replace(verdicts, table=verdicts.table.assign(threshold=10**6))
    lights = made("deniability", replace(material, verdicts=failed, is_release=False)).findings
    assert [light.status for light in lights] == [Status.POOR, Status.POOR]
    stopped = replace(noisy, settings=replace(noisy.settings, count_all=False))
    assert "No curve" in words(made("deniability", replace(material, verdicts=stopped)))


def test_seeds_are_told_but_not_shown(material):
    statuses = {True: Status.FAIR, False: Status.GOOD, None: Status.UNKNOWN}
    assert material.seeds_given is True
    for given, status in statuses.items():
        assert made("statement", replace(material, seeds_given=given)).findings[0].status is status


def test_other_hours_cannot_be_compared(material):
    grid = minutes(material.synthetic.time_grid.n_instants)
    other = replace(material, synthetic=replace(material.synthetic, time_grid=grid))
    with pytest.raises(Unavailable, match="different periods"):
        _ = other.windows


def test_place_names():
    found = lonely(2)
    names = pd.Series(found.place_names(np.array([0, 1])))
    assert names.tolist() == ["0", "1"]
    named = PlaceTable(np.array(["a", "b"]), np.zeros(2), np.ones(2), np.array(["bar", ""], object))
    assert replace(found, train=replace(found.train, places=named)).place_names(np.array([0, 1])) == ["bar (a)", "b"]


# The verdict


def test_the_page_begins_with_the_verdict(page, written):
    _, report = written
    assert page.index('id="verdict"') < page.index('id="summary"')
    assert report.verdict is not None
    titles = [each.use.title for each in report.verdict.uses]
    assert titles[0] == "Where people are, by hour"
    # Traces of a day, and of people without friends.
    assert "Friends" not in titles
    assert "Weeks of persons" not in titles
    text = Elements(page).text
    assert all(title in text for title in titles)
    assert "At what risk" in page
    assert all(question in text for question in (found_section.QUESTION, "Are real traces copied?"))


def test_the_verdict_and_the_lights_agree(written):
    """The same rule and the same numbers: no light of a number is better or worse than in the verdict."""
    _, report = written
    lights = {
        gauge.quantity.name: gauge.status
        for section in report.sections
        for block in section.blocks
        if isinstance(block, Gauges)
        for gauge in block.items
    }
    judged = {row.quantity.name: found.fitness.status for use in report.verdict.uses for row, found in use.numbers}
    assert len(lights.keys() & judged.keys()) > 8
    for name in lights.keys() & judged.keys():
        assert lights[name] is judged[name], name


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
    columns = ["bad", "good", "same", "training", "uniform"]
    chosen = dict(zip(columns, ("uniform", "training", "training", "training", "uniform"), strict=True))
    rows = [
        row._replace(numbers={new: row.numbers[old] for new, old in chosen.items()}) for row in material.evaluation.rows
    ]
    for row in rows:
        if row.quantity.name == edit:
            row.numbers["good"] = math.nan
    evaluation = Evaluation(rows)
    return verdict_text(compose_verdict(changed(material, evaluation=evaluation, column=column, **fields), []))


def test_what_serves_better_is_told_with_its_figures(material):
    [row] = (each for each in material.evaluation.rows if each.quantity.name == "tp_tv")
    real, random = (row.quantity.text(row.numbers[name]) for name in ("training", "uniform"))
    told = planted(material, "bad")
    assert re.search(r"Where people are, by hour: (good|same) \(fit\)\. ", told)
    assert re.search(rf"TP-TV\S*: {real}; these traces: {random}; real people: ", told)
    for column in ("good", "same"):
        assert "none would serve a use better" in planted(material, column)


def test_what_is_known_of_less_is_not_better(material):
    """Systems of which few traces may be released, or whose worst number was not measured, are not named."""
    use = "Where people are, by hour: "
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
        values = [limit + 0.002, limit - 0.002, training, uniform]
        numbers = dict(zip(("bad", "good", "training", "uniform"), values, strict=True))
        evaluation = Evaluation([row._replace(numbers=numbers, reading=Interpretation())])
        data = changed(material, evaluation=evaluation, column="bad")
        data.__dict__["chance"] = {"tp_tv": Chance(noise)}
        assert ("Where people are, by hour: good (fit)" in verdict_text(compose_verdict(data, []))) == is_told


def verdict_text(verdict: Verdict) -> str:
    return words(Section("verdict", NUMBERS, "", "", verdict.blocks))


@pytest.mark.parametrize(
    ("plausible", "k", "largest"),
    [
        ([10, 10, 10, 10], 5, 10),
        # Three of four traces pass with k = 7.
        ([3, 7, 8, 9], 5, 7),
        ([1, 1, 4, 4], 5, 1),
    ],
)
def test_the_largest_k_that_most_traces_pass(material, plausible, k, largest):
    verdicts = material.verdicts
    table = verdicts.table.iloc[:4].assign(plausible_users=plausible)
    few = replace(verdicts, table=table, settings=replace(verdicts.settings, k=k, count_all=True))
    assert largest_k(few) == largest


def test_where_counting_stopped_no_larger_k_is_told(material):
    verdicts = material.verdicts
    stopped = replace(verdicts, settings=replace(verdicts.settings, count_all=False))
    assert largest_k(stopped) is None
    assert "is not known: k is noisy, or counting stopped" in verdict_text(
        compose_verdict(changed(material, verdicts=stopped), [])
    )
    noisy = replace(verdicts, settings=replace(verdicts.settings, noise_epsilon=1.0))
    assert largest_k(noisy) is None


def test_a_comparison_gives_the_verdict_more_systems(material, tmp_path):
    """Means over seeds; of the traces that passed where some did not; and only of the same data."""
    tp_tv = next(row.quantity for row in material.evaluation.rows if row.quantity.name == "tp_tv")
    share = next(each for each in COSTS if each.name == SHARE_PASSED)

    def cell(*values: float, **about: Any) -> Evaluation:
        columns = ["all", "passed", "training"][: len(values)]
        shares = [about["share"], about["share"], math.nan][: len(values)]
        rows = [(tp_tv, "utility", values), (share, "cost", shares)]
        rows = [Row(quantity, kind, dict(zip(columns, each, strict=True))) for quantity, kind, each in rows]
        return Evaluation(rows, about["lineage"])

    def store(lineage: dict[str, str]) -> None:
        first, second = (cell(0.9, passed, 0.1, share=0.5, lineage=lineage) for passed in (0.2, 0.4))
        cells = {("sgd", 0): first, ("sgd", 1): second, ("tpm", 0): cell(0.7, share=1.0, lineage=lineage)}
        cells["private", 0] = cell(0.6, share=math.nan, lineage=lineage)
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


def captions(content: Section) -> list[str]:
    return [block.caption for block in content.blocks if isinstance(block, Picture)]


def test_real_days_are_drawn_only_of_simulated_people_or_with_consent(material):
    """Those of `material` come from a table of check-ins, so nobody may draw them in silence."""
    assert material.source == "checkins"
    for found, n_sets in (
        (material, 1),
        (changed(material, settings=replace(QUICK, consent=True)), 2),
        (changed(material, source="toy-city"), 2),
    ):
        content = made("persons", found)
        pictures = [block for block in content.blocks if isinstance(block, Picture)]
        timelines, maps = pictures
        assert len(timelines.figure.axes) == n_sets
        assert ("real people are test users" in words(content)) == (n_sets == 2)
        assert ("No days of real people are shown" in words(content)) == (n_sets == 1)
        names = {ax.get_title().split()[0] for ax in maps.figure.axes if ax.get_title()}
        assert names == {"synthetic", "real"} if n_sets == 2 else names == {"synthetic"}


def test_only_traces_that_passed_are_drawn(material):
    """If one trace of a hundred passed, it is the one that is drawn."""
    traces = material.synthetic
    untested = changed(material, is_release=False, verdicts=None)
    assert "no privacy test is known" in words(made("persons", untested))
    n = len(traces.trace_table()[0])
    one_row = material.verdicts.table.iloc[[0] * n]
    verdicts = replace(material.verdicts, table=one_row.assign(plausible_users=99 * (np.arange(n) == 3)))
    one = changed(material, is_release=False, verdicts=verdicts)
    content = made("persons", one)
    assert "1 synthetic people" in captions(content)[0]
    none = replace(verdicts, table=verdicts.table.assign(plausible_users=0))
    assert "no trace passed" in words(made("persons", changed(one, verdicts=none)))


def test_people_are_drawn_by_chance_and_not_by_hand(material):
    """Ten different people, the same ones each time."""
    drawn = [persons._drawn(material, material.synthetic, 24) for _ in range(2)]
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
    evaluation = evaluate({"all": sets["synthetic"]}, sets["train"], sets["test"], EvaluationSettings(attacks=False))
    found = ReportData(
        **sets, evaluation=evaluation, column="all", is_release=False, users_known=True,
        settings=replace(QUICK, consent=True), verdicts=passed_verdicts(material, sets["synthetic"]),
    )  # fmt: skip
    # Attacks take longer than all else, and have tests of their own.
    sections = [made(name, found) for name in SECTIONS if name != "found"]
    assert {each.name for each in sections if words(each).startswith("Left out")} <= {"clusters"}
    verdict = compose_verdict(found, sections)
    assert {"Weeks of persons", "When people are seen"} <= {each.use.title for each in verdict.uses}
    [content] = (each for each in sections if each.name == "persons")
    whole, days, _ = captions(content)
    assert "whole traces" in whole
    assert "The days of 10 synthetic and 10 real people" in days
    for picture in content.blocks:
        if isinstance(picture, Picture):
            with without_layout():
                picture.figure.draw_without_rendering()


def passed_verdicts(material: ReportData, synthetic: Traces) -> Verdicts:
    """Verdicts by which all traces passed."""
    users = synthetic.user_ids[synthetic.trace_table()[0]]
    table = material.verdicts.table.iloc[[0] * len(users)].assign(user=users, plausible_users=99)
    return replace(material.verdicts, table=table)
