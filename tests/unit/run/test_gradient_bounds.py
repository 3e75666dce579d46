"""What a gradient bound may be trusted with, by attacks on what it may not."""

import math
from typing import Any

import pytest
from helpers import make_run

import lethe


def test_a_strongly_convex_loss_has_no_bounded_gradient() -> None:
    """Under replace one a quadratic term common to all records cancels; under zero out a whole gradient is taken away."""
    loss = {"kind": "strongly_convex", "strong_convexity": 0.5, "smoothness": 1.0, "gradient_bound": 1.0}
    for relation, fits in (("replace_one", True), ("zero_out", False)):
        if fits:
            findings = lethe.certify(make_run(loss=loss, neighbours=relation), 1e-5).findings
            assert any("differ by <= 2" in finding.detail and finding.evidence == "declared" for finding in findings)
        else:
            with pytest.raises(lethe.InputError, match="exceed it"):
                make_run(loss=loss, neighbours=relation)
    small = make_run(loss=loss, neighbours="zero_out", regulariser={"kind": "ball", "radius": 2.0})  # .5 * 4 / 2 = 1 is not above 1
    assert lethe.certify(small, 1e-5).epsilon < math.inf


def _common_quadratic(**changes: Any) -> lethe.Run:
    """Losses (x - y)^2 / 2 with |y| <= .1: two records' gradients differ by at most .2, one record's gradient is as large as x."""
    fields: dict[str, Any] = {
        "records": 1,
        "batches": {"design": "full"},
        "steps": 1,
        "step_size": 1.0,
        "loss": {"kind": "strongly_convex", "strong_convexity": 1.0, "smoothness": 1.0, "gradient_bound": 0.1},
        "release": "last",
        "neighbours": "replace_one",
    }
    return lethe.Run(**{**fields, **changes})


def test_a_common_term_is_no_one_step_bound() -> None:
    """Step 10 on a ball of radius 1: f'(x) differs by 2 across the ball for the same record, so D + 2 lambda G is far too small."""
    run = _common_quadratic(steps=5, step_size=10.0, noise_multiplier=[1e-3] * 4 + [10.0], regulariser=lethe.regularisers.Ball(1.0))
    # Monte Carlo of the event x > 0 after the last step: .842 against .159.
    assert lethe.certify(run, 1e-2).epsilon >= math.log((0.842 - 0.01) / 0.159)


def test_a_common_term_tells_who_was_drawn() -> None:
    """Poisson, q = 1/2, two records: a large common term shows how many were drawn, and then nothing is hidden by the sampling. Both are
    drawn with probability 1/4, so delta(eps) is at least a quarter of that of two Gaussians 2 apart."""
    run = _common_quadratic(records=2, batches={"design": "poisson", "size": 1}, noise_multiplier=1.0, release="all")
    certificate = lethe.certify(run, 1e-5)
    assert certificate.epsilon >= lethe.guarantees.GDP(2.0).epsilon(4e-5)
    assert {other.theorem: other.status for other in certificate.others}["sampled-gaussian"] == "refused"


def test_clipping_does_not_trust_an_impossible_bound() -> None:
    run = _common_quadratic(step_size=0.5, clip_norm=100.0, noise_multiplier=0.01, neighbours="zero_out")
    assert run.clips
    assert run.record_bound == 100.0
    assert lethe.certify(run, 1e-5).epsilon >= lethe.guarantees.GDP(50.0).epsilon(
        1e-5
    )  # from x = 50 the record moves the step by 25, noise .5
