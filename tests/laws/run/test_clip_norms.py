"""Clipping: groups, normalised gradients, what a gradient bound may be trusted with, and a clip norm that no gradient exceeds."""

import math
from typing import Any

import numpy as np
import pytest
from helpers import DESIGNS, EXACT_DESIGNS, batches, make_run
from scipy.optimize import approx_fprime

import lethe
from lethe.accounting.certify import evaluate_theorems
from lethe.theorems.lipschitz import clipped_step, generalised_linear_step
from lethe.theorems.registry import ALL
from lethe.theorems.steps import step_constants

SMOOTH = {"kind": "smooth", "smoothness": 1.0, "gradient_bound": 0.5}
LINEAR = {"kind": "generalised_linear", "weak_convexity": 0.0, "smoothness": 1.0}
ANY_METHOD = {"balls-in-bins", "composition", "random-allocation", "sampled-gaussian", "budget-filter"}


def clipped(**changes: Any) -> lethe.Run:
    return make_run(**{"loss": {"kind": "unknown"}, "clip_norm": 1.0, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"clip_method": "normalise"},
        {"clip_groups": [0.6, 0.8]},
        {"clip_method": "automatic", "clip_groups": (1.0,)},
        {"clip_method": "adaptive", "clip_quantile": 0.5, "release": "all"},
    ],
)
def test_documents_name_the_fields_only_where_they_are_set(changes: dict[str, Any]) -> None:
    run = clipped(**changes)
    document = run.to_document()
    assert lethe.Run.from_document(document) == run
    assert {name: document[name] for name in changes} == {name: list(v) if isinstance(v, tuple) else v for name, v in changes.items()}
    plain = clipped(release=run.release)
    assert not {"clip_method", "clip_groups", "clip_quantile"} & set(plain.to_document())
    assert run.run_id != plain.run_id == clipped(clip_method="clip", clip_groups=None, release=run.release).run_id
    assert run.replace(clip_method="clip", clip_groups=None, clip_quantile=None) == plain
    for count in (2, 3, 7, 1000):  # equal shares are within rounding
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
@pytest.mark.parametrize("method", ["normalise", "automatic"])
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("release", ["last", "all"])
def test_only_theorems_that_need_no_projection_take_other_methods(method: str, design: str, release: str) -> None:
    loss = {"kind": "convex", "smoothness": 0.1}
    run = clipped(batches=batches(design, 10), clip_method=method, release=release, loss=loss, regulariser={"kind": "ball", "radius": 1.0})
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
    several, single, plain = (clipped(loss=loss, **groups) for groups in ({"clip_groups": [0.6, 0.8]}, {"clip_groups": [1.0]}, {}))
    applied = [{one.theorem.name for one in evaluate_theorems(run, ALL) if one.bound is not None} for run in (several, single, plain)]
    assert applied[0] == {"optimal-shift", "composition"}
    assert applied[1] == applied[2]
    assert lethe.certify(several, 1e-5).epsilon >= lethe.certify(single, 1e-5).epsilon


def test_groups_clip_what_one_norm_would_not() -> None:
    """A gradient of norm 0.5 stays as it is under one norm of 1, and under groups of 0.6 and 0.8, but not under 0.1 and 0.99."""
    for groups, acts in ((None, False), ([0.6, 0.8], False), ([0.5, 0.5], False), ([0.1, 0.99], True)):
        run = clipped(loss=SMOOTH, clip_groups=groups)
        assert (run.clips, run.record_bound) == (acts, 0.5)
        steps = step_constants(run)
        assert steps is not None
        assert ("in groups" if acts else "no clipping active") in steps.constant.certificate


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


def test_clipping_the_mean_of_scalar_losses_may_expand_a_step() -> None:
    r"""Two records with $\langle u_1, u_2\rangle = 0$ make any quadratic: a clipped step of their mean expands as that of any convex loss.

    The constant of one record's scalar loss, 1, is exceeded by the map itself; that of a user's mean is not, and is nearly attained.
    """
    step, smoothness = 0.9, 1.0
    curvatures = np.array([smoothness, 1e-6])
    bound = clipped_step(step, 0.0, smoothness)

    def moved(x: np.ndarray, norm: float) -> np.ndarray:
        gradient = curvatures * x
        return x - step * gradient * min(1.0, norm / np.linalg.norm(gradient))

    largest = 0.0
    for angle in np.linspace(0.01, np.pi / 2 - 0.01, 400):
        gradient = np.array([np.cos(angle), np.sin(angle)])
        x = gradient / curvatures * (1 + 1e-7)  # just outside the ball, where clipping acts
        jacobian = approx_fprime(x, lambda z: moved(z, 1.0), 1e-5 / curvatures.max())
        largest = max(largest, np.linalg.norm(jacobian, 2))
    assert generalised_linear_step(step, 0.0, smoothness) == 1.0
    assert 0.99 * bound < largest <= bound * (1 + 1e-4)
    loss = lethe.losses.GeneralisedLinear(smoothness=smoothness, weak_convexity=0.0)
    run = clipped(records=400, batches=lethe.batches.Cyclic(20), loss=loss, step_size=step, noise_multiplier=2.0)
    of_records, of_users = step_constants(run), step_constants(run.replace(unit="user"))
    assert of_records is not None
    assert of_users is not None
    assert of_records.constant.constant == 1.0
    assert of_users.constant.constant == pytest.approx(bound, rel=1e-12)
    assert lethe.certify(run.replace(unit="user"), 1e-4).epsilon >= lethe.certify(run, 1e-4).epsilon


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


@pytest.mark.parametrize(
    "changes", [{"noise_multiplier": [1e-3] * 4 + [10.0]}, {"noise_multiplier": [1e-5] * 4 + [0.01], "clip_norm": 100.0}]
)
def test_a_common_term_is_no_one_step_bound(changes: dict[str, Any]) -> None:
    """Step 10 on a ball of radius 1: f'(x) differs by 2 across the ball for the same record, clipped or not, so D + 2 lambda G is far too
    small."""
    run = _common_quadratic(steps=5, step_size=10.0, regulariser=lethe.regularisers.Ball(1.0), **changes)
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
    # From x = 50 the record moves the step by 25, noise .5.
    assert lethe.certify(run, 1e-5).epsilon >= lethe.guarantees.GDP(50.0).epsilon(1e-5)


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


def test_fixed_size_batches_take_the_difference_too() -> None:
    plain = make_run(batches=batches("without_replacement", 10), loss=STRONG, noise_multiplier=6.0, release="all")
    run = plain.replace(clip_norm=3.0, noise_multiplier=2.0)
    assert lethe.certify(run, 1e-3).epsilon == pytest.approx(lethe.certify(plain, 1e-3).epsilon, rel=1e-9)
    poisson = run.replace(batches=lethe.batches.Poisson(10))
    one, other = (lethe.certify(run, 1e-3, ["sampled-gaussian"]) for run in (poisson, poisson.replace(loss={"kind": "unknown"})))
    assert one.epsilon == pytest.approx(other.epsilon, rel=1e-9)


def test_explain_tells_of_clipping_that_need_not_act() -> None:
    unsaid = make_run(loss={"kind": "convex", "smoothness": 0.25}, clip_norm=1.0)
    assert "note: clipping may act" in lethe.certify(unsaid, 1e-3).explain()
    for quiet in (make_run(), make_run(clip_norm=0.5), make_run(loss={"kind": "unknown"}, clip_norm=1.0), unsaid.replace(release="all")):
        assert "note: clip" not in lethe.certify(quiet, 1e-3).explain()
