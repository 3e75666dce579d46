"""Certificates as files and as pages: they survive, agree with themselves, and do not survive editing."""

import dataclasses
import math
import pickle
from pathlib import Path

import pytest
from helpers import batches, make_run

import lethe
from lethe.accounting.recheck import recheck
from lethe.calculus.upward_formatting import shown
from lethe.documents.strict import to_json


def test_an_unknown_loss_on_a_ball_survives_a_file(tmp_path: Path) -> None:
    run = make_run(loss={"kind": "unknown"}, clip_norm=1.0, regulariser={"kind": "ball", "radius": 0.001}, passes=200)
    certificate = lethe.certify(run, 1e-5)
    assert certificate.theorem == "optimal-shift"
    certificate.save(tmp_path / "certificate.json")
    assert lethe.Certificate.load(tmp_path / "certificate.json") == certificate


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 0.001}, "its guarantee gives"),
        ({"epsilon": "nan"}, "its guarantee gives"),
        ({"delta": 5.0}, "delta is 5"),
        ({"guarantee": {"kind": "gdp", "mu": 1e-9}}, "its guarantee gives"),
        ({"guarantee": {"kind": "magic"}}, "kind"),
        ({"neighbours": "zero_out"}, "neighbours is 'zero_out'"),
        ({"release": "all"}, "release is 'all'"),
        ({"theorem": 3}, "needed"),
        ({"hypotheses": [{"name": 3, "status": "holds", "evidence": "checked", "detail": ""}]}, "needed"),
        ({"hypotheses": [{"name": "a", "status": "maybe", "evidence": "checked", "detail": ""}]}, "known status"),
        ({"others": [{"theorem": "a", "status": "great", "epsilon": None, "why": ""}]}, "great"),
        ({"run": 3}, "mapping"),
    ],
)
def test_an_edited_certificate_is_refused(changes: dict[str, object], message: str) -> None:
    content = lethe.certify(make_run(), 1e-5).to_dict()
    assert lethe.Certificate.from_dict(content).epsilon == content["epsilon"]
    with pytest.raises(lethe.InputError, match=message):
        lethe.Certificate.from_dict({**content, **changes})


def test_a_consistent_forgery_is_found_by_certifying_again() -> None:
    certificate = lethe.certify(make_run(), 1e-5)
    recheck(certificate)
    forged = {**certificate.to_dict(), "guarantee": {"kind": "gdp", "mu": 1e-3}, "epsilon": lethe.guarantees.GDP(1e-3).epsilon(1e-5)}
    with pytest.raises(lethe.InputError, match="from its run follows epsilon"):
        recheck(lethe.Certificate.from_dict(forged))


def test_a_forgery_between_the_deltas_is_found() -> None:
    certificate = lethe.certify(make_run(), 1e-5)
    point = lethe.guarantees.ApproxDP(certificate.epsilon_at(1e-4), 1.0000001e-5)  # true at 1e-4, claimed at a delta that is not looked at
    parts = {"kind": "tightest", "parts": [certificate.guarantee.to_dict(), point.to_dict()]}
    with pytest.raises(lethe.InputError, match="not those of optimal-shift"):
        recheck(lethe.Certificate.from_dict({**certificate.to_dict(), "guarantee": parts}))


def test_better_evidence_than_the_run_has_is_found() -> None:
    content = lethe.certify(make_run(), 1e-5).to_dict()
    content["hypotheses"] = [{**finding, "evidence": "enforced"} for finding in content["hypotheses"]]
    with pytest.raises(lethe.InputError, match="not those of optimal-shift"):
        recheck(lethe.Certificate.from_dict(content))


def test_an_epsilon_that_is_not_the_guarantee_s_is_found() -> None:
    certificate = lethe.certify(make_run(), 1e-5)
    with pytest.raises(lethe.InputError, match="from its run follows epsilon"):
        recheck(dataclasses.replace(certificate, epsilon=certificate.epsilon * (1 - 1e-5)))


def test_a_last_digit_rounded_elsewhere_is_no_forgery() -> None:
    content = lethe.certify(make_run(), 1e-5).to_dict()
    assert lethe.Certificate.from_dict({**content, "epsilon": math.nextafter(content["epsilon"], 0)})


def test_what_is_no_certificate_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    for text in ("{}", '{"epsilon": 1}', '{"lipschitz": 3, "run": {}}'):
        path.write_text(text)
        with pytest.raises(lethe.InputError, match="not a certificate"):
            lethe.Certificate.load(path)


def test_explain_reads_like_a_page() -> None:
    text = lethe.certify(make_run(), 1e-5).explain()
    first, second, *rest = text.splitlines()
    assert first.startswith("(")
    assert "replace one, last iterate only." in first
    assert "50 steps" in first
    assert second.startswith("by  optimal-shift")
    assert "GDP" in second
    assert any(line.strip().startswith("declared") and "norm <= 1" in line for line in rest)
    assert rest[-1] == "9 others do not apply or are looser (--all, or explain(every=True))"
    every = lethe.certify(make_run(), 1e-5).explain(every=True).splitlines()
    assert any(line.startswith("    composition") and "looser" in line for line in every)
    assert "arXiv:1808.06651" in lethe.certify(make_run(), 1e-5).cite()


@pytest.mark.parametrize("design", ["poisson", "cyclic", "full"])
def test_the_price_of_replacing_a_record_is_printed_beside(design: str) -> None:
    run = make_run(batches=batches(design, 10), release="all", neighbours="add_or_remove" if design != "cyclic" else "zero_out")
    certificate = lethe.certify(run, 1e-5)
    replaced = lethe.certify(run.replace(neighbours="replace_one"), 1e-5)
    line = f"    compare    epsilon would be {shown(replaced.epsilon)} under neighbours=replace_one: another record in the place of one"
    assert line in certificate.explain().splitlines()
    assert line in str(certificate).splitlines()
    assert replaced.epsilon > certificate.epsilon
    assert "compare" not in replaced.explain()
    assert "compare" not in lethe.certify(run.replace(seeded=True), 1e-5).explain()
    assert "replace_one" not in to_json(certificate.to_dict())
    assert pickle.loads(pickle.dumps(certificate)).explain() == certificate.explain()


def test_a_price_that_nothing_proves_is_not_printed() -> None:
    certificate = dataclasses.replace(lethe.certify(make_run(neighbours="zero_out"), 1e-5), under_replace_one=lambda run, delta: None)
    assert "compare" not in certificate.explain()
