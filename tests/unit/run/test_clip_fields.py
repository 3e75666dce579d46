"""Clipping in the words of a Run, and what a gradient bound may be trusted with: groups, normalised gradients, attacks."""

import math
from typing import Any

import numpy as np
import pytest
from helpers import DESIGNS, make_run
from helpers import batches as batches_of

import lethe
from lethe.accounting.certify import evaluate_theorems
from lethe.theorems.lipschitz import clipped_step, generalised_linear_step
from lethe.theorems.registry import ALL
from lethe.theorems.steps import step_constants

SMOOTH = {"kind": "smooth", "smoothness": 1.0, "gradient_bound": 0.5}
LINEAR = {"kind": "generalised_linear", "weak_convexity": 0.0, "smoothness": 1.0}
ANY_METHOD = {"balls-in-bins", "composition", "sampled-gaussian", "budget-filter"}


def clipped(**changes: Any) -> lethe.Run:
    return make_run(**{"loss": {"kind": "unknown"}, "clip_norm": 1.0, **changes})


@pytest.mark.parametrize(
    "changes", [{"clip_method": "normalise"}, {"clip_groups": [0.6, 0.8]}, {"clip_method": "automatic", "clip_groups": (1.0,)}]
)
def test_documents_name_the_fields_only_where_they_are_set(changes: dict[str, Any]) -> None:
    run = clipped(**changes)
    document = run.to_document()
    assert lethe.Run.from_document(document) == run
    assert {name: document[name] for name in changes} == {name: list(v) if isinstance(v, tuple) else v for name, v in changes.items()}
    plain = clipped()
    assert not {"clip_method", "clip_groups"} & set(plain.to_document())
    assert run.run_id != plain.run_id == clipped(clip_method="clip", clip_groups=None).run_id
    assert run.replace(clip_method="clip", clip_groups=None) == plain


@pytest.mark.parametrize("count", [2, 3, 7, 1000])
def test_equal_shares_are_within_rounding(count: int) -> None:
    assert clipped(clip_groups=[count**-0.5] * count).clips_in_groups


def test_a_lengthened_gradient_has_the_clip_norm_whatever_the_loss_says() -> None:
    for method in ("normalise", "automatic"):
        run = clipped(loss=SMOOTH, clip_method=method, release="all")
        assert run.clips
        assert (run.record_bound, clipped(loss=SMOOTH).record_bound) == (1.0, 0.5)
        loose, tight = lethe.certify(run, 1e-5), lethe.certify(clipped(loss=SMOOTH, release="all"), 1e-5)
        assert loose.epsilon == lethe.certify(clipped(release="all"), 1e-5).epsilon > 1.5 * tight.epsilon
        assert method in loose.explain()


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("method", ["normalise", "automatic"])
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("release", ["last", "all"])
def test_only_theorems_that_need_no_projection_take_other_methods(method: str, design: str, release: str) -> None:
    batches = batches_of(design, 10)
    loss = {"kind": "convex", "smoothness": 0.1}
    run = clipped(batches=batches, clip_method=method, release=release, loss=loss, regulariser={"kind": "ball", "radius": 1.0})
    verdicts = evaluate_theorems(run, ALL)
    assert {verdict.theorem.name for verdict in verdicts if verdict.bound is not None} <= ANY_METHOD
    assert "composition" in {verdict.theorem.name for verdict in verdicts if verdict.bound is not None}
    for verdict in verdicts:
        if verdict.theorem.name not in ANY_METHOD and not verdict.theorem.correlated:
            refuses_groups = design == "cyclic_poisson" and not verdict.theorem.record_groups
            assert ("about steps that draw from one group" if refuses_groups else "no Lipschitz constant") in verdict.reason
    assert lethe.certify(run, 1e-5).epsilon >= lethe.certify(run.replace(clip_method="clip"), 1e-5).epsilon


def test_published_theorems_are_about_one_norm_and_ours_take_groups() -> None:
    loss = {"kind": "convex", "smoothness": 0.1}
    run = clipped(clip_groups=[0.6, 0.8], loss=loss)
    applied = {verdict.theorem.name for verdict in evaluate_theorems(run, ALL) if verdict.bound is not None}
    assert applied == {"optimal-shift", "composition"}
    one = clipped(clip_groups=[1.0], loss=loss)
    assert {v.theorem.name for v in evaluate_theorems(one, ALL) if v.bound is not None} == {
        v.theorem.name for v in evaluate_theorems(clipped(loss=loss), ALL) if v.bound is not None
    }
    assert lethe.certify(run, 1e-5).epsilon >= lethe.certify(one, 1e-5).epsilon


def test_groups_clip_what_one_norm_would_not() -> None:
    """A gradient of norm 0.5 stays as it is under one norm of 1, and under groups of 0.6 and 0.8, but not under 0.1 and 0.99."""
    assert not clipped(loss=SMOOTH).clips
    assert not clipped(loss=SMOOTH, clip_groups=[0.6, 0.8]).clips
    assert not clipped(loss=SMOOTH, clip_groups=[0.5, 0.5]).clips
    turned = clipped(loss=SMOOTH, clip_groups=[0.1, 0.99])
    assert turned.clips
    assert turned.record_bound == 0.5
    constants = [step_constants(run) for run in (turned, clipped(loss=SMOOTH, clip_groups=[0.6, 0.8]))]
    assert constants[0] is not None
    assert constants[1] is not None
    assert "in groups" in constants[0].constant.certificate
    assert "no clipping active" in constants[1].constant.certificate
    assert constants[0].constant.constant >= constants[1].constant.constant


def test_a_scalar_loss_clipped_in_groups_expands_by_no_more_than_its_constant() -> None:
    r"""f(x) = <u, x>^2 / 2 in two coordinates, each a group: worse than one norm's constant 1, never worse than the clipped step's."""
    random = np.random.default_rng(0)
    run = clipped(loss=LINEAR, clip_groups=[0.1, 0.99], step_size=1.0)
    steps = step_constants(run)
    assert steps is not None
    said = steps.constant.constant
    assert said == clipped_step(1.0, 0.0, 1.0) > generalised_linear_step(1.0, 0.0, 1.0) == 1.0
    norms, worst = np.array([0.1, 0.99]), 0.0
    for angle in np.linspace(0.0, np.pi, 41):
        u = np.array([np.cos(angle), np.sin(angle)])
        x, y = random.normal(size=(2, 4000, 2)) * random.choice([0.01, 0.3, 3.0], size=(2, 4000, 1))
        y = np.where(random.random((4000, 1)) < 0.7, x + 0.01 * y, y)
        moved = [point - np.clip((point @ u)[:, None] * u, -norms, norms) for point in (x, y)]
        worst = max(worst, float((np.linalg.norm(moved[0] - moved[1], axis=1) / np.linalg.norm(x - y, axis=1)).max()))
    assert 1.05 < worst <= said  # above 1: the constant for one norm would be false here


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
    loss = {"kind": "strongly_convex", "strong_convexity": 1.0, "smoothness": 1.0, "gradient_bound": 0.1}
    return make_run(**{"records": 1, "batches": {"design": "full"}, "steps": 1, "step_size": 1.0, "loss": loss, **changes})


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
