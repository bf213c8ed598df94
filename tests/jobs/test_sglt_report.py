"""The report on a release of SGLT, whose test is another one."""

from __future__ import annotations

from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.evaluation.report import ReportSettings, Status
from ppmtf_jax.evaluation.report.compose import largest_k
from ppmtf_jax.evaluation.report.sections import facts, leaks
from ppmtf_jax.jobs.attack import shadows_like
from ppmtf_jax.jobs.report import load_report_data
from ppmtf_jax.jobs.steps import fit_model, release_traces, run_privacy_test, synthesize_traces
from ppmtf_jax.privacy.release import statement_of
from ppmtf_jax.privacy.release_plan import ReleaseSettings
from ppmtf_jax.synthesizers.synthesis import fit, synthesize


def test_a_release_of_sglt_is_reported_and_its_light_is_not_good(tmp_path):
    city = toy_city(n_users=60, n_places=12, n_days=1, seed=0).traces
    train, test = synthesize(fit(city, "uniform", seed=0), seed=0).split_users(0.7, seed=0)
    private = tmp_path / "private"
    (private / "data").mkdir(parents=True)
    train.save(private / "data" / "train")
    test.save(private / "data" / "test")
    fit_model(private / "data" / "train", private / "model", "sglt", seed=0)
    synthesize_traces(private / "model", private / "synthetic", seed=0)
    run_privacy_test(private / "model", private / "synthetic", private / "verdicts", {"k": 2, "max_intersection": 0.15})
    every_place = ReleaseSettings(min_users_per_place=1)
    release_traces(private / "synthetic", private / "verdicts", tmp_path / "release", private / "key", every_place)
    data = load_report_data(tmp_path, ReportSettings())
    assert 0 < data.shares_passed[data.column] < 1
    finding = leaks.tested_finding(data, data.verdicts)
    # All released traces passed, but the test bounds nobody's guess.
    assert (finding.question, finding.status) == (leaks.TESTED, Status.UNKNOWN)
    assert len(leaks.deniability(data)) >= 4
    assert facts.made(data)
    assert largest_k(data.verdicts) is not None
    # Shadow models are tested as the released traces were.
    settings = shadows_like(statement_of(tmp_path / "release"), None)[0]
    assert settings.test_settings["max_intersection"] == 0.15
    assert settings.system == "sglt"
