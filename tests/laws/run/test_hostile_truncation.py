"""Attacks on cut batches and on the record of how gradients were clipped: what was repelled, and what still gets through."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from how_many import by_night

import lethe
from lethe.accounting.recheck import recheck
from lethe.calculus.any_guarantee.stored import guarantee_from_dict
from lethe.certificates.records import HypothesisClaim, Released, TrainingRecord
from lethe.errors import InputError
from lethe.theorems.lipschitz import clipped_step
from lethe.theorems.truncation import truncation_slack

DELTA = 1e-2


def make_run(**changes: Any) -> lethe.Run:
    fields: dict[str, Any] = {
        "records": 1000,
        "batches": {"design": "poisson", "size": 50, "truncate_at": 80},
        "steps": 20,
        "step_size": 0.1,
        "clip_norm": 1.0,
        "noise_multiplier": 2.0,
        "release": "last",
        "neighbours": "replace_one",
        **changes,
    }
    return lethe.Run(**fields)


LOSSES: dict[str, dict[str, Any]] = {
    "small domain": {"loss": {"kind": "convex", "smoothness": 1.0}, "regulariser": {"kind": "ball", "radius": 0.01}},
    "ridge": {"loss": {"kind": "convex", "smoothness": 1.0}, "regulariser": {"kind": "ridge", "strength": 1.0}},
    "groups": {"loss": {"kind": "convex", "smoothness": 1.0}, "clip_groups": [0.6, 0.8]},
    "normalised": {"clip_method": "normalise"},
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("facts", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("release", ["all", "last"])
@pytest.mark.parametrize("design", ["poisson", "balls_in_bins"])
def test_no_number_leaves_the_cost_of_the_cap_out(design: str, release: str, facts: dict[str, Any]) -> None:
    run = make_run(batches={"design": design, "size": 50, "truncate_at": 80}, release=release, **facts)
    slack, certificate = truncation_slack(run), lethe.certify(run, DELTA, allow_large_delta=True)
    assert 1e-5 < slack < DELTA
    for guarantee in (certificate.guarantee, guarantee_from_dict(certificate.guarantee.to_dict())):
        assert guarantee.delta(1e6) >= slack
        assert guarantee.epsilon(slack) == float("inf")


def clipped_in_blocks(gradient: np.ndarray[Any, Any], blocks: list[np.ndarray[Any, Any]], norms: list[float]) -> np.ndarray[Any, Any]:
    clipped = gradient.copy()
    for block, norm in zip(blocks, norms, strict=True):
        clipped[block] *= min(1.0, norm / np.linalg.norm(gradient[block]))
    return clipped


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("weak_convexity", "smoothness", "step"), [(0.0, 1.0, 1.0), (0.0, 1.0, 3.0), (0.3, 1.0, 1.0), (-0.2, 1.0, 1.0)])
def test_no_pair_of_steps_with_blocks_clipped_by_themselves_is_found_to_expand_more_than_the_constant(
    weak_convexity: float, smoothness: float, step: float
) -> None:
    """A random search over quadratics, blocks, norms and pairs; it comes near the constant, which is attained by one block."""
    constant, drawn, most = clipped_step(step, weak_convexity, smoothness), np.random.default_rng(0), 0.0
    for _ in range(4000 if by_night() else 2000):
        dimension = int(drawn.integers(2, 5))
        label = drawn.integers(0, drawn.integers(1, dimension + 1), dimension)
        blocks = [np.flatnonzero(label == one) for one in np.unique(label)]
        axes = np.linalg.qr(drawn.normal(size=(dimension, dimension)))[0]
        curvature = axes @ np.diag(drawn.choice([-weak_convexity, smoothness], size=dimension)) @ axes.T
        norms = [float(10.0 ** drawn.uniform(-3, 1)) for _ in blocks]
        gradient = drawn.normal(size=dimension)
        apart = drawn.normal(size=dimension) * 10.0 ** drawn.uniform(-4, 1)
        turned = clipped_in_blocks(gradient + curvature @ apart, blocks, norms) - clipped_in_blocks(gradient, blocks, norms)
        most = max(most, float(np.linalg.norm(apart - step * turned) / np.linalg.norm(apart)))
    assert 0.97 * constant < most <= constant * (1 + 1e-9)


@pytest.mark.parametrize("name", ["release", "curvature"])
def test_a_certificate_that_calls_declared_facts_enforced_is_found(name: str) -> None:
    """Nothing enforces the curvature of a convex loss; only what the code that trained can make true may be promoted, and by its name."""
    run = make_run(batches={"design": "cyclic", "size": 50}, steps=100, loss={"kind": "convex", "smoothness": 1.0})
    certificate = lethe.certify(run, DELTA, allow_large_delta=True)
    declared = next(found for found in certificate.findings if found.name == name)
    assert declared.evidence == "declared"
    better = replace(declared, evidence="enforced")
    for findings in (
        tuple(better if found is declared else found for found in certificate.findings),
        (*certificate.findings, better),
        (*certificate.findings, replace(better, by="an auditor")),
        (*certificate.findings, replace(declared, evidence="checked")),
    ):
        forged = replace(certificate, findings=findings)
        with pytest.raises(InputError, match="hypotheses"):
            recheck(forged)
    with pytest.raises(InputError, match="not known to enforce any"):
        lethe.Certificate.from_dict(replace(certificate, findings=(replace(better, by="an auditor"),)).to_dict())


def test_a_certificate_says_which_code_enforces_what_its_run_declares() -> None:
    """And of no other hypothesis than those that this code can make true."""
    run = make_run(batches={"design": "cyclic", "size": 50}, steps=100, loss={"kind": "convex", "smoothness": 1.0})
    certificate = lethe.certify(run, DELTA, allow_large_delta=True)
    how = (HypothesisClaim("release", "only the last iterate leaves fit"),)
    record = TrainingRecord(run=run, by="lethe.estimators", enforced=how, released=(Released("weights", "0" * 64),))
    promoted = lethe.certify(record, DELTA, allow_large_delta=True)
    assert "only the last iterate leaves fit [by lethe.estimators]" in promoted.explain()
    recheck(promoted)
    again = lethe.Certificate.from_dict(promoted.to_dict())
    recheck(again)
    assert again == promoted
    assert all("by" not in finding.to_dict() for finding in certificate.findings)
    batches = next(found for found in certificate.findings if found.name == "batches")
    recast = replace(batches, evidence="enforced", by="lethe.estimators")
    with pytest.raises(InputError, match="hypotheses"):
        recheck(replace(certificate, findings=tuple(recast if found is batches else found for found in certificate.findings)))
    with pytest.raises(InputError, match="not known to enforce 'batches'"):
        replace(record, enforced=(HypothesisClaim("batches", "by the code"),))
