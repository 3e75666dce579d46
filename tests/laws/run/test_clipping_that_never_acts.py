"""A clip norm that no gradient exceeds changes nothing, and the certificate says so; one that may act, and need not, is told too."""

import math
from typing import Any

import numpy as np
import pytest
from helpers import DESIGNS, EXACT_DESIGNS, batches, make_run

import lethe

STRONG = {"kind": "strongly_convex", "strong_convexity": 0.1, "smoothness": 0.5, "gradient_bound": 1.0}
LOSSES: tuple[dict[str, Any], ...] = (
    {"kind": "smooth", "smoothness": 0.1, "gradient_bound": 1.0},
    {"kind": "convex", "smoothness": 0.5, "gradient_bound": 1.0},
    {"kind": "softmax_regression", "feature_norm": 1.0},
    {"kind": "one_versus_rest_hinge", "feature_norm": 1.0, "classes": 3, "width": 0.5},
    {"kind": "holder", "constant": 0.1, "exponent": 0.5, "gradient_bound": 1.0},
)
GROUPS: tuple[list[float] | None, ...] = ([0.9, 0.4], None, [1.0])
BALL = {"kind": "ball", "radius": 0.05}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("loss", "design", "groups"),
    [
        (loss, design, GROUPS[(place + turn) % len(GROUPS)])
        for place, design in enumerate(DESIGNS)
        for turn, loss in enumerate(LOSSES)
        if place in (turn, turn + 1, turn + 2)
    ],
)
def test_it_costs_what_no_clipping_costs_with_the_same_noise(loss: dict[str, Any], design: str, groups: list[float] | None) -> None:
    plain = make_run(batches=batches(design, 10), loss=loss, regulariser=BALL, noise_multiplier=10.0)
    norm = 4.0 * plain.clip_bound
    clipped = plain.replace(
        clip_norm=norm, noise_multiplier=2.5, clip_groups=None if groups is None else [share * norm for share in groups]
    )
    assert not clipped.clips
    one, other = lethe.certify(plain, 1e-3), lethe.certify(clipped, 1e-3)
    assert other.epsilon == pytest.approx(one.epsilon, rel=1e-9)
    assert other.theorem == one.theorem
    assert other.lipschitz == one.lipschitz
    assert any("never acts" in finding.detail and "4 times" in finding.detail for finding in other.findings)
    assert not any("never acts" in finding.detail for finding in one.findings)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["softmax_regression", "logistic_regression", "smoothed_hinge", "truncated_softmax_regression"])
@pytest.mark.parametrize("norm", [1.0, 0.3, 2.0, 7.25])
@pytest.mark.parametrize("intercept", [False, True])
def test_a_clip_norm_that_is_the_bound_itself_never_acts(kind: str, norm: float, intercept: bool) -> None:
    """The bound is rounded up, the user's own square root is not: what decides is the square, exactly."""
    fields = {"smoothed_hinge": {"width": 0.5}, "truncated_softmax_regression": {"cut": 0.5}}.get(kind, {})
    loss = {"kind": kind, "feature_norm": norm, "intercept": intercept, **fields}
    factor = {"softmax_regression": 2.0, "truncated_softmax_regression": 0.5}.get(kind, 1.0)
    root = math.sqrt(factor * (norm**2 + intercept))
    above = float(np.nextafter(root, np.inf))
    assert not make_run(loss=loss, clip_norm=above).clips
    assert make_run(loss=loss, clip_norm=float(np.nextafter(root, 0.0))).clips
    assert "never acts" in lethe.certify(make_run(loss=loss, clip_norm=above), 1e-3).explain()
    # As good as no clip norm at all.
    assert lethe.certify(make_run(loss=loss, clip_norm=above), 1e-3).epsilon == pytest.approx(
        lethe.certify(make_run(loss=loss), 1e-3).epsilon, rel=1e-9
    )


@pytest.mark.parametrize("design", EXACT_DESIGNS)
@pytest.mark.parametrize("regulariser", [None, {"kind": "ridge", "strength": 0.5}])
def test_where_the_bound_is_one_on_differences_clipping_does_not_make_them_larger(design: str, regulariser: Any) -> None:
    """A strongly convex loss exceeds any bound somewhere, but clipping, a projection, brings two records' gradients no further apart."""
    plain = make_run(batches=batches(design, 10), loss=STRONG, regulariser=regulariser, noise_multiplier=6.0)
    clipped = plain.replace(clip_norm=3.0, noise_multiplier=2.0)
    assert clipped.clips
    assert np.array_equal(clipped.sensitivities, plain.sensitivities)
    assert clipped.noise_stds == pytest.approx(plain.noise_stds, rel=1e-14)
    one, other = (lethe.certify(run, 1e-3, theorems=["composition"]) for run in (plain, clipped))
    assert other.epsilon == pytest.approx(one.epsilon, rel=1e-9)
    assert any("differ by <= 2" in finding.detail and finding.evidence == "declared" for finding in other.findings)
    # A single contribution is as long as the clip norm: where it is taken away, or may be drawn or not, that is what counts.
    for alone in (clipped.replace(neighbours="zero_out"), clipped.replace(batches=lethe.batches.Poisson(10))):
        assert alone.sensitivities[0] == pytest.approx(alone.touch_factor * 3.0 * 0.5 / alone.batch_size)


def test_what_a_common_term_may_move_is_not_taken_for_a_difference() -> None:
    """One step on a small ball moves one record's clipped gradient by 2 C, whatever the difference of two records' gradients is."""
    run = make_run(
        records=1, batches={"design": "full"}, steps=5, step_size=10.0, clip_norm=100.0, noise_multiplier=[1e-5] * 4 + [0.01],
        loss={"kind": "strongly_convex", "strong_convexity": 1.0, "smoothness": 1.0, "gradient_bound": 0.1},
        regulariser={"kind": "ball", "radius": 1.0},
    )  # fmt: skip
    assert lethe.certify(run, 1e-2).epsilon >= math.log((0.842 - 0.01) / 0.159)  # as in test_clip_fields.py


def test_fixed_size_batches_take_the_difference_too() -> None:
    plain = make_run(batches=batches("without_replacement", 10), loss=STRONG, noise_multiplier=6.0, release="all")
    clipped = plain.replace(clip_norm=3.0, noise_multiplier=2.0)
    assert lethe.certify(clipped, 1e-3).epsilon == pytest.approx(lethe.certify(plain, 1e-3).epsilon, rel=1e-9)
    poisson = clipped.replace(batches=lethe.batches.Poisson(10))
    assert lethe.certify(poisson, 1e-3, ["sampled-gaussian"]).epsilon == pytest.approx(
        lethe.certify(
            poisson.replace(loss={"kind": "unknown"}), 1e-3, ["sampled-gaussian"]
        ).epsilon, rel=1e-9,
    )  # fmt: skip


def test_explain_tells_of_clipping_that_never_acts_and_of_clipping_that_need_not() -> None:
    never = lethe.certify(make_run(clip_norm=14.1421356237, noise_multiplier=1.0), 1e-3).explain()
    assert "clip_norm = 14.1421 never acts" in never
    assert "10 times" in never
    unsaid = make_run(loss={"kind": "convex", "smoothness": 0.25}, clip_norm=1.0)
    told = lethe.certify(unsaid, 1e-3).explain()
    assert "note: clipping may act" in told
    assert "loss.gradient_bound" in told
    for quiet in (make_run(), make_run(clip_norm=0.5), make_run(loss={"kind": "unknown"}, clip_norm=1.0), unsaid.replace(release="all")):
        assert "note: clip" not in lethe.certify(quiet, 1e-3).explain()


def test_plan_needs_less_of_a_clip_norm_that_never_acts() -> None:
    plain, clipped = make_run(), make_run(clip_norm=4.0 * 2**0.5)
    one, other = (lethe.plan(run, 1.0, 1e-3) for run in (plain, clipped))
    assert float(other.noise_multipliers[0]) * 4.0 == pytest.approx(float(one.noise_multipliers[0]), rel=1e-6)
