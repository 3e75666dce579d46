"""What is claimed beside what was found: when the two cross, when they cannot be compared, when an audit is no evidence."""

import math
from pathlib import Path
from typing import Any

import pytest
from audit_truths import CONDITIONAL, POINT, claim
from audit_truths import result as any_result

from lethe.audit.page import AuditPage
from lethe.audit.statistics.result import AuditResult


def result(**changes: Any) -> AuditResult:
    return any_result(**{"epsilon": 0.5, **changes})


def page(*audits: AuditResult, **changes: Any) -> AuditPage:
    return AuditPage(**{"subject": "a trainer", "canary": "a record", "claim": claim(), "audits": audits, **changes})


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
    assert lines[-1].startswith("consistent: no certified lower bound")


@pytest.mark.parametrize(
    ("found", "claimed", "words"),
    [
        (result(epsilon=0.0, at_best=3.0), 0.5, "no evidence: nothing was found; so many trials can show epsilon >= 3.000 at best"),
        (result(epsilon=0.0), 0.5, "no evidence: nothing was found"),
        (
            result(epsilon=0.5, at_best=0.9),
            1.0,
            "0.900 at best, which could not have refuted the claim whatever the mechanism reveals; run more",
        ),
        (result(epsilon=0.5, at_best=2.0), 1.0, ""),
        (result(epsilon=0.5, at_best=2.0), 0.2, ""),
        (result(epsilon=0.5, at_best=2.0), math.inf, ""),
    ],
)
def test_what_could_not_have_refuted_or_found_nothing_is_no_evidence(found: AuditResult, claimed: float, words: str) -> None:
    shown = page(found, claim=claim(epsilon=claimed))
    assert shown.powerless.endswith(words)
    assert bool(shown.powerless) == bool(words)
    assert ("no evidence" in shown.says) == bool(words)


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_file_holds_the_page_and_cannot_claim_a_verdict(tmp_path: Path, suffix: str) -> None:
    shown = page(result(epsilon=2.0), result(**POINT), claim=claim(epsilon=math.inf))
    shown.save(tmp_path / f"page.{suffix}")
    assert AuditPage.load(tmp_path / f"page.{suffix}") == shown
    assert AuditPage.from_document({**page(result(epsilon=2.0)).to_document(), "verdict": "consistent"}).verdict == "refuted"
