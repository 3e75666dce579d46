"""What is claimed beside what was found: when the two cross, when they cannot be compared, and that a file says the same."""

import math
from pathlib import Path
from typing import Any

import pytest

from lethe.audit import Claim
from lethe.audit.page import AuditPage
from lethe.audit.statistics.counts import Tally
from lethe.audit.statistics.result import AuditResult
from lethe.errors import InputError


def claim(**changes: Any) -> Claim:
    fields = {"epsilon": 1.0, "delta": 1e-5, "neighbours": "replace_one", "release": "last", "source": "a theorem"}
    return Claim(**{**fields, **changes})


def result(**changes: Any) -> AuditResult:
    fields: dict[str, Any] = {
        "epsilon": 0.5,
        "delta": 1e-5,
        "level": 0.05,
        "estimator": "clopper_pearson",
        "unit": "run",
        "selection": "fixed",
        "rule": "threshold 1",
        "neighbours": "replace_one",
        "threat": "final_model",
        "counts": Tally(out_trials=10, false_positives=1, in_trials=10, false_negatives=1),
    }
    return AuditResult(**{**fields, **changes})


def page(*audits: AuditResult, **changes: Any) -> AuditPage:
    return AuditPage(**{"subject": "a trainer", "canary": "a record", "claim": claim(), "audits": audits, **changes})


CONDITIONAL = {"estimator": "gaussian", "family": "Gaussian", "epsilon": 9.0}
POINT = {"estimator": "plug_in", "level": None, "epsilon": math.inf}


@pytest.mark.parametrize(
    ("shown", "verdict"),
    [
        (page(result()), "consistent"),
        (page(result(epsilon=1.0)), "consistent"),
        (page(result(epsilon=1.0001)), "refuted"),
        (page(result(), result(epsilon=1.5)), "refuted"),
        (page(result(), result(**CONDITIONAL)), "consistent"),
        (page(result(**CONDITIONAL)), "not_comparable"),
        (page(result(), result(**POINT)), "consistent"),
        (page(result(epsilon=9.0), claim=None), "no_claim"),
        (page(result(epsilon=9.0, neighbours="zero_out")), "not_comparable"),
        (page(result(epsilon=9.0, delta=1e-6)), "not_comparable"),
        (page(result(epsilon=9.0, delta=1e-4)), "refuted"),
        (page(result(epsilon=9.0, threat="white_box")), "not_comparable"),
        (page(result(epsilon=9.0, threat="white_box"), claim=claim(release="all")), "refuted"),
        (page(result(epsilon=9.0, threat="black_box_chosen_start")), "refuted"),
        (page(result(epsilon=9.0), claim=claim(epsilon=math.inf)), "consistent"),
        (page(refused="noise was used again"), "void"),
        (page(), "not_comparable"),
    ],
)
def test_the_verdict(shown: AuditPage, verdict: str) -> None:
    assert shown.verdict == verdict
    assert shown.failed == (verdict in ("refuted", "void"))
    assert AuditPage.from_document(shown.to_document()) == shown
    assert verdict.split("_")[0] in shown.explain().lower() or verdict in ("no_claim", "not_comparable")


def test_the_strongest_is_certified() -> None:
    assert page(result(), result(epsilon=0.7), result(**CONDITIONAL), result(**POINT)).strongest == result(epsilon=0.7)
    assert page(result(**CONDITIONAL)).strongest is None


def test_the_claim_is_above_and_the_verdict_last() -> None:
    lines = page(result(), result(**CONDITIONAL)).explain().splitlines()
    assert lines[2].startswith("claimed  (1, 1e-05)-DP, replace one, last iterate only, by a theorem")
    assert [line for line in lines if line.startswith("audited")] == [line for line in lines[3:] if line.startswith("audited")]
    assert lines[-1].startswith("consistent")


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_file_holds_the_page(tmp_path: Path, suffix: str) -> None:
    shown = page(result(), result(**POINT), claim=claim(epsilon=math.inf))
    shown.save(tmp_path / f"page.{suffix}")
    assert AuditPage.load(tmp_path / f"page.{suffix}") == shown


def test_a_file_cannot_claim_a_verdict() -> None:
    document = {**page(result(epsilon=2.0)).to_document(), "verdict": "consistent"}
    assert AuditPage.from_document(document).verdict == "refuted"


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": -1.0},
        {"epsilon": float("nan")},
        {"delta": 1.0},
        {"neighbours": "edit"},
        {"release": "some"},
        {"source": ""},
        {"epsilon": "1"},
    ],
)
def test_what_a_claim_refuses(change: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        claim(**change)


@pytest.mark.parametrize("change", [{"claim": 3}, {"audits": 3}, {"subject": ""}, {"claim": {"epsilon": 1.0}}, {"extra": 1}])
def test_what_a_page_refuses(change: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        AuditPage(**{"subject": "a trainer", "canary": "a record", **change})
