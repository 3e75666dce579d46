"""What a report refuses, and that nothing is written then."""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import make_run
from report_cases import altered, trained_folder
from seal_cases import DELTA, sealed_content

import lethe
import lethe.report
from lethe.certificates.certificate import Certificate

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")


def test_what_does_not_follow_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    path, out = altered(tmp_path), tmp_path / "report.html"
    words, seal = lethe.certify(make_run(), DELTA).to_dict(), sealed_content()
    words["hypotheses"][0]["detail"] = "all is well"
    seal["seal"]["signatures"][0]["sig"] = seal["seal"]["signatures"][0]["sig"][::-1]
    other = trained_folder(tmp_path / "other", run__json=make_run(noise_multiplier=50.0).to_document())
    beside = trained_folder(tmp_path / "altered", certificate__json=json.loads(path.read_text()), run__json=None)
    for subject, said in (
        (path, "does not follow from its run"),
        (Certificate.load(path), "does not follow from its run"),
        (beside, "does not follow from its run"),
        (other, "another run"),
        (Certificate.from_dict(words), "reasons are not those"),
        (Certificate.from_dict(seal), "seal"),
    ):
        with pytest.raises(lethe.InputError, match=said):
            lethe.report.write(subject, out)
    assert not out.exists()


@pytest.mark.parametrize(
    ("subject", "arguments", "said"),
    [
        (make_run(), {}, "delta: missing"),
        (make_run(), {"delta": 0.5}, "below 1/records"),
        (make_run(noise_multiplier=None), {"delta": DELTA}, "no noise yet"),
        (lethe.certify(make_run(), DELTA), {"delta": 1e-4}, "this certificate is at delta"),
        ("nowhere.yaml", {"delta": DELTA}, "cannot be read"),
        (3.0, {}, "got float"),
        (make_run(), {"delta": DELTA, "audits": [1]}, "audits: one is int"),
        (make_run(), {"delta": DELTA, "private": "yes"}, "private: got 'yes'"),
        (make_run(), {"delta": DELTA, "curves": [{"name": "a", "steps": [1, 2], "values": [1.0]}]}, "1 for 2 steps"),
        (make_run(), {"delta": DELTA, "curves": [{"name": "a", "steps": [2, 1], "values": [1.0, 2.0]}]}, "ascend"),
        (make_run(), {"delta": DELTA, "curves": [{"name": "a", "steps": [1], "values": [float("nan")]}]}, "curves"),
        (make_run(), {"delta": DELTA, "curves": "none"}, "needs a list"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(tmp_path: Path, subject: Any, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(lethe.InputError, match=said):
        lethe.report.write(subject, tmp_path / "report.html", **arguments)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("name", ["report.pdf", "report", "nowhere/report.html"])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path, name: str) -> None:
    with pytest.raises(lethe.InputError, match="report"):
        lethe.report.write("no such run", tmp_path / name)
