"""print(x) is a short text for a person, repr(x) one line, whatever the result and however long its lists."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import make_run

import lethe
from lethe.accounting.cumulative import cumulative_privacy
from lethe.audit.statistics.curves import AuditSetting
from lethe.audit.statistics.lower_bounds import two_world
from lethe.audit.statistics.rules import FixedThreshold
from lethe.certificates.records import TrainingRecord
from lethe.documents.shortened import few_lines, shortened, thinned

LISTED = [5.0] * 50


def _audit() -> Any:
    scores = np.random.default_rng(0).normal(size=(2, 50))
    return two_world(*scores, AuditSetting(delta=1e-5, neighbours="replace_one", threat="final_model"), rule=FixedThreshold(threshold=0.0))


def _record() -> TrainingRecord:
    return TrainingRecord(run=make_run(), by="lethe.train", released=())


RESULTS: dict[str, Callable[[], Any]] = {
    "Run": make_run,
    "Run with a list": lambda: make_run(noise_multiplier=LISTED),
    "Certificate": lambda: lethe.certify(make_run(), 1e-5),
    "Certificate of nothing": lambda: lethe.certify(make_run(noise_multiplier=0.0), 1e-5),
    "Certificate of a list": lambda: lethe.certify(make_run(noise_multiplier=LISTED), 1e-5),
    "Comparison": lambda: lethe.compare(make_run(), 1e-5),
    "Sweep": lambda: lethe.compare(make_run(), 1e-5, over="noise", theorems=["optimal-shift", "composition"]),
    "Allocation": lambda: lethe.allocate(make_run(noise_multiplier=None), 1.0, 1e-5),
    "Verification": lambda: lethe.verify(lethe.certify(make_run(), 1e-5)),
    "AuditResult": _audit,
    "Cumulative": lambda: cumulative_privacy(make_run(), 1e-5),
    "TrainingRecord": _record,
    "RDPCurve": lambda: lethe.guarantees.RDPCurve(orders=tuple(np.arange(2.0, 80.0)), values=tuple(np.arange(2.0, 80.0))),
    "Total": lambda: lethe.total([lethe.certify(make_run(noise_multiplier=noise), 1e-6) for noise in range(5, 25)], 1e-5),
    "Explicit": lambda: lethe.schedules.Explicit(LISTED),
}


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", RESULTS)
def test_print_is_short_and_repr_is_one_line(name: str) -> None:
    result = RESULTS[name]()
    assert "\n" not in repr(result)
    assert len(repr(result)) < 400
    assert len(str(result).splitlines()) <= 12
    assert len(str(result)) < 2000


def test_the_loops_of_lists_are_not_shown_but_their_range_is() -> None:
    assert repr(lethe.schedules.Explicit(LISTED)) == "Explicit(listed=<50 values from 5 to 5>)"
    assert repr(make_run(neighbours="zero_out")).endswith("neighbours='zero_out')")
    assert shortened((1.0, 2.0)) == (1.0, 2.0)


def test_the_claim_and_what_must_be_believed_are_never_left_out_of_a_certificate() -> None:
    for certificate in (
        lethe.certify(make_run(), 1e-5),
        lethe.certify(make_run(records=10, batches=lethe.batches.Full()), 0.2, allow_large_delta=True),
    ):
        text, whole = str(certificate), certificate.explain()
        assert text.splitlines()[:2] == whole.splitlines()[:2]
        declared = [line for line in whole.splitlines() if line.startswith(("    declared", "note:"))]
        assert declared
        assert all(line in text for line in declared)
    assert "NOT PRIVATE" in str(lethe.certify(make_run(noise_multiplier=0.0), 1e-5))


def test_a_short_comparison_never_shows_a_claim_as_proved() -> None:
    comparison = lethe.compare(make_run(), 1e-5)
    claims = {row.theorem for row in comparison.rows if row.epsilon is not None and not row.usable}
    assert claims
    assert not any(line.split()[0] in claims for line in str(comparison).splitlines())


def test_lines_left_out_are_counted() -> None:
    assert few_lines(list("abcdefghijkl"), whole="all()") == "\n".join("abcdefghijkl")
    assert few_lines(list("abcdefghijklm"), whole="all()") == "\n".join([*"abcdefghijk", "and 2 more lines: all()"])
    assert thinned(5, 5) == [0, 1, 2, 3, 4]
    assert thinned(100, 3) == [0, 50, 99]


def test_what_could_not_be_made_can_still_be_shown() -> None:
    """Debuggers and test runners show the object whose constructor failed."""
    assert repr(lethe.schedules.Explicit.__new__(lethe.schedules.Explicit)) == "Explicit()"
